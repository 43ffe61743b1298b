//! The page stage: which of the matching rows are delivered, and where the next page begins.
//!
//! Owns: the window that slides over the rows as they come, in one pass, and the counts of the account. Rows before and
//! behind the page are counted and forgotten.

use std::collections::HashSet;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::cursor::{Cursor, KeyMark, MAX_INLINE_KEY, Place};
use super::keep::KeptCounts;
use super::narrow::{Narrow, Verdict};
use super::select::Path;

/// How many keys up to the last row delivered a cursor remembers. One would find the row; the others tell whether the
/// rows still come in the order in which they were handed out.
const CONTEXT_KEYS: usize = 8;

/// How many rows are told apart by key: 16 MiB of hashes. Behind them a cursor falls back to a position.
pub(super) const MAX_KEYS_SEEN: usize = 1 << 20;

/// What a delivered row leaves behind for the cursor.
#[derive(Debug, Clone)]
struct Mark {
    /// The key; none where the row has none, or where its key and those before it have come before.
    key: Option<KeyMark>,
    keys: u8,
    sequence: u64,
}

/// The account of the rows, once all have passed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) total: Option<u64>,
    /// Rows after narrowing.
    pub(crate) matched: Option<u64>,
    pub(crate) hidden: u64,
    pub(crate) filtered: u64,
    pub(crate) before: u64,
    pub(crate) kept: u64,
    pub(crate) after: Option<u64>,
    /// Whether there are, or may be, matching rows behind the page.
    pub(crate) has_more: bool,
    /// Rows that the handler says there are, and that no call gets: it came to its end without them. They are in none of
    /// the counts above.
    pub(crate) out_of_reach: u64,
}

/// The rows do not make a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPage {
    /// The row behind which the page begins is gone, or the rows come in another order.
    KeyGone,
    /// The rows have changed.
    Changed,
    /// The handler says that it starts behind the cursor, and handed over the row of the cursor.
    StartsBefore,
    /// The handler limited its rows in a way in which the page after this one cannot be reached.
    CutShort,
}

