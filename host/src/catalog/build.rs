//! Makes tools out of what plugins declare and what the operator overrides.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Map, Value, json};

use super::{Carried, Carrier, Target, Tool, schema};
use crate::admission::Admission;
use crate::config::{self, Decided, PluginConfig};
use crate::contract::{self, Annotations, Collection, FilterField, RowSource, Shape, ValueType};
use crate::sandbox::{Description, Plugin};
use crate::shape::{HostArgument, Policy, ToolFacts, excerpt};

/// The longest name that all clients take.
const MAX_NAME_CHARS: usize = 64;

/// Tools of one plugin. The largest document that is published for an API, that of GitHub, has 1,223 operations; so many are
/// for `surface = "meta"`.
const MAX_TOOLS: usize = 2_000;

/// Bytes of one description, some 4,000 tokens: connectors were seen to refuse a tool of more than 5,000.
const MAX_DESCRIPTION_BYTES: usize = 1 << 14;

/// Bytes of a title: a line.
const MAX_TITLE_BYTES: usize = 200;

/// Tags of one tool, and the bytes of one.
const MAX_TAGS: usize = 20;
const MAX_TAG_BYTES: usize = 64;

/// Bytes of one entry of the listing, of which a page of the default cap holds two.
const MAX_LISTED_BYTES: usize = 120_000;

/// A client program raises its own limit for a tool to this entry, up to a ceiling of its own.
const MAX_RESULT_SIZE_META: &str = "anthropic/maxResultSizeChars";

/// The ceiling for [`MAX_RESULT_SIZE_META`].
const MAX_RESULT_SIZE_CEILING: u32 = 500_000;

/// A tool as a plugin declares it, in one form for both worlds.
struct Declared {
    name: String,
    title: Option<String>,
    description: String,
    input: Map<String, Value>,
    output: Option<String>,
    shape: Shape,
    annotations: Annotations,
    tags: Vec<String>,
    examples: Vec<contract::Example>,
    target: Target,
}

/// The tools of one plugin. Every error names the tool and the declaration that cannot be carried out.
pub fn build(
    plugin: &Arc<Plugin>,
    admission: &Arc<Admission>,
    entry: &PluginConfig,
) -> anyhow::Result<Vec<Tool>> {
    let Description { tools, collections } = plugin.description();
    let count = tools.len() + collections.len();
    ensure!(
        count <= MAX_TOOLS,
        "expected at most {MAX_TOOLS} tools or collections, found {count}"
    );
    let mut declared: Vec<Declared> = collections.iter().flat_map(of_collection).collect();
    for tool in tools {
        declared.push(of_tool(tool)?);
    }
    let mut names = HashSet::with_capacity(declared.len());
    if let Some(twice) = declared
        .iter()
        .find(|tool| !names.insert(tool.name.as_str()))
    {
        bail!(
            "expected each tool once, found `{}` twice",
            excerpt(&twice.name)
        );
    }
    if let Some((_, place)) = entry
        .rules
        .names_of_plugin()
        .find(|(name, _)| !declared.iter().any(|tool| tool.name == *name))
    {
        let names: Vec<&str> = declared.iter().map(|tool| tool.name.as_str()).collect();
        bail!(
            "`{place}`: the plugin has no such tool; it has {}",
            names.join(", ")
        );
    }
    declared
        .into_iter()
        .map(|declared| {
            let name = declared.name.clone();
            publish(declared, plugin, admission, entry)
                .with_context(|| format!("tool `{}`", excerpt(&name)))
        })
        // Whoever may not see a key could try out which there are.
        .filter(|tool| {
            !tool.as_ref().is_ok_and(|tool| {
                let carried = tool.carried();
                let is_get =
                    carried.is_some_and(|carried| matches!(carried.target, Target::Get(_)));
                is_get && tool.policy.key().is_none()
            })
        })
        .collect()
}

