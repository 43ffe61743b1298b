//! The table: what, ours, target, the peer's, ratio, met or not.

use std::path::Path;

use anyhow::Context;

pub(crate) const MIB: f64 = 1_048_576.0;

/// What a number is held to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Only to be seen.
    None,
}

/// One line.
pub(crate) struct Row {
    what: String,
    ours: String,
    target: String,
    peer: String,
    ratio: String,
    met: &'static str,
}

impl Bound {
    fn text(self, unit: &str) -> String {
        match self {
            Self::AtMost(bound) => format!("≤ {bound}{unit}"),
            Self::AtLeast(bound) => format!("≥ {bound}{unit}"),
            Self::None => String::new(),
        }
    }

    fn met(self, number: f64) -> &'static str {
        match self {
            Self::AtMost(bound) if number <= bound => "yes",
            Self::AtLeast(bound) if number >= bound => "yes",
            Self::None => "",
            _ => "**no**",
        }
    }
}

impl Row {
    /// A ratio to a peer's number of the same run.
    pub(crate) fn compared(
        what: &str,
        ours: String,
        bound: Bound,
        peer: &str,
        theirs: &str,
        ratio: f64,
    ) -> Self {
        Self {
            what: what.to_owned(),
            ours,
            target: bound.text(" ×"),
            peer: format!("{theirs} ({peer})"),
            ratio: format!("{ratio:.2} ×"),
            met: bound.met(ratio),
        }
    }

    /// A number with a unit.
    pub(crate) fn alone(what: &str, ours: String, bound: Bound, number: f64, unit: &str) -> Self {
        Self {
            what: what.to_owned(),
            ours,
            target: bound.text(&format!(" {unit}")),
            peer: String::new(),
            ratio: String::new(),
            met: bound.met(number),
        }
    }
}

pub(crate) fn micros(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros < 10.0 {
        format!("{micros:.2} µs")
    } else if micros < 1_000.0 {
        format!("{micros:.1} µs")
    } else {
        millis(seconds)
    }
}

pub(crate) fn millis(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

pub(crate) fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / MIB)
}

pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut table = String::from(
        "| what | ours | target | peer | ratio | met |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for Row {
        what,
        ours,
        target,
        peer,
        ratio,
        met,
    } in rows
    {
        table.push_str(&format!(
            "| {what} | {ours} | {target} | {peer} | {ratio} | {met} |\n"
        ));
    }
    table
}

/// Puts the table in the place of the one before.
pub(crate) fn into_readme(readme: &Path, table: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(readme)?;
    let (begin, end) = ("<!-- bench -->\n", "<!-- end of bench -->");
    let (head, rest) = text
        .split_once(begin)
        .context("the README has no place for the table")?;
    let (_, tail) = rest
        .split_once(end)
        .context("the place for the table has no end")?;
    std::fs::write(readme, format!("{head}{begin}{table}{end}{tail}"))?;
    Ok(())
}
