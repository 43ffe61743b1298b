//! Statements against PostgreSQL.
//!
//! The database makes the JSON: a statement becomes the body of a `WITH` whose rows go through `row_to_json`, which has the
//! digits of every number, ISO 8601 for times and the text of every type that JSON lacks. That also holds it to one
//! statement that reads, or that returns what it changes: nothing else can stand there.

use std::time::Duration;

use futures::TryStreamExt as _;
use serde::Deserialize;
use sqlx::pool::PoolConnection;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgConnectOptions, PgConnection, PgPool, PgPoolOptions, PgTypeInfo, PgTypeKind,
};
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Executor as _, Postgres,
    Row as _, SqlSafeStr as _, Statement as _, Type, TypeInfo as _,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::grant::ConnectionGrant;
use super::parameter::Parameter;
use super::{ACQUIRE_TIMEOUT, Failure, IDLE_TIMEOUT, Sink, Statement, check_names, refuse};
use crate::contract::sql;
use crate::sandbox::Secret;

/// How long ending a statement that nobody waits for may take. After it, the statement's own timeout ends it.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// How long after its call's deadline the database itself stops a statement, where nothing could be sent to it: behind the
/// deadline, so that the call is what ends first and says so.
const BACKSTOP: Duration = Duration::from_secs(1);

/// The name under which a statement's rows go. A column of that name would hide them.
const ROW: &str = "plimsoll_row";

/// Every table and view that may be read, one JSON object a row. The key is the primary key, or the smallest unique index
/// over columns that are never null. Partitions are part of their table.
const TABLES: &str = r#"
SELECT json_build_object(
    'schema', n.nspname, 'name', c.relname, 'is_view', c.relkind = 'v',
    'estimate', CASE WHEN c.relkind IN ('r', 'm') AND c.reltuples >= 0 THEN c.reltuples::bigint END,
    'description', obj_description(c.oid, 'pg_class'),
    'columns', (
        SELECT json_agg(json_build_object(
            'name', a.attname, 'type_name', format_type(a.atttypid, -1), 'description', col_description(c.oid, a.attnum),
            'base', coalesce(nullif(t.typbasetype, 0), t.oid)::bigint, 'is_enum', t.typtype = 'e', 'category', t.typcategory
        ) ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    'key', (
        SELECT (
            SELECT json_agg(a.attname ORDER BY k.place)
            FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
            JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number
            WHERE k.place <= i.indnkeyatts)
        FROM pg_catalog.pg_index i
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
            AND NOT EXISTS (
                SELECT FROM pg_catalog.pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[]) AND NOT a.attnotnull)
        ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid LIMIT 1)
)::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp_)'
    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
ORDER BY n.nspname, c.relname"#;

/// A pool of connections to one database.
pub(super) struct Pool {
    pool: PgPool,
    options: PgConnectOptions,
    may_write: bool,
}

#[derive(Deserialize)]
struct TableRow {
    schema: String,
    name: String,
    is_view: bool,
    estimate: Option<u64>,
    description: Option<String>,
    columns: Option<Vec<ColumnRow>>,
    key: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ColumnRow {
    name: String,
    type_name: String,
    description: Option<String>,
    base: u32,
    is_enum: bool,
    category: String,
}

impl Pool {
    pub(super) fn open(url: &Secret, grant: &ConnectionGrant) -> anyhow::Result<Self> {
        let options: PgConnectOptions = url
            .reveal()
            .parse()
            // The error may quote the URL.
            .map_err(|_| anyhow::anyhow!("a `postgres://` URL of a connection cannot be read"))?;
        let options = options
            .application_name("plimsoll")
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(grant.pool)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .idle_timeout(IDLE_TIMEOUT)
            .connect_lazy_with(options.clone());
        Ok(Self {
            pool,
            options,
            may_write: grant.write,
        })
    }

