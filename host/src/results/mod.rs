//! The complete result of an answer of which rows were left out: kept for a time, read page by page, linked.
//!
//! Owns: where results are kept and for how long, their ids, what a tenant may keep, and the links under which people see
//! them. Does not decide which rows belong to a result: the narrowed rows are collected by the intake, which hands them to
//! a [`Spool`] as they come, and nothing is stored where no row is left out.
//!
//! | module | owns |
//! | --- | --- |
//! | `spool` | the rows of one answer while they come |
//! | `stored` | what a kept result looks like where it is kept |
//! | `store` | the folder or bucket: put whole or not at all, read ranges, list, remove |
//! | `promise` | a result that is made when it is first opened: the call that makes it |
//! | `keep` | keeping an answer or a promise of one, and what a tenant may keep |
//! | `read` | a page of a kept result, all of its rows, and the list of them |
//! | `link` | the addresses for people |
//! | `table` | rows as cells |

mod keep;
mod link;
mod promise;
#[cfg(test)]
mod properties;
mod read;
mod spool;
mod store;
mod stored;
mod table;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::sync::{OnceCell, Semaphore};

pub use keep::Origin;
pub use link::{BadLink, Grant, Links};
pub use promise::{Promise, Promised};
pub use read::{ListingPage, RowReader, Unavailable};
pub use spool::{MEMORY_BYTES, Spool};
pub use store::{Location, Store};
pub use stored::{Description, Held, Stored};
pub use table::{Columns, MAX_COLUMNS};

use crate::config::ResultsConfig;
use crate::shape::{Refusal, ResultId, Signer};

/// The folder of spools in the state folder.
const SPOOL_FOLDER: &str = "spool";

/// Results that are written at the same time: each holds a part of 5 MiB in memory.
const UPLOADS: usize = 4;

/// What becomes of a promise: the kept result, or why there is none.
pub type Making = OnceCell<Result<ResultId, Refusal>>;

/// The results that a host keeps.
#[derive(Debug)]
pub struct Results {
    is_enabled: bool,
    keep_seconds: u64,
    max_bytes: u64,
    tenant_bytes: u64,
    store: Store,
    spools: Arc<PathBuf>,
    /// Makes ids, which nobody can compute who does not have it.
    id_key: [u8; 32],
    links: Links,
    /// What is kept, as far as this host knows: what it wrote itself, and what the last sweep found.
    index: Mutex<HashMap<TenantFolder, HashMap<ResultId, Entry>>>,
    uploads: Semaphore,
    /// The generation of promises that was written last, by the id of the first; forgotten at every sweep.
    generations: Mutex<HashMap<ResultId, u32>>,
    /// Results that are being made of promises: whoever opens one meanwhile waits for the same.
    making: Mutex<HashMap<(TenantFolder, ResultId), Weak<Making>>>,
    /// Until when nothing is written, because writing has failed: a call must not wait for that each time.
    paused_until: AtomicU64,
}

/// A result in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    bytes: u64,
    expires: u64,
}

/// The folder of a tenant's results: a digest, so that a tenant's name is no path and is in no link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantFolder([u8; 16]);

impl TenantFolder {
    /// The folder of a tenant.
    pub fn of(tenant: &str) -> Self {
        let digest = blake3::derive_key("plimsoll 2026-11 folder of a tenant", tenant.as_bytes());
        let mut folder = [0; 16];
        folder.copy_from_slice(&digest[..16]);
        Self(folder)
    }

    fn name(self) -> String {
        format!("tenants/{:032x}", u128::from_be_bytes(self.0))
    }

    fn object(self, id: ResultId) -> String {
        format!("{}/{id}", self.name())
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

impl Results {
    /// The results of a configuration. What a killed host left of its spools is removed.
    pub fn open(
        config: &ResultsConfig,
        state: &Path,
        signer: &Signer,
        store: Store,
    ) -> anyhow::Result<Self> {
        let spools = state.join(SPOOL_FOLDER);
        let opening = || format!("opening the folder `{}`", spools.display());
        std::fs::create_dir_all(&spools).with_context(opening)?;
        for entry in std::fs::read_dir(&spools).with_context(opening)? {
            // A spool has a name for a moment only; a host that still runs does not need it any more.
            let _ = std::fs::remove_file(entry.with_context(opening)?.path());
        }
        Ok(Self {
            is_enabled: config.enabled.value,
            keep_seconds: config.keep_seconds.value,
            max_bytes: config.max_bytes.value,
            tenant_bytes: config.tenant_bytes.value,
            store,
            spools: Arc::new(spools),
            id_key: signer.derive("plimsoll 2026-11 ids of kept results"),
            links: Links::new(signer),
            index: Mutex::default(),
            uploads: Semaphore::new(UPLOADS),
            generations: Mutex::default(),
            making: Mutex::default(),
            paused_until: AtomicU64::new(0),
        })
    }

    /// A spool for an answer, where results are kept.
    pub fn spool(&self) -> Option<Spool> {
        let new = || Spool::new(self.spools.clone(), self.max_bytes, &self.id_key);
        self.is_enabled.then(new)
    }

    /// The addresses for people.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The one place in which this process makes the result of a promise, for as long as somebody waits for it.
    pub fn making(&self, tenant: TenantFolder, id: ResultId) -> Arc<Making> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = making.get(&(tenant, id)).and_then(Weak::upgrade) {
            return made;
        }
        making.retain(|_, made| made.strong_count() > 0);
        let made = Arc::default();
        making.insert((tenant, id), Arc::downgrade(&made));
        made
    }

    fn indexed<R>(
        &self,
        look: impl FnOnce(&mut HashMap<TenantFolder, HashMap<ResultId, Entry>>) -> R,
    ) -> R {
        // Whoever panicked left whole entries behind.
        look(&mut self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
