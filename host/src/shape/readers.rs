//! What differs between readers, word for word: gates of client programs, and cells that an operator changes.

use serde_json::{Value, json};

use super::behaviour::{Tool, json_of, notices, streams, tool};
use super::cells::CellPolicy;
use super::cursor::Signer;
use super::fit::{KeyBudget, KeyMode};
use super::gates::Gates;
use super::policy::{HostArgument, undeclared};
use super::reply::Reply;
use crate::contract::{Attachment, Embedded, RowSource, Shape};

fn gates() -> Gates {
    Gates {
        client: "Test Program".into(),
        ..Gates::default()
    }
}

fn gated(shape: Shape, gates: Gates) -> Tool {
    Tool {
        gates: Some(gates),
        ..tool(shape)
    }
}

fn rows(count: usize, prose: usize) -> String {
    let row = |index: usize| json!({"id": index, "prose": "words ".repeat(prose / 6)}).to_string();
    let rows: Vec<String> = (0..count).map(row).collect();
    format!("[{}]", rows.join(","))
}

fn withholding(drop: &[&str], mask: &[&str]) -> CellPolicy {
    let paths = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| (*text).to_owned())
            .collect::<Vec<_>>()
    };
    CellPolicy::new(&paths(drop), &paths(mask), None, None).unwrap()
}

fn changing(shape: Shape, cells: CellPolicy) -> Tool {
    Tool {
        cells,
        ..tool(shape)
    }
}

#[test]
fn a_gate_leaves_out_whole_rows_and_says_whose_it_is() {
    let bytes = Gates {
        bytes: Some(10_000),
        ..gates()
    };
    let reply = gated(undeclared(), bytes).document(json!({}), &rows(25, 900));
    let facts = json_of(reply.facts());
    let (returned, dropped) = (
        facts["returned"].as_u64().unwrap(),
        facts["budget_rows_dropped"].as_u64().unwrap(),
    );
    assert_eq!(returned + dropped, 25);
    assert!((8..=10).contains(&returned), "{facts}");
    assert!(reply.facts().len() + reply.body().len() < 10_000);
    let said = format!(
        "Test Program cuts results of 10000 bytes or more, so {dropped} rows of this page were left out; they come with the next page."
    );
    assert!(notices(&reply).contains(&said), "{facts}");
    assert_eq!(
        reply.receipt_json()["gate"],
        json!({"client": "Test Program", "unit": "bytes", "limit": 10_000})
    );
    assert_eq!(facts["budget_source"], "none");
}

#[test]
fn the_tighter_of_budget_and_gate_is_named() {
    let tokens = |limit| Gates {
        tokens: Some(limit),
        ..gates()
    };
    let reply =
        gated(undeclared(), tokens(4_000)).document(json!({"max_tokens": 2_000}), &rows(25, 900));
    assert!(reply.receipt_json().get("gate").is_none());
    assert!(
        notices(&reply)
            .iter()
            .any(|said| said.starts_with("The budget of 2000 tokens left out "))
    );
    let reply =
        gated(undeclared(), tokens(1_500)).document(json!({"max_tokens": 2_000}), &rows(25, 900));
    assert_eq!(reply.receipt_json()["gate"]["unit"], "tokens");
    assert!(reply.receipt().unwrap().approx_tokens < 1_500);
    assert!(
        notices(&reply)
            .iter()
            .any(|said| said.starts_with("Test Program cuts results of 1500 tokens or more"))
    );
    // Nothing is left out: nothing is said.
    let reply = gated(undeclared(), tokens(4_000)).document(json!({}), &rows(3, 90));
    assert!(reply.receipt_json().get("gate").is_none());
    assert_eq!(notices(&reply), Vec::<String>::new());
}

