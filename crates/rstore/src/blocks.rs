//! Data blocks: their state in DRAM, and reading of records.
//!
//! A block is *free*, *open* (records are appended), *full*, a *victim* (it is being collected), *emptied*
//! (nothing in it is live), or *void* on the medium. It is a candidate for collection if it is full, its
//! length is durable, no other block waits for copies in it to become durable, no write waits in one of its holes, and
//! it has a dead record: one without any would only stand before those that have some.

use std::sync::Arc;

use pmindex_art::{KeyBuf, Leaves};
use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool};

use crate::Error;
use crate::layout::{HEADER, begin_sum, seal};
use crate::record::{Head, Parts};

/// The words that one bit stands for: no two records begin in the same ones.
const WORDS_PER_BIT: u32 = 4;
/// The records of a block have different lengths.
pub(crate) const VARIOUS: u32 = u32::MAX;
/// The lists of candidates, by the live share of a block.
const BUCKETS: u32 = 64;
const WORD_BITS: u32 = 20;
/// What the index finds damaged if it cannot read the key of a record.
pub(crate) const RECORD: &str = "a record";

/// The location of a record: place and word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(u64);

impl Location {
    pub(crate) const fn new(place: u32, word: u32) -> Self {
        Self((place as u64) << WORD_BITS | word as u64)
    }

    pub(crate) const fn from_leaf(leaf: u64) -> Self {
        Self(leaf)
    }

    pub(crate) const fn leaf(self) -> u64 {
        self.0
    }

    pub(crate) const fn place(self) -> u32 {
        (self.0 >> WORD_BITS) as u32
    }

    pub(crate) const fn word(self) -> u32 {
        (self.0 & ((1 << WORD_BITS) - 1)) as u32
    }
}

/// The state of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The place has no block.
    Absent,
    /// A large value.
    Large,
    Free,
    Open,
    Full,
    Victim,
    Emptied,
    /// Its length on the medium is 0 after the next fence.
    Void,
    /// It is never accessed.
    Damaged,
}

/// The state of a place in DRAM.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) offset: u64,
    pub(crate) generation: u64,
    pub(crate) state: State,
    /// The number of words with records, including the header.
    pub(crate) used: u32,
    /// Words before this one have been flushed since they were written: complete lines.
    pub(crate) flushed: u32,
    /// The durable length.
    pub(crate) durable: u32,
    /// The number of words of live records.
    pub(crate) live: u32,
    /// The number of blocks whose records were copied here, and that are not void yet.
    pub(crate) sources: u32,
    /// The words of each record; 0: there is none; [`VARIOUS`]: they differ.
    pub(crate) each: u32,
    /// The search for holes that visited it last, unless it was given up; 0: none.
    pub(crate) round: u32,
    /// The holes that this search found and that no durable record has taken.
    pub(crate) holes: u32,
    /// The holes with a record that is not durably open yet.
    pub(crate) filling: u32,
    /// The list of candidates that has it, and its position there.
    listed: Option<(u32, u32)>,
    /// The bits of live records.
    bits: Box<[u64]>,
    /// No live record expires before this time.
    pub(crate) soonest: u64,
    /// The first LSN of a write behind the durable length; `u64::MAX`: none.
    pub(crate) uncovered: u64,
}

impl Block {
    pub(crate) fn absent() -> Self {
        Self {
            offset: 0,
            generation: 0,
            state: State::Absent,
            used: 0,
            flushed: 0,
            durable: 0,
            live: 0,
            sources: 0,
            each: 0,
            round: 0,
            holes: 0,
            filling: 0,
            listed: None,
            bits: Box::default(),
            soonest: u64::MAX,
            uncovered: u64::MAX,
        }
    }

    /// Returns a free block.
    pub(crate) fn free(offset: u64, generation: u64, words: u32) -> Self {
        let bits = vec![0; words.div_ceil(WORDS_PER_BIT * 64) as usize].into_boxed_slice();
        Self { offset, generation, state: State::Free, bits, ..Self::absent() }
    }

    /// Returns the block of a large value.
    pub(crate) fn large(offset: u64, generation: u64) -> Self {
        Self { offset, generation, state: State::Large, ..Self::absent() }
    }

    /// Reuses the block with a new generation.
    pub(crate) fn begin(&mut self, generation: u64) {
        let mut bits = std::mem::take(&mut self.bits);
        bits.fill(0);
        let used = HEADER as u32;
        let (offset, state) = (self.offset, State::Open);
        *self = Self { offset, generation, state, used, bits, ..Self::absent() };
    }

