//! The records of a Bnode in the order of their keys, found without a copy of the keys.
//!
//! Byte strings lie out of line, a block for each record. The first lines of all blocks are fetched
//! together. Then the keys are sorted by SIMD rank of eight bytes each, those behind their common prefix;
//! keys that are equal there are sorted by the next eight bytes.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{RecordBlock, Slot, bits, sort_keys};

use crate::layout::{MAX_LEAF, Taken};
use crate::leaf::Bnode;

/// A Bnode's records in order.
pub(crate) struct Order<'p> {
    /// The number of records.
    len: usize,
    /// In order: the number of the record.
    ranks: [u8; MAX_LEAF],
    /// By number: its slot.
    slots: [u8; MAX_LEAF],
    /// By number: its block, if keys are byte strings.
    blocks: [RecordBlock<'p>; MAX_LEAF],
}

impl<'p> Order<'p> {
    /// Returns the order of some slots. Racing: validate.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] for a slot that points to no block.
    pub(crate) fn of<K: Key, V: Value, M: Medium, const LEAF: usize>(
        pool: &'p Pool<M>,
        bnode: &Bnode<'_, K, V, LEAF>,
        taken: Taken,
    ) -> Result<Self, PmError> {
        let pm = pool.pm();
        let mut order = Self {
            len: 0,
            ranks: [0; MAX_LEAF],
            slots: [0; MAX_LEAF],
            blocks: [RecordBlock::EMPTY; MAX_LEAF],
        };
        let taken = || bits(taken.slots()).filter(|&i| i < LEAF);
        if K::SHAPE.is_bytes() {
            fetch_blocks(pool, bnode, taken());
        }
        for i in taken() {
            if K::SHAPE.is_bytes() {
                let block = Slot::<K, V>::block(pm, bnode.slot(i));
                order.blocks[order.len] = RecordBlock::at(pool, block)?;
            }
            order.slots[order.len] = i as u8;
            order.ranks[order.len] = order.len as u8;
            order.len += 1;
        }
        let Self { len, ranks, slots, blocks } = &mut order;
        match K::SHAPE {
            Shape::Inline(n) => {
                let word = |at: u8, word: usize| {
                    let slot = usize::from(slots[usize::from(at)]);
                    if word < n { pm.load_word(&bnode.slot(slot)[word]) } else { 0 }
                };
                sort_keys(&mut ranks[..*len], 0, &word, &|_| 8 * n);
            }
            Shape::Bytes => {
                let word = |at: u8, word: usize| blocks[usize::from(at)].key_word(pm, word);
                sort_keys(&mut ranks[..*len], 0, &word, &|at| blocks[usize::from(at)].key_len());
            }
        }
        Ok(order)
    }

    /// Returns the number of records.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot of the `at`th record.
    pub(crate) fn slot(&self, at: usize) -> usize {
        usize::from(self.slots[usize::from(self.ranks[at])])
    }

    /// Returns the slots, in order.
    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
        (0..self.len).map(|at| self.slot(at))
    }

    /// Returns the block of the `at`th record, if keys are byte strings.
    pub(crate) fn block(&self, at: usize) -> &RecordBlock<'p> {
        &self.blocks[usize::from(self.ranks[at])]
    }
}

/// Fetches the first lines of the blocks of some slots. A hint.
pub(crate) fn fetch_blocks<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    bnode: &Bnode<'_, K, V, LEAF>,
    slots: impl Iterator<Item = usize>,
) {
    for i in slots {
        RecordBlock::prefetch(pool, Slot::<K, V>::block(pool.pm(), bnode.slot(i)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::SpTree;

    #[test]
    fn records_are_in_order_with_their_slots_and_blocks() {
        let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
        let tree = SpTree::<Vec<u8>, u64>::create(&pool, "t").expect("room");
        let key =
            |n: u64| [&b"the same beginning "[..], &n.to_string().repeat(3).into_bytes()].concat();
        let mut keys: Vec<Vec<u8>> = (0..40).map(|n| key(n * 17 % 40)).collect();
        for (value, key) in (0..).zip(&keys) {
            tree.try_insert(key, &value).expect("room").expect("done");
        }
        keys.sort_unstable();
        let bnode =
            tree.leaves.bnode(tree.locate(&pmindex_record::Route::LEAST).bnode).expect("intact");
        let order = Order::of(&pool, &bnode, bnode.taken(pool.pm())).expect("intact");
        assert_eq!(order.len(), keys.len());
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(&order.block(at).key(pool.pm()), key);
            let slot = bnode.slot(order.slot(at));
            assert_eq!(&Slot::<Vec<u8>, u64>::key(&pool, slot).expect("intact"), key);
        }
    }
}
