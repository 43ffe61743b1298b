//! `/results`: the page on which people see a complete result, and its downloads.
//!
//! The token in the address is the key, so that a link can be passed on; nothing else is asked for. The page loads nothing
//! from anywhere else, is not indexed, and says nothing to the sites that it is left for.

mod lost;

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, RawQuery, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use futures::TryStreamExt;
use serde::Deserialize;

use self::lost::Lost;
use crate::call::{Caller, Host};
use crate::ledger::Ledger;
use crate::preview::grouped;
use crate::results::{BadLink, Columns, Grant, RowReader, Stored, Unavailable, now};
use crate::shape::KeptKind;
use crate::store::{Charge, Spent};
use crate::tenant::{Admitted, utc};

const FRAME: &str = include_str!("pages/result.html");
const TABLE: &str = include_str!("pages/table.html");
const STYLE: &str = include_str!("pages/page.css");
const SCRIPT: &str = include_str!("pages/page.js");

/// What the page may do: load its own script and style, ask for its own rows, and be in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// How long a browser may keep style and script, in seconds. They change with the host only.
const ASSET_SECONDS: u32 = 3_600;

/// Every route below `/results`.
pub(super) fn routes() -> Router<Arc<Host>> {
    Router::new()
        .route(
            "/results/assets/page.css",
            get(|| asset("text/css; charset=utf-8", STYLE)),
        )
        .route(
            "/results/assets/page.js",
            get(|| asset("text/javascript; charset=utf-8", SCRIPT)),
        )
        .route("/results/{token}", get(page))
        .route("/results/{token}/table", get(table))
        .route("/results/{token}/download", get(download))
        .layer(middleware::from_fn(privately))
}

/// Headers of all that is below `/results`.
async fn privately(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &'static str); 5] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("private, no-store"));
    response
}

async fn asset(media_type: &'static str, text: &'static str) -> Response {
    let fresh = format!("public, max-age={ASSET_SECONDS}");
    (
        [
            (header::CONTENT_TYPE, media_type),
            (header::CACHE_CONTROL, fresh.as_str()),
        ],
        text,
    )
        .into_response()
}

fn frame(title: &str, base: &str, script: &str, body: &str) -> String {
    let frame = FRAME
        .replace("{{title}}", &escaped(title))
        .replace("{{base}}", base)
        .replace("{{script}}", script);
    // The body last: what is in it is not looked at again.
    frame.replacen("{{body}}", body, 1)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// What a link leads to.
enum Way {
    /// The result itself.
    Here(Box<Stored>),
    /// The result that was made of what was promised under the link: its token.
    There(String),
}

/// Answers with what `show` makes of the result that a token gives access to. `base` leads to `/results/` from where it is
/// shown, and `tail` is the address behind the token. What a promise has become has an address of its own, so that a page, its
/// table and its downloads are of one result, whichever replica made it.
async fn answer(
    host: &Host,
    token: &str,
    base: &str,
    tail: &str,
    show: impl AsyncFnOnce(Stored) -> Result<Response, Lost>,
) -> Response {
    let shown = match open(host, token).await {
        Ok(Way::Here(stored)) => counted(host, *stored, show).await,
        Ok(Way::There(token)) => Ok(Redirect::to(&format!("{base}{token}{tail}")).into_response()),
        Err(lost) => Err(lost),
    };
    shown.unwrap_or_else(|lost| lost.page(base))
}

/// What is shown of a result, which counts in its tenant's quotas as it leaves.
async fn counted(
    host: &Host,
    stored: Stored,
    show: impl AsyncFnOnce(Stored) -> Result<Response, Lost>,
) -> Result<Response, Lost> {
    let tenant = &stored.description.tenant;
    let mut handed_out = HandedOut {
        ledger: host.ledger().clone(),
        admitted: host.tenants().reserve_link(tenant).await?,
        bytes: 0,
    };
    let (head, body) = show(stored).await?.into_parts();
    let body = body.into_data_stream().inspect_ok(move |piece| {
        handed_out.add(piece);
    });
    Ok(Response::from_parts(head, Body::from_stream(body)))
}

/// What has left through a link. It is written down when the body is over or its reader has gone.
struct HandedOut {
    ledger: Ledger,
    admitted: Admitted,
    bytes: u64,
}

impl HandedOut {
    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
    }
}

