//! Properties of the whole pipeline, over generated answers and arguments.
//!
//! A generated case is walked as a client walks it: from page to page by `next_after` or by `next`, and from a refusal by
//! its `next`. Each property then looks at the steps of the walk.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::ask::{Ask, Format};
use super::cursor::{MAX_CURSOR_CHARS, Signer};
use super::fit::{Budget, BudgetSources, Reader};
use super::gates::{Gates, Size, Unit};
use super::intake::Intake;
use super::pipeline::{Call, ToolFacts, shape, shape_each};
use super::policy::{HostArgument, Policy, undeclared};
use super::refusal::MAX_REFUSAL_BYTES;
use super::reply::Reply;
use super::select::{Path, Selection};
use super::{DEFAULT_INTAKE_BYTES, json as scan, tokens};
use crate::contract::{
    Accepted, Attachment, Blob, Column, Filter, Horizon, PushDown, Receipt, RowSource, Shape, View,
};

/// One generated row, and what the model has to know of it.
#[derive(Debug, Clone)]
struct Row {
    text: String,
    state: Option<&'static str>,
}

/// Where the rows stand in the answer.
#[derive(Debug, Clone)]
enum Layout {
    /// The document is the array.
    Root,
    /// `{"page": {…, "items": [rows], …}}`, found by pointer or by the automatic rule.
    Nested { is_declared: bool },
    /// Pushed, in pieces of so many rows.
    Pushed(Vec<usize>),
    /// Lines of text.
    Lines,
}

#[derive(Debug, Clone)]
struct Case {
    rows: Vec<Row>,
    layout: Layout,
    is_pretty: bool,
    is_keyed: bool,
    has_default_view: bool,
    has_copy: bool,
    cap: u32,
    org_budget: Option<u64>,
    gates: Option<Gates>,
    arguments: Map<String, Value>,
    /// The limit of later pages, where the walk changes it.
    other_limit: Option<u64>,
    /// Whether the walk follows `next`, rather than passing `next_after` alone.
    follows_next: bool,
}

/// What one call gave.
struct Step {
    ask: Ask,
    reply: Reply,
}

impl Step {
    fn receipt(&self) -> &Receipt {
        self.reply.receipt().expect("an answer has a receipt")
    }

    fn facts(&self) -> Value {
        serde_json::from_str(self.reply.facts()).unwrap()
    }

    fn refusal(&self) -> Option<Value> {
        self.reply
            .refusal()
            .map(|_| serde_json::from_str(self.reply.body()).unwrap())
    }
}

const STATES: [&str; 3] = ["open", "gated", "merged"];
const COLUMNS: [(&str, &str); 4] = [
    ("id", "id"),
    ("state, now", "state"),
    ("note", "note"),
    ("a", "nested.a"),
];

fn declared(case: &Case) -> Shape {
    let is_text = matches!(case.layout, Layout::Lines);
    let rows = match case.layout {
        Layout::Nested { is_declared: true } => RowSource::Pointer("/page/items".into()),
        Layout::Lines => RowSource::Lines,
        _ => RowSource::Automatic,
    };
    let columns = COLUMNS.iter().map(|(name, field)| Column {
        name: (*name).into(),
        field: (*field).into(),
    });
    Shape {
        rows,
        key: case.is_keyed.then(|| "id".into()),
        horizon: (!is_text).then(|| Horizon {
            field: "state".into(),
            live: Accepted::NoneOf(vec!["merged".into()]),
            excluded: "merged rows".into(),
        }),
        views: vec![View {
            name: "summary".into(),
            fields: vec!["id".into(), "state".into(), "nested.a".into()],
        }],
        default_view: case.has_default_view.then(|| "summary".into()),
        columns: columns.collect(),
        filters: vec![Filter {
            argument: "state".into(),
            field: "state".into(),
        }],
        cap_bytes: Some(case.cap),
        ..undeclared()
    }
}

impl Case {
    fn policy(&self) -> Policy {
        Policy::new(
            &declared(self),
            262_144,
            &["state", "topic", "remark"],
            &BTreeMap::new(),
        )
        .unwrap()
    }

    fn tool(&self) -> ToolFacts {
        ToolFacts {
            name: "rows".into(),
            narrowing: Vec::new(),
            own_limit: None,
            has_structured_copy: self.has_copy,
            is_invoked: false,
        }
    }

