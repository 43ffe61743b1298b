//! The facts of an answer: the receipt's short form, which every reader gets first; and the receipt as JSON.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::contract::{BudgetSource, Passage, Receipt, Stage};

/// What a reader has to know before the body: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    /// All rows, unfiltered; absent where the answer has no rows, null where the total is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_count: Option<Option<u64>>,
    /// Rows after narrowing, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_count: Option<Option<u64>>,
    /// Rows in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returned: Option<u64>,
    /// The cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_after: Option<String>,
    /// The arguments of the call that gets the next page, as they stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Map<String, Value>>,
    /// What was left out, and how to get it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// Tokens of the reply.
    pub approx_tokens: u64,
    /// The budget.
    pub budget_tokens: Option<u64>,
    /// Where the budget came from.
    pub budget_source: &'static str,
    /// Rows that the budget dropped from this page.
    pub budget_rows_dropped: u64,
}

impl Facts {
    /// The line.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("facts have string keys only")
    }
}

/// The name of a budget source in facts and receipts.
pub fn source_name(source: BudgetSource) -> &'static str {
    match source {
        BudgetSource::Input => "input",
        BudgetSource::Key => "key",
        BudgetSource::Org => "org",
        BudgetSource::ClientDefault => "client_default",
        BudgetSource::None => "none",
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::Narrow => "narrow",
        Stage::Page => "page",
        Stage::Fit => "fit",
        Stage::Cap => "cap",
    }
}

/// The whole receipt as JSON, as `_meta`, a header and the CLI carry it.
pub(crate) fn to_json(receipt: &Receipt) -> Value {
    let passage = |passage: &Passage| {
        json!({
            "stage": stage_name(passage.stage),
            "rows_in": passage.rows_in,
            "rows_out": passage.rows_out,
            "bytes_in": passage.bytes_in,
            "bytes_out": passage.bytes_out,
            "tokens_in": passage.tokens_in,
            "tokens_out": passage.tokens_out,
        })
    };
    json!({
        "total": receipt.total,
        "returned": receipt.returned,
        "hidden": receipt.hidden,
        "filtered": receipt.filtered,
        "before": receipt.before,
        "after": receipt.after,
        "stages": receipt.passages.iter().map(passage).collect::<Vec<_>>(),
        "notices": receipt.notices,
        "approx_tokens": receipt.approx_tokens,
        "budget_tokens": receipt.budget_tokens,
        "budget_source": source_name(receipt.budget_source),
        "budget_rows_dropped": receipt.budget_rows_dropped,
        "next_after": receipt.next_after,
    })
}
