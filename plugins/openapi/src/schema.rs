//! Schemas of OpenAPI 3.0 and 3.1 as JSON Schema 2020-12, with what they refer to in the place of every reference.
//!
//! A schema that contains itself, or that goes on for too long, ends in a placeholder that says what is left out. What only
//! documentation generators read (`xml`, `discriminator`, extensions, titles) is dropped, since every byte of a listing is
//! paid for by its readers.

use std::borrow::Cow;

use crate::document::Document;
use crate::json::{Node, compact, quote};

/// Levels of a schema before what lies deeper is left out. Hand-written ones have five to ten.
pub(crate) const MAX_LEVELS: usize = 12;

/// Bytes of an example that is kept: a line.
const MAX_EXAMPLE_BYTES: usize = 200;

/// The types of JSON Schema.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Keywords whose value is a schema.
const SCHEMAS: [&str; 9] = [
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedProperties",
];

/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords whose value maps names to schemas.
const MAPS: [&str; 3] = ["dependentSchemas", "patternProperties", "properties"];

/// Keywords whose value is a number that is kept as it is.
const NUMBERS: [&str; 9] = [
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "multipleOf",
];

type Members<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

/// A schema as its members, once references have been followed.
struct Open<'a> {
    members: Members<'a>,
    /// How many references were followed to get here.
    followed: usize,
}

/// A reference that is not followed.
struct LeftOut<'a> {
    reference: String,
    /// Whether it leads to a schema that it is in.
    is_recursion: bool,
    target: Option<Node<'a>>,
}

impl LeftOut<'_> {
    fn write(&self, description: Option<&str>, out: &mut String) {
        let why = if self.is_recursion {
            "it contains itself"
        } else if self.reference.starts_with('#') {
            "the document does not have it"
        } else {
            "it is in another document"
        };
        let text = format!("{} is left out here: {why}.", last(&self.reference));
        let members: Members<'_> = self.target.into_iter().flat_map(Node::members).collect();
        placeholder(&members, &text, description, out);
    }
}

/// Writes schemas of one document.
pub(crate) struct Writer<'d, 'a> {
    document: &'d Document<'a>,
    max_levels: usize,
    /// The references that the writer is in.
    open: Vec<String>,
}

impl<'d, 'a> Writer<'d, 'a> {
    pub(crate) fn new(document: &'d Document<'a>, max_levels: usize) -> Self {
        Self {
            document,
            max_levels,
            open: Vec::new(),
        }
    }

    /// A schema as it is.
    #[cfg(test)]
    fn write(&mut self, schema: Node<'a>, out: &mut String) {
        self.at(schema, 1, None, out);
    }

    /// The schema of a property of the root, with a description of its own.
    pub(crate) fn property(
        &mut self,
        schema: Node<'a>,
        description: Option<&str>,
        out: &mut String,
    ) {
        self.at(schema, 2, description, out);
    }

    /// The schema of an argument that goes into a path, a query or a header: null would be its absence, and is left out.
    pub(crate) fn argument(
        &mut self,
        schema: Node<'a>,
        description: Option<&str>,
        out: &mut String,
    ) {
        let mut choices = schema.get("anyOf").into_iter().flat_map(Node::items);
        let is_null = |node: &Node<'a>| node.string_of("type").as_deref() == Some("null");
        let (first, second, third) = (choices.next(), choices.next(), choices.next());
        let only = match (first, second, third) {
            (Some(one), Some(null), None) if is_null(&null) => Some(one),
            (Some(null), Some(one), None) if is_null(&null) => Some(one),
            _ => None,
        };
        let Some(only) = only else {
            self.at(schema, 2, description, out);
            return;
        };
        let beside: Members<'a> = schema
            .members()
            .filter(|(key, value)| {
                key != "anyOf" && key != "nullable" && !(key == "default" && value.is_null())
            })
            .collect();
        match self.follow(only) {
            Ok(mut open) => {
                beside_over(&mut open.members, beside);
                self.members(&open.members, 2, description, out);
                self.open.truncate(self.open.len() - open.followed);
            }
            Err(left_out) => left_out.write(description, out),
        }
    }

