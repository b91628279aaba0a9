//! Nodes with few records merge; an emptied node is given back.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | copies of the right node's records in free slots of the left one, with their fingerprints; the entry of the log | P2 |
//! | P2 | the left node's bitmap with the copies, then its `next`, past the right node: one line; `prev` of the node behind | unlock |
//!
//! If a crash leaves the bitmap without `next`, opening takes the copies back: see [`follow`](crate::follow),
//! and what comes after P2. Both nodes are locked, so no other thread sees a copy that a crash could take back.

use pmindex_core::{Medium, PmError, Word};
use pmindex_index::{Key, MAX_INLINE_WORDS, Value};
use pmindex_record::{Probe, bits};

use crate::access::At;
use crate::follow::What;
use crate::layout::{Geometry, Next, Slot};
use crate::node::{Node, more_than_slots};
use crate::tree::PacTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    /// Merges the node of a key, which has `left` records, with a neighbour, if both together have few; then those that
    /// there was no room to merge before. An error is none of the removal's, which is durable.
    #[cold]
    #[inline(never)]
    pub(crate) fn merge_around(&self, probe: &Probe<'_, K>, left: usize) {
        let Ok(mut at) = self.locate_probe(probe) else { return };
        let mut left = left;
        loop {
            let low = self.node(at.node).and_then(|node| node.low(&self.pool));
            let (Ok(low), true) = (low, at.validate(self.pm())) else { return };
            match self.merge_at(&at, left) {
                Ok(()) => {}
                Err(error) if error.is_full() => return self.owed.note(self.pm(), low),
                Err(_) => return,
            }
            let Some(low) = self.owed.take(self.pm()) else { return };
            // The log has to have room for the next merge.
            let (_, Ok(owed)) = (self.catch_up(), self.locate(&low, false)) else { return };
            let Ok(node) = self.node(owed.node) else { return };
            left = node.bitmap(self.pm()).count_ones() as usize;
            at = owed;
        }
    }

    fn merge_at(&self, at: &At<'_>, left: usize) -> Result<(), PmError> {
        let pm = self.pm();
        let most = Geometry::<K, V, LEAF>::MERGED;
        let here = self.node(at.node)?;
        let (next, prev) = (here.next(pm).offset(), here.prev(pm));
        if !at.validate(pm) {
            return Ok(());
        }
        let few = |other: u64| -> Result<bool, PmError> {
            let records = self.node(other)?.bitmap(pm).count_ones() as usize;
            Ok(records + left <= most || left == 0)
        };
        if at.node != self.head && prev != 0 && few(prev)? && self.merge(prev, at.node)? {
            return Ok(());
        }
        if next != 0 && few(next)? {
            self.merge(at.node, next)?;
        }
        Ok(())
    }

    /// Merges two nodes, if they are neighbours and have few records. Returns whether it did.
    pub(crate) fn merge(&self, left: u64, right: u64) -> Result<bool, PmError> {
        self.merge_within(left, right, Geometry::<K, V, LEAF>::MERGED)
    }

    /// As [`merge`](Self::merge), if they have at most `most` records.
    pub(crate) fn merge_within(&self, left: u64, right: u64, most: usize) -> Result<bool, PmError> {
        let pm = self.pm();
        // Both locks are only tried: a thread that cannot have one lets the other go.
        let Some(guard) = self.lock_of(left).try_lock(pm) else { return Ok(false) };
        let shared = guard.is_of(self.lock_of(right));
        let other = if shared { None } else { self.lock_of(right).try_lock(pm) };
        if other.is_none() && !shared {
            return Ok(false);
        }
        let (into, from) = (self.node(left)?, self.node(right)?);
        let (next, behind) = (into.next(pm), from.next(pm));
        let (bitmap, moved) = (into.bitmap(pm), from.bitmap(pm));
        let records = bitmap.count_ones() + moved.count_ones();
        if next.is_gone() || next.offset() != right || (records as usize > most && moved != 0) {
            return Ok(false);
        }
        // Dropped in this order: the left node's, when all is durable, then the right one's.
        let locked = self.locked(left, guard);
        self.merge_into(&into, &from, behind)?;
        locked.done();
        drop(other);
        Ok(true)
    }

    fn merge_into(
        &self,
        into: &Node<'_, K, V, LEAF>,
        from: &Node<'_, K, V, LEAF>,
        behind: Next,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        self.check_behind(behind)?;
        let (mut bitmap, moved) = (into.bitmap(pm), from.bitmap(pm));
        let mut changing = self.changing(from.offset())?;
        let mut op = pool.op()?;
        // P1.
        let mut words = [0; 2 * MAX_INLINE_WORDS + 1];
        let words = &mut words[..Slot::<K, V>::WORDS];
        let (mut written, mut copies) = (Vec::new(), 0);
        for slot in bits(moved & Geometry::<K, V, LEAF>::ALL) {
            let Some(to) = Node::<K, V, LEAF>::free_slot(bitmap) else {
                return Err(more_than_slots(from.offset()));
            };
            pm.read_words(from.slot(slot), words);
            pm.write_words(into.slot(to), words);
            written.push(into.slot(to));
            written.push(into.put_fingerprint(pm, to, from.fingerprint(pm, slot)));
            bitmap |= 1 << to;
            copies |= 1 << to;
        }
        into.announce(&mut op, copies);
        from.announce(&mut op, moved);
        // The tickets of splits of the two may name these: the left one's changes, and the right one's gets a mark,
        // which may become durable at any time.
        op.changes(into.next_cell());
        op.changes(from.next_cell());
        let change = changing.push(What::Merge, into.offset(), from.offset())?;
        let staged = op.stage();
        changing.commit(change, staged.and(pm.flush_together(&mut written)))?;
        // P2.
        pm.store_word(into.bitmap_cell(), bitmap);
        pm.in_order();
        pm.store_word(into.next_cell(), Next::to(behind.offset()).into_word());
        let sealed = op.seal();
        let linked = pm.flush_words(into.header()).and(self.link_back(&change, true)?);
        let durable = pm.fence(sealed.and(linked))?; // DUR
        op.finish(durable);
        changing.done()
    }
}
