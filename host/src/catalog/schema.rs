//! Published schemas: the handler's own with the host's arguments added, and the envelope of structured answers.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};

use super::references;
use crate::shape::{FULL, Field, Format, HostArgument, MIN_BUDGET_TOKENS, OwnLimit, Policy};

/// Bytes of one schema: three times the largest tool seen in the field (20 KB, which a connector refused).
const MAX_SCHEMA_BYTES: usize = 1 << 16;

/// Names under which handlers commonly limit their rows themselves.
const LIMIT_NAMES: [&str; 14] = [
    "limit",
    "page_size",
    "pageSize",
    "per_page",
    "perPage",
    "max_results",
    "maxResults",
    "first",
    "count",
    "take",
    "top",
    "size",
    "_limit",
    "_per_page",
];

/// Reads a handler's input schema: a JSON object whose root is an object. What it refers to stands in the place of its
/// references, unless it would then be larger than any schema may be.
pub(super) fn read_input(text: &str) -> anyhow::Result<Map<String, Value>> {
    let mut schema = read(text).context("the input schema")?;
    let inlined = references::inline(&schema);
    if inlined.to_string().len() <= MAX_SCHEMA_BYTES {
        schema = inlined;
    }
    let Value::Object(mut schema) = schema else {
        bail!("the input schema must be a JSON object")
    };
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => {}
        None if schema.is_empty() || schema.contains_key("properties") => {
            schema.insert("type".into(), "object".into());
        }
        found => bail!(
            "the root of the input schema must have \"type\": \"object\", found {}",
            found.map_or_else(|| String::from("none"), Value::to_string)
        ),
    }
    if schema
        .get("properties")
        .is_some_and(|properties| !properties.is_object())
    {
        bail!("\"properties\" of the input schema must be an object");
    }
    Ok(schema)
}

/// Reads a schema and checks what has to hold of every one.
fn read(text: &str) -> anyhow::Result<Value> {
    ensure!(
        text.len() <= MAX_SCHEMA_BYTES,
        "expected at most {MAX_SCHEMA_BYTES} bytes, found {}",
        text.len()
    );
    let schema = serde_json::from_str(text).context("expected JSON")?;
    references::check(&schema)?;
    Ok(schema)
}

/// Names of a schema's properties.
pub(super) fn properties(schema: &Map<String, Value>) -> Vec<&str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Names that a schema requires.
pub(super) fn required(schema: &Map<String, Value>) -> Vec<String> {
    let required = schema.get("required").and_then(Value::as_array);
    required
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The schema with the arguments that the host adds.
pub(super) fn publish(mut schema: Map<String, Value>, policy: &Policy) -> Map<String, Value> {
    // A misspelt argument is an error and not a default that fires unseen. A schema that says something about further
    // properties, in whatever way, is left as it is.
    let says_something = [
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    ];
    if !says_something
        .iter()
        .any(|keyword| schema.contains_key(*keyword))
    {
        schema.insert("additionalProperties".into(), false.into());
    }
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for argument in HostArgument::ALL {
            if let Some(name) = policy.published(argument) {
                properties
                    .entry(name)
                    .or_insert_with(|| host_argument(argument, policy));
            }
        }
    }
    schema
}

/// The schema of one of the host's arguments, with a description that a model can act on.
fn host_argument(argument: HostArgument, policy: &Policy) -> Value {
    let (default_limit, max_limit) = policy.page();
    match argument {
        HostArgument::Limit => json!({
            "type": "integer", "minimum": 1, "maximum": max_limit, "default": default_limit,
            "description": "Maximum number of rows to return.",
        }),
        HostArgument::After => json!({
            "type": "string",
            "description": "Gets the next page: next_after of the page before, as it stands. Only required arguments \
                            are needed beside it.",
        }),
        HostArgument::Detail => {
            let names: Vec<&str> = policy.views().map(|(name, _)| name).collect();
            json!({
                "type": "string", "enum": names, "default": policy.default_view(),
                "description": "Which fields each row has; the tool's description lists them.",
            })
        }
        HostArgument::Fields => json!({
            "type": "array", "items": {"type": "string"}, "minItems": 1,
            "description": "Exactly the fields to return of each row, instead of a view; dots reach nested ones, as in \
                            \"owner.name\".",
        }),
        HostArgument::Horizon => json!({
            "type": "string", "enum": ["live", "all"], "default": "live",
            "description": format!("\"live\" leaves out {}; \"all\" includes them.", policy.excluded().unwrap_or_default()),
        }),
        HostArgument::Format => {
            let columns: Vec<&str> = policy.columns().collect();
            json!({
                "type": "string", "enum": Format::NAMES, "default": "json",
                "description": format!("Form of the rows. csv and tsv cost the fewest tokens and have the columns {}.", columns.join(", ")),
            })
        }
        HostArgument::MaxTokens => json!({
            "type": "integer", "minimum": 1,
            "description": format!("Token budget of the reply: whole rows are returned until it is spent. Less than {MIN_BUDGET_TOKENS} counts as {MIN_BUDGET_TOKENS}."),
        }),
    }
}

/// The tool's description with every view's fields in full.
pub(super) fn describe(description: &str, policy: &Policy) -> String {
    let mut out = description.trim_end().to_owned();
    for (index, (name, fields)) in policy.views().enumerate() {
        out.push_str(if index == 0 {
            "\n\nFields by detail:"
        } else {
            ""
        });
        let fields = if name == FULL {
            String::from("every field")
        } else {
            fields.join(", ")
        };
        let default = if name == policy.default_view() {
            " (default)"
        } else {
            ""
        };
        out.push_str(&format!("\n- {name}{default}: {fields}"));
    }
    out
}

