//! The next call, as facts and refusals give it: the one place that writes it.
//!
//! A call is repeated as it was made. One that came through the host's own `invoke_tool` has the arguments of that tool, so
//! that it can be made as it stands by a client to which nothing else is listed.

use serde_json::{Map, Value};

use super::pipeline::ToolFacts;
use super::refusal::Refusal;
use super::reply::Reply;

/// The argument of `invoke_tool` that names a tool.
pub const INVOKED_NAME: &str = "name";

/// The argument of `invoke_tool` that holds the tool's own.
pub const INVOKED_ARGUMENTS: &str = "arguments";

impl ToolFacts {
    /// The same tool, called through `invoke_tool`, which declares no output schema and so has no structured copy.
    #[must_use]
    pub fn invoked(&self) -> Self {
        Self {
            is_invoked: true,
            has_structured_copy: false,
            ..self.clone()
        }
    }

    /// The call with these arguments of the tool, in the form in which this one was made.
    pub fn next_call(&self, arguments: Map<String, Value>) -> Map<String, Value> {
        if !self.is_invoked {
            return arguments;
        }
        Map::from_iter([
            (INVOKED_NAME.to_owned(), self.name.clone().into()),
            (INVOKED_ARGUMENTS.to_owned(), arguments.into()),
        ])
    }

    /// Bytes that this form adds to a call.
    pub(super) fn form_bytes(&self) -> usize {
        let bytes = |call| Value::Object(call).to_string().len();
        bytes(self.next_call(Map::new())) - bytes(Map::new())
    }

    /// A refusal as a reply. Its next call has the arguments of the tool, and leaves in the form in which this one was made.
    pub fn refuse(&self, refusal: Refusal) -> Reply {
        let next = refusal.next.clone().map(|next| self.next_call(next));
        Reply::refused(&refusal.with_next(next))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shape::Code;

    fn facts() -> ToolFacts {
        ToolFacts {
            name: "list_orders".into(),
            narrowing: Vec::new(),
            own_limit: None,
            has_structured_copy: true,
            is_invoked: false,
        }
    }

    #[test]
    fn a_next_call_has_the_form_of_the_call_that_was_made() {
        let arguments = json!({"limit": 2}).as_object().cloned().unwrap();
        let direct = facts();
        assert_eq!(direct.next_call(arguments.clone()), arguments);
        assert_eq!(direct.form_bytes(), 0);
        let invoked = direct.invoked();
        let wrapped = json!({"name": "list_orders", "arguments": {"limit": 2}});
        assert_eq!(Value::Object(invoked.next_call(arguments.clone())), wrapped);
        assert_eq!(
            invoked.form_bytes(),
            wrapped.to_string().len() - json!({"limit": 2}).to_string().len()
        );
        assert!(!invoked.has_structured_copy);
        let refusal = Refusal::new(Code::StaleCursor, "x").with_next(Some(arguments));
        let body = invoked.refuse(refusal).body().to_owned();
        assert!(body.ends_with(&format!("\"next\":{wrapped}}}")), "{body}");
    }
}
