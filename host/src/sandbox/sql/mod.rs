//! `plimsoll:plugin/sql`: statements of a guest against the databases that its entry grants.
//!
//! A pool of connections belongs to a loaded plugin and ends with it. A statement runs under what is left of its call, and
//! its rows go to the intake in pieces as they come: neither the host nor the guest holds more than a piece of them.
//!
//! Invariant: at the deadline, and when a call is dropped, no statement of it goes on in the database. What a database says
//! of a statement reaches the caller; what a connection says of itself (addresses, users) only the log.

mod grant;
mod parameter;
mod postgres;
mod sqlite;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

pub use grant::{ConnectionGrant, DEFAULT_POOL, Database};
use parameter::Parameter;

use super::instance::State;
use super::journal::{Journal, Source};
use crate::contract::{Demand, Fault, Level, sql};

/// Rows go to the intake in pieces of about this size: as large as those of plugins that push rows themselves.
const PIECE_BYTES: usize = 1 << 16;

/// How long a statement waits for a connection: a database that does not answer must not hold a call for longer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connection that nobody uses stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The pools of one plugin.
pub(super) struct Databases(BTreeMap<String, Pool>);

/// One granted connection.
struct Pool {
    kind: Kind,
    may_write: bool,
    /// Its tables, once they have been asked for: a plugin asks when it is loaded, and its calls see the same ones.
    tables: OnceCell<Vec<sql::Table>>,
}

enum Kind {
    Postgres(Box<postgres::Pool>),
    Sqlite(sqlite::Pool),
}

impl Databases {
    /// Makes the pools. Nothing is connected to before a plugin asks.
    pub(super) fn open(grants: &BTreeMap<String, ConnectionGrant>) -> anyhow::Result<Self> {
        let pool = |(name, grant): (&String, &ConnectionGrant)| {
            let kind = match &grant.database {
                Database::Postgres(url) => {
                    Kind::Postgres(Box::new(postgres::Pool::open(url, grant)?))
                }
                Database::Sqlite(file) => Kind::Sqlite(sqlite::Pool::open(file, grant)),
            };
            let pool = Pool {
                kind,
                may_write: grant.write,
                tables: OnceCell::new(),
            };
            Ok((name.clone(), pool))
        };
        grants
            .iter()
            .map(pool)
            .collect::<anyhow::Result<_>>()
            .map(Self)
    }
}

/// What one call has of the databases.
#[derive(Clone)]
pub(super) struct Session {
    databases: Arc<Databases>,
    deadline: Instant,
    journal: Journal,
}

/// Takes a row, which is JSON on one line; says whether further ones are wanted.
type Sink<'a> = &'a mut (dyn FnMut(&[u8]) -> ControlFlow<()> + Send);

/// Why a statement did not run to its end.
enum Failure {
    /// What the caller is told.
    Fault(Fault),
    /// The connection failed, or the database did.
    Broken(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Broken(error)
    }
}

/// The caller is told this.
fn refuse<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Fault(Fault::InvalidInput(message.into())))
}

/// A statement as a guest hands it over.
struct Statement<'a> {
    text: &'a str,
    parameters: &'a [Parameter],
}

impl Session {
    pub(super) fn new(databases: Arc<Databases>, deadline: Instant, journal: Journal) -> Self {
        Self {
            databases,
            deadline,
            journal,
        }
    }

    fn pool(&self, name: &str) -> Result<&Pool, Fault> {
        self.databases.0.get(name).ok_or_else(|| {
            let granted: Vec<&str> = self.databases.0.keys().map(String::as_str).collect();
            Fault::NotFound(format!(
                "no connection `{name}` is granted; expected one of: {}",
                granted.join(", ")
            ))
        })
    }

    /// What a caller is told of a failure of a connection. The operator reads the rest in the log.
    fn fault(&self, name: &str, failure: Failure) -> Fault {
        let error = match failure {
            Failure::Fault(fault) => return fault,
            Failure::Broken(error) => error,
        };
        if let Some(said) = error.as_database_error()
            && let Some(fault) = fault_of(name, said)
        {
            return fault;
        }
        let text = format!("the connection `{name}` failed: {error}");
        self.journal
            .write(Level::Warn, Source::Host, text.as_bytes());
        Fault::Unavailable(format!(
            "the database of the connection `{name}` does not answer. Call again later; the host's log says why"
        ))
    }

    async fn tables(&self, name: &str) -> Result<Vec<sql::Table>, Fault> {
        let pool = self.pool(name)?;
        let read = async {
            match &pool.kind {
                Kind::Postgres(pool) => pool.tables(self.deadline).await,
                Kind::Sqlite(pool) => pool.tables().await,
            }
        };
        let tables = pool.tables.get_or_try_init(|| read).await;
        tables.cloned().map_err(|failure| self.fault(name, failure))
    }

    async fn columns(&self, name: &str, statement: &str) -> Result<Vec<sql::Column>, Fault> {
        match &self.pool(name)?.kind {
            Kind::Postgres(pool) => pool.columns(statement, self.deadline).await,
            Kind::Sqlite(pool) => pool.columns(statement).await,
        }
        .map_err(|failure| self.fault(name, failure))
    }

