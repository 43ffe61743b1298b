//! The complete result, as far as the stages know it: that it is kept, under which id, and how a reader gets to it.
//!
//! Where it is kept and for how long is the business of [`crate::results`].

use std::fmt;

use super::ask::Ask;
use super::cursor::Place;
use super::fit::Reader;
use super::gates::Gates;
use super::intake::{Intake, Kept, Kind};
use super::narrow::Narrow;
use super::page::{Counts, Window};
use super::pipeline::Call;
use super::policy::{HostArgument, Policy};
use super::select::Unseen;
use crate::results::Spool;

/// The scheme and folder of resources that are kept results.
const URI_PREFIX: &str = "plimsoll://results/";

/// What facts may take beside rows, in bytes and so in tokens: a cursor, its call, notices and a link.
const FACTS_BYTES: u64 = 2_000;

/// Names a kept result: 128 bits that nobody guesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ResultId([u8; 16]);

impl ResultId {
    /// The id with these bytes.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads what `Display` wrote: 32 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return None;
        }
        u128::from_str_radix(text, 16)
            .ok()
            .map(|number| Self(number.to_be_bytes()))
    }

    /// The URI of the resource.
    pub fn uri(&self) -> String {
        format!("{URI_PREFIX}{self}")
    }

    /// The id in the URI of a resource, and the cursor behind `?after=` where there is one.
    pub fn of_uri(uri: &str) -> Option<(Self, Option<&str>)> {
        let rest = uri.strip_prefix(URI_PREFIX)?;
        match rest.split_once('?') {
            None => Some((Self::parse(rest)?, None)),
            Some((id, query)) => Some((Self::parse(id)?, Some(query.strip_prefix("after=")?))),
        }
    }

    /// The template of such URIs.
    pub fn uri_template() -> String {
        format!("{URI_PREFIX}{{id}}{{?after}}")
    }
}

impl fmt::Display for ResultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// As what an answer is kept, should rows of it be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// Its id.
    pub id: ResultId,
    /// Where its first row begins; none where the rows were never handed over, and it is made when it is first opened.
    pub start: Option<u64>,
    /// When it was made, as RFC 3339 writes it, where that was later than the answer that points to it.
    pub made: Option<String>,
    /// The address at which people see it, where the host has one.
    pub link: Option<String>,
}

impl Keep {
    /// What a reader has to know of it, in one sentence. `is_left_out` says whether rows of it are.
    pub(super) fn notice(&self, is_left_out: bool) -> Option<String> {
        let notice = match (&self.made, self.start, &self.link) {
            (Some(made), ..) => {
                return Some(format!(
                    "These rows were fetched at {made}, when the complete result was first opened: the data may have \
                     changed since the answer that pointed to it."
                ));
            }
            (None, Some(_), Some(_)) => {
                "People can see, search and download the complete result at \"link\"."
            }
            (None, Some(_), None) => return None,
            (None, None, Some(_)) => {
                "The other rows were not fetched: the complete result is made when its resource, or \"link\", where people \
                 can see, search and download it, is first opened, from the data of that time."
            }
            (None, None, None) => {
                "The other rows were not fetched: the complete result is made when its resource is first opened, from the \
                 data of that time."
            }
        };
        is_left_out.then(|| notice.to_owned())
    }
}

/// Why an answer of which rows are left out is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotKept {
    /// Its rows are more bytes than these.
    TooLarge(u64),
    /// Writing it failed.
    Failed,
}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge(limit) => write!(
                f,
                "The complete result is not kept: its rows are more than {limit} bytes. Later pages come from the plugin, as \
                 its data is then."
            ),
            Self::Failed => f.write_str(
                "The complete result is not kept: the host could not store it. Later pages come from the plugin, as its data \
                 is then.",
            ),
        }
    }
}

/// The account of a whole answer, which every page of it repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptCounts {
    /// All rows, where that is known.
    pub total: Option<u64>,
    /// Rows that matched: those that are kept.
    pub matched: u64,
    /// Rows that the horizon hid.
    pub hidden: u64,
    /// Rows that a filter took away.
    pub filtered: u64,
}

/// What kept rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptKind {
    /// Rows in an array of a JSON document.
    Array,
    /// Rows that were pushed.
    Pushed,
    /// Lines of text.
    Lines,
}

impl KeptKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Array, Self::Pushed, Self::Lines];

    pub(crate) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Array => Some(Self::Array),
            Kind::Pushed => Some(Self::Pushed),
            Kind::Lines => Some(Self::Lines),
            Kind::Empty | Kind::Json | Kind::Text => None,
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Array => Kind::Array,
            Self::Pushed => Kind::Pushed,
            Self::Lines => Kind::Lines,
        }
    }

    /// Its name where it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Pushed => "pushed",
            Self::Lines => "lines",
        }
    }

    /// The kind of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Media type of the whole.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Array | Self::Pushed => "application/json",
            Self::Lines => "text/plain",
        }
    }
}

