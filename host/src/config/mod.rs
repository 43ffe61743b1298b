//! The configuration: what was written in `plimsoll.toml`, then what is used.
//!
//! Two types and one conversion: nobody behind [`Config`] reads the file again. Owns the defaults that are the host's
//! own and the source of every value.

mod file;
mod grants;
mod reference;
mod results;
mod rules;
mod settings;
mod tenants;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

pub use file::{CellsFile, File, Surface, ToolFile};
use file::{LimitsFile, PluginFile};
pub use reference::reference;
pub use results::{DEFAULT_KEEP_SECONDS, DEFAULT_TENANT_BYTES, ResultsConfig};
pub use rules::{Decided, Rules, tags};
pub use tenants::{AuthConfig, DEFAULT_SCOPE, TenantConfig, check_budget};

use crate::admission::{DEFAULT_CONCURRENT_CALLS, DEFAULT_QUEUED_CALLS};
use crate::sandbox::{Grants, Limits, MAX_DEADLINE};
use crate::shape::{CellPolicy, DEFAULT_CAP_BYTES, DEFAULT_INTAKE_BYTES, MIN_CAP_BYTES};
use crate::store::Location;

/// Where the HTTP doors listen by default: on loopback, since a host without keys is for one user.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8787";

/// The state folder by default, beside the config file.
pub const DEFAULT_STATE: &str = ".plimsoll";

/// How long a call stays in the ledger by default: a quarter, and some days to account for it.
pub const DEFAULT_LEDGER_DAYS: u32 = 100;

/// The name of the config file that is used where none is named.
pub const FILE_NAME: &str = "plimsoll.toml";

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The host.
    Default,
    /// `plimsoll.toml`.
    File,
    /// The plugin's declaration.
    Plugin,
    /// The command line.
    CommandLine,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => FILE_NAME,
            Self::Plugin => "plugin",
            Self::CommandLine => "command line",
        })
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub source: Source,
}

impl<T> Setting<T> {
    /// The file's value, else the one given.
    fn or(file: Option<T>, otherwise: &Setting<T>) -> Self
    where
        T: Clone,
    {
        file.map_or_else(
            || otherwise.clone(),
            |value| Self {
                value,
                source: Source::File,
            },
        )
    }

    fn default(value: T) -> Self {
        Self {
            value,
            source: Source::Default,
        }
    }
}

/// Limits of the calls of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLimits {
    /// Fuel of one call.
    pub fuel: Setting<u64>,
    /// Memory of one instance.
    pub memory_bytes: Setting<u64>,
    /// Wall-clock time of one call.
    pub deadline_ms: Setting<u64>,
    /// The cap of tools that declare none.
    pub cap_bytes: Setting<u32>,
    /// Bytes that one answer may hand over.
    pub intake_bytes: Setting<usize>,
    /// Calls that run at the same time.
    pub concurrent_calls: Setting<u32>,
    /// Calls that wait for one of those to end.
    pub queued_calls: Setting<u32>,
}

impl PluginLimits {
    fn defaults() -> Self {
        let limits = Limits::default();
        Self {
            fuel: Setting::default(limits.fuel),
            memory_bytes: Setting::default(limits.memory_bytes),
            deadline_ms: Setting::default(limits.deadline.as_millis() as u64),
            cap_bytes: Setting::default(DEFAULT_CAP_BYTES),
            intake_bytes: Setting::default(DEFAULT_INTAKE_BYTES),
            concurrent_calls: Setting::default(DEFAULT_CONCURRENT_CALLS),
            queued_calls: Setting::default(DEFAULT_QUEUED_CALLS),
        }
    }

    /// These limits where `file` says nothing. `place` names the table in messages.
    fn overridden(&self, file: &LimitsFile, place: &str) -> anyhow::Result<Self> {
        check_bounds(file.deadline_ms, file.cap_bytes, &format!("{place}."))?;
        let at_least_one = [
            ("fuel", file.fuel),
            ("memory_bytes", file.memory_bytes),
            ("intake_bytes", file.intake_bytes.map(|bytes| bytes as u64)),
            ("concurrent_calls", file.concurrent_calls.map(u64::from)),
        ];
        if let Some((name, _)) = at_least_one
            .into_iter()
            .find(|(_, value)| *value == Some(0))
        {
            bail!("`{place}.{name}` must be at least 1, found 0");
        }
        Ok(Self {
            fuel: Setting::or(file.fuel, &self.fuel),
            memory_bytes: Setting::or(file.memory_bytes, &self.memory_bytes),
            deadline_ms: Setting::or(file.deadline_ms, &self.deadline_ms),
            cap_bytes: Setting::or(file.cap_bytes, &self.cap_bytes),
            intake_bytes: Setting::or(file.intake_bytes, &self.intake_bytes),
            concurrent_calls: Setting::or(file.concurrent_calls, &self.concurrent_calls),
            queued_calls: Setting::or(file.queued_calls, &self.queued_calls),
        })
    }

