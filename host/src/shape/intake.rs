//! Takes an answer in, while the guest still holds it.
//!
//! A document or a push of rows is read where it lies in the guest's memory, in one pass; only what is delivered is
//! copied. Owns: the narrowing and paging of what comes, what is kept of it, and what was wrong with it.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::ask::Ask;
use super::cells::CellPolicy;
use super::cursor::Cursor;
use super::json;
use super::keep::{Keep, NotKept};
use super::narrow::Narrow;
use super::page::Window;
use super::policy::{Policy, Rows};
use super::rows::{self, Found};
use super::select::Unseen;
use super::touched::Touched;
use super::whole::Pages;
use crate::contract::{Attachment, Demand, PushDown};
use crate::results::Spool;

/// How many bytes one answer may hand over as a document, how many of its pushed rows may be kept, and how many its
/// attachments may have: 64 MiB, half of a guest's default memory.
pub const DEFAULT_INTAKE_BYTES: usize = 64 << 20;

/// How many attachments one answer may have: as many as a page may have rows by default.
pub const MAX_ATTACHMENTS: usize = 100;

/// What stands around an attachment in a reply.
const ATTACHMENT_ENVELOPE_BYTES: usize = 64;

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
    /// Whether the page has more rows than these: so many that its reply would reach the cap, or the intake's own limit.
    pub(crate) is_short: bool,
}

impl Kept {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
            rows: Vec::new(),
            prefix: 0..0,
            suffix: 0..0,
            is_whole: false,
            is_short: false,
        }
    }

    /// Whether the answer consists of rows, and not of one piece or nothing.
    pub(crate) fn has_rows(&self) -> bool {
        matches!(self.kind, Kind::Array | Kind::Pushed | Kind::Lines)
    }

    /// Whether there are fields that a view can select: those of the rows, or of the one piece.
    pub(crate) fn has_fields(&self) -> bool {
        matches!(self.kind, Kind::Array | Kind::Pushed | Kind::Json)
    }

    /// A kept row.
    pub(crate) fn row(&self, index: usize) -> &[u8] {
        &self.bytes[self.rows[index].clone()]
    }
}

/// The answer of one call, as far as it has come.
pub struct Intake {
    pub(crate) kept: Kept,
    pub(crate) window: Window,
    pub(crate) narrow: Narrow,
    pub(crate) unseen: Unseen,
    pub(crate) attachments: Vec<Attachment>,
    /// How many were handed over, kept or not.
    attachment_count: usize,
    attachment_bytes: usize,
    /// Rows and bytes of rows that came in.
    pub(crate) rows_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) total: Option<u64>,
    /// What is withheld of the rows before anything else looks at them, and what of it came.
    cells: Arc<CellPolicy>,
    pub(crate) withheld: Touched,
    /// What was made smaller in each row of the page, once that was done.
    pub(super) sized: Option<Vec<Touched>>,
    /// What makes the answer unusable.
    pub(crate) invalid: Option<String>,
    /// Bytes of a document, or of attachments, that are more than an answer may have.
    pub(crate) too_large: Option<u64>,
    /// The cursor of the call, where a handler can be told to start behind it.
    cursor: Option<Cursor>,
    /// How many rows the handler is asked for, where it is asked for so many.
    asked_rows: Option<u64>,
    rows: Rows,
    declares_rows: bool,
    max_bytes: usize,
    /// Rows that no reply can hold: each takes a byte at least.
    max_rows: usize,
    pub(super) has_begun: bool,
    /// What the declaration says that the handler applies.
    pub(super) applies: PushDown,
    /// Whether every row is wanted, whatever page the caller asked for.
    pub(super) takes_all: bool,
    /// The pages that the handler hands over, where it is asked for one after the other.
    pub(super) pages: Option<Pages>,
    /// Every matching row, on the page or not, for keeping.
    pub(super) spool: Option<Spool>,
    /// Where each row of the page ends: in the spool, or in the kept result that it comes from.
    pub(super) ends: Vec<u64>,
    /// Rows before the first one that came in.
    pub(super) first_row: u64,
    /// What whoever made the answer says beside it.
    pub(super) noted: Vec<String>,
    /// As what the answer is kept, where it is.
    pub(crate) keep: Option<Keep>,
    /// Why it is not, where that is worth telling.
    pub(crate) not_kept: Option<NotKept>,
}

