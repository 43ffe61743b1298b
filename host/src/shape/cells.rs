//! Cells: what an operator takes out of the values of rows, whatever the caller asks for.
//!
//! Two passes, for two reasons. [`CellPolicy::privacy`] drops and masks fields for good: it runs where an answer is taken
//! in, so that nothing behind it, no filter, cursor, count or message, has seen them. [`CellPolicy::size`] replaces data and
//! shortens texts of the rows that are delivered, so that they cost less; a call that names such a field in `fields` gets
//! it whole. Both leave every other byte of a row as it is.
//!
//! Paths are those of rows. In a document without rows, and in what stands beside the rows, a path of a withheld field
//! counts at any depth: what an answer looks like is the plugin's word, and it must not decide what is withheld.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::edit::{Level, Visit, edit};
use super::intake::{Kept, Kind};
use super::json;
use super::policy::Rows;
use super::rows::{self, Found};
use super::select::Path;
use super::touched::{Change, MAX_NAME_BYTES, Touched};
use super::{data, graphemes};

/// What stands in the place of a masked value, as JSON.
const MASK: &[u8] = b"\"[masked]\"";

/// Data of so many characters or fewer stays where the operator says no other number: a thumbnail of 190 bytes.
pub const DEFAULT_DATA_CHARS: u32 = 256;

/// How deep values are looked at. What lies deeper is masked where fields are withheld, and else stays.
const MAX_DEPTH: usize = 512;

/// What becomes of the fields at the end of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Node {
    children: BTreeMap<Box<str>, Node>,
    /// Dropped or masked, and the path by which the operator says so.
    change: Option<(Change, String)>,
}

impl Node {
    fn insert(&mut self, path: &Path, change: Change) {
        let mut node = self;
        for step in path.steps() {
            node = node.children.entry(step.into()).or_default();
        }
        // Of the two the stricter one: paths to drop come first.
        node.change.get_or_insert((change, path.text().to_owned()));
    }
}

/// What is taken out of the cells of a tool's answers. Off by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CellPolicy {
    drop: Vec<Path>,
    mask: Vec<Path>,
    withheld: Node,
    /// Data of more characters is replaced.
    data_chars: Option<usize>,
    /// A longer text is shortened.
    max_chars: Option<usize>,
    /// The argument that names fields, for marks, and the fields that this call names.
    fields_argument: Option<String>,
    whole: Vec<Path>,
}