    /// As the sandbox takes them.
    pub fn sandbox(&self) -> Limits {
        Limits {
            fuel: self.fuel.value,
            memory_bytes: self.memory_bytes.value,
            deadline: Duration::from_millis(self.deadline_ms.value),
        }
    }
}

/// One plugin, resolved.
#[derive(Debug, Clone)]
pub struct PluginConfig {
    /// Its name.
    pub name: String,
    /// The tenant, where the entry differs for one.
    pub tenant: Option<String>,
    /// The component file.
    pub component: PathBuf,
    /// What it may reach.
    pub grants: Grants,
    /// Limits of its calls.
    pub limits: PluginLimits,
    /// What the operator decides for its tools.
    pub rules: Rules,
    /// What is taken out of the cells of every tool, beside what is for one.
    pub cells: CellPolicy,
}

/// The configuration that is used.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file it was read from.
    pub file: Option<PathBuf>,
    /// Where the HTTP doors listen.
    pub listen: Setting<SocketAddr>,
    /// The state folder.
    pub state: Setting<PathBuf>,
    /// The folder of component files.
    pub plugins_folder: Setting<PathBuf>,
    /// Token budget of answers.
    pub result_tokens: Setting<Option<u64>>,
    /// Whether what is known of client programs applies.
    pub client_profiles: Setting<bool>,
    /// What is listed, for tenants that say nothing.
    pub surface: Setting<Surface>,
    /// Further host names of the MCP endpoint.
    pub allowed_hosts: Setting<Vec<String>>,
    /// Further origins of the MCP endpoint.
    pub allowed_origins: Setting<Vec<String>>,
    /// What links to complete results begin with.
    pub public_url: Setting<Option<String>>,
    /// Where complete results are kept.
    pub results: ResultsConfig,
    /// Limits of plugins that set none.
    pub limits: PluginLimits,
    /// The plugins, in the order of their names.
    pub plugins: Vec<PluginConfig>,
    /// The store.
    pub store: Location,
    /// How many days a call stays in the ledger.
    pub ledger_days: Setting<u32>,
    /// The tenants, in the order of their names; none where the host is for one user.
    pub tenants: Vec<TenantConfig>,
    /// Entries of plugins that differ for a tenant.
    pub variants: Vec<PluginConfig>,
    /// Identity providers.
    pub auth: AuthConfig,
}

