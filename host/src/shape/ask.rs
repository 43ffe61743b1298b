//! What the caller asked of the host: the host's own arguments, and the query that a cursor carries.
//!
//! Owns: reading them out of the arguments of a call, with the exact error for each, and merging a continuation with
//! the query it continues. Arguments of the handler pass through untouched.

use serde_json::{Map, Value};

use super::cursor::{Binding, Cursor, KeyMark, Place, Refused, Signer};
use super::keep::ResultId;
use super::policy::{FULL, HostArgument, Policy};
use super::refusal::{Code, Field, Refusal};
use super::select::Path;
use super::whole::Next;

/// How many fields a call may pick. Each is looked for in every row until it is found.
const MAX_FIELDS: usize = 100;

/// What the facts of a page of a resource may take: at most as much as is refused at the smallest cap.
const RESOURCE_FACTS_BYTES: usize = 4_000;

/// The form of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// The handler's document.
    #[default]
    Json,
    /// The declared columns, separated by commas.
    Csv,
    /// The declared columns, separated by tabs.
    Tsv,
}

impl Format {
    /// The values of `format`.
    pub const NAMES: [&str; 3] = ["json", "csv", "tsv"];

    fn named(name: &str) -> Option<Self> {
        match name {
            "json" => Some(Self::Json),
            "csv" => Some(Self::Csv),
            "tsv" => Some(Self::Tsv),
            _ => None,
        }
    }

    /// Media type of a body in this form.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv; charset=utf-8",
            Self::Tsv => "text/tab-separated-values; charset=utf-8",
        }
    }
}

/// One call, read and merged with the query that its cursor carries.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Every argument of the query under its published name, without the cursor.
    pub(crate) arguments: Map<String, Value>,
    /// Those of them that the handler's schema requires.
    pub(crate) required: Map<String, Value>,
    /// The text of the cursor that was passed.
    pub(crate) after: Option<String>,
    pub(crate) cursor: Option<Cursor>,
    pub(crate) binding: Binding,
    pub(crate) limit: Option<u32>,
    pub(crate) detail: Option<String>,
    pub(crate) fields: Vec<Path>,
    /// None where the argument was absent.
    pub(crate) is_live_only: Option<bool>,
    pub(crate) format: Format,
    pub(crate) max_tokens: Option<u64>,
    /// The kept result that is read as a resource, where the caller does that and does not call a tool.
    pub(crate) resource: Option<ResultId>,
    /// How the whole answer is asked for, where it is, whatever page the caller asked for.
    pub(crate) whole: Option<Whole>,
}

/// How a whole answer is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Whole {
    /// Rows of each of the handler's pages; none where it is asked for all rows at once.
    pub(crate) rows: Option<u32>,
    /// JSON text of the key behind which a page begins.
    behind: Option<String>,
}

