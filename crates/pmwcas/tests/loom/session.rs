//! The test's `crate::session`: a thread's part in the protocol, without memory. It does what
//! `src/session.rs` and `src/publish.rs` do for operations that own no blocks.

use pmindex_core::PmError;

use crate::drive::Action;
use crate::entry::Entry;
use crate::layout::{Carried, Heading, Places, Slot};
use crate::mwcas::Mwcas;
use crate::partition::{Decided, Local, Outcome};
use crate::primitive::{Durable, Flushed, Medium};
use crate::status::{State, Status};
use crate::word::SEQ_MASK;

pub(crate) struct Session<'m, M: Medium> {
    pub(crate) mwcas: &'m Mwcas<M>,
    pub(crate) me: usize,
    pub(crate) local: Local,
}

impl<'m, M: Medium> Session<'m, M> {
    /// Creates the session of thread `me`, with this number of descriptors.
    pub(crate) fn new(mwcas: &'m Mwcas<M>, me: usize, descriptors: usize) -> Self {
        let free = mwcas.partitions.slots_of(me).take(descriptors).collect();
        let mut local = Local { free, ..Local::default() };
        local.driver.installer = me as u32;
        Self { mwcas, me, local }
    }

    pub(crate) fn fence(&mut self, flushed: Flushed) -> Result<Durable, PmError> {
        self.mwcas.fence(&mut self.local.driver, flushed)
    }

    /// Executes an operation; returns its stamp if it succeeded.
    pub(crate) fn execute(
        &mut self,
        entries: &[Entry],
        carried: Option<(Places, Carried)>,
    ) -> Result<Option<u64>, PmError> {
        let (mwcas, pm) = (self.mwcas, self.mwcas.pool.pm());
        if !mwcas.is_as_expected(entries)? {
            return Ok(None);
        }
        let number = self.local.free.pop().expect("a descriptor for each operation");
        let slot = mwcas.slot(number)?;
        let seq = (slot.load_heading(pm).seq + 1) & SEQ_MASK;
        let (places, carried) = carried.unzip();
        let count = entries.len();
        let heading = Heading { count, carried: places, ..Heading::empty(seq) };
        slot.write(pm, heading, entries);
        if let Some(carried) = &carried {
            slot.write_carried(pm, carried);
        }
        pm.store(slot.status(), Status::new(State::Undecided, seq, false, 0).pack());
        if !Slot::is_one_line(count) {
            let descriptor = slot.flush(pm, count);
            self.fence(descriptor)?;
        }
        self.local.open.push(number);
        let claimed = mwcas.claims.of(entries);
        let action = Action { slot, number, seq, entries, carried, claimed, own: true };
        let stamp = self.drive_own(&action)?;
        self.local.open.pop();
        if let Some(stamp) = stamp {
            self.note_lines(entries, carried.as_ref(), stamp);
        }
        let outcome = stamp.map_or(Outcome::Failed, Outcome::Committed);
        self.local.decided.push(Decided { slot: number, seq, owns: false, outcome });
        Ok(stamp)
    }

    /// Makes every descriptor usable again whose conditions for reuse hold.
    pub(crate) fn reclaim(&mut self) {
        let mwcas = self.mwcas;
        let horizon = mwcas.durable_horizon();
        let protected = mwcas.partitions.protected(mwcas.pool.pm(), self.me);
        let local = &mut self.local;
        local.decided.retain(|decided| {
            let reusable = decided.is_reusable(horizon, &protected);
            if reusable {
                local.free.push(decided.slot);
            }
            !reusable
        });
    }
}
