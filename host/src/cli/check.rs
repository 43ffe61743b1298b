//! `plimsoll check`

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::Arc;

use clap::Args;

use super::{ConfigArgument, Exit};
use crate::app::App;
use crate::call::Caller;
use crate::catalog::{Cost, Tool};
use crate::config::{Config, PluginConfig, PluginLimits, Setting, Source, TenantConfig};
use crate::shape::HostArgument;
use crate::tenant::SINGLE_TENANT;

#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    config: ConfigArgument,
}

impl Check {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let app = App::start(self.config.read()?).await?;
        let text = effective(&app);
        std::io::stdout().lock().write_all(text.as_bytes())?;
        Ok(Exit::Success)
    }
}

/// The effective configuration: every value, and behind it where it comes from.
fn effective(app: &App) -> String {
    let mut out = Lines(String::new());
    let config: &Config = &app.config;
    out.setting("listen", &config.listen);
    out.line("state", config.state.value.display(), config.state.source);
    out.line(
        "plugins_folder",
        config.plugins_folder.value.display(),
        config.plugins_folder.source,
    );
    match config.result_tokens.value {
        Some(tokens) => out.line("result_tokens", tokens, config.result_tokens.source),
        None => out.line("result_tokens", "none", config.result_tokens.source),
    }
    out.setting("client_profiles", &config.client_profiles);
    out.setting("surface", &config.surface);
    out.line(
        "allowed_hosts",
        config.allowed_hosts.value.join(", "),
        config.allowed_hosts.source,
    );
    out.line(
        "allowed_origins",
        config.allowed_origins.value.join(", "),
        config.allowed_origins.source,
    );
    match &config.public_url.value {
        Some(url) => out.line("public_url", url, config.public_url.source),
        None => out.line("public_url", "none", config.public_url.source),
    }
    out.table("results");
    let results = &config.results;
    out.setting("enabled", &results.enabled);
    out.setting("location", &results.location);
    out.setting("keep_seconds", &results.keep_seconds);
    out.setting("max_bytes", &results.max_bytes);
    out.setting("tenant_bytes", &results.tenant_bytes);
    out.table("limits");
    out.limits(&config.limits);
    let listing = |tenant: &str| {
        let caller = Caller {
            tenant: tenant.to_owned(),
            ..Caller::default()
        };
        app.host.catalog(&caller).cost()
    };
    for tenant in &config.tenants {
        out.tenant(config, tenant);
        out.table(&format!("tenants.{}.listing", tenant.name));
        out.cost(&listing(&tenant.name));
    }
    if config.tenants.is_empty() {
        out.table("listing");
        out.cost(&listing(SINGLE_TENANT));
    }
    // How many tools each rule is for.
    let mut rules = BTreeMap::<&str, usize>::new();
    for plugin in config.entries() {
        out.plugin(plugin);
        for place in plugin.rules.places() {
            rules.entry(place).or_default();
        }
        let tenant = config.tenants.iter().find(|tenant| match &plugin.tenant {
            Some(name) => tenant.name == *name,
            None => {
                tenant.plugins.contains(&plugin.name)
                    && config.variant(&plugin.name, &tenant.name).is_none()
            }
        });
        let caller = Caller {
            tenant: tenant.map(|tenant| tenant.name.clone()).unwrap_or_default(),
            ..Caller::default()
        };
        let catalog = app.host.catalog(&caller);
        let is_of_plugin = |tool: &&Arc<Tool>| tool.carrier_name() == plugin.name;
        for tool in catalog.tools().filter(is_of_plugin) {
            out.tool(&plugin.name, tool);
            for place in plugin.rules.places_for(tool.name(), &tool.tags) {
                *rules.entry(place).or_default() += 1;
            }
        }
    }
    if !rules.is_empty() {
        out.table("rules for tools");
    }
    for (place, tools) in rules {
        let tools = match tools {
            0 => String::from("no tool"),
            tools => format!("{tools} tools"),
        };
        out.line(place, tools, "matched");
    }
    out.0
}

/// Lines of `key = value` with their sources.
struct Lines(String);

impl Lines {
    fn line(&mut self, key: &str, value: impl Display, source: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{:<44} # {source}", format!("{key} = {value}"));
    }

    fn table(&mut self, name: &str) {
        let _ = writeln!(self.0, "\n[{name}]");
    }

    fn setting(&mut self, key: &str, setting: &Setting<impl Display>) {
        self.line(key, &setting.value, setting.source);
    }

    fn limits(&mut self, limits: &PluginLimits) {
        self.setting("fuel", &limits.fuel);
        self.setting("memory_bytes", &limits.memory_bytes);
        self.setting("deadline_ms", &limits.deadline_ms);
        self.setting("cap_bytes", &limits.cap_bytes);
        self.setting("intake_bytes", &limits.intake_bytes);
        self.setting("concurrent_calls", &limits.concurrent_calls);
        self.setting("queued_calls", &limits.queued_calls);
    }

    /// What the tools cost to list.
    fn cost(&mut self, cost: &Cost) {
        self.line("tools", cost.tools, "measured");
        self.line("tool_tokens", cost.tool_tokens, "measured");
        self.line("listed_tools", cost.listed, "measured");
        self.line("listed_tokens", cost.listed_tokens, "measured");
        for warning in &cost.warnings {
            // Writing to a string cannot fail.
            let _ = writeln!(self.0, "# warning: {warning}");
        }
    }

