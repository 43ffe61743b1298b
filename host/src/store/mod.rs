//! What has to outlive a restart and be the same on every replica: keys, what was changed of tenants at run time, quotas,
//! the ledger, and the key that signs cursors.
//!
//! SQLite in the state folder by default, PostgreSQL by a URL; one schema, one set of statements. Owns every SQL statement
//! of the host, and no decision: what a key may do is for [`tenant`](crate::tenant) to say.

mod keys;
mod ledger;
mod quotas;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sqlx::any::AnyPoolOptions;
use sqlx::migrate::Migrator;
use sqlx::{AnyPool, Executor};

pub use keys::{Change, KeyRow, Snapshot};
pub use ledger::{Entry, Grouping, UsageRow};
pub use quotas::{Charge, Period, Reservation, Spent, Taken, Window};

use crate::sandbox::Secret;

/// The file of the default store in the state folder.
const SQLITE_FILE: &str = "plimsoll.db";

/// How long a writer of SQLite waits for another one, which is done in milliseconds.
const SQLITE_BUSY_MS: u64 = 5_000;

/// How long a statement waits for a connection: a store that does not answer must not hold calls up for longer.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long PostgreSQL works on one statement, or waits for a lock.
const STATEMENT_MS: u64 = 5_000;

/// How long one operation may take: a server that is gone does not say so.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections to PostgreSQL. A call holds one for the moment in which its quota is counted.
const POSTGRES_CONNECTIONS: u32 = 16;

/// Connections to SQLite, which lets one write at a time: one for the ledger, one for all else. They are there from the
/// beginning, so that a busy host holds no more files than an idle one.
const SQLITE_CONNECTIONS: u32 = 2;

/// The length of the key that signs cursors.
pub const SIGNING_KEY_BYTES: usize = 32;

static MIGRATIONS: Migrator = sqlx::migrate!("src/store/migrations");

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of SQLite in this folder.
    Folder(PathBuf),
    /// A `postgres://` URL, which may hold a password.
    Postgres(Secret),
}

/// The store; cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
}

