//! The descriptor pool on the medium: one block, a header of two lines and the descriptors.
//!
//! ```text
//!    0: | magic | configuration | check of the two | 0 .. |
//!   64: | horizon | 0 ..                                  |
//!  128: descriptor 0, descriptor 1, ...
//!
//!  descriptor: | status | heading | entry 0 | entry 1 | ...    (entry: target, old, new)
//!               0        8         16        40                 whole lines each
//!  heading:    | 63..41 carried | 40 allocates | 39..35 recycler | 34..30 entries - 1 | 29..0 incarnation |
//!  carried:    | 63 record's words - 1 | 62..52 record's place | 51..41 shown word's place |
//! ```
//!
//! An operation of one entry can *carry* a record and the word that shows it: the shown word's new value and
//! the record's words take the place of entry 1. Their places are distances, in words, from entry 0's target;
//! 0 in all of these bits means that nothing is carried.
//!
//! An operation on two words fits in one line. The horizon is the stamp up to which every successful
//! operation's new values are durable in their words: `| 63..52 check | 51..0 stamp |`. Recovery skips the
//! operations up to it, so a damaged horizon would lose operations without any other sign: hence the check.
//! Tables of version 3 have no check; its bits are 0 there.

use pmindex_core::{LINE, PmError};

use crate::config::Config;
use crate::entry::Entry;
use crate::primitive::{Flushed, Medium, PmU64, Pool};
use crate::status::{LAST_STAMP, STAMP_MASK, Status, low_of};
use crate::word::SEQ_MASK;

const MAGIC: u64 = u64::from_le_bytes(*b"pmwcas\x04\x00");
/// The magic of tables whose horizon has no check.
const MAGIC_3: u64 = u64::from_le_bytes(*b"pmwcas\x03\x00");
const HEADER_WORDS: usize = 2 * LINE / 8;
const HORIZON: usize = LINE / 8;
const ENTRY_WORDS: usize = 3;
const FIXED_WORDS: usize = 2;

const SEQ_BITS: u32 = SEQ_MASK.count_ones();
const COUNT_BITS: u32 = 5;
const RECYCLER_BITS: u32 = 5;
const ALLOCATES_SHIFT: u32 = SEQ_BITS + COUNT_BITS + RECYCLER_BITS;
const CARRIED_SHIFT: u32 = ALLOCATES_SHIFT + 1;
const DISTANCE_BITS: u32 = 11;
const DISTANCE_MASK: u64 = (1 << DISTANCE_BITS) - 1;
/// The largest number of recyclers.
pub(crate) const MAX_RECYCLERS: usize = 1 << RECYCLER_BITS;

/// A heading: the incarnation, the number of entries, the recycler of old values, and whether the operation
/// has new blocks.
///
/// An operation with new blocks makes its entries durable before its status. In any other operation that is
/// still `Undecided`, entries behind the first line can be those of an operation with the same incarnation
/// that a crash prevented. So recovery frees the blocks of failed entries only for operations that allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) seq: u64,
    pub(crate) count: usize,
    pub(crate) recycler: usize,
    pub(crate) allocates: bool,
    pub(crate) carried: Option<Places>,
}

/// The places of a carried record and of the word that shows it, as distances from the first target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    shown: u64,
    record: u64,
    words: usize,
}

impl Places {
    /// Returns the places, or `None` if one is too far away or the record has more than [`CARRIED_WORDS`]
    /// words.
    pub(crate) fn of(target: u64, shown: u64, record: u64, words: usize) -> Option<Self> {
        let distance = |at: u64| {
            let distance = at.checked_sub(target)? / 8;
            (distance <= DISTANCE_MASK).then_some(distance)
        };
        let (shown, record) = (distance(shown)?, distance(record)?);
        let fits = shown != 0 && record != 0 && (1..=CARRIED_WORDS).contains(&words);
        fits.then_some(Self { shown, record, words })
    }

    const fn pack(self) -> u64 {
        (self.words as u64 - 1) << (2 * DISTANCE_BITS) | self.record << DISTANCE_BITS | self.shown
    }

    const fn unpack(bits: u64) -> Option<Self> {
        if bits == 0 {
            return None;
        }
        let (shown, record) = (bits & DISTANCE_MASK, bits >> DISTANCE_BITS & DISTANCE_MASK);
        let words = (bits >> (2 * DISTANCE_BITS) & 1) as usize + 1;
        Some(Self { shown, record, words })
    }
}

