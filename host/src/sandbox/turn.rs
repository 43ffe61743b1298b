//! How long a guest runs before others do, and when it has to be done.
//!
//! Guest code yields after so much fuel, and a guest that calls the host, which costs it next to none, after so much time.
//! Whoever waits for it looks at the clock at each of these moments and drops it at its deadline.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use wasmtime::{CallHook, CallHookHandler, Store, StoreContextMut};
use wasmtime_wasi::async_trait;

use super::instance::State;

/// Fuel after which a guest lets others run: about 0.15 ms of a tight loop. A worker of tokio looks at its timers and
/// sockets every 61 polls, so the interval times 61 (about 9 ms) is how late a busy host may notice anything; at 1 ms it
/// would be 61. A yield costs well under a microsecond.
const YIELD_FUEL: u64 = 1_000_000;

/// Time after which a guest that returns from a call of the host lets others run: as long as [`YIELD_FUEL`] lasts in
/// code that waits for memory.
const YIELD_TIME: Duration = Duration::from_micros(250);

/// The turn of one guest: when it last began to run.
pub(super) struct Turn {
    origin: std::time::Instant,
    /// Nanoseconds after `origin`.
    began: AtomicU64,
}

impl Turn {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            origin: std::time::Instant::now(),
            began: AtomicU64::new(0),
        })
    }

    /// Makes a store's guest take turns.
    pub(super) fn govern(self: &Arc<Self>, store: &mut Store<State>) -> wasmtime::Result<()> {
        store.fuel_async_yield_interval(Some(YIELD_FUEL))?;
        store.call_hook_async(Hook(self.clone()));
        Ok(())
    }

    /// The guest's output, or `None` where it is not done by the deadline; it is dropped then.
    pub(super) async fn run<F: Future>(&self, deadline: Instant, guest: F) -> Option<F::Output> {
        let mut guest = pin!(guest);
        let mut timer = pin!(sleep_until(deadline));
        poll_fn(|context| {
            self.began.store(self.now(), Ordering::Relaxed);
            if let Poll::Ready(output) = guest.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            // The clock as well as the timer: a worker that is busy with guests looks at its timers late.
            if Instant::now() >= deadline || timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        let began = self.began.load(Ordering::Relaxed);
        self.now().saturating_sub(began) > u64::try_from(YIELD_TIME.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Ends a turn where the guest comes back from the host.
struct Hook(Arc<Turn>);

#[async_trait]
impl CallHookHandler<State> for Hook {
    async fn handle_call_event(
        &self,
        _: StoreContextMut<'_, State>,
        event: CallHook,
    ) -> wasmtime::Result<()> {
        if event.exiting_host() && self.0.is_over() {
            let mut has_yielded = false;
            // Not tokio's own yield: that waits for the next look at timers and sockets, up to 61 polls of others away.
            poll_fn(|context| {
                if std::mem::replace(&mut has_yielded, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        Ok(())
    }
}
