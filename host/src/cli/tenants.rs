//! `plimsoll tenants`

use std::io::Write;

use clap::{Args, Subcommand};

use super::keys::{Tokens, check_tenant, tokens};
use super::{ConfigArgument, Exit};
use crate::app::open_store;

#[derive(Debug, Args)]
pub(super) struct Tenants {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the tenants: plugins, budget, and what of their quotas is spent
    List(List),
    /// Set a tenant's budget in place of the config file's; it reaches every replica within 5 s
    Set(Set),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(Debug, Args)]
struct Set {
    /// The tenant
    tenant: String,
    /// Token budget of its answers, or `none` for what the config file says
    #[arg(long, value_name = "TOKENS", value_parser = tokens)]
    result_tokens: Tokens,
    #[command(flatten)]
    config: ConfigArgument,
}

impl Tenants {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        match self.action {
            Action::List(list) => list.run().await?,
            Action::Set(set) => set.run().await?,
        }
        Ok(Exit::Success)
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let config = self.config.read()?;
        let store = open_store(&config).await?;
        let changed = store.snapshot().await?.tenant_tokens;
        let mut out = std::io::stdout().lock();
        if config.tenants.is_empty() {
            writeln!(
                out,
                "the config file has no tenants: the host is for one user"
            )?;
        }
        for tenant in &config.tenants {
            let set = changed.iter().find(|(name, _)| *name == tenant.name);
            let tokens = match (set, tenant.result_tokens) {
                (Some((_, tokens)), _) => format!("{tokens} (set at run time)"),
                (None, Some(tokens)) => tokens.to_string(),
                (None, None) => String::from("none"),
            };
            writeln!(out, "{}", tenant.name)?;
            writeln!(out, "  plugins: {}", tenant.plugins.join(", "))?;
            writeln!(out, "  result_tokens: {tokens}")?;
            for (period, spent) in store.spent(&format!("tenant/{}", tenant.name)).await? {
                let amounts = tenant.quotas.amounts(period);
                for (what, limit, spent) in [
                    ("calls", amounts.calls, spent.calls),
                    ("fuel", amounts.fuel, spent.fuel),
                    ("bytes", amounts.bytes, spent.bytes),
                    ("tokens", amounts.tokens, spent.tokens),
                ] {
                    if let Some(limit) = limit {
                        writeln!(out, "  {what} this {}: {spent} of {limit}", period.as_str())?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Set {
    async fn run(self) -> anyhow::Result<()> {
        let config = self.config.read()?;
        check_tenant(&config, &self.tenant)?;
        let store = open_store(&config).await?;
        store
            .set_tenant_tokens(&self.tenant, self.result_tokens.0)
            .await?;
        let mut out = std::io::stdout().lock();
        match self.result_tokens.0 {
            Some(tokens) => writeln!(
                out,
                "tenant {} has a budget of {tokens} tokens",
                self.tenant
            )?,
            None => writeln!(
                out,
                "tenant {} has the budget of the config file",
                self.tenant
            )?,
        }
        Ok(())
    }
}
