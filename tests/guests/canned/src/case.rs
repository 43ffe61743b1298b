//! What `tool.json` may say, and the same in the contract's types. Every field but `name` may be left out; an unknown
//! one is an error, so that a mistyped test does not pass by testing nothing.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::bindings::exports::plimsoll::plugin::tools;
use crate::bindings::plimsoll::plugin::shaping;
use crate::bindings::plimsoll::plugin::types;

/// One tool and its answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tool {
    pub(crate) name: String,
    title: Option<String>,
    #[serde(default)]
    description: String,
    /// The schema itself, not a text that contains it. Absent: no arguments of its own.
    input_schema: Option<Box<RawValue>>,
    output_schema: Option<Box<RawValue>>,
    #[serde(default)]
    shape: Shape,
    #[serde(default)]
    annotations: Vec<Annotation>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    examples: Vec<Example>,
    /// The file in the folder that is the answer. Absent: an empty answer.
    pub(crate) answer: Option<String>,
    #[serde(default)]
    pub(crate) how: How,
    /// How large a push is, where the answer is pushed as rows.
    #[serde(default = "piece_bytes")]
    pub(crate) piece_bytes: usize,
    /// What the handler says through `reply.total`.
    pub(crate) total: Option<u64>,
    /// What the handler says through `reply.applied`, whether it is true or not.
    pub(crate) applied: Option<Vec<PushDown>>,
    /// The call fails with this, before anything else.
    pub(crate) fault: Option<Fault>,
    /// The handler returns no more rows than the `limit` that it is given.
    #[serde(default)]
    pub(crate) honour_limit: bool,
}

fn piece_bytes() -> usize {
    65_536
}

