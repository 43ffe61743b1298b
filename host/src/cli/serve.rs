//! `plimsoll serve`

use std::net::SocketAddr;

use anyhow::{Context, bail};
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{ConfigArgument, Exit};
use crate::app::App;
use crate::config::{Setting, Source};
use crate::http::Allowed;
use crate::shape::tokens;
use crate::{http, mcp};

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigArgument,
    /// Serve one MCP client over standard input and output instead of HTTP
    #[arg(long)]
    stdio: bool,
    /// The address to listen on, instead of the configured one
    #[arg(long, value_name = "ADDRESS", conflicts_with = "stdio")]
    listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let mut config = self.config.read()?;
        if let Some(listen) = self.listen {
            config.listen = Setting { value: listen, source: Source::CommandLine };
        }
        // The tables take tens of milliseconds; the first answer should not wait for them.
        tokio::task::spawn_blocking(tokens::warm);
        let stop = CancellationToken::new();
        if self.stdio {
            let app = App::start(config).await?;
            tokio::spawn(stop_on_signal(stop.clone()));
            mcp::stdio(app.host, stop).await?;
            return Ok(Exit::Success);
        }
        let address = config.listen.value;
        if !address.ip().is_loopback() {
            bail!(
                "refusing to listen on `{address}`: this host has no keys, so everybody who reaches that address could call its \
                 tools\nhint: listen on a loopback address such as `127.0.0.1:8787`"
            );
        }
        let allowed = Allowed::of(&config);
        let app = App::start(config).await?;
        let listener = TcpListener::bind(address).await.with_context(|| format!("listening on `{address}`"))?;
        let bound = listener.local_addr().context("reading the address that was bound")?;
        tokio::spawn(stop_on_signal(stop.clone()));
        let tools = app.host.catalog().tools().len();
        tracing::info!("single user, no keys: serving {tools} tools on http://{bound} (MCP at /mcp, API at /v1/tools)");
        http::run(listener, http::router(app.host, allowed, stop.clone()), stop).await?;
        Ok(Exit::Success)
    }
}

/// Fires `stop` at the first interrupt or termination signal.
async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(error) => {
            tracing::warn!(%error, "cannot listen for SIGTERM");
            let _ = tokio::signal::ctrl_c().await;
        }
    }
    tracing::info!("stopping");
    stop.cancel();
}
