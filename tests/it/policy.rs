//! What an operator decides for tools by name, glob and tag reaches their calls, and `check` says which rule decided.

use plimsoll::call::Caller;
use plimsoll::shape::Code;
use serde_json::{Value, json};

use crate::doors;
use crate::support::{TestHost, component, fleet, hostile, json as parse};

const RULES: &str = r#"
[tools."tag:idempotent"]
result_tokens = 2500
max_limit = 9
[tools."*_show"]
default_limit = 2
[tools.fleet_show]
columns = [{ name = "stream", field = "id" }]
[plugins.fleet.tools."fleet_*"]
views = { ids = ["id"] }
[tools.sleep]
deadline_ms = 300
[tools."nothing_*"]
cap_bytes = 9000
"#;

fn rules() -> String {
    format!("{}{}{RULES}", fleet(), hostile(""))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_by_name_glob_and_tag_reach_the_calls_of_their_tools() {
    let host = TestHost::start(&rules()).await;
    // Budget and largest page by tag, the default page by glob, columns by name, views by a glob of the plugin.
    let reply = host.call("fleet_show", json!({"detail": "ids"})).await;
    let facts = parse(reply.facts());
    assert_eq!(
        [
            &facts["returned"],
            &facts["budget_tokens"],
            &facts["budget_source"]
        ],
        [&json!(2), &json!(2500), &json!("org")]
    );
    let body = parse(reply.body());
    let streams = body["streams"].as_array().unwrap();
    assert!(
        streams
            .iter()
            .all(|stream| stream.as_object().unwrap().keys().eq(["id"])),
        "{body}"
    );
    let table = host.call("fleet_show", json!({"format": "csv"})).await;
    assert_eq!(table.body().lines().next(), Some("stream"));
    let refused = host.call("fleet_show", json!({"limit": 10})).await;
    assert!(
        refused
            .body()
            .contains("limit must be an integer between 1 and 9"),
        "{}",
        refused.body()
    );
    // What a call says goes before the rule.
    let asked = host.call("fleet_show", json!({"max_tokens": 9000})).await;
    let facts = parse(asked.facts());
    assert_eq!(
        [&facts["budget_tokens"], &facts["budget_source"]],
        [&json!(9000), &json!("input")]
    );
    // Tools that no rule is for are as they were.
    let fine = host.call("fine", json!({})).await;
    assert_eq!(parse(fine.facts())["budget_tokens"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_has_a_deadline_of_its_own() {
    let host = TestHost::start(&rules()).await;
    let reply = host.call("sleep", json!({})).await;
    assert_eq!(reply.refusal(), Some(Code::InvokeTimeout));
    assert!(
        reply.body().contains("did not end within 300 ms"),
        "{}",
        reply.body()
    );
    let tool = |name: &str| host.host().tool(&Caller::default(), name).unwrap();
    assert_eq!(tool("sleep").deadline.as_millis(), 300);
    assert_eq!(tool("fine").deadline.as_millis(), 30_000);
}

#[test]
fn check_prints_which_rule_decided_for_each_tool() {
    let folder = doors::folder(&rules());
    let (code, out, error) = doors::run(&folder, &["check"]);
    assert_eq!(code, 0, "{error}");
    let table = |name: &str| {
        let begin = format!("[{name}]\n");
        let table = out
            .split(&begin)
            .nth(1)
            .unwrap_or_else(|| panic!("{name}: {out}"));
        let table = table.split("\n\n").next().unwrap();
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        table.lines().map(line).collect::<Vec<String>>()
    };
    let show = table("plugins.fleet.tools.fleet_show");
    for line in [
        "tags = idempotent, read-only # plugin",
        "views = ids, full # plugins.fleet.tools.\"fleet_*\"",
        "columns = stream # tools.fleet_show",
        "default_limit = 2 # tools.\"*_show\"",
        "max_limit = 9 # tools.\"tag:idempotent\"",
        "deadline_ms = 30000 # plugins.fleet.limits",
        "result_tokens = 2500 # tools.\"tag:idempotent\"",
    ] {
        assert!(show.iter().any(|found| found == line), "{line}: {show:#?}");
    }
    let sleep = table("plugins.hostile.tools.sleep");
    for line in [
        "tags = read-only # plugin",
        "deadline_ms = 300 # tools.sleep",
        "result_tokens = as for the caller # default",
    ] {
        assert!(
            sleep.iter().any(|found| found == line),
            "{line}: {sleep:#?}"
        );
    }
    assert_eq!(
        table("rules for tools"),
        [
            "plugins.fleet.tools.\"fleet_*\" = 1 tools # matched",
            "tools.\"*_show\" = 2 tools # matched",
            "tools.\"nothing_*\" = no tool # matched",
            "tools.\"tag:idempotent\" = 3 tools # matched",
            "tools.fleet_show = 1 tools # matched",
            "tools.sleep = 1 tools # matched",
        ]
    );
}

#[test]
fn a_rule_for_a_tool_that_its_plugin_does_not_have_names_those_that_it_has() {
    let folder = doors::folder(&format!(
        "{}[plugins.fleet.tools.fleet_shew]\nmax_limit = 9\n",
        fleet()
    ));
    let (code, _, error) = doors::run(&folder, &["check"]);
    assert_ne!(code, 0);
    assert!(
        error.contains(
            "`plugins.fleet.tools.fleet_shew`: the plugin has no such tool; it has fleet_show, wave_show, stream_detail"
        ),
        "{error}"
    );
}

/// A guest with one tool that has these tags, and rules of the operator.
async fn tagged(tags: Value, rules: &str) -> anyhow::Result<TestHost> {
    let folder = tempfile::tempdir()?;
    let case = folder.path().join("case");
    std::fs::create_dir(&case)?;
    let tools = json!([{"name": "list_rows", "description": "Rows.", "tags": tags, "answer": "answer.json"}]);
    std::fs::write(case.join("tool.json"), tools.to_string())?;
    std::fs::write(case.join("answer.json"), r#"[{"id":1},{"id":2},{"id":3}]"#)?;
    let config = format!(
        "{rules}\n[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = \"case\", guest = \"/case\" }}]\n",
        component("guests/canned.wasm"),
    );
    TestHost::start_in(folder, &config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_declare_tags_and_rules_find_them() {
    let host = tagged(
        json!(["with space", "money"]),
        "[tools.\"tag:with space\"]\ndefault_limit = 2",
    )
    .await
    .unwrap();
    let reply = host.call("list_rows", json!({})).await;
    assert_eq!(parse(reply.facts())["returned"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_with_too_many_or_too_long_tags_does_not_load() {
    let many: Vec<String> = (0..20).map(|tag| format!("{tag:064}")).collect();
    tagged(json!(many), "").await.unwrap();
    let more: Vec<String> = (0..21).map(|tag| format!("t{tag}")).collect();
    for bad in [
        json!(more),
        json!(["x".repeat(65)]),
        json!([""]),
        json!(["two\nlines"]),
    ] {
        let error = tagged(bad, "").await.err().unwrap();
        let error = format!("{error:#}");
        assert!(
            error.contains(
                "tool `list_rows`: expected at most 20 tags, each 1 to 64 bytes of one line"
            ),
            "{error}"
        );
    }
}
