//! What the host offers to guests: the contract's `reply`, `log` and `sql`, `wasi:config/store`, outgoing HTTP, and the harmless part of WASI.
//!
//! The linker holds all that any plugin may be granted; what one plugin may have is decided at load, by
//! [`inspect`](super::inspect). Sockets are not in it: HTTP goes through [`http`](super::http), which knows the grants.

use tokio::runtime::{Handle, RuntimeFlavor};
use wasmtime::StoreContextMut;
use wasmtime::component::{HasSelf, Linker, Resource, WasmList, WasmStr};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView as _};
use wasmtime_wasi::p2::IoError;
use wasmtime_wasi::p2::bindings::{cli, filesystem, random};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView as _};
use wasmtime_wasi_config::WasiConfig;
use wasmtime_wasi_http::p2::bindings::http::{outgoing_handler, types as http_types};
use wasmtime_wasi_http::{WasiHttp, WasiHttpView as _};

use super::call::Progress;
use super::http;
use super::instance::State;
use super::journal::Source;
use super::limits::Denied;
use crate::contract::{Attachment, Demand, Level, PushDown, sql};
use crate::shape::{Intake, excerpt};

/// Taking in a list of this size would hold up its worker for a millisecond or more (measured 2 GB/s), so the worker's
/// other tasks move to another thread first. That costs some 10 µs.
const LARGE_BYTES: usize = 2 << 20;

/// A linker with everything that is offered.
pub(super) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    link_reply(linker)?;
    link_log(linker)?;
    sql::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    wasmtime_wasi_config::add_to_linker(linker, |state: &mut State| {
        WasiConfig::from(&*state.config)
    })?;
    outgoing_handler::add_to_linker::<State, WasiHttp>(linker, State::http)?;
    http_types::add_to_linker::<State, WasiHttp>(
        linker,
        &http_types::LinkOptions::default(),
        State::http,
    )?;
    link_http_error_code(linker)?;
    link_wasi(linker)
}

/// `http-error-code` in place of wasmtime-wasi-http's (48.0.8), which looks for the guest's type of error where bodies put the
/// host's, and so knows no code for what ended a body.
fn link_http_error_code(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:http/types@0.2.12")?.func_wrap(
        "http-error-code",
        |mut store: StoreContextMut<'_, State>, (error,): (Resource<IoError>,)| {
            Ok((http::body_error(store.data_mut().ctx().table.get(&error)?),))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// wasi:io, wasi:clocks, wasi:random, wasi:filesystem and wasi:cli; not wasi:sockets.
fn link_wasi(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    // io, clocks, `random`, and the standard streams.
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    filesystem::types::add_to_linker::<State, WasiFilesystem>(linker, State::filesystem)?;
    filesystem::preopens::add_to_linker::<State, WasiFilesystem>(linker, State::filesystem)?;
    random::insecure::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    cli::exit::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::environment::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(linker, State::cli)
}

/// `reply`, by hand: the generated traits would copy every list before anyone has looked at it.
fn link_reply(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut reply = linker.instance("plimsoll:plugin/reply@0.1.0")?;
    reply.func_wrap("document", |mut store, (bytes,): (WasmList<u8>,)| {
        take_in(&mut store, &bytes, Intake::document);
        Ok(())
    })?;
    reply.func_wrap("rows", |mut store, (lines,): (WasmList<u8>,)| {
        Ok((take_in(&mut store, &lines, Intake::rows).unwrap_or(Demand::Enough),))
    })?;
    reply.func_wrap(
        "total",
        |mut store: StoreContextMut<'_, State>, (count,): (u64,)| {
            if let Some(intake) = &mut store.data_mut().intake {
                intake.total(count);
            }
            Ok(())
        },
    )?;
    reply.func_wrap(
        "applied",
        |mut store: StoreContextMut<'_, State>, (what,): (PushDown,)| {
            if let Some(intake) = &mut store.data_mut().intake {
                intake.applied(what);
            }
            Ok(())
        },
    )?;
    reply.func_wrap(
        "attach",
        |mut store: StoreContextMut<'_, State>, (content,): (Attachment,)| {
            if let Some(intake) = &mut store.data_mut().intake {
                intake.attach(content);
                if intake.has_too_many_attachments() {
                    return Err(Denied::Attachment.into());
                }
            }
            Ok(())
        },
    )?;
    reply.func_wrap(
        "progress",
        |mut store: StoreContextMut<'_, State>,
         (done, total, message): (u64, Option<u64>, Option<WasmStr>)| {
            let message = message
                .map(|message| message.to_str(&store).map(|text| excerpt(&text)))
                .transpose()?;
            tell(
                store.data_mut(),
                Progress {
                    done,
                    total,
                    message,
                },
            );
            Ok(())
        },
    )
}

fn link_log(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut log = linker.instance("plimsoll:plugin/log@0.1.0")?;
    log.func_wrap(
        "write",
        |store: StoreContextMut<'_, State>, (level, message): (Level, WasmStr)| {
            store
                .data()
                .journal
                .write(level, Source::Log, message.to_str(&store)?.as_bytes());
            Ok(())
        },
    )
}

/// Hands a list to the intake where it lies in the guest's memory.
fn take_in<R>(
    store: &mut StoreContextMut<'_, State>,
    list: &WasmList<u8>,
    take: impl FnOnce(&mut Intake, &[u8]) -> R,
) -> Option<R> {
    // Out of the store and back, since the guest's memory is borrowed from the same store.
    let mut intake = store.data_mut().intake.take()?;
    let bytes = list.as_le_slice(&*store);
    let is_multi_threaded = || {
        Handle::try_current()
            .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread)
    };
    let taken = if bytes.len() >= LARGE_BYTES && is_multi_threaded() {
        tokio::task::block_in_place(|| take(&mut intake, bytes))
    } else {
        take(&mut intake, bytes)
    };
    store.data_mut().intake = Some(intake);
    Some(taken)
}

/// Passes progress on, unless it does not grow or nobody keeps up with it.
fn tell(state: &mut State, progress: Progress) {
    let Some(sender) = &state.progress else {
        return;
    };
    if state.done.is_some_and(|done| progress.done <= done) {
        return;
    }
    state.done = Some(progress.done);
    // A full channel drops this one: the next says more anyway. A closed one has no reader.
    let _ = sender.try_send(progress);
}
