//! Log lines on standard error, and traces over OTLP where the environment names a collector.
//!
//! A call is one span; it continues the trace of its caller, if the caller says which (W3C `traceparent`).

use std::collections::HashMap;
use std::io::IsTerminal;

use anyhow::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, filter};

use crate::call::Caller;
use crate::store::Entry;
use crate::tls;

/// What of this module's spans the log does not show and a collector gets.
const TARGET: &str = "plimsoll::trace";

/// The variables of the OpenTelemetry specification that name a collector.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// Sends what is left when the program ends.
#[derive(Debug, Default)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Begins to log, and to trace where a collector is named. Not inside of an asynchronous runtime.
    pub fn start() -> anyhow::Result<Self> {
        // rmcp reports a client's mistakes as warnings and every call that was cancelled as an error: neither is the
        // operator's affair.
        let level = std::env::var("PLIMSOLL_LOG").unwrap_or_else(|_| {
            String::from("info,wasmtime=warn,cranelift=warn,opentelemetry=warn,sqlx=warn")
        });
        let level = if level.contains("rmcp") {
            level
        } else {
            format!("{level},rmcp=off")
        };
        let is_traced = ENDPOINTS
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
        if !is_traced {
            // One filter over all: it says which level it lets through, and what is below costs nothing to leave out.
            let filter = EnvFilter::new(format!("{level},{TARGET}=off"));
            tracing_subscriber::registry()
                .with(filter)
                .with(lines())
                .init();
            return Ok(Self::default());
        }
        tls::install();
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .build()
            .context("setting up OTLP from the variables `OTEL_EXPORTER_OTLP_…`")?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(Resource::builder().with_service_name("plimsoll").build())
            .build();
        // Each with a filter of its own, which is a function and so is asked each time: what directives decide once is lost where
        // somebody has only asked whether a line would be written, as sqlx does.
        let lines = lines()
            .with_filter(EnvFilter::new(level))
            .with_filter(filter::filter_fn(|metadata| metadata.target() != TARGET));
        let spans = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("plimsoll"))
            .with_filter(filter::filter_fn(|metadata| metadata.target() == TARGET));
        tracing_subscriber::registry()
            .with(lines)
            .with(spans)
            .init();
        Ok(Self {
            provider: Some(provider),
        })
    }

    /// Sends what is left. Not inside of an asynchronous runtime.
    pub fn stop(self) {
        if let Some(provider) = self.provider
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!("the last spans were not sent: {error}");
        }
    }
}

/// Lines on standard error. Standard output carries bodies and MCP messages; everything that is said goes there.
fn lines<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
}

/// The span of one call.
pub(crate) fn span(caller: &Caller, entry: &Entry) -> Span {
    let span = tracing::info_span!(
        target: TARGET,
        "tools/call",
        otel.kind = "server",
        call = entry.call,
        tenant = entry.tenant,
        key = entry.key_id,
        client = entry.client,
        plugin = entry.plugin,
        gen_ai.tool.name = entry.tool,
        outcome = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
        rows.in = tracing::field::Empty,
        rows.matched = tracing::field::Empty,
        rows.page = tracing::field::Empty,
        rows.out = tracing::field::Empty,
        bytes.in = tracing::field::Empty,
        bytes.out = tracing::field::Empty,
        tokens.in = tracing::field::Empty,
        tokens.out = tracing::field::Empty,
        fuel = tracing::field::Empty,
        memory_peak_bytes = tracing::field::Empty,
    );
    if let Some(traceparent) = caller.traceparent.as_ref().filter(|_| !span.is_disabled()) {
        let carrier = HashMap::from([(String::from("traceparent"), traceparent.clone())]);
        let context = TraceContextPropagator::new().extract(&carrier);
        // It fails only where the span is not traced.
        let _ = span.set_parent(context);
    }
    span
}

/// Writes into the span of a call how it ended.
pub(crate) fn end(span: &Span, entry: &Entry) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", entry.outcome.as_str());
    if entry.outcome != crate::account::ANSWERED {
        span.record("otel.status_code", "ERROR");
    }
    for (name, count) in [
        ("rows.in", entry.rows_in),
        ("rows.matched", entry.rows_matched),
        ("rows.page", entry.rows_on_page),
        ("rows.out", entry.rows_out),
        ("bytes.in", entry.bytes_in),
        ("bytes.out", entry.bytes_out),
        ("tokens.in", entry.tokens_in),
        ("tokens.out", entry.tokens_out),
        ("fuel", entry.fuel),
        ("memory_peak_bytes", entry.memory_peak_bytes),
    ] {
        span.record(name, count);
    }
}
