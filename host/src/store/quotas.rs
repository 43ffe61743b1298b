//! Quotas as they are counted: windows of a minute and of a day, and calls that run now.

use sqlx::{Any, Row, Transaction};

use super::{Store, counted, now_ms, stored, within};

/// How long a window is. Windows begin at full minutes and days, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    /// 60 s.
    Minute,
    /// 24 h.
    Day,
}

impl Period {
    /// Both, the shorter one first.
    pub const ALL: [Self; 2] = [Self::Minute, Self::Day];

    /// Its name in the store and in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Day => "day",
        }
    }

    /// Its length in milliseconds.
    pub fn milliseconds(self) -> i64 {
        match self {
            Self::Minute => 60_000,
            Self::Day => 86_400_000,
        }
    }

    /// When the window began that holds a moment.
    pub fn start(self, at_ms: i64) -> i64 {
        at_ms - at_ms.rem_euclid(self.milliseconds())
    }
}

/// What has been used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Calls that were let in.
    pub calls: u64,
    /// Fuel of calls that ended.
    pub fuel: u64,
    /// Bytes that were handed out.
    pub bytes: u64,
    /// Tokens that were handed out.
    pub tokens: u64,
}

/// One window that a call counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its length.
    pub period: Period,
    /// What may be spent in it; none is no limit.
    pub limits: [Option<u64>; 4],
}

impl Window {
    /// The limit of what is handed out that is spent: its index in [`Window::limits`], and itself.
    pub fn handed_out(&self, spent: Spent) -> Option<(usize, u64)> {
        let limits = [(2, spent.bytes), (3, spent.tokens)];
        let spent = limits
            .into_iter()
            .map(|(what, used)| (what, used, self.limits[what]));
        spent
            .filter_map(|(what, used, limit)| Some((what, limit.filter(|limit| used >= *limit)?)))
            .next()
    }
}

/// What one call asks for, for one tenant or key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Whose quota it is: `tenant/NAME` or `key/ID`.
    pub scope: String,
    /// The windows with limits.
    pub windows: Vec<Window>,
    /// How many calls may run at once.
    pub concurrent_calls: Option<u64>,
}

/// Whether the call was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It was, and it is counted.
    All,
    /// A window is used up. Nothing was counted.
    Window {
        /// Whose.
        scope: String,
        /// Which.
        period: Period,
        /// Index in [`Window::limits`]: calls, fuel, bytes, tokens.
        what: usize,
        /// The limit.
        limit: u64,
        /// When the next window begins.
        resets_ms: i64,
    },
    /// As many calls run as may. Nothing was counted.
    Concurrent {
        /// Whose.
        scope: String,
        /// The limit.
        limit: u64,
    },
}

/// What a call used, to be added where it was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// Whose quota.
    pub scope: String,
    /// The window.
    pub period: Period,
    /// When the window began.
    pub starts_ms: i64,
    /// What to add; calls were counted before.
    pub spent: Spent,
}

impl Store {
    /// Lets a call in and counts it, or neither. Exact however many replicas and calls there are: the row of a window is
    /// locked from the first statement to the commit, and rows are taken in one order by everybody.
    pub async fn reserve(
        &self,
        reservations: &[Reservation],
        call: &str,
        at_ms: i64,
        ends_ms: i64,
    ) -> anyhow::Result<Taken> {
        within(async {
            let mut transaction = self.pool.begin().await?;
            for reservation in reservations {
                let taken = reserve(&mut transaction, reservation, call, at_ms, ends_ms).await?;
                if taken != Taken::All {
                    transaction.rollback().await?;
                    return Ok(taken);
                }
            }
            transaction.commit().await?;
            Ok(Taken::All)
        })
        .await
    }

    /// The call has ended: others may run in its place.
    pub async fn release(&self, call: &str, scopes: &[String]) -> anyhow::Result<()> {
        within(async {
            for scope in scopes {
                sqlx::query("DELETE FROM running_calls WHERE scope = $1 AND call = $2")
                    .bind(scope)
                    .bind(call)
                    .execute(&self.pool)
                    .await?;
            }
            Ok(())
        })
        .await
    }

    /// What a tenant or key has used in the windows of now.
    pub async fn spent(&self, scope: &str) -> anyhow::Result<Vec<(Period, Spent)>> {
        let now = now_ms();
        let mut all = Vec::new();
        for period in Period::ALL {
            let row = sqlx::query(
                "SELECT calls, fuel, bytes, tokens FROM quota_windows WHERE scope = $1 AND period = $2 AND starts_ms = $3",
            )
            .bind(scope)
            .bind(period.as_str())
            .bind(period.start(now))
            .fetch_optional(&self.pool)
            .await?;
            let spent = row.map(|row| spent(&row)).transpose()?.unwrap_or_default();
            all.push((period, spent));
        }
        Ok(all)
    }
}

