//! What a guest writes for the operator: the contract's `log`, stdout and stderr, as lines of the host's log.
//!
//! Bounded in length and number, so that a guest cannot flood the log. Nothing of it reaches a caller.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::contract::Level;

/// Bytes of one line; the rest of it is cut, and the line says so. Log collectors commonly split lines at 8 or 16 KiB.
pub(super) const MAX_LINE_BYTES: usize = 4_096;

/// Lines of one call. What comes after is dropped, and one line says so.
pub(super) const MAX_LINES: u32 = 1_000;

/// The target of all lines, so that an operator can filter what plugins write.
const TARGET: &str = "plimsoll::plugin";

/// Where a line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The contract's `log`.
    Log,
    Stdout,
    Stderr,
    /// The host itself, about what the guest asked of it.
    Host,
}

impl Source {
    fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Host => "host",
        }
    }

    /// A language's runtime writes to stderr when it breaks.
    fn level(self) -> Level {
        if self == Self::Stderr {
            Level::Warn
        } else {
            Level::Info
        }
    }
}

/// The log lines of one call.
#[derive(Debug, Clone)]
pub(super) struct Journal(Arc<Entries>);

#[derive(Debug)]
struct Entries {
    plugin: Arc<str>,
    tool: String,
    tenant: String,
    call: String,
    lines: AtomicU32,
}

impl Journal {
    pub(super) fn new(plugin: Arc<str>, tool: &str, tenant: &str, call: &str) -> Self {
        Self(Arc::new(Entries {
            plugin,
            tool: tool.to_owned(),
            tenant: tenant.to_owned(),
            call: call.to_owned(),
            lines: AtomicU32::new(0),
        }))
    }

    /// Writes one line.
    pub(super) fn write(&self, level: Level, source: Source, text: &[u8]) {
        let Entries {
            plugin,
            tool,
            tenant,
            call,
            lines,
        } = &*self.0;
        // The count stays far below an overflow: a call that wrote this often has long met its deadline.
        match lines.fetch_add(1, Ordering::Relaxed) {
            count if count < MAX_LINES => {}
            MAX_LINES => {
                tracing::warn!(target: TARGET, %plugin, tool, tenant, call, "further lines of this call are dropped after {MAX_LINES}");
                return;
            }
            _ => {
                lines.store(MAX_LINES + 1, Ordering::Relaxed);
                return;
            }
        }
        let source = source.as_str();
        let text = printable(text);
        match level {
            Level::Debug => {
                tracing::debug!(target: TARGET, %plugin, tool, tenant, call, source, "{text}")
            }
            Level::Info => {
                tracing::info!(target: TARGET, %plugin, tool, tenant, call, source, "{text}")
            }
            Level::Warn => {
                tracing::warn!(target: TARGET, %plugin, tool, tenant, call, source, "{text}")
            }
            Level::Error => {
                tracing::error!(target: TARGET, %plugin, tool, tenant, call, source, "{text}")
            }
        }
    }

    fn is_full(&self) -> bool {
        self.0.lines.load(Ordering::Relaxed) > MAX_LINES
    }
}

/// The text as one line without control characters, which could forge another line or move a terminal's cursor.
fn printable(text: &[u8]) -> String {
    let kept = &text[..text.len().min(MAX_LINE_BYTES)];
    let mut line = String::with_capacity(kept.len());
    for character in String::from_utf8_lossy(kept).trim_end().chars() {
        if character.is_control() && character != '\t' {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    if kept.len() < text.len() {
        write!(line, "… (the first {} of {} bytes)", kept.len(), text.len())
            .expect("a string takes all that is written");
    }
    line
}

/// The stdout or stderr of one call. All streams that a guest opens on it share one line.
#[derive(Clone)]
pub(super) struct Stream(Arc<Pending>);

struct Pending {
    journal: Journal,
    source: Source,
    line: Mutex<Vec<u8>>,
}

impl Pending {
    fn line(&self) -> MutexGuard<'_, Vec<u8>> {
        // Bytes are valid whatever a panicking thread left of them.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, line: &[u8]) {
        if !line.trim_ascii().is_empty() {
            self.journal.write(self.source.level(), self.source, line);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // A last line without its end: often the one that says why the guest broke.
        let line = std::mem::take(&mut *self.line());
        self.write(&line);
    }
}

impl Stream {
    pub(super) fn new(journal: Journal, source: Source) -> Self {
        Self(Arc::new(Pending {
            journal,
            source,
            line: Mutex::new(Vec::new()),
        }))
    }

    fn take(&self, bytes: &[u8]) {
        if self.0.journal.is_full() {
            return;
        }
        let mut line = self.0.line();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.ends_with(b"\n") || line.len() >= MAX_LINE_BYTES {
                self.0.write(&line);
                line.clear();
            }
        }
    }
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    // The default one writes from a task of its own, which would outlive the call.
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        // As much as one `blocking-write-and-flush` carries, so that the host never works long for one write.
        Ok(MAX_LINE_BYTES)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
