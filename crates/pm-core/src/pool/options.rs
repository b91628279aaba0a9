//! What a caller asks of a pool.

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
    /// The defaults: 64 MiB that grow by themselves, whatever durability the medium gives.
    pub fn new() -> Self {
        Self::default()
    }

    // --- recorded at creation -----------------------------------------------------------------

    /// Bytes of a new pool, rounded up to whole zones (default 64 MiB).
    pub fn size(mut self, bytes: u64) -> Self {
        self.size = bytes;
        self
    }

    /// Bytes of an allocator zone: the unit of growth, a power of two from 16 KiB to 1 GiB
    /// (default: an eighth of the size, 32 KiB to 4 MiB). A pool has at most 2^20 zones, and a block
    /// is smaller than a zone.
    pub fn zone_bytes(mut self, bytes: u64) -> Self {
        self.zone_bytes = Some(bytes);
        self
    }

    /// How many operations can allocate, free or log at once, 1 to 4096
    /// (default: one for each 16 KiB of the size, 4 to 64).
    pub fn slots(mut self, slots: u64) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Bytes of an operation slot, a multiple of 64 from 256 to 64 KiB: how many blocks one operation
    /// can allocate and free (default: 4096, or 1024 in a pool under 8 MiB).
    pub fn slot_bytes(mut self, bytes: u64) -> Self {
        self.slot_bytes = Some(bytes);
        self
    }

    /// Permission bits of a new file (default 0600). The process's umask still applies.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// The identity of a new pool (default: random for files, 0 in memory).
    pub fn uuid(mut self, uuid: u128) -> Self {
        self.uuid = Some(uuid);
        self
    }

    // --- for each opening ---------------------------------------------------------------------

    /// Sets how large the pool may grow, in bytes. That many addresses are reserved, or as many as the
    /// system has, if it has fewer (default: 16 times the present size, 64 GiB at least).
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.max_size = Some(bytes);
        self
    }

    /// Whether the pool grows by itself when it is full (default yes).
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

    /// The least durability to accept; opening a weaker medium is an error (default: any).
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

    /// Whether a fence on an ordinary file writes dirty pages back with `msync` (default yes). If
    /// not, the pool survives a crash of the process and nothing more ([`Durability::Process`]).
    pub fn write_back(mut self, yes: bool) -> Self {
        self.write_back = yes;
        self
    }

    /// Whether a fence on an ordinary file waits for a write to a journal beside the file, which all
    /// threads share, rather than for an `msync` of its pages ([`Durability::Journal`]; default no). On
    /// persistent memory and in memory it changes nothing.
    ///
    /// The journal has the file's name with `.journal` behind it. As long as the pool is open, and after
    /// a crash, the two belong together: copy or move both, never one alone. Any opening
    /// after a crash replays the journal, whatever its options. A pool that was closed is its file alone.
    pub fn journal(mut self, yes: bool) -> Self {
        self.journal = yes;
        self
    }

    /// Bytes of the journal's file (default 32 MiB), or of the log of a [twin](Self::twin) (default a
    /// fourth of the pool, 32 to 256 MiB); 1 MiB to 1 TiB. The pool's file is synchronised each time half
    /// of it is used, and an opening after a crash reads no more than that. It is written once as a
    /// whole, with zeros.
    pub fn journal_bytes(mut self, bytes: u64) -> Self {
        self.journal_bytes = Some(bytes.clamp(1 << 20, 1 << 40));
        self
    }

    /// How long a fence waits when the journal is full, before the pool takes no writes any more
    /// (default 30 seconds).
    pub fn journal_wait(mut self, wait: Duration) -> Self {
        self.journal_wait = wait;
        self
    }

    /// Keeps a twin of a pool in memory (tmpfs) in a file at `path`, on a disk: mode
    /// [`Durability::Periodic`]. A fence copies its lines in memory and returns; a thread writes them to
    /// the twin every [`twin_every`](Self::twin_every). A kill of the process loses nothing: the pool is
    /// in memory. After a power failure, when that is gone, [`open`](crate::Pool::open) makes it anew of
    /// the twin: everything that had been done by some moment, and nothing that was done later, of all
    /// threads; at most what the last interval and the disk's own time took is missing.
    /// [`Pool::sync`](crate::Pool::sync) waits until the twin has everything.
    ///
    /// The twin holds a log ([`journal_bytes`](Self::journal_bytes)) and the pool's bytes. A new pool's,
    /// and one that a kill left behind or that is missing, is made in the background while the pool is
    /// used; the old one stays until then, and `sync` waits for the new one. A twin of another pool, or of
    /// a later state of this one, is an error.
    ///
    /// If the disk fails, or takes nothing for [`journal_wait`](Self::journal_wait) while there is no room
    /// left, the pool goes on without: `sync` fails for good, [`Pool::twin`](crate::Pool::twin) says
    /// why, and the twin stays as it is. The next opening makes a new one.
    ///
    /// A pool whose own file is on a disk is refused. Without this option the twin is not looked at.
    pub fn twin(mut self, path: impl Into<PathBuf>) -> Self {
        self.twin = Some(path.into());
        self
    }

    /// How long the twin waits after a fence before it is written (default 100 milliseconds): what a
    /// power failure may take, besides what the disk needs for the write.
    pub fn twin_every(mut self, every: Duration) -> Self {
        self.twin_every = every;
        self
    }

    /// Forces a flush instruction (default: the best of the CPU). Opening is an error if the CPU
    /// has not got it.
    pub fn flush_instruction(mut self, instruction: FlushInstruction) -> Self {
        self.flush_instruction = Some(instruction);
        self
    }

    /// Whether to ask the kernel for huge pages for a pool in a file (default yes); no call is made if
    /// not. On DAX and on tmpfs that is advice (`MADV_HUGEPAGE`). On a tmpfs that gives huge pages to
    /// nobody who does not ask for each, they are asked for as memory is handed out (`MADV_COLLAPSE`,
    /// Linux 6.7), up to 6 MiB ahead of its use, after a trial on a scratch file of the same mount.
    /// Never in a file on a disk: there each fence would write 2 MiB.
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

    /// Opens a pool whose journal is lost for good: missing, another's, or not to be read (default no).
    /// What the file holds by itself is any part of what was acknowledged since the last checkpoint, page
    /// by page, and need not fit together: the pool may not open even so, and an index in it may be
    /// damaged. Verify it, and rather save what is left in a new pool. A journal that can be read is
    /// replayed all the same.
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

    /// Flushes and fences through PMDK's `libpmem` instead of by instructions of this library
    /// (default no); in the modes that flush or fence, elsewhere it changes nothing. Opening is an
    /// error if the library cannot be loaded, or if an environment variable would change what it
    /// does. With the feature `libpmem`.
    #[cfg(feature = "libpmem")]
    pub fn libpmem(mut self, yes: bool) -> Self {
        self.libpmem = yes;
        self
    }

    /// The exact size of a pool created with these options, in bytes.
    ///
    /// # Errors
    /// [`PmError::BadOption`].
    pub fn created_size(&self) -> Result<u64, PmError> {
        let shape = self.shape();
        shape.check()?;
        Ok(shape.geometry(shape.round(self.size))?.end)
    }

    /// What was chosen, or follows from the size.
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
