//! The types of the plugin contract, generated from `wit/v0.1`, so that the WIT is their one definition.
//!
//! Owns: nothing but names. What the host does with the types stands in [`crate::shape`] and [`crate::sandbox`].

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from the WIT, whose items are documented there"
)]
pub(crate) mod tool_handler {
    wasmtime::component::bindgen!({
        path: "../wit/v0.1",
        world: "tool-handler",
        exports: { default: async },
        additional_derives: [PartialEq],
    });
}

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from the WIT, whose items are documented there"
)]
pub(crate) mod backend_adapter {
    wasmtime::component::bindgen!({
        path: "../wit/v0.1",
        world: "backend-adapter",
        exports: { default: async },
        additional_derives: [PartialEq],
        with: {
            "wasi:config/store": super::tool_handler::wasi::config::store,
            "plimsoll:plugin/types": super::tool_handler::plimsoll::plugin::types,
            "plimsoll:plugin/shaping": super::tool_handler::plimsoll::plugin::shaping,
            "plimsoll:plugin/reply": super::tool_handler::plimsoll::plugin::reply,
            "plimsoll:plugin/log": super::tool_handler::plimsoll::plugin::log,
        },
    });
}

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated from the WIT, whose items are documented there"
)]
pub(crate) mod databases {
    wasmtime::component::bindgen!({
        path: "../wit/v0.1",
        inline: "package plimsoll:host; world databases { import plimsoll:plugin/sql@0.1.0; }",
        world: "plimsoll:host/databases",
        imports: { default: async },
        with: {
            "plimsoll:plugin/types": super::tool_handler::plimsoll::plugin::types,
        },
    });
}

pub use backend_adapter::exports::plimsoll::plugin::backend::{
    Collection, Condition, FilterField, Selection as BackendSelection, ValueType,
};
pub(crate) use databases::plimsoll::plugin::sql;
pub use tool_handler::exports::plimsoll::plugin::tools::{Annotations, Example, Tool};
pub(crate) use tool_handler::plimsoll::plugin::log::Level;
pub use tool_handler::plimsoll::plugin::reply::{Attachment, Blob, Demand, Embedded};
pub use tool_handler::plimsoll::plugin::shaping::{
    Accepted, BudgetSource, Column, Filter, Horizon, Page, Passage, PushDown, Receipt, RowSource,
    Shape, Stage, View,
};
pub use tool_handler::plimsoll::plugin::types::Fault;
