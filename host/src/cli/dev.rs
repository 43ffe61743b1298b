//! `plimsoll dev`

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use serde_json::Value;
use tokio::sync::mpsc;

use super::Exit;
use super::build::{Source, loaded};
use crate::app::App;
use crate::call::{Caller, Host};
use crate::catalog::Tool;
use crate::contract::{Passage, Receipt, Stage};
use crate::examples::{self, Case, Difference, SIGNING_KEY, Step};
use crate::preview::grouped;
use crate::shape::{Code, Reply};

/// How long the folder must be quiet before it is built again: an editor writes a file in several steps.
const QUIET: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(super) struct Dev {
    #[command(flatten)]
    source: Source,
    /// Build and run the examples once, and fail where one comes out differently
    #[arg(long)]
    once: bool,
    /// Write what comes of each example to its `expected.txt`
    #[arg(long)]
    bless: bool,
}

impl Dev {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        if self.once {
            return self.round().await;
        }
        // Watching ends with the watcher.
        let (_watcher, mut changes) = watch(self.source.dir())?;
        loop {
            if let Err(error) = self.round().await {
                writeln!(std::io::stderr().lock(), "error: {error:#}")?;
            }
            writeln!(
                std::io::stderr().lock(),
                "\nwaiting for a change in `{}`; ctrl-c ends",
                self.source.dir().display()
            )?;
            if changes.recv().await.is_none() {
                return Ok(Exit::Success);
            }
            while let Ok(Some(())) = tokio::time::timeout(QUIET, changes.recv()).await {}
        }
    }

    /// Builds, and runs every example.
    async fn round(&self) -> anyhow::Result<Exit> {
        let Some(component) = self.source.build()? else {
            return Ok(Exit::Failed);
        };
        let app = App::open_signing_with(self.source.config(&component)?, SIGNING_KEY).await?;
        loaded(app.load()).await?;
        let folders = examples::folders(&self.source.dir().join("examples"))?;
        let mut is_as_expected = true;
        for folder in &folders {
            let case = Case::read(folder)?;
            let steps = case.run(&app.host).await?;
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let verdict = self.compare(folder, &case.transcript(&steps))?;
            is_as_expected &= verdict.is_good();
            print(&(show(&app.host, &name, &case.tool, &steps) + &format!("  {verdict}\n\n")))?;
        }
        for tool in app.host.catalog(&Caller::default()).tools() {
            for example in &tool.examples {
                let case = Case {
                    title: Some(example.title.clone()),
                    tool: tool.name().to_owned(),
                    arguments: example.arguments.clone(),
                    then: Vec::new(),
                    client: None,
                    config: String::new(),
                };
                let steps = case.run(&app.host).await?;
                print(&(show(&app.host, &example.title, &case.tool, &steps) + "\n"))?;
            }
        }
        if folders.is_empty() {
            let example = self.source.dir().join("examples/NAME/case.toml");
            writeln!(
                std::io::stderr().lock(),
                "hint: an example is a folder with `{}`:\n\ntool = \"TOOL\"\narguments = '{{}}'",
                example.display()
            )?;
        }
        Ok(if is_as_expected {
            Exit::Success
        } else {
            Exit::Failed
        })
    }

    fn compare(&self, folder: &Path, found: &str) -> anyhow::Result<Verdict> {
        let file = folder.join("expected.txt");
        if self.bless {
            std::fs::write(&file, found)
                .with_context(|| format!("writing `{}`", file.display()))?;
            return Ok(Verdict::Blessed(file));
        }
        if !file.exists() {
            return Ok(Verdict::Missing(file));
        }
        let expected = std::fs::read_to_string(&file)
            .with_context(|| format!("reading `{}`", file.display()))?;
        Ok(match Difference::between(&expected, found) {
            None => Verdict::AsExpected,
            Some(difference) => Verdict::Differs(file, difference),
        })
    }
}

/// What is to be said of an example.
enum Verdict {
    AsExpected,
    Blessed(PathBuf),
    Missing(PathBuf),
    Differs(PathBuf, Difference),
}

