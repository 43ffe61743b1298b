//! From a component's bytes to a plugin that can be called.
//!
//! Compile, find the world, check the imports against the grants, check the memory against the limit, pre-instantiate,
//! and let the plugin describe itself under its own limits. Whatever is wrong is an error here and not in a call.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use tokio::time::Instant;
use tokio_rustls::rustls::ClientConfig;
use wasmtime::component::types::{ComponentExtern, ComponentItem};
use wasmtime::component::{Component, InstancePre};
use wasmtime::{Engine, Store};
use wasmtime_wasi_config::WasiConfigVariables;

use super::engine::Sandbox;
use super::failure;
use super::grants::Grants;
use super::hosts::HostGrant;
use super::inspect::{self, Inspection};
use super::instance::State;
use super::journal::Journal;
use super::limits::{DESCRIPTION_BYTES, Limits, MAX_DEADLINE};
use super::sql::Databases;
use super::turn::Turn;
use crate::contract::backend_adapter::BackendAdapterPre;
use crate::contract::tool_handler::ToolHandlerPre;
use crate::contract::{BackendSelection, Collection, Fault, Tool};

/// What a plugin is, by what it exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum World {
    /// It exports tools.
    ToolHandler,
    /// It exports collections.
    BackendAdapter,
    /// It exports both.
    BackendWithTools,
}

impl World {
    /// Those of one export.
    pub const ALL: [Self; 2] = [Self::ToolHandler, Self::BackendAdapter];

    /// The name in the contract.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToolHandler => "tool-handler",
            Self::BackendAdapter => "backend-adapter",
            Self::BackendWithTools => "backend-with-tools",
        }
    }

    /// The interface that it exports, or the first of two.
    pub fn export(self) -> &'static str {
        match self {
            Self::ToolHandler => "plimsoll:plugin/tools@0.1.0",
            Self::BackendAdapter | Self::BackendWithTools => "plimsoll:plugin/backend@0.1.0",
        }
    }
}

impl World {
    /// The worlds of one export that it consists of.
    pub(super) fn parts(self) -> &'static [Self] {
        match self {
            Self::ToolHandler => &[Self::ToolHandler],
            Self::BackendAdapter => &[Self::BackendAdapter],
            Self::BackendWithTools => &[Self::BackendAdapter, Self::ToolHandler],
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a plugin says about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Description {
    /// The tools that it exports.
    pub tools: Vec<Tool>,
    /// The collections that it exports.
    pub collections: Vec<Collection>,
}

/// A plugin that can be called.
pub struct Plugin {
    pub(super) name: Arc<str>,
    pub(super) sandbox: Sandbox,
    pub(super) pre: Pre,
    pub(super) grants: Grants,
    /// The granted values in the form in which each store wants them.
    pub(super) config: Arc<WasiConfigVariables>,
    /// The granted hosts, which each store shares.
    pub(super) hosts: Arc<[HostGrant]>,
    /// How its requests speak TLS.
    pub(super) tls: Arc<ClientConfig>,
    /// The pools of its granted connections.
    pub(super) databases: Arc<Databases>,
    pub(super) limits: Limits,
    description: Description,
    imports: Vec<String>,
}

/// What is instantiated for each call: the component, seen as what it exports.
pub(super) struct Pre {
    pub(super) tools: Option<ToolHandlerPre<State>>,
    pub(super) backend: Option<BackendAdapterPre<State>>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("world", &self.world())
            .finish_non_exhaustive()
    }
}

impl Plugin {
    /// The name under which it was loaded.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn world(&self) -> World {
        match (&self.pre.tools, &self.pre.backend) {
            (Some(_), Some(_)) => World::BackendWithTools,
            (None, Some(_)) => World::BackendAdapter,
            (_, None) => World::ToolHandler,
        }
    }

    /// What it says about itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What each of its calls may use.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The interfaces that it imports, with their versions.
    pub fn imports(&self) -> &[String] {
        &self.imports
    }
}