#[test]
fn a_budget_that_no_call_can_raise_is_not_offered_to_be_raised() {
    let said = |mode: KeyMode, arguments: Value| {
        let mut tool = tool(undeclared());
        tool.key = KeyBudget {
            tokens: Some(2_500),
            mode,
        };
        let reply = tool.document(arguments, &rows(25, 900));
        let dropped = reply.receipt().unwrap().budget_rows_dropped;
        let last = notices(&reply).pop().unwrap();
        last.replace(&dropped.to_string(), "N")
    };
    let rest = "left out N rows of this page; they come with the next page";
    assert_eq!(
        said(KeyMode::Inherit, json!({})),
        format!("The budget of 2500 tokens {rest}, or raise max_tokens.")
    );
    assert_eq!(
        said(KeyMode::Strict, json!({"max_tokens": 9_000})),
        format!("The budget of 2500 tokens {rest}.")
    );
    assert_eq!(
        said(KeyMode::Strict, json!({"max_tokens": 2_000})),
        format!("The budget of 2000 tokens {rest}, or raise max_tokens.")
    );
}

#[test]
fn lines_and_characters_are_counted_as_such() {
    let lines = Gates {
        lines: Some(10),
        ..gates()
    };
    let text: String = (0..20).map(|index| format!("line {index}\n")).collect();
    let reply = gated(undeclared(), lines.clone()).document(json!({}), &text);
    // One line is the facts.
    assert_eq!(reply.body().lines().count(), 8);
    assert_eq!(reply.receipt().unwrap().returned, 8);
    let pretty = "[\n {\n  \"id\": 1\n },\n {\n  \"id\": 2\n },\n {\n  \"id\": 3\n }\n]";
    let reply = gated(undeclared(), lines).document(json!({}), pretty);
    assert_eq!(reply.receipt().unwrap().returned, 2);
    let characters = Gates {
        characters: Some(3_000),
        ..gates()
    };
    let row = format!("{{\"a\":\"{}\"}}", "語".repeat(900));
    let document = format!("[{row},{row},{row},{row}]");
    let reply = gated(undeclared(), characters).document(json!({}), &document);
    assert_eq!(reply.receipt().unwrap().returned, 2);
    assert!(reply.body().len() > 5_000);
}

#[test]
fn a_document_that_is_large_for_its_white_space_goes_out_without_it() {
    let bytes = Gates {
        bytes: Some(2_000),
        ..gates()
    };
    let document = format!("[{}1,2,3]", " ".repeat(3_000));
    let reply = gated(undeclared(), bytes).document(json!({}), &document);
    assert_eq!(reply.receipt().unwrap().returned, 2);
    assert_eq!(reply.body(), "[\n1,\n2\n]");
}

#[test]
fn where_not_one_row_fits_the_refusal_names_the_gate_and_a_call_that_does() {
    let characters = Gates {
        characters: Some(8_000),
        ..gates()
    };
    let streams = gated(streams(), characters);
    let row = |id: &str| {
        json!({"id": id, "state": "open", "prose": "x".repeat(9_000), "notes": "y".repeat(500)})
            .to_string()
    };
    let document = format!("[{},{}]", row("a"), row("b"));
    let reply = streams.document(json!({"topic": "t", "detail": "full"}), &document);
    let refusal = json_of(reply.body());
    assert_eq!(refusal["error"], "response_too_large");
    let found = refusal["payload"]["gate"]["found"].as_u64().unwrap();
    assert!((9_500..12_000).contains(&found));
    assert_eq!(
        refusal["message"],
        format!(
            "The response is {found} characters with one item alone; Test Program cuts results of 8000 characters or more. It is \
             refused, not truncated: no part of the body was returned. The body is an array of 2 items."
        )
    );
    assert_eq!(refusal["payload"]["limit"], 8_000);
    assert_eq!(
        refusal["payload"]["gate"],
        json!({"client": "Test Program", "unit": "characters", "found": found})
    );
    let next = refusal["next"].clone();
    assert_eq!(next, json!({"topic": "t", "detail": "summary"}));
    assert_eq!(streams.document(next, &document).refusal(), None);
    // Without a view that fits, the fields that weigh most are named instead.
    let plain = gated(
        undeclared(),
        Gates {
            bytes: Some(8_000),
            ..gates()
        },
    );
    let (error, message) = plain.refused(json!({}), &document);
    assert_eq!(error, "response_too_large");
    assert!(
        message.ends_with(
            "Its first item alone is 9547 bytes; its heaviest fields: prose (9002 bytes), notes (502 bytes), state (6 bytes)."
        ),
        "{message}"
    );
}

