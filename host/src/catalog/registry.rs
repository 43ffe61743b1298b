//! The plugins that are loaded, brought in line with the configuration and the files, now and at every change.
//!
//! Owns: which version of which plugin serves. A plugin that cannot be replaced goes on serving as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use futures::StreamExt;

use super::{Catalog, Catalogs, Tool, build};
use crate::admission::Admission;
use crate::config::{Config, PluginConfig, Surface};
use crate::sandbox::Sandbox;

/// How many plugins load at the same time: compiling uses every core by itself, so this only hides reading and describing.
const CONCURRENT_LOADS: usize = 4;

/// What is loaded.
#[derive(Debug)]
pub struct Registry {
    sandbox: Sandbox,
    loaded: BTreeMap<Entry, Loaded>,
    /// The permits of each plugin, which all its entries share.
    admissions: BTreeMap<String, Arc<Admission>>,
}

/// A plugin, and the tenant for which its entry differs.
type Entry = (String, Option<String>);

fn entry(plugin: &PluginConfig) -> Entry {
    (plugin.name.clone(), plugin.tenant.clone())
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
    /// Of the component and the entry with which it was tried; none where there is no file to be read.
    pub fingerprint: Option<blake3::Hash>,
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
            admissions: BTreeMap::new(),
        }
    }

    /// Loads what is new or has changed and forgets what is gone. A plugin whose file is gone is a problem, and so is one
    /// that does not load; the latter goes on serving as it was.
    pub async fn reconcile(&mut self, config: &Config) -> Vec<Problem> {
        let entries: Vec<&PluginConfig> = config.entries().collect();
        let admissions: Vec<Arc<Admission>> = entries
            .iter()
            .map(|plugin| self.admission(plugin, !config.tenants.is_empty()))
            .collect();
        let sandbox = &self.sandbox;
        let loaded = &self.loaded;
        // The futures are made before the stream: a closure over borrowed plugins would make this future unfit to spawn.
        let loads: Vec<_> = entries
            .iter()
            .zip(admissions)
            .map(|(plugin, admission)| {
                outcome(sandbox, loaded.get(&entry(plugin)), plugin, admission)
            })
            .collect();
        let outcomes: Vec<(Option<blake3::Hash>, anyhow::Result<Outcome>)> =
            futures::stream::iter(loads)
                .buffered(CONCURRENT_LOADS)
                .collect()
                .await;
        let mut problems = Vec::new();
        let mut problem = |plugin: &PluginConfig, fingerprint, error: anyhow::Error| {
            problems.push(Problem {
                fingerprint,
                plugin: plugin.name.clone(),
                error: match &plugin.tenant {
                    Some(tenant) => error.context(format!("for tenant `{tenant}`")),
                    None => error,
                },
            })
        };
        for (plugin, (fingerprint, outcome)) in entries.iter().zip(outcomes) {
            match outcome {
                Ok(Outcome::Unchanged) => {}
                Ok(Outcome::New(new)) => {
                    self.loaded.insert(entry(plugin), new);
                }
                Ok(Outcome::Gone(file)) => {
                    self.loaded.remove(&entry(plugin));
                    problem(
                        plugin,
                        fingerprint,
                        anyhow::anyhow!("there is no component file `{}`", file.display()),
                    );
                }
                Err(error) => problem(plugin, fingerprint, error),
            }
        }
        self.loaded
            .retain(|known, _| entries.iter().any(|plugin| entry(plugin) == *known));
        self.admissions
            .retain(|name, _| entries.iter().any(|plugin| plugin.name == *name));
        problems
    }

    /// The permits of a plugin: those that it had, unless their numbers have changed. Where there are tenants, it is they
    /// who queue, so that the calls of one that waits do not shut others out.
    fn admission(&mut self, plugin: &PluginConfig, has_tenants: bool) -> Arc<Admission> {
        let concurrent = plugin.limits.concurrent_calls.value;
        let queue = if has_tenants {
            u32::MAX
        } else {
            plugin.limits.queued_calls.value
        };
        let wanted = Admission::new(format!("plugin {}", plugin.name), concurrent, queue);
        let known = self.admissions.get(&plugin.name);
        if let Some(known) = known.filter(|known| known.is_same(&wanted)) {
            return known.clone();
        }
        let wanted = Arc::new(wanted);
        self.admissions.insert(plugin.name.clone(), wanted.clone());
        wanted
    }

    /// The tools of everything that is loaded, for each tenant.
    pub fn catalogs(&self, config: &Config, cap_bytes: u32) -> anyhow::Result<Catalogs> {
        if config.tenants.is_empty() {
            let all: Vec<Entry> = self.loaded.keys().cloned().collect();
            let catalog = self.catalog(&all, config.surface.value, cap_bytes)?;
            return Ok(Catalogs::single(Arc::new(catalog)));
        }
        // Tenants that see the same share one catalog.
        let mut made: BTreeMap<(Vec<Entry>, Surface), Arc<Catalog>> = BTreeMap::new();
        let mut catalogs = Catalogs::default();
        for tenant in &config.tenants {
            let mut entries: Vec<Entry> = tenant
                .plugins
                .iter()
                .map(|plugin| {
                    let variant = config.variant(plugin, &tenant.name);
                    (
                        plugin.clone(),
                        variant.and_then(|variant| variant.tenant.clone()),
                    )
                })
                .filter(|entry| self.loaded.contains_key(entry))
                .collect();
            entries.sort();
            entries.dedup();
            let shown = (entries, config.surface(tenant).value);
            let catalog = match made.get(&shown) {
                Some(catalog) => catalog.clone(),
                None => {
                    let catalog = self
                        .catalog(&shown.0, shown.1, cap_bytes)
                        .with_context(|| format!("tenant `{}`", tenant.name))?;
                    let catalog = Arc::new(catalog);
                    made.insert(shown, catalog.clone());
                    catalog
                }
            };
            catalogs.insert(tenant.name.clone(), catalog);
        }
        Ok(catalogs)
    }

    fn catalog(
        &self,
        entries: &[Entry],
        surface: Surface,
        cap_bytes: u32,
    ) -> anyhow::Result<Catalog> {
        let tools = entries
            .iter()
            .filter_map(|entry| self.loaded.get(entry))
            .flat_map(|loaded| &loaded.tools)
            .cloned();
        Catalog::new(tools.collect(), surface, cap_bytes)
    }
}

