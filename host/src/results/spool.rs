//! The rows of one answer while they come: a little in memory, the rest in a file that has no name.
//!
//! Owns: the framing of rows, and the bound on one result. A row is its length, four bytes in little-endian order, and its
//! exact bytes: rows of a pretty-printed document have line breaks of their own.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::shape::NotKept;

/// How much of an answer stays in memory before it goes to a file: 1.25 MiB, a MiB of rows and their lengths. What many calls
/// at a time can spare, and enough that most answers never touch the disk, which takes longer than finding the rows.
pub const MEMORY_BYTES: usize = 20 * CHUNK_BYTES;

/// Bytes that are allocated, hashed and written at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Bytes of the length before a row.
pub(super) const LENGTH_BYTES: usize = 4;

/// Collects rows. What it holds is gone when it is dropped, and also when the process is killed.
#[derive(Debug)]
pub struct Spool {
    folder: Arc<PathBuf>,
    max_bytes: u64,
    /// What has not been written to the file yet: whole chunks, which are hashed, and the one that is filled.
    full: Vec<Vec<u8>>,
    last: Vec<u8>,
    file: Option<File>,
    /// Bytes in all.
    bytes: u64,
    rows: u64,
    /// Tells contents apart. Keyed, so that nobody else can compute an id.
    hasher: Box<blake3::Hasher>,
    /// Why nothing is collected any more.
    gave_up: Option<NotKept>,
}

impl Spool {
    /// An empty spool, which takes `max_bytes` at most. `folder` is where its file goes; `key` makes its hash.
    pub fn new(folder: Arc<PathBuf>, max_bytes: u64, key: &[u8; 32]) -> Self {
        Self {
            folder,
            max_bytes,
            full: Vec::new(),
            last: Vec::new(),
            file: None,
            bytes: 0,
            rows: 0,
            hasher: Box::new(blake3::Hasher::new_keyed(key)),
            gave_up: None,
        }
    }

    /// Adds a row. Where it does not fit, everything collected so far is let go.
    pub fn push(&mut self, row: &[u8]) {
        if self.gave_up.is_some() {
            return;
        }
        let framed = (LENGTH_BYTES + row.len()) as u64;
        let length = u32::try_from(row.len()).ok();
        let (Some(length), true) = (length, self.bytes + framed <= self.max_bytes) else {
            return self.give_up(NotKept::TooLarge(self.max_bytes));
        };
        self.bytes += framed;
        self.rows += 1;
        let is_written = self
            .append(&length.to_le_bytes())
            .and_then(|()| self.append(row));
        if let Err(error) = is_written {
            tracing::warn!(folder = %self.folder.display(), %error, "a result is not kept: its rows cannot be written");
            self.give_up(NotKept::Failed);
        }
    }

    fn give_up(&mut self, why: NotKept) {
        self.gave_up = Some(why);
        self.full = Vec::new();
        self.last = Vec::new();
        self.file = None;
    }

    fn append(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while self.last.len() + bytes.len() >= CHUNK_BYTES {
            let (fits, rest) = bytes.split_at(CHUNK_BYTES - self.last.len());
            self.last.extend_from_slice(fits);
            bytes = rest;
            self.hasher.update(&self.last);
            if self.file.is_none() && (self.full.len() + 1) * CHUNK_BYTES < MEMORY_BYTES {
                let full = std::mem::replace(&mut self.last, Vec::with_capacity(CHUNK_BYTES));
                self.full.push(full);
            } else {
                self.write_out()?;
            }
        }
        self.last.extend_from_slice(bytes);
        Ok(())
    }

