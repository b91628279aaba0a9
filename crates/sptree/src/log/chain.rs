//! Chains: the entries of one buffer, from the newest to the oldest.

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::Ordering::{Acquire, Release};

use pmindex_core::{Medium, PPtr, PmError, PmU64};
use pmindex_log::{LINE_BYTES, LINE_WORDS};

use super::Log;
use super::entry::{self, Entry, Kind};
use super::layout::Location;

/// A chain: its newest entry, and the sequence number of the last one that it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The newest entry; none if the chain has ended.
    pub head: Location,
    /// The greatest sequence number.
    pub seq: u64,
}

impl<M: Medium> Log<M> {
    /// Reads the entry at a location.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there is none.
    pub fn entry(&self, location: Location) -> Result<Entry<'_>, PmError> {
        let entry = self.base.entry(location)?;
        let offset = self.pool().pptr(&entry.payload[0]).offset();
        entry::decode(entry).ok_or(PmError::Corrupt { what: "an entry of the log", offset })
    }

    /// Visits the entries of a chain, the newest first, until `visit` returns `false`. The chain ends at an
    /// end record, which is not visited.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the chain has more than `limit` entries, or one that is not its own.
    pub fn follow<'l>(
        &'l self,
        id: u64,
        chain: Chain,
        limit: usize,
        mut visit: impl FnMut(Location, &Entry<'l>) -> bool,
    ) -> Result<(), PmError> {
        let mut at = chain.head;
        let mut before = chain.seq.saturating_add(1);
        for _ in 0..=limit {
            if at.is_none() {
                return Ok(());
            }
            let entry = self.entry(at)?;
            if entry.id != id || entry.seq >= before {
                break;
            }
            if entry.kind == Kind::End || !visit(at, &entry) {
                return Ok(());
            }
            (before, at) = (entry.seq, entry.next);
        }
        Err(PmError::Corrupt { what: "a chain of the log", offset: id })
    }

    /// Fetches the entries of chains that opening found, those of all chains in parallel, since an entry tells
    /// only the location of the one before it. A hint.
    pub fn prefetch_recovered(&self, ids: impl Iterator<Item = u64>, limit: usize) {
        let pool = &**self.pool();
        let offset_of = |at: Location| {
            let segment = self.segments().get(at.segment())?;
            (at.line() < segment.lines).then(|| segment.offset + u64::from(at.line()) * LINE_BYTES)
        };
        let heads = ids.map(|id| self.recovered(id).head);
        let mut locations: Vec<Location> = heads.filter(|head| !head.is_none()).collect();
        for _ in 0..limit {
            for offset in locations.iter().filter_map(|&at| offset_of(at)) {
                pool.prefetch(PPtr::<PmU64>::new(offset));
            }
            locations.retain_mut(|at| {
                let cells = offset_of(*at).and_then(|offset| pool.words(offset, LINE_WORDS).ok());
                *at = cells.map_or(Location::NONE, |cells| entry::next_of(pool.pm(), cells));
                !at.is_none()
            });
        }
    }

    /// Returns a chain as it was when the log was opened, whether or not it was used since; without entries,
    /// an empty chain.
    ///
    /// # Cost
    /// Constant once all chains are found; before, it reads the checkpoint and a word of every line that was
    /// appended since.
    #[must_use]
    pub fn recovered(&self, id: u64) -> Chain {
        if self.recovered.get().is_none()
            && let Some(source) = self.source()
        {
            return self.find(&source, id);
        }
        let found = self.recovered.get().and_then(|all| all.get(&id).copied());
        found.unwrap_or_default()
    }

    /// Returns all chains that had entries when the log was opened, once they are found.
    pub fn all_recovered(&self) -> impl Iterator<Item = (u64, Chain)> {
        self.recovered
            .get()
            .into_iter()
            .flatten()
            .filter(|(_, chain)| !chain.head.is_none())
            .map(|(&id, &chain)| (id, chain))
    }

    /// Returns the greatest sequence number of any chain when the log was opened, or that was
    /// [forgotten](Self::forget_chain) since. A new chain begins behind it.
    #[must_use]
    pub fn greatest_seq(&self) -> u64 {
        self.greatest.load(Acquire)
    }

    /// Notes the last sequence number of a chain that ends.
    pub fn forget_chain(&self, seq: u64) {
        self.greatest.fetch_max(seq, std::sync::atomic::Ordering::AcqRel);
    }

    /// Notes that every recovered chain is in a buffer, or has ended: checkpoints may be made.
    pub fn set_restored(&self) {
        self.restored.store(true, Release);
    }
}

/// Hashes the ids of chains, which are multiples of 64.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl BuildHasher for IdHasher {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        let product = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}
