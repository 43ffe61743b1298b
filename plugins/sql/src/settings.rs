//! What the operator wrote: the config values of the plugin, read and checked.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The host's arguments, which no parameter may take the place of.
const TAKEN: [&str; 7] = [
    "limit",
    "after",
    "detail",
    "fields",
    "horizon",
    "format",
    "max_tokens",
];
/// Bytes of a name behind `list_`: tools have names of at most 64.
const NAME_BYTES: usize = 56;

/// All of it.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The granted connection.
    pub(crate) connection: String,
    /// Which tables and views are collections.
    pub(crate) tables: Vec<Pattern>,
    /// Saved queries, by name.
    pub(crate) queries: BTreeMap<String, Query>,
    /// Whether callers may write statements themselves.
    pub(crate) run_query: bool,
}

/// Names of tables, with `*` for any text.
#[derive(Debug, PartialEq)]
pub(crate) struct Pattern {
    /// None: the schema that the database looks into first.
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
    /// Columns that identify a row, where the database does not know any.
    pub(crate) key: Vec<String>,
}

/// A saved query.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    pub(crate) description: String,
    pub(crate) sql: String,
    /// Columns that identify a row, with commas between them.
    #[serde(default)]
    key: String,
    #[serde(default)]
    pub(crate) parameters: Vec<Parameter>,
}

/// An argument of a saved query: the first is `$1`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) r#type: Type,
    pub(crate) description: String,
    /// One that is not given is null.
    #[serde(default = "yes")]
    pub(crate) required: bool,
}

/// What a parameter takes.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Type {
    Text,
    Integer,
    Number,
    Boolean,
}

fn yes() -> bool {
    true
}

impl Settings {
    /// Reads the values; `value` looks one up, `file` reads one that is in a granted folder.
    pub(crate) fn read(
        value: impl Fn(&str) -> Option<String>,
        file: impl Fn(&str) -> Result<String, String>,
    ) -> Result<Self, String> {
        let connection = value("connection").ok_or(
            "the value `connection` is missing: expected the name of a granted connection, as in config = { connection = \
             \"NAME\", tables = \"*\" }",
        )?;
        let tables = patterns(&value("tables").unwrap_or_default())?;
        let mut text = value("queries").unwrap_or_default();
        if text.starts_with('/') {
            text = file(&text).map_err(|error| format!("queries: reading `{text}`: {error}"))?;
        }
        let queries: BTreeMap<String, Query> =
            toml::from_str(&text).map_err(|error| format!("queries: {}", error.message()))?;
        for (name, query) in &queries {
            check(name, query).map_err(|error| format!("queries: `{name}`: {error}"))?;
        }
        let run_query = match value("run_query").as_deref() {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(format!(
                    "run_query: expected `true` or `false`, found `{other}`"
                ));
            }
        };
        if tables.is_empty() && queries.is_empty() && !run_query {
            return Err(String::from(
                "nothing is to be shown: expected at least one of the values `tables`, `queries` and `run_query`, such as \
                 tables = \"*\"",
            ));
        }
        Ok(Self {
            connection,
            tables,
            queries,
            run_query,
        })
    }
}

fn check(name: &str, query: &Query) -> Result<(), String> {
    if !is_name(name) || name.len() > NAME_BYTES {
        return Err(format!(
            "expected a name of 1 to {NAME_BYTES} lower-case letters, digits and `_`"
        ));
    }
    for (index, parameter) in query.parameters.iter().enumerate() {
        let name = &parameter.name;
        if !is_name(name) {
            return Err(format!(
                "expected a parameter's name of lower-case letters, digits and `_`, found `{name}`"
            ));
        }
        if TAKEN.contains(&name.as_str()) {
            return Err(format!(
                "a parameter is called `{name}`, which is an argument of the host; rename it"
            ));
        }
        if query.parameters[..index]
            .iter()
            .any(|other| other.name == *name)
        {
            return Err(format!("two parameters are called `{name}`"));
        }
    }
    Ok(())
}

pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

impl Query {
    /// Columns that identify a row.
    pub(crate) fn key(&self) -> Vec<String> {
        names(&self.key)
    }
}

