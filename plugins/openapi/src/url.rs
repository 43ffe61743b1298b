//! URLs: the parts that a request is made of, and what may stand in a path or a query.

/// Where an API is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// Whether it speaks TLS.
    pub(crate) is_https: bool,
    /// Host, and port where it is not the scheme's own.
    pub(crate) authority: String,
    /// What stands before every path; empty, or `/` and more, without a slash at the end.
    pub(crate) path: String,
    /// What stands behind a question mark.
    pub(crate) query: Option<String>,
}

impl Base {
    /// The parts of a URL.
    ///
    /// # Errors
    ///
    /// The error says what was expected and found.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        let (is_https, rest) = if lower.starts_with("https://") {
            (true, &text[8..])
        } else if lower.starts_with("http://") {
            (false, &text[7..])
        } else {
            return Err(format!(
                "expected a URL that begins with `http://` or `https://`, found `{text}`"
            ));
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query.to_owned())),
            None => (rest, None),
        };
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, ""),
        };
        if authority.is_empty() || authority.contains(['@', ' ', '{', '}']) {
            return Err(format!(
                "expected a URL with a host and without a user, found `{text}`"
            ));
        }
        Ok(Self {
            is_https,
            authority: authority.to_owned(),
            path: path.trim_end_matches('/').to_owned(),
            query,
        })
    }

    /// What a server of the document is, seen from the document's own place where it is a relative one.
    ///
    /// # Errors
    ///
    /// A relative one without such a place, and what [`Base::parse`] refuses.
    pub(crate) fn join(document: Option<&Self>, server: &str) -> Result<Self, String> {
        if server.contains("://") {
            return Self::parse(server);
        }
        let Some(document) = document else {
            return Err(format!(
                "the document's server is `{server}`, which does not say where the API is; set `base_url`"
            ));
        };
        let path = if server.starts_with('/') {
            server.to_owned()
        } else {
            let folder = document
                .path
                .rsplit_once('/')
                .map_or("", |(folder, _)| folder);
            format!("{folder}/{}", server.trim_start_matches("./"))
        };
        Ok(Self {
            path: path.trim_end_matches('/').to_owned(),
            query: None,
            ..document.clone()
        })
    }
}

/// Adds a text with everything encoded that is not a letter, a digit, `-`, `.`, `_` or `~`, so that no value can become
/// another part of a URL.
pub(crate) fn encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            for digit in [byte >> 4, byte & 15] {
                let digit = char::from_digit(digit.into(), 16).unwrap_or('0');
                out.push(digit.to_ascii_uppercase());
            }
        }
    }
}

/// The text that was encoded, `+` as a space.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = (*byte == b'%')
            .then(|| bytes.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match hex {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(if *byte == b'+' { b' ' } else { *byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_falls_into_its_parts() {
        let base = Base::parse("HTTPS://api.test:8443/v1/?a=b#c").unwrap();
        assert_eq!(
            (
                base.is_https,
                base.authority.as_str(),
                base.path.as_str(),
                base.query.as_deref()
            ),
            (true, "api.test:8443", "/v1", Some("a=b"))
        );
        for bad in [
            "api.test",
            "http://",
            "http:///a",
            "http://user@api.test",
            "ftp://a",
            "http://{host}/",
        ] {
            assert!(Base::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_relative_server_is_seen_from_the_document() {
        let document = Base::parse("http://a.test/docs/openapi.json").unwrap();
        for (server, path) in [
            ("/", ""),
            ("/v2/", "/v2"),
            ("v2", "/docs/v2"),
            ("./v2", "/docs/v2"),
        ] {
            assert_eq!(
                Base::join(Some(&document), server).unwrap().path,
                path,
                "{server}"
            );
        }
        assert_eq!(
            Base::join(Some(&document), "https://b.test/x")
                .unwrap()
                .authority,
            "b.test"
        );
        assert_eq!(
            Base::join(None, "/v2").unwrap_err(),
            "the document's server is `/v2`, which does not say where the API is; set `base_url`"
        );
    }

    #[test]
    fn what_is_encoded_comes_back() {
        let mut out = String::new();
        encode("a/b?c=d&é ~", &mut out);
        assert_eq!(out, "a%2Fb%3Fc%3Dd%26%C3%A9%20~");
        assert_eq!(decode(&out), "a/b?c=d&é ~");
        assert_eq!(decode("a+b%2"), "a b%2");
    }
}