    /// The document, where the answer is one.
    fn document(&self) -> Option<String> {
        let texts: Vec<&str> = self.rows.iter().map(|row| row.text.as_str()).collect();
        let space = if self.is_pretty { "\n  " } else { "" };
        let array = format!(
            "[{space}{}{space}]",
            texts.join(if self.is_pretty { " ,\n  " } else { "," })
        );
        match self.layout {
            Layout::Root => Some(format!("{space}{array}{space}")),
            Layout::Nested { .. } => Some(format!(
                "{{\"n\":0.10,{space}\"page\":{{\"größe\":9007199254740993,\"items\":{space}{array},\"tags\":[\"x\",1e400]}},\"end\":null}}"
            )),
            Layout::Lines => Some(format!(
                "{}{}",
                texts.join("\n"),
                if self.is_pretty && !texts.is_empty() {
                    "\n"
                } else {
                    ""
                }
            )),
            Layout::Pushed(_) => None,
        }
    }

    fn intake(&self, policy: &Policy, ask: &Ask) -> Intake {
        let mut intake = Intake::new(policy, ask, DEFAULT_INTAKE_BYTES);
        match (&self.layout, self.document()) {
            (Layout::Pushed(pieces), _) => {
                let mut rest = &self.rows[..];
                let mut pieces = pieces.iter().cycle();
                intake.rows(b"");
                while !rest.is_empty() {
                    let piece = (*pieces.next().unwrap()).min(rest.len());
                    let texts: Vec<&str> =
                        rest[..piece].iter().map(|row| row.text.as_str()).collect();
                    intake.rows(texts.join("\n").as_bytes());
                    rest = &rest[piece..];
                }
            }
            (_, document) => intake.document(document.unwrap().as_bytes()),
        }
        intake
    }

    fn call(&self, policy: &Policy, arguments: &Map<String, Value>) -> Step {
        let signer = Signer::new([7; 32]);
        let required = [String::from("topic")];
        let ask = Ask::read(
            policy,
            &signer,
            "acme",
            "rows",
            &required,
            arguments.clone(),
        )
        .unwrap_or_else(|refusal| panic!("{arguments:?} is refused: {}", refusal.text()));
        let sources = BudgetSources {
            input: ask.max_tokens(),
            org: self.org_budget,
            ..BudgetSources::default()
        };
        let call = Call {
            policy,
            tool: &self.tool(),
            ask: &ask,
            signer: &signer,
            budget: sources.resolve(),
            gates: self.gates.as_ref(),
        };
        let reply = shape(self.intake(policy, &ask), &call);
        Step { ask, reply }
    }

    /// Walks to the end, or to a refusal that offers nothing.
    fn walk(&self) -> Vec<Step> {
        let policy = self.policy();
        let mut arguments = self.arguments.clone();
        let mut steps: Vec<Step> = Vec::new();
        loop {
            let step = self.call(&policy, &arguments);
            let next = match step.refusal() {
                Some(refusal) => refusal.get("next").cloned(),
                None => {
                    let facts = step.facts();
                    let alone = facts
                        .get("next_after")
                        .map(|after| json!({"after": after, "topic": self.arguments["topic"]}));
                    let next = facts.get("next").cloned();
                    // Arguments that are too long for a cursor are the only case in which it is not enough.
                    let is_enough = next == alone
                        || step
                            .ask
                            .carried(&step.ask.arguments)
                            .values()
                            .all(|value| value.to_string().len() < 100);
                    let mut next = if is_enough && !self.follows_next {
                        alone
                    } else {
                        next
                    };
                    if let (Some(Value::Object(next)), Some(limit)) = (&mut next, self.other_limit)
                    {
                        next.insert("limit".into(), limit.into());
                    }
                    next
                }
            };
            steps.push(step);
            match next {
                Some(Value::Object(next)) => arguments = next,
                _ => return steps,
            }
            assert!(
                steps.len() < 3 * self.rows.len() + 10,
                "the walk does not end"
            );
        }
    }

    /// What becomes of each row in a call, by the model: `None` for matching, else whether it was filtered.
    fn is_filtered(&self, row: &Row) -> Option<bool> {
        let states = self.arguments.get("state").and_then(Value::as_array);
        if states.is_some_and(|states| !states.contains(&json!(row.state))) {
            return Some(true);
        }
        let is_live_only = !matches!(self.layout, Layout::Lines)
            && self.arguments.get("horizon") != Some(&json!("all"));
        (is_live_only && row.state == Some("merged")).then_some(false)
    }

    fn matching(&self) -> Vec<&Row> {
        self.rows
            .iter()
            .filter(|row| self.is_filtered(row).is_none())
            .collect()
    }

