//! Complete results that are promised: the plugin did not hand over every row, and the call is run to its end when the
//! result is first opened.

use std::path::Path;

use futures::future::join_all;
use plimsoll::call::Caller;
use plimsoll::results::{Held, TenantFolder, now};
use plimsoll::shape::{Code, Reply};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::results::{expire, files, get};
use crate::support::{HostProcess, TestHost, component, hostile, json as parse, object};
use crate::tenants::command;

const WITH_LINK: &str = "The other rows were not fetched: the complete result is made when its resource, or \"link\", where \
                         people can see, search and download it, is first opened, from the data of that time.";
const WITHOUT_LINK: &str = "The other rows were not fetched: the complete result is made when its resource is first opened, \
                            from the data of that time.";

/// A handler that pushes rows, says how many there are and stops once it hears enough. What it has can be changed.
struct Shelf(TempDir);

impl Shelf {
    fn new(rows: &[String]) -> Self {
        let shelf = Self(tempfile::tempdir().unwrap());
        shelf.fill(rows, &["read_only"]);
        shelf
    }

    fn fill(&self, rows: &[String], annotations: &[&str]) {
        let tools = json!([{
            "name": "list_rows",
            "description": "Lists rows.",
            "shape": {"key": "id"},
            "annotations": annotations,
            "answer": "rows.ndjson",
            "how": "rows",
            "piece_bytes": 1,
            "total": rows.len(),
        }]);
        let write =
            |name: &str, text: String| std::fs::write(self.0.path().join(name), text).unwrap();
        write("tool.json", tools.to_string());
        write("rows.ndjson", rows.join("\n") + "\n");
    }

    fn plugin(&self) -> String {
        format!(
            "[plugins.shelf]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/case\" }}]\n",
            component("guests/canned.wasm"),
            self.0.path()
        )
    }
}

/// Rows whose bytes nothing else would write.
fn rows(count: usize, name: &str) -> Vec<String> {
    (0..count)
        .map(|row| format!("{{\"id\": {row},\"n\":1e400, \"name\":\"{name}\"}}"))
        .collect()
}

fn facts(reply: &Reply) -> Value {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    parse(reply.facts())
}

fn notices(facts: &Value) -> Vec<&str> {
    let notices = facts["notices"].as_array().unwrap().iter();
    notices.map(|notice| notice.as_str().unwrap()).collect()
}

/// The account balances, and is that of so many rows.
fn balances(reply: &Reply, total: u64) {
    let receipt = reply.receipt().unwrap();
    let all = receipt.returned + receipt.hidden + receipt.filtered + receipt.before;
    assert_eq!(receipt.total, Some(total));
    assert_eq!(Some(all + receipt.after.unwrap()), receipt.total);
}

