//! narrow → page → fit → cap: from an answer that was taken in to a reply that can be sent.

use serde_json::{Map, Value};

use super::ask::{Ask, Format};
use super::cap::Refused;
use super::cursor::{Cursor, Signer};
use super::fit::{self, Budget};
use super::format::{self, Page};
use super::intake::{Intake, Kept, Kind};
use super::page::{Counts, Stale};
use super::policy::{Column, FULL, HostArgument, Policy};
use super::receipt::{Facts, source_name};
use super::refusal::{Code, Field, Refusal};
use super::reply::Reply;
use super::select::{Path, Selection};
use super::{json, tokens};
use crate::contract::{Attachment, Passage, Receipt, Stage};

/// The argument by which a handler limits its rows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnLimit {
    /// Its name in the published schema.
    pub name: String,
    /// The smallest value that the schema allows.
    pub min: u64,
    /// The largest.
    pub max: Option<u64>,
}

/// What the stages have to know of a tool beside its policy.
#[derive(Debug, Clone)]
pub struct ToolFacts {
    /// The published name.
    pub name: String,
    /// The arguments that make an answer smaller, with their descriptions in the published schema.
    pub narrowing: Vec<Field>,
    /// The handler's own limit, where the host does not page.
    pub own_limit: Option<OwnLimit>,
    /// Whether facts and body go out a second time, as structured content.
    pub has_structured_copy: bool,
}

/// Everything that decides what becomes of one answer.
pub struct Call<'a> {
    /// What the tool declares and the operator overrides.
    pub policy: &'a Policy,
    /// The tool.
    pub tool: &'a ToolFacts,
    /// What the caller asked.
    pub ask: &'a Ask,
    /// Makes the cursor of the next page.
    pub signer: &'a Signer,
    /// The token budget.
    pub budget: Budget,
}

/// Shapes one answer.
pub fn shape(intake: Intake, call: &Call<'_>) -> Reply {
    match answer(intake, call) {
        Ok(reply) => reply,
        Err(refusal) => Reply::refused(&refusal),
    }
}

fn answer(mut intake: Intake, call: &Call<'_>) -> Result<Reply, Refusal> {
    if let Some(invalid) = &intake.invalid {
        return Err(Refusal::new(Code::InvalidAnswer, super::refusal::excerpt(invalid)));
    }
    let counts = intake.window.finish(intake.total).map_err(|stale| stale_cursor(stale, call))?;
    let attachments = std::mem::take(&mut intake.attachments);
    let mut notices = Notices::default();
    let shaped = narrow_fields(&intake.kept, call, &mut notices)?;
    let page = match &shaped {
        Some(shaped) => Page::of_shaped(&intake.kept, shaped),
        None => Page::of_kept(&intake.kept),
    };
    let fitted = Fitted::new(&intake, call, &counts, &page, notices);
    cap(&intake, call, &page, fitted, attachments)
}

/// The view, `fields` or table of this call, applied to the page; none where rows go out as they came in.
fn narrow_fields(kept: &Kept, call: &Call<'_>, notices: &mut Notices) -> Result<Option<format::Shaped>, Refusal> {
    let (policy, ask) = (call.policy, call.ask);
    let has_fields = matches!(kept.kind, Kind::Array | Kind::Pushed | Kind::Json);
    let asked: Vec<Path> = ask.fields.iter().filter_map(|field| Path::new(field).ok()).collect();
    if ask.format != Format::Json {
        if !has_fields {
            let name = policy.published(HostArgument::Format).unwrap_or("format");
            return Err(Refusal::new(Code::InvalidAnswer, format!("this answer has no rows to make a table of; leave {name} out")));
        }
        let columns = chosen_columns(policy, &asked)?;
        notices.table = beside_rows(kept);
        return Ok(Some(format::table(kept, &columns, ask.format)));
    }
    if !has_fields {
        return Ok(None);
    }
    if !asked.is_empty() {
        check_fields(kept, policy, &asked)?;
        return Ok(Some(format::select(kept, &Selection::new(&asked))));
    }
    let name = ask.detail.as_deref().unwrap_or(policy.default_view());
    let Some(view) = policy.view(name) else { return Ok(None) };
    let shaped = format::select(kept, &view.selection);
    if ask.detail.is_none() && !kept.rows.is_empty() {
        notices.default_view = policy.published(HostArgument::Detail).map(|argument| (argument.to_owned(), view.name.clone()));
    }
    Ok(Some(shaped))
}

