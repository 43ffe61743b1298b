//! The catalog: every tool of every plugin, as it is published and as it is carried out.
//!
//! Owns: published names, descriptions and schemas, the split of arguments into the host's and the handler's, and the
//! order of tools. Does not run plugins and does not shape answers.

mod arguments;
mod build;
mod references;
mod registry;
mod schema;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use anyhow::bail;
use serde_json::Value;

pub use build::build;
pub use registry::{Problem, Registry};

use crate::admission::Admission;
use crate::contract::Example;
use crate::sandbox::Plugin;
use crate::shape::{Listing, Policy, ToolFacts};
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
    /// How it is carried out.
    pub target: Target,
    /// The plugin.
    pub plugin: Arc<Plugin>,
    /// The permits of the plugin, shared by its tools.
    pub admission: Arc<Admission>,
    /// The bound on what one answer may hand over.
    pub intake_bytes: usize,
    /// Documented calls.
    pub examples: Vec<Example>,
    /// Fields of the shape that the operator overrode.
    pub overridden: Vec<&'static str>,
    /// Tokens that its listing costs.
    pub listing_tokens: u64,
    validator: jsonschema::Validator,
}

impl Tool {
    /// The published name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Whether it is made of a collection, whose rows come page by page.
    pub fn is_of_backend(&self) -> bool {
        matches!(self.target, Target::List(_))
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
            .field("target", &self.target)
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
}

/// All tools of one tenant, in a fixed order: plugins by name, and within a plugin the order in which it lists them.
#[derive(Debug, Default)]
pub struct Catalog {
    tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, usize>,
    listing: Listing<Value>,
}

impl Catalog {
    /// A catalog of tools. Two with one name are an error that names both plugins. `cap_bytes` bounds a page of the
    /// listing.
    pub fn new(tools: Vec<Arc<Tool>>, cap_bytes: u32) -> anyhow::Result<Self> {
        let mut by_name = HashMap::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            if let Some(other) = by_name.insert(tool.name().to_owned(), index) {
                let other: &Arc<Tool> = &tools[other];
                bail!(
                    "tool `{}` is published by plugin `{}` and by plugin `{}`",
                    tool.name(),
                    other.plugin.name(),
                    tool.plugin.name()
                );
            }
        }
        let listing = Listing::new(
            tools.iter().map(|tool| tool.listed.clone()).collect(),
            cap_bytes,
        )?;
        Ok(Self {
            tools,
            by_name,
            listing,
        })
    }

    /// The tool of that name.
    pub fn tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.by_name.get(name).map(|index| &self.tools[*index])
    }

    /// Every tool, in order.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Arc<Tool>> {
        self.tools.iter()
    }

    /// The listing, in pages under the cap.
    pub fn listing(&self) -> &Listing<Value> {
        &self.listing
    }
}
