//! The ledger: one row for each call.

use std::collections::HashSet;

use sqlx::{AssertSqlSafe, Row};

use super::quotas::{self, Charge};
use super::{Store, counted, stored, within};

/// One call. Never its arguments, never its result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The call's id, as in the log.
    pub call: String,
    /// When it began, in milliseconds since 1970.
    pub at_ms: i64,
    /// Whose call.
    pub tenant: String,
    /// The key's id; empty where there is none.
    pub key_id: String,
    /// The calling program, as it names itself.
    pub client: String,
    /// The plugin.
    pub plugin: String,
    /// The tool.
    pub tool: String,
    /// `answered`, or the name of the refusal.
    pub outcome: String,
    /// Rows that the plugin handed over.
    pub rows_in: u64,
    /// Rows behind the narrow stage.
    pub rows_matched: u64,
    /// Rows behind the page stage.
    pub rows_on_page: u64,
    /// Rows that went out.
    pub rows_out: u64,
    /// Bytes that the plugin handed over.
    pub bytes_in: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// About how many tokens came in: by the measure of those that went out.
    pub tokens_in: u64,
    /// Tokens that went out.
    pub tokens_out: u64,
    /// Fuel that was used.
    pub fuel: u64,
    /// The most memory that the instance had.
    pub memory_peak_bytes: u64,
    /// How long it took, waiting for permits included.
    pub milliseconds: u64,
}

/// By what usage is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Grouping {
    /// The day, in UTC.
    Day,
    /// The tenant.
    Tenant,
    /// The key.
    Key,
    /// The calling program.
    Client,
    /// The plugin.
    Plugin,
    /// The tool.
    Tool,
    /// What became of the call.
    Outcome,
}

impl Grouping {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Tenant => "tenant",
            Self::Key => "key",
            Self::Client => "client",
            Self::Plugin => "plugin",
            Self::Tool => "tool",
            Self::Outcome => "outcome",
        }
    }

    fn expression(self) -> &'static str {
        match self {
            Self::Day => "CAST(at_ms / 86400000 AS TEXT)",
            Self::Tenant => "tenant",
            Self::Key => "key_id",
            Self::Client => "client",
            Self::Plugin => "plugin",
            Self::Tool => "tool",
            Self::Outcome => "outcome",
        }
    }
}

/// Sums over the calls of one group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// The values of what was grouped by; a day as days since 1970.
    pub group: Vec<String>,
    /// Calls.
    pub calls: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Rows in and out.
    pub rows: [u64; 2],
    /// Bytes in and out.
    pub bytes: [u64; 2],
    /// Tokens in and out.
    pub tokens: [u64; 2],
    /// Fuel.
    pub fuel: u64,
    /// The most memory that an instance had.
    pub memory_peak_bytes: u64,
    /// All time together.
    pub milliseconds: u64,
}

/// How sqlx calls it.
const SQLITE: &str = "SQLite";

/// The columns of an entry, in the order in which they are bound.
const COLUMNS: [&str; 19] = [
    "call",
    "at_ms",
    "tenant",
    "key_id",
    "client",
    "plugin",
    "tool",
    "outcome",
    "rows_in",
    "rows_matched",
    "rows_on_page",
    "rows_out",
    "bytes_in",
    "bytes_out",
    "tokens_in",
    "tokens_out",
    "fuel",
    "memory_peak_bytes",
    "milliseconds",
];

/// Calls of one statement: there are no more different statements than a connection keeps prepared.
const STATEMENT_CALLS: usize = 16;

/// The statement that writes so many calls, and returns those that were not there. PostgreSQL wants its places numbered;
/// to SQLite a number is a name, which it looks up among all those before it for each value that is bound.
fn insert(calls: usize, is_sqlite: bool) -> String {
    let mut statement = format!("INSERT INTO ledger ({}) VALUES ", COLUMNS.join(", "));
    for place in 0..calls * COLUMNS.len() {
        statement.push_str(match (place % COLUMNS.len(), place) {
            (0, 0) => "(",
            (0, _) => "), (",
            _ => ", ",
        });
        if is_sqlite {
            statement.push('?');
        } else {
            statement.push_str(&format!("${}", place + 1));
        }
    }
    statement + ") ON CONFLICT (call) DO NOTHING RETURNING call"
}

impl Store {
    /// Writes calls down and adds what they used to the quotas, all or nothing. A call that is written already, because the
    /// answer to an earlier try was lost, is not charged again.
    pub async fn record(
        &self,
        calls: &[(Entry, Vec<Charge>)],
        spent: &[Charge],
    ) -> anyhow::Result<()> {
        within(self.record_all(calls, spent)).await
    }

