//! Servers in processes of their own: started, measured, killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::client::{self, Request};
use crate::state;
use crate::subjects::guest::root;

/// A running server; it is killed with this value.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) port: u16,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plugin that holds both answers, and pushes rows.
pub(crate) fn bench_rows() -> String {
    let component = root().join("target/guests/bench-rows.wasm");
    format!("[plugins.bench]\ncomponent = {component:?}\n")
}

/// Three of Rust.
pub(crate) fn three_rust_plugins() -> String {
    let root = root();
    let plugin = |name: &str, files: &str| {
        let component = root.join(format!("target/plugins/{name}.wasm"));
        format!("[plugins.{name}]\ncomponent = {component:?}\n{files}\n")
    };
    let data = root.join("plugins/fleet/data");
    let files = format!("files = [{{ host = {data:?}, guest = \"/data\" }}]");
    [
        bench_rows(),
        plugin("fleet", &files),
        plugin("documents", &files),
    ]
    .concat()
}

/// One of JavaScript and one of Python.
pub(crate) fn script_plugins() -> String {
    let plugin = |name: &str| {
        let component = root().join(format!("target/plugins/{name}.wasm"));
        format!("[plugins.{name}]\ncomponent = {component:?}\n")
    };
    [plugin("orders"), plugin("ledger")].concat()
}

impl Server {
    /// The host with these plugins, over a state folder that stays from one run to the next.
    pub(crate) fn host(folder: &Path, name: &str, config: &str) -> anyhow::Result<Self> {
        let folder = state(folder, name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("plimsoll.toml"), config)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(folder)
            .env("PLIMSOLL_LOG", "info")
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stderr.take().context("it has standard error")?);
        Self::listening("host", child, lines)
    }

    /// Has the host compile these plugins, and count what listing them costs, which it does beside serving.
    pub(crate) async fn warm_cache(folder: &Path, name: &str, config: &str) -> anyhow::Result<()> {
        let host = Self::host(folder, name, config)?;
        host.until_ready(&Request::listing()).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(())
    }

    /// A peer that is a role of this very program.
    pub(crate) fn peer(role: &str, folder: &Path) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(role).arg(folder).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = BufReader::new(child.stdout.take().context("it has standard output")?);
        Self::listening(role, child, lines)
    }

    fn listening(
        name: &str,
        mut child: Child,
        lines: impl BufRead + Send + 'static,
    ) -> anyhow::Result<Self> {
        let mut lines = lines.lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let address = line.split("listening on http://").nth(1)?;
            let address = address.split([' ', '/']).next()?;
            address.rsplit(':').next()?.parse().ok()
        });
        let Some(port) = port else {
            let _ = child.kill();
            anyhow::bail!("{name} did not say where it listens");
        };
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self {
            name: name.to_owned(),
            port,
            child,
        })
    }

    /// FastMCP, which `host/benches/peers/install` puts into `target/bench/venv`.
    pub(crate) fn fastmcp(folder: &Path) -> anyhow::Result<Self> {
        // A port that was free a moment ago: it takes none of its own choice.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?
            .local_addr()?
            .port();
        let child = Command::new(folder.join("venv/bin/python"))
            .arg(root().join("host/benches/peers/fastmcp_server.py"))
            .arg(port.to_string())
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting FastMCP, which `make bench` installs")?;
        Ok(Self {
            name: "FastMCP".to_owned(),
            port,
            child,
        })
    }

    /// Waits for the first answer, for as long as a cold start takes that has to compile.
    pub(crate) async fn until_ready(&self, request: &Request) -> anyhow::Result<()> {
        for _ in 0..20_000 {
            if tokio::net::TcpStream::connect(("127.0.0.1", self.port))
                .await
                .is_ok()
            {
                let reply = client::once(self, request).await?;
                ensure!(
                    !reply.contains("\"error\"") && !reply.contains("\"isError\":true"),
                    "{}: {}",
                    self.name,
                    &reply[..reply.len().min(500)]
                );
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::bail!("{} does not answer", self.name)
    }

    /// Seconds of processor time so far, in and for the process.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // Behind the name, which may have spaces, user and system time are the 12th and 13th field, in ticks of 10 ms.
        let (_, fields) = stat.rsplit_once(") ").context("stat has a name")?;
        let mut fields = fields.split(' ').skip(11);
        let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok());
        let (user, system) = (ticks(), ticks());
        Ok((user.unwrap_or_default() + system.unwrap_or_default()) / 100.0)
    }

    /// A value of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, name: &str) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(kib.context("status has that value")? * 1_024.0)
    }

    /// Makes the peak of its memory what it uses now, and returns that.
    pub(crate) fn reset_peak(&self) -> anyhow::Result<f64> {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?;
        self.memory("VmHWM:")
    }
}