impl Intake {
    /// An intake for one call. `max_bytes` bounds what it keeps.
    pub fn new(policy: &Policy, ask: &Ask, max_bytes: usize) -> Self {
        let limit = policy.is_paged().then(|| ask.page_rows(policy));
        let is_live_only = ask.is_live_only.unwrap_or(policy.horizon.is_some());
        let mut intake = Self {
            kept: Kept::new(Kind::Empty),
            window: Window::new(
                limit.map(|limit| limit as usize),
                policy.key.clone(),
                ask.cursor.as_ref(),
            ),
            narrow: Narrow::new(policy, &ask.arguments, is_live_only),
            unseen: Unseen::new(ask.unseen_fields(policy)),
            attachments: Vec::new(),
            attachment_count: 0,
            attachment_bytes: 0,
            rows_in: 0,
            bytes_in: 0,
            total: None,
            cells: policy.cells.clone(),
            withheld: Touched::default(),
            sized: None,
            invalid: None,
            too_large: None,
            cursor: ask.cursor.clone().filter(|_| ask.key_behind().is_some()),
            asked_rows: ask
                .handler_limit(policy)
                .filter(|_| ask.whole.is_none())
                .map(u64::from),
            rows: policy.rows.clone(),
            declares_rows: policy.declares_rows(),
            max_bytes,
            max_rows: policy.cap_bytes as usize + 1,
            has_begun: false,
            applies: policy.applies,
            takes_all: ask.whole.is_some(),
            pages: policy
                .key
                .clone()
                .zip(ask.whole.as_ref().and_then(|whole| whole.rows))
                .map(|(key, rows)| Pages::new(key, rows)),
            spool: None,
            ends: Vec::new(),
            first_row: 0,
            keep: None,
            noted: Vec::new(),
            not_kept: None,
        };
        intake.applied(policy.applies);
        intake
    }

    /// Passes a row through the window, and collects it where it matches. True where it belongs to the page.
    fn pass(&mut self, row: &[u8]) -> bool {
        if let Some(pages) = &mut self.pages
            && let Err(why) = pages.note(row)
        {
            self.fail(why);
            return false;
        }
        let matched = self.window.matched();
        let is_on_page = self.window.admit(row, &self.narrow);
        if let Some(spool) = &mut self.spool
            && self.window.matched() > matched
        {
            spool.push(row);
            if is_on_page {
                self.ends.push(spool.bytes());
            }
        }
        is_on_page
    }

    /// Notes something for the reader, which the facts say first.
    pub fn note(&mut self, notice: String) {
        self.noted.push(notice);
    }

    /// Takes a whole document. The first one counts; a second one, or one beside pushed rows, makes the answer invalid.
    pub fn document(&mut self, document: &[u8]) {
        if self.has_begun || self.kept.kind != Kind::Empty {
            return self.fail("the plugin handed over a document after a document or rows; expected one of the two, once");
        }
        self.has_begun = true;
        self.bytes_in = document.len() as u64;
        if document.len() > self.max_bytes {
            self.too_large = Some(self.bytes_in);
            return;
        }
        if let Err(error) = std::str::from_utf8(document) {
            if self.cells.withholds() {
                return self.fail("the answer is not UTF-8; where is not shown, since fields of this tool are withheld");
            }
            return self.fail(format!(
                "the answer is not UTF-8: byte {} is 0x{:02x}",
                error.valid_up_to(),
                document[error.valid_up_to()]
            ));
        }
        let cells = self.cells.clone();
        let document = match cells.privacy_of_document(document, &self.rows, &mut self.withheld) {
            Ok(document) => document,
            Err(error) => return self.fail(error),
        };
        let document = document.as_ref();
        // The size of what is withheld would tell of it.
        self.bytes_in = document.len() as u64;
        match rows::find(document, &self.rows) {
            Err(error) => self.fail(format!(
                "the answer does not have the declared rows: {error}"
            )),
            Ok(Found::Array { open }) => {
                let mut elements = json::elements(document, open);
                let rows = self.admit(document, elements.by_ref().map_while(Result::ok));
                let end = elements.end();
                self.keep(
                    document,
                    Kind::Array,
                    rows,
                    0..open + 1,
                    end - 1..document.len(),
                );
                self.check_rows(document, open, end);
            }
            Ok(Found::Lines) => {
                let rows = self.admit(document, rows::lines(document));
                self.keep(
                    document,
                    Kind::Lines,
                    rows,
                    0..0,
                    document.len()..document.len(),
                );
            }
            Ok(Found::Json(piece)) => {
                self.rows_in = 1;
                self.unseen.look(&document[piece.clone()]);
                self.keep_piece(document, Kind::Json, piece);
                // A declared piece is JSON only where it is valid.
                if self.rows != Rows::Whole
                    && let Err(invalid) = json::validate(document)
                {
                    self.fail_at(document, invalid);
                }
            }
            Ok(Found::Text) => {
                self.rows_in = 1;
                self.keep_piece(document, Kind::Text, 0..document.len());
            }
        }
    }