/// Everything about a kept answer but its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// As what it is kept.
    pub keep: Keep,
    /// What its rows are.
    pub kind: KeptKind,
    /// The account of the whole.
    pub counts: KeptCounts,
    /// The document up to and with the opening bracket of its rows.
    pub prefix: Vec<u8>,
    /// The document from the closing bracket of its rows.
    pub suffix: Vec<u8>,
}

/// The complete result of an answer of which rows were left out, as doors name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complete {
    /// Its id.
    pub id: ResultId,
    /// A name for programs.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// Media type of the whole.
    pub media_type: &'static str,
    /// The address at which people see it, where the host has one.
    pub link: Option<String>,
}

impl Complete {
    /// `rows` is how many it has, where it is made already.
    pub(crate) fn new(keep: &Keep, kind: KeptKind, tool: &str, rows: Option<u64>) -> Self {
        Self {
            id: keep.id,
            name: complete_name(tool),
            description: describe(tool, rows),
            media_type: kind.media_type(),
            link: keep.link.clone(),
        }
    }

    /// The block of JSON with which MCP points to it. Its size and tokens count in the reply.
    pub(crate) fn block(&self) -> String {
        serde_json::json!({
            "type": "resource_link",
            "uri": self.id.uri(),
            "name": self.name,
            "description": self.description,
            "mimeType": self.media_type,
        })
        .to_string()
    }
}

/// The name of a complete result of a tool, for programs.
pub fn complete_name(tool: &str) -> String {
    format!("{tool}-complete")
}

/// What a complete result is, in words. `rows` is how many it has; none where it is made when it is first opened.
pub fn describe(tool: &str, rows: Option<u64>) -> String {
    match rows {
        Some(rows) => {
            format!("All {rows} rows of this answer of {tool}. Reading it gets them page by page.")
        }
        None => format!(
            "All rows of this answer of {tool}, fetched when it is first opened. Reading it gets them page by page."
        ),
    }
}

/// An answer that may be kept, and a page of one that is.
impl Intake {
    /// An intake for a page of a kept result, whose rows come through [`Intake::kept_row`].
    pub fn of_kept(policy: &Policy, ask: &Ask, kept: &KeptAnswer, max_bytes: usize) -> Self {
        let before = ask.cursor.as_ref().map_or(0, |cursor| cursor.before);
        let limit = ask.page_rows(policy) as usize;
        let envelope = kept.prefix.len() + kept.suffix.len();
        let mut intake = Self::new(policy, ask, max_bytes);
        // The rows have been narrowed, and a field that no row has was refused, when they were kept.
        intake.narrow = Narrow::default();
        intake.unseen = Unseen::default();
        intake.window = Window::of_kept(limit, before, kept.counts);
        intake.first_row = before;
        intake.has_begun = true;
        intake.keep = Some(kept.keep.clone());
        intake.kept = Kept {
            bytes: [kept.prefix.as_slice(), &kept.suffix].concat(),
            prefix: 0..kept.prefix.len(),
            suffix: kept.prefix.len()..envelope,
            ..Kept::new(kept.kind.kind())
        };
        intake
    }

    /// Takes the next row of a kept result, which ends there. True while the page has room for another.
    pub fn kept_row(&mut self, row: &[u8], end: u64) -> bool {
        self.ends.push(end);
        self.push(row);
        self.invalid.is_none() && !self.kept.is_short && !self.window.has_page()
    }

    /// Collects every matching row in `spool` as well.
    #[must_use]
    pub fn spooling(mut self, spool: Option<Spool>) -> Self {
        self.spool = spool;
        self
    }

    /// The account of the complete result, if this is an answer of which rows may be left out and whose every matching row
    /// was collected. `budget` is how many tokens a reply may have.
    pub fn complete(
        &mut self,
        call: &Call<'_>,
        readers: &[Reader<'_>],
    ) -> Option<(KeptKind, KeptCounts)> {
        self.close();
        let kind = KeptKind::of(self.kept.kind)?;
        if self.invalid.is_some() || self.too_large.is_some() || !self.window.is_complete() {
            return None;
        }
        let counts = self.window.finish(self.total, &self.narrow).ok()?;
        if !self.takes_all && !self.may_leave_out(call, readers, &counts) {
            return None;
        }
        let spool = self.spool.as_ref()?;
        self.not_kept = spool.gave_up();
        if self.not_kept.is_some() || counts.matched != Some(spool.rows()) {
            return None;
        }
        let Counts {
            total,
            hidden,
            filtered,
            ..
        } = counts;
        let counts = KeptCounts {
            total,
            matched: spool.rows(),
            hidden,
            filtered,
        };
        Some((kind, counts))
    }

    /// The kind of the complete result that can be made later, if this is an answer of which rows may be left out and whose
    /// plugin did not hand over every row: it was told that the page is full, or gave one page. A handler that chooses how
    /// many rows it hands over, and cannot be asked for those behind them, has no way to it.
    pub fn promises(&mut self, call: &Call<'_>, readers: &[Reader<'_>]) -> Option<KeptKind> {
        self.close();
        let kind = KeptKind::of(self.kept.kind)?;
        let is_usable = self.invalid.is_none() && self.too_large.is_none() && !self.takes_all;
        if !is_usable || !self.window.is_cut_short() {
            return None;
        }
        let policy = call.policy;
        let has_way = !policy.is_own(HostArgument::Limit)
            || policy.is_applied_by_handler(HostArgument::After)
                && policy.key.is_some()
                && kind == KeptKind::Pushed;
        let counts = self.window.finish(self.total, &self.narrow).ok()?;
        (has_way && self.may_leave_out(call, readers, &counts)).then_some(kind)
    }

