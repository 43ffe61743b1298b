//! The fit stage: the token budget of an answer, and how many rows it lets through.

use super::format::Page;
use super::tokens;
use crate::contract::BudgetSource;

/// A call that asks for fewer tokens gets these: below, the facts leave no room for rows.
pub const MIN_BUDGET_TOKENS: u64 = 2_000;

/// How many tokens an answer may have, and who said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The budget, if there is one.
    pub tokens: Option<u64>,
    /// Where it came from.
    pub source: BudgetSource,
}

/// How the budget of a key combines with the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyMode {
    #[default]
    Inherit,
    Off,
    Strict,
}

impl KeyMode {
    pub const ALL: [Self; 3] = [Self::Inherit, Self::Off, Self::Strict];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::Off => "off",
            Self::Strict => "strict",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The budget of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyBudget {
    pub tokens: Option<u64>,
    pub mode: KeyMode,
}

/// The sources of a budget. Each is a number of tokens, if it says one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetSources {
    /// `max_tokens` of the call.
    pub input: Option<u64>,
    /// The key that the caller showed.
    pub key: Option<u64>,
    /// The tenant, or `result_tokens` of a host without tenants.
    pub org: Option<u64>,
    /// The default for the calling program.
    pub client_default: Option<u64>,
}

impl BudgetSources {
    /// The first source that says something decides; only the call's own word is raised to the minimum.
    pub fn resolve(self) -> Budget {
        let input = self.input.map(|tokens| tokens.max(MIN_BUDGET_TOKENS));
        [
            (input, BudgetSource::Input),
            (self.key, BudgetSource::Key),
            (self.org, BudgetSource::Org),
            (self.client_default, BudgetSource::ClientDefault),
        ]
        .into_iter()
        .find_map(|(tokens, source)| {
            tokens.map(|tokens| Budget {
                tokens: Some(tokens),
                source,
            })
        })
        .unwrap_or(Budget {
            tokens: None,
            source: BudgetSource::None,
        })
    }
}

/// Tokens of the rows that may fit into `room` tokens beside everything else, row by row; of one row at least.
///
/// The sum over rows is an estimate, since a tokenizer may join what stands on both sides of a boundary: the final text
/// is counted again.
pub(crate) fn rows_within(page: &Page<'_>, room: u64) -> Vec<u64> {
    let mut left = room;
    let mut counts = Vec::new();
    for index in 0..page.len() {
        // A row that came in is UTF-8; the separator behind it is counted with it.
        let row = String::from_utf8_lossy(page.row(index));
        match tokens::count_up_to(&row, left)
            .map(|count| count + 1)
            .filter(|count| *count <= left)
        {
            Some(count) => {
                left -= count;
                counts.push(count);
            }
            None => {
                if index == 0 {
                    counts.push(room);
                }
                break;
            }
        }
    }
    counts
}

/// How many of these rows remain once the last ones have given up `excess` tokens; one at least.
pub(crate) fn without(counts: &[u64], rows: usize, excess: u64) -> usize {
    let mut freed = 0;
    let mut rows = rows;
    while rows > 1 && freed < excess {
        rows -= 1;
        freed += counts[rows];
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_that_speaks_decides_and_only_the_call_is_raised() {
        // (input, key, org, client) and what comes of it.
        let table = [
            ((None, None, None, None), None, BudgetSource::None),
            ((Some(1), None, None, None), Some(2000), BudgetSource::Input),
            (
                (Some(1999), Some(9), Some(8), Some(7)),
                Some(2000),
                BudgetSource::Input,
            ),
            (
                (Some(2000), None, None, None),
                Some(2000),
                BudgetSource::Input,
            ),
            (
                (Some(2001), Some(9), None, None),
                Some(2001),
                BudgetSource::Input,
            ),
            (
                (None, Some(500), Some(8), Some(7)),
                Some(500),
                BudgetSource::Key,
            ),
            (
                (None, None, Some(8000), Some(7)),
                Some(8000),
                BudgetSource::Org,
            ),
            (
                (None, None, None, Some(9500)),
                Some(9500),
                BudgetSource::ClientDefault,
            ),
        ];
        for ((input, key, org, client_default), tokens, source) in table {
            let sources = BudgetSources {
                input,
                key,
                org,
                client_default,
            };
            assert_eq!(sources.resolve(), Budget { tokens, source }, "{sources:?}");
        }
    }

    #[test]
    fn the_last_rows_give_up_what_is_too_much_and_one_remains() {
        assert_eq!(without(&[5, 5, 5, 5], 4, 1), 3);
        assert_eq!(without(&[5, 5, 5, 5], 4, 6), 2);
        assert_eq!(without(&[5, 5, 5, 5], 4, 1_000), 1);
        assert_eq!(without(&[5], 1, 1_000), 1);
    }
}
