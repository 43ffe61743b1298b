//! An MCP client that lives for one call: which era to speak, the requests that this takes, and the one answer.
//!
//! Nothing is remembered from call to call, so an era that is not configured is found out anew each time: the cheapest is
//! tried first, and the next one only where the server refused to begin.

use crate::message::{self, Error, Message, Progress};
use crate::settings::Era;
use crate::sse::Events;
use crate::wire::{Headers, Response, Wire};

/// Characters of an answer that is none, as they are shown.
const EXCERPT_CHARS: usize = 200;

/// Bytes of an answer that are kept to be quoted: more than are shown, so that the cut is seen.
const QUOTED_BYTES: usize = 4 * EXCERPT_CHARS + 4;

/// What only a server of the modern era says, in answer to a request that it understood: headers that are missing, and
/// capabilities that are.
const HEADER_MISMATCH: i64 = -32020;
const MISSING_CAPABILITY: i64 = -32021;
const UNSUPPORTED_VERSION: i64 = -32022;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The server said so, in the words of JSON-RPC.
    Rpc(Error),
    /// The server said so, in the words of HTTP.
    Status { status: u16, detail: String },
    /// There was no answer, or none that can be read.
    Broken(String),
}

/// What a request needs besides its method.
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a str,
    /// The members of its parameters, without the braces.
    pub(crate) params: String,
    /// The tool that is called, which the modern era repeats in a header.
    pub(crate) name: Option<&'a str>,
    /// Arguments that the modern era repeats in headers.
    pub(crate) headers: Headers,
}

/// The client.
pub(crate) struct Client<'a, W> {
    wire: W,
    /// Header fields that the operator adds.
    headers: &'a Headers,
    eras: &'a [Era],
    /// Who hears of progress.
    progress: &'a mut dyn FnMut(Progress),
    /// The most that was done when progress was last told: it only grows.
    done: Option<u64>,
    /// The session that is open, and the version that was agreed on.
    session: Option<Session>,
    /// Requests that were sent, for the operator.
    pub(crate) requests: u32,
}

struct Session {
    id: Option<String>,
    version: String,
}

impl<'a, W: Wire> Client<'a, W> {
    pub(crate) fn new(
        wire: W,
        headers: &'a Headers,
        eras: &'a [Era],
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Self {
            wire,
            headers,
            eras,
            progress,
            done: None,
            session: None,
            requests: 0,
        }
    }

