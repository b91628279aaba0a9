//! Phase 1: putting the operation's pointers into its words, in ascending order of offset.
//!
//! A helper that was delayed could find the expected value in a word that the operation, long over,
//! changed and others changed back, and would then undo what they did. Therefore a pointer goes in
//! *tentatively*; who put it there then looks whether the outcome is still open, and only then makes
//! it *full*. A tentative pointer means the old value to everyone, whatever the outcome.
//!
//! * Why a full pointer never appears after the outcome: who promotes has loaded the tentative
//!   pointer first and the open outcome second. If the outcome came in between, the operation's own
//!   last pass over the word took this very pointer away (a successful outcome needs the pointer to
//!   be full before), and no tentative pointer comes back: each names its installer, and a thread
//!   that put one there looks at the outcome before it would try again.
//! * A late tentative pointer is taken away by its installer or by whoever meets it first. The
//!   installer makes that durable before it leaves the descriptor: recovery finds no pointer into a
//!   descriptor that was reused.
//! * The owner's very first pointer goes in at once: nobody else can know the operation.

use pmindex_core::{Medium, PmError, PmU64};

use crate::drive::{Action, Driver};
use crate::mwcas::Mwcas;
use crate::status::State;
use crate::word::{Content, Pointer};

/// How far the installation came.
#[derive(Debug)]
pub(crate) enum Installed<'a> {
    /// Every word holds the operation's full pointer (or held it, and the outcome is decided).
    Everywhere,
    /// A word has another value than expected.
    Mismatch,
    /// The outcome is decided.
    Decided,
    /// Another operation's pointer is in this word.
    Blocked(&'a PmU64, Pointer),
}

impl<M: Medium> Mwcas<M> {
    pub(crate) fn install_all(
        &self,
        action: &Action<'_>,
        driver: &mut Driver,
    ) -> Result<Installed<'_>, PmError> {
        for entry in 0..action.entries.len() {
            if action.entries[entry].target == 0 {
                break; // blocks of memory come last
            }
            match self.install(action, entry, driver)? {
                Installed::Everywhere => {}
                other => return Ok(other),
            }
        }
        Ok(Installed::Everywhere)
    }

    fn install(
        &self,
        action: &Action<'_>,
        entry: usize,
        driver: &mut Driver,
    ) -> Result<Installed<'_>, PmError> {
        let pm = self.pool.pm();
        let (number, seq) = (action.number, action.seq);
        let word = self.word_at(action.entries[entry].target)?;
        let old = action.entries[entry].old;
        let full = Pointer::full(number, seq, entry).word();
        let tentative = Pointer::tentative(number, seq, entry, driver.installer).word();
        loop {
            let found = pm.load(word);
            match Content::of(found) {
                Content::Pointer(p) if p.names(number, seq, entry) => {
                    if p.is_full() {
                        return Ok(Installed::Everywhere);
                    }
                    if !self.is_open(action) {
                        return Ok(Installed::Decided);
                    }
                    let _ = pm.cas(word, found, full);
                }
                Content::Pointer(p) => return Ok(Installed::Blocked(word, p)),
                Content::Value(v) if v != old => return Ok(Installed::Mismatch),
                Content::Value(_) if driver.private => {
                    if pm.cas(word, old, full).is_ok() {
                        driver.private = false;
                        return Ok(Installed::Everywhere);
                    }
                }
                Content::Value(_) => {
                    if pm.cas(word, old, tentative).is_err() {
                        continue;
                    }
                    if self.is_open(action) {
                        let _ = pm.cas(word, tentative, full);
                    } else {
                        let _ = pm.cas(word, tentative, old);
                        // durable before: the descriptor can be reused.
                        self.persist_word(word)?;
                        return Ok(Installed::Decided);
                    }
                }
            }
        }
    }

    fn is_open(&self, action: &Action<'_>) -> bool {
        let status = action.slot.load_status(self.pool.pm());
        status.state == State::Undecided && status.is_of(action.seq)
    }
}
