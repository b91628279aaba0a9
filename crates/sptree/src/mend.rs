//! An operation that ends in the middle, by an error or a panic: its Mnode's tags follow the Bnode.
//!
//! The bitmap decides what happened. Tags change after it, under the same lock; whoever cannot get
//! that far reads them again from the Bnode before the lock is released.
//!
//! What it left in free slots may not be durable. An insert with one fence tells its record from what
//! stood in the slot before ([`Pending`](pmindex_record::Pending)), which must be what a crash leaves
//! there: from then on, and until the index is opened again, inserts take two fences.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::Medium;
use pmindex_index::{Key, Value};

use crate::layout::MAX_LEAF;
use crate::middle::{Mnode, exact};
use crate::tree::SpTree;

/// Brings a locked Mnode's tags into line with its Bnode when dropped armed. To be dropped before the
/// lock.
pub(crate) struct Mending<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    index: u32,
    node: &'t Mnode,
    /// Records (modulo 2^64) that were noted for what is about to happen.
    noted: u64,
    armed: bool,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Whether all free slots hold what a crash leaves there.
    #[inline(always)]
    pub(crate) fn is_sure(&self) -> bool {
        !self.doubt.load(Relaxed)
    }

    /// Free slots may hold what is not durable. Under the lock of their Mnode, whose release publishes
    /// this too.
    #[cold]
    pub(crate) fn put_doubt(&self) {
        self.doubt.store(true, Relaxed);
    }

    /// Nothing is to be mended yet.
    #[inline(always)]
    pub(crate) fn mending<'t>(
        &'t self,
        index: u32,
        node: &'t Mnode,
    ) -> Mending<'t, K, V, M, LEAF, BUFFER> {
        Mending { tree: self, index, node, noted: 0, armed: false }
    }

    /// Reads the tags of a locked Mnode again, for which so many records were noted.
    #[cold]
    fn mend(&self, index: u32, node: &Mnode, noted: u64) {
        let Ok(bnode) = self.bnode_of(node) else { return };
        let (before, taken) = (self.middle.taken(node, LEAF), bnode.taken(self.pm()));
        let mut tags = [0; MAX_LEAF / 8];
        self.pm().read_words(bnode.tag_cells(), &mut tags);
        self.middle.dram.write_words(&node.tags, &exact(tags, taken));
        let more = (taken.len() as u64).wrapping_sub(before.len() as u64);
        self.count(index, more.wrapping_sub(noted));
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Mending<'_, K, V, M, LEAF, BUFFER>
{
    /// The Bnode is about to change.
    #[inline(always)]
    pub(crate) fn arm(&mut self) {
        self.armed = true;
    }

    /// The Bnode is about to gain so many records (modulo 2^64), which are noted at once: beside the
    /// lock, another locked instruction costs next to nothing, while after the fence it would keep
    /// the next operation's reads waiting for it.
    #[inline(always)]
    pub(crate) fn arm_and_count(&mut self, change: u64) {
        self.tree.count(self.index, change);
        self.noted = change;
        self.armed = true;
    }

    /// The tags follow the Bnode.
    #[inline(always)]
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Drop
    for Mending<'_, K, V, M, LEAF, BUFFER>
{
    #[inline(always)]
    fn drop(&mut self) {
        if self.armed {
            self.tree.put_doubt();
            self.tree.mend(self.index, self.node, self.noted);
        }
    }
}
