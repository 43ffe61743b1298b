//! Answers without an end in sight, in bounded memory.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::{HostProcess, component, plimsoll};

/// How many calls are made at the same time.
const CONCURRENCY: usize = 64;

/// By how much memory may grow over nine thousand calls.
const GROWTH: u64 = 32 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_good_and_hostile_calls_leave_nothing_behind() {
    // Little fuel, so that a loop costs milliseconds; as many permits as there are calls at a time and nowhere to wait, so
    // that a single permit that is not given back makes a later call busy.
    let config = format!(
        "[plugins.hostile]\ncomponent = {:?}\nclock = true\n[plugins.hostile.limits]\nfuel = 30000000\nconcurrent_calls = 64\n\
         queued_calls = 0\n",
        component("guests/hostile.wasm")
    );
    let host = HostProcess::start(&config);
    let kinds = [
        ("fine", 200),
        ("trap", 502),
        ("fine", 200),
        ("fault_not_found", 404),
        ("fault_internal", 502),
        ("fine", 200),
        ("loop", 502),
        ("exit", 502),
        ("fine", 200),
        ("panic", 502),
    ];
    let client = reqwest::Client::new();
    let url = &host.url;
    let calls = |range: std::ops::Range<usize>| {
        use futures::StreamExt;
        let client = client.clone();
        futures::stream::iter(range)
            .map(move |index| {
                let (tool, status) = kinds[index % kinds.len()];
                let call = client
                    .post(format!("{url}/v1/tools/{tool}"))
                    .body("{}")
                    .send();
                async move {
                    let response = call.await.unwrap();
                    let found = response.status().as_u16();
                    let body = response.text().await.unwrap();
                    assert_eq!(found, status, "{tool}: {body}");
                    if status == 200 {
                        assert_eq!(body, "[{\"n\":0},{\"n\":1},{\"n\":2}]");
                    }
                }
            })
            .buffer_unordered(CONCURRENCY)
            .for_each(|()| async {})
    };
    calls(0..1_000).await;
    let (memory, files, state) = (host.memory("VmRSS:"), host.open_files(), host.state_names());
    calls(1_000..10_000).await;
    let grown = host.memory("VmRSS:").saturating_sub(memory);
    assert!(
        grown < GROWTH,
        "{grown} bytes more than after the first thousand calls"
    );
    assert!(
        host.open_files() <= files + 4,
        "{files} open files, then {}",
        host.open_files()
    );
    assert_eq!(host.state_names(), state);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_one_plugin_is_busy_and_leaves_the_others_alone() {
    let config = format!(
        "[plugins.hostile]\ncomponent = {:?}\nclock = true\n[plugins.hostile.limits]\nfuel = 100000000000000\ndeadline_ms = 8000\n\
         [plugins.other]\ncomponent = {:?}\n",
        component("guests/hostile.wasm"),
        component("guests/conformance.wasm")
    );
    let host = HostProcess::start(&config);
    let (status, ..) = host.call("fine", json!({})).await;
    assert_eq!(status, 200);
    let client = reqwest::Client::new();
    // 16 run, 64 wait, and the rest hear busy at once, while the others are still running.
    let flood: Vec<_> = (0..200)
        .map(|_| {
            tokio::spawn(
                client
                    .post(format!("{}/v1/tools/loop", host.url))
                    .body("{}")
                    .send(),
            )
        })
        .collect();
    let mut served = 0;
    while flood.iter().any(|call| !call.is_finished()) && served < 50 {
        let response = client
            .post(format!("{}/v1/tools/test_simple_text", host.url))
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 200);
        served += 1;
    }
    assert_eq!(
        served, 50,
        "the flood was over before the others were served"
    );
    let mut busy = 0;
    for call in flood {
        if !call.is_finished() {
            call.abort();
            continue;
        }
        let response = call.await.unwrap().unwrap();
        if response.status() == 429 {
            assert_eq!(response.headers()["retry-after"], "1");
            let problem: Value = response.json().await.unwrap();
            assert_eq!(
                (&problem["error"], &problem["retryable"]),
                (&json!("busy"), &json!(true))
            );
            busy += 1;
        }
    }
    assert_eq!(busy, 200 - 16 - 64);
}

#[test]
fn killed_fifty_times_in_the_middle_of_everything_the_next_start_is_clean() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = folder.path().join("plugins");
    std::fs::create_dir(&plugins).unwrap();
    std::fs::write(
        folder.path().join("plimsoll.toml"),
        "[plugins.p]\n[plugins.q]\nclock = true\n",
    )
    .unwrap();
    std::fs::copy(component("guests/hostile.wasm"), plugins.join("q.wasm")).unwrap();
    for round in 0_u64..50 {
        // Two components in turn: every start finds something to compile or to reload. Now and then all compiled code is
        // gone, so that the kill hits the cache while it is written.
        let next = |round: u64| match round % 2 {
            0 => component("guests/conformance.wasm"),
            _ => component("plugins/fleet.wasm"),
        };
        std::fs::copy(next(round), plugins.join("p.wasm")).unwrap();
        if round % 10 == 0 {
            let _ = std::fs::remove_dir_all(folder.path().join(".plimsoll/code"));
        }
        // Every other one serves, and so can be hit while it reloads; the rest are hit while they start or call.
        let arguments: &[&str] = match round % 4 {
            0 | 1 => &["call", "loop"],
            _ => &["serve", "--listen", "127.0.0.1:0"],
        };
        let mut child = plimsoll()
            .args(arguments)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if round % 4 >= 2 {
            let log = BufReader::new(child.stderr.take().unwrap()).lines();
            let mut log = log.map_while(Result::ok);
            assert!(log.any(|line| line.contains("listening on http://")));
            std::fs::copy(next(round + 1), plugins.join("p.wasm")).unwrap();
        }
        // Any moment will do, and another one each round.
        std::thread::sleep(std::time::Duration::from_millis(round * 37 % 400));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = plimsoll()
        .args(["call", "fine"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.stdout, b"[{\"n\":0},{\"n\":1},{\"n\":2}]");
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    let left: Vec<_> = std::fs::read_dir(folder.path().join(".plimsoll"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter().all(|name| ["code", "results", "spool"]
            .iter()
            .any(|known| name == known)
            || name.to_string_lossy().starts_with("plimsoll.db")),
        "{left:?}"
    );
    let spools = std::fs::read_dir(folder.path().join(".plimsoll/spool")).unwrap();
    assert_eq!(spools.count(), 0);
}

/// Half of what a guest may have: the guest's own memory is part of what is measured.
const ABOVE_IDLE: u64 = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_million_rows_are_counted_and_a_page_of_them_delivered_in_64_mib() {
    let config = format!(
        "[plugins.hostile]\ncomponent = {:?}\nclock = true\n",
        component("guests/hostile.wasm")
    );
    let host = HostProcess::start(&config);
    let (status, ..) = host.call("fine", json!({})).await;
    assert_eq!(status, 200);
    let idle = host.memory("VmRSS:");
    let (status, receipt, body) = host.call("many_rows", json!({"limit": 25})).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(
        (&receipt["total"], &receipt["returned"], &receipt["after"]),
        (&json!(1_000_000), &json!(25), &json!(999_975))
    );
    assert!(
        receipt["stages"][0]["bytes_in"].as_u64().unwrap() >= 1 << 30,
        "{receipt}"
    );
    assert_eq!(body.as_array().unwrap().len(), 25);
    let above = host.memory("VmHWM:").saturating_sub(idle);
    assert!(above < ABOVE_IDLE, "{above} bytes above idle");
}
