//! A leaf: finds records, reserves room, and makes the contents of a new one.

use std::marker::PhantomData;

use pmindex_core::{Medium, PmError, PmU64, Word};
use pmindex_index::{Key, Value};
use pmindex_pmwcas::{MAX_VALUE, Mwcas};
use pmindex_record::{Probe, Slot, bits};

use super::layout::{
    DEAD, ENTRIES, Entry, Geometry, INFO, Info, MAX_LEAF, NOTHING, Place, Ptr, STATUS, State,
    Status, WIDE, later,
};
use super::record::{Raw, Record, key_from};

/// The maximum number of entries for later records.
pub(super) const MOST_LATER: usize = later(MAX_LEAF);

/// A leaf in a pool with checked bounds.
pub(super) struct Leaf<'p, K, V, const LEAF: usize, const INNER: usize> {
    pub(super) words: &'p [PmU64],
    pub(super) ptr: Ptr,
    sorted: usize,
    free: usize,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K, V, const LEAF: usize, const INNER: usize> Clone for Leaf<'_, K, V, LEAF, INNER> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V, const LEAF: usize, const INNER: usize> Copy for Leaf<'_, K, V, LEAF, INNER> {}

/// A found record.
pub(super) struct Found<'p, K, V> {
    /// The number: the position of a sorted one, or [`MAX_LEAF`] plus the position of its entry.
    pub(super) number: usize,
    /// The word that shows that it exists: `dead`, or its entry.
    pub(super) word: u64,
    pub(super) record: Record<'p, K, V>,
}

/// A reservation: the entry and the place of the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    pub(super) entry: usize,
    pub(super) word: u64,
    pub(super) at: usize,
}

/// The records that exist, each at some moment.
pub(super) struct Live {
    pub(super) entries: [Entry; MOST_LATER],
    pub(super) later: u64,
    pub(super) sorted: u64,
}

/// The source of the words of a record.
pub(super) enum Source<'p> {
    Leaf(&'p [PmU64]),
    Memory(Vec<u64>),
}

/// A live record that is copied to another leaf.
pub(super) struct Item<'p> {
    pub(super) key: Raw,
    pub(super) fingerprint: u8,
    pub(super) words: Source<'p>,
    pub(super) place: Place,
    /// The word of `words` that operations change, and its value.
    pub(super) changing: Option<(usize, u64)>,
}

/// Returns the bit of the later record with this number; none if no leaf has that many.
#[inline(always)]
const fn later_bit(number: usize) -> u64 {
    if number < MAX_LEAF + MOST_LATER { 1 << (number - MAX_LEAF) } else { 0 }
}

impl<'p, K: Key, V: Value, const LEAF: usize, const INNER: usize> Leaf<'p, K, V, LEAF, INNER> {
    /// Returns the leaf that `ptr` points to.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is none.
    #[inline(always)]
    pub(super) fn at<M: Medium>(mwcas: &'p Mwcas<M>, ptr: Ptr) -> Result<Self, PmError> {
        let words = mwcas.pool().words(ptr.offset(), ptr.words())?;
        if words.len() < Geometry::<K, V, LEAF, INNER>::FINGERPRINTS {
            return Err(corrupt("a leaf too short to be one", ptr.offset()));
        }
        let info = Info(mwcas.pool().pm().load_word(&words[INFO]));
        let (sorted, free) = (info.sorted(), info.free());
        let records = Geometry::<K, V, LEAF, INNER>::records(sorted);
        let least = if Geometry::<K, V, LEAF, INNER>::FIXED {
            records + sorted * Slot::<K, V>::WORDS
        } else {
            records
        };
        if sorted > LEAF || free > words.len() || least > free {
            return Err(corrupt("a leaf's sizes", ptr.offset()));
        }
        Ok(Self { words, ptr, sorted, free, types: PhantomData })
    }

    pub(super) fn offset(&self) -> u64 {
        self.ptr.offset()
    }

    /// Returns a bit for each sorted record whose value does not change in place, where records have no places
    /// with this bit.
    #[inline(always)]
    pub(super) fn wide(&self, pm: &impl Medium) -> u64 {
        pm.load_word(&self.words[WIDE])
    }

    /// Returns the number of sorted records.
    pub(super) fn sorted(&self) -> usize {
        self.sorted
    }

