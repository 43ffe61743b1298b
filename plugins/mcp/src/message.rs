//! JSON-RPC: requests of the client, and what a server sends in return.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::settings::Era;

/// The version of the modern era that this client speaks.
pub(crate) const MODERN: &str = "2026-07-28";
/// The version that a handshake offers: the last that has one.
pub(crate) const OFFERED: &str = "2025-11-25";
/// The version that is claimed where nothing is negotiated: of those with structured content the one that most servers
/// know. What came later changes nothing in a call.
pub(crate) const CLAIMED: &str = "2025-06-18";

/// Progress is asked for under this token; a call has no other.
const PROGRESS_TOKEN: u64 = 1;
/// The id of the request; one is open at a time.
pub(crate) const ID: u64 = 1;

/// A request as it is sent.
pub(crate) fn request(era: Era, method: &str, params: &str) -> Vec<u8> {
    let client = json!({"name": "plimsoll", "version": env!("CARGO_PKG_VERSION")});
    let mut meta = json!({});
    if era == Era::Modern {
        meta["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        meta["io.modelcontextprotocol/clientInfo"] = client;
    }
    if method == "tools/call" {
        meta["progressToken"] = PROGRESS_TOKEN.into();
    }
    let meta = match meta.as_object().is_some_and(serde_json::Map::is_empty) {
        true => String::new(),
        false => format!("\"_meta\":{meta}"),
    };
    let comma = if params.is_empty() || meta.is_empty() {
        ""
    } else {
        ","
    };
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{ID},\"method\":{},\"params\":{{{params}{comma}{meta}}}}}",
        Value::from(method)
    )
    .into_bytes()
}

/// The first request of a session.
pub(crate) fn initialize() -> Vec<u8> {
    json!({"jsonrpc": "2.0", "id": ID, "method": "initialize", "params": {
        "protocolVersion": OFFERED,
        "capabilities": {},
        "clientInfo": {"name": "plimsoll", "version": env!("CARGO_PKG_VERSION")},
    }})
    .to_string()
    .into_bytes()
}

/// What ends the handshake.
pub(crate) fn initialized() -> Vec<u8> {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
        .to_string()
        .into_bytes()
}

/// The answer to a request of the server: nothing can be asked of a caller that is not there.
pub(crate) fn reply_to(id: &RawValue, method: &str) -> Vec<u8> {
    let id = id.get();
    match method {
        "ping" => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}"),
        _ => {
            let message = Value::from(format!("{method} is not supported: nobody is there to ask"));
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32601,\"message\":{message}}}}}")
        }
    }
    .into_bytes()
}

/// An error of JSON-RPC.
#[derive(Debug, Clone, Deserialize, PartialEq)]
pub(crate) struct Error {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
}

/// How far a call has come.
#[derive(Debug, PartialEq)]
pub(crate) struct Progress {
    pub(crate) done: u64,
    pub(crate) total: Option<u64>,
    pub(crate) message: Option<String>,
}

/// One message of a server.
#[derive(Debug)]
pub(crate) enum Message {
    /// The answer to the request: the text of its result, or the error.
    Answer(Result<String, Error>),
    /// A request of the server, and what to send back.
    Asks(Vec<u8>),
    /// Progress of the call.
    Progress(Progress),
    /// Anything else, which nobody here waits for.
    Other,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<Error>,
}

#[derive(Deserialize)]
struct ProgressParams {
    progress: f64,
    total: Option<f64>,
    message: Option<String>,
}

/// Reads a message. The error says why it is none.
///
/// A result may have megabytes, of which an instance has no room for many copies: it stays in the bytes that came.
pub(crate) fn read(bytes: Vec<u8>) -> Result<Message, String> {
    let place = match message(&bytes) {
        Ok(Found::Message(message)) => return Ok(message),
        Ok(Found::Result(place)) => place,
        Err(error) => return Err(format!("it is not JSON-RPC: {error}")),
    };
    let mut bytes = bytes;
    bytes.truncate(place.end);
    bytes.drain(..place.start);
    match String::from_utf8(bytes) {
        Ok(result) => Ok(Message::Answer(Ok(result))),
        Err(error) => Err(format!("it is not JSON-RPC: {error}")),
    }
}

