//! Settling: makes the new values of many operations durable at once, and advances the horizon.
//!
//! A successful operation's values are durable in its descriptor, so its words need not be durable before the
//! descriptor is reused. They are flushed in batches:
//!
//! | step | store                                                                  | durable before |
//! |------|------------------------------------------------------------------------|----------------|
//! | S1   | every word of a partition's successful operations with stamps <= s      | SET            |
//! | SET  | `settled` of the partition := s, in DRAM                               |                |
//! | S2   | horizon := t, where every partition has settled up to t at least         | reuse of those descriptors |
//!
//! `s` is closed first: an operation takes its stamp before it stores its outcome, so a delayed thread could
//! still store an outcome with a stamp up to `s`. A partition's own thread reads `s` off the clock between
//! two operations: those that are over cannot get another outcome, and the next one takes a later stamp. If
//! an operation is not over (its thread is in it, or an error ended it), its undecided status is given the
//! floor `s`; the delayed thread's compare-and-swap fails, and it takes a later stamp.
//!
//! So from SET on, `settled` = s means: the partition's successful operations with stamps up to s are
//! complete, no other will get such a stamp, and each of their words holds on the medium what they stored or
//! something later. Something later is the value of an operation with a later stamp, which is itself up to t
//! or is replayed; or a late tentative pointer, which means the old value (`install`). Therefore:
//!
//! * Looking at another partition's descriptors and flushing its lines once more costs more than all the
//!   rest. While the other partitions keep settling, each does S1 for its own operations only, and S2 for the
//!   least `settled` of all.
//! * A partition whose thread is idle or delayed would stop the horizon. A thread that needs descriptors does
//!   S1 for that partition as well, up to the same stamp as for its own, and S2 uses that stamp in place of
//!   the partition's `settled`.
//!
//! The horizon advances over *all* operations up to `t` in the order of their stamps, in every partition.
//! This makes replaying safe: recovery replays the operations after the horizon, a suffix of each word's
//! history, so an old operation's value never overwrites a later one, however often a value comes back (A, B,
//! A). No step waits for a thread: an operation found unfinished is helped.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use pmindex_core::{LINE, PmError};

use crate::drive::{Action, Settling};
use crate::entry::Entry;
use crate::layout::Carried;
use crate::mwcas::Mwcas;
use crate::primitive::{Flushed, Medium};
use crate::session::Session;
use crate::status::{STAMP_MASK, State, Status};

/// The operations that an S1 settles besides the partition's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleScope {
    /// None: the horizon advances as far as the other partitions have settled.
    OwnPartition,
    /// Those of partitions that have settled nothing since the horizon advanced.
    IdlePartitions,
    /// Those of all partitions.
    AllPartitions,
}

