//! A thread's claim on a partition, and the execution of one operation.
//!
//! | step | store                                                    | durable before |
//! |------|----------------------------------------------------------|----------------|
//! | P0   | (operations that allocate) entries, tickets               | P1             |
//! | P1   | descriptor: entries and status `Undecided`; new blocks    | any pointer    |
//! |      | pointers into the words: never flushed                    |                |
//! | P2   | status `Succeeded` with its stamp; then LIN `Committed`   | any new value, return (DUR) |
//! | P3   | new values into the words: flushed by S1 of `settle`      | the horizon    |
//!
//! Each step that flushes has one fence; P1 and P2 are the two fences of an operation. The steps of
//! `settle` ride on them: S1 is flushed before P1's fence, S2 before P2's.

use core::fmt;
use core::mem::take;

use parking_lot::MutexGuard;
use pmindex_core::{
    DurabilityLost, Durable, Flushed, Guard, Medium, Op, PPtr, PmError, PmU64, Reserved,
};

use crate::descriptor::Descriptor;
use crate::drive::{Action, Driver, Progress};
use crate::entry::{Entry, Policy};
use crate::mwcas::Mwcas;
use crate::partition::{Decided, Local, Outcome};
use crate::recycle::RecyclerId;
use crate::word::SEQ_MASK;

/// A thread's claim on a partition of the descriptor pool: what operations are made with.
///
/// While a session lives its thread is pinned: memory that operations free is not reused. Read
/// pointers and build the operation that depends on them in one session, and end it soon: it holds
/// back the reuse of memory, and there are only so many partitions. Reading words of memory that
/// stays needs no session.
#[derive(Debug)]
pub struct Session<'m, M: Medium> {
    pub(crate) mwcas: &'m Mwcas<M>,
    pub(crate) me: usize,
    pub(crate) local: MutexGuard<'m, Local>,
    pub(crate) driver: Driver,
    _pin: Guard<'m>,
}

/// What a descriptor brings to be executed.
#[derive(Debug)]
pub(crate) struct Prepared<'m, M: Medium> {
    /// In the order of installation.
    pub(crate) entries: Vec<Entry>,
    pub(crate) op: Option<Op<'m, M>>,
    pub(crate) blocks: Vec<Reserved<PmU64>>,
    /// What is to be durable before the operation: where, and how many words.
    pub(crate) filled: Vec<(u64, usize)>,
    /// Blocks that are yet to be filled.
    pub(crate) later: Vec<Later<M>>,
    pub(crate) recycler: RecyclerId,
}

/// Fills and flushes a block.
pub(crate) type Fill<M> = dyn FnOnce(&M, &[PmU64]) -> Flushed;

/// A block that is filled when the operation is executed.
pub(crate) struct Later<M> {
    pub(crate) offset: u64,
    pub(crate) words: usize,
    pub(crate) fill: Box<Fill<M>>,
}

impl<M> fmt::Debug for Later<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl<M: Medium> Mwcas<M> {
    /// Claims a partition.
    ///
    /// # Errors
    /// [`PmError::Busy`] if all stay taken for long.
    pub fn session(&self) -> Result<Session<'_, M>, PmError> {
        let (me, local) = self.partitions.claim(self.pool.pm())?;
        Ok(Session::new(self, me, local))
    }

    /// Completes everything that is put off: new values become durable in their words, and the
    /// blocks that finished operations gave up are freed. Leaves out what other threads are in.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn quiesce(&self) -> Result<(), PmError> {
        for me in 0..self.partitions.len() {
            self.pool.pm().yield_point();
            if let Some(local) = self.partitions.try_claim(me)
                && !local.decided.is_empty()
            {
                let mut session = Session::new(self, me, local);
                session.move_horizon()?;
                session.reclaim()?;
            }
        }
        Ok(())
    }
}

impl<'m, M: Medium> Session<'m, M> {
    fn new(mwcas: &'m Mwcas<M>, me: usize, local: MutexGuard<'m, Local>) -> Self {
        let driver = Driver { installer: me as u32, private: false, horizon: None };
        Self { mwcas, me, local, driver, _pin: mwcas.pool.pin() }
    }

