//! Byte-string values are replaced in place, under one fence: a redo log says what they shall be.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | an entry of a ring: where, and the value (DUR); the value of the ring's entry before, in place | return |
//! | – | the value in place (LIN) | the ring's next entry but one |
//!
//! The log has several rings, of which a thread takes one for an update, mostly the same one; a ring has two entries,
//! which take turns. An update's own words are flushed by the next update in the ring, whose entry may be durable before
//! they are: so the last *two* entries of a ring count, and recovery stores what they say, the older one first. Each line
//! of an entry has a seal with the entry's number, which is stored last: an entry that has it in all its lines is whole.
//! Until then the line has the seal of no words, and a line that was never used has that of number 0: so every line has a
//! seal at any time, and neither a damaged number nor a line of zeros looks like what a crash left.
//!
//! Rings have no order among them. So no two of them name the same block: an update of a block that a ring names takes
//! that ring. And none names a block that is free: before a block is freed, the ring that names it is made void
//! ([`leave`](RedoLog::leave), [`leave_all`](RedoLog::leave_all)), under the lock of the block's leaf. All updates of a value hold that lock, which keeps
//! readers from it until it is whole.
//!
//! ```text
//! ring: two entries of up to 4 lines
//! line 0   | seal | place: block << 8 | words | words of the value, 6 |
//! others   | seal | words of the value, 7                            |
//! seal:    number:48 | checksum:15 | void:1, of the first line; the last 16 are inverted where it is void
//! ```
//!
//! The checksum is of the number and of the line's other words (none of a line that is stored in part): it tells damage,
//! of which no number and no place is believed. An entry that is not whole although a later one is there is damage too:
//! it was durable before. The block of the log is made for the first update that needs it.

mod entry;
mod redone;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pmindex_core::sync::{VersionGuard, VersionLock};
use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmU64, Pool};

use crate::block::RecordBlock;
use crate::commit::link;

use entry::{ENTRIES, MOST, RING_WORDS};
pub use redone::Redone;

/// The rings.
const RINGS: usize = 8;
/// The words of the log.
const WORDS: usize = RINGS * RING_WORDS;

std::thread_local! {
    /// The ring that this thread used last.
    static LAST: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The redo log of an index, whose root has a word that leads to its block.
#[derive(Debug, Default)]
pub struct RedoLog {
    /// The offset of the block, or 0.
    block: AtomicU64,
    /// Held by the thread that makes the block.
    making: VersionLock,
    rings: [Ring; RINGS],
}

/// The state of a ring, in DRAM; on lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Ring {
    lock: VersionLock,
    /// The number of the last entry, complete or not.
    number: AtomicU64,
    /// The number of the last entry whose value is in place.
    done: AtomicU64,
    /// The blocks that valid entries name, or 0; that of entry `n` in `n % 2`. Stored under the lock of the block's
    /// leaf and the ring's.
    blocks: [AtomicU64; ENTRIES],
    /// The block that the entry before the last but one names, which is valid on the medium until the last one is
    /// durable; or 0. Stored under the ring's lock.
    leaving: AtomicU64,
}

impl Ring {
    /// Whether a valid entry may name the block, whose leaf is locked. One that is about to be overwritten is in
    /// `leaving` before its name goes, and the name is read first: so it is seen in one of them until it is invalid.
    #[inline]
    fn names(&self, offset: u64) -> bool {
        // Acquire: who no longer finds a name finds the entry durable that made it go.
        self.blocks.iter().any(|block| block.load(Acquire) == offset)
            || self.leaving.load(Acquire) == offset
    }

    /// Begins after this entry: no entry up to it counts.
    fn begin_after(&self, number: u64) {
        self.number.store(number, Relaxed);
        self.done.store(number, Relaxed);
        // Release, for `names`: the entries are void.
        self.blocks.iter().for_each(|block| block.store(0, Release));
        self.leaving.store(0, Release);
    }
}

/// Rings that are void, but not yet durably so, and locked. Dropped before their [end](Self::end), they name their blocks
/// for this process as before.
#[must_use]
#[derive(Debug, Default)]
pub struct Leaving<'l> {
    rings: Vec<(&'l Ring, VersionGuard<'l>)>,
}