impl Drop for HandedOut {
    fn drop(&mut self) {
        // Nobody counts the tokens of what people see.
        let spent = Spent {
            bytes: self.bytes,
            ..Spent::default()
        };
        let charges: Vec<Charge> = self.admitted.charges(spent).collect();
        if self.bytes > 0 && !charges.is_empty() {
            self.ledger.spend(charges);
        }
    }
}

/// The result that a token gives access to, made first where it is promised.
async fn open(host: &Host, token: &str) -> Result<Way, Lost> {
    let results = host.results();
    let grant = results
        .links()
        .open(token, now())
        .map_err(|bad| match bad {
            BadLink::False => Lost::False,
            BadLink::Expired => Lost::Gone,
        })?;
    let stored = host.open_result(grant.tenant, grant.id).await?;
    let stored = stored.ok_or(Lost::Gone)?;
    // A link shows no more than its tenant may see now.
    host.ready().await;
    let caller = Caller {
        tenant: stored.description.tenant.clone(),
        ..Caller::default()
    };
    let is_shown = host
        .tool(&caller, &stored.description.tool)
        .is_some_and(|tool| tool.policy.cells().describe() == stored.description.cells);
    if !is_shown {
        return Err(Lost::Gone);
    }
    if stored.id == grant.id {
        return Ok(Way::Here(Box::new(stored)));
    }
    Ok(Way::There(results.links().token(&Grant {
        tenant: grant.tenant,
        id: stored.id,
        expires: stored.expires,
    })))
}

/// `GET /results/{token}`
async fn page(State(host): State<Arc<Host>>, Path(token): Path<String>) -> Response {
    answer(&host, &token, "", "", async |stored| {
        Ok(show(&token, &stored))
    })
    .await
}

fn show(token: &str, stored: &Stored) -> Response {
    let described = &stored.description;
    let count = grouped(described.matched);
    let query = serde_json::to_string_pretty(&described.arguments).unwrap_or_default();
    let values = [
        ("tool", described.tool.clone()),
        ("made", made(stored)),
        ("account", account(stored)),
        (
            "until",
            utc(i64::try_from(stored.expires * 1000).unwrap_or(i64::MAX)),
        ),
        ("count", count),
        ("rows", described.matched.to_string()),
        ("query", query),
    ];
    let mut body = String::with_capacity(TABLE.len() * 2);
    let mut rest = TABLE;
    // One pass, so that what is put in is never taken for a place to put something in.
    while let Some((before, (name, after))) = rest
        .split_once("{{")
        .and_then(|(before, behind)| Some((before, behind.split_once("}}")?)))
    {
        body.push_str(before);
        match values.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => body.push_str(&escaped(value)),
            None if name == "downloads" => body.push_str(&downloads(token, stored.kind)),
            None => {}
        }
        rest = after;
    }
    body.push_str(rest);
    let script = "<script src=\"assets/page.js\" defer></script>\n";
    let html = frame(
        &format!("{} – complete result", described.tool),
        "",
        script,
        &body,
    );
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response()
}

/// The downloads as links, which need no script.
fn downloads(token: &str, kind: KeptKind) -> String {
    let whole = match kind {
        KeptKind::Array => "the document, exact to the byte",
        KeptKind::Pushed => "exact to the byte",
        KeptKind::Lines => "the lines, exact to the byte",
    };
    let whole_name = if kind == KeptKind::Lines {
        "Text"
    } else {
        "JSON"
    };
    let mut out = String::new();
    for (format, name, about) in [
        ("json", whole_name, whole),
        ("csv", "CSV", "for spreadsheets"),
        ("tsv", "TSV", "tab-separated"),
    ] {
        let mark = if format == "json" { "" } else { " data-table" };
        let _ = writeln!(
            out,
            "<a href=\"{token}/download?format={format}\" download{mark}><b>{name}</b><span>{about}</span></a>"
        );
    }
    out
}

