//! The tools of another MCP server, listed and called over streamable HTTP.
//!
//! `settings` reads the operator's entry, `client` speaks the protocol over `wire` (with `sse` and `message`), `listing`,
//! `names` and `schema` put the server's tools in the contract's words, and `content` makes one answer of a result.
//!
//! Every call is an instance of its own, which knows nothing but its name and its arguments. Whatever a call needs is
//! therefore in the entry, or asked for again; the host shapes what comes back.

mod bindings;
mod client;
mod content;
mod json;
mod listing;
mod message;
mod names;
mod schema;
mod settings;
mod sse;
mod wire;

use bindings::exports::plimsoll::plugin::tools::{Guest, Tool};
use bindings::plimsoll::plugin::types::Fault;
use bindings::plimsoll::plugin::{log, reply};
use bindings::wasi::config::store;
use client::{Ask, Client, Failure};
use content::{Answer, Outcome};
use listing::{Listing, Page};
use message::Progress;
use serde_json::{Value, value::RawValue};
use settings::{Era, Settings};
use wire::{Headers, Http, Wire};

/// JSON-RPC: the parameters are invalid.
const INVALID_PARAMS: i64 = -32602;

struct Mcp;

impl Guest for Mcp {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        let settings = settings()?;
        let mut ignore = |_| {};
        let mut client = client(&settings, &mut ignore);
        let listing = list(&mut client, &settings);
        client.close();
        let (listing, era) = listing?;
        for (level, note) in notes(&listing, &settings, era) {
            log::write(level, &note);
        }
        if listing.tools.is_empty() {
            let message = "no tool of the server is listed: expected `tools` to name some of those that can be, or to be left out";
            return Err(Fault::InvalidInput(message.to_owned()));
        }
        Ok(listing.tools)
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let settings = settings()?;
        let unknown = || Fault::NotFound(format!("there is no tool `{name}` here"));
        let tool = settings
            .names
            .resolve(&name)
            .filter(|tool| settings.filter.admits(tool));
        let tool = tool.ok_or_else(unknown)?;
        let mut tell = |progress: Progress| {
            reply::progress(progress.done, progress.total, progress.message.as_deref());
        };
        let mut client = client(&settings, &mut tell);
        let result = call(&mut client, &tool, &arguments);
        // Before the answer is handed over, since that may be all the time that is left.
        client.close();
        let result = result.map_err(|failure| fault(&failure, "tools/call"))?;
        let outcome = content::read(&result, settings.attachment_bytes);
        hand_over(&settle(outcome)?);
        Ok(())
    }
}

fn settings() -> Result<Settings, Fault> {
    let values = store::get_all()
        .map_err(|error| Fault::Internal(format!("reading the configuration: {error:?}")))?;
    Settings::of(values).map_err(Fault::InvalidInput)
}

fn client<'a>(
    settings: &'a Settings,
    progress: &'a mut dyn FnMut(Progress),
) -> Client<'a, Http<'a>> {
    let wire = Http {
        address: &settings.address,
    };
    Client::new(wire, &settings.headers, &settings.eras, progress)
}

/// All pages of the server's listing, and the era in which it gave them.
fn list<W: Wire>(client: &mut Client<W>, settings: &Settings) -> Result<(Listing, Era), Fault> {
    let mut listing = Listing::default();
    let era = each_page(client, &mut |tools| {
        listing.add(tools, &settings.filter, &settings.names)
    })?;
    Ok((listing, era))
}

/// Follows the listing to its end. How long that may take and how large it may be, the host bounds.
fn each_page<W: Wire>(
    client: &mut Client<W>,
    visit: &mut dyn FnMut(&[&RawValue]),
) -> Result<Era, Fault> {
    let mut cursor: Option<String> = None;
    loop {
        let params = cursor.as_ref().map_or(String::new(), |cursor| {
            format!("\"cursor\":{}", Value::from(cursor.as_str()))
        });
        let ask = Ask {
            method: "tools/list",
            params,
            name: None,
            headers: Headers::new(),
        };
        let (era, result) = client
            .request(&ask)
            .map_err(|failure| fault(&failure, "tools/list"))?;
        let page: Page = serde_json::from_str(&result).map_err(|error| {
            Fault::Internal(format!(
                "the result of the MCP server is not one of tools/list: {error}"
            ))
        })?;
        visit(&page.tools);
        match page.next_cursor {
            None => return Ok(era),
            Some(next) if Some(&next) == cursor.as_ref() => {
                return Err(Fault::Internal(
                    "the MCP server's listing does not end: a page of it leads to itself"
                        .to_owned(),
                ));
            }
            Some(next) => cursor = Some(next),
        }
    }
}

