//! The superblock: the pool's identity, size, number of openings, and whether it was closed cleanly.
//!
//! There are two copies, each with a checksum. Every update writes one copy and makes it durable before it
//! touches the other, so at any instant at least one copy is intact; the newest intact one counts. After an
//! update both are the same, so the loss of one copy to bit rot loses nothing.
//!
//! ```text
//! creation
//! step  store                                          durable before
//! S1    both copies but their magic; directory; heap   S2
//! S2    magic of both copies (LIN: a pool exists)      return (DUR)
//!
//! update (open, grow, close)
//! step  store                                          durable before
//! S3    the older or damaged copy (LIN)                S4
//! S4    the other copy                                 return (DUR)
//! ```
//!
//! A crash within S3 leaves a copy that fails its checksum; the other one holds the state before. A pool with
//! a damaged copy counts as not closed cleanly, whatever the intact copy says.

use crate::alloc::PAGE;
use crate::cell::words_of;
use crate::checksum::checksum;
use crate::error::{DurabilityLost, OpenFault};
use crate::media::{Durable, Flushed, Medium};
use crate::region::Region;

use super::layout::{
    FORMAT_VERSION, FORMAT_WITH_JOURNAL, MAGIC, SUPERBLOCKS, Shape, SuperblockPage,
};

/// Words of one copy.
pub(crate) const WORDS: usize = size_of::<SuperblockPage>() / 8;
const CLEAN: u64 = 1;
const SEED: u64 = 0x5375_7065_7262_6c6b;

/// The contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
    pub(crate) size: u64,
    pub(crate) shape: Shape,
    pub(crate) clean: bool,
    pub(crate) uuid: u128,
    pub(crate) dirty_shutdowns: u64,
    pub(crate) entries: u64,
    /// The stamp of the journal that the file depends on, or 0.
    pub(crate) journal: u64,
}

/// The superblock found in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    /// The copy that holds it.
    pub(crate) copy: usize,
    /// `true` if the other copy is damaged.
    pub(crate) damaged: bool,
}

/// The state of one copy.
enum Copy1 {
    Whole(Superblock),
    /// No magic.
    Foreign,
    /// A version that this library does not know.
    Version(u64),
    /// Magic and version are right, the checksum is not.
    Damaged,
}

/// Sets the checksum of a copy to the right value.
pub(super) fn forge(words: &mut [u64]) {
    words[WORDS - 1] = checksum(SEED, words[1..WORDS - 1].iter().copied());
}

impl Superblock {
    /// Returns the words of a copy, from `version` to `checksum`.
    fn encode(&self) -> [u64; WORDS - 1] {
        let mut words = [
            if self.journal == 0 { FORMAT_VERSION } else { FORMAT_WITH_JOURNAL },
            self.sequence,
            self.generation,
            self.size,
            self.shape.zone_bytes,
            self.shape.slots | self.shape.slot_bytes << 32,
            if self.clean { CLEAN } else { 0 },
            self.uuid as u64,
            (self.uuid >> 64) as u64,
            self.dirty_shutdowns,
            self.entries,
            self.journal,
            0,
            0,
            0,
        ];
        words[WORDS - 2] = checksum(SEED, words[..WORDS - 2].iter().copied());
        words
    }

    fn decode(words: &[u64; WORDS]) -> Copy1 {
        if words[0] != MAGIC {
            return Copy1::Foreign;
        }
        if words[WORDS - 1] != checksum(SEED, words[1..WORDS - 1].iter().copied()) {
            // A later format may use another checksum: report its version first.
            return match words[1] {
                version if version > FORMAT_WITH_JOURNAL => Copy1::Version(version),
                _ => Copy1::Damaged,
            };
        }
        if !(FORMAT_VERSION..=FORMAT_WITH_JOURNAL).contains(&words[1]) {
            return Copy1::Version(words[1]);
        }
        Copy1::Whole(Self {
            sequence: words[2],
            generation: words[3],
            size: words[4],
            shape: Shape {
                zone_bytes: words[5],
                slots: words[6] & 0xffff_ffff,
                slot_bytes: words[6] >> 32,
            },
            clean: words[7] & CLEAN != 0,
            uuid: u128::from(words[8]) | u128::from(words[9]) << 64,
            dirty_shutdowns: words[10],
            entries: words[11],
            journal: words[12],
        })
    }

    /// Returns the newest intact copy of the two.
    pub(crate) fn choose(copies: &[[u64; WORDS]; 2]) -> Result<Found, OpenFault> {
        match (Self::decode(&copies[0]), Self::decode(&copies[1])) {
            (Copy1::Whole(a), Copy1::Whole(b)) => {
                let copy = usize::from(b.sequence > a.sequence);
                let superblock = if copy == 0 { a } else { b };
                Ok(Found { superblock, copy, damaged: false })
            }
            (Copy1::Whole(superblock), _) => Ok(Found { superblock, copy: 0, damaged: true }),
            (_, Copy1::Whole(superblock)) => Ok(Found { superblock, copy: 1, damaged: true }),
            (Copy1::Version(found), _) | (_, Copy1::Version(found)) => {
                Err(OpenFault::Version { found, supported: FORMAT_WITH_JOURNAL })
            }
            (Copy1::Damaged, _) | (_, Copy1::Damaged) => {
                Err(OpenFault::Damaged { what: "both copies of the superblock", offset: 0 })
            }
            (Copy1::Foreign, Copy1::Foreign) => Err(OpenFault::NotAPool),
        }
    }

