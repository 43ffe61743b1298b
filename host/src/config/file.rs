//! `plimsoll.toml` as it is written: every setting optional, nothing resolved.
//!
//! The doc comments here are the config reference: the README's is generated from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// The file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Address on which the HTTP doors listen.
    pub listen: Option<String>,
    /// Folder for what the host itself keeps: the key that signs cursors, and compiled code.
    pub state: Option<PathBuf>,
    /// Folder in which component files are looked up.
    pub plugins_folder: Option<PathBuf>,
    /// Token budget (o200k) of an answer whose caller passes no `max_tokens`. Absent: no budget.
    pub result_tokens: Option<u64>,
    /// Whether what is known of client programs applies: their default budgets, and the sizes at which they cut results.
    pub client_profiles: Option<bool>,
    /// Host names, beside the loopback ones, under which clients may reach the MCP endpoint.
    pub allowed_hosts: Option<Vec<String>>,
    /// Origins, beside the loopback ones, from which browsers may call the MCP endpoint.
    pub allowed_origins: Option<Vec<String>>,
    /// Limits of every plugin that does not set its own.
    #[serde(default)]
    pub limits: LimitsFile,
    /// The plugins, by name.
    #[serde(default)]
    pub plugins: BTreeMap<String, PluginFile>,
}

/// Limits of one call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsFile {
    /// Fuel of one call: roughly one unit an instruction.
    pub fuel: Option<u64>,
    /// Memory of one instance, in bytes.
    pub memory_bytes: Option<u64>,
    /// Wall-clock time of one call, instantiation and host calls included, in milliseconds. At most 60,000.
    pub deadline_ms: Option<u64>,
    /// A reply of this many bytes or more is refused.
    pub cap_bytes: Option<u32>,
    /// Bytes that one answer may hand over.
    pub intake_bytes: Option<usize>,
    /// Calls of one plugin that run at the same time.
    pub concurrent_calls: Option<u32>,
    /// Calls of one plugin that wait for one of those to end; further ones are refused as `busy`.
    pub queued_calls: Option<u32>,
}

/// One plugin and what it is granted.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginFile {
    /// The component file, relative to `plugins_folder`. Absent: the plugin's name with `.wasm`.
    pub component: Option<PathBuf>,
    /// Values that the plugin reads through `wasi:config/store`.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// Values that the plugin reads in the same way under their names, and that are never printed.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFile>,
    /// Folders that the plugin may use.
    #[serde(default)]
    pub files: Vec<FileGrantFile>,
    /// Hosts to which the plugin may send requests: scheme, host or `*.` and a domain, and a port where it is not the
    /// scheme's own, such as `https://*.example.com:8443`. Their addresses have to be public. An empty list lets a plugin
    /// import `wasi:http` and denies every request.
    pub hosts: Option<Vec<String>>,
    /// The same for hosts whose addresses may be loopback, private, or shared behind a NAT. Link-local ones, such as those of
    /// cloud metadata, are reached only where an entry is the address itself.
    pub private_hosts: Option<Vec<String>>,
    /// Whether the plugin may read clocks and wait for them.
    #[serde(default)]
    pub clock: bool,
    /// Whether the plugin gets random numbers.
    #[serde(default)]
    pub random: bool,
    /// Limits of this plugin's calls.
    #[serde(default)]
    pub limits: LimitsFile,
    /// What the operator decides for single tools, by the tool's name.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolFile>,
}

/// Where a secret comes from: exactly one of the two.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretFile {
    /// Environment variable of the host that holds it.
    pub env: Option<String>,
    /// File that holds it, relative to the config file. A line break at its end is not part of the secret.
    pub file: Option<PathBuf>,
}

/// A folder of the host under a path of the guest.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileGrantFile {
    /// Folder on the host, relative to the config file.
    pub host: PathBuf,
    /// Path at which the plugin sees it.
    pub guest: String,
    /// Whether the plugin may also create, change and remove what is in it. Nothing bounds how much it writes.
    #[serde(default)]
    pub write: bool,
}

/// Overrides of one tool's declared shape, field by field.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    /// Where the rows are: `automatic`, `lines`, `whole`, or a JSON pointer such as `/items`.
    pub rows: Option<String>,
    /// Path of the field that identifies a row.
    pub key: Option<String>,
    /// The default horizon; `false` switches a declared one off.
    pub horizon: Option<Switch<HorizonFile>>,
    /// Views by name, each a list of field paths. Replaces all declared views.
    pub views: Option<BTreeMap<String, Vec<String>>>,
    /// The view where `detail` is absent.
    pub default_view: Option<String>,
    /// Columns of csv and tsv. Replaces all declared columns.
    pub columns: Option<Vec<ColumnFile>>,
    /// Rows of a page where `limit` is absent.
    pub default_limit: Option<u32>,
    /// The largest `limit`.
    pub max_limit: Option<u32>,
    /// A reply of this many bytes or more is refused.
    pub cap_bytes: Option<u32>,
    /// What is taken out of the values of its rows.
    pub cells: Option<CellsFile>,
    /// Arguments of the host for this tool: another name, or `false` to switch one off.
    #[serde(default)]
    pub arguments: BTreeMap<String, Switch<String>>,
}

/// What is taken out of the values of rows, whatever the caller asks for.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellsFile {
    /// Paths of fields that are taken out, with everything in them.
    #[serde(default)]
    pub drop: Vec<String>,
    /// Paths of fields whose values are replaced by `"[masked]"`.
    #[serde(default)]
    pub mask: Vec<String>,
    /// Whether `data:` URIs and base64 are replaced by their type and size.
    #[serde(default)]
    pub replace_data: bool,
    /// Data of so many characters or fewer stays.
    pub replace_data_chars: Option<u32>,
    /// A text of more characters is shortened to so many, with a mark that says how long it was.
    pub max_cell_chars: Option<u32>,
}

/// A value, or `false`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Switch<T> {
    /// `false` switches it off; `true` changes nothing.
    Is(bool),
    /// The value.
    Value(T),
}

/// Which rows are shown by default.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HorizonFile {
    /// Path of the field that tells.
    pub field: String,
    /// Its values of live rows. Give these or `hidden`.
    pub live: Option<Vec<String>>,
    /// Its values of rows that are hidden by default.
    pub hidden: Option<Vec<String>>,
    /// What is hidden, as the subject of `… are excluded`.
    pub excluded: String,
}

/// One column.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnFile {
    /// Header cell.
    pub name: String,
    /// Path of the field.
    pub field: String,
}
