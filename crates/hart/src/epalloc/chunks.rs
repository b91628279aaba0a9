//! Handing slots out and taking them back.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, MutexGuard};
use pmindex_core::{Arena, Mapped, Medium, PPtr, PmError, PmU64, Pool, Rmw};

use crate::layout::{
    CLASSES, ChunkHead, ChunkPtr, ChunkShape, LineWord, PLACES, Root, SlotRef, objects_per_chunk,
    per_line, record_at, size_class,
};

use super::shelf::{IN_HAND, ON_SHELF, Shelf, States};
use super::table::{Table, free_chunk, free_segments, make_chunk};

/// Hands: more than threads that write at once without waiting.
const HANDS: usize = 16;
/// Chunks that are looked at to see how many slots are free.
const SAMPLE: u32 = 32;

/// A hand on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct HandPlace(Mutex<Hand>);

static INSTANCES: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Whose hands this thread used last, and which one.
    static LAST: Cell<(u64, usize)> = const { Cell::new((0, 0)) };
}

/// A chunk of records whose free slots one writer hands out.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    /// The chunk's number plus 1, and where it is; 0 if there is none.
    chunk: u32,
    base: u64,
    /// Free slots.
    free: u64,
}

/// All chunks of an index.
#[derive(Debug)]
pub(crate) struct Chunks {
    states: States,
    table: Mutex<Table>,
    /// That of records, then those of objects by size class.
    shelves: Box<[Mutex<Shelf>]>,
    hands: [HandPlace; HANDS],
    records: ChunkShape,
    instance: u64,
    /// Held while a chunk is emptied: it is no writer's then, and a refused load does not give it back meanwhile.
    emptying: Mutex<()>,
    /// The hand that the next thread begins with.
    next_hand: AtomicU64,
    /// The chunk that the next sample begins with.
    next_sample: AtomicU64,
    /// The chunk whose records are visited next.
    next_visit: AtomicU64,
    /// How many times records are not visited: the last number, and the 8 bits that are left of it.
    wait: AtomicU64,
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}

/// Whether a chunk with these bits may be worth emptying: it is on its shelf, at most 5/8 of its slots are
/// taken, and it was not looked at for some removals.
#[inline(always)]
fn is_sparse(taken: u64, shape: ChunkShape) -> bool {
    let (count, slots) = ((taken & shape.all()).count_ones() as usize, shape.slots());
    taken & ON_SHELF != 0 && 8 * count <= 5 * slots && (slots < 8 || count.is_multiple_of(4))
}

/// A chunk of records that is emptied: no slot of it is taken meanwhile. Dropped, it is given back if it is
/// empty, else put back on its shelf.
#[must_use]
pub(crate) struct Sparse<'p, M: Medium> {
    chunks: &'p Chunks,
    pool: &'p Pool<M>,
    number: u32,
    pub(crate) base: ChunkPtr,
    /// The slots that were live or handed out when it was taken.
    pub(crate) taken: u64,
    /// Until it is back where it was, or given back.
    _alone: MutexGuard<'p, ()>,
}

impl<M: Medium> Drop for Sparse<'_, M> {
    fn drop(&mut self) {
        let (states, shape) = (&self.chunks.states, self.chunks.records);
        let mut rack = self.pool.pm().lock(&self.chunks.shelves[0]);
        let taken = states.change_taken(self.number, Rmw::And(!IN_HAND)) & shape.all();
        if taken == 0 {
            drop(rack);
            self.chunks.recycle(self.pool, self.number, shape);
        } else if taken != shape.all() {
            rack.put(states, self.number);
        }
    }
}

impl Chunks {
    /// No chunks, with room for as many as a pool of `bytes` can have.
    pub(crate) fn new(bytes: u64, records: ChunkShape) -> Result<Self, PmError> {
        let least = records.bytes().min(128);
        let most = u32::try_from(bytes / least + 64).unwrap_or(u32::MAX >> 1);
        Ok(Self {
            states: States { dram: Mapped::dram(), all: Arena::new(most)?, most },
            table: Mutex::new(Table::default()),
            shelves: (0..=CLASSES).map(|_| Mutex::default()).collect(),
            hands: Default::default(),
            records,
            instance: INSTANCES.fetch_add(1, Relaxed),
            emptying: Mutex::default(),
            next_hand: AtomicU64::new(0),
            next_sample: AtomicU64::new(0),
            next_visit: AtomicU64::new(0),
            wait: AtomicU64::new(0),
        })
    }