    /// The rows in a body, as text.
    fn rows_of(&self, body: &str) -> Vec<String> {
        let pointer = match self.layout {
            Layout::Lines => return body.lines().map(str::to_owned).collect(),
            Layout::Nested { .. } => "/page/items",
            _ => "",
        };
        let open =
            pointer
                .split('/')
                .skip(1)
                .fold(scan::skip_space(body.as_bytes(), 0), |at, name| {
                    let mut members = scan::members(body.as_bytes(), at).map(Result::unwrap);
                    members
                        .find(|member| &body[member.key.clone()] == name)
                        .unwrap()
                        .value
                        .start
                });
        scan::elements(body.as_bytes(), open)
            .map(|element| body[element.unwrap()].to_owned())
            .collect()
    }
}

/// A row as the call's view or fields make it.
fn selected(ask: &Ask, policy: &Policy, layout: &Layout, row: &str) -> String {
    let fields: Vec<Path> = if matches!(layout, Layout::Lines) {
        Vec::new()
    } else if !ask.fields.is_empty() {
        ask.fields.clone()
    } else {
        let view = policy.view(ask.detail.as_deref().unwrap_or(policy.default_view()));
        view.map_or(Vec::new(), |view| view.fields.clone())
    };
    if fields.is_empty() {
        return row.to_owned();
    }
    let mut out = Vec::new();
    Selection::new(&fields).copy(row.as_bytes(), &mut out);
    String::from_utf8(out).unwrap()
}

fn value() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        prop::sample::select(vec![
            "9007199254740993",
            "1e400",
            "0.10",
            "-0",
            "1E+2",
            "null",
            "true",
            "\"\"",
            "\"NULL\"",
            "\"a,b\\tc\"",
            "\"say \\\"hi\\\"\\r\\n\"",
            "\"\\u00e9\\ud83d\\ude00\"",
            "\"語龘鱻\"",
            "\"👩‍👩‍👧 🇩🇪\"",
            "[ ]",
            "{ }",
        ])
        .prop_map(str::to_owned),
        any::<i64>().prop_map(|number| number.to_string()),
        "[a-zé語 ,\t]{0,20}".prop_map(|text| Value::from(text).to_string()),
    ];
    scalar.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((prop::sample::select(vec!["a", "b", "größe"]), inner), 0..3)
                .prop_map(|members| {
                    let members: Vec<String> = members
                        .iter()
                        .map(|(name, value)| format!("\"{name}\" : {value}"))
                        .collect();
                    format!("{{ {} }}", members.join(" , "))
                }),
        ]
    })
}

/// A row: an object with a key, mostly a state, and whatever else; now and then a scalar.
fn row(keys: u32, is_line: bool, weight: usize) -> impl Strategy<Value = Row> {
    let state = prop::option::weighted(0.9, prop::sample::select(STATES.to_vec()));
    let members = prop::collection::vec(
        (
            prop::sample::select(vec!["note", "nested", "größe", "nested", "\\u006eote"]),
            value(),
        ),
        0..4,
    );
    let heavy = prop_oneof![
        6 => Just(0), 3 => 0..200usize, 1 => 0..weight,
    ];
    let object = (0..keys, state, members, heavy, any::<bool>()).prop_map(
        move |(key, state, members, heavy, is_spaced)| {
            let mut parts = vec![format!("\"id\":{key}")];
            parts.extend(state.map(|state| format!("\"state\":\"{state}\"")));
            parts.extend(
                members
                    .iter()
                    .map(|(name, value)| format!("\"{name}\":{value}")),
            );
            if heavy > 0 {
                parts.push(format!("\"prose\":\"{}\"", "words ".repeat(heavy / 6)));
            }
            let joint = match (is_spaced, is_line) {
                (true, true) => ", ",
                (true, false) => ",\n    ",
                (false, _) => ",",
            };
            Row {
                text: format!("{{{}}}", parts.join(joint)),
                state,
            }
        },
    );
    let scalar = value()
        .prop_filter("rows without a state", |value| !value.contains("state"))
        .prop_map(|text| Row { text, state: None });
    prop_oneof![19 => object, 1 => scalar]
}

