//! Tenants, keys, tokens, budgets, quotas and the ledger, through the doors of hosts that really run.

use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, HostProcess, TestHost, json as parse, plimsoll};

/// A config of tenants that each have one plugin, `case`, with rows of their own: `who` in each row is the tenant.
pub(crate) fn config_of(
    folder: &Path,
    tenants: &[&str],
    rows: usize,
    top: &str,
    each: &str,
) -> String {
    let component = support::component("guests/canned.wasm");
    let mut config = format!("{top}\n[plugins.case]\ncomponent = {component:?}\n");
    for tenant in tenants {
        let case = folder.join(tenant);
        std::fs::create_dir_all(&case).unwrap();
        let tool = json!([{
            "name": "list_rows",
            "description": "Lists rows.",
            "shape": {"rows": {"pointer": "/rows"}, "key": "id"},
            "answer": "answer.json",
        }]);
        std::fs::write(case.join("tool.json"), tool.to_string()).unwrap();
        let answer: Vec<Value> = (0..rows)
            .map(|id| json!({"id": id, "who": tenant}))
            .collect();
        std::fs::write(
            case.join("answer.json"),
            json!({"rows": answer}).to_string(),
        )
        .unwrap();
        config.push_str(&format!(
            "[tenants.{tenant}]\nplugins = [\"case\"]\n{each}\n[tenants.{tenant}.grants.case]\nfiles = [{{ host = {case:?}, guest = \"/case\" }}]\n"
        ));
    }
    config
}

/// Runs a command over a config file: its output, or what it says.
pub(crate) fn command(config: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = plimsoll()
        .args(arguments)
        .arg("--config")
        .arg(config)
        .env("PLIMSOLL_LOG", "warn")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout).trim().to_owned())
    } else {
        Err(text(output.stderr))
    }
}

fn add_key(config: &Path, tenant: &str, name: &str, more: &[&str]) -> String {
    let arguments = [&["keys", "add", tenant, "--name", name], more].concat();
    command(config, &arguments).unwrap()
}

/// One request with a bearer token: status and body.
async fn call(url: &str, token: &str, arguments: Value) -> (StatusCode, Value) {
    let response = reqwest::Client::new()
        .post(format!("{url}/v1/tools/list_rows"))
        .bearer_auth(token)
        .body(arguments.to_string())
        .send()
        .await
        .unwrap();
    let status = response.status();
    (status, parse(&response.text().await.unwrap()))
}

async fn get(url: &str, token: Option<&str>) -> reqwest::Response {
    let request = reqwest::Client::new().get(url);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    request.send().await.unwrap()
}

