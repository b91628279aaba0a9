//! Moving the horizon: making the new values of many operations durable at once.
//!
//! A successful operation's values are in its descriptor, durably; its words need be durable only
//! before the descriptor is reused. So they are flushed in batches:
//!
//! | step | store                                                                  | durable before |
//! |------|------------------------------------------------------------------------|----------------|
//! | S1   | every word of a partition's successful operations with stamps <= s      | SET            |
//! | SET  | `settled` of the partition := s, in DRAM                               |                |
//! | S2   | horizon := t, where every partition has settled up to t at least         | reuse of those descriptors |
//!
//! `s` is closed first: the stamp of an operation is taken before the outcome is stored, so a late
//! thread could still store an outcome with a stamp up to `s`. A partition's own thread reads `s` off the
//! clock between two operations: those that are over can get no other outcome, and the next one has
//! its stamp from later. Where an operation is not over (its thread is in it, or an error ended it), the
//! undecided status is given the floor `s`; the late thread's compare-and-swap fails, and it takes a
//! later stamp.
//!
//! So `settled` = s says, from SET on and for ever: the partition's successful operations with stamps up to s
//! are complete, there will be no other, and the medium has in each of their words what they stored or what
//! came later. What came later has a later stamp: it is up to t itself, or replayed, or a
//! late tentative pointer, which means what was there (`install`). Therefore:
//!
//! * To look at another thread's descriptors, and to flush its lines once more, costs more than all the
//!   rest. While the others go on settling, nobody does: each does S1 for its own operations, and S2
//!   for the least `settled` of all.
//! * A partition whose thread rests, or is delayed, would keep the horizon where it is. Who needs
//!   descriptors does S1 for it as well, up to the same stamp as for itself, and S2 counts that in place
//!   of its `settled`.
//!
//! The horizon moves over *all* operations up to `t`, in the order of their stamps, whoever owns
//! them. This is what makes replaying safe: recovery replays the operations after the horizon, a
//! suffix of each word's history, so an old operation's value never overwrites a later one, however
//! often a value comes back (A, B, A). No step waits for a thread: whoever is found in the middle is
//! helped.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use pmindex_core::{LINE, PmError};

use crate::drive::{Action, Settling};
use crate::entry::Entry;
use crate::layout::Carried;
use crate::mwcas::Mwcas;
use crate::primitive::{Flushed, Medium};
use crate::session::Session;
use crate::status::{STAMP_MASK, State, Status};

/// Whose operations an S1 settles besides the partition's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookAt {
    /// Nobody's: the horizon moves as far as the others have settled.
    Nobody,
    /// Those of partitions that have not settled anything since the horizon moved.
    Laggards,
    /// Everybody's.
    Everybody,
}

impl<M: Medium> Session<'_, M> {
    /// Says what S1 has to flush, for the next fence: all of this partition that has a stamp by now,
    /// and all of those that are looked at.
    pub(crate) fn begin_settling(&mut self, look: LookAt) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        pm.yield_point();
        // Before the statuses: what was given a stamp up to here has a status by now.
        let own = mwcas.clock.0.load(Acquire);
        self.local.driver.settling = None; // what was due is part of this
        let mut lines = core::mem::take(&mut self.local.driver.lines);
        lines.clear();
        let horizon = mwcas.durable_horizon();
        let (mut all, mut others_go_on) = (own, false);
        for other in mwcas.partitions.others(self.me) {
            let settled = mwcas.partitions.settled(pm, other);
            others_go_on |= settled > horizon;
            let is_looked_at = match look {
                LookAt::Nobody => false,
                LookAt::Laggards => settled <= horizon,
                LookAt::Everybody => true,
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
        // Of this partition's own: whatever is decided is complete.
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

    /// Sees to it that the operation in `slot` is either complete, its lines in `lines`, or will
    /// have a stamp above `upto`, or needs no replay.
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
                    // Not yet past the horizon, so not yet reused; from here on it stays so.
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

    /// Notes the lines of an operation of this partition that took place.
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

    /// S1 and S2 with fences of their own, after what is due already.
    pub(crate) fn move_horizon(&mut self) -> Result<(), PmError> {
        if self.mwcas.pool.pm().is_volatile() {
            return Ok(());
        }
        self.begin_settling(LookAt::Everybody)?;
        self.fence(Flushed::nothing())?; // S1
        self.fence(Flushed::nothing())?; // S2
        Ok(())
    }
}

impl<M: Medium> Mwcas<M> {
    /// After the fence: descriptors up to `upto` may be reused.
    pub(crate) fn note_horizon(&self, upto: u64) {
        self.pool.pm().yield_point();
        self.durable.0.fetch_max(upto, AcqRel);
    }

    /// S2, but for the fence.
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

/// Lines of a batch. With very many, it forgets some, and they are flushed twice.
#[derive(Debug)]
struct Seen([u64; Self::PLACES]);

impl Default for Seen {
    fn default() -> Self {
        Self([0; Self::PLACES])
    }
}

impl Seen {
    const PLACES: usize = 256;
    /// Places that a line may have.
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

/// The offset of the line of each word that an operation changes.
fn lines_changed<'a>(
    entries: &'a [Entry],
    carried: Option<&'a Carried>,
) -> impl Iterator<Item = u64> + 'a {
    let targets = entries.iter().filter(|e| e.target != 0).map(|e| e.target);
    let carried = carried.into_iter().flat_map(Carried::values).map(|(word, _)| word);
    targets.chain(carried).map(|word| word - word % LINE as u64)
}
