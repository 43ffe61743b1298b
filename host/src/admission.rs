//! Who may run: permits for each plugin and each tenant, and a bounded queue before them.
//!
//! A flood of calls of one plugin takes that plugin's permits and then its queue; what comes after is refused as `busy`,
//! and the calls of others find the rest of the machine free.
//!
//! A permit that is given back goes to the tenant that holds the fewest, among those to the one that was served longest ago,
//! and there to the call that has waited longest. So nobody who waits sees another tenant get more than as many as it has
//! itself, however long calls last. It is not what [`sandbox`](crate::sandbox) shares turns on the processor with: a turn is
//! over in milliseconds, so that there it is enough to look who was served longest ago, and a slot that is not taken lapses;
//! a permit is held for as long as a call, so that here those that are held count.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::shape::{Code, Refusal};

/// Calls of one plugin that run at the same time by default: enough to hide the latency of backends, and a sixth of the
/// pool, so that no single plugin can take it.
pub const DEFAULT_CONCURRENT_CALLS: u32 = 16;

/// Calls of one plugin that wait for a permit by default: four rounds of those that run.
pub const DEFAULT_QUEUED_CALLS: u32 = 64;

/// After how many seconds a caller that was refused may try again. The queue is full then, so sooner makes no sense.
pub const RETRY_AFTER_SECONDS: u32 = 1;

/// The permits and the queue of one plugin or tenant.
#[derive(Debug)]
pub struct Admission {
    /// Whose they are, in messages.
    whose: String,
    concurrent: u32,
    queue: u32,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    free: u32,
    /// Calls that wait now.
    waiting: u32,
    /// Counts what was handed out, and so tells what was served longer ago.
    clock: u64,
    next_call: u64,
    /// Those that hold a permit or wait for one.
    tenants: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    tenant: Arc<str>,
    held: u32,
    served: u64,
    /// Calls by their numbers, in the order in which they came.
    waiting: VecDeque<(u64, oneshot::Sender<Permit>)>,
}

/// A place among the running calls, for as long as it lives.
#[derive(Debug)]
pub struct Permit {
    admission: Arc<Admission>,
    tenant: Arc<str>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut lines = self.admission.lines();
        lines.free += 1;
        lines.line(&self.tenant).held -= 1;
        lines.close(&self.tenant);
        drop(lines);
        self.admission.hand_out();
    }
}

/// A place in the queue; given back however the wait ends.
struct Place<'a> {
    admission: &'a Admission,
    tenant: Arc<str>,
    call: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.admission.lines();
        let line = lines.line(&self.tenant);
        let before = line.waiting.len();
        line.waiting.retain(|(call, _)| *call != self.call);
        let left = (before - line.waiting.len()) as u32;
        lines.waiting -= left;
        lines.close(&self.tenant);
    }
}

impl Lines {
    /// The line of a tenant. A new one counts as served now: whoever leaves and comes again gains nothing by it.
    fn line(&mut self, tenant: &Arc<str>) -> &mut Line {
        let at = self.tenants.iter().position(|line| line.tenant == *tenant);
        let at = at.unwrap_or_else(|| {
            self.tenants.push(Line {
                tenant: tenant.clone(),
                held: 0,
                served: self.clock,
                waiting: VecDeque::new(),
            });
            self.tenants.len() - 1
        });
        &mut self.tenants[at]
    }

    /// Forgets the line of a tenant that neither holds nor wants anything.
    fn close(&mut self, tenant: &Arc<str>) {
        self.tenants
            .retain(|line| line.tenant != *tenant || line.held > 0 || !line.waiting.is_empty());
    }

    /// One permit more for a tenant.
    fn take(&mut self, tenant: &Arc<str>) {
        self.free -= 1;
        self.clock += 1;
        let served = self.clock;
        let line = self.line(tenant);
        line.held += 1;
        line.served = served;
    }

    /// Gives a free permit to the call that is next, and says to which.
    fn next(&mut self) -> Option<(Arc<str>, oneshot::Sender<Permit>)> {
        if self.free == 0 {
            return None;
        }
        let waiting = self.tenants.iter_mut();
        let line = waiting
            .filter(|line| !line.waiting.is_empty())
            .min_by_key(|line| (line.held, line.served))?;
        let (_, call) = line.waiting.pop_front()?;
        let tenant = line.tenant.clone();
        self.waiting -= 1;
        self.take(&tenant);
        Some((tenant, call))
    }
}

