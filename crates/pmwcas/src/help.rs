//! Helping: completing an operation after the operations of other threads that block it.
//!
//! A thread announces the descriptor it enters (a hazard), and then checks that the pointer that led there is
//! still in place: if so, the descriptor is not reused before the announcement ends. A thread announces one
//! descriptor at a time: if another operation blocks the one it helps, the thread leaves the first descriptor
//! and enters the other. Operations take their claims in ascending order, so a chain of blocked operations
//! ends, and each turn completes one of them.
//!
//! A thread waits before it helps, and after its own operation has failed. When two threads take turns at the
//! same words, each operation costs several times as much as in one thread, since every line that both change
//! moves between the processors. All waits are bounded.

use pmindex_core::PmError;

use crate::drive::{Action, Progress};
use crate::install::Place;
use crate::primitive::Medium;
use crate::session::Session;
use crate::word::Pointer;

/// The largest number of turns between two looks at the operation that blocks.
const LONGEST_PAUSE: u32 = 32;

impl<'m, M: Medium> Session<'m, M> {
    /// Drives the operation to its end and helps the ones that block it. Returns its stamp if it succeeded.
    pub(crate) fn drive_own(&mut self, action: &Action<'_>) -> Result<Option<u64>, PmError> {
        self.local.driver.private = true;
        let outcome = loop {
            match self.mwcas.drive(action, &mut self.local.driver)? {
                Progress::Done(stamp) => break stamp,
                Progress::Blocked(place, pointer) => {
                    let private = core::mem::replace(&mut self.local.driver.private, false);
                    self.help(place, pointer)?;
                    self.local.driver.private = private;
                }
                Progress::Gone => {
                    let offset = self.mwcas.table_offset();
                    return Err(PmError::Corrupt { what: "a descriptor in use", offset });
                }
            }
        };
        self.local.driver.private = false;
        Ok(outcome)
    }

    /// Waits after an operation that failed because others were faster, longer each time up to a bound. The
    /// caller usually tries again; meanwhile the others complete undisturbed, which raises the throughput of
    /// all.
    #[cold]
    pub(crate) fn back_off(&mut self) {
        let patience = self.mwcas.patience;
        self.local.back_off = (2 * self.local.back_off).clamp(patience / 8, 4 * patience);
        self.pause();
    }

    /// Waits as long as recent conflicts suggest, and less the next time: after an operation that found an
    /// unexpected value at its start, which need not be a conflict.
    #[inline]
    pub(crate) fn pause(&mut self) {
        (0..self.local.back_off).for_each(|_| self.mwcas.pool.pm().spin());
        self.calm_down();
    }

    /// Shortens the waits after an operation without a conflict.
    #[inline]
    pub(crate) fn calm_down(&mut self) {
        self.local.back_off -= self.local.back_off.div_ceil(8);
    }

    /// Removes the pointer found in `place`: waits a little, then completes the operation that put it there.
    pub(crate) fn help(
        &mut self,
        mut place: Place<'m>,
        mut pointer: Pointer,
    ) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        // A running owner is faster than two threads at one descriptor, and fastest if no other thread reads
        // the lines that it is about to change.
        let (mut left, mut pause) = (mwcas.patience, 1);
        while left > 0 {
            if place.load(pm) != pointer.word() {
                return Ok(());
            }
            pause = left.min(2 * pause).min(LONGEST_PAUSE);
            (0..pause).for_each(|_| pm.spin());
            left -= pause;
        }
        loop {
            mwcas.partitions.protect(pm, self.me, pointer.slot());
            let progress = if place.load(pm) == pointer.word() {
                self.drive_other(pointer)
            } else {
                Ok(Progress::Gone)
            };
            mwcas.partitions.unprotect(pm, self.me);
            match progress? {
                Progress::Blocked(next, other) => (place, pointer) = (next, other),
                Progress::Done(_) | Progress::Gone => return Ok(()),
            }
        }
    }

    /// Drives the operation that `pointer` leads to; the caller has protected its descriptor.
    fn drive_other(&mut self, pointer: Pointer) -> Result<Progress<'m>, PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        let slot = mwcas.slot(pointer.slot())?;
        let heading = slot.load_heading(pm);
        if heading.seq != pointer.seq() {
            let offset = mwcas.table_offset();
            return Err(PmError::Corrupt { what: "a pointer to no operation", offset });
        }
        let mut view = core::mem::take(&mut self.local.view);
        slot.copy_entries(pm, heading, &mut view);
        let action = Action::of_other(mwcas, slot, pointer.slot(), heading, &view);
        let progress = mwcas.drive(&action, &mut self.local.driver);
        self.local.view = view;
        progress
    }
}
