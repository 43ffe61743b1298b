//! The facts of an answer: the receipt's short form, which every reader gets first; and the receipt as JSON.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::cursor::Cursor;
use super::gates::{Gate, Unit};
use super::intake::Intake;
use super::keep::{Complete, KeptKind};
use super::page::Counts;
use super::pipeline::Call;
use super::policy::{FULL, HostArgument};
use super::touched::Touched;
use crate::contract::{BudgetSource, Passage, Receipt, Stage};

/// The longest call that the facts give in full. A caller who passed longer arguments has them.
const MAX_NEXT_BYTES: usize = 4_000;

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
    /// The address at which people see the complete result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Facts {
    /// The line.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("facts have string keys only")
    }
}

/// What the stages have to tell beside numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices {
    /// The view that took fields away by default.
    pub(super) default_view: Option<String>,
    /// Members of the document that a table does not show.
    pub(super) beside_table: Vec<String>,
}

/// What the facts and the receipt of an answer are made from.
pub(super) struct Account<'a> {
    pub(super) intake: &'a Intake,
    pub(super) call: &'a Call<'a>,
    pub(super) counts: &'a Counts,
    pub(super) notices: Notices,
    /// What was made smaller in each row of the page; empty where nothing was.
    pub(super) sized: &'a [Touched],
}

