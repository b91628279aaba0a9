//! Pools: a mapped file (or anonymous memory) with an allocator and a directory of named indexes.
//!
//! | file | contents |
//! | --- | --- |
//! | `layout` | places of all parts: the only description of the fixed parts |
//! | `options` | the caller's wishes |
//! | `superblock` | identity, size, generation, clean flag; two copies |
//! | `create` | formatting and opening on any medium |
//! | `path`, `file` | pools in files |
//! | `journal` | the journal beside a file on a disk |
//! | `twin` | the twin on a disk of a pool in memory |
//! | `peek` | facts about a pool that another process has open |
//! | `writer` | the process that has a pool open |
//! | `detect`, `describe` | the medium's durability, as a value and in sentences |
//! | `access` | following pointers |
//! | `grow` | growth in place |
//! | `holes` | memory given back to the system |
//! | `directory` | named indexes |
//! | `dropping` | freeing all blocks of an index |
//! | `claim` | each index is open once |
//! | `sync` | waiting for durability |
//! | `damage` | a damaged pool takes no writes |
//! | `life` | facts about a pool, closing it |
//!
//! # Guarantees and their limits
//!
//! * A process that dies, at any instruction, leaves a pool that opens. The same holds for a system that
//!   crashes or loses power, in the modes that survive it ([`Pool::describe`] says which).
//! * A file is read as if an attacker had written it: metadata are checked, pointers are checked when they
//!   are followed, and a damaged file causes an error, never worse.
//! * Space is allocated when a pool is created, when it grows, and when memory that [`Pool::compact`]
//!   gave back is used again: a full disk is an error at these moments. **SIGBUS** remains possible where the
//!   kernel has no page to give: another program truncates the file, the device reports a bad block, a
//!   copy-on-write file system (btrfs, a snapshot, a reflink) finds no room for the copy, tmpfs is swapped
//!   out and cannot come back, the file is a copy that left out zeros (`cp --sparse`) and the disk is full.
//! * One process writes, or several read. The lock is advisory: it keeps out other users of this library, but
//!   no program that writes the file in other ways.
//! * After `fork` the pool belongs to the parent. The child sees an empty pool (the kernel zeroes the page
//!   with its length), so every access is [`PmError::Forked`](crate::PmError::Forked); nothing the child
//!   does, nor its end, changes the file. The lock is free when both have closed it.
//! * A pool in use sometimes has a thread of its own (`pmindex-pages`, some milliseconds for each 4 MiB
//!   handed out): it touches the pages that are used next, so that no write waits for a page fault.
//! * A device-DAX device holds one pool, which does not grow.

mod access;
mod activity;
mod claim;
mod create;
mod damage;
mod describe;
mod detect;
mod directory;
mod dropping;
mod file;
mod forge;
mod fresh;
mod grow;
mod holes;
mod journal;
pub(crate) mod layout;
mod life;
mod options;
mod path;
mod peek;
mod superblock;
mod sync;
mod twin;
mod writer;

use core::sync::atomic::AtomicBool;
use std::path::PathBuf;

use parking_lot::Mutex;

use crate::alloc::Heap;
use crate::media::{Mapped, Medium, Permit};
use crate::mode::Durability;
use crate::process::Process;
use crate::region::Region;

pub use activity::Activity;
pub use claim::{Claim, OpenIndex};
pub(crate) use detect::random_u128;
pub use directory::{IndexEntry, IndexId};
#[doc(hidden)]
pub use forge::forge_checksums;
pub use fresh::FreshPool;
pub use life::{RecoveryPass, RecoveryScope};
pub use options::PoolOptions;
pub use peek::Peek;
#[doc(hidden)]
pub use superblock::without_journal;
pub use writer::Writer;

/// A pool of persistent memory.
///
/// Indexes hold it as `Arc<Pool<M>>`. All access to its cells goes through [`pm`](Self::pm).
///
/// Dropping the last handle closes the pool as [`close`](Self::close) does, but reports no error.
#[derive(Debug)]
// The fields that every access reads come first, on one line; the counts of `Arc` are on another.
#[repr(C, align(64))]
pub struct Pool<M: Medium = Mapped> {
    medium: M,
    region: Region,
    pub(crate) heap: Heap,
    pub(crate) directory: directory::Directory,
    drops: dropping::Drops,
    claims: claim::Claims,
    damage: damage::Damage,
    splits: activity::Splits,
    superblock: Mutex<superblock::Found>,
    /// Held while the pool grows; taken before `superblock`.
    growing: Mutex<()>,
    facts: Facts,
    /// The permission that a thread in recovery holds: it may write to the private copy of a pool that is
    /// open for reading only or lost its disk.
    permit: Permit,
    /// That of a thread that rolls a change back: it may write although damage was found.
    rolls_back: Permit,
    /// `true` if the pool was closed, is not completely open yet, or is to end without the clean mark.
    ended: AtomicBool,
    /// The file, if there is one. Last, so that the lock goes when the mapping is gone.
    backing: Option<path::Backing>,
}

/// Facts that stay true while the pool is open.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
struct Facts {
    path: PathBuf,
    /// The process that opened it.
    process: Process,
    uuid: u128,
    generation: u64,
    was_clean: bool,
    superblock_damaged: bool,
    read_only: bool,
    grow: bool,
    max_size: u64,
    durability: Durability,
    emulated: bool,
    origin: describe::Origin,
}

#[cfg(test)]
mod tests;
