//! Something that rows can be selected from, a table, a view or a saved query, and the statements that do it.
//!
//! Names are quoted, values are parameters. A page begins behind a key and not behind a number of rows, so that the last
//! page costs what the first one does.

use serde_json::value::RawValue;

use crate::bindings::plimsoll::plugin::sql::{Column, Dialect, Kind};

/// The field that identifies the rows of a key of several columns: their values as the text of a JSON array.
pub(crate) const JOINED_KEY: &str = "_key";

/// Where rows come from.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) dialect: Dialect,
    /// What stands behind FROM.
    pub(crate) from: String,
    pub(crate) columns: Vec<Column>,
    /// Columns that identify a row. Empty: none do.
    pub(crate) key: Vec<Column>,
}

/// What is asked of it.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) limit: Option<u32>,
    /// JSON text of the key behind which to start.
    pub(crate) after: Option<String>,
    /// Columns and the JSON texts of the values that they may have.
    pub(crate) conditions: Vec<(String, Vec<String>)>,
    /// Paths of fields. Empty: all.
    pub(crate) fields: Vec<String>,
}

/// A statement and its parameters, which are JSON texts.
#[derive(Debug, PartialEq)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) parameters: Vec<String>,
}

impl Relation {
    /// A relation whose rows are identified by these columns, where they can be.
    pub(crate) fn new(
        dialect: Dialect,
        from: String,
        columns: Vec<Column>,
        key: &[String],
    ) -> Self {
        let found: Vec<Column> = key
            .iter()
            .filter_map(|name| columns.iter().find(|column| column.name == *name))
            .cloned()
            .collect();
        // A path splits at dots, and a joined key needs its name for itself.
        let is_taken = found.len() > 1 && columns.iter().any(|column| column.name == JOINED_KEY);
        let is_usable = found.len() == key.len()
            && !is_taken
            && found
                .iter()
                .all(|column| column.kind != Kind::Bytes && !column.name.contains('.'));
        Self {
            dialect,
            from,
            key: if is_usable { found } else { Vec::new() },
            columns,
        }
    }

    /// The field that identifies a row.
    pub(crate) fn key_field(&self) -> Option<&str> {
        match &self.key[..] {
            [] => None,
            [column] => Some(&column.name),
            _ => Some(JOINED_KEY),
        }
    }

    /// The statement that selects what is wanted. `parameters` are those that `from` has already. All of it is applied but
    /// a limit where no key says which rows come first.
    pub(crate) fn list(
        &self,
        wanted: &Wanted,
        parameters: Vec<String>,
    ) -> Result<Statement, String> {
        let mut statement = Statement {
            text: String::new(),
            parameters,
        };
        let mut conditions = Vec::new();
        if let Some(after) = &wanted.after {
            let values = self.key_values(after)?;
            let (names, values) = self.key_pair(&values, &mut statement);
            conditions.push(format!("{names} > {values}"));
        }
        for (name, values) in &wanted.conditions {
            let column = self
                .columns
                .iter()
                .find(|column| column.name == *name)
                .ok_or_else(|| format!("there is no column `{name}` any more"))?;
            conditions.push(self.condition(column, values, &mut statement));
        }
        let mut text = format!(
            "SELECT {} FROM {}",
            self.selected(&wanted.fields),
            self.from
        );
        if !conditions.is_empty() {
            text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
        }
        if !self.key.is_empty() {
            let names: Vec<String> = self.key.iter().map(|column| quoted(&column.name)).collect();
            text.push_str(&format!(" ORDER BY {}", names.join(", ")));
            if let Some(limit) = wanted.limit {
                text.push_str(&format!(" LIMIT {limit}"));
            }
        }
        statement.text = text;
        Ok(statement)
    }

    /// The statement that selects one row.
    pub(crate) fn get(&self, key: &str) -> Result<Statement, String> {
        let mut statement = Statement {
            text: String::new(),
            parameters: Vec::new(),
        };
        let values = self.key_values(key)?;
        let (names, values) = self.key_pair(&values, &mut statement);
        statement.text = format!(
            "SELECT {} FROM {} WHERE {names} = {values}",
            self.selected(&[]),
            self.from
        );
        Ok(statement)
    }

