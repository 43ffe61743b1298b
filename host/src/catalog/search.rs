//! What `search_tools` looks into: the words of every tool, ranked by BM25 over fields that weigh differently.
//!
//! Words are cut where names are: `list_open_issues`, `listOpenIssues` and "list open issues" have the same three. The
//! crates that rank by BM25 have one field and rank whole words of prose, hence a few lines of our own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Tool;

/// How soon a further mention of a word adds little, and how much a long text is marked down: the usual values.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// What a mention counts in a tool's name, in title and description, and in the names and descriptions of its arguments. A
/// name is chosen to say what a tool does; an argument says it by chance.
const WEIGHTS: [f64; 3] = [4.0, 2.0, 1.0];

/// Words of a query that count. More than any question has; each is looked up in every tool that has it.
const MAX_WORDS: usize = 64;

/// The index of one catalog.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// How many tools there are.
    tools: usize,
    /// For each word the tools that have it, by their places, with how much it counts there.
    places: HashMap<String, Vec<(usize, f64)>>,
}

impl Index {
    /// The index of these tools.
    pub(super) fn new(tools: &[Arc<Tool>]) -> Self {
        let texts = tools.iter().map(|tool| {
            let title = tool.listed["title"].as_str().unwrap_or_default();
            let arguments = tool.arguments().flat_map(|(name, schema)| {
                [
                    name.as_str(),
                    schema["description"].as_str().unwrap_or_default(),
                ]
            });
            [
                tool.name().to_owned(),
                [title, tool.description()].join(" "),
                arguments.collect::<Vec<_>>().join(" "),
            ]
        });
        Self::of(&texts.collect::<Vec<_>>())
    }

    /// The index of texts: name, description, arguments.
    fn of(texts: &[[String; 3]]) -> Self {
        let words: Vec<[Vec<String>; 3]> = texts
            .iter()
            .map(|fields| fields.each_ref().map(|text| words(text)))
            .collect();
        let mut places: HashMap<String, Vec<(usize, f64)>> = HashMap::new();
        for field in 0..WEIGHTS.len() {
            let total: usize = words.iter().map(|fields| fields[field].len()).sum();
            let average = (total as f64 / words.len().max(1) as f64).max(1.0);
            for (tool, fields) in words.iter().enumerate() {
                let length = 1.0 - B + B * fields[field].len() as f64 / average;
                for word in &fields[field] {
                    let counts = places.entry(word.clone()).or_default();
                    let count = WEIGHTS[field] / length;
                    match counts.iter_mut().rev().find(|(place, _)| *place == tool) {
                        Some((_, counted)) => *counted += count,
                        None => counts.push((tool, count)),
                    }
                }
            }
        }
        Self {
            tools: words.len(),
            places,
        }
    }

    /// The places of the tools that have a word of the query, the best first, with their scores; those that are equal stand
    /// in the order of the catalog.
    pub(super) fn search(&self, query: &str) -> Vec<(usize, f64)> {
        let words: BTreeSet<String> = words(query).into_iter().take(MAX_WORDS).collect();
        let mut scores = vec![0.0; self.tools];
        for word in words {
            let Some(places) = self.places.get(&word) else {
                continue;
            };
            let (all, having) = (self.tools as f64, places.len() as f64);
            let rarity = (1.0 + (all - having + 0.5) / (having + 0.5)).ln();
            for (tool, count) in places {
                scores[*tool] += rarity * count * (K1 + 1.0) / (count + K1);
            }
        }
        let mut found: Vec<(usize, f64)> = scores
            .into_iter()
            .enumerate()
            .filter(|(_, score)| *score > 0.0)
            .collect();
        found.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        found
    }
}

/// The words of a text, in small letters and without the ending of a plural.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            words.push(singular(&word.to_lowercase()));
            word.clear();
        }
    };
    let characters: Vec<char> = text.chars().collect();
    for (at, character) in characters.iter().copied().enumerate() {
        if !character.is_alphanumeric() || is_word_of_its_own(character) {
            end(&mut word);
            if is_word_of_its_own(character) {
                word.push(character);
                end(&mut word);
            }
            continue;
        }
        // `listIssues`, and `HTTPServer` before its `Server`.
        let before = at.checked_sub(1).and_then(|at| characters.get(at));
        let is_after_small = before.is_some_and(|before| before.is_lowercase());
        let is_last_capital = before.is_some_and(|before| before.is_uppercase())
            && characters
                .get(at + 1)
                .is_some_and(|next| next.is_lowercase());
        if character.is_uppercase() && (is_after_small || is_last_capital) {
            end(&mut word);
        }
        word.push(character);
    }
    end(&mut word);
    words
}

