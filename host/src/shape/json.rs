//! Finds the bounds of JSON values without parsing them.
//!
//! Owns: where a value ends, the elements of an array, the members of an object, as byte ranges. A scan here is
//! structural: it trusts that strings and brackets are well formed and never looks into a scalar. What is delivered is
//! validated apart from that, by [`validate`]; what is only counted needs its bounds alone.

use std::borrow::Cow;
use std::ops::Range;

use super::blocks::{self, Blocks};

/// The first byte at or behind `at` that is not white space, as an index; the length where there is none.
pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && matches!(text[at], b' ' | b'\n' | b'\r' | b'\t') {
        at += 1;
    }
    at
}

/// Where the string that opens at `at` ends: the index behind its closing quote.
fn skip_string(text: &[u8], at: usize) -> Option<usize> {
    blocks::skip_string(text, at + 1)
}

/// Where the value that begins at `at` ends. None where it does not end inside `text`, or where none begins.
pub(crate) fn skip_value(text: &[u8], at: usize) -> Option<usize> {
    skip_with(&mut Blocks::new(text), text, at)
}

/// The same over a walk that goes on: where one value ended, the next one mostly begins in the same block.
fn skip_with(blocks: &mut Blocks<'_>, text: &[u8], at: usize) -> Option<usize> {
    match *text.get(at)? {
        b'"' => skip_string(text, at),
        b'{' | b'[' => blocks.skip(at),
        b',' | b':' | b'}' | b']' => None,
        _ => {
            let length = text[at..]
                .iter()
                .position(|byte| {
                    matches!(
                        byte,
                        b',' | b'{'
                            | b'}'
                            | b'['
                            | b']'
                            | b':'
                            | b' '
                            | b'\n'
                            | b'\r'
                            | b'\t'
                            | b'"'
                    )
                })
                .unwrap_or(text.len() - at);
            (length > 0).then_some(at + length)
        }
    }
}

/// The elements of an array or the members of an object, as ranges into the text they were found in.
///
/// Yields `Err` once where the text breaks off or is not what it should be, and nothing after that.
struct Items<'a> {
    text: &'a [u8],
    at: usize,
    close: u8,
    state: State,
    blocks: Blocks<'a>,
}

#[derive(PartialEq)]
enum State {
    First,
    Next,
    Done,
}

/// The text is not an array or object that a structural scan can walk; the offset says where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Byte offset into the text that was scanned.
    pub(crate) at: usize,
}

impl<'a> Items<'a> {
    fn new(text: &'a [u8], at: usize, close: u8) -> Self {
        Self {
            text,
            at: at + 1,
            close,
            state: State::First,
            blocks: Blocks::new(text),
        }
    }

    fn fail<T>(&mut self) -> Option<Result<T, Broken>> {
        self.state = State::Done;
        Some(Err(Broken { at: self.at }))
    }

    /// Moves to the next item; false at the end.
    fn advance(&mut self) -> Option<Result<(), Broken>> {
        if self.state == State::Done {
            return None;
        }
        self.at = skip_space(self.text, self.at);
        match self.text.get(self.at) {
            Some(byte) if *byte == self.close => {
                self.at += 1;
                self.state = State::Done;
                None
            }
            Some(b',') if self.state == State::Next => {
                self.at = skip_space(self.text, self.at + 1);
                Some(Ok(()))
            }
            Some(_) if self.state == State::First => {
                self.state = State::Next;
                Some(Ok(()))
            }
            _ => self.fail(),
        }
    }

    fn value(&mut self) -> Result<Range<usize>, Broken> {
        let start = self.at;
        match skip_with(&mut self.blocks, self.text, start) {
            Some(end) => {
                self.at = end;
                Ok(start..end)
            }
            None => {
                self.state = State::Done;
                Err(Broken { at: start })
            }
        }
    }
}

/// The elements of the array that opens at an offset.
pub(crate) struct Elements<'a>(Items<'a>);

/// Walks the array that opens at `at`, where there must be a `[`.
pub(crate) fn elements(text: &[u8], at: usize) -> Elements<'_> {
    debug_assert_eq!(text[at], b'[');
    Elements(Items::new(text, at, b']'))
}

impl Elements<'_> {
    /// Behind the closing bracket, once the walk has come to its end.
    pub(crate) fn end(&self) -> usize {
        self.0.at
    }
}

impl Iterator for Elements<'_> {
    type Item = Result<Range<usize>, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.advance()? {
            Ok(()) => Some(self.0.value()),
            Err(broken) => Some(Err(broken)),
        }
    }
}

/// One member of an object: the key between its quotes, not unescaped, and the value.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The members of the object that opens at an offset.
pub(crate) struct Members<'a>(Items<'a>);

/// Walks the object that opens at `at`, where there must be a `{`.
pub(crate) fn members(text: &[u8], at: usize) -> Members<'_> {
    debug_assert_eq!(text[at], b'{');
    Members(Items::new(text, at, b'}'))
}

