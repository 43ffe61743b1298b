//! What tools cost to list, kept from one start to the next: the tables that count tokens are larger than all else of a host
//! that nobody calls, and take as long to build as all else of a start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Catalogs, Tool};
use crate::files;

/// A file of counts, by the text that was counted. One that is lost or broken costs no more than counting again.
#[derive(Debug)]
pub struct Counted {
    file: PathBuf,
}

type Counts = BTreeMap<String, u64>;

impl Counted {
    /// The counts in a file, which need not be there.
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Gives tools the counts that are known of them.
    pub fn recall(&self, catalogs: &Catalogs) {
        let known = read(&self.file);
        if known.is_empty() {
            return;
        }
        let uncounted = |tool: &&Arc<Tool>| tool.listing_tokens.get().is_none();
        for tool in catalogs.tools().filter(uncounted) {
            if let Some(tokens) = known.get(&name(tool)) {
                // Where it has been counted meanwhile, it is the same number.
                let _ = tool.listing_tokens.set(*tokens);
            }
        }
    }

    /// Keeps the counts of these tools, and no others.
    pub fn keep(&self, catalogs: &Catalogs) {
        let counts: Counts = catalogs
            .tools()
            .map(|tool| (name(tool), tool.listing_tokens()))
            .collect();
        if counts == read(&self.file) {
            return;
        }
        let text = serde_json::json!(counts).to_string();
        if let Err(error) = files::replace(&self.file, text.as_bytes()) {
            let file = self.file.display();
            tracing::warn!("what listings cost is not kept in `{file}`: {error}");
        }
    }
}

fn read(file: &Path) -> Counts {
    let text = std::fs::read(file).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn name(tool: &Tool) -> String {
    blake3::hash(tool.listed.to_string().as_bytes()).to_string()
}