impl Account<'_> {
    /// What was changed in the cells of a page of `rows` rows.
    pub(super) fn cells(&self, rows: usize) -> Touched {
        let mut cells = self.intake.withheld.clone();
        self.sized.iter().take(rows).for_each(|row| cells.add(row));
        cells
    }

    /// The facts and the receipt of a page of `rows` rows. `gate` is the one that left out the others, where it was not the
    /// budget.
    pub(super) fn of(&self, rows: usize, gate: Option<&Gate>) -> (Facts, Receipt) {
        let counts = self.counts;
        let has_rows = self.intake.kept.has_rows();
        let pieces = u64::from(!self.intake.kept.rows.is_empty());
        let returned = rows as u64;
        let dropped = if has_rows { counts.kept - returned } else { 0 };
        let has_more = has_rows && (counts.has_more || dropped > 0);
        let mut said = self.intake.noted.clone();
        let (next_after, next) = if has_more {
            self.next(rows, &mut said)
        } else {
            (None, None)
        };
        if has_more && next_after.is_none() && counts.kept == 0 {
            said.push(String::from(
                "The tool says that there are more rows, but handed over none behind these.",
            ));
        }
        if counts.out_of_reach > 0 {
            said.push(say_out_of_reach(counts));
        }
        if has_rows {
            self.say_horizon(&mut said);
        }
        self.say_fields(&mut said);
        let fields = self.call.policy.published(HostArgument::Fields);
        said.extend(self.cells(rows).notice(fields));
        if dropped > 0 {
            said.push(self.say_dropped(dropped, next_after.is_some(), gate));
        }
        let complete = self.complete(rows);
        let link = complete.as_ref().and_then(|complete| complete.link.clone());
        if let (true, Some(why)) = (has_more, self.intake.not_kept) {
            said.push(why.to_string());
        } else if let Some(keep) = &self.intake.keep {
            said.extend(keep.notice(complete.is_some()));
        }
        let receipt = Receipt {
            total: if has_rows { counts.total } else { Some(pieces) },
            returned: if has_rows { returned } else { pieces },
            hidden: counts.hidden,
            filtered: counts.filtered,
            before: counts.before,
            after: if has_rows {
                counts.after.map(|after| after + dropped)
            } else {
                Some(0)
            },
            passages: Vec::new(),
            notices: said.clone(),
            approx_tokens: 0,
            budget_tokens: self.call.budget.tokens,
            budget_source: self.call.budget.source,
            budget_rows_dropped: dropped,
            next_after: next_after.clone(),
        };
        let facts = Facts {
            total_count: has_rows.then_some(counts.total),
            matched_count: has_rows.then_some(counts.matched),
            returned: has_rows.then_some(returned),
            next_after,
            next,
            notices: said,
            approx_tokens: 0,
            budget_tokens: self.call.budget.tokens,
            budget_source: source_name(self.call.budget.source),
            budget_rows_dropped: dropped,
            link,
        };
        (facts, receipt)
    }

    /// The complete result, where this answer is kept and leaves rows of it out.
    pub(super) fn complete(&self, rows: usize) -> Option<Complete> {
        let has_more = self.counts.has_more || self.counts.kept > rows as u64;
        let keep = self.intake.keep.as_ref().filter(|_| has_more)?;
        let kind = KeptKind::of(self.intake.kept.kind)?;
        let rows = match keep.start {
            Some(_) => Some(self.counts.matched?),
            None => None,
        };
        Some(Complete::new(keep, kind, &self.call.tool.name, rows))
    }

    /// The cursor of the page behind `rows` rows and the call that gets it.
    fn next(
        &self,
        rows: usize,
        said: &mut Vec<String>,
    ) -> (Option<String>, Option<Map<String, Value>>) {
        let (counts, policy, ask) = (self.counts, self.call.policy, self.call.ask);
        let name = match policy.published(HostArgument::After) {
            Some(name) => name,
            // A resource goes on by its URI, whatever arguments the tool has.
            None if ask.resource.is_some() => HostArgument::After.name(),
            None => return (None, None),
        };
        let Some(place) = self.intake.place_behind(rows) else {
            return (None, None);
        };
        let (first, last) = (counts.before + 1, counts.before + rows as u64);
        let cursor = Cursor {
            place,
            before: last,
            carried: Some(ask.carried(&ask.arguments)),
        };
        let (text, is_carried) = self.call.signer.seal(&ask.binding, &cursor);
        let mut next: Map<String, Value> = if is_carried {
            ask.required.clone()
        } else {
            ask.arguments.clone()
        };
        next.insert(name.to_owned(), text.clone().into());
        if let Some(id) = &ask.resource {
            let uri = format!("{}?after={text}", id.uri());
            next = Map::from_iter([(String::from("uri"), uri.into())]);
        }
        let next = self.call.tool.next_call(next);
        let is_short_enough =
            Value::Object(next.clone()).to_string().len() <= max_next_bytes(self.call);
        let of = counts.matched.map_or_else(
            || String::from("an unknown number"),
            |matched| matched.to_string(),
        );
        let default = match policy.published(HostArgument::Limit) {
            Some(limit) if ask.limit.is_none() && rows as u64 == counts.kept => {
                format!(" ({limit} was not provided: {})", policy.page.default_limit)
            }
            _ => String::new(),
        };
        let how = if ask.resource.is_some() {
            String::from("Reading the resource in \"next\" gets the next page.")
        } else if is_short_enough {
            String::from("The call in \"next\" gets the next page.")
        } else {
            format!("For the next page pass the same arguments again, with next_after as {name}.")
        };
        said.push(format!("Rows {first} to {last} of {of}{default}. {how}"));
        (Some(text), is_short_enough.then_some(next))
    }

    fn say_horizon(&self, said: &mut Vec<String>) {
        let policy = self.call.policy;
        let Some(horizon) = &policy.horizon else {
            return;
        };
        match policy.published(HostArgument::Horizon) {
            Some(name) if self.call.ask.is_live_only.is_none() => said.push(format!(
                "This query used the default live-only horizon because \"{name}\" was not provided ({} are excluded). If \
                 results seem incomplete, pass {name}:\"all\" to include them.",
                horizon.excluded
            )),
            None if self.counts.hidden > 0 => said.push(format!(
                "This tool has a live-only horizon ({} are excluded), and no argument that lifts it.",
                horizon.excluded
            )),
            _ => {}
        }
    }

    fn say_fields(&self, said: &mut Vec<String>) {
        let policy = self.call.policy;
        if let Some(view) = &self.notices.default_view {
            said.push(match policy.published(HostArgument::Detail) {
                Some(name) => format!(
                    "Fields are those of the default view \"{view}\" because \"{name}\" was not provided; pass \
                     {name}:\"{FULL}\" for every field."
                ),
                None => format!("Fields are those of the view \"{view}\", and no argument of this tool shows the others."),
            });
        }
        if !self.notices.beside_table.is_empty() {
            let name = policy.published(HostArgument::Format).unwrap_or("format");
            said.push(format!(
                "A table has the declared columns of the rows only; beside them the document has {}: pass {name}:\"json\".",
                self.notices.beside_table.join(", ")
            ));
        }
    }

    fn say_dropped(&self, dropped: u64, has_next: bool, gate: Option<&Gate>) -> String {
        let name = self.call.policy.published(HostArgument::MaxTokens);
        let name = name.filter(|_| !self.call.budget.is_firm);
        let raise = name.map_or(String::new(), |name| format!(", or raise {name}"));
        let rest = match (dropped, has_next) {
            (1, true) => "it comes with the next page",
            (_, true) => "they come with the next page",
            (_, false) => "narrow the call",
        };
        let rows = if dropped == 1 { "row" } else { "rows" };
        match gate {
            // No argument lifts what a program does.
            Some(Gate {
                client,
                unit,
                limit,
            }) => {
                let unit = unit.name();
                format!(
                    "{client} cuts results of {limit} {unit} or more, so {dropped} {rows} of this page were left out; {rest}."
                )
            }
            None => {
                let budget = self.call.budget.tokens.unwrap_or_default();
                format!(
                    "The budget of {budget} tokens left out {dropped} {rows} of this page; {rest}{raise}."
                )
            }
        }
    }
}

/// A total that a handler does not live up to.
fn say_out_of_reach(counts: &Counts) -> String {
    let (had, missing) = (counts.total.unwrap_or_default(), counts.out_of_reach);
    format!(
        "The tool says that there are {} rows, and came to its end after {had}: {missing} of them cannot be had from it, and \
         are not counted.",
        had + missing
    )
}

/// The longest call that the facts give in full to this reader: a quarter of what the program takes, so that rows have room.
fn max_next_bytes(call: &Call<'_>) -> usize {
    let gates = call.gates.into_iter();
    let smallest = gates
        .flat_map(|gates| [gates.of(Unit::Bytes), gates.of(Unit::Characters)])
        .flatten()
        .min();
    smallest.map_or(MAX_NEXT_BYTES, |gate| MAX_NEXT_BYTES.min(gate as usize / 4))
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
pub(crate) fn to_json(receipt: &Receipt, gate: Option<&Gate>, cells: &Touched) -> Value {
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
    let mut receipt = json!({
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
    });
    if let Some(gate) = gate {
        receipt["gate"] =
            json!({"client": gate.client, "unit": gate.unit.name(), "limit": gate.limit});
    }
    if !cells.is_empty() {
        receipt["cells"] = cells.json();
    }
    receipt
}
