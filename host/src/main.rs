//! The `plimsoll` command.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use plimsoll::cli::{Cli, Exit, run};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Standard output carries bodies and MCP messages; everything that is said goes to standard error. rmcp reports a
    // client's mistakes as warnings and every call that was cancelled as an error: neither is the operator's affair.
    let level = std::env::var("PLIMSOLL_LOG")
        .unwrap_or_else(|_| String::from("info,wasmtime=warn,cranelift=warn"));
    let filter = EnvFilter::new(if level.contains("rmcp") {
        level
    } else {
        format!("{level},rmcp=off")
    });
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .with_target(false)
        .init();
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
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "error: {error:#}");
            Exit::Failed.into()
        }
    }
}
