//! The chunks of an archive: writing a run, reading one, and finding a page in one.

use std::collections::VecDeque;
use std::sync::Arc;

use pmindex_wal::Disk;

use super::ArchiveFault;
use super::change::{Change, Fold};
use super::layout::{CHUNK_HEAD, Run, seal, verify};
use crate::device::{blocks_of, read_words};

/// The disk of an archive, chunk by chunk.
#[derive(Clone, Debug)]
pub(super) struct Chunks {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) identity: u64,
    pub(super) user_words: usize,
    /// The words of a chunk.
    pub(super) words: usize,
}

impl Chunks {
    /// Returns the number of chunks.
    pub(super) fn count(&self) -> u64 {
        self.disk.len().saturating_sub(2 * self.disk.block() as u64) / (8 * self.words as u64)
    }

    fn at(&self, chunk: u64) -> u64 {
        2 * self.disk.block() as u64 + 8 * chunk * self.words as u64
    }

    /// Returns the first and the last page of a chunk of a run, and its changes.
    fn read(&self, run: &Run, nth: u64) -> Result<(u64, u64, Vec<Change>), ArchiveFault> {
        let words = read_words(&*self.disk, self.at(run.first + nth), self.words);
        let words = words.map_err(ArchiveFault::disk)?;
        let decode = |words: Vec<u64>| {
            let changes = Change::decode_all(&words[CHUNK_HEAD..], self.user_words)?;
            Some((words[2], words[3], changes))
        };
        verify(words, self.identity, run.number, nth).and_then(decode).ok_or(ArchiveFault::Damaged)
    }

    /// Reads the changes of a run.
    pub(super) fn changes<'c>(
        &'c self,
        run: &'c Run,
    ) -> impl Iterator<Item = Result<Change, ArchiveFault>> + 'c {
        (0..run.chunks).flat_map(|nth| match self.read(run, nth) {
            Ok((_, _, changes)) => changes.into_iter().map(Ok).collect(),
            Err(fault) => VecDeque::from([Err(fault)]),
        })
    }

    /// Appends the changes of a page in a run. Of a damaged chunk it knows by its neighbours whether it had the page.
    pub(super) fn find(
        &self,
        run: &Run,
        page: u64,
        found: &mut Vec<Change>,
    ) -> Result<(), ArchiveFault> {
        let (mut low, mut high) = (0, run.chunks);
        while low < high {
            let middle = low.midpoint(high);
            match self.read(run, middle) {
                Ok((_, last, _)) if last < page => low = middle + 1,
                Ok(_) => high = middle,
                Err(_) => {
                    low = 0; // from the beginning, then
                    break;
                }
            }
        }
        let mut missed = None;
        for nth in low..run.chunks {
            match self.read(run, nth) {
                Err(fault) => missed = Some(fault),
                Ok((first, ..)) if first > page => break,
                Ok((first, last, changes)) => {
                    if first < page {
                        missed = None; // those before it had smaller pages
                    }
                    found.extend(changes.into_iter().filter(|change| change.page == page));
                    if last > page {
                        break;
                    }
                }
            }
        }
        missed.map_or(Ok(()), Err)
    }

    /// Writes a run into free chunks, of changes that come by page and LSN from some sources. Returns `None` if there
    /// are none. It is not durable yet.
    pub(super) fn write(
        &self,
        free: core::ops::Range<u64>,
        number: u64,
        sources: Vec<Source<'_>>,
    ) -> Result<Option<Run>, ArchiveFault> {
        let run = Run { first: free.start, chunks: 0, last_page: 0, number };
        let mut writer =
            Writer { chunks: self, room: free.end - free.start, run, words: Vec::new() };
        let (mut fold, mut sources) = (Fold::new(self.user_words), sources);
        let mut heads: Vec<Option<Change>> =
            sources.iter_mut().map(next_of).collect::<Result<_, _>>()?;
        let key = |head: &Option<Change>| head.as_ref().map(|change| (change.page, change.lsn));
        while let Some((_, nth)) =
            heads.iter().zip(0..).filter_map(|(head, nth)| Some((key(head)?, nth))).min()
        {
            let following = next_of(&mut sources[nth])?;
            let next = std::mem::replace(&mut heads[nth], following);
            if let Some(change) = next.and_then(|next| fold.add(next)) {
                writer.put(&change)?;
            }
        }
        if let Some(change) = fold.finish() {
            writer.put(&change)?;
        }
        writer.flush()?;
        Ok((writer.run.chunks > 0).then_some(writer.run))
    }
}

/// Changes in the order of pages and LSNs.
pub(crate) type Source<'s> = Box<dyn Iterator<Item = Result<Change, ArchiveFault>> + 's>;

fn next_of(source: &mut Source<'_>) -> Result<Option<Change>, ArchiveFault> {
    source.next().transpose()
}

/// A run that is being written.
struct Writer<'c> {
    chunks: &'c Chunks,
    /// The chunks that it may have.
    room: u64,
    run: Run,
    /// The next chunk.
    words: Vec<u64>,
}

impl Writer<'_> {
    fn put(&mut self, change: &Change) -> Result<(), ArchiveFault> {
        if self.words.len() + change.words() > self.chunks.words {
            self.flush()?;
        }
        if self.words.is_empty() {
            self.words.extend([0, 0, change.page, 0]);
        }
        change.encode(&mut self.words);
        self.run.last_page = change.page;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ArchiveFault> {
        let Self { chunks, room, run, words } = self;
        if words.is_empty() {
            return Ok(());
        }
        if run.chunks == *room {
            return Err(ArchiveFault::Full);
        }
        (words[1], words[3]) = (words.len() as u64, run.last_page);
        seal(words, chunks.identity, run.number, run.chunks);
        let blocks = blocks_of(words.drain(..), 8 * chunks.words);
        let at = chunks.at(run.first + run.chunks);
        chunks.disk.write(at, blocks.as_slice()).map_err(ArchiveFault::disk)?;
        run.chunks += 1;
        Ok(())
    }
}