impl Leaving<'_> {
    /// Forgets the blocks: after the fence that makes the rings void durably, and before one that makes durable that the
    /// blocks are free.
    pub fn end(self) {
        for (ring, guard) in self.rings {
            ring.begin_after(ring.number.load(Relaxed));
            drop(guard);
        }
    }
}

impl RedoLog {
    /// Opens the log that `cell` leads to, and stores what the values of its last entries shall be; returns it and whether
    /// there were any. Idempotent. Before anything else reads or changes values of the index.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], with nothing stored; those of the medium.
    pub fn open<M: Medium>(pool: &Pool<M>, cell: &PmU64) -> Result<(Self, bool), PmError> {
        let (log, pm) = (Self::default(), pool.pm());
        let block = pm.load_word(cell);
        if block == 0 {
            return Ok((log, false));
        }
        let words = log_words(pool, block)?;
        log.block.store(block, Relaxed);
        let (mut redo, mut used) = (Vec::new(), Vec::new());
        for (ring, words) in log.rings.iter().zip(words.chunks(RING_WORDS)) {
            for entry in entry::counting(pool, words)? {
                redo.push((entry.place(pool)?, entry));
            }
            let number = entry::greatest_number(pm, words);
            ring.begin_after(number);
            if number > 0 {
                used.push(words);
            }
        }
        let mut redone = Flushed::nothing();
        for (place, entry) in &redo {
            pm.write_words(place, entry.value());
            redone = redone.and(pm.flush_words(place));
        }
        if !redo.is_empty() {
            pm.fence(redone)?; // durable before: that it need not be redone
        }
        if !used.is_empty() {
            let void = entry::void(pm, used);
            pm.fence(void)?; // durable before: any block that they name is freed
        }
        Ok((log, !redo.is_empty()))
    }

    /// Returns the offset of the log's block, if it has one.
    #[must_use]
    pub fn block(&self) -> Option<u64> {
        Some(self.block.load(Acquire)).filter(|&block| block != 0)
    }

    /// Replaces the value of the record at `offset`, whose leaf is locked, by one of the same length; `cell` is the root's
    /// word for the log. Returns `false`, and does nothing, if the log is of no use: for values of another length, empty
    /// ones and those of more than 216 bytes, or while all rings are taken.
    ///
    /// # Cost
    /// The lines of the entry and of the value before it, 1 fence.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], and those of the medium.
    pub fn replace<M: Medium>(
        &self,
        pool: &Pool<M>,
        cell: &PmU64,
        offset: u64,
        value: &[u8],
    ) -> Result<bool, PmError> {
        let pm = pool.pm();
        let block = RecordBlock::at(pool, offset)?;
        let place = block.place_of(value.len()).filter(|place| place.len() <= MOST);
        let Some(place) = place else { return Ok(false) };
        if pm.is_volatile() {
            pm.write_bytes(place, value); // LIN
            return Ok(true);
        }
        block.fetch_rest(pm);
        let Some(log) = self.made(pool, cell)? else { return Ok(false) };
        let Some((at, taken)) = self.take(pm, offset) else { return Ok(false) };
        let ring = &self.rings[at];
        if ring.done.load(Relaxed) != ring.number.load(Relaxed) {
            self.clear(pool, at)?; // after a panic
        }
        let number = ring.number.load(Relaxed) + 1;
        let turn = (number % ENTRIES as u64) as usize;
        if number > entry::LAST {
            return Ok(false); // no ring gets there, but one that is damaged
        }
        // All that can fail but the fence, before the ring changes.
        let words = entry::words_of_turn(ring_words(pool, log, at)?, turn);
        let last = value_words(pool, ring.blocks[1 - turn].load(Relaxed))?;
        // From here on the number is taken, whatever becomes of the entry. The block of the entry that this one
        // overwrites stays named until this one is durable; after an error, until the ring is void.
        ring.number.store(number, Relaxed);
        ring.leaving.store(ring.blocks[turn].load(Relaxed), Release);
        ring.blocks[turn].store(offset, Release); // after `leaving`
        #[cfg(test)]
        tests::named();
        // P1
        let logged = entry::write(pm, words, number, offset, value);
        let last = pm.flush_words(last);
        pm.fence(logged.and(last))?; // DUR
        ring.leaving.store(0, Release);
        pm.write_bytes(place, value); // LIN
        pm.keep_stores(); // durable in the log, whatever becomes of this thread's next fence
        ring.done.store(number, Relaxed);
        drop(taken);
        Ok(true)
    }

