//! Keeping an answer of which rows are left out, and what a tenant may keep.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::promise::{Promise, Promised};
use super::stored::{Description, Head};
use super::{Entry, Results, TenantFolder, now};
use crate::queries;
use crate::results::Grant;
use crate::shape::{
    Call, Code, Intake, Keep, NotKept, Reader, Refusal, Reply, ResultId, check, shape_each,
};

/// How often what has expired is removed.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How long an expired result stays where it is, in seconds: the clock of a bucket, which says when it was written, may be
/// that much behind the host's, and nothing may go before its time.
const SWEEP_SLACK: u64 = 300;

/// How long nothing is written after writing has failed, in seconds: long enough that an outage costs few calls their time,
/// short enough that nobody waits for results once it is over.
const PAUSE: u64 = 30;

/// How long an answer waits for its turn to be written. A client waits with it.
const TURN_TIME: Duration = Duration::from_secs(5);

/// Where an answer comes from.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The tenant that called.
    pub tenant: &'a str,
    /// The id of the key that it showed.
    pub key: Option<&'a str>,
    /// Whom an identity provider says that it is.
    pub subject: Option<&'a str>,
    /// The plugin that answered.
    pub plugin: &'a str,
    /// Whether the same call may be made again without its caller: its tool changes nothing.
    pub is_read_only: bool,
}

/// Why a result is not kept.
enum Trouble {
    /// This one call could not.
    OfCall(String),
    /// The place where results are kept does not answer.
    OfStore(anyhow::Error),
}

/// What is kept if rows of an answer are left out.
pub(super) struct Candidate {
    pub(super) tenant: TenantFolder,
    pub(super) id: ResultId,
    pub(super) what: What,
    pub(super) created: u64,
    pub(super) expires: u64,
    /// Whether this host knows that the same is kept already, and for long enough.
    pub(super) is_known: bool,
}

pub(super) enum What {
    /// The rows that were collected, behind this.
    Rows(Head),
    /// The call that gets them.
    Promise(Promise),
}