    /// What came in: rows, their bytes, and how many of them matched.
    pub fn taken(&self) -> (u64, u64, u64) {
        (self.rows_in, self.bytes_in, self.window.matched())
    }

    /// Whether every row was wanted, whatever page the caller asked for.
    pub fn takes_all(&self) -> bool {
        self.takes_all
    }

    /// Why a whole answer is not kept.
    pub fn not_kept(&self) -> Option<NotKept> {
        self.not_kept
    }

    /// Whether rows may be left out for one of the readers.
    fn may_leave_out(&self, call: &Call<'_>, readers: &[Reader<'_>], counts: &Counts) -> bool {
        counts.has_more || readers.iter().any(|reader| self.may_exceed(call, reader))
    }

    /// Whether the rows may be more than the budget has, or a gate of the calling program. A token is a byte at least.
    fn may_exceed(&self, call: &Call<'_>, reader: &Reader<'_>) -> bool {
        let gate = reader.gates.and_then(Gates::smallest);
        let copies = if call.tool.has_structured_copy { 2 } else { 1 };
        let bytes = (self.kept.bytes.len() as u64 + FACTS_BYTES) * copies;
        [reader.budget.tokens, gate]
            .into_iter()
            .flatten()
            .any(|room| bytes > room)
    }

    /// The document around the rows.
    pub fn envelope(&self) -> (&[u8], &[u8]) {
        let bytes = &self.kept.bytes;
        match self.kept.kind {
            Kind::Array => (
                &bytes[self.kept.prefix.clone()],
                &bytes[self.kept.suffix.clone()],
            ),
            _ => (b"", b""),
        }
    }

    /// What was collected.
    pub fn spool(&self) -> Option<&Spool> {
        self.spool.as_ref()
    }

    /// The same, to be written where it is kept.
    pub fn take_spool(&mut self) -> Option<Spool> {
        self.spool.take()
    }

    /// Decides as what the answer is kept, or why it is not.
    pub fn decide(&mut self, keep: Result<Keep, NotKept>) {
        match keep {
            Ok(keep) => (self.keep, self.not_kept) = (Some(keep), None),
            Err(why) => (self.keep, self.not_kept) = (None, Some(why)),
        }
    }

    /// Where the page behind the first `delivered` rows of this one begins.
    pub(crate) fn place_behind(&self, delivered: usize) -> Option<Place> {
        let kept = self
            .keep
            .as_ref()
            .and_then(|keep| Some((keep.id, keep.start?)));
        let Some((id, start)) = kept else {
            return self.window.place_behind(delivered);
        };
        let end = self.ends.get(delivered.checked_sub(1)?)?;
        let start = if self.spool_ends() { start } else { 0 };
        Some(Place::Kept {
            id,
            offset: start + end,
        })
    }

    /// Whether `ends` counts from the first row, as a spool does, and not from the beginning of what is stored.
    fn spool_ends(&self) -> bool {
        !self.window.is_of_kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_from_its_uri_and_from_nothing_else() {
        let id = ResultId::new([0x0f; 16]);
        assert_eq!(
            id.uri(),
            "plimsoll://results/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"
        );
        assert_eq!(ResultId::of_uri(&id.uri()), Some((id, None)));
        let paged = format!("{}?after=abc", id.uri());
        assert_eq!(ResultId::of_uri(&paged), Some((id, Some("abc"))));
        for uri in [
            "plimsoll://results/",
            "plimsoll://results/0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F0F",
            "plimsoll://results/+f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
            "plimsoll://results/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f/x",
            "plimsoll://results/0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f?before=x",
            "file:///0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",
        ] {
            assert_eq!(ResultId::of_uri(uri), None, "{uri}");
        }
        assert_eq!(ResultId::uri_template(), "plimsoll://results/{id}{?after}");
    }

    #[test]
    fn a_reader_hears_why_a_result_is_not_kept() {
        assert_eq!(
            NotKept::TooLarge(67_108_864).to_string(),
            "The complete result is not kept: its rows are more than 67108864 bytes. Later pages come from the plugin, as its \
             data is then."
        );
        assert_eq!(
            NotKept::Failed.to_string(),
            "The complete result is not kept: the host could not store it. Later pages come from the plugin, as its data is \
             then."
        );
    }

    #[test]
    fn kinds_have_names_that_lead_back_to_them() {
        for kind in KeptKind::ALL {
            assert_eq!(KeptKind::named(kind.name()), Some(kind));
            assert_eq!(KeptKind::of(kind.kind()), Some(kind));
        }
        assert_eq!(KeptKind::of(Kind::Json), None);
    }
}
