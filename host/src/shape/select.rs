//! Paths into a row, and the selection of fields that a view or `fields` makes.
//!
//! A path names a field by dots and passes through arrays: `gates.verdict` is the verdict of every gate. A selection
//! copies what it keeps byte for byte and in the row's own order.

use std::ops::Range;

use super::json;

/// How deep arrays may stand directly inside arrays on the way to a field; what lies deeper is not selected.
const NESTED_ARRAYS: u8 = 8;

/// A compiled path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    text: String,
    steps: Vec<Box<str>>,
}

impl Path {
    /// Compiles a path. The error says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let steps: Vec<Box<str>> = text.split('.').map(Into::into).collect();
        if steps.iter().any(|step| step.is_empty()) {
            return Err(format!("`{text}` is not a path: expected names joined by single dots"));
        }
        Ok(Self { text: text.to_owned(), steps })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Calls `found` with every value that the path reaches in `row`, until it returns true. Whether it did.
    pub(crate) fn any(&self, row: &[u8], mut found: impl FnMut(&[u8]) -> bool) -> bool {
        visit(row, 0, &self.steps, NESTED_ARRAYS, &mut |range| found(&row[range]))
    }

    /// The first value that the path reaches.
    pub(crate) fn first<'a>(&self, row: &'a [u8]) -> Option<&'a [u8]> {
        let mut first = None;
        visit(row, 0, &self.steps, NESTED_ARRAYS, &mut |range| {
            first = Some(&row[range]);
            true
        });
        first
    }
}

/// Walks to every value behind `steps`; stops and returns true when `found` does.
fn visit(text: &[u8], at: usize, steps: &[Box<str>], arrays: u8, found: &mut dyn FnMut(Range<usize>) -> bool) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return json::skip_value(text, at).is_some_and(|end| found(at..end));
    };
    match text.get(at) {
        Some(b'{') => json::members(text, at)
            .map_while(Result::ok)
            .filter(|member| json::key_is(&text[member.key.clone()], step))
            .any(|member| {
                if rest.is_empty() {
                    found(member.value)
                } else {
                    visit(text, member.value.start, rest, NESTED_ARRAYS, found)
                }
            }),
        Some(b'[') if arrays > 0 => json::elements(text, at)
            .map_while(Result::ok)
            .any(|element| visit(text, element.start, steps, arrays - 1, found)),
        _ => false,
    }
}

/// A set of fields to keep, as a tree of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Names with what is kept below them; an empty selection below a name keeps the whole value.
    children: Vec<(Box<str>, Selection)>,
}

impl Selection {
    /// The union of paths. A path that names an object keeps the whole object, whatever deeper paths say.
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut root = Self::default();
        for path in paths {
            let mut node = &mut root;
            for (index, step) in path.steps.iter().enumerate() {
                let position = node.children.iter().position(|(name, _)| name == step);
                let is_new = position.is_none();
                let position = position.unwrap_or_else(|| {
                    node.children.push((step.clone(), Self::default()));
                    node.children.len() - 1
                });
                node = &mut node.children[position].1;
                if index + 1 == path.steps.len() {
                    node.children.clear();
                } else if !is_new && node.children.is_empty() {
                    break;
                }
            }
        }
        root
    }

    /// Appends what the selection keeps of `row` to `out`. A row that is not an object or array stays as it is.
    pub(crate) fn copy(&self, row: &[u8], out: &mut Vec<u8>) {
        match row.first() {
            Some(b'{' | b'[') => {
                self.copy_value(row, 0, NESTED_ARRAYS, out);
            }
            _ => out.extend_from_slice(row),
        }
    }

    /// Appends one value; false where there is nothing to keep of it.
    fn copy_value(&self, text: &[u8], at: usize, arrays: u8, out: &mut Vec<u8>) -> bool {
        match text.get(at) {
            Some(b'{') => {
                out.push(b'{');
                let start = out.len();
                for member in json::members(text, at).map_while(Result::ok) {
                    let key = &text[member.key.clone()];
                    let Some((_, below)) = self.children.iter().find(|(name, _)| json::key_is(key, name)) else {
                        continue;
                    };
                    let mark = out.len();
                    if mark > start {
                        out.push(b',');
                    }
                    out.extend_from_slice(&text[member.key.start - 1..member.key.end + 1]);
                    out.push(b':');
                    if below.children.is_empty() {
                        out.extend_from_slice(&text[member.value]);
                    } else if !below.copy_value(text, member.value.start, NESTED_ARRAYS, out) {
                        out.truncate(mark);
                    }
                }
                out.push(b'}');
                true
            }
            Some(b'[') if arrays > 0 => {
                out.push(b'[');
                let start = out.len();
                for element in json::elements(text, at).map_while(Result::ok) {
                    let mark = out.len();
                    if mark > start {
                        out.push(b',');
                    }
                    if !self.copy_value(text, element.start, arrays - 1, out) {
                        out.truncate(mark);
                    }
                }
                out.push(b']');
                true
            }
            // Null says that there is nothing below; any other scalar has no place in a selection of fields below it.
            Some(b'n') => {
                out.extend_from_slice(b"null");
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(paths: &[&str], row: &str) -> String {
        let paths: Vec<Path> = paths.iter().map(|path| Path::new(path).unwrap()).collect();
        let mut out = Vec::new();
        Selection::new(&paths).copy(row.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    const ROW: &str = r#"{ "id": 9007199254740993, "gates": [{"verdict":"ok","note":"…"},{"note":"x"}, 7],
        "last_gate": {"verdict": 0.10, "deep": {"a": 1e400, "b": 2}}, "none": null, "id": 2 }"#;

    #[test]
    fn a_selection_keeps_bytes_order_and_duplicate_keys() {
        assert_eq!(
            copied(&["last_gate.verdict", "id"], ROW),
            r#"{"id":9007199254740993,"last_gate":{"verdict":0.10},"id":2}"#
        );
    }

    #[test]
    fn a_path_passes_through_arrays_and_leaves_no_nulls_behind() {
        assert_eq!(copied(&["gates.verdict"], ROW), r#"{"gates":[{"verdict":"ok"},{}]}"#);
    }

    #[test]
    fn a_whole_object_wins_over_its_parts_in_either_order() {
        let whole = r#"{"last_gate":{"verdict": 0.10, "deep": {"a": 1e400, "b": 2}}}"#;
        assert_eq!(copied(&["last_gate", "last_gate.deep.a"], ROW), whole);
        assert_eq!(copied(&["last_gate.deep.a", "last_gate"], ROW), whole);
        assert_eq!(copied(&["last_gate.deep.a", "last_gate.verdict"], ROW), r#"{"last_gate":{"verdict":0.10,"deep":{"a":1e400}}}"#);
    }

    #[test]
    fn null_stays_null_and_a_missing_field_stays_missing() {
        assert_eq!(copied(&["none.x", "nowhere", "id.x"], ROW), r#"{"none":null}"#);
    }

    #[test]
    fn a_path_finds_every_value() {
        let path = Path::new("gates.note").unwrap();
        let mut seen = Vec::new();
        path.any(ROW.as_bytes(), |value| {
            seen.push(String::from_utf8(value.to_vec()).unwrap());
            false
        });
        assert_eq!(seen, ["\"…\"", "\"x\""]);
        assert_eq!(Path::new("id").unwrap().first(ROW.as_bytes()), Some(&b"9007199254740993"[..]));
        assert!(Path::new("a..b").is_err());
    }

    #[test]
    fn nested_arrays_do_not_recurse_without_end() {
        let row = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(copied(&["a.b"], &row).len() < 100);
    }
}
