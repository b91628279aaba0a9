//! Scans, in both directions, walking from tree to tree.
//!
//! A scan takes some records at a time: their places, in order, from as many trees as that takes, then
//! each record, whose place is validated after it is read. Where something has changed it goes on from
//! the last key that it has. Records lie anywhere in PM: a walk fetches each as soon as it knows of it,
//! so the cache misses of a batch overlap each other and the rest of the walk.

use std::cell::Cell;
use std::ops::Bound;

use pmindex_art::{Direction, KeyBuf, Place, Root, Scratch};
use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Records, Value};
use pmindex_record::{Bounds, LeafSource, Probe, Readable, Scan, Sink};

use crate::directory::Directory;
use crate::layout::SlotRef;
use crate::record::KeyBytes;
use crate::tree::Hart;

/// The largest number of records that are read at a time.
const BATCH: usize = 128;
/// The largest number read at first, if the caller does not say how many it wants.
const FIRST_BATCH: usize = 4;
/// From how many records on the next tree is walked together with the first.
const SEVERAL: usize = 16;
/// The largest number of trees that are walked together, besides the first.
const MOST_TREES: usize = 32;
/// How far ahead of the current record the objects of another one are prefetched.
const AHEAD: usize = 12;

/// Items of a range scan, from both ends.
pub type Range<'t, K, V, M = Mapped, const CHUNK: usize = 56, const PREFIX: usize = 2> =
    Scan<Batches<'t, K, V, M, CHUNK, PREFIX>>;

/// The source of a [`Range`].
pub struct Batches<'t, K, V, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    front: End,
    back: End,
    /// Room for the roots of the trees that are walked together, but for the first.
    beyond: [&'t Root; MOST_TREES],
    scratch: Scratch<'t>,
    visit: Visit,
}

/// The directory entries that the last read has visited, from an end of the directory on.
#[derive(Clone, Copy, Default)]
struct Visit {
    count: usize,
    up: bool,
    /// The last one; `None` if none is left beyond it.
    last: Option<usize>,
}

/// A directory entry, and from where in its tree on.
type From = (usize, Bound<KeyBuf>);

/// The place where one end reads next.
enum Next {
    Nowhere,
    /// The first marked entry, or the last one.
    Edge,
    At(From),
}

/// One end of a scan.
struct End {
    next: Next,
    /// The largest number of records in the next batch.
    batch: usize,
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    fn scan_of(&self, bounds: Bounds<K>) -> Range<'_, K, V, M, CHUNK, PREFIX> {
        let batches = Batches {
            tree: self,
            front: End { next: Self::scan_from(&bounds.lower), batch: FIRST_BATCH },
            back: End { next: Self::scan_from(&bounds.upper), batch: FIRST_BATCH },
            beyond: [self.directory.root(0); MOST_TREES],
            scratch: Scratch::new(),
            visit: Visit { count: 0, up: true, last: None },
        };
        Scan::new(batches, bounds)
    }

    /// Returns whether the marked entries are those that were visited.
    fn directory_has(&self, visit: Visit) -> bool {
        let Visit { count, up, last } = visit;
        let next = |from| self.directory.next(from, up);
        let mut entry = next(if up { 0 } else { Directory::<PREFIX>::ENTRIES - 1 });
        for _ in 1..count {
            let after = entry.and_then(|entry| Directory::<PREFIX>::step(entry, up));
            entry = after.and_then(next);
        }
        if last.is_some() || count == 0 {
            return entry == last;
        }
        let after = entry.and_then(|entry| Directory::<PREFIX>::step(entry, up));
        entry.is_some() && after.and_then(next).is_none()
    }

    /// Returns the directory entry of a key, and the rest of it.
    fn home_of(key: &K) -> (usize, KeyBuf) {
        let probe = Probe::of_stored(key);
        let bytes = KeyBytes::of(&probe);
        let home = Self::home(bytes.bytes());
        let mut rest = KeyBuf::new();
        rest.push(home.rest);
        (home.entry, rest)
    }

    /// Returns where a scan begins.
    fn scan_from(bound: &Bound<K>) -> Next {
        match bound {
            Bound::Included(key) => {
                let (entry, rest) = Self::home_of(key);
                Next::At((entry, Bound::Included(rest)))
            }
            Bound::Excluded(key) => {
                let (entry, rest) = Self::home_of(key);
                Next::At((entry, Bound::Excluded(rest)))
            }
            Bound::Unbounded => Next::Edge,
        }
    }

    /// Adds the record at a place, if its key is `wanted`; returns whether it is, or `None` if it is not
    /// linked there any more.
    #[inline(always)]
    fn add_record(
        &self,
        place: &Place<'_>,
        items: &mut impl Sink<K, V>,
        wanted: impl FnOnce(&K) -> bool,
    ) -> Option<Result<bool, PmError>> {
        let before = items.count();
        let linked = InPlace { tree: self, place, is_gone: Cell::new(false) };
        let added = items.add_if(&linked, wanted);
        let stays = match added {
            // The value was validated, and the key with it.
            Ok(true) => !linked.is_gone.get(),
            _ => place.validate(self.pm()),
        };
        if !stays {
            items.truncate(before);
        }
        stays.then_some(added)
    }
}

