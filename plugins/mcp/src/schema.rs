//! Schemas of a server as the host can publish them: self-contained, and coming to an end.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Bytes of one schema that the host takes.
const SCHEMA_BYTES: usize = 1 << 16;

/// Keywords whose value holds instances, not schemas.
const INSTANCES: [&str; 4] = ["const", "enum", "default", "examples"];

/// An input schema.
pub(crate) struct Input {
    pub(crate) text: String,
    /// Names of the arguments.
    pub(crate) properties: Vec<String>,
}

/// Reads an input schema. The error says why it cannot be published.
pub(crate) fn input(raw: &RawValue) -> Result<Input, String> {
    let (schema, text) = read(raw)?;
    match &schema["type"] {
        Value::String(kind) if kind == "object" => {}
        Value::Null => {}
        found => {
            return Err(format!(
                "expected an input schema of type object, found {found}"
            ));
        }
    }
    let properties = match &schema["properties"] {
        Value::Object(properties) => properties.keys().cloned().collect(),
        _ => Vec::new(),
    };
    // A root that says nothing of its type is an object, since arguments are one.
    let text = match schema["type"].is_null() && !text.starts_with("{}") {
        true => format!("{{\"type\":\"object\",{}", &text[1..]),
        false => text,
    };
    Ok(Input { text, properties })
}

/// Reads an output schema; `None` where what it promises is a text in a wrapper, which is shaped as text, or blocks of
/// content, which are attached.
pub(crate) fn output(raw: &RawValue) -> Result<Option<String>, String> {
    let (schema, text) = read(raw)?;
    Ok((!wraps_a_text(&schema) && !wraps_content(&schema)).then_some(text))
}

/// Whether a document of this schema may be an object with a text as its only member. Servers wrap texts in this way to
/// have structured content at all.
fn wraps_a_text(schema: &Value) -> bool {
    let is_text = |schema: &Value| schema["type"] == "string";
    let Some(properties) = schema["properties"].as_object() else {
        return false;
    };
    match schema["required"].as_array().map_or(&[][..], Vec::as_slice) {
        [] => properties.values().any(is_text),
        [only] => only
            .as_str()
            .and_then(|name| properties.get(name))
            .is_some_and(is_text),
        _ => false,
    }
}

/// Whether a document of this schema is the content of a result once more.
fn wraps_content(schema: &Value) -> bool {
    let is_only = schema["properties"]
        .as_object()
        .is_some_and(|properties| properties.len() == 1);
    is_only && schema["properties"]["content"]["type"] == "array"
}

fn read(raw: &RawValue) -> Result<(Value, String), String> {
    let text = raw.get();
    if text.len() > SCHEMA_BYTES {
        return Err(format!(
            "expected a schema of at most {SCHEMA_BYTES} bytes, found {}",
            text.len()
        ));
    }
    let mut schema: Value =
        serde_json::from_str(text).map_err(|error| format!("its schema: {error}"))?;
    if !schema.is_object() {
        return Err("expected a JSON object".to_owned());
    }
    let mut walk = Walk {
        root: &schema,
        seen: BTreeMap::new(),
        circles: Vec::new(),
    };
    walk.visit(&schema, "", false)?;
    let circles = walk.circles;
    if circles.is_empty() {
        // As it was written: the order of its members is their author's.
        return Ok((schema, text.to_owned()));
    }
    for place in circles {
        if let Some(part) = schema.pointer_mut(&place) {
            let reference = part["$ref"].as_str().unwrap_or_default();
            *part = json!({"description": format!("As {reference}, which this is a part of.")});
        }
    }
    let text = schema.to_string();
    Ok((schema, text))
}

/// Looks for references that lead back to what they are a part of.
struct Walk<'a> {
    root: &'a Value,
    /// Places that have been visited; true for those that the walk is still in.
    seen: BTreeMap<String, bool>,
    /// Places of the references that close a circle.
    circles: Vec<String>,
}

