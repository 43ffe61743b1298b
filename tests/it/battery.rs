//! The hostile battery: every attack that we know of, against a host in a process of its own with all limits at their
//! defaults. Each has its refusal by name, a bound on its time and one on the host's memory, and leaves a host that answers.
//!
//! Field cases: H9, L7, N1, N9, O1, O3, O9, P1, P9, Q7.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use crate::support::{HostProcess, component, json as parse, root};

/// What the host may use above idle while an attack runs: a guest's memory, one intake, and 32 MiB for all else.
const MEMORY_BYTES: u64 = (128 + 64 + 32) << 20;

/// The default deadline, which an attack has to itself where nothing else is said.
const DEADLINE: Duration = Duration::from_secs(30);

/// The deadline of attacks that only time ends, so that the battery takes minutes and not an hour.
const SHORT_DEADLINE: Duration = Duration::from_secs(1);

/// By how much an attack may outlast its deadline. Generous, since machines are busy with other tests: that a deadline is
/// kept to 100 ms is tested in `limits.rs`.
const GRACE: Duration = Duration::from_secs(5);

/// Where an attack strikes.
enum Strikes {
    /// In a call of this tool of the guest `hostile`.
    Call(&'static str),
    /// The same, with a deadline of one second; another call is answered meanwhile.
    Wait(&'static str),
    /// In a call of a guest in text.
    Text(Handler),
    /// The same, with a deadline of one second.
    TextWait(Handler),
    /// In a call of this tool of the adapter in text.
    Adapter(&'static str),
    /// When `hostile` is loaded while the host serves: the way in which it lists its tools.
    List(&'static str),
    /// When a guest in text is loaded while the host serves.
    Load(Handler),
    /// When this is loaded, which is no component.
    LoadModule(&'static str),
    /// When the adapter in text is loaded with this as its `list-collections`.
    LoadAdapter(&'static str),
}

/// The parts of `tests/guests/hostile/handler.wat`.
#[derive(Clone, Copy)]
struct Handler {
    imports: &'static str,
    fields: &'static str,
    realloc: &'static str,
    list: &'static str,
    post: &'static str,
    call: &'static str,
}

/// One that behaves.
const HANDLER: Handler = Handler {
    imports: "",
    fields: "",
    realloc: "(i32.const 65536)",
    list: "(i32.const 1024)",
    post: "",
    call: "",
};

const RANDOM: &str =
    r#"(import "wasi:random/random@0.2.12" "get-random-bytes" (func $random (param i64 i32)))"#;
const TIMER: &str = r#"(import "wasi:clocks/monotonic-clock@0.2.12" "subscribe-duration" (func $timer (param i64) (result i32)))"#;
const DOCUMENT: &str =
    r#"(import "plimsoll:plugin/reply@0.1.0" "document" (func $document (param i32 i32)))"#;

/// One attack: what it does, where, and what becomes of it. `answered` is an answer, `loaded` a plugin that serves, a word
/// a refusal of that name, and everything else the text with which a plugin is not loaded.
type Attack = (&'static str, Strikes, &'static str);

#[rustfmt::skip]
const ATTACKS: &[Attack] = &[
    // Time.
    ("computes without end", Strikes::Call("loop"), "out_of_fuel"),
    ("calls the host without end", Strikes::Wait("loop_host_calls"), "invoke_timeout"),
    ("waits for nothing without end", Strikes::Wait("loop_poll"), "invoke_timeout"),
    ("waits for a minute", Strikes::Wait("sleep"), "invoke_timeout"),
    ("asks for random numbers without end", Strikes::TextWait(Handler { imports: RANDOM, call: "(loop $again (call $random (i64.const 4096) (i32.const 600)) (br $again))", ..HANDLER }), "invoke_timeout"),
    // Memory.
    ("allocates memory without end", Strikes::Call("grow"), "out_of_memory"),
    ("grows a table without end", Strikes::Text(Handler { fields: "(table $table 1 funcref)", call: "(loop $again (drop (table.grow $table (ref.null func) (i32.const 1024))) (br $again))", ..HANDLER }), "out_of_memory"),
    ("holds timers without end", Strikes::Text(Handler { imports: TIMER, call: "(loop $again (drop (call $timer (i64.const 0))) (br $again))", ..HANDLER }), "out_of_memory"),
    ("asks for a gigabyte of random numbers", Strikes::Text(Handler { imports: RANDOM, call: "(call $random (i64.const 1073741824) (i32.const 600))", ..HANDLER }), "plugin_trapped"),
    ("calls itself without end", Strikes::Call("recurse"), "plugin_trapped"),
    // Floods.
    ("pushes rows without end", Strikes::Wait("flood_rows"), "invoke_timeout"),
    ("pushes empty lines without end", Strikes::Wait("push_nothing"), "invoke_timeout"),
    ("attaches images of 1 MB without end", Strikes::Call("flood_attachments"), "response_too_large"),
    ("attaches empty images without end", Strikes::Call("flood_small_attachments"), "response_too_large"),
    ("logs lines of 100 KB without end", Strikes::Wait("flood_log"), "invoke_timeout"),
    ("prints without end", Strikes::Wait("flood_stdout"), "invoke_timeout"),
    ("prints errors without end", Strikes::Wait("flood_stderr"), "invoke_timeout"),
    ("reports progress without end", Strikes::Wait("flood_progress"), "invoke_timeout"),
    // Sizes.
    ("hands over a document of 200 MB", Strikes::Call("flood_document"), "out_of_memory"),
    ("pushes a row of 100 MB", Strikes::Call("flood_one_row"), "response_too_large"),
    ("pushes a million rows, 1 GiB", Strikes::Call("many_rows"), "answered"),
    ("hands over an array of 10 million numbers", Strikes::Call("many_small_rows"), "answered"),
    ("hands over an object of a million members", Strikes::Call("million_keys"), "response_too_large"),
    ("hands over 100,000 arrays inside each other", Strikes::Call("deep"), "answered"),
    ("hands over a number of a million digits", Strikes::Call("long_number"), "response_too_large"),
    ("attaches an image of 100 MB", Strikes::Call("attach_huge"), "response_too_large"),
    ("logs a line of 100 MB", Strikes::Call("log_huge"), "answered"),
    ("reports progress in 100 MB of words", Strikes::Call("progress_huge"), "answered"),
    ("looks up a name of 40 MB", Strikes::Call("config_huge"), "answered"),
    ("fails with a text of 10 MB", Strikes::Call("fault_huge"), "internal"),
    // Answers that are none.
    ("hands over bytes that are not UTF-8", Strikes::Call("invalid_utf8"), "invalid_answer"),
    ("pushes bytes that are not UTF-8", Strikes::Call("invalid_utf8_rows"), "invalid_answer"),
    ("pushes lines that are not JSON", Strikes::Call("invalid_rows"), "invalid_answer"),
    ("hands over NaN", Strikes::Call("not_a_number"), "invalid_answer"),
    ("hands over half of a surrogate pair", Strikes::Call("lone_surrogate"), "answered"),
    ("hands over two documents", Strikes::Call("document_twice"), "invalid_answer"),
    ("hands over a document and pushes rows", Strikes::Call("document_and_rows"), "invalid_answer"),
    ("says that there are more rows than it pushes", Strikes::Call("false_total"), "answered"),
    ("says late what it has applied", Strikes::Call("false_applied"), "invalid_answer"),
    ("returns without an answer", Strikes::Call("nothing"), "answered"),
    // Traps.
    ("traps", Strikes::Call("trap"), "plugin_trapped"),
    ("panics", Strikes::Call("panic"), "plugin_trapped"),
    ("exits", Strikes::Call("exit"), "plugin_trapped"),
    ("traps after its first rows", Strikes::Call("trap_after_rows"), "plugin_trapped"),
    ("fails after its first rows", Strikes::Call("fault_after_rows"), "unavailable"),
    ("traps while it takes its arguments", Strikes::Text(Handler { realloc: "(unreachable)", ..HANDLER }), "plugin_trapped"),
    ("wants its arguments outside of its memory", Strikes::Text(Handler { realloc: "(i32.const -4096)", ..HANDLER }), "plugin_trapped"),
    ("traps after it has returned", Strikes::Text(Handler { post: "(unreachable)", ..HANDLER }), "plugin_trapped"),
    ("returns something outside of its memory", Strikes::Text(Handler { call: "(return (i32.const -16))", ..HANDLER }), "plugin_trapped"),
    ("hands over 2 GiB outside of its memory", Strikes::Text(Handler { imports: DOCUMENT, call: "(call $document (i32.const 16) (i32.const 0x7fffffff))", ..HANDLER }), "plugin_trapped"),
    ("traps in `query`", Strikes::Adapter("list_rows"), "plugin_trapped"),
    ("traps in `get`", Strikes::Adapter("get_rows"), "plugin_trapped"),
    ("looks for the environment, files and the host's folder", Strikes::Call("look_around"), "answered"),
    // While it is loaded.
    ("is a module and no component", Strikes::LoadModule("(module)"), "it is a core module, and a plugin is a component"),
    ("exports no tools", Strikes::LoadModule("(component)"), "it fits no world of the contract"),
    ("computes without end when it starts", Strikes::Load(Handler { fields: "(func $start (loop $again (drop (i32.const 1)) (drop (i32.const 2)) (drop (i32.const 3)) (br $again))) (start $start)", ..HANDLER }), "`list-tools` failed: out_of_fuel"),
    ("grows its memory without end when it starts", Strikes::Load(Handler { fields: "(func $start (loop $again (drop (memory.grow (i32.const 16))) (br $again))) (start $start)", ..HANDLER }), "`list-tools` failed: out_of_memory"),
    ("computes without end in `list-tools`", Strikes::List("loop"), "`list-tools` failed: out_of_fuel"),
    ("allocates memory without end in `list-tools`", Strikes::List("grow"), "`list-tools` failed: out_of_memory"),
    ("traps in `list-tools`", Strikes::List("trap"), "`list-tools` failed: plugin_trapped"),
    ("panics in `list-tools`", Strikes::List("panic"), "`list-tools` failed: plugin_trapped"),
    ("traps in `list-collections`", Strikes::LoadAdapter("(unreachable)"), "`list-collections` failed: plugin_trapped"),
    ("fails in `list-tools` with a text of 10 MB", Strikes::List("long_fault"), "`list-tools` returned more than 8388608 bytes"),
    ("lists tools outside of its memory", Strikes::Load(Handler { list: "(i32.store (i32.const 1032) (i32.const 0x7fffffff)) (i32.const 1024)", ..HANDLER }), "`list-tools` failed: plugin_trapped"),
    ("lists 1,000 tools that share a description of 64 MB", Strikes::Load(Handler {
        fields: "(func $share (local $tool i32)
            (drop (memory.grow (i32.const 1100)))
            (i32.store (i32.const 1060) (i32.const 65536))
            (i32.store (i32.const 1064) (i32.const 67000000))
            (loop $again
                (memory.copy (i32.add (i32.const 68000000) (i32.mul (local.get $tool) (i32.const 176))) (i32.const 1040) (i32.const 176))
                (local.set $tool (i32.add (local.get $tool) (i32.const 1)))
                (br_if $again (i32.lt_u (local.get $tool) (i32.const 1000))))
            (i32.store (i32.const 1028) (i32.const 68000000))
            (i32.store (i32.const 1032) (i32.const 1000)))",
        list: "(call $share) (i32.const 1024)", ..HANDLER }), "`list-tools` returned more than 8388608 bytes"),
    ("lists descriptions of 30 MB", Strikes::List("flood"), "`list-tools` returned more than 8388608 bytes"),
    ("lists a description of 1 MB", Strikes::List("long_description"), "expected a description of at most 16384 bytes, found 1000000"),
    ("lists 100,000 tools", Strikes::List("tools_100000"), "`list-tools` returned more than 8388608 bytes"),
    ("lists 10,000 tools", Strikes::List("tools_10000"), "expected at most 2000 tools or collections, found 10000"),
    ("lists 2,001 tools", Strikes::List("tools_2001"), "expected at most 2000 tools or collections, found 2001"),
    ("lists 2,000 tools", Strikes::List("tools_2000"), "loaded"),
    ("lists a tool twice", Strikes::List("twice"), "expected each tool once, found `tool_0` twice"),
    ("lists a tool without a name", Strikes::List("no_name"), "expected a name of 1 to 64 letters, digits, `_` and `-`"),
    ("lists a tool whose name has 1 MB", Strikes::List("long_name"), "expected a name of 1 to 64 letters, digits, `_` and `-`"),
    ("lists a schema that is not JSON", Strikes::List("no_schema"), "the input schema: expected JSON"),
    ("lists a schema of 1 MB", Strikes::List("long_schema"), "the input schema: expected at most 65536 bytes, found 1000028"),
    ("lists a schema of 30,000 levels", Strikes::List("deep_schema"), "the input schema: expected JSON: recursion limit exceeded"),
    ("lists a schema that refers to itself", Strikes::List("recursive_schema"), "the `$ref` # leads back to itself"),
    ("lists a schema that refers to nothing", Strikes::List("dangling_schema"), "the `$ref` #/$defs/x leads nowhere"),
    ("lists a schema that refers to a server", Strikes::List("remote_schema"), "leads out of the schema"),
    ("lists a schema of 2 to the power of 20 parts", Strikes::List("doubling_schema"), "every `$ref` followed; expected at most 10000"),
];

/// What came of an attack.
struct Outcome {
    ends: String,
    elapsed: Duration,
    memory_bytes: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attack_is_refused_by_name_in_time_and_in_bounded_memory() {
    let guests = Guests::build();
    let hosts = [
        HostProcess::start(&guests.called("", |strikes| {
            matches!(
                strikes,
                Strikes::Call(_) | Strikes::Text(_) | Strikes::Adapter(_)
            )
        })),
        HostProcess::start(&guests.called(
            &format!("[limits]\ndeadline_ms = {}\n", SHORT_DEADLINE.as_millis()),
            |strikes| matches!(strikes, Strikes::Wait(_) | Strikes::TextWait(_)),
        )),
        HostProcess::start(&guests.loaded("")),
    ];
    let mut wrong = Vec::new();
    let mut table = String::from(
        "| attack | what becomes of it | time | memory |\n| --- | --- | --- | --- |\n",
    );
    for (index, (name, strikes, expected)) in ATTACKS.iter().enumerate() {
        let (host, deadline) = match strikes {
            Strikes::Call(_) | Strikes::Text(_) | Strikes::Adapter(_) => (&hosts[0], DEADLINE),
            Strikes::Wait(_) | Strikes::TextWait(_) => (&hosts[1], SHORT_DEADLINE),
            _ => (&hosts[2], DEADLINE),
        };
        let is_loaded = std::ptr::eq(host, &raw const hosts[2]);
        let good = if is_loaded {
            "test_simple_text"
        } else {
            "fine"
        };
        // The first call of a host costs more than those that come after it.
        assert_eq!(
            host.call_raw(good, json!({})).await.0,
            200,
            "before: {name}"
        );
        let idle = host.reset_peak();
        let begun = Instant::now();
        let (ends, elapsed) = match strikes {
            Strikes::Call(tool) | Strikes::Adapter(tool) => {
                (call(host, tool).await, begun.elapsed())
            }
            Strikes::Text(_) => (call(host, &tool_name(index)).await, begun.elapsed()),
            Strikes::TextWait(_) => (call(host, &tool_name(index)).await, begun.elapsed()),
            Strikes::Wait(tool) => {
                let attack = async { (call(host, tool).await, begun.elapsed()) };
                let meanwhile = async { (host.call_raw(good, json!({})).await.0, begun.elapsed()) };
                let ((ends, elapsed), (status, answered)) = tokio::join!(attack, meanwhile);
                assert_eq!(status, 200, "while it {name}");
                assert!(answered < elapsed, "nothing was answered while it {name}");
                (ends, elapsed)
            }
            _ => {
                host.log.try_iter().for_each(drop);
                host.configure(&guests.loaded(&guests.entry(index, strikes)));
                (
                    load(host, *expected == "loaded", begun + deadline + GRACE).await,
                    begun.elapsed(),
                )
            }
        };
        let memory_bytes = host.memory("VmHWM:").saturating_sub(idle);
        let outcome = Outcome {
            ends,
            elapsed,
            memory_bytes,
        };
        wrong.extend(
            outcome
                .check(expected, deadline)
                .map(|what| format!("{name}: {what}")),
        );
        let status = host.call_raw(good, json!({})).await.0;
        assert_eq!(status, 200, "after: {name}");
        let _ = writeln!(table, "{}", outcome.row(name, strikes, expected));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compare(&table);
}

impl Outcome {
    /// What is wrong with it.
    fn check(&self, expected: &str, deadline: Duration) -> Option<String> {
        let Self {
            ends,
            elapsed,
            memory_bytes,
        } = self;
        let is_expected = if expected.contains(' ') {
            ends.contains(expected)
        } else {
            ends == expected
        };
        if !is_expected {
            return Some(format!("expected {expected}, found {ends}"));
        }
        if *elapsed > deadline + GRACE {
            return Some(format!(
                "it took {elapsed:?}, and its deadline is {deadline:?}"
            ));
        }
        (*memory_bytes > MEMORY_BYTES).then(|| {
            format!(
                "the host used {memory_bytes} bytes above idle; expected at most {MEMORY_BYTES}"
            )
        })
    }

    /// Its line of the table.
    fn row(&self, name: &str, strikes: &Strikes, expected: &str) -> String {
        let ends = match strikes {
            _ if !expected.contains(' ') && !["answered", "loaded"].contains(&expected) => {
                format!("`{expected}`")
            }
            _ if !expected.contains(' ') => expected.to_owned(),
            _ => format!("not loaded: {}", expected.trim_end_matches(": ")),
        };
        format!(
            "| {name} | {ends} | {:.2} s | {} MiB |",
            self.elapsed.as_secs_f64(),
            self.memory_bytes.div_ceil(1 << 20)
        )
    }
}

/// `answered`, or the name of the refusal.
async fn call(host: &HostProcess, tool: &str) -> String {
    let arguments = if tool.starts_with("get_") {
        json!({"key": 1})
    } else {
        json!({})
    };
    let (status, _, body) = host.call_raw(tool, arguments).await;
    if status == 200 {
        return String::from("answered");
    }
    let body = String::from_utf8(body).unwrap();
    assert!(
        body.len() < 8_000,
        "{tool}: a refusal of {} bytes",
        body.len()
    );
    parse(&body)["error"]
        .as_str()
        .unwrap_or_else(|| panic!("{tool}: {body}"))
        .to_owned()
}

/// `loaded`, or why the plugin was not.
async fn load(host: &HostProcess, is_expected_to: bool, deadline: Instant) -> String {
    while Instant::now() < deadline {
        if is_expected_to && tool_count(host).await > 900 {
            return String::from("loaded");
        }
        let wait = if is_expected_to {
            Duration::ZERO
        } else {
            deadline.saturating_duration_since(Instant::now())
        };
        let line = tokio::task::block_in_place(|| host.log.recv_timeout(wait));
        if let Some(why) = line
            .ok()
            .as_deref()
            .and_then(|line| line.split_once("not loaded: "))
        {
            return why.1.to_owned();
        }
    }
    String::from("nothing: neither loaded nor refused")
}

/// How many tools the host lists, over all pages, each of which is under the cap.
async fn tool_count(host: &HostProcess) -> usize {
    let (mut count, mut query) = (0, String::new());
    loop {
        let page = reqwest::get(format!("{}/v1/tools{query}", host.url))
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        assert!(
            page.len() < 262_144,
            "a page of the listing has {} bytes",
            page.len()
        );
        let page: Value = parse(&page);
        count += page["tools"].as_array().unwrap().len();
        let Some(next) = page["next_after"].as_str() else {
            return count;
        };
        query = format!("?after={next}");
    }
}

const BEGIN: &str = "<!-- battery -->\n";
const END: &str = "<!-- end of battery -->";

/// Compares attacks and refusals with the README, or writes them there.
fn compare(table: &str) {
    let file = root().join("README.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    // Times and sizes are those of one run.
    let unmeasured = |table: &str| -> Vec<String> {
        table
            .lines()
            .map(|line| line.split(" | ").take(2).collect::<Vec<_>>().join(" | "))
            .collect()
    };
    assert_eq!(
        unmeasured(found),
        unmeasured(table),
        "run PLIMSOLL_BLESS=1 cargo test -p plimsoll --test it battery"
    );
}

fn tool_name(index: usize) -> String {
    format!("text_{index}")
}

/// The guests in text, as component files.
struct Guests(tempfile::TempDir);

impl Guests {
    fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |index: usize, bytes: Vec<u8>| {
            std::fs::write(folder.path().join(format!("{index}.wasm")), bytes).unwrap()
        };
        for (index, (_, strikes, _)) in ATTACKS.iter().enumerate() {
            match strikes {
                Strikes::Text(handler) | Strikes::TextWait(handler) | Strikes::Load(handler) => {
                    write(index, encode("handler", &handler.text(&tool_name(index))));
                }
                Strikes::LoadAdapter(list) => write(index, encode("adapter", &adapter(list))),
                Strikes::LoadModule(text) => write(index, wat::parse_str(text).unwrap()),
                _ => {}
            }
        }
        std::fs::write(
            folder.path().join("adapter.wasm"),
            encode("adapter", &adapter("")),
        )
        .unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(format!("{name}.wasm"))
    }

    /// The config of a host that serves the attacks of some kinds.
    fn called(&self, limits: &str, is_served: impl Fn(&Strikes) -> bool) -> String {
        let mut config = format!(
            "{limits}{}{}",
            entry("hostile", &component("guests/hostile.wasm")),
            entry("adapter", &self.file("adapter"))
        );
        for (index, (_, strikes, _)) in ATTACKS.iter().enumerate() {
            if matches!(strikes, Strikes::Text(_) | Strikes::TextWait(_)) && is_served(strikes) {
                config.push_str(&entry(&tool_name(index), &self.file(&index.to_string())));
            }
        }
        config
    }

    /// The config of a host that serves a guest which behaves, and this.
    fn loaded(&self, attack: &str) -> String {
        format!(
            "{}{attack}",
            entry("good", &component("guests/conformance.wasm"))
        )
    }

    /// The entry of an attack that strikes when it is loaded.
    fn entry(&self, index: usize, strikes: &Strikes) -> String {
        match strikes {
            Strikes::List(how) => format!(
                "{}config = {{ list_tools = {how:?} }}\n",
                entry("attack", &component("guests/hostile.wasm"))
            ),
            _ => entry("attack", &self.file(&index.to_string())),
        }
    }
}

fn entry(name: &str, component: &Path) -> String {
    format!("[plugins.{name}]\ncomponent = {component:?}\nclock = true\nrandom = true\n")
}

fn template(name: &str) -> String {
    std::fs::read_to_string(root().join("tests/guests/hostile").join(name)).unwrap()
}

impl Handler {
    fn text(&self, tool: &str) -> String {
        template("handler.wat")
            .replace("NAME_BYTES", &format!("\\{:02x}", tool.len()))
            .replace("NAME", tool)
            .replace("IMPORTS", self.imports)
            .replace("FIELDS", self.fields)
            .replace("REALLOC", self.realloc)
            .replace("LIST", self.list)
            .replace("POST", self.post)
            .replace("CALL", self.call)
    }
}

fn adapter(list: &str) -> String {
    template("adapter.wat").replace("LIST", list)
}

/// A core module in text as a component of a world of `tests/guests/hostile/wit`.
fn encode(world: &str, text: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut resolve = Resolve::default();
    resolve.push_path(root().join("wit/v0.1")).unwrap();
    let package = resolve
        .push_source("hostile.wit", &template("wit/hostile.wit"))
        .unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    wit_component::embed_component_metadata(
        &mut module,
        &resolve,
        world,
        StringEncoding::UTF8,
        false,
    )
    .unwrap();
    ComponentEncoder::default()
        .module(&module)
        .unwrap()
        .validate(true)
        .encode()
        .unwrap()
}
