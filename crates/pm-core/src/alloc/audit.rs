//! The audit: proves that each block is free or owned exactly once, starting from the roots.
//!
//! It reads the page tables and bitmaps of the medium word by word. It shares only their layout with the code
//! that maintains and recovers them.

use pmindex_error::error_enum;

use crate::error::PmError;
use crate::media::Medium;
use crate::pool::Pool;

use super::class::{class_bytes, class_start};
use super::geometry::PAGE;
use super::head::Run;
use super::heap::{Block, corrupt};
use super::zone::table_pages;

/// The counts of an audit, in blocks and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Live blocks.
    pub live_blocks: u64,
    /// Bytes of live blocks.
    pub live_bytes: u64,
    /// Bytes of runs (slabs and extents), live or not.
    pub run_bytes: u64,
    /// Runs.
    pub runs: u64,
}

error_enum! {
    /// A fault that an audit found.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum AuditError {
        /// A live block without an owner.
        #[error("leaked: a block of {bytes} bytes at {offset:#x} is live and nobody owns it")]
        Leaked {
            /// The block's offset.
            offset: u64,
            /// The block's size.
            bytes: u64,
        },
        /// A block with two owners.
        #[error("owned twice: the block at {offset:#x}")]
        OwnedTwice {
            /// The block's offset.
            offset: u64,
        },
        /// A block that has an owner but is not live: the next allocation may hand it out.
        #[error("lost: the block at {offset:#x} is owned, and no live block starts there")]
        NotLive {
            /// The block's offset.
            offset: u64,
        },
        /// The metadata are damaged or contradict each other.
        #[error(transparent)]
        Pool(#[from] PmError),
    }
}

impl<M: Medium> Pool<M> {
    /// Checks that the live blocks are `owned` (the offsets of every block that the roots lead to) and the
    /// blocks of indexes that are being dropped, each once. Call it while no operation is in progress.
    ///
    /// # Errors
    /// The first fault found.
    ///
    /// # Cost
    /// Reads every page table and bitmap; O(n log n) in the number of blocks.
    pub fn audit(&self, owned: impl Iterator<Item = u64>) -> Result<AuditReport, AuditError> {
        let mut owned: Vec<u64> = owned.collect();
        owned.extend(self.blocks_being_dropped()?);
        owned.sort_unstable();
        if let Some(pair) = owned.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(AuditError::OwnedTwice { offset: pair[0] });
        }
        let (live, mut report) = self.survey()?;
        let mut claims = owned.into_iter().peekable();
        for &(offset, bytes) in &live {
            match claims.next_if(|&claim| claim <= offset) {
                Some(claim) if claim == offset => {}
                Some(claim) => return Err(AuditError::NotLive { offset: claim }),
                None => return Err(AuditError::Leaked { offset, bytes }),
            }
            report.live_blocks += 1;
            report.live_bytes += bytes;
        }
        match claims.next() {
            Some(offset) => Err(AuditError::NotLive { offset }),
            None => Ok(report),
        }
    }

    /// Returns every live block as (offset, bytes), by offset. Call it while no operation is in progress.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn live_blocks(&self) -> Result<Vec<(u64, u64)>, PmError> {
        Ok(self.survey()?.0)
    }

    /// Returns the place of a live block's bit: the bitmap word's offset and the bit; for an extent, its
    /// offset and bit 0.
    pub(crate) fn place_of_block(&self, offset: u64) -> Result<(u64, u32), PmError> {
        let block = self.locate(offset)?;
        if !self.is_live(block) && !self.pm().is_volatile() {
            return Err(corrupt("a pointer to no live block", offset));
        }
        Ok(match block {
            Block::Slab { slab, bit } => {
                (self.heap.slab(slab).base() + 8 * (1 + u64::from(bit) / 64), bit % 64)
            }
            Block::Extent { offset, .. } => (offset, 0),
        })
    }

    /// Returns the block at such a place.
    pub(crate) fn block_at_place(&self, word: u64, bit: u32) -> Result<u64, PmError> {
        const BAD: &str = "the place of a block";
        let base = word - word % PAGE;
        if base == word {
            return Ok(word);
        }
        let class = self.class_of_slab(base)?.ok_or(corrupt(BAD, word))?;
        let bit = ((word - base) / 8 - 1) * 64 + u64::from(bit);
        if bit >= u64::from(self.heap.shapes[class].blocks) {
            return Err(corrupt(BAD, word));
        }
        Ok(base + class_start(class) + bit * class_bytes(class))
    }

    /// Returns the live blocks, by offset, and the counts of runs.
    fn survey(&self) -> Result<(Vec<(u64, u64)>, AuditReport), PmError> {
        if self.pm().is_volatile() {
            self.write_out()?;
        }
        let zone_bytes = self.heap.geometry.zone_bytes;
        let table = table_pages(zone_bytes);
        let mut live = Vec::new();
        let mut report = AuditReport::default();
        for zone in 0..self.heap.zone_count() {
            let start = self.heap.zone_start(zone);
            let words = self.words(start, (zone_bytes / PAGE) as usize)?;
            let mut free_from = table;
            for page in table..zone_bytes / PAGE {
                let word = self.pm().load(&words[page as usize]);
                if word == 0 {
                    continue;
                }
                let base = start + page * PAGE;
                if page < free_from {
                    return Err(corrupt("a run of pages inside another", base));
                }
                let run = Run::decode(word, base).ok_or(corrupt("the page table", base))?;
                let pages = self.survey_run(run, base, word, &mut live)?;
                free_from = page + pages;
                if free_from > zone_bytes / PAGE {
                    return Err(corrupt("a run of pages past its zone", base));
                }
                report.runs += 1;
                report.run_bytes += pages * PAGE;
            }
        }
        Ok((live, report))
    }

    /// Appends the live blocks of a run; returns its pages.
    fn survey_run(
        &self,
        run: Run,
        base: u64,
        head: u64,
        live: &mut Vec<(u64, u64)>,
    ) -> Result<u64, PmError> {
        let (class, pages) = match run {
            Run::None => return Ok(1),
            Run::Extent { pages } => {
                live.push((base, u64::from(pages) * PAGE));
                return Ok(u64::from(pages));
            }
            Run::Slab { class, pages } => (class, pages),
        };
        let shape = self.heap.shapes[class];
        let header = self.words(base, 8)?;
        if self.pm().load(&header[0]) != head || shape.pages != pages {
            return Err(corrupt("the header of a slab", base));
        }
        for (i, cell) in header[1..].iter().enumerate() {
            let mut bits = self.pm().load(cell);
            while bits != 0 {
                let bit = i as u64 * 64 + u64::from(bits.trailing_zeros());
                if bit >= u64::from(shape.blocks) {
                    return Err(corrupt("a slab's bitmap", base));
                }
                live.push((
                    base + class_start(class) + bit * class_bytes(class),
                    class_bytes(class),
                ));
                bits &= bits - 1;
            }
        }
        Ok(u64::from(pages))
    }
}
