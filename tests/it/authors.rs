//! What whoever writes a plugin does: `new`, `build`, `call`, a change, `dev`; in each of the three languages.
//!
//! What builds plugins is installed where `make guests` has put it, and what was built and compiled once is kept there, so
//! that only the first run takes minutes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::{self, modern};
use crate::support::{component, json as parse, plimsoll, root, write_state};

/// The command in a folder, with the tools that `make guests` has installed.
fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = plimsoll();
    under_test(command.args(arguments), folder);
    command
}

fn under_test<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .env("PLIMSOLL_LOG", "warn")
        .env("PLIMSOLL_CACHE", root().join("target/guests-build"))
        .current_dir(folder)
}

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = command(folder, arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn succeed(folder: &Path, arguments: &[&str]) -> String {
    let (code, out, error) = run(folder, arguments);
    assert_eq!(code, 0, "{arguments:?}: {error}");
    out
}

/// A new plugin in an empty folder. Its compiled code is shared with all other tests.
fn new(name: &str, arguments: &[&str]) -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let told = succeed(parent.path(), &[&["new", name], arguments].concat());
    assert!(
        told.contains(&format!("    cd {name}\n    plimsoll build\n")),
        "{told}"
    );
    let folder = parent.path().join(name);
    write_state(&folder.join(".plimsoll"));
    (parent, folder)
}

fn change(file: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "`{}` has no `{from}`", file.display());
    std::fs::write(file, text.replace(from, to)).unwrap();
}

