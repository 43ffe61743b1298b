//! Any config file is a config or an error.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plimsoll::config::Config;
use plimsoll::shape::undeclared;

fuzz_target!(|text: &str| {
    let Ok(config) = Config::parse(text, Path::new("/nowhere")) else { return };
    for plugin in &config.plugins {
        for tool in plugin.tools.values() {
            let _ = tool.argument_names();
            let _ = tool.apply(undeclared());
        }
    }
});