impl CellPolicy {
    /// Compiles a policy. The error names the path that is none.
    pub fn new(
        drop: &[String],
        mask: &[String],
        data_chars: Option<u32>,
        max_chars: Option<u32>,
    ) -> Result<Self, String> {
        let paths = |what: &str, texts: &[String]| {
            texts
                .iter()
                .map(|text| Path::new(text).map_err(|error| format!("{what}: {error}")))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            drop: paths("drop", drop)?,
            mask: paths("mask", mask)?,
            data_chars: data_chars.map(|chars| chars as usize),
            max_chars: max_chars.map(|chars| chars as usize),
            ..Self::default()
        }
        .compiled())
    }

    fn compiled(mut self) -> Self {
        self.withheld = Node::default();
        for path in &self.drop {
            self.withheld.insert(path, Change::Dropped);
        }
        for path in &self.mask {
            self.withheld.insert(path, Change::Masked);
        }
        self
    }

    /// Both policies at once: what either withholds is withheld, and the smaller number applies.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let union = |mine: &[Path], others: &[Path]| {
            let mut all = mine.to_vec();
            all.extend(others.iter().filter(|path| !mine.contains(path)).cloned());
            all
        };
        let smaller = |mine: Option<usize>, others: Option<usize>| match (mine, others) {
            (Some(mine), Some(others)) => Some(mine.min(others)),
            (one, other) => one.or(other),
        };
        Self {
            drop: union(&self.drop, &other.drop),
            mask: union(&self.mask, &other.mask),
            data_chars: smaller(self.data_chars, other.data_chars),
            max_chars: smaller(self.max_chars, other.max_chars),
            ..self.clone()
        }
        .compiled()
    }

    /// The policy for a call that names these fields by the argument of that name: it gets them whole, as far as their
    /// size is the reason.
    #[must_use]
    pub(super) fn for_call(&self, fields_argument: Option<&str>, whole: Vec<Path>) -> Self {
        Self {
            fields_argument: fields_argument.map(str::to_owned),
            whole,
            ..self.clone()
        }
    }

    /// What is done, in the words of the config file; empty where nothing is.
    pub fn describe(&self) -> String {
        let names = |paths: &[Path]| {
            let names: Vec<&str> = paths.iter().map(Path::text).collect();
            names.join(", ")
        };
        let lists = [("drop", &self.drop), ("mask", &self.mask)];
        let lists = lists
            .into_iter()
            .filter(|(_, paths)| !paths.is_empty())
            .map(|(what, paths)| format!("{what} {}", names(paths)));
        let data = self
            .data_chars
            .map(|chars| format!("replace data over {chars} characters"));
        let texts = self
            .max_chars
            .map(|chars| format!("shorten texts over {chars} characters"));
        lists
            .chain(data)
            .chain(texts)
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Whether nothing is done.
    pub fn is_empty(&self) -> bool {
        !self.withholds() && !self.sizes()
    }

    /// Whether fields are dropped or masked.
    pub fn withholds(&self) -> bool {
        !self.drop.is_empty() || !self.mask.is_empty()
    }

    /// Whether data is replaced or texts are shortened.
    pub fn sizes(&self) -> bool {
        self.data_chars.is_some() || self.max_chars.is_some()
    }

    /// Whether a field has anything that is withheld in it, or is itself in something that is: it must not be compared,
    /// and not carried in a cursor.
    pub(super) fn covers(&self, path: &Path) -> bool {
        self.drop
            .iter()
            .chain(&self.mask)
            .any(|withheld| withheld.contains(path) || path.contains(withheld))
    }

    /// Whether nothing of a field is left: it is dropped, or inside of something that is dropped or masked.
    pub(super) fn removes(&self, path: &Path) -> bool {
        self.drop.iter().any(|dropped| dropped.contains(path))
            || self
                .mask
                .iter()
                .any(|masked| masked != path && masked.contains(path))
    }

    /// Drops and masks fields of one row. A text that is no JSON is masked as a whole.
    pub fn privacy<'r>(&self, row: &'r [u8], touched: &mut Touched) -> Cow<'r, [u8]> {
        if !self.withholds() {
            return Cow::Borrowed(row);
        }
        self.withhold(row, None, false, touched)
            .unwrap_or(Cow::Borrowed(MASK))
    }

    /// Drops and masks fields of a whole answer: of its rows, and at any depth of what is no row. The error says why that
    /// cannot be done; it shows nothing of the answer.
    pub(super) fn privacy_of_document<'d>(
        &self,
        document: &'d [u8],
        source: &Rows,
        touched: &mut Touched,
    ) -> Result<Cow<'d, [u8]>, String> {
        if !self.withholds() {
            return Ok(Cow::Borrowed(document));
        }
        let found = match rows::find(document, source) {
            Ok(found) => found,
            // What is wrong with the place of the rows is said by whoever looks for them; no value is in that.
            Err(_) if json::validate(document).is_ok() => return Ok(Cow::Borrowed(document)),
            Err(_) => return Err(not_json()),
        };
        match found {
            Found::Text if document.trim_ascii().is_empty() => Ok(Cow::Borrowed(document)),
            Found::Text => Err(not_objects()),
            Found::Lines => self.privacy_of_lines(document, touched),
            Found::Array { .. } | Found::Json(_) if json::validate(document).is_err() => {
                Err(not_json())
            }
            Found::Array { open } => self
                .withhold(document, Some(open), true, touched)
                .ok_or_else(not_json),
            Found::Json(_) => self
                .withhold(document, None, true, touched)
                .ok_or_else(not_json),
        }
    }

    /// Lines that are JSON objects each. In any other text a field cannot be found.
    fn privacy_of_lines<'d>(
        &self,
        document: &'d [u8],
        touched: &mut Touched,
    ) -> Result<Cow<'d, [u8]>, String> {
        let mut out = Vec::with_capacity(document.len());
        for line in document.split_inclusive(|byte| *byte == b'\n') {
            let row = line.trim_ascii();
            if row.is_empty() {
                out.extend_from_slice(line);
                continue;
            }
            if row[0] != b'{' || json::validate(row).is_err() {
                return Err(not_objects());
            }
            out.extend_from_slice(&self.privacy(row, touched));
            if line.ends_with(b"\n") {
                out.push(b'\n');
            }
        }
        Ok(Cow::Owned(out))
    }

    /// `rows_at` is where the array of rows opens, whose elements have the paths of rows; `is_anywhere` says whether paths
    /// count at any depth outside of it.
    fn withhold<'t>(
        &self,
        text: &'t [u8],
        rows_at: Option<usize>,
        is_anywhere: bool,
        touched: &mut Touched,
    ) -> Option<Cow<'t, [u8]>> {
        struct Inside<'p> {
            nodes: Vec<&'p Node>,
            is_anywhere: bool,
        }
        let root = &self.withheld;
        edit(text, |levels: &[Level<Inside<'_>>], key, at| {
            if rows_at == Some(at) {
                return Visit::Enter(Inside {
                    nodes: vec![root],
                    is_anywhere: false,
                });
            }
            let Some(Level { state, .. }) = levels.last() else {
                return Visit::Enter(Inside {
                    nodes: vec![root],
                    is_anywhere,
                });
            };
            let is_container = matches!(text.get(at), Some(b'{' | b'['));
            if levels.len() >= MAX_DEPTH && is_container {
                touched.note(Change::Masked, "…");
                return Visit::Replace(MASK.to_vec());
            }
            let Some(key) = key else {
                // An array hands its own place on to its elements.
                return if is_container {
                    Visit::Enter(Inside {
                        nodes: state.nodes.clone(),
                        is_anywhere: state.is_anywhere,
                    })
                } else {
                    Visit::Keep
                };
            };
            let name = json::name(&text[key]);
            let nodes: Vec<&Node> = match &name {
                Some(name) => {
                    let below = state.nodes.iter().map(|node| node.children.get(&**name));
                    below.flatten().collect()
                }
                None => Vec::new(),
            };
            let changes = nodes.iter().filter_map(|node| node.change.as_ref());
            // The stricter change comes first in order.
            if let Some((change, column)) = changes.min() {
                let holds_rows = || {
                    rows_at.is_some_and(|rows_at| {
                        json::skip_value(text, at).is_some_and(|end| (at..end).contains(&rows_at))
                    })
                };
                if !holds_rows() {
                    touched.note(*change, column);
                    return match change {
                        Change::Dropped => Visit::Drop,
                        _ => Visit::Replace(MASK.to_vec()),
                    };
                }
            }
            if !is_container {
                return Visit::Keep;
            }
            let mut nodes = nodes;
            if state.is_anywhere && !nodes.iter().any(|node| std::ptr::eq(*node, root)) {
                nodes.push(root);
            }
            if nodes.is_empty() {
                return Visit::Keep;
            }
            Visit::Enter(Inside {
                nodes,
                is_anywhere: state.is_anywhere,
            })
        })
    }

    /// Replaces data and shortens texts of one row. A row that is no JSON stays as it is.
    pub fn size<'r>(&self, row: &'r [u8], touched: &mut Touched) -> Cow<'r, [u8]> {
        let smallest = self.data_chars.into_iter().chain(self.max_chars).min();
        if smallest.is_none_or(|chars| row.len() <= chars) {
            return Cow::Borrowed(row);
        }
        edit(row, |levels: &[Level<()>], key, at| match row.get(at) {
            Some(b'"') => {
                let Some(end) = json::skip_value(row, at) else {
                    return Visit::Keep;
                };
                let inner = &row[at + 1..end - 1];
                if smallest.is_none_or(|chars| inner.len() <= chars) {
                    return Visit::Keep;
                }
                let column = Column::of(row, levels, key);
                if self.whole.iter().any(|asked| column.is_in(asked)) {
                    return Visit::Keep;
                }
                match self.smaller(inner, &column, touched) {
                    Some(cell) => Visit::Replace(cell),
                    None => Visit::Keep,
                }
            }
            Some(b'{' | b'[') if levels.len() < MAX_DEPTH => Visit::Enter(()),
            _ => Visit::Keep,
        })
        .unwrap_or(Cow::Borrowed(row))
    }

    /// A text cell with its data replaced and its end cut off, as JSON; none where it stays.
    fn smaller(&self, inner: &[u8], column: &Column, touched: &mut Touched) -> Option<Vec<u8>> {
        let how = match (&self.fields_argument, &column.path) {
            (Some(argument), Some(path)) => format!("; name {path} in {argument} to read it whole"),
            _ => String::new(),
        };
        let total = graphemes::count(inner);
        let replaced = self
            .data_chars
            .and_then(|chars| replace_data(inner, chars, &how));
        if replaced.is_some() {
            touched.note(Change::Replaced, &column.name);
        }
        let inner = replaced.as_deref().unwrap_or(inner);
        let shortened = self.max_chars.and_then(|max| {
            let now = graphemes::count(inner);
            if now <= max {
                return None;
            }
            let end = graphemes::boundary(inner, max);
            let first = graphemes::count(&inner[..end]);
            let mark = format!("… [the first {first} of {total} characters{how}]");
            // A mark that is longer than what it stands for would make the cell larger.
            (first + mark.chars().count() < now)
                .then(|| [&inner[..end], quoted(&mark).as_bytes()].concat())
        });
        if shortened.is_some() {
            touched.note(Change::Shortened, &column.name);
        }
        let cell = shortened.or(replaced)?;
        Some([b"\"", cell.as_slice(), b"\""].concat())
    }

    /// Makes the rows that were kept smaller, or the one piece. What was done to each row, where something was.
    pub(super) fn size_kept(&self, kept: &mut Kept) -> Vec<Touched> {
        if !self.sizes() || kept.kind == Kind::Text {
            return Vec::new();
        }
        let mut touched = vec![Touched::default(); kept.rows.len()];
        let mut bytes = Vec::with_capacity(kept.bytes.len());
        let mut copy = |part: &[u8]| {
            let start = bytes.len();
            bytes.extend_from_slice(part);
            start..bytes.len()
        };
        let prefix = copy(&kept.bytes[kept.prefix.clone()]);
        let rows = kept
            .rows
            .iter()
            .zip(&mut touched)
            .map(|(row, touched)| {
                let row = &kept.bytes[row.clone()];
                // A line of text is a row that may be anything.
                let is_row = kept.kind != Kind::Lines
                    || row.first() == Some(&b'{') && json::validate(row).is_ok();
                copy(&if is_row {
                    self.size(row, touched)
                } else {
                    Cow::Borrowed(row)
                })
            })
            .collect();
        let suffix = copy(&kept.bytes[kept.suffix.clone()]);
        if touched.iter().all(Touched::is_empty) {
            return Vec::new();
        }
        *kept = Kept {
            kind: kept.kind,
            bytes,
            rows,
            prefix,
            suffix,
            is_whole: false,
            is_short: kept.is_short,
        };
        touched
    }
}

