//! A guest of the benches. `small` and `rows` hand over what it holds; `many` pushes as many rows as it is told.

mod bindings;

use bindings::exports::plimsoll::plugin::tools::{Annotations, Guest, Tool};
use bindings::plimsoll::plugin::reply::{self, Demand};
use bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use bindings::plimsoll::plugin::types::Fault;
use bindings::wasi::config::store;

const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;
const MANY_ARGUMENTS: &str =
    r#"{"type":"object","properties":{"rows":{"type":"integer"}},"required":["rows"]}"#;

static SMALL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/small.json"));
static ROWS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rows.json"));

/// Bytes of one push of `many`.
const PUSH_BYTES: usize = 64 << 10;

struct Rows;

impl Guest for Rows {
    /// The config value `prefix` comes before each name, and `copies` says how many more tools there are like `small`.
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        let prefix = value("prefix");
        let copies: usize = value("copies").parse().unwrap_or_default();
        let mut tools = vec![
            tool(format!("{prefix}small"), NO_ARGUMENTS, RowSource::Whole),
            tool(
                format!("{prefix}rows"),
                NO_ARGUMENTS,
                RowSource::Pointer("/rows".into()),
            ),
            tool(
                format!("{prefix}many"),
                MANY_ARGUMENTS,
                RowSource::Automatic,
            ),
        ];
        tools.extend((0..copies).map(|copy| {
            tool(
                format!("{prefix}small_{copy}"),
                NO_ARGUMENTS,
                RowSource::Whole,
            )
        }));
        Ok(tools)
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        match name.as_str() {
            "small" => reply::document(SMALL),
            "rows" => reply::document(ROWS),
            "many" => push(&arguments)?,
            _ => return Err(Fault::NotFound(name)),
        }
        Ok(())
    }
}

fn value(name: &str) -> String {
    store::get(name).ok().flatten().unwrap_or_default()
}

/// Pushes rows that differ in their id alone.
fn push(arguments: &str) -> Result<(), Fault> {
    let digits: String = arguments
        .split("\"rows\":")
        .nth(1)
        .unwrap_or_default()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let rows: u64 = digits
        .parse()
        .map_err(|_| Fault::InvalidInput(format!("rows: {arguments}")))?;
    let mut lines = Vec::with_capacity(PUSH_BYTES + 512);
    for id in 0..rows {
        lines.extend_from_slice(b"{\"id\":");
        lines.extend_from_slice(id.to_string().as_bytes());
        lines.extend_from_slice(
            br#","name":"keel berth","state":"open","owner":{"name":"quay","team":7},"note":"mooring hull stern ballast hatch freight draught tonnage cargo anchor","tags":["bow"],"active":true,"parent":null}"#,
        );
        lines.push(b'\n');
        if lines.len() >= PUSH_BYTES {
            if reply::rows(&lines) == Demand::Enough {
                return Ok(());
            }
            lines.clear();
        }
    }
    reply::rows(&lines);
    Ok(())
}

fn tool(name: String, input_schema: &str, rows: RowSource) -> Tool {
    let key = (!matches!(rows, RowSource::Whole)).then(|| "id".to_owned());
    Tool {
        name,
        title: None,
        description: "Answers a bench.".to_owned(),
        input_schema: input_schema.to_owned(),
        output_schema: None,
        shape: Shape {
            rows,
            key,
            horizon: None,
            views: Vec::new(),
            default_view: None,
            columns: Vec::new(),
            filters: Vec::new(),
            page: None,
            cap_bytes: None,
            applies: PushDown::empty(),
        },
        annotations: Annotations::READ_ONLY,
        tags: Vec::new(),
        examples: Vec::new(),
    }
}
