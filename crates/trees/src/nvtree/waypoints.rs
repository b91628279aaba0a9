//! Waypoints: leaves from which recovery reads the list, at once.
//!
//! The list of leaves has one direction and one beginning, so a walk along it takes one cache miss
//! after the other. The root names a few leaves spread evenly along it. Recovery walks from the head
//! and from each of them, on several threads, and on each thread from several of them in turn, so
//! that their misses overlap.
//!
//! A waypoint is a hint. It is stored when a leaf gives way to another and when the inner nodes are
//! rebuilt, and never flushed: after a crash of the process it is what it was, after a power failure
//! it may be old, or that of a leaf which is gone. So a walk from a waypoint writes nothing, and what
//! it found counts only if the walk before it has arrived there; otherwise that walk goes on. Whatever
//! the word says, every walk ends: each takes as many steps as there can be leaves, at most.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::{Key, Shape, Value};

use super::layout::{Geometry, Hint, Root};
use super::leaf::Leaf;
use super::tree::NvTree;

/// Waypoints of a list.
const MOST: usize = 5;
/// Leaves in all that a pool must have room for before threads are worth their start.
const MANY: u64 = 1 << 16;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Lets a waypoint follow: leaf `old` is gone, and `new`, or nothing (0), stands there. The lock
    /// of `old` is held.
    pub(super) fn move_waypoint(&self, old: u64, new: u64) {
        let (pm, Ok(root)) = (self.pm(), self.root()) else { return };
        for cell in &root.waypoints {
            if pm.load(cell) == old {
                pm.store(cell, new);
            }
        }
    }

    /// Spreads the waypoints evenly, if the inner nodes were rebuilt since the last time.
    pub(super) fn spread_waypoints(&self) {
        let pm = self.pm();
        let generation = self.inner.generation(pm);
        if self.spread.load(Relaxed) == generation || self.pool.check_writable().is_err() {
            return;
        }
        self.spread.store(generation, Relaxed);
        let Ok(root) = self.root() else { return };
        let mut leaves = self.inner.spread(pm, MOST as u64);
        for cell in &root.waypoints {
            let leaf = leaves.next().unwrap_or(0);
            if pm.load(cell) != leaf {
                pm.store(cell, leaf);
            }
        }
    }
}

/// A leaf as recovery found it.
pub(super) struct Seen<K> {
    pub(super) leaf: u64,
    /// What its counters amount to.
    pub(super) hint: Hint,
    /// `true` if its own hint may differ.
    pub(super) stale: bool,
    /// Its fence; its least key, if keys are byte strings.
    pub(super) low: Option<K>,
    /// Its greatest key, if keys are byte strings.
    pub(super) high: Option<K>,
}

/// A stretch of the list, from its start to the next one, or to the end.
pub(super) struct Stretch<K> {
    pub(super) leaves: Vec<Seen<K>>,
    /// The leaf to be read next; `None` at the end.
    next: Option<u64>,
    /// What stopped it, and the start of the stretch behind it (0: there is none).
    end: Result<u64, PmError>,
}

/// What recovery found.
pub(super) struct Survey<K> {
    /// In the order of the list, and nothing that is not in it.
    pub(super) stretches: Vec<Stretch<K>>,
    pub(super) threads: usize,
}

impl<K> Survey<K> {
    /// How many leaves.
    pub(super) fn leaves(&self) -> usize {
        self.stretches.iter().map(|stretch| stretch.leaves.len()).sum()
    }
}