    /// Returns `true` if it was allocated, and nothing was written to it.
    pub(crate) fn is_new(&self) -> bool {
        (self.used, self.flushed, self.durable) == (HEADER as u32, HEADER as u32, 0)
    }

    /// Returns `true` if it has a record that is not live.
    pub(crate) fn has_dead(&self) -> bool {
        self.live + (HEADER as u32) < self.used
    }

    /// Notes that the block has a record of this number of words.
    pub(crate) fn has_record(&mut self, words: u32) {
        self.each = if self.each == 0 || self.each == words { words } else { VARIOUS };
    }

    /// Returns the words of the live record at a word, if that is known without reading it.
    pub(crate) fn known_live(&self, word: u32) -> Option<u32> {
        (self.each != VARIOUS && self.is_live(word)).then_some(self.each)
    }

    fn bit(word: u32) -> (usize, u64) {
        let bit = word / WORDS_PER_BIT;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    pub(crate) fn is_live(&self, word: u32) -> bool {
        let (at, bit) = Self::bit(word);
        self.bits.get(at).is_some_and(|bits| bits & bit != 0)
    }

    fn set_live(&mut self, word: u32, live: bool) {
        let (at, bit) = Self::bit(word);
        if live { self.bits[at] |= bit } else { self.bits[at] &= !bit }
    }

    pub(crate) fn bits(&self) -> &[u64] {
        &self.bits
    }
}

/// Sets the bit of the record at a word, in a copy of [`Block::bits`].
pub(crate) fn mark(bits: &mut [u64], word: u32) {
    let (at, bit) = Block::bit(word);
    if let Some(bits) = bits.get_mut(at) {
        *bits |= bit;
    }
}

/// Returns the bit of the record at a word, in a copy of [`Block::bits`].
pub(crate) fn is_among(bits: &[u64], word: u32) -> bool {
    let (at, bit) = Block::bit(word);
    bits.get(at).is_some_and(|bits| bits & bit != 0)
}

/// Removes the bit of the record at a word, in a copy of [`Block::bits`]; returns `true` if it was there.
pub(crate) fn unmark(bits: &mut [u64], word: u32) -> bool {
    let (at, bit) = Block::bit(word);
    bits.get_mut(at).is_some_and(|bits| std::mem::replace(bits, *bits & !bit) & bit != 0)
}

/// Returns the word where, or shortly behind which, the first record begins that has its bit.
pub(crate) fn first_among(bits: &[u64]) -> Option<u32> {
    let (at, bits) = (0..).zip(bits).find(|&(_, &bits)| bits != 0)?;
    Some((at * 64 + bits.trailing_zeros()) * WORDS_PER_BIT)
}

/// Returns `true` if a record from a word on has its bit, in a copy of [`Block::bits`].
pub(crate) fn is_any_from(bits: &[u64], word: u32) -> bool {
    let (at, bit) = Block::bit(word);
    let mut bits = bits.iter().skip(at);
    bits.next().is_some_and(|bits| bits & bit.wrapping_neg() != 0) || bits.any(|&bits| bits != 0)
}

/// All places of a partition.
#[derive(Debug)]
pub(crate) struct Blocks<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) identity: u64,
    /// The words of a data block.
    pub(crate) words: u32,
    pub(crate) list: Vec<Block>,
    buckets: Vec<Vec<u32>>,
    /// The words of live records in all blocks.
    pub(crate) live: u64,
    /// The words of full blocks that no record takes, and those of damaged ones that no live record takes.
    pub(crate) wasted: u64,
}

impl<M: Medium> Blocks<M> {
    pub(crate) fn new(pool: &Arc<Pool<M>>, identity: u64, words: u32) -> Self {
        Self {
            pool: Arc::clone(pool),
            identity,
            words,
            list: Vec::new(),
            buckets: vec![Vec::new(); BUCKETS as usize + 1],
            live: 0,
            wasted: 0,
        }
    }

    /// Returns the words of a block that records can take.
    pub(crate) fn payload(&self) -> u32 {
        self.words - HEADER as u32
    }

    #[inline(always)]
    pub(crate) fn at(&self, place: u32) -> &Block {
        &self.list[place as usize]
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, place: u32) -> &mut Block {
        &mut self.list[place as usize]
    }

    /// Returns the words of a data block.
    #[inline(always)]
    pub(crate) fn cells(&self, place: u32) -> Result<&[PmU64], PmError> {
        self.pool.words(self.at(place).offset, self.words as usize)
    }

