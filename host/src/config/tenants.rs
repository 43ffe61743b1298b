//! Tenants and identity providers, resolved: names checked, grants merged into the entries of plugins.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::file::{
    AuthFile, CellsFile, PluginFile, SecretFile, StoreFile, Surface, TenantFile, TenantGrantsFile,
};
use super::{PluginConfig, grants};
use crate::sandbox::Secret;
use crate::shape::MIN_BUDGET_TOKENS;
use crate::store::Location;
use crate::tenant::{DEFAULT_TENANT_CALLS, DEFAULT_TENANT_QUEUE, Issuer, Quotas, check_url};

/// Every plugin, in a tenant's list.
const ALL_PLUGINS: &str = "*";

/// The longest name of a tenant: it is part of the names of files and of log lines.
const MAX_NAME_CHARS: usize = 64;

/// The scope that a call needs where an issuer's entry names none.
pub const DEFAULT_SCOPE: &str = "plimsoll";

/// One tenant, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// The plugins that it sees, by name, in order.
    pub plugins: Vec<String>,
    /// Its token budget.
    pub result_tokens: Option<u64>,
    /// What is listed of its tools, where it says so.
    pub surface: Option<Surface>,
    /// Calls that run at the same time.
    pub concurrent_calls: u32,
    /// Calls that wait for one of those to end.
    pub queued_calls: u32,
    /// What it may spend.
    pub quotas: Quotas,
}

/// Identity providers, and this host as their tokens name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthConfig {
    /// The URL of this host's MCP endpoint.
    pub resource: String,
    /// Whose tokens are taken.
    pub issuers: Vec<Issuer>,
}

/// The tenants, and the entries of plugins that differ for one of them.
pub(super) fn resolve(
    files: BTreeMap<String, TenantFile>,
    plugins: &BTreeMap<String, PluginFile>,
    entry: impl Fn(String, PluginFile) -> anyhow::Result<PluginConfig>,
) -> anyhow::Result<(Vec<TenantConfig>, Vec<PluginConfig>)> {
    let mut tenants = Vec::with_capacity(files.len());
    let mut variants = Vec::new();
    for (name, file) in files {
        let place = format!("tenants.{name}");
        ensure!(
            is_name(&name),
            "`{place}`: a tenant's name has 1 to {MAX_NAME_CHARS} letters, digits, `-` and `_`"
        );
        let names: Vec<String> = if file.plugins.iter().any(|name| name == ALL_PLUGINS) {
            plugins.keys().cloned().collect()
        } else {
            file.plugins.clone()
        };
        let has = || {
            let names: Vec<&str> = plugins.keys().map(String::as_str).collect();
            names.join(", ")
        };
        if let Some(unknown) = names.iter().find(|name| !plugins.contains_key(*name)) {
            bail!(
                "`{place}.plugins`: there is no plugin `{unknown}`; the file has: {}",
                has()
            );
        }
        if let Some(plugin) = file.grants.keys().find(|name| !names.contains(name)) {
            bail!("`{place}.grants.{plugin}`: tenant `{name}` has no plugin `{plugin}`");
        }
        let cells = file.cells.as_ref().map(CellsFile::policy).transpose();
        let cells = cells.with_context(|| format!("`{place}`"))?;
        for plugin in &names {
            let given = file.grants.get(plugin);
            if given.is_none() && cells.is_none() {
                continue;
            }
            let base = &plugins[plugin];
            let merged = given.map_or_else(|| base.clone(), |given| merged(base, given));
            let mut variant = entry(plugin.clone(), merged)
                .with_context(|| format!("`{place}.grants.{plugin}`"))?;
            variant.tenant = Some(name.clone());
            variant.cells = cells.clone().unwrap_or_default();
            variants.push(variant);
        }
        if let Some(found) = file.result_tokens.filter(|tokens| *tokens == 0) {
            bail!(
                "`{place}.result_tokens` must be at least 1, found {found}; leave it out for no budget"
            );
        }
        ensure!(
            file.concurrent_calls != Some(0),
            "`{place}.concurrent_calls` must be at least 1, found 0"
        );
        tenants.push(TenantConfig {
            name,
            plugins: names,
            result_tokens: file.result_tokens,
            surface: file.surface,
            concurrent_calls: file.concurrent_calls.unwrap_or(DEFAULT_TENANT_CALLS),
            queued_calls: file.queued_calls.unwrap_or(DEFAULT_TENANT_QUEUE),
            quotas: file.quotas,
        });
    }
    Ok((tenants, variants))
}

