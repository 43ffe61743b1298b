//! Who sends a request: a key or a token in `Authorization`, checked before anything else is done.

use std::sync::{Arc, LazyLock};

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem;
use crate::call::{Caller, Host};
use crate::mcp;
use crate::tenant::{Denied, Issuers};

/// The header of a session of the handshake eras of MCP.
const SESSION_HEADER: &str = "mcp-session-id";

/// The version of MCP from which on there are no sessions. Versions are dates.
const FIRST_MODERN_VERSION: &str = "2026-07-28";

/// Where RFC 9728 has the metadata of a protected resource.
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// Binds sessions, which live as long as this process, to who began them.
static SESSION_KEY: LazyLock<[u8; 32]> = LazyLock::new(|| {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the system has random numbers");
    key
});

/// Lets a request through with its caller, or answers it.
pub(super) async fn authenticate(
    State(host): State<Arc<Host>>,
    mut request: Request,
    next: Next,
) -> Response {
    let authorization = text(request.headers(), header::AUTHORIZATION.as_str());
    let caller = match host.tenants().authenticate(authorization.as_deref()).await {
        Ok(caller) => Caller {
            client: text(request.headers(), header::USER_AGENT.as_str()),
            traceparent: text(request.headers(), "traceparent"),
            ..caller
        },
        Err(denied) => return refuse(&denied, host.tenants().issuers()),
    };
    request.extensions_mut().insert(caller.clone());
    mcp::as_caller(caller, next.run(request)).await
}

/// Lets only admins through.
pub(super) async fn admins(
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if caller.is_admin {
        return next.run(request).await;
    }
    problem(
        StatusCode::FORBIDDEN,
        "forbidden",
        "this is for admins: it takes a key that was made with `plimsoll keys add --admin`",
    )
}

/// A session of MCP belongs to who began it: its id carries a mark of the caller, and under another one there is no such
/// session.
pub(super) async fn sessions(
    Extension(caller): Extension<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    // The modern era has no sessions, and ignores an id that a client still sends.
    let is_modern = text(request.headers(), "mcp-protocol-version")
        .is_some_and(|version| version.as_str() >= FIRST_MODERN_VERSION);
    if is_modern {
        request.headers_mut().remove(SESSION_HEADER);
    }
    if let Some(session) = request.headers().get(SESSION_HEADER) {
        let text = session.to_str().unwrap_or_default();
        let is_own = |(id, mark): &(&str, &str)| mark_of(id, &caller) == *mark;
        let id = text.rsplit_once('.').filter(is_own).map(|(id, _)| id);
        let Some(id) = id.and_then(|id| HeaderValue::from_str(id).ok()) else {
            return problem(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is no such session; begin a new one with `initialize`",
            );
        };
        request.headers_mut().insert(SESSION_HEADER, id);
    }
    let mut response = next.run(request).await;
    let session = response.headers().get(SESSION_HEADER);
    if let Some(id) = session.and_then(|id| id.to_str().ok()) {
        let marked = format!("{id}.{}", mark_of(id, &caller));
        if let Ok(marked) = HeaderValue::from_str(&marked) {
            response.headers_mut().insert(SESSION_HEADER, marked);
        }
    }
    response
}

/// What only this host can say of a session and a caller.
fn mark_of(session: &str, caller: &Caller) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&SESSION_KEY);
    let key = caller.key.as_ref().map_or("", |key| key.id.as_str());
    let subject = caller.subject.as_deref().unwrap_or_default();
    for part in [session, &caller.tenant, key, subject] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// `GET /.well-known/oauth-protected-resource…`, where tokens are taken.
pub(super) async fn metadata(
    State(host): State<Arc<Host>>,
    path: Option<Path<String>>,
) -> Response {
    let issuers = host.tenants().issuers();
    let meant = path.map_or(String::new(), |Path(path)| format!("/{path}"));
    let own = url::Url::parse(issuers.resource())
        .map(|url| url.path().trim_end_matches('/').to_owned())
        .unwrap_or_default();
    if issuers.is_empty() || !(meant.is_empty() || meant == own) {
        return problem(
            StatusCode::NOT_FOUND,
            "not_found",
            "there is no such protected resource",
        );
    }
    axum::Json(issuers.metadata()).into_response()
}

/// The answer to a request that is not let in: 401 with how to be let in, or 403 with what is missing.
fn refuse(denied: &Denied, issuers: &Issuers) -> Response {
    let (status, title) = match denied {
        Denied::Missing | Denied::Invalid(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
        Denied::Scope(_) => (StatusCode::FORBIDDEN, "insufficient_scope"),
        Denied::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
    };
    let mut response = problem(status, title, &denied.to_string());
    let mut challenge = String::from("Bearer realm=\"plimsoll\"");
    match denied {
        Denied::Unavailable => {
            response.headers_mut().insert(header::RETRY_AFTER, 5.into());
            return response;
        }
        Denied::Missing => {}
        Denied::Invalid(_) => challenge.push_str(", error=\"invalid_token\""),
        Denied::Scope(_) => challenge.push_str(", error=\"insufficient_scope\""),
    }
    if !issuers.is_empty() {
        let scope = match denied {
            Denied::Scope(scope) => scope.clone(),
            _ => issuers.scopes().join(" "),
        };
        challenge.push_str(&format!(
            ", resource_metadata=\"{}\", scope=\"{scope}\"",
            metadata_url(issuers.resource())
        ));
    }
    if let Ok(challenge) = HeaderValue::from_str(&challenge) {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Where the metadata of a resource is: the well-known path before the resource's own.
fn metadata_url(resource: &str) -> String {
    let Ok(mut url) = url::Url::parse(resource) else {
        return String::new();
    };
    let path = format!("{METADATA_PATH}{}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.to_string()
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_where_rfc_9728_has_it() {
        assert_eq!(
            metadata_url("https://p.example:8443/mcp"),
            "https://p.example:8443/.well-known/oauth-protected-resource/mcp"
        );
        assert_eq!(
            metadata_url("https://p.example"),
            "https://p.example/.well-known/oauth-protected-resource"
        );
    }

    #[test]
    fn a_session_is_marked_for_one_tenant_and_one_key() {
        let of = |tenant: &str, subject: &str| {
            let caller = Caller {
                tenant: tenant.into(),
                subject: Some(subject.into()),
                ..Caller::default()
            };
            mark_of("s", &caller)
        };
        assert_eq!(of("a", "b"), of("a", "b"));
        assert_ne!(of("a", "b"), of("ab", ""));
        assert_ne!(of("a", "b"), of("a", "c"));
    }
}