/// Whether a character is written without a space to the next word: Chinese, Japanese and Korean.
fn is_word_of_its_own(character: char) -> bool {
    matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{20000}'..='\u{3134f}')
}

/// A word without the ending of a plural, so that `issues` finds `issue`. Nothing more is cut: names have few forms.
fn singular(word: &str) -> String {
    let stem = match word {
        _ if word.len() < 4 || word.ends_with("ss") || word.ends_with("us") => None,
        _ => word
            .strip_suffix("ies")
            .map(|stem| format!("{stem}y"))
            .or_else(|| word.strip_suffix('s').map(str::to_owned)),
    };
    stem.unwrap_or_else(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(texts: &[[&str; 3]]) -> Index {
        let texts: Vec<[String; 3]> = texts
            .iter()
            .map(|fields| fields.map(str::to_owned))
            .collect();
        Index::of(&texts)
    }

    fn found(index: &Index, query: &str) -> Vec<usize> {
        index
            .search(query)
            .into_iter()
            .map(|(place, _)| place)
            .collect()
    }

    #[test]
    fn names_are_cut_into_words_however_they_are_written() {
        for text in [
            "list_open_issues",
            "listOpenIssues",
            "list-open-issues",
            "List open issues!",
            "list/open.issue",
        ] {
            assert_eq!(words(text), ["list", "open", "issue"], "{text}");
        }
        assert_eq!(
            words("parseHTTPRequestV2"),
            ["parse", "http", "request", "v2"].map(|w| w.to_owned())
        );
        assert_eq!(
            words("repositories status access gas"),
            ["repository", "status", "access", "gas"]
        );
        assert_eq!(words("検索 Größe"), ["検", "索", "größe"]);
        assert_eq!(words(" _-. "), [""; 0]);
    }

    #[test]
    fn a_name_counts_more_than_a_description_and_that_more_than_an_argument() {
        let index = index(&[
            ["a", "x y z", "refund amount of"],
            ["b", "refund x y", "amount n m"],
            ["refund", "x y z", "amount n m"],
            ["d", "x y z", "amount n m"],
        ]);
        assert_eq!(found(&index, "refunds"), [2, 1, 0]);
    }

    #[test]
    fn a_rare_word_counts_more_than_a_common_one_and_equals_keep_their_order() {
        let index = index(&[
            ["list_orders", "", ""],
            ["list_customers", "", ""],
            ["get_order", "", ""],
            ["list_refunds", "", ""],
        ]);
        assert_eq!(found(&index, "list refund"), [3, 0, 1]);
        assert_eq!(found(&index, "list"), [0, 1, 3]);
        assert_eq!(found(&index, "order list"), [0, 2, 1, 3]);
        assert_eq!(found(&index, "nothing"), [0; 0]);
        assert_eq!(found(&index, ""), [0; 0]);
    }

    #[test]
    fn a_query_has_so_many_words_and_no_more() {
        let index = index(&[["refund", "", ""]]);
        let query = |others: usize| format!("{}refund", "other ".repeat(others));
        assert_eq!(found(&index, &query(63)), [0]);
        assert_eq!(found(&index, &query(64)), [0; 0]);
    }

    #[test]
    fn a_word_that_is_said_again_counts_less_each_time_and_a_long_text_less() {
        let often = "pay ".repeat(50);
        let long = format!("pay {}", "x ".repeat(200));
        let index = index(&[["a", "pay", ""], ["b", &often, ""], ["c", &long, ""]]);
        let scores: HashMap<usize, f64> = index.search("pay pay").into_iter().collect();
        assert!(
            scores[&0] > scores[&2] && scores[&1] < 3.0 * scores[&0],
            "{scores:?}"
        );
    }
}
