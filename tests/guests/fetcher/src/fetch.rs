//! One request, or as many as the redirects of a server ask for.

use serde::Deserialize;
use serde_json::{Value, json};
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions,
    Scheme,
};
use wasip2::io::streams::StreamError;

/// The schema of [`Ask`].
pub(crate) const SCHEMA: &str = r#"{"type":"object","properties":{
    "scheme":{"type":"string"},"authority":{"type":"string"},"path":{"type":"string"},"method":{"type":"string"},
    "body_bytes":{"type":"integer"},"follow":{"type":"boolean"},"times":{"type":"integer"},
    "connect_ms":{"type":"integer"},"first_byte_ms":{"type":"integer"},"between_bytes_ms":{"type":"integer"}},
    "required":["authority"]}"#;

/// What is asked for.
#[derive(Deserialize)]
pub(crate) struct Ask {
    #[serde(default = "http")]
    scheme: String,
    /// As it goes into the request, right or wrong.
    authority: String,
    #[serde(default = "root")]
    path: String,
    #[serde(default)]
    method: Option<String>,
    /// Bytes of the request's body.
    #[serde(default)]
    body_bytes: usize,
    /// Whether to follow a redirect.
    #[serde(default)]
    follow: bool,
    /// Requests to have open at the same time; the last one is what the answer is about.
    #[serde(default)]
    times: usize,
    connect_ms: Option<u64>,
    first_byte_ms: Option<u64>,
    between_bytes_ms: Option<u64>,
}

fn http() -> String {
    "http".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

/// How much of a body the answer shows.
const SHOWN: usize = 200;

/// The outcome as a document: `status`, `bytes` and `text`, or `error`.
pub(crate) fn fetch(ask: &Ask) -> Value {
    let held: Vec<_> = (1..ask.times).map(|_| send(ask)).collect();
    let outcome = attempt(ask).unwrap_or_else(|error| json!({ "error": format!("{error:?}") }));
    let refused: Vec<String> = held
        .iter()
        .filter_map(|held| held.as_ref().err().map(|error| format!("{error:?}")))
        .collect();
    if refused.is_empty() {
        outcome
    } else {
        json!({ "refused": refused, "last": outcome })
    }
}

fn attempt(ask: &Ask) -> Result<Value, ErrorCode> {
    let response = send(ask)?;
    let status = response.status();
    let location = response.headers().get("location").into_iter().next();
    if let Some(location) = location.filter(|_| ask.follow) {
        let location = String::from_utf8_lossy(&location).into_owned();
        let Some((scheme, rest)) = location.split_once("://") else {
            return Err(ErrorCode::HttpRequestUriInvalid);
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let next = Ask {
            scheme: scheme.to_owned(),
            authority: authority.to_owned(),
            path: format!("/{path}"),
            method: None,
            body_bytes: 0,
            ..*ask
        };
        return attempt(&next);
    }
    let (bytes, text) = read(&response)?;
    Ok(json!({ "status": status, "bytes": bytes, "text": text }))
}

fn send(ask: &Ask) -> Result<IncomingResponse, ErrorCode> {
    let request = OutgoingRequest::new(Fields::new());
    let scheme = match ask.scheme.as_str() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        other => Scheme::Other(other.to_owned()),
    };
    let method = match ask.method.as_deref() {
        None if ask.body_bytes > 0 => Method::Post,
        None => Method::Get,
        Some(other) => Method::Other(other.to_owned()),
    };
    let set = request
        .set_method(&method)
        .and_then(|()| request.set_scheme(Some(&scheme)));
    set.map_err(|()| ErrorCode::HttpRequestMethodInvalid)?;
    request
        .set_authority(Some(&ask.authority))
        .map_err(|()| ErrorCode::HttpRequestUriInvalid)?;
    request
        .set_path_with_query(Some(&ask.path))
        .map_err(|()| ErrorCode::HttpRequestUriInvalid)?;
    let options = RequestOptions::new();
    let nanoseconds = |ms: Option<u64>| ms.map(|ms| ms.saturating_mul(1_000_000));
    let _ = options.set_connect_timeout(nanoseconds(ask.connect_ms));
    let _ = options.set_first_byte_timeout(nanoseconds(ask.first_byte_ms));
    let _ = options.set_between_bytes_timeout(nanoseconds(ask.between_bytes_ms));
    let body = request
        .body()
        .map_err(|()| ErrorCode::InternalError(None))?;
    let response = outgoing_handler::handle(request, Some(options))?;
    write(body, ask.body_bytes)?;
    response.subscribe().block();
    match response.get() {
        Some(Ok(outcome)) => outcome,
        _ => Err(ErrorCode::InternalError(None)),
    }
}

fn write(body: OutgoingBody, bytes: usize) -> Result<(), ErrorCode> {
    let stream = body.write().map_err(|()| ErrorCode::InternalError(None))?;
    let piece = [b'x'; 4096];
    let mut left = bytes;
    while left > 0 {
        let piece = &piece[..left.min(piece.len())];
        // Closed: the server has its answer ready, or the host has had enough.
        if stream.blocking_write_and_flush(piece).is_err() {
            break;
        }
        left -= piece.len();
    }
    drop(stream);
    OutgoingBody::finish(body, None)
}

/// How many bytes came, and the first of them.
fn read(response: &IncomingResponse) -> Result<(usize, String), ErrorCode> {
    let body = response
        .consume()
        .map_err(|()| ErrorCode::InternalError(None))?;
    let stream = body.stream().map_err(|()| ErrorCode::InternalError(None))?;
    let (mut bytes, mut shown) = (0, Vec::new());
    loop {
        match stream.blocking_read(1 << 16) {
            Ok(piece) => {
                bytes += piece.len();
                shown.extend(piece.into_iter().take(SHOWN - shown.len()));
            }
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(wasip2::http::types::http_error_code(&error)
                    .unwrap_or(ErrorCode::InternalError(None)));
            }
        }
    }
    Ok((bytes, String::from_utf8_lossy(&shown).into_owned()))
}
