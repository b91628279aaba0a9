//! An entry of a ring: how it is written, and what is believed of one that is read.

use std::array;

use pmindex_core::{Flushed, LINE, Medium, PmError, PmU64, Pool, short_word};

use crate::block::RecordBlock;
use crate::hash::hash_words;

const LINE_WORDS: usize = LINE / 8;
/// The lines of an entry.
const LINES: usize = 4;
/// The words of an entry.
pub(super) const ENTRY_WORDS: usize = LINES * LINE_WORDS;
/// The entries of a ring.
pub(super) const ENTRIES: usize = 2;
/// The words of a ring.
pub(super) const RING_WORDS: usize = ENTRIES * ENTRY_WORDS;
/// The words of a line besides its seal.
const BODY: usize = LINE_WORDS - 1;
/// The longest value that an entry has room for, in words: the place comes first.
pub(super) const MOST: usize = LINES * BODY - 1;
/// Bits of a seal that are the number of the entry.
const NUMBER_BITS: u32 = 48;
/// The greatest number of an entry.
pub(super) const LAST: u64 = (1 << NUMBER_BITS) - 1;
/// The bit of an entry's first seal that says that it does not count, nor the one before it.
const IS_VOID: u64 = 1 << 63;
/// The bits of a seal that are inverted where it is void, so that one damaged bit does not make an entry count again.
const VOID: u64 = !LAST;
/// Bits of a place's word that are the number of words there.
const COUNT_BITS: u32 = 8;
const _: () = assert!(MOST < 1 << COUNT_BITS);

/// A whole entry, whatever it says.
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) is_void: bool,
    /// The place, then the value.
    payload: [u64; 1 + MOST],
}

/// Returns the words of an entry of a ring.
pub(super) fn words_of_turn(ring: &[PmU64], turn: usize) -> &[PmU64] {
    &ring[turn * ENTRY_WORDS..][..ENTRY_WORDS]
}

/// Returns the number of an entry's lines for a value of `count` words.
fn lines_for(count: usize) -> usize {
    (1 + count).div_ceil(BODY)
}

/// Returns the seal of a line: the number of its entry, and a checksum of that and of the line's other words. That of
/// no words stands in a line that is stored in part; so each line has a seal at any time, and one without is damaged.
fn seal_of(number: u64, body: &[u64]) -> u64 {
    let hash = hash_words(&[number, hash_words(body)]);
    (hash & !IS_VOID) >> NUMBER_BITS << NUMBER_BITS | number
}

/// Returns `true` for what a crash may leave of a line beside lines of another entry: it has the seal of some entry of
/// the same turn, or of none yet, for all its words or those that the entry had, or for none.
fn is_sealed(seal: u64, body: &[u64], turn: usize) -> bool {
    let number = seal & LAST;
    let is_of_turn = number == 0 || number % ENTRIES as u64 == turn as u64;
    is_of_turn && (0..=body.len()).any(|len| seal == seal_of(number, &body[..len]))
}

/// Returns the seal of a line that is stored in part, and has this one when it is whole.
#[cfg(test)]
pub(super) fn in_part(seal: u64) -> u64 {
    seal_of(seal & LAST, &[])
}

/// Returns the words of a ring without entries.
pub(super) fn fresh_ring() -> [u64; RING_WORDS] {
    let seal = seal_of(0, &[]);
    array::from_fn(|word| if word % LINE_WORDS == 0 { seal } else { 0 })
}

/// Writes and flushes an entry.
#[inline(always)]
#[track_caller]
pub(super) fn write(
    pm: &impl Medium,
    words: &[PmU64],
    number: u64,
    block: u64,
    value: &[u8],
) -> Flushed {
    let count = value.len().div_ceil(8);
    let mut payload = [0; 1 + MOST];
    payload[0] = block << COUNT_BITS | count as u64;
    let (whole, rest) = value.as_chunks::<8>();
    for (word, chunk) in payload[1..].iter_mut().zip(whole) {
        *word = u64::from_le_bytes(*chunk);
    }
    if !rest.is_empty() {
        payload[1 + whole.len()] = short_word(rest);
    }
    let words = &words[..lines_for(count) * LINE_WORDS];
    let in_part = seal_of(number, &[]);
    for (line, body) in words.chunks(LINE_WORDS).zip(payload[..=count].chunks(BODY)) {
        pm.store_word(&line[0], in_part);
        pm.in_order();
        for (cell, &word) in line[1..].iter().zip(body) {
            pm.store_word(cell, word);
        }
        pm.in_order();
        pm.store_word(&line[0], seal_of(number, body));
    }
    pm.flush_words(words)
}