impl Ask {
    /// Reads a call. `required` are the names that the handler's schema requires.
    pub fn read(
        policy: &Policy,
        signer: &Signer,
        tenant: &str,
        tool: &str,
        required: &[String],
        given: Map<String, Value>,
    ) -> Result<Self, Refusal> {
        let name_of = |argument| policy.published(argument);
        let mut arguments = given;
        let after = match name_of(HostArgument::After).and_then(|name| arguments.remove_entry(name))
        {
            Some((_, Value::String(after))) => Some(after),
            Some((name, other)) => {
                return Err(Refusal::invalid_argument(
                    &name,
                    format!("{name} must be a cursor, a string, found {}", found(&other)),
                ));
            }
            None => None,
        };
        let binding_of =
            |arguments: &Map<String, Value>| Binding::new(tenant, tool, &bound(arguments, policy));
        let mut cursor = None;
        if let Some(text) = &after {
            let opened = signer
                .open(text, &binding_of(&arguments))
                .map_err(|refused| bad_cursor(refused, policy, tool))?;
            for (name, value) in opened.cursor.carried.iter().flatten() {
                match arguments.get(name) {
                    None => {
                        arguments.insert(name.clone(), value.clone());
                    }
                    Some(given) if given != value && !is_free(name, policy) => {
                        let (value, given) = (found(value), found(given));
                        return Err(other_query(
                            policy,
                            &format!(
                                "it was made with {name} = {value}, and this call has {name} = {given}: leave {name} out, or"
                            ),
                        ));
                    }
                    Some(_) => {}
                }
            }
            if !opened.is_for(&binding_of(&arguments)) {
                let why = if opened.cursor.carried.is_some() {
                    let names = required.join(", ");
                    let others = if names.is_empty() {
                        String::new()
                    } else {
                        format!(", with the same values of {names}")
                    };
                    format!("pass it alone{others}, or")
                } else {
                    String::from(
                        "its arguments are too long to be carried in it: pass them all again, unchanged, or",
                    )
                };
                return Err(other_query(policy, &why));
            }
            cursor = Some(opened.cursor);
        }
        let mut wrong = Vec::new();
        let mut take =
            |argument: HostArgument, read: &mut dyn FnMut(&str, &Value) -> Result<(), String>| {
                let Some(name) = name_of(argument) else {
                    return;
                };
                if let Some(value) = arguments.get(name)
                    && let Err(message) = read(name, value)
                {
                    wrong.push(Field {
                        name: name.to_owned(),
                        message,
                    });
                }
            };
        let (mut limit, mut detail, mut fields, mut is_live_only) = (None, None, Vec::new(), None);
        let (mut format, mut max_tokens) = (Format::Json, None);
        take(HostArgument::Limit, &mut |name, value| {
            let max = policy.page.max_limit;
            limit = integer(value)
                .filter(|limit| (1..=u64::from(max)).contains(limit))
                .map(|limit| limit as u32);
            limit
                .map(drop)
                .ok_or_else(|| format!("{name} must be an integer between 1 and {max}"))
        });
        take(HostArgument::Detail, &mut |name, value| {
            detail = value
                .as_str()
                .filter(|view| *view == FULL || policy.view(view).is_some())
                .map(str::to_owned);
            let names: Vec<&str> = policy.views().map(|(name, _)| name).collect();
            detail
                .as_ref()
                .map(drop)
                .ok_or_else(|| one_of(name, &names, value))
        });
        take(HostArgument::Fields, &mut |name, value| {
            let names = strings(value)
                .filter(|names| (1..=MAX_FIELDS).contains(&names.len()))
                .ok_or_else(|| {
                    format!(
                        "{name} must be an array of 1 to {MAX_FIELDS} field names, found {}",
                        found(value)
                    )
                })?;
            fields = names
                .into_iter()
                .map(Path::new)
                .collect::<Result<_, _>>()
                .map_err(|error| format!("{name}: {error}"))?;
            Ok(())
        });
        take(HostArgument::Horizon, &mut |name, value| {
            is_live_only = match value.as_str() {
                Some("live") => Some(true),
                Some("all") => Some(false),
                _ => return Err(one_of(name, &["live", "all"], value)),
            };
            Ok(())
        });
        take(HostArgument::Format, &mut |name, value| {
            format = value
                .as_str()
                .and_then(Format::named)
                .ok_or_else(|| one_of(name, &Format::NAMES, value))?;
            Ok(())
        });
        take(HostArgument::MaxTokens, &mut |name, value| {
            max_tokens = integer(value).filter(|tokens| *tokens > 0);
            max_tokens.map(drop).ok_or_else(|| {
                format!(
                    "{name} must be an integer of 1 or more, found {}",
                    found(value)
                )
            })
        });
        let withheld = policy
            .withheld_filters
            .iter()
            .filter(|name| arguments.get(*name).is_some_and(|value| !value.is_null()));
        wrong.extend(withheld.map(|name| Field {
            name: name.clone(),
            message: format!("{name} selects by a field that is withheld here: leave it out"),
        }));
        if !wrong.is_empty() {
            return Err(Refusal::invalid_arguments(wrong));
        }
        let binding = binding_of(&arguments);
        let required = required
            .iter()
            .filter_map(|name| Some((name.clone(), arguments.get(name)?.clone())))
            .collect();
        Ok(Self {
            arguments,
            required,
            after,
            cursor,
            binding,
            limit,
            detail,
            fields,
            is_live_only,
            format,
            max_tokens,
            resource: None,
            whole: None,
        })
    }

