//! The config reference, generated from the doc comments of [`File`](super::File).

use std::fmt::Write;

use serde_json::Value;

use super::results::DEFAULT_FOLDER;
use super::{
    DEFAULT_KEEP_SECONDS, DEFAULT_LEDGER_DAYS, DEFAULT_LISTEN, DEFAULT_SCOPE, DEFAULT_STATE,
    DEFAULT_TENANT_BYTES, File, PluginLimits, Surface,
};
use crate::sandbox::DEFAULT_POOL;
use crate::shape::{DEFAULT_DATA_CHARS, DEFAULT_INTAKE_BYTES};
use crate::tenant::{DEFAULT_TENANT_CALLS, DEFAULT_TENANT_QUEUE};

/// The reference as Markdown tables, one a TOML table.
pub fn reference() -> String {
    let schema = schemars::schema_for!(File).to_value();
    let mut out = String::new();
    let tables = [
        ("Top level", "", "File"),
        (
            "`[limits]` and `[plugins.NAME.limits]`",
            "limits",
            "LimitsFile",
        ),
        ("`[results]`", "", "ResultsFile"),
        ("`[plugins.NAME]`", "plugin", "PluginFile"),
        ("`secrets = { NAME = { … } }`", "", "SecretFile"),
        ("`files = [{ … }]`", "", "FileGrantFile"),
        (
            "`[plugins.NAME.connections.CONNECTION]`",
            "",
            "ConnectionFile",
        ),
        (
            "`[tools.TOOLS]` and `[plugins.NAME.tools.TOOLS]`",
            "",
            "ToolFile",
        ),
        (
            "`[plugins.NAME.tools.TOOLS.cells]` and `[tenants.NAME.cells]`",
            "",
            "CellsFile",
        ),
        ("`horizon = { … }`", "", "HorizonFile"),
        ("`columns = [{ … }]`", "", "ColumnFile"),
        ("`[tenants.NAME]`", "", "TenantFile"),
        ("`[tenants.NAME.quotas]`", "", "Quotas"),
        (
            "`[tenants.NAME.quotas.minute]` and `[tenants.NAME.quotas.day]`",
            "",
            "Amounts",
        ),
        ("`[tenants.NAME.grants.PLUGIN]`", "", "TenantGrantsFile"),
        ("`[auth]`", "", "AuthFile"),
        ("`[[auth.issuers]]`", "", "IssuerFile"),
    ];
    for (title, scope, definition) in tables {
        let properties = if definition == "File" {
            &schema["properties"]
        } else {
            &schema["$defs"][definition]["properties"]
        };
        let _ = write!(
            out,
            "**{title}**\n\n| key | type | default | meaning |\n| --- | --- | --- | --- |\n"
        );
        for (name, property) in properties.as_object().into_iter().flatten() {
            let description = property["description"]
                .as_str()
                .unwrap_or_default()
                .replace('\n', " ");
            let _ = writeln!(
                out,
                "| `{name}` | {} | {} | {description} |",
                type_of(property),
                default_of(scope, definition, name)
            );
        }
        out.push('\n');
    }
    out
}

fn type_of(property: &Value) -> String {
    let one = |name: &str| match name {
        "integer" => "integer",
        "boolean" => "true or false",
        "array" => "list",
        "object" => "table",
        _ => "text",
    };
    match &property["type"] {
        Value::String(name) => one(name).to_owned(),
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null")
            .map_or("text", one)
            .to_owned(),
        _ if property.to_string().contains("/StoreFile\"") => String::from("text or table"),
        _ if property.get("anyOf").is_some() => String::from("table or `false`"),
        _ => String::from("table"),
    }
}

fn default_of(scope: &str, definition: &str, name: &str) -> String {
    let limits = PluginLimits::defaults();
    match (definition, scope, name) {
        ("File", _, "listen") => format!("`{DEFAULT_LISTEN}`"),
        ("File", _, "state") => format!("`{DEFAULT_STATE}`"),
        ("File", _, "plugins_folder") => String::from("`plugins`"),
        ("LimitsFile", _, "fuel") => limits.fuel.value.to_string(),
        ("LimitsFile", _, "memory_bytes") => limits.memory_bytes.value.to_string(),
        ("LimitsFile", _, "deadline_ms") => limits.deadline_ms.value.to_string(),
        ("LimitsFile", _, "cap_bytes") => limits.cap_bytes.value.to_string(),
        ("LimitsFile", _, "intake_bytes") => limits.intake_bytes.value.to_string(),
        ("LimitsFile", _, "concurrent_calls") => limits.concurrent_calls.value.to_string(),
        ("LimitsFile", _, "queued_calls") => limits.queued_calls.value.to_string(),
        ("File", _, "ledger_days") => DEFAULT_LEDGER_DAYS.to_string(),
        ("TenantFile", _, "concurrent_calls") => DEFAULT_TENANT_CALLS.to_string(),
        ("TenantFile", _, "queued_calls") => DEFAULT_TENANT_QUEUE.to_string(),
        ("IssuerFile", _, "scope") => format!("`{DEFAULT_SCOPE}`"),
        ("ResultsFile", _, "enabled") => String::from("true"),
        ("ResultsFile", _, "location") => format!("`{DEFAULT_FOLDER}`"),
        ("ResultsFile", _, "keep_seconds") => DEFAULT_KEEP_SECONDS.to_string(),
        ("ResultsFile", _, "max_bytes") => DEFAULT_INTAKE_BYTES.to_string(),
        ("ResultsFile", _, "tenant_bytes") => DEFAULT_TENANT_BYTES.to_string(),
        ("PluginFile", _, "component") => String::from("`NAME.wasm`"),
        ("PluginFile", _, "clock" | "random")
        | ("FileGrantFile" | "ConnectionFile", _, "write")
        | ("CellsFile", _, "replace_data") => String::from("false"),
        ("ConnectionFile", _, "pool") => DEFAULT_POOL.to_string(),
        ("File", _, "client_profiles") => String::from("true"),
        ("File", _, "surface") => format!("`{}`", Surface::default()),
        ("CellsFile", _, "replace_data_chars") => DEFAULT_DATA_CHARS.to_string(),
        _ => String::new(),
    }
}
