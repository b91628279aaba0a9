//! Workloads: the keys of every chunk of every step, generated before the clock starts.
//!
//! Record numbers grow: the numbers `0..records` are loaded, and later inserts take the next numbers.
//! Lookups, scans and updates choose existing records by the distribution, with repetition; deletes take
//! each record once. No thread of a chunk looks up records that the same chunk inserts or removes, so every
//! operation has one right result, whatever the schedule.

use std::ops::Range;

use crate::distribution::{Chooser, Distribution};
use crate::job::{Job, Op, Ops};
use crate::keys::KeySpace;
use crate::phase::{Phase, Step};
use crate::records::{Integers, Records};

/// The default number of records of a scan.
pub const SCAN_LENGTH: usize = 100;
/// The default number of keys in a call of `get_many` or `insert_many`.
pub const BATCH: usize = 64;
/// The number of chunks of a step; its figure is the median of the chunks.
pub const CHUNKS: usize = 5;

/// The sizes and choices of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// The number of records to load.
    pub records: u64,
    /// The number of operations of a step.
    pub ops: u64,
    /// The number of records that a scan reads.
    pub scan_length: usize,
    /// The number of keys in a call of `get_many` or `insert_many`.
    pub batch: usize,
    /// The distribution by which records are chosen.
    pub distribution: Distribution,
    /// The seed of all choices.
    pub seed: u64,
}

impl Sizes {
    /// Returns sizes of `records` records and `ops` operations per step, and defaults: uniform, scans of
    /// 100, batches of 64.
    #[must_use]
    pub fn new(records: u64, ops: u64, seed: u64) -> Self {
        let distribution = Distribution::Uniform;
        Self { records, ops, scan_length: SCAN_LENGTH, batch: BATCH, distribution, seed }
    }
}

/// The records of a measurement: their form, and which of them exist.
pub struct Workload<K = u64, V = u64> {
    sizes: Sizes,
    make: Box<dyn Records<K, V>>,
    chooser: Chooser,
    random: KeySpace,
    /// The numbers of the existing records, from `gone` on; in the order of insertion if keys ascend,
    /// otherwise in no order.
    live: Vec<u64>,
    gone: usize,
    /// The number of the next record.
    next: u64,
    /// The numbers of the records that the present chunk removes.
    taken: Vec<u64>,
}

impl<K, V> std::fmt::Debug for Workload<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workload").field("sizes", &self.sizes).finish_non_exhaustive()
    }
}

/// The operations of one chunk for one thread.
#[derive(Debug)]
pub(crate) enum Batch<K, V> {
    /// Keys.
    Keys(Vec<K>),
    /// Records.
    Records(Vec<(K, V)>),
    /// Operations of all kinds.
    Mixed(Vec<Op<K, V>>),
}

/// One chunk: the operations of each thread.
#[derive(Debug)]
pub(crate) struct Chunk<K, V> {
    kind: Option<Phase>,
    scan_length: usize,
    batch: usize,
    parts: Vec<Batch<K, V>>,
    /// The numbers of the records that it adds and removes.
    added: Range<u64>,
    taken: Vec<u64>,
}

impl Workload {
    /// Returns a workload of 8-byte integers, scattered and chosen uniformly.
    #[must_use]
    pub fn new(records: u64, ops: u64, seed: u64) -> Self {
        Self::of(Box::new(Integers::new(seed, false)), Sizes::new(records, ops, seed))
    }

    /// Returns a useful number of operations per step: a quarter of the records, within limits for the
    /// resolution of the clock and the running time.
    #[must_use]
    pub fn default_ops(records: u64) -> u64 {
        (records / 4).clamp(100_000.min(records), 2_000_000)
    }
}

impl<K, V> Workload<K, V> {
    /// Returns a workload of these records; limits unreasonable sizes.
    #[must_use]
    pub fn of(make: Box<dyn Records<K, V>>, mut sizes: Sizes) -> Self {
        sizes.batch = sizes.batch.max(1);
        sizes.scan_length = sizes.scan_length.max(1);
        let least = (sizes.batch * CHUNKS) as u64;
        sizes.records = sizes.records.max(least).min(make.capacity());
        sizes.ops = sizes.ops.clamp(least.min(sizes.records), sizes.records);
        let random = KeySpace::new(!sizes.seed);
        let chooser = Chooser::new(sizes.distribution);
        Self { sizes, make, chooser, random, live: Vec::new(), gone: 0, next: 0, taken: Vec::new() }
    }

