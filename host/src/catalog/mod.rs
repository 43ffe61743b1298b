//! The catalog: every tool of every plugin, as it is published and as it is carried out.
//!
//! Owns: published names, descriptions and schemas, the split of arguments into the host's and the handler's, the order of
//! tools, what is listed of them, and what that costs. Does not run plugins and does not shape answers.

mod arguments;
mod build;
mod cost;
mod counted;
mod meta;
mod outline;
mod references;
mod registry;
mod schema;
mod search;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

pub use build::build;
pub use cost::{Cost, warnings};
pub use counted::Counted;
pub use meta::Meta;
pub use outline::{Bounds, Entry, Nowhere, Outline, Place};
pub use registry::{Problem, Registry};

use crate::admission::Admission;
use crate::config::Surface;
use crate::contract::Example;
use crate::sandbox::Plugin;
use crate::shape::{Listing, Policy, ToolFacts, tokens};
use crate::tenant::SINGLE_TENANT;

/// How a tool is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A tool of a `tool-handler`, under the handler's own name.
    Handler(String),
    /// Rows of a collection.
    List(String),
    /// One row of a collection.
    Get(String),
}

/// Who carries a tool out.
#[derive(Debug)]
pub enum Carrier {
    /// A plugin.
    Plugin(Carried),
    /// The host itself.
    Host(Meta),
}

/// How a plugin carries a tool out.
#[derive(Debug)]
pub struct Carried {
    /// The plugin.
    pub plugin: Arc<Plugin>,
    /// Its permits, shared by its tools.
    pub admission: Arc<Admission>,
    /// What it is asked.
    pub target: Target,
}

/// The name of the host among the plugins, in the ledger and in metrics. No plugin can have it.
pub const HOST: &str = "(host)";

/// One published tool.
pub struct Tool {
    /// Its entry in `tools/list`.
    pub listed: Value,
    /// What the host does with its answers.
    pub policy: Policy,
    /// What the stages have to know of it.
    pub facts: ToolFacts,
    /// Arguments that the handler's schema requires.
    pub required: Vec<String>,
    /// Whether its input schema says of an argument that a header repeats it (SEP-2243).
    pub has_header_arguments: bool,
    /// Who carries it out.
    pub carrier: Carrier,
    /// The bound on what one answer may hand over.
    pub intake_bytes: usize,
    /// Documented calls.
    pub examples: Vec<Example>,
    /// The tags by which rules find it.
    pub tags: BTreeSet<String>,
    /// Wall-clock time of one call.
    pub deadline: Duration,
    /// Token budget of its answers, in place of the tenant's.
    pub result_tokens: Option<u64>,
    /// Which rule of the operator decided, by the name of the setting.
    pub decided_by: BTreeMap<&'static str, String>,
    /// Tokens that its listing costs, once somebody has asked.
    listing_tokens: OnceLock<u64>,
    validator: jsonschema::Validator,
}

impl Tool {
    /// The published name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The plugin that carries it out, its permits, and what it is asked; none where the host does.
    pub fn carried(&self) -> Option<&Carried> {
        match &self.carrier {
            Carrier::Plugin(carried) => Some(carried),
            Carrier::Host(_) => None,
        }
    }

    /// The plugin that carries it out; none where the host does.
    pub fn plugin(&self) -> Option<&Arc<Plugin>> {
        self.carried().map(|carried| &carried.plugin)
    }

    /// The name of who carries it out.
    pub fn carrier_name(&self) -> &str {
        self.plugin().map_or(HOST, |plugin| plugin.name())
    }

    /// Its description.
    pub fn description(&self) -> &str {
        self.listed["description"].as_str().unwrap_or_default()
    }

    /// Its arguments with their schemas.
    pub fn arguments(&self) -> impl Iterator<Item = (&String, &Value)> {
        let properties = self.listed["inputSchema"]["properties"].as_object();
        properties.into_iter().flatten()
    }

    /// Whether it is made of a collection, whose rows come page by page.
    pub fn is_of_backend(&self) -> bool {
        let carried = self.carried();
        carried.is_some_and(|carried| matches!(carried.target, Target::List(_)))
    }

    /// Tokens that its listing costs.
    pub fn listing_tokens(&self) -> u64 {
        let count = || tokens::count(&self.listed.to_string());
        *self.listing_tokens.get_or_init(count)
    }

