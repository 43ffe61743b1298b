//! Takes an answer in, while the guest still holds it.
//!
//! A document or a push of rows is read where it lies in the guest's memory, in one pass; only what is delivered is
//! copied. Owns: the narrowing and paging of what comes, what is kept of it, and what was wrong with it.

use std::ops::Range;

use super::json;
use super::narrow::Narrow;
use super::page::Window;
use super::policy::{Policy, Rows};
use super::rows::{self, Found};
use super::ask::Ask;
use crate::contract::{Attachment, Demand, PushDown};

/// How many bytes one answer may hand over as a document, and how many of its pushed rows may be kept: 64 MiB, half of
/// a guest's default memory.
pub const DEFAULT_INTAKE_BYTES: usize = 64 << 20;

/// What kind of thing an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing was handed over.
    Empty,
    /// Rows in an array of a JSON document.
    Array,
    /// Rows that were pushed.
    Pushed,
    /// Lines of text.
    Lines,
    /// One piece of JSON.
    Json,
    /// One piece of whatever the handler says.
    Text,
}

/// What is kept of an answer. All ranges are into `bytes`.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
    /// The rows of the page.
    pub(crate) rows: Vec<Range<usize>>,
    /// The document up to and with the opening bracket of its rows.
    pub(crate) prefix: Range<usize>,
    /// The document from the closing bracket of its rows.
    pub(crate) suffix: Range<usize>,
    /// Whether `bytes` is the handler's document, whole.
    pub(crate) is_whole: bool,
}

impl Kept {
    fn empty() -> Self {
        Self { kind: Kind::Empty, bytes: Vec::new(), rows: Vec::new(), prefix: 0..0, suffix: 0..0, is_whole: false }
    }
}

/// The answer of one call, as far as it has come.
pub struct Intake {
    pub(crate) kept: Kept,
    pub(crate) window: Window,
    pub(crate) attachments: Vec<Attachment>,
    /// Rows and bytes of rows that came in.
    pub(crate) rows_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) total: Option<u64>,
    /// What makes the answer unusable.
    pub(crate) invalid: Option<String>,
    narrow: Narrow,
    ask_cursor: Option<super::cursor::Cursor>,
    rows: Rows,
    is_validated: bool,
    max_bytes: usize,
    has_begun: bool,
}

impl Intake {
    /// An intake for one call. `max_bytes` bounds what it keeps.
    pub fn new(policy: &Policy, ask: &Ask, max_bytes: usize) -> Self {
        let limit = policy.is_paged().then(|| ask.limit.unwrap_or(policy.page.default_limit) as usize);
        let is_live_only = ask.is_live_only.unwrap_or(policy.horizon.is_some());
        let mut window = Window::new(limit, policy.key.clone(), ask.cursor.as_ref());
        if policy.applies.contains(PushDown::AFTER)
            && let Some(cursor) = &ask.cursor
        {
            window.starts_behind(cursor);
        }
        let mut narrow = Narrow::new(policy, &ask.arguments, is_live_only);
        if policy.applies.contains(PushDown::FILTERS) {
            narrow.drop_filters();
            window.is_filtered_by_handler();
        }
        Self {
            kept: Kept::empty(),
            window,
            attachments: Vec::new(),
            rows_in: 0,
            bytes_in: 0,
            total: None,
            invalid: None,
            narrow,
            ask_cursor: ask.cursor.clone(),
            rows: policy.rows.clone(),
            is_validated: true,
            max_bytes,
            has_begun: false,
        }
    }

    /// Takes a whole document. The first one counts; a second one, or one beside pushed rows, makes the answer invalid.
    pub fn document(&mut self, document: &[u8]) {
        if self.has_begun {
            return self.fail("the plugin handed over a document after a document or rows; expected one of the two, once");
        }
        self.has_begun = true;
        self.bytes_in = document.len() as u64;
        if document.len() > self.max_bytes {
            let (found, limit) = (document.len(), self.max_bytes);
            return self.fail(format!("the plugin handed over a document of {found} bytes; the limit is {limit} bytes"));
        }
        if let Err(error) = std::str::from_utf8(document) {
            return self.fail(format!("the answer is not UTF-8: byte {} is 0x{:02x}", error.valid_up_to(), document[error.valid_up_to()]));
        }
        match rows::find(document, &self.rows) {
            Err(error) => self.fail(format!("the answer does not have the declared rows: {error}")),
            Ok(Found::Array { open, end, rows }) => {
                let kept = self.admit_all(document, rows);
                self.keep_document(document, Kind::Array, &kept, 0..open + 1, end - 1..document.len());
            }
            Ok(Found::Lines(rows)) => {
                self.is_validated = false;
                let kept = self.admit_all(document, rows);
                self.keep_document(document, Kind::Lines, &kept, 0..0, document.len()..document.len());
            }
            Ok(Found::Whole { is_json }) => {
                self.is_validated = is_json;
                let kind = if is_json { Kind::Json } else { Kind::Text };
                self.rows_in = 1;
                let whole = 0..document.len();
                self.kept = Kept { kind, bytes: document.to_vec(), rows: vec![whole], prefix: 0..0, suffix: 0..0, is_whole: true };
                if is_json {
                    self.check(0..document.len(), "");
                }
            }
        }
    }

