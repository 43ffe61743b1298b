//! One call: a slot, a store, an instance, the guest's answer or what became of it.
//!
//! Invariant: everything of a call lives in the future of [`Plugin::call`]. At the deadline, or when a caller drops that
//! future, guest code, host calls and the instance are gone; no task is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};
use wasmtime::Store;

use super::failure;
use super::http::Requests;
use super::instance::{self, State};
use super::journal::Journal;
use super::limits::Limits;
use super::load::{Plugin, Pre};
use super::sql::Session;
use super::turn::Turn;
use crate::contract::{BackendSelection, Fault};
use crate::shape::{Code, Intake, Refusal};

/// What is asked of a plugin.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Calls a tool of a `tool-handler`.
    Tool {
        /// Its name.
        name: String,
        /// A JSON object that fits the handler's own schema.
        arguments: String,
    },
    /// Queries a collection of a `backend-adapter`.
    Query {
        /// Its name.
        collection: String,
        /// What is wanted of it.
        selection: BackendSelection,
    },
    /// Gets one row of a collection of a `backend-adapter`.
    Get {
        /// The collection's name.
        collection: String,
        /// JSON text of the row's key.
        key: String,
    },
}

impl Request {
    /// The tool or collection.
    fn subject(&self) -> &str {
        match self {
            Self::Tool { name, .. } => name,
            Self::Query { collection, .. } | Self::Get { collection, .. } => collection,
        }
    }
}

/// How far a call has come. `done` grows from one to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// How much is done.
    pub done: u64,
    /// Of how much, where the plugin knows.
    pub total: Option<u64>,
    /// The plugin's words, at most 2,000 bytes of them.
    pub message: Option<String>,
}

/// What one call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Fuel spent. After a trap it is the state at the last yield or host call, up to 1,000,000 too low.
    pub fuel: u64,
    /// The most bytes of linear memory at a time.
    pub memory_peak_bytes: u64,
    /// Wall-clock time, waiting for a permit and a slot included.
    pub elapsed: Duration,
}

/// When a call has to end.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// When it began. It may have waited since: whoever calls has waited with it.
    pub begun: Instant,
    /// How long it may take from then on.
    pub deadline: Duration,
}

/// What a call has used so far, in all its instances where it takes several, for whoever has to know it of a call that was
/// dropped.
#[derive(Debug, Default)]
pub struct Meter {
    fuel: AtomicU64,
    memory_peak_bytes: AtomicU64,
}

impl Meter {
    /// What it shows.
    pub fn usage(&self) -> Usage {
        Usage {
            fuel: self.fuel.load(Ordering::Relaxed),
            memory_peak_bytes: self.memory_peak_bytes.load(Ordering::Relaxed),
            ..Usage::default()
        }
    }
}

/// A store that tells a meter what it used, however the call ends.
struct Metered {
    store: Store<State>,
    /// With the fuel that was left of the call.
    limits: Limits,
    meter: Arc<Meter>,
}

impl Drop for Metered {
    fn drop(&mut self) {
        let usage = instance::usage(&self.store, &self.limits);
        self.meter.fuel.fetch_add(usage.fuel, Ordering::Relaxed);
        let memory = usage.memory_peak_bytes;
        self.meter
            .memory_peak_bytes
            .fetch_max(memory, Ordering::Relaxed);
    }
}

/// A call that ended well.
pub struct Called {
    /// The answer.
    pub intake: Intake,
    /// What it cost.
    pub usage: Usage,
}

/// A call that did not.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// What the caller is told.
    pub refusal: Refusal,
    /// What it cost, as far as known.
    pub usage: Usage,
}

impl Plugin {
    /// Makes one call in an instance of its own.
    ///
    /// What the plugin hands over goes into `intake`. Progress goes to `progress` as long as there is room. `tenant` and
    /// `id` name the call in the log, and the tenant's share of the processor is what the call runs on. Dropping the future ends the guest at once.
    pub async fn call(
        &self,
        request: Request,
        intake: Intake,
        progress: Option<mpsc::Sender<Progress>>,
        tenant: &str,
        id: &str,
    ) -> Result<Called, Failed> {
        let window = Window {
            begun: Instant::now(),
            deadline: self.limits.deadline,
        };
        self.call_within(
            window,
            Arc::default(),
            request,
            intake,
            progress,
            tenant,
            id,
        )
        .await
    }