fn of_tool(tool: &contract::Tool) -> anyhow::Result<Declared> {
    Ok(Declared {
        name: tool.name.clone(),
        title: tool.title.clone(),
        description: tool.description.clone(),
        input: schema::read_input(&tool.input_schema)
            .with_context(|| format!("tool `{}`", excerpt(&tool.name)))?,
        output: tool.output_schema.clone(),
        shape: tool.shape.clone(),
        annotations: tool.annotations,
        tags: tool.tags.clone(),
        examples: tool.examples.clone(),
        target: Target::Handler(tool.name.clone()),
    })
}

/// `list_<collection>`, and where its rows have a key `get_<collection>`.
fn of_collection(collection: &Collection) -> Vec<Declared> {
    let mut properties = Map::new();
    let mut shape = Shape {
        rows: RowSource::Automatic,
        ..collection.shape.clone()
    };
    shape.filters.clear();
    for filter in &collection.filters {
        // A field that has the name of a host argument is filtered under another one, so that paging stays.
        let is_taken = HostArgument::named(&filter.name).is_some();
        let argument = if is_taken {
            format!("where_{}", filter.name)
        } else {
            filter.name.clone()
        };
        properties.insert(argument.clone(), filter_schema(filter));
        shape.filters.push(contract::Filter {
            argument,
            field: filter.name.clone(),
        });
    }
    let count = collection
        .count
        .map_or(String::new(), |count| format!(" {count} rows."));
    let read_only = Annotations::READ_ONLY | Annotations::IDEMPOTENT;
    let mut declared = vec![Declared {
        name: format!("list_{}", collection.name),
        title: None,
        description: format!(
            "Lists rows of {}.{count} {}",
            collection.name, collection.description
        ),
        input: object_schema(properties, &[]),
        output: None,
        shape,
        annotations: read_only,
        tags: collection.tags.clone(),
        examples: Vec::new(),
        target: Target::List(collection.name.clone()),
    }];
    if let Some(key) = &collection.shape.key {
        let description = format!("Value of {key} in the row to get.");
        let key_schema =
            json!({"type": ["string", "integer", "number"], "description": description});
        declared.push(Declared {
            name: format!("get_{}", collection.name),
            title: None,
            description: format!(
                "Gets one row of {} by its {key}. {}",
                collection.name, collection.description
            ),
            input: object_schema(
                Map::from_iter([(String::from("key"), key_schema)]),
                &["key"],
            ),
            output: None,
            shape: Shape {
                rows: RowSource::Whole,
                horizon: None,
                default_view: None,
                columns: Vec::new(),
                filters: Vec::new(),
                ..collection.shape.clone()
            },
            annotations: read_only,
            tags: collection.tags.clone(),
            examples: Vec::new(),
            target: Target::Get(collection.name.clone()),
        });
    }
    declared
}

fn filter_schema(filter: &FilterField) -> Value {
    let kind = match filter.value_type {
        ValueType::Text => "string",
        ValueType::Integer => "integer",
        ValueType::Number => "number",
        ValueType::Boolean => "boolean",
    };
    json!({
        "type": [kind, "array"],
        "items": {"type": kind},
        "description": format!("Only rows with this value, or one of these: {}", filter.description),
    })
}

fn object_schema(properties: Map<String, Value>, required: &[&str]) -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), json!(required));
    }
    schema
}

