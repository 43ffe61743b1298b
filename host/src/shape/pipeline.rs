//! narrow → page → fit → cap: from an answer that was taken in to a reply that can be sent.

use std::collections::BTreeSet;

use super::ask::{Ask, Format};
use super::cap::{self, Refused};
use super::cursor::Signer;
use super::fit::{self, Budget, Reader};
use super::format::{self, Page, Shaped};
use super::gates::{Copy, Gate, Gates, Reached};
use super::intake::{Intake, Kept, Kind};
use super::keep::Complete;
use super::page::{Counts, NoPage};
use super::policy::{Column, HostArgument, Policy};
use super::receipt::{Account, Notices};
use super::refusal::{Code, Field, Refusal, excerpt, shorten};
use super::reply::Reply;
use super::select::{Path, Selection};
use super::{json, tokens};
use crate::contract::{Attachment, Passage, Receipt, Stage};

/// How many members beside its rows a notice names, and how much of each name.
const MAX_BESIDE: usize = 10;
const MAX_NAME_BYTES: usize = 60;

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
    /// Whether it is called through `invoke_tool`.
    pub is_invoked: bool,
}

/// Everything that decides what becomes of one answer.
#[derive(Clone, Copy)]
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
    /// What the calling program takes of one result, where that is known.
    pub gates: Option<&'a Gates>,
}

/// Shapes one answer.
pub fn shape(mut intake: Intake, call: &Call<'_>) -> Reply {
    let reader = Reader {
        budget: call.budget,
        gates: call.gates,
    };
    let mut replies = shape_each(&mut intake, call, &[reader]);
    replies.pop().expect("one reader gets one reply")
}

/// Shapes one answer for several readers: what each would get, in their order. The budget and the gates of `call` itself do
/// not count. An answer that could not be kept as its replies say is shaped again; its attachments are in those replies.
pub fn shape_each(intake: &mut Intake, call: &Call<'_>, readers: &[Reader<'_>]) -> Vec<Reply> {
    let refused = |refusal: &Refusal| {
        let refused = readers.iter().map(|_| call.tool.refuse(refusal.clone()));
        refused.collect()
    };
    let counts = match prepare(intake, call) {
        Ok(counts) => counts,
        Err(refusal) => return refused(&refusal),
    };
    let attachments = std::mem::take(&mut intake.attachments);
    size_once(intake, call);
    let intake = &*intake;
    let mut notices = Notices::default();
    let shaped = match narrow_fields(intake, call, &mut notices) {
        Ok(shaped) => shaped,
        Err(refusal) => return refused(&refusal),
    };
    let page = match &shaped {
        Some(shaped) => Page::of_shaped(&intake.kept, shaped),
        None => Page::of_kept(&intake.kept),
    };
    let reply = |reader: &Reader<'_>| {
        let call = Call {
            budget: reader.budget,
            gates: reader.gates,
            ..*call
        };
        let account = Account {
            intake,
            call: &call,
            counts: &counts,
            notices: notices.clone(),
            sized: intake.sized.as_deref().unwrap_or_default(),
        };
        let fitted = Fitted::new(&account, &page, &attachments);
        seal(&account, &page, fitted, &attachments)
            .unwrap_or_else(|refusal| call.tool.refuse(refusal))
    };
    readers.iter().map(reply).collect()
}

/// Makes cells smaller, unless that was done when the answer was shaped before.
fn size_once(intake: &mut Intake, call: &Call<'_>) {
    if intake.sized.is_some() {
        return;
    }
    let fields = call.policy.published(HostArgument::Fields);
    let cells = call.policy.cells.for_call(fields, named_fields(call));
    intake.sized = Some(cells.size_kept(&mut intake.kept));
}

/// The fields that a call names, as paths into rows: a table may name them by the columns' names.
fn named_fields(call: &Call<'_>) -> Vec<Path> {
    let column = |path: &Path| {
        let columns = &call.policy.columns;
        columns
            .iter()
            .find(|column| column.name == path.text())
            .map(|column| column.field.clone())
    };
    let named = call.ask.fields.iter();
    if call.ask.format == Format::Json {
        named.cloned().collect()
    } else {
        named
            .map(|path| column(path).unwrap_or_else(|| path.clone()))
            .collect()
    }
}

/// Whether what was taken in is an answer, without shaping it; else its refusal.
pub fn check(intake: &mut Intake, call: &Call<'_>) -> Result<(), Refusal> {
    prepare(intake, call).map(drop)
}

/// The account of an answer that can be shaped.
fn prepare(intake: &mut Intake, call: &Call<'_>) -> Result<Counts, Refusal> {
    intake.close();
    if let Some(invalid) = &intake.invalid {
        return Err(Refusal::new(Code::InvalidAnswer, excerpt(invalid)));
    }
    if let Some(bytes) = intake.too_large {
        return Err(cap::not_taken_in(bytes, intake, call));
    }
    intake
        .window
        .finish(intake.total, &intake.narrow)
        .map_err(|no_page| refuse_page(no_page, call))
}

