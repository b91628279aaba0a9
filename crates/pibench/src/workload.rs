//! Workloads: the keys of every chunk of every phase, made before the clock starts.
//!
//! Record numbers grow: `0..records` are loaded, later inserts take the numbers that follow.
//! Deletes take distinct records at random among those loaded; lookups, scans and updates take
//! uniformly random records that exist at that time, with repetition.

use crate::keys::KeySpace;
use crate::phase::Phase;
use crate::subject::Job;

/// Records read by one scan.
pub const SCAN_LENGTH: usize = 100;
/// Keys in one call of `get_many` or `insert_many`.
pub const BATCH: usize = 64;
/// Chunks a phase is cut into; its figure is the median of them.
pub const CHUNKS: usize = 5;

/// The sizes of a measurement and the records that exist.
#[derive(Debug)]
pub struct Workload {
    records: u64,
    ops: u64,
    keys: KeySpace,
    /// Numbers of the records that exist, in no order.
    live: Vec<u64>,
    /// The number of the next record.
    next: u64,
}

/// The operations of one chunk for one thread.
#[derive(Debug)]
pub(crate) enum Batch {
    /// Keys.
    Keys(Vec<u64>),
    /// Records.
    Records(Vec<(u64, u64)>),
}

/// One chunk: the operations of each thread.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) phase: Phase,
    pub(crate) parts: Vec<Batch>,
}

/// A job with its keys.
#[derive(Debug)]
pub struct OwnedJob {
    phase: Phase,
    batch: Batch,
}

impl OwnedJob {
    /// The job.
    #[must_use]
    pub fn job(&self) -> Job<'_> {
        self.batch.job(self.phase)
    }
}

impl Workload {
    /// A workload of `records` records and `ops` operations a phase.
    ///
    /// `ops` is at most `records`, so that deletes find enough of them, and at least one batch a
    /// chunk.
    #[must_use]
    pub fn new(records: u64, ops: u64, seed: u64) -> Self {
        let least = (BATCH * CHUNKS) as u64;
        let records = records.max(least);
        let ops = ops.clamp(least, records);
        Self { records, ops, keys: KeySpace::new(seed), live: Vec::new(), next: 0 }
    }

    /// A sensible number of operations a phase: a quarter of the records, but neither so few that
    /// the clock is too coarse nor so many that it takes all day.
    #[must_use]
    pub fn default_ops(records: u64) -> u64 {
        (records / 4).clamp(100_000.min(records), 2_000_000)
    }

    /// Records loaded.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Records that exist now.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.len() as u64
    }

    /// The most records that ever exist.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.records + 2 * self.ops
    }

    /// Operations of a phase over all chunks and threads.
    #[must_use]
    pub fn ops(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Load => self.records,
            Phase::Scan => (self.ops / 20).max(CHUNKS as u64),
            _ => self.ops,
        }
    }

    /// Chunk number `chunk` of a phase, split over `threads`.
    pub(crate) fn chunk(&mut self, phase: Phase, chunk: usize, threads: usize) -> Chunk {
        let ops = self.ops(phase);
        let share = |i: usize| ops * i as u64 / CHUNKS as u64;
        let count = share(chunk + 1) - share(chunk);
        let parts = split(count, threads).map(|n| self.batch(phase, n)).collect();
        let made = Chunk { phase, parts };
        self.settle(&made);
        made
    }

    /// All operations of a phase for one thread, to be run by hand.
    pub fn jobs(&mut self, phase: Phase) -> Vec<OwnedJob> {
        let chunks = (0..CHUNKS).flat_map(|chunk| self.chunk(phase, chunk, 1).parts);
        chunks.map(|batch| OwnedJob { phase, batch }).collect()
    }

    fn batch(&mut self, phase: Phase, count: u64) -> Batch {
        match phase {
            Phase::Load | Phase::Insert | Phase::InsertMany => {
                let first = self.next;
                self.next += count;
                Batch::Records((first..self.next).map(|i| (self.keys.key(i), i)).collect())
            }
            Phase::Update => Batch::Records((0..count).map(|i| (self.pick(), i)).collect()),
            Phase::GetMiss => Batch::Keys((0..count).map(|_| self.keys.miss()).collect()),
            Phase::Delete => Batch::Keys((0..count).map(|_| self.take()).collect()),
            Phase::Get | Phase::GetMany | Phase::Scan => {
                Batch::Keys((0..count).map(|_| self.pick()).collect())
            }
        }
    }

    /// The records a chunk adds exist once it is made whole: no thread of it looks them up.
    fn settle(&mut self, chunk: &Chunk) {
        if matches!(chunk.phase, Phase::Load | Phase::Insert | Phase::InsertMany) {
            let added: u64 = chunk.parts.iter().map(|part| part.len() as u64).sum();
            self.live.extend(self.next - added..self.next);
        }
    }

    /// The key of a random record that exists.
    fn pick(&mut self) -> u64 {
        let at = self.keys.below(self.live.len() as u64);
        self.keys.key(self.live[usize::try_from(at).unwrap_or_default()])
    }

    /// The same, and it exists no longer.
    fn take(&mut self) -> u64 {
        let at = self.keys.below(self.live.len() as u64);
        let number = self.live.swap_remove(usize::try_from(at).unwrap_or_default());
        self.keys.key(number)
    }
}

