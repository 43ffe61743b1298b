//! `plimsoll keys`

use std::io::Write;

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::{ConfigArgument, Exit};
use crate::app::open_store;
use crate::config::{Config, check_budget};
use crate::shape::KeyMode;
use crate::store::{Change, KeyRow, Store, now_ms};
use crate::tenant::{NewKey, Quotas, hash, utc};

/// Bytes of a key's name: a line.
const MAX_NAME_BYTES: usize = 100;

#[derive(Debug, Args)]
pub(super) struct Keys {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a key and show it, once: the store has only its hash
    Add(Add),
    /// List keys: whose, which budget and quotas, when they end and when they were used last
    List(List),
    /// Change the budget or the quotas of a key; it reaches every replica within 5 s
    Set(Set),
    /// End a key; it reaches every replica within 5 s
    Revoke(Which),
}

#[derive(Debug, Args)]
struct Add {
    /// The tenant; none for an admin's key, which is the operator's
    #[arg(required_unless_present = "admin")]
    tenant: Option<String>,
    /// What to call the key; a live key of the tenant must not have that name
    #[arg(long)]
    name: String,
    /// For how long it is good, such as 90d, 12h or 30m [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = span_ms)]
    expires: Option<i64>,
    /// Make a key for /metrics and /v1/preview, which sees no tools
    #[arg(long, conflicts_with_all = ["tenant", "result_tokens", "mode", "quota"])]
    admin: bool,
    #[command(flatten)]
    budget: Budget,
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(Debug, Args)]
struct List {
    /// Of this tenant only
    tenant: Option<String>,
    /// Expired and revoked ones too
    #[arg(long)]
    all: bool,
    /// JSON, one key a line, in place of the table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(Debug, Args)]
struct Set {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    budget: Budget,
}

#[derive(Debug, Args)]
struct Which {
    /// The key: its id, TENANT/NAME, or the name of an admin's
    key: String,
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(Debug, Args)]
struct Budget {
    /// Token budget of its answers, or `none` for the tenant's
    #[arg(long, value_name = "TOKENS", value_parser = tokens)]
    result_tokens: Option<Tokens>,
    /// What a call's own max_tokens can do
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// A quota, such as minute.calls=100, day.tokens=1000000, concurrent_calls=4, or day.tokens=none
    #[arg(long, value_name = "QUOTA")]
    quota: Vec<String>,
}

/// A number of tokens, or none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens(pub(super) Option<u64>);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// The key's budget, else the tenant's, else the client program's; a call may name any
    Inherit,
    /// No budget but the call's own
    Off,
    /// A call can only lower what the key or its tenant has
    Strict,
}

impl Mode {
    fn key_mode(self) -> KeyMode {
        match self {
            Self::Inherit => KeyMode::Inherit,
            Self::Off => KeyMode::Off,
            Self::Strict => KeyMode::Strict,
        }
    }
}

/// A number of tokens that makes a budget, or `none`.
pub(super) fn tokens(text: &str) -> Result<Tokens, String> {
    if text == "none" {
        return Ok(Tokens(None));
    }
    let number = text
        .parse()
        .map_err(|_| format!("expected a number of tokens or `none`, found `{text}`"))?;
    check_budget(number).map(|tokens| Tokens(Some(tokens)))
}

/// A span of time in milliseconds, as `90d`, `12h`, `30m` or `45s` write it.
pub(super) fn span_ms(text: &str) -> Result<i64, String> {
    let wrong = || format!("expected a time such as 90d, 12h, 30m or 45s, found `{text}`");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: i64 = text[..text.len() - unit.len_utf8()]
        .parse()
        .map_err(|_| wrong())?;
    let unit = match unit {
        'd' => 86_400_000,
        'h' => 3_600_000,
        'm' => 60_000,
        's' => 1_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .filter(|span| *span > 0)
        .ok_or_else(wrong)
}

impl Keys {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        match self.action {
            Action::Add(add) => add.run().await?,
            Action::List(list) => list.run().await?,
            Action::Set(set) => set.run().await?,
            Action::Revoke(which) => {
                let (store, key) = which.find().await?;
                if !store.revoke_key(&key.id).await? {
                    bail!("key `{}` was revoked already", key.id);
                }
                let mut out = std::io::stdout().lock();
                writeln!(out, "revoked {} ({}/{})", key.id, key.tenant, key.name)?;
            }
        }
        Ok(Exit::Success)
    }
}