    pub(crate) fn damaged(&self, at: Location) -> Error {
        let offset = self.list.get(at.place() as usize).map_or(0, |block| block.offset);
        Error::Damaged { offset: offset + 8 * u64::from(at.word()) }
    }

    /// Returns the words of a record, the checksum first, and its head. Verifies only that the record lies
    /// within its block.
    #[inline(always)]
    pub(crate) fn record(&self, at: Location) -> Result<(Head, &[PmU64]), Error> {
        let Some(block) = self.list.get(at.place() as usize) else { return Err(self.damaged(at)) };
        let (from, used) = (at.word() as usize, block.used as usize);
        let cells = self.pool.words(block.offset, used)?;
        let Some(cells @ [_, lsn, lengths, ..]) = cells.get(from..) else {
            return Err(self.damaged(at));
        };
        let pm = self.pool.pm();
        let head = Head::decode(pm.load(lsn), pm.load(lengths));
        match cells.get(..=head.words()) {
            Some(cells) => Ok((head, cells)),
            None => Err(self.damaged(at)),
        }
    }

    /// Copies a record into `words`, and verifies it.
    #[inline]
    pub(crate) fn read<'w>(
        &self,
        at: Location,
        words: &'w mut Vec<u64>,
    ) -> Result<Parts<'w>, Error> {
        let (head, cells) = self.record(at)?;
        // A staged record in a hole is read, too.
        self.is_hole(at, head)?;
        if words.len() < cells.len() {
            words.resize(cells.len(), 0);
        }
        let words = &mut words[..cells.len()];
        self.pool.pm().read_words(cells, words);
        words[2] = Head::decode(words[1], words[2]).encode();
        let head = Head { seal: 0, ..head };
        let generation = self.at(at.place()).generation;
        let mut sum = begin_sum(self.identity, generation, at.word() as usize);
        sum.add(&words[1..]);
        // The lengths can differ from those read before only if the record is damaged.
        match Parts::split(&words[1..]) {
            Some(parts) if sum.finish() == words[0] && parts.head == head => Ok(parts),
            _ => Err(self.damaged(at)),
        }
    }

    /// Returns `true` if a record, with this head, is a hole.
    pub(crate) fn is_hole(&self, at: Location, head: Head) -> Result<bool, Error> {
        match head.seal {
            0 => Ok(false),
            found if found == self.seal(at, head) => Ok(true),
            _ => Err(self.damaged(at)),
        }
    }

    /// Returns the seal of a hole with these lengths.
    pub(crate) fn seal(&self, at: Location, head: Head) -> u8 {
        seal(self.identity, self.at(at.place()).generation, at.word(), head.encode())
    }

    /// Marks a record as live, which was not.
    pub(crate) fn enliven(&mut self, at: Location, words: u32) {
        self.enliven_unlisted(at, words);
        self.relist(at.place());
    }

    /// Does what [`enliven`](Self::enliven) does, in a block that is in no list.
    #[inline(always)]
    pub(crate) fn enliven_unlisted(&mut self, at: Location, words: u32) {
        let block = self.at_mut(at.place());
        block.set_live(at.word(), true);
        block.live += words;
        self.live += u64::from(words);
    }

    /// Marks a record as dead.
    pub(crate) fn kill(&mut self, at: Location, words: u32) {
        let block = self.at_mut(at.place());
        if !block.is_live(at.word()) {
            return;
        }
        block.set_live(at.word(), false);
        // The lengths were read again: a damaged one must not make a count negative.
        let words = words.min(block.live);
        block.live -= words;
        let is_damaged = block.state == State::Damaged;
        self.live -= u64::from(words);
        self.wasted += if is_damaged { u64::from(words) } else { 0 };
        self.relist(at.place());
    }

    /// Takes a damaged block out of use: nothing is appended to it, and it is not collected. So what is not live in it
    /// is wasted; of a full block, the end is already.
    pub(crate) fn condemn(&mut self, place: u32) {
        let all = self.words;
        let block = self.at_mut(place);
        let is_full = matches!(block.state, State::Full | State::Victim);
        let known = if is_full { all - block.used + HEADER as u32 } else { 0 };
        let dead = all - block.live - known;
        block.state = State::Damaged;
        self.wasted += u64::from(dead);
        self.relist(place);
    }

    /// Notes that a block whose records were copied to this one is void.
    pub(crate) fn release(&mut self, into: u32) {
        let block = self.at_mut(into);
        block.sources = block.sources.saturating_sub(1);
        self.relist(into);
    }

    /// Returns `true` if a block may be collected, which frees something.
    fn is_candidate(&self, place: u32) -> bool {
        let block = self.at(place);
        block.state == State::Full
            && block.has_dead()
            && block.durable == block.used
            && block.sources == 0
            && block.filling == 0
    }

    /// Marks everything in a block as dead.
    pub(crate) fn abandon(&mut self, place: u32) {
        let block = self.at_mut(place);
        let live = std::mem::take(&mut block.live);
        block.bits.fill(0);
        (block.sources, block.soonest, block.uncovered) = (0, u64::MAX, u64::MAX);
        (block.round, block.holes, block.filling) = (0, 0, 0);
        let is_damaged = block.state == State::Damaged;
        if !is_damaged {
            block.state = State::Emptied;
        }
        self.live -= u64::from(live);
        self.wasted += if is_damaged { u64::from(live) } else { 0 };
        self.relist(place);
    }

    /// Moves a block to the list of candidates where it belongs, or removes it from its list.
    pub(crate) fn relist(&mut self, place: u32) {
        let bucket = (self.at(place).live * BUCKETS / self.words).min(BUCKETS);
        let wanted = self.is_candidate(place).then_some(bucket);
        let listed = self.at(place).listed;
        if listed.map(|(bucket, _)| bucket) == wanted {
            return;
        }
        if let Some((bucket, at)) = listed {
            let list = &mut self.buckets[bucket as usize];
            list.swap_remove(at as usize);
            if let Some(&moved) = list.get(at as usize) {
                self.at_mut(moved).listed = Some((bucket, at));
            }
        }
        self.at_mut(place).listed = wanted.map(|bucket| {
            let list = &mut self.buckets[bucket as usize];
            list.push(place);
            (bucket, list.len() as u32 - 1)
        });
    }

    /// Returns the candidate with the smallest live share, in 64ths of a block.
    pub(crate) fn emptiest(&self) -> Option<u32> {
        let list = self.buckets.iter().find(|list| !list.is_empty())?;
        // The first has been in the list for longest.
        list.first().copied()
    }

    /// Returns the candidate with the smallest live share that no search for holes has visited lately.
    pub(crate) fn unsearched(&self) -> Option<u32> {
        self.buckets.iter().flatten().copied().find(|&place| self.at(place).round == 0)
    }

    /// Prefetches the beginning of a record.
    #[inline(always)]
    pub(crate) fn prefetch(&self, at: Location) {
        if let Some(block) = self.list.get(at.place() as usize) {
            let word = PPtr::<PmU64>::new(block.offset + 8 * u64::from(at.word()));
            self.pool.prefetch(word);
        }
    }

    /// Returns the bytes of DRAM used.
    pub(crate) fn bytes(&self) -> u64 {
        let bits: usize = self.list.iter().map(|block| 8 * block.bits.len()).sum();
        let lists: usize = self.buckets.iter().map(|list| 4 * list.capacity()).sum();
        (bits + lists + self.list.capacity() * size_of::<Block>()) as u64
    }
}

/// Lets the index read the keys of records.
impl<M: Medium> Leaves for Blocks<M> {
    fn load_key(&self, leaf: u64, key: &mut KeyBuf) -> Result<(), PmError> {
        let (head, cells) = self.key(Location::from_leaf(leaf))?;
        self.pool.pm().read_bytes(cells, key.zeroed(head.key_len));
        Ok(())
    }

    #[inline]
    fn key_is(&self, leaf: u64, key: &[u8]) -> Result<bool, PmError> {
        let (head, cells) = self.key(Location::from_leaf(leaf))?;
        Ok(self.pool.pm().eq_bytes(cells, head.key_len, key))
    }
}

impl<M: Medium> Blocks<M> {
    /// Returns the head of a record, and the words of its key.
    #[inline(always)]
    fn key(&self, at: Location) -> Result<(Head, &[PmU64]), PmError> {
        match self.record(at) {
            Ok((head, cells)) => Ok((head, &cells[1 + head.key_at()..=head.value_at()])),
            Err(Error::Damaged { offset }) => Err(PmError::Corrupt { what: RECORD, offset }),
            Err(Error::Pool(error)) => Err(error),
            Err(_) => Err(PmError::Corrupt { what: RECORD, offset: 0 }),
        }
    }
}
