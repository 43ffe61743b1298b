//! What the host keeps for one running instance, and the store around it.
//!
//! Everything a call leaves behind is in here, so that dropping the store ends it without a trace.

use std::sync::Arc;

use tokio::sync::mpsc;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_config::WasiConfigVariables;
use wasmtime_wasi_http::{WasiHttpCtxView, WasiHttpView};

use super::call::{Progress, Usage};
use super::http::Requests;
use super::journal::Journal;
use super::limits::{HANDLES, Limiter, Limits};
use super::sql::Session;
use super::turn::Turn;
use crate::shape::Intake;

/// The data of a store.
pub(super) struct State {
    wasi: WasiCtx,
    resources: ResourceTable,
    requests: Requests,
    pub(super) databases: Session,
    pub(super) config: Arc<WasiConfigVariables>,
    pub(super) journal: Journal,
    /// None while a plugin is described: what it then hands over reaches nobody.
    pub(super) intake: Option<Intake>,
    pub(super) progress: Option<mpsc::Sender<Progress>>,
    /// The last `done`, which only grows.
    pub(super) done: Option<u64>,
    limiter: Limiter,
}

impl State {
    pub(super) fn new(
        wasi: WasiCtx,
        requests: Requests,
        databases: Session,
        config: Arc<WasiConfigVariables>,
        journal: Journal,
        limits: &Limits,
    ) -> Self {
        let mut resources = ResourceTable::new();
        resources.set_max_capacity(HANDLES);
        Self {
            wasi,
            resources,
            requests,
            databases,
            config,
            journal,
            intake: None,
            progress: None,
            done: None,
            limiter: Limiter::new(limits),
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.resources,
        }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let Requests { context, gate } = &mut self.requests;
        WasiHttpCtxView {
            ctx: context,
            table: &mut self.resources,
            hooks: gate,
        }
    }
}

/// A store that is held to the limits. `transfer_bytes` bounds what one call between guest and host may carry.
pub(super) fn store(
    engine: &Engine,
    state: State,
    limits: &Limits,
    transfer_bytes: usize,
    turn: &Arc<Turn>,
) -> wasmtime::Result<Store<State>> {
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_fuel(limits.fuel)?;
    store.set_hostcall_fuel(transfer_bytes);
    // A handle that is lent counts once more.
    store.set_max_component_handles(2 * HANDLES);
    turn.govern(&mut store)?;
    Ok(store)
}

/// What the store's instance has used so far. After a trap the fuel is that of the last yield or host call.
pub(super) fn usage(store: &Store<State>, limits: &Limits) -> Usage {
    Usage {
        fuel: limits
            .fuel
            .saturating_sub(store.get_fuel().unwrap_or(limits.fuel)),
        memory_peak_bytes: store.data().limiter.peak_bytes,
        ..Usage::default()
    }
}
