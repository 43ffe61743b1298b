//! What callers read, word for word, and what becomes of answers that are not what they should be.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::DEFAULT_INTAKE_BYTES;
use super::ask::Ask;
use super::cells::CellPolicy;
use super::cursor::Signer;
use super::fit::{BudgetSources, KeyBudget};
use super::gates::Gates;
use super::intake::Intake;
use super::pipeline::{Call, OwnLimit, ToolFacts, shape};
use super::policy::{HostArgument, Policy, undeclared};
use super::refusal::{Field, Refusal};
use super::reply::Reply;
use crate::contract::{
    Accepted, Attachment, Blob, Column, Embedded, Filter, Horizon, PushDown, RowSource, Shape, View,
};

/// A tool to call: its shape, and what else the stages know of it.
pub(super) struct Tool {
    pub(super) shape: Shape,
    pub(super) own: Vec<&'static str>,
    pub(super) names: BTreeMap<HostArgument, Option<String>>,
    pub(super) facts: ToolFacts,
    pub(super) intake_bytes: usize,
    pub(super) gates: Option<Gates>,
    pub(super) cells: CellPolicy,
    pub(super) key: KeyBudget,
}

pub(super) fn tool(shape: Shape) -> Tool {
    Tool {
        shape,
        own: vec!["state", "topic"],
        names: BTreeMap::new(),
        facts: ToolFacts {
            name: "show".into(),
            narrowing: Vec::new(),
            own_limit: None,
            has_structured_copy: false,
            is_invoked: false,
        },
        intake_bytes: DEFAULT_INTAKE_BYTES,
        gates: None,
        cells: CellPolicy::default(),
        key: KeyBudget::default(),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("expected an object, found {other}"),
    }
}

impl Tool {
    pub(super) fn policy(&self) -> Policy {
        Policy::new(&self.shape, 262_144, &self.own, &self.names)
            .unwrap()
            .with_cells(&self.cells)
    }

    pub(super) fn read(&self, arguments: Value) -> Result<Ask, Refusal> {
        Ask::read(
            &self.policy(),
            &Signer::new([7; 32]),
            "acme",
            "show",
            &["topic".into()],
            object(arguments),
        )
    }

    /// Calls the tool; `answer` is what the plugin does.
    pub(super) fn call(&self, arguments: Value, answer: impl FnOnce(&mut Intake)) -> Reply {
        let policy = self.policy();
        let ask = match self.read(arguments) {
            Ok(ask) => ask,
            Err(refusal) => return Reply::refused(&refusal),
        };
        let mut intake = Intake::new(&policy, &ask, self.intake_bytes);
        answer(&mut intake);
        let budget = BudgetSources {
            input: ask.max_tokens(),
            key: self.key,
            ..BudgetSources::default()
        }
        .resolve();
        let call = Call {
            policy: &policy,
            tool: &self.facts,
            ask: &ask,
            signer: &Signer::new([7; 32]),
            budget,
            gates: self.gates.as_ref(),
        };
        shape(intake, &call)
    }

    pub(super) fn document(&self, arguments: Value, document: &str) -> Reply {
        self.call(arguments, |intake| intake.document(document.as_bytes()))
    }

    /// The message of a call that is refused.
    pub(super) fn refused(&self, arguments: Value, document: &str) -> (String, String) {
        let reply = self.document(arguments, document);
        assert!(reply.refusal().is_some(), "{}", reply.body());
        let refusal = json_of(reply.body());
        (
            refusal["error"].as_str().unwrap().to_owned(),
            refusal["message"].as_str().unwrap().to_owned(),
        )
    }
}

pub(super) fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(super) fn notices(reply: &Reply) -> Vec<String> {
    let facts = json_of(reply.facts());
    facts["notices"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|notice| notice.as_str().unwrap().to_owned())
        .collect()
}

pub(super) fn streams() -> Shape {
    let column = |name: &str, field: &str| Column {
        name: name.into(),
        field: field.into(),
    };
    Shape {
        key: Some("id".into()),
        horizon: Some(Horizon {
            field: "state".into(),
            live: Accepted::NoneOf(vec!["merged".into(), "closed-without-merge".into()]),
            excluded: "merged and closed-without-merge streams".into(),
        }),
        views: vec![View {
            name: "summary".into(),
            fields: vec!["id".into(), "state".into(), "last_gate.verdict".into()],
        }],
        default_view: Some("summary".into()),
        columns: vec![
            column("id", "id"),
            column("state", "state"),
            column("verdict", "last_gate.verdict"),
        ],
        filters: vec![Filter {
            argument: "state".into(),
            field: "state".into(),
        }],
        ..undeclared()
    }
}

fn rows(count: usize) -> String {
    let rows: Vec<String> = (0..count)
        .map(|row| format!("{{\"id\":{row},\"state\":\"open\"}}"))
        .collect();
    format!("[{}]", rows.join(","))
}

#[test]
fn a_limit_that_is_no_integer_between_1_and_100_is_refused_with_the_exact_text() {
    for limit in [
        json!(101),
        json!(0),
        json!(-1),
        json!("x"),
        json!("5"),
        json!(2.5),
        json!(null),
        json!([]),
        json!(1e300),
    ] {
        let reply = tool(undeclared()).document(json!({"limit": limit}), "[]");
        assert_eq!(
            reply.body(),
            r#"{"error":"invalid_arguments","message":"limit must be an integer between 1 and 100","retryable":false,"fields":[{"name":"limit","message":"limit must be an integer between 1 and 100"}]}"#,
            "{limit}"
        );
    }
    for limit in [json!(1), json!(100), json!(25.0)] {
        assert_eq!(
            tool(undeclared())
                .document(json!({"limit": limit}), "[]")
                .refusal(),
            None,
            "{limit}"
        );
    }
}