    pub(super) async fn tables(&self, deadline: Instant) -> Result<Vec<sql::Table>, Failure> {
        let mut lease = self.begin(deadline, false).await?;
        let rows = sqlx::query_scalar::<_, String>(TABLES)
            .persistent(false)
            .fetch_all(lease.connection()?)
            .await;
        lease.end(rows.is_ok(), false).await?;
        let table = |text: String| {
            let row: TableRow =
                serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))?;
            Ok(row.into())
        };
        rows?.into_iter().map(table).collect()
    }

    pub(super) async fn columns(
        &self,
        statement: &str,
        deadline: Instant,
    ) -> Result<Vec<sql::Column>, Failure> {
        let mut lease = self.begin(deadline, false).await?;
        let columns = columns(lease.connection()?, trimmed(statement), &[]).await;
        lease.end(true, false).await?;
        let column = |(name, info): (String, PgTypeInfo)| sql::Column {
            kind: kind(
                info.oid().map_or(0, |Oid(oid)| oid),
                matches!(info.kind(), PgTypeKind::Enum(_)),
                "",
            ),
            type_name: info.name().to_lowercase(),
            name,
            description: None,
        };
        Ok(columns?.into_iter().map(column).collect())
    }

    pub(super) async fn run(
        &self,
        statement: Statement<'_>,
        deadline: Instant,
        sink: Sink<'_>,
    ) -> Result<sql::Outcome, Failure> {
        let mut lease = self.begin(deadline, self.may_write).await?;
        let connection = lease.connection()?;
        match run(connection, &statement, self.may_write, sink).await {
            Ok(Ran::ToItsEnd(outcome)) => {
                lease.end(true, self.may_write).await?;
                Ok(outcome)
            }
            // Dropping the lease ends the statement.
            Ok(Ran::Stopped(outcome)) => Ok(outcome),
            Err(failure) => {
                let is_usable = match &failure {
                    Failure::Fault(_) => true,
                    Failure::Broken(error) => error.as_database_error().is_some(),
                };
                if is_usable {
                    lease.end(false, self.may_write).await?;
                }
                Err(failure)
            }
        }
    }

    /// A connection in a transaction of its own.
    async fn begin(&self, deadline: Instant, may_write: bool) -> Result<Lease, Failure> {
        let mut lease = Lease {
            connection: Some(self.pool.acquire().await?),
            backend: None,
            options: self.options.clone(),
        };
        let mode = if may_write { "READ WRITE" } else { "READ ONLY" };
        let left = deadline.saturating_duration_since(Instant::now()) + BACKSTOP;
        let left = left.as_millis();
        let begin = format!(
            "BEGIN {mode}; SET LOCAL statement_timeout = {left}; SELECT pg_catalog.pg_backend_pid()"
        );
        let row = lease
            .connection()?
            .fetch_one(sqlx::raw_sql(AssertSqlSafe(begin)))
            .await?;
        lease.backend = Some(row.try_get(0)?);
        Ok(lease)
    }
}

/// A connection while a statement of a call runs on it.
///
/// One that is dropped before [`Lease::end`] leaves the pool, and its process in the database is ended: closing the
/// connection alone would let a statement go on until it has something to send.
struct Lease {
    connection: Option<PoolConnection<Postgres>>,
    /// The process in the database, once it is known.
    backend: Option<i32>,
    options: PgConnectOptions,
}

impl Lease {
    fn connection(&mut self) -> Result<&mut PgConnection, Failure> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(sqlx::Error::PoolClosed.into()),
        }
    }

    /// Ends the transaction and gives the connection back as it was.
    async fn end(mut self, is_done: bool, may_write: bool) -> Result<(), Failure> {
        let connection = self.connection()?;
        let last = if is_done && may_write {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        // What a statement may leave behind in its session: settings go with the transaction, locks do not.
        let end = format!("{last}; SELECT pg_catalog.pg_advisory_unlock_all()");
        connection
            .execute(sqlx::raw_sql(AssertSqlSafe(end)))
            .await?;
        // A statement is described anew each time: its tables may have changed.
        connection.clear_cached_statements().await?;
        drop(self.connection.take());
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // Out of the pool, so that no other statement can run in the process that is ended.
        let connection = connection.detach();
        let (Some(backend), Ok(runtime)) = (self.backend, Handle::try_current()) else {
            return;
        };
        let options = self.options.clone();
        runtime.spawn(async move {
            let ended = timeout(END_TIMEOUT, end_backend(&options, backend)).await;
            if !matches!(ended, Ok(Ok(()))) {
                tracing::warn!(
                    backend,
                    "a statement of a call that is over could not be ended; its timeout ends it"
                );
            }
            drop(connection);
        });
    }
}

