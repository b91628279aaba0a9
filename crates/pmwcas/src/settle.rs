//! Moving the horizon: making the new values of many operations durable at once.
//!
//! A successful operation's values are in its descriptor, durably; its words need be durable only
//! before the descriptor is reused. So they are flushed in batches:
//!
//! | step | store                                                        | durable before |
//! |------|--------------------------------------------------------------|----------------|
//! | S1   | every word of every successful operation with stamp <= t     | S2             |
//! | S2   | horizon := t                                                 | reuse of those descriptors |
//!
//! `t` is closed first: the stamp of an operation is taken before the outcome is stored, so a late
//! thread could still store an outcome with a stamp below `t`. Every undecided status is therefore
//! given the floor `t`; the late thread's compare-and-swap fails, and it takes a later stamp.
//!
//! The horizon moves over *all* operations up to `t`, in the order of their stamps, whoever owns
//! them. This is what makes replaying safe: recovery replays the operations after the horizon, a
//! suffix of each word's history, so an old operation's value never overwrites a later one, however
//! often a value comes back (A, B, A). No step waits for a thread: whoever is found in the middle is
//! helped.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use pmindex_core::{Flushed, LINE, Medium, PmError};

use crate::drive::Action;
use crate::entry::Entry;
use crate::layout::Carried;
use crate::mwcas::Mwcas;
use crate::session::Session;
use crate::status::{State, Status};

impl<M: Medium> Session<'_, M> {
    /// Says what S1 has to flush, for the next fence: all that has a stamp by now.
    pub(crate) fn begin_settling(&mut self) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        pm.yield_point();
        // Before the statuses: what was given a stamp up to here has a status by now.
        let upto = mwcas.clock.0.load(Acquire);
        self.local.driver.settling = None; // what was due is part of this
        let mut lines = core::mem::take(&mut self.local.driver.lines);
        lines.clear();
        let mine = mwcas.partitions.slots_of(self.me);
        for slot in (0..mwcas.partitions.slots_in_use()).filter(|slot| !mine.contains(slot)) {
            self.settle_slot(slot, upto, &mut lines)?;
        }
        // Of this partition's own: whatever is decided is complete.
        for i in 0..self.local.open.len() {
            self.settle_slot(self.local.open[i], upto, &mut lines)?;
        }
        let horizon = mwcas.durable_horizon();
        let own = self.local.changed.iter().filter(|&&(stamp, _)| stamp > horizon);
        lines.extend(own.map(|&(_, line)| line));
        let mut seen = Seen::default();
        lines.retain(|&line| seen.is_new(line));
        self.local.driver.lines = lines;
        self.local.driver.settling = Some(upto);
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
        self.begin_settling()?;
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
        while found < upto {
            match pm.cas(cell, found, upto) {
                Ok(_) => break,
                Err(now) => found = now,
            }
        }
        Ok(pm.flush(cell))
    }
}

/// Lines that a batch has flushed; with many, it forgets some, and they are flushed twice.
#[derive(Debug)]
struct Seen([u64; Self::PLACES]);

impl Default for Seen {
    fn default() -> Self {
        Self([0; Self::PLACES])
    }
}

impl Seen {
    const PLACES: usize = 64;

    fn is_new(&mut self, line: u64) -> bool {
        let hash = (line / LINE as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (hash >> (u64::BITS - Self::PLACES.ilog2())) as usize;
        core::mem::replace(&mut self.0[place], line) != line
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmindex_core::{Medium, PmU64, Pool};

    use crate::{Config, Mwcas};

    #[test]
    fn lines_that_another_thread_flushes_are_forgotten() {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let word = pool
            .create_index::<PmU64>("word", *b"word    ", 0, |word| {
                pool.pm().store(word, 0);
                pool.pm().flush(word)
            })
            .expect("room");
        let config = Config { partitions: 2, per_partition: 8, words: 4 };
        let mwcas = Mwcas::create(&pool, "mwcas", config).expect("room");
        let word = pool.get(word.root::<PmU64>()).expect("there");
        let mut one = mwcas.session().expect("free");
        let mut other = mwcas.session().expect("free");
        for value in 0..1000 {
            let mut op = one.descriptor();
            op.add_word(word, value, value + 1).expect("room");
            assert!(op.execute().expect("emulated"));
            other.move_horizon().expect("emulated");
            assert!(one.local.changed.len() <= 8, "{} lines", one.local.changed.len());
        }
    }
}
