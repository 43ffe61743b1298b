//! A reply as a tool result: the facts, then the body, then what is not text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResourceContents};
use serde_json::{Value, json};

use super::server::server_info;
use crate::contract::Attachment;
use crate::shape::Reply;

/// The key under which a result carries its whole receipt.
const RECEIPT_KEY: &str = "dev.plimsoll/receipt";

/// The tool result of a reply.
pub(super) fn of_reply(reply: &Reply) -> CallToolResult {
    if reply.refusal().is_some() {
        let mut result = CallToolResult::error(vec![ContentBlock::text(reply.body())]);
        result.meta = Some(meta(reply));
        return result;
    }
    let mut content = vec![ContentBlock::text(reply.facts())];
    if !reply.body().is_empty() || reply.attachments().is_empty() {
        content.push(ContentBlock::text(reply.body()));
    }
    content.extend(reply.attachments().iter().map(attachment));
    let mut result = CallToolResult::success(content);
    if reply.has_structured_copy() {
        result.structured_content = Some(structured(reply));
    }
    result.meta = Some(meta(reply));
    result
}

/// The same facts and body as one JSON value.
fn structured(reply: &Reply) -> Value {
    let facts: Value = serde_json::from_str(reply.facts()).unwrap_or(Value::Null);
    let body = match serde_json::from_str(reply.body()) {
        Ok(body) if reply.is_json() => body,
        _ => Value::String(reply.body().to_owned()),
    };
    json!({"facts": facts, "body": body})
}

fn meta(reply: &Reply) -> MetaObject {
    let mut meta = MetaObject::new();
    meta.insert("io.modelcontextprotocol/serverInfo".into(), json!(server_info()));
    let receipt = reply.receipt_json();
    if !receipt.is_null() {
        meta.insert(RECEIPT_KEY.into(), receipt);
    }
    meta
}

fn attachment(attachment: &Attachment) -> ContentBlock {
    match attachment {
        Attachment::Image(blob) => ContentBlock::image(STANDARD.encode(&blob.data), blob.media_type.clone()),
        Attachment::Audio(blob) => ContentBlock::audio(STANDARD.encode(&blob.data), blob.media_type.clone()),
        Attachment::Resource(embedded) => {
            let is_text = embedded.media_type.starts_with("text/") || embedded.media_type == "application/json";
            let contents = match std::str::from_utf8(&embedded.data) {
                Ok(text) if is_text => ResourceContents::text(text, embedded.uri.clone()),
                _ => ResourceContents::blob(STANDARD.encode(&embedded.data), embedded.uri.clone()),
            };
            ContentBlock::resource(contents.with_mime_type(embedded.media_type.clone()))
        }
    }
}
