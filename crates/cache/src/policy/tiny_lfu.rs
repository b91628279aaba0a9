//! W-TinyLFU (Einziger, Friedman, Manes, "`TinyLFU`: A highly efficient cache admission policy", ACM TOS
//! 2017), with changes that make hits cheap and cost nothing under a stationary load.
//!
//! A new block enters the window, a FIFO queue in which a use gives one more round. A block that leaves the
//! window replaces a block of the main part that was used less often, or is evicted. As in the paper:
//!
//! * Ids that are not kept also have [counts](super::counts); all counts are halved from time to time.
//! * The size of the window adapts ([`share`](super::share)): the authors use hill climbing with small steps
//!   ("Adaptive software cache management", Middleware 2018), here two sizes are tried.
//!
//! Unlike there:
//!
//! * A kept block has its count beside it, and the table of counts gets it when the block is evicted. So a hit
//!   writes only the block's line.
//! * The table of counts is not a sketch, whose counters are shared by ids.
//! * The main part is not ordered. The victim is the least often used of a few adjacent slots.
//! * The halving accompanies the misses, a few counts each, so none waits for all of it.

use std::hash::Hash;
use std::hint::select_unpredictable;

use super::cells::Cells;
use super::counts::{Counts, MOST, least};
use super::share::Share;
use super::{Access, Hashed, Keeper, Policy};

/// No node.
const NONE: u32 = u32::MAX;
/// The number of blocks of the main part among which the victim is the least used, and of slots that are read
/// for them.
const LOOKED_AT: usize = 8;
const PASSED: usize = 64;
/// The accesses for each kept block in which all counts are halved once.
const FORGETS: u64 = 25;
/// A miss halves the counts of at most this many blocks, and passes at most this many of the window.
const AT_ONCE: u64 = 64;
/// In the order of victims: a block of another part.
const NOT_MAIN: u16 = 1 << 14;
/// A flag in `uses`: used since it came or was passed. The rest is the count.
const USED: u8 = 0x80;

/// The fields of a hit: half a line, for a number and a pointer.
#[derive(Debug)]
#[repr(align(32))]
struct Slot<K, V> {
    /// For a free slot, its former id.
    id: K,
    value: Option<V>,
    uses: u8,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Free,
    Window,
    Main,
    /// In the window or the main part, but in neither until it is unpinned.
    Pinned,
}

/// The links of a block in the window, or the state of a pinned one.
#[derive(Clone, Copy, Debug)]
struct Place {
    newer: u32,
    older: u32,
    pins: u32,
    /// The part of a pinned block.
    is_main: bool,
}

/// Keeps the blocks that are used most often, or were used last, whichever has more hits.
///
/// Besides ids and values it takes about 50 bytes a block.
#[derive(Debug)]
#[repr(C)] // the fields of a hit are adjacent
pub struct TinyLfu<K, V = ()> {
    hits: u64,
    /// Written instead of a count that is the same.
    unchanged: u8,
    cells: Cells,
    slots: Vec<Slot<K, V>>,
    capacity: usize,
    misses: u64,
    places: Vec<Place>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    window: usize,
    main: usize,
    pinned: usize,
    /// The next slot to read.
    hand: usize,
    /// The last victim, and its count when it was found: it stays the victim until it is used. So a bad choice,
    /// which is used soon, does not last.
    marked: u32,
    least: u8,
    counts: Counts,
    share: Share,
    /// The next block whose count is halved, and the accesses that are accounted for.
    broom: usize,
    swept: u64,
}

impl<K: Copy + Eq + Hash> TinyLfu<K> {
    /// Keeps this many blocks, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_capacity(capacity)
    }
}

impl<K: Copy + Eq + Hash, V> TinyLfu<K, V> {
    #[inline]
    fn find(&self, id: Hashed<K>) -> Option<u32> {
        let is = |slot: &Slot<K, V>| slot.id == id.id;
        self.cells.find(id.hash, |node| self.slots.get(node as usize).is_some_and(is))
    }

    fn count(&self, node: u32) -> u8 {
        self.slots[node as usize].uses & MOST
    }

    /// Makes a node the newest of the window.
    fn link(&mut self, node: u32) {
        let older = std::mem::replace(&mut self.newest, node);
        self.slots[node as usize].part = Part::Window;
        let place = &mut self.places[node as usize];
        (place.newer, place.older) = (NONE, older);
        match self.places.get_mut(older as usize) {
            Some(older) => older.newer = node,
            None => self.oldest = node,
        }
        self.window += 1;
    }

    /// Adds a node to the main part.
    fn promote(&mut self, node: u32) {
        self.slots[node as usize].part = Part::Main;
        self.main += 1;
    }

    /// Unlinks a node that is not pinned from its part.
    fn unlink(&mut self, node: u32) {
        if self.slots[node as usize].part == Part::Main {
            self.main -= 1;
            return;
        }
        let Place { newer, older, .. } = self.places[node as usize];
        match self.places.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.places.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
        self.window -= 1;
    }

