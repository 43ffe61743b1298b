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
    /// JSON with its rows in the array that opens here, whose elements have been walked to their end.
    Array { open: usize },
    /// Text, whose lines are the rows.
    Lines,
    /// One piece of JSON, without the white space around it.
    Json(Range<usize>),
    /// One piece of whatever it is.
    Text,
}

/// Finds the rows of `document`. The error says what was expected and what stands there.
pub(crate) fn find(document: &[u8], source: &Rows) -> Result<Found, String> {
    match source {
        Rows::Whole => Ok(whole(document)),
        Rows::Lines => Ok(Found::Lines),
        Rows::Pointer(pointer) => at_pointer(document, pointer),
        Rows::Automatic => Ok(automatic(document).unwrap_or(Found::Lines)),
    }
}

/// A declared piece is JSON where it is an object or array and valid to its end; otherwise it is what the handler says.
fn whole(document: &[u8]) -> Found {
    let start = json::skip_space(document, 0);
    let is_json =
        matches!(document.get(start), Some(b'{' | b'[')) && json::validate(document).is_ok();
    match json::skip_value(document, start) {
        Some(end) if is_json => Found::Json(start..end),
        _ => Found::Text,
    }
}

/// The lines of a text, without their newlines. A newline at the very end ends the last line and begins none.
pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', text)
        .chain((!text.ends_with(b"\n")).then_some(text.len()))
        .filter_map(move |end| {
            let line = start..end;
            start = end + 1;
            (!text.is_empty()).then_some(line)
        })
}