    #[inline(always)]
    pub(super) fn status_cell(&self) -> &'p PmU64 {
        &self.words[STATUS]
    }

    #[inline(always)]
    pub(super) fn dead_cell(&self) -> &'p PmU64 {
        &self.words[DEAD]
    }

    /// Returns the cell of a later record's entry.
    #[inline(always)]
    pub(super) fn entry_cell(&self, entry: usize) -> &'p PmU64 {
        &self.words[ENTRIES + entry]
    }

    /// Returns the status.
    #[inline(always)]
    pub(super) fn status<M: Medium>(&self, mwcas: &Mwcas<M>) -> Result<Status, PmError> {
        let status = Status::from_word(mwcas.read(self.status_cell())?);
        if status.used() > Geometry::<K, V, LEAF, INNER>::LATER {
            return Err(corrupt("a leaf's status", self.offset()));
        }
        Ok(status)
    }

    pub(super) fn fingerprint_cells(&self) -> &'p [PmU64] {
        let first = Geometry::<K, V, LEAF, INNER>::FINGERPRINTS;
        &self.words[first..first + self.sorted.div_ceil(8)]
    }

    /// Returns the fingerprint of a sorted record.
    pub(super) fn fingerprint(&self, pm: &impl Medium, number: usize) -> u8 {
        pm.load_word(&self.fingerprint_cells()[number / 8]).to_le_bytes()[number % 8]
    }

    /// Returns the place of a sorted record.
    #[inline(always)]
    pub(super) fn place(&self, pm: &impl Medium, number: usize) -> Place {
        if Geometry::<K, V, LEAF, INNER>::FIXED {
            let words = Slot::<K, V>::WORDS;
            let at = Geometry::<K, V, LEAF, INNER>::records(self.sorted) + number * words;
            let wide = Record::<K, V>::HAS_WORD && self.wide(pm) >> number & 1 != 0;
            return Place { at, words, wide, ..Place::default() };
        }
        let first = Geometry::<K, V, LEAF, INNER>::FINGERPRINTS + self.sorted.div_ceil(8);
        Entry::of(pm.load_word(&self.words[first + number])).place()
    }

    /// Returns the record at a place.
    #[inline(always)]
    pub(super) fn record(&self, place: Place) -> Result<Record<'p, K, V>, PmError> {
        Record::at(self.words, place).map_err(|what| corrupt(what, self.offset()))
    }

    /// Returns the sorted records with the fingerprint of the probe, including removed ones.
    #[inline(always)]
    pub(super) fn candidates(&self, pm: &impl Medium, probe: &Probe<'_, K>) -> u64 {
        let same = pm.match_byte(self.fingerprint_cells(), probe.fingerprint());
        same & ((1u64 << self.sorted) - 1)
    }

    /// Returns the live record with the probe's key. `status` was read before.
    ///
    /// The entries and the bits of dead records are read after it, so the result was true at one moment in
    /// between: a writer replaces a record by one entry.
    #[inline(always)]
    pub(super) fn find<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        status: Status,
        probe: &Probe<'_, K>,
    ) -> Result<Option<Found<'p, K, V>>, PmError> {
        let pm = mwcas.pool().pm();
        let sought = Entry::visible(Place::default(), probe.fingerprint(), 0);
        let mut copy = [0; MOST_LATER];
        let entries = self.entries(mwcas, status, &mut copy)?;
        let (mut later, mut replacing) = (0u64, 0u64);
        for (i, &word) in entries.iter().enumerate() {
            let entry = Entry::of(word);
            later |= u64::from(entry.is_alike(sought)) << i;
            replacing |= entry.replaces();
        }
        let (mut replaced_later, mut replaced) = (0u64, 0u64);
        if replacing != 0 {
            for entry in entries.iter().map(|&word| Entry::of(word)).filter(|e| e.was_shown()) {
                match entry.prev() {
                    prev @ 0..MAX_LEAF => replaced |= 1 << prev,
                    NOTHING => {}
                    prev => replaced_later |= later_bit(prev),
                }
            }
        }
        for i in bits(later & !replaced_later) {
            let word = mwcas.read(self.entry_cell(i))?;
            let entry = Entry::of(word);
            let record = self.record(entry.place())?;
            if entry.is_visible() {
                if record.key_is(mwcas, probe)? {
                    return Ok(Some(Found { number: MAX_LEAF + i, word, record }));
                }
                self.check_namesake(mwcas, &record, probe)?;
            }
        }
        let dead = mwcas.read(self.dead_cell())?;
        for number in bits(self.candidates(pm, probe) & !(dead | replaced)) {
            let record = self.record(self.place(pm, number))?;
            if record.key_is(mwcas, probe)? {
                return Ok(Some(Found { number, word: dead, record }));
            }
            self.check_namesake(mwcas, &record, probe)?;
        }
        Ok(None)
    }

    /// Checks the key of a live record that has the fingerprint of the probe's key and is another key: one of 256
    /// keys has the same fingerprint, but a key with another fingerprint shows damage.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: the lookup cannot tell whether the leaf had the probe's key.
    #[cold]
    #[inline(never)]
    fn check_namesake<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        record: &Record<'p, K, V>,
        probe: &Probe<'_, K>,
    ) -> Result<(), PmError> {
        let key: K = key_from(&record.raw_key(mwcas)?, self.offset())?;
        if Probe::of_stored(&key).fingerprint() == probe.fingerprint() {
            return Ok(());
        }
        Err(corrupt("a record whose key has not its fingerprint", self.offset()))
    }

    /// Returns the words of the entries shown so far, each at some moment.
    #[inline(always)]
    fn entries<'c, M: Medium>(
        &self,
        mwcas: &Mwcas<M>,
        status: Status,
        copy: &'c mut [u64; MOST_LATER],
    ) -> Result<&'c [u64], PmError> {
        let used = status.used().min(MOST_LATER);
        let (cells, copy) = (&self.words[ENTRIES..][..used], &mut copy[..used]);
        mwcas.pool().pm().read_words(cells, copy);
        if copy.iter().fold(0, |all, word| all | word) > MAX_VALUE {
            for (word, cell) in copy.iter_mut().zip(cells).filter(|(word, _)| **word > MAX_VALUE) {
                *word = mwcas.read(cell)?; // an operation is in it
            }
        }
        Ok(copy)
    }

    /// Returns the records that exist.
    pub(super) fn live<M: Medium>(
        &self,
        mwcas: &Mwcas<M>,
        status: Status,
    ) -> Result<Live, PmError> {
        let mut live = Live { entries: [Entry::EMPTY; MOST_LATER], later: 0, sorted: 0 };
        let (mut replaced_later, mut replaced) = (0u64, 0u64);
        let mut copy = [0; MOST_LATER];
        let words = self.entries(mwcas, status, &mut copy)?;
        for (i, (&word, out)) in words.iter().zip(&mut live.entries).enumerate() {
            let entry = Entry::of(word);
            *out = entry;
            if !entry.was_shown() {
                continue;
            }
            live.later |= u64::from(entry.is_visible()) << i;
            match entry.prev() {
                prev @ 0..MAX_LEAF => replaced |= 1 << prev,
                NOTHING => {}
                prev => replaced_later |= later_bit(prev),
            }
        }
        live.later &= !replaced_later;
        let dead = mwcas.read(self.dead_cell())?;
        live.sorted = ((1u64 << self.sorted) - 1) & !(dead | replaced);
        Ok(live)
    }

    /// Reserves an entry and room for a record of `words` words; `None` if the leaf has no room.
    ///
    /// Cost: one compare-and-swap, never flushed: it only keeps other threads away. It may survive a crash; a
    /// reservation of another epoch is ignored. Entries are taken in order, each record after the one before.
    pub(super) fn reserve<M: Medium>(
        &self,
        mwcas: &Mwcas<M>,
        status: Status,
        words: usize,
        epoch: u64,
    ) -> Result<Option<Reservation>, PmError> {
        let pm = mwcas.pool().pm();
        loop {
            let mut entry = status.used();
            let mut at = match entry.checked_sub(1) {
                Some(last) => Entry::of(mwcas.read(self.entry_cell(last))?).end(),
                None => self.free,
            };
            let found = loop {
                if entry == Geometry::<K, V, LEAF, INNER>::LATER {
                    return Ok(None);
                }
                let word = pm.load_word(self.entry_cell(entry));
                let there = Entry::of(word);
                let stale = there.state() == State::Reserved && there.epoch() != epoch;
                if word <= MAX_VALUE && (there.state() == State::Empty || stale) {
                    break word;
                }
                at = Entry::of(mwcas.read(self.entry_cell(entry))?).end();
                entry += 1;
            };
            if at < self.free {
                return Err(corrupt("an entry's place", self.offset()));
            }
            if at + words > self.words.len() {
                return Ok(None);
            }
            let word = Entry::reserved(at, words, epoch).word();
            if pm.cas(self.entry_cell(entry), found, word).is_ok() {
                return Ok(Some(Reservation { entry, word, at }));
            }
        }
    }

    /// Prefetches the line of the next record, if records are of fixed size.
    #[inline(always)]
    pub(super) fn prefetch_room<M: Medium>(&self, pm: &M, status: Status) {
        if Geometry::<K, V, LEAF, INNER>::FIXED
            && let Some(word) = self.words.get(self.free + status.used() * Slot::<K, V>::WORDS)
        {
            pm.prefetch_for_write(word);
        }
    }

    /// Returns the live records in order.
    pub(super) fn items<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        status: Status,
    ) -> Result<Vec<Item<'p>>, PmError> {
        let pm = mwcas.pool().pm();
        let live = self.live(mwcas, status)?;
        let mut items = Vec::with_capacity(self.sorted + status.used());
        for number in bits(live.sorted) {
            let fingerprint = self.fingerprint(pm, number);
            items.push(self.item(mwcas, self.place(pm, number), fingerprint)?);
        }
        if live.later == 0 {
            return Ok(items);
        }
        for i in bits(live.later) {
            let entry = live.entries[i];
            items.push(self.item(mwcas, entry.place(), entry.fingerprint())?);
        }
        items.sort_by(|a, b| a.key.compare(K::SHAPE, &b.key));
        Ok(items)
    }

    fn item<M: Medium>(
        &self,
        mwcas: &'p Mwcas<M>,
        place: Place,
        fingerprint: u8,
    ) -> Result<Item<'p>, PmError> {
        let record = self.record(place)?;
        let changing = match record.changing() {
            Some(word) => Some((word, mwcas.read(&record.words[word])?)),
            None => None,
        };
        let key = record.raw_key(mwcas)?;
        Ok(Item { key, fingerprint, words: Source::Leaf(record.words), place, changing })
    }
}

