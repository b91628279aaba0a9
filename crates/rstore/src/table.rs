//! The table of places, which has the offset of each block.
//!
//! ```text
//! a directory, a page
//! step  store                                             durable before
//! P1    zeros; the ticket                                 P2
//! P2    the pointer to it (LIN)                           return (DUR), any place in it
//!
//! a data block, a large value
//! P1    the header: generation, checksum, length 0; the   P2
//!       bytes of a large value; the tickets
//! P2    the word of the place = its offset (LIN)          return (DUR), any record in it
//!
//! one that is given back
//! P1    the tickets                                       P2
//! P2    the word of the place = 0 (LIN)                   reuse of the memory
//! ```

use std::sync::Arc;

use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmU64, Pool, Reserved};

use crate::layout::Root;

/// The maximum number of bytes of the directory and of a page.
const DIRECTORY_BYTES: u64 = 32 << 10;
const PAGE_BYTES: u64 = 32 << 10;

/// Returns the division of the table of a new partition: places of a page, and pages.
pub(crate) fn division(most: u64, largest: u64) -> (u64, u64) {
    let least = most.clamp(64, 1 << 32);
    let page = (least.isqrt().next_power_of_two() * 8).clamp(64, PAGE_BYTES.min(largest)) / 8;
    let pages = least.div_ceil(page).min(DIRECTORY_BYTES.min(largest) / 8);
    (page, pages.next_multiple_of(8).min(DIRECTORY_BYTES.min(largest) / 8))
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table<M: Medium> {
    pool: Arc<Pool<M>>,
    directory: u64,
    page_places: u32,
    most_pages: u32,
    /// The offsets of the existing pages.
    pages: Vec<u64>,
}

impl<M: Medium> Table<M> {
    /// Creates a directory for a root that has none.
    pub(crate) fn make_directory(pool: &Arc<Pool<M>>, root: &Root) -> Result<(), PmError> {
        let pages = pool.pm().load(&root.pages) as usize;
        make_zeroed(pool, root.directory.as_word(), pages).map(drop)
    }

    /// Reads the directory of a root.
    pub(crate) fn open(pool: &Arc<Pool<M>>, root: &Root) -> Result<Self, PmError> {
        let pm = pool.pm();
        let directory = pm.load(root.directory.as_word());
        let (page_places, most_pages) = (pm.load(&root.page_places), pm.load(&root.pages));
        let mut pages = Vec::new();
        for cell in pool.words(directory, most_pages as usize)? {
            let page = pm.load(cell);
            if page == 0 {
                break;
            }
            pool.words(page, page_places as usize)?;
            pages.push(page);
        }
        let (page_places, most_pages) = (page_places as u32, most_pages as u32);
        Ok(Self { pool: Arc::clone(pool), directory, page_places, most_pages, pages })
    }

    /// Returns the number of places.
    pub(crate) fn places(&self) -> u32 {
        self.pages.len() as u32 * self.page_places
    }

    /// Returns the number of places of the pages that may still be created.
    pub(crate) fn more_places(&self) -> u64 {
        (u64::from(self.most_pages) - self.pages.len() as u64) * u64::from(self.page_places)
    }

    /// Returns the word of a place.
    pub(crate) fn word(&self, place: u32) -> Result<&PmU64, PmError> {
        let page = self.pages.get((place / self.page_places) as usize);
        let words = self.pool.words(page.copied().unwrap_or(0), self.page_places as usize)?;
        Ok(&words[(place % self.page_places) as usize])
    }

    /// Creates another page.
    pub(crate) fn grow(&mut self) -> Result<(), PmError> {
        let next = self.pages.len();
        if next >= self.most_pages as usize {
            return Err(PmError::Full { wanted: 8, capacity: self.pool.len() });
        }
        let cell = &self.pool.words(self.directory, self.most_pages as usize)?[next];
        let page = make_zeroed(&self.pool, cell, self.page_places as usize)?;
        self.pages.push(page);
        Ok(())
    }

    /// Allocates blocks of these sizes and puts them into a place, whose word has the offset of the first.
    /// `fill` writes them.
    #[track_caller]
    pub(crate) fn make(
        &self,
        place: u32,
        bytes: &[u64],
        fill: impl FnOnce(&[Reserved<PmU64>]) -> Result<Flushed, PmError>,
    ) -> Result<u64, PmError> {
        let (pm, cell) = (self.pool.pm(), self.word(place)?);
        let mut op = self.pool.op()?;
        let mut blocks = Vec::with_capacity(bytes.len());
        for &bytes in bytes {
            blocks.push(op.reserve_bytes(bytes, LINE as u64)?);
        }
        let filled = fill(&blocks)?;
        let first = blocks.first().map_or(0, |block| block.ptr().offset());
        for block in &blocks {
            op.allocate(block, Owner { word: cell, mask: u64::MAX, expect: first })?;
        }
        op.prepare(filled)?; // P1, durable before: P2
        pm.store(cell, first); // P2, LIN
        let flushed = op.seal().and(pm.flush(cell));
        let durable = pm.fence(flushed)?; // DUR
        op.finish(durable);
        Ok(first)
    }

    /// Frees the blocks of a place.
    pub(crate) fn give_back(&self, place: u32, blocks: &[u64]) -> Result<(), PmError> {
        let (pm, cell) = (self.pool.pm(), self.word(place)?);
        let first = pm.load(cell);
        let mut op = self.pool.op()?;
        for &block in blocks {
            let owner = Owner { word: cell, mask: u64::MAX, expect: first };
            op.free(PPtr::<PmU64>::new(block), owner)?;
        }
        op.prepare(Flushed::nothing())?; // P1, durable before: P2
        pm.store(cell, 0); // P2, LIN
        let flushed = op.seal().and(pm.flush(cell));
        let durable = pm.fence(flushed)?; // DUR
        op.finish(durable);
        Ok(())
    }

    /// Returns the offset of the directory.
    pub(crate) fn directory(&self) -> u64 {
        self.directory
    }

    /// Returns the offsets of the pages.
    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// Returns the places of a page.
    pub(crate) fn places_of(&self, page: u32) -> std::ops::Range<u32> {
        page * self.page_places..(page + 1) * self.page_places
    }

    /// Returns the offsets of the directory and the pages.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        [self.directory].into_iter().chain(self.pages.iter().copied())
    }
}

/// Allocates a block of zeros, and stores its offset in `cell`.
fn make_zeroed<M: Medium>(pool: &Pool<M>, cell: &PmU64, words: usize) -> Result<u64, PmError> {
    let pm = pool.pm();
    let mut op = pool.op()?;
    let block = op.reserve_bytes(8 * words as u64, LINE as u64)?;
    let offset = block.ptr().offset();
    let filled = pm.stream_words(pool.words(offset, words)?, &vec![0; words]);
    op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
    op.prepare(filled)?; // P1, durable before: P2
    pm.store(cell, offset); // P2, LIN
    let flushed = op.seal().and(pm.flush(cell));
    let durable = pm.fence(flushed)?; // DUR
    op.finish(durable);
    Ok(offset)
}
