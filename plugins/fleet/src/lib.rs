//! The record of a fleet of work streams, as three tools.
//!
//! The plugin finds and hands over; it narrows nothing that the host can narrow. `fleet_show` is the record file as it
//! lies on the disk, so that an answer from which nothing was taken away is that file, byte for byte.

mod bindings;
mod declaration;
mod record;

use bindings::exports::plimsoll::plugin::tools::{Guest, Tool};
use bindings::plimsoll::plugin::reply;
use bindings::plimsoll::plugin::types::Fault;
use bindings::wasi::config::store;

/// The folder that the operator grants.
const FOLDER: &str = "/data";
/// The record in it, where the configuration names no other.
const RECORD: &str = "fleet.json";

struct Fleet;

impl Guest for Fleet {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        Ok(declaration::tools())
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let record = read()?;
        match name.as_str() {
            declaration::FLEET_SHOW => reply::document(&record),
            declaration::WAVE_SHOW => reply::document(&record::wave(&record, &arguments)?),
            declaration::STREAM_DETAIL => reply::document(record::stream(&record, &arguments)?),
            _ => return Err(Fault::NotFound(format!("there is no tool `{name}` here"))),
        }
        Ok(())
    }
}

/// Reads the record file.
fn read() -> Result<Vec<u8>, Fault> {
    let file = store::get("record")
        .map_err(|error| Fault::Internal(format!("reading the configuration: {error:?}")))?
        .unwrap_or_else(|| RECORD.to_owned());
    std::fs::read(format!("{FOLDER}/{file}"))
        .map_err(|error| Fault::Unavailable(format!("reading the record `{file}`: {error}")))
}
