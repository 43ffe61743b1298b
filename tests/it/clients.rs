//! Other people's MCP software calls the host: the SDKs for Python and TypeScript, the conformance suite, mcpcheck and the
//! inspector. `tests/install clients` puts them into `target/clients`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::call::Caller;
use plimsoll::call::Host;
use plimsoll::catalog::{Catalog, Catalogs, Tool};
use plimsoll::config::Surface;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, TestHost, component, fleet, json as parse, root};

/// How long a program may take before it is stopped: many times what it takes on a machine that does nothing else.
const PATIENCE: Duration = Duration::from_secs(240);

/// The two ways in which a client of today begins, and the version that it then speaks.
const ERAS: [(&str, &str); 2] = [("auto", "2026-07-28"), ("legacy", "2025-11-25")];

/// How long the next call of a plugin may wait for the permit of one that was cancelled: half of what it would wait if the
/// cancelled one went on to its deadline.
const FREED: Duration = Duration::from_secs(30);

/// What `fleet.py` and `fleet.mjs` want: plugins that page, report progress, and never end. The loop has the only permit of
/// its plugin and would go on for a minute.
fn three_plugins() -> String {
    let conformance = format!(
        "[plugins.conformance]\ncomponent = {:?}\n",
        component("guests/conformance.wasm")
    );
    fleet()
        + &conformance
        + &support::hostile("fuel = 1_000_000_000_000\ndeadline_ms = 60_000\nconcurrent_calls = 1")
}

/// A file that `make clients` puts there. A missing one fails the test: it is never skipped.
fn installed(name: &str) -> PathBuf {
    let folder = root().join("target/clients");
    let file = folder.join(name);
    assert!(
        folder.join("stamp").is_file() && file.exists(),
        "`{}` is missing: run `make clients`",
        file.display()
    );
    file
}