async fn reserve(
    transaction: &mut Transaction<'_, Any>,
    reservation: &Reservation,
    call: &str,
    at_ms: i64,
    ends_ms: i64,
) -> anyhow::Result<Taken> {
    let scope = &reservation.scope;
    for window in &reservation.windows {
        let starts_ms = window.period.start(at_ms);
        let row = sqlx::query(
            "INSERT INTO quota_windows (scope, period, starts_ms, calls, fuel, bytes, tokens) VALUES ($1, $2, $3, 1, 0, 0, 0)
             ON CONFLICT (scope, period, starts_ms) DO UPDATE SET calls = quota_windows.calls + 1
             RETURNING calls, fuel, bytes, tokens",
        )
        .bind(scope)
        .bind(window.period.as_str())
        .bind(starts_ms)
        .fetch_one(&mut **transaction)
        .await?;
        let Spent {
            calls,
            fuel,
            bytes,
            tokens,
        } = spent(&row)?;
        // The call itself is counted already; of the others it is not known yet what it will use.
        let used = [calls - 1, fuel, bytes, tokens];
        for (what, (limit, used)) in window.limits.iter().zip(used).enumerate() {
            if let Some(limit) = limit.filter(|limit| used >= *limit) {
                return Ok(Taken::Window {
                    scope: scope.clone(),
                    period: window.period,
                    what,
                    limit,
                    resets_ms: starts_ms + window.period.milliseconds(),
                });
            }
        }
    }
    if let Some(limit) = reservation.concurrent_calls {
        // The window of no length is a row to lock, so that two replicas do not count at once.
        sqlx::query(
            "INSERT INTO quota_windows (scope, period, starts_ms, calls, fuel, bytes, tokens) VALUES ($1, 'now', $2, 0, 0, 0, 0)
             ON CONFLICT (scope, period, starts_ms) DO UPDATE SET calls = 0",
        )
        .bind(scope)
        .bind(i64::MAX)
        .execute(&mut **transaction)
        .await?;
        let running: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM running_calls WHERE scope = $1 AND ends_ms > $2",
        )
        .bind(scope)
        .bind(at_ms)
        .fetch_one(&mut **transaction)
        .await?;
        if counted(running) >= limit {
            return Ok(Taken::Concurrent {
                scope: scope.clone(),
                limit,
            });
        }
        sqlx::query("INSERT INTO running_calls (scope, call, ends_ms) VALUES ($1, $2, $3)")
            .bind(scope)
            .bind(call)
            .bind(ends_ms)
            .execute(&mut **transaction)
            .await?;
    }
    Ok(Taken::All)
}

/// Adds what calls have used.
pub(super) async fn charge(
    transaction: &mut Transaction<'_, Any>,
    charge: &Charge,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO quota_windows (scope, period, starts_ms, calls, fuel, bytes, tokens) VALUES ($1, $2, $3, 0, $4, $5, $6)
         ON CONFLICT (scope, period, starts_ms) DO UPDATE SET fuel = quota_windows.fuel + excluded.fuel,
         bytes = quota_windows.bytes + excluded.bytes, tokens = quota_windows.tokens + excluded.tokens",
    )
    .bind(&charge.scope)
    .bind(charge.period.as_str())
    .bind(charge.starts_ms)
    .bind(stored(charge.spent.fuel))
    .bind(stored(charge.spent.bytes))
    .bind(stored(charge.spent.tokens))
    .execute(&mut **transaction)
    .await
    .map(|_| ())
}

