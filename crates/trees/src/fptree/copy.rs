//! The records of one leaf, in order, as scans take them.

use std::cmp::Ordering;
use std::ops::Bound;

use pmindex_core::{LINE, Medium, PmError, rank_sort};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{Bounds, Outside, Probe, RecordBlock, Scratch, Sink, bits};

use super::access::At;
use super::inner::{Route, Siblings};
use super::layout::{Geometry, LeafPtr, LeafState, MAX_LEAF, Slot};
use super::leaf::Leaf;
use super::tree::FpTree;

/// Returns the bounds as keys to compare with.
fn probes<K: Key>(bounds: &Bounds<K>) -> (Bound<Probe<'_, K>>, Bound<Probe<'_, K>>) {
    (bounds.lower.as_ref().map(Probe::of_stored), bounds.upper.as_ref().map(Probe::of_stored))
}

/// What prefixes the keys within the bounds have: from, to.
fn prefixes<K>((lower, upper): &(Bound<Probe<'_, K>>, Bound<Probe<'_, K>>)) -> (u64, u64)
where
    K: Key,
{
    let prefix = |bound: &Bound<Probe<'_, K>>, none| match bound {
        Bound::Included(probe) | Bound::Excluded(probe) => probe.prefix(),
        Bound::Unbounded => none,
    };
    (prefix(lower, 0), prefix(upper, u64::MAX))
}

