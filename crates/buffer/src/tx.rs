//! Transactions: changes that take effect together.
//!
//! A transaction works on private copies. It commits in this order:
//!
//! ```text
//! step  action                                                      durable before
//!       lock the latches of the pages that it changes, by number
//!       verify that what it read is unchanged, or fail
//! P1    a redo record in the log (LIN, DUR: its fence)              P2
//! P2    the pages, in place, not flushed                            the horizon passes the record
//!       release the latches: others see the changes
//! ```
//!
//! So no page has a change that a crash could take back, or a change of a transaction that did not commit,
//! and a page may be written to the disk whenever its latch is free. Several transactions may share the
//! fence: [`Buffer::commit_all`].

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use pmindex_core::Medium;
use pmindex_core::sync::VersionGuard;

use crate::buffer::Buffer;
use crate::error::BufferError;
use crate::frames::Place;
use crate::metrics::{add, count};
use crate::options::Mutant;
use crate::page::{HEADER, LSN};
use crate::record::{REDO, add_part};
use crate::runs::Runs;
use crate::view::{Draft, Page};

/// Changes that take effect together or not at all. Dropping it without a commit discards them.
///
/// Transactions are serializable: the outcome is that of some order of the committed ones. They are also
/// opaque: all that a transaction has read is of one moment, whether it commits or not. A read that does not
/// fit the earlier ones fails with [`BufferError::Conflict`], so code between the reads never sees a state
/// that did not exist.
#[derive(Debug)]
pub struct Tx<'b, M: Medium> {
    buffer: &'b Buffer<M>,
    /// The pages that it has read, and their LSNs.
    reads: BTreeMap<u64, u64>,
    /// The buffer's [`changes`](Buffer::changes) when the reads were all current.
    current_at: u64,
    drafts: BTreeMap<u64, Draft>,
}

/// The turns of a wait for a reader without sleep, and the duration of the sleep in each later turn.
const AWAKE: u32 = 1_000;
const NAP: Duration = Duration::from_micros(50);

/// While this exists, no transaction begins to commit changes: see [`Buffer::pause`].
#[derive(Debug)]
#[must_use = "commits wait while this lives"]
pub struct Paused<'b, M: Medium>(&'b Buffer<M>);

impl<M: Medium> Drop for Paused<'_, M> {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Release);
    }
}

impl<M: Medium> Buffer<M> {
    /// Makes transactions that change something wait before they commit, until the result is dropped. Commits that are
    /// in progress go on: each thread changes pages once more at most. So a reader that others make repeat its reads
    /// again and again comes to an end. The holder commits nothing itself, and is brief.
    pub fn pause(&self) -> Paused<'_, M> {
        self.pauses.fetch_add(1, Relaxed);
        Paused(self)
    }

    /// Waits for readers that need pages to stay as they are. The caller has no latches, so these readers do not wait
    /// for it.
    fn wait_for_readers(&self) {
        let mut turns = 0;
        while self.pauses.load(Acquire) > 0 {
            self.pool.pm().spin();
            turns += 1;
            if turns > AWAKE {
                self.pool.pm().nap(NAP);
            }
        }
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Tx<'_, M> {
        let current_at = self.changes.load(Acquire);
        Tx { buffer: self, reads: BTreeMap::new(), current_at, drafts: BTreeMap::new() }
    }

    /// Commits transactions with one fence for all of them. Returns for each its LSN, or 0 if it changed
    /// nothing; [`BufferError::Conflict`] for one that has read what another one changed, in this group or
    /// outside of it.
    ///
    /// # Errors
    /// Those of [`Tx::commit`] except `Conflict`. Then no transaction of the group is committed, unless the
    /// error is [`DurabilityLost`](pmindex_core::PmError::DurabilityLost), after which the outcome is
    /// unknown.
    ///
    /// # Cost
    /// 1 fence and the lines of the records, if all changed pages have a frame; the lines of the pages are
    /// not flushed.
    #[expect(clippy::needless_pass_by_value, reason = "they are over")]
    pub fn commit_all(
        &self,
        group: Vec<Tx<'_, M>>,
    ) -> Result<Vec<Result<u64, BufferError>>, BufferError> {
        self.pool.check_writable()?;
        if group.iter().any(Tx::is_changed) {
            self.wait_for_readers();
        }
        let mut latched = Latched { buffer: self, pages: BTreeMap::new() };
        let mut changed: Vec<(u64, bool)> = Vec::new();
        for tx in &group {
            let of_tx = tx.drafts.iter().filter(|(_, draft)| draft.is_changed());
            // Read by no transaction of the group: those that read that it is absent need to know if it still is.
            let blind = |page| !group.iter().any(|tx| tx.reads.contains_key(page));
            changed.extend(of_tx.map(|(page, draft)| (*page, draft.fresh && blind(page))));
        }
        changed.sort_unstable();
        changed.dedup_by_key(|(page, _)| *page); // not blind, if one of them needs what it has
        for &(page, blind) in &changed {
            let guard = self.state(page)?.latch.lock(self.pool.pm());
            let held = Held { guard, place: None, lsn: 0, blind, changed: false };
            latched.pages.insert(page, held);
        }
        latched.settle()?;
        let outcome: Vec<bool> =
            group.iter().map(|tx| latched.accept(tx)).collect::<Result<_, _>>()?;
        let accepted = || group.iter().zip(&outcome).filter(|(_, accepted)| **accepted);
        let mut committing = Committing { buffer: self, parts: Vec::new(), lsns: Vec::new() };
        committing.log(accepted().map(|(tx, _)| tx), &latched)?;
        let lsns = committing.apply(&latched)?;
        let mut lsns = lsns.into_iter();
        Ok(group
            .iter()
            .zip(&outcome)
            .map(|(tx, accepted)| match accepted {
                false => Err(BufferError::Conflict),
                true if tx.is_changed() => Ok(lsns.next().unwrap_or(0)),
                true => Ok(0),
            })
            .collect())
    }
}

