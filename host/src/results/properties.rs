//! Properties of kept results, over generated answers: whatever page sizes and budgets a walk has, its pages are the
//! complete result, byte for byte, and the account of each balances.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Origin, Results, Store, TenantFolder};
use crate::config::Config;
use crate::contract::{Accepted, Horizon, RowSource, Shape};
use crate::shape::{
    Ask, BudgetSources, Call, Code, DEFAULT_INTAKE_BYTES, HostArgument, Intake, KeptKind, Policy,
    Reader, Refusal, Reply, Signer, ToolFacts, json as scan, undeclared,
};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    Nested,
    Pushed,
    Lines,
}

#[derive(Debug, Clone)]
struct Case {
    /// Rows, and whether each is live.
    rows: Vec<(String, bool)>,
    layout: Layout,
    /// The limit and the budget of each page, over and over.
    pages: Vec<(u64, Option<u64>)>,
}

const PREFIX: &str = "{ \"at\": 0.10,\n \"items\":[";
const SUFFIX: &str = "],\"end\" : null }\n";

fn row(layout: Layout) -> BoxedStrategy<(String, bool)> {
    let text = prop_oneof![4 => ".{0,40}", 1 => ".{200,2000}"];
    match layout {
        Layout::Lines => "[^\n]{0,60}".prop_map(|line| (line, true)).boxed(),
        _ => (any::<u64>(), text, any::<bool>(), any::<bool>())
            .prop_map(move |(number, text, is_live, is_pretty)| {
                // A pushed row is one line; a row of a document has line breaks of its own.
                let space = if is_pretty && layout == Layout::Nested {
                    "\n   "
                } else {
                    ""
                };
                let state = if is_live { "open" } else { "merged" };
                let text = Value::String(text);
                (
                    format!(
                        "{{{space}\"n\":{number}.10,\"state\": \"{state}\",{space}\"text\":{text}}}"
                    ),
                    is_live,
                )
            })
            .boxed(),
    }
}

fn case() -> impl Strategy<Value = Case> {
    prop_oneof![
        Just(Layout::Nested),
        Just(Layout::Pushed),
        Just(Layout::Lines)
    ]
    .prop_flat_map(|layout| {
        let budget = prop::option::of(2_000..4_000u64);
        let pages = prop::collection::vec((1..=100u64, budget), 1..4);
        (prop::collection::vec(row(layout), 0..150), pages).prop_map(move |(rows, pages)| Case {
            rows,
            layout,
            pages,
        })
    })
}

impl Case {
    fn policy(&self) -> Policy {
        let is_text = self.layout == Layout::Lines;
        let shape = Shape {
            rows: match self.layout {
                Layout::Nested => RowSource::Pointer("/items".into()),
                Layout::Pushed => RowSource::Automatic,
                Layout::Lines => RowSource::Lines,
            },
            horizon: (!is_text).then(|| Horizon {
                field: "state".into(),
                live: Accepted::NoneOf(vec!["merged".into()]),
                excluded: "merged rows".into(),
            }),
            ..undeclared()
        };
        Policy::new(&shape, 262_144, &[], &BTreeMap::new()).unwrap()
    }

    /// Hands the answer over, as the plugin would in the first call and in no other.
    fn answer(&self, intake: &mut Intake) {
        let texts: Vec<&str> = self.rows.iter().map(|(text, _)| text.as_str()).collect();
        match self.layout {
            Layout::Nested => {
                intake.document(format!("{PREFIX}{}{SUFFIX}", texts.join(" ,\n")).as_bytes())
            }
            Layout::Lines => intake.document(
                texts
                    .iter()
                    .map(|line| format!("{line}\n"))
                    .collect::<String>()
                    .as_bytes(),
            ),
            Layout::Pushed => {
                for piece in texts.chunks(7) {
                    intake.rows(piece.join("\n").as_bytes());
                }
            }
        }
    }

    /// The rows of a body that has so many, as they stand in it.
    fn rows_of(&self, body: &str, returned: usize) -> Vec<String> {
        match self.layout {
            Layout::Lines if returned == 0 => Vec::new(),
            // A whole document ends with a line break, a page does not; and a line may be empty.
            Layout::Lines => body.split('\n').take(returned).map(str::to_owned).collect(),
            _ => {
                let open = match self.layout {
                    Layout::Nested => {
                        assert!(body.starts_with(PREFIX) && body.ends_with(SUFFIX), "{body}");
                        PREFIX.len() - 1
                    }
                    _ => 0,
                };
                let elements = scan::elements(body.as_bytes(), open);
                elements
                    .map(|element| body[element.unwrap()].to_owned())
                    .collect()
            }
        }
    }
}

fn results(folder: &std::path::Path) -> Results {
    let config = Config::parse("", folder).unwrap();
    let store = Store::open(&config.results.location.value).unwrap();
    let results = Results::open(
        &config.results,
        &config.state.value,
        &Signer::new([7; 32]),
        store,
    )
    .unwrap();
    results.links().begin_with("https://plimsoll.example.com");
    results
}