    fn tenant(&mut self, config: &Config, tenant: &TenantConfig) {
        self.table(&format!("tenants.{}", tenant.name));
        self.line("plugins", tenant.plugins.join(", "), Source::File);
        let tokens = tenant.result_tokens;
        self.line(
            "result_tokens",
            tokens.map_or(String::from("none"), |tokens| tokens.to_string()),
            if tokens.is_some() {
                Source::File
            } else {
                Source::Default
            },
        );
        self.setting("surface", &config.surface(tenant));
        self.line("concurrent_calls", tenant.concurrent_calls, "effective");
        self.line("queued_calls", tenant.queued_calls, "effective");
        let quotas = serde_json::to_string(&tenant.quotas).unwrap_or_default();
        self.line("quotas", quotas, "effective");
    }

    fn plugin(&mut self, plugin: &PluginConfig) {
        match &plugin.tenant {
            Some(tenant) => self.table(&format!("tenants.{tenant}.grants.{}", plugin.name)),
            None => self.table(&format!("plugins.{}", plugin.name)),
        }
        self.line("component", plugin.component.display(), Source::File);
        for key in plugin.grants.config.keys() {
            // A value may be a secret: its name is enough to see that it is set.
            self.line(&format!("config.{key}"), "(set)", Source::File);
        }
        for key in plugin.grants.secrets.keys() {
            self.line(&format!("secrets.{key}"), "(set)", Source::File);
        }
        for grant in &plugin.grants.files {
            let mode = if grant.write {
                "read and write"
            } else {
                "read-only"
            };
            self.line(
                "files",
                format!("{} at {}, {mode}", grant.host.display(), grant.guest),
                Source::File,
            );
        }
        match &plugin.grants.hosts {
            None => self.line("hosts", "none", Source::Default),
            Some(hosts) if hosts.is_empty() => {
                self.line("hosts", "none, though it may ask", Source::File)
            }
            Some(hosts) => {
                for grant in hosts {
                    self.line(
                        if grant.is_private() {
                            "private_hosts"
                        } else {
                            "hosts"
                        },
                        grant,
                        Source::File,
                    );
                }
            }
        }
        for (name, connection) in &plugin.grants.connections {
            self.line("connections", format!("{name}: {connection}"), Source::File);
        }
        let roots = &plugin.grants.trusted_roots;
        if !roots.is_empty() {
            let count = format!("(certificates: {})", roots.len());
            self.line("trusted_roots", count, Source::File);
        }
        let source = |granted: bool| {
            if granted {
                Source::File
            } else {
                Source::Default
            }
        };
        self.line("clock", plugin.grants.clock, source(plugin.grants.clock));
        self.line("random", plugin.grants.random, source(plugin.grants.random));
        self.limits(&plugin.limits);
    }

    fn tool(&mut self, plugin: &str, tool: &Tool) {
        self.table(&format!("plugins.{plugin}.tools.{}", tool.name()));
        // The rule that decided, or whoever decides where none does.
        let by = |setting: &str, otherwise: &str| {
            let rule = tool.decided_by.get(setting);
            rule.map_or_else(|| otherwise.to_owned(), String::clone)
        };
        let source = |setting: &str| by(setting, &Source::Plugin.to_string());
        let policy = &tool.policy;
        let tags: Vec<&str> = tool.tags.iter().map(String::as_str).collect();
        let tags = match tags.is_empty() {
            true => String::from("none"),
            false => tags.join(", "),
        };
        self.line("tags", tags, Source::Plugin);
        self.line("rows", policy.rows_at(), source("rows"));
        self.line("key", policy.key().unwrap_or("none"), source("key"));
        self.line(
            "horizon",
            policy
                .excluded()
                .map_or(String::from("none"), |excluded| format!("hides {excluded}")),
            source("horizon"),
        );
        let views: Vec<&str> = policy.views().map(|(name, _)| name).collect();
        self.line(
            "views",
            if views.is_empty() {
                String::from("none")
            } else {
                views.join(", ")
            },
            source("views"),
        );
        self.line(
            "default_view",
            policy.default_view(),
            source("default_view"),
        );
        let columns: Vec<&str> = policy.columns().collect();
        self.line(
            "columns",
            if columns.is_empty() {
                String::from("none")
            } else {
                columns.join(", ")
            },
            source("columns"),
        );
        let (default_limit, max_limit) = policy.page();
        self.line("default_limit", default_limit, source("default_limit"));
        self.line("max_limit", max_limit, source("max_limit"));
        self.line("cap_bytes", policy.cap_bytes(), source("cap_bytes"));
        let deadline = tool.deadline.as_millis();
        let of_limits = format!("plugins.{plugin}.limits");
        self.line("deadline_ms", deadline, by("deadline_ms", &of_limits));
        match tool.result_tokens {
            Some(tokens) => self.line("result_tokens", tokens, source("result_tokens")),
            None => self.line("result_tokens", "as for the caller", Source::Default),
        }
        let cells = match policy.cells().describe() {
            nothing if nothing.is_empty() => String::from("as they are"),
            cells => cells,
        };
        self.line("cells", cells, source("cells"));
        let published: Vec<&str> = HostArgument::ALL
            .into_iter()
            .filter_map(|argument| policy.published(argument))
            .collect();
        let added = published.join(", ");
        self.line("arguments", added, by("arguments", "added by the host"));
        self.line("listing_tokens", tool.listing_tokens(), "measured");
    }
}
