//! The pool or memory in which an index is measured: a pool in a file, a pool on a counting medium, or the
//! heap.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex::core::{Counter, Mapped, Pool, PoolOptions};
use pmindex::{AnyIndex, Index, IndexError, Key, Kind, PmHashIndex, PmIndex, Value};
use pmindex_pibench::{
    BenchSubject, Counts, HashIndexStore, IndexStore, KeySpace, Measurable, Session, Store,
    Yardstick,
};

use crate::bench::bwtree::Delta;
use crate::bench::target::Target;
use crate::bench::{opener, victim};
use crate::error::CliError;
use crate::medium::{MediumArgs, Promise};

/// The name of the index in a benchmark's pool.
const INDEX: &str = "bench";

/// Where and how to create an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup<'a> {
    /// The index's name.
    pub(crate) name: &'static str,
    /// The pool's file.
    pub(crate) path: &'a Path,
    /// How writes become durable.
    pub(crate) medium: MediumArgs,
    /// The time that each flushed line takes longer, to emulate a slower medium.
    pub(crate) write_latency: Duration,
    /// Bytes that are enough for all records.
    pub(crate) room: u64,
}

/// An index that is being measured.
pub(crate) trait Bench<K, V> {
    /// Returns the index as a subject of measurement.
    fn subject(&self) -> &dyn BenchSubject<K, V>;

    /// Returns its durability as a word and as a sentence.
    fn durability(&self) -> (String, String);

    /// Returns `true` if it is another store, not an index of this workspace.
    fn is_peer(&self) -> bool {
        false
    }

    /// Returns the bytes of its pool in use, including those of the allocator; `None` without a pool.
    fn stored_bytes(&self) -> Option<u64>;

    /// Starts a process that opens the pool and writes, and kills it. Starts a second one that opens the
    /// pool, verifies the structure and closes it, and a third one that opens it again. Returns `None` if
    /// nothing survives a crash.
    fn crash_and_open(self: Box<Self>) -> Result<Option<Reopened>, CliError>;
}

/// How long opening took until the index was usable, without verification.
pub(crate) struct Reopened {
    /// After a writing process was killed.
    pub(crate) killed: Duration,
    /// The number of records found, which may include one write that was not acknowledged.
    pub(crate) records: u64,
    /// After a clean close of index and pool.
    pub(crate) closed: Duration,
}

/// One opening.
pub(crate) struct Opened {
    /// How long it took until the index was usable.
    pub(crate) took: Duration,
    /// The number of records found.
    pub(crate) records: u64,
}

/// An index on a counting medium.
pub(crate) struct Counted<K, V> {
    /// The index.
    pub(crate) subject: Box<dyn BenchSubject<K, V>>,
    /// Returns what the medium has counted so far.
    pub(crate) meter: Box<dyn Fn() -> Counts>,
    /// Writes out what the medium's model of a write buffer still holds.
    pub(crate) drain: Box<dyn Fn()>,
}

