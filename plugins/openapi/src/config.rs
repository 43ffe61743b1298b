//! What the operator says: which document, which of its operations, where they are, and which secret goes where.
//!
//! Everything is checked when the plugin is loaded. No message carries a value of a secret.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::url::Base;

/// The values that this plugin knows.
const KNOWN: [&str; 7] = [
    "document",
    "base_url",
    "tags",
    "methods",
    "operations",
    "writes",
    "auth",
];

/// The methods whose operations can become tools. `OPTIONS`, `TRACE` and `CONNECT` ask nothing of an API.
pub(crate) const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

/// The methods that change nothing.
const READS: [&str; 2] = ["GET", "HEAD"];

/// Whether operations of this method change something.
pub(crate) fn is_write(method: &str) -> bool {
    !READS.contains(&method)
}

/// Where the document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A path in a granted folder.
    File(String),
    /// A URL at a granted host.
    Url(String),
}

/// Where a secret goes, and the secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A header field of that name.
    Header {
        /// The field's name.
        name: String,
        /// What it carries: the secret, and what stands before it.
        value: String,
        /// The secret alone.
        secret: String,
    },
    /// A parameter of the query.
    Query {
        /// The parameter's name.
        name: String,
        /// The secret.
        secret: String,
    },
}

impl Credential {
    /// The texts that must not be shown.
    pub(crate) fn secrets(&self) -> Vec<&str> {
        match self {
            Self::Header { value, secret, .. } => {
                vec![value.rsplit(' ').next().unwrap_or(value), secret]
            }
            Self::Query { secret, .. } => vec![secret],
        }
    }
}

/// The configuration.
pub(crate) struct Config {
    pub(crate) document: Source,
    pub(crate) base_url: Option<Base>,
    /// Only operations with one of these tags. Empty: all.
    pub(crate) tags: Vec<String>,
    /// Only operations of these methods. Empty: all.
    pub(crate) methods: Vec<String>,
    /// Only these operations, by their ids or names. Empty: all.
    pub(crate) operations: Vec<String>,
    /// Whether operations that change something are tools too.
    pub(crate) writes: bool,
    pub(crate) credentials: Vec<Credential>,
}

impl Config {
    /// Reads the values; secrets are among them, under their names.
    ///
    /// # Errors
    ///
    /// The error names the value, and says what was expected and found.
    pub(crate) fn read(values: &BTreeMap<String, String>) -> Result<Self, String> {
        let document = match values.get("document").map(|text| text.trim()) {
            None | Some("") => {
                return Err(String::from(
                    "config `document`: expected a path in a granted folder, such as `/api/openapi.json`, or a URL at a \
                     granted host; found none",
                ));
            }
            Some(url) if url.contains("://") => {
                Base::parse(url).map_err(|error| format!("config `document`: {error}"))?;
                Source::Url(url.to_owned())
            }
            Some(path) => Source::File(path.to_owned()),
        };
        let base_url = values
            .get("base_url")
            .map(|text| Base::parse(text).map_err(|error| format!("config `base_url`: {error}")))
            .transpose()?;
        let writes = match values.get("writes").map(String::as_str) {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(format!(
                    "config `writes`: expected `true` or `false`, found `{other}`"
                ));
            }
        };
        let list = |name: &str| -> Vec<String> {
            let text = values.get(name).map_or("", String::as_str);
            let parts = text.split(',').map(str::trim);
            parts
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let methods: Vec<String> = list("methods")
            .iter()
            .map(|method| method.to_ascii_uppercase())
            .collect();
        for method in &methods {
            if !METHODS.contains(&method.as_str()) {
                return Err(format!(
                    "config `methods`: expected some of {}, found `{method}`",
                    METHODS.join(", ")
                ));
            }
            if is_write(method) && !writes {
                return Err(format!(
                    "config `methods`: `{method}` changes things, and operations that do are listed only with writes = \"true\""
                ));
            }
        }
        let mut used = Vec::new();
        let mut credentials = Vec::new();
        for entry in list("auth") {
            let (credential, secret) = credential(&entry, values)?;
            credentials.push(credential);
            used.push(secret);
        }
        if let Some(unknown) = values
            .keys()
            .find(|name| !KNOWN.contains(&name.as_str()) && !used.contains(name))
        {
            return Err(format!(
                "`{unknown}` is neither a value that this plugin knows ({}) nor a secret that `auth` names",
                KNOWN.join(", ")
            ));
        }
        Ok(Self {
            document,
            base_url,
            tags: list("tags"),
            methods,
            operations: list("operations"),
            writes,
            credentials,
        })
    }
}

