//! What an operator watches: the numbers of the ledger as Prometheus reads them, since the host has started.

use std::sync::Mutex;
use std::sync::PoisonError;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::store::Entry;

/// Bounds of the histogram of seconds: from a call that only instantiates to one that meets the longest deadline.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0,
];

/// The media type of the text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Called {
    tenant: String,
    plugin: String,
    tool: String,
    outcome: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tool {
    tenant: String,
    plugin: String,
    tool: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Passed {
    tenant: String,
    plugin: String,
    tool: String,
    /// `in` is what the plugin handed over, `out` is what left.
    direction: &'static str,
}

/// The metrics of a host.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    calls: Family<Called, Counter>,
    seconds: Family<Tool, Histogram>,
    rows: Family<Passed, Counter>,
    bytes: Family<Passed, Counter>,
    tokens: Family<Passed, Counter>,
    fuel: Family<Tool, Counter>,
    running: Gauge,
    unwritten: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("plimsoll");
        let metrics = Self {
            registry: Mutex::default(),
            calls: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            rows: Family::default(),
            bytes: Family::default(),
            tokens: Family::default(),
            fuel: Family::default(),
            running: Gauge::default(),
            unwritten: Counter::default(),
        };
        registry.register(
            "calls",
            "Calls that have ended, by outcome: answered, cancelled, or the name of the refusal",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "Time of a call, waiting for permits included",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "rows",
            "Rows that plugins handed over and that left",
            metrics.rows.clone(),
        );
        registry.register(
            "payload_bytes",
            "Bytes that plugins handed over and that left",
            metrics.bytes.clone(),
        );
        registry.register(
            "tokens",
            "Tokens (o200k) that left, and about how many came in",
            metrics.tokens.clone(),
        );
        registry.register("fuel", "Fuel that plugins used", metrics.fuel.clone());
        registry.register(
            "running_calls",
            "Calls that run or wait now",
            metrics.running.clone(),
        );
        registry.register(
            "unwritten_calls",
            "Calls that are not in the ledger because the store did not keep up",
            metrics.unwritten.clone(),
        );
        *metrics
            .registry
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = registry;
        metrics
    }
}

impl Metrics {
    /// Counts a call that has ended.
    pub fn observe(&self, entry: &Entry) {
        let tool = Tool {
            tenant: entry.tenant.clone(),
            plugin: entry.plugin.clone(),
            tool: entry.tool.clone(),
        };
        let called = Called {
            tenant: entry.tenant.clone(),
            plugin: entry.plugin.clone(),
            tool: entry.tool.clone(),
            outcome: entry.outcome.clone(),
        };
        self.calls.get_or_create(&called).inc();
        self.seconds
            .get_or_create(&tool)
            .observe(entry.milliseconds as f64 / 1000.0);
        self.fuel.get_or_create(&tool).inc_by(entry.fuel);
        for (family, [passed_in, passed_out]) in [
            (&self.rows, [entry.rows_in, entry.rows_out]),
            (&self.bytes, [entry.bytes_in, entry.bytes_out]),
            (&self.tokens, [entry.tokens_in, entry.tokens_out]),
        ] {
            for (direction, count) in [("in", passed_in), ("out", passed_out)] {
                let passed = Passed {
                    tenant: entry.tenant.clone(),
                    plugin: entry.plugin.clone(),
                    tool: entry.tool.clone(),
                    direction,
                };
                family.get_or_create(&passed).inc_by(count);
            }
        }
    }

    /// Counts a call that could not be written down.
    pub fn unwritten(&self) {
        self.unwritten.inc();
    }

    /// The text, in the format OpenMetrics. `running` is how many calls run now.
    pub fn text(&self, running: u64) -> String {
        self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &registry);
        text
    }
}