impl Entry {
    /// Reads an entry, if it is whole.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] for what no writer left, nor a crash.
    fn read<M: Medium>(
        pool: &Pool<M>,
        ring: &[PmU64],
        turn: usize,
    ) -> Result<Option<Self>, PmError> {
        let (pm, words) = (pool.pm(), words_of_turn(ring, turn));
        let corrupt = |what| PmError::Corrupt { what, offset: pool.pptr(&words[0]).offset() };
        let words: [u64; ENTRY_WORDS] = array::from_fn(|word| pm.load_word(&words[word]));
        let is_void = words[0] & IS_VOID != 0;
        let top = if is_void { words[0] ^ VOID } else { words[0] };
        let (number, place) = (top & LAST, words[1]);
        if top == seal_of(number, &[]) {
            return Ok(None); // its first line is stored in part, or not at all
        }
        let count = (place & ((1 << COUNT_BITS) - 1)) as usize;
        if number % ENTRIES as u64 != turn as u64 || count == 0 || count > MOST {
            return Err(corrupt("an entry of the redo log"));
        }
        let mut payload = [0; 1 + MOST];
        let bodies = words.chunks(LINE_WORDS).flat_map(|line| &line[1..]);
        payload[..=count].iter_mut().zip(bodies).for_each(|(word, body)| *word = *body);
        let mut is_whole = true;
        let lines = words.chunks(LINE_WORDS).zip(payload[..=count].chunks(BODY));
        for (at, (line, body)) in lines.enumerate() {
            let seal = if at == 0 { top } else { line[0] };
            if seal == seal_of(number, body) {
                continue;
            }
            // It was never stored, or stored in part, while others of its entry were.
            is_whole = false;
            if at == 0 || !is_sealed(seal, &line[1..], turn) {
                return Err(corrupt("the checksum of an entry of the redo log"));
            }
        }
        Ok(is_whole.then_some(Self { number, is_void, payload }))
    }

    /// Returns the offset of the record block.
    pub(super) fn block(&self) -> u64 {
        self.payload[0] >> COUNT_BITS
    }

    /// Returns the words of the value.
    pub(super) fn value(&self) -> &[u64] {
        &self.payload[1..][..(self.payload[0] & ((1 << COUNT_BITS) - 1)) as usize]
    }

    /// Returns the words that shall hold the value.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if no record has a value of this length there.
    pub(super) fn place<'p, M: Medium>(&self, pool: &'p Pool<M>) -> Result<&'p [PmU64], PmError> {
        let place = RecordBlock::whole_at(pool, self.block())?.value_part();
        if place.len() == self.value().len() {
            return Ok(place);
        }
        let what = "the redo log names a record whose value has another length";
        Err(PmError::Corrupt { what, offset: self.block() })
    }
}

/// Returns the greatest number in a ring, in entries that are not whole too.
pub(super) fn greatest_number(pm: &impl Medium, ring: &[PmU64]) -> u64 {
    let numbers = ring.iter().step_by(LINE_WORDS).map(|cell| pm.load_word(cell) & LAST);
    numbers.max().unwrap_or(0)
}

/// Returns the entries of a ring that count, the older one first; tells damage, of which nothing counts.
pub(super) fn that_count<M: Medium>(
    pool: &Pool<M>,
    ring: &[PmU64],
    mut tell: impl FnMut(PmError),
) -> Vec<Entry> {
    let (mut entries, mut is_damaged) = (Vec::with_capacity(ENTRIES), false);
    for turn in 0..ENTRIES {
        match Entry::read(pool, ring, turn) {
            Ok(entry) => entries.extend(entry),
            Err(error) => {
                is_damaged = true;
                tell(error);
            }
        }
    }
    entries.sort_unstable_by_key(|entry| entry.number);
    let Some(newest) = entries.last() else { return entries };
    if newest.is_void {
        entries.clear(); // it speaks for the other, too
        return entries;
    }
    // The entry before it was durable before any word of it was stored.
    let (number, turn) = (newest.number, (newest.number % ENTRIES as u64) as usize);
    let other = words_of_turn(ring, 1 - turn);
    let is_right = match &entries[..] {
        [before, _] => before.is_void || before.number + 1 == number,
        _ => is_damaged || may_be_in_part(pool.pm(), other, number),
    };
    if !is_right {
        let offset = pool.pptr(&other[0]).offset();
        tell(PmError::Corrupt { what: "the last but one entry of a ring of the redo log", offset });
    }
    entries.retain(|one| !one.is_void && one.number + 1 >= number);
    entries
}

/// Returns `true` if the entry that takes turns with `whole`, and is not whole, is a later one, none, or void.
fn may_be_in_part(pm: &impl Medium, words: &[PmU64], whole: u64) -> bool {
    let top = pm.load_word(&words[0]);
    top & IS_VOID != 0 || top & LAST == 0 || greatest_number(pm, words) > whole
}

/// Reads a ring: its entries that count, the older one first.
///
/// # Errors
/// [`PmError::Corrupt`].
pub(super) fn counting<M: Medium>(pool: &Pool<M>, ring: &[PmU64]) -> Result<Vec<Entry>, PmError> {
    let mut damage = Ok(());
    let entries = that_count(pool, ring, |error| damage = Err(error));
    damage.map(|()| entries)
}

/// Makes the entries of these rings void, and flushes that. The newest one of a ring says it of both, in whatever order they
/// become durable. One that is void, or stored in part, is flushed all the same: on the medium it may still count, if a
/// process died before its flush.
#[track_caller]
pub(super) fn void<'r>(pm: &impl Medium, rings: impl IntoIterator<Item = &'r [PmU64]>) -> Flushed {
    let mut flushed = Flushed::nothing();
    for top in rings.into_iter().flat_map(|ring| ring.iter().step_by(ENTRY_WORDS)) {
        let seal = pm.load_word(top);
        pm.store_word(top, if seal & IS_VOID == 0 { seal ^ VOID } else { seal });
        flushed = flushed.and(pm.flush(top));
    }
    flushed
}
