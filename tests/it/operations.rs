//! What operators count on: that quotas hold for links, that the ledger outlives crashes and stops, and that a change is told
//! to those whom it concerns.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use plimsoll::call::Caller;
use plimsoll::store::{Period, Spent};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::results::get;
use crate::support::{self, HostProcess, TestHost, component, json as parse, object};
use crate::tenants::{command, config_of, session_of};

/// Longer than anything here takes on a busy machine. Nothing waits for it when all goes well.
const LONG: Duration = Duration::from_secs(60);

async fn spent(host: &TestHost, tenant: &str) -> Spent {
    host.host().ledger().flush().await;
    let scope = format!("tenant/{tenant}");
    let spent = host.host().tenants().store().spent(&scope).await.unwrap();
    let day = spent.into_iter().find(|(period, _)| *period == Period::Day);
    day.unwrap().1
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_downloads_through_links_count_in_the_bytes_of_their_tenant_and_end_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let quota = 40_000;
    let config = format!(
        "{}[tenants.acme.quotas.day]\nbytes = {quota}\n",
        config_of(folder.path(), &["globex", "acme"], 400, "", "")
    );
    let host = TestHost::start(&config).await;
    let _served = host.serve().await;
    let mut links = BTreeMap::new();
    for tenant in ["acme", "globex"] {
        let caller = Caller {
            tenant: tenant.into(),
            ..Caller::default()
        };
        let reply = host
            .host()
            .call_named(&caller, "list_rows", object(json!({})))
            .await;
        let link = parse(reply.facts())["link"].as_str().unwrap().to_owned();
        links.insert(tenant, link);
    }
    let before = spent(&host, "acme").await;
    let mut bytes = 0;
    for tail in ["", "/table", "/download", "/download?format=csv&columns=0"] {
        let (status, _, text) = get(&format!("{}{tail}", links["acme"])).await;
        assert_eq!(status, StatusCode::OK, "{tail}: {text}");
        bytes += text.len() as u64;
    }
    // Written behind what was read.
    let written = async {
        while spent(&host, "acme").await.bytes < before.bytes + bytes {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, written).await.unwrap();
    let after = spent(&host, "acme").await;
    let expected = Spent {
        bytes: before.bytes + bytes,
        ..before
    };
    // No calls, no fuel, and nobody counts the tokens of what people see.
    assert_eq!(after, expected);
    let mut opened = get(&links["acme"]).await;
    let used_up = async {
        while opened.0 == StatusCode::OK {
            opened = get(&links["acme"]).await;
        }
    };
    tokio::time::timeout(LONG, used_up).await.unwrap();
    let (status, headers, page) = opened;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(headers.contains_key("retry-after"));
    let why = format!("The quota of tenant acme for {quota} bytes a day is used up; it resets in");
    assert!(page.contains(&why), "{page}");
    // A tenant without quotas goes on.
    assert_eq!(get(&links["globex"]).await.0, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loses_nothing_that_began_a_second_before_it() {
    const WORKERS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let quotas = "[tenants.acme.quotas.day]\ncalls = 1_000_000\nfuel = 1_000_000_000_000_000\nbytes = 1_000_000_000_000\ntokens = 1_000_000_000\n";
    let config = format!(
        "{}{quotas}",
        config_of(folder.path(), &["acme"], 40, "", "")
    );
    let mut host = HostProcess::start(&config);
    let file = host.config();
    let key = command(&file, &["keys", "add", "acme", "--name", "k"]).unwrap();
    let client = reqwest::Client::new();
    // Each call has a name of its own in the ledger, and whoever made it knows when it began.
    let (sender, mut answers) = tokio::sync::mpsc::unbounded_channel();
    for worker in 0..WORKERS {
        let (client, url, key) = (client.clone(), host.url.clone(), key.clone());
        let sender = sender.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let (name, began) = (format!("w{worker}-{number}"), Instant::now());
                let request = client
                    .post(format!("{url}/v1/tools/list_rows"))
                    .bearer_auth(&key)
                    .header("user-agent", &name);
                let Ok(response) = request.send().await else {
                    return;
                };
                assert_eq!(response.status(), StatusCode::OK);
                sender.send((name, began)).unwrap();
            }
        });
    }
    drop(sender);
    // Busy for longer than may be lost, so that something has to be there.
    let begun = Instant::now();
    let mut answered = BTreeMap::new();
    while begun.elapsed() < Duration::from_millis(2_500) {
        answered.extend(answers.recv().await);
    }
    let killed = Instant::now();
    host.kill();
    while let Some((name, began)) = answers.recv().await {
        answered.insert(name, began);
    }
    let usage = command(&file, &["usage", "--by", "client", "--format", "json"]).unwrap();
    let written: Vec<Value> = usage.lines().map(parse).collect();
    let is_written = |name: &str| written.iter().any(|row| row["client"] == name);
    let (kept, lost): (Vec<_>, Vec<_>) = answered.iter().partition(|(name, _)| is_written(name));
    println!(
        "{} calls are in the ledger, {} are not",
        kept.len(),
        lost.len()
    );
    assert!(!kept.is_empty());
    for (name, began) in lost {
        let before = killed.saturating_duration_since(*began);
        assert!(
            before < Duration::from_secs(1),
            "{name} began {before:?} before the crash"
        );
    }
    // A call is counted before it is answered, so that none is lost from the quota; what each used comes with its row.
    let listed = command(&file, &["tenants", "list"]).unwrap();
    let spent = |what: &str| {
        let begin = format!("  {what} this day: ");
        let spent = listed.lines().find_map(|line| line.strip_prefix(&begin));
        let spent = spent.unwrap().split(' ').next().unwrap();
        spent.parse::<u64>().unwrap()
    };
    assert!(spent("calls") >= answered.len() as u64, "{listed}");
    let sum = |name: &str| {
        written
            .iter()
            .map(|row| row[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        ["fuel", "bytes", "tokens"].map(spent),
        ["fuel", "bytes_out", "tokens_out"].map(sum),
        "{listed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_outlives_the_stop_of_its_host_is_in_the_ledger_as_cancelled() {
    let config = support::hostile("deadline_ms = 60000\nfuel = 1000000000000");
    let mut host = HostProcess::start(&config);
    let file = host.config();
    let client = reqwest::Client::new();
    let url = host.url.clone();
    let call = |tool: &str| {
        let request = client.post(format!("{url}/v1/tools/{tool}"));
        tokio::spawn(async move { request.send().await })
    };
    // One waits and one computes; both have begun before the host is told to stop.
    let calls = [call("sleep"), call("loop")];
    let running = async {
        loop {
            let metrics = client.get(format!("{url}/metrics")).send().await.unwrap();
            if metrics
                .text()
                .await
                .unwrap()
                .contains("plimsoll_running_calls 2\n")
            {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, running).await.unwrap();
    let begun = Instant::now();
    tokio::task::block_in_place(|| host.stop());
    println!("stopped after {:?}", begun.elapsed());
    for call in calls {
        let response = call.await.unwrap().unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let problem = parse(&response.text().await.unwrap());
        assert_eq!(
            problem["detail"],
            "The host has stopped before the call was done. Call again in some seconds."
        );
    }
    let usage = command(
        &file,
        &["usage", "--by", "tool,outcome", "--format", "json"],
    )
    .unwrap();
    let rows: Vec<Value> = usage.lines().map(parse).collect();
    for tool in ["loop", "sleep"] {
        let row = rows.iter().find(|row| row["tool"] == tool).unwrap();
        assert_eq!(
            (&row["outcome"], &row["calls"]),
            (&json!("cancelled"), &json!(1)),
            "{usage}"
        );
        assert!(row["fuel"].as_u64().unwrap() > 0, "{usage}");
    }
}

/// Reads a stream of events until one says that the tools have changed. False where it ends before.
async fn hears(stream: &mut reqwest::Response, text: &mut String) -> bool {
    const CHANGED: &str = "notifications/tools/list_changed";
    loop {
        if let Some(at) = text.find(CHANGED) {
            text.drain(..at + CHANGED.len());
            return true;
        }
        match stream.chunk().await {
            Ok(Some(chunk)) => text.push_str(&String::from_utf8_lossy(&chunk)),
            _ => return false,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_sessions_of_a_tenant_whose_listing_changes_hear_of_it_in_either_era() {
    let folder = tempfile::tempdir().unwrap();
    let config = |acme: &str, globex: &str| {
        let base = config_of(folder.path(), &["acme", "globex"], 3, "", "");
        let more = format!(
            "[plugins.more]\ncomponent = {:?}\n",
            component("guests/conformance.wasm")
        );
        let see = |config: String, tenant: &str, plugins: &str| {
            config.replace(
                &format!("[tenants.{tenant}]\nplugins = [\"case\"]"),
                &format!("[tenants.{tenant}]\nplugins = [{plugins}]"),
            )
        };
        more + &see(see(base, "acme", acme), "globex", globex)
    };
    let (one, both) = ("\"case\"", "\"case\", \"more\"");
    let mut host = HostProcess::start(&config(one, one));
    let (mut streams, mut keys) = (Vec::new(), BTreeMap::new());
    for tenant in ["acme", "globex"] {
        let key = command(&host.config(), &["keys", "add", tenant, "--name", "k"]).unwrap();
        let session = session_of(&host.url, &key).await;
        let handshake = reqwest::Client::new()
            .get(format!("{}/mcp", host.url))
            .bearer_auth(&key)
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .header("mcp-session-id", &session)
            .send()
            .await
            .unwrap();
        assert_eq!(handshake.status(), StatusCode::OK);
        let client = crate::results::McpClient::with_key(&host.url, &key);
        let mut modern = client
            .send(
                "subscriptions/listen",
                json!({"notifications": {"toolsListChanged": true}}),
            )
            .await;
        // It listens from when it says so.
        let acknowledged = modern.chunk().await.unwrap().unwrap();
        assert!(!acknowledged.is_empty());
        keys.insert(tenant, key);
        streams.push((
            tenant,
            [(handshake, String::new()), (modern, String::new())],
        ));
    }
    for (plugins, changed) in [((both, one), "acme"), ((both, both), "globex")] {
        host.configure(&config(plugins.0, plugins.1));
        // The change is there before anybody looks whether it was told: what was heard earlier was of the one before.
        let applied = async {
            let tools = reqwest::Client::new();
            loop {
                let listed = tools.get(format!("{}/v1/tools", host.url));
                let listed = listed.bearer_auth(&keys[changed]).send().await.unwrap();
                if listed.text().await.unwrap().contains("test_simple_text") {
                    return;
                }
            }
        };
        tokio::time::timeout(LONG, applied).await.unwrap();
        let of_changed = streams.iter_mut().filter(|(tenant, _)| *tenant == changed);
        for (stream, text) in of_changed.flat_map(|(_, streams)| streams) {
            assert!(
                tokio::time::timeout(LONG, hears(stream, text))
                    .await
                    .unwrap(),
                "{changed}"
            );
        }
    }
    // The end of a stream shows that nothing else was on it.
    tokio::task::block_in_place(|| host.stop());
    for (tenant, streams) in &mut streams {
        for (stream, text) in streams {
            assert!(
                !hears(stream, text).await,
                "{tenant} heard of the change of the other"
            );
        }
    }
}
