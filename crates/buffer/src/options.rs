//! How a buffer is made and opened.

use crate::page::Sums;

/// How a buffer is made and opened.
#[derive(Clone, Debug)]
pub struct BufferOptions {
    pub(crate) page_bytes: u64,
    pub(crate) frames: u64,
    pub(crate) dram: usize,
    pub(crate) sums: Sums,
    pub(crate) staging: u64,
    pub(crate) identity: Option<u64>,
    pub(crate) cold: bool,
    pub(crate) verify_reads: bool,
    pub(crate) mutant: Mutant,
}

/// A fault that a test puts into the protocol, to show that it is noticed. Never made by a user.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    #[default]
    None,
    /// Changes reach the pages before their record is durable, under the LSN of the update before.
    InPlace,
    /// The horizon passes updates of frames that were not flushed.
    NoRuleH,
    /// LSNs begin anew after what the log has, and changes reach pages before their record is durable.
    ReusedLsn,
    /// The root of a page is not over the sums of its partitions.
    SumsApart,
    /// The number of a page is not compared, and its entry comes before its image.
    NoPageNumber,
    /// Pages are written to the disk from frames that are not flushed, and not from the staging area.
    NoStaging,
}

impl BufferOptions {
    /// So many frames of 4 KiB in the pool; no copies in DRAM; one sum per page.
    #[must_use]
    pub fn new(frames: u64) -> Self {
        Self {
            page_bytes: 4096,
            frames,
            dram: 0,
            sums: Sums::Incremental,
            staging: 16,
            identity: None,
            cold: false,
            verify_reads: false,
            mutant: Mutant::None,
        }
    }

    /// Bytes of a page: 4, 8, 16, 32 or 64 KiB. Counts when the buffer is made.
    #[must_use]
    pub fn page_bytes(self, bytes: u64) -> Self {
        Self { page_bytes: bytes, ..self }
    }

    /// How many pages may have a copy in DRAM, besides their frame in the pool: worth it where the pool's
    /// memory is slower. 2Q decides which.
    #[must_use]
    pub fn dram_pages(self, pages: usize) -> Self {
        Self { dram: pages, ..self }
    }

    /// What the sums of a page are over. Counts when the buffer is made.
    #[must_use]
    pub fn sums(self, sums: Sums) -> Self {
        Self { sums, ..self }
    }

    /// How many pages are written to the disk between two synchronisations of it, at most. Counts when the
    /// buffer is made.
    #[must_use]
    pub fn staging(self, pages: u64) -> Self {
        Self { staging: pages, ..self }
    }

    /// Whether opening forgets what is in the frames, so that every page is fetched from the disk: what a
    /// buffer in DRAM does. For comparisons.
    #[must_use]
    pub fn cold(self, yes: bool) -> Self {
        Self { cold: yes, ..self }
    }

    /// Whether every read verifies the page, so that no rot is served at all. Otherwise rot is found at a
    /// page's first use, before it is written to the disk, which it never reaches, and by
    /// [`scrub`](crate::Buffer::scrub).
    #[must_use]
    pub fn verify_reads(self, yes: bool) -> Self {
        Self { verify_reads: yes, ..self }
    }

    /// The number that tells this buffer from others, in place of a random one. For tests, which repeat
    /// what they do.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(self, identity: u64) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// A fault for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn mutant(self, mutant: Mutant) -> Self {
        Self { mutant, ..self }
    }
}
