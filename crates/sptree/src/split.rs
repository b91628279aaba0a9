//! A full Bnode splits.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new Bnode, its `next` and low key included; its ticket | P2 |
//! | P2 | the old Bnode's `next`, with the ghosts bit (the split is decided); its bitmap without the moved records; `next` without the bit: one line, in this order | unlock |
//!
//! Between the first and the second store of P2 the old Bnode holds records that are the new one's,
//! and its `next` says so; recovery clears them. The paper stores a high key first, then the bitmap, and
//! leaves ghosts until the next split; a merge before that makes them visible again.
//!
//! Then the layers above: an Mnode with the upper half of the range, the radix tree, and the queue of
//! the backup. The old Mnode is locked throughout.

use pmindex_core::{Flushed, Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Separator, Slot};

use crate::buffer::WriteBuffers;
use crate::image::Image;
use crate::layout::{Geometry, MAX_LEAF, Next, Taken};
use crate::leaf::finish;
use crate::leaves::Held;
use crate::low::Low;
use crate::middle::{NONE, Range, exact};
use crate::order::Order;
use crate::tree::SpTree;

/// The records that move, and the low key of their new Bnode.
struct Plan {
    /// Slots of the records that move, in the order of their keys.
    moved: Vec<usize>,
    /// The bitmap without them.
    kept: Taken,
    low: Low,
}

/// The new Bnode.
#[derive(Clone, Copy)]
struct Right {
    offset: u64,
    tags: [u64; MAX_LEAF / 8],
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Entries that wait for the backup before a split inserts them: enough to share fences and misses, and
    /// to delay less than one insert in a thousand.
    const BEHIND: usize = if LEAF > 8 { 64 } else { 2 };

    /// Splits a Bnode, which has at least two records, in half; or, if `incoming` is greater than every key
    /// of the index, behind its last but one record, so that ascending keys leave full Bnodes.
    ///
    /// Even after an error or a panic the layers in DRAM agree with the Bnodes when the lock is released.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(
        &self,
        held: Held<'_, K, V, LEAF>,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<(), IndexError> {
        let plan = self.plan(&held, incoming)?;
        let mut splitting = Splitting::new(self, &held, &plan)?;
        splitting.right = Some(self.split_bnode(&held, &plan)?);
        splitting.complete();
        drop(splitting);
        drop(held.guard); // LIN
        if self.backup.waiting() >= Self::BEHIND {
            self.backup.step(self.pm());
        }
        Ok(())
    }

    fn plan(
        &self,
        held: &Held<'_, K, V, LEAF>,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<Plan, PmError> {
        let left = &held.bnode;
        let order = Order::of(&self.pool, left, held.taken)?;
        let count = order.len();
        if count < 2 {
            let what = "a full Bnode without records";
            return Err(PmError::Corrupt { what, offset: left.offset() });
        }
        let appending = match incoming {
            Some(probe) if self.leaves.middle.next(held.node) == NONE => {
                let last = left.slot(order.slot(count - 1));
                Slot::<K, V>::cmp_key(&self.pool, last, probe)?.is_lt()
            }
            _ => false,
        };
        let keep = if appending { count - 1 } else { count.div_ceil(2) };
        let key = |at| Slot::<K, V>::key(&self.pool, left.slot(order.slot(at)));
        let low = Low::between(&key(keep - 1)?, &key(keep)?, left.offset())?;
        let moved: Vec<usize> = order.slots().skip(keep).collect();
        let kept = moved.iter().fold(held.taken, |taken, &slot| taken.without(slot));
        Ok(Plan { moved, kept, low })
    }

    /// Returns the persistent part.
    fn split_bnode(&self, held: &Held<'_, K, V, LEAF>, plan: &Plan) -> Result<Right, PmError> {
        let (pool, pm, left) = (&*self.pool, self.pm(), &held.bnode);
        let mut image = Image::<K, V, LEAF>::new();
        for &from in &plan.moved {
            let (tag, words) = (self.leaves.middle.tag(held.node, from), left.slot(from));
            image.push(tag, |slot| pm.read_words(words, slot))?;
        }
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let low_block = plan.low.reserve::<K, M>(&mut op)?;
        let offset = block.ptr().offset();
        let owner = left.owner_of_next(offset);
        // P1: everything about the new Bnode, before anything leads to it.
        op.allocate(&block, owner)?;
        let low = plan.low.allocate(&mut op, low_block.as_ref(), owner)?;
        let filled_low =
            if K::SHAPE.is_bytes() { plan.low.fill(pool, low[0])? } else { Flushed::nothing() };
        image.finish(left.next(pm), &low);
        image.words[Geometry::<K, V, LEAF>::APPLIED] =
            self.buffers().map_or(0, WriteBuffers::applied_of_new);
        let filled = pm.stream_words(self.leaves.bnode(offset)?.words(), &image.words);
        if Slot::<K, V>::HAS_BLOCK {
            // Earlier tickets may name the words that no longer own a moved record's block.
            op.changes(left.bitmap_cell());
            for &slot in &plan.moved {
                op.changes(&left.slot(slot)[Slot::<K, V>::BLOCK_WORD]);
            }
        }
        op.prepare(filled.and(filled_low))?;
        // P2: the link with the mark, the bitmap, the link without: one line.
        left.relink(pm, Next::to(offset), plan.kept, Next::to(offset));
        finish(pool, op, || left.flush_header(pm))?; // DUR
        pool.note_split();
        Ok(Right { offset, tags: image.tags() })
    }
}

