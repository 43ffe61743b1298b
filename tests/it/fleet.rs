//! The fleet plugin at the sizes that it is for.

use std::process::Command;

use plimsoll::call::Caller;
use plimsoll::shape::tokens;
use serde_json::json;

use crate::support::{TestHost, component, fleet, json as parse, root};

/// A host whose record has so many streams with so many bytes of prose each.
async fn host_with(streams: u32, prose_bytes: u32) -> TestHost {
    let folder = tempfile::tempdir().unwrap();
    let record = Command::new("python3")
        .arg(root().join("plugins/fleet/data/make_record.py"))
        .args([
            "--streams",
            &streams.to_string(),
            "--prose",
            &prose_bytes.to_string(),
        ])
        .output()
        .unwrap();
    assert!(
        record.status.success(),
        "{}",
        String::from_utf8_lossy(&record.stderr)
    );
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::write(folder.path().join("data/fleet.json"), record.stdout).unwrap();
    let config = format!(
        "[plugins.fleet]\ncomponent = {:?}\nfiles = [{{ host = \"data\", guest = \"/data\" }}]\n",
        component("plugins/fleet.wasm")
    );
    TestHost::start_in(folder, &config).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_hundred_streams_of_40_kb_prose_stay_under_25000_bytes() {
    let host = host_with(400, 40_000).await;
    let reply = host.call("fleet_show", json!({})).await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    let bytes = reply.facts().len() + reply.body().len();
    assert!(bytes < 25_000, "{bytes}");
    let facts = parse(reply.facts());
    assert_eq!(
        (&facts["total_count"], &facts["returned"]),
        (&json!(400), &json!(25))
    );
    let receipt = reply.receipt().unwrap();
    let raw = receipt.passages[0].bytes_in;
    assert!(raw > 16_000_000, "{raw}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_costs_at_least_a_quarter_fewer_tokens_than_the_same_rows_as_json() {
    let host = TestHost::start(&fleet()).await;
    let all = json!({"horizon": "all", "limit": 68});
    let with = |name: &str, value: serde_json::Value| {
        let mut arguments = all.clone();
        arguments[name] = value;
        arguments
    };
    let table = host.call("fleet_show", with("format", json!("csv"))).await;
    // The same columns: the fields of the table, and nothing else.
    let fields = json!([
        "id",
        "title",
        "wave",
        "owner",
        "branch",
        "state",
        "created",
        "updated",
        "last_gate.name",
        "last_gate.verdict",
        "last_gate.decided_by",
        "last_gate.decided_at",
        "liveness.status",
        "liveness.last_commit",
        "liveness.last_heartbeat"
    ]);
    let rows = host.call("fleet_show", with("fields", fields)).await;
    let mut reader = csv::Reader::from_reader(table.body().as_bytes());
    assert_eq!(reader.headers().unwrap().len(), 15);
    assert_eq!(reader.records().count(), 68);
    assert_eq!(parse(rows.body())["streams"].as_array().unwrap().len(), 68);
    let (table, rows) = (tokens::count(table.body()), tokens::count(rows.body()));
    assert!(table * 4 <= rows * 3, "csv {table}, json {rows}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_record_is_what_its_maker_makes() {
    let made = Command::new("python3")
        .arg(root().join("plugins/fleet/data/make_record.py"))
        .output()
        .unwrap();
    let shipped = std::fs::read(root().join("plugins/fleet/data/fleet.json")).unwrap();
    assert!(
        made.stdout == shipped,
        "plugins/fleet/data/fleet.json and make_record.py differ"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn walking_all_pages_gives_every_stream_once_in_order() {
    let host = TestHost::start(&fleet()).await;
    let record =
        parse(&std::fs::read_to_string(root().join("plugins/fleet/data/fleet.json")).unwrap());
    let expected: Vec<String> = record["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| stream["id"].as_str().unwrap().to_owned())
        .collect();
    for first in [
        json!({"horizon": "all", "limit": 7}),
        json!({"horizon": "all", "max_tokens": 2000, "limit": 100}),
    ] {
        let mut arguments = first;
        let mut seen = Vec::new();
        loop {
            let reply = host.call("fleet_show", arguments).await;
            let streams = parse(reply.body());
            seen.extend(
                streams["streams"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|stream| stream["id"].as_str().unwrap().to_owned()),
            );
            let facts = parse(reply.facts());
            if facts["next"].is_null() {
                break;
            }
            arguments = facts["next"].clone();
        }
        assert_eq!(seen, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configured_budget_applies_where_the_call_names_none() {
    let host = TestHost::start(&format!("result_tokens = 3000\n{}", fleet())).await;
    let reply = host
        .call("fleet_show", json!({"horizon": "all", "limit": 68}))
        .await;
    let facts = parse(reply.facts());
    assert_eq!(
        (&facts["budget_tokens"], &facts["budget_source"]),
        (&json!(3000), &json!("org"))
    );
    assert!(facts["approx_tokens"].as_u64().unwrap() <= 3000, "{facts}");
    let dropped = facts["budget_rows_dropped"].as_u64().unwrap();
    assert_eq!(dropped + facts["returned"].as_u64().unwrap(), 68);
    assert!(
        dropped > 0
            && facts["notices"]
                .to_string()
                .contains("The budget of 3000 tokens left out"),
        "{facts}"
    );
    let reply = host
        .call(
            "fleet_show",
            json!({"horizon": "all", "limit": 68, "max_tokens": 1}),
        )
        .await;
    let facts = parse(reply.facts());
    assert_eq!(
        (&facts["budget_tokens"], &facts["budget_source"]),
        (&json!(2000), &json!("input"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_can_rename_and_switch_off_arguments() {
    let config = format!(
        "{}[plugins.fleet.tools.fleet_show]\ncap_bytes = 9000\ndefault_limit = 2\nmax_limit = 5\n[plugins.fleet.tools.fleet_show.arguments]\nlimit = \"rows\"\nformat = false\n",
        fleet()
    );
    let host = TestHost::start(&config).await;
    let tool = host
        .host()
        .catalog(&Caller::default())
        .tool("fleet_show")
        .unwrap()
        .clone();
    let properties = tool.listed["inputSchema"]["properties"]
        .as_object()
        .unwrap();
    assert!(
        properties.contains_key("rows")
            && !properties.contains_key("limit")
            && !properties.contains_key("format")
    );
    assert_eq!(
        parse(host.call("fleet_show", json!({})).await.facts())["returned"],
        2
    );
    assert_eq!(
        parse(host.call("fleet_show", json!({"rows": 5})).await.facts())["returned"],
        5
    );
    let refused = host.call("fleet_show", json!({"rows": 6})).await;
    assert_eq!(
        parse(refused.body())["message"],
        "rows must be an integer between 1 and 5"
    );
    let unknown = host.call("fleet_show", json!({"limit": 2})).await;
    assert!(
        unknown
            .body()
            .contains("unknown argument limit; valid arguments: "),
        "{}",
        unknown.body()
    );
    let refused = host
        .call("fleet_show", json!({"detail": "full", "rows": 5}))
        .await;
    assert_eq!(parse(refused.body())["payload"]["limit"], 9000);
}