    fn write_out(&mut self) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(nameless(&self.folder)?),
        };
        for chunk in self.full.drain(..) {
            file.write_all(&chunk)?;
        }
        file.write_all(&self.last)?;
        self.last.clear();
        Ok(())
    }

    /// Bytes of the rows so far, with their lengths: where the next row begins.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Why nothing is collected any more.
    pub fn gave_up(&self) -> Option<NotKept> {
        self.gave_up
    }

    /// The hash of all rows together with `also`.
    pub(super) fn hash(&self, also: &[u8]) -> blake3::Hash {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.last);
        hasher.update(&self.bytes.to_le_bytes());
        hasher.update(also);
        hasher.finalize()
    }

    /// Goes back to the beginning, to be read.
    pub(super) fn rewind(&mut self) -> std::io::Result<()> {
        match &mut self.file {
            Some(file) => file.seek(SeekFrom::Start(0)).map(drop),
            None => Ok(()),
        }
    }

    /// Appends up to `room` more bytes to `out`, from where reading is; `read` are those read before. Zero at the end.
    pub(super) fn read_on(
        &mut self,
        read: u64,
        room: usize,
        out: &mut Vec<u8>,
    ) -> std::io::Result<usize> {
        let in_memory = self.full.len() * CHUNK_BYTES + self.last.len();
        let in_file = self.bytes - in_memory as u64;
        let before = out.len();
        match &mut self.file {
            Some(file) if read < in_file => {
                let wanted = (room as u64).min(in_file - read);
                file.take(wanted).read_to_end(out)?;
                if (out.len() - before) as u64 != wanted {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
            _ => {
                let from = (read - in_file) as usize;
                let chunk = self.full.get(from / CHUNK_BYTES).unwrap_or(&self.last);
                let piece = &chunk[from % CHUNK_BYTES..];
                out.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
        Ok(out.len() - before)
    }
}

/// A file that is open and has no name any more, so that nothing is left of it however the process ends.
fn nameless(folder: &Path) -> std::io::Result<File> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    let name = format!("{:032x}", u128::from_be_bytes(random));
    let path = folder.join(name);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Takes the rows out of framed bytes as they come, in pieces of any size.
#[derive(Debug, Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    at: usize,
}

impl Frames {
    /// Adds bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next row, if all of it is here, and the bytes that it takes with its length.
    pub(super) fn next(&mut self) -> Option<(&[u8], u64)> {
        let rest = &self.buffer[self.at..];
        let (length, rest) = rest.split_first_chunk::<LENGTH_BYTES>()?;
        let length = u32::from_le_bytes(*length) as usize;
        let row = rest.get(..length)?;
        let framed = LENGTH_BYTES + length;
        self.at += framed;
        Some((row, framed as u64))
    }

    /// Bytes that still wait for the rest of their row.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.buffer.len() - self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(folder: &Path, max_bytes: u64) -> Spool {
        Spool::new(Arc::new(folder.to_owned()), max_bytes, &[1; 32])
    }

    fn read_back(spool: &mut Spool) -> Vec<Vec<u8>> {
        spool.rewind().unwrap();
        let (mut frames, mut rows, mut read) = (Frames::default(), Vec::new(), 0);
        loop {
            let mut piece = Vec::new();
            if spool.read_on(read, 1_000, &mut piece).unwrap() == 0 {
                break;
            }
            read += piece.len() as u64;
            frames.add(&piece);
            while let Some((row, _)) = frames.next() {
                rows.push(row.to_vec());
            }
        }
        assert_eq!((frames.waiting(), read), (0, spool.bytes()));
        rows
    }

    #[test]
    fn rows_come_back_as_they_went_in_from_memory_and_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        for count in [0, 3, 5_000, 10_000] {
            let mut spool = spool(folder.path(), 1 << 30);
            let rows: Vec<Vec<u8>> = (0..count)
                .map(|row| format!("{{\n \"row\": {row},{}}}", " ".repeat(row % 300)).into_bytes())
                .collect();
            rows.iter().for_each(|row| spool.push(row));
            assert_eq!(spool.file.is_some(), count == 10_000);
            assert!(spool.full.len() * CHUNK_BYTES + spool.last.capacity() <= MEMORY_BYTES);
            assert_eq!(spool.rows(), rows.len() as u64);
            assert_eq!(read_back(&mut spool), rows);
        }
    }

    #[test]
    fn nothing_is_left_in_the_folder_even_while_a_spool_lives() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(folder.path(), 1 << 30);
        spool.push(&vec![b'x'; MEMORY_BYTES]);
        assert!(spool.file.is_some());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_result_over_the_bound_is_let_go_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(folder.path(), 600_000);
        spool.push(&vec![b'x'; 599_996]);
        assert_eq!((spool.gave_up(), spool.bytes()), (None, 600_000));
        spool.push(b"");
        assert_eq!(spool.gave_up(), Some(NotKept::TooLarge(600_000)));
        assert!(spool.file.is_none() && spool.full.capacity() + spool.last.capacity() == 0);
    }

    #[test]
    fn a_folder_that_is_gone_gives_up_and_does_not_fail_the_call() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = spool(&folder.path().join("nowhere"), 1 << 30);
        spool.push(&vec![b'x'; MEMORY_BYTES]);
        assert_eq!(spool.gave_up(), Some(NotKept::Failed));
    }

    #[test]
    fn equal_rows_have_an_equal_hash_however_they_are_divided_and_others_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let hash = |rows: &[&str], also: &str| {
            let mut spool = spool(folder.path(), 1 << 20);
            rows.iter().for_each(|row| spool.push(row.as_bytes()));
            spool.hash(also.as_bytes())
        };
        assert_eq!(hash(&["a", "b"], "x"), hash(&["a", "b"], "x"));
        assert_ne!(hash(&["ab"], "x"), hash(&["a", "b"], "x"));
        assert_ne!(hash(&["a", "b"], "x"), hash(&["a", "b"], "y"));
        assert_ne!(hash(&["a"], "bx"), hash(&["a", "b"], "x"));
    }
}
