//! The cap: a reply of so many bytes or more is refused, with a call that fits.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::cursor::Cursor;
use super::format::{self, Page};
use super::gates::{Copy, Reached, Size, Unit};
use super::intake::{Intake, Kept, Kind};
use super::json;
use super::pipeline::Call;
use super::policy::HostArgument;
use super::refusal::{Code, Payload, PayloadGate, PayloadShape, Refusal, shorten};
use crate::contract::Attachment;

/// How many fields a refusal names as the heaviest, and how much of each name.
const HEAVIEST_FIELDS: usize = 3;
const MAX_NAME_BYTES: usize = 60;

/// How many bytes the facts of a smaller page may have more than those of the page that was refused: a cursor (200), its
/// call with the cursor again, the sentences on paging and budget, and what points to the complete result (700).
const MORE_FACTS_BYTES: usize = 2_200;

/// What the cap stage looks at.
pub(super) struct Refused<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) kept: &'a Kept,
    pub(super) page: &'a Page<'a>,
    /// Rows of the reply.
    pub(super) rows: u64,
    /// Whether the page has only the first of them.
    pub(super) is_short: bool,
    /// Bytes of the reply, or of its first rows.
    pub(super) bytes: usize,
    /// Bytes of its facts.
    pub(super) facts_bytes: usize,
    /// Its attachments.
    pub(super) attachments: &'a [Attachment],
    /// How often facts and body are sent.
    pub(super) copies: usize,
    /// The structured copy among them.
    pub(super) copy: Option<Copy>,
    /// The gate of the client program that not even one row stays below; otherwise it is the cap that is reached.
    pub(super) reached: Option<Reached>,
}

/// What a body may have, in every unit; none where nothing bounds it.
struct Room([Option<usize>; 4]);

impl Room {
    fn of(&self, unit: Unit) -> Option<usize> {
        self.0[unit as usize]
    }

    /// Bytes that fit whatever they are: a character or a token has a byte at least.
    fn bytes(&self) -> usize {
        [Unit::Bytes, Unit::Characters, Unit::Tokens]
            .into_iter()
            .filter_map(|unit| self.of(unit))
            .min()
            .unwrap_or(usize::MAX)
    }

    fn holds(&self, size: impl Fn(Unit) -> usize) -> bool {
        Unit::ALL
            .into_iter()
            .all(|unit| self.of(unit).is_none_or(|room| size(unit) <= room))
    }
}

/// Refuses an answer that is larger than what is taken in at all.
pub(super) fn not_taken_in(bytes: u64, intake: &Intake, call: &Call<'_>) -> Refusal {
    let limit = intake.max_bytes() as u64;
    let message = format!(
        "The plugin's answer is {bytes} bytes; the limit is {limit} bytes. It is refused, not truncated: no part of it \
         was returned."
    );
    too_large(
        message,
        Payload {
            bytes,
            limit,
            gate: None,
            shape: PayloadShape {
                kind: "text",
                count: None,
            },
        },
        None,
        call,
    )
}

fn too_large(
    mut message: String,
    payload: Payload,
    next: Option<Map<String, Value>>,
    call: &Call<'_>,
) -> Refusal {
    let narrowing = &call.tool.narrowing;
    if !narrowing.is_empty() {
        let names: Vec<&str> = narrowing.iter().map(|field| field.name.as_str()).collect();
        message.push_str(&format!(" Narrow it and call again: {}.", names.join(", ")));
    }
    let refusal = Refusal {
        payload: Some(payload),
        ..Refusal::new(Code::ResponseTooLarge, message)
    };
    refusal
        .with_fields(narrowing.iter().cloned())
        .with_next(next)
}

