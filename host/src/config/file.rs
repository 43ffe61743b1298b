//! `plimsoll.toml` as it is written: every setting optional, nothing resolved.
//!
//! The doc comments here are the config reference: the README's is generated from them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tenant::Quotas;

/// The file.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Address on which the HTTP doors listen.
    pub listen: Option<String>,
    /// Folder for what the host itself keeps: the store, where no database is named, and compiled code.
    pub state: Option<PathBuf>,
    /// Folder in which component files are looked up.
    pub plugins_folder: Option<PathBuf>,
    /// Token budget (o200k) of an answer whose caller passes no `max_tokens`. Absent: no budget.
    pub result_tokens: Option<u64>,
    /// Whether what is known of client programs applies: their default budgets, and the sizes at which they cut results.
    pub client_profiles: Option<bool>,
    /// What is listed: `tools`, every tool; or `meta`, three of the host's own that find, describe and call the others.
    #[schemars(with = "Option<String>")]
    pub surface: Option<Surface>,
    /// Host names, beside the loopback ones, under which clients may reach the MCP endpoint.
    pub allowed_hosts: Option<Vec<String>>,
    /// Origins, beside the loopback ones, from which browsers may call the MCP endpoint.
    pub allowed_origins: Option<Vec<String>>,
    /// A PostgreSQL database that replicas share, as a URL, or as `{ env = … }` or `{ file = … }` that holds it. Absent: a
    /// file of SQLite in the state folder.
    pub store: Option<StoreFile>,
    /// How many days a call stays in the ledger.
    pub ledger_days: Option<u32>,
    /// What links to complete results begin with, such as `https://plimsoll.example.com`, where clients reach the host under
    /// another address than `listen`. Absent: the address that was bound; none over standard input and output.
    pub public_url: Option<String>,
    /// Where complete results are kept, and how much.
    #[serde(default)]
    pub results: ResultsFile,
    /// Limits of every plugin that does not set its own.
    #[serde(default)]
    pub limits: LimitsFile,
    /// What the operator decides for tools of any plugin: by name, by a glob such as `list_*`, or by a tag as `tag:billing`.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolFile>,
    /// The plugins, by name.
    #[serde(default)]
    pub plugins: BTreeMap<String, PluginFile>,
    /// The tenants, by name. Without any, the host is for one user.
    #[serde(default)]
    pub tenants: BTreeMap<String, TenantFile>,
    /// Identity providers whose tokens are taken beside keys.
    #[serde(default)]
    pub auth: AuthFile,
}

/// What a tenant's listing has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Surface {
    /// Every tool.
    #[default]
    Tools,
    /// `search_tools`, `load_tool` and `invoke_tool`.
    Meta,
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tools => "tools",
            Self::Meta => "meta",
        })
    }
}

/// A URL that may hold a password, or where it is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum StoreFile {
    /// The URL itself.
    Url(String),
    /// Where it is.
    Secret(SecretFile),
}

/// One tenant.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantFile {
    /// The plugins that it sees and calls, by name; `["*"]` is all of them. Absent: none.
    #[serde(default)]
    pub plugins: Vec<String>,
    /// Token budget of its answers, where neither the call nor its key says one. `plimsoll tenants set` changes it at run
    /// time. Absent: none.
    pub result_tokens: Option<u64>,
    /// What is listed of its tools. Absent: as the host's.
    #[schemars(with = "Option<String>")]
    pub surface: Option<Surface>,
    /// Its calls that run at the same time on one replica, of all plugins.
    pub concurrent_calls: Option<u32>,
    /// Its calls that wait for one of those to end; further ones are refused as `busy`.
    pub queued_calls: Option<u32>,
    /// What it may spend.
    #[serde(default)]
    pub quotas: Quotas,
    /// What is taken out of the cells of all its answers, beside what is for their tools.
    pub cells: Option<CellsFile>,
    /// What plugins are given for this tenant, by the plugin's name.
    #[serde(default)]
    pub grants: BTreeMap<String, TenantGrantsFile>,
}

