//! The one wasmtime engine: how code is compiled, how many instances fit, and what every guest is linked against.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::code::Code;
use super::imports;
use super::instance::State;
use super::limits::{CORE_INSTANCES, DEFAULT_MEMORY_BYTES, MEMORIES, TABLE_ELEMENTS, TABLES};
use super::share::{Seat, Share};

/// Addresses reserved for one memory: all that a 32-bit memory can reach, so that compiled code needs no bounds checks.
/// They are addresses only; what is used of them is bounded by each plugin's limit.
const MEMORY_RESERVATION: u64 = 4 << 30;

/// Metadata of one core instance. CPython's, with 32 bytes for each of some 10,000 functions, is under 1 MiB.
const CORE_INSTANCE_BYTES: usize = 4 << 20;

/// Metadata of one component: its core instances together.
const COMPONENT_INSTANCE_BYTES: usize = 16 << 20;

/// Memory of a finished instance that is cleared and kept, where the kernel can tell which pages were touched (Linux
/// 6.7): measured 19 µs a call against 25 µs with none kept; without that help 160 µs and more, so there none is kept.
const KEPT_BYTES: usize = 4 << 20;

/// The same of a table: all of those of most guests. What is given back to the kernel makes every core of the process look at
/// its page tables anew.
const KEPT_TABLE_BYTES: usize = 64 << 10;

/// How the engine is built.
#[derive(Debug, Clone)]
pub struct SandboxOptions {
    /// The largest memory limit that any plugin may have, 4 GiB at most.
    pub max_memory_bytes: u64,
    /// Calls that may run at a time, over all plugins. Further ones wait inside their deadline. Each reserves 16 GiB of
    /// addresses.
    pub max_concurrent_calls: u32,
    /// Folder in which compiled code is kept from one start to the next. Without it every start compiles.
    pub cache_folder: Option<PathBuf>,
}

impl Default for SandboxOptions {
    fn default() -> Self {
        // 64 calls reserve 1 TiB of the 128 TiB of addresses, and are more than cores can serve at once.
        Self {
            max_memory_bytes: DEFAULT_MEMORY_BYTES,
            max_concurrent_calls: 64,
            cache_folder: None,
        }
    }
}

/// Runs plugins. Cloning it clones a handle.
#[derive(Clone)]
pub struct Sandbox(Arc<Inner>);

struct Inner {
    engine: Engine,
    linker: Linker<State>,
    /// One for each instance that the pool has room for, so that the pool is never found empty.
    slots: Arc<Semaphore>,
    /// Whose turn it is to compute. A slot of the pool is for a whole call, and one of these for a turn.
    share: Arc<Share>,
    /// Compiled code, where it is kept.
    code: Option<Code>,
    max_memory_bytes: u64,
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("free_slots", &self.0.slots.available_permits())
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Builds the engine and reserves the pool's addresses.
    pub fn new(options: &SandboxOptions) -> anyhow::Result<Self> {
        let SandboxOptions {
            max_memory_bytes,
            max_concurrent_calls,
            cache_folder,
        } = options;
        ensure!(
            *max_memory_bytes <= MEMORY_RESERVATION,
            "memory_bytes must be at most {MEMORY_RESERVATION}: {max_memory_bytes}"
        );
        ensure!(
            *max_concurrent_calls > 0,
            "at least one call must be able to run at a time"
        );

        let mut config = Config::new();
        config
            .consume_fuel(true)
            .memory_reservation(MEMORY_RESERVATION)
            // The pool's slots are for memories of 32 bits.
            .wasm_memory64(false)
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool(
                *max_concurrent_calls,
            )));
        let engine = Engine::new(&config)
            .map_err(anyhow::Error::from)
            .with_context(|| format!("making room for {max_concurrent_calls} calls at a time"))?;
        let code = cache_folder
            .as_ref()
            .map(|folder| {
                Code::open(folder, &engine)
                    .with_context(|| format!("opening the cache `{}`", folder.display()))
            })
            .transpose()?;
        let mut linker = Linker::new(&engine);
        imports::link(&mut linker)?;
        Ok(Self(Arc::new(Inner {
            engine,
            linker,
            slots: Arc::new(Semaphore::new(*max_concurrent_calls as usize)),
            share: Arc::default(),
            code,
            max_memory_bytes: *max_memory_bytes,
        })))
    }

    /// How many components were compiled because the cache did not have them; `None` where nothing is kept.
    pub fn compilations(&self) -> Option<usize> {
        self.0.code.as_ref().map(Code::compiled)
    }

    /// Compiles a component, or takes what it was compiled to before.
    pub(super) fn component(&self, bytes: &[u8]) -> wasmtime::Result<Component> {
        match &self.0.code {
            Some(code) => code.of(self.engine(), bytes),
            None => Component::from_binary(self.engine(), bytes),
        }
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    pub(super) fn linker(&self) -> &Linker<State> {
        &self.0.linker
    }

    pub(super) fn slots(&self) -> Arc<Semaphore> {
        self.0.slots.clone()
    }

    /// The place of a call among all that want to compute.
    pub(super) fn seat(&self, tenant: &str, plugin: &Arc<str>) -> Seat {
        Seat::new(self.0.share.clone(), tenant.into(), plugin.clone())
    }

    pub(super) fn max_memory_bytes(&self) -> u64 {
        self.0.max_memory_bytes
    }
}

/// Room for `calls` components of the largest kind that is let in.
fn pool(calls: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .total_core_instances(calls.saturating_mul(CORE_INSTANCES))
        .total_memories(calls.saturating_mul(MEMORIES))
        .total_tables(calls.saturating_mul(TABLES))
        .total_stacks(calls)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .max_memories_per_module(MEMORIES)
        .max_tables_per_module(TABLES)
        .max_core_instance_size(CORE_INSTANCE_BYTES)
        .max_component_instance_size(COMPONENT_INSTANCE_BYTES)
        .table_elements(TABLE_ELEMENTS);
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(KEPT_BYTES)
            .table_keep_resident(KEPT_TABLE_BYTES);
    }
    pool
}
