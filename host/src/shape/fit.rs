//! The fit stage: the token budget of an answer, and how many rows it lets through.

use super::format::Page;
use super::gates::Gates;
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
    /// Whether a call cannot raise it.
    pub is_firm: bool,
}

/// What a key says about the budgets of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyMode {
    /// The key's own size where it has one, else what applies without a key.
    #[default]
    Inherit,
    /// No budget but the one that a call asks for itself.
    Off,
    /// A call can tighten what the key or the tenant sets, and not widen it.
    Strict,
}

impl KeyMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inherit, Self::Off, Self::Strict];

    /// The name in files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inherit => "inherit",
            Self::Off => "off",
            Self::Strict => "strict",
        }
    }

    /// The mode of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The key that the caller showed, as far as budgets are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyBudget {
    /// The key's own size.
    pub tokens: Option<u64>,
    /// Its mode.
    pub mode: KeyMode,
}

/// The sources of a budget. Each is a number of tokens, if it says one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BudgetSources {
    /// `max_tokens` of the call.
    pub input: Option<u64>,
    /// The key that the caller showed.
    pub key: KeyBudget,
    /// The operator: a rule for the tool, else the tenant, or `result_tokens` of a host without tenants.
    pub org: Option<u64>,
    /// The default for the calling program.
    pub client_default: Option<u64>,
}

impl BudgetSources {
    /// The first source that says something decides; only the call's own word is raised to the minimum. A key that is off
    /// takes every source away but the call, and a strict one holds the call under what the key or the tenant sets.
    pub fn resolve(self) -> Budget {
        let said = |tokens: Option<u64>, source| {
            tokens.map(|tokens| Budget {
                tokens: Some(tokens),
                source,
                is_firm: false,
            })
        };
        let input = said(
            self.input.map(|tokens| tokens.max(MIN_BUDGET_TOKENS)),
            BudgetSource::Input,
        );
        let set = said(self.key.tokens, BudgetSource::Key).or(said(self.org, BudgetSource::Org));
        let client_default = said(self.client_default, BudgetSource::ClientDefault);
        let budget = match self.key.mode {
            KeyMode::Inherit => input.or(set).or(client_default),
            KeyMode::Off => input,
            KeyMode::Strict => match (input, set) {
                (Some(input), Some(set)) if input.tokens < set.tokens => Some(input),
                (input, Some(set)) => Some(Budget {
                    is_firm: true,
                    ..input
                        .filter(|input| input.tokens == set.tokens)
                        .unwrap_or(set)
                }),
                (input, None) => input.or(client_default),
            },
        };
        budget.unwrap_or(Budget {
            tokens: None,
            source: BudgetSource::None,
            is_firm: false,
        })
    }
}

