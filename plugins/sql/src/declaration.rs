//! Tables and queries in the words of the contract.

use serde_json::{Map, Value, json};

use crate::bindings::exports::plimsoll::plugin::backend::{Collection, FilterField, ValueType};
use crate::bindings::exports::plimsoll::plugin::tools::{Annotations, Tool};
use crate::bindings::plimsoll::plugin::shaping::{Column, PushDown, RowSource, Shape};
use crate::bindings::plimsoll::plugin::sql::{Database, Dialect, Kind, Table};
use crate::relation::Relation;
use crate::settings::{Parameter, Query, Type};

/// A table with more columns is wider than what a model reads with profit.
const MOST_COLUMNS: usize = 16;
/// Every filter is an argument that costs tokens in every listing of the tools.
const MOST_FILTERS: usize = 12;
/// Bytes of what the description of `run_query` says of the tables: some 400 tokens.
const MOST_TABLE_BYTES: usize = 1_500;

/// A table or view as a collection.
pub(crate) fn collection(name: String, table: &Table, relation: &Relation) -> Collection {
    let what = if table.is_view { "view" } else { "table" };
    let size = table
        .estimate
        .filter(|estimate| *estimate > 0)
        .map_or(String::new(), |estimate| {
            format!("; about {estimate} rows, by the database's estimate")
        });
    let comment = table
        .description
        .as_ref()
        .map_or(String::new(), |comment| format!(" {comment}"));
    Collection {
        name,
        description: format!(
            "The {what} `{}.{}` of the database{size}.{comment}",
            table.schema, table.name
        ),
        filters: filters(relation),
        shape: shape(relation, PushDown::FIELDS),
        // An estimate is no count.
        count: None,
        tags: Vec::new(),
    }
}

/// A saved query as a tool.
pub(crate) fn query(name: &str, query: &Query, relation: &Relation) -> Tool {
    let properties: Map<String, Value> = query
        .parameters
        .iter()
        .map(|parameter| (parameter.name.clone(), property(parameter)))
        .collect();
    let required: Vec<&str> = query
        .parameters
        .iter()
        .filter(|parameter| parameter.required)
        .map(|parameter| parameter.name.as_str())
        .collect();
    // Without a key nothing says which rows come first.
    let applies = if relation.key.is_empty() {
        PushDown::FIELDS
    } else {
        PushDown::LIMIT | PushDown::AFTER | PushDown::FIELDS
    };
    Tool {
        name: format!("list_{name}"),
        title: None,
        description: query.description.clone(),
        input_schema: json!({"type": "object", "properties": properties, "required": required})
            .to_string(),
        output_schema: None,
        shape: shape(relation, applies),
        annotations: Annotations::READ_ONLY | Annotations::IDEMPOTENT,
        tags: Vec::new(),
        examples: Vec::new(),
    }
}

/// The tool for statements that callers write themselves.
pub(crate) fn run_query(database: Database, tables: &[&Table]) -> Tool {
    let language = match database.dialect {
        Dialect::Postgresql => "PostgreSQL",
        Dialect::Sqlite => "SQLite",
    };
    let does = if database.may_write {
        "reads or changes rows"
    } else {
        "reads"
    };
    let mut description = format!(
        "Runs one statement of {language} that {does}, and returns its rows. Name the columns that you need, and let the \
         database count, group and limit."
    );
    let mut shown = String::new();
    for table in tables {
        let columns: Vec<&str> = table
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        let line = format!(
            "\n- {}.{}({})",
            table.schema,
            table.name,
            columns.join(", ")
        );
        if shown.len() + line.len() > MOST_TABLE_BYTES {
            shown.push_str("\n- and others");
            break;
        }
        shown.push_str(&line);
    }
    if !shown.is_empty() {
        description.push_str(&format!("\n\nTables:{shown}"));
    }
    let annotations = if database.may_write {
        Annotations::DESTRUCTIVE
    } else {
        Annotations::READ_ONLY | Annotations::IDEMPOTENT
    };
    Tool {
        name: "run_query".to_owned(),
        title: None,
        description,
        input_schema: json!({
            "type": "object",
            "properties": {"sql": {"type": "string", "description": format!("One statement of {language}.")}},
            "required": ["sql"],
        })
        .to_string(),
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
        annotations,
        tags: Vec::new(),
        examples: Vec::new(),
    }
}

fn property(parameter: &Parameter) -> Value {
    let kind = match parameter.r#type {
        Type::Text => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    };
    json!({"type": kind, "description": parameter.description})
}

fn shape(relation: &Relation, applies: PushDown) -> Shape {
    Shape {
        rows: RowSource::Automatic,
        key: relation.key_field().map(str::to_owned),
        horizon: None,
        views: Vec::new(),
        default_view: None,
        columns: relation
            .columns
            .iter()
            // A path splits at dots, so it cannot name a column that has one.
            .filter(|column| column.kind != Kind::Bytes && !column.name.contains('.'))
            .take(MOST_COLUMNS)
            .map(|column| Column {
                name: column.name.clone(),
                field: column.name.clone(),
            })
            .collect(),
        filters: Vec::new(),
        page: None,
        cap_bytes: None,
        applies,
    }
}

/// The columns that make arguments: their names can be one, and a caller can give their values. The key's come first.
fn filters(relation: &Relation) -> Vec<FilterField> {
    let is_key = |name: &str| relation.key.iter().any(|key| key.name == name);
    let (key, others): (Vec<_>, Vec<_>) = relation
        .columns
        .iter()
        .partition(|column| is_key(&column.name));
    let filter = |column: &crate::bindings::plimsoll::plugin::sql::Column| {
        let value_type = match column.kind {
            Kind::Text | Kind::Time => ValueType::Text,
            Kind::Integer => ValueType::Integer,
            Kind::Number => ValueType::Number,
            Kind::Boolean => ValueType::Boolean,
            Kind::Bytes | Kind::Other => return None,
        };
        let is_argument = (1..=56).contains(&column.name.len())
            && column
                .name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let comment = column
            .description
            .as_ref()
            .map_or(String::new(), |comment| format!(": {comment}"));
        let type_name = match column.type_name.as_str() {
            "" => String::new(),
            name => format!(" ({name})"),
        };
        is_argument.then(|| FilterField {
            name: column.name.clone(),
            description: format!("`{}`{type_name}{comment}.", column.name),
            value_type,
        })
    };
    key.into_iter()
        .chain(others)
        .filter_map(filter)
        .take(MOST_FILTERS)
        .collect()
}
