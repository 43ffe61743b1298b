//! What rows look like: how many and how heavy they are, which fields have scalar values, which field identifies a row.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use serde_json::value::RawValue;

use crate::table::{Members, Table, kind, parse};

/// Fields are looked for in this many rows. Later rows of one collection rarely have others, and a field that is not
/// found is still in the rows; it is only not declared.
const SAMPLED_ROWS: usize = 200;
/// Different values of a field that are kept, to tell a choice from a free text and to show some to the model.
const KEPT_VALUES: usize = 9;
/// A value that is longer than this says little as an example.
const LONGEST_KEPT_VALUE: usize = 40;
/// Fields that identify rows by their name, the likeliest first. Where none of them does, the first field of the rows
/// is tried.
const KEYS: [&str; 8] = [
    "id", "key", "uuid", "guid", "name", "slug", "code", "number",
];

/// What a table looks like.
pub(crate) struct Profile {
    pub(crate) rows: usize,
    /// Bytes of the average row.
    pub(crate) row_bytes: usize,
    /// The fields with scalar values, in the order of their first appearance.
    pub(crate) scalars: Vec<Field>,
    /// There are fields with objects or arrays, too.
    pub(crate) has_compounds: bool,
    /// The field that identifies a row.
    pub(crate) key: Option<String>,
}

/// A field whose sampled values are all scalars of one type, or null.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) scalar: Scalar,
    /// Bytes of the average value.
    pub(crate) value_bytes: usize,
    /// Values as JSON, in the order of their first appearance; empty where they are too long to show.
    pub(crate) values: Vec<String>,
    /// `values` are all that were seen, and they were seen repeatedly.
    pub(crate) is_choice: bool,
}

/// The type of a scalar value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Integer,
    Number,
    Boolean,
}

/// What is known of a field while rows are sampled.
struct Sample {
    name: String,
    /// None as long as only nulls were seen.
    scalar: Option<Scalar>,
    /// It has objects or arrays, or scalars of different types.
    is_mixed: bool,
    is_compound: bool,
    seen: usize,
    bytes: usize,
    values: Vec<String>,
    has_more_values: bool,
}