/// For whom an answer is shaped: what may differ between two readers of one answer.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// The token budget.
    pub budget: Budget,
    /// What the calling program takes of one result, where that is known.
    pub gates: Option<&'a Gates>,
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

    /// What the contract says, as rules over one combination, from the strongest to the weakest.
    fn expected(
        input: Option<u64>,
        key: Option<u64>,
        mode: KeyMode,
        org: Option<u64>,
        client: Option<u64>,
    ) -> (Option<u64>, BudgetSource) {
        // A call that asks for less than 2,000 tokens gets 2,000.
        let asked = match input {
            Some(few) if few < 2_000 => Some(2_000),
            other => other,
        };
        // What an administrator has set for this key: its own size goes before the tenant's.
        let (limit, who) = match (key, org) {
            (Some(key), _) => (Some(key), BudgetSource::Key),
            (None, Some(org)) => (Some(org), BudgetSource::Org),
            (None, None) => (None, BudgetSource::None),
        };
        if mode == KeyMode::Off {
            return match asked {
                Some(asked) => (Some(asked), BudgetSource::Input),
                None => (None, BudgetSource::None),
            };
        }
        if let Some(asked) = asked {
            let is_too_much = mode == KeyMode::Strict && limit.is_some_and(|limit| asked > limit);
            return if is_too_much {
                (limit, who)
            } else {
                (Some(asked), BudgetSource::Input)
            };
        }
        if limit.is_some() {
            return (limit, who);
        }
        match client {
            Some(client) => (Some(client), BudgetSource::ClientDefault),
            None => (None, BudgetSource::None),
        }
    }

    #[test]
    fn every_combination_of_call_key_mode_tenant_and_client_has_its_size_and_source() {
        let mut tried = 0;
        for input in [None, Some(1), Some(1_999), Some(2_000), Some(50_000)] {
            for key in [None, Some(500), Some(2_000), Some(20_000)] {
                for mode in KeyMode::ALL {
                    for org in [None, Some(800), Some(30_000)] {
                        for client_default in [None, Some(9_500)] {
                            let sources = BudgetSources {
                                input,
                                key: KeyBudget { tokens: key, mode },
                                org,
                                client_default,
                            };
                            let Budget {
                                tokens,
                                source,
                                is_firm,
                            } = sources.resolve();
                            let expected = expected(input, key, mode, org, client_default);
                            assert_eq!((tokens, source), expected, "{sources:?}");
                            // A call can raise what it gets unless asking for more gets it no more.
                            let most = BudgetSources {
                                input: Some(1_000_000),
                                ..sources
                            }
                            .resolve();
                            assert_eq!(
                                is_firm,
                                tokens.is_some() && most.tokens == tokens,
                                "{sources:?}"
                            );
                            tried += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(tried, 5 * 4 * 3 * 3 * 2);
        assert_eq!(
            KeyMode::ALL.map(KeyMode::as_str),
            ["inherit", "off", "strict"]
        );
    }

    #[test]
    fn what_the_combinations_mean_in_numbers() {
        let strict = |tokens| KeyBudget {
            tokens,
            mode: KeyMode::Strict,
        };
        let off = KeyBudget {
            tokens: Some(500),
            mode: KeyMode::Off,
        };
        let own = |tokens| KeyBudget {
            tokens,
            mode: KeyMode::Inherit,
        };
        let table = [
            // (call, key, tenant, client) and what comes of it.
            ((None, own(None), None, None), None, BudgetSource::None),
            (
                (Some(1), own(None), None, None),
                Some(2_000),
                BudgetSource::Input,
            ),
            (
                (Some(9_000), own(Some(500)), Some(8), Some(7)),
                Some(9_000),
                BudgetSource::Input,
            ),
            (
                (None, own(Some(500)), Some(8), Some(7)),
                Some(500),
                BudgetSource::Key,
            ),
            (
                (None, own(None), Some(8), Some(7)),
                Some(8),
                BudgetSource::Org,
            ),
            (
                (None, own(None), None, Some(7)),
                Some(7),
                BudgetSource::ClientDefault,
            ),
            ((None, off, Some(8), Some(7)), None, BudgetSource::None),
            (
                (Some(3_000), off, Some(8), Some(7)),
                Some(3_000),
                BudgetSource::Input,
            ),
            (
                (Some(3_000), strict(Some(500)), Some(8_000), None),
                Some(500),
                BudgetSource::Key,
            ),
            (
                (Some(9_000), strict(None), Some(8_000), None),
                Some(8_000),
                BudgetSource::Org,
            ),
            (
                (Some(3_000), strict(None), Some(8_000), None),
                Some(3_000),
                BudgetSource::Input,
            ),
            (
                (Some(9_000), strict(None), None, Some(7)),
                Some(9_000),
                BudgetSource::Input,
            ),
        ];
        for ((input, key, org, client_default), tokens, source) in table {
            let sources = BudgetSources {
                input,
                key,
                org,
                client_default,
            };
            let budget = sources.resolve();
            assert_eq!(
                (budget.tokens, budget.source),
                (tokens, source),
                "{sources:?}"
            );
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
