//! What the host answers to MCP requests.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ErrorData as McpError;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities,
    ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::{progress, result};
use crate::call::{Caller, Host};
use crate::shape::excerpt;

/// How long a client may take a listing as fresh. A change is announced, so this only bounds clients that do not listen.
const LISTING_TTL: Duration = Duration::from_secs(60);

/// How often a session of the handshake eras is looked at while nothing changes.
const SESSION_CHECK: Duration = Duration::from_secs(30);

const INSTRUCTIONS: &str = "Every result begins with one line of JSON, the facts: how many rows there are, how many were \
returned, what was left out by default, and in \"next\" the arguments of the call that gets the next page. The body \
follows. An answer that does not fit is refused whole, with a smaller call in \"next\".";

/// Serves one connection; cheap to clone, since HTTP makes one for each request.
#[derive(Debug, Clone)]
pub(super) struct Server {
    host: Arc<Host>,
}

/// How the host names itself.
pub(super) fn server_info() -> Implementation {
    Implementation::new("plimsoll", env!("CARGO_PKG_VERSION"))
}

impl Server {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }

    /// Who calls, as far as the protocol says. The name is for the log and for default budgets, never for the listing.
    fn caller(context: &RequestContext<RoleServer>) -> Caller {
        // A program may leave out its name in the modern era, and rmcp gives its own where it knows none; over HTTP the
        // headers say it.
        let client = context
            .client_info()
            .map(|info| info.name)
            .filter(|name| name != "rmcp")
            .or_else(|| {
                let parts = context.extensions.get::<http::request::Parts>()?;
                let agent = parts.headers.get(http::header::USER_AGENT)?;
                agent.to_str().ok().map(str::to_owned)
            });
        Caller {
            client,
            ..Caller::default()
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(server_info())
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // rmcp reads the input schema alone, for headers that repeat arguments.
        let tool = self.host.tool(&Caller::default(), name)?;
        let schema = tool.listed["inputSchema"].as_object()?.clone();
        Some(Tool::new(name.to_owned(), "", Arc::new(schema)))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        self.host.ready().await;
        let catalog = self.host.catalog();
        let cursor = request.and_then(|request| request.cursor);
        let Some(page) = catalog.listing().page(cursor.as_deref()) else {
            let found = excerpt(cursor.as_deref().unwrap_or_default());
            return Err(McpError::invalid_params(
                format!("`{found}` is not a cursor of tools/list"),
                None,
            ));
        };
        let tools: Result<Vec<Tool>, _> = page
            .items
            .iter()
            .cloned()
            .map(serde_json::from_value)
            .collect();
        let tools = tools
            .map_err(|error| McpError::internal_error(format!("listing tools: {error}"), None))?;
        let mut meta = MetaObject::new();
        meta.insert(
            "io.modelcontextprotocol/serverInfo".into(),
            serde_json::json!(server_info()),
        );
        let mut result = ListToolsResult::with_all_items(tools);
        result.meta = Some(meta);
        result.next_cursor = page.next;
        result.ttl_ms = Some(LISTING_TTL.as_millis() as u64);
        result.cache_scope = Some(CacheScope::Public);
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        self.host.ready().await;
        let caller = Self::caller(&context);
        let Some(tool) = self.host.tool(&caller, &request.name) else {
            return Err(McpError::invalid_params(
                format!("Unknown tool: {}", excerpt(&request.name)),
                None,
            ));
        };
        let arguments: Map<String, Value> = request.arguments.unwrap_or_default();
        let (sender, said) = mpsc::channel(progress::QUEUE);
        let call = self.host.call(&caller, &tool, arguments, Some(sender));
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(McpError::internal_error("the call was cancelled", None)),
            reply = progress::tell_while(call, said, &context) => Ok(result::of_reply(&reply).into()),
        }
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, McpError> {
        // A known method whose parameters do not parse arrives here; it is not an unknown method.
        let is_modern = context.meta.protocol_version().is_some();
        let is_known = match request.method.as_str() {
            "tools/call" | "tools/list" | "server/discover" | "subscriptions/listen" => true,
            // The modern era has no handshake.
            "initialize" => !is_modern,
            _ => false,
        };
        if is_known {
            let expected = match request.method.as_str() {
                "tools/call" => ": expected \"name\" (a string) and \"arguments\" (an object)",
                _ => "",
            };
            return Err(McpError::invalid_params(
                format!(
                    "the parameters of {} are malformed{expected}",
                    request.method
                ),
                None,
            ));
        }
        Err(McpError::new(
            ErrorCode::METHOD_NOT_FOUND,
            request.method,
            None,
        ))
    }

    /// The handshake eras: a session hears of changes from its beginning on.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut changes = self.host.changes();
        tokio::spawn(async move {
            while !context.peer.is_transport_closed() {
                // A session that ends while nothing changes must not stay.
                let Ok(changed) = tokio::time::timeout(SESSION_CHECK, changes.changed()).await
                else {
                    continue;
                };
                if changed.is_err() || context.peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    /// The modern era: whoever listens hears of changes.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), McpError> {
        let mut changes = self.host.changes();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
