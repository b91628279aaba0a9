//! Buffers, and the assignment of keys to them.
//!
//! Every buffer has a range of ranks. A range is halved, and never united with another. A radix tree in DRAM leads from
//! a rank to the buffer of its range, without a lock.
//!
//! # Lock order
//!
//! To find a buffer takes no lock; then the buffer is locked, and its range checked again. A buffer is added under
//! the lock of that whose range was halved. No thread waits for a lock while it holds another one: a reader that needs
//! several buffers at one moment compares how often they were changed. One that was disturbed too often locks all of
//! them, one after the other, under the lock `ends`: only its holder waits for a buffer while it holds another.

use std::convert::Infallible;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use parking_lot::{Mutex, MutexGuard};
use pmindex_art::{KeyBuf, Leaves, Nodes, Root, Tree};
use pmindex_core::{Arena, Medium, PmError};

use crate::changes::{Change, Changes};

/// How often a search for an end that writers disturb begins again, before it keeps them waiting.
const TRIES: usize = 32;

/// Returns the maximum number of records of a buffer: half of those of a component, as the paper has it, but 16 at
/// least, or all of a component that has fewer.
pub(crate) const fn capacity(records: u64) -> usize {
    match records {
        0..16 => records as usize,
        16..32 => 16,
        _ => (records / 2) as usize,
    }
}

/// The changes of a range of ranks.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The least rank of the range.
    first: u64,
    /// The greatest rank of the range.
    last: u64,
    pub(crate) changes: Changes,
    /// The approximate number of records in the range.
    pub(crate) records: u64,
}

impl Buffer {
    /// Returns `true` if the range can be halved so that the upper half begins with this rank.
    pub(crate) fn has_inside(&self, rank: u64) -> bool {
        self.first < rank && rank <= self.last
    }

    /// Returns `true` if a rank, which is not before the range, is not behind it either.
    pub(crate) fn has(&self, rank: u64) -> bool {
        rank <= self.last
    }

    /// Returns the least and the greatest rank of the range.
    pub(crate) fn ends(&self) -> (u64, u64) {
        (self.first, self.last)
    }
}

/// A buffer, and the least rank of its range, which never changes.
#[derive(Debug)]
struct Slot {
    first: u64,
    /// How often a key of the range was written, the buffer was written to the index, or the range was halved. Rises
    /// under the lock, before what it counts can be seen.
    changes: AtomicU64,
    buffer: Mutex<Buffer>,
}

/// A locked buffer.
pub(crate) struct Locked<'s> {
    slot: &'s Slot,
    buffer: MutexGuard<'s, Buffer>,
}

impl Locked<'_> {
    /// Counts a change that comes now.
    pub(crate) fn note_change(&self) {
        self.slot.changes.store(self.slot.changes.load(Relaxed) + 1, Release);
    }
}

impl Deref for Locked<'_> {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.buffer
    }
}

/// All buffers, in the order in which they were made. They stay where they are.
#[derive(Debug)]
struct Slots(boxcar::Vec<Slot>);

/// The least ranks are the keys of the tree.
impl Leaves for Slots {
    fn load_key(&self, leaf: u64, key: &mut KeyBuf) -> Result<(), PmError> {
        key.push(&self.0[leaf as usize].first.to_be_bytes());
        Ok(())
    }
}

/// All buffers, by their least ranks.
#[derive(Debug)]
pub(crate) struct Buffers {
    slots: Slots,
    nodes: Nodes,
    root: Arena<Root>,
    /// Held by the thread that locks several buffers.
    ends: Mutex<()>,
}