/// `count` in `threads` parts that differ by one at most.
fn split(count: u64, threads: usize) -> impl Iterator<Item = u64> {
    let threads = threads.max(1) as u64;
    (0..threads).map(move |t| count * (t + 1) / threads - count * t / threads)
}

impl Batch {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Keys(keys) => keys.len(),
            Self::Records(records) => records.len(),
        }
    }

    /// The job this is in `phase`.
    pub(crate) fn job(&self, phase: Phase) -> Job<'_> {
        match self {
            Self::Keys(keys) => match phase {
                Phase::GetMiss => Job::GetMiss(keys),
                Phase::Scan => Job::Scan(keys),
                Phase::Delete => Job::Remove(keys),
                Phase::GetMany => Job::GetMany(keys),
                _ => Job::Get(keys),
            },
            Self::Records(records) => match phase {
                Phase::Update => Job::Update(records),
                Phase::InsertMany => Job::InsertMany(records),
                _ => Job::Insert(records),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(chunk: &Chunk) -> Vec<u64> {
        chunk
            .parts
            .iter()
            .flat_map(|part| match part {
                Batch::Keys(keys) => keys.clone(),
                Batch::Records(records) => records.iter().map(|r| r.0).collect(),
            })
            .collect()
    }

    #[test]
    fn phases_meet_the_records_they_are_about() {
        let mut work = Workload::new(1000, 400, 5);
        let mut exist = BTreeSet::new();
        for phase in Phase::ALL {
            let mut ops = 0;
            for chunk in 0..CHUNKS {
                let keys = keys(&work.chunk(phase, chunk, 3));
                ops += keys.len() as u64;
                let before = exist.clone();
                for key in keys {
                    match phase {
                        Phase::Load | Phase::Insert | Phase::InsertMany => {
                            assert!(exist.insert(key));
                        }
                        Phase::Delete => assert!(exist.remove(&key)),
                        Phase::GetMiss => assert!(!before.contains(&key)),
                        _ => assert!(before.contains(&key)),
                    }
                }
            }
            assert_eq!(ops, work.ops(phase));
        }
        assert_eq!(exist.len() as u64, work.live());
        assert!(exist.len() as u64 <= work.peak());
    }

    #[test]
    fn parts_differ_by_one_at_most_and_lose_nothing() {
        let parts: Vec<u64> = split(11, 4).collect();
        assert_eq!(parts.iter().sum::<u64>(), 11);
        assert!(parts.iter().all(|n| (2..=3).contains(n)));
    }
}