impl Admission {
    /// So many calls at the same time, and so many waiting.
    pub fn new(whose: String, concurrent: u32, queue: u32) -> Self {
        Self {
            whose,
            concurrent,
            queue,
            lines: Mutex::new(Lines {
                free: concurrent,
                waiting: 0,
                clock: 0,
                next_call: 0,
                tenants: Vec::new(),
            }),
        }
    }

    /// Whether another one has as many permits and places.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.concurrent, self.queue) == (other.concurrent, other.queue)
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Nothing in here panics between two changes that belong together.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the free permits to those who are next.
    fn hand_out(self: &Arc<Self>) {
        loop {
            let next = self.lines().next();
            let Some((tenant, call)) = next else { return };
            // Whoever has gone meanwhile gives it back by not taking it. Outside of the lock, which giving back takes.
            drop(call.send(Permit {
                admission: self.clone(),
                tenant,
            }));
        }
    }

    /// Waits for a permit for a call of a tenant, at most for `patience`. Refuses at once where the queue is full.
    pub async fn admit(
        self: &Arc<Self>,
        tenant: &str,
        patience: Duration,
    ) -> Result<Permit, Refusal> {
        let tenant: Arc<str> = tenant.into();
        let (place, permit) = {
            let mut lines = self.lines();
            if lines.free > 0 && lines.waiting == 0 {
                lines.take(&tenant);
                drop(lines);
                let admission = self.clone();
                return Ok(Permit { admission, tenant });
            }
            if lines.waiting >= self.queue {
                drop(lines);
                return Err(self.busy("and as many wait as may wait"));
            }
            let call = lines.next_call;
            lines.next_call += 1;
            lines.waiting += 1;
            let (sender, permit) = oneshot::channel();
            lines.line(&tenant).waiting.push_back((call, sender));
            let place = Place {
                admission: self,
                tenant,
                call,
            };
            (place, permit)
        };
        // Between looking and waiting one may have been given back.
        self.hand_out();
        let waited = tokio::time::timeout(patience, permit).await;
        drop(place);
        match waited {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.busy(&format!(
                "and none of them ended within {} ms",
                patience.as_millis()
            ))),
        }
    }

    fn busy(&self, why: &str) -> Refusal {
        let (whose, concurrent) = (&self.whose, self.concurrent);
        Refusal::new(
            Code::Busy,
            format!(
                "{concurrent} calls of {whose} are running, {why}. Call again in {RETRY_AFTER_SECONDS} s or later; nothing was run."
            ),
        )
        .with_retry_after(RETRY_AFTER_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn admission(concurrent: u32, queue: u32) -> Arc<Admission> {
        Arc::new(Admission::new("plugin p".into(), concurrent, queue))
    }

    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Permit, Refusal>> + 'a>>;

    /// Calls of tenants that wait, in the order in which they came.
    struct Queue<'a>(Vec<(&'a str, Waiting<'a>)>);

    impl<'a> Queue<'a> {
        fn join(admission: &'a Arc<Admission>, tenants: &[&'a str]) -> Self {
            let mut queue = Self(Vec::new());
            for tenant in tenants {
                let mut waiting: Waiting<'_> = Box::pin(admission.admit(tenant, PATIENCE));
                assert!(poll(&mut waiting).is_none());
                queue.0.push((tenant, waiting));
            }
            queue
        }

        /// The one call that has been let in now.
        fn next(&mut self) -> (&'a str, Permit) {
            let polled = self.0.iter_mut().map(|(_, waiting)| poll(waiting));
            let polled: Vec<Option<Permit>> = polled.collect();
            let mut let_in = polled.into_iter().enumerate();
            let (at, permit) = let_in.find_map(|(at, permit)| Some((at, permit?))).unwrap();
            assert!(let_in.all(|(_, permit)| permit.is_none()));
            (self.0.remove(at).0, permit)
        }
    }

    fn poll(waiting: &mut Waiting<'_>) -> Option<Permit> {
        match waiting
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(permit) => Some(permit.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn what_the_queue_does_not_hold_is_busy_and_a_permit_that_is_given_back_is_used() {
        let admission = admission(1, 1);
        let running = admission.admit("a", PATIENCE).await.unwrap();
        let waiting = admission.admit("a", PATIENCE);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let refusal = admission.admit("a", PATIENCE).await.unwrap_err();
        assert_eq!(refusal.error, Code::Busy);
        assert!(refusal.retryable);
        assert_eq!(
            refusal.message,
            "1 calls of plugin p are running, and as many wait as may wait. Call again in 1 s or later; nothing was run."
        );
        drop(running);
        let permit = waiting.await.unwrap();
        let late = admission.admit("a", Duration::from_millis(5)).await;
        let late = late.unwrap_err();
        assert!(
            late.message.contains("none of them ended within 5 ms"),
            "{}",
            late.message
        );
        drop(permit);
        assert!(admission.admit("a", PATIENCE).await.is_ok());
        assert_eq!(admission.lines().waiting, 0);
    }

    #[tokio::test]
    async fn a_caller_that_goes_gives_its_place_or_its_permit_back() {
        let admission = admission(1, 2);
        let running = admission.admit("a", PATIENCE).await.unwrap();
        drop(Queue::join(&admission, &["a", "b"]));
        assert_eq!(admission.lines().waiting, 0);
        // One that was handed a permit and has not looked goes as well.
        let mut queue = Queue::join(&admission, &["b", "a"]);
        drop(running);
        drop(queue.0.remove(0));
        let (tenant, permit) = queue.next();
        assert_eq!(tenant, "a");
        drop(permit);
        let lines = admission.lines();
        assert_eq!((lines.free, lines.waiting, lines.tenants.len()), (1, 0, 0));
    }

    #[tokio::test]
    async fn permits_go_round_the_tenants_and_first_come_first_served_within_one() {
        let admission = admission(1, 100);
        let mut running = admission.admit("a", PATIENCE).await.unwrap();
        // A flood of one tenant came before the calls of two others.
        let mut queue = Queue::join(&admission, &["a", "a", "a", "b", "b", "c"]);
        let mut served = Vec::new();
        while !queue.0.is_empty() {
            drop(running);
            let (tenant, permit) = queue.next();
            served.push(tenant);
            running = permit;
        }
        assert_eq!(served, ["a", "b", "c", "a", "b", "a"]);
    }

    #[tokio::test]
    async fn a_tenant_that_holds_more_gets_none_while_one_that_holds_less_waits() {
        let admission = admission(16, 100);
        let mut permits = Vec::new();
        for tenant in ["a", "b"].into_iter().cycle().take(16) {
            permits.push((tenant, admission.admit(tenant, PATIENCE).await.unwrap()));
        }
        let waiting = ["a", "b"].repeat(8).into_iter().chain(["c"; 8]);
        let mut queue = Queue::join(&admission, &waiting.collect::<Vec<_>>());
        // Calls of both end in turn, and those of the third do not.
        for _ in 0..5 {
            permits.remove(0);
            let (tenant, permit) = queue.next();
            assert_eq!(tenant, "c");
            permits.push((tenant, permit));
        }
        let held = |tenant: &str| permits.iter().filter(|(of, _)| *of == tenant).count();
        assert_eq!(["a", "b", "c"].map(held), [5, 6, 5]);
        // From now on each has its share of what is given back.
        for _ in 0..12 {
            permits.remove(0);
            let (tenant, permit) = queue.next();
            permits.push((tenant, permit));
        }
        let held = |tenant: &str| permits.iter().filter(|(of, _)| *of == tenant).count();
        assert!(
            ["a", "b", "c"]
                .map(held)
                .iter()
                .all(|held| (5..=6).contains(held))
        );
    }

    #[test]
    fn the_defaults_are_those_of_the_reference() {
        assert_eq!(
            (
                DEFAULT_CONCURRENT_CALLS,
                DEFAULT_QUEUED_CALLS,
                RETRY_AFTER_SECONDS
            ),
            (16, 64, 1)
        );
    }
}
