//! Collection: copies the live records of a block elsewhere, and frees the block.
//!
//! Writes pay for collection in small steps, so none has to wait for a whole block. When few blocks are
//! free, the write after one that took *n* bytes of a block walks over *n* / (1 - *u*) bytes of a victim of
//! which the share *u* is live, with at most 16 KiB of copies at a time: so one byte is freed for each byte
//! that is taken. When fewer than half of that are free or about to be, a write pays double. Writes are
//! refused before more than 95 % is live, so *u* is less on average. Two blocks are reserved for collection,
//! which can therefore always continue, and one for writes that free more than they take, so that removals make a full
//! partition usable again. A write that takes a [hole](crate::holes) owes nothing.
//!
//! Writes also pay, whatever the capacity, once the blocks take three times the live bytes and 16 MiB more: there a
//! victim that has been replaced since it was written is nearly empty (6 % are live if writes hit all records alike),
//! so it costs little, and what few records need stays in the caches, and in pages that the system has made already.
//!
//! Free blocks have no dead records, so the more blocks are kept free, the more of the others is live, and
//! the more must be copied. Few are a 64th of all blocks, or those that a few turns fill with writes and
//! copies, because a victim is free only some commits after it was emptied; at most a tenth.
//!
//! The victim is a block with the smallest live share. Copies go to a block of their own and keep their
//! LSN, so of records with equal LSNs any is valid. A victim becomes void two commits after it was emptied:
//! see [`commit`](crate::commit) for what must be durable before what.

use pmindex_core::Medium;

use crate::append::Stream;
use crate::blocks::{Location, State, first_among, is_among};
use crate::layout::HEADER;
use crate::partition::Partition;
use crate::record::{Parts, TOMBSTONE};
use crate::write::RESERVE;
use crate::wrong::Wrong;
use crate::{Budget, Error, Progress};

/// The maximum number of bytes that one write collects.
const MOST_PAID: u64 = 16 << 10;
/// Writes pay from this multiple of the live bytes on, and this number of bytes more.
const ROOMY: u64 = 3;
const ROOM: u64 = 16 << 20;
/// The turns for whose writes and copies blocks are kept free.
const TURNS: u64 = 6;
/// Blocks with this live share, in 64ths, are not collected.
const TOO_FULL: u32 = 64;
/// The same limit while enough blocks are free.
const IDLE: u32 = 32;

/// A block that is being collected, or was.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) place: u32,
    /// The words that were not live when it was chosen.
    dead: u32,
    /// The word of the next record.
    cursor: u32,
    /// Records that live elsewhere: they do not count as dead versions.
    moved: Vec<u64>,
    /// The blocks that have the copies.
    into: Vec<u32>,
}

impl Victim {
    /// Returns a victim that contains nothing needed.
    pub(crate) fn whole(place: u32) -> Self {
        Self { place, dead: 0, cursor: 0, moved: Vec::new(), into: Vec::new() }
    }

    pub(crate) fn has_moved(&self, word: u32) -> bool {
        is_among(&self.moved, word)
    }
}

impl<M: Medium> Partition<M> {
    /// Returns the number of blocks that the capacity has room for.
    pub(crate) fn most_blocks(&self) -> u64 {
        self.capacity / self.block_bytes()
    }

    /// Returns the number of blocks that are taken before writes pay, if the capacity has room for them.
    fn roomy_blocks(&self) -> u64 {
        let bytes = ROOMY * 8 * self.blocks.live + ROOM;
        (bytes / self.block_bytes()).min(self.most_blocks())
    }

    /// Returns the number of free blocks, of this number of all blocks, that are few.
    pub(crate) fn threshold(&self, blocks: u64) -> u64 {
        let turns = (TURNS * self.peak_appended).div_ceil(self.blocks.words.into());
        let needed = (blocks / 64).max(RESERVE + 2 + turns);
        needed.min(blocks / 10).clamp(RESERVE + 2, blocks / 2)
    }

