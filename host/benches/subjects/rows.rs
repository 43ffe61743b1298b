//! Rows to measure with, from a fixed seed: the same bytes in every run and on every machine.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each bench and each guest has this file as a module of its own, and uses a part of it"
)]

/// What rows are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 10 fields and some 200 bytes, one of the fields nested.
    Narrow,
    /// 30 fields and some 900 bytes, two of the fields nested.
    Wide,
    /// As narrow ones, with Chinese text.
    NarrowCjk,
    /// As wide ones, with Chinese text.
    WideCjk,
}

/// The rows of the load program: 5,000 narrow ones, 1 MiB.
pub const LOAD_ROWS: usize = 5_000;

const WORDS: [&str; 16] = [
    "anchor", "ballast", "berth", "bilge", "bow", "cargo", "draught", "freight", "hatch", "hull",
    "keel", "lading", "mooring", "quay", "stern", "tonnage",
];

const CJK: [&str; 16] = [
    "锚地", "压载", "泊位", "舱底", "船首", "货物", "吃水", "运费", "舱口", "船体", "龙骨", "提单",
    "系泊", "码头", "船尾", "吨位",
];

const STATES: [&str; 4] = ["open", "gated", "merged", "closed"];

/// Knuth's generator with the constants of MMIX: two lines, and enough for text.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn text(random: &mut Random, is_cjk: bool, words: usize) -> String {
    let mut text = String::new();
    for word in 0..words {
        if is_cjk {
            text.push_str(CJK[random.below(CJK.len())]);
        } else {
            if word > 0 {
                text.push(' ');
            }
            text.push_str(WORDS[random.below(WORDS.len())]);
        }
    }
    text
}

fn row(kind: Kind, number: usize, random: &mut Random) -> String {
    let is_cjk = matches!(kind, Kind::NarrowCjk | Kind::WideCjk);
    let state = STATES[random.below(STATES.len())];
    let amount = random.below(1_000_000);
    let (name, owner) = (text(random, is_cjk, 2), text(random, is_cjk, 1));
    let (day, note) = (1 + random.below(28), text(random, is_cjk, 6));
    let mut row = format!(
        r#"{{"id":{number},"name":"{name}","state":"{state}","amount":{}.{:02},"owner":{{"name":"{owner}","team":{}}},"created":"2026-11-{day:02}","note":"{note}","tags":["{}"],"active":{},"parent":null"#,
        amount / 100,
        amount % 100,
        random.below(40),
        WORDS[random.below(WORDS.len())],
        random.below(2) == 0,
    );
    if matches!(kind, Kind::Wide | Kind::WideCjk) {
        let (by, reason) = (text(random, is_cjk, 1), text(random, is_cjk, 4));
        row.push_str(&format!(
            r#","gate":{{"verdict":"{}","by":"{by}","reason":"{reason}"}}"#,
            STATES[random.below(STATES.len())]
        ));
        for field in 12..=30 {
            let value = text(random, is_cjk, 3);
            row.push_str(&format!(r#","field_{field}":"{value}""#));
        }
    }
    row.push('}');
    row
}

/// A document of so many rows: `{"rows":[…]}`.
pub fn document_of(kind: Kind, rows: usize) -> String {
    let mut random = Random(7);
    let mut document = String::from("{\"rows\":[");
    for number in 0..rows {
        if number > 0 {
            document.push(',');
        }
        document.push_str(&row(kind, number, &mut random));
    }
    document.push_str("]}");
    document
}

/// The same of so many bytes, or up to a row more.
pub fn document(kind: Kind, bytes: usize) -> String {
    let mut random = Random(7);
    let mut document = String::from("{\"rows\":[");
    let mut number = 0;
    while document.len() < bytes {
        if number > 0 {
            document.push(',');
        }
        document.push_str(&row(kind, number, &mut random));
        number += 1;
    }
    document.push_str("]}");
    document
}

/// The small answer: one object of 200 bytes.
pub fn small() -> String {
    let mut small = String::from(r#"{"id":7,"state":"open","note":""#);
    let mut random = Random(7);
    while small.len() < 190 {
        small.push_str(WORDS[random.below(WORDS.len())]);
        small.push(' ');
    }
    small.truncate(198);
    small.push_str("\"}");
    small
}
