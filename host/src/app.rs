//! The composition root: from a configuration to a host that can serve.
//!
//! The only place that puts parts together, so that every command runs the same host.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::Mutex;

use crate::admission::Admission;
use crate::call::Host;
use crate::catalog::{Counted, Problem, Registry};
use crate::config::{Config, TenantConfig};
use crate::ledger::Ledger;
use crate::queries::Queries;
use crate::results::{Results, Store as Objects};
use crate::sandbox::{Sandbox, SandboxOptions};
use crate::shape::Signer;
use crate::store::{Period, Store, now_ms};
use crate::tenant::{Issuers, Tenant, Tenants};
use crate::tls;

/// The folder of compiled code in the state folder.
const CODE_FOLDER: &str = "code";

/// The file in it of what tools cost to list.
const COUNTS_FILE: &str = "listings.json";

/// How often what is too old is forgotten: rows are kept for days, so the hour does not matter.
const FORGET_EVERY: Duration = Duration::from_secs(3_600);

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
    counted: Arc<Counted>,
    /// What the last reload had to say.
    said: Mutex<Vec<Warning>>,
}

/// What a reload could not do.
#[derive(Debug, PartialEq)]
struct Warning {
    plugin: Option<String>,
    text: String,
    /// What it was found in: a file that was mended in vain is not the one that it was.
    found_in: Option<blake3::Hash>,
}

impl App {
    /// Makes a host without tools. It answers clients already; [`App::load`] brings the tools.
    pub async fn open(config: Config) -> anyhow::Result<Self> {
        let store = open_store(&config).await?;
        let key = store.signing_key().await?;
        Self::open_over(config, store, key).await
    }

    /// The same with cursors that are signed with this key, for a host whose replies are compared with older ones.
    pub async fn open_signing_with(config: Config, key: [u8; 32]) -> anyhow::Result<Self> {
        let store = open_store(&config).await?;
        Self::open_over(config, store, key).await
    }

    async fn open_over(config: Config, store: Store, key: [u8; 32]) -> anyhow::Result<Self> {
        let registry = Mutex::new(Registry::new(sandbox(&config)?));
        let signer = Signer::new(key);
        let objects = Objects::open(&config.results.location.value)
            .context("opening the place of complete results")?;
        let queries = Queries::new(objects.clone());
        let results = Results::open(&config.results, &config.state.value, &signer, objects)?;
        if let Some(url) = &config.public_url.value {
            results.links().begin_with(url);
        }
        let issuers = if config.auth.issuers.is_empty() {
            Issuers::default()
        } else {
            tls::install();
            Issuers::new(config.auth.resource.clone(), config.auth.issuers.clone())?
        };
        let tenants = Tenants::open(
            config.tenants.iter().map(tenant).collect(),
            config.result_tokens.value,
            issuers,
            store.clone(),
        )
        .await?;
        let mut process = [0; 8];
        getrandom::fill(&mut process)?;
        let host = Host::new(
            signer,
            queries,
            results,
            Arc::new(tenants),
            Ledger::open(store),
            format!("{:016x}", u64::from_le_bytes(process)),
            config.limits.cap_bytes.value,
        );
        let host = Arc::new(host.with_client_profiles(config.client_profiles.value));
        let counted = config.state.value.join(CODE_FOLDER).join(COUNTS_FILE);
        Ok(Self {
            config,
            host,
            registry,
            counted: Arc::new(Counted::new(counted)),
            said: Mutex::default(),
        })
    }

    /// What goes on for as long as the host serves: keeping up with keys and tenants, and forgetting what is too old.
    pub async fn keep(&self) {
        let tenants = self.host.tenants();
        let days = i64::from(self.config.ledger_days.value);
        let forget = async {
            loop {
                let day = Period::Day.milliseconds();
                let now = now_ms();
                let windows = now.saturating_sub(2 * day);
                let ledger = now.saturating_sub(days.saturating_mul(day));
                if let Err(error) = tenants.store().forget_before(ledger, windows).await {
                    tracing::warn!("what is too old stays in the store: {error:#}");
                }
                tokio::time::sleep(FORGET_EVERY).await;
            }
        };
        tokio::join!(tenants.follow(), forget);
    }

