//! What benches measure: the stages of one answer, and one call of a guest. Only the public API is called here.

#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "each bench has this as a module of its own, and uses a part of it"
)]

pub mod guest;
pub mod rows;

use std::collections::BTreeMap;

use plimsoll::contract::{Accepted, Column, Horizon, Page, RowSource, Shape, View};
use plimsoll::shape::{
    Ask, BudgetSources, Call, DEFAULT_CAP_BYTES, Intake, Policy, Reader, Reply, Signer, ToolFacts,
    shape_each, undeclared,
};
use serde_json::{Map, Value, json};

pub const MIB: usize = 1 << 20;

/// A tool, as far as its answers are shaped.
pub struct Subject {
    pub policy: Policy,
    facts: ToolFacts,
    signer: Signer,
}

/// Rows at `/rows` with a key, and nothing else.
pub fn plain() -> Shape {
    Shape {
        rows: RowSource::Pointer("/rows".into()),
        key: Some("id".into()),
        ..undeclared()
    }
}

/// The same with a horizon on one field of each row.
pub fn with_horizon() -> Shape {
    Shape {
        horizon: Some(Horizon {
            field: "state".into(),
            live: Accepted::OneOf(vec!["open".into(), "gated".into()]),
            excluded: "merged and closed rows".into(),
        }),
        ..plain()
    }
}

/// The same with a view of 8 of the 30 fields of wide rows, two of them nested.
pub fn with_view() -> Shape {
    let fields = [
        "id",
        "name",
        "state",
        "amount",
        "owner.name",
        "gate.verdict",
        "created",
        "field_12",
    ];
    Shape {
        views: vec![View {
            name: "summary".into(),
            fields: fields.map(str::to_owned).to_vec(),
        }],
        default_view: Some("summary".into()),
        ..plain()
    }
}

/// The same with columns, and pages of any size.
pub fn with_columns() -> Shape {
    let column = |(name, field): (&str, &str)| Column {
        name: name.into(),
        field: field.into(),
    };
    let columns = [
        ("id", "id"),
        ("name", "name"),
        ("state", "state"),
        ("amount", "amount"),
        ("owner", "owner.name"),
        ("created", "created"),
        ("note", "note"),
    ];
    Shape {
        columns: columns.map(column).to_vec(),
        page: Some(Page {
            default_limit: u32::MAX,
            max_limit: u32::MAX,
        }),
        ..plain()
    }
}

impl Subject {
    pub fn new(shape: &Shape) -> Self {
        let policy = Policy::new(shape, DEFAULT_CAP_BYTES, &[], &BTreeMap::new());
        Self {
            policy: policy.expect("the shapes of this file can be carried out"),
            facts: ToolFacts {
                name: "rows".into(),
                narrowing: Vec::new(),
                own_limit: None,
                has_structured_copy: false,
                is_invoked: false,
            },
            signer: Signer::new([7; 32]),
        }
    }

    pub fn ask(&self, arguments: Value) -> Ask {
        let arguments: Map<String, Value> =
            serde_json::from_value(arguments).expect("arguments are an object");
        Ask::read(&self.policy, &self.signer, "", "rows", &[], arguments)
            .unwrap_or_else(|refusal| panic!("{}", refusal.message))
    }

    /// Finds, counts and judges the rows of a document, and copies its page.
    pub fn take_in(&self, ask: &Ask, document: &str) -> Intake {
        let mut intake = Intake::new(&self.policy, ask, usize::MAX);
        intake.document(document.as_bytes());
        intake
    }

    /// Makes the reply; an intake can be shaped any number of times.
    pub fn shape(&self, ask: &Ask, intake: &mut Intake) -> Reply {
        let budget = BudgetSources {
            input: ask.max_tokens(),
            ..BudgetSources::default()
        }
        .resolve();
        let reader = Reader {
            budget,
            gates: None,
        };
        let call = Call {
            policy: &self.policy,
            tool: &self.facts,
            ask,
            signer: &self.signer,
            budget,
            gates: None,
        };
        let mut replies = shape_each(intake, &call, &[reader]);
        replies.pop().expect("one reader gets one reply")
    }

    /// The whole way of one answer.
    pub fn answer(&self, arguments: Value, document: &str) -> Reply {
        let ask = self.ask(arguments);
        let mut intake = self.take_in(&ask, document);
        self.shape(&ask, &mut intake)
    }
}

/// What most hosts do: the whole document as values, the live rows counted, and a page of them written.
pub fn through_values(document: &str) -> (usize, String) {
    let value: Value = serde_json::from_str(document).expect("the document is JSON");
    let rows = value["rows"].as_array().expect("rows are an array");
    let is_live = |row: &&Value| matches!(row["state"].as_str(), Some("open" | "gated"));
    let live: Vec<&Value> = rows.iter().filter(is_live).collect();
    let page = json!({"rows": live.iter().take(25).collect::<Vec<_>>()});
    (live.len(), page.to_string())
}
