//! A full Bnode splits.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new Bnode, its `next` and low key included; its ticket | P2 |
//! | P2 | the old Bnode's `next`, with the ghosts bit (the split is decided); its bitmap without the moved records; `next` without the bit: one line, in this order | unlock |
//!
//! Between the first and the second store of P2 the old Bnode holds records that are the new one's,
//! and says so; recovery clears them. The paper stores a high key first, then the bitmap, and lets
//! ghosts lie until the next split; a merge before that brings them back.
//!
//! Then the layers above: an Mnode with the upper half of the range, the radix tree, and the queue of
//! the backup. The old Mnode is locked throughout.

use pmindex_core::{Flushed, Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Slot};

use crate::image::Image;
use crate::layout::{Geometry, MAX_LEAF, Next, Taken};
use crate::leaf::{Bnode, finish};
use crate::low::Low;
use crate::middle::{NONE, Range};
use crate::tree::SpTree;
use crate::write::Held;

/// Which records move, and the low key of their Bnode.
struct Plan<K> {
    /// Keys and slots of the records that move.
    moved: Vec<(K, usize)>,
    low: Low,
}

/// The new Bnode.
struct Right {
    offset: u64,
    tags: [u64; MAX_LEAF / 8],
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// How many entries of the backup wait before a split puts them in.
    const BEHIND: usize = if LEAF > 8 { 64 } else { 2 };

    /// Splits a Bnode, which has at least two records, in half; or, if `incoming` is greater than
    /// every key of the index, so that ascending keys leave full Bnodes.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(
        &self,
        held: Held<'_, K, V, LEAF>,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<(), IndexError> {
        let plan = self.plan(&held, incoming)?;
        let route = plan.low.route::<K>();
        let low = self.middle.tails.store::<K>(&self.middle.dram, &route)?;
        let made = self.middle.alloc().and_then(|index| {
            match self.split_bnode(&held.bnode, held.taken, &plan) {
                Ok(right) => Ok((index, right)),
                Err(error) => {
                    self.middle.free(index);
                    Err(error)
                }
            }
        });
        let (index, right) = match made {
            Ok(made) => made,
            Err(error) => {
                self.middle.tails.free(low.tail);
                return Err(error.into());
            }
        };
        self.link_mnode(&held, index, &right, low);
        for (_, slot) in &plan.moved {
            self.middle.put_tag(held.node, *slot, 0);
        }
        self.top.insert(self.pm(), &self.middle, &route, index);
        self.backup.note::<K>(self.pm(), &route, right.offset);
        drop(held.guard);
        if self.backup.waiting() >= Self::BEHIND {
            self.backup.step(self.pm());
        }
        Ok(())
    }

    fn plan(
        &self,
        held: &Held<'_, K, V, LEAF>,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<Plan<K>, PmError> {
        let left = &held.bnode;
        let mut sorted = left.sorted(&self.pool, held.taken)?;
        if sorted.len() < 2 {
            let what = "a full Bnode without records";
            return Err(PmError::Corrupt { what, offset: left.offset() });
        }
        let appending = match (incoming, sorted.last()) {
            (Some(probe), Some((_, last))) if self.middle.next(held.node) == NONE => {
                Slot::<K, V>::cmp_key(&self.pool, left.slot(*last), probe)?.is_lt()
            }
            _ => false,
        };
        let keep = if appending { sorted.len() - 1 } else { sorted.len().div_ceil(2) };
        let moved = sorted.split_off(keep);
        let low = Low::between(&sorted[keep - 1].0, &moved[0].0);
        Ok(Plan { moved, low })
    }

    /// The persistent part.
    fn split_bnode(
        &self,
        left: &Bnode<'_, K, V, LEAF>,
        taken: Taken,
        plan: &Plan<K>,
    ) -> Result<Right, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut image = Image::<K, V, LEAF>::new();
        for (key, from) in &plan.moved {
            let words = left.slot(*from);
            image.push(&Probe::<K>::of_stored(key), |slot| pm.read_words(words, slot))?;
        }
        let kept = plan.moved.iter().fold(taken, |taken, (_, slot)| taken.without(*slot));
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
        image.words[Geometry::<K, V, LEAF>::APPLIED] = self.applied_of_new();
        let filled = pm.stream_words(self.bnode(offset)?.words(), &image.words);
        if Slot::<K, V>::HAS_BLOCK {
            // Earlier tickets may name the words that no longer own a moved record's block.
            op.changes(left.bitmap_cell());
            for (_, slot) in &plan.moved {
                op.changes(&left.slot(*slot)[Slot::<K, V>::BLOCK_WORD]);
            }
        }
        op.prepare(filled.and(filled_low))?;
        // P2: the link with the mark, the bitmap, the link without: one line.
        left.relink(pm, Next::to(offset), kept, Next::to(offset));
        finish(pool, op, || left.flush_header(pm))?; // DUR
        Ok(Right { offset, tags: image.tags() })
    }

    /// Puts the new Bnode's Mnode on the right of the old one.
    fn link_mnode(
        &self,
        held: &Held<'_, K, V, LEAF>,
        index: u32,
        right: &Right,
        low: pmindex_record::Separator,
    ) {
        let (pm, middle, node) = (self.pm(), &self.middle, held.node);
        let links = middle.dram.load(&node.right);
        let range = Range { low, high: middle.high_of(node) };
        let neighbours = (held.index, links.next());
        middle.fill(pm, index, right.offset, &range, neighbours, &right.tags);
        if links.next() != NONE {
            middle.dram.store(&middle.get(links.next()).prev, u64::from(index));
        }
        middle.put_high(node, low);
        middle.dram.store(&node.right, links.with_next(index));
    }
}
