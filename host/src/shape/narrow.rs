//! The narrow stage, as far as it judges rows: filters and the horizon.
//!
//! What it takes away *inside* rows (views, `fields`) is a [`Selection`](super::select::Selection), applied to the page
//! alone.

use std::collections::HashSet;

use serde_json::Value;

use super::json;
use super::policy::Policy;
use super::select::Path;

/// What became of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It stays.
    Matches,
    /// A filter of the caller took it away.
    Filtered,
    /// The horizon hid it.
    Hidden,
}

/// The conditions that a row must meet in one call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Narrow {
    filters: Vec<Condition>,
    horizon: Option<Condition>,
}

#[derive(Debug, Clone)]
struct Condition {
    field: Path,
    wanted: Wanted,
    /// Whether the wanted values are those that stay.
    keeps: bool,
    /// Whether a row without the field passes, because the handler has judged it.
    trusts_missing: bool,
}

/// Values to compare with: strings by content, numbers by value, everything else by JSON text.
#[derive(Debug, Clone, Default)]
struct Wanted {
    strings: HashSet<String>,
    /// Texts of everything that is not a string.
    texts: HashSet<String>,
    /// The numbers among them, and those that are not plain integers, by value: 1.0 is 1. Two plain integers are compared
    /// by their text alone, since as floating-point numbers large ones run together.
    numbers: HashSet<u64>,
    fractions: HashSet<u64>,
}

impl Wanted {
    fn of(value: &Value) -> Self {
        let mut wanted = Self::default();
        match value {
            Value::Array(values) => values.iter().for_each(|value| wanted.add(value)),
            value => wanted.add(value),
        }
        wanted
    }

    fn add(&mut self, value: &Value) {
        match value {
            Value::String(text) => drop(self.strings.insert(text.clone())),
            value => self.add_text(value.to_string()),
        }
    }

    fn add_text(&mut self, text: String) {
        if let Some(number) = number(text.as_bytes()) {
            self.numbers.insert(number);
            if !is_integer(text.as_bytes()) {
                self.fractions.insert(number);
            }
        }
        self.texts.insert(text);
    }

    /// Whether a raw JSON value is one of these.
    fn contains(&self, raw: &[u8]) -> bool {
        match raw {
            [b'"', inner @ .., b'"'] => {
                json::name(inner).is_some_and(|text| self.strings.contains(&*text))
            }
            [b'-' | b'0'..=b'9', ..] if is_integer(raw) => {
                self.has_text(raw)
                    || !self.fractions.is_empty()
                        && number(raw).is_some_and(|n| self.fractions.contains(&n))
            }
            [b'-' | b'0'..=b'9', ..] => {
                self.has_text(raw)
                    || !self.numbers.is_empty()
                        && number(raw).is_some_and(|n| self.numbers.contains(&n))
            }
            _ => self.has_text(raw),
        }
    }

    fn has_text(&self, raw: &[u8]) -> bool {
        std::str::from_utf8(raw).is_ok_and(|text| self.texts.contains(text))
    }
}

/// A number's value as something that can be hashed: its bits, with one zero.
fn number(text: &[u8]) -> Option<u64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (matches!(text.first(), Some(b'-' | b'0'..=b'9')) && number.is_finite())
        .then(|| (number + 0.0).to_bits())
}

fn is_integer(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9'))
}

impl Condition {
    fn holds(&self, row: &[u8]) -> bool {
        let mut is_missing = true;
        let is_wanted = self.field.any(row, |value| {
            is_missing = false;
            match value.first() {
                // An array at the end of a path stands for its elements.
                Some(b'[') => json::elements(value, 0)
                    .map_while(Result::ok)
                    .any(|element| self.wanted.contains(&value[element])),
                _ => self.wanted.contains(value),
            }
        });
        let is_wanted = is_wanted || is_missing && self.wanted.contains(b"null");
        is_wanted == self.keeps || is_missing && self.trusts_missing
    }
}