impl Config {
    /// Reads a config file. Relative paths in it are relative to its folder.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading `{}`", path.display()))?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let config =
            Self::parse(&text, folder).with_context(|| format!("in `{}`", path.display()))?;
        Ok(Self {
            file: Some(path.to_owned()),
            ..config
        })
    }

    /// The configuration of a single component file without a config file.
    pub fn of_component(component: &Path) -> anyhow::Result<Self> {
        let name = component
            .file_stem()
            .and_then(|stem| stem.to_str())
            .with_context(|| format!("`{}` has no file name", component.display()))?;
        let mut config = Self::parse("", Path::new("."))?;
        config.plugins.push(PluginConfig {
            name: name.to_owned(),
            tenant: None,
            component: component.to_owned(),
            grants: Grants::default(),
            limits: config.limits.clone(),
            rules: Rules::default(),
            cells: CellPolicy::default(),
        });
        Ok(config)
    }

    /// Reads the text of a config file in a folder.
    pub fn parse(text: &str, folder: &Path) -> anyhow::Result<Self> {
        let file: File = toml::from_str(text)?;
        Self::resolve(file, folder)
    }

    fn resolve(file: File, folder: &Path) -> anyhow::Result<Self> {
        let listen = file
            .listen
            .map(|listen| {
                listen.parse().with_context(|| format!("`listen` must be an address and a port such as `{DEFAULT_LISTEN}`, found `{listen}`"))
            })
            .transpose()?;
        let default_listen = DEFAULT_LISTEN.parse().context("the default address")?;
        check_tokens(file.result_tokens)?;
        let limits = PluginLimits::defaults().overridden(&file.limits, "limits")?;
        let plugins_folder = Setting::or(
            file.plugins_folder.map(|plugins| folder.join(plugins)),
            &Setting::default(folder.join("plugins")),
        );
        let rules = Rules::of_host(&file.tools)?;
        let entry = |name, plugin| {
            resolve_plugin(name, plugin, folder, &plugins_folder.value, &limits, &rules)
        };
        let (tenants, variants) = tenants::resolve(file.tenants, &file.plugins, entry)?;
        let plugins = file
            .plugins
            .into_iter()
            .map(|(name, plugin)| entry(name, plugin))
            .collect::<anyhow::Result<_>>()?;
        let state = Setting::or(
            file.state.map(|state| folder.join(state)),
            &Setting::default(folder.join(DEFAULT_STATE)),
        );
        let public_url = file
            .public_url
            .as_deref()
            .map(results::public_url)
            .transpose()?;
        Ok(Self {
            file: None,
            listen: Setting::or(listen, &Setting::default(default_listen)),
            public_url: Setting::or(public_url.map(Some), &Setting::default(None)),
            results: ResultsConfig::resolve(&file.results, folder, &state.value)?,
            store: tenants::store(file.store, folder, &state.value)?,
            state,
            plugins_folder,
            result_tokens: file
                .result_tokens
                .map_or(Setting::default(None), |tokens| Setting {
                    value: Some(tokens),
                    source: Source::File,
                }),
            client_profiles: Setting::or(file.client_profiles, &Setting::default(true)),
            surface: Setting::or(file.surface, &Setting::default(Surface::default())),
            allowed_hosts: Setting::or(file.allowed_hosts, &Setting::default(Vec::new())),
            allowed_origins: Setting::or(file.allowed_origins, &Setting::default(Vec::new())),
            ledger_days: Setting::or(file.ledger_days, &Setting::default(DEFAULT_LEDGER_DAYS)),
            limits,
            plugins,
            tenants,
            variants,
            auth: tenants::auth(file.auth)?,
        })
    }

    /// Whether another configuration differs in nothing but its plugins, and what the command line decides.
    pub fn is_same_host(&self, other: &Self) -> bool {
        let is_overridden = [&self.listen, &other.listen]
            .iter()
            .any(|listen| listen.source == Source::CommandLine);
        (is_overridden || self.listen == other.listen)
            && self.state == other.state
            && self.public_url == other.public_url
            && self.results == other.results
            && self.result_tokens == other.result_tokens
            && self.client_profiles == other.client_profiles
            && self.allowed_hosts == other.allowed_hosts
            && self.allowed_origins == other.allowed_origins
            && self.store == other.store
            && self.ledger_days == other.ledger_days
            && self.auth == other.auth
            && self.tenants.is_empty() == other.tenants.is_empty()
            && self.limits == other.limits
    }

    /// The entries that are loaded: those of all plugins on a host for one user, otherwise those that a tenant uses.
    pub fn entries(&self) -> impl Iterator<Item = &PluginConfig> {
        let is_used = |plugin: &&PluginConfig| {
            self.tenants.is_empty()
                || self.tenants.iter().any(|tenant| {
                    tenant.plugins.contains(&plugin.name)
                        && self.variant(&plugin.name, &tenant.name).is_none()
                })
        };
        self.plugins.iter().filter(is_used).chain(&self.variants)
    }

    /// What is listed to a tenant.
    pub fn surface(&self, tenant: &TenantConfig) -> Setting<Surface> {
        Setting::or(tenant.surface, &self.surface)
    }

    /// The entry of a plugin that differs for a tenant.
    pub fn variant(&self, plugin: &str, tenant: &str) -> Option<&PluginConfig> {
        self.variants
            .iter()
            .find(|variant| variant.name == plugin && variant.tenant.as_deref() == Some(tenant))
    }

    /// The most memory that any plugin may have: the size of a slot in the pool.
    pub fn max_memory_bytes(&self) -> u64 {
        let plugins = self
            .plugins
            .iter()
            .map(|plugin| plugin.limits.memory_bytes.value);
        // What differs for a tenant are grants, never limits.
        plugins.fold(self.limits.memory_bytes.value, u64::max)
    }
}

fn resolve_plugin(
    name: String,
    file: PluginFile,
    folder: &Path,
    plugins_folder: &Path,
    limits: &PluginLimits,
    rules: &Rules,
) -> anyhow::Result<PluginConfig> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if !is_name(&name) {
        bail!("`plugins.{name}`: a plugin's name has letters, digits, `-` and `_`");
    }
    let place = format!("plugins.{name}");
    let grants = grants::resolve(&file, folder, &place)?;
    Ok(PluginConfig {
        tenant: None,
        component: plugins_folder.join(
            file.component
                .unwrap_or_else(|| PathBuf::from(format!("{name}.wasm"))),
        ),
        grants,
        limits: limits.overridden(&file.limits, &format!("{place}.limits"))?,
        rules: rules.and_of_plugin(&file.tools, &place)?,
        name,
        cells: CellPolicy::default(),
    })
}

