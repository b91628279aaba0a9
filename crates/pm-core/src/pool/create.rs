//! Formatting and opening a pool on any medium: no system call, no thread, no mapping.
//!
//! ```text
//! create
//! step  store                                                durable before
//! S1    superblock bodies, directory, slots, zones           S2
//! S2    superblock magic, both copies (LIN)                  return (DUR)
//!
//! open
//! step  store                                                durable before
//! S0    the superblock as it was read; after an unclean end  S3, any use of it
//!       everything that the dead process stored; the file
//!       and its name, in a mode that survives power failure
//! S3 S4 superblock: generation + 1, not clean (LIN)          recovery, return
//!       recovery of the allocator: its own steps             return
//! ```
//!
//! A crash during creation leaves no pool or a good empty one. An opening may crash anywhere and be repeated:
//! the generation increases once more, and recovery is idempotent.
//!
//! Because of S0 no recovery, of the allocator or of an index, need ask whether a word that it reads is
//! durable. A process that dies alone leaves its last stores in the caches (of the CPU, or of the kernel),
//! where the next process finds them; a power failure may still lose them, after that process has built on
//! them. So opening makes them durable before it looks at anything but the superblock. Of a pool that was closed
//! the superblock may not be durable, if the process died while closing it; and nothing may be, if that was in a
//! mode that waits for no disk, or if the file is a copy. What an opening acknowledges depends on all of it.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::alloc::Heap;
use crate::arch;
use crate::error::{OpenError, OpenFault, PmError};
use crate::media::{Mapped, Medium, Permit, Traced};
use crate::mode::Durability;
use crate::process::Process;
use crate::region::Region;
use crate::trace::Space;

use super::activity::Splits;
use super::claim::Claims;
use super::damage::Damage;
use super::describe::Origin;
use super::directory::Directory;
use super::dropping::Drops;
use super::layout::DIRECTORY_ENTRIES;
use super::options::PoolOptions;
use super::path::Backing;
use super::superblock::{Found, Superblock, UpdateFault};
use super::{Facts, Pool};

/// The path of a pool without a file.
const MEMORY: &str = "(memory)";

/// The parts that a pool is assembled from: its memory, its file, and the facts found about them.
pub(super) struct PoolParts {
    pub(super) region: Region,
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) emulated: bool,
    pub(super) dirty_shutdowns: u64,
    pub(super) origin: Origin,
    pub(super) backing: Option<Backing>,
    /// The permission that a thread in recovery holds.
    pub(super) permit: Permit,
}

impl PoolParts {
    pub(super) fn memory(region: Region, emulated: bool) -> Self {
        let durability = if emulated { Durability::Flush } else { Durability::Volatile };
        let (path, origin) = (MEMORY.into(), Origin::Memory);
        let (dirty_shutdowns, backing) = (0, None);
        let permit = Permit::new();
        Self { region, path, durability, emulated, dirty_shutdowns, origin, backing, permit }
    }

    /// Asks the kernel to read ahead what recovery reads from a disk.
    fn read_ahead(&self) {
        if let (Some(backing), Durability::Msync | Durability::Journal) =
            (&self.backing, self.durability)
        {
            backing.read_ahead(&self.region);
        }
    }

    /// Returns the stamp of the journal that serves the fences, or 0.
    fn stamp(&self) -> u64 {
        self.backing.as_ref().and_then(Backing::journal).map_or(0, |journal| journal.stamp())
    }

    /// Executes S0 for the contents of a pool that was closed, if the mode of this opening survives power failure.
    fn write_back_closed(&self) -> Result<(), PmError> {
        match &self.backing {
            Some(backing) if self.durability.survives_power_failure() && !self.emulated => {
                backing.write_back_closed(&self.region)
            }
            _ => Ok(()),
        }
    }

    /// Executes S0 after an unclean end, except for a medium that survives no power failure.
    fn write_back<M: Medium>(&self, pm: &M, opts: &PoolOptions) -> Result<(), PmError> {
        match &self.backing {
            Some(backing) if opts.write_back => backing.write_back(pm, &self.region),
            Some(_) => Ok(()),
            // The simulator's memory, whose caches the simulator models.
            None => {
                pm.written_back();
                Ok(())
            }
        }
    }
}

impl Pool {
    /// Creates a pool of at least `len` bytes in anonymous memory; nothing survives.
    pub fn volatile(len: usize) -> Result<Self, PmError> {
        let opts = PoolOptions::new().size(len as u64).grow(false);
        Self::create_in_memory(&opts, |mapped| mapped)
    }

    /// Creates a pool of at least `len` bytes in anonymous memory that executes every flush and fence:
    /// emulated PM.
    pub fn emulated(len: usize) -> Result<Self, PmError> {
        let opts = PoolOptions::new().size(len as u64).grow(false).emulate_pm(true);
        Self::create_in_memory(&opts, |mapped| mapped)
    }
}