/// A plugin's entry with what a tenant has beside it or in its place.
fn merged(base: &PluginFile, given: &TenantGrantsFile) -> PluginFile {
    let mut merged = base.clone();
    for name in given.config.keys().chain(given.secrets.keys()) {
        // A value of the tenant may take the place of a secret, and the other way round.
        merged.config.remove(name);
        merged.secrets.remove(name);
    }
    merged.config.extend(given.config.clone());
    merged.secrets.extend(given.secrets.clone());
    if let Some(files) = &given.files {
        merged.files.clone_from(files);
    }
    merged.connections.extend(given.connections.clone());
    merged
}

pub(super) fn auth(file: AuthFile) -> anyhow::Result<AuthConfig> {
    if file.issuers.is_empty() {
        return Ok(AuthConfig::default());
    }
    let resource = file.resource.context(
        "`auth.resource` is missing: the URL under which clients reach `/mcp`, which tokens have to name as their audience",
    )?;
    url::Url::parse(&resource)
        .with_context(|| format!("`auth.resource` must be a URL, found `{resource}`"))?;
    let issuers = file.issuers.into_iter().map(|file| {
        let place = format!("auth.issuers: `{}`", file.issuer);
        for url in std::iter::once(&file.issuer).chain(&file.jwks_url) {
            check_url(url).with_context(|| place.clone())?;
        }
        let tenant = match (file.tenant, file.tenant_claim) {
            (Some(tenant), None) => Ok(tenant),
            (None, Some(claim)) => Err(claim),
            _ => bail!("{place}: expected exactly one of `tenant` and `tenant_claim`"),
        };
        Ok(Issuer {
            issuer: file.issuer,
            jwks_url: file.jwks_url,
            tenant,
            scope: file.scope.unwrap_or_else(|| DEFAULT_SCOPE.to_owned()),
            admin_scope: file.admin_scope,
        })
    });
    Ok(AuthConfig {
        resource,
        issuers: issuers.collect::<anyhow::Result<_>>()?,
    })
}

/// Where the store is.
pub(super) fn store(
    file: Option<StoreFile>,
    folder: &Path,
    state: &Path,
) -> anyhow::Result<Location> {
    let source = match file {
        None => return Ok(Location::Folder(state.to_owned())),
        Some(StoreFile::Url(url)) => return Ok(Location::Postgres(Secret::new(url))),
        Some(StoreFile::Secret(source)) => source,
    };
    let url = read_secret(&source, folder).context("`store`")?;
    Ok(Location::Postgres(Secret::new(url)))
}

