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
    /// The entry at a location.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there is none.
    pub fn entry(&self, location: Location) -> Result<Entry<'_>, PmError> {
        let entry = self.base.entry(location)?;
        let offset = self.pool().pptr(&entry.payload[0]).offset();
        entry::decode(entry).ok_or(PmError::Corrupt { what: "an entry of the log", offset })
    }

    /// Visits the entries of a chain, the newest first, as long as `visit` says so. End records are
    /// not visited: there the chain ends.
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

    /// Fetches the entries of chains that opening found, of all of them at once: each says only where
    /// the one before it is. A hint.
    pub fn prefetch_recovered(&self, ids: impl Iterator<Item = u64>, limit: usize) {
        let pool = &**self.pool();
        let offset_of = |at: Location| {
            let segment = self.segments().get(at.segment())?;
            (at.line() < segment.lines).then(|| segment.offset + u64::from(at.line()) * LINE_BYTES)
        };
        let heads = ids.map(|id| self.recovered(id).head);
        let mut ways: Vec<Location> = heads.filter(|head| !head.is_none()).collect();
        for _ in 0..limit {
            for offset in ways.iter().filter_map(|&at| offset_of(at)) {
                pool.prefetch(PPtr::<PmU64>::new(offset));
            }
            ways.retain_mut(|at| {
                let cells = offset_of(*at).and_then(|offset| pool.words(offset, LINE_WORDS).ok());
                *at = cells.map_or(Location::NONE, |cells| entry::next_of(pool.pm(), cells));
                !at.is_none()
            });
        }
    }

    /// What there was of a chain when the log was opened, whether or not it was used since. No entries:
    /// an empty chain.
    ///
    /// # Cost
    /// Constant; before all chains are found, a word of every line that was appended since the
    /// checkpoint, and the checkpoint.
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

    /// All chains that had entries when the log was opened, once they are found.
    pub fn all_recovered(&self) -> impl Iterator<Item = (u64, Chain)> {
        self.recovered
            .get()
            .into_iter()
            .flatten()
            .filter(|(_, chain)| !chain.head.is_none())
            .map(|(&id, &chain)| (id, chain))
    }

    /// No entry of any chain had a greater sequence number when the log was opened: where a chain
    /// begins of which nothing is known.
    #[must_use]
    pub fn greatest_seq(&self) -> u64 {
        self.greatest.load(Acquire)
    }

    /// Notes that a chain's last sequence number will be forgotten.
    pub fn forget_chain(&self, seq: u64) {
        self.greatest.fetch_max(seq, std::sync::atomic::Ordering::AcqRel);
    }

    /// Every recovered chain is in a buffer, or ended, and checkpoints are told so from now on.
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
