//! Tables, views and saved queries of a database, and statements that callers write where the operator lets them.
//!
//! `settings` says what the operator wants to be seen, `relation` makes the statements, and `declaration` puts tables and
//! queries in the contract's words. Tables and views are collections. A saved query has arguments that are no conditions on
//! its rows, so it is a tool, as is `run_query`.
//!
//! No row comes by here: the host hands them from the database to the reply.

mod bindings;
mod declaration;
mod relation;
mod settings;

use std::collections::BTreeMap;

use bindings::exports::plimsoll::plugin::backend::{self, Collection, Selection};
use bindings::exports::plimsoll::plugin::tools::{self, Tool};
use bindings::plimsoll::plugin::shaping::PushDown;
use bindings::plimsoll::plugin::sql::{self, Database, Dialect, Table};
use bindings::plimsoll::plugin::types::Fault;
use bindings::plimsoll::plugin::{log, reply};
use bindings::wasi::config::store;
use relation::{Relation, Statement, Wanted, quoted};
use serde_json::value::RawValue;
use settings::{Pattern, Query, Settings};

/// Bytes of a collection's name, behind which `list_` makes the longest name that a tool may have.
const NAME_BYTES: usize = 56;

struct Sql;

/// The settings, and what the connection is.
struct Shown {
    settings: Settings,
    database: Database,
}

impl Shown {
    fn read() -> Result<Self, Fault> {
        let value = |key: &str| store::get(key).ok().flatten();
        let file = |path: &str| std::fs::read_to_string(path).map_err(|error| error.to_string());
        let settings = Settings::read(value, file).map_err(Fault::InvalidInput)?;
        let database = sql::describe(&settings.connection)?;
        Ok(Self { settings, database })
    }

    /// The tables that the operator named, with the patterns that name them and the names of their collections.
    fn tables(&self) -> Result<Vec<(String, &Pattern, Table)>, Fault> {
        let default_schema = match self.database.dialect {
            Dialect::Postgresql => "public",
            Dialect::Sqlite => "main",
        };
        let mut shown: Vec<(String, &Pattern, Table)> = Vec::new();
        if self.settings.tables.is_empty() {
            return Ok(shown);
        }
        for table in sql::tables(&self.settings.connection)? {
            let names =
                |pattern: &&Pattern| pattern.names(&table.schema, &table.name, default_schema);
            let Some(pattern) = self.settings.tables.iter().find(names) else {
                continue;
            };
            let mut name = snake(&table.name);
            if table.schema != default_schema {
                name = format!("{}_{name}", snake(&table.schema));
            }
            let is_taken = shown.iter().any(|(other, _, _)| *other == name);
            if is_taken || name.len() > NAME_BYTES {
                let why = if is_taken {
                    "another collection has this name"
                } else {
                    "the name is too long for a tool"
                };
                log::write(
                    log::Level::Warn,
                    &format!(
                        "`{}.{}` is left out: `{name}`: {why}",
                        table.schema, table.name
                    ),
                );
                continue;
            }
            shown.push((name, pattern, table));
        }
        Ok(shown)
    }

    fn relation(&self, pattern: &Pattern, table: &Table) -> Relation {
        let key = if pattern.key.is_empty() {
            &table.key
        } else {
            &pattern.key
        };
        let from = format!("{}.{}", quoted(&table.schema), quoted(&table.name));
        Relation::new(self.database.dialect, from, table.columns.clone(), key)
    }

    fn collection(&self, collection: &str) -> Result<Relation, Fault> {
        self.tables()?
            .iter()
            .find(|(name, _, _)| name == collection)
            .map(|(_, pattern, table)| self.relation(pattern, table))
            .ok_or_else(|| {
                Fault::NotFound(format!("there is no collection `{collection}` any more"))
            })
    }

    fn query(&self, query: &Query) -> Result<Relation, Fault> {
        let text = query.sql.trim_end();
        let text = text.strip_suffix(';').unwrap_or(text);
        let columns = sql::columns(&self.settings.connection, text)?;
        Ok(Relation::new(
            self.database.dialect,
            format!("(\n{text}\n) AS plimsoll_query"),
            columns,
            &query.key(),
        ))
    }

    fn rows(&self, statement: &Statement) -> Result<sql::Outcome, Fault> {
        sql::rows(
            &self.settings.connection,
            &statement.text,
            &statement.parameters,
        )
    }
}

impl backend::Guest for Sql {
    fn list_collections() -> Result<Vec<Collection>, Fault> {
        let shown = Shown::read()?;
        let tables = shown.tables()?;
        let names = |pattern: &Pattern| {
            let of = |(_, named, _): &(String, &Pattern, Table)| std::ptr::eq(*named, pattern);
            tables.iter().any(of)
        };
        // What an operator names and does not get is an error, and not a tool that is silently missing.
        if let Some(unknown) = shown.settings.tables.iter().find(|pattern| !names(pattern)) {
            let schema = unknown
                .schema
                .as_ref()
                .map_or(String::new(), |schema| format!("{schema}."));
            return Err(Fault::InvalidInput(format!(
                "tables: nothing that the connection `{}` may read and that no other entry names is called `{schema}{}`",
                shown.settings.connection, unknown.name
            )));
        }
        let declare = |(name, pattern, table): (String, &Pattern, Table)| {
            let relation = shown.relation(pattern, &table);
            if relation.key.is_empty() {
                log::write(
                    log::Level::Warn,
                    &format!(
                        "`{}.{}` has no key, so that every page reads all of it; name one as in `{}(id)`",
                        table.schema, table.name, table.name
                    ),
                );
            }
            declaration::collection(name, &table, &relation)
        };
        Ok(tables.into_iter().map(declare).collect())
    }

