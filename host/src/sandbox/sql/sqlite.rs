//! Statements against a file of SQLite.
//!
//! SQLite has types of values and not of columns, so each value becomes JSON by what it is. Unless the grant says otherwise
//! the file is opened for reading only. Held to one statement, and to those that work with rows: ATTACH would reach other
//! files, PRAGMA the connection itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::TryStreamExt as _;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Decode, Either, Executor as _, Row as _,
    SqlSafeStr as _, Sqlite, Statement as _, TypeInfo as _, ValueRef as _,
};

use super::grant::ConnectionGrant;
use super::parameter::Parameter;
use super::{ACQUIRE_TIMEOUT, Failure, IDLE_TIMEOUT, Sink, Statement, check_names, refuse};
use crate::contract::sql;

/// Instructions of SQLite's machine after which a statement looks whether it is still wanted: some 0.1 ms.
const LOOK_AFTER: i32 = 10_000;

/// What a statement may begin with.
const READS: [&str; 3] = ["SELECT", "VALUES", "WITH"];
const WRITES: [&str; 4] = ["INSERT", "UPDATE", "DELETE", "REPLACE"];

/// A pool of connections to one file.
pub(super) struct Pool {
    pool: SqlitePool,
    may_write: bool,
}

impl Pool {
    pub(super) fn open(file: &Path, grant: &ConnectionGrant) -> Self {
        let may_write = grant.write;
        let options = SqliteConnectOptions::new()
            .filename(file)
            .read_only(!may_write)
            .create_if_missing(false)
            .busy_timeout(ACQUIRE_TIMEOUT)
            .pragma("query_only", if may_write { "OFF" } else { "ON" })
            // What a file brings along calls nothing that changes anything outside it.
            .pragma("trusted_schema", "OFF")
            .disable_statement_logging();
        let pool = SqlitePoolOptions::new()
            .max_connections(grant.pool)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(IDLE_TIMEOUT)
            .connect_lazy_with(options);
        Self { pool, may_write }
    }

    pub(super) async fn tables(&self) -> Result<Vec<sql::Table>, Failure> {
        let (mut connection, _wanted) = self.begin().await?;
        let names: Vec<(String, String)> = sqlx::query_as(
            "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
             ORDER BY name",
        )
        .fetch_all(&mut *connection)
        .await?;
        let mut tables = Vec::with_capacity(names.len());
        for (name, what) in names {
            let columns: Result<Vec<(String, String, i64)>, _> = sqlx::query_as(
                "SELECT name, type, pk FROM pragma_table_xinfo($1) WHERE hidden <> 1 ORDER BY cid",
            )
            .bind(&name)
            .fetch_all(&mut *connection)
            .await;
            // A view of something that is gone takes nothing else away.
            let Ok(columns) = columns else { continue };
            let mut key: Vec<(i64, String)> = columns
                .iter()
                .filter(|(_, _, place)| *place > 0)
                .map(|(name, _, place)| (*place, name.clone()))
                .collect();
            key.sort();
            let column = |(name, declared, _): (String, String, i64)| sql::Column {
                kind: kind(&declared),
                name,
                type_name: declared,
                description: None,
            };
            tables.push(sql::Table {
                schema: String::from("main"),
                name,
                is_view: what == "view",
                columns: columns.into_iter().map(column).collect(),
                key: key.into_iter().map(|(_, name)| name).collect(),
                estimate: None,
                description: None,
            });
        }
        Ok(tables)
    }

    pub(super) async fn columns(&self, statement: &str) -> Result<Vec<sql::Column>, Failure> {
        check(statement, self.may_write)?;
        let (mut connection, _wanted) = self.begin().await?;
        let text = AssertSqlSafe(statement.to_owned()).into_sql_str();
        let prepared = connection.prepare(text).await?;
        let column = |column: &sqlx::sqlite::SqliteColumn| {
            let declared = column.type_info().name();
            sql::Column {
                name: column.name().to_owned(),
                kind: kind(declared),
                type_name: if declared == "NULL" {
                    String::new()
                } else {
                    declared.to_owned()
                },
                description: None,
            }
        };
        Ok(prepared.columns().iter().map(column).collect())
    }