fn names(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Reads patterns with commas or line breaks between them.
fn patterns(text: &str) -> Result<Vec<Pattern>, String> {
    let mut patterns = Vec::new();
    let mut rest = text.trim_start_matches(is_between);
    while !rest.is_empty() {
        let end = rest
            .find(|letter| letter == '(' || is_between(letter))
            .unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let (key, behind) = match behind.strip_prefix('(') {
            None => ("", behind),
            Some(inner) => inner
                .split_once(')')
                .ok_or_else(|| format!("tables: `{name}(` has no closing bracket"))?,
        };
        let (schema, name) = match name.rsplit_once('.') {
            Some((schema, name)) => (Some(schema.to_owned()), name),
            None => (None, name),
        };
        if name.is_empty() || schema.as_deref() == Some("") {
            return Err(String::from(
                "tables: expected names such as `orders`, `sales.orders`, `sales.*` or `recent_orders(id)`",
            ));
        }
        patterns.push(Pattern {
            schema,
            name: name.to_owned(),
            key: names(key),
        });
        rest = behind.trim_start_matches(is_between);
    }
    Ok(patterns)
}

fn is_between(letter: char) -> bool {
    letter == ',' || letter.is_whitespace()
}

impl Pattern {
    /// Whether it names this table.
    pub(crate) fn names(&self, schema: &str, name: &str, default_schema: &str) -> bool {
        let wanted = self.schema.as_deref().unwrap_or(default_schema);
        fits(wanted, schema) && fits(&self.name, name)
    }
}

/// Whether a text fits a pattern in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == text;
    };
    text.strip_prefix(head).is_some_and(|rest| {
        (0..=rest.len())
            .filter(|at| rest.is_char_boundary(*at))
            .any(|at| fits(tail, &rest[at..]))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Settings, String> {
        let value = |name: &str| {
            let found = values.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(value, |path| Err(format!("no {path}")))
    }

    #[test]
    fn tables_are_named_by_schema_pattern_and_key() {
        let settings = read(&[
            ("connection", "shop"),
            ("tables", "orders, sales.*\nold.report(day, shop),"),
        ])
        .unwrap();
        let pattern = |schema: Option<&str>, name: &str, key: &[&str]| Pattern {
            schema: schema.map(str::to_owned),
            name: name.to_owned(),
            key: key.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            settings.tables,
            [
                pattern(None, "orders", &[]),
                pattern(Some("sales"), "*", &[]),
                pattern(Some("old"), "report", &["day", "shop"]),
            ]
        );
        assert!(settings.tables[0].names("public", "orders", "public"));
        assert!(!settings.tables[0].names("sales", "orders", "public"));
        assert!(settings.tables[1].names("sales", "anything", "public"));
        assert!(fits("a*b*", "axxbé") && !fits("a*b", "axc"));
    }

    #[test]
    fn what_is_wrong_says_what_was_expected() {
        let table = [
            (
                vec![],
                "the value `connection` is missing: expected the name of a granted connection, as in config = { connection = \
                 \"NAME\", tables = \"*\" }",
            ),
            (
                vec![("connection", "a")],
                "nothing is to be shown: expected at least one of the values `tables`, `queries` and `run_query`, such as \
                 tables = \"*\"",
            ),
            (
                vec![("connection", "a"), ("run_query", "yes")],
                "run_query: expected `true` or `false`, found `yes`",
            ),
            (
                vec![("connection", "a"), ("tables", "x(id")],
                "tables: `x(` has no closing bracket",
            ),
            (
                vec![("connection", "a"), ("tables", ".x")],
                "tables: expected names such as `orders`, `sales.orders`, `sales.*` or `recent_orders(id)`",
            ),
            (
                vec![("connection", "a"), ("queries", "/q.toml")],
                "queries: reading `/q.toml`: no /q.toml",
            ),
            (
                vec![
                    ("connection", "a"),
                    (
                        "queries",
                        "[q]\ndescription = \"d\"\nsql = \"s\"\nparameters = [{ name = \"limit\", type = \"integer\", description = \"d\" }]",
                    ),
                ],
                "queries: `q`: a parameter is called `limit`, which is an argument of the host; rename it",
            ),
            (
                vec![
                    ("connection", "a"),
                    ("queries", "[Q]\ndescription = \"d\"\nsql = \"s\""),
                ],
                "queries: `Q`: expected a name of 1 to 56 lower-case letters, digits and `_`",
            ),
        ];
        for (values, expected) in table {
            assert_eq!(read(&values).unwrap_err(), expected);
        }
    }
}
