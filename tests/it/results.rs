//! Complete results: kept, read page by page, linked, and gone when their time is over.

use std::path::{Path, PathBuf};

use plimsoll::call::Caller;
use plimsoll::results::{Grant, Held, TenantFolder, now};
use plimsoll::sandbox::Usage;
use plimsoll::shape::{Code, Reply, ResultId};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::postgres::Postgres;
use crate::support::{HostProcess, TestHost, component, json as parse, object, root};

/// The order book, which has 40,000 orders, 3,602 of them cancelled.
fn orders(more: &str) -> String {
    format!(
        "{more}\n[plugins.orders]\ncomponent = {:?}\n",
        component("plugins/orders.wasm")
    )
}

/// A fleet whose record is a file that a test can change between two calls.
struct Fleet {
    host: TestHost,
    record: TempDir,
}

impl Fleet {
    async fn start(config: &str, streams: &[String]) -> Self {
        let record = tempfile::tempdir().unwrap();
        let config = format!(
            "{config}\n[plugins.fleet]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/data\" }}]\n",
            component("plugins/fleet.wasm"),
            record.path()
        );
        let fleet = Self {
            host: TestHost::start(&config).await,
            record,
        };
        fleet.record(streams);
        fleet
    }

    fn record(&self, streams: &[String]) {
        let text = format!(
            "{{ \"at\" : 0.10,\n \"streams\":[{}] }}\n",
            streams.join(" ,\n")
        );
        std::fs::write(self.record.path().join("fleet.json"), text).unwrap();
    }
}

fn streams(name: &str, count: usize, bytes: usize) -> Vec<String> {
    (0..count)
        .map(|row| {
            format!(
                "{{\"id\": \"{name}-{row}\",\n  \"state\":\"open\", \"n\":9007199254740993, \"text\":\"{}\"}}",
                "x".repeat(bytes)
            )
        })
        .collect()
}

const ALL: &str = r#"{"horizon":"all","detail":"full","limit":7}"#;

/// The rows of a body of the fleet, as they stand in it.
fn rows_of(body: &str) -> String {
    let rows = body
        .strip_prefix("{ \"at\" : 0.10,\n \"streams\":[\n")
        .unwrap();
    rows.strip_suffix("\n] }\n").unwrap().to_owned()
}

async fn measured(host: &TestHost, tool: &str, arguments: Value) -> (Reply, Usage) {
    let caller = Caller::default();
    host.host()
        .measure_named(&caller, tool, object(arguments))
        .await
}

fn facts(reply: &Reply) -> Value {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    parse(reply.facts())
}

fn results_folder(host: &TestHost) -> PathBuf {
    host.folder().join(".plimsoll/results/tenants")
}

/// Every file below a folder.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
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

