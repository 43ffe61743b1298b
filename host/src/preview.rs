//! What each client program would get of one answer, side by side: for an operator who sets budgets, before a client does.

use serde::Serialize;

use crate::call::{Caller, Host};
use crate::client;
use crate::shape::{Code, Reply, source_name};

/// Who stands for every program that nothing is known of.
const ANY_OTHER: &str = "any other";

/// For whom an answer is shown, by name: the program that the caller names, or one for each profile and any other.
pub fn readers(host: &Host, caller: &Caller) -> Vec<(String, Caller)> {
    if let Some(name) = &caller.client {
        return vec![(name.clone(), caller.clone())];
    }
    let known = client::profiles().iter().filter_map(|profile| {
        let reader = Caller {
            client: profile.names.first().cloned(),
            ..caller.clone()
        };
        host.profile(&reader)?;
        Some((profile.id.clone(), reader))
    });
    known
        .chain([(String::from(ANY_OTHER), caller.clone())])
        .collect()
}

/// What one program gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The program.
    pub client: String,
    /// Rows of the reply.
    pub rows: Option<u64>,
    /// Rows of the page that a budget or a gate left out.
    pub rows_dropped: Option<u64>,
    /// Bytes of facts and body.
    pub bytes: u64,
    /// Tokens of the reply.
    pub tokens: Option<u64>,
    /// The budget.
    pub budget_tokens: Option<u64>,
    /// Who said so.
    pub budget_source: Option<&'static str>,
    /// What decided how much it is: `page`, `budget`, `gate`, or the name of a refusal.
    pub decided_by: &'static str,
    /// The gate that left rows out, such as `8192 bytes`.
    pub gate: Option<Gate>,
}

/// The size at which a program cuts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// How many.
    pub limit: u64,
    /// Of what.
    pub unit: &'static str,
}

impl Share {
    /// What a program gets with this reply.
    pub fn of(client: &str, reply: &Reply) -> Self {
        let receipt = reply.receipt();
        let gate = reply.gate().map(|gate| Gate {
            limit: gate.limit,
            unit: gate.unit.name(),
        });
        let dropped = receipt.map(|receipt| receipt.budget_rows_dropped);
        let decided_by = match (reply.refusal(), &gate, dropped) {
            (Some(code), ..) => Code::as_str(code),
            (None, Some(_), _) => "gate",
            (None, None, Some(0) | None) => "page",
            (None, None, Some(_)) => "budget",
        };
        Self {
            client: client.to_owned(),
            rows: receipt.map(|receipt| receipt.returned),
            rows_dropped: dropped,
            bytes: (reply.facts().len() + reply.body().len()) as u64,
            tokens: receipt.map(|receipt| receipt.approx_tokens),
            budget_tokens: receipt.and_then(|receipt| receipt.budget_tokens),
            budget_source: receipt.map(|receipt| source_name(receipt.budget_source)),
            decided_by,
            gate,
        }
    }
}

/// A number with its thousands apart, for people.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
