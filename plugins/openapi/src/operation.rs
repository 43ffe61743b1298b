//! One operation as a tool: its arguments, where each of them goes, and what the host is told of it.

use std::borrow::Cow;

use crate::bindings::exports::plimsoll::plugin::tools::{Annotations, Tool};
use crate::bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use crate::config::{Config, Credential, is_write};
use crate::document::{Document, Found};
use crate::json::{Node, quote};
use crate::schema::{MAX_LEVELS, Object, Writer};

/// Bytes of a tool's schema before what lies deep in it is left out: half of what the host takes, and at some 8,000 tokens
/// more than any model should read of one tool.
const MAX_SCHEMA_BYTES: usize = 32 << 10;

/// Bytes of a description. Clients are known to keep 2,048 characters.
const MAX_DESCRIPTION_BYTES: usize = 2_000;

/// Tags that the contract takes, and the bytes of one.
const MAX_TAGS: usize = 20;
const MAX_TAG_BYTES: usize = 64;

/// Bytes of a title, which is one line.
const MAX_TITLE_BYTES: usize = 120;

/// Parameters of a query that say how many rows are wanted, where they are integers.
const SIZES: [&str; 19] = [
    "_limit",
    "_per_page",
    "_size",
    "count",
    "first",
    "last",
    "limit",
    "max",
    "max_results",
    "maxResults",
    "num",
    "page_size",
    "pageSize",
    "per_page",
    "perPage",
    "rows",
    "size",
    "take",
    "top",
];

/// Parameters of a query that say from where on rows are wanted.
const POSITIONS: [&str; 22] = [
    "_page",
    "_start",
    "after",
    "continuation_token",
    "cursor",
    "ending_before",
    "marker",
    "next_cursor",
    "next_token",
    "nextToken",
    "offset",
    "page",
    "page_number",
    "page_token",
    "pageNumber",
    "pageToken",
    "scroll_id",
    "skip",
    "start",
    "start_cursor",
    "starting_after",
    "startIndex",
];

/// Where a parameter goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// How a list or an object becomes text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Values of their own, `a=1&a=2`, or of one: `a=1,2`.
    Form,
    /// `1,2`.
    Simple,
    /// `a=1%202`.
    Space,
    /// `a=1|2`.
    Pipe,
    /// `a[b]=1`.
    Deep,
    /// JSON, since the document gives the parameter a content instead of a schema.
    Json,
}

/// One parameter, and the argument of the tool that it is.
#[derive(Debug, Clone)]
pub(crate) struct Parameter<'a> {
    /// The name of the argument.
    pub(crate) argument: String,
    /// The name in the request.
    pub(crate) name: Cow<'a, str>,
    pub(crate) place: Place,
    pub(crate) style: Style,
    pub(crate) explode: bool,
    pub(crate) is_required: bool,
    node: Node<'a>,
}

/// What a body is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Json,
    Form,
    Text,
}

/// What becomes of a body.
#[derive(Debug, Clone)]
pub(crate) struct Body<'a> {
    /// As the document writes the type.
    pub(crate) media_type: Cow<'a, str>,
    pub(crate) content: Content,
    pub(crate) is_required: bool,
    /// Its members, where each is an argument; otherwise it is one argument.
    pub(crate) members: Option<Vec<String>>,
    /// The name of that argument.
    pub(crate) argument: &'static str,
    schema: Option<Node<'a>>,
    description: Option<Cow<'a, str>>,
}

/// An operation that can be called.
#[derive(Debug, Clone)]
pub(crate) struct Operation<'a> {
    pub(crate) found: Found<'a>,
    pub(crate) parameters: Vec<Parameter<'a>>,
    pub(crate) body: Option<Body<'a>>,
}

