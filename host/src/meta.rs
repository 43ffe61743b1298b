//! Calls of the host's own tools: `search_tools`, `load_tool` and `invoke_tool`.
//!
//! Their answers are shaped as any plugin's, once for each reader, since what `load_tool` says depends on what its reader can
//! take. `invoke_tool` has no answer of its own: it is resolved to the call that it stands for before that begins.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::catalog::{Bounds, Carrier, Catalog, Entry, Meta, Nowhere, Outline, Place, Tool};
use crate::shape::{
    Call, Code, Field, INVOKED_ARGUMENTS, INVOKED_NAME, Intake, Refusal, Reply, Signer, ToolFacts,
    excerpt, shape,
};

/// Tokens of what `load_tool` says where nobody sets a budget: connectors refuse a tool of more.
pub const DEFAULT_LOAD_TOKENS: u64 = 5_000;

/// How many names of members a refusal gives.
const MAX_NAMED: usize = 40;

/// The call that is meant: of a tool itself, or of the one that `invoke_tool` names.
#[derive(Debug)]
pub(crate) struct Meant {
    pub(crate) tool: Arc<Tool>,
    /// The tool's facts in the form in which it was called, where that is not its own.
    invoked: Option<ToolFacts>,
}

impl Meant {
    /// The facts of the tool, in the form in which it was called.
    pub(crate) fn facts(&self) -> &ToolFacts {
        self.invoked.as_ref().unwrap_or(&self.tool.facts)
    }

    /// What a call of this tool means, and its arguments; or why none is meant.
    pub(crate) fn of(
        catalog: &Catalog,
        signer: &Signer,
        tenant: &str,
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
    ) -> (Self, Result<Map<String, Value>, Refusal>) {
        let itself = Self {
            tool: tool.clone(),
            invoked: None,
        };
        if !matches!(tool.carrier, Carrier::Host(Meta::Invoke)) {
            return (itself, Ok(arguments));
        }
        let read = tool.read(signer, tenant, arguments);
        let read = read.and_then(|ask| {
            let mut arguments = ask.arguments().clone();
            let name = text(&arguments, INVOKED_NAME).to_owned();
            let invoked = find(catalog, &name)?.clone();
            match arguments.remove(INVOKED_ARGUMENTS) {
                Some(Value::Object(arguments)) => Ok((invoked, arguments)),
                _ => Ok((invoked, Map::new())),
            }
        });
        match read {
            Err(refusal) => (itself, Err(refusal)),
            Ok((tool, arguments)) => {
                let invoked = Some(tool.facts.invoked());
                (Self { tool, invoked }, Ok(arguments))
            }
        }
    }
}

/// What one of the host's own tools answers to one reader.
pub(crate) fn answer(tool: &Tool, call: &Call<'_>, catalog: &Catalog) -> Result<Reply, Refusal> {
    let arguments = call.ask.arguments();
    match &tool.carrier {
        Carrier::Host(Meta::Search) => {
            let findings = catalog.search(text(arguments, "query"));
            let notes = findings.notice;
            Ok(shaped(tool, call, &findings.rows, notes))
        }
        Carrier::Host(Meta::Load) => {
            let described = find(catalog, text(arguments, "name"))?;
            let entry = Entry::of(described);
            let place = entry
                .place(text(arguments, "pointer"))
                .map_err(|nowhere| leads_nowhere(described.name(), &nowhere))?;
            load(tool, call, &place)
        }
        // Resolved before its call began, and so never here; a plugin answers for itself.
        Carrier::Host(Meta::Invoke) | Carrier::Plugin(_) => Err(Refusal::new(
            Code::Internal,
            "the host has no answer of its own to this",
        )),
    }
}

/// The largest outline of a place that its reader can take. Levels are added one by one, first those of the arguments, as
/// long as the reply stays within the budget; where not even one fits, the outline shrinks until it does.
fn load(tool: &Tool, call: &Call<'_>, place: &Place<'_>) -> Result<Reply, Refusal> {
    let budget = call.budget.tokens.unwrap_or(DEFAULT_LOAD_TOKENS);
    let fitting = |bounds: Bounds| {
        let Outline { shown, left_out } = place.outline(bounds)?;
        let note = (left_out > 0).then(|| {
            format!(
                "What lies too deep, or does not fit into {budget} tokens, is left out in {left_out} places; what stands there names \
                 the call that loads it."
            )
        });
        let reply = shaped(tool, call, &shown.to_string(), note);
        let tokens = reply.receipt().map(|receipt| receipt.approx_tokens);
        tokens
            .is_some_and(|tokens| tokens <= budget)
            .then_some(reply)
    };
    let levels = place.levels();
    let mut best = None;
    let mut shown = 0;
    for more in 1..=levels.max(1) {
        let Some(reply) = fitting(Bounds::of_levels(more, 0)) else {
            break;
        };
        best = Some(reply);
        shown = more;
    }
    if best.is_some() && place.has_output() {
        for more in 1..=levels.max(1) {
            let Some(reply) = fitting(Bounds::of_levels(shown, more)) else {
                break;
            };
            best = Some(reply);
        }
    }
    best.or_else(|| Bounds::shrinking().find_map(fitting)).ok_or_else(|| {
        let message = format!("What is said of this place does not fit into {budget} tokens, however little of it is shown.");
        Refusal::new(Code::ResponseTooLarge, message)
    })
}