    /// Writes down what has not been yet. To be called before the program ends.
    pub async fn close(&self) {
        self.host.ledger().flush().await;
        self.host.tenants().flush().await;
    }

    /// Loads every plugin. One that does not load is an error: at start, nothing is half there.
    pub async fn load(&self) -> anyhow::Result<()> {
        let mut registry = self.registry.lock().await;
        if let Some(Problem { plugin, error, .. }) =
            registry.reconcile(&self.config).await.into_iter().next()
        {
            return Err(error.context(format!("plugin `{plugin}`")));
        }
        let catalogs = registry.catalogs(&self.config, self.host.cap_bytes())?;
        self.counted.recall(&catalogs);
        self.host.serve(catalogs);
        Ok(())
    }

    /// Writes down what every listing costs its readers, and what of it common client programs cannot take. It goes on beside,
    /// since counting may take as long as a start.
    pub fn log_costs(&self) {
        let (catalogs, counted) = (self.host.catalogs(), self.counted.clone());
        tokio::task::spawn_blocking(move || {
            catalogs.log_costs();
            counted.keep(&catalogs);
        });
    }

    /// Makes a host and loads every plugin.
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let app = Self::open(config).await?;
        app.load().await?;
        Ok(app)
    }

    /// Brings the plugins in line with the files as they are now, and returns the configuration that was found. What
    /// cannot be brought in line is logged, and goes on as it was. It is logged once: what is written to a log in a folder that
    /// is watched must not lead to the next reload, and so on.
    pub async fn reload(&self) -> Option<Config> {
        let mut warnings = Vec::new();
        let config = self.bring_in_line(&mut warnings).await;
        let mut said = self.said.lock().await;
        for warning in warnings.iter().filter(|warning| !said.contains(warning)) {
            let Warning { plugin, text, .. } = warning;
            tracing::warn!(plugin, "{text}");
        }
        *said = warnings;
        config
    }

    async fn bring_in_line(&self, warnings: &mut Vec<Warning>) -> Option<Config> {
        // Read a second time only where something is wrong with it.
        let in_config = |text: String| {
            let file = self.config.file.as_ref().map(std::fs::read);
            Warning {
                plugin: None,
                text,
                found_in: file.and_then(Result::ok).map(|file| blake3::hash(&file)),
            }
        };
        let config = match &self.config.file {
            Some(file) => match Config::read(file) {
                Ok(config) => config,
                Err(error) => {
                    let text = format!("the configuration stays as it was: {error:#}");
                    warnings.push(in_config(text));
                    return None;
                }
            },
            None => self.config.clone(),
        };
        if !config.is_same_host(&self.config) {
            let text =
                "settings outside of `[plugins]` and `[tenants]` take effect at the next start";
            warnings.push(in_config(text.into()));
        }
        let mut registry = self.registry.lock().await;
        for problem in registry.reconcile(&config).await {
            warnings.push(Warning {
                plugin: Some(problem.plugin),
                text: format!("not loaded: {:#}", problem.error),
                found_in: problem.fingerprint,
            });
        }
        // A host for one user does not become one of many, or the other way round, while it serves.
        if config.tenants.is_empty() == self.config.tenants.is_empty() {
            self.host
                .tenants()
                .replace(config.tenants.iter().map(tenant).collect());
        }
        match registry.catalogs(&config, self.host.cap_bytes()) {
            Ok(catalogs) => {
                self.counted.recall(&catalogs);
                if self.host.serve(catalogs) {
                    self.log_costs();
                }
            }
            Err(error) => {
                let text = format!("the tools stay as they were: {error:#}");
                warnings.push(in_config(text));
            }
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

/// The store of a configuration.
pub async fn open_store(config: &Config) -> anyhow::Result<Store> {
    let state = &config.state.value;
    std::fs::create_dir_all(state)
        .with_context(|| format!("making the state folder `{}`", state.display()))?;
    Store::open(&config.store).await
}

/// A tenant with its permits.
fn tenant(config: &TenantConfig) -> Tenant {
    Tenant {
        name: config.name.clone(),
        result_tokens: config.result_tokens,
        quotas: config.quotas.clone(),
        admission: Arc::new(Admission::new(
            format!("tenant {}", config.name),
            config.concurrent_calls,
            config.queued_calls,
        )),
    }
}
