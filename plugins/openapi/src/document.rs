//! The document: its version, its operations in their order, and what its references lead to.
//!
//! Operations are found in one walk over the paths. What is referred to is looked up in an index of its section, which is
//! made when the first reference leads there: a call that needs none makes none.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::config::{Config, METHODS, is_write};
use crate::json::{Node, Reader};
use crate::url::Base;

/// How many references in a row are followed. Hand-written documents have one or two.
const MAX_HOPS: usize = 16;

/// The longest name of a tool that every client takes.
pub(crate) const MAX_NAME_CHARS: usize = 64;

/// The members of one section of the components, by name. Sorted, since hashing would want random numbers, which no
/// operator should have to grant for this.
type Section<'a> = BTreeMap<Cow<'a, str>, Node<'a>>;

/// An OpenAPI document.
pub(crate) struct Document<'a> {
    root: Node<'a>,
    /// Where in the root the paths begin. Where they end is not known before somebody has been there.
    paths: usize,
    /// How far in the paths somebody has been, between two of them.
    walked: Cell<usize>,
    /// Where in the root the components begin, once somebody has come by.
    components: Cell<Option<usize>>,
    /// Where it came from, for servers that are relative to it.
    pub(crate) place: Option<Base>,
    sections: RefCell<BTreeMap<String, Section<'a>>>,
}

/// One operation, where it lies.
#[derive(Debug, Clone)]
pub(crate) struct Found<'a> {
    /// The name of its tool.
    pub(crate) name: String,
    /// In capitals.
    pub(crate) method: &'static str,
    /// With its parameters in braces.
    pub(crate) path: Cow<'a, str>,
    /// What holds for all operations of the path.
    pub(crate) path_item: Node<'a>,
    /// The operation itself.
    pub(crate) node: Node<'a>,
}

impl<'a> Document<'a> {
    /// A document that has been checked to be JSON.
    ///
    /// # Errors
    ///
    /// What is no OpenAPI document, or one of a version that is not understood.
    pub(crate) fn read(text: &'a str, place: Option<Base>) -> Result<Self, String> {
        let expected = "expected an OpenAPI document of version 3.0 or 3.1, as JSON";
        let root = Node::whole(text)
            .filter(|root| root.is_object())
            .ok_or_else(|| format!("{expected}, found something that is no JSON object"))?;
        let (mut version, mut paths, mut is_swagger) = (None, None, false);
        let components = Cell::new(None);
        let mut reader = Reader::new(root.text());
        reader.take(b'{');
        while let Some(key) = reader.key() {
            if key == "paths" {
                paths = Some(reader.position());
                if version.is_some() {
                    break;
                }
            }
            if key == "components" {
                components.set(Some(reader.position()));
            }
            let Some(value) = reader.value() else { break };
            match key {
                "openapi" => version = value.string(),
                "swagger" => is_swagger = true,
                _ => {}
            }
            if version.is_some() && paths.is_some() {
                break;
            }
        }
        match version.as_deref() {
            Some(version) if version.starts_with("3.0") || version.starts_with("3.1") => {}
            Some(version) => return Err(format!("{expected}, found version `{version}`")),
            None if is_swagger => {
                return Err(format!("{expected}, found Swagger 2.0; convert it first"));
            }
            None => return Err(format!("{expected}, found no member `openapi`")),
        }
        let is_object = |at: &usize| Reader::from(root.text(), *at).take(b'{');
        let Some(paths) = paths.filter(is_object) else {
            return Err(format!("{expected}, found no `paths` in it"));
        };
        Ok(Self {
            root,
            paths,
            components,
            walked: Cell::new(paths),
            place,
            sections: RefCell::default(),
        })
    }