    /// Collects as much as is owed for the space that the last writes took, and for a large value of this
    /// number of bytes.
    pub(crate) fn pay(&mut self, large: u64) -> Result<(), Error> {
        let bytes = 8 * std::mem::take(&mut self.unpaid) + large;
        let (available, roomy) = (self.available(), self.roomy_blocks());
        let taken = self.data_blocks - (self.free.len() + self.tails.len()) as u64;
        let (left, threshold) = (roomy.saturating_sub(taken).min(available), self.threshold(roomy));
        // Victims are free some commits later.
        let victims = self.pipeline.victims();
        if left + victims >= threshold {
            self.debt = 0;
            return Ok(());
        }
        let all = u64::from(self.blocks.payload());
        let dead = match (&self.victim, self.blocks.emptiest()) {
            (Some(victim), _) => victim.dead,
            (None, Some(place)) => self.blocks.payload().saturating_sub(self.blocks.at(place).live),
            (None, None) => return Ok(()),
        };
        let dead = u64::from(dead).max(all / 64 + 1);
        let twice = if left + victims < threshold / 2 { 2 } else { 1 };
        self.debt += twice * bytes * all / dead;
        let paid = self.debt.min(MOST_PAID * all / (all - dead.min(all)).max(all / 64 + 1));
        // Their copies must not take the reserve meanwhile.
        let spare = available.saturating_sub(RESERVE) * self.block_bytes();
        if spare == 0 && victims > 0 {
            return Ok(());
        }
        self.collect_bytes((paid, MOST_PAID.min(spare.max(self.block_bytes()))), TOO_FULL)?;
        self.debt = self.debt.saturating_sub(paid);
        Ok(())
    }

    /// Collects a slice beyond what writes pay for: call it in idle time. The blocks are free a few commits
    /// later.
    ///
    /// # Errors
    /// [`Error::Pool`].
    ///
    /// # Cost
    /// No fence; the budget, and at most one record more.
    pub fn collect(&mut self, budget: Budget) -> Result<Progress, Error> {
        self.usable()?;
        let worth = self.blocks.emptiest().is_some_and(|place| self.is_worth(place, IDLE));
        if self.victim.is_none() && !worth {
            return Ok(Progress { done: true, ..Progress::default() });
        }
        let before = (self.counters.copied_bytes, self.counters.collected_blocks);
        let done = !self.collect_bytes((budget.bytes, budget.bytes), IDLE)?;
        Ok(Progress {
            copied: self.counters.copied_bytes - before.0,
            emptied: self.counters.collected_blocks - before.1,
            done,
        })
    }

    /// Returns `true` if fewer than this number of 64ths of a block are live.
    fn is_worth(&self, place: u32, most: u32) -> bool {
        self.blocks.at(place).live * 64 / self.blocks.words < most
    }

    /// Walks over this number of bytes of victims, or copies as many, from blocks of which fewer than
    /// `most` 64ths are live. Returns `true` if it did anything. It ends early if no block is free for the
    /// copies.
    pub(crate) fn collect_bytes(
        &mut self,
        (mut walk, mut copy): (u64, u64),
        most: u32,
    ) -> Result<bool, Error> {
        self.note_thread();
        let mut done = false;
        while walk > 0 && copy > 0 {
            let Some(mut victim) = self.victim.take().or_else(|| self.choose(most)) else { break };
            let (words, copied, is_over) = match self.collect_record(&mut victim) {
                Ok(collected) => collected,
                Err(error) => {
                    self.victim = Some(victim);
                    return if error.is_full() { Ok(done) } else { Err(error) };
                }
            };
            done = true;
            walk = walk.saturating_sub(8 * u64::from(words));
            copy = copy.saturating_sub(8 * u64::from(copied));
            if is_over {
                self.empty(victim);
            } else {
                self.victim = Some(victim);
            }
        }
        Ok(done)
    }

    /// Chooses the next victim.
    fn choose(&mut self, most: u32) -> Option<Victim> {
        let place = self.blocks.emptiest()?;
        if !self.is_worth(place, most) {
            return None;
        }
        let block = self.blocks.at_mut(place);
        // The holes in it are no longer known.
        (block.state, block.round, block.holes) = (State::Victim, 0, 0);
        self.blocks.relist(place);
        let moved = vec![0; self.blocks.at(place).bits().len()];
        let dead = self.blocks.payload().saturating_sub(self.blocks.at(place).live);
        Some(Victim { place, dead, cursor: HEADER as u32, moved, into: Vec::new() })
    }

