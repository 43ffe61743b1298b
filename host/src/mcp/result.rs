//! A reply as a tool result: the facts, then the body, then what is not text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResourceContents};

use super::resources;
use super::server::server_meta;
use crate::contract::Attachment;
use crate::shape::{Reply, is_text};

/// The key under which a result carries its whole receipt.
const RECEIPT_KEY: &str = "dev.plimsoll/receipt";

/// The tool result of a reply. A client of before 2025-06-18 does not know links to resources, and gets none.
pub(super) fn of_reply(reply: &Reply, knows_links: bool) -> CallToolResult {
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
    let complete = reply.complete().filter(|_| knows_links);
    content.extend(complete.map(resources::link));
    let mut result = CallToolResult::success(content);
    match reply.structured() {
        Ok(structured) => result.structured_content = structured,
        Err(refusal) => return of_reply(&Reply::refused(&refusal), knows_links),
    }
    result.meta = Some(meta(reply));
    result
}

pub(super) fn meta(reply: &Reply) -> MetaObject {
    let mut meta = server_meta();
    let receipt = reply.receipt_json();
    if !receipt.is_null() {
        meta.insert(RECEIPT_KEY.into(), receipt);
    }
    meta
}

fn attachment(attachment: &Attachment) -> ContentBlock {
    match attachment {
        Attachment::Image(blob) => {
            ContentBlock::image(STANDARD.encode(&blob.data), blob.media_type.clone())
        }
        Attachment::Audio(blob) => {
            ContentBlock::audio(STANDARD.encode(&blob.data), blob.media_type.clone())
        }
        Attachment::Resource(embedded) => {
            let is_text = is_text(&embedded.media_type);
            let contents = match std::str::from_utf8(&embedded.data) {
                Ok(text) if is_text => ResourceContents::text(text, embedded.uri.clone()),
                _ => ResourceContents::blob(STANDARD.encode(&embedded.data), embedded.uri.clone()),
            };
            ContentBlock::resource(contents.with_mime_type(embedded.media_type.clone()))
        }
    }
}
