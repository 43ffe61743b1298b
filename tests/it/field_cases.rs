//! Field cases that need more than a folder of `tests/cases`, by id. Others are named where they are tested:
//! `grep -rn 'Case' tests host/src`.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use plimsoll::app::App;
use plimsoll::call::Caller;
use plimsoll::config::Config;
use plimsoll::sandbox::{DEFAULT_DEADLINE, MAX_DEADLINE};
use plimsoll::shape::{Code, tokens};
use serde_json::{Value, json};

use crate::support::{TestHost, hostile, json as parse, plimsoll};

/// Cases G1 and G5: an image goes out whole, or is refused with its size; it is never cut, and never text.
#[tokio::test(flavor = "multi_thread")]
async fn g1_g5_an_image_goes_out_whole_or_is_refused_with_its_size() {
    let host = TestHost::start(&hostile("")).await;
    let reply = host.call("attach_huge", json!({"count": 100_000})).await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    let [plimsoll::contract::Attachment::Image(image)] = reply.attachments() else {
        panic!("expected one image")
    };
    assert_eq!(image.data, vec![7; 100_000]);
    // As base64 it would have 333,334 bytes.
    let reply = host.call("attach_huge", json!({"count": 250_000})).await;
    assert_eq!(
        reply.refusal(),
        Some(Code::ResponseTooLarge),
        "{}",
        reply.body()
    );
    let refusal = parse(reply.body());
    assert!(
        refusal["payload"]["bytes"].as_u64().unwrap() > 333_333,
        "{refusal}"
    );
    assert!(reply.attachments().is_empty());
}

/// Cases G3 and G7: what is not text is no text to whoever counts, and takes nothing from the budget of the rows. As text,
/// the images would have some 100,000 tokens.
#[tokio::test(flavor = "multi_thread")]
async fn g3_g7_attachments_are_not_counted_as_text() {
    let host = TestHost::start(&hostile("")).await;
    let rows = host.call("fine", json!({})).await;
    for (tool, count) in [("attach_images", 30), ("attach_blob", 1)] {
        let reply = host.call(tool, json!({"max_tokens": 2_000})).await;
        assert_eq!(reply.refusal(), None, "{tool}: {}", reply.body());
        assert_eq!(
            (reply.attachments().len(), reply.body()),
            (count, rows.body())
        );
        let facts = parse(reply.facts());
        assert_eq!(facts["budget_rows_dropped"], 0, "{tool}: {facts}");
        let text = tokens::count(reply.facts()) + tokens::count(reply.body());
        let said = facts["approx_tokens"].as_u64().unwrap();
        assert!(
            said.abs_diff(text) <= 2,
            "{tool}: {said}, and its text has {text}"
        );
    }
}

/// Case G7: bytes that are not text go out as a blob with their type, whole and outside of every text, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn g7_a_blob_is_in_no_text() {
    let folder = crate::doors::folder(&hostile(""));
    let mut client = crate::doors::Stdio::start(&folder);
    let mut call = |id, count: u64| {
        let params = json!({"name": "attach_blob", "arguments": {"count": count}, "_meta": crate::doors::modern()});
        client.ask(id, "tools/call", params)["result"].clone()
    };
    let result = call(1, 5_000);
    let content = result["content"].as_array().unwrap();
    assert_eq!(content.len(), 3, "{result}");
    assert_eq!(content[2]["type"], "resource");
    let resource = &content[2]["resource"];
    assert_eq!(
        (
            &resource["uri"],
            &resource["mimeType"],
            resource.get("text")
        ),
        (
            &json!("plimsoll-test://blob"),
            &json!("application/octet-stream"),
            None
        )
    );
    let blob = resource["blob"].as_str().unwrap();
    assert_eq!(STANDARD.decode(blob).unwrap(), vec![7; 5_000]);
    for text in &content[..2] {
        assert!(
            !text["text"].as_str().unwrap().contains(&blob[..40]),
            "{text}"
        );
    }
    // As base64 it would have 333,334 bytes.
    let refused = call(2, 250_000);
    assert_eq!(refused["isError"], true);
    let content = refused["content"].as_array().unwrap();
    assert_eq!(content.len(), 1);
    let refusal = parse(content[0]["text"].as_str().unwrap());
    assert_eq!(refusal["error"], "response_too_large");
    assert!(
        refusal["payload"]["bytes"].as_u64().unwrap() > 333_333,
        "{refusal}"
    );
}