impl Profile {
    /// Looks at a table.
    ///
    /// # Errors
    ///
    /// Where a row is not an object.
    pub(crate) fn of(table: &Table) -> Result<Self, String> {
        let (mut rows, mut bytes) = (0, 0);
        let mut samples: Vec<Sample> = Vec::new();
        let mut broken = Ok(());
        table.each(|row| {
            rows += 1;
            bytes += row.len();
            if rows <= SAMPLED_ROWS {
                broken = members(row, rows).map(|members| sample(&members, &mut samples));
            }
            match broken {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        broken?;
        Ok(Self {
            rows,
            row_bytes: bytes / rows.max(1),
            has_compounds: samples.iter().any(|sample| sample.is_compound),
            scalars: samples.into_iter().filter_map(Sample::field).collect(),
            key: key(table)?,
        })
    }
}

/// Enters the members of one row.
fn sample(members: &Members, samples: &mut Vec<Sample>) {
    for (name, value) in &members.0 {
        let index = samples
            .iter()
            .position(|sample| sample.name == *name)
            .unwrap_or_else(|| {
                samples.push(Sample::new(name));
                samples.len() - 1
            });
        samples[index].enter(value);
    }
}

impl Sample {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            scalar: None,
            is_mixed: false,
            is_compound: false,
            seen: 0,
            bytes: 0,
            values: Vec::new(),
            has_more_values: false,
        }
    }

    fn enter(&mut self, value: &RawValue) {
        let text = value.get();
        let scalar = match kind(text) {
            Some(b'n') => return,
            Some(b'{' | b'[') => {
                self.is_compound = true;
                return;
            }
            Some(b'"') => Scalar::Text,
            Some(b't' | b'f') => Scalar::Boolean,
            _ if text.contains(['.', 'e', 'E']) => Scalar::Number,
            _ => Scalar::Integer,
        };
        self.seen += 1;
        self.bytes += text.len();
        self.scalar = match (self.scalar, scalar) {
            (None, first) => Some(first),
            (Some(Scalar::Integer | Scalar::Number), Scalar::Integer | Scalar::Number)
                if self.scalar != Some(scalar) =>
            {
                Some(Scalar::Number)
            }
            (Some(before), now) => {
                self.is_mixed |= before != now;
                Some(before)
            }
        };
        if !self.values.iter().any(|value| value == text) {
            if text.len() > LONGEST_KEPT_VALUE || self.values.len() == KEPT_VALUES {
                self.has_more_values = true;
            } else {
                self.values.push(text.to_owned());
            }
        }
    }

    fn field(self) -> Option<Field> {
        let scalar = self
            .scalar
            .filter(|_| !self.is_mixed && !self.is_compound)?;
        Some(Field {
            name: self.name,
            scalar,
            value_bytes: self.bytes / self.seen,
            is_choice: !self.has_more_values && self.values.len() < self.seen,
            values: self.values,
        })
    }
}

/// The field that identifies the rows of a table: every row has one, a text or an integer, and no two have the same.
///
/// # Errors
///
/// Where a row is not an object.
pub(crate) fn key(table: &Table) -> Result<Option<String>, String> {
    // Hashes in place of values, which halves what a large file costs. Two values with one hash lose a key that there
    // was; a key that is none cannot come of it.
    let mut candidates: Vec<(String, BTreeSet<u64>)> = KEYS
        .iter()
        .map(|name| ((*name).to_owned(), BTreeSet::new()))
        .collect();
    let mut row_number = 0;
    let mut broken = Ok(());
    table.each(|row| {
        row_number += 1;
        match members(row, row_number) {
            Ok(Members(members)) => {
                if row_number == 1
                    && let Some((first, _)) = members.first()
                    && !KEYS.contains(&&**first)
                    // A path splits at dots, so it cannot name such a field.
                    && !first.is_empty()
                    && !first.contains('.')
                {
                    candidates.push((first.to_string(), BTreeSet::new()));
                }
                candidates.retain_mut(|(name, values)| {
                    value_of(&members, name)
                        .and_then(identity)
                        .is_some_and(|value| values.insert(hash(&value)))
                });
            }
            Err(reason) => broken = Err(reason),
        }
        if broken.is_err() || candidates.is_empty() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    broken?;
    if row_number == 0 {
        return Ok(None);
    }
    Ok(candidates.into_iter().next().map(|(name, _)| name))
}

/// The same for every instance, since `new` takes no random key.
fn hash(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether the row has this value, a JSON text, in this field. A number and a text with the same letters are the same:
/// in a CSV file everything is text, and callers do not know that.
pub(crate) fn has_value(row: &str, field: &str, value: &str) -> bool {
    let wanted = serde_json::from_str::<&RawValue>(value)
        .ok()
        .and_then(identity);
    let Ok(Members(members)) = parse(row) else {
        return false;
    };
    wanted.is_some() && value_of(&members, field).and_then(identity) == wanted
}

fn value_of<'a>(members: &[(Cow<str>, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    members
        .iter()
        .find(|(member, _)| member == name)
        .map(|(_, value)| *value)
}

/// What a value says, if it can identify a row.
fn identity(value: &RawValue) -> Option<Cow<'_, str>> {
    #[derive(serde::Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    let text = value.get();
    match kind(text)? {
        b'"' => serde_json::from_str(text)
            .ok()
            .map(|Text(text)| text)
            .filter(|text| !text.is_empty()),
        b'-' | b'0'..=b'9' if !text.contains(['.', 'e', 'E']) => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

fn members(row: &str, number: usize) -> Result<Members<'_>, String> {
    parse(row).map_err(|reason| format!("row {number}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Format;
    use crate::table::find;

    fn profile(bytes: &[u8]) -> Profile {
        Profile::of(&find(Format::Lines, bytes, |_| true).unwrap()[0].table).unwrap()
    }

    #[test]
    fn scalar_fields_are_found_with_their_types() {
        let profile = profile(
            br#"{"id":1,"name":"a","done":true,"score":1,"tags":[],"note":null,"odd":1}
                {"id":2,"name":"b","done":false,"score":2.5,"tags":["x"],"odd":"one","late":"z"}"#,
        );
        let fields: Vec<_> = profile
            .scalars
            .iter()
            .map(|field| (field.name.as_str(), field.scalar))
            .collect();
        assert_eq!(
            fields,
            [
                ("id", Scalar::Integer),
                ("name", Scalar::Text),
                ("done", Scalar::Boolean),
                ("score", Scalar::Number),
                ("late", Scalar::Text)
            ]
        );
        assert!(profile.has_compounds);
        assert_eq!((profile.rows, profile.key.as_deref()), (2, Some("id")));
    }

    #[test]
    fn a_choice_is_a_field_with_few_values_that_repeat() {
        let profile = profile(
            br#"{"state":"open","n":1}
                {"state":"open","n":2}
                {"state":"done","n":3}"#,
        );
        assert!(profile.scalars[0].is_choice);
        assert_eq!(profile.scalars[0].values, [r#""open""#, r#""done""#]);
        assert!(!profile.scalars[1].is_choice);
    }

    #[test]
    fn the_key_is_unique_in_every_row() {
        let key = |bytes| profile(bytes).key;
        assert_eq!(
            key(b"{\"id\":1,\"name\":\"a\"}\n{\"id\":1,\"name\":\"b\"}").as_deref(),
            Some("name")
        );
        assert_eq!(
            key(b"{\"order\":1}\n{\"order\":2}").as_deref(),
            Some("order")
        );
        assert_eq!(key(b"{\"id\":1}\n{}"), None);
        assert_eq!(key(b"{\"id\":1.5}"), None);
        assert_eq!(key(b""), None);
    }

    #[test]
    fn a_row_is_found_by_what_its_key_says() {
        let row = r#"{"id":"\u0061","n":12}"#;
        assert!(has_value(row, "id", r#""a""#));
        assert!(has_value(row, "n", "12"));
        assert!(has_value(row, "n", r#""12""#));
        assert!(!has_value(row, "n", "1"));
        assert!(!has_value(row, "missing", "null"));
        assert!(!has_value(row, "id", "not json"));
    }

    #[test]
    fn a_row_that_is_no_object_is_named() {
        let found = find(Format::Lines, b"{}\n[1]", |_| true).unwrap();
        assert!(
            Profile::of(&found[0].table)
                .err()
                .unwrap()
                .starts_with("row 2: ")
        );
    }
}