/// Members of the document beside its rows, which a table cannot show.
fn beside_rows(kept: &Kept) -> Vec<String> {
    let envelope = [&kept.bytes[kept.prefix.clone()], &kept.bytes[kept.suffix.clone()]].concat();
    let start = json::skip_space(&envelope, 0);
    if kept.kind != Kind::Array || envelope.get(start) != Some(&b'{') {
        return Vec::new();
    }
    let rows_at = kept.prefix.len() - 1;
    json::members(&envelope, start)
        .map_while(Result::ok)
        .filter(|member| !member.value.contains(&rows_at))
        .map(|member| String::from_utf8_lossy(&envelope[member.key]).into_owned())
        .collect()
}

fn chosen_columns<'a>(policy: &'a Policy, asked: &[Path]) -> Result<Vec<&'a Column>, Refusal> {
    if asked.is_empty() {
        return Ok(policy.columns.iter().collect());
    }
    asked
        .iter()
        .map(|path| {
            policy.columns.iter().find(|column| column.name == path.text() || column.field == *path).ok_or_else(|| {
                let columns: Vec<&str> = policy.columns().collect();
                unknown_field(policy, path.text(), &columns)
            })
        })
        .collect()
}

/// A name that no row of the page has and no declaration names is a mistake; the error lists the valid ones.
fn check_fields(kept: &Kept, policy: &Policy, asked: &[Path]) -> Result<(), Refusal> {
    let known = policy.known_fields();
    let is_known = |path: &Path| {
        known.iter().any(|field| *field == path.text() || field.starts_with(&format!("{}.", path.text())))
    };
    for path in asked {
        let is_there = kept.rows.is_empty() || kept.rows.iter().any(|row| path.first(&kept.bytes[row.clone()]).is_some());
        if !is_there && !is_known(path) {
            let mut valid: Vec<String> = Vec::new();
            for row in &kept.rows {
                let row = &kept.bytes[row.clone()];
                if row.first() != Some(&b'{') {
                    continue;
                }
                for member in json::members(row, 0).map_while(Result::ok) {
                    let name = json::unescape(&row[member.key]).unwrap_or_default();
                    if !valid.contains(&name) {
                        valid.push(name);
                    }
                }
            }
            valid.extend(known.iter().filter(|field| field.contains('.')).map(|field| (*field).to_owned()));
            let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
            return Err(unknown_field(policy, path.text(), &valid));
        }
    }
    Ok(())
}

fn unknown_field(policy: &Policy, name: &str, valid: &[&str]) -> Refusal {
    let argument = policy.published(HostArgument::Fields).unwrap_or("fields");
    Refusal::invalid_argument(
        argument,
        format!("{argument}: unknown field {}; valid names: {}", super::refusal::excerpt(name), valid.join(", ")),
    )
}

fn stale_cursor(stale: Stale, call: &Call<'_>) -> Refusal {
    let what = match stale {
        Stale::KeyGone => "the row behind which this page begins is gone, or the rows now come in another order",
        Stale::Changed => "the rows have changed since the page before",
    };
    let mut next = call.ask.arguments.clone();
    if let Some(after) = call.policy.published(HostArgument::After) {
        next.remove(after);
    }
    Refusal::new(Code::StaleCursor, format!("after is stale: {what}. Start over with next, without after."))
        .with_next(Some(next))
}

/// What the stages have to tell, before the page is final.
#[derive(Default)]
struct Notices {
    default_view: Option<(String, String)>,
    table: Vec<String>,
}

