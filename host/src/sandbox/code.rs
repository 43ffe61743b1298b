//! Compiled code, kept in a folder from one start to the next: found by what it was compiled from, mapped into memory, not
//! read.
//!
//! An entry is a file that is named after the component, after everything of the engine that decides over code, and after its
//! own bytes, so that one that was cut short or altered is not found. It is written beside its place, moved there, and from
//! then on neither written nor shortened: its pages are the pages of whoever runs it.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use wasmtime::Engine;
use wasmtime::component::Component;
use xxhash_rust::xxh3::xxh3_64;

use crate::files;

/// How long an entry is kept that no start has used: as long as an operator may take to go back to an older plugin.
const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A folder of compiled code.
pub(super) struct Code {
    folder: PathBuf,
    /// Everything of the engine that decides over code.
    engine: u64,
    compiled: AtomicUsize,
}

impl Code {
    /// A folder, which is made where it is missing. What no start has used for a while is removed from it.
    pub(super) fn open(folder: &Path, engine: &Engine) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)?;
        remove_unused(folder, SystemTime::now() - KEPT_FOR)?;
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self {
            folder: folder.to_owned(),
            engine: hasher.finish(),
            compiled: AtomicUsize::new(0),
        })
    }

    /// How often something had to be compiled.
    pub(super) fn compiled(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }

    /// What a component's bytes were compiled to before, or are now.
    pub(super) fn of(&self, engine: &Engine, bytes: &[u8]) -> wasmtime::Result<Component> {
        let name = format!("{}-{:016x}", blake3::hash(bytes).to_hex(), self.engine);
        if let Some(component) = self.find(engine, &name) {
            return Ok(component);
        }
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let component = Component::from_binary(engine, bytes)?;
        match self.keep(&name, &component) {
            // The mapped code takes the place of the one in memory.
            Ok(()) => Ok(self.find(engine, &name).unwrap_or(component)),
            Err(error) => {
                tracing::warn!(
                    "compiled code is not kept, so the next start compiles again: {error:#}"
                );
                Ok(component)
            }
        }
    }

    fn find(&self, engine: &Engine, name: &str) -> Option<Component> {
        let entries = fs::read_dir(&self.folder).ok()?.flatten();
        let named = entries.filter(|entry| {
            let file = entry.file_name();
            file.to_str().is_some_and(|file| file.starts_with(name))
        });
        named.map(|entry| entry.path()).find_map(|file| {
            let code = fs::read(&file).ok()?;
            if file.file_name().is_none_or(|file| *file != *entry_name(name, &code)) {
                tracing::warn!(file = %file.display(), "kept code is not what was written, and is compiled again");
                return None;
            }
            drop(code);
            // What no start uses is removed; that this one does is only noted, and may be noted late.
            let _ = File::options()
                .append(true)
                .open(&file)
                .and_then(|file| file.set_modified(SystemTime::now()));
            map(engine, &file)
                .inspect_err(|error| tracing::warn!(file = %file.display(), "kept code cannot be used: {error:#}"))
                .ok()
        })
    }

    fn keep(&self, name: &str, component: &Component) -> anyhow::Result<()> {
        let code = component.serialize()?;
        let file = self.folder.join(entry_name(name, &code));
        files::replace(&file, &code).with_context(|| format!("writing `{}`", file.display()))
    }
}

/// The name of the file that holds this code.
fn entry_name(name: &str, code: &[u8]) -> String {
    format!("{name}-{:016x}", xxh3_64(code))
}

#[expect(
    unsafe_code,
    reason = "wasmtime cannot tell whether code is what it wrote"
)]
fn map(engine: &Engine, file: &Path) -> wasmtime::Result<Component> {
    // SAFETY: the file holds what `Component::serialize` gave to `Code::keep`, for an engine of the same settings, as its name
    // says and its bytes were compared with. It is never written again. Whoever else can write to the folder, which is the
    // operator's as the program itself is, could as well replace the program.
    unsafe { Component::deserialize_file(engine, file) }
}

/// Removes what was not used since then, and what was left of a start that was killed.
fn remove_unused(folder: &Path, since: SystemTime) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_unused = |metadata: fs::Metadata| {
            metadata.is_file() && metadata.modified().is_ok_and(|modified| modified < since)
        };
        // Another start may have removed it meanwhile.
        if entry.metadata().is_ok_and(is_unused) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn code_is_compiled_once_and_again_where_it_was_altered() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        for expected in [1, 0] {
            let code = Code::open(folder.path(), &engine).unwrap();
            code.of(&engine, COMPONENT).unwrap();
            assert_eq!(code.compiled(), expected);
        }
        let entries = names(folder.path());
        assert_eq!(entries.len(), 1, "{entries:?}");
        let file = folder.path().join(&entries[0]);
        let mut altered = fs::read(&file).unwrap();
        *altered.last_mut().unwrap() ^= 1;
        fs::write(&file, altered).unwrap();
        for expected in [1, 0] {
            let code = Code::open(folder.path(), &engine).unwrap();
            code.of(&engine, COMPONENT).unwrap();
            assert_eq!(code.compiled(), expected);
        }
        assert_eq!(names(folder.path()), entries);
    }

    #[test]
    fn code_of_an_engine_with_other_settings_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let plain = Engine::default();
        let fuelled = Engine::new(wasmtime::Config::new().consume_fuel(true)).unwrap();
        for engine in [&plain, &fuelled] {
            let code = Code::open(folder.path(), engine).unwrap();
            code.of(engine, COMPONENT).unwrap();
            assert_eq!(code.compiled(), 1);
        }
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn what_no_start_has_used_for_30_days_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(24 * 60 * 60);
        for (name, days) in [("used", 29), ("unused", 31)] {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - day * days).unwrap();
        }
        Code::open(folder.path(), &Engine::default()).unwrap();
        assert_eq!(names(folder.path()), ["used"]);
    }

    #[test]
    fn a_use_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::default();
        let code = Code::open(folder.path(), &engine).unwrap();
        code.of(&engine, COMPONENT).unwrap();
        let entry = folder.path().join(&names(folder.path())[0]);
        let file = File::options().append(true).open(&entry).unwrap();
        file.set_modified(SystemTime::now() - KEPT_FOR).unwrap();
        code.of(&engine, COMPONENT).unwrap();
        Code::open(folder.path(), &engine).unwrap();
        assert!(entry.exists());
    }
}
