//! The plugin `sql` against real databases: a file of SQLite, and a PostgreSQL server.

use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll::app::App;
use plimsoll::call::Caller;
use plimsoll::config::Config;
use plimsoll::examples;
use plimsoll::shape::{Code, Reply};
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};
use tempfile::TempDir;

use crate::cases;
use crate::postgres::Postgres;
use crate::support::{TestHost, component, json as parse, plimsoll, root, write_state};

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// The entry of the plugin.
fn entry(url: &str, more: &str, config: &str) -> String {
    format!(
        "[plugins.sql]\ncomponent = {:?}\n[plugins.sql.connections.shop]\nurl = {url:?}\n{more}\n[plugins.sql.config]\n\
         connection = \"shop\"\n{config}\n",
        component("plugins/sql.wasm")
    )
}

/// A folder with a copy of the examples' database.
fn shop() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = root().join("plugins/sql/examples/data/shop.db");
    std::fs::copy(file, folder.path().join("shop.db")).unwrap();
    folder
}

async fn sqlite(more: &str, config: &str) -> TestHost {
    TestHost::start_in(shop(), &entry("sqlite:shop.db", more, config))
        .await
        .unwrap()
}

/// A statement against a file of SQLite, beside the host.
pub(crate) async fn execute(file: &Path, statement: &str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .create_if_missing(true);
    let mut connection = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

fn rows(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    match parse(reply.body()) {
        Value::Array(rows) => rows,
        other => panic!("expected rows, found {other}"),
    }
}

async fn refusal(host: &TestHost, tool: &str, arguments: Value) -> (Code, String) {
    let reply = host.call(tool, arguments).await;
    let code = reply
        .refusal()
        .unwrap_or_else(|| panic!("it was answered: {}", reply.body()));
    let message = parse(reply.body())["message"].as_str().unwrap().to_owned();
    (code, message)
}

async fn query(host: &TestHost, sql: &str) -> Vec<Value> {
    rows(&host.call("run_query", json!({"sql": sql})).await)
}

async fn query_refusal(host: &TestHost, sql: &str) -> (Code, String) {
    refusal(host, "run_query", json!({"sql": sql})).await
}

/// All rows, page by page: the bodies' rows in order.
async fn all(host: &TestHost, tool: &str, arguments: Value) -> Vec<Value> {
    let mut reply = host.call(tool, arguments).await;
    let mut found = rows(&reply);
    while reply.next_after().is_some() {
        let next = parse(reply.facts())["next"].clone();
        reply = host.call(tool, next).await;
        found.extend(rows(&reply));
    }
    found
}

fn ids(rows: &[Value]) -> Vec<i64> {
    rows.iter().map(|row| row["id"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_come_out_as_documented() {
    let examples = root().join("plugins/sql/examples");
    let folder = tempfile::tempdir().unwrap();
    write_state(folder.path());
    let mut config = Config::read(&examples.join("plimsoll.toml")).unwrap();
    config.state.value = folder.path().to_owned();
    config.store = plimsoll::store::Location::Folder(folder.path().to_owned());
    let app = App::open_signing_with(config, examples::SIGNING_KEY)
        .await
        .unwrap();
    app.load().await.unwrap();
    let host = TestHost::of(app, folder);
    for folder in cases::folders(&examples) {
        let case = cases::read(&folder);
        cases::run(&host, &folder, &case)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_sqlite_are_listed_filtered_and_paged_by_their_keys() {
    let host = sqlite("", "tables = \"*\"").await;
    let orders = all(&host, "list_orders", json!({"limit": 7})).await;
    assert_eq!(ids(&orders), (1..=400).collect::<Vec<_>>());
    assert_eq!(
        orders[0],
        json!({"id": 1, "customer": 8, "placed": "2026-01-04", "state": "packed", "pence": 287, "weight": 1.625})
    );
    let open = all(
        &host,
        "list_orders",
        json!({"state": ["open", "packed"], "customer": 1}),
    )
    .await;
    assert_eq!(ids(&open), [60, 120, 180, 240, 300, 360]);
    // The host compares text by its content, and so does what is pushed down.
    let found = host.call("list_orders", json!({"state": "OPEN"})).await;
    assert_eq!(rows(&found), Vec::<Value>::new());
    let found = host
        .call("list_orders", json!({"weight": 1.625, "limit": 1}))
        .await;
    assert_eq!(ids(&rows(&found)), [1]);
    let found = host
        .call("list_orders", json!({"limit": 2, "fields": ["pence"]}))
        .await;
    assert_eq!(rows(&found), [json!({"pence": 287}), json!({"pence": 324})]);
    let (code, message) = refusal(&host, "list_orders", json!({"fields": ["price"]})).await;
    assert_eq!(code, Code::InvalidArguments);
    assert!(message.contains("weight"), "{message}");
    let found = host.call("get_orders", json!({"key": 400})).await;
    assert_eq!(parse(found.body())["id"], 400);
    let (code, message) = refusal(&host, "get_orders", json!({"key": 401})).await;
    assert_eq!(
        (code, message.as_str()),
        (Code::NotFound, "no row of `orders` has the id 401")
    );
}

/// What reaches the host is what the caller asked for: the receipt counts it, and a column that nobody asked for is not
/// computed.
#[tokio::test(flavor = "multi_thread")]
async fn limit_filters_and_fields_are_carried_out_by_the_database() {
    let folder = shop();
    execute(
        &folder.path().join("shop.db"),
        "CREATE VIEW broken AS SELECT id, json('{') AS bad FROM orders",
    )
    .await;
    let config = entry("sqlite:shop.db", "", "tables = \"orders, broken(id)\"");
    let host = TestHost::start_in(folder, &config).await.unwrap();
    let reply = host
        .call("list_orders", json!({"state": "open", "limit": 5}))
        .await;
    assert_eq!(ids(&rows(&reply)), [4, 8, 12, 16, 20]);
    let came_in = |reply: &Reply| reply.receipt().unwrap().passages[0].rows_in;
    assert_eq!(came_in(&reply), 6);
    let next = parse(reply.facts())["next"].clone();
    let reply = host.call("list_orders", next).await;
    assert_eq!(ids(&rows(&reply)), [24, 28, 32, 36, 40]);
    assert_eq!(came_in(&reply), 6);
    let reply = host
        .call("list_broken", json!({"fields": ["id"], "limit": 2}))
        .await;
    assert_eq!(ids(&rows(&reply)), [1, 2]);
    assert_eq!(
        refusal(&host, "list_broken", json!({})).await,
        (
            Code::InvalidInput,
            "the database says: malformed JSON".to_owned()
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_two_columns_pages_and_finds_a_row() {
    let host = sqlite("", "tables = \"lines\"").await;
    let lines = all(&host, "list_lines", json!({"limit": 99})).await;
    let keys: Vec<(i64, i64)> = lines
        .iter()
        .map(|line| {
            (
                line["order_id"].as_i64().unwrap(),
                line["place"].as_i64().unwrap(),
            )
        })
        .collect();
    let expected: Vec<_> = (1..=400)
        .flat_map(|order| [(order, 1), (order, 2)])
        .collect();
    assert_eq!(keys, expected);
    assert_eq!(lines[799]["_key"], "[400,2]");
    let found = host.call("get_lines", json!({"key": "[400,2]"})).await;
    assert_eq!(parse(found.body()), lines[799]);
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_saved_queries_have_the_key_that_the_operator_names() {
    let queries = "queries = '''\n[late]\ndescription = \"Late orders.\"\nsql = \"\"\"SELECT id, placed FROM orders WHERE \
                   placed < $1 AND ($2 IS NULL OR customer = $2);\"\"\"\nkey = \"id\"\nparameters = [{ name = \"before\", \
                   type = \"text\", description = \"A day.\" }, { name = \"customer\", type = \"integer\", description = \
                   \"Whose.\", required = false }]\n'''\n";
    let config = format!("tables = \"open_orders(id)\"\n{queries}");
    let host = sqlite("", &config).await;
    let open = all(&host, "list_open_orders", json!({"limit": 9})).await;
    assert_eq!(
        ids(&open),
        (1..=100).map(|order| order * 4).collect::<Vec<_>>()
    );
    let late = all(
        &host,
        "list_late",
        json!({"before": "2026-01-31", "limit": 3}),
    )
    .await;
    assert_eq!(late.len(), 40, "{late:?}");
    assert!(
        late.iter()
            .all(|order| order["placed"].as_str() < Some("2026-01-31"))
    );
    let of_one = all(
        &host,
        "list_late",
        json!({"before": "2026-01-31", "customer": 8}),
    )
    .await;
    assert_eq!(ids(&of_one), [1, 301]);
    let (code, _) = refusal(&host, "list_late", json!({"customer": 8})).await;
    assert_eq!(code, Code::InvalidArguments);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_sqlite_are_exact() {
    let host = sqlite("", "run_query = \"true\"").await;
    let reply = host
        .call(
            "run_query",
            json!({"sql": "SELECT 9007199254740993 AS n, 0.1 AS r, 9e999 AS i, -9e999 AS j, x'00ff' AS b, 'é\"\n' AS t, NULL AS z, \
                           1.0 AS one"}),
        )
        .await;
    assert_eq!(
        reply.body(),
        "[\n{\"n\":9007199254740993,\"r\":0.1,\"i\":\"Infinity\",\"j\":\"-Infinity\",\"b\":\"AP8=\",\"t\":\"é\\\"\\n\",\"z\":null,\"one\":1.0}\n]"
    );
    let (_, message) = query_refusal(&host, "SELECT 1 AS a, 2 AS a").await;
    assert_eq!(
        message,
        "two columns of the statement are called `a`: expected a name for each, such as with AS"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_sqlite_is_only_read_and_nothing_beyond_it() {
    let host = sqlite("", "run_query = \"true\"").await;
    let file = host.folder().join("other.db");
    execute(&file, "CREATE TABLE t (a)").await;
    for (sql, expected) in [
        (
            "DELETE FROM orders",
            "expected a statement that begins with one of SELECT, VALUES, WITH, found `DELETE`; the connection only reads, and the \
             operator can grant `write = true`",
        ),
        (
            "WITH a AS (SELECT 1) INSERT INTO customers SELECT 99, 'x', 'y'",
            "the connection `shop` only reads, and the statement would write. Expected a statement that reads; the operator can \
             grant `write = true`",
        ),
        (
            "SELECT 1; SELECT 2",
            "expected one statement, found a second one behind `;`",
        ),
        (
            "SELECT nowhere",
            "the database says: no such column: nowhere",
        ),
    ] {
        assert_eq!(
            query_refusal(&host, sql).await,
            (Code::InvalidInput, expected.to_owned()),
            "{sql}"
        );
    }
    for sql in [
        format!("ATTACH '{}' AS other", file.display()),
        String::from("PRAGMA query_only = OFF"),
        String::from("VACUUM INTO 'copy.db'"),
        String::from("SELECT load_extension('x')"),
    ] {
        assert_eq!(
            query_refusal(&host, &sql).await.0,
            Code::InvalidInput,
            "{sql}"
        );
    }
    assert_eq!(
        query(&host, "SELECT count(*) AS n FROM orders").await,
        [json!({"n": 400})]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_granted_to_write_writes_and_says_how_much() {
    let host = sqlite("write = true", "run_query = \"true\"").await;
    let reply = host
        .call(
            "run_query",
            json!({"sql": "DELETE FROM lines WHERE order_id > 395"}),
        )
        .await;
    assert_eq!(reply.body(), "{\"changed\":10}");
    let returned = query(
        &host,
        "DELETE FROM lines WHERE order_id > 394 RETURNING place AS id",
    )
    .await;
    assert_eq!(ids(&returned), [1, 2]);
    assert_eq!(
        query(&host, "SELECT max(order_id) AS id FROM lines").await,
        [json!({"id": 394})]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_sqlite_ends_with_its_call() {
    let limits = "pool = 1\n[plugins.sql.limits]\ndeadline_ms = 1500";
    let host = sqlite(limits, "run_query = \"true\"").await;
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS i FROM n";
    assert_eq!(query_refusal(&host, endless).await.0, Code::InvokeTimeout);
    // The pool has one connection: this waits until the statement has let go of it.
    assert_eq!(query(&host, "SELECT 1 AS a").await, [json!({"a": 1})]);
    // A caller that goes away ends it too.
    {
        let call = query_refusal(&host, endless);
        tokio::select! {
            biased;
            _ = call => panic!("it came to an end"),
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(query(&host, "SELECT 2 AS a").await, [json!({"a": 2})]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_shown_stops_the_start_with_what_to_do() {
    let plain = format!(
        "[plugins.sql]\ncomponent = {:?}\n",
        component("plugins/sql.wasm")
    );
    let table = [
        (
            plain,
            "it wants `plimsoll:plugin/sql@0.1.0`, which its entry does not grant\nhint: add to `plimsoll.toml`\n[plugins.sql]\n\
             connections.NAME.url = \"postgres://USER@HOST/DATABASE\"",
        ),
        (
            entry("sqlite:missing.db", "", "tables = \"*\""),
            "granting the connection `shop`: the file `",
        ),
        (
            entry("sqlite:shop.db", "", "tables = \"order\""),
            "tables: nothing that the connection `shop` may read and that no other entry names is called `order`",
        ),
        (
            entry("sqlite:shop.db", "", "").replace("\"shop\"\n", "\"shops\"\ntables = \"*\"\n"),
            "no connection `shops` is granted; expected one of: shop",
        ),
        (
            entry(
                "postgres://nobody:hunter2@127.0.0.1:1/d",
                "",
                "tables = \"*\"",
            ),
            "the database of the connection `shop` does not answer. Call again later; the host's log says why",
        ),
        (
            entry(
                "sqlite:shop.db",
                "",
                "queries = '''\n[q]\ndescription = \"d\"\nsql = \"SELECT a FROM orders\"\n'''",
            ),
            "queries: `q`: the database says: no such column: a",
        ),
    ];
    for (config, expected) in table {
        let started = TestHost::start_in(shop(), &config).await;
        let error = format!("{:#}", started.err().expect(expected));
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn a_connection_is_shown_without_its_url() {
    let folder = shop();
    let config = entry("sqlite:shop.db", "", "tables = \"*\"");
    let other = "[plugins.sql.connections.other]\nurl = \"postgres://u:hunter2@127.0.0.1:1/d\"\nwrite = true\n";
    write_state(&folder.path().join(".plimsoll"));
    std::fs::write(
        folder.path().join("plimsoll.toml"),
        format!("{config}{other}"),
    )
    .unwrap();
    let run = |arguments: &[&str]| {
        let mut command = plimsoll();
        let output = command
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && !text.contains("hunter2"),
            "{text}"
        );
        text
    };
    let text = run(&["check"]);
    assert!(text.contains("other: PostgreSQL, read and write"), "{text}");
    assert!(
        text.contains("shop: SQLite in ") && text.contains("shop.db, read-only"),
        "{text}"
    );
    let component = component("plugins/sql.wasm");
    let component = component.to_str().unwrap();
    let text = run(&["inspect", component, "--plugin", "sql"]);
    assert!(text.contains("backend-with-tools"), "{text}");
    assert!(
        text.contains("the connection `other`, PostgreSQL, read and write"),
        "{text}"
    );
    let text = run(&["inspect", component]);
    assert!(
        text.contains("connections.NAME.url = \"postgres://USER@HOST/DATABASE\""),
        "{text}"
    );
}

/// A tenant reads its own database through the plugin that all tenants have.
#[test]
fn a_tenants_connection_takes_the_place_of_the_plugins() {
    let config = entry("sqlite:shop.db", "", "tables = \"*\"");
    let tenant = "[tenants.acme]\nplugins = [\"sql\"]\n[tenants.acme.grants.sql.connections.shop]\nurl = \"sqlite:acme.db\"\n";
    let config = Config::parse(&format!("{config}{tenant}"), Path::new("/etc/plimsoll")).unwrap();
    let shown = config.variant("sql", "acme").unwrap().grants.connections["shop"].to_string();
    assert_eq!(shown, "SQLite in /etc/plimsoll/acme.db, read-only");
}

/// What pgbench fills its accounts with.
fn account(aid: u64) -> Value {
    json!({"aid": aid, "bid": (aid - 1) / 100_000 + 1, "abalance": 0})
}

/// How many statements of the host run in the database. Those of the pool that wait do not.
async fn running(pool: &PgPool) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plimsoll' AND state <> 'idle'",
    )
    .fetch_one(pool)
    .await
    .unwrap()
}

/// Waits until so many run, by asking the database again.
async fn until_running(pool: &PgPool, count: i64) {
    let started = Instant::now();
    while running(pool).await != count {
        assert!(started.elapsed() < LONG, "never {count}");
    }
}

/// A million accounts: page 1,000 costs what page 1 does, the pages are the table, and nothing goes on that is over.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "compares times: `make test` runs it with nothing beside it"]
async fn a_million_accounts_are_paged_by_key_and_nothing_runs_on() {
    const ACCOUNTS: u64 = 1_000_000;
    let postgres = Postgres::start();
    postgres.fill(10);
    let pool = PgPool::connect(&postgres.url()).await.unwrap();
    let tools =
        "[plugins.sql.tools.list_pgbench_accounts]\nmax_limit = 10000\ncap_bytes = 4000000\n";
    let config = entry(
        &postgres.url(),
        "",
        "tables = \"pgbench_*\"\nrun_query = \"true\"",
    );
    let host = TestHost::start(&format!("{config}{tools}")).await;
    let tool = "list_pgbench_accounts";

    // Every page of 10,000, against what pgbench writes.
    let mut aid = 0;
    let mut arguments = json!({"limit": 10_000, "fields": ["aid", "bid", "abalance"]});
    loop {
        let reply = host.call(tool, arguments).await;
        for row in rows(&reply) {
            aid += 1;
            assert_eq!(row, account(aid));
        }
        match reply.next_after() {
            Some(next) => arguments = json!({ "after": next }),
            None => break,
        }
    }
    assert_eq!(aid, ACCOUNTS);

    // The way to page 1,000 of 100 rows.
    let first = json!({"limit": 100});
    let mut next = first.clone();
    for page in 1..1_000 {
        let reply = host.call(tool, next).await;
        assert_eq!(reply.refusal(), None, "page {page}");
        next = json!({"after": reply.next_after().unwrap()});
    }
    let last = rows(&host.call(tool, next.clone()).await);
    let expected: Vec<u64> = (99_901..=100_000).collect();
    let aids: Vec<u64> = last
        .iter()
        .map(|row| row["aid"].as_u64().unwrap())
        .collect();
    assert_eq!(aids, expected);
    assert_eq!(last[0]["filler"], " ".repeat(84));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..31 {
        for (page, times) in [&first, &next].into_iter().zip(&mut times) {
            let started = Instant::now();
            host.call(tool, page.clone()).await;
            times.push(started.elapsed());
        }
    }
    let [first, last] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    println!("page 1: {first:?}, page 1,000: {last:?}");
    assert!(
        last < first * 3 / 2,
        "page 1: {first:?}, page 1,000: {last:?}"
    );

    // An estimate is no count.
    let reply = host.call(tool, json!({"limit": 1})).await;
    assert_eq!(parse(reply.facts())["total_count"], Value::Null);

    // Rows that nobody waits for: a caller that goes away, and a call whose time is over.
    let everything = "SELECT a.aid AS a, b.aid AS b FROM pgbench_accounts a, pgbench_accounts b";
    let call = query(&host, everything);
    tokio::select! {
        _ = call => panic!("it came to an end"),
        () = until_running(&pool, 1) => {}
    }
    until_running(&pool, 0).await;
    let settings = "[plugins.sql.limits]\ndeadline_ms = 1500\n";
    let host = TestHost::start(&format!("{config}{settings}")).await;
    let (code, _) = query_refusal(&host, "SELECT pg_sleep(60)").await;
    assert_eq!(code, Code::InvokeTimeout);
    until_running(&pool, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_runs_one_statement_that_reads() {
    let postgres = Postgres::start();
    let pool = PgPool::connect(&postgres.url()).await.unwrap();
    sqlx::raw_sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
        .execute(&pool)
        .await
        .unwrap();
    let host = TestHost::start(&entry(&postgres.url(), "", "run_query = \"true\"")).await;
    let only_reads = "the connection `shop` only reads, and the statement would write. Expected a statement that reads; the \
                      operator can grant `write = true`";
    let no_rows = "the statement returns no rows, and the connection only reads: expected SELECT, VALUES, TABLE or WITH";
    for (sql, expected) in [
        ("DELETE FROM t", no_rows),
        ("DROP TABLE t", no_rows),
        ("COMMIT", no_rows),
        ("DELETE FROM t RETURNING id", only_reads),
        (
            "SELECT nextval('s')",
            "the database says: relation \"s\" does not exist",
        ),
        (
            "SELECT 1; DELETE FROM t",
            "the database says: cannot insert multiple commands into a prepared statement",
        ),
        (
            "SELECT 1) SELECT 2; --",
            "the database says: syntax error at or near \")\"",
        ),
        (
            "SELECT set_config('transaction_read_only', 'off', true)",
            "the database says: transaction read-write mode must be set before any query",
        ),
        (
            "SELECT 1 AS a, 2 AS a",
            "two columns of the statement are called `a`: expected a name for each, such as with AS",
        ),
        ("SELECT 1/0 AS a", "the database says: division by zero"),
    ] {
        assert_eq!(
            query_refusal(&host, sql).await,
            (Code::InvalidInput, expected.to_owned()),
            "{sql}"
        );
    }
    // What a statement leaves in its session does not meet the next one: the pool would hand out the same connection.
    query(&host, "SELECT set_config('search_path', 'x', false) AS a").await;
    query(&host, "SELECT pg_advisory_lock(7) AS a").await;
    assert_eq!(query(&host, "TABLE t;").await, [json!({"id": 1})]);
    let locks: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            .fetch_one(&pool)
            .await
            .unwrap();
    assert_eq!(locks, 0);

    let host = TestHost::start(&entry(
        &postgres.url(),
        "write = true",
        "run_query = \"true\"",
    ))
    .await;
    let reply = host
        .call(
            "run_query",
            json!({"sql": "INSERT INTO t VALUES (2), (3) -- two"}),
        )
        .await;
    assert_eq!(reply.body(), "{\"changed\":2}");
    assert_eq!(
        ids(&query(&host, "DELETE FROM t WHERE id > 2 RETURNING id").await),
        [3]
    );
    assert_eq!(
        query_refusal(&host, "DROP TABLE t").await.0,
        Code::InvalidInput
    );
    let left = sqlx::query("SELECT id FROM t ORDER BY id")
        .fetch_all(&pool)
        .await
        .unwrap();
    let left: Vec<i32> = left.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_postgres_are_exact_and_so_are_filters_by_them() {
    let postgres = Postgres::start();
    let pool = PgPool::connect(&postgres.url()).await.unwrap();
    sqlx::raw_sql(
        r#"CREATE TYPE mood AS ENUM ('calm', 'Rough "sea"');
        CREATE SCHEMA "odd ""one";
        CREATE TABLE "odd ""one"."My Table" (
            "a""b" uuid PRIMARY KEY, i8 int8, n numeric, f float8, t timestamptz, d date, j json, jb jsonb, b bytea, bs bytea[],
            s text[], m mood, o boolean, c char(5), r int4range, z text);
        COMMENT ON TABLE "odd ""one"."My Table" IS 'Of everything some.';
        INSERT INTO "odd ""one"."My Table" VALUES
            ('00000000-0000-0000-0000-00000000000a', 9007199254740993, 12345678901234567890.10, 'NaN', '2026-01-02 03:04:05.678901+02',
             '2026-01-02', E'{"b": 1.0,\n "a": [1.50]}', '{"b": 1.0, "a": 2}', '\x00ff', ARRAY['\x00'::bytea, NULL], ARRAY['x', NULL, 'y"'],
             'Rough "sea"', true, 'ab', '[1,5)', NULL),
            ('00000000-0000-0000-0000-00000000000b', -1, 'NaN', '-Infinity', 'infinity', NULL, '[]', 'null', decode(repeat('00', 60), 'hex'),
             NULL, '{}', 'calm', false, NULL, NULL, '');"#,
    )
    .execute(&pool)
    .await
    .unwrap();
    let host = TestHost::start(
        &entry(&postgres.url(), "pool = 1", "tables = 'odd \"one.*'").replace("odd \"one.*", "*.*"),
    )
    .await;
    let tool = "list_odd__one_my_table";
    let reply = host.call(tool, json!({})).await;
    let expected = format!(
        "[\n{}\n]",
        [
            r#"{"a\"b":"00000000-0000-0000-0000-00000000000a","i8":9007199254740993,"n":12345678901234567890.10,"f":"NaN","t":"2026-01-02T01:04:05.678901+00:00","d":"2026-01-02","j":{"b": 1.0,  "a": [1.50]},"jb":{"a": 2, "b": 1.0},"b":"AP8=","bs":["AA==",null],"s":["x",null,"y\""],"m":"Rough \"sea\"","o":true,"c":"ab   ","r":"[1,5)","z":null}"#,
            &format!(
                r#"{{"a\"b":"00000000-0000-0000-0000-00000000000b","i8":-1,"n":"NaN","f":"-Infinity","t":"infinity","d":null,"j":[],"jb":null,"b":"{}","bs":null,"s":[],"m":"calm","o":false,"c":null,"r":null,"z":""}}"#,
                "A".repeat(80)
            ),
        ]
        .join(",\n")
    );
    assert_eq!(reply.body(), expected);
    for (filter, count) in [
        (json!({"i8": 9007199254740993_i64}), 1),
        (json!({"i8": 9007199254740992_i64}), 0),
        (json!({"m": "Rough \"sea\""}), 1),
        (json!({"d": "2026-01-02"}), 1),
        // The same day in other letters, which the host would take for another.
        (json!({"d": "2026-1-2"}), 0),
        (json!({"o": [true, false]}), 2),
        (json!({"z": "'; DROP TABLE x; --"}), 0),
    ] {
        let reply = host.call(tool, filter.clone()).await;
        assert_eq!(rows(&reply).len(), count, "{filter}");
    }
    let (code, message) = refusal(&host, tool, json!({"m": "angry"})).await;
    assert_eq!(
        (code, message.as_str()),
        (
            Code::InvalidInput,
            "the database says: invalid input value for enum mood: \"angry\""
        )
    );
    let backends = || async {
        sqlx::query_scalar::<_, i32>(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'plimsoll' ORDER BY pid",
        )
        .fetch_all(&pool)
        .await
        .unwrap()
    };
    let before = backends().await;
    let found = host
        .call(
            "get_odd__one_my_table",
            json!({"key": "00000000-0000-0000-0000-00000000000b"}),
        )
        .await;
    assert_eq!(parse(found.body())["i8"], -1);
    // A statement that came to its end leaves its connection in the pool.
    assert_eq!((before.len(), backends().await), (1, before));
    let page = host.call(tool, json!({"limit": 1})).await;
    let next = host
        .call(tool, json!({"after": page.next_after().unwrap()}))
        .await;
    assert_eq!(rows(&next)[0]["i8"], -1);
    assert_eq!(next.next_after(), None);
    let listed = host
        .host()
        .tool(&Caller::default(), tool)
        .unwrap()
        .listed
        .to_string();
    assert!(listed.contains("Of everything some."), "{listed}");
}