impl Results {
    /// Shapes an answer for each reader, and keeps it where rows of it are left out for one. A reply never points to what is
    /// not there: where keeping fails, the answer is shaped again as one that is not kept.
    pub async fn shape_each(
        &self,
        mut intake: Intake,
        call: &Call<'_>,
        readers: &[Reader<'_>],
        origin: Origin<'_>,
        until: tokio::time::Instant,
    ) -> Vec<Reply> {
        let candidate = match self.candidate(&mut intake, call, readers, origin) {
            Some(candidate) => Some(candidate),
            None => {
                let promise = self.promise(&mut intake, call, readers, origin);
                tokio::time::timeout_at(until, promise).await.ok().flatten()
            }
        };
        let Some(candidate) = candidate else {
            return shape_each(&mut intake, call, readers);
        };
        let link = self.links.address(&Grant {
            tenant: candidate.tenant,
            id: candidate.id,
            expires: candidate.expires,
        });
        intake.decide(Ok(Keep {
            id: candidate.id,
            start: match &candidate.what {
                What::Rows(head) => Some(head.start()),
                What::Promise(_) => None,
            },
            made: None,
            link,
        }));
        let mut replies = shape_each(&mut intake, call, readers);
        if replies.iter().all(|reply| reply.complete().is_none()) {
            return replies;
        }
        let kept = tokio::time::timeout_at(until, self.keep(candidate, &mut intake)).await;
        // A call that has no more time, or no turn, says nothing of the place where results are kept.
        let kept = kept.unwrap_or_else(|_| Err(Trouble::OfCall("its time is over".into())));
        if let Err(trouble) = kept {
            self.note(&trouble, &call.tool.name);
            intake.decide(Err(NotKept::Failed));
            intake.attachments = replies
                .pop()
                .map(Reply::into_attachments)
                .unwrap_or_default();
            return shape_each(&mut intake, call, readers);
        }
        replies
    }

    /// Keeps all rows of a whole answer, which was taken in to keep a promise, whether they would have been left out or not.
    /// The refusal says why they are not kept.
    pub async fn keep_whole(
        &self,
        mut intake: Intake,
        call: &Call<'_>,
        origin: Origin<'_>,
        until: tokio::time::Instant,
    ) -> Result<ResultId, Refusal> {
        let failed = || {
            let message = "The host could not store the complete result. Open it again in a while.";
            Refusal::new(Code::Unavailable, message)
        };
        check(&mut intake, call)?;
        let Some(candidate) = self.candidate(&mut intake, call, &[], origin) else {
            return Err(match intake.not_kept() {
                Some(NotKept::TooLarge(limit)) => Refusal::new(
                    Code::ResponseTooLarge,
                    format!(
                        "The complete result is more than {limit} bytes, which is what the host keeps of one. Narrow the call \
                         of {} and make it again: its answer has a new link.",
                        call.tool.name
                    ),
                ),
                Some(NotKept::Failed) => failed(),
                None => Refusal::new(
                    Code::InvalidAnswer,
                    "the plugin handed over no rows, or not all of them, when the complete result was made",
                ),
            });
        };
        let id = candidate.id;
        let kept = tokio::time::timeout_at(until, self.keep(candidate, &mut intake)).await;
        let kept = kept.unwrap_or_else(|_| Err(Trouble::OfCall("its time is over".into())));
        kept.map(|()| id).map_err(|trouble| {
            self.note(&trouble, &call.tool.name);
            failed()
        })
    }

    /// Says why something is not kept, and waits where the store is at fault.
    fn note(&self, trouble: &Trouble, tool: &str) {
        match trouble {
            Trouble::OfCall(why) => tracing::warn!(tool, "a result is not kept: {why}"),
            Trouble::OfStore(error) => {
                tracing::warn!(
                    tool,
                    "a result is not kept, nor is any other for {PAUSE} s: {error:#}"
                );
                self.paused_until.store(now() + PAUSE, Ordering::Relaxed);
            }
        }
    }

    fn candidate(
        &self,
        intake: &mut Intake,
        call: &Call<'_>,
        readers: &[Reader<'_>],
        origin: Origin<'_>,
    ) -> Option<Candidate> {
        let (kind, counts) = intake.complete(call, readers)?;
        if self.paused_until.load(Ordering::Relaxed) > now() {
            intake.decide(Err(NotKept::Failed));
            return None;
        }
        let (prefix, suffix) = intake.envelope();
        if prefix.len() + suffix.len() >= call.policy.cap_bytes as usize {
            // No page of it could ever be sent.
            return None;
        }
        let columns = call.policy.declared_columns();
        let description = Description {
            tenant: origin.tenant.to_owned(),
            tool: call.tool.name.clone(),
            plugin: origin.plugin.to_owned(),
            kind: kind.name().to_owned(),
            total: counts.total,
            matched: counts.matched,
            hidden: counts.hidden,
            filtered: counts.filtered,
            columns: columns
                .map(|(name, field)| (name.to_owned(), field.to_owned()))
                .collect(),
            arguments: call.ask.arguments().clone(),
            cells: call.policy.cells().describe(),
            is_later: intake.takes_all(),
        };
        let head = Head::new(&description, prefix, suffix)?;
        // The same answer to the same call has the same id, so that one that is asked for again and again is kept once.
        let hash = intake.spool()?.hash(head.timeless());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        let (tenant, id) = (TenantFolder::of(origin.tenant), ResultId::new(bytes));
        let created = now();
        let known = self.indexed(|index| index.get(&tenant)?.get(&id).copied());
        // One that is about to expire is written anew, so that whoever is pointed to it has half the time at least.
        let known = known.filter(|entry| entry.expires > created + self.keep_seconds / 2);
        Some(Candidate {
            tenant,
            id,
            what: What::Rows(head),
            created,
            expires: known.map_or(created + self.keep_seconds, |entry| entry.expires),
            is_known: known.is_some(),
        })
    }

    async fn keep(&self, candidate: Candidate, intake: &mut Intake) -> Result<(), Trouble> {
        let Candidate {
            tenant,
            id,
            what,
            created,
            expires,
            is_known,
        } = candidate;
        let name = tenant.object(id);
        let head = match what {
            // It was there a moment ago.
            What::Promise(_) if is_known => return Ok(()),
            What::Promise(promise) => {
                let promised = Promised {
                    id,
                    created,
                    expires,
                    promise,
                };
                let bytes = promised.encode();
                let size = bytes.len() as u64;
                let put = self.store.put(&name, bytes).await;
                put.map_err(Trouble::OfStore)?;
                self.enter(tenant, id, size, expires).await;
                return Ok(());
            }
            What::Rows(head) => head,
        };
        if is_known && self.store.has(&name).await {
            return Ok(());
        }
        let of_call = |why: &str| Trouble::OfCall(why.to_owned());
        let spool = intake
            .take_spool()
            .ok_or_else(|| of_call("the rows are gone"))?;
        let turn = tokio::time::timeout(TURN_TIME, self.uploads.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(of_call("too many results are being written"));
        };
        let bytes = self
            .store
            .put_spool(&name, head.at(created, expires), spool)
            .await
            .map_err(Trouble::OfStore)?;
        self.enter(tenant, id, bytes, expires).await;
        Ok(())
    }

    /// Takes note of what was written, and makes room for it.
    pub(super) async fn enter(&self, tenant: TenantFolder, id: ResultId, bytes: u64, expires: u64) {
        let all = self.indexed(|index| {
            let kept = index.entry(tenant).or_default();
            kept.insert(id, Entry { bytes, expires });
            kept.values().map(|entry| entry.bytes).sum::<u64>()
        });
        if all > self.tenant_bytes
            && let Err(error) = self.evict(tenant, id).await
        {
            tracing::warn!("old results stay: {error:#}");
        }
    }

    /// Removes a tenant's oldest results until the rest is no more than it may keep. The one just written stays.
    async fn evict(&self, tenant: TenantFolder, newest: ResultId) -> anyhow::Result<()> {
        let mut found = self.store.list(&tenant.name()).await?;
        found.sort_by_key(|object| object.modified_ms);
        let newest = tenant.object(newest);
        let mut bytes: u64 = found.iter().map(|object| object.bytes).sum();
        let mut gone = Vec::new();
        for object in found.into_iter().filter(|object| object.name != newest) {
            if bytes <= self.tenant_bytes {
                break;
            }
            bytes -= object.bytes;
            gone.push(object.name);
        }
        self.indexed(|index| {
            if let Some(kept) = index.get_mut(&tenant) {
                kept.retain(|id, _| !gone.contains(&tenant.object(*id)));
            }
        });
        self.store.remove(gone).await
    }

    /// Removes what has expired, now and then until `stop` fires.
    pub async fn run(&self, stop: CancellationToken) {
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!("expired results stay for now: {error:#}");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(SWEEP_EVERY) => {}
            }
        }
    }

