//! Reading what is kept: one page, all rows, and the list of a tenant's results.

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::spool::Frames;
use super::stored::{Decoded, Held, Stored, decode};
use super::{Grant, Results, TenantFolder, now};
use crate::shape::{Call, Code, Intake, Refusal, Reply, ResultId, shape};

/// How much is read to begin with: more than a description with a usual envelope, and than a usual page.
const HEAD_BYTES: u64 = 16 << 10;
const PAGE_BYTES: u64 = 256 << 10;

/// The largest piece that is read for a page whose rows are long.
const MAX_PIECE_BYTES: u64 = 8 << 20;

/// What a promise may take: its arguments are those of one call.
const MAX_PROMISE_BYTES: u64 = 16 << 20;

/// Results on a page of the list: each takes some 400 bytes, and the smallest cap is 8,000.
const LISTED: usize = 10;

/// Kept results cannot be read just now.
#[derive(Debug)]
pub struct Unavailable;

impl From<anyhow::Error> for Unavailable {
    fn from(error: anyhow::Error) -> Self {
        tracing::warn!("kept results cannot be read: {error:#}");
        Self
    }
}

impl Unavailable {
    /// As a caller hears it.
    pub fn refusal(&self) -> Refusal {
        let message = "The place where the host keeps results cannot be read just now. Call again in a while.";
        Refusal::new(Code::Unavailable, message)
    }
}

/// A page of the list.
#[derive(Debug)]
pub struct ListingPage {
    /// Results, the newest first, and what can be made and is not yet.
    pub items: Vec<Held>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

impl Results {
    /// A tenant's kept result of that id; a promise of one is none.
    pub async fn kept(
        &self,
        tenant: TenantFolder,
        id: ResultId,
    ) -> Result<Option<Stored>, Unavailable> {
        Ok(match self.held(tenant, id).await? {
            Some(Held::Kept(stored)) => Some(*stored),
            _ => None,
        })
    }

    /// What a tenant has under that id. None where it has nothing, or nothing any more, whatever others have.
    pub async fn held(
        &self,
        tenant: TenantFolder,
        id: ResultId,
    ) -> Result<Option<Held>, Unavailable> {
        let name = tenant.object(id);
        let mut wanted = HEAD_BYTES;
        loop {
            let Some(bytes) = self.store.get(&name, 0..wanted).await? else {
                return Ok(None);
            };
            match decode(id, &bytes) {
                Decoded::Short(length) if length > wanted => wanted = length,
                Decoded::Short(_) => return Err(anyhow::anyhow!("`{name}` breaks off").into()),
                // A promise has no lengths in it, and is small.
                Decoded::Foreign if bytes.len() as u64 == wanted && wanted < MAX_PROMISE_BYTES => {
                    wanted = MAX_PROMISE_BYTES;
                }
                Decoded::Foreign => {
                    return Err(anyhow::anyhow!("`{name}` is no kept result").into());
                }
                Decoded::Whole(stored) => {
                    // The folder says whose it is; what is in it has to agree.
                    let is_own = TenantFolder::of(&stored.description.tenant) == tenant;
                    let is_live = is_own && stored.expires > now();
                    return Ok(is_live.then_some(Held::Kept(stored)));
                }
                Decoded::Promised(promised) => {
                    let is_own = TenantFolder::of(&promised.promise.tenant) == tenant;
                    let is_live = is_own && promised.expires > now();
                    return Ok(is_live.then_some(Held::Promised(promised)));
                }
            }
        }
    }

    /// A page of a kept result as a reply: what `call` asks for, from the place that its cursor names.
    pub async fn page(
        &self,
        call: &Call<'_>,
        tenant: &str,
        max_bytes: usize,
    ) -> Result<Reply, Refusal> {
        let gone = || call.ask.no_longer_kept(call.policy);
        let (id, offset, before) = call.ask.kept_place().ok_or_else(gone)?;
        let folder = TenantFolder::of(tenant);
        let name = folder.object(id);
        // What is known of the result and the rows of the page, at the same time: a page costs one round trip.
        let (stored, first) = tokio::join!(
            self.kept(folder, id),
            self.store.get(&name, offset..offset + PAGE_BYTES)
        );
        let stored = stored.map_err(|error| error.refusal())?.ok_or_else(gone)?;
        // What an operator has withheld since is not handed out from before.
        if stored.description.tool != call.tool.name
            || stored.description.cells != call.policy.cells().describe()
        {
            return Err(gone());
        }
        let mut piece = first
            .map_err(|error| Unavailable::from(error).refusal())?
            .ok_or_else(gone)?;
        let link = self.links.address(&Grant {
            tenant: folder,
            id,
            expires: stored.expires,
        });
        let mut intake = Intake::of_kept(call.policy, call.ask, &stored.answer(link), max_bytes);
        let mut left = stored.description.matched.saturating_sub(before);
        // A resource has no argument that makes its pages smaller, so that they are made to fit.
        let mut room = call
            .ask
            .resource_room(call.policy, stored.prefix.len() + stored.suffix.len());
        let (mut frames, mut end, mut read) = (Frames::default(), offset, offset);
        'page: while left > 0 {
            frames.add(&piece);
            read += piece.len() as u64;
            while let Some((row, framed)) = frames.next() {
                if let Some(room) = &mut room {
                    if end > offset && row.len() > *room {
                        break 'page;
                    }
                    *room = room.saturating_sub(row.len() + 2);
                }
                end += framed;
                left -= 1;
                if !intake.kept_row(row, end) || left == 0 {
                    break 'page;
                }
            }
            let wanted = (2 * piece.len() as u64).clamp(PAGE_BYTES, MAX_PIECE_BYTES);
            let more = self.store.get(&name, read..read + wanted).await;
            piece = more
                .map_err(|error| Unavailable::from(error).refusal())?
                .ok_or_else(gone)?;
        }
        Ok(shape(intake, call))
    }

