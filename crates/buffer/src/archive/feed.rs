//! What a buffer copies into its archive: the log's records, and images of pages.
//!
//! A log may have more records than fit into DRAM, and a run has them sorted by page. So they are taken piece by
//! piece: a look at the log finds the next ones, in the order of pages and LSNs; their contents stay in the log until
//! they are written. The log keeps them until the checkpoint is over.

use std::cell::Cell;
use std::collections::{BTreeMap, btree_map};
use std::ops::{Range, RangeInclusive};

use pmindex_core::Medium;

use super::chunks::Source;
use super::tags::{Tags, new_tag};
use super::{Archive, ArchiveFault, Change};
use crate::buffer::Buffer;
use crate::error::BufferError;
use crate::layout::checksum;
use crate::options::Mutant;
use crate::record::Update;

/// The number of updates of a piece.
const PIECE: usize = 100_000;

/// The page and the LSN of an update.
type At = (u64, u64);

/// Updates in the order in which a run has them.
#[derive(Debug, Default)]
struct Piece {
    updates: BTreeMap<At, Update>,
    /// There are more after them.
    has_more: bool,
    /// The words of all changes in the log, at most.
    words: usize,
}

/// The changes that the log has, page by page.
struct Records<'b, M: Medium> {
    buffer: &'b Buffer<M>,
    lsns: RangeInclusive<u64>,
    piece: btree_map::IntoIter<At, Update>,
    has_more: bool,
    last: At,
}

impl<M: Medium> Iterator for Records<'_, M> {
    type Item = Result<Change, ArchiveFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((at, update)) = self.piece.next() {
                self.last = at;
                let change = self.buffer.change_of(at.0, &update);
                return Some(change.map_err(|_| ArchiveFault::Log));
            }
            if !std::mem::take(&mut self.has_more) {
                return None;
            }
            match self.buffer.piece(&self.lsns, self.last) {
                Ok(next) => (self.piece, self.has_more) = (next.updates.into_iter(), next.has_more),
                Err(_) => return Some(Err(ArchiveFault::Log)),
            }
        }
    }
}

impl<M: Medium> Buffer<M> {
    /// Copies the records up to this LSN that the archive lacks into it. If that fails, the archive stops. Only
    /// checkpoints copy records, one at a time.
    pub(crate) fn archive_log(&self, upto: u64) -> Result<(), BufferError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let lsns = {
            let archive = &archive.extend(self.pool.pm()).archive;
            if archive.is_stopped() {
                return Ok(());
            }
            archive.upto() + 1..=upto
        };
        let first = self.piece(&lsns, (0, 0));
        let mut extending = archive.extend(self.pool.pm());
        let archive = &mut *extending.archive;
        let Ok(first) = first else {
            archive.stop(ArchiveFault::Log);
            return Ok(());
        };
        let (words, first) = (first.words, Cell::new(Some(first)));
        let records = || {
            // Another attempt begins with another look.
            let first = first.take().unwrap_or(Piece { has_more: true, ..Piece::default() });
            let (piece, has_more) = (first.updates.into_iter(), first.has_more);
            let lsns = lsns.clone();
            Box::new(Records { buffer: self, lsns, piece, has_more, last: (0, 0) }) as Source<'_>
        };
        self.tagged(archive, |archive, tag| archive.append(&records, words, upto, tag))
    }

    /// Returns the next updates with these LSNs, after `last`.
    fn piece(&self, lsns: &RangeInclusive<u64>, last: At) -> Result<Piece, BufferError> {
        let most = if self.is_repeatable { 2 } else { PIECE }; // tests have more pieces than one
        let mut piece = Piece::default();
        self.updates_after(lsns.start() - 1, |page, update| {
            let at = (page, update.lsn);
            if !lsns.contains(&update.lsn) || at <= last {
                return;
            }
            piece.words += Change::words_of(update.words as usize);
            piece.updates.insert(at, update);
            if piece.updates.len() > most {
                piece.updates.pop_last();
                piece.has_more = true;
            }
        })?;
        Ok(piece)
    }

    /// Writes a head of the archive with a new tag, unless it takes no records any more. What the head adds is durable
    /// in the pool.
    fn tagged(
        &self,
        archive: &mut Archive,
        write: impl FnOnce(&mut Archive, u32),
    ) -> Result<(), BufferError> {
        if archive.is_stopped() {
            return Ok(());
        }
        let (present, sequence) = archive.tag();
        let next = if self.is_repeatable {
            let state = [self.shape.identity, self.pool.generation(), sequence, archive.upto()];
            checksum(*b"tags", &state) as u32
        } else {
            new_tag()
        };
        let (pm, root) = (self.pool.pm(), self.pool.get(self.root)?);
        let note = || {
            pm.store(&root.archived, Tags { present, next }.word());
            pm.fence(pm.flush(&root.archived))
        };
        if self.mutant != Mutant::LateTag {
            note()?; // A1, durable before: A3
        }
        write(archive, next);
        if self.mutant == Mutant::LateTag {
            note()?;
        }
        Ok(())
    }

    /// Copies pages to the archive.
    pub(crate) fn archive_images(&self, images: &[Change]) -> Result<(), BufferError> {
        let Some(archive) = self.archive.as_ref().filter(|_| !images.is_empty()) else {
            return Ok(());
        };
        let mut extending = archive.extend(self.pool.pm());
        let archive = &mut *extending.archive;
        let upto = archive.upto();
        let words = images.iter().map(Change::words).sum();
        let source = || Box::new(images.iter().cloned().map(Ok)) as Source<'_>;
        self.tagged(archive, |archive, tag| archive.append(&source, words, upto, tag))
    }

    /// Notes that the archive has images of these pages.
    pub(crate) fn note_images(&self, pages: Range<u64>) -> Result<(), BufferError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let mut extending = archive.extend(self.pool.pm());
        let archive = &mut *extending.archive;
        if archive.note_images(pages, self.shape.pages) {
            self.tagged(archive, Archive::complete)?;
        }
        Ok(())
    }
}
