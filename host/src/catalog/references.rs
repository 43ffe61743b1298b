//! `$ref` in the schemas of plugins: where each leads, and that following them comes to an end.
//!
//! A schema that refers to itself would have clients and validators run in circles, and one whose references double at
//! every step would have them work for hours. Owns: the check, putting what is referred to in the place of references, and
//! moving references when a schema is put into another.

use std::collections::{HashMap, HashSet};

use anyhow::{bail, ensure};
use serde_json::{Map, Value};

/// Levels of a schema, references followed. Hand-written ones have five to ten.
const MAX_LEVELS: usize = 64;

/// Parts of a schema, references followed. The largest tool seen in the field (7,046 tokens) has about a thousand.
const MAX_PARTS: usize = 10_000;

/// Keywords whose value holds instances, not schemas.
pub(super) const INSTANCES: [&str; 4] = ["const", "enum", "default", "examples"];

/// Keywords whose value maps names to schemas: what looks like a keyword there is a name.
pub(super) const MAPS: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];

/// Keywords that only describe, or only hold what others refer to. Beside a `$ref` they constrain nothing.
const ANNOTATIONS: [&str; 11] = [
    "$comment",
    "$schema",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// Keywords under which a schema is referred to, or holds what is.
const REFERRED: [&str; 3] = ["$anchor", "$defs", "definitions"];

/// Calls `visit` for each schema directly below `schema`.
pub(super) fn each_below<'a>(schema: &'a Value, visit: &mut dyn FnMut(&'a Value)) {
    match schema {
        Value::Object(members) => {
            for (keyword, value) in members
                .iter()
                .filter(|(keyword, _)| !INSTANCES.contains(&keyword.as_str()))
            {
                match value {
                    Value::Object(named) if MAPS.contains(&keyword.as_str()) => {
                        named.values().for_each(&mut *visit)
                    }
                    _ => visit(value),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(visit),
        _ => {}
    }
}

/// The same, to change them.
pub(super) fn each_below_mut(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    match schema {
        Value::Object(members) => {
            for (keyword, value) in members
                .iter_mut()
                .filter(|(keyword, _)| !INSTANCES.contains(&keyword.as_str()))
            {
                match value {
                    Value::Object(named) if MAPS.contains(&keyword.as_str()) => {
                        named.values_mut().for_each(&mut *visit)
                    }
                    _ => visit(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(visit),
        _ => {}
    }
}

/// Whether every reference leads to a place in the same schema, none leads back to itself, and all of them followed stay
/// within bounds.
pub(super) fn check(schema: &Value) -> anyhow::Result<()> {
    let mut walk = Walk {
        root: schema,
        known: HashMap::new(),
        open: HashSet::new(),
    };
    let Extent { parts, .. } = walk.extent(schema, 0)?;
    ensure!(
        parts <= MAX_PARTS,
        "the schema has {parts} parts, every `$ref` followed; expected at most {MAX_PARTS}"
    );
    Ok(())
}

/// How large a part of the schema is, references followed.
#[derive(Clone, Copy)]
struct Extent {
    levels: usize,
    parts: usize,
}

/// Parts are told apart by where they lie in memory.
struct Walk<'a> {
    root: &'a Value,
    known: HashMap<*const Value, Extent>,
    /// The parts that the walk is in.
    open: HashSet<*const Value>,
}

impl<'a> Walk<'a> {
    fn extent(&mut self, part: &'a Value, level: usize) -> anyhow::Result<Extent> {
        let known = self.known.get(&std::ptr::from_ref(part)).copied();
        let levels = level + known.map_or(0, |extent| extent.levels);
        ensure!(
            levels <= MAX_LEVELS,
            "the schema has more than {MAX_LEVELS} levels, every `$ref` followed"
        );
        if let Some(extent) = known {
            return Ok(extent);
        }
        self.open.insert(part);
        let mut below = Vec::new();
        each_below(part, &mut |schema| below.push(schema));
        if let Some(reference) = part.get("$ref").and_then(Value::as_str) {
            let target = self.target(reference)?;
            if self.open.contains(&std::ptr::from_ref(target)) {
                bail!(
                    "the `$ref` {} leads back to itself; expected a schema that comes to an end",
                    crate::shape::excerpt(reference)
                );
            }
            below.push(target);
        }
        let mut extent = Extent {
            levels: 1,
            parts: 1,
        };
        for schema in below {
            let Extent { levels, parts } = self.extent(schema, level + 1)?;
            extent.levels = extent.levels.max(levels + 1);
            extent.parts = extent.parts.saturating_add(parts);
        }
        self.open.remove(&std::ptr::from_ref(part));
        self.known.insert(part, extent);
        Ok(extent)
    }

    fn target(&self, reference: &str) -> anyhow::Result<&'a Value> {
        let shown = crate::shape::excerpt(reference);
        let Some(place) = reference.strip_prefix('#') else {
            bail!(
                "the `$ref` {shown} leads out of the schema; expected a place in it, such as `#/$defs/name`"
            );
        };
        let found = if place.is_empty() || place.starts_with('/') {
            self.root.pointer(place)
        } else {
            anchor(self.root, place)
        };
        found.ok_or_else(|| anyhow::anyhow!("the `$ref` {shown} leads nowhere; expected a place in the schema, such as `#/$defs/name`"))
    }
}

/// The schema with what it refers to in the place of every `$ref`, for client programs that keep `type`, `properties` and
/// `required` of a tool's arguments and lose the rest. It must have passed [`check`], and so comes to an end.
pub(super) fn inline(schema: &Value) -> Value {
    let walk = Walk {
        root: schema,
        known: HashMap::new(),
        open: HashSet::new(),
    };
    let mut inlined = schema.clone();
    walk.inline(&mut inlined);
    inlined
}

impl Walk<'_> {
    fn inline(&self, part: &mut Value) {
        if let Value::Object(members) = part {
            for keyword in REFERRED {
                members.shift_remove(keyword);
            }
        }
        each_below_mut(part, &mut |below| self.inline(below));
        let Value::Object(members) = part else {
            return;
        };
        let target = members
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| self.target(reference).ok());
        let Some(target) = target else { return };
        members.shift_remove("$ref");
        let mut target = target.clone();
        self.inline(&mut target);
        *part = both(target, std::mem::take(members));
    }
}

/// What holds both of a schema and of the keywords that stood beside the reference to it.
fn both(target: Value, mut beside: Map<String, Value>) -> Value {
    match target {
        Value::Object(mut members)
            if beside.iter().all(|(keyword, value)| {
                ANNOTATIONS.contains(&keyword.as_str()) || members.get(keyword) == Some(value)
            }) =>
        {
            // What is said at the place of the reference is said of that place.
            members.extend(beside);
            Value::Object(members)
        }
        target if beside.is_empty() => target,
        target => {
            match beside.get_mut("allOf") {
                Some(Value::Array(all)) => all.push(target),
                _ => _ = beside.insert(String::from("allOf"), Value::Array(vec![target])),
            }
            Value::Object(beside)
        }
    }
}

/// The part with this `$anchor`.
fn anchor<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    if schema.get("$anchor").and_then(Value::as_str) == Some(name) {
        return Some(schema);
    }
    let mut found = None;
    each_below(schema, &mut |below| {
        if found.is_none() {
            found = anchor(below, name);
        }
    });
    found
}

/// Makes the references of a schema right for its new place, a pointer, in another one.
pub(super) fn move_to(schema: &mut Value, place: &str) {
    if let Some(Value::String(reference)) = schema.get_mut("$ref")
        && let Some(pointer) = reference
            .strip_prefix('#')
            .filter(|pointer| pointer.is_empty() || pointer.starts_with('/'))
    {
        *reference = format!("#{place}{pointer}");
    }
    each_below_mut(schema, &mut |below| move_to(below, place));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(schema: &Value) -> String {
        check(schema).unwrap_err().to_string()
    }

    #[test]
    fn references_that_end_are_fine() {
        let schema = json!({
            "type": "object",
            "$defs": {"a": {"$anchor": "here", "type": "string"}, "b": {"allOf": [{"$ref": "#here"}, {"$ref": "#/$defs/a"}]}},
            "properties": {"x": {"$ref": "#/$defs/b"}, "y": {"$ref": "#/$defs/b"}, "$ref": {"default": {"$ref": "nowhere"}}},
        });
        assert!(check(&schema).is_ok());
    }

    #[test]
    fn dangling_remote_and_circular_references_are_refused() {
        assert_eq!(
            refused(&json!({"properties": {"x": {"$ref": "#/$defs/x"}}})),
            "the `$ref` #/$defs/x leads nowhere; expected a place in the schema, such as `#/$defs/name`"
        );
        assert_eq!(
            refused(&json!({"properties": {"x": {"$ref": "https://example.com/x.json"}}})),
            "the `$ref` https://example.com/x.json leads out of the schema; expected a place in it, such as `#/$defs/name`"
        );
        for circular in [
            json!({"properties": {"child": {"$ref": "#"}}}),
            json!({"$ref": "#"}),
            json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}}),
        ] {
            assert!(
                refused(&circular)
                    .ends_with("leads back to itself; expected a schema that comes to an end"),
                "{circular}"
            );
        }
    }

    #[test]
    fn references_that_double_are_counted_and_not_followed() {
        let mut definitions = serde_json::Map::new();
        for index in 0..20 {
            let next = format!("#/$defs/d{}", index + 1);
            definitions.insert(
                format!("d{index}"),
                json!({"allOf": [{"$ref": next}, {"$ref": next}]}),
            );
        }
        definitions.insert("d20".into(), json!({"type": "string"}));
        let message =
            refused(&json!({"$defs": definitions, "properties": {"x": {"$ref": "#/$defs/d0"}}}));
        assert!(
            message.ends_with("parts, every `$ref` followed; expected at most 10000"),
            "{message}"
        );
    }

    #[test]
    fn a_chain_of_references_is_deep() {
        let mut definitions = serde_json::Map::new();
        for index in 0..1_000 {
            definitions.insert(
                format!("d{index}"),
                json!({"$ref": format!("#/$defs/d{}", index + 1)}),
            );
        }
        definitions.insert("d1000".into(), json!({}));
        assert_eq!(
            refused(&json!({"$defs": definitions})),
            "the schema has more than 64 levels, every `$ref` followed"
        );
    }

    /// Case H7: a client that keeps `type`, `properties` and `required` loses nothing.
    #[test]
    fn h7_what_is_referred_to_stands_in_the_place_of_the_reference() {
        let schema = json!({
            "type": "object",
            "$defs": {
                "name": {"$anchor": "name", "type": "string", "description": "A name.", "minLength": 1},
                "pair": {"type": "object", "properties": {"first": {"$ref": "#name"}, "second": {"$ref": "#/$defs/name"}}},
            },
            "properties": {
                "pair": {"$ref": "#/$defs/pair", "title": "Both"},
                "owner": {"$ref": "#/$defs/name", "description": "Who owns it."},
                "short": {"$ref": "#/$defs/name", "maxLength": 3},
                "two": {"allOf": [{"maxLength": 9}], "$ref": "#/$defs/name", "pattern": "^a"},
                "same": {"$ref": "#/properties/owner"},
                "definitions": {"type": "array", "items": {"$ref": "#/$defs/name"}},
                "words": {"enum": [{"$ref": "#/$defs/name"}], "default": {"$defs": 1}},
            },
            "required": ["pair"],
        });
        assert!(check(&schema).is_ok());
        let name = json!({"type": "string", "description": "A name.", "minLength": 1});
        let owner = json!({"type": "string", "description": "Who owns it.", "minLength": 1});
        let expected = json!({
            "type": "object",
            "properties": {
                "pair": {"type": "object", "properties": {"first": name, "second": name}, "title": "Both"},
                "owner": owner,
                // What constrains beside a reference goes on to constrain: both have to hold.
                "short": {"maxLength": 3, "allOf": [name]},
                "two": {"allOf": [{"maxLength": 9}, name], "pattern": "^a"},
                "same": owner,
                "definitions": {"type": "array", "items": name},
                // Values are no schemas.
                "words": {"enum": [{"$ref": "#/$defs/name"}], "default": {"$defs": 1}},
            },
            "required": ["pair"],
        });
        assert_eq!(inline(&schema), expected);
        // Both say the same of every value.
        let before = jsonschema::draft202012::new(&schema).unwrap();
        let after = jsonschema::draft202012::new(&expected).unwrap();
        for value in [
            json!({"pair": {"first": "a", "second": "b"}}),
            json!({"pair": {"first": ""}}),
            json!({"pair": {}, "owner": 1}),
            json!({"pair": {}, "short": "abcd"}),
            json!({"pair": {}, "short": "abc", "two": "abc", "same": "x", "definitions": ["a"]}),
            json!({"pair": {}, "two": "aaaaaaaaaa"}),
            json!({"pair": {}, "definitions": [""]}),
            json!({}),
        ] {
            assert_eq!(before.is_valid(&value), after.is_valid(&value), "{value}");
        }
        // A root that is nothing but a reference is what it refers to.
        let root = json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"x": true}}}});
        assert_eq!(
            inline(&root),
            json!({"type": "object", "properties": {"x": true}})
        );
    }

    #[test]
    fn references_move_with_their_schema() {
        let mut schema = json!({"$defs": {"a": {}}, "items": {"$ref": "#/$defs/a"}, "properties": {"x": {"$ref": "#"}}, "const": {"$ref": "#"}});
        move_to(&mut schema, "/properties/body");
        assert_eq!(schema["items"]["$ref"], "#/properties/body/$defs/a");
        assert_eq!(schema["properties"]["x"]["$ref"], "#/properties/body");
        assert_eq!(schema["const"]["$ref"], "#");
    }
}
