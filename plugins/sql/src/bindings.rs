//! The contract as Rust types, generated from `wit/v0.1`.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    clippy::allow_attributes_without_reason,
    clippy::needless_pass_by_value,
    reason = "generated code, which crosses the component boundary with raw pointers"
)]

#[cfg(target_family = "wasm")]
use crate::Sql;

// No world of the contract imports `sql`, so this plugin has one of its own.
wit_bindgen::generate!({
    world: "plimsoll:databases/databases",
    generate_all,
    path: "../../wit/v0.1",
    inline: "
        package plimsoll:databases;
        world databases {
            include plimsoll:plugin/backend-with-tools@0.1.0;
            import plimsoll:plugin/sql@0.1.0;
        }
    ",
});

// Only where the linker knows component exports: natively the crate is built for its unit tests.
#[cfg(target_family = "wasm")]
export!(Sql with_types_in crate::bindings);
