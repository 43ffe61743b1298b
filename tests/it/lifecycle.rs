//! Plugins that come, change and go while the host serves.

use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll::app::App;
use plimsoll::call::Caller;
use plimsoll::catalog::Registry;
use plimsoll::config::Config;
use plimsoll::tenant::SINGLE_TENANT;
use plimsoll::watch;
use serde_json::{Map, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::{self, HostProcess, component, object};

/// How long a change may take to be seen: generous, since machines are busy. Nothing waits for it when all goes well.
const SEEN: Duration = Duration::from_secs(30);

/// A host whose folder is watched.
struct Watched {
    app: &'static App,
    folder: TempDir,
    stop: CancellationToken,
}

impl Watched {
    async fn start(config: &str, components: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        support::write_state(&folder.path().join(".plimsoll"));
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
        for (name, built) in components {
            place(&component(built), &folder.path().join("plugins").join(name));
        }
        let app = App::start(Config::read(&folder.path().join("plimsoll.toml")).unwrap())
            .await
            .unwrap();
        let app: &'static App = Box::leak(Box::new(app));
        let stop = CancellationToken::new();
        tokio::spawn(watch::run(app, stop.clone()));
        Self { app, folder, stop }
    }

    fn plugins(&self) -> std::path::PathBuf {
        self.folder.path().join("plugins")
    }

    fn tools(&self) -> Vec<String> {
        self.app
            .host
            .catalog(&Caller::default())
            .tools()
            .map(|tool| tool.name().to_owned())
            .collect()
    }

    /// Waits until the listing is what the test expects.
    async fn until(&self, expected: impl Fn(&[String]) -> bool) {
        let mut changes = self.app.host.changes();
        let seen = async {
            while !expected(&self.tools()) {
                changes.changed().await.unwrap();
            }
        };
        assert!(
            tokio::time::timeout(SEEN, seen).await.is_ok(),
            "the tools are still {:?}",
            self.tools()
        );
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Puts a file in its place at once, as a build does.
fn place(from: &Path, to: &Path) {
    let part = to.with_extension("part");
    std::fs::copy(from, &part).unwrap();
    std::fs::rename(part, to).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_is_dropped_in_and_named_serves_and_one_that_is_removed_does_not() {
    let host = Watched::start(
        "[plugins.canned]\n",
        &[("canned.wasm", "guests/conformance.wasm")],
    )
    .await;
    assert!(host.tools().contains(&"test_simple_text".into()));
    place(
        &component("guests/hostile.wasm"),
        &host.plugins().join("hostile.wasm"),
    );
    std::fs::write(
        host.folder.path().join("plimsoll.toml"),
        "[plugins.canned]\n[plugins.hostile]\nclock = true\n",
    )
    .unwrap();
    host.until(|tools| tools.contains(&"fine".into())).await;
    let first = host.tools();
    assert!(
        first.iter().position(|tool| tool == "test_simple_text")
            < first.iter().position(|tool| tool == "fine")
    );
    std::fs::remove_file(host.plugins().join("canned.wasm")).unwrap();
    host.until(|tools| !tools.contains(&"test_simple_text".into()))
        .await;
    assert!(host.tools().contains(&"fine".into()));
}

/// How many plugins start together.
const MANY: usize = 100;

/// How many different components they are: compiling a hundred would take longer than all else here.
const COMPONENTS: usize = 10;

/// A folder with a hundred plugins: copies of a guest in Rust, each with a name and a tool of its own.
fn a_hundred_plugins() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    let guest = std::fs::read(component("guests/canned.wasm")).unwrap();
    let mut config = String::new();
    // Not in the order in which they are listed.
    for index in (0..MANY).rev() {
        let name = format!("p{index:02}");
        // A section that says nothing to anyone: its number, its length, the length of its name, and its name.
        let section = [0, 2, 1, b'0' + (index % COMPONENTS) as u8];
        std::fs::write(
            folder.path().join(format!("plugins/{name}.wasm")),
            [&guest[..], &section].concat(),
        )
        .unwrap();
        let case = folder.path().join(&name);
        std::fs::create_dir(&case).unwrap();
        let tool = json!([{"name": format!("tool_{index:02}"), "description": "One of many."}]);
        std::fs::write(case.join("tool.json"), tool.to_string()).unwrap();
        config +=
            &format!("[plugins.{name}]\nfiles = [{{ host = {case:?}, guest = \"/case\" }}]\n");
    }
    std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
    folder
}

/// What a start found: its tools in order, how many components it compiled, and how long it took.
async fn start(config: &Config) -> (Vec<String>, usize, Duration) {
    let begun = Instant::now();
    let sandbox = plimsoll::app::sandbox(config).unwrap();
    let mut registry = Registry::new(sandbox.clone());
    let problems = registry.reconcile(config).await;
    assert!(problems.is_empty(), "{problems:?}");
    let catalogs = registry.catalogs(config, 262_144).unwrap();
    let names = catalogs
        .of(SINGLE_TENANT)
        .tools()
        .map(|tool| tool.name().to_owned())
        .collect();
    (names, sandbox.compilations().unwrap(), begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_plugins_start_from_a_warm_cache_without_compiling_and_are_listed_in_order() {
    let folder = a_hundred_plugins();
    let config = Config::read(&folder.path().join("plimsoll.toml")).unwrap();
    let expected: Vec<String> = (0..MANY).map(|index| format!("tool_{index:02}")).collect();
    let (names, compiled, cold) = start(&config).await;
    assert_eq!((&names, compiled), (&expected, COMPONENTS));
    for _ in 0..2 {
        let (names, compiled, warm) = start(&config).await;
        assert_eq!((&names, compiled), (&expected, 0));
        let one = cold / COMPONENTS as u32;
        println!(
            "{MANY} plugins start in {warm:?} from a warm cache, as long as compiling {:.1} of them takes",
            warm.as_secs_f64() / one.as_secs_f64()
        );
        assert!(
            warm < cold,
            "{warm:?} with a warm cache, {cold:?} with ten components to compile"
        );
    }
}

/// Case P7.
#[tokio::test(flavor = "multi_thread")]
async fn new_calls_use_the_new_component_and_running_ones_finish_on_the_old() {
    let host = Watched::start(
        "[plugins.p]\nclock = true\n",
        &[("p.wasm", "guests/hostile.wasm")],
    )
    .await;
    let tool = host.app.host.tool(&Caller::default(), "sleep").unwrap();
    let caller = Caller::default();
    let running = host
        .app
        .host
        .call(&caller, &tool, object(json!({"count": 1500})), None);
    tokio::pin!(running);
    assert!(futures::poll!(&mut running).is_pending());
    place(
        &component("guests/conformance.wasm"),
        &host.plugins().join("p.wasm"),
    );
    host.until(|tools| tools.contains(&"test_simple_text".into()))
        .await;
    assert!(host.app.host.tool(&Caller::default(), "sleep").is_none());
    let reply = running.await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    let reply = host
        .app
        .host
        .call_named(&Caller::default(), "test_simple_text", Map::new())
        .await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_leaves_the_old_component_serving() {
    let host = Watched::start("[plugins.p]\n", &[("p.wasm", "guests/conformance.wasm")]).await;
    std::fs::write(host.plugins().join("p.wasm"), b"\0asm not a component").unwrap();
    // Naming another plugin shows that the reload has happened.
    place(
        &component("guests/hostile.wasm"),
        &host.plugins().join("q.wasm"),
    );
    std::fs::write(
        host.folder.path().join("plimsoll.toml"),
        "[plugins.p]\n[plugins.q]\nclock = true\n",
    )
    .unwrap();
    host.until(|tools| tools.contains(&"fine".into())).await;
    let reply = host
        .app
        .host
        .call_named(&Caller::default(), "test_simple_text", Map::new())
        .await;
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    std::fs::write(host.folder.path().join("plimsoll.toml"), "this is not toml").unwrap();
    host.app.reload().await;
    assert!(
        host.tools().contains(&"test_simple_text".into()) && host.tools().contains(&"fine".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_plugins_with_one_tool_name_both_in_the_message() {
    let error = App::start(
        Config::parse(
            &format!(
                "[plugins.a]\ncomponent = {0:?}\n[plugins.b]\ncomponent = {0:?}\n",
                component("guests/conformance.wasm")
            ),
            tempfile::tempdir().unwrap().path(),
        )
        .unwrap(),
    )
    .await
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is published by plugin `a` and by plugin `b`"),
        "{error}"
    );
}

/// The next line of a host's log that has these words.
fn logged(host: &HostProcess, words: &str) -> String {
    loop {
        let line = host.log.recv_timeout(SEEN);
        let line = line.unwrap_or_else(|_| panic!("the host has not said `{words}`"));
        if line.contains(words) {
            return line;
        }
    }
}

/// A log in the folder of the config file is a change there: what is said at every reload would be said for ever.
#[test]
fn what_a_reload_could_not_do_is_said_once() {
    let plugin = support::hostile("");
    let host = HostProcess::start(&plugin);
    logged(&host, "tools costs ");
    host.configure(&format!("{plugin}[plugins.gone]\n"));
    logged(&host, "gone.wasm");
    host.configure(&format!("{plugin}[plugins.gone]\n[plugins.lost]\n"));
    loop {
        let line = host.log.recv_timeout(SEEN).unwrap();
        assert!(
            !line.contains("gone.wasm") && !line.contains("tools costs "),
            "{line}"
        );
        if line.contains("lost.wasm") {
            return;
        }
    }
}

/// Where it is kept what tools cost to list.
const KEPT: &str = "code/listings.json";

/// A host with compiled code of its own, of which other tests share theirs, once it has counted what its listing costs.
fn counted() -> (HostProcess, Map<String, serde_json::Value>, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plimsoll.toml"), support::hostile("")).unwrap();
    let host = HostProcess::start_in(folder, &[]);
    let line = logged(&host, "tools costs ");
    let file = host.state().join(KEPT);
    let until = Instant::now() + SEEN;
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Ok(counts) = serde_json::from_str(&text) {
            return (host, counts, line);
        }
        assert!(Instant::now() < until, "nothing is kept");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How much the tables that count tokens add to a host: they take some 40 MiB, and as much of the program is read for them.
const TABLES: u64 = 30 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_host_has_no_tables_to_count_tokens_with_before_its_first_call() {
    let (host, ..) = counted();
    let host = host.restart();
    logged(&host, "tools costs ");
    let listed = reqwest::get(format!("{}/v1/tools", host.url))
        .await
        .unwrap();
    assert!(listed.text().await.unwrap().contains("\"fine\""));
    let before = host.memory("VmRSS:");
    let (status, ..) = host.call("fine", json!({})).await;
    assert_eq!(status, 200);
    let after = host.memory("VmRSS:");
    assert!(
        after > before + TABLES,
        "{before} bytes before the first call, {after} after it"
    );
}

#[test]
fn what_a_listing_costs_is_kept_from_one_start_to_the_next() {
    let (host, counts, line) = counted();
    let numbers = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words.iter().position(|word| *word == "costs").unwrap();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        (number(at - 2), number(at + 1))
    };
    let costs = |host: &HostProcess| numbers(&logged(host, "tools costs "));
    let (tools, tokens) = numbers(&line);
    assert!(tokens > 10 * tools);
    assert_eq!(counts.len() as u64, tools);
    let sum: u64 = counts.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(sum, tokens);
    // What no tokenizer would say shows that none was asked.
    let ones: Map<_, _> = counts
        .into_iter()
        .map(|(tool, _)| (tool, json!(1)))
        .collect();
    let ones = json!(ones).to_string();
    let host = host.restart_after(|state| std::fs::write(state.join(KEPT), ones).unwrap());
    assert_eq!(costs(&host), (tools, tools));
    let broken = "{\"cut off";
    let host = host.restart_after(|state| std::fs::write(state.join(KEPT), broken).unwrap());
    assert_eq!(costs(&host), (tools, tokens));
}