#[test]
fn every_wrong_argument_is_named_with_what_was_expected_and_found() {
    let mistakes = [
        (
            json!({"detail": "brief"}),
            "detail must be one of summary, full, found \"brief\"",
        ),
        (
            json!({"horizon": true}),
            "horizon must be one of live, all, found true",
        ),
        (
            json!({"format": "xml"}),
            "format must be one of json, csv, tsv, found \"xml\"",
        ),
        (
            json!({"max_tokens": 0}),
            "max_tokens must be an integer of 1 or more, found 0",
        ),
        (
            json!({"after": 7}),
            "after must be a cursor, a string, found 7",
        ),
        (
            json!({"fields": "id"}),
            "fields must be an array of 1 to 100 field names, found \"id\"",
        ),
        // Case A17: an empty selection is a mistake, and never `{}` for every row.
        (
            json!({"fields": []}),
            "fields must be an array of 1 to 100 field names, found []",
        ),
        (
            json!({"fields": ["a..b"]}),
            "fields: `a..b` is not a path: expected names joined by single dots",
        ),
        (
            json!({"limit": 0, "horizon": "dead"}),
            "limit must be an integer between 1 and 100; horizon must be one of live, all, found \"dead\"",
        ),
    ];
    for (arguments, message) in mistakes {
        assert_eq!(
            tool(streams()).refused(arguments, "[]"),
            ("invalid_arguments".into(), message.into())
        );
    }
}

#[test]
fn an_unknown_field_is_an_error_that_lists_the_valid_ones() {
    // Case A17.
    let document = r#"[{"id":1,"title":"x","état":{"a":1}},{"id":2,"other":null}]"#;
    let expected = "fields: unknown field titel; valid names: id, other, title, état";
    assert_eq!(
        tool(undeclared()).refused(json!({"fields": ["id", "titel"]}), document),
        ("invalid_arguments".into(), expected.into())
    );
    // A declared field is known, also where no row has it, and so are nested ones.
    let expected = "fields: unknown field gates; valid names: id, state, last_gate.verdict";
    assert_eq!(
        tool(streams())
            .refused(json!({"fields": ["gates"]}), &rows(2))
            .1,
        expected
    );
    assert_eq!(
        tool(streams())
            .document(json!({"fields": ["last_gate"]}), &rows(1))
            .body(),
        "[\n{}\n]"
    );
    // In a table the columns are the fields.
    let expected = "fields: unknown field title; valid names: id, state, verdict";
    assert_eq!(
        tool(streams())
            .refused(json!({"fields": ["title"], "format": "csv"}), &rows(2))
            .1,
        expected
    );
    assert_eq!(
        tool(undeclared())
            .refused(json!({"fields": ["a"]}), "[1,2]")
            .1,
        "fields: unknown field a; valid names: none: the rows are no objects"
    );
}

#[test]
fn whether_a_field_exists_does_not_hang_on_the_page() {
    // Cases A7 and A17: the field stands in the last row only, and the page has one row.
    let document = r#"[{"id":1},{"id":2},{"id":3,"rare":true}]"#;
    let tool = tool(undeclared());
    let mut arguments = json!({"limit": 1, "fields": ["rare"]});
    let mut bodies = Vec::new();
    for _ in 0..4 {
        let reply = tool.document(arguments, document);
        bodies.push(reply.body().to_owned());
        let Some(next) = json_of(reply.facts()).get("next").cloned() else {
            break;
        };
        arguments = next;
    }
    assert_eq!(bodies, ["[\n{}\n]", "[\n{}\n]", "[\n{\"rare\":true}\n]"]);
}

#[test]
fn fields_of_a_text_are_an_error_and_not_ignored() {
    // Case A7.
    let expected = "this answer is text, which has no fields; leave fields out";
    assert_eq!(
        tool(undeclared()).refused(json!({"fields": ["id"]}), "plain text\n"),
        ("invalid_answer".into(), expected.into())
    );
    let expected = "this answer is text, which has no fields; leave format out";
    assert_eq!(
        tool(streams())
            .refused(json!({"format": "csv"}), "plain text\n")
            .1,
        expected
    );
}