    /// Returns the rack of a shape, if its chunks have one.
    fn room_for(&self, shape: ChunkShape) -> Option<&Mutex<Shelf>> {
        if shape.is_objects() {
            self.shelves.get(1 + size_class(shape.slot_words())?)
        } else {
            self.shelves.first()
        }
    }

    /// Locks a hand, preferably the one that this thread had last. Threads begin with different ones.
    #[inline]
    pub(crate) fn hand(&self, pm: &impl Medium) -> MutexGuard<'_, Hand> {
        let (instance, last) = LAST.get();
        let first = if instance == self.instance {
            last
        } else {
            self.next_hand.fetch_add(1, Relaxed) as usize % HANDS
        };
        loop {
            pm.yield_point();
            for i in (first..HANDS).chain(0..first) {
                if let Some(hand) = self.hands[i].0.try_lock() {
                    LAST.set((self.instance, i));
                    return hand;
                }
            }
            pm.spin();
        }
    }

    /// Takes a slot for a record of `words` words, as all have (a constant of the caller, so that divisions
    /// by it are compiled away). Its `live` bit is clear, durably.
    ///
    /// # Cost
    /// Now and then a new chunk: 2 fences.
    #[inline(always)]
    pub(crate) fn take_record<M: Medium>(
        &self,
        pool: &Pool<M>,
        root: &Root,
        hand: &mut Hand,
        words: usize,
    ) -> Result<SlotRef, PmError> {
        if hand.free == 0 {
            self.refill(pool, root, hand)?;
        }
        let slot = hand.free.trailing_zeros() as usize;
        hand.free &= hand.free - 1;
        Ok(SlotRef::new(hand.base + record_at(words, slot), slot))
    }

    #[cold]
    #[inline(never)]
    fn refill<M: Medium>(
        &self,
        pool: &Pool<M>,
        root: &Root,
        hand: &mut Hand,
    ) -> Result<(), PmError> {
        let (states, all) = (&self.states, self.records.all());
        let mut rack = pool.pm().lock(&self.shelves[0]);
        if let Some(number) = hand.chunk.checked_sub(1) {
            // Take the slots that came back meanwhile; if there are none the chunk is full, and leaves the
            // hand.
            loop {
                hand.free = all & !states.swap_taken(number, all | IN_HAND);
                if hand.free != 0 {
                    self.prefetch_free(pool, hand);
                    return Ok(());
                }
                if states.cas_taken(number, all | IN_HAND, all) {
                    break;
                }
            }
            hand.chunk = 0;
        }
        let number = if let Some(number) = rack.last() {
            rack.take_off(states, number);
            number
        } else {
            drop(rack);
            let number = self.make(pool, root, self.records)?;
            rack = pool.pm().lock(&self.shelves[0]);
            number
        };
        hand.chunk = number + 1;
        hand.base = states.dram.load(&states.get(number).base);
        hand.free = all & !states.swap_taken(number, all | IN_HAND);
        if let Some(next) = rack.last() {
            states.all.prefetch(next); // for the next time
        }
        drop(rack);
        self.prefetch_free(pool, hand);
        Ok(())
    }

    /// Fetches the lines of free slots together, so that no record waits for its own. A hint.
    fn prefetch_free<M: Medium>(&self, pool: &Pool<M>, hand: &Hand) {
        let (words, all) = (self.records.slot_words(), self.records.slots());
        for slot in (0..all).step_by(per_line(words)) {
            if hand.free >> slot & ((1 << per_line(words)) - 1) != 0 {
                pool.prefetch(PPtr::<PmU64>::new(hand.base + record_at(words, slot)));
            }
        }
    }

    /// Takes a slot of `words` words for an object.
    ///
    /// # Cost
    /// Now and then a new chunk, always one for a large object: 2 fences.
    pub(crate) fn take_object<M: Medium>(
        &self,
        pool: &Pool<M>,
        root: &Root,
        words: usize,
    ) -> Result<SlotRef, PmError> {
        let shape = ChunkShape::objects(words, objects_per_chunk(words, self.records.slots()));
        let states = &self.states;
        let Some(rack) = self.room_for(shape) else {
            let number = self.make(pool, root, shape)?;
            states.set_taken(number, 1);
            return Ok(self.slot(number, 0));
        };
        let mut rack = pool.pm().lock(rack);
        let number = if let Some(number) = rack.last() {
            number
        } else {
            let number = self.make(pool, root, shape)?;
            rack.put(states, number);
            number
        };
        // Other threads may free slots meanwhile, and take none.
        let slot = (!states.taken(number)).trailing_zeros() as usize;
        let taken = states.change_taken(number, Rmw::Or(1 << slot)) | 1 << slot;
        if taken & shape.all() == shape.all() {
            rack.take_off(states, number);
            if states.taken(number) & shape.all() != shape.all() {
                rack.put(states, number); // one has become free meanwhile
            }
        }
        Ok(self.slot(number, slot))
    }

    fn slot(&self, number: u32, slot: usize) -> SlotRef {
        let state = self.states.get(number);
        let words = self.states.shape(number).slot_words(); // of objects
        let base = self.states.dram.load(&state.base);
        SlotRef::new(base + (size_of::<ChunkHead>() + 8 * words * slot) as u64, slot)
    }

    /// Makes a chunk with no slot taken, which no other thread can reach.
    fn make<M: Medium>(
        &self,
        pool: &Pool<M>,
        root: &Root,
        shape: ChunkShape,
    ) -> Result<u32, PmError> {
        let (number, place) = {
            let mut table = pool.pm().lock(&self.table);
            let number = table.take(pool, root)?;
            (number, table.place(pool, number)?)
        };
        match make_chunk(pool, place, number, shape) {
            Ok(chunk) => {
                self.adopt(number, chunk, shape);
                Ok(number)
            }
            Err(error) => {
                pool.pm().lock(&self.table).free.push(number);
                Err(error)
            }
        }
    }

    /// Knows a chunk with no slot taken. Recovery does it for each, on several threads.
    pub(crate) fn adopt(&self, number: u32, chunk: ChunkPtr, shape: ChunkShape) {
        let state = self.states.get(number);
        self.states.dram.store(&state.base, chunk.offset());
        self.states.dram.store(&state.shape, shape);
        self.states.dram.store(&state.taken, 0);
    }

    /// Returns the number of the chunk that a record is in, as its line says it.
    #[inline(always)]
    pub(crate) fn number_of_record(
        &self,
        at: SlotRef,
        line: LineWord,
        words: usize,
    ) -> Result<u32, PmError> {
        let number = line.number();
        if number < self.states.most {
            let state = self.states.get(number);
            let base = at.record_chunk(words);
            if self.states.dram.load(&state.base) == base
                && self.states.dram.load(&state.shape) == self.records
            {
                return Ok(number);
            }
        }
        Err(corrupt("a record that is in no chunk", at.offset()))
    }

    /// Returns the number of the chunk of an object's slot of `slot_words` words.
    pub(crate) fn number_of<M: Medium>(
        &self,
        pool: &Pool<M>,
        at: SlotRef,
        slot_words: usize,
    ) -> Result<u32, PmError> {
        let base = at.object_chunk(slot_words);
        let head = pool.get(ChunkPtr::new(base))?;
        let number = pool.pm().load(&head.number);
        if number < u64::from(self.states.most) {
            let state = self.states.get(number as u32);
            let shape = self.states.dram.load(&state.shape);
            let fits = shape.slot_words() == slot_words && at.slot() < shape.slots();
            let fits = fits && shape.is_objects();
            if self.states.dram.load(&state.base) == base && fits {
                return Ok(number as u32);
            }
        }
        Err(corrupt("a slot that is in no chunk", at.offset()))
    }

    /// Fetches what [`release`](Self::release) reads of a record's chunk behind its header. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_state(&self, line: LineWord) {
        self.states.all.prefetch(line.number());
    }

    /// Takes the slot of an object back. Nothing durable leads to it any more. A chunk without slots
    /// in use is given back to the pool. Returns `true` if it is time to look whether objects should be
    /// [moved](crate::sparse).
    ///
    /// # Cost
    /// Now and then 2 fences.
    pub(crate) fn release_object<M: Medium>(
        &self,
        pool: &Pool<M>,
        at: SlotRef,
        slot_words: usize,
    ) -> Result<bool, PmError> {
        let number = self.number_of(pool, at, slot_words)?;
        let shape = self.states.shape(number);
        let left = self.release(pool, at, number);
        Ok(is_sparse(left, shape) && self.is_before_last(pool.pm(), number, shape))
    }

    /// Whether a chunk of objects is on its shelf, and new objects go to another one.
    fn is_before_last(&self, pm: &impl Medium, number: u32, shape: ChunkShape) -> bool {
        let rack = self.room_for(shape).map(|rack| pm.lock(rack));
        rack.is_some_and(|rack| {
            self.states.taken(number) & ON_SHELF != 0 && rack.last() != Some(number)
        })
    }

    /// Whether it is time to visit records: not soon after visits that found no object to move.
    pub(crate) fn may_visit(&self) -> bool {
        let wait = self.wait.load(Relaxed);
        let (last, left) = (wait >> 8, wait & 0xff);
        self.wait.store(last << 8 | left.saturating_sub(1), Relaxed);
        left == 0
    }

    /// Notes whether visits have found an object to move: each time that they do not, the next ones wait for
    /// twice as long.
    pub(crate) fn note_visited(&self, moved: bool) {
        let last = self.wait.load(Relaxed) >> 8;
        let next = if moved { 0 } else { (2 * last + 1).min(127) };
        self.wait.store(next << 8 | next, Relaxed);
    }

    /// Whether an object should be moved: few are left in its chunk, and another chunk has room.
    pub(crate) fn is_movable<M: Medium>(
        &self,
        pool: &Pool<M>,
        at: SlotRef,
        slot_words: usize,
    ) -> bool {
        let Ok(number) = self.number_of(pool, at, slot_words) else { return false };
        let (taken, shape) = (self.states.taken(number), self.states.shape(number));
        let few = 8 * (taken & shape.all()).count_ones() as usize <= 5 * shape.slots();
        taken & ON_SHELF != 0 && few && self.is_before_last(pool.pm(), number, shape)
    }

    /// Returns the next chunk of records in turn, and the slots that are live or handed out.
    pub(crate) fn next_visited(&self, pm: &impl Medium) -> Option<(ChunkPtr, u64)> {
        let known = pm.lock(&self.table).next;
        for _ in 0..known.min(SAMPLE) {
            let number = (self.next_visit.fetch_add(1, Relaxed) % u64::from(known)) as u32;
            let base = self.states.dram.load(&self.states.get(number).base);
            if base != 0 && self.states.shape(number) == self.records {
                return Some((ChunkPtr::new(base), self.states.taken(number) & self.records.all()));
            }
        }
        None
    }

    /// As [`release_object`](Self::release_object), for a record whose bit is clear, durably. Returns the
    /// number of its chunk if it is time to look whether that should be [emptied](super::Sparse).
    #[inline(always)]
    pub(crate) fn release_record<M: Medium>(
        &self,
        pool: &Pool<M>,
        at: SlotRef,
        line: LineWord,
        words: usize,
    ) -> Result<Option<u32>, PmError> {
        let number = self.number_of_record(at, line, words)?;
        let left = self.release(pool, at, number);
        Ok(is_sparse(left, self.records).then_some(number))
    }

    /// Returns the bits of the chunk, if it is on its shelf.
    #[inline(always)]
    fn release<M: Medium>(&self, pool: &Pool<M>, at: SlotRef, number: u32) -> u64 {
        let states = &self.states;
        let shape = states.shape(number);
        if self.room_for(shape).is_some() {
            let bit = 1 << at.slot();
            // A chunk that stays where it is needs no lock.
            let mut taken = states.taken(number);
            while taken & IN_HAND != 0 || taken & ON_SHELF != 0 && taken & !bit & shape.all() != 0 {
                pool.pm().yield_point();
                if states.cas_taken(number, taken, taken & !bit) {
                    return taken & !bit;
                }
                taken = states.taken(number);
            }
        }
        self.release_and_move(pool, at, number)
    }

    /// As [`release`](Self::release), of a chunk that may have to be put on its shelf or given back.
    #[inline(never)]
    fn release_and_move<M: Medium>(&self, pool: &Pool<M>, at: SlotRef, number: u32) -> u64 {
        let states = &self.states;
        let shape = states.shape(number);
        if let Some(rack) = self.room_for(shape) {
            let bit = 1 << at.slot();
            let mut rack = pool.pm().lock(rack);
            let taken = states.change_taken(number, Rmw::And(!bit)) & !bit;
            if taken & IN_HAND != 0 {
                return taken;
            }
            if taken & shape.all() != 0 {
                if taken & ON_SHELF == 0 {
                    rack.put(states, number);
                }
                return taken | ON_SHELF;
            }
            if taken & ON_SHELF != 0 {
                rack.take_off(states, number);
            }
        }
        self.recycle(pool, number, shape);
        0
    }

    /// Takes a sparse chunk of records from its shelf, from which no slot can be taken then; `None` if it is
    /// not there, if it is the only one, or if chunks of records have little room.
    pub(crate) fn take_sparse<'p, M: Medium>(
        &'p self,
        pool: &'p Pool<M>,
        number: u32,
    ) -> Option<Sparse<'p, M>> {
        if !self.are_roomy(pool.pm(), false) {
            return None;
        }
        let alone = self.emptying.try_lock()?; // another removal empties one
        let (states, state) = (&self.states, self.states.get(number));
        let mut rack = pool.pm().lock(&self.shelves[0]);
        let (base, taken) = (states.dram.load(&state.base), states.taken(number));
        if base == 0 || states.shape(number) != self.records {
            return None; // it has been given back meanwhile
        }
        if !is_sparse(taken, self.records) || rack.chunks().len() < 2 {
            return None;
        }
        rack.take_off(states, number);
        let taken = states.change_taken(number, Rmw::Or(IN_HAND)) & self.records.all();
        let base = ChunkPtr::new(base);
        Some(Sparse { chunks: self, pool, number, base, taken, _alone: alone })
    }

    /// Waits until no chunk is being emptied; none is while the guard is there.
    pub(crate) fn empty_none(&self, pm: &impl Medium) -> MutexGuard<'_, ()> {
        pm.lock(&self.emptying)
    }

    /// Whether more than 2/5 of the chunks of records, or 1/3 of those of objects, is free, by a sample of the
    /// chunks. (Chunks of objects that are visited late stay for a while.)
    pub(crate) fn are_roomy(&self, pm: &impl Medium, objects: bool) -> bool {
        let known = pm.lock(&self.table).next;
        let sample = known.min(SAMPLE);
        let from = self.next_sample.fetch_add(u64::from(sample), Relaxed);
        let (mut taken, mut all) = (0, 0);
        for i in 0..u64::from(sample) {
            let number = ((from + i) % u64::from(known)) as u32;
            let (shape, bits) = (self.states.shape(number), self.states.taken(number));
            let exists = self.states.dram.load(&self.states.get(number).base) != 0;
            // All slots of a chunk in a hand count as taken.
            if exists && shape.is_objects() == objects && bits & IN_HAND == 0 {
                taken += shape.slot_words() * (bits & shape.all()).count_ones() as usize;
                all += shape.slot_words() * shape.slots();
            }
        }
        if objects { 3 * taken < 2 * all } else { 5 * taken < 3 * all }
    }

    /// Frees a chunk that no other thread can reach. If that fails (the pool is full), it stays.
    fn recycle<M: Medium>(&self, pool: &Pool<M>, number: u32, shape: ChunkShape) {
        let place = {
            let table = pool.pm().lock(&self.table);
            table.place(pool, number)
        };
        // Without a place (damage) it is no chunk that anything could be taken from.
        let Ok(place) = place else { return };
        let freed = free_chunk(pool, place);
        let state = self.states.get(number);
        if freed.is_ok() {
            self.states.dram.store(&state.base, 0);
            pool.pm().lock(&self.table).free.push(number);
        } else if let Some(rack) = self.room_for(shape) {
            pool.pm().lock(rack).put(&self.states, number);
        } else {
            // A large one: the next opening gives it back.
            self.states.set_taken(number, 0);
        }
    }
}