/// What one plugin is given for one tenant: beside its own entry, or in its place where names are the same.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantGrantsFile {
    /// Values as in the plugin's entry.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// Secrets as in the plugin's entry.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFile>,
    /// Folders, in place of all of the plugin's entry.
    pub files: Option<Vec<FileGrantFile>>,
    /// Databases as in the plugin's entry.
    #[serde(default)]
    pub connections: BTreeMap<String, ConnectionFile>,
}

/// OAuth 2.1: this host as a resource server.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthFile {
    /// The URL under which clients reach `/mcp`: the audience that tokens must have.
    pub resource: Option<String>,
    /// Whose tokens are taken.
    #[serde(default)]
    pub issuers: Vec<IssuerFile>,
}

/// One identity provider.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IssuerFile {
    /// Its URL, as `iss` in its tokens has it.
    pub issuer: String,
    /// Where its keys are. Absent: as its metadata says (RFC 8414 or OpenID Connect).
    pub jwks_url: Option<String>,
    /// The tenant of all its tokens. Give this or `tenant_claim`.
    pub tenant: Option<String>,
    /// The claim that names the tenant.
    pub tenant_claim: Option<String>,
    /// The scope that a token needs.
    pub scope: Option<String>,
    /// The scope that makes its bearer an admin. Absent: nobody is one by a token.
    pub admin_scope: Option<String>,
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

/// Complete results: kept where rows of an answer are left out.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResultsFile {
    /// Whether complete results are kept. Without, later pages come from the plugin, as its data is then.
    pub enabled: Option<bool>,
    /// Folder, or bucket such as `s3://bucket/prefix`, which several hosts with one signing key can share. Credentials of a
    /// bucket come from the usual environment variables, such as `AWS_ACCESS_KEY_ID`. Absent: `results` in the state folder.
    pub location: Option<String>,
    /// URL of the bucket's server, where it is not Amazon's.
    pub endpoint: Option<String>,
    /// Region of the bucket, where the environment does not say it.
    pub region: Option<String>,
    /// How long a result is kept, in seconds. The same answer to the same call is kept once, so that one that is asked for
    /// again has half of that time at least.
    pub keep_seconds: Option<u64>,
    /// Bytes of one result. A larger one is not kept.
    pub max_bytes: Option<u64>,
    /// Bytes of all results of one tenant. Over that the oldest go.
    pub tenant_bytes: Option<u64>,
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
    /// File of certificates in PEM, relative to the config file, that requests to these hosts trust as roots beside those of
    /// Mozilla: the authority of a private service.
    pub trusted_roots: Option<PathBuf>,
    /// Databases that the plugin may use, by the names under which it knows them.
    #[serde(default)]
    pub connections: BTreeMap<String, ConnectionFile>,
    /// Whether the plugin may read clocks and wait for them.
    #[serde(default)]
    pub clock: bool,
    /// Whether the plugin gets random numbers.
    #[serde(default)]
    pub random: bool,
    /// Limits of this plugin's calls.
    #[serde(default)]
    pub limits: LimitsFile,
    /// The same as `[tools]` for this plugin's tools alone.
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

/// A database.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionFile {
    /// A PostgreSQL database as `postgres://user@host/database`, or a file of SQLite as `sqlite:shop.db`, relative to the
    /// config file; or `{ env = … }` or `{ file = … }` that holds it. It is never printed.
    pub url: StoreFile,
    /// Whether statements may also change what is in it. Without, each runs in a transaction that only reads.
    #[serde(default)]
    pub write: bool,
    /// Connections that are open at a time.
    pub pool: Option<u32>,
}

/// What the operator decides for a tool, setting by setting: in place of what its plugin declares, or of a wider rule. A name
/// is more specific than a glob, a glob than a tag, a longer glob than a shorter one, and a plugin's rule than the same one for
/// every plugin. `read-only`, `destructive`, `idempotent` and `open-world` are tags of the tools that have these annotations.
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
    /// Wall-clock time of one call, in milliseconds, in place of the plugin's. At most 60,000.
    pub deadline_ms: Option<u64>,
    /// Token budget of its answers, in place of the tenant's, or of the host's where there are no tenants. What a call or
    /// its key says goes first.
    pub result_tokens: Option<u64>,
    /// What is taken out of the values of its rows, beside what wider rules take out.
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