    /// All rows of a result, one after the other.
    pub async fn rows(&self, stored: &Stored) -> Result<RowReader, Unavailable> {
        let name = TenantFolder::of(&stored.description.tenant).object(stored.id);
        let pieces = match stored.description.matched {
            // An empty range is an error to some stores.
            0 => futures::stream::empty().boxed(),
            _ => self.store.stream(&name, stored.start).await?,
        };
        Ok(RowReader {
            pieces,
            frames: Frames::default(),
            left: stored.description.matched,
        })
    }

    /// A tenant's results, the newest first. None where `after` is not a cursor of this list.
    pub async fn list(
        &self,
        tenant: &str,
        after: Option<&str>,
    ) -> Result<Option<ListingPage>, Unavailable> {
        let after = match after.filter(|after| !after.is_empty()) {
            None => None,
            Some(after) => match read_cursor(after) {
                None => return Ok(None),
                place => place,
            },
        };
        let folder = TenantFolder::of(tenant);
        let found = self.store.list(&folder.name()).await?;
        let ids = found.into_iter().filter_map(|object| {
            let id = ResultId::parse(object.name.rsplit('/').next()?)?;
            Some((u64::MAX - object.modified_ms, *id.bytes()))
        });
        let mut ids: Vec<(u64, [u8; 16])> = ids
            .filter(|place| after.is_none_or(|after| *place > after))
            .collect();
        ids.sort_unstable();
        let next = (ids.len() > LISTED).then(|| write_cursor(ids[LISTED - 1]));
        let mut items = Vec::new();
        for (_, id) in ids.into_iter().take(LISTED) {
            match self.held(folder, ResultId::new(id)).await? {
                // What was made of it has an entry of its own.
                Some(Held::Promised(promised)) if promised.promise.made.is_some() => {}
                held => items.extend(held),
            }
        }
        Ok(Some(ListingPage { items, next }))
    }
}

fn write_cursor((age, id): (u64, [u8; 16])) -> String {
    format!("{age:016x}{}", ResultId::new(id))
}

fn read_cursor(text: &str) -> Option<(u64, [u8; 16])> {
    let (age, id) = text.split_at_checked(16)?;
    let age = u64::from_str_radix(age, 16).ok()?;
    Some((age, *ResultId::parse(id)?.bytes()))
}

/// Reads rows as they come out of the store, and holds one piece of it in memory.
pub struct RowReader {
    pieces: BoxStream<'static, object_store::Result<Bytes>>,
    frames: Frames,
    left: u64,
}

impl RowReader {
    /// Takes the rows that are here, or waits for some; false where there are no more. What breaks off is an error.
    pub async fn next(&mut self, mut take: impl FnMut(&[u8])) -> anyhow::Result<bool> {
        loop {
            let mut has_taken = false;
            while self.left > 0
                && let Some((row, _)) = self.frames.next()
            {
                take(row);
                self.left -= 1;
                has_taken = true;
            }
            if has_taken || self.left == 0 {
                return Ok(has_taken);
            }
            match self.pieces.next().await {
                Some(piece) => self.frames.add(&piece?),
                None => anyhow::bail!("the result breaks off {} rows before its end", self.left),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_of_the_list_is_read_and_nothing_else_is() {
        let place = (u64::MAX - 1_764_000_000_123, [5; 16]);
        assert_eq!(read_cursor(&write_cursor(place)), Some(place));
        for text in [
            "",
            "x",
            "é".repeat(24).as_str(),
            &"0".repeat(47),
            &"g".repeat(48),
        ] {
            assert_eq!(read_cursor(text), None, "{text}");
        }
    }
}