impl Verdict {
    fn is_good(&self) -> bool {
        matches!(self, Self::AsExpected | Self::Blessed(_))
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AsExpected => f.write_str("as expected"),
            Self::Blessed(file) => write!(f, "written to `{}`", file.display()),
            Self::Missing(file) => {
                write!(
                    f,
                    "there is no `{}` to compare it with\nhint: plimsoll dev --once --bless writes what came",
                    file.display()
                )
            }
            Self::Differs(file, difference) => write!(
                f,
                "not as expected in `{}`: {difference}\nhint: if it is right now, plimsoll dev --once --bless writes what came",
                file.display()
            ),
        }
    }
}

fn print(text: &str) -> std::io::Result<()> {
    std::io::stdout().lock().write_all(text.as_bytes())
}

/// One example: each of its calls with what every stage left, and how near it came to its limits.
fn show(host: &Host, name: &str, tool: &str, steps: &[Step]) -> String {
    let mut out = format!("{name}\n");
    let catalog = host.catalog(&Caller::default());
    for step in steps {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  > {tool} {}", Value::Object(step.arguments.clone()));
        if let Some(receipt) = step.reply.receipt() {
            out.push_str(&stages(receipt, density(&step.reply, receipt)));
        } else {
            let _ = writeln!(out, "  refused: {}", step.reply.body());
        }
        if let Some(tool) = catalog.tool(tool) {
            let _ = writeln!(out, "  {}", nearest(&shares(tool, step)));
        }
    }
    out
}

/// Tokens of a byte of JSON rows where none of them were counted: 2.75 bytes a token, measured on records.
const TOKENS_A_BYTE: f64 = 1.0 / 2.75;

/// Tokens of a byte of what was delivered. Only that is counted; what came before is estimated from it. The bytes of a
/// table are not those of its rows.
fn density(reply: &Reply, receipt: &Receipt) -> f64 {
    let fit = receipt
        .passages
        .iter()
        .find(|passage| passage.stage == Stage::Fit)
        .filter(|_| reply.is_json());
    match fit.and_then(|fit| Some((fit.tokens_out?, fit.bytes_out))) {
        Some((tokens, bytes)) if bytes > 0 => tokens as f64 / bytes as f64,
        _ => TOKENS_A_BYTE,
    }
}

/// Rows, bytes and tokens after each stage.
fn stages(receipt: &Receipt, density: f64) -> String {
    let mut lines = vec![["", "rows", "bytes", "tokens"].map(String::from)];
    let estimated = |bytes: u64| format!("~{}", grouped((bytes as f64 * density).round() as u64));
    if let Some(first) = receipt.passages.first() {
        lines.push([
            String::from("handed over"),
            grouped(first.rows_in),
            grouped(first.bytes_in),
            estimated(first.bytes_in),
        ]);
    }
    for Passage {
        stage,
        rows_out,
        bytes_out,
        tokens_out,
        ..
    } in &receipt.passages
    {
        let name = match stage {
            Stage::Narrow => "narrow",
            Stage::Page => "page",
            Stage::Fit => "fit",
            Stage::Cap => "cap",
        };
        let tokens = tokens_out.map_or_else(|| estimated(*bytes_out), grouped);
        lines.push([
            name.to_owned(),
            grouped(*rows_out),
            grouped(*bytes_out),
            tokens,
        ]);
    }
    let width = |column: usize| {
        lines
            .iter()
            .map(|line| line[column].chars().count())
            .max()
            .unwrap_or_default()
    };
    let [stage, rows, bytes, tokens] = [0, 1, 2, 3].map(width);
    lines.iter().fold(String::new(), |mut out, line| {
        let _ = writeln!(
            out,
            "    {:<stage$}  {:>rows$}  {:>bytes$}  {:>tokens$}",
            line[0], line[1], line[2], line[3]
        );
        out
    })
}

