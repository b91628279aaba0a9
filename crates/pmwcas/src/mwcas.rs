//! The descriptor pool as an object in DRAM.

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use std::sync::Arc;

use pmindex_core::{Claim, Mapped, Medium, OpenIndex, PmError, PmPtr, PmU64, Pool, pm_struct};

use crate::claims::Claims;
use crate::config::Config;
use crate::layout::{MAX_RECYCLERS, Slot, Table};
use crate::partition::Partitions;
use crate::recover::Recovery;
use crate::recycle::{OneBlock, Recycler};

/// A word of DRAM alone on its cache line and on the neighbouring one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded(pub(crate) AtomicU64);

pm_struct! {
    /// The root block of a descriptor pool that has an entry in the pool's directory.
    #[align(64)]
    pub(crate) struct Root: size 64 {
        /// The block with the descriptors; null if the pool died while it was created.
        pub(crate) table: PmPtr<u64>,
        /// Its configuration.
        pub(crate) config: PmU64,
        pub(crate) reserved: [PmU64; 6],
    }
}

/// The recyclers to open a descriptor pool with.
pub type Recyclers<M> = Vec<Box<dyn Recycler<M>>>;

/// Persistent multi-word compare-and-swap over the words of one pool.
///
/// Shared by all threads; see the [crate documentation](crate) for the protocol.
pub struct Mwcas<M: Medium = Mapped> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) table: Table,
    /// The last stamp given out.
    pub(crate) clock: Padded,
    /// A horizon that is durable on the medium. `u64::MAX` in a volatile pool.
    pub(crate) durable: Padded,
    pub(crate) partitions: Partitions,
    pub(crate) claims: Claims,
    pub(crate) recyclers: Recyclers<M>,
    pub(crate) patience: u32,
    recovery: Recovery,
    /// Last, so that everything else is dropped before the descriptor pool can be opened again.
    _claim: Claim,
    /// The entry of the directory, if it has one.
    _entry: Option<OpenIndex>,
}

impl<M: Medium> Mwcas<M> {
    /// The type under which [`create`](Self::create) enters descriptor pools in the directory.
    pub const KIND: [u8; 8] = *b"pmwcas  ";

    /// Creates a descriptor pool as an entry of the pool's directory.
    ///
    /// # Errors
    /// Those of the pool: full, name taken.
    pub fn create(pool: &Arc<Pool<M>>, name: &str, config: Config) -> Result<Self, PmError> {
        let config = config.clamped();
        let entry = pool.create_index::<Root>(name, Self::KIND, config.pack(), |root| {
            let pm = pool.pm();
            pm.store(&root.table, pmindex_core::PPtr::NULL);
            pm.store(&root.config, config.pack());
            pm.flush(root)
        })?;
        Self::start(pool, entry)
    }

    /// Opens the descriptor pool `name`: completes or rolls back the operations that the last process left
    /// unfinished.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the directory has no such name, or the contents break an invariant;
    /// [`PmError::AlreadyOpen`].
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, PmError> {
        let entry = pool
            .open_index(name)?
            .filter(|entry| entry.kind == Self::KIND)
            .ok_or(PmError::Corrupt { what: "no descriptor pool of this name", offset: 0 })?;
        Self::start(pool, entry)
    }

    /// Opens the descriptor pool of an entry.
    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, PmError> {
        let root = pool.get(entry.root::<Root>())?;
        let pm = pool.pm();
        if pm.load(&root.table).is_null() {
            // The process died after the entry was made and before the block was allocated.
            let config = Config::unpack(pm.load(&root.config));
            if !config.is_valid() {
                let offset = entry.root::<Root>().offset();
                return Err(PmError::Corrupt { what: "a descriptor pool's configuration", offset });
            }
            Self::allocate_table(pool, &root.table, config)?;
        }
        let opened = Self::open_at(pool, pm.load(&root.table).offset(), Vec::new())?;
        Ok(Self { _entry: Some(entry), ..opened })
    }

