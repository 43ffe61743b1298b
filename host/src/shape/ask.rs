//! What the caller asked of the host: the host's own arguments, and the query that a cursor carries.
//!
//! Owns: reading them out of the arguments of a call, with the exact error for each, and merging a continuation with
//! the query it continues. Arguments of the handler pass through untouched.

use serde_json::{Map, Value};

use super::cursor::{Binding, Cursor, Refused, Signer};
use super::policy::{FULL, HostArgument, Policy};
use super::refusal::{Code, Field, Refusal};

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
    pub(crate) fields: Vec<String>,
    /// None where the argument was absent.
    pub(crate) is_live_only: Option<bool>,
    pub(crate) format: Format,
    pub(crate) max_tokens: Option<u64>,
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
        let after = match name_of(HostArgument::After).and_then(|name| arguments.remove_entry(name)) {
            Some((_, Value::String(after))) => Some(after),
            Some((name, other)) => {
                return Err(Refusal::invalid_argument(&name, format!("{name} must be a cursor, a string, found {}", found(&other))));
            }
            None => None,
        };
        let free = [name_of(HostArgument::Limit), name_of(HostArgument::MaxTokens)];
        let binding_of = |arguments: &Map<String, Value>| {
            let bound = arguments.iter().filter(|(name, _)| !free.contains(&Some(name.as_str())));
            Binding::new(tenant, tool, &bound.map(|(name, value)| (name.clone(), value.clone())).collect())
        };
        let mut cursor = None;
        if let Some(text) = &after {
            let opened = signer.open(text, &binding_of(&arguments)).map_err(|refused| bad_cursor(refused, tool))?;
            for (name, value) in opened.cursor.carried.iter().flatten() {
                match arguments.get(name) {
                    None => {
                        arguments.insert(name.clone(), value.clone());
                    }
                    Some(given) if given != value && !free.contains(&Some(name.as_str())) => {
                        return Err(other_query(&format!(
                            "it was made with {name} = {value}, and this call has {name} = {given}: leave {name} out, or"
                        )));
                    }
                    Some(_) => {}
                }
            }
            if !opened.is_for(&binding_of(&arguments)) {
                let why = if opened.cursor.carried.is_some() {
                    let names = required.join(", ");
                    let others = if names.is_empty() { String::new() } else { format!(", with the same values of {names}") };
                    format!("pass it alone{others}, or")
                } else {
                    String::from("its arguments are too long to be carried in it: pass them all again, unchanged, or")
                };
                return Err(other_query(&why));
            }
            cursor = Some(opened.cursor);
        }
        let mut wrong = Vec::new();
        let mut take = |argument: HostArgument, read: &mut dyn FnMut(&str, &Value) -> Result<(), String>| {
            let Some(name) = name_of(argument) else { return };
            if let Some(value) = arguments.get(name)
                && let Err(message) = read(name, value)
            {
                wrong.push(Field { name: name.to_owned(), message });
            }
        };
        let (mut limit, mut detail, mut fields, mut is_live_only) = (None, None, Vec::new(), None);
        let (mut format, mut max_tokens) = (Format::Json, None);
        take(HostArgument::Limit, &mut |name, value| {
            let max = policy.page.max_limit;
            limit = integer(value).filter(|limit| (1..=u64::from(max)).contains(limit)).map(|limit| limit as u32);
            limit.map(drop).ok_or_else(|| format!("{name} must be an integer between 1 and {max}"))
        });
        take(HostArgument::Detail, &mut |name, value| {
            detail = value.as_str().filter(|view| *view == FULL || policy.view(view).is_some()).map(str::to_owned);
            let names: Vec<&str> = policy.views().map(|(name, _)| name).collect();
            detail.as_ref().map(drop).ok_or_else(|| one_of(name, &names, value))
        });
        take(HostArgument::Fields, &mut |name, value| {
            fields = strings(value).filter(|fields| !fields.is_empty()).ok_or_else(|| {
                format!("{name} must be an array of one or more field names, found {}", found(value))
            })?;
            fields.iter().try_for_each(|field| super::select::Path::new(field).map(drop)).map_err(|e| format!("{name}: {e}"))
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
            format = value.as_str().and_then(Format::named).ok_or_else(|| one_of(name, &Format::NAMES, value))?;
            Ok(())
        });
        take(HostArgument::MaxTokens, &mut |name, value| {
            max_tokens = integer(value).filter(|tokens| *tokens > 0);
            max_tokens.map(drop).ok_or_else(|| format!("{name} must be an integer of 1 or more, found {}", found(value)))
        });
        if !wrong.is_empty() {
            return Err(Refusal::invalid_arguments(wrong));
        }
        let binding = binding_of(&arguments);
        let required = required.iter().filter_map(|name| Some((name.clone(), arguments.get(name)?.clone()))).collect();
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
        })
    }

    /// The arguments that the handler sees: all but those of the host, except where the handler applies one itself.
    pub fn for_handler(&self, policy: &Policy) -> Map<String, Value> {
        let is_the_hosts = |name: &String| {
            HostArgument::ALL.into_iter().any(|argument| {
                policy.published(argument) == Some(name) && !policy.is_applied_by_handler(argument)
            })
        };
        self.arguments.iter().filter(|(name, _)| !is_the_hosts(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
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
    pub(crate) fn carried(&self) -> Map<String, Value> {
        let is_optional = |name: &String| !self.required.contains_key(name);
        self.arguments.iter().filter(|(name, _)| is_optional(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn bad_cursor(refused: Refused, tool: &str) -> Refusal {
    let message = match refused {
        Refused::False => {
            "after is not a cursor that this host made: it was changed, cut or made up. Pass next_after of the page before \
             as it stands, or leave after out to start over."
                .to_owned()
        }
        Refused::Foreign => format!(
            "after is a cursor of another tool, not of {tool}. Pass next_after of a page of {tool}, or leave after out to \
             start over."
        ),
    };
    Refusal::new(Code::InvalidCursor, message)
}

fn other_query(why: &str) -> Refusal {
    Refusal::new(
        Code::InvalidCursor,
        format!("after belongs to a call with other arguments; {why} leave after out to start over."),
    )
}

/// A JSON integer, also where it is written as `25.0`.
fn integer(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
    })
}

fn strings(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect()
}

fn one_of(name: &str, names: &[&str], value: &Value) -> String {
    format!("{name} must be one of {}, found {}", names.join(", "), found(value))
}

/// A value as it goes into a message.
fn found(value: &Value) -> String {
    super::refusal::excerpt(&value.to_string())
}