/// The largest number of words of a carried record.
pub(crate) const CARRIED_WORDS: usize = 2;

/// A carried record and the word that shows it, as a private copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    /// The offset of the word that shows the record, and its new value.
    pub(crate) shown: u64,
    pub(crate) new: u64,
    /// The offset of the record and its words.
    pub(crate) record: u64,
    pub(crate) words: [u64; CARRIED_WORDS],
    pub(crate) len: usize,
}

impl Carried {
    /// Returns the words it changes and their new values.
    pub(crate) fn values(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let record = (0..).step_by(8).zip(&self.words[..self.len]);
        let record = record.map(|(at, &word)| (self.record + at, word));
        record.chain([(self.shown, self.new)])
    }
}

impl Heading {
    /// Returns a heading without an operation.
    pub(crate) const fn empty(seq: u64) -> Self {
        Self { seq, count: 1, recycler: 0, allocates: false, carried: None }
    }

    pub(crate) const fn pack(self) -> u64 {
        (self.seq & SEQ_MASK)
            | (self.count.saturating_sub(1) as u64) << SEQ_BITS
            | (self.recycler as u64) << (SEQ_BITS + COUNT_BITS)
            | (self.allocates as u64) << ALLOCATES_SHIFT
            | match self.carried {
                Some(places) => places.pack() << CARRIED_SHIFT,
                None => 0,
            }
    }

    pub(crate) const fn unpack(word: u64) -> Self {
        Self {
            seq: word & SEQ_MASK,
            count: (word >> SEQ_BITS & ((1 << COUNT_BITS) - 1)) as usize + 1,
            recycler: (word >> (SEQ_BITS + COUNT_BITS) & (MAX_RECYCLERS as u64 - 1)) as usize,
            allocates: word >> ALLOCATES_SHIFT & 1 != 0,
            carried: Places::unpack(word >> CARRIED_SHIFT),
        }
    }
}

/// The location of the descriptor pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    base: u64,
    config: Config,
    /// `true` if the horizon has a check.
    checked: bool,
}

/// One descriptor on the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'p> {
    words: &'p [PmU64],
}

const fn slot_words(config: Config) -> usize {
    (FIXED_WORDS + ENTRY_WORDS * config.words as usize).next_multiple_of(LINE / 8)
}

const fn block_words(config: Config) -> usize {
    HEADER_WORDS + slot_words(config) * (config.partitions * config.per_partition) as usize
}

