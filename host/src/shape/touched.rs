//! What was changed in the cells of an answer: the account of [`cells`](super::cells).
//!
//! Owns: counts by kind of change and by column, and how receipts and facts tell of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::refusal::shorten;

/// How many columns a receipt and a notice name for one kind of change, and how much of each name.
const MAX_COLUMNS: usize = 10;
pub(super) const MAX_NAME_BYTES: usize = 60;

/// How many columns are told apart in one row: objects may have keys that are data.
pub(super) const MAX_TOUCHED: usize = 64;

/// What was done to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Change {
    /// It was taken out.
    Dropped,
    /// A mark stands in its place.
    Masked,
    /// Its data was replaced by a mark with type and size.
    Replaced,
    /// Only its beginning is there.
    Shortened,
}

impl Change {
    const ALL: [Self; 4] = [Self::Dropped, Self::Masked, Self::Replaced, Self::Shortened];

    /// The name in receipts and notices.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Masked => "masked",
            Self::Replaced => "replaced",
            Self::Shortened => "shortened",
        }
    }
}

/// How many cells were changed, by what was done and by column.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched(pub(super) BTreeMap<(Change, String), u64>);

impl Touched {
    pub(super) fn note(&mut self, change: Change, column: &str) {
        let column = shorten(column, MAX_NAME_BYTES);
        if self.0.len() >= MAX_TOUCHED && !self.0.contains_key(&(change, column.clone())) {
            *self.0.entry((change, String::from("…"))).or_default() += 1;
        } else {
            *self.0.entry((change, column)).or_default() += 1;
        }
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        for (place, cells) in &other.0 {
            *self.0.entry(place.clone()).or_default() += cells;
        }
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Cells and columns of one kind of change.
    fn of(&self, change: Change) -> Option<(u64, Vec<String>)> {
        let touched = self.0.iter().filter(|((of, _), _)| *of == change);
        let mut columns: Vec<String> = touched.clone().map(|((_, name), _)| name.clone()).collect();
        if columns.is_empty() {
            return None;
        }
        if columns.len() > MAX_COLUMNS {
            let more = columns.len() - MAX_COLUMNS;
            columns.truncate(MAX_COLUMNS);
            columns.push(format!("{more} more"));
        }
        Some((touched.map(|(_, cells)| cells).sum(), columns))
    }

    /// As the receipt has it; null where nothing was changed.
    pub(super) fn json(&self) -> Value {
        let kinds: Map<String, Value> = Change::ALL
            .into_iter()
            .filter_map(|change| {
                let (cells, columns) = self.of(change)?;
                Some((
                    change.name().to_owned(),
                    json!({"cells": cells, "columns": columns}),
                ))
            })
            .collect();
        if kinds.is_empty() {
            Value::Null
        } else {
            Value::Object(kinds)
        }
    }

    /// One sentence for the reader, and how to read what can be read. `fields` is the argument that does it.
    pub(super) fn notice(&self, fields: Option<&str>) -> Option<String> {
        let said: Vec<String> = Change::ALL
            .into_iter()
            .filter_map(|change| {
                let (cells, columns) = self.of(change)?;
                let noun = if cells == 1 { "cell" } else { "cells" };
                Some(format!(
                    "{} {} ({cells} {noun})",
                    change.name(),
                    columns.join(", ")
                ))
            })
            .collect();
        if said.is_empty() {
            return None;
        }
        let is_private = self.of(Change::Dropped).is_some() || self.of(Change::Masked).is_some();
        let is_smaller =
            self.of(Change::Replaced).is_some() || self.of(Change::Shortened).is_some();
        let mut how = Vec::new();
        if is_private {
            how.push(String::from(
                "what is dropped or masked cannot be read here",
            ));
        }
        if is_smaller {
            how.push(match fields {
                Some(name) => {
                    format!("name a replaced or shortened column in {name} to read it whole")
                }
                None => String::from(
                    "no argument of this tool shows the rest of what is replaced or shortened",
                ),
            });
        }
        Some(format!(
            "Values of this answer were changed as its operator wants it: {}; {}.",
            said.join("; "),
            how.join(", and ")
        ))
    }
}