impl<'a> Operation<'a> {
    /// Makes an operation of what the document says. Nothing of it is converted yet: a call has no need of schemas.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be a tool.
    pub(crate) fn read(
        document: &Document<'a>,
        found: Found<'a>,
        config: &Config,
    ) -> Result<Self, String> {
        let mut parameters: Vec<Parameter<'a>> = Vec::new();
        // What an operation says of a parameter holds instead of what its path says.
        for holder in [found.node, found.path_item] {
            for node in holder.get("parameters").into_iter().flat_map(Node::items) {
                let Some(node) = document.resolve(node) else {
                    return Err(format!("its parameter {} leads nowhere", node.text()));
                };
                let Some(parameter) = parameter(document, node, config)? else {
                    continue;
                };
                let is_same = |other: &Parameter<'_>| {
                    other.place == parameter.place && other.name == parameter.name
                };
                if !parameters.iter().any(is_same) {
                    parameters.push(parameter);
                }
            }
        }
        for name in templated(&found.path) {
            if !parameters
                .iter()
                .any(|parameter| parameter.place == Place::Path && parameter.name == name)
            {
                return Err(format!(
                    "its path has a `{{{name}}}` that no parameter describes"
                ));
            }
        }
        // Path parameters first, as people write them.
        parameters.sort_by_key(|parameter| parameter.place as u8);
        let mut taken: Vec<String> = Vec::new();
        for parameter in &mut parameters {
            let plain = argument_name(&parameter.name);
            let place = match parameter.place {
                Place::Path => "path",
                Place::Query => "query",
                Place::Header => "header",
            };
            let mut argument = plain.clone();
            let mut number = 1;
            while taken.contains(&argument) {
                argument = if number == 1 {
                    format!("{plain}_{place}")
                } else {
                    format!("{plain}_{place}_{number}")
                };
                number += 1;
            }
            taken.push(argument.clone());
            parameter.argument = argument;
        }
        let body = body(document, &found, &taken)?;
        Ok(Self {
            found,
            parameters,
            body,
        })
    }

    /// Whether it pages by arguments of its own.
    pub(crate) fn pages_itself(&self, document: &Document<'a>) -> bool {
        self.parameters.iter().any(|parameter| {
            let name = parameter.name.trim_start_matches('$');
            parameter.place == Place::Query
                && (POSITIONS.contains(&name)
                    || (SIZES.contains(&name) && parameter.is_integer(document)))
        })
    }

    /// The tool.
    pub(crate) fn tool(&self, document: &Document<'a>) -> Tool {
        let summary = self.found.node.string_of("summary");
        let summary = summary
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let description = self.found.node.string_of("description");
        let description = description
            .as_deref()
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let what = format!("{} {}", self.found.method, self.found.path);
        let text = match (summary, description) {
            (None, None) => what,
            (Some(text), None) | (None, Some(text)) => text.to_owned(),
            (Some(summary), Some(description)) if description.starts_with(summary) => {
                description.to_owned()
            }
            (Some(summary), Some(description)) => format!("{summary}\n\n{description}"),
        };
        let is_write = is_write(self.found.method);
        let mut applies = PushDown::empty();
        if self.pages_itself(document) {
            applies |= PushDown::PAGING;
        }
        Tool {
            name: self.found.name.clone(),
            title: summary
                .filter(|text| text.len() <= MAX_TITLE_BYTES)
                .map(str::to_owned),
            description: shortened(&text),
            input_schema: self.input_schema(document),
            output_schema: None,
            shape: Shape {
                // A page of a write's answer would have to be asked for by writing again.
                rows: if is_write {
                    RowSource::Whole
                } else {
                    RowSource::Automatic
                },
                key: None,
                horizon: None,
                views: Vec::new(),
                default_view: None,
                columns: Vec::new(),
                filters: Vec::new(),
                page: None,
                cap_bytes: None,
                applies,
            },
            annotations: match self.found.method {
                "GET" | "HEAD" => Annotations::READ_ONLY | Annotations::IDEMPOTENT,
                "PUT" | "DELETE" => Annotations::DESTRUCTIVE | Annotations::IDEMPOTENT,
                "PATCH" => Annotations::DESTRUCTIVE,
                _ => Annotations::empty(),
            },
            tags: self.tags(),
            examples: Vec::new(),
        }
    }

    /// Its tags, as far as the contract takes them.
    fn tags(&self) -> Vec<String> {
        let is_taken = |tag: &Cow<'_, str>| {
            (1..=MAX_TAG_BYTES).contains(&tag.len()) && !tag.contains(char::is_control)
        };
        let tags = self.found.node.strings_of("tags").into_iter();
        tags.filter(is_taken)
            .map(Cow::into_owned)
            .take(MAX_TAGS)
            .collect()
    }

    /// The schema of its arguments: as deep as [`MAX_SCHEMA_BYTES`] lets it be.
    pub(crate) fn input_schema(&self, document: &Document<'a>) -> String {
        let mut levels = MAX_LEVELS;
        loop {
            let text = self.schema_of(document, levels);
            if text.len() <= MAX_SCHEMA_BYTES || levels <= 1 {
                return text;
            }
            levels -= 1;
        }
    }

    fn schema_of(&self, document: &Document<'a>, levels: usize) -> String {
        let mut writer = Writer::new(document, levels);
        let mut required: Vec<String> = Vec::new();
        let mut out = String::new();
        let mut root = Object::new(&mut out);
        root.key("type").push_str("\"object\"");
        let mut properties = Object::new(root.key("properties"));
        for parameter in &self.parameters {
            if parameter.is_required {
                required.push(parameter.argument.clone());
            }
            let description = parameter.node.string_of("description");
            writer.argument(
                parameter.schema(document),
                description.as_deref(),
                properties.key(&parameter.argument),
            );
        }
        if let Some(body) = &self.body {
            body.write(document, &mut writer, &mut properties, &mut required);
        }
        properties.end();
        if !required.is_empty() {
            let list = root.key("required");
            list.push('[');
            for (index, name) in required.iter().enumerate() {
                if index > 0 {
                    list.push(',');
                }
                quote(name, list);
            }
            list.push(']');
        }
        root.end();
        out
    }
}