/// From `new` to the answer of a changed plugin, in the commands that `new` names.
fn write_a_plugin(
    name: &str,
    arguments: &[&str],
    source: &str,
    title: [&str; 2],
) -> (TempDir, PathBuf) {
    let (parent, folder) = new(name, arguments);
    let tool = format!("list_{}", name.replace('-', "_"));

    let built = succeed(&folder, &["build"]);
    assert!(
        built.contains(&format!("{name}.wasm: "))
            && built.contains(&format!("  {tool} (listing it costs ")),
        "{built}"
    );
    let inspected = succeed(&folder, &["inspect", &format!("{name}.wasm")]);
    assert!(inspected.contains("needs granted: nothing"), "{inspected}");
    let body = succeed(&folder, &["call", &tool, "--args", r#"{"limit":1}"#]);
    assert_eq!(
        parse(&body),
        json!([{"id": 1, "title": "Note 1", "state": "waiting"}])
    );

    let shown = succeed(&folder, &["dev", "--once"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[..2],
        ["waiting", &format!(r#"  > {tool} {{"state":"waiting"}}"#)],
        "{shown}"
    );
    let table: Vec<Vec<&str>> = lines[2..8]
        .iter()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(table[0], ["rows", "bytes", "tokens"], "{shown}");
    assert_eq!(table[1][..3], ["handed over", "60", "5,913"], "{shown}");
    assert_eq!(
        table[2..]
            .iter()
            .map(|row| (row[0], row[1]))
            .collect::<Vec<_>>(),
        [
            ("narrow", "20"),
            ("page", "20"),
            ("fit", "20"),
            ("cap", "20")
        ]
    );
    assert_eq!(table[4][2..], ["936", "302"], "{shown}");
    assert!(
        lines[8].starts_with("  closest limit: memory ")
            && lines[8].contains("fuel")
            && lines[8].contains("deadline")
            && lines[8].contains("cap"),
        "{shown}"
    );
    assert_eq!(lines[9], "  as expected", "{shown}");

    change(&folder.join(source), title[0], title[1]);
    succeed(&folder, &["build", "."]);
    let body = succeed(&folder, &["call", &tool, "--args", r#"{"limit":1}"#]);
    assert_eq!(parse(&body)[0]["title"], "Remark 1");
    let (code, shown, error) = run(&folder, &["dev", "--once"]);
    assert_eq!(code, 3, "{error}");
    assert!(
        shown.contains("not as expected")
            && shown.contains(r#"found:    {"id":1,"title":"Remark 1""#),
        "{shown}"
    );
    (parent, folder)
}

#[test]
fn a_rust_plugin_from_new_to_the_answer_of_a_changed_one() {
    let (_parent, folder) = write_a_plugin(
        "notes-rust",
        &["--lang", "rust"],
        "src/lib.rs",
        ["Note {id}", "Remark {id}"],
    );

    // Without `--once` it goes on: each change is built and run.
    let mut dev = Command::new("sh");
    dev.args([
        "-c",
        r#"exec "$0" dev 2>&1"#,
        env!("CARGO_BIN_EXE_plimsoll"),
    ]);
    let mut dev = under_test(&mut dev, &folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut wait_for = |text: &str| {
        lines
            .find(|line| line.contains(text))
            .unwrap_or_else(|| panic!("`{text}` did not come"))
    };
    wait_for(r#""title":"Remark 1""#);
    wait_for("waiting for a change");
    change(&folder.join("src/lib.rs"), "Remark {id}", "Memo {id}");
    wait_for(r#""title":"Memo 1""#);
    // What does not build is said, and the next change is waited for.
    change(
        &folder.join("src/lib.rs"),
        "struct Plugin;",
        "struct Plugin",
    );
    wait_for("error: could not compile");
    wait_for("waiting for a change");
    change(
        &folder.join("src/lib.rs"),
        "struct Plugin",
        "struct Plugin;",
    );
    change(&folder.join("src/lib.rs"), "Memo {id}", "Note {id}");
    wait_for("  as expected");
    dev.kill().unwrap();
    dev.wait().unwrap();
}

#[test]
fn a_javascript_plugin_from_new_to_the_answer_of_a_changed_one() {
    write_a_plugin(
        "notes-js",
        &["--lang", "js"],
        "src/plugin.js",
        ["Note ${id}", "Remark ${id}"],
    );
}

#[test]
fn a_python_plugin_from_new_to_the_answer_of_a_changed_one() {
    write_a_plugin(
        "notes-python",
        &["--lang", "python"],
        "src/plugin.py",
        ["Note {id}", "Remark {id}"],
    );
}

/// The other world, in each language: the same rows, and a second tool that gets one of them.
fn write_a_backend(name: &str, language: &str) {
    let (_parent, folder) = new(name, &["--lang", language, "--world", "backend"]);
    let snake = name.replace('-', "_");
    let built = succeed(&folder, &["build"]);
    for expected in [
        "backend-adapter",
        &format!("  list_{snake} ("),
        &format!("  get_{snake} ("),
    ] {
        assert!(built.contains(expected), "{expected}: {built}");
    }
    let (code, shown, error) = run(&folder, &["dev", "--once"]);
    assert!(
        code == 0 && shown.contains("  as expected"),
        "{shown}{error}"
    );
    let body = succeed(
        &folder,
        &["call", &format!("get_{snake}"), "--args", r#"{"key":3}"#],
    );
    assert_eq!(
        body,
        r#"{"id":3,"title":"Note 3","state":"open","text":"Everything that there is to say about note 3."}"#
    );
    let (code, _, refusal) = run(
        &folder,
        &["call", &format!("get_{snake}"), "--args", r#"{"key":61}"#],
    );
    assert_eq!(
        (code, parse(&refusal)["error"].as_str()),
        (1, Some("not_found"))
    );
}

#[test]
fn a_rust_backend() {
    write_a_backend("books-rust", "rust");
}

#[test]
fn a_javascript_backend() {
    write_a_backend("books-js", "js");
}

#[test]
fn a_python_backend() {
    write_a_backend("books-python", "python");
}

#[test]
fn new_makes_nothing_where_something_is() {
    let parent = tempfile::tempdir().unwrap();
    std::fs::create_dir(parent.path().join("taken")).unwrap();
    std::fs::write(parent.path().join("taken/mine.txt"), "mine").unwrap();
    let (code, _, error) = run(parent.path(), &["new", "taken", "--lang", "rust"]);
    assert_eq!(code, 3);
    assert_eq!(
        error,
        "error: `taken` is a folder that is not empty\nhint: choose another name, or remove it\n"
    );
    assert_eq!(
        std::fs::read_dir(parent.path().join("taken"))
            .unwrap()
            .count(),
        1
    );
    let (code, _, error) = run(parent.path(), &["new", "My_Plugin", "--lang", "rust"]);
    assert_eq!(code, 3);
    assert!(
        error.contains("found: `My_Plugin`\nhint: plimsoll new harbour-notes --lang rust"),
        "{error}"
    );
    // A folder that is empty is as good as none.
    std::fs::create_dir(parent.path().join("empty")).unwrap();
    succeed(parent.path(), &["new", "empty", "--lang", "python"]);
}

/// A folder for `PATH` that has what a POSIX system has and none of what builds plugins.
fn bare_system() -> TempDir {
    let tools = [
        "awk",
        "basename",
        "cat",
        "cmp",
        "cp",
        "cut",
        "dirname",
        "find",
        "grep",
        "head",
        "ls",
        "mkdir",
        "mktemp",
        "mv",
        "rm",
        "sed",
        "sh",
        "sha256sum",
        "sort",
        "tail",
        "touch",
        "tr",
    ];
    let folder = tempfile::tempdir().unwrap();
    for tool in tools {
        let places = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(tool));
        let file = places
            .iter()
            .find(|file| file.exists())
            .unwrap_or_else(|| panic!("this system has no `{tool}`"));
        symlink(file, folder.path().join(tool)).unwrap();
    }
    folder
}

#[test]
fn build_says_which_tool_is_missing_and_how_to_get_it() {
    let system = bare_system();
    let table = [
        (
            "rust",
            "building a Rust plugin needs `cargo`, which is not installed\nhint: install Rust with rustup",
        ),
        (
            "js",
            "building a JavaScript plugin needs `node`, which is not installed\nhint: install Node.js 20 or newer",
        ),
        (
            "python",
            "building a Python plugin needs `python3`, which is not installed\nhint: install Python 3.10 or newer",
        ),
    ];
    for (language, expected) in table {
        let (_parent, folder) = new("bare", &["--lang", language]);
        let output = command(&folder, &["build"])
            .env("PATH", system.path())
            .output()
            .unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert!(
            error.starts_with(&format!("error: {expected}")),
            "{language}: {error}"
        );
        assert_eq!(output.stdout, b"", "{language}");
    }
}

#[test]
fn build_says_what_a_folder_must_have() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, error) = run(folder.path(), &["build"]);
    assert_eq!(code, 3);
    assert!(error.contains("holds no plugin: expected Cargo.toml (Rust), package.json (JavaScript) or pyproject.toml (Python)"), "{error}");
    let (code, _, error) = run(folder.path(), &["build", "nowhere"]);
    assert_eq!(code, 3);
    assert_eq!(
        error,
        "error: there is no folder `nowhere`\nhint: make a plugin with `plimsoll new NAME --lang rust`\n"
    );
    // A plugin that its own config file does not name is not run under somebody else's grants.
    let (_parent, folder) = new("unnamed", &["--lang", "rust"]);
    change(
        &folder.join("plimsoll.toml"),
        "[plugins.unnamed]\ncomponent = \"unnamed.wasm\"",
        "",
    );
    let (code, _, error) = run(&folder, &["build"]);
    assert_eq!(code, 3);
    assert!(
        error.contains("has no plugin whose component is") && error.contains("[plugins.unnamed]"),
        "{error}"
    );
}

#[test]
fn a_javascript_and_a_python_plugin_answer_an_mcp_client() {
    let plugin = |name: &str| {
        format!(
            "[plugins.{name}]\ncomponent = {:?}\n",
            component(&format!("plugins/{name}.wasm"))
        )
    };
    let folder = doors::folder(&(plugin("orders") + &plugin("ledger")));
    let mut client = doors::Stdio::start(&folder);
    let listed = client.ask(1, "tools/list", json!({"_meta": modern()}));
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "list_accounts",
            "get_accounts",
            "list_entries",
            "get_entries",
            "list_orders",
            "get_order"
        ]
    );

    let mut call = |id, name: &str, arguments: Value| {
        let called = client.ask(
            id,
            "tools/call",
            json!({"name": name, "arguments": arguments, "_meta": modern()}),
        );
        let content = called["result"]["content"]
            .as_array()
            .unwrap_or_else(|| panic!("{called}"))
            .clone();
        let text = |index: usize| parse(content[index]["text"].as_str().unwrap());
        (text(0), text(1))
    };
    let (facts, orders) = call(2, "list_orders", json!({"status": "open", "limit": 3}));
    assert_eq!(
        (
            &facts["total_count"],
            &facts["matched_count"],
            &facts["returned"]
        ),
        (&json!(40_000), &json!(187), &json!(3))
    );
    assert!(
        orders
            .as_array()
            .unwrap()
            .iter()
            .all(|order| order["status"] == "open"),
        "{orders}"
    );
    let (again, more) = call(3, "list_orders", facts["next"].clone());
    assert_eq!(again["returned"], 3);
    assert_ne!(orders[2]["id"], more[0]["id"]);

    let (facts, accounts) = call(4, "list_accounts", json!({}));
    assert_eq!(
        (
            &facts["total_count"],
            &facts["matched_count"],
            &facts["returned"]
        ),
        (&json!(30), &json!(26), &json!(25))
    );
    assert_eq!(accounts[0]["name"], "Petty cash");
    let (_, rest) = call(5, "list_accounts", facts["next"].clone());
    assert_eq!(rest.as_array().unwrap().len(), 1);
}