/// Recovery and verification: for a quiescent index.
impl Chunks {
    /// Verifies that there can be `count` chunks.
    pub(crate) fn check_count(&self, count: usize) -> Result<(), PmError> {
        if count > self.states.most as usize {
            return Err(corrupt("more chunks than the pool has room for", 0));
        }
        Ok(())
    }

    /// Takes over the table as recovery found it: its segments, how many numbers have places there,
    /// and those without a chunk. The others are [adopted](Self::adopt).
    pub(crate) fn load(
        &self,
        pm: &impl Medium,
        segments: Vec<PPtr<crate::layout::Segment>>,
        count: u32,
        free: Vec<u32>,
    ) {
        *pm.lock(&self.table) = Table { segments, free, next: count };
    }

    /// Forgets all chunks, which have been given back. No writer is in progress.
    pub(crate) fn forget_all(&self, pm: &impl Medium) {
        for HandPlace(hand) in &self.hands {
            *pm.lock(hand) = Hand::default();
        }
        for rack in &self.shelves {
            *pm.lock(rack) = Shelf::default();
        }
        let mut table = pm.lock(&self.table);
        for number in 0..table.next {
            self.states.dram.store(&self.states.get(number).base, 0);
        }
        *table = Table::default();
    }

    /// Marks the slot of an object as taken; returns `false` if it was already.
    pub(crate) fn mark<M: Medium>(
        &self,
        pool: &Pool<M>,
        at: SlotRef,
        slot_words: usize,
    ) -> Result<bool, PmError> {
        let number = self.number_of(pool, at, slot_words)?;
        Ok(self.states.mark(number, at.slot()))
    }