/// The contents of a new leaf, before it has a block.
pub(super) struct Draft {
    pub(super) words: Vec<u64>,
    /// The number of words of the leaf, including free space.
    pub(super) total: usize,
}

impl Draft {
    /// Makes the contents from records, with the usual room for later ones or with little.
    pub(super) fn of<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
        pm: &M,
        items: &[Item<'_>],
        little: bool,
    ) -> Self {
        type G<K, V, const LEAF: usize, const INNER: usize> = Geometry<K, V, LEAF, INNER>;
        let sorted = items.len();
        let live: usize = items.iter().map(|item| item.place.words).sum();
        let records = G::<K, V, LEAF, INNER>::records(sorted);
        let free = records + live;
        let mut words = vec![0; free];
        words[STATUS] = Status::fresh(sorted, live).into_word();
        let mut wide = 0;
        let fingerprints = G::<K, V, LEAF, INNER>::FINGERPRINTS;
        let places = fingerprints + sorted.div_ceil(8);
        let mut at = records;
        for (i, item) in items.iter().enumerate() {
            words[fingerprints + i / 8] |= u64::from(item.fingerprint) << (8 * (i % 8));
            if !G::<K, V, LEAF, INNER>::FIXED {
                let place = Place { at, ..item.place };
                words[places + i] = Entry::visible(place, item.fingerprint, NOTHING).word();
            }
            let record = &mut words[at..at + item.place.words];
            match &item.words {
                Source::Leaf(words) => pm.read_words(words, record),
                Source::Memory(words) => record.copy_from_slice(words),
            }
            if let Some((word, held)) = item.changing {
                record[word] = held;
            }
            if Record::<K, V>::HAS_WORD && G::<K, V, LEAF, INNER>::FIXED {
                wide |= u64::from(record[Slot::<K, V>::KEY_WORDS] > MAX_VALUE) << i;
            }
            at += item.place.words;
        }
        words[INFO] = Info::leaf(sorted, free).0;
        words[WIDE] = wide;
        // Few different sizes, so that the blocks of old leaves serve new ones.
        let total = if little {
            free.next_multiple_of(8)
        } else {
            Self::total_of::<K, V, LEAF, INNER>(sorted, live)
        };
        Self { words, total }
    }

