//! Completing an operation, and before it those of other threads that are in its way.
//!
//! A thread announces the descriptor it goes into (a hazard) and then looks whether the pointer that
//! led there still stands: if so, the descriptor is not reused before the announcement ends. Only
//! one descriptor is announced at a time: if the operation is itself blocked by another one, the
//! thread lets go of the first and goes into the other. Operations take their claims in ascending
//! order, so the chain of who blocks whom has an end, and each turn completes an operation.
//!
//! Threads that meet wait before they help, and after their operation failed: what two threads do in
//! turns on the same words costs a multiple of what one does in a row, since each line that both change
//! goes from one processor to the other. All waits are bounded.

use pmindex_core::PmError;

use crate::drive::{Action, Progress};
use crate::install::Place;
use crate::primitive::Medium;
use crate::session::Session;
use crate::word::Pointer;

/// The most turns between two looks at what is in the way.
const LONGEST_PAUSE: u32 = 32;

impl<'m, M: Medium> Session<'m, M> {
    /// Drives the operation to its end, helping whatever is in the way. Its stamp, if it took place.
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

    /// Waits after an operation that did not take place because others were faster, longer each time up to
    /// a bound. It is mostly tried again; meanwhile they go on undisturbed, and all have more of it.
    #[cold]
    pub(crate) fn back_off(&mut self) {
        let patience = self.mwcas.patience;
        self.local.back_off = (2 * self.local.back_off).clamp(patience / 8, 4 * patience);
        self.pause();
    }

    /// Waits as long as meetings with others suggest, and less the next time: after an operation that found
    /// an odd word at its start, which may be nobody's doing.
    #[inline]
    pub(crate) fn pause(&mut self) {
        (0..self.local.back_off).for_each(|_| self.mwcas.pool.pm().spin());
        self.calm_down();
    }

    /// Nobody was in the way.
    #[inline]
    pub(crate) fn calm_down(&mut self) {
        self.local.back_off -= self.local.back_off.div_ceil(8);
    }

    /// Gets rid of the pointer found in `place`: waits a little, then completes what is in the way.
    pub(crate) fn help(
        &mut self,
        mut place: Place<'m>,
        mut pointer: Pointer,
    ) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        // An owner that is running is faster than two threads at one descriptor, and fastest if nobody
        // looks at what it is about to change.
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

    /// Drives the protected operation that `pointer` leads to.
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
