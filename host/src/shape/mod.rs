//! The stages that the host owns: narrow → page → fit → cap.
//!
//! Owns: what becomes of an answer. Everything here is synchronous and pure, and knows neither wasmtime nor MCP (an intake
//! also fills the [`Spool`](crate::results::Spool) that it is given, which writes to a file): an [`Intake`] takes the answer in, [`shape`] makes the [`Reply`]. A `Reply` cannot be made anywhere else, so that all
//! that a door sends has passed the cap.

mod ask;
#[cfg(test)]
mod behaviour;
#[doc(hidden)]
pub mod bench;
mod blocks;
mod cap;
mod cells;
mod cursor;
mod data;
mod edit;
mod fit;
mod format;
mod gates;
mod graphemes;
mod intake;
pub(crate) mod json;
mod keep;
mod listing;
mod narrow;
mod next;
mod page;
mod pipeline;
mod policy;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod readers;
mod receipt;
mod refusal;
mod reply;
mod rows;
mod select;
pub mod tokens;
mod touched;
mod whole;

pub(crate) use ask::other_result;
pub use ask::{Ask, Format, PushedDown};
pub use cells::{CellPolicy, DEFAULT_DATA_CHARS};
pub use cursor::{MAX_CURSOR_CHARS, Signer};
pub use fit::{Budget, BudgetSources, KeyBudget, KeyMode, MIN_BUDGET_TOKENS, Reader};
pub(crate) use format::write_cell;
pub use gates::{Gate, Gates, Unit};
pub use intake::{DEFAULT_INTAKE_BYTES, Intake, MAX_ATTACHMENTS, is_text};
pub use keep::{
    Complete, Keep, KeptAnswer, KeptCounts, KeptKind, NotKept, ResultId, complete_name,
    describe as describe_complete,
};
pub use listing::{Listing, ListingPage};
pub use next::{INVOKED_ARGUMENTS, INVOKED_NAME};
pub use pipeline::{Call, OwnLimit, ToolFacts, check, shape, shape_each};
pub use policy::{
    DEFAULT_CAP_BYTES, DEFAULT_LIMIT, FULL, HostArgument, MAX_LIMIT, MIN_CAP_BYTES, Policy,
    undeclared,
};
pub use receipt::{Facts, source_name};
pub use refusal::{Code, Field, MAX_REFUSAL_BYTES, Refusal, excerpt};
pub use reply::Reply;
pub(crate) use select::Path;
pub use touched::{Change, Touched};
pub use whole::Next;