/// Reads all leaves along the list; writes nothing.
///
/// # Errors
/// [`PmError::Corrupt`]: a list without end, or with a leaf that is none.
pub(super) fn survey<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    root: &Root,
    head: u64,
    limit: u64,
) -> Result<Survey<K>, PmError> {
    let mut starts = vec![head];
    for waypoint in root.waypoints.iter().map(|cell| pool.pm().load(cell)) {
        if waypoint != 0 && !starts.contains(&waypoint) {
            starts.push(waypoint);
        }
    }
    let threads = if limit < MANY || starts.len() == 1 {
        1
    } else {
        std::thread::available_parallelism().map_or(1, |cores| cores.get().min(starts.len()))
    };
    let walk = |part: usize| {
        let own = starts.iter().skip(part).step_by(threads).copied();
        walk_together::<K, V, M, LEAF>(pool, own, &starts, limit)
    };
    let mut found: Vec<Option<Stretch<K>>> = starts.iter().map(|_| None).collect();
    let mut keep = |part: usize, walked: Vec<Stretch<K>>| {
        for (place, stretch) in found.iter_mut().skip(part).step_by(threads).zip(walked) {
            *place = Some(stretch);
        }
    };
    std::thread::scope(|scope| {
        let walk = &walk;
        let others: Vec<_> = (1..threads)
            .map(|part| {
                let spawned = std::thread::Builder::new().spawn_scoped(scope, move || walk(part));
                (part, spawned)
            })
            .collect();
        keep(0, walk(0));
        for (part, spawned) in others {
            // Without another thread this one does it.
            let walked = spawned.map_or_else(
                |_| walk(part),
                |other| match other.join() {
                    Ok(walked) => walked,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
            );
            keep(part, walked);
        }
    });
    let mut stretches = Vec::with_capacity(starts.len());
    let mut start = head;
    while start != 0 {
        let place = starts.iter().position(|s| *s == start);
        let Some(stretch) = place.and_then(|place| found[place].take()) else {
            return Err(without_end(start));
        };
        start = stretch.end.clone()?;
        stretches.push(stretch);
    }
    Ok(Survey { stretches, threads })
}

fn without_end(offset: u64) -> PmError {
    PmError::Corrupt { what: "the list of leaves has no end", offset }
}

/// Walks from some of the `starts` in turn, each up to another start.
fn walk_together<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    own: impl Iterator<Item = u64>,
    starts: &[u64],
    limit: u64,
) -> Vec<Stretch<K>> {
    let pm = pool.pm();
    let stretch = |start| Stretch { leaves: Vec::new(), next: Some(start), end: Ok(0) };
    let mut walks: Vec<Stretch<K>> = own.map(stretch).collect();
    loop {
        let mut over = true;
        for walk in &walks {
            let Some(next) = walk.next else { continue };
            over = false;
            // Its header has come, and says which line tells whether it is right.
            if let Ok(leaf) = Leaf::<K, V, LEAF>::at(pool, next) {
                let count = leaf.hint(pm).count();
                if count < LEAF {
                    pm.prefetch(leaf.counter(count));
                }
            }
        }
        if over {
            return walks;
        }
        for walk in &mut walks {
            if let Some(next) = walk.next.take() {
                walk.step::<V, M, LEAF>(pool, next, starts, limit);
            }
        }
    }
}

impl<K: Key> Stretch<K> {
    /// Reads leaf `offset` and prefetches the next one.
    fn step<V: Value, M: Medium, const LEAF: usize>(
        &mut self,
        pool: &Pool<M>,
        offset: u64,
        starts: &[u64],
        limit: u64,
    ) {
        let read = Leaf::<K, V, LEAF>::at(pool, offset).and_then(|leaf| {
            let next = leaf.next(pool.pm());
            pool.prefetch(PPtr::<PmU64>::new(next));
            let fence = 8 * Geometry::<K, V, LEAF>::FENCE as u64;
            pool.prefetch(PPtr::<PmU64>::new(next.wrapping_add(fence)));
            Ok((look(pool, &leaf)?, next))
        });
        match read {
            Ok((seen, next)) => {
                self.leaves.push(seen);
                if next == 0 || starts.contains(&next) {
                    self.end = Ok(next);
                } else if self.leaves.len() as u64 > limit {
                    self.end = Err(without_end(offset));
                } else {
                    self.next = Some(next);
                }
            }
            Err(error) => self.end = Err(error),
        }
    }
}

/// What a leaf holds, whatever its hint says.
fn look<K: Key, V: Value, M: Medium, const LEAF: usize>(
    pool: &Pool<M>,
    leaf: &Leaf<'_, K, V, LEAF>,
) -> Result<Seen<K>, PmError> {
    let pm = pool.pm();
    let mut hint = leaf.hint(pm);
    if !hint.is_valid(LEAF) {
        return Err(PmError::Corrupt { what: "a leaf's hint", offset: leaf.offset() });
    }
    let stale = hint.is_distrusted() || leaf.is_behind(pm, hint);
    if stale {
        hint = leaf.replay(pm)?;
    }
    let mut seen = Seen { leaf: leaf.offset(), hint, stale, low: None, high: None };
    match K::SHAPE {
        Shape::Inline(n) => seen.low = Some(K::from_words(&leaf.fence(pm)[..n])),
        Shape::Bytes => {
            let mut keys = leaf.sorted(pool, hint)?;
            seen.high = keys.pop().map(|(key, _)| key);
            seen.low = keys.into_iter().next().map(|(key, _)| key).or_else(|| seen.high.clone());
        }
    }
    Ok(seen)
}
