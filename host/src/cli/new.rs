//! `plimsoll new`

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::Exit;
use crate::sandbox::World;

#[derive(Debug, Args)]
pub(super) struct New {
    /// The folder to make; its last part is the plugin's name
    name: PathBuf,
    /// The language
    #[arg(long, value_enum)]
    lang: Language,
    /// Tools of its own, or collections from which the host makes tools
    #[arg(long, value_enum, default_value_t = Kind::Tools)]
    world: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Rust,
    #[value(alias = "javascript")]
    Js,
    #[value(alias = "py")]
    Python,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rust => "Rust",
            Self::Js => "JavaScript",
            Self::Python => "Python",
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Tools,
    Backend,
}

impl Kind {
    fn world(self) -> World {
        match self {
            Self::Tools => World::ToolHandler,
            Self::Backend => World::BackendAdapter,
        }
    }
}

macro_rules! template {
    ($path:literal) => {
        include_str!(concat!("../../templates/", $path))
    };
}

macro_rules! wit {
    ($($path:literal),* $(,)?) => {
        &[$((concat!("wit/", $path), include_str!(concat!("../../../wit/v0.1/", $path)))),*]
    };
}

/// The contract, as it is in this host.
const WIT: &[(&str, &str)] = wit![
    "backend.wit",
    "deps/config/store.wit",
    "log.wit",
    "reply.wit",
    "shaping.wit",
    "sql.wit",
    "tools.wit",
    "types.wit",
    "world.wit",
];

/// What a plugin has in every language.
const COMMON: &[(&str, &str)] = &[
    ("README.md", template!("README.md")),
    ("plimsoll.toml", template!("plimsoll.toml")),
    (".gitignore", template!("gitignore")),
    (
        "examples/waiting/case.toml",
        template!("examples/waiting/case.toml"),
    ),
    (
        "examples/waiting/expected.txt",
        template!("examples/waiting/expected.txt"),
    ),
];

/// The tools that build JavaScript plugins are the ones that build this repository's, in the same versions.
const PACKAGE_LOCK: &str = include_str!("../../../plugins/orders/package-lock.json");
const PACKAGE_LOCK_NAME: &str = "\"name\": \"orders\"";

/// And those for Python.
const REQUIREMENTS: &str = include_str!("../../../plugins/ledger/requirements.txt");

impl New {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        let name = plugin_name(&self.name)?;
        let folder = &self.name;
        let is_taken = match std::fs::read_dir(folder) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("reading the folder `{}`", folder.display()));
            }
        };
        if is_taken {
            bail!(
                "`{}` is a folder that is not empty\nhint: choose another name, or remove it",
                folder.display()
            );
        }
        for (path, text) in self.files(&name) {
            write(&folder.join(path), &text)?;
        }
        let mut out = std::io::stdout().lock();
        writeln!(
            out,
            "`{}` is a {} plugin with the tool `list_{}`. Next:\n",
            folder.display(),
            self.lang,
            snake(&name)
        )?;
        writeln!(out, "    cd {}", folder.display())?;
        writeln!(out, "    plimsoll build")?;
        writeln!(out, "    plimsoll call list_{}\n", snake(&name))?;
        writeln!(
            out,
            "Change {} and build again, or let `plimsoll dev` do it at every save.",
            self.source()
        )?;
        Ok(Exit::Success)
    }

    /// The file that an author changes.
    fn source(&self) -> &'static str {
        match self.lang {
            Language::Rust => "src/lib.rs",
            Language::Js => "src/plugin.js",
            Language::Python => "src/plugin.py",
        }
    }

    /// Every file of the new folder with its text.
    fn files(&self, name: &str) -> Vec<(&'static str, String)> {
        let source = match (self.lang, self.world) {
            (Language::Rust, Kind::Tools) => template!("rust/tools.rs"),
            (Language::Rust, Kind::Backend) => template!("rust/backend.rs"),
            (Language::Js, Kind::Tools) => template!("js/tools.js"),
            (Language::Js, Kind::Backend) => template!("js/backend.js"),
            (Language::Python, Kind::Tools) => template!("python/tools.py"),
            (Language::Python, Kind::Backend) => template!("python/backend.py"),
        };
        let manifest: &[(&str, &str)] = match self.lang {
            Language::Rust => &[("Cargo.toml", template!("rust/Cargo.toml"))],
            Language::Js => &[("package.json", template!("js/package.json"))],
            Language::Python => &[
                ("pyproject.toml", template!("python/pyproject.toml")),
                ("requirements.txt", REQUIREMENTS),
            ],
        };
        let mut files: Vec<(&str, String)> = COMMON
            .iter()
            .chain(manifest)
            .chain(&[(self.source(), source)])
            .map(|(path, text)| (*path, self.fill(text, name)))
            .collect();
        if self.lang == Language::Js {
            files.push((
                "package-lock.json",
                PACKAGE_LOCK.replace(PACKAGE_LOCK_NAME, &format!("\"name\": \"{name}\"")),
            ));
        }
        files.extend(WIT.iter().map(|(path, text)| (*path, (*text).to_owned())));
        files
    }

    fn fill(&self, text: &str, name: &str) -> String {
        let notes = match self.lang {
            Language::Rust => template!("rust/notes.md"),
            Language::Js => template!("js/notes.md"),
            Language::Python => template!("python/notes.md"),
        };
        let exports = match self.world {
            Kind::Tools => "`wit/tools.wit`",
            Kind::Backend => "`wit/backend.wit`",
        };
        text.replace("{{notes}}\n", notes)
            .replace("{{name}}", name)
            .replace("{{snake}}", &snake(name))
            .replace("{{language}}", &self.lang.to_string())
            .replace("{{source}}", &format!("`{}`", self.source()))
            .replace("{{world}}", self.world.world().as_str())
            .replace("{{exports}}", exports)
    }
}

