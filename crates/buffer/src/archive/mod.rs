//! The archive of a buffer's log: what the log had before it was cut, so that a page that rots on the disk can be
//! built again.
//!
//! A checkpoint copies the records that the horizon is about to pass into the archive (`feed.rs`), as a *run*: sorted by page,
//! each page's records put together into one change (`change.rs`). Runs are merged so that each is more than twice
//! as long as the next newer one; hence there are few, and a page is found by a search in each. What an image
//! supersedes is dropped, and a page that was created since the archive began has an image, so the archive's size
//! is bounded: in a file of four times the bytes of the pages in use, a run finds room beside those from which it
//! is merged.
//!
//! ```text
//! step  store                                     durable before
//! A1    the tags of this head and of the next     A3
//!       one, in the buffer's root
//! A2    a run, in chunks that no run has          A3
//! A3    the other head: the runs, and `upto`      the horizon passes the records (P3 of a checkpoint)
//! ```
//!
//! So at any moment every update of a page is in the archive or in the log, and each knows the LSN of the page
//! before it: a page is built from its newest image and all changes after it, or a gap shows.
//!
//! An archive whose tag the root does not have is not used (`tags.rs`).
//!
//! Writing a run, with which others may be merged, takes as long as reading and writing them all. Meanwhile pages are
//! found in the runs that the archive has (`shared.rs`): the new run is in chunks that none of these has.
//!
//! If the archive fails or is full, checkpoints go on without it. The horizon passes records that it lacks, and from
//! then on what it has is not used any more: a page might have changed since. The next opening begins it anew.

mod change;
mod chunks;
mod feed;
pub(crate) mod layout;
mod shared;
pub(crate) mod tags;
#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use pmindex_wal::Disk;

pub(crate) use change::Change;
use chunks::{Chunks, Source};
use layout::{Head, MOST_RUNS, Run, newest};
pub(crate) use shared::{Found, Shared};
use tags::Tags;

use crate::device::{blocks_of, read_words};
use crate::error::BufferError;
use crate::layout::Shape;
use crate::options::Mutant;
use crate::page::Layout;

/// The state of a buffer's archive.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ArchiveState {
    /// There is none.
    Absent,
    /// Every page can be repaired.
    Complete,
    /// It began later than the buffer: only pages that were created since can be repaired. A
    /// [`scrub`](crate::Buffer::scrub) of all pages makes it complete.
    Incomplete,
    /// It takes no records any more, since this happened. When the horizon has moved, no page can be repaired,
    /// until the buffer is opened again, which begins the archive anew.
    Stopped(ArchiveFault),
}

/// Why an archive takes no records.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveFault {
    /// It has no room for another run.
    #[error("the archive is full; use a larger one")]
    Full,
    /// A part of it is damaged.
    #[error("the archive is damaged")]
    Damaged,
    /// The log cannot be read.
    #[error("the log, which it copies, is damaged")]
    Log,
    /// Its disk failed.
    #[error("the disk of the archive failed: {0}")]
    Disk(Arc<io::Error>),
}

impl ArchiveFault {
    fn disk(error: io::Error) -> Self {
        Self::Disk(Arc::new(error))
    }
}

/// An archive.
#[derive(Debug)]
pub(crate) struct Archive {
    chunks: Chunks,
    page_words: u64,
    head: Head,
    stopped: Option<ArchiveFault>,
    /// It has images of the pages before this one, whatever it had when it began.
    imaged: u64,
    mutant: Mutant,
}

/// Makes a source of the changes to append, for each attempt.
pub(crate) type Changes<'c> = dyn Fn() -> Source<'c> + 'c;

/// The buffer to which an archive belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub(crate) identity: u64,
    pub(crate) page_words: u64,
    pub(crate) user_words: usize,
    /// The log has all after this LSN.
    pub(crate) horizon: u64,
    /// The last LSN that earlier openings can have drawn.
    pub(crate) last: u64,
    pub(crate) tags: Tags,
    pub(crate) mutant: Mutant,
}