fn who(body: &Value) -> Vec<&str> {
    let rows = body["rows"].as_array().unwrap();
    let mut who: Vec<&str> = rows
        .iter()
        .map(|row| row["who"].as_str().unwrap())
        .collect();
    who.dedup();
    who
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lets_in_until_it_is_revoked_or_expires() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of(folder.path(), &["acme", "globex"], 3, "", "");
    let host = HostProcess::start(&config);
    let file = host.config();

    // Without a key, and with something that is none.
    for (token, detail) in [
        (
            None,
            "this host has tenants: send `Authorization: Bearer KEY`; an operator makes a key with `plimsoll keys add`",
        ),
        (
            Some("plm_0_x"),
            "the key is not known; an operator lists keys with `plimsoll keys list`",
        ),
        (
            Some("x"),
            "this is no key of this host: one begins with `plm_`, and an operator makes it with `plimsoll keys add`",
        ),
    ] {
        for path in ["/v1/tools", "/openapi.json", "/metrics", "/mcp"] {
            let response = get(&format!("{}{path}", host.url), token).await;
            assert_eq!(response.status(), 401, "{path}");
            let challenge = response.headers()["www-authenticate"]
                .to_str()
                .unwrap()
                .to_owned();
            let expected = if token.is_some() {
                "Bearer realm=\"plimsoll\", error=\"invalid_token\""
            } else {
                "Bearer realm=\"plimsoll\""
            };
            assert_eq!(challenge, expected);
            assert_eq!(parse(&response.text().await.unwrap())["detail"], detail);
        }
    }
    assert_eq!(
        get(&format!("{}/healthz", host.url), None).await.status(),
        200
    );

    // A key works at once, though the host was running when it was made.
    let key = add_key(&file, "acme", "agent", &[]);
    assert!(key.starts_with("plm_"));
    let (status, body) = call(&host.url, &key, json!({})).await;
    assert_eq!((status, who(&body)), (StatusCode::OK, vec!["acme"]));
    let error = command(&file, &["keys", "add", "acme", "--name", "agent"]).unwrap_err();
    assert!(
        error.contains(
            "tenant `acme` has a live key `agent` already; revoke it first, or choose another name"
        ),
        "{error}"
    );
    let error = command(&file, &["keys", "add", "nobody", "--name", "agent"]).unwrap_err();
    assert!(
        error.contains("there is no tenant `nobody`; the config file has: acme, globex"),
        "{error}"
    );

    // Nothing that is stored or listed has the key.
    let listed = command(&file, &["keys", "list", "--json"]).unwrap();
    let row = parse(&listed);
    assert_eq!(
        (&row["tenant"], &row["name"], &row["mode"]),
        (&json!("acme"), &json!("agent"), &json!("inherit"))
    );
    let secret = key.rsplit('_').next().unwrap().as_bytes().to_vec();
    for entry in std::fs::read_dir(file.parent().unwrap().join(".plimsoll")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !bytes.windows(secret.len()).any(|window| window == secret),
                "{}",
                path.display()
            );
        }
    }

    // Revoked: within the 5 s that the issue of a change may take, on a host that has the key in memory.
    command(&file, &["keys", "revoke", "acme/agent"]).unwrap();
    let began = std::time::Instant::now();
    let detail = loop {
        let (status, body) = call(&host.url, &key, json!({})).await;
        if status == 401 {
            break body["detail"].clone();
        }
        assert!(began.elapsed().as_secs() < 5, "a revoked key still works");
    };
    assert_eq!(detail, "the key was revoked; ask for a new one");
    // Its name is free again.
    add_key(&file, "acme", "agent", &[]);

    let short = add_key(&file, "acme", "short", &["--expires", "1s"]);
    let began = std::time::Instant::now();
    let detail = loop {
        let (status, body) = call(&host.url, &short, json!({})).await;
        if status == 401 {
            break body["detail"].as_str().unwrap().to_owned();
        }
        assert!(began.elapsed().as_secs() < 5, "an expired key still works");
    };
    assert!(
        detail.starts_with("the key expired at 20") && detail.ends_with("; ask for a new one"),
        "{detail}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_crosses_between_tenants() {
    let folder = tempfile::tempdir().unwrap();
    let tenants = ["acme", "globex", "initech"];
    let host = HostProcess::start(&config_of(folder.path(), &tenants, 60, "", ""));
    let keys: Vec<String> = tenants
        .iter()
        .map(|tenant| add_key(&host.config(), tenant, "k", &[]))
        .collect();
    for (own, key) in tenants.iter().zip(&keys) {
        let (status, body) = call(&host.url, key, json!({})).await;
        assert_eq!((status, who(&body)), (StatusCode::OK, vec![*own]));
        let cursor = cursor_of(&host.url, key).await;
        let session = session_of(&host.url, key).await;
        let (resource, link) = resource_of(&host.url, key).await;
        // The link is the key of this one result: it shows its rows to whoever has it, and no other's.
        let shown = reqwest::get(&format!("{link}/download?format=json"))
            .await
            .unwrap();
        assert_eq!(shown.status(), 200);
        let shown = parse(&shown.text().await.unwrap());
        assert_eq!(
            (who(&shown), shown["rows"].as_array().unwrap().len()),
            (vec![*own], 60)
        );
        for (other, foreign) in tenants.iter().zip(&keys) {
            let (status, body) = call(&host.url, foreign, json!({"after": cursor})).await;
            let answer = session_status(&host.url, foreign, &session).await;
            let read = read_resource(&host.url, foreign, &resource).await;
            if own == other {
                assert!(read["result"].to_string().contains(own), "{read}");
                assert_eq!((status, who(&body)), (StatusCode::OK, vec![*own]));
                assert_eq!(answer.0, 200, "{}", answer.1);
                continue;
            }
            // The same words as for a cursor that never was.
            assert_eq!(status, 400, "{body}");
            assert_eq!(body["error"], "invalid_cursor");
            assert!(!body.to_string().contains(own), "{body}");
            assert_eq!(answer.0, 404);
            assert!(!answer.1.contains(own), "{}", answer.1);
            // As for a result that never was, but for its own id.
            let never = read_resource(
                &host.url,
                foreign,
                "plimsoll://results/00000000000000000000000000000000",
            )
            .await;
            let id = resource.rsplit('/').next().unwrap();
            let same = read
                .to_string()
                .replace(id, "00000000000000000000000000000000");
            assert_eq!(same, never.to_string());
            assert!(
                read["error"].is_object() && !read.to_string().contains(own),
                "{read}"
            );
        }
    }
}

