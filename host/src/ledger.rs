//! The account of every call: one row in the store, and what it used added to the quotas of who called.
//!
//! A call does not wait for it. One task gathers calls for a moment and writes them at once, so that a crash loses what that
//! moment and one write take. What a quota waits for is written without the moment.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::store::{Charge, Entry, Store};

/// Calls that wait to be written. A store that is gone for long costs the rows of the calls beyond.
const QUEUE: usize = 10_000;

/// Rows of one write.
const BATCH: usize = 500;

/// How long a call waits for others to be written with it: a transaction costs as much as many rows of it do. Within the
/// second that a crash may cost.
const GATHER: Duration = Duration::from_millis(50);

/// How long after a failed write the next try comes: within the second that a crash may cost.
const RETRY: Duration = Duration::from_millis(500);

/// How long the end of the host waits for the last write.
const CLOSING: Duration = Duration::from_secs(5);

/// Takes calls down.
#[derive(Debug, Clone)]
pub struct Ledger {
    sender: mpsc::Sender<Note>,
    /// Somebody waits for what was sent.
    urgent: Arc<Notify>,
}

/// What has to be written.
#[derive(Debug)]
enum Note {
    Call {
        entry: Box<Entry>,
        charges: Vec<Charge>,
        /// Scopes in which it counted as running.
        running: Vec<String>,
    },
    /// What was handed out beside calls.
    Spent(Vec<Charge>),
    Flush(oneshot::Sender<()>),
}

impl Note {
    /// Whether somebody waits for it.
    fn is_urgent(&self) -> bool {
        match self {
            Self::Call {
                charges, running, ..
            } => !charges.is_empty() || !running.is_empty(),
            Self::Spent(_) | Self::Flush(_) => true,
        }
    }
}

impl Ledger {
    /// A ledger over a store, and the task that writes. It ends when the ledger and its clones are gone.
    pub fn open(store: Store) -> Self {
        let (sender, notes) = mpsc::channel(QUEUE);
        let urgent = Arc::new(Notify::new());
        let inbox = Inbox {
            notes,
            urgent: urgent.clone(),
        };
        tokio::spawn(write_all(store, inbox));
        Self { sender, urgent }
    }

    /// Puts a note into the queue, if there is room.
    fn send(&self, note: Note) -> Result<(), TrySendError<Note>> {
        let is_urgent = note.is_urgent();
        self.sender.try_send(note)?;
        if is_urgent {
            self.urgent.notify_one();
        }
        Ok(())
    }

    /// Takes a call down that has ended. False where there is no room for it.
    pub fn record(&self, entry: Entry, charges: Vec<Charge>, running: Vec<String>) -> bool {
        let note = Note::Call {
            entry: Box::new(entry),
            charges,
            running,
        };
        let sent = self.send(note);
        if let Err(TrySendError::Full(_)) = &sent {
            tracing::error!("the store does not keep up: a call is not in the ledger");
        }
        sent.is_ok()
    }

    /// Adds what was handed out beside calls to the quotas that it counts in. Where the store fails in the middle of writing
    /// it, it may be added twice.
    pub fn spend(&self, charges: Vec<Charge>) {
        if let Err(TrySendError::Full(_)) = self.send(Note::Spent(charges)) {
            tracing::error!("the store does not keep up: what was handed out is not in the quotas");
        }
    }

    /// Waits until what was taken down is written, for a while.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let flush = async {
            if self.sender.send(Note::Flush(done)).await.is_ok() {
                self.urgent.notify_one();
                let _ = written.await;
            }
        };
        if tokio::time::timeout(CLOSING, flush).await.is_err() {
            tracing::error!("the store does not answer: the last calls are not in the ledger");
        }
    }
}

/// What waits to be written.
struct Inbox {
    notes: mpsc::Receiver<Note>,
    urgent: Arc<Notify>,
}

