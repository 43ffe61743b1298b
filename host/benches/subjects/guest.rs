//! One call of a guest: by the host's sandbox with all limits on, and by wasmtime with nothing around it.

use std::path::{Path, PathBuf};

use plimsoll::contract::{Fault, RowSource, Shape};
use plimsoll::sandbox::{Grants, Limits, Plugin, Request, Sandbox, SandboxOptions};
use plimsoll::shape::{Intake, undeclared};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker, WasmList};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store,
    StoreContextMut,
};

use super::Subject;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the host is a folder of the repository")
        .to_owned()
}

/// A built guest.
pub fn component(name: &str) -> Vec<u8> {
    let file = root().join("target/guests").join(name);
    std::fs::read(&file)
        .unwrap_or_else(|error| panic!("`{}`: {error}; run `make bench`", file.display()))
}

/// Where compiled code is kept between runs: a JavaScript guest takes 25 s of a core.
fn code() -> PathBuf {
    let folder = root().join("target/bench/code");
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// The host's sandbox with one plugin.
pub struct Ours {
    pub plugin: Plugin,
    runtime: tokio::runtime::Runtime,
    whole: Subject,
    rows: Subject,
}

impl Ours {
    pub fn new(name: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime starts");
        let sandbox = Sandbox::new(&SandboxOptions {
            cache_folder: Some(code()),
            ..SandboxOptions::default()
        });
        let component = component(name);
        let plugin = runtime.block_on(async {
            let grants = Grants::default();
            let sandbox = sandbox.expect("the engine is built");
            sandbox
                .load("bench", &component, grants, Limits::default())
                .await
        });
        Self {
            plugin: plugin.expect("the guest loads"),
            runtime,
            whole: Subject::new(&Shape {
                rows: RowSource::Whole,
                ..undeclared()
            }),
            rows: Subject::new(&super::plain()),
        }
    }

    /// One call; what it handed over.
    pub fn call(&self, tool: &str) -> Intake {
        let subject = if tool == "small" {
            &self.whole
        } else {
            &self.rows
        };
        let ask = subject.ask(serde_json::json!({}));
        let intake = Intake::new(&subject.policy, &ask, usize::MAX);
        let request = Request::Tool {
            name: tool.to_owned(),
            arguments: "{}".into(),
        };
        let called = self
            .runtime
            .block_on(self.plugin.call(request, intake, None, "", "1"));
        called.unwrap_or_else(|failed| panic!("{failed:?}")).intake
    }
}

/// wasmtime's pooling allocator and `InstancePre`, with the pool's settings that are fastest: no fuel, no deadline, no limit,
/// no WASI, no log, and an answer that is looked at by nobody.
pub struct Bare {
    engine: Engine,
    pre: InstancePre<usize>,
    call: ComponentExportIndex,
}

type Answered = (Result<(), Fault>,);

impl Bare {
    pub fn new(name: &str) -> Self {
        Self::build(name).unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn build(name: &str) -> wasmtime::Result<Self> {
        let mut pool = PoolingAllocationConfig::new();
        if PoolingAllocationConfig::is_pagemap_scan_available() {
            pool.pagemap_scan(Enabled::Yes)
                .linear_memory_keep_resident(4 << 20);
        }
        let mut config = Config::new();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        let component = Component::new(&engine, component(name))?;
        let mut linker: Linker<usize> = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component)?;
        linker.allow_shadowing(true);
        linker.instance("plimsoll:plugin/reply@0.1.0")?.func_wrap(
            "document",
            |mut store: StoreContextMut<'_, usize>, (bytes,): (WasmList<u8>,)| {
                let length = bytes.as_le_slice(&store).len();
                *store.data_mut() += length;
                Ok(())
            },
        )?;
        let (_, tools) = component
            .get_export(None, "plimsoll:plugin/tools@0.1.0")
            .expect("the guest exports tools");
        let (_, call) = component
            .get_export(Some(&tools), "call-tool")
            .expect("tools can be called");
        let pre = linker.instantiate_pre(&component)?;
        Ok(Self { engine, pre, call })
    }

    /// One call; bytes that it handed over.
    pub fn call(&self, tool: &str) -> usize {
        let run = || -> wasmtime::Result<usize> {
            let mut store = Store::new(&self.engine, 0);
            let instance = self.pre.instantiate(&mut store)?;
            let call = instance.get_typed_func::<(&str, &str), Answered>(&mut store, self.call)?;
            let (answered,) = call.call(&mut store, (tool, "{}"))?;
            assert!(answered.is_ok(), "{answered:?}");
            Ok(*store.data())
        };
        run().unwrap_or_else(|error| panic!("{error:?}"))
    }
}
