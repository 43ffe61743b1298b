//! What listing tools costs their readers, and what of a listing common client programs cannot take.
//!
//! Owns: the numbers above which something is said, and the words. Nothing is refused for them: a host may have one reader, who
//! takes it all. What no reader takes, such as a name of more than 64 characters, is refused when a plugin is loaded.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Catalog, Catalogs, Tool, references};
use crate::config::Surface;

/// Tokens of one tool in the listing above which ChatGPT refuses the connector that has it (directus/mcp#14).
const MAX_TOOL_TOKENS: u64 = 5_000;

/// Characters of a description that Claude Code keeps.
const MAX_DESCRIPTION_CHARS: usize = 2_048;

/// Tools that VS Code and several APIs of models take in one request.
const MAX_LISTED_TOOLS: usize = 128;

/// Bytes of an argument's name that the API of Claude takes: it refuses a request for one that is longer, or has other
/// characters than letters, digits, `_`, `.` and `-`.
const MAX_ARGUMENT_BYTES: usize = 64;

/// Warnings that are written down one by one where plugins are loaded: as much of a log as anybody reads.
const MAX_WARNED: usize = 20;

/// What the tools of a tenant cost to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    /// Tools of its plugins.
    pub tools: usize,
    /// Tokens of all of these together.
    pub tool_tokens: u64,
    /// Tools that are listed.
    pub listed: usize,
    /// Tokens of the listing.
    pub listed_tokens: u64,
    /// What common client programs cannot take of the listing.
    pub warnings: Vec<String>,
}

/// What common client programs cannot take of a listing of these tools.
pub fn warnings<'a>(listed: impl ExactSizeIterator<Item = &'a Tool>) -> Vec<String> {
    let many = of_count(listed.len());
    many.into_iter()
        .chain(listed.flat_map(Tool::warnings))
        .collect()
}

impl Catalog {
    /// What its listing costs.
    pub fn cost(&self) -> Cost {
        let tokens = |tool: &Arc<Tool>| tool.listing_tokens();
        Cost {
            tools: self.tools().len(),
            tool_tokens: self.tools().map(tokens).sum(),
            listed: self.listed().len(),
            listed_tokens: self.listed().map(tokens).sum(),
            warnings: warnings(self.listed().map(Arc::as_ref)),
        }
    }
}

impl Cost {
    /// The warnings that are written down one by one, and how many more there are.
    fn said(&self) -> Vec<String> {
        let more = self.warnings.len().saturating_sub(MAX_WARNED);
        let more = (more > 0)
            .then(|| format!("{more} more warnings of the listing: see `plimsoll check`"));
        let first = self.warnings.iter().take(MAX_WARNED).cloned();
        first.chain(more).collect()
    }
}

impl Catalogs {
    /// Writes down what every listing costs, and what is wrong with it; one that several tenants share, once.
    pub fn log_costs(&self) {
        let mut shared: BTreeMap<*const Catalog, (&Arc<Catalog>, Vec<&str>)> = BTreeMap::new();
        for (tenant, catalog) in &self.by_tenant {
            let (_, tenants) = shared
                .entry(Arc::as_ptr(catalog))
                .or_insert((catalog, Vec::new()));
            tenants.push(tenant);
        }
        let mut costs: Vec<(String, Cost)> = shared
            .into_values()
            .map(|(catalog, mut tenants)| {
                tenants.sort_unstable();
                (tenants.join(", "), catalog.cost())
            })
            .collect();
        costs.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (tenants, cost) in costs {
            let Cost {
                listed,
                listed_tokens,
                ..
            } = cost;
            tracing::info!(
                tenants,
                "listing {listed} tools costs {listed_tokens} tokens"
            );
            for warning in cost.said() {
                tracing::warn!(tenants, "{warning}");
            }
        }
    }
}

impl Tool {
    /// What common client programs cannot take of its entry in the listing.
    pub fn warnings(&self) -> Vec<String> {
        let schema = self.listed["inputSchema"].as_object();
        let of_schema = schema.map(of_schema).unwrap_or_default();
        of_entry(self.listing_tokens(), self.description())
            .into_iter()
            .chain(of_schema)
            .map(|warning| format!("tool `{}`: {warning}", self.name()))
            .collect()
    }
}

fn of_count(listed: usize) -> Option<String> {
    (listed > MAX_LISTED_TOOLS).then(|| {
        format!(
            "{listed} tools are listed, and several client programs take at most {MAX_LISTED_TOOLS}; surface = \"{}\" lists 3 that \
             find, describe and call the others",
            Surface::Meta
        )
    })
}

fn of_entry(tokens: u64, description: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if tokens > MAX_TOOL_TOKENS {
        warnings.push(format!(
            "listing it costs {tokens} tokens, and connectors refuse tools of more than {MAX_TOOL_TOKENS}"
        ));
    }
    let chars = description.chars().count();
    if chars > MAX_DESCRIPTION_CHARS {
        warnings.push(format!(
            "its description has {chars} characters, and client programs cut it behind the first {MAX_DESCRIPTION_CHARS}"
        ));
    }
    warnings
}

