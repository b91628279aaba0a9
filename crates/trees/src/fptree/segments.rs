//! The list of leaves, read from many places at once.
//!
//! A walk along the list is a chain of cache misses, each of which waits for the one before. So
//! recovery starts walks at many leaves, some of them in turns on each thread, so that their misses
//! overlap. Where a leaf may be the allocator knows ([`Pool::live_blocks`]); whether a block of that
//! size is one of this list is not known before the walk from the head arrives at it: a [`Segment`]
//! is only read, and counts from then on; it ends before the next start, and before a leaf that
//! needs repair. What the walk from the head does not arrive at is forgotten.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{LINE, Medium, PmError, Pool};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{RecordBlock, bits, separator_between};

use super::inner::{InnerTree, LeafRef, Route};
use super::layout::{Geometry, LeafPtr, LeafState, MAX_LEAF, Slot};
use super::leaf::Leaf;
use super::tree::FpTree;
use crate::threads::{on_threads, threads_for};

/// The maximum number of segments.
const MOST: usize = 256;
/// Fewer leaves are walked along from the head alone.
const MANY: usize = 4 * MOST;
/// The number of walks that a thread alternates between.
const WALKS: usize = 8;

/// The keys at the borders of a leaf: its fence twice if keys are inline, else its least and its greatest key.
pub(super) struct Borders<K> {
    pub(super) low: K,
    pub(super) high: K,
}

/// Leaves in a row that need no repair.
pub(super) struct Segment<K> {
    /// The low border of its first leaf, the high one of its last.
    pub(super) borders: Borders<K>,
    /// The last leaf's offset.
    pub(super) last: u64,
    pub(super) records: u64,
    /// The separator on the left of the first is missing.
    pub(super) leaves: Vec<LeafRef>,
}

/// The parameters of reading leaves.
pub(super) struct Reader<'p, K, V, M: Medium, const LEAF: usize, const INNER: usize> {
    pub(super) pool: &'p Pool<M>,
    pub(super) inner: &'p InnerTree<K, INNER>,
    pub(super) value: std::marker::PhantomData<fn() -> V>,
}

/// A walk in progress.
struct SegmentWalk<'p, K, V, const LEAF: usize> {
    /// The next leaf.
    next: Leaf<'p, K, V, LEAF>,
    start: u64,
    /// The lines for reading `next` are prefetched.
    fetched: bool,
    segment: Option<Segment<K>>,
}

/// The outcome of a step of a walk.
#[derive(PartialEq, Eq)]
enum Step {
    /// The lines that it reads are prefetched.
    Fetched,
    /// It read a leaf.
    Read,
    /// The walk is over.
    Over,
}

/// The starts of segments, and how many leaves may yet be read: of an intact list never more than
/// there can be.
struct Starts {
    sorted: Vec<u64>,
    /// Bit `hash` of each start.
    filter: Box<[u64; 64]>,
    taken: AtomicUsize,
    left: AtomicUsize,
}

impl Starts {
    fn new(mut sorted: Vec<u64>, limit: u64) -> Self {
        sorted.sort_unstable();
        sorted.dedup();
        let mut filter = Box::new([0; 64]);
        for &start in &sorted {
            let (word, bit) = Self::place(start);
            filter[word] |= bit;
        }
        let left = usize::try_from(limit).unwrap_or(usize::MAX).saturating_add(sorted.len());
        Self { sorted, filter, taken: AtomicUsize::new(0), left: AtomicUsize::new(left) }
    }

    fn place(offset: u64) -> (usize, u64) {
        let hash = (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        (hash / 64, 1 << (hash % 64))
    }

    fn contains(&self, offset: u64) -> bool {
        let (word, bit) = Self::place(offset);
        self.filter[word] & bit != 0 && self.sorted.binary_search(&offset).is_ok()
    }

    fn take(&self) -> Option<u64> {
        self.sorted.get(self.taken.fetch_add(1, Relaxed)).copied()
    }

    /// Takes `leaves` leaves from those that may still be read; returns whether there were as many.
    fn may_read(&self, leaves: usize) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(leaves)).is_ok()
    }
}

