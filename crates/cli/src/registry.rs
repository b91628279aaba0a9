//! Indexes by name: who adds an index adds one line to [`ENTRIES`].

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::core::{Counting, Mapped, Pool, PoolOptions};
use pmindex::{BzTree, FastFair, FpTree, Hart, IndexError, NvTree, PmIndex, Stats};
use pmindex_pibench::{Indexed, Phase, Subject, Yardstick};

use crate::error::CliError;
use crate::medium::{MediumArgs, Promise};

/// Every index that can be measured, the yardstick last.
const ENTRIES: &[Entry] = &[
    in_pool::<FpTree<u64, u64>, FpTree<u64, u64, Counting>>(&FPTREE),
    in_pool::<FastFair<u64, u64>, FastFair<u64, u64, Counting>>(&FASTFAIR),
    in_pool::<Hart<u64, u64>, Hart<u64, u64, Counting>>(&HART),
    in_pool::<BzTree<u64, u64>, BzTree<u64, u64, Counting>>(&BZTREE),
    Entry {
        name: VOLATILE_BZTREE,
        golden: &[],
        make: |_, _| Ok(Box::new(InMemory::<BzTree<u64, u64>>::create(VOLATILE_BZTREE)?)),
        make_counting: None,
    },
    in_pool::<NvTree<u64, u64>, NvTree<u64, u64, Counting>>(&NVTREE),
    Entry {
        name: Yardstick::NAME,
        golden: &[],
        make: |_, _| Ok(Box::new(Yardstick::default())),
        make_counting: None,
    },
];

/// Lines flushed and fences of an operation that neither splits nor merges a node.
pub(crate) type Golden = (Phase, u64, u64);

const FPTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 2, 2),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

/// What an insert costs depends on how far the next gap is.
const FASTFAIR: [Golden; 5] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

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

type Make = fn(&Path, MediumArgs) -> Result<Box<dyn Bench>, CliError>;

/// A way to make an index to be measured.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// What its operations must cost for its rows to count.
    pub(crate) golden: &'static [Golden],
    /// Makes an empty one in a new pool file.
    pub(crate) make: Make,
    /// Makes an empty one in memory, on a medium that counts.
    pub(crate) make_counting: Option<fn() -> Result<Counted, CliError>>,
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

    /// Ends as if the process were killed, opens again, and verifies the structure: the time until
    /// the index was usable (verification not included) and the records found. `None` without a
    /// pool.
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
    }
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
