//! Sending a request and reading all of its answer, through `wasi:http`.
//!
//! No timeout is set: the host ends a call at its deadline, and closes the connection with it.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
    http_error_code,
};
use wasip2::io::streams::StreamError;

use crate::answer::Response;
use crate::request::Request;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 18;

/// Bytes that one write may have, by the interface's own rule.
const WRITE: usize = 4096;

/// Sends a request. The error is the interface's name for what went wrong.
pub(crate) fn send(request: &Request) -> Result<Response, String> {
    exchange(request).map_err(|error| {
        let text = format!("{error:?}");
        text.strip_prefix("ErrorCode::").unwrap_or(&text).to_owned()
    })
}

fn exchange(request: &Request) -> Result<Response, ErrorCode> {
    let fields = Fields::new();
    for (name, value) in &request.fields {
        fields.append(name, value.as_bytes()).map_err(|_| {
            ErrorCode::InternalError(Some(format!("the header field `{name}` cannot be set")))
        })?;
    }
    if let Some(body) = &request.body {
        let length = body.len().to_string();
        fields
            .append("content-length", length.as_bytes())
            .map_err(|_| ErrorCode::InternalError(None))?;
    }
    let outgoing = OutgoingRequest::new(fields);
    let method = match request.method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        other => Method::Other(other.to_owned()),
    };
    let scheme = if request.is_https {
        Scheme::Https
    } else {
        Scheme::Http
    };
    outgoing
        .set_method(&method)
        .map_err(|()| ErrorCode::HttpRequestMethodInvalid)?;
    outgoing
        .set_scheme(Some(&scheme))
        .and_then(|()| outgoing.set_authority(Some(&request.authority)))
        .and_then(|()| outgoing.set_path_with_query(Some(&request.path)))
        .map_err(|()| ErrorCode::HttpRequestUriInvalid)?;
    let body = outgoing
        .body()
        .map_err(|()| ErrorCode::InternalError(None))?;
    let answer = outgoing_handler::handle(outgoing, None)?;
    write(body, request.body.as_deref().unwrap_or_default())?;
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(outcome)) => read(&outcome?),
        _ => Err(ErrorCode::InternalError(None)),
    }
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), ErrorCode> {
    let stream = body.write().map_err(|()| ErrorCode::InternalError(None))?;
    for piece in bytes.chunks(WRITE) {
        // Closed: the server has its answer ready, or the host has had enough; either is what the answer tells.
        if stream.blocking_write_and_flush(piece).is_err() {
            drop(stream);
            drop(body);
            return Ok(());
        }
    }
    drop(stream);
    OutgoingBody::finish(body, None)
}

fn read(incoming: &IncomingResponse) -> Result<Response, ErrorCode> {
    let fields = incoming.headers();
    let all = |name: &str| -> Vec<String> {
        let values = fields.get(name).into_iter();
        values
            .map(|value| String::from_utf8_lossy(&value).into_owned())
            .collect()
    };
    let mut response = Response {
        status: incoming.status(),
        content_type: all("content-type").pop(),
        links: all("link"),
        location: all("location").pop(),
        body: Vec::new(),
    };
    // What it says of its length saves growing step by step, which would take twice the memory.
    let length = all("content-length")
        .pop()
        .and_then(|text| text.parse().ok());
    response
        .body
        .reserve_exact(length.unwrap_or(0).min(64 << 20));
    let body = incoming
        .consume()
        .map_err(|()| ErrorCode::InternalError(None))?;
    let stream = body.stream().map_err(|()| ErrorCode::InternalError(None))?;
    loop {
        match stream.blocking_read(PIECE) {
            Ok(piece) => response.body.extend_from_slice(&piece),
            Err(StreamError::Closed) => return Ok(response),
            Err(StreamError::LastOperationFailed(error)) => {
                return Err(http_error_code(&error).unwrap_or(ErrorCode::HttpResponseIncomplete));
            }
        }
    }
}
