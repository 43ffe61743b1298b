//! From the result of a call to one answer: a document, and what is not text.
//!
//! A result of MCP is a list of blocks and perhaps structured content, which mostly is the same thing twice. The host
//! shapes one document, so this decides which one it is, and copies it with the bytes that it has.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use crate::bindings::plimsoll::plugin::reply::{Attachment, Blob, Embedded};
use crate::json::{self, Likeness};

/// Attachments of one answer that the host takes.
const MOST_ATTACHMENTS: usize = 100;

/// The key under which Plimsoll sends its receipt. Its results are the facts of an answer, and then the answer.
const RECEIPT: &str = "dev.plimsoll/receipt";

/// Servers pad, and some do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What of a receipt tells how many rows there are.
#[derive(Deserialize)]
struct Receipt {
    returned: u64,
    after: Option<u64>,
}

/// The result of `tools/call`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult<'a> {
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow)]
    structured_content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
    result_type: Option<String>,
    #[serde(rename = "_meta", borrow, default)]
    meta: BTreeMap<String, &'a RawValue>,
}

/// A block of content, of whatever kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<Cow<'a, str>>,
    mime_type: Option<String>,
    #[serde(borrow)]
    resource: Option<Resource<'a>>,
    uri: Option<String>,
}

/// What a resource block holds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource<'a> {
    #[serde(default)]
    uri: String,
    mime_type: Option<String>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    blob: Option<Cow<'a, str>>,
}

/// What a call came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Outcome {
    Answer(Answer),
    /// The tool says that it failed, in these words.
    Failed(String),
    /// The server wants something of a caller that is not there.
    Asks(String),
}

/// What is handed over.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Rows from the first of the document on, where the server says that it has more than it sent.
    pub(crate) total: Option<u64>,
    pub(crate) document: Option<Vec<u8>>,
    pub(crate) attachments: Vec<Attachment>,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        // The generated types compare by their text.
        format!("{self:?}") == format!("{other:?}")
    }
}

/// Reads a result. `attachment_bytes` bounds what is not the document, as it is sent.
pub(crate) fn read(result: &str, attachment_bytes: usize) -> Result<Outcome, String> {
    let result: CallResult = serde_json::from_str(result).map_err(|error| error.to_string())?;
    if let Some(kind) = result.result_type.filter(|kind| kind != "complete") {
        return Ok(Outcome::Asks(kind));
    }
    let mut texts = Vec::new();
    let mut others = Vec::new();
    let mut links = Vec::new();
    for raw in &result.content {
        let block: Block = serde_json::from_str(raw.get())
            .map_err(|error| format!("a block of its content: {error}"))?;
        match (&*block.kind, block.text, block.resource) {
            ("text", Some(text), _) => texts.push(text),
            ("image" | "audio", ..) => {
                others.push(Other::media(&block.kind, block.data, block.mime_type))
            }
            ("resource", _, Some(resource)) => others.push(Other::resource(resource)),
            ("resource_link", ..) => {
                links.push(raw.get());
                others.push(Other::json(block.uri.unwrap_or_default(), raw.get()));
            }
            // A kind of a later version: handed on as it is.
            (kind, ..) => others.push(Other::json(format!("mcp:{kind}"), raw.get())),
        }
    }
    if result.is_error {
        return Ok(Outcome::Failed(failure(&texts, result.structured_content)));
    }
    let only_links = texts.is_empty()
        && result.structured_content.is_none()
        && !links.is_empty()
        && links.len() == others.len();
    if only_links {
        let document = Some(array(&links));
        return Ok(Outcome::Answer(Answer {
            total: None,
            document,
            attachments: Vec::new(),
        }));
    }
    let structured = result
        .structured_content
        .filter(|structured| !wraps_content(structured, &result.content));
    let receipt = result.meta.get(RECEIPT);
    // Rows before this page are not counted again: the account is of what follows from here.
    let total = receipt
        .and_then(|receipt| serde_json::from_str::<Receipt>(receipt.get()).ok())
        .and_then(|receipt| Some(receipt.returned + receipt.after?));
    let (mut document, beside) = match structured {
        Some(structured) => of_structured(structured.get(), texts),
        None => of_texts(texts, receipt.is_some()),
    };
    if document.is_none() || beside.is_empty() {
        document = promote(document, &mut others, attachment_bytes);
    }
    let beside = beside
        .into_iter()
        .enumerate()
        .map(|(index, text)| Other::text(index + 1, text));
    let answer = bound(document, beside.chain(others).collect(), attachment_bytes);
    Ok(Outcome::Answer(Answer { total, ..answer }))
}

