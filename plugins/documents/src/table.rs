//! Finding the rows of a file. A row of a JSON document is the slice of the file that it is; nothing is rendered again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::folder::Format;

/// Rows, and how they lie in the file.
pub(crate) enum Table<'a> {
    /// The elements of an array.
    Values(Vec<&'a RawValue>),
    /// Lines, without their ends.
    Lines(Vec<&'a str>),
    /// Records, which become objects when they are asked for.
    Csv(Csv<'a>),
}

/// The records of a CSV file.
pub(crate) struct Csv<'a> {
    text: &'a str,
    /// The beginning of each member of a row: its name as JSON, and a colon.
    members: Vec<String>,
    count: usize,
}

/// A table and where in its file it was found.
pub(crate) struct Found<'a> {
    /// The members that lead to it from the root of the document.
    pub(crate) members: Vec<String>,
    pub(crate) table: Table<'a>,
}

/// Finds the tables of a file, those whose members are `wanted`.
///
/// # Errors
///
/// What makes the file something else than its format promises.
pub(crate) fn find(
    format: Format,
    bytes: &[u8],
    wanted: impl Fn(&[String]) -> bool,
) -> Result<Vec<Found<'_>>, String> {
    // Once for all that follows: whatever is cut out of the text needs no check of its own.
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let table = match format {
        Format::Json => return find_in_document(text, wanted),
        _ if !wanted(&[]) => return Ok(Vec::new()),
        Format::Lines => Table::Lines(
            text.lines()
                .map(str::trim_ascii)
                .filter(|line| !line.is_empty())
                .collect(),
        ),
        Format::Csv => Table::Csv(Csv::new(text)?),
    };
    Ok(vec![Found {
        members: Vec::new(),
        table,
    }])
}

/// The document, where it is an array of objects; else the arrays of objects in the top two levels of the object that
/// it is.
fn find_in_document(
    text: &str,
    wanted: impl Fn(&[String]) -> bool,
) -> Result<Vec<Found<'_>>, String> {
    let document = text.trim_ascii_start();
    if kind(document) == Some(b'[') {
        // An empty one is a collection that has no rows yet.
        return Ok(objects(document)?
            .filter(|_| wanted(&[]))
            .map(|rows| Found {
                members: Vec::new(),
                table: Table::Values(rows),
            })
            .into_iter()
            .collect());
    }
    let mut tables = Vec::new();
    let mut add = |members: Vec<String>, value| -> Result<(), String> {
        if kind(value) == Some(b'[')
            && wanted(&members)
            && let Some(rows) = objects(value)?.filter(|rows| !rows.is_empty())
        {
            tables.push(Found {
                members,
                table: Table::Values(rows),
            });
        }
        Ok(())
    };
    for (name, value) in members(document)? {
        for (inner_name, inner) in members(value.get())? {
            add(vec![name.to_string(), inner_name.into_owned()], inner.get())?;
        }
        add(vec![name.into_owned()], value.get())?;
    }
    Ok(tables)
}

/// The elements of an array, if all of them are objects.
fn objects(array: &str) -> Result<Option<Vec<&RawValue>>, String> {
    let rows: Vec<&RawValue> = parse(array)?;
    Ok(rows
        .iter()
        .all(|row| kind(row.get()) == Some(b'{'))
        .then_some(rows))
}

/// The members of an object, none of anything else.
fn members(value: &str) -> Result<Vec<(Cow<'_, str>, &RawValue)>, String> {
    if kind(value) != Some(b'{') {
        return Ok(Vec::new());
    }
    parse(value).map(|Members(members)| members)
}

/// The byte that a JSON value begins with, which tells what it is.
pub(crate) fn kind(value: &str) -> Option<u8> {
    value.bytes().next()
}

/// Reads JSON.
///
/// # Errors
///
/// What is wrong with it and where.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// The members of an object in their order, each value as its bytes.
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A name, borrowed where it has no escapes.
        #[derive(serde::Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Name(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Table<'_> {
    /// How many rows there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Values(rows) => rows.len(),
            Self::Lines(lines) => lines.len(),
            Self::Csv(csv) => csv.count,
        }
    }

    /// Shows `visit` every row, until it has seen enough.
    ///
    /// # Errors
    ///
    /// Where a record cannot be read.
    pub(crate) fn each(
        &self,
        mut visit: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(), String> {
        match self {
            Self::Values(rows) => {
                let _ = rows.iter().try_for_each(|row| visit(row.get()));
            }
            Self::Lines(lines) => {
                let _ = lines.iter().try_for_each(|line| visit(line));
            }
            Self::Csv(csv) => csv.each(visit)?,
        }
        Ok(())
    }
}

impl<'a> Csv<'a> {
    fn new(text: &'a str) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut members = Vec::new();
        for (index, header) in reader
            .headers()
            .map_err(|error| error.to_string())?
            .iter()
            .enumerate()
        {
            let mut name = header.trim().to_owned();
            // An object cannot have two members of one name, nor one that nobody can write.
            if name.is_empty() || !names.insert(name.clone()) {
                name = format!("column_{}", index + 1);
                names.insert(name.clone());
            }
            members.push(format!("{}:", serde_json::Value::from(name)));
        }
        let mut count = 0;
        let mut record = csv::ByteRecord::new();
        while reader
            .read_byte_record(&mut record)
            .map_err(|error| error.to_string())?
        {
            count += 1;
        }
        Ok(Self {
            text,
            members,
            count,
        })
    }

