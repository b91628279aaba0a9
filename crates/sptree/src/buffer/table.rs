//! The table of buffers, in DRAM: readers read a buffer under the version of its Mnode. A buffer is a
//! header of one line, and [pieces](super::pieces) for its entries.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use parking_lot::Mutex;
use pmindex_core::{Arena, Mapped, Medium, PmCell, PmError, PmU64, Word, pm_struct};
use pmindex_index::{Key, Value};
use pmindex_record::{EncodedValue, Probe, Slot, bits};

use super::pieces::{self, PIECES, Pieces, per_piece};
use crate::layout::tag_of;
use crate::leaves::Hit;
use crate::log::{Chain, Location, SEQ_MAX};

/// The largest number of words that the entries of a buffer take.
const ENTRY_WORDS: usize = 28;
/// The largest number of entries of a buffer.
pub(super) const ENTRIES: usize = 14;
/// The largest number of log entries of a chain: a key that is written again takes another.
pub(crate) const ENTRIES_MAX: usize = 16;

pm_struct! {
    /// The header of a buffer: one line, all that a search reads which does not find its key. The
    /// entries lie in [`pieces`].
    #[align(64)]
    pub(crate) struct Buffer: size 64 {
        /// Mnode, deletions, numbers of entries.
        pub state @ 0: PmCell<State>,
        /// The chain's last sequence number, and what the Bnode has.
        pub tally @ 8: PmCell<Tally>,
        /// A byte of each key's hash.
        pub tags @ 16: [PmU64; 2],
        /// When the chain's oldest entry was appended, if it has any.
        pub birth @ 32: PmU64,
        /// The numbers of the pieces, two to a word, then the location of the chain's newest entry.
        pub pieces @ 40: [PmU64; 3],
    }
}

/// The bit at which the location of the newest log entry begins in the last word of pieces.
const HEAD_SHIFT: u32 = 32;

const _: () = assert!(PIECES == 5, "the location is where a sixth piece would be");

/// `the chain's last sequence number: 49 | pending: 1 | known: 14`. Bit `i` of `known`: the Bnode has
/// the key of entry `i`. Pending: the Bnode has not absorbed the last sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tally(u64);

const _: () = assert!(SEQ_MAX <= 1 << 48, "room to count on");

impl Word for Tally {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Tally {
    const PENDING: u64 = 1 << ENTRIES;
    const KNOWN: u64 = Self::PENDING - 1;

    fn of(seq: u64, absorbed: bool) -> Self {
        Self(seq << (ENTRIES + 1) | if absorbed { 0 } else { Self::PENDING })
    }
    #[inline(always)]
    fn seq(self) -> u64 {
        self.0 >> (ENTRIES + 1)
    }
    #[inline(always)]
    fn is_absorbed(self) -> bool {
        self.0 & Self::PENDING == 0
    }
    #[inline(always)]
    fn known(self) -> u64 {
        self.0 & Self::KNOWN
    }
    #[inline(always)]
    fn with_known(self, entry: usize, known: bool) -> Self {
        Self(self.0 & !(1 << entry) | u64::from(known) << entry)
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
    /// Returns an empty buffer of this Mnode.
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

/// A sequence number that no entry has yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unused {
    pub(crate) seq: u64,
    before: Tally,
}

/// The numbers of all buffers that were in use before it was made. Buffers that are added meanwhile, own
/// ones before the shared ones, change neither their count nor their places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indices {
    own: u32,
    first_shared: u32,
    shared: u32,
}

impl Indices {
    /// Returns how many there are.
    pub(crate) fn count(self) -> u32 {
        self.own + self.shared
    }

    /// Returns the `n`th.
    pub(crate) fn nth(self, n: u32) -> u32 {
        if n < self.own { n } else { self.first_shared + (n - self.own) }
    }

