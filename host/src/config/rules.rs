//! What an operator decides for tools: by name, by glob, or by tag.
//!
//! Owns: which rules apply to a tool, and which of them decides over each setting. A rule is a table of `[tools]`, for every
//! plugin, or of `[plugins.NAME.tools]`, for one. [`Rules::for_tool`] is the only place where they come together.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, anyhow, bail};
use glob::Pattern;

use super::file::ToolFile;
use super::settings::check_tool;
use crate::contract::Annotations;
use crate::shape::CellPolicy;

/// What a rule by tag begins with. No tool has a name with a colon.
const TAG: &str = "tag:";

/// Which tools a rule is for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Selector {
    Name(String),
    /// A pattern with `*`, `?` or `[…]`, and how many of its characters stand for themselves.
    Glob(Pattern, usize),
    Tag(String),
}

impl Selector {
    fn read(text: &str) -> anyhow::Result<Self> {
        if let Some(tag) = text.strip_prefix(TAG) {
            if tag.is_empty() {
                bail!("expected a tag behind `{TAG}`");
            }
            return Ok(Self::Tag(tag.to_owned()));
        }
        if !text.contains(['*', '?', '[']) {
            return Ok(Self::Name(text.to_owned()));
        }
        let pattern = Pattern::new(text)
            .map_err(|error| anyhow!("expected a glob such as `list_*`: {error}"))?;
        let literal = text.chars().filter(|c| !"*?[]".contains(*c)).count();
        Ok(Self::Glob(pattern, literal))
    }

    fn matches(&self, name: &str, tags: &BTreeSet<String>) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Glob(pattern, _) => pattern.matches(name),
            Self::Tag(tag) => tags.contains(tag),
        }
    }

    /// Lower is more specific.
    fn rank(&self) -> (u8, usize) {
        match self {
            Self::Name(_) => (0, 0),
            Self::Glob(_, literal) => (1, usize::MAX - literal),
            Self::Tag(_) => (2, 0),
        }
    }
}

/// One table of settings.
#[derive(Debug, Clone)]
struct Rule {
    /// Where it stands in the config file, such as `plugins.shop.tools."list_*"`.
    place: String,
    selector: Selector,
    /// Whether it is of one plugin.
    is_of_plugin: bool,
    settings: ToolFile,
}

/// The rules that one plugin's tools are under, the most specific first.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<Rule>);

/// What is decided for one tool.
#[derive(Debug, Clone, Default)]
pub struct Decided {
    /// Every setting, from the most specific rule that says it. `cells` is not in here.
    pub settings: ToolFile,
    /// What is taken out of its cells, by all rules together: a rule can add to what another masks, never lift it.
    pub cells: CellPolicy,
    /// Which rule decided, by the name of the setting.
    pub by: BTreeMap<&'static str, String>,
}

impl Rules {
    /// The rules for the tools of every plugin.
    pub(super) fn of_host(tools: &BTreeMap<String, ToolFile>) -> anyhow::Result<Self> {
        Self::read(tools, "tools", false)
    }

    /// These and those of one plugin. `place` is where its entry stands in the config file.
    pub(super) fn and_of_plugin(
        &self,
        tools: &BTreeMap<String, ToolFile>,
        place: &str,
    ) -> anyhow::Result<Self> {
        let mut rules = self.clone();
        let own = Self::read(tools, &format!("{place}.tools"), true)?;
        rules.0.extend(own.0);
        rules.sort();
        Ok(rules)
    }

    fn read(
        tools: &BTreeMap<String, ToolFile>,
        place: &str,
        is_of_plugin: bool,
    ) -> anyhow::Result<Self> {
        let mut rules = Vec::with_capacity(tools.len());
        for (text, settings) in tools {
            let place = match is_bare_key(text) {
                true => format!("{place}.{text}"),
                false => format!("{place}.\"{text}\""),
            };
            let context = || format!("`{place}`");
            check_tool(settings).with_context(context)?;
            rules.push(Rule {
                selector: Selector::read(text).with_context(context)?,
                place,
                is_of_plugin,
                settings: settings.clone(),
            });
        }
        let mut rules = Self(rules);
        rules.sort();
        Ok(rules)
    }

