//! The parts of a call, one by one: `cargo bench --bench parts`, or with a name behind it one of them.
//!
//! The guests have to be built: `make bench` does that.

mod subjects;

use std::cell::LazyCell;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use plimsoll::app::App;
use plimsoll::call::Caller;
use plimsoll::config::Config;
use plimsoll::shape::{Signer, bench};
use plimsoll::store::KeyRow;
use serde_json::{Map, json};
use subjects::guest::{Bare, Ours, root};
use subjects::rows::{Kind, document};
use subjects::{MIB, Subject, plain, with_columns, with_horizon, with_view};

const KINDS: [(&str, Kind); 4] = [
    ("narrow", Kind::Narrow),
    ("wide", Kind::Wide),
    ("narrow_cjk", Kind::NarrowCjk),
    ("wide_cjk", Kind::WideCjk),
];

/// Sizes of answers, in MiB.
const SIZES: [usize; 3] = [1, 16, 256];

/// Instantiate, call, drop.
fn floor(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("floor");
    let (ours, bare) = (Ours::new("bench-rows.wasm"), Bare::new("bench-rows.wasm"));
    for tool in ["small", "rows"] {
        group.bench_function(BenchmarkId::new("bare", tool), |b| {
            b.iter(|| bare.call(tool))
        });
        group.bench_function(BenchmarkId::new("ours", tool), |b| {
            b.iter(|| ours.call(tool))
        });
    }
}

/// An answer of some size and kind, made only where it is measured: the largest takes seconds.
struct Answer {
    name: String,
    bytes: usize,
    document: LazyCell<String, Box<dyn FnOnce() -> String>>,
}

impl Answer {
    fn new(size: usize, (name, kind): (&str, Kind)) -> Self {
        let bytes = size * MIB;
        Self {
            name: format!("{name}/{size}MiB"),
            bytes,
            document: LazyCell::new(Box::new(move || document(kind, bytes))),
        }
    }
}

/// Each stage on answers of every size and kind.
fn stages(criterion: &mut Criterion) {
    for size in SIZES {
        for kind in KINDS {
            let answer = Answer::new(size, kind);
            rows(criterion, &answer);
            page(criterion, &answer);
            csv(criterion, &answer);
        }
    }
}

/// Finding and counting rows, with a page of them; and with a horizon on one field of each.
fn rows(criterion: &mut Criterion, answer: &Answer) {
    for (name, shape) in [("scan", plain()), ("horizon", with_horizon())] {
        let subject = Subject::new(&shape);
        let ask = subject.ask(json!({}));
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(answer.bytes as u64));
        group.bench_function(&answer.name, |b| {
            b.iter(|| subject.take_in(&ask, &answer.document))
        });
    }
}

/// What is made of the rows of a page: of an answer that was taken in.
fn page(criterion: &mut Criterion, answer: &Answer) {
    for (name, shape, arguments) in [
        ("page", plain(), json!({})),
        ("view", with_view(), json!({})),
        ("fit", plain(), json!({"limit": 100, "max_tokens": 8_000})),
        ("cap", plain(), json!({"limit": 100})),
    ] {
        let subject = Subject::new(&shape);
        let ask = subject.ask(arguments);
        let mut group = criterion.benchmark_group(name);
        group.bench_function(&answer.name, |b| {
            let mut intake = subject.take_in(&ask, &answer.document);
            b.iter(|| subject.shape(&ask, &mut intake))
        });
    }
}

/// All of its rows as a table.
fn csv(criterion: &mut Criterion, answer: &Answer) {
    let subject = Subject::new(&with_columns());
    let ask = subject.ask(json!({}));
    let mut group = criterion.benchmark_group("csv");
    group.throughput(Throughput::Bytes(answer.bytes as u64));
    group.bench_function(&answer.name, |b| {
        let intake = subject.take_in(&ask, &answer.document);
        b.iter(|| bench::csv(&intake, &subject.policy))
    });
}

/// Reading arguments: without and with a cursor.
fn arguments(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("arguments");
    let subject = Subject::new(&with_horizon());
    let reply = subject.answer(json!({"horizon": "all"}), &document(Kind::Narrow, MIB));
    let after = reply.next_after().expect("there are more rows");
    group.bench_function("cursor", |b| {
        b.iter(|| subject.ask(json!({"after": after})))
    });
    group.bench_function("none", |b| b.iter(|| subject.ask(json!({}))));
}

/// A host whose plugins have so many tools, and so many keys.
fn host(runtime: &tokio::runtime::Runtime, tools: usize, keys: usize) -> (App, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let component = root().join("target/guests/bench-rows.wasm");
    let mut config = String::new();
    let mut left = tools;
    while left > 0 {
        // A plugin has 1,000 tools at most, three of them always.
        let some = left.min(1_000);
        config.push_str(&format!(
            "[plugins.p{left}]\ncomponent = {component:?}\nconfig = {{ prefix = \"p{left}_\", copies = \"{}\" }}\n",
            some.saturating_sub(3)
        ));
        left -= some;
    }
    config.push_str("[tenants.acme]\nplugins = [\"*\"]\n");
    let file = folder.path().join("plimsoll.toml");
    std::fs::write(&file, config).expect("the folder can be written");
    let app = runtime.block_on(async {
        let app = App::open(Config::read(&file)?).await?;
        for number in 0..keys {
            app.host.tenants().store().add_key(&key(number)).await?;
        }
        app.load().await?;
        anyhow::Ok(app)
    });
    (app.expect("the host starts"), folder)
}

fn key(number: usize) -> KeyRow {
    let id = format!("{number:012x}");
    KeyRow {
        hash: plimsoll::tenant::hash(&format!("plm_{id}_x"))
            .to_hex()
            .to_string(),
        id,
        tenant: "acme".into(),
        name: format!("key {number}"),
        is_admin: false,
        budget_mode: "inherit".into(),
        result_tokens: None,
        quotas: "{}".into(),
        created_ms: 0,
        expires_ms: None,
        revoked_ms: None,
        last_used_ms: None,
    }
}

/// Looking a tool and a key up, among few and among many; and checking arguments against a schema.
fn lookups(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let mut group = criterion.benchmark_group("lookup");
    for count in [10, 10_000] {
        let (app, _folder) = host(&runtime, count, count);
        let header = format!("Bearer plm_{:012x}_x", count / 2);
        let tenants = app.host.tenants();
        group.bench_function(BenchmarkId::new("key", count), |b| {
            b.iter(|| {
                runtime
                    .block_on(tenants.authenticate(Some(&header)))
                    .is_ok()
            })
        });
        let caller = Caller {
            tenant: "acme".into(),
            ..Caller::default()
        };
        let name = format!("p{count}_small_{}", 3);
        assert!(app.host.tool(&caller, &name).is_some(), "{name}");
        group.bench_function(BenchmarkId::new("tool", count), |b| {
            b.iter(|| app.host.tool(&caller, black_box(&name)))
        });
        let tool = app.host.tool(&caller, &format!("p{count}_many"));
        let tool = tool.expect("the guest has this tool");
        let signer = Signer::new([7; 32]);
        let arguments: Map<_, _> = json!({"rows": 7, "limit": 10})
            .as_object()
            .cloned()
            .unwrap_or_default();
        group.bench_function(BenchmarkId::new("arguments", count), |b| {
            b.iter(|| tool.read(&signer, "acme", arguments.clone()).is_ok())
        });
    }
}

criterion_group! {
    name = parts;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = floor, stages, arguments, lookups
}
criterion_main!(parts);