impl Walk<'_> {
    /// `names` is whether the members of this part are names of schemas, and not keywords.
    fn visit(&mut self, part: &Value, place: &str, names: bool) -> Result<(), String> {
        if self.seen.contains_key(place) {
            return Ok(());
        }
        self.seen.insert(place.to_owned(), true);
        match part {
            Value::Object(members) => {
                for (name, below) in members {
                    if !names && INSTANCES.contains(&name.as_str()) {
                        continue;
                    }
                    let maps = [
                        "properties",
                        "patternProperties",
                        "dependentSchemas",
                        "$defs",
                        "definitions",
                    ];
                    let below_names = !names && maps.contains(&name.as_str());
                    let token = name.replace('~', "~0").replace('/', "~1");
                    self.visit(below, &format!("{place}/{token}"), below_names)?;
                }
                if let Some(reference) = members
                    .get("$ref")
                    .and_then(Value::as_str)
                    .filter(|_| !names)
                {
                    self.follow(reference, place)?;
                }
            }
            Value::Array(items) => {
                for (index, below) in items.iter().enumerate() {
                    self.visit(below, &format!("{place}/{index}"), false)?;
                }
            }
            _ => {}
        }
        self.seen.insert(place.to_owned(), false);
        Ok(())
    }

    fn follow(&mut self, reference: &str, place: &str) -> Result<(), String> {
        let Some(target) = reference.strip_prefix('#') else {
            return Err(format!(
                "its schema refers to `{reference}`, and a schema must be self-contained"
            ));
        };
        // An anchor is left to the host, which knows where it is.
        if !target.is_empty() && !target.starts_with('/') {
            return Ok(());
        }
        let Some(part) = self.root.pointer(target) else {
            return Err(format!(
                "its schema refers to `{reference}`, which is not in it"
            ));
        };
        match self.seen.get(target) {
            Some(true) => self.circles.push(place.to_owned()),
            Some(false) => {}
            None => self.visit(part, target, false)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Input, String> {
        input(serde_json::from_str::<&RawValue>(text).unwrap())
    }

    #[test]
    fn a_schema_without_circles_is_published_as_it_was_written() {
        let text = r##"{ "type":"object", "properties":{"b":{"$ref":"#/$defs/x"},"a":{"$ref":"#/$defs/x"}}, "$defs":{"x":{"type":"string"}} }"##;
        let input = of(text).unwrap();
        assert_eq!(input.text, text);
        assert_eq!(input.properties.len(), 2);
        assert_eq!(
            of("{\"properties\":{}}").unwrap().text,
            "{\"type\":\"object\",\"properties\":{}}"
        );
        assert_eq!(of("{}").unwrap().text, "{}");
    }

    #[test]
    fn a_circle_is_opened_where_it_closes() {
        let text = r##"{"type":"object","properties":{"tree":{"$ref":"#/$defs/node"},"$ref":{"type":"string"}},
            "$defs":{"node":{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/$defs/node"}}}}}}"##;
        let schema: Value = serde_json::from_str(&of(text).unwrap().text).unwrap();
        assert_eq!(
            schema["$defs"]["node"]["properties"]["children"]["items"],
            json!({"description": "As #/$defs/node, which this is a part of."})
        );
        assert_eq!(schema["properties"]["tree"]["$ref"], "#/$defs/node");
        let itself = of(r##"{"type":"object","properties":{"again":{"$ref":"#"}}}"##).unwrap();
        assert!(!itself.text.contains("$ref"), "{}", itself.text);
    }

    #[test]
    fn what_the_host_would_refuse_is_refused_here_with_a_reason() {
        let large = format!(
            r#"{{"type":"object","description":"{}"}}"#,
            "x".repeat(65_536)
        );
        for (text, expected) in [
            ("[]", "expected a JSON object"),
            (
                r#"{"type":"array"}"#,
                "expected an input schema of type object, found \"array\"",
            ),
            (
                r#"{"type":"object","properties":{"a":{"$ref":"https://a.test/s"}}}"#,
                "its schema refers to `https://a.test/s`, and a schema must be self-contained",
            ),
            (
                r##"{"type":"object","properties":{"a":{"$ref":"#/x"}}}"##,
                "its schema refers to `#/x`, which is not in it",
            ),
            (
                &large,
                "expected a schema of at most 65536 bytes, found 65570",
            ),
        ] {
            assert_eq!(of(text).err().as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_schema_of_a_text_in_a_wrapper_is_not_published() {
        let is_kept = |text: &str| {
            output(serde_json::from_str::<&RawValue>(text).unwrap())
                .unwrap()
                .is_some()
        };
        assert!(!is_kept(
            r#"{"type":"object","properties":{"content":{"type":"string"}},"required":["content"]}"#
        ));
        assert!(!is_kept(
            r#"{"type":"object","properties":{"content":{"type":"string"},"n":{"type":"number"}}}"#
        ));
        assert!(is_kept(
            r#"{"type":"object","properties":{"result":{"type":"array"}},"required":["result"]}"#
        ));
        assert!(is_kept(
            r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"required":["a","b"]}"#
        ));
        assert!(is_kept(r#"{"type":"array"}"#));
        assert!(!is_kept(
            r#"{"type":"object","properties":{"content":{"type":"array","items":{"anyOf":[]}}}}"#
        ));
    }
}