impl<'a> Parameter<'a> {
    /// Its schema, or that of its content; one that takes anything where it has none.
    fn schema(&self, _: &Document<'a>) -> Node<'a> {
        let of_content = || {
            let (_, media) = self.node.get("content")?.members().next()?;
            media.get("schema")
        };
        let anything = || Node::of("{}");
        self.node
            .get("schema")
            .or_else(of_content)
            .or_else(anything)
            .unwrap_or(self.node)
    }

    fn is_integer(&self, document: &Document<'a>) -> bool {
        let is_integer = |schema: Node<'a>| {
            let schema = document.resolve(schema)?;
            let kind = schema.get("type")?;
            let mut kinds = kind
                .string()
                .into_iter()
                .chain(kind.items().filter_map(Node::string));
            kinds
                .any(|kind| kind == "integer" || kind == "number")
                .then_some(())
        };
        let schema = self.schema(document);
        let choices = schema.get("anyOf").into_iter().flat_map(Node::items);
        std::iter::once(schema)
            .chain(choices)
            .any(|schema| is_integer(schema).is_some())
    }
}

impl<'a> Body<'a> {
    fn write(
        &self,
        document: &Document<'a>,
        writer: &mut Writer<'_, 'a>,
        properties: &mut Object<'_>,
        required: &mut Vec<String>,
    ) {
        let schema = self.schema.and_then(|schema| document.resolve(schema));
        match (&self.members, schema) {
            (Some(members), Some(schema)) => {
                for (name, property) in schema.get("properties").into_iter().flat_map(Node::members)
                {
                    if members.iter().any(|member| *member == name) {
                        writer.property(property, None, properties.key(&name));
                    }
                }
                if self.is_required {
                    let names = schema
                        .strings_of("required")
                        .into_iter()
                        .map(Cow::into_owned);
                    let names = names.filter(|name| members.contains(name));
                    for name in names {
                        if !required.contains(&name) {
                            required.push(name);
                        }
                    }
                }
            }
            _ => {
                if self.is_required {
                    required.push(self.argument.to_owned());
                }
                let description = self.description.as_deref();
                let out = properties.key(self.argument);
                match self.schema {
                    Some(schema) if self.content != Content::Text => {
                        writer.property(schema, description, out)
                    }
                    _ => {
                        let mut object = Object::new(out);
                        if self.content == Content::Text {
                            object.key("type").push_str("\"string\"");
                        }
                        if let Some(description) = description {
                            quote(description, object.key("description"));
                        }
                        object.end();
                    }
                }
            }
        }
    }
}