    /// The descriptor pool.
    #[must_use]
    pub fn mwcas(&self) -> &'m Mwcas<M> {
        self.mwcas
    }

    /// A descriptor for one operation; old values are recycled by [`RecyclerId::DEFAULT`].
    pub fn descriptor(&mut self) -> Descriptor<'_, 'm, M> {
        self.descriptor_with(RecyclerId::DEFAULT)
    }

    /// A descriptor for one operation; old values are recycled by `recycler`.
    pub fn descriptor_with(&mut self, recycler: RecyclerId) -> Descriptor<'_, 'm, M> {
        let mut entries = take(&mut self.local.entries);
        entries.clear();
        Descriptor::new(self, entries, recycler)
    }

    #[track_caller]
    pub(crate) fn fence(&self, flushed: Flushed) -> Result<Durable, DurabilityLost> {
        self.mwcas.pool.pm().fence(flushed)
    }

    /// Executes the operation: whether it took place.
    pub(crate) fn execute(&mut self, prepared: &mut Prepared<'m, M>) -> Result<bool, PmError> {
        if !self.is_plausible(&prepared.entries)? {
            self.local.entries = take(&mut prepared.entries);
            return Ok(false); // LIN of an operation that fails here: the read of the odd word
        }
        let number = self.take_slot()?;
        let horizon = if self.is_settling_due() { Some(self.flush_settled()?) } else { None };
        let (horizon, settled) = horizon.map_or((None, Flushed::nothing()), |(h, f)| (Some(h), f));
        let slot = self.mwcas.slot(number)?;
        let seq = (slot.load_heading(self.mwcas.pool.pm()).seq + 1) & SEQ_MASK;
        let owns = prepared.entries.iter().any(|e| e.policy != Policy::None);

        if let Err(error) = self.publish(slot, seq, owns, prepared, settled) {
            self.local.free.push(number); // no pointer leads to it
            return Err(error);
        }
        self.local.open.push(number); // until it is decided, whatever becomes of this thread
        if let Some(upto) = horizon {
            self.note_failed_durable();
            self.driver.horizon = Some(upto);
        }
        let stamp =
            self.drive_own(&Action { slot, number, seq, entries: &prepared.entries, own: true })?;
        if let Some(upto) = horizon
            && self.driver.horizon.take().is_none()
        {
            self.note_horizon(upto); // else no outcome had a fence: another operation's will do
        }
        let outcome = stamp.map_or(
            Outcome::Failed { words_durable: self.mwcas.pool.pm().is_volatile() },
            Outcome::Committed,
        );
        self.local.open.pop();
        self.local.decided.push(Decided { slot: number, seq, owns, outcome });
        self.note_lines(&prepared.entries, stamp);
        self.local.entries = take(&mut prepared.entries);
        if horizon.is_some() || self.local.free.len() * 2 < self.per_partition() {
            self.reclaim()?;
        }
        Ok(stamp.is_some())
    }

    /// Whether every word has its expected value now: an operation that cannot take place costs no
    /// flush.
    fn is_plausible(&self, entries: &[Entry]) -> Result<bool, PmError> {
        for entry in entries.iter().filter(|e| e.target != 0) {
            if self.mwcas.read(self.mwcas.word_at(entry.target)?)? != entry.old {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drives the operation to its end, helping whatever is in the way. Its stamp, if it took place.
    fn drive_own(&mut self, action: &Action<'_>) -> Result<Option<u64>, PmError> {
        self.driver.private = true;
        let outcome = loop {
            match self.mwcas.drive(action, &mut self.driver)? {
                Progress::Done(stamp) => break stamp,
                Progress::Blocked(word, pointer) => {
                    let private = core::mem::replace(&mut self.driver.private, false);
                    self.help(word, pointer)?;
                    self.driver.private = private;
                }
                Progress::Gone => {
                    let offset = self.mwcas.table_offset();
                    return Err(PmError::Corrupt { what: "a descriptor in use", offset });
                }
            }
        };
        self.driver.private = false;
        Ok(outcome)
    }

    fn per_partition(&self) -> usize {
        self.mwcas.config().per_partition as usize
    }

    /// Whether enough of this partition's operations wait for the horizon.
    fn is_settling_due(&self) -> bool {
        if self.local.decided.len() * 2 < self.per_partition() {
            return false;
        }
        let horizon = self.mwcas.durable_horizon();
        let waiting = |decided: &&Decided| match decided.outcome {
            Outcome::Committed(stamp) => stamp > horizon,
            Outcome::Failed { words_durable } => !words_durable,
        };
        self.local.decided.iter().filter(waiting).count() * 2 >= self.per_partition()
    }

    /// A descriptor that may be used.
    fn take_slot(&mut self) -> Result<u32, PmError> {
        loop {
            if let Some(slot) = self.local.free.pop() {
                return Ok(slot);
            }
            self.move_horizon()?;
            self.reclaim()?;
            if self.local.free.is_empty() {
                // Every descriptor has another thread in it.
                self.mwcas.pool.pm().spin();
            }
        }
    }
}

/// A block's offset as a pointer to anything.
pub(crate) const fn block_at(offset: u64) -> PPtr<u64> {
    PPtr::new(offset)
}
