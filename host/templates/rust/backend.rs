//! The plugin `{{name}}`: one collection, from which the host makes `list_{{snake}}` and `get_{{snake}}`.
//!
//! It hands rows over. Pages, views, filters and tables are declared in `list_collections`, and the host carries them out.

use exports::plimsoll::plugin::backend::{Collection, FilterField, Guest, Selection, ValueType};
use plimsoll::plugin::reply::{self, Demand};
use plimsoll::plugin::shaping::{Accepted, Column, Horizon, PushDown, RowSource, Shape, View};
use plimsoll::plugin::types::Fault;
use serde::Serialize;

wit_bindgen::generate!({ world: "backend-adapter", path: "wit", generate_all });

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

fn json(row: &Row) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(row).map_err(|error| Fault::Internal(error.to_string()))
}

struct Plugin;

impl Guest for Plugin {
    fn list_collections() -> Result<Vec<Collection>, Fault> {
        let text = |text: &str| text.to_owned();
        Ok(vec![Collection {
            name: text("{{snake}}"),
            description: text(
                "Notes, oldest first. Notes that are done are hidden unless asked for.",
            ),
            filters: vec![FilterField {
                name: text("state"),
                description: text("open, waiting or done."),
                value_type: ValueType::Text,
            }],
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
                filters: Vec::new(),
                page: None,
                cap_bytes: None,
                applies: PushDown::empty(),
            },
            count: None,
            tags: Vec::new(),
        }])
    }

    fn query(_collection: String, _selection: Selection) -> Result<(), Fault> {
        // One JSON value a line, in as many pushes as you like. What of the selection is easy for you, apply yourself and
        // say so with `reply::applied`; the host does the rest.
        for row in rows() {
            let mut line = json(&row)?;
            line.push(b'\n');
            if reply::rows(&line) == Demand::Enough {
                break;
            }
        }
        Ok(())
    }

    fn get(collection: String, key: String) -> Result<(), Fault> {
        let row = rows().find(|row| row.id.to_string() == key.trim_matches('"'));
        let row =
            row.ok_or_else(|| Fault::NotFound(format!("there is no row {key} in {collection}")))?;
        reply::document(&json(&row)?);
        Ok(())
    }
}

// Natively, the crate is built for its unit tests.
#[cfg(target_family = "wasm")]
export!(Plugin);