    /// Whether it says that it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.listed["annotations"]["readOnlyHint"] == true
    }
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.facts.name)
            .field("carrier", &self.carrier)
            .finish_non_exhaustive()
    }
}

/// The catalogs of all tenants.
#[derive(Debug, Default)]
pub struct Catalogs {
    by_tenant: HashMap<String, Arc<Catalog>>,
    /// What a tenant sees that is none.
    nothing: Arc<Catalog>,
}

impl Catalogs {
    /// The one catalog of a host for one user.
    pub fn single(catalog: Arc<Catalog>) -> Self {
        let mut catalogs = Self::default();
        catalogs.insert(SINGLE_TENANT.to_owned(), catalog);
        catalogs
    }

    /// Sets what a tenant sees.
    pub fn insert(&mut self, tenant: String, catalog: Arc<Catalog>) {
        self.by_tenant.insert(tenant, catalog);
    }

    /// What a tenant sees.
    pub fn of(&self, tenant: &str) -> &Arc<Catalog> {
        self.by_tenant.get(tenant).unwrap_or(&self.nothing)
    }

    /// Whether every tenant sees the same as in other catalogs.
    pub fn lists_the_same(&self, other: &Self) -> bool {
        self.by_tenant.len() == other.by_tenant.len()
            && self.by_tenant.iter().all(|(tenant, catalog)| {
                catalog.listing().items() == other.of(tenant).listing().items()
            })
    }

    /// How many different tools there are.
    pub fn count(&self) -> usize {
        let tools = self.by_tenant.values().flat_map(|catalog| catalog.tools());
        tools.map(Arc::as_ptr).collect::<HashSet<_>>().len()
    }

    /// Every tool that somebody sees, listed or not.
    fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        let catalogs = self.by_tenant.values();
        catalogs.flat_map(|catalog| catalog.tools.iter().chain(&catalog.own))
    }
}

/// All tools of one tenant, in a fixed order: plugins by name, and within a plugin the order in which it lists them.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    /// The host's own, on a surface that lists them in place of the others.
    own: Vec<Arc<Tool>>,
    by_name: HashMap<String, Arc<Tool>>,
    listing: Listing<Value>,
    /// What `search_tools` looks into.
    index: search::Index,
}

impl Catalog {
    /// A catalog of tools. Two with one name are an error that names both plugins. `cap_bytes` bounds a page of the
    /// listing, and what the host's own tools answer.
    pub fn new(tools: Vec<Arc<Tool>>, surface: Surface, cap_bytes: u32) -> anyhow::Result<Self> {
        let (own, index) = match surface {
            Surface::Tools => (Vec::new(), search::Index::default()),
            Surface::Meta => (meta::tools(&tools, cap_bytes)?, search::Index::new(&tools)),
        };
        let mut by_name: HashMap<String, Arc<Tool>> = HashMap::with_capacity(tools.len());
        for tool in tools.iter().chain(&own) {
            if let Some(other) = by_name.insert(tool.name().to_owned(), tool.clone()) {
                bail!(
                    "tool `{}` is published by plugin `{}` and by {}",
                    tool.name(),
                    other.carrier_name(),
                    match &tool.carrier {
                        Carrier::Plugin(carried) => format!("plugin `{}`", carried.plugin.name()),
                        Carrier::Host(_) => String::from(
                            "the host: it has to have another name where `surface` is \"meta\""
                        ),
                    }
                );
            }
        }
        let listed = match surface {
            Surface::Tools => &tools,
            Surface::Meta => &own,
        };
        let listing = Listing::new(
            listed.iter().map(|tool| tool.listed.clone()).collect(),
            cap_bytes,
        )?;
        Ok(Self {
            tools,
            own,
            by_name,
            listing,
            index,
        })
    }

    /// The tool of that name, listed or not.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name)
    }

    /// Every tool of the plugins, in order.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Arc<Tool>> {
        self.tools.iter()
    }

    /// Every tool that is listed, in order.
    pub fn listed(&self) -> impl ExactSizeIterator<Item = &Arc<Tool>> {
        match self.surface() {
            Surface::Tools => self.tools.iter(),
            Surface::Meta => self.own.iter(),
        }
    }

    /// What is listed.
    pub fn surface(&self) -> Surface {
        if self.own.is_empty() {
            Surface::Tools
        } else {
            Surface::Meta
        }
    }

    /// The listing, in pages under the cap.
    pub fn listing(&self) -> &Listing<Value> {
        &self.listing
    }
}