    /// Whether this is a call for a further page.
    pub fn is_continuation(&self) -> bool {
        self.cursor.is_some()
    }

    /// The kept result that the cursor leads into, the offset there, and the rows before it.
    pub fn kept_place(&self) -> Option<(ResultId, u64, u64)> {
        let cursor = self.cursor.as_ref()?;
        match cursor.place {
            Place::Kept { id, offset } => Some((id, offset, cursor.before)),
            _ => None,
        }
    }

    /// The same query, read as a resource: from the row that begins at `start`, unless its cursor says otherwise.
    #[must_use]
    pub fn reading(mut self, id: ResultId, start: u64) -> Self {
        self.resource = Some(id);
        if self.cursor.is_none() {
            self.cursor = Some(Cursor {
                place: Place::Kept { id, offset: start },
                before: 0,
                carried: None,
            });
        }
        self
    }

    /// Bytes of rows that a page of a resource may have, beside an envelope of so many; none for a call of a tool, which
    /// has arguments that make it smaller.
    pub fn resource_room(&self, policy: &Policy, envelope: usize) -> Option<usize> {
        let room = || (policy.cap_bytes as usize).saturating_sub(envelope + RESOURCE_FACTS_BYTES);
        self.resource.map(|_| room())
    }

    /// The same query for every row that there is, without a cursor. A backend is asked page by page, as large as a page may
    /// be, so that no call of it has to hand over everything; so is a handler whose own schema has the limit, which it would
    /// choose itself otherwise. Where rows have no key, and with every other handler, it is asked for all rows at once.
    #[must_use]
    pub fn whole(mut self, policy: &Policy, is_backend: bool) -> Self {
        let is_own = policy.is_own(HostArgument::Limit);
        let has_pages = policy.is_paged() && policy.key.is_some() && (is_own || is_backend);
        let rows = if is_own {
            self.page_rows(policy)
        } else {
            policy.page.max_limit.saturating_add(1)
        };
        self.whole = Some(Whole {
            rows: has_pages.then_some(rows),
            behind: None,
        });
        (self.cursor, self.after) = (None, None);
        self
    }

    /// The same for what [`Intake::next_page`](super::Intake::next_page) wants next.
    #[must_use]
    pub fn going_on(mut self, next: &Next) -> Self {
        self.whole = match next {
            Next::End => self.whole,
            Next::Behind(key) => self.whole.map(|whole| Whole {
                behind: Some(key.clone()),
                ..whole
            }),
            Next::AllAtOnce => Some(Whole {
                rows: None,
                behind: None,
            }),
        };
        self
    }

    /// Reads a cursor for this query, into a kept result, and says into which.
    pub fn continued(
        mut self,
        signer: &Signer,
        policy: &Policy,
        tool: &str,
        after: &str,
    ) -> Result<(Self, ResultId), Refusal> {
        let opened = signer
            .open(after, &self.binding)
            .map_err(|refused| bad_cursor(refused, policy, tool))?;
        match opened.cursor.place {
            Place::Kept { id, .. } if opened.is_for(&self.binding) => {
                self.cursor = Some(opened.cursor);
                self.after = Some(after.to_owned());
                Ok((self, id))
            }
            _ => Err(other_result(policy)),
        }
    }

    /// What is said where the result behind a cursor is kept no longer.
    pub fn no_longer_kept(&self, policy: &Policy) -> Refusal {
        let after = after_name(policy);
        let message = format!(
            "{after} is stale: the result that it continues is no longer kept. Start over with next, without {after}."
        );
        Refusal::new(Code::StaleCursor, message).with_next(Some(self.arguments.clone()))
    }

