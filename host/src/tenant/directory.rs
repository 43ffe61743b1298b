//! Every key, in memory: a call is let in without a look into the store.
//!
//! A replica looks once a second whether something has changed, so that a change reaches it within two. A key that it does
//! not know makes it look at once, so that a new key works at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::key::{Key, hash};
use crate::store::{Store, now_ms};

/// How often a replica looks for changes of keys and tenants. They have to reach every replica within 5 s.
pub(super) const REFRESH: Duration = Duration::from_secs(1);

/// How often it is written down when keys were used last: often enough to find keys that nobody uses.
const WRITE_USED: Duration = Duration::from_secs(30);

/// What the store says, at one moment.
#[derive(Debug, Default)]
struct Known {
    revision: i64,
    /// Keys by the hash of their text.
    keys: HashMap<[u8; 32], Arc<Key>>,
    /// The same keys by their ids.
    ids: HashMap<String, Arc<Key>>,
    /// Budgets of tenants that were changed at run time.
    tokens: HashMap<String, u64>,
}

/// Keys, and changes of tenants.
#[derive(Debug)]
pub(super) struct Directory {
    store: Store,
    known: ArcSwap<Known>,
    /// One look at a time, and when the last one began: callers with unknown keys wait for one and the same.
    looking: tokio::sync::Mutex<Option<Instant>>,
    /// Keys that were used since it was last written down, and when.
    used: Mutex<HashMap<String, i64>>,
}

impl Directory {
    pub(super) async fn open(store: Store) -> anyhow::Result<Self> {
        let directory = Self {
            store,
            known: ArcSwap::from_pointee(Known {
                revision: -1,
                ..Known::default()
            }),
            looking: tokio::sync::Mutex::new(None),
            used: Mutex::default(),
        };
        directory.look().await?;
        Ok(directory)
    }

    /// Reads everything again where something has changed.
    async fn look(&self) -> anyhow::Result<()> {
        let asked = Instant::now();
        let mut last = self.looking.lock().await;
        // One that began since has seen all that was there when this caller came.
        if last.is_some_and(|last| last >= asked) {
            return Ok(());
        }
        let began = Instant::now();
        if self.store.revision().await? == self.known.load().revision {
            *last = Some(began);
            return Ok(());
        }
        let snapshot = self.store.snapshot().await?;
        let mut keys = HashMap::with_capacity(snapshot.keys.len());
        let mut ids = HashMap::with_capacity(snapshot.keys.len());
        for row in &snapshot.keys {
            let key = Key::read(row).and_then(|key| Ok((blake3::Hash::from_hex(&row.hash)?, key)));
            match key {
                Ok((hash, key)) => {
                    let key = Arc::new(key);
                    ids.insert(key.id.clone(), key.clone());
                    keys.insert(*hash.as_bytes(), key);
                }
                Err(error) => {
                    tracing::warn!(key = row.id, "a key of the store is not usable: {error:#}")
                }
            }
        }
        self.known.store(Arc::new(Known {
            revision: snapshot.revision,
            keys,
            ids,
            tokens: snapshot.tenant_tokens.into_iter().collect(),
        }));
        *last = Some(began);
        Ok(())
    }

    /// The key with that text, if there is one, whatever has become of it.
    pub(super) async fn find(&self, text: &str) -> anyhow::Result<Option<Arc<Key>>> {
        let hash = *hash(text).as_bytes();
        if let Some(key) = self.known.load().keys.get(&hash) {
            return Ok(Some(key.clone()));
        }
        self.look().await?;
        Ok(self.known.load().keys.get(&hash).cloned())
    }

    /// The key with that id, if there is one, whatever has become of it.
    pub(super) async fn with_id(&self, id: &str) -> anyhow::Result<Option<Arc<Key>>> {
        if let Some(key) = self.known.load().ids.get(id) {
            return Ok(Some(key.clone()));
        }
        self.look().await?;
        Ok(self.known.load().ids.get(id).cloned())
    }

    /// The live key of a tenant with that name or id, for commands that name one.
    pub(super) fn named(&self, tenant: &str, name: &str) -> Option<Arc<Key>> {
        let known = self.known.load();
        let is_meant = |key: &&Arc<Key>| {
            key.tenant == tenant && !key.is_revoked && (key.name == name || key.id == name)
        };
        known.ids.values().find(is_meant).cloned()
    }

    /// The key as it is now: its budget and quotas may have been changed while a connection goes on.
    pub(super) fn current(&self, key: &Arc<Key>) -> Arc<Key> {
        self.known.load().ids.get(&key.id).unwrap_or(key).clone()
    }

    /// The budget of a tenant, where it was changed at run time.
    pub(super) fn tenant_tokens(&self, tenant: &str) -> Option<u64> {
        self.known.load().tokens.get(tenant).copied()
    }

    /// Takes note that a key was used.
    pub(super) fn note_use(&self, key: &Key) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used.get_mut(&key.id) {
            Some(at) => *at = now_ms(),
            None => drop(used.insert(key.id.clone(), now_ms())),
        }
    }

    /// Writes down when keys were used last.
    pub(super) async fn write_used(&self) -> anyhow::Result<()> {
        let used: Vec<(String, i64)> = {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.drain().collect()
        };
        if used.is_empty() {
            return Ok(());
        }
        self.store.used_keys(&used).await
    }

    /// Keeps up with the store, for as long as the host serves.
    pub(super) async fn follow(&self) {
        let mut written = tokio::time::Instant::now();
        let mut is_failing = false;
        loop {
            tokio::time::sleep(REFRESH).await;
            let mut outcome = self.look().await;
            if written.elapsed() >= WRITE_USED {
                written = tokio::time::Instant::now();
                outcome = outcome.and(self.write_used().await);
            }
            match &outcome {
                Ok(()) if is_failing => tracing::info!("the store answers again"),
                // Keys that are known go on working.
                Err(error) if !is_failing => {
                    tracing::warn!("keys and budgets stay as they were: {error:#}")
                }
                _ => {}
            }
            is_failing = outcome.is_err();
        }
    }
}
