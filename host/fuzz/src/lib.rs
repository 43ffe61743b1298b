//! What the targets share: one call of the host without a plugin, and what has to hold of every reply.

use std::collections::BTreeMap;

use plimsoll::contract::{Accepted, Column, Filter, Horizon, RowSource, Shape, View};
use plimsoll::shape::{Ask, BudgetSources, Call, DEFAULT_CAP_BYTES, Intake, MAX_REFUSAL_BYTES, Policy, Refusal, Reply, Signer, ToolFacts, shape, undeclared};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What an answer may hand over: little, so that its bound is met as well.
const INTAKE_BYTES: usize = 1 << 16;

/// The tool that is called.
pub struct Subject {
    policy: Policy,
    facts: ToolFacts,
    signer: Signer,
}

impl Subject {
    /// A tool of this shape; none where the host refuses to carry it out.
    pub fn new(shape: &Shape) -> Option<Self> {
        let policy = Policy::new(shape, DEFAULT_CAP_BYTES, &["id", "state"], &BTreeMap::new()).ok()?;
        let facts = ToolFacts { name: "tool".into(), narrowing: Vec::new(), own_limit: None, has_structured_copy: false, is_invoked: false };
        Some(Self { policy, facts, signer: Signer::new([7; 32]) })
    }

    /// The same tool of another installation.
    pub fn elsewhere(self) -> Self {
        Self { signer: Signer::new([8; 32]), ..self }
    }

    /// Reads a call.
    pub fn read(&self, arguments: Map<String, Value>) -> Result<Ask, Refusal> {
        Ask::read(&self.policy, &self.signer, "", "tool", &[], arguments)
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A call that is answered by what `hand_over` does.
    pub fn call(&self, arguments: Map<String, Value>, hand_over: impl Fn(&mut Intake)) -> Reply {
        let reply = match self.read(arguments) {
            Err(refusal) => Reply::refused(&refusal),
            Ok(ask) => {
                let mut intake = Intake::new(&self.policy, &ask, INTAKE_BYTES);
                hand_over(&mut intake);
                let budget = BudgetSources { input: ask.max_tokens(), ..Default::default() }.resolve();
                shape(intake, &Call { policy: &self.policy, tool: &self.facts, ask: &ask, signer: &self.signer, budget, gates: None })
            }
        };
        check(&reply);
        reply
    }

    /// The same call again and again with the cursor of the reply before: every row that is left after the first page
    /// comes once, and the pages end.
    pub fn call_to_the_end(&self, arguments: &Map<String, Value>, hand_over: impl Fn(&mut Intake)) {
        let mut reply = self.call(arguments.clone(), &hand_over);
        for _ in 0..200 {
            let Some(after) = reply.next_after().map(str::to_owned) else { return };
            let left = reply.receipt().and_then(|receipt| receipt.after);
            let mut arguments = arguments.clone();
            arguments.insert("after".into(), after.into());
            reply = self.call(arguments, &hand_over);
            if let (Some(left), Some(receipt)) = (left, reply.receipt()) {
                assert_eq!(Some(left), receipt.after.map(|after| after + receipt.returned), "rows are lost or repeated");
                assert!(receipt.returned > 0, "a page without rows that has a next one");
            }
        }
    }
}

/// A shape that declares everything, with its rows there.
pub fn everything(rows: RowSource) -> Shape {
    Shape {
        rows,
        key: Some("id".into()),
        horizon: Some(Horizon {
            field: "state".into(),
            live: Accepted::NoneOf(vec!["closed".into()]),
            excluded: "closed rows".into(),
        }),
        views: vec![View { name: "brief".into(), fields: vec!["id".into(), "owner.name".into()] }],
        columns: vec![Column { name: "id".into(), field: "id".into() }, Column { name: "owner".into(), field: "owner.name".into() }],
        filters: vec![Filter { argument: "state".into(), field: "state".into() }],
        ..undeclared()
    }
}

/// What holds of every reply: it is under the cap, the account balances, and what says that it is JSON is JSON.
fn check(reply: &Reply) {
    let is_json = |text: &str| serde_json::from_str::<&RawValue>(text).is_ok();
    if reply.refusal().is_some() {
        assert!(reply.body().len() < MAX_REFUSAL_BYTES, "a refusal of {} bytes", reply.body().len());
        assert!(is_json(reply.body()), "{}", reply.body());
        return;
    }
    assert!(reply.facts().len() + reply.body().len() < DEFAULT_CAP_BYTES as usize, "a reply over the cap");
    assert!(is_json(reply.facts()), "{}", reply.facts());
    assert!(!reply.is_json() || is_json(reply.body()), "{}", reply.body());
    let Some(receipt) = reply.receipt() else { panic!("an answer without an account") };
    if let (Some(total), Some(after)) = (receipt.total, receipt.after) {
        assert_eq!(total, receipt.returned + receipt.hidden + receipt.filtered + receipt.before + after, "{receipt:?}");
    }
}