impl Budget {
    fn quotas(&self, before: Quotas) -> anyhow::Result<String> {
        let mut quotas = before;
        for quota in &self.quota {
            quotas
                .set(quota)
                .map_err(|message| anyhow::anyhow!("`--quota`: {message}"))?;
        }
        Ok(serde_json::to_string(&quotas)?)
    }
}

impl Add {
    async fn run(self) -> anyhow::Result<()> {
        let config = self.config.read()?;
        if let Some(tenant) = &self.tenant {
            check_tenant(&config, tenant)?;
        }
        let tenant = self.tenant.unwrap_or_default();
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || self.name.contains('/') {
            bail!(
                "`--name`: expected 1 to {MAX_NAME_BYTES} bytes without `/`, found `{}`",
                self.name
            );
        }
        let store = open_store(&config).await?;
        let key = NewKey::random()?;
        let now = now_ms();
        let row = KeyRow {
            id: key.id.clone(),
            hash: hash(&key.text).to_hex().to_string(),
            tenant: tenant.clone(),
            name: self.name.clone(),
            is_admin: self.admin,
            budget_mode: self
                .budget
                .mode
                .map_or(KeyMode::default(), Mode::key_mode)
                .as_str()
                .to_owned(),
            result_tokens: self.budget.result_tokens.and_then(|tokens| tokens.0),
            quotas: self.budget.quotas(Quotas::default())?,
            created_ms: now,
            expires_ms: self.expires.map(|span| now.saturating_add(span)),
            revoked_ms: None,
            last_used_ms: None,
        };
        if !store.add_key(&row).await? {
            bail!(
                "{} has a live key `{}` already; revoke it first, or choose another name",
                owner(&tenant),
                self.name
            );
        }
        store.close().await;
        // The key alone goes to standard output, so that it can be piped to where it is kept.
        writeln!(
            std::io::stderr().lock(),
            "key {} of {}: it is shown this once, and only its hash is kept",
            key.id,
            owner(&tenant)
        )?;
        writeln!(std::io::stdout().lock(), "{}", key.text)?;
        Ok(())
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let config = self.config.read()?;
        if let Some(tenant) = &self.tenant {
            check_tenant(&config, tenant)?;
        }
        let store = open_store(&config).await?;
        let keys = store.snapshot().await?.keys;
        let now = now_ms();
        let is_over = |key: &KeyRow| {
            key.revoked_ms.is_some() || key.expires_ms.is_some_and(|expires| expires <= now)
        };
        let is_asked = |key: &&KeyRow| {
            self.tenant
                .as_ref()
                .is_none_or(|tenant| key.tenant == *tenant)
                && (self.all || !is_over(key))
        };
        let mut out = std::io::stdout().lock();
        let at = |ms: Option<i64>| ms.map_or(String::from("-"), utc);
        if !self.json {
            writeln!(
                out,
                "{:<12}  {:<24}  {:<7}  {:>8}  {:<20}  {:<20}  quotas",
                "id", "tenant/name", "mode", "tokens", "expires", "last used"
            )?;
        }
        for key in keys.iter().filter(is_asked) {
            if self.json {
                let row = json!({
                    "id": key.id,
                    "tenant": key.tenant,
                    "name": key.name,
                    "admin": key.is_admin,
                    "mode": key.budget_mode,
                    "result_tokens": key.result_tokens,
                    "quotas": serde_json::from_str::<serde_json::Value>(&key.quotas).context("reading quotas")?,
                    "created": utc(key.created_ms),
                    "expires": key.expires_ms.map(utc),
                    "revoked": key.revoked_ms.map(utc),
                    "last_used": key.last_used_ms.map(utc),
                });
                writeln!(out, "{row}")?;
                continue;
            }
            let mut notes = key.quotas.clone();
            if key.is_admin {
                notes.push_str(" admin");
            }
            if let Some(revoked) = key.revoked_ms {
                notes.push_str(&format!(" revoked {}", utc(revoked)));
            }
            writeln!(
                out,
                "{:<12}  {:<24}  {:<7}  {:>8}  {:<20}  {:<20}  {notes}",
                key.id,
                format!("{}/{}", key.tenant, key.name),
                key.budget_mode,
                key.result_tokens
                    .map_or(String::from("-"), |tokens| tokens.to_string()),
                at(key.expires_ms),
                at(key.last_used_ms),
            )?;
        }
        Ok(())
    }
}