    fn at(&mut self, schema: Node<'a>, level: usize, description: Option<&str>, out: &mut String) {
        if matches!(schema.text(), "true" | "false") {
            match description {
                None => out.push_str(schema.text()),
                Some(_) => self.members(&Vec::new(), level, description, out),
            }
            return;
        }
        match self.follow(schema) {
            Ok(open) => {
                let is_nested = |(key, _): &(Cow<'a, str>, Node<'a>)| {
                    let key = key.as_ref();
                    SCHEMAS.contains(&key) || LISTS.contains(&key) || MAPS.contains(&key)
                };
                if level > self.max_levels && open.members.iter().any(is_nested) {
                    let name = self.open.last().cloned();
                    let what = name.as_deref().map_or("the schema", last);
                    let text = format!(
                        "{what} is left out here: it lies deeper than {} levels.",
                        self.max_levels
                    );
                    placeholder(&open.members, &text, description, out);
                } else {
                    self.members(&open.members, level, description, out);
                }
                self.open.truncate(self.open.len() - open.followed);
            }
            Err(left_out) => left_out.write(description, out),
        }
    }

    /// Follows references to what has members; the error is a reference that leads back, nowhere, or out of the document.
    fn follow(&mut self, schema: Node<'a>) -> Result<Open<'a>, LeftOut<'a>> {
        let mut members: Members<'a> = schema.members().collect();
        let mut followed = 0;
        while let Some(at) = members
            .iter()
            .position(|(key, value)| key == "$ref" && value.is_string())
        {
            let reference = members[at].1.string().unwrap_or_default().into_owned();
            let target = self.document.target(&reference);
            let is_open = self.open.contains(&reference);
            let Some(target) = target.filter(|_| !is_open) else {
                self.open.truncate(self.open.len() - followed);
                return Err(LeftOut {
                    is_recursion: is_open,
                    reference,
                    target,
                });
            };
            self.open.push(reference);
            followed += 1;
            members.remove(at);
            let beside = std::mem::take(&mut members);
            members = target.members().collect();
            beside_over(&mut members, beside);
        }
        Ok(Open { members, followed })
    }

