//! A thread's claim on a partition, and the execution of one operation.
//!
//! | step | store                                                    | durable before |
//! |------|----------------------------------------------------------|----------------|
//! | P0   | (operations that allocate) entries, tickets               | P1             |
//! | P1   | descriptor: entries and status `Undecided`; new blocks    | P2             |
//! | P2   | status `Succeeded` with its stamp                         | any pointer, return (DUR) |
//! |      | pointers into the words: never flushed; LIN `Committed`   |                |
//! | P3   | new values into the words: flushed by S1 of `settle`      | the horizon    |
//!
//! Each step that flushes has one fence. P1 has none if the descriptor is one line and no other data must be
//! durable before P2: P2 is the only fence then. The steps of `settle` share the next fences: S1 the first
//! one, S2 the one after it.

use core::fmt;
use core::mem::take;

use parking_lot::MutexGuard;
use pmindex_core::{
    DurabilityLost, Durable, Flushed, Guard, Medium, Op, PPtr, PmError, PmU64, Reserved,
};

use crate::descriptor::Descriptor;
use crate::drive::Action;
use crate::entry::{Entry, Policy};
use crate::layout::{CARRIED_WORDS, Carried, Places};
use crate::mwcas::Mwcas;
use crate::partition::{Decided, Local, Outcome};
use crate::recycle::RecyclerId;
use crate::settle::SettleScope;
use crate::status::{State, Status};
use crate::word::SEQ_MASK;

/// A thread's claim on a partition of the descriptor pool: what operations are made with.
///
/// While a session lives its thread is pinned: blocks that operations free are not reused. Read pointers and
/// build the operation that depends on them in one session, and end it soon: it delays the reuse of memory
/// and occupies one of the pool's partitions. A read of words whose memory is never freed needs no session.
#[derive(Debug)]
pub struct Session<'m, M: Medium> {
    pub(crate) mwcas: &'m Mwcas<M>,
    pub(crate) me: usize,
    pub(crate) local: MutexGuard<'m, Local>,
    _pin: Guard<'m>,
}

/// The parts of a descriptor that its execution needs.
#[derive(Debug)]
pub(crate) struct Prepared<'m, M: Medium> {
    /// In the order of installation.
    pub(crate) entries: Vec<Entry>,
    pub(crate) op: Option<Op<'m, M>>,
    pub(crate) blocks: Vec<Reserved<PmU64>>,
    /// The words to make durable before the operation: their offset and number.
    pub(crate) filled: Vec<(u64, usize)>,
    /// Blocks that are filled when the operation is executed.
    pub(crate) later: Vec<Later<M>>,
    /// A record to show.
    pub(crate) shown: Option<Shown>,
    pub(crate) recycler: RecyclerId,
}