/// The arguments that make an answer smaller, in the order in which to try them: the host's own rows and fields, the
/// handler's optional ones, the rest of the host's.
pub(super) fn narrowing(
    published: &Map<String, Value>,
    required: &[String],
    policy: &Policy,
) -> Vec<Field> {
    let first = [
        HostArgument::Limit,
        HostArgument::Detail,
        HostArgument::Fields,
    ];
    let last = [HostArgument::Horizon, HostArgument::MaxTokens];
    let is_the_hosts = |name: &str| {
        HostArgument::ALL
            .into_iter()
            .any(|argument| policy.published(argument) == Some(name))
    };
    let own = properties(published)
        .into_iter()
        .filter(|name| !is_the_hosts(name) && !required.iter().any(|other| other == name));
    let names = |arguments: [HostArgument; 3]| {
        arguments
            .into_iter()
            .filter_map(|argument| policy.published(argument))
    };
    names(first)
        .chain(own)
        .chain(
            last.into_iter()
                .filter_map(|argument| policy.published(argument)),
        )
        .map(|name| {
            let message = published["properties"][name]["description"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            Field {
                name: name.to_owned(),
                message,
            }
        })
        .collect()
}

/// The handler's own limit, where the host does not page.
pub(super) fn own_limit(published: &Map<String, Value>, policy: &Policy) -> Option<OwnLimit> {
    if policy.published(HostArgument::Limit).is_some() {
        return None;
    }
    LIMIT_NAMES.into_iter().find_map(|name| {
        let schema = published.get("properties")?.get(name)?;
        let is_integer = match &schema["type"] {
            Value::String(kind) => kind == "integer" || kind == "number",
            Value::Array(kinds) => kinds.iter().any(|kind| kind == "integer"),
            _ => false,
        };
        let bound = |keyword: &str| schema[keyword].as_u64();
        is_integer.then(|| OwnLimit {
            name: name.to_owned(),
            min: bound("minimum").unwrap_or(1),
            max: bound("maximum"),
        })
    })
}

/// The advertised output schema: the envelope in which facts and body travel as structured content.
///
/// A page has fewer rows and a view fewer fields than the handler's document, so what the handler's schema says about
/// the least of them does not hold any more and is taken out; a table is text.
pub(super) fn envelope(text: &str, policy: &Policy) -> anyhow::Result<Value> {
    let mut body = read(text).context("the output schema")?;
    ensure!(body.is_object(), "the output schema must be a JSON object");
    relax(&mut body);
    let has_tables = policy.published(HostArgument::Format).is_some();
    references::move_to(
        &mut body,
        if has_tables {
            "/properties/body/anyOf/0"
        } else {
            "/properties/body"
        },
    );
    let body = if has_tables {
        json!({"anyOf": [body, {"type": "string"}]})
    } else {
        body
    };
    Ok(json!({
        "type": "object",
        "properties": {
            "facts": {
                "type": "object",
                "description": "What was returned, what was left out, and how to get it.",
            },
            "body": body,
        },
        "required": ["facts", "body"],
        "additionalProperties": false,
    }))
}

/// Removes the keywords that demand members or items.
fn relax(schema: &mut Value) {
    if let Value::Object(members) = schema {
        for keyword in [
            "required",
            "minItems",
            "minProperties",
            "contains",
            "minContains",
            "dependentRequired",
        ] {
            members.remove(keyword);
        }
    }
    references::each_below_mut(schema, &mut relax);
}

/// What an input schema says of an argument that a header repeats (SEP-2243).
const HEADER_ANNOTATION: &str = "x-mcp-header";

/// Whether a schema says anywhere that an argument is repeated in a header.
pub(super) fn names_headers(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members
            .iter()
            .any(|(name, value)| name == HEADER_ANNOTATION || names_headers(value)),
        Value::Array(items) => items.iter().any(names_headers),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::contract::{Column, Shape};
    use crate::shape::{DEFAULT_CAP_BYTES, undeclared};

    /// Case H11: clients skip or flatten a tool whose root is a choice and no object.
    #[test]
    fn h11_a_root_that_is_no_object_is_refused() {
        let error = read_input(r#"{"anyOf":[{"type":"object"},{"type":"array"}]}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the root of the input schema must have \"type\": \"object\", found none"
        );
        assert!(
            read_input(r#"{"type":"object","anyOf":[{"required":["a"]},{"required":["b"]}]}"#)
                .is_ok()
        );
    }

    #[test]
    fn an_envelope_keeps_references_and_names_that_look_like_keywords() {
        let shape = Shape {
            columns: vec![Column {
                name: "a".into(),
                field: "a".into(),
            }],
            ..undeclared()
        };
        let text = r##"{"type":"object","required":["x"],"$defs":{"a":{"type":"array","minItems":1}},
            "properties":{"x":{"$ref":"#/$defs/a"},"required":{"type":"boolean"}}}"##;
        for (shape, place) in [
            (undeclared(), "/properties/body"),
            (shape, "/properties/body/anyOf/0"),
        ] {
            let policy = Policy::new(&shape, DEFAULT_CAP_BYTES, &[], &BTreeMap::new()).unwrap();
            let schema = envelope(text, &policy).unwrap();
            let body = schema.pointer(place).unwrap();
            let reference = body["properties"]["x"]["$ref"].as_str().unwrap();
            assert_eq!(
                schema.pointer(reference.trim_start_matches('#')),
                Some(&json!({"type": "array"}))
            );
            assert_eq!(
                (body.get("required"), &body["properties"]["required"]),
                (None, &json!({"type": "boolean"}))
            );
        }
    }
}