    /// Returns its sizes.
    #[must_use]
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns the number of records to load.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.sizes.records
    }

    /// Returns the number of existing records.
    #[must_use]
    pub fn live(&self) -> u64 {
        (self.live.len() - self.gone) as u64
    }

    /// Returns the number of records inserted so far, including removed ones.
    #[must_use]
    pub fn inserted(&self) -> u64 {
        self.next
    }

    /// Returns the operations of a step in all chunks and threads: fewer if many of them are scans.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "operation counts are far below 2^52"
    )]
    pub fn ops(&self, step: &Step) -> u64 {
        if step.phase() == Some(Phase::Load) {
            return self.sizes.records;
        }
        let weight = 1.0 + step.share(Phase::Scan) * (self.sizes.scan_length as f64 / 5.0 - 1.0);
        ((self.sizes.ops as f64 / weight.max(1.0)) as u64).max(CHUNKS as u64)
    }

    /// Generates chunk number `chunk` of a step, split over `threads`. It is smaller, possibly empty, if
    /// records to remove or new keys run out.
    pub(crate) fn chunk(&mut self, step: &Step, chunk: usize, threads: usize) -> Chunk<K, V> {
        let ops = self.ops(step);
        let share = |i: usize| ops * i as u64 / CHUNKS as u64;
        let chunk = chunk % CHUNKS;
        self.more(step, share(chunk + 1) - share(chunk), threads)
    }

    /// Generates `wanted` more operations of a step.
    pub(crate) fn more(&mut self, step: &Step, wanted: u64, threads: usize) -> Chunk<K, V> {
        let count = wanted.min(self.possible(step));
        let first = self.next;
        let kinds: Vec<Vec<Phase>> = match step.phase() {
            Some(_) => Vec::new(),
            None => split(count, threads).map(|n| self.kinds(step, n)).collect(),
        };
        let parts = match step.phase() {
            Some(phase) => split(count, threads).map(|n| self.batch(phase, n)).collect(),
            None => self.mixed(&kinds),
        };
        // Records that the chunk adds exist only when the chunk is complete: no thread of it looks them up.
        self.live.extend(first..self.next);
        let Sizes { scan_length, batch, .. } = self.sizes;
        let (added, taken) = (first..self.next, std::mem::take(&mut self.taken));
        Chunk { kind: step.phase(), scan_length, batch, parts, added, taken }
    }

    /// Generates the operations that undo the latest chunk: one chunk removes what it added, the other one adds
    /// what it removed.
    pub(crate) fn undo(&mut self, chunk: &Chunk<K, V>, threads: usize) -> [Chunk<K, V>; 2] {
        let removal = self.take_back(chunk.added(), threads);
        if self.sizes.distribution == Distribution::Monotonic {
            self.gone -= chunk.taken.len();
        } else {
            self.live.extend(&chunk.taken);
        }
        let (make, mut taken) = (&self.make, chunk.taken.iter());
        let record = |number: &u64| (make.key(*number), make.value(*number));
        let records = split(chunk.taken.len() as u64, threads)
            .map(|n| taken.by_ref().take(len(n)).map(record).collect());
        let records = records.map(Batch::Records).collect();
        [removal, self.undoing(Phase::Insert, records)]
    }

    /// Generates the removal of the `count` records that were added last, in chunks that removed none.
    pub(crate) fn take_back(&mut self, count: u64, threads: usize) -> Chunk<K, V> {
        let numbers = self.live.split_off(self.live.len() - len(count));
        // Other keys come next, unless few are left, as of a file.
        if let Some(first) = numbers.first().filter(|_| self.unused() < self.sizes.records) {
            self.next = *first;
        }
        let (make, mut numbers) = (&self.make, numbers.into_iter());
        let keys = split(count, threads)
            .map(|n| numbers.by_ref().take(len(n)).map(|number| make.key(number)).collect());
        let keys = keys.map(Batch::Keys).collect();
        self.undoing(Phase::Delete, keys)
    }

    fn undoing(&self, kind: Phase, parts: Vec<Batch<K, V>>) -> Chunk<K, V> {
        let Sizes { scan_length, batch, .. } = self.sizes;
        Chunk { kind: Some(kind), scan_length, batch, parts, added: 0..0, taken: Vec::new() }
    }

    /// Returns the number of keys that no record has had.
    pub(crate) fn unused(&self) -> u64 {
        self.make.capacity().saturating_sub(self.next)
    }

    /// Generates all operations of a step for one thread, to be run by the caller.
    pub fn jobs(&mut self, step: &Step) -> Vec<OwnedJob<K, V>> {
        let chunks: Vec<Chunk<K, V>> =
            (0..CHUNKS).map(|chunk| self.chunk(step, chunk, 1)).collect();
        chunks.into_iter().map(OwnedJob).collect()
    }

    /// Returns the maximum number of operations of a step that leaves one record and one key.
    fn possible(&self, step: &Step) -> u64 {
        let takes = step.share(Phase::Delete) > 0.0;
        let adding = step.shares().iter().any(|(phase, _)| phase.adds());
        let removable = if takes { self.live().saturating_sub(1) } else { u64::MAX };
        let fresh = if adding { self.unused() } else { u64::MAX };
        removable.min(fresh)
    }

    fn batch(&mut self, phase: Phase, count: u64) -> Batch<K, V> {
        let numbers = 0..count;
        match phase {
            Phase::Load | Phase::Insert | Phase::InsertMany => {
                Batch::Records(numbers.map(|_| self.add()).collect())
            }
            Phase::Update | Phase::Upsert => {
                Batch::Records(numbers.map(|i| (self.pick(), self.make.value(!i))).collect())
            }
            Phase::GetMiss => Batch::Keys(numbers.map(|_| self.miss()).collect()),
            Phase::Delete => Batch::Keys(numbers.map(|_| self.take()).collect()),
            Phase::Get | Phase::GetMany | Phase::Scan => {
                Batch::Keys(numbers.map(|_| self.pick()).collect())
            }
        }
    }

    /// Returns `count` kinds of operations with the step's shares, in random order.
    fn kinds(&mut self, step: &Step, count: u64) -> Vec<Phase> {
        let all: u64 = step.shares().iter().map(|(_, share)| u64::from(*share)).sum();
        let mut kind = || {
            let mut at = self.random.below(all.max(1));
            for &(phase, share) in step.shares() {
                match at.checked_sub(u64::from(share)) {
                    Some(rest) => at = rest,
                    None => return phase,
                }
            }
            Phase::Get
        };
        (0..count).map(|_| kind()).collect()
    }

    /// Generates operations of these kinds for each thread. Records to remove are chosen first, so that no
    /// other operation of the chunk chooses them.
    fn mixed(&mut self, kinds: &[Vec<Phase>]) -> Vec<Batch<K, V>> {
        let count = kinds.iter().flatten().filter(|kind| **kind == Phase::Delete).count();
        let mut removed: Vec<K> = (0..count).map(|_| self.take()).collect();
        let mut op = |kind: &Phase| match kind {
            Phase::GetMiss => Op::GetMiss(self.miss()),
            Phase::Scan => Op::Scan(self.pick()),
            Phase::Insert => {
                let (key, value) = self.add();
                Op::Insert(key, value)
            }
            Phase::Update => Op::Update(self.pick(), self.make.value(self.random.random())),
            Phase::Upsert => Op::Upsert(self.pick(), self.make.value(self.random.random())),
            Phase::Delete => removed.pop().map_or_else(|| Op::Get(self.pick()), Op::Remove),
            _ => Op::Get(self.pick()),
        };
        kinds.iter().map(|kinds| Batch::Mixed(kinds.iter().map(&mut op).collect())).collect()
    }

    /// Generates a new record.
    fn add(&mut self) -> (K, V) {
        let number = self.next;
        self.next += 1;
        (self.make.key(number), self.make.value(number))
    }

    fn miss(&mut self) -> K {
        let random = self.random.random();
        self.make.missing(random)
    }

    /// Chooses an existing record; returns its place.
    fn place(&mut self) -> usize {
        let rank = self.chooser.rank(self.live().max(1), &mut self.random);
        self.gone + usize::try_from(rank).unwrap_or_default()
    }

    /// Chooses an existing record; returns its key.
    fn pick(&mut self) -> K {
        let at = self.place();
        self.make.key(self.live.get(at).copied().unwrap_or_default())
    }

    /// Chooses an existing record, and removes it; returns its key.
    fn take(&mut self) -> K {
        let number = if self.sizes.distribution == Distribution::Monotonic {
            self.gone += 1;
            self.live[self.gone - 1]
        } else {
            let at = self.place();
            self.live.swap_remove(at)
        };
        self.taken.push(number);
        self.make.key(number)
    }
}