/// A split in progress. The link of the old Bnode decides whether it happened. If an error or a panic ends
/// it, dropping this brings the rest into line with the link. To be dropped before the lock.
struct Splitting<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    held: &'t Held<'t, K, V, LEAF>,
    plan: &'t Plan,
    /// The new Mnode, and its low key.
    index: u32,
    low: Separator,
    /// The old Bnode's link before the split.
    before: u64,
    /// The new Bnode, if the split has happened and is durable.
    right: Option<Right>,
    /// `true` if its entry is queued for the backup.
    noted: bool,
    complete: bool,
}

impl<'t, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Splitting<'t, K, V, M, LEAF, BUFFER>
{
    fn new(
        tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
        held: &'t Held<'t, K, V, LEAF>,
        plan: &'t Plan,
    ) -> Result<Self, PmError> {
        let before = held.bnode.next(tree.pm()).offset();
        let index = tree.leaves.middle.alloc()?;
        let low = match tree
            .leaves
            .middle
            .tails
            .store::<K>(&tree.leaves.middle.dram, &plan.low.route::<K>())
        {
            Ok(low) => low,
            Err(error) => {
                tree.leaves.middle.free(index);
                return Err(error);
            }
        };
        let (right, noted, complete) = (None, false, false);
        Ok(Self { tree, held, plan, index, low, before, right, noted, complete })
    }

    /// Updates the layers above the new Bnode. May be interrupted, and done again.
    fn complete(&mut self) {
        let (tree, Some(right)) = (self.tree, self.right) else { return };
        let (pm, route) = (tree.pm(), self.plan.low.route::<K>());
        if tree.leaves.middle.next(self.held.node) != self.index {
            self.link_mnode(&right);
        }
        for &slot in &self.plan.moved {
            tree.leaves.middle.put_tag(self.held.node, slot, 0);
        }
        tree.top.insert(pm, &tree.leaves.middle, &route, self.index);
        let high = tree.leaves.middle.high_of(tree.leaves.middle.get(self.index)).prefix;
        let last = tree.leaves.middle.next(tree.leaves.middle.get(self.index)) == NONE;
        tree.guide.add_right((self.low.prefix, if last { u64::MAX } else { high }), self.index);
        if !self.noted {
            tree.backup.queue::<K>(pm, &route, right.offset);
            self.noted = true;
        }
        self.complete = true;
    }

    /// Links the new Bnode's Mnode to the right of the old one.
    fn link_mnode(&self, right: &Right) {
        let (pm, middle, node) = (self.tree.pm(), &self.tree.leaves.middle, self.held.node);
        let links = middle.dram.load(&node.right);
        let range = Range { low: self.low, high: middle.high_of(node) };
        let neighbours = (self.held.index, links.next());
        let filled = middle.fill(pm, self.index, right.offset, &range, neighbours, &right.tags);
        if links.next() != NONE {
            middle.dram.store(&middle.get(links.next()).prev, u64::from(self.index));
        }
        middle.put_high(node, self.low);
        middle.dram.store(&node.right, links.with_next(self.index));
        drop(filled); // LIN(the new Mnode): both neighbours name it
    }

    /// Finds out whether the split has happened, and if so makes it durable.
    fn decide(&mut self) -> Result<(), PmError> {
        let (pm, left) = (self.tree.pm(), &self.held.bnode);
        let offset = left.next(pm).offset();
        if offset == self.before || self.right.is_some() {
            return Ok(());
        }
        let right = self.tree.leaves.bnode(offset)?;
        let mut tags = [0; MAX_LEAF / 8];
        pm.read_words(right.tag_cells(), &mut tags);
        self.right = Some(Right { offset, tags: exact(tags, right.taken(pm)) });
        left.relink(pm, Next::to(offset), self.plan.kept, Next::to(offset));
        let linked = left.flush_header(pm);
        pm.fence(linked)?;
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> Drop
    for Splitting<'_, K, V, M, LEAF, BUFFER>
{
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        // A fence that fails poisons the pool: nothing is written any more, and reads find the records.
        let _ = self.decide();
        if self.right.is_some() {
            self.complete();
        } else {
            self.tree.leaves.middle.tails.free(self.low.tail);
            self.tree.leaves.middle.free(self.index);
        }
    }
}