    /// Passes rows through the window; the ones of the page, and whether those are all.
    fn admit(
        &mut self,
        document: &[u8],
        rows: impl Iterator<Item = Range<usize>>,
    ) -> (Vec<Range<usize>>, bool) {
        let mut kept = Vec::new();
        let mut is_all = true;
        for row in rows {
            self.rows_in += 1;
            self.unseen.look(&document[row.clone()]);
            if !self.pass(&document[row.clone()]) {
                is_all = false;
            } else if kept.len() < self.max_rows {
                kept.push(row);
            } else {
                is_all = false;
                self.kept.is_short = true;
            }
        }
        (kept, is_all)
    }

    /// Copies what is delivered of a document: all of it where every row is, otherwise the rows and what is around them.
    fn keep(
        &mut self,
        document: &[u8],
        kind: Kind,
        (rows, is_all): (Vec<Range<usize>>, bool),
        prefix: Range<usize>,
        suffix: Range<usize>,
    ) {
        let is_short = self.kept.is_short;
        self.kept = if is_all {
            Kept {
                kind,
                bytes: document.to_vec(),
                rows,
                prefix,
                suffix,
                is_whole: true,
                is_short,
            }
        } else {
            let mut bytes = Vec::with_capacity(
                prefix.len() + suffix.len() + rows.iter().map(Range::len).sum::<usize>(),
            );
            let mut copy = |range: Range<usize>| {
                let start = bytes.len();
                bytes.extend_from_slice(&document[range]);
                start..bytes.len()
            };
            let prefix = copy(prefix);
            let rows = rows.into_iter().map(&mut copy).collect();
            let suffix = copy(suffix);
            Kept {
                kind,
                rows,
                prefix,
                suffix,
                bytes,
                is_whole: false,
                is_short,
            }
        };
    }

    fn keep_piece(&mut self, document: &[u8], kind: Kind, piece: Range<usize>) {
        self.kept = Kept {
            bytes: document.to_vec(),
            rows: vec![piece],
            is_whole: true,
            ..Kept::new(kind)
        };
    }

    /// What is delivered must be JSON: the rows, and what is around them with an empty array in their place.
    fn check_rows(&mut self, document: &[u8], open: usize, end: usize) {
        let envelope = [&document[..=open], &document[end - 1..]].concat();
        if let Err(mut invalid) = json::validate(&envelope) {
            if invalid.at > open {
                invalid.at += end - 2 - open;
            }
            return self.fail_at(document, invalid);
        }
        let is_valid = |row: &Range<usize>| json::validate(&self.kept.bytes[row.clone()]).is_ok();
        let Some(index) = self.kept.rows.iter().position(|row| !is_valid(row)) else {
            return;
        };
        // Where the row stands in the document is only looked for once it is needed.
        let row = self.kept.row(index);
        let mut places = json::elements(document, open).map_while(Result::ok);
        let Some(place) = places.find(|place| &document[place.clone()] == row) else {
            return;
        };
        if let Err(mut invalid) = json::validate(row) {
            invalid.at += place.start;
            self.fail_at(document, invalid);
        }
    }

    /// The document is not JSON, and where.
    fn fail_at(&mut self, document: &[u8], json::Invalid { at, what }: json::Invalid) {
        let path = json::path_at(document, at);
        self.fail(format!(
            "the answer is not valid JSON: {what} at {path} (byte {at})"
        ));
    }

