//! An operation that ends early, by an error or a panic: its Mnode's tags follow the Bnode.
//!
//! The bitmap decides what happened. Tags change after it, under the same lock. An operation that does
//! not get that far reads them again from the Bnode before the lock is released.
//!
//! What it left in free slots may not be durable. An insert with one fence tells its record from what
//! stood in the slot before ([`Pending`](pmindex_record::Pending)), which must be what a crash leaves
//! there: so the Bnode is made durable before the lock is released. A mark in DRAM that inserts take two
//! fences would be gone when the index is opened again, and what is in the slot would not.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};

use crate::layout::{MAX_LEAF, Taken};
use crate::leaf::Bnode;
use crate::leaves::Leaves;
use crate::middle::{Mnode, exact};

/// Reads a locked Mnode's tags again from its Bnode when dropped armed. To be dropped before the lock.
pub(crate) struct TagGuard<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    leaves: &'t Leaves<K, V, M, LEAF>,
    index: u32,
    node: &'t Mnode,
    /// Records (modulo 2^64) that were counted for the change to come.
    counted: u64,
    armed: bool,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Leaves<K, V, M, LEAF> {
    /// Returns a guard of an Mnode's tags, not armed yet.
    #[inline(always)]
    pub(crate) fn tag_guard<'t>(
        &'t self,
        index: u32,
        node: &'t Mnode,
    ) -> TagGuard<'t, K, V, M, LEAF> {
        TagGuard { leaves: self, index, node, counted: 0, armed: false }
    }

    /// Reads the tags of a locked Mnode again; `counted` records of the difference are counted already.
    #[cold]
    fn reload_and_count(&self, index: u32, node: &Mnode, counted: u64) {
        let before = self.taken(node);
        let Ok(taken) = self.reload_tags(node) else { return };
        let more = (taken.len() as u64).wrapping_sub(before.len() as u64);
        self.count(index, more.wrapping_sub(counted));
    }

    /// Reads the tags of a locked Mnode again from its Bnode; returns the Bnode's bitmap.
    pub(crate) fn reload_tags(&self, node: &Mnode) -> Result<Taken, PmError> {
        self.bnode_of(node).map(|bnode| self.reload_tags_from(node, &bnode))
    }

    /// As [`reload_tags`](Self::reload_tags), from this Bnode, which is the Mnode's.
    pub(crate) fn reload_tags_from(&self, node: &Mnode, bnode: &Bnode<'_, K, V, LEAF>) -> Taken {
        let pm = self.pm();
        let taken = bnode.taken(pm);
        let mut tags = [0; MAX_LEAF / 8];
        pm.read_words(bnode.tag_cells(), &mut tags);
        self.middle.dram.write_words(&node.tags, &exact(tags, taken));
        taken
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> TagGuard<'_, K, V, M, LEAF> {
    /// The Bnode is about to change.
    #[inline(always)]
    pub(crate) fn arm(&mut self) {
        self.armed = true;
    }

    /// The Bnode is about to gain `change` (modulo 2^64) records, which are counted at once: beside the
    /// lock, another locked instruction costs next to nothing, while after the fence it would keep
    /// the next operation's reads waiting for it.
    #[inline(always)]
    pub(crate) fn arm_and_count(&mut self, change: u64) {
        self.leaves.count(self.index, change);
        self.counted = change;
        self.armed = true;
    }

    /// The tags follow the Bnode.
    #[inline(always)]
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Drop for TagGuard<'_, K, V, M, LEAF> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.armed {
            if let Ok(bnode) = self.leaves.bnode_of(self.node) {
                self.leaves.make_durable(&bnode);
            }
            self.leaves.reload_and_count(self.index, self.node, self.counted);
        }
    }
}
