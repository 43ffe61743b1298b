//! Runs plugins: the only place that knows wasmtime.
//!
//! A [`Sandbox`] is one engine. It makes a [`Plugin`] of a component once, and [`Plugin::call`] runs each call in a store
//! and an instance of its own, under fuel, memory and a deadline, with nothing of WASI but what was granted. One mechanism
//! gives fairness and both time limits: a guest yields after so much fuel or, where it calls the host, so much time; the
//! next turn goes to whoever is due; and whoever waits for a guest drops it at the deadline.
//!
//! What is deliberately absent: epochs, a watchdog thread, reused instances, and sockets. Of what a call opens only connections
//! to databases outlive it, in the pools of [`sql`]. What an answer is worth and how it is cut to size is [`crate::shape`]'s
//! affair.

mod address;
mod call;
mod code;
mod engine;
mod failure;
mod grants;
mod hosts;
mod http;
mod imports;
mod inspect;
mod instance;
mod journal;
mod limits;
mod load;
mod roots;
mod secret;
mod share;
mod sql;
mod turn;

pub use call::{Called, Failed, Meter, Progress, Request, Usage, Window};
pub use engine::{Sandbox, SandboxOptions};
pub use grants::{FileGrant, Grants};
pub use hosts::HostGrant;
pub use inspect::{Inspection, Want};
pub use limits::{DEFAULT_DEADLINE, DEFAULT_FUEL, DEFAULT_MEMORY_BYTES, Limits, MAX_DEADLINE};
pub use load::{Description, Plugin, World};
pub use roots::TrustedRoots;
pub use secret::Secret;
pub use sql::{ConnectionGrant, DEFAULT_POOL, Database};

#[cfg(test)]
mod tests;
