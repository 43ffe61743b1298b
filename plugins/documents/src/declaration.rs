//! A profile in the words of the contract: what a collection is called, what it may be filtered by, how it is shown.

use crate::bindings::exports::plimsoll::plugin::backend::{Collection, FilterField, ValueType};
use crate::bindings::plimsoll::plugin::shaping::{Column, PushDown, RowSource, Shape, View};
use crate::profile::{Field, Profile, Scalar};

/// Rows that are heavier than this on average are shown as a summary by default: a page of 25 of them would be more
/// than 50,000 bytes.
const HEAVY_ROW_BYTES: usize = 2_000;
/// A table with more columns is wider than what a model reads with profit.
const MOST_COLUMNS: usize = 16;
/// Every filter is an argument that costs tokens in every listing of the tools.
const MOST_FILTERS: usize = 12;
/// Values that are longer on average are prose or paths, which nobody filters by in full.
const LONGEST_FILTER_BYTES: usize = 40;
/// Values that are longer on average do not belong in a summary or a table.
const LONGEST_SUMMARY_BYTES: usize = 400;
/// Examples of values in the description of a filter that is not a choice.
const EXAMPLES: usize = 2;

/// Declares one collection of the file at `path`, found behind `members`.
pub(crate) fn collection(
    name: String,
    path: &str,
    members: &[String],
    profile: &Profile,
) -> Collection {
    let place = match members {
        [] => format!("`{path}`"),
        members => format!("`{}` of `{path}`", members.join(".")),
    };
    Collection {
        name,
        description: format!(
            "The rows are {place}, {} bytes each on average.",
            profile.row_bytes
        ),
        filters: profile
            .scalars
            .iter()
            .filter(|field| is_filter(field))
            .take(MOST_FILTERS)
            .map(filter)
            .collect(),
        shape: shape(profile),
        count: Some(profile.rows as u64),
        tags: Vec::new(),
    }
}

fn shape(profile: &Profile) -> Shape {
    let shown: Vec<&Field> = profile
        .scalars
        .iter()
        // A path splits at dots, so it cannot name a field that has one.
        .filter(|field| !field.name.is_empty() && !field.name.contains('.'))
        .filter(|field| field.value_bytes <= LONGEST_SUMMARY_BYTES)
        .collect();
    let takes_something_away = profile.has_compounds || shown.len() < profile.scalars.len();
    let views = if profile.row_bytes > HEAVY_ROW_BYTES && takes_something_away && !shown.is_empty()
    {
        vec![View {
            name: "summary".to_owned(),
            fields: shown.iter().map(|field| field.name.clone()).collect(),
        }]
    } else {
        Vec::new()
    };
    Shape {
        rows: RowSource::Automatic,
        key: profile.key.clone(),
        horizon: None,
        default_view: views.first().map(|view| view.name.clone()),
        views,
        columns: shown
            .iter()
            .take(MOST_COLUMNS)
            .map(|field| Column {
                name: field.name.clone(),
                field: field.name.clone(),
            })
            .collect(),
        filters: Vec::new(),
        page: None,
        cap_bytes: None,
        applies: PushDown::empty(),
    }
}

/// Whether a field makes an argument: its name can be one, and its values are such that a caller can give one.
fn is_filter(field: &Field) -> bool {
    let is_argument = field.name.len() <= 64
        && !field.name.is_empty()
        && field
            .name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    is_argument && field.value_bytes <= LONGEST_FILTER_BYTES
}

fn filter(field: &Field) -> FilterField {
    let shown = |values: &[String]| values.join(", ");
    let description = match (field.is_choice, &field.values[..]) {
        (true, values) => format!("`{}`; seen: {}.", field.name, shown(values)),
        (false, []) => format!("`{}`.", field.name),
        (false, values) => {
            let examples = &values[..values.len().min(EXAMPLES)];
            format!("`{}`, such as {}.", field.name, shown(examples))
        }
    };
    FilterField {
        name: field.name.clone(),
        description,
        value_type: match field.scalar {
            Scalar::Text => ValueType::Text,
            Scalar::Integer => ValueType::Integer,
            Scalar::Number => ValueType::Number,
            Scalar::Boolean => ValueType::Boolean,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Format;
    use crate::table::find;

    fn declared(document: &[u8]) -> Collection {
        let profile =
            Profile::of(&find(Format::Json, document, |_| true).unwrap()[0].table).unwrap();
        collection("things".to_owned(), "things.json", &[], &profile)
    }

    #[test]
    fn light_rows_are_shown_whole_and_as_a_table() {
        let things =
            declared(br#"[{"id":1,"state":"open","tags":[]},{"id":2,"state":"open","tags":[]}]"#);
        assert!(things.shape.views.is_empty());
        let columns: Vec<_> = things
            .shape
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(columns, ["id", "state"]);
        assert_eq!(things.filters[1].description, r#"`state`; seen: "open"."#);
        assert_eq!(things.count, Some(2));
        assert_eq!(things.shape.key.as_deref(), Some("id"));
    }

    #[test]
    fn heavy_rows_have_a_summary_of_their_short_scalars() {
        let row = format!(r#"[{{"id":1,"body":"{}","tags":[]}}]"#, "x".repeat(3_000));
        let things = declared(row.as_bytes());
        assert_eq!(things.shape.default_view.as_deref(), Some("summary"));
        assert_eq!(things.shape.views[0].fields, ["id"]);
        assert_eq!(things.filters.len(), 1);
    }

    #[test]
    fn only_fields_whose_names_can_be_arguments_are_filters() {
        let things = declared(br#"[{"id":1,"limit":5,"a.b":1,"with space":2}]"#);
        let filters: Vec<_> = things
            .filters
            .iter()
            .map(|filter| filter.name.as_str())
            .collect();
        assert_eq!(filters, ["id", "limit"]);
        let columns: Vec<_> = things
            .shape
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(columns, ["id", "limit", "with space"]);
    }
}
