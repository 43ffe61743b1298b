//! A complete result that is made when it is first opened, because the plugin did not hand over every row: which call has
//! to be made for whom, and what became of it.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `PLMSPRM1` |
//! | 8, 8 | when it was promised and when it expires, as in a kept result |
//! | … | the promise, JSON |

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::keep::{Candidate, Origin, What};
use super::{Held, Results, TenantFolder, Unavailable, now};
use crate::shape::{Call, Intake, KeptKind, NotKept, Reader, Refusal, ResultId};

const MAGIC: [u8; 8] = *b"PLMSPRM1";
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

impl Results {
    /// What is kept of an answer whose plugin did not hand over every row.
    pub(super) async fn promise(
        &self,
        intake: &mut Intake,
        call: &Call<'_>,
        readers: &[Reader<'_>],
        origin: Origin<'_>,
    ) -> Option<Candidate> {
        let kind = intake
            .promises(call, readers)
            .filter(|_| self.is_enabled && origin.is_read_only)?;
        if self.paused_until.load(Ordering::Relaxed) > now() {
            intake.decide(Err(NotKept::Failed));
            return None;
        }
        let mut promise = Promise {
            tenant: origin.tenant.to_owned(),
            key: origin.key.map(str::to_owned),
            subject: origin.subject.map(str::to_owned),
            tool: call.tool.name.clone(),
            arguments: call.ask.arguments().clone(),
            kind: kind.name().to_owned(),
            generation: 0,
            made: None,
        };
        let first = promise.id(&self.id_key);
        let (tenant, created) = (TenantFolder::of(origin.tenant), now());
        promise.generation = self.generations().get(&first).copied().unwrap_or_default();
        loop {
            let id = promise.id(&self.id_key);
            // A place that does not answer says so when the promise is written to it.
            let found = self.held(tenant, id).await.ok().flatten();
            let known = match found {
                Some(Held::Promised(found)) if found.promise.made.is_some() => {
                    promise.generation += 1;
                    continue;
                }
                Some(Held::Promised(found)) => Some(found.expires),
                _ => None,
            };
            self.generations().insert(first, promise.generation);
            let known = known.filter(|expires| *expires > created + self.keep_seconds / 2);
            return Some(Candidate {
                tenant,
                id,
                what: What::Promise(promise),
                created,
                expires: known.unwrap_or(created + self.keep_seconds),
                is_known: known.is_some(),
            });
        }
    }

    pub(super) fn generations(&self) -> MutexGuard<'_, HashMap<ResultId, u32>> {
        // Whoever panicked left whole entries behind.
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a promise point to what was made of it, until it expires.
    pub async fn fulfil(&self, promised: &Promised, made: ResultId) -> Result<(), Refusal> {
        let mut promised = promised.clone();
        promised.promise.made = Some(made.to_string());
        let tenant = TenantFolder::of(&promised.promise.tenant);
        let (id, expires, bytes) = (promised.id, promised.expires, promised.encode());
        let size = bytes.len() as u64;
        let put = self.store.put(&tenant.object(id), bytes).await;
        put.map_err(|error| Unavailable::from(error).refusal())?;
        self.enter(tenant, id, size, expires).await;
        Ok(())
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
