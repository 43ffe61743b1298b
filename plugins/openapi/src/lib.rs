//! The operations of any OpenAPI document as tools.
//!
//! The document is read once when the plugin is loaded, for the listing, and once in each call, which looks for one operation
//! in it and converts nothing else. What comes back is handed over as it is: the host pages, fits and caps it, unless the
//! operation has a limit or a position of its own.

mod answer;
mod bindings;
mod config;
mod document;
mod http;
mod json;
mod operation;
mod request;
mod schema;
mod url;

use std::collections::BTreeMap;

use bindings::exports::plimsoll::plugin::tools::{Guest, Tool};
use bindings::plimsoll::plugin::log::{self, Level};
use bindings::plimsoll::plugin::reply;
use bindings::plimsoll::plugin::types::Fault;
use bindings::wasi::config::store;

use config::{Config, Source};
use document::{Document, Found};
use operation::Operation;
use request::{Arguments, Request};
use url::Base;

/// Tools that the host takes of one plugin.
const MAX_TOOLS: usize = 2_000;

/// Operations that are left out and named in one line of the log.
const NAMED: usize = 20;

struct Openapi;

impl Guest for Openapi {
    fn list_tools() -> Result<Vec<Tool>, Fault> {
        let config = configuration()?;
        let (text, place) = read(&config)?;
        json::check(&text).map_err(|error| {
            internal(&format!(
                "the document is not JSON: {error}; one in YAML has to be converted first"
            ))
        })?;
        let document = Document::read(&text, place).map_err(|error| internal(&error))?;
        list(&document, &config).map_err(|error| internal(&error))
    }

    fn call_tool(name: String, arguments: String) -> Result<(), Fault> {
        let config = configuration()?;
        let (text, place) = read(&config)?;
        let document = Document::read(&text, place).map_err(|error| internal(&error))?;
        let found = find(&document, &config, &name)
            .ok_or_else(|| Fault::NotFound(format!("there is no tool `{name}` here")))?;
        let base = document
            .server(&config, &found)
            .map_err(|error| internal(&error))?;
        let operation =
            Operation::read(&document, found, &config).map_err(|error| internal(&error))?;
        let request = Arguments::read(&arguments)
            .and_then(|arguments| request::build(&operation, &base, &config, &arguments))
            .map_err(Fault::InvalidInput)?;
        let response = http::send(&request).map_err(|error| answer::failed(&operation, &error))?;
        let scheme = if base.is_https { "https" } else { "http" };
        // Without the query, in which a credential may be.
        let path = request.path.split('?').next().unwrap_or_default();
        let url = format!("{scheme}://{}{path}", base.authority);
        let secrets: Vec<&str> = config
            .credentials
            .iter()
            .flat_map(config::Credential::secrets)
            .collect();
        let answer = answer::of(&operation, &url, response, &secrets)?;
        if let Some(document) = &answer.document {
            reply::document(document);
        }
        for attachment in &answer.attachments {
            reply::attach(attachment);
        }
        Ok(())
    }
}

fn internal(message: &str) -> Fault {
    Fault::Internal(message.to_owned())
}

fn configuration() -> Result<Config, Fault> {
    let values = store::get_all()
        .map_err(|error| internal(&format!("reading the configuration: {error:?}")))?;
    let values: BTreeMap<String, String> = values.into_iter().collect();
    Config::read(&values).map_err(|error| internal(&error))
}

/// The text of the document, and where it came from if that is a URL.
fn read(config: &Config) -> Result<(String, Option<Base>), Fault> {
    let bytes = match &config.document {
        Source::File(path) => (
            std::fs::read(path).map_err(|error| {
                internal(&format!("reading the document `{path}`: {error}; it has to be in a folder that `files` grants"))
            })?,
            None,
        ),
        Source::Url(url) => {
            let base = Base::parse(url).map_err(|error| internal(&error))?;
            (fetch(url, &base)?, Some(base))
        }
    };
    let text = String::from_utf8(bytes.0).map_err(|_| internal("the document is not UTF-8"))?;
    Ok((text, bytes.1))
}

/// Gets the document, without the API's credentials: it may be elsewhere.
fn fetch(url: &str, base: &Base) -> Result<Vec<u8>, Fault> {
    let query = base.query.as_ref().map(|query| format!("?{query}"));
    let path = if base.path.is_empty() {
        "/"
    } else {
        base.path.as_str()
    };
    let request = Request {
        method: "GET",
        is_https: base.is_https,
        authority: base.authority.clone(),
        path: format!("{path}{}", query.unwrap_or_default()),
        fields: vec![(String::from("accept"), String::from("application/json"))],
        body: None,
    };
    let response = http::send(&request).map_err(|error| {
        Fault::Unavailable(format!("getting the document from `{url}`: {error}"))
    })?;
    match response.status {
        200 => Ok(response.body),
        status => Err(Fault::Unavailable(format!(
            "getting the document from `{url}`: expected status 200, found {status}"
        ))),
    }
}