    /// Processes one record of a victim. Returns its words, the words that were copied, and whether it was
    /// the last record.
    fn collect_record(&mut self, victim: &mut Victim) -> Result<(u32, u32, bool), Error> {
        let block = self.blocks.at(victim.place);
        if victim.cursor >= block.used || block.live == 0 {
            // A damaged length hides live records, or has made the count of live words too small.
            if first_among(block.bits()).is_none() {
                return Ok((1, 0, true));
            }
            if victim.cursor >= block.used {
                return Ok(self.leave_alone(victim));
            }
        }
        let at = Location::new(victim.place, victim.cursor);
        let is_live = block.is_live(victim.cursor);
        let found = self.blocks.record(at).map(|(_, cells)| cells.len() as u32);
        let Ok(words) = found else { return Ok(self.leave_alone(victim)) };
        if is_live {
            let mut scratch = self.scratch.take();
            let copied = match self.blocks.read(at, &mut scratch) {
                Ok(parts) => self.copy(victim, at, parts),
                Err(error) => Err(error),
            };
            self.scratch.set(scratch);
            match copied {
                Err(Error::Damaged { .. }) => return Ok(self.leave_alone(victim)),
                copied => copied?,
            }
        }
        victim.cursor += words;
        let block = self.blocks.at(victim.place);
        let is_over = victim.cursor >= block.used && first_among(block.bits()).is_none();
        Ok((words, if is_live { words } else { 0 }, is_over))
    }

    /// Copies a live record.
    fn copy(&mut self, victim: &mut Victim, at: Location, parts: Parts<'_>) -> Result<(), Error> {
        let words = parts.words.len() as u32 + 1;
        let to = self.room_in(Stream::Copies, words)?;
        let key_words = &parts.words[parts.head.key_at()..parts.head.value_at()];
        if parts.head.has(TOMBSTONE) {
            let hash = self.hash(key_words, parts.head.key_len);
            self.append(to, parts.words)?;
            self.graves.moved(hash, at, to);
        } else {
            let mut key = Vec::with_capacity(parts.head.key_len + 8);
            parts.push_key(&mut key);
            // No read finds it before the index has it.
            self.append(to, parts.words)?;
            let before = self.index.set(&self.blocks, &key, to)?;
            if before != Some(at) {
                // Occurs only if something is damaged.
                if let Some(before) = before {
                    self.index.set(&self.blocks, &key, before)?;
                }
                return Err(self.blocks.damaged(at));
            }
        }
        self.blocks.kill(at, words);
        self.blocks.enliven(to, words);
        crate::blocks::mark(&mut victim.moved, at.word());
        if victim.into.last() != Some(&to.place()) {
            victim.into.push(to.place());
            self.blocks.at_mut(to.place()).sources += 1;
        }
        if let Some(expiry) = parts.expiry() {
            self.note_expiry(to.place(), expiry);
        }
        self.counters.copied_bytes += 8 * u64::from(words);
        Ok(())
    }

    /// Notes that nothing in a victim is live.
    fn empty(&mut self, victim: Victim) {
        let place = victim.place;
        if self.blocks.at(place).state == State::Damaged {
            return;
        }
        self.blocks.at_mut(place).state = State::Emptied;
        for &into in &victim.into {
            self.grow_length(into);
        }
        self.counters.collected_blocks += 1;
        if self.faults.has(Wrong::VoidedUncommitted) && victim.into.is_empty() {
            let _ = self.void(victim);
            return;
        }
        self.pipeline.emptied.push(victim);
    }

    /// Leaves a block with a damaged record as it is. So the records that were moved elsewhere remain in it, too, and
    /// count as dead versions: their tombstones must outlive the copies.
    #[cold]
    fn leave_alone(&mut self, victim: &mut Victim) -> (u32, u32, bool) {
        self.blocks.condemn(victim.place);
        for &into in &victim.into {
            self.blocks.release(into);
        }
        let (mut word, mut words) = (HEADER as u32, Vec::new());
        // This passes the same records as the collection did.
        while word < victim.cursor {
            let at = Location::new(victim.place, word);
            let Ok((_, cells)) = self.blocks.record(at) else { break };
            word += cells.len() as u32;
            if victim.has_moved(at.word())
                && let Ok(parts) = self.blocks.read(at, &mut words)
                && !parts.head.has(TOMBSTONE)
            {
                let hash = self.hash_of(&parts);
                self.graves.died(hash);
            }
        }
        (1, 0, true)
    }

