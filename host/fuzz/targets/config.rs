//! Any config file is a config or an error.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plimsoll::config::{Config, tags};
use plimsoll::contract::Annotations;
use plimsoll::shape::undeclared;

fuzz_target!(|text: &str| {
    let Ok(config) = Config::parse(text, Path::new("/nowhere")) else { return };
    for plugin in &config.plugins {
        for name in ["list_rows", "x"] {
            let Ok(decided) = plugin.rules.for_tool(name, &tags(&[], Annotations::all())) else { continue };
            let _ = decided.settings.argument_names();
            let _ = decided.settings.apply(undeclared());
        }
    }
});
