//! How long a guest runs before others do, and when it has to be done.
//!
//! Guest code yields after so much fuel, and a guest that calls the host, which costs it next to none, after so much time.
//! That ends its turn; who is next is [`share`](super::share)'s affair. Whoever waits for a guest looks at the clock at each
//! of these moments and drops it at its deadline, also while it waits for its turn.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use wasmtime::{CallHook, CallHookHandler, Store, StoreContextMut};
use wasmtime_wasi::async_trait;

use super::instance::State;
use super::share::{LAPSE, Seat};

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

    /// The guest's output, or `None` where it is not done by the deadline; it is dropped then. The guest runs when `seat`
    /// has a slot, and only once something has woken it.
    pub(super) async fn run<F: Future>(
        &self,
        mut seat: Seat,
        deadline: Instant,
        guest: F,
    ) -> Option<F::Output> {
        seat.fit(Handle::current().metrics().num_workers());
        let mut guest = pin!(guest);
        let mut timer = pin!(sleep_until(deadline));
        let mut lapse = Lapse::default();
        let signal = Signal::new();
        let waker = Waker::from(signal.clone());
        poll_fn(|context| {
            signal.task.register(context.waker());
            if signal.is_woken() {
                if seat.take(context.waker()) {
                    lapse.stop();
                    self.began.store(self.now(), Ordering::Relaxed);
                    signal.begin();
                    let output = guest.as_mut().poll(&mut Context::from_waker(&waker));
                    let wants_more = signal.end();
                    if let Poll::Ready(output) = output {
                        return Poll::Ready(Some(output));
                    }
                    if wants_more {
                        seat.pass(context.waker());
                    } else {
                        seat.rest();
                    }
                }
                if seat.is_waiting() {
                    lapse.wait(&seat, context);
                }
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

/// The guest runs.
const RUNS: u8 = 1;

/// Something has woken the guest since it last began to run.
const WOKEN: u8 = 2;

/// What wakes a guest. While it runs, that is only noted: whether its task goes on at once or waits for its turn is
/// decided when this one ends.
struct Signal {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Signal {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(WOKEN),
            task: AtomicWaker::new(),
        })
    }

    fn is_woken(&self) -> bool {
        self.state.load(Ordering::Acquire) & WOKEN != 0
    }

    fn begin(&self) {
        self.state.store(RUNS, Ordering::Release);
    }

    /// Whether the guest was woken while it ran.
    fn end(&self) -> bool {
        self.state.fetch_and(!RUNS, Ordering::AcqRel) & WOKEN != 0
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & RUNS == 0 {
            self.task.wake();
        }
    }
}

/// Looks after slots that others have left lying while a call waits for one.
#[derive(Default)]
struct Lapse {
    timer: Option<Pin<Box<Sleep>>>,
    is_running: bool,
}

impl Lapse {
    fn stop(&mut self) {
        self.is_running = false;
    }

    fn wait(&mut self, seat: &Seat, context: &mut Context<'_>) {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(LAPSE)));
        if !std::mem::replace(&mut self.is_running, true) {
            timer.as_mut().reset(Instant::now() + LAPSE);
        }
        while timer.as_mut().poll(context).is_ready() {
            seat.hurry();
            timer.as_mut().reset(Instant::now() + LAPSE);
        }
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
