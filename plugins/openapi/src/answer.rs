//! What a backend answered, as what the plugin hands over: its bytes as they came, or a fault that says what was wrong.

use crate::bindings::plimsoll::plugin::reply::{Attachment, Blob, Embedded};
use crate::bindings::plimsoll::plugin::types::Fault;
use crate::json::quote;
use crate::operation::{Operation, Place};
use crate::url::decode;

/// Bytes of a backend's error text that are shown. The host shows 2,000 bytes of a fault; what stands before the text and the
/// note behind it take the rest.
const EXCERPT_BYTES: usize = 1_700;

/// What came back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// `content-type`.
    pub(crate) content_type: Option<String>,
    /// `link`, all of them.
    pub(crate) links: Vec<String>,
    /// `location`.
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// What is handed over.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) document: Option<Vec<u8>>,
    pub(crate) attachments: Vec<Attachment>,
}

/// The answer that a response is.
///
/// # Errors
///
/// The fault that its status stands for, with an excerpt of its body in which none of `secrets` is.
pub(crate) fn of(
    operation: &Operation<'_>,
    url: &str,
    response: Response,
    secrets: &[&str],
) -> Result<Answer, Fault> {
    let status = response.status;
    if !(200..300).contains(&status) {
        return Err(fault(operation, &response, secrets));
    }
    let mut answer = Answer {
        document: None,
        attachments: Vec::new(),
    };
    if let Some(next) = next_page(operation, &response.links) {
        answer.attachments.push(next);
    }
    if response.body.is_empty() {
        // An answer without a body says no more than this.
        answer.document = Some(format!("{{\"status\":{status}}}").into_bytes());
        return Ok(answer);
    }
    let media_type = response.content_type.as_deref().unwrap_or_default();
    let essence = media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    if is_text(&essence) || essence.is_empty() {
        match std::str::from_utf8(&response.body) {
            Ok(_) => {
                answer.document = Some(response.body);
                return Ok(answer);
            }
            Err(_) if !essence.is_empty() => {
                return Err(Fault::Internal(format!(
                    "{}: the answer is {} bytes of `{media_type}` that are not UTF-8, and cannot be passed on as text",
                    named(operation),
                    response.body.len()
                )));
            }
            Err(_) => {}
        }
    }
    let blob = |data| Blob {
        media_type: essence.clone(),
        data,
    };
    answer.attachments.push(match essence.split('/').next() {
        Some("image") => Attachment::Image(blob(response.body)),
        Some("audio") => Attachment::Audio(blob(response.body)),
        _ => Attachment::Resource(Embedded {
            uri: url.to_owned(),
            media_type: if essence.is_empty() {
                String::from("application/octet-stream")
            } else {
                essence
            },
            data: response.body,
        }),
    });
    Ok(answer)
}

/// Whether a media type is of text.
fn is_text(essence: &str) -> bool {
    const TEXTS: [&str; 8] = [
        "application/json",
        "application/jsonl",
        "application/x-ndjson",
        "application/xml",
        "application/yaml",
        "application/javascript",
        "application/graphql",
        "application/x-www-form-urlencoded",
    ];
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || essence.ends_with("+yaml")
        || TEXTS.contains(&essence)
}

fn named(operation: &Operation<'_>) -> String {
    format!("{} {}", operation.found.method, operation.found.path)
}

/// The fault that a status stands for.
fn fault(operation: &Operation<'_>, response: &Response, secrets: &[&str]) -> Fault {
    let (status, named) = (response.status, named(operation));
    let place = response
        .location
        .as_deref()
        .filter(|_| (300..400).contains(&status))
        .map(|location| {
            format!(" It points to `{location}`, and this plugin follows no redirects: set `base_url` to where the API is.")
        });
    let place = place.unwrap_or_default();
    let body = excerpt(&response.body);
    let said = if body.is_empty() {
        String::from("and said nothing.")
    } else {
        format!("and said: {body}")
    };
    let mut message = format!("{named}: the backend answered with status {status} {said}{place}");
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        message = message.replace(secret, "[secret]");
    }
    match status {
        404 | 410 => Fault::NotFound(message),
        // These ask for patience.
        408 | 425 | 429 | 500.. => Fault::Unavailable(message),
        // The credentials are the operator's, and no call changes them.
        401 | 403 | 407 => Fault::Internal(format!(
            "{message} The operator has to mend what `auth` says, or its secret."
        )),
        400..500 => Fault::InvalidInput(message),
        _ => Fault::Internal(message),
    }
}

/// The beginning of a text, with its length where there is more.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.len() <= EXCERPT_BYTES {
        return text.to_owned();
    }
    let mut end = EXCERPT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} … ({} bytes in all)", &text[..end], body.len())
}