/// Case L1: a tool that takes longer than clients wait is ended before they hang up, and until then they hear of it.
#[test]
fn l1_the_host_gives_up_before_the_client_does_and_says_meanwhile_that_it_goes_on() {
    // What stock clients wait for an answer.
    const CLIENT: Duration = Duration::from_secs(60);
    assert_eq!(DEFAULT_DEADLINE * 2, CLIENT);
    assert!(MAX_DEADLINE <= CLIENT);
    // Six seconds, since a tool that says nothing is spoken for after five.
    let folder = crate::doors::folder(&hostile("deadline_ms = 6000"));
    let mut client = crate::doors::Stdio::start(&folder);
    let mut meta = crate::doors::modern();
    meta["progressToken"] = json!("l1");
    let params = json!({"name": "sleep", "arguments": {"count": 61_000}, "_meta": meta});
    let (told, answer) = client.hear(1, "tools/call", params);
    let told: Vec<&Value> = told
        .iter()
        .filter(|message| message["method"] == "notifications/progress")
        .map(|message| &message["params"])
        .collect();
    assert!(!told.is_empty(), "{answer}");
    for progress in told {
        assert_eq!(progress["progressToken"], "l1");
        let text = progress["message"].as_str().unwrap();
        assert!(text.starts_with("running for "), "{text}");
    }
    assert_eq!(answer["result"]["isError"], true);
    let refusal = parse(answer["result"]["content"][0]["text"].as_str().unwrap());
    assert_eq!(refusal["error"], "invoke_timeout");
    assert!(
        refusal["message"].as_str().unwrap().contains("6000 ms"),
        "{refusal}"
    );
    let params = json!({"name": "fine", "arguments": {}, "_meta": crate::doors::modern()});
    assert_eq!(
        client.ask(2, "tools/call", params)["result"]["isError"],
        false
    );
}

/// Case L1: the wait for a permit is a part of what the client waits for. The clock is as in `n7_the_deadline_bites_…`.
#[tokio::test]
async fn l1_a_call_that_waits_for_another_has_no_more_time_for_it() {
    let host = TestHost::start(&hostile("deadline_ms = 700\nconcurrent_calls = 1")).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let (first, second) = tokio::join!(refused(&host, "sleep"), refused(&host, "sleep"));
    assert_eq!(first.0, Code::InvokeTimeout, "{}", first.1);
    // Which of the two is a matter of the moment in which the first one ends.
    assert!(
        matches!(second.0, Code::Busy | Code::InvokeTimeout),
        "{}",
        second.1
    );
    let elapsed = begun.elapsed().as_millis();
    assert!((700..=710).contains(&elapsed), "{elapsed} ms");
}