/// The page after the fit stage.
struct Fitted {
    rows: usize,
    body: String,
    facts: String,
    body_tokens: u64,
    receipt: Receipt,
}

impl Fitted {
    fn new(intake: &Intake, call: &Call<'_>, counts: &Counts, page: &Page<'_>, notices: Notices) -> Self {
        let copies = copies(call);
        let mut rows = page.len();
        if let Some(budget) = call.budget.tokens {
            rows = fit::rows_within(page, budget / copies);
        }
        loop {
            let body = page.body(rows);
            let body_tokens = tokens::count(&body);
            let (mut facts, receipt) = facts(intake, call, counts, page, rows, &notices);
            // The facts name the tokens of the whole reply, their own among them: the number itself may make a token's
            // difference, hence `approx`.
            facts.approx_tokens = copies * (body_tokens + tokens::count(&facts.text()));
            let excess = call.budget.tokens.map_or(0, |budget| facts.approx_tokens.saturating_sub(budget));
            if excess > 0 && rows > 1 {
                // As many rows as the excess is worth at the page's own average, and at least one.
                let per_row = (copies * body_tokens / rows as u64).max(1);
                rows -= (excess / per_row).clamp(1, rows as u64 - 1) as usize;
                continue;
            }
            let receipt = Receipt { approx_tokens: facts.approx_tokens, ..receipt };
            return Self { rows, body, facts: facts.text(), body_tokens, receipt };
        }
    }
}

fn copies(call: &Call<'_>) -> u64 {
    if call.tool.has_structured_copy { 2 } else { 1 }
}

/// The facts and the account of a page of `rows` rows.
fn facts(intake: &Intake, call: &Call<'_>, counts: &Counts, page: &Page<'_>, rows: usize, notices: &Notices) -> (Facts, Receipt) {
    let (policy, ask) = (call.policy, call.ask);
    let has_rows = matches!(intake.kept.kind, Kind::Array | Kind::Pushed | Kind::Lines);
    let returned = rows as u64;
    let dropped = (page.len() - rows) as u64;
    let matched = counts.total.map(|total| total - counts.hidden - counts.filtered);
    let has_more = has_rows && (counts.has_more || dropped > 0);
    let mut said = Vec::new();
    let mut next_after = None;
    let mut next = None;
    if let Some(name) = policy.published(HostArgument::After)
        && has_more
        && let Some(place) = intake.window.place_behind(rows)
    {
        let cursor = Cursor { place, before: counts.before + returned, carried: Some(ask.carried()) };
        let (text, is_carried) = call.signer.seal(&ask.binding, &cursor);
        let mut arguments: Map<String, Value> = if is_carried { ask.required.clone() } else { ask.arguments.clone() };
        arguments.insert(name.to_owned(), text.clone().into());
        next_after = Some(text);
        next = Some(arguments);
        let of = matched.map_or_else(|| String::from("more"), |matched| matched.to_string());
        let first = counts.before + 1;
        let default = match policy.published(HostArgument::Limit) {
            Some(limit) if ask.limit.is_none() && dropped == 0 => {
                format!(" ({limit} was not provided: {})", policy.page.default_limit)
            }
            _ => String::new(),
        };
        said.push(format!("Rows {first} to {} of {of}{default}. The call in \"next\" gets the next page.", counts.before + returned));
    }
    if let (Some(horizon), Some(name)) = (&policy.horizon, policy.published(HostArgument::Horizon))
        && ask.is_live_only.is_none()
    {
        said.push(format!(
            "This query used the default live-only horizon because \"{name}\" was not provided ({} are excluded). If results \
             seem incomplete, pass {name}:\"all\" to include them.",
            horizon.excluded
        ));
    }
    if let Some((name, view)) = &notices.default_view {
        said.push(format!("Fields are those of the default view \"{view}\" because \"{name}\" was not provided; pass {name}:\"{FULL}\" for every field."));
    }
    if !notices.table.is_empty() {
        let name = policy.published(HostArgument::Format).unwrap_or("format");
        said.push(format!("A table has the declared columns of the rows only; beside them the document has {}: pass {name}:\"json\".", notices.table.join(", ")));
    }
    if dropped > 0 {
        let budget = call.budget.tokens.unwrap_or_default();
        let raise = policy.published(HostArgument::MaxTokens).map_or(String::new(), |name| format!(", or raise {name}"));
        let rest = if next.is_some() { "they come with the next page" } else { "narrow the call" };
        said.push(format!("The budget of {budget} tokens left out {dropped} rows of this page; {rest}{raise}."));
    }
    let receipt = Receipt {
        total: if has_rows { counts.total } else { Some(1) },
        returned: if has_rows { returned } else { 1 },
        hidden: counts.hidden,
        filtered: counts.filtered,
        before: counts.before,
        after: if has_rows { counts.after.map(|after| after + dropped) } else { Some(0) },
        passages: Vec::new(),
        notices: said.clone(),
        approx_tokens: 0,
        budget_tokens: call.budget.tokens,
        budget_source: call.budget.source,
        budget_rows_dropped: dropped,
        next_after: next_after.clone(),
    };
    let facts = Facts {
        total_count: has_rows.then_some(counts.total),
        matched_count: has_rows.then_some(matched),
        returned: has_rows.then_some(returned),
        next_after,
        next,
        notices: said,
        approx_tokens: 0,
        budget_tokens: call.budget.tokens,
        budget_source: source_name(call.budget.source),
        budget_rows_dropped: dropped,
    };
    (facts, receipt)
}