impl Members<'_> {
    /// Behind the closing bracket, once the walk has come to its end.
    pub(crate) fn end(&self) -> usize {
        self.0.at
    }

    /// Where the value of the first member of this name begins. Where it ends is not looked for.
    pub(crate) fn find_start(mut self, name: &str) -> Option<usize> {
        loop {
            let key = self.key()?.ok()?;
            if is_name(&self.0.text[key], name) {
                return Some(self.0.at);
            }
            self.0.value().ok()?;
        }
    }

    /// Moves to the next value, and says what its key is.
    fn key(&mut self) -> Option<Result<Range<usize>, Broken>> {
        let items = &mut self.0;
        if let Err(broken) = items.advance()? {
            return Some(Err(broken));
        }
        if items.text.get(items.at) != Some(&b'"') {
            return items.fail();
        }
        let Some(key_end) = skip_string(items.text, items.at) else {
            return items.fail();
        };
        let key = items.at + 1..key_end - 1;
        items.at = skip_space(items.text, key_end);
        if items.text.get(items.at) != Some(&b':') {
            return items.fail();
        }
        items.at = skip_space(items.text, items.at + 1);
        Some(Ok(key))
    }
}

impl Iterator for Members<'_> {
    type Item = Result<Member, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = match self.key()? {
            Ok(key) => key,
            Err(broken) => return Some(Err(broken)),
        };
        Some(self.0.value().map(|value| Member { key, value }))
    }
}

/// A raw key (between its quotes, escapes and all) that is compared with several names.
pub(crate) struct Key<'a> {
    raw: &'a [u8],
    has_escapes: bool,
}

impl<'a> Key<'a> {
    pub(crate) fn new(raw: &'a [u8]) -> Self {
        Self {
            raw,
            has_escapes: memchr::memchr(b'\\', raw).is_some(),
        }
    }

    /// Whether it spells this name.
    pub(crate) fn is(&self, name: &str) -> bool {
        self.raw == name.as_bytes()
            || self.has_escapes && unescape(self.raw).is_some_and(|spelled| spelled == name)
    }
}

/// Whether a raw key (between its quotes, escapes and all) spells this name.
pub(crate) fn is_name(raw: &[u8], name: &str) -> bool {
    // With an escape it is longer than what it spells.
    raw.len() >= name.len() && Key::new(raw).is(name)
}

/// The name that a raw key (between its quotes, escapes and all) spells. None where it spells none.
pub(crate) fn name(raw: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', raw).is_none() {
        return std::str::from_utf8(raw).ok().map(Cow::Borrowed);
    }
    unescape(raw).map(Cow::Owned)
}

/// The text that a raw string (between its quotes) stands for, borrowed where it has no escapes. None as by [`unescape`].
pub(crate) fn content(raw: &[u8]) -> Option<Cow<'_, str>> {
    let is_plain = !raw.iter().any(|byte| *byte < b' ' || *byte == b'\\');
    match std::str::from_utf8(raw) {
        Ok(text) if is_plain => Some(Cow::Borrowed(text)),
        _ => unescape(raw).map(Cow::Owned),
    }
}

/// The text that a raw string (between its quotes) stands for. None where an escape or the UTF-8 is broken.
pub(crate) fn unescape(raw: &[u8]) -> Option<String> {
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// What makes a text that was to be JSON something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Invalid {
    /// Byte offset.
    pub(crate) at: usize,
    /// What is wrong, and what stands there.
    pub(crate) what: String,
}

/// Checks that `text` is one JSON value and nothing else.
pub(crate) fn validate(text: &[u8]) -> Result<(), Invalid> {
    serde_json::from_slice::<serde::de::IgnoredAny>(text)
        .map(drop)
        .map_err(|error| {
            let at = offset(text, error.line(), error.column());
            let near =
                String::from_utf8_lossy(&text[at.min(text.len())..(at + 12).min(text.len())])
                    .into_owned();
            let reason = error.to_string();
            let reason = reason
                .split(" at line")
                .next()
                .unwrap_or(&reason)
                .to_owned();
            Invalid {
                at,
                what: if near.is_empty() {
                    reason
                } else {
                    format!("{reason}, found `{near}`")
                },
            }
        })
}

/// The byte offset of a line and column as serde_json counts them: lines from 1, columns from 1 in bytes.
fn offset(text: &[u8], line: usize, column: usize) -> usize {
    let start = if line <= 1 {
        0
    } else {
        memchr::memchr_iter(b'\n', text)
            .nth(line - 2)
            .map_or(0, |newline| newline + 1)
    };
    (start + column.saturating_sub(1)).min(text.len())
}

