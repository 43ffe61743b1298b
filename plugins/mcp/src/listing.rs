//! The server's listing, in the words of the contract.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bindings::exports::plimsoll::plugin::tools::{Annotations, Tool};
use crate::bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use crate::names::{Filter, Names};
use crate::schema;

/// Bytes of a description that the host takes.
const DESCRIPTION_BYTES: usize = 1 << 14;
/// Bytes of a title that the host takes.
const TITLE_BYTES: usize = 200;
/// What stands at the end of a description that is longer than the host takes.
const CUT: &str = "\n(The description goes on, and is too long to be listed.)";

/// Names of arguments by which tools page themselves, beside `limit` and `after`, which the host knows.
const PAGING: [&str; 14] = [
    "cursor",
    "next_cursor",
    "nextCursor",
    "offset",
    "page",
    "pageNumber",
    "page_number",
    "pageSize",
    "page_size",
    "pageToken",
    "page_token",
    "perPage",
    "per_page",
    "skip",
];

/// One page of `tools/list`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page<'a> {
    #[serde(borrow)]
    pub(crate) tools: Vec<&'a RawValue>,
    pub(crate) next_cursor: Option<String>,
}

/// A tool as MCP lists it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry<'a> {
    name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    input_schema: &'a RawValue,
    #[serde(borrow)]
    output_schema: Option<&'a RawValue>,
    #[serde(default)]
    annotations: Hints,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Hints {
    title: Option<String>,
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

/// What of a listing is published, and what the operator should know of the rest.
#[derive(Default)]
pub(crate) struct Listing {
    pub(crate) tools: Vec<Tool>,
    /// Names of the server, listed or not.
    pub(crate) names: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Listing {
    /// Takes the tools of one page.
    pub(crate) fn add(&mut self, tools: &[&RawValue], filter: &Filter, names: &Names) {
        for tool in tools {
            let entry: Entry = match serde_json::from_str(tool.get()) {
                Ok(entry) => entry,
                Err(error) => {
                    self.warnings.push(format!(
                        "a tool is left out, since it is none of MCP: {error}"
                    ));
                    continue;
                }
            };
            self.names.push(entry.name.clone());
            if !filter.admits(&entry.name) {
                continue;
            }
            let name = entry.name.clone();
            match publish(entry, names, &mut self.warnings) {
                Ok(tool) => self.tools.push(tool),
                // One tool that cannot be listed must not take the others away.
                Err(reason) => self
                    .warnings
                    .push(format!("the tool `{name}` is left out: {reason}")),
            }
        }
    }
}

fn publish(entry: Entry, names: &Names, warnings: &mut Vec<String>) -> Result<Tool, String> {
    let name = names.publish(&entry.name)?;
    let input = schema::input(entry.input_schema)?;
    let output_schema = entry.output_schema.and_then(|text| {
        schema::output(text).unwrap_or_else(|reason| {
            warnings.push(format!(
                "the output schema of `{}` is left out: {reason}",
                entry.name
            ));
            None
        })
    });
    let mut description = entry.description.unwrap_or_default();
    if description.len() > DESCRIPTION_BYTES {
        warnings.push(format!(
            "the description of `{}` is shortened: it has {} bytes, and the host takes {DESCRIPTION_BYTES}",
            entry.name,
            description.len()
        ));
        let end = description.floor_char_boundary(DESCRIPTION_BYTES - CUT.len());
        description.truncate(end);
        description.push_str(CUT);
    }
    let hints = entry.annotations;
    let title = entry
        .title
        .or(hints.title)
        .filter(|title| title.len() <= TITLE_BYTES);
    let is_read_only = hints.read_only_hint.unwrap_or(false);
    let mut annotations = Annotations::empty();
    // What the absence of a hint means is what MCP says it means.
    annotations.set(Annotations::READ_ONLY, is_read_only);
    annotations.set(
        Annotations::DESTRUCTIVE,
        hints.destructive_hint.unwrap_or(!is_read_only),
    );
    annotations.set(
        Annotations::IDEMPOTENT,
        hints.idempotent_hint.unwrap_or(false),
    );
    annotations.set(
        Annotations::OPEN_WORLD,
        hints.open_world_hint.unwrap_or(true),
    );
    Ok(Tool {
        name,
        title,
        description,
        shape: Shape {
            rows: rows(&input.properties),
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
        input_schema: input.text,
        output_schema,
        annotations,
        tags: Vec::new(),
        examples: Vec::new(),
    })
}

/// A tool that pages itself is not paged by the host on top. Where it does that by `limit`, the host sees it; by any other
/// name, its answer is one piece.
fn rows(properties: &[String]) -> RowSource {
    let has = |name: &str| properties.iter().any(|other| other == name);
    match !has("limit") && PAGING.into_iter().any(has) {
        true => RowSource::Whole,
        false => RowSource::Automatic,
    }
}

/// The header fields that the tool of that name wants arguments repeated in, as far as they are given.
pub(crate) fn argument_headers(tool: &RawValue, arguments: &str) -> Vec<(String, String)> {
    let schema = serde_json::from_str::<Entry>(tool.get())
        .ok()
        .and_then(|entry| serde_json::from_str::<Value>(entry.input_schema.get()).ok());
    let arguments = serde_json::from_str::<Value>(arguments).unwrap_or_default();
    let properties = schema
        .as_ref()
        .and_then(|schema| schema["properties"].as_object());
    let mut found = Vec::new();
    for (name, schema) in properties.into_iter().flatten() {
        let Some(header) = schema["x-mcp-header"].as_str() else {
            continue;
        };
        let text = match &arguments[name] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            _ => continue,
        };
        found.push((
            format!("mcp-param-{}", header.to_ascii_lowercase()),
            crate::client::header_value(&text),
        ));
    }
    found
}

/// Whether the entry is the tool of that name.
pub(crate) fn is_named(tool: &RawValue, name: &str) -> bool {
    serde_json::from_str::<Entry>(tool.get()).is_ok_and(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tools: &str) -> Listing {
        let page: Vec<&RawValue> = serde_json::from_str(tools).unwrap();
        let mut listing = Listing::default();
        listing.add(
            &page,
            &Filter::new("!hidden"),
            &Names::new("up_", "").unwrap(),
        );
        listing
    }

    #[test]
    fn a_tool_keeps_what_its_server_says_of_it() {
        let listing = listed(
            r#"[{"name":"files.read","title":"Read","description":"Reads.","inputSchema":{"type":"object","properties":
            {"z":{"type":"string"},"a":{"type":"number"}}},"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}},
            "annotations":{"title":"Other","readOnlyHint":true,"openWorldHint":false}},
            {"name":"hidden","inputSchema":{"type":"object"}},
            {"name":"drop","inputSchema":{"type":"object"},"annotations":{"title":"Drop"}}]"#,
        );
        assert_eq!(listing.names, ["files.read", "hidden", "drop"]);
        assert!(listing.warnings.is_empty());
        let [read, drop] = &listing.tools[..] else {
            panic!("expected two")
        };
        assert_eq!(
            (
                read.name.as_str(),
                read.title.as_deref(),
                read.description.as_str()
            ),
            ("up_files--read", Some("Read"), "Reads.")
        );
        let schema: Value = serde_json::from_str(&read.input_schema).unwrap();
        assert_eq!(schema["properties"]["a"]["type"], "number");
        assert!(
            read.input_schema.find("\"z\"") < read.input_schema.find("\"a\""),
            "the order is the author's"
        );
        assert_eq!(
            read.output_schema.as_deref(),
            Some(r#"{"type":"object","properties":{"n":{"type":"number"}}}"#)
        );
        assert_eq!(read.annotations, Annotations::READ_ONLY);
        assert_eq!(
            (drop.title.as_deref(), drop.output_schema.as_deref()),
            (Some("Drop"), None)
        );
        assert_eq!(
            drop.annotations,
            Annotations::DESTRUCTIVE | Annotations::OPEN_WORLD,
            "what MCP says of a tool without hints"
        );
    }

    #[test]
    fn a_tool_that_cannot_be_listed_is_left_out_with_a_reason() {
        let long = format!(
            r#"[{{"name":"a/b","inputSchema":{{"type":"object"}}}},{{"description":"nameless"}},
            {{"name":"long","title":"{}","description":"{}","inputSchema":{{"type":"object"}},"outputSchema":[]}}]"#,
            "t".repeat(201),
            "é".repeat(9_000)
        );
        let listing = listed(&long);
        assert_eq!(listing.tools.len(), 1);
        let tool = &listing.tools[0];
        assert!(
            tool.description.len() <= 16_384
                && tool.description.ends_with("too long to be listed.)")
        );
        assert_eq!(
            (tool.title.as_deref(), tool.output_schema.as_deref()),
            (None, None)
        );
        assert!(
            listing.warnings[0].starts_with("the tool `a/b` is left out: `up_a/b` is not a name"),
            "{:?}",
            listing.warnings
        );
        assert!(
            listing.warnings[1]
                .starts_with("a tool is left out, since it is none of MCP: missing field"),
            "{:?}",
            listing.warnings
        );
        assert_eq!(
            listing.warnings[2..],
            [
                "the output schema of `long` is left out: expected a JSON object",
                "the description of `long` is shortened: it has 18000 bytes, and the host takes 16384"
            ]
        );
    }

    #[test]
    fn a_tool_that_pages_itself_is_not_paged_by_the_host() {
        let of = |properties: &str| {
            let tool = format!(
                r#"[{{"name":"a","inputSchema":{{"type":"object","properties":{{{properties}}}}}}}]"#
            );
            matches!(listed(&tool).tools[0].shape.rows, RowSource::Whole)
        };
        assert!(of(r#""cursor":{}"#) && of(r#""page":{},"perPage":{}"#) && of(r#""offset":{}"#));
        // The host sees that the tool has a `limit` itself, and still reads its rows for a budget.
        assert!(!of(r#""limit":{},"offset":{}"#) && !of(r#""path":{}"#));
    }

    #[test]
    fn arguments_that_travel_in_headers_are_found() {
        let tools: Vec<&RawValue> = serde_json::from_str(
            r#"[{"name":"a","inputSchema":{"type":"object","properties":{"r":{"x-mcp-header":"Region"},"n":{"x-mcp-header":"N"},
            "o":{"x-mcp-header":"O"},"p":{}}}}]"#,
        )
        .unwrap();
        assert!(is_named(tools[0], "a") && !is_named(tools[0], "b"));
        let mut found = argument_headers(tools[0], r#"{"r":"é","n":3,"p":"x"}"#);
        found.sort();
        let expected = [
            ("mcp-param-n", "3"),
            ("mcp-param-region", "=?base64?w6k=?="),
        ];
        assert_eq!(
            found,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
    }
}
