//! `plimsoll inspect`

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::{ConfigArgument, Exit};
use crate::admission::Admission;
use crate::app;
use crate::catalog::{self, Tool};
use crate::config::{Config, PluginConfig, Rules};
use crate::sandbox::{Grants, Want};

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// The component file
    file: PathBuf,
    /// The config file in which `--plugin` stands [default: `plimsoll.toml` in this folder]
    #[arg(long, value_name = "FILE", requires = "plugin")]
    config: Option<PathBuf>,
    /// Compare what the file wants with what this plugin's entry grants
    #[arg(long, value_name = "NAME")]
    plugin: Option<String>,
}

impl Inspect {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let config = Config::of_component(&self.file)?;
        let sandbox = app::sandbox(&config)?;
        let component = std::fs::read(&self.file)
            .with_context(|| format!("reading `{}`", self.file.display()))?;
        let inspection = sandbox.imports(&component)?;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "file: {} ({} bytes)",
            self.file.display(),
            component.len()
        );
        let world = inspection
            .world
            .map_or(String::from("none that the host knows"), |world| {
                world.to_string()
            });
        let _ = writeln!(out, "world: {world}");
        list(&mut out, "exports", &inspection.exports);
        list(&mut out, "imports", &inspection.imports);
        let granted = self.granted()?;
        match &granted {
            None => list(&mut out, "needs granted", &inspection.needed),
            Some((name, grants)) => compare(&mut out, name, &inspection.wants(grants), grants),
        }
        if !inspection.missing.is_empty() {
            list(
                &mut out,
                "wants what the host does not offer",
                &inspection.missing,
            );
        }
        // A description must not depend on what is granted, so clocks and random numbers do no harm here, and an empty list
        // of hosts denies every request. Files, values and secrets are those of the entry, if one was named.
        let entry = granted.map(|(_, grants)| grants).unwrap_or_default();
        let grants = Grants {
            clock: true,
            random: true,
            hosts: entry.hosts.clone().or(Some(Vec::new())),
            ..entry
        };
        let plugin = &config.plugins[0];
        match sandbox
            .load(&plugin.name, &component, grants, plugin.limits.sandbox())
            .await
        {
            Err(error) => {
                let _ = writeln!(out, "\nit does not load: {error:#}");
            }
            Ok(loaded) => {
                // Nothing is called here.
                let admission = Arc::new(Admission::new(String::new(), 1, 0));
                let declared = PluginConfig {
                    rules: Rules::default(),
                    ..plugin.clone()
                };
                let tools = catalog::build(&Arc::new(loaded), &admission, &declared)?;
                let total: u64 = tools.iter().map(|tool| tool.listing_tokens()).sum();
                let _ = writeln!(
                    out,
                    "\ntools: {} (listing them costs {total} tokens)",
                    tools.len()
                );
                list(&mut out, "warnings", &catalog::warnings(tools.iter()));
                tools.iter().for_each(|tool| describe(&mut out, tool));
            }
        }
        std::io::stdout().lock().write_all(out.as_bytes())?;
        Ok(Exit::Success)
    }
}

impl Inspect {
    /// The name and the grants of the plugin to compare with, if one was named.
    fn granted(&self) -> anyhow::Result<Option<(String, Grants)>> {
        let Some(name) = &self.plugin else {
            return Ok(None);
        };
        let config = ConfigArgument {
            config: self.config.clone(),
        }
        .read()?;
        let Some(plugin) = config.plugins.iter().find(|plugin| plugin.name == *name) else {
            let names: Vec<&str> = config
                .plugins
                .iter()
                .map(|plugin| plugin.name.as_str())
                .collect();
            bail!(
                "there is no `[plugins.{name}]` in the config file; it has: {}",
                names.join(", ")
            );
        };
        Ok(Some((name.clone(), plugin.grants.clone())))
    }
}

/// What is wanted against what is granted: first by import, then what the entry grants of each kind.
fn compare(out: &mut String, name: &str, wants: &[Want], grants: &Grants) {
    let wanted: Vec<String> = wants
        .iter()
        .map(|want| {
            format!(
                "{} ({})",
                want.import,
                if want.is_granted {
                    "granted"
                } else {
                    "not granted"
                }
            )
        })
        .collect();
    list(out, &format!("wanted of [plugins.{name}]"), &wanted);
    let mut missing: Vec<String> = wants
        .iter()
        .filter(|want| !want.is_granted)
        .map(|want| want.line.to_owned())
        .collect();
    missing.dedup();
    if !missing.is_empty() {
        list(out, &format!("to add to [plugins.{name}]"), &missing);
    }
    let mut granted = Vec::new();
    granted.extend(grants.clock.then(|| "clock".to_owned()));
    granted.extend(grants.random.then(|| "random".to_owned()));
    granted.extend(grants.hosts.iter().flatten().map(|grant| {
        format!(
            "requests to {grant}{}",
            if grant.is_private() {
                ", whose addresses may be private"
            } else {
                ""
            }
        )
    }));
    granted.extend(
        grants
            .connections
            .iter()
            .map(|(name, connection)| format!("the connection `{name}`, {connection}")),
    );
    granted.extend(grants.files.iter().map(|grant| {
        format!(
            "{} at {}, {}",
            grant.host.display(),
            grant.guest,
            if grant.write {
                "read and write"
            } else {
                "read-only"
            }
        )
    }));
    granted.extend(grants.config.keys().map(|key| format!("the value `{key}`")));
    granted.extend(
        grants
            .secrets
            .keys()
            .map(|key| format!("the secret `{key}` (set)")),
    );
    list(out, &format!("granted by [plugins.{name}]"), &granted);
}

fn list(out: &mut String, title: &str, items: &[String]) {
    let _ = writeln!(
        out,
        "{title}:{}",
        if items.is_empty() { " nothing" } else { "" }
    );
    for item in items {
        let _ = writeln!(out, "  {item}");
    }
}

fn describe(out: &mut String, tool: &Tool) {
    let policy = &tool.policy;
    let _ = writeln!(out, "\n{} ({} tokens)", tool.name(), tool.listing_tokens());
    let description = tool.listed["description"].as_str().unwrap_or_default();
    for line in description.lines() {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(out, "  arguments:");
    for (name, schema) in tool.listed["inputSchema"]["properties"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let required = if tool.required.contains(name) {
            ", required"
        } else {
            ""
        };
        let kind = match &schema["type"] {
            Value::String(kind) => kind.clone(),
            Value::Null => String::from("any"),
            other => other.to_string(),
        };
        let _ = writeln!(
            out,
            "    {name} ({kind}{required}): {}",
            schema["description"].as_str().unwrap_or_default()
        );
    }
    let (default_limit, max_limit) = policy.page();
    let _ = writeln!(
        out,
        "  shape: rows {}, key {}, pages of {default_limit} (at most {max_limit}), cap {} bytes",
        policy.rows_at(),
        policy.key().unwrap_or("none"),
        policy.cap_bytes()
    );
    if let Some(excluded) = policy.excluded() {
        let _ = writeln!(out, "  horizon: {excluded} are hidden by default");
    }
    for example in &tool.examples {
        let _ = writeln!(out, "  example: {} {}", example.title, example.arguments);
    }
}