impl Narrow {
    /// The conditions of a call: the policy's filters for which `arguments` has a value, and the horizon unless
    /// everything was asked for.
    pub(crate) fn new(
        policy: &Policy,
        arguments: &serde_json::Map<String, Value>,
        is_live_only: bool,
    ) -> Self {
        let filters = policy
            .filters
            .iter()
            .filter_map(|filter| {
                let value = arguments
                    .get(&filter.argument)
                    .filter(|value| !value.is_null())?;
                Some(Condition {
                    field: filter.field.clone(),
                    wanted: Wanted::of(value),
                    keeps: true,
                    trusts_missing: false,
                })
            })
            .collect();
        let horizon = policy
            .horizon
            .as_ref()
            .filter(|_| is_live_only)
            .map(|horizon| {
                // The declaration has values as text: the content of a string, or the text of anything else.
                let mut wanted = Wanted {
                    strings: horizon.values.iter().cloned().collect(),
                    ..Wanted::default()
                };
                horizon
                    .values
                    .iter()
                    .for_each(|text| wanted.add_text(text.clone()));
                Condition {
                    field: horizon.field.clone(),
                    wanted,
                    keeps: horizon.values_are_live,
                    trusts_missing: false,
                }
            });
        Self { filters, horizon }
    }

    /// The handler applies the filters itself. What comes back is checked all the same, as far as it has the fields.
    pub(crate) fn trust_handler(&mut self) {
        self.filters
            .iter_mut()
            .for_each(|condition| condition.trusts_missing = true);
    }

    /// Whether the caller filters.
    pub(crate) fn has_filters(&self) -> bool {
        !self.filters.is_empty()
    }

    /// Whether nothing is asked of a row.
    pub(crate) fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.horizon.is_none()
    }

    /// Judges one row. A row that both a filter and the horizon refuse counts as filtered.
    pub(crate) fn judge(&self, row: &[u8]) -> Verdict {
        if !self.filters.iter().all(|condition| condition.holds(row)) {
            Verdict::Filtered
        } else if !self.horizon.iter().all(|condition| condition.holds(row)) {
            Verdict::Hidden
        } else {
            Verdict::Matches
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(field: &str, wanted: &Value, row: &str) -> bool {
        Condition {
            field: Path::new(field).unwrap(),
            wanted: Wanted::of(wanted),
            keeps: true,
            trusts_missing: false,
        }
        .holds(row.as_bytes())
    }

    #[test]
    fn values_compare_by_content() {
        assert!(holds("a", &json!("é\n"), r#"{"a":"\u00e9\n"}"#));
        assert!(holds("a", &json!(1), r#"{"a":1}"#));
        assert!(holds("a", &json!(1), r#"{"a":1.0}"#));
        assert!(!holds(
            "a",
            &json!(9007199254740992u64),
            r#"{"a":9007199254740993}"#
        ));
        assert!(holds("a", &json!(1.0), r#"{"a":1}"#));
        assert!(holds("a", &json!(0), r#"{"a":-0.0}"#));
        assert!(!holds("a", &json!("1"), r#"{"a":1}"#));
        assert!(!holds("a", &json!(true), r#"{"a":"true"}"#));
        assert!(holds("a", &json!(["x", "y"]), r#"{"a":"y"}"#));
        assert!(holds("tags", &json!("x"), r#"{"tags":["w","x"]}"#));
        assert!(holds(
            "gates.verdict",
            &json!("no"),
            r#"{"gates":[{"verdict":"ok"},{"verdict":"no"}]}"#
        ));
    }

    #[test]
    fn what_a_handler_filtered_is_checked_as_far_as_it_can_be() {
        let condition = Condition {
            field: Path::new("a").unwrap(),
            wanted: Wanted::of(&json!("x")),
            keeps: true,
            trusts_missing: false,
        };
        let mut narrow = Narrow {
            filters: vec![condition],
            horizon: None,
        };
        assert_eq!(narrow.judge(b"{}"), Verdict::Filtered);
        narrow.trust_handler();
        assert_eq!(narrow.judge(b"{}"), Verdict::Matches);
        assert_eq!(narrow.judge(br#"{"a":"y"}"#), Verdict::Filtered);
    }

    #[test]
    fn a_missing_field_is_null() {
        assert!(holds("a", &json!([null]), r#"{"b":1}"#));
        assert!(!holds("a", &json!("x"), r#"{"b":1}"#));
    }
}
