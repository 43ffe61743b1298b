//! `/openapi.json`: the HTTP API described, each tool a path of its own.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tools::problem;
use crate::call::{Caller, Host};
use crate::catalog::Tool;
use crate::shape::{Code, Refusal, Reply};

/// The query: one tool, or all.
#[derive(Debug, Deserialize)]
pub(super) struct Which {
    tool: Option<String>,
}

/// `GET /openapi.json`
pub(super) async fn document(
    State(host): State<Arc<Host>>,
    Extension(caller): Extension<Caller>,
    Query(which): Query<Which>,
) -> Response {
    host.ready().await;
    let document = match &which.tool {
        None => describe(host.catalog(&caller).listed().map(Arc::as_ref)),
        Some(name) => match host.tool(&caller, name) {
            Some(tool) => describe([tool.as_ref()]),
            None => return problem(&Reply::refused(&Refusal::unknown_tool(name))),
        },
    };
    let body = document.to_string();
    if body.len() >= host.cap_bytes() as usize {
        let message = format!(
            "The document is {} bytes; the limit is {} bytes. Ask for one tool at a time: /openapi.json?tool=NAME, with the names of /v1/tools.",
            body.len(),
            host.cap_bytes()
        );
        return problem(&Reply::refused(&Refusal::new(
            Code::ResponseTooLarge,
            message,
        )));
    }
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn describe<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Value {
    let mut paths = Map::new();
    for tool in tools {
        paths.insert(
            format!("/v1/tools/{}", tool.name()),
            json!({"post": operation(tool)}),
        );
    }
    let list = json!({
        "get": {
            "operationId": "list_tools",
            "summary": "Lists the tools.",
            "parameters": [after("Cursor of the page before.")],
            "responses": {
                "200": {"description": "A page of tools.", "content": {"application/json": {"schema": {"type": "object"}}}},
                "default": {"$ref": "#/components/responses/Refusal"},
            },
        },
    });
    paths.insert("/v1/tools".into(), list);
    let health = json!({"get": {"operationId": "health", "summary": "Says that the host serves.", "responses": {"200": {"description": "It does."}}}});
    paths.insert("/healthz".into(), health);
    paths.insert("/results/{token}".into(), complete());
    paths.insert("/results/{token}/download".into(), download());
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Plimsoll", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "responses": {
                "Refusal": {
                    "description": "The call was refused: what happened, and the call to make instead.",
                    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
                },
            },
            "schemas": {"Refusal": refusal()},
        },
    })
}

fn operation(tool: &Tool) -> Value {
    let mut content = Map::new();
    content.insert("application/json".into(), json!({"schema": {}}));
    if tool.policy.columns().next().is_some() {
        for table in ["text/csv", "text/tab-separated-values"] {
            content.insert(table.into(), json!({"schema": {"type": "string"}}));
        }
    }
    content.insert("text/plain".into(), json!({"schema": {"type": "string"}}));
    json!({
        "operationId": tool.name(),
        "description": tool.listed["description"],
        "parameters": [after("Cursor of the page before, as in the Link header.")],
        "requestBody": {
            "required": !tool.required.is_empty(),
            "content": {"application/json": {"schema": tool.listed["inputSchema"]}},
        },
        "responses": {
            "200": {
                "description": "The body of the answer.",
                "headers": {
                    "Plimsoll-Receipt": {"description": "The account of the answer, JSON.", "schema": {"type": "string"}},
                    "Link": {"description": "The next page, rel=\"next\": the same POST with this target. The complete result for people, rel=\"collection\", where it is kept: GET it without a key.", "schema": {"type": "string"}},
                },
                "content": content,
            },
            "default": {"$ref": "#/components/responses/Refusal"},
        },
    })
}

fn complete() -> Value {
    json!({
        "get": {
            "operationId": "complete_result",
            "summary": "Shows a complete result to people. The token, from \"link\" of an answer, is the key.",
            "parameters": [token()],
            "security": [],
            "responses": {
                "200": {"description": "A page with a table.", "content": {"text/html": {"schema": {"type": "string"}}}},
                "404": {"description": "No host made this token."},
                "410": {"description": "The result is no longer kept."},
            },
        },
    })
}

fn download() -> Value {
    let format = json!({"name": "format", "in": "query", "schema": {"type": "string", "enum": ["json", "csv", "tsv"], "default": "json"}, "description": "JSON is the document with all its rows, exact to the byte; CSV and TSV are tables."});
    let columns = json!({"name": "columns", "in": "query", "schema": {"type": "string"}, "description": "Columns of a table, by their places: 0,2. Without: those that the tool declares, else all."});
    json!({
        "get": {
            "operationId": "download_result",
            "summary": "Downloads all rows of a complete result.",
            "parameters": [token(), format, columns],
            "security": [],
            "responses": {
                "200": {
                    "description": "All rows.",
                    "content": {"application/json": {"schema": {}}, "text/csv": {"schema": {"type": "string"}}, "text/tab-separated-values": {"schema": {"type": "string"}}},
                },
                "404": {"description": "No host made this token."},
                "410": {"description": "The result is no longer kept."},
            },
        },
    })
}

fn token() -> Value {
    json!({"name": "token", "in": "path", "required": true, "description": "The last part of \"link\".", "schema": {"type": "string"}})
}

fn after(description: &str) -> Value {
    json!({"name": "after", "in": "query", "required": false, "description": description, "schema": {"type": "string"}})
}

fn refusal() -> Value {
    let codes: Vec<&str> = Code::ALL.into_iter().map(Code::as_str).collect();
    json!({
        "type": "object",
        "required": ["title", "status", "detail", "error", "retryable"],
        "properties": {
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "What happened."},
            "error": {"type": "string", "enum": codes},
            "retryable": {"type": "boolean", "description": "Whether the same call may succeed."},
            "payload": {"type": "object", "description": "Bytes and shape of what was refused."},
            "fields": {"type": "array", "items": {"type": "object"}, "description": "The arguments that matter."},
            "next": {"type": "object", "description": "Arguments of a call that can be made as it stands."},
        },
    })
}