fn len(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Splits `count` into `threads` parts that differ by at most one.
fn split(count: u64, threads: usize) -> impl Iterator<Item = u64> {
    let threads = threads.max(1) as u64;
    (0..threads).map(move |t| count * (t + 1) / threads - count * t / threads)
}

impl<K, V> Chunk<K, V> {
    /// Returns the operations of all threads.
    pub(crate) fn ops(&self) -> u64 {
        self.jobs().map(|job| job.len() as u64).sum()
    }

    /// Returns the number of records that it adds.
    pub(crate) fn added(&self) -> u64 {
        self.added.end - self.added.start
    }

    /// Returns the job of each thread.
    pub(crate) fn jobs(&self) -> impl ExactSizeIterator<Item = Job<'_, K, V>> {
        self.parts.iter().map(|part| Job {
            ops: part.ops(self.kind),
            scan_length: self.scan_length,
            batch: self.batch,
        })
    }
}

/// A job with its keys.
#[derive(Debug)]
pub struct OwnedJob<K = u64, V = u64>(Chunk<K, V>);

impl<K, V> OwnedJob<K, V> {
    /// Returns the job; `None` if it has no operation.
    #[must_use]
    pub fn job(&self) -> Option<Job<'_, K, V>> {
        self.0.jobs().next().filter(|job| !job.is_empty())
    }
}