impl<M: Medium> Session<'_, M> {
    /// Collects the lines that S1 has to flush for the next fence: those of this partition's operations that
    /// have a stamp by now, and of the other partitions in `scope`.
    pub(crate) fn begin_settling(&mut self, scope: SettleScope) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        pm.yield_point();
        // Before the statuses are read: every operation with a stamp up to here has its status by now.
        let own = mwcas.clock.0.load(Acquire);
        self.local.driver.settling = None; // what was due is part of this
        let mut lines = core::mem::take(&mut self.local.driver.lines);
        lines.clear();
        let horizon = mwcas.durable_horizon();
        let (mut all, mut others_go_on) = (own, false);
        for other in mwcas.partitions.others(self.me) {
            let settled = mwcas.partitions.settled(pm, other);
            others_go_on |= settled > horizon;
            let is_looked_at = match scope {
                SettleScope::OwnPartition => false,
                SettleScope::IdlePartitions => settled <= horizon,
                SettleScope::AllPartitions => true,
            };
            if !is_looked_at {
                all = all.min(settled);
                continue;
            }
            for slot in mwcas.partitions.slots_of(other) {
                self.settle_slot(slot, own, &mut lines)?;
            }
        }
        self.local.driver.others_go_on = others_go_on;
        // This partition's own: every decided operation is complete.
        for i in 0..self.local.open.len() {
            self.settle_slot(self.local.open[i], own, &mut lines)?;
        }
        let before = self.local.driver.settled.max(horizon);
        let changed = self.local.changed.iter().filter(|&&(stamp, _)| stamp > before);
        lines.extend(changed.map(|&(_, line)| line));
        let mut seen = Seen::default();
        lines.retain(|&line| seen.is_new(line));
        self.local.driver.lines = lines;
        self.local.driver.settling = Some(Settling { own, all });
        Ok(())
    }

    /// Ensures that the operation in `slot` is complete and its lines in `lines`, or will have a stamp above
    /// `upto`, or needs no replay.
    fn settle_slot(&mut self, slot: u32, upto: u64, lines: &mut Vec<u64>) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        let cell = mwcas.slot(slot)?.status();
        loop {
            let word = pm.load(cell);
            let status = Status::unpack(word);
            match status.state {
                State::Undecided if status.stamp < upto => {
                    let floored = status.to(State::Undecided, upto);
                    if pm.cas(cell, word, floored.pack()).is_ok() {
                        return Ok(());
                    }
                }
                State::Succeeded | State::Committed if status.stamp <= upto => {
                    if status.stamp <= mwcas.durable_horizon() {
                        return Ok(());
                    }
                    mwcas.partitions.protect(pm, self.me, slot);
                    // Not yet past the horizon, so not yet reused; the hazard keeps it from reuse from here
                    // on.
                    let done = if pm.load(cell) == word && mwcas.durable_horizon() < status.stamp {
                        self.complete(slot, lines)
                    } else {
                        Ok(false)
                    };
                    mwcas.partitions.unprotect(pm, self.me);
                    if done? {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Completes the successful operation in the protected `slot` and notes its lines.
    fn complete(&mut self, number: u32, lines: &mut Vec<u64>) -> Result<bool, PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        let slot = mwcas.slot(number)?;
        let heading = slot.load_heading(pm);
        let mut view = core::mem::take(&mut self.local.view);
        slot.copy_entries(pm, heading, &mut view);
        let action = Action::of_other(mwcas, slot, number, heading, &view);
        let driven = mwcas.drive(&action, &mut self.local.driver);
        lines.extend(lines_changed(&view, action.carried.as_ref()));
        self.local.view = view;
        driven.map(|_| true)
    }

    /// Adds the lines of a successful operation of this partition.
    pub(crate) fn note_lines(&mut self, entries: &[Entry], carried: Option<&Carried>, stamp: u64) {
        if self.mwcas.pool.pm().is_volatile() {
            return;
        }
        let changed = &mut self.local.changed;
        for line in lines_changed(entries, carried) {
            if changed.last() != Some(&(stamp, line)) {
                changed.push((stamp, line));
            }
        }
    }

    /// Executes S1 and S2 with fences of their own, after the steps that are due already.
    pub(crate) fn move_horizon(&mut self) -> Result<(), PmError> {
        if self.mwcas.pool.pm().is_volatile() {
            return Ok(());
        }
        self.begin_settling(SettleScope::AllPartitions)?;
        self.fence(Flushed::nothing())?; // S1
        self.fence(Flushed::nothing())?; // S2
        Ok(())
    }
}

impl<M: Medium> Mwcas<M> {
    /// Records, after the fence, that descriptors up to `upto` may be reused.
    pub(crate) fn note_horizon(&self, upto: u64) {
        self.pool.pm().yield_point();
        self.durable.0.fetch_max(upto, AcqRel);
    }

    /// Executes S2 without the fence.
    #[track_caller]
    pub(crate) fn flush_horizon(&self, upto: u64) -> Result<Flushed, PmError> {
        let pm = self.pool.pm();
        let cell = self.table.horizon(&self.pool)?;
        let mut found = pm.load(cell);
        while found & STAMP_MASK < upto {
            match pm.cas(cell, found, self.table.pack_horizon(upto)) {
                Ok(_) => break,
                Err(now) => found = now,
            }
        }
        Ok(pm.flush(cell))
    }
}

/// The lines of a batch. If there are very many it forgets some, which are then flushed twice.
#[derive(Debug)]
struct Seen([u64; Self::PLACES]);

impl Default for Seen {
    fn default() -> Self {
        Self([0; Self::PLACES])
    }
}

impl Seen {
    const PLACES: usize = 256;
    /// The number of places where a line may be.
    const TRIES: usize = 16;

    fn is_new(&mut self, line: u64) -> bool {
        let hash = (line / LINE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> (u64::BITS - Self::PLACES.ilog2())) as usize;
        for place in (place..place + Self::TRIES).map(|place| place % Self::PLACES) {
            if self.0[place] == line {
                return false;
            }
            if self.0[place] == 0 {
                self.0[place] = line;
                return true;
            }
        }
        self.0[place] = line;
        true
    }
}

/// Returns the offset of the line of each word that an operation changes.
fn lines_changed<'a>(
    entries: &'a [Entry],
    carried: Option<&'a Carried>,
) -> impl Iterator<Item = u64> + 'a {
    let targets = entries.iter().filter(|e| e.target != 0).map(|e| e.target);
    let carried = carried.into_iter().flat_map(Carried::values).map(|(word, _)| word);
    targets.chain(carried).map(|word| word - word % LINE as u64)
}
