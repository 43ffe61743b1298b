//! Answers without an end in sight, in bounded memory.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, component, json as parse, plimsoll};

/// A host in a process of its own, so that its memory can be read.
pub(crate) struct HostProcess {
    child: Child,
    pub(crate) url: String,
    _folder: TempDir,
}

impl HostProcess {
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        support::write_state(&folder.path().join(".plimsoll"));
        std::fs::write(folder.path().join("plimsoll.toml"), config).unwrap();
        let mut child = plimsoll()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listening = lines.by_ref().map_while(Result::ok).find(|line| line.contains("listening on http://")).unwrap();
        let url = listening.split("listening on ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        // Whatever else it says must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self { child, url, _folder: folder }
    }

    /// A value of `/proc/PID/status`, in bytes.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> (u16, Value, Value) {
        let response = reqwest::Client::new()
            .post(format!("{}/v1/tools/{tool}", self.url))
            .body(arguments.to_string())
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        let receipt = response.headers().get("plimsoll-receipt").map_or(Value::Null, |text| parse(text.to_str().unwrap()));
        (status, receipt, response.json().await.unwrap())
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Half of what a guest may have: the guest's own memory is part of what is measured.
const ABOVE_IDLE: u64 = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_million_rows_are_counted_and_a_page_of_them_delivered_in_64_mib() {
    let config = format!("[plugins.hostile]\ncomponent = {:?}\nclock = true\n", component("guests/hostile.wasm"));
    let host = HostProcess::start(&config);
    let (status, ..) = host.call("fine", json!({})).await;
    assert_eq!(status, 200);
    let idle = host.memory("VmRSS:");
    let (status, receipt, body) = host.call("many_rows", json!({"limit": 25})).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!((&receipt["total"], &receipt["returned"], &receipt["after"]), (&json!(1_000_000), &json!(25), &json!(999_975)));
    assert!(receipt["stages"][0]["bytes_in"].as_u64().unwrap() >= 1 << 30, "{receipt}");
    assert_eq!(body.as_array().unwrap().len(), 25);
    let above = host.memory("VmHWM:").saturating_sub(idle);
    assert!(above < ABOVE_IDLE, "{above} bytes above idle");
}
