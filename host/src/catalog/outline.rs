//! Outlines of what is said of a tool: its entry in `tools/list`, held to bounds by leaving out what lies deeper.
//!
//! What is left out of a schema has a placeholder in its place, itself a valid schema, that names the call of `load_tool`
//! which gets it. Owns: which parts of an entry are schemas, and where its JSON pointers lead. Does not know budgets: whoever
//! does asks for one outline after the other.

use serde_json::{Map, Value, json};

use super::references;
use super::{Meta, Tool};

/// Levels of a schema that an outline shows at most. Hand-written schemas have five to ten, and a model that needs more of one
/// asks for the part.
pub(super) const MAX_LEVELS: usize = 8;

/// Bytes of an outline that is given up: more than any budget takes, and less than following every reference could make.
const MAX_BYTES: usize = 1 << 20;

/// Characters of a description that a placeholder keeps.
const MAX_PLACEHOLDER_CHARS: usize = 160;

/// How large an outline may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Levels of the input schema, or of what a pointer leads to; 0 leaves all of it out.
    pub levels: usize,
    /// Levels of the output schema.
    pub output_levels: usize,
    /// Members of one map of schemas, and items of one list of values.
    pub members: usize,
    /// Characters of one text.
    pub text: usize,
}

impl Bounds {
    /// Every member and the whole of every text, with so many levels.
    pub fn of_levels(levels: usize, output_levels: usize) -> Self {
        Self {
            levels,
            output_levels,
            members: usize::MAX,
            text: usize::MAX,
        }
    }

    /// Ever smaller ones, for an entry of which not even one level fits. The last leaves every schema out.
    pub fn shrinking() -> impl Iterator<Item = Self> {
        // Descriptions first: client programs cut them too.
        let steps = [
            (usize::MAX, 2_048),
            (usize::MAX, 256),
            (64, 256),
            (32, 128),
            (16, 64),
            (4, 32),
            (0, 16),
        ];
        steps.into_iter().map(|(members, text)| Self {
            levels: usize::from(members > 0),
            output_levels: 0,
            members,
            text,
        })
    }
}

/// An outline.
#[derive(Debug, Clone, PartialEq)]
pub struct Outline {
    /// What it shows.
    pub shown: Value,
    /// How many parts were left out or shortened.
    pub left_out: usize,
}

/// What stands at a place of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The entry itself.
    Entry,
    Schema,
    /// Names with schemas.
    Map,
    /// Schemas.
    List,
    /// Anything else.
    Plain,
}

impl Kind {
    /// What stands below, under this name.
    fn below(self, name: &str, value: &Value) -> Self {
        match (self, value) {
            (Self::Entry, Value::Object(_)) if matches!(name, "inputSchema" | "outputSchema") => {
                Self::Schema
            }
            (Self::Map | Self::List, _) => Self::Schema,
            (Self::Schema, _) if references::INSTANCES.contains(&name) => Self::Plain,
            (Self::Schema, Value::Object(_)) if references::MAPS.contains(&name) => Self::Map,
            (Self::Schema, Value::Object(_)) => Self::Schema,
            (Self::Schema, Value::Array(items)) if items.iter().any(Value::is_object) => Self::List,
            _ => Self::Plain,
        }
    }
}

/// Where a pointer does not lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nowhere {
    /// The longest part of it that leads somewhere.
    pub prefix: String,
    /// The names there.
    pub members: Vec<String>,
}

/// What is said of one tool.
#[derive(Debug)]
pub struct Entry<'a> {
    name: &'a str,
    /// As it is listed, with what its schemas refer to in the place of every reference.
    value: Value,
}

impl<'a> Entry<'a> {
    /// What is said of a tool.
    pub fn of(tool: &'a Tool) -> Self {
        let mut value = tool.listed.clone();
        if let Value::Object(members) = &mut value {
            // For client programs, and not for who reads it.
            members.shift_remove("_meta");
        }
        for schema in ["inputSchema", "outputSchema"] {
            if let Some(schema) = value.get_mut(schema) {
                *schema = references::inline(schema);
            }
        }
        Self {
            name: tool.name(),
            value,
        }
    }

