//! `plimsoll inspect`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::Exit;
use crate::app;
use crate::catalog::{self, Tool};
use crate::config::Config;
use crate::sandbox::Grants;

#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// The component file
    file: PathBuf,
}

impl Inspect {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let config = Config::of_component(&self.file)?;
        let sandbox = app::sandbox(&config)?;
        let component = std::fs::read(&self.file).with_context(|| format!("reading `{}`", self.file.display()))?;
        let inspection = sandbox.imports(&component)?;
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "file: {} ({} bytes)", self.file.display(), component.len());
        let world = inspection.world.map_or(String::from("none that the host knows"), |world| world.to_string());
        let _ = writeln!(out, "world: {world}");
        list(&mut out, "exports", &inspection.exports);
        list(&mut out, "imports", &inspection.imports);
        list(&mut out, "needs granted", &inspection.needed);
        if !inspection.missing.is_empty() {
            list(&mut out, "wants what the host does not offer", &inspection.missing);
        }
        // A description must not depend on what is granted, so clocks and random numbers do no harm here; files are not
        // known.
        let grants = Grants { clock: true, random: true, ..Grants::default() };
        let plugin = &config.plugins[0];
        match sandbox.load(&plugin.name, &component, grants, plugin.limits.sandbox()).await {
            Err(error) => {
                let _ = writeln!(out, "\nit does not load: {error:#}");
            }
            Ok(loaded) => {
                let tools = catalog::build(&Arc::new(loaded), &plugin.limits, &BTreeMap::new())?;
                let total: u64 = tools.iter().map(|tool| tool.listing_tokens).sum();
                let _ = writeln!(out, "\ntools: {} (listing them costs {total} tokens)", tools.len());
                tools.iter().for_each(|tool| describe(&mut out, tool));
            }
        }
        std::io::stdout().lock().write_all(out.as_bytes())?;
        Ok(Exit::Success)
    }
}

fn list(out: &mut String, title: &str, items: &[String]) {
    let _ = writeln!(out, "{title}:{}", if items.is_empty() { " nothing" } else { "" });
    for item in items {
        let _ = writeln!(out, "  {item}");
    }
}

fn describe(out: &mut String, tool: &Tool) {
    let policy = &tool.policy;
    let _ = writeln!(out, "\n{} ({} tokens)", tool.name(), tool.listing_tokens);
    let description = tool.listed["description"].as_str().unwrap_or_default();
    for line in description.lines() {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(out, "  arguments:");
    for (name, schema) in tool.listed["inputSchema"]["properties"].as_object().into_iter().flatten() {
        let required = if tool.required.contains(name) { ", required" } else { "" };
        let kind = match &schema["type"] {
            Value::String(kind) => kind.clone(),
            Value::Null => String::from("any"),
            other => other.to_string(),
        };
        let _ = writeln!(out, "    {name} ({kind}{required}): {}", schema["description"].as_str().unwrap_or_default());
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
