//! Which files are served, and what their collections are called. It knows names only; nothing here reads a file.

/// How the rows are written in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON document.
    Json,
    /// One JSON value a line.
    Lines,
    /// RFC 4180, the first record is the header.
    Csv,
}

/// One file that is served.
#[derive(Debug)]
pub(crate) struct File {
    /// Its name in the folder.
    pub(crate) path: String,
    pub(crate) format: Format,
    /// What its collection is called, or what the names of its collections begin with.
    pub(crate) name: String,
}

/// The longest name that the contract allows.
const LONGEST_NAME: usize = 56;

impl File {
    /// The name of the collection that is behind these members of the document; none where it is the document.
    pub(crate) fn collection(&self, members: &[String]) -> String {
        let mut name = self.name.clone();
        for member in members {
            name.push('_');
            name.push_str(&plain(member));
        }
        name.truncate(LONGEST_NAME);
        name
    }
}

/// Those of the files in a folder that are served, in the order of their names.
///
/// A file lends its name without the ending to its collection. Files that would share one keep the ending in it, and
/// where even that is shared, the later ones are numbered.
pub(crate) fn files(mut paths: Vec<String>) -> Vec<File> {
    paths.sort_unstable();
    let served: Vec<(String, Format)> = paths
        .into_iter()
        .filter_map(|path| format(&path).map(|format| (path, format)))
        .collect();
    let stems: Vec<String> = served.iter().map(|(path, _)| plain(stem(path))).collect();
    let mut files: Vec<File> = Vec::with_capacity(served.len());
    for (path, format) in served {
        let mut name = plain(stem(&path));
        if stems.iter().filter(|stem| **stem == name).count() > 1 {
            name = plain(&path);
        }
        let unnumbered = name.clone();
        let mut number = 2;
        while files.iter().any(|file| file.name == name) {
            let suffix = format!("_{number}");
            let length = unnumbered.len().min(LONGEST_NAME - suffix.len());
            name = format!("{}{suffix}", &unnumbered[..length]);
            number += 1;
        }
        files.push(File { path, format, name });
    }
    files
}

fn format(path: &str) -> Option<Format> {
    let (stem, ending) = path.rsplit_once('.')?;
    // A name that begins with a dot is a file that its owner hides.
    if stem.is_empty() || path.starts_with('.') {
        return None;
    }
    match ending.to_ascii_lowercase().as_str() {
        "json" => Some(Format::Json),
        "ndjson" | "jsonl" => Some(Format::Lines),
        "csv" => Some(Format::Csv),
        _ => None,
    }
}

fn stem(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(stem, _)| stem)
}

/// `text` in the letters that a collection's name may have.
fn plain(text: &str) -> String {
    text.chars()
        .map(|character| match character.to_ascii_lowercase() {
            plain @ ('a'..='z' | '0'..='9' | '_') => plain,
            _ => '_',
        })
        .take(LONGEST_NAME)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: &[&str]) -> Vec<String> {
        files(paths.iter().map(|path| (*path).to_owned()).collect())
            .into_iter()
            .map(|file| file.name)
            .collect()
    }

    #[test]
    fn a_collection_is_called_like_its_file() {
        assert_eq!(
            names(&["Cargo Metadata.JSON", "b.jsonl", "a.csv"]),
            ["cargo_metadata", "a", "b"]
        );
        assert_eq!(
            names(&["notes.txt", ".hidden.json", "no_ending", ".json"]),
            [""; 0]
        );
    }

    #[test]
    fn files_that_would_share_a_name_are_told_apart() {
        assert_eq!(
            names(&["a.csv", "a.json", "b.json"]),
            ["a_csv", "a_json", "b"]
        );
        assert_eq!(names(&["a-b.json", "a b.json"]), ["a_b_json", "a_b_json_2"]);
    }

    #[test]
    fn no_name_is_longer_than_the_contract_allows() {
        let long = "x".repeat(80);
        let names = names(&[
            &format!("{long}.json"),
            &format!("{long}.csv"),
            &format!("{long}y.csv"),
        ]);
        assert!(names.iter().all(|name| name.len() <= LONGEST_NAME));
        assert_eq!(
            names
                .iter()
                .collect::<std::collections::BTreeSet<_>>()
                .len(),
            3
        );
        let file = File {
            path: String::new(),
            format: Format::Json,
            name: "x".repeat(50),
        };
        assert_eq!(
            file.collection(&["Resolve".to_owned(), "nodes".to_owned()])
                .len(),
            LONGEST_NAME
        );
    }

    #[test]
    fn members_of_a_document_lengthen_the_name() {
        let file = File {
            path: String::new(),
            format: Format::Json,
            name: "metadata".to_owned(),
        };
        assert_eq!(file.collection(&[]), "metadata");
        assert_eq!(
            file.collection(&["resolve".to_owned(), "nodes".to_owned()]),
            "metadata_resolve_nodes"
        );
    }
}
