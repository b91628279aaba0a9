//! The caller's options for a pool.

use core::time::Duration;
use std::path::PathBuf;

use crate::alloc::SLOT_BYTES;
use crate::error::PmError;
use crate::mode::{Durability, FlushInstruction};

use super::layout::Shape;

/// Options for creating and opening pools.
///
/// The options of the first group are recorded in a pool when it is created and ignored when it is
/// opened; the others count for each opening.
///
/// ```
/// # use pmindex_core as pmindex;
/// use pmindex::PoolOptions;
/// let small = PoolOptions::new().size(96 << 10).zone_bytes(32 << 10).slots(4);
/// # let _ = small;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct PoolOptions {
    pub(crate) size: u64,
    pub(crate) zone_bytes: Option<u64>,
    pub(crate) slots: Option<u64>,
    pub(crate) slot_bytes: Option<u64>,
    pub(crate) mode: u32,
    pub(crate) uuid: Option<u128>,

    pub(crate) max_size: Option<u64>,
    pub(crate) grow: bool,
    pub(crate) read_only: bool,
    pub(crate) require: Durability,
    pub(crate) emulate_pm: bool,
    pub(crate) write_back: bool,
    pub(crate) journal: bool,
    pub(crate) journal_bytes: Option<u64>,
    pub(crate) journal_wait: Duration,
    pub(crate) twin: Option<PathBuf>,
    pub(crate) twin_every: Duration,
    pub(crate) flush_instruction: Option<FlushInstruction>,
    pub(crate) huge_pages: bool,
    pub(crate) accept_dirty_shutdown: bool,
    pub(crate) accept_journal_loss: bool,
    pub(crate) as_on_disk: bool,
    #[cfg(feature = "libpmem")]
    pub(crate) libpmem: bool,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            size: 64 << 20,
            zone_bytes: None,
            slots: None,
            slot_bytes: None,
            mode: 0o600,
            uuid: None,
            max_size: None,
            grow: true,
            read_only: false,
            require: Durability::Volatile,
            emulate_pm: false,
            write_back: true,
            journal: false,
            journal_bytes: None,
            journal_wait: Duration::from_secs(30),
            twin: None,
            twin_every: Duration::from_millis(100),
            flush_instruction: None,
            huge_pages: true,
            accept_dirty_shutdown: false,
            accept_journal_loss: false,
            as_on_disk: false,
            #[cfg(feature = "libpmem")]
            libpmem: false,
        }
    }
}

impl PoolOptions {
    /// Returns the defaults: 64 MiB that grow automatically, with any durability that the medium provides.
    pub fn new() -> Self {
        Self::default()
    }

    // --- recorded at creation -----------------------------------------------------------------

    /// Sets the size of a new pool in bytes, rounded up to whole zones (default 64 MiB).
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Sets the size of an allocator zone in bytes: the unit of growth, a power of two from 16 KiB to 1 GiB
    /// (default: an eighth of the size, 32 KiB to 4 MiB). A pool has at most 2^20 zones, and a block is
    /// smaller than a zone.
    pub fn zone_bytes(mut self, bytes: u64) -> Self {
        self.zone_bytes = Some(bytes);
        self
    }

    /// Sets the number of operations that can allocate, free or log at once, 1 to 4096 (default: one for each
    /// 16 KiB of the size, 4 to 64).
    pub fn slots(mut self, slots: u64) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Sets the bytes of an operation slot, a multiple of 64 from 256 to 64 KiB. They limit the number of
    /// blocks that one operation can allocate and free (default: 4096, or 1024 in a pool under 8 MiB).
    pub fn slot_bytes(mut self, bytes: u64) -> Self {
        self.slot_bytes = Some(bytes);
        self
    }

    /// Sets the permission bits of a new file (default 0600). The process's umask still applies.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the identity of a new pool (default: random for files, 0 in memory).
    pub fn uuid(mut self, uuid: u128) -> Self {
        self.uuid = Some(uuid);
        self
    }