    /// Returns the words of a leaf with this many records of this many words in all, with the usual room.
    pub(super) fn total_of<K: Key, V: Value, const LEAF: usize, const INNER: usize>(
        sorted: usize,
        live: usize,
    ) -> usize {
        if Geometry::<K, V, LEAF, INNER>::FIXED {
            return Self::fixed_total::<K, V, LEAF, INNER>();
        }
        let free = Geometry::<K, V, LEAF, INNER>::records(sorted) + live;
        let later = Geometry::<K, V, LEAF, INNER>::LATER;
        let least = Geometry::<K, V, LEAF, INNER>::INLINE_WORDS;
        let most = Geometry::<K, V, LEAF, INNER>::MOST_WORDS / 2;
        let mean = live.div_ceil(sorted.max(1)).max(2);
        coarse(free + (later * mean).min(most).max(least), 32)
    }

    /// Returns the number of words of a leaf of records of fixed size, with the usual room.
    pub(super) const fn fixed_total<K: Key, V: Value, const LEAF: usize, const INNER: usize>()
    -> usize {
        let most = Geometry::<K, V, LEAF, INNER>::records(LEAF) + LEAF * Slot::<K, V>::WORDS;
        let later = Geometry::<K, V, LEAF, INNER>::LATER;
        (most + later * Slot::<K, V>::WORDS).next_multiple_of(8)
    }
}

/// Rounds up to one of few sizes: two for each power of two, multiples of `least`.
pub(super) fn coarse(words: usize, least: usize) -> usize {
    words.next_multiple_of((words.next_power_of_two() / 4).max(least))
}

pub(super) fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