async fn cursor_of(url: &str, key: &str) -> String {
    let response = reqwest::Client::new()
        .post(format!("{url}/v1/tools/list_rows"))
        .bearer_auth(key)
        .send()
        .await
        .unwrap();
    let receipt = response.headers()["plimsoll-receipt"].to_str().unwrap();
    parse(receipt)["next_after"].as_str().unwrap().to_owned()
}

/// A request of the modern era.
async fn ask(url: &str, key: &str, method: &str, name: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = mcp(url, key, &message)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name);
    parse(&request.send().await.unwrap().text().await.unwrap())
}

/// The URI of a complete result, and its link.
async fn resource_of(url: &str, key: &str) -> (String, String) {
    let params = json!({"name": "list_rows", "arguments": {"limit": 2}});
    let answer = ask(url, key, "tools/call", "list_rows", params).await;
    let content = answer["result"]["content"].as_array().unwrap();
    let resource = content
        .iter()
        .find(|block| block["type"] == "resource_link")
        .unwrap();
    let facts = parse(content[0]["text"].as_str().unwrap());
    (
        resource["uri"].as_str().unwrap().to_owned(),
        facts["link"].as_str().unwrap().to_owned(),
    )
}

async fn read_resource(url: &str, key: &str, uri: &str) -> Value {
    ask(url, key, "resources/read", uri, json!({"uri": uri})).await
}

fn mcp(url: &str, key: &str, message: &Value) -> reqwest::RequestBuilder {
    reqwest::Client::new()
        .post(format!("{url}/mcp"))
        .bearer_auth(key)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(message.to_string())
}

pub(crate) async fn session_of(url: &str, key: &str) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let response = mcp(url, key, &message).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let session = response.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let response = mcp(url, key, &ready)
        .header("mcp-session-id", &session)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 202);
    session
}