async fn end_backend(options: &PgConnectOptions, backend: i32) -> Result<(), sqlx::Error> {
    let mut connection = options.connect().await?;
    sqlx::query("SELECT pg_catalog.pg_terminate_backend($1)")
        .bind(backend)
        .execute(&mut connection)
        .await?;
    connection.close().await
}

/// How far a statement ran.
enum Ran {
    ToItsEnd(sql::Outcome),
    /// Its rows were enough before they came to their end.
    Stopped(sql::Outcome),
}

/// A statement without what may end it: `;` is no part of the body of a `WITH`.
fn trimmed(statement: &str) -> &str {
    let text = statement.trim_end();
    text.strip_suffix(';').unwrap_or(text)
}

async fn run(
    connection: &mut PgConnection,
    statement: &Statement<'_>,
    may_write: bool,
    sink: Sink<'_>,
) -> Result<Ran, Failure> {
    let text = trimmed(statement.text);
    let columns = columns(connection, text, statement.parameters).await?;
    if columns.is_empty() {
        if !may_write {
            return refuse(
                "the statement returns no rows, and the connection only reads: expected SELECT, VALUES, TABLE or WITH",
            );
        }
        let counting = format!("WITH {ROW} AS (\n{text}\nRETURNING 1) SELECT count(*) FROM {ROW}");
        let row = bound(counting, statement.parameters)
            .fetch_one(connection)
            .await?;
        let changed: i64 = row.try_get(0)?;
        return Ok(Ran::ToItsEnd(sql::Outcome {
            rows: 0,
            changed: u64::try_from(changed).unwrap_or_default(),
        }));
    }
    check_names(columns.iter().map(|(name, _)| name.as_str()))?;
    let mut outcome = sql::Outcome {
        rows: 0,
        changed: 0,
    };
    let mut rows = bound(as_json(text, &columns), statement.parameters).fetch(connection);
    let mut line = Vec::new();
    let mut is_wanted = true;
    while let Some(row) = rows.try_next().await? {
        outcome.rows += 1;
        let value = row.try_get_raw(0)?;
        let text = value.as_bytes().map_err(sqlx::Error::Decode)?;
        let text = if text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            // Only `json` has line breaks, between its tokens: those in strings are escaped.
            line.clear();
            line.extend(text.iter().map(|byte| match byte {
                b'\n' | b'\r' => b' ',
                other => *other,
            }));
            &line[..]
        } else {
            text
        };
        if is_wanted && sink(text).is_break() {
            if !may_write {
                return Ok(Ran::Stopped(outcome));
            }
            // What it changes is changed whole.
            is_wanted = false;
        }
    }
    Ok(Ran::ToItsEnd(outcome))
}

/// The columns of a statement, as the database describes it.
async fn columns(
    connection: &mut PgConnection,
    text: &str,
    parameters: &[Parameter],
) -> Result<Vec<(String, PgTypeInfo)>, Failure> {
    let types: Vec<PgTypeInfo> = parameters
        .iter()
        .map(|parameter| match parameter {
            Parameter::Boolean(_) => <bool as Type<Postgres>>::type_info(),
            Parameter::Integer(_) => <i64 as Type<Postgres>>::type_info(),
            Parameter::Null | Parameter::Number(_) | Parameter::Text(_) => {
                <str as Type<Postgres>>::type_info()
            }
        })
        .collect();
    let text = AssertSqlSafe(text.to_owned()).into_sql_str();
    let prepared = connection.prepare_with(text, &types).await?;
    let column =
        |column: &sqlx::postgres::PgColumn| (column.name().to_owned(), column.type_info().clone());
    Ok(prepared.columns().iter().map(column).collect())
}