type Make<K, V> = fn(Setup<'_>) -> Result<Box<dyn Bench<K, V>>, CliError>;
type MakeCounting<K, V> = fn(&'static str) -> Result<Counted<K, V>, CliError>;
type Open = fn(Setup<'_>, bool) -> Result<Opened, CliError>;
type WriteForEver = fn(Setup<'_>, &dyn Fn() -> Result<(), CliError>) -> Result<(), CliError>;

/// The functions that make an index with keys and values of certain types.
pub(crate) struct Makers<K, V> {
    /// Creates an empty index to measure.
    pub(crate) make: Make<K, V>,
    /// Creates an empty index in memory, on a counting medium.
    pub(crate) counting: Option<MakeCounting<K, V>>,
    /// What a child process does with the index in a pool file; `None` for an index without a file.
    pub(crate) subprocess: Option<Subprocess>,
}

/// What a child process does with an index in a pool file.
#[derive(Clone, Copy)]
pub(crate) struct Subprocess {
    /// Opens the index and writes until the process ends; calls back after the first write.
    pub(crate) write_for_ever: WriteForEver,
    /// Opens the index; if asked to, verifies its structure and closes index and pool.
    pub(crate) open: Open,
}

/// A type of which the benchmark writes keys and values of its own.
pub(crate) trait Generated: Key + Value {
    /// Returns a value that occurs in no workload.
    fn foreign(random: u64) -> Self;
}

impl Generated for u64 {
    fn foreign(random: u64) -> Self {
        random
    }
}

impl Generated for Vec<u8> {
    fn foreign(random: u64) -> Self {
        [&[0xff][..], &random.to_be_bytes()].concat()
    }
}

/// Creates and opens an index in a pool.
pub(crate) trait Maker<K, V>: 'static {
    /// The index as a subject of measurement.
    type Store: Store<K, V> + 'static;
    /// Creates the index of this kind.
    fn create(kind: &str, pool: &Arc<Pool>) -> Result<Self::Store, CliError>;
    /// Opens the index.
    fn open(pool: &Arc<Pool>) -> Result<Self::Store, IndexError>;
    /// Returns the number of records.
    fn len(store: &Self::Store) -> Result<u64, IndexError>;
    /// Verifies the index, and returns the number of records.
    fn check(store: &Self::Store) -> Result<u64, IndexError>;
    /// Closes the index.
    fn close(store: Self::Store) -> Result<(), IndexError>;
}

/// An index whose type is known, so that every call of it can be inlined.
pub(crate) struct Typed<I>(PhantomData<I>);

impl<K: Key, V: Value, I: PmIndex<K, V, Mapped> + 'static> Maker<K, V> for Typed<I> {
    type Store = IndexStore<I>;

    fn create(_: &str, pool: &Arc<Pool>) -> Result<IndexStore<I>, CliError> {
        Ok(IndexStore(I::create(pool, INDEX)?))
    }

    fn open(pool: &Arc<Pool>) -> Result<IndexStore<I>, IndexError> {
        I::open(pool, INDEX).map(IndexStore)
    }

    fn len(store: &IndexStore<I>) -> Result<u64, IndexError> {
        store.0.len()
    }

    fn check(store: &IndexStore<I>) -> Result<u64, IndexError> {
        store.0.check()
    }

    fn close(store: IndexStore<I>) -> Result<(), IndexError> {
        store.0.close()
    }
}

/// A hash index whose type is known.
pub(crate) struct ByHash<I>(PhantomData<I>);

impl<K: Key, V: Value, I: PmHashIndex<K, V, Mapped> + 'static> Maker<K, V> for ByHash<I> {
    type Store = HashIndexStore<I>;

    fn create(_: &str, pool: &Arc<Pool>) -> Result<HashIndexStore<I>, CliError> {
        Ok(HashIndexStore(I::create(pool, INDEX)?))
    }

    fn open(pool: &Arc<Pool>) -> Result<HashIndexStore<I>, IndexError> {
        I::open(pool, INDEX).map(HashIndexStore)
    }

    fn len(store: &HashIndexStore<I>) -> Result<u64, IndexError> {
        store.0.len()
    }

    fn check(store: &HashIndexStore<I>) -> Result<u64, IndexError> {
        store.0.check()
    }

    fn close(store: HashIndexStore<I>) -> Result<(), IndexError> {
        store.0.close()
    }
}

/// An index chosen at run time: each call goes through a table, which costs little compared with a byte
/// string.
pub(crate) struct AnyKind;

impl<K: Key, V: Value> Maker<K, V> for AnyKind {
    type Store = IndexStore<AnyIndex<K, V>>;

    fn create(kind: &str, pool: &Arc<Pool>) -> Result<Self::Store, CliError> {
        let kind: Kind =
            kind.parse().map_err(|_| CliError::UnknownIndex { name: kind.to_owned() })?;
        Ok(IndexStore(AnyIndex::create(pool, INDEX, kind)?))
    }

    fn open(pool: &Arc<Pool>) -> Result<Self::Store, IndexError> {
        AnyIndex::open(pool, INDEX).map(IndexStore)
    }

    fn len(store: &Self::Store) -> Result<u64, IndexError> {
        store.0.len()
    }

    fn check(store: &Self::Store) -> Result<u64, IndexError> {
        store.0.check()
    }

    fn close(store: Self::Store) -> Result<(), IndexError> {
        store.0.close()
    }
}

/// Returns the makers of an index that lives in a pool.
pub(crate) const fn pool_makers<K: Generated, V: Generated, T: Maker<K, V>>() -> Makers<K, V> {
    Makers {
        make: |setup| Ok(Box::new(InPool::<K, V, T>::create(setup)?)),
        counting: Some(counting::<K, V, T>),
        subprocess: Some(Subprocess {
            write_for_ever: write_for_ever::<K, V, T>,
            open: open::<K, V, T>,
        }),
    }
}

/// Returns the makers of an index in volatile memory.
pub(crate) const fn in_memory_makers<K: Key, V: Value, T: Maker<K, V>>() -> Makers<K, V> {
    Makers {
        make: |setup| {
            // This bounds addresses, not memory: an index that copies its nodes holds the old ones for a
            // while.
            let options = PoolOptions::new().max_size(setup.room.saturating_mul(4));
            let pool = Arc::new(Pool::create_in_memory(&options, |mapped| mapped)?);
            let index = Measurable::new(setup.name, T::create(setup.name, &pool)?);
            Ok(Box::new(InMemory(index)))
        },
        counting: None,
        subprocess: None,
    }
}

/// Returns the makers of `BTreeMap`, the yardstick.
pub(crate) const fn yardstick_makers<K: Generated + Ord, V: Generated>() -> Makers<K, V> {
    Makers {
        make: |_| Ok(Box::new(InMemory(Yardstick::subject()))),
        counting: None,
        subprocess: None,
    }
}

/// Returns the makers of a map in volatile memory, which is no index.
pub(crate) const fn bwtree_makers<K: Generated + Ord, V: Generated>() -> Makers<K, V> {
    Makers {
        make: |setup| Ok(Box::new(InMemory(Measurable::new(setup.name, Delta::default())))),
        counting: None,
        subprocess: None,
    }
}

fn counting<K: Key, V: Value, T: Maker<K, V>>(
    name: &'static str,
) -> Result<Counted<K, V>, CliError> {
    let options = PoolOptions::new().emulate_pm(true).max_size(COUNTED_ROOM);
    let counted = |mapped: Mapped| mapped.counted(Duration::ZERO);
    let pool = Arc::new(Pool::create_in_memory(&options, counted)?);
    let index = T::create(name, &pool)?;
    let drained = Arc::clone(&pool);
    let meter = move || {
        let counts = pool.pm().counter().map(Counter::counts).unwrap_or_default();
        Counts {
            flushed_lines: counts.lines,
            fences: counts.fences,
            media_bytes: counts.media_written,
        }
    };
    Ok(Counted {
        subject: Box::new(Measurable::new(name, index)),
        meter: Box::new(meter),
        drain: Box::new(move || {
            if let Some(counter) = drained.pm().counter() {
                counter.drain();
            }
        }),
    })
}

/// The size in addresses, not in memory, of the small pool on which costs are counted.
const COUNTED_ROOM: u64 = 8 << 30;

fn write_for_ever<K: Generated, V: Generated, T: Maker<K, V>>(
    setup: Setup<'_>,
    begun: &dyn Fn() -> Result<(), CliError>,
) -> Result<(), CliError> {
    let options = setup.medium.apply(PoolOptions::new(), setup.path);
    let pool = Arc::new(Pool::open(setup.path, &options)?);
    let store = T::open(&pool)?;
    let mut session = store.session();
    let mut keys = KeySpace::new(0);
    for round in 0u64.. {
        let (key, value) = (K::foreign(keys.miss()), V::foreign(round));
        if session.insert(&key, &value)? {
            session.remove(&key)?;
        }
        if round == 0 {
            begun()?;
        }
    }
    Ok(())
}

fn open<K: Generated, V: Generated, T: Maker<K, V>>(
    setup: Setup<'_>,
    verify: bool,
) -> Result<Opened, CliError> {
    let Setup { path, medium, write_latency, .. } = setup;
    let options = medium.apply(PoolOptions::new(), path);
    let started = Instant::now();
    let pool = Arc::new(Pool::open_with(path, &options, |mapped| slowed(mapped, write_latency))?);
    let store = T::open(&pool)?;
    let took = started.elapsed();
    if !verify {
        return Ok(Opened { took, records: T::len(&store)? });
    }
    let records = T::check(&store)?;
    T::close(store)?;
    sole(pool, path)?.close()?;
    Ok(Opened { took, records })
}

/// Returns a medium on which each flushed line takes longer.
fn slowed(mapped: Mapped, latency: Duration) -> Mapped {
    if latency.is_zero() { mapped } else { mapped.counted(latency) }
}

/// An index in a pool of its own.
struct InPool<K: Key, V: Value, T: Maker<K, V>> {
    pool: Arc<Pool>,
    index: Measurable<T::Store>,
    name: &'static str,
    path: PathBuf,
    medium: MediumArgs,
    write_latency: Duration,
    maker: PhantomData<fn() -> T>,
}

impl<K: Key, V: Value, T: Maker<K, V>> InPool<K, V, T> {
    fn create(setup: Setup<'_>) -> Result<Self, CliError> {
        let Setup { name, path, medium, write_latency, .. } = setup;
        let options = medium.apply(PoolOptions::new(), path);
        let pool = Pool::create_with(path, &options, |mapped| slowed(mapped, write_latency))?;
        let pool = Arc::new(pool);
        let index = Measurable::new(name, T::create(name, &pool)?);
        let path = pool.path().to_path_buf();
        Ok(Self { pool, index, name, path, medium, write_latency, maker: PhantomData })
    }
}

impl<K: Generated, V: Generated, T: Maker<K, V>> Bench<K, V> for InPool<K, V, T> {
    fn subject(&self) -> &dyn BenchSubject<K, V> {
        &self.index
    }

    fn durability(&self) -> (String, String) {
        let promise = Promise::of(&self.pool);
        (promise.mode, promise.words)
    }

    fn stored_bytes(&self) -> Option<u64> {
        Some(self.pool.used_bytes())
    }

    fn crash_and_open(self: Box<Self>) -> Result<Option<Reopened>, CliError> {
        let Self { pool, index, name, path, medium, write_latency, .. } = *self;
        drop(index);
        sole(pool, &path)?.kill();
        let bytes = K::SHAPE.is_bytes();
        let target = Target { index: name, pool: &path, bytes, medium };
        victim::write_and_kill(&target)?;
        let Opened { took: killed, records } = opener::open(&target, write_latency, true)?;
        let Opened { took: closed, records: found } = opener::open(&target, write_latency, false)?;
        if found != records {
            return Err(CliError::Recovered { index: name, records: found, expected: records });
        }
        Ok(Some(Reopened { killed, records, closed }))
    }
}

/// Returns the pool if no index uses it any more.
fn sole(pool: Arc<Pool>, path: &Path) -> Result<Pool, CliError> {
    Arc::into_inner(pool).ok_or_else(|| CliError::StillOpen { path: path.to_path_buf() })
}

/// A store in volatile memory.
struct InMemory<S>(S);

impl<K, V, S: BenchSubject<K, V>> Bench<K, V> for InMemory<S> {
    fn subject(&self) -> &dyn BenchSubject<K, V> {
        &self.0
    }

    fn durability(&self) -> (String, String) {
        ("volatile".into(), "in memory; nothing survives the process".into())
    }

    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    fn crash_and_open(self: Box<Self>) -> Result<Option<Reopened>, CliError> {
        Ok(None)
    }
}