async fn session_status(url: &str, key: &str, session: &str) -> (u16, String) {
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let response = mcp(url, key, &message)
        .header("mcp-session-id", session)
        .header("mcp-protocol-version", "2025-11-25")
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Case H3: what a client loads before its first message is what its tenant was given, not all that the host has.
#[tokio::test(flavor = "multi_thread")]
async fn h3_a_tenant_sees_and_calls_only_its_plugins() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config_of(folder.path(), &["acme"], 3, "", "");
    config.push_str(&support::fleet());
    config.push_str("[tenants.globex]\nplugins = [\"fleet\"]\n[tenants.empty]\n");
    let host = HostProcess::start(&config);
    for (tenant, tools) in [
        ("acme", vec!["list_rows"]),
        ("globex", vec!["fleet_show", "wave_show"]),
        ("empty", vec![]),
    ] {
        let key = add_key(&host.config(), tenant, "k", &[]);
        let listed = get(&format!("{}/v1/tools", host.url), Some(&key))
            .await
            .text()
            .await
            .unwrap();
        let listed = parse(&listed);
        let names: Vec<&str> = listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        for tool in &tools {
            assert!(names.contains(tool), "{tenant}: {names:?}");
        }
        assert_eq!(names.is_empty(), tools.is_empty());
        let (status, body) = call(&host.url, &key, json!({})).await;
        if tenant == "acme" {
            assert_eq!(status, 200);
        } else {
            // As for a tool that does not exist anywhere.
            assert_eq!(
                (status.as_u16(), &body["detail"]),
                (404, &json!("Unknown tool: list_rows"))
            );
        }
        let document = get(&format!("{}/openapi.json", host.url), Some(&key))
            .await
            .text()
            .await
            .unwrap();
        assert_eq!(document.contains("list_rows"), tenant == "acme");
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_rows", "arguments": {},
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}, "io.modelcontextprotocol/clientCapabilities": {}}}});
        let answer = mcp(&host.url, &key, &message)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "list_rows")
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let answer = parse(&answer);
        if tenant == "acme" {
            assert_eq!(answer["result"]["isError"], false, "{answer}");
        } else {
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_exact_says_when_it_resets_and_outlives_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let quota =
        "[tenants.acme.quotas.day]\ncalls = 5\n[tenants.acme.quotas.minute]\ntokens = 1000000\n";
    let config = format!("{}{quota}", config_of(folder.path(), &["acme"], 3, "", ""));
    let host = HostProcess::start(&config);
    let key = add_key(&host.config(), "acme", "k", &[]);
    for _ in 0..4 {
        assert_eq!(call(&host.url, &key, json!({})).await.0, 200);
    }
    // What is refused before anything runs costs nothing.
    assert_eq!(call(&host.url, &key, json!({"limit": 101})).await.0, 400);
    assert_eq!(call(&host.url, &key, json!({})).await.0, 200);
    let host = host.restart();
    let response = reqwest::Client::new()
        .post(format!("{}/v1/tools/list_rows", host.url))
        .bearer_auth(&key)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 429);
    let retry: u64 = response.headers()["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=86_401).contains(&retry), "{retry}");
    let refusal = parse(&response.text().await.unwrap());
    assert_eq!(
        (
            &refusal["error"],
            &refusal["retryable"],
            &refusal["retry_after_seconds"]
        ),
        (&json!("quota_exceeded"), &json!(true), &json!(retry))
    );
    let detail = refusal["detail"].as_str().unwrap();
    assert!(
        detail.starts_with(&format!(
            "The quota of tenant acme for 5 calls a day is used up; it resets in {retry} s, at 20"
        )) && detail.ends_with("T00:00:00Z. Nothing was run."),
        "{detail}"
    );
    let listed = command(&host.config(), &["tenants", "list"]).unwrap();
    assert!(listed.contains("calls this day: 5 of 5"), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_quotas_of_its_own_and_they_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostProcess::start(&config_of(folder.path(), &["acme"], 3, "", ""));
    let file = host.config();
    let one = add_key(
        &file,
        "acme",
        "one",
        &["--quota", "day.bytes=1", "--quota", "minute.calls=100"],
    );
    let other = add_key(&file, "acme", "other", &[]);
    // Bytes are known when a call ends: the first one is let in, and what it used is there for the next one.
    assert_eq!(call(&host.url, &one, json!({})).await.0, 200);
    let began = std::time::Instant::now();
    let refusal = loop {
        let (status, body) = call(&host.url, &one, json!({})).await;
        if status == 429 {
            break body;
        }
        assert!(
            began.elapsed().as_secs() < 2,
            "a crash may lose a second, a running host may not"
        );
    };
    assert!(
        refusal["detail"]
            .as_str()
            .unwrap()
            .starts_with("The quota of key one for 1 bytes a day is used up"),
        "{refusal}"
    );
    assert_eq!(call(&host.url, &other, json!({})).await.0, 200);
    command(
        &file,
        &["keys", "set", "acme/one", "--quota", "day.bytes=none"],
    )
    .unwrap();
    let began = std::time::Instant::now();
    while call(&host.url, &one, json!({})).await.0 != 200 {
        assert!(
            began.elapsed().as_secs() < 5,
            "a change takes longer than 5 s"
        );
    }
    let error = command(&file, &["keys", "set", "acme/one"]).unwrap_err();
    assert!(
        error.contains("nothing to change: pass `--result-tokens`, `--mode` or `--quota`"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_are_a_quota_that_ends_with_them() {
    let config = format!(
        "{}[tenants.acme]\nplugins = [\"hostile\"]\n[tenants.acme.quotas]\nconcurrent_calls = 2\n",
        support::hostile("deadline_ms = 60000\nfuel = 100000000000000")
    );
    let host = TestHost::start(&config).await;
    let caller = host.host().tenants().caller(Some("acme"), None).unwrap();
    let looping: Vec<_> = (0..2)
        .map(|_| {
            let (host, caller) = (host.host().clone(), caller.clone());
            tokio::spawn(async move {
                // The calls below may be quicker; those of this loop last.
                loop {
                    host.call_named(&caller, "sleep", support::object(json!({})))
                        .await;
                }
            })
        })
        .collect();
    // Until both have begun, and one more is refused.
    let refusal = loop {
        let call = host
            .host()
            .call_named(&caller, "fine", support::object(json!({})));
        let reply = call.await;
        if reply.refusal().map(|code| code.as_str()) == Some("quota_exceeded") {
            break parse(reply.body());
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        refusal["message"],
        "2 calls of tenant acme are running, which is its quota; it resets as soon as one of them ends. Nothing was run."
    );
    looping.iter().for_each(tokio::task::JoinHandle::abort);
    for call in looping {
        assert!(call.await.unwrap_err().is_cancelled());
    }
    host.host().ledger().flush().await;
    let reply = host
        .host()
        .call_named(&caller, "fine", support::object(json!({})))
        .await;
    assert_ne!(
        reply.refusal().map(|code| code.as_str()),
        Some("quota_exceeded")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_one_row_of_the_ledger_however_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of(folder.path(), &["acme", "globex"], 40, "", "");
    let mut host = HostProcess::start(&config);
    let file = host.config();
    let key = add_key(&file, "acme", "agent", &[]);
    let admin = command(&file, &["keys", "add", "--admin", "--name", "ops"]).unwrap();
    let secret = "a-very-particular-argument";
    let (status, body) = call(&host.url, &key, json!({"limit": 10})).await;
    assert_eq!(status, 200);
    assert_eq!(
        call(&host.url, &key, json!({"fields": [secret]})).await.0,
        400
    );
    let metrics = get(&format!("{}/metrics", host.url), Some(&admin)).await;
    assert_eq!(
        metrics.headers()["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let metrics = metrics.text().await.unwrap();
    let called = r#"plimsoll_calls_total{tenant="acme",plugin="case",tool="list_rows",outcome="answered"} 1"#;
    assert!(metrics.contains(called), "{metrics}");
    let rows =
        r#"plimsoll_rows_total{tenant="acme",plugin="case",tool="list_rows",direction="out"} 10"#;
    assert!(metrics.contains(rows), "{metrics}");
    let refused = get(&format!("{}/metrics", host.url), Some(&key)).await;
    assert_eq!(refused.status(), 403);
    assert_eq!(
        parse(&refused.text().await.unwrap())["detail"],
        "this is for admins: it takes a key that was made with `plimsoll keys add --admin`"
    );
    // A host that stops has written everything.
    host.stop();
    let usage = command(
        &file,
        &[
            "usage",
            "--by",
            "tenant,key,tool,outcome",
            "--format",
            "json",
        ],
    )
    .unwrap();
    let rows: Vec<Value> = usage.lines().map(parse).collect();
    assert_eq!(rows.len(), 2, "{usage}");
    let answered = rows
        .iter()
        .find(|row| row["outcome"] == "answered")
        .unwrap();
    assert_eq!(
        (&answered["tenant"], &answered["tool"], &answered["calls"]),
        (&json!("acme"), &json!("list_rows"), &json!(1))
    );
    assert_eq!(
        (&answered["rows_in"], &answered["rows_out"]),
        (&json!(40), &json!(10))
    );
    let sent = body.to_string().len() as u64;
    assert!(
        answered["bytes_out"].as_u64().unwrap() > sent / 2
            && answered["bytes_in"].as_u64().unwrap() > answered["bytes_out"].as_u64().unwrap() / 2
    );
    for column in ["tokens_in", "tokens_out", "fuel", "memory_peak"] {
        assert!(
            answered[column].as_u64().unwrap() > 0,
            "{column}: {answered}"
        );
    }
    let refused = rows
        .iter()
        .find(|row| row["outcome"] != "answered")
        .unwrap();
    assert_eq!(
        (&refused["outcome"], &refused["refused"]),
        (&json!("invalid_arguments"), &json!(1))
    );
    // When a key was used last is written down at the end, too.
    let keys = command(&file, &["keys", "list", "acme", "--json"]).unwrap();
    assert!(
        parse(&keys)["last_used"].as_str().unwrap().ends_with('Z'),
        "{keys}"
    );
    // Never arguments, never results.
    for entry in std::fs::read_dir(file.parent().unwrap().join(".plimsoll")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !bytes
                    .windows(secret.len())
                    .any(|window| window == secret.as_bytes()),
                "{}",
                path.display()
            );
        }
    }
    let other = command(&file, &["usage", "--tenant", "globex", "--format", "json"]).unwrap();
    assert_eq!(other, "");
    let table = command(&file, &["usage", "--by", "day"]).unwrap();
    assert!(
        table.starts_with("day         calls  refused  rows_in"),
        "{table}"
    );
}

#[test]
fn a_host_of_many_tells_whose_call_it_is_and_one_for_one_user_stays_on_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let config = config_of(folder.path(), &["acme", "globex"], 3, "", "");
    let file = folder.path().join("plimsoll.toml");
    std::fs::write(&file, config).unwrap();
    support::write_state(&folder.path().join(".plimsoll"));
    let error = command(&file, &["call", "list_rows"]).unwrap_err();
    assert!(
        error.contains(
            "this host has tenants; say whose call this is with `tenant`, one of: acme, globex"
        ),
        "{error}"
    );
    let error = command(&file, &["call", "list_rows", "--tenant", "x"]).unwrap_err();
    assert!(
        error.contains("there is no tenant `x`; the config file has: acme, globex"),
        "{error}"
    );
    let error = command(
        &file,
        &["call", "list_rows", "--tenant", "acme", "--key", "x"],
    )
    .unwrap_err();
    assert!(
        error.contains("tenant `acme` has no live key `x`; `plimsoll keys list` lists them"),
        "{error}"
    );
    let body = command(&file, &["call", "list_rows", "--tenant", "globex"]).unwrap();
    assert_eq!(who(&parse(&body)), ["globex"]);
    let single = TempDir::new().unwrap();
    let file = single.path().join("plimsoll.toml");
    std::fs::write(&file, support::fleet()).unwrap();
    let error = command(&file, &["serve", "--listen", "0.0.0.0:0"]).unwrap_err();
    assert!(
        error.contains("refusing to listen on `0.0.0.0:0`: this host has no keys"),
        "{error}"
    );
    assert!(error.contains("keys with `plimsoll keys add`"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_previews_what_each_client_of_a_tenant_would_get_and_calls_nothing_itself() {
    let folder = tempfile::tempdir().unwrap();
    let host = HostProcess::start(&config_of(folder.path(), &["acme", "globex"], 400, "", ""));
    let file = host.config();
    let admin = command(&file, &["keys", "add", "--admin", "--name", "ops"]).unwrap();
    add_key(&file, "acme", "small", &["--result-tokens", "2000"]);
    let preview = |token: String, body: Value| {
        let url = format!("{}/v1/preview", host.url);
        async move {
            let request = reqwest::Client::new().post(url).bearer_auth(token);
            let response = request.body(body.to_string()).send().await.unwrap();
            let status = response.status().as_u16();
            (status, parse(&response.text().await.unwrap()))
        }
    };
    let ask = json!({"tool": "list_rows", "arguments": {"limit": 100}, "tenant": "acme", "replies": true});
    let (status, shown) = preview(admin.clone(), ask.clone()).await;
    assert_eq!(status, 200, "{shown}");
    let clients = shown["clients"].as_array().unwrap();
    let of = |name: &str| {
        clients
            .iter()
            .find(|share| share["client"] == name)
            .unwrap()
    };
    // Every profile, and any other program.
    assert_eq!(clients.len(), plimsoll::client::profiles().len() + 1);
    assert_eq!(
        (&of("any other")["rows"], &of("any other")["decided_by"]),
        (&json!(100), &json!("page"))
    );
    for share in clients {
        let rows = share["rows"].as_u64().unwrap();
        assert_eq!(
            parse(share["body"].as_str().unwrap())["rows"]
                .as_array()
                .unwrap()
                .len() as u64,
            rows
        );
        assert_eq!(
            rows + share["rows_dropped"].as_u64().unwrap(),
            100,
            "{share}"
        );
        let sent = share["facts"].as_str().unwrap().len() + share["body"].as_str().unwrap().len();
        assert_eq!(share["bytes"], sent);
    }
    // One key and one program.
    let (_, shown) = preview(admin.clone(), json!({"tool": "list_rows", "arguments": {"limit": 100}, "tenant": "acme", "key": "small", "client": "x"})).await;
    let share = &shown["clients"][0];
    assert_eq!(
        (&share["budget_tokens"], &share["budget_source"]),
        (&json!(2_000), &json!("key"))
    );
    let (status, refusal) = preview(admin.clone(), json!({"tool": "list_rows"})).await;
    assert_eq!(
        (status, refusal["detail"].as_str().unwrap()),
        (
            400,
            "this host has tenants; say whose call this is with `tenant`, one of: acme, globex"
        )
    );
    let (status, refusal) = preview(admin.clone(), json!({"tol": "list_rows"})).await;
    assert_eq!(status, 400);
    assert!(
        refusal["detail"]
            .as_str()
            .unwrap()
            .starts_with("the body must be a JSON object with \"tool\""),
        "{refusal}"
    );
    // An admin's key is of no tenant; a tenant's key is no admin's.
    let (status, body) = call(&host.url, &admin, json!({})).await;
    assert_eq!(
        (status.as_u16(), &body["detail"]),
        (404, &json!("Unknown tool: list_rows"))
    );
    let plain = add_key(&file, "acme", "plain", &[]);
    assert_eq!(preview(plain, ask).await.0, 403);
    let error = command(&file, &["keys", "add", "acme", "--admin", "--name", "x"]).unwrap_err();
    assert!(error.contains("cannot be used with"), "{error}");
    let table = command(
        &file,
        &["preview", "list_rows", "--tenant", "acme", "--key", "small"],
    )
    .unwrap();
    assert!(table.contains("2,000 (key)"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_masked_for_a_tenant_is_masked_in_all_that_it_gets() {
    let folder = tempfile::tempdir().unwrap();
    let acme = config_of(
        folder.path(),
        &["acme"],
        40,
        "",
        "cells = { mask = [\"who\"] }",
    );
    let globex = config_of(folder.path(), &["globex"], 40, "", "");
    let globex = globex.split_once("[tenants.globex]").unwrap().1;
    let host = HostProcess::start(&format!("{acme}[tenants.globex]{globex}"));
    for (tenant, shown) in [("acme", false), ("globex", true)] {
        let key = add_key(&host.config(), tenant, "k", &[]);
        let (status, body) = call(&host.url, &key, json!({"fields": ["id", "who"]})).await;
        assert_eq!(status, 200);
        assert_eq!(body.to_string().contains(tenant), shown, "{body}");
        let (resource, link) = resource_of(&host.url, &key).await;
        let read = read_resource(&host.url, &key, &resource).await;
        assert_eq!(
            read["result"]["contents"].to_string().contains(tenant),
            shown,
            "{read}"
        );
        for form in ["json", "csv", "tsv"] {
            let rows = reqwest::get(&format!("{link}/download?format={form}"))
                .await
                .unwrap();
            assert_eq!(rows.status(), 200);
            assert_eq!(rows.text().await.unwrap().contains(tenant), shown, "{form}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_after_the_other_is_never_two_at_once_and_one_that_is_left_is_charged() {
    let config = format!(
        "{}[tenants.acme]\nplugins = [\"hostile\"]\n[tenants.acme.quotas]\nconcurrent_calls = 1\n[tenants.acme.quotas.day]\nfuel = 1000000000000000\n",
        support::hostile("deadline_ms = 60000\nfuel = 100000000000000")
    );
    let host = TestHost::start(&config).await;
    let caller = host.host().tenants().caller(Some("acme"), None).unwrap();
    for _ in 0..50 {
        let reply = host
            .host()
            .call_named(&caller, "fine", support::object(json!({})))
            .await;
        assert_eq!(reply.refusal(), None, "{}", reply.body());
    }
    host.host().ledger().flush().await;
    let store = host.host().tenants().store().clone();
    let spent = || async { store.spent("tenant/acme").await.unwrap()[1].1.fuel };
    let before = spent().await;
    // Until it has run for a while; whoever called then leaves.
    let mut call = Box::pin(
        host.host()
            .call_named(&caller, "loop", support::object(json!({}))),
    );
    for _ in 0..50 {
        let turn = tokio::time::timeout(std::time::Duration::from_millis(1), &mut call).await;
        assert!(turn.is_err(), "a loop has ended");
    }
    drop(call);
    host.host().ledger().flush().await;
    assert!(spent().await > before + 1_000_000, "{before}");
    let usage = store
        .usage(Some("acme"), 0, &[plimsoll::store::Grouping::Outcome])
        .await
        .unwrap();
    let cancelled = usage.iter().find(|row| row.group == ["cancelled"]).unwrap();
    assert!(cancelled.calls == 1 && cancelled.fuel > 1_000_000);
    let reply = host
        .host()
        .call_named(&caller, "fine", support::object(json!({})))
        .await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_shows_no_more_than_its_tenant_may_see_now() {
    let folder = tempfile::tempdir().unwrap();
    let before = config_of(folder.path(), &["acme"], 40, "", "");
    let host = HostProcess::start(&before);
    let key = add_key(&host.config(), "acme", "k", &[]);
    let cursor = cursor_of(&host.url, &key).await;
    let (resource, link) = resource_of(&host.url, &key).await;
    let shown = reqwest::get(&link).await.unwrap();
    assert_eq!(shown.status(), 200);
    // The operator masks a field while the host serves: what was kept before has it.
    host.configure(&config_of(
        folder.path(),
        &["acme"],
        40,
        "",
        "cells = { mask = [\"who\"] }",
    ));
    let began = std::time::Instant::now();
    while who(&call(&host.url, &key, json!({})).await.1) == ["acme"] {
        assert!(began.elapsed().as_secs() < 30, "the change is not seen");
    }
    for path in ["", "/table", "/download?format=json"] {
        let gone = reqwest::get(&format!("{link}{path}")).await.unwrap();
        assert_eq!(gone.status(), 410, "{path}");
        assert!(!gone.text().await.unwrap().contains("acme"), "{path}");
    }
    let (status, refusal) = call(&host.url, &key, json!({"after": cursor})).await;
    assert_eq!(
        (status.as_u16(), &refusal["error"]),
        (410, &json!("stale_cursor"))
    );
    let read = read_resource(&host.url, &key, &resource).await;
    assert!(!read.to_string().contains("acme"), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_withheld_is_not_there_to_be_tried_out() {
    let component = support::component("plugins/ledger.wasm");
    let plugin =
        format!("[plugins.ledger]\ncomponent = {component:?}\n[tenants.open]\nplugins = [\"*\"]\n");
    let open = TestHost::start(&plugin).await;
    let names = |host: &TestHost, tenant: &str| -> Vec<String> {
        let caller = host.host().tenants().caller(Some(tenant), None).unwrap();
        let catalog = host.host().catalog(&caller);
        catalog.tools().map(|tool| tool.name().to_owned()).collect()
    };
    let all = names(&open, "open");
    let caller = open.host().tenants().caller(Some("open"), None).unwrap();
    // Every collection has a key of its own; each is masked in turn.
    let getters: Vec<&String> = all.iter().filter(|name| name.starts_with("get_")).collect();
    assert!(getters.len() > 1);
    let mut config = plugin.clone();
    for getter in &getters {
        let tool = open.host().tool(&caller, getter).unwrap();
        let key = tool.policy.key().unwrap();
        config.push_str(&format!(
            "[tenants.{getter}]\nplugins = [\"*\"]\ncells = {{ mask = [{key:?}] }}\n"
        ));
    }
    let host = TestHost::start(&config).await;
    for getter in getters {
        let mut expected = all.clone();
        expected.retain(|name| name != getter);
        assert_eq!(names(&host, getter), expected);
    }
    assert_eq!(names(&host, "open"), all);
}