impl<M: Medium> Tx<'_, M> {
    /// Reads a page, with the changes of this transaction.
    ///
    /// # Errors
    /// [`BufferError::Conflict`]: run it again. Also those of [`Buffer::read`].
    ///
    /// # Cost
    /// That of [`Buffer::read`]; if another transaction committed since the last read, also a look at each page
    /// that this one has read.
    pub fn read<R>(
        &mut self,
        page: u64,
        mut read: impl FnMut(Page<'_, M>) -> R,
    ) -> Result<R, BufferError> {
        if let Some(draft) = self.drafts.get(&page) {
            return Ok(read(draft.view()));
        }
        self.read_shared(page, read).map(|(_, found)| found)
    }

    /// Reads a page as [`read`](Self::read) does, but does not look whether the earlier reads are of the same moment:
    /// [`verify`](Self::verify) does it for all of them, once. Until then what was read may never have been there at
    /// one moment.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cost
    /// That of [`Buffer::read`].
    pub fn read_unverified<R>(
        &mut self,
        page: u64,
        mut read: impl FnMut(Page<'_, M>) -> R,
    ) -> Result<R, BufferError> {
        if let Some(draft) = self.drafts.get(&page) {
            return Ok(read(draft.view()));
        }
        self.note_read(page, read)?.map(|(_, found)| found)
    }

    /// Verifies that all that was read is of one moment: that of the last read.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cost
    /// If another transaction committed since the last look, a look at each page that this one has read.
    pub fn verify(&mut self) -> Result<(), BufferError> {
        // A commit counts itself while it holds the latches of its pages. If the count is as it was when the reads
        // were all current, no page that can be read has changed since. Otherwise each page is looked at; one whose
        // latch a commit holds is waited for.
        let changes = self.buffer.changes.load(Acquire); // before the looks
        if changes != self.current_at {
            for (&page, &lsn) in &self.reads {
                let now = match self.buffer.read_at(page, |_, _| ()) {
                    Ok((now, ())) => now,
                    Err(BufferError::NoPage { .. }) => 0,
                    Err(error) => return Err(error),
                };
                if now != lsn {
                    return Err(BufferError::Conflict);
                }
            }
            self.current_at = changes;
        }
        Ok(())
    }

    /// Reads a page, without the changes of this transaction; returns its LSN too.
    fn read_shared<R>(
        &mut self,
        page: u64,
        read: impl FnMut(Page<'_, M>) -> R,
    ) -> Result<(u64, R), BufferError> {
        let found = self.note_read(page, read)?;
        self.verify()?;
        found
    }

    /// Reads a page and notes its LSN. The inner error is a finding too.
    fn note_read<R>(
        &mut self,
        page: u64,
        mut read: impl FnMut(Page<'_, M>) -> R,
    ) -> Result<Result<(u64, R), BufferError>, BufferError> {
        let found = self.buffer.read_at(page, |_, view| read(view));
        let lsn = match &found {
            Ok((lsn, _)) => *lsn,
            Err(BufferError::NoPage { .. }) => 0,
            Err(error) => return Err(error.clone()),
        };
        if *self.reads.entry(page).or_insert(lsn) != lsn {
            return Err(BufferError::Conflict);
        }
        Ok(found)
    }

    /// Returns a private copy of a page, to be changed.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    ///
    /// # Cost
    /// That of [`read`](Self::read) and a copy of the page, the first time.
    pub fn write(&mut self, page: u64) -> Result<&mut Draft, BufferError> {
        if !self.drafts.contains_key(&page) {
            let mut words = vec![0; self.buffer.page_words()].into_boxed_slice();
            let (lsn, ()) = self.read_shared(page, |view| view.read(0, &mut words))?;
            self.drafts.insert(page, Draft::new(words, lsn, false));
        }
        self.drafts.get_mut(&page).ok_or(BufferError::NoPage { page })
    }

    /// Returns a page of zeros, whatever the page contained.
    ///
    /// # Errors
    /// [`BufferError::NoPage`] if no page can have this number.
    pub fn create(&mut self, page: u64) -> Result<&mut Draft, BufferError> {
        self.buffer.state(page)?;
        let words = vec![0; self.buffer.page_words()].into_boxed_slice();
        self.drafts.insert(page, Draft::new(words, 0, true));
        self.drafts.get_mut(&page).ok_or(BufferError::NoPage { page })
    }

    /// Returns `true` if there is anything to commit.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.drafts.values().any(Draft::is_changed)
    }

    /// Commits. Returns its LSN, or 0 if it changed nothing.
    ///
    /// # Errors
    /// [`BufferError::Conflict`]: run it again. [`PmError::Full`](pmindex_core::PmError::Full) if the log
    /// is full: make a [`checkpoint`](Buffer::checkpoint), and run it again.
    /// [`PmError::TooLarge`](pmindex_core::PmError::TooLarge) if its changes do not fit into one record.
    /// After these, nothing is changed. Also those of [`Buffer::read`].
    ///
    /// # Cost
    /// That of [`Buffer::commit_all`].
    ///
    /// # Durability
    /// Durable on return.
    pub fn commit(self) -> Result<u64, BufferError> {
        let buffer = self.buffer;
        buffer.commit_all(vec![self])?.pop().unwrap_or(Ok(0))
    }
}

/// A page whose latch is held.
struct Held<'b> {
    guard: VersionGuard<'b>,
    place: Option<Place>,
    /// Its LSN; 0 if the page does not exist yet.
    lsn: u64,
    /// `true` if all transactions that change it begin with zeros and did not read it: it need not be read
    /// from the disk.
    blind: bool,
    /// `true` if a transaction of the group changes it.
    changed: bool,
}

/// The pages of a group, with their latches.
struct Latched<'b, M: Medium> {
    buffer: &'b Buffer<M>,
    pages: BTreeMap<u64, Held<'b>>,
}

