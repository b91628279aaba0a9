//! Scans, in both directions.
//!
//! A scan copies one leaf at a time, outside any epoch: its live records between the bounds, in order. Each
//! existed, durably, at some moment of the copy. For the next leaf it descends to the keys right after the
//! separator on the leaf's right, or to those up to the separator on its left: so the next leaf starts exactly
//! where the last one ended, also if leaves split or merged in between.

use std::ops::Bound;

use pmindex_core::{LINE, Mapped, Medium, PPtr, PmError, Pool};
use pmindex_index::{IndexError, Key, Shape, Value};
use pmindex_record::{Bounds, LeafSource, Probe, Scan, Sink, bits};

use super::access::Path;
use super::inner::Target;
use super::layout::{Geometry, MAX_LEAF, Ptr, Status};
use super::leaf::{Leaf, corrupt};
use super::record::{KeyedRecord, Raw, Record};
use super::tree::BzTree;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const LEAF: usize = 60, const INNER: usize = 64> =
    Scan<Leaves<'t, K, V, M, LEAF, INNER>>;

/// The source of a [`Range`]. Its bounds move to the separators, so it keeps no other state unless it is watched.
pub struct Leaves<'t, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    tree: &'t BzTree<K, V, M, LEAF, INNER>,
    /// What a watched source has read.
    watch: Option<Watch>,
}

/// A leaf without a record.
struct Skipped {
    leaf: Ptr,
    status: Status,
    /// The bound at which it begins, and whether it was read upwards.
    bound: Bound<Raw>,
    up: bool,
}

/// The leaves that were read.
#[derive(Default)]
struct Watch {
    skipped: Vec<Skipped>,
    /// `true` if a leaf has changed while it was copied.
    torn: bool,
}

/// The result of copying a leaf.
struct Copied {
    leaf: Ptr,
    /// The separator beyond it.
    beyond: Option<Raw>,
    /// If the source is watched: its status before, and after.
    status: Option<(Status, Status)>,
}

