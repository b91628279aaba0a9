//! Inspects a pool that another process has open: reads its fixed parts without a lock, a mapping, or
//! recovery.
//!
//! The superblock and the directory have checksums, and a writer changes them rarely: a checksum that fails
//! during a change is read again. The rest of the pool changes all the time, and only the writing process
//! knows which parts of it are current; so this reads nothing else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::OpenError;
use crate::media::Mapped;
use crate::mode::Durability;

use super::Pool;
use super::describe;
use super::detect;
use super::directory::{IndexEntry, entries_in};
use super::file::PoolFile;
use super::layout::{DIRECTORY_OFFSET, SLOTS_OFFSET};
use super::options::PoolOptions;
use super::path;

/// Readings before a failed checksum counts as damage, and the time between two.
const READINGS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// The result of [`Pool::peek`]: the state at the moment of the reading.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peek {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the pool.
    pub len: u64,
    /// The pool's identity.
    pub uuid: u128,
    /// Counts the openings that could write.
    pub generation: u64,
    /// `true` if it was closed, and has not been opened for writing since.
    pub clean: bool,
    /// `true` if one copy of the superblock is damaged.
    pub superblock_damaged: bool,
    /// The indexes, without those whose entries are damaged.
    pub indexes: Vec<IndexEntry>,
    /// The number of damaged entries in the directory.
    pub damaged_entries: usize,
    /// The durability that the medium provides to a process that writes with the default options.
    pub durability: Durability,
    /// A description of that durability.
    pub medium: String,
}

impl Pool<Mapped> {
    /// Inspects a pool, in use or not: its superblock and its directory. It takes no lock and writes nothing,
    /// so it disturbs no other process, and the result may be out of date when it returns.
    ///
    /// # Errors
    /// [`OpenError`], as for opening, but never `Locked`. A device-DAX device cannot be inspected in this
    /// way.
    ///
    /// # Cost
    /// Reads 16 KiB; up to 20 times, 1 ms apart, while a writer changes them or if they are damaged.
    pub fn peek(path: impl AsRef<Path>) -> Result<Peek, OpenError> {
        let path = path.as_ref();
        let file = PoolFile::open_unlocked(path, true)?;
        let mut seen = look(&file);
        for _ in 1..READINGS {
            if seen.as_ref().is_ok_and(|seen| !seen.superblock_damaged && seen.damaged_entries == 0)
            {
                break;
            }
            std::thread::sleep(PAUSE);
            seen = look(&file);
        }
        seen
    }
}

/// Reads once.
fn look(file: &PoolFile) -> Result<Peek, OpenError> {
    let mut head = vec![0u8; SLOTS_OFFSET as usize];
    file.read_head(&mut head).map_err(|e| file.error("reading the superblock", e))?;
    // The length after the superblock: a file never becomes shorter than its superblock says.
    let len = file.len().map_err(|e| file.error("asking for the file's length", e))?;
    let found = path::choose(&head, len).map_err(|fault| fault.at(&file.path))?;
    let words: Vec<u64> = head[DIRECTORY_OFFSET as usize..]
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect();
    let (indexes, damaged_entries) = entries_in(&words);
    let kind = path::shared_kind(file, found.superblock.size);
    let medium = detect::medium_of(file, kind, &PoolOptions::new());
    Ok(Peek {
        path: file.path.clone(),
        len: found.superblock.size,
        uuid: found.superblock.uuid,
        generation: found.superblock.generation,
        clean: found.superblock.clean,
        superblock_damaged: found.damaged,
        indexes,
        damaged_entries,
        durability: medium.durability,
        medium: describe::for_writers(&medium),
    })
}
