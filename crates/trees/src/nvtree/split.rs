//! A full leaf makes room: it is compacted, split, or followed by a new one.
//!
//! Compaction and split replace the leaf by one or two new ones with its live records:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new leaves, their links included; their tickets, and that of the old leaf | P2 |
//! | P2 | the predecessor's link (decides all); allocation bits | unlock (DUR) |
//!
//! The insert that found the leaf full goes with it, in line: its record is in one of the new leaves
//! from the start, and the link is its commit too.
//!
//! One word decides, so there is nothing to log: the old leaf is live while the predecessor's link
//! leads to it, the new ones while it leads to the first of them. Where keys arrive in order, the
//! last leaf stays as it is, full, and a new one is linked behind it by its own link.
//!
//! The locks of the leaf and of its predecessor (for the first leaf, of the root's link) are held
//! throughout, and until the inner nodes know.

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Medium, Owner, PmError, PmU64};
use pmindex_index::{IndexError, Key, Shape, Value, Words};
use pmindex_record::{Probe, Slot, separator_between};

use super::image::LeafImage;
use super::inner::{Entry, Neighbours, Route};
use super::layout::{Geometry, LeafPtr};
use super::leaf::{Incoming, Leaf, link};
use super::tree::NvTree;

/// A leaf and the link that leads to it, both locked.
pub(super) struct Linked<'t, K, V, const LEAF: usize> {
    pub(super) leaf: Leaf<'t, K, V, LEAF>,
    /// The link: the predecessor's, or the root's.
    pub(super) cell: &'t PmU64,
    /// `true` if it is the root's.
    pub(super) first: bool,
    _guards: [Option<VersionGuard<'t>>; 2],
}

impl<K: Key, V: Value, const LEAF: usize> Linked<'_, K, V, LEAF> {
    /// Whether the link leads to the leaf, as the inner nodes say. Its line may have to come first, so this
    /// is asked only when no other work is left.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub(super) fn verify(&self, pm: &impl Medium) -> Result<(), PmError> {
        if pm.load_word(self.cell) == self.leaf.offset() {
            return Ok(());
        }
        let what = "a leaf that its neighbour does not know";
        Err(PmError::Corrupt { what, offset: self.leaf.offset() })
    }
}

/// What separates two leaves.
struct Divider {
    /// Of inline keys: the greatest key on the left.
    words: Words,
    /// Of byte strings: something between.
    bytes: Vec<u8>,
}

impl Divider {
    fn between<K: Key>(left: &K, right: &Probe<'_, K>, leaf: u64) -> Result<Self, PmError> {
        Ok(match K::SHAPE {
            Shape::Inline(_) => Self { words: K::to_words(left.borrowed()), bytes: Vec::new() },
            Shape::Bytes => {
                let left = K::to_bytes(left.borrowed());
                let bytes = separator_between(&left, right.bytes(), leaf)?.into_owned();
                Self { words: [0; 4], bytes }
            }
        })
    }

    fn route<K: Key>(&self) -> Route<'_> {
        match K::SHAPE {
            Shape::Inline(_) => Route::to_words(&self.words),
            Shape::Bytes => Route::to_bytes(&self.bytes),
        }
    }
}

/// Lets the inner nodes follow a link, however the operation that changes the link ends: by its last
/// statement or by an error, or by a panic, when the closure is told to touch no medium but DRAM.
pub(super) struct Follow<F: FnMut(bool)> {
    follow: F,
    done: bool,
}

impl<F: FnMut(bool)> Follow<F> {
    pub(super) fn after(follow: F) -> Self {
        Self { follow, done: false }
    }

    pub(super) fn end(mut self) {
        (self.follow)(false);
        self.done = true;
    }
}

