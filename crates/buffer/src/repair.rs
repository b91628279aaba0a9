//! Repairing pages, and the archive that it may need.
//!
//! A page without a whole frame is read from the disk, and its updates from the log. If the disk's copy is damaged,
//! or is older than what the log continues, the page is built from the archive: its newest image, the changes after
//! it, and the log's updates. Then it goes to a frame, and counts as changed, so the next checkpoint writes it to
//! the disk.
//!
//! A disk's page of zeros may be one that was never created. It is known to exist if it had a frame since the
//! opening, or if the log or the archive has updates of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use pmindex_core::Medium;
use pmindex_wal::Disk;

use crate::archive::tags::Tags;
use crate::archive::{Archive, ArchiveState, Change, Found, Owner, Shared};
use crate::buffer::Buffer;
use crate::error::BufferError;
use crate::frames::Place;
use crate::metrics::count;
use crate::options::Mutant;
use crate::page::HEADER;
use crate::record::Update;

/// A page that was read from the disk, or built.
pub(crate) struct Rebuilt {
    pub(crate) image: Vec<u64>,
    lsn: u64,
    /// The disk's copy is damaged.
    pub(crate) archived: bool,
}

impl Rebuilt {
    /// Returns the LSN of the oldest update that the disk lacks, 0 if none; `oldest` is that of the log.
    pub(crate) fn unwritten(&self, oldest: u64) -> u64 {
        if oldest == 0 && self.archived { self.lsn } else { oldest }
    }
}

impl<M: Medium> Buffer<M> {
    /// Keeps an archive of the log on a disk of its own: from now on, checkpoints copy records there before they cut
    /// the log, and a page that rots on the buffer's disk is built from the archive and the log: at its next use, and
    /// by [`scrub`](Self::scrub). A disk of zeros is a new archive. Its size limits the archive: four times the
    /// bytes of the pages in use are enough.
    ///
    /// An archive that is empty, or was not there at some checkpoint, begins anew: then only pages that are created
    /// later can be repaired, and those that a `scrub` verifies, which copies them into it.
    ///
    /// # Errors
    /// [`BufferError::WrongArchive`] if it is another buffer's, of a state of the pool from which this one has not come
    /// (the pool was put back to an earlier moment, and the archive was not), cut, or damaged: nothing is changed, and
    /// the buffer goes on without. The errors of the disk.
    ///
    /// # Cost
    /// Two reads of the archive's disk.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use pmindex_buffer::{Buffer, BufferOptions};
    /// use pmindex_core::Pool;
    /// use pmindex_wal::{Buffer as Bytes, Disk, FileDisk, SyncMethod};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let file = |name: &str, pages: u64| -> std::io::Result<Arc<dyn Disk>> {
    ///     let path = folder.path().join(name);
    ///     FileDisk::create(&std::fs::File::create(&path)?, pages * 4096)?;
    ///     Ok(Arc::new(FileDisk::open(&path, SyncMethod::Sync)?))
    /// };
    /// let pages = file("pages", 16)?;
    /// let pool = Arc::new(Pool::emulated(4 << 20)?);
    /// let options = BufferOptions::new(1).archive(file("archive", 4 * 16)?);
    /// let buffer = Buffer::create(&pool, "pages", Arc::clone(&pages), &options)?;
    /// for (page, word) in [(1, 30), (2, 12)] {
    ///     let mut tx = buffer.begin();
    ///     tx.create(page)?.set(0, word);
    ///     tx.commit()?;
    /// }
    /// buffer.checkpoint()?; // the log is empty, and the archive has what it had
    ///
    /// pages.write(4096, Bytes::zeros(4096).as_slice())?; // the disk loses page 1, which has no frame
    /// assert_eq!(buffer.read(1, |page| page.word(0))?, 30);
    /// assert_eq!(buffer.metrics().rebuilt, 1);
    /// buffer.checkpoint()?; // the disk has it again
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach_archive(&mut self, disk: Arc<dyn Disk>) -> Result<(), BufferError> {
        let owner = Owner {
            horizon: self.horizon.load(Acquire),
            last: self.active.get_mut().last(),
            tags: Tags::from_word(self.pool.pm().load(&self.pool.get(self.root)?.archived)),
            ..Owner::new(&self.shape, &self.layout, self.mutant)
        };
        self.archive = Some(Shared::new(Archive::open(disk, owner)?));
        Ok(())
    }

    /// Returns the state of the archive.
    #[must_use]
    pub fn archive_state(&self) -> ArchiveState {
        let pm = self.pool.pm();
        self.archive.as_ref().map_or(ArchiveState::Absent, |archive| archive.state(pm))
    }

    pub(crate) fn change_of(&self, page: u64, update: &Update) -> Result<Change, BufferError> {
        let &Update { lsn, before, fresh, .. } = update;
        Ok(Change { page, lsn, before, fresh, runs: self.runs_of(update)? })
    }

    /// Returns a page without a frame, and the LSN of the oldest update that the disk may lack.
    pub(crate) fn restore(&self, page: u64) -> Result<(Rebuilt, u64), BufferError> {
        let updates = self.pending_of(page);
        let rebuilt = self.rebuild(page, &updates)?;
        let oldest = rebuilt.unwritten(updates.first().map_or(0, |update| update.lsn));
        Ok((rebuilt, oldest))
    }

