//! Buffers, and the assignment of keys to them.
//!
//! Every buffer has a range of ranks. A range is halved, and never united with another.
//!
//! # Lock order
//!
//! A buffer's lock, then the table's. To find a buffer, the table's lock is released before the buffer's is
//! taken; then the buffer's range is checked again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::Medium;

use crate::journal::BufferedEntry;

/// Returns the maximum number of records of a buffer: half of those of a component, as the paper has it, but 16 at
/// least, or all of a component that has fewer.
pub(crate) const fn capacity(records: u64) -> usize {
    match records {
        0..16 => records as usize,
        16..32 => 16,
        _ => (records / 2) as usize,
    }
}

/// A write that the index lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) key: u64,
    /// `None`: the key is removed.
    pub(crate) value: Option<u64>,
    /// `true` if the index has the key.
    pub(crate) present: bool,
    /// Its entry in the log, if there is one.
    pub(crate) kept: Option<BufferedEntry>,
}

/// The changes of a range of ranks.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The least rank of the range.
    first: u64,
    /// The greatest rank of the range.
    last: u64,
    /// By their keys.
    pub(crate) changes: BTreeMap<u64, Change>,
    /// The approximate number of records in the range.
    pub(crate) records: u64,
}

impl Buffer {
    /// Returns `true` if the range can be halved so that the upper half begins with this rank.
    pub(crate) fn has_inside(&self, rank: u64) -> bool {
        self.first < rank && rank <= self.last
    }

    /// Returns `true` if a rank, which is not before the range, is not behind it either.
    pub(crate) fn has(&self, rank: u64) -> bool {
        rank <= self.last
    }

    /// Returns the least and the greatest rank of the range.
    pub(crate) fn ends(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// Returns the number of records that the index lacks; negative if it has too many.
    pub(crate) fn surplus(&self) -> i64 {
        let surplus =
            |change: &Change| i64::from(change.value.is_some()) - i64::from(change.present);
        self.changes.values().map(surplus).sum()
    }
}

/// All buffers, by their least ranks.
#[derive(Debug)]
pub(crate) struct Buffers {
    table: Mutex<BTreeMap<u64, Arc<Mutex<Buffer>>>>,
}

impl Buffers {
    /// Makes buffers for all ranks, over this number of records, and puts changes into them, whose ranks ascend.
    pub(crate) fn new(records: u64, capacity: usize, changes: Vec<(u64, Change)>) -> Self {
        let records = records / (changes.len() / capacity.max(1) + 1) as u64;
        let from = |first| Buffer { first, last: u64::MAX, records, ..Buffer::default() };
        let (mut table, mut buffer, mut before) = (BTreeMap::new(), from(0), 0);
        for (rank, change) in changes {
            if buffer.changes.len() >= capacity && rank > before {
                let mut full = std::mem::replace(&mut buffer, from(rank));
                full.last = rank - 1;
                table.insert(full.first, Arc::new(Mutex::new(full)));
            }
            buffer.changes.insert(change.key, change);
            before = rank;
        }
        table.insert(buffer.first, Arc::new(Mutex::new(buffer)));
        Self { table: Mutex::new(table) }
    }

    /// Returns the number of records that the index lacks; negative if it has too many.
    pub(crate) fn surplus(&self, pm: &impl Medium) -> i64 {
        let mut surplus = 0;
        let _: Result<(), Infallible> = self.each(pm, |buffer| {
            surplus += buffer.surplus();
            Ok(())
        });
        surplus
    }

    /// Calls `body` with the buffer of a rank, which is locked meanwhile.
    pub(crate) fn with<R>(
        &self,
        pm: &impl Medium,
        rank: u64,
        body: impl FnOnce(&mut Buffer) -> R,
    ) -> R {
        loop {
            let found = pm.lock(&self.table).range(..=rank).next_back().map(|(_, b)| Arc::clone(b));
            let Some(shared) = found else { continue }; // rank 0 has one
            let mut buffer = pm.lock(&shared);
            if buffer.has(rank) {
                return body(&mut buffer);
            }
        }
    }

    /// Moves the upper half of an empty buffer's range, from `rank` on, to a new buffer.
    pub(crate) fn halve(&self, pm: &impl Medium, buffer: &mut Buffer, rank: u64) {
        let upper = Buffer {
            first: rank,
            last: buffer.last,
            records: buffer.records / 2,
            ..Buffer::default()
        };
        buffer.records -= upper.records;
        buffer.last = rank - 1;
        pm.lock(&self.table).insert(rank, Arc::new(Mutex::new(upper)));
    }

    /// Calls `body` with every buffer, one after the other, in the order of their ranges.
    pub(crate) fn each<E>(
        &self,
        pm: &impl Medium,
        mut body: impl FnMut(&mut Buffer) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rank = 0;
        loop {
            let last = self.with(pm, rank, |buffer| body(buffer).map(|()| buffer.last))?;
            match last.checked_add(1) {
                Some(next) => rank = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the approximate bytes of DRAM of the buffers.
    pub(crate) fn bytes(&self, pm: &impl Medium, records: u64) -> usize {
        let one = size_of::<Mutex<Buffer>>() + capacity(records) * size_of::<(u64, Change)>();
        pm.lock(&self.table).len() * one
    }
}