/// The view, `fields` or table of this call, applied to the page; none where rows go out as they came in.
fn narrow_fields(
    intake: &Intake,
    call: &Call<'_>,
    notices: &mut Notices,
) -> Result<Option<Shaped>, Refusal> {
    let (kept, policy, ask) = (&intake.kept, call.policy, call.ask);
    if !kept.has_fields() {
        return check_is_not_asked_for_fields(kept, call).map(|()| None);
    }
    if ask.format != Format::Json {
        let columns = chosen_columns(policy, &ask.fields)?;
        let table = format::table(kept, &columns, ask.format).ok_or_else(|| {
            let columns: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            let name = policy.published(HostArgument::Format).unwrap_or("format");
            Refusal::new(
                Code::InvalidAnswer,
                excerpt(&format!(
                    "no row of this answer has any of the columns {}; leave {name} out",
                    columns.join(", ")
                )),
            )
        })?;
        notices.beside_table = beside_rows(kept);
        return Ok(Some(table));
    }
    if !ask.fields.is_empty() {
        if let Some(withheld) = ask.fields.iter().find(|path| policy.cells.removes(path)) {
            let none = BTreeSet::new();
            let names = intake.unseen.first().map_or(&none, |(_, names)| names);
            return Err(unknown_field(
                policy,
                withheld.text(),
                valid_names(policy, names),
            ));
        }
        if let Some((unknown, names)) = intake.unseen.first().filter(|_| intake.rows_in > 0) {
            return Err(unknown_field(
                policy,
                unknown.text(),
                valid_names(policy, names),
            ));
        }
        return Ok(format::select(kept, &Selection::new(&ask.fields)));
    }
    let name = ask.detail.as_deref().unwrap_or(policy.default_view());
    let Some(view) = policy.view(name) else {
        return Ok(None);
    };
    let shaped = format::select(kept, &view.selection);
    if ask.detail.is_none() && shaped.is_some() {
        notices.default_view = Some(view.name.clone());
    }
    Ok(shaped)
}

/// Text has no fields to pick and makes no table. An answer of nothing has nothing that could be picked wrongly.
fn check_is_not_asked_for_fields(kept: &Kept, call: &Call<'_>) -> Result<(), Refusal> {
    let asked = if call.ask.format != Format::Json {
        call.policy.published(HostArgument::Format)
    } else if !call.ask.fields.is_empty() {
        call.policy.published(HostArgument::Fields)
    } else {
        None
    };
    match asked {
        Some(name) if kept.kind != Kind::Empty => Err(Refusal::new(
            Code::InvalidAnswer,
            format!("this answer is text, which has no fields; leave {name} out"),
        )),
        _ => Ok(()),
    }
}

/// Members of the document beside its rows, which a table cannot show, from the outermost inwards.
fn beside_rows(kept: &Kept) -> Vec<String> {
    if kept.kind != Kind::Array {
        return Vec::new();
    }
    let envelope = [
        &kept.bytes[kept.prefix.clone()],
        &kept.bytes[kept.suffix.clone()],
    ]
    .concat();
    let rows_at = kept.prefix.len() - 1;
    let mut names = Vec::new();
    let mut place = String::new();
    let mut at = json::skip_space(&envelope, 0);
    while at < rows_at {
        let mut inner = None;
        let mut note = |name: String, value: std::ops::Range<usize>| {
            let name = format!("{place}{name}");
            if value.contains(&rows_at) {
                inner = Some((name, value.start));
            } else {
                names.push(name);
            }
        };
        match envelope[at] {
            b'{' => json::members(&envelope, at)
                .map_while(Result::ok)
                .for_each(|member| {
                    note(
                        shorten(
                            &String::from_utf8_lossy(&envelope[member.key]),
                            MAX_NAME_BYTES,
                        ),
                        member.value,
                    );
                }),
            _ => json::elements(&envelope, at)
                .map_while(Result::ok)
                .enumerate()
                .for_each(|(index, element)| note(format!("[{index}]"), element)),
        }
        let Some((name, next)) = inner else { break };
        place = format!("{name}.");
        at = next;
    }
    if names.len() > MAX_BESIDE {
        let more = names.len() - MAX_BESIDE;
        names.truncate(MAX_BESIDE);
        names.push(format!("{more} more"));
    }
    names
}

