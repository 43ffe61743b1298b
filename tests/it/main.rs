//! Integration tests: one binary, real components, real doors.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    unreachable_pub,
    missing_docs,
    reason = "a test may panic, and nobody depends on it"
)]

mod authors;
mod battery;
mod cases;
mod client_profiles;
mod clients;
mod contract;
mod doors;
mod field_cases;
mod fleet;
mod grants;
mod lifecycle;
mod limits;
mod meta;
mod openapi;
mod operations;
mod policy;
mod postgres;
mod promised;
mod readme;
mod replicas;
mod results;
mod sql;
mod streams;
mod support;
mod tenants;
mod tokens;
mod upstream;