    /// Makes the log forget the block at `offset`, whose leaf is locked: before it is freed.
    ///
    /// # Cost
    /// None for a block that no ring's last two entries name; else 2 fences.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], and those of the medium.
    #[inline]
    pub fn leave<M: Medium>(&self, pool: &Pool<M>, offset: u64) -> Result<(), PmError> {
        if self.block.load(Acquire) == 0 {
            return Ok(());
        }
        if let Some(at) = self.named_by(offset) {
            let taken = self.rings[at].lock.lock(pool.pm());
            self.clear(pool, at)?;
            drop(taken);
        }
        Ok(())
    }

    /// Makes the log forget many blocks, whose leaves are locked, before they are freed: as [`leave`](Self::leave) does,
    /// but the caller makes it durable by a fence that it needs anyway, and calls [`Leaving::end`] after it. It takes no
    /// operation of this log meanwhile.
    ///
    /// # Cost
    /// None for blocks that no ring's last two entries name; else 1 fence for all of them, and the caller's.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], and those of the medium.
    pub fn leave_all<M: Medium>(
        &self,
        pool: &Pool<M>,
        blocks: impl IntoIterator<Item = u64>,
    ) -> Result<(Leaving<'_>, Flushed), PmError> {
        let mut leaving = Leaving::default();
        let log = self.block.load(Acquire);
        if log == 0 {
            return Ok((leaving, Flushed::nothing()));
        }
        let mut named = [false; RINGS];
        blocks.into_iter().filter_map(|block| self.named_by(block)).for_each(|at| named[at] = true);
        let (pm, mut voided, mut placed) = (pool.pm(), Vec::new(), Flushed::nothing());
        // In ascending order, as all do that wait for a second one.
        for (at, ring) in self.rings.iter().enumerate().filter(|(at, _)| named[*at]) {
            leaving.rings.push((ring, ring.lock.lock(pm)));
            voided.push(ring_words(pool, log, at)?);
            placed = placed.and(Self::flush_values(pool, ring)?);
        }
        if voided.is_empty() {
            return Ok((leaving, Flushed::nothing()));
        }
        pm.fence(placed)?; // durable before: that it need not be redone
        Ok((leaving, entry::void(pm, voided)))
    }

    /// Makes all values durable in place, and the log void: of an index that is closed.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], and those of the medium.
    pub fn settle<M: Medium>(&self, pool: &Pool<M>) -> Result<(), PmError> {
        for (at, ring) in self.rings.iter().enumerate() {
            let taken = ring.lock.lock(pool.pm());
            if ring.blocks.iter().any(|block| block.load(Relaxed) != 0) {
                self.clear(pool, at)?;
            }
            drop(taken);
        }
        Ok(())
    }