    /// Reads the superblock of a mapped pool.
    pub(crate) fn read<M: Medium>(pm: &M, region: &Region) -> Result<Found, OpenFault> {
        let mut copies = [[0; WORDS]; 2];
        for (copy, offset) in copies.iter_mut().zip(SUPERBLOCKS) {
            pm.read_words(words_of(page(region, offset)?), copy);
        }
        Self::choose(&copies)
    }

    /// S1: writes both copies except their magic.
    #[track_caller]
    pub(crate) fn write_bodies<M: Medium>(
        &self,
        pm: &M,
        region: &Region,
    ) -> Result<Flushed, OpenFault> {
        let mut flushed = Flushed::nothing();
        for offset in SUPERBLOCKS {
            let page = page(region, offset)?;
            pm.write_words(&words_of(page)[1..], &self.encode());
            flushed = flushed.and(pm.flush(page));
        }
        Ok(flushed)
    }

    /// S2: writes the magic of both copies; from here on there is a pool.
    #[track_caller]
    pub(crate) fn write_magic<M: Medium>(
        pm: &M,
        region: &Region,
        _bodies: Durable,
    ) -> Result<Flushed, OpenFault> {
        let mut flushed = Flushed::nothing();
        for offset in SUPERBLOCKS {
            let page = page(region, offset)?;
            pm.store(&page.magic, MAGIC);
            flushed = flushed.and(pm.flush(&page.magic));
        }
        Ok(flushed)
    }
}

impl Superblock {
    /// S0: flushes both copies as they are.
    #[track_caller]
    pub(crate) fn flush<M: Medium>(pm: &M, region: &Region) -> Result<Flushed, OpenFault> {
        let mut flushed = Flushed::nothing();
        for offset in SUPERBLOCKS {
            flushed = flushed.and(pm.flush(page(region, offset)?));
        }
        Ok(flushed)
    }

    /// Returns a copy as bytes, and its offset.
    pub(super) fn to_bytes(self, copy: usize) -> (u64, Vec<u8>) {
        let words = [MAGIC].into_iter().chain(self.encode());
        (SUPERBLOCKS[copy], words.flat_map(u64::to_le_bytes).collect())
    }

    /// Overwrites one copy.
    #[track_caller]
    fn write_copy<M: Medium>(
        &self,
        pm: &M,
        region: &Region,
        copy: usize,
    ) -> Result<Flushed, UpdateFault> {
        let page = page(region, SUPERBLOCKS[copy]).map_err(|_| UpdateFault::Gone)?;
        let mut words = [MAGIC; WORDS];
        words[1..].copy_from_slice(&self.encode());
        pm.write_words(words_of(page), &words);
        Ok(pm.flush(page))
    }
}

/// Changes the superblocks in a copy of the first bytes of a pool's file, as they are in memory, to say that
/// there is no journal: the contents of memory need none. For copies made from outside while the writing
/// process is paused.
#[doc(hidden)]
pub fn without_journal(head: &mut [u8]) {
    forget_journal(head, 0);
}

/// Changes each intact superblock in an image, which begins at `offset` of a pool, to say that there is no
/// journal: the image is a copy of memory.
pub(super) fn forget_journal(image: &mut [u8], offset: u64) {
    for (copy, at) in SUPERBLOCKS.into_iter().enumerate() {
        let start = at.checked_sub(offset).and_then(|start| usize::try_from(start).ok());
        let Some(bytes) = start.and_then(|start| image.get_mut(start..start + 8 * WORDS)) else {
            continue;
        };
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        if let Copy1::Whole(found) = Superblock::decode(&words) {
            bytes.copy_from_slice(&Superblock { journal: 0, ..found }.to_bytes(copy).1);
        }
    }
}

impl Found {
    /// S3, S4: makes `next` the superblock. Two fences.
    pub(crate) fn update<M: Medium>(
        &mut self,
        pm: &M,
        region: &Region,
        mut next: Superblock,
    ) -> Result<(), UpdateFault> {
        next.sequence = self.superblock.sequence.wrapping_add(1);
        // S3: the copy that does not hold the present state.
        let first = next.write_copy(pm, region, 1 - self.copy)?;
        pm.fence(first)?; // durable before: S4
        // S4: the copy that does.
        let second = next.write_copy(pm, region, self.copy)?;
        pm.fence(second)?;
        *self = Self { superblock: next, copy: self.copy, damaged: false };
        Ok(())
    }
}

/// Why an update failed.
#[derive(Debug)]
pub(crate) enum UpdateFault {
    /// The region is not usable (forked child).
    Gone,
    /// See [`DurabilityLost`].
    Lost(DurabilityLost),
}

impl From<DurabilityLost> for UpdateFault {
    fn from(lost: DurabilityLost) -> Self {
        Self::Lost(lost)
    }
}

fn page(region: &Region, offset: u64) -> Result<&SuperblockPage, OpenFault> {
    region
        .get::<SuperblockPage>(offset)
        .ok_or(OpenFault::Truncated { len: region.len() as u64, expected: 2 * PAGE })
}