    /// Returns one after the other.
    pub(crate) fn all(self) -> impl Iterator<Item = u32> {
        (0..self.count()).map(move |n| self.nth(n))
    }
}

/// All buffers of an index.
///
/// Without a budget, an Mnode's buffer has the Mnode's own number: both are fetched at once. With a
/// budget, buffers are *shared*: their numbers, from `own` on, are given out one after the other, so
/// that the memory touched is that of the buffers in use.
#[derive(Debug)]
pub(crate) struct BufferTable<K, V> {
    dram: Mapped,
    arena: Arena<Buffer>,
    pieces: Pieces,
    /// By buffer: the chain's last sequence number when the hand of the [`budget`](super::budget) last
    /// passed it.
    passed: Arena<PmU64>,
    /// The numbers below it are those of Mnodes' own buffers.
    own: u32,
    /// Own buffers in use have numbers below it.
    own_bound: AtomicU32,
    /// The number of shared buffers that were ever in use.
    shared_bound: AtomicU32,
    /// Shared buffers that are free again.
    free: Mutex<Vec<u32>>,
    /// The number of buffers in use.
    live: AtomicU64,
    record: std::marker::PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value> BufferTable<K, V> {
    pub(super) fn new(leaves: u64) -> Result<Self, PmError> {
        // An Mnode has 31 bits for the number of its buffer, own or shared.
        let own = u32::try_from(leaves + 64).unwrap_or(u32::MAX).min((u32::MAX >> 2) - 1);
        Ok(Self {
            dram: Mapped::dram(),
            arena: Arena::new(2 * own)?,
            pieces: Pieces::new(own)?,
            passed: Arena::new(2 * own)?,
            own,
            own_bound: AtomicU32::new(0),
            shared_bound: AtomicU32::new(0),
            free: Mutex::new(Vec::new()),
            live: AtomicU64::new(0),
            record: std::marker::PhantomData,
        })
    }

    /// Returns the entries of these records that a buffer of `buffer` entries has room for.
    pub(crate) const fn room(buffer: usize) -> usize {
        let fit = ENTRY_WORDS / Slot::<K, V>::WORDS;
        let most = if fit < ENTRIES { fit } else { ENTRIES };
        if buffer < most { buffer } else { most }
    }

    /// Returns the largest amount of DRAM for a buffer of `buffer` entries of these records.
    pub(crate) const fn bytes(buffer: usize) -> u64 {
        let per = per_piece(Slot::<K, V>::WORDS);
        let pieces = Self::room(buffer).div_ceil(per);
        (size_of::<Buffer>() + pieces * size_of::<pieces::BufferPiece>()) as u64
    }

    #[inline(always)]
    fn get(&self, index: u32) -> &Buffer {
        self.arena.get(index)
    }

    /// Fetches a buffer's header. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        self.arena.prefetch(index);
    }

    /// Fetches the entries of a buffer whose header is in the cache. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_entries(&self, index: u32) {
        for piece in self.pieces_of(self.get(index)).into_iter().take_while(|&n| n != pieces::NONE)
        {
            self.pieces.prefetch(&self.dram, piece);
        }
    }

    /// Returns `true` if it is an Mnode's own buffer, with the Mnode's number.
    pub(crate) fn is_own(&self, index: u32) -> bool {
        index < self.own
    }