/// How much of each limit a call used, in percent.
fn shares(tool: &Tool, step: &Step) -> Vec<(&'static str, f64)> {
    let percent = |used: f64, limit: f64| 100.0 * used / limit.max(1.0);
    let Some(plugin) = tool.plugin() else {
        return Vec::new();
    };
    let (limits, usage) = (plugin.limits(), &step.usage);
    let mut shares = vec![
        ("fuel", percent(usage.fuel as f64, limits.fuel as f64)),
        (
            "memory",
            percent(usage.memory_peak_bytes as f64, limits.memory_bytes as f64),
        ),
        (
            "deadline",
            percent(usage.elapsed.as_secs_f64(), limits.deadline.as_secs_f64()),
        ),
    ];
    let cap = match (step.reply.receipt(), step.reply.refusal()) {
        (Some(receipt), _) => receipt
            .passages
            .last()
            .map(|cap| percent(cap.bytes_out as f64, f64::from(tool.policy.cap_bytes()))),
        (None, Some(Code::ResponseTooLarge)) => Some(100.0),
        (None, _) => None,
    };
    shares.extend(cap.map(|cap| ("cap", cap)));
    shares
}

/// The limit that came closest, and the others behind it.
fn nearest(shares: &[(&'static str, f64)]) -> String {
    let mut shares = shares.to_vec();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let text = |(name, percent): &(&str, f64)| match percent {
        percent if *percent >= 10.0 => format!("{name} {percent:.0} %"),
        percent if *percent >= 0.05 => format!("{name} {percent:.1} %"),
        _ => format!("{name} 0 %"),
    };
    let texts: Vec<String> = shares.iter().map(text).collect();
    match texts.split_first() {
        Some((first, rest)) => format!("closest limit: {first} ({})", rest.join(", ")),
        None => String::new(),
    }
}

/// Changes in a folder, but for those that building and running make themselves.
fn watch(folder: &Path) -> anyhow::Result<(RecommendedWatcher, mpsc::Receiver<()>)> {
    let folder = folder
        .canonicalize()
        .with_context(|| format!("reading the folder `{}`", folder.display()))?;
    let (send, changes) = mpsc::channel(1);
    let root = folder.clone();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let is_change = event.is_ok_and(|event| {
            !event.kind.is_access() && event.paths.iter().any(|path| is_source(&root, path))
        });
        if is_change {
            // A full channel is a change that is waiting already.
            let _ = send.try_send(());
        }
    })
    .context("watching files")?;
    watcher
        .watch(&folder, RecursiveMode::Recursive)
        .with_context(|| format!("watching `{}`", folder.display()))?;
    Ok((watcher, changes))
}

/// Whether a path is something that an author writes.
fn is_source(root: &Path, path: &Path) -> bool {
    let inside = path.strip_prefix(root).unwrap_or(path);
    let is_made = |part: &str| {
        part.starts_with('.')
            || matches!(
                part,
                "target" | "node_modules" | "__pycache__" | "Cargo.lock" | "expected.txt"
            )
    };
    !inside.iter().any(|part| part.to_str().is_some_and(is_made))
        && inside
            .extension()
            .is_none_or(|extension| extension != "wasm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_building_and_running_write_is_no_change() {
        let root = Path::new("/target/plugin");
        for source in [
            "src/lib.rs",
            "examples/a/case.toml",
            "Cargo.toml",
            "wit/tools.wit",
        ] {
            assert!(is_source(root, &root.join(source)), "{source}");
        }
        for made in [
            "a.wasm",
            ".a.wasm.17",
            ".plimsoll/code/x",
            "target/debug/a",
            "node_modules/a/b.js",
            "src/__pycache__/a.pyc",
            "Cargo.lock",
            "examples/a/expected.txt",
        ] {
            assert!(!is_source(root, &root.join(made)), "{made}");
        }
    }

    #[test]
    fn the_closest_limit_comes_first() {
        let text = nearest(&[
            ("fuel", 0.01),
            ("memory", 9.96),
            ("deadline", 0.3),
            ("cap", 62.4),
        ]);
        assert_eq!(
            text,
            "closest limit: cap 62 % (memory 10.0 %, deadline 0.3 %, fuel 0 %)"
        );
    }
}
