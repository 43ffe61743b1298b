//! What a kept result looks like where it is kept: one object, that begins with what is known of it.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `PLMSRES1` |
//! | 8, 8 | when it was kept and when it expires: seconds since 1970, little-endian like all numbers here |
//! | 4, 4, 4 | lengths of the three parts that follow |
//! | … | the description, JSON; the document before its rows; the document behind them |
//! | … | the rows, each with its length in four bytes before it |
//!
//! The times have a fixed place, so that the same answer has its rows at the same offsets whenever it is kept.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::promise::Promised;
use crate::shape::{Keep, KeptAnswer, KeptCounts, KeptKind, ResultId};
use crate::tenant::utc;

const MAGIC: [u8; 8] = *b"PLMSRES1";
const FIXED_BYTES: usize = 36;

/// What is known of a kept result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Whose it is.
    pub tenant: String,
    /// The published name of the tool.
    pub tool: String,
    /// The plugin that the tool is of.
    pub plugin: String,
    /// `array`, `pushed` or `lines`.
    pub kind: String,
    /// All rows, where that is known.
    pub total: Option<u64>,
    /// The rows that are kept.
    pub matched: u64,
    /// Rows that the horizon hid.
    pub hidden: u64,
    /// Rows that a filter took away.
    pub filtered: u64,
    /// Columns that the tool declares: name, and path of the field.
    pub columns: Vec<(String, String)>,
    /// The arguments of the query.
    pub arguments: Map<String, Value>,
    /// What was done to the cells of its rows, in words: where that has changed, it is not shown any more.
    #[serde(default)]
    pub cells: String,
    /// Whether it was made when it was first opened, later than the answer that points to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_later: bool,
}

/// A kept result but for its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Its id.
    pub id: ResultId,
    /// When it was kept, in seconds since 1970.
    pub created: u64,
    /// When it expires.
    pub expires: u64,
    /// What is known of it.
    pub description: Description,
    /// What its rows are.
    pub kind: KeptKind,
    /// The document before its rows.
    pub prefix: Vec<u8>,
    /// The document behind them.
    pub suffix: Vec<u8>,
    /// Where the first row begins.
    pub start: u64,
}

/// The bytes before the rows, but for their times.
#[derive(Debug)]
pub(super) struct Head {
    bytes: Vec<u8>,
}

impl Head {
    pub(super) fn new(description: &Description, prefix: &[u8], suffix: &[u8]) -> Option<Self> {
        let text = serde_json::to_vec(description).ok()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[0; 16]);
        for part in [text.as_slice(), prefix, suffix] {
            bytes.extend_from_slice(&u32::try_from(part.len()).ok()?.to_le_bytes());
        }
        for part in [text.as_slice(), prefix, suffix] {
            bytes.extend_from_slice(part);
        }
        Some(Self { bytes })
    }

    /// The bytes that are the same whenever the answer is kept.
    pub(super) fn timeless(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the first row begins.
    pub(super) fn start(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The bytes with their times.
    pub(super) fn at(mut self, created: u64, expires: u64) -> Vec<u8> {
        self.bytes[8..16].copy_from_slice(&created.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&expires.to_le_bytes());
        self.bytes
    }
}

/// What is there under an id.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// A kept result.
    Kept(Box<Stored>),
    /// What one can be made of.
    Promised(Box<Promised>),
}

/// What the first bytes of an object are.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded {
    /// A kept result.
    Whole(Box<Stored>),
    /// The beginning of one, which takes so many bytes.
    Short(u64),
    /// What a kept result can be made of.
    Promised(Box<Promised>),
    /// Something else.
    Foreign,
}

