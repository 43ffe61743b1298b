//! The account of one call: what it is, how it ended, and what it used, for the ledger, the metrics and its span.

use std::sync::Arc;
use std::time::Instant;

use tracing::Span;

use crate::call::{Caller, Host};
use crate::catalog::Tool;
use crate::contract::Stage;
use crate::sandbox::{Meter, Usage};
use crate::shape::{Intake, Refusal, Reply, tokens};
use crate::store::{Entry, Spent, now_ms};
use crate::telemetry;
use crate::tenant::Admitted;

/// The outcome, in the ledger, of a call that was answered; one that was refused has the name of the refusal.
pub const ANSWERED: &str = "answered";

/// The outcome of a call whose caller went before it ended.
pub const CANCELLED: &str = "cancelled";

/// How much of a name that a client gives itself goes into the ledger.
const MAX_CLIENT_BYTES: usize = 100;

/// What is known of one call so far. It is written down when it goes, however the call ends.
pub(crate) struct Account<'a> {
    host: &'a Host,
    entry: Entry,
    began: Instant,
    /// What the plugin used.
    pub(crate) usage: Usage,
    /// What the plugin has used so far, for a call that does not come to its end.
    pub(crate) meter: Arc<Meter>,
    /// What the call holds of quotas, and owes to them.
    pub(crate) admitted: Admitted,
    /// Its span.
    pub(crate) span: Span,
}

impl<'a> Account<'a> {
    /// The account of a call that begins.
    pub(crate) fn open(host: &'a Host, caller: &Caller, tool: &Tool) -> Self {
        let key = caller.key.as_ref().map(|key| key.id.clone());
        let subject = || caller.subject.as_deref().map(named);
        let entry = Entry {
            call: host.next_call(),
            at_ms: now_ms(),
            tenant: caller.tenant.clone(),
            key_id: key.or_else(subject).unwrap_or_default(),
            client: caller.client.as_deref().map(named).unwrap_or_default(),
            plugin: tool.carrier_name().to_owned(),
            tool: tool.name().to_owned(),
            outcome: CANCELLED.to_owned(),
            ..Entry::default()
        };
        Self {
            host,
            began: Instant::now(),
            usage: Usage::default(),
            meter: Arc::default(),
            admitted: Admitted::default(),
            span: telemetry::span(caller, &entry),
            entry,
        }
    }

    /// The call's id.
    pub(crate) fn call(&self) -> &str {
        &self.entry.call
    }

    /// Takes down what left.
    pub(crate) fn close(&mut self, reply: &Reply) {
        let entry = &mut self.entry;
        entry.outcome = reply
            .refusal()
            .map_or(ANSWERED, |code| code.as_str())
            .to_owned();
        entry.bytes_out = reply.bytes();
        let Some(receipt) = reply.receipt() else {
            entry.tokens_out = tokens::count(reply.body());
            return;
        };
        for passage in &receipt.passages {
            match passage.stage {
                Stage::Narrow => {
                    entry.rows_in = passage.rows_in;
                    entry.bytes_in = passage.bytes_in;
                    entry.rows_matched = passage.rows_out;
                }
                Stage::Page => entry.rows_on_page = passage.rows_out,
                Stage::Fit => {
                    entry.rows_out = passage.rows_out;
                    // Nobody counts what does not leave: it is taken to be like what does.
                    let tokens = passage.tokens_out.unwrap_or_default();
                    let bytes = passage.bytes_out.max(1);
                    let estimate =
                        u128::from(tokens) * u128::from(entry.bytes_in) / u128::from(bytes);
                    entry.tokens_in = u64::try_from(estimate).unwrap_or(u64::MAX);
                }
                Stage::Cap => {}
            }
        }
        entry.tokens_out = receipt.approx_tokens;
    }

    /// Takes down what came in of an answer that does not leave, but is kept.
    pub(crate) fn took(&mut self, intake: &Intake) {
        let (rows, bytes, matched) = intake.taken();
        self.entry.rows_in = rows;
        self.entry.bytes_in = bytes;
        self.entry.rows_matched = matched;
    }

    /// Takes down how a call ended of which nothing leaves.
    pub(crate) fn end(&mut self, refusal: Option<&Refusal>) {
        let outcome = refusal.map_or(ANSWERED, |refusal| refusal.error.as_str());
        self.entry.outcome = outcome.to_owned();
    }

    /// Makes room for the next call, before the caller knows that this one has ended.
    pub(crate) async fn release(&mut self) {
        let running = self.admitted.end();
        if running.is_empty() {
            return;
        }
        let released = self.host.tenants().release(&self.entry.call, &running);
        if let Err(error) = released.await {
            tracing::warn!(
                call = self.entry.call,
                "a call that has ended counts as running for a while: {error:#}"
            );
        }
    }
}

impl Drop for Account<'_> {
    fn drop(&mut self) {
        let mut entry = std::mem::take(&mut self.entry);
        if self.usage == Usage::default() {
            self.usage = self.meter.usage();
        }
        entry.fuel = self.usage.fuel;
        entry.memory_peak_bytes = self.usage.memory_peak_bytes;
        entry.milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        telemetry::end(&self.span, &entry);
        let (ledger, metrics) = (self.host.ledger(), self.host.counters());
        metrics.observe(&entry);
        let spent = Spent {
            calls: 0,
            fuel: entry.fuel,
            bytes: entry.bytes_out,
            tokens: entry.tokens_out,
        };
        let charges = self.admitted.charges(spent).collect();
        // Empty, but for a call whose caller went.
        let running = self.admitted.end();
        if !ledger.record(entry, charges, running) {
            metrics.unwritten();
        }
    }
}

/// A name that somebody gives themselves, as the ledger has it: short, on one line.
fn named(name: &str) -> String {
    let end = name.floor_char_boundary(MAX_CLIENT_BYTES);
    name[..end]
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}