fn call<W: Wire>(client: &mut Client<W>, tool: &str, arguments: &str) -> Result<String, Failure> {
    let mut ask = Ask {
        method: "tools/call",
        params: content::call_params(tool, arguments),
        name: Some(tool),
        headers: Headers::new(),
    };
    let failure = match client.request(&ask) {
        Err(failure) if client::wants_headers(&failure) => failure,
        outcome => return outcome.map(|(_, result)| result),
    };
    // Which arguments have to be headers too stands in the tool's schema. The server has not begun, so the call may be
    // sent again.
    let mut found = None;
    let listed = each_page(client, &mut |tools| {
        if let Some(entry) = tools.iter().find(|entry| listing::is_named(entry, tool)) {
            found = Some(listing::argument_headers(entry, arguments));
        }
    });
    match (listed, found) {
        (Ok(_), Some(headers)) if !headers.is_empty() => {
            ask.headers = headers;
            client.request(&ask).map(|(_, result)| result)
        }
        _ => Err(failure),
    }
}

/// What the operator should know of a listing.
fn notes(listing: &Listing, settings: &Settings, era: Era) -> Vec<(log::Level, String)> {
    let warn = |text: &String| (log::Level::Warn, text.clone());
    let mut notes: Vec<_> = listing.warnings.iter().map(warn).collect();
    let names: Vec<&str> = listing.names.iter().map(String::as_str).collect();
    for missing in settings.filter.missing(&names) {
        let names = names.join(", ");
        let text =
            format!("`tools` names `{missing}`, which fits no tool of the server: it has {names}");
        notes.push((log::Level::Warn, text));
    }
    if settings.eras.len() > 1 && era != Era::Modern {
        let text = format!(
            "the server takes the protocol `{era}`; with protocol = \"{era}\" in `config`, calls do without trying others"
        );
        notes.push((log::Level::Info, text));
    }
    notes
}

/// The answer that a result is, or the fault.
fn settle(outcome: Result<Outcome, String>) -> Result<Answer, Fault> {
    match outcome {
        Ok(Outcome::Answer(answer)) => Ok(answer),
        Ok(Outcome::Failed(text)) => Err(failed(text)),
        Ok(Outcome::Asks(kind)) => Err(Fault::Internal(format!(
            "the MCP server answers with `{kind}`: it wants input or patience that a call through here cannot give"
        ))),
        Err(reason) => Err(Fault::Internal(format!(
            "the result of the MCP server is not one of tools/call: {reason}"
        ))),
    }
}

fn hand_over(answer: &Answer) {
    if let Some(total) = answer.total {
        reply::total(total);
    }
    if let Some(document) = &answer.document {
        reply::document(document);
    }
    for attachment in &answer.attachments {
        reply::attach(attachment);
    }
}

/// A tool that says that it failed, in its own words.
fn failed(text: String) -> Fault {
    // Another Plimsoll says what kind of refusal it is.
    let refusal = serde_json::from_str::<Value>(&text).unwrap_or_default();
    let is_retryable = refusal["error"].is_string() && refusal["retryable"] == true;
    match refusal["error"].as_str() {
        _ if is_retryable => Fault::Unavailable(text),
        Some("not_found") => Fault::NotFound(text),
        Some("invalid_arguments" | "invalid_input" | "invalid_cursor" | "stale_cursor") => {
            Fault::InvalidInput(text)
        }
        // The SDKs' own words for arguments that do not fit.
        None if text.starts_with("MCP error -32602")
            || text.starts_with("Input validation error") =>
        {
            Fault::InvalidInput(text)
        }
        _ => Fault::Internal(text),
    }
}

