//! What the operator's entry says: where the server is, how to speak to it, which of its tools to list.

use std::fmt;

use crate::names::{Filter, Names};

/// Bytes of all attachments of one answer, as they are sent, where the operator says nothing: half of the host's default
/// cap, so that images do not make the text beside them too large.
const ATTACHMENT_BYTES: usize = 131_072;

/// The values that there are, for messages.
const KNOWN: &str =
    "`url`, `bearer`, `header.NAME`, `protocol`, `tools`, `prefix`, `names` and `attachment_bytes`";

/// Header fields that are written by the client or by the host.
const TAKEN: [&str; 9] = [
    "accept",
    "authorization",
    "content-length",
    "content-type",
    "host",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
];

/// How the server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2026-07-28: every request says all there is to say.
    Modern,
    /// A handshake era, with a server that does without the handshake.
    Stateless,
    /// A handshake era: `initialize`, the request, and the end of the session.
    Session,
}

impl Era {
    /// From the fewest requests a call to the most.
    pub(crate) const ALL: [Self; 3] = [Self::Modern, Self::Stateless, Self::Session];
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modern => "2026-07-28",
            Self::Stateless => "stateless",
            Self::Session => "session",
        })
    }
}

/// The address of the server, in the parts that a request has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) is_https: bool,
    pub(crate) authority: String,
    pub(crate) path: String,
}

impl Address {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || {
            format!(
                "`url`: expected the address of an MCP server, such as `https://mcp.example.com/mcp`, found `{text}`"
            )
        };
        let (is_https, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return Err(invalid()),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let is_odd = |byte: u8| byte <= b' ' || byte == 0x7f || byte == b'#';
        if authority.is_empty() || authority.contains('@') || rest.bytes().any(is_odd) {
            return Err(invalid());
        }
        let slash = if path.starts_with('/') { "" } else { "/" };
        Ok(Self {
            is_https,
            authority: authority.to_owned(),
            path: format!("{slash}{path}"),
        })
    }
}

/// The entry, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    /// Further header fields of every request.
    pub(crate) headers: Vec<(String, String)>,
    /// The eras to try, in order.
    pub(crate) eras: Vec<Era>,
    pub(crate) filter: Filter,
    pub(crate) names: Names,
    pub(crate) attachment_bytes: usize,
}

impl Settings {
    /// Reads config values and secrets, which arrive alike. No message carries a value that may be a secret.
    pub(crate) fn of(values: Vec<(String, String)>) -> Result<Self, String> {
        let (mut url, mut tools, mut prefix, mut names) =
            (String::new(), String::new(), String::new(), String::new());
        let mut headers = Vec::new();
        let mut eras = Era::ALL.to_vec();
        let mut attachment_bytes = ATTACHMENT_BYTES;
        for (key, value) in values {
            match key.as_str() {
                "url" => url = value,
                "tools" => tools = value,
                "prefix" => prefix = value,
                "names" => names = value,
                "bearer" => headers.push(header(
                    "authorization",
                    format!("Bearer {value}"),
                    "`bearer`",
                )?),
                "protocol" => eras = self::eras(&value)?,
                "attachment_bytes" => {
                    attachment_bytes = value.parse().map_err(|_| {
                        format!("`attachment_bytes`: expected a number of bytes, such as `{ATTACHMENT_BYTES}`, found `{value}`")
                    })?;
                }
                other => match other.strip_prefix("header.") {
                    Some(name) if TAKEN.contains(&name.to_ascii_lowercase().as_str()) => {
                        return Err(format!(
                            "`{other}`: the plugin sets this header itself; for `authorization`, use `bearer`"
                        ));
                    }
                    Some(name) => headers.push(header(name, value, &format!("`{other}`"))?),
                    None => {
                        return Err(format!("unknown config value `{other}`: expected {KNOWN}"));
                    }
                },
            }
        }
        if url.is_empty() {
            return Err("the config value `url` is missing: expected the address of an MCP server, such as \
                        `https://mcp.example.com/mcp`"
                .to_owned());
        }
        Ok(Self {
            address: Address::parse(&url)?,
            headers,
            eras,
            filter: Filter::new(&tools),
            names: Names::new(&prefix, &names)?,
            attachment_bytes,
        })
    }
}