/// When the rows were fetched, where that was later than the answer that points to them.
fn made(stored: &Stored) -> String {
    if stored.description.is_later {
        format!(
            "Fetched at {}, after the answer that points here. ",
            stored.made()
        )
    } else {
        String::new()
    }
}

/// The account of the rows, in words.
fn account(stored: &Stored) -> String {
    let described = &stored.description;
    let is_one = described.matched == 1;
    let mut text = format!(
        "{} row{}",
        grouped(described.matched),
        if is_one { "" } else { "s" }
    );
    let mut less = Vec::new();
    if described.hidden > 0 {
        less.push(format!(
            "{} hidden by the tool's horizon",
            grouped(described.hidden)
        ));
    }
    if described.filtered > 0 {
        less.push(format!("{} filtered out", grouped(described.filtered)));
    }
    if let (Some(total), false) = (described.total, less.is_empty()) {
        let _ = write!(text, " of {}: {}", grouped(total), less.join(", "));
    }
    text
}

/// The columns of a result: the declared ones, and those that its rows have beside them.
async fn columns_of(host: &Host, stored: &Stored) -> Result<Columns, Lost> {
    let mut columns = Columns::declared(stored);
    let mut reader = host.results().rows(stored).await?;
    while reader
        .next(|row| columns.look(row))
        .await
        .map_err(Unavailable::from)?
    {}
    Ok(columns)
}

/// `GET /results/{token}/table`: the cells of all rows, for the page.
async fn table(State(host): State<Arc<Host>>, Path(token): Path<String>) -> Response {
    answer(&host, &token, "../", "/table", async |stored| {
        cells(&host, &stored).await
    })
    .await
}

async fn cells(host: &Host, stored: &Stored) -> Result<Response, Lost> {
    let columns = columns_of(host, stored).await?;
    let names: Vec<&str> = columns.names().collect();
    let head = serde_json::json!({
        "columns": names,
        "declared": if stored.kind == KeptKind::Lines { 0 } else { columns.declared_count() },
        "has_more": columns.has_more(),
    })
    .to_string();
    // The rows take the place of the closing brace.
    let head = format!("{},\"rows\":[", head.trim_end_matches('}'));
    let mut is_first = true;
    let write = move |row: &[u8], out: &mut Vec<u8>| {
        if !std::mem::take(&mut is_first) {
            out.extend_from_slice(b",\n");
        }
        // A list of texts is always JSON.
        let _ = serde_json::to_writer(out, &columns.cells(row));
    };
    let body = stream(
        host.results().rows(stored).await?,
        head.into_bytes(),
        write,
        b"]}".to_vec(),
    );
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// The query of a download.
#[derive(Debug, Deserialize)]
struct Wanted {
    format: Option<String>,
    columns: Option<String>,
}

/// `GET /results/{token}/download`
async fn download(
    State(host): State<Arc<Host>>,
    Path(token): Path<String>,
    Query(wanted): Query<Wanted>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    let tail = format!("/download{query}");
    answer(&host, &token, "../", &tail, async |stored| {
        file(&host, &stored, &wanted).await
    })
    .await
}

async fn file(host: &Host, stored: &Stored, wanted: &Wanted) -> Result<Response, Lost> {
    let reader = host.results().rows(stored).await?;
    let (body, media_type, extension) = match wanted.format.as_deref() {
        None | Some("json") => whole(stored, reader),
        Some(format @ ("csv" | "tsv")) => {
            let columns = chosen(host, stored, wanted.columns.as_deref()).await?;
            let (delimiter, media_type, extension) = match format {
                "csv" => (b',', "text/csv; charset=utf-8", "csv"),
                _ => (b'\t', "text/tab-separated-values; charset=utf-8", "tsv"),
            };
            let mut head = Vec::new();
            columns.write_header(delimiter, &mut head);
            let write = move |row: &[u8], out: &mut Vec<u8>| columns.write_row(row, delimiter, out);
            (
                stream(reader, head, write, Vec::new()),
                media_type,
                extension,
            )
        }
        Some(_) => return Err(Lost::BadFormat),
    };
    // A published name has letters, digits, dots, dashes and underscores; a header takes nothing else here either.
    let tool: String = stored
        .description
        .tool
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_') {
                letter
            } else {
                '_'
            }
        })
        .collect();
    let name = format!("attachment; filename=\"{tool}.{extension}\"");
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_DISPOSITION, name.as_str()),
    ];
    Ok((headers, body).into_response())
}