fn publish(
    declared: Declared,
    plugin: &Arc<Plugin>,
    admission: &Arc<Admission>,
    entry: &PluginConfig,
) -> anyhow::Result<Tool> {
    let limits = &entry.limits;
    let is_name = |name: &str| {
        (1..=MAX_NAME_CHARS).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
    };
    if !is_name(&declared.name) {
        bail!("expected a name of 1 to {MAX_NAME_CHARS} letters, digits, `_` and `-`");
    }
    for (what, text, max) in [
        (
            "description",
            Some(&declared.description),
            MAX_DESCRIPTION_BYTES,
        ),
        ("title", declared.title.as_ref(), MAX_TITLE_BYTES),
    ] {
        let bytes = text.map_or(0, String::len);
        ensure!(
            bytes <= max,
            "expected a {what} of at most {max} bytes, found {bytes}"
        );
    }
    let required = schema::required(&declared.input);
    let is_tag =
        |tag: &String| (1..=MAX_TAG_BYTES).contains(&tag.len()) && !tag.contains(char::is_control);
    ensure!(
        declared.tags.len() <= MAX_TAGS && declared.tags.iter().all(is_tag),
        "expected at most {MAX_TAGS} tags, each 1 to {MAX_TAG_BYTES} bytes of one line"
    );
    let tags = config::tags(&declared.tags, declared.annotations);
    let Decided {
        settings,
        cells,
        by,
    } = entry.rules.for_tool(&declared.name, &tags)?;
    let shape = settings.apply(declared.shape)?;
    let names = settings.argument_names()?;
    let policy = Policy::new(
        &shape,
        limits.cap_bytes.value,
        &schema::properties(&declared.input),
        &names,
    )
    .map_err(|message| anyhow!(message))?
    .with_cells(&cells)
    .with_cells(&entry.cells);
    let input = schema::publish(declared.input, &policy);
    let narrowing = schema::narrowing(&input, &required, &policy);
    let own_limit = schema::own_limit(&input, &policy);
    let output = declared
        .output
        .as_deref()
        .map(|text| schema::envelope(text, &policy))
        .transpose()?;
    let has_structured_copy = output.is_some();
    let input = Value::Object(input);
    let has_header_arguments = schema::names_headers(&input);
    let validator = jsonschema::draft202012::options()
        .build(&input)
        .map_err(|error| anyhow!("the input schema is not valid JSON Schema: {error}"))?;
    let mut listed = Map::new();
    listed.insert("name".into(), declared.name.clone().into());
    if let Some(title) = declared.title {
        listed.insert("title".into(), title.into());
    }
    listed.insert(
        "description".into(),
        schema::describe(&declared.description, &policy).into(),
    );
    listed.insert("inputSchema".into(), input);
    if let Some(output) = output {
        listed.insert("outputSchema".into(), output);
    }
    listed.insert("annotations".into(), annotations(declared.annotations));
    listed.insert("_meta".into(), listed_meta(policy.cap_bytes()));
    let listed = Value::Object(listed);
    let bytes = listed.to_string().len();
    ensure!(
        bytes <= MAX_LISTED_BYTES,
        "expected at most {MAX_LISTED_BYTES} bytes in the listing, found {bytes}: description, views and schemas together"
    );
    Ok(Tool {
        listing_tokens: OnceLock::new(),
        listed,
        facts: ToolFacts {
            name: declared.name,
            narrowing,
            own_limit,
            has_structured_copy,
            is_invoked: false,
        },
        policy,
        required,
        has_header_arguments,
        carrier: Carrier::Plugin(Carried {
            plugin: plugin.clone(),
            admission: admission.clone(),
            target: declared.target,
        }),
        intake_bytes: limits.intake_bytes.value,
        examples: declared.examples,
        tags,
        deadline: settings
            .deadline_ms
            .map_or(limits.sandbox().deadline, Duration::from_millis),
        result_tokens: settings.result_tokens,
        decided_by: by,
        validator,
    })
}

/// What client programs read of a tool with this cap.
pub(super) fn listed_meta(cap_bytes: u32) -> Value {
    json!({MAX_RESULT_SIZE_META: cap_bytes.min(MAX_RESULT_SIZE_CEILING)})
}

pub(super) fn annotations(annotations: Annotations) -> Value {
    json!({
        "readOnlyHint": annotations.contains(Annotations::READ_ONLY),
        "destructiveHint": annotations.contains(Annotations::DESTRUCTIVE),
        "idempotentHint": annotations.contains(Annotations::IDEMPOTENT),
        "openWorldHint": annotations.contains(Annotations::OPEN_WORLD),
    })
}
