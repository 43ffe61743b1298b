//! Who may reach the HTTP doors at all.
//!
//! A page in a browser can make requests to loopback, also under a name of its own that it points there. So a request
//! must name a host that is meant, and an origin, if it has one, that is trusted.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{MAX_REQUEST_BYTES, problem};
use crate::config::Config;

/// Hosts and origins that may reach the doors.
#[derive(Debug, Clone, Default)]
pub struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

impl Allowed {
    /// What a configuration allows: loopback, the address it listens on, and what it names.
    pub fn of(config: &Config) -> Self {
        let mut hosts = config.allowed_hosts.value.clone();
        let address = config.listen.value.ip();
        if !address.is_unspecified() {
            hosts.push(if address.is_ipv6() {
                format!("[{address}]")
            } else {
                address.to_string()
            });
        }
        // Links begin with it, so that whoever follows one asks for this name.
        let public = config.public_url.value.as_deref().map(url::Url::parse);
        if let Some(Ok(url)) = public {
            hosts.extend(url.host_str().map(str::to_owned));
        }
        Self {
            hosts,
            origins: config.allowed_origins.value.clone(),
        }
    }

    fn is_host(&self, authority: &str) -> bool {
        let name = host_name(authority);
        LOOPBACK.iter().any(|host| host.eq_ignore_ascii_case(name))
            || self
                .hosts
                .iter()
                .any(|host| host.eq_ignore_ascii_case(name) || host.eq_ignore_ascii_case(authority))
    }

    fn is_origin(&self, origin: &str) -> bool {
        if self
            .origins
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(origin))
        {
            return true;
        }
        let authority = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| {
            LOOPBACK
                .iter()
                .any(|host| host.eq_ignore_ascii_case(host_name(authority)))
        })
    }
}

/// The host of an authority, without its port.
fn host_name(authority: &str) -> &str {
    match authority.strip_prefix('[').and_then(|rest| rest.find(']')) {
        Some(end) => &authority[..end + 2],
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Refuses requests for other hosts and from other origins.
pub(super) async fn hosts_and_origins(
    State(allowed): State<Arc<Allowed>>,
    request: Request,
    next: Next,
) -> Response {
    let text = |headers: &HeaderMap, name| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let host = text(request.headers(), header::HOST)
        .or_else(|| request.uri().authority().map(ToString::to_string));
    if !host.as_deref().is_some_and(|host| allowed.is_host(host)) {
        let found = host.unwrap_or_else(|| String::from("none"));
        return refuse(&format!(
            "this host does not serve the name `{found}`; an operator adds it to `allowed_hosts`"
        ));
    }
    if let Some(origin) = text(request.headers(), header::ORIGIN)
        && !allowed.is_origin(&origin)
    {
        return refuse(&format!(
            "the origin `{origin}` is not allowed; an operator adds it to `allowed_origins`"
        ));
    }
    next.run(request).await
}

fn refuse(detail: &str) -> Response {
    let detail = crate::shape::excerpt(detail);
    problem(StatusCode::FORBIDDEN, "forbidden", &detail)
}

/// Answers a body that is not JSON, or a batch, as JSON-RPC wants it: rmcp would say that the media type is unsupported.
pub(super) async fn json_rpc(request: Request, next: Next) -> Response {
    if request.method() != Method::POST {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, MAX_REQUEST_BYTES).await else {
        return error(
            StatusCode::PAYLOAD_TOO_LARGE,
            -32600,
            &format!("the request is more than {MAX_REQUEST_BYTES} bytes"),
        );
    };
    if let Err(problem) = serde_json::from_slice::<serde::de::IgnoredAny>(&body) {
        return error(
            StatusCode::BAD_REQUEST,
            -32700,
            &format!("the request is not JSON: {problem}"),
        );
    }
    if first_byte(&body) != Some(b'{') {
        return error(
            StatusCode::BAD_REQUEST,
            -32600,
            "expected one JSON-RPC message, an object; batches are not supported",
        );
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

fn first_byte(body: &Bytes) -> Option<u8> {
    body.trim_ascii_start().first().copied()
}

fn error(status: StatusCode, code: i32, message: &str) -> Response {
    // MCP leaves the id out where there is none, unlike plain JSON-RPC.
    let body = json!({"jsonrpc": "2.0", "error": {"code": code, "message": message}});
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_links_begin_with_is_served() {
        let config = Config::parse(
            "public_url = \"https://plimsoll.example.com/agents\"",
            std::path::Path::new("/"),
        );
        let allowed = Allowed::of(&config.unwrap());
        assert!(allowed.is_host("plimsoll.example.com"));
        assert!(!allowed.is_host("example.com"));
    }

    #[test]
    fn hosts_are_compared_as_hosts_and_not_as_text() {
        let allowed = Allowed {
            hosts: vec!["api.example.com".into()],
            origins: vec!["https://app.example.com".into()],
        };
        for host in [
            "localhost",
            "LOCALHOST:8787",
            "127.0.0.1:1",
            "[::1]:8787",
            "[::1]",
            "api.example.com",
            "api.example.com:443",
        ] {
            assert!(allowed.is_host(host), "{host}");
        }
        for host in [
            "api.example.com.evil.test",
            "evil.test",
            "localhost.evil.test",
            "",
            "127.0.0.1.evil.test",
            "[::2]:8787",
            "[",
        ] {
            assert!(!allowed.is_host(host), "{host}");
        }
        for origin in [
            "http://localhost:3000",
            "https://app.example.com",
            "http://[::1]:1",
        ] {
            assert!(allowed.is_origin(origin), "{origin}");
        }
        for origin in [
            "http://localhost.evil.test",
            "null",
            "https://app.example.com.evil.test",
            "file://localhost",
            "http://user@localhost",
        ] {
            assert!(!allowed.is_origin(origin), "{origin}");
        }
    }
}