/// One parameter; none where it is no argument of a tool: a cookie, a field that HTTP or `auth` fills.
fn parameter<'a>(
    document: &Document<'a>,
    node: Node<'a>,
    config: &Config,
) -> Result<Option<Parameter<'a>>, String> {
    let name = node.string_of("name").unwrap_or_default();
    let place = match node.string_of("in").as_deref() {
        Some("path") => Place::Path,
        Some("query") => Place::Query,
        Some("header") => Place::Header,
        Some("cookie") => return Ok(None),
        other => {
            return Err(format!(
                "its parameter `{name}` is in {}; expected path, query, header or cookie",
                other.unwrap_or("nothing")
            ));
        }
    };
    let is_filled = match place {
        Place::Header => {
            // OpenAPI has these three ignored.
            ["accept", "content-type", "authorization"].iter().any(|field| name.eq_ignore_ascii_case(field))
                || config.credentials.iter().any(|credential| {
                    matches!(credential, Credential::Header { name: field, .. } if name.eq_ignore_ascii_case(field))
                })
        }
        Place::Query => config.credentials.iter().any(
            |credential| matches!(credential, Credential::Query { name: filled, .. } if *filled == name),
        ),
        Place::Path => false,
    };
    if is_filled {
        return Ok(None);
    }
    let style = match (place, node.string_of("style").as_deref()) {
        _ if node.get("content").is_some() => Style::Json,
        (Place::Query, None | Some("form")) => Style::Form,
        (Place::Query, Some("spaceDelimited")) => Style::Space,
        (Place::Query, Some("pipeDelimited")) => Style::Pipe,
        (Place::Query, Some("deepObject")) => Style::Deep,
        (Place::Path | Place::Header, None | Some("simple")) => Style::Simple,
        (_, Some(other)) => {
            return Err(format!(
                "its parameter `{name}` has the style `{other}`, which this plugin does not write"
            ));
        }
    };
    let explode = match node.get("explode") {
        Some(explode) => explode.is_true(),
        None => style == Style::Form,
    };
    let _ = document;
    Ok(Some(Parameter {
        argument: String::new(),
        name,
        place,
        style,
        explode,
        is_required: place == Place::Path || node.get("required").is_some_and(Node::is_true),
        node,
    }))
}