    // --- for each opening ---------------------------------------------------------------------

    /// Sets the largest size in bytes that the pool may grow to. That much address space is reserved, or as
    /// much as the system has (default: 16 times the present size, at least 64 GiB).
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = Some(bytes);
        self
    }

    /// Sets whether the pool grows automatically when it is full (default yes).
    pub fn grow(mut self, yes: bool) -> Self {
        self.grow = yes;
        self
    }

    /// Opens for reading only. Shared with other readers, and refused while a writer has the pool.
    /// If the last shutdown was not clean, recovery works on a private copy of the pages it
    /// changes; the file is never written.
    pub fn read_only(mut self, yes: bool) -> Self {
        self.read_only = yes;
        self
    }

    /// Sets the least durability to accept; opening a weaker medium is an error (default: any).
    /// [`Durability::Fence`] and [`Durability::Flush`] satisfy each other.
    pub fn require(mut self, least: Durability) -> Self {
        self.require = least;
        self
    }

    /// Executes every flush and fence as on persistent memory although the medium is not
    /// (tmpfs, page cache): emulated PM. It costs what real flushes cost and survives what the medium
    /// survives; the pool says that it is emulated.
    pub fn emulate_pm(mut self, yes: bool) -> Self {
        self.emulate_pm = yes;
        self
    }

    /// Sets whether a fence on an ordinary file writes dirty pages back with `msync` (default yes). If not,
    /// the pool survives a crash of the process and nothing more ([`Durability::Process`]).
    pub fn write_back(mut self, yes: bool) -> Self {
        self.write_back = yes;
        self
    }

    /// Sets whether a fence on an ordinary file waits for a write to a journal beside the file, which all
    /// threads share, instead of an `msync` of its pages ([`Durability::Journal`]; default no). It changes
    /// nothing on persistent memory and in memory.
    ///
    /// The journal has the file's name with `.journal` behind it. While the pool is open, and after a crash,
    /// the two belong together: copy or move both, never one alone. Any opening after a crash replays the
    /// journal, whatever its options. A pool that was closed consists of its file alone.
    pub fn journal(mut self, yes: bool) -> Self {
        self.journal = yes;
        self
    }

    /// Sets the size in bytes of the journal's file (default 32 MiB), or of the log of a [twin](Self::twin)
    /// (default a fourth of the pool, 32 to 256 MiB); 64 KiB to 1 TiB. The pool's file is synchronised each
    /// time half of it is used, and an opening after a crash reads no more than that. At its creation it is
    /// filled with zeros.
    pub fn journal_bytes(mut self, bytes: u64) -> Self {
        self.journal_bytes = Some(bytes.clamp(64 << 10, 1 << 40));
        self
    }

    /// Sets how long a fence waits for room in a full journal while the disk takes nothing, before the pool stops taking
    /// writes (default 30 seconds). As long as a slow disk takes something, fences wait.
    pub fn journal_wait(mut self, wait: Duration) -> Self {
        self.journal_wait = wait;
        self
    }

    /// Keeps a twin of a pool in memory (tmpfs) in a file at `path`, on a disk: mode
    /// [`Durability::Periodic`]. A fence notes its lines and returns; a thread copies and writes them to the
    /// twin every [`twin_every`](Self::twin_every). A kill of the process loses nothing: the pool is in
    /// memory. After a power failure the memory is gone, and [`open`](crate::Pool::open) restores the pool
    /// from the twin as it was at some moment, for all threads alike; at most the work of the last interval
    /// and of the disk's own write time is missing. That time is longer while a checkpoint writes to the same file.
    /// [`Pool::sync`](crate::Pool::sync) waits until the twin has everything.
    ///
    /// The twin holds a log ([`journal_bytes`](Self::journal_bytes)) and the pool's bytes. For a new pool,
    /// and if a kill left the twin behind or the twin is missing, it is made in the background while the pool
    /// is used; the old one stays until then, and `sync` waits for the new one. A twin of another pool, or of
    /// a later state of this one, is an error.
    ///
    /// If the disk fails, or takes nothing for [`journal_wait`](Self::journal_wait) while there is no room
    /// left, the pool continues without a twin: `sync` fails for good, [`Pool::twin`](crate::Pool::twin) says
    /// why, and the twin stays as it is. The next opening makes a new one.
    ///
    /// A pool whose own file is on a disk is refused. Without this option an existing twin is ignored.
    pub fn twin(mut self, path: impl Into<PathBuf>) -> Self {
        self.twin = Some(path.into());
        self
    }

    /// Sets how long after a fence the twin is written (default 100 milliseconds): a power failure may lose
    /// that much, plus the disk's write time.
    pub fn twin_every(mut self, every: Duration) -> Self {
        self.twin_every = every;
        self
    }

    /// Sets the flush instruction (default: the best of the CPU). Opening is an error if the CPU does not
    /// have it.
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.flush_instruction = Some(instruction);
        self
    }

    /// Sets whether to ask the kernel for huge pages for a pool in a file (default yes); if not, no call is
    /// made. On DAX and on tmpfs that is advice (`MADV_HUGEPAGE`). On a tmpfs that gives huge pages only on
    /// an explicit request for each, they are requested as memory is handed out (`MADV_COLLAPSE`, Linux 6.7),
    /// up to 6 MiB ahead of its use, after a trial on a scratch file of the same mount. Never in a file on a
    /// disk: there each fence would write 2 MiB.
    pub fn huge_pages(mut self, yes: bool) -> Self {
        self.huge_pages = yes;
        self
    }

    /// Opens a pool although the platform reports that a power failure lost data in its modules
    /// while it was in use (default no).
    pub fn accept_dirty_shutdown(mut self, yes: bool) -> Self {
        self.accept_dirty_shutdown = yes;
        self
    }

    /// Opens a pool whose journal is lost for good: missing, another's, or unreadable (default no). The file
    /// alone holds an arbitrary part of what was acknowledged since the last checkpoint, page by page, and
    /// the pages need not fit together: the pool may not open even so, and an index in it may be damaged.
    /// Verify it, and save the remaining data in a new pool. A readable journal is still replayed.
    pub fn accept_journal_loss(mut self, yes: bool) -> Self {
        self.accept_journal_loss = yes;
        self
    }

    /// Treats a file in memory (tmpfs) as if it were on a disk. For tests.
    #[doc(hidden)]
    pub fn as_on_disk(mut self, yes: bool) -> Self {
        self.as_on_disk = yes;
        self
    }

    /// Flushes and fences through PMDK's `libpmem` instead of by instructions of this library (default no);
    /// in the modes that neither flush nor fence it changes nothing. Opening is an error if the library
    /// cannot be loaded, or if an environment variable would change its behaviour. With the feature
    /// `libpmem`.
    #[cfg(feature = "libpmem")]
    pub fn libpmem(mut self, yes: bool) -> Self {
        self.libpmem = yes;
        self
    }

    /// Returns the exact size in bytes of a pool created with these options.
    ///
    /// # Errors
    /// [`PmError::BadOption`].
    pub fn created_size(&self) -> Result<u64, PmError> {
        let shape = self.shape();
        shape.check()?;
        Ok(shape.geometry(shape.round(self.size))?.end)
    }

    /// Returns the numbers that were chosen, or that follow from the size.
    pub(super) fn shape(&self) -> Shape {
        let eighth = (self.size / 8).checked_next_power_of_two().unwrap_or(u64::MAX);
        let slot_bytes = if self.size < 8 << 20 { 1024 } else { SLOT_BYTES };
        Shape {
            zone_bytes: self.zone_bytes.unwrap_or(eighth.clamp(32 << 10, 4 << 20)),
            slots: self.slots.unwrap_or((self.size >> 14).clamp(4, 64)),
            slot_bytes: self.slot_bytes.unwrap_or(slot_bytes),
        }
    }
}
