//! Quotas: what a tenant or a key may spend in a minute and in a day.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shape::{Code, Refusal};
use crate::store::{Period, Reservation, Taken, Window, now_ms};

/// What may be spent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// In each minute, counted from full minutes.
    #[serde(skip_serializing_if = "Amounts::is_empty")]
    pub minute: Amounts,
    /// In each day, counted from midnight UTC.
    #[serde(skip_serializing_if = "Amounts::is_empty")]
    pub day: Amounts,
    /// Calls that run at the same time, on all replicas together; one more is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u64>,
}

/// Amounts of one window. A call is let in while less than each has been spent; what it uses beside is known, and counted,
/// when it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Amounts {
    /// Calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Fuel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Bytes of replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Tokens of replies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// What the limits of a window are called, in their order.
const NAMES: [&str; 4] = ["calls", "fuel", "bytes", "tokens"];

impl Amounts {
    fn limits(&self) -> [Option<u64>; 4] {
        [self.calls, self.fuel, self.bytes, self.tokens]
    }

    fn is_empty(&self) -> bool {
        self.limits().iter().all(Option::is_none)
    }
}

impl Quotas {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        self.minute.is_empty() && self.day.is_empty() && self.concurrent_calls.is_none()
    }

    /// The amounts of a window.
    pub fn amounts(&self, period: Period) -> &Amounts {
        match period {
            Period::Minute => &self.minute,
            Period::Day => &self.day,
        }
    }

    /// Sets one quota as the command line writes it: `minute.calls=100`, `day.tokens=none`, `concurrent_calls=4`.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let wrong = || {
            let names = NAMES.join(", ");
            format!(
                "expected WINDOW.WHAT=NUMBER or `concurrent_calls=NUMBER`, where WINDOW is minute or day, WHAT is one of {names}, \
                 and `none` for NUMBER takes it away, found `{text}`"
            )
        };
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        let value = match value {
            "none" => None,
            number => Some(number.parse::<u64>().map_err(|_| wrong())?),
        };
        let (window, what) = name.split_once('.').unwrap_or(("", name));
        let amounts = match (window, what) {
            ("", "concurrent_calls") => {
                self.concurrent_calls = value;
                return Ok(());
            }
            ("minute", _) => &mut self.minute,
            ("day", _) => &mut self.day,
            _ => return Err(wrong()),
        };
        let amount = match what {
            "calls" => &mut amounts.calls,
            "fuel" => &mut amounts.fuel,
            "bytes" => &mut amounts.bytes,
            "tokens" => &mut amounts.tokens,
            _ => return Err(wrong()),
        };
        *amount = value;
        Ok(())
    }

    /// What a call has to reserve of them.
    pub(super) fn reservation(&self, scope: String) -> Option<Reservation> {
        let windows = Period::ALL
            .into_iter()
            .map(|period| Window {
                period,
                limits: self.amounts(period).limits(),
            })
            .filter(|window| window.limits.iter().any(Option::is_some));
        (!self.is_empty()).then(|| Reservation {
            scope,
            windows: windows.collect(),
            concurrent_calls: self.concurrent_calls,
        })
    }
}

/// The refusal of a call that was not let in. `name` is what the caller knows the scope by.
pub(super) fn refusal(taken: &Taken, name: impl Fn(&str) -> String) -> Option<Refusal> {
    let message = match taken {
        Taken::All => return None,
        Taken::Window {
            scope,
            period,
            what,
            limit,
            resets_ms,
        } => format!(
            "The quota of {} for {limit} {} a {} is used up; it resets in {} s, at {}. Nothing was run.",
            name(scope),
            NAMES[*what],
            period.as_str(),
            (resets_ms - now_ms()).max(0) / 1000 + 1,
            utc(*resets_ms),
        ),
        Taken::Concurrent { scope, limit } => format!(
            "{limit} calls of {} are running, which is its quota; it resets as soon as one of them ends. Nothing was run.",
            name(scope)
        ),
    };
    let retry_after = match taken {
        Taken::Window { resets_ms, .. } => (resets_ms - now_ms()).max(0) / 1000 + 1,
        _ => 1,
    };
    let retry_after = u32::try_from(retry_after).unwrap_or(u32::MAX);
    Some(Refusal::new(Code::QuotaExceeded, message).with_retry_after(retry_after))
}

/// A moment as RFC 3339 writes it, to the second.
pub fn utc(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms)
        .unwrap_or(chrono::DateTime::<chrono::Utc>::MAX_UTC)
        .to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_set_as_they_are_written() {
        let mut quotas = Quotas::default();
        for text in [
            "minute.calls=100",
            "minute.fuel=5",
            "day.bytes=7",
            "day.tokens=9",
            "concurrent_calls=4",
        ] {
            quotas.set(text).unwrap();
        }
        let json = serde_json::to_string(&quotas).unwrap();
        assert_eq!(
            json,
            r#"{"minute":{"calls":100,"fuel":5},"day":{"bytes":7,"tokens":9},"concurrent_calls":4}"#
        );
        assert_eq!(serde_json::from_str::<Quotas>(&json).unwrap(), quotas);
        for text in [
            "minute.calls=none",
            "minute.fuel=none",
            "concurrent_calls=none",
        ] {
            quotas.set(text).unwrap();
        }
        assert_eq!(
            serde_json::to_string(&quotas).unwrap(),
            r#"{"day":{"bytes":7,"tokens":9}}"#
        );
        for text in [
            "calls=1",
            "hour.calls=1",
            "day.rows=1",
            "day.calls",
            "day.calls=-1",
        ] {
            assert_eq!(
                quotas.set(text).unwrap_err(),
                format!(
                    "expected WINDOW.WHAT=NUMBER or `concurrent_calls=NUMBER`, where WINDOW is minute or day, WHAT is one of \
                     calls, fuel, bytes, tokens, and `none` for NUMBER takes it away, found `{text}`"
                )
            );
        }
    }

    #[test]
    fn a_refusal_says_whose_quota_of_what_and_when_it_resets() {
        let resets_ms = now_ms() + 90_500;
        let taken = Taken::Window {
            scope: "tenant/acme".into(),
            period: Period::Day,
            what: 3,
            limit: 5_000,
            resets_ms,
        };
        let name = |scope: &str| scope.replace('/', " ");
        let refused = refusal(&taken, name).unwrap();
        assert_eq!(refused.error, Code::QuotaExceeded);
        assert!(refused.retryable);
        let seconds = refused.retry_after_seconds.unwrap();
        assert!((90..=92).contains(&seconds), "{seconds}");
        assert_eq!(
            refused.message,
            format!(
                "The quota of tenant acme for 5000 tokens a day is used up; it resets in {seconds} s, at {}. Nothing was run.",
                utc(resets_ms)
            )
        );
        let taken = Taken::Concurrent {
            scope: "key/a1".into(),
            limit: 4,
        };
        let refused = refusal(&taken, name).unwrap();
        assert_eq!(
            refused.message,
            "4 calls of key a1 are running, which is its quota; it resets as soon as one of them ends. Nothing was run."
        );
        assert_eq!(refused.retry_after_seconds, Some(1));
        assert_eq!(refusal(&Taken::All, name), None);
    }

    #[test]
    fn moments_are_written_in_utc() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(1_796_083_199_999), "2026-11-30T23:59:59Z");
    }
}
