//! `plimsoll serve`

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{CallerArguments, ConfigArgument, Exit};
use crate::app::App;
use crate::config::{Setting, Source};
use crate::http::Allowed;
use crate::{http, mcp, watch};

/// How long calls may go on after the host was told to stop: what process managers commonly allow.
const DRAIN: Duration = Duration::from_secs(10);

/// How long they may take to end once they are stopped: a guest that computes comes to the end of its turn in milliseconds.
const ENDING: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigArgument,
    /// Serve one MCP client over standard input and output instead of HTTP
    #[arg(long)]
    stdio: bool,
    #[command(flatten)]
    caller: CallerArguments,
    /// The address to listen on, instead of the configured one
    #[arg(long, value_name = "ADDRESS", conflicts_with = "stdio")]
    listen: Option<SocketAddr>,
}

impl Serve {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let mut config = self.config.read()?;
        if let Some(listen) = self.listen {
            config.listen = Setting {
                value: listen,
                source: Source::CommandLine,
            };
        }
        let stop = CancellationToken::new();
        let address = config.listen.value;
        if !self.stdio && !address.ip().is_loopback() && config.tenants.is_empty() {
            bail!(
                "refusing to listen on `{address}`: this host has no keys, so everybody who reaches that address could call its \
                 tools\nhint: listen on a loopback address such as `127.0.0.1:8787`, or give the config file tenants, and \
                 them keys with `plimsoll keys add`"
            );
        }
        let app = App::open(config).await?;
        // Known before anything is served, so that a wrong name is an error of the command.
        let caller = if self.stdio {
            Some(self.caller.caller(&app)?)
        } else {
            None
        };
        tokio::spawn(stop_on_signal(stop.clone()));
        let (host, ended) = (app.host.clone(), stop.clone());
        tokio::spawn(async move { host.results().run(ended).await });
        // A client is answered while plugins compile; only what needs the tools waits for them.
        let load_and_watch = async {
            app.load().await?;
            let tools = app.host.tools();
            tracing::info!("{tools} tools are ready");
            app.log_costs();
            watch::run(&app, stop.clone()).await
        };
        let doors = async {
            if let Some(caller) = caller {
                return mcp::stdio(app.host.clone(), caller, stop.clone()).await;
            }
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("listening on `{address}`"))?;
            let bound = listener
                .local_addr()
                .context("reading the address that was bound")?;
            let who = match app.config.tenants.len() {
                0 => String::from("single user, no keys"),
                1 => String::from("1 tenant"),
                tenants => format!("{tenants} tenants"),
            };
            tracing::info!("{who}: listening on http://{bound} (MCP at /mcp, API at /v1/tools)");
            // Nobody can follow a link to an address that stands for all of them; `public_url` names one.
            if !bound.ip().is_unspecified() {
                app.host
                    .results()
                    .links()
                    .begin_with(&format!("http://{bound}"));
            }
            let router = http::router(app.host.clone(), Allowed::of(&app.config), stop.clone());
            http::run(listener, router, stop.clone()).await
        };
        let outcome = serve(doors, load_and_watch, &app).await;
        app.close().await;
        outcome.map(|()| Exit::Success)
    }
}

/// Serves until the doors close or the signal to stop comes; then what runs may end, for a while.
async fn serve(
    doors: impl Future<Output = anyhow::Result<()>>,
    load_and_watch: impl Future<Output = anyhow::Result<()>>,
    app: &App,
) -> anyhow::Result<()> {
    tokio::pin!(doors);
    tokio::select! {
        outcome = &mut doors => return outcome,
        outcome = load_and_watch => outcome?,
        () = app.keep() => {}
    }
    match tokio::time::timeout(DRAIN, &mut doors).await {
        Ok(outcome) => outcome?,
        Err(_) => {
            tracing::warn!(
                "{} calls were still running after {} s and were stopped",
                app.host.running(),
                DRAIN.as_secs()
            );
            // The doors go on meanwhile: it is they who run the calls of a client over standard input, and who write down what a
            // call is answered that was ended.
            let until = tokio::time::Instant::now() + ENDING;
            let mut are_closed = false;
            let ended = async {
                let ending = app.host.end_calls();
                tokio::pin!(ending);
                loop {
                    tokio::select! {
                        () = &mut ending => return,
                        _ = &mut doors, if !are_closed => are_closed = true,
                    }
                }
            };
            if tokio::time::timeout_at(until, ended).await.is_err() {
                tracing::error!("calls do not end: they are not in the ledger");
            }
            if !are_closed {
                // A client that does not read its answer does not keep the host.
                let _ = tokio::time::timeout_at(until, doors).await;
            }
        }
    }
    Ok(())
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
