//! Where MCP messages come in and go out.

use std::sync::Arc;

use axum::Router;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::server::Server;
use super::stdio::Lines;
use crate::call::Host;

/// Serves one client over standard input and output, until it closes them or `stop` fires.
pub async fn stdio(host: Arc<Host>, stop: CancellationToken) -> anyhow::Result<()> {
    let service = Server::new(host)
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
    let server = Server::new(host.clone());
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_cancellation_token(stop);
    let sessions = Arc::new(LocalSessionManager::default());
    Router::new().nest_service(
        "/mcp",
        StreamableHttpService::new(move || Ok(server.clone()), sessions, config),
    )
}