pub(super) fn decode(id: ResultId, bytes: &[u8]) -> Decoded {
    let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
        return Decoded::Foreign;
    };
    if fixed[..8] != MAGIC {
        // Shorter than what is read to begin with, or cut there and so no JSON.
        return Promised::decode(id, bytes).map_or(Decoded::Foreign, |promised| {
            Decoded::Promised(Box::new(promised))
        });
    }
    let long = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().unwrap_or_default());
    let length =
        |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().unwrap_or_default()) as usize;
    let (text, prefix, suffix) = (length(24), length(28), length(32));
    let start = (FIXED_BYTES + text + prefix + suffix) as u64;
    let Some(parts) = rest.get(..text + prefix + suffix) else {
        return Decoded::Short(start);
    };
    let description: Option<Description> = serde_json::from_slice(&parts[..text]).ok();
    let kind = description
        .as_ref()
        .and_then(|description| KeptKind::named(&description.kind));
    let (Some(description), Some(kind)) = (description, kind) else {
        return Decoded::Foreign;
    };
    Decoded::Whole(Box::new(Stored {
        id,
        created: long(8),
        expires: long(16),
        description,
        kind,
        prefix: parts[text..text + prefix].to_vec(),
        suffix: parts[text + prefix..].to_vec(),
        start,
    }))
}

impl Stored {
    /// When it was made, as RFC 3339 writes it.
    pub fn made(&self) -> String {
        utc(i64::try_from(self.created * 1000).unwrap_or(i64::MAX))
    }

    /// As the stages take it.
    pub(super) fn answer(&self, link: Option<String>) -> KeptAnswer {
        let Description {
            total,
            matched,
            hidden,
            filtered,
            ..
        } = self.description;
        KeptAnswer {
            keep: Keep {
                id: self.id,
                start: Some(self.start),
                made: self.description.is_later.then(|| self.made()),
                link,
            },
            kind: self.kind,
            counts: KeptCounts {
                total,
                matched,
                hidden,
                filtered,
            },
            prefix: self.prefix.clone(),
            suffix: self.suffix.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> Description {
        Description {
            tenant: "acme".into(),
            tool: "list_orders".into(),
            plugin: "orders".into(),
            kind: "array".into(),
            total: Some(40_000),
            matched: 36_398,
            hidden: 3_602,
            filtered: 0,
            columns: vec![("cents".into(), "total.cents".into())],
            arguments: Map::from_iter([("status".into(), "open".into())]),
            cells: String::new(),
            is_later: false,
        }
    }

    #[test]
    fn a_head_says_what_it_was_made_with_and_its_times_change_nothing_else() {
        let id = ResultId::new([7; 16]);
        let head = || Head::new(&description(), b"{\"at\":1,\"rows\":[", b"]}").unwrap();
        let start = head().start();
        let bytes = head().at(10, 3_610);
        assert_eq!(bytes.len() as u64, start);
        let Decoded::Whole(stored) = decode(id, &[bytes.as_slice(), b"rows"].concat()) else {
            panic!("not decoded");
        };
        assert_eq!(
            (stored.created, stored.expires, stored.start),
            (10, 3_610, start)
        );
        assert_eq!(stored.description, description());
        assert_eq!(stored.prefix, b"{\"at\":1,\"rows\":[");
        assert_eq!(stored.suffix, b"]}");
        let later = head().at(11, 9);
        let changed = (0..bytes.len()).filter(|at| bytes[*at] != later[*at]);
        assert!(changed.into_iter().all(|at| (8..24).contains(&at)));
    }

    #[test]
    fn the_beginning_of_a_head_says_how_long_it_is_and_anything_else_is_foreign() {
        let id = ResultId::new([7; 16]);
        let bytes = Head::new(&description(), b"[", b"]").unwrap().at(1, 2);
        assert_eq!(decode(id, &bytes[..40]), Decoded::Short(bytes.len() as u64));
        for foreign in [
            &b""[..],
            b"PLMSRES1",
            &[0; 100],
            b"PLMSRES2aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(decode(id, foreign), Decoded::Foreign);
        }
        let mut broken = bytes;
        broken[FIXED_BYTES] = b'x';
        assert_eq!(decode(id, &broken), Decoded::Foreign);
    }
}