impl Owner {
    /// Returns a buffer that has no updates yet.
    pub(crate) fn new(shape: &Shape, layout: &Layout, mutant: Mutant) -> Self {
        Self {
            identity: shape.identity,
            page_words: shape.page_words,
            user_words: layout.user_words(),
            horizon: 0,
            last: 0,
            tags: Tags::default(),
            mutant,
        }
    }
}

impl Archive {
    /// Opens an archive, or begins it on an empty disk. Nothing is written yet.
    pub(crate) fn open(disk: Arc<dyn Disk>, owner: Owner) -> Result<Self, BufferError> {
        let wrong = |what| Err(BufferError::WrongArchive { what });
        let (block, page) = (disk.block(), owner.page_words as usize);
        let (identity, user_words) = (owner.identity, owner.user_words);
        let chunks = Chunks { disk, identity, user_words, words: (8 * page).max(block / 8) };
        if chunks.count() == 0 {
            return wrong("it is too short");
        }
        let read = |nth: u64| {
            let words = read_words(&*chunks.disk, nth * block as u64, block / 8);
            let words = words.map_err(BufferError::disk("reading the archive"))?;
            Ok::<_, BufferError>(Head::decode(&words, identity, owner.page_words))
        };
        let began = Head { upto: owner.horizon, complete: owner.horizon == 0, ..Head::default() };
        let (stopped, mutant) = (None, owner.mutant);
        let archive = |chunks, head| {
            Ok(Self { chunks, page_words: owner.page_words, head, stopped, imaged: 1, mutant })
        };
        let head = match newest([read(0)?, read(1)?]) {
            Ok(Some(head)) => head,
            Ok(None) => return archive(chunks, began),
            Err(what) => return wrong(what),
        };
        if head.runs.iter().any(|run| run.first.saturating_add(run.chunks) > chunks.count()) {
            return wrong("it is cut");
        }
        if head.upto > owner.last {
            return wrong("it is of a later state of the pool");
        }
        let is_own = match owner.mutant {
            Mutant::Unchained | Mutant::Untagged => true,
            Mutant::OneTag => owner.tags.next == head.tag,
            _ => owner.tags.know(head.tag),
        };
        // Records are missing: a page may have changed since, and nothing shows it.
        let lacks = head.upto < owner.horizon && owner.mutant != Mutant::Unchained;
        if lacks || (!is_own && head.tag == 0) {
            return archive(chunks, Head { sequence: head.sequence, ..began });
        }
        if !is_own {
            return wrong("it is of another state of the pool, from which this one has not come");
        }
        archive(chunks, head)
    }

    /// Returns the LSN up to which it has the updates.
    pub(crate) fn upto(&self) -> u64 {
        self.head.upto
    }

    pub(crate) fn state(&self) -> ArchiveState {
        match &self.stopped {
            Some(fault) => ArchiveState::Stopped(fault.clone()),
            None if self.head.complete => ArchiveState::Complete,
            None => ArchiveState::Incomplete,
        }
    }

    /// Returns `true` if it takes no records any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Returns its tag and the number of times that its head was written.
    pub(crate) fn tag(&self) -> (u32, u64) {
        (self.head.tag, self.head.sequence)
    }

    /// Takes no records any more.
    pub(crate) fn stop(&mut self, fault: ArchiveFault) {
        self.stopped = Some(fault);
    }

    /// Appends changes of this many words at most, which are sorted by page and LSN, and has all records up to an LSN
    /// then. If that fails, it stops. The buffer's root knows the tag.
    pub(crate) fn append(&mut self, changes: &Changes<'_>, words: usize, upto: u64, tag: u32) {
        self.extend(changes, words, Head { upto, tag, ..self.head.clone() });
    }

    /// Has images of all pages. If this cannot be stored, it stops. The buffer's root knows the tag.
    pub(crate) fn complete(&mut self, tag: u32) {
        self.extend(
            &|| Box::new(std::iter::empty()),
            0,
            Head { complete: true, tag, ..self.head.clone() },
        );
    }

    fn extend(&mut self, changes: &Changes<'_>, words: usize, head: Head) {
        if self.is_stopped() {
            return;
        }
        if let Err(fault) = self.try_append(changes, words, head) {
            self.stop(fault);
        }
    }

