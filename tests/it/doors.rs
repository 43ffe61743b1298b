//! The doors: the command line, MCP over stdio, and HTTP on a real port.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, TestHost, fleet, json as parse, plimsoll, root};
use plimsoll::call::Caller;

/// A folder with a config file and a state.
pub(crate) fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    support::write_state(&folder.path().join(".plimsoll"));
    std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
    folder
}

pub(crate) fn run(folder: &TempDir, arguments: &[&str]) -> (i32, String, String) {
    let output = plimsoll()
        .args(arguments)
        .env("PLIMSOLL_LOG", "warn")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn call_writes_the_body_to_stdout_and_the_facts_to_stderr() {
    let folder = folder(&fleet());
    let (code, body, facts) = run(&folder, &["call", "fleet_show", "--args", r#"{"limit":2}"#]);
    assert_eq!(code, 0, "{facts}");
    assert_eq!(parse(&body)["streams"].as_array().unwrap().len(), 2);
    let facts = parse(facts.trim());
    assert_eq!(facts["total_count"], 68);
    assert_eq!(facts["returned"], 2);
    for field in [
        "approx_tokens",
        "budget_tokens",
        "budget_source",
        "budget_rows_dropped",
    ] {
        assert!(facts.get(field).is_some(), "{field}");
    }
    let (code, body, refusal) = run(
        &folder,
        &["call", "fleet_show", "--args", r#"{"limit":101}"#],
    );
    assert_eq!((code, body.as_str()), (1, ""));
    assert_eq!(
        parse(&refusal)["message"],
        "limit must be an integer between 1 and 100"
    );
    let (code, _, error) = run(&folder, &["call", "no_such_tool"]);
    assert_eq!(code, 1);
    assert_eq!(parse(&error)["error"], "not_found");
    let (code, _, error) = run(&folder, &["call", "fleet_show", "--args", "[]"]);
    assert_eq!(code, 3);
    assert!(error.contains("`--args` must be a JSON object"), "{error}");
}

#[test]
fn everything_that_fits_is_the_handlers_document_byte_for_byte() {
    let folder = folder(&fleet());
    let record = tempfile::tempdir().unwrap();
    let text = r#"{ "streams" : [ {"id":"a","state":"merged","n":9007199254740993,"x":0.10,"x":1e400} , {"id":"b","state":"open"} ],"at":"now" }
"#;
    std::fs::write(record.path().join("fleet.json"), text).unwrap();
    let config = format!(
        "[plugins.fleet]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/data\" }}]\n",
        support::component("plugins/fleet.wasm"),
        record.path()
    );
    std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
    let (code, body, facts) = run(
        &folder,
        &[
            "call",
            "fleet_show",
            "--args",
            r#"{"horizon":"all","detail":"full"}"#,
        ],
    );
    assert_eq!(code, 0, "{facts}");
    assert_eq!(body, text);
}

#[test]
fn without_a_config_file_the_error_says_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, error) = run(&folder, &["check"]);
    assert_eq!(code, 3);
    assert!(
        error.contains("there is no `plimsoll.toml` in this folder")
            && error.contains("hint: pass `--config FILE`"),
        "{error}"
    );
}

#[test]
fn check_prints_every_value_with_its_source() {
    let folder = folder(&format!(
        "{}[plugins.fleet.limits]\nfuel = 1000000000\n[plugins.fleet.tools.fleet_show]\ndefault_limit = 7\n",
        fleet()
    ));
    let (code, text, error) = run(&folder, &["check"]);
    assert_eq!(code, 0, "{error}");
    let source = |table: &str, key: &str| {
        let table = text
            .split(&format!("[{table}]\n"))
            .nth(1)
            .unwrap()
            .split("\n\n")
            .next()
            .unwrap();
        let line = table
            .lines()
            .find(|line| line.starts_with(&format!("{key} =")))
            .unwrap_or_else(|| panic!("{key}: {table}"));
        line.split('#').nth(1).unwrap().trim().to_owned()
    };
    assert_eq!(source("limits", "fuel"), "default");
    assert_eq!(source("results", "keep_seconds"), "default");
    assert!(text.contains("location = ./.plimsoll/results"), "{text}");
    assert!(text.contains("public_url = none"), "{text}");
    assert_eq!(source("plugins.fleet", "fuel"), "plimsoll.toml");
    assert_eq!(
        source("plugins.fleet.tools.fleet_show", "default_limit"),
        "plugins.fleet.tools.fleet_show"
    );
    assert_eq!(
        source("plugins.fleet.tools.fleet_show", "cap_bytes"),
        "plugin"
    );
}

#[test]
fn inspect_shows_world_imports_grants_and_what_listing_costs() {
    let folder = tempfile::tempdir().unwrap();
    let file = support::component("plugins/fleet.wasm");
    let (code, text, error) = run(&folder, &["inspect", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    for expected in [
        "world: tool-handler",
        "needs granted:",
        "fleet_show (",
        " tokens)",
        "detail (string)",
        "rows /streams",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_host_without_keys_listens_on_loopback_only() {
    let folder = folder("listen = \"0.0.0.0:8787\"\n");
    let (code, _, error) = run(&folder, &["serve"]);
    assert_eq!(code, 3);
    assert!(
        error.contains("refusing to listen on `0.0.0.0:8787`"),
        "{error}"
    );
}

/// One MCP server over stdio, spoken to line by line.
pub(crate) struct Stdio {
    child: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Stdio {
    pub(crate) fn start(folder: &TempDir) -> Self {
        let mut child = plimsoll()
            .args(["serve", "--stdio"])
            .env("PLIMSOLL_LOG", "warn")
            .current_dir(folder.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        parse(&self.lines.next().unwrap().unwrap())
    }

    /// The answer to a request.
    pub(crate) fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.hear(id, method, params).1
    }

    /// The same, with what came before the answer.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that `json!` can stand at the call"
    )]
    pub(crate) fn hear(&mut self, id: u64, method: &str, params: Value) -> (Vec<Value>, Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut before = Vec::new();
        loop {
            let message = self.receive();
            if message["id"] == id {
                return (before, message);
            }
            before.push(message);
        }
    }
}

impl Drop for Stdio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `_meta` that every request of the modern era carries.
pub(crate) fn modern() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[test]
fn stdio_serves_the_modern_and_the_handshake_era() {
    let folder = folder(&fleet());
    let mut modern_client = Stdio::start(&folder);
    let listed = modern_client.ask(1, "tools/list", json!({"_meta": modern()}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["fleet_show", "wave_show", "stream_detail"]
    );
    assert_eq!(tools[0]["_meta"]["anthropic/maxResultSizeChars"], 200_000);
    let called = modern_client.ask(
        2,
        "tools/call",
        json!({"name": "fleet_show", "arguments": {}, "_meta": modern()}),
    );
    let content = called["result"]["content"].as_array().unwrap();
    assert_eq!(
        (content.len(), &content[2]["type"]),
        (3, &json!("resource_link"))
    );
    let facts = parse(content[0]["text"].as_str().unwrap());
    // Nobody serves an address here.
    assert_eq!(facts.get("link"), None);
    assert!(
        facts["notices"]
            .to_string()
            .contains("This query used the default live-only horizon because"),
        "{facts}"
    );
    assert_eq!(
        called["result"]["_meta"]["dev.plimsoll/receipt"]["total"],
        68
    );

    let mut legacy = Stdio::start(&folder);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    assert_eq!(
        legacy.ask(1, "initialize", params)["result"]["protocolVersion"],
        "2025-06-18"
    );
    legacy.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let called = legacy.ask(
        2,
        "tools/call",
        json!({"name": "fleet_show", "arguments": {"limit": "x"}}),
    );
    assert_eq!(called["result"]["isError"], true);
    let refusal = parse(called["result"]["content"][0]["text"].as_str().unwrap());
    assert_eq!(
        refusal["message"],
        "limit must be an integer between 1 and 100"
    );
    let unknown = legacy.ask(3, "tools/call", json!({"name": "nope", "arguments": {}}));
    assert_eq!(
        (
            unknown["error"]["code"].as_i64(),
            unknown["error"]["message"].as_str()
        ),
        (Some(-32602), Some("Unknown tool: nope"))
    );
    let malformed = legacy.ask(
        4,
        "tools/call",
        json!({"name": "fleet_show", "arguments": []}),
    );
    assert_eq!(malformed["error"]["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_api_has_the_body_the_receipt_and_the_next_link() {
    let host = TestHost::start(&fleet()).await;
    let served = host.serve().await;
    let client = reqwest::Client::new();
    let url = format!("{}/v1/tools/fleet_show", served.url);
    let response = client
        .post(&url)
        .body(r#"{"limit":3,"horizon":"all"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let receipt = parse(response.headers()["plimsoll-receipt"].to_str().unwrap());
    assert_eq!(
        (&receipt["total"], &receipt["returned"], &receipt["after"]),
        (&json!(68), &json!(3), &json!(65))
    );
    let link = response.headers()["link"].to_str().unwrap().to_owned();
    let target = link.strip_prefix('<').unwrap().split('>').next().unwrap();
    assert!(link.ends_with("; rel=\"next\""));
    let first: Value = response.json().await.unwrap();
    let second: Value = client
        .post(format!("{}{target}", served.url))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(second["streams"].as_array().unwrap().len(), 3);
    assert_ne!(first["streams"][2]["id"], second["streams"][0]["id"]);

    let csv = client
        .post(&url)
        .header("accept", "text/csv")
        .send()
        .await
        .unwrap();
    assert_eq!(csv.headers()["content-type"], "text/csv; charset=utf-8");
    assert!(csv.text().await.unwrap().starts_with("id,"));

    let refused = client
        .post(&url)
        .body(r#"{"limit":0}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), 400);
    assert_eq!(
        refused.headers()["content-type"],
        "application/problem+json"
    );
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(
        problem["detail"],
        "limit must be an integer between 1 and 100"
    );
    assert_eq!(problem["status"], 400);

    for (path, status) in [
        ("/healthz", 200),
        ("/v1/tools", 200),
        ("/openapi.json", 200),
        ("/nope", 404),
        ("/v1/tools/fleet_show", 405),
    ] {
        assert_eq!(
            client
                .get(format!("{}{path}", served.url))
                .send()
                .await
                .unwrap()
                .status(),
            status,
            "{path}"
        );
    }
    let not_json = client.post(&url).body("{").send().await.unwrap();
    assert_eq!(not_json.status(), 400);
    assert_eq!(
        client
            .post(format!("{}/v1/tools/nope", served.url))
            .send()
            .await
            .unwrap()
            .status(),
        404
    );
    let foreign = client
        .post(&url)
        .header("host", "evil.test")
        .send()
        .await
        .unwrap();
    assert_eq!(foreign.status(), 403);
    let foreign = client
        .post(&url)
        .header("origin", "https://evil.test")
        .send()
        .await
        .unwrap();
    assert_eq!(foreign.status(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn mcp_over_http_answers_malformed_messages_as_json_rpc_wants_it() {
    let host = TestHost::start(&fleet()).await;
    let served = host.serve().await;
    let client = reqwest::Client::new();
    let post = |body: &str| {
        let request = client
            .post(format!("{}/mcp", served.url))
            .header("content-type", "application/json");
        request
            .header("accept", "application/json, text/event-stream")
            .body(body.to_owned())
    };
    for (body, code) in [("{", -32700), ("[]", -32600), ("NaN", -32700)] {
        let response = post(body).send().await.unwrap();
        assert_eq!(response.status(), 400);
        assert_eq!(
            response.json::<Value>().await.unwrap()["error"]["code"],
            code,
            "{body}"
        );
    }
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fleet_show", "arguments": {}, "_meta": modern()}});
    let response = post(&call.to_string())
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "fleet_show")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let result: Value = response.json().await.unwrap();
    assert_eq!(
        result["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "plimsoll"
    );
}

/// A host with one typed tool that answers with this document.
async fn typed(document: &str) -> TestHost {
    let case = tempfile::tempdir().unwrap().keep();
    let tool = json!([{
        "name": "typed", "description": "Typed.", "answer": "answer.json", "shape": {"rows": {"pointer": "/items"}},
        "output_schema": {
            "type": "object",
            "properties": {"items": {"type": "array", "minItems": 3, "items": {"type": "object", "required": ["n"]}}},
            "required": ["items"],
        },
    }]);
    std::fs::write(case.join("tool.json"), tool.to_string()).unwrap();
    std::fs::write(case.join("answer.json"), document).unwrap();
    let component = support::component("guests/canned.wasm");
    TestHost::start(&format!("[plugins.canned]\ncomponent = {component:?}\nfiles = [{{ host = {case:?}, guest = \"/case\" }}]\n")).await
}

/// Calls `typed` over MCP in the modern era.
async fn call_typed(host: &TestHost, arguments: Value) -> Value {
    let served = host.serve().await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "typed", "arguments": arguments, "_meta": modern()}});
    let request = reqwest::Client::new()
        .post(format!("{}/mcp", served.url))
        .header("content-type", "application/json");
    let request = request
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28");
    let request = request
        .header("mcp-method", "tools/call")
        .header("mcp-name", "typed")
        .body(call.to_string());
    request.send().await.unwrap().json::<Value>().await.unwrap()["result"].clone()
}

/// Cases F1, F3, F9: a page of a typed tool satisfies the schema that was advertised, and both copies say the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_typed_tool_satisfies_the_advertised_schema() {
    let host = typed(r#"{"items":[{"n":9007199254740993},{"n":2},{"n":3},{"n":4}]}"#).await;
    let schema = host
        .host()
        .catalog(&Caller::default())
        .tool("typed")
        .unwrap()
        .listed["outputSchema"]
        .clone();
    for arguments in [json!({"limit": 1}), json!({}), json!({"fields": ["n"]})] {
        let result = call_typed(&host, arguments).await;
        let structured = &result["structuredContent"];
        assert!(
            jsonschema::is_valid(&schema, structured),
            "{structured} against {schema}"
        );
        let content = result["content"].as_array().unwrap();
        assert_eq!(
            structured["facts"],
            parse(content[0]["text"].as_str().unwrap())
        );
        assert_eq!(
            structured["body"],
            parse(content[1]["text"].as_str().unwrap())
        );
        assert_eq!(
            structured["body"]["items"][0]["n"],
            9_007_199_254_740_993_u64
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_that_structured_content_cannot_hold_is_refused() {
    let host = typed(r#"{"items":[{"n":1e400}]}"#).await;
    let result = call_typed(&host, json!({})).await;
    assert_eq!(result["isError"], true);
    let refusal = parse(result["content"][0]["text"].as_str().unwrap());
    assert_eq!(refusal["error"], "invalid_answer");
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .contains("number out of range"),
        "{refusal}"
    );
}

/// Case C7 where the arguments are longer than a cursor: it is enough all the same, also after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_continuation_of_a_long_query_needs_only_the_cursor() {
    let case = root().join("tests/cases/m05-short-cursors");
    let component = support::component("guests/canned.wasm");
    let config = format!(
        "[plugins.canned]\ncomponent = {component:?}\nfiles = [{{ host = {case:?}, guest = \"/case\" }}]\n"
    );
    let folder = folder(&config);
    let query = json!({"query": "x".repeat(600), "limit": 1}).to_string();
    let (code, _, facts) = run(&folder, &["call", "search_long", "--args", &query]);
    assert_eq!(code, 0, "{facts}");
    let after = parse(facts.trim())["next_after"].clone();
    let alone = json!({ "after": after }).to_string();
    let (code, body, facts) = run(&folder, &["call", "search_long", "--args", &alone]);
    assert_eq!(code, 0, "{facts}");
    assert_eq!(parse(&body), json!([{"id": 1}]));
    let other = json!({"after": after, "query": "y"}).to_string();
    let (code, _, refusal) = run(&folder, &["call", "search_long", "--args", &other]);
    assert_eq!(
        (code, &parse(&refusal)["error"]),
        (1, &json!("invalid_cursor"))
    );
    // Where the host has lost it, the caller is told to repeat the arguments.
    std::fs::remove_dir_all(folder.path().join(".plimsoll/results/queries")).unwrap();
    let (code, _, refusal) = run(&folder, &["call", "search_long", "--args", &alone]);
    assert_eq!(code, 1);
    assert!(
        refusal.contains("too long to be carried in it: pass them all again"),
        "{refusal}"
    );
}

/// Case M3: what a plugin prints never gets between the messages.
#[test]
fn a_plugin_that_prints_does_not_disturb_the_messages() {
    let folder = folder(&support::hostile("deadline_ms = 500"));
    let mut client = Stdio::start(&folder);
    let params = json!({"name": "flood_stdout", "arguments": {}, "_meta": modern()});
    // Every line that arrives is parsed as a message.
    let flooded = client.ask(1, "tools/call", params);
    assert_eq!(flooded["result"]["isError"], true);
    let fine = client.ask(
        2,
        "tools/call",
        json!({"name": "fine", "arguments": {}, "_meta": modern()}),
    );
    assert_eq!(
        fine["result"]["content"][1]["text"],
        "[{\"n\":0},{\"n\":1},{\"n\":2}]"
    );
}
