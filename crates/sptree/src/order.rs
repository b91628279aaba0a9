//! The records of a Bnode in the order of their keys, found without a copy of the keys.
//!
//! Byte strings lie out of line, a block for each record. The first lines of all blocks are fetched
//! together. Then eight bytes of each key, those behind what all of them begin with, are sorted by
//! SIMD rank, and where they tell some keys not apart, the next ones of those. All that is compared is
//! a private copy, so that whatever is raced with, the sort comes to an end.

use pmindex_core::{Medium, PmError, Pool, rank_sort};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{RecordBlock, Slot};

use crate::layout::{MAX_LEAF, Taken, bits};
use crate::leaf::Bnode;

/// A Bnode's records in order.
pub(crate) struct Order<'p> {
    /// How many.
    len: usize,
    /// In order: the number of the record.
    ranks: [u8; MAX_LEAF],
    /// By number: its slot.
    slots: [u8; MAX_LEAF],
    /// By number: its block, if keys are byte strings.
    blocks: [RecordBlock<'p>; MAX_LEAF],
}

impl<'p> Order<'p> {
    /// The order of some slots. Racing: validate.
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
                sort(&mut ranks[..*len], 0, &word, &|_| 8 * n);
            }
            Shape::Bytes => {
                let word = |at: u8, word: usize| blocks[usize::from(at)].key_word(pm, word);
                sort(&mut ranks[..*len], 0, &word, &|at| blocks[usize::from(at)].key_len());
            }
        }
        Ok(order)
    }

    /// How many records.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The slot of the `at`th record.
    pub(crate) fn slot(&self, at: usize) -> usize {
        usize::from(self.slots[usize::from(self.ranks[at])])
    }

    /// The slots, in order.
    pub(crate) fn slots(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
        (0..self.len).map(|at| self.slot(at))
    }

    /// The block of the `at`th record, if keys are byte strings.
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

/// Sorts keys that agree in their first words, `from` of them: `word` gives a key's words, most
/// significant byte first and with zeros behind its end, `len` its bytes.
fn sort(
    keys: &mut [u8],
    mut from: usize,
    word: &impl Fn(u8, usize) -> u64,
    len: &impl Fn(u8) -> usize,
) {
    let mut words = [0; MAX_LEAF];
    let words = &mut words[..keys.len()];
    let common = loop {
        let Some(&first) = keys.first() else { return };
        let (first, mut differ) = (word(first, from), 0);
        for (to, &key) in words.iter_mut().zip(&*keys) {
            *to = word(key, from);
            differ |= *to ^ first;
        }
        if differ != 0 {
            break differ.leading_zeros() / 8 * 8;
        }
        from += 1;
        if keys.iter().all(|&key| len(key) <= 8 * from) {
            // Zeros at the end are all that may be between them.
            keys.sort_unstable_by_key(|&key| (len(key), key));
            return;
        }
    };
    from += 1;
    if common > 0 {
        for (to, &key) in words.iter_mut().zip(&*keys) {
            *to = *to << common | word(key, from) >> (64 - common);
        }
    }
    let mut ranks = [0; 64];
    let ranks = rank_sort(words, &mut ranks);
    let mut sorted = [0; MAX_LEAF];
    for (to, &rank) in sorted.iter_mut().zip(ranks) {
        *to = keys[usize::from(rank)];
    }
    keys.copy_from_slice(&sorted[..keys.len()]);
    let mut start = 0;
    for tied in ranks.chunk_by(|&a, &b| words[usize::from(a)] == words[usize::from(b)]) {
        let end = start + tied.len();
        if tied.len() > 1 {
            sort(&mut keys[start..end], from, word, len);
        }
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmindex_index::MAX_KEY_BYTES;
    use proptest::prelude::*;

    use super::*;
    use crate::SpTree;

    /// Sorts keys as if each stood in words of its own.
    fn sorted(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let word = |key: u8, word: usize| {
            let mut bytes = [0; 8];
            let rest = keys[usize::from(key)].iter().skip(8 * word);
            bytes.iter_mut().zip(rest).for_each(|(to, &byte)| *to = byte);
            u64::from_be_bytes(bytes)
        };
        let mut order: Vec<u8> = (0..keys.len() as u8).collect();
        sort(&mut order, 0, &word, &|key| keys[usize::from(key)].len());
        order.into_iter().map(|key| keys[usize::from(key)].clone()).collect()
    }

    proptest! {
        #[test]
        fn keys_are_sorted_whatever_they_begin_with(
            parts in prop::collection::vec((0..4usize, prop::collection::vec(0..3u8, 0..20)), 0..=64),
            common in prop::collection::vec(0..2u8, 0..30),
        ) {
            let begins: [&[u8]; 4] = [&[], &common, &[7; 8], &[7; 17]];
            let keys: Vec<Vec<u8>> =
                parts.iter().map(|(begin, rest)| [begins[*begin], rest].concat()).collect();
            let mut want = keys.clone();
            want.sort();
            prop_assert_eq!(sorted(&keys), want);
        }
    }

    #[test]
    fn keys_that_differ_in_their_last_byte_or_in_length_alone_are_sorted() {
        let last = |byte: u8| [vec![9; MAX_KEY_BYTES - 1], vec![byte]].concat();
        let keys: Vec<Vec<u8>> = (0..64).rev().map(last).collect();
        assert!(sorted(&keys).is_sorted());
        let keys: Vec<Vec<u8>> = (0..64).rev().map(|len| vec![0; len]).collect();
        assert!(sorted(&keys).is_sorted());
    }

    #[test]
    fn keys_that_change_under_the_sort_end_it() {
        // Whatever is raced with: words that are others each time.
        let words = std::cell::Cell::new(1u64);
        let word = |_: u8, _: usize| {
            words
                .set(words.get().wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) & 0xff00_00ff);
            words.get()
        };
        for _ in 0..200 {
            let mut keys: Vec<u8> = (0..64).collect();
            sort(&mut keys, 0, &word, &|_| 40);
            keys.sort_unstable();
            assert!(keys.iter().copied().eq(0..64));
        }
    }

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
        let bnode = tree.bnode(tree.locate(&pmindex_record::Route::LEAST).bnode).expect("intact");
        let order = Order::of(&pool, &bnode, bnode.taken(pool.pm())).expect("intact");
        assert_eq!(order.len(), keys.len());
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(&order.block(at).key(pool.pm()), key);
            let slot = bnode.slot(order.slot(at));
            assert_eq!(&Slot::<Vec<u8>, u64>::key(&pool, slot).expect("intact"), key);
        }
    }
}
