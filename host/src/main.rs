//! The `plimsoll` command.

// A command is one future, and the compiler counts how deep those in it lie.
#![recursion_limit = "256"]

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use plimsoll::cli::{Cli, Exit, run};
use plimsoll::telemetry::Telemetry;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let telemetry = match Telemetry::start() {
        Ok(telemetry) => telemetry,
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
            return Exit::Failed.into();
        }
    };
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let outcome = runtime.block_on(run(cli));
            // A blocking read of standard input cannot be interrupted; it must not keep the process.
            runtime.shutdown_background();
            outcome
        });
    telemetry.stop();
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
            Exit::Failed.into()
        }
    }
}