/// Mixes the 64 bits of a word.
const fn mix(word: u64) -> u64 {
    let mixed = (word ^ word >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

/// Computes the check of a header; garbage does not have it.
const fn check_of(config: u64, magic: u64) -> u64 {
    mix(config ^ magic)
}

/// Packs a horizon with its check.
const fn checked_horizon(stamp: u64) -> u64 {
    stamp & STAMP_MASK | mix(stamp ^ MAGIC) & !STAMP_MASK
}

impl Table {
    /// Returns the size in bytes of the block that holds a descriptor pool.
    pub(crate) const fn bytes(config: Config) -> u64 {
        (block_words(config) * 8) as u64
    }

    /// Formats the block at `base`: no operation, horizon 0.
    pub(crate) fn format<M: Medium>(
        pool: &Pool<M>,
        base: u64,
        config: Config,
    ) -> Result<Flushed, PmError> {
        let words = pool.words(base, block_words(config))?;
        for cell in words {
            pool.pm().store(cell, 0);
        }
        for slot in 0..u64::from(config.slots()) {
            // Incarnations start at numbers that cannot be guessed, so that no user data looks like a
            // pointer.
            let seq = mix(mix(slot) ^ pool.uuid() as u64 ^ (pool.uuid() >> 64) as u64);
            let heading = Heading::empty(seq & SEQ_MASK);
            let at = HEADER_WORDS + slot_words(config) * slot as usize + 1;
            pool.pm().store(&words[at], heading.pack());
        }
        pool.pm().store(&words[0], MAGIC);
        pool.pm().store(&words[1], config.pack());
        pool.pm().store(&words[2], check_of(config.pack(), MAGIC));
        pool.pm().store(&words[HORIZON], checked_horizon(0));
        Ok(pool.pm().flush_words(words))
    }

    /// Opens the descriptor pool at `base`.
    pub(crate) fn at<M: Medium>(pool: &Pool<M>, base: u64) -> Result<Self, PmError> {
        let corrupt = |what| PmError::Corrupt { what, offset: base };
        let header = pool.words(base, HEADER_WORDS)?;
        let packed = pool.pm().load(&header[1]);
        let (config, magic) = (Config::unpack(packed), pool.pm().load(&header[0]));
        let is_known = magic == MAGIC || magic == MAGIC_3;
        if !is_known || pool.pm().load(&header[2]) != check_of(packed, magic) {
            return Err(corrupt("no descriptor pool"));
        }
        if !config.is_valid() {
            return Err(corrupt("a descriptor pool's configuration"));
        }
        pool.words(base, block_words(config))?;
        Ok(Self { base, config, checked: magic == MAGIC })
    }

    pub(crate) const fn offset(&self) -> u64 {
        self.base
    }

    /// Turns the table whose horizon is at `horizon` into one of version 3.
    #[cfg(test)]
    pub(crate) fn to_version_3<M: Medium>(pool: &Pool<M>, horizon: u64) -> Result<(), PmError> {
        let header = pool.words(horizon - 8 * HORIZON as u64, HEADER_WORDS)?;
        let config = pool.pm().load(&header[1]);
        pool.pm().store(&header[0], MAGIC_3);
        pool.pm().store(&header[2], check_of(config, MAGIC_3));
        Ok(())
    }

    pub(crate) const fn config(&self) -> Config {
        self.config
    }

    /// Returns the word that holds the horizon.
    #[inline]
    pub(crate) fn horizon<'p, M: Medium>(&self, pool: &'p Pool<M>) -> Result<&'p PmU64, PmError> {
        Ok(&pool.words(self.base, HEADER_WORDS)?[HORIZON])
    }

    /// Reads the horizon of a file.
    pub(crate) fn read_horizon<M: Medium>(&self, pool: &Pool<M>) -> Result<u64, PmError> {
        let word = pool.pm().load(self.horizon(pool)?);
        let stamp = word & STAMP_MASK;
        if stamp > LAST_STAMP || word != self.pack_horizon(stamp) {
            let offset = self.base + 8 * HORIZON as u64;
            return Err(PmError::Corrupt { what: "the horizon of a descriptor pool", offset });
        }
        Ok(stamp)
    }

    /// Packs `stamp` as a horizon.
    pub(crate) const fn pack_horizon(&self, stamp: u64) -> u64 {
        if self.checked { checked_horizon(stamp) } else { stamp }
    }

    /// Returns descriptor `slot`.
    #[inline]
    pub(crate) fn slot<'p, M: Medium>(
        &self,
        pool: &'p Pool<M>,
        slot: u32,
    ) -> Result<Slot<'p>, PmError> {
        if slot >= self.config.slots() {
            return Err(PmError::Corrupt { what: "a descriptor's number", offset: self.base });
        }
        let words = slot_words(self.config);
        let first = HEADER_WORDS + words * slot as usize;
        Ok(Slot { words: pool.words(self.base + first as u64 * 8, words)? })
    }
}