    /// Sends a request in the first era that the server takes, and says which it was.
    pub(crate) fn request(&mut self, ask: &Ask) -> Result<(Era, String), Failure> {
        let eras = self.eras;
        let mut told = None;
        for (index, era) in eras.iter().enumerate() {
            match self.exchange(*era, ask) {
                Ok(result) => {
                    // Whoever asks more goes on as it went well.
                    self.eras = &eras[index..=index];
                    return Ok((*era, result));
                }
                // What is said inside a session is about the request, and otherwise the first that was said.
                Err(failure) if is_another_era(*era, &failure) => {
                    if told.is_none() || self.session.is_some() {
                        told = Some(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(told.unwrap_or_else(|| Failure::Broken("no protocol is configured".to_owned())))
    }

    /// Ends the session, where one is open.
    pub(crate) fn close(&mut self) {
        if let Some(session) = self.session.take()
            && let Some(id) = session.id
        {
            let mut headers = self.headers.clone();
            headers.push(("mcp-session-id".to_owned(), id));
            headers.push(("mcp-protocol-version".to_owned(), session.version));
            self.requests += 1;
            self.wire.delete(&headers);
        }
    }

    fn exchange(&mut self, era: Era, ask: &Ask) -> Result<String, Failure> {
        if era == Era::Session && self.session.is_none() {
            self.open()?;
        }
        let mut headers = Headers::new();
        match era {
            Era::Modern => {
                headers.push((
                    "mcp-protocol-version".to_owned(),
                    message::MODERN.to_owned(),
                ));
                headers.push(("mcp-method".to_owned(), ask.method.to_owned()));
                let name = ask
                    .name
                    .map(|name| ("mcp-name".to_owned(), header_value(name)));
                headers.extend(name);
                headers.extend(ask.headers.iter().cloned());
            }
            Era::Stateless => {
                headers.push((
                    "mcp-protocol-version".to_owned(),
                    message::CLAIMED.to_owned(),
                ));
            }
            Era::Session => headers.extend(self.session_headers()),
        }
        let body = message::request(era, ask.method, &ask.params);
        let response = self.post(headers, &body)?;
        self.answer(response)
    }

    /// The handshake.
    fn open(&mut self) -> Result<(), Failure> {
        let mut response = self.post(Headers::new(), &message::initialize())?;
        let id = response.session.take();
        let result = self.answer(response)?;
        let version = serde_json::from_str::<serde_json::Value>(&result)
            .ok()
            .and_then(|result| Some(result["protocolVersion"].as_str()?.to_owned()))
            .ok_or_else(|| {
                Failure::Broken(
                    "its answer to initialize names no version of the protocol".to_owned(),
                )
            })?;
        self.session = Some(Session { id, version });
        let headers = self.session_headers();
        // A notification has no answer. What a server has against it, it says to the request that follows.
        self.post(headers, &message::initialized())?;
        Ok(())
    }

    fn session_headers(&self) -> Headers {
        let Some(session) = &self.session else {
            return Headers::new();
        };
        let mut headers = vec![("mcp-protocol-version".to_owned(), session.version.clone())];
        headers.extend(
            session
                .id
                .iter()
                .map(|id| ("mcp-session-id".to_owned(), id.clone())),
        );
        headers
    }

    fn post(&mut self, mut headers: Headers, body: &[u8]) -> Result<Response, Failure> {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
        headers.push((
            "accept".to_owned(),
            "application/json, text/event-stream".to_owned(),
        ));
        headers.extend(self.headers.iter().cloned());
        self.requests += 1;
        self.wire.post(&headers, body).map_err(Failure::Broken)
    }

    /// Reads an answer to its end, or to the message that is the answer.
    fn answer(&mut self, response: Response) -> Result<String, Failure> {
        let Response {
            status,
            media_type,
            location,
            mut body,
            ..
        } = response;
        if media_type == "text/event-stream" && (200..300).contains(&status) {
            return self.stream(&mut body);
        }
        let mut bytes = Vec::new();
        for piece in body {
            bytes.extend(piece.map_err(Failure::Broken)?);
        }
        if (300..400).contains(&status) {
            let detail = format!(
                "it leads to {}; the operator has to set `url` to where the server is",
                location.as_deref().unwrap_or("another address")
            );
            return Err(Failure::Status { status, detail });
        }
        let is_success = (200..300).contains(&status);
        // Reading takes the bytes, so what may have to be quoted is kept.
        let head = bytes[..bytes.len().min(QUOTED_BYTES)].to_vec();
        let quote = excerpt(&head, bytes.len());
        match message::read(bytes) {
            Ok(Message::Answer(Ok(result))) if is_success => Ok(result),
            Ok(Message::Answer(Err(error)))
                if is_success || matches!(error.code, HEADER_MISMATCH | MISSING_CAPABILITY) =>
            {
                Err(Failure::Rpc(error))
            }
            Ok(Message::Answer(Err(error))) => Err(Failure::Status {
                status,
                detail: format!("error {}: {}", error.code, error.message),
            }),
            Ok(_) if is_success => Err(Failure::Broken(format!("it holds no answer: {quote}"))),
            Err(reason) if is_success => Err(Failure::Broken(format!("{reason}: {quote}"))),
            _ => Err(Failure::Status {
                status,
                detail: quote,
            }),
        }
    }

    fn stream(
        &mut self,
        body: &mut dyn Iterator<Item = Result<Vec<u8>, String>>,
    ) -> Result<String, Failure> {
        let mut events = Events::default();
        for piece in body {
            let mut said = Vec::new();
            events.push(&piece.map_err(Failure::Broken)?, |data| said.push(data));
            for data in said {
                let head = data[..data.len().min(QUOTED_BYTES)].to_vec();
                let bytes = data.len();
                let unread =
                    |reason| Failure::Broken(format!("{reason}: {}", excerpt(&head, bytes)));
                match message::read(data).map_err(unread)? {
                    Message::Answer(Ok(result)) => return Ok(result),
                    Message::Answer(Err(error)) => return Err(Failure::Rpc(error)),
                    // Whether it arrives is for the server to see: its stream goes on in either case.
                    Message::Asks(reply) => {
                        let headers = self.session_headers();
                        let _ = self.post(headers, &reply);
                    }
                    Message::Progress(progress) => self.tell(progress),
                    Message::Other => {}
                }
            }
        }
        Err(Failure::Broken(
            "it ended its stream of events before the answer".to_owned(),
        ))
    }

    fn tell(&mut self, progress: Progress) {
        if self.done.is_none_or(|done| progress.done > done) {
            self.done = Some(progress.done);
            (self.progress)(progress);
        }
    }
}

/// Whether a failure says that the server did not begin, since it speaks otherwise. Then nothing has been done, and the
/// request may be sent in another way.
fn is_another_era(era: Era, failure: &Failure) -> bool {
    match failure {
        Failure::Status { status, .. } => matches!(status, 400 | 404 | 405 | 406 | 415 | 422 | 501),
        Failure::Rpc(error) => match error.code {
            // Errors that servers of the handshake eras give to whoever has no session.
            -32000 | -32001 | -32600 | UNSUPPORTED_VERSION => true,
            // What the Python SDK says before a handshake; about the arguments of a tool it says more.
            -32602 => error.message == "Invalid request parameters",
            -32601 => era == Era::Modern,
            _ => false,
        },
        Failure::Broken(_) => false,
    }
}

/// The headers are wrong: the tool wants arguments repeated in them.
pub(crate) fn wants_headers(failure: &Failure) -> bool {
    matches!(failure, Failure::Rpc(error) if error.code == HEADER_MISMATCH)
}

/// A value as a header carries it: as it is, or where that would not survive, encoded.
pub(crate) fn header_value(text: &str) -> String {
    use base64::Engine as _;
    let is_plain = text.bytes().all(|byte| (b' '..0x7f).contains(&byte))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    match is_plain {
        true => text.to_owned(),
        false => format!(
            "=?base64?{}?=",
            base64::engine::general_purpose::STANDARD.encode(text)
        ),
    }
}

/// The beginning of a text that is not what was expected.
fn excerpt(head: &[u8], bytes: usize) -> String {
    let text = String::from_utf8_lossy(head);
    let text = text.trim();
    if text.is_empty() {
        return "it says nothing".to_owned();
    }
    match text.char_indices().nth(EXCERPT_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}… ({bytes} bytes)", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A server that answers as it is told, and remembers what it was sent.
    type Answers<'s> = &'s mut dyn FnMut(&Headers, &str) -> Answer;

    /// Status, media type, session, body.
    type Answer = (u16, &'static str, Option<&'static str>, String);

    struct Script<'s> {
        answers: Answers<'s>,
        sent: &'s RefCell<Vec<String>>,
    }

    fn header<'h>(headers: &'h Headers, name: &str) -> &'h str {
        let found = headers.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// One line of what was sent: the method, and the headers that tell eras apart.
    fn line(kind: &str, headers: &Headers, body: &str) -> String {
        let value: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let what = value["method"].as_str().unwrap_or(kind);
        format!(
            "{what} version={} method={} name={} session={}",
            header(headers, "mcp-protocol-version"),
            header(headers, "mcp-method"),
            header(headers, "mcp-name"),
            header(headers, "mcp-session-id")
        )
    }

    impl Wire for Script<'_> {
        fn post(&mut self, headers: &Headers, body: &[u8]) -> Result<Response, String> {
            let body = std::str::from_utf8(body).unwrap();
            self.sent.borrow_mut().push(line("reply", headers, body));
            let (status, media_type, session, text) = (self.answers)(headers, body);
            let pieces: Vec<_> = text
                .into_bytes()
                .chunks(7)
                .map(|piece| Ok(piece.to_vec()))
                .collect();
            Ok(Response {
                status,
                media_type: media_type.to_owned(),
                location: (status == 307).then(|| "https://b.test/mcp".to_owned()),
                session: session.map(str::to_owned),
                body: Box::new(pieces.into_iter()),
            })
        }

        fn delete(&mut self, headers: &Headers) {
            self.sent.borrow_mut().push(line("DELETE", headers, ""));
        }
    }

    const JSON: &str = "application/json";
    const EVENTS: &str = "text/event-stream";

    fn call() -> Ask<'static> {
        Ask {
            method: "tools/call",
            params: "\"name\":\"a\",\"arguments\":{}".to_owned(),
            name: Some("a"),
            headers: Headers::new(),
        }
    }

    /// What becomes of a call, what was sent for it, and the progress that was told.
    type Outcome = (Result<(Era, String), Failure>, Vec<String>, Vec<u64>);

    fn run(eras: &[Era], answers: Answers) -> Outcome {
        let sent = RefCell::new(Vec::new());
        let mut told = Vec::new();
        let mut tell = |progress: Progress| told.push(progress.done);
        let headers = Headers::new();
        let mut client = Client::new(
            Script {
                answers,
                sent: &sent,
            },
            &headers,
            eras,
            &mut tell,
        );
        let outcome = client.request(&call());
        client.close();
        let requests = client.requests as usize;
        assert_eq!(requests, sent.borrow().len());
        (outcome, sent.into_inner(), told)
    }

    fn rpc_error(code: i64, message: &str) -> String {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}"
        )
    }

    const RESULT: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}";

    #[test]
    fn a_modern_server_is_called_with_one_request() {
        let (outcome, sent, _) = run(&Era::ALL, &mut |_, _| (200, JSON, None, RESULT.to_owned()));
        assert_eq!(outcome, Ok((Era::Modern, "{\"content\":[]}".to_owned())));
        assert_eq!(
            sent,
            ["tools/call version=2026-07-28 method=tools/call name=a session="]
        );
    }

    #[test]
    fn a_server_without_sessions_costs_one_request_more() {
        let (outcome, sent, _) = run(&Era::ALL, &mut |headers, _| match header(
            headers,
            "mcp-method",
        ) {
            "" => (200, EVENTS, None, format!("data: {RESULT}\n\n")),
            _ => (
                400,
                JSON,
                None,
                rpc_error(-32000, "Bad Request: Unsupported protocol version"),
            ),
        });
        assert_eq!(outcome.unwrap().0, Era::Stateless);
        assert_eq!(
            sent[1..],
            ["tools/call version=2025-06-18 method= name= session="]
        );
    }

    /// A server of sessions that speaks 2025-03-26.
    fn sessions(headers: &Headers, body: &str) -> Answer {
        if body.contains("\"initialize\"") {
            let result =
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-03-26\"}}";
            return (
                200,
                EVENTS,
                Some("s-1"),
                format!("id: 1\ndata: \n\ndata: {result}\n\n"),
            );
        }
        match header(headers, "mcp-session-id") {
            "s-1" if body.contains("initialized") => (202, "", None, String::new()),
            "s-1" => (200, JSON, None, RESULT.to_owned()),
            _ => (
                400,
                JSON,
                None,
                rpc_error(-32000, "Bad Request: Server not initialized"),
            ),
        }
    }

    #[test]
    fn a_server_of_sessions_gets_a_handshake_and_an_end() {
        let (outcome, sent, _) = run(&Era::ALL, &mut sessions);
        assert_eq!(outcome.unwrap().0, Era::Session);
        let session = [
            "initialize version= method= name= session=",
            "notifications/initialized version=2025-03-26 method= name= session=s-1",
            "tools/call version=2025-03-26 method= name= session=s-1",
            "DELETE version=2025-03-26 method= name= session=s-1",
        ];
        assert_eq!(sent[2..], session);
        let (_, sent, _) = run(&[Era::Session], &mut sessions);
        assert_eq!(
            sent, session,
            "and nothing else where the protocol is configured"
        );
    }

    #[test]
    fn an_error_about_the_call_is_final_and_not_taken_for_another_era() {
        for (status, code) in [(200, -32602), (200, -32603), (400, -32020), (400, -32021)] {
            let (outcome, sent, _) = run(&Era::ALL, &mut |_, _| {
                (status, JSON, None, rpc_error(code, "no"))
            });
            let error = Error {
                code,
                message: "no".to_owned(),
            };
            assert_eq!(
                (outcome, sent.len()),
                (Err(Failure::Rpc(error)), 1),
                "{status} {code}"
            );
        }
        for status in [401, 403, 429, 500, 503] {
            let (outcome, sent, _) = run(&Era::ALL, &mut |_, _| {
                (status, "text/plain", None, "no".to_owned())
            });
            let detail = "no".to_owned();
            assert_eq!(
                (outcome, sent.len()),
                (Err(Failure::Status { status, detail }), 1)
            );
        }
    }

    #[test]
    fn a_server_that_takes_no_era_is_quoted_with_what_it_said_first() {
        let mut count = 0;
        let (outcome, sent, _) = run(&Era::ALL, &mut |_, _| {
            count += 1;
            (404, "text/html", None, format!("nothing here {count}"))
        });
        assert_eq!(
            outcome,
            Err(Failure::Status {
                status: 404,
                detail: "nothing here 1".to_owned()
            })
        );
        assert_eq!(sent.len(), 3);
    }

    #[test]
    fn the_handshake_follows_where_the_first_request_came_too_early() {
        for error in [
            rpc_error(-32602, "Invalid request parameters"),
            rpc_error(-32022, "x"),
            rpc_error(-32600, "x"),
        ] {
            let (outcome, ..) = run(
                &Era::ALL,
                &mut |headers, body| match sessions(headers, body) {
                    (400, ..) => (200, JSON, None, error.clone()),
                    other => other,
                },
            );
            assert_eq!(outcome.unwrap().0, Era::Session);
        }
    }

    #[test]
    fn a_stream_is_read_to_its_answer_and_what_the_server_asks_is_refused() {
        let asks = "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"elicitation/create\",\"params\":{}}";
        let progress = |done: f64| {
            format!("{{\"method\":\"notifications/progress\",\"params\":{{\"progress\":{done}}}}}")
        };
        let stream = [
            progress(1.0),
            progress(1.5),
            asks.to_owned(),
            progress(3.0),
            RESULT.to_owned(),
            progress(4.0),
        ];
        let stream: String = stream
            .iter()
            .map(|message| format!("event: message\ndata: {message}\n\n"))
            .collect();
        let mut replies = Vec::new();
        let (outcome, sent, told) = run(&[Era::Stateless], &mut |_, body| match body
            .contains("tools/call")
        {
            true => (200, EVENTS, None, stream.clone()),
            false => {
                replies.push(body.to_owned());
                (202, "", None, String::new())
            }
        });
        assert!(outcome.is_ok());
        assert_eq!(told, [1, 3], "what is done only grows");
        assert_eq!(sent.len(), 2);
        assert!(
            replies[0].contains("\"id\":9,\"error\":{\"code\":-32601"),
            "{replies:?}"
        );
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_quoted() {
        let page = "<html>".to_owned() + &"é".repeat(300);
        let cases = [
            (
                200,
                "text/html",
                page,
                "it is not JSON-RPC: expected value at line 1 column 1: <html>".to_owned()
                    + &"é".repeat(194)
                    + "… (606 bytes)",
            ),
            (
                200,
                JSON,
                "{\"jsonrpc\":\"2.0\"}".to_owned(),
                "it holds no answer: {\"jsonrpc\":\"2.0\"}".to_owned(),
            ),
            (
                202,
                "",
                String::new(),
                "it is not JSON-RPC: EOF while parsing a value at line 1 column 0: it says nothing"
                    .to_owned(),
            ),
            (
                200,
                EVENTS,
                ": hello\n\n".to_owned(),
                "it ended its stream of events before the answer".to_owned(),
            ),
        ];
        for (status, media_type, body, expected) in cases {
            let (outcome, ..) = run(&Era::ALL, &mut |_, _| {
                (status, media_type, None, body.clone())
            });
            assert_eq!(outcome, Err(Failure::Broken(expected)));
        }
        let (outcome, ..) = run(&Era::ALL, &mut |_, _| (307, "", None, String::new()));
        let detail =
            "it leads to https://b.test/mcp; the operator has to set `url` to where the server is"
                .to_owned();
        assert_eq!(
            outcome,
            Err(Failure::Status {
                status: 307,
                detail
            })
        );
    }

    #[test]
    fn a_header_carries_what_it_can() {
        assert_eq!(header_value("get file"), "get file");
        assert_eq!(header_value("é"), "=?base64?w6k=?=");
        assert_eq!(header_value(" a"), "=?base64?IGE=?=");
        assert_eq!(header_value("=?base64?x"), "=?base64?PT9iYXNlNjQ/eA==?=");
    }
}
