//! The host's own tools, which are listed in place of all others where a tenant has hundreds: `search_tools` finds, `load_tool`
//! describes and `invoke_tool` calls one.
//!
//! Owns: what they are called, take and find. How their answers are fitted stands in [`crate::meta`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};

use super::outline::{self, cut};
use super::{Carrier, Catalog, Tool, build, schema};
use crate::contract::{Annotations, Page, RowSource, Shape};
use crate::sandbox::DEFAULT_DEADLINE;
use crate::shape::{
    DEFAULT_INTAKE_BYTES, HostArgument, INVOKED_ARGUMENTS, INVOKED_NAME, Policy, ToolFacts,
    undeclared,
};

/// Tools that a search returns by default, and at most. A row costs some 80 tokens, and what is wanted is among the first.
const SEARCH_PAGE: Page = Page {
    default_limit: 10,
    max_limit: 100,
};

/// Characters of a query: more than any question has.
const MAX_QUERY_CHARS: usize = 1_000;

/// Characters of a tool's description that a search shows: a line.
const MAX_LINE_CHARS: usize = 160;

/// How many names a refusal gives in the place of one that is not known, and how like it they have to be.
const NEAREST: usize = 3;
const MIN_LIKENESS: f64 = 0.3;

/// One of the host's own tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    /// Finds tools.
    Search,
    /// Describes one.
    Load,
    /// Calls one.
    Invoke,
}

impl Meta {
    /// All of them, in the order in which they are used and listed.
    pub const ALL: [Self; 3] = [Self::Search, Self::Load, Self::Invoke];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Search => "search_tools",
            Self::Load => "load_tool",
            Self::Invoke => "invoke_tool",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Search => "Search tools",
            Self::Load => "Load a tool",
            Self::Invoke => "Invoke a tool",
        }
    }

    fn description(self, tools: usize) -> String {
        match self {
            Self::Search => format!(
                "Finds tools by what they do. There are {tools}; none of them is listed. Each row has the tool's name, the first \
                 line of its description, its required and optional arguments, and how well it matches. Then load_tool says \
                 what a tool's arguments are, and invoke_tool calls it."
            ),
            Self::Load => format!(
                "Describes one tool in full: its description and the schemas of its arguments. A part of a schema that lies too \
                 deep, or does not fit, has a placeholder that names the call which loads it; \"pointer\" is a JSON pointer into \
                 the description, at most {} levels of which come at a time.",
                outline::MAX_LEVELS
            ),
            Self::Invoke => String::from(
                "Calls one tool. \"arguments\" are those of the tool itself, as search_tools names and load_tool describes them; \
                 the answer, and every limit, is that of the tool.",
            ),
        }
    }

    fn input(self) -> Value {
        let name =
            json!({"type": "string", "description": "The tool's name, as search_tools has it."});
        let (properties, required) = match self {
            Self::Search => (
                json!({"query": {
                    "type": "string", "maxLength": MAX_QUERY_CHARS, "default": "",
                    "description": "What the tool does, in words: \"list issues of a repository\". Without it all tools come, in order.",
                }}),
                json!([]),
            ),
            Self::Load => (
                json!({
                    "name": name,
                    "pointer": {
                        "type": "string", "default": "",
                        "description": "A part of the description alone, such as \"/inputSchema/properties/body\".",
                    },
                    "max_tokens": {
                        "type": "integer", "minimum": 1,
                        "description": "Token budget of the reply: what lies deepest is left out first, and can be loaded by itself.",
                    },
                }),
                json!(["name"]),
            ),
            Self::Invoke => {
                let arguments = json!({"type": "object", "default": {}, "description": "The tool's own arguments."});
                (
                    json!({INVOKED_NAME: name, INVOKED_ARGUMENTS: arguments}),
                    json!([INVOKED_NAME]),
                )
            }
        };
        json!({"type": "object", "properties": properties, "required": required})
    }

    fn policy(self, input: &Map<String, Value>, cap_bytes: u32) -> Result<Policy, String> {
        let shape = match self {
            Self::Search => Shape {
                rows: RowSource::Pointer(String::new()),
                key: Some("name".into()),
                page: Some(SEARCH_PAGE),
                ..undeclared()
            },
            Self::Load | Self::Invoke => Shape {
                rows: RowSource::Whole,
                ..undeclared()
            },
        };
        // Rows of names have nothing that could be left out.
        let without_fields = [(HostArgument::Fields, None)].into();
        let own = schema::properties(input);
        let policy = Policy::new(&shape, cap_bytes, &own, &without_fields)?;
        Ok(match self {
            Self::Load => policy.fitting_itself(),
            Self::Search | Self::Invoke => policy,
        })
    }
}

/// The host's own tools over these. `cap_bytes` bounds their answers.
pub(super) fn tools(tools: &[Arc<Tool>], cap_bytes: u32) -> anyhow::Result<Vec<Arc<Tool>>> {
    Meta::ALL
        .into_iter()
        .map(|meta| {
            tool(meta, tools, cap_bytes)
                .map(Arc::new)
                .with_context(|| format!("the host's own tool `{}`", meta.name()))
        })
        .collect()
}

