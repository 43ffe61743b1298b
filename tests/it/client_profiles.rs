//! Client programs: what each takes of a result, through every door, for every field case that is about size.

use plimsoll::call::Caller;
use plimsoll::client::{Profile, profiles};
use plimsoll::examples::{self, Case};
use plimsoll::shape::{Code, MAX_REFUSAL_BYTES, Reply, Unit, tokens};
use serde_json::{Map, Value, json};

use crate::doors::{self, Stdio, modern};
use crate::support::{TestHost, component, fleet, json as parse, object, root};

/// How many pages of one answer are walked: more than any answer of the cases has for the smallest program. Longer ones,
/// those of plugins, are left there.
const MAX_PAGES: usize = 20;

fn caller(name: &str) -> Caller {
    Caller {
        client: Some(name.to_owned()),
        ..Caller::default()
    }
}

/// The size of a reply in a unit, as a client counts its text blocks and its structured content.
fn size(reply: &Reply, unit: Unit) -> u64 {
    let structured = reply.structured().ok().flatten();
    let structured = structured.map(|value| value.to_string());
    let blocks = [reply.facts(), reply.body()].into_iter();
    blocks
        .chain(structured.as_deref())
        .filter(|block| !block.is_empty())
        .map(|block| match unit {
            Unit::Bytes => block.len() as u64,
            Unit::Characters => block.encode_utf16().count() as u64,
            Unit::Lines => block.split('\n').count() as u64,
            Unit::Tokens => tokens::count(block),
        })
        .sum()
}

fn check(reply: &Reply, profile: &Profile, what: &str) {
    for unit in Unit::ALL {
        if let Some(gate) = profile.gates.of(unit) {
            let found = size(reply, unit);
            assert!(
                found < gate,
                "{what}, {}: {found} {} of {gate}",
                profile.id,
                unit.name()
            );
        }
    }
    if reply.refusal().is_some() {
        assert!(reply.body().len() < MAX_REFUSAL_BYTES);
        assert!(!reply.body().contains('\n'));
    }
}

/// The call that a reply offers.
fn next(reply: &Reply) -> Option<Map<String, Value>> {
    let head = if reply.refusal().is_some() {
        reply.body()
    } else {
        reply.facts()
    };
    parse(head).get("next").cloned().map(object)
}