    async fn run(
        &self,
        name: &str,
        text: &str,
        parameters: &[String],
        sink: Sink<'_>,
    ) -> Result<sql::Outcome, Fault> {
        let pool = self.pool(name)?;
        let parameters = parameters
            .iter()
            .enumerate()
            .map(|(index, text)| Parameter::read(index + 1, text))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Fault::InvalidInput)?;
        let statement = Statement {
            text,
            parameters: &parameters,
        };
        match &pool.kind {
            Kind::Postgres(pool) => pool.run(statement, self.deadline, sink).await,
            Kind::Sqlite(pool) => pool.run(statement, sink).await,
        }
        .map_err(|failure| self.fault(name, failure))
    }
}

/// What a database says of a statement, where it is the statement's fault or may pass. Class 57014 is a statement that was
/// stopped, 25006 one that would write; `readonly` is SQLite's word for the same.
fn fault_of(name: &str, said: &dyn sqlx::error::DatabaseError) -> Option<Fault> {
    let code = said.code().unwrap_or_default();
    let message = said.message();
    if code == "25006" || message.contains("readonly database") {
        return Some(read_only(name));
    }
    if let Some(said) = said.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        if code == "57014" {
            return Some(Fault::Unavailable(format!(
                "the database stopped the statement: {message}. Ask for less, or call again later"
            )));
        }
        // Data, constraints, what is not supported, transactions, syntax and rights, and what functions raise.
        let is_the_statements = ["0A", "22", "23", "25", "2F", "38", "39", "42", "P0"]
            .iter()
            .any(|class| code.starts_with(class));
        let hint = said
            .hint()
            .map_or(String::new(), |hint| format!(" ({hint})"));
        return is_the_statements
            .then(|| Fault::InvalidInput(format!("the database says: {message}{hint}")));
    }
    // SQLite: 5 and 6 are locks, 1, 19, 20 and 25 are the statement's.
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6) => Some(Fault::Unavailable(format!(
            "the database is locked: {message}. Call again later"
        ))),
        Ok(1 | 19 | 20 | 25) => Some(Fault::InvalidInput(format!("the database says: {message}"))),
        _ => None,
    }
}

/// A statement would write on a connection that only reads.
fn read_only(name: &str) -> Fault {
    Fault::InvalidInput(format!(
        "the connection `{name}` only reads, and the statement would write. Expected a statement that reads; the operator \
         can grant `write = true`"
    ))
}

/// Names that a statement gives to two of its columns.
fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return refuse(format!(
                "two columns of the statement are called `{name}`: expected a name for each, such as with AS"
            ));
        }
    }
    Ok(())
}

impl State {
    /// Runs a statement and pushes its rows into the intake.
    async fn push_rows(
        &mut self,
        connection: &str,
        statement: &str,
        parameters: &[String],
    ) -> Result<sql::Outcome, Fault> {
        let session = self.databases.clone();
        let intake = &mut self.intake;
        let mut piece = Vec::with_capacity(PIECE_BYTES * 2);
        let mut push = |piece: &mut Vec<u8>| {
            let demand = intake
                .as_mut()
                .map_or(Demand::More, |intake| intake.rows(piece));
            piece.clear();
            match demand {
                Demand::More => ControlFlow::Continue(()),
                Demand::Enough => ControlFlow::Break(()),
            }
        };
        let mut take = |row: &[u8]| {
            piece.extend_from_slice(row);
            piece.push(b'\n');
            if piece.len() < PIECE_BYTES {
                return ControlFlow::Continue(());
            }
            push(&mut piece)
        };
        let outcome = session
            .run(connection, statement, parameters, &mut take)
            .await?;
        if !piece.is_empty() {
            let _ = push(&mut piece);
        }
        Ok(outcome)
    }
}

impl sql::Host for State {
    async fn describe(&mut self, connection: String) -> Result<sql::Database, Fault> {
        let pool = self.databases.pool(&connection)?;
        Ok(sql::Database {
            dialect: match pool.kind {
                Kind::Postgres(_) => sql::Dialect::Postgresql,
                Kind::Sqlite(_) => sql::Dialect::Sqlite,
            },
            may_write: pool.may_write,
        })
    }

    async fn tables(&mut self, connection: String) -> Result<Vec<sql::Table>, Fault> {
        self.databases.tables(&connection).await
    }

    async fn columns(
        &mut self,
        connection: String,
        statement: String,
    ) -> Result<Vec<sql::Column>, Fault> {
        self.databases.columns(&connection, &statement).await
    }

    async fn rows(
        &mut self,
        connection: String,
        statement: String,
        parameters: Vec<String>,
    ) -> Result<sql::Outcome, Fault> {
        self.push_rows(&connection, &statement, &parameters).await
    }

    async fn row(
        &mut self,
        connection: String,
        statement: String,
        parameters: Vec<String>,
    ) -> Result<bool, Fault> {
        let session = self.databases.clone();
        let mut first = None;
        let mut take = |row: &[u8]| {
            if first.is_some() {
                return ControlFlow::Break(());
            }
            first = Some(row.to_vec());
            // A statement that is let come to its end costs nothing; one that is stopped costs its connection.
            ControlFlow::Continue(())
        };
        session
            .run(&connection, &statement, &parameters, &mut take)
            .await?;
        if let (Some(row), Some(intake)) = (&first, &mut self.intake) {
            intake.document(row);
        }
        Ok(first.is_some())
    }
}
