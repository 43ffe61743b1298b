//! The composition root: from a configuration to a host that can serve.
//!
//! The only place that puts parts together, so that every command runs the same host.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::call::Host;
use crate::catalog::{self, Catalog};
use crate::config::{Config, PluginConfig};
use crate::sandbox::{Plugin, Sandbox, SandboxOptions};
use crate::shape::Signer;

/// The file in the state folder that holds the key which signs cursors.
const SIGNING_KEY_FILE: &str = "cursor.key";

/// The folder of compiled code in the state folder.
const CODE_FOLDER: &str = "code";

/// How many calls run at the same time. Each takes a slot of the pool; more wait for one, within their deadline.
pub const MAX_CONCURRENT_CALLS: u32 = 100;

/// A host and what it was made from.
#[derive(Debug)]
pub struct App {
    /// The configuration.
    pub config: Config,
    /// The host.
    pub host: Arc<Host>,
}

impl App {
    /// Loads every plugin and makes the host. A plugin that does not load is an error: at start, nothing is half there.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let state = &config.state.value;
        std::fs::create_dir_all(state).with_context(|| format!("making the state folder `{}`", state.display()))?;
        let signer = Signer::new(signing_key(&state.join(SIGNING_KEY_FILE))?);
        let sandbox = sandbox(&config)?;
        let mut tools = Vec::new();
        for plugin in &config.plugins {
            let loaded = load(&sandbox, plugin).await?;
            let built = catalog::build(&loaded, &plugin.limits, &plugin.tools);
            tools.extend(built.with_context(|| format!("plugin `{}`", plugin.name))?);
        }
        let cap_bytes = config.limits.cap_bytes.value;
        let catalog = Catalog::new(tools, cap_bytes)?;
        let host = Arc::new(Host::new(catalog, signer, config.result_tokens.value, cap_bytes));
        Ok(Self { config, host })
    }
}

/// The sandbox of a configuration.
pub fn sandbox(config: &Config) -> anyhow::Result<Sandbox> {
    Sandbox::new(&SandboxOptions {
        max_memory_bytes: config.max_memory_bytes(),
        max_concurrent_calls: MAX_CONCURRENT_CALLS,
        cache_folder: Some(config.state.value.join(CODE_FOLDER)),
    })
}

/// Reads and loads one plugin.
pub async fn load(sandbox: &Sandbox, plugin: &PluginConfig) -> anyhow::Result<Arc<Plugin>> {
    let file = &plugin.component;
    let component = std::fs::read(file)
        .with_context(|| format!("reading the component of plugin `{}` from `{}`", plugin.name, file.display()))?;
    let loaded = sandbox
        .load(&plugin.name, &component, plugin.grants.clone(), plugin.limits.sandbox())
        .await
        .with_context(|| format!("loading plugin `{}` from `{}`", plugin.name, file.display()))?;
    Ok(Arc::new(loaded))
}

/// The signing key of this installation; made at first start.
fn signing_key(file: &Path) -> anyhow::Result<[u8; 32]> {
    if !file.exists() {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("making the signing key: {error}"))?;
        write_new(file, &key).with_context(|| format!("writing the signing key to `{}`", file.display()))?;
    }
    let key = std::fs::read(file).with_context(|| format!("reading the signing key from `{}`", file.display()))?;
    let Ok(key) = key.as_slice().try_into() else {
        bail!("the signing key `{}` must have 32 bytes, found {}; delete it to get a new one", file.display(), key.len());
    };
    Ok(key)
}

/// Writes a file that only the owner can read, whole or not at all; one that is there already stays.
fn write_new(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let part = file.with_extension(format!("part-{}", std::process::id()));
    let mut out = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    // A link does not replace: of two hosts that start at once, one key stays and both use it.
    match std::fs::hard_link(&part, file) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::remove_file(&part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signing_key_is_made_once_and_only_for_its_owner() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(SIGNING_KEY_FILE);
        let key = signing_key(&file).unwrap();
        assert_ne!(key, [0; 32]);
        assert_eq!(signing_key(&file).unwrap(), key);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        std::fs::write(&file, b"short").unwrap();
        assert!(signing_key(&file).unwrap_err().to_string().contains("must have 32 bytes, found 5"));
    }
}
