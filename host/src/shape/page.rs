//! The page stage: which of the matching rows are delivered, and where the next page begins.
//!
//! Owns: the window that slides over the rows as they come, in one pass, and the counts of the account. Rows before and
//! behind the page are counted and forgotten.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::cursor::{Cursor, KeyMark, Place};
use super::narrow::{Narrow, Verdict};
use super::select::Path;

/// How many keys up to the last row delivered a cursor remembers. One would find the row; the others tell whether the
/// rows still come in the order in which they were handed out.
const CONTEXT_KEYS: usize = 8;

/// What a delivered row leaves behind for the cursor.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    key: Option<KeyMark>,
    keys: u8,
    sequence: u64,
}

/// The account of the rows, once all have passed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) total: Option<u64>,
    pub(crate) hidden: u64,
    pub(crate) filtered: u64,
    pub(crate) before: u64,
    pub(crate) kept: u64,
    pub(crate) after: Option<u64>,
    /// Whether there are matching rows behind the page.
    pub(crate) has_more: bool,
}

/// The rows do not continue what the cursor was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The row behind which the page begins is gone, or the rows come in another order.
    KeyGone,
    /// The rows have changed.
    Changed,
}

/// A window over the rows of one answer.
pub(crate) struct Window {
    limit: Option<usize>,
    key: Option<Path>,
    resume: Option<Resume>,
    marks: Vec<Mark>,
    ring: [u64; CONTEXT_KEYS],
    raw: u64,
    hidden: u64,
    filtered: u64,
    matched: u64,
    matched_bytes: u64,
    before: u64,
    kept: usize,
    /// Matching rows that the handler skipped because it starts behind the cursor itself.
    skipped: u64,
    is_filtered_by_handler: bool,
    fingerprint: Option<Box<Xxh3>>,
}

/// Where the page begins, until it has been found.
enum Resume {
    Position { before: u64, fingerprint: u64 },
    Key { hash: u64, keys: u8, sequence: u64 },
}

impl Window {
    /// `limit` is none where the host does not page; then no cursor is ever needed.
    pub(crate) fn new(limit: Option<usize>, key: Option<Path>, after: Option<&Cursor>) -> Self {
        let resume = after.map(|cursor| match &cursor.place {
            Place::Position { fingerprint } => {
                Resume::Position { before: cursor.before, fingerprint: *fingerprint }
            }
            Place::Key { key, keys, sequence } => Resume::Key { hash: key.hash(), keys: *keys, sequence: *sequence },
        });
        Self {
            limit,
            key,
            resume,
            marks: Vec::new(),
            ring: [0; CONTEXT_KEYS],
            raw: 0,
            hidden: 0,
            filtered: 0,
            matched: 0,
            matched_bytes: 0,
            before: 0,
            kept: 0,
            skipped: 0,
            is_filtered_by_handler: false,
            fingerprint: limit.map(|_| Box::new(Xxh3::new())),
        }
    }

    /// The handler begins behind the cursor itself: the next row is the first of the page.
    pub(crate) fn starts_behind(&mut self, cursor: &Cursor) {
        self.resume = None;
        self.skipped = cursor.before;
    }

    /// The handler applies the filters itself: the rows are those that match.
    pub(crate) fn is_filtered_by_handler(&mut self) {
        self.is_filtered_by_handler = true;
    }

