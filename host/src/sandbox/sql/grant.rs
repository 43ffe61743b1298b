//! A granted connection: which database, and what may be done there.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::sandbox::Secret;

/// Connections of one grant that are open at a time: as many as a call of each of a few tenants needs, and few beside the
/// 100 that a PostgreSQL server allows by default.
pub const DEFAULT_POOL: u32 = 4;

/// A database that a plugin may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionGrant {
    /// Where it is.
    pub database: Database,
    /// Whether statements may change what is in it.
    pub write: bool,
    /// Connections that are open at a time.
    pub pool: u32,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// A `postgres://` URL, which may hold a password.
    Postgres(Secret),
    /// A file of SQLite.
    Sqlite(PathBuf),
}

impl ConnectionGrant {
    /// A grant of the database at a URL; a file of SQLite is looked up in a folder. No error has any of the URL.
    pub(crate) fn new(url: &str, folder: &Path, write: bool, pool: u32) -> anyhow::Result<Self> {
        let database = if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            ensure!(
                !path.is_empty() && !path.starts_with(':') && !path.contains('?'),
                "expected the path of a file behind `sqlite:`, such as `sqlite:shop.db`"
            );
            Database::Sqlite(folder.join(path))
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Database::Postgres(Secret::new(url.to_owned()))
        } else {
            bail!(
                "expected a URL such as `postgres://user@host/database` or `sqlite:shop.db`, found another text"
            );
        };
        Ok(Self {
            database,
            write,
            pool,
        })
    }

    /// Whether a file is there. Whether a server is shows when a plugin asks it for something.
    pub(in crate::sandbox) fn check(&self) -> anyhow::Result<()> {
        if let Database::Sqlite(file) = &self.database {
            let metadata = std::fs::metadata(file)
                .with_context(|| format!("the file `{}`", file.display()))?;
            ensure!(metadata.is_file(), "`{}` is not a file", file.display());
        }
        Ok(())
    }
}

impl fmt::Display for ConnectionGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.database {
            Database::Postgres(_) => f.write_str("PostgreSQL")?,
            Database::Sqlite(file) => write!(f, "SQLite in {}", file.display())?,
        }
        f.write_str(if self.write {
            ", read and write"
        } else {
            ", read-only"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_sqlite_is_looked_up_beside_the_config_file() {
        let file = |url: &str| {
            ConnectionGrant::new(url, Path::new("/etc/plimsoll"), false, 1)
                .unwrap()
                .database
        };
        let expected = |path: &str| Database::Sqlite(path.into());
        assert_eq!(file("sqlite:shop.db"), expected("/etc/plimsoll/shop.db"));
        assert_eq!(
            file("sqlite://a/shop.db"),
            expected("/etc/plimsoll/a/shop.db")
        );
        assert_eq!(file("sqlite:///srv/shop.db"), expected("/srv/shop.db"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        for url in ["sqlite:", "sqlite::memory:", "sqlite:shop.db?mode=rwc"] {
            let error = ConnectionGrant::new(url, Path::new("/"), false, 1).unwrap_err();
            assert_eq!(
                error.to_string(),
                "expected the path of a file behind `sqlite:`, such as `sqlite:shop.db`"
            );
        }
    }
}
