//! Gates: how much of one result a client program takes before it cuts it.
//!
//! Owns: the units in which programs measure, the size of texts in them, and which gate a reply reaches first. Which
//! program has which gates is none of this module's business.

use std::ops::{Add, Mul};

use serde_json::Value;

use super::format::Page;
use super::{cap, intake, tokens};
use crate::contract::Attachment;

/// In what a client program measures a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Bytes of UTF-8.
    Bytes,
    /// Characters as JavaScript counts them, in which most of the programs are written: code units of UTF-16, two for an
    /// emoji. That is never fewer than others count.
    Characters,
    /// Lines.
    Lines,
    /// Tokens (o200k).
    Tokens,
}

impl Unit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bytes, Self::Characters, Self::Lines, Self::Tokens];

    /// The name in messages and receipts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Characters => "characters",
            Self::Lines => "lines",
            Self::Tokens => "tokens",
        }
    }
}

/// What one client program takes of a result. A reply stays below each of these.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gates {
    /// The program, as messages name it.
    pub client: String,
    /// Bytes at which it cuts.
    pub bytes: Option<u64>,
    /// Characters at which it cuts.
    pub characters: Option<u64>,
    /// Lines at which it cuts.
    pub lines: Option<u64>,
    /// Tokens at which it cuts.
    pub tokens: Option<u64>,
    /// Whether images and audio count as the text that they are sent as. Other programs treat them apart.
    pub counts_media: bool,
}

/// A gate of a client program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// The program.
    pub client: String,
    /// What it measures.
    pub unit: Unit,
    /// Where it cuts.
    pub limit: u64,
}

/// A gate that a reply reaches, and by how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) gate: Gate,
    /// The reply in the unit of the gate.
    pub(super) found: u64,
}

impl Reached {
    /// How much has to go so that the reply is below.
    pub(super) fn excess(&self) -> u64 {
        self.found - self.gate.limit + 1
    }
}

/// A text in every unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size([u64; 4]);

impl Size {
    /// The size of a text block of a result. Counting tokens takes a while, so that is left out where nobody asks.
    pub(super) fn of(text: &str, tokens: impl FnOnce(&str) -> u64) -> Self {
        Self([
            text.len() as u64,
            characters(text.as_bytes()),
            breaks(text.as_bytes()) + 1,
            tokens(text),
        ])
    }

    /// The size of a row in a page, with the separator behind it but without tokens.
    fn of_row(row: &[u8]) -> Self {
        Self([
            row.len() as u64 + 1,
            characters(row) + 1,
            breaks(row) + 1,
            0,
        ])
    }

    pub(super) fn get(&self, unit: Unit) -> u64 {
        self.0[unit as usize]
    }
}

impl Add for Size {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|unit| self.0[unit] + other.0[unit]))
    }
}

impl Mul<u64> for Size {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.map(|size| size * times))
    }
}

fn characters(text: &[u8]) -> u64 {
    // Every byte but those that continue a character, and those that begin one of two code units twice.
    let begins = text.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    let doubles = text.iter().filter(|byte| **byte >= 0xF0).count();
    (begins + doubles) as u64
}

fn breaks(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

impl Gates {
    /// The gate in a unit.
    pub fn of(&self, unit: Unit) -> Option<u64> {
        match unit {
            Unit::Bytes => self.bytes,
            Unit::Characters => self.characters,
            Unit::Lines => self.lines,
            Unit::Tokens => self.tokens,
        }
    }

    /// The gate that this size reaches by the largest part of it.
    pub(super) fn reached(&self, size: &Size) -> Option<Reached> {
        let reached = Unit::ALL.into_iter().filter_map(|unit| {
            let limit = self.of(unit)?;
            let found = size.get(unit);
            (found >= limit).then(|| Reached {
                gate: Gate {
                    client: self.client.clone(),
                    unit,
                    limit,
                },
                found,
            })
        });
        let share = |reached: &Reached| reached.found as f64 / reached.gate.limit.max(1) as f64;
        reached.max_by(|a, b| share(a).total_cmp(&share(b)))
    }

    /// The gate that so many bytes reach, where the text is too large to be measured in other units.
    pub(super) fn reached_by_bytes(&self, bytes: u64) -> Option<Reached> {
        self.reached(&Size([bytes, 0, 0, 0]))
    }

    /// How many of the first `rows` rows can stay below the gates at all, and the gate that says so: judged by the rows
    /// alone, so that a page of a million rows is not put together to be measured. One row at least.
    pub(super) fn rows_within(
        &self,
        page: &Page<'_>,
        rows: usize,
        copies: u64,
    ) -> (usize, Option<Gate>) {
        let mut sum = Size::default();
        let mut within = (rows, None);
        for index in 0..rows {
            sum = sum + Size::of_row(page.row(index));
            if let Some(reached) = self.reached(&(sum * copies)) {
                within = (index.max(1), Some(reached.gate));
                break;
            }
        }
        if let Some(limit) = self.tokens {
            let counted = super::fit::rows_within(page, limit / copies).len();
            if counted < within.0 {
                let gate = Gate {
                    client: self.client.clone(),
                    unit: Unit::Tokens,
                    limit,
                };
                within = (counted.max(1), Some(gate));
            }
        }
        within
    }

    /// How many of these rows remain once the last ones have given up `excess` of a unit; one at least.
    pub(super) fn without(&self, page: &Page<'_>, rows: usize, unit: Unit, excess: u64) -> usize {
        let (mut rows, mut freed) = (rows, 0);
        while rows > 1 && freed < excess {
            rows -= 1;
            let row = page.row(rows);
            freed += match unit {
                Unit::Tokens => tokens::count(&String::from_utf8_lossy(row)) + 1,
                unit => Size::of_row(row).get(unit),
            };
        }
        rows
    }

    /// The smallest number that any gate names: a reply of fewer bytes passes all of them, since none counts in less than
    /// bytes.
    pub(super) fn smallest(&self) -> Option<u64> {
        Unit::ALL.into_iter().filter_map(|unit| self.of(unit)).min()
    }

    /// The size of a reply: facts, body and the link to the complete result, and the structured copy as it goes over the wire where there is one.
    pub(super) fn measure(
        &self,
        [facts, body, block]: [&str; 3],
        copy: Option<Copy>,
        attachments: &[Attachment],
    ) -> Size {
        let count = |text: &str| self.tokens.map_or(0, |_| tokens::count(text));
        let mut size = Size::of(facts, count) + Size::of(body, count);
        if !block.is_empty() {
            size = size + Size::of(block, count);
        }
        if let Some(copy) = copy {
            size = size + Size::of(&copy.text(facts, body), count);
        }
        attachments
            .iter()
            .fold(size, |size, attachment| size + self.attached(attachment))
    }

    /// What an attachment adds. Embedded resources are shown as text, and binary ones as the base64 that they come as;
    /// images and audio have rules of their own in most programs.
    pub(super) fn attached(&self, attachment: &Attachment) -> Size {
        let bytes = cap::attachment_bytes(attachment) as u64;
        match attachment {
            Attachment::Resource(embedded) if intake::is_text(&embedded.media_type) => {
                let beside = (embedded.media_type.len() + embedded.uri.len()) as u64;
                let text = String::from_utf8_lossy(&embedded.data);
                let count = |text: &str| self.tokens.map_or(0, |_| tokens::count(text));
                Size::of(&text, count) + Size([beside, beside, 0, beside])
            }
            // A character of base64 may be a token.
            Attachment::Resource(_) => Size([bytes, bytes, 1, bytes]),
            Attachment::Image(_) | Attachment::Audio(_) if self.counts_media => {
                Size([bytes, bytes, 1, bytes])
            }
            Attachment::Image(_) | Attachment::Audio(_) => Size::default(),
        }
    }
}

/// The structured copy of facts and body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Copy {
    /// The body is JSON.
    Json,
    /// The body is text, and a string in the copy.
    Text,
}

