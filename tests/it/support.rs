//! What the tests share: where built things are, a host with a fixed signing key, a door on a real port, a host in a
//! process of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, mpsc};

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
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// A built component: `plugins/fleet.wasm`, `guests/canned.wasm`. A missing one fails the test: it is never skipped.
pub(crate) fn component(name: &str) -> PathBuf {
    let file = root().join("target").join(name);
    assert!(
        file.is_file(),
        "`{}` is missing: run `make guests`",
        file.display()
    );
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
    folder: TempDir,
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
        let config = Config::read(&folder.path().join("plimsoll.toml"))?;
        let app = App::open_signing_with(config, [7; 32]).await?;
        app.load().await?;
        Ok(Self { app, folder })
    }

    /// The folder that it was started in.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A host that was made otherwise, and its folder.
    pub(crate) fn of(app: App, folder: TempDir) -> Self {
        Self { app, folder }
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.app.host
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.host()
            .call_named(&Caller::default(), tool, object(arguments))
            .await
    }

    /// Serves the HTTP doors on a port of their own; they stop with the value that is returned.
    pub(crate) async fn serve(&self) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.host()
            .results()
            .links()
            .begin_with(&format!("http://{address}"));
        let stop = CancellationToken::new();
        let router = http::router(
            self.host().clone(),
            Allowed::of(&self.app.config),
            stop.clone(),
        );
        let running = tokio::spawn(http::run(listener, router, stop.clone()));
        Served {
            url: format!("http://{address}"),
            stop,
            _running: running,
        }
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

/// A state folder with the shared folder of compiled code.
pub(crate) fn write_state(state: &Path) {
    install_tls();
    let code = root().join("target/test-code");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::create_dir_all(state).unwrap();
    std::os::unix::fs::symlink(code, state.join("code")).unwrap();
}

/// The client with which tests call the host was built without a default for TLS.
fn install_tls() {
    // It was set already where this fails.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
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
    format!(
        "[plugins.hostile]\ncomponent = {:?}\nclock = true\n[plugins.hostile.limits]\n{limits}\n",
        component("guests/hostile.wasm")
    )
}

/// A host in a process of its own, so that its memory can be read.
pub(crate) struct HostProcess {
    child: Child,
    pub(crate) url: String,
    /// What it writes to standard error, line by line.
    pub(crate) log: mpsc::Receiver<String>,
    folder: TempDir,
}

impl HostProcess {
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, &[])
    }

    /// The same with variables of its environment.
    pub(crate) fn start_with(config: &str, environment: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_state(&folder.path().join(".plimsoll"));
        std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
        Self::start_in(folder, environment)
    }

    /// The same over a folder that has a config file, with more environment variables.
    pub(crate) fn start_in(folder: TempDir, environment: &[(&str, &str)]) -> Self {
        install_tls();
        let mut child = plimsoll()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(folder.path())
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = lines
            .by_ref()
            .map_while(Result::ok)
            .find(|line| line.contains("listening on http://"))
            .unwrap();
        let url = listening
            .split("listening on ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .to_owned();
        // Whatever else it says must not fill the pipe.
        let (sender, log) = mpsc::channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            child,
            url,
            log,
            folder,
        }
    }

    /// Its config file.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("plimsoll.toml")
    }

    /// Its state folder.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join(".plimsoll")
    }

    /// Ends it as a process manager does, and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        let id = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-TERM", &id])
            .status();
        assert!(sent.unwrap().success());
        self.child.wait().unwrap();
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it and starts it again over the same folder.
    pub(crate) fn restart(self) -> Self {
        self.restart_after(|_| {})
    }

    /// The same with a change of its state folder while it does not run.
    pub(crate) fn restart_after(mut self, change: impl FnOnce(&Path)) -> Self {
        self.stop();
        change(&self.state());
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Self::start_in(folder, &[])
    }

    /// Replaces its config file, which it watches.
    pub(crate) fn configure(&self, config: &str) {
        let part = self.folder.path().join("plimsoll.toml.part");
        std::fs::write(&part, config).unwrap();
        std::fs::rename(part, self.folder.path().join("plimsoll.toml")).unwrap();
    }

    /// A value of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    /// Makes the peak of its memory, `VmHWM`, what it uses now, and returns that.
    pub(crate) fn reset_peak(&self) -> u64 {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
        self.memory("VmHWM:")
    }

    /// What it keeps in its state folder, without what is in there.
    pub(crate) fn state_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join(".plimsoll")).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// How many files and sockets are open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id()))
            .unwrap()
            .count()
    }

    /// Calls a tool: status, receipt, body as it came.
    pub(crate) async fn call_raw(&self, tool: &str, arguments: Value) -> (u16, Value, Vec<u8>) {
        let response = reqwest::Client::new()
            .post(format!("{}/v1/tools/{tool}", self.url))
            .body(arguments.to_string())
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        let receipt = response
            .headers()
            .get("plimsoll-receipt")
            .map_or(Value::Null, |text| json(text.to_str().unwrap()));
        (status, receipt, response.bytes().await.unwrap().to_vec())
    }

    /// Calls a tool: status, receipt, body as JSON.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> (u16, Value, Value) {
        let (status, receipt, body) = self.call_raw(tool, arguments).await;
        (status, receipt, json(&String::from_utf8(body).unwrap()))
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
