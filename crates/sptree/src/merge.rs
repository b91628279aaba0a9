//! Two nearly empty neighbours merge: the right one's records move to the left one.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P0 | the backup forgets the right Bnode | P2 |
//! | P1 | the records and their tags, in free slots of the left Bnode; the ticket "the right one lives while the left one's `next` leads there" | P2 |
//! | P2 | the left Bnode's `next`, with the ghosts bit; its bitmap; `next` past the right Bnode (the merge is decided): one line, in this order | unlock |
//!
//! Before the last store of P2 the moved records are the right Bnode's, and the left one says that it
//! may hold some; recovery clears them. What is left of the range is its Bnode's whose `next` covers
//! it: there is no high key to be widened over old records.
//!
//! Both Mnodes are locked throughout, the left one first. The first Bnode stays.

use pmindex_core::{Flushed, Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Route, Slot};

use crate::layout::{BnodePtr, Next, Taken, bits};
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

/// Where records went: slot of the right Bnode, slot of the left one.
type Went = Vec<(usize, usize)>;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Whether a Bnode that has just come down to `len` records looks for a neighbour to merge with:
    /// not at every removal.
    #[inline(always)]
    pub(crate) const fn may_merge(len: usize) -> bool {
        len <= LEAF / 4 && len.is_multiple_of(if LEAF < 32 { 1 } else { LEAF / 16 })
    }

    /// Whether two neighbours with so many records merge.
    const fn should_merge(left: usize, right: usize) -> bool {
        right == 0 || left + right <= LEAF / 2
    }

    /// Merges the Bnode of a key with a neighbour, if there is one to merge with. What cannot be done
    /// now (the pool is full) is left until it shrinks further.
    #[cold]
    #[inline(never)]
    pub(crate) fn merge_beside(&self, route: &Route<'_>) {
        let at = self.locate(route);
        let (next, prev) = (self.middle.next(at.node), self.middle.prev(at.node));
        if next == NONE || !self.merge(at.index, next).unwrap_or(false) {
            if prev == NONE {
                return;
            }
            let _ = self.merge(prev, at.index);
        }
    }

    /// Merges two Mnodes and their Bnodes, if they (still) are neighbours and should.
    pub(crate) fn merge(&self, left_index: u32, right_index: u32) -> Result<bool, IndexError> {
        let (pm, middle) = (self.pm(), &self.middle);
        let (left, right) = (middle.get(left_index), middle.get(right_index));
        let (kept, moved) = (middle.taken(left, LEAF), middle.taken(right, LEAF));
        if !Self::should_merge(kept.len(), moved.len()) {
            return Ok(false);
        }
        let left_guard = left.lock.lock(pm);
        let alive = middle.dram.load(&left.bnode) != 0;
        if !alive || middle.next(left) != right_index {
            return Ok(false);
        }
        // A right neighbour lives: it ends under the lock of the left one.
        let right_guard = right.lock.lock(pm);
        self.settle(left)?;
        self.settle(right)?;
        let (kept, moved) = (middle.taken(left, LEAF), middle.taken(right, LEAF));
        if !Self::should_merge(kept.len(), moved.len()) {
            return Ok(false);
        }
        let pair = Pair { left: self.bnode_of(left)?, right: self.bnode_of(right)?, kept, moved };
        let low = middle.low_route(right);
        self.backup.forget::<K>(pm, &low.route::<K>())?; // P0, durable before: P2
        let went = match self.merge_bnodes(&pair) {
            Ok(went) => went,
            Err(error) => {
                self.backup.note::<K>(pm, &low.route::<K>(), pair.right.offset());
                return Err(error.into());
            }
        };
        self.top.remove(pm, middle, &low.route::<K>());
        let tail = middle.low_of(right).tail;
        self.take_buffer(right);
        self.unlink_mnode(left, left_index, right, &went);
        drop((left_guard, right_guard));
        middle.tails.free(tail);
        middle.free(right_index);
        Ok(true)
    }

    /// The persistent part.
    fn merge_bnodes(&self, pair: &Pair<'_, K, V, LEAF>) -> Result<Went, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let Pair { left, right, moved, .. } = pair;
        let mut op = pool.op()?;
        // P1: the records and the tickets.
        let (taken, moves, copied) = self.copy_records(pair)?;
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
        finish(pool, op, || left.flush_header(pm))?; // DUR
        Ok(moves)
    }

    /// Copies the right Bnode's records, without their blocks, into free slots of the left one.
    #[allow(clippy::type_complexity, reason = "three results of one loop")]
    fn copy_records(&self, pair: &Pair<'_, K, V, LEAF>) -> Result<(Taken, Went, Flushed), PmError> {
        let pm = self.pm();
        let Pair { left, right, kept, moved } = pair;
        let (mut taken, mut moves, mut copied) = (*kept, Went::new(), Flushed::nothing());
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
        Ok((taken, moves, copied))
    }

    /// Takes the right Mnode out of the list, its tags moved to the left one; both are locked.
    fn unlink_mnode(&self, left: &Mnode, left_index: u32, right: &Mnode, moves: &Went) {
        let middle = &self.middle;
        for &(from, to) in moves {
            middle.put_tag(left, to, middle.tag(right, from));
        }
        let next = middle.next(right);
        middle.put_high(left, middle.high_of(right));
        middle.dram.store(&left.right, middle.dram.load(&left.right).with_next(next));
        if next != NONE {
            middle.dram.store(&middle.get(next).prev, u64::from(left_index));
        }
        middle.dram.store(&right.bnode, 0);
    }
}
