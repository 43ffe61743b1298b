//! Two hosts over one PostgreSQL: keys, budgets, quotas and cursors are the same on both, whatever becomes of one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};

use crate::postgres::Postgres;
use crate::results::bucket_server;
use crate::support::{self, HostProcess, json as parse};
use crate::tenants::{self, config_of};

fn command(config: &Path, arguments: &[&str]) -> String {
    tenants::command(config, arguments).unwrap()
}

async fn call(
    client: &reqwest::Client,
    url: &str,
    key: &str,
    arguments: Value,
) -> (u16, Value, Value) {
    let response = client
        .post(format!("{url}/v1/tools/list_rows"))
        .bearer_auth(key)
        .body(arguments.to_string())
        .send()
        .await
        .unwrap();
    let status = response.status().as_u16();
    let receipt = response
        .headers()
        .get("plimsoll-receipt")
        .map_or(Value::Null, |text| parse(text.to_str().unwrap()));
    (status, receipt, parse(&response.text().await.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_share_keys_budgets_quotas_cursors_and_complete_results() {
    let postgres = Postgres::start();
    let folder = tempfile::tempdir().unwrap();
    let bucket = tempfile::tempdir().unwrap();
    let endpoint = bucket_server(bucket.path()).await;
    let top = format!(
        "store = {:?}\npublic_url = \"https://plimsoll.example.com\"\n[results]\nlocation = \"s3://agents/kept\"\nendpoint = {endpoint:?}\nregion = \"eu-west-1\"\n",
        postgres.url()
    );
    let environment = [
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let quotas = "[tenants.acme.quotas.day]\ncalls = 1000\n";
    let config = format!(
        "{}{quotas}",
        config_of(
            folder.path(),
            &["acme", "globex"],
            60,
            &top,
            "concurrent_calls = 16\nqueued_calls = 100"
        )
    );
    let mut one = HostProcess::start_with(&config, &environment);
    let two = HostProcess::start_with(&config, &environment);
    let client = reqwest::Client::new();
    // A key that one process made is known to both replicas at once.
    let key = command(&one.config(), &["keys", "add", "globex", "--name", "k"]);
    let spent = command(&two.config(), &["keys", "add", "acme", "--name", "k"]);

    // Pages of one answer, fetched from both in turn, are the whole, also when what it was made of changes in between.
    let answer = folder.path().join("globex/answer.json");
    let before = std::fs::read(&answer).unwrap();
    let mut rows = Vec::new();
    let mut arguments = json!({"limit": 7});
    for url in [&one.url, &two.url].into_iter().cycle() {
        let (status, receipt, body) = call(&client, url, &key, arguments.clone()).await;
        assert_eq!(status, 200, "{body}");
        rows.extend(
            body["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["id"].as_u64().unwrap()),
        );
        std::fs::write(&answer, r#"{"rows":[{"id":99,"who":"globex"}]}"#).unwrap();
        match receipt["next_after"].as_str() {
            Some(after) => arguments = json!({"limit": 7, "after": after}),
            None => break,
        }
    }
    assert_eq!(rows, (0..60).collect::<Vec<u64>>());
    std::fs::write(&answer, before).unwrap();
    let (_, first, _) = call(&client, &one.url, &key, json!({"limit": 59})).await;

    // A budget that is changed on one reaches both within 5 s.
    command(
        &one.config(),
        &["tenants", "set", "globex", "--result-tokens", "2345"],
    );
    let began = Instant::now();
    for url in [&one.url, &two.url] {
        loop {
            let (_, receipt, _) = call(&client, url, &key, json!({})).await;
            if receipt["budget_tokens"] == 2345 {
                assert_eq!(receipt["budget_source"], "org");
                break;
            }
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "a change takes longer than 5 s: {receipt}"
            );
        }
    }

    // 1,000 calls a day, asked for 1,200 times through both at concurrency 32.
    let outcomes: Vec<u16> = futures::stream::iter(0..1_200)
        .map(|number| {
            let (client, spent) = (client.clone(), spent.clone());
            let url = if number % 2 == 0 {
                one.url.clone()
            } else {
                two.url.clone()
            };
            async move { call(&client, &url, &spent, json!({"limit": 1})).await.0 }
        })
        .buffer_unordered(32)
        .collect()
        .await;
    let mut counts = BTreeMap::new();
    outcomes
        .iter()
        .for_each(|status| *counts.entry(*status).or_insert(0) += 1);
    assert_eq!(counts, BTreeMap::from([(200, 1_000), (429, 200)]));

    // Every one of them is in the ledger, soon.
    let config = two.config();
    let outcome = |outcome: &str| {
        let usage = command(
            &config,
            &[
                "usage", "--tenant", "acme", "--by", "outcome", "--format", "json",
            ],
        );
        let row = usage
            .lines()
            .map(parse)
            .find(|row| row["outcome"] == outcome);
        row.map_or(0, |row| row["calls"].as_u64().unwrap())
    };
    let ended = Instant::now();
    while outcome("answered") + outcome("quota_exceeded") < 1_200 {
        assert!(
            ended.elapsed() < Duration::from_secs(10),
            "the ledger is behind"
        );
    }
    assert_eq!(outcome("answered"), 1_000);

    // One is killed: what was counted, kept and asked is there for the other.
    one.kill();
    let (status, _, refusal) = call(&client, &two.url, &spent, json!({})).await;
    assert_eq!((status, &refusal["error"]), (429, &json!("quota_exceeded")));
    assert_eq!(outcome("answered"), 1_000);
    let next = json!({"after": first["next_after"]});
    let (status, _, body) = call(&client, &two.url, &key, next).await;
    assert_eq!(
        (status, &body["rows"]),
        (200, &json!([{"id": 59, "who": "globex"}]))
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compares times: `make test` runs it with nothing beside it"]
async fn two_hundred_tenants_get_their_own_rows_and_a_flood_of_one_leaves_the_others_quick() {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..200).map(|number| format!("t{number:03}")).collect();
    let tenants: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut config = config_of(folder.path(), &tenants, 20, "", "");
    // The flood loops until its fuel is gone.
    let fuel = 50_000_000;
    config.push_str(&support::hostile(&format!("fuel = {fuel}")));
    config.push_str("[tenants.flood]\nplugins = [\"hostile\"]\n");
    let host = HostProcess::start(&config);
    let file = host.config();
    let keys = keys(&file, &tenants).await;
    let flood_key = command(&file, &["keys", "add", "flood", "--name", "k"]);
    let client = reqwest::Client::new();

    let work = |calls: usize| {
        let (client, url, keys) = (client.clone(), host.url.clone(), keys.clone());
        async move {
            let mut times: Vec<Duration> = futures::stream::iter(0..calls)
                .map(|number| {
                    let (client, url) = (&client, &url);
                    let (tenant, key) = &keys[number % keys.len()];
                    async move {
                        let began = Instant::now();
                        let (status, _, body) = call(client, url, key, json!({})).await;
                        assert_eq!(status, 200, "{body}");
                        let rows = body["rows"].as_array().unwrap();
                        assert_eq!(rows.len(), 20);
                        assert!(
                            rows.iter().all(|row| row["who"] == tenant.as_str()),
                            "{tenant}: {body}"
                        );
                        began.elapsed()
                    }
                })
                .buffer_unordered(64)
                .collect()
                .await;
            times.sort();
            times[times.len() * 99 / 100]
        }
    };
    // 200 × 50 in all, in windows by turns: what else the machine does meanwhile meets both alike.
    // Where the machine has other work for a while, the median of more of them tells.
    let mut ratios: Vec<f64> = Vec::new();
    let median = |ratios: &[f64]| {
        let mut ratios = ratios.to_vec();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    };
    let floods = Arc::new(AtomicUsize::new(0));
    while ratios.len() < 5 || (median(&ratios) > 2.0 && ratios.len() < 15) {
        let quiet = work(1_000).await;
        let flooding: Vec<_> = (0..32)
            .map(|_| {
                let (client, url, key, floods) = (
                    client.clone(),
                    host.url.clone(),
                    flood_key.clone(),
                    floods.clone(),
                );
                tokio::spawn(async move {
                    loop {
                        let request = client
                            .post(format!("{url}/v1/tools/loop"))
                            .bearer_auth(&key);
                        request.send().await.unwrap();
                        floods.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let flooded = work(1_000).await;
        flooding.iter().for_each(tokio::task::JoinHandle::abort);
        for call in flooding {
            let _ = call.await;
        }
        println!(
            "p99 of 200 tenants at concurrency 64: quiet {quiet:?}, beside a flood {flooded:?}"
        );
        ratios.push(flooded.as_secs_f64() / quiet.as_secs_f64());
    }
    let floods = floods.load(Ordering::Relaxed);
    assert!(floods > 50, "{floods} calls of a flood");
    assert!(
        median(&ratios) <= 2.0,
        "beside a flood the p99 is {ratios:?} times as long"
    );
}

/// A key for each tenant.
async fn keys(config: &Path, tenants: &[&str]) -> Arc<Vec<(String, String)>> {
    let keys = tenants.iter().map(|tenant| {
        let key = command(config, &["keys", "add", tenant, "--name", "k"]);
        ((*tenant).to_owned(), key)
    });
    Arc::new(keys.collect())
}
