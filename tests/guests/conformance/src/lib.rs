//! The tools that the MCP conformance suite (0.2.0-alpha.12) calls by name, as far as a tool-handler can offer them.
//!
//! Not here, since the contract has no words for it: `test_missing_capability` (a tool that needs a capability of the
//! client), `test_trigger_tool_change` (a call that changes the list), and whatever asks the client for input.

mod bindings;

use bindings::exports::plimsoll::plugin::tools::{Annotations, Guest, Tool};
use bindings::plimsoll::plugin::log;
use bindings::plimsoll::plugin::reply::{self, Attachment, Blob, Embedded};
use bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use bindings::plimsoll::plugin::types::Fault;

const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{},"additionalProperties":false}"#;

/// Name, description and input schema. The suite calls the first tool of the list without arguments.
const TOOLS: [(&str, &str, &str); 12] = [
    ("test_simple_text", "Answers with a text.", NO_ARGUMENTS),
    ("test_image_content", "Answers with an image.", NO_ARGUMENTS),
    ("test_audio_content", "Answers with a sound.", NO_ARGUMENTS),
    (
        "test_embedded_resource",
        "Answers with an embedded resource.",
        NO_ARGUMENTS,
    ),
    (
        "test_multiple_content_types",
        "Answers with a text, an image and an embedded resource.",
        NO_ARGUMENTS,
    ),
    ("test_error_handling", "Fails.", NO_ARGUMENTS),
    (
        "test_tool_with_progress",
        "Reports progress three times, then answers.",
        NO_ARGUMENTS,
    ),
    (
        "json_schema_2020_12_tool",
        "Tool with JSON Schema 2020-12 features",
        include_str!("schemas/json_schema_2020_12_tool.json"),
    ),
    (
        "test_custom_header",
        "Answers with the region that it was given, an argument that travels in a header too.",
        include_str!("schemas/custom_header.json"),
    ),
    // The next two are called to see what the server does not send beside their answer.
    (
        "test_streaming_elicitation",
        "Answers with a text, and asks nothing of the client.",
        NO_ARGUMENTS,
    ),
    (
        "test_logging_tool",
        "Writes three log lines, which are for the operator and not for the client.",
        NO_ARGUMENTS,
    ),
    (
        "test_reconnection",
        "Answers with a text, however the client is connected.",
        NO_ARGUMENTS,
    ),
];

struct Conformance;

impl Guest for Conformance {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        Ok(TOOLS
            .iter()
            .map(|(name, description, input_schema)| tool(name, description, input_schema))
            .collect())
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        match name.as_str() {
            "test_simple_text" => reply::document(b"This is a simple text response for testing."),
            "test_image_content" => reply::attach(&image()),
            "test_audio_content" => reply::attach(&Attachment::Audio(Blob {
                media_type: "audio/wav".to_owned(),
                data: include_bytes!("media/silence.wav").to_vec(),
            })),
            "test_embedded_resource" => reply::attach(&resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )),
            "test_multiple_content_types" => {
                reply::document(b"Multiple content types test:");
                reply::attach(&image());
                reply::attach(&resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                ));
            }
            "test_error_handling" => {
                return Err(Fault::Internal(
                    "This tool intentionally returns an error for testing".to_owned(),
                ));
            }
            "test_tool_with_progress" => {
                for done in [0, 50, 100] {
                    reply::progress(done, Some(100), None);
                }
                reply::document(b"Progress was reported three times.");
            }
            "json_schema_2020_12_tool" | "test_custom_header" => {
                reply::document(arguments.as_bytes())
            }
            "test_streaming_elicitation" | "test_reconnection" => {
                reply::document(b"Nothing was asked of the client.")
            }
            "test_logging_tool" => {
                for line in [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ] {
                    log::write(log::Level::Info, line);
                }
                reply::document(b"Three lines were logged.");
            }
            _ => return Err(Fault::NotFound(format!("there is no tool `{name}` here"))),
        }
        Ok(())
    }
}

fn tool(name: &str, description: &str, input_schema: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema: input_schema.to_owned(),
        output_schema: None,
        shape: Shape {
            rows: RowSource::Whole,
            key: None,
            horizon: None,
            views: Vec::new(),
            default_view: None,
            columns: Vec::new(),
            filters: Vec::new(),
            page: None,
            cap_bytes: None,
            applies: PushDown::empty(),
        },
        annotations: Annotations::READ_ONLY,
        tags: Vec::new(),
        examples: Vec::new(),
    }
}

/// A PNG of one red pixel.
fn image() -> Attachment {
    Attachment::Image(Blob {
        media_type: "image/png".to_owned(),
        data: include_bytes!("media/red.png").to_vec(),
    })
}

fn resource(uri: &str, media_type: &str, text: &str) -> Attachment {
    Attachment::Resource(Embedded {
        uri: uri.to_owned(),
        media_type: media_type.to_owned(),
        data: text.as_bytes().to_vec(),
    })
}
