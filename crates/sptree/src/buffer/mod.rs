//! Write buffers (sections 3.1 and 4.4): an Mnode may have one, of up to `BUFFER` records in DRAM.
//!
//! [`WriteBuffers`] is a component: it knows the [leaves](crate::leaves) and the [log](crate::log), and
//! nothing of splits, merges or the radix tree. It returns the leaves that are nearly empty or full
//! afterwards, and the tree merges or splits them.
//!
//! # A write
//!
//! [`WriteBuffers::write`] stages the record (an entry of the log, and words of the buffer that no reader
//! sees), makes the entry durable, one line and one fence, then publishes the record in the buffer. A full
//! buffer is [absorbed](absorb) by its Bnode as a whole, with two fences for all its records. The record
//! that fills it is one of them, and takes no log entry. Buffers that take long to fill are absorbed as
//! they are, several with the same two fences ([`maintain`]). Removals are entries too. Reads and scans
//! look into the buffer first.
//!
//! A write that costs one line and one fence without a log has no entry, unless the buffer has its key: the
//! removal of a record of the Bnode, the update of a value of one word. The chain says nothing of such a
//! key, so no older value can come back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | write     | P1 | the entry (LIN: the unlock after it) | return (DUR) |
//! | absorb    | P1 | new records and tags in free slots; new values in place | P2 |
//! |           | P2 | the bitmap, then `applied`: one line, in this order | any change of the Bnode that the log does not tell |
//!
//! **`applied`**, a word in the line of the bitmap, says which of the chain's entries the Bnode has
//! absorbed. It replaces the paper's end record and its line: a chain that is found again after a crash is
//! read down to that number. So whatever changes a Bnode without a log entry (a split, a merge, a write in
//! place) only has to absorb the buffer first. A new Bnode begins with the greatest number of any chain:
//! it has none of the entries of a Bnode whose memory it reuses.
//!
//! Values are replaced in place, of whatever size: until P2 the chain has the value too, and after a
//! crash the chain is read first.
//!
//! **Room.** A record is buffered only while the Bnode has a free slot for each new key in the buffer,
//! so a buffer can always be absorbed, without a split and without memory. A split meets an empty buffer.
//!
//! **Which leaves have a buffer** is decided by a [`budget`]. A buffer takes DRAM for the entries that it has, in
//! [`pieces`].
//!
//! Records with byte strings have blocks out of line, and no buffers: they are written in place.

mod absorb;
mod batch;
mod budget;
mod handoff;
mod maintain;
mod pieces;
mod restore;
mod scan;
mod table;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{Key, Value};
use pmindex_record::{Probe, Slot};

use crate::layout::Root;
use crate::leaves::{Hit, Leaves};
use crate::log::Log;
use crate::middle::Mnode;

use budget::Budget;
use handoff::Handoff;
use table::BufferTable;

pub(crate) use batch::Group;
pub(crate) use restore::follow;
pub(crate) use write::{ChainOver, Written};

/// The write buffers of an index, and their log.
pub(crate) struct WriteBuffers<K, V, M: Medium, const LEAF: usize, const BUFFER: usize> {
    log: Log<M>,
    table: BufferTable<K, V>,
    budget: Budget,
    /// The buffers that wait for a worker.
    handoff: Handoff,
    /// The place where the sweep continues.
    swept: AtomicU32,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    WriteBuffers<K, V, M, LEAF, BUFFER>
{
    /// `true` if records of these types are buffered.
    pub(crate) const ENABLED: bool = BUFFER > 0 && !Slot::<K, V>::HAS_BLOCK;
    /// The entries of a buffer.
    pub(crate) const ROOM: usize = BufferTable::<K, V>::room(BUFFER);

    /// Opens the log that the root points to, or creates it, for an index of at most `leaves` Bnodes.
    pub(crate) fn open(pool: &Arc<Pool<M>>, root: &Root, leaves: u64) -> Result<Self, PmError> {
        let log = if pool.pm().load(&root.log).is_null() {
            Log::create(pool, &root.log)
        } else {
            Log::open_serving(pool, &root.log)
        };
        Ok(Self {
            log: log?,
            table: BufferTable::new(leaves)?,
            budget: Budget::unlimited(),
            handoff: Handoff::default(),
            swept: AtomicU32::new(0),
        })
    }

    /// Returns the entry of a key in a buffer. Racing: validate.
    #[inline(always)]
    pub(crate) fn find_in(&self, buffer: u32, probe: &Probe<'_, K>) -> Option<Hit> {
        self.table.find(buffer, probe)
    }

    /// Fetches the header of a buffer. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_header(&self, buffer: u32) {
        self.table.prefetch(buffer);
    }

    /// Returns what an Mnode's buffer says of a key: `Some(None)` if the key is deleted. Racing: validate.
    #[allow(clippy::option_option, reason = "whether it says anything; what")]
    #[inline(always)]
    pub(crate) fn get(
        &self,
        leaves: &Leaves<K, V, M, LEAF>,
        node: &Mnode,
        probe: &Probe<'_, K>,
    ) -> Option<Option<V>> {
        let buffer = leaves.middle.buffer(node)?;
        let hit = self.table.find(buffer, probe)?;
        Some((!hit.deleted).then(|| self.table.value(buffer, hit.entry)))
    }

    /// Fetches the header of an Mnode's buffer. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, leaves: &Leaves<K, V, M, LEAF>, node: &Mnode) {
        if let Some(buffer) = leaves.middle.buffer(node) {
            self.table.prefetch(buffer);
        }
    }

    /// Fetches the buffer that the Mnode of this number most likely has, before the Mnode is read. A
    /// hint.
    #[inline(always)]
    pub(crate) fn prefetch_own(&self, index: u32) {
        if self.budget.is_unlimited() {
            self.table.prefetch_own(index);
        }
    }

    /// Fetches the entries of an Mnode's buffer, whose header is in the cache. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_entries(&self, leaves: &Leaves<K, V, M, LEAF>, node: &Mnode) {
        if let Some(buffer) = leaves.middle.buffer(node) {
            self.table.prefetch_entries(buffer);
        }
    }

    /// Bytes of DRAM.
    pub(crate) fn dram_bytes(&self) -> u64 {
        self.table.bytes_in_use()
    }

    /// Bytes of the log in the pool.
    pub(crate) fn pm_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Returns the offsets of the log's blocks.
    pub(crate) fn blocks(&self) -> Result<Vec<u64>, PmError> {
        self.log.blocks()
    }

    /// Verifies that every piece belongs to one buffer; returns the number of pieces in use.
    #[cfg(test)]
    pub(crate) fn check_pieces(&self) -> usize {
        self.table.check_pieces()
    }
}
