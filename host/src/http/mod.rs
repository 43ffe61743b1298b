//! The HTTP doors: the API for programs, `/mcp`, complete results for people, health and the OpenAPI document.
//!
//! Owns: routes, which hosts and origins may reach them, and how a [`Reply`](crate::shape::Reply) becomes a response.

mod auth;
mod guard;
mod openapi;
mod preview;
mod results;
mod tools;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

pub use guard::Allowed;

use crate::call::Host;
use crate::mcp;
use crate::metrics::MEDIA_TYPE;
use crate::shape::excerpt;

/// Bytes of a request body: what rmcp takes, so that all doors take the same.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Every route.
pub fn router(host: Arc<Host>, allowed: Allowed, stop: CancellationToken) -> Router {
    let known = middleware::from_fn_with_state(host.clone(), auth::authenticate);
    let admins = Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/preview", post(preview::preview))
        .route_layer(middleware::from_fn(auth::admins));
    let mcp = mcp::http(&host, stop)
        .layer(middleware::from_fn(guard::json_rpc))
        .layer(middleware::from_fn(auth::sessions))
        .layer(known.clone());
    Router::new()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{tool}", post(tools::call))
        .route("/openapi.json", get(openapi::document))
        .merge(admins)
        .route_layer(known)
        // What is below needs no key.
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/.well-known/oauth-protected-resource", get(auth::metadata))
        .route(
            "/.well-known/oauth-protected-resource/{*path}",
            get(auth::metadata),
        )
        .merge(results::routes())
        .fallback(tools::no_such_route)
        .method_not_allowed_fallback(tools::no_such_method)
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .with_state(host)
        .merge(mcp)
        .layer(middleware::from_fn_with_state(
            Arc::new(allowed),
            guard::hosts_and_origins,
        ))
        .layer(CatchPanicLayer::new())
}

/// An answer as RFC 9457 has it, to a request that comes to no tool.
fn problem(status: StatusCode, title: &str, detail: &str) -> Response {
    let problem = json!({"title": title, "status": status.as_u16(), "detail": excerpt(detail)});
    (
        status,
        [(header::CONTENT_TYPE, "application/problem+json")],
        problem.to_string(),
    )
        .into_response()
}

/// `GET /metrics`
async fn metrics(State(host): State<Arc<Host>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, MEDIA_TYPE)], host.metrics())
}

/// Serves the doors on a socket until `stop` fires; then what is running may end.
pub async fn run(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    use axum::serve::ListenerExt;
    // Without it a reply in two writes waits for the client's delayed acknowledgement, 44 ms a call.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .await?;
    Ok(())
}
