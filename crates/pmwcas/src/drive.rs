//! Driving an operation to its end: what its owner and every helper do alike.
//!
//! The state machine is the crate documentation's; each arm of [`Mwcas::drive`] is one of its
//! steps, and may be executed by any number of threads at once.

use core::sync::atomic::Ordering::AcqRel;

use pmindex_core::{Flushed, Medium, PmError, PmU64};

use crate::entry::Entry;
use crate::install::Installed;
use crate::layout::Slot;
use crate::mwcas::Mwcas;
use crate::status::{State, Status};
use crate::word::{Content, Pointer};

/// An operation whose descriptor cannot be reused while the caller is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action<'a> {
    pub(crate) slot: Slot<'a>,
    pub(crate) number: u32,
    pub(crate) seq: u64,
    pub(crate) entries: &'a [Entry],
    /// Whether the thread that has the descriptor drives it.
    pub(crate) own: bool,
}

/// Who drives.
#[derive(Debug)]
pub(crate) struct Driver {
    /// The partition of the thread.
    pub(crate) installer: u32,
    /// Whether no other thread can know the operation yet.
    pub(crate) private: bool,
    /// Where the horizon is to move to with the fence of the next outcome: all before is durable.
    pub(crate) horizon: Option<u64>,
}

/// How far [`Mwcas::drive`] came.
#[derive(Debug)]
pub(crate) enum Progress<'a> {
    /// The operation is over: whether it took place, and its stamp.
    Done(Option<u64>),
    /// Another operation's pointer is in the way.
    Blocked(&'a PmU64, Pointer),
    /// The descriptor is not in this incarnation any more.
    Gone,
}

impl<M: Medium> Mwcas<M> {
    /// The target word of an entry.
    #[inline]
    pub(crate) fn word_at(&self, offset: u64) -> Result<&PmU64, PmError> {
        Ok(&self.pool.words(offset, 1)?[0])
    }

    /// Drives `action` until it is over or another operation is in its way.
    pub(crate) fn drive(
        &self,
        action: &Action<'_>,
        driver: &mut Driver,
    ) -> Result<Progress<'_>, PmError> {
        let (pm, cell) = (self.pool.pm(), action.slot.status());
        let mut word = pm.load(cell);
        loop {
            let status = Status::unpack(word);
            if !status.is_of(action.seq) {
                return Ok(Progress::Gone);
            }
            word = match status.state {
                State::Undecided => {
                    let next = match self.install_all(action, driver)? {
                        Installed::Everywhere if pm.is_volatile() => status.to(State::Committed, 0),
                        // Every word is this operation's: the stamp is later than that of every
                        // operation that changed one of them before.
                        Installed::Everywhere => status.to(State::Succeeded, self.next_stamp()),
                        Installed::Mismatch => status.to(State::Failed, 0),
                        Installed::Decided => {
                            word = pm.load(cell);
                            continue;
                        }
                        Installed::Blocked(word, pointer) => {
                            return Ok(Progress::Blocked(word, pointer));
                        }
                    };
                    // P2: the outcome. Fails if someone else decided, or closed the horizon over
                    // the stamp: then that is how it stands.
                    match pm.cas(cell, word, next.pack()) {
                        Ok(_) => next.pack(),
                        Err(found) => found,
                    }
                }
                State::Succeeded => {
                    // Not earlier: a pointer that goes into a word would wait for the flush.
                    let horizon = match driver.horizon.take() {
                        Some(upto) => self.flush_horizon(upto)?,
                        None => Flushed::nothing(),
                    };
                    // durable before: any word shows its new value, to readers or on the medium.
                    let outcome = pm.flush(cell);
                    pm.fence(horizon.and(outcome))?;
                    // LIN and DUR of a successful operation: from here on reads return the new
                    // values. Release pairs with the Acquire in `read`.
                    let committed = status.to(State::Committed, status.stamp).pack();
                    if action.own {
                        // Nobody stores anything else here until this thread retires it.
                        pm.store(cell, committed);
                        committed
                    } else {
                        match pm.cas(cell, word, committed) {
                            Ok(_) => committed,
                            Err(found) => found,
                        }
                    }
                }
                State::Committed => {
                    self.finish(action)?;
                    return Ok(Progress::Done(Some(status.stamp)));
                }
                State::Failed => {
                    self.roll_back(action)?;
                    return Ok(Progress::Done(None));
                }
                State::Void => return Ok(Progress::Gone),
            };
        }
    }

    /// A stamp later than every one given out before.
    fn next_stamp(&self) -> u64 {
        self.pool.pm().yield_point();
        self.clock.0.fetch_add(1, AcqRel) + 1
    }

    /// P3: puts the new values in place of the pointers. Not flushed here: until the horizon passes
    /// the operation's stamp, the durable outcome stands for them.
    pub(crate) fn finish(&self, action: &Action<'_>) -> Result<(), PmError> {
        let pm = self.pool.pm();
        for (i, entry) in action.entries.iter().enumerate().filter(|(_, e)| e.target != 0) {
            let word = self.word_at(entry.target)?;
            let full = Pointer::full(action.number, action.seq, i).word();
            let Err(found) = pm.cas(word, full, entry.new) else { continue };
            // A late tentative pointer, long after the new value came and went again: its installer
            // may be delayed, and nobody must wait for it.
            if let Content::Pointer(p) = Content::of(found)
                && p.names(action.number, action.seq, i)
            {
                let _ = pm.cas(word, found, entry.old);
            }
        }
        Ok(())
    }

    /// Puts the old values back in place of the pointers.
    fn roll_back(&self, action: &Action<'_>) -> Result<(), PmError> {
        let pm = self.pool.pm();
        for (i, entry) in action.entries.iter().enumerate().filter(|(_, e)| e.target != 0) {
            let word = self.word_at(entry.target)?;
            loop {
                let found = pm.load(word);
                match Content::of(found) {
                    // Someone may be turning a tentative pointer into a full one: look again.
                    Content::Pointer(p) if p.names(action.number, action.seq, i) => {
                        let _ = pm.cas(word, found, entry.old);
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Flushes one word's line and fences.
    #[track_caller]
    pub(crate) fn persist_word(&self, word: &PmU64) -> Result<(), PmError> {
        let flushed: Flushed = self.pool.pm().flush(word);
        self.pool.pm().fence(flushed)?;
        Ok(())
    }
}