fn of_schema(schema: &Map<String, Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let choices = ["anyOf", "oneOf", "allOf"];
    let choices: Vec<&str> = choices
        .into_iter()
        .filter(|keyword| schema.contains_key(*keyword))
        .collect();
    if !choices.is_empty() {
        warnings.push(format!(
            "its input schema has {} at its root, and APIs of models refuse every request that lists such a tool; put it below a \
             property",
            choices.join(" and ")
        ));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for name in properties.into_iter().flatten().map(|(name, _)| name) {
        let is_taken = (1..=MAX_ARGUMENT_BYTES).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !is_taken {
            warnings.push(format!(
                "its argument {name:?} has a name that the API of Claude refuses; expected 1 to {MAX_ARGUMENT_BYTES} letters, digits, \
                 `_`, `.` and `-`"
            ));
        }
    }
    let (mut refers, mut bare) = (false, false);
    look(&Value::Object(schema.clone()), &mut |part| {
        refers |= part.contains_key("$ref");
        let is_array = part.get("type").is_some_and(|kind| kind == "array");
        bare |= is_array && !part.contains_key("items") && !part.contains_key("prefixItems");
    });
    if refers {
        warnings.push(String::from(
            "its input schema is too large to have what it refers to in the place of every `$ref`, and client programs lose `$defs`",
        ));
    }
    if bare {
        warnings.push(String::from(
            "its input schema has an array without items, which OpenAI's API and VS Code refuse; say what its items are",
        ));
    }
    warnings
}

/// Looks at every part of a schema.
fn look(part: &Value, visit: &mut dyn FnMut(&Map<String, Value>)) {
    if let Value::Object(members) = part {
        visit(members);
    }
    references::each_below(part, &mut |below| look(below, visit));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_is_warned_of_above_its_numbers_and_not_at_them() {
        assert_eq!(of_entry(5_000, &"ä".repeat(2_048)), [""; 0]);
        assert_eq!(
            of_entry(5_001, &"ä".repeat(2_049)),
            [
                "listing it costs 5001 tokens, and connectors refuse tools of more than 5000",
                "its description has 2049 characters, and client programs cut it behind the first 2048",
            ]
        );
    }

    #[test]
    fn more_tools_than_clients_take_are_for_the_other_surface() {
        assert_eq!(of_count(128), None);
        assert_eq!(
            of_count(129).unwrap(),
            "129 tools are listed, and several client programs take at most 128; surface = \"meta\" lists 3 that find, describe and \
             call the others"
        );
    }

    #[test]
    fn a_log_has_the_first_warnings_and_how_many_more_there_are() {
        let cost = |warnings: usize| Cost {
            tools: 0,
            tool_tokens: 0,
            listed: 0,
            listed_tokens: 0,
            warnings: (0..warnings).map(|n| n.to_string()).collect(),
        };
        assert_eq!(cost(20).said().len(), 20);
        let said = cost(23).said();
        assert_eq!(
            (said.len(), said[20].as_str()),
            (21, "3 more warnings of the listing: see `plimsoll check`")
        );
    }

    #[test]
    fn schemas_that_common_clients_refuse_are_named_with_what_to_do() {
        let warnings = |schema: Value| of_schema(schema.as_object().unwrap());
        let fine = json!({
            "type": "object",
            "properties": {
                "a.b-c_1": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "list": {"type": "array", "items": {}},
                "default": {"default": {"type": "array", "$ref": "x"}},
                "type": {"enum": ["array"]},
            },
        });
        assert_eq!(warnings(fine), [""; 0]);
        assert_eq!(
            warnings(json!({"type": "object", "anyOf": [], "allOf": []})),
            [
                "its input schema has anyOf and allOf at its root, and APIs of models refuse every request that lists such a tool; put it \
              below a property"
            ]
        );
        let long = "n".repeat(65);
        assert_eq!(
            warnings(json!({"type": "object", "properties": {"ids[]": {}, "n".repeat(64): {}, long.clone(): {}}})),
            ["\"ids[]\"", &format!("{long:?}")].map(|name| format!(
                "its argument {name} has a name that the API of Claude refuses; expected 1 to 64 letters, digits, `_`, `.` and `-`"
            ))
        );
        let parts = json!({"type": "object", "properties": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}, "y": {"type": "array"}}, "$defs": {"x": {}}});
        assert_eq!(
            warnings(parts),
            [
                "its input schema is too large to have what it refers to in the place of every `$ref`, and client programs lose `$defs`",
                "its input schema has an array without items, which OpenAI's API and VS Code refuse; say what its items are",
            ]
        );
    }
}