fn eras(value: &str) -> Result<Vec<Era>, String> {
    if value == "auto" {
        return Ok(Era::ALL.to_vec());
    }
    let found = Era::ALL.into_iter().find(|era| era.to_string() == value);
    found.map(|era| vec![era]).ok_or_else(|| {
        format!(
            "`protocol`: expected `auto`, `2026-07-28`, `stateless` or `session`, found `{value}`"
        )
    })
}

fn header(name: &str, value: String, place: &str) -> Result<(String, String), String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!(
            "{place}: expected a name of letters, digits, `-` and `_` behind `header.`"
        ));
    }
    if value.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err(format!(
            "{place}: expected a value of one line, found a control character in it"
        ));
    }
    Ok((name.to_ascii_lowercase(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Settings, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Settings::of(values.iter().map(owned).collect())
    }

    #[test]
    fn an_entry_is_read() {
        let settings = read(&[
            ("url", "https://mcp.example.com:8443/v1/mcp?x=1"),
            ("bearer", "t0ken"),
            ("header.X-Team", "ops"),
            ("protocol", "session"),
            ("attachment_bytes", "5"),
        ])
        .unwrap();
        assert_eq!(
            settings.address,
            Address {
                is_https: true,
                authority: "mcp.example.com:8443".into(),
                path: "/v1/mcp?x=1".into()
            }
        );
        let headers = [("authorization", "Bearer t0ken"), ("x-team", "ops")];
        assert_eq!(
            settings.headers,
            headers.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert_eq!(
            (settings.eras, settings.attachment_bytes),
            (vec![Era::Session], 5)
        );
        let settings = read(&[("url", "http://a.test")]).unwrap();
        assert_eq!(settings.address.path, "/");
        assert_eq!(
            (settings.eras, settings.attachment_bytes),
            (Era::ALL.to_vec(), 131_072)
        );
    }

    #[test]
    fn what_does_not_fit_is_named_and_no_secret_is_told() {
        let url = ("url", "http://a.test/mcp");
        let table: [(&[(&str, &str)], &str); 10] = [
            (
                &[],
                "the config value `url` is missing: expected the address of an MCP server, such as `https://mcp.example.com/mcp`",
            ),
            (
                &[("url", "mcp.example.com")],
                "`url`: expected the address of an MCP server, such as `https://mcp.example.com/mcp`, found `mcp.example.com`",
            ),
            (
                &[("url", "http://u@a.test/")],
                "`url`: expected the address of an MCP server, such as `https://mcp.example.com/mcp`, found `http://u@a.test/`",
            ),
            (
                &[url, ("tool", "x")],
                "unknown config value `tool`: expected `url`, `bearer`, `header.NAME`, `protocol`, `tools`, `prefix`, `names` and `attachment_bytes`",
            ),
            (
                &[url, ("protocol", "2025-03-26")],
                "`protocol`: expected `auto`, `2026-07-28`, `stateless` or `session`, found `2025-03-26`",
            ),
            (
                &[url, ("attachment_bytes", "1 MB")],
                "`attachment_bytes`: expected a number of bytes, such as `131072`, found `1 MB`",
            ),
            (
                &[url, ("header.Authorization", "hunter2")],
                "`header.Authorization`: the plugin sets this header itself; for `authorization`, use `bearer`",
            ),
            (
                &[url, ("header.a b", "hunter2")],
                "`header.a b`: expected a name of letters, digits, `-` and `_` behind `header.`",
            ),
            (
                &[url, ("header.x", "hunter2\n")],
                "`header.x`: expected a value of one line, found a control character in it",
            ),
            (
                &[url, ("bearer", "hunter2\r")],
                "`bearer`: expected a value of one line, found a control character in it",
            ),
        ];
        for (values, expected) in table {
            assert_eq!(read(values).unwrap_err(), expected);
        }
    }
}
