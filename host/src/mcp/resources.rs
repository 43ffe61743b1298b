//! Complete results as resources: links to them, their list, and reading them.
//!
//! Reading one is a call like any other: facts, then a page of the body, within the same cap and budget.

use rmcp::ErrorData as McpError;
use rmcp::model::{
    CacheScope, ContentBlock, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate,
};
use serde_json::Value;

use super::result;
use super::server::server_meta;
use crate::call::{Caller, Host};
use crate::results::Held;
use crate::shape::{Code, Complete, ResultId, complete_name, describe_complete, excerpt};

/// How long a client may take the template as fresh, in milliseconds: it changes with the host only.
const TEMPLATE_TTL_MS: u64 = 3_600_000;

/// Results come and go with every call, and a page hangs on the budget of the moment.
const NO_TTL_MS: u64 = 0;

/// The block of a tool result that points to the complete one.
pub(super) fn link(complete: &Complete) -> ContentBlock {
    let resource = Resource::new(complete.id.uri(), complete.name.clone())
        .with_description(complete.description.clone())
        .with_mime_type(complete.media_type);
    ContentBlock::resource_link(resource)
}

/// `resources/list`: what the caller's tenant has kept, the newest first.
pub(super) async fn list(
    host: &Host,
    caller: &Caller,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, McpError> {
    let page = host.results().list(&caller.tenant, cursor).await;
    let page =
        page.map_err(|unavailable| McpError::internal_error(unavailable.refusal().message, None))?;
    let Some(page) = page else {
        return Err(bad_cursor("resources/list", cursor));
    };
    let mut result = ListResourcesResult::with_all_items(page.items.iter().map(listed).collect());
    result.meta = Some(server_meta());
    result.next_cursor = page.next;
    result.ttl_ms = Some(NO_TTL_MS);
    result.cache_scope = Some(CacheScope::Private);
    Ok(result)
}

fn listed(held: &Held) -> Resource {
    let (id, tool, rows, kind) = match held {
        Held::Kept(stored) => {
            let described = &stored.description;
            (
                stored.id,
                &described.tool,
                Some(described.matched),
                Some(stored.kind),
            )
        }
        Held::Promised(promised) => {
            let promise = &promised.promise;
            (promised.id, &promise.tool, None, promise.kind())
        }
    };
    let resource = Resource::new(id.uri(), complete_name(tool))
        .with_description(describe_complete(tool, rows));
    match kind {
        Some(kind) => resource.with_mime_type(kind.media_type()),
        None => resource,
    }
}

/// `resources/templates/list`: the one template.
pub(super) fn templates(cursor: Option<&str>) -> Result<ListResourceTemplatesResult, McpError> {
    if cursor.is_some_and(|cursor| !cursor.is_empty()) {
        return Err(bad_cursor("resources/templates/list", cursor));
    }
    let template = ResourceTemplate::new(ResultId::uri_template(), "complete-result")
        .with_title("Complete result")
        .with_description(
            "All rows of an answer of which rows were left out, page by page. \"after\" is next_after of the facts of the \
             page before; without it the first page comes.",
        );
    let mut result = ListResourceTemplatesResult::with_all_items(vec![template]);
    result.meta = Some(server_meta());
    result.ttl_ms = Some(TEMPLATE_TTL_MS);
    result.cache_scope = Some(CacheScope::Public);
    Ok(result)
}

/// `resources/read`: the facts, then the body of a page.
pub(super) async fn read(
    host: &Host,
    caller: &Caller,
    uri: &str,
) -> Result<ReadResourceResult, McpError> {
    // What is another tenant's, what has expired and what never was are one thing.
    let gone = || {
        McpError::resource_not_found(
            format!("Resource not found: {}", excerpt(uri)),
            Some(serde_json::json!({"uri": excerpt(uri)})),
        )
    };
    let (id, after) = ResultId::of_uri(uri).ok_or_else(gone)?;
    let reply = host.read_result(caller, id, after).await.ok_or_else(gone)?;
    if let Some(code) = reply.refusal() {
        let refusal: Value = serde_json::from_str(reply.body()).unwrap_or_default();
        let message = refusal["message"].as_str().unwrap_or_default().to_owned();
        return Err(match code {
            Code::StaleCursor => gone(),
            Code::InvalidCursor | Code::InvalidArguments => {
                McpError::invalid_params(message, Some(refusal))
            }
            _ => McpError::internal_error(message, Some(refusal)),
        });
    }
    let facts = ResourceContents::text(reply.facts(), uri).with_mime_type("application/json");
    let body = ResourceContents::text(reply.body(), uri).with_mime_type(reply.media_type());
    let mut result = ReadResourceResult::new(vec![facts, body])
        .with_ttl_ms(NO_TTL_MS)
        .with_cache_scope(CacheScope::Private);
    result.meta = Some(result::meta(&reply));
    Ok(result)
}

fn bad_cursor(method: &str, cursor: Option<&str>) -> McpError {
    let found = excerpt(cursor.unwrap_or_default());
    McpError::invalid_params(format!("`{found}` is not a cursor of {method}"), None)
}