impl Buffers {
    /// Makes buffers for all ranks, over this number of records, and puts changes into them, whose ranks ascend. At most
    /// about `limit` buffers there will be.
    ///
    /// # Errors
    /// Those of reserving memory.
    pub(crate) fn new(
        pm: &impl Medium,
        limit: u64,
        records: u64,
        capacity: usize,
        changes: Vec<(u64, Change)>,
    ) -> Result<Self, PmError> {
        let parts = changes.len() / capacity.max(1) + 1;
        let root = Arena::new(1)?;
        root.alloc()?;
        let nodes = Nodes::new(limit.max(parts as u64))?;
        let slots = Slots(boxcar::Vec::new());
        let buffers = Self { slots, nodes, root, ends: Mutex::new(()) };
        let records = records / parts as u64;
        let from = |first| Buffer { first, last: u64::MAX, records, ..Buffer::default() };
        let (mut buffer, mut before) = (from(0), 0);
        for (rank, change) in changes {
            if buffer.changes.len() >= capacity && rank > before {
                let mut full = std::mem::replace(&mut buffer, from(rank));
                full.last = rank - 1;
                buffers.add(pm, full)?;
            }
            buffer.changes.set(change);
            before = rank;
        }
        buffers.add(pm, buffer)?;
        Ok(buffers)
    }

