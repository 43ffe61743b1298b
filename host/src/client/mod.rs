//! Client programs: what is known of how they treat a result, as data.
//!
//! Owns: the table `profiles.toml` and the way from a program's name to its entry. Does not know what a reply is: budgets
//! and gates are [`shape`](crate::shape)'s. A profile never changes what is listed, since the protocol asks servers to
//! list the same for everybody.

use std::fmt::Write;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::shape::Gates;

/// How much of a name is looked at: a `User-Agent` may be as long as a header.
const MAX_NAME_CHARS: usize = 200;

/// What is known of one client program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name in the table, by which `plimsoll preview` knows it.
    pub id: String,
    /// Its name in texts.
    pub title: String,
    /// Beginnings of what it calls itself, folded.
    pub names: Vec<String>,
    /// Whether it was seen to call itself that, or the product's name is all that is known.
    pub are_names_seen: bool,
    /// The budget of a call for which nobody says anything else.
    pub budget_tokens: Option<u64>,
    /// What it takes of one result.
    pub gates: Gates,
    /// Characters at which it shortens the text of an error, where that is known.
    pub error_characters: Option<u64>,
    /// Who says so: `docs`, `issue` or `note`.
    pub source: String,
    /// Year and month that the source speaks of, where it says them.
    pub date: Option<String>,
    /// What becomes of a larger result.
    pub note: String,
}

/// The table as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    profile: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    title: String,
    names: Vec<String>,
    names_from: NamesFrom,
    budget_tokens: Option<u64>,
    bytes: Option<u64>,
    characters: Option<u64>,
    lines: Option<u64>,
    tokens: Option<u64>,
    #[serde(default)]
    counts_media: bool,
    error_characters: Option<u64>,
    source: String,
    date: Option<String>,
    note: String,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum NamesFrom {
    Seen,
    Product,
}

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let table: Table = toml::from_str(include_str!("profiles.toml"))
        .expect("the table is part of the program, and a test reads it");
    table
        .profile
        .into_iter()
        .map(|entry| Profile {
            names: entry.names.iter().map(|name| fold(name)).collect(),
            are_names_seen: entry.names_from == NamesFrom::Seen,
            budget_tokens: entry.budget_tokens,
            gates: Gates {
                client: entry.title.clone(),
                bytes: entry.bytes,
                characters: entry.characters,
                lines: entry.lines,
                tokens: entry.tokens,
                counts_media: entry.counts_media,
            },
            error_characters: entry.error_characters,
            source: entry.source,
            date: entry.date,
            note: entry.note,
            title: entry.title,
            id: entry.id,
        })
        .collect()
});

/// Every profile, in the order of the table.
pub fn profiles() -> &'static [Profile] {
    &PROFILES
}

/// The profile of a program that calls itself `name`: the one with the longest beginning of that name. A beginning ends
/// where a word does, so that `clinet` is not `cline`.
pub fn profile(name: &str) -> Option<&'static Profile> {
    let name = fold(name);
    let begins = |beginning: &String| {
        name.strip_prefix(beginning.as_str())
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    profiles()
        .iter()
        .filter_map(|profile| {
            let longest = profile
                .names
                .iter()
                .filter(|name| begins(name))
                .map(String::len)
                .max()?;
            Some((longest, profile))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, profile)| profile)
}

/// A name without regard to case, with one `-` for every run of `-`, `_` and spaces.
fn fold(name: &str) -> String {
    let mut folded = String::new();
    for character in name.trim().chars().take(MAX_NAME_CHARS) {
        match character {
            '-' | '_' => folded.push('-'),
            space if space.is_whitespace() => folded.push('-'),
            other => folded.extend(other.to_lowercase()),
        }
        if folded.ends_with("--") {
            folded.pop();
        }
    }
    folded
}

