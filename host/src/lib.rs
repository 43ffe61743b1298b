//! Plimsoll: a WebAssembly plugin host that sizes what tools hand to an AI agent.
//!
//! # Layout
//!
//! # One call

pub mod contract;
pub mod shape;
