//! The command line: what was typed, and nothing that another module should know of.

mod build;
mod call;
mod check;
mod dev;
mod inspect;
mod keys;
mod new;
mod preview;
mod serve;
mod tenants;
mod usage;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Parser, Subcommand};

use crate::app::App;
use crate::call::Caller;
use crate::config::{Config, FILE_NAME};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Success = 0,
    /// The call was refused; the refusal is on standard error.
    Refused = 1,
    /// The command line was wrong (clap exits with this itself).
    Usage = 2,
    /// The host could not start, or failed.
    Failed = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Runs WebAssembly plugins for AI agents and sizes what they answer.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP at /mcp and the HTTP API, or one MCP client over standard input and output
    Serve(serve::Serve),
    /// Call one tool: the body goes to standard output, the facts to standard error
    Call(call::Call),
    /// Call one tool and show what each client program would get of its answer, side by side
    Preview(preview::Preview),
    /// Show what a component file is, imports, would need granted, and offers
    Inspect(inspect::Inspect),
    /// Make a folder with a new plugin
    New(new::New),
    /// Build a plugin into a component, load it, and say what it offers
    Build(build::Build),
    /// Build a plugin at every change, and run its examples: what each stage left, and which limit came closest
    Dev(dev::Dev),
    /// Make, list, change and revoke the keys of tenants
    Keys(keys::Keys),
    /// List the tenants, and change their budgets while the host serves
    Tenants(tenants::Tenants),
    /// Add up the calls of the ledger
    Usage(usage::Usage),
    /// Load everything and print the effective configuration with the source of each value
    Check(check::Check),
}

/// Where the configuration is.
#[derive(Debug, Clone, Args)]
struct ConfigArgument {
    /// The config file [default: `plimsoll.toml` in this folder]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigArgument {
    /// The configuration. Without a file anywhere that is an error which says how to get one.
    fn read(&self) -> anyhow::Result<Config> {
        let path = self.config.as_deref().unwrap_or(Path::new(FILE_NAME));
        if self.config.is_none() && !path.exists() {
            bail!(
                "there is no `{FILE_NAME}` in this folder\nhint: pass `--config FILE`, or make one with the lines\n\n\
                 [plugins.NAME]\ncomponent = \"NAME.wasm\""
            );
        }
        Config::read(path)
    }
}

/// Whose call it is, on a host with tenants.
#[derive(Debug, Clone, Args)]
struct CallerArguments {
    /// The tenant whose call it is, on a host with tenants
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The key whose budget and quotas apply, by its name or id
    #[arg(long, value_name = "NAME", requires = "tenant")]
    key: Option<String>,
    /// The client program that calls, by the name it gives itself
    #[arg(long, value_name = "NAME")]
    pub(super) client: Option<String>,
}

impl CallerArguments {
    fn caller(&self, app: &App) -> anyhow::Result<Caller> {
        let caller = app
            .host
            .tenants()
            .caller(self.tenant.as_deref(), self.key.as_deref())?;
        Ok(Caller {
            client: self.client.clone(),
            ..caller
        })
    }
}

/// Runs what was typed.
pub async fn run(cli: Cli) -> anyhow::Result<Exit> {
    match cli.command {
        Command::Serve(serve) => serve.run().await,
        Command::Call(call) => call.run().await,
        Command::Preview(preview) => preview.run().await,
        Command::Inspect(inspect) => inspect.run().await,
        Command::New(new) => new.run(),
        Command::Build(build) => build.run().await,
        Command::Dev(dev) => dev.run().await,
        Command::Keys(keys) => keys.run().await,
        Command::Tenants(tenants) => tenants.run().await,
        Command::Usage(usage) => usage.run().await,
        Command::Check(check) => check.run().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn exit_codes_are_those_of_the_reference() {
        let codes =
            [Exit::Success, Exit::Refused, Exit::Usage, Exit::Failed].map(|exit| exit as u8);
        assert_eq!(codes, [0, 1, 2, 3]);
    }
}
