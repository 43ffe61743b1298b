//! The examples of a plugin: calls in folders, each with what comes of it. They are its documentation and its tests.
//!
//! A folder has `case.toml`, which says what is called, and `expected.txt`, the transcript of the calls. `plimsoll dev`
//! runs them for whoever writes a plugin, and the host's own tests run those of the plugins in this repository.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::call::{Caller, Host};
use crate::sandbox::Usage;
use crate::shape::Reply;

/// Signs the cursors of examples, so that they are the same wherever an example is run. It guards nothing: a host that
/// runs examples serves nobody.
pub const SIGNING_KEY: [u8; 32] = [7; 32];

/// What is called.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What it shows.
    #[serde(default)]
    pub title: Option<String>,
    /// The tool.
    pub tool: String,
    /// The arguments, as JSON.
    pub arguments: String,
    /// Calls after the first: `"next"` is the call that the reply before it offers, everything else is arguments.
    #[serde(default)]
    pub then: Vec<String>,
    /// What the calling program calls itself; absent for one that nothing is known of.
    #[serde(default)]
    pub client: Option<String>,
    /// Lines that the test's own config file gets.
    #[serde(default)]
    pub config: String,
}

/// One call and what came of it.
#[derive(Debug)]
pub struct Step {
    /// The arguments.
    pub arguments: Map<String, Value>,
    /// What a caller gets.
    pub reply: Reply,
    /// What the plugin used.
    pub usage: Usage,
}

/// How a transcript differs from the expected one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Number of the first line that differs, from 1.
    pub line: usize,
    /// The line that was expected, if there is one.
    pub expected: Option<String>,
    /// The line that came, if there is one.
    pub found: Option<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown =
            |line: &Option<String>| line.clone().unwrap_or_else(|| String::from("(nothing)"));
        write!(
            f,
            "line {} differs\nexpected: {}\nfound:    {}",
            self.line,
            shown(&self.expected),
            shown(&self.found)
        )
    }
}

impl Difference {
    /// The first difference, if there is one.
    pub fn between(expected: &str, found: &str) -> Option<Self> {
        if expected == found {
            return None;
        }
        let line = found
            .lines()
            .zip(expected.lines())
            .position(|(a, b)| a != b);
        let line = line.unwrap_or_else(|| found.lines().count().min(expected.lines().count()));
        let nth = |text: &str| text.lines().nth(line).map(str::to_owned);
        Some(Self {
            line: line + 1,
            expected: nth(expected),
            found: nth(found),
        })
    }
}

/// The folders of a folder that have a `case.toml`, by name. None where there is no such folder.
pub fn folders(parent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !parent.exists() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(parent)
        .with_context(|| format!("reading the folder `{}`", parent.display()))?;
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("reading the folder `{}`", parent.display()))?
            .path();
        if path.join("case.toml").is_file() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

impl Case {
    /// Reads the `case.toml` of a folder.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        let file = folder.join("case.toml");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("reading `{}`", file.display()))?;
        toml::from_str(&text).with_context(|| format!("in `{}`", file.display()))
    }

    /// Makes the calls, one after the other.
    pub async fn run(&self, host: &Host) -> anyhow::Result<Vec<Step>> {
        let caller = Caller {
            client: self.client.clone(),
            ..Caller::default()
        };
        let mut steps: Vec<Step> = Vec::new();
        for call in
            std::iter::once(self.arguments.as_str()).chain(self.then.iter().map(String::as_str))
        {
            let arguments = match (call, steps.last()) {
                ("next", Some(before)) => next(&before.reply)?,
                (text, _) => serde_json::from_str(text).with_context(|| {
                    format!("expected arguments as a JSON object, found `{text}`")
                })?,
            };
            let (reply, usage) = host
                .measure_named(&caller, &self.tool, arguments.clone())
                .await;
            steps.push(Step {
                arguments,
                reply,
                usage,
            });
        }
        Ok(steps)
    }

    /// What was called and what came, as `expected.txt` has it.
    pub fn transcript(&self, steps: &[Step]) -> String {
        let mut out = String::new();
        for Step {
            arguments, reply, ..
        } in steps
        {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "> {} {}", self.tool, Value::Object(arguments.clone()));
            if reply.refusal().is_none() {
                let _ = writeln!(out, "{}", reply.facts());
            }
            let _ = writeln!(out, "{}\n", reply.body());
        }
        out
    }
}

/// The call that a reply offers.
fn next(reply: &Reply) -> anyhow::Result<Map<String, Value>> {
    let head = if reply.refusal().is_some() {
        reply.body()
    } else {
        reply.facts()
    };
    let mut head: Value = serde_json::from_str(head).context("reading the facts")?;
    match head["next"].take() {
        Value::Object(next) => Ok(next),
        _ => bail!("the reply before `next` offers no next call: {head}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_first_line_that_differs() {
        assert_eq!(Difference::between("a\nb\n", "a\nb\n"), None);
        let differs = Difference::between("a\nb\n", "a\nc\n").unwrap();
        assert_eq!(
            differs.to_string(),
            "line 2 differs\nexpected: b\nfound:    c"
        );
        let shorter = Difference::between("a\nb\n", "a\n").unwrap();
        assert_eq!(
            shorter.to_string(),
            "line 2 differs\nexpected: b\nfound:    (nothing)"
        );
    }

    #[test]
    fn a_folder_without_cases_has_none_and_one_that_is_not_there_too() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(folders(folder.path()).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(
            folders(&folder.path().join("nowhere")).unwrap(),
            Vec::<PathBuf>::new()
        );
        std::fs::create_dir(folder.path().join("one")).unwrap();
        std::fs::write(
            folder.path().join("one/case.toml"),
            "tool = \"t\"\narguments = \"{}\"",
        )
        .unwrap();
        assert_eq!(folders(folder.path()).unwrap(), [folder.path().join("one")]);
        assert_eq!(Case::read(&folder.path().join("one")).unwrap().tool, "t");
    }
}
