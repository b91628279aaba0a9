//! The records of one leaf, in order, as scans take them.

use pmindex_core::{LINE, Medium, PmError, Word, rank_sort};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Bounds, Outside, Scratch, Sink, Slot, bits};

use super::access::At;
use super::inner::{Route, Siblings};
use super::layout::{Geometry, Hint, LeafPtr, MAX_LEAF};
use super::leaf::Leaf;
use super::tree::NvTree;

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

    /// Returns the leaf for `route`; it and its right neighbours are on their way.
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

    /// Appends the records of a leaf that lie between the bounds, ascending; `None` if it has changed.
    /// Whatever goes wrong, nothing is appended.
    pub(super) fn copy_out(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        scratch: &mut Scratch,
        items: &mut impl Sink<K, V>,
    ) -> Option<Result<Outside, PmError>> {
        let before = items.count();
        let copied = self.leaf(at.leaf).and_then(|leaf| {
            if K::SHAPE == Shape::Inline(1) && !Slot::<K, V>::HAS_BLOCK {
                Ok(self.copy_words(&leaf, bounds, scratch, items))
            } else {
                self.copy_records(&leaf, bounds, items)
            }
        });
        let valid = at.validate(self.pm());
        if !valid || copied.is_err() {
            items.truncate(before);
        }
        if !valid {
            self.pm().spin();
            return None;
        }
        Some(copied)
    }

    /// One-word keys: the leaf is copied in one go, the keys sorted by rank.
    fn copy_words(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        bounds: &Bounds<K>,
        scratch: &mut Scratch,
        items: &mut impl Sink<K, V>,
    ) -> Outside {
        let copy = scratch.words();
        copy.resize(Geometry::<K, V, LEAF>::WORDS, 0);
        self.pm().read_words(leaf.words(), copy);
        let slots = Hint::from_word(copy[0]).live();
        let slot_of = Geometry::<K, V, LEAF>::slot;
        let (mut keys, mut places) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut count = 0;
        let mut outside = Outside::default();
        for i in bits(slots).filter(|&i| i < LEAF) {
            let word = copy[slot_of(i)];
            let key = K::from_words(&[word]);
            let (low, high) = (bounds.is_below(&key), bounds.is_above(&key));
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
            items.push((K::from_words(&record[..1]), V::from_words(&record[1..])));
        }
        outside
    }

    /// Any keys, record by record.
    fn copy_records(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        bounds: &Bounds<K>,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let (mut outside, before) = (Outside::default(), items.count());
        for i in bits(leaf.hint(self.pm()).live()).filter(|&i| i < LEAF) {
            items.add_if(&Slot::<K, V>::readable(&self.pool, leaf.slot(i)), |key| {
                let above = bounds.is_above(key);
                let below = !above && bounds.is_below(key);
                outside.above |= above;
                outside.below |= below;
                !(above || below)
            })?;
        }
        items.records_mut()[before..].sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(outside)
    }
}
