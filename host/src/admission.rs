//! Who may run: permits for each plugin and each tenant, and a bounded queue before them.
//!
//! A flood of calls of one plugin takes that plugin's permits and then its queue; what comes after is refused as `busy`,
//! and the calls of others find the rest of the machine free.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

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
    permits: Semaphore,
    concurrent: u32,
    /// Calls that wait now.
    waiting: AtomicU32,
    queue: u32,
}

/// A place among the running calls, for as long as it lives.
#[derive(Debug)]
pub struct Permit<'a> {
    _permit: SemaphorePermit<'a>,
}

/// A place in the queue; given back however the wait ends.
struct Place<'a>(&'a AtomicU32);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    /// So many calls at the same time, and so many waiting.
    pub fn new(whose: String, concurrent: u32, queue: u32) -> Self {
        Self {
            whose,
            permits: Semaphore::new(concurrent as usize),
            concurrent,
            waiting: AtomicU32::new(0),
            queue,
        }
    }

    /// Whether another one has as many permits and places.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.concurrent, self.queue) == (other.concurrent, other.queue)
    }

    /// Waits for a permit, at most for `patience`. Refuses at once where the queue is full.
    pub async fn admit(&self, patience: Duration) -> Result<Permit<'_>, Refusal> {
        if let Ok(permit) = self.permits.try_acquire() {
            return Ok(Permit { _permit: permit });
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.queue {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(self.busy("and as many wait as may wait"));
        }
        let _place = Place(&self.waiting);
        match tokio::time::timeout(patience, self.permits.acquire()).await {
            Ok(Ok(permit)) => Ok(Permit { _permit: permit }),
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
    use super::*;

    #[tokio::test]
    async fn what_the_queue_does_not_hold_is_busy_and_a_permit_that_is_given_back_is_used() {
        let admission = Admission::new("plugin p".into(), 1, 1);
        let patience = Duration::from_secs(5);
        let running = admission.admit(patience).await.unwrap();
        let waiting = admission.admit(patience);
        tokio::pin!(waiting);
        assert!(futures::poll!(&mut waiting).is_pending());
        let refusal = admission.admit(patience).await.unwrap_err();
        assert_eq!(refusal.error, Code::Busy);
        assert!(refusal.retryable);
        assert_eq!(
            refusal.message,
            "1 calls of plugin p are running, and as many wait as may wait. Call again in 1 s or later; nothing was run."
        );
        drop(running);
        let permit = waiting.await.unwrap();
        let late = admission.admit(Duration::from_millis(5)).await.unwrap_err();
        assert!(
            late.message.contains("none of them ended within 5 ms"),
            "{}",
            late.message
        );
        drop(permit);
        assert!(admission.admit(patience).await.is_ok());
        assert_eq!(admission.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_caller_that_goes_gives_its_place_back() {
        let admission = Admission::new("plugin p".into(), 1, 1);
        let _running = admission.admit(Duration::from_secs(5)).await.unwrap();
        {
            let waiting = admission.admit(Duration::from_secs(5));
            tokio::pin!(waiting);
            assert!(futures::poll!(&mut waiting).is_pending());
        }
        assert_eq!(admission.waiting.load(Ordering::Relaxed), 0);
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