/// What a tool that failed says.
fn failure(texts: &[Cow<str>], structured: Option<&RawValue>) -> String {
    let text = texts.join("\n");
    match (text.trim().is_empty(), structured) {
        (false, _) => text,
        (true, Some(structured)) => structured.get().to_owned(),
        (true, None) => "the tool failed and does not say why".to_owned(),
    }
}

/// Whether structured content is the blocks once more, in a wrapper, as servers send media. Then the blocks say what they are.
fn wraps_content(structured: &RawValue, content: &[&RawValue]) -> bool {
    let Some(blocks) =
        json::only_member(structured.get()).and_then(|value| json::elements(value.get()))
    else {
        return false;
    };
    let pairs = || blocks.iter().zip(content);
    !content.is_empty()
        && blocks.len() == content.len()
        && pairs().all(|(left, right)| json::compare(left.get(), right.get()) == Likeness::Same)
}

type Found<'a> = (Option<Cow<'a, [u8]>>, Vec<Cow<'a, str>>);

fn bytes(text: Cow<str>) -> Cow<[u8]> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
        Cow::Owned(text) => Cow::Owned(text.into_bytes()),
    }
}

/// Structured content and the texts beside it, which mostly are its copy.
///
/// Where both are one value it is handed over once. The structured copy has no indentation, so it is the one, unless its
/// numbers have other digits than the text: the text travels as a string, which nothing on the way renders anew.
fn of_structured<'a>(structured: &'a str, mut texts: Vec<Cow<'a, str>>) -> Found<'a> {
    let only = json::only_member(structured).map(RawValue::get);
    // A text in a wrapper is a text: its lines are rows, and one string of JSON would be a single piece.
    if let Some(text) = only
        .filter(|value| value.starts_with('"'))
        .and_then(json::string)
        && is_text(&text, &texts)
    {
        return (Some(Cow::Owned(text.into_bytes())), Vec::new());
    }
    if let [text] = &texts[..] {
        match json::compare(structured, text) {
            Likeness::Same => return (Some(Cow::Borrowed(structured.as_bytes())), Vec::new()),
            Likeness::SameButForDigits => return (texts.pop().map(bytes), Vec::new()),
            Likeness::Different => {}
        }
    }
    let values = only
        .filter(|value| value.starts_with('['))
        .unwrap_or(structured);
    let is_copy = match only {
        // The wrapper of the Python SDKs: the texts are the value inside, whole or element by element.
        Some(value)
            if texts.len() == 1 && json::compare(value, &texts[0]) != Likeness::Different =>
        {
            true
        }
        _ => is_elements(values, &texts),
    };
    if is_copy {
        texts.clear();
    }
    (Some(Cow::Borrowed(structured.as_bytes())), texts)
}

/// Whether the texts are this one, in one piece or in lines.
fn is_text(text: &str, texts: &[Cow<str>]) -> bool {
    match texts {
        [] => false,
        [only] => only == text,
        _ => texts.join("\n") == text,
    }
}

/// Whether each text is an element of the array.
fn is_elements(array: &str, texts: &[Cow<str>]) -> bool {
    let Some(elements) = json::elements(array).filter(|elements| elements.len() == texts.len())
    else {
        return false;
    };
    elements.iter().zip(texts).all(|(element, text)| {
        json::compare(element.get(), text) != Likeness::Different
            || json::string(element.get()).is_some_and(|string| string == *text)
    })
}

