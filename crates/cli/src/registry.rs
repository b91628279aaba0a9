//! Indexes by name: who adds an index adds one line to [`ENTRIES`].

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::core::{Counting, Mapped, Pool, PoolOptions};
use pmindex::{BzTree, FastFair, FpTree, Hart, IndexError, NvTree, PmIndex, SharedWbTree, Stats};
use pmindex_pibench::{Indexed, KeySpace, Phase, Subject, Yardstick};

use crate::bench::victim;
use crate::error::CliError;
use crate::medium::{MediumArgs, Promise};

/// Every index that can be measured, the yardstick last.
const ENTRIES: &[Entry] = &[
    in_pool::<FpTree<u64, u64>, FpTree<u64, u64, Counting>>(&[]),
    in_pool::<FastFair<u64, u64>, FastFair<u64, u64, Counting>>(&[]),
    in_pool::<Hart<u64, u64>, Hart<u64, u64, Counting>>(&HART),
    in_pool::<BzTree<u64, u64>, BzTree<u64, u64, Counting>>(&BZTREE),
    Entry {
        name: VOLATILE_BZTREE,
        golden: &[],
        make: |_, _| Ok(Box::new(InMemory::<BzTree<u64, u64>>::create(VOLATILE_BZTREE)?)),
        make_counting: None,
        write_for_ever: None,
    },
    in_pool::<NvTree<u64, u64>, NvTree<u64, u64, Counting>>(&NVTREE),
    in_pool::<SharedWbTree<u64, u64>, SharedWbTree<u64, u64, Counting>>(&WBTREE),
    Entry {
        name: Yardstick::NAME,
        golden: &[],
        make: |_, _| Ok(Box::new(Yardstick::default())),
        make_counting: None,
        write_for_ever: None,
    },
];

/// Golden files of indexes: what their operations must cost for their rows to count.
const GOLDEN_FILES: &[(&str, &str)] = &[
    ("fptree", include_str!("../../../tests/golden/fptree.txt")),
    ("fastfair", include_str!("../../../tests/golden/fastfair.txt")),
];

/// Lines flushed and fences of an operation that neither splits nor merges a node.
pub(crate) type Golden = (Phase, u64, u64);

const HART: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 2, 2),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

/// New values become durable in their words in batches, at other operations' fences: the lines of
/// one that has no batch to flush. The means printed count all of them.
const BZTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 3, 2),
    (Phase::Update, 3, 2),
    (Phase::Delete, 2, 2),
];

/// BzTree in its volatile mode.
const VOLATILE_BZTREE: &str = "bztree-volatile";

const NVTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 1, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

const WBTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 3, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

type Make = fn(&Path, MediumArgs) -> Result<Box<dyn Bench>, CliError>;

/// A way to make an index to be measured.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// What its operations must cost for its rows to count, besides what its golden file says.
    golden: &'static [Golden],
    /// Makes an empty one in a new pool file.
    pub(crate) make: Make,
    /// Makes an empty one in memory, on a medium that counts.
    pub(crate) make_counting: Option<fn() -> Result<Counted, CliError>>,
    /// Opens the one in a pool file and writes until the process ends; calls back when it has begun.
    pub(crate) write_for_ever: Option<WriteForEver>,
}

type WriteForEver =
    fn(&Path, MediumArgs, &dyn Fn() -> Result<(), CliError>) -> Result<(), CliError>;

impl Entry {
    /// What operations must cost: of the golden file's those that have whole lines and fences (what
    /// differs from key to key has a mean there).
    pub(crate) fn golden(&self) -> Vec<Golden> {
        let cost = |row: &str| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let &[name, _, lines, _, fences, ..] = cells.as_slice() else { return None };
            let phases: &[Phase] = match name {
                "get" => &[Phase::Get, Phase::GetMiss, Phase::Scan],
                "insert" => &[Phase::Insert],
                "update" => &[Phase::Update],
                "remove" => &[Phase::Delete],
                _ => return None,
            };
            let (lines, fences) = (lines.parse().ok()?, fences.parse().ok()?);
            Some(phases.iter().map(move |&phase| (phase, lines, fences)))
        };
        let files = GOLDEN_FILES.iter().filter(|(name, _)| *name == self.name);
        let from_file = files.flat_map(|(_, file)| file.lines()).filter_map(cost).flatten();
        self.golden.iter().copied().chain(from_file).collect()
    }
}

/// An index at work in a benchmark.
pub(crate) trait Bench: Subject {
    /// As what it is measured.
    fn subject(&self) -> &dyn Subject;

    /// What its pool promises; `None` without a pool.
    fn promise(&self) -> Option<Promise> {
        None
    }

    /// Bytes of its pool in use, the allocator's own included.
    fn pool_bytes(&self) -> Option<u64> {
        None
    }

    /// Lets another process open the pool and write, kills it, opens again, and verifies the
    /// structure: the time until the index was usable (verification not included) and the records
    /// found, of which one more may have been under way. `None` without a pool.
    fn crash_and_open(self: Box<Self>) -> Result<Option<(Duration, u64)>, CliError>;
}

/// An index whose medium counts.
pub(crate) struct Counted {
    /// The index.
    pub(crate) subject: Box<dyn Subject>,
    /// Lines flushed and fences so far.
    pub(crate) meter: Box<dyn Fn() -> (u64, u64)>,
}

/// All names.
pub(crate) fn names() -> Vec<&'static str> {
    ENTRIES.iter().map(|entry| entry.name).collect()
}

/// The entry of this name.
pub(crate) fn find(name: &str) -> Result<&'static Entry, CliError> {
    ENTRIES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| CliError::UnknownIndex { name: name.into() })
}

