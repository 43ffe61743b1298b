//! Which tools of the server are listed, and under which names.
//!
//! A call arrives with the published name alone and must not cost a listing to be understood, so every published name
//! leads back to the server's by a rule.

/// The longest name that the host publishes.
const MAX_CHARS: usize = 64;

/// What stands for a dot, which the host does not take in a name and MCP does.
const DOT: &str = "--";

/// Names by rule and by exception.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    prefix: String,
    /// Published name, name of the server.
    exceptions: Vec<(String, String)>,
}

impl Names {
    /// `prefix` goes before every name but those of `exceptions`, which are `PUBLISHED=NAME`, separated by commas.
    pub(crate) fn new(prefix: &str, exceptions: &str) -> Result<Self, String> {
        if !prefix.is_empty() && !is_publishable(prefix) {
            return Err(format!(
                "`prefix`: expected letters, digits, `_` and `-`, found `{prefix}`"
            ));
        }
        let exceptions = split(exceptions)
            .map(|pair| match pair.split_once('=') {
                Some((published, name)) if is_publishable(published.trim()) && !name.trim().is_empty() => {
                    Ok((published.trim().to_owned(), name.trim().to_owned()))
                }
                _ => Err(format!(
                    "`names`: expected `PUBLISHED=NAME` with a published name of 1 to {MAX_CHARS} letters, digits, `_` and \
                     `-`, found `{pair}`"
                )),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            prefix: prefix.to_owned(),
            exceptions,
        })
    }

    /// The published name, or why there is none.
    pub(crate) fn publish(&self, name: &str) -> Result<String, String> {
        if let Some((published, _)) = self.exceptions.iter().find(|(_, other)| other == name) {
            return Ok(published.clone());
        }
        let hint = format!("name it in the config value `names`, such as `PUBLISHED={name}`");
        if name.contains(DOT) {
            return Err(format!(
                "its name has `{DOT}`, which stands for a dot; {hint}"
            ));
        }
        let published = format!("{}{}", self.prefix, name.replace('.', DOT));
        match is_publishable(&published) {
            true => Ok(published),
            false => Err(format!(
                "`{published}` is not a name of 1 to {MAX_CHARS} letters, digits, `_` and `-`; {hint}"
            )),
        }
    }

    /// The server's name for a published one.
    pub(crate) fn resolve(&self, published: &str) -> Option<String> {
        if let Some((_, name)) = self.exceptions.iter().find(|(other, _)| other == published) {
            return Some(name.clone());
        }
        Some(published.strip_prefix(&self.prefix)?.replace(DOT, "."))
    }
}

fn is_publishable(name: &str) -> bool {
    (1..=MAX_CHARS).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// Which tools are listed: names or patterns with `*` and `?`, and with `!` before them those that are not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

impl Filter {
    pub(crate) fn new(list: &str) -> Self {
        let (unwanted, wanted) = split(list).partition::<Vec<_>, _>(|part| part.starts_with('!'));
        Self {
            wanted: wanted.into_iter().map(str::to_owned).collect(),
            unwanted: unwanted
                .into_iter()
                .map(|part| part[1..].to_owned())
                .collect(),
        }
    }

    /// Whether a tool is listed. With nothing but exclusions, everything else is.
    pub(crate) fn admits(&self, name: &str) -> bool {
        let is_among = |list: &[String]| list.iter().any(|pattern| fits(pattern, name));
        (self.wanted.is_empty() || is_among(&self.wanted)) && !is_among(&self.unwanted)
    }

    /// What was asked for and fits none of these names.
    pub(crate) fn missing<'a>(&'a self, names: &[&str]) -> Vec<&'a str> {
        let fits_none = |pattern: &&str| !names.iter().any(|name| fits(pattern, name));
        self.wanted
            .iter()
            .map(String::as_str)
            .filter(fits_none)
            .collect()
    }
}

/// Whether a name fits a pattern, in time linear in both but for one step back a character.
fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut here) = (0, 0);
    let mut star = None;
    while here < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(other) if *other == '?' || *other == name[here] => {
                at += 1;
                here += 1;
            }
            _ => match &mut star {
                Some((back, from)) => {
                    *from += 1;
                    at = *back + 1;
                    here = *from;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_name_leads_back_to_the_servers() {
        let names = Names::new("gh_", "merge=pulls/merge, cut=a--b").unwrap();
        for (name, published) in [
            ("search", "gh_search"),
            ("issues.list", "gh_issues--list"),
            ("pulls/merge", "merge"),
            ("a--b", "cut"),
        ] {
            assert_eq!(names.publish(name).unwrap(), published);
            assert_eq!(names.resolve(published).unwrap(), name);
        }
        assert_eq!(names.resolve("search"), None);
    }

    #[test]
    fn a_name_that_cannot_be_published_says_why_and_what_to_do() {
        let names = Names::new("", "").unwrap();
        assert_eq!(
            names.publish("a--b").unwrap_err(),
            "its name has `--`, which stands for a dot; name it in the config value `names`, such as `PUBLISHED=a--b`"
        );
        assert_eq!(
            names.publish("a/b").unwrap_err(),
            "`a/b` is not a name of 1 to 64 letters, digits, `_` and `-`; name it in the config value `names`, such as \
             `PUBLISHED=a/b`"
        );
        assert!(names.publish(&"x".repeat(64)).is_ok());
        assert!(names.publish(&"x".repeat(65)).is_err());
    }

    #[test]
    fn what_cannot_be_a_prefix_or_a_pair_is_refused() {
        assert_eq!(
            Names::new("a b", "").unwrap_err(),
            "`prefix`: expected letters, digits, `_` and `-`, found `a b`"
        );
        for pair in ["a", "a=", "a/b=c"] {
            assert_eq!(
                Names::new("", pair).unwrap_err(),
                format!(
                    "`names`: expected `PUBLISHED=NAME` with a published name of 1 to 64 letters, digits, `_` and `-`, found \
                     `{pair}`"
                )
            );
        }
    }

    #[test]
    fn patterns_pick_tools_and_leave_tools_out() {
        let filter = Filter::new("get_*, search, list_?s, !get_secret*");
        for (name, admitted) in [
            ("get_file", true),
            ("get_", true),
            ("get_secrets", false),
            ("search", true),
            ("search_all", false),
            ("list_as", true),
            ("list_s", false),
        ] {
            assert_eq!(filter.admits(name), admitted, "{name}");
        }
        assert!(Filter::new("").admits("anything"));
        assert!(Filter::new("!a").admits("b") && !Filter::new("!a").admits("a"));
        assert!(fits("a*b*c", "a-b-b-c") && !fits("a*b*c", "a-b-b"));
        assert_eq!(
            filter.missing(&["get_file", "list_as"]),
            ["search"],
            "an exclusion may fit nothing"
        );
    }
}
