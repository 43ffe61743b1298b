//! Any bytes as a component file: it is compiled and inspected, or refused.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plimsoll::sandbox::{Sandbox, SandboxOptions};

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let options = SandboxOptions { max_concurrent_calls: 1, ..SandboxOptions::default() };
    Sandbox::new(&options).unwrap_or_else(|error| panic!("{error:#}"))
});

fuzz_target!(|data: &[u8]| {
    let _ = SANDBOX.imports(data);
});
