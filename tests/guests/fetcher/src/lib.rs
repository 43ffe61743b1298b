//! A tool-handler that uses what it is granted, as its arguments say: sends a request, reads its configuration, writes a file.
//!
//! What becomes of it is a document in either case, so that a test sees the host's word for a refusal and not the guest's.

mod bindings;
mod fetch;

use bindings::exports::plimsoll::plugin::tools::{Annotations, Guest, Tool};
use bindings::plimsoll::plugin::reply;
use bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use bindings::plimsoll::plugin::types::Fault;
use bindings::wasi::config::store;
use serde_json::{Value, json};

struct Fetcher;

impl Guest for Fetcher {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        Ok(vec![
            tool(
                "fetch",
                "Sends a request and tells what came back.",
                fetch::SCHEMA,
            ),
            tool(
                "values",
                "All that it finds in its configuration.",
                NO_ARGUMENTS,
            ),
            tool(
                "write",
                "Writes `text` to the file `path`, reads it back, and removes it.",
                WRITE,
            ),
            tool(
                "place",
                "Its working directory, process and environment.",
                NO_ARGUMENTS,
            ),
        ])
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let invalid = |error| Fault::InvalidInput(format!("arguments: {error}"));
        let document = match name.as_str() {
            "fetch" => fetch::fetch(&serde_json::from_str(&arguments).map_err(invalid)?),
            "values" => values(),
            "write" => write(&serde_json::from_str(&arguments).map_err(invalid)?),
            "place" => place(),
            _ => return Err(Fault::NotFound(format!("there is no tool `{name}`"))),
        };
        reply::document(document.to_string().as_bytes());
        Ok(())
    }
}

const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

const WRITE: &str = r#"{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}},"required":["path"]}"#;

fn values() -> Value {
    match store::get_all() {
        Ok(values) => values
            .into_iter()
            .map(|(key, value)| (key, Value::from(value)))
            .collect(),
        Err(error) => json!({ "error": format!("{error:?}") }),
    }
}

fn write(arguments: &Value) -> Value {
    let path = arguments["path"].as_str().unwrap_or_default();
    let attempt = || {
        std::fs::write(path, arguments["text"].as_str().unwrap_or_default())?;
        let read = std::fs::read_to_string(path)?;
        std::fs::remove_file(path)?;
        Ok::<_, std::io::Error>(read)
    };
    match attempt() {
        Ok(text) => json!({ "text": text }),
        Err(error) => json!({ "error": error.kind().to_string() }),
    }
}

fn place() -> Value {
    let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
    let folder = std::env::current_dir().map(|folder| folder.display().to_string());
    json!({
        "folder": folder.unwrap_or_else(|error| error.to_string()),
        "process_file": std::fs::read("/proc/self/stat").is_ok(),
        "variables": variables,
        "arguments": std::env::args().count(),
    })
}

fn tool(name: &str, description: &str, input_schema: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema: input_schema.to_owned(),
        output_schema: None,
        shape: Shape {
            rows: RowSource::Whole,
            key: None,
            horizon: None,
            views: Vec::new(),
            default_view: None,
            columns: Vec::new(),
            filters: Vec::new(),
            page: None,
            cap_bytes: None,
            applies: PushDown::empty(),
        },
        annotations: Annotations::empty(),
        tags: Vec::new(),
        examples: Vec::new(),
    }
}
