//! A complete result that is made when it is first opened, because the plugin did not hand over every row: which call has
//! to be made for whom, and what became of it.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `PLMSPRM1` |
//! | 8, 8 | when it was promised and when it expires, as in a kept result |
//! | … | the promise, JSON |

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::shape::{KeptKind, ResultId};

pub(super) const MAGIC: [u8; 8] = *b"PLMSPRM1";
const FIXED_BYTES: usize = 24;

/// The call that makes a complete result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// Whose it is.
    pub tenant: String,
    /// The id of the key that called, which pays, where one was shown.
    pub key: Option<String>,
    /// Whom an identity provider said that the caller was.
    pub subject: Option<String>,
    /// The published name of the tool.
    pub tool: String,
    /// The arguments of the query, as they were asked.
    pub arguments: Map<String, Value>,
    /// `array`, `pushed` or `lines`, as the answer was.
    pub kind: String,
    /// How many promises of the same call were kept before: an answer that comes after one of them was made points to
    /// another, since the data may have changed.
    pub generation: u32,
    /// The kept result that was made of it.
    pub made: Option<String>,
}

/// A promise where it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Promised {
    /// Its id, which it keeps once it is made.
    pub id: ResultId,
    /// When it was promised, in seconds since 1970.
    pub created: u64,
    /// When it expires.
    pub expires: u64,
    /// What it says.
    pub promise: Promise,
}

impl Promise {
    /// Its id: a hash that nobody can compute who does not have the key, and that says nothing of what has become of it.
    pub(super) fn id(&self, key: &[u8; 32]) -> ResultId {
        let unmade = Self {
            made: None,
            ..self.clone()
        };
        let mut hasher = blake3::Hasher::new_keyed(key);
        hasher.update(&MAGIC).update(&unmade.json());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ResultId::new(bytes)
    }

    fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a promise has string keys only")
    }

    /// The kept result that was made of it.
    pub fn made(&self) -> Option<ResultId> {
        self.made.as_deref().and_then(ResultId::parse)
    }

    /// What its rows are.
    pub fn kind(&self) -> Option<KeptKind> {
        KeptKind::named(&self.kind)
    }
}

impl Promised {
    /// As it is stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.created.to_le_bytes());
        bytes.extend_from_slice(&self.expires.to_le_bytes());
        bytes.extend_from_slice(&self.promise.json());
        bytes
    }

    /// Reads all of what is stored.
    pub(super) fn decode(id: ResultId, bytes: &[u8]) -> Option<Self> {
        let (fixed, json) = bytes.split_first_chunk::<FIXED_BYTES>()?;
        let long = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().unwrap_or_default());
        if fixed[..8] != MAGIC {
            return None;
        }
        Some(Self {
            id,
            created: long(8),
            expires: long(16),
            promise: serde_json::from_slice(json).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise() -> Promise {
        Promise {
            tenant: "acme".into(),
            key: Some("a1b2".into()),
            subject: None,
            tool: "list_orders".into(),
            arguments: Map::from_iter([("status".into(), "open".into())]),
            kind: "pushed".into(),
            generation: 0,
            made: None,
        }
    }

    #[test]
    fn a_promise_is_read_as_it_was_written_and_keeps_its_id_when_it_is_made() {
        let key = [3; 32];
        let id = promise().id(&key);
        let mut promised = Promised {
            id,
            created: 10,
            expires: 3_610,
            promise: promise(),
        };
        assert_eq!(
            Promised::decode(id, &promised.encode()),
            Some(promised.clone())
        );
        promised.promise.made = Some(ResultId::new([9; 16]).to_string());
        assert_eq!(promised.promise.id(&key), id);
        assert_eq!(promised.promise.made(), Some(ResultId::new([9; 16])));
        assert_eq!(Promised::decode(id, b"PLMSRES1"), None);
        assert_eq!(Promised::decode(id, &[0; 100]), None);
    }

    #[test]
    fn another_key_query_tenant_or_generation_is_another_promise() {
        let key = [3; 32];
        let others = [
            Promise {
                tenant: "globex".into(),
                ..promise()
            },
            Promise {
                key: None,
                ..promise()
            },
            Promise {
                subject: Some("jo".into()),
                ..promise()
            },
            Promise {
                tool: "list_rows".into(),
                ..promise()
            },
            Promise {
                arguments: Map::new(),
                ..promise()
            },
            Promise {
                generation: 1,
                ..promise()
            },
        ];
        for other in &others {
            assert_ne!(other.id(&key), promise().id(&key), "{other:?}");
        }
        assert_ne!(promise().id(&[4; 32]), promise().id(&key));
    }
}