    /// Frees a slot that was marked.
    pub(crate) fn unmark(&self, number: u32, slot: usize) {
        self.states.change_taken(number, Rmw::And(!(1 << slot)));
    }

    /// Sets which slots of a chunk are taken.
    pub(crate) fn set_taken(&self, number: u32, taken: u64) {
        self.states.set_taken(number, taken);
    }

    /// Gives back the chunks without slots in use and puts those with free slots on their shelves,
    /// when everything live is marked. Returns how many were given back.
    pub(crate) fn sort_out<M: Medium>(&self, pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
        let mut freed = 0;
        let known = pool.pm().lock(&self.table).next;
        // The least numbers last, to be used first.
        for number in (0..known).rev() {
            let state = self.states.get(number);
            if self.states.dram.load(&state.base) == 0 {
                continue;
            }
            let (shape, taken) = (self.states.shape(number), self.states.taken(number));
            if taken == 0 {
                let mut table = pool.pm().lock(&self.table);
                free_chunk(pool, table.place(pool, number)?)?;
                table.free.push(number);
                self.states.dram.store(&state.base, 0);
                freed += 1;
            } else if taken != shape.all()
                && let Some(rack) = self.room_for(shape)
            {
                pool.pm().lock(rack).put(&self.states, number);
            }
        }
        // Segments at the end that no chunk needs.
        let table = &mut *pool.pm().lock(&self.table);
        let in_use = |number: &u32| self.states.dram.load(&self.states.get(*number).base) != 0;
        let used = (0..table.next).rev().find(in_use).map_or(0, |last| last + 1);
        let keep = used.div_ceil(PLACES);
        free_segments(pool, root, &table.segments, keep as usize)?;
        table.segments.truncate(keep as usize);
        table.next = used;
        table.free.retain(|&number| number < used);
        Ok(freed)
    }

