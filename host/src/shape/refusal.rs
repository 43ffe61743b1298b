//! Refusals: an answer that does not fit, or a call that cannot be carried out, with the exact next move.
//!
//! One form serves them all: what happened first, whether the same call may succeed, and where there is one, a call
//! that can be made as it stands. A refusal stays under 8,000 bytes, because client programs shorten error texts.

use serde::Serialize;
use serde_json::{Map, Value};

/// A refusal has fewer bytes than this.
pub const MAX_REFUSAL_BYTES: usize = 8_000;

/// What the HTTP API adds to a refusal: its name a second time as `title`, and `status`.
const PROBLEM_BYTES: usize = 64;

/// The text of a refusal has fewer bytes than this, so that it stays under [`MAX_REFUSAL_BYTES`] through every door.
const MAX_TEXT_BYTES: usize = MAX_REFUSAL_BYTES - PROBLEM_BYTES;

/// How much of a text that a plugin wrote goes into a message.
const MAX_EXCERPT_BYTES: usize = 2_000;

/// How many arguments a refusal names.
const MAX_FIELDS: usize = 12;

/// How much of an argument's description goes into a refusal.
const MAX_FIELD_BYTES: usize = 240;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The reply has as many bytes as the cap or more.
    ResponseTooLarge,
    /// The call did not end by its deadline.
    InvokeTimeout,
    /// The plugin spent its fuel.
    OutOfFuel,
    /// The plugin asked for more memory, or larger tables, than it may have.
    OutOfMemory,
    /// The plugin broke.
    PluginTrapped,
    /// What the plugin handed over is not what it declared, or not JSON where it has to be.
    InvalidAnswer,
    /// The arguments do not fit the published schema.
    InvalidArguments,
    /// `after` is not a cursor of this host for this tool and these arguments.
    InvalidCursor,
    /// The answer has changed in a way that the cursor cannot continue.
    StaleCursor,
    /// Too many calls are running.
    Busy,
    /// A quota is spent.
    QuotaExceeded,
    /// The key that the call was made with gives no access any more.
    Forbidden,
    /// What was named does not exist.
    NotFound,
    /// The plugin's backend cannot act on these arguments.
    InvalidInput,
    /// The plugin's backend does not answer.
    Unavailable,
    /// The plugin reports a failure of its own.
    Internal,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::ResponseTooLarge,
        Self::InvokeTimeout,
        Self::OutOfFuel,
        Self::OutOfMemory,
        Self::PluginTrapped,
        Self::InvalidAnswer,
        Self::InvalidArguments,
        Self::InvalidCursor,
        Self::StaleCursor,
        Self::Busy,
        Self::QuotaExceeded,
        Self::Forbidden,
        Self::NotFound,
        Self::InvalidInput,
        Self::Unavailable,
        Self::Internal,
    ];

    /// The name in `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ResponseTooLarge => "response_too_large",
            Self::InvokeTimeout => "invoke_timeout",
            Self::OutOfFuel => "out_of_fuel",
            Self::OutOfMemory => "out_of_memory",
            Self::PluginTrapped => "plugin_trapped",
            Self::InvalidAnswer => "invalid_answer",
            Self::InvalidArguments => "invalid_arguments",
            Self::InvalidCursor => "invalid_cursor",
            Self::StaleCursor => "stale_cursor",
            Self::Busy => "busy",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::InvalidInput => "invalid_input",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// Whether the same call may succeed when it is made again.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::InvokeTimeout | Self::Busy | Self::QuotaExceeded | Self::Unavailable
        )
    }

    /// The status of the HTTP API.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidArguments | Self::InvalidCursor | Self::InvalidInput => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::StaleCursor => 410,
            Self::ResponseTooLarge => 413,
            Self::Busy | Self::QuotaExceeded => 429,
            Self::Internal
            | Self::OutOfFuel
            | Self::OutOfMemory
            | Self::PluginTrapped
            | Self::InvalidAnswer => 502,
            Self::Unavailable => 503,
            Self::InvokeTimeout => 504,
        }
    }
}

