//! Where the rows of a document are.
//!
//! Owns: the declared pointer and the automatic rule. Does not look into rows.

use std::ops::Range;

use super::json::{self, Broken};
use super::policy::{Pointer, Rows};

/// How deep the automatic rule looks: members of the document, and members of those.
const AUTOMATIC_LEVELS: u8 = 2;

/// What a document turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// JSON with its rows in the array that opens at `open`; `rows` are its elements and `end` is behind the bracket.
    Array { open: usize, end: usize, rows: Vec<Range<usize>> },
    /// Text, whose lines are the rows.
    Lines(Vec<Range<usize>>),
    /// One piece. `is_json` where it has the structure of a JSON array or object.
    Whole { is_json: bool },
}

/// Finds the rows of `document`. The error says what was expected and what stands there.
pub(crate) fn find(document: &[u8], source: &Rows) -> Result<Found, String> {
    match source {
        Rows::Whole => Ok(Found::Whole { is_json: false }),
        Rows::Lines => Ok(Found::Lines(lines(document))),
        Rows::Pointer(pointer) => at_pointer(document, pointer),
        Rows::Automatic => Ok(automatic(document).unwrap_or_else(|Broken { .. }| Found::Lines(lines(document)))),
    }
}

/// The lines of a text, without their newlines. A newline at the very end ends the last line and begins none.
fn lines(text: &[u8]) -> Vec<Range<usize>> {
    let mut start = 0;
    let mut lines: Vec<Range<usize>> = memchr::memchr_iter(b'\n', text)
        .map(|newline| {
            let line = start..newline;
            start = newline + 1;
            line
        })
        .collect();
    if start < text.len() {
        lines.push(start..text.len());
    }
    lines
}

fn at_pointer(document: &[u8], pointer: &Pointer) -> Result<Found, String> {
    let expected = |found: String| {
        let place = if pointer.text.is_empty() { "the root" } else { pointer.text.as_str() };
        format!("expected an array at {place}, found {found}")
    };
    let mut at = json::skip_space(document, 0);
    for token in &pointer.tokens {
        let next = match document.get(at) {
            Some(b'{') => json::members(document, at)
                .map_while(Result::ok)
                .find(|member| json::key_is(&document[member.key.clone()], token))
                .map(|member| member.value.start),
            Some(b'[') => token
                .parse()
                .ok()
                .and_then(|index| json::elements(document, at).map_while(Result::ok).nth(index))
                .map(|element| element.start),
            _ => None,
        };
        at = next.ok_or_else(|| expected(format!("no `{token}` in {}", kind(document, at))))?;
    }
    if document.get(at) != Some(&b'[') {
        return Err(expected(kind(document, at).to_owned()));
    }
    array(document, at).map_err(|Broken { at }| expected(format!("one that breaks off or is malformed at byte {at}")))
}

/// What kind of value begins at `at`, in words.
pub(crate) fn kind(text: &[u8], at: usize) -> &'static str {
    match text.get(at) {
        None => "nothing",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        Some(_) => "text that is not JSON",
    }
}

fn array(document: &[u8], open: usize) -> Result<Found, Broken> {
    let mut elements = json::elements(document, open);
    let rows = elements.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok(Found::Array { open, end: elements.end(), rows })
}

/// The automatic rule: the document is an array, or an object with exactly one array of objects in its top two levels.
fn automatic(document: &[u8]) -> Result<Found, Broken> {
    let start = json::skip_space(document, 0);
    let found = match document.get(start) {
        Some(b'[') => array(document, start)?,
        Some(b'{') => {
            let mut candidates = Vec::new();
            arrays_of_objects(document, start, AUTOMATIC_LEVELS, &mut candidates)?;
            match candidates[..] {
                [open] => array(document, open)?,
                _ => Found::Whole { is_json: true },
            }
        }
        _ => return Err(Broken { at: start }),
    };
    let end = json::skip_value(document, start).ok_or(Broken { at: start })?;
    if json::skip_space(document, end) < document.len() {
        return Err(Broken { at: end });
    }
    Ok(found)
}

fn arrays_of_objects(document: &[u8], at: usize, levels: u8, found: &mut Vec<usize>) -> Result<(), Broken> {
    for member in json::members(document, at) {
        let value = member?.value;
        match document[value.start] {
            b'[' => {
                let first = json::skip_space(document, value.start + 1);
                if document.get(first) == Some(&b'{') {
                    found.push(value.start);
                }
            }
            b'{' if levels > 1 => arrays_of_objects(document, value.start, levels - 1, found)?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(document: &str, source: &Rows) -> Vec<String> {
        match find(document.as_bytes(), source).unwrap() {
            Found::Array { rows, .. } | Found::Lines(rows) => rows.into_iter().map(|row| document[row].to_owned()).collect(),
            Found::Whole { .. } => Vec::new(),
        }
    }

    #[test]
    fn rows_are_found_where_nothing_is_declared() {
        for document in [
            r#"[{"a":1},{"a":2}]"#,
            r#" {"n":2,"data":[{"a":1},{"a":2}],"tags":["x"]} "#,
            r#"{"page":{"items":[{"a":1},{"a":2}]},"none":[]}"#,
        ] {
            assert_eq!(rows(document, &Rows::Automatic), [r#"{"a":1}"#, r#"{"a":2}"#], "{document}");
        }
    }

    #[test]
    fn two_arrays_of_objects_or_a_third_level_are_one_piece() {
        for document in [
            r#"{"a":[{"x":1}],"b":[{"y":1}]}"#,
            r#"{"a":{"b":{"c":[{"x":1}]}}}"#,
            r#"{"a":[1,2]}"#,
        ] {
            let found = find(document.as_bytes(), &Rows::Automatic).unwrap();
            assert_eq!(found, Found::Whole { is_json: true }, "{document}");
        }
    }

    #[test]
    fn what_is_not_json_pages_by_lines() {
        assert_eq!(rows("one\r\n\ntwo\n", &Rows::Automatic), ["one\r", "", "two"]);
        assert_eq!(rows("[INFO] start\n[WARN] end", &Rows::Automatic), ["[INFO] start", "[WARN] end"]);
        assert_eq!(rows("{\"a\":1}\n{\"a\":2}\n", &Rows::Automatic), [r#"{"a":1}"#, r#"{"a":2}"#]);
        assert_eq!(rows("", &Rows::Automatic), [""; 0]);
    }

    #[test]
    fn a_pointer_that_leads_nowhere_says_what_stands_there() {
        let pointer = |text: &str| Rows::Pointer(Pointer::new(text).unwrap());
        let document = r#"{"a":{"b/c":[[1],[2]]},"s":"x"}"#;
        assert_eq!(rows(document, &pointer("/a/b~1c")), ["[1]", "[2]"]);
        assert_eq!(rows(document, &pointer("/a/b~1c/1")), ["2"]);
        let error = find(document.as_bytes(), &pointer("/s")).unwrap_err();
        assert_eq!(error, "expected an array at /s, found a string");
        let error = find(document.as_bytes(), &pointer("/a/x")).unwrap_err();
        assert_eq!(error, "expected an array at /a/x, found no `x` in an object");
    }
}