/// A record, and the word whose new value shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    pub(crate) word: Entry,
    pub(crate) record: u64,
    pub(crate) words: usize,
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
    /// [`PmError::Busy`] if all partitions stay taken for some seconds.
    pub fn session(&self) -> Result<Session<'_, M>, PmError> {
        let (me, local) = self.partitions.claim(self.pool.pm())?;
        Ok(Session::new(self, me, local))
    }

    /// Completes all deferred work: makes new values durable in their words, and frees the blocks that
    /// finished operations gave up. Leaves out the descriptors that other threads are in.
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
    fn new(mwcas: &'m Mwcas<M>, me: usize, mut local: MutexGuard<'m, Local>) -> Self {
        (local.driver.installer, local.driver.private) = (me as u32, false);
        Self { mwcas, me, local, _pin: mwcas.pool.pin() }
    }

    /// Returns the descriptor pool.
    #[must_use]
    pub fn mwcas(&self) -> &'m Mwcas<M> {
        self.mwcas
    }

    /// Starts an operation; [`RecyclerId::DEFAULT`] recycles its old values.
    pub fn descriptor(&mut self) -> Descriptor<'_, 'm, M> {
        self.descriptor_with(RecyclerId::DEFAULT)
    }

    /// Starts an operation; `recycler` recycles its old values.
    pub fn descriptor_with(&mut self, recycler: RecyclerId) -> Descriptor<'_, 'm, M> {
        let mut entries = take(&mut self.local.entries);
        entries.clear();
        Descriptor::new(self, entries, recycler)
    }

    #[track_caller]
    pub(crate) fn fence(&mut self, flushed: Flushed) -> Result<Durable, PmError> {
        self.mwcas.fence(&mut self.local.driver, flushed)
    }

    /// Executes the operation. Returns whether it succeeded.
    pub(crate) fn execute(&mut self, prepared: &mut Prepared<'m, M>) -> Result<bool, PmError> {
        let mwcas = self.mwcas;
        let carried = self.carry(prepared)?;
        if !mwcas.is_as_expected(&prepared.entries)? {
            self.local.entries = take(&mut prepared.entries);
            self.pause();
            return Ok(false); // LIN of an operation that fails here: the read of the odd word
        }
        let number = self.take_slot()?;
        if let Some(look) = self.settling_due() {
            self.begin_settling(look)?;
        }
        let horizon = mwcas.durable_horizon();
        let slot = mwcas.slot(number)?;
        let seq = (slot.load_heading(mwcas.pool.pm()).seq + 1) & SEQ_MASK;
        let owns = prepared.entries.iter().any(|e| e.policy != Policy::None);

        if let Err(error) =
            self.publish(slot, seq, owns, prepared, carried.as_ref().map(|(p, c)| (*p, c)))
        {
            self.local.free.push(number); // no pointer leads to it
            return Err(error);
        }
        // Open until the operation is over, even if an error or a panic ends this thread's part.
        self.local.open.push(number);
        let (entries, claimed) = (&prepared.entries[..], mwcas.claims.of(&prepared.entries));
        debug_assert!(
            mwcas.pool.pm().is_volatile()
                || entries[0].target == 0
                || !claimed.numbers().is_empty(),
            "covered words without the word that covers them"
        );
        let carried = carried.map(|(_, carried)| carried);
        let action = Action { slot, number, seq, entries, carried, claimed, own: true };
        let stamp = match self.drive_own(&action) {
            Err(PmError::DurabilityLost(lost)) => {
                self.refuse(&action, lost)?;
                self.drive_own(&action)?
            }
            driven => driven?,
        };
        self.local.open.pop();
        if let Some(stamp) = stamp {
            self.note_lines(&prepared.entries, carried.as_ref(), stamp);
            self.calm_down();
        } else {
            self.back_off();
        }
        let outcome = stamp.map_or(Outcome::Failed, Outcome::Committed);
        self.local.decided.push(Decided { slot: number, seq, owns, outcome });
        self.local.entries = take(&mut prepared.entries);
        if mwcas.durable_horizon() != horizon || self.local.free.len() * 2 < self.per_partition() {
            // The operation is over. What cannot be given back now waits in `decided`: the next operation
            // that needs a descriptor meets the error again, before it begins.
            let _ = self.reclaim();
        }
        Ok(stamp.is_some())
    }

    /// Ends an operation whose fence failed, unless another thread has made it durable and committed it.
    /// Changes memory alone, since the pool has lost its disk.
    #[cold]
    fn refuse(&self, action: &Action<'_>, lost: DurabilityLost) -> Result<(), PmError> {
        let (pm, cell) = (self.mwcas.pool.pm(), action.slot.status());
        loop {
            let word = pm.load(cell);
            let status = Status::unpack(word);
            match status.state {
                State::Committed if status.is_of(action.seq) => return Ok(()),
                State::Undecided | State::Succeeded if status.is_of(action.seq) => {
                    if pm.cas(cell, word, status.to(State::Failed, 0).pack()).is_ok() {
                        return Err(lost.into());
                    }
                }
                _ => return Err(lost.into()),
            }
        }
    }

    /// Returns the record that the operation carries in its one line. A record that does not fit there is
    /// flushed before the operation, and the word that shows it becomes a word like others.
    fn carry(&self, prepared: &mut Prepared<'m, M>) -> Result<Option<(Places, Carried)>, PmError> {
        let Some(Shown { word, record, words }) = prepared.shown.take() else { return Ok(None) };
        let pool = self.mwcas.pool();
        if let [first] = prepared.entries[..]
            && prepared.filled.is_empty()
            && !pool.pm().is_volatile()
            && let Some(places) = Places::of(first.target, word.target, record, words)
        {
            let mut copy = [0; CARRIED_WORDS];
            pool.pm().read_words(pool.words(record, words)?, &mut copy[..words]);
            let (shown, new) = (word.target, word.new);
            return Ok(Some((places, Carried { shown, new, record, words: copy, len: words })));
        }
        let at = prepared.entries.partition_point(|e| e.order() < word.order());
        prepared.entries.insert(at, word);
        prepared.filled.push((record, words));
        Ok(None)
    }

    fn per_partition(&self) -> usize {
        self.mwcas.config().per_partition as usize
    }

    /// Returns whose operations are to be settled, if enough of this partition's wait for it: its own alone
    /// while the others settle theirs. Fewer are enough then, since every partition waits for all others.
    fn settling_due(&self) -> Option<SettleScope> {
        let Local { decided, driver, .. } = &*self.local;
        let (all, share) = (self.per_partition(), if driver.others_go_on { 4 } else { 2 });
        if decided.len() * share < all || driver.settling.is_some() {
            return None;
        }
        let settled = driver.settled.max(self.mwcas.durable_horizon());
        let waits = |decided: &&Decided| match decided.outcome {
            Outcome::Committed(stamp) => stamp > settled,
            Outcome::Failed => false,
        };
        if decided.iter().filter(waits).count() * share < all {
            return None;
        }
        let is_short = decided.len() * 4 >= all * 3;
        Some(if driver.others_go_on && !is_short {
            SettleScope::OwnPartition
        } else {
            SettleScope::IdlePartitions
        })
    }

    /// Returns a descriptor that can be used.
    fn take_slot(&mut self) -> Result<u32, PmError> {
        loop {
            self.free_a_slot()?;
            if let Some(slot) = self.local.free.pop() {
                return Ok(slot);
            }
        }
    }

    /// Ensures that a descriptor can be used. The allocator's operation that frees the blocks of old
    /// descriptors takes one of the pool's few slots. A thread that starts an operation of its own must call
    /// this before: if it already held a slot and waited for a second, as other threads may, it would wait
    /// for ever.
    pub(crate) fn free_a_slot(&mut self) -> Result<(), PmError> {
        while self.local.free.is_empty() {
            self.move_horizon()?;
            self.reclaim()?;
            if self.local.free.is_empty() {
                // Other threads are in every descriptor.
                self.mwcas.pool.pm().spin();
            }
        }
        Ok(())
    }
}

