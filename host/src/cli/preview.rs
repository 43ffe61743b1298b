//! `plimsoll preview`

use std::fmt::Write as _;
use std::io::Write as _;

use clap::Args;

use super::Exit;
use super::call::{What, say_attachments};
use crate::call::Caller;
use crate::preview::{Share, grouped, readers};
use crate::shape::{Refusal, Reply};

#[derive(Debug, Args)]
pub(super) struct Preview {
    #[command(flatten)]
    what: What,
    /// Show the replies themselves as well, as for one `--client` they are
    #[arg(long)]
    replies: bool,
}

impl Preview {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let (app, arguments) = self.what.open().await?;
        let host = &app.host;
        let caller = self.what.caller.caller(&app)?;
        let (names, callers): (Vec<String>, Vec<Caller>) =
            readers(host, &caller).into_iter().unzip();
        let Some(tool) = callers
            .first()
            .and_then(|caller| host.tool(caller, &self.what.tool))
        else {
            let reply = Reply::refused(&Refusal::unknown_tool(&self.what.tool));
            writeln!(std::io::stderr().lock(), "{}", reply.body())?;
            return Ok(Exit::Refused);
        };
        if !app.config.client_profiles.value {
            writeln!(
                std::io::stderr().lock(),
                "hint: `client_profiles` is false, so that every client program gets the same"
            )?;
        }
        let replies = host.preview(&callers, &tool, arguments).await;
        app.close().await;
        let shown: Vec<(&str, &Reply)> = names.iter().map(String::as_str).zip(&replies).collect();
        let mut out = table(&shown);
        if self.replies || self.what.caller.client.is_some() {
            for (name, reply) in &shown {
                // Writing to a string cannot fail.
                let _ = write!(out, "\n--- {name}\n");
                if reply.refusal().is_none() {
                    let _ = writeln!(out, "{}", reply.facts());
                }
                let _ = writeln!(out, "{}", reply.body());
            }
        }
        std::io::stdout().lock().write_all(out.as_bytes())?;
        if let Some(reply) = replies.first() {
            say_attachments(reply)?;
        }
        let is_refused = replies.iter().all(|reply| reply.refusal().is_some());
        Ok(if is_refused {
            Exit::Refused
        } else {
            Exit::Success
        })
    }
}

/// What each gets, a line each.
fn table(shown: &[(&str, &Reply)]) -> String {
    let head = [
        "client",
        "rows",
        "left out",
        "bytes",
        "tokens",
        "budget",
        "decided by",
    ];
    let mut lines = vec![head.map(String::from)];
    lines.extend(shown.iter().map(|(name, reply)| line(name, reply)));
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            // Numbers stand to the right. Writing to a string cannot fail.
            let _ = if (1..5).contains(&column) {
                write!(text, "{cell:>width$}  ")
            } else {
                write!(text, "{cell:<width$}  ")
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    }
    out
}

fn line(name: &str, reply: &Reply) -> [String; 7] {
    let share = Share::of(name, reply);
    let number = |number: Option<u64>| number.map_or_else(String::new, grouped);
    let source = share.budget_source.unwrap_or_default();
    let budget = match (share.budget_tokens, reply.refusal()) {
        (_, Some(_)) => String::new(),
        (None, None) => String::from("none"),
        (Some(tokens), None) => format!("{} ({source})", grouped(tokens)),
    };
    let decided = match &share.gate {
        Some(gate) => format!("gate: {} {}", grouped(gate.limit), gate.unit),
        None if share.decided_by == "budget" => format!("budget: {source}"),
        None => share.decided_by.to_owned(),
    };
    [
        share.client,
        share.rows.map_or_else(|| String::from("refused"), grouped),
        number(share.rows_dropped),
        grouped(share.bytes),
        number(share.tokens),
        budget,
        decided,
    ]
}