impl<K, V> Batch<K, V> {
    fn ops(&self, kind: Option<Phase>) -> Ops<'_, K, V> {
        match (self, kind) {
            (Self::Keys(keys), Some(Phase::GetMiss)) => Ops::GetMiss(keys),
            (Self::Keys(keys), Some(Phase::Scan)) => Ops::Scan(keys),
            (Self::Keys(keys), Some(Phase::Delete)) => Ops::Remove(keys),
            (Self::Keys(keys), Some(Phase::GetMany)) => Ops::GetMany(keys),
            (Self::Keys(keys), _) => Ops::Get(keys),
            (Self::Records(records), Some(Phase::Update)) => Ops::Update(records),
            (Self::Records(records), Some(Phase::Upsert)) => Ops::Upsert(records),
            (Self::Records(records), Some(Phase::InsertMany)) => Ops::InsertMany(records),
            (Self::Records(records), _) => Ops::Insert(records),
            (Self::Mixed(ops), _) => Ops::Mix(ops),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::records::{Length, Lines};

    /// Runs all operations on a set, and checks their results.
    fn replay<K: Ord + Clone, V>(chunk: &Chunk<K, V>, exist: &mut BTreeSet<K>) -> u64 {
        let before = exist.clone();
        let (mut added, mut removed) = (BTreeSet::new(), BTreeSet::new());
        let mut ops = 0;
        let mut check = |kind: Phase, key: &K| {
            ops += 1;
            match kind {
                Phase::Insert => {
                    assert!(!before.contains(key) && added.insert(key.clone()), "a new key");
                }
                Phase::Delete => {
                    assert!(before.contains(key) && removed.insert(key.clone()), "once each");
                }
                Phase::GetMiss => assert!(!before.contains(key)),
                _ => assert!(before.contains(key)),
            }
        };
        for job in chunk.jobs() {
            let (kind, keys): (Phase, Vec<&K>) = match job.ops {
                Ops::Get(keys) | Ops::Scan(keys) | Ops::GetMany(keys) => {
                    (Phase::Get, keys.iter().collect())
                }
                Ops::GetMiss(keys) => (Phase::GetMiss, keys.iter().collect()),
                Ops::Remove(keys) => (Phase::Delete, keys.iter().collect()),
                Ops::Insert(records) | Ops::InsertMany(records) => {
                    (Phase::Insert, records.iter().map(|record| &record.0).collect())
                }
                Ops::Update(records) | Ops::Upsert(records) => {
                    (Phase::Update, records.iter().map(|record| &record.0).collect())
                }
                Ops::Mix(ops) => {
                    for op in ops {
                        match op {
                            Op::Insert(key, _) => check(Phase::Insert, key),
                            Op::Remove(key) => check(Phase::Delete, key),
                            Op::GetMiss(key) => check(Phase::GetMiss, key),
                            Op::Get(key)
                            | Op::Scan(key)
                            | Op::Update(key, _)
                            | Op::Upsert(key, _) => check(Phase::Get, key),
                        }
                    }
                    continue;
                }
            };
            for key in keys {
                check(kind, key);
            }
        }
        for job in chunk.jobs() {
            let Ops::Mix(ops) = job.ops else { continue };
            for op in ops {
                if let Op::Get(key) | Op::Scan(key) | Op::Update(key, _) | Op::Upsert(key, _) = op {
                    assert!(!removed.contains(key), "nobody looks up what another thread removes");
                }
            }
        }
        exist.extend(added);
        exist.retain(|key| !removed.contains(key));
        ops
    }

    #[test]
    fn steps_meet_the_records_they_are_about() {
        let mixes = ["read-intensive", "write-intensive", "scan-mostly", "get_miss:1,delete:1"];
        let steps = Phase::ALL.into_iter().map(Step::one);
        let steps: Vec<Step> =
            steps.chain(mixes.into_iter().map(|mix| Step::mix(mix).expect(mix))).collect();
        for name in Distribution::NAMES {
            let distribution = Distribution::named(name, None).expect("known");
            let sizes = Sizes { distribution, ..Sizes::new(2000, 400, 5) };
            let ascending = distribution == Distribution::Monotonic;
            let mut work = Workload::of(Box::new(Integers::new(5, ascending)), sizes);
            let mut exist = BTreeSet::new();
            for step in &steps {
                let ops: u64 =
                    (0..CHUNKS).map(|chunk| replay(&work.chunk(step, chunk, 3), &mut exist)).sum();
                assert_eq!(ops, work.ops(step), "{name} {step}");
                assert_eq!(exist.len() as u64, work.live(), "{name} {step}");
            }
        }
    }

    #[test]
    fn what_a_chunk_changed_can_be_undone() {
        let text = (0..2600).map(|i| format!("word{i}")).collect::<Vec<_>>().join("\n");
        for name in Distribution::NAMES {
            let distribution = Distribution::named(name, None).expect("known");
            let ascending = distribution == Distribution::Monotonic;
            let length = Length { min: 8, max: 8 };
            let lines = Lines::new(text.as_bytes(), 1, ascending, b"", length).expect("keys");
            let sizes = Sizes { distribution, ..Sizes::new(2000, 1000, 5) };
            let mut work = Workload::of(Box::new(lines), sizes);
            let mut exist = BTreeSet::new();
            (0..CHUNKS)
                .for_each(|n| _ = replay(&work.chunk(&Phase::Load.into(), n, 1), &mut exist));
            let all = exist.clone();
            for step in ["insert:1", "delete:1", "read-intensive", "write-intensive"] {
                let step = Step::mix(step).expect(step);
                // More often than there are keys in the file.
                for _ in 0..8 {
                    let chunk = work.more(&step, 400, 3);
                    assert_eq!(replay(&chunk, &mut exist), 400, "{name} {step}");
                    assert!(exist != all, "{name} {step}");
                    for undo in work.undo(&chunk, 2) {
                        replay(&undo, &mut exist);
                    }
                    assert!(exist == all && work.live() == 2000, "{name} {step}");
                }
            }
        }
    }

    #[test]
    fn what_several_chunks_added_can_be_taken_back() {
        let text = (0..2600).map(|i| format!("word{i}")).collect::<Vec<_>>().join("\n");
        for ascending in [false, true] {
            let length = Length { min: 8, max: 8 };
            let lines = Lines::new(text.as_bytes(), 1, ascending, b"", length).expect("keys");
            let distribution = if ascending { "monotonic" } else { "uniform" };
            let distribution = Distribution::named(distribution, None).expect("known");
            let sizes = Sizes { distribution, ..Sizes::new(2000, 1000, 5) };
            let mut work = Workload::of(Box::new(lines), sizes);
            let mut exist = BTreeSet::new();
            let add = |work: &mut Workload<_, _>, phase: Phase, count, exist: &mut _| {
                assert_eq!(replay(&work.more(&phase.into(), count, 3), exist), count);
            };
            add(&mut work, Phase::Load, 2000, &mut exist);
            // More often than there are keys in the file. A few stay each time.
            for round in 1..=8 {
                add(&mut work, Phase::Insert, 10, &mut exist);
                let kept = exist.clone();
                add(&mut work, Phase::Insert, 250, &mut exist);
                add(&mut work, Phase::InsertMany, 250, &mut exist);
                let removal = work.take_back(500, 2);
                assert_eq!(replay(&removal, &mut exist), 500);
                assert!(exist == kept && work.live() == 2000 + 10 * round, "{round}");
            }
        }
    }

    #[test]
    fn mixes_have_the_shares_they_were_given() {
        let mut work = Workload::new(50_000, 50_000, 3);
        work.chunk(&Phase::Load.into(), 0, 1);
        let step = Step::mix("get:70,insert:10,update:20").expect("a mix");
        let mut counts = [0_u32; 3];
        for job in work.jobs(&step) {
            let Some(Job { ops: Ops::Mix(ops), .. }) = job.job() else { panic!("no mix") };
            for op in ops {
                counts[match op {
                    Op::Get(_) => 0,
                    Op::Insert(..) => 1,
                    _ => 2,
                }] += 1;
            }
        }
        assert_eq!(counts.iter().sum::<u32>(), 50_000);
        // Four standard deviations of a binomial distribution.
        for (count, share) in counts.into_iter().zip([0.7_f64, 0.1, 0.2]) {
            let (mean, deviation) = (50_000.0 * share, (50_000.0 * share * (1.0 - share)).sqrt());
            assert!((f64::from(count) - mean).abs() < 4.0 * deviation, "{counts:?}");
        }
    }

    #[test]
    fn chunks_shrink_where_records_or_keys_run_out() {
        let mut work = Workload::new(1000, 1000, 1);
        (0..CHUNKS).for_each(|chunk| drop(work.chunk(&Phase::Load.into(), chunk, 2)));
        let delete = Step::one(Phase::Delete);
        let ops: u64 = (0..3 * CHUNKS).map(|chunk| work.chunk(&delete, chunk, 2).ops()).sum();
        assert_eq!((ops, work.live()), (999, 1));

        let words: Vec<String> = (0..1000).map(|i| format!("word{i}")).collect();
        let text = words.join("\n");
        let length = Length { min: 8, max: 8 };
        let lines = Lines::new(text.as_bytes(), 1, false, b"", length).expect("keys");
        let mut work = Workload::of(Box::new(lines), Sizes::new(900, 400, 1));
        (0..CHUNKS).for_each(|chunk| drop(work.chunk(&Phase::Load.into(), chunk, 1)));
        let insert = Step::one(Phase::Insert);
        let ops: u64 = (0..2 * CHUNKS).map(|chunk| work.chunk(&insert, chunk, 2).ops()).sum();
        assert_eq!((ops, work.live()), (100, 1000));
    }

    #[test]
    fn another_seed_chooses_other_keys_and_the_same_the_same() {
        let keys = |seed| {
            let mut work = Workload::new(1000, 500, seed);
            work.chunk(&Phase::Load.into(), 0, 1);
            let jobs = work.jobs(&Phase::Get.into());
            let Some(Job { ops: Ops::Get(keys), .. }) = jobs[0].job() else { panic!("no keys") };
            keys.to_vec()
        };
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }

    #[test]
    fn parts_differ_by_one_at_most_and_lose_nothing() {
        let parts: Vec<u64> = split(11, 4).collect();
        assert_eq!(parts.iter().sum::<u64>(), 11);
        assert!(parts.iter().all(|n| (2..=3).contains(n)));
    }
}