    /// Takes whole rows, one JSON value a line.
    pub fn rows(&mut self, lines: &[u8]) -> Demand {
        if self.has_begun && self.kept.kind != Kind::Pushed {
            if self.too_large.is_none() {
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
            if self.invalid.is_some() {
                return Demand::Enough;
            }
            self.push(line);
        }
        if self.invalid.is_some() || self.has_no_room() {
            return Demand::Enough;
        }
        if !self.takes_all && self.total.is_some() && self.window.is_full(&self.narrow) {
            self.window.stop();
            return Demand::Enough;
        }
        Demand::More
    }

    pub(super) fn push(&mut self, row: &[u8]) {
        let index = self.first_row + self.rows_in;
        let mut row = Cow::Borrowed(row);
        if self.cells.withholds() {
            if json::validate(&row).is_err() {
                return self.fail(format!(
                    "row {index} is not valid JSON; where and why is not shown, since fields of this tool are withheld"
                ));
            }
            row = self
                .cells
                .privacy(&row, &mut self.withheld)
                .into_owned()
                .into();
        }
        let row = row.as_ref();
        self.rows_in += 1;
        self.bytes_in += row.len() as u64;
        self.unseen.look(row);
        if !self.pass(row) {
            return;
        }
        let start = self.kept.bytes.len();
        if self.kept.is_short
            || start + row.len() > self.max_bytes
            || self.kept.rows.len() >= self.max_rows
        {
            self.kept.is_short = true;
            return;
        }
        if let Err(error) = std::str::from_utf8(row) {
            return self.fail(format!(
                "the answer is not UTF-8: byte {} of row {index} is 0x{:02x}",
                error.valid_up_to(),
                row[error.valid_up_to()]
            ));
        }
        if self.kept.kind != Kind::Lines
            && let Err(json::Invalid { at, what }) = json::validate(row)
        {
            let path = json::path_at(row, at);
            return self.fail(format!(
                "the answer is not valid JSON: {what} at $[{index}]{} (byte {at} of the row)",
                &path[1..]
            ));
        }
        self.kept.bytes.extend_from_slice(row);
        self.kept.rows.push(start..self.kept.bytes.len());
    }

    /// The handler says how many rows there are.
    pub fn total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// The handler says what of the query it has applied.
    pub fn applied(&mut self, what: PushDown) {
        if self.has_begun {
            return self.fail(
                "the plugin said what it has applied after its first rows; expected it before them",
            );
        }
        if let Some(pages) = &mut self.pages {
            pages.applied(what);
        }
        if what.contains(PushDown::AFTER)
            && let Some(cursor) = &self.cursor
        {
            self.window.starts_behind(cursor);
        }
        if what.contains(PushDown::FILTERS) && self.narrow.has_filters() {
            self.narrow.trust_handler();
            self.window.is_filtered_by_handler();
        }
        // Rows of a page that the handler chose: how many there are beside them, only it knows.
        if what.contains(PushDown::PAGING) {
            self.window.is_filtered_by_handler();
        }
        if what.contains(PushDown::LIMIT)
            && let Some(rows) = self.asked_rows
        {
            self.window.is_limited_by_handler(rows);
        }
    }

    /// Whether there were more attachments than an answer may have. Then the call is over: a handler hears nothing of what
    /// becomes of them, and may go on without end.
    pub fn has_too_many_attachments(&self) -> bool {
        self.attachment_count > MAX_ATTACHMENTS
    }

    /// Takes content that is not text. Text in it must be UTF-8.
    pub fn attach(&mut self, attachment: Attachment) {
        self.attachment_count += 1;
        if self.has_too_many_attachments() {
            return;
        }
        if let Attachment::Resource(embedded) = &attachment
            && is_text(&embedded.media_type)
            && let Err(error) = std::str::from_utf8(&embedded.data)
        {
            let (uri, at) = (super::refusal::excerpt(&embedded.uri), error.valid_up_to());
            return self.fail(format!(
                "the attachment {uri} is not UTF-8: byte {at} is 0x{:02x}",
                embedded.data[at]
            ));
        }
        // Every attachment also costs its envelope, so that many small ones are not free.
        self.attachment_bytes +=
            super::cap::attachment_bytes(&attachment) + ATTACHMENT_ENVELOPE_BYTES;
        if self.attachment_bytes > self.max_bytes {
            self.too_large = Some(self.attachment_bytes as u64);
            return;
        }
        self.attachments.push(attachment);
    }

    /// How many bytes are taken in at most.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Nothing more comes. A tool that declares what its rows are and hands over nothing has handed over no rows.
    pub(crate) fn close(&mut self) {
        if self.kept.kind == Kind::Empty
            && self.attachments.is_empty()
            && (self.total.is_some() || self.declares_rows)
        {
            self.kept.kind = Kind::Pushed;
        }
    }

    fn fail(&mut self, message: impl Into<String>) {
        if self.invalid.is_none() {
            self.invalid = Some(message.into());
        }
    }
}

/// Whether an embedded resource of this media type goes out as text.
pub fn is_text(media_type: &str) -> bool {
    media_type.starts_with("text/") || media_type == "application/json"
}
