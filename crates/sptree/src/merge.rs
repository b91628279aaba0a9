//! Two nearly empty neighbours merge: the right one's records move to the left one.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P0 | the backup's entry of the right Bnode is removed; in DRAM, its chain ends | P2 |
//! | P1 | the records and their tags, in free slots of the left Bnode; the ticket "the right one lives while the left one's `next` leads there" | P2 |
//! | P2 | the left Bnode's `next`, with the ghosts bit; its bitmap; `next` past the right Bnode (the merge is decided): one line, in this order | unlock |
//!
//! Before the last store of P2 the moved records are the right Bnode's, and the left one's `next` says that
//! it may hold copies; recovery clears them. A Bnode's range ends where the next one's low key says, so there
//! is no high key to change.
//!
//! The right Bnode's block can be allocated again as soon as the operation has ended, before the locks are
//! released: the next user of the operation slot gives the block back, and a split on another thread may
//! take it. So the chain is over before: a new Bnode at this offset begins behind the greatest sequence
//! number of any chain that is over.
//!
//! Both Mnodes are locked throughout, the left one first. The first Bnode stays.

use pmindex_core::{Flushed, Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{OwnedRoute, Route, Slot, bits};

use crate::buffer::ChainOver;
use crate::layout::{BnodePtr, Next, Taken};
use crate::leaf::{Bnode, finish};
use crate::middle::{Mnode, NONE};
use crate::tree::SpTree;

/// The two Bnodes of a merge, with their bitmaps.
struct Pair<'t, K, V, const LEAF: usize> {
    left: Bnode<'t, K, V, LEAF>,
    right: Bnode<'t, K, V, LEAF>,
    kept: Taken,
    moved: Taken,
}

/// The records moved: slot of the right Bnode, slot of the left one.
type Moves = Vec<(usize, usize)>;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Returns `true` if a Bnode whose last removal left `len` records looks for a neighbour to merge with: not after
    /// every removal. So Bnodes whose records go at random keep more than 3/8 of theirs in the mean, where a load
    /// in random order fills 0.7.
    #[inline(always)]
    pub(crate) const fn may_merge(len: usize) -> bool {
        len <= LEAF * 3 / 8 && len.is_multiple_of(if LEAF < 32 { 1 } else { LEAF / 16 })
    }

    /// Returns `true` if two neighbours with `left` and `right` records merge: a quarter stays free, so that the
    /// next inserts do not split the Bnode again.
    const fn should_merge(left: usize, right: usize) -> bool {
        right == 0 || left + right <= LEAF * 3 / 4
    }

    /// Merges the Bnode of a key with a neighbour, if one of them is small enough. If that fails (the pool is
    /// full), a later removal tries again.
    #[cold]
    #[inline(never)]
    pub(crate) fn merge_beside(&self, route: &Route<'_>) {
        let at = self.locate(route);
        let (next, prev) = (self.leaves.middle.next(at.node), self.leaves.middle.prev(at.node));
        if next == NONE || !self.merge(at.index, next).unwrap_or(false) {
            if prev == NONE {
                return;
            }
            let _ = self.merge(prev, at.index);
        }
    }

    /// Merges two Mnodes and their Bnodes, if they (still) are neighbours and should.
    pub(crate) fn merge(&self, left_index: u32, right_index: u32) -> Result<bool, IndexError> {
        let (pm, middle) = (self.pm(), &self.leaves.middle);
        let (left, right) = (middle.get(left_index), middle.get(right_index));
        let (kept, moved) = (self.leaves.taken(left), self.leaves.taken(right));
        if !Self::should_merge(kept.len(), moved.len()) {
            return Ok(false);
        }
        let left_guard = left.lock.lock(pm);
        let alive = middle.dram.load(&left.bnode) != 0;
        if !alive || middle.next(left) != right_index {
            return Ok(false);
        }
        // The right neighbour is alive: it ends under the lock of the left one.
        let right_guard = right.lock.lock(pm);
        if let Some(buffers) = self.buffers() {
            buffers.absorb(&self.leaves, left)?;
            buffers.absorb(&self.leaves, right)?;
        }
        let (kept, moved) = (self.leaves.taken(left), self.leaves.taken(right));
        if !Self::should_merge(kept.len(), moved.len()) {
            return Ok(false);
        }
        let pair = Pair {
            left: self.leaves.bnode_of(left)?,
            right: self.leaves.bnode_of(right)?,
            kept,
            moved,
        };
        let low = middle.low_route(right);
        let mut merging = Merging {
            tree: self,
            left,
            left_index,
            right,
            right_index,
            low: &low,
            pair: &pair,
            moves: Moves::new(),
            step: Step::Started,
        };
        self.backup.remove::<K>(pm, &low.route::<K>())?; // P0, durable before: P2
        let over = match self.buffers() {
            Some(buffers) => buffers.end_chain(&self.leaves, right),
            None => ChainOver::NO_CHAINS,
        };
        self.merge_bnodes(&pair, over, &mut merging.moves)?;
        merging.step = Step::Merged;
        merging.complete();
        drop(merging);
        drop((left_guard, right_guard)); // LIN
        Ok(true)
    }

    /// Returns the persistent part. At its end the right Bnode's block is free; its chain is over before that.
    fn merge_bnodes(
        &self,
        pair: &Pair<'_, K, V, LEAF>,
        _over: ChainOver,
        moves: &mut Moves,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let Pair { left, right, moved, .. } = pair;
        let mut op = pool.op()?;
        // P1: the records and the tickets.
        let (taken, copied) = self.copy_records(pair, moves)?;
        let owner = left.owner_of_next(right.offset());
        op.free(BnodePtr::new(right.offset()), owner)?;
        if K::SHAPE.is_bytes() {
            op.free(BnodePtr::new(pm.load_word(&right.low_cells()[0])), owner)?;
        }
        // Words of the freed Bnode that earlier tickets name change with its next use.
        op.changes(right.next_cell());
        if Slot::<K, V>::HAS_BLOCK {
            op.changes(right.bitmap_cell());
            op.changes(left.bitmap_cell());
            for i in bits(moved.slots()) {
                op.changes(&right.slot(i)[Slot::<K, V>::BLOCK_WORD]);
            }
        }
        op.prepare(copied)?;
        // P2: the mark, the bitmap, the link: one line.
        let next = Next::to(right.next(pm).offset());
        left.relink(pm, Next::to(right.offset()), taken, next);
        finish(pool, op, || left.flush_header(pm)) // DUR
    }

    /// Copies the right Bnode's records, without their blocks, into free slots of the left one.
    fn copy_records(
        &self,
        pair: &Pair<'_, K, V, LEAF>,
        moves: &mut Moves,
    ) -> Result<(Taken, Flushed), PmError> {
        let pm = self.pm();
        let Pair { left, right, kept, moved } = pair;
        let (mut taken, mut copied) = (*kept, Flushed::nothing());
        let mut words = vec![0; Slot::<K, V>::WORDS];
        for from in bits(moved.slots()) {
            let Some(to) = taken.free_slot(LEAF) else {
                let what = "more records than slots";
                return Err(PmError::Corrupt { what, offset: left.offset() });
            };
            pm.read_words(right.slot(from), &mut words);
            let tag = right.tag(pm, from);
            copied = copied.and(left.copy_in(pm, to, &words, tag));
            taken = taken.with(to);
            moves.push((from, to));
        }
        Ok((taken, copied))
    }
}

