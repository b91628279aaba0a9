//! The test's `crate::mwcas`: the same fields without a pool's directory.

use std::sync::atomic::Ordering::Acquire;

use pmindex_core::{LINE, PmError};

use crate::claims::Claims;
use crate::config::Config;
use crate::layout::{Slot, Table};
use crate::partition::Partitions;
use crate::primitive::{AtomicU64, Medium, Model, Pool};
use crate::watch;

pub(crate) struct Padded(pub(crate) AtomicU64);

pub(crate) struct Mwcas<M: Medium = Model> {
    pub(crate) pool: Pool<M>,
    pub(crate) table: Table,
    pub(crate) clock: Padded,
    pub(crate) durable: Padded,
    pub(crate) partitions: Partitions,
    pub(crate) claims: Claims,
    pub(crate) patience: u32,
}

/// Words of the table's header.
const HEADER: usize = 2 * LINE / 8;
/// Lines of target words, from the pool's second line on.
pub(crate) const TARGET_LINES: usize = 2;

impl Mwcas {
    /// Creates a descriptor pool for this number of threads and operations of up to `words` words. The
    /// targets are on the pool's second and third line, then comes the table.
    pub(crate) fn new(threads: u32, words: u32) -> Self {
        let config = Config { partitions: threads, per_partition: 4, words };
        let base = (1 + TARGET_LINES as u64) * LINE as u64;
        let len = base as usize / 8 + Table::bytes(config) as usize / 8;
        watch::begin(len);
        let pool = Pool::new(Model, len);
        let _ = Table::format(&pool, base, config).expect("there is room");
        let table = Table::at(&pool, base).expect("formatted above");
        let first = base as usize / 8 + HEADER;
        let slots = config.slots() as usize;
        let targets = LINE / 8..(1 + TARGET_LINES) * LINE / 8;
        watch::expect(watch::Map { targets, first, stride: (len - first) / slots, slots });
        let partitions = Partitions::new(config);
        let all: Result<Vec<_>, _> = (0..threads).map(|_| partitions.claim(pool.pm())).collect();
        drop(all.expect("nobody has them")); // used from here on
        Self {
            pool,
            table,
            clock: Padded(AtomicU64::new(0)),
            durable: Padded(AtomicU64::new(0)),
            partitions,
            claims: Claims::new(config, true),
            patience: 0,
        }
    }
}

impl<M: Medium> Mwcas<M> {
    pub(crate) fn table_offset(&self) -> u64 {
        self.table.offset()
    }

    pub(crate) fn slot(&self, slot: u32) -> Result<Slot<'_>, PmError> {
        self.table.slot(&self.pool, slot)
    }

    pub(crate) fn durable_horizon(&self) -> u64 {
        self.durable.0.load(Acquire)
    }
}
