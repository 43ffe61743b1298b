//! What the plugin says about itself, and the ways in which that can be wrong.

use serde_json::{Map, json};

use crate::bindings::exports::plimsoll::plugin::tools::{Annotations, Tool};
use crate::bindings::plimsoll::plugin::shaping::{PushDown, RowSource, Shape};
use crate::bindings::plimsoll::plugin::types::Fault;
use crate::misdeeds;

const SCHEMA: &str = r#"{"type":"object","properties":{"count":{"type":"integer","minimum":0}}}"#;

/// The tools, or the misdeed that is named.
pub(crate) fn of(how: Option<&str>) -> Result<Vec<Tool>, Fault> {
    let one = |name: &str, schema: &str| Ok(vec![tool(name, "One tool.", schema)]);
    match how {
        None => Ok(misdeeds(1)),
        Some("loop") => misdeeds::spin(),
        Some("trap") => misdeeds::trap(),
        Some("panic") => panic!("a panic, as ordered"),
        Some("grow") => misdeeds::grow(),
        Some("fault") => Err(Fault::Unavailable("the list is out of reach".to_owned())),
        Some("long_fault") => Err(Fault::Unavailable("long ".repeat(2_000_000))),
        // About 30 MB of descriptions.
        Some("flood") => Ok(misdeeds(20_000)),
        Some("long_description") => Ok(vec![tool("one", &"long ".repeat(200_000), SCHEMA)]),
        Some("tools_2000") => Ok(many(2_000)),
        Some("tools_2001") => Ok(many(2_001)),
        Some("tools_10000") => Ok(many(10_000)),
        Some("tools_100000") => Ok(many(100_000)),
        Some("twice") => Ok([many(3), many(1)].concat()),
        Some("no_name") => one("", SCHEMA),
        Some("long_name") => one(&"n".repeat(1_000_000), SCHEMA),
        Some("no_schema") => one("one", "{\"type\":"),
        Some("long_schema") => one(
            "one",
            &json!({"type": "object", "title": "x".repeat(1_000_000)}).to_string(),
        ),
        Some("deep_schema") => one(
            "one",
            &format!(
                "{{\"type\":\"object\",\"not\":{}{}}}",
                "[".repeat(30_000),
                "]".repeat(30_000)
            ),
        ),
        Some("recursive_schema") => one(
            "one",
            r##"{"type":"object","properties":{"child":{"$ref":"#"}}}"##,
        ),
        Some("dangling_schema") => one(
            "one",
            r##"{"type":"object","properties":{"x":{"$ref":"#/$defs/x"}}}"##,
        ),
        Some("remote_schema") => one(
            "one",
            r#"{"type":"object","properties":{"x":{"$ref":"http://127.0.0.1:9/x"}}}"#,
        ),
        Some("doubling_schema") => one("one", &doubling()),
        Some(other) => Err(Fault::Internal(format!(
            "there is no way to misbehave called `{other}`"
        ))),
    }
}

/// A tool for each misdeed, with its description so many times.
fn misdeeds(copies: usize) -> Vec<Tool> {
    misdeeds::ALL
        .iter()
        .map(|misdeed| tool(misdeed.name, &misdeed.description.repeat(copies), SCHEMA))
        .collect()
}

fn many(count: usize) -> Vec<Tool> {
    (0..count)
        .map(|n| tool(&format!("tool_{n}"), "One of many.", "{}"))
        .collect()
}

/// Twenty definitions, each of which refers twice to the next: 2 to the power of 20 parts, all followed.
fn doubling() -> String {
    let mut definitions = Map::new();
    for n in 0..20 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        definitions.insert(format!("d{n}"), json!({"allOf": [next, next]}));
    }
    definitions.insert("d20".to_owned(), json!({"type": "string"}));
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions})
        .to_string()
}

fn tool(name: &str, description: &str, schema: &str) -> Tool {
    Tool {
        name: name.to_owned(),
        title: None,
        description: description.to_owned(),
        input_schema: schema.to_owned(),
        output_schema: None,
        shape: Shape {
            rows: RowSource::Automatic,
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
        annotations: Annotations::READ_ONLY,
        tags: Vec::new(),
        examples: Vec::new(),
    }
}