/// Texts without structured content.
///
/// Objects that begin with the same member are rows, as servers send lists. Otherwise one JSON document among texts is
/// what it is about, and the texts explain it; the largest, where there are several. Texts without JSON are one text.
fn of_texts(mut texts: Vec<Cow<str>>, is_plimsoll: bool) -> Found {
    match texts.len() {
        0 => return (None, texts),
        1 => return (texts.pop().map(bytes), texts),
        2 if is_plimsoll => return (texts.pop().map(bytes), texts),
        _ => {}
    }
    let compound: Vec<usize> = (0..texts.len())
        .filter(|index| json::is_compound(&texts[*index]))
        .collect();
    if compound.len() == texts.len() {
        let first = json::first_member(&texts[0]);
        if first.is_some() && texts.iter().all(|text| json::first_member(text) == first) {
            return (Some(Cow::Owned(array(&texts))), Vec::new());
        }
    }
    match compound
        .into_iter()
        .rev()
        .max_by_key(|index| texts[*index].len())
    {
        Some(index) => {
            let document = texts.remove(index);
            (Some(bytes(document)), texts)
        }
        None => (Some(Cow::Owned(texts.join("\n").into_bytes())), Vec::new()),
    }
}

/// An array of elements, one a line.
fn array(elements: &[impl AsRef<str>]) -> Vec<u8> {
    let elements: Vec<&str> = elements
        .iter()
        .map(|element| element.as_ref().trim())
        .collect();
    format!("[{}]", elements.join(",\n")).into_bytes()
}

/// A single text resource that no attachment can hold becomes the document, which can be paged; and so does one that
/// stands alone. A text beside it then explains it.
fn promote<'a>(
    document: Option<Cow<'a, [u8]>>,
    others: &mut Vec<Other<'a>>,
    attachment_bytes: usize,
) -> Option<Cow<'a, [u8]>> {
    let mut places = others
        .iter()
        .enumerate()
        .filter(|(_, other)| matches!(other.data, Data::Text(_)) && other.is_embedded);
    let (Some((place, other)), None) = (places.next(), places.next()) else {
        return document;
    };
    if document.is_some() && other.sent_bytes() <= attachment_bytes {
        return document;
    }
    let Data::Text(text) = others.remove(place).data else {
        return document;
    };
    if let Some(beside) = document {
        let beside = String::from_utf8_lossy(&beside).into_owned();
        others.insert(0, Other::text(1, Cow::Owned(beside)));
    }
    Some(bytes(text))
}

/// What is not the document.
struct Other<'a> {
    kind: String,
    media_type: String,
    uri: String,
    data: Data<'a>,
    /// Whether it is the content of a resource, and not something around it.
    is_embedded: bool,
}

