//! What the tools are called, what they take, and how the host is to shape what they hand over.

use crate::bindings::exports::plimsoll::plugin::tools::{Annotations, Example, Tool};
use crate::bindings::plimsoll::plugin::shaping::{
    Accepted, Column, Filter, Horizon, PushDown, RowSource, Shape, View,
};

/// Every stream of the fleet.
pub(crate) const FLEET_SHOW: &str = "fleet_show";
/// The streams of one wave.
pub(crate) const WAVE_SHOW: &str = "wave_show";
/// One stream, whole.
pub(crate) const STREAM_DETAIL: &str = "stream_detail";

/// The states of a stream that is over. What is over has the longest history and is the least asked for.
pub(crate) const OVER: [&str; 2] = ["merged", "closed-without-merge"];
/// Replies stay under this many bytes, since a page of whole streams is more than a reader can use.
const CAP_BYTES: u32 = 200_000;

/// Who and what a stream is, where it stands, what its last gate said, and whether it is alive.
const SUMMARY: [&str; 15] = [
    "id",
    "title",
    "wave",
    "owner",
    "branch",
    "state",
    "created",
    "updated",
    // The prose of the gate is what `full` is for.
    "last_gate.name",
    "last_gate.verdict",
    "last_gate.decided_by",
    "last_gate.decided_at",
    "liveness.status",
    "liveness.last_commit",
    "liveness.last_heartbeat",
];

/// The columns of a table: the fields of the summary, under names without dots.
const COLUMNS: [(&str, &str); 15] = [
    ("id", "id"),
    ("title", "title"),
    ("wave", "wave"),
    ("owner", "owner"),
    ("branch", "branch"),
    ("state", "state"),
    ("created", "created"),
    ("updated", "updated"),
    ("gate", "last_gate.name"),
    ("verdict", "last_gate.verdict"),
    ("decided_by", "last_gate.decided_by"),
    ("decided_at", "last_gate.decided_at"),
    ("liveness", "liveness.status"),
    ("last_commit", "liveness.last_commit"),
    ("last_heartbeat", "liveness.last_heartbeat"),
];

/// The three tools.
pub(crate) fn tools() -> Vec<Tool> {
    vec![
        tool(
            FLEET_SHOW,
            "The fleet",
            "Shows the work streams of the fleet: what each is, who owns it, its state, what its last gate decided and \
             whether its worker is alive. Call it to see what is going on, or to find a stream's id. Streams that are \
             over are hidden unless asked for. For the full history of one stream, stream_detail is cheaper than \
             detail:\"full\" here.",
            include_str!("schemas/fleet_show.json"),
            stream_rows(&["state", "streams"]),
            &[
                ("The live streams, as a summary", "{}"),
                (
                    "What waits for a gate",
                    r#"{"state":"gated","fields":["id","title","last_gate"]}"#,
                ),
                (
                    "Everything that was merged, as a table",
                    r#"{"state":"merged","horizon":"all","format":"csv"}"#,
                ),
            ],
        ),
        tool(
            WAVE_SHOW,
            "One wave",
            "Shows the work streams of one wave, in the same form as fleet_show. Call it to see whether a wave is done: \
             with horizon:\"all\" its finished streams are shown too.",
            include_str!("schemas/wave_show.json"),
            stream_rows(&["state"]),
            &[
                ("The live streams of wave 4", r#"{"wave":4}"#),
                ("All of wave 1", r#"{"wave":1,"horizon":"all"}"#),
            ],
        ),
        tool(
            STREAM_DETAIL,
            "One stream",
            "Shows everything about one work stream: all of its gates with the justification of each verdict in full, \
             and its liveness with every check. Call it when the summary of fleet_show does not say why.",
            include_str!("schemas/stream_detail.json"),
            Shape {
                rows: RowSource::Whole,
                ..shape()
            },
            &[("One stream with its gates", r#"{"stream":"ws-012"}"#)],
        ),
    ]
}

fn tool(
    name: &str,
    title: &str,
    description: &str,
    input_schema: &str,
    shape: Shape,
    examples: &[(&str, &str)],
) -> Tool {
    Tool {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description: description.to_owned(),
        input_schema: input_schema.to_owned(),
        output_schema: None,
        shape,
        annotations: Annotations::READ_ONLY | Annotations::IDEMPOTENT,
        tags: Vec::new(),
        examples: examples
            .iter()
            .map(|(title, arguments)| Example {
                title: (*title).to_owned(),
                arguments: (*arguments).to_owned(),
            })
            .collect(),
    }
}

/// Where rows are streams; each of `filters` is an argument, and the field that it selects by.
fn stream_rows(filters: &[&str]) -> Shape {
    Shape {
        rows: RowSource::Pointer("/streams".to_owned()),
        key: Some("id".to_owned()),
        horizon: Some(Horizon {
            field: "state".to_owned(),
            live: Accepted::NoneOf(OVER.map(str::to_owned).to_vec()),
            excluded: "merged and closed-without-merge streams".to_owned(),
        }),
        views: vec![View {
            name: "summary".to_owned(),
            fields: SUMMARY.map(str::to_owned).to_vec(),
        }],
        default_view: Some("summary".to_owned()),
        columns: COLUMNS
            .iter()
            .map(|(name, field)| Column {
                name: (*name).to_owned(),
                field: (*field).to_owned(),
            })
            .collect(),
        filters: filters
            .iter()
            .map(|argument| Filter {
                argument: (*argument).to_owned(),
                field: match *argument {
                    "streams" => "id".to_owned(),
                    same => same.to_owned(),
                },
            })
            .collect(),
        ..shape()
    }
}

/// What all tools share.
fn shape() -> Shape {
    Shape {
        rows: RowSource::Automatic,
        key: None,
        horizon: None,
        views: Vec::new(),
        default_view: None,
        columns: Vec::new(),
        filters: Vec::new(),
        page: None,
        cap_bytes: Some(CAP_BYTES),
        applies: PushDown::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_and_examples_are_json_objects() {
        for tool in tools() {
            let examples = tool.examples.iter().map(|example| &example.arguments);
            for text in std::iter::once(&tool.input_schema).chain(examples) {
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                assert!(value.is_object(), "{}: {text}", tool.name);
            }
        }
    }

    #[test]
    fn every_filter_is_an_argument_of_its_tool() {
        for tool in tools() {
            let schema: serde_json::Value = serde_json::from_str(&tool.input_schema).unwrap();
            for filter in &tool.shape.filters {
                assert!(
                    schema["properties"][&filter.argument].is_object(),
                    "{}",
                    tool.name
                );
            }
        }
    }

    #[test]
    fn every_declared_field_is_in_every_stream_of_the_shipped_record() {
        let record =
            std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/fleet.json")).unwrap();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        let columns = COLUMNS.iter().map(|(_, field)| *field);
        for field in SUMMARY.into_iter().chain(columns) {
            let pointer = format!("/{}", field.replace('.', "/"));
            for stream in record["streams"].as_array().unwrap() {
                assert!(
                    stream.pointer(&pointer).is_some(),
                    "{field} in {}",
                    stream["id"]
                );
            }
        }
    }
}
