//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

/// Writes a file beside its place and moves it there: whoever reads it sees the old one or the new one, also where this
/// process is killed, and pages of the old one that are mapped stay as they are.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let name = file.file_name().unwrap_or_default().display();
    // Nobody else has it, also where containers share the folder, whose processes have the same ids.
    let mut own = [0; 8];
    getrandom::fill(&mut own)?;
    let beside = file.with_file_name(format!(".{name}-{:016x}", u64::from_le_bytes(own)));
    let mut written = File::create(&beside)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(&beside, file)
}