impl<'p, K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    Reader<'p, K, V, M, LEAF, INNER>
{
    /// Returns the leaf's borders. A leaf without records has none, if its keys are byte strings.
    pub(super) fn borders(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
    ) -> Result<Option<Borders<K>>, PmError> {
        if let Shape::Inline(_) = K::SHAPE {
            let mut words = [0; 4];
            let cells = leaf.fence_cells();
            self.pool.pm().read_words(cells, &mut words[..cells.len()]);
            let key = || K::from_words(&words[..cells.len()]);
            return Ok(Some(Borders { low: key(), high: key() }));
        }
        let mut borders: Option<Borders<K>> = None;
        for i in self.outermost(leaf, state) {
            let key = Slot::<K, V>::key(self.pool, leaf.slot(i))?;
            match &mut borders {
                None => borders = Some(Borders { low: key.clone(), high: key }),
                Some(borders) if key < borders.low => borders.low = key,
                Some(borders) if key > borders.high => borders.high = key,
                Some(_) => {}
            }
        }
        Ok(borders)
    }

    /// Returns the slots whose keys may be the least or the greatest, by their prefixes.
    fn outermost(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
    ) -> impl Iterator<Item = usize> {
        let mut prefixes = [0; MAX_LEAF];
        let (mut least, mut greatest) = (u64::MAX, 0);
        let slots = || bits(state.slots()).filter(|&i| i < LEAF);
        for i in slots() {
            prefixes[i] = leaf.prefix(self.pool.pm(), i);
            (least, greatest) = (least.min(prefixes[i]), greatest.max(prefixes[i]));
        }
        slots().filter(move |&i| prefixes[i] == least || prefixes[i] == greatest)
    }

    /// Returns `true` if what lies on the left, up to `high`, ends where a leaf of these borders begins.
    pub(super) fn follows(high: &K, borders: &Borders<K>) -> bool {
        *high < borders.low
    }

