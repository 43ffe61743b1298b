//! What the host answers to MCP requests.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rmcp::ErrorData as McpError;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode,
    Implementation, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Map, Value};

use super::{progress, resources, result};
use crate::call::{Caller, Host};
use crate::catalog::Catalog;
use crate::shape::excerpt;

/// How long a client may take a listing as fresh. A change is announced, so this only bounds clients that do not listen.
const LISTING_TTL: Duration = Duration::from_secs(60);

/// How often a session of the handshake eras is looked at while nothing changes.
const SESSION_CHECK: Duration = Duration::from_secs(30);

const INSTRUCTIONS: &str = "Every result begins with one line of JSON, the facts: how many rows there are, how many were \
returned, what was left out by default, and in \"next\" the arguments of the call that gets the next page. The body \
follows. An answer that does not fit is refused whole, with a smaller call in \"next\". A resource link behind the body is the \
complete result; reading it gets its rows page by page, and \"link\" in the facts is the same for people.";

/// Serves one connection; cheap to clone, since HTTP makes one for each request.
#[derive(Debug, Clone)]
pub(super) struct Server {
    host: Arc<Host>,
    /// Who calls: of this request, of the session, or of standard input and output.
    caller: Caller,
}

/// How the host names itself.
pub(super) fn server_info() -> Implementation {
    Implementation::new("plimsoll", env!("CARGO_PKG_VERSION"))
}

/// Whether a client's version of the protocol has links to resources among the content of a result.
fn knows_links(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version >= ProtocolVersion::V_2025_06_18)
}

/// What every result says of the server.
pub(super) fn server_meta() -> MetaObject {
    static INFO: LazyLock<Value> = LazyLock::new(|| serde_json::json!(server_info()));
    let mut meta = MetaObject::new();
    meta.insert("io.modelcontextprotocol/serverInfo".into(), INFO.clone());
    meta
}

impl Server {
    pub(super) fn new(host: Arc<Host>, caller: Caller) -> Self {
        Self { host, caller }
    }

    /// Whether the tools of this caller are others than those that it was told of last. What changes for another tenant is
    /// not its affair.
    fn has_changed(&self, seen: &mut Arc<Catalog>) -> bool {
        let now = self.host.catalog(&self.caller);
        let before = std::mem::replace(seen, now);
        before.listing().items() != seen.listing().items()
    }

    /// Who calls now, as far as the protocol says. The name of the program is for the log and for default budgets, never
    /// for the listing. A key may have been revoked since the session has begun.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, McpError> {
        let client = context
            .client_info()
            .map(|info| info.name)
            .filter(|name| name != "rmcp")
            .or_else(|| self.caller.client.clone());
        let in_meta = context.meta.get("traceparent").and_then(Value::as_str);
        let in_header = || {
            let parts = context.extensions.get::<http::request::Parts>()?;
            parts.headers.get("traceparent")?.to_str().ok()
        };
        let traceparent = in_meta.or_else(in_header).map(str::to_owned);
        let caller = self
            .host
            .tenants()
            .refresh(self.caller.clone())
            .map_err(|denied| McpError::invalid_request(denied.to_string(), None))?;
        Ok(Caller {
            client,
            traceparent,
            ..caller
        })
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(server_info())
            .with_instructions(INSTRUCTIONS)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // rmcp reads the input schema alone, for headers that repeat arguments; where it has none, nothing is to be read.
        let tool = self.host.tool(&self.caller, name)?;
        if !tool.has_header_arguments {
            return None;
        }
        let schema = tool.listed["inputSchema"].as_object()?.clone();
        Some(Tool::new(name.to_owned(), "", Arc::new(schema)))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, McpError> {
        self.host.ready().await;
        let catalog = self.host.catalog(&self.caller(&context)?);
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
        let mut result = ListToolsResult::with_all_items(tools);
        result.meta = Some(server_meta());
        result.next_cursor = page.next;
        result.ttl_ms = Some(LISTING_TTL.as_millis() as u64);
        // What one tenant sees is not for the next one behind the same cache.
        result.cache_scope = Some(if self.host.tenants().is_single_user() {
            CacheScope::Public
        } else {
            CacheScope::Private
        });
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, McpError> {
        self.host.ready().await;
        let caller = self.caller(&context)?;
        let Some(tool) = self.host.tool(&caller, &request.name) else {
            return Err(McpError::invalid_params(
                format!("Unknown tool: {}", excerpt(&request.name)),
                None,
            ));
        };
        let arguments: Map<String, Value> = request.arguments.unwrap_or_default();
        let (sender, said) = progress::channel(&context);
        // Boxed: rmcp moves the future of a request from place to place, and this is most of it.
        let call = Box::pin(self.host.call(&caller, &tool, arguments, sender));
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(McpError::internal_error("the call was cancelled", None)),
            reply = progress::tell_while(call, said, &context.peer) => Ok(result::of_reply(&reply, knows_links(&context)).into()),
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, McpError> {
        let cursor = request.and_then(|request| request.cursor);
        let caller = self.caller(&context)?;
        Box::pin(resources::list(&self.host, &caller, cursor.as_deref())).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, McpError> {
        resources::templates(request.and_then(|request| request.cursor).as_deref())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, McpError> {
        let caller = self.caller(&context)?;
        let read = Box::pin(resources::read(&self.host, &caller, &request.uri)).await?;
        Ok(read.into())
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
            "resources/list" | "resources/read" | "resources/templates/list" => true,
            // The modern era has no handshake.
            "initialize" => !is_modern,
            _ => false,
        };
        if is_known {
            let expected = match request.method.as_str() {
                "tools/call" => ": expected \"name\" (a string) and \"arguments\" (an object)",
                "resources/read" => ": expected \"uri\" (a string)",
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
        let mut seen = self.host.catalog(&self.caller);
        let server = self.clone();
        tokio::spawn(async move {
            while !context.peer.is_transport_closed() {
                // A session that ends while nothing changes must not stay.
                let Ok(changed) = tokio::time::timeout(SESSION_CHECK, changes.changed()).await
                else {
                    continue;
                };
                if changed.is_ok() && !server.has_changed(&mut seen) {
                    continue;
                }
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
        let mut seen = self.host.catalog(&self.caller);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => {
                    if changed.is_ok() && !self.has_changed(&mut seen) {
                        continue;
                    }
                    if changed.is_err() || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