    /// Removes what has expired, and what tenants have over their size, whichever host wrote it.
    pub async fn sweep(&self) -> anyhow::Result<()> {
        let began = now();
        self.generations().clear();
        self.store.remove_halves().await?;
        queries::sweep(&self.store, began).await?;
        let mut found = self.store.list("tenants").await?;
        // Newest first, so that the sizes add up to those that stay.
        found.sort_by_key(|object| std::cmp::Reverse(object.modified_ms));
        let (mut index, mut gone) = (std::collections::HashMap::new(), Vec::new());
        let mut sizes = std::collections::HashMap::<TenantFolder, u64>::new();
        for object in found {
            let expires = object.modified_ms / 1_000 + self.keep_seconds;
            let Some((tenant, id)) = read_name(&object.name) else {
                continue;
            };
            let bytes = sizes.entry(tenant).or_default();
            *bytes += object.bytes;
            if expires + SWEEP_SLACK <= began || *bytes > self.tenant_bytes {
                *bytes -= object.bytes;
                gone.push(object.name);
                continue;
            }
            let entry = Entry {
                bytes: object.bytes,
                expires,
            };
            index
                .entry(tenant)
                .or_insert_with(std::collections::HashMap::new)
                .insert(id, entry);
        }
        self.indexed(|kept| {
            // What was written meanwhile is not in the list.
            for (tenant, entries) in kept.drain() {
                for (id, entry) in entries {
                    if entry.expires >= began + self.keep_seconds {
                        index.entry(tenant).or_default().entry(id).or_insert(entry);
                    }
                }
            }
            *kept = index;
        });
        self.store.remove(gone).await
    }
}

/// The tenant and the id in the name of an object.
fn read_name(name: &str) -> Option<(TenantFolder, ResultId)> {
    let (tenant, id) = name.strip_prefix("tenants/")?.split_once('/')?;
    let tenant = ResultId::parse(tenant)?;
    Some((TenantFolder(*tenant.bytes()), ResultId::parse(id)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_object_says_whose_it_is() {
        let (tenant, id) = (TenantFolder::of("acme"), ResultId::new([9; 16]));
        assert_eq!(read_name(&tenant.object(id)), Some((tenant, id)));
        assert_eq!(read_name("queries/abc"), None);
        assert_eq!(read_name("tenants/acme/abc"), None);
        assert_ne!(TenantFolder::of("acme"), TenantFolder::of(""));
        assert!(!tenant.name().contains("acme"));
    }
}