fn tool(meta: Meta, tools: &[Arc<Tool>], cap_bytes: u32) -> anyhow::Result<Tool> {
    let Value::Object(input) = meta.input() else {
        return Err(anyhow!("its input schema is no object"));
    };
    let required = schema::required(&input);
    let policy = meta
        .policy(&input, cap_bytes)
        .map_err(|message| anyhow!(message))?;
    let input = schema::publish(input, &policy);
    let narrowing = schema::narrowing(&input, &required, &policy);
    let validator = jsonschema::draft202012::options().build(&json!(input))?;
    // What it calls may be any of them.
    let all = |hint: &str| {
        tools
            .iter()
            .all(|tool| tool.listed["annotations"][hint] == true)
    };
    let any = |hint: &str| {
        tools
            .iter()
            .any(|tool| tool.listed["annotations"][hint] == true)
    };
    let annotations = match meta {
        Meta::Search | Meta::Load => {
            build::annotations(Annotations::READ_ONLY | Annotations::IDEMPOTENT)
        }
        Meta::Invoke => json!({
            "readOnlyHint": all("readOnlyHint"),
            "destructiveHint": any("destructiveHint"),
            "idempotentHint": all("idempotentHint"),
            "openWorldHint": any("openWorldHint"),
        }),
    };
    let listed_cap = match meta {
        Meta::Search | Meta::Load => cap_bytes,
        Meta::Invoke => {
            let caps = tools.iter().map(|tool| tool.policy.cap_bytes());
            caps.max().unwrap_or(cap_bytes)
        }
    };
    let listed = json!({
        "name": meta.name(),
        "title": meta.title(),
        "description": meta.description(tools.len()),
        "inputSchema": input,
        "annotations": annotations,
        "_meta": build::listed_meta(listed_cap),
    });
    Ok(Tool {
        listing_tokens: OnceLock::new(),
        listed,
        facts: ToolFacts {
            name: meta.name().to_owned(),
            narrowing,
            own_limit: None,
            has_structured_copy: false,
            is_invoked: false,
        },
        policy,
        required,
        has_header_arguments: false,
        carrier: Carrier::Host(meta),
        intake_bytes: DEFAULT_INTAKE_BYTES,
        examples: Vec::new(),
        tags: BTreeSet::new(),
        deadline: DEFAULT_DEADLINE,
        result_tokens: None,
        decided_by: BTreeMap::new(),
        validator,
    })
}

/// What a search finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// A JSON array: a row for each tool.
    pub rows: String,
    /// What there is to say beside.
    pub notice: Option<String>,
}

impl Catalog {
    /// The tools that match a query, the best first; all of them, in order, where it has no words.
    pub fn search(&self, query: &str) -> Findings {
        let is_all = query.trim().is_empty();
        let found: Vec<(usize, Option<f64>)> = if is_all {
            (0..self.tools.len()).map(|place| (place, None)).collect()
        } else {
            let found = self.index.search(query).into_iter();
            found.map(|(place, score)| (place, Some(score))).collect()
        };
        let notice = found.is_empty().then(|| {
            let tools = self.tools.len();
            format!(
                "No tool matches. There are {tools} tools: search for other words, or leave query out to get all of them in order."
            )
        });
        let rows = found
            .into_iter()
            .map(|(place, score)| row(&self.tools[place], score));
        let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
        Findings {
            rows: format!("[{}]", rows.join(",\n")),
            notice,
        }
    }

    /// The names that are most like one that is not there, the likest first.
    pub fn nearest(&self, name: &str) -> Vec<&str> {
        let name = name.to_lowercase();
        let likeness = |other: &str| strsim::sorensen_dice(&name, &other.to_lowercase());
        let mut near: Vec<(f64, &str)> = self
            .tools
            .iter()
            .map(|tool| (likeness(tool.name()), tool.name()))
            .filter(|(likeness, _)| *likeness >= MIN_LIKENESS)
            .collect();
        near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        near.into_iter()
            .take(NEAREST)
            .map(|(_, name)| name)
            .collect()
    }

    /// The tool of a plugin that has this name.
    pub fn plugin_tool(&self, name: &str) -> Option<&Arc<Tool>> {
        self.tool(name).filter(|tool| tool.plugin().is_some())
    }
}

fn row(tool: &Tool, score: Option<f64>) -> Value {
    let line = tool
        .description()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let (required, optional): (Vec<&String>, Vec<&String>) = tool
        .arguments()
        .map(|(name, _)| name)
        .partition(|name| tool.required.contains(name));
    let mut row = json!({
        "name": tool.name(),
        "description": cut(&line, MAX_LINE_CHARS).unwrap_or(line),
        "required": required,
        "optional": optional,
    });
    if let Some(score) = score {
        row["score"] = json!((score * 100.0).round() / 100.0);
    }
    row
}
