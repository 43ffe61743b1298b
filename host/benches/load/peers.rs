//! What the host is compared with: servers that hold the two answers and send them whole.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::serve::ListenerExt;
use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};

/// The two answers.
struct Answers {
    small: String,
    rows: String,
}

impl Answers {
    fn of(&self, tool: &str) -> &str {
        if tool == "small" {
            &self.small
        } else {
            &self.rows
        }
    }
}

/// Serves as that peer until it is killed. The first line of its output is its address.
pub(crate) fn serve(role: &str, folder: &Path) -> anyhow::Result<()> {
    let read = |name| std::fs::read_to_string(folder.join(name));
    let answers = Arc::new(Answers {
        small: read("small.json")?,
        rows: read("rows.json")?,
    });
    let router = match role {
        "axum" => Router::new().route("/mcp", post(bare)).with_state(answers),
        "rmcp" => native(answers),
        _ => anyhow::bail!("no peer is called `{role}`"),
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("listening on http://{} ", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.context("serving")
    })
}

/// JSON-RPC by hand: what is left when a protocol's library is taken away.
async fn bare(State(answers): State<Arc<Answers>>, body: Bytes) -> impl IntoResponse {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = answers.of(request["params"]["name"].as_str().unwrap_or_default());
    let reply = json!({
        "jsonrpc": "2.0",
        "id": request["id"],
        "result": {"resultType": "complete", "content": [{"type": "text", "text": text}]},
    });
    (
        [(header::CONTENT_TYPE, "application/json")],
        reply.to_string(),
    )
}

/// A server made with rmcp and nothing around it, as its documentation has it.
fn native(answers: Arc<Answers>) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        .with_legacy_session_mode(false);
    let sessions = Arc::new(NeverSessionManager::default());
    let server = move || Ok(Native(answers.clone()));
    Router::new().nest_service("/mcp", StreamableHttpService::new(server, sessions, config))
}

#[derive(Clone)]
struct Native(Arc<Answers>);

impl ServerHandler for Native {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        Some(Tool::new(name.to_owned(), "", Arc::default()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = self.0.of(&request.name);
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