impl<'p> Slot<'p> {
    pub(crate) const fn status(self) -> &'p PmU64 {
        &self.words[0]
    }

    pub(crate) const fn heading(self) -> &'p PmU64 {
        &self.words[1]
    }

    #[inline(always)]
    pub(crate) fn load_status<M: Medium>(self, pm: &M) -> Status {
        Status::unpack(pm.load(self.status()))
    }

    #[inline(always)]
    pub(crate) fn load_heading<M: Medium>(self, pm: &M) -> Heading {
        Heading::unpack(pm.load(self.heading()))
    }

    const fn entry_at(entry: usize) -> usize {
        FIXED_WORDS + ENTRY_WORDS * entry
    }

    /// Loads the expected and the new value of an entry.
    #[inline]
    pub(crate) fn load_values<M: Medium>(self, pm: &M, entry: usize) -> Option<(u64, u64)> {
        let at = Self::entry_at(entry);
        let words = self.words.get(at..at + ENTRY_WORDS)?;
        Some((pm.load(&words[1]), pm.load(&words[2])))
    }

    /// Copies the entries of incarnation `heading.seq`. An entry that an interrupted reuse left from another
    /// incarnation is replaced by an empty one. Returns whether all entries were of this incarnation.
    pub(crate) fn copy_entries<M: Medium>(
        self,
        pm: &M,
        heading: Heading,
        out: &mut Vec<Entry>,
    ) -> bool {
        out.clear();
        let mut own = 0;
        for words in self.words[FIXED_WORDS..].chunks_exact(ENTRY_WORDS).take(heading.count) {
            let (entry, low) =
                Entry::unpack([pm.load(&words[0]), pm.load(&words[1]), pm.load(&words[2])]);
            let is_own = low == low_of(heading.seq);
            own += usize::from(is_own);
            out.push(if is_own { entry } else { Entry::EMPTY });
        }
        own == heading.count
    }

    /// Loads what the operation carries, if its first entry is of this incarnation.
    #[inline]
    pub(crate) fn load_carried<M: Medium>(
        self,
        pm: &M,
        heading: Heading,
        entries: &[Entry],
    ) -> Option<Carried> {
        let places = heading.carried?;
        let target = entries.first().map(|entry| entry.target).filter(|&target| target != 0)?;
        let cells = &self.words[Self::entry_at(1)..Self::entry_at(2)];
        Some(Carried {
            shown: target + 8 * places.shown,
            new: pm.load(&cells[0]),
            record: target + 8 * places.record,
            words: [pm.load(&cells[1]), pm.load(&cells[2])],
            len: places.words,
        })
    }

    /// Writes the carried record; to be called after [`write`](Self::write).
    #[track_caller]
    pub(crate) fn write_carried<M: Medium>(self, pm: &M, carried: &Carried) {
        let cells = &self.words[Self::entry_at(1)..Self::entry_at(2)];
        pm.store(&cells[0], carried.new);
        pm.store(&cells[1], carried.words[0]);
        pm.store(&cells[2], carried.words[1]);
    }

    /// Writes everything but the status. The heading goes first: a reader that loads an entry and then the
    /// heading of the old incarnation has read an entry of the old incarnation.
    #[track_caller]
    pub(crate) fn write<M: Medium>(self, pm: &M, heading: Heading, entries: &[Entry]) {
        pm.store(self.heading(), heading.pack());
        for (words, entry) in self.words[FIXED_WORDS..].chunks_exact(ENTRY_WORDS).zip(entries) {
            pm.store(&words[0], entry.pack_target(heading.seq));
            pm.store(&words[1], entry.old);
            pm.store(&words[2], entry.new);
        }
    }

    /// Returns `true` if a descriptor with this number of entries is one line, whose words reach the medium in the
    /// order in which they were stored.
    pub(crate) const fn is_one_line(count: usize) -> bool {
        Self::entry_at(count) * 8 <= LINE
    }

    /// Flushes the lines of `count` entries, the status included.
    #[track_caller]
    pub(crate) fn flush<M: Medium>(self, pm: &M, count: usize) -> Flushed {
        pm.flush_words(&self.words[..Self::entry_at(count)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_fit_one_line_and_headings_survive_packing() {
        assert_eq!(Slot::entry_at(2) * 8, LINE);
        for heading in [
            Heading::empty(0),
            Heading { count: 32, recycler: 31, allocates: true, ..Heading::empty(SEQ_MASK) },
            Heading { count: 12, recycler: 3, ..Heading::empty(77) },
            Heading { carried: Places::of(64, 72, 64 + 8 * DISTANCE_MASK, 1), ..Heading::empty(1) },
            Heading { carried: Places::of(64, 64 + 8 * DISTANCE_MASK, 72, 2), ..Heading::empty(1) },
        ] {
            assert_eq!(Heading::unpack(heading.pack()), heading);
        }
    }

    #[test]
    fn no_bit_of_a_horizon_flips_unnoticed() {
        for stamp in (0..1 << 12).chain((12..52).map(|bit| 1 << bit)) {
            let word = checked_horizon(stamp);
            assert_eq!(word & STAMP_MASK, stamp);
            for bit in 0..64 {
                let flipped = word ^ 1 << bit;
                assert_ne!(flipped, checked_horizon(flipped & STAMP_MASK), "{stamp}, bit {bit}");
            }
        }
    }
}