#[test]
fn a_piece_that_passes_a_gate_is_refused_whole() {
    let lines = Gates {
        lines: Some(100),
        ..gates()
    };
    let shape = Shape {
        rows: RowSource::Whole,
        ..undeclared()
    };
    let (error, message) = gated(shape, lines).refused(json!({}), &"line\n".repeat(200));
    assert_eq!(error, "response_too_large");
    assert_eq!(
        message,
        "The response is 202 lines; Test Program cuts results of 100 lines or more. It is refused, not truncated: no part of \
         the body was returned. The body is one piece."
    );
}

#[test]
fn attachments_that_are_text_count_and_the_structured_copy_too() {
    let bytes = Gates {
        bytes: Some(10_000),
        ..gates()
    };
    let resource = Attachment::Resource(Embedded {
        uri: "file:notes".into(),
        media_type: "text/plain".into(),
        data: vec![b'x'; 9_000],
    });
    let tool = gated(undeclared(), bytes.clone());
    let reply = tool.call(json!({}), |intake| {
        intake.document(rows(25, 90).as_bytes());
        intake.attach(resource.clone());
    });
    assert_eq!(reply.receipt_json()["gate"]["limit"], 10_000);
    assert!(reply.receipt().unwrap().returned < 6);
    let mut typed = gated(undeclared(), bytes);
    typed.facts.has_structured_copy = true;
    let once = tool.document(json!({}), &rows(25, 900));
    let twice = typed.document(json!({}), &rows(25, 900));
    assert!(twice.receipt().unwrap().returned * 2 <= once.receipt().unwrap().returned);
    let copy = twice.structured().unwrap().unwrap().to_string();
    assert!(twice.facts().len() + twice.body().len() + copy.len() < 10_000);
}

const ROWS: &str = r#"[{"id":"a","state":"open","secret":true,"email":"a@x","last_gate":{"verdict":"go","by":"jo"}},
{"id":"b","state":"merged","secret":false,"email":"b@x","last_gate":{"verdict":"no","by":"al"}}]"#;

#[test]
fn what_is_withheld_is_in_no_view_no_table_and_no_list_of_fields() {
    let tool = changing(
        streams(),
        withholding(&["secret", "last_gate.verdict"], &["email"]),
    );
    let all = json!({"topic": "t", "detail": "full", "horizon": "all"});
    let reply = tool.document(all, ROWS);
    assert_eq!(
        json_of(reply.body()),
        json!([
            {"id": "a", "state": "open", "email": "[masked]", "last_gate": {"by": "jo"}},
            {"id": "b", "state": "merged", "email": "[masked]", "last_gate": {"by": "al"}},
        ])
    );
    assert_eq!(
        reply.receipt_json()["cells"],
        json!({
            "dropped": {"cells": 4, "columns": ["last_gate.verdict", "secret"]},
            "masked": {"cells": 2, "columns": ["email"]},
        })
    );
    assert!(notices(&reply).contains(&String::from(
        "Values of this answer were changed as its operator wants it: dropped last_gate.verdict, secret (4 cells); masked email \
         (2 cells); what is dropped or masked cannot be read here."
    )));
    let table = tool.document(
        json!({"topic": "t", "format": "csv", "horizon": "all"}),
        ROWS,
    );
    assert!(!table.body().contains("verdict"), "{}", table.body());
    let (error, message) = tool.refused(json!({"topic": "t", "fields": ["secret"]}), ROWS);
    assert_eq!(error, "invalid_arguments");
    assert!(
        message.starts_with("fields: unknown field secret; valid names: "),
        "{message}"
    );
    let (_, message) = tool.refused(json!({"topic": "t", "fields": ["nonsense"]}), ROWS);
    assert!(
        !message.contains("secret") && !message.contains("verdict"),
        "{message}"
    );
    let reply = tool.document(json!({"topic": "t", "fields": ["email"]}), ROWS);
    assert_eq!(json_of(reply.body()), json!([{"email": "[masked]"}]));
    let (_, message) = tool.refused(json!({"topic": "t", "fields": ["email.domain"]}), ROWS);
    assert!(
        message.starts_with("fields: unknown field email.domain"),
        "{message}"
    );
}

