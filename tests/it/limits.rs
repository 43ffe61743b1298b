//! A guest that misbehaves is a refusal of its own kind, within its limit, and nobody else notices.

use std::time::{Duration, Instant};

use plimsoll::call::Caller;
use plimsoll::shape::Code;
use serde_json::{Value, json};

use crate::support::{TestHost, hostile, json as parse, object};

/// How much longer than its limit a call may take.
const GRACE: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_misbehave_is_its_own_refusal_and_the_next_call_succeeds() {
    let host = TestHost::start(&hostile("deadline_ms = 2000\nfuel = 300000000")).await;
    let table = [
        ("loop", Code::OutOfFuel),
        ("sleep", Code::InvokeTimeout),
        ("grow", Code::OutOfMemory),
        ("trap", Code::PluginTrapped),
        ("recurse", Code::PluginTrapped),
        ("panic", Code::PluginTrapped),
        // What the host does with rows is not paid in fuel, so an endless flood of them ends at the deadline.
        ("flood_rows", Code::InvokeTimeout),
        ("invalid_utf8", Code::InvalidAnswer),
        ("document_twice", Code::InvalidAnswer),
        ("fault_invalid_input", Code::InvalidInput),
        ("fault_not_found", Code::NotFound),
        ("fault_unavailable", Code::Unavailable),
        ("fault_internal", Code::Internal),
    ];
    for (tool, code) in table {
        let reply = host.call(tool, json!({})).await;
        assert_eq!(reply.refusal(), Some(code), "{tool}: {}", reply.body());
        assert!(reply.body().len() < 8000, "{tool}");
        let fine = host.call("fine", json!({})).await;
        assert_eq!(fine.refusal(), None, "after {tool}: {}", fine.body());
    }
}

/// Cases L9 and N1: the host keeps its own time, also while a guest waits in a call of the host.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "compares times: `make test` runs it with nothing beside it"]
async fn a_deadline_stops_a_loop_a_sleep_and_a_flood_within_100_ms() {
    let host = TestHost::start(&hostile("deadline_ms = 300\nfuel = 100000000000")).await;
    for tool in ["loop", "sleep", "flood_rows"] {
        // The machine may be busy with other tests: one of five attempts must be on time.
        let mut shortest = Duration::MAX;
        for _ in 0..5 {
            let begun = Instant::now();
            let reply = host.call(tool, json!({})).await;
            assert_eq!(
                reply.refusal(),
                Some(Code::InvokeTimeout),
                "{}",
                reply.body()
            );
            shortest = shortest.min(begun.elapsed());
        }
        assert!(
            shortest >= Duration::from_millis(300) && shortest < Duration::from_millis(300) + GRACE,
            "{tool}: {shortest:?}"
        );
        let refusal = parse(host.call(tool, json!({})).await.body());
        assert_eq!(refusal["retryable"], true);
        assert!(
            refusal["message"].as_str().unwrap().contains("300 ms"),
            "{refusal}"
        );
        assert!(
            refusal["message"]
                .as_str()
                .unwrap()
                .contains("may already have been applied"),
            "{refusal}"
        );
    }
}

/// Cases L5 and L13: the tools are listed while calls run.
#[tokio::test(flavor = "multi_thread")]
async fn while_guests_loop_others_are_served_and_tools_are_listed() {
    let host = TestHost::start(&hostile("deadline_ms = 20000\nfuel = 100000000000000")).await;
    let served = host.serve().await;
    // More loops than there are cores; each is dropped when its caller goes.
    let loops: Vec<_> = (0..4)
        .map(|_| {
            let host = host.host().clone();
            tokio::spawn(async move {
                host.call_named(&Caller::default(), "loop", object(json!({})))
                    .await
            })
        })
        .collect();
    let client = reqwest::Client::new();
    for _ in 0..20 {
        let listed: Value = client
            .get(format!("{}/v1/tools", served.url))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert!(listed["tools"].as_array().unwrap().len() > 10);
        let fine = client
            .post(format!("{}/v1/tools/fine", served.url))
            .send()
            .await
            .unwrap();
        assert_eq!(fine.status(), 200);
    }
    for running in loops {
        assert!(!running.is_finished(), "a loop ended by itself");
        running.abort();
    }
}

/// Case L7: what nobody waits for any more is stopped, and not only left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_ends_its_guest() {
    let host = TestHost::start(&hostile("deadline_ms = 60000\nfuel = 100000000000000")).await;
    let served = host.serve().await;
    let client = reqwest::Client::builder()
        .timeout(Duration::from_millis(300))
        .build()
        .unwrap();
    let error = client
        .post(format!("{}/v1/tools/loop", served.url))
        .send()
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let ended = async {
        while host.host().running() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), ended)
        .await
        .expect("the guest runs on without its client");
}
