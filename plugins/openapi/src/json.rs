//! JSON read where it lies: a value is the text that it has in the document, and only what is asked for is looked at.
//!
//! A call is a fresh instance, so it has the whole document before it and needs one operation of it. Building a tree of
//! several megabytes for that would cost more than the call. Owns: walking over text that is known to be JSON. Text that
//! is not ends a walk early and never breaks it; [`check`] says whether it is.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// One value: its text, without space around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node<'a>(&'a str);

/// Whether a text is JSON; the error says where it is not.
pub(crate) fn check(text: &str) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(text)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

impl<'a> Node<'a> {
    /// The value that a text begins with.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        Reader::new(text).value()
    }

    /// A text that is one value: nothing looks where it ends.
    pub(crate) fn whole(text: &'a str) -> Option<Self> {
        let text = text.trim_ascii();
        (!text.is_empty()).then_some(Self(text))
    }

    /// The content of a key, as [`Reader::key`] has it.
    pub(crate) fn of_key(key: &'a str) -> Option<Cow<'a, str>> {
        content(key)
    }

    /// The value between two positions of a [`Reader`] of this one's text.
    pub(crate) fn part(self, start: usize, end: usize) -> Option<Self> {
        let text = self.0.get(start..end)?.trim_start();
        (!text.is_empty()).then_some(Self(text))
    }

    /// Its text.
    pub(crate) fn text(self) -> &'a str {
        self.0
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    pub(crate) fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    pub(crate) fn is_string(self) -> bool {
        self.0.starts_with('"')
    }

    pub(crate) fn is_true(self) -> bool {
        self.0 == "true"
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == "null"
    }

    pub(crate) fn is_number(self) -> bool {
        self.0
            .starts_with(|first: char| first == '-' || first.is_ascii_digit())
    }

    /// The content of a string.
    pub(crate) fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        content(inner)
    }

    /// The members of an object, in their order. Nothing of anything else.
    pub(crate) fn members(self) -> Members<'a> {
        Reader::new(self.0).members()
    }

    /// The items of an array. None of anything else.
    pub(crate) fn items(self) -> Items<'a> {
        let mut reader = Reader::new(self.0);
        let is_open = reader.take(b'[');
        Items {
            reader: is_open.then_some(reader),
        }
    }

    /// The member of that name.
    pub(crate) fn get(self, name: &str) -> Option<Self> {
        self.members()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    }

    /// The content of the string of that name.
    pub(crate) fn string_of(self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(Self::string)
    }

    /// The contents of the strings in the array of that name.
    pub(crate) fn strings_of(self, name: &str) -> Vec<Cow<'a, str>> {
        let list = self.get(name).into_iter();
        list.flat_map(Self::items)
            .filter_map(Self::string)
            .collect()
    }
}

/// What stands between the quotes of a string, without its escapes.
fn content(inner: &str) -> Option<Cow<'_, str>> {
    if inner.contains('\\') {
        serde_json::from_str::<String>(&format!("\"{inner}\""))
            .ok()
            .map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// The members of an object.
pub(crate) struct Members<'a> {
    reader: Option<Reader<'a>>,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Node<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        let key = reader.key()?;
        Some((content(key)?, reader.value()?))
    }
}

/// The items of an array.
pub(crate) struct Items<'a> {
    reader: Option<Reader<'a>>,
}

impl<'a> Iterator for Items<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        reader.take(b',');
        reader.value()
    }
}

/// A place in a text that moves forward only, so that whoever enters a value or passes over it reads it once.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// A reader of the same text that goes on from here.
    pub(crate) fn from(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// Passes over this byte, and the space before it, if it is next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        self.space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// The members of the object that is next; nothing where something else is.
    pub(crate) fn members(mut self) -> Members<'a> {
        let is_open = self.take(b'{');
        Members {
            reader: is_open.then_some(self),
        }
    }

    /// Where it is.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// The next key of the object that it is in, as it is written, with what stands around it. None at the end of the
    /// object, which it is behind then.
    pub(crate) fn key(&mut self) -> Option<&'a str> {
        self.take(b',');
        self.space();
        if self.peek() != Some(b'"') {
            self.take(b'}');
            return None;
        }
        let key = self.value()?.0;
        self.take(b':');
        key.strip_prefix('"')?.strip_suffix('"')
    }

    /// The next value. None at the end of an array or of the text.
    pub(crate) fn value(&mut self) -> Option<Node<'a>> {
        self.space();
        let start = self.at;
        match self.peek()? {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_nested(),
            _ => self.skip_scalar(),
        }
        let text = self.text.get(start..self.at)?;
        (!text.is_empty()).then_some(Node(text))
    }

    fn skip_scalar(&mut self) {
        while let Some(byte) = self.peek() {
            if matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t') {
                return;
            }
            self.at += 1;
        }
    }

    fn skip_string(&mut self) {
        self.at = after_string(self.text.as_bytes(), self.at);
    }

    fn skip_nested(&mut self) {
        let bytes = self.text.as_bytes();
        let (mut at, mut depth) = (self.at, 0_usize);
        loop {
            at = next_of(bytes, at, |word| of(word, b'"') | brackets(word));
            match bytes.get(at) {
                None => break,
                Some(b'"') => at = after_string(bytes, at),
                Some(b'{' | b'[') => {
                    depth += 1;
                    at += 1;
                }
                Some(b'}' | b']') => {
                    depth = depth.saturating_sub(1);
                    at += 1;
                    if depth == 0 {
                        break;
                    }
                }
                // No JSON has such a byte outside of its strings.
                Some(_) => at += 1,
            }
        }
        self.at = at;
    }
}

/// Bytes that are looked at in one step: a walk over a document is what a call costs, and most of it is strings and space.
const WORD: usize = 8;