/// Makes every call of a case as this program, and follows each to its end. How many replies there were, and how many of
/// them a gate decided.
async fn walk(host: &TestHost, case: &Case, profile: &Profile, what: &str) -> (usize, usize) {
    let caller = caller(&profile.names[0]);
    let (mut replies, mut gated) = (0, 0);
    let calls = std::iter::once(&case.arguments).chain(&case.then);
    for call in calls.filter(|call| *call != "next") {
        let mut arguments = Some(object(parse(call)));
        let (mut pages, mut matched, mut delivered, mut is_whole) = (0, None, 0, true);
        while let Some(now) = arguments.take() {
            let is_page = now.contains_key("after");
            let reply = host.host().call_named(&caller, &case.tool, now).await;
            check(&reply, profile, what);
            replies += 1;
            pages += 1;
            gated += usize::from(reply.gate().is_some());
            if let Some(receipt) = reply.receipt() {
                if let (Some(total), Some(after)) = (receipt.total, receipt.after) {
                    let sum = receipt.returned
                        + receipt.hidden
                        + receipt.filtered
                        + receipt.before
                        + after;
                    assert_eq!(total, sum, "{what}, {}", profile.id);
                    if receipt.before == 0 {
                        (matched, delivered) = (Some(receipt.returned + after), 0);
                    }
                    delivered += receipt.returned;
                }
            } else {
                let refusal = parse(reply.body());
                let is_too_large = reply.refusal() == Some(Code::ResponseTooLarge);
                gated += usize::from(!refusal["payload"]["gate"].is_null());
                is_whole = false;
                // What a refusal for size offers is taken, and must lead somewhere.
                if is_too_large && let Some(offered) = next(&reply) {
                    let reply = host.host().call_named(&caller, &case.tool, offered).await;
                    assert_eq!(
                        reply.refusal(),
                        None,
                        "{what}, {}: {}",
                        profile.id,
                        reply.body()
                    );
                    check(&reply, profile, what);
                }
                break;
            }
            arguments = next(&reply).filter(|_| pages < MAX_PAGES);
            is_whole &= arguments.is_some() == reply.next_after().is_some();
            // A call that begins in the middle has not seen what is before.
            is_whole &= pages > 1 || !is_page;
        }
        if let Some(matched) = matched.filter(|_| is_whole && pages > 1) {
            assert_eq!(delivered, matched, "{what}, {}: rows are lost", profile.id);
        }
    }
    (replies, gated)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reply_to_a_field_case_reaches_a_gate_of_any_client() {
    let mut classes = std::collections::BTreeMap::new();
    for folder in examples::folders(&root().join("tests/cases")).unwrap() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let class = name.chars().next().unwrap();
        let is_numbered = name[1..].starts_with(|next: char| next.is_ascii_digit());
        if !is_numbered || !('a'..='d').contains(&class) {
            continue;
        }
        let case = Case::read(&folder).unwrap();
        let config = format!(
            "[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = {folder:?}, guest = \"/case\" }}]\n{}",
            component("guests/canned.wasm"),
            case.config
        );
        let host = TestHost::start(&config).await;
        for profile in profiles() {
            let (replies, gated) = walk(&host, &case, profile, &name).await;
            let counts = classes.entry(class).or_insert((0, 0));
            *counts = (counts.0 + replies, counts.1 + gated);
        }
    }
    assert_eq!(classes.keys().collect::<String>(), "abcd");
    // The cases are large enough to try the gates: in every class but the last, which is about order.
    for (class, (replies, gated)) in classes {
        assert!(replies >= profiles().len(), "{class}");
        assert!(gated > 0 || class == 'd', "{class}: {gated} of {replies}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reply_to_an_example_of_a_plugin_reaches_a_gate_of_any_client() {
    for (plugin, data) in [
        ("documents", Some("examples/data")),
        ("fleet", Some("data")),
        ("ledger", None),
        ("orders", None),
    ] {
        let folder = root().join("plugins").join(plugin);
        let files = data.map(|data| {
            format!(
                "files = [{{ host = {:?}, guest = \"/data\" }}]\n",
                folder.join(data)
            )
        });
        let config = format!(
            "[plugins.{plugin}]\ncomponent = {:?}\n{}",
            component(&format!("plugins/{plugin}.wasm")),
            files.unwrap_or_default()
        );
        let host = TestHost::start(&config).await;
        for folder in examples::folders(&folder.join("examples")).unwrap() {
            let case = Case::read(&folder).unwrap();
            let what = format!("{plugin}/{}", folder.file_name().unwrap().to_string_lossy());
            preview(&host, &case, &what).await;
        }
    }
}

/// Makes the calls of a case once for all programs, and checks what each gets.
async fn preview(host: &TestHost, case: &Case, what: &str) {
    let callers: Vec<Caller> = profiles()
        .iter()
        .map(|profile| caller(&profile.names[0]))
        .collect();
    let tool = host.host().tool(&callers[0], &case.tool).unwrap();
    let mut arguments = object(parse(&case.arguments));
    for call in std::iter::once("").chain(case.then.iter().map(String::as_str)) {
        if !call.is_empty() && call != "next" {
            arguments = object(parse(call));
        }
        let replies = host
            .host()
            .preview(&callers, &tool, arguments.clone())
            .await;
        assert_eq!(replies.len(), profiles().len());
        for (profile, reply) in profiles().iter().zip(&replies) {
            check(reply, profile, what);
        }
        // The first program that was given a page goes on with it, for all of them.
        match replies.iter().find_map(next) {
            Some(next) => arguments = next,
            None => return,
        }
    }
}

/// The arguments of a call whose answer is too large for most programs: a summary of every stream.
fn everything() -> Value {
    json!({"horizon": "all", "limit": 68})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_api_knows_programs_by_their_user_agent() {
    let host = TestHost::start(&fleet()).await;
    let served = host.serve().await;
    let call = async |agent: &str, arguments: Value| {
        let response = reqwest::Client::new()
            .post(format!("{}/v1/tools/fleet_show", served.url))
            .header("user-agent", agent)
            .body(arguments.to_string())
            .send()
            .await
            .unwrap();
        let receipt = response.headers()["plimsoll-receipt"]
            .to_str()
            .unwrap()
            .to_owned();
        (parse(&receipt), response.text().await.unwrap())
    };
    let (receipt, body) = call("opencode/1.18.33", everything()).await;
    assert_eq!(receipt["budget_source"], "client_default");
    assert_eq!(receipt["budget_tokens"], 8_000);
    assert!(receipt["budget_rows_dropped"].as_u64().unwrap() > 0);
    let (receipt, _) = call(
        "opencode/1.18.33",
        json!({"horizon": "all", "detail": "full", "max_tokens": 90_000}),
    )
    .await;
    assert_eq!(
        receipt["gate"],
        json!({"client": "opencode", "unit": "bytes", "limit": 51_200})
    );
    let (receipt, whole) = call("curl/8.1", everything()).await;
    assert_eq!(receipt["budget_source"], "none");
    assert!(receipt.get("gate").is_none());
    assert!(body.len() < whole.len());
}

#[test]
fn mcp_knows_programs_by_their_client_info_and_lists_the_same_for_all() {
    let folder = doors::folder(&fleet());
    let mut client = Stdio::start(&folder);
    let meta = |name: &str| {
        let mut meta = modern();
        meta["io.modelcontextprotocol/clientInfo"]["name"] = name.into();
        meta
    };
    let mut id = 0;
    let mut ask = |method: &str, params: Value| {
        id += 1;
        client.ask(id, method, params)["result"].clone()
    };
    let mut receipt = |name: &str| {
        let params = json!({"name": "fleet_show", "arguments": everything(), "_meta": meta(name)});
        let result = ask("tools/call", params);
        let blocks = result["content"].as_array().unwrap().clone();
        let bytes: usize = blocks
            .iter()
            // The link to the complete result is no text, and counts as it stands.
            .map(|block| {
                block["text"]
                    .as_str()
                    .map_or(block.to_string().len(), str::len)
            })
            .sum();
        (result["_meta"]["dev.plimsoll/receipt"].clone(), bytes)
    };
    let (found, bytes) = receipt("Visual Studio Code - Insiders");
    assert_eq!(
        found["gate"],
        json!({"client": "VS Code", "unit": "bytes", "limit": 8_192})
    );
    assert!(bytes < 8_192);
    let (found, bytes) = receipt("nobody");
    assert_eq!(found["budget_source"], "none");
    assert!(
        found.get("gate").is_none() && bytes > 20_000,
        "{bytes} {found}"
    );
    let listed = ["claude-code", "cline", "nobody"]
        .map(|name| ask("tools/list", json!({"_meta": meta(name)}))["tools"].clone());
    assert!(listed.iter().all(|tools| *tools == listed[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_leaves_its_name_out_of_mcp_is_known_by_its_user_agent() {
    let host = TestHost::start(&fleet()).await;
    let served = host.serve().await;
    let mut meta = modern();
    meta.as_object_mut()
        .unwrap()
        .remove("io.modelcontextprotocol/clientInfo")
        .unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "fleet_show", "arguments": everything(), "_meta": meta}});
    let response = reqwest::Client::new()
        .post(format!("{}/mcp", served.url))
        .header("user-agent", "codex-mcp-client/0.171.0")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "fleet_show")
        .body(call.to_string())
        .send()
        .await
        .unwrap();
    let text = response.text().await.unwrap();
    assert!(
        text.contains("Codex cuts results of 10000 bytes or more"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_turns_the_table_off() {
    let host = TestHost::start(&("client_profiles = false\n".to_owned() + &fleet())).await;
    let reply = host
        .host()
        .call_named(&caller("cline"), "fleet_show", object(everything()))
        .await;
    let receipt = reply.receipt_json();
    assert_eq!(receipt["budget_source"], "none");
    assert!(receipt.get("gate").is_none());
    assert_eq!(receipt["returned"], 68);
}

#[test]
fn preview_shows_what_each_program_would_get_of_one_call() {
    let folder = doors::folder(&fleet());
    let arguments = everything().to_string();
    let (code, out, error) = doors::run(&folder, &["preview", "fleet_show", "--args", &arguments]);
    assert_eq!(code, 0, "{error}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), profiles().len() + 2, "{out}");
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "client rows left out bytes tokens budget decided by"
    );
    let line = |name: &str| {
        let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>()
    };
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    let vscode = line("vscode ");
    assert_eq!(
        vscode[5..],
        ["8,000", "(client_default)", "gate:", "8,192", "bytes"]
    );
    assert!(number(vscode[3]) < 8_192 && number(vscode[1]) + number(vscode[2]) == 68);
    let goose = line("goose ");
    assert_eq!(
        goose[5..],
        ["8,000", "(client_default)", "budget:", "client_default"]
    );
    assert!(number(goose[4]) <= 8_000);
    assert_eq!(line("any other")[2..4], ["68", "0"]);
    assert_eq!(line("any other")[6..], ["none", "page"]);
    // What is shown is what the program gets.
    let call = |extra: &[&str]| {
        let arguments = [&["preview", "fleet_show", "--args", &arguments], extra].concat();
        doors::run(&folder, &arguments)
    };
    let (code, out, _) = call(&["--client", "Visual Studio Code"]);
    assert_eq!(code, 0);
    let (table, reply) = out.split_once("\n--- Visual Studio Code\n").unwrap();
    assert_eq!(table.lines().count(), 2);
    let (facts, body) = reply.split_once('\n').unwrap();
    let body = body.strip_suffix('\n').unwrap();
    assert_eq!((facts.len() + body.len()) as u64, number(vscode[3]));
    assert_eq!(
        parse(body)["streams"].as_array().unwrap().len() as u64,
        number(vscode[1])
    );
    let (_, out, _) = call(&["--replies"]);
    assert_eq!(out.matches("\n--- ").count(), profiles().len() + 1);
    assert!(out.contains(facts));
    // Programs that nothing is known of, a tool that does not exist, a call that is refused, the table switched off.
    let (_, out, _) = call(&["--client", "something"]);
    let unknown: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        (unknown[1], &unknown[5..]),
        ("68", &["none", "page"][..]),
        "{out}"
    );
    let (code, _, error) = doors::run(&folder, &["preview", "nothing"]);
    assert_eq!(
        (code, parse(&error)["error"].as_str()),
        (1, Some("not_found"))
    );
    let (code, out, _) = doors::run(
        &folder,
        &["preview", "fleet_show", "--args", r#"{"limit":0}"#],
    );
    assert_eq!(code, 1);
    assert!(
        out.lines()
            .skip(1)
            .all(|line| line.contains("refused") && line.ends_with("invalid_arguments")),
        "{out}"
    );
    let off = doors::folder(&("client_profiles = false\n".to_owned() + &fleet()));
    let (_, out, error) = doors::run(&off, &["preview", "fleet_show"]);
    assert_eq!(out.lines().count(), 2);
    assert!(
        error.contains(
            "hint: `client_profiles` is false, so that every client program gets the same"
        ),
        "{error}"
    );
}

/// What an operator takes out of cells, from the config file to every door.
#[tokio::test(flavor = "multi_thread")]
async fn cells_are_changed_as_the_config_says() {
    let cells = "[plugins.fleet.tools.fleet_show.cells]\ndrop = [\"last_gate\"]\nmask = [\"owner\"]\nmax_cell_chars = 20\n";
    let host = TestHost::start(&(fleet() + cells)).await;
    let reply = host
        .call("fleet_show", json!({"detail": "full", "limit": 3}))
        .await;
    let body = parse(reply.body());
    for stream in body["streams"].as_array().unwrap() {
        assert_eq!(stream["owner"], "[masked]");
        assert!(stream.get("last_gate").is_none());
    }
    let cells = &reply.receipt_json()["cells"];
    assert_eq!(cells["dropped"]["columns"], json!(["last_gate"]));
    assert_eq!(cells["masked"]["columns"], json!(["owner"]));
    assert!(cells["shortened"]["cells"].as_u64().unwrap() > 0, "{cells}");
    assert!(
        reply
            .facts()
            .contains("Values of this answer were changed as its operator wants it: ")
    );
    let other = host.call("wave_show", json!({})).await;
    assert!(other.receipt_json().get("cells").is_none());
    let refused = host.call("fleet_show", json!({"owner": ["jun"]})).await;
    assert_eq!(
        refused.refusal(),
        Some(Code::InvalidArguments),
        "{}",
        refused.body()
    );
}

#[test]
fn check_says_what_is_taken_out_of_cells() {
    let cells = "[plugins.fleet.tools.fleet_show.cells]\ndrop = [\"note\"]\nreplace_data = true\n";
    let folder = doors::folder(&(fleet() + cells));
    let (code, out, error) = doors::run(&folder, &["check"]);
    assert_eq!(code, 0, "{error}");
    let shown = |line: &str| {
        out.lines()
            .filter(|found| found.split_whitespace().collect::<Vec<_>>().join(" ") == line)
            .count()
    };
    assert_eq!(
        shown(
            "cells = drop note; replace data over 256 characters # plugins.fleet.tools.fleet_show"
        ),
        1,
        "{out}"
    );
    assert_eq!(shown("cells = as they are # plugin"), 2, "{out}");
    assert_eq!(shown("client_profiles = true # default"), 1, "{out}");
}
