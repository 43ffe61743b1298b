//! The plugins that are loaded, brought in line with the configuration and the files, now and at every change.
//!
//! Owns: which version of which plugin serves. A plugin that cannot be replaced goes on serving as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use futures::StreamExt;

use super::{Catalog, Tool, build};
use crate::config::{Config, PluginConfig};
use crate::sandbox::Sandbox;

/// How many plugins load at the same time: compiling uses every core by itself, so this only hides reading and describing.
const CONCURRENT_LOADS: usize = 4;

/// What is loaded.
#[derive(Debug)]
pub struct Registry {
    sandbox: Sandbox,
    loaded: BTreeMap<String, Loaded>,
}

#[derive(Debug)]
struct Loaded {
    /// Of the component's bytes and of its entry in the configuration.
    fingerprint: blake3::Hash,
    tools: Vec<Arc<Tool>>,
}

/// What could not be brought in line.
#[derive(Debug)]
pub struct Problem {
    /// The plugin.
    pub plugin: String,
    /// Why.
    pub error: anyhow::Error,
}

/// What became of one plugin.
enum Outcome {
    Unchanged,
    Gone(PathBuf),
    New(Loaded),
}

impl Registry {
    /// A registry with nothing loaded.
    pub fn new(sandbox: Sandbox) -> Self {
        Self {
            sandbox,
            loaded: BTreeMap::new(),
        }
    }

    /// Loads what is new or has changed and forgets what is gone. A plugin whose file is gone is a problem, and so is one
    /// that does not load; the latter goes on serving as it was.
    pub async fn reconcile(&mut self, config: &Config) -> Vec<Problem> {
        let sandbox = &self.sandbox;
        let loaded = &self.loaded;
        // The futures are made before the stream: a closure over borrowed plugins would make this future unfit to spawn.
        let loads: Vec<_> = config
            .plugins
            .iter()
            .map(|plugin| outcome(sandbox, loaded.get(&plugin.name), plugin))
            .collect();
        let outcomes: Vec<anyhow::Result<Outcome>> = futures::stream::iter(loads)
            .buffered(CONCURRENT_LOADS)
            .collect()
            .await;
        let mut problems = Vec::new();
        let mut problem = |plugin: &PluginConfig, error| {
            problems.push(Problem {
                plugin: plugin.name.clone(),
                error,
            })
        };
        for (plugin, outcome) in config.plugins.iter().zip(outcomes) {
            match outcome {
                Ok(Outcome::Unchanged) => {}
                Ok(Outcome::New(new)) => {
                    self.loaded.insert(plugin.name.clone(), new);
                }
                Ok(Outcome::Gone(file)) => {
                    self.loaded.remove(&plugin.name);
                    problem(
                        plugin,
                        anyhow::anyhow!("there is no component file `{}`", file.display()),
                    );
                }
                Err(error) => problem(plugin, error),
            }
        }
        self.loaded
            .retain(|name, _| config.plugins.iter().any(|plugin| plugin.name == *name));
        problems
    }

    /// The tools of everything that is loaded.
    pub fn catalog(&self, cap_bytes: u32) -> anyhow::Result<Catalog> {
        Catalog::new(
            self.loaded
                .values()
                .flat_map(|loaded| &loaded.tools)
                .cloned()
                .collect(),
            cap_bytes,
        )
    }
}

async fn outcome(
    sandbox: &Sandbox,
    loaded: Option<&Loaded>,
    plugin: &PluginConfig,
) -> anyhow::Result<Outcome> {
    let file = &plugin.component;
    let component = match tokio::fs::read(file).await {
        Ok(component) => component,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Outcome::Gone(file.clone()));
        }
        Err(error) => return Err(error).with_context(|| format!("reading `{}`", file.display())),
    };
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&component)
        .update(format!("{plugin:?}").as_bytes());
    let fingerprint = hasher.finalize();
    if loaded.is_some_and(|loaded| loaded.fingerprint == fingerprint) {
        return Ok(Outcome::Unchanged);
    }
    let load = sandbox.load(
        &plugin.name,
        &component,
        plugin.grants.clone(),
        plugin.limits.sandbox(),
    );
    let loaded = Arc::new(
        load.await
            .with_context(|| format!("loading `{}`", file.display()))?,
    );
    let tools = build(&loaded, &plugin.limits, &plugin.tools)?;
    Ok(Outcome::New(Loaded {
        fingerprint,
        tools: tools.into_iter().map(Arc::new).collect(),
    }))
}