    /// Removes a node that is in no part from the table.
    fn take(&mut self, node: u32, hash: u64) -> (K, Option<V>) {
        let slot = &mut self.slots[node as usize];
        let (id, value) = (slot.id, slot.value.take());
        slot.part = Part::Free;
        self.cells.take(hash, node);
        self.free.push(node);
        (id, value)
    }

    /// Evicts a node, whose count is remembered.
    fn evict(&mut self, node: u32) -> (K, Option<V>) {
        let (count, hash) = (self.count(node), Hashed::of(self.slots[node as usize].id).hash);
        self.unlink(node);
        if count > 1 {
            self.counts.raise(hash, count);
        }
        self.take(node, hash)
    }

    /// Returns the least used of a few blocks of the main part.
    fn victim(&mut self) -> Option<u32> {
        if self.main == 0 {
            return None;
        }
        if let Some(slot) = self.slots.get(self.marked as usize)
            && slot.part == Part::Main
            && slot.uses & MOST <= self.least
        {
            return Some(self.marked);
        }
        let (mut found, mut seen, mut passed) = ((NOT_MAIN, NONE), 0, 0);
        while seen < LOOKED_AT && (passed < PASSED || found.0 == NOT_MAIN) {
            let order = std::array::from_fn(|n| {
                let slot = self.slots.get(self.hand + n);
                slot.map_or(NOT_MAIN, |slot| match slot.part {
                    Part::Main => u16::from(slot.uses & MOST) << 4,
                    _ => NOT_MAIN,
                })
            });
            let (least, of_main) = (least(order), order.map(|slot| usize::from(slot != NOT_MAIN)));
            if least < NOT_MAIN {
                found = found.min((least & !7, (self.hand + usize::from(least & 7)) as u32));
            }
            seen += of_main.iter().sum::<usize>();
            (self.hand, passed) = (self.hand + LOOKED_AT, passed + LOOKED_AT);
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
        }
        (self.least, self.marked) = ((found.0 >> 4) as u8, found.1);
        Some(self.marked)
    }

