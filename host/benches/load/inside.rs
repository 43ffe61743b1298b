//! What is measured inside of this process: the call floor, the stages, guests of JavaScript.

use std::hint::black_box;

use cpu_time::ThreadTime;
use plimsoll::shape::bench;
use serde_json::json;

use crate::median;
use crate::subjects::guest::{Bare, Ours};
use crate::subjects::rows::{Kind, document, document_of};
use crate::subjects::{MIB, Subject, plain, through_values, with_columns, with_horizon, with_view};
use crate::table::{Bound, Row, micros, millis};

/// How often something is measured.
const ROUNDS: usize = 15;

/// Processor seconds of one of `calls` calls: what is measured here runs on one thread, and nobody else's turn counts.
fn seconds<T>(calls: u32, mut call: impl FnMut() -> T) -> f64 {
    let began = ThreadTime::now();
    for _ in 0..calls {
        black_box(call());
    }
    began.elapsed().as_secs_f64() / f64::from(calls)
}

/// The median of some rounds.
fn alone<T>(calls: u32, mut call: impl FnMut() -> T) -> f64 {
    call();
    let rounds: Vec<f64> = (0..ROUNDS).map(|_| seconds(calls, &mut call)).collect();
    median(&rounds, |seconds| *seconds)
}

/// The medians of two that take turns.
fn in_turn<A, B>(
    calls: u32,
    mut ours: impl FnMut() -> A,
    mut theirs: impl FnMut() -> B,
) -> (f64, f64) {
    let _ = (ours(), theirs());
    let rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| (seconds(calls, &mut ours), seconds(calls, &mut theirs)))
        .collect();
    (
        median(&rounds, |round| round.0),
        median(&rounds, |round| round.1),
    )
}

pub(crate) fn rows() -> Vec<Row> {
    [floor(), scans(), stages(), growth(), scripts()]
        .into_iter()
        .flatten()
        .collect()
}

fn floor() -> Vec<Row> {
    let (ours, bare) = (Ours::new("bench-rows.wasm"), Bare::new("bench-rows.wasm"));
    let row = |tool: &str, what: &str, bound| {
        let (ours, theirs) = in_turn(300, || ours.call(tool), || bare.call(tool));
        let ratio = ours / theirs;
        Row::compared(
            what,
            micros(ours),
            bound,
            "bare wasmtime",
            &micros(theirs),
            ratio,
        )
    };
    vec![
        row(
            "small",
            "call floor: fresh instance, 200 B, all limits on",
            Bound::AtMost(1.25),
        ),
        row(
            "rows",
            "the same handing over 1 MiB, which bare wasmtime does not look at",
            Bound::None,
        ),
    ]
}

fn rate(bytes: usize, seconds: f64) -> (String, f64) {
    let rate = bytes as f64 / seconds / 1e9;
    (format!("{rate:.2} GB/s"), rate)
}

fn scans() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, kind) in [
        ("", Kind::Narrow),
        (", wide", Kind::Wide),
        (", Chinese", Kind::NarrowCjk),
    ] {
        let document = document(kind, 16 * MIB);
        let bound = |target| {
            if kind == Kind::Narrow {
                Bound::AtLeast(target)
            } else {
                Bound::None
            }
        };
        let subject = Subject::new(&plain());
        let ask = subject.ask(json!({}));
        let (text, number) = rate(
            document.len(),
            alone(1, || subject.take_in(&ask, &document)),
        );
        let what = format!("16 MiB of rows{name}: find, count, page");
        rows.push(Row::alone(&what, text, bound(2.0), number, "GB/s"));
        let subject = Subject::new(&with_horizon());
        let ask = subject.ask(json!({}));
        let (ours, theirs) = in_turn(
            1,
            || subject.take_in(&ask, &document),
            || through_values(&document),
        );
        let (text, number) = rate(document.len(), ours);
        let what = format!("… with a horizon on one field of each row{name}");
        rows.push(Row::alone(&what, text.clone(), bound(1.0), number, "GB/s"));
        let (peer, _) = rate(document.len(), theirs);
        rows.push(Row::compared(
            &what,
            text,
            bound(8.0),
            "serde_json values",
            &peer,
            theirs / ours,
        ));
    }
    rows
}

fn stages() -> Vec<Row> {
    let of = |subject: &Subject, arguments: serde_json::Value, size: usize, kind| {
        let ask = subject.ask(arguments);
        let mut intake = subject.take_in(&ask, &document(kind, size * MIB));
        alone(20, || subject.shape(&ask, &mut intake))
    };
    let view = Subject::new(&with_view());
    let (small, large) = (
        of(&view, json!({}), 1, Kind::Wide),
        of(&view, json!({}), 16, Kind::Wide),
    );
    let fit = Subject::new(&plain());
    let fit = of(
        &fit,
        json!({"limit": 100, "max_tokens": 8_000}),
        16,
        Kind::Narrow,
    );
    let table = Subject::new(&with_columns());
    let ask = table.ask(json!({}));
    let document = document_of(Kind::Narrow, 100_000);
    let intake = table.take_in(&ask, &document);
    let csv = alone(1, || bench::csv(&intake, &table.policy));
    let csv = document.len() as f64 / csv / 1e6;
    vec![
        Row::compared(
            "view of 8 of 30 fields on a page of 16 MiB",
            micros(large),
            Bound::AtMost(1.25),
            "of 1 MiB",
            &micros(small),
            large / small,
        ),
        Row::alone(
            "fit to 8,000 tokens of a 16 MiB answer",
            millis(fit),
            Bound::AtMost(5.0),
            fit * 1e3,
            "ms",
        ),
        Row::alone(
            "csv of 100,000 rows, by bytes of input",
            format!("{csv:.0} MB/s"),
            Bound::AtLeast(300.0),
            csv,
            "MB/s",
        ),
    ]
}

fn growth() -> Vec<Row> {
    let subject = Subject::new(&plain());
    let ask = subject.ask(json!({}));
    let a_row = |rows: usize| {
        let document = document_of(Kind::Narrow, rows);
        let calls = (100_000 / rows).max(1) as u32;
        alone(calls, || subject.take_in(&ask, &document)) / rows as f64
    };
    let (few, many) = (a_row(1_000), a_row(1_000_000));
    let nanos = |seconds: f64| format!("{:.1} ns", seconds * 1e9);
    vec![Row::compared(
        "time a row, of 1,000,000 rows",
        nanos(many),
        Bound::AtMost(1.25),
        "of 1,000 rows",
        &nanos(few),
        many / few,
    )]
}

fn scripts() -> Vec<Row> {
    let ours = Ours::new("bench-rows-js.wasm");
    let row = |tool: &str, what: &str, calls, target| {
        let taken = alone(calls, || ours.call(tool));
        Row::alone(
            what,
            millis(taken),
            Bound::AtMost(target),
            taken * 1e3,
            "ms",
        )
    };
    vec![
        row(
            "small",
            "JavaScript plugin: fresh instance, small call",
            30,
            0.5,
        ),
        row("held", "… 1 MiB that it holds as bytes", 10, 3.0),
        row("built", "… 5,000 rows that it builds as JSON", 2, 45.0),
    ]
}