    /// The place that a JSON pointer leads to.
    ///
    /// # Errors
    ///
    /// How far it leads.
    pub fn place(&self, pointer: &str) -> Result<Place<'_>, Nowhere> {
        let mut place = Place {
            tool: self.name,
            pointer: String::new(),
            kind: Kind::Entry,
            value: &self.value,
        };
        let tokens = pointer.strip_prefix('/').map(|rest| rest.split('/'));
        if tokens.is_none() && !pointer.is_empty() {
            return Err(place.nowhere());
        }
        for token in tokens.into_iter().flatten() {
            let name = token.replace("~1", "/").replace("~0", "~");
            let below = match place.value {
                Value::Object(members) => members.get(&name),
                Value::Array(items) => name.parse().ok().and_then(|index: usize| items.get(index)),
                _ => None,
            };
            let Some(below) = below else {
                return Err(place.nowhere());
            };
            place.kind = place.kind.below(&name, below);
            place.value = below;
            place.pointer.push('/');
            place.pointer.push_str(token);
        }
        Ok(place)
    }
}

/// A place in what is said of a tool.
#[derive(Debug)]
pub struct Place<'a> {
    tool: &'a str,
    pointer: String,
    kind: Kind,
    value: &'a Value,
}

impl Place<'_> {
    fn nowhere(&self) -> Nowhere {
        let members = match self.value {
            Value::Object(members) => members.keys().cloned().collect(),
            Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
            _ => Vec::new(),
        };
        Nowhere {
            prefix: self.pointer.clone(),
            members,
        }
    }

    /// Levels of schemas that have others in them, from here on: so many show everything. At most [`MAX_LEVELS`].
    pub fn levels(&self) -> usize {
        fn levels(kind: Kind, value: &Value, left: usize) -> usize {
            if left == 0 {
                return 0;
            }
            let members = value.as_object().filter(|_| kind == Kind::Schema);
            let own = usize::from(members.is_some_and(has_below));
            let below = |(name, value): (&str, &Value)| {
                let kind = kind.below(name, value);
                let is_plain = kind == Kind::Plain;
                if is_plain {
                    0
                } else {
                    levels(kind, value, left - own)
                }
            };
            let deepest = match value {
                Value::Object(members) => members
                    .iter()
                    .map(|(name, value)| below((name, value)))
                    .max(),
                Value::Array(items) => items.iter().map(|value| below(("", value))).max(),
                _ => None,
            };
            own + deepest.unwrap_or_default()
        }
        levels(self.kind, self.value, MAX_LEVELS)
    }

    /// Whether an output schema is below this place.
    pub fn has_output(&self) -> bool {
        self.kind == Kind::Entry && self.value.get("outputSchema").is_some()
    }

    /// What is here, within bounds; none where it is larger than anybody takes.
    pub fn outline(&self, bounds: Bounds) -> Option<Outline> {
        let mut walk = Walk {
            tool: self.tool,
            bounds,
            left_out: 0,
            bytes: 0,
        };
        let shown = walk.at(self.kind, self.value, &self.pointer, 0)?;
        Some(Outline {
            shown,
            left_out: walk.left_out,
        })
    }
}

struct Walk<'a> {
    tool: &'a str,
    bounds: Bounds,
    left_out: usize,
    /// Bytes that were written, roughly.
    bytes: usize,
}