/// The body of an operation, if it takes one.
fn body<'a>(
    document: &Document<'a>,
    found: &Found<'a>,
    taken: &[String],
) -> Result<Option<Body<'a>>, String> {
    let Some(node) = found.node.get("requestBody") else {
        return Ok(None);
    };
    let Some(node) = document.resolve(node) else {
        return Err(String::from("its body leads nowhere"));
    };
    let is_required = node.get("required").is_some_and(Node::is_true);
    let offered: Vec<(Cow<'a, str>, Node<'a>)> = node
        .get("content")
        .into_iter()
        .flat_map(Node::members)
        .collect();
    let chosen = [Content::Json, Content::Form, Content::Text]
        .into_iter()
        .find_map(|content| {
            let (media_type, media) = offered
                .iter()
                .find(|(kind, _)| content_of(kind) == Some(content))?;
            Some((content, media_type.clone(), *media))
        });
    let Some((content, media_type, media)) = chosen else {
        if !is_required {
            return Ok(None);
        }
        let kinds: Vec<&str> = offered.iter().map(|(kind, _)| kind.as_ref()).collect();
        return Err(format!(
            "its body is {}; expected JSON, a form or text",
            if kinds.is_empty() {
                String::from("of no type")
            } else {
                kinds.join(" or ")
            }
        ));
    };
    let schema = media.get("schema");
    let members = schema
        .filter(|_| content != Content::Text)
        .and_then(|schema| document.resolve(schema))
        .and_then(|schema| merged(document, schema, taken));
    Ok(Some(Body {
        // Any JSON is sent as plain JSON.
        media_type: if media_type.contains('*') {
            Cow::Borrowed("application/json")
        } else {
            media_type
        },
        content,
        is_required,
        members,
        argument: if taken.iter().any(|name| name == "body") {
            "request_body"
        } else {
            "body"
        },
        schema,
        description: node.string_of("description"),
    }))
}

fn content_of(media_type: &str) -> Option<Content> {
    let essence = media_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match essence.as_str() {
        "application/json" | "*/*" | "application/*" => Some(Content::Json),
        "application/x-www-form-urlencoded" => Some(Content::Form),
        json if json.ends_with("+json") => Some(Content::Json),
        text if text.starts_with("text/") => Some(Content::Text),
        _ => None,
    }
}

/// The members of a body that can be arguments of their own: it is an object with members that are known, nothing else may
/// be in it, and no other argument has one of their names.
fn merged<'a>(document: &Document<'a>, schema: Node<'a>, taken: &[String]) -> Option<Vec<String>> {
    let kind = schema.string_of("type");
    let is_object = kind.as_deref().is_none_or(|kind| kind == "object");
    let is_choice = ["allOf", "anyOf", "oneOf", "not", "if"]
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    let is_open = schema
        .get("additionalProperties")
        .is_some_and(|more| more.text() != "false");
    if !is_object || is_choice || is_open {
        return None;
    }
    let members = schema.get("properties")?.members().filter(|(_, property)| {
        let property = document.resolve(*property).unwrap_or(*property);
        !property.get("readOnly").is_some_and(Node::is_true)
    });
    let members: Vec<String> = members.map(|(name, _)| name.into_owned()).collect();
    let is_free = |name: &String| argument_name(name) == *name && !taken.contains(name);
    (!members.is_empty() && members.iter().all(is_free)).then_some(members)
}

/// The name of an argument: letters, digits, `_`, `-` and `.`, as clients take them.
fn argument_name(name: &str) -> String {
    let mut argument = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' || c == '.' {
            argument.push(c);
        } else if !argument.is_empty() && !argument.ends_with('_') {
            argument.push('_');
        }
    }
    let argument = if name.ends_with('_') {
        argument
    } else {
        argument.trim_end_matches('_').to_owned()
    };
    let argument = argument[..argument.len().min(64)].to_owned();
    if argument.is_empty() {
        String::from("argument")
    } else {
        argument
    }
}

/// The names in the braces of a path.
pub(crate) fn templated(path: &str) -> impl Iterator<Item = &str> {
    path.split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}').map(|(name, _)| name))
}

/// A description that is not longer than clients keep; one that is says so.
fn shortened(text: &str) -> String {
    const REST: &str = " … (the rest is in the API's document)";
    if text.len() <= MAX_DESCRIPTION_BYTES {
        return text.to_owned();
    }
    let mut end = MAX_DESCRIPTION_BYTES - REST.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // At the end of a word.
    let kept = text[..end]
        .trim_end_matches(|c: char| !c.is_whitespace())
        .trim_end();
    format!("{kept}{REST}")
}

#[cfg(test)]
pub(crate) mod tests;
