//! How a call fails: which limit was hit or what broke, as the refusal that the caller gets.
//!
//! The texts name the limit and its value and say what to do. They never carry paths, backtraces or addresses of the
//! host; those go to the log.

use std::time::Duration;

use wasmtime::{PoolConcurrencyLimitError, Trap};
use wasmtime_wasi::{I32Exit, ResourceTableError};

use super::limits::{Denied, HANDLES, Limits, TABLE_ELEMENTS};
use crate::admission::RETRY_AFTER_SECONDS;
use crate::contract::Fault;
use crate::shape::{Code, MAX_ATTACHMENTS, Refusal, excerpt};

/// No slot came free before the deadline.
pub(super) fn busy(waited: Duration) -> Refusal {
    let waited = waited.as_millis();
    Refusal::new(
        Code::Busy,
        format!(
            "All slots for running calls stayed taken for {waited} ms, so the call did not begin. Call again later."
        ),
    )
    .with_retry_after(RETRY_AFTER_SECONDS)
}

/// The deadline passed.
pub(super) fn timeout(deadline: Duration) -> Refusal {
    let deadline = deadline.as_millis();
    Refusal::new(
        Code::InvokeTimeout,
        format!(
            "The call did not end within {deadline} ms and was stopped. Ask for less, or call again later. The operation \
             may already have been applied."
        ),
    )
}

/// A granted folder cannot be opened.
pub(super) fn ungranted(error: &anyhow::Error) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("The call did not begin: {error}. The operator has to mend it."),
    )
}

/// The guest's own fault.
pub(super) fn fault(fault: &Fault) -> Refusal {
    let (code, message) = match fault {
        Fault::InvalidInput(message) => (Code::InvalidInput, message),
        Fault::NotFound(message) => (Code::NotFound, message),
        Fault::Unavailable(message) => (Code::Unavailable, message),
        Fault::Internal(message) => (Code::Internal, message),
    };
    Refusal::new(code, excerpt(message))
}

/// The guest was stopped or broke.
pub(super) fn broken(error: &wasmtime::Error, limits: &Limits) -> Refusal {
    let memory = limits.memory_bytes;
    if let Some(denied) = error.downcast_ref::<Denied>() {
        let message = match denied {
            Denied::Memory { .. } => format!(
                "The plugin asked for more than its {memory} bytes of memory and was stopped. Ask for less; the operator \
                 can raise `memory_bytes`."
            ),
            Denied::Table { .. } => format!(
                "The plugin asked for a table of more than {TABLE_ELEMENTS} elements and was stopped. The same call \
                 fails again."
            ),
            Denied::Host => {
                "The machine has no memory left for the plugin, which was stopped. Ask for less."
                    .to_owned()
            }
            Denied::Attachment => {
                let message = format!(
                    "The plugin attached more than {MAX_ATTACHMENTS} images, sounds or resources and was stopped. It is \
                     refused, not truncated: no part of the answer was returned. Ask for less."
                );
                return Refusal::new(Code::ResponseTooLarge, message);
            }
        };
        return Refusal::new(Code::OutOfMemory, message);
    }
    if is_out_of_handles(error) {
        let message = format!(
            "The plugin held more than {HANDLES} files, streams or timers at a time and was stopped. Ask for less."
        );
        return Refusal::new(Code::OutOfMemory, message);
    }
    if is_hostcall_fuel(error) {
        let message = format!(
            "The plugin handed over more than {memory} bytes at once and was stopped. Ask for less."
        );
        return Refusal::new(Code::OutOfMemory, message);
    }
    if error.is::<PoolConcurrencyLimitError>() {
        return Refusal::new(
            Code::Busy,
            "No slot is free for the plugin, so the call did not begin. Call again later.",
        );
    }
    if let Some(Trap::OutOfFuel) = error.downcast_ref() {
        let fuel = limits.fuel;
        let message = format!(
            "The plugin used up its fuel, {fuel} units of computing, and was stopped. Ask for less; the operator can \
             raise `fuel`."
        );
        return Refusal::new(Code::OutOfFuel, message);
    }
    Refusal::new(
        Code::PluginTrapped,
        format!(
            "The plugin broke: {}. The same call will likely fail again; the operator's log has the details.",
            reason(error)
        ),
    )
}