async fn call(results: &Results, case: &Case, arguments: Map<String, Value>) -> Reply {
    call_as(results, case, &case.policy(), |policy, signer| {
        Ask::read(policy, signer, "acme", "rows", &[], arguments)
    })
    .await
    .unwrap()
}

/// Makes a call, or reads a page of what is kept: as the host does, with what `ask` says.
async fn call_as(
    results: &Results,
    case: &Case,
    policy: &Policy,
    ask: impl FnOnce(&Policy, &Signer) -> Result<Ask, Refusal>,
) -> Result<Reply, Refusal> {
    let signer = Signer::new([7; 32]);
    let tool = ToolFacts {
        name: "rows".into(),
        narrowing: Vec::new(),
        own_limit: None,
        has_structured_copy: false,
        is_invoked: false,
    };
    let ask = ask(policy, &signer)?;
    let sources = BudgetSources {
        input: ask.max_tokens(),
        ..BudgetSources::default()
    };
    let call = Call {
        policy,
        tool: &tool,
        ask: &ask,
        signer: &signer,
        budget: sources.resolve(),
        gates: None,
    };
    if ask.kept_place().is_some() {
        return results.page(&call, "acme", DEFAULT_INTAKE_BYTES).await;
    }
    assert!(
        !ask.is_continuation(),
        "a page that is not the first comes from what is kept"
    );
    let mut intake = Intake::new(policy, &ask, DEFAULT_INTAKE_BYTES).spooling(results.spool());
    case.answer(&mut intake);
    let origin = Origin {
        tenant: "acme",
        key: None,
        subject: None,
        plugin: "p",
        is_read_only: true,
    };
    let reader = Reader {
        budget: call.budget,
        gates: call.gates,
    };
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut replies = results
        .shape_each(intake, &call, &[reader], origin, until)
        .await;
    Ok(replies.pop().unwrap())
}

async fn check(case: Case) {
    let folder = tempfile::tempdir().unwrap();
    let results = Arc::new(results(folder.path()));
    let matching: Vec<&String> = case
        .rows
        .iter()
        .filter(|(_, is_live)| *is_live)
        .map(|(text, _)| text)
        .collect();
    let (mut walked, mut next, mut id) = (Vec::new(), Some(Map::new()), None);
    let mut pages = case.pages.iter().cycle();
    while let Some(mut arguments) = next {
        let (limit, budget) = pages.next().unwrap();
        arguments.insert("limit".into(), (*limit).into());
        budget.map(|budget| arguments.insert("max_tokens".into(), budget.into()));
        let reply = call(&results, &case, arguments).await;
        assert_eq!(reply.refusal(), None, "{}", reply.body());
        let facts: Value = serde_json::from_str(reply.facts()).unwrap();
        let receipt = reply.receipt().unwrap();
        let before = walked.len() as u64;
        walked.extend(case.rows_of(reply.body(), receipt.returned as usize));
        // The account is that of the whole answer, on whichever page.
        assert_eq!(facts["total_count"], case.rows.len());
        assert_eq!(facts["matched_count"], matching.len());
        assert_eq!(
            (receipt.before, receipt.returned),
            (before, walked.len() as u64 - before)
        );
        let all = receipt.returned
            + receipt.hidden
            + receipt.filtered
            + receipt.before
            + receipt.after.unwrap();
        assert_eq!(receipt.total, Some(all));
        next = facts
            .get("next")
            .map(|next| next.as_object().unwrap().clone());
        // Whatever leaves something out points to the whole, and nothing else does.
        assert_eq!(reply.complete().is_some(), next.is_some(), "{facts}");
        assert_eq!(facts.get("link").is_some(), next.is_some(), "{facts}");
        if let Some(complete) = reply.complete() {
            assert_eq!(*id.get_or_insert(complete.id), complete.id);
        }
        assert!(walked.len() <= matching.len());
    }
    assert!(
        walked.iter().eq(matching.iter().copied()),
        "{walked:?} is not {matching:?}"
    );
    let Some(id) = id else {
        // Everything fitted on one page: nothing is stored.
        assert!(results.store.list("tenants").await.unwrap().is_empty());
        return;
    };
    let stored = results
        .kept(TenantFolder::of("acme"), id)
        .await
        .unwrap()
        .unwrap();
    let kind = match case.layout {
        Layout::Nested => KeptKind::Array,
        Layout::Pushed => KeptKind::Pushed,
        Layout::Lines => KeptKind::Lines,
    };
    assert_eq!(stored.kind, kind);
    let (mut reader, mut rows) = (results.rows(&stored).await.unwrap(), Vec::new());
    while reader
        .next(|row| rows.push(String::from_utf8(row.to_vec()).unwrap()))
        .await
        .unwrap()
    {}
    assert!(rows.iter().eq(matching.iter().copied()));
    let found = results.store.list("tenants").await.unwrap();
    let names: Vec<&str> = found.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(names, [TenantFolder::of("acme").object(id)]);
}

fn run(case: Case) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(check(case));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_pages_of_a_kept_answer_join_to_the_whole_byte_for_byte(case in case()) {
        run(case);
    }
}