impl Pool {
    /// Opens a copy of a pool's bytes in memory: recovery included, nothing survives. For images from
    /// elsewhere that are to be inspected; the copy has exactly their length, so tools that watch the heap
    /// see every access beyond it.
    ///
    /// # Errors
    /// [`OpenError`], as for a file with these bytes. An image that ends within a page is cut there.
    pub fn open_copy(image: &[u8], opts: &PoolOptions) -> Result<Self, OpenError> {
        let region = Region::heap(image.len());
        let words = region.words(0, image.len() / 8).unwrap_or_default();
        for (word, bytes) in words.iter().zip(image.as_chunks().0) {
            Mapped::dram().store_word(word, u64::from_le_bytes(*bytes));
        }
        let mapped = Mapped::new(Durability::Volatile, arch::best_flush());
        let opened = Self::open_on(PoolParts::memory(region, false), mapped, opts);
        opened.map_err(|fault| fault.at(Path::new(MEMORY)))
    }

    /// Creates a pool like [`Pool::emulated`] that counts every store, flush and fence; flushes that do
    /// nothing are counted separately. The [counter](Mapped::counter) of its medium has the counts.
    pub fn counting(len: usize) -> Result<Self, PmError> {
        let opts = PoolOptions::new().size(len as u64).grow(false).emulate_pm(true);
        Self::create_in_memory(&opts, Mapped::counting)
    }
}

impl Pool<Traced> {
    /// Creates a pool in a traced space, for the crash simulator.
    #[inline] // compiled where it is called: programs neither simulate nor count
    pub fn create_traced(space: &Space, opts: &PoolOptions) -> Result<Self, OpenError> {
        Self::create_in(space.region(), space.medium(), &space.options(opts))
    }

    /// Opens the pool in a traced space.
    #[inline] // compiled where it is called: programs neither simulate nor count
    pub fn open_traced(space: &Space, opts: &PoolOptions) -> Result<Self, OpenError> {
        Self::open_in(space.region(), space.medium(), opts)
    }
}

impl<M: Medium> Pool<M> {
    /// Creates a pool in anonymous memory, on the medium that `wrap` makes of a plain mapping. It grows up to
    /// [`PoolOptions::max_size`], as far as the address space allows, and executes flushes and fences if
    /// [`PoolOptions::emulate_pm`] is set.
    pub fn create_in_memory(
        opts: &PoolOptions,
        wrap: impl FnOnce(Mapped) -> M,
    ) -> Result<Self, PmError> {
        let size = opts.created_size()?;
        let room = if opts.grow { opts.max_size.unwrap_or(size).max(size) } else { size };
        let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let region = Region::anonymous_up_to(bytes(room), bytes(size))?;
        let instruction = opts.flush_instruction.unwrap_or_else(arch::best_flush);
        let flushes = opts.emulate_pm || opts.flush_instruction.is_some();
        if flushes && !arch::has_flush(instruction) {
            return Err(PmError::NoInstruction { instruction });
        }
        let parts = PoolParts::memory(region, opts.emulate_pm);
        let medium = wrap(Mapped::new(parts.durability, instruction));
        Self::create_on(parts, medium, opts).map(Self::complete_opening).map_err(
            |fault| match fault {
                OpenFault::Pool(error) => error,
                other => PmError::Os {
                    what: "creating a pool in memory",
                    source_text: other.at(Path::new(MEMORY)).to_string(),
                },
            },
        )
    }

    /// Formats `region`, which must be zero and hold no pool, and opens the pool in it.
    pub(crate) fn create_in(
        region: Region,
        medium: M,
        opts: &PoolOptions,
    ) -> Result<Self, OpenError> {
        let parts = PoolParts::memory(region, true);
        let pool = Self::create_on(parts, medium, opts).map(Self::complete_opening);
        pool.map_err(|fault| fault.at(Path::new(MEMORY)))
    }

    /// Opens the pool in `region`.
    pub(crate) fn open_in(
        region: Region,
        medium: M,
        opts: &PoolOptions,
    ) -> Result<Self, OpenError> {
        let parts = PoolParts::memory(region, true);
        Self::open_on(parts, medium, opts).map_err(|fault| fault.at(Path::new(MEMORY)))
    }