/// A request that the server did not carry out.
fn fault(failure: &Failure, method: &str) -> Fault {
    match failure {
        Failure::Rpc(error) => {
            let text = format!(
                "the MCP server answers {method} with error {}: {}",
                error.code, error.message
            );
            match error.code {
                INVALID_PARAMS => Fault::InvalidInput(text),
                // A fault of the request or of the server, which stays.
                -32700 | -32601..=-32600 | -32603 | -32022..=-32020 => Fault::Internal(text),
                _ => Fault::Unavailable(text),
            }
        }
        Failure::Status { status, detail } => {
            let text = format!("the MCP server answers {method} with HTTP {status}: {detail}");
            match status {
                401 | 403 => Fault::Internal(format!(
                    "{text}. It does not let this host in; the operator can set `bearer` or `header.NAME` among the secrets"
                )),
                404 | 405 => Fault::Internal(format!(
                    "{text}. Expected an MCP server at `url`, of the `protocol` that is configured"
                )),
                408 | 429 | 500.. => Fault::Unavailable(text),
                _ => Fault::Internal(text),
            }
        }
        Failure::Broken(reason) => {
            Fault::Unavailable(format!("the MCP server did not answer {method}: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Error;

    /// The kind of a fault and its text.
    fn told(fault: Fault) -> (&'static str, String) {
        match fault {
            Fault::InvalidInput(text) => ("invalid", text),
            Fault::NotFound(text) => ("not found", text),
            Fault::Unavailable(text) => ("unavailable", text),
            Fault::Internal(text) => ("internal", text),
        }
    }

    #[test]
    fn errors_of_the_server_are_faults_of_their_kind() {
        for (code, kind) in [
            (-32602, "invalid"),
            (-32603, "internal"),
            (-32601, "internal"),
            (-32021, "internal"),
            (-32000, "unavailable"),
            (42, "unavailable"),
        ] {
            let failure = Failure::Rpc(Error {
                code,
                message: "no".to_owned(),
            });
            let text = format!("the MCP server answers tools/call with error {code}: no");
            assert_eq!(told(fault(&failure, "tools/call")), (kind, text));
        }
        for (status, kind, end) in [
            (400, "internal", ""),
            (
                401,
                "internal",
                ". It does not let this host in; the operator can set `bearer` or `header.NAME` among the secrets",
            ),
            (
                404,
                "internal",
                ". Expected an MCP server at `url`, of the `protocol` that is configured",
            ),
            (429, "unavailable", ""),
            (503, "unavailable", ""),
        ] {
            let failure = Failure::Status {
                status,
                detail: "no".to_owned(),
            };
            let text = format!("the MCP server answers tools/list with HTTP {status}: no{end}");
            assert_eq!(told(fault(&failure, "tools/list")), (kind, text));
        }
        let broken = fault(&Failure::Broken("no connection".to_owned()), "tools/list");
        assert_eq!(
            told(broken),
            (
                "unavailable",
                "the MCP server did not answer tools/list: no connection".to_owned()
            )
        );
    }

    #[test]
    fn a_tool_that_failed_keeps_its_words() {
        for (text, kind) in [
            ("disk full", "internal"),
            ("MCP error -32602: Tool x not found", "invalid"),
            ("Input validation error: 'a' is required", "invalid"),
            (r#"{"error":"busy","retryable":true}"#, "unavailable"),
            (r#"{"error":"not_found","retryable":false}"#, "not found"),
            (r#"{"error":"invalid_cursor"}"#, "invalid"),
            (r#"{"error":"response_too_large"}"#, "internal"),
        ] {
            assert_eq!(told(failed(text.to_owned())), (kind, text.to_owned()));
        }
    }

    /// A server that gives its answers in order, and what it was sent: the header `mcp-param-r`, and the body.
    struct Answers {
        answers: std::vec::IntoIter<(u16, String)>,
        sent: std::rc::Rc<std::cell::RefCell<Vec<String>>>,
    }

    impl Wire for Answers {
        fn post(&mut self, headers: &Headers, body: &[u8]) -> Result<wire::Response, String> {
            let header = headers.iter().find(|(name, _)| name == "mcp-param-r");
            let header = header.map_or("", |(_, value)| value.as_str());
            let request: Value = serde_json::from_slice(body).unwrap();
            let (method, cursor) = (&request["method"], &request["params"]["cursor"]);
            self.sent
                .borrow_mut()
                .push(format!("{method} {cursor} {header}"));
            let (status, text) = self.answers.next().ok_or("no more answers")?;
            Ok(wire::Response {
                status,
                media_type: "application/json".to_owned(),
                location: None,
                session: None,
                body: Box::new(std::iter::once(Ok(text.into_bytes()))),
            })
        }

        fn delete(&mut self, _: &Headers) {}
    }

    fn result(result: &str) -> (u16, String) {
        (
            200,
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}"),
        )
    }

    /// What `act` makes of a modern server with these answers, and what it sent.
    fn with<T>(
        answers: Vec<(u16, String)>,
        act: impl FnOnce(&mut Client<Answers>) -> T,
    ) -> (T, Vec<String>) {
        let sent = std::rc::Rc::default();
        let wire = Answers {
            answers: answers.into_iter(),
            sent: std::rc::Rc::clone(&sent),
        };
        let (headers, mut ignore) = (Headers::new(), |_| {});
        let outcome = act(&mut Client::new(
            wire,
            &headers,
            &[Era::Modern],
            &mut ignore,
        ));
        let sent = sent.borrow().clone();
        (outcome, sent)
    }

    #[test]
    fn a_listing_is_followed_to_its_end_and_no_further() {
        let pages = || {
            vec![
                result(r#"{"tools":[1],"nextCursor":"a"}"#),
                result(r#"{"tools":[2],"nextCursor":""}"#),
                result(r#"{"tools":[3]}"#),
            ]
        };
        let mut found = Vec::new();
        let mut visit =
            |tools: &[&RawValue]| found.extend(tools.iter().map(|tool| tool.get().to_owned()));
        let (era, sent) = with(pages(), |client| each_page(client, &mut visit));
        assert!(matches!(era, Ok(Era::Modern)));
        assert_eq!(found, ["1", "2", "3"]);
        // An empty cursor is one.
        assert_eq!(
            sent,
            [
                "\"tools/list\" null ",
                "\"tools/list\" \"a\" ",
                "\"tools/list\" \"\" "
            ]
        );

        let circle = vec![result(r#"{"tools":[],"nextCursor":"a"}"#); 2];
        let (outcome, _) = with(circle, |client| each_page(client, &mut |_| {}));
        let expected = "the MCP server's listing does not end: a page of it leads to itself";
        assert_eq!(
            told(outcome.unwrap_err()),
            ("internal", expected.to_owned())
        );
        let (outcome, _) = with(vec![result("{}")], |client| each_page(client, &mut |_| {}));
        let (kind, text) = told(outcome.unwrap_err());
        assert!(
            kind == "internal"
                && text.starts_with(
                    "the result of the MCP server is not one of tools/list: missing field `tools`"
                ),
            "{text}"
        );
    }

    #[test]
    fn arguments_are_repeated_in_headers_where_the_server_wants_it() {
        let mismatch = (
            400,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"no"}}"#.to_owned(),
        );
        let tool = |properties: &str| {
            result(&format!(
                r#"{{"tools":[{{"name":"t","inputSchema":{{"properties":{properties}}}}}]}}"#
            ))
        };
        let answers = vec![
            mismatch.clone(),
            tool(r#"{"r":{"x-mcp-header":"R"}}"#),
            result("{}"),
        ];
        let (outcome, sent) = with(answers, |client| call(client, "t", r#"{"r":"north"}"#));
        assert_eq!(outcome.unwrap(), "{}");
        assert_eq!(
            sent,
            [
                "\"tools/call\" null ",
                "\"tools/list\" null ",
                "\"tools/call\" null north"
            ]
        );
        // A tool that names no header is not called again.
        let (outcome, sent) = with(vec![mismatch, tool("{}")], |client| call(client, "t", "{}"));
        assert_eq!((outcome.is_err(), sent.len()), (true, 2));
    }

    #[test]
    fn the_operator_hears_what_to_configure() {
        let value = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let settings = Settings::of(
            [("url", "http://a.test"), ("tools", "a, b*")]
                .map(value)
                .into(),
        )
        .unwrap();
        let listing = Listing {
            names: vec!["a".to_owned(), "c".to_owned()],
            warnings: vec!["w".to_owned()],
            ..Listing::default()
        };
        let found: Vec<String> = notes(&listing, &settings, Era::Session)
            .into_iter()
            .map(|(_, note)| note)
            .collect();
        let expected = [
            "w",
            "`tools` names `b*`, which fits no tool of the server: it has a, c",
            "the server takes the protocol `session`; with protocol = \"session\" in `config`, calls do without trying others",
        ];
        assert_eq!(found, expected);
        assert_eq!(notes(&listing, &settings, Era::Modern).len(), 2);
    }

    #[test]
    fn a_result_that_cannot_be_handed_over_is_a_fault() {
        let text = "the MCP server answers with `input_required`: it wants input or patience that a call through here cannot give";
        let fault = settle(Ok(Outcome::Asks("input_required".to_owned()))).unwrap_err();
        assert_eq!(told(fault), ("internal", text.to_owned()));
        let fault = settle(Err("why".to_owned())).unwrap_err();
        assert_eq!(
            told(fault),
            (
                "internal",
                "the result of the MCP server is not one of tools/call: why".to_owned()
            )
        );
    }
}