/// Too many handles: of resources, or lent to one call. wasmtime has a type for the first alone.
fn is_out_of_handles(error: &wasmtime::Error) -> bool {
    matches!(error.downcast_ref(), Some(ResourceTableError::Full))
        || error
            .root_cause()
            .to_string()
            .contains("store handle limit exceeded")
}

/// wasmtime keeps the type of this error to itself, so its text is the only mark.
pub(super) fn is_hostcall_fuel(error: &wasmtime::Error) -> bool {
    error
        .root_cause()
        .to_string()
        .contains("fuel allocated for hostcalls has been exhausted")
}

/// What broke, in words that mean something to whoever cannot see the plugin.
fn reason(error: &wasmtime::Error) -> String {
    if let Some(I32Exit(code)) = error.downcast_ref() {
        return format!("it left through `exit` with code {code} instead of returning");
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::UnreachableCodeReached) => {
            "it executed `unreachable`, as after a panic or an abort".to_owned()
        }
        Some(Trap::StackOverflow) => {
            "its calls nested too deeply and its stack is used up".to_owned()
        }
        Some(Trap::MemoryOutOfBounds) => "it read or wrote outside its memory".to_owned(),
        Some(trap) => trap
            .to_string()
            .trim_start_matches("wasm trap: ")
            .to_owned(),
        // A host function or the boundary between host and guest refused what it was given.
        None => "it called the host in a way that the contract does not allow".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: impl Into<wasmtime::Error>) -> (Code, String) {
        let refusal = broken(&error.into(), &Limits::default());
        (refusal.error, refusal.message)
    }

    #[test]
    fn every_limit_is_named_with_its_value() {
        assert_eq!(
            text(Trap::OutOfFuel),
            (
                Code::OutOfFuel,
                "The plugin used up its fuel, 10000000000 units of computing, and was stopped. Ask for less; the operator \
                 can raise `fuel`."
                    .to_owned()
            )
        );
        assert_eq!(
            text(Denied::Memory { wanted: 1 }),
            (
                Code::OutOfMemory,
                "The plugin asked for more than its 134217728 bytes of memory and was stopped. Ask for less; the operator \
                 can raise `memory_bytes`."
                    .to_owned()
            )
        );
        assert_eq!(text(Denied::Table { wanted: 1 }).0, Code::OutOfMemory);
        assert_eq!(
            text(Denied::Attachment),
            (
                Code::ResponseTooLarge,
                "The plugin attached more than 100 images, sounds or resources and was stopped. It is refused, not \
                 truncated: no part of the answer was returned. Ask for less."
                    .to_owned()
            )
        );
        assert_eq!(text(ResourceTableError::Full).0, Code::OutOfMemory);
        let timeout = timeout(Limits::default().deadline);
        assert_eq!(
            timeout.message,
            "The call did not end within 30000 ms and was stopped. Ask for less, or call again later. The operation may \
             already have been applied."
        );
        assert!(timeout.retryable);
    }

    #[test]
    fn a_trap_names_its_kind_and_nothing_of_the_host() {
        let (code, message) = text(Trap::UnreachableCodeReached);
        assert_eq!(code, Code::PluginTrapped);
        assert_eq!(
            message,
            "The plugin broke: it executed `unreachable`, as after a panic or an abort. The same call will likely fail \
             again; the operator's log has the details."
        );
        assert!(
            text(Trap::IntegerDivisionByZero)
                .1
                .starts_with("The plugin broke: integer divide by zero. ")
        );
        let error = wasmtime::Error::msg("reading /home/operator/secret");
        assert!(!text(error).1.contains("/home"));
    }
}