/// How many calls of all kinds the host has counted.
fn calls(host: &TestHost) -> u64 {
    let text = host.host().metrics();
    let counted = text
        .lines()
        .filter(|line| line.starts_with("plimsoll_calls_total{"));
    counted
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

fn link(reply: &Reply) -> String {
    facts(reply)["link"].as_str().unwrap().to_owned()
}

/// Every row of a result that is read as a resource, page by page, from its URI and then as its facts say.
async fn read_all(host: &TestHost, id: plimsoll::shape::ResultId, total: u64) -> Vec<String> {
    let (caller, mut uri, mut walked) = (Caller::default(), id.uri(), Vec::new());
    loop {
        let (id, after) = plimsoll::shape::ResultId::of_uri(&uri).unwrap();
        let page = host.host().read_result(&caller, id, after).await.unwrap();
        let facts = facts(&page);
        balances(&page, total);
        let made = notices(&facts)
            .iter()
            .any(|notice| notice.starts_with("These rows were fetched at 20") && notice.ends_with("Z, when the complete result was first opened: the data may have changed since the answer that pointed to it."));
        assert!(made, "{facts}");
        let body = page.body().strip_prefix("[\n").unwrap();
        let body = body.strip_suffix("\n]").unwrap();
        walked.extend(body.split(",\n").map(str::to_owned));
        match facts["next"]["uri"].as_str() {
            Some(next) => uri = next.to_owned(),
            None => return walked,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_stops_at_the_page_is_run_to_its_end_when_its_link_is_first_opened() {
    let kept = rows(60, "a");
    let shelf = Shelf::new(&kept);
    let host = TestHost::start(&shelf.plugin()).await;
    let _served = host.serve().await;
    let reply = host.call("list_rows", json!({})).await;
    balances(&reply, 60);
    assert!(
        notices(&facts(&reply)).contains(&WITH_LINK),
        "{}",
        reply.facts()
    );
    let complete = reply.complete().unwrap();
    assert_eq!(
        (
            complete.name.as_str(),
            complete.description.as_str(),
            complete.media_type
        ),
        (
            "list_rows-complete",
            "All rows of this answer of list_rows, fetched when it is first opened. Reading it gets them page by page.",
            "application/json"
        )
    );
    // The early stop stays: 25 rows and the one behind them came in.
    assert_eq!(reply.receipt().unwrap().passages[0].rows_in, 26);
    let before = calls(&host);
    let (status, _, whole) = get(&format!("{}/download", link(&reply))).await;
    assert_eq!(status, StatusCode::OK, "{whole}");
    assert_eq!(whole, format!("[\n{}\n]", kept.join(",\n")));
    assert_eq!(calls(&host), before + 1);
    // From now on it is what it was, whatever becomes of the data, and nothing runs.
    shelf.fill(&rows(3, "b"), &["read_only"]);
    let (status, _, page) = get(&link(&reply)).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert!(page.contains("<p class=\"account\">60 rows</p>"), "{page}");
    assert!(page.contains("<p class=\"until\">Fetched at 20"), "{page}");
    assert!(
        page.contains("Z, after the answer that points here. Kept until"),
        "{page}"
    );
    let (_, _, table) = get(&format!("{}/table", link(&reply))).await;
    assert_eq!(parse(&table)["rows"].as_array().unwrap().len(), 60);
    let (_, _, csv) = get(&format!("{}/download?format=csv&columns=0", link(&reply))).await;
    assert_eq!(csv.lines().count(), 61, "{csv}");
    assert_eq!(calls(&host), before + 1);
    assert_eq!(read_all(&host, complete.id, 60).await, kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn later_pages_of_the_answer_go_on_as_before_and_point_to_the_same_promise() {
    let shelf = Shelf::new(&rows(60, "a"));
    let host = TestHost::start(&shelf.plugin()).await;
    let first = host.call("list_rows", json!({})).await;
    assert!(
        notices(&facts(&first)).contains(&WITHOUT_LINK),
        "{}",
        first.facts()
    );
    let again = host.call("list_rows", json!({})).await;
    let second = host.call("list_rows", facts(&first)["next"].clone()).await;
    balances(&second, 60);
    assert_eq!(second.receipt().unwrap().before, 25);
    let id = first.complete().unwrap().id;
    assert_eq!(again.complete().unwrap().id, id);
    assert_eq!(second.complete().unwrap().id, id);
    let third = host.call("list_rows", facts(&second)["next"].clone()).await;
    assert_eq!(third.complete(), None);
    let folder = host.folder().join(".plimsoll/results/tenants");
    assert_eq!(files(&folder).len(), 1);
    // It is in the list of resources until it is made, and then what was made of it.
    let listed = async || {
        host.host()
            .results()
            .list("", None)
            .await
            .unwrap()
            .unwrap()
            .items
    };
    assert!(matches!(&listed().await[..], [Held::Promised(promised)] if promised.id == id));
    assert_eq!(read_all(&host, id, 60).await.len(), 60);
    let [Held::Kept(stored)] = &listed().await[..] else {
        panic!("what was made is listed once");
    };
    assert_ne!(stored.id, id);
    assert_eq!(files(&folder).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_after_the_result_was_made_has_a_promise_of_its_own() {
    let shelf = Shelf::new(&rows(60, "a"));
    let host = TestHost::start(&shelf.plugin()).await;
    let first = host
        .call("list_rows", json!({}))
        .await
        .complete()
        .unwrap()
        .id;
    assert_eq!(read_all(&host, first, 60).await, rows(60, "a"));
    shelf.fill(&rows(70, "b"), &["read_only"]);
    let second = host
        .call("list_rows", json!({}))
        .await
        .complete()
        .unwrap()
        .id;
    assert_ne!(first, second);
    assert_eq!(read_all(&host, second, 70).await, rows(70, "b"));
    assert_eq!(read_all(&host, first, 60).await, rows(60, "a"));
    let third = host
        .call("list_rows", json!({}))
        .await
        .complete()
        .unwrap()
        .id;
    assert!(third != first && third != second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_does_not_say_that_it_only_reads_is_not_run_by_a_link() {
    let shelf = Shelf::new(&rows(60, "a"));
    shelf.fill(&rows(60, "a"), &["idempotent"]);
    let host = TestHost::start(&shelf.plugin()).await;
    let reply = host.call("list_rows", json!({})).await;
    assert!(facts(&reply).get("next").is_some());
    assert_eq!(reply.complete(), None);
    assert!(files(&host.folder().join(".plimsoll/results/tenants")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn openings_at_the_same_time_make_it_once() {
    let kept = rows(5_000, "a");
    let shelf = Shelf::new(&kept);
    let host = TestHost::start(&shelf.plugin()).await;
    let _served = host.serve().await;
    let reply = host.call("list_rows", json!({})).await;
    let (link, before) = (link(&reply), calls(&host));
    let address = format!("{link}/download");
    let opened = join_all((0..12).map(|_| get(&address))).await;
    for (status, _, whole) in opened {
        assert_eq!(status, StatusCode::OK);
        assert_eq!(whole, format!("[\n{}\n]", kept.join(",\n")));
    }
    assert_eq!(calls(&host), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_is_followed_page_by_page_to_its_end() {
    let config = format!(
        "[plugins.ledger]\ncomponent = {:?}\n",
        component("plugins/ledger.wasm")
    );
    let host = TestHost::start(&config).await;
    let _served = host.serve().await;
    let reply = host.call("list_entries", json!({"limit": 3})).await;
    balances(&reply, 6_000);
    let (_, _, whole) = get(&format!("{}/download", link(&reply))).await;
    let ids: Vec<u64> = parse(&whole)
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (1..=6_000).collect::<Vec<_>>());
    // A page of the result has the account of the whole.
    let id = reply.complete().unwrap().id;
    let page = host
        .host()
        .read_result(&Caller::default(), id, None)
        .await
        .unwrap();
    balances(&page, 6_000);
    assert_eq!(facts(&page)["matched_count"], 6_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_a_backend_together_have_the_fuel_of_one_call() {
    let config = format!(
        "[plugins.ledger]\ncomponent = {:?}\n",
        component("plugins/ledger.wasm")
    );
    let page = object(json!({"limit": 100}));
    let caller = Caller::default();
    let host = TestHost::start(&config).await;
    let measured = host
        .host()
        .measure_named(&caller, "list_entries", page.clone());
    let fuel = measured.await.1.fuel;
    // Enough for three of its sixty pages.
    let limits = format!("{config}[plugins.ledger.limits]\nfuel = {}\n", 3 * fuel);
    let host = TestHost::start(&limits).await;
    let reply = host.host().call_named(&caller, "list_entries", page).await;
    let id = reply.complete().unwrap().id;
    let refused = host.host().read_result(&caller, id, None).await.unwrap();
    assert_eq!(
        refused.refusal(),
        Some(Code::OutOfFuel),
        "{}",
        refused.body()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_a_database_is_followed_with_its_filters_and_as_it_is_then() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.db");
    let fill = "CREATE TABLE items (id INTEGER PRIMARY KEY, kind TEXT); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 \
                FROM n WHERE i < 450) INSERT INTO items SELECT i, CASE WHEN i % 3 = 0 THEN 'rope' ELSE 'chain' END FROM n;";
    crate::sql::execute(&file, fill).await;
    let config = format!(
        "[plugins.sql]\ncomponent = {:?}\n[plugins.sql.connections.shop]\nurl = \"sqlite:shop.db\"\n[plugins.sql.config]\n\
         connection = \"shop\"\ntables = \"items\"\n",
        component("plugins/sql.wasm")
    );
    let host = TestHost::start_in(folder, &config).await.unwrap();
    let _served = host.serve().await;
    let ids = async |reply: &Reply| {
        let (_, _, whole) = get(&format!("{}/download", link(reply))).await;
        let whole = parse(&whole);
        let rows = whole.as_array().unwrap().iter();
        rows.map(|row| row["id"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    let all = host.call("list_items", json!({"limit": 10})).await;
    let ropes = host
        .call("list_items", json!({"kind": "rope", "limit": 10}))
        .await;
    assert_eq!(facts(&ropes)["total_count"], Value::Null);
    crate::sql::execute(
        &host.folder().join("shop.db"),
        "DELETE FROM items WHERE id > 430",
    )
    .await;
    assert_eq!(ids(&all).await, (1..=430).collect::<Vec<_>>());
    let expected: Vec<u64> = (1..=430).filter(|id| id % 3 == 0).collect();
    assert_eq!(ids(&ropes).await, expected);
    let id = all.complete().unwrap().id;
    balances(
        &host
            .host()
            .read_result(&Caller::default(), id, None)
            .await
            .unwrap(),
        430,
    );
    let id = ropes.complete().unwrap().id;
    let page = host
        .host()
        .read_result(&Caller::default(), id, None)
        .await
        .unwrap();
    // How many rows the database passed over, nobody says; all that match are here.
    assert_eq!(facts(&page)["matched_count"], expected.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_cannot_be_made_is_refused_and_stays_promised() {
    // Of one that waits between its pages the deadline ends the wait; another has more than is kept of a result.
    let shelf = Shelf::new(&rows(200, "a"));
    let config = format!(
        "[results]\nmax_bytes = 5_000\n{}{}[plugins.hostile.tools.slow_rest]\nkey = \"n\"\n",
        shelf.plugin(),
        hostile("deadline_ms = 1500")
    );
    let host = TestHost::start(&config).await;
    let _served = host.serve().await;
    let table = [
        ("slow_rest", Code::InvokeTimeout, 504, "1500 ms"),
        (
            "list_rows",
            Code::ResponseTooLarge,
            413,
            "The complete result is more than 5000 bytes, which is what the host keeps of one. Narrow the call of list_rows and \
             make it again: its answer has a new link.",
        ),
    ];
    for (tool, code, status, message) in table {
        let reply = host.call(tool, json!({})).await;
        assert!(facts(&reply).get("next").is_some(), "{}", reply.facts());
        let (found, _, page) = get(&link(&reply)).await;
        assert_eq!(found.as_u16(), status, "{page}");
        assert!(
            page.contains("<h1>This result cannot be shown just now</h1>"),
            "{page}"
        );
        assert!(page.contains(message), "{page}");
        let id = reply.complete().unwrap().id;
        let refused = host
            .host()
            .read_result(&Caller::default(), id, None)
            .await
            .unwrap();
        assert_eq!(refused.refusal(), Some(code), "{}", refused.body());
        let held = host
            .host()
            .results()
            .held(TenantFolder::of(""), id)
            .await
            .unwrap();
        assert!(matches!(held, Some(Held::Promised(promised)) if promised.promise.made.is_none()));
    }
    // Once it fits, the same promise is kept.
    let id = host
        .call("list_rows", json!({}))
        .await
        .complete()
        .unwrap()
        .id;
    shelf.fill(&rows(30, "b"), &["read_only"]);
    assert_eq!(read_all(&host, id, 30).await, rows(30, "b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promise_that_has_expired_leads_to_nothing_and_runs_nothing() {
    let shelf = Shelf::new(&rows(60, "a"));
    let host = TestHost::start(&shelf.plugin()).await;
    let _served = host.serve().await;
    let reply = host.call("list_rows", json!({})).await;
    let id = reply.complete().unwrap().id;
    let held = host
        .host()
        .results()
        .held(TenantFolder::of(""), id)
        .await
        .unwrap();
    let Some(Held::Promised(promised)) = held else {
        panic!("it is promised");
    };
    assert_eq!(promised.expires, promised.created + 3_600);
    assert!(promised.created.abs_diff(now()) < 60);
    expire(&host);
    let before = calls(&host);
    let (status, _, page) = get(&link(&reply)).await;
    assert_eq!(status, StatusCode::GONE);
    assert!(
        page.contains("<h1>This result is no longer kept</h1>"),
        "{page}"
    );
    assert!(
        host.host()
            .read_result(&Caller::default(), id, None)
            .await
            .is_none()
    );
    assert_eq!(calls(&host), before);
    // The next answer promises anew.
    assert!(host.call("list_rows", json!({})).await.complete().is_some());
    assert_eq!(read_all(&host, id, 60).await.len(), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn promises_count_in_a_tenants_size_and_are_swept() {
    let shelf = Shelf::new(&rows(60, "a"));
    let config = format!(
        "[results]\nkeep_seconds = 60\ntenant_bytes = 1_500\nmax_bytes = 1_500\n{}",
        shelf.plugin()
    );
    let host = TestHost::start(&config).await;
    let folder = host.folder().join(".plimsoll/results/tenants");
    for limit in 1..=20 {
        host.call("list_rows", json!({"limit": limit})).await;
    }
    let kept = files(&folder);
    let bytes: u64 = kept.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(
        (1..20).contains(&kept.len()) && bytes <= 4_000,
        "{} of {bytes} bytes",
        kept.len()
    );
    for file in &kept {
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(1_000);
        std::fs::File::open(file)
            .unwrap()
            .set_modified(past)
            .unwrap();
    }
    host.host().results().sweep().await.unwrap();
    assert!(files(&folder).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_that_make_it_each_keep_one_and_every_cursor_goes_on_in_its_own() {
    let shared = tempfile::tempdir().unwrap();
    // Each has data of its own, so that what they make differs.
    let shelves = ["a", "b"].map(|name| Shelf::new(&rows(60, name)));
    let mut hosts = Vec::new();
    for shelf in &shelves {
        let config = format!(
            "[results]\nlocation = {:?}\n{}",
            shared.path(),
            shelf.plugin()
        );
        hosts.push(TestHost::start(&config).await);
    }
    let id = hosts[0]
        .call("list_rows", json!({"limit": 10}))
        .await
        .complete()
        .unwrap()
        .id;
    let folder = TenantFolder::of("");
    let results = hosts[0].host().results();
    let unmade = files(&shared.path().join("tenants"));
    let [file] = &unmade[..] else {
        panic!("one promise")
    };
    let promise = std::fs::read(file).unwrap();
    let first = hosts[0]
        .host()
        .open_result(folder, id)
        .await
        .unwrap()
        .unwrap();
    let caller = Caller::default();
    let page = hosts[0]
        .host()
        .read_result(&caller, id, None)
        .await
        .unwrap();
    // As if the second had opened it before the first was done.
    std::fs::write(file, promise).unwrap();
    let second = hosts[1]
        .host()
        .open_result(folder, id)
        .await
        .unwrap()
        .unwrap();
    assert_ne!(first.id, second.id);
    // The first one's page goes on in the first one's rows, on either host, by the promise's URI as by its own.
    let after = page.next_after().unwrap();
    for (host, id) in [(0, id), (1, id), (0, first.id), (1, first.id)] {
        let next = hosts[host]
            .host()
            .read_result(&caller, id, Some(after))
            .await
            .unwrap();
        assert!(
            next.body()
                .contains("{\"id\": 10,\"n\":1e400, \"name\":\"a\"}"),
            "{}",
            next.body()
        );
        balances(&next, 60);
    }
    let other = hosts[1]
        .host()
        .read_result(&caller, second.id, Some(after))
        .await
        .unwrap();
    assert_eq!(other.refusal(), Some(Code::InvalidCursor));
    // Whoever opens it now finds what was made last, and nothing runs.
    let before = calls(&hosts[0]);
    assert_eq!(
        hosts[0]
            .host()
            .open_result(folder, id)
            .await
            .unwrap()
            .unwrap()
            .id,
        second.id
    );
    assert_eq!(calls(&hosts[0]), before);
    assert!(results.kept(folder, first.id).await.unwrap().is_some());
}

/// Tenants over a shelf, in a process of its own, and what its callers see.
struct Shop {
    host: HostProcess,
    shelf: Shelf,
}

impl Shop {
    fn config(shelf: &Shelf, more: &str) -> String {
        format!(
            "{}[tenants.acme]\nplugins = [\"*\"]\n{more}\n[tenants.globex]\nplugins = [\"*\"]\n",
            shelf.plugin()
        )
    }

    fn start(more: &str) -> Self {
        let shelf = Shelf::new(&rows(60, "a"));
        let host = HostProcess::start(&Self::config(&shelf, more));
        Self { host, shelf }
    }

    fn key(&self, tenant: &str, name: &str, more: &[&str]) -> String {
        let add = [&["keys", "add", tenant, "--name", name], more].concat();
        command(&self.host.config(), &add).unwrap()
    }

    /// Makes a call: the token of its link.
    async fn promise(&self, key: &str) -> String {
        let request = reqwest::Client::new().post(format!("{}/v1/tools/list_rows", self.host.url));
        let response = request.bearer_auth(key).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let links = response.headers().get_all("link").iter();
        let link = links
            .map(|link| link.to_str().unwrap())
            .find(|link| link.contains("collection"));
        let link = link.unwrap().split('>').next().unwrap();
        link.rsplit('/').next().unwrap().to_owned()
    }

    async fn open(&self, token: &str) -> (StatusCode, String) {
        let (status, _, text) = get(&format!("{}/results/{token}/download", self.host.url)).await;
        (status, text)
    }

    /// Rows of the ledger: tenant, key and outcome, with rows in and fuel.
    fn usage(&self, config: &Path) -> Vec<Value> {
        let by = ["usage", "--by", "tenant,key,outcome", "--format", "json"];
        command(config, &by).unwrap().lines().map(parse).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promise_survives_a_restart_and_is_charged_to_the_tenant_and_the_key_that_called() {
    let mut shop = Shop::start("");
    let key = shop.key("acme", "agent", &[]);
    let token = shop.promise(&key).await;
    shop.host = shop.host.restart();
    let (status, whole) = shop.open(&token).await;
    assert_eq!(status, StatusCode::OK, "{whole}");
    assert_eq!(whole, format!("[\n{}\n]", rows(60, "a").join(",\n")));
    shop.host.stop();
    let usage = shop.usage(&shop.host.config());
    let row = usage.iter().find(|row| row["tenant"] == "acme").unwrap();
    assert_eq!(
        (&row["outcome"], &row["calls"]),
        (&json!("answered"), &json!(2)),
        "{usage:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_quota_refuses_to_make_a_result_until_there_is_one_again() {
    let shop = Shop::start("");
    let key = shop.key("acme", "agent", &["--quota", "day.calls=1"]);
    let token = shop.promise(&key).await;
    let (status, page) = shop.open(&token).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{page}");
    assert!(
        page.contains("The quota of key agent for 1 calls a day is used up; it resets in"),
        "{page}"
    );
    command(
        &shop.host.config(),
        &["keys", "set", "acme/agent", "--quota", "day.calls=2"],
    )
    .unwrap();
    // A change reaches every replica within 5 s.
    let mut opened = shop.open(&token).await;
    while opened.0 == StatusCode::TOO_MANY_REQUESTS {
        opened = shop.open(&token).await;
    }
    assert_eq!(opened.1, format!("[\n{}\n]", rows(60, "a").join(",\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_or_expired_key_makes_no_result_any_more_for_people_and_agents() {
    let shop = Shop::start("");
    let key = shop.key("acme", "agent", &[]);
    let reader = shop.key("acme", "reader", &[]);
    let token = shop.promise(&key).await;
    command(&shop.host.config(), &["keys", "revoke", "acme/agent"]).unwrap();
    // Revoking reaches every replica within 5 s.
    let client = reqwest::Client::new();
    let is_revoked = async || {
        let request = client.post(format!("{}/v1/tools/list_rows", shop.host.url));
        request.bearer_auth(&key).send().await.unwrap().status() == StatusCode::UNAUTHORIZED
    };
    while !is_revoked().await {}
    let why = "The complete result is made for the key that called, and cannot be: the key was revoked; ask for a new one";
    let (status, page) = shop.open(&token).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{page}");
    assert!(page.contains(why), "{page}");
    // An agent with another key of the same tenant sees it listed and hears the same; one of another tenant sees nothing.
    let mcp = async |key: &str, method: &str, params: Value| {
        let client = crate::results::McpClient::with_key(&shop.host.url, key);
        client.ask(method, params).await
    };
    let listed = mcp(&reader, "resources/list", json!({})).await;
    let uri = listed["result"]["resources"][0]["uri"]
        .as_str()
        .unwrap()
        .to_owned();
    let read = mcp(&reader, "resources/read", json!({"uri": uri})).await;
    assert_eq!(read["error"]["data"]["error"], "forbidden", "{read}");
    assert_eq!(read["error"]["message"], why);
    let other = shop.key("globex", "other", &[]);
    let read = mcp(&other, "resources/read", json!({"uri": uri})).await;
    assert!(
        read["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("Resource not found"),
        "{read}"
    );
    let listed = mcp(&other, "resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"], json!([]));
    drop(shop.shelf);
}