impl Watch {
    /// Notes a leaf, of which a read took `taken` records.
    fn note(&mut self, copied: &Copied, taken: usize, up: bool, bound: &Bound<Raw>) {
        let Some((status, after)) = copied.status else { return };
        self.torn |= status != after;
        if taken == 0 {
            let (leaf, bound) = (copied.leaf, bound.clone());
            self.skipped.push(Skipped { leaf, status, bound, up });
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, LEAF, INNER> {
        let raw = |key: K| Raw::of(&Probe::<K>::of_stored(&key));
        let (lower, upper) = (bounds.lower.map(raw), bounds.upper.map(raw));
        let bounds = Bounds { lower, upper, spare: None };
        Scan::new(Leaves { tree: self, watch: None }, bounds)
    }

    /// Prefetches the leaf after that of `path`, if both have one parent.
    fn prefetch_next(&self, path: &Path<'_>) -> Result<(), PmError> {
        let Some(step) = path.steps().last() else { return Ok(()) };
        let parent = self.inner(step.node)?;
        if step.index < parent.separators(self.pm())? {
            let next = parent.child(&self.mwcas, step.index + 1)?;
            for line in (0..8 * next.words()).step_by(LINE) {
                self.pool.prefetch(PPtr::<u64>::new(next.offset() + line as u64));
            }
        }
        Ok(())
    }

    /// Appends the records of a leaf between the bounds, ascending; if it is `watched`, returns its status before
    /// and after.
    fn copy_leaf(
        &self,
        leaf: Ptr,
        bounds: &Bounds<Raw>,
        items: &mut impl Sink<K, V>,
        watched: bool,
    ) -> Result<Option<(Status, Status)>, PmError> {
        let leaf = self.leaf(leaf)?;
        if !watched {
            self.copy_out(&leaf, bounds, items)?;
            return Ok(None);
        }
        let before = leaf.status(&self.mwcas)?;
        self.copy_out(&leaf, bounds, items)?;
        Ok(Some((before, leaf.status(&self.mwcas)?)))
    }

    /// Returns whether a leaf is in the tree as it was read, all the time since then. The thread is pinned.
    fn is_as_seen(&self, seen: &Skipped) -> Result<bool, PmError> {
        if self.leaf(seen.leaf)?.status(&self.mwcas)? != seen.status {
            return Ok(false);
        }
        if !seen.status.is_frozen() {
            return Ok(true);
        }
        // A new leaf may have taken its place.
        let target = if seen.up { upwards(&seen.bound) } else { downwards(&seen.bound) };
        Ok(self.path(self.anchor()?, &target)?.leaf == seen.leaf)
    }

    /// Appends the records of a leaf between the bounds, ascending.
    fn copy_out(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        bounds: &Bounds<Raw>,
        items: &mut impl Sink<K, V>,
    ) -> Result<(), PmError> {
        let status = leaf.status(&self.mwcas)?;
        let live = leaf.live(&self.mwcas, status)?;
        let pm = self.pm();
        let mut later = [(0, 0); MAX_LEAF];
        let mut count = 0;
        if Geometry::<K, V, LEAF, INNER>::FIXED && K::SHAPE == Shape::Inline(1) {
            let low = match &bounds.lower {
                Bound::Included(raw) => Some(raw.words[0]),
                Bound::Excluded(raw) => match raw.words[0].checked_add(1) {
                    None => return Ok(()),
                    low => low,
                },
                Bound::Unbounded => None,
            };
            let high = match &bounds.upper {
                Bound::Included(raw) => Some(raw.words[0]),
                Bound::Excluded(raw) => match raw.words[0].checked_sub(1) {
                    None => return Ok(()),
                    high => high,
                },
                Bound::Unbounded => None,
            };
            let within = low.unwrap_or(0)..=high.unwrap_or(u64::MAX);
            for i in bits(live.later) {
                let at = leaf.record(live.entries[i].place())?;
                let key = pm.load_word(&at.words[0]);
                if within.contains(&key) {
                    later[count] = (key, i);
                    count += 1;
                }
            }
            let later = &mut later[..count];
            later.sort_unstable();
            let mut next = 0;
            let mut push = |key: u64, record: Record<'_, K, V>| -> Result<(), PmError> {
                items.push((K::from_words(&[key]), record.value(&self.mwcas)?));
                Ok(())
            };
            for number in bits(live.sorted) {
                let record = leaf.record(leaf.place(pm, number))?;
                let key = pm.load_word(&record.words[0]);
                if !within.contains(&key) {
                    continue;
                }
                while let Some(&(before, i)) = later.get(next).filter(|(other, _)| *other <= key) {
                    // The same key twice: it was replaced during this read. Both existed.
                    if before < key {
                        push(before, leaf.record(live.entries[i].place())?)?;
                    }
                    next += 1;
                }
                push(key, record)?;
            }
            let mut last = None;
            for &(key, i) in &later[next..] {
                if last != Some(key) {
                    push(key, leaf.record(live.entries[i].place())?)?;
                }
                last = Some(key);
            }
            return Ok(());
        }
        self.copy_any(leaf, &live, bounds, items)
    }

    /// Appends the records of a leaf one by one, for all types.
    fn copy_any(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        live: &super::leaf::Live,
        bounds: &Bounds<Raw>,
        items: &mut impl Sink<K, V>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let mut found = Vec::new();
        let sorted = bits(live.sorted).map(|number| leaf.place(pm, number));
        let later = bits(live.later).map(|i| live.entries[i].place());
        for place in sorted.chain(later) {
            let record = leaf.record(place)?;
            let key = record.raw_key(&self.mwcas)?;
            let above = match &bounds.lower {
                Bound::Included(raw) => key.compare(K::SHAPE, raw).is_ge(),
                Bound::Excluded(raw) => key.compare(K::SHAPE, raw).is_gt(),
                Bound::Unbounded => true,
            };
            let below = match &bounds.upper {
                Bound::Included(raw) => key.compare(K::SHAPE, raw).is_le(),
                Bound::Excluded(raw) => key.compare(K::SHAPE, raw).is_lt(),
                Bound::Unbounded => true,
            };
            if above && below {
                found.push((key, record));
            }
        }
        found.sort_by(|a, b| a.0.compare(K::SHAPE, &b.0));
        // The same key twice: it was replaced during this read. Both existed.
        found.dedup_by(|a, b| a.0.compare(K::SHAPE, &b.0).is_eq());
        for (key, record) in found {
            let (mwcas, offset) = (&self.mwcas, leaf.offset());
            items.add(&KeyedRecord { record, key: &key, mwcas, offset })?;
        }
        Ok(())
    }
}

/// Returns where the leaf is that a scan reads at a lower bound.
fn upwards(bound: &Bound<Raw>) -> Target<'_> {
    match bound {
        Bound::Included(raw) => Target::Key(raw.borrowed()),
        Bound::Excluded(raw) => Target::After(raw.borrowed()),
        Bound::Unbounded => Target::First,
    }
}