/// One entry of `auth`, and the name of its secret.
fn credential(
    entry: &str,
    values: &BTreeMap<String, String>,
) -> Result<(Credential, String), String> {
    let expected = || {
        format!(
            "config `auth`: expected `bearer:SECRET`, `basic:SECRET`, `header:FIELD:SECRET` or `query:PARAMETER:SECRET`, \
             where SECRET is the name of a granted secret; found `{entry}`"
        )
    };
    let parts: Vec<&str> = entry.split(':').map(str::trim).collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(expected());
    }
    let secret = |name: &str| {
        let Some(value) = values.get(name).filter(|_| !KNOWN.contains(&name)) else {
            return Err(format!(
                "config `auth`: there is no secret `{name}`; grant it: secrets = {{ {name} = {{ env = \"…\" }} }}"
            ));
        };
        // What would end a header field, and begin another one.
        if value.chars().any(char::is_control) {
            return Err(format!(
                "config `auth`: the secret `{name}` has a line break or another control character in it"
            ));
        }
        Ok(value.clone())
    };
    let header = |name: &str, value: String, secret: String| Credential::Header {
        name: name.to_owned(),
        value,
        secret,
    };
    Ok(match parts[..] {
        ["bearer", name] => {
            let secret = secret(name)?;
            (
                header("authorization", format!("Bearer {secret}"), secret),
                name.to_owned(),
            )
        }
        ["basic", name] => {
            let secret = secret(name)?;
            if !secret.contains(':') {
                return Err(format!(
                    "config `auth`: the secret `{name}` must be `USER:PASSWORD` for basic, and has no colon"
                ));
            }
            let value = format!("Basic {}", STANDARD.encode(&secret));
            (header("authorization", value, secret), name.to_owned())
        }
        ["header", field, name] => {
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!#$%&'*+^`|~".contains(&byte);
            if !field.bytes().all(is_token) {
                return Err(expected());
            }
            let secret = secret(name)?;
            (
                header(&field.to_ascii_lowercase(), secret.clone(), secret),
                name.to_owned(),
            )
        }
        ["query", parameter, name] => (
            Credential::Query {
                name: parameter.to_owned(),
                secret: secret(name)?,
            },
            name.to_owned(),
        ),
        _ => return Err(expected()),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A configuration of these values.
    pub(crate) fn of(values: &[(&str, &str)]) -> Result<Config, String> {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::read(&values.collect())
    }

    #[test]
    fn a_bad_value_is_an_error_that_names_it() {
        let table: [(&[(&str, &str)], &str); 13] = [
            (
                &[],
                "config `document`: expected a path in a granted folder",
            ),
            (
                &[("document", "ftp://a/b")],
                "config `document`: expected a URL that begins with `http://` or `https://`",
            ),
            (
                &[("document", "/a"), ("base_url", "a.test")],
                "config `base_url`: expected a URL",
            ),
            (
                &[("document", "/a"), ("writes", "yes")],
                "config `writes`: expected `true` or `false`, found `yes`",
            ),
            (
                &[("document", "/a"), ("methods", "get, fetch")],
                "config `methods`: expected some of GET, HEAD, POST, PUT, PATCH, DELETE, found `FETCH`",
            ),
            (
                &[("document", "/a"), ("methods", "post")],
                "listed only with writes = \"true\"",
            ),
            (
                &[("document", "/a"), ("tag", "x")],
                "`tag` is neither a value that this plugin knows (document, base_url, tags,",
            ),
            (
                &[("document", "/a"), ("auth", "bearer")],
                "config `auth`: expected `bearer:SECRET`",
            ),
            (
                &[
                    ("document", "/a"),
                    ("auth", "header:X Y:T"),
                    ("T", "s3cret"),
                ],
                "config `auth`: expected `bearer:SECRET`",
            ),
            (
                &[("document", "/a"), ("auth", "bearer:T")],
                "config `auth`: there is no secret `T`; grant it",
            ),
            (
                &[("document", "/a"), ("auth", "bearer:document")],
                "config `auth`: there is no secret `document`",
            ),
            (
                &[("document", "/a"), ("auth", "basic:T"), ("T", "s3cret")],
                "must be `USER:PASSWORD`",
            ),
            (
                &[
                    ("document", "/a"),
                    ("auth", "bearer:T"),
                    ("T", "s3cret\nx: y"),
                ],
                "has a line break",
            ),
        ];
        for (values, expected) in table {
            let error = of(values).err().unwrap_or_else(|| panic!("{values:?}"));
            assert!(error.contains(expected), "{values:?}: {error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn credentials_go_where_auth_says() {
        let config = of(&[
            ("document", "/a"),
            ("auth", "bearer:A, header:X-Api-Key:B, query:key:C, basic:D"),
            ("A", "a1"),
            ("B", "b1"),
            ("C", "c1"),
            ("D", "user:pass"),
        ])
        .unwrap();
        let seen: Vec<(&str, &str)> = config
            .credentials
            .iter()
            .map(|credential| match credential {
                Credential::Header { name, value, .. } => (name.as_str(), value.as_str()),
                Credential::Query { name, secret } => (name.as_str(), secret.as_str()),
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("authorization", "Bearer a1"),
                ("x-api-key", "b1"),
                ("key", "c1"),
                ("authorization", "Basic dXNlcjpwYXNz"),
            ]
        );
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let config = of(&[
            ("document", "/a"),
            ("tags", " a b ,, c "),
            ("methods", "get"),
        ])
        .unwrap();
        assert_eq!(config.tags, ["a b", "c"]);
        assert_eq!(config.methods, ["GET"]);
        assert!(config.operations.is_empty() && !config.writes);
    }
}
