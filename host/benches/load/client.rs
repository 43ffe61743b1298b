//! The load: one kind of request, again and again, over as many connections as there is concurrency.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use axum::body::Bytes;
use http::Request as HttpRequest;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::server::Server;

/// The protocol version that all servers are asked in.
const VERSION: &str = "2026-07-28";

/// One request of MCP.
pub(crate) struct Request {
    method: &'static str,
    name: Option<String>,
    body: Bytes,
}

/// What one load gave: processor seconds of the server for each call, and calls a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) cpu: f64,
    pub(crate) rate: f64,
}

impl Request {
    pub(crate) fn call(tool: &str) -> Self {
        Self::call_with(tool, &json!({}))
    }

    pub(crate) fn call_with(tool: &str, arguments: &Value) -> Self {
        let params = json!({"name": tool, "arguments": arguments});
        Self::new("tools/call", Some(tool.to_owned()), params)
    }

    pub(crate) fn listing() -> Self {
        Self::new("tools/list", None, json!({}))
    }

    fn new(method: &'static str, name: Option<String>, mut params: Value) -> Self {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        Self {
            method,
            name,
            body: body.to_string().into(),
        }
    }

    fn http(&self, port: u16) -> anyhow::Result<HttpRequest<Full<Bytes>>> {
        let mut request = HttpRequest::post("/mcp")
            .header("host", format!("127.0.0.1:{port}"))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", self.method);
        if let Some(name) = &self.name {
            request = request.header("mcp-name", name);
        }
        Ok(request.body(Full::new(self.body.clone()))?)
    }
}

type Connection = SendRequest<Full<Bytes>>;

async fn connect(server: &Server) -> anyhow::Result<Connection> {
    let stream = TcpStream::connect(("127.0.0.1", server.port)).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a request and reads all of its answer.
async fn send(
    connection: &mut Connection,
    request: HttpRequest<Full<Bytes>>,
) -> anyhow::Result<(http::HeaderMap, Bytes)> {
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    ensure!(
        head.status.is_success(),
        "{}: {}",
        head.status,
        String::from_utf8_lossy(&body[..body.len().min(500)])
    );
    Ok((head.headers, body))
}

/// One request over a connection of its own.
pub(crate) async fn once(server: &Server, request: &Request) -> anyhow::Result<String> {
    let mut connection = connect(server).await?;
    let (_, body) = send(&mut connection, request.http(server.port)?).await?;
    Ok(String::from_utf8(body.to_vec())?)
}

/// Loads a server for some time.
pub(crate) async fn load(
    server: &Server,
    request: &Request,
    concurrency: usize,
    time: Duration,
) -> anyhow::Result<Load> {
    let mut connections = Vec::with_capacity(concurrency);
    for _ in 0..concurrency {
        connections.push(connect(server).await?);
    }
    let (began, before) = (Instant::now(), server.cpu()?);
    let calls = connections.into_iter().map(|mut connection| async move {
        let mut calls = 0_u32;
        // One at least, of servers that take longer.
        while calls == 0 || began.elapsed() < time {
            send(&mut connection, request.http(server.port)?).await?;
            calls += 1;
        }
        anyhow::Ok(calls)
    });
    let calls: u32 = futures::future::try_join_all(calls).await?.iter().sum();
    Ok(Load {
        cpu: (server.cpu()? - before) / f64::from(calls),
        rate: f64::from(calls) / began.elapsed().as_secs_f64(),
    })
}

/// Follows an answer to its page `far`, and then gets page 2 and that one by turns: seconds of each.
pub(crate) async fn pages(
    server: &Server,
    tool: &str,
    arguments: &Value,
    far: usize,
    turns: usize,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let mut connection = connect(server).await?;
    let (mut second, mut arguments) = (None, arguments.clone());
    for page in 1..far {
        arguments = page_of(&mut connection, server, tool, &arguments).await?.1;
        ensure!(
            arguments["after"].is_string(),
            "there are only {page} pages"
        );
        second.get_or_insert_with(|| arguments.clone());
    }
    let second = second.context("page 2 comes before it")?;
    let (mut near, mut distant) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        near.push(page_of(&mut connection, server, tool, &second).await?.0);
        distant.push(page_of(&mut connection, server, tool, &arguments).await?.0);
    }
    Ok((near, distant))
}

/// Gets a page; seconds, and the arguments of the next one.
async fn page_of(
    connection: &mut Connection,
    server: &Server,
    tool: &str,
    arguments: &Value,
) -> anyhow::Result<(f64, Value)> {
    let request = HttpRequest::post(format!("/v1/tools/{tool}"))
        .header("host", format!("127.0.0.1:{}", server.port))
        .header("content-type", "application/json")
        .body(Full::new(arguments.to_string().into()))?;
    let began = Instant::now();
    let (headers, _) = send(connection, request).await?;
    let seconds = began.elapsed().as_secs_f64();
    let receipt = headers
        .get("plimsoll-receipt")
        .context("there is a receipt")?;
    let receipt: Value = serde_json::from_slice(receipt.as_bytes())?;
    let mut next = arguments.clone();
    next["after"] = receipt["next_after"].clone();
    Ok((seconds, next))
}
