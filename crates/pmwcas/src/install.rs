//! Putting an operation's pointers into places, in ascending order: into its claims while it is undecided,
//! into its words once its outcome is durable. (In a volatile pool no descriptor has to become durable first,
//! so the words serve as claims.)
//!
//! A delayed helper could find the expected value in a place that the operation, long over, changed and that
//! others changed back; storing the pointer would undo their changes. Therefore a pointer goes in
//! *tentatively*; its installer then checks that the operation is still in the state in which the pointer
//! belongs there, and only then makes it *full* (promotes it). A tentative pointer in a word always means the
//! old value, whatever the outcome.
//!
//! * A full pointer never appears too late: the thread that promotes has loaded the tentative pointer first
//!   and the state second. If the operation advanced in between, its own last pass over the place removed
//!   this very pointer (it advances only when the pointers are full), and no tentative pointer comes back:
//!   each names its installer, and an installer does not try again.
//! * A late tentative pointer is removed by its installer or by the first thread that meets it. If it was in
//!   a word, the installer makes the removal durable before it leaves the descriptor, so recovery finds no
//!   pointer to a descriptor that was reused.
//! * The owner's very first pointer is full at once: no other thread can have seen the operation.

use core::sync::atomic::Ordering::{AcqRel, Acquire};

use pmindex_core::PmError;

use crate::drive::{Action, Driver};
use crate::mwcas::Mwcas;
use crate::primitive::{AtomicU64, Medium, PmU64};
use crate::status::State;
use crate::word::{Content, Pointer};

/// Where a pointer goes: a word, or a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    Word(&'a PmU64),
    Claim(&'a AtomicU64),
}

impl Place<'_> {
    #[inline(always)]
    pub(crate) fn load<M: Medium>(self, pm: &M) -> u64 {
        match self {
            Self::Word(word) => pm.load(word),
            Self::Claim(cell) => {
                pm.yield_point();
                cell.load(Acquire)
            }
        }
    }

    #[inline(always)]
    pub(crate) fn cas<M: Medium>(self, pm: &M, current: u64, new: u64) -> Result<u64, u64> {
        match self {
            Self::Word(word) => pm.cas(word, current, new),
            Self::Claim(cell) => {
                pm.yield_point();
                cell.compare_exchange(current, new, AcqRel, Acquire)
            }
        }
    }
}

/// The result of an installation.
#[derive(Debug)]
pub(crate) enum Installed<'a> {
    /// Every place holds the operation's full pointer, or held it before the operation advanced.
    Everywhere,
    /// A word has another value than expected.
    Mismatch,
    /// The operation has advanced to another state.
    Over,
    /// Another operation's pointer is in this place.
    Blocked(Place<'a>, Pointer),
}

impl<M: Medium> Mwcas<M> {
    /// Takes the operation's claims.
    #[inline(always)]
    pub(crate) fn claim_all(
        &self,
        action: &Action<'_>,
        driver: &mut Driver,
    ) -> Result<Installed<'_>, PmError> {
        for (i, &number) in action.claimed.numbers().iter().enumerate() {
            let place = Place::Claim(self.claims.cell(number));
            match self.install(action, State::Undecided, (place, i), 0, driver)? {
                Installed::Everywhere => {}
                other => return Ok(other),
            }
        }
        Ok(Installed::Everywhere)
    }

    /// Puts pointers into the operation's words, which must have their old values, while the operation is in
    /// `state`.
    #[inline(always)]
    pub(crate) fn install_all(
        &self,
        action: &Action<'_>,
        state: State,
        driver: &mut Driver,
    ) -> Result<Installed<'_>, PmError> {
        for (i, entry) in action.entries.iter().enumerate() {
            if entry.target == 0 {
                break; // blocks of memory come last
            }
            let word = self.word_at(entry.target)?;
            loop {
                match self.install(action, state, (Place::Word(word), i), entry.old, driver)? {
                    Installed::Everywhere => break,
                    Installed::Blocked(_, late) if state == State::Succeeded => {
                        // After the load: if the claims are still held, the pointer is a late one.
                        if !self.is_in(action, state) {
                            return Ok(Installed::Over);
                        }
                        self.take_out(word, late)?;
                    }
                    other => return Ok(other),
                }
            }
        }
        Ok(Installed::Everywhere)
    }

    /// Removes a late tentative pointer from a word. Its installer is in the descriptor, so that is not
    /// reused meanwhile; once the pointer is gone, it never comes back.
    #[cold]
    fn take_out(&self, word: &PmU64, late: Pointer) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let values = self.slot(late.slot())?.load_values(pm, late.entry());
        let (old, _) = values.ok_or(PmError::Corrupt {
            what: "a pointer to no operation",
            offset: self.table_offset(),
        })?;
        let _ = pm.cas(word, late.word(), old);
        Ok(())
    }

    #[inline(always)]
    fn install<'a>(
        &self,
        action: &Action<'_>,
        state: State,
        (place, entry): (Place<'a>, usize),
        old: u64,
        driver: &mut Driver,
    ) -> Result<Installed<'a>, PmError> {
        let pm = self.pool.pm();
        let (number, seq) = (action.number, action.seq);
        let full = Pointer::full(number, seq, entry).word();
        let tentative = Pointer::tentative(number, seq, entry, driver.installer).word();
        loop {
            let found = place.load(pm);
            match Content::of(found) {
                Content::Pointer(p) if p.names(number, seq, entry) => {
                    if p.is_full() {
                        return Ok(Installed::Everywhere);
                    }
                    if !self.is_in(action, state) {
                        return Ok(Installed::Over);
                    }
                    let _ = place.cas(pm, found, full);
                }
                Content::Pointer(p) => return Ok(Installed::Blocked(place, p)),
                Content::Value(v) if v != old => return Ok(Installed::Mismatch),
                Content::Value(_) if driver.private => {
                    if place.cas(pm, old, full).is_ok() {
                        driver.private = false;
                        return Ok(Installed::Everywhere);
                    }
                }
                Content::Value(_) => {
                    if place.cas(pm, old, tentative).is_err() {
                        continue;
                    }
                    if self.is_in(action, state) {
                        // If the pointer is gone, another thread has promoted it or the operation has
                        // advanced. Trying again could bring the pointer back.
                        return Ok(match place.cas(pm, tentative, full) {
                            Ok(_) => Installed::Everywhere,
                            Err(found) if found == full => Installed::Everywhere,
                            Err(_) => Installed::Over,
                        });
                    }
                    let _ = place.cas(pm, tentative, old);
                    if let Place::Word(word) = place {
                        // durable before: the descriptor can be reused.
                        self.persist_word(word)?;
                    }
                    return Ok(Installed::Over);
                }
            }
        }
    }

    /// Returns `true` if the operation is in this state.
    pub(crate) fn is_in(&self, action: &Action<'_>, state: State) -> bool {
        let status = action.slot.load_status(self.pool.pm());
        status.state == state && status.is_of(action.seq)
    }
}