fn chosen_columns<'a>(policy: &'a Policy, asked: &[Path]) -> Result<Vec<&'a Column>, Refusal> {
    if asked.is_empty() {
        return Ok(policy.columns.iter().collect());
    }
    asked
        .iter()
        .map(|path| {
            policy
                .columns
                .iter()
                .find(|column| column.name == path.text() || column.field == *path)
                .ok_or_else(|| {
                    unknown_field(policy, path.text(), policy.columns().map(str::to_owned))
                })
        })
        .collect()
}

/// The names that rows have, and the nested fields that declarations name.
fn valid_names(policy: &Policy, names: &BTreeSet<String>) -> impl Iterator<Item = String> {
    let declared = policy.known_fields();
    let is_left = |field: &&str| Path::new(field).is_ok_and(|path| !policy.cells.removes(&path));
    let declared: Vec<String> = declared
        .into_iter()
        .filter(|field| !names.contains(*field))
        .filter(is_left)
        .map(str::to_owned)
        .collect();
    names
        .iter()
        .cloned()
        .collect::<Vec<_>>()
        .into_iter()
        .chain(declared)
}

fn unknown_field(policy: &Policy, name: &str, valid: impl Iterator<Item = String>) -> Refusal {
    let argument = policy.published(HostArgument::Fields).unwrap_or("fields");
    let valid: Vec<String> = valid.collect();
    let valid = if valid.is_empty() {
        String::from("none: the rows are no objects")
    } else {
        valid.join(", ")
    };
    Refusal::invalid_argument(
        argument,
        format!(
            "{argument}: unknown field {}; valid names: {valid}",
            shorten(name, 200)
        ),
    )
}

fn refuse_page(no_page: NoPage, call: &Call<'_>) -> Refusal {
    let after = call
        .policy
        .published(HostArgument::After)
        .unwrap_or("after");
    let what = match no_page {
        NoPage::KeyGone => {
            "the row behind which this page begins is gone, or the rows now come in another order"
        }
        NoPage::Changed => "the rows have changed since the page before",
        NoPage::StartsBefore => {
            let message = "the plugin says that it starts behind the cursor, and handed over the row of the cursor again";
            return Refusal::new(Code::InvalidAnswer, message);
        }
        NoPage::CutShort => {
            let message = "the plugin limited its rows before they were narrowed or paged, so that rows behind them are out of reach";
            return Refusal::new(Code::InvalidAnswer, message);
        }
    };
    let message = format!("{after} is stale: {what}. Start over with next, without {after}.");
    Refusal::new(Code::StaleCursor, message).with_next(Some(call.ask.arguments.clone()))
}

/// The page after the fit stage.
struct Fitted {
    rows: usize,
    /// Empty where the reply is refused without it.
    body: String,
    facts: String,
    body_tokens: u64,
    receipt: Receipt,
    /// The complete result, where the reply points to it.
    complete: Option<Complete>,
    /// The gate that left out rows, where it was not the budget.
    gate: Option<Gate>,
    /// The gate that not even one row stays below.
    reached: Option<Reached>,
}

impl Fitted {
    fn new(account: &Account<'_>, page: &Page<'_>, attachments: &[Attachment]) -> Self {
        let call = account.call;
        let copies = copies(call);
        let budget = call.budget.tokens;
        let counts = budget.map(|budget| fit::rows_within(page, budget / copies));
        let mut rows = counts.as_ref().map_or(page.len(), Vec::len);
        let mut gate = None;
        if let Some(gates) = call.gates {
            (rows, gate) = gates.rows_within(page, rows, copies);
        }
        loop {
            let (mut facts, receipt) = account.of(rows, gate.as_ref());
            let complete = account.complete(rows);
            let block = complete.as_ref().map(Complete::block);
            // Nothing makes this page smaller any more: its tokens need no count.
            let is_last = rows <= 1 || counts.is_none() && call.gates.is_none();
            let bytes = page.bytes_with(rows) * copies as usize;
            if is_last && bytes >= call.policy.cap_bytes as usize {
                let reached = call
                    .gates
                    .and_then(|gates| gates.reached_by_bytes(bytes as u64));
                return Self {
                    rows,
                    body: String::new(),
                    facts: facts.text(),
                    body_tokens: 0,
                    receipt,
                    complete,
                    gate,
                    reached,
                };
            }
            let body = page.body(rows);
            let body_tokens = tokens::count(&body);
            // The facts name the tokens of the whole reply, their own among them: the number itself may make a token's
            // difference, hence `approx`.
            facts.approx_tokens = copies * (body_tokens + tokens::count(&facts.text()))
                + block.as_deref().map_or(0, tokens::count);
            let excess = budget.map_or(0, |budget| facts.approx_tokens.saturating_sub(budget));
            if let Some(counts) = counts.as_ref().filter(|_| excess > 0 && rows > 1) {
                rows = fit::without(counts, rows, excess.div_ceil(copies));
                gate = None;
                continue;
            }
            let facts_text = facts.text();
            let reached = call.gates.and_then(|gates| {
                let block = block.as_deref().unwrap_or_default();
                let size = gates.measure([&facts_text, &body, block], copy(account), attachments);
                gates.reached(&size)
            });
            if let (Some(gates), Some(reached)) = (call.gates, &reached)
                && rows > 1
            {
                // The handler's own document may be large for its white space alone.
                rows = if page.is_whole() && rows == page.len() {
                    rows - 1
                } else {
                    let excess = reached.excess().div_ceil(copies);
                    gates.without(page, rows, reached.gate.unit, excess)
                };
                gate = Some(reached.gate.clone());
                continue;
            }
            let receipt = Receipt {
                approx_tokens: facts.approx_tokens,
                ..receipt
            };
            return Self {
                rows,
                body,
                facts: facts_text,
                body_tokens,
                receipt,
                complete,
                gate,
                reached,
            };
        }
    }
}