    /// A name before a glob before a tag; of two globs the one with more characters of its own; of two that are alike
    /// the plugin's before the host's, and then by their places, so that the order is always the same.
    fn sort(&mut self) {
        self.0.sort_by(|one, other| {
            let key = |rule: &Rule| (rule.selector.rank(), !rule.is_of_plugin);
            key(one)
                .cmp(&key(other))
                .then_with(|| one.place.cmp(&other.place))
        });
    }

    /// What is decided for a tool of that name and these tags: each setting by the most specific rule that has it.
    pub fn for_tool(&self, name: &str, tags: &BTreeSet<String>) -> anyhow::Result<Decided> {
        let mut decided = Decided::default();
        let (mut arguments, mut cells) = (BTreeSet::new(), BTreeSet::new());
        for rule in &self.0 {
            if !rule.selector.matches(name, tags) {
                continue;
            }
            let (settings, by) = (&mut decided.settings, &mut decided.by);
            macro_rules! take {
                ($($field:ident),*) => {$(
                    if settings.$field.is_none() && rule.settings.$field.is_some() {
                        settings.$field.clone_from(&rule.settings.$field);
                        by.insert(stringify!($field), rule.place.clone());
                    }
                )*};
            }
            take!(
                rows,
                key,
                horizon,
                views,
                default_view,
                columns,
                default_limit,
                max_limit,
                cap_bytes,
                deadline_ms,
                result_tokens
            );
            for (argument, name) in &rule.settings.arguments {
                if let Entry::Vacant(entry) = settings.arguments.entry(argument.clone()) {
                    entry.insert(name.clone());
                    arguments.insert(rule.place.as_str());
                }
            }
            if let Some(own) = &rule.settings.cells {
                decided.cells = decided.cells.and(&own.policy()?);
                cells.insert(rule.place.as_str());
            }
        }
        for (setting, places) in [("arguments", arguments), ("cells", cells)] {
            if !places.is_empty() {
                let places = Vec::from_iter(places).join(", ");
                decided.by.insert(setting, places);
            }
        }
        Ok(decided)
    }

    /// The names of single tools that the plugin's own rules speak of, with their places.
    pub(crate) fn names_of_plugin(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|rule| match &rule.selector {
            Selector::Name(name) if rule.is_of_plugin => Some((name.as_str(), rule.place.as_str())),
            _ => None,
        })
    }

    /// The places of the rules for a tool of that name and these tags, the most specific first.
    pub(crate) fn places_for(&self, name: &str, tags: &BTreeSet<String>) -> Vec<&str> {
        self.0
            .iter()
            .filter(|rule| rule.selector.matches(name, tags))
            .map(|rule| rule.place.as_str())
            .collect()
    }

    /// The places of all rules.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|rule| rule.place.as_str())
    }
}

/// The tags by which rules find a tool: its own, and one for each of its annotations, under the names of the contract.
pub fn tags(own: &[String], annotations: Annotations) -> BTreeSet<String> {
    let named = [
        (Annotations::READ_ONLY, "read-only"),
        (Annotations::DESTRUCTIVE, "destructive"),
        (Annotations::IDEMPOTENT, "idempotent"),
        (Annotations::OPEN_WORLD, "open-world"),
    ];
    let named = named
        .into_iter()
        .filter(|(annotation, _)| annotations.contains(*annotation))
        .map(|(_, name)| name.to_owned());
    own.iter().cloned().chain(named).collect()
}