    fn each(&self, mut visit: impl FnMut(&str) -> ControlFlow<()>) -> Result<(), String> {
        let mut reader = csv::Reader::from_reader(self.text.as_bytes());
        let mut record = csv::StringRecord::new();
        let mut row = String::new();
        while reader
            .read_record(&mut record)
            .map_err(|error| error.to_string())?
        {
            row.clear();
            for (member, cell) in self.members.iter().zip(&record) {
                row.push(if row.is_empty() { '{' } else { ',' });
                row.push_str(member);
                row.push_str(&serde_json::to_string(cell).map_err(|error| error.to_string())?);
            }
            row.push('}');
            if visit(&row).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Appends a row and a line end, without the line ends in the row and the indentation behind them. JSON has line ends
/// between tokens only, where no white space at all is needed, so every token keeps its bytes.
pub(crate) fn push_as_one_line(row: &str, lines: &mut Vec<u8>) {
    let mut rest = row.as_bytes();
    while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
        lines.extend_from_slice(&rest[..end]);
        rest = rest[end..].trim_ascii_start();
    }
    lines.extend_from_slice(rest);
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table of a file: its members joined by dots, and its rows.
    fn tables(format: Format, bytes: &[u8]) -> Vec<(String, Vec<String>)> {
        find(format, bytes, |_| true)
            .unwrap()
            .into_iter()
            .map(|found| {
                let mut rows = Vec::new();
                let visit = |row: &str| {
                    rows.push(row.to_owned());
                    ControlFlow::Continue(())
                };
                found.table.each(visit).unwrap();
                assert_eq!(rows.len(), found.table.count());
                (found.members.join("."), rows)
            })
            .collect()
    }

    #[test]
    fn rows_of_an_array_keep_their_bytes() {
        let document = br#" [ {"n": 9007199254740993, "x":1e400}, {"n":0.10,"n":2} ] "#;
        let rows = [
            r#"{"n": 9007199254740993, "x":1e400}"#,
            r#"{"n":0.10,"n":2}"#,
        ];
        assert_eq!(
            tables(Format::Json, document),
            [(String::new(), rows.map(str::to_owned).to_vec())]
        );
        assert_eq!(tables(Format::Json, b"[]"), [(String::new(), vec![])]);
        assert_eq!(tables(Format::Json, b"[1,2]"), []);
    }

    #[test]
    fn arrays_of_objects_in_the_top_two_levels_of_an_object_are_tables() {
        let document = br#"{"version":1,"packages":[{"a":1}],"ids":["x"],"none":[],
            "resolve":{"root":null,"nodes":[{"b":1},{"b":2}],"deep":{"c":[{"d":1}]}}}"#;
        let found = tables(Format::Json, document);
        let names: Vec<_> = found
            .iter()
            .map(|(name, rows)| (name.as_str(), rows.len()))
            .collect();
        assert_eq!(names, [("packages", 1), ("resolve.nodes", 2)]);
        assert_eq!(tables(Format::Json, b"7"), []);
    }

    #[test]
    fn lines_are_rows_without_the_empty_ones() {
        let rows = [r#"{"a":1}"#, r#"{"a": 2}"#];
        assert_eq!(
            tables(Format::Lines, b"\xef\xbb\xbf{\"a\":1}\r\n\n{\"a\": 2}"),
            [(String::new(), rows.map(str::to_owned).to_vec())]
        );
    }

    #[test]
    fn records_become_objects_of_texts() {
        let bytes = b"id,note,id,\n1,\"a \"\"b\"\"\",,\n2,\"two\nlines\",3,4\n";
        let rows = [
            r#"{"id":"1","note":"a \"b\"","column_3":"","column_4":""}"#,
            r#"{"id":"2","note":"two\nlines","column_3":"3","column_4":"4"}"#,
        ];
        assert_eq!(
            tables(Format::Csv, bytes),
            [(String::new(), rows.map(str::to_owned).to_vec())]
        );
    }

    #[test]
    fn what_is_no_such_file_is_an_error() {
        assert!(find(Format::Json, b"[{\"a\":1}", |_| true).is_err());
        assert!(find(Format::Csv, b"a,b\n1\n", |_| true).is_err());
    }

    #[test]
    fn only_what_is_wanted_is_found() {
        let document = br#"{"a":[{"x":1}],"b":[{"x":1}]}"#;
        let found = find(Format::Json, document, |members| members == ["b"]).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].members, ["b"]);
    }

    #[test]
    fn a_row_on_many_lines_becomes_one_line_with_the_same_tokens() {
        let mut lines = Vec::new();
        push_as_one_line(
            "{\r\n  \"a b\": 1.0,\n\t\"c\": [\n\n    2\n  ]\n}",
            &mut lines,
        );
        push_as_one_line("{}", &mut lines);
        assert_eq!(lines, b"{\"a b\": 1.0,\"c\": [2]}\n{}\n");
    }
}