    /// The same for a call that has a time of its own. `meter` tells what it used where its future is dropped; what it shows
    /// already, instances of the same call have used, so that so much less fuel is left.
    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    pub async fn call_within(
        &self,
        window: Window,
        meter: Arc<Meter>,
        request: Request,
        intake: Intake,
        progress: Option<mpsc::Sender<Progress>>,
        tenant: &str,
        id: &str,
    ) -> Result<Called, Failed> {
        let started = window.begun;
        let deadline = started + window.deadline;
        let fail = |refusal: Refusal, usage| Failed {
            refusal,
            usage: Usage {
                elapsed: started.elapsed(),
                ..usage
            },
        };

        // Declared before the store, so that the slot is free only after the instance is gone.
        let Some(_slot) = self.slot(deadline).await else {
            return Err(fail(failure::busy(window.deadline), Usage::default()));
        };
        let journal = Journal::new(self.name.clone(), request.subject(), tenant, id);
        let turn = Turn::new();
        let limits = Limits {
            fuel: self.limits.fuel.saturating_sub(meter.usage().fuel),
            ..self.limits
        };
        let mut metered = match self.store(journal, &limits, self.list_bytes(), deadline, &turn) {
            Ok(store) => Metered {
                store,
                limits,
                meter,
            },
            Err(error) => return Err(fail(failure::ungranted(&error), Usage::default())),
        };
        let store = &mut metered.store;
        store.data_mut().intake = Some(intake);
        store.data_mut().progress = progress;

        let seat = self.sandbox.seat(tenant, &self.name);
        let answer = self.answer(store, &request);
        let outcome = turn.run(seat, deadline, answer).await;
        let usage = Usage {
            elapsed: started.elapsed(),
            ..instance::usage(&metered.store, &limits)
        };
        let store = &mut metered.store;
        self.settle(outcome, window.deadline, request.subject(), id)
            .map_err(|refusal| fail(refusal, usage))?;
        // Host functions take the intake out and put it back before they return.
        match store.data_mut().intake.take() {
            Some(intake) => Ok(Called { intake, usage }),
            None => Err(fail(
                Refusal::new(
                    Code::Internal,
                    "The host has lost the answer, by a fault of its own.",
                ),
                usage,
            )),
        }
    }

    async fn answer(
        &self,
        store: &mut Store<State>,
        request: &Request,
    ) -> wasmtime::Result<Result<(), Fault>> {
        let Pre { tools, backend } = &self.pre;
        match (tools, backend, request) {
            (Some(pre), _, Request::Tool { name, arguments }) => {
                let handler = pre.instantiate_async(&mut *store).await?;
                handler
                    .plimsoll_plugin_tools()
                    .call_call_tool(store, name, arguments)
                    .await
            }
            (
                _,
                Some(pre),
                Request::Query {
                    collection,
                    selection,
                },
            ) => {
                let adapter = pre.instantiate_async(&mut *store).await?;
                adapter
                    .plimsoll_plugin_backend()
                    .call_query(store, collection, selection)
                    .await
            }
            (_, Some(pre), Request::Get { collection, key }) => {
                let adapter = pre.instantiate_async(&mut *store).await?;
                adapter
                    .plimsoll_plugin_backend()
                    .call_get(store, collection, key)
                    .await
            }
            (_, None, Request::Query { .. } | Request::Get { .. }) => Ok(Err(Fault::NotFound(
                format!("`{}` has no collections", self.name),
            ))),
            (None, _, Request::Tool { .. }) => Ok(Err(Fault::NotFound(format!(
                "`{}` has no tools of its own",
                self.name
            )))),
        }
    }

    /// What came of the guest's work; `None` is the `deadline` that passed. What broke goes to the log in full.
    pub(super) fn settle<T>(
        &self,
        outcome: Option<wasmtime::Result<Result<T, Fault>>>,
        deadline: Duration,
        subject: &str,
        id: &str,
    ) -> Result<T, Refusal> {
        let error = match outcome {
            None => return Err(failure::timeout(deadline)),
            Some(Ok(Err(fault))) => return Err(failure::fault(&fault)),
            Some(Ok(Ok(value))) => return Ok(value),
            Some(Err(error)) => error,
        };
        let refusal = failure::broken(&error, &self.limits);
        let (plugin, code) = (&self.name, refusal.error.as_str());
        if refusal.error == Code::PluginTrapped {
            tracing::warn!(%plugin, tool = subject, call = id, code, "the plugin broke: {error:?}");
        } else {
            tracing::info!(%plugin, tool = subject, call = id, code, "the plugin was stopped: {error}");
        }
        Err(refusal)
    }

    /// A slot of the pool, or `None` where all stayed taken until the deadline.
    pub(super) async fn slot(&self, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        let slot = timeout_at(deadline, self.sandbox.slots().acquire_owned())
            .await
            .ok()?;
        Some(slot.expect("the semaphore is never closed"))
    }

    pub(super) fn store(
        &self,
        journal: Journal,
        limits: &Limits,
        transfer_bytes: usize,
        deadline: Instant,
        turn: &Arc<Turn>,
    ) -> anyhow::Result<Store<State>> {
        let wasi = self.grants.wasi(&journal)?;
        let requests = Requests::new(
            self.hosts.clone(),
            self.tls.clone(),
            deadline,
            journal.clone(),
        );
        let databases = Session::new(self.databases.clone(), deadline, journal.clone());
        let state = State::new(
            wasi,
            requests,
            databases,
            self.config.clone(),
            journal,
            limits,
        );
        Ok(instance::store(
            self.sandbox.engine(),
            state,
            limits,
            transfer_bytes,
            turn,
        )?)
    }

    /// What one host call may carry while the plugin answers: a list as large as the guest's memory, since lists are
    /// read where they lie and the intake has its own bound.
    fn list_bytes(&self) -> usize {
        usize::try_from(self.limits.memory_bytes).unwrap_or(usize::MAX)
    }
}