/// A file of `tests/clients`.
fn script(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

/// What a program left behind.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs a program of `make clients` in a folder that is its home too. Blocks this thread and no other.
fn run(
    folder: &Path,
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Ran {
    let mut command = assert_cmd::Command::new(installed(program));
    command
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env("PLIMSOLL_LOG", "warn")
        .timeout(PATIENCE);
    let output = tokio::task::block_in_place(|| command.output()).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Runs one of the two scripts and reads what it found.
fn client(folder: &Path, program: &str, script_name: &str, mode: &str, target: &[&str]) -> Value {
    let script = script(script_name);
    let arguments = [script.to_str().unwrap(), mode]
        .into_iter()
        .chain(target.iter().copied());
    let ran = run(folder, program, arguments);
    assert_eq!(ran.code, Some(0), "{mode}: {}", ran.stderr);
    parse(&ran.stdout)
}

/// Judges what a client found, apart from progress. Case L3: a call that its client cancels gets no answer, ends no
/// connection, and gives its place to the next one.
fn judge(found: &Value, version: &str) {
    assert_eq!(found["protocol_version"], version);
    assert_eq!(found["server"], "plimsoll");
    let names: Vec<&str> = found["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    let fleet_tools: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| ["fleet_show", "wave_show", "stream_detail"].contains(name))
        .collect();
    assert_eq!(
        fleet_tools,
        ["fleet_show", "wave_show", "stream_detail"],
        "each once: {names:?}"
    );

    let record =
        parse(&std::fs::read_to_string(root().join("plugins/fleet/data/fleet.json")).unwrap());
    let recorded: Vec<&Value> = record["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| &stream["id"])
        .collect();
    let pages = found["pages"].as_array().unwrap();
    let paged: Vec<&Value> = pages
        .iter()
        .flat_map(|page| page["ids"].as_array().unwrap())
        .collect();
    assert_eq!(
        paged, recorded,
        "the pages, one after the other, are the record: no gap, no repeat, its order"
    );
    assert_eq!(paged.len(), 68);
    let sizes: Vec<usize> = pages
        .iter()
        .map(|page| page["ids"].as_array().unwrap().len())
        .collect();
    assert_eq!(sizes, [25, 25, 18]);
    for page in pages {
        assert_eq!(
            (
                &page["total_count"],
                &page["is_error"],
                &page["is_structured"]
            ),
            (&json!(68), &json!(false), &json!(false))
        );
    }
    // A page that leaves rows out points to the complete result, and the last one does not.
    let link = pages[0]["links"][0].clone();
    assert_eq!(link[0], "resource_link");
    assert!(link[1].as_str().unwrap().starts_with("plimsoll://results/"));
    let links: Vec<&Value> = pages.iter().map(|page| &page["links"]).collect();
    assert_eq!(links, [&json!([link]), &json!([link]), &json!([])]);

    let texts = found["refused"]["texts"].as_array().unwrap();
    assert_eq!(
        (&found["refused"]["is_error"], texts.len()),
        (&json!(true), 1)
    );
    assert_eq!(
        parse(texts[0].as_str().unwrap())["message"],
        "limit must be an integer between 1 and 100"
    );
    assert_eq!(found["unknown_tool"]["code"], -32602);
    assert_eq!(
        found["unknown_tool"]["message"],
        "Unknown tool: no_such_tool"
    );

    let cancel = &found["cancel"];
    assert_eq!(
        cancel["ended"],
        Value::Null,
        "the call that was cancelled got an answer"
    );
    assert_eq!(
        parse(cancel["beside"].as_str().unwrap())["streams"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        parse(cancel["after"].as_str().unwrap()),
        json!([{"n": 0}, {"n": 1}, {"n": 2}])
    );
    let waited = Duration::from_secs_f64(cancel["waited_s"].as_f64().unwrap());
    assert!(
        waited < FREED,
        "the call that was cancelled went on for {waited:?}"
    );
}

/// Every message of the call, in order, before its result.
fn every_progress() -> Value {
    json!([[0, 100], [50, 100], [100, 100]])
}

/// JSON with numbers as they compare in JavaScript: Python writes 0.0 where JavaScript writes 0.
fn as_integers(progress: &Value) -> Value {
    let pair = |pair: &Value| {
        pair.as_array()
            .unwrap()
            .iter()
            .map(|number| number.as_f64().unwrap() as u64)
            .collect::<Vec<_>>()
    };
    json!(
        progress
            .as_array()
            .unwrap()
            .iter()
            .map(pair)
            .collect::<Vec<_>>()
    )
}

/// A folder with a config and the command line that serves it over stdio.
fn over_stdio() -> (TempDir, [&'static str; 3]) {
    let folder = tempfile::tempdir().unwrap();
    support::write_state(&folder.path().join(".plimsoll"));
    std::fs::write(folder.path().join("plimsoll.toml"), three_plugins()).unwrap();
    (folder, [env!("CARGO_BIN_EXE_plimsoll"), "serve", "--stdio"])
}

#[tokio::test(flavor = "multi_thread")]
async fn python_pages_through_the_fleet_over_stdio() {
    let (folder, server) = over_stdio();
    for (mode, version) in ERAS {
        let found = client(folder.path(), "venv/bin/python", "fleet.py", mode, &server);
        judge(&found, version);
        assert_eq!(as_integers(&found["progress"]), every_progress());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_pages_through_the_fleet_over_stdio() {
    let (folder, server) = over_stdio();
    for (mode, version) in ERAS {
        let found = client(folder.path(), "node", "fleet.mjs", mode, &server);
        judge(&found, version);
        // Not all progress: this SDK (2.4.0) hands notifications to their handler later than a result that came in the
        // same read, and forgets the handler at the result. That all of it is sent, Python sees.
        assert!(found["progress"].as_array().unwrap().len() <= 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_pages_through_the_fleet_over_http() {
    over_http("venv/bin/python", "fleet.py").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_pages_through_the_fleet_over_http() {
    over_http("node", "fleet.mjs").await;
}

async fn over_http(program: &str, script: &str) {
    let host = TestHost::start(&three_plugins()).await;
    let served = host.serve().await;
    let url = format!("{}/mcp", served.url);
    let folder = tempfile::tempdir().unwrap();
    for (mode, version) in ERAS {
        let found = client(folder.path(), program, script, mode, &[&url]);
        judge(&found, version);
        assert_eq!(as_integers(&found["progress"]), every_progress());
        // The client has gone, and nothing that it called goes on.
        let idle = async {
            while host.host().running() > 0 {
                tokio::task::yield_now().await;
            }
        };
        assert!(
            tokio::time::timeout(FREED, idle).await.is_ok(),
            "{mode}: a cancelled call goes on"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn python_calls_a_javascript_and_a_python_plugin() {
    let plugin = |name: &str| {
        format!(
            "[plugins.{name}]\ncomponent = {:?}\n",
            component(&format!("plugins/{name}.wasm"))
        )
    };
    let folder = crate::doors::folder(&(plugin("orders") + &plugin("ledger")));
    let [command, serve, stdio] = [env!("CARGO_BIN_EXE_plimsoll"), "serve", "--stdio"];
    let calls = json!([
        ["list_orders", {"status": "open", "limit": 3}],
        ["list_accounts", {}],
        ["get_accounts", {"key": 1000}],
    ])
    .to_string();
    for (mode, _) in ERAS {
        let target = [calls.as_str(), command, serve, stdio];
        let found = client(folder.path(), "venv/bin/python", "pages.py", mode, &target);
        assert_eq!(
            found["tools"],
            json!([
                "list_accounts",
                "get_accounts",
                "list_entries",
                "get_entries",
                "list_orders",
                "get_order"
            ])
        );
        let answers = found["answers"].as_array().unwrap();
        let counts = |index: usize| -> Vec<[Value; 3]> {
            let pages = answers[index].as_array().unwrap();
            pages
                .iter()
                .map(|page| {
                    assert_eq!(page["is_error"], false, "{page}");
                    ["total_count", "matched_count", "returned"]
                        .map(|count| page["facts"][count].clone())
                })
                .collect()
        };
        let page = |total: u64, matched: u64, returned: u64| {
            [json!(total), json!(matched), json!(returned)]
        };
        // The JavaScript plugin has no pages of its own, and 40,000 orders.
        assert_eq!(counts(0), vec![page(40_000, 187, 3); 3]);
        let orders = answers[0].as_array().unwrap().iter();
        let ids: Vec<&Value> = orders
            .flat_map(|page| page["body"].as_array().unwrap())
            .inspect(|order| assert_eq!(order["status"], "open"))
            .map(|order| &order["id"])
            .collect();
        let different: HashSet<String> = ids.iter().map(|id| id.to_string()).collect();
        assert_eq!(different.len(), 9, "{ids:?}");
        // The Python plugin is a backend: the host makes its tools, and pages.
        assert_eq!(counts(1), [page(30, 26, 25), page(30, 26, 1)]);
        assert_eq!(answers[1][0]["body"][0]["name"], "Petty cash");
        assert_eq!(
            answers[2][0]["body"]["name"], "Petty cash",
            "{}",
            answers[2]
        );
    }
}

/// A host with the plugin that the conformance suite calls.
async fn conformance_host() -> TestHost {
    let component = component("guests/conformance.wasm");
    TestHost::start(&format!(
        "[plugins.conformance]\ncomponent = {component:?}\n"
    ))
    .await
}

/// Runs the conformance suite of one version of the protocol. It exits with 0 where exactly the baseline fails.
async fn conformance(host: &TestHost, version: &str) {
    let served = host.serve().await;
    let suite = installed("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let baseline = script(&format!("conformance-{version}.yml"));
    let url = format!("{}/mcp", served.url);
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        suite.to_str().unwrap(),
        "server",
        "--url",
        &url,
        "--requirements",
        version,
        "--output-dir",
        "checks",
        "--expected-failures",
        baseline.to_str().unwrap(),
    ];
    let ran = run(folder.path(), "node", arguments);
    let summary = ran
        .stdout
        .find("=== SUMMARY ===")
        .map_or(ran.stdout.as_str(), |start| &ran.stdout[start..]);
    assert_eq!(ran.code, Some(0), "{summary}\n{}", ran.stderr);
}

/// How often the listing changes while the suite of 2026-07-28 runs: several times within the 1.5 s for which the suite
/// listens.
const CHANGE: Duration = Duration::from_millis(250);

/// Takes the last tool out of the listing and puts it back, without end. The suite calls a tool that is to change the
/// listing; here, only an operator can.
async fn change_the_listing(host: Arc<Host>) {
    let tools: Vec<Arc<Tool>> = host.catalog(&Caller::default()).tools().cloned().collect();
    let mut changes = tokio::time::interval(CHANGE);
    for count in [tools.len() - 1, tools.len()].into_iter().cycle() {
        changes.tick().await;
        let catalog =
            Catalog::new(tools[..count].to_vec(), Surface::Tools, host.cap_bytes()).unwrap();
        host.serve(Catalogs::single(Arc::new(catalog)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_conformance_suite_of_2026_07_28_passes_but_for_its_baseline() {
    let host = conformance_host().await;
    let changing = tokio::spawn(change_the_listing(host.host().clone()));
    conformance(&host, "2026-07-28").await;
    changing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_conformance_suite_of_2025_11_25_passes_but_for_its_baseline() {
    conformance(&conformance_host().await, "2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mcpcheck_and_the_inspector_find_no_fault() {
    let host = TestHost::start(&fleet()).await;
    let served = host.serve().await;
    let url = format!("{}/mcp", served.url);
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();

    let ran = run(folder, "venv/bin/mcpcheck", [&url, "--json"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let report = parse(&ran.stdout);
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 8);
    for check in checks {
        assert_eq!(
            (&check["passed"], &check["failures"]),
            (&json!(true), &json!([])),
            "{check}"
        );
        // Fleet's answers have no fixed schema, and mcpcheck would like one.
        for warning in check["warnings"].as_array().unwrap() {
            assert_eq!(
                warning["code"], "schemas.output_schema_missing",
                "{warning}"
            );
        }
    }

    let inspector = installed("node_modules/.bin/mcp-inspector");
    for era in ["modern", "legacy"] {
        // With `--strict` it exits with 6 where a schema is not what all clients can read.
        let arguments = [
            "--cli",
            &url,
            "--transport",
            "http",
            "--protocol-era",
            era,
            "--method",
            "tools/list",
            "--strict",
        ];
        let ran = run(
            folder,
            "node",
            [inspector.to_str().unwrap()].into_iter().chain(arguments),
        );
        assert_eq!(ran.code, Some(0), "{era}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(parse(&ran.stdout)["tools"].as_array().unwrap().len(), 3);
    }
}
