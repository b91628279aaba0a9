//! Buffers in DRAM: cells, which readers read under the version of the Mnode.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;
use pmindex_core::{Arena, Mapped, Medium, PmCell, PmError, PmU64, Word, pm_struct};
use pmindex_index::{Key, Value};
use pmindex_record::{Datum, Probe, Slot};

use crate::layout::{bits, tag_of};
use crate::log::{Chain, Location};

/// Words for the entries of a buffer.
const ENTRY_WORDS: usize = 28;
/// The most entries of a buffer.
pub(super) const ENTRIES: usize = 16;
/// The most log entries of a chain: a key that is written again takes another.
pub(crate) const ENTRIES_MAX: usize = 16;

pm_struct! {
    /// A buffer: five lines. The first one is all that a search reads that does not find its key.
    #[align(64)]
    pub(crate) struct Buffer: size 320 {
        /// What there is.
        pub state @ 0: PmCell<State>,
        /// Bit `i`: the Bnode has the key of entry `i`.
        pub known @ 8: PmU64,
        /// The chain's newest log entry.
        pub head @ 16: PmU64,
        /// The chain's last sequence number.
        pub seq @ 24: PmU64,
        /// A byte of each key's hash.
        pub tags @ 32: [PmU64; 2],
        /// The sequence number up to which the Bnode has everything.
        pub applied @ 48: PmU64,
        /// The chain's last sequence number when the hand last passed (see [`budget`](super::budget)).
        pub passed @ 56: PmU64,
        /// The segments of the chain's log entries, four to a word.
        pub segments @ 64: [PmU64; 4],
        /// Keys and values.
        pub entries @ 96: [PmU64; 28],
    }
}

/// `Mnode: 32 | deleted: 16 | log entries: 8 | entries: 8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct State(u64);

impl Word for State {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl State {
    /// An empty buffer of this Mnode.
    pub(crate) fn of(node: u32) -> Self {
        Self(u64::from(node) << 32)
    }
    /// Entries.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        (self.0 & 0xff) as usize
    }
    /// Log entries of the chain.
    pub(crate) fn logged(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }
    /// Bit `i`: entry `i` is a deletion.
    #[inline(always)]
    pub(crate) fn deleted(self) -> u64 {
        self.0 >> 16 & 0xffff
    }
    /// The Mnode.
    pub(crate) fn node(self) -> u32 {
        (self.0 >> 32) as u32
    }
    fn with_entry(self, entry: usize, deleted: bool) -> Self {
        let len = self.len().max(entry + 1) as u64;
        let bit = 1 << (16 + entry);
        Self(self.0 & !0xff & !bit | len | if deleted { bit } else { 0 })
    }
    fn with_logged(self) -> Self {
        Self(self.0 + (1 << 8))
    }
}

/// An entry with the key that was looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) entry: usize,
    pub(crate) deleted: bool,
}

/// All buffers of an index.
///
/// While any Mnode may have a buffer, it has the one of its own number, so that whoever knows the
/// Mnode's number can fetch both at once, and does not wait for one after the other. Where there is a
/// budget, buffers are *shared*: their numbers, from `own` on, are given out one after the other, so
/// that no more memory is touched than there are buffers.
#[derive(Debug)]
pub(crate) struct Buffers {
    dram: Mapped,
    arena: Arena<Buffer>,
    /// Mnodes' own buffers have numbers below it.
    own: u32,
    /// Own buffers below it may be in use.
    own_bound: AtomicU32,
    /// So many shared ones may be in use.
    shared_bound: AtomicU32,
    /// Shared ones that are not.
    free: Mutex<Vec<u32>>,
    /// How many are in use.
    live: AtomicU64,
}

impl Buffers {
    pub(super) fn new(leaves: u64) -> Result<Self, PmError> {
        // An Mnode has 31 bits for the number of its buffer, and there are two kinds.
        let own = u32::try_from(leaves + 64).unwrap_or(u32::MAX).min((u32::MAX >> 2) - 1);
        Ok(Self {
            dram: Mapped::dram(),
            arena: Arena::new(2 * own)?,
            own,
            own_bound: AtomicU32::new(0),
            shared_bound: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
            live: AtomicU64::new(0),
        })
    }