    fn admit_all(&mut self, document: &[u8], mut rows: Vec<Range<usize>>) -> (Vec<Range<usize>>, bool) {
        let all = rows.len();
        self.rows_in = all as u64;
        rows.retain(|row| self.window.admit(&document[row.clone()], &self.narrow));
        let is_all = rows.len() == all;
        (rows, is_all)
    }

    /// Copies what is delivered of a document: all of it where every row is, otherwise the rows and what is around them.
    fn keep_document(
        &mut self,
        document: &[u8],
        kind: Kind,
        (rows, is_all): &(Vec<Range<usize>>, bool),
        prefix: Range<usize>,
        suffix: Range<usize>,
    ) {
        self.kept = if *is_all {
            Kept { kind, bytes: document.to_vec(), rows: rows.clone(), prefix, suffix, is_whole: true }
        } else {
            let mut bytes = Vec::with_capacity(prefix.len() + suffix.len() + rows.iter().map(Range::len).sum::<usize>());
            let mut copy = |range: Range<usize>| {
                let start = bytes.len();
                bytes.extend_from_slice(&document[range]);
                start..bytes.len()
            };
            let prefix = copy(prefix);
            let rows = rows.iter().cloned().map(&mut copy).collect();
            let suffix = copy(suffix);
            Kept { kind, rows, prefix, suffix, bytes, is_whole: false }
        };
        if self.is_validated {
            self.check_envelope();
            for index in 0..self.kept.rows.len() {
                let place = format!("row {index}");
                self.check(self.kept.rows[index].clone(), &place);
            }
        }
    }

    /// What is around the rows must be JSON with an empty array in their place.
    fn check_envelope(&mut self) {
        let envelope = [&self.kept.bytes[self.kept.prefix.clone()], &self.kept.bytes[self.kept.suffix.clone()]].concat();
        if let Err(invalid) = json::validate(&envelope) {
            self.fail(format!("the answer is not valid JSON: {}, beside its rows, at byte {}", invalid.what, invalid.at));
        }
    }

    /// What is delivered must be JSON.
    fn check(&mut self, range: Range<usize>, place: &str) {
        let text = &self.kept.bytes[range];
        if let Err(invalid) = json::validate(text) {
            let path = json::path_at(text, invalid.at);
            let place = if place.is_empty() { path } else { format!("{place}, {path}") };
            self.fail(format!("the answer is not valid JSON: {} at {place} (byte {})", invalid.what, invalid.at));
        }
    }

    /// Takes whole rows, one JSON value a line.
    pub fn rows(&mut self, lines: &[u8]) -> Demand {
        if self.has_begun && self.kept.kind != Kind::Pushed {
            if self.invalid.is_none() {
                self.fail("the plugin pushed rows after a document; expected one of the two");
            }
            return Demand::Enough;
        }
        self.has_begun = true;
        self.kept.kind = Kind::Pushed;
        for line in lines.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            self.rows_in += 1;
            self.bytes_in += line.len() as u64;
            if !self.window.admit(line, &self.narrow) {
                continue;
            }
            let start = self.kept.bytes.len();
            if start + line.len() > self.max_bytes {
                let limit = self.max_bytes;
                self.fail(format!("the rows of one answer have more than {limit} bytes"));
                return Demand::Enough;
            }
            self.kept.bytes.extend_from_slice(line);
            self.kept.rows.push(start..self.kept.bytes.len());
            let place = format!("row {}", self.rows_in - 1);
            if std::str::from_utf8(line).is_err() {
                self.fail(format!("the answer is not UTF-8: {place}"));
            } else {
                self.check(start..start + line.len(), &place);
            }
        }
        let is_settled = self.invalid.is_some() || self.total.is_some() && self.window.is_full();
        if is_settled { Demand::Enough } else { Demand::More }
    }

    /// The handler says how many rows there are.
    pub fn total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// The handler says what of the query it has applied.
    pub fn applied(&mut self, what: PushDown) {
        if what.contains(PushDown::AFTER)
            && let Some(cursor) = &self.ask_cursor
        {
            self.window.starts_behind(cursor);
        }
        if what.contains(PushDown::FILTERS) {
            self.narrow.drop_filters();
            self.window.is_filtered_by_handler();
        }
    }

    /// Takes content that is not text.
    pub fn attach(&mut self, attachment: Attachment) {
        self.attachments.push(attachment);
    }

    fn fail(&mut self, message: impl Into<String>) {
        if self.invalid.is_none() {
            self.invalid = Some(message.into());
        }
    }
}