fn read_secret(source: &SecretFile, folder: &Path) -> anyhow::Result<String> {
    grants::read(source, folder)
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// A budget that is set by hand is one that leaves room for rows.
pub fn check_budget(tokens: u64) -> Result<u64, String> {
    if tokens >= MIN_BUDGET_TOKENS {
        return Ok(tokens);
    }
    Err(format!(
        "expected at least {MIN_BUDGET_TOKENS} tokens, which the facts and a row need, found {tokens}"
    ))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn parse(text: &str) -> anyhow::Result<Config> {
        let folder = tempfile::tempdir().unwrap();
        Config::parse(text, folder.path())
    }

    const PLUGINS: &str =
        "[plugins.orders]\nconfig = { base = \"all\", url = \"x\" }\n[plugins.ledger]\n";

    #[test]
    fn a_tenant_sees_what_it_is_given_and_no_more() {
        let config = parse(&format!(
            "{PLUGINS}[tenants.acme]\nplugins = [\"orders\"]\n[tenants.none]\n[tenants.all]\nplugins = [\"*\"]\n"
        ))
        .unwrap();
        let seen: Vec<(&str, String)> = config
            .tenants
            .iter()
            .map(|tenant| (tenant.name.as_str(), tenant.plugins.join(" ")))
            .collect();
        assert_eq!(
            seen,
            [
                ("acme", "orders".to_owned()),
                ("all", "ledger orders".to_owned()),
                ("none", String::new())
            ]
        );
        assert_eq!(
            (
                config.tenants[0].concurrent_calls,
                config.tenants[0].queued_calls
            ),
            (8, 32)
        );
    }

    #[test]
    fn grants_of_a_tenant_take_the_place_of_the_plugins() {
        let config = parse(&format!(
            "{PLUGINS}[tenants.acme]\nplugins = [\"*\"]\n[tenants.acme.grants.orders]\nconfig = {{ base = \"acme\" }}\nfiles = [{{ host = \"a\", guest = \"/a\" }}]\n"
        ))
        .unwrap();
        let variant = &config.variants[0];
        assert_eq!(
            (variant.name.as_str(), variant.tenant.as_deref()),
            ("orders", Some("acme"))
        );
        assert_eq!(variant.grants.config["base"], "acme");
        assert_eq!(variant.grants.config["url"], "x");
        assert_eq!(variant.grants.files.len(), 1);
        assert_eq!(config.plugins[1].grants.config["base"], "all");
    }

    #[test]
    fn cells_of_a_tenant_are_those_of_all_its_plugins() {
        let config = parse(&format!(
            "{PLUGINS}[tenants.acme]\nplugins = [\"*\"]\ncells = {{ mask = [\"email\"] }}\n[tenants.globex]\nplugins = [\"*\"]\n"
        ))
        .unwrap();
        let cells: Vec<String> = config
            .variants
            .iter()
            .map(|variant| format!("{} {}", variant.name, variant.cells.describe()))
            .collect();
        assert_eq!(cells, ["ledger mask email", "orders mask email"]);
    }

    #[test]
    fn bad_tenants_and_issuers_say_what_was_expected_and_found() {
        let table = [
            (
                "[tenants.\"a b\"]",
                "`tenants.a b`: a tenant's name has 1 to 64 letters, digits, `-` and `_`",
            ),
            (
                "[tenants.a]\nplugins = [\"nope\"]",
                "`tenants.a.plugins`: there is no plugin `nope`; the file has: ledger, orders",
            ),
            (
                "[tenants.a]\nplugins = [\"orders\"]\n[tenants.a.grants.ledger]",
                "`tenants.a.grants.ledger`: tenant `a` has no plugin `ledger`",
            ),
            (
                "[tenants.a]\nresult_tokens = 0",
                "`tenants.a.result_tokens` must be at least 1, found 0",
            ),
            (
                "[tenants.a]\nconcurrent_calls = 0",
                "`tenants.a.concurrent_calls` must be at least 1, found 0",
            ),
            ("[tenants.a.quotas.hour]\ncalls = 1", "unknown field `hour`"),
            (
                "[tenants.a]\ncells = { max_cell_chars = 0 }",
                "`tenants.a`: `cells.max_cell_chars` must be at least 1, found 0",
            ),
            (
                "[[auth.issuers]]\nissuer = \"https://id.example\"\ntenant = \"a\"",
                "`auth.resource` is missing",
            ),
            (
                "[auth]\nresource = \"https://p.example/mcp\"\n[[auth.issuers]]\nissuer = \"https://id.example\"",
                "expected exactly one of `tenant` and `tenant_claim`",
            ),
            (
                "[auth]\nresource = \"https://p.example/mcp\"\n[[auth.issuers]]\nissuer = \"http://id.example\"\ntenant = \"a\"",
                "expected https, since its keys decide who is let in, found `http://id.example`",
            ),
        ];
        for (text, expected) in table {
            let error = format!("{:#}", parse(&format!("{PLUGINS}{text}\n")).unwrap_err());
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