/// A window over the rows of one answer.
pub(crate) struct Window {
    limit: Option<usize>,
    key: Option<Path>,
    resume: Option<Resume>,
    marks: Vec<Mark>,
    ring: [u64; CONTEXT_KEYS],
    /// Hashes of the rings at the rows before the end of the page: which keys are no way back to their row.
    seen: HashSet<u64>,
    raw: u64,
    hidden: u64,
    filtered: u64,
    matched: u64,
    matched_bytes: u64,
    before: u64,
    kept: u64,
    /// Matching rows that the handler skipped because it starts behind the cursor itself, and the hash of the cursor's key.
    skipped: u64,
    skipped_key: Option<u64>,
    starts_before: bool,
    /// How many rows the handler hands over at most, where it limits them itself.
    handler_limit: Option<u64>,
    is_filtered_by_handler: bool,
    /// Whether the handler was told that it may stop.
    is_stopped: bool,
    is_continuation: bool,
    /// Of all rows so far, as long as a cursor may need it.
    fingerprint: Option<Box<Xxh3>>,
    /// The account of the whole, where the rows are those of a kept result.
    of_kept: Option<KeptCounts>,
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
            Place::Position { fingerprint } => Resume::Position {
                before: cursor.before,
                fingerprint: *fingerprint,
            },
            Place::Key {
                key,
                keys,
                sequence,
            } => Resume::Key {
                hash: key.hash(),
                keys: *keys,
                sequence: *sequence,
            },
            // A place in a kept result leads nowhere in what a plugin hands over: no answer has this fingerprint.
            Place::Kept { .. } => Resume::Position {
                before: cursor.before,
                fingerprint: 0,
            },
        });
        Self {
            limit,
            key,
            resume,
            marks: Vec::new(),
            ring: [0; CONTEXT_KEYS],
            seen: HashSet::new(),
            raw: 0,
            hidden: 0,
            filtered: 0,
            matched: 0,
            matched_bytes: 0,
            before: 0,
            kept: 0,
            skipped: 0,
            skipped_key: None,
            starts_before: false,
            handler_limit: None,
            is_filtered_by_handler: false,
            is_stopped: false,
            is_continuation: after.is_some(),
            fingerprint: limit.map(|_| Box::new(Xxh3::new())),
            of_kept: None,
        }
    }

    /// A window over the rows of a kept result behind the first `before` of them.
    pub(crate) fn of_kept(limit: usize, before: u64, counts: KeptCounts) -> Self {
        Self {
            skipped: before,
            fingerprint: None,
            of_kept: Some(counts),
            ..Self::new(Some(limit), None, None)
        }
    }

    /// Whether the rows are those of a kept result.
    pub(crate) fn is_of_kept(&self) -> bool {
        self.of_kept.is_some()
    }

    /// Whether the page has all its rows.
    pub(crate) fn has_page(&self) -> bool {
        self.limit.is_some_and(|limit| self.kept >= limit as u64)
    }

    /// Whether every row of the answer came in, from its first to its last, so that those that matched are the complete
    /// result.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_continuation && !self.is_cut_short()
    }

    /// Whether rows behind the page were never handed over: the handler was told to stop, or gave one page.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_stopped || self.handler_limit == Some(self.raw)
    }

    /// The handler begins behind the cursor itself: the next row is the first of the page.
    pub(crate) fn starts_behind(&mut self, cursor: &Cursor) {
        self.resume = None;
        self.skipped = cursor.before;
        self.skipped_key = match &cursor.place {
            Place::Key { key, .. } => Some(key.hash()),
            Place::Position { .. } | Place::Kept { .. } => None,
        };
    }

    /// The handler applies the filters itself: the rows are those that match.
    pub(crate) fn is_filtered_by_handler(&mut self) {
        self.is_filtered_by_handler = true;
    }

    /// The handler hands over at most so many rows.
    pub(crate) fn is_limited_by_handler(&mut self, rows: u64) {
        self.handler_limit = Some(rows);
    }

    /// The handler was told that it may stop.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
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
        let is_full = self.limit.is_some_and(|limit| self.kept >= limit as u64);
        let key = if self.limit.is_some() && !is_full {
            self.key.as_ref().and_then(|path| path.first(row))
        } else {
            None
        };
        let is_new = self.note_key(key, is_full);
        let is_before = match self.resume {
            None => false,
            Some(Resume::Position { before, .. }) => self.matched <= before,
            Some(Resume::Key {
                hash,
                keys,
                sequence,
            }) => {
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
        if is_full {
            return false;
        }
        self.kept += 1;
        if let Some(limit) = self.limit {
            let keys = self.raw.min(CONTEXT_KEYS as u64) as u8;
            let sequence = self.sequence(keys);
            let key = key.filter(|_| is_new).map(|key| match key.len() {
                0..=MAX_INLINE_KEY => KeyMark::Text(key.to_vec()),
                _ => KeyMark::Hash(xxh3_64(key)),
            });
            self.marks.push(Mark {
                key,
                keys,
                sequence,
            });
            // Every way on is a key: no cursor of this page needs what the rows behind it add up to.
            if self.kept == limit as u64
                && self.resume.is_none()
                && self.marks.iter().all(|mark| mark.key.is_some())
            {
                self.fingerprint = None;
            }
        }
        true
    }

    /// Takes note of a row's key; true where the key with those before it is a way back to the row.
    ///
    /// The ring holds the keys of all rows, narrowed away or not: a row that is hidden between two pages does not make a
    /// cursor stale.
    fn note_key(&mut self, key: Option<&[u8]>, is_full: bool) -> bool {
        if self.limit.is_none() || self.key.is_none() || is_full {
            return false;
        }
        let hash = key.map(xxh3_64);
        self.ring.rotate_left(1);
        self.ring[CONTEXT_KEYS - 1] = hash.unwrap_or_default();
        if hash.is_some() && hash == self.skipped_key {
            self.starts_before = true;
        }
        hash.is_some()
            && self.seen.len() < MAX_KEYS_SEEN
            && self.seen.insert(self.sequence(CONTEXT_KEYS as u8))
    }

    /// The hash of the last `keys` keys.
    fn sequence(&self, keys: u8) -> u64 {
        let mut bytes = [0; CONTEXT_KEYS * 8];
        for (hash, bytes) in self.ring.iter().zip(bytes.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&hash.to_le_bytes());
        }
        xxh3_64(&bytes[(CONTEXT_KEYS - usize::from(keys).min(CONTEXT_KEYS)) * 8..])
    }

    /// Whether a handler that knows its total may stop: the page is full, one row behind it has been seen, every row can
    /// be found again by its key, and nothing narrows, so that the rows that were not handed over are rows after the page.
    pub(crate) fn is_full(&self, narrow: &Narrow) -> bool {
        narrow.is_empty()
            && !self.is_filtered_by_handler
            && self
                .limit
                .is_some_and(|limit| self.matched > self.before + limit as u64)
            && self.marks.iter().all(|mark| mark.key.is_some())
    }

    /// Matching rows that came in.
    pub(crate) fn matched(&self) -> u64 {
        self.matched
    }

    /// Bytes of the matching rows.
    pub(crate) fn matched_bytes(&self) -> u64 {
        self.matched_bytes
    }

    /// The account. `total` is what the handler says where it did not hand over every row.
    pub(crate) fn finish(&self, total: Option<u64>, narrow: &Narrow) -> Result<Counts, NoPage> {
        if let Some(whole) = self.of_kept {
            let after = whole.matched.saturating_sub(self.skipped + self.kept);
            return Ok(Counts {
                total: whole.total,
                matched: Some(whole.matched),
                hidden: whole.hidden,
                filtered: whole.filtered,
                before: self.skipped,
                kept: self.kept,
                after: Some(after),
                has_more: after > 0,
                // What is kept was handed over.
                out_of_reach: 0,
            });
        }
        match self.resume {
            Some(Resume::Key { .. }) => return Err(NoPage::KeyGone),
            Some(Resume::Position { fingerprint, .. }) if self.fingerprint() != fingerprint => {
                return Err(NoPage::Changed);
            }
            _ => {}
        }
        if self.starts_before {
            return Err(NoPage::StartsBefore);
        }
        let is_at_start = self.skipped_key.is_none();
        let before = self.skipped + self.before;
        let behind = self.matched - self.before - self.kept;
        // Whether every row behind the start was handed over, as far as the handler says. One that hands over more than it
        // says it would has not limited anything.
        let is_cut = self.handler_limit == Some(self.raw);
        let is_complete = !self.is_cut_short();
        if is_cut
            && behind == 0
            && self.limit.is_some()
            && (self.kept == 0 || self.is_continuation && is_at_start)
        {
            return Err(NoPage::CutShort);
        }
        let seen = self.skipped + self.raw;
        // A handler that could hand over every row, and claims more than it did, would do the same in every further call.
        // One that pages or filters by itself has the others still, and those of one that starts behind the cursor may lie
        // before it.
        let is_end = is_complete && self.limit.is_some() && !self.is_filtered_by_handler;
        let out_of_reach = total
            .filter(|_| is_end && self.skipped == 0)
            .map_or(0, |total| total.saturating_sub(seen));
        let total = match total {
            Some(total) => Some(total.max(seen) - out_of_reach),
            None => {
                (is_complete && is_at_start && !self.is_filtered_by_handler).then_some(self.raw)
            }
        };
        let mut filtered = self.filtered;
        // Where the rows that were not handed over belong: behind the page where nothing narrows, among the filtered
        // ones where only the handler filters. Otherwise they cannot be told apart.
        let after = match total.map(|total| total - seen) {
            // What a handler filtered before is not known, but those that match are all here.
            None => (is_complete && is_at_start && self.limit.is_some()).then_some(behind),
            Some(0) => Some(behind),
            Some(unseen) if narrow.is_empty() && !self.is_filtered_by_handler && !is_end => {
                Some(behind + unseen)
            }
            Some(unseen) if is_complete && is_at_start && self.is_filtered_by_handler => {
                filtered += unseen;
                Some(behind)
            }
            Some(_) => None,
        };
        Ok(Counts {
            total,
            matched: after.map(|after| before + self.kept + after),
            hidden: self.hidden,
            filtered,
            before,
            kept: self.kept,
            after,
            has_more: after.map_or(behind > 0 || !is_complete, |after| after > 0),
            out_of_reach,
        })
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
            .as_ref()
            .map_or(0, |fingerprint| fingerprint.digest())
    }

    /// Where the page after the first `delivered` kept rows begins. None where nothing was delivered.
    pub(crate) fn place_behind(&self, delivered: usize) -> Option<Place> {
        let mark = self.marks.get(delivered.checked_sub(1)?)?;
        Some(match &mark.key {
            Some(key) => Place::Key {
                key: key.clone(),
                keys: mark.keys,
                sequence: mark.sequence,
            },
            None => Place::Position {
                fingerprint: self.fingerprint(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(
        rows: &[&str],
        limit: usize,
        key: bool,
        after: Option<&Cursor>,
    ) -> (Vec<String>, Window) {
        let key = key.then(|| Path::new("id").unwrap());
        let mut window = Window::new(Some(limit), key, after);
        let narrow = Narrow::default();
        let kept = rows
            .iter()
            .filter(|row| window.admit(row.as_bytes(), &narrow))
            .map(|row| (*row).to_owned())
            .collect();
        (kept, window)
    }

    fn next(window: &Window, delivered: usize) -> Cursor {
        let place = window.place_behind(delivered).unwrap();
        Cursor {
            place,
            before: window.before + delivered as u64,
            carried: None,
        }
    }

    const ROWS: [&str; 5] = [
        r#"{"id":1}"#,
        r#"{"id":2}"#,
        r#"{"id":3}"#,
        r#"{"id":4}"#,
        r#"{"id":5}"#,
    ];

    #[test]
    fn a_keyed_page_resumes_behind_its_row_when_others_come_and_go() {
        let (_, window) = pass(&ROWS, 2, true, None);
        let cursor = next(&window, 2);
        let grown = [ROWS.as_slice(), &[r#"{"id":6}"#]].concat();
        let (kept, window) = pass(&grown, 2, true, Some(&cursor));
        assert_eq!(kept, [ROWS[2], ROWS[3]]);
        assert_eq!(
            window.finish(None, &Narrow::default()).unwrap().after,
            Some(2)
        );
    }

    #[test]
    fn rows_in_another_order_or_without_the_key_are_stale() {
        let (_, window) = pass(&ROWS, 3, true, None);
        let cursor = next(&window, 3);
        let shuffled = [ROWS[3], ROWS[1], ROWS[0], ROWS[2], ROWS[4]];
        assert_eq!(
            pass(&shuffled, 3, true, Some(&cursor))
                .1
                .finish(None, &Narrow::default()),
            Err(NoPage::KeyGone)
        );
        assert_eq!(
            pass(&ROWS[..2], 3, true, Some(&cursor))
                .1
                .finish(None, &Narrow::default()),
            Err(NoPage::KeyGone)
        );
    }

    #[test]
    fn the_same_key_twice_is_told_apart_by_what_came_before() {
        let rows = [
            r#"{"id":1}"#,
            r#"{"id":2,"n":1}"#,
            r#"{"id":3}"#,
            r#"{"id":2,"n":2}"#,
            r#"{"id":4}"#,
        ];
        let (_, window) = pass(&rows, 4, true, None);
        let (kept, _) = pass(&rows, 4, true, Some(&next(&window, 4)));
        assert_eq!(kept, [rows[4]]);
    }

    #[test]
    fn keys_that_repeat_in_a_pattern_do_not_lead_back_to_an_earlier_row() {
        // Case D9: every context of eight keys comes again and again.
        let rows: Vec<String> = (0..60)
            .map(|row| format!("{{\"id\":{},\"row\":{row}}}", row % 3))
            .collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let (mut walked, window) = pass(&rows, 7, true, None);
        let mut cursor = next(&window, 7);
        for _ in 0..rows.len() {
            let (kept, window) = pass(&rows, 7, true, Some(&cursor));
            let counts = window.finish(None, &Narrow::default()).unwrap();
            assert_eq!(counts.before, walked.len() as u64);
            walked.extend(kept.iter().cloned());
            if !counts.has_more {
                break;
            }
            cursor = next(&window, kept.len());
        }
        assert_eq!(walked, rows);
    }

    #[test]
    fn an_unkeyed_page_is_stale_once_anything_has_changed() {
        let (_, window) = pass(&ROWS, 2, false, None);
        let cursor = next(&window, 2);
        let (kept, window) = pass(&ROWS, 2, false, Some(&cursor));
        assert_eq!(kept, [ROWS[2], ROWS[3]]);
        assert!(window.finish(None, &Narrow::default()).is_ok());
        assert_eq!(
            pass(&ROWS[..4], 2, false, Some(&cursor))
                .1
                .finish(None, &Narrow::default()),
            Err(NoPage::Changed)
        );
    }

    #[test]
    fn exactly_a_page_has_no_next() {
        let (kept, window) = pass(&ROWS, 5, true, None);
        assert_eq!(kept.len(), 5);
        assert!(!window.finish(None, &Narrow::default()).unwrap().has_more);
    }

    #[test]
    fn a_handler_that_starts_behind_the_cursor_has_an_unknown_total_unless_it_says() {
        let (_, window) = pass(&ROWS, 2, true, None);
        let cursor = next(&window, 2);
        for (total, after) in [(None, None), (Some(9), None), (Some(5), Some(1))] {
            let mut window = Window::new(Some(2), Some(Path::new("id").unwrap()), Some(&cursor));
            window.starts_behind(&cursor);
            for row in &ROWS[2..] {
                window.admit(row.as_bytes(), &Narrow::default());
            }
            let counts = window.finish(total, &Narrow::default()).unwrap();
            assert_eq!(
                (counts.total, counts.before, counts.kept, counts.after),
                (total, 2, 2, after)
            );
            assert!(counts.has_more);
        }
    }

    fn limited(
        rows: &[&str],
        limit: usize,
        handler_limit: u64,
        after: Option<&Cursor>,
        total: Option<u64>,
    ) -> Result<Counts, NoPage> {
        let mut window = Window::new(Some(limit), Some(Path::new("id").unwrap()), after);
        window.is_limited_by_handler(handler_limit);
        if let Some(cursor) = after {
            window.starts_behind(cursor);
        }
        for row in rows {
            window.admit(row.as_bytes(), &Narrow::default());
        }
        window.finish(total, &Narrow::default())
    }

    #[test]
    fn a_page_that_the_handler_limits_is_not_taken_for_everything() {
        // Cases D1 and D11: 2 of 2, or 2 of 980?
        let counts = limited(&ROWS[..2], 2, 2, None, None).unwrap();
        assert_eq!(
            (counts.total, counts.matched, counts.after, counts.has_more),
            (None, None, None, true)
        );
        // One row more than asked for would have come, had there been one.
        let counts = limited(&ROWS[..2], 2, 3, None, None).unwrap();
        assert_eq!(
            (counts.total, counts.after, counts.has_more),
            (Some(2), Some(0), false)
        );
        // Case A19: the limit is ignored, and so everything is here.
        let counts = limited(&ROWS, 2, 2, None, None).unwrap();
        assert_eq!(
            (counts.total, counts.kept, counts.after, counts.has_more),
            (Some(5), 2, Some(3), true)
        );
        let counts = limited(&ROWS[..3], 2, 3, None, Some(980)).unwrap();
        assert_eq!(
            (counts.total, counts.matched, counts.after, counts.has_more),
            (Some(980), Some(980), Some(978), true)
        );
    }

    #[test]
    fn a_handler_that_says_it_starts_behind_the_cursor_and_does_not_is_found_out() {
        let (_, window) = pass(&ROWS, 2, true, None);
        let cursor = next(&window, 2);
        assert_eq!(
            limited(&ROWS[..3], 2, 3, Some(&cursor), None),
            Err(NoPage::StartsBefore)
        );
        assert!(limited(&ROWS[2..5], 2, 3, Some(&cursor), None).is_ok());
    }

    #[test]
    fn a_handler_that_limits_its_rows_and_starts_over_leaves_no_gap_in_silence() {
        let (_, window) = pass(&ROWS, 2, true, None);
        let mut again = Window::new(
            Some(2),
            Some(Path::new("id").unwrap()),
            Some(&next(&window, 2)),
        );
        again.is_limited_by_handler(3);
        for row in &ROWS[..3] {
            again.admit(row.as_bytes(), &Narrow::default());
        }
        assert_eq!(
            again.finish(None, &Narrow::default()),
            Err(NoPage::CutShort)
        );
    }

    #[test]
    fn rows_that_are_claimed_and_not_handed_over_are_in_no_count() {
        // Whether the handler begins at the start, where it hands over fewer than it was asked for, or behind a cursor.
        let (_, window) = pass(&ROWS[..2], 2, true, None);
        let all = window.finish(Some(10), &Narrow::default()).unwrap();
        let few = limited(&ROWS[..2], 2, 3, None, Some(10)).unwrap();
        for counts in [all, few] {
            assert_eq!(
                (counts.total, counts.kept, counts.after, counts.has_more),
                (Some(2), 2, Some(0), false)
            );
            assert_eq!((counts.matched, counts.out_of_reach), (Some(2), 8));
        }
        let behind = limited(&ROWS[2..4], 2, 3, Some(&next(&window, 2)), Some(10)).unwrap();
        assert_eq!(
            (behind.total, behind.before, behind.after, behind.has_more),
            (Some(10), 2, None, false)
        );
        // A handler that pages by itself has the others still.
        let mut pages_itself = Window::new(None, None, None);
        for row in &ROWS[..2] {
            pages_itself.admit(row.as_bytes(), &Narrow::default());
        }
        let counts = pages_itself.finish(Some(10), &Narrow::default()).unwrap();
        assert_eq!(
            (counts.total, counts.after, counts.out_of_reach),
            (Some(10), Some(8), 0)
        );
    }

    #[test]
    fn rows_that_the_handler_filtered_are_counted_from_its_total() {
        let mut window = Window::new(Some(2), None, None);
        window.is_filtered_by_handler();
        for row in &ROWS[..3] {
            window.admit(row.as_bytes(), &Narrow::default());
        }
        let counts = window.finish(Some(40), &Narrow::default()).unwrap();
        assert_eq!(
            (counts.total, counts.matched, counts.filtered, counts.after),
            (Some(40), Some(3), 37, Some(1))
        );
        // Without a total nobody knows how many it passed over; those that match are all here.
        let counts = window.finish(None, &Narrow::default()).unwrap();
        assert_eq!(
            (counts.total, counts.matched, counts.after, counts.has_more),
            (None, Some(3), Some(1), true)
        );
    }
}
