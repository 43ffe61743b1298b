//! The main job on real data: what a plugin hands over, and what an agent gets. `make demo` runs it.
//!
//! It uses the library as a door does. Every command it prints can be typed as it stands, in the folder it names.

#![expect(clippy::print_stdout, reason = "this is a show")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use plimsoll::app::App;
use plimsoll::call::Caller;
use plimsoll::config::Config;
use plimsoll::shape::{Reply, tokens};
use serde_json::{Map, Value, json};

/// How many lines of a body are shown, and how much of each.
const SHOWN_LINES: usize = 3;
const SHOWN_CHARS: usize = 150;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the host is a folder of the repository")?;
    let folder = root.join("target/demo");
    let documents = folder.join("documents");
    std::fs::create_dir_all(&documents)?;
    let metadata = cargo_metadata(root, &documents)?;
    std::fs::write(folder.join("plimsoll.toml"), CONFIG)?;
    let app = App::start(Config::read(&folder.join("plimsoll.toml"))?).await?;
    println!(
        "The operator's file is target/demo/plimsoll.toml; type the commands in target/demo.\n"
    );

    let record = root.join("plugins/fleet/data/fleet.json");
    println!(
        "=== fleet_show: a record of 68 work streams, most of them over, with long prose ===\n"
    );
    raw(&record)?;
    show(
        &app,
        "fleet_show",
        json!({}),
        json!({"format": "csv"}),
        json!({"horizon": "all", "detail": "full", "limit": 68}),
    )
    .await?;

    println!("=== list_metadata_packages: this repository's own `cargo metadata` ===\n");
    raw(&metadata)?;
    let refused = json!({"detail": "full", "limit": 100});
    show(
        &app,
        "list_metadata_packages",
        json!({"limit": 20}),
        json!({"format": "csv", "limit": 20}),
        refused,
    )
    .await?;
    println!(
        "Serve both to an agent: plimsoll serve --stdio, or plimsoll serve and http://127.0.0.1:8787/mcp"
    );
    Ok(())
}

const CONFIG: &str = r#"# Written by `make demo`.
plugins_folder = "../plugins"

[plugins.fleet]
component = "fleet.wasm"
files = [{ host = "../../plugins/fleet/data", guest = "/data" }]

[plugins.documents]
component = "documents.wasm"
files = [{ host = "documents", guest = "/data" }]
"#;

/// Writes `cargo metadata` of this repository, a real document of megabytes.
fn cargo_metadata(root: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root)
        .output()
        .context("running `cargo metadata`")?;
    ensure!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let file = folder.join("metadata.json");
    std::fs::write(&file, output.stdout)?;
    Ok(file)
}

fn raw(file: &Path) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("reading `{}`", file.display()))?;
    println!(
        "what the plugin hands over: {} bytes, {} tokens\n",
        text.len(),
        tokens::count(&text)
    );
    Ok(())
}

/// One tool: its default answer, the next page by its cursor, a table, a refusal, and the call that the refusal offers.
async fn show(
    app: &App,
    tool: &str,
    first: Value,
    table: Value,
    too_much: Value,
) -> anyhow::Result<()> {
    let answer = call(app, tool, "what an agent gets", first).await?;
    let facts: Value = serde_json::from_str(answer.facts())?;
    call(
        app,
        tool,
        "the next page, by the call in \"next\"",
        facts["next"].clone(),
    )
    .await?;
    call(app, tool, "as a table", table).await?;
    let refused = call(
        app,
        tool,
        "more than fits is refused, with a call that fits",
        too_much,
    )
    .await?;
    ensure!(
        refused.refusal().is_some(),
        "{tool} was to refuse this call"
    );
    let refusal: Value = serde_json::from_str(refused.body())?;
    let accepted = call(app, tool, "that call", refusal["next"].clone()).await?;
    ensure!(
        accepted.refusal().is_none(),
        "the call that the refusal offers was refused: {}",
        accepted.body()
    );
    Ok(())
}

async fn call(app: &App, tool: &str, title: &str, arguments: Value) -> anyhow::Result<Reply> {
    println!("--- {title}\n$ plimsoll call {tool} --args '{arguments}'");
    let arguments: Map<String, Value> =
        serde_json::from_value(arguments).context("the reply offers no next call")?;
    let reply = app
        .host
        .call_named(&Caller::default(), tool, arguments)
        .await;
    let bytes = reply.facts().len() + reply.body().len();
    let tokens = tokens::count(reply.facts()) + tokens::count(reply.body());
    for line in [reply.facts()]
        .into_iter()
        .filter(|facts| !facts.is_empty())
        .chain(reply.body().lines().take(SHOWN_LINES))
    {
        match line
            .char_indices()
            .nth(SHOWN_CHARS * if line == reply.facts() { 6 } else { 1 })
        {
            Some((end, _)) if reply.refusal().is_none() => {
                println!("{}… ({} bytes)", &line[..end], line.len())
            }
            _ => println!("{line}"),
        }
    }
    let more = reply.body().lines().count().saturating_sub(SHOWN_LINES);
    if more > 0 {
        println!("… {more} more lines");
    }
    println!("({bytes} bytes, {tokens} tokens)\n");
    Ok(reply)
}