async fn write_all(store: Store, mut inbox: Inbox) {
    let store = Arc::new(store);
    let mut batch = Vec::with_capacity(BATCH);
    while inbox.gather(&mut batch).await {
        let (mut calls, mut ended, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut spent = Vec::new();
        for note in batch.drain(..) {
            match note {
                Note::Call {
                    entry,
                    charges,
                    running,
                } => {
                    if !running.is_empty() {
                        ended.push((entry.call.clone(), running));
                    }
                    calls.push((*entry, charges));
                }
                Note::Spent(charges) => spent.extend(charges),
                Note::Flush(done) => waiting.push(done),
            }
        }
        let mut is_failing = false;
        // Written again and again: rows that are there already are not written twice.
        while let Err(error) = write(&store, &calls, &spent, &ended).await {
            if !std::mem::replace(&mut is_failing, true) {
                tracing::warn!("calls wait to be written to the ledger: {error:#}");
            }
            if inbox.notes.is_closed() && inbox.notes.is_empty() {
                tracing::error!("{} calls are not in the ledger", calls.len());
                return;
            }
            tokio::time::sleep(RETRY).await;
        }
        for done in waiting {
            // Whoever waited may be gone.
            let _ = done.send(());
        }
    }
}

impl Inbox {
    /// Waits for calls, and a moment for more unless somebody waits. False once none come any more.
    ///
    /// During the moment nothing looks at the queue, so that a call that puts itself there wakes nobody.
    async fn gather(&mut self, batch: &mut Vec<Note>) -> bool {
        if self.notes.recv_many(batch, BATCH).await == 0 {
            return false;
        }
        let is_full = batch.len() + self.notes.len() >= BATCH;
        if !is_full && !batch.iter().any(Note::is_urgent) && !self.notes.is_closed() {
            // A notification that is left from an urgent note that is written already ends one moment early.
            let _ = tokio::time::timeout(GATHER, self.urgent.notified()).await;
        }
        while batch.len() < BATCH
            && let Ok(note) = self.notes.try_recv()
        {
            batch.push(note);
        }
        true
    }
}

async fn write(
    store: &Store,
    calls: &[(Entry, Vec<Charge>)],
    spent: &[Charge],
    ended: &[(String, Vec<String>)],
) -> anyhow::Result<()> {
    // Calls that have ended make room first: others wait for it.
    for (call, scopes) in ended {
        store.release(call, scopes).await?;
    }
    if !calls.is_empty() || !spent.is_empty() {
        store.record(calls, spent).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    fn call(running: &[&str]) -> Note {
        Note::Call {
            entry: Box::default(),
            charges: Vec::new(),
            running: running.iter().map(|scope| scope.to_string()).collect(),
        }
    }

    /// A ledger of which the test is the one that writes.
    fn ledger() -> (Ledger, Inbox) {
        let (sender, notes) = mpsc::channel(QUEUE);
        let urgent = Arc::new(Notify::new());
        let inbox = Inbox {
            notes,
            urgent: urgent.clone(),
        };
        (Ledger { sender, urgent }, inbox)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_gathered_for_50_ms_unless_somebody_waits() {
        let (ledger, mut inbox) = ledger();
        tokio::spawn(async move {
            for pause in [0, 49, 2] {
                sleep(Duration::from_millis(pause)).await;
                ledger.send(call(&[])).unwrap();
            }
            sleep(Duration::from_millis(9)).await;
            ledger.send(call(&["tenant acme"])).unwrap();
            sleep(Duration::from_millis(200)).await;
        });
        let (began, mut batch) = (Instant::now(), Vec::new());
        assert!(inbox.gather(&mut batch).await);
        assert_eq!((batch.len(), began.elapsed()), (2, GATHER));
        batch.clear();
        assert!(inbox.gather(&mut batch).await);
        assert_eq!(batch.len(), 2);
        assert_eq!(began.elapsed(), Duration::from_millis(60));
        batch.clear();
        assert!(!inbox.gather(&mut batch).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_batch_is_not_waited_for() {
        let (ledger, mut inbox) = ledger();
        for _ in 0..2 * BATCH + 1 {
            ledger.send(call(&[])).unwrap();
        }
        let (began, mut batch) = (Instant::now(), Vec::new());
        for expected in [(BATCH, 0), (BATCH, 0), (1, 50)] {
            assert!(inbox.gather(&mut batch).await);
            assert_eq!(batch.len(), expected.0);
            assert_eq!(began.elapsed(), Duration::from_millis(expected.1));
            batch.clear();
        }
    }
}