impl Sandbox {
    /// Makes a plugin of a component.
    ///
    /// An error says what does not fit: the file, its world, an import that is not offered or not granted (with the
    /// lines to add to `plimsoll.toml`), its memory, or what happened while it described itself.
    pub async fn load(
        &self,
        name: &str,
        component: &[u8],
        grants: Grants,
        limits: Limits,
    ) -> anyhow::Result<Plugin> {
        let max_memory = self.max_memory_bytes();
        ensure!(
            limits.memory_bytes <= max_memory,
            "memory_bytes must be at most {max_memory}: {}",
            limits.memory_bytes
        );
        let max_deadline = MAX_DEADLINE.as_millis();
        ensure!(
            limits.deadline <= MAX_DEADLINE,
            "deadline_ms must be at most {max_deadline}, since clients hang up at 60 s: {}",
            limits.deadline.as_millis()
        );
        grants.check()?;

        let component = self.compile(component).await?;
        let inspection = inspect::inspect(self.engine(), &component);
        let world = inspection.expect_world()?;
        inspection.check(name, &grants)?;
        check_memory(&component, &limits)?;
        for part in world.parts() {
            check_types(self.engine(), &component, *part).with_context(|| {
                format!(
                    "the export `{}` does not have the types of the contract",
                    part.export()
                )
            })?;
        }
        let mut plugin = Plugin {
            name: name.into(),
            sandbox: self.clone(),
            pre: self.link(&component, world)?,
            config: Arc::new(
                grants
                    .values()
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            ),
            hosts: grants.hosts.iter().flatten().cloned().collect(),
            tls: grants.trusted_roots.client(),
            databases: Arc::new(Databases::open(&grants.connections)?),
            grants,
            limits,
            description: Description::default(),
            imports: inspection.imports,
        };
        for part in world.parts() {
            let Description { tools, collections } = plugin.describe(*part).await?;
            plugin.description.tools.extend(tools);
            plugin.description.collections.extend(collections);
        }
        Ok(plugin)
    }

    /// What a component is and wants, without running any of it.
    pub fn imports(&self, component: &[u8]) -> anyhow::Result<Inspection> {
        let component = compile(self, component)?;
        Ok(inspect::inspect(self.engine(), &component))
    }

    /// Compiles on a thread for blocking work: a Python plugin takes some 20 s of a core.
    async fn compile(&self, component: &[u8]) -> anyhow::Result<Component> {
        let (sandbox, bytes) = (self.clone(), component.to_vec());
        tokio::task::spawn_blocking(move || compile(&sandbox, &bytes))
            .await
            .context("compiling was interrupted")?
    }

    fn link(&self, component: &Component, world: World) -> anyhow::Result<Pre> {
        let pre: InstancePre<State> = self
            .linker()
            .instantiate_pre(component)
            .map_err(anyhow::Error::from)
            .with_context(|| {
                format!(
                    "an import does not have the types that the host offers\n{}",
                    inspect::offer()
                )
            })?;
        let exports = |part| world.parts().contains(&part);
        Ok(Pre {
            tools: exports(World::ToolHandler)
                .then(|| ToolHandlerPre::new(pre.clone()))
                .transpose()?,
            backend: exports(World::BackendAdapter)
                .then(|| BackendAdapterPre::new(pre.clone()))
                .transpose()?,
        })
    }
}

/// The first bytes of a WebAssembly file.
const MAGIC: &[u8] = b"\0asm";

/// What follows in a component of the current format, and in a core module.
const COMPONENT: [u8; 4] = [0x0d, 0, 1, 0];
const CORE_MODULE: [u8; 4] = [1, 0, 0, 0];

fn compile(sandbox: &Sandbox, bytes: &[u8]) -> anyhow::Result<Component> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        bail!("it is not a WebAssembly file")
    };
    if rest.starts_with(&CORE_MODULE) {
        bail!(
            "it is a core module, and a plugin is a component\n\
             hint: build for `wasm32-wasip2`, or wrap the module with `wasm-tools component new`"
        );
    }
    ensure!(
        rest.starts_with(&COMPONENT),
        "it is not a component of a format that the host knows"
    );
    sandbox
        .component(bytes)
        .map_err(anyhow::Error::from)
        .context("it is not a component that the host can run")
}

/// What every function of a world but the listing returns.
type Answered = (Result<(), Fault>,);