    /// Allocates and formats a descriptor pool, and stores its pointer in a word that only this thread
    /// changes, such as a word of an index's root block. Two fences. [`open_at`](Self::open_at) opens it.
    ///
    /// # Errors
    /// Those of the pool.
    #[track_caller]
    pub fn allocate_table(
        pool: &Pool<M>,
        dest: &PmPtr<u64>,
        config: Config,
    ) -> Result<(), PmError> {
        let config = config.clamped();
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Table::bytes(config), 64)?;
        let filled = Table::format(pool, block.ptr().offset(), config)?;
        op.allocate(&block, pmindex_core::Owner::pointer(dest, block.ptr()))?;
        op.prepare(filled)?; // durable before: the pointer to it
        pool.pm().store(dest, block.ptr().cast());
        let flushed = op.seal().and(pool.pm().flush(dest));
        let durable = pool.pm().fence(flushed)?;
        op.finish(durable);
        Ok(())
    }

    /// Opens the descriptor pool in the block at `offset` and recovers it.
    ///
    /// # Errors
    /// [`PmError::AlreadyOpen`] if an object is open on the block; [`PmError::Corrupt`] if the block is no
    /// descriptor pool or its contents break an invariant.
    pub fn open_at(
        pool: &Arc<Pool<M>>,
        offset: u64,
        recyclers: Recyclers<M>,
    ) -> Result<Self, PmError> {
        let claim = pool.claim_block(offset, "the descriptor pool")?;
        let table = Table::at(pool, offset)?;
        let mut all: Recyclers<M> = vec![Box::new(OneBlock)];
        all.extend(recyclers);
        if all.len() > MAX_RECYCLERS {
            return Err(PmError::TooLarge { wanted: all.len() as u64, max: MAX_RECYCLERS as u64 });
        }
        let recovery = Recovery::run(pool, &table, &all)?;
        let durable = if pool.pm().is_volatile() { u64::MAX } else { recovery.horizon };
        Ok(Self {
            table,
            clock: Padded(AtomicU64::new(recovery.horizon)),
            durable: Padded(AtomicU64::new(durable)),
            partitions: Partitions::new(table.config()),
            claims: Claims::new(table.config(), !pool.pm().is_volatile()),
            recyclers: all,
            patience: 128,
            recovery,
            pool: Arc::clone(pool),
            _claim: claim,
            _entry: None,
        })
    }

    /// Sets how many turns a thread waits for another operation that blocks it before it completes that
    /// operation itself (default 128). After its own operation failed because of others, the thread waits up
    /// to four times as many turns.
    #[must_use]
    pub fn with_patience(mut self, turns: u32) -> Self {
        self.patience = turns;
        self
    }

    /// Returns the pool that holds the words.
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// Returns what recovery found and completed when the descriptor pool was opened.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the configuration it was created with.
    pub fn config(&self) -> Config {
        self.table.config()
    }

    /// Returns the offset of the block with the descriptors.
    pub fn table_offset(&self) -> u64 {
        self.table.offset()
    }

    pub(crate) fn slot(&self, slot: u32) -> Result<Slot<'_>, PmError> {
        self.table.slot(&self.pool, slot)
    }

    pub(crate) fn durable_horizon(&self) -> u64 {
        self.durable.0.load(Acquire)
    }
}

impl<M: Medium> fmt::Debug for Mwcas<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mwcas")
            .field("table", &self.table)
            .field("clock", &self.clock.0)
            .field("durable", &self.durable.0)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::Entry;

    #[test]
    fn claims_ascend_and_words_of_one_cell_have_one() {
        let config = Config { partitions: 1, per_partition: 4, words: 32 };
        let claims = Claims::new(config, true);
        let entry = |target| Entry { target, ..Entry::EMPTY };
        let mut entries: Vec<_> = (1..32).map(|i| entry(8 * i)).collect();
        entries.push(entry(0)); // a block of memory
        let claimed = claims.of(&entries);
        assert!(claimed.numbers().is_sorted_by(|a, b| a < b));
        assert!(claimed.numbers().len() < 31, "32 cells: some words share one");
        for entry in &entries[..31] {
            assert!(claimed.numbers().contains(&claims.of(&[*entry]).numbers()[0]));
        }
        let covered = Entry { covered: true, ..entry(8) };
        assert_eq!(claims.of(&[covered, entry(16)]).numbers(), claims.of(&[entry(16)]).numbers());
        assert!(Claims::new(config, false).of(&entries).numbers().is_empty());
    }
}
