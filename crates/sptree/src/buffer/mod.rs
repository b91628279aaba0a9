//! Write buffers (sections 3.1 and 4.4): an Mnode may have one, of up to `BUFFER` records in DRAM.
//!
//! A write appends an entry to the [log](crate::log), one line and one fence, and is then put into the
//! buffer ([`write`]). A full buffer is absorbed by its Bnode as a whole ([`absorb`]): two fences for
//! all its records. The record that fills it is one of them, and takes no entry. Buffers that take long
//! to be filled are absorbed as they are, several with the same two fences ([`sweep`]). Deletes are
//! entries too. Reads and scans look into the buffer first.
//!
//! What costs one line and one fence without a log, and then is done, has no entry, if the buffer does
//! not have its key: a record of the Bnode that is removed, a value of one word that is replaced. The
//! chain says nothing of such a key, so nothing older can come back.
//!
//! | operation | step | store | durable before |
//! |-----------|------|-------|----------------|
//! | write     | P1 | the entry (LIN: the unlock after it) | return (DUR) |
//! | absorb    | P1 | new records and tags in free slots; new values in place | P2 |
//! |           | P2 | the bitmap, then `applied`: one line, in this order | any change of the Bnode that the log does not tell |
//!
//! **`applied`**, a word in the line of the bitmap, says which of the chain's entries the Bnode has. It
//! is what the paper's end record says, without a line of its own: a chain that is found again after
//! a crash is read down to that number. So whatever changes a Bnode behind the log's back (a split, a
//! merge, a record that goes past the buffer) only has to absorb the buffer first. A new Bnode
//! begins with the greatest number of any chain, so that it has none of the entries of a Bnode
//! whose memory it reuses.
//!
//! Values are replaced in place, of whatever size: until P2 the chain says the value too, and after a
//! crash the chain is read first.
//!
//! **Room.** A record is buffered only while the Bnode has a free slot for each new key in the buffer,
//! so a buffer can always be absorbed, without a split and without memory. Splits meet
//! empty buffers.
//!
//! **Who has a buffer** is decided by a [`budget`]. A buffer takes DRAM for the entries that it has, in
//! [`pieces`].
//!
//! Records with byte strings have blocks out of line, and no buffers: they are written as without.

mod absorb;
mod batch;
mod budget;
mod cells;
mod handoff;
mod pieces;
mod restore;
mod scan;
mod sweep;
mod tend;
mod together;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use pmindex_core::{Medium, PmError, Pool};

use crate::layout::Root;
use crate::log::Log;

use budget::Budget;
use handoff::Handoff;

pub(crate) use batch::BufferStage;
pub(crate) use cells::{Buffers, ENTRIES_MAX, Hit};
pub(crate) use restore::follow;
pub(crate) use write::{ChainOver, Written};

/// The log and the buffers of an index.
#[derive(Debug)]
pub(crate) struct Buffering<M: Medium> {
    pub(crate) log: Log<M>,
    pub(crate) buffers: Buffers,
    budget: Budget,
    /// What writers leave to workers.
    pub(crate) handoff: Handoff,
    /// Where the [`sweep`] goes on.
    swept: AtomicU32,
}

impl<M: Medium> Buffering<M> {
    /// Opens the log that the root points to, or makes it, for an index of up to so many Bnodes.
    pub(crate) fn open(pool: &Arc<Pool<M>>, root: &Root, leaves: u64) -> Result<Self, PmError> {
        let there = !pool.pm().load(&root.log).is_null();
        let log =
            if there { Log::open_serving(pool, &root.log) } else { Log::create(pool, &root.log) }?;
        let (buffers, budget) = (Buffers::new(leaves)?, Budget::unlimited());
        let (handoff, swept) = (Handoff::default(), AtomicU32::new(0));
        Ok(Self { log, buffers, budget, handoff, swept })
    }

    /// Whether a worker looks after the log, and is not far behind.
    pub(crate) fn is_attended(&self) -> bool {
        self.handoff.is_open() && !self.log.is_behind()
    }

    /// Fetches the buffer that the Mnode of this number most likely has, and whose number is not known
    /// yet. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_own(&self, node: u32) {
        if self.budget.is_unlimited() {
            self.buffers.prefetch_own(node);
        }
    }
}