impl Set {
    async fn run(self) -> anyhow::Result<()> {
        let (store, key) = self.which.find().await?;
        let change = Change {
            budget_mode: self.budget.mode.map(|mode| mode.key_mode().as_str().into()),
            result_tokens: self.budget.result_tokens.map(|tokens| tokens.0),
            quotas: if self.budget.quota.is_empty() {
                None
            } else {
                let before = serde_json::from_str(&key.quotas).context("reading quotas")?;
                Some(self.budget.quotas(before)?)
            },
        };
        if change == Change::default() {
            bail!("nothing to change: pass `--result-tokens`, `--mode` or `--quota`");
        }
        if !store.change_key(&key.id, &change).await? {
            bail!("key `{}` was revoked", key.id);
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "changed {} ({}/{})", key.id, key.tenant, key.name)?;
        Ok(())
    }
}

impl Which {
    /// The live key that is meant.
    async fn find(&self) -> anyhow::Result<(Store, KeyRow)> {
        let config = self.config.read()?;
        let store = open_store(&config).await?;
        let keys = store.snapshot().await?.keys;
        let is_meant = |key: &KeyRow| {
            key.id == self.key
                || key.tenant.is_empty() && key.name == self.key
                || self
                    .key
                    .split_once('/')
                    .is_some_and(|(tenant, name)| key.tenant == tenant && key.name == name)
        };
        let key = keys
            .into_iter()
            .find(|key| key.revoked_ms.is_none() && is_meant(key))
            .with_context(|| {
                format!(
                    "there is no live key `{}`; expected an id or TENANT/NAME as `plimsoll keys list` shows them",
                    self.key
                )
            })?;
        Ok((store, key))
    }
}

/// Whose key it is, in words.
fn owner(tenant: &str) -> String {
    match tenant {
        "" => String::from("the operator"),
        name => format!("tenant `{name}`"),
    }
}

/// A tenant that the config file does not have is a slip of the pen.
pub(super) fn check_tenant(config: &Config, name: &str) -> anyhow::Result<()> {
    if config.tenants.iter().any(|tenant| tenant.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = config
        .tenants
        .iter()
        .map(|tenant| tenant.name.as_str())
        .collect();
    if names.is_empty() {
        bail!("the config file has no tenants\nhint: add a table such as `[tenants.{name}]`");
    }
    bail!(
        "there is no tenant `{name}`; the config file has: {}",
        names.join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_number_and_a_unit() {
        assert_eq!(span_ms("90d"), Ok(7_776_000_000));
        assert_eq!(span_ms("12h"), Ok(43_200_000));
        assert_eq!(span_ms("30m"), Ok(1_800_000));
        assert_eq!(span_ms("45s"), Ok(45_000));
        for text in ["", "d", "90", "-1d", "0d", "1w", "9999999999999d"] {
            assert_eq!(
                span_ms(text),
                Err(format!(
                    "expected a time such as 90d, 12h, 30m or 45s, found `{text}`"
                ))
            );
        }
    }

    #[test]
    fn a_budget_leaves_room_for_rows() {
        assert_eq!(tokens("none").unwrap().0, None);
        assert_eq!(tokens("2000").unwrap().0, Some(2_000));
        assert_eq!(
            tokens("1999").unwrap_err(),
            "expected at least 2000 tokens, which the facts and a row need, found 1999"
        );
        assert_eq!(
            tokens("many").unwrap_err(),
            "expected a number of tokens or `none`, found `many`"
        );
    }
}