impl<M: Medium> Latched<'_, M> {
    /// Gives every page a frame, or reserves one for it.
    fn settle(&mut self) -> Result<(), BufferError> {
        let buffer = self.buffer;
        for (&page, held) in &mut self.pages {
            let place = match buffer.state(page)?.place() {
                Some(place) if held.blind => place,
                None if held.blind => Place::frame(buffer.take_frame()?),
                _ => match buffer.settle(page, &held.guard) {
                    Err(BufferError::NoPage { .. }) => Place::frame(buffer.take_frame()?),
                    settled => {
                        let place = settled?;
                        held.lsn = buffer.lsn_at(place);
                        place
                    }
                },
            };
            held.place = Some(place);
        }
        Ok(())
    }

    /// Returns `true` if what a transaction read is unchanged; then marks its pages as changed.
    fn accept(&mut self, tx: &Tx<'_, M>) -> Result<bool, BufferError> {
        for (&page, &lsn) in &tx.reads {
            let same = match self.pages.get(&page) {
                Some(held) => !held.changed && held.lsn == lsn,
                None => self.is_still(page, lsn)?,
            };
            if !same {
                return Ok(false);
            }
        }
        for (&page, draft) in &tx.drafts {
            let same = match self.pages.get(&page) {
                Some(held) if draft.fresh => !held.changed,
                Some(held) => !held.changed && held.lsn == draft.seen,
                None => self.is_still(page, draft.seen)?, // read, and not changed
            };
            if !same {
                return Ok(false);
            }
        }
        for (page, _) in tx.drafts.iter().filter(|(_, draft)| draft.is_changed()) {
            if let Some(held) = self.pages.get_mut(page) {
                held.changed = true;
            }
        }
        Ok(true)
    }

    /// Returns `true` if a page that is not latched here has this LSN, and no thread is changing it.
    fn is_still(&self, page: u64, lsn: u64) -> Result<bool, BufferError> {
        let buffer = self.buffer;
        let Ok(state) = buffer.state(page) else { return Ok(lsn == 0) };
        // Only tries: the thread holds other latches.
        let Some(guard) = state.latch.try_lock(buffer.pool.pm()) else { return Ok(false) };
        match buffer.settle(page, &guard) {
            Ok(place) => Ok(buffer.lsn_at(place) == lsn),
            Err(BufferError::NoPage { .. }) => Ok(lsn == 0),
            Err(error) => Err(error),
        }
    }
}