impl Walk<'_> {
    /// How the rest of a place is got.
    fn how(&mut self, pointer: &str) -> String {
        self.left_out += 1;
        let call = json!({"name": self.tool, "pointer": pointer});
        format!("{} {call}", Meta::Load.name())
    }

    fn at(&mut self, kind: Kind, value: &Value, pointer: &str, level: usize) -> Option<Value> {
        self.bytes += pointer.len().min(16) + 8;
        if self.bytes > MAX_BYTES {
            return None;
        }
        let level = level + usize::from(kind == Kind::Schema);
        match (kind, value) {
            (Kind::Schema, Value::Object(members))
                if level > self.bounds.levels && has_below(members) =>
            {
                Some(self.placeholder(members, pointer))
            }
            (Kind::Entry, Value::Object(members)) => {
                let mut shown = Map::new();
                for (name, below) in members {
                    let input_levels = self.bounds.levels;
                    if name == "outputSchema" {
                        self.bounds.levels = self.bounds.output_levels;
                    }
                    let below = self.below(kind, name, below, pointer, level);
                    self.bounds.levels = input_levels;
                    shown.insert(name.clone(), below?);
                }
                Some(Value::Object(shown))
            }
            (Kind::Schema, Value::Object(members)) => self.schema(members, pointer, level),
            (Kind::Map, Value::Object(members)) => {
                let mut shown = Map::new();
                for (name, below) in members.iter().take(self.bounds.members) {
                    shown.insert(name.clone(), self.below(kind, name, below, pointer, level)?);
                }
                if self.bounds.members < members.len() && level == 0 {
                    // The caller asked for the map itself, whose members nothing else names.
                    self.left_out += members.len() - self.bounds.members;
                }
                Some(Value::Object(shown))
            }
            (_, Value::Array(items)) => {
                let mut shown = Vec::new();
                for (index, below) in items.iter().take(self.bounds.members).enumerate() {
                    shown.push(self.below(kind, &index.to_string(), below, pointer, level)?);
                }
                self.left_out += items.len() - shown.len();
                Some(Value::Array(shown))
            }
            (_, Value::String(text)) => {
                let shown = self.text(text, pointer);
                self.bytes += text.len().min(self.bounds.text.saturating_mul(4));
                (self.bytes <= MAX_BYTES).then_some(shown)
            }
            _ => {
                self.bytes += value.to_string().len();
                Some(value.clone())
            }
        }
    }

    fn below(
        &mut self,
        kind: Kind,
        name: &str,
        value: &Value,
        pointer: &str,
        level: usize,
    ) -> Option<Value> {
        let token = name.replace('~', "~0").replace('/', "~1");
        self.bytes += name.len();
        self.at(
            kind.below(name, value),
            value,
            &format!("{pointer}/{token}"),
            level,
        )
    }

    /// A schema within its bounds: a map of which members are left out, or a list of values, says so in a comment.
    fn schema(
        &mut self,
        members: &Map<String, Value>,
        pointer: &str,
        level: usize,
    ) -> Option<Value> {
        let mut shown = Map::new();
        let mut comments = Vec::new();
        for (keyword, value) in members {
            let length = match value {
                Value::Object(named) if Kind::Schema.below(keyword, value) == Kind::Map => {
                    named.len()
                }
                Value::Array(items) => items.len(),
                _ => 0,
            };
            if length > self.bounds.members {
                let more = length - self.bounds.members;
                let place = format!("{pointer}/{keyword}");
                comments.push(format!("{more} more of {keyword}: {}", self.how(&place)));
                // A part of an `enum` or a `required` would say something else than the whole.
                if value.is_array() {
                    continue;
                }
            }
            let below = self.below(Kind::Schema, keyword, value, pointer, level)?;
            shown.insert(keyword.clone(), below);
        }
        if !comments.is_empty() {
            // What is not shown may still be passed.
            shown.shift_remove("additionalProperties");
            shown.shift_remove("unevaluatedProperties");
            shown.insert("$comment".into(), comments.join("; ").into());
        }
        Some(Value::Object(shown))
    }

    /// What stands in the place of a schema that lies deeper.
    fn placeholder(&mut self, members: &Map<String, Value>, pointer: &str) -> Value {
        let mut shown = Map::new();
        if let Some(kind) = members.get("type") {
            shown.insert("type".into(), kind.clone());
        }
        let max = self.bounds.text.min(MAX_PLACEHOLDER_CHARS);
        if let Some(text) = members.get("description").and_then(Value::as_str) {
            shown.insert(
                "description".into(),
                cut(text, max).unwrap_or(text.into()).into(),
            );
        }
        shown.insert(
            "$comment".into(),
            format!("left out here: {}", self.how(pointer)).into(),
        );
        let shown = Value::Object(shown);
        self.bytes += shown.to_string().len();
        shown
    }

    /// A text, cut on a character boundary where it is too long, with how the whole is got.
    fn text(&mut self, text: &str, pointer: &str) -> Value {
        match cut(text, self.bounds.text) {
            None => text.into(),
            Some(cut) if pointer.matches('/').count() > 1 => {
                self.left_out += 1;
                cut.into()
            }
            // Of the entry's own texts the description is the one that is long.
            Some(cut) => {
                let chars = text.chars().count();
                format!("{cut} ({chars} characters: {})", self.how(pointer)).into()
            }
        }
    }
}

