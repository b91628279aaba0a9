//! Options for creating and opening a buffer.

use std::sync::Arc;

use pmindex_wal::Disk;

use crate::layout::KIND;
use crate::page::Sums;

/// Options for creating and opening a buffer.
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
    pub(crate) kind: [u8; 8],
    pub(crate) archive: Option<Arc<dyn Disk>>,
    pub(crate) mutant: Mutant,
}

/// A fault that a test puts into the protocol, to show that it is noticed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// No fault.
    #[default]
    None,
    /// Changes reach the pages before their record is durable, with the LSN of the update before.
    InPlace,
    /// The horizon passes updates of frames that were not flushed.
    NoRuleH,
    /// LSNs start again after those of the log, and changes reach pages before their record is durable.
    ReusedLsn,
    /// The root of a page does not cover the sums of its partitions.
    SumsApart,
    /// The number of a page is not compared, and its entry is stored before its image.
    NoPageNumber,
    /// Pages are written to the disk from unflushed frames instead of the staging area.
    NoStaging,
    /// Records are copied to the archive after the horizon has passed them.
    LateArchive,
    /// The archive names a run that is not durable.
    RunAfterHead,
    /// The root gets the tag of the archive's head after the head is durable.
    LateTag,
    /// The root has no tag but that of the next head.
    OneTag,
    /// An archive is used whatever its tag is.
    Untagged,
    /// An archive that lacks records is used, and a gap between changes is not noticed.
    Unchained,
}

impl BufferOptions {
    /// Uses this number of frames of 4 KiB in the pool, no copies in DRAM, and one sum per page.
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
            kind: KIND,
            archive: None,
            mutant: Mutant::None,
        }
    }

    /// Sets the bytes of a page: 4, 8, 16, 32 or 64 KiB. Used only by creation.
    #[must_use]
    pub fn page_bytes(self, bytes: u64) -> Self {
        Self { page_bytes: bytes, ..self }
    }

    /// Sets how many pages may have a copy in DRAM in addition to their frame in the pool; useful if the
    /// pool's memory is slower. 2Q chooses the pages.
    #[must_use]
    pub fn dram_pages(self, pages: usize) -> Self {
        Self { dram: pages, ..self }
    }

    /// Sets which sums a page has. Used only by creation.
    #[must_use]
    pub fn sums(self, sums: Sums) -> Self {
        Self { sums, ..self }
    }

    /// Sets the maximum number of pages that are written to the disk between two synchronisations. Used
    /// only by creation.
    #[must_use]
    pub fn staging(self, pages: u64) -> Self {
        Self { staging: pages, ..self }
    }

    /// With `true`, opening ignores the contents of the frames, so every page is read from the disk, as
    /// with a buffer in DRAM. For comparisons.
    #[must_use]
    pub fn cold(self, yes: bool) -> Self {
        Self { cold: yes, ..self }
    }

    /// With `true`, every read verifies the page, so rot is never served. Otherwise rot is found at the
    /// first use of a page, before the page is written to the disk, and by [`scrub`](crate::Buffer::scrub).
    #[must_use]
    pub fn verify_reads(self, yes: bool) -> Self {
        Self { verify_reads: yes, ..self }
    }

    /// Keeps an archive of the log on another disk, from which pages that rot on the first one are built again: see
    /// [`Buffer::attach_archive`](crate::Buffer::attach_archive). A disk of zeros is a new archive.
    #[must_use]
    pub fn archive(self, disk: Arc<dyn Disk>) -> Self {
        Self { archive: Some(disk), ..self }
    }

    /// Sets the type of the buffer in the pool's directory, for a structure that is the only user of its
    /// buffer. Opening needs the same type.
    #[must_use]
    pub fn kind(self, kind: [u8; 8]) -> Self {
        Self { kind, ..self }
    }

    /// Sets the number that distinguishes this buffer from others, instead of a random one, for tests. With it, pages
    /// may be as small as 128 bytes, and the tags of an archive are not random.
    #[doc(hidden)]
    #[must_use]
    pub fn identity(self, identity: u64) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Sets a fault, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn mutant(self, mutant: Mutant) -> Self {
        Self { mutant, ..self }
    }
}
