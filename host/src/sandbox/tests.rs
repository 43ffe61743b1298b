//! Hostile guests against the limits. The guests are `tests/guests/hostile`, whose tools are one misdeed each, and
//! components in text where no compiler would write what is needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use wasmtime::component::Component;

use super::grants::{FileGrant, Grants};
use super::http::Requests;
use super::instance::{self, State};
use super::journal::{Journal, MAX_LINES};
use super::limits::Limits;
use super::load::{Description, Plugin, World};
use super::roots::TrustedRoots;
use super::sql::{Databases, Session};
use super::turn::Turn;
use super::{Called, Failed, Request, Sandbox, SandboxOptions, failure};
use crate::shape::{
    Ask, Code, DEFAULT_CAP_BYTES, DEFAULT_INTAKE_BYTES, Intake, Policy, Refusal, Signer, undeclared,
};

/// Small enough that a test is over soon, large enough for what behaves: `fine` spends some 100,000.
const SMALL: Limits = Limits {
    fuel: 50_000_000,
    memory_bytes: 32 << 20,
    deadline: Duration::from_millis(300),
};

/// For what another limit than time has to stop, however busy the machine.
const PATIENT: Limits = Limits {
    deadline: Duration::from_secs(20),
    ..SMALL
};

/// Time is the only limit that can be hit.
const TIME: Limits = Limits {
    fuel: u64::MAX,
    ..SMALL
};

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| sandbox(32));

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn sandbox(max_concurrent_calls: u32) -> Sandbox {
    let cache_folder = Some(root().join("target/tmp/code"));
    Sandbox::new(&SandboxOptions {
        max_concurrent_calls,
        cache_folder,
        ..SandboxOptions::default()
    })
    .unwrap()
}

fn guest(name: &str) -> Vec<u8> {
    let file = root().join("target/guests").join(name);
    std::fs::read(&file)
        .unwrap_or_else(|error| panic!("`{}`: {error}; run `make guests`", file.display()))
}

fn text_guest(name: &str) -> Vec<u8> {
    wat::parse_file(root().join("tests/guests/hostile").join(name)).unwrap()
}

/// All that `hostile` wants.
fn granted() -> Grants {
    Grants {
        clock: true,
        random: true,
        ..Grants::default()
    }
}

async fn hostile_in(sandbox: &Sandbox, limits: Limits) -> Plugin {
    sandbox
        .load("hostile", &guest("hostile.wasm"), granted(), limits)
        .await
        .unwrap()
}

async fn hostile(limits: Limits) -> Plugin {
    hostile_in(&SANDBOX, limits).await
}

fn intake() -> Intake {
    let policy = Policy::new(&undeclared(), DEFAULT_CAP_BYTES, &[], &BTreeMap::new()).unwrap();
    let ask = Ask::read(
        &policy,
        &Signer::new([7; 32]),
        "",
        "tool",
        &[],
        serde_json::Map::new(),
    )
    .unwrap();
    Intake::new(&policy, &ask, DEFAULT_INTAKE_BYTES)
}

fn tool(name: &str, count: Option<u64>) -> Request {
    let arguments = count.map_or("{}".to_owned(), |count| format!("{{\"count\":{count}}}"));
    Request::Tool {
        name: name.to_owned(),
        arguments,
    }
}

async fn call(plugin: &Plugin, name: &str) -> Result<Called, Failed> {
    plugin
        .call(tool(name, None), intake(), None, "crew", "test")
        .await
}

async fn fails(plugin: &Plugin, name: &str) -> Failed {
    match call(plugin, name).await {
        Ok(_) => panic!("`{name}` ended well"),
        Err(failed) => failed,
    }
}

