//! What the tests share: where built things are, a host with a fixed signing key, a door on a real port.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::app::App;
use plimsoll::call::{Caller, Host};
use plimsoll::config::Config;
use plimsoll::http::{self, Allowed};
use plimsoll::shape::Reply;
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A built component: `plugins/fleet.wasm`, `guests/canned.wasm`. A missing one fails the test: it is never skipped.
pub(crate) fn component(name: &str) -> PathBuf {
    let file = root().join("target").join(name);
    assert!(file.is_file(), "`{}` is missing: run `make guests`", file.display());
    file
}

/// The command under test.
pub(crate) fn plimsoll() -> std::process::Command {
    std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
}

/// A host made from the text of a config file. The signing key is fixed, so that cursors are the same in every run, and
/// compiled code is shared between tests.
pub(crate) struct TestHost {
    pub(crate) app: App,
    _folder: TempDir,
}

impl TestHost {
    /// Starts a host in an empty folder that has `plimsoll.toml` with this text.
    pub(crate) async fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::start_in(folder, config).await.unwrap()
    }

    /// The same in a folder that has been filled.
    pub(crate) async fn start_in(folder: TempDir, config: &str) -> anyhow::Result<Self> {
        write_state(&folder.path().join(".plimsoll"));
        std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
        let app = App::start(Config::read(&folder.path().join("plimsoll.toml"))?).await?;
        Ok(Self { app, _folder: folder })
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.app.host
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.host().call_named(&Caller::default(), tool, object(arguments)).await
    }

    /// Serves the HTTP doors on a port of their own; they stop with the value that is returned.
    pub(crate) async fn serve(&self) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = http::router(self.host().clone(), Allowed::of(&self.app.config), stop.clone());
        let running = tokio::spawn(http::run(listener, router, stop.clone()));
        Served { url: format!("http://{address}"), stop, _running: running }
    }
}

/// Doors on a real port.
pub(crate) struct Served {
    pub(crate) url: String,
    stop: CancellationToken,
    _running: tokio::task::JoinHandle<anyhow::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A state folder with the fixed signing key and the shared folder of compiled code.
pub(crate) fn write_state(state: &Path) {
    let code = root().join("target/test-code");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::create_dir_all(state).unwrap();
    std::fs::write(state.join("cursor.key"), [7; 32]).unwrap();
    std::os::unix::fs::symlink(code, state.join("code")).unwrap();
}

/// A JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("expected an object, found {other}"),
    }
}

/// JSON, or the text that is not.
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A config with the fleet plugin and its record.
pub(crate) fn fleet() -> String {
    let data = root().join("plugins/fleet/data");
    format!(
        "[plugins.fleet]\ncomponent = {:?}\nfiles = [{{ host = {:?}, guest = \"/data\" }}]\n",
        component("plugins/fleet.wasm"),
        data
    )
}

/// A config with a guest that misbehaves.
pub(crate) fn hostile(limits: &str) -> String {
    format!("[plugins.hostile]\ncomponent = {:?}\nclock = true\n[plugins.hostile.limits]\n{limits}\n", component("guests/hostile.wasm"))
}