impl Refused<'_> {
    /// The refusal, with the next call if there is one that fits.
    pub(super) fn refusal(&self) -> Refusal {
        let cap = self.call.policy.cap_bytes;
        let rows = self.rows;
        let (kind, body) = match self.kept.kind {
            Kind::Array if self.kept.prefix.len() > 1 => {
                ("array", format!("The body holds an array of {rows} items."))
            }
            Kind::Array | Kind::Pushed => {
                ("array", format!("The body is an array of {rows} items."))
            }
            Kind::Lines => ("lines", format!("The body is a text of {rows} lines.")),
            Kind::Json => (
                "object",
                String::from("The body is one JSON document without rows."),
            ),
            Kind::Text => ("text", String::from("The body is one piece.")),
            Kind::Empty => ("text", String::from("There is no body.")),
        };
        let limit = match &self.reached {
            None => format!(
                "The response is {}{} bytes; the limit is {cap} bytes.",
                if self.is_short { "more than " } else { "" },
                self.bytes,
            ),
            Some(Reached { gate, found }) => {
                let (client, unit, limit) = (&gate.client, gate.unit.name(), gate.limit);
                let one = if self.kept.has_rows() && self.page.len() > 1 {
                    " with one item alone"
                } else {
                    ""
                };
                format!(
                    "The response is {found} {unit}{one}; {client} cuts results of {limit} {unit} or more."
                )
            }
        };
        let mut message = format!(
            "{limit} It is refused, not truncated: no part of the body was returned. {body}"
        );
        let attachment_bytes: usize = self.attachments.iter().map(attachment_bytes).sum();
        if attachment_bytes > 0 {
            message.push_str(&format!(" Its attachments are {attachment_bytes} bytes."));
        }
        let has_rows = self.kept.has_rows();
        let next =
            if has_rows { self.smaller_page() } else { None }.or_else(|| self.smaller_view());
        if next.is_none() {
            message.push_str(&self.heaviest());
            if let Some(after) = self
                .call
                .policy
                .published(HostArgument::After)
                .filter(|_| self.call.ask.cursor.is_some())
            {
                message.push_str(&format!(" {after} belongs to the fields of this walk: to narrow them, start over without it."));
            }
        }
        let shape = PayloadShape {
            kind,
            count: has_rows.then_some(rows),
        };
        too_large(
            message,
            Payload {
                bytes: self.bytes as u64,
                limit: self
                    .reached
                    .as_ref()
                    .map_or(cap.into(), |reached| reached.gate.limit),
                gate: self
                    .reached
                    .as_ref()
                    .map(|Reached { gate, found }| PayloadGate {
                        client: gate.client.clone(),
                        unit: gate.unit.name(),
                        found: *found,
                    }),
                shape,
            },
            next,
            self.call,
        )
    }

    /// What a body may have, beside facts that may be longer than those of the page that was refused.
    fn room(&self) -> Room {
        let arguments = Value::Object(self.call.ask.arguments.clone())
            .to_string()
            .len();
        let form = self.call.tool.form_bytes();
        let facts = self.facts_bytes + MORE_FACTS_BYTES + arguments + form;
        let attachment_bytes: usize = self.attachments.iter().map(attachment_bytes).sum();
        let below_cap = self.call.policy.cap_bytes as usize - 1;
        let bytes =
            (below_cap.saturating_sub(attachment_bytes) / self.copies).saturating_sub(facts);
        let Some(gates) = self.call.gates else {
            return Room([Some(bytes), None, None, None]);
        };
        // Text becomes longer as a string of the structured copy: its quotes and line breaks are escaped there.
        let copies = match self.copy {
            Some(Copy::Text) => self.copies + 1,
            _ => self.copies,
        };
        let attached = self
            .attachments
            .iter()
            .fold(Size::default(), |size, attachment| {
                size + gates.attached(attachment)
            });
        let below = |unit: Unit| {
            let gate = gates.of(unit)?.saturating_sub(1);
            let left = gate.saturating_sub(attached.get(unit)) as usize / copies;
            // Facts are one line, and no more tokens than bytes.
            Some(left.saturating_sub(if unit == Unit::Lines { 2 } else { facts }))
        };
        let [by_bytes, characters, lines, tokens] = Unit::ALL.map(below);
        let bytes = by_bytes.map_or(bytes, |by_bytes| by_bytes.min(bytes));
        Room([Some(bytes), characters, lines, tokens])
    }

    /// How many rows of a page fit.
    fn rows_that_fit(&self, page: &Page<'_>) -> usize {
        let room = self.room();
        let counts_tokens = room.of(Unit::Tokens).is_some();
        let mut content = Size::default();
        let fitting = (1..=page.len()).take_while(|rows| {
            let row = String::from_utf8_lossy(page.row(rows - 1));
            // Tokens of rows may be a few more where they stand side by side.
            let count = |row: &str| {
                if counts_tokens && row.len() <= room.bytes().saturating_mul(16) {
                    super::tokens::count(row) + 2
                } else {
                    row.len() as u64
                }
            };
            content = content + Size::of(&row, count);
            room.holds(|unit| {
                let rows_alone = content.get(unit) as usize;
                match unit {
                    // Every row was counted with a line of its own.
                    Unit::Lines => rows_alone + page.frame_breaks(*rows) - (rows - 1),
                    _ => rows_alone + page.frame_bytes(*rows),
                }
            })
        });
        match fitting.last().unwrap_or(0) {
            // All of them go out as the handler's own document, which may have more around its rows.
            rows if rows == page.len() && page.is_whole() && rows > 0 => {
                let is_fitting =
                    page.bytes_with(rows) <= room.of(Unit::Bytes).unwrap_or(usize::MAX) && {
                        let body = Size::of(&page.body(rows), super::tokens::count);
                        room.holds(|unit| body.get(unit) as usize)
                    };
                if is_fitting { rows } else { rows - 1 }
            }
            rows => rows,
        }
    }

    /// The same call with a smaller `limit`, which may be the host's or the handler's own.
    fn smaller_page(&self) -> Option<Map<String, Value>> {
        let policy = self.call.policy;
        if let Some(name) = policy.published(HostArgument::Limit) {
            let rows = self.rows_that_fit(self.page);
            let mut next = self.same_call();
            next.insert(name.to_owned(), rows.into());
            return (rows > 0).then_some(next);
        }
        let own = self.call.tool.own_limit.as_ref()?;
        // The handler pages by itself, so nothing is known of which rows it will choose: the largest one counts.
        let largest = (0..self.page.len())
            .map(|index| self.page.row(index).len())
            .max()?;
        let frame = self.page.frame_bytes(2);
        let rows = self.room().bytes().checked_sub(frame)? as u64 / (largest as u64 + 2);
        let rows = rows
            .min(own.max.unwrap_or(u64::MAX))
            .min(self.page.len() as u64 - 1);
        let mut next = self.same_call();
        next.insert(own.name.clone(), rows.into());
        (rows >= own.min.max(1)).then_some(next)
    }

    /// The same call with the first declared view that fits.
    fn smaller_view(&self) -> Option<Map<String, Value>> {
        let (policy, ask) = (self.call.policy, self.call.ask);
        let detail = policy
            .published(HostArgument::Detail)
            .filter(|_| self.kept.has_fields())?;
        let current = ask.detail.as_deref().unwrap_or(policy.default_view());
        policy
            .views
            .iter()
            .filter(|view| view.name != current || !ask.fields.is_empty())
            .find_map(|view| {
                let shaped = format::select(self.kept, &view.selection);
                let page = match &shaped {
                    Some(shaped) => Page::of_shaped(self.kept, shaped),
                    None => Page::of_kept(self.kept),
                };
                let rows = self.rows_that_fit(&page);
                if rows == 0 {
                    return None;
                }
                let mut query = ask.arguments.clone();
                query.insert(detail.to_owned(), view.name.clone().into());
                for other in [HostArgument::Fields, HostArgument::Format] {
                    policy.published(other).and_then(|name| query.remove(name));
                }
                if rows < page.len() || self.kept.is_short {
                    query.insert(
                        policy.published(HostArgument::Limit)?.to_owned(),
                        rows.into(),
                    );
                }
                Some(self.call_of(query))
            })
    }

    /// This call as its next one would be made: with its cursor, if it has one.
    fn same_call(&self) -> Map<String, Value> {
        let ask = self.call.ask;
        let is_carried = ask
            .cursor
            .as_ref()
            .is_some_and(|cursor| cursor.carried.is_some());
        let mut next = if is_carried {
            ask.required.clone()
        } else {
            ask.arguments.clone()
        };
        if let (Some(name), Some(after)) =
            (self.call.policy.published(HostArgument::After), &ask.after)
        {
            next.insert(name.to_owned(), after.clone().into());
        }
        next
    }

    /// The call of another query. A cursor is bound to its query, so one that goes on from a cursor gets a new one.
    fn call_of(&self, query: Map<String, Value>) -> Map<String, Value> {
        let (policy, ask) = (self.call.policy, self.call.ask);
        let (Some(name), Some(cursor)) = (policy.published(HostArgument::After), &ask.cursor)
        else {
            return query;
        };
        let cursor = Cursor {
            carried: Some(ask.carried(&query)),
            ..cursor.clone()
        };
        let (text, is_carried) = self
            .call
            .signer
            .seal(&ask.binding_with(policy, &query), &cursor);
        let mut next = if is_carried {
            ask.required.clone()
        } else {
            query
        };
        next.insert(name.to_owned(), text.into());
        next
    }

    /// What makes the reply too large where no smaller call is known: what is beside the rows, the first row alone, or all
    /// of them.
    fn heaviest(&self) -> String {
        let page = self.page;
        let has_rows = self.kept.has_rows();
        let frame = page.frame_bytes(page.len().min(1));
        if has_rows && frame > self.room().bytes() {
            return format!(" What is beside its rows is {} bytes.", page.frame_bytes(0));
        }
        if page.len() == 0 {
            return String::new();
        }
        let first = page.row(0).len();
        let (rows, what) = if !has_rows {
            (1, String::from(" Its heaviest fields:"))
        } else if self.reached.is_some() || first + frame > self.room().bytes() {
            (
                1,
                format!(" Its first item alone is {first} bytes; its heaviest fields:"),
            )
        } else {
            (
                page.len(),
                String::from(" The heaviest fields of its items:"),
            )
        };
        let mut sizes: HashMap<&[u8], usize> = HashMap::new();
        for row in (0..rows)
            .map(|index| page.row(index))
            .filter(|row| row.first() == Some(&b'{'))
        {
            for member in json::members(row, 0).map_while(Result::ok) {
                *sizes.entry(&row[member.key]).or_default() += member.value.len();
            }
        }
        let mut sizes: Vec<(usize, &[u8])> = sizes
            .into_iter()
            .map(|(name, bytes)| (bytes, name))
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let heaviest: Vec<String> = sizes
            .iter()
            .take(HEAVIEST_FIELDS)
            .map(|(bytes, name)| {
                format!(
                    "{} ({bytes} bytes)",
                    shorten(&String::from_utf8_lossy(name), MAX_NAME_BYTES)
                )
            })
            .collect();
        match (heaviest.is_empty(), what.split_once(';')) {
            (false, _) => format!("{what} {}.", heaviest.join(", ")),
            (true, Some((alone, _))) => format!("{alone}."),
            (true, None) => String::new(),
        }
    }
}

/// Bytes of an attachment as it is sent: base64 or text, with what names it.
pub(super) fn attachment_bytes(attachment: &Attachment) -> usize {
    let base64 = |data: &[u8]| data.len().div_ceil(3) * 4;
    match attachment {
        Attachment::Image(blob) | Attachment::Audio(blob) => {
            base64(&blob.data) + blob.media_type.len()
        }
        Attachment::Resource(embedded) => {
            let is_text = super::intake::is_text(&embedded.media_type);
            let data = if is_text {
                embedded.data.len()
            } else {
                base64(&embedded.data)
            };
            data + embedded.media_type.len() + embedded.uri.len()
        }
    }
}