/// The name that a folder gives its plugin. It has to do as the name of a package in each language.
fn plugin_name(folder: &Path) -> anyhow::Result<String> {
    let name = folder
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && name.len() <= MAX_NAME_CHARS;
    if !is_name {
        bail!(
            "a plugin's name has 1 to {MAX_NAME_CHARS} lower-case letters, digits and `-`, and begins with a letter, found: \
             `{name}`\nhint: plimsoll new harbour-notes --lang rust"
        );
    }
    Ok(name.to_owned())
}

/// A tool's name has 64 characters at most, and the template's begins with `list_`.
const MAX_NAME_CHARS: usize = 56;

/// The name inside the names of tools.
fn snake(name: &str) -> String {
    name.replace('-', "_")
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("making the folder `{}`", folder.display()))?;
    }
    std::fs::write(file, text).with_context(|| format!("writing `{}`", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_for_packages_of_every_language() {
        for good in ["a", "harbour-notes", "some/where/t1"] {
            plugin_name(Path::new(good)).unwrap();
        }
        for bad in ["", ".", "1a", "A", "a_b", "a b", "-a", "é", &"a".repeat(57)] {
            let error = plugin_name(Path::new(bad)).unwrap_err().to_string();
            assert!(
                error.contains("a plugin's name has 1 to 56 lower-case letters"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn every_template_is_filled_and_every_lock_has_the_plugins_name() {
        for lang in [Language::Rust, Language::Js, Language::Python] {
            for world in [Kind::Tools, Kind::Backend] {
                let files = New {
                    name: PathBuf::from("harbour-notes"),
                    lang,
                    world,
                }
                .files("harbour-notes");
                for (path, text) in &files {
                    assert!(!text.contains("{{"), "{lang}: {path}");
                }
                let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
                assert!(all.contains("list_harbour_notes"), "{lang}");
                assert!(!all.contains(PACKAGE_LOCK_NAME), "{lang}");
            }
        }
        assert_eq!(PACKAGE_LOCK.matches(PACKAGE_LOCK_NAME).count(), 2);
    }

    #[test]
    fn the_embedded_contract_is_whole() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit/v0.1");
        let mut found = Vec::new();
        for folder in [root.clone(), root.join("deps/config")] {
            let entries = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            found.extend(
                entries
                    .filter(|path| path.is_file())
                    .map(|path| path.strip_prefix(&root).unwrap().to_owned()),
            );
        }
        found.sort();
        let mut embedded: Vec<_> = WIT
            .iter()
            .map(|(path, _)| PathBuf::from(path.strip_prefix("wit/").unwrap()))
            .collect();
        embedded.sort();
        assert_eq!(found, embedded);
    }
}