#[test]
fn a_field_that_is_withheld_decides_nothing_that_a_caller_could_watch() {
    // `streams` has the key `id`, a horizon and a filter by `state`.
    let plain = tool(streams());
    let hidden = changing(streams(), withholding(&[], &["id", "state"]));
    assert_eq!(plain.policy().key(), Some("id"));
    assert_eq!(hidden.policy().key(), None);
    assert!(plain.policy().published(HostArgument::Horizon).is_some());
    assert_eq!(hidden.policy().published(HostArgument::Horizon), None);
    // No row is hidden by a value that nobody may know.
    let reply = hidden.document(json!({"topic": "t", "detail": "full"}), ROWS);
    assert_eq!(reply.receipt().unwrap().returned, 2);
    let (error, message) = hidden.refused(json!({"topic": "t", "state": "open"}), ROWS);
    assert_eq!(error, "invalid_arguments");
    assert_eq!(
        message,
        "state selects by a field that is withheld here: leave it out"
    );
    assert_eq!(
        hidden
            .document(json!({"topic": "t", "state": null}), ROWS)
            .refusal(),
        None
    );
}

/// Two answers that differ in what is withheld alone, byte for byte in no other way.
fn twins(tool: &Tool, arguments: &Value, one: &str, other: &str) -> [Reply; 2] {
    let replies = [one, other].map(|answer| tool.document(arguments.clone(), answer));
    let [one, other] = &replies;
    assert_eq!(one.facts(), other.facts());
    assert_eq!(one.body(), other.body());
    assert_eq!(one.receipt_json(), other.receipt_json());
    replies
}

