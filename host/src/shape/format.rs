//! The body: the handler's document with fewer rows, or a table of the declared columns.

use std::ops::Range;

use super::ask::Format;
use super::intake::{Kept, Kind};
use super::json;
use super::policy::Column;
use super::select::{Path, Selection, each_of};

/// The rows of a page in their final form, ready to be put together in any number.
pub(crate) struct Page<'a> {
    /// Everything that stands before the first row.
    head: &'a [u8],
    /// What stands between two rows.
    separator: &'static [u8],
    /// Everything behind the last row.
    tail: &'a [u8],
    /// Whether a line break goes before the first row and behind the last.
    is_json: bool,
    /// The rows: of the kept bytes, or of what a view or a table made of them.
    bytes: &'a [u8],
    rows: &'a [Range<usize>],
    /// The handler's document, where nothing was taken away.
    whole: Option<&'a [u8]>,
}

/// Rows after views, `fields` and tables; owns the bytes where they differ from what was kept.
pub(crate) struct Shaped {
    bytes: Vec<u8>,
    rows: Vec<Range<usize>>,
    header: Vec<u8>,
    format: Format,
}

/// Applies a selection to every kept row. None where it takes nothing away, so that the rows go out as they came in.
pub(crate) fn select(kept: &Kept, selection: &Selection) -> Option<Shaped> {
    let mut bytes = Vec::with_capacity(kept.bytes.len() / 4);
    let mut is_cut = false;
    let rows = kept
        .rows
        .iter()
        .map(|row| {
            let start = bytes.len();
            is_cut |= selection.copy(&kept.bytes[row.clone()], &mut bytes);
            start..bytes.len()
        })
        .collect();
    is_cut.then_some(Shaped {
        bytes,
        rows,
        header: Vec::new(),
        format: Format::Json,
    })
}

/// Makes a table of every kept row. None where no row has any of the columns: a table of nothing would hide them all.
pub(crate) fn table(kept: &Kept, columns: &[&Column], format: Format) -> Option<Shaped> {
    let delimiter = if format == Format::Tsv { b'\t' } else { b',' };
    let mut header = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            header.push(delimiter);
        }
        write_cell(column.name.as_bytes(), delimiter, &mut header);
    }
    let mut bytes = Vec::with_capacity(kept.bytes.len() / 4);
    let mut has_values = kept.rows.is_empty();
    let fields: Vec<&Path> = columns.iter().map(|column| &column.field).collect();
    let mut cells: Vec<Cell<'_>> = columns.iter().map(|_| Cell::default()).collect();
    let rows = kept
        .rows
        .iter()
        .map(|row| {
            let start = bytes.len();
            cells.iter_mut().for_each(Cell::clear);
            each_of(&fields, &kept.bytes[row.clone()], |index, value| {
                cells[index].add(value);
            });
            for (index, cell) in cells.iter_mut().enumerate() {
                if index > 0 {
                    bytes.push(delimiter);
                }
                has_values |= cell.write(delimiter, &mut bytes);
            }
            if bytes.len() == start {
                // A line with nothing on it is no row to a reader.
                write_cell(b"", delimiter, &mut bytes);
            }
            start..bytes.len()
        })
        .collect();
    has_values.then_some(Shaped {
        bytes,
        rows,
        header,
        format,
    })
}

/// One cell: the content of a string, nothing for null and missing, and JSON for everything else. A path that finds
/// several values makes an array of them.
#[derive(Default)]
struct Cell<'a> {
    first: Option<&'a [u8]>,
    /// The array so far, without its end, where there are several.
    several: Vec<u8>,
}

impl<'a> Cell<'a> {
    fn clear(&mut self) {
        self.first = None;
        self.several.clear();
    }

    fn add(&mut self, value: &'a [u8]) {
        let Some(first) = self.first else {
            self.first = Some(value);
            return;
        };
        if self.several.is_empty() {
            self.several.push(b'[');
            self.several.extend_from_slice(first);
        }
        self.several.push(b',');
        self.several.extend_from_slice(value);
    }

    /// Writes the cell; false where the row does not have the field.
    fn write(&mut self, delimiter: u8, out: &mut Vec<u8>) -> bool {
        if !self.several.is_empty() {
            self.several.push(b']');
            write_cell(&self.several, delimiter, out);
            return true;
        }
        match self.first {
            None | Some([b'n', ..]) => {}
            // In JSON quotes and line breaks of a string are escaped, and a number has neither.
            Some([b'"', content @ .., b'"'])
                if !content.is_empty() && memchr::memchr2(b'\\', delimiter, content).is_none() =>
            {
                out.extend_from_slice(content);
            }
            Some(value @ [b'0'..=b'9' | b'-' | b't' | b'f', ..]) => out.extend_from_slice(value),
            Some(value @ [b'"', content @ .., b'"']) => match json::content(content) {
                Some(text) => write_cell(text.as_bytes(), delimiter, out),
                None => write_cell(value, delimiter, out),
            },
            Some(value) => write_cell(value, delimiter, out),
        }
        self.first.is_some()
    }
}