    /// Returns the oldest of the window that was not used lately; others that it passes become newer.
    fn candidate(&mut self) -> Option<u32> {
        for _ in 0..(self.window as u64).min(AT_ONCE) {
            let uses = &mut self.slots[self.oldest as usize].uses;
            if *uses & USED == 0 {
                break;
            }
            *uses &= !USED;
            let node = self.oldest;
            self.unlink(node);
            self.link(node);
        }
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Makes room for one block. Returns `None` if all are pinned.
    fn make_room(&mut self) -> Option<(K, Option<V>)> {
        let window = self.share.window();
        for _ in 0..self.window.saturating_sub(window).min(AT_ONCE as usize) {
            let node = self.oldest;
            self.unlink(node);
            self.promote(node);
        }
        if self.window < window
            && let Some(victim) = self.victim()
        {
            return Some(self.evict(victim));
        }
        let candidate = self.candidate();
        if let Some(node) = candidate
            && self.leaves_unseen(node)
        {
            return Some(self.evict(node));
        }
        match (candidate, self.victim()) {
            (Some(candidate), Some(victim)) if self.count(candidate) > self.count(victim) => {
                let evicted = self.evict(victim);
                self.unlink(candidate);
                self.promote(candidate);
                Some(evicted)
            }
            (Some(node), _) | (None, Some(node)) => Some(self.evict(node)),
            (None, None) => None,
        }
    }

    /// Returns `true` if a block of the window is evicted without a look at the main part: one that was used once
    /// hardly ever stays, so that is checked only one time in sixteen.
    fn leaves_unseen(&self, node: u32) -> bool {
        self.count(node) <= 1 && !self.misses.is_multiple_of(16)
    }

    /// Replaces the only block of the window, in its slot.
    fn replace(&mut self, id: Hashed<K>, count: u8) -> (K, Option<V>) {
        let node = self.oldest;
        let slot = &mut self.slots[node as usize];
        let evicted = (std::mem::replace(&mut slot.id, id.id), slot.value.take());
        slot.uses = count;
        self.cells.take(Hashed::of(evicted.0).hash, node);
        self.cells.add(id.hash, node);
        evicted
    }

    /// Halves the counts that are due.
    fn sweep(&mut self, accesses: u64) {
        if accesses < self.swept + FORGETS {
            return;
        }
        // Missed halvings are dropped if they are more than all counts.
        let most = FORGETS.saturating_mul(self.capacity as u64);
        self.swept = self.swept.max(accesses.saturating_sub(most));
        for _ in 0..(accesses.saturating_sub(self.swept) / FORGETS).min(AT_ONCE) {
            self.swept += FORGETS;
            if let Some(slot) = self.slots.get_mut(self.broom) {
                slot.uses = (slot.uses & USED) | ((slot.uses & MOST) / 2);
            }
            self.counts.halve(self.broom);
            self.broom = if self.broom + 1 == self.capacity { 0 } else { self.broom + 1 };
        }
    }

    /// Keeps a block that is not kept; returns the evicted one, or `Err` if all are pinned.
    #[expect(clippy::type_complexity, reason = "a node, and a block")]
    fn admit(&mut self, id: Hashed<K>) -> Result<(u32, Option<(K, Option<V>)>), ()> {
        self.misses += 1;
        self.share.note(self.hits + self.misses, self.hits);
        self.sweep(self.hits + self.misses);
        let count = self.counts.note(id.hash);
        let mut evicted = None;
        if self.len() == self.capacity {
            if (self.window, self.share.window()) == (1, 1) && self.leaves_unseen(self.oldest) {
                // Most misses.
                let evicted = self.replace(id, count);
                return Ok((self.oldest, Some(evicted)));
            }
            evicted = Some(self.make_room().ok_or(())?);
        } else if self.window >= self.share.window() {
            let node = self.oldest;
            self.unlink(node);
            self.promote(node);
        }
        let slot = Slot { id: id.id, value: None, uses: count, part: Part::Free };
        let place = Place { newer: NONE, older: NONE, pins: 0, is_main: false };
        let node = if let Some(node) = self.free.pop() {
            (self.slots[node as usize], self.places[node as usize]) = (slot, place);
            node
        } else {
            self.slots.push(slot);
            self.places.push(place);
            self.slots.len() as u32 - 1
        };
        self.cells.add(id.hash, node);
        self.link(node);
        Ok((node, evicted))
    }
}

impl<K: Copy + Eq + Hash, V> Keeper<K, V> for TinyLfu<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, (1 << 31) - 1);
        Self {
            hits: 0,
            unchanged: 0,
            cells: Cells::new(capacity),
            slots: Vec::with_capacity(capacity),
            capacity,
            misses: 0,
            places: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            newest: NONE,
            oldest: NONE,
            window: 0,
            main: 0,
            pinned: 0,
            hand: 0,
            marked: NONE,
            least: 0,
            counts: Counts::new(capacity),
            share: Share::new(capacity),
            broom: 0,
            swept: 0,
        }
    }

    #[inline]
    fn hit(&mut self, id: Hashed<K>) -> Option<&V> {
        let node = self.find(id)?;
        let slot = &mut self.slots[node as usize];
        self.hits += 1;
        // A store that changes nothing would take the line from other processors: with two threads, a seventh of all
        // hits a second. A branch would be mispredicted for each ninth hit; so it is stored elsewhere.
        let uses = USED | ((slot.uses & MOST) + 1).min(MOST);
        let is_same = slot.uses == uses;
        *select_unpredictable(is_same, &mut self.unchanged, &mut slot.uses) = uses;
        slot.value.as_ref()
    }

    fn value(&mut self, id: Hashed<K>) -> Option<&mut Option<V>> {
        self.find(id).map(|node| &mut self.slots[node as usize].value)
    }

    fn insert(&mut self, id: Hashed<K>, value: V) -> Result<Option<V>, V> {
        if let Some(node) = self.find(id) {
            return Ok(self.slots[node as usize].value.replace(value));
        }
        match self.admit(id) {
            Ok((node, evicted)) => {
                self.slots[node as usize].value = Some(value);
                Ok(evicted.and_then(|(_, value)| value))
            }
            Err(()) => Err(value),
        }
    }
}

impl<K: Copy + Eq + Hash, V> Policy<K> for TinyLfu<K, V> {
    fn access(&mut self, id: K) -> Access<K> {
        let id = Hashed::of(id);
        if self.find(id).is_some() {
            self.hit(id);
            return Access::Hit;
        }
        match self.admit(id) {
            Ok((_, evicted)) => Access::Admitted { evicted: evicted.map(|(id, _)| id) },
            Err(()) => Access::Below,
        }
    }

    fn contains(&self, id: K) -> bool {
        self.find(Hashed::of(id)).is_some()
    }

    fn remove(&mut self, id: K) -> bool {
        let id = Hashed::of(id);
        let Some(node) = self.find(id) else { return false };
        if self.places[node as usize].pins > 0 {
            self.pinned -= 1;
        } else {
            self.unlink(node);
        }
        self.take(node, id.hash);
        true
    }

    fn pin(&mut self, id: K) -> bool {
        let Some(node) = self.find(Hashed::of(id)) else { return false };
        if self.places[node as usize].pins == 0 {
            self.places[node as usize].is_main = self.slots[node as usize].part == Part::Main;
            self.unlink(node);
            self.slots[node as usize].part = Part::Pinned;
            self.pinned += 1;
        }
        self.places[node as usize].pins += 1;
        true
    }

    fn unpin(&mut self, id: K) -> bool {
        let Some(node) = self.find(Hashed::of(id)) else { return false };
        let place = &mut self.places[node as usize];
        if place.pins == 0 {
            return false;
        }
        place.pins -= 1;
        if place.pins == 0 {
            let is_main = place.is_main;
            self.pinned -= 1;
            if is_main { self.promote(node) } else { self.link(node) }
        }
        true
    }

    fn len(&self) -> usize {
        self.window + self.main + self.pinned
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