impl<M: Medium> Drop for Latched<'_, M> {
    fn drop(&mut self) {
        for (&page, held) in &self.pages {
            let used = self.buffer.state(page).is_ok_and(|state| state.place().is_some());
            if let Some(place) = held.place.filter(|_| !used) {
                self.buffer.give_back(place.frame);
            }
        }
    }
}

/// A page of a group: its transaction's LSN, its runs in the record, and its words if it is fresh.
struct Part {
    page: u64,
    lsn: u64,
    runs: Vec<u64>,
    fresh: Option<Box<[u64]>>,
}

/// A group whose LSNs have been drawn.
struct Committing<'b, M: Medium> {
    buffer: &'b Buffer<M>,
    parts: Vec<Part>,
    lsns: Vec<u64>,
}

impl<M: Medium> Committing<'_, M> {
    /// Writes a record for each transaction that changes something.
    fn log<'t>(
        &mut self,
        group: impl Iterator<Item = &'t Tx<'t, M>>,
        latched: &Latched<'_, M>,
    ) -> Result<(), BufferError> {
        let buffer = self.buffer;
        let mut records = Vec::new();
        for tx in group.filter(|tx| tx.is_changed()) {
            let lsn = buffer.pool.pm().lock(&buffer.active).begin()?;
            self.lsns.push(lsn);
            let changed = tx.drafts.iter().filter(|(_, draft)| draft.is_changed());
            let mut record = vec![lsn, changed.clone().count() as u64];
            for (&page, draft) in changed {
                let runs = add_part(page, draft, &mut record);
                let fresh = draft.fresh.then(|| draft.words.clone());
                self.parts.push(Part { page, lsn, runs: record[runs].to_vec(), fresh });
            }
            records.push(record);
        }
        if records.is_empty() {
            return Ok(());
        }
        if matches!(buffer.mutant, Mutant::InPlace | Mutant::ReusedLsn) {
            self.change(latched, buffer.mutant == Mutant::InPlace)?;
        }
        let mut lane = buffer.log.lane();
        let pushed = records.iter().try_for_each(|record| lane.push(REDO, [record]).map(drop)); // P1
        if let Err(error) = pushed {
            // The segments that were made for the records before the one that found no room.
            let number = lane.number();
            drop(lane);
            let _held = buffer.log.lane_at(number); // another thread may be pushing there
            buffer.log.free_abandoned(number)?;
            return Err(error.into());
        }
        lane.commit()?; // DUR, LIN; durable before: P2
        count(&buffer.counters.groups);
        add(&buffer.counters.commits, records.len() as u64);
        Ok(())
    }

    /// Changes the pages, and returns the LSNs.
    fn apply(mut self, latched: &Latched<'_, M>) -> Result<Vec<u64>, BufferError> {
        self.change(latched, false)?; // P2
        let lsns = std::mem::take(&mut self.lsns);
        let mut active = self.buffer.pool.pm().lock(&self.buffer.active);
        for &lsn in &lsns {
            active.end(lsn);
        }
        drop(active);
        Ok(lsns)
    }

    fn change(&self, latched: &Latched<'_, M>, too_early: bool) -> Result<(), BufferError> {
        let buffer = self.buffer;
        let pm = buffer.pool.pm();
        buffer.changes.fetch_add(1, AcqRel); // the latches are held
        for Part { page, lsn, runs, fresh } in &self.parts {
            let held = latched.pages.get(page).and_then(|held| held.place);
            let Some(place) = held else { continue };
            let words = buffer.frames.words(&buffer.pool, place.frame);
            if let Some(fresh) = fresh {
                let mut image = vec![0; buffer.layout.words()];
                image[HEADER..][..fresh.len()].copy_from_slice(fresh);
                buffer.layout.seal(&mut image, *page, *lsn);
                buffer.fill(*page, place.frame, &image, *lsn)?;
            } else if let (Some(copy), Some(hot)) = (place.copy, &buffer.hot) {
                hot.update(copy, *lsn, Runs::new(runs));
                buffer.states[place.frame as usize].note_update(*lsn);
            } else {
                let lsn = if too_early { pm.load(&words[LSN]) } else { *lsn };
                buffer.layout.update(pm, words, *page, lsn, Runs::new(runs));
                buffer.states[place.frame as usize].note_update(lsn);
            }
        }
        Ok(())
    }
}

impl<M: Medium> Drop for Committing<'_, M> {
    fn drop(&mut self) {
        if !self.lsns.is_empty() {
            let mut active = self.buffer.pool.pm().lock(&self.buffer.active);
            for &lsn in &self.lsns {
                active.end(lsn);
            }
        }
    }
}
