//! A call's arguments as a request. Values go into it as they were written: no number is rendered anew.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::config::{Config, Credential};
use crate::json::{Node, quote};
use crate::operation::{Body, Content, Operation, Parameter, Place, Style};
use crate::url::{Base, encode};

/// What is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) is_https: bool,
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Option<Vec<u8>>,
}

/// The arguments of a call: names, and the text of each value. Null is the same as absence for all but a body.
pub(crate) struct Arguments<'a>(Vec<(Cow<'a, str>, Node<'a>)>);

impl<'a> Arguments<'a> {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// What is no JSON object.
    pub(crate) fn read(text: &'a str) -> Result<Self, String> {
        serde_json::from_str::<&RawValue>(text)
            .map_err(|error| format!("expected arguments as a JSON object: {error}"))?;
        let object = Node::of(text).filter(|node| node.is_object());
        let object = object.ok_or("expected arguments as a JSON object")?;
        Ok(Self(object.members().collect()))
    }

    fn get(&self, name: &str) -> Option<Node<'a>> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| *value)
    }
}

/// The request of a call.
///
/// # Errors
///
/// An argument that cannot be written where it belongs. The message names it.
pub(crate) fn build(
    operation: &Operation<'_>,
    base: &Base,
    config: &Config,
    arguments: &Arguments<'_>,
) -> Result<Request, String> {
    let mut path = operation.found.path.to_string();
    let mut query = String::new();
    let mut fields = vec![
        (
            String::from("accept"),
            String::from("application/json, */*;q=0.5"),
        ),
        // Some services refuse a request without one.
        (
            String::from("user-agent"),
            concat!("plimsoll-openapi/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
    ];
    for parameter in &operation.parameters {
        let value = arguments
            .get(&parameter.argument)
            .filter(|value| !value.is_null());
        let Some(value) = value else {
            if parameter.is_required {
                return Err(format!(
                    "`{}` is required and was not passed",
                    parameter.argument
                ));
            }
            continue;
        };
        match parameter.place {
            Place::Path => {
                let written = in_path(parameter, value)?;
                path = path.replace(&format!("{{{}}}", parameter.name), &written);
            }
            Place::Query => in_query(parameter, value, &mut query),
            Place::Header => {
                fields.push((parameter.name.to_string(), in_header(parameter, value)?))
            }
        }
    }
    for credential in &config.credentials {
        match credential {
            Credential::Header { name, value, .. } => fields.push((name.clone(), value.clone())),
            Credential::Query { name, secret } => pair(name, secret, &mut query),
        }
    }
    let body = match &operation.body {
        Some(body) => written(body, arguments)?,
        None => None,
    };
    if let (Some(_), Some(body)) = (&body, &operation.body) {
        fields.push((String::from("content-type"), body.media_type.to_string()));
    }
    let question = if query.is_empty() { "" } else { "?" };
    Ok(Request {
        method: operation.found.method,
        is_https: base.is_https,
        authority: base.authority.clone(),
        path: format!("{}{path}{question}{query}", base.path),
        fields,
        body,
    })
}

/// A value as text: the content of a string, and everything else as it is written.
fn plain(value: Node<'_>) -> Cow<'_, str> {
    value.string().unwrap_or(Cow::Borrowed(value.text()))
}

/// The parts of a list, or of an object: `key,value` or `key=value` for each member.
fn parts<'a>(value: Node<'a>, explode: bool) -> Vec<Cow<'a, str>> {
    if value.is_array() {
        return value.items().map(plain).collect();
    }
    if !value.is_object() {
        return vec![plain(value)];
    }
    let members = value.members().filter(|(_, value)| !value.is_null());
    members
        .flat_map(|(key, value)| match explode {
            true => vec![Cow::Owned(format!("{key}={}", plain(value)))],
            false => vec![key, plain(value)],
        })
        .collect()
}

fn in_path(parameter: &Parameter<'_>, value: Node<'_>) -> Result<String, String> {
    let parts = match parameter.style {
        Style::Json => vec![Cow::Borrowed(value.text())],
        _ => parts(value, parameter.explode),
    };
    let mut out = String::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        encode(part, &mut out);
    }
    // A server takes these for another path: an empty one for the list that the path lies in, dots for a folder above.
    if matches!(out.as_str(), "" | "." | "..") {
        return Err(format!(
            "`{}` goes into the path, where it cannot be empty, `.` or `..`",
            parameter.argument
        ));
    }
    Ok(out)
}