/// The record at a place of a tree.
struct InPlace<'p, 't, K, V, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'p Hart<K, V, M, CHUNK, PREFIX>,
    place: &'p Place<'t>,
    /// The record is no longer linked there: its data must be dropped.
    is_gone: Cell<bool>,
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    InPlace<'_, '_, K, V, M, CHUNK, PREFIX>
{
    fn slot(&self) -> SlotRef {
        SlotRef::from_number(self.place.leaf)
    }

    /// Returns the result of `read` on the record, if it is linked: under the lock of its key, which is that
    /// in the record. That key is used only if the place holds.
    #[inline(always)]
    fn locked<T>(
        &self,
        key: &K,
        read: impl FnMut(SlotRef) -> Result<T, PmError>,
    ) -> Result<T, PmError> {
        let hash = Probe::<K>::of_stored(key).hash();
        self.tree.read_at(self.place, hash, read).unwrap_or_else(|| {
            self.is_gone.set(true);
            Err(PmError::Corrupt { what: "a record that is gone", offset: self.slot().offset() })
        })
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Readable<K, V>
    for InPlace<'_, '_, K, V, M, CHUNK, PREFIX>
{
    #[inline(always)]
    fn key(&self) -> Result<K, PmError> {
        self.tree.records.key(self.slot())
    }
    fn key_into(&self, key: &mut K) -> Result<(), PmError> {
        self.tree.records.key_into(self.slot(), key)
    }
    #[inline(always)]
    fn value(&self, key: &K) -> Result<V, PmError> {
        self.locked(key, |slot| self.tree.records.value(slot))
    }
    fn value_into(&self, key: &K, value: &mut V) -> Result<(), PmError> {
        self.locked(key, |slot| self.tree.records.value_into(slot, value))
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Batches<'_, K, V, M, CHUNK, PREFIX>
{
    /// Takes up to `limit` places from `from` on, from as many trees as that takes; returns whether
    /// there may be more.
    fn take_places(
        &mut self,
        bounds: &Bounds<K>,
        from: &From,
        up: bool,
        limit: usize,
    ) -> Result<bool, PmError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let direction = if up { Direction::Ascending } else { Direction::Descending };
        let fetch = |leaf| tree.records.prefetch(SlotRef::from_number(leaf));
        // The last entry that is not beyond the other end's bound.
        let last = match if up { &bounds.upper } else { &bounds.lower } {
            Bound::Included(key) | Bound::Excluded(key) => {
                Some(Hart::<K, V, M, CHUNK, PREFIX>::home_of(key).0)
            }
            Bound::Unbounded => None,
        };
        let after = |entry: usize| {
            let after = tree.directory.next(Directory::<PREFIX>::step(entry, up)?, up)?;
            let inside = last.is_none_or(|last| if up { after <= last } else { after >= last });
            inside.then_some(after)
        };
        let (mut entry, mut bound) = (from.0, from.1.as_ref().map(KeyBuf::bytes));
        let mut trees = usize::from(limit >= SEVERAL);
        self.scratch.clear();
        self.visit = Visit { count: 0, up, last: None };
        loop {
            let art = tree.tree(entry);
            let mut count = 0;
            for root in &mut self.beyond[..trees] {
                let Some(next) = after(entry) else { break };
                *root = tree.directory.root(next);
                entry = next;
                count += 1;
            }
            self.visit.count += 1 + count;
            let (scratch, beyond) = (&mut self.scratch, &self.beyond[..count]);
            let left = limit - scratch.places().len();
            if art.walk_on(pm, (bound, direction), beyond, left, scratch, fetch)? {
                self.visit.last = Some(entry);
                return Ok(true);
            }
            let Some(next) = after(entry) else { return Ok(false) };
            (entry, bound) = (next, Bound::Unbounded);
            trees = (2 * trees).clamp(1, MOST_TREES);
        }
    }

    /// Reads at one end, away from it: returns whether there may be more.
    fn read(
        &mut self,
        bounds: &Bounds<K>,
        (up, most): (bool, usize),
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let (tree, before) = (self.tree, items.count());
        let end = if up { &mut self.front } else { &mut self.back };
        // A load shows its trees one after another: a read sees none of them or all.
        let loads = tree.loads.begin_read(tree.pm());
        let from = match std::mem::replace(&mut end.next, Next::Nowhere) {
            Next::Nowhere => return Ok(false),
            Next::At(from) => from,
            Next::Edge => {
                let edge = if up { 0 } else { Directory::<PREFIX>::ENTRIES - 1 };
                let Some(first) = tree.directory.next(edge, up) else { return Ok(false) };
                (first, Bound::Unbounded)
            }
        };
        let at_edge = matches!(from.1, Bound::Unbounded);
        // A caller that asks for a number of records gets them at once.
        let limit = if most == usize::MAX { end.batch } else { most.min(BATCH) };
        end.batch = (4 * limit).min(BATCH);
        let more = self.take_places(bounds, &from, up, limit)?;
        let (mut changed, mut ended) = (false, false);
        let objects = |place: &Place<'_>| {
            tree.records.prefetch_objects(SlotRef::from_number(place.leaf));
        };
        let places = self.scratch.places();
        places.iter().take(AHEAD).for_each(objects);
        for (at, place) in places.iter().enumerate() {
            places.get(at + AHEAD).into_iter().for_each(objects);
            let (mut below, mut above) = (false, false);
            let added = tree.add_record(place, items, |key| {
                (below, above) = (bounds.is_below(key), bounds.is_above(key));
                !(below || above)
            });
            let Some(added) = added else {
                changed = true;
                break;
            };
            ended = !added?;
            // A key that is not beyond what this end has read belongs to no tree: the scan would never end.
            if if up { below } else { above } {
                let offset = SlotRef::from_number(place.leaf).offset();
                return Err(PmError::Corrupt { what: "a record out of order", offset }.into());
            }
            if ended {
                break;
            }
        }
        let beside_a_load = !tree.loads.validate(tree.pm(), loads);
        if beside_a_load {
            items.truncate(before);
        }
        let next = if !beside_a_load && (ended || !more && !changed) {
            Next::Nowhere
        } else if let Some((key, _)) = items.records()[before..].last() {
            let (entry, rest) = Hart::<K, V, M, CHUNK, PREFIX>::home_of(key);
            Next::At((entry, Bound::Excluded(rest)))
        } else if at_edge {
            Next::Edge
        } else {
            Next::At(from)
        };
        let end = if up { &mut self.front } else { &mut self.back };
        end.next = next;
        Ok(!matches!(end.next, Next::Nowhere))
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> LeafSource
    for Batches<'_, K, V, M, CHUNK, PREFIX>
{
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = K;

    fn pool(&self) -> &Pool<M> {
        &self.tree.pool
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let before = items.count();
        let more = self.read(bounds, (true, most), items)?;
        bounds.pass_up(&items.records()[before..]);
        Ok(more)
    }

    fn watch(&mut self) {
        self.scratch.watch();
    }

    fn stays(&self) -> bool {
        // Entries stay marked: if no other one is now, none was when the trees were as they were read.
        self.scratch.stays(self.tree.pm()) && self.tree.directory_has(self.visit)
    }

    fn keep(bounds: Bounds<K>, records: &mut Records<K, V>) {
        bounds.keep(records);
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<K>,
        most: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let more = self.read(bounds, (false, most), items)?;
        items.reverse();
        bounds.pass_down(items);
        Ok(more)
    }
}

pmindex_record::scans!(Hart<K, V, M, CHUNK: usize, PREFIX: usize>, Range);
