//! Plimsoll: a WebAssembly plugin host that sizes what tools hand to an AI agent.
//!
//! # Layout
//!
//! | module | owns | does not know |
//! | --- | --- | --- |
//! | [`contract`] | the types generated from `wit/v0.1` | |
//! | [`shape`] | narrow, page, fit, cap: pure | wasmtime, MCP, HTTP |
//! | [`sandbox`] | components, instances, limits, grants; the only place that knows wasmtime | MCP, HTTP |
//! | [`config`] | `plimsoll.toml`, and the source of every value | |
//! | [`catalog`] | plugins → tools, published schemas, the check of arguments | how plugins run |
//! | [`admission`] | permits and queues | what runs |
//! | [`tenant`] | who calls, with which budget and quota | which door a call came through |
//! | [`store`] | keys, quotas and the ledger in SQLite or PostgreSQL; the only place that knows SQL | what they decide |
//! | [`account`] | what one call was and used | |
//! | [`ledger`] | writing every call down | |
//! | [`tls`] | what speaks TLS | |
//! | [`metrics`], [`telemetry`] | numbers for Prometheus; log lines and OTLP traces | |
//! | [`queries`] | queries that are too long for their cursors | |
//! | [`results`] | complete results: kept, read page by page, linked | MCP, HTTP |
//! | [`client`] | what is known of client programs, as data | what a reply is |
//! | [`call`] | one call from name and arguments to a sealed reply | which door it came through |
//! | [`meta`] | calls of the host's own tools, which are listed in place of hundreds | how tools are found |
//! | [`preview`] | what each client program would get of one answer | |
//! | [`examples`] | the examples of a plugin, which are its tests | which door a call came through |
//! | [`app`] | the composition root | |
//! | [`watch`] | reloading when a file changes | |
//! | `files` | files that are there whole or not at all | |
//! | [`mcp`] | MCP over stdio and streamable HTTP; the only place that knows rmcp | wasmtime |
//! | [`http`] | the HTTP API | wasmtime |
//! | [`cli`] | the commands | |
//!
//! # One call
//!
//! door → who calls → look the tool up → check the arguments, split the host's from the handler's → wait for a permit → new
//! store, instantiate, call → answer → narrow → page → fit → cap → sealed reply → the door writes it.

pub mod account;
pub mod admission;
pub mod app;
pub mod call;
pub mod catalog;
pub mod cli;
pub mod client;
pub mod config;
pub mod contract;
pub mod examples;
mod files;
pub mod http;
pub mod ledger;
pub mod mcp;
pub mod meta;
pub mod metrics;
pub mod preview;
pub mod queries;
pub mod results;
pub mod sandbox;
pub mod shape;
pub mod store;
pub mod telemetry;
pub mod tenant;
pub mod tls;
pub mod watch;