/// Whether a text is a key of TOML as it stands.
fn is_bare_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::config::file::Switch;

    const RULES: &str = r#"
        [tools."*"]
        cap_bytes = 100001
        deadline_ms = 101
        result_tokens = 102
        default_limit = 3
        [tools."tag:money"]
        cap_bytes = 100011
        deadline_ms = 111
        columns = [{ name = "n", field = "tag" }]
        [tools."tag:read-only"]
        cap_bytes = 100012
        max_limit = 12
        [tools."list_*"]
        cap_bytes = 100021
        deadline_ms = 121
        views = { glob = ["a"] }
        arguments = { limit = "size", horizon = false }
        [tools."list_o*"]
        cap_bytes = 100031
        arguments = { limit = "rows" }
        [tools.list_all]
        cap_bytes = 100041
        [plugins.shop.tools."list_*"]
        cap_bytes = 100051
        deadline_ms = 151
        [plugins.shop.tools.list_all]
        default_view = "full"
        [plugins.shop.tools."tag:money"]
        deadline_ms = 161
        [plugins.other]
    "#;

    fn rules(text: &str, plugin: &str) -> Rules {
        let config = Config::parse(text, Path::new("/etc/plimsoll")).unwrap();
        let mut plugins = config.plugins.into_iter();
        plugins.find(|entry| entry.name == plugin).unwrap().rules
    }

    fn tagged(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Each setting comes from the most specific rule that has it, and from no other.
    #[test]
    fn the_most_specific_rule_decides_over_each_setting() {
        /// Setting, value, and the rule that decided.
        type Expected<'a> = &'a [(&'a str, &'a str, &'a str)];
        let table: &[(&str, &str, &[&str], Expected)] = &[
            // A name before a longer glob before a shorter one before a tag; what one does not say, the next one does.
            (
                "other",
                "list_all",
                &["money"],
                &[
                    ("cap_bytes", "100041", "tools.list_all"),
                    ("deadline_ms", "121", "tools.\"list_*\""),
                    ("result_tokens", "102", "tools.\"*\""),
                    ("default_limit", "3", "tools.\"*\""),
                    ("views", "glob", "tools.\"list_*\""),
                    ("columns", "tag", "tools.\"tag:money\""),
                    ("arguments", "horizon limit=size", "tools.\"list_*\""),
                ],
            ),
            // A name of the host before a glob of the plugin; a plugin's glob before the same of the host.
            (
                "shop",
                "list_all",
                &[],
                &[
                    ("cap_bytes", "100041", "tools.list_all"),
                    ("deadline_ms", "151", "plugins.shop.tools.\"list_*\""),
                    ("result_tokens", "102", "tools.\"*\""),
                    ("default_limit", "3", "tools.\"*\""),
                    ("views", "glob", "tools.\"list_*\""),
                    ("default_view", "full", "plugins.shop.tools.list_all"),
                    ("arguments", "horizon limit=size", "tools.\"list_*\""),
                ],
            ),
            // The longer glob decides, even against the plugin's; arguments come one by one.
            (
                "shop",
                "list_orders",
                &[],
                &[
                    ("cap_bytes", "100031", "tools.\"list_o*\""),
                    ("deadline_ms", "151", "plugins.shop.tools.\"list_*\""),
                    ("result_tokens", "102", "tools.\"*\""),
                    ("default_limit", "3", "tools.\"*\""),
                    ("views", "glob", "tools.\"list_*\""),
                    (
                        "arguments",
                        "horizon limit=rows",
                        "tools.\"list_*\", tools.\"list_o*\"",
                    ),
                ],
            ),
            // Even the widest glob is closer to a tool than a tag; of two tags the first in their order decides.
            (
                "other",
                "get_order",
                &["money", "read-only"],
                &[
                    ("cap_bytes", "100001", "tools.\"*\""),
                    ("deadline_ms", "101", "tools.\"*\""),
                    ("result_tokens", "102", "tools.\"*\""),
                    ("default_limit", "3", "tools.\"*\""),
                    ("max_limit", "12", "tools.\"tag:read-only\""),
                    ("columns", "tag", "tools.\"tag:money\""),
                ],
            ),
        ];
        for (plugin, tool, tags, expected) in table {
            let decided = rules(RULES, plugin).for_tool(tool, &tagged(tags)).unwrap();
            let settings = &decided.settings;
            let shown = |setting: &str| match setting {
                "cap_bytes" => settings.cap_bytes.unwrap().to_string(),
                "deadline_ms" => settings.deadline_ms.unwrap().to_string(),
                "result_tokens" => settings.result_tokens.unwrap().to_string(),
                "default_limit" => settings.default_limit.unwrap().to_string(),
                "max_limit" => settings.max_limit.unwrap().to_string(),
                "views" => Vec::from_iter(settings.views.clone().unwrap().into_keys()).join(" "),
                "default_view" => settings.default_view.clone().unwrap(),
                "columns" => settings.columns.clone().unwrap()[0].field.clone(),
                "arguments" => {
                    let shown = settings
                        .arguments
                        .iter()
                        .map(|(name, switch)| match switch {
                            Switch::Is(_) => name.clone(),
                            Switch::Value(value) => format!("{name}={value}"),
                        });
                    Vec::from_iter(shown).join(" ")
                }
                other => panic!("{other}"),
            };
            let found: BTreeMap<&str, (String, &str)> = decided
                .by
                .iter()
                .map(|(setting, place)| (*setting, (shown(setting), place.as_str())))
                .collect();
            let expected: BTreeMap<&str, (String, &str)> = expected
                .iter()
                .map(|(setting, value, place)| (*setting, ((*value).to_owned(), *place)))
                .collect();
            assert_eq!(found, expected, "{tool} of {plugin} with {tags:?}");
        }
    }

    #[test]
    fn where_no_rule_is_for_a_tool_nothing_is_decided() {
        let text = "[tools.\"get_*\"]\ncap_bytes = 9000\n[plugins.shop]\n";
        let decided = rules(text, "shop").for_tool("list_all", &tagged(&["get_all"]));
        let decided = decided.unwrap();
        assert!(decided.by.is_empty(), "{:?}", decided.by);
        assert_eq!(decided.settings.cap_bytes, None);
    }

    #[test]
    fn of_two_tags_alike_the_plugins_own_goes_first_and_then_the_alphabet() {
        let text = "[tools.\"tag:a\"]\ncap_bytes = 9001\n[tools.\"tag:b\"]\ncap_bytes = 9002\ndeadline_ms = 2\n\
                    [plugins.shop.tools.\"tag:c\"]\ndeadline_ms = 3\n";
        let decided = rules(text, "shop")
            .for_tool("x", &tagged(&["a", "b", "c"]))
            .unwrap();
        assert_eq!(
            (decided.settings.cap_bytes, decided.settings.deadline_ms),
            (Some(9001), Some(3))
        );
    }

    /// What hides something is never lifted by a rule that is closer.
    #[test]
    fn rules_take_out_of_cells_what_all_of_them_say_together() {
        let text = "[tools.\"tag:people\"]\ncells = { mask = [\"email\"] }\n[tools.\"*\"]\ncells = { max_cell_chars = 9 }\n\
                    [plugins.shop.tools.list_all]\ncells = { drop = [\"note\"] }\n";
        let decided = rules(text, "shop")
            .for_tool("list_all", &tagged(&["people"]))
            .unwrap();
        let described = decided.cells.describe();
        for part in ["email", "note", "9"] {
            assert!(described.contains(part), "{part}: {described}");
        }
        assert_eq!(
            decided.by["cells"],
            "plugins.shop.tools.list_all, tools.\"*\", tools.\"tag:people\""
        );
    }

    #[test]
    fn annotations_are_tags() {
        let all = Annotations::READ_ONLY
            | Annotations::DESTRUCTIVE
            | Annotations::IDEMPOTENT
            | Annotations::OPEN_WORLD;
        assert_eq!(
            tags(&["own".to_owned()], all),
            tagged(&[
                "own",
                "read-only",
                "destructive",
                "idempotent",
                "open-world"
            ])
        );
        assert!(tags(&[], Annotations::empty()).is_empty());
    }

    #[test]
    fn a_rule_that_cannot_be_read_says_where_and_why() {
        let table = [
            (
                "[tools.\"tag:\"]",
                "`tools.\"tag:\"`: expected a tag behind `tag:`",
            ),
            (
                "[plugins.a.tools.\"x[\"]",
                "`plugins.a.tools.\"x[\"`: expected a glob such as `list_*`: ",
            ),
            (
                "[tools.\"*\"]\ndeadline_ms = 60001",
                "`tools.\"*\"`: `deadline_ms` must be at most 60000, found 60001",
            ),
            (
                "[tools.\"*\"]\ndeadline_ms = 0",
                "`tools.\"*\"`: `deadline_ms` must be at least 1, found 0",
            ),
            (
                "[tools.\"*\"]\ncap_bytes = 7999",
                "`tools.\"*\"`: `cap_bytes` must be at least 8000, since a refusal must pass, found 7999",
            ),
            (
                "[tools.t]\nresult_tokens = 0",
                "`tools.t`: `result_tokens` must be at least 1, found 0; leave it out for no budget",
            ),
        ];
        for (text, expected) in table {
            let error = Config::parse(text, Path::new("/etc/plimsoll")).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
