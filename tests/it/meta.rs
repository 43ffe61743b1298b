//! The surface of three tools: what it lists at every door, that each next call succeeds on it, and the thousand operations of
//! GitHub's document behind it.

use std::sync::Arc;

use plimsoll::call::Caller;
use plimsoll::catalog::{Catalog, HOST};
use plimsoll::shape::{Code, Reply};
use serde_json::{Map, Value, json};

use crate::doors::{Stdio, folder, modern, run};
use crate::openapi::{GITHUB, over};
use crate::support::{HostProcess, TestHost, component, fleet, hostile, json as parse, object};

const LISTED: [&str; 3] = ["search_tools", "load_tool", "invoke_tool"];

fn meta(config: &str) -> String {
    format!("surface = \"meta\"\n{config}")
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// The arguments of a call through `invoke_tool`.
fn invoke(name: &str, arguments: &Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

fn answered(reply: &Reply) -> (Value, Value) {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    (parse(reply.facts()), parse(reply.body()))
}

fn refused(reply: &Reply, code: Code) -> Value {
    assert_eq!(reply.refusal(), Some(code), "{}", reply.body());
    parse(reply.body())
}

#[test]
fn three_tools_are_listed_in_both_eras_and_every_tool_is_called_through_them() {
    let folder = folder(&meta(&fleet()));
    let mut client = Stdio::start(&folder);
    let listed = client.ask(1, "tools/list", json!({"_meta": modern()}));
    assert_eq!(names(&listed["result"]["tools"]), LISTED);
    let calls = [
        ("search_tools", json!({"query": "work streams"})),
        ("load_tool", json!({"name": "fleet_show"})),
        ("invoke_tool", invoke("fleet_show", &json!({"limit": 2}))),
    ];
    for (id, (name, arguments)) in (2..).zip(&calls) {
        let params = json!({"name": name, "arguments": arguments, "_meta": modern()});
        let called = client.ask(id, "tools/call", params);
        assert_eq!(called["result"]["isError"], false, "{called}");
    }
    drop(client);
    let mut client = Stdio::start(&folder);
    let begun = client.ask(
        1,
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
    );
    assert!(begun.get("result").is_some(), "{begun}");
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let listed = client.ask(2, "tools/list", json!({}));
    assert_eq!(names(&listed["result"]["tools"]), LISTED);
    for (id, (name, arguments)) in (3..).zip(&calls) {
        let called = client.ask(
            id,
            "tools/call",
            json!({"name": name, "arguments": arguments}),
        );
        assert_eq!(called["result"]["isError"], false, "{called}");
    }
    // Only the listing is short: a tool is there under its own name.
    let params = json!({"name": "fleet_show", "arguments": {"limit": 1}});
    let direct = client.ask(9, "tools/call", params);
    assert_eq!(direct["result"]["isError"], false, "{direct}");
}

#[test]
fn the_command_calls_and_previews_and_check_says_what_the_listing_costs() {
    let folder = folder(&meta(&fleet()));
    let arguments = invoke("fleet_show", &json!({"limit": 2})).to_string();
    let (code, body, facts) = run(&folder, &["call", "invoke_tool", "--args", &arguments]);
    assert_eq!(code, 0, "{facts}");
    assert_eq!(parse(&body)["streams"].as_array().unwrap().len(), 2);
    let (code, table, _) = run(&folder, &["preview", "invoke_tool", "--args", &arguments]);
    assert_eq!(code, 0, "{table}");
    assert!(table.lines().count() > 10, "{table}");
    let (code, direct, _) = run(&folder, &["call", "fleet_show", "--args", r#"{"limit":2}"#]);
    assert_eq!((code, direct), (0, body));
    let (code, text, _) = run(&folder, &["check"]);
    assert_eq!(code, 0, "{text}");
    let line = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {text}")).to_owned()
    };
    assert!(line("surface = meta").ends_with("# plimsoll.toml"));
    assert!(line("tools = 3 ").ends_with("# measured"));
    assert!(line("listed_tools = 3 ").ends_with("# measured"));
    assert!(!text.contains("# warning"), "{text}");
    let file = component("plugins/fleet.wasm");
    let (code, text, _) = run(&folder, &["inspect", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("\nwarnings: nothing\n"), "{text}");
}

/// A plugin that lists so many tools.
fn many(how: &str) -> String {
    format!(
        "{}[plugins.hostile.config]\nlist_tools = {how:?}\n",
        hostile("")
    )
}

#[test]
fn a_listing_that_is_too_long_is_warned_of_by_check_inspect_and_the_log() {
    let warning = "2000 tools are listed, and several client programs take at most 128; surface = \"meta\" lists 3 that find, \
                   describe and call the others";
    let folder = folder(&many("tools_2000"));
    let (code, text, error) = run(&folder, &["check"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.contains(&format!("\n# warning: {warning}\n")),
        "{text}"
    );
    let file = component("guests/hostile.wasm");
    let inspect = ["inspect", file.to_str().unwrap(), "--plugin", "hostile"];
    let (code, text, error) = run(&folder, &inspect);
    assert_eq!(code, 0, "{error}");
    assert!(
        text.contains(&format!("\nwarnings:\n  {warning}\n")),
        "{text}"
    );
    // It is said again when the listing has changed.
    let host = HostProcess::start(&fleet());
    host.configure(&many("tools_2000"));
    let mut lines = host.log.iter();
    let cost = lines.find(|line| line.contains("listing 2000 tools costs "));
    assert!(cost.is_some());
    let warned = lines.find(|line| line.contains(warning));
    assert!(warned.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_doors_list_three_tools_and_a_link_to_the_next_page_can_be_followed() {
    let host = TestHost::start(&meta(&fleet())).await;
    let served = host.serve().await;
    let client = reqwest::Client::new();
    let get = async |path: &str| {
        let response = client.get(format!("{}{path}", served.url)).send().await;
        parse(&response.unwrap().text().await.unwrap())
    };
    assert_eq!(names(&get("/v1/tools").await["tools"]), LISTED);
    let document = get("/openapi.json").await;
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    for name in LISTED {
        assert!(paths.contains(&&format!("/v1/tools/{name}")), "{paths:?}");
    }
    assert!(!paths.contains(&&String::from("/v1/tools/fleet_show")));
    let alone = get("/openapi.json?tool=fleet_show").await;
    assert!(alone["paths"].get("/v1/tools/fleet_show").is_some());
    // The same POST to the target of the link gets the next page, for as long as there is one.
    let mut target = String::from("/v1/tools/invoke_tool");
    let mut seen = Vec::new();
    loop {
        let post = client.post(format!("{}{target}", served.url));
        let body = invoke("fleet_show", &json!({"horizon": "all"})).to_string();
        let response = post.body(body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let links: Vec<String> = response
            .headers()
            .get_all("link")
            .iter()
            .map(|link| link.to_str().unwrap().to_owned())
            .collect();
        let page = parse(&response.text().await.unwrap());
        let rows = page["streams"].as_array().unwrap().iter();
        seen.extend(rows.map(|row| row["id"].as_str().unwrap().to_owned()));
        let next = links.iter().find(|link| link.ends_with("rel=\"next\""));
        let Some(next) = next else { break };
        target = next.split(['<', '>']).nth(1).unwrap().to_owned();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 68);
    let table = client
        .post(format!("{}/v1/tools/invoke_tool", served.url))
        .header("accept", "text/csv")
        .body(invoke("fleet_show", &json!({})).to_string());
    let table = table.send().await.unwrap();
    assert_eq!(table.headers()["content-type"], "text/csv; charset=utf-8");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_next_call_of_facts_and_refusals_succeeds_through_invoke_tool() {
    let host = TestHost::start(&meta(&fleet())).await;
    let mut call = invoke(
        "fleet_show",
        &json!({"horizon": "all", "detail": "summary"}),
    );
    let mut rows = 0;
    loop {
        let (facts, body) = answered(&host.call("invoke_tool", call).await);
        rows += body["streams"].as_array().unwrap().len();
        let Some(next) = facts.get("next") else { break };
        assert_eq!(next["name"], "fleet_show");
        assert_eq!(
            next["arguments"],
            json!({"after": facts["next_after"]}),
            "{facts}"
        );
        call = next.clone();
    }
    assert_eq!(rows, 68);
    // Too large: the next call is smaller and fits.
    let large = invoke(
        "fleet_show",
        &json!({"horizon": "all", "detail": "full", "limit": 68}),
    );
    let refusal = refused(
        &host.call("invoke_tool", large).await,
        Code::ResponseTooLarge,
    );
    let next = &refusal["next"];
    assert_eq!(next["name"], "fleet_show", "{refusal}");
    assert!(
        next["arguments"]["limit"].as_u64().unwrap() >= 25,
        "{refusal}"
    );
    answered(&host.call("invoke_tool", next.clone()).await);
    // Called by its own name it is the tool's own call.
    let (facts, _) = answered(&host.call("fleet_show", json!({})).await);
    assert!(facts["next"].get("name").is_none(), "{facts}");
    answered(&host.call("fleet_show", facts["next"].clone()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_calls_are_refused_with_the_arguments_names_and_places_that_there_are() {
    let host = TestHost::start(&meta(&fleet())).await;
    let wrong = invoke("fleet_show", &json!({"limt": 3}));
    let refusal = refused(
        &host.call("invoke_tool", wrong).await,
        Code::InvalidArguments,
    );
    let message = refusal["message"].as_str().unwrap();
    assert!(
        message.starts_with("unknown argument limt; valid arguments: ")
            && message.contains("horizon"),
        "{message}"
    );
    let refusal = refused(
        &host.call("invoke_tool", json!({})).await,
        Code::InvalidArguments,
    );
    assert_eq!(
        refusal["message"],
        "name is required (string), and was not passed"
    );
    for tool in ["invoke_tool", "load_tool"] {
        let unknown = host.call(tool, json!({"name": "show_fleet"})).await;
        assert_eq!(
            refused(&unknown, Code::NotFound)["message"],
            "There is no tool show_fleet. The nearest are fleet_show, wave_show."
        );
        let unlike = host.call(tool, json!({"name": "xyz"})).await;
        assert_eq!(
            refused(&unlike, Code::NotFound)["message"],
            "There is no tool xyz. None of the 3 tools has a name like it; search_tools finds them by what they do."
        );
        let own = host.call(tool, json!({"name": "search_tools"})).await;
        assert_eq!(
            refused(&own, Code::InvalidArguments)["message"],
            "search_tools is listed itself, and is called by its own name."
        );
    }
    let nowhere = json!({"name": "fleet_show", "pointer": "/inputSchema/properties/horizons/enum"});
    let refusal = refused(
        &host.call("load_tool", nowhere).await,
        Code::InvalidArguments,
    );
    let message = refusal["message"].as_str().unwrap();
    assert!(
        message.starts_with("pointer leads nowhere; the longest part of it that leads somewhere is \"/inputSchema/properties\", and below it there are ")
            && message.contains("horizon"),
        "{message}"
    );
    let (_, part) = answered(&host.call("load_tool", refusal["next"].clone()).await);
    assert!(part.get("horizon").is_some(), "{part}");
    let (facts, found) = answered(&host.call("search_tools", json!({"query": "zebra"})).await);
    assert_eq!(found, json!([]));
    assert_eq!(
        facts["notices"],
        json!([
            "No tool matches. There are 3 tools: search for other words, or leave query out to get all of them in order."
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_has_the_tool_that_was_called_and_the_host_for_its_own() {
    let folder = folder(&meta(&fleet()));
    let arguments = invoke("fleet_show", &json!({"limit": 1})).to_string();
    run(&folder, &["call", "invoke_tool", "--args", &arguments]);
    run(&folder, &["call", "search_tools"]);
    run(&folder, &["call", "invoke_tool"]);
    let (code, usage, error) = run(
        &folder,
        &["usage", "--by", "plugin,tool,outcome", "--format", "csv"],
    );
    assert_eq!(code, 0, "{error}");
    let calls: Vec<String> = usage
        .lines()
        .skip(1)
        .map(|line| line.split(',').take(4).collect::<Vec<_>>().join(","))
        .collect();
    assert_eq!(
        calls,
        [
            format!("{HOST},invoke_tool,invalid_arguments,1"),
            format!("{HOST},search_tools,answered,1"),
            String::from("fleet,fleet_show,answered,1"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_a_surface_of_its_own_or_that_of_the_host() {
    let config = format!(
        "{}[tenants.few]\nplugins = [\"*\"]\nsurface = \"tools\"\n[tenants.many]\nplugins = [\"*\"]\n",
        meta(&fleet())
    );
    let host = TestHost::start(&config).await;
    let listed = |tenant: &str| -> Vec<String> {
        let catalog = host.host().catalog(&Caller {
            tenant: tenant.to_owned(),
            ..Caller::default()
        });
        catalog
            .listed()
            .map(|tool| tool.name().to_owned())
            .collect()
    };
    assert_eq!(listed("few"), ["fleet_show", "wave_show", "stream_detail"]);
    assert_eq!(listed("many"), LISTED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surface_that_does_not_exist_and_a_name_that_is_taken_stop_the_start() {
    let error = async |config: &str| {
        let folder = tempfile::tempdir().unwrap();
        let Err(error) = TestHost::start_in(folder, config).await else {
            panic!("it started: {config}");
        };
        format!("{error:#}")
    };
    let unknown = error(&format!("surface = \"all\"\n{}", fleet())).await;
    assert!(
        unknown.contains("unknown variant `all`, expected `tools` or `meta`"),
        "{unknown}"
    );
    let case = tempfile::tempdir().unwrap();
    let tool = json!([{"name": "load_tool", "description": "Taken.", "answer": "answer.json"}]);
    std::fs::write(case.path().join("tool.json"), tool.to_string()).unwrap();
    std::fs::write(case.path().join("answer.json"), "{}").unwrap();
    let config = format!(
        "[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/case\" }}]\n",
        component("guests/canned.wasm"),
        case.path()
    );
    TestHost::start(&config).await;
    assert_eq!(
        error(&meta(&config)).await,
        "tool `load_tool` is published by plugin `canned` and by the host: it has to have another name where `surface` is \"meta\""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_surface_that_changes_is_a_listing_that_changes() {
    let host = TestHost::start(&fleet()).await;
    let mut changes = host.host().changes();
    assert_eq!(catalog(&host).listed().len(), 3);
    let file = host.folder().join("plimsoll.toml");
    std::fs::write(file, meta(&fleet())).unwrap();
    host.app.reload().await.unwrap();
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    let listed = catalog(&host);
    let listed: Vec<&str> = listed.listed().map(|tool| tool.name()).collect();
    assert_eq!(listed, LISTED);
    host.app.reload().await.unwrap();
    assert!(!changes.has_changed().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_schema_is_shown_behind_the_arguments_and_an_invoked_answer_has_no_structured_copy()
 {
    let case = tempfile::tempdir().unwrap();
    let fields: Map<String, Value> = (0..40)
        .map(|n| {
            (
                format!("field_{n}"),
                json!({"type": "string", "description": "What it is. ".repeat(12)}),
            )
        })
        .collect();
    let tool = json!([{
        "name": "typed", "description": "Typed.", "answer": "answer.json", "shape": {"rows": {"pointer": "/items"}},
        "output_schema": {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object", "properties": fields}}}},
    }]);
    std::fs::write(case.path().join("tool.json"), tool.to_string()).unwrap();
    std::fs::write(
        case.path().join("answer.json"),
        r#"{"items":[{"field_1":"a"}]}"#,
    )
    .unwrap();
    let config = format!(
        "[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/case\" }}]\n",
        component("guests/canned.wasm"),
        case.path()
    );
    let host = TestHost::start(&meta(&config)).await;
    let rows = "/outputSchema/properties/body/properties/items/items";
    let (_, whole) = answered(&host.call("load_tool", json!({"name": "typed"})).await);
    assert_eq!(
        whole.pointer(&format!("{rows}/properties/field_39/type")),
        Some(&json!("string"))
    );
    let small = json!({"name": "typed", "max_tokens": 2_000});
    let (facts, small) = answered(&host.call("load_tool", small).await);
    assert!(facts["approx_tokens"].as_u64().unwrap() <= 2_000, "{facts}");
    assert_eq!(
        facts["notices"],
        json!([
            "What lies too deep, or does not fit into 2000 tokens, is left out in 1 places; what stands there names the call that loads it."
        ])
    );
    // All of the arguments are there, and of the output as many levels as fit.
    assert_eq!(small["inputSchema"], whole["inputSchema"]);
    let mut calls = Vec::new();
    left_out(&small, &mut calls);
    assert_eq!(calls, [json!({"name": "typed", "pointer": rows})]);
    let mut call = calls.remove(0);
    call["max_tokens"] = json!(5_000);
    let (_, part) = answered(&host.call("load_tool", call).await);
    assert_eq!(Some(&part), whole.pointer(rows));
    let direct = host.call("typed", json!({})).await;
    assert!(direct.structured().unwrap().is_some());
    let invoked = host.call("invoke_tool", json!({"name": "typed"})).await;
    assert_eq!(invoked.structured().unwrap(), None);
    assert_eq!(invoked.body(), direct.body());
}

/// The host over all operations of GitHub's document.
async fn github() -> TestHost {
    let (folder, file) = GITHUB;
    let values = "writes = \"true\"\nbase_url = \"https://api.test\"";
    TestHost::start(&meta(&over(folder, file, values))).await
}

fn catalog(host: &TestHost) -> Arc<Catalog> {
    host.host().catalog(&Caller::default())
}

/// Every comment of an outline that names a call which loads what is left out.
fn left_out(shown: &Value, calls: &mut Vec<Value>) {
    match shown {
        Value::Object(members) => {
            if let Some(Value::String(comment)) = members.get("$comment") {
                let parts = comment
                    .split("; ")
                    .filter_map(|part| part.split_once("load_tool "));
                calls.extend(parts.map(|(_, call)| parse(call)));
            }
            members.values().for_each(|below| left_out(below, calls));
        }
        Value::Array(items) => items.iter().for_each(|below| left_out(below, calls)),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_operations_are_found_and_loaded_within_every_budget() {
    let host = github().await;
    let catalog = catalog(&host);
    let cost = catalog.cost();
    println!(
        "{} tools of {} tokens; listed: {} of {} tokens",
        cost.tools, cost.tool_tokens, cost.listed, cost.listed_tokens
    );
    assert!(cost.tools > 1_000, "{}", cost.tools);
    assert_eq!(cost.listed, 3);
    assert!(cost.listed_tokens < 1_500, "{}", cost.listed_tokens);
    assert!(cost.tool_tokens > 100 * cost.listed_tokens);
    assert_eq!(cost.warnings, [""; 0]);
    let bytes: usize = catalog
        .tools()
        .map(|tool| tool.listed.to_string().len())
        .sum();
    println!("{bytes} bytes");
    // Every published schema is valid.
    for tool in catalog.tools() {
        let schema = &tool.listed["inputSchema"];
        assert!(
            jsonschema::draft202012::meta::is_valid(schema),
            "{}",
            tool.name()
        );
    }
    for (query, wanted) in [
        ("list issues of a repository", "issues_list-for-repo"),
        ("create a pull request", "pulls_create"),
        ("merge pull request", "pulls_merge"),
        (
            "star a repository",
            "activity_star-repo-for-authenticated-user",
        ),
    ] {
        let (facts, found) = answered(&host.call("search_tools", json!({"query": query})).await);
        assert!(
            names(&found).contains(&wanted),
            "{query}: {:?}",
            names(&found)
        );
        assert_eq!((&facts["returned"], names(&found).len()), (&json!(10), 10));
        let (_, next) = answered(&host.call("search_tools", facts["next"].clone()).await);
        assert!(!names(&next).contains(&names(&found)[0]), "{query}");
    }
    let limit = json!({"limit": 101});
    assert_eq!(
        refused(
            &host.call("search_tools", limit).await,
            Code::InvalidArguments
        )["message"],
        "limit must be an integer between 1 and 100"
    );
    let query = |length: usize| json!({"query": "x".repeat(length)});
    answered(&host.call("search_tools", query(1_000)).await);
    refused(
        &host.call("search_tools", query(1_001)).await,
        Code::InvalidArguments,
    );
    let near = host.call("load_tool", json!({"name": "issue_list-for-repo"}));
    let near = refused(&near.await, Code::NotFound)["message"].clone();
    let near = near.as_str().unwrap().split_once("nearest are ").unwrap().1;
    assert!(near.starts_with("issues_list-for-repo, "), "{near}");
    assert_eq!(near.split(", ").count(), 3, "{near}");
    // Without words: all of them, in order, once each.
    let (mut all, mut longest) = (Vec::new(), None);
    let mut call = json!({"limit": 100});
    loop {
        let (facts, found) = answered(&host.call("search_tools", call).await);
        all.extend(names(&found).into_iter().map(str::to_owned));
        let lines = found.as_array().unwrap().iter();
        let lines = lines.map(|row| row["description"].as_str().unwrap().chars().count());
        longest = longest.max(lines.max());
        assert_eq!(facts["total_count"], cost.tools);
        let Some(next) = facts.get("next") else { break };
        call = next.clone();
        call["limit"] = json!(100);
    }
    let expected: Vec<&str> = catalog.tools().map(|tool| tool.name()).collect();
    assert_eq!(all, expected);
    // A line of 160 characters, and the mark that it was cut.
    assert_eq!(longest, Some(161));
    // The tools that cost the most, for readers that take little.
    let mut tools: Vec<_> = catalog.tools().collect();
    tools.sort_by_key(|tool| std::cmp::Reverse(tool.listing_tokens()));
    println!(
        "the largest: {} of {} tokens",
        tools[0].name(),
        tools[0].listing_tokens()
    );
    for tool in &tools[..5] {
        for (max_tokens, budget) in [(None, 5_000), (Some(2_000), 2_000), (Some(20_000), 20_000)] {
            let mut call = json!({"name": tool.name()});
            if let Some(max_tokens) = max_tokens {
                call["max_tokens"] = json!(max_tokens);
            }
            let (facts, shown) = answered(&host.call("load_tool", call).await);
            assert!(
                facts["approx_tokens"].as_u64().unwrap() <= budget,
                "{facts}"
            );
            assert_eq!(shown["name"], tool.name());
            assert!(jsonschema::draft202012::meta::is_valid(
                &shown["inputSchema"]
            ));
            let mut calls = Vec::new();
            left_out(&shown, &mut calls);
            assert_eq!(
                !calls.is_empty(),
                facts["notices"].to_string().contains("left out"),
                "{facts}"
            );
            for call in calls {
                answered(&host.call("load_tool", call).await);
            }
        }
        let caller = Caller {
            client: Some("visual-studio-code".into()),
            ..Caller::default()
        };
        let arguments = object(json!({"name": tool.name()}));
        let reply = host.host().call_named(&caller, "load_tool", arguments);
        let reply = reply.await;
        answered(&reply);
        assert!(reply.bytes() < 8_192, "{}", reply.bytes());
    }
}