/// Whether a key, compared with a bound, lies on its `outer` side.
fn is_outside<K>(
    bound: &Bound<Probe<'_, K>>,
    compare: impl FnOnce(&Probe<'_, K>) -> Result<Ordering, PmError>,
    outer: Ordering,
) -> Result<bool, PmError> {
    Ok(match bound {
        Bound::Included(probe) => compare(probe)? == outer,
        Bound::Excluded(probe) => compare(probe)? != outer.reverse(),
        Bound::Unbounded => false,
    })
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
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
            self.prefetch_leaf(Some(place.leaf));
            self.prefetch_leaf(self.inner.sibling(siblings, 1));
            let lock = self.lock_of(place.leaf);
            let version = lock.begin_read(pm);
            if place.validate(pm) {
                return (At { leaf: place.leaf, lock, version }, siblings);
            }
        }
    }

    /// Appends the records of a leaf that lie between the bounds, the least `most`, ascending; `None` if
    /// it has changed. Whatever goes wrong, nothing is appended.
    pub(super) fn copy_out(
        &self,
        at: &At<'_>,
        bounds: &Bounds<K>,
        most: usize,
        scratch: &mut Scratch,
        items: &mut impl Sink<K, V>,
    ) -> Option<Result<Outside, PmError>> {
        let before = items.count();
        let copied = self.leaf(at.leaf).and_then(|leaf| {
            if K::SHAPE == Shape::Inline(1) && !Slot::<K, V>::HAS_BLOCK {
                Ok(self.copy_words(&leaf, bounds, most, scratch, items))
            } else {
                self.copy_records(&leaf, bounds, most, items)
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
        most: usize,
        scratch: &mut Scratch,
        items: &mut impl Sink<K, V>,
    ) -> Outside {
        let copy = scratch.words();
        copy.resize(Geometry::<K, V, LEAF>::WORDS, 0);
        self.pm().read_words(leaf.words(), copy);
        let slots = LeafState::of_slots(copy[0]).slots();
        let slot_of = |i: usize| Geometry::<K, V, LEAF>::SLOTS + i * Slot::<K, V>::WORDS;
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
        outside.cut = count > most;
        let mut order = [0; 64];
        for &rank in rank_sort(&keys[..count], &mut order).iter().take(most) {
            let slot = slot_of(usize::from(places[usize::from(rank)]));
            let record = &copy[slot..slot + Slot::<K, V>::WORDS];
            items.push((K::from_words(&record[..1]), V::from_words(&record[1..])));
        }
        outside
    }

    /// Any keys: sorted by their first words, of which the leaf has them all. Then the records' blocks
    /// are fetched together, those of the next leaf behind them.
    fn copy_records(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        bounds: &Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<Outside, PmError> {
        let pm = self.pm();
        let probes = probes(bounds);
        let (from, to) = prefixes(&probes);
        let (mut prefixes, mut slots) = ([0; MAX_LEAF], [0u8; MAX_LEAF]);
        let mut count = 0;
        let mut outside = Outside::default();
        for i in bits(leaf.state(pm).slots()).filter(|&i| i < LEAF) {
            let prefix = leaf.prefix(pm, i);
            outside.below |= prefix < from;
            outside.above |= prefix > to;
            prefixes[count] = prefix;
            slots[count] = i as u8;
            count += usize::from((from..=to).contains(&prefix));
        }
        let mut ranks = [0; 64];
        let ranks = rank_sort(&prefixes[..count], &mut ranks);
        let slot_of = |rank: &u8| usize::from(slots[usize::from(*rank)]);
        if Slot::<K, V>::HAS_BLOCK {
            self.fetch_blocks(leaf, ranks.iter().take(most).map(slot_of));
            if most > count {
                self.fetch_next(leaf, most - count);
            }
        }
        let (lower, upper) = &probes;
        let prefix_of = |rank: u8| prefixes[usize::from(rank)];
        let full = items.count().saturating_add(most);
        let mut tied_order = [0; MAX_LEAF];
        for tied in ranks.chunk_by(|a, b| prefix_of(*a) == prefix_of(*b)) {
            if items.count() >= full {
                outside.cut = true;
                break;
            }
            let prefix = prefix_of(tied[0]);
            let at_bound = prefix == from || prefix == to;
            if let [one] = tied
                && !at_bound
            {
                // Within the bounds, and alone with its prefix.
                items.add(&Slot::<K, V>::readable(&self.pool, leaf.slot(slot_of(one))))?;
                continue;
            }
            let tied_slots = &mut tied_order[..tied.len()];
            tied_slots
                .iter_mut()
                .zip(tied)
                .for_each(|(slot, rank)| *slot = slots[usize::from(*rank)]);
            leaf.put_in_order(&self.pool, tied_slots)?;
            for &slot in &*tied_slots {
                let slot = leaf.slot(usize::from(slot));
                // A prefix between those of the bounds is between the bounds.
                if at_bound
                    && is_outside(
                        lower,
                        |probe| Slot::<K, V>::cmp_key(&self.pool, slot, probe),
                        Ordering::Less,
                    )?
                {
                    outside.below = true;
                } else if at_bound
                    && is_outside(
                        upper,
                        |probe| Slot::<K, V>::cmp_key(&self.pool, slot, probe),
                        Ordering::Greater,
                    )?
                {
                    outside.above = true;
                } else if items.count() >= full {
                    outside.cut = true;
                } else {
                    items.add(&Slot::<K, V>::readable(&self.pool, slot))?;
                }
            }
        }
        Ok(outside)
    }

    /// Fetches the blocks of some slots: of all the first lines, then the rest.
    fn fetch_blocks(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        slots: impl Iterator<Item = usize> + Clone,
    ) {
        let blocks = slots.map(|i| Slot::<K, V>::block(self.pm(), leaf.slot(i)));
        for block in blocks.clone() {
            RecordBlock::prefetch(&self.pool, block);
        }
        for block in blocks {
            RecordBlock::prefetch_rest(&self.pool, block);
        }
    }

    /// Fetches the first lines of the next leaf's blocks, where most of `more` records will come from
    /// there, and the leaf after it.
    fn fetch_next(&self, leaf: &Leaf<'_, K, V, LEAF>, more: usize) {
        let pm = self.pm();
        let Ok(next) = self.leaf(leaf.next(pm)) else { return };
        let state = next.state(pm);
        if state.len() <= more {
            self.prefetch_leaf(Some(next.next(pm)));
        }
        if state.len().div_ceil(2) <= more {
            for i in bits(state.slots()).filter(|&i| i < LEAF) {
                RecordBlock::prefetch(&self.pool, Slot::<K, V>::block(pm, next.slot(i)));
            }
        }
    }
}
