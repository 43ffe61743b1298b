//! Paths into a row, and the selection of fields that a view or `fields` makes.
//!
//! A path names a field by dots and passes through arrays: `gates.verdict` is the verdict of every gate. A selection
//! copies what it keeps byte for byte and in the row's own order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use memchr::memmem::Finder;

use super::json;

/// How deep arrays may stand directly inside arrays on the way to a field; what lies deeper is not selected.
const NESTED_ARRAYS: u8 = 8;

/// How many names a path may have. Real records are far flatter, and every name is a level of recursion.
const MAX_STEPS: usize = 32;

/// A compiled path.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    text: String,
    steps: Vec<Box<str>>,
    /// Finds the first name between its quotes.
    quoted: Finder<'static>,
}

/// The text is all that a path is made from.
impl PartialEq for Path {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Path {}

impl Path {
    /// Compiles a path. The error says what is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let steps: Vec<Box<str>> = text.split('.').map(Into::into).collect();
        if steps.iter().any(|step| step.is_empty()) {
            return Err(format!(
                "`{text}` is not a path: expected names joined by single dots"
            ));
        }
        if steps.len() > MAX_STEPS {
            return Err(format!(
                "`{text}` is not a path: expected at most {MAX_STEPS} names, found {}",
                steps.len()
            ));
        }
        let quoted = Finder::new(&format!("\"{}\"", steps[0])).into_owned();
        Ok(Self {
            text: text.to_owned(),
            steps,
            quoted,
        })
    }

