//! `plimsoll usage`

use std::io::Write;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::keys::{check_tenant, span_ms};
use super::{ConfigArgument, Exit};
use crate::app::open_store;
use crate::store::{Grouping, Period, UsageRow, now_ms};
use crate::tenant::utc;

#[derive(Debug, Args)]
pub(super) struct Usage {
    /// Of this tenant only
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// How far back, such as 24h or 30d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = span_ms)]
    since: i64,
    /// By what to add up, one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "tenant,tool,outcome"
    )]
    by: Vec<Grouping>,
    /// How to print it
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    #[command(flatten)]
    config: ConfigArgument,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Aligned columns
    Table,
    /// One object a line
    Json,
    /// RFC 4180
    Csv,
}

/// What is shown of each group, behind what it was grouped by.
const COLUMNS: [&str; 11] = [
    "calls",
    "refused",
    "rows_in",
    "rows_out",
    "bytes_in",
    "bytes_out",
    "tokens_in",
    "tokens_out",
    "fuel",
    "memory_peak",
    "ms",
];

impl Usage {
    pub(super) async fn run(self) -> anyhow::Result<Exit> {
        let config = self.config.read()?;
        if let Some(tenant) = &self.tenant {
            check_tenant(&config, tenant)?;
        }
        let store = open_store(&config).await?;
        let since = now_ms().saturating_sub(self.since);
        let rows = store.usage(self.tenant.as_deref(), since, &self.by).await?;
        let names: Vec<&str> = self
            .by
            .iter()
            .map(|grouping| grouping.as_str())
            .chain(COLUMNS)
            .collect();
        let rows: Vec<Vec<String>> = rows.iter().map(|row| self.cells(row)).collect();
        let mut out = std::io::stdout().lock();
        match self.format {
            Format::Table => table(&mut out, &names, &rows, self.by.len())?,
            Format::Csv => {
                let mut csv = csv::Writer::from_writer(&mut out);
                csv.write_record(&names)?;
                rows.iter().try_for_each(|cells| csv.write_record(cells))?;
                csv.flush()?;
            }
            Format::Json => {
                for cells in rows {
                    let value = |(index, cell): (usize, &String)| match cell.parse::<u64>() {
                        Ok(number) if index >= self.by.len() => json!(number),
                        _ => json!(cell),
                    };
                    let object: Map<String, Value> = names
                        .iter()
                        .map(ToString::to_string)
                        .zip(cells.iter().enumerate().map(value))
                        .collect();
                    writeln!(out, "{}", Value::Object(object))?;
                }
            }
        }
        Ok(Exit::Success)
    }

    fn cells(&self, row: &UsageRow) -> Vec<String> {
        let mut cells = row.group.clone();
        for (grouping, cell) in self.by.iter().zip(&mut cells) {
            if *grouping == Grouping::Day {
                let days: i64 = cell.parse().unwrap_or_default();
                cell.clone_from(&utc(days * Period::Day.milliseconds())[..10].to_owned());
            }
        }
        let numbers = [
            row.calls,
            row.refused,
            row.rows[0],
            row.rows[1],
            row.bytes[0],
            row.bytes[1],
            row.tokens[0],
            row.tokens[1],
            row.fuel,
            row.memory_peak_bytes,
            row.milliseconds,
        ];
        cells.extend(numbers.iter().map(ToString::to_string));
        cells
    }
}

/// Text to the left, numbers to the right.
fn table(
    out: &mut impl Write,
    names: &[&str],
    rows: &[Vec<String>],
    texts: usize,
) -> std::io::Result<()> {
    let width = |index: usize| {
        let cells = rows.iter().map(|row| row[index].chars().count());
        cells.fold(names[index].len(), usize::max)
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let head = names.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&head).chain(rows) {
        let cells = row.iter().enumerate().map(|(index, cell)| {
            let width = widths[index];
            if index < texts {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