/// Whether the functions of the world are there with their types. The generated code finds out only when it has an
/// instance, that is after code of the guest has run.
fn check_types(engine: &Engine, component: &Component, world: World) -> anyhow::Result<()> {
    let ty = component.component_type();
    let export = ty
        .exports(engine)
        .find(|(name, _)| inspect::is_compatible(name, world.export()));
    let Some((
        _,
        ComponentExtern {
            ty: ComponentItem::ComponentInstance(interface),
            ..
        },
    )) = export
    else {
        bail!("expected an interface");
    };
    let types = ty.instance_type();
    let function = |name: &str| match interface.get_export(engine, name) {
        Some(ComponentExtern {
            ty: ComponentItem::ComponentFunc(function),
            ..
        }) => Ok(function),
        _ => Err(anyhow!("expected a function `{name}`")),
    };
    let checked = |name: &str, checked: wasmtime::Result<()>| {
        checked
            .map_err(anyhow::Error::from)
            .with_context(|| format!("function `{name}`"))
    };
    match world {
        World::ToolHandler => {
            checked(
                "list-tools",
                function("list-tools")?.typecheck::<(), (Result<Vec<Tool>, Fault>,)>(&types),
            )?;
            checked(
                "call-tool",
                function("call-tool")?.typecheck::<(&str, &str), Answered>(&types),
            )
        }
        World::BackendAdapter | World::BackendWithTools => {
            let list = function("list-collections")?;
            checked(
                "list-collections",
                list.typecheck::<(), (Result<Vec<Collection>, Fault>,)>(&types),
            )?;
            checked(
                "query",
                function("query")?.typecheck::<(&str, &BackendSelection), Answered>(&types),
            )?;
            checked(
                "get",
                function("get")?.typecheck::<(&str, &str), Answered>(&types),
            )
        }
    }
}

/// Bytes of a page of linear memory.
const PAGE_BYTES: u64 = 1 << 16;

/// Whether the memory that the component begins with is within its limit.
fn check_memory(component: &Component, limits: &Limits) -> anyhow::Result<()> {
    let Some(resources) = component.resources_required() else {
        bail!("it imports core modules, which the host does not offer");
    };
    // The largest one is known here; several together are counted when it is instantiated.
    let wanted = resources
        .max_initial_memory_size
        .unwrap_or(0)
        .saturating_mul(PAGE_BYTES);
    ensure!(
        wanted <= limits.memory_bytes,
        "it begins with {wanted} bytes of memory, and its limit is {}\nhint: raise `memory_bytes`",
        limits.memory_bytes
    );
    Ok(())
}

impl Plugin {
    /// What it says of one of its exports.
    async fn describe(&self, part: World) -> anyhow::Result<Description> {
        let deadline = Instant::now() + self.limits.deadline;
        let subject = match part {
            World::ToolHandler => "list-tools",
            World::BackendAdapter | World::BackendWithTools => "list-collections",
        };
        let Some(_slot) = self.slot(deadline).await else {
            bail!(
                "describing it failed: busy: no slot came free within {} ms",
                self.limits.deadline.as_millis()
            );
        };
        let journal = Journal::new(self.name.clone(), subject, "", "load");
        let turn = Turn::new();
        let mut store = self.store(journal, &self.limits, DESCRIPTION_BYTES, deadline, &turn)?;
        let seat = self.sandbox.seat("", &self.name);
        let outcome = turn
            .run(seat, deadline, self.listing(part, &mut store))
            .await;
        if let Some(Err(error)) = &outcome
            && failure::is_hostcall_fuel(error)
        {
            bail!("`{subject}` returned more than {DESCRIPTION_BYTES} bytes");
        }
        self.settle(outcome, self.limits.deadline, subject, "load")
            .map_err(|refusal| {
                anyhow!(
                    "`{subject}` failed: {}: {}",
                    refusal.error.as_str(),
                    refusal.message
                )
            })
    }

    async fn listing(
        &self,
        part: World,
        store: &mut Store<State>,
    ) -> wasmtime::Result<Result<Description, Fault>> {
        let Pre { tools, backend } = &self.pre;
        match (tools, backend) {
            (Some(pre), _) if part == World::ToolHandler => {
                let handler = pre.instantiate_async(&mut *store).await?;
                let tools = handler
                    .plimsoll_plugin_tools()
                    .call_list_tools(store)
                    .await?;
                Ok(tools.map(|tools| Description {
                    tools,
                    ..Description::default()
                }))
            }
            (_, Some(pre)) => {
                let adapter = pre.instantiate_async(&mut *store).await?;
                let collections = adapter
                    .plimsoll_plugin_backend()
                    .call_list_collections(store)
                    .await?;
                Ok(collections.map(|collections| Description {
                    collections,
                    ..Description::default()
                }))
            }
            (_, None) => Ok(Ok(Description::default())),
        }
    }
}