fn copies(call: &Call<'_>) -> u64 {
    if call.tool.has_structured_copy { 2 } else { 1 }
}

/// The structured copy that goes out beside facts and body, if one does.
fn copy(account: &Account<'_>) -> Option<Copy> {
    let is_json = is_json(account.intake.kept.kind) && account.call.ask.format == Format::Json;
    account
        .call
        .tool
        .has_structured_copy
        .then_some(if is_json { Copy::Json } else { Copy::Text })
}

fn is_json(kind: Kind) -> bool {
    matches!(kind, Kind::Array | Kind::Pushed | Kind::Json)
}

/// The last stage: the reply, or its refusal.
fn seal(
    account: &Account<'_>,
    page: &Page<'_>,
    fitted: Fitted,
    attachments: &[Attachment],
) -> Result<Reply, Refusal> {
    let Account {
        intake,
        call,
        counts,
        ..
    } = account;
    let cells = account.cells(fitted.rows);
    let Fitted {
        rows,
        body,
        facts,
        body_tokens,
        mut receipt,
        complete,
        gate,
        reached,
    } = fitted;
    let copies = copies(call) as usize;
    let attachment_bytes: usize = attachments.iter().map(cap::attachment_bytes).sum();
    let body_bytes = page.bytes_with(rows);
    let block_bytes = complete
        .as_ref()
        .map_or(0, |complete| complete.block().len());
    let bytes = (facts.len() + body_bytes) * copies + attachment_bytes + block_bytes;
    // Rows of the page that the intake could not keep are missing, unless the budget or a gate left out as many.
    let is_short = intake.kept.is_short && rows == page.len();
    if reached.is_some() || bytes >= call.policy.cap_bytes as usize || is_short {
        let refused = Refused {
            call,
            kept: &intake.kept,
            page,
            rows: if is_short || reached.is_some() {
                counts.kept.max(rows as u64)
            } else {
                rows as u64
            },
            is_short,
            bytes,
            facts_bytes: facts.len() + block_bytes,
            attachments,
            copies,
            copy: copy(account),
            reached,
        };
        return Err(refused.refusal());
    }
    let kept = &intake.kept;
    let matched = if kept.has_rows() {
        intake.window.matched()
    } else {
        intake.rows_in
    };
    let page_bytes: u64 = kept.rows.iter().map(|row| row.len() as u64).sum();
    let passage = |stage,
                   (rows_in, rows_out): (u64, u64),
                   (bytes_in, bytes_out): (u64, u64),
                   tokens_out| Passage {
        stage,
        rows_in,
        rows_out,
        bytes_in,
        bytes_out,
        tokens_in: None,
        tokens_out,
    };
    let (on_page, out) = (page.len() as u64, rows as u64);
    let matched_bytes = if kept.has_rows() {
        intake.window.matched_bytes()
    } else {
        intake.bytes_in
    };
    receipt.passages = vec![
        passage(
            Stage::Narrow,
            (intake.rows_in, matched),
            (intake.bytes_in, matched_bytes),
            None,
        ),
        passage(
            Stage::Page,
            (matched, on_page),
            (matched_bytes, page_bytes),
            None,
        ),
        passage(
            Stage::Fit,
            (on_page, out),
            (page.bytes_with(page.len()) as u64, body_bytes as u64),
            Some(body_tokens),
        ),
        passage(
            Stage::Cap,
            (out, out),
            (bytes as u64, bytes as u64),
            Some(receipt.approx_tokens),
        ),
    ];
    Ok(Reply::answer(
        facts,
        body,
        call.ask.format,
        is_json(kept.kind),
        call.tool.has_structured_copy,
        attachments.to_vec(),
        receipt,
    )
    .with_changes(gate.filter(|_| rows < page.len()), cells)
    .pointing_to(complete))
}