enum Data<'a> {
    Text(Cow<'a, str>),
    Base64(Cow<'a, str>),
}

impl<'a> Other<'a> {
    fn media(kind: &str, data: Option<Cow<'a, str>>, media_type: Option<String>) -> Self {
        let unknown = if kind == "image" {
            "image/png"
        } else {
            "audio/wav"
        };
        Self {
            kind: kind.to_owned(),
            media_type: media_type.unwrap_or_else(|| unknown.to_owned()),
            uri: String::new(),
            data: Data::Base64(data.unwrap_or_default()),
            is_embedded: false,
        }
    }

    fn resource(resource: Resource<'a>) -> Self {
        let (data, unknown) = match (resource.text, resource.blob) {
            (Some(text), _) => (Data::Text(text), "text/plain"),
            (None, blob) => (
                Data::Base64(blob.unwrap_or_default()),
                "application/octet-stream",
            ),
        };
        Self {
            kind: "resource".to_owned(),
            media_type: resource.mime_type.unwrap_or_else(|| unknown.to_owned()),
            uri: resource.uri,
            data,
            is_embedded: true,
        }
    }

    /// A block that is handed on as it is.
    fn json(uri: String, text: &'a str) -> Self {
        Self {
            kind: "block".to_owned(),
            media_type: "application/json".to_owned(),
            uri,
            data: Data::Text(Cow::Borrowed(text)),
            is_embedded: false,
        }
    }

    /// A text beside the document.
    fn text(index: usize, text: Cow<'a, str>) -> Self {
        let media_type = if json::is_compound(&text) {
            "application/json"
        } else {
            "text/plain"
        };
        Self {
            kind: "text".to_owned(),
            media_type: media_type.to_owned(),
            uri: format!("mcp:text/{index}"),
            data: Data::Text(text),
            is_embedded: false,
        }
    }

    /// As it is sent.
    fn sent_bytes(&self) -> usize {
        match &self.data {
            Data::Text(text) => text.len(),
            Data::Base64(text) => text.len(),
        }
    }

    /// As it is.
    fn real_bytes(&self) -> usize {
        match &self.data {
            Data::Text(text) => text.len(),
            Data::Base64(text) => text.trim_end_matches('=').len() * 3 / 4,
        }
    }

    fn attachment(self) -> Result<Attachment, String> {
        let data = match self.data {
            // What goes out as text has to have a type that says so.
            Data::Text(text) => {
                let is_text =
                    self.media_type.starts_with("text/") || self.media_type == "application/json";
                let media_type = if is_text {
                    self.media_type
                } else {
                    "text/plain".to_owned()
                };
                let data = text.into_owned().into_bytes();
                return Ok(Attachment::Resource(Embedded {
                    uri: self.uri,
                    media_type,
                    data,
                }));
            }
            Data::Base64(text) => BASE64.decode(text.as_bytes()).map_err(|_| {
                format!(
                    "The {} ({}) is left out: its data is not base64.",
                    self.kind, self.media_type
                )
            })?,
        };
        let media_type = self.media_type;
        Ok(match self.kind.as_str() {
            "image" => Attachment::Image(Blob { media_type, data }),
            "audio" => Attachment::Audio(Blob { media_type, data }),
            _ => Attachment::Resource(Embedded {
                uri: self.uri,
                media_type,
                data,
            }),
        })
    }

    fn left_out(&self, attachment_bytes: usize) -> String {
        let place = if self.uri.is_empty() {
            String::new()
        } else {
            format!(" {}", self.uri)
        };
        format!(
            "The {}{place} ({}, {} bytes) is left out: the attachments of one answer may have {attachment_bytes} bytes as \
             they are sent. The operator can raise `attachment_bytes`.",
            self.kind,
            self.media_type,
            self.real_bytes()
        )
    }
}

/// Puts whole attachments beside the document as long as they fit, and a line in the place of each that does not.
fn bound(document: Option<Cow<[u8]>>, others: Vec<Other>, attachment_bytes: usize) -> Answer {
    let mut left = attachment_bytes;
    let mut attachments = Vec::new();
    let mut lines = Vec::new();
    for other in others {
        // The last place is for the lines.
        if attachments.len() + 1 >= MOST_ATTACHMENTS {
            lines.push(format!(
                "The {} ({}, {} bytes) is left out: an answer may have {MOST_ATTACHMENTS} attachments.",
                other.kind,
                other.media_type,
                other.real_bytes()
            ));
        } else if other.sent_bytes() > left {
            lines.push(other.left_out(attachment_bytes));
        } else {
            left -= other.sent_bytes();
            match other.attachment() {
                Ok(attachment) => attachments.push(attachment),
                Err(line) => lines.push(line),
            }
        }
    }
    let mut document = document.map(Cow::into_owned);
    if !lines.is_empty() {
        let lines = lines.join("\n").into_bytes();
        match &mut document {
            None => document = Some(lines),
            Some(_) => attachments.push(Attachment::Resource(Embedded {
                uri: "mcp:left-out".to_owned(),
                media_type: "text/plain".to_owned(),
                data: lines,
            })),
        }
    }
    Answer {
        total: None,
        document,
        attachments,
    }
}

/// The members of `tools/call`.
pub(crate) fn call_params(name: &str, arguments: &str) -> String {
    format!("\"name\":{},\"arguments\":{arguments}", json!(name))
}

#[cfg(test)]
#[path = "content_tests.rs"]
mod tests;