/// Whether a schema has other schemas in it.
fn has_below(members: &Map<String, Value>) -> bool {
    members
        .iter()
        .any(|(name, value)| Kind::Schema.below(name, value) != Kind::Plain)
}

/// The first `max` characters of a text that has more, with a mark.
pub(super) fn cut(text: &str, max: usize) -> Option<String> {
    let (end, _) = text.char_indices().nth(max)?;
    Some(format!("{}…", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry<'static> {
        let value = json!({
            "name": "pay",
            "description": "Pays äöü a bill.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "bill": {"type": "object", "description": "The bill.", "properties": {
                        "lines": {"type": "array", "items": {"type": "object", "properties": {"a/b": {"type": "object", "properties": {"c": {"type": "string"}}}}}},
                    }},
                    "state": {"enum": ["open", "paid", "late"]},
                    "properties": {"type": "string"},
                },
                "required": ["bill"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": false},
        });
        Entry { name: "pay", value }
    }

    fn is_valid(schema: &Value) -> bool {
        jsonschema::draft202012::meta::is_valid(schema)
    }

    #[test]
    fn what_lies_deeper_has_a_placeholder_that_names_the_call_which_loads_it() {
        let entry = entry();
        let place = entry.place("").unwrap();
        assert_eq!(place.levels(), 5);
        let outline = |levels| place.outline(Bounds::of_levels(levels, 0)).unwrap();
        let one = outline(1);
        assert_eq!(
            one.shown["inputSchema"]["properties"],
            json!({
                "bill": {
                    "type": "object",
                    "description": "The bill.",
                    "$comment": "left out here: load_tool {\"name\":\"pay\",\"pointer\":\"/inputSchema/properties/bill\"}",
                },
                "state": {"enum": ["open", "paid", "late"]},
                "properties": {"type": "string"},
            })
        );
        assert_eq!(one.left_out, 1);
        for levels in 0..=5 {
            let outline = outline(levels);
            assert!(is_valid(&outline.shown["inputSchema"]), "{outline:?}");
            assert_eq!(outline.left_out, usize::from(levels < 5), "{levels}");
        }
        assert_eq!(outline(5).shown, entry.value);
        // A name with a slash, below three levels.
        let part = entry
            .place("/inputSchema/properties/bill/properties/lines/items")
            .unwrap();
        let part = part.outline(Bounds::of_levels(1, 0)).unwrap();
        let comment = part.shown["properties"]["a/b"]["$comment"]
            .as_str()
            .unwrap();
        let call: Value =
            serde_json::from_str(comment.split_once("load_tool ").unwrap().1).unwrap();
        let deepest = entry.place(call["pointer"].as_str().unwrap()).unwrap();
        assert_eq!(
            deepest.value,
            &json!({"type": "object", "properties": {"c": {"type": "string"}}})
        );
    }

    #[test]
    fn a_pointer_that_leads_nowhere_says_how_far_it_leads() {
        let entry = entry();
        let nowhere = |pointer| {
            let Nowhere { prefix, members } = entry.place(pointer).unwrap_err();
            (prefix, members.join(" "))
        };
        assert_eq!(
            nowhere("/inputSchema/properties/total/x"),
            (
                "/inputSchema/properties".into(),
                "bill state properties".into()
            )
        );
        assert_eq!(
            nowhere("/inputSchema/required/1"),
            ("/inputSchema/required".into(), "0".into())
        );
        assert_eq!(nowhere("/name/x"), ("/name".into(), String::new()));
        assert_eq!(nowhere("inputSchema").0, "");
    }

    #[test]
    fn bounds_that_shrink_end_with_names_and_every_schema_stays_valid() {
        let entry = entry();
        let place = entry.place("").unwrap();
        let mut bytes = usize::MAX;
        let mut last = None;
        for bounds in Bounds::shrinking() {
            let outline = place.outline(bounds).unwrap();
            assert!(is_valid(&outline.shown["inputSchema"]), "{outline:?}");
            let length = outline.shown.to_string().len();
            assert!(length <= bytes.saturating_add(200), "{outline:?}");
            bytes = length;
            last = Some(outline);
        }
        let last = last.unwrap();
        assert_eq!(
            last.shown["inputSchema"],
            json!({"type": "object", "$comment": "left out here: load_tool {\"name\":\"pay\",\"pointer\":\"/inputSchema\"}"})
        );
        let few = Bounds {
            levels: 1,
            output_levels: 0,
            members: 1,
            text: 8,
        };
        let few = place.outline(few).unwrap();
        assert_eq!(
            few.shown["description"],
            "Pays äöü… (16 characters: load_tool {\"name\":\"pay\",\"pointer\":\"/description\"})"
        );
        assert_eq!(
            few.shown["inputSchema"]["$comment"],
            "2 more of properties: load_tool {\"name\":\"pay\",\"pointer\":\"/inputSchema/properties\"}"
        );
        assert_eq!(few.shown["inputSchema"].get("additionalProperties"), None);
        assert!(is_valid(&few.shown["inputSchema"]));
        let state = entry.place("/inputSchema/properties/state").unwrap();
        let state = state
            .outline(Bounds {
                members: 2,
                ..Bounds::of_levels(1, 0)
            })
            .unwrap();
        assert_eq!(
            state.shown,
            json!({"$comment": "1 more of enum: load_tool {\"name\":\"pay\",\"pointer\":\"/inputSchema/properties/state/enum\"}"})
        );
    }

    #[test]
    fn levels_placeholders_and_outlines_have_bounds() {
        let mut schema = json!({"type": "string"});
        for _ in 0..12 {
            schema = json!({"type": "object", "description": "d".repeat(161), "properties": {"x": schema}});
        }
        let value = json!({"name": "deep", "inputSchema": schema});
        let entry = Entry {
            name: "deep",
            value,
        };
        let place = entry.place("").unwrap();
        assert_eq!(place.levels(), 8);
        let outline = place.outline(Bounds::of_levels(1, 0)).unwrap();
        assert_eq!(
            outline.shown["inputSchema"]["properties"]["x"]["description"],
            "d".repeat(160) + "…"
        );
        let of_bytes = |bytes: usize| Entry {
            name: "long",
            value: json!({"name": "long", "title": "", "description": "x".repeat(bytes)}),
        };
        let outline = |entry: &Entry<'_>| {
            let place = entry.place("").unwrap();
            place.outline(Bounds::of_levels(1, 0))
        };
        assert!(outline(&of_bytes(1_048_000)).is_some());
        assert_eq!(outline(&of_bytes(1_048_600)), None);
    }

    #[test]
    fn a_text_is_cut_between_characters_with_a_mark() {
        assert_eq!(cut("äöü", 2), Some("äö…".into()));
        assert_eq!(cut("äöü", 3), None);
    }
}
