//! `POST /v1/preview`: what each client program would get of one answer, for admins.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::tools::problem;
use crate::call::{Caller, Host};
use crate::preview::{Share, readers};
use crate::shape::{Code, Refusal, Reply};

/// What is previewed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// Whose call it is, on a host with tenants.
    tenant: Option<String>,
    /// The key whose budget and quotas apply, by its name or id; absent: none.
    key: Option<String>,
    /// One client program; absent: all that are known, and any other.
    client: Option<String>,
    /// Whether the replies themselves are wanted.
    #[serde(default)]
    replies: bool,
}

/// `POST /v1/preview`
pub(super) async fn preview(State(host): State<Arc<Host>>, body: Bytes) -> Response {
    let refuse = |code, message: String| problem(&Reply::refused(&Refusal::new(code, message)));
    let ask: Ask = match serde_json::from_slice(&body) {
        Ok(ask) => ask,
        Err(error) => {
            let expected = "the body must be a JSON object with \"tool\", and, where wanted, \"arguments\", \"tenant\", \"key\", \
                            \"client\" and \"replies\"";
            return refuse(Code::InvalidArguments, format!("{expected}: {error}"));
        }
    };
    let caller = match caller(&host, &ask) {
        Ok(caller) => caller,
        Err(error) => return refuse(Code::InvalidArguments, error.to_string()),
    };
    host.ready().await;
    let Some(tool) = host.tool(&caller, &ask.tool) else {
        return problem(&Reply::refused(&Refusal::unknown_tool(&ask.tool)));
    };
    let (names, callers): (Vec<String>, Vec<Caller>) = readers(&host, &caller).into_iter().unzip();
    let replies = host.preview(&callers, &tool, ask.arguments).await;
    let clients: Vec<Value> = names
        .iter()
        .zip(&replies)
        .map(|(name, reply)| {
            let mut share = json!(Share::of(name, reply));
            if ask.replies {
                share["facts"] = reply.facts().into();
                share["body"] = reply.body().into();
            }
            share
        })
        .collect();
    let body = json!({"tool": ask.tool, "tenant": caller.tenant, "clients": clients});
    let mut response = Json(body).into_response();
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store"),
    );
    response
}

/// Whose call it is. On a host for one user there is one.
fn caller(host: &Host, ask: &Ask) -> anyhow::Result<Caller> {
    let tenants = host.tenants();
    let caller = tenants.caller(ask.tenant.as_deref(), ask.key.as_deref())?;
    Ok(Caller {
        client: ask.client.clone(),
        ..caller
    })
}