#[test]
fn nothing_that_goes_out_depends_on_what_is_withheld() {
    let row = |id: &str, email: &str| {
        format!(r#"{{"id":"{id}","state":"open","email":{email},"secret":{{"k":{email}}}}}"#)
    };
    let answer = |email: &str| {
        format!(
            "{{\"by\":{{\"email\":{email}}},\"rows\":[{},{}]}}",
            row("a", email),
            row("b", email)
        )
    };
    let (one, other) = (answer("true"), answer("[\"x@y.z\",12345]"));
    for (drop, mask) in [
        (vec!["email", "secret"], vec![]),
        (vec![], vec!["email", "secret"]),
    ] {
        for shape in [undeclared(), streams()] {
            let tool = changing(shape, withholding(&drop, &mask));
            // A cursor, counts and sizes in the receipt, a refusal with its heaviest fields.
            let [page, _] = twins(&tool, &json!({"topic": "t", "limit": 1}), &one, &other);
            assert!(page.next_after().is_some());
            let mut small = changing(undeclared(), withholding(&drop, &mask));
            small.gates = Some(Gates {
                lines: Some(2),
                ..gates()
            });
            let [refused, _] = twins(&small, &json!({}), &one, &other);
            assert!(refused.refusal().is_some());
            let pushed = |email: &str| {
                tool.call(json!({"topic": "t"}), |intake| {
                    intake.rows(format!("{}\n{}", row("a", email), row("b", email)).as_bytes());
                })
            };
            let [one, other] = [pushed("1"), pushed("\"long enough\"")];
            assert_eq!((one.facts(), one.body()), (other.facts(), other.body()));
            assert_eq!(one.receipt_json(), other.receipt_json());
        }
    }
    // Where a key is masked, the cursor does not carry it.
    let tool = changing(streams(), withholding(&[], &["id"]));
    let page = tool.document(json!({"topic": "t", "limit": 1, "horizon": "all"}), ROWS);
    let other = ROWS.replace("\"id\":\"a\"", "\"id\":\"z\"");
    let [cursor, another] = [
        page,
        tool.document(json!({"topic": "t", "limit": 1, "horizon": "all"}), &other),
    ]
    .map(|reply| reply.next_after().unwrap().to_owned());
    assert_eq!(cursor, another);
    assert!(Signer::new([7; 32]).carries_query(&cursor));
}

#[test]
fn what_cannot_be_withheld_is_refused_without_a_word_of_it() {
    let tool = changing(undeclared(), withholding(&["email"], &[]));
    for (answer, why) in [
        (
            "email: x@y.z",
            "the answer is text; fields of this tool are withheld",
        ),
        (
            "[{\"email\":x@y.z}]",
            "the answer is not valid JSON; where and why is not shown",
        ),
        (
            "[{\"email\":1}] x@y.z",
            "the answer is text; fields of this tool are withheld",
        ),
    ] {
        let (error, message) = tool.refused(json!({}), answer);
        assert_eq!(error, "invalid_answer");
        assert!(
            message.starts_with(why) && !message.contains("x@y.z"),
            "{message}"
        );
    }
    let reply = tool.call(json!({}), |intake| {
        intake.document(b"[{\"email\":\"\xff\"}]")
    });
    assert_eq!(
        json_of(reply.body())["message"],
        "the answer is not UTF-8; where is not shown, since fields of this tool are withheld"
    );
    let reply = tool.call(json!({}), |intake| {
        intake.rows(b"{\"id\":1}\n{\"email\":x@y.z}");
    });
    assert_eq!(
        json_of(reply.body())["message"],
        "row 1 is not valid JSON; where and why is not shown, since fields of this tool are withheld"
    );
}

#[test]
fn long_texts_are_shortened_in_the_rows_that_go_out_and_read_whole_by_name() {
    let cells = CellPolicy::new(&[], &[], Some(256), Some(40)).unwrap();
    let tool = changing(undeclared(), cells);
    let long = "prose ".repeat(50);
    let document = format!(
        r#"{{"n":1.0,"rows":[{{"id":1,"body":"{long}"}},{{"id":2.50,"body":"short"}},{{"id":3,"body":"{long}"}}]}}"#
    );
    let reply = tool.document(json!({"limit": 2}), &document);
    let head = &long[..40];
    assert_eq!(
        reply.body(),
        format!(
            "{{\"n\":1.0,\"rows\":[\n{{\"id\":1,\"body\":\"{head}… [the first 40 of 300 characters; name body in fields to read it \
             whole]\"}},\n{{\"id\":2.50,\"body\":\"short\"}}\n]}}"
        )
    );
    assert_eq!(
        reply.receipt_json()["cells"],
        json!({"shortened": {"cells": 1, "columns": ["body"]}})
    );
    assert!(notices(&reply).contains(&String::from(
        "Values of this answer were changed as its operator wants it: shortened body (1 cell); name a replaced or shortened column \
         in fields to read it whole."
    )));
    let reply = tool.document(json!({"limit": 1, "fields": ["body"]}), &document);
    assert!(reply.body().contains(&long));
    assert!(reply.receipt_json().get("cells").is_none());
    // A document without rows is one row, and a table is made of what is left.
    let reply = tool.document(json!({}), &format!(r#"{{"body":"{long}"}}"#));
    assert!(reply.body().starts_with(&format!(
        "{{\"body\":\"{head}… [the first 40 of 300 characters"
    )));
    let shape = Shape {
        columns: vec![crate::contract::Column {
            name: "the text".into(),
            field: "body".into(),
        }],
        ..undeclared()
    };
    let table = changing(shape, CellPolicy::new(&[], &[], None, Some(40)).unwrap());
    let reply = table.document(json!({"format": "csv", "limit": 1}), &document);
    assert!(reply.body().contains("… [the first 40 of 300"));
    let reply = table.document(
        json!({"format": "csv", "limit": 1, "fields": ["the text"]}),
        &document,
    );
    assert!(reply.body().contains(&long));
    // Text that is no JSON has no cells.
    assert_eq!(tool.document(json!({}), &long).body(), long);
}
