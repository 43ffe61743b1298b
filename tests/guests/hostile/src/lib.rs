//! One tool for every way to misbehave, and `fine`, which does not: on one plugin, so that a test can see that a call
//! after a failed one succeeds.
//!
//! Tools take `count`, whose meaning and default each tool's description says. With `list_tools` in its configuration
//! the plugin already misbehaves when it is loaded: see [`listing`].

mod bindings;
mod listing;
mod misdeeds;

use bindings::exports::plimsoll::plugin::tools::{Guest, Tool};
use bindings::plimsoll::plugin::types::Fault;
use bindings::wasi::config::store;

struct Hostile;

impl Guest for Hostile {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        listing::of(store::get("list_tools").ok().flatten().as_deref())
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