    /// What a reference leads to: a place in this document.
    pub(crate) fn target(&self, reference: &str) -> Option<Node<'a>> {
        let pointer = reference.strip_prefix('#')?;
        let mut tokens = pointer.split('/').skip(1).map(|token| {
            crate::url::decode(&token.replace('+', "%2B"))
                .replace("~1", "/")
                .replace("~0", "~")
        });
        let mut node = self.root;
        if let Some(rest) = pointer.strip_prefix("/components/")
            && rest.contains('/')
        {
            tokens.next();
            let (section, name) = (tokens.next()?, tokens.next()?);
            node = self.component(&section, &name)?;
        }
        for token in tokens {
            node = if node.is_array() {
                node.items().nth(token.parse().ok()?)?
            } else {
                node.get(&token)?
            };
        }
        Some(node)
    }

    fn component(&self, section: &str, name: &str) -> Option<Node<'a>> {
        let mut sections = self.sections.borrow_mut();
        if !sections.contains_key(section) {
            // Entered, and not read as a value first: whoever passes over a section reads all of it.
            let mut reader = Reader::from(self.root.text(), self.components()?);
            reader.take(b'{');
            while Node::of_key(reader.key()?)? != section {
                reader.value()?;
            }
            let members = reader.members();
            sections.insert(section.to_owned(), members.collect());
        }
        sections.get(section)?.get(name).copied()
    }

    /// Where in the root the components begin.
    fn components(&self) -> Option<usize> {
        if self.components.get().is_none() {
            // They stand behind the paths, of which some have been walked over.
            let mut reader = Reader::from(self.root.text(), self.walked.get());
            reader.take(b'{');
            while reader.key().is_some() {
                reader.value()?;
            }
            while reader.key()? != "components" {
                reader.value()?;
            }
            self.components.set(Some(reader.position()));
        }
        self.components.get()
    }

    /// What a node is once its references have been followed.
    pub(crate) fn resolve(&self, mut node: Node<'a>) -> Option<Node<'a>> {
        for _ in 0..MAX_HOPS {
            let Some(reference) = node.string_of("$ref") else {
                return Some(node);
            };
            node = self.target(&reference)?;
        }
        None
    }

    /// Calls `visit` for every operation that is chosen, in the order of the document, until it says that it has enough.
    /// Names are given in that order, so a walk that ends early has given the same ones.
    pub(crate) fn each_chosen(&self, config: &Config, mut visit: impl FnMut(Found<'a>) -> bool) {
        let mut taken = BTreeSet::new();
        let mut reader = Reader::from(self.root.text(), self.paths);
        reader.take(b'{');
        while let Some(key) = reader.key() {
            let Some(path) = Node::of_key(key) else {
                return;
            };
            let start = reader.position();
            let mut operations: Vec<(&'static str, Operation<'a>)> = Vec::new();
            let mut reference = None;
            if reader.take(b'{') {
                while let Some(key) = reader.key() {
                    let method = METHODS
                        .into_iter()
                        .find(|method| method.eq_ignore_ascii_case(key));
                    match method {
                        Some(method) => match Operation::enter(&mut reader) {
                            Some(operation) => operations.push((method, operation)),
                            None => return,
                        },
                        None => {
                            let Some(value) = reader.value() else { return };
                            if key == "$ref" {
                                reference = value.string();
                            }
                        }
                    }
                }
            } else if reader.value().is_none() {
                return;
            }
            self.walked.set(self.walked.get().max(reader.position()));
            let Some(mut path_item) = self.root.part(start, reader.position()) else {
                return;
            };
            if let Some(target) = reference.and_then(|reference| self.target(&reference)) {
                path_item = target;
                operations = of_item(target);
            }
            for (method, operation) in operations {
                if !operation.is_chosen(method, config) {
                    continue;
                }
                let name = unique(&operation.name(method, &path), &mut taken);
                let is_named = config.operations.is_empty()
                    || config
                        .operations
                        .iter()
                        .any(|wanted| *wanted == name || operation.id.as_deref() == Some(wanted));
                if !is_named {
                    continue;
                }
                let found = Found {
                    name,
                    method,
                    path: path.clone(),
                    path_item,
                    node: operation.node,
                };
                if visit(found) {
                    return;
                }
            }
        }
    }

    /// Says which of the operator's choices choose nothing. `chosen` are the operations that all of them together choose.
    ///
    /// # Errors
    ///
    /// A tag that no operation has, an operation that is not there or that changes something, and choices that leave
    /// nothing.
    pub(crate) fn check_choice(&self, config: &Config, chosen: &[Found<'a>]) -> Result<(), String> {
        let all = Config {
            document: config.document.clone(),
            base_url: None,
            tags: Vec::new(),
            methods: Vec::new(),
            operations: Vec::new(),
            writes: true,
            credentials: Vec::new(),
        };
        let (mut tags, mut names) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
        self.each_chosen(&all, |found| {
            for tag in found.node.strings_of("tags") {
                *tags.entry(tag.into_owned()).or_default() += 1;
            }
            if let Some(id) = found.node.string_of("operationId") {
                names.insert(id.into_owned(), found.method);
            }
            names.insert(found.name, found.method);
            false
        });
        if let Some(unknown) = config.tags.iter().find(|tag| !tags.contains_key(*tag)) {
            return Err(format!(
                "config `tags`: no operation has the tag `{unknown}`; the document has {}",
                shown(tags.keys())
            ));
        }
        for wanted in &config.operations {
            match names.get(wanted) {
                None => {
                    return Err(format!(
                        "config `operations`: there is no operation `{wanted}`; the document has {}",
                        shown(names.keys())
                    ));
                }
                Some(method) if is_write(method) && !config.writes => {
                    return Err(format!(
                        "config `operations`: `{wanted}` is a {method}, which changes things; such operations are listed \
                         only with writes = \"true\""
                    ));
                }
                Some(_) => {}
            }
        }
        if chosen.is_empty() {
            return Err(format!(
                "of the document's operations none is chosen: expected at least one that has one of `tags`, `methods` and \
                 `operations` each, and, without writes = \"true\", that only reads; the document's tags are {}",
                shown(tags.keys())
            ));
        }
        Ok(())
    }

    /// The document's tags with the number of their operations among the chosen ones, largest first.
    pub(crate) fn tags_of(chosen: &[Found<'a>]) -> Vec<(String, usize)> {
        let mut tags = BTreeMap::<String, usize>::new();
        for found in chosen {
            for tag in found.node.strings_of("tags") {
                *tags.entry(tag.into_owned()).or_default() += 1;
            }
        }
        let mut tags: Vec<(String, usize)> = tags.into_iter().collect();
        tags.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        tags
    }

    /// Where an operation is served: as the operator says, else as the document does for the operation, its path, or all.
    ///
    /// # Errors
    ///
    /// A server that is not a URL, and a relative one of a document that came from a file.
    pub(crate) fn server(&self, config: &Config, found: &Found<'a>) -> Result<Base, String> {
        if let Some(base) = &config.base_url {
            return Ok(base.clone());
        }
        let servers = [found.node, found.path_item, self.root];
        let server = servers
            .into_iter()
            .find_map(|holder| holder.get("servers")?.items().next());
        let url = match server {
            None => String::from("/"),
            Some(server) => {
                let mut url = server.string_of("url").unwrap_or_default().into_owned();
                for (name, variable) in server.get("variables").into_iter().flat_map(Node::members)
                {
                    let value = variable.string_of("default").unwrap_or_default();
                    url = url.replace(&format!("{{{name}}}"), &value);
                }
                url
            }
        };
        Base::join(self.place.as_ref(), &url)
    }
}

/// Some of many names, and how many there are beside.
fn shown<'n>(names: impl ExactSizeIterator<Item = &'n String>) -> String {
    // What fits into a line of a log.
    const SHOWN: usize = 40;
    let rest = names.len().saturating_sub(SHOWN);
    let listed: Vec<&str> = names.take(SHOWN).map(String::as_str).collect();
    match (listed.is_empty(), rest) {
        (true, _) => String::from("none"),
        (_, 0) => listed.join(", "),
        (_, rest) => format!("{} and {rest} more", listed.join(", ")),
    }
}

/// As much of an operation as choosing needs.
struct Operation<'a> {
    node: Node<'a>,
    id: Option<Cow<'a, str>>,
    tags: Option<Node<'a>>,
}

impl<'a> Operation<'a> {
    /// Reads it in passing.
    fn enter(reader: &mut Reader<'a>) -> Option<Self> {
        let node = reader.value()?;
        Some(Self::of(node))
    }

    fn of(node: Node<'a>) -> Self {
        let (mut id, mut tags) = (None, None);
        let mut reader = Reader::new(node.text());
        reader.take(b'{');
        // Both come early in what tools write, before the responses, which are most of an operation.
        while id.is_none() || tags.is_none() {
            let Some((key, value)) = reader.key().and_then(|key| Some((key, reader.value()?)))
            else {
                break;
            };
            match key {
                "operationId" => id = value.string().filter(|id| !id.is_empty()),
                "tags" => tags = Some(value),
                _ => {}
            }
        }
        Self { node, id, tags }
    }

    fn is_chosen(&self, method: &str, config: &Config) -> bool {
        let has_tag = || {
            let tags = self.tags.into_iter().flat_map(Node::items);
            tags.filter_map(Node::string)
                .any(|tag| config.tags.iter().any(|wanted| *wanted == tag))
        };
        (config.writes || !is_write(method))
            && (config.methods.is_empty() || config.methods.iter().any(|wanted| wanted == method))
            && (config.tags.is_empty() || has_tag())
    }

    /// The name that its id makes, or else its method and path.
    fn name(&self, method: &str, path: &str) -> String {
        match &self.id {
            Some(id) => valid_name(id),
            None => valid_name(&format!("{}_{path}", method.to_ascii_lowercase())),
        }
    }
}

fn of_item(item: Node<'_>) -> Vec<(&'static str, Operation<'_>)> {
    let members = item.members().filter_map(|(key, value)| {
        let method = METHODS
            .into_iter()
            .find(|method| method.eq_ignore_ascii_case(&key))?;
        Some((method, Operation::of(value)))
    });
    members.collect()
}

/// The text with everything that no name may have replaced by one `_`, and at most so long as a name may be.
fn valid_name(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
            name.push(c);
        } else if !name.ends_with('_') {
            name.push('_');
        }
    }
    let name = name.trim_matches('_');
    let name = &name[..name.len().min(MAX_NAME_CHARS)];
    let name = name.trim_end_matches('_');
    if name.is_empty() {
        String::from("operation")
    } else {
        name.to_owned()
    }
}