fn at_pointer(document: &[u8], pointer: &Pointer) -> Result<Found, String> {
    let expected = |found: String| {
        let place = if pointer.text.is_empty() {
            "the root"
        } else {
            pointer.text.as_str()
        };
        format!("expected an array at {place}, found {found}")
    };
    let missing = |token: &str, parent: usize| {
        expected(format!("no `{token}` in {}", kind(document, parent)))
    };
    let mut at = json::skip_space(document, 0);
    let mut parent = at;
    for (index, token) in pointer.tokens.iter().enumerate() {
        parent = at;
        let next = match document.get(at) {
            // Where the rows end is looked for once, below: on the way to them that would be one more scan of them all.
            Some(b'{') if index + 1 == pointer.tokens.len() => {
                json::members(document, at).find_start(token)
            }
            Some(b'{') => json::members(document, at)
                .map_while(Result::ok)
                .find(|member| json::is_name(&document[member.key.clone()], token))
                .map(|member| member.value.start),
            Some(b'[') => token
                .parse()
                .ok()
                .and_then(|index| {
                    json::elements(document, at)
                        .map_while(Result::ok)
                        .nth(index)
                })
                .map(|element| element.start),
            _ => None,
        };
        at = next.ok_or_else(|| missing(token, parent))?;
    }
    let walked = match document.get(at) {
        Some(b'[') => walk(document, at).map_err(|Broken { at }| {
            expected(format!("one that breaks off or is malformed at byte {at}"))
        }),
        _ => Err(expected(kind(document, at).to_owned())),
    };
    match (walked, pointer.tokens.last()) {
        (Ok(_), _) => Ok(Found::Array { open: at }),
        // A member whose value does not end is none.
        (Err(_), Some(token)) if json::skip_value(document, at).is_none() => {
            Err(missing(token, parent))
        }
        (Err(error), _) => Err(error),
    }
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

/// Walks an array to its end, and says where that is.
fn walk(document: &[u8], open: usize) -> Result<usize, Broken> {
    let mut elements = json::elements(document, open);
    elements
        .by_ref()
        .try_for_each(|element| element.map(drop))?;
    Ok(elements.end())
}

/// The automatic rule: the document is an array, or an object with exactly one array of objects in its top two levels.
fn automatic(document: &[u8]) -> Result<Found, Broken> {
    let start = json::skip_space(document, 0);
    let (found, end) = match document.get(start) {
        Some(b'[') => (Found::Array { open: start }, walk(document, start)?),
        Some(b'{') => {
            let mut candidates = Vec::new();
            let end = arrays_of_objects(document, start, AUTOMATIC_LEVELS, &mut candidates)?;
            match candidates[..] {
                [open] => {
                    walk(document, open)?;
                    (Found::Array { open }, end)
                }
                _ => (Found::Json(start..end), end),
            }
        }
        // A lone scalar is JSON without rows, if it is one; anything else is text.
        Some(_) => {
            let end = json::skip_value(document, start).ok_or(Broken { at: start })?;
            json::validate(document).map_err(|invalid| Broken { at: invalid.at })?;
            (Found::Json(start..end), end)
        }
        None => return Err(Broken { at: start }),
    };
    if json::skip_space(document, end) < document.len() {
        return Err(Broken { at: end });
    }
    Ok(found)
}

/// Collects where arrays of objects open in the object at `at`, and says where that object ends.
fn arrays_of_objects(
    document: &[u8],
    at: usize,
    levels: u8,
    found: &mut Vec<usize>,
) -> Result<usize, Broken> {
    let mut members = json::members(document, at);
    for member in members.by_ref() {
        let value = member?.value;
        match document[value.start] {
            b'[' => {
                let first = json::skip_space(document, value.start + 1);
                if document.get(first) == Some(&b'{') {
                    found.push(value.start);
                }
            }
            b'{' if levels > 1 => {
                arrays_of_objects(document, value.start, levels - 1, found)?;
            }
            _ => {}
        }
    }
    Ok(members.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(document: &str, source: &Rows) -> Vec<String> {
        let bytes = document.as_bytes();
        let rows: Vec<Range<usize>> = match find(bytes, source).unwrap() {
            Found::Array { open } => json::elements(bytes, open).map(Result::unwrap).collect(),
            Found::Lines => lines(bytes).collect(),
            Found::Json(_) | Found::Text => Vec::new(),
        };
        rows.into_iter()
            .map(|row| document[row].to_owned())
            .collect()
    }

    #[test]
    fn rows_are_found_where_nothing_is_declared() {
        for document in [
            r#"[{"a":1},{"a":2}]"#,
            r#" {"n":2,"data":[{"a":1},{"a":2}],"tags":["x"]} "#,
            r#"{"page":{"items":[{"a":1},{"a":2}]},"none":[]}"#,
        ] {
            assert_eq!(
                rows(document, &Rows::Automatic),
                [r#"{"a":1}"#, r#"{"a":2}"#],
                "{document}"
            );
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
            assert_eq!(found, Found::Json(0..document.len()), "{document}");
        }
    }

    #[test]
    fn a_lone_scalar_is_json_without_rows() {
        for document in ["42", " \"a\\nb\"\n", "null", "-1e400"] {
            assert!(
                matches!(
                    find(document.as_bytes(), &Rows::Automatic),
                    Ok(Found::Json(_))
                ),
                "{document}"
            );
        }
        for document in ["42 apples", "nul", "", "NaN"] {
            assert_eq!(
                find(document.as_bytes(), &Rows::Automatic),
                Ok(Found::Lines),
                "{document}"
            );
        }
    }

    #[test]
    fn a_declared_piece_is_json_where_it_is_valid_to_its_end() {
        for (document, found) in [
            (" {\"a\":[1]}\n", Found::Json(1..10)),
            ("[1]", Found::Json(0..3)),
            ("{\"a\":NaN}", Found::Text),
            ("{\"a\":1} and more", Found::Text),
            ("prose", Found::Text),
            ("", Found::Text),
        ] {
            assert_eq!(
                find(document.as_bytes(), &Rows::Whole),
                Ok(found),
                "{document}"
            );
        }
    }

    #[test]
    fn what_is_not_json_pages_by_lines() {
        assert_eq!(
            rows("one\r\n\ntwo\n", &Rows::Automatic),
            ["one\r", "", "two"]
        );
        assert_eq!(
            rows("[INFO] start\n[WARN] end", &Rows::Automatic),
            ["[INFO] start", "[WARN] end"]
        );
        assert_eq!(
            rows("{\"a\":1}\n{\"a\":2}\n", &Rows::Automatic),
            [r#"{"a":1}"#, r#"{"a":2}"#]
        );
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
        assert_eq!(
            error,
            "expected an array at /a/x, found no `x` in an object"
        );
    }
}