    fn members(
        &mut self,
        members: &Members<'a>,
        level: usize,
        description: Option<&str>,
        out: &mut String,
    ) {
        let get = |name: &str| {
            members
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| *value)
        };
        let is_nullable = get("nullable").is_some_and(Node::is_true);
        // Null beside something that is no plain type is a choice of its own.
        let is_choice = is_nullable
            && get("type").is_none()
            && members.iter().any(|(key, _)| {
                LISTS.contains(&key.as_ref()) || key == "enum" || key == "properties"
            });
        let own = description.map(str::to_owned);
        let text = own.or_else(|| {
            get("description")
                .and_then(Node::string)
                .map(Cow::into_owned)
        });
        let mut object = Object::new(out);
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            quote(&text, object.key("description"));
        }
        if is_choice {
            let list = object.key("anyOf");
            list.push('[');
            let mut inner = Object::new(list);
            self.keywords(members, level, false, &mut inner);
            inner.end();
            list.push_str(",{\"type\":\"null\"}]");
        } else {
            self.keywords(members, level, is_nullable, &mut object);
        }
        object.end();
    }

    fn keywords(
        &mut self,
        members: &Members<'a>,
        level: usize,
        is_nullable: bool,
        object: &mut Object<'_>,
    ) {
        let get = |name: &str| {
            members
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| *value)
        };
        let read_only = |node: Node<'a>| node.get("readOnly").is_some_and(Node::is_true);
        let hidden: Vec<Cow<'a, str>> = get("properties")
            .into_iter()
            .flat_map(Node::members)
            .filter(|(_, schema)| read_only(*schema))
            .map(|(name, _)| name)
            .collect();
        for (key, value) in members {
            let (key, value) = (key.as_ref(), *value);
            match key {
                "type" => write_type(value, is_nullable, object),
                "enum" if value.is_array() => {
                    let out = object.key(key);
                    compact(value, out);
                    if is_nullable && !value.items().any(Node::is_null) {
                        out.pop();
                        out.push_str(if out.ends_with('[') {
                            "null]"
                        } else {
                            ",null]"
                        });
                    }
                }
                "const" | "default" => compact(value, object.key(key)),
                "format" | "pattern" if value.is_string() => compact(value, object.key(key)),
                "uniqueItems" | "deprecated" if value.is_true() => compact(value, object.key(key)),
                "minimum" | "maximum" if value.is_number() => {
                    let exclusive = if key == "minimum" {
                        "exclusiveMinimum"
                    } else {
                        "exclusiveMaximum"
                    };
                    let is_exclusive = get(exclusive).is_some_and(Node::is_true);
                    compact(
                        value,
                        object.key(if is_exclusive { exclusive } else { key }),
                    );
                }
                "exclusiveMinimum" | "exclusiveMaximum" if value.is_number() => {
                    compact(value, object.key(key))
                }
                _ if NUMBERS.contains(&key) && value.is_number() => compact(value, object.key(key)),
                "required" if value.is_array() => {
                    let mut names: Vec<Cow<'a, str>> = Vec::new();
                    for name in value.items().filter_map(Node::string) {
                        if !names.contains(&name) && !hidden.contains(&name) {
                            names.push(name);
                        }
                    }
                    if !names.is_empty() {
                        quote_all(&names, object.key(key));
                    }
                }
                "dependentRequired" if value.is_object() => compact(value, object.key(key)),
                "items" if value.is_array() => self.list(value, level, object.key("prefixItems")),
                _ if SCHEMAS.contains(&key) => self.at(value, level + 1, None, object.key(key)),
                _ if LISTS.contains(&key) && value.items().next().is_some() => {
                    self.list(value, level, object.key(key));
                }
                _ if MAPS.contains(&key) && value.is_object() => {
                    let mut map = Object::new(object.key(key));
                    for (name, schema) in value.members() {
                        if !(key == "properties" && hidden.contains(&name)) {
                            self.at(schema, level + 1, None, map.key(&name));
                        }
                    }
                    map.end();
                }
                "example"
                    if get("examples").is_none() && value.text().len() <= MAX_EXAMPLE_BYTES =>
                {
                    let out = object.key("examples");
                    out.push('[');
                    compact(value, out);
                    out.push(']');
                }
                "examples" if value.is_array() && value.text().len() <= MAX_EXAMPLE_BYTES => {
                    compact(value, object.key(key));
                }
                _ => {}
            }
        }
    }

    fn list(&mut self, list: Node<'a>, level: usize, out: &mut String) {
        out.push('[');
        for (index, schema) in list.items().enumerate() {
            if index > 0 {
                out.push(',');
            }
            self.at(schema, level + 1, None, out);
        }
        out.push(']');
    }
}

/// Puts what stands beside a reference over what it leads to.
fn beside_over<'a>(members: &mut Members<'a>, beside: Members<'a>) {
    for (key, value) in beside {
        match members.iter_mut().find(|(other, _)| *other == key) {
            Some((_, place)) => *place = value,
            None => members.push((key, value)),
        }
    }
}

/// The last part of a reference: the name of what it leads to.
fn last(reference: &str) -> &str {
    reference.rsplit('/').next().unwrap_or(reference)
}

/// What stands in the place of something that is left out: its type, and why.
fn placeholder(
    members: &[(Cow<'_, str>, Node<'_>)],
    text: &str,
    description: Option<&str>,
    out: &mut String,
) {
    let mut object = Object::new(out);
    let text = match description {
        Some(description) if !description.is_empty() => format!("{description} ({text})"),
        _ => text.to_owned(),
    };
    quote(&text, object.key("description"));
    let is_nullable = members
        .iter()
        .any(|(key, value)| key == "nullable" && value.is_true());
    if let Some((_, kind)) = members.iter().find(|(key, _)| key == "type") {
        write_type(*kind, is_nullable, &mut object);
    }
    object.end();
}