fn pair(name: &str, value: &str, query: &mut String) {
    if !query.is_empty() {
        query.push('&');
    }
    encode(name, query);
    query.push('=');
    encode(value, query);
}

fn in_query(parameter: &Parameter<'_>, value: Node<'_>, query: &mut String) {
    let name = &parameter.name;
    match parameter.style {
        Style::Json => pair(name, value.text(), query),
        Style::Deep if value.is_object() => deep(name, value, query),
        Style::Form | Style::Deep if parameter.explode || parameter.style == Style::Deep => {
            if value.is_object() {
                for (key, value) in value.members().filter(|(_, value)| !value.is_null()) {
                    pair(&key, &plain(value), query);
                }
            } else {
                for part in parts(value, true) {
                    pair(name, &part, query);
                }
            }
        }
        style => {
            let between = match style {
                Style::Space => "%20",
                Style::Pipe => "%7C",
                _ => ",",
            };
            if !query.is_empty() {
                query.push('&');
            }
            encode(name, query);
            query.push('=');
            for (index, part) in parts(value, false).iter().enumerate() {
                if index > 0 {
                    query.push_str(between);
                }
                encode(part, query);
            }
        }
    }
}

/// `name[key]=value`, also for objects in objects; a list repeats its name.
fn deep(name: &str, value: Node<'_>, query: &mut String) {
    for (key, value) in value.members().filter(|(_, value)| !value.is_null()) {
        let name = format!("{name}[{key}]");
        if value.is_object() {
            deep(&name, value, query);
        } else {
            for part in parts(value, false) {
                pair(&name, &part, query);
            }
        }
    }
}

fn in_header(parameter: &Parameter<'_>, value: Node<'_>) -> Result<String, String> {
    let text = match parameter.style {
        Style::Json => value.text().to_owned(),
        _ => parts(value, parameter.explode).join(","),
    };
    // A line break would begin a field of its own.
    if text.chars().any(|c| c.is_control() || !c.is_ascii()) {
        return Err(format!(
            "`{}` goes into a header field, where only printable ASCII may stand",
            parameter.argument
        ));
    }
    Ok(text)
}

/// The body, if one is sent.
fn written(body: &Body<'_>, arguments: &Arguments<'_>) -> Result<Option<Vec<u8>>, String> {
    let Some(members) = &body.members else {
        let Some(value) = arguments.get(body.argument) else {
            return match body.is_required {
                true => Err(format!(
                    "`{}` is required and was not passed",
                    body.argument
                )),
                false => Ok(None),
            };
        };
        return Ok(Some(match body.content {
            Content::Json => value.text().as_bytes().to_vec(),
            Content::Text => plain(value).into_owned().into_bytes(),
            Content::Form => form(value.members()),
        }));
    };
    let given = members
        .iter()
        .filter_map(|name| Some((Cow::Borrowed(name.as_str()), arguments.get(name)?)));
    let given: Vec<(Cow<'_, str>, Node<'_>)> = given.collect();
    if given.is_empty() && !body.is_required {
        return Ok(None);
    }
    if body.content == Content::Form {
        return Ok(Some(form(given.into_iter())));
    }
    let mut out = String::from("{");
    for (index, (name, value)) in given.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        quote(name, &mut out);
        out.push(':');
        out.push_str(value.text());
    }
    out.push('}');
    Ok(Some(out.into_bytes()))
}

