//! Driving an operation to its end: the steps that its owner and its helpers have in common.
//!
//! The crate documentation has the state machine; each arm of [`Mwcas::drive`] is one of its steps, and any
//! number of threads may execute it at once.

use core::sync::atomic::Ordering::AcqRel;

use pmindex_core::PmError;

use crate::claims::Claimed;
use crate::entry::Entry;
use crate::install::{Installed, Place};
use crate::layout::{Carried, Heading, Slot};
use crate::mwcas::Mwcas;
use crate::primitive::{Durable, Flushed, Medium, PmU64};
use crate::status::{State, Status};
use crate::word::{Content, Pointer};

/// An operation whose descriptor is not reused while the caller is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action<'a> {
    pub(crate) slot: Slot<'a>,
    pub(crate) number: u32,
    pub(crate) seq: u64,
    pub(crate) entries: &'a [Entry],
    pub(crate) carried: Option<Carried>,
    pub(crate) claimed: Claimed,
    /// `true` if the thread that owns the descriptor drives it.
    pub(crate) own: bool,
}

impl<'a> Action<'a> {
    /// Loads the operation of another thread, or one that its thread has left.
    pub(crate) fn of_other<M: Medium>(
        mwcas: &Mwcas<M>,
        slot: Slot<'a>,
        number: u32,
        heading: Heading,
        entries: &'a [Entry],
    ) -> Self {
        let carried = slot.load_carried(mwcas.pool.pm(), heading, entries);
        let claimed = mwcas.claims.of(entries);
        Self { slot, number, seq: heading.seq, entries, carried, claimed, own: false }
    }
}

/// The thread that drives an operation, and the steps of `settle` that its next fence executes.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    /// The thread's partition.
    pub(crate) installer: u32,
    /// `true` if no other thread can have seen the operation yet.
    pub(crate) private: bool,
    /// S1 is due; these are its lines.
    pub(crate) settling: Option<Settling>,
    pub(crate) lines: Vec<u64>,
    /// S1 is complete for the partition's own operations up to this stamp.
    pub(crate) settled: u64,
    /// `true` if other partitions had settled something after the horizon when last looked at.
    pub(crate) others_go_on: bool,
    /// S2 is due: S1 is complete up to this stamp.
    pub(crate) horizon: Option<u64>,
}

/// What an S1 establishes: the partition has settled its own operations up to one stamp, and all partitions
/// theirs up to another one, which is not later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settling {
    pub(crate) own: u64,
    pub(crate) all: u64,
}

/// How far [`Mwcas::drive`] came.
#[derive(Debug)]
pub(crate) enum Progress<'a> {
    /// The operation is over; its stamp, if it succeeded.
    Done(Option<u64>),
    /// Another operation's pointer is in the way.
    Blocked(Place<'a>, Pointer),
    /// The descriptor is in another incarnation.
    Gone,
}