/// The name, or if it is taken the name with the first number that is not.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut unique = name.to_owned();
    let mut number = 1_usize;
    while !taken.insert(unique.clone()) {
        number += 1;
        let suffix = format!("_{number}");
        let kept = &name[..name.len().min(MAX_NAME_CHARS - suffix.len())];
        unique = format!("{kept}{suffix}");
    }
    unique
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::tests::of as config;

    const SMALL: &str = r##"{"openapi":"3.0.3","servers":[{"url":"https://{region}.test/v1/","variables":{"region":{"default":"eu"}}}],
        "paths":{
            "/orders":{"summary":"x","get":{"tags":["orders"],"responses":{},"operationId":"orders/list"},
                       "post":{"operationId":"orders.list","tags":["orders"]}},
            "/orders/{id}":{"parameters":[],"get":{"tags":["orders","one"]},"servers":[{"url":"https://one.test"}]},
            "/again":{"$ref":"#/components/pathItems/again"},
            "/options":{"options":{"operationId":"asks-nothing"}}},
        "components":{"pathItems":{"again":{"delete":{"operationId":"orders list"}}},
            "schemas":{"a/b":{"$ref":"#/components/schemas/c"},"c":{"allOf":[{"type":"string"}]},
                "loop":{"$ref":"#/components/schemas/loop"}}}}"##;

    fn names(values: &[(&str, &str)]) -> Vec<String> {
        let document = Document::read(SMALL, None).unwrap();
        let mut all = vec![("document", "/a")];
        all.extend(values);
        let mut names = Vec::new();
        document.each_chosen(&config(&all).unwrap(), |found| {
            names.push(format!("{} {} {}", found.name, found.method, found.path));
            false
        });
        names
    }

    #[test]
    fn operations_have_valid_names_of_their_own_and_writes_are_left_out() {
        assert_eq!(
            names(&[]),
            ["orders_list GET /orders", "get_orders_id GET /orders/{id}"]
        );
        assert_eq!(
            names(&[("writes", "true")]),
            [
                "orders_list GET /orders",
                "orders_list_2 POST /orders",
                "get_orders_id GET /orders/{id}",
                "orders_list_3 DELETE /again",
            ]
        );
    }

    #[test]
    fn operations_are_chosen_by_tag_method_and_id_together() {
        let write = ("writes", "true");
        assert_eq!(
            names(&[("tags", "one, none")]),
            ["get_orders_id GET /orders/{id}"]
        );
        assert_eq!(names(&[("methods", "DELETE,post"), write]).len(), 2);
        assert_eq!(
            names(&[("operations", "orders/list")]),
            ["orders_list GET /orders"]
        );
        assert_eq!(
            names(&[("operations", "orders_list_3"), write]),
            ["orders_list_3 DELETE /again"]
        );
        assert_eq!(
            names(&[("operations", "orders/list"), ("tags", "one")]),
            [""; 0]
        );
    }

    #[test]
    fn a_choice_that_chooses_nothing_is_an_error_that_names_it() {
        let document = Document::read(SMALL, None).unwrap();
        let error = |values: &[(&str, &str)]| {
            let mut all = vec![("document", "/a")];
            all.extend(values);
            let config = config(&all).unwrap();
            let mut chosen = Vec::new();
            document.each_chosen(&config, |found| {
                chosen.push(found);
                false
            });
            document.check_choice(&config, &chosen).unwrap_err()
        };
        assert_eq!(
            error(&[("tags", "orders,user")]),
            "config `tags`: no operation has the tag `user`; the document has one, orders"
        );
        assert!(error(&[("operations", "x")]).starts_with(
            "config `operations`: there is no operation `x`; the document has get_orders_id, orders list, orders.list,"
        ));
        assert!(
            error(&[("operations", "orders.list")])
                .starts_with("config `operations`: `orders.list` is a POST, which changes things")
        );
        assert!(error(&[("tags", "one"), ("methods", "HEAD")]).contains("none is chosen"));
    }

    #[test]
    fn long_names_are_cut_and_stay_unique() {
        let long = "é".repeat(3) + &"x".repeat(100);
        let name = valid_name(&long);
        assert_eq!(name, "x".repeat(64));
        let mut taken = BTreeSet::new();
        assert_eq!(unique(&name, &mut taken), name);
        assert_eq!(unique(&name, &mut taken), format!("{}_2", "x".repeat(62)));
        assert_eq!(valid_name("///"), "operation");
    }

    #[test]
    fn references_are_followed_as_far_as_they_lead() {
        let document = Document::read(SMALL, None).unwrap();
        let at = |reference: &str| document.target(reference).map(Node::text);
        assert_eq!(
            at("#/components/schemas/c/allOf/0/type"),
            Some("\"string\"")
        );
        assert_eq!(at("#/paths/~1orders/summary"), Some("\"x\""));
        assert_eq!(at("#/components/schemas/none"), None);
        assert_eq!(at("other.json#/x"), None);
        let node = |reference: &str| document.target(reference).unwrap();
        assert!(
            document
                .resolve(node("#/components/schemas/a~1b"))
                .unwrap()
                .get("allOf")
                .is_some()
        );
        assert_eq!(document.resolve(node("#/components/schemas/loop")), None);
    }

    #[test]
    fn components_are_found_before_the_paths_behind_them_and_in_the_middle_of_a_walk() {
        let (components, paths) = (
            r##""components":{"schemas":{"x":{"type":"null"}},"parameters":{"a":{"in":"path"}}}"##,
            r##""paths":{"/a":{"get":{}},"/b":{"get":{}}}"##,
        );
        for text in [
            format!(r#" {{"openapi":"3.1.0",{components},{paths}}} "#),
            format!(r#"{{"openapi":"3.1.0",{paths},"x":[1],{components}}}"#),
            format!(r#"{{{paths},{components},"openapi":"3.1.0"}}"#),
        ] {
            for visited in 0..3 {
                let document = Document::read(&text, None).unwrap();
                let mut seen = 0;
                if visited > 0 {
                    document.each_chosen(&config(&[("document", "/a")]).unwrap(), |_| {
                        seen += 1;
                        seen == visited
                    });
                }
                let at = |reference: &str| document.target(reference).map(Node::text);
                assert_eq!(
                    at("#/components/parameters/a/in"),
                    Some("\"path\""),
                    "{text}"
                );
                assert_eq!(
                    at("#/components/schemas/x/type"),
                    Some("\"null\""),
                    "{text}"
                );
                assert_eq!(at("#/components/headers/x"), None);
            }
        }
        let none = format!(r#"{{"openapi":"3.1.0",{paths}}}"#);
        let none = Document::read(&none, None).unwrap();
        assert_eq!(none.target("#/components/schemas/x"), None);
    }

    #[test]
    fn the_server_is_that_of_the_operator_the_operation_the_path_or_the_document() {
        let document = Document::read(SMALL, None).unwrap();
        let servers = |values: &[(&str, &str)]| {
            let config = config(values).unwrap();
            let mut seen = Vec::new();
            document.each_chosen(&config, |found| {
                let base = document.server(&config, &found).unwrap();
                seen.push(format!("{}{}", base.authority, base.path));
                false
            });
            seen
        };
        assert_eq!(servers(&[("document", "/a")]), ["eu.test/v1", "one.test"]);
        assert_eq!(
            servers(&[("document", "/a"), ("base_url", "http://mine.test/x")]),
            ["mine.test/x", "mine.test/x"]
        );
    }

    #[test]
    fn what_is_no_document_says_what_it_is() {
        for (text, expected) in [
            ("[]", "found something that is no JSON object"),
            (r#"{"swagger":"2.0","paths":{}}"#, "found Swagger 2.0"),
            (r#"{"openapi":"3.2.0","paths":{}}"#, "found version `3.2.0`"),
            (r#"{"paths":{}}"#, "found no member `openapi`"),
            (r#"{"openapi":"3.1.0"}"#, "found no `paths`"),
        ] {
            let error = Document::read(text, None).err().unwrap();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