/// Returns where the leaf is that a scan reads at an upper bound.
fn downwards(bound: &Bound<Raw>) -> Target<'_> {
    match bound {
        Bound::Included(raw) | Bound::Excluded(raw) => Target::Key(raw.borrowed()),
        Bound::Unbounded => Target::Last,
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize> LeafSource
    for Leaves<'_, K, V, M, LEAF, INNER>
{
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = Raw;
    // The status of a leaf whose block was used again is that of another node.
    const PINNED: bool = true;

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    fn watch(&mut self) {
        self.watch = Some(Watch::default());
    }

    fn stays(&self) -> bool {
        let Some(Watch { skipped, torn }) = &self.watch else { return true };
        !torn && skipped.iter().all(|seen| self.tree.is_as_seen(seen).is_ok_and(|is| is))
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<Raw>,
        _: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let (tree, before) = (self.tree, items.count());
        let watched = self.watch.is_some();
        let copied = tree.optimistic(|| {
            items.truncate(before);
            let path = tree.path(tree.anchor()?, &upwards(&bounds.lower))?;
            tree.prefetch_next(&path)?;
            let status = tree.copy_leaf(path.leaf, bounds, items, watched)?;
            Ok(Copied { leaf: path.leaf, beyond: tree.fences(&path)?.1, status })
        })?;
        if let Some(watch) = &mut self.watch {
            watch.note(&copied, items.count() - before, true, &bounds.lower);
        }
        let Some(high) = copied.beyond else { return Ok(false) };
        if let Bound::Excluded(last) = &bounds.lower
            && last.compare(K::SHAPE, &high).is_ge()
        {
            return Err(corrupt("separators out of order", 0).into());
        }
        let more = match &bounds.upper {
            Bound::Included(last) | Bound::Excluded(last) => last.compare(K::SHAPE, &high).is_gt(),
            Bound::Unbounded => true,
        };
        bounds.lower = Bound::Excluded(high);
        Ok(more)
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<Raw>,
        _: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let tree = self.tree;
        let watched = self.watch.is_some();
        let copied = tree.optimistic(|| {
            items.clear();
            let path = tree.path(tree.anchor()?, &downwards(&bounds.upper))?;
            let status = tree.copy_leaf(path.leaf, bounds, items, watched)?;
            Ok(Copied { leaf: path.leaf, beyond: tree.fences(&path)?.0, status })
        })?;
        if let Some(watch) = &mut self.watch {
            watch.note(&copied, items.len(), false, &bounds.upper);
        }
        let Some(low) = copied.beyond else { return Ok(false) };
        if let Bound::Included(last) | Bound::Excluded(last) = &bounds.upper
            && last.compare(K::SHAPE, &low).is_le()
        {
            return Err(corrupt("separators out of order", 0).into());
        }
        let more = match &bounds.lower {
            Bound::Included(first) => first.compare(K::SHAPE, &low).is_le(),
            Bound::Excluded(first) => first.compare(K::SHAPE, &low).is_lt(),
            Bound::Unbounded => true,
        };
        bounds.upper = Bound::Included(low);
        Ok(more)
    }
}

pmindex_record::scans!(BzTree<K, V, M, LEAF: usize, INNER: usize>, Range);