/// A form: lists repeat their name, objects are JSON.
fn form<'a>(members: impl Iterator<Item = (Cow<'a, str>, Node<'a>)>) -> Vec<u8> {
    let mut out = String::new();
    for (name, value) in members.filter(|(_, value)| !value.is_null()) {
        if value.is_array() {
            for item in value.items() {
                pair(&name, &plain(item), &mut out);
            }
        } else {
            pair(&name, &plain(value), &mut out);
        }
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::of as config;
    use crate::operation::tests::{document, with_operation};

    /// `METHOD path?query`, the fields that are not always there, and the body.
    fn request(
        operation: &str,
        arguments: &str,
    ) -> Result<(String, Vec<String>, Option<String>), String> {
        let values = [
            ("document", "/a"),
            ("base_url", "http://api.test/v1"),
            ("writes", "true"),
        ];
        request_with(operation, arguments, &values)
    }

    fn request_with(
        operation: &str,
        arguments: &str,
        values: &[(&str, &str)],
    ) -> Result<(String, Vec<String>, Option<String>), String> {
        let config = config(values).unwrap();
        let text = document(operation);
        with_operation(&text, &config, |document, operation| {
            let base = document.server(&config, &operation.found).unwrap();
            let request = build(
                operation,
                &base,
                &config,
                &Arguments::read(arguments).unwrap(),
            )?;
            assert_eq!(
                (request.is_https, request.authority.as_str()),
                (false, "api.test")
            );
            let fields = request.fields[2..].iter();
            Ok((
                format!("{} {}", request.method, request.path),
                fields
                    .map(|(name, value)| format!("{name}: {value}"))
                    .collect(),
                request.body.map(|body| String::from_utf8(body).unwrap()),
            ))
        })
    }

    fn line(parameters: &str, arguments: &str) -> String {
        let operation =
            format!(r#""/x":{{"get":{{"operationId":"x","parameters":[{parameters}]}}}}"#);
        request(&operation, arguments).unwrap().0
    }

    #[test]
    fn lists_and_objects_are_written_in_their_style() {
        let q = |more: &str| format!(r#"{{"name":"q","in":"query"{more}}}"#);
        let list = r#"{"q":["a b","c,d",3]}"#;
        let object = r#"{"q":{"k":"v w","n":null,"m":{"o":[1,2]}}}"#;
        for (more, arguments, expected) in [
            ("", list, "q=a%20b&q=c%2Cd&q=3"),
            (r#","explode":false"#, list, "q=a%20b,c%2Cd,3"),
            (r#","style":"spaceDelimited""#, list, "q=a%20b%20c%2Cd%203"),
            (r#","style":"pipeDelimited""#, list, "q=a%20b%7Cc%2Cd%7C3"),
            ("", r#"{"q":{"k":"v w","n":null}}"#, "k=v%20w"),
            (r#","explode":false"#, r#"{"q":{"k":"v"}}"#, "q=k,v"),
            (
                r#","style":"deepObject""#,
                object,
                "q%5Bk%5D=v%20w&q%5Bm%5D%5Bo%5D=1&q%5Bm%5D%5Bo%5D=2",
            ),
            (
                r#","content":{"application/json":{}}"#,
                r#"{"q":{"a":1}}"#,
                "q=%7B%22a%22%3A1%7D",
            ),
            ("", r#"{"q":9007199254740993}"#, "q=9007199254740993"),
            ("", r#"{"q":"a&b=c#d"}"#, "q=a%26b%3Dc%23d"),
            ("", r#"{"q":[]}"#, ""),
            ("", r#"{"q":null}"#, ""),
        ] {
            let question = if expected.is_empty() { "" } else { "?" };
            assert_eq!(
                line(&q(more), arguments),
                format!("GET /v1/x{question}{expected}"),
                "{more}"
            );
        }
    }

    #[test]
    fn a_value_stays_the_part_of_the_path_that_it_is() {
        let operation = r#""/x/{id}/y":{"get":{"operationId":"x","parameters":[{"name":"id","in":"path","required":true}]}}"#;
        let line = |arguments: &str| request(operation, arguments).map(|(line, ..)| line);
        assert_eq!(
            line(r#"{"id":"a/../b?c"}"#).unwrap(),
            "GET /v1/x/a%2F..%2Fb%3Fc/y"
        );
        assert_eq!(line(r#"{"id":["a","b"]}"#).unwrap(), "GET /v1/x/a,b/y");
        for bad in ["", ".", ".."] {
            assert_eq!(
                line(&format!(r#"{{"id":"{bad}"}}"#)).unwrap_err(),
                "`id` goes into the path, where it cannot be empty, `.` or `..`"
            );
        }
        assert_eq!(
            line("{}").unwrap_err(),
            "`id` is required and was not passed"
        );
    }

    #[test]
    fn a_header_takes_no_line_break() {
        let operation = r#""/x":{"get":{"operationId":"x","parameters":[{"name":"X-Trace","in":"header"},
            {"name":"Accept","in":"header"},{"name":"sid","in":"cookie"}]}}"#;
        assert_eq!(
            request(operation, r#"{"X-Trace":["a",2]}"#).unwrap().1,
            ["X-Trace: a,2"]
        );
        assert_eq!(
            request(operation, r#"{"X-Trace":"a\r\nx: y"}"#).unwrap_err(),
            "`X-Trace` goes into a header field, where only printable ASCII may stand"
        );
    }

    #[test]
    fn credentials_are_added_and_are_no_arguments() {
        let operation = r#""/x":{"get":{"operationId":"x","parameters":[{"name":"key","in":"query","required":true},
            {"name":"X-API-Key","in":"header","required":true},{"name":"q","in":"query"}]}}"#;
        let (line, fields, _) = request_with(
            operation,
            r#"{"q":1}"#,
            &[
                ("document", "/a"),
                ("base_url", "http://api.test"),
                ("auth", "query:key:A,header:x-api-key:B"),
                ("A", "s 1"),
                ("B", "s2"),
            ],
        )
        .unwrap();
        assert_eq!(line, "GET /x?q=1&key=s%201");
        assert_eq!(fields, ["x-api-key: s2"]);
    }

    #[test]
    fn a_body_is_made_of_its_members_as_they_were_written() {
        let operation = r#""/x/{id}":{"put":{"operationId":"x","parameters":[{"name":"id","in":"path"}],"requestBody":{"required":true,
            "content":{"application/json":{"schema":{"type":"object","properties":{"a":{"type":"number"},"b":{}}}}}}}}"#;
        let (line, fields, body) = request(operation, r#"{"b":null,"id":7,"a":1.50}"#).unwrap();
        assert_eq!(line, "PUT /v1/x/7");
        assert_eq!(fields, ["content-type: application/json"]);
        assert_eq!(body.as_deref(), Some(r#"{"a":1.50,"b":null}"#));
        assert_eq!(
            request(operation, r#"{"id":7}"#).unwrap().2.as_deref(),
            Some("{}")
        );
    }

    #[test]
    fn a_body_that_is_one_argument_is_sent_as_it_is() {
        let with = |required: &str, kind: &str, schema: &str| {
            format!(
                r#""/x":{{"post":{{"operationId":"x","requestBody":{{{required}"content":{{"{kind}":{{"schema":{schema}}}}}}}}}}}"#
            )
        };
        let list = with("", "application/vnd.x+json", r#"{"type":"array"}"#);
        let (_, fields, body) = request(&list, r#"{"body":[1, 2]}"#).unwrap();
        assert_eq!(
            (fields, body.as_deref()),
            (
                vec!["content-type: application/vnd.x+json".to_owned()],
                Some("[1, 2]")
            )
        );
        assert_eq!(request(&list, "{}").unwrap().1, [""; 0]);
        let needed = with(
            "\"required\":true,",
            "application/json",
            r#"{"type":"array"}"#,
        );
        assert_eq!(
            request(&needed, "{}").unwrap_err(),
            "`body` is required and was not passed"
        );
        let text = with("", "text/plain", r#"{"type":"string"}"#);
        assert_eq!(
            request(&text, r#"{"body":"a\nb"}"#).unwrap().2.as_deref(),
            Some("a\nb")
        );
        let form = with(
            "",
            "application/x-www-form-urlencoded",
            r#"{"properties":{"a":{},"b":{}}}"#,
        );
        let (_, fields, body) = request(&form, r#"{"a":["x y","z"],"b":{"c":1}}"#).unwrap();
        assert_eq!(fields, ["content-type: application/x-www-form-urlencoded"]);
        assert_eq!(body.as_deref(), Some("a=x%20y&a=z&b=%7B%22c%22%3A1%7D"));
    }

    #[test]
    fn arguments_are_an_object() {
        for bad in ["[]", "1", "{\"a\":}", ""] {
            assert!(Arguments::read(bad).is_err(), "{bad}");
        }
    }
}