/// What becomes of one plugin, and the fingerprint of what was found.
async fn outcome(
    sandbox: &Sandbox,
    loaded: Option<&Loaded>,
    plugin: &PluginConfig,
    admission: Arc<Admission>,
) -> (Option<blake3::Hash>, anyhow::Result<Outcome>) {
    let file = &plugin.component;
    let component = match tokio::fs::read(file).await {
        Ok(component) => component,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return (None, Ok(Outcome::Gone(file.clone())));
        }
        Err(error) => {
            let error = anyhow::Error::new(error);
            return (
                None,
                Err(error.context(format!("reading `{}`", file.display()))),
            );
        }
    };
    let mut hasher = blake3::Hasher::new();
    hasher
        .update(&component)
        .update(format!("{plugin:?}").as_bytes());
    let fingerprint = hasher.finalize();
    if loaded.is_some_and(|loaded| loaded.fingerprint == fingerprint) {
        return (Some(fingerprint), Ok(Outcome::Unchanged));
    }
    let loading = load(sandbox, &component, fingerprint, plugin, admission);
    (Some(fingerprint), loading.await)
}

async fn load(
    sandbox: &Sandbox,
    component: &[u8],
    fingerprint: blake3::Hash,
    plugin: &PluginConfig,
    admission: Arc<Admission>,
) -> anyhow::Result<Outcome> {
    let load = sandbox.load(
        &plugin.name,
        component,
        plugin.grants.clone(),
        plugin.limits.sandbox(),
    );
    let loaded = Arc::new(
        load.await
            .with_context(|| format!("loading `{}`", plugin.component.display()))?,
    );
    let tools = build(&loaded, &admission, plugin)?;
    Ok(Outcome::New(Loaded {
        fingerprint,
        tools: tools.into_iter().map(Arc::new).collect(),
    }))
}
