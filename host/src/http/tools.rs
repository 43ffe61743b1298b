//! `/v1/tools`: the listing, and calls.

use std::fmt::Write;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::call::{Caller, Host};
use crate::catalog::{Catalog, Tool};
use crate::meta;
use crate::shape::{Code, HostArgument, Refusal, Reply};

/// The header that carries the receipt, as JSON in ASCII.
const RECEIPT_HEADER: &str = "plimsoll-receipt";

/// The query of both routes.
#[derive(Debug, Deserialize)]
pub(super) struct After {
    after: Option<String>,
}

/// `GET /v1/tools`
pub(super) async fn list(
    State(host): State<Arc<Host>>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<After>,
) -> Response {
    host.ready().await;
    let catalog = host.catalog(&caller);
    let Some(page) = catalog.listing().page(query.after.as_deref()) else {
        let refusal = Refusal::new(
            Code::InvalidCursor,
            "after is not a cursor of this list; leave it out to start over",
        );
        return problem(&Reply::refused(&refusal));
    };
    let body = json!({"tools": page.items, "next_after": page.next});
    let mut response = (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response();
    if let Some(next) = &page.next {
        link_next(response.headers_mut(), "/v1/tools", next);
    }
    response
}

/// `POST /v1/tools/{tool}`
pub(super) async fn call(
    State(host): State<Arc<Host>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Query(query): Query<After>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    host.ready().await;
    let Some(tool) = host.tool(&caller, &name) else {
        return problem(&Reply::refused(&Refusal::unknown_tool(&name)));
    };
    let catalog = host.catalog(&caller);
    let reply = match arguments(&catalog, &tool, &headers, query, &body) {
        Ok(arguments) => host.call(&caller, &tool, arguments, None).await,
        Err(refusal) => Reply::refused(&refusal),
    };
    if reply.refusal().is_some() {
        return problem(&reply);
    }
    let mut response = (
        [(header::CONTENT_TYPE, reply.media_type())],
        reply.body().to_owned(),
    )
        .into_response();
    if let Ok(receipt) = HeaderValue::from_str(&ascii(&reply.receipt_json().to_string())) {
        response.headers_mut().insert(RECEIPT_HEADER, receipt);
    }
    if let Some(next) = reply.next_after() {
        link_next(response.headers_mut(), &format!("/v1/tools/{name}"), next);
    }
    if let Some(link) = reply
        .complete()
        .and_then(|complete| complete.link.as_deref())
        && let Ok(link) = HeaderValue::from_str(&format!("<{link}>; rel=\"collection\""))
    {
        response.headers_mut().append(header::LINK, link);
    }
    response
}

/// The arguments: the body, `?after=` and what `Accept` says about the form.
fn arguments(
    catalog: &Catalog,
    tool: &Arc<Tool>,
    headers: &HeaderMap,
    query: After,
    body: &[u8],
) -> Result<Map<String, Value>, Refusal> {
    let wrong = |found: &str| {
        Refusal::new(
            Code::InvalidArguments,
            format!("the body must be a JSON object of arguments, {found}"),
        )
    };
    let mut given = if body.trim_ascii().is_empty() {
        Map::new()
    } else {
        match serde_json::from_slice(body) {
            Ok(Value::Object(arguments)) => arguments,
            Ok(_) => return Err(wrong("found another JSON value")),
            Err(error) => return Err(wrong(&format!("found something else: {error}"))),
        }
    };
    let (tool, arguments) = meta::arguments_of(catalog, tool, &mut given);
    if let Some(after) = query.after {
        let name = tool
            .policy
            .published(HostArgument::After)
            .unwrap_or(HostArgument::After.name());
        arguments.insert(name.to_owned(), after.into());
    }
    let format = text(headers, header::ACCEPT).and_then(|accept| {
        accept
            .split(',')
            .map(|range| range.split(';').next().unwrap_or_default().trim())
            .find_map(|range| match range {
                "text/csv" => Some("csv"),
                "text/tab-separated-values" => Some("tsv"),
                _ => None,
            })
    });
    if let Some(format) = format {
        let name = tool
            .policy
            .published(HostArgument::Format)
            .unwrap_or(HostArgument::Format.name());
        arguments.entry(name).or_insert_with(|| format.into());
    }
    Ok(given)
}

/// A route that does not exist.
pub(super) async fn no_such_route() -> Response {
    let message = "no such route; there are GET /v1/tools, POST /v1/tools/{tool}, POST /v1/preview, POST /mcp, GET /results/{token}, GET /openapi.json, GET /metrics, GET /healthz";
    problem(&Reply::refused(&Refusal::new(Code::NotFound, message)))
}

/// A route that exists, with another method.
pub(super) async fn no_such_method() -> Response {
    super::problem(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this route takes another method; see /openapi.json",
    )
}

/// A refusal as RFC 9457 has it; its own members stay beside the standard ones.
pub(super) fn problem(reply: &Reply) -> Response {
    let code = reply.refusal().unwrap_or(Code::Internal);
    let mut problem = Map::new();
    problem.insert("title".into(), code.as_str().into());
    problem.insert("status".into(), code.http_status().into());
    let mut retry_after = None;
    if let Ok(Value::Object(mut refusal)) = serde_json::from_str(reply.body()) {
        retry_after = refusal.get("retry_after_seconds").and_then(Value::as_u64);
        problem.insert(
            "detail".into(),
            refusal.remove("message").unwrap_or_default(),
        );
        problem.extend(refusal);
    }
    let status =
        StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (
        status,
        [(header::CONTENT_TYPE, "application/problem+json")],
        Value::Object(problem).to_string(),
    )
        .into_response();
    if let Some(seconds) = retry_after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn link_next(headers: &mut HeaderMap, path: &str, cursor: &str) {
    // A cursor has characters of URLs only.
    if let Ok(link) = HeaderValue::from_str(&format!("<{path}?after={cursor}>; rel=\"next\"")) {
        headers.insert(header::LINK, link);
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// JSON with everything beyond ASCII escaped, as a header needs it.
fn ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::MAX_REFUSAL_BYTES;

    #[tokio::test]
    async fn a_problem_stays_under_8000_bytes_whatever_is_in_the_refusal() {
        let mut longest = 0;
        for code in Code::ALL {
            // Texts of which the refusal is cut close to its bound, at one length or another.
            for length in (0..9_000).step_by(7) {
                let next = Map::from_iter([(String::from("x"), "y".repeat(length).into())]);
                let refusal = Refusal::new(code, "\u{1}".repeat(40)).with_next(Some(next));
                let response = problem(&Reply::refused(&refusal));
                let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
                let body = body.unwrap();
                assert!(
                    body.len() < MAX_REFUSAL_BYTES,
                    "{} bytes: {code:?}",
                    body.len()
                );
                longest = longest.max(body.len());
            }
        }
        assert!(longest > MAX_REFUSAL_BYTES - 100, "{longest} bytes at most");
        let long = crate::http::problem(StatusCode::FORBIDDEN, "forbidden", &"\"".repeat(20_000));
        let long = axum::body::to_bytes(long.into_body(), usize::MAX)
            .await
            .unwrap();
        assert!(long.len() < MAX_REFUSAL_BYTES, "{} bytes", long.len());
    }

    #[test]
    fn a_header_is_ascii_and_still_the_same_json() {
        let json = json!({"excluded": "…", "flag": "🇩🇪"}).to_string();
        let escaped = ascii(&json);
        assert!(escaped.is_ascii());
        assert_eq!(
            serde_json::from_str::<Value>(&escaped).unwrap(),
            serde_json::from_str::<Value>(&json).unwrap()
        );
    }
}