/// `type`, without what is no type of JSON Schema.
fn write_type(value: Node<'_>, is_nullable: bool, object: &mut Object<'_>) {
    let listed = value.items().filter_map(Node::string);
    let mut kinds: Vec<Cow<'_, str>> = value
        .string()
        .into_iter()
        .chain(listed)
        .filter(|kind| TYPES.contains(&kind.as_ref()))
        .collect();
    if kinds.is_empty() {
        return;
    }
    if is_nullable && !kinds.iter().any(|kind| kind == "null") {
        kinds.push(Cow::Borrowed("null"));
    }
    kinds.dedup();
    let out = object.key("type");
    match &kinds[..] {
        [kind] => quote(kind, out),
        kinds => quote_all(kinds, out),
    }
}

fn quote_all(texts: &[Cow<'_, str>], out: &mut String) {
    out.push('[');
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        quote(text, out);
    }
    out.push(']');
}

/// An object that is being written; each key once.
pub(crate) struct Object<'o> {
    out: &'o mut String,
    keys: Vec<String>,
}

impl<'o> Object<'o> {
    pub(crate) fn new(out: &'o mut String) -> Self {
        out.push('{');
        Self {
            out,
            keys: Vec::new(),
        }
    }

    /// Begins a member; its value is what is added next.
    pub(crate) fn key(&mut self, key: &str) -> &mut String {
        if !self.keys.is_empty() {
            self.out.push(',');
        }
        self.keys.push(key.to_owned());
        quote(key, self.out);
        self.out.push(':');
        self.out
    }

