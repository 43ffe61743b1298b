//! Queries that are too long for their cursors.
//!
//! A cursor has 200 characters and carries the arguments of its query where they fit. Where they do not, they are kept here,
//! under the cursor, so that a continuation needs nothing else in that case either. They are where kept results are, so that
//! every host that reads the one can read the other. What is lost here is not lost for the caller: passing the arguments
//! again always works.

use anyhow::ensure;
use serde_json::{Map, Value};

use crate::results::Store;

/// How long a query is kept, in seconds: a day, longer than anybody reads on in one answer.
const KEPT_SECONDS: u64 = 24 * 60 * 60;

/// Bytes of a query that is kept: room for long texts and lists. A longer one is repeated by its caller.
const MAX_BYTES: usize = 64 << 10;

/// Their folder.
const FOLDER: &str = "queries";

/// The queries, one object each.
#[derive(Debug, Clone)]
pub struct Queries {
    store: Store,
}

impl Queries {
    /// The queries in a store.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    /// Keeps the arguments of the query that a cursor continues.
    pub async fn remember(
        &self,
        cursor: &str,
        arguments: &Map<String, Value>,
    ) -> anyhow::Result<()> {
        let text = serde_json::to_vec(arguments)?;
        ensure!(
            text.len() <= MAX_BYTES,
            "it has {} bytes, and at most {MAX_BYTES} are kept",
            text.len()
        );
        self.store.put(&name(cursor), text).await
    }

    /// The arguments of the query that a cursor continues, if they are known.
    pub async fn recall(&self, cursor: &str) -> Option<Map<String, Value>> {
        let text = self.store.get_all(&name(cursor)).await.ok()??;
        serde_json::from_slice(&text).ok()
    }
}

fn name(cursor: &str) -> String {
    // A cursor is a secret of its caller and does not become a name.
    format!("{FOLDER}/{}", blake3::hash(cursor.as_bytes()).to_hex())
}

/// Removes the queries that are too old at a time, which is in seconds since 1970.
pub(crate) async fn sweep(store: &Store, now: u64) -> anyhow::Result<()> {
    let oldest_ms = now.saturating_sub(KEPT_SECONDS) * 1_000;
    let found = store.list(FOLDER).await?;
    let old = found
        .into_iter()
        .filter(|query| query.modified_ms < oldest_ms);
    store.remove(old.map(|query| query.name)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Location, now};

    #[tokio::test]
    async fn a_query_is_kept_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Location::Folder(folder.path().to_owned())).unwrap();
        let queries = Queries::new(store.clone());
        let arguments = Map::from_iter([(String::from("query"), Value::from("x".repeat(600)))]);
        queries.remember("cursor", &arguments).await.unwrap();
        assert_eq!(queries.recall("another").await, None);
        sweep(&store, now() + 86_390).await.unwrap();
        assert_eq!(queries.recall("cursor").await, Some(arguments));
        sweep(&store, now() + 86_402).await.unwrap();
        assert_eq!(queries.recall("cursor").await, None);
        assert_eq!(
            std::fs::read_dir(folder.path().join(FOLDER))
                .unwrap()
                .count(),
            0
        );
    }

    #[tokio::test]
    async fn a_query_of_64_kib_is_kept_and_a_longer_one_is_left_to_its_caller() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&Location::Folder(folder.path().to_owned())).unwrap();
        let queries = Queries::new(store);
        // `{"query":""}` has 12 bytes.
        let query = |bytes: usize| {
            Map::from_iter([(String::from("query"), Value::from("x".repeat(bytes - 12)))])
        };
        queries.remember("longest", &query(65_536)).await.unwrap();
        assert_eq!(queries.recall("longest").await, Some(query(65_536)));
        let error = queries
            .remember("longer", &query(65_537))
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "it has 65537 bytes, and at most 65536 are kept"
        );
        assert_eq!(queries.recall("longer").await, None);
    }
}