fn arguments(is_text: bool) -> impl Strategy<Value = Map<String, Value>> {
    let fields = prop::sample::subsequence(vec!["id", "state", "nested.a", "nested"], 1..=2);
    let format = prop::sample::select(vec!["json", "csv", "tsv"]);
    let states = prop::sample::subsequence(STATES.to_vec(), 1..=2);
    let optional = (
        prop::option::of(prop_oneof![1..=100u64, 1..=6u64]),
        prop::option::weighted(0.3, prop::sample::select(vec!["summary", "full"])),
        prop::option::weighted(0.2, fields),
        prop::option::of(prop::sample::select(vec!["live", "all"])),
        prop::option::weighted(0.2, format),
        prop::option::weighted(0.3, states),
        prop::option::weighted(0.2, 1..8_000u64),
        // Now and then longer than a cursor can carry.
        prop::option::weighted(0.1, prop_oneof![Just(10), Just(300usize)]),
    );
    optional.prop_map(
        move |(limit, detail, fields, horizon, format, states, max_tokens, note)| {
            let mut arguments = Map::from_iter([(String::from("topic"), Value::from("fleet"))]);
            let mut add = |name: &str, value: Option<Value>| {
                arguments.extend(value.map(|value| (name.to_owned(), value)))
            };
            add("limit", limit.map(Value::from));
            add("max_tokens", max_tokens.map(Value::from));
            add("remark", note.map(|length| "r".repeat(length).into()));
            if !is_text {
                add("detail", detail.map(Value::from));
                add("fields", fields.map(Value::from));
                add("horizon", horizon.map(Value::from));
                add("format", format.map(Value::from));
                add("state", states.map(Value::from));
            }
            arguments
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let layout = prop_oneof![
        Just(Layout::Root),
        any::<bool>().prop_map(|is_declared| Layout::Nested { is_declared }),
        prop::collection::vec(1..60usize, 1..4).prop_map(Layout::Pushed),
        Just(Layout::Lines),
    ];
    let count = prop_oneof![0..5usize, 20..60usize, 0..300usize];
    // Keys that are unique are written over those that are not.
    let keys = (
        any::<bool>(),
        any::<bool>(),
        prop_oneof![Just(1u32), 2..6u32, 1..1000u32],
    );
    let size = (
        8_000..40_000u32,
        prop_oneof![Just(300usize), Just(3_000), Just(20_000)],
    );
    (layout, count, keys, size).prop_flat_map(
        |(layout, count, (is_keyed, is_unique, keys), (cap, weight))| {
            let is_line = matches!(layout, Layout::Lines | Layout::Pushed(_));
            let is_text = matches!(layout, Layout::Lines);
            let rest = (
                any::<bool>(),
                any::<bool>(),
                prop::bool::weighted(0.2),
                prop::option::weighted(0.4, 1..4_000u64),
                arguments(is_text),
                prop::option::weighted(0.2, 1..60u64),
                any::<bool>(),
            );
            (
                prop::collection::vec(row(keys, is_line, weight), count),
                rest,
            )
                .prop_map(move |(mut rows, rest)| {
                    let (
                        is_pretty,
                        has_default_view,
                        has_copy,
                        org_budget,
                        arguments,
                        other_limit,
                        follows_next,
                    ) = rest;
                    if is_unique {
                        for (index, row) in rows
                            .iter_mut()
                            .enumerate()
                            .filter(|(_, row)| row.text.starts_with("{\"id\":"))
                        {
                            let rest = row.text.find([',', '}']).unwrap();
                            row.text = format!("{{\"id\":\"row-{index}\"{}", &row.text[rest..]);
                        }
                    }
                    if matches!(layout, Layout::Nested { is_declared: false }) {
                        // The automatic rule knows an array of objects by its first one.
                        let first = Row {
                            text: "{\"id\":\"first\",\"state\":\"open\"}".into(),
                            state: Some("open"),
                        };
                        rows.insert(0, first);
                    }
                    Case {
                        rows,
                        layout: layout.clone(),
                        is_pretty,
                        is_keyed,
                        has_default_view,
                        has_copy,
                        cap,
                        org_budget,
                        gates: None,
                        arguments,
                        other_limit,
                        follows_next,
                    }
                })
        },
    )
}

/// A call of this case that is a mistake by the model: a table where no row of the page has a column.
fn is_mistake(step: &Step) -> bool {
    step.refusal().is_some_and(|refusal| {
        let message = refusal["message"].as_str().unwrap();
        message.contains("has any of the columns") || message.contains("unknown field")
    })
}

/// The answers of a walk, with refusals in between left out.
fn answers(steps: &[Step]) -> impl Iterator<Item = &Step> {
    steps.iter().filter(|step| step.reply.refusal().is_none())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_account_balances_on_every_page(case in case()) {
        let filtered = case.rows.iter().filter(|row| case.is_filtered(row) == Some(true)).count() as u64;
        let hidden = case.rows.iter().filter(|row| case.is_filtered(row) == Some(false)).count() as u64;
        let mut delivered = 0;
        for step in answers(&case.walk()) {
            let receipt = step.receipt();
            let sum = receipt.returned + receipt.hidden + receipt.filtered + receipt.before + receipt.after.unwrap();
            prop_assert_eq!(receipt.total, Some(sum));
            prop_assert_eq!(receipt.total, Some(case.rows.len() as u64));
            prop_assert_eq!((receipt.hidden, receipt.filtered), (hidden, filtered));
            prop_assert_eq!(receipt.before, delivered);
            delivered += receipt.returned;
            let facts = step.facts();
            prop_assert_eq!(&facts["total_count"], &json!(case.rows.len()));
            prop_assert_eq!(&facts["matched_count"], &json!(case.matching().len()));
            prop_assert_eq!(&facts["returned"], &json!(receipt.returned));
            for passages in receipt.passages.windows(2) {
                prop_assert_eq!(passages[0].rows_out, passages[1].rows_in);
            }
        }
    }

    #[test]
    fn pages_join_to_the_matching_rows_in_order_and_byte_for_byte(case in case()) {
        let policy = case.policy();
        let steps = case.walk();
        let matching = case.matching();
        let mut at = 0;
        for step in answers(&steps) {
            let returned = step.receipt().returned as usize;
            let expected = &matching[at..at + returned];
            at += returned;
            if step.ask.format != Format::Json {
                continue;
            }
            let rows = case.rows_of(step.reply.body());
            let expected: Vec<String> =
                expected.iter().map(|row| selected(&step.ask, &policy, &case.layout, &row.text)).collect();
            prop_assert_eq!(rows, expected);
        }
        if steps.last().unwrap().reply.refusal().is_none() {
            prop_assert_eq!(at, matching.len());
        }
    }

    #[test]
    fn with_nothing_taken_away_the_body_is_the_document(case in case(), asks_for_everything: bool) {
        let mut case = case;
        if asks_for_everything {
            for name in ["fields", "format", "state"] {
                case.arguments.remove(name);
            }
            case.arguments.insert("limit".into(), 100.into());
            if !matches!(case.layout, Layout::Lines) {
                case.arguments.insert("horizon".into(), "all".into());
                case.arguments.insert("detail".into(), "full".into());
            }
            case.rows.truncate(100);
            case.cap = 262_144;
        }
        let policy = case.policy();
        for step in answers(&case.walk()) {
            let is_all = step.receipt().returned == case.rows.len() as u64 && step.ask.format == Format::Json;
            let is_full = case.rows.iter().all(|row| selected(&step.ask, &policy, &case.layout, &row.text) == row.text);
            if let Some(document) = case.document().filter(|_| is_all && is_full) {
                prop_assert_eq!(step.reply.body(), document);
            }
        }
    }

    #[test]
    fn cursors_are_short_never_come_twice_and_end_with_the_rows(case in case()) {
        let mut seen = HashSet::new();
        for step in answers(&case.walk()) {
            let next_after = step.reply.next_after();
            prop_assert_eq!(next_after.is_some(), step.receipt().after != Some(0));
            let facts = step.facts();
            prop_assert_eq!(facts.get("next_after").and_then(Value::as_str), next_after);
            prop_assert_eq!(facts.get("next").is_some(), next_after.is_some());
            if let Some(cursor) = next_after {
                prop_assert!(cursor.len() <= MAX_CURSOR_CHARS);
                prop_assert!(seen.insert(cursor.to_owned()), "the cursor came before");
            }
        }
    }

    #[test]
    fn no_reply_reaches_the_cap_and_every_next_of_a_refusal_fits(case in case()) {
        let copies = if case.has_copy { 2 } else { 1 };
        let steps = case.walk();
        for (index, step) in steps.iter().enumerate() {
            let bytes = step.reply.facts().len() + step.reply.body().len();
            let Some(refusal) = step.refusal() else {
                prop_assert!(bytes * copies < case.cap as usize, "{bytes} bytes");
                continue;
            };
            prop_assert!(bytes < MAX_REFUSAL_BYTES);
            if is_mistake(step) {
                continue;
            }
            prop_assert_eq!(&refusal["error"], "response_too_large", "{}", refusal);
            if refusal.get("next").is_some() {
                prop_assert!(steps[index + 1].reply.refusal().is_none(), "{refusal} leads to {}", steps[index + 1].reply.body());
            } else {
                // Only where not even one row fits.
                let first = case.call(&case.policy(), &{
                    let mut arguments = step.ask.arguments.clone();
                    arguments.insert("limit".into(), 1.into());
                    arguments.extend(step.ask.after.clone().map(|after| ("after".into(), after.into())));
                    arguments
                });
                // What a smaller page may have beside its rows is reckoned with, hence the 2,000 bytes.
                let bytes = first.reply.facts().len() + first.reply.body().len() + 2_000;
                prop_assert!(first.reply.refusal().is_some() || bytes * copies > case.cap as usize, "{refusal}");
            }
        }
    }

    /// For every client program, and for programs that take less than any that is known.
    #[test]
    fn no_reply_reaches_a_gate_of_its_client_and_the_pages_are_the_whole(
        case in case(),
        profile in 0..crate::client::profiles().len() + 1,
        sizes in prop::array::uniform4(prop::option::of(8_000..30_000u64)), lines in prop::option::of(4..80u64),
    ) {
        let gates = match crate::client::profiles().get(profile) {
            Some(profile) => profile.gates.clone(),
            None => {
                let [bytes, characters, tokens, _] = sizes;
                Gates { client: "Some".into(), bytes, characters, tokens, lines, counts_media: false }
            }
        };
        let mut case = case;
        case.cap = 262_144;
        case.gates = Some(gates.clone());
        let policy = case.policy();
        let steps = case.walk();
        let matching = case.matching();
        let mut delivered = 0;
        for (index, step) in steps.iter().enumerate() {
            // As a client sees it: every text block, and the structured copy.
            let blocks = [step.reply.facts().to_owned(), step.reply.body().to_owned()];
            let structured = step.reply.structured().ok().flatten().map(|value| value.to_string());
            let size = blocks
                .iter()
                .filter(|block| !block.is_empty())
                .chain(&structured)
                .fold(Size::default(), |size, block| size + Size::of(block, tokens::count));
            for unit in Unit::ALL {
                let gate = gates.of(unit).unwrap_or(u64::MAX);
                prop_assert!(size.get(unit) < gate, "{} {} of {gate}: {}", size.get(unit), unit.name(), step.reply.body());
            }
            let Some(refusal) = step.refusal() else {
                let receipt = step.receipt();
                let after = receipt.after.unwrap();
                let sum = receipt.returned + receipt.hidden + receipt.filtered + receipt.before + after;
                prop_assert_eq!(receipt.total, Some(sum));
                let limit = step.ask.limit.unwrap_or(25).into();
                let on_page = (receipt.returned + after).min(limit);
                prop_assert_eq!(receipt.budget_rows_dropped, on_page - receipt.returned);
                let rows = &matching[delivered..delivered + receipt.returned as usize];
                delivered += rows.len();
                if step.ask.format == Format::Json {
                    let expected: Vec<String> =
                        rows.iter().map(|row| selected(&step.ask, &policy, &case.layout, &row.text)).collect();
                    prop_assert_eq!(case.rows_of(step.reply.body()), expected);
                }
                continue;
            };
            if is_mistake(step) {
                continue;
            }
            prop_assert_eq!(&refusal["error"], "response_too_large", "{}", refusal);
            prop_assert_eq!(&refusal["payload"]["gate"]["client"], gates.client.as_str(), "{}", refusal);
            if refusal.get("next").is_some() {
                prop_assert!(steps[index + 1].reply.refusal().is_none(), "{refusal} leads to {}", steps[index + 1].reply.body());
            }
        }
        if steps.last().unwrap().reply.refusal().is_none() {
            prop_assert_eq!(delivered, matching.len());
        }
    }

    #[test]
    fn one_answer_shaped_for_many_readers_is_what_each_alone_would_get(case in case()) {
        let policy = case.policy();
        let signer = Signer::new([7; 32]);
        let ask = Ask::read(&policy, &signer, "acme", "rows", &["topic".into()], case.arguments.clone()).unwrap();
        let tool = case.tool();
        let none = BudgetSources::default().resolve();
        let readers: Vec<Reader<'_>> = crate::client::profiles()
            .iter()
            .map(|profile| {
                let sources = BudgetSources { client_default: profile.budget_tokens, ..BudgetSources::default() };
                Reader { budget: sources.resolve(), gates: Some(&profile.gates) }
            })
            .chain([Reader { budget: none, gates: None }])
            .collect();
        let call = Call { policy: &policy, tool: &tool, ask: &ask, signer: &signer, budget: none, gates: None };
        let replies = shape_each(&mut case.intake(&policy, &ask), &call, &readers);
        prop_assert_eq!(replies.len(), readers.len());
        for (reader, reply) in readers.iter().zip(&replies) {
            let call = Call { budget: reader.budget, gates: reader.gates, ..call };
            let alone = shape(case.intake(&policy, &ask), &call);
            prop_assert_eq!(reply.body(), alone.body());
            prop_assert_eq!(reply.facts(), alone.facts());
            prop_assert_eq!(reply.receipt_json(), alone.receipt_json());
        }
    }

    #[test]
    fn bodies_parse_and_tables_have_the_values_of_the_rows(case in case()) {
        let matching = case.matching();
        let mut at = 0;
        for step in answers(&case.walk()) {
            let body = step.reply.body();
            let rows = &matching[at..at + step.receipt().returned as usize];
            at += rows.len();
            if step.ask.format == Format::Json {
                if !matches!(case.layout, Layout::Lines) {
                    prop_assert_eq!(scan::validate(body.as_bytes()), Ok(()));
                    let parses = serde_json::from_str::<Value>(body).is_ok();
                    prop_assert!(parses || body.contains("1e400"), "{body}");
                }
                continue;
            }
            let delimiter = if step.ask.format == Format::Csv { b',' } else { b'\t' };
            let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(body.as_bytes());
            let columns: Vec<(&str, &str)> = if step.ask.fields.is_empty() {
                COLUMNS.to_vec()
            } else {
                let fields = step.ask.fields.iter();
                fields.map(|field| *COLUMNS.iter().find(|(_, path)| *path == field.text()).unwrap()).collect()
            };
            prop_assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), columns.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            let records: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(records.len(), rows.len());
            for (record, row) in records.iter().zip(rows) {
                for (cell, (_, path)) in record.iter().zip(&columns) {
                    let mut found = Vec::new();
                    Path::new(path).unwrap().any(row.text.as_bytes(), |value| {
                        found.push(String::from_utf8(value.to_vec()).unwrap());
                        false
                    });
                    let expected = match &found[..] {
                        [] => String::new(),
                        [value] if value == "null" => String::new(),
                        [value] => serde_json::from_str::<String>(value).unwrap_or_else(|_| value.clone()),
                        values => format!("[{}]", values.join(",")),
                    };
                    prop_assert_eq!(cell, expected);
                }
            }
        }
    }

    #[test]
    fn tokens_are_those_of_the_reply_and_the_budget_is_kept(case in case()) {
        let copies = if case.has_copy { 2 } else { 1 };
        for step in answers(&case.walk()) {
            let receipt = step.receipt();
            let tokens = copies * (tokens::count(step.reply.facts()) + tokens::count(step.reply.body()));
            prop_assert!(receipt.approx_tokens.abs_diff(tokens) <= 3 * copies, "{} is not {tokens}", receipt.approx_tokens);
            prop_assert_eq!(&step.facts()["approx_tokens"], &json!(receipt.approx_tokens));
            let sources = BudgetSources { input: step.ask.max_tokens(), org: case.org_budget, ..BudgetSources::default() };
            let Budget { tokens: budget, source, .. } = sources.resolve();
            prop_assert_eq!((receipt.budget_tokens, receipt.budget_source), (budget, source));
            let limit = step.ask.limit.unwrap_or(25).into();
            if let Some(budget) = budget {
                prop_assert!(receipt.returned <= 1 || receipt.approx_tokens <= budget);
                let on_page = (receipt.returned + receipt.after.unwrap()).min(limit);
                prop_assert_eq!(receipt.budget_rows_dropped, on_page - receipt.returned);
            } else {
                prop_assert_eq!(receipt.budget_rows_dropped, 0);
            }
            prop_assert!(receipt.returned >= 1 || case.matching().len() as u64 == receipt.before);
        }
    }

    #[test]
    fn a_backend_that_applies_part_of_the_query_pages_to_the_same_rows(
        case in case(), applies_filters: bool, applies_after: bool, applies_limit: bool, says_total: bool,
    ) {
        let mut case = case;
        case.layout = Layout::Pushed(vec![7]);
        case.is_keyed = true;
        case.cap = 4_000_000;
        // A backend has a unique key; that is what makes it able to start behind one.
        case.rows = case.matching().iter().enumerate().map(|(index, row)| {
            let state = STATES[index % 3];
            Row { text: format!("{{\"id\":{index},\"state\":\"{state}\",\"of\":{}}}", row.text.len()), state: Some(state) }
        }).collect();
        let policy = case.policy();
        let signer = Signer::new([7; 32]);
        let mut arguments = case.arguments.clone();
        for name in ["fields", "format"] {
            arguments.remove(name);
        }
        arguments.insert("detail".into(), "full".into());
        case.arguments = arguments.clone();
        let mut walked = Vec::new();
        for _ in 0..=case.rows.len() + 1 {
            let ask = Ask::read(&policy, &signer, "acme", "rows", &["topic".into()], arguments.clone()).unwrap();
            let pushed = ask.pushed_down(&policy);
            let mut intake = Intake::new(&policy, &ask, DEFAULT_INTAKE_BYTES);
            let mut applied = PushDown::empty();
            let mut rows: Vec<&Row> = case.rows.iter().collect();
            if applies_after && let Some(after) = &pushed.after {
                applied |= PushDown::AFTER;
                rows.retain(|row| serde_json::from_str::<Value>(&row.text).unwrap()["id"].as_u64() > after.parse().ok());
            }
            if applies_filters {
                applied |= PushDown::FILTERS;
                let holds = |row: &Row| pushed.conditions.iter().all(|(_, values)| values.contains(&json!(row.state)));
                rows.retain(|row| holds(row));
            }
            // Whoever limits must have done the rest before.
            let can_limit = (applies_filters || pushed.conditions.is_empty()) && (applies_after || pushed.after.is_none());
            if applies_limit && can_limit && let Some(limit) = pushed.limit {
                applied |= PushDown::LIMIT;
                rows.truncate(limit as usize);
            }
            intake.applied(applied);
            if says_total {
                intake.total(case.rows.len() as u64);
            }
            for row in &rows {
                if intake.rows(row.text.as_bytes()) == crate::contract::Demand::Enough {
                    break;
                }
            }
            let tool = case.tool();
            let budget = BudgetSources::default().resolve();
            let reply = shape(intake, &Call { policy: &policy, tool: &tool, ask: &ask, signer: &signer, budget, gates: None });
            prop_assert!(reply.refusal().is_none(), "{}", reply.body());
            let receipt = reply.receipt().unwrap();
            if let (Some(total), Some(after)) = (receipt.total, receipt.after) {
                prop_assert_eq!(total, receipt.returned + receipt.hidden + receipt.filtered + receipt.before + after);
            }
            prop_assert!(receipt.total.is_none_or(|total| total == case.rows.len() as u64), "{:?}", receipt.total);
            prop_assert_eq!(receipt.before, walked.len() as u64);
            walked.extend(case.rows_of(reply.body()));
            let facts: Value = serde_json::from_str(reply.facts()).unwrap();
            let Some(Value::Object(next)) = facts.get("next").cloned() else { break };
            prop_assert!(receipt.returned > 0);
            arguments = next;
        }
        let matching: Vec<String> = case.matching().iter().map(|row| row.text.clone()).collect();
        prop_assert_eq!(walked, matching);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever a guest hands over, in whatever order, and whatever it says about it.
    #[test]
    fn no_answer_makes_the_stages_panic(
        case in case(),
        acts in prop::collection::vec((0..7u8, prop::collection::vec(any::<u8>(), 0..40), any::<u64>()), 0..5),
        broken in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(b"{}[]\",:\\n\n x0".to_vec())), 0..4),
        source in 0..4u8,
    ) {
        let mut declared = declared(&case);
        declared.rows = match source {
            0 => RowSource::Automatic,
            1 => RowSource::Whole,
            2 => RowSource::Lines,
            _ => RowSource::Pointer("/page/items".into()),
        };
        let policy = Policy::new(&declared, 262_144, &["state", "topic", "remark"], &BTreeMap::new()).unwrap();
        let known: Vec<&str> = HostArgument::ALL.into_iter().filter_map(|argument| policy.published(argument)).collect();
        let mut arguments = case.arguments.clone();
        arguments.retain(|name, _| known.contains(&name.as_str()) || ["state", "topic", "remark"].contains(&name.as_str()));
        let signer = Signer::new([7; 32]);
        let ask = Ask::read(&policy, &signer, "", "rows", &[], arguments).unwrap();
        let mut intake = Intake::new(&policy, &ask, 20_000);
        let mut document = case.document().unwrap_or_default().into_bytes();
        for (index, byte) in broken {
            if !document.is_empty() {
                let at = index.index(document.len());
                document[at] = byte;
            }
        }
        for (act, bytes, number) in acts {
            match act {
                0 => intake.document(&bytes),
                1 => intake.document(&document),
                2 => _ = intake.rows(&bytes),
                3 => _ = intake.rows(&document),
                4 => intake.total(number),
                5 => intake.attach(Attachment::Image(Blob { media_type: "image/png".into(), data: vec![0; number as usize % 20_000] })),
                _ => {
                    let flags = [PushDown::LIMIT, PushDown::AFTER, PushDown::FIELDS, PushDown::FILTERS];
                    let said = (0..4).filter(|bit| number >> bit & 1 == 1).map(|bit| flags[bit]);
                    intake.applied(said.fold(PushDown::empty(), |said, flag| said | flag));
                }
            }
        }
        let budget = BudgetSources { org: case.org_budget, ..BudgetSources::default() }.resolve();
        let reply = shape(intake, &Call { policy: &policy, tool: &case.tool(), ask: &ask, signer: &signer, budget, gates: None });
        prop_assert!(reply.refusal().is_some() || reply.body().len() < case.cap as usize);
    }
}