fn spent(row: &sqlx::any::AnyRow) -> Result<Spent, sqlx::Error> {
    Ok(Spent {
        calls: counted(row.try_get("calls")?),
        fuel: counted(row.try_get("fuel")?),
        bytes: counted(row.try_get("bytes")?),
        tokens: counted(row.try_get("tokens")?),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Location};
    use super::*;

    async fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::Folder(folder.path().to_owned());
        let store = Store::open(&location).await.unwrap();
        (folder, store)
    }

    fn limited(what: usize, period: Period, limit: u64) -> Reservation {
        let mut limits = [None; 4];
        limits[what] = Some(limit);
        Reservation {
            scope: "tenant/acme".into(),
            windows: vec![Window { period, limits }],
            concurrent_calls: None,
        }
    }

    #[tokio::test]
    async fn each_amount_of_each_window_is_a_limit_of_its_own() {
        for period in Period::ALL {
            for what in 0..4 {
                let (_folder, store) = store().await;
                let at = 1_000 * period.milliseconds() + 7;
                let reservation = limited(what, period, 3);
                let reserve = |at: i64| {
                    let (store, reservation) = (store.clone(), reservation.clone());
                    async move {
                        store
                            .reserve(&[reservation], "c", at, at + 1)
                            .await
                            .unwrap()
                    }
                };
                // A call uses two of everything but calls, of which it is one.
                let spent = Spent {
                    calls: 0,
                    fuel: 2,
                    bytes: 2,
                    tokens: 2,
                };
                let charge = Charge {
                    scope: reservation.scope.clone(),
                    period,
                    starts_ms: period.start(at),
                    spent,
                };
                let mut let_in = 0;
                let refused = loop {
                    match reserve(at).await {
                        Taken::All => let_in += 1,
                        refused => break refused,
                    }
                    let entry = Entry {
                        call: let_in.to_string(),
                        ..Entry::default()
                    };
                    // As often as it is tried.
                    let call = [(entry, vec![charge.clone()])];
                    store.record(&call, &[]).await.unwrap();
                    store.record(&call, &[]).await.unwrap();
                };
                assert_eq!(let_in, if what == 0 { 3 } else { 2 }, "{period:?} {what}");
                assert_eq!(
                    refused,
                    Taken::Window {
                        scope: "tenant/acme".into(),
                        period,
                        what,
                        limit: 3,
                        resets_ms: 1_001 * period.milliseconds(),
                    }
                );
                // A refused call is not counted, and the next window is a new one.
                assert_eq!(reserve(at).await, refused);
                assert_eq!(reserve(at + period.milliseconds()).await, Taken::All);
            }
        }
    }

    #[tokio::test]
    async fn calls_that_are_written_together_are_charged_once_each() {
        let (_folder, store) = store().await;
        let charge = Charge {
            scope: "tenant/acme".into(),
            period: Period::Day,
            starts_ms: 0,
            spent: Spent {
                calls: 0,
                fuel: 2,
                bytes: 0,
                tokens: 0,
            },
        };
        let call = |name: &str| {
            let entry = Entry {
                call: name.into(),
                ..Entry::default()
            };
            (entry, vec![charge.clone()])
        };
        store
            .record(&[call("a"), call("b"), call("a")], &[])
            .await
            .unwrap();
        store.record(&[call("b"), call("c")], &[]).await.unwrap();
        store.record(&[], &[]).await.unwrap();
        assert_eq!(store.usage(None, 0, &[]).await.unwrap()[0].calls, 3);
        let spent: i64 = sqlx::query("SELECT fuel FROM quota_windows WHERE scope = 'tenant/acme'")
            .fetch_one(&store.pool)
            .await
            .unwrap()
            .get(0);
        assert_eq!(spent, 6);
    }

    #[tokio::test]
    async fn a_call_is_counted_for_its_key_and_its_tenant_or_for_neither() {
        let (_folder, store) = store().await;
        let key = Reservation {
            scope: "key/k".into(),
            ..limited(0, Period::Day, 5)
        };
        let both = [key, limited(0, Period::Day, 1)];
        let now = now_ms();
        assert_eq!(
            store.reserve(&both, "1", now, now).await.unwrap(),
            Taken::All
        );
        assert_ne!(
            store.reserve(&both, "2", now, now).await.unwrap(),
            Taken::All
        );
        let day = |spent: Vec<(Period, Spent)>| spent[1].1.calls;
        assert_eq!(day(store.spent("key/k").await.unwrap()), 1);
        assert_eq!(day(store.spent("tenant/acme").await.unwrap()), 1);
    }

    #[tokio::test]
    async fn a_running_call_that_a_killed_host_left_ends_by_itself() {
        let (_folder, store) = store().await;
        let reservation = Reservation {
            scope: "tenant/acme".into(),
            windows: Vec::new(),
            concurrent_calls: Some(1),
        };
        let reservations = [reservation];
        let reserve =
            |call: &'static str, at: i64| store.reserve(&reservations, call, at, at + 100);
        assert_eq!(reserve("1", 1_000).await.unwrap(), Taken::All);
        let refused = Taken::Concurrent {
            scope: "tenant/acme".into(),
            limit: 1,
        };
        assert_eq!(reserve("2", 1_099).await.unwrap(), refused);
        assert_eq!(reserve("2", 1_100).await.unwrap(), Taken::All);
        store.release("2", &["tenant/acme".into()]).await.unwrap();
        assert_eq!(reserve("3", 1_101).await.unwrap(), Taken::All);
    }
}
