//! Rows as cells: for the page that people see, and for the tables that they download.
//!
//! A cell is text: the content of a string, and for everything else its JSON as it came in, so that no number is rendered
//! anew. Null and a missing field have no cell.

use std::collections::{HashMap, HashSet};

use crate::shape::{KeptKind, Path, json, write_cell};

use super::Stored;

/// How many columns a table has at most. What has more fields is complete as JSON only.
pub const MAX_COLUMNS: usize = 256;

/// Bytes of a name that becomes a column. A longer one is data and no name.
const MAX_NAME_BYTES: usize = 200;

/// The column of rows that are no objects.
const VALUE: &str = "value";
/// The column of lines.
const LINE: &str = "line";

/// Where the cells of a column come from.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    /// A declared path.
    Path(Box<Path>),
    /// A member of the row by its name.
    Member,
    /// The row itself, where it is no object.
    Value,
    /// The row itself, a line of text.
    Line,
}

/// The columns of a table.
#[derive(Debug, Clone)]
pub struct Columns {
    columns: Vec<(String, Source)>,
    /// Columns of members, by name.
    members: HashMap<String, usize>,
    /// How many of them the tool declares.
    declared: usize,
    has_more: bool,
}

impl Columns {
    /// The declared columns of a result.
    pub fn declared(stored: &Stored) -> Self {
        let columns = if stored.kind == KeptKind::Lines {
            vec![(LINE.to_owned(), Source::Line)]
        } else {
            let declared = stored.description.columns.iter();
            declared
                .filter_map(|(name, field)| {
                    Some((name.clone(), Source::Path(Box::new(Path::new(field).ok()?))))
                })
                .collect()
        };
        Self {
            declared: columns.len(),
            columns,
            members: HashMap::new(),
            has_more: false,
        }
    }

    /// Adds a column for each member of a row that has none yet.
    pub fn look(&mut self, row: &[u8]) {
        if self.is_of_lines() {
            return;
        }
        if row.first() != Some(&b'{') {
            if !self
                .columns
                .iter()
                .any(|(_, source)| *source == Source::Value)
            {
                self.add(VALUE.to_owned(), Source::Value);
            }
            return;
        }
        for member in json::members(row, 0).map_while(Result::ok) {
            let Some(name) = json::name(&row[member.key]) else {
                continue;
            };
            if self.members.contains_key(&*name) || self.is_declared(&name) {
                continue;
            }
            if name.len() > MAX_NAME_BYTES || self.columns.len() >= MAX_COLUMNS {
                self.has_more = true;
                continue;
            }
            self.members
                .insert(name.clone().into_owned(), self.columns.len());
            self.add(name.into_owned(), Source::Member);
        }
    }

    fn add(&mut self, name: String, source: Source) {
        self.columns.push((name, source));
    }

    /// Whether a declared column is this very member.
    fn is_declared(&self, name: &str) -> bool {
        self.columns[..self.declared]
            .iter()
            .any(|(_, source)| matches!(source, Source::Path(path) if path.text() == name))
    }

    fn is_of_lines(&self) -> bool {
        matches!(self.columns.first(), Some((_, Source::Line)))
    }

