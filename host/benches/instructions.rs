//! Instructions of the shape functions, counted by callgrind: `make instructions`.
//!
//! Without a name it lists its cases; with one it runs that case. Callgrind counts [`measured`] alone: nothing before it, no
//! network, no clock, and rows from a fixed seed. What is left of chance is the seed of hash maps, well under the tolerance.
//! `host/benches/count` runs this and compares the counts.

#![expect(clippy::print_stdout, reason = "a script reads the names")]

mod subjects;

use std::hint::black_box;

use plimsoll::contract::Shape;
use plimsoll::shape::bench;
use serde_json::{Value, json};
use subjects::rows::{Kind, document};
use subjects::{MIB, Subject, plain, with_columns, with_horizon, with_view};

/// What is counted: its name, its rows, and what is done with them.
type Case = (&'static str, Kind, fn(&str));

const CASES: [Case; 11] = [
    ("scan/narrow", Kind::Narrow, |rows| take_in(&plain(), rows)),
    ("scan/wide_cjk", Kind::WideCjk, |rows| {
        take_in(&plain(), rows)
    }),
    ("horizon/narrow", Kind::Narrow, |rows| {
        take_in(&with_horizon(), rows)
    }),
    ("horizon/wide_cjk", Kind::WideCjk, |rows| {
        take_in(&with_horizon(), rows)
    }),
    ("csv/narrow", Kind::Narrow, csv),
    ("csv/wide_cjk", Kind::WideCjk, csv),
    ("page/wide", Kind::Wide, |rows| {
        page(&plain(), json!({}), rows)
    }),
    ("view/wide", Kind::Wide, |rows| {
        page(&with_view(), json!({}), rows)
    }),
    ("fit/wide", Kind::Wide, |rows| {
        page(&plain(), json!({"limit": 100, "max_tokens": 8_000}), rows)
    }),
    ("cap/wide", Kind::Wide, |rows| {
        page(&plain(), json!({"limit": 100}), rows)
    }),
    ("cursor", Kind::Narrow, cursor),
];

fn main() {
    let name = std::env::args().skip(1).find(|name| name != "--bench");
    for (case, kind, run) in CASES {
        match &name {
            None => println!("{case}"),
            Some(name) if name == case => run(&document(kind, MIB)),
            Some(_) => {}
        }
    }
}

/// What callgrind begins and ends to count at.
#[inline(never)]
fn measured(case: &mut dyn FnMut() -> usize) {
    black_box(case());
}

fn take_in(shape: &Shape, rows: &str) {
    let subject = Subject::new(shape);
    let ask = subject.ask(json!({}));
    measured(&mut || {
        let intake = subject.take_in(&ask, rows);
        usize::from(intake.has_too_many_attachments())
    });
}

fn csv(rows: &str) {
    let subject = Subject::new(&with_columns());
    let ask = subject.ask(json!({}));
    let intake = subject.take_in(&ask, rows);
    measured(&mut || bench::csv(&intake, &subject.policy));
}

fn page(shape: &Shape, arguments: Value, rows: &str) {
    let subject = Subject::new(shape);
    let ask = subject.ask(arguments);
    let mut intake = subject.take_in(&ask, rows);
    // The tables of the tokenizer, and what it builds as it goes, are no part of a case.
    subject.shape(&ask, &mut intake);
    measured(&mut || subject.shape(&ask, &mut intake).bytes() as usize);
}

fn cursor(rows: &str) {
    let subject = Subject::new(&plain());
    let reply = subject.answer(json!({}), rows);
    let after = reply.next_after().expect("there are more rows").to_owned();
    measured(&mut || usize::from(subject.ask(json!({"after": after})).is_continuation()));
}