/// The body that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Payload {
    /// Bytes of the reply.
    pub bytes: u64,
    /// The cap, or the gate of the client program in its own unit.
    pub limit: u64,
    /// What the client program takes, where that is the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<PayloadGate>,
    /// What it consists of.
    pub shape: PayloadShape,
}

/// The gate of a client program that a refused reply reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PayloadGate {
    /// The program.
    pub client: String,
    /// What it measures.
    pub unit: &'static str,
    /// The reply in that unit.
    pub found: u64,
}

/// What a refused body consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PayloadShape {
    /// `array`, `lines`, `object` or `text`.
    pub kind: &'static str,
    /// Rows or lines, where it has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// An argument and what there is to say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The argument.
    pub name: String,
    /// Its description, or what is wrong with it.
    pub message: String,
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refusal {
    /// What happened, by name.
    pub error: Code,
    /// What happened, in words.
    pub message: String,
    /// Whether the same call may succeed.
    pub retryable: bool,
    /// The body that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// The arguments that matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
    /// Arguments of a call of the same tool that can be made as it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Map<String, Value>>,
    /// After how many seconds the same call may succeed, where the host knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

impl Refusal {
    /// A refusal with a message. What a plugin wrote goes through [`excerpt`] first.
    pub fn new(error: Code, message: impl Into<String>) -> Self {
        Self {
            error,
            message: message.into(),
            retryable: error.is_retryable(),
            payload: None,
            fields: Vec::new(),
            next: None,
            retry_after_seconds: None,
        }
    }

    /// Adds when the same call may succeed.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Adds the arguments that matter.
    #[must_use]
    pub fn with_fields(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Adds the call to make.
    #[must_use]
    pub fn with_next(mut self, next: Option<Map<String, Value>>) -> Self {
        self.next = next;
        self
    }

    /// One argument is wrong. `message` says what was expected and what was found.
    pub fn invalid_argument(name: &str, message: String) -> Self {
        Self::invalid_arguments(vec![Field {
            name: name.to_owned(),
            message,
        }])
    }

    /// Arguments are wrong.
    pub fn invalid_arguments(fields: Vec<Field>) -> Self {
        let message = fields
            .iter()
            .map(|field| excerpt(&field.message))
            .collect::<Vec<_>>()
            .join("; ");
        Self::new(Code::InvalidArguments, excerpt(&message)).with_fields(fields)
    }

    /// There is no such tool. On MCP this is a protocol error instead.
    pub fn unknown_tool(name: &str) -> Self {
        Self::new(Code::NotFound, format!("Unknown tool: {}", excerpt(name)))
    }

    /// The JSON text, one line, under [`MAX_REFUSAL_BYTES`], also with what the HTTP API adds to it.
    ///
    /// What does not fit goes in the order in which it can be missed: descriptions, then the next call, then the rest
    /// of the message, and each says so.
    pub(crate) fn text(&self) -> String {
        let mut refusal = self.clone();
        for field in &mut refusal.fields {
            field.message = shorten(&field.message, MAX_FIELD_BYTES);
            field.name = shorten(&field.name, MAX_FIELD_BYTES);
        }
        if refusal.fields.len() > MAX_FIELDS {
            let more = refusal.fields.len() - MAX_FIELDS;
            refusal.fields.truncate(MAX_FIELDS);
            refusal.fields.push(Field {
                name: "…".into(),
                message: format!("{more} more"),
            });
        }
        let text = |refusal: &Self| {
            serde_json::to_string(refusal).expect("a refusal has string keys only")
        };
        let mut out = text(&refusal);
        if out.len() >= MAX_TEXT_BYTES {
            refusal
                .fields
                .iter_mut()
                .for_each(|field| field.message = String::from("…"));
            out = text(&refusal);
        }
        let mut no_next = "";
        if out.len() >= MAX_TEXT_BYTES && refusal.next.take().is_some() {
            no_next = " The next call is too long to be given here.";
            refusal.message.push_str(no_next);
            out = text(&refusal);
        }
        let mut room = MAX_EXCERPT_BYTES;
        while out.len() >= MAX_TEXT_BYTES {
            // Escapes make a character up to six bytes, so the room shrinks until it fits.
            refusal.message = shorten(&self.message, room) + no_next;
            refusal.fields.clear();
            out = text(&refusal);
            room /= 2;
        }
        out
    }
}

/// At most the first 2,000 bytes of a text that somebody else wrote, and how long it was where there was more.
pub fn excerpt(text: &str) -> String {
    shorten(text, MAX_EXCERPT_BYTES)
}

/// At most the first `room` bytes of a text, and how long it was where there was more.
pub(super) fn shorten(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(room);
    format!(
        "{}… (the first {end} of {} bytes)",
        &text[..end],
        text.len()
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_form_is_that_of_the_contract() {
        let refusal = Refusal {
            payload: Some(Payload {
                bytes: 1_843_200,
                limit: 262_144,
                gate: None,
                shape: PayloadShape {
                    kind: "array",
                    count: Some(8412),
                },
            }),
            ..Refusal::new(Code::ResponseTooLarge, "The response is 1843200 bytes.")
                .with_fields([Field {
                    name: "limit".into(),
                    message: "Maximum number of rows to return.".into(),
                }])
                .with_next(serde_json::json!({"limit": 40}).as_object().cloned())
        };
        assert_eq!(
            refusal.text(),
            r#"{"error":"response_too_large","message":"The response is 1843200 bytes.","retryable":false,"payload":{"bytes":1843200,"limit":262144,"shape":{"kind":"array","count":8412}},"fields":[{"name":"limit","message":"Maximum number of rows to return."}],"next":{"limit":40}}"#
        );
    }

    #[test]
    fn only_what_may_succeed_again_is_retryable() {
        let retryable: Vec<&str> = Code::ALL
            .into_iter()
            .filter(|code| code.is_retryable())
            .map(Code::as_str)
            .collect();
        assert_eq!(
            retryable,
            ["invoke_timeout", "busy", "quota_exceeded", "unavailable"]
        );
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn an_excerpt_ends_on_a_character_and_says_what_it_is() {
        let text = "語".repeat(1000);
        assert_eq!(
            excerpt(&text),
            format!("{}… (the first 1998 of 3000 bytes)", "語".repeat(666))
        );
        assert_eq!(excerpt("short"), "short");
    }

    #[test]
    fn a_next_call_that_does_not_fit_is_said_to_be_missing() {
        let next = serde_json::json!({"query": "q".repeat(9_000)})
            .as_object()
            .cloned();
        for message in ["It happened.", &"\u{1}".repeat(2_000)] {
            let text = Refusal::new(Code::Internal, message)
                .with_next(next.clone())
                .text();
            assert!(
                text.contains("The next call is too long to be given here.\""),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_refusal_stays_under_8000_bytes(
            message in prop_oneof![".{0,5000}", "\u{1}{0,9000}"], fields in prop::collection::vec((".{0,600}", ".{0,600}"), 0..40),
            next in ".{0,9000}",
        ) {
            let fields = fields.into_iter().map(|(name, message)| Field { name, message });
            let next = serde_json::json!({"query": next}).as_object().cloned();
            let refusal = Refusal::new(Code::Internal, message).with_fields(fields).with_next(next);
            let text = refusal.text();
            prop_assert!(text.len() < MAX_REFUSAL_BYTES);
            let starts_with_what_happened = text.starts_with("{\"error\":\"internal\",\"message\":");
            prop_assert!(starts_with_what_happened);
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }
}