    /// The path as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Its names, one after the other.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| &**step)
    }

    /// Whether `other` is this path or leads into what it names.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.steps.starts_with(&self.steps)
    }

    /// Calls `found` with every value that the path reaches in `row`, until it returns true. Whether it did.
    pub(crate) fn any(&self, row: &[u8], mut found: impl FnMut(&[u8]) -> bool) -> bool {
        let mut found = |range: Range<usize>| found(&row[range]);
        let Some((step, rest)) = self.steps.split_first() else {
            return false;
        };
        if row.first() != Some(&b'{') {
            return visit(row, 0, &self.steps, NESTED_ARRAYS, &mut found);
        }
        let mut may_recur = None;
        for member in json::members(row, 0).map_while(Result::ok) {
            if !json::is_name(&row[member.key], step) {
                continue;
            }
            let end = member.value.end;
            let is_found = if rest.is_empty() {
                found(member.value)
            } else {
                visit(row, member.value.start, rest, NESTED_ARRAYS, &mut found)
            };
            // A name mostly comes once. Where it does not stand in the rest of the row, nor anything that an escape could
            // spell, no member there has to be walked to. That is looked for once, however often it comes.
            if is_found || !*may_recur.get_or_insert_with(|| self.is_in(&row[end..])) {
                return is_found;
            }
        }
        false
    }

    /// Whether the first name may stand in a text.
    fn is_in(&self, text: &[u8]) -> bool {
        memchr::memchr(b'\\', text).is_some() || self.quoted.find(text).is_some()
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

/// Calls `found` with every value that each of the paths reaches in `row`, and with the path's index: in one walk over the
/// members of the row.
pub(crate) fn each_of<'a>(paths: &[&Path], row: &'a [u8], mut found: impl FnMut(usize, &'a [u8])) {
    if row.first() != Some(&b'{') {
        for (index, path) in paths.iter().enumerate() {
            visit(row, 0, &path.steps, NESTED_ARRAYS, &mut |range| {
                found(index, &row[range]);
                false
            });
        }
        return;
    }
    for member in json::members(row, 0).map_while(Result::ok) {
        let key = json::Key::new(&row[member.key]);
        for (index, path) in paths.iter().enumerate() {
            let Some((step, rest)) = path.steps.split_first() else {
                continue;
            };
            if !key.is(step) {
                continue;
            }
            if rest.is_empty() {
                found(index, &row[member.value.clone()]);
            } else {
                visit(row, member.value.start, rest, NESTED_ARRAYS, &mut |range| {
                    found(index, &row[range]);
                    false
                });
            }
        }
    }
}

/// Walks to every value behind `steps`; stops and returns true when `found` does.
fn visit(
    text: &[u8],
    at: usize,
    steps: &[Box<str>],
    arrays: u8,
    found: &mut dyn FnMut(Range<usize>) -> bool,
) -> bool {
    let Some((step, rest)) = steps.split_first() else {
        return json::skip_value(text, at).is_some_and(|end| found(at..end));
    };
    match text.get(at) {
        Some(b'{') => json::members(text, at)
            .map_while(Result::ok)
            .filter(|member| json::is_name(&text[member.key.clone()], step))
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
    children: BTreeMap<Box<str>, Selection>,
}

impl Selection {
    /// The union of paths. A path that names an object keeps the whole object, whatever deeper paths say.
    pub(crate) fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut root = Self::default();
        for path in paths {
            let mut node = &mut root;
            for (index, step) in path.steps.iter().enumerate() {
                let is_new = !node.children.contains_key(step);
                node = node.children.entry(step.clone()).or_default();
                if index + 1 == path.steps.len() {
                    node.children.clear();
                } else if !is_new && node.children.is_empty() {
                    break;
                }
            }
        }
        root
    }

    /// Appends what the selection keeps of `row` to `out`; true where it took something away. A row of which nothing is
    /// taken away, or that is not an object or array, stays as it came in.
    pub(crate) fn copy(&self, row: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut is_cut = false;
        if matches!(row.first(), Some(b'{' | b'[')) {
            self.copy_value(row, 0, NESTED_ARRAYS, out, &mut is_cut);
        }
        if !is_cut {
            out.truncate(start);
            out.extend_from_slice(row);
        }
        is_cut
    }

    /// Appends one value; false where there is nothing to keep of it.
    fn copy_value(
        &self,
        text: &[u8],
        at: usize,
        arrays: u8,
        out: &mut Vec<u8>,
        is_cut: &mut bool,
    ) -> bool {
        match text.get(at) {
            Some(b'{') => {
                out.push(b'{');
                let start = out.len();
                for member in json::members(text, at).map_while(Result::ok) {
                    let name = json::name(&text[member.key.clone()]);
                    let Some(below) = name.and_then(|name| self.children.get(&*name)) else {
                        *is_cut = true;
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
                    } else if !below.copy_value(
                        text,
                        member.value.start,
                        NESTED_ARRAYS,
                        out,
                        is_cut,
                    ) {
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
                    if !self.copy_value(text, element.start, arrays - 1, out, is_cut) {
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
            _ => {
                *is_cut = true;
                false
            }
        }
    }
}

/// How many names of fields an error lists.
const MAX_NAMES: usize = 100;

/// Looks for asked fields in all the rows of an answer. One that no row has is a mistake.
///
/// The page alone would not do: a field that its rows do not happen to have may well exist, and whether a name is valid
/// must not hang on the size of the page.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    paths: Vec<Path>,
    names: BTreeSet<String>,
}

impl Unseen {
    /// Looks for these.
    pub(crate) fn new(paths: Vec<Path>) -> Self {
        Self {
            paths,
            names: BTreeSet::new(),
        }
    }

    /// Takes note of a row. Costs nothing once every field was seen.
    pub(crate) fn look(&mut self, row: &[u8]) {
        if self.paths.is_empty() {
            return;
        }
        self.paths.retain(|path| path.first(row).is_none());
        if !self.paths.is_empty() && self.names.len() < MAX_NAMES && row.first() == Some(&b'{') {
            let members = json::members(row, 0).map_while(Result::ok);
            let names = members.filter_map(|member| {
                json::name(&row[member.key]).map(std::borrow::Cow::into_owned)
            });
            for name in names {
                if self.names.len() < MAX_NAMES {
                    self.names.insert(name);
                }
            }
        }
    }

    /// A field that no row had, if any row was there to have it, and names that rows do have.
    pub(crate) fn first(&self) -> Option<(&Path, &BTreeSet<String>)> {
        self.paths.first().map(|path| (path, &self.names))
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
        assert_eq!(
            copied(&["gates.verdict"], ROW),
            r#"{"gates":[{"verdict":"ok"},{}]}"#
        );
    }

    #[test]
    fn a_whole_object_wins_over_its_parts_in_either_order() {
        let whole = r#"{"last_gate":{"verdict": 0.10, "deep": {"a": 1e400, "b": 2}}}"#;
        assert_eq!(copied(&["last_gate", "last_gate.deep.a"], ROW), whole);
        assert_eq!(copied(&["last_gate.deep.a", "last_gate"], ROW), whole);
        assert_eq!(
            copied(&["last_gate.deep.a", "last_gate.verdict"], ROW),
            r#"{"last_gate":{"verdict":0.10,"deep":{"a":1e400}}}"#
        );
    }

    #[test]
    fn a_name_that_comes_again_is_found_again_however_it_is_spelled() {
        let path = Path::new("a").unwrap();
        for row in [
            r#"{"a":1,"b":{"a":2},"a":3}"#,
            r#"{"a":1,"b":"\\","\u0061":3}"#,
            r#"{"a":1,"a":2,"a":3}"#,
            r#"[{"a":1},{"a":3}]"#,
        ] {
            assert!(path.any(row.as_bytes(), |value| value == b"3"), "{row}");
        }
        let mut looked = 0;
        let is_found = path.any(br#"{"a":1,"b":{"a":3}}"#, |value| {
            looked += 1;
            value == b"3"
        });
        assert_eq!((is_found, looked), (false, 1));
    }

    #[test]
    fn null_stays_null_and_a_missing_field_stays_missing() {
        assert_eq!(
            copied(&["none.x", "nowhere", "id.x"], ROW),
            r#"{"none":null}"#
        );
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
        assert_eq!(
            Path::new("id").unwrap().first(ROW.as_bytes()),
            Some(&b"9007199254740993"[..])
        );
        assert!(Path::new("a..b").is_err());
    }

    #[test]
    fn a_row_of_which_nothing_is_taken_keeps_its_white_space() {
        assert_eq!(copied(&["id", "gates", "last_gate", "none"], ROW), ROW);
        assert_eq!(copied(&["id"], "7"), "7");
    }

    #[test]
    fn a_path_of_many_names_is_refused_and_not_walked() {
        let error = Path::new(&vec!["a"; 33].join(".")).unwrap_err();
        assert!(
            error.ends_with("expected at most 32 names, found 33"),
            "{error}"
        );
    }

    #[test]
    fn nested_arrays_do_not_recurse_without_end() {
        let row = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(copied(&["a.b"], &row).len() < 100);
    }
}
