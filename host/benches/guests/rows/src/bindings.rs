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
use crate::Rows;

wit_bindgen::generate!({
    world: "tool-handler",
    generate_all,
    path: "../../../../wit/v0.1",
});

// Only where the linker knows component exports: natively the crate is built for its unit tests.
#[cfg(target_family = "wasm")]
export!(Rows with_types_in crate::bindings);