#[test]
fn the_default_horizon_says_so_with_the_argument_that_lifts_it() {
    let document = r#"[{"id":1,"state":"open"},{"id":2,"state":"merged"}]"#;
    let expected = "This query used the default live-only horizon because \"horizon\" was not provided (merged and \
                    closed-without-merge streams are excluded). If results seem incomplete, pass horizon:\"all\" to include them.";
    let reply = tool(streams()).document(json!({}), document);
    assert_eq!(notices(&reply), [expected]);
    assert_eq!(json_of(reply.facts())["total_count"], 2);
    assert_eq!(json_of(reply.facts())["matched_count"], 1);
    for horizon in ["live", "all"] {
        assert!(
            notices(&tool(streams()).document(json!({"horizon": horizon}), document)).is_empty()
        );
    }
    // An answer of one piece has no rows that could be hidden.
    assert!(
        notices(&tool(streams()).document(json!({}), r#"{"error":"none"}"#))
            .iter()
            .all(|notice| !notice.contains("horizon"))
    );
}

#[test]
fn a_horizon_or_view_that_no_argument_lifts_speaks_too() {
    let mut tool = tool(streams());
    tool.names = BTreeMap::from([(HostArgument::Horizon, None), (HostArgument::Detail, None)]);
    let reply = tool.document(
        json!({}),
        r#"[{"id":1,"state":"open","more":1},{"id":2,"state":"merged"}]"#,
    );
    assert_eq!(
        notices(&reply),
        [
            "This tool has a live-only horizon (merged and closed-without-merge streams are excluded), and no argument that lifts it.",
            "Fields are those of the view \"summary\", and no argument of this tool shows the others.",
        ]
    );
}

#[test]
fn a_row_that_a_filter_and_the_horizon_refuse_counts_as_filtered() {
    let document =
        r#"[{"id":1,"state":"open"},{"id":2,"state":"merged"},{"id":3,"state":"merged","x":1}]"#;
    let account = |arguments: Value| {
        let reply = tool(streams()).document(arguments, document);
        let receipt = reply.receipt().unwrap();
        (
            receipt.total,
            receipt.returned,
            receipt.hidden,
            receipt.filtered,
        )
    };
    assert_eq!(account(json!({"state": "open"})), (Some(3), 1, 0, 2));
    // Asking for what the horizon hides finds nothing, and the notice says why.
    assert_eq!(account(json!({"state": "merged"})), (Some(3), 0, 2, 1));
    assert_eq!(
        account(json!({"state": "merged", "horizon": "all"})),
        (Some(3), 2, 0, 1)
    );
}

#[test]
fn the_default_view_speaks_only_where_it_took_something_away() {
    let mut tool = tool(streams());
    tool.shape.horizon = None;
    let document = "[ {\"id\": 1, \"state\": \"open\"} ]";
    let reply = tool.document(json!({}), document);
    assert_eq!((reply.body(), notices(&reply).len()), (document, 0));
    let reply = tool.document(json!({}), r#"[{"id": 1, "prose": "long"},{"id": 2}]"#);
    assert_eq!(reply.body(), "[\n{\"id\":1},\n{\"id\": 2}\n]");
    let expected = "Fields are those of the default view \"summary\" because \"detail\" was not provided; pass detail:\"full\" for every field.";
    assert_eq!(notices(&reply), [expected]);
}

#[test]
fn the_facts_are_one_line_with_the_counts_first() {
    // Cases D1, D11, B5: a page says which rows of how many it has, and how the next one is had.
    let reply = tool(undeclared()).document(json!({"topic": "t"}), &rows(30));
    let facts = json_of(reply.facts());
    let after = facts["next_after"].as_str().unwrap();
    assert_eq!(
        reply.facts(),
        format!(
            "{{\"total_count\":30,\"matched_count\":30,\"returned\":25,\"next_after\":\"{after}\",\"next\":{{\"topic\":\"t\",\"after\":\"{after}\"}},\
             \"notices\":[\"Rows 1 to 25 of 30 (limit was not provided: 25). The call in \\\"next\\\" gets the next page.\"],\
             \"approx_tokens\":{},\"budget_tokens\":null,\"budget_source\":\"none\",\"budget_rows_dropped\":0}}",
            facts["approx_tokens"]
        )
    );
    let reply = tool(undeclared()).document(json!({"topic": "t", "after": after}), &rows(30));
    let facts = json_of(reply.facts());
    assert_eq!(
        (
            &facts["returned"],
            facts.get("next_after"),
            facts.get("notices")
        ),
        (&json!(5), None, None)
    );
}

#[test]
fn a_budget_says_what_it_left_out_and_how_to_get_it() {
    // Case A15: the caller's budget wins, and is raised only to what the facts need.
    let long: Vec<String> = (0..20)
        .map(|row| format!("{{\"id\":{row},\"text\":\"{}\"}}", "some words ".repeat(60)))
        .collect();
    let document = format!("[{}]", long.join(","));
    let reply = tool(undeclared()).document(json!({"max_tokens": 1}), &document);
    let facts = json_of(reply.facts());
    let dropped = facts["budget_rows_dropped"].as_u64().unwrap();
    assert_eq!(
        (&facts["budget_tokens"], &facts["budget_source"]),
        (&json!(2000), &json!("input"))
    );
    assert!(facts["approx_tokens"].as_u64().unwrap() <= 2000 && dropped > 0);
    let returned = 20 - dropped;
    assert_eq!(
        notices(&reply),
        [
            format!("Rows 1 to {returned} of 20. The call in \"next\" gets the next page."),
            format!(
                "The budget of 2000 tokens left out {dropped} rows of this page; they come with the next page, or raise max_tokens."
            ),
        ]
    );
    // Cases D3 and D5: the next page begins behind the rows that were delivered.
    let reply = tool(undeclared()).document(facts["next"].clone(), &document);
    assert_eq!(reply.receipt().unwrap().before, returned);
    let reply = tool(undeclared()).document(json!({}), &document);
    assert_eq!(json_of(reply.facts())["budget_source"], "none");
}

#[test]
fn one_row_above_the_budget_is_delivered_all_the_same() {
    let document = format!("[\"{}\",2]", "many words ".repeat(3_000));
    let reply = tool(undeclared()).document(json!({"max_tokens": 2_000}), &document);
    let receipt = reply.receipt().unwrap();
    assert_eq!((receipt.returned, receipt.budget_rows_dropped), (1, 1));
    assert!(receipt.approx_tokens > 2_000);
    assert!(notices(&reply)[1].starts_with(
        "The budget of 2000 tokens left out 1 row of this page; it comes with the next page"
    ));
}

#[test]
fn an_array_above_the_cap_is_refused_with_its_count_and_a_limit_that_fits() {
    // Cases C1, C3 and A9, and the example of the design: the handler pages by itself, with a `limit` of its own.
    let mut tool = tool(undeclared());
    tool.own = vec!["limit", "status"];
    let field = |name: &str, message: &str| Field {
        name: name.into(),
        message: message.into(),
    };
    tool.facts.narrowing = vec![
        field("limit", "Maximum number of rows to return."),
        field("status", "Only of this status."),
    ];
    tool.facts.own_limit = Some(OwnLimit {
        name: "limit".into(),
        min: 1,
        max: Some(1_000),
    });
    let document = |rows: usize| {
        let rows: Vec<String> = (0..rows)
            .map(|row| format!("{{\"id\":{row:05},\"text\":\"{}\"}}", "x".repeat(196)))
            .collect();
        format!("[{}]", rows.join(",").replace(":0", ":1"))
    };
    let reply = tool.document(json!({"status": "open"}), &document(8412));
    let refusal = json_of(reply.body());
    let bytes = refusal["payload"]["bytes"].as_u64().unwrap();
    assert_eq!(refusal["error"], "response_too_large");
    assert_eq!(
        refusal["message"],
        format!(
            "The response is {bytes} bytes; the limit is 262144 bytes. It is refused, not truncated: no part of the body was \
             returned. The body is an array of 8412 items. Narrow it and call again: limit, status."
        )
    );
    assert_eq!(refusal["retryable"], false);
    assert_eq!(
        refusal["payload"],
        json!({"bytes": bytes, "limit": 262_144, "shape": {"kind": "array", "count": 8412}})
    );
    assert_eq!(
        refusal["fields"],
        json!([{"name": "limit", "message": "Maximum number of rows to return."}, {"name": "status", "message": "Only of this status."}])
    );
    let limit = refusal["next"]["limit"].as_u64().unwrap();
    assert_eq!(refusal["next"], json!({"status": "open", "limit": limit}));
    let reply = tool.document(refusal["next"].clone(), &document(limit as usize));
    assert_eq!(reply.refusal(), None, "{}", reply.body());
    // It is no timid guess either.
    assert!(limit > 1_000 * 9 / 10, "{limit}");
}

#[test]
fn a_page_above_the_cap_is_refused_with_a_smaller_page() {
    // Case C1.
    let mut tool = tool(Shape {
        cap_bytes: Some(10_000),
        ..undeclared()
    });
    tool.own.clear();
    let rows: Vec<String> = (0..50)
        .map(|row| format!("{{\"id\":{row},\"text\":\"{}\"}}", "x".repeat(1_000)))
        .collect();
    let document = format!("{{\"data\":[{}]}}", rows.join(","));
    let refusal = json_of(tool.document(json!({}), &document).body());
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .contains("The body holds an array of 25 items."),
        "{refusal}"
    );
    let next = &refusal["next"];
    assert_eq!(
        next.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["limit"]
    );
    let reply = tool.document(next.clone(), &document);
    assert_eq!(
        reply.receipt().unwrap().returned,
        next["limit"].as_u64().unwrap()
    );
}

#[test]
fn a_row_above_the_cap_is_refused_with_its_heaviest_fields() {
    // Cases A3, A13 and C1.
    let mut tool = tool(Shape {
        cap_bytes: Some(10_000),
        ..undeclared()
    });
    let row = format!(
        r#"{{"id":1,"frames":["{}"],"log":"{}","tiny":0,"note":"{}"}}"#,
        "f".repeat(20_000),
        "l".repeat(9_000),
        "n".repeat(300)
    );
    let refusal = json_of(tool.document(json!({}), &format!("[{row},2]")).body());
    let expected = format!(
        "no part of the body was returned. The body is an array of 2 items. Its first item alone is {} bytes; its heaviest fields: \
         frames (20004 bytes), log (9002 bytes), note (302 bytes).",
        row.len()
    );
    assert!(
        refusal["message"].as_str().unwrap().ends_with(&expected),
        "{refusal}"
    );
    assert_eq!(refusal.get("next"), None);
    // One document without rows.
    tool.shape.rows = RowSource::Whole;
    let refusal = json_of(tool.document(json!({}), &row).body());
    let expected = "The body is one JSON document without rows. Its heaviest fields: frames (20004 bytes), log (9002 bytes), note (302 bytes).";
    assert!(
        refusal["message"].as_str().unwrap().ends_with(expected),
        "{refusal}"
    );
    assert_eq!(refusal["payload"]["shape"], json!({"kind": "object"}));
    let refusal = json_of(tool.document(json!({}), &"語".repeat(4_000)).body());
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .ends_with("The body is one piece."),
        "{refusal}"
    );
}

#[test]
fn what_is_beside_the_rows_is_named_where_it_is_too_large() {
    let tool = tool(Shape {
        cap_bytes: Some(10_000),
        ..undeclared()
    });
    let document = format!(
        r#"{{"meta":"{}","data":[{{"id":1}},{{"id":2}}]}}"#,
        "m".repeat(20_000)
    );
    let refusal = json_of(tool.document(json!({}), &document).body());
    assert!(
        refusal["message"].as_str().unwrap().ends_with(
            "The body holds an array of 2 items. What is beside its rows is 20021 bytes."
        ),
        "{refusal}"
    );
    assert_eq!(refusal.get("next"), None);
}

#[test]
fn rows_that_nothing_limits_are_refused_with_the_heaviest_fields_of_all() {
    let mut tool = tool(Shape {
        cap_bytes: Some(10_000),
        ..undeclared()
    });
    tool.names = BTreeMap::from([(HostArgument::After, None)]);
    let rows: Vec<String> = (0..100)
        .map(|row| format!(r#"{{"id":{row:05},"a":"{}","b":[]}}"#, "a".repeat(98)))
        .collect();
    let refusal = json_of(
        tool.document(
            json!({}),
            &format!("[{}]", rows.join(",").replace(":0", ":1")),
        )
        .body(),
    );
    let expected = "The body is an array of 100 items. The heaviest fields of its items: a (10000 bytes), id (500 bytes), b (200 bytes).";
    assert!(
        refusal["message"].as_str().unwrap().ends_with(expected),
        "{refusal}"
    );
}

#[test]
fn a_row_that_only_a_view_makes_small_enough_is_offered_in_that_view_also_in_the_middle_of_a_walk()
{
    let mut shape = streams();
    shape.cap_bytes = Some(10_000);
    shape.default_view = None;
    let tool = tool(shape);
    let document = format!(
        r#"[{{"id":1}},{{"id":2,"prose":"{}"}},{{"id":3}}]"#,
        "p".repeat(20_000)
    );
    let first = tool.document(json!({"limit": 1}), &document);
    let second = tool.document(json_of(first.facts())["next"].clone(), &document);
    let refusal = json_of(second.body());
    let next = refusal["next"].clone();
    assert_eq!(
        next.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["after"]
    );
    let second = tool.document(next, &document);
    assert_eq!(
        (second.body(), second.receipt().unwrap().before),
        ("[\n{\"id\":2}\n]", 1)
    );
    let third = tool.document(json_of(second.facts())["next"].clone(), &document);
    assert_eq!(
        (third.body(), third.next_after()),
        ("[\n{\"id\":3}\n]", None)
    );
}

#[test]
fn a_cursor_that_cannot_be_used_says_which_it_is_and_how_to_start_over() {
    let tool = tool(streams());
    let after = |reply: &Reply| reply.next_after().unwrap().to_owned();
    let page = tool.document(
        json!({"topic": "t", "state": ["open"], "limit": 2}),
        &rows(5),
    );
    let cursor = after(&page);
    let changed = format!("B{}", &cursor[1..]);
    let made_up = "after is not a cursor that this host made: it was changed, cut or made up. Pass next_after of the page before as \
                   it stands, or leave after out to start over.";
    for text in ["", "12", &changed, &cursor[1..], &"x".repeat(5_000)] {
        let refused = tool.refused(json!({"topic": "t", "after": text}), &rows(5));
        assert_eq!(refused, ("invalid_cursor".into(), made_up.into()), "{text}");
    }
    // Case C7: another argument than the one it was made with is named; the same one, or none, is no mistake.
    assert_eq!(
        tool.refused(
            json!({"topic": "t", "after": cursor, "state": "gated"}),
            &rows(5)
        )
        .1,
        "after belongs to a call with other arguments; it was made with state = [\"open\"], and this call has state = \"gated\": \
         leave state out, or leave after out to start over."
    );
    assert_eq!(
        tool.refused(json!({"topic": "u", "after": cursor}), &rows(5))
            .1,
        "after belongs to a call with other arguments; pass it alone, with the same values of topic, or leave after out to start over."
    );
    for arguments in [
        json!({"topic": "t", "after": cursor}),
        json!({"topic": "t", "state": ["open"], "after": cursor, "limit": 3}),
    ] {
        assert_eq!(
            tool.document(arguments, &rows(5)).receipt().unwrap().before,
            2
        );
    }
    let signer = Signer::new([7; 32]);
    let other = Ask::read(
        &tool.policy(),
        &signer,
        "acme",
        "wave_show",
        &[],
        object(json!({"after": cursor})),
    )
    .unwrap_err();
    let foreign = "after is a cursor of another tool, not of wave_show. Pass next_after of a page of wave_show, or leave after out to \
                   start over.";
    assert_eq!(other.message, foreign);
    assert!(
        Ask::read(
            &tool.policy(),
            &signer,
            "other",
            "show",
            &[],
            object(json!({"after": cursor}))
        )
        .is_err()
    );
    assert!(
        Ask::read(
            &tool.policy(),
            &Signer::new([8; 32]),
            "acme",
            "show",
            &[],
            object(json!({"after": cursor}))
        )
        .is_err()
    );
}

#[test]
fn a_stale_cursor_says_what_has_changed_and_gives_the_call_that_starts_over() {
    // Cases D7 and D9.
    let keyed = tool(streams());
    let page = keyed.document(
        json!({"topic": "t", "limit": 2, "horizon": "all"}),
        &rows(5),
    );
    let refusal = json_of(
        keyed
            .document(
                json!({"topic": "t", "after": page.next_after().unwrap()}),
                &rows(1),
            )
            .body(),
    );
    assert_eq!(
        (refusal["error"].as_str(), refusal["message"].as_str()),
        (
            Some("stale_cursor"),
            Some(
                "after is stale: the row behind which this page begins is gone, or the rows now come in another order. Start over with next, without after."
            )
        )
    );
    assert_eq!(
        refusal["next"],
        json!({"topic": "t", "limit": 2, "horizon": "all"})
    );
    let mut unkeyed = tool(undeclared());
    unkeyed.names = BTreeMap::from([(HostArgument::After, Some("cursor".into()))]);
    let page = unkeyed.document(json!({"limit": 2}), &rows(5));
    assert_eq!(
        unkeyed
            .refused(json!({"cursor": page.next_after().unwrap()}), &rows(6))
            .1,
        "cursor is stale: the rows have changed since the page before. Start over with next, without cursor."
    );
}

#[test]
fn a_table_says_what_it_does_not_show() {
    let mut tool = tool(streams());
    tool.shape.rows = RowSource::Pointer("/page/0/items".into());
    let document = r#"{"n":2,"page":[{"cursor":"x","items":[{"id":1,"state":"open"}],"größe":1},[]],"end":{}}"#;
    let reply = tool.document(json!({"format": "csv", "horizon": "all"}), document);
    // Case K1.
    assert_eq!(reply.body(), "id,state,verdict\n1,open,");
    assert_eq!(reply.media_type(), "text/csv; charset=utf-8");
    assert_eq!(
        notices(&reply),
        [
            "A table has the declared columns of the rows only; beside them the document has n, end, page.[1], page.[0].cursor, page.[0].größe: pass format:\"json\"."
        ]
    );
    let reply = tool.document(
        json!({"format": "tsv", "fields": ["verdict", "id"], "horizon": "all"}),
        document,
    );
    assert_eq!(reply.body(), "verdict\tid\n\t1");
    let members: Vec<String> = (0..500)
        .map(|member| format!("\"{}{member}\":0", "m".repeat(100)))
        .collect();
    let document = format!(
        "{{{},\"page\":[{{\"items\":[{{\"id\":1}}]}}]}}",
        members.join(",")
    );
    let reply = tool.document(json!({"format": "csv", "horizon": "all"}), &document);
    assert!(
        notices(&reply)[0].contains(", 490 more: pass format"),
        "{}",
        notices(&reply)[0]
    );
}

/// A cell is written without another look for line breaks, which JSON does not let stand in a string.
#[test]
fn no_line_break_comes_into_a_table_in_a_string_that_is_not_json() {
    for format in ["csv", "tsv"] {
        let arguments = json!({"format": format, "horizon": "all"});
        let rows = "{\"items\":[{\"id\":1,\"state\":\"a\nb\"}]}";
        let (error, _) = tool(streams()).refused(arguments.clone(), rows);
        assert_eq!(error, "invalid_answer");
        let pushed = tool(streams()).call(arguments, |intake| {
            intake.rows(b"{\"id\":1,\"state\":\"a\rb\"}");
        });
        assert_eq!(json_of(pushed.body())["error"], "invalid_answer");
    }
}

#[test]
fn a_text_pages_by_lines() {
    // Case A5.
    let text: String = (1..=30).map(|line| format!("line {line} 語\r\n")).collect();
    let tool = tool(undeclared());
    let first = tool.document(json!({}), &text);
    assert!(
        first.body().starts_with("line 1 語\r\nline 2") && first.body().ends_with("line 25 語\r")
    );
    assert_eq!(
        (first.media_type(), first.is_json()),
        ("text/plain; charset=utf-8", false)
    );
    let second = tool.document(json_of(first.facts())["next"].clone(), &text);
    assert_eq!(
        format!("{}\n{}", first.body(), second.body()),
        text.trim_end_matches('\n')
    );
    assert_eq!(tool.document(json!({"limit": 30}), &text).body(), text);
    let empty = tool.document(json!({}), "");
    assert_eq!(
        (empty.body(), empty.receipt().unwrap().total),
        ("", Some(0))
    );
}

#[test]
fn a_declared_piece_takes_views_fields_and_tables_as_one_row() {
    let mut shape = streams();
    shape.rows = RowSource::Whole;
    let tool = tool(shape);
    let document = " {\"id\": 7, \"state\": \"merged\", \"prose\": \"long\", \"last_gate\": {\"verdict\": 0.10, \"by\": \"x\"}}\n";
    let reply = tool.document(json!({}), document);
    assert_eq!(
        reply.body(),
        r#"{"id":7,"state":"merged","last_gate":{"verdict":0.10}}"#
    );
    assert!(
        reply.is_json() && notices(&reply).len() == 1,
        "{:?}",
        notices(&reply)
    );
    assert_eq!(reply.receipt().unwrap().returned, 1);
    assert_eq!(
        tool.document(json!({"detail": "full"}), document).body(),
        document
    );
    assert_eq!(
        tool.document(json!({"fields": ["prose"]}), document).body(),
        r#"{"prose":"long"}"#
    );
    assert_eq!(
        tool.refused(json!({"fields": ["pose"]}), document).1,
        "fields: unknown field pose; valid names: id, last_gate, prose, state, last_gate.verdict"
    );
    assert_eq!(
        tool.document(json!({"format": "csv"}), document).body(),
        "id,state,verdict\n7,merged,0.10"
    );
    for text in ["prose and nothing else", "{\"id\": NaN}"] {
        let reply = tool.document(json!({}), text);
        assert_eq!((reply.body(), reply.is_json()), (text, false));
    }
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    // Cases F5 and J5.
    let tool = tool(undeclared());
    let message = |document: &str| tool.refused(json!({}), document);
    assert_eq!(
        message(r#"{"rows":[{"n":1},{"n":2,"avg":NaN}],"end":1}"#),
        (
            "invalid_answer".into(),
            "the answer is not valid JSON: expected value, found `NaN}` at $.rows[1].avg (byte 30)"
                .into()
        )
    );
    assert_eq!(
        message(r#"{"rows":[{"n":1}],"end":{"sum":-Infinity}}"#).1,
        "the answer is not valid JSON: invalid number, found `Infinity}}` at $.end.sum (byte 32)"
    );
    assert!(message(r#"{"avg":NaN}"#).1.ends_with(" at $.avg (byte 7)"));
    let reply = tool.call(json!({}), |intake| {
        intake.rows(b"{\"n\":1}\n");
        intake.rows(b"{\"n\":2}\n{\"n\":[1,Infinity]}\n{\"n\":4}\n");
    });
    assert_eq!(
        json_of(reply.body())["message"],
        "the answer is not valid JSON: expected value, found `Infinity]}` at $[2].n[1] (byte 8 of the row)"
    );
    // What is counted and not delivered is not looked into.
    assert_eq!(
        tool.document(json!({"limit": 1}), "[1,NaN]")
            .receipt()
            .unwrap()
            .total,
        Some(2)
    );
}

#[test]
fn what_is_not_utf8_is_refused_with_its_place() {
    // Cases E1 and E7: nothing is cut or replaced.
    let tool = tool(undeclared());
    let reply = tool.call(json!({}), |intake| intake.document(b"[\"ab\xe8\xaa\"]"));
    assert_eq!(
        json_of(reply.body())["message"],
        "the answer is not UTF-8: byte 4 is 0xe8"
    );
    let reply = tool.call(json!({}), |intake| {
        intake.rows(b"1\n\"\xff\"\n");
    });
    assert_eq!(
        json_of(reply.body())["message"],
        "the answer is not UTF-8: byte 1 of row 1 is 0xff"
    );
    let resource = |media_type: &str| {
        Attachment::Resource(Embedded {
            uri: "a:b".into(),
            media_type: media_type.into(),
            data: vec![b'x', 0xff],
        })
    };
    let reply = tool.call(json!({}), |intake| intake.attach(resource("text/plain")));
    assert_eq!(
        json_of(reply.body())["message"],
        "the attachment a:b is not UTF-8: byte 1 is 0xff"
    );
    assert_eq!(
        tool.call(json!({}), |intake| intake
            .attach(resource("application/pdf")))
            .refusal(),
        None
    );
}

#[test]
fn an_answer_handed_over_twice_is_refused() {
    let tool = tool(undeclared());
    let message = |answer: fn(&mut Intake)| {
        json_of(tool.call(json!({}), answer).body())["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let twice =
        "the plugin handed over a document after a document or rows; expected one of the two, once";
    assert_eq!(
        message(|intake| {
            intake.document(b"[]");
            intake.document(b"[]");
        }),
        twice
    );
    assert_eq!(
        message(|intake| {
            intake.rows(b"1");
            intake.document(b"[]");
        }),
        twice
    );
    assert_eq!(
        message(|intake| {
            intake.document(b"[]");
            intake.rows(b"1");
        }),
        "the plugin pushed rows after a document; expected one of the two"
    );
    assert_eq!(
        message(|intake| {
            intake.rows(b"1");
            intake.applied(PushDown::AFTER);
        }),
        "the plugin said what it has applied after its first rows; expected it before them"
    );
}

#[test]
fn nothing_handed_over_is_an_empty_answer_and_no_rows_where_rows_are_declared() {
    let reply = tool(undeclared()).call(json!({}), |_| {});
    assert_eq!(
        (reply.body(), reply.receipt().unwrap().total),
        ("", Some(0))
    );
    let reply = tool(streams()).call(json!({"horizon": "all"}), |_| {});
    assert_eq!(
        (reply.body(), json_of(reply.facts())["total_count"].clone()),
        ("[]", json!(0))
    );
    let reply = tool(streams()).call(json!({"format": "csv", "horizon": "all"}), |_| {});
    assert_eq!(reply.body(), "id,state,verdict");
    let reply = tool(undeclared()).call(json!({}), |intake| intake.total(0));
    assert_eq!(reply.body(), "[]");
}

#[test]
fn rows_that_a_tool_claims_and_does_not_hand_over_are_told() {
    for rows in [0, 2] {
        let reply = tool(undeclared()).call(json!({}), |intake| {
            intake.total(10);
            for _ in 0..rows {
                intake.rows(b"{\"n\":1}\n");
            }
        });
        let facts = json_of(reply.facts());
        assert_eq!(
            (&facts["total_count"], &facts["returned"], facts.get("next")),
            (&json!(rows), &json!(rows), None)
        );
        let missing = 10 - rows;
        assert_eq!(
            notices(&reply),
            [format!(
                "The tool says that there are 10 rows, and came to its end after {rows}: {missing} of them cannot be had \
                 from it, and are not counted."
            )]
        );
    }
}

#[test]
fn attachments_count_and_are_refused_whole() {
    let image = |bytes: usize| {
        Attachment::Image(Blob {
            media_type: "image/png".into(),
            data: vec![0; bytes],
        })
    };
    let tool = tool(undeclared());
    let reply = tool.call(json!({}), |intake| intake.attach(image(100_000)));
    assert_eq!(
        (reply.attachments().len(), reply.body(), reply.refusal()),
        (1, "", None)
    );
    let refusal = json_of(
        tool.call(json!({}), |intake| intake.attach(image(300_000)))
            .body(),
    );
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .ends_with("There is no body. Its attachments are 400009 bytes."),
        "{refusal}"
    );
    let uri = Attachment::Resource(Embedded {
        uri: "u".repeat(300_000),
        media_type: "text/plain".into(),
        data: Vec::new(),
    });
    assert!(
        tool.call(json!({}), |intake| intake.attach(uri))
            .refusal()
            .is_some()
    );
}

#[test]
fn more_than_is_taken_in_is_refused_as_too_large() {
    // Case C3: an error of our own, with the sizes.
    let mut tool = tool(Shape {
        cap_bytes: Some(8_000),
        ..undeclared()
    });
    tool.intake_bytes = 20_000;
    let refusal = json_of(tool.document(json!({}), &rows(1_000)).body());
    let bytes = rows(1_000).len();
    assert_eq!(
        refusal["message"],
        format!(
            "The plugin's answer is {bytes} bytes; the limit is 20000 bytes. It is refused, not truncated: no part of it was returned."
        )
    );
    // Pushed rows are counted on, so that the refusal knows how many there are, and offers as many as can be had.
    let push = |intake: &mut Intake| {
        for row in 0..60 {
            intake.rows(format!("{{\"id\":{row},\"text\":\"{}\"}}", "x".repeat(1_000)).as_bytes());
        }
    };
    let refusal = json_of(tool.call(json!({"limit": 40}), push).body());
    assert_eq!(
        refusal["payload"]["shape"],
        json!({"kind": "array", "count": 40})
    );
    assert!(
        refusal["message"]
            .as_str()
            .unwrap()
            .starts_with("The response is more than "),
        "{refusal}"
    );
    assert_eq!(tool.call(refusal["next"].clone(), push).refusal(), None);
}

#[test]
fn a_next_call_that_is_too_long_for_the_facts_is_described() {
    let tool = tool(undeclared());
    let reply = tool.document(json!({"topic": "t".repeat(5_000)}), &rows(30));
    let facts = json_of(reply.facts());
    assert_eq!(facts.get("next"), None);
    assert!(facts["next_after"].is_string());
    assert_eq!(
        notices(&reply),
        [
            "Rows 1 to 25 of 30 (limit was not provided: 25). For the next page pass the same arguments again, with next_after as after."
        ]
    );
}

#[test]
fn numbers_and_keys_go_out_as_they_came_in() {
    // Cases J1, J3 and F9.
    let row = r#"{"id":1917043659912705296,"a":1e400,"b":0.10,"a":-0,"\u0061":"\u00e9"}"#;
    let document = format!("[{row},{row}]");
    assert_eq!(
        tool(undeclared())
            .document(json!({"limit": 1}), &document)
            .body(),
        format!("[\n{row}\n]")
    );
    assert_eq!(
        tool(undeclared())
            .document(json!({"fields": ["a"]}), &format!("[{row}]"))
            .body(),
        "[\n{\"a\":1e400,\"a\":-0,\"\\u0061\":\"\\u00e9\"}\n]"
    );
}

#[test]
fn an_argument_of_the_handlers_own_is_the_handlers() {
    let mut tool = tool(streams());
    tool.own = vec!["state", "limit", "fields"];
    let ask = tool
        .read(json!({"limit": "x", "fields": 7, "horizon": "all"}))
        .unwrap();
    assert_eq!(
        ask.for_handler(&tool.policy()),
        object(json!({"limit": "x", "fields": 7}))
    );
    assert_eq!(tool.policy().published(HostArgument::After), None);
}

#[test]
fn a_handler_that_applies_arguments_itself_gets_what_the_host_needs() {
    let mut tool = tool(streams());
    tool.own = vec!["state", "limit", "after", "fields"];
    tool.shape.applies = PushDown::LIMIT | PushDown::AFTER | PushDown::FIELDS;
    let policy = tool.policy();
    // The limit is said even where the caller did not, since the handler's default may be another.
    let ask = tool.read(json!({"fields": ["last_gate.verdict"]})).unwrap();
    assert_eq!(
        ask.for_handler(&policy),
        object(json!({"limit": 25, "fields": ["last_gate.verdict", "id", "state", "state"]}))
    );
    let page = tool.call(json!({"limit": 2, "horizon": "all"}), |intake| {
        intake.rows(b"{\"id\":\"a\"}\n{\"id\":\"b\"}");
    });
    // 2 of 2, or 2 of more? The next page tells.
    assert_eq!(
        notices(&page)[0],
        "Rows 1 to 2 of an unknown number. The call in \"next\" gets the next page."
    );
    let next = json_of(page.facts())["next"].clone();
    let ask = tool.read(next.clone()).unwrap();
    assert_eq!(
        ask.for_handler(&policy),
        object(json!({"limit": 2, "after": "b"}))
    );
    let last = tool.call(next.clone(), |intake| {
        intake.rows(b"{\"id\":\"c\"}");
    });
    assert_eq!(
        (last.receipt().unwrap().before, last.next_after()),
        (2, None)
    );
    let again = tool.call(next, |intake| {
        intake.rows(b"{\"id\":\"a\"}\n{\"id\":\"b\"}");
    });
    assert_eq!(
        json_of(again.body())["message"],
        "the plugin says that it starts behind the cursor, and handed over the row of the cursor again"
    );
}

#[test]
fn two_arguments_of_the_host_cannot_have_one_name() {
    let names = BTreeMap::from([
        (HostArgument::Limit, Some("x".into())),
        (HostArgument::After, Some("x".into())),
    ]);
    assert_eq!(
        Policy::new(&undeclared(), 262_144, &[], &names).unwrap_err(),
        "argument `after`: `x` is already the name of `limit`"
    );
}

/// Bytes that are cheap to send must be cheap to take in. The bounds are far above what is needed, and far below what a
/// quadratic step would take.
#[test]
fn hostile_answers_cost_time_in_proportion_to_their_size() {
    let start = std::time::Instant::now();
    let tool = tool(streams());
    let everything = json!({"horizon": "all", "detail": "full"});
    let mut unpaged = self::tool(undeclared());
    unpaged.names = BTreeMap::from([(HostArgument::After, None)]);
    let nested =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let keys: Vec<String> = (0..60_000).map(|key| format!("\"k{key}\":{key}")).collect();
    let keys = format!("[{{{}}}]", keys.join(","));
    let many = format!("[{}1]", "1,".repeat(300_000));
    for document in [
        &nested("[", "]"),
        &nested("{\"a\":", "}"),
        &nested("[{\"a\":[", "]}]"),
        &keys,
        &many,
        &"\n".repeat(300_000),
        &"[".repeat(1_000_000),
    ] {
        let _ = tool.document(everything.clone(), document);
        let _ = tool.document(json!({"fields": ["a.a.a.a"]}), document);
        let _ = tool.document(json!({"format": "csv"}), document);
        let _ = unpaged.document(json!({}), document);
    }
    let paths: Vec<String> = (0..100).map(|path| format!("nothing{path}.a")).collect();
    let _ = tool.document(json!({"fields": paths}), &keys);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

#[test]
fn a_handler_that_pages_by_arguments_of_its_own_is_not_paged_by_the_host() {
    let published = |own: &[&'static str], applies: PushDown| {
        let mut tool = tool(undeclared());
        tool.own = own.to_vec();
        tool.shape.applies = applies;
        let policy = tool.policy();
        let names = [
            HostArgument::Limit,
            HostArgument::After,
            HostArgument::Fields,
        ];
        names.map(|argument| policy.published(argument).is_some())
    };
    assert_eq!(
        published(&["per_page"], PushDown::PAGING),
        [false, false, true]
    );
    assert_eq!(
        published(&["per_page"], PushDown::empty()),
        [true, true, true]
    );
    assert_eq!(
        published(&["limit"], PushDown::empty()),
        [false, false, true]
    );
}
