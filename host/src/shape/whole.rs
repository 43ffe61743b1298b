//! Taking in a whole answer, whatever page of it was asked for first: a handler is never told that it has said enough, and
//! one that hands over pages is asked for page after page until it has no more.
//!
//! Owns: where the pages of a handler go on, and what shows that they do not. A page that goes on behind a key has to say
//! that it begins there, and has no row of a page before it.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use super::ask::handed_on;
use super::intake::Intake;
use super::page::MAX_KEYS_SEEN;
use super::select::Path;
use crate::contract::PushDown;

/// What a handler that has returned is asked next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: all that it has is here.
    End,
    /// The page behind the row with this key, as JSON text.
    Behind(String),
    /// Everything at once, from the beginning: the last row has no key that can be handed on.
    AllAtOnce,
}

/// Pages of a handler, one behind the other.
#[derive(Debug)]
pub(super) struct Pages {
    key: Path,
    /// Rows that each is asked for.
    asked: u64,
    /// Rows of this one so far.
    rows: u64,
    /// Whether it is asked to begin behind a row.
    is_behind: bool,
    /// What the handler says that it has applied.
    applied: PushDown,
    /// Hashes of the keys of the pages before, and those of this one.
    before: HashSet<u64>,
    here: Vec<u64>,
    /// The key of the last row, where it has one.
    last: Option<Vec<u8>>,
}

impl Pages {
    pub(super) fn new(key: Path, asked: u32) -> Self {
        Self {
            key,
            asked: asked.into(),
            rows: 0,
            is_behind: false,
            applied: PushDown::empty(),
            before: HashSet::new(),
            here: Vec::new(),
            last: None,
        }
    }

    pub(super) fn applied(&mut self, what: PushDown) {
        self.applied |= what;
    }

    /// Takes note of the next row. The error says why its page is none.
    pub(super) fn note(&mut self, row: &[u8]) -> Result<(), &'static str> {
        if self.is_behind && !self.applied.contains(PushDown::AFTER) {
            return Err(
                "the plugin limited its rows and does not begin behind the last of them, so that those behind it are out of reach",
            );
        }
        self.rows += 1;
        let key = self.key.first(row);
        if let Some(key) = key {
            let hash = xxh3_64(key);
            if self.before.contains(&hash) {
                return Err(
                    "the plugin says that it starts behind the last row of the page before, and handed over a row of an earlier page again",
                );
            }
            self.here.push(hash);
        }
        self.last = key.map(<[u8]>::to_vec);
        Ok(())
    }

    /// The page is over. One that is not full, or that the handler has not limited, is the last.
    fn turn(&mut self) -> Next {
        if !self.applied.contains(PushDown::LIMIT) || self.rows != self.asked {
            return Next::End;
        }
        let Some(key) = self.last.take().as_deref().and_then(handed_on) else {
            return Next::AllAtOnce;
        };
        let room = MAX_KEYS_SEEN.saturating_sub(self.before.len());
        self.before.extend(self.here.drain(..).take(room));
        self.here.clear();
        (self.rows, self.is_behind, self.applied) = (0, true, PushDown::empty());
        Next::Behind(key)
    }
}

impl Intake {
    /// What the handler is asked next, once it has returned. Only an intake of a whole answer asks again.
    pub fn next_page(&mut self) -> Next {
        if self.invalid.is_some() || self.too_large.is_some() || self.has_no_room() {
            return Next::End;
        }
        let next = self.pages.as_mut().map_or(Next::End, Pages::turn);
        if matches!(next, Next::Behind(_)) {
            self.has_begun = false;
            self.applied(self.applies);
        }
        next
    }

