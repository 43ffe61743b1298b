//! Queries that are too long for their cursors.
//!
//! A cursor has 200 characters and carries the arguments of its query where they fit. Where they do not, they are kept here,
//! under the cursor, so that a continuation needs nothing else in that case either. What is lost here is not lost for the
//! caller: passing the arguments again always works.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

/// How long a query is kept: longer than anybody reads on in one answer.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The queries in a folder, one file each.
#[derive(Debug, Clone)]
pub struct Queries {
    folder: PathBuf,
}

impl Queries {
    /// The queries of a state folder; those that are too old are forgotten.
    pub fn open(folder: PathBuf) -> std::io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let oldest = SystemTime::now() - KEPT;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|modified| modified < oldest)
            {
                // Another host may have been quicker.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Self { folder })
    }

    fn file(&self, cursor: &str) -> PathBuf {
        // A cursor is a secret of its caller and does not become a file name.
        self.folder
            .join(blake3::hash(cursor.as_bytes()).to_hex().as_str())
    }

    /// Keeps the arguments of the query that a cursor continues.
    pub async fn remember(
        &self,
        cursor: &str,
        arguments: &Map<String, Value>,
    ) -> std::io::Result<()> {
        let file = self.file(cursor);
        let text = serde_json::to_vec(arguments)?;
        tokio::task::spawn_blocking(move || write(&file, &text)).await?
    }

    /// The arguments of the query that a cursor continues, if they are known.
    pub async fn recall(&self, cursor: &str) -> Option<Map<String, Value>> {
        let text = tokio::fs::read(self.file(cursor)).await.ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Writes a file whole or not at all.
fn write(file: &Path, text: &[u8]) -> std::io::Result<()> {
    // The same cursor always has the same query, so that writers of one file do not disturb each other.
    let part = file.with_extension("part");
    std::fs::write(&part, text)?;
    std::fs::rename(part, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_query_is_kept_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Queries::open(folder.path().to_owned()).unwrap();
        let arguments = Map::from_iter([(String::from("query"), Value::from("x".repeat(600)))]);
        open().remember("cursor", &arguments).await.unwrap();
        assert_eq!(open().recall("cursor").await, Some(arguments.clone()));
        assert_eq!(open().recall("another").await, None);
        assert_eq!(KEPT.as_secs(), 86_400);
        let file = std::fs::File::open(open().file("cursor")).unwrap();
        file.set_modified(SystemTime::now() - KEPT - Duration::from_secs(1))
            .unwrap();
        assert_eq!(open().recall("cursor").await, None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
