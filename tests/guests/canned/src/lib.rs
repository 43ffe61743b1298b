//! A tool-handler whose tools and answers come from a folder, so that a new test is a new folder.
//!
//! `/case/tool.json` is an array of tools in the words of the contract (see `case::Tool`); each names the file that is
//! its answer. Nothing here is shaped: whatever happens to the answer, the host did it.

mod answer;
mod bindings;
mod case;

use bindings::exports::plimsoll::plugin::tools::{Guest, Tool};
use bindings::plimsoll::plugin::reply;
use bindings::plimsoll::plugin::types::Fault;
use case::How;

/// The folder that the host grants.
const FOLDER: &str = "/case";

struct Canned;

impl Guest for Canned {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        Ok(tools()?.iter().map(case::Tool::declaration).collect())
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let tools = tools()?;
        let tool = tools
            .iter()
            .find(|tool| tool.name == name)
            .ok_or_else(|| Fault::NotFound(format!("there is no tool `{name}` in this case")))?;
        if let Some(fault) = &tool.fault {
            return Err(fault.declaration());
        }
        if let Some(applied) = &tool.applied {
            reply::applied(case::push_down(applied));
        }
        if let Some(total) = tool.total {
            reply::total(total);
        }
        let Some(file) = &tool.answer else {
            return Ok(());
        };
        let answer = read(file)?;
        let limit = match tool.honour_limit {
            true => answer::limit(&arguments).map_err(Fault::InvalidInput)?,
            false => None,
        };
        match tool.how {
            How::Document => match limit {
                Some(limit) => {
                    reply::document(&answer::first(&answer, limit).map_err(Fault::Internal)?);
                }
                None => reply::document(&answer),
            },
            How::Rows => {
                let lines = match limit {
                    Some(limit) => answer::first_lines(&answer, limit),
                    None => &answer,
                };
                for piece in answer::pieces(lines, tool.piece_bytes) {
                    if reply::rows(piece) == reply::Demand::Enough {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

fn tools() -> Result<Vec<case::Tool>, Fault> {
    serde_json::from_slice(&read("tool.json")?)
        .map_err(|error| Fault::Internal(format!("{FOLDER}/tool.json: {error}")))
}

fn read(file: &str) -> Result<Vec<u8>, Fault> {
    std::fs::read(format!("{FOLDER}/{file}"))
        .map_err(|error| Fault::Unavailable(format!("{FOLDER}/{file}: {error}")))
}