/// The last stage: the reply, or its refusal.
fn cap(
    intake: &Intake,
    call: &Call<'_>,
    page: &Page<'_>,
    fitted: Fitted,
    attachments: Vec<Attachment>,
) -> Result<Reply, Refusal> {
    let Fitted { rows, body, facts, body_tokens, mut receipt } = fitted;
    let copies = copies(call) as usize;
    let attachment_bytes: usize = attachments.iter().map(attachment_bytes).sum();
    let bytes = (facts.len() + body.len()) * copies + attachment_bytes;
    if bytes >= call.policy.cap_bytes as usize {
        let refused =
            Refused { call, kept: &intake.kept, page, bytes, facts_bytes: facts.len(), attachment_bytes, copies };
        return Err(refused.refusal());
    }
    let matched = intake.rows_in - receipt.hidden - receipt.filtered;
    let page_bytes: u64 = (0..page.len()).map(|index| page.row(index).len() as u64).sum();
    let passage = |stage, (rows_in, rows_out): (u64, u64), (bytes_in, bytes_out): (u64, u64), tokens_out| Passage {
        stage,
        rows_in,
        rows_out,
        bytes_in,
        bytes_out,
        tokens_in: None,
        tokens_out,
    };
    let (kept, out) = (page.len() as u64, rows as u64);
    let matched_bytes = intake.window.matched_bytes();
    receipt.passages = vec![
        passage(Stage::Narrow, (intake.rows_in, matched), (intake.bytes_in, matched_bytes), None),
        passage(Stage::Page, (matched, kept), (matched_bytes, page_bytes), None),
        passage(Stage::Fit, (kept, out), (page.bytes_with(page.len()) as u64, body.len() as u64), Some(body_tokens)),
        passage(Stage::Cap, (out, out), (bytes as u64, bytes as u64), Some(receipt.approx_tokens)),
    ];
    let is_json = matches!(intake.kept.kind, Kind::Array | Kind::Pushed | Kind::Json);
    Ok(Reply::answer(facts, body, call.ask.format, is_json, call.tool.has_structured_copy, attachments, receipt))
}

/// Bytes of an attachment as it is sent: base64, or text.
fn attachment_bytes(attachment: &Attachment) -> usize {
    let data = match attachment {
        Attachment::Image(blob) | Attachment::Audio(blob) => &blob.data,
        Attachment::Resource(embedded) => &embedded.data,
    };
    data.len().div_ceil(3) * 4
}