    /// The arguments that the handler sees: all but those of the host, except where the handler applies one itself. Such
    /// a handler gets the page that the host will cut, the key behind which it begins, and with the fields asked for those
    /// that the host needs to page and narrow.
    pub fn for_handler(&self, policy: &Policy) -> Map<String, Value> {
        let mut arguments = self.arguments.clone();
        for argument in HostArgument::ALL {
            let Some(name) = policy.published(argument) else {
                continue;
            };
            let given = arguments.remove(name);
            if !policy.is_applied_by_handler(argument) {
                continue;
            }
            let value = match argument {
                HostArgument::Limit => self.handler_limit(policy).map(Value::from),
                HostArgument::After => self
                    .key_behind()
                    .and_then(|key| serde_json::from_str(&key).ok()),
                HostArgument::Fields => given.map(|_| {
                    let mut fields: Vec<&str> = self.fields.iter().map(Path::text).collect();
                    fields.extend(policy.needed_fields());
                    Value::from(fields)
                }),
                _ => given,
            };
            if let Some(value) = value {
                arguments.insert(name.to_owned(), value);
            }
        }
        arguments
    }

    /// Rows of the page.
    pub(crate) fn page_rows(&self, policy: &Policy) -> u32 {
        self.limit.unwrap_or(policy.page.default_limit)
    }

    /// How many rows a handler or backend that limits them itself is asked for. A handler that has the argument in its own
    /// schema gets it as the caller said it; otherwise it is one more than a page, so that the host sees whether there is
    /// another, and only where the host itself takes no rows away behind it.
    pub(crate) fn handler_limit(&self, policy: &Policy) -> Option<u32> {
        if !policy.is_paged() {
            return None;
        }
        let limit = self.page_rows(policy);
        if let Some(whole) = &self.whole {
            return whole.rows;
        }
        if policy.is_own(HostArgument::Limit) {
            return Some(limit);
        }
        let is_live_only = policy.horizon.is_some() && self.is_live_only.unwrap_or(true);
        // Without the key of the last row a backend cannot start behind it, and then its first rows are not the page's.
        let starts_behind = self.cursor.is_none() || self.key_behind().is_some();
        (!is_live_only && starts_behind).then_some(limit.saturating_add(1))
    }

    /// JSON text of the key behind which the page begins, where the cursor carries it and it can be handed on as a value
    /// without a digit lost.
    pub(crate) fn key_behind(&self) -> Option<String> {
        if let Some(whole) = &self.whole {
            return whole.behind.clone();
        }
        let Place::Key {
            key: KeyMark::Text(text),
            ..
        } = &self.cursor.as_ref()?.place
        else {
            return None;
        };
        handed_on(text)
    }