    pub(super) async fn run(
        &self,
        statement: Statement<'_>,
        sink: Sink<'_>,
    ) -> Result<sql::Outcome, Failure> {
        check(statement.text, self.may_write)?;
        let (mut connection, _wanted) = self.begin().await?;
        let query = sqlx::query(AssertSqlSafe(statement.text.to_owned())).persistent(false);
        let query =
            statement
                .parameters
                .iter()
                .fold(query, |query, parameter| match parameter.clone() {
                    Parameter::Null => query.bind(None::<String>),
                    Parameter::Boolean(value) => query.bind(value),
                    Parameter::Integer(value) => query.bind(value),
                    Parameter::Number(digits) => match digits.parse::<f64>() {
                        Ok(value) => query.bind(value),
                        Err(_) => query.bind(digits),
                    },
                    Parameter::Text(value) => query.bind(value),
                });
        let is_write = WRITES.contains(&first_word(statement.text).as_str());
        let mut outcome = sql::Outcome {
            rows: 0,
            changed: 0,
        };
        let mut names = None;
        let mut line = Vec::new();
        let mut is_wanted = true;
        let mut rows = connection.fetch_many(query);
        while let Some(next) = rows.try_next().await? {
            let row = match next {
                Either::Left(done) => {
                    if is_write && outcome.rows == 0 {
                        outcome.changed = done.rows_affected();
                    }
                    continue;
                }
                Either::Right(row) => row,
            };
            outcome.rows += 1;
            if names.is_none() {
                check_names(row.columns().iter().map(|column| column.name()))?;
                names = Some(keys(&row)?);
            }
            write_row(&row, names.as_deref().unwrap_or_default(), &mut line)?;
            if is_wanted && sink(&line).is_break() {
                if !is_write {
                    break;
                }
                // What it changes is changed whole.
                is_wanted = false;
            }
        }
        Ok(outcome)
    }

    /// A connection whose statement ends when what comes with it is dropped, as everything of a call is at its deadline.
    async fn begin(&self) -> Result<(PoolConnection<Sqlite>, Wanted), Failure> {
        let mut connection = self.pool.acquire().await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let wanted = Wanted(is_over.clone());
        let goes_on = move || !is_over.load(Ordering::Relaxed);
        connection
            .lock_handle()
            .await?
            .set_progress_handler(LOOK_AFTER, goes_on);
        Ok((connection, wanted))
    }
}

/// As long as this lives, a statement is wanted.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a declared type says of values, by the rules of SQLite's affinities.
fn kind(declared: &str) -> sql::Kind {
    let declared = declared.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    if has(&["INT", "BOOL"]) {
        sql::Kind::Integer
    } else if has(&["CHAR", "CLOB", "TEXT"]) {
        sql::Kind::Text
    } else if has(&["DATE", "TIME"]) {
        sql::Kind::Time
    } else if has(&["BLOB"]) {
        sql::Kind::Bytes
    } else if has(&["REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL"]) {
        sql::Kind::Number
    } else {
        sql::Kind::Other
    }
}

/// The names of a row's columns as they stand in JSON, with what stands before and behind them.
fn keys(row: &SqliteRow) -> Result<Vec<String>, Failure> {
    let key = |(index, column): (usize, &sqlx::sqlite::SqliteColumn)| {
        let name = serde_json::to_string(column.name())
            .map_err(|error| sqlx::Error::Encode(error.into()))?;
        let before = if index == 0 { '{' } else { ',' };
        Ok(format!("{before}{name}:"))
    };
    row.columns().iter().enumerate().map(key).collect()
}

fn write_row(row: &SqliteRow, keys: &[String], line: &mut Vec<u8>) -> Result<(), Failure> {
    line.clear();
    for (index, key) in keys.iter().enumerate() {
        line.extend_from_slice(key.as_bytes());
        let value = row.try_get_raw(index)?;
        if value.is_null() {
            line.extend_from_slice(b"null");
            continue;
        }
        let kind = value.type_info().name().to_owned();
        let broken = |error: serde_json::Error| sqlx::Error::Encode(error.into());
        match kind.as_str() {
            "INTEGER" => {
                let value = <i64 as Decode<Sqlite>>::decode(value).map_err(sqlx::Error::Decode)?;
                line.extend_from_slice(value.to_string().as_bytes());
            }
            "REAL" => {
                let value = <f64 as Decode<Sqlite>>::decode(value).map_err(sqlx::Error::Decode)?;
                if value.is_finite() {
                    serde_json::to_writer(&mut *line, &value).map_err(broken)?;
                } else if value > 0.0 {
                    line.extend_from_slice(b"\"Infinity\"");
                } else {
                    line.extend_from_slice(b"\"-Infinity\"");
                }
            }
            "TEXT" => {
                let bytes =
                    <&[u8] as Decode<Sqlite>>::decode(value).map_err(sqlx::Error::Decode)?;
                let text = String::from_utf8_lossy(bytes);
                serde_json::to_writer(&mut *line, text.as_ref()).map_err(broken)?;
            }
            _ => {
                let bytes =
                    <&[u8] as Decode<Sqlite>>::decode(value).map_err(sqlx::Error::Decode)?;
                let text = STANDARD.encode(bytes);
                serde_json::to_writer(&mut *line, &text).map_err(broken)?;
            }
        }
    }
    line.push(b'}');
    Ok(())
}