    /// Fetches an entry of a buffer whose header is in the cache. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, index: u32, entry: usize) {
        self.pieces.prefetch(&self.dram, self.piece(self.get(index), entry));
    }

    /// Fetches the header of an Mnode's own buffer. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_own(&self, node: u32) {
        self.prefetch(node.min(self.own));
    }

    /// Takes an empty buffer for an Mnode: its `own`, or a shared one. The chain goes on from `seq`;
    /// `absorbed`: the Bnode has absorbed it so far.
    pub(crate) fn alloc(
        &self,
        node: u32,
        own: bool,
        seq: u64,
        absorbed: bool,
    ) -> Result<u32, PmError> {
        let index = if own && node < self.own {
            self.own_bound.fetch_max(node + 1, AcqRel);
            node
        } else {
            let index = self.share()?;
            self.dram.store_word(self.passed.get(index), seq);
            index
        };
        let buffer = self.get(index);
        self.dram.store(&buffer.tally, Tally::of(seq, absorbed));
        self.dram.store(&buffer.state, State::of(node));
        self.live.fetch_add(1, Relaxed);
        Ok(index)
    }

    /// Takes a shared buffer.
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

    /// Gives a buffer back.
    pub(crate) fn free(&self, index: u32) {
        let buffer = self.get(index);
        self.dram.store(&buffer.state, State::default());
        self.give_back_pieces(buffer);
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

    /// Passes a buffer with the hand; returns the writes since the last time. Racing: about as many.
    pub(crate) fn pass(&self, index: u32) -> u64 {
        let (seq, passed) = (self.tally(index).seq(), self.passed.get(index));
        let writes = seq.saturating_sub(self.dram.load_word(passed));
        self.dram.store_word(passed, seq);
        writes
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let passed = u64::from(self.shared_bound.load(Acquire)) * size_of::<PmU64>() as u64;
        let headers = u64::from(self.indices().count()) * size_of::<Buffer>() as u64;
        headers + self.pieces.bytes() + passed
    }

    /// Returns the numbers of all buffers that were ever in use.
    pub(crate) fn indices(&self) -> Indices {
        Indices {
            own: self.own_bound.load(Acquire),
            first_shared: self.own,
            shared: self.shared_bound.load(Acquire),
        }
    }

    /// Mnode, deletions, numbers of entries. Racing: validate.
    #[inline(always)]
    pub(crate) fn state(&self, index: u32) -> State {
        self.dram.load(&self.get(index).state)
    }

    #[inline(always)]
    fn tally(&self, index: u32) -> Tally {
        self.dram.load(&self.get(index).tally)
    }

    /// Returns the number of entries whose keys the Bnode has not: each takes a slot.
    pub(crate) fn new_keys(&self, index: u32) -> usize {
        let state = self.state(index);
        let old = self.tally(index).known() | state.deleted();
        state.len() - (old & ((1 << state.len()) - 1)).count_ones() as usize
    }

    /// Returns the records (modulo 2^64) that the buffer adds to those of its Bnode.
    pub(crate) fn gained(&self, index: u32) -> u64 {
        let state = self.state(index);
        let entries = (1 << state.len().min(ENTRIES)) - 1;
        let known = self.tally(index).known() & entries;
        let there = entries & !state.deleted();
        u64::from(there.count_ones()).wrapping_sub(u64::from(known.count_ones()))
    }

    /// Returns `true` if the Bnode has the key of an entry.
    pub(crate) fn is_known(&self, index: u32, entry: usize) -> bool {
        self.tally(index).known() >> entry & 1 == 1
    }

    /// Notes whether the Bnode has the key of an entry. Under the lock.
    pub(crate) fn put_known(&self, index: u32, entry: usize, known: bool) {
        let tally = self.tally(index).with_known(entry, known);
        self.dram.store(&self.get(index).tally, tally);
    }

    /// Returns the chain. Racing: validate.
    pub(crate) fn chain(&self, index: u32) -> Chain {
        let (buffer, state) = (self.get(index), self.state(index));
        let newest =
            || Location::from_bits((self.dram.load(&buffer.pieces[2]) >> HEAD_SHIFT) as u32);
        let head = if state.logged() == 0 { Location::NONE } else { newest() };
        Chain { head, seq: self.tally(index).seq() }
    }

    /// When the chain's oldest entry was appended, if it has any. Racing: validate.
    pub(crate) fn birth(&self, index: u32) -> Option<u64> {
        (self.state(index).logged() > 0).then(|| self.dram.load(&self.get(index).birth))
    }

    /// Uses the next sequence number. Under the lock.
    #[inline(always)]
    pub(crate) fn next_seq(&self, index: u32) -> Unused {
        let before = self.tally(index);
        let seq = before.seq() + 1;
        let used = Tally(Tally::of(seq, false).0 | before.known());
        self.dram.store(&self.get(index).tally, used);
        Unused { seq, before }
    }

    /// Gives the last sequence number back: no entry has it. Under the lock, and nothing was staged
    /// since.
    pub(crate) fn give_back_seq(&self, index: u32, number: Unused) {
        self.dram.store(&self.get(index).tally, number.before);
    }

    /// Returns the word with the number of an entry's piece, and the place in it.
    #[inline(always)]
    fn place_of(buffer: &Buffer, entry: usize) -> (&PmU64, u32) {
        let piece = (entry / per_piece(Slot::<K, V>::WORDS)).min(PIECES - 1);
        (&buffer.pieces[piece / 2], 32 * (piece % 2) as u32)
    }

    /// Returns the piece of an entry. Racing: validate.
    #[inline(always)]
    fn piece(&self, buffer: &Buffer, entry: usize) -> u32 {
        let (cell, shift) = Self::place_of(buffer, entry);
        (self.dram.load(cell) >> shift) as u32
    }

    /// Returns the pieces, before [`NONE`](pieces::NONE) in place of the others. Racing: validate.
    #[inline(always)]
    fn pieces_of(&self, buffer: &Buffer) -> [u32; PIECES] {
        let cell = |n: usize| self.dram.load(&buffer.pieces[n]);
        let [a, b, c] = [cell(0), cell(1), cell(2)];
        [a as u32, (a >> 32) as u32, b as u32, (b >> 32) as u32, c as u32]
    }

    /// Takes a piece for an entry, if the buffer has none yet. Under the lock. If nothing is staged in it
    /// after all, it stays with the buffer for the next entry.
    ///
    /// # Errors
    /// [`PmError::Full`]; nothing is changed then.
    #[inline(always)]
    pub(crate) fn reserve(&self, index: u32, entry: usize) -> Result<(), PmError> {
        let buffer = self.get(index);
        if self.piece(buffer, entry) == pieces::NONE {
            let (cell, shift) = Self::place_of(buffer, entry);
            let piece = self.pieces.take()?;
            self.dram.store(cell, self.dram.load(cell) | u64::from(piece) << shift);
        }
        Ok(())
    }

    /// Gives all pieces back. Under the lock.
    fn give_back_pieces(&self, buffer: &Buffer) {
        let all = self.pieces_of(buffer);
        for cell in &buffer.pieces {
            self.dram.store(cell, 0); // before another buffer takes them
        }
        let count = all.iter().take_while(|&&piece| piece != pieces::NONE).count();
        self.pieces.give_back(&all[..count]);
    }

    #[inline(always)]
    fn entry(&self, index: u32, entry: usize) -> &[PmU64] {
        let piece = self.piece(self.get(index), entry);
        self.pieces.entry(piece, entry, Slot::<K, V>::WORDS)
    }

    /// Returns the entry with the probe's key. Racing: validate.
    #[inline(always)]
    pub(crate) fn find(&self, index: u32, probe: &Probe<'_, K>) -> Option<Hit> {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        let tagged = self.dram.match_byte(&buffer.tags, tag_of(probe));
        let keys = Slot::<K, V>::KEY_WORDS;
        for entry in bits(tagged & ((1 << state.len().min(ENTRIES)) - 1)) {
            let words = self.entry(index, entry);
            if (0..keys).all(|i| self.dram.load(&words[i]) == probe.words()[i]) {
                return Some(Hit { entry, deleted: state.deleted() >> entry & 1 == 1 });
            }
        }
        None
    }

    /// Writes what readers do not see before [`publish`](Self::publish) of a record, or a removal: all but
    /// the value of a key that has an entry. Its piece is [reserved](Self::reserve). Under the lock, before
    /// the fence: it is done while the log entry becomes durable.
    #[inline(always)]
    pub(crate) fn stage(
        &self,
        index: u32,
        entry: usize,
        probe: &Probe<'_, K>,
        datum: Option<&EncodedValue<'_, V>>,
        known: bool,
    ) {
        let buffer = self.get(index);
        if entry < self.dram.load(&buffer.state).len() {
            return;
        }
        let (cell, shift) = (&buffer.tags[entry / 8 % 2], 8 * (entry % 8));
        let rest = self.dram.load(cell) & !(0xff << shift);
        self.dram.store(cell, rest | u64::from(tag_of(probe)) << shift);
        self.put_known(index, entry, known);
        let (words, keys) = (self.entry(index, entry), Slot::<K, V>::KEY_WORDS);
        self.dram.write_words(&words[..keys], &probe.words()[..keys]);
        self.put_value(words, datum);
    }

    /// Makes what was staged, whose log entry is durable, part of the buffer. Under the lock.
    #[inline(always)]
    pub(crate) fn publish(
        &self,
        index: u32,
        entry: usize,
        datum: Option<&EncodedValue<'_, V>>,
        (location, birth): (Location, u64),
    ) {
        let buffer = self.get(index);
        let state = self.dram.load(&buffer.state);
        if entry < state.len() {
            self.put_value(self.entry(index, entry), datum);
        }
        if state.logged() == 0 || birth < self.dram.load(&buffer.birth) {
            self.dram.store(&buffer.birth, birth);
        }
        let piece = self.dram.load(&buffer.pieces[2]) & ((1 << HEAD_SHIFT) - 1);
        self.dram.store(&buffer.pieces[2], piece | u64::from(location.bits()) << HEAD_SHIFT);
        self.dram.store(&buffer.state, state.with_logged().with_entry(entry, datum.is_none()));
    }

    #[inline(always)]
    fn put_value(&self, words: &[PmU64], datum: Option<&EncodedValue<'_, V>>) {
        let keys = Slot::<K, V>::KEY_WORDS;
        if let Some(datum) = datum {
            let count = words.len() - keys;
            self.dram.write_words(&words[keys..], &datum.words()[..count]);
        }
    }

    /// Returns the words of an entry, key and value. Racing: validate.
    pub(crate) fn words(&self, index: u32, entry: usize) -> [u64; 8] {
        let mut copy = [0; 8];
        let words = self.entry(index, entry);
        self.dram.read_words(words, &mut copy[..words.len()]);
        copy
    }

    /// Returns the tag of an entry's key. Racing: validate.
    #[inline(always)]
    pub(crate) fn tag(&self, index: u32, entry: usize) -> u8 {
        self.dram.load(&self.get(index).tags[entry / 8]).to_le_bytes()[entry % 8]
    }

    /// Returns the value of an entry. Racing: validate.
    #[inline(always)]
    pub(crate) fn value(&self, index: u32, entry: usize) -> V {
        let words = self.words(index, entry);
        V::from_words(&words[Slot::<K, V>::KEY_WORDS..Slot::<K, V>::WORDS])
    }

    /// Empties a buffer, which the Bnode has absorbed. Under the lock.
    pub(crate) fn clear(&self, index: u32) {
        let buffer = self.get(index);
        let node = self.dram.load(&buffer.state).node();
        self.dram.store(&buffer.tally, Tally::of(self.tally(index).seq(), true));
        self.dram.store(&buffer.state, State::of(node));
        self.give_back_pieces(buffer);
    }

    /// Verifies that every piece in use belongs to one buffer; returns their number.
    #[cfg(test)]
    pub(crate) fn check_pieces(&self) -> usize {
        let mut all = std::collections::HashSet::new();
        for index in self.indices().all() {
            let pieces = self.pieces_of(self.get(index));
            let there = pieces.iter().take_while(|&&piece| piece != pieces::NONE);
            assert!(there.clone().all(|&piece| all.insert(piece)), "a piece of two buffers");
            let count = there.count();
            assert!(pieces[count..].iter().all(|&piece| piece == pieces::NONE), "a gap");
        }
        assert_eq!(all.len(), self.pieces.len(), "pieces that no buffer has");
        all.len()
    }

    /// Takes all free pieces away, but for `some`.
    #[cfg(test)]
    pub(super) fn leave_pieces(&self, some: u32) {
        self.pieces.leave(some);
    }

    /// Returns `true` if the Bnode has absorbed its whole chain.
    pub(crate) fn is_absorbed(&self, index: u32) -> bool {
        self.tally(index).is_absorbed()
    }
}
