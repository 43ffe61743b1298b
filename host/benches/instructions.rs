//! Instructions of the shape functions, counted by callgrind: `make instructions`.
//!
//! Each case is one call of [`measured`], for which callgrind counts alone: nothing before it, no network, no clock, and rows
//! from a fixed seed. What is left of chance is the seed of hash maps, well under the tolerance. `host/benches/instructions`
//! runs this and compares the counts.

mod subjects;

use std::hint::black_box;

use plimsoll::shape::{bench, tokens};
use serde_json::json;
use subjects::rows::{Kind, document};
use subjects::{MIB, Subject, plain, with_columns, with_horizon, with_view};

/// What callgrind begins and ends to count at.
#[inline(never)]
fn measured(case: &mut dyn FnMut() -> usize) -> usize {
    black_box(case())
}

fn main() {
    let mut names = Vec::new();
    let mut run = |name: &str, case: &mut dyn FnMut() -> usize| {
        names.push(name.to_owned());
        measured(case);
    };
    // Its tables are no part of any case.
    tokens::warm();
    for (name, kind) in [("narrow", Kind::Narrow), ("wide_cjk", Kind::WideCjk)] {
        let document = document(kind, MIB);
        for (stage, shape) in [("scan", plain()), ("horizon", with_horizon())] {
            let subject = Subject::new(&shape);
            let ask = subject.ask(json!({}));
            run(&format!("{stage}/{name}"), &mut || {
                usize::from(subject.take_in(&ask, &document).has_too_many_attachments())
            });
        }
        let subject = Subject::new(&with_columns());
        let ask = subject.ask(json!({}));
        let intake = subject.take_in(&ask, &document);
        run(&format!("csv/{name}"), &mut || {
            bench::csv(&intake, &subject.policy)
        });
    }
    let document = document(Kind::Wide, MIB);
    for (name, shape, arguments) in [
        ("page", plain(), json!({})),
        ("view", with_view(), json!({})),
        ("fit", plain(), json!({"limit": 100, "max_tokens": 8_000})),
        ("cap", plain(), json!({"limit": 100})),
    ] {
        let subject = Subject::new(&shape);
        let ask = subject.ask(arguments);
        let mut intake = subject.take_in(&ask, &document);
        run(name, &mut || {
            subject.shape(&ask, &mut intake).bytes() as usize
        });
    }
    let subject = Subject::new(&plain());
    let reply = subject.answer(json!({}), &document);
    let after = reply.next_after().expect("there are more rows").to_owned();
    run("cursor", &mut || {
        usize::from(subject.ask(json!({"after": after})).is_continuation())
    });
    // The order in which callgrind's dumps are to be read.
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    for name in names {
        let _ = writeln!(out, "{name}");
    }
}