    pub(crate) fn end(self) {
        self.out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn document(schemas: &Value) -> String {
        json!({"openapi": "3.0.0", "paths": {}, "components": {"schemas": schemas}}).to_string()
    }

    fn convert_in(schemas: &Value, schema: &Value, levels: usize) -> Value {
        let text = document(schemas);
        let document = Document::read(&text, None).unwrap();
        let (schema, mut out) = (schema.to_string(), String::new());
        // The node has to live as long as the document, as it does where it lies in it.
        let schema: &'static str = schema.leak();
        let mut writer = Writer::new(&document, levels);
        writer.write(Node::of(schema).unwrap(), &mut out);
        assert_eq!(writer.open, [""; 0]);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    fn convert(schema: &Value) -> Value {
        convert_in(&json!({}), schema, MAX_LEVELS)
    }

    #[test]
    fn nullable_becomes_a_type_of_its_own() {
        for (schema, expected) in [
            (
                json!({"type": "string", "nullable": true}),
                json!({"type": ["string", "null"]}),
            ),
            (
                json!({"type": "string", "nullable": false}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
                json!({"type": ["string", "null"], "enum": ["a", null]}),
            ),
            (
                json!({"nullable": true, "allOf": [{"type": "string"}]}),
                json!({"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
            ),
            (
                json!({"type": ["string", "null"]}),
                json!({"type": ["string", "null"]}),
            ),
            (json!({"nullable": true}), json!({})),
        ] {
            assert_eq!(convert(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn keywords_of_3_0_become_those_of_json_schema() {
        for (schema, expected) in [
            (
                json!({"type": "number", "minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}),
                json!({"type": "number", "exclusiveMinimum": 1, "maximum": 9}),
            ),
            (
                json!({"exclusiveMaximum": 4.0}),
                json!({"exclusiveMaximum": 4.0}),
            ),
            (
                json!({"type": "integer", "example": 3}),
                json!({"type": "integer", "examples": [3]}),
            ),
            (json!({"example": "x".repeat(300)}), json!({})),
            (json!({"type": "file"}), json!({})),
            (
                json!({"required": true, "type": "string"}),
                json!({"type": "string"}),
            ),
            (
                json!({"items": [{"type": "string"}]}),
                json!({"prefixItems": [{"type": "string"}]}),
            ),
            (
                json!({"oneOf": [], "xml": {}, "discriminator": {}, "x-y": 1, "title": "T", "externalDocs": {}}),
                json!({}),
            ),
            (
                json!({"additionalProperties": false}),
                json!({"additionalProperties": false}),
            ),
            (
                json!({"pattern": "^a$", "format": "date", "minLength": 1, "default": null, "uniqueItems": true, "deprecated": true}),
                json!({"pattern": "^a$", "format": "date", "minLength": 1, "default": null, "uniqueItems": true, "deprecated": true}),
            ),
        ] {
            assert_eq!(convert(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn what_only_the_backend_sets_is_no_property() {
        assert_eq!(
            convert(
                &json!({"type": "object", "required": ["id", "name", "name"], "properties": {
                "id": {"type": "integer", "readOnly": true}, "name": {"type": "string"}}})
            ),
            json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}})
        );
    }

    #[test]
    fn references_are_replaced_by_what_they_lead_to_and_what_stands_beside_them_wins() {
        let schemas = json!({"A": {"$ref": "#/components/schemas/B"}, "B": {"type": "string", "description": "b"}});
        assert_eq!(
            convert_in(
                &schemas,
                &json!({"properties": {"x": {"$ref": "#/components/schemas/A", "description": "mine"},
                "y": {"$ref": "#/components/schemas/A"}}}),
                MAX_LEVELS
            ),
            json!({"properties": {"x": {"type": "string", "description": "mine"}, "y": {"type": "string", "description": "b"}}})
        );
        for (reference, why) in [
            (
                "#/components/schemas/C",
                "C is left out here: the document does not have it.",
            ),
            (
                "other.json#/D",
                "D is left out here: it is in another document.",
            ),
        ] {
            assert_eq!(
                convert(&json!({"$ref": reference})),
                json!({"description": why})
            );
        }
    }

    #[test]
    fn a_schema_that_contains_itself_ends_in_a_placeholder() {
        let schemas = json!({"Node": {"type": "object", "properties": {
            "name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}}}});
        assert_eq!(
            convert_in(
                &schemas,
                &json!({"$ref": "#/components/schemas/Node"}),
                MAX_LEVELS
            ),
            json!({"type": "object", "properties": {"name": {"type": "string"}, "children": {"type": "array",
                "items": {"description": "Node is left out here: it contains itself.", "type": "object"}}}})
        );
        let schemas = json!({"L": {"$ref": "#/components/schemas/L"}});
        assert_eq!(
            convert_in(
                &schemas,
                &json!({"$ref": "#/components/schemas/L"}),
                MAX_LEVELS
            ),
            json!({"description": "L is left out here: it contains itself."})
        );
    }

    #[test]
    fn what_lies_too_deep_ends_in_a_placeholder_that_says_so() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}},
            "c": {"type": "string"}}});
        assert_eq!(
            convert_in(&json!({}), &schema, 1),
            json!({"type": "object", "properties": {"a": {"type": "object",
                "description": "the schema is left out here: it lies deeper than 1 levels."}, "c": {"type": "string"}}})
        );
        assert_eq!(convert_in(&json!({}), &schema, 2), schema);
        assert_eq!(MAX_LEVELS, 12);
    }

    #[test]
    fn an_argument_loses_the_null_that_means_absence() {
        let text = document(&json!({"S": {"type": "string", "enum": ["a"]}}));
        let document = Document::read(&text, None).unwrap();
        for (schema, expected) in [
            (
                r#"{"anyOf":[{"type":"integer","maximum":100},{"type":"null"}],"default":null,"title":"Limit"}"#,
                json!({"description": "d", "type": "integer", "maximum": 100}),
            ),
            (
                r##"{"anyOf":[{"type":"null"},{"$ref":"#/components/schemas/S"}],"default":"a"}"##,
                json!({"description": "d", "type": "string", "enum": ["a"], "default": "a"}),
            ),
            (
                r#"{"anyOf":[{"type":"integer"},{"type":"string"}]}"#,
                json!({"description": "d", "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
        ] {
            let mut out = String::new();
            Writer::new(&document, MAX_LEVELS).argument(
                Node::of(schema).unwrap(),
                Some("d"),
                &mut out,
            );
            let found: Value = serde_json::from_str(&out).unwrap();
            assert_eq!(found, expected, "{schema}");
        }
    }
}