/// Where byte `at` stands in a JSON text, as a path such as `$.rows[3].avg`.
pub(crate) fn path_at(text: &[u8], at: usize) -> String {
    let mut path = String::from("$");
    let mut start = skip_space(text, 0);
    // A place deeper than this is named by its first steps: a path is for people.
    for _ in 0..16 {
        // A value that is broken ends the walk early, so the last item that begins before the place is the one.
        let step = match text.get(start) {
            Some(b'{') => members(text, start)
                .map_while(Result::ok)
                .take_while(|member| member.value.start <= at)
                .last()
                .filter(|member| at <= member.value.end)
                .map(|member| {
                    (
                        format!(".{}", String::from_utf8_lossy(&text[member.key])),
                        member.value.start,
                    )
                }),
            Some(b'[') => elements(text, start)
                .map_while(Result::ok)
                .take_while(|element| element.start <= at)
                .enumerate()
                .last()
                .filter(|(_, element)| at <= element.end)
                .map(|(index, element)| (format!("[{index}]"), element.start)),
            _ => None,
        };
        let Some((name, next)) = step else { break };
        path.push_str(&name);
        start = next;
    }
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strings<'a>(text: &'a str, ranges: &[Range<usize>]) -> Vec<&'a str> {
        ranges.iter().map(|range| &text[range.clone()]).collect()
    }

    #[test]
    fn elements_are_found_whatever_they_hold() {
        let text = r#"[ 1 ,"a,]\"b" , {"x":[1,{"y":"}"}]},[], null,1e400 ]"#;
        let found: Vec<_> = elements(text.as_bytes(), 0)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(
            strings(text, &found),
            [
                "1",
                r#""a,]\"b""#,
                r#"{"x":[1,{"y":"}"}]}"#,
                "[]",
                "null",
                "1e400"
            ]
        );
    }

    /// A bracket is no part of a number or a word: what stands there is not two values, nor one.
    #[test]
    fn a_value_that_runs_into_another_one_ends_the_walk() {
        for text in [
            "[1{,2]",
            "[1[2],3]",
            "[true{\"a\":1}]",
            "[\"a\"{}]",
            "[1\"a\"]",
            "[{}{}]",
        ] {
            let last = elements(text.as_bytes(), 0).last();
            assert!(matches!(last, Some(Err(_))), "{text}");
        }
    }

    #[test]
    fn members_keep_duplicate_keys_and_escapes() {
        let text = r#"{"a":1,"a": 2 , "\u0062" :[3]}"#;
        let found: Vec<_> = members(text.as_bytes(), 0)
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(
            strings(
                text,
                &found.iter().map(|m| m.value.clone()).collect::<Vec<_>>()
            ),
            ["1", "2", "[3]"]
        );
        assert_eq!(
            name(&text.as_bytes()[found[2].key.clone()]).as_deref(),
            Some("b")
        );
    }

    #[test]
    fn a_text_that_breaks_off_is_an_error_with_its_place() {
        for text in ["[1,", "[1 2]", "[1,]", "[,1]", r#"["a"#, "[{]"] {
            assert!(
                elements(text.as_bytes(), 0).any(|item| item.is_err()),
                "{text}"
            );
        }
        for text in [r#"{"a"}"#, r#"{"a":}"#, r#"{a:1}"#, r#"{"a":1"#] {
            assert!(
                members(text.as_bytes(), 0).any(|item| item.is_err()),
                "{text}"
            );
        }
    }

    #[test]
    fn nesting_of_a_million_does_not_recurse() {
        let text = [vec![b'['; 1_000_000], vec![b']'; 1_000_000]].concat();
        assert_eq!(skip_value(&text, 0), Some(2_000_000));
        assert!(validate(&text).is_ok());
    }

    #[test]
    fn validation_names_the_place_and_what_stands_there() {
        let invalid = validate(b"{\"a\":\n NaN}").unwrap_err();
        assert!(invalid.what.contains("NaN"), "{invalid:?}");
        let text = br#"{"rows":[{"n":1},{"avg":NaN}]}"#;
        let invalid = validate(text).unwrap_err();
        assert_eq!(path_at(text, invalid.at), "$.rows[1].avg");
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::vec((".*", inner), 0..6)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn bounds_agree_with_a_parser(values in prop::collection::vec(any_json(), 0..8), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&values) } else { serde_json::to_string(&values) }.unwrap();
            let found: Vec<_> = elements(text.as_bytes(), 0).collect::<Result<_, _>>().unwrap();
            let parsed: Vec<serde_json::Value> =
                found.iter().map(|range| serde_json::from_str(&text[range.clone()]).unwrap()).collect();
            prop_assert_eq!(parsed, values);
            prop_assert_eq!(skip_value(text.as_bytes(), 0), Some(text.len()));
        }

        #[test]
        fn no_bytes_make_a_scan_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = skip_value(&bytes, 0);
            for open in [b'[', b'{'] {
                let text = [&[open], bytes.as_slice()].concat();
                if open == b'[' {
                    elements(&text, 0).for_each(drop);
                } else {
                    members(&text, 0).for_each(drop);
                }
            }
        }
    }
}
