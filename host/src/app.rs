//! The composition root: from a configuration to a host that can serve.
//!
//! The only place that puts parts together, so that every command runs the same host.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use tokio::sync::Mutex;

use crate::call::Host;
use crate::catalog::{Problem, Registry};
use crate::config::Config;
use crate::queries::Queries;
use crate::sandbox::{Sandbox, SandboxOptions};
use crate::shape::Signer;

/// The file in the state folder that holds the key which signs cursors.
const SIGNING_KEY_FILE: &str = "cursor.key";

/// The folder of compiled code in the state folder.
const CODE_FOLDER: &str = "code";

/// The folder of long queries in the state folder.
const QUERIES_FOLDER: &str = "queries";

/// How many calls run at the same time. Each takes a slot of the pool; more wait for one, within their deadline.
pub const MAX_CONCURRENT_CALLS: u32 = 100;

/// A host and what it was made from.
#[derive(Debug)]
pub struct App {
    /// The configuration it was started with.
    pub config: Config,
    /// The host.
    pub host: Arc<Host>,
    registry: Mutex<Registry>,
}

impl App {
    /// Makes a host without tools. It answers clients already; [`App::load`] brings the tools.
    pub fn open(config: Config) -> anyhow::Result<Self> {
        let state = &config.state.value;
        std::fs::create_dir_all(state)
            .with_context(|| format!("making the state folder `{}`", state.display()))?;
        let key = signing_key(&state.join(SIGNING_KEY_FILE))?;
        Self::open_signing_with(config, key)
    }

    /// The same with cursors that are signed with this key, for a host whose replies are compared with older ones.
    pub fn open_signing_with(config: Config, key: [u8; 32]) -> anyhow::Result<Self> {
        let signer = Signer::new(key);
        let registry = Mutex::new(Registry::new(sandbox(&config)?));
        let folder = config.state.value.join(QUERIES_FOLDER);
        let queries = Queries::open(folder.clone())
            .with_context(|| format!("opening the folder `{}`", folder.display()))?;
        let host = Arc::new(
            Host::new(
                signer,
                queries,
                config.result_tokens.value,
                config.limits.cap_bytes.value,
            )
            .with_client_profiles(config.client_profiles.value),
        );
        Ok(Self {
            config,
            host,
            registry,
        })
    }

    /// Loads every plugin. One that does not load is an error: at start, nothing is half there.
    pub async fn load(&self) -> anyhow::Result<()> {
        let mut registry = self.registry.lock().await;
        if let Some(Problem { plugin, error }) =
            registry.reconcile(&self.config).await.into_iter().next()
        {
            return Err(error.context(format!("plugin `{plugin}`")));
        }
        self.host.serve(registry.catalog(self.host.cap_bytes())?);
        Ok(())
    }

    /// Makes a host and loads every plugin.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let app = Self::open(config)?;
        app.load().await?;
        Ok(app)
    }

    /// Brings the plugins in line with the files as they are now, and returns the configuration that was found. What
    /// cannot be brought in line is logged, and goes on as it was.
    pub async fn reload(&self) -> Option<Config> {
        let config = match &self.config.file {
            Some(file) => match Config::read(file) {
                Ok(config) => config,
                Err(error) => {
                    tracing::warn!("the configuration stays as it was: {error:#}");
                    return None;
                }
            },
            None => self.config.clone(),
        };
        if !config.is_same_host(&self.config) {
            tracing::warn!("settings outside of `[plugins]` take effect at the next start");
        }
        let mut registry = self.registry.lock().await;
        for Problem { plugin, error } in registry.reconcile(&config).await {
            tracing::warn!(plugin, "not loaded: {error:#}");
        }
        match registry.catalog(self.host.cap_bytes()) {
            Ok(catalog) => self.host.serve(catalog),
            Err(error) => tracing::warn!("the tools stay as they were: {error:#}"),
        }
        Some(config)
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

/// The signing key of this installation; made at first start.
fn signing_key(file: &Path) -> anyhow::Result<[u8; 32]> {
    if !file.exists() {
        make_signing_key(file)
            .with_context(|| format!("writing the signing key to `{}`", file.display()))?;
    }
    let key = std::fs::read(file)
        .with_context(|| format!("reading the signing key from `{}`", file.display()))?;
    let Ok(key) = key.as_slice().try_into() else {
        bail!(
            "the signing key `{}` must have 32 bytes, found {}; delete it to get a new one",
            file.display(),
            key.len()
        );
    };
    Ok(key)
}

/// Writes a new key that only the owner can read. Hosts that start at once agree on one, since the folder is locked while
/// it is made; a host that is killed here leaves nothing that the next start does not use up.
fn make_signing_key(file: &Path) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let folder = std::fs::File::open(file.parent().unwrap_or(Path::new(".")))?;
    folder.lock()?;
    if file.exists() {
        return Ok(());
    }
    let mut key = [0; 32];
    getrandom::fill(&mut key)?;
    let part = file.with_extension("part");
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)?;
    out.write_all(&key)?;
    out.sync_all()?;
    std::fs::rename(&part, file)?;
    Ok(())
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
        assert!(
            signing_key(&file)
                .unwrap_err()
                .to_string()
                .contains("must have 32 bytes, found 5")
        );
    }
}
