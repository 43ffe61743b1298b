//! The one thing that a door can send.
//!
//! A [`Reply`] can only be made inside [`shape`](super): by the pipeline, which holds it under the cap, or from a
//! [`Refusal`], which is small by construction. So whatever a client receives has passed the same cap.

use serde_json::Value;

use super::ask::Format;
use super::gates::Gate;
use super::keep::Complete;
use super::refusal::{Code, Refusal};
use super::touched::Touched;
use super::{cap, receipt};
use crate::contract::{Attachment, Receipt};

/// What leaves: the facts and the body of an answer, or a refusal.
#[derive(Debug, Clone)]
pub struct Reply {
    facts: String,
    body: String,
    format: Format,
    is_json: bool,
    has_structured_copy: bool,
    attachments: Vec<Attachment>,
    receipt: Option<Receipt>,
    /// What the receipt says beside the words of the contract: the gate that left rows out, and the cells that were changed.
    gate: Option<Gate>,
    cells: Touched,
    refusal: Option<Code>,
    next_after: Option<String>,
    complete: Option<Complete>,
}

impl Reply {
    pub(super) fn answer(
        facts: String,
        body: String,
        format: Format,
        is_json: bool,
        has_structured_copy: bool,
        attachments: Vec<Attachment>,
        receipt: Receipt,
    ) -> Self {
        let next_after = receipt.next_after.clone();
        Self {
            facts,
            body,
            format,
            is_json,
            has_structured_copy,
            attachments,
            receipt: Some(receipt),
            gate: None,
            cells: Touched::default(),
            refusal: None,
            next_after,
            complete: None,
        }
    }

    pub(super) fn pointing_to(self, complete: Option<Complete>) -> Self {
        Self { complete, ..self }
    }

    /// The complete result, where it is kept and this reply leaves rows of it out.
    pub fn complete(&self) -> Option<&Complete> {
        self.complete.as_ref()
    }

    /// What is not text, where the rest of the reply is not wanted any more.
    pub fn into_attachments(self) -> Vec<Attachment> {
        self.attachments
    }

    /// Notes what the receipt says beside the words of the contract.
    pub(super) fn with_changes(self, gate: Option<Gate>, cells: Touched) -> Self {
        Self {
            gate,
            cells,
            ..self
        }
    }

    /// A refusal as a reply.
    pub fn refused(refusal: &Refusal) -> Self {
        Self {
            facts: String::new(),
            body: refusal.text(),
            format: Format::Json,
            is_json: true,
            has_structured_copy: false,
            attachments: Vec::new(),
            receipt: None,
            gate: None,
            cells: Touched::default(),
            refusal: Some(refusal.error),
            next_after: None,
            complete: None,
        }
    }

    /// The facts, one line of JSON. Empty for a refusal.
    pub fn facts(&self) -> &str {
        &self.facts
    }

    /// The body, or the refusal's JSON.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Bytes that leave: every copy of facts and body, and the attachments.
    pub fn bytes(&self) -> u64 {
        let copies = if self.has_structured_copy { 2 } else { 1 };
        let attachments: usize = self.attachments.iter().map(cap::attachment_bytes).sum();
        ((self.facts.len() + self.body.len()) * copies + attachments) as u64
    }

    /// Content that is not text, whole.
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// What was refused, if it was.
    pub fn refusal(&self) -> Option<Code> {
        self.refusal
    }

    /// The account, for an answer.
    pub fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// The account as JSON; null for a refusal.
    pub fn receipt_json(&self) -> Value {
        self.receipt.as_ref().map_or(Value::Null, |receipt| {
            receipt::to_json(receipt, self.gate.as_ref(), &self.cells)
        })
    }

    /// The gate of the client program that left rows out, if one did.
    pub fn gate(&self) -> Option<&Gate> {
        self.gate.as_ref()
    }

    /// The cells that were changed.
    pub fn cells(&self) -> &Touched {
        &self.cells
    }

    /// The cursor of the next page.
    pub fn next_after(&self) -> Option<&str> {
        self.next_after.as_deref()
    }

    /// Media type of the body.
    pub fn media_type(&self) -> &'static str {
        match (self.refusal, self.format, self.is_json) {
            (Some(_), ..) => "application/problem+json",
            (None, Format::Json, false) => "text/plain; charset=utf-8",
            (None, format, _) => format.media_type(),
        }
    }

    /// Whether the body is JSON.
    pub fn is_json(&self) -> bool {
        self.is_json && self.format == Format::Json
    }

    /// Facts and body as one JSON value, for a tool that declares an output schema; none for other tools.
    ///
    /// The value is made from the very texts that go out. A body that no such value can hold, because a number is beyond
    /// the range of a double or it is nested too deeply, is refused: the two copies must not differ.
    pub fn structured(&self) -> Result<Option<Value>, Refusal> {
        if !self.has_structured_copy {
            return Ok(None);
        }
        let value = |text: &str| {
            serde_json::from_str::<Value>(text).map_err(|error| {
                let message = format!("the answer cannot be sent as structured content, which its output schema demands: {error}");
                Refusal::new(Code::InvalidAnswer, message)
            })
        };
        let body = if self.is_json() {
            value(&self.body)?
        } else {
            Value::String(self.body.clone())
        };
        Ok(Some(
            serde_json::json!({"facts": value(&self.facts)?, "body": body}),
        ))
    }
}