async fn is_fine(plugin: &Plugin) {
    let called = call(plugin, "fine")
        .await
        .map_err(|failed| failed.refusal)
        .unwrap();
    assert_eq!(called.intake.kept.bytes, br#"[{"n":0},{"n":1},{"n":2}]"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_misdeed_is_a_distinct_failure_and_the_next_call_succeeds() {
    let plugin = hostile(PATIENT).await;
    let expected = [
        ("loop", Code::OutOfFuel),
        ("flood_attachments", Code::ResponseTooLarge),
        ("flood_small_attachments", Code::ResponseTooLarge),
        ("grow", Code::OutOfMemory),
        ("trap", Code::PluginTrapped),
        ("panic", Code::PluginTrapped),
        ("exit", Code::PluginTrapped),
        ("recurse", Code::PluginTrapped),
        ("flood_document", Code::OutOfMemory),
        ("trap_after_rows", Code::PluginTrapped),
        ("fault_invalid_input", Code::InvalidInput),
        ("fault_not_found", Code::NotFound),
        ("fault_unavailable", Code::Unavailable),
        ("fault_internal", Code::Internal),
        ("fault_after_rows", Code::Unavailable),
    ];
    for (name, code) in expected {
        let failed = fails(&plugin, name).await;
        assert_eq!(
            failed.refusal.error, code,
            "{name}: {}",
            failed.refusal.message
        );
        is_fine(&plugin).await;
    }
    // These hit whichever limit comes first.
    let plugin = hostile(SMALL).await;
    for name in [
        "sleep",
        "flood_rows",
        "flood_log",
        "flood_stdout",
        "flood_progress",
    ] {
        let failed = fails(&plugin, name).await;
        assert!(
            matches!(failed.refusal.error, Code::InvokeTimeout | Code::OutOfFuel),
            "{name}: {}",
            failed.refusal.message
        );
        is_fine(&plugin).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_is_kept_to_100_ms_whatever_the_guest_does() {
    let plugin = hostile(TIME).await;
    for name in [
        "loop",
        "sleep",
        "flood_rows",
        "flood_log",
        "flood_stdout",
        "flood_progress",
    ] {
        // A machine that is busy with other tests may be late once, and a host that is late always is.
        let mut late = Vec::new();
        while late.len() < 3 {
            let failed = fails(&plugin, name).await;
            assert_eq!(
                failed.refusal.error,
                Code::InvokeTimeout,
                "{name}: {}",
                failed.refusal.message
            );
            assert!(failed.usage.elapsed >= TIME.deadline);
            if failed.usage.elapsed < TIME.deadline + Duration::from_millis(100) {
                break;
            }
            late.push(failed.usage.elapsed);
        }
        assert!(late.len() < 3, "{name} took {late:?}");
    }
}

#[tokio::test]
async fn a_timeout_says_what_it_is() {
    let failed = fails(&hostile(SMALL).await, "sleep").await;
    assert_eq!(
        failed.refusal.message,
        "The call did not end within 300 ms and was stopped. Ask for less, or call again later. The operation may already \
         have been applied."
    );
    assert!(failed.refusal.retryable);
}

#[tokio::test]
async fn what_a_call_used_is_known() {
    let plugin = hostile(PATIENT).await;
    let called = call(&plugin, "fine")
        .await
        .map_err(|failed| failed.refusal)
        .unwrap();
    assert!(
        (1_000..1_000_000).contains(&called.usage.fuel),
        "{:?}",
        called.usage
    );
    assert!(
        (1 << 16..SMALL.memory_bytes).contains(&called.usage.memory_peak_bytes),
        "{:?}",
        called.usage
    );
    let spent = fails(&plugin, "loop").await.usage;
    assert!(spent.fuel > SMALL.fuel - 2_000_000, "{spent:?}");
    let grown = fails(&plugin, "grow").await.usage;
    assert!(
        (SMALL.memory_bytes / 2..=SMALL.memory_bytes).contains(&grown.memory_peak_bytes),
        "{grown:?}"
    );
}

#[tokio::test]
async fn the_text_of_a_fault_is_cut_and_says_so() {
    let failed = fails(&hostile(PATIENT).await, "fault_long").await;
    assert_eq!(failed.refusal.error, Code::Internal);
    assert!(
        failed
            .refusal
            .message
            .ends_with("… (the first 2000 of 1000000 bytes)"),
        "{}",
        failed.refusal.message
    );
}

#[tokio::test]
async fn what_is_wrong_with_an_answer_is_the_intakes_affair() {
    let plugin = hostile(PATIENT).await;
    for name in [
        "document_twice",
        "document_and_rows",
        "invalid_utf8",
        "invalid_utf8_rows",
        "invalid_rows",
    ] {
        let called = call(&plugin, name)
            .await
            .map_err(|failed| failed.refusal)
            .unwrap();
        assert!(called.intake.invalid.is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_document_is_taken_in_beside_the_worker() {
    let limits = Limits {
        fuel: u64::MAX,
        memory_bytes: 128 << 20,
        deadline: Duration::from_secs(20),
    };
    let plugin = hostile(limits).await;
    let called = plugin
        .call(
            tool("flood_document", Some(3 << 20)),
            intake(),
            None,
            "crew",
            "test",
        )
        .await;
    assert_eq!(
        called
            .map_err(|failed| failed.refusal)
            .unwrap()
            .intake
            .bytes_in,
        3 << 20
    );
    // A list that the guest can hold is a matter of the intake's bound, not of the boundary's.
    let called = plugin
        .call(
            tool("flood_document", Some(80 << 20)),
            intake(),
            None,
            "crew",
            "test",
        )
        .await;
    assert_eq!(
        called
            .map_err(|failed| failed.refusal)
            .unwrap()
            .intake
            .too_large,
        Some(80 << 20)
    );
}

#[tokio::test]
async fn progress_only_grows_and_is_dropped_where_nobody_keeps_up() {
    let plugin = hostile(PATIENT).await;
    let (sender, mut receiver) = mpsc::channel(8);
    plugin
        .call(
            tool("progress_back", None),
            intake(),
            Some(sender),
            "crew",
            "test",
        )
        .await
        .map_err(|failed| failed.refusal)
        .unwrap();
    let mut seen = Vec::new();
    while let Some(progress) = receiver.recv().await {
        seen.push((progress.done, progress.total));
    }
    assert_eq!(seen, [(5, Some(4))]);

    let (sender, mut receiver) = mpsc::channel(2);
    let plugin = hostile(SMALL).await;
    let failed = plugin
        .call(
            tool("flood_progress", None),
            intake(),
            Some(sender),
            "crew",
            "test",
        )
        .await;
    assert!(failed.is_err());
    let mut seen = Vec::new();
    while let Some(progress) = receiver.recv().await {
        seen.push(progress.done);
    }
    assert_eq!(seen, [1, 2]);
}

/// Case N5: 24 loops, and another call is answered while they run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n5_looping_guests_do_not_keep_another_call_waiting() {
    let looping = Arc::new(
        hostile(Limits {
            deadline: Duration::from_secs(2),
            ..TIME
        })
        .await,
    );
    let plugin = hostile(Limits {
        deadline: Duration::from_secs(2),
        ..SMALL
    })
    .await;
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let looping = looping.clone();
        loops.spawn(async move { fails(&looping, "loop").await });
    }
    // They all get to run before the call that is measured.
    tokio::task::yield_now().await;
    is_fine(&plugin).await;
    assert!(
        loops.try_join_next().is_none(),
        "a loop ended before `fine` did"
    );
    while let Some(failed) = loops.join_next().await {
        assert_eq!(failed.unwrap().refusal.error, Code::InvokeTimeout);
    }
}

/// The part of all fuel, in percent, that the calls of each entry spend in a second if none of them ever ends.
fn shares(workers: usize, calls: &[(&'static str, &'static str, usize)]) -> Vec<u64> {
    let limits = Limits {
        deadline: Duration::from_secs(1),
        ..TIME
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .unwrap();
    let spent = runtime.block_on(async {
        // One of its own: the slots are those of the largest runtime that was ever seen.
        let sandbox = sandbox(32);
        let mut running = tokio::task::JoinSet::new();
        for (index, &(tenant, name, count)) in calls.iter().enumerate() {
            let component = guest("hostile.wasm");
            let plugin = sandbox.load(name, &component, granted(), limits).await;
            let plugin = Arc::new(plugin.unwrap());
            for _ in 0..count {
                let plugin = plugin.clone();
                running.spawn(async move {
                    let called = plugin.call(tool("loop", None), intake(), None, tenant, "test");
                    match called.await {
                        Ok(_) => panic!("a loop ended well"),
                        Err(failed) => (index, failed.usage.fuel),
                    }
                });
            }
        }
        let mut spent = vec![0; calls.len()];
        while let Some(ended) = running.join_next().await {
            let (index, fuel) = ended.unwrap();
            spent[index] += fuel;
        }
        spent
    });
    let all: u64 = spent.iter().sum();
    spent.into_iter().map(|fuel| fuel * 100 / all).collect()
}

#[test]
fn a_flood_of_one_plugin_takes_half_of_the_turns_from_one_call_of_another() {
    let found = shares(1, &[("", "flood", 16), ("", "single", 1)]);
    assert!((40..=60).contains(&found[1]), "{found:?} %");
    // With two workers the single call can have one of them at most, and a busy machine may stop that one for a while. In
    // order of arrival it would have a seventeenth, 5 %.
    let found = shares(2, &[("", "flood", 16), ("", "single", 1)]);
    assert!((15..=60).contains(&found[1]), "{found:?} %");
}

#[test]
fn a_flood_of_one_tenant_takes_half_of_the_turns_from_one_call_of_another() {
    let found = shares(
        1,
        &[("x", "flood", 15), ("x", "single", 1), ("y", "flood", 1)],
    );
    for (found_part, expected) in found.iter().zip([25, 25, 50]) {
        assert!(found_part.abs_diff(expected) <= 10, "{found:?} %");
    }
}

/// Case O7: more calls than slots wait for one; those that get none before their deadline are told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o7_a_full_pool_makes_calls_wait_and_is_never_an_error() {
    let sandbox = sandbox(2);
    let patient = Arc::new(
        hostile_in(
            &sandbox,
            Limits {
                deadline: Duration::from_secs(30),
                ..SMALL
            },
        )
        .await,
    );
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..1_001 {
        let patient = patient.clone();
        calls.spawn(async move { is_fine(&patient).await });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }

    let looping = Arc::new(
        hostile_in(
            &sandbox,
            Limits {
                deadline: Duration::from_secs(1),
                ..TIME
            },
        )
        .await,
    );
    let hasty = hostile_in(
        &sandbox,
        Limits {
            deadline: Duration::from_millis(50),
            ..SMALL
        },
    )
    .await;
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let looping = looping.clone();
        loops.spawn(async move { fails(&looping, "loop").await });
    }
    while sandbox.slots().available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let failed = fails(&hasty, "fine").await;
    assert_eq!(failed.refusal.error, Code::Busy);
    assert_eq!(
        failed.refusal.message,
        "All slots for running calls stayed taken for 50 ms, so the call did not begin. Call again later."
    );
    loops.join_all().await;
    is_fine(&patient).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_leaves_ends_the_guest_at_once() {
    let sandbox = sandbox(1);
    let plugin = Arc::new(
        hostile_in(
            &sandbox,
            Limits {
                deadline: Duration::from_secs(30),
                ..TIME
            },
        )
        .await,
    );
    for name in ["loop", "sleep", "flood_rows"] {
        let running = tokio::spawn({
            let plugin = plugin.clone();
            async move { fails(&plugin, name).await }
        });
        while sandbox.slots().available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        // The one slot is free, or this would wait for 30 seconds.
        let started = Instant::now();
        is_fine(&plugin).await;
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}

#[tokio::test]
async fn a_guest_sees_what_it_was_granted_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("record.json"), "{}").unwrap();
    let files = vec![FileGrant {
        host: folder.path().to_owned(),
        guest: "/data".into(),
        write: false,
    }];
    let grants = Grants { files, ..granted() };
    let plugin = SANDBOX
        .load("hostile", &guest("hostile.wasm"), grants, SMALL)
        .await
        .unwrap();
    let called = call(&plugin, "look_around")
        .await
        .map_err(|failed| failed.refusal)
        .unwrap();
    let seen: serde_json::Value = serde_json::from_slice(&called.intake.kept.bytes).unwrap();
    assert_eq!(seen["environment"], serde_json::json!([]));
    assert_eq!(seen["arguments"], serde_json::json!([]));
    assert_eq!(seen["password_file"], false);
    assert_eq!(seen["written"], false);
    assert!(!folder.path().join("written").exists());
    assert!(
        !seen.to_string().contains(&*folder.path().to_string_lossy()),
        "{seen}"
    );

    // A folder that went away is a failure of the call, which names the guest's path alone.
    folder.close().unwrap();
    let failed = fails(&plugin, "fine").await;
    assert_eq!(failed.refusal.error, Code::Unavailable);
    assert_eq!(
        failed.refusal.message,
        "The call did not begin: the granted folder `/data` cannot be opened. The operator has to mend it."
    );
}

#[tokio::test]
async fn a_request_for_the_other_world_is_refused() {
    let plugin = hostile(SMALL).await;
    let request = Request::Get {
        collection: "any".into(),
        key: "1".into(),
    };
    let failed = plugin
        .call(request, intake(), None, "crew", "test")
        .await
        .err()
        .unwrap();
    assert_eq!(failed.refusal.error, Code::NotFound);
}

// Loading.

#[tokio::test]
async fn a_plugin_is_described_when_it_is_loaded() {
    let plugin = hostile(SMALL).await;
    assert_eq!(
        (plugin.name(), plugin.world(), plugin.limits()),
        ("hostile", World::ToolHandler, SMALL)
    );
    assert!(
        plugin
            .imports()
            .iter()
            .any(|import| import == "plimsoll:plugin/reply@0.1.0")
    );
    let Description { tools, .. } = plugin.description();
    assert_eq!(tools[0].name, "fine");
}

async fn refused_as(component: &[u8], grants: Grants, limits: Limits) -> String {
    let error = SANDBOX
        .load("hostile", component, grants, limits)
        .await
        .unwrap_err();
    format!("{error:#}")
}

#[tokio::test]
async fn describing_a_plugin_has_the_limits_of_a_call() {
    let component = guest("hostile.wasm");
    let expected = [
        (
            "loop",
            "`list-tools` failed: out_of_fuel: The plugin used up its fuel, 50000000 units of computing, and was stopped.",
        ),
        (
            "grow",
            "`list-tools` failed: out_of_memory: The plugin asked for more than its 33554432 bytes of memory and was stopped.",
        ),
        (
            "trap",
            "`list-tools` failed: plugin_trapped: The plugin broke: it executed `unreachable`",
        ),
        (
            "fault",
            "`list-tools` failed: unavailable: the list is out of reach",
        ),
    ];
    for (config, message) in expected {
        let grants = Grants {
            config: BTreeMap::from([("list_tools".into(), config.into())]),
            ..granted()
        };
        let error = refused_as(&component, grants, PATIENT).await;
        assert!(error.starts_with(message), "{config}: {error}");
    }
    let grants = Grants {
        config: BTreeMap::from([("list_tools".into(), "flood".into())]),
        ..granted()
    };
    let roomy = Limits {
        fuel: u64::MAX,
        memory_bytes: 128 << 20,
        deadline: Duration::from_secs(20),
    };
    assert_eq!(
        refused_as(&component, grants.clone(), roomy).await,
        "`list-tools` returned more than 8388608 bytes"
    );
    let grants = Grants {
        config: BTreeMap::from([("list_tools".into(), "loop".into())]),
        ..granted()
    };
    let error = refused_as(&component, grants, TIME).await;
    assert!(
        error
            .starts_with("`list-tools` failed: invoke_timeout: The call did not end within 300 ms"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_no_component_is_refused_with_what_it_is() {
    assert_eq!(
        refused_as(b"#!/bin/sh", Grants::default(), SMALL).await,
        "it is not a WebAssembly file"
    );
    assert_eq!(
        refused_as(
            &wat::parse_str("(module)").unwrap(),
            Grants::default(),
            SMALL
        )
        .await,
        "it is a core module, and a plugin is a component\n\
         hint: build for `wasm32-wasip2`, or wrap the module with `wasm-tools component new`"
    );
    let cut = &guest("hostile.wasm")[..1000];
    assert!(
        refused_as(cut, granted(), SMALL)
            .await
            .starts_with("it is not a component that the host can run: ")
    );
}

#[tokio::test]
async fn a_component_of_another_kind_is_refused_with_what_it_exports() {
    assert_eq!(
        refused_as(&text_guest("neither_world.wat"), Grants::default(), SMALL).await,
        "it fits no world of the contract: expected one export of `plimsoll:plugin/tools@0.1.0` (world `tool-handler`) or \
         `plimsoll:plugin/backend@0.1.0` (world `backend-adapter`), found: `hello`"
    );
    assert_eq!(
        refused_as(
            &wat::parse_str("(component)").unwrap(),
            Grants::default(),
            SMALL
        )
        .await,
        "it fits no world of the contract: expected one export of `plimsoll:plugin/tools@0.1.0` (world `tool-handler`) or \
         `plimsoll:plugin/backend@0.1.0` (world `backend-adapter`), found: nothing"
    );
    assert_eq!(
        refused_as(&text_guest("newer_contract.wat"), Grants::default(), SMALL).await,
        "it exports `plimsoll:plugin/tools@9.1.0`, the host knows `plimsoll:plugin/tools@0.1.0`"
    );
    assert_eq!(
        refused_as(&text_guest("wrong_types.wat"), Grants::default(), SMALL).await,
        "the export `plimsoll:plugin/tools@0.1.0` does not have the types of the contract: function `list-tools`: \
         expected 1-tuple, found 0-tuple"
    );
}

/// Case P5.
#[tokio::test]
async fn p5_an_import_that_is_not_offered_is_refused_with_what_is() {
    assert_eq!(
        refused_as(&text_guest("wants_too_much.wat"), granted(), SMALL).await,
        "it wants `wasi:filesystem/types@0.9.0`, the host offers `wasi:filesystem/types@0.2.12`\n\
         it wants `acme:billing/charge@1.0.0`, the host offers nothing of that name\n\
         hint: the host offers `plimsoll:plugin@0.1.0` (log, reply, shaping, types), `plimsoll:plugin@0.1.0` (sql), `wasi:config@0.2.0-rc.1` (store), \
         `wasi:cli@0.2.12` (environment, exit, stderr, stdin, stdout, terminal-input, terminal-output, terminal-stderr, \
         terminal-stdin, terminal-stdout), `wasi:io@0.2.12` (error, poll, streams), `wasi:filesystem@0.2.12` (preopens, \
         types), `wasi:clocks@0.2.12` (monotonic-clock, wall-clock), `wasi:http@0.2.12` (outgoing-handler, types), \
         `wasi:random@0.2.12` (insecure, insecure-seed, random)"
    );
    let network =
        component_with_imports(&["wasi:http/incoming-handler@0.2.3", "wasi:sockets/tcp@0.2.6"]);
    let error = refused_as(&network, granted(), SMALL).await;
    assert!(
        error.starts_with(
            "it wants `wasi:http/incoming-handler@0.2.3`, the host offers nothing of that name\n\
             it wants `wasi:sockets/tcp@0.2.6`, the host offers no sockets, only `wasi:http/outgoing-handler`\n\
             hint: the host offers `plimsoll:plugin@0.1.0`"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn an_import_that_is_not_granted_is_refused_with_the_lines_to_add() {
    assert_eq!(
        refused_as(&guest("hostile.wasm"), Grants::default(), SMALL).await,
        "it wants `wasi:clocks/monotonic-clock@0.2.6`, `wasi:clocks/wall-clock@0.2.6`, which its entry does not grant\n\
         hint: add to `plimsoll.toml`\n[plugins.hostile]\nclock = true"
    );
    let component = component_with_imports(&[
        "wasi:clocks/wall-clock@0.2.0",
        "wasi:random/insecure-seed@0.2.6",
        "wasi:cli/exit@0.2.6",
    ]);
    assert_eq!(
        refused_as(&component, Grants::default(), SMALL).await,
        "it wants `wasi:clocks/wall-clock@0.2.0`, `wasi:random/insecure-seed@0.2.6`, which its entry does not grant\n\
         hint: add to `plimsoll.toml`\n[plugins.hostile]\nclock = true\nrandom = true"
    );
    let requests = component_with_imports(&["wasi:http/outgoing-handler@0.2.3"]);
    assert_eq!(
        refused_as(&requests, granted(), SMALL).await,
        "it wants `wasi:http/outgoing-handler@0.2.3`, which its entry does not grant\n\
         hint: add to `plimsoll.toml`\n[plugins.hostile]\nhosts = [\"https://HOST\"]"
    );
    let inspection = SANDBOX.imports(&component).unwrap();
    assert_eq!(inspection.needed, ["clock = true", "random = true"]);
    assert_eq!(inspection.world, Some(World::ToolHandler));
}

#[test]
fn types_alone_need_no_grant() {
    let component = wat::parse_str(
        r#"(component
            (import "wasi:clocks/wall-clock@0.2.6" (instance (type $time u64) (export "time" (type (eq $time)))))
            (import "acme:own/types@1.0.0" (instance (type $id u64) (export "id" (type (eq $id))))))"#,
    )
    .unwrap();
    let inspection = SANDBOX.imports(&component).unwrap();
    assert_eq!(
        (inspection.needed, inspection.missing),
        (Vec::new(), Vec::new())
    );
    assert_eq!(
        inspection.imports,
        ["wasi:clocks/wall-clock@0.2.6", "acme:own/types@1.0.0"]
    );
    assert_eq!(inspection.world, None);
}

/// Case O5.
#[tokio::test]
async fn o5_too_much_memory_to_begin_with_names_the_setting() {
    let component = wat::parse_str(
        r#"(component
            (core module $module (memory 600) (func (export "nothing")))
            (core instance $instance (instantiate $module))
            (func $nothing (canon lift (core func $instance "nothing")))
            (instance $tools (export "list-tools" (func $nothing)) (export "call-tool" (func $nothing)))
            (export "plimsoll:plugin/tools@0.1.0" (instance $tools)))"#,
    )
    .unwrap();
    assert_eq!(
        refused_as(&component, Grants::default(), SMALL).await,
        "it begins with 39321600 bytes of memory, and its limit is 33554432\nhint: raise `memory_bytes`"
    );
}

/// A later patch of the contract adds nothing that a host of an earlier one has to know.
#[tokio::test]
async fn a_plugin_of_a_later_patch_of_the_contract_is_loaded() {
    let component = guest("hostile.wasm");
    let (name, later) = (
        b"plimsoll:plugin/tools@0.1.0",
        b"plimsoll:plugin/tools@0.1.9",
    );
    let mut later_component = component.clone();
    let places: Vec<usize> = component
        .windows(name.len())
        .enumerate()
        .filter(|(_, w)| w == name)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        later_component[at..at + name.len()].copy_from_slice(later);
    }
    let plugin = SANDBOX
        .load("hostile", &later_component, granted(), SMALL)
        .await
        .unwrap();
    is_fine(&plugin).await;
}

/// What the table promises is in the linker, in that version.
#[test]
fn all_that_is_offered_is_linked() {
    let names = [
        "log/write",
        "sql/describe",
        "reply/rows",
        "store/get",
        "outgoing-handler/handle",
        "types/http-error-code",
        "environment/get-arguments",
        "exit/exit",
        "stderr/get-stderr",
        "stdin/get-stdin",
        "stdout/get-stdout",
        "terminal-input/terminal-input",
        "terminal-output/terminal-output",
        "terminal-stderr/get-terminal-stderr",
        "terminal-stdin/get-terminal-stdin",
        "terminal-stdout/get-terminal-stdout",
        "error/error",
        "poll/poll",
        "streams/input-stream",
        "preopens/get-directories",
        "types/filesystem-error-code",
        "monotonic-clock/now",
        "wall-clock/now",
        "insecure/get-insecure-random-u64",
        "insecure-seed/insecure-seed",
        "random/get-random-u64",
    ];
    let mut linked = 0;
    for package in super::inspect::OFFERED {
        for interface in package.interfaces {
            // These two have types alone, which no linker holds.
            if package.name == "plimsoll:plugin" && ["shaping", "types"].contains(interface) {
                continue;
            }
            let name = format!("{}/{interface}@{}", package.name, package.version);
            let is_of_http = package.name == "wasi:http";
            let known = |known: &&&str| {
                known.split_once('/').unwrap().0 == *interface
                    && known.contains("http-error") == is_of_http
            };
            let is_handler = |name: &&&str| {
                name.starts_with("outgoing-handler/") && *interface == "outgoing-handler"
            };
            let function = names
                .iter()
                .find(|name| known(name) || is_handler(name))
                .unwrap()
                .split_once('/')
                .unwrap()
                .1;
            let mut linker = SANDBOX.linker().clone();
            // What is there already cannot be defined once more.
            let error = linker
                .instance(&name)
                .unwrap()
                .func_wrap(function, |_, (): ()| Ok(()))
                .unwrap_err();
            assert!(
                error.to_string().contains("defined twice"),
                "{name}: {error}"
            );
            linked += 1;
        }
    }
    assert_eq!(linked, names.len());
}

#[tokio::test]
async fn limits_beyond_the_hosts_own_are_refused() {
    let component = guest("hostile.wasm");
    let late = Limits {
        deadline: Duration::from_millis(60_001),
        ..SMALL
    };
    assert_eq!(
        refused_as(&component, granted(), late).await,
        "deadline_ms must be at most 60000, since clients hang up at 60 s: 60001"
    );
    let large = Limits {
        memory_bytes: (128 << 20) + 1,
        ..SMALL
    };
    assert_eq!(
        refused_as(&component, granted(), large).await,
        "memory_bytes must be at most 134217728: 134217729"
    );
}

/// A tool-handler (by name, not by types) that imports these, each with one function.
fn component_with_imports(names: &[&str]) -> Vec<u8> {
    let imports: String = names
        .iter()
        .map(|name| format!("(import \"{name}\" (instance (export \"any\" (func))))\n"))
        .collect();
    let text = format!(
        r#"(component {imports}
            (core module $module (func (export "nothing")))
            (core instance $instance (instantiate $module))
            (func $nothing (canon lift (core func $instance "nothing")))
            (instance $tools (export "list-tools" (func $nothing)) (export "call-tool" (func $nothing)))
            (export "plimsoll:plugin/tools@0.1.0" (instance $tools)))"#
    );
    wat::parse_str(text).unwrap()
}

// What only core WebAssembly can do, at the time of instantiation.

async fn instantiated(text: &str, limits: Limits) -> Result<(), Refusal> {
    let component =
        Component::from_binary(SANDBOX.engine(), &wat::parse_str(text).unwrap()).unwrap();
    let pre = SANDBOX.linker().instantiate_pre(&component).unwrap();
    let journal = Journal::new("text".into(), "none", "", "test");
    let requests = Requests::new(
        Arc::default(),
        TrustedRoots::default().client(),
        Instant::now() + limits.deadline,
        journal.clone(),
    );
    let state = State::new(
        Grants::default().wasi(&journal).unwrap(),
        requests,
        Session::new(
            Arc::new(Databases::open(&std::collections::BTreeMap::new()).unwrap()),
            Instant::now() + limits.deadline,
            journal.clone(),
        ),
        Arc::default(),
        journal,
        &limits,
    );
    let turn = Turn::new();
    let mut store = instance::store(
        SANDBOX.engine(),
        state,
        &limits,
        limits.memory_bytes as usize,
        &turn,
    )
    .unwrap();
    match turn
        .run(
            SANDBOX.seat("", &"text".into()),
            Instant::now() + limits.deadline,
            pre.instantiate_async(&mut store),
        )
        .await
    {
        None => Err(failure::timeout(limits.deadline)),
        Some(Err(error)) => Err(failure::broken(&error, &limits)),
        Some(Ok(_)) => Ok(()),
    }
}

/// Case O1: tables as well as memory.
#[tokio::test]
async fn o1_tables_and_memories_are_limited_while_a_guest_is_instantiated() {
    let started = |body: &str| {
        format!(
            "(component (core module $module {body} (start $start)) (core instance (instantiate $module)))"
        )
    };
    let table = started(
        "(table $t 1 funcref) (func $start (drop (table.grow $t (ref.null func) (i32.const 65536))))",
    );
    let refusal = instantiated(&table, SMALL).await.unwrap_err();
    assert_eq!(refusal.error, Code::OutOfMemory);
    assert_eq!(
        refusal.message,
        "The plugin asked for a table of more than 65536 elements and was stopped. The same call fails again."
    );
    let memory =
        started("(memory 1) (memory $b 1) (func $start (drop (memory.grow $b (i32.const 511))))");
    assert_eq!(
        instantiated(&memory, SMALL).await.unwrap_err().error,
        Code::OutOfMemory
    );
    let modest =
        started("(memory 1) (memory $b 1) (func $start (drop (memory.grow $b (i32.const 510))))");
    assert_eq!(instantiated(&modest, SMALL).await, Ok(()));
    let forever = started("(func $start (loop $again (br $again)))");
    assert_eq!(
        instantiated(&forever, SMALL).await.unwrap_err().error,
        Code::OutOfFuel
    );
    assert_eq!(
        instantiated(&forever, TIME).await.unwrap_err().error,
        Code::InvokeTimeout
    );
}

/// Case O3: lists that cost the guest nothing and the host a look-up each.
#[tokio::test]
async fn o3_polling_handles_without_end_stops_at_the_deadline() {
    let text = r#"(component
        (import "wasi:io/poll@0.2.6" (instance $poll
            (export "pollable" (type $pollable (sub resource)))
            (export "poll" (func (param "in" (list (borrow $pollable))) (result (list u32))))))
        (alias export $poll "pollable" (type $pollable))
        (import "wasi:clocks/monotonic-clock@0.2.6" (instance $clock
            (alias outer 1 $pollable (type $outer))
            (export "pollable" (type $pollable (eq $outer)))
            (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
        (core module $memory (memory (export "memory") 1900) (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 16))
        (core instance $memory (instantiate $memory))
        (core func $poll (canon lower (func $poll "poll") (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
        (core func $subscribe (canon lower (func $clock "subscribe-duration")))
        (core module $module
            (import "host" "memory" (memory 1))
            (import "host" "poll" (func $poll (param i32 i32 i32)))
            (import "host" "subscribe" (func $subscribe (param i64) (result i32)))
            (func $start (local $handle i32) (local $at i32)
                (local.set $handle (call $subscribe (i64.const 0)))
                (local.set $at (i32.const 65536))
                (loop $fill
                    (i32.store (local.get $at) (local.get $handle))
                    (local.set $at (i32.add (local.get $at) (i32.const 4)))
                    (br_if $fill (i32.lt_u (local.get $at) (i32.const 120000000))))
                (loop $again
                    (call $poll (i32.const 65536) (i32.const COUNT) (i32.const 0))
                    (br $again)))
            (start $start))
        (core instance (instantiate $module (with "host" (instance
            (export "memory" (memory $memory "memory"))
            (export "poll" (func $poll))
            (export "subscribe" (func $subscribe)))))))"#;
    let limits = Limits {
        fuel: u64::MAX,
        memory_bytes: 128 << 20,
        deadline: Duration::from_secs(2),
    };
    let poll = |count: u32| text.replace("COUNT", &count.to_string());
    let refusal = instantiated(&poll(5_000_000), limits).await.unwrap_err();
    assert_eq!(refusal.error, Code::OutOfMemory);
    assert_eq!(
        refusal.message,
        "The plugin held more than 1000 files, streams or timers at a time and was stopped. Ask for less."
    );
    // Over and over with as many as are let through: the guest spends next to no fuel on it.
    let started = Instant::now();
    assert_eq!(
        instantiated(&poll(1_000), limits).await.unwrap_err().error,
        Code::InvokeTimeout
    );
    assert!(
        started.elapsed() < limits.deadline + Duration::from_millis(300),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_component_with_too_many_parts_is_refused() {
    let parts = |count: usize, part: &str| {
        let instances = "(core instance (instantiate $module))".repeat(count);
        wat::parse_str(format!(
            "(component (core module $module {part}) {instances})"
        ))
        .unwrap()
    };
    for (count, part, found) in [
        (129, "", "129 core module instances"),
        (5, "(memory 1)", "5 Wasm linear memories"),
        (5, "(table 1 funcref)", "5 tables"),
    ] {
        let error = format!("{:#}", SANDBOX.imports(&parts(count, part)).unwrap_err());
        assert!(error.contains(found), "{error}");
        assert!(SANDBOX.imports(&parts(count - 1, part)).is_ok());
    }
}

// What a guest writes for the operator.

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Whether the last line has this in it.
    fn ends_with(&self, text: &str) -> bool {
        let bytes = self.0.lock().unwrap();
        let tail = &bytes[bytes.len().saturating_sub(500)..];
        tail.windows(text.len())
            .any(|window| window == text.as_bytes())
    }
}

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn log_of(name: &str) -> String {
    // Time for a thousand lines on a busy machine.
    let plugin = hostile(PATIENT).await;
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    // With one subscriber alone, a place that another thread logs from first is taken to be of no interest to anybody.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
    let guard = tracing::subscriber::set_default(subscriber);
    // A flood goes on for a while after its last line was written, and then its caller leaves.
    let mut flood = std::pin::pin!(call(&plugin, name));
    let mut turns_after = 0;
    std::future::poll_fn(|context| {
        let is_cut = written.ends_with("are dropped after 1000");
        turns_after += u32::from(is_cut);
        match flood.as_mut().poll(context) {
            Poll::Pending if turns_after < 50 => Poll::Pending,
            _ => Poll::Ready(()),
        }
    })
    .await;
    drop(guard);
    let bytes = written.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_guest_that_floods_the_log_is_cut_in_length_and_number() {
    for name in ["flood_log", "flood_stdout"] {
        let log = log_of(name).await;
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("plimsoll::plugin: "))
            .collect();
        assert_eq!(lines.len(), MAX_LINES as usize + 1, "{name}");
        assert!(
            lines
                .last()
                .unwrap()
                .contains("further lines of this call are dropped after 1000")
        );
        assert!(log.lines().all(|line| line.len() < 5_000));
        assert_eq!(
            log.contains("… (the first 4096 of 100000 bytes)"),
            name == "flood_log"
        );
    }
}

#[tokio::test]
async fn a_panic_goes_to_the_log_with_plugin_tool_and_call() {
    let log = log_of("panic").await;
    assert!(
        log.contains(r#"plugin=hostile tool="panic" tenant="crew" call="test" source="stderr""#),
        "{log}"
    );
    assert!(log.contains("a panic, as ordered"), "{log}");
    assert!(log.contains("the plugin broke: "), "{log}");
}