    /// Calls `then` with the separator between the leaf at `leaf`, of these borders, and what lies on
    /// its left.
    pub(super) fn with_separator<T>(
        high: Option<&K>,
        borders: &Borders<K>,
        leaf: u64,
        then: impl FnOnce(&Route<'_>) -> Result<T, PmError>,
    ) -> Result<T, PmError> {
        match (K::SHAPE, high) {
            (Shape::Inline(_), _) => then(&Route::to_words(&K::to_words(borders.low.borrowed()))),
            (Shape::Bytes, None) => then(&Route::LEAST),
            (Shape::Bytes, Some(high)) => {
                let (left, right) =
                    (K::to_bytes(high.borrowed()), K::to_bytes(borders.low.borrowed()));
                then(&Route::to_bytes(&separator_between(&left, &right, leaf)?))
            }
        }
    }

    /// Reads what it can of a list of leaves; segments by their first leaf, and the threads used.
    pub(super) fn segments(
        &self,
        head: &Leaf<'_, K, V, LEAF>,
        limit: u64,
    ) -> (HashMap<u64, Segment<K>>, usize) {
        let mut starts = self.some_leaves(head, limit);
        if starts.is_empty() {
            return (HashMap::new(), 1); // a small index
        }
        starts.push(head.next(self.pool.pm()));
        starts.retain(|&start| start != 0 && start != head.offset());
        let threads = threads_for(starts.len());
        let starts = Starts::new(starts, limit);
        let found = on_threads(threads, threads, |_| self.read_some(&starts));
        (found.into_iter().flatten().collect(), threads)
    }

    /// Blocks of the size of a leaf, spread over the pool, if there are many: of this index mostly.
    fn some_leaves(&self, head: &Leaf<'_, K, V, LEAF>, limit: u64) -> Vec<u64> {
        let pool = self.pool;
        if limit < MANY as u64 || pool.pm().is_volatile() {
            return Vec::new();
        }
        // While others use the pool, the survey may fail; that loses nothing.
        let size = pool.block_size(LeafPtr::new(head.offset()));
        let (Ok(size), Ok(mut live)) = (size, pool.live_blocks()) else { return Vec::new() };
        live.retain(|(_, bytes)| *bytes == size);
        if live.len() < MANY {
            return Vec::new();
        }
        (0..MOST).map(|i| live[i * live.len() / MOST].0).collect()
    }

    /// One thread's part.
    fn read_some(&self, starts: &Starts) -> Vec<(u64, Segment<K>)> {
        let begin = || loop {
            let start = starts.take()?;
            if let Ok(next) = Leaf::at(self.pool, start) {
                self.prefetch_leaf(&next);
                return Some(SegmentWalk { next, start, fetched: false, segment: None });
            }
        };
        let mut walks: Vec<_> = std::iter::from_fn(begin).take(WALKS).collect();
        let mut found = Vec::new();
        let mut may_read = 0;
        while !walks.is_empty() {
            let mut at = 0;
            while at < walks.len() {
                if may_read == 0 {
                    may_read = if starts.may_read(64) { 64 } else { 0 };
                }
                let step =
                    if may_read > 0 { self.step(&mut walks[at], starts) } else { Step::Over };
                if step != Step::Over {
                    may_read -= usize::from(step == Step::Read);
                    at += 1;
                    continue;
                }
                let over = match begin().filter(|_| may_read > 0) {
                    Some(other) => std::mem::replace(&mut walks[at], other),
                    None => walks.swap_remove(at),
                };
                found.extend(over.segment.map(|segment| (over.start, segment)));
            }
        }
        found
    }

    /// Moves to the next leaf. Everything read is checked against bounds only.
    fn step(&self, walk: &mut SegmentWalk<'p, K, V, LEAF>, starts: &Starts) -> Step {
        let (pm, leaf) = (self.pool.pm(), walk.next);
        let state = leaf.state(pm);
        if !state.is_valid(LEAF) || state.is_splitting() || state.len() == 0 {
            return Step::Over;
        }
        if !walk.fetched {
            walk.fetched = true;
            if K::SHAPE == Shape::Bytes {
                for i in self.outermost(&leaf, state) {
                    RecordBlock::prefetch(self.pool, Slot::<K, V>::block(pm, leaf.slot(i)));
                }
                return Step::Fetched;
            }
            if let Some(i) = leaf.pending_slot(pm) {
                self.pool.prefetch(LeafPtr::new(
                    leaf.offset() + FpTree::<K, V, M, LEAF, INNER>::line_of_slot(i),
                ));
                return Step::Fetched;
            }
        }
        if leaf.settled(pm) != state || self.note(walk, &leaf, state).is_none() {
            return Step::Over;
        }
        let next = leaf.next(pm);
        if next == 0 || starts.contains(next) {
            return Step::Over;
        }
        let Ok(next) = Leaf::at(self.pool, next) else { return Step::Over };
        self.prefetch_leaf(&next);
        (walk.next, walk.fetched) = (next, false);
        Step::Read
    }

    /// Adds a leaf to a walk's segment; `None` if it does not belong there.
    fn note(
        &self,
        walk: &mut SegmentWalk<'p, K, V, LEAF>,
        leaf: &Leaf<'_, K, V, LEAF>,
        state: LeafState,
    ) -> Option<()> {
        let borders = self.borders(leaf, state).ok().flatten()?;
        let records = state.len() as u64;
        let Some(segment) = &mut walk.segment else {
            let leaves = vec![LeafRef::first(leaf.offset())];
            walk.segment = Some(Segment { borders, last: leaf.offset(), records, leaves });
            return Some(());
        };
        if !Self::follows(&segment.borders.high, &borders) {
            return None;
        }
        let high = Some(&segment.borders.high);
        let offset = leaf.offset();
        let reference =
            Self::with_separator(high, &borders, offset, |low| self.inner.leaf_ref(low, offset));
        segment.leaves.push(reference.ok()?);
        segment.borders.high = borders.high;
        segment.last = leaf.offset();
        segment.records += records;
        Some(())
    }

    /// Prefetches the lines of a leaf that will be read: its header and end, and all of it for byte-string
    /// keys.
    fn prefetch_leaf(&self, leaf: &Leaf<'_, K, V, LEAF>) {
        let fetch = |word: usize| self.pool.prefetch(LeafPtr::new(leaf.offset() + 8 * word as u64));
        if K::SHAPE == Shape::Bytes {
            (0..Geometry::<K, V, LEAF>::WORDS).step_by(LINE / 8).for_each(fetch);
        } else {
            fetch(0);
            fetch(Geometry::<K, V, LEAF>::NEXT);
            fetch(Geometry::<K, V, LEAF>::NEXT + Geometry::<K, V, LEAF>::FENCE_WORDS);
        }
    }
}
