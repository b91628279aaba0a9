//! The records of one leaf, in order, as scans take them.

use std::collections::VecDeque;
use std::ops::Bound;

use pmindex_core::{LINE, Medium, PmError, Word, rank_sort};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::Slot;

use super::access::At;
use super::inner::{Route, Siblings};
use super::layout::{Geometry, Hint, LeafPtr, MAX_LEAF, bits};
use super::leaf::Leaf;
use super::tree::NvTree;

/// Which records of a leaf a scan did not take.
pub(super) struct Outside {
    pub(super) below: bool,
    pub(super) above: bool,
}

/// Room for a private copy of a leaf.
#[derive(Default)]
pub(super) struct Scratch(Vec<u64>);

fn below<K: Ord>(key: &K, lower: &Bound<K>) -> bool {
    match lower {
        Bound::Included(bound) => key < bound,
        Bound::Excluded(bound) => key <= bound,
        Bound::Unbounded => false,
    }
}

fn above<K: Ord>(key: &K, upper: &Bound<K>) -> bool {
    match upper {
        Bound::Included(bound) => key > bound,
        Bound::Excluded(bound) => key >= bound,
        Bound::Unbounded => false,
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Fetches a whole leaf. A hint.
    #[inline]
    pub(super) fn prefetch_leaf(&self, leaf: Option<u64>) {
        if let Some(leaf) = leaf {
            for line in (0..Geometry::<K, V, LEAF>::BYTES).step_by(LINE) {
                self.pool.prefetch(LeafPtr::new(leaf + line));
            }
        }
    }

    /// The leaf for `route`; it and its right neighbours are on their way.
    pub(super) fn locate_to_scan(&self, route: &Route<'_>) -> (At<'_>, Siblings) {
        let pm = self.pm();
        loop {
            let place = self.inner.find(pm, route);
            let siblings = place.siblings();
            let (entry, leaf) = (place.entry, place.entry.leaf());
            self.prefetch_leaf(Some(leaf));
            self.prefetch_leaf(self.inner.sibling(siblings, 1));
            let lock = self.lock_of(leaf);
            let version = lock.begin_read(pm);
            if place.validate(pm) {
                return (At { leaf, entry, lock, version }, siblings);
            }
        }
    }

    /// The records of a leaf that lie between the bounds, ascending; `None` if it has changed.
    pub(super) fn copy_out(
        &self,
        at: &At<'_>,
        bounds: (&Bound<K>, &Bound<K>),
        scratch: &mut Scratch,
        items: &mut VecDeque<(K, V)>,
    ) -> Option<Result<Outside, PmError>> {
        let copied = self.leaf(at.leaf).and_then(|leaf| {
            if K::SHAPE == Shape::Inline(1) && !Slot::<K, V>::HAS_BLOCK {
                Ok(self.copy_words(&leaf, bounds, scratch, items))
            } else {
                self.copy_records(&leaf, bounds, items)
            }
        });
        if !at.validate(self.pm()) {
            items.clear();
            self.pm().spin();
            return None;
        }
        Some(copied)
    }

    /// One-word keys: the leaf is copied in one go, the keys sorted by rank.
    fn copy_words(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        (lower, upper): (&Bound<K>, &Bound<K>),
        Scratch(copy): &mut Scratch,
        items: &mut VecDeque<(K, V)>,
    ) -> Outside {
        copy.resize(Geometry::<K, V, LEAF>::WORDS, 0);
        self.pm().read_words(leaf.words(), copy);
        let slots = Hint::from_word(copy[0]).live();
        let slot_of = Geometry::<K, V, LEAF>::slot;
        let (mut keys, mut places) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut count = 0;
        let mut outside = Outside { below: false, above: false };
        for i in bits(slots).filter(|&i| i < LEAF) {
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
    fn copy_records(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        (lower, upper): (&Bound<K>, &Bound<K>),
        items: &mut VecDeque<(K, V)>,
    ) -> Result<Outside, PmError> {
        let mut outside = Outside { below: false, above: false };
        for i in bits(leaf.hint(self.pm()).live()).filter(|&i| i < LEAF) {
            let key = Slot::<K, V>::key(&self.pool, leaf.slot(i))?;
            if above(&key, upper) {
                outside.above = true;
            } else if below(&key, lower) {
                outside.below = true;
            } else {
                items.push_back((key, Slot::<K, V>::value(&self.pool, leaf.slot(i))?));
            }
        }
        items.make_contiguous().sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(outside)
    }
}