/// Case L11: who compiles for longer than clients wait for `initialize` answers it first. Here nothing is compiled at all
/// until a client has been answered.
#[tokio::test(flavor = "multi_thread")]
async fn l11_initialize_is_answered_before_any_plugin_is_compiled() {
    let folder = crate::doors::folder(&hostile(""));
    let config = Config::read(&folder.path().join("plimsoll.toml")).unwrap();
    let app = App::open(config).await.unwrap();
    let host = TestHost::of(app, folder);
    let served = host.serve().await;
    let client = reqwest::Client::new();
    let ask = |version: &str, method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        client
            .post(format!("{}/mcp", served.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", version)
            .header("mcp-method", method)
            .body(message.to_string())
            .send()
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let answer = ask("2025-11-25", "initialize", params).await.unwrap();
    assert_eq!(answer.status(), 200);
    let answer = message_of(&answer.text().await.unwrap());
    assert_eq!(answer["result"]["serverInfo"]["name"], "plimsoll");
    assert_eq!(host.host().catalog(&Caller::default()).tools().count(), 0);
    // The listing waits for the plugins, since a client would take an empty one for the whole.
    let params = json!({"_meta": crate::doors::modern()});
    let listing = ask("2026-07-28", "tools/list", params);
    tokio::pin!(listing);
    assert!(futures::poll!(&mut listing).is_pending());
    host.app.load().await.unwrap();
    let listed = message_of(&listing.await.unwrap().text().await.unwrap());
    let count = listed["result"]["tools"].as_array().unwrap().len();
    assert!(count > 10, "{listed}");
}

/// The message of an answer, which is JSON or one event.
fn message_of(body: &str) -> Value {
    let data = body.lines().rfind(|line| line.starts_with("data: {"));
    parse(data.map_or(body, |line| &line["data: ".len()..]))
}

/// The refusal of a call, and its message.
async fn refused(host: &TestHost, tool: &str) -> (Code, String) {
    let reply = host.call(tool, json!({})).await;
    let code = reply
        .refusal()
        .unwrap_or_else(|| panic!("{tool} was answered"));
    let refusal = parse(reply.body());
    (code, refusal["message"].as_str().unwrap().to_owned())
}

/// Case N7: each limit bites whether it is set or left out, and whether or not another is set.
#[tokio::test(flavor = "multi_thread")]
async fn n7_fuel_and_memory_bite_whichever_of_the_limits_are_set() {
    let (fuel, memory) = ("10000000000 units", "134217728 bytes");
    for (limits, fuel, memory) in [
        ("", fuel, memory),
        ("fuel = 1000000000", "1000000000 units", memory),
        ("memory_bytes = 33554432", fuel, "33554432 bytes"),
        ("deadline_ms = 60000", fuel, memory),
    ] {
        let host = TestHost::start(&hostile(limits)).await;
        let (code, message) = refused(&host, "loop").await;
        assert_eq!(code, Code::OutOfFuel, "{limits}: {message}");
        assert!(message.contains(fuel), "{limits}: {message}");
        let (code, message) = refused(&host, "grow").await;
        assert_eq!(code, Code::OutOfMemory, "{limits}: {message}");
        assert!(message.contains(memory), "{limits}: {message}");
    }
}

/// Case N7, for the deadline: a clock that stands still goes on to the next timer where nobody has anything to do.
#[tokio::test]
async fn n7_the_deadline_bites_whichever_of_the_limits_are_set() {
    for (limits, deadline) in [
        ("", 30_000),
        ("fuel = 1000000000", 30_000),
        ("memory_bytes = 33554432", 30_000),
        ("deadline_ms = 700", 700),
    ] {
        let host = TestHost::start(&hostile(limits)).await;
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let (code, message) = refused(&host, "sleep").await;
        let elapsed = begun.elapsed().as_millis();
        // The store of the next host works in real time.
        tokio::time::resume();
        assert_eq!(code, Code::InvokeTimeout, "{limits}: {message}");
        assert!(
            message.contains(&format!("{deadline} ms")),
            "{limits}: {message}"
        );
        assert!(elapsed.abs_diff(deadline) <= 10, "{limits}: {elapsed} ms");
    }
}

/// Cases H1 and H5: what the listing costs is known, tool by tool, before anyone pays for it.
#[test]
fn h1_h5_inspect_says_what_listing_each_tool_costs() {
    let component = crate::support::component("guests/hostile.wasm");
    let output = plimsoll().arg("inspect").arg(component).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let line = text
        .lines()
        .find(|line| line.contains("flood_rows"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("tokens"), "{line}");
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Case P3: a cache entry that is cut short or is something else is a miss.
#[test]
fn p3_a_broken_cache_entry_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plimsoll.toml"), hostile("")).unwrap();
    for round in 0..3 {
        let output = plimsoll()
            .args(["call", "fine"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{round}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let entries = files(&folder.path().join(".plimsoll/code"));
        assert!(!entries.is_empty());
        for entry in entries {
            let whole = std::fs::read(&entry).unwrap();
            let broken = if round == 0 {
                &whole[..whole.len() / 2]
            } else {
                b"something else"
            };
            std::fs::write(&entry, broken).unwrap();
        }
    }
}