/// A byte in every place of a word.
const fn every(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD])
}

/// Which of a word's bytes are this one, as the highest bit of each. What is left of such a byte is zero, and borrows when
/// one is taken; a byte above one that is found may be marked wrongly, the lowest never is.
#[inline(always)]
const fn of(word: u64, byte: u8) -> u64 {
    let left = word ^ every(byte);
    left.wrapping_sub(every(1)) & !left & every(0x80)
}

/// Which of a word's bytes are brackets or braces, likewise. All four are 0x59 without these bits, and of what else is,
/// nothing stands outside of strings.
#[inline(always)]
const fn brackets(word: u64) -> u64 {
    of(word & every(0xd9), 0x59)
}

/// The first position from `at` on whose byte is marked; the length of the text where none is.
#[inline(always)]
fn next_of(bytes: &[u8], mut at: usize, marked: impl Fn(u64) -> u64) -> usize {
    while let Some((word, _)) = bytes.get(at..).and_then(<[u8]>::split_first_chunk::<WORD>) {
        let found = marked(u64::from_le_bytes(*word));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += WORD;
    }
    // The last bytes, with zeros behind them.
    let mut word = [0; WORD];
    let rest = bytes.get(at..).unwrap_or_default();
    word[..rest.len()].copy_from_slice(rest);
    let found = marked(u64::from_le_bytes(word));
    bytes.len().min(at + found.trailing_zeros() as usize / 8)
}

/// The position behind the string that begins at this one.
#[inline(always)]
fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        at = next_of(bytes, at, |word| of(word, b'"') | of(word, b'\\'));
        match bytes.get(at) {
            None => return bytes.len(),
            Some(b'"') => return at + 1,
            Some(_) => at += 2,
        }
    }
}

/// Adds a value without the space between its parts.
pub(crate) fn compact(node: Node<'_>, out: &mut String) {
    let mut rest = node.text();
    // Strings keep their bytes; what is between them loses its space.
    while let Some(quote) = rest.find('"') {
        out.extend(rest[..quote].chars().filter(|c| !c.is_ascii_whitespace()));
        let mut reader = Reader::new(&rest[quote..]);
        let Some(string) = reader.value() else { return };
        out.push_str(string.text());
        rest = &rest[quote + reader.position()..];
    }
    out.extend(rest.chars().filter(|c| !c.is_ascii_whitespace()));
}

/// Adds a string, quoted.
pub(crate) fn quote(text: &str, out: &mut String) {
    // A string can always be written as JSON.
    out.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_text_and_members_keep_their_order() {
        let node =
            Node::of(r#" { "b" : [1, "x,]}\"", {"c":null}] , "a\u0020" : 1e400 } rest"#).unwrap();
        let members: Vec<(String, &str)> = node
            .members()
            .map(|(key, value)| (key.into_owned(), value.text()))
            .collect();
        assert_eq!(
            members,
            [
                ("b".into(), r#"[1, "x,]}\"", {"c":null}]"#),
                ("a ".into(), "1e400")
            ]
        );
        let items: Vec<&str> = members[0].1.parse_items();
        assert_eq!(items, ["1", r#""x,]}\"""#, r#"{"c":null}"#]);
    }

    trait ParseItems {
        fn parse_items(&self) -> Vec<&str>;
    }

    impl ParseItems for &str {
        fn parse_items(&self) -> Vec<&str> {
            Node::of(self).unwrap().items().map(Node::text).collect()
        }
    }

    #[test]
    fn strings_lose_their_escapes_and_nothing_else_is_a_string() {
        assert_eq!(
            Node::of(r#""a\"\n\u00e9""#).unwrap().string().unwrap(),
            "a\"\né"
        );
        assert_eq!(Node::of("12").unwrap().string(), None);
        assert_eq!(Node::of("{}").unwrap().members().count(), 0);
        assert_eq!(Node::of("[]").unwrap().items().count(), 0);
        assert_eq!(Node::of("3").unwrap().members().count(), 0);
        assert_eq!(Node::of("  "), None);
    }

    #[test]
    fn text_that_breaks_off_ends_a_walk_and_is_no_json() {
        for text in [
            "{\"a\":",
            "{\"a",
            "[1,",
            "{\"a\":{\"b\":[\"\\",
            "{]",
            "\"\\",
        ] {
            assert!(check(text).is_err(), "{text}");
            let Some(node) = Node::of(text) else { continue };
            for (_, value) in node.members() {
                value.items().for_each(drop);
            }
            node.items().for_each(drop);
        }
    }

    #[test]
    fn strings_and_values_of_every_length_end_where_they_end() {
        for length in 0..40 {
            for escape in ["", "\\\"", "\\\\", "{[", "é"] {
                let string = format!(
                    "\"{}{escape}{}\"",
                    "y_Y".repeat(length),
                    " ".repeat(length % 9)
                );
                let space = " ".repeat(length);
                let object = format!(
                    "{{{space}\"k\"{space}:{space}[1234567890123{space},{string}{space}]{space}}}"
                );
                let text = format!("[{object}{space},{string},2]");
                let view = text.as_str();
                let items: Vec<&str> = view.parse_items();
                assert_eq!(items, [object.as_str(), string.as_str(), "2"], "{text}");
                assert!(check(&text).is_ok(), "{text}");
            }
        }
    }

    #[test]
    fn a_compact_value_has_no_space_but_in_its_strings() {
        let mut out = String::new();
        compact(
            Node::of("{ \"a b\" : [ 1 , \"c \\\" d\" ]\n}").unwrap(),
            &mut out,
        );
        assert_eq!(out, r#"{"a b":[1,"c \" d"]}"#);
    }
}
