//! The MCP doors: stdio and streamable HTTP, in the modern era (2026-07-28) and the handshake eras before it.
//!
//! The only place that knows rmcp. Owns: how a [`Reply`](crate::shape::Reply) becomes a tool result, protocol errors,
//! progress and cancellation. Everything that is sent was sealed by [`crate::shape`].

mod progress;
mod resources;
mod result;
mod server;
mod stdio;
mod transport;

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use stdio::read_lines;
pub use transport::{as_caller, http, stdio};
