//! One tool for every way to misbehave, and `fine`, which does not: on one plugin, so that a test can see that a call
//! after a failed one succeeds.
//!
//! Tools take `count`, whose meaning and default each tool's description says. With the configuration
//! `list_tools = "loop"` (or `trap`, `grow`, `fault`, `flood`) the plugin already misbehaves when it is loaded.

mod bindings;
mod misdeeds;

use bindings::exports::plimsoll::plugin::tools::{Annotations, Guest, Tool};
use bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use bindings::plimsoll::plugin::types::Fault;
use bindings::wasi::config::store;

struct Hostile;

impl Guest for Hostile {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        let copies = match store::get("list_tools").ok().flatten().as_deref() {
            Some("loop") => misdeeds::spin(),
            Some("trap") => misdeeds::trap(),
            Some("grow") => misdeeds::grow(),
            Some("fault") => return Err(Fault::Unavailable("the list is out of reach".to_owned())),
            // About 30 MB of descriptions.
            Some("flood") => 20_000,
            _ => 1,
        };
        Ok(misdeeds::ALL
            .iter()
            .map(|misdeed| tool(misdeed.name, &misdeed.description.repeat(copies)))
            .collect())
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let arguments: serde_json::Value = serde_json::from_str(&arguments)
            .map_err(|error| Fault::Internal(format!("arguments: {error}")))?;
        let misdeed = misdeeds::ALL
            .iter()
            .find(|misdeed| misdeed.name == name)
            .ok_or_else(|| Fault::NotFound(format!("there is no tool `{name}`")))?;
        (misdeed.run)(arguments["count"].as_u64())
    }
}

fn tool(name: &str, description: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema: r#"{"type":"object","properties":{"count":{"type":"integer","minimum":0}}}"#
            .to_owned(),
        output_schema: None,
        shape: Shape {
            rows: RowSource::Automatic,
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
        examples: Vec::new(),
    }
}