enum Found {
    Message(Message),
    /// Where the result stands in the message.
    Result(Range<usize>),
}

fn message(bytes: &[u8]) -> Result<Found, serde_json::Error> {
    let envelope: Envelope = serde_json::from_slice(bytes)?;
    let id = envelope.id.filter(|id| id.get() != "null");
    Ok(Found::Message(match (envelope.method, id) {
        (Some(method), Some(id)) => Message::Asks(reply_to(id, &method)),
        (Some(method), None) if method == "notifications/progress" => {
            let params = envelope.params.map_or("null", RawValue::get);
            serde_json::from_str(params).map_or(Message::Other, progress)
        }
        (Some(_), None) => Message::Other,
        (None, id) => match (envelope.error, envelope.result) {
            // An error about a request that could not be read has no id.
            (Some(error), _) => Message::Answer(Err(error)),
            (None, Some(result)) if id.is_some() => {
                let start = result.get().as_ptr().addr() - bytes.as_ptr().addr();
                return Ok(Found::Result(start..start + result.get().len()));
            }
            _ => Message::Other,
        },
    }))
}

/// Fractions are of no use to a count; what is done rounds down, and what there is rounds up.
fn progress(params: ProgressParams) -> Message {
    let whole = |number: f64| (number >= 0.0 && number < u64::MAX as f64).then_some(number as u64);
    let Some(done) = whole(params.progress.floor()) else {
        return Message::Other;
    };
    Message::Progress(Progress {
        done,
        total: params.total.and_then(|total| whole(total.ceil())),
        message: params.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_modern_request_says_all_there_is_to_say() {
        let sent = value(&request(
            Era::Modern,
            "tools/call",
            "\"name\":\"a\",\"arguments\":{}",
        ));
        assert_eq!(
            sent["params"]["_meta"],
            json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "plimsoll", "version": "0.1.0"},
                "progressToken": 1,
            })
        );
    }

    #[test]
    fn arguments_go_out_with_the_digits_that_they_came_with() {
        let sent = request(
            Era::Stateless,
            "tools/call",
            "\"name\":\"a\",\"arguments\":{\"n\":9007199254740993.10}",
        );
        assert_eq!(
            String::from_utf8(sent).unwrap(),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"a\",\"arguments\":\
             {\"n\":9007199254740993.10},\"_meta\":{\"progressToken\":1}}}"
        );
        assert_eq!(
            request(Era::Session, "tools/list", ""),
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{}}"
        );
    }

    #[test]
    fn what_a_server_asks_is_refused_and_a_ping_is_answered() {
        let sent = |text: &str| match read(text.as_bytes().to_vec()).unwrap() {
            Message::Asks(reply) => value(&reply),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            sent(r#"{"jsonrpc":"2.0","id":"s-1","method":"sampling/createMessage","params":{}}"#),
            json!({"jsonrpc": "2.0", "id": "s-1", "error":
                {"code": -32601, "message": "sampling/createMessage is not supported: nobody is there to ask"}})
        );
        assert_eq!(
            sent(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#),
            json!({"jsonrpc": "2.0", "id": 7, "result": {}})
        );
    }

    #[test]
    fn messages_are_told_apart() {
        let of = |text: &str| read(text.as_bytes().to_vec());
        assert!(
            matches!(of(r#"{"result": {"a": 1.0} ,"id":1}"#), Ok(Message::Answer(Ok(text))) if text == "{\"a\": 1.0}")
        );
        assert!(
            matches!(of(r#"{"id":null,"error":{"code":-32000,"message":"no"}}"#), Ok(Message::Answer(Err(error))) if error.code == -32000)
        );
        assert!(matches!(
            of(r#"{"method":"notifications/message","params":{}}"#),
            Ok(Message::Other)
        ));
        assert!(
            matches!(of(r#"{"method":"notifications/progress","params":{"progress":1.5,"total":2.5,"message":"m"}}"#),
            Ok(Message::Progress(Progress { done: 1, total: Some(3), message: Some(text) })) if text == "m")
        );
        assert!(matches!(
            of(r#"{"method":"notifications/progress","params":{"progress":-1}}"#),
            Ok(Message::Other)
        ));
        assert!(
            of("<html>")
                .unwrap_err()
                .starts_with("it is not JSON-RPC: ")
        );
    }
}
