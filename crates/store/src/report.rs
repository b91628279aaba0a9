//! What goes on in a store.

use std::fmt;
use std::path::PathBuf;

use pmindex_core::{Durability, Medium};

use crate::core::Core;

/// What goes on in a store, at about one moment: what [`Store::report`](crate::Store::report) returns. To a
/// person it prints itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// The pool's file, or `(memory)`.
    pub path: PathBuf,
    /// Bytes of the pool now.
    pub pool_bytes: u64,
    /// Bytes of it that are in use.
    pub used_bytes: u64,
    /// Bytes that it may grow to.
    pub max_bytes: u64,
    /// How a commit becomes durable.
    pub durability: Durability,
    /// The maps, open or not.
    pub maps: Vec<MapReport>,
    /// Commits since the store was opened, of transactions and of single writes beside a transaction or a
    /// snapshot; other single writes are not counted.
    pub commits: u64,
    /// Transactions that were refused because others changed what they had read; each run of one counts.
    pub conflicts: u64,
    /// Commits under way, and those that wait for room in the pool.
    pub unfinished: u64,
    /// Commits that are durable in the log and whose changes are not all made, those of before a crash that
    /// wait for their maps to be opened included.
    pub waiting: u64,
    /// Snapshots and transactions alive.
    pub readers: u64,
    /// Commits since the oldest of them began.
    pub oldest_reader_behind: u64,
    /// Snapshots and transactions that were ended because they kept too much of the past.
    pub ended_readers: u64,
    /// Bytes of memory kept for them, about.
    pub past_bytes: u64,
    /// The limit of that.
    pub past_bytes_max: u64,
    /// Who wants all commits in the log: watches, and the store itself if it keeps commits.
    pub watches: u32,
    /// Segments of the log.
    pub log_segments: u32,
    /// How many there may be.
    pub log_segments_max: u32,
}

/// A map, as a [`StoreReport`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapReport {
    /// Its name.
    pub name: String,
    /// The kind of its index, as the pool's directory has it.
    pub kind: String,
    /// Whether somebody has opened it since the store was opened.
    pub is_open: bool,
}

impl StoreReport {
    pub(crate) fn new<M: Medium>(core: &Core<M>, maps: Vec<MapReport>) -> Self {
        let (pool, figures) = (&core.pool, core.moments.figures(core.pm()));
        let (log_segments, log_segments_max) = core.redo.segments();
        Self {
            path: pool.path().into(),
            pool_bytes: pool.len(),
            used_bytes: pool.used_bytes(),
            max_bytes: pool.max_size(),
            durability: pool.durability(),
            maps,
            commits: figures.committed,
            conflicts: figures.conflicts,
            unfinished: figures.unfinished,
            waiting: core.redo.len(),
            readers: figures.readers,
            oldest_reader_behind: figures.behind,
            ended_readers: figures.ended,
            past_bytes: core.moments.kept(),
            past_bytes_max: core.moments.limit(),
            watches: figures.logging,
            log_segments,
            log_segments_max,
        }
    }
}

/// Bytes as a person reads them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"].into_iter().zip(1_u32..);
        let unit = units.filter(|(_, power)| self.0 >> (10 * power) > 0).last();
        let Some((name, power)) = unit else { return write!(f, "{} bytes", self.0) };
        let tenths = (u128::from(self.0) * 10) >> (10 * power);
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, conflicts, unfinished, waiting, readers, ended_readers, .. } = self;
        let [pool, used, max] = [self.pool_bytes, self.used_bytes, self.max_bytes].map(Bytes);
        writeln!(f, "store      {}, mode {}", self.path.display(), self.durability)?;
        writeln!(f, "space      {used} used of {pool}; may grow to {max}")?;
        for (at, map) in self.maps.iter().enumerate() {
            let heading = if at == 0 { "maps" } else { "" };
            let state = if map.is_open { "" } else { ", not open" };
            writeln!(f, "{heading:<10} {} ({}{state})", map.name, map.kind)?;
        }
        writeln!(f, "commits    {commits}, {unfinished} under way; {conflicts} conflicts")?;
        let behind = self.oldest_reader_behind;
        writeln!(
            f,
            "readers    {readers}, the oldest {behind} commits behind; {ended_readers} ended"
        )?;
        let [past, limit] = [self.past_bytes, self.past_bytes_max].map(Bytes);
        writeln!(f, "memory     {past} of at most {limit} for them")?;
        let (segments, most) = (self.log_segments, self.log_segments_max);
        write!(f, "log        {segments} of {most} segments; {waiting} commits to be finished; ")?;
        write!(f, "{} watch it", self.watches)
    }
}