/// How the answer is handed over.
#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    #[default]
    Document,
    Rows,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fault {
    InvalidInput(String),
    NotFound(String),
    Unavailable(String),
    Internal(String),
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Annotation {
    ReadOnly,
    Destructive,
    Idempotent,
    OpenWorld,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    title: String,
    arguments: Box<RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Shape {
    rows: Rows,
    key: Option<String>,
    horizon: Option<Horizon>,
    views: Vec<View>,
    default_view: Option<String>,
    columns: Vec<Column>,
    filters: Vec<Filter>,
    page: Option<Page>,
    cap_bytes: Option<u32>,
    applies: Vec<PushDown>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum Rows {
    #[default]
    Automatic,
    Pointer(String),
    Lines,
    Whole,
}

#[derive(Deserialize)]
struct Horizon {
    field: String,
    excluded: String,
    #[serde(flatten)]
    live: Accepted,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Accepted {
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct View {
    name: String,
    fields: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Column {
    name: String,
    field: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    argument: String,
    field: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    default_limit: u32,
    max_limit: u32,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PushDown {
    Limit,
    After,
    Fields,
    Filters,
}

impl Tool {
    /// The tool as the contract declares it.
    pub(crate) fn declaration(&self) -> tools::Tool {
        let schema = |schema: &RawValue| schema.get().to_owned();
        tools::Tool {
            name: self.name.clone(),
            title: self.title.clone(),
            description: self.description.clone(),
            input_schema: self
                .input_schema
                .as_deref()
                .map_or_else(|| r#"{"type":"object"}"#.to_owned(), schema),
            output_schema: self.output_schema.as_deref().map(schema),
            shape: self.shape.declaration(),
            annotations: self.annotations.iter().fold(
                tools::Annotations::empty(),
                |all, annotation| {
                    all | match annotation {
                        Annotation::ReadOnly => tools::Annotations::READ_ONLY,
                        Annotation::Destructive => tools::Annotations::DESTRUCTIVE,
                        Annotation::Idempotent => tools::Annotations::IDEMPOTENT,
                        Annotation::OpenWorld => tools::Annotations::OPEN_WORLD,
                    }
                },
            ),
            tags: self.tags.clone(),
            examples: self
                .examples
                .iter()
                .map(|example| tools::Example {
                    title: example.title.clone(),
                    arguments: example.arguments.get().to_owned(),
                })
                .collect(),
        }
    }
}

impl Fault {
    /// The fault as the contract declares it.
    pub(crate) fn declaration(&self) -> types::Fault {
        match self {
            Self::InvalidInput(text) => types::Fault::InvalidInput(text.clone()),
            Self::NotFound(text) => types::Fault::NotFound(text.clone()),
            Self::Unavailable(text) => types::Fault::Unavailable(text.clone()),
            Self::Internal(text) => types::Fault::Internal(text.clone()),
        }
    }
}

impl Shape {
    fn declaration(&self) -> shaping::Shape {
        shaping::Shape {
            rows: match &self.rows {
                Rows::Automatic => shaping::RowSource::Automatic,
                Rows::Pointer(pointer) => shaping::RowSource::Pointer(pointer.clone()),
                Rows::Lines => shaping::RowSource::Lines,
                Rows::Whole => shaping::RowSource::Whole,
            },
            key: self.key.clone(),
            horizon: self.horizon.as_ref().map(|horizon| shaping::Horizon {
                field: horizon.field.clone(),
                live: match &horizon.live {
                    Accepted::OneOf(values) => shaping::Accepted::OneOf(values.clone()),
                    Accepted::NoneOf(values) => shaping::Accepted::NoneOf(values.clone()),
                },
                excluded: horizon.excluded.clone(),
            }),
            views: self
                .views
                .iter()
                .map(|view| shaping::View {
                    name: view.name.clone(),
                    fields: view.fields.clone(),
                })
                .collect(),
            default_view: self.default_view.clone(),
            columns: self
                .columns
                .iter()
                .map(|column| shaping::Column {
                    name: column.name.clone(),
                    field: column.field.clone(),
                })
                .collect(),
            filters: self
                .filters
                .iter()
                .map(|filter| shaping::Filter {
                    argument: filter.argument.clone(),
                    field: filter.field.clone(),
                })
                .collect(),
            page: self.page.as_ref().map(|page| shaping::Page {
                default_limit: page.default_limit,
                max_limit: page.max_limit,
            }),
            cap_bytes: self.cap_bytes,
            applies: push_down(&self.applies),
        }
    }
}

/// The flags of the contract for a list of names.
pub(crate) fn push_down(applied: &[PushDown]) -> shaping::PushDown {
    applied
        .iter()
        .fold(shaping::PushDown::empty(), |all, what| {
            all | match what {
                PushDown::Limit => shaping::PushDown::LIMIT,
                PushDown::After => shaping::PushDown::AFTER,
                PushDown::Fields => shaping::PushDown::FIELDS,
                PushDown::Filters => shaping::PushDown::FILTERS,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_contract_can_be_declared() {
        let tools: Vec<Tool> = serde_json::from_str(
            r#"[{"name": "everything", "title": "Everything", "description": "All of it.",
                "input_schema": {"type": "object", "properties": {"state": {}}},
                "output_schema": {"type": "array"},
                "shape": {"rows": {"pointer": "/x"}, "key": "id",
                    "horizon": {"field": "state", "none_of": ["done"], "excluded": "done rows"},
                    "views": [{"name": "summary", "fields": ["id", "a.b"]}], "default_view": "summary",
                    "columns": [{"name": "id", "field": "id"}],
                    "filters": [{"argument": "state", "field": "state"}],
                    "page": {"default_limit": 2, "max_limit": 3}, "cap_bytes": 5000, "applies": ["limit"]},
                "annotations": ["read_only"], "examples": [{"title": "one", "arguments": {"state": "open"}}],
                "answer": "answer.ndjson", "how": "rows", "piece_bytes": 10, "total": 4,
                "applied": ["limit", "after"], "honour_limit": true},
               {"name": "broken", "fault": {"not_found": "nothing here"}}]"#,
        )
        .unwrap();
        let everything = tools[0].declaration();
        assert_eq!(
            everything.input_schema,
            r#"{"type": "object", "properties": {"state": {}}}"#
        );
        assert_eq!(everything.shape.applies, shaping::PushDown::LIMIT);
        assert!(
            matches!(everything.shape.rows, shaping::RowSource::Pointer(pointer) if pointer == "/x")
        );
        assert!(matches!(
            everything.shape.horizon.unwrap().live,
            shaping::Accepted::NoneOf(values) if values == ["done"]
        ));
        let broken = tools[1].declaration();
        assert!(matches!(broken.shape.rows, shaping::RowSource::Automatic));
        assert!(matches!(
            tools[1].fault.as_ref().unwrap().declaration(),
            types::Fault::NotFound(_)
        ));
    }

    #[test]
    fn a_mistyped_field_is_an_error() {
        assert!(
            serde_json::from_str::<Vec<Tool>>(r#"[{"name": "a", "shape": {"rowz": "whole"}}]"#)
                .is_err()
        );
    }
}
