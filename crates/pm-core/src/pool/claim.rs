//! Claims: each structure of a pool is open once in a process, behind one handle.
//!
//! Two handles on one index would have two sets of locks over one structure, so each could undo the writes of
//! the other, for good. A *claim* is the right to use the structure whose root block is at an offset. The
//! pool hands it out once, and takes it back when it is dropped: with the handle that holds it, by an opening
//! that failed, or by a panic.
//!
//! Only its claim returns the typed pointer to the root of an index ([`OpenIndex::root`]), so an index that
//! forgets to claim cannot reach its records. Claims are in DRAM and end with the process; the lock of the
//! pool's file keeps out other processes, and other pools of this one.

use core::ops::Deref;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cell::PmType;
use crate::error::PmError;
use crate::media::Medium;
use crate::ptr::PPtr;

use super::Pool;
use super::directory::IndexEntry;

/// The root blocks that are claimed.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<HashSet<u64>>>);

impl Claims {
    /// Claims a root block. The lock is held for one insertion, without an access to a pool or a wait in
    /// between: so it needs no medium.
    fn take(&self, offset: u64, what: impl FnOnce() -> String) -> Result<Claim, PmError> {
        if !self.0.lock().insert(offset) {
            return Err(PmError::AlreadyOpen { what: what() });
        }
        Ok(Claim { claims: self.clone(), offset })
    }

    /// Claims an index.
    pub(super) fn take_index(&self, entry: IndexEntry) -> Result<OpenIndex, PmError> {
        let claim = self.take(entry.block(), || format!("index {:?}", entry.name))?;
        Ok(OpenIndex { entry, claim })
    }
}

/// The right to use the structure whose root block is at an offset, until this is dropped: see
/// [`Pool::claim_block`].
#[derive(Debug)]
#[must_use = "the structure is free for others again when this is dropped"]
pub struct Claim {
    claims: Claims,
    offset: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.lock().remove(&self.offset);
    }
}

/// An open index: its entry in the directory, and the right to use it until this is dropped. The owner of the
/// index's parts in DRAM keeps it as long as they live, and drops it last.
#[derive(Debug)]
pub struct OpenIndex {
    entry: IndexEntry,
    claim: Claim,
}

impl OpenIndex {
    /// Returns the root block.
    #[must_use]
    #[inline(always)]
    pub fn root<T: PmType>(&self) -> PPtr<T> {
        PPtr::new(self.claim.offset)
    }

    /// Claims the structure at `root`, an index that is a part of this index and is not in the directory.
    ///
    /// # Errors
    /// [`PmError::AlreadyOpen`].
    pub fn part<T: PmType>(&self, root: PPtr<T>) -> Result<Self, PmError> {
        let what = || format!("a part of index {:?}", self.entry.name);
        let claim = self.claim.claims.take(root.offset(), what)?;
        Ok(Self { entry: self.entry.clone(), claim })
    }
}

impl Deref for OpenIndex {
    type Target = IndexEntry;

    #[inline(always)]
    fn deref(&self) -> &IndexEntry {
        &self.entry
    }
}

impl<M: Medium> Pool<M> {
    /// Claims a structure that is no index of the directory, by the offset of its root block; `what` is its
    /// name in the error. Indexes are claimed by [`open_index`](Self::open_index).
    ///
    /// # Errors
    /// [`PmError::AlreadyOpen`].
    pub fn claim_block(&self, offset: u64, what: &str) -> Result<Claim, PmError> {
        self.claims.take(offset, || format!("{what} at offset {offset:#x}"))
    }
}