impl<F: FnMut(bool)> Drop for Follow<F> {
    fn drop(&mut self) {
        if !self.done {
            (self.follow)(true);
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Live records with which a leaf is compacted rather than split.
    const COMPACTED: usize = LEAF * 2 / 3;

    /// The last segment of a leaf.
    const LAST_SEGMENT: usize = Geometry::<K, V, LEAF>::SEGMENTS - 1;

    /// Locks the leaf of a key, and the link to it.
    pub(super) fn lock_with_link(
        &self,
        route: &Route<'_>,
    ) -> Result<Linked<'_, K, V, LEAF>, PmError> {
        let pm = self.pm();
        loop {
            let found = self.inner.find_neighbours(pm, route);
            let Neighbours { leaf, left, .. } = found;
            self.prefetch_leaf(Some(leaf));
            self.pool.prefetch(LeafPtr::new(left.unwrap_or(leaf)));
            let guards = match left {
                Some(left) => self.lock_both(left, leaf),
                None => [Some(self.head_lock.lock(pm)), Some(self.lock_of(leaf).lock(pm))],
            };
            // The ways to a leaf and its predecessor change only under their locks: what holds now
            // stays so.
            if !found.validate(pm) {
                drop(guards);
                pm.spin();
                continue;
            }
            let cell = match left {
                Some(left) => self.leaf(left)?.next_cell(),
                None => self.root()?.head.as_word(),
            };
            let (leaf, first) = (self.leaf(leaf)?, left.is_none());
            return Ok(Linked { leaf, cell, first, _guards: guards });
        }
    }

    /// Locks two leaves in the order of their locks.
    fn lock_both(&self, a: u64, b: u64) -> [Option<VersionGuard<'_>>; 2] {
        let pm = self.pm();
        let (i, j) = (self.locks.index_of(a), self.locks.index_of(b));
        let (first, second) = if i <= j { (a, b) } else { (b, a) };
        let guard = self.lock_of(first).lock(pm);
        [Some(guard), (i != j).then(|| self.lock_of(second).lock(pm))]
    }

    /// Makes room for a record with the probe's key, if its leaf is full.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room(&self, probe: &Probe<'_, K>) -> Result<(), IndexError> {
        self.make_room_with(probe, None).map(drop)
    }

    /// As [`make_room`](Self::make_room), and adds the record there and then if that is possible and
    /// its key is not there; whether it did.
    #[cold]
    #[inline(never)]
    pub(super) fn make_room_for(&self, record: &Incoming<'_, K, V>) -> Result<bool, IndexError> {
        // A block would need tickets on words of a leaf that no other thread can reach yet.
        let with = (!Slot::<K, V>::HAS_BLOCK).then_some(record);
        self.make_room_with(record.probe, with)
    }

    fn make_room_with(
        &self,
        probe: &Probe<'_, K>,
        mut with: Option<&Incoming<'_, K, V>>,
    ) -> Result<bool, IndexError> {
        let pm = self.pm();
        let linked = self.lock_with_link(&Route::to(probe))?;
        let leaf = &linked.leaf;
        let hint = leaf.hint(pm);
        if leaf.is_behind(pm, hint) {
            leaf.heal(&self.pool)?;
            return Ok(false);
        }
        if hint.count() < LEAF {
            return Ok(false);
        }
        if with.is_some() && leaf.find(&self.pool, hint, probe)?.is_some() {
            with = None;
        }
        let sorted = leaf.sorted(&self.pool, hint)?;
        let greatest = sorted.last().filter(|_| leaf.next(pm) == 0);
        if sorted.len() <= Self::COMPACTED {
            self.compact(&linked, &sorted, &Route::to(probe), with)?;
        } else if let Some((greatest, slot)) = greatest
            && Slot::<K, V>::cmp_key(&self.pool, leaf.slot(*slot), probe)?.is_lt()
        {
            self.extend(leaf, &Divider::between(greatest, probe, leaf.offset())?, with)?;
        } else {
            self.split(&linked, &sorted, with)?;
        }
        if with.is_some() {
            self.count(leaf.offset(), 1); // its lock is held, whichever leaf the record is in
        }
        drop(linked);
        self.go_on();
        Ok(with.is_some())
    }

    /// Makes a step of the rebuild of the inner nodes, if one is in progress or due.
    pub(super) fn go_on(&self) {
        self.inner.go_on(self.pm());
        self.spread_waypoints();
    }

    /// Returns the image of a leaf with these records.
    fn image_of(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        records: &[(K, usize)],
    ) -> Result<LeafImage<K, V, LEAF>, PmError> {
        LeafImage::of(self.pm(), leaf, records.iter().map(|(_, slot)| *slot))
    }