/// Checks what plugins and single tools can set alike. `place` is the table, with a dot, that messages name.
fn check_bounds(
    deadline_ms: Option<u64>,
    cap_bytes: Option<u32>,
    place: &str,
) -> anyhow::Result<()> {
    let max = MAX_DEADLINE.as_millis() as u64;
    match deadline_ms {
        Some(0) => bail!("`{place}deadline_ms` must be at least 1, found 0"),
        Some(found) if found > max => bail!(
            "`{place}deadline_ms` must be at most {max}, found {found}: stock MCP clients hang up at 60 s, so a longer \
             call would go on with nobody there to read its answer"
        ),
        _ => {}
    }
    if let Some(found) = cap_bytes.filter(|cap| *cap < MIN_CAP_BYTES) {
        bail!(
            "`{place}cap_bytes` must be at least {MIN_CAP_BYTES}, since a refusal must pass, found {found}"
        );
    }
    Ok(())
}

fn check_tokens(result_tokens: Option<u64>) -> anyhow::Result<()> {
    if result_tokens == Some(0) {
        bail!("`result_tokens` must be at least 1, found 0; leave it out for no budget");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!(
            "{:#}",
            Config::parse(text, Path::new("/etc/plimsoll")).unwrap_err()
        )
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = Config::parse("", Path::new("/etc/plimsoll")).unwrap();
        assert_eq!(config.listen.value.to_string(), "127.0.0.1:8787");
        assert_eq!(config.state.value, Path::new("/etc/plimsoll/.plimsoll"));
        assert_eq!(config.limits.fuel.value, 10_000_000_000);
        assert_eq!(config.limits.memory_bytes.value, 134_217_728);
        assert_eq!(config.limits.deadline_ms.value, 30_000);
        assert_eq!(config.limits.cap_bytes.value, 262_144);
        assert_eq!(config.limits.intake_bytes.value, 67_108_864);
        assert_eq!(config.result_tokens.value, None);
        assert!(config.client_profiles.value);
        assert_eq!(config.limits.fuel.source, Source::Default);
    }

    #[test]
    fn a_plugin_inherits_limits_and_says_where_each_comes_from() {
        let text = "[limits]\nfuel = 5\n[plugins.fleet]\nconfig = { a = \"b\" }\nfiles = [{ host = \"data\", guest = \"/data\" }]\n[plugins.fleet.limits]\ndeadline_ms = 60000\n";
        let config = Config::parse(text, Path::new("/etc/plimsoll")).unwrap();
        let plugin = &config.plugins[0];
        assert_eq!(
            plugin.component,
            Path::new("/etc/plimsoll/plugins/fleet.wasm")
        );
        assert_eq!(plugin.grants.files[0].host, Path::new("/etc/plimsoll/data"));
        assert_eq!(
            (plugin.limits.fuel.value, plugin.limits.fuel.source),
            (5, Source::File)
        );
        assert_eq!(
            (
                plugin.limits.deadline_ms.value,
                plugin.limits.deadline_ms.source
            ),
            (60_000, Source::File)
        );
        assert_eq!(plugin.limits.memory_bytes.source, Source::Default);
    }

    #[test]
    fn a_deadline_above_a_minute_is_refused_with_the_reason() {
        assert_eq!(
            error("[limits]\ndeadline_ms = 60001"),
            "`limits.deadline_ms` must be at most 60000, found 60001: stock MCP clients hang up at 60 s, so a longer call \
             would go on with nobody there to read its answer"
        );
    }

    #[test]
    fn bad_settings_say_what_was_expected_and_found() {
        let table = [
            (
                "listen = \"x\"",
                "`listen` must be an address and a port such as `127.0.0.1:8787`, found `x`",
            ),
            (
                "result_tokens = 0",
                "`result_tokens` must be at least 1, found 0",
            ),
            (
                "[limits]\ncap_bytes = 7999",
                "`limits.cap_bytes` must be at least 8000, since a refusal must pass, found 7999",
            ),
            (
                "[plugins.\"a b\"]",
                "`plugins.a b`: a plugin's name has letters, digits, `-` and `_`",
            ),
            (
                "[plugins.a.tools.t.arguments]\nlimt = false",
                "the host has no such argument; it has limit, after, detail",
            ),
            (
                "[plugins.a.tools.t.horizon]\nfield = \"s\"\nexcluded = \"x\"",
                "`horizon` takes exactly one of `live` and `hidden`",
            ),
            (
                "[plugins.a.tools.t.cells]\ndrop = [\"a..b\"]",
                "`cells`: drop: `a..b` is not a path: expected names joined by single dots",
            ),
            (
                "[plugins.a.tools.t.cells]\nmax_cell_chars = 0",
                "`cells.max_cell_chars` must be at least 1, found 0; leave it out to leave cells as they are",
            ),
            (
                "[plugins.a.tools.t.cells]\nreplace_data_chars = 9",
                "`cells.replace_data_chars` is 9, and `replace_data` is not true: expected both or none",
            ),
            ("[plugins.a]\ncomponet = \"x\"", "unknown field `componet`"),
        ];
        for (text, expected) in table {
            let error = error(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
