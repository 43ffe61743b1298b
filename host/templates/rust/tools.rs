//! The plugin `{{name}}`: one tool.
//!
//! It hands rows over. Pages, views, filters and tables are declared in `list_tools`, and the host carries them out.

use exports::plimsoll::plugin::tools::{Annotations, Example, Guest, Tool};
use plimsoll::plugin::reply::{self, Demand};
use plimsoll::plugin::shaping::{
    Accepted, Column, Filter, Horizon, PushDown, RowSource, Shape, View,
};
use plimsoll::plugin::types::Fault;
use serde::Serialize;

wit_bindgen::generate!({ world: "tool-handler", path: "wit", generate_all });

/// The fields that every row has.
const SUMMARY: [&str; 3] = ["id", "title", "state"];

/// One row.
#[derive(Serialize)]
struct Row {
    id: u32,
    title: String,
    state: &'static str,
    text: String,
}

/// Made-up rows. Put what you fetch in their place.
fn rows() -> impl Iterator<Item = Row> {
    (1..=60).map(|id| Row {
        id,
        title: format!("Note {id}"),
        state: ["open", "waiting", "done"][id as usize % 3],
        text: format!("Everything that there is to say about note {id}."),
    })
}

struct Plugin;

impl Guest for Plugin {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        let text = |text: &str| text.to_owned();
        Ok(vec![Tool {
            name: text("list_{{snake}}"),
            title: None,
            description: text(
                "Lists the notes, oldest first. Notes that are done are hidden unless asked for.",
            ),
            input_schema: text(
                r#"{"type":"object","properties":{"state":{"type":"string","description":"Only notes in this state: open, waiting or done."}}}"#,
            ),
            output_schema: None,
            shape: Shape {
                rows: RowSource::Automatic,
                key: Some(text("id")),
                horizon: Some(Horizon {
                    field: text("state"),
                    live: Accepted::NoneOf(vec![text("done")]),
                    excluded: text("notes that are done"),
                }),
                views: vec![View {
                    name: text("summary"),
                    fields: SUMMARY.map(text).to_vec(),
                }],
                default_view: Some(text("summary")),
                columns: SUMMARY
                    .map(|field| Column {
                        name: text(field),
                        field: text(field),
                    })
                    .to_vec(),
                filters: vec![Filter {
                    argument: text("state"),
                    field: text("state"),
                }],
                page: None,
                cap_bytes: None,
                applies: PushDown::empty(),
            },
            annotations: Annotations::READ_ONLY | Annotations::IDEMPOTENT,
            tags: Vec::new(),
            examples: vec![Example {
                title: text("All notes, as a table"),
                arguments: text(r#"{"horizon":"all","format":"csv"}"#),
            }],
        }])
    }

    fn call_tool(name: String, _arguments: String) -> Result<(), Fault> {
        if name != "list_{{snake}}" {
            return Err(Fault::NotFound(format!("there is no tool {name} here")));
        }
        // One JSON value a line, in as many pushes as you like.
        for row in rows() {
            let mut line =
                serde_json::to_vec(&row).map_err(|error| Fault::Internal(error.to_string()))?;
            line.push(b'\n');
            if reply::rows(&line) == Demand::Enough {
                break;
            }
        }
        Ok(())
    }
}

// Natively, the crate is built for its unit tests.
#[cfg(target_family = "wasm")]
export!(Plugin);