#[tokio::test(flavor = "multi_thread")]
async fn later_pages_are_those_of_the_first_answer_while_the_data_changes_and_run_no_plugin() {
    let kept = streams("a", 40, 10);
    let fleet = Fleet::start("", &kept).await;
    let (mut next, mut walked, mut pages) = (Some(parse(ALL)), Vec::new(), 0);
    while let Some(arguments) = next {
        let (reply, usage) = measured(&fleet.host, "fleet_show", arguments).await;
        let facts = facts(&reply);
        assert_eq!(
            (&facts["total_count"], &facts["matched_count"]),
            (&json!(40), &json!(40))
        );
        walked.push(rows_of(reply.body()));
        assert_eq!(usage.fuel > 0, pages == 0, "page {pages}");
        next = facts.get("next").cloned();
        pages += 1;
        fleet.record(&streams(&format!("b{pages}"), pages, 10));
    }
    assert_eq!(pages, 6);
    assert_eq!(walked.join(",\n"), kept.join(",\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_order_comes_once_in_order_on_pages_of_any_size() {
    let host = TestHost::start(&orders("")).await;
    let limits = [100, 97, 100, 33];
    let (mut next, mut ids, mut page) = (Some(json!({"fields": ["id"]})), Vec::new(), 0);
    while let Some(mut arguments) = next {
        arguments["limit"] = json!(limits[page % limits.len()]);
        let (reply, usage) = measured(&host, "list_orders", arguments).await;
        let facts = facts(&reply);
        assert_eq!(usage.fuel > 0, page == 0);
        let receipt = reply.receipt().unwrap();
        assert_eq!(
            (receipt.total, receipt.hidden, receipt.before, receipt.after),
            (
                Some(40_000),
                3_602,
                ids.len() as u64,
                Some(36_398 - ids.len() as u64 - receipt.returned)
            )
        );
        let rows = parse(reply.body());
        ids.extend(
            rows.as_array()
                .unwrap()
                .iter()
                .map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        next = facts.get("next").cloned();
        page += 1;
    }
    assert_eq!(ids.len(), 36_398);
    assert!(ids.is_sorted_by(|a, b| a < b));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_fits_is_not_kept_and_one_that_was_stopped_early_is_promised() {
    let host = TestHost::start(&orders("")).await;
    let reply = host
        .call("list_orders", json!({"customer": "C-0042", "limit": 100}))
        .await;
    assert_eq!(facts(&reply).get("next"), None);
    assert_eq!(reply.complete(), None);
    assert!(files(&results_folder(&host)).is_empty());
    // The plugin knows how many there are, and is told that it has said enough.
    let reply = host.call("list_orders", json!({"horizon": "all"})).await;
    assert!(facts(&reply).get("next").is_some());
    let id = reply.complete().unwrap().id;
    let held = host.host().results().held(TenantFolder::of(""), id).await;
    assert!(matches!(held.unwrap(), Some(Held::Promised(_))));
    assert_eq!(files(&results_folder(&host)).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_answer_is_kept_once_however_often_it_is_asked_for() {
    let fleet = Fleet::start("", &streams("a", 40, 10)).await;
    let mut cursors = Vec::new();
    for _ in 0..5 {
        let reply = fleet.host.call("fleet_show", parse(ALL)).await;
        cursors.push(facts(&reply)["next_after"].clone());
    }
    cursors.dedup();
    assert_eq!(
        (cursors.len(), files(&results_folder(&fleet.host)).len()),
        (1, 1)
    );
    let other = fleet
        .host
        .call(
            "fleet_show",
            json!({"horizon": "all", "detail": "summary", "limit": 7}),
        )
        .await;
    assert_ne!(facts(&other)["next_after"], cursors[0]);
    assert_eq!(files(&results_folder(&fleet.host)).len(), 2);
    // Where somebody has removed it, it is kept again.
    files(&results_folder(&fleet.host))
        .iter()
        .for_each(|file| std::fs::remove_file(file).unwrap());
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    let next = facts(&reply)["next"].clone();
    assert_eq!(fleet.host.call("fleet_show", next).await.refusal(), None);
}

/// Writes another time of expiry into everything that is kept.
pub(crate) fn expire(host: &TestHost) {
    for file in files(&results_folder(host)) {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[16..24].copy_from_slice(&(now() - 1).to_le_bytes());
        std::fs::write(file, bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_expired_result_is_stale_with_the_call_that_starts_over() {
    let fleet = Fleet::start("", &streams("a", 40, 10)).await;
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    let next = facts(&reply)["next"].clone();
    expire(&fleet.host);
    let stale = fleet.host.call("fleet_show", next).await;
    assert_eq!(stale.refusal(), Some(Code::StaleCursor));
    let refusal = parse(stale.body());
    assert_eq!(
        refusal["message"],
        "after is stale: the result that it continues is no longer kept. Start over with next, without after."
    );
    assert_eq!(refusal["next"], parse(ALL));
    let again = fleet.host.call("fleet_show", refusal["next"].clone()).await;
    assert_eq!(rows_of(again.body()), rows_of(reply.body()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_over_the_bound_is_not_kept_and_its_pages_come_from_the_plugin() {
    let config = "[results]\nmax_bytes = 3_000\ntenant_bytes = 3_000";
    let fleet = Fleet::start(config, &streams("a", 40, 10)).await;
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    let first = facts(&reply);
    let why = "The complete result is not kept: its rows are more than 3000 bytes. Later pages come from the plugin, as its \
               data is then.";
    assert!(
        first["notices"].as_array().unwrap().contains(&json!(why)),
        "{first}"
    );
    assert_eq!(reply.complete(), None);
    let (second, usage) = measured(&fleet.host, "fleet_show", first["next"].clone()).await;
    assert!(usage.fuel > 0);
    assert_eq!(parse(second.body())["streams"][0]["id"], "a-7");
    assert!(files(&results_folder(&fleet.host)).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_results_are_switched_off_nothing_is_kept_and_nothing_is_said() {
    let fleet = Fleet::start("[results]\nenabled = false", &streams("a", 40, 10)).await;
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    assert!(!reply.facts().contains("not kept"), "{}", reply.facts());
    let (_, usage) = measured(&fleet.host, "fleet_show", facts(&reply)["next"].clone()).await;
    assert!(usage.fuel > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_storing_fails_the_answer_says_so_and_points_to_nothing() {
    let fleet = Fleet::start("", &streams("a", 40, 10)).await;
    let _served = fleet.host.serve().await;
    let folder = fleet.host.folder().join(".plimsoll/results");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    let first = facts(&reply);
    let why = "The complete result is not kept: the host could not store it. Later pages come from the plugin, as its data is \
               then.";
    assert!(
        first["notices"].as_array().unwrap().contains(&json!(why)),
        "{first}"
    );
    assert_eq!((first.get("link"), reply.complete()), (None, None));
    let second = fleet.host.call("fleet_show", first["next"].clone()).await;
    assert_eq!(parse(second.body())["streams"][0]["id"], "a-7");
    // Whoever calls next does not wait for it to fail again.
    std::fs::remove_file(&folder).unwrap();
    let again = fleet.host.call("fleet_show", parse(ALL)).await;
    assert!(
        again.facts().contains("the host could not store it"),
        "{}",
        again.facts()
    );
    assert!(!folder.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_tenants_size_its_oldest_results_go() {
    let fleet = Fleet::start("[results]\nmax_bytes = 9_000\ntenant_bytes = 20_000", &[]).await;
    let mut firsts = Vec::new();
    for name in ["a", "b", "c", "d"] {
        fleet.record(&streams(name, 40, 100));
        firsts.push(facts(&fleet.host.call("fleet_show", parse(ALL)).await)["next"].clone());
    }
    let kept = files(&results_folder(&fleet.host));
    let bytes: u64 = kept.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(
        kept.len() == 2 && bytes <= 20_000,
        "{kept:?}: {bytes} bytes"
    );
    let mut codes = Vec::new();
    for next in firsts {
        codes.push(fleet.host.call("fleet_show", next).await.refusal());
    }
    assert_eq!(
        codes,
        [Some(Code::StaleCursor), Some(Code::StaleCursor), None, None]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_removes_what_has_expired_and_what_killed_hosts_left() {
    let fleet = Fleet::start("", &streams("a", 40, 10)).await;
    facts(&fleet.host.call("fleet_show", parse(ALL)).await);
    let kept = files(&results_folder(&fleet.host));
    let half = kept[0].with_file_name(format!(
        "{}#1",
        kept[0].file_name().unwrap().to_str().unwrap()
    ));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3_901);
    std::fs::write(&half, "half").unwrap();
    std::fs::File::options()
        .write(true)
        .open(&half)
        .unwrap()
        .set_modified(old)
        .unwrap();
    fleet.host.host().results().sweep().await.unwrap();
    assert_eq!(files(&results_folder(&fleet.host)), kept);
    std::fs::File::options()
        .write(true)
        .open(&kept[0])
        .unwrap()
        .set_modified(old)
        .unwrap();
    fleet.host.host().results().sweep().await.unwrap();
    assert!(files(&results_folder(&fleet.host)).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_removes_the_spools_of_killed_hosts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join(".plimsoll/spool")).unwrap();
    std::fs::write(folder.path().join(".plimsoll/spool/left"), "rows").unwrap();
    let host = TestHost::start_in(folder, "").await.unwrap();
    assert!(files(&host.folder().join(".plimsoll/spool")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_its_tenants_alone() {
    let tenants = "tenants = { acme = { plugins = [\"*\"] }, other = { plugins = [\"*\"] } }";
    let fleet = Fleet::start(tenants, &streams("a", 40, 10)).await;
    let tenant = |name: &str| Caller {
        tenant: name.to_owned(),
        ..Caller::default()
    };
    let (acme, other) = (tenant("acme"), tenant("other"));
    let host = fleet.host.host();
    let reply = host
        .call_named(&acme, "fleet_show", object(parse(ALL)))
        .await;
    let (next, complete) = (
        facts(&reply)["next"].clone(),
        reply.complete().unwrap().clone(),
    );
    let foreign = host
        .call_named(&other, "fleet_show", object(next.clone()))
        .await;
    assert_eq!(foreign.refusal(), Some(Code::InvalidCursor));
    assert!(host.read_result(&other, complete.id, None).await.is_none());
    let after = next["after"].as_str().unwrap();
    assert!(
        host.read_result(&other, complete.id, Some(after))
            .await
            .is_none()
    );
    assert_eq!(
        host.results()
            .list("other", None)
            .await
            .unwrap()
            .unwrap()
            .items
            .len(),
        0
    );
    assert_eq!(
        host.results()
            .list("acme", None)
            .await
            .unwrap()
            .unwrap()
            .items
            .len(),
        1
    );
    // The same answer to another tenant is another result.
    let own = host
        .call_named(&other, "fleet_show", object(parse(ALL)))
        .await;
    assert_ne!(own.complete().unwrap().id, complete.id);
    // A file in the folder of another tenant is not taken for its own.
    let kept = files(&results_folder(&fleet.host));
    let named = |id: ResultId| {
        kept.iter()
            .find(|file| file.ends_with(id.to_string()))
            .unwrap()
    };
    std::fs::copy(
        named(complete.id),
        named(own.complete().unwrap().id).with_file_name(complete.id.to_string()),
    )
    .unwrap();
    assert!(host.read_result(&other, complete.id, None).await.is_none());
    assert!(host.read_result(&acme, complete.id, None).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_a_result_passes_the_same_cap_and_budget_and_pages_to_its_end() {
    let kept = streams("a", 300, 100);
    let config = "result_tokens = 3000\n[plugins.fleet.tools.fleet_show]\ncap_bytes = 8100";
    let fleet = Fleet::start(config, &kept).await;
    let host = fleet.host.host();
    let caller = Caller::default();
    let reply = fleet
        .host
        .call(
            "fleet_show",
            json!({"horizon": "all", "detail": "full", "limit": 5}),
        )
        .await;
    let id = reply.complete().unwrap().id;
    fleet.record(&[]);
    let (mut after, mut walked) = (None::<String>, Vec::new());
    loop {
        let page = host
            .read_result(&caller, id, after.as_deref())
            .await
            .unwrap();
        let facts = facts(&page);
        assert!(page.facts().len() + page.body().len() < 8_100);
        assert!(facts["approx_tokens"].as_u64().unwrap() <= 3_000, "{facts}");
        assert_eq!(facts["matched_count"], 300);
        walked.push(rows_of(page.body()));
        after = facts["next_after"].as_str().map(str::to_owned);
        let uri = after
            .as_ref()
            .map(|after| json!({"uri": format!("{}?after={after}", id.uri())}));
        assert_eq!(facts.get("next").cloned(), uri);
        if after.is_none() {
            break;
        }
        let notices = facts["notices"].to_string();
        assert!(
            notices.contains("Reading the resource in \\\"next\\\" gets the next page."),
            "{notices}"
        );
    }
    assert_eq!(walked.join(",\n"), kept.join(",\n"));
    // A cursor of another walk leads nowhere here.
    let other = fleet.host.call("wave_show", json!({})).await;
    assert!(other.next_after().is_none());
    let refused = host
        .read_result(&caller, id, Some("made up"))
        .await
        .unwrap();
    assert_eq!(refused.refusal(), Some(Code::InvalidCursor));
}

pub(crate) async fn get(url: &str) -> (StatusCode, reqwest::header::HeaderMap, String) {
    let response = reqwest::get(url).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    (status, headers, response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_a_page_without_a_key_and_downloads_all_rows() {
    let kept = streams("a", 40, 10);
    let fleet = Fleet::start("", &kept).await;
    let served = fleet.host.serve().await;
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    let first = facts(&reply);
    let link = first["link"].as_str().unwrap();
    assert!(
        link.starts_with(&format!("{}/results/", served.url)),
        "{link}"
    );
    let said = "People can see, search and download the complete result at \"link\".";
    assert!(
        first["notices"].as_array().unwrap().contains(&json!(said)),
        "{first}"
    );
    fleet.record(&[]);

    let (status, headers, page) = get(link).await;
    assert_eq!(status, StatusCode::OK);
    assert!(
        page.contains("<h1>fleet_show</h1>") && page.contains("data-rows=\"40\""),
        "{page}"
    );
    assert!(!page.contains("{{"), "{page}");
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("x-robots-tag"), "noindex, nofollow");
    assert_eq!(header("cache-control"), "private, no-store");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(
        header("content-security-policy"),
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    for asset in ["page.css", "page.js"] {
        assert!(page.contains(&format!("\"assets/{asset}\"")));
        let (status, headers, _) = get(&format!("{}/results/assets/{asset}", served.url)).await;
        assert_eq!(
            (status, headers["cache-control"].to_str().unwrap()),
            (StatusCode::OK, "public, max-age=3600")
        );
    }

    let (_, headers, whole) = get(&format!("{link}/download")).await;
    assert_eq!(rows_of(&whole), kept.join(",\n"));
    assert_eq!(
        headers["content-disposition"],
        "attachment; filename=\"fleet_show.json\""
    );
    let (_, _, table) = get(&format!("{link}/table")).await;
    let table = parse(&table);
    let columns: Vec<&str> = table["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let place = |name: &str| columns.iter().position(|column| *column == name).unwrap();
    assert_eq!(table["rows"].as_array().unwrap().len(), 40);
    // A number beyond a double is the text that came in.
    assert_eq!(table["rows"][39][place("n")], "9007199254740993");
    let chosen = format!(
        "{link}/download?format=csv&columns={},{}",
        place("id"),
        place("n")
    );
    let (_, headers, csv) = get(&chosen).await;
    assert_eq!(headers["content-type"], "text/csv; charset=utf-8");
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    assert_eq!(
        reader.headers().unwrap().iter().collect::<Vec<_>>(),
        ["id", "n"]
    );
    let ids: Vec<String> = reader
        .records()
        .map(|record| record.unwrap()[0].to_owned())
        .collect();
    assert_eq!(
        ids,
        (0..40).map(|row| format!("a-{row}")).collect::<Vec<_>>()
    );
    let (_, headers, tsv) = get(&format!("{link}/download?format=tsv")).await;
    assert_eq!(
        headers["content-type"],
        "text/tab-separated-values; charset=utf-8"
    );
    assert!(tsv.lines().next().unwrap().contains('\t'), "{tsv}");

    fleet.record(&kept);
    let response = reqwest::Client::new()
        .post(format!("{}/v1/tools/fleet_show", served.url))
        .body(ALL)
        .send()
        .await
        .unwrap();
    let links: Vec<String> = response
        .headers()
        .get_all("link")
        .iter()
        .map(|link| link.to_str().unwrap().to_owned())
        .collect();
    assert!(links[0].ends_with("rel=\"next\""), "{links:?}");
    assert!(
        links[1].starts_with(&format!("<{}/results/", served.url))
            && links[1].ends_with(">; rel=\"collection\""),
        "{links:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_and_pushed_rows_are_downloaded_as_they_came() {
    let case = tempfile::tempdir().unwrap();
    let lines: Vec<String> = (0..60)
        .map(|line| format!("{line}: =sum, \"quoted\""))
        .collect();
    let rows: Vec<String> = (0..60)
        .map(|row| format!("{{\"id\":{row},\"x\":1e400}}"))
        .collect();
    std::fs::write(case.path().join("log.txt"), lines.join("\n") + "\n").unwrap();
    std::fs::write(case.path().join("rows.txt"), rows.join("\n")).unwrap();
    let tools = json!([
        {"name": "log", "answer": "log.txt", "shape": {"rows": "lines"}},
        {"name": "pushed", "answer": "rows.txt", "how": "rows"},
    ]);
    std::fs::write(case.path().join("tool.json"), tools.to_string()).unwrap();
    let host = TestHost::start(&format!(
        "[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/case\" }}]\n",
        component("guests/canned.wasm"),
        case.path()
    ))
    .await;
    let _served = host.serve().await;
    let link = async |tool: &str| {
        facts(&host.call(tool, json!({})).await)["link"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let log = link("log").await;
    let (_, headers, text) = get(&format!("{log}/download")).await;
    assert_eq!(text, lines.join("\n") + "\n");
    assert_eq!(headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(
        headers["content-disposition"],
        "attachment; filename=\"log.txt\""
    );
    let (_, _, page) = get(&log).await;
    assert!(
        page.contains("<b>Text</b><span>the lines, exact to the byte</span>"),
        "{page}"
    );
    let (_, _, csv) = get(&format!("{log}/download?format=csv")).await;
    assert!(
        csv.starts_with("line\r\n\"0: =sum, \"\"quoted\"\"\"\r\n"),
        "{csv}"
    );
    let (_, headers, whole) = get(&format!("{}/download?format=json", link("pushed").await)).await;
    assert_eq!(whole, format!("[\n{}\n]", rows.join(",\n")));
    assert_eq!(headers["content-type"], "application/json");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_shows_nothing_says_which_and_what_to_do() {
    let fleet = Fleet::start("", &streams("a", 40, 10)).await;
    let elsewhere = TestHost::start_in(tempfile::tempdir().unwrap(), "")
        .await
        .unwrap();
    let served = fleet.host.serve().await;
    let reply = fleet.host.call("fleet_show", parse(ALL)).await;
    let link = facts(&reply)["link"].as_str().unwrap().to_owned();
    let id = reply.complete().unwrap().id;
    let results = fleet.host.host().results();
    let grant = |tenant: &str, id, expires| Grant {
        tenant: TenantFolder::of(tenant),
        id,
        expires,
    };
    let address = |token: String| format!("{}/results/{token}", served.url);
    let expect = async |url: String, status: u16, title: &str, assets: &str| {
        let (found, headers, page) = get(&url).await;
        assert_eq!(found.as_u16(), status, "{page}");
        assert!(page.contains(&format!("<h1>{title}</h1>")), "{page}");
        assert!(
            page.contains(&format!("href=\"{assets}page.css\"")),
            "{page}"
        );
        assert_eq!(headers["x-robots-tag"], "noindex, nofollow");
    };
    let lost = "This link leads nowhere";
    expect(address(String::from("x")), 404, lost, "assets/").await;
    expect(link[..link.len() - 1].to_owned(), 404, lost, "assets/").await;
    expect(
        format!("{}/download", address(String::from("x"))),
        404,
        lost,
        "../assets/",
    )
    .await;
    let gone = "This result is no longer kept";
    let past = results.links().token(&grant("", id, now() - 1));
    expect(address(past), 410, gone, "assets/").await;
    // A token for another tenant's folder does not lead to this one's result.
    let foreign = results.links().token(&grant("acme", id, now() + 100));
    expect(address(foreign), 410, gone, "assets/").await;
    expect(
        format!("{link}/download?format=xml"),
        400,
        "This download does not exist",
        "../assets/",
    )
    .await;
    expect(
        format!("{link}/download?format=csv&columns=0,99"),
        400,
        "This download does not exist",
        "../assets/",
    )
    .await;
    expire(&fleet.host);
    expect(link.clone(), 410, gone, "assets/").await;
    expect(format!("{link}/table"), 410, gone, "../assets/").await;
    drop(elsewhere);
}

/// A client of MCP over HTTP: in the modern era, or in a session of the one before.
pub(crate) struct McpClient {
    url: String,
    session: Option<String>,
    key: Option<String>,
}

impl McpClient {
    fn modern(url: &str) -> Self {
        Self {
            url: format!("{url}/mcp"),
            session: None,
            key: None,
        }
    }

    /// The same, which shows a key.
    pub(crate) fn with_key(url: &str, key: &str) -> Self {
        Self {
            key: Some(key.to_owned()),
            ..Self::modern(url)
        }
    }

    async fn legacy(url: &str, version: &str) -> Self {
        let mut client = Self {
            session: Some(String::new()),
            ..Self::modern(url)
        };
        let hello = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"},
        });
        let response = client.send("initialize", hello).await;
        let id = response.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        client.session = Some(id);
        client
    }

    pub(crate) async fn send(&self, method: &str, mut params: Value) -> reqwest::Response {
        let name = params
            .get("name")
            .or(params.get("uri"))
            .and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let mut request = reqwest::Client::new()
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        match self.session.as_deref() {
            None => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                });
                request = request
                    .header("mcp-protocol-version", "2026-07-28")
                    .header("mcp-method", method);
                if !name.is_empty() {
                    request = request.header("mcp-name", name);
                }
            }
            Some("") => {}
            Some(session) => {
                request = request
                    .header("mcp-protocol-version", "2025-11-25")
                    .header("mcp-session-id", session);
            }
        }
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        request.body(message.to_string()).send().await.unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, params: Value) -> Value {
        let text = self.send(method, params).await.text().await.unwrap();
        // A server may answer with one event of a stream.
        let line = text.lines().find_map(|line| {
            line.strip_prefix("data: ")
                .filter(|data| data.starts_with('{'))
        });
        parse(line.unwrap_or(&text))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_mcp_a_result_is_a_resource_that_is_linked_listed_and_read() {
    let kept = streams("a", 40, 10);
    let fleet = Fleet::start("", &kept).await;
    let served = fleet.host.serve().await;
    for client in [
        McpClient::modern(&served.url),
        McpClient::legacy(&served.url, "2025-11-25").await,
    ] {
        let is_modern = client.session.is_none();
        let rpc = async |method: &str, params: Value| client.ask(method, params).await;
        let called = rpc(
            "tools/call",
            json!({"name": "fleet_show", "arguments": parse(ALL)}),
        )
        .await;
        let blocks = called["result"]["content"].as_array().unwrap();
        let [facts, _, link] = &blocks[..] else {
            panic!("{called}");
        };
        let uri = link["uri"].as_str().unwrap();
        assert_eq!(
            link,
            &json!({
                "type": "resource_link", "uri": uri, "name": "fleet_show-complete", "mimeType": "application/json",
                "description": "All 40 rows of this answer of fleet_show. Reading it gets them page by page.",
            })
        );
        // The link counts: what is sent is what the receipt says.
        let sent: usize = blocks[..2]
            .iter()
            .map(|block| block["text"].as_str().unwrap().len())
            .sum();
        let stages = &called["result"]["_meta"]["dev.plimsoll/receipt"]["stages"];
        assert_eq!(stages[3]["bytes_out"], json!(sent + link.to_string().len()));
        fleet.record(&[]);

        let listed = rpc("resources/list", json!({})).await;
        assert_eq!(
            listed["result"]["resources"].as_array().unwrap().len(),
            1,
            "{listed}"
        );
        assert_eq!(listed["result"]["resources"][0]["uri"], uri);
        let templates = rpc("resources/templates/list", json!({})).await;
        assert_eq!(
            templates["result"]["resourceTemplates"][0]["uriTemplate"],
            "plimsoll://results/{id}{?after}"
        );
        let bad = rpc("resources/list", json!({"cursor": "x"})).await;
        assert_eq!(
            bad["error"]["message"],
            "`x` is not a cursor of resources/list"
        );

        let (mut next, mut walked) = (Some(json!({"uri": uri})), Vec::new());
        while let Some(params) = next {
            let read = rpc("resources/read", params).await;
            let [facts, body] = &read["result"]["contents"].as_array().unwrap()[..] else {
                panic!("{read}");
            };
            walked.push(rows_of(body["text"].as_str().unwrap()));
            next = parse(facts["text"].as_str().unwrap()).get("next").cloned();
        }
        assert_eq!(walked.join(",\n"), kept.join(",\n"));
        // A tool's cursor goes on where the tool's page ended.
        let after = parse(facts["text"].as_str().unwrap())["next_after"]
            .as_str()
            .unwrap()
            .to_owned();
        let read = rpc(
            "resources/read",
            json!({"uri": format!("{uri}?after={after}")}),
        )
        .await;
        let body = parse(read["result"]["contents"][1]["text"].as_str().unwrap());
        assert_eq!(body["streams"][0]["id"], "a-7");

        let code = if is_modern { -32602 } else { -32002 };
        for unknown in [
            format!("plimsoll://results/{}", "0".repeat(32)),
            String::from("file:///etc/passwd"),
        ] {
            let missing = rpc("resources/read", json!({"uri": unknown})).await;
            assert_eq!(missing["error"]["code"], code, "{missing}");
            assert_eq!(
                missing["error"]["message"],
                format!("Resource not found: {unknown}")
            );
        }
        let bad = rpc("resources/read", json!({"uri": format!("{uri}?after=x")})).await;
        assert_eq!(bad["error"]["code"], -32602, "{bad}");
        assert!(
            bad["error"]["message"]
                .as_str()
                .unwrap()
                .starts_with("after is not a cursor that this host made")
        );
        fleet.record(&kept);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_over_the_cap_is_an_error_of_the_read_that_names_it() {
    let mut kept = streams("a", 9, 10);
    kept[1] = streams("huge", 1, 20_000).remove(0);
    let fleet = Fleet::start("[plugins.fleet.tools.fleet_show]\ncap_bytes = 12000", &kept).await;
    let served = fleet.host.serve().await;
    let client = McpClient::modern(&served.url);
    let arguments = json!({"horizon": "all", "detail": "full", "limit": 1});
    let reply = fleet.host.call("fleet_show", arguments).await;
    let uri = reply.complete().unwrap().id.uri();
    let first = client.ask("resources/read", json!({"uri": uri})).await;
    let facts = parse(first["result"]["contents"][0]["text"].as_str().unwrap());
    assert_eq!(facts["returned"], 1);
    let second = client.ask("resources/read", facts["next"].clone()).await;
    assert_eq!(second["error"]["code"], -32603, "{second}");
    assert_eq!(second["error"]["data"]["error"], "response_too_large");
    let message = second["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("the limit is 12000 bytes. It is refused, not truncated"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_at_a_time_keep_one_answer_and_each_reads_on() {
    let kept = streams("a", 60, 2_000);
    let fleet = std::sync::Arc::new(Fleet::start("", &kept).await);
    let walks = (0..32).map(|_| {
        let fleet = fleet.clone();
        tokio::spawn(async move {
            let (mut next, mut walked) = (Some(parse(ALL)), Vec::new());
            while let Some(arguments) = next {
                let reply = fleet.host.call("fleet_show", arguments).await;
                next = facts(&reply).get("next").cloned();
                walked.push(rows_of(reply.body()));
            }
            walked.join(",\n")
        })
    });
    for walk in walks.collect::<Vec<_>>() {
        assert_eq!(walk.await.unwrap(), kept.join(",\n"));
    }
    assert_eq!(files(&results_folder(&fleet.host)).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_begin_with_the_address_that_was_bound_or_with_the_one_that_is_public() {
    let call = async |host: &HostProcess| {
        let url = format!("{}/v1/tools/fleet_show", host.url);
        let response = reqwest::Client::new().post(url).send().await.unwrap();
        let link = response
            .headers()
            .get_all("link")
            .iter()
            .next_back()
            .unwrap();
        link.to_str().unwrap().to_owned()
    };
    let bound = HostProcess::start(&crate::support::fleet());
    let link = call(&bound).await;
    assert!(
        link.starts_with(&format!("<{}/results/", bound.url)),
        "{link}"
    );
    let config = format!(
        "public_url = \"https://plimsoll.example.com/agents/\"\n{}",
        crate::support::fleet()
    );
    let public = HostProcess::start(&config);
    let link = call(&public).await;
    assert!(
        link.starts_with("<https://plimsoll.example.com/agents/results/"),
        "{link}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_version_without_links_gets_facts_and_body_alone() {
    let fleet = Fleet::start("", &streams("a", 40, 10)).await;
    let served = fleet.host.serve().await;
    for (version, blocks) in [("2025-03-26", 2), ("2025-06-18", 3)] {
        let client = McpClient::legacy(&served.url, version).await;
        let params = json!({"name": "fleet_show", "arguments": parse(ALL)});
        let called = client.ask("tools/call", params).await;
        assert_eq!(
            called["result"]["content"].as_array().unwrap().len(),
            blocks,
            "{called}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_resources_comes_in_pages() {
    let fleet = Fleet::start("", &[]).await;
    let mut expected = Vec::new();
    for round in 0..23 {
        fleet.record(&streams(&format!("r{round}-"), 10, 10));
        let reply = fleet.host.call("fleet_show", parse(ALL)).await;
        expected.push(reply.complete().unwrap().id);
    }
    let (mut after, mut found, mut sizes) = (None, Vec::new(), Vec::new());
    loop {
        let page = fleet
            .host
            .host()
            .results()
            .list("", after.as_deref())
            .await
            .unwrap()
            .unwrap();
        sizes.push(page.items.len());
        found.extend(page.items.iter().map(|held| match held {
            Held::Kept(stored) => stored.id,
            Held::Promised(promised) => promised.id,
        }));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [10, 10, 3]);
    found.sort_by_key(ToString::to_string);
    expected.sort_by_key(ToString::to_string);
    assert_eq!(found, expected);
}

/// A server of S3 over a folder, on a port of its own.
pub(crate) async fn bucket_server(root: &Path) -> String {
    std::fs::create_dir(root.join("agents")).unwrap();
    let mut builder = s3s::service::S3ServiceBuilder::new(s3s_fs::FileSystem::new(root).unwrap());
    builder.set_auth(s3s::auth::SimpleAuth::from_single("tests", "secret"));
    let service = builder.build();
    let serve = move |request: axum::extract::Request| {
        let service = service.clone();
        async move {
            let answer = service.call(request.map(s3s::Body::http_body_unsync)).await;
            answer.unwrap().map(axum::body::Body::new)
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(serve)).await });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_over_one_bucket_give_the_pages_of_one_answer_by_turns() {
    let root = tempfile::tempdir().unwrap();
    let endpoint = bucket_server(root.path()).await;
    // The key that signs cursors is in the store.
    let postgres = Postgres::start();
    let store = postgres.url();
    let config = orders(&format!(
        "store = {store:?}\npublic_url = \"https://plimsoll.example.com\"\n[results]\nlocation = \"s3://agents/kept\"\nendpoint = \"{endpoint}\"\nregion = \"eu-west-1\"\n"
    ));
    let environment = [
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let hosts = [(); 2].map(|()| HostProcess::start_with(&config, &environment));
    // More than one part of an upload: 11 MB.
    let mut next = Some(json!({"fields": ["id"], "limit": 100}));
    let (mut ids, mut page) = (Vec::new(), 0);
    while let Some(arguments) = next.filter(|_| page < 40) {
        let (status, receipt, body) = hosts[page % 2].call("list_orders", arguments).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(receipt["before"], ids.len());
        ids.extend(
            body.as_array()
                .unwrap()
                .iter()
                .map(|row| row["id"].as_str().unwrap().to_owned()),
        );
        next = receipt["next_after"]
            .as_str()
            .map(|after| json!({"after": after}));
        page += 1;
    }
    assert_eq!(ids.len(), 4_000);
    assert!(ids.is_sorted_by(|a, b| a < b));
    // A query that is too long for its cursor is where both find it.
    let statuses = ["open", "packed", "shipped", "delivered"].repeat(20);
    let long = json!({"horizon": "all", "detail": "full", "customer": "C-0042", "status": statuses, "limit": 1});
    let (status, receipt, body) = hosts[0].call("list_orders", long).await;
    assert_eq!(status, 200, "{body}");
    let after = json!({"after": receipt["next_after"]});
    let (status, receipt, body) = hosts[1].call("list_orders", after).await;
    assert_eq!((status, &receipt["before"]), (200, &json!(1)), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_while_it_stores_a_result_leaves_no_rows_behind() {
    use tokio::io::AsyncReadExt;
    // A bucket that takes requests and never answers.
    let bucket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", bucket.local_addr().unwrap());
    let config = orders(&format!(
        "[results]\nlocation = \"s3://agents\"\nendpoint = \"{endpoint}\"\nregion = \"eu-west-1\"\n"
    ));
    let environment = [
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let mut host = HostProcess::start_with(&config, &environment);
    let url = format!("{}/v1/tools/list_orders", host.url);
    let calling = tokio::spawn(async move { reqwest::Client::new().post(url).send().await });
    let mut open = Vec::new();
    loop {
        let (mut connection, _) = bucket.accept().await.unwrap();
        let mut request = [0; 4];
        connection.read_exact(&mut request).await.unwrap();
        open.push(connection);
        // The others list what is there; this one begins to store 14 MB, which wait in the spool.
        if request == *b"POST" {
            break;
        }
    }
    host.kill();
    assert!(calling.await.unwrap().is_err());
    assert_eq!(files(&host.state().join("spool")), Vec::<PathBuf>::new());
    assert_eq!(files(&host.state().join("results")), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_bucket_is_out_of_reach_answers_go_on_and_are_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let endpoint = bucket_server(root.path()).await;
    let config = orders(&format!(
        "[results]\nlocation = \"s3://agents/kept\"\nendpoint = \"{endpoint}\"\nregion = \"eu-west-1\"\n"
    ));
    // A key that the server does not know.
    let environment = [
        ("AWS_ACCESS_KEY_ID", "tests"),
        ("AWS_SECRET_ACCESS_KEY", "wrong"),
    ];
    let host = HostProcess::start_with(&config, &environment);
    let (status, receipt, _) = host.call("list_orders", json!({})).await;
    assert_eq!(status, 200);
    let notices = receipt["notices"].to_string();
    assert!(
        notices.contains("The complete result is not kept: the host could not store it."),
        "{notices}"
    );
}

/// The link in a browser, as a person uses it: what the page shows is what the facts say, and what was left out can be
/// searched, sorted and downloaded.
#[tokio::test(flavor = "multi_thread")]
async fn the_link_opens_in_a_browser_with_the_rows_of_the_facts() {
    let node = root().join("target/clients/node");
    assert!(
        node.exists(),
        "`{}` is missing: run `make clients`",
        node.display()
    );
    let host = TestHost::start(&orders("")).await;
    let _served = host.serve().await;
    let reply = host
        .call(
            "list_orders",
            json!({"limit": 10, "max_tokens": 2_000, "detail": "full"}),
        )
        .await;
    let first = facts(&reply);
    assert!(
        first["budget_rows_dropped"].as_u64().unwrap() > 0 || first["returned"] == 10,
        "{first}"
    );
    let folder = tempfile::tempdir().unwrap();
    let mut command = assert_cmd::Command::new(node);
    command
        .arg(root().join("tests/clients/result.mjs"))
        .arg(first["link"].as_str().unwrap())
        .arg(folder.path())
        .args(["C-0042 delivered", "placed"])
        .env("HOME", folder.path())
        .timeout(std::time::Duration::from_secs(120));
    let output = tokio::task::block_in_place(|| command.output()).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    if let Some(kept) = std::env::var_os("PLIMSOLL_PICTURES") {
        for file in files(folder.path())
            .iter()
            .filter(|file| file.extension().is_some_and(|end| end == "png"))
        {
            std::fs::copy(file, Path::new(&kept).join(file.file_name().unwrap())).unwrap();
        }
    }
    let report = parse(text.trim());

    assert_eq!(
        (&report["complaints"], &report["elsewhere"]),
        (&json!([]), &json!([]))
    );
    let opened = &report["opened"];
    assert_eq!(opened["state"], "ready");
    assert_eq!(opened["rows"], first["matched_count"]);
    assert_eq!(opened["status"], "36,398 rows");
    assert_eq!(
        opened["account"],
        "36,398 rows of 40,000: 3,602 hidden by the tool's horizon"
    );
    assert_eq!(
        opened["columns"],
        json!([
            "id", "customer", "status", "placed", "items", "cents", "town"
        ])
    );
    // Only the rows that can be seen are drawn, whichever those are.
    assert!(opened["drawn"].as_u64().unwrap() < 100, "{opened}");
    assert_eq!(
        (&opened["first"][0], &report["end"]["last"]),
        (&json!("1"), &json!("36398"))
    );
    let column = |state: &str, name: &str| {
        let columns = report[state]["columns"].as_array().unwrap();
        let place = columns.iter().position(|column| column == name).unwrap();
        report[state]["first"][place + 1]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        report["ascending"]["sorted"],
        json!([["placed", "ascending"]])
    );
    assert_eq!(
        report["descending"]["sorted"],
        json!([["placed", "descending"]])
    );
    assert_eq!(report["unsorted"]["sorted"], json!([]));
    assert!(column("descending", "placed") > column("ascending", "placed"));
    assert_eq!(column("descending", "status"), "open");
    let found = report["found"]["rows"].as_u64().unwrap();
    let orders = host
        .call(
            "list_orders",
            json!({"customer": "C-0042", "status": "delivered", "limit": 100}),
        )
        .await;
    assert_eq!(facts(&orders)["matched_count"], found);
    assert_eq!(report["found"]["status"], format!("{found} of 36,398 rows"));
    assert_eq!(
        (&report["row"]["isOpen"], &report["row"]["isClosed"]),
        (&json!(true), &json!(true))
    );
    assert!(
        report["row"]["fields"]
            .as_array()
            .unwrap()
            .contains(&json!("ship_to")),
        "{report}"
    );
    // The column that was taken away is not in the download; every row is.
    assert_eq!(
        report["chosen"]["columns"],
        json!(["id", "customer", "status", "items", "cents", "town"])
    );
    let download = &report["download"];
    assert_eq!(
        (&download["state"], &download["name"]),
        (&json!("completed"), &json!("list_orders.csv"))
    );
    assert_eq!(
        (&download["header"], &download["rows"]),
        (
            &json!("id,customer,status,items,cents,town"),
            &json!(36_398)
        )
    );
    assert_eq!(report["phone"]["isWider"], false);
    assert!(report["phone"]["rows"].as_u64().unwrap() > 5);
}