fn not_json() -> String {
    String::from(
        "the answer is not valid JSON; where and why is not shown, since fields of this tool are withheld",
    )
}

fn not_objects() -> String {
    String::from(
        "the answer is text; fields of this tool are withheld, and in text they cannot be found: expected JSON, or a JSON \
         object a line",
    )
}

/// The content of a JSON string.
fn quoted(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The content of a text cell with marks in the place of its data; none where it has none.
fn replace_data(inner: &[u8], chars: usize, how: &str) -> Option<Vec<u8>> {
    let text = json::name(inner)?;
    let mut out = String::new();
    let mut copied = 0;
    for data in data::find(&text, chars) {
        let kind = data.media_type.as_deref().unwrap_or("base64");
        let mark = format!("[{kind}, {} bytes{how}]", data.bytes);
        if mark.len() < data.place.len() {
            out.push_str(&text[copied..data.place.start]);
            out.push_str(&mark);
            copied = data.place.end;
        }
    }
    (copied > 0).then(|| {
        out.push_str(&text[copied..]);
        quoted(&out).into_bytes()
    })
}

/// Where in its row a cell is.
struct Column {
    /// The names on the way, joined by dots, for people.
    name: String,
    /// The same where it can be named as a path.
    path: Option<String>,
    steps: Vec<String>,
}

impl Column {
    fn of<S>(row: &[u8], levels: &[Level<S>], key: Option<Range<usize>>) -> Self {
        let keys = levels
            .iter()
            .filter_map(|level| level.key.clone())
            .chain(key);
        let steps: Vec<String> = keys
            .map(|key| {
                let raw = &row[key];
                json::name(raw).map_or_else(
                    || String::from_utf8_lossy(raw).into_owned(),
                    Cow::into_owned,
                )
            })
            .collect();
        let name = steps.join(".");
        let is_path = name.len() <= MAX_NAME_BYTES
            && steps.iter().all(|step| !step.contains('.'))
            && Path::new(&name).is_ok();
        Self {
            path: is_path.then(|| name.clone()),
            name,
            steps,
        }
    }

    fn is_in(&self, path: &Path) -> bool {
        let mut steps = self.steps.iter();
        path.steps()
            .all(|step| steps.next().is_some_and(|own| own == step))
    }
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;