/// What a request failed with before there was an answer.
pub(crate) fn failed(operation: &Operation<'_>, error: &str) -> Fault {
    let named = named(operation);
    match error {
        "HttpRequestDenied" => Fault::Internal(format!(
            "{named}: the host does not let this plugin reach the API; the operator has to name it in `hosts` or \
             `private_hosts`"
        )),
        "DestinationIpProhibited" => Fault::Internal(format!(
            "{named}: the API has a private address; the operator has to name it in `private_hosts`"
        )),
        _ if error.starts_with("HttpResponseBodySize") => Fault::InvalidInput(format!(
            "{named}: the backend's answer is larger than what a plugin may take in ({error}); ask for less"
        )),
        _ => Fault::Unavailable(format!("{named}: the backend did not answer: {error}")),
    }
}

/// The next page that a `Link` header names, as the arguments that ask for it.
fn next_page(operation: &Operation<'_>, links: &[String]) -> Option<Attachment> {
    let url = links.iter().find_map(|links| next_link(links))?;
    let (_, query) = url.split_once('?')?;
    let mut text = String::from("{\"next\":{");
    let mut count = 0;
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decode(name), decode(value));
        let parameter = operation
            .parameters
            .iter()
            .find(|parameter| parameter.place == Place::Query && parameter.name == name);
        // What is no argument cannot be asked for.
        let Some(parameter) = parameter else { continue };
        if count > 0 {
            text.push(',');
        }
        count += 1;
        quote(&parameter.argument, &mut text);
        text.push(':');
        let is_integer = !value.is_empty()
            && value.len() < 16
            && value.bytes().all(|byte| byte.is_ascii_digit());
        if is_integer {
            text.push_str(
                value
                    .trim_start_matches('0')
                    .get(..)
                    .filter(|digits| !digits.is_empty())
                    .unwrap_or("0"),
            );
        } else {
            quote(&value, &mut text);
        }
    }
    text.push_str("}}");
    (count > 0).then(|| {
        Attachment::Resource(Embedded {
            uri: String::from("plimsoll:next"),
            media_type: String::from("application/json"),
            data: text.into_bytes(),
        })
    })
}