    /// Notes that it has images of these pages. Returns `true` if it has those of all pages since then.
    pub(crate) fn note_images(&mut self, pages: Range<u64>, all: u64) -> bool {
        if pages.start <= self.imaged {
            self.imaged = self.imaged.max(pages.end);
        }
        self.imaged >= all && !self.head.complete
    }

    fn try_append(
        &mut self,
        changes: &Changes<'_>,
        words: usize,
        mut head: Head,
    ) -> Result<(), ArchiveFault> {
        head.sequence += 1;
        if words > 0 {
            let (newest, all) = (self.merges(words), head.runs.len());
            // Beside a damaged run, or where a merged one finds no room, the new one stands alone.
            let alone = (all < MOST_RUNS).then_some(all);
            let attempts = [Some(newest), alone, Some(0)];
            let mut done = Err(ArchiveFault::Full);
            for kept in attempts.into_iter().flatten() {
                done = self.write(changes(), words, kept, head.sequence);
                if let Ok(run) = &done {
                    head.runs.truncate(kept);
                    head.runs.extend(*run);
                }
                if !matches!(done, Err(ArchiveFault::Full | ArchiveFault::Damaged)) {
                    break;
                }
            }
            done?;
            if self.mutant != Mutant::RunAfterHead {
                self.chunks.disk.sync().map_err(ArchiveFault::disk)?; // A2, durable before: A3
            }
        }
        let block = self.chunks.disk.block();
        let words = head.encode(self.chunks.identity, self.page_words);
        let blocks = blocks_of(words.into_iter(), block);
        let at = head.sequence % 2 * block as u64;
        // A3. If it fails, the disk has either head.
        self.chunks.disk.write_durably(at, blocks.as_slice()).map_err(ArchiveFault::disk)?;
        self.head = head;
        Ok(())
    }

    /// Returns how many runs stay if these changes are appended; the others are merged with them.
    fn merges(&self, words: usize) -> usize {
        let mut chunks = self.chunks_of(words);
        let mut kept = self.head.runs.len();
        while let Some(run) = self.head.runs[..kept].last()
            && (kept == MOST_RUNS || run.chunks <= 2 * chunks)
        {
            chunks += run.chunks;
            kept -= 1;
        }
        kept
    }

    fn chunks_of(&self, words: usize) -> u64 {
        words.div_ceil(self.chunks.words) as u64
    }

    /// Writes a run of changes, and of those runs that do not stay.
    fn write(
        &self,
        changes: Source<'_>,
        words: usize,
        kept: usize,
        number: u64,
    ) -> Result<Option<Run>, ArchiveFault> {
        let merged = &self.head.runs[kept..];
        let wanted = self.chunks_of(words) + merged.iter().map(|run| run.chunks).sum::<u64>();
        let mut sources: Vec<Source<'_>> = Vec::new();
        sources.extend(merged.iter().map(|run| Box::new(self.chunks.changes(run)) as Source<'_>));
        sources.push(changes);
        // Changes fill a chunk to seven eighths at least.
        self.chunks.write(self.gap(wanted + wanted / 7 + 1, kept == 0), number, sources)
    }

    /// Returns free chunks: so many in a row, or as many as there are. A run of everything is at the beginning, or
    /// behind the one before it; smaller ones are at the end, so that they leave it room.
    fn gap(&self, wanted: u64, at_start: bool) -> Range<u64> {
        let mut used: Vec<_> = self.head.runs.iter().map(|r| r.first..r.first + r.chunks).collect();
        used.push(self.chunks.count()..u64::MAX);
        used.sort_unstable_by_key(|run| run.start);
        let (mut from, mut gaps) = (0, Vec::new());
        for run in used {
            gaps.push(from..run.start.max(from));
            from = run.end;
        }
        let len = |gap: &Range<u64>| gap.end - gap.start;
        let fits = |gap: &&Range<u64>| len(gap) >= wanted;
        if at_start {
            let first = gaps.iter().find(fits);
            return first.or(gaps.iter().max_by_key(|gap| len(gap))).cloned().unwrap_or(0..0);
        }
        match gaps.iter().rfind(fits) {
            Some(gap) => gap.end - wanted..gap.end,
            None => gaps.into_iter().max_by_key(len).unwrap_or(0..0),
        }
    }
}
