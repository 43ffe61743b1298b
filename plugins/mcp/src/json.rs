//! JSON as bytes: whether two texts are one value, and whether their numbers are the same digits.
//!
//! No tree of numbers is built: one that no double can hold would come out as another.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// How two JSON texts compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// One value, and every number has the same digits in both.
    Same,
    /// One value, but for numbers that one of them has rounded or written in another way.
    SameButForDigits,
    /// Two values.
    Different,
}

impl Likeness {
    fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Different => Self::Different,
            Self::Same => other(),
            Self::SameButForDigits => match other() {
                Self::Different => Self::Different,
                _ => Self::SameButForDigits,
            },
        }
    }
}

/// Whether a text is a JSON object or array, and not a number or a word that happens to be JSON.
pub(crate) fn is_compound(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The name of the first member, where the text is an object that has one.
pub(crate) fn first_member(text: &str) -> Option<String> {
    let inside = text.trim_start().strip_prefix('{')?.trim_start();
    serde_json::Deserializer::from_str(inside)
        .into_iter::<String>()
        .next()?
        .ok()
}

/// The only member of an object that has one.
pub(crate) fn only_member(text: &str) -> Option<&RawValue> {
    // Most objects have more, and those need not be read to their end a second time.
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut members = members(text)?;
    match members.len() {
        1 => members.pop_first().map(|(_, value)| value),
        _ => None,
    }
}

/// The elements of an array.
pub(crate) fn elements(text: &str) -> Option<Vec<&RawValue>> {
    serde_json::from_str(text).ok()
}

fn members(text: &str) -> Option<BTreeMap<String, &RawValue>> {
    serde_json::from_str(text).ok()
}

/// The content of a JSON string.
pub(crate) fn string(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// Compares two texts, of which neither has to be valid.
pub(crate) fn compare(left: &str, right: &str) -> Likeness {
    let (left, right) = (left.trim(), right.trim());
    if left == right {
        return Likeness::Same;
    }
    let kind = |text: &str| text.bytes().next();
    match (kind(left), kind(right)) {
        (Some(b'{'), Some(b'{')) => match (members(left), members(right)) {
            (Some(left), Some(right)) if left.len() == right.len() => {
                let pairs = left.into_iter().zip(right);
                pairs.fold(Likeness::Same, |found, ((name, left), (other, right))| {
                    found.and(|| match name == other {
                        true => compare(left.get(), right.get()),
                        false => Likeness::Different,
                    })
                })
            }
            _ => Likeness::Different,
        },
        (Some(b'['), Some(b'[')) => match (elements(left), elements(right)) {
            (Some(left), Some(right)) if left.len() == right.len() => {
                let pairs = left.into_iter().zip(right);
                pairs.fold(Likeness::Same, |found, (left, right)| {
                    found.and(|| compare(left.get(), right.get()))
                })
            }
            _ => Likeness::Different,
        },
        (Some(b'"'), Some(b'"')) => match (string(left), string(right)) {
            (Some(left), Some(right)) if left == right => Likeness::Same,
            _ => Likeness::Different,
        },
        // Rounding is what tells the two copies apart, so they are compared as rounded.
        _ => match (left.parse::<f64>(), right.parse::<f64>()) {
            (Ok(left), Ok(right)) if left == right => Likeness::SameButForDigits,
            _ => Likeness::Different,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_order_and_escapes_make_no_other_value() {
        assert_eq!(
            compare(
                "{\n  \"a\": [1, {\"b\": \"\\u00e9\"}],\n  \"c\": null\n}",
                "{\"c\":null,\"a\":[1,{\"b\":\"é\"}]}"
            ),
            Likeness::Same
        );
        for (left, right) in [
            ("{\"a\":1}", "{\"a\":1,\"b\":2}"),
            ("{\"a\":1}", "{\"b\":1}"),
            ("[1,2]", "[2,1]"),
            ("true", "false"),
            ("\"1\"", "1"),
            ("{\"a\":", "{\"a\":1}"),
        ] {
            assert_eq!(compare(left, right), Likeness::Different, "{left} {right}");
        }
    }

    #[test]
    fn rounded_numbers_are_told_from_other_numbers() {
        assert_eq!(
            compare("[9007199254740993,1]", "[9007199254740992,1]"),
            Likeness::SameButForDigits
        );
        assert_eq!(compare("1.0", "1"), Likeness::SameButForDigits);
        assert_eq!(
            compare("[1.0,2]", "[1,3]"),
            Likeness::Different,
            "what comes later counts too"
        );
    }

    #[test]
    fn the_first_and_the_only_member_are_found() {
        assert_eq!(
            first_member(" { \"a b\" : 1, \"c\": 2}"),
            Some("a b".into())
        );
        assert_eq!(first_member("{}"), None);
        assert_eq!(first_member("[1]"), None);
        assert_eq!(only_member("{\"a\": [1]}").unwrap().get(), "[1]");
        assert!(only_member("{\"a\":1,\"b\":2}").is_none());
        assert!(is_compound(" [1]") && !is_compound("12") && !is_compound("[x]"));
    }
}