    /// Replaces a leaf by one with its live records, and another one.
    fn compact(
        &self,
        linked: &Linked<'_, K, V, LEAF>,
        sorted: &[(K, usize)],
        route: &Route<'_>,
        with: Option<&Incoming<'_, K, V>>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let Linked { leaf, cell, .. } = linked;
        let (old, mut image) = (leaf.offset(), self.image_of(leaf, sorted)?);
        image.push_incoming(with)?;
        let segment = image.segment();
        linked.verify(pm)?;
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let new = block.ptr().offset();
        // P1: the new leaf, before anything leads to it.
        let image = image.finish(leaf.next(pm), &leaf.fence(pm));
        let filled = pm.stream_words(self.leaf(new)?.words(), &image);
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: new })?;
        op.free(LeafPtr::new(old), Owner { word: cell, mask: u64::MAX, expect: old })?;
        op.prepare(filled)?;
        // P2: the link.
        let follow = Follow::after(|quietly| match (pm.load_word(cell) == new, quietly) {
            (true, false) => self.inner.replace(pm, route, Entry::word(new, segment)),
            (true, true) => {
                self.inner.replace(self.inner.medium(), route, Entry::word(new, segment));
            }
            _ => {}
        });
        link(pool, op, cell, new)?;
        follow.end();
        self.move_waypoint(old, new);
        Ok(())
    }

    /// Replaces a leaf by two with half of its live records each, and another one.
    fn split(
        &self,
        linked: &Linked<'_, K, V, LEAF>,
        sorted: &[(K, usize)],
        with: Option<&Incoming<'_, K, V>>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let Linked { leaf, cell, .. } = linked;
        let (lower, upper) = sorted.split_at(sorted.len().div_ceil(2));
        let (Some((last, _)), Some((first, _))) = (lower.last(), upper.first()) else {
            let what = "a full leaf without records";
            return Err(PmError::Corrupt { what, offset: leaf.offset() });
        };
        let divider = Divider::between(last, &Probe::of_stored(first), leaf.offset())?;
        let route = divider.route::<K>();
        let (old, mut lower) = (leaf.offset(), self.image_of(leaf, lower)?);
        let mut upper = self.image_of(leaf, upper)?;
        if let Some(with) = with {
            let goes_up = with.probe.words() > &divider.words;
            (if goes_up { &mut upper } else { &mut lower }).push_incoming(Some(with))?;
        }
        let segments = (lower.segment(), upper.segment());
        linked.verify(pm)?;
        let promise = self.inner.promise(pm, Some(&route))?;
        let blocks = std::cell::Cell::new((0, 0));
        let follow = Follow::after(|quietly| {
            let (left, right) = blocks.get();
            let replaced = left != 0 && pm.load_word(cell) == left;
            let (left, right) = (Entry::word(left, segments.0), Entry::word(right, segments.1));
            match (replaced, quietly) {
                (true, false) => self.inner.split(pm, &promise, &route, left, right),
                (true, true) => {
                    self.inner.split(self.inner.medium(), &promise, &route, left, right);
                }
                (false, false) => self.inner.forgo(pm, &promise),
                (false, true) => self.inner.forgo(self.inner.medium(), &promise),
            }
        });
        let mut op = pool.op()?;
        let left_block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let right_block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let (left, right) = (left_block.ptr().offset(), right_block.ptr().offset());
        // P1: both new leaves, before anything leads to them.
        let upper = upper.finish(leaf.next(pm), &divider.words);
        let filled_right = pm.stream_words(self.leaf(right)?.words(), &upper);
        let lower = lower.finish(right, &leaf.fence(pm));
        let filled_left = pm.stream_words(self.leaf(left)?.words(), &lower);
        let live = Owner { word: cell, mask: u64::MAX, expect: left };
        op.allocate(&left_block, live)?;
        op.allocate(&right_block, live)?;
        op.free(LeafPtr::new(old), Owner { expect: old, ..live })?;
        op.prepare(filled_right.and(filled_left))?;
        // P2: the link.
        blocks.set((left, right));
        link(pool, op, cell, left)?;
        follow.end();
        pool.note_split();
        self.move_waypoint(old, left);
        Ok(())
    }

    /// Links a leaf behind the last one, empty or with one record.
    fn extend(
        &self,
        last: &Leaf<'_, K, V, LEAF>,
        divider: &Divider,
        with: Option<&Incoming<'_, K, V>>,
    ) -> Result<(), PmError> {
        let (pool, pm, cell) = (&*self.pool, self.pm(), last.next_cell());
        let route = divider.route::<K>();
        let promise = self.inner.promise(pm, Some(&route))?;
        let block = std::cell::Cell::new(0);
        let follow = Follow::after(|quietly| {
            let (left, new) = (Entry::word(last.offset(), Self::LAST_SEGMENT), block.get());
            match (new != 0 && pm.load_word(cell) == new, quietly) {
                (true, false) => self.inner.split(pm, &promise, &route, left, new),
                (true, true) => {
                    self.inner.split(self.inner.medium(), &promise, &route, left, new);
                }
                (false, false) => self.inner.forgo(pm, &promise),
                (false, true) => self.inner.forgo(self.inner.medium(), &promise),
            }
        });
        let mut op = pool.op()?;
        let reserved = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let new = reserved.ptr().offset();
        // P1: the new leaf, before anything leads to it.
        let mut image = LeafImage::<K, V, LEAF>::new();
        image.push_incoming(with)?;
        let image = image.finish(0, &divider.words);
        let filled = pm.stream_words(self.leaf(new)?.words(), &image);
        op.allocate(&reserved, Owner { word: cell, mask: u64::MAX, expect: new })?;
        op.prepare(filled)?;
        // P2: the link.
        block.set(new);
        link(pool, op, cell, new)?;
        follow.end();
        Ok(())
    }

    /// Returns the leaf to which the root's link leads.
    pub(super) fn head(&self) -> Result<Leaf<'_, K, V, LEAF>, PmError> {
        self.leaf(self.pm().load(&self.root()?.head).offset())
    }
}