    /// Frees a block that is durably void, and forgets the dead versions in it.
    pub(crate) fn erased(&mut self, victim: &Victim) -> Result<(), Error> {
        let place = victim.place;
        for &into in &victim.into {
            self.blocks.release(into);
        }
        let (mut word, used) = (HEADER as u32, self.blocks.at(place).used);
        let mut words = Vec::new();
        while word < used {
            let at = Location::new(place, word);
            let Ok((head, cells)) = self.blocks.record(at) else { break };
            word += cells.len() as u32;
            let counts = !head.has(TOMBSTONE) && !head.is_sealed() && head.lsn > self.cleared;
            // A damaged record remains counted, which does no harm: its key may look like another one.
            if counts
                && !victim.has_moved(at.word())
                && let Ok(parts) = self.blocks.read(at, &mut words)
            {
                let hash = self.hash_of(&parts);
                self.forget_version(hash)?;
            }
        }
        self.blocks.wasted -= u64::from(self.blocks.words - used) + HEADER as u64;
        self.forget_expiry(place);
        self.blocks.at_mut(place).state = State::Free;
        self.free.push(place);
        Ok(())
    }

    /// Makes room for records of this number of words in all, the longest of `longest` words, and for a
    /// large value, in addition to a reserve of blocks; collects if necessary.
    pub(crate) fn make_room(
        &mut self,
        (words, longest): (u32, u32),
        large: u64,
        reserve: u64,
    ) -> Result<(), Error> {
        let (mut stuck, mut is_stuck, mut has_looked) = (0, false, false);
        loop {
            // The space of a block that records of this length certainly fill.
            let each =
                (self.blocks.payload() - longest.min(self.blocks.payload() - 1)).max(longest);
            let fits = self.has_room(Stream::Writes, words) || self.has_tail(words);
            let blocks = if fits { 0 } else { 1 + u64::from(words / each) };
            let enough = blocks == 0 || self.available() >= blocks + reserve;
            if enough && self.has_bytes(large, blocks) {
                // A batch cannot be refused in the middle.
                if self.allocate_free(blocks)? {
                    return Ok(());
                }
                continue;
            }
            if enough && self.give_free_back_above(RESERVE.max(blocks))? {
                continue;
            }
            // Others may have returned something to the pool since it refused a block.
            if is_stuck && self.exhausted && !std::mem::replace(&mut has_looked, true) {
                self.look_for_room();
                continue;
            }
            // Nothing was collected. Opening found these blocks, whose room is too small for this.
            if is_stuck && let Some(tail) = self.tails.pop() {
                self.fill(tail);
                is_stuck = false;
            }
            // Only now: the last commit may have freed what was missing.
            if is_stuck && !self.end_backups() {
                return Err(Error::Full { live: self.live_bytes(), capacity: self.capacity });
            }
            if is_stuck {
                stuck = 0;
            }
            self.counters.stalls += u64::from(stuck == 0);
            let collected =
                self.collect_bytes((8 * u64::from(self.blocks.words), u64::MAX), TOO_FULL)?;
            let waiting = !self.pipeline.is_empty();
            self.commit()?;
            stuck = if collected { stuck + 1 } else { stuck + 64 };
            is_stuck = (!waiting && !collected) || stuck > 256;
        }
    }

    /// Returns `true` if the capacity has room for this number of bytes in addition to this number of free blocks and to
    /// the reserve.
    fn has_bytes(&self, bytes: u64, blocks: u64) -> bool {
        let blocks = self.data_blocks + blocks.saturating_sub(self.free.len() as u64) + RESERVE;
        bytes == 0 || blocks * self.block_bytes() + self.large_bytes + bytes <= self.capacity
    }

    /// Returns free blocks to the pool, except a given number; returns `true` if there were any.
    fn give_free_back_above(&mut self, most: u64) -> Result<bool, Error> {
        if self.free.len() as u64 <= most {
            return Ok(false);
        }
        let kept = self.free.split_off(self.free.len() - most as usize);
        let given = self.give_free_back();
        self.free = kept;
        Ok(given? > 0)
    }
}
