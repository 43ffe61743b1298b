//! Lists that the host itself sends, such as `tools/list`: in pages under the cap, each item whole.

use anyhow::bail;
use serde::Serialize;

/// Bytes that stand around the items of a page, in whatever envelope a door uses.
const ENVELOPE_BYTES: usize = 2_000;

/// A list, cut into pages between items.
#[derive(Debug)]
pub struct Listing<T> {
    items: Vec<T>,
    /// Where each page begins.
    starts: Vec<usize>,
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingPage<'a, T> {
    /// Its items.
    pub items: &'a [T],
    /// The cursor of the next page.
    pub next: Option<String>,
}

impl<T: Serialize> Listing<T> {
    /// Cuts a list into pages whose JSON has fewer than `cap_bytes` bytes. An item that is too large alone is an error.
    pub fn new(items: Vec<T>, cap_bytes: u32) -> anyhow::Result<Self> {
        let room = (cap_bytes as usize).saturating_sub(ENVELOPE_BYTES);
        let mut starts = vec![0];
        let mut bytes = 0;
        for (index, item) in items.iter().enumerate() {
            let size = serde_json::to_string(item)?.len() + 1;
            if size > room {
                bail!(
                    "item {} of the list is {size} bytes; a page of the list may have {room}",
                    index + 1
                );
            }
            if bytes + size > room {
                starts.push(index);
                bytes = 0;
            }
            bytes += size;
        }
        Ok(Self { items, starts })
    }
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            starts: vec![0],
        }
    }
}

impl<T> Listing<T> {
    /// The page that a cursor names; the first one where it is absent or empty. None for a cursor that is not one.
    pub fn page(&self, cursor: Option<&str>) -> Option<ListingPage<'_, T>> {
        let page: usize = match cursor {
            None | Some("") => 0,
            Some(cursor) => cursor.parse().ok()?,
        };
        let start = *self.starts.get(page)?;
        let end = self.starts.get(page + 1).copied();
        Some(ListingPage {
            items: &self.items[start..end.unwrap_or(self.items.len())],
            next: end.map(|_| (page + 1).to_string()),
        })
    }

    /// Every item.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_every_item_once_and_stay_under_the_cap() {
        let items: Vec<String> = (0..100).map(|index| format!("{index:01000}")).collect();
        let listing = Listing::new(items.clone(), 10_000).unwrap();
        let mut seen = Vec::new();
        let mut cursor = None;
        loop {
            let page = listing.page(cursor.as_deref()).unwrap();
            assert!(serde_json::to_string(page.items).unwrap().len() < 10_000);
            seen.extend_from_slice(page.items);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, items);
        for bad in ["x", "-1", "99"] {
            assert!(listing.page(Some(bad)).is_none());
        }
        assert_eq!(listing.page(Some("")), listing.page(None));
    }

    #[test]
    fn an_item_that_is_too_large_is_an_error() {
        let error = Listing::new(vec!["x".repeat(9_000)], 10_000).unwrap_err();
        assert_eq!(
            error.to_string(),
            "item 1 of the list is 9003 bytes; a page of the list may have 8000"
        );
    }
}