/// Writes a cell as RFC 4180 wants it. Empty text is quoted, so that it differs from a missing value.
pub(crate) fn write_cell(text: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    let is_plain = !text.is_empty()
        && !text
            .iter()
            .any(|byte| *byte == delimiter || matches!(byte, b'"' | b'\r' | b'\n'));
    if is_plain {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for piece in text.split_inclusive(|byte| *byte == b'"') {
        out.extend_from_slice(piece);
        if piece.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}

impl Shaped {
    /// Bytes of its rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> Page<'a> {
    /// The page as kept, in the form of the handler's document.
    pub(crate) fn of_kept(kept: &'a Kept) -> Self {
        let whole = kept.is_whole.then_some(kept.bytes.as_slice());
        Self {
            bytes: &kept.bytes,
            rows: &kept.rows,
            whole,
            ..Self::frame(kept)
        }
    }

    /// The page with its rows in another form.
    pub(crate) fn of_shaped(kept: &'a Kept, shaped: &'a Shaped) -> Self {
        let (bytes, rows) = (&shaped.bytes, &shaped.rows);
        match shaped.format {
            Format::Json => Self {
                bytes,
                rows,
                ..Self::frame(kept)
            },
            Format::Csv | Format::Tsv => Self {
                head: &shaped.header,
                separator: b"\n",
                tail: b"",
                is_json: false,
                bytes,
                rows,
                whole: None,
            },
        }
    }

    fn frame(kept: &'a Kept) -> Self {
        let (head, tail): (&[u8], &[u8]) = match kept.kind {
            Kind::Pushed => (b"[", b"]"),
            _ => (
                &kept.bytes[kept.prefix.clone()],
                &kept.bytes[kept.suffix.clone()],
            ),
        };
        let is_json = matches!(kept.kind, Kind::Array | Kind::Pushed);
        let separator = if is_json { b",\n".as_slice() } else { b"\n" };
        Self {
            head,
            separator,
            tail,
            is_json,
            bytes: &[],
            rows: &[],
            whole: None,
        }
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// One row.
    pub(crate) fn row(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.rows[index].clone()]
    }

    /// Bytes of the body with its first `rows` rows.
    pub(crate) fn bytes_with(&self, rows: usize) -> usize {
        if let Some(whole) = self.whole
            && rows == self.rows.len()
        {
            return whole.len();
        }
        let content: usize = self.rows[..rows].iter().map(Range::len).sum();
        content + self.frame_bytes(rows)
    }

    /// Bytes of the body that are not rows.
    pub(crate) fn frame_bytes(&self, rows: usize) -> usize {
        let breaks = match (self.is_json, rows) {
            (_, 0) => 0,
            (true, _) => 2,
            // A table has a line break behind its header; lines have nothing before the first.
            (false, _) => usize::from(!self.head.is_empty()),
        };
        self.head.len() + self.tail.len() + breaks + self.separator.len() * rows.saturating_sub(1)
    }

    /// Line breaks of the body that are not in rows.
    pub(crate) fn frame_breaks(&self, rows: usize) -> usize {
        let in_parts = memchr::memchr_iter(b'\n', self.head).count()
            + memchr::memchr_iter(b'\n', self.tail).count();
        let around = if self.is_json { 2 } else { 1 };
        in_parts + if rows == 0 { 0 } else { rows - 1 + around }
    }

    /// Whether all rows go out as the handler's own document.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// The body with its first `rows` rows. Every part of it came in as UTF-8.
    pub(crate) fn body(&self, rows: usize) -> String {
        if let Some(whole) = self.whole
            && rows == self.rows.len()
        {
            return text(whole.to_vec());
        }
        let mut body = Vec::with_capacity(self.bytes_with(rows));
        body.extend_from_slice(self.head);
        for (index, row) in self.rows[..rows].iter().enumerate() {
            if index > 0 {
                body.extend_from_slice(self.separator);
            } else if self.is_json || !self.head.is_empty() {
                body.push(b'\n');
            }
            body.extend_from_slice(&self.bytes[row.clone()]);
        }
        if self.is_json && rows > 0 {
            body.push(b'\n');
        }
        body.extend_from_slice(self.tail);
        text(body)
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .expect("documents and pushed rows are checked at intake, and cut between values only")
}

#[cfg(test)]
mod tests {
    use super::super::select::Path;
    use super::*;

    fn kept(rows: &[&str]) -> Kept {
        let mut bytes = Vec::new();
        let rows = rows
            .iter()
            .map(|row| {
                bytes.extend_from_slice(row.as_bytes());
                bytes.len() - row.len()..bytes.len()
            })
            .collect();
        Kept {
            kind: Kind::Pushed,
            bytes,
            rows,
            prefix: 0..0,
            suffix: 0..0,
            is_whole: false,
            is_short: false,
        }
    }

    fn columns(fields: &[(&str, &str)]) -> Vec<Column> {
        fields
            .iter()
            .map(|(name, field)| Column {
                name: (*name).into(),
                field: Path::new(field).unwrap(),
            })
            .collect()
    }

    #[test]
    fn a_table_quotes_header_and_cells_and_tells_null_from_empty() {
        let kept = kept(&[
            r#"{"a":"x,y","b":"say \"hi\"","c":null,"d":{"k":[1,2]}}"#,
            r#"{"a":"","b":"NULL","c":"two\nlines","d":9007199254740993}"#,
            r#"{"gates":[{"v":"ok"},{"v":"no"}]}"#,
        ]);
        let columns = columns(&[
            ("a,1", "a"),
            ("b", "b"),
            ("c", "c"),
            ("d", "d"),
            ("v", "gates.v"),
        ]);
        let columns: Vec<&Column> = columns.iter().collect();
        let shaped = table(&kept, &columns, Format::Csv).unwrap();
        let page = Page::of_shaped(&kept, &shaped);
        let body = page.body(3);
        assert_eq!(
            body,
            "\"a,1\",b,c,d,v\n\"x,y\",\"say \"\"hi\"\"\",,\"{\"\"k\"\":[1,2]}\",\n\"\",NULL,\"two\nlines\",9007199254740993,\n,,,,\"[\"\"ok\"\",\"\"no\"\"]\""
        );
        assert_eq!(body.len(), page.bytes_with(3));
        let mut reader = csv::Reader::from_reader(body.as_bytes());
        assert_eq!(reader.headers().unwrap().get(0), Some("a,1"));
        assert_eq!(
            reader
                .records()
                .map(|record| record.unwrap().len())
                .collect::<Vec<_>>(),
            [5, 5, 5]
        );
    }

    #[test]
    fn a_tsv_cell_with_a_tab_is_quoted_and_a_backslash_is_not() {
        let kept = kept(&[r#"{"a":"x\ty","b":"\\"}"#]);
        let columns = columns(&[("a", "a"), ("b", "b")]);
        let shaped = table(&kept, &columns.iter().collect::<Vec<_>>(), Format::Tsv).unwrap();
        assert_eq!(
            Page::of_shaped(&kept, &shaped).body(1),
            "a\tb\n\"x\ty\"\t\\"
        );
    }

    #[test]
    fn a_missing_value_in_the_only_column_is_a_row_all_the_same() {
        let kept = kept(&[r#"{"a":null}"#, r#"{"a":1}"#, "{}"]);
        let columns = columns(&[("a", "a")]);
        let shaped = table(&kept, &columns.iter().collect::<Vec<_>>(), Format::Csv).unwrap();
        let body = Page::of_shaped(&kept, &shaped).body(3);
        assert_eq!(body, "a\n\"\"\n1\n\"\"");
        assert_eq!(
            csv::Reader::from_reader(body.as_bytes()).records().count(),
            3
        );
    }

    #[test]
    fn rows_without_any_of_the_columns_make_no_table() {
        let columns = columns(&[("a", "a")]);
        assert!(
            table(
                &kept(&["1", "[]"]),
                &columns.iter().collect::<Vec<_>>(),
                Format::Csv
            )
            .is_none()
        );
        assert!(table(&kept(&[]), &columns.iter().collect::<Vec<_>>(), Format::Csv).is_some());
    }

    #[test]
    fn pushed_rows_come_one_a_line() {
        let kept = kept(&["1", "2"]);
        let page = Page::of_kept(&kept);
        assert_eq!(page.body(2), "[\n1,\n2\n]");
        assert_eq!(page.body(0), "[]");
        for rows in 0..=2 {
            assert_eq!(page.bytes_with(rows), page.body(rows).len());
        }
    }
}