    /// Makes a pool, which is not [completely open](Self::complete_opening) yet.
    pub(super) fn create_on(
        parts: PoolParts,
        medium: M,
        opts: &PoolOptions,
    ) -> Result<Self, OpenFault> {
        let size = opts.created_size()?;
        let len = parts.region.len() as u64;
        if size > len {
            return Err(OpenFault::Truncated { len, expected: size });
        }
        let superblock = Superblock {
            sequence: 1,
            generation: 1,
            size,
            shape: opts.shape(),
            clean: false,
            uuid: opts.uuid.unwrap_or_default(),
            dirty_shutdowns: parts.dirty_shutdowns,
            entries: DIRECTORY_ENTRIES as u64,
            journal: parts.stamp(),
        };
        let found = Found { superblock, copy: 0, damaged: false };
        let pool = Self::assemble(parts, medium, opts, found, true)?;
        // S1: everything but the magic. A directory of zeros is an empty one.
        let bodies = superblock.write_bodies(&pool.medium, &pool.region)?;
        let durable = pool.medium.fence(bodies)?;
        pool.format_heap()?; // durable before: S2
        // S2, LIN(create)
        let magic = Superblock::write_magic(&pool.medium, &pool.region, durable)?;
        pool.medium.fence(magic)?; // DUR(create)
        pool.load_directory()?;
        Ok(pool)
    }

    /// Declares that nothing of an opening or creation is left that may fail. Until then dropping the pool leaves it
    /// as a crash would: it was not recovered, or has no name, and may have no thread to close it.
    pub(super) fn complete_opening(self) -> Self {
        self.ended.store(false, Relaxed);
        self
    }

    pub(super) fn open_on(
        parts: PoolParts,
        medium: M,
        opts: &PoolOptions,
    ) -> Result<Self, OpenFault> {
        let _opening = opts.read_only.then(|| parts.permit.take()); // it is recovery
        let found = Superblock::read(&medium, &parts.region)?;
        let superblock = found.superblock;
        let was_clean = superblock.clean && !found.damaged;
        let (recorded, counted) = (superblock.dirty_shutdowns, parts.dirty_shutdowns);
        if counted != recorded && !was_clean && !opts.accept_dirty_shutdown {
            return Err(OpenFault::DirtyShutdown { recorded, found: counted });
        }
        // S0, durable before: S3, and everything that is read from now on.
        if was_clean {
            let read = Superblock::flush(&medium, &parts.region)?;
            medium.fence(read)?;
            parts.write_back_closed()?;
        } else {
            parts.write_back(&medium, opts)?;
        }
        parts.read_ahead();
        let stamp = parts.stamp();
        let mut pool = Self::assemble(parts, medium, opts, found, was_clean)?;
        pool.facts.generation = superblock.generation.wrapping_add(1);
        // S3, S4: state of the last generation is void from here on.
        pool.update_superblock(|next| {
            next.generation = pool.facts.generation;
            next.clean = false;
            next.dirty_shutdowns = counted;
            next.journal = stamp; // A2
        })?; // durable before: recovery, and whatever the journal serves
        pool.begin_journal()?;
        pool.recover_heap()?;
        pool.load_directory()?;
        Ok(pool.complete_opening())
    }

    /// Assembles the pool as the superblock describes it; its parts are not yet formatted or recovered.
    fn assemble(
        parts: PoolParts,
        medium: M,
        opts: &PoolOptions,
        found: Found,
        was_clean: bool,
    ) -> Result<Self, OpenFault> {
        let Superblock { size, shape, .. } = found.superblock;
        let geometry =
            shape.geometry(size).map_err(|bad| OpenFault::Damaged { what: bad.what, offset: 0 })?;
        if found.superblock.entries != DIRECTORY_ENTRIES as u64 {
            return Err(OpenFault::Damaged { what: "number of directory entries", offset: 0 });
        }
        let len = parts.region.len() as u64;
        if size > len {
            return Err(OpenFault::Truncated { len, expected: size });
        }
        // A longer file is legal: growth was interrupted before it published the size.
        parts.region.shorten(size as usize);
        let room = parts.region.capacity() as u64;
        let facts = Facts {
            path: parts.path,
            process: Process::current(),
            uuid: found.superblock.uuid,
            generation: found.superblock.generation,
            was_clean,
            superblock_damaged: found.damaged,
            read_only: opts.read_only,
            grow: opts.grow,
            max_size: shape.fit(opts.max_size.unwrap_or(room).min(room)),
            durability: parts.durability,
            emulated: parts.emulated,
            origin: parts.origin,
        };
        Ok(Self {
            region: parts.region,
            medium,
            heap: Heap::new(geometry),
            directory: Directory::default(),
            drops: Drops::default(),
            claims: Claims::default(),
            damage: Damage::default(),
            splits: Splits::default(),
            superblock: Mutex::new(found),
            growing: Mutex::new(()),
            facts,
            permit: parts.permit,
            rolls_back: Permit::new(),
            ended: AtomicBool::new(true),
            backing: parts.backing,
        })
    }

    /// Changes the superblock. Two fences: the second copy is written when the first is durable.
    pub(super) fn update_superblock(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<(), PmError> {
        let mut found = self.medium.lock(&self.superblock);
        let mut next = found.superblock;
        change(&mut next);
        found.update(&self.medium, &self.region, next).map_err(|fault| match fault {
            UpdateFault::Gone => PmError::Forked,
            UpdateFault::Lost(lost) => lost.into(),
        })
    }
}