    /// Reads a page from the disk, and applies these updates, which are all that the disk may lack. If the disk's
    /// copy is damaged or cannot be read, builds it from the archive.
    pub(crate) fn rebuild(&self, page: u64, updates: &[Update]) -> Result<Rebuilt, BufferError> {
        let error = match self.rebuild_on_disk(page, updates) {
            Ok(rebuilt) => return Ok(rebuilt),
            Err(error) => error,
        };
        match (&self.archive, error) {
            (Some(archive), error @ (BufferError::NoPage { .. } | BufferError::Damaged { .. })) => {
                self.rebuild_from(archive, page, error)
            }
            // It cannot be read.
            (Some(archive), error @ BufferError::Disk { .. }) => {
                self.rebuild_from(archive, page, error.clone()).or(Err(error))
            }
            (_, error) => Err(error),
        }
    }

    fn rebuild_on_disk(&self, page: u64, updates: &[Update]) -> Result<Rebuilt, BufferError> {
        let fresh = updates.iter().rposition(|update| update.fresh);
        let (image, lsn) = match fresh {
            Some(_) => (vec![0; self.layout.words()], 0),
            None => self.fetch(page, !updates.is_empty())?,
        };
        let changes = updates[fresh.unwrap_or(0)..].iter().map(|u| self.change_of(page, u));
        self.replay(page, Rebuilt { image, lsn, archived: false }, changes)
    }

    /// Makes the changes of a page that come after its LSN, and completes its image.
    fn replay(
        &self,
        page: u64,
        from: Rebuilt,
        changes: impl Iterator<Item = Result<Change, BufferError>>,
    ) -> Result<Rebuilt, BufferError> {
        let Rebuilt { mut image, mut lsn, archived } = from;
        let user = HEADER..HEADER + self.layout.user_words();
        for change in changes {
            let change = change?;
            if change.lsn <= lsn {
                continue;
            }
            // A change in the archive may include one that the image before it has too.
            let is_linked = change.before == lsn || (archived && change.before < lsn);
            if !change.fresh && !is_linked && self.mutant != Mutant::Unchained {
                return Err(BufferError::Damaged { page, what: "an update of it is missing" });
            }
            change.apply(&mut image[user.clone()]);
            lsn = change.lsn;
            count(&self.counters.replayed);
        }
        self.layout.seal(&mut image, page, lsn);
        Ok(Rebuilt { image, lsn, archived })
    }

    /// Reads a page from the disk. `exists`: it is known to have been created.
    fn fetch(&self, page: u64, exists: bool) -> Result<(Vec<u64>, u64), BufferError> {
        let image = self.device.read(page)?;
        count(&self.counters.fetched);
        let exists = exists || self.state(page)?.had_place();
        match self.layout.verify(&image, page) {
            Some(lsn) => Ok((image, lsn)),
            None if !exists && image.iter().all(|&word| word == 0) => {
                Err(BufferError::NoPage { page })
            }
            None => Err(BufferError::Damaged { page, what: "it is not whole on the disk" }),
        }
    }

    /// Builds a page from the archive and the log. `error` tells why: what the disk has is of no use, or the page was
    /// never created, if the archive does not have it.
    fn rebuild_from(
        &self,
        archive: &Shared,
        page: u64,
        error: BufferError,
    ) -> Result<Rebuilt, BufferError> {
        let is_new = matches!(error, BufferError::NoPage { .. }); // and the log has no updates of it
        let damaged = |what| Err(BufferError::Damaged { page, what });
        let _kept = self.log.hold();
        let mut updates = HashMap::new();
        if !is_new {
            self.updates_into(&mut updates, Some(page))?;
        }
        // After the log was read: the archive has all that the log lacks.
        let horizon = self.horizon.load(Acquire);
        let Found { changes: found, upto, is_complete: has_all } =
            archive.find(self.pool.pm(), page);
        let mut changes = match found {
            Ok(changes) if changes.is_empty() && is_new => return Err(error),
            Ok(changes) => changes,
            Err(_) if is_new => return Err(error),
            Err(_) => {
                return damaged("it is not whole on the disk, and the archive of it is damaged");
            }
        };
        let is_current = upto >= horizon || self.mutant == Mutant::Unchained;
        for update in updates.get(&page).map_or(&[][..], Vec::as_slice) {
            changes.push(self.change_of(page, update)?);
        }
        changes.sort_by_key(|change| change.lsn);
        if changes.is_empty() && has_all && is_current {
            return Err(BufferError::NoPage { page });
        }
        let Some(first) = changes.iter().rposition(|change| change.fresh).filter(|_| is_current)
        else {
            return damaged("it is not whole on the disk, and the archive is incomplete");
        };
        let nothing = Rebuilt { image: vec![0; self.layout.words()], lsn: 0, archived: true };
        let rebuilt = self.replay(page, nothing, changes.drain(first..).map(Ok))?;
        count(&self.counters.rebuilt);
        Ok(rebuilt)
    }

    /// Repairs a page with a damaged frame. The caller holds the latch.
    pub(crate) fn mend(&self, page: u64, frame: u32) -> Result<(), BufferError> {
        if let Some(Place { copy: Some(copy), .. }) = self.pages[page as usize].place() {
            count(&self.counters.mended);
            self.rewrite(page, frame, copy);
            return Ok(());
        }
        let dirty = self.states[frame as usize].dirty();
        let _kept = self.log.hold();
        let mut updates = HashMap::new();
        self.updates_into(&mut updates, Some(page))?;
        let rebuilt = self.rebuild(page, updates.get(&page).map_or(&[], Vec::as_slice))?;
        count(&self.counters.mended);
        self.fill(page, frame, &rebuilt.image, rebuilt.unwritten(dirty)).map(|_| ())
    }
}