/// The table as Markdown, for the README.
pub fn reference() -> String {
    let mut out = String::from(
        "| client | calls itself | budget | bytes | characters | lines | tokens | known from |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    for profile in profiles() {
        let names: Vec<String> = profile
            .names
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let assumed = if profile.are_names_seen {
            ""
        } else {
            " (assumed)"
        };
        let gates = &profile.gates;
        let date = profile
            .date
            .as_ref()
            .map_or(String::new(), |date| format!(", {date}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| {} | {}{assumed} | {} | {} | {} | {} | {} | {}{date}: {} |",
            profile.title,
            names.join(", "),
            number(profile.budget_tokens),
            number(gates.bytes),
            number(gates.characters),
            number(gates.lines),
            number(gates.tokens),
            profile.source,
            profile.note,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::shape::{MAX_REFUSAL_BYTES, Unit};

    #[test]
    fn programs_are_known_by_what_they_call_themselves() {
        let table = [
            ("claude-code", "claude-code"),
            ("Claude Code", "claude-code"),
            ("claude-code/2.1.332 (cli)", "claude-code"),
            ("claude-ai", "claude-desktop"),
            ("Claude-User", "claude-desktop"),
            ("codex-mcp-client", "codex"),
            ("codex-mcp-client/0.171.0", "codex"),
            ("Codex", "codex"),
            ("Visual Studio Code", "vscode"),
            ("Visual Studio Code - Insiders", "vscode"),
            ("Visual-Studio-Code", "vscode"),
            ("visual_studio_code", "vscode"),
            ("github-copilot-developer", "copilot-cli"),
            ("copilot-cli", "copilot-cli"),
            ("gemini-cli-mcp-client", "gemini-cli"),
            ("gemini-cli", "gemini-cli"),
            ("qwen-cli-mcp-client-fleet", "qwen-code"),
            ("qwen-code", "qwen-code"),
            ("cursor-vscode", "cursor"),
            ("Cursor", "cursor"),
            ("Cline", "cline"),
            ("opencode", "opencode"),
            ("opencode/1.18.33", "opencode"),
            ("goose", "goose"),
            ("crush", "crush"),
            ("kimi-cli", "kimi"),
            ("kimi code", "kimi"),
            ("pi-mcp-adapter", "pi"),
            ("HolmesGPT", "holmesgpt"),
            ("hermes-agent", "hermes"),
            ("late-cli", "late-cli"),
            ("mcpproxy-go", "mcpproxy"),
            ("mcpproxy", "mcpproxy"),
        ];
        for (name, id) in table {
            assert_eq!(
                profile(name).map(|profile| profile.id.as_str()),
                Some(id),
                "{name}"
            );
        }
        let tried: HashSet<String> = table.iter().map(|(name, _)| fold(name)).collect();
        for name in profiles().iter().flat_map(|profile| &profile.names) {
            assert!(
                tried.iter().any(|tried| tried.starts_with(name.as_str())),
                "`{name}` is not in the table of this test"
            );
        }
    }

    #[test]
    fn look_alikes_are_unknown() {
        for name in [
            "",
            " ",
            "clinet",
            "clines",
            "claude",
            "claudecode",
            "claude-codex",
            "my-claude-code",
            "codexer",
            "visual-studio",
            "visual-studio-codespaces",
            "gemini",
            "qwen",
            "cursors",
            "gooseberry",
            "crusher",
            "opencoder",
            "pi",
            "kimi",
            "hermes",
            "mcp",
            "fastmcp",
            "rmcp",
            "curl/8.1",
            "Mozilla/5.0 (X11; Linux x86_64)",
            "ChatGPT",
        ] {
            assert_eq!(profile(name), None, "{name}");
        }
        assert_eq!(profile(&"cline".repeat(10_000)), None);
    }

    #[test]
    fn the_sizes_are_those_that_were_found() {
        let of = |id: &str, unit: Unit| {
            let found = profiles().iter().find(|profile| profile.id == id).unwrap();
            found.gates.of(unit)
        };
        use Unit::{Bytes, Characters, Lines, Tokens};
        let table = [
            ("claude-code", Characters, 50_000),
            ("claude-code", Tokens, 20_000),
            ("claude-desktop", Characters, 1_048_576),
            ("codex", Bytes, 10_000),
            ("codex", Lines, 256),
            ("vscode", Bytes, 8_192),
            ("copilot-cli", Bytes, 20_000),
            ("gemini-cli", Characters, 40_000),
            ("qwen-code", Characters, 25_000),
            ("qwen-code", Lines, 1_000),
            ("cline", Characters, 8_000),
            ("opencode", Bytes, 51_200),
            ("opencode", Lines, 2_000),
            ("goose", Characters, 200_000),
            ("crush", Bytes, 131_072),
            ("kimi", Characters, 100_000),
            ("pi", Bytes, 50_000),
            ("pi", Lines, 2_000),
            ("holmesgpt", Tokens, 20_000),
            ("hermes", Characters, 100_000),
            ("late-cli", Characters, 32_768),
            ("mcpproxy", Characters, 20_000),
        ];
        for (id, unit, size) in table {
            assert_eq!(of(id, unit), Some(size), "{id}, {unit:?}");
        }
        let gates = profiles()
            .iter()
            .flat_map(|profile| Unit::ALL.map(|unit| profile.gates.of(unit)));
        assert_eq!(gates.flatten().count(), table.len());
        let budgets: HashSet<(&str, Option<u64>)> = profiles()
            .iter()
            .map(|profile| (profile.id.as_str(), profile.budget_tokens))
            .collect();
        for id in ["claude-code", "claude-desktop", "codex"] {
            assert!(budgets.contains(&(id, Some(9_500))), "{id}");
        }
        let others = budgets.iter().filter(|(_, budget)| *budget == Some(8_000));
        assert_eq!(others.count(), profiles().len() - 3);
    }

    #[test]
    fn a_refusal_is_below_every_gate() {
        for profile in profiles() {
            // A refusal is one line, and a token or a character has a byte at least.
            for unit in [Unit::Bytes, Unit::Characters, Unit::Tokens] {
                let gate = profile.gates.of(unit);
                assert!(
                    gate.is_none_or(|gate| gate >= MAX_REFUSAL_BYTES as u64),
                    "{}: {unit:?}",
                    profile.id
                );
            }
            assert!(profile.gates.of(Unit::Lines).is_none_or(|lines| lines > 1));
            assert!(
                profile
                    .error_characters
                    .is_none_or(|characters| characters >= MAX_REFUSAL_BYTES as u64)
            );
        }
        let known = profiles()
            .iter()
            .find_map(|profile| profile.error_characters);
        assert_eq!(known, Some(11_000));
    }

    #[test]
    fn every_entry_says_who_knows_it() {
        let mut ids = HashSet::new();
        for profile in profiles() {
            assert!(ids.insert(&profile.id), "`{}` is there twice", profile.id);
            assert!(
                ["docs", "issue", "note"].contains(&profile.source.as_str()),
                "{}",
                profile.id
            );
            if let Some((year, month)) = profile
                .date
                .as_ref()
                .map(|date| date.split_once('-').unwrap())
            {
                assert!(year.parse::<u32>().unwrap() >= 2025);
                assert!((1..=12).contains(&month.parse::<u32>().unwrap()));
            }
            assert!(!profile.note.is_empty());
        }
        let dated = profiles().iter().filter(|profile| profile.date.is_some());
        assert_eq!(dated.count(), 10);
    }
}