    fn query(collection: String, selection: Selection) -> Result<(), Fault> {
        let shown = Shown::read()?;
        let relation = shown.collection(&collection)?;
        let mut applied = PushDown::empty();
        if selection.after.is_some() {
            applied |= PushDown::AFTER;
        }
        if selection.limit.is_some() && !relation.key.is_empty() {
            applied |= PushDown::LIMIT;
        }
        let conditions = selection
            .conditions
            .into_iter()
            .map(|condition| (condition.field, condition.values));
        let wanted = Wanted {
            limit: selection.limit,
            after: selection.after,
            conditions: conditions.collect(),
            fields: selection.fields,
        };
        if !wanted.conditions.is_empty() {
            applied |= PushDown::FILTERS;
        }
        let statement = relation
            .list(&wanted, Vec::new())
            .map_err(Fault::InvalidInput)?;
        reply::applied(applied);
        shown.rows(&statement).map(drop)
    }

    fn get(collection: String, key: String) -> Result<(), Fault> {
        let shown = Shown::read()?;
        let relation = shown.collection(&collection)?;
        let statement = relation.get(&key).map_err(Fault::InvalidInput)?;
        let found = sql::row(
            &shown.settings.connection,
            &statement.text,
            &statement.parameters,
        )?;
        match found {
            true => Ok(()),
            false => Err(Fault::NotFound(format!(
                "no row of `{collection}` has the {} {key}",
                relation.key_field().unwrap_or("key")
            ))),
        }
    }
}

/// The arguments of a call, each as it was written.
type Arguments<'a> = BTreeMap<String, &'a RawValue>;

impl tools::Guest for Sql {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        let shown = Shown::read()?;
        let mut tools = Vec::new();
        for (name, query) in &shown.settings.queries {
            let relation = shown.query(query).map_err(|fault| of_query(name, fault))?;
            if relation.key.len() != query.key().len() {
                return Err(Fault::InvalidInput(format!(
                    "queries: `{name}`: its key must be columns of its rows that hold no bytes, found {}",
                    query.key().join(", ")
                )));
            }
            tools.push(declaration::query(name, query, &relation));
        }
        if shown.settings.run_query {
            let tables = shown.tables()?;
            let tables: Vec<&Table> = tables.iter().map(|(_, _, table)| table).collect();
            tools.push(declaration::run_query(shown.database, &tables));
        }
        Ok(tools)
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let shown = Shown::read()?;
        let invalid = |error: serde_json::Error| Fault::InvalidInput(error.to_string());
        let arguments: Arguments = serde_json::from_str(&arguments).map_err(invalid)?;
        let argument = |name: &str| arguments.get(name).map(|value| value.get());
        if name == "run_query" && shown.settings.run_query {
            let text: String =
                serde_json::from_str(argument("sql").unwrap_or("\"\"")).map_err(invalid)?;
            let outcome = shown.rows(&Statement {
                text,
                parameters: Vec::new(),
            })?;
            if outcome.rows == 0 && outcome.changed > 0 {
                reply::document(format!("{{\"changed\":{}}}", outcome.changed).as_bytes());
            }
            return Ok(());
        }
        let saved = name
            .strip_prefix("list_")
            .and_then(|name| shown.settings.queries.get(name));
        let Some(query) = saved else {
            return Err(Fault::NotFound(format!(
                "there is no tool `{name}` any more"
            )));
        };
        let relation = shown.query(query)?;
        let wanted = Wanted {
            limit: argument("limit").and_then(|limit| limit.parse().ok()),
            after: argument("after").map(str::to_owned),
            conditions: Vec::new(),
            fields: argument("fields")
                .map_or(Ok(Vec::new()), serde_json::from_str)
                .map_err(invalid)?,
        };
        let parameters = query
            .parameters
            .iter()
            .map(|parameter| argument(&parameter.name).unwrap_or("null").to_owned());
        let statement = relation
            .list(&wanted, parameters.collect())
            .map_err(Fault::InvalidInput)?;
        shown.rows(&statement).map(drop)
    }
}

/// What is wrong with a saved query, with its name.
fn of_query(name: &str, fault: Fault) -> Fault {
    match fault {
        Fault::InvalidInput(message) => {
            Fault::InvalidInput(format!("queries: `{name}`: {message}"))
        }
        other => other,
    }
}

/// A name in lower-case letters, digits and `_`.
fn snake(name: &str) -> String {
    name.chars()
        .map(|letter| match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => letter,
            _ => '_',
        })
        .collect()
}
