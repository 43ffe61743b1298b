//! The narrow stage, as far as it judges rows: filters and the horizon.
//!
//! What it takes away *inside* rows (views, `fields`) is a [`Selection`](super::select::Selection), applied to the page
//! alone.

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
}

/// Values to compare with: strings by content, everything else by JSON text.
#[derive(Debug, Clone, Default)]
struct Wanted {
    strings: Vec<String>,
    texts: Vec<String>,
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
            Value::String(text) => self.strings.push(text.clone()),
            value => self.texts.push(value.to_string()),
        }
    }

    /// Whether a raw JSON value is one of these.
    fn contains(&self, raw: &[u8]) -> bool {
        match raw {
            [b'"', inner @ .., b'"'] => self.strings.iter().any(|wanted| json::key_is(inner, wanted)),
            [b'-' | b'0'..=b'9', ..] => self.texts.iter().any(|wanted| same_number(raw, wanted)),
            _ => self.texts.iter().any(|wanted| wanted.as_bytes() == raw),
        }
    }
}

/// Whether two numbers are the same: by their text, and where one is not a plain integer also by value (1.0 is 1).
fn same_number(raw: &[u8], wanted: &str) -> bool {
    if raw == wanted.as_bytes() {
        return true;
    }
    let is_integer = |text: &[u8]| text.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9'));
    if is_integer(raw) && is_integer(wanted.as_bytes()) {
        return false;
    }
    let number = |text: &str| text.parse::<f64>().ok();
    std::str::from_utf8(raw).ok().and_then(number).is_some_and(|value| number(wanted) == Some(value))
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
        (is_wanted || is_missing && self.wanted.contains(b"null")) == self.keeps
    }
}

impl Narrow {
    /// The conditions of a call: the policy's filters for which `arguments` has a value, and the horizon unless
    /// everything was asked for.
    pub(crate) fn new(policy: &Policy, arguments: &serde_json::Map<String, Value>, is_live_only: bool) -> Self {
        let filters = policy
            .filters
            .iter()
            .filter_map(|filter| {
                let value = arguments.get(&filter.argument).filter(|value| !value.is_null())?;
                Some(Condition { field: filter.field.clone(), wanted: Wanted::of(value), keeps: true })
            })
            .collect();
        let horizon = policy.horizon.as_ref().filter(|_| is_live_only).map(|horizon| {
            // The declaration has values as text: the content of a string, or the text of anything else.
            let wanted = Wanted { strings: horizon.values.clone(), texts: horizon.values.clone() };
            Condition { field: horizon.field.clone(), wanted, keeps: horizon.values_are_live }
        });
        Self { filters, horizon }
    }

    /// The handler applies the filters itself.
    pub(crate) fn drop_filters(&mut self) {
        self.filters.clear();
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
        Condition { field: Path::new(field).unwrap(), wanted: Wanted::of(wanted), keeps: true }.holds(row.as_bytes())
    }

    #[test]
    fn values_compare_by_content() {
        assert!(holds("a", &json!("é\n"), r#"{"a":"\u00e9\n"}"#));
        assert!(holds("a", &json!(1), r#"{"a":1}"#));
        assert!(holds("a", &json!(1), r#"{"a":1.0}"#));
        assert!(!holds("a", &json!(9007199254740992u64), r#"{"a":9007199254740993}"#));
        assert!(!holds("a", &json!("1"), r#"{"a":1}"#));
        assert!(holds("a", &json!(["x", "y"]), r#"{"a":"y"}"#));
        assert!(holds("tags", &json!("x"), r#"{"tags":["w","x"]}"#));
        assert!(holds("gates.verdict", &json!("no"), r#"{"gates":[{"verdict":"ok"},{"verdict":"no"}]}"#));
    }

    #[test]
    fn a_missing_field_is_null() {
        assert!(holds("a", &json!([null]), r#"{"b":1}"#));
        assert!(!holds("a", &json!("x"), r#"{"b":1}"#));
    }
}