/// Whether a text is one statement of those that are run.
fn check(text: &str, may_write: bool) -> Result<(), Failure> {
    if has_another(text) {
        return refuse("expected one statement, found a second one behind `;`");
    }
    let word = first_word(text);
    if READS.contains(&word.as_str()) || may_write && WRITES.contains(&word.as_str()) {
        return Ok(());
    }
    let mut expected = READS.join(", ");
    if may_write {
        expected = format!("{expected}, {}", WRITES.join(", "));
    }
    let found = if word.is_empty() {
        String::from("none")
    } else {
        format!("`{word}`")
    };
    let hint = if WRITES.contains(&word.as_str()) {
        "; the connection only reads, and the operator can grant `write = true`"
    } else {
        ""
    };
    refuse(format!(
        "expected a statement that begins with one of {expected}, found {found}{hint}"
    ))
}

/// The first word, in capitals.
fn first_word(text: &str) -> String {
    let Some((at, _)) = tokens(text).next() else {
        return String::new();
    };
    text[at..]
        .chars()
        .take_while(char::is_ascii_alphabetic)
        .collect::<String>()
        .to_ascii_uppercase()
}

/// Whether anything stands behind a `;`.
fn has_another(text: &str) -> bool {
    let mut is_over = false;
    for (_, byte) in tokens(text) {
        match byte {
            b';' => is_over = true,
            _ if is_over => return true,
            _ => {}
        }
    }
    false
}

/// The bytes of a text that are neither blank nor in a comment, with their places; of what is quoted only the opening
/// quote. By the rules of SQLite, whose quotes are doubled to stand for themselves, and whose comments do not nest.
fn tokens(text: &str) -> impl Iterator<Item = (usize, u8)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &bytes[at.min(bytes.len())..];
            let first = *rest.first()?;
            let until = |end: &[u8], skip: usize| {
                let found = memchr::memmem::find(&rest[skip.min(rest.len())..], end);
                found.map_or(rest.len(), |found| skip + found + end.len())
            };
            let place = at;
            match first {
                _ if first.is_ascii_whitespace() || first == 0x0b => at += 1,
                b'-' if rest.starts_with(b"--") => at += until(b"\n", 2),
                b'/' if rest.starts_with(b"/*") => at += until(b"*/", 2),
                b'\'' | b'"' | b'`' => {
                    at += until(&[first], 1);
                    return Some((place, first));
                }
                b'[' => {
                    at += until(b"]", 1);
                    return Some((place, first));
                }
                _ => {
                    at += 1;
                    return Some((place, first));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str, may_write: bool) -> Option<String> {
        match check(text, may_write) {
            Ok(()) => None,
            Err(Failure::Fault(crate::contract::Fault::InvalidInput(message))) => Some(message),
            Err(_) => panic!("another failure"),
        }
    }

    #[test]
    fn one_statement_that_works_with_rows_is_run() {
        for text in [
            "SELECT 1",
            " /* ; */ select ';' ; -- ; x",
            "with a as (select \";\") select * from a;",
            "VALUES ('it''s; fine')",
            "select [a;b] from t",
        ] {
            assert_eq!(refusal(text, false), None, "{text}");
        }
        assert_eq!(refusal("DELETE FROM t", true), None);
    }

    #[test]
    fn another_one_is_refused() {
        let second = Some(String::from(
            "expected one statement, found a second one behind `;`",
        ));
        assert_eq!(refusal("SELECT 1; DROP TABLE t", true), second);
        assert_eq!(refusal("SELECT '\\'; DROP TABLE t", false), second);
        assert_eq!(
            refusal("/* SELECT */ ATTACH 'x.db' AS x", true).unwrap(),
            "expected a statement that begins with one of SELECT, VALUES, WITH, INSERT, UPDATE, DELETE, REPLACE, found `ATTACH`"
        );
        assert_eq!(
            refusal("DELETE FROM t", false).unwrap(),
            "expected a statement that begins with one of SELECT, VALUES, WITH, found `DELETE`; the connection only reads, \
             and the operator can grant `write = true`"
        );
        assert_eq!(
            refusal(" -- nothing", false).unwrap(),
            "expected a statement that begins with one of SELECT, VALUES, WITH, found none"
        );
    }
}