    /// The values of the key's columns, from the JSON text of the field that identifies a row.
    fn key_values(&self, key: &str) -> Result<Vec<String>, String> {
        if self.key.len() == 1 {
            return Ok(vec![key.to_owned()]);
        }
        let text: String = serde_json::from_str(key).unwrap_or_default();
        let values: Vec<&RawValue> = serde_json::from_str(&text).unwrap_or_default();
        if self.key.is_empty() || values.len() != self.key.len() {
            return Err(format!(
                "expected a key as `{JOINED_KEY}` of a row has it, the JSON text of an array of {} values, found {key}",
                self.key.len()
            ));
        }
        Ok(values.iter().map(|value| value.get().to_owned()).collect())
    }

    /// The key's columns and their values, as both sides of a comparison.
    fn key_pair(&self, values: &[String], statement: &mut Statement) -> (String, String) {
        let names: Vec<String> = self.key.iter().map(|column| quoted(&column.name)).collect();
        let values: Vec<String> = self
            .key
            .iter()
            .zip(values)
            .map(|(column, value)| {
                let place = statement.bind(value);
                self.typed(column, place)
            })
            .collect();
        match &names[..] {
            [name] => (name.clone(), values.concat()),
            _ => (
                format!("({})", names.join(", ")),
                format!("({})", values.join(", ")),
            ),
        }
    }

    /// A parameter as a value of a column's type.
    fn typed(&self, column: &Column, place: usize) -> String {
        match self.dialect {
            Dialect::Postgresql if column.type_name.is_empty() => format!("${place}"),
            Dialect::Postgresql => format!("${place}::text::{}", column.type_name),
            Dialect::Sqlite => format!("${place}"),
        }
    }

    /// The condition that a column has one of these values. The host compares text by its content, and so does this, also
    /// where the database would not: letters of another case, or another spelling of a date.
    fn condition(&self, column: &Column, values: &[String], statement: &mut Statement) -> String {
        let places: Vec<usize> = values.iter().map(|value| statement.bind(value)).collect();
        let name = quoted(&column.name);
        let list = |value: &dyn Fn(usize) -> String| {
            let values: Vec<String> = places.iter().map(|place| value(*place)).collect();
            values.join(", ")
        };
        let typed = format!("{name} IN ({})", list(&|place| self.typed(column, place)));
        if !matches!(column.kind, Kind::Text | Kind::Time) {
            return typed;
        }
        match self.dialect {
            Dialect::Postgresql => {
                let texts = list(&|place| format!("${place}::text"));
                format!("{typed} AND to_json({name}) #>> '{{}}' IN ({texts})")
            }
            Dialect::Sqlite => {
                let texts = list(&|place| format!("${place}"));
                format!("{typed} AND {name} COLLATE BINARY IN ({texts})")
            }
        }
    }

    /// What stands behind SELECT: every column, or those that the fields are in. A field that is in none of them is an error
    /// that the host explains, with the names of all.
    fn selected(&self, fields: &[String]) -> String {
        let column_of = |field: &String| {
            let head = field.split('.').next().unwrap_or_default();
            let named = |name: &str| self.columns.iter().position(|column| column.name == name);
            named(field).or_else(|| named(head))
        };
        let is_joined = |field: &String| self.key.len() > 1 && field == JOINED_KEY;
        let picked: Option<Vec<usize>> = fields
            .iter()
            .filter(|field| !is_joined(field))
            .map(column_of)
            .collect();
        let is_wanted = |index: usize| {
            fields.is_empty() || picked.as_ref().is_none_or(|picked| picked.contains(&index))
        };
        let mut names: Vec<String> = self
            .columns
            .iter()
            .enumerate()
            .filter(|(index, _)| is_wanted(*index))
            .map(|(_, column)| quoted(&column.name))
            .collect();
        if self.key.len() > 1 {
            let key: Vec<String> = self.key.iter().map(|column| quoted(&column.name)).collect();
            let key = key.join(", ");
            let joined = match self.dialect {
                Dialect::Postgresql => format!("json_build_array({key})::text"),
                Dialect::Sqlite => format!("json_array({key})"),
            };
            names.push(format!("{joined} AS {}", quoted(JOINED_KEY)));
        }
        names.join(", ")
    }
}