    /// Verifies the log of a quiescent index: what counts is whole, named by its ring, and in place.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn check<M: Medium>(&self, pool: &Pool<M>) -> Result<(), PmError> {
        let Some(block) = self.block() else { return Ok(()) };
        let corrupt = |what| Err(PmError::Corrupt { what, offset: block });
        for (ring, words) in self.rings.iter().zip(log_words(pool, block)?.chunks(RING_WORDS)) {
            let number = ring.number.load(Relaxed);
            if entry::greatest_number(pool.pm(), words) > number {
                return corrupt("a number in the redo log");
            }
            let entries = entry::counting(pool, words)?;
            for (i, entry) in entries.iter().enumerate() {
                let place = entry.place(pool)?;
                if !ring.names(entry.block()) {
                    return corrupt("an entry of the redo log that its ring does not know");
                }
                let is_last = entries[i + 1..].iter().all(|later| later.block() != entry.block());
                let is_in_place = || {
                    let mut held = place.iter().zip(entry.value());
                    held.all(|(cell, &word)| pool.pm().load_word(cell) == word)
                };
                // After a panic the last one may not be in place.
                if is_last && ring.done.load(Relaxed) == number && !is_in_place() {
                    return corrupt("a value that is not what the redo log says");
                }
            }
        }
        Ok(())
    }

    /// Has this thread take the ring of this number next, if it is free: for tests, whose threads take the first one
    /// otherwise.
    #[doc(hidden)]
    pub fn prefer(ring: usize) {
        LAST.set(ring % RINGS);
    }

    /// Returns the ring that names a block, if there is one: no other thread makes one name it meanwhile.
    #[inline]
    fn named_by(&self, offset: u64) -> Option<usize> {
        self.rings.iter().position(|ring| ring.names(offset))
    }

    /// Takes the ring that names a block; if there is none, the one that this thread used last, or another one that is
    /// free. A thread that has a ring waits for no lock, so the one that is named is waited for.
    fn take(&self, pm: &impl Medium, offset: u64) -> Option<(usize, VersionGuard<'_>)> {
        if let Some(at) = self.named_by(offset) {
            return Some((at, self.rings[at].lock.lock(pm)));
        }
        let last = LAST.get();
        let taken = (last..last + RINGS).map(|at| at % RINGS).find_map(|at| {
            let guard = self.rings[at].lock.try_lock(pm)?;
            Some((at, guard))
        });
        if let Some((at, _)) = &taken {
            LAST.set(*at);
        }
        taken
    }

    /// Makes durable in place what a ring says, and the ring void.
    #[cold]
    #[inline(never)]
    fn clear<M: Medium>(&self, pool: &Pool<M>, at: usize) -> Result<(), PmError> {
        let (pm, ring) = (pool.pm(), &self.rings[at]);
        let placed = Self::flush_values(pool, ring)?;
        pm.fence(placed)?; // durable before: that it need not be redone
        let void = entry::void(pm, [ring_words(pool, self.block.load(Acquire), at)?]);
        pm.fence(void)?;
        ring.begin_after(ring.number.load(Relaxed));
        Ok(())
    }

    /// Flushes in place what a ring says.
    fn flush_values<M: Medium>(pool: &Pool<M>, ring: &Ring) -> Result<Flushed, PmError> {
        let mut flushed = Flushed::nothing();
        for block in &ring.blocks {
            let words = value_words(pool, block.load(Relaxed))?;
            flushed = flushed.and(pool.pm().flush_words(words));
        }
        Ok(flushed)
    }

    /// Returns the offset of the log's block, which it makes if there is none; `None` if there is no room.
    #[inline]
    fn made<M: Medium>(&self, pool: &Pool<M>, cell: &PmU64) -> Result<Option<u64>, PmError> {
        match self.block.load(Acquire) {
            0 => self.make(pool, cell),
            block => Ok(Some(block)),
        }
    }

    #[cold]
    fn make<M: Medium>(&self, pool: &Pool<M>, cell: &PmU64) -> Result<Option<u64>, PmError> {
        let Some(making) = self.making.try_lock(pool.pm()) else { return Ok(None) };
        if let Some(block) = self.block() {
            return Ok(Some(block));
        }
        let mut op = pool.op()?;
        let Ok(block) = op.reserve_bytes(8 * WORDS as u64, LINE as u64) else { return Ok(None) };
        let offset = block.ptr().offset();
        let fresh = [entry::fresh_ring(); RINGS];
        let filled = pool.pm().stream_words(pool.words(offset, WORDS)?, fresh.as_flattened());
        op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
        op.prepare(filled)?;
        link(pool, op, cell, offset)?;
        self.block.store(offset, Release);
        drop(making);
        Ok(Some(offset))
    }
}

/// Returns the words of the log whose block is at this offset.
///
/// # Errors
/// [`PmError::Corrupt`] if there is no block for it.
fn log_words<M: Medium>(pool: &Pool<M>, block: u64) -> Result<&[PmU64], PmError> {
    let has_room = pool.block_size(PPtr::<PmU64>::new(block))? >= 8 * WORDS as u64;
    if !has_room || !block.is_multiple_of(LINE as u64) {
        return Err(PmError::Corrupt { what: "the block of the redo log", offset: block });
    }
    pool.words(block, WORDS)
}

fn ring_words<M: Medium>(pool: &Pool<M>, log: u64, at: usize) -> Result<&[PmU64], PmError> {
    pool.words(log + 8 * (at * RING_WORDS) as u64, RING_WORDS)
}

/// Returns the words of a block's value; none if its offset is 0.
#[inline(always)]
fn value_words<M: Medium>(pool: &Pool<M>, offset: u64) -> Result<&[PmU64], PmError> {
    if offset == 0 {
        return Ok(&[]);
    }
    Ok(RecordBlock::at(pool, offset)?.value_part())
}

#[cfg(test)]
mod tests;
