//! Telling a client how its call goes on.

use std::time::{Duration, Instant};

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use tokio::sync::mpsc;

use crate::call::ProgressSender;
use crate::sandbox::Progress;
use crate::shape::excerpt;

/// How often a call of which nothing is heard tells its client that it is still running: often enough for the shortest
/// idle limits of clients, which are in the tens of seconds.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How many progress messages of a plugin may wait for their client before new ones are dropped.
const QUEUE: usize = 16;

/// How many messages of a call go out as fast as they come. The protocol wants a limit; most calls have fewer.
const BURST: u32 = 16;

/// Between later ones there is this much time at least. Those in between are dropped: the next says more anyway.
const PAUSE: Duration = Duration::from_millis(100);

/// What a call says on its way to its client.
pub(super) struct Said {
    receiver: mpsc::Receiver<Progress>,
    token: ProgressToken,
}

/// The two ends of what a call says, where its client wants to hear of it.
pub(super) fn channel(
    context: &RequestContext<RoleServer>,
) -> (Option<ProgressSender>, Option<Said>) {
    let Some(token) = context.meta.get_progress_token() else {
        return (None, None);
    };
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Some(sender), Some(Said { receiver, token }))
}

/// Runs a call and tells its client, if it wants to hear of it, what the plugin says, or else that it is still running.
///
/// The two go on beside each other, so that a client that is slow to read does not hold up the call, and what the plugin
/// said before it ended is told before the result.
pub(super) async fn tell_while<T>(
    call: impl Future<Output = T>,
    said: Option<Said>,
    peer: &Peer<RoleServer>,
) -> T {
    let Some(Said { receiver, token }) = said else {
        return call.await;
    };
    // The call has the other end of the channel: `tell` ends once the call did.
    let (result, ()) = tokio::join!(call, tell(receiver, &token, peer));
    result
}

async fn tell(mut said: mpsc::Receiver<Progress>, token: &ProgressToken, peer: &Peer<RoleServer>) {
    let mut account = Account::default();
    loop {
        let message = match tokio::time::timeout(HEARTBEAT, said.recv()).await {
            Ok(None) => return,
            Ok(Some(progress)) => account.said(&progress, Instant::now()),
            Err(_elapsed) => account.silent(),
        };
        if let Some(Message {
            progress,
            total,
            text,
        }) = message
        {
            let mut message = ProgressNotificationParam::new(token.clone(), progress);
            message.total = total;
            message.message = text;
            // A client that does not take progress still gets its result.
            let _ = peer.notify_progress(message).await;
        }
    }
}

/// One message to the client.
#[derive(Debug, PartialEq)]
struct Message {
    progress: f64,
    total: Option<f64>,
    text: Option<String>,
}

/// What was told of a call. Values increase with every message, as the protocol wants.
#[derive(Debug)]
struct Account {
    begun: Instant,
    /// The value that the plugin said last.
    done: f64,
    /// Heartbeats since then.
    heartbeats: u32,
    /// The value that was told last, and when.
    told: Option<(f64, Instant)>,
    messages: u32,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            done: 0.0,
            heartbeats: 0,
            told: None,
            messages: 0,
        }
    }
}

impl Account {
    /// The message for what a plugin said, unless it comes too soon after the last or does not say more.
    fn said(&mut self, progress: &Progress, now: Instant) -> Option<Message> {
        let value = progress.done as f64;
        if let Some((told, at)) = self.told
            && (value <= told || (self.messages >= BURST && now.duration_since(at) < PAUSE))
        {
            return None;
        }
        self.done = value;
        self.heartbeats = 0;
        self.told = Some((value, now));
        self.messages += 1;
        let text = progress.message.as_deref().map(excerpt);
        Some(Message {
            progress: value,
            total: progress.total.map(|total| total as f64),
            text,
        })
    }

    /// The message for a plugin of which nothing was heard. Its value lies less than one above what the plugin said last,
    /// so that the next thing that it says is more again.
    fn silent(&mut self) -> Option<Message> {
        self.heartbeats += 1;
        let value = self.done + 1.0 - 1.0 / f64::from(self.heartbeats + 1);
        let now = Instant::now();
        if self.told.is_some_and(|(told, _)| value <= told) {
            return None;
        }
        self.told = Some((value, now));
        let text = format!("running for {} s", now.duration_since(self.begun).as_secs());
        Some(Message {
            progress: value,
            total: None,
            text: Some(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done: u64) -> Progress {
        Progress {
            done,
            total: Some(100),
            message: None,
        }
    }

    #[test]
    fn values_increase_whatever_a_plugin_says_and_however_long_it_is_silent() {
        let mut account = Account::default();
        let now = Instant::now();
        let mut told = Vec::new();
        told.extend(account.silent());
        told.extend(account.said(&progress(0), now));
        told.extend(account.said(&progress(1), now));
        told.extend(account.silent());
        told.extend(account.silent());
        told.extend(account.said(&progress(1), now));
        told.extend(account.said(&progress(2), now));
        told.extend(account.said(&progress(u64::MAX), now));
        told.extend(account.silent());
        let values: Vec<f64> = told.iter().map(|message| message.progress).collect();
        assert_eq!(
            values,
            [0.5, 1.0, 1.5, 2.0 - 1.0 / 3.0, 2.0, u64::MAX as f64]
        );
        assert_eq!(told[1].total, Some(100.0));
        assert_eq!(told[0].text.as_deref(), Some("running for 0 s"));
    }

    #[test]
    fn a_plugin_that_says_much_is_heard_ten_times_a_second() {
        let mut account = Account::default();
        let now = Instant::now();
        let told = (0..1_000)
            .filter(|done| account.said(&progress(*done), now).is_some())
            .count();
        assert_eq!(told, BURST as usize);
        assert!(account.said(&progress(1_000), now + PAUSE).is_some());
        assert!(account.said(&progress(1_001), now + PAUSE).is_none());
    }
}