impl Store {
    /// Opens the store and brings its schema up to date.
    pub async fn open(location: &Location) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let store = match location {
            Location::Folder(folder) => Self::open_sqlite(folder)
                .await
                .with_context(|| format!("opening the store in `{}`", folder.display()))?,
            // Neither the URL nor a part of it is shown: it may hold a password.
            Location::Postgres(url) => Self::open_postgres(url)
                .await
                .context("opening the store of `store`")?,
        };
        Ok(store)
    }

    async fn open_sqlite(folder: &std::path::Path) -> anyhow::Result<Self> {
        use std::os::unix::fs::OpenOptionsExt;
        // Hosts that start at once migrate one after the other: SQLite has no lock for it.
        let lock = std::fs::File::open(folder)?;
        let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await??;
        let file = folder.join(SQLITE_FILE);
        // Made here, so that only its owner can read it: SQLite gives its other files the same mode.
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)?;
        let mut url = url::Url::from_file_path(std::path::absolute(&file)?)
            .map_err(|()| anyhow::anyhow!("`{}` makes no URL", file.display()))?
            .to_string();
        url.replace_range(.."file".len(), "sqlite");
        let pool = AnyPoolOptions::new()
            .min_connections(SQLITE_CONNECTIONS)
            .max_connections(SQLITE_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    // A commit is in the file system's hands when it returns: a crash of the host loses nothing.
                    let pragmas = format!(
                        "PRAGMA busy_timeout = {SQLITE_BUSY_MS}; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                    );
                    connection
                        .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(pragmas)))
                        .await
                        .map(|_| ())
                })
            })
            .connect(&url)
            .await?;
        let store = Self::migrate(pool).await;
        drop(lock);
        store
    }

    async fn open_postgres(url: &Secret) -> anyhow::Result<Self> {
        let url = url.reveal();
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            bail!("expected a URL such as `postgres://user@host/database`, found another text");
        }
        let pool = AnyPoolOptions::new()
            .max_connections(POSTGRES_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    let timeouts = format!(
                        "SET statement_timeout = {STATEMENT_MS}; SET lock_timeout = {STATEMENT_MS};"
                    );
                    connection
                        .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(timeouts)))
                        .await
                        .map(|_| ())
                })
            })
            .connect(url)
            .await?;
        Self::migrate(pool).await
    }

    async fn migrate(pool: AnyPool) -> anyhow::Result<Self> {
        MIGRATIONS.run(&pool).await.context("making its tables")?;
        Ok(Self { pool })
    }

    /// The key of this installation that signs cursors and links; made at first start.
    pub async fn signing_key(&self) -> anyhow::Result<[u8; SIGNING_KEY_BYTES]> {
        let mut key = [0; SIGNING_KEY_BYTES];
        getrandom::fill(&mut key)?;
        // Replicas that start at once agree on the one that came first.
        sqlx::query(
            "INSERT INTO installation (name, value) VALUES ('signing_key', $1) ON CONFLICT (name) DO NOTHING",
        )
        .bind(STANDARD.encode(key))
        .execute(&self.pool)
        .await?;
        let value: String =
            sqlx::query_scalar("SELECT value FROM installation WHERE name = 'signing_key'")
                .fetch_one(&self.pool)
                .await?;
        STANDARD
            .decode(&value)
            .ok()
            .and_then(|key| key.try_into().ok())
            .with_context(|| {
                format!("the signing key in the store must have {SIGNING_KEY_BYTES} bytes; delete its row of `installation` to get a new one")
            })
    }

    /// Ends every connection, after what is being written.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// Forgets ledger rows and windows that nobody asks for any more.
    pub async fn forget_before(&self, ledger: i64, windows: i64) -> anyhow::Result<()> {
        for (statement, before) in [
            ("DELETE FROM ledger WHERE at_ms < $1", ledger),
            ("DELETE FROM quota_windows WHERE starts_ms < $1", windows),
            ("DELETE FROM running_calls WHERE ends_ms < $1", windows),
        ] {
            sqlx::query(statement)
                .bind(before)
                .execute(&self.pool)
                .await?;
        }
        Ok(())
    }
}

/// The outcome of an operation, within a bounded time.
async fn within<T>(operation: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(OPERATION_TIMEOUT, operation)
        .await
        .unwrap_or_else(|_| {
            let seconds = OPERATION_TIMEOUT.as_secs();
            Err(anyhow::anyhow!(
                "the store did not answer within {seconds} s"
            ))
        })
}

/// Now, in milliseconds since 1970 in UTC.
pub fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A count as the store has it.
fn stored(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count as it was stored.
fn counted(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hosts_that_start_at_once_agree_on_one_signing_key_that_only_the_owner_reads() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Folder(folder.path().to_owned());
        let open = || async {
            let store = Store::open(&location).await.unwrap();
            store.signing_key().await.unwrap()
        };
        let (first, second, third) = tokio::join!(open(), open(), open());
        assert_ne!(first, [0; SIGNING_KEY_BYTES]);
        assert_eq!((first, first), (second, third));
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[tokio::test]
    async fn a_broken_signing_key_is_an_error_that_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Folder(folder.path().to_owned());
        let store = Store::open(&location).await.unwrap();
        sqlx::query("INSERT INTO installation (name, value) VALUES ('signing_key', 'c2hvcnQ=')")
            .execute(&store.pool)
            .await
            .unwrap();
        assert_eq!(
            store.signing_key().await.unwrap_err().to_string(),
            "the signing key in the store must have 32 bytes; delete its row of `installation` to get a new one"
        );
    }

    #[tokio::test]
    async fn a_url_of_something_else_is_refused_without_showing_it() {
        let location = Location::Postgres(Secret::new("mysql://u:hunter2@h/d".into()));
        let error = format!("{:#}", Store::open(&location).await.unwrap_err());
        assert_eq!(
            error,
            "opening the store of `store`: expected a URL such as `postgres://user@host/database`, found another text"
        );
    }
}
