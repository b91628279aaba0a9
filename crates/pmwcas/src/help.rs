//! Completing the operation of another thread.
//!
//! A thread announces the descriptor it goes into (a hazard) and then looks whether the pointer that
//! led there still stands: if so, the descriptor is not reused before the announcement ends. Only
//! one descriptor is announced at a time: if the operation is itself blocked by another one, the
//! thread lets go of the first and goes into the other. Operations take their claims in ascending
//! order, so the chain of who blocks whom has an end, and each turn completes an operation.

use pmindex_core::{Medium, PmError};

use crate::drive::{Action, Progress};
use crate::install::Place;
use crate::session::Session;
use crate::word::Pointer;

impl<'m, M: Medium> Session<'m, M> {
    /// Gets rid of the pointer found in `place`: waits a little, then completes what is in the way.
    pub(crate) fn help(
        &mut self,
        mut place: Place<'m>,
        mut pointer: Pointer,
    ) -> Result<(), PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        // An owner that is running is faster than two threads at one descriptor.
        for _ in 0..mwcas.patience {
            if place.load(pm) != pointer.word() {
                return Ok(());
            }
            pm.spin();
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