impl Statement {
    /// Adds a parameter; its place, which counts from 1.
    fn bind(&mut self, value: &str) -> usize {
        self.parameters.push(value.to_owned());
        self.parameters.len()
    }
}

/// A name as both databases take it, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn relation(dialect: Dialect, key: &[&str]) -> Relation {
        let column = |(name, type_name, kind): (&str, &str, Kind)| Column {
            name: name.to_owned(),
            type_name: type_name.to_owned(),
            kind,
            description: None,
        };
        let columns = [
            ("id", "bigint", Kind::Integer),
            ("day", "date", Kind::Time),
            ("a\"b", "text", Kind::Text),
            ("data", "jsonb", Kind::Other),
        ];
        let key: Vec<String> = key.iter().map(|name| (*name).to_owned()).collect();
        Relation::new(
            dialect,
            "\"t\"".to_owned(),
            columns.into_iter().map(column).collect(),
            &key,
        )
    }

    fn wanted() -> Wanted {
        Wanted {
            limit: Some(26),
            after: Some("7".to_owned()),
            conditions: vec![("a\"b".to_owned(), vec!["\"' OR 1=1 --\"".to_owned()])],
            fields: vec!["data.x".to_owned(), "id".to_owned()],
        }
    }

    #[test]
    fn names_are_quoted_and_values_are_parameters() {
        let statement = relation(Dialect::Postgresql, &["id"])
            .list(&wanted(), Vec::new())
            .unwrap();
        assert_eq!(
            statement.text,
            r#"SELECT "id", "data" FROM "t" WHERE "id" > $1::text::bigint AND "a""b" IN ($2::text::text) AND to_json("a""b") #>> '{}' IN ($2::text) ORDER BY "id" LIMIT 26"#
        );
        assert_eq!(statement.parameters, ["7", "\"' OR 1=1 --\""]);
        let statement = relation(Dialect::Sqlite, &["id"])
            .list(&wanted(), vec!["1".to_owned()])
            .unwrap();
        assert_eq!(
            statement.text,
            r#"SELECT "id", "data" FROM "t" WHERE "id" > $2 AND "a""b" IN ($3) AND "a""b" COLLATE BINARY IN ($3) ORDER BY "id" LIMIT 26"#
        );
    }

    #[test]
    fn a_key_of_two_columns_is_one_field() {
        let relation = relation(Dialect::Postgresql, &["day", "id"]);
        assert_eq!(relation.key_field(), Some("_key"));
        let key = r#""[\"2026-01-01\", 7]""#;
        let statement = relation.get(key).unwrap();
        assert_eq!(
            statement.text,
            r#"SELECT "id", "day", "a""b", "data", json_build_array("day", "id")::text AS "_key" FROM "t" WHERE ("day", "id") = ($1::text::date, $2::text::bigint)"#
        );
        assert_eq!(statement.parameters, ["\"2026-01-01\"", "7"]);
        assert_eq!(
            relation.get("7").unwrap_err(),
            "expected a key as `_key` of a row has it, the JSON text of an array of 2 values, found 7"
        );
    }

    #[test]
    fn rows_without_a_key_are_not_limited_and_unknown_fields_are_left_to_the_host() {
        let wanted = Wanted {
            limit: Some(26),
            fields: vec!["nothing".to_owned()],
            ..Wanted::default()
        };
        let statement = relation(Dialect::Postgresql, &["nothing"])
            .list(&wanted, Vec::new())
            .unwrap();
        assert_eq!(
            statement.text,
            r#"SELECT "id", "day", "a""b", "data" FROM "t""#
        );
    }
}