/// The tools of all chosen operations.
fn list(document: &Document<'_>, config: &Config) -> Result<Vec<Tool>, String> {
    let mut chosen = Vec::new();
    document.each_chosen(config, |found| {
        chosen.push(found);
        false
    });
    document.check_choice(config, &chosen)?;
    if chosen.len() > MAX_TOOLS {
        let tags: Vec<String> = Document::tags_of(&chosen)
            .iter()
            .map(|(tag, count)| format!("{tag} ({count})"))
            .collect();
        return Err(format!(
            "expected at most {MAX_TOOLS} operations, found {}; choose some with `tags`, `methods` or `operations`. The tags \
             are {}",
            chosen.len(),
            tags.join(", ")
        ));
    }
    let mut tools = Vec::with_capacity(chosen.len());
    let mut left_out = Vec::new();
    for found in chosen {
        let named = format!("{} {}", found.method, found.path);
        document.server(config, &found)?;
        match Operation::read(document, found, config) {
            Ok(operation) => tools.push(operation.tool(document)),
            Err(reason) => left_out.push(format!("{named}: {reason}")),
        }
    }
    if !left_out.is_empty() {
        let more = left_out.len().saturating_sub(NAMED);
        left_out.truncate(NAMED);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        say(&format!("left out: {}{more}", left_out.join("; ")));
    }
    if tools.is_empty() {
        return Err(format!(
            "no operation that is chosen can be a tool: {}",
            left_out.join("; ")
        ));
    }
    Ok(tools)
}

#[cfg(target_family = "wasm")]
fn say(text: &str) {
    log::write(Level::Warn, text);
}

/// Natively, in unit tests, there is no host that listens.
#[cfg(not(target_family = "wasm"))]
fn say(_: &str) {
    let _: fn(Level, &str) = log::write;
}

/// The operation of a tool.
fn find<'a>(document: &Document<'a>, config: &Config, name: &str) -> Option<Found<'a>> {
    let mut wanted = None;
    document.each_chosen(config, |found| {
        let is_wanted = found.name == name;
        if is_wanted {
            wanted = Some(found);
        }
        is_wanted
    });
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::tests::of as config;

    fn paths(count: usize) -> String {
        let paths = (0..count).map(|n| {
            format!(
                r#""/x{n}":{{"get":{{"operationId":"x{n}","tags":["t{}"]}}}}"#,
                n % 2
            )
        });
        let paths: Vec<String> = paths.collect();
        format!(r#"{{"openapi":"3.1.0","paths":{{{}}}}}"#, paths.join(","))
    }

    const VALUES: [(&str, &str); 2] = [("document", "/a"), ("base_url", "http://api.test")];

    #[test]
    fn more_operations_than_the_host_takes_are_an_error_that_names_the_tags() {
        let config = config(&VALUES).unwrap();
        let (fits, too_many) = (paths(2_000), paths(2_001));
        let fits = Document::read(&fits, None).unwrap();
        assert_eq!(list(&fits, &config).unwrap().len(), 2_000);
        let too_many = Document::read(&too_many, None).unwrap();
        assert_eq!(
            list(&too_many, &config).unwrap_err(),
            "expected at most 2000 operations, found 2001; choose some with `tags`, `methods` or `operations`. The tags are t0 \
             (1001), t1 (1000)"
        );
    }

    #[test]
    fn a_call_finds_the_operation_that_the_listing_named() {
        let text = r#"{"openapi":"3.1.0","paths":{"/a":{"get":{"operationId":"x/y"}},"/b":{"get":{"operationId":"x y"}}}}"#;
        let (document, config) = (
            Document::read(text, None).unwrap(),
            config(&VALUES).unwrap(),
        );
        let listed: Vec<String> = list(&document, &config)
            .unwrap()
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        assert_eq!(listed, ["x_y", "x_y_2"]);
        assert_eq!(find(&document, &config, "x_y_2").unwrap().path, "/b");
        assert!(find(&document, &config, "x/y").is_none());
    }

    #[test]
    fn operations_that_cannot_be_called_are_left_out_and_all_of_them_are_an_error() {
        let only = r#"{"openapi":"3.1.0","paths":{"/a/{id}":{"get":{"operationId":"x"}}}}"#;
        let (document, config) = (
            Document::read(only, None).unwrap(),
            config(&VALUES).unwrap(),
        );
        assert_eq!(
            list(&document, &config).unwrap_err(),
            "no operation that is chosen can be a tool: GET /a/{id}: its path has a `{id}` that no parameter describes"
        );
        let both = only.replace(
            r#""paths":{"#,
            r#""paths":{"/b":{"get":{"operationId":"y"}},"#,
        );
        let document = Document::read(&both, None).unwrap();
        assert_eq!(list(&document, &config).unwrap().len(), 1);
    }

    #[test]
    fn a_document_that_does_not_say_where_the_api_is_needs_a_base_url() {
        let text = paths(1);
        let document = Document::read(&text, None).unwrap();
        let error = list(&document, &config(&[("document", "/a")]).unwrap()).unwrap_err();
        assert!(
            error.ends_with("which does not say where the API is; set `base_url`"),
            "{error}"
        );
    }
}