type Query = sqlx::query::Query<'static, Postgres, sqlx::postgres::PgArguments>;

fn bound(text: String, parameters: &[Parameter]) -> Query {
    // A cached statement would have the types of the parameters that it was first run with.
    let query = sqlx::query(AssertSqlSafe(text)).persistent(false);
    parameters
        .iter()
        .fold(query, |query, parameter| match parameter.clone() {
            Parameter::Null => query.bind(None::<String>),
            Parameter::Boolean(value) => query.bind(value),
            Parameter::Integer(value) => query.bind(value),
            Parameter::Number(value) | Parameter::Text(value) => query.bind(value),
        })
}

/// The statement whose rows are JSON.
fn as_json(text: &str, columns: &[(String, PgTypeInfo)]) -> String {
    let is_bytes = |info: &PgTypeInfo| matches!(info.name(), "BYTEA" | "BYTEA[]");
    if !columns.iter().any(|(_, info)| is_bytes(info)) {
        return format!("WITH {ROW} AS (\n{text}\n) SELECT row_to_json({ROW})::text FROM {ROW}");
    }
    let encoded = |value: &str| format!("translate(encode({value}, 'base64'), E'\\n', '')");
    let column = |(name, info): &(String, PgTypeInfo)| {
        let name = quoted(name);
        let value = format!("{ROW}.{name}");
        match info.name() {
            "BYTEA" => format!("{} AS {name}", encoded(&value)),
            "BYTEA[]" => format!(
                "CASE WHEN {value} IS NOT NULL THEN ARRAY(SELECT {} FROM unnest({value}) WITH ORDINALITY AS u(b, n) ORDER BY n) \
                 END AS {name}",
                encoded("u.b")
            ),
            _ => value,
        }
    };
    let columns: Vec<String> = columns.iter().map(column).collect();
    format!(
        "WITH {ROW} AS (\n{text}\n) SELECT row_to_json(plimsoll_json)::text FROM (SELECT {} FROM {ROW}) AS plimsoll_json",
        columns.join(", ")
    )
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl From<TableRow> for sql::Table {
    fn from(row: TableRow) -> Self {
        let column = |column: ColumnRow| sql::Column {
            kind: kind(column.base, column.is_enum, &column.category),
            name: column.name,
            type_name: column.type_name,
            description: column.description,
        };
        Self {
            schema: row.schema,
            name: row.name,
            is_view: row.is_view,
            columns: row.columns.into_iter().flatten().map(column).collect(),
            key: row.key.unwrap_or_default(),
            estimate: row.estimate,
            description: row.description,
        }
    }
}

/// What `row_to_json` makes of a type, by its number in `pg_type` and its category. A `character(n)` is no text that is the
/// value itself: its blanks come and go.
fn kind(oid: u32, is_enum: bool, category: &str) -> sql::Kind {
    match oid {
        16 => sql::Kind::Boolean,
        17 => sql::Kind::Bytes,
        20 | 21 | 23 => sql::Kind::Integer,
        700 | 701 | 1700 => sql::Kind::Number,
        // name, text, character varying, uuid.
        19 | 25 | 1043 | 2950 => sql::Kind::Text,
        // date, time, timestamp, and the last two with time zones.
        1082 | 1083 | 1114 | 1184 | 1266 => sql::Kind::Time,
        1042 => sql::Kind::Other,
        _ if is_enum || category == "S" => sql::Kind::Text,
        _ => sql::Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_statement_is_no_part_of_it() {
        assert_eq!(trimmed("SELECT 1 ; \n"), "SELECT 1 ");
        assert_eq!(trimmed("SELECT 1;;"), "SELECT 1;");
        assert_eq!(quoted(r#"a"b"#), r#""a""b""#);
    }
}