/// Converts a block's offset to an untyped pointer.
pub(crate) const fn block_at(offset: u64) -> PPtr<u64> {
    PPtr::new(offset)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmindex_core::trace::Space;
    use pmindex_core::{Flushed, Medium, PPtr, PmPtr, PmU64, Pool, PoolOptions};

    use crate::settle::SettleScope;
    use crate::{Config, Mwcas, Policy};

    /// Creates a descriptor pool with partitions for two threads, and a word that is 0.
    fn for_two<M: Medium>(pool: &Arc<Pool<M>>) -> (Mwcas<M>, &PmU64) {
        let word = pool
            .create_index::<PmU64>("word", *b"word    ", 0, |word| {
                pool.pm().store(word, 0);
                pool.pm().flush(word)
            })
            .expect("room");
        let config = Config { partitions: 2, per_partition: 8, words: 4 };
        let mwcas = Mwcas::create(pool, "mwcas", config).expect("room");
        (mwcas, pool.get(word.root::<PmU64>()).expect("there"))
    }

    #[test]
    fn lines_that_another_thread_flushes_are_forgotten() {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let (mwcas, word) = for_two(&pool);
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

    /// An operation that has the pool's only slot needs a descriptor, and all descriptors own blocks that
    /// must be freed, which takes a slot.
    #[test]
    fn one_slot_is_enough_for_an_operation_whose_partition_is_used_up() {
        let options = PoolOptions::new().size(4 << 20).slots(1).grow(false).emulate_pm(true);
        let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped).expect("memory"));
        let links =
            pool.create_index::<[PmPtr<[PmU64; 4]>; 2]>("links", *b"links   ", 0, |links| {
                for link in links {
                    pool.pm().store(link, PPtr::NULL);
                }
                pool.pm().flush(links)
            });
        let links = links.expect("room").root::<[PmPtr<[PmU64; 4]>; 2]>();
        let [link, _] = pool.get(links).expect("there");
        let config = Config { partitions: 1, per_partition: 4, words: 4 };
        let mwcas = Mwcas::create(&pool, "mwcas", config).expect("room");
        let mut session = mwcas.session().expect("free");
        for round in 0..20 {
            let old = mwcas.read(link).expect("intact");
            let mut op = session.descriptor();
            op.reserve_entry(link, old, Policy::FreeOne).expect("room");
            let made = op.allocate(link, |_| ());
            made.unwrap_or_else(|error| panic!("round {round}: {error}"));
            let done = op.execute();
            assert!(done.unwrap_or_else(|error| panic!("round {round}: {error}")));
            // As when the horizon waits for a thread that is delayed.
            session.local.free.clear();
        }
    }

    /// S1 before SET, S2 before the horizon: a step whose fence did not run counts for nothing.
    #[test]
    fn what_was_not_fenced_is_not_settled() {
        for fences in 0..3 {
            let space = Space::new(8 << 20, 8 << 20);
            let options = PoolOptions::new().size(4 << 20);
            let pool = Arc::new(Pool::create_traced(&space, &options).expect("memory"));
            let (mwcas, word) = for_two(&pool);
            let mut one = mwcas.session().expect("free");
            let mut op = one.descriptor();
            op.add_word(word, 0, 1).expect("room");
            assert!(op.execute().expect("it can be fenced"));
            let said = |me| (mwcas.partitions.settled(pool.pm(), me), mwcas.durable_horizon());
            let (me, before) = (one.me, said(one.me));
            assert!(before.0 == 0 && one.local.driver.settled == 0, "nothing is settled yet");
            one.begin_settling(SettleScope::OwnPartition).expect("nothing is corrupt");
            space.fail_fences_after(Some(fences));
            let done = [(); 2].map(|()| one.fence(Flushed::nothing()).is_ok());
            assert_eq!(done, [fences > 0, fences > 1], "S1, S2");
            let (settled, horizon) = said(me);
            assert_eq!((settled > 0, one.local.driver.settled), (fences > 0, settled));
            assert_eq!(horizon > before.1, fences > 1);
        }
    }
}
