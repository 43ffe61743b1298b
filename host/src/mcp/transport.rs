//! Where MCP messages come in and go out.

use std::sync::Arc;

use axum::Router;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::server::Server;
use super::stdio::Lines;
use crate::call::{Caller, Host};

tokio::task_local! {
    /// Who sends the HTTP request that is being handled.
    static CALLER: Caller;
}

/// Handles an HTTP request as that caller's.
pub async fn as_caller<T>(caller: Caller, handling: impl Future<Output = T>) -> T {
    CALLER.scope(caller, handling).await
}

/// Serves one client over standard input and output, as that caller, until it closes them or `stop` fires.
pub async fn stdio(host: Arc<Host>, caller: Caller, stop: CancellationToken) -> anyhow::Result<()> {
    let service = Server::new(host, caller)
        .serve_with_ct(Lines::new(rmcp::transport::stdio_pipes()), stop)
        .await;
    match service {
        Ok(running) => {
            running.waiting().await?;
            Ok(())
        }
        // A client that closes before it has said anything has not done anything wrong.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The route `/mcp`. Which hosts and origins may reach it is checked before, for all HTTP doors alike.
pub fn http(host: &Arc<Host>, stop: CancellationToken) -> Router {
    let host = host.clone();
    // rmcp makes a server for each request, or for each session at its beginning, while it handles that request.
    let server = move || {
        CALLER
            .try_with(Caller::clone)
            .map(|caller| Server::new(host.clone(), caller))
            .map_err(|_| std::io::Error::other("a request came without its caller"))
    };
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_cancellation_token(stop);
    let sessions = Arc::new(LocalSessionManager::default());
    Router::new().nest_service("/mcp", StreamableHttpService::new(server, sessions, config))
}
