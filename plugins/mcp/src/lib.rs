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
        for warning in &listing.warnings {
            log::write(log::Level::Warn, warning);
        }
        let names: Vec<&str> = listing.names.iter().map(String::as_str).collect();
        if let Some(missing) = settings.filter.missing(&names).first() {
            log::write(
                log::Level::Warn,
                &format!(
                    "`tools` names `{missing}`, which fits no tool of the server: it has {}",
                    names.join(", ")
                ),
            );
        }
        if settings.eras.len() > 1 && era != Era::Modern {
            log::write(
                log::Level::Info,
                &format!(
                    "the server takes the protocol `{era}`; with the config value protocol = \"{era}\" each call does without trying others"
                ),
            );
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
        match content::read(&result, settings.attachment_bytes) {
            Ok(Outcome::Answer(answer)) => {
                hand_over(&answer);
                Ok(())
            }
            Ok(Outcome::Failed(text)) => Err(failed(text)),
            Ok(Outcome::Asks(kind)) => Err(Fault::Internal(format!(
                "the MCP server answers with `{kind}`: it wants input or patience that a call through here cannot give"
            ))),
            Err(reason) => Err(Fault::Internal(format!(
                "the result of the MCP server is not one of tools/call: {reason}"
            ))),
        }
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

fn hand_over(answer: &Answer) {
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
}
