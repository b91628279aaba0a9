//! The records of one Bnode, in order, as scans take them.

use std::collections::VecDeque;
use std::ops::Bound;

use pmindex_core::{LINE, Medium, PmError, rank_sort};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{RecordBlock, Route, Slot};

use crate::access::At;
use crate::layout::{MAX_LEAF, Taken, bits};
use crate::leaf::Bnode;
use crate::middle::{Mnode, NONE};
use crate::tree::SpTree;

/// Which records of a Bnode a scan did not take.
pub(crate) struct Outside {
    pub(crate) below: bool,
    pub(crate) above: bool,
}

/// Room for a private copy of a Bnode.
#[derive(Default)]
pub(crate) struct Scratch(Vec<u64>);

pub(crate) fn below<K: Ord>(key: &K, lower: &Bound<K>) -> bool {
    match lower {
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
        Bound::Unbounded => false,
    }
}

pub(crate) fn above<K: Ord>(key: &K, upper: &Bound<K>) -> bool {
    match upper {
        Bound::Included(bound) => key > bound,
        Bound::Excluded(bound) => key >= bound,
        Bound::Unbounded => false,
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Fetches the slots of a Bnode that hold records, and its neighbour's Mnode. A hint.
    #[inline]
    pub(crate) fn prefetch_records(&self, node: &Mnode) {
        if let Some((buffering, buffer)) = self.buffer_of(node) {
            buffering.buffers.prefetch_whole(buffer);
        }
        let bnode = self.middle.dram.load(&node.bnode);
        let per_line = (LINE / 8 / Slot::<K, V>::WORDS).max(1);
        let slots = self.middle.taken(node, LEAF).slots();
        for slot in (0..LEAF).step_by(per_line) {
            if slots >> slot & ((1 << per_line) - 1) != 0 {
                self.prefetch_slot(bnode, slot);
            }
        }
    }

    /// Fetches the records of an Mnode's right neighbour, and the Mnode after it. A hint.
    #[inline]
    pub(crate) fn prefetch_right(&self, node: &Mnode) {
        let next = self.middle.next(node);
        if next != NONE {
            let node = self.middle.get(next);
            self.prefetch_records(node);
            self.middle.prefetch(self.middle.next(node));
        }
    }

    /// The Mnode for `route`; its records and its right neighbour's are on their way.
    pub(crate) fn locate_to_scan(&self, route: &Route<'_>) -> At<'_> {
        let at = self.locate(route);
        self.prefetch_records(at.node);
        self.prefetch_right(at.node);
        at
    }

    /// The records of a Bnode that lie between the bounds, ascending; `None` if it has changed.
    pub(crate) fn copy_out(
        &self,
        at: &At<'_>,
        bounds: (&Bound<K>, &Bound<K>),
        scratch: &mut Scratch,
        items: &mut VecDeque<(K, V)>,
    ) -> Option<Result<Outside, PmError>> {
        let taken = self.middle.taken(at.node, LEAF);
        let copied = self.bnode(at.bnode).and_then(|bnode| {
            if K::SHAPE == Shape::Inline(1) && !Slot::<K, V>::HAS_BLOCK {
                Ok(self.copy_one_word(at.node, &bnode, taken, bounds, scratch, items))
            } else {
                let outside = self.copy_any(&bnode, taken, bounds, items)?;
                Ok(self.overlay(at.node, bounds, outside, items))
            }
        });
        if !at.validate(self.pm()) {
            items.clear();
            self.pm().spin();
            return None;
        }
        Some(copied)
    }

    /// One-word keys: the slots are copied in one go, then what the buffer has, the keys sorted by
    /// rank.
    fn copy_one_word(
        &self,
        node: &Mnode,
        bnode: &Bnode<'_, K, V, LEAF>,
        taken: Taken,
        (lower, upper): (&Bound<K>, &Bound<K>),
        Scratch(copy): &mut Scratch,
        items: &mut VecDeque<(K, V)>,
    ) -> Outside {
        let slot_of = |i: usize| i * Slot::<K, V>::WORDS;
        let used = MAX_LEAF - taken.slots().leading_zeros() as usize;
        copy.resize(slot_of(LEAF), 0);
        self.pm().read_words(&bnode.slots()[..slot_of(used)], &mut copy[..slot_of(used)]);
        let slots = self.copy_buffered(node, taken, copy);
        let buffered = LEAF..copy.len() / Slot::<K, V>::WORDS;
        let (mut keys, mut places) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut count = 0;
        let mut outside = Outside { below: false, above: false };
        for i in bits(slots).chain(buffered) {
            if count == MAX_LEAF {
                break; // not of one version: to be done again
            }
            let word = copy[slot_of(i)];
            let key = K::from_words(&[word]);
            let (low, high) = (below(&key, lower), above(&key, upper));
            outside.below |= low;
            outside.above |= high;
            keys[count] = word;
            places[count] = i as u8;
            count += usize::from(!(low || high));
        }
        let mut order = [0; 64];
        for &rank in rank_sort(&keys[..count], &mut order) {
            let slot = slot_of(usize::from(places[usize::from(rank)]));
            let record = &copy[slot..slot + Slot::<K, V>::WORDS];
            items.push_back((K::from_words(&record[..1]), V::from_words(&record[1..])));
        }
        outside
    }

    /// Any keys, record by record.
    fn copy_any(
        &self,
        bnode: &Bnode<'_, K, V, LEAF>,
        taken: Taken,
        (lower, upper): (&Bound<K>, &Bound<K>),
        items: &mut VecDeque<(K, V)>,
    ) -> Result<Outside, PmError> {
        let mut outside = Outside { below: false, above: false };
        self.fetch_blocks(bnode, taken);
        for i in bits(taken.slots()) {
            let key = Slot::<K, V>::key(&self.pool, bnode.slot(i))?;
            if above(&key, upper) {
                outside.above = true;
            } else if below(&key, lower) {
                outside.below = true;
            } else {
                items.push_back((key, Slot::<K, V>::value(&self.pool, bnode.slot(i))?));
            }
        }
        items.make_contiguous().sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(outside)
    }

    /// Fetches the blocks of some slots: of all the first lines, then the rest. A hint.
    fn fetch_blocks(&self, bnode: &Bnode<'_, K, V, LEAF>, slots: Taken) {
        if !Slot::<K, V>::HAS_BLOCK {
            return;
        }
        let blocks = || bits(slots.slots()).map(|i| Slot::<K, V>::block(self.pm(), bnode.slot(i)));
        blocks().for_each(|block| RecordBlock::prefetch(&self.pool, block));
        blocks().for_each(|block| RecordBlock::prefetch_rest(&self.pool, block));
    }
}
