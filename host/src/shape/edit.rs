//! Changes single values inside a JSON text and leaves every other byte as it is.
//!
//! Owns: the walk over all values, outermost first and without recursion, and the bytes around what is taken out. Which
//! values are changed is the visitor's business.

use std::borrow::Cow;
use std::ops::Range;

use super::json;

/// What becomes of a value.
pub(super) enum Visit<S> {
    /// It stays, and nothing in it is looked at.
    Keep,
    /// It stays, and what is in it is visited with this state.
    Enter(S),
    /// This JSON text takes its place.
    Replace(Vec<u8>),
    /// It goes, and its name with it. An element of an array stays, since the others would move up.
    Drop,
}

/// An array or object that the walk is inside of.
pub(super) struct Level<S> {
    /// What the visitor said when it was entered.
    pub(super) state: S,
    /// Its name between the quotes, where it is the member of an object.
    pub(super) key: Option<Range<usize>>,
    is_object: bool,
    /// Where the last member that stays ends.
    kept_end: Option<usize>,
    /// Where a run of members that go begins.
    dropping: Option<usize>,
}

/// The text as it becomes, while it is walked.
struct Edits<'a> {
    text: &'a [u8],
    out: Vec<u8>,
    copied: usize,
}

impl Edits<'_> {
    /// Puts `new` in the place of a range. Ranges come in order and do not overlap.
    fn replace(&mut self, range: Range<usize>, new: &[u8]) {
        self.out
            .extend_from_slice(&self.text[self.copied..range.start]);
        self.out.extend_from_slice(new);
        self.copied = range.end;
    }
}

/// Walks the value in `text` and lets `visit` change it. `visit` hears the levels that a value stands in, its name and
/// where it begins. None where the text is no JSON that a structural scan can walk.
pub(super) fn edit<'a, S>(
    text: &'a [u8],
    mut visit: impl FnMut(&[Level<S>], Option<Range<usize>>, usize) -> Visit<S>,
) -> Option<Cow<'a, [u8]>> {
    let mut edits = Edits {
        text,
        out: Vec::new(),
        copied: 0,
    };
    let mut is_edited = false;
    let mut levels: Vec<Level<S>> = Vec::new();
    let mut key = None;
    let mut at = json::skip_space(text, 0);
    // Where the member begins that `at` is the value of.
    let mut start = at;
    loop {
        let byte = *text.get(at)?;
        let visited = visit(&levels, key.clone(), at);
        let is_dropped =
            matches!(visited, Visit::Drop) && levels.last().is_some_and(|level| level.is_object);
        if !is_dropped && let Some(run) = levels.last_mut().and_then(|level| level.dropping.take())
        {
            edits.replace(run..start, b"");
        }
        // Where the item before the next separator ends; none inside a level that has just been entered.
        let mut end = None;
        match visited {
            Visit::Enter(state) if matches!(byte, b'{' | b'[') => {
                levels.push(Level {
                    state,
                    key,
                    is_object: byte == b'{',
                    kept_end: None,
                    dropping: None,
                });
                at += 1;
            }
            visited => {
                let value = at..json::skip_value(text, at)?;
                at = value.end;
                end = Some(at);
                if is_dropped {
                    is_edited = true;
                    if let Some(level) = levels.last_mut() {
                        level.dropping.get_or_insert(start);
                    }
                } else {
                    if let Visit::Replace(new) = visited {
                        is_edited = true;
                        edits.replace(value, &new);
                    }
                    if let Some(level) = levels.last_mut() {
                        level.kept_end = end;
                    }
                }
            }
        }
        // Up to the next item, out of every level that ends before it.
        loop {
            at = json::skip_space(text, at);
            let Some(level) = levels.last_mut() else {
                if at < text.len() {
                    return None;
                }
                if !is_edited {
                    return Some(Cow::Borrowed(text));
                }
                edits.replace(at..at, b"");
                return Some(Cow::Owned(edits.out));
            };
            let close = if level.is_object { b'}' } else { b']' };
            match (*text.get(at)?, end) {
                (byte, _) if byte == close => {
                    if let (Some(run), Some(end)) = (level.dropping, end) {
                        edits.replace(level.kept_end.unwrap_or(run)..end, b"");
                    }
                    at += 1;
                    end = Some(at);
                    levels.pop();
                    if let Some(level) = levels.last_mut() {
                        level.kept_end = end;
                    }
                }
                (b',', Some(_)) => {
                    at = json::skip_space(text, at + 1);
                    break;
                }
                (_, None) => break,
                _ => return None,
            }
        }
        start = at;
        key = None;
        if levels.last().is_some_and(|level| level.is_object) {
            if text.get(at) != Some(&b'"') {
                return None;
            }
            let key_end = json::skip_value(text, at)?;
            key = Some(at + 1..key_end - 1);
            at = json::skip_space(text, key_end);
            if text.get(at) != Some(&b':') {
                return None;
            }
            at = json::skip_space(text, at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drops members named `d…`, replaces those named `r…`, and enters everything else.
    fn edited(text: &str) -> Option<String> {
        let bytes = text.as_bytes();
        edit(bytes, |_: &[Level<()>], key, _| {
            match key.and_then(|key| bytes.get(key.start)) {
                Some(b'd') => Visit::Drop,
                Some(b'r') => Visit::Replace(b"0".to_vec()),
                _ => Visit::Enter(()),
            }
        })
        .map(|text| String::from_utf8(text.into_owned()).unwrap())
    }

    #[test]
    fn only_what_is_changed_changes() {
        for (text, expected) in [
            (
                r#" {"a": 1.0 , "b":[1e400,{}]} "#,
                r#" {"a": 1.0 , "b":[1e400,{}]} "#,
            ),
            (r#"{"r": "x" , "a":1}"#, r#"{"r": 0 , "a":1}"#),
            (r#"{"d":1, "a" : 2}"#, r#"{"a" : 2}"#),
            (r#"{"a":1 , "d":[{"a":1}] }"#, r#"{"a":1 }"#),
            (r#"{"a":1,"d":1,"d2":2,"b":3}"#, r#"{"a":1,"b":3}"#),
            (r#"{ "d":1 , "d2":2 }"#, r#"{  }"#),
            (
                r#"{"a":[{"d":1},{"x":{"r":[1]}, "d":2}],"d":3}"#,
                r#"{"a":[{},{"x":{"r":0}}]}"#,
            ),
            (r#"[{"d":1},7,[]]"#, r#"[{},7,[]]"#),
            (r#"{"a":{"r":1},"d":1,"d2":1}"#, r#"{"a":{"r":0}}"#),
            ("7", "7"),
            ("[]", "[]"),
            (r#""text""#, r#""text""#),
        ] {
            assert_eq!(edited(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_json_is_none() {
        for text in [
            "", "[1", "[1 2]", "[,1]", "{\"a\"}", "{a:1}", "{} {}", "[1,",
        ] {
            assert_eq!(edited(text), None, "{text}");
        }
    }

    #[test]
    fn nesting_is_walked_without_recursion() {
        let text = format!("{}{{\"r\":1}}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(edited(&text).unwrap().contains("{\"r\":0}"));
    }
}