    fn tree(&self) -> Tree<'_, Slots> {
        Tree::new(&self.nodes, self.root.get(0), &self.slots)
    }

    /// Adds a buffer. After an error no rank leads to it.
    fn add(&self, pm: &impl Medium, buffer: Buffer) -> Result<(), PmError> {
        let first = buffer.first;
        let (changes, buffer) = (AtomicU64::new(0), Mutex::new(buffer));
        let slot = self.slots.0.push(Slot { first, changes, buffer });
        self.tree().insert(pm, &first.to_be_bytes(), slot as u64).map(drop)
    }

    /// Returns the number of records that the index lacks; negative if it has too many.
    pub(crate) fn surplus(&self, pm: &impl Medium) -> i64 {
        let mut surplus = 0;
        let _: Result<(), Infallible> = self.each(pm, |buffer| {
            surplus += buffer.changes.surplus();
            Ok(())
        });
        surplus
    }

    /// Finds the buffer that had a rank at some moment.
    fn find(&self, pm: &impl Medium, rank: u64) -> Option<&Slot> {
        let (tree, key) = (self.tree(), rank.to_be_bytes());
        let near = self.slots.0.get(tree.near(pm, &key)? as usize)?;
        if near.first <= rank {
            return Some(near);
        }
        let place = tree.floor(pm, &key).ok()??;
        self.slots.0.get(place.leaf as usize)
    }

    /// Calls `body` with the buffer of a rank, which is locked meanwhile.
    pub(crate) fn with<R>(
        &self,
        pm: &impl Medium,
        rank: u64,
        body: impl FnOnce(&mut Locked<'_>) -> R,
    ) -> R {
        body(&mut self.locked(pm, rank))
    }

    fn locked(&self, pm: &impl Medium, rank: u64) -> Locked<'_> {
        loop {
            let Some(slot) = self.find(pm, rank) else { continue }; // rank 0 has one
            let buffer = pm.lock(&slot.buffer);
            if buffer.has(rank) {
                return Locked { slot, buffer };
            }
        }
    }

    /// Returns what `look` finds in the first range, or with `up` false in the last one, in which it finds anything;
    /// `None` if it does in none. At one moment all ranges on that side of it have nothing.
    ///
    /// LIN: the lock of the buffer that has something, or of the last one. While it is held, all that was passed is
    /// unchanged since `look` found nothing there: a change counts itself before it can be seen, so a write that
    /// returned before a write to the locked buffer is noticed. After some attempts all that was passed stays locked.
    pub(crate) fn at_an_end<R, E>(
        &self,
        pm: &impl Medium,
        up: bool,
        look: impl Fn(&Buffer) -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        for _ in 0..TRIES {
            match self.try_end(pm, up, &look)? {
                ControlFlow::Break(found) => return Ok(found),
                ControlFlow::Continue(()) => pm.spin(),
            }
        }
        let _alone = pm.lock(&self.ends);
        let (mut passed, mut rank) = (Vec::new(), if up { 0 } else { u64::MAX });
        loop {
            let buffer = self.locked(pm, rank);
            let found = look(&buffer)?;
            let next = if up { buffer.last.checked_add(1) } else { buffer.first.checked_sub(1) };
            match next {
                Some(next) if found.is_none() => rank = next,
                _ => return Ok(found),
            }
            passed.push(buffer);
        }
    }

    fn try_end<R, E>(
        &self,
        pm: &impl Medium,
        up: bool,
        look: impl Fn(&Buffer) -> Result<Option<R>, E>,
    ) -> Result<ControlFlow<Option<R>>, E> {
        let mut passed: Vec<(&Slot, u64)> = Vec::new();
        let mut rank = if up { 0 } else { u64::MAX };
        loop {
            let buffer = self.locked(pm, rank);
            let found = look(&buffer)?;
            let next = if up { buffer.last.checked_add(1) } else { buffer.first.checked_sub(1) };
            if let (None, Some(next)) = (&found, next) {
                passed.push((buffer.slot, buffer.slot.changes.load(Relaxed)));
                rank = next;
                continue;
            }
            let is_as_it_was =
                |(slot, changes): &(&Slot, u64)| slot.changes.load(Acquire) == *changes;
            if passed.iter().all(is_as_it_was) {
                return Ok(ControlFlow::Break(found));
            }
            return Ok(ControlFlow::Continue(()));
        }
    }

    /// Moves the upper half of an empty buffer's range, from `rank` on, to a new buffer, if there is memory for one.
    pub(crate) fn halve(&self, pm: &impl Medium, buffer: &mut Locked<'_>, rank: u64) {
        buffer.note_change();
        let upper = Buffer {
            first: rank,
            last: buffer.last,
            records: buffer.records / 2,
            ..Buffer::default()
        };
        let moved = upper.records;
        if self.add(pm, upper).is_ok() {
            buffer.records -= moved;
            buffer.last = rank - 1;
        }
    }

    /// Calls `body` with every buffer, one after the other, in the order of their ranges.
    pub(crate) fn each<E>(
        &self,
        pm: &impl Medium,
        mut body: impl FnMut(&mut Locked<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rank = 0;
        loop {
            let last = self.with(pm, rank, |buffer| body(buffer).map(|()| buffer.last))?;
            match last.checked_add(1) {
                Some(next) => rank = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the approximate bytes of DRAM of the buffers.
    pub(crate) fn bytes(&self, records: u64) -> usize {
        let one = size_of::<Slot>() + capacity(records) * Changes::EACH;
        self.slots.0.count() * one + self.nodes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use pmindex_core::Pool;

    use super::*;

    /// A writer that changes what was passed, whenever it can, keeps no search for an end from its end.
    #[test]
    fn a_search_for_an_end_ends_though_what_it_passed_is_changed_each_time() {
        let pool = Pool::emulated(1 << 20).expect("memory");
        let pm = pool.pm();
        let buffers = Buffers::new(pm, 8, 0, 4, Vec::new()).expect("memory");
        for rank in [3000, 2000, 1000] {
            buffers.with(pm, 0, |buffer| buffers.halve(pm, buffer, rank));
        }
        for up in [true, false] {
            let (looks, disturbed) = (Cell::new(0), Cell::new(0));
            let look = |buffer: &Buffer| {
                looks.set(looks.get() + 1);
                assert!(looks.get() < 10_000, "it begins again and again");
                // Another thread would wait for the lock.
                let passed = buffers.find(pm, if up { 0 } else { u64::MAX }).expect("a buffer");
                if let Some(buffer) = passed.buffer.try_lock() {
                    Locked { slot: passed, buffer }.note_change();
                    disturbed.set(disturbed.get() + 1);
                }
                Ok::<_, Infallible>(buffer.has_inside(1500).then_some(buffer.first))
            };
            assert_eq!(buffers.at_an_end(pm, up, look), Ok(Some(1000)));
            assert!(disturbed.get() >= TRIES, "{}", disturbed.get());
        }
        let nothing = |_: &Buffer| Ok::<_, Infallible>(None::<u64>);
        assert_eq!(buffers.at_an_end(pm, true, nothing), Ok(None));
        assert!(buffers.slots.0.iter().all(|(_, slot)| slot.buffer.try_lock().is_some()));
    }
}