/// A document of the host's own as a reply.
fn shaped(tool: &Tool, call: &Call<'_>, document: &str, note: Option<String>) -> Reply {
    let mut intake = Intake::new(&tool.policy, call.ask, tool.intake_bytes);
    intake.document(document.as_bytes());
    if let Some(note) = note {
        intake.note(note);
    }
    shape(intake, call)
}

/// The text of an argument; empty where it is absent. The schema says that it is one.
fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> &'a str {
    arguments
        .get(name)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The tool of a plugin that a call names.
fn find<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Arc<Tool>, Refusal> {
    let Some(tool) = catalog.tool(name) else {
        let nearest = catalog.nearest(name);
        let near = if nearest.is_empty() {
            let tools = catalog.tools().len();
            format!(
                "None of the {tools} tools has a name like it; search_tools finds them by what they do."
            )
        } else {
            format!("The nearest are {}.", nearest.join(", "))
        };
        let message = format!("There is no tool {}. {near}", excerpt(name));
        return Err(Refusal::new(Code::NotFound, message));
    };
    if tool.plugin().is_none() {
        let message = format!("{name} is listed itself, and is called by its own name.");
        return Err(Refusal::invalid_argument(INVOKED_NAME, message));
    }
    Ok(tool)
}

fn leads_nowhere(tool: &str, nowhere: &Nowhere) -> Refusal {
    let Nowhere { prefix, members } = nowhere;
    let mut named = members
        .iter()
        .take(MAX_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if members.len() > MAX_NAMED {
        named.push_str(&format!(" and {} more", members.len() - MAX_NAMED));
    }
    let has = if members.is_empty() {
        String::from("nothing is below it")
    } else {
        format!("below it there are {named}")
    };
    let message = format!(
        "pointer leads nowhere; the longest part of it that leads somewhere is {prefix:?}, and {has}"
    );
    let next =
        [("name", tool), ("pointer", prefix)].map(|(name, value)| (name.to_owned(), value.into()));
    Refusal::invalid_arguments(vec![Field {
        name: "pointer".into(),
        message,
    }])
    .with_next(Some(Map::from_iter(next)))
}

/// Where the arguments of a tool stand in a call, for a door that adds one by itself: in the call of `invoke_tool`, in those of
/// the tool that it names.
pub(crate) fn arguments_of<'a>(
    catalog: &Catalog,
    tool: &Arc<Tool>,
    arguments: &'a mut Map<String, Value>,
) -> (Arc<Tool>, &'a mut Map<String, Value>) {
    if !matches!(tool.carrier, Carrier::Host(Meta::Invoke)) {
        return (tool.clone(), arguments);
    }
    let Some(invoked) = catalog.plugin_tool(text(arguments, INVOKED_NAME)).cloned() else {
        return (tool.clone(), arguments);
    };
    // What is wrong is said of the call as it came.
    if arguments
        .get(INVOKED_ARGUMENTS)
        .is_some_and(|own| !own.is_object())
    {
        return (tool.clone(), arguments);
    }
    let own = arguments
        .entry(INVOKED_ARGUMENTS)
        .or_insert_with(|| Value::Object(Map::new()));
    let own = own
        .as_object_mut()
        .expect("what is no object was passed over");
    (invoked, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_budget_of_load_tool_is_what_connectors_take() {
        assert_eq!(DEFAULT_LOAD_TOKENS, 5_000);
    }

    #[test]
    fn a_pointer_that_leads_nowhere_is_refused_with_what_there_is() {
        let nowhere = Nowhere {
            prefix: "/inputSchema".into(),
            members: (0..42).map(|n| format!("m{n}")).collect(),
        };
        let refusal = leads_nowhere("pay", &nowhere);
        assert!(refusal.message.starts_with(
            "pointer leads nowhere; the longest part of it that leads somewhere is \"/inputSchema\", and below it there are m0, m1,"
        ));
        assert!(
            refusal.message.ends_with("m39 and 2 more"),
            "{}",
            refusal.message
        );
        let next = serde_json::json!({"name": "pay", "pointer": "/inputSchema"});
        assert_eq!(refusal.next.map(Value::Object), Some(next));
    }
}