    async fn record_all(
        &self,
        calls: &[(Entry, Vec<Charge>)],
        spent: &[Charge],
    ) -> anyhow::Result<()> {
        if calls.is_empty() && spent.is_empty() {
            return Ok(());
        }
        let mut transaction = self.pool.begin().await?;
        let is_sqlite = transaction.backend_name() == SQLITE;
        let mut written = HashSet::with_capacity(calls.len());
        // Several in one statement: each goes to another thread or over the network and back.
        for calls in calls.chunks(STATEMENT_CALLS) {
            let mut query = sqlx::query(AssertSqlSafe(insert(calls.len(), is_sqlite)));
            for (entry, _) in calls {
                query = query
                    .bind(&entry.call)
                    .bind(entry.at_ms)
                    .bind(&entry.tenant)
                    .bind(&entry.key_id)
                    .bind(&entry.client)
                    .bind(&entry.plugin)
                    .bind(&entry.tool)
                    .bind(&entry.outcome)
                    .bind(stored(entry.rows_in))
                    .bind(stored(entry.rows_matched))
                    .bind(stored(entry.rows_on_page))
                    .bind(stored(entry.rows_out))
                    .bind(stored(entry.bytes_in))
                    .bind(stored(entry.bytes_out))
                    .bind(stored(entry.tokens_in))
                    .bind(stored(entry.tokens_out))
                    .bind(stored(entry.fuel))
                    .bind(stored(entry.memory_peak_bytes))
                    .bind(stored(entry.milliseconds));
            }
            for row in query.fetch_all(&mut *transaction).await? {
                written.insert(row.try_get::<String, _>(0)?);
            }
        }
        let mut charges = spent.to_vec();
        for (entry, more) in calls {
            if written.remove(&entry.call) {
                charges.extend_from_slice(more);
            }
        }
        for charge in sum(charges) {
            quotas::charge(&mut transaction, &charge).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Adds up the calls since a moment, of one tenant or of all.
    pub async fn usage(
        &self,
        tenant: Option<&str>,
        since_ms: i64,
        by: &[Grouping],
    ) -> anyhow::Result<Vec<UsageRow>> {
        let sum = |column: &str| format!("CAST(COALESCE(SUM({column}), 0) AS BIGINT)");
        let mut columns: Vec<String> = by
            .iter()
            .map(|grouping| grouping.expression().to_owned())
            .collect();
        let groups = columns.join(", ");
        columns.push("COUNT(*)".into());
        columns.push(sum("CASE WHEN outcome = 'answered' THEN 0 ELSE 1 END"));
        columns.extend(
            [
                "rows_in",
                "rows_out",
                "bytes_in",
                "bytes_out",
                "tokens_in",
                "tokens_out",
                "fuel",
                "milliseconds",
            ]
            .map(sum),
        );
        columns.push("COALESCE(MAX(memory_peak_bytes), 0)".into());
        let grouped = if by.is_empty() {
            String::new()
        } else {
            format!(" GROUP BY {groups} ORDER BY {groups}")
        };
        // Built from the fixed texts above only.
        let statement = format!(
            "SELECT {} FROM ledger WHERE at_ms >= $1 AND ($2 = 0 OR tenant = $3){grouped}",
            columns.join(", ")
        );
        let rows = sqlx::query(AssertSqlSafe(statement))
            .bind(since_ms)
            .bind(i64::from(tenant.is_some()))
            .bind(tenant.unwrap_or_default())
            .fetch_all(&self.pool)
            .await?;
        let row = |row: &sqlx::any::AnyRow| {
            let count = |index: usize| row.try_get::<i64, _>(by.len() + index).map(counted);
            Ok::<_, sqlx::Error>(UsageRow {
                group: (0..by.len())
                    .map(|index| row.try_get(index))
                    .collect::<Result<_, _>>()?,
                calls: count(0)?,
                refused: count(1)?,
                rows: [count(2)?, count(3)?],
                bytes: [count(4)?, count(5)?],
                tokens: [count(6)?, count(7)?],
                fuel: count(8)?,
                milliseconds: count(9)?,
                memory_peak_bytes: count(10)?,
            })
        };
        Ok(rows.iter().map(row).collect::<Result<_, _>>()?)
    }
}

/// The charges of one window in one, in an order that every replica keeps.
fn sum(charges: Vec<Charge>) -> Vec<Charge> {
    let mut sums: std::collections::BTreeMap<_, Charge> = std::collections::BTreeMap::new();
    for charge in charges {
        let sum = sums
            .entry((charge.scope.clone(), charge.period, charge.starts_ms))
            .or_insert_with(|| Charge {
                spent: Default::default(),
                ..charge.clone()
            });
        sum.spent.calls += charge.spent.calls;
        sum.spent.fuel = sum.spent.fuel.saturating_add(charge.spent.fuel);
        sum.spent.bytes = sum.spent.bytes.saturating_add(charge.spent.bytes);
        sum.spent.tokens = sum.spent.tokens.saturating_add(charge.spent.tokens);
    }
    sums.into_values().collect()
}
