//! A full node splits.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new node, its low key, tickets of both; the entry of the log | P2 |
//! | P2 | the old node's `next`, then its bitmap without the moved records: one line; `prev` of the node behind | unlock |
//!
//! If a crash leaves `next` without the bitmap, opening takes the moved records from the old node: see
//! [`follow`](crate::follow), and what comes after P2.

use pmindex_core::{Medium, Owner, PmError, Word};
use pmindex_index::{IndexError, Key, Shape, Value};
use pmindex_record::{Probe, low_between, ordered_bytes};

use crate::follow::What;
use crate::layout::{Geometry, Next, Slot};
use crate::node::{Low, Node, more_than_slots};
use crate::tree::PacTree;
use crate::write::Held;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    /// Splits a node in half; or, if `incoming` is greater than every key of the index, so that ascending
    /// keys leave full nodes.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(
        &self,
        held: Held<'_, K, V, M, LEAF>,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<(), IndexError> {
        let Held { node, bitmap, locked, .. } = held;
        if self.is_stuck()
            && let Err(error) = self.follow_one(true)
        {
            locked.done();
            return Err(error.into());
        }
        let split = self.split_node(&node, bitmap, incoming);
        if split.is_ok() {
            locked.done();
            // Without room for the trie this split is taken back, or the next one does not come about.
            self.catch_up().or_else(|error| if error.is_full() { Err(error) } else { Ok(()) })?;
        }
        Ok(split?)
    }

    fn split_node(
        &self,
        left: &Node<'_, K, V, LEAF>,
        bitmap: u64,
        incoming: Option<&Probe<'_, K>>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let order = left.order(pool, bitmap)?;
        let slots = order.slots();
        let (Some(&last), true) = (slots.last(), slots.len() > 1) else {
            let what = "a full node without records";
            return Err(PmError::Corrupt { what, offset: left.offset() });
        };
        let next = left.next(pm);
        self.check_behind(next)?;
        let appending = match incoming {
            Some(probe) if next.offset() == 0 => {
                Slot::<K, V>::cmp_key(pool, left.slot(last.into()), probe)?.is_lt()
            }
            _ => false,
        };
        let keep = if appending { slots.len() - 1 } else { slots.len().div_ceil(2) };
        let low = self.low_between(left, slots[keep - 1], slots[keep])?;
        let moved = slots[keep..].iter().fold(0, |moved, slot| moved | 1 << slot);
        let mut changing = self.changing(0)?;
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let offset = block.ptr().offset();
        let owner = Owner { word: left.next_cell(), mask: u64::MAX, expect: offset };
        // P1.
        op.allocate(&block, owner)?;
        let mut image = vec![0; Geometry::<K, V, LEAF>::WORDS];
        let low_words = &mut image[Geometry::<K, V, LEAF>::LOW..];
        let low_words = &mut low_words[..Geometry::<K, V, LEAF>::LOW_WORDS];
        let filled_low = low.put::<K, M>(pool, &mut op, low_words, owner)?;
        self.fill_right(left, &slots[keep..], &mut image)?;
        image[1] = next.into_word();
        image[2] = left.offset();
        let filled = pm.stream_words(self.node(offset)?.words(), &image);
        left.announce(&mut op, moved);
        let change = changing.push(What::Split, left.offset(), offset)?;
        let staged = op.stage();
        changing.commit(change, staged.and(filled).and(filled_low))?;
        // P2.
        pm.store_word(left.next_cell(), Next::to(offset).into_word());
        pm.in_order();
        pm.store_word(left.bitmap_cell(), bitmap & !moved);
        let sealed = op.seal();
        let linked = pm.flush_words(left.header()).and(self.link_back(&change, true)?);
        let durable = pm.fence(sealed.and(linked))?; // DUR
        op.finish(durable);
        pool.note_split();
        changing.done()
    }

    /// Puts the moved records into the image of the new node, each in the slot that it prefers or near it.
    fn fill_right(
        &self,
        left: &Node<'_, K, V, LEAF>,
        moved: &[u8],
        image: &mut [u64],
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let words = Slot::<K, V>::WORDS;
        for &from in moved {
            let home = left.home(&self.pool, from.into())?;
            let Some(to) = Node::<K, V, LEAF>::free_slot_near(image[0], home) else {
                return Err(more_than_slots(left.offset()));
            };
            image[0] |= 1 << to;
            let slot = Geometry::<K, V, LEAF>::SLOTS + to * words;
            pm.read_words(left.slot(from.into()), &mut image[slot..slot + words]);
            image[Geometry::<K, V, LEAF>::FINGERPRINTS + to / 8] |=
                u64::from(left.fingerprint(pm, from.into())) << (8 * (to % 8));
        }
        Ok(())
    }

    /// Returns the low key of a node between these two slots: the right one's key if keys are inline, else the
    /// shortest beginning of it that is greater than the left one.
    fn low_between(
        &self,
        node: &Node<'_, K, V, LEAF>,
        left: u8,
        right: u8,
    ) -> Result<Low, PmError> {
        let key = |slot: u8| Slot::<K, V>::key(&self.pool, node.slot(slot.into()));
        let right = key(right)?;
        let right = ordered_bytes::<K>(right.borrowed());
        let bytes = match K::SHAPE {
            Shape::Inline(_) => right.to_vec(),
            Shape::Bytes => {
                let left = key(left)?;
                let left = ordered_bytes::<K>(left.borrowed());
                low_between(&left, &right, node.offset())?.to_vec()
            }
        };
        Ok(Low { bytes })
    }
}