    /// How many entries a buffer of `buffer` entries has room for, of these records.
    pub(crate) const fn room<K: Key, V: Value>(buffer: usize) -> usize {
        let fit = ENTRY_WORDS / Slot::<K, V>::WORDS;
        let most = if fit < ENTRIES { fit } else { ENTRIES };
        if buffer < most { buffer } else { most }
    }

    #[inline(always)]
    fn get(&self, index: u32) -> &Buffer {
        self.arena.get(index)
    }

    /// Fetches what a search reads first. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        self.arena.prefetch(index);
    }

    /// Fetches all of a buffer. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_whole(&self, index: u32) {
        self.dram.prefetch(self.get(index));
    }

    /// Fetches what a checkpoint reads. A hint.
    pub(crate) fn prefetch_chain(&self, index: u32) {
        let buffer = self.get(index);
        self.dram.prefetch(&buffer.state);
        self.dram.prefetch(&buffer.segments);
    }

    /// Whether it is an Mnode's own buffer, with the same number.
    pub(crate) fn is_own(&self, index: u32) -> bool {
        index < self.own
    }

    /// Fetches an entry. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_entry<K: Key, V: Value>(&self, index: u32, entry: usize) {
        if let Some(cell) = Self::entry::<K, V>(self.get(index), entry).first() {
            self.dram.prefetch(cell);
        }
    }

    /// Fetches all that an append to an Mnode's own buffer writes but the entry. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_own(&self, node: u32) {
        let buffer = self.get(node.min(self.own));
        self.dram.prefetch(&buffer.state);
        self.dram.prefetch(&buffer.segments);
    }

    /// An empty buffer for an Mnode, whose chain goes on from `seq`; its Bnode has what is up to
    /// `applied`. Its `own` one, or one that is shared.
    pub(crate) fn alloc(
        &self,
        node: u32,
        own: bool,
        seq: u64,
        applied: u64,
    ) -> Result<u32, PmError> {
        let index = if own && node < self.own {
            self.own_bound.fetch_max(node + 1, AcqRel);
            node
        } else {
            self.share()?
        };
        let buffer = self.get(index);
        self.dram.store(&buffer.known, 0);
        self.dram.store(&buffer.head, 0);
        self.dram.store(&buffer.seq, seq);
        self.dram.store(&buffer.applied, applied);
        self.dram.store(&buffer.passed, seq);
        self.dram.store(&buffer.state, State::of(node));
        self.live.fetch_add(1, Relaxed);
        Ok(index)
    }

    /// The number of a shared buffer that is not in use.
    fn share(&self) -> Result<u32, PmError> {
        if let Some(index) = self.free.lock().pop() {
            return Ok(index);
        }
        let more = |count: u32| (count < self.own).then_some(count + 1);
        let taken = self.shared_bound.fetch_update(AcqRel, Acquire, more);
        let (wanted, capacity) = (size_of::<Buffer>() as u64, u64::from(self.own));
        taken
            .map(|count| self.own + count)
            .map_err(|_| PmError::Full { wanted, capacity: wanted * capacity })
    }

    pub(crate) fn free(&self, index: u32) {
        self.dram.store(&self.get(index).state, State::default());
        self.live.fetch_sub(1, Relaxed);
        if index >= self.own {
            self.free.lock().push(index);
        }
    }

    /// Buffers in use.
    #[inline(always)]
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }

    /// The hand passes a buffer: how many writes since it last did. Racing: about so many.
    pub(crate) fn pass(&self, index: u32) -> u64 {
        let buffer = self.get(index);
        let seq = self.dram.load(&buffer.seq);
        let writes = seq.saturating_sub(self.dram.load(&buffer.passed));
        self.dram.store(&buffer.passed, seq);
        writes
    }

    /// Buffers in use, and the DRAM they take.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.live(), u64::from(self.count()) * size_of::<Buffer>() as u64)
    }

    /// How many numbers may be in use.
    pub(crate) fn count(&self) -> u32 {
        self.own_bound.load(Acquire) + self.shared_bound.load(Acquire)
    }

    /// The `n`th of the numbers that may be in use.
    pub(crate) fn nth(&self, n: u32) -> u32 {
        let own = self.own_bound.load(Acquire);
        if n < own { n } else { self.own + (n - own) }
    }

    /// All numbers that may be in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        let shared = self.own..self.own + self.shared_bound.load(Acquire);
        (0..self.own_bound.load(Acquire)).chain(shared)
    }

    #[inline(always)]
    pub(crate) fn state(&self, index: u32) -> State {
        self.dram.load(&self.get(index).state)
    }

    /// How many entries are new keys of the Bnode: each takes a slot.
    pub(crate) fn new_keys(&self, index: u32) -> usize {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        let old = self.dram.load(&buffer.known) | state.deleted();
        state.len() - (old & ((1 << state.len()) - 1)).count_ones() as usize
    }

    /// By how many (modulo 2^64) the records are more than those of the Bnode.
    pub(crate) fn gained(&self, index: u32) -> u64 {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        let entries = (1 << state.len().min(ENTRIES)) - 1;
        let known = self.dram.load(&buffer.known) & entries;
        let there = entries & !state.deleted();
        u64::from(there.count_ones()).wrapping_sub(u64::from(known.count_ones()))
    }

    /// Whether the Bnode has the key of an entry.
    pub(crate) fn is_known(&self, index: u32, entry: usize) -> bool {
        self.dram.load(&self.get(index).known) >> entry & 1 == 1
    }

    /// Notes whether the Bnode has the key of an entry. Under the lock.
    pub(crate) fn put_known(&self, index: u32, entry: usize, known: bool) {
        let buffer = self.get(index);
        let others = self.dram.load(&buffer.known) & !(1 << entry);
        self.dram.store(&buffer.known, others | u64::from(known) << entry);
    }

    /// The chain.
    pub(crate) fn chain(&self, index: u32) -> Chain {
        let buffer = self.get(index);
        let head = Location::from_bits(self.dram.load(&buffer.head) as u32);
        Chain { head, seq: self.dram.load(&buffer.seq) }
    }

    /// The next sequence number, which is used up. Under the lock.
    pub(crate) fn next_seq(&self, index: u32) -> u64 {
        let buffer = self.get(index);
        let seq = self.dram.load(&buffer.seq) + 1;
        self.dram.store(&buffer.seq, seq);
        seq
    }

    /// Nothing was written with this number, which was the last: it can be used. Under the lock.
    pub(crate) fn give_back_seq(&self, index: u32, seq: u64) {
        self.dram.store(&self.get(index).seq, seq - 1);
    }

    /// Where the next log entry of the chain will be. Under the lock; nobody sees it before
    /// [`publish`](Self::publish).
    #[inline(always)]
    fn stage_location(&self, buffer: &Buffer, state: State, location: Location) {
        let at = state.logged().min(ENTRIES_MAX - 1);
        let (cell, shift) = (&buffer.segments[at / 4], 16 * (at % 4));
        let rest = self.dram.load(cell) & !(0xffff << shift);
        self.dram.store(cell, rest | u64::from(location.segment()) << shift);
    }

    /// The segments of the chain's log entries. Racing: validate.
    pub(crate) fn segments(&self, index: u32) -> impl Iterator<Item = u16> {
        let buffer = self.get(index);
        let count = self.dram.load(&buffer.state).logged().min(ENTRIES_MAX);
        (0..count).map(move |at| {
            (self.dram.load(&buffer.segments[at / 4]) >> (16 * (at % 4)) & 0xffff) as u16
        })
    }

    #[inline(always)]
    fn entry<K: Key, V: Value>(buffer: &Buffer, entry: usize) -> &[PmU64] {
        let words = Slot::<K, V>::WORDS;
        &buffer.entries[(entry * words).min(ENTRY_WORDS - words)..][..words]
    }

    /// The entry with the probe's key. Racing: validate.
    #[inline(always)]
    pub(crate) fn find<K: Key, V: Value>(&self, index: u32, probe: &Probe<'_, K>) -> Option<Hit> {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        let tagged = self.dram.match_byte(&buffer.tags, tag_of(probe));
        let keys = Slot::<K, V>::KEY_WORDS;
        for entry in bits(tagged & ((1 << state.len().min(ENTRIES)) - 1)) {
            let words = Self::entry::<K, V>(buffer, entry);
            if (0..keys).all(|i| self.dram.load(&words[i]) == probe.words()[i]) {
                return Some(Hit { entry, deleted: state.deleted() >> entry & 1 == 1 });
            }
        }
        None
    }

    /// Writes of a record, or a deletion, and of its log entry what nobody sees before
    /// [`publish`](Self::publish): all but the value of a key that has an entry. Under the lock, so
    /// that it is done while the log entry becomes durable.
    #[inline(always)]
    pub(crate) fn stage<K: Key, V: Value>(
        &self,
        index: u32,
        entry: usize,
        probe: &Probe<'_, K>,
        datum: Option<&Datum<'_, V>>,
        (known, location): (bool, Location),
    ) {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        self.stage_location(buffer, state, location);
        if entry < state.len() {
            return;
        }
        let (cell, shift) = (&buffer.tags[entry / 8 % 2], 8 * (entry % 8));
        let rest = self.dram.load(cell) & !(0xff << shift);
        self.dram.store(cell, rest | u64::from(tag_of(probe)) << shift);
        let others = self.dram.load(&buffer.known) & !(1 << entry);
        self.dram.store(&buffer.known, others | u64::from(known) << entry);
        let (words, keys) = (Self::entry::<K, V>(buffer, entry), Slot::<K, V>::KEY_WORDS);
        self.dram.write_words(&words[..keys], &probe.words()[..keys]);
        self.put_value::<K, V>(words, datum);
    }

    /// Puts what was staged, whose log entry is durable, into the buffer; a new entry if it is the
    /// first after the others. Under the lock.
    #[inline(always)]
    pub(crate) fn publish<K: Key, V: Value>(
        &self,
        index: u32,
        entry: usize,
        datum: Option<&Datum<'_, V>>,
        location: Location,
    ) {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        if entry < state.len() {
            self.put_value::<K, V>(Self::entry::<K, V>(buffer, entry), datum);
        }
        self.dram.store(&buffer.head, u64::from(location.bits()));
        self.dram.store(&buffer.state, state.with_logged().with_entry(entry, datum.is_none()));
    }

    #[inline(always)]
    fn put_value<K: Key, V: Value>(&self, words: &[PmU64], datum: Option<&Datum<'_, V>>) {
        let keys = Slot::<K, V>::KEY_WORDS;
        if let Some(datum) = datum {
            let count = words.len() - keys;
            self.dram.write_words(&words[keys..], &datum.words()[..count]);
        }
    }

    /// The words of an entry, key and value. Racing: validate.
    pub(crate) fn words<K: Key, V: Value>(&self, index: u32, entry: usize) -> [u64; 8] {
        let mut copy = [0; 8];
        let words = Self::entry::<K, V>(self.get(index), entry);
        self.dram.read_words(words, &mut copy[..words.len()]);
        copy
    }

    /// The tag of an entry's key. Racing: validate.
    #[inline(always)]
    pub(crate) fn tag(&self, index: u32, entry: usize) -> u8 {
        self.dram.load(&self.get(index).tags[entry / 8]).to_le_bytes()[entry % 8]
    }

    /// The value of an entry. Racing: validate.
    #[inline(always)]
    pub(crate) fn value<K: Key, V: Value>(&self, index: u32, entry: usize) -> V {
        let words = self.words::<K, V>(index, entry);
        V::from_words(&words[Slot::<K, V>::KEY_WORDS..Slot::<K, V>::WORDS])
    }

    /// Empties a buffer, which the Bnode has absorbed. Under the lock.
    pub(crate) fn clear(&self, index: u32) {
        let buffer = self.get(index);
        let node = self.dram.load(&buffer.state).node();
        self.dram.store(&buffer.head, 0);
        self.dram.store(&buffer.known, 0);
        self.dram.store(&buffer.applied, self.dram.load(&buffer.seq));
        self.dram.store(&buffer.state, State::of(node));
    }

    /// Whether the Bnode has everything that was ever appended for it.
    pub(crate) fn is_settled(&self, index: u32) -> bool {
        let buffer = self.get(index);
        self.dram.load(&buffer.seq) == self.dram.load(&buffer.applied)
    }
}