impl Copy {
    /// The copy as JSON text. One that cannot be made is refused later, whatever its size.
    fn text(self, facts: &str, body: &str) -> String {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        let body = match self {
            Self::Json => value(body),
            Self::Text => Value::String(body.to_owned()),
        };
        serde_json::json!({"facts": value(facts), "body": body}).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Blob, Embedded};

    fn gates() -> Gates {
        Gates {
            client: "Test".into(),
            bytes: Some(10),
            characters: Some(5),
            lines: Some(3),
            tokens: None,
            counts_media: false,
        }
    }

    #[test]
    fn a_reply_is_below_a_gate_and_the_one_passed_by_the_most_is_named() {
        let size = |text: &str| Size::of(text, |_| 0);
        assert_eq!(gates().reached(&size("1234")), None);
        let reached = gates().reached(&size("12345")).unwrap();
        assert_eq!((reached.gate.unit, reached.found), (Unit::Characters, 5));
        assert_eq!(reached.excess(), 1);
        assert_eq!(
            gates().reached(&size("a\nb\n")).unwrap().gate.unit,
            Unit::Lines
        );
        let reached = gates().reached(&size("語語語語")).unwrap();
        assert_eq!((reached.gate.unit, reached.found), (Unit::Bytes, 12));
        assert_eq!(size("a語é😀").get(Unit::Characters), 5);
        assert_eq!(
            gates().reached(&size(&"x".repeat(100))).unwrap().gate.unit,
            Unit::Characters
        );
    }

    #[test]
    fn resources_count_as_text_and_images_only_where_the_program_says_so() {
        let embedded = |media_type: &str, data: &[u8]| {
            Attachment::Resource(Embedded {
                uri: "a:b".into(),
                media_type: media_type.into(),
                data: data.to_vec(),
            })
        };
        let text = gates().attached(&embedded("text/plain", "語\n".as_bytes()));
        assert_eq!(
            (text.get(Unit::Bytes), text.get(Unit::Characters)),
            (4 + 13, 2 + 13)
        );
        let blob = gates().attached(&embedded("image/png", &[0; 9]));
        assert_eq!(blob.get(Unit::Characters), 12 + 12);
        let image = Attachment::Image(Blob {
            media_type: "image/png".into(),
            data: vec![0; 9],
        });
        assert_eq!(gates().attached(&image), Size::default());
        let counting = Gates {
            counts_media: true,
            ..gates()
        };
        assert_eq!(counting.attached(&image).get(Unit::Bytes), 12 + 9);
    }

    #[test]
    fn the_structured_copy_counts_as_it_is_sent() {
        let facts = r#"{"returned":2}"#;
        let copied = |copy, body: &str| {
            let all = gates().measure([facts, body, ""], Some(copy), &[]);
            let alone = gates().measure([facts, body, ""], None, &[]);
            all.get(Unit::Bytes) - alone.get(Unit::Bytes)
        };
        let text = r#"{"facts":{"returned":2},"body":"a\n\"b\""}"#;
        assert_eq!(copied(Copy::Text, "a\n\"b\""), text.len() as u64);
        let json = r#"{"facts":{"returned":2},"body":[1]}"#;
        assert_eq!(copied(Copy::Json, "[\n1\n]"), json.len() as u64);
    }
}