/// The columns of a table: those that were chosen, else the declared ones, else all.
async fn chosen(host: &Host, stored: &Stored, wanted: Option<&str>) -> Result<Columns, Lost> {
    let Some(wanted) = wanted else {
        let declared = Columns::declared(stored);
        return if declared.declared_count() > 0 {
            Ok(declared)
        } else {
            columns_of(host, stored).await
        };
    };
    let places: Option<HashSet<usize>> =
        wanted.split(',').map(|place| place.parse().ok()).collect();
    let columns = columns_of(host, stored).await?;
    let is_there = |place: &usize| *place < columns.names().count();
    let places = places
        .filter(|places| places.iter().all(is_there))
        .ok_or(Lost::BadColumns)?;
    Ok(columns.only(&places))
}

/// The document with its rows, or the lines, exact to the byte.
fn whole(stored: &Stored, reader: RowReader) -> (Body, &'static str, &'static str) {
    let (head, separator, tail): (Vec<u8>, &[u8], Vec<u8>) = match stored.kind {
        KeptKind::Array => (stored.prefix.clone(), b",\n", stored.suffix.clone()),
        KeptKind::Pushed => (b"[".to_vec(), b",\n", b"]".to_vec()),
        KeptKind::Lines => (Vec::new(), b"\n", b"\n".to_vec()),
    };
    let is_json = stored.kind != KeptKind::Lines;
    let mut is_first = true;
    let write = move |row: &[u8], out: &mut Vec<u8>| {
        match (std::mem::take(&mut is_first), is_json) {
            (true, true) => out.push(b'\n'),
            (true, false) => {}
            (false, _) => out.extend_from_slice(separator),
        }
        out.extend_from_slice(row);
    };
    let tail = if is_json {
        [b"\n".as_slice(), &tail].concat()
    } else {
        tail
    };
    let (media_type, extension) = if is_json {
        ("application/json", "json")
    } else {
        ("text/plain; charset=utf-8", "txt")
    };
    (stream(reader, head, write, tail), media_type, extension)
}

/// A body that is made while it is sent. Where the rows break off, so does the body: a download is whole or it fails.
fn stream(
    reader: RowReader,
    head: Vec<u8>,
    write: impl FnMut(&[u8], &mut Vec<u8>) + Send + 'static,
    tail: Vec<u8>,
) -> Body {
    let pieces = futures::stream::unfold(Some((reader, head, write, tail)), |state| async {
        let (mut reader, mut out, mut write, tail) = state?;
        match reader.next(|row| write(row, &mut out)).await {
            Ok(true) => Some((
                Ok(Bytes::from(out)),
                Some((reader, Vec::new(), write, tail)),
            )),
            Ok(false) => {
                out.extend_from_slice(&tail);
                Some((Ok(Bytes::from(out)), None))
            }
            Err(error) => {
                tracing::warn!("a download breaks off: {error:#}");
                Some((Err(std::io::Error::other(error)), None))
            }
        }
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_text_is_no_markup() {
        assert_eq!(
            [
                grouped(0),
                grouped(999),
                grouped(36_398),
                grouped(1_234_567)
            ],
            ["0", "999", "36,398", "1,234,567"]
        );
        assert_eq!(
            escaped("<a href='x'>\"&"),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;"
        );
    }
}