impl<M: Medium> Mwcas<M> {
    /// Returns the target word of an entry.
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
                    let next = match self.take_hold(action, driver)? {
                        Installed::Everywhere if pm.is_volatile() => status.to(State::Committed, 0),
                        // The operation holds every word: its stamp is later than that of every operation
                        // that changed one of them before.
                        Installed::Everywhere => status.to(State::Succeeded, self.next_stamp()),
                        Installed::Mismatch => status.to(State::Failed, 0),
                        Installed::Over => {
                            word = pm.load(cell);
                            continue;
                        }
                        Installed::Blocked(place, pointer) => {
                            return Ok(Progress::Blocked(place, pointer));
                        }
                    };
                    // P2: the outcome. Fails if another thread decided first, or raised the status's floor
                    // above the stamp: then the loop looks again.
                    match pm.cas(cell, word, next.pack()) {
                        Ok(_) => next.pack(),
                        Err(found) => found,
                    }
                }
                State::Succeeded => {
                    // durable before: any pointer is in a word, on the medium or for readers. The rest of the
                    // status's line becomes durable with it.
                    self.fence(driver, pm.flush(cell))?;
                    if !self.mark(action, driver)? {
                        let found = pm.load(cell);
                        if found == word {
                            let (what, offset) = ("a word in use", self.table_offset());
                            return Err(PmError::Corrupt { what, offset });
                        }
                        word = found;
                        continue;
                    }
                    // LIN of a successful operation (DUR was the fence): from here on reads return the
                    // new values. Release pairs with the Acquire in `read`.
                    let committed = status.to(State::Committed, status.stamp).pack();
                    if action.own {
                        // No other thread stores here until this thread retires the descriptor.
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
                    pm.keep_stores(); // the outcome is durable
                    self.give_back(action);
                    return Ok(Progress::Done(Some(status.stamp)));
                }
                State::Failed => {
                    if pm.is_volatile() {
                        self.roll_back(action)?;
                    }
                    self.give_back(action);
                    return Ok(Progress::Done(None));
                }
                State::Void => return Ok(Progress::Gone),
            };
        }
    }

    /// Takes the operation's claims, so that no other operation changes its words, and compares the words
    /// with their expected values.
    #[inline(always)]
    fn take_hold(
        &self,
        action: &Action<'_>,
        driver: &mut Driver,
    ) -> Result<Installed<'_>, PmError> {
        if self.pool.pm().is_volatile() {
            return self.install_all(action, State::Undecided, driver);
        }
        match self.claim_all(action, driver)? {
            Installed::Everywhere => {}
            other => return Ok(other),
        }
        // Nothing changes here while the claims are held. If they are held no more, the status has changed,
        // and the caller cannot store the result of this comparison.
        Ok(if self.is_as_expected(action.entries)? {
            Installed::Everywhere
        } else {
            Installed::Mismatch
        })
    }

    /// Returns `true` if every word has its expected value now.
    pub(crate) fn is_as_expected(&self, entries: &[Entry]) -> Result<bool, PmError> {
        for entry in entries.iter().take_while(|e| e.target != 0) {
            if self.read(self.word_at(entry.target)?)? != entry.old {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts a durable operation's pointers into its words, and shows the record that it carries. Returns
    /// `false` if the operation has advanced meanwhile.
    #[inline(always)]
    fn mark(&self, action: &Action<'_>, driver: &mut Driver) -> Result<bool, PmError> {
        if !self.show(action)? {
            return Ok(false);
        }
        let installed = self.install_all(action, State::Succeeded, driver)?;
        Ok(matches!(installed, Installed::Everywhere))
    }

    /// Shows the record that the operation carries. The shown word does not get its former value again while
    /// this thread is pinned, so one compare-and-swap is enough. It may come before other words have their
    /// pointers: no reader infers another word's value from this one.
    #[inline(always)]
    fn show(&self, action: &Action<'_>) -> Result<bool, PmError> {
        let Some(carried) = &action.carried else { return Ok(true) };
        let (pm, word) = (self.pool.pm(), self.word_at(carried.shown)?);
        loop {
            let found = pm.load(word);
            if found == carried.new {
                return Ok(true);
            }
            // After the load: if the state is unchanged here, the loaded value is from before the operation's
            // end.
            if !self.is_in(action, State::Succeeded) {
                return Ok(false);
            }
            if pm.cas(word, found, carried.new).is_ok() {
                return Ok(true);
            }
        }
    }

    /// Gives back the claims of an operation that is over.
    fn give_back(&self, action: &Action<'_>) {
        let pm = self.pool.pm();
        for (i, &number) in action.claimed.numbers().iter().enumerate() {
            let place = Place::Claim(self.claims.cell(number));
            let mut found = Pointer::full(action.number, action.seq, i).word();
            // Another thread may be promoting a late tentative pointer to a full one: look again.
            while let Err(now) = place.cas(pm, found, 0)
                && let Content::Pointer(p) = Content::of(now)
                && p.names(action.number, action.seq, i)
            {
                found = now;
            }
        }
    }

    /// Fences after this thread's flushes, and executes the steps of `settle` that are due.
    #[track_caller]
    pub(crate) fn fence(&self, driver: &mut Driver, flushed: Flushed) -> Result<Durable, PmError> {
        let mut all = flushed;
        let horizon = driver.horizon.take();
        if let Some(upto) = horizon {
            all = all.and(self.flush_horizon(upto)?);
        }
        let settling = driver.settling.take();
        if settling.is_some() {
            // Flushed this late because a store of a pointer right after a flush would wait for it. Some
            // lines are clean by now, flushed with a record that shares them; checking for that in each
            // operation would cost more than it saves.
            for &line in &driver.lines {
                all = all.and(self.pool.pm().flush(self.word_at(line)?));
            }
        }
        // If the fence fails, nothing must be taken back: no read shows what is not durable, and some of this
        // thread's stores may belong to another operation, which is durable.
        self.pool.pm().keep_stores();
        let durable = self.pool.pm().fence(all)?;
        if let Some(upto) = horizon {
            self.note_horizon(upto);
        }
        if let Some(Settling { own, all }) = settling {
            driver.settled = own;
            self.partitions.note_settled(self.pool.pm(), driver.installer as usize, own);
            driver.horizon = (all > self.durable_horizon()).then_some(all);
        }
        Ok(durable)
    }

    /// Returns a stamp later than every one given out before.
    fn next_stamp(&self) -> u64 {
        self.pool.pm().yield_point();
        self.clock.0.fetch_add(1, AcqRel) + 1
    }

    /// P3: replaces the pointers by the new values. They are not flushed here: the durable descriptor holds
    /// them until the horizon passes the operation's stamp.
    fn finish(&self, action: &Action<'_>) -> Result<(), PmError> {
        let pm = self.pool.pm();
        for (i, entry) in action.entries.iter().enumerate().take_while(|(_, e)| e.target != 0) {
            let word = self.word_at(entry.target)?;
            let full = Pointer::full(action.number, action.seq, i).word();
            let Err(found) = pm.cas(word, full, entry.new) else { continue };
            // A late tentative pointer, after later operations changed the word. Remove it here: its
            // installer may be delayed, and no thread may have to wait for it.
            if let Content::Pointer(p) = Content::of(found)
                && p.names(action.number, action.seq, i)
            {
                let _ = pm.cas(word, found, entry.old);
            }
        }
        Ok(())
    }

    /// Replaces the pointers by the old values.
    fn roll_back(&self, action: &Action<'_>) -> Result<(), PmError> {
        let pm = self.pool.pm();
        for (i, entry) in action.entries.iter().enumerate().filter(|(_, e)| e.target != 0) {
            let word = self.word_at(entry.target)?;
            loop {
                let found = pm.load(word);
                match Content::of(found) {
                    // Another thread may be promoting a tentative pointer to a full one: look again.
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