/// Rows of a quarter of a mebibyte with a view of one field: a page is more than one read of the store.
#[test]
fn a_page_of_long_rows_takes_several_reads() {
    let row = |row: usize| {
        (
            format!(
                "{{\"id\":{row},\"text\":\"{}\"}}",
                "x".repeat(300_000 + row)
            ),
            true,
        )
    };
    let case = Case {
        rows: (0..20).map(row).collect(),
        layout: Layout::Pushed,
        pages: vec![(1, None), (100, None)],
    };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let results = results(folder.path());
        let arguments = |limit: u64, more: Value| {
            let mut arguments = more.as_object().unwrap().clone();
            arguments.insert("limit".into(), limit.into());
            arguments
        };
        let first = call(&results, &case, arguments(3, json!({"fields": ["id"]}))).await;
        assert_eq!(
            case.rows_of(first.body(), 3),
            ["{\"id\":0}", "{\"id\":1}", "{\"id\":2}"]
        );
        let after = first.next_after().unwrap();
        let rest = call(&results, &case, arguments(100, json!({"after": after}))).await;
        let ids: Vec<String> = (3..20).map(|row| format!("{{\"id\":{row}}}")).collect();
        assert_eq!(case.rows_of(rest.body(), 17), ids);
        assert_eq!(rest.next_after(), None);
    });
}

fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(future);
}

#[test]
fn a_broken_row_behind_the_first_page_is_refused_where_it_would_be_delivered() {
    let mut rows: Vec<(String, bool)> = (0..9)
        .map(|row| (format!("{{\"id\":{row}}}"), true))
        .collect();
    rows[5].0 = String::from("{\"id\":NaN}");
    let case = Case {
        rows,
        layout: Layout::Pushed,
        pages: Vec::new(),
    };
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let results = results(folder.path());
        let first = call(
            &results,
            &case,
            Map::from_iter([("limit".into(), 3.into())]),
        )
        .await;
        let (after, id) = (first.next_after().unwrap(), first.complete().unwrap().id);
        let second = call(
            &results,
            &case,
            Map::from_iter([("after".into(), after.into())]),
        )
        .await;
        assert_eq!(second.refusal(), Some(Code::InvalidAnswer));
        let refusal: Value = serde_json::from_str(second.body()).unwrap();
        let message = refusal["message"].as_str().unwrap();
        assert!(
            message.contains("the answer is not valid JSON")
                && message.contains("at $[5].id (byte "),
            "{message}"
        );
        // People see it all the same, as what it is.
        let stored = results
            .kept(TenantFolder::of("acme"), id)
            .await
            .unwrap()
            .unwrap();
        let (mut reader, mut rows) = (results.rows(&stored).await.unwrap(), Vec::new());
        while reader.next(|row| rows.push(row.to_vec())).await.unwrap() {}
        assert_eq!(rows[5], b"{\"id\":NaN}");
    });
}

#[test]
fn a_tool_without_pages_points_to_the_rest_which_is_read_page_by_page() {
    let row = |row: usize| {
        (
            format!("{{\"id\":{row},\"text\":\"{}\"}}", "ship ".repeat(40)),
            true,
        )
    };
    let case = Case {
        rows: (0..120).map(row).collect(),
        layout: Layout::Nested,
        pages: Vec::new(),
    };
    let names = BTreeMap::from([(HostArgument::After, None), (HostArgument::Limit, None)]);
    let shape = Shape {
        rows: RowSource::Pointer("/items".into()),
        ..undeclared()
    };
    let policy = Policy::new(&shape, 262_144, &[], &names).unwrap();
    let arguments = Map::from_iter([("max_tokens".into(), Value::from(2_000))]);
    let folder = tempfile::tempdir().unwrap();
    block_on(async {
        let results = results(folder.path());
        let ask = |policy: &Policy, signer: &Signer| {
            Ask::read(policy, signer, "acme", "rows", &[], arguments.clone())
        };
        let reply = call_as(&results, &case, &policy, ask).await.unwrap();
        let facts: Value = serde_json::from_str(reply.facts()).unwrap();
        assert!(
            facts["budget_rows_dropped"].as_u64().unwrap() > 50,
            "{facts}"
        );
        assert_eq!(reply.next_after(), None);
        assert!(facts["link"].is_string(), "{facts}");
        let stored = results
            .kept(TenantFolder::of("acme"), reply.complete().unwrap().id)
            .await
            .unwrap()
            .unwrap();
        let (mut walked, mut after) = (Vec::new(), None::<String>);
        loop {
            let read = |policy: &Policy, signer: &Signer| {
                let ask = ask(policy, signer)?;
                let ask = match &after {
                    Some(after) => ask.continued(signer, policy, "rows", after)?.0,
                    None => ask,
                };
                Ok(ask.reading(stored.id, stored.start))
            };
            let page = call_as(&results, &case, &policy, read).await.unwrap();
            let returned = page.receipt().unwrap().returned as usize;
            walked.extend(case.rows_of(page.body(), returned));
            after = page.next_after().map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        assert!(walked.iter().eq(case.rows.iter().map(|(text, _)| text)));
    });
}