/// The steps of a merge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The backup's entry may be removed; the left Bnode's link decides about the rest.
    Started,
    /// The merge has happened, durably.
    Merged,
    /// The layers above are up to date.
    Complete,
}

/// A merge in progress. The left Bnode's link decides whether it happened. If an error or a panic ends it,
/// dropping this brings the rest into line with the link. To be dropped before the locks.
struct Merging<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    left: &'t Mnode,
    left_index: u32,
    right: &'t Mnode,
    right_index: u32,
    low: &'t OwnedRoute,
    pair: &'t Pair<'t, K, V, LEAF>,
    moves: Moves,
    step: Step,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Merging<'_, K, V, M, LEAF, BUFFER>
{
    /// Updates the layers above the Bnodes. May be interrupted, and done again.
    fn complete(&mut self) {
        let (tree, middle) = (self.tree, &self.tree.leaves.middle);
        tree.top.remove(tree.pm(), middle, &self.low.route::<K>());
        tree.guide.remove();
        let tail = middle.low_of(self.right).tail;
        if let Some(buffers) = tree.buffers() {
            buffers.detach(&tree.leaves, self.right);
            buffers.note_merged();
        }
        self.unlink_mnode();
        self.step = Step::Complete;
        middle.tails.free(tail);
        middle.free(self.right_index);
    }

    /// Takes the right Mnode out of the list, its tags moved to the left one; both are locked.
    fn unlink_mnode(&self) {
        let (middle, left, right) = (&self.tree.leaves.middle, self.left, self.right);
        for &(from, to) in &self.moves {
            middle.put_tag(left, to, middle.tag(right, from));
        }
        let next = middle.next(right);
        middle.put_high(left, middle.high_of(right));
        middle.dram.store(&left.right, middle.dram.load(&left.right).with_next(next));
        if next != NONE {
            middle.dram.store(&middle.get(next).prev, u64::from(self.left_index));
        }
        middle.dram.store(&right.bnode, 0);
    }

    /// Finds out whether the merge has happened, and makes the outcome durable.
    fn decide(&mut self) -> Result<(), PmError> {
        let (pm, Pair { left, right, kept, .. }) = (self.tree.pm(), self.pair);
        let next = left.next(pm);
        if next.offset() == right.offset() {
            // Copies of its records may be here already, which are ghosts.
            left.put_taken(pm, *kept);
            pm.in_order();
            left.put_next(pm, Next::to(next.offset()));
            self.tree.backup.queue::<K>(pm, &self.low.route::<K>(), right.offset());
        } else {
            self.step = Step::Merged;
        }
        let all = pm.flush_words(left.words()); // also what is in free slots, which a crash must not change
        pm.fence(all)?;
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Drop
    for Merging<'_, K, V, M, LEAF, BUFFER>
{
    fn drop(&mut self) {
        if self.step == Step::Started {
            // A fence that fails poisons the pool: nothing is written any more, and reads find the records.
            let _ = self.decide();
        }
        if self.step == Step::Merged {
            self.complete();
        }
    }
}
