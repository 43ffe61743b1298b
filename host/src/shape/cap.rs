//! The cap: a reply of so many bytes or more is refused, with a call that fits.

use serde_json::{Map, Value};

use super::format::Page;
use super::intake::{Kept, Kind};
use super::json;
use super::pipeline::Call;
use super::policy::HostArgument;
use super::refusal::{Code, Payload, PayloadShape, Refusal};

/// How many of a row's fields a refusal names.
const HEAVIEST_FIELDS: usize = 3;

/// How many bytes the facts of a smaller page may have more than those of the page that was refused: a cursor (200), its
/// call with the cursor again, and the sentences on paging and budget.
const MORE_FACTS_BYTES: usize = 1_500;

/// What the cap stage looks at.
pub(super) struct Refused<'a> {
    pub(super) call: &'a Call<'a>,
    pub(super) kept: &'a Kept,
    pub(super) page: &'a Page<'a>,
    /// Bytes of the reply.
    pub(super) bytes: usize,
    /// Bytes of its facts.
    pub(super) facts_bytes: usize,
    /// Bytes of its attachments.
    pub(super) attachment_bytes: usize,
    /// How often facts and body are sent.
    pub(super) copies: usize,
}

impl Refused<'_> {
    /// The refusal, with the next call if there is one that fits.
    pub(super) fn refusal(&self) -> Refusal {
        let cap = self.call.policy.cap_bytes;
        let rows = self.page.len();
        let (kind, body) = match self.kept.kind {
            Kind::Array if self.kept.prefix.len() > 1 => ("array", format!("The body holds an array of {rows} items")),
            Kind::Array | Kind::Pushed => ("array", format!("The body is an array of {rows} items")),
            Kind::Lines => ("lines", format!("The body is a text of {rows} lines")),
            Kind::Json => ("object", String::from("The body is one JSON document without rows")),
            Kind::Text | Kind::Empty => ("text", String::from("The body is one piece")),
        };
        let has_rows = matches!(kind, "array" | "lines");
        let mut message = format!(
            "The response is {} bytes; the limit is {cap} bytes. It is refused, not truncated: no part of the body was \
             returned. {body}.",
            self.bytes
        );
        let next = if has_rows { self.smaller_page() } else { None }.or_else(|| self.smaller_view());
        if next.is_none()
            && let Some(heaviest) = self.heaviest_fields(has_rows)
        {
            message.push_str(&heaviest);
        }
        let narrowing = &self.call.tool.narrowing;
        if !narrowing.is_empty() {
            let names: Vec<&str> = narrowing.iter().map(|field| field.name.as_str()).collect();
            message.push_str(&format!(" Narrow it and call again: {}.", names.join(", ")));
        }
        Refusal {
            payload: Some(Payload {
                bytes: self.bytes as u64,
                limit: cap.into(),
                shape: PayloadShape { kind, count: has_rows.then_some(rows as u64) },
            }),
            ..Refusal::new(Code::ResponseTooLarge, message).with_fields(narrowing.iter().cloned()).with_next(next)
        }
    }

    /// Bytes that a body may have.
    fn room(&self) -> usize {
        let arguments = Value::Object(self.call.ask.arguments.clone()).to_string().len();
        let facts = self.facts_bytes + MORE_FACTS_BYTES + arguments;
        let below_cap = self.call.policy.cap_bytes as usize - 1;
        (below_cap.saturating_sub(self.attachment_bytes) / self.copies).saturating_sub(facts)
    }

    /// How many rows of a page fit.
    fn rows_that_fit(&self, page: &Page<'_>) -> usize {
        let room = self.room();
        (1..=page.len()).take_while(|rows| page.bytes_with(*rows) <= room).last().unwrap_or(0)
    }

    /// The same call with a smaller `limit`, which may be the host's or the handler's own.
    fn smaller_page(&self) -> Option<Map<String, Value>> {
        let policy = self.call.policy;
        if let Some(name) = policy.published(HostArgument::Limit) {
            let rows = self.rows_that_fit(self.page);
            return (rows > 0).then(|| self.call_with(&[(name, rows.into())]));
        }
        let own = self.call.tool.own_limit.as_ref()?;
        // The handler pages by itself, so nothing is known of which rows it will choose: the largest one counts.
        let largest = (0..self.page.len()).map(|index| self.page.row(index).len()).max()?;
        let frame = self.page.frame_bytes(2);
        let rows = self.room().checked_sub(frame)? as u64 / (largest as u64 + 2);
        let rows = rows.min(own.max.unwrap_or(u64::MAX)).min(self.page.len() as u64 - 1);
        (rows >= own.min.max(1)).then(|| self.call_with(&[(own.name.as_str(), rows.into())]))
    }

    /// The same call with the first declared view that fits. A cursor is bound to its view, so a continuation has none.
    fn smaller_view(&self) -> Option<Map<String, Value>> {
        let policy = self.call.policy;
        let detail = policy.published(HostArgument::Detail)?;
        if self.call.ask.cursor.is_some() {
            return None;
        }
        let current = self.call.ask.detail.as_deref().unwrap_or(policy.default_view());
        policy.views.iter().filter(|view| view.name != current || !self.call.ask.fields.is_empty()).find_map(|view| {
            let shaped = super::format::select(self.kept, &view.selection);
            let page = Page::of_shaped(self.kept, &shaped);
            let rows = self.rows_that_fit(&page);
            let limit = policy.published(HostArgument::Limit);
            let limited = if rows == page.len() { None } else { Some(limit?) };
            if rows == 0 {
                return None;
            }
            let mut next = self.call_with(&[(detail, view.name.clone().into())]);
            if let Some(fields) = policy.published(HostArgument::Fields) {
                next.remove(fields);
            }
            if let Some(format) = policy.published(HostArgument::Format) {
                next.remove(format);
            }
            if let Some(limit) = limited {
                next.insert(limit.to_owned(), rows.into());
            }
            Some(next)
        })
    }

    /// The arguments of this call with some of them changed.
    fn call_with(&self, changes: &[(&str, Value)]) -> Map<String, Value> {
        let ask = self.call.ask;
        let is_carried = ask.cursor.as_ref().is_some_and(|cursor| cursor.carried.is_some());
        let mut next = if is_carried { ask.required.clone() } else { ask.arguments.clone() };
        if let (Some(name), Some(after)) = (self.call.policy.published(HostArgument::After), &ask.after) {
            next.insert(name.to_owned(), after.clone().into());
        }
        for (name, value) in changes {
            next.insert((*name).to_owned(), value.clone());
        }
        next
    }

    /// What makes one row, or a document without rows, too large.
    fn heaviest_fields(&self, has_rows: bool) -> Option<String> {
        if has_rows && self.page.len() == 0 {
            return Some(String::from(" What is beside its rows is too large."));
        }
        let (what, text) = if has_rows { ("Its first item alone", self.page.row(0)) } else { ("It", self.page.row(0)) };
        let start = json::skip_space(text, 0);
        if text.get(start) != Some(&b'{') {
            return has_rows.then(|| format!(" {what} is {} bytes.", text.len()));
        }
        let mut sizes: Vec<(usize, String)> = json::members(text, start)
            .map_while(Result::ok)
            .map(|member| (member.value.len(), String::from_utf8_lossy(&text[member.key]).into_owned()))
            .collect();
        sizes.sort_by(|a, b| b.cmp(a));
        let heaviest: Vec<String> = sizes
            .iter()
            .take(HEAVIEST_FIELDS)
            .map(|(bytes, name)| format!("{} ({bytes} bytes)", super::refusal::excerpt(name)))
            .collect();
        if heaviest.is_empty() {
            return None;
        }
        Some(format!(" {what} is {} bytes; its heaviest fields: {}.", text.len(), heaviest.join(", ")))
    }
}