    /// Whether a whole answer has become larger than what is kept of one.
    pub(super) fn has_no_room(&self) -> bool {
        let spool = self.spool.as_ref().filter(|_| self.takes_all);
        spool.is_some_and(|spool| spool.gave_up().is_some())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ask::{Ask, PushedDown};
    use super::super::behaviour::tool;
    use super::super::policy::{Policy, undeclared};
    use super::*;
    use crate::contract::{Demand, Shape};

    /// A collection by key, and its list asked for whole.
    fn collection() -> (Policy, Ask) {
        let tool = tool(Shape {
            key: Some("id".into()),
            ..undeclared()
        });
        let ask = tool.read(json!({"topic": "x", "limit": 3})).unwrap();
        let policy = tool.policy();
        let ask = ask.whole(&policy, true);
        (policy, ask)
    }

    /// What the host is asked for, page by page, by an adapter that has `count` rows and pages as it should, unless `change`
    /// does something else with the rows of a page.
    fn follow(count: u64, change: impl Fn(u64, Vec<u64>) -> Vec<u64>) -> (Vec<PushedDown>, Intake) {
        let (policy, mut ask) = collection();
        let mut intake = Intake::new(&policy, &ask, 1_000_000);
        let mut asked = Vec::new();
        loop {
            let wanted = ask.pushed_down(&policy);
            let first = wanted
                .after
                .as_ref()
                .map_or(1, |key| key.parse::<u64>().unwrap() + 1);
            let limit = u64::from(wanted.limit.unwrap());
            let rows: Vec<u64> = (first..=count).take(limit as usize).collect();
            intake.total(count);
            intake.applied(PushDown::LIMIT | PushDown::AFTER);
            let lines = change(asked.len() as u64, rows).into_iter();
            let lines: Vec<String> = lines.map(|id| format!("{{\"id\":{id}}}\n")).collect();
            intake.rows(lines.concat().as_bytes());
            asked.push(wanted);
            let next = intake.next_page();
            if next == Next::End {
                return (asked, intake);
            }
            ask = ask.going_on(&next);
        }
    }

    #[test]
    fn a_backend_is_asked_for_its_largest_pages_and_never_hears_enough() {
        let (asked, mut intake) = follow(250, |_, rows| rows);
        let asked: Vec<_> = asked
            .into_iter()
            .map(|page| (page.limit, page.after))
            .collect();
        // The largest page, and one row more, as for any page.
        let behind = |key: &str| (Some(101), Some(key.to_owned()));
        assert_eq!(asked, [(Some(101), None), behind("101"), behind("202")]);
        intake.close();
        assert_eq!((intake.invalid.as_ref(), intake.taken().2), (None, 250));
        // With as many rows as two pages have it takes an empty third one to see that there are no more.
        let (asked, intake) = follow(202, |_, rows| rows);
        assert_eq!((asked.len(), intake.taken().2), (3, 202));
    }

    #[test]
    fn an_adapter_that_does_not_go_on_is_invalid_and_is_not_asked_for_ever() {
        let (asked, intake) = follow(
            250,
            |page, rows| if page == 0 { rows } else { (1..=101).collect() },
        );
        assert_eq!(asked.len(), 2);
        assert!(
            intake
                .invalid
                .unwrap()
                .contains("handed over a row of an earlier page again")
        );
        // An adapter that has no end is left to the deadline and to the size of a result.
        let (asked, _) = follow(
            u64::MAX,
            |page, rows| if page < 50 { rows } else { Vec::new() },
        );
        assert_eq!(asked.len(), 51);
    }

    #[test]
    fn without_a_key_and_with_a_handler_everything_is_asked_for_at_once() {
        let keyless = tool(undeclared());
        let ask = keyless
            .read(json!({"topic": "x"}))
            .unwrap()
            .whole(&keyless.policy(), true);
        assert_eq!(ask.pushed_down(&keyless.policy()).limit, None);
        let (policy, ask) = collection();
        let handler = ask.clone().whole(&policy, false);
        assert_eq!(handler.pushed_down(&policy).limit, None);
        let again = ask
            .going_on(&Next::Behind("7".into()))
            .going_on(&Next::AllAtOnce);
        let pushed = again.pushed_down(&policy);
        assert_eq!((pushed.limit, pushed.after), (None, None));
    }

    #[test]
    fn a_handler_is_not_told_that_it_has_said_enough() {
        let (policy, ask) = collection();
        let lines: String = (0..10).map(|id| format!("{{\"id\":{id}}}\n")).collect();
        for (ask, demand) in [
            (ask.clone().whole(&policy, false), Demand::More),
            (
                tool(undeclared())
                    .read(json!({"topic": "x", "limit": 3}))
                    .unwrap(),
                Demand::Enough,
            ),
        ] {
            let mut intake = Intake::new(&policy, &ask, 1_000_000);
            intake.total(10);
            assert_eq!(intake.rows(lines.as_bytes()), demand);
        }
    }

    fn pages() -> Pages {
        let mut pages = Pages::new(Path::new("id").unwrap(), 2);
        pages.applied(PushDown::LIMIT);
        pages
    }

    fn note(pages: &mut Pages, ids: &[&str]) -> Result<(), &'static str> {
        ids.iter()
            .try_for_each(|id| pages.note(format!("{{\"id\":{id}}}").as_bytes()))
    }

    #[test]
    fn pages_go_on_behind_the_last_key_until_one_is_not_full() {
        let mut pages = pages();
        note(&mut pages, &["1", "\"b\""]).unwrap();
        assert_eq!(pages.turn(), Next::Behind("\"b\"".into()));
        pages.applied(PushDown::LIMIT | PushDown::AFTER);
        note(&mut pages, &["3"]).unwrap();
        assert_eq!(pages.turn(), Next::End);
    }

    #[test]
    fn a_page_that_was_not_limited_or_has_more_than_was_asked_for_is_the_last() {
        for (applied, ids) in [
            (PushDown::empty(), &["1", "2"][..]),
            (PushDown::LIMIT, &["1", "2", "3"]),
            (PushDown::LIMIT, &[]),
        ] {
            let mut pages = Pages::new(Path::new("id").unwrap(), 2);
            pages.applied(applied);
            note(&mut pages, ids).unwrap();
            assert_eq!(pages.turn(), Next::End, "{applied:?} {ids:?}");
        }
    }

    #[test]
    fn a_page_that_does_not_advance_repeats_or_is_unsorted_is_found_out() {
        let again = "the plugin says that it starts behind the last row of the page before, and handed over a row of an earlier page again";
        // The same page, its last row again, and rows in no order, of which one comes twice.
        for (first, second) in [
            (["1", "2"], ["1", "2"]),
            (["1", "2"], ["2", "3"]),
            (["5", "3"], ["4", "5"]),
        ] {
            let mut pages = pages();
            note(&mut pages, &first).unwrap();
            pages.turn();
            pages.applied(PushDown::LIMIT | PushDown::AFTER);
            assert_eq!(note(&mut pages, &second), Err(again));
        }
        let mut pages = pages();
        note(&mut pages, &["1", "2"]).unwrap();
        pages.turn();
        pages.applied(PushDown::LIMIT);
        assert_eq!(
            note(&mut pages, &["1"]),
            Err(
                "the plugin limited its rows and does not begin behind the last of them, so that those behind it are out of reach"
            )
        );
    }

    #[test]
    fn a_row_whose_key_cannot_be_handed_on_makes_it_ask_for_everything() {
        for last in ["{\"x\":1}", "{\"id\":1.50}"] {
            let mut pages = pages();
            note(&mut pages, &["1"]).unwrap();
            pages.note(last.as_bytes()).unwrap();
            assert_eq!(pages.turn(), Next::AllAtOnce, "{last}");
        }
    }
}