    /// The header cells, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|(name, _)| name.as_str())
    }

    /// How many of the first columns the tool declares.
    pub fn declared_count(&self) -> usize {
        self.declared
    }

    /// Whether rows have fields that are in no column.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// The same columns without those that are not among `wanted`, which are their places. Their order stays.
    #[must_use]
    pub fn only(mut self, wanted: &HashSet<usize>) -> Self {
        let mut place = 0;
        self.columns.retain(|_| {
            place += 1;
            wanted.contains(&(place - 1))
        });
        self.declared = (0..self.declared)
            .filter(|place| wanted.contains(place))
            .count();
        self.members = self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, (_, source))| *source == Source::Member)
            .map(|(place, (name, _))| (name.clone(), place))
            .collect();
        self
    }

    /// The cells of a row.
    pub fn cells(&self, row: &[u8]) -> Vec<Option<String>> {
        let mut cells = vec![None; self.columns.len()];
        let is_object = row.first() == Some(&b'{');
        for (cell, (_, source)) in cells.iter_mut().zip(&self.columns) {
            *cell = match source {
                Source::Line => Some(lossy(row)),
                Source::Value if !is_object => text(row),
                Source::Path(path) => values(path, row),
                Source::Value | Source::Member => None,
            };
        }
        if is_object && !self.members.is_empty() {
            for member in json::members(row, 0).map_while(Result::ok) {
                let name = json::name(&row[member.key]);
                if let Some(place) = name.and_then(|name| self.members.get(&*name)) {
                    cells[*place] = text(&row[member.value]);
                }
            }
        }
        cells
    }

    /// Appends the header as a line of a table.
    pub fn write_header(&self, delimiter: u8, out: &mut Vec<u8>) {
        for (place, name) in self.names().enumerate() {
            if place > 0 {
                out.push(delimiter);
            }
            write_cell(guarded(name).as_bytes(), delimiter, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends a row as a line of a table.
    pub fn write_row(&self, row: &[u8], delimiter: u8, out: &mut Vec<u8>) {
        let start = out.len();
        for (place, cell) in self.cells(row).into_iter().enumerate() {
            if place > 0 {
                out.push(delimiter);
            }
            if let Some(cell) = cell {
                write_cell(guarded(&cell).as_bytes(), delimiter, out);
            }
        }
        if out.len() == start {
            // A line with nothing on it is no row to a reader.
            write_cell(b"", delimiter, out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// A cell that a spreadsheet does not take for a formula: text that begins like one gets an apostrophe before it, which
/// spreadsheets do not show. Numbers stay as they are.
fn guarded(cell: &str) -> std::borrow::Cow<'_, str> {
    let is_formula =
        cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    if is_formula {
        format!("'{cell}").into()
    } else {
        cell.into()
    }
}

/// One value as a cell.
fn text(value: &[u8]) -> Option<String> {
    match value {
        b"null" => None,
        [b'"', inner @ .., b'"'] => Some(json::unescape(inner).unwrap_or_else(|| lossy(value))),
        value => Some(lossy(value)),
    }
}

/// What a path finds: one value, or an array of several.
fn values(path: &Path, row: &[u8]) -> Option<String> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    path.any(row, |value| {
        found.push(value.to_vec());
        false
    });
    match &found[..] {
        [] => None,
        [one] => text(one),
        many => Some(lossy(&[b"[".as_slice(), &many.join(&b','), b"]"].concat())),
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::results::Description;
    use crate::shape::ResultId;

    fn stored(kind: KeptKind, columns: &[(&str, &str)]) -> Stored {
        let columns = columns.iter();
        Stored {
            id: ResultId::new([0; 16]),
            created: 0,
            expires: 0,
            description: Description {
                tenant: String::new(),
                tool: String::from("t"),
                plugin: String::from("p"),
                kind: kind.name().into(),
                total: None,
                matched: 0,
                hidden: 0,
                filtered: 0,
                columns: columns
                    .map(|(name, field)| ((*name).into(), (*field).into()))
                    .collect(),
                arguments: Map::new(),
                cells: String::new(),
                is_later: false,
            },
            kind,
            prefix: Vec::new(),
            suffix: Vec::new(),
            start: 0,
        }
    }

    fn table(stored: &Stored, rows: &[&str]) -> (Columns, String) {
        let mut columns = Columns::declared(stored);
        rows.iter().for_each(|row| columns.look(row.as_bytes()));
        let mut out = Vec::new();
        columns.write_header(b',', &mut out);
        rows.iter()
            .for_each(|row| columns.write_row(row.as_bytes(), b',', &mut out));
        (columns, String::from_utf8(out).unwrap())
    }

    const ROWS: [&str; 3] = [
        r#"{"id":9007199254740993,"x.y":1e400,"total":{"cents":5},"note":"a, \"b\""}"#,
        r#"{"id":-0.10,"note":"","none":null,"id":2}"#,
        "[1,2]",
    ];

    #[test]
    fn columns_are_the_declared_ones_and_then_every_other_field_in_order() {
        let (columns, text) = table(
            &stored(KeptKind::Pushed, &[("cents", "total.cents"), ("id", "id")]),
            &ROWS,
        );
        assert_eq!(columns.declared_count(), 2);
        assert_eq!(
            text,
            "cents,id,x.y,total,note,none,value\r\n5,9007199254740993,1e400,\"{\"\"cents\"\":5}\",\"a, \"\"b\"\"\",,\r\n\
             ,\"[-0.10,2]\",,,\"\",,\r\n,,,,,,\"[1,2]\"\r\n"
        );
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(
            reader
                .records()
                .map(|record| record.unwrap().len())
                .collect::<Vec<_>>(),
            [7; 3]
        );
    }

    #[test]
    fn chosen_columns_keep_their_order() {
        let (columns, _) = table(&stored(KeptKind::Array, &[]), &ROWS);
        let all: Vec<&str> = columns.names().collect();
        assert_eq!(all, ["id", "x.y", "total", "note", "none", "value"]);
        let chosen = columns.only(&HashSet::from([3, 0]));
        let mut out = Vec::new();
        chosen.write_header(b'\t', &mut out);
        chosen.write_row(ROWS[1].as_bytes(), b'\t', &mut out);
        chosen.write_row(b"{}", b'\t', &mut out);
        assert_eq!(out, b"id\tnote\r\n2\t\"\"\r\n\t\r\n");
    }

    #[test]
    fn lines_are_one_column() {
        let (_, text) = table(
            &stored(KeptKind::Lines, &[("a", "a")]),
            &["one, two", "{\"a\":1}", ""],
        );
        assert_eq!(
            text,
            "line\r\n\"one, two\"\r\n\"{\"\"a\"\":1}\"\r\n\"\"\r\n"
        );
    }

    #[test]
    fn a_spreadsheet_runs_no_cell() {
        for (cell, written) in [
            ("=1+1", "'=1+1"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("\r=1", "'\r=1"),
            ("-12.50", "-12.50"),
            ("+4930123", "+4930123"),
            ("a=1", "a=1"),
            ("", ""),
        ] {
            assert_eq!(guarded(cell), written);
        }
    }

    #[test]
    fn a_row_of_endless_fields_makes_no_endless_table() {
        let members: Vec<String> = (0..1_000).map(|field| format!("\"f{field}\":1")).collect();
        let row = format!("{{{}}}", members.join(","));
        let (columns, _) = table(&stored(KeptKind::Pushed, &[]), &[&row]);
        assert_eq!((columns.names().count(), columns.has_more()), (256, true));
    }
}
