//! What one call may use, and how the store is held to it.
//!
//! Owns the numbers: fuel, memory and deadline, which an operator sets, and the ones that nobody has had a reason to set.
//! What a call hears that goes over one stands in [`failure`](super::failure).

use std::fmt;
use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::shape::{DEFAULT_INTAKE_BYTES, MAX_ATTACHMENTS};

/// Fuel of one call: 10,000,000,000 units, roughly one an instruction. That is about 1.4 s of a tight loop; a JavaScript
/// guest spends 40,000,000 on 1,000 rows, so an honest call stays far below.
pub const DEFAULT_FUEL: u64 = 10_000_000_000;

/// Memory of one instance: 128 MiB. Python and JavaScript guests start with 14 to 30 MiB, and a document of the default
/// intake (64 MiB) still fits.
pub const DEFAULT_MEMORY_BYTES: u64 = 128 << 20;

/// Wall-clock time of one call: half of what stock clients wait.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(30_000);

/// The longest deadline: stock MCP clients hang up at 60 s, and an answer after that reaches nobody.
pub const MAX_DEADLINE: Duration = Duration::from_millis(60_000);

/// Elements of one table: 65,536. CPython's own table has about 12,000; a .NET guest's was seen with more than 10,000.
pub(super) const TABLE_ELEMENTS: usize = 1 << 16;

/// Core instances of one component. A Rust guest has 3 or 4, componentize-py about 20 plus one for each native library.
pub(super) const CORE_INSTANCES: u32 = 128;

/// Memories of one component. One is the rule; components composed of others have one for each.
pub(super) const MEMORIES: u32 = 4;

/// Tables of one component. Two are the rule: the language's own, and that of the shim for its imports.
pub(super) const TABLES: u32 = 4;

/// Handles of host resources (files, streams, pollables) that one call may hold at a time, or lend to one call of the
/// host. A guest that reads a folder holds a handful; 1,000 is also the usual limit of open files in a process.
pub(super) const HANDLES: usize = 1_000;

/// Random bytes of one call of the host: any seed fits (Python takes 2,500), and the host works for microseconds.
pub(super) const RANDOM_BYTES: u64 = 4_096;

/// Bytes of one request's body, and of one answer's: as many as a plugin may hand over by default.
pub(super) const BODY_BYTES: u64 = DEFAULT_INTAKE_BYTES as u64;

/// Bytes of one set of header fields, with what the host keeps around them: wasmtime-wasi-http's default. Servers commonly
/// stop at 8 to 32 KiB.
pub(super) const FIELDS_BYTES: usize = 128 << 10;

/// Requests of one call whose answers are not yet read. Browsers open 6 connections to a host; a guest that gathers from
/// several needs a few of these.
pub(super) const REQUESTS: usize = 32;

/// Bytes of a request's body that the host takes from a guest at a time, and so keeps for each request that is written.
pub(super) const REQUEST_CHUNK_BYTES: usize = 64 << 10;

/// Bytes of everything that a plugin says about itself. The 1,223 operations of GitHub, the most of any document that is
/// published, take a quarter of it.
pub(super) const DESCRIPTION_BYTES: usize = 8 << 20;

/// What one call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fuel: roughly one unit an instruction, and one a byte that is copied or filled in bulk.
    pub fuel: u64,
    /// Bytes of all linear memories together.
    pub memory_bytes: u64,
    /// Wall-clock time: waiting for a slot, instantiation, guest code and host calls.
    pub deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: DEFAULT_FUEL,
            memory_bytes: DEFAULT_MEMORY_BYTES,
            deadline: DEFAULT_DEADLINE,
        }
    }
}

/// What was denied. It ends the call: a guest that hears "no" mostly aborts, which would then look like a trap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// Linear memory would have more bytes than the plugin may have.
    Memory { wanted: u64 },
    /// A table would have more elements than [`TABLE_ELEMENTS`].
    Table { wanted: usize },
    /// The plugin may have it, and the machine does not.
    Host,
    /// The answer would have more attachments than [`MAX_ATTACHMENTS`].
    Attachment,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { wanted } => write!(
                f,
                "{wanted} bytes of memory are more than the plugin may have"
            ),
            Self::Table { wanted } => write!(
                f,
                "{wanted} elements of a table are more than a plugin may have"
            ),
            Self::Host => write!(f, "the machine has no memory left"),
            Self::Attachment => write!(
                f,
                "an answer may have {MAX_ATTACHMENTS} attachments, and this is one more"
            ),
        }
    }
}

impl std::error::Error for Denied {}

/// Counts the memory of one store and says no.
#[derive(Debug)]
pub(super) struct Limiter {
    memory_bytes: u64,
    used_bytes: u64,
    /// The most that was used at a time.
    pub(super) peak_bytes: u64,
}

impl Limiter {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            used_bytes: 0,
            peak_bytes: 0,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The guest's own maximum is the guest's affair: it hears "no", as the specification has it.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let wanted = self.used_bytes + desired.saturating_sub(current) as u64;
        if wanted > self.memory_bytes {
            return Err(Denied::Memory { wanted }.into());
        }
        self.used_bytes = wanted;
        self.peak_bytes = self.peak_bytes.max(wanted);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(Denied::Host.into())
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // The pool states its own maximum, which is the limit, where a table declares none.
        if desired > TABLE_ELEMENTS {
            return Err(Denied::Table { wanted: desired }.into());
        }
        Ok(maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        Err(Denied::Host.into())
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        TABLES as usize
    }

    fn memories(&self) -> usize {
        MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_users_are_told() {
        let limits = Limits::default();
        assert_eq!(limits.fuel, 10_000_000_000);
        assert_eq!(limits.memory_bytes, 134_217_728);
        assert_eq!(limits.deadline.as_millis(), 30_000);
        assert_eq!(MAX_DEADLINE.as_millis(), 60_000);
    }

    #[test]
    fn all_memories_of_a_store_count_together() {
        let mut limiter = Limiter::new(&Limits {
            memory_bytes: 300,
            ..Limits::default()
        });
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        assert!(limiter.memory_growing(0, 100, None).unwrap());
        assert!(limiter.memory_growing(100, 200, None).unwrap());
        let error = limiter.memory_growing(100, 101, None).unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Denied::Memory { wanted: 301 }));
        assert_eq!(limiter.peak_bytes, 300);
    }

    #[test]
    fn a_guests_own_maximum_is_no_fault() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(!limiter.memory_growing(0, 200, Some(100)).unwrap());
        assert_eq!(limiter.peak_bytes, 0);
    }

    #[test]
    fn a_table_has_a_limit_of_its_own() {
        let mut limiter = Limiter::new(&Limits::default());
        assert!(limiter.table_growing(0, TABLE_ELEMENTS, None).unwrap());
        let error = limiter
            .table_growing(0, TABLE_ELEMENTS + 1, None)
            .unwrap_err();
        assert_eq!(
            error.downcast_ref(),
            Some(&Denied::Table { wanted: 65_537 })
        );
    }
}