/// The entry of an index that lives in a pool.
const fn in_pool<I, C>(golden: &'static [Golden]) -> Entry
where
    I: PmIndex<u64, u64, Mapped> + 'static,
    C: PmIndex<u64, u64, Counting> + 'static,
{
    Entry {
        name: I::NAME,
        golden,
        make: |path, medium| Ok(Box::new(InPool::<I>::create(path, medium)?)),
        make_counting: Some(counting::<C>),
        write_for_ever: Some(write_for_ever::<I>),
    }
}

fn write_for_ever<I: PmIndex<u64, u64, Mapped>>(
    path: &Path,
    medium: MediumArgs,
    begun: &dyn Fn() -> Result<(), CliError>,
) -> Result<(), CliError> {
    let pool = Arc::new(Pool::open(path, &medium.apply(PoolOptions::new()))?);
    let index = I::open(&pool, INDEX)?;
    let mut keys = KeySpace::new(0);
    for round in 0u64.. {
        let key = keys.miss();
        if index.insert(&key, &round)? {
            index.remove(&key)?;
        }
        if round == 0 {
            begun()?;
        }
    }
    Ok(())
}

fn counting<C: PmIndex<u64, u64, Counting> + 'static>() -> Result<Counted, CliError> {
    let options = PoolOptions::new().emulate_pm(true);
    let pool = Arc::new(Pool::create_in_memory(&options, Counting::new)?);
    let index = C::create(&pool, INDEX)?;
    let meter = move || {
        let counts = pool.pm().counts();
        (counts.lines, counts.fences)
    };
    Ok(Counted { subject: Box::new(Indexed::new(C::NAME, index)), meter: Box::new(meter) })
}

/// The name of the index in a benchmark's pool.
const INDEX: &str = "bench";

/// An index in a pool of its own.
struct InPool<I> {
    pool: Arc<Pool>,
    index: Indexed<I>,
    medium: MediumArgs,
}

impl<I: PmIndex<u64, u64, Mapped>> InPool<I> {
    fn create(path: &Path, medium: MediumArgs) -> Result<Self, CliError> {
        let pool = Arc::new(Pool::create(path, &medium.apply(PoolOptions::new()))?);
        let index = Indexed::new(I::NAME, I::create(&pool, INDEX)?);
        Ok(Self { pool, index, medium })
    }
}

impl<I: PmIndex<u64, u64, Mapped>> Subject for InPool<I> {
    fn name(&self) -> &str {
        self.index.name()
    }

    fn run(&self, job: pmindex_pibench::Job<'_>) -> Result<u64, IndexError> {
        self.index.run(job)
    }

    fn stats(&self) -> Result<Option<Stats>, IndexError> {
        self.index.stats()
    }
}

impl<I: PmIndex<u64, u64, Mapped> + 'static> Bench for InPool<I> {
    fn subject(&self) -> &dyn Subject {
        &self.index
    }

    fn promise(&self) -> Option<Promise> {
        Some(Promise::of(&*self.pool))
    }

    fn pool_bytes(&self) -> Option<u64> {
        Some(self.pool.used_bytes())
    }

    fn crash_and_open(self: Box<Self>) -> Result<Option<(Duration, u64)>, CliError> {
        let Self { pool, index, medium } = *self;
        drop(index);
        let path = pool.path().to_path_buf();
        match Arc::into_inner(pool) {
            Some(pool) => pool.kill(),
            None => return Err(CliError::StillOpen { path }),
        }
        victim::write_and_kill(I::NAME, &path, medium)?;
        let started = Instant::now();
        let pool = Arc::new(Pool::open(&path, &medium.apply(PoolOptions::new()))?);
        let index = I::open(&pool, INDEX)?;
        let time = started.elapsed();
        Ok(Some((time, index.check()?)))
    }
}

/// An index in a volatile pool: nothing is flushed, nothing survives.
struct InMemory<I> {
    index: Indexed<I>,
}

impl<I: PmIndex<u64, u64, Mapped>> InMemory<I> {
    fn create(name: &'static str) -> Result<Self, CliError> {
        let pool = Arc::new(Pool::create_in_memory(&PoolOptions::new(), |mapped| mapped)?);
        Ok(Self { index: Indexed::new(name, I::create(&pool, INDEX)?) })
    }
}

impl<I: PmIndex<u64, u64, Mapped>> Subject for InMemory<I> {
    fn name(&self) -> &str {
        self.index.name()
    }

    fn run(&self, job: pmindex_pibench::Job<'_>) -> Result<u64, IndexError> {
        self.index.run(job)
    }

    fn stats(&self) -> Result<Option<Stats>, IndexError> {
        self.index.stats()
    }
}

impl<I: PmIndex<u64, u64, Mapped> + 'static> Bench for InMemory<I> {
    fn subject(&self) -> &dyn Subject {
        &self.index
    }

    fn crash_and_open(self: Box<Self>) -> Result<Option<(Duration, u64)>, CliError> {
        Ok(None)
    }
}

impl Bench for Yardstick {
    fn subject(&self) -> &dyn Subject {
        self
    }

    fn crash_and_open(self: Box<Self>) -> Result<Option<(Duration, u64)>, CliError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_files_say_what_bench_checks() {
        let golden = find("fptree").expect("registered").golden();
        assert!(golden.contains(&(Phase::Insert, 2, 2)), "{golden:?}");
        assert!(golden.contains(&(Phase::GetMiss, 0, 0)), "{golden:?}");
        for name in names() {
            if [Yardstick::NAME, VOLATILE_BZTREE].contains(&name) {
                continue; // nothing is flushed
            }
            let golden = find(name).expect("registered").golden();
            assert!(golden.iter().any(|cost| cost.0 == Phase::Get), "{name}: {golden:?}");
        }
    }
}