    /// The fields asked for that no declaration names, so that they must be found in the rows. A continuation asks for
    /// what its first page has found.
    pub(crate) fn unseen_fields(&self, policy: &Policy) -> Vec<Path> {
        if self.cursor.is_some() || self.format != Format::Json {
            return Vec::new();
        }
        let known = policy.known_fields();
        let is_known = |path: &Path| {
            known.iter().any(|field| {
                field
                    .strip_prefix(path.text())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        self.fields
            .iter()
            .filter(|path| !is_known(path))
            .cloned()
            .collect()
    }

    /// The binding of the same query with other arguments.
    pub(crate) fn binding_with(&self, policy: &Policy, arguments: &Map<String, Value>) -> Binding {
        self.binding
            .with_arguments_of(&Binding::new("", "", &bound(arguments, policy)))
    }

    /// Every argument of the query, the host's among them.
    pub fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }

    /// The budget that the call asks for.
    pub fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    /// What a cursor has to carry: everything but what a continuation passes anyway.
    pub(crate) fn carried(&self, arguments: &Map<String, Value>) -> Map<String, Value> {
        let is_optional = |name: &String| !self.required.contains_key(name);
        arguments
            .iter()
            .filter(|(name, _)| is_optional(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// A key, given as JSON text, that can be handed on as a value without a digit lost.
pub(super) fn handed_on(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let value: Value = serde_json::from_str(text).ok()?;
    let is_same = serde_json::to_string(&value).is_ok_and(|again| again == text);
    (value.is_string() || is_same).then(|| text.to_owned())
}

/// A cursor that leads into no page of the result that is read.
pub(crate) fn other_result(policy: &Policy) -> Refusal {
    other_query(policy, "pass next_after of a page of this very result, or")
}

/// Whether an argument may change from page to page.
fn is_free(name: &str, policy: &Policy) -> bool {
    [HostArgument::Limit, HostArgument::MaxTokens]
        .into_iter()
        .any(|argument| policy.published(argument) == Some(name))
}

/// The arguments that a cursor is bound to.
fn bound(arguments: &Map<String, Value>, policy: &Policy) -> Map<String, Value> {
    let bound = arguments.iter().filter(|(name, _)| !is_free(name, policy));
    bound
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn after_name(policy: &Policy) -> &str {
    policy.published(HostArgument::After).unwrap_or("after")
}

fn bad_cursor(refused: Refused, policy: &Policy, tool: &str) -> Refusal {
    let after = after_name(policy);
    let message = match refused {
        Refused::False => format!(
            "{after} is not a cursor that this host made: it was changed, cut or made up. Pass next_after of the page \
             before as it stands, or leave {after} out to start over."
        ),
        Refused::Foreign => format!(
            "{after} is a cursor of another tool, not of {tool}. Pass next_after of a page of {tool}, or leave {after} out \
             to start over."
        ),
    };
    Refusal::new(Code::InvalidCursor, message)
}

fn other_query(policy: &Policy, why: &str) -> Refusal {
    let after = after_name(policy);
    Refusal::new(
        Code::InvalidCursor,
        format!(
            "{after} belongs to a call with other arguments; {why} leave {after} out to start over."
        ),
    )
}

/// A JSON integer, also where it is written as `25.0`.
fn integer(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
    })
}

fn strings(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

fn one_of(name: &str, names: &[&str], value: &Value) -> String {
    format!(
        "{name} must be one of {}, found {}",
        names.join(", "),
        found(value)
    )
}

/// A value as it goes into a message.
fn found(value: &Value) -> String {
    super::refusal::excerpt(&value.to_string())
}

/// What of a query a backend may apply itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PushedDown {
    /// Rows wanted: one more than the page, so that the host sees whether there is another.
    pub limit: Option<u32>,
    /// JSON text of the key behind which to start.
    pub after: Option<String>,
    /// Fields with the values that they may have.
    pub conditions: Vec<(String, Vec<Value>)>,
    /// Fields that are needed; empty for all.
    pub fields: Vec<String>,
}

impl Ask {
    /// The fields that the caller asked for, with those that the host needs, where a backend declares that it takes them.
    /// A view is not pushed down: the complete result has every field of its rows.
    fn pushed_fields(&self, policy: &Policy) -> Vec<String> {
        if self.fields.is_empty() || !policy.is_applied_by_handler(HostArgument::Fields) {
            return Vec::new();
        }
        let asked = self.fields.iter().map(Path::text);
        let mut fields: Vec<String> = asked
            .chain(policy.needed_fields())
            .map(str::to_owned)
            .collect();
        fields.dedup();
        fields
    }

    /// The query as a backend may apply it. What is pushed down is what the host would do itself.
    pub fn pushed_down(&self, policy: &Policy) -> PushedDown {
        let conditions = policy.filters.iter().filter_map(|filter| {
            let values = match self.arguments.get(&filter.argument)? {
                Value::Array(values) => values.clone(),
                value => vec![value.clone()],
            };
            Some((filter.field.text().to_owned(), values))
        });
        PushedDown {
            limit: self.handler_limit(policy),
            after: self.key_behind(),
            conditions: conditions.collect(),
            fields: self.pushed_fields(policy),
        }
    }
}