    /// Takes note of the next row; true where it belongs to the page.
    pub(crate) fn admit(&mut self, row: &[u8], narrow: &Narrow) -> bool {
        self.raw += 1;
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.update(row);
            fingerprint.update(b"\n");
        }
        let verdict = narrow.judge(row);
        match verdict {
            Verdict::Filtered => self.filtered += 1,
            Verdict::Hidden => self.hidden += 1,
            Verdict::Matches => {
                self.matched += 1;
                self.matched_bytes += row.len() as u64;
            }
        }
        let key = if self.limit.is_some() { self.key.as_ref().and_then(|path| path.first(row)) } else { None };
        if self.limit.is_some() && self.key.is_some() {
            // The ring holds the keys of all rows, narrowed away or not: a row that is hidden between two pages does not
            // make a cursor stale.
            self.ring.rotate_left(1);
            self.ring[CONTEXT_KEYS - 1] = key.map_or(0, xxh3_64);
        }
        let is_before = match self.resume {
            None => false,
            Some(Resume::Position { before, .. }) => self.matched <= before,
            Some(Resume::Key { hash, keys, sequence }) => {
                if key.is_some_and(|key| xxh3_64(key) == hash) && self.sequence(keys) == sequence {
                    self.resume = None;
                }
                true
            }
        };
        if verdict != Verdict::Matches {
            return false;
        }
        if is_before {
            self.before += 1;
            return false;
        }
        if self.limit.is_some_and(|limit| self.kept >= limit) {
            return false;
        }
        self.kept += 1;
        if self.limit.is_some() {
            let keys = self.raw.min(CONTEXT_KEYS as u64) as u8;
            let sequence = self.sequence(keys);
            self.marks.push(Mark { key: key.map(|key| KeyMark::Text(key.to_vec())), keys, sequence });
        }
        true
    }

    /// The hash of the last `keys` keys.
    fn sequence(&self, keys: u8) -> u64 {
        let keys = usize::from(keys).min(CONTEXT_KEYS);
        let bytes: Vec<u8> = self.ring[CONTEXT_KEYS - keys..].iter().flat_map(|hash| hash.to_le_bytes()).collect();
        xxh3_64(&bytes)
    }

    /// Whether the page is full and one row behind it has been seen, so that a handler that knows its total may stop.
    pub(crate) fn is_full(&self) -> bool {
        let is_keyed = self.marks.last().is_some_and(|mark| mark.key.is_some());
        let is_narrowed = self.hidden + self.filtered > 0;
        is_keyed && !is_narrowed && self.limit.is_some_and(|limit| self.matched > self.before + limit as u64)
    }

    /// Bytes of the matching rows.
    pub(crate) fn matched_bytes(&self) -> u64 {
        self.matched_bytes
    }

    /// The account. `total` is what the handler says where it did not hand over every row.
    pub(crate) fn finish(&self, total: Option<u64>) -> Result<Counts, Stale> {
        match self.resume {
            Some(Resume::Key { .. }) => return Err(Stale::KeyGone),
            Some(Resume::Position { fingerprint, .. }) if self.fingerprint() != fingerprint => {
                return Err(Stale::Changed);
            }
            _ => {}
        }
        let before = self.skipped + self.before;
        let kept = self.kept as u64;
        let behind = self.matched - self.before - kept;
        let is_complete = self.skipped == 0 && !self.is_filtered_by_handler;
        let known = match total {
            Some(total) => Some(total.max(self.skipped + self.raw)),
            None => is_complete.then_some(self.raw),
        };
        let after = known.map(|known| known - self.hidden - self.filtered - before - kept);
        Ok(Counts {
            total: known,
            hidden: self.hidden,
            filtered: self.filtered,
            before,
            kept,
            after,
            has_more: after.unwrap_or(behind) > 0,
        })
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint.as_ref().map_or(0, |fingerprint| fingerprint.digest())
    }

    /// Where the page after the first `delivered` kept rows begins. None where nothing was delivered.
    pub(crate) fn place_behind(&self, delivered: usize) -> Option<Place> {
        let mark = self.marks.get(delivered.checked_sub(1)?)?;
        Some(match &mark.key {
            Some(key) => Place::Key { key: key.clone(), keys: mark.keys, sequence: mark.sequence },
            None => Place::Position { fingerprint: self.fingerprint() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(rows: &[&str], limit: usize, key: bool, after: Option<&Cursor>) -> (Vec<String>, Window) {
        let key = key.then(|| Path::new("id").unwrap());
        let mut window = Window::new(Some(limit), key, after);
        let narrow = Narrow::default();
        let kept = rows.iter().filter(|row| window.admit(row.as_bytes(), &narrow)).map(|row| (*row).to_owned()).collect();
        (kept, window)
    }

    fn next(window: &Window, delivered: usize) -> Cursor {
        let place = window.place_behind(delivered).unwrap();
        Cursor { place, before: window.before + delivered as u64, carried: None }
    }

    const ROWS: [&str; 5] = [r#"{"id":1}"#, r#"{"id":2}"#, r#"{"id":3}"#, r#"{"id":4}"#, r#"{"id":5}"#];

    #[test]
    fn a_keyed_page_resumes_behind_its_row_when_others_come_and_go() {
        let (_, window) = pass(&ROWS, 2, true, None);
        let cursor = next(&window, 2);
        let grown = [ROWS.as_slice(), &[r#"{"id":6}"#]].concat();
        let (kept, window) = pass(&grown, 2, true, Some(&cursor));
        assert_eq!(kept, [ROWS[2], ROWS[3]]);
        assert_eq!(window.finish(None).unwrap().after, Some(2));
    }

    #[test]
    fn rows_in_another_order_or_without_the_key_are_stale() {
        let (_, window) = pass(&ROWS, 3, true, None);
        let cursor = next(&window, 3);
        let shuffled = [ROWS[3], ROWS[1], ROWS[0], ROWS[2], ROWS[4]];
        assert_eq!(pass(&shuffled, 3, true, Some(&cursor)).1.finish(None), Err(Stale::KeyGone));
        assert_eq!(pass(&ROWS[..2], 3, true, Some(&cursor)).1.finish(None), Err(Stale::KeyGone));
    }

    #[test]
    fn the_same_key_twice_is_told_apart_by_what_came_before() {
        let rows = [r#"{"id":1}"#, r#"{"id":2,"n":1}"#, r#"{"id":3}"#, r#"{"id":2,"n":2}"#, r#"{"id":4}"#];
        let (_, window) = pass(&rows, 4, true, None);
        let (kept, _) = pass(&rows, 4, true, Some(&next(&window, 4)));
        assert_eq!(kept, [rows[4]]);
    }

    #[test]
    fn an_unkeyed_page_is_stale_once_anything_has_changed() {
        let (_, window) = pass(&ROWS, 2, false, None);
        let cursor = next(&window, 2);
        let (kept, window) = pass(&ROWS, 2, false, Some(&cursor));
        assert_eq!(kept, [ROWS[2], ROWS[3]]);
        assert!(window.finish(None).is_ok());
        assert_eq!(pass(&ROWS[..4], 2, false, Some(&cursor)).1.finish(None), Err(Stale::Changed));
    }

    #[test]
    fn exactly_a_page_has_no_next() {
        let (kept, window) = pass(&ROWS, 5, true, None);
        assert_eq!(kept.len(), 5);
        assert!(!window.finish(None).unwrap().has_more);
    }

    #[test]
    fn a_handler_that_starts_behind_the_cursor_has_an_unknown_total_unless_it_says() {
        let (_, window) = pass(&ROWS, 2, true, None);
        let cursor = next(&window, 2);
        for (total, after) in [(None, None), (Some(9), Some(5))] {
            let mut window = Window::new(Some(2), Some(Path::new("id").unwrap()), Some(&cursor));
            window.starts_behind(&cursor);
            for row in &ROWS[2..] {
                window.admit(row.as_bytes(), &Narrow::default());
            }
            let counts = window.finish(total).unwrap();
            assert_eq!((counts.total, counts.before, counts.kept, counts.after), (total, 2, 2, after));
            assert!(counts.has_more);
        }
    }
}