    /// Returns the chunks, with their shapes and the slots that are live or handed out.
    pub(crate) fn each(
        &self,
        pm: &impl Medium,
        mut visit: impl FnMut(u32, ChunkPtr, ChunkShape, u64) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let known = pm.lock(&self.table).next;
        let mut idle = vec![0; known as usize];
        for HandPlace(hand) in &self.hands {
            let hand = pm.lock(hand);
            if let Some(number) = hand.chunk.checked_sub(1) {
                idle[number as usize] = hand.free;
            }
        }
        for number in 0..known {
            let base = self.states.dram.load(&self.states.get(number).base);
            if base != 0 {
                let shape = self.states.shape(number);
                let taken = self.states.taken(number) & shape.all() & !idle[number as usize];
                visit(number, ChunkPtr::new(base), shape, taken)?;
            }
        }
        Ok(())
    }

    /// Returns the offsets of the table's segments.
    pub(crate) fn segments(&self, pm: &impl Medium) -> Vec<u64> {
        pm.lock(&self.table).segments.iter().map(|segment| segment.offset()).collect()
    }

    /// Chunks on shelves are those with free slots and in no hand.
    pub(crate) fn check_shelves(&self, pm: &impl Medium) -> Result<(), PmError> {
        let mut listed = 0;
        for rack in &self.shelves {
            for &number in pm.lock(rack).chunks() {
                let (taken, shape) = (self.states.taken(number), self.states.shape(number));
                if taken & ON_SHELF == 0 || taken & shape.all() == shape.all() {
                    return Err(corrupt("a chunk on a rack that has no free slot", 0));
                }
                listed += 1;
            }
        }
        let mut free = 0;
        let known = pm.lock(&self.table).next;
        for number in 0..known {
            let base = self.states.dram.load(&self.states.get(number).base);
            free += u64::from(base != 0 && self.states.taken(number) & ON_SHELF != 0);
        }
        if free == listed { Ok(()) } else { Err(corrupt("a rack that lacks a chunk", 0)) }
    }

    /// DRAM in use.
    pub(crate) fn bytes(&self, pm: &impl Medium) -> u64 {
        u64::from(pm.lock(&self.table).next) * size_of::<super::shelf::ChunkState>() as u64
    }
}
