//! Walks the folders of `tests/cases` and of every plugin's `examples`: a new test is a new folder.
//!
//! A case has a `case.toml`, what its guest reads, and the `expected.txt` of its calls. `PLIMSOLL_BLESS=1` writes what
//! came instead of comparing it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::support::{TestHost, component, json, object, root};

/// What a case says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What it shows; for `tests/cases`, with the ids of the field cases that it covers.
    #[serde(default)]
    title: Option<String>,
    /// The tool that is called.
    tool: String,
    /// The arguments, as JSON.
    arguments: String,
    /// Calls after the first: `"next"` is the call that the reply before it offers, everything else is arguments.
    #[serde(default)]
    then: Vec<String>,
    /// More lines of `[plugins.canned…]` tables.
    #[serde(default)]
    config: String,
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(parent)
        .unwrap_or_else(|error| panic!("{}: {error}", parent.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("case.toml").is_file())
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "no case in `{}`", parent.display());
    folders
}

/// Makes the calls of a case and writes down what came.
async fn transcript(host: &TestHost, case: &Case) -> String {
    let mut out = String::new();
    let mut arguments = json(&case.arguments);
    let mut calls = case.then.iter();
    loop {
        let _ = writeln!(out, "> {} {arguments}", case.tool);
        let reply = host.call(&case.tool, arguments).await;
        let head = match reply.refusal() {
            Some(_) => json(reply.body()),
            None => {
                let _ = writeln!(out, "{}", reply.facts());
                json(reply.facts())
            }
        };
        let _ = writeln!(out, "{}\n", reply.body());
        let Some(call) = calls.next() else { return out };
        arguments = match call.as_str() {
            "next" => match &head["next"] {
                Value::Null => panic!("the reply offers no next call:\n{out}"),
                next => next.clone(),
            },
            arguments => Value::Object(object(json(arguments))),
        };
    }
}

/// Runs one case; the error says what differs.
async fn run(host: &TestHost, folder: &Path, case: &Case) -> Result<(), String> {
    let found = transcript(host, case).await;
    let file = folder.join("expected.txt");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&file, found).unwrap();
        return Ok(());
    }
    let expected = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    if found == expected {
        return Ok(());
    }
    let line = found.lines().zip(expected.lines()).position(|(a, b)| a != b);
    let line = line.unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
    Err(format!(
        "{}: line {} differs\nexpected: {}\nfound:    {}",
        file.display(),
        line + 1,
        expected.lines().nth(line).unwrap_or("(nothing)"),
        found.lines().nth(line).unwrap_or("(nothing)"),
    ))
}

fn read(folder: &Path) -> Case {
    let file = folder.join("case.toml");
    toml::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_case_comes_out_as_expected() {
    let mut failed = Vec::new();
    for folder in folders(&root().join("tests/cases")) {
        let case = read(&folder);
        assert!(case.title.is_some(), "`{}` has no title", folder.display());
        let config = format!(
            "[plugins.canned]\ncomponent = {:?}\nfiles = [{{ host = {folder:?}, guest = \"/case\" }}]\n{}",
            component("guests/canned.wasm"),
            case.config
        );
        let host = TestHost::start(&config).await;
        failed.extend(run(&host, &folder, &case).await.err());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_of_a_plugin_comes_out_as_documented() {
    let mut failed = Vec::new();
    for plugin in ["fleet", "documents"] {
        let folder = root().join("plugins").join(plugin);
        let data = if plugin == "fleet" { folder.join("data") } else { folder.join("examples/data") };
        let config = format!(
            "[plugins.{plugin}]\ncomponent = {:?}\nfiles = [{{ host = {data:?}, guest = \"/data\" }}]\n",
            component(&format!("plugins/{plugin}.wasm")),
        );
        let host = TestHost::start(&config).await;
        for folder in folders(&folder.join("examples")) {
            failed.extend(run(&host, &folder, &read(&folder)).await.err());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