/// The URL with `rel="next"` of a `Link` header (RFC 8288).
fn next_link(links: &str) -> Option<String> {
    links.split('<').skip(1).find_map(|link| {
        let (url, parameters) = link.split_once('>')?;
        let is_next = parameters.split([';', ',']).any(|parameter| {
            let Some((name, value)) = parameter.split_once('=') else {
                return false;
            };
            name.trim().eq_ignore_ascii_case("rel")
                && value
                    .trim()
                    .trim_matches('"')
                    .split(' ')
                    .any(|rel| rel.eq_ignore_ascii_case("next"))
        });
        is_next.then(|| url.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::of as config;
    use crate::operation::tests::{document, with_operation};

    fn answer(response: Response) -> Result<Answer, Fault> {
        let text = document(
            r#""/x":{"get":{"operationId":"x","parameters":[{"name":"page","in":"query"},{"name":"cursor[]","in":"query"}]}}"#,
        );
        let config = config(&[("document", "/a")]).unwrap();
        with_operation(&text, &config, |_, operation| {
            of(operation, "http://api.test/x", response, &["hunter2"])
        })
    }

    fn response(status: u16, content_type: &str, body: &[u8]) -> Response {
        Response {
            status,
            content_type: Some(content_type.to_owned()),
            body: body.to_vec(),
            ..Response::default()
        }
    }

    #[test]
    fn text_is_handed_over_byte_for_byte() {
        for kind in [
            "application/json",
            "application/problem+json; charset=utf-8",
            "text/csv",
            "application/x-ndjson",
            "",
            "Application/JSON",
        ] {
            let body = b"{ \"a\": 1.50,\n\"b\": 9007199254740993 }\n";
            let answer = answer(response(200, kind, body)).unwrap();
            assert_eq!(answer.document.as_deref(), Some(&body[..]), "{kind}");
            assert!(answer.attachments.is_empty());
        }
        let empty = answer(response(204, "", b"")).unwrap();
        assert_eq!(empty.document.as_deref(), Some(&b"{\"status\":204}"[..]));
    }

    #[test]
    fn what_is_no_text_is_attached_as_what_it_is() {
        let attached = |kind: &str, body: &[u8]| {
            let mut answer = answer(response(200, kind, body)).unwrap();
            assert_eq!(answer.document, None);
            answer.attachments.remove(0)
        };
        assert!(
            matches!(attached("image/png", b"\x89PNG"), Attachment::Image(Blob { media_type, data }) if media_type == "image/png" && data == b"\x89PNG")
        );
        assert!(matches!(attached("audio/ogg", b"x"), Attachment::Audio(_)));
        let Attachment::Resource(pdf) = attached("application/pdf", b"%PDF") else {
            panic!()
        };
        assert_eq!(
            (pdf.uri.as_str(), pdf.media_type.as_str()),
            ("http://api.test/x", "application/pdf")
        );
        let Attachment::Resource(unknown) = attached("", b"\xff\xfe") else {
            panic!()
        };
        assert_eq!(unknown.media_type, "application/octet-stream");
        let error = answer(response(200, "text/plain; charset=latin1", b"\xe9")).unwrap_err();
        assert!(matches!(error, Fault::Internal(message) if message ==
            "GET /x: the answer is 1 bytes of `text/plain; charset=latin1` that are not UTF-8, and cannot be passed on as text"));
    }

    #[test]
    fn every_status_is_a_fault_of_its_kind() {
        let kind = |status: u16| match answer(response(status, "text/plain", b"why")).unwrap_err() {
            Fault::InvalidInput(message) => ("invalid-input", message),
            Fault::NotFound(message) => ("not-found", message),
            Fault::Unavailable(message) => ("unavailable", message),
            Fault::Internal(message) => ("internal", message),
        };
        for (status, expected) in [
            (400, "invalid-input"),
            (409, "invalid-input"),
            (415, "invalid-input"),
            (422, "invalid-input"),
            (404, "not-found"),
            (410, "not-found"),
            (408, "unavailable"),
            (429, "unavailable"),
            (500, "unavailable"),
            (502, "unavailable"),
            (503, "unavailable"),
            (401, "internal"),
            (403, "internal"),
            (304, "internal"),
        ] {
            let (found, message) = kind(status);
            assert_eq!(found, expected, "{status}");
            assert!(
                message.starts_with(&format!(
                    "GET /x: the backend answered with status {status} and said: why"
                )),
                "{message}"
            );
        }
        assert!(
            kind(401)
                .1
                .ends_with("The operator has to mend what `auth` says, or its secret.")
        );
        let moved = Response {
            location: Some("/y".into()),
            ..response(307, "", b"")
        };
        assert!(
            matches!(answer(moved).unwrap_err(), Fault::Internal(message) if message ==
            "GET /x: the backend answered with status 307 and said nothing. It points to `/y`, and this plugin follows no redirects: set `base_url` to where the API is.")
        );
    }

    #[test]
    fn an_error_text_is_bounded_and_has_no_secret_in_it() {
        let body = format!("key hunter2 is wrong {}", "é".repeat(5_000));
        let Fault::InvalidInput(message) = answer(response(400, "", body.as_bytes())).unwrap_err()
        else {
            panic!()
        };
        assert!(
            message.len() <= 2_000 && message.ends_with("é … (10021 bytes in all)"),
            "{message}"
        );
        assert!(
            message.contains("key [secret] is wrong") && !message.contains("hunter2"),
            "{message}"
        );
    }

    #[test]
    fn a_request_that_fails_says_whose_it_is_to_mend() {
        let text = document(r#""/x":{"get":{"operationId":"x"}}"#);
        let config = config(&[("document", "/a")]).unwrap();
        with_operation(&text, &config, |_, operation| {
            assert!(
                matches!(failed(operation, "HttpRequestDenied"), Fault::Internal(text) if text.contains("`hosts` or `private_hosts`"))
            );
            assert!(
                matches!(failed(operation, "DestinationIpProhibited"), Fault::Internal(text) if text.contains("name it in `private_hosts`"))
            );
            assert!(
                matches!(failed(operation, "HttpResponseBodySize(Some(9))"), Fault::InvalidInput(text) if text.ends_with("ask for less"))
            );
            assert!(
                matches!(failed(operation, "ConnectionRefused"), Fault::Unavailable(text) if text == "GET /x: the backend did not answer: ConnectionRefused")
            );
        });
    }

    #[test]
    fn the_next_page_of_a_link_header_is_the_arguments_of_a_call() {
        let next = |link: &str| {
            let response = Response {
                links: vec![link.to_owned()],
                ..response(200, "application/json", b"[]")
            };
            let mut attachments = answer(response).unwrap().attachments;
            match attachments.pop() {
                Some(Attachment::Resource(next)) => String::from_utf8(next.data).unwrap(),
                None => String::new(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            next(
                r#"<http://a/x?page=1&k=2>; rel="prev", <http://a/x?page=3&cursor%5B%5D=a%20b&k=2>; rel="next""#
            ),
            r#"{"next":{"page":3,"cursor":"a b"}}"#
        );
        assert_eq!(
            next("</x?page=007>; title=x; rel=next"),
            r#"{"next":{"page":7}}"#
        );
        assert_eq!(next(r#"<http://a/x?page=1>; rel="last""#), "");
        assert_eq!(next(r#"<http://a/x?k=1>; rel="next""#), "");
        assert_eq!(next("nonsense"), "");
    }
}
