//! Stores.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use facade::core::{Durability, Pool, PoolOptions};
use facade::{Catalog, Key, Kind, StoreOptions};
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::catalog::{Named, by_the_book};
use crate::convert::seconds;
use crate::dyn_map::{DynMap, Work, with_forms};
use crate::expiring::ExpiringMap;
use crate::fault::{Class, Fault};
use crate::held::{At, Held, Opened, Shared, Slot, Types, View};
use crate::map::{Map, text};
use crate::raw::{Names, RawType, with_names};
use crate::report::Report;
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::types::{Spelled, Type};
use crate::watch::Watch;

/// Named typed maps in one file, with transactions and snapshots over all of them.
///
/// Opens the file, or creates it unless `create` is false. After a crash it recovers the store. One process
/// at a time can open a file; any number of its threads share the store. A forked child gets `Forked`: it
/// has to open the store itself.
///
/// `durability` is what an acknowledged write survives:
///
/// - None: the strongest mode that the medium gives by itself;
/// - "process": a crash or kill of the process, on a file in memory (tmpfs) or of the page cache;
/// - "journal", "msync": power failure, on a disk; by a journal beside the file, or by `msync`;
/// - "persistent": power failure, on persistent memory (DAX), else `TooWeak`;
/// - "periodic": as "process"; a power failure takes only the last moments: `twin` is a file on a disk
///   that follows the one in memory, `twin_every` seconds behind (0.1).
///
/// `size` is the size of a new file in bytes (64 MiB), `max_size` the limit of its growth, `writers` the
/// number of threads that may write to a new one at once. `past_bytes` limits the memory in which snapshots
/// and transactions keep old values (256 MiB); `keep_commits` is about the number of bytes of the newest
/// commits that are kept for `watch(after=...)`; `tries` is the number of times that `transact` runs a body
/// that conflicts.
#[pyclass(frozen, module = "pmindex")]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

/// The number of exceptions, each raised while the next was handled, among which `SnapshotEnded` is looked for.
const MOST_CONTEXTS: usize = 100;

/// The opening of a map; with `Some(kind)`, it is created of that kind if there is none.
struct Open<'s> {
    store: &'s Opened,
    name: &'s str,
    kind: Option<Kind>,
}

impl Work for Open<'_> {
    type Done = Box<dyn DynMap>;

    fn run<K: RawType + Key, V: RawType>(self) -> Result<Box<dyn DynMap>, Fault> {
        let Self { store, name, kind } = self;
        let map = match kind {
            Some(kind) => store.map_of_kind::<K, V>(name, kind)?,
            None => store.existing_map::<K, V>(name)?,
        };
        Ok(Box::new(map))
    }
}

/// The removal of a map.
struct Destroy<'s>(&'s Opened, &'s str);

impl Work for Destroy<'_> {
    type Done = bool;

    fn run<K: RawType + Key, V: RawType>(self) -> Result<bool, Fault> {
        Ok(self.0.drop_map::<K, V>(self.1)?)
    }
}

fn names_of(types: &Types) -> Names {
    Names { key: types.key.to_string(), value: types.value.to_string() }
}

/// Opens a map of these types.
fn open(
    shared: &Shared,
    store: &Opened,
    name: &str,
    types: &Types,
    kind: Option<Kind>,
) -> Result<Box<dyn DynMap>, Fault> {
    shared.book.lock().insert(name.into(), names_of(types));
    let (key, value) = (types.key.form(), types.value.form());
    by_the_book(&shared.book, || with_forms(key, value, Open { store, name, kind }))
}

/// Returns the map of this name: the open one, or opens the existing one; without `types`, one of any types.
fn slot(
    shared: &Shared,
    name: &str,
    types: Option<Types>,
    kind: Option<Kind>,
) -> Result<Arc<Slot>, Fault> {
    let mut maps = shared.maps()?;
    if let Some(there) = maps.get(name) {
        return match types {
            Some(types) if types != there.types => {
                let (key, value) = (Spelled(&there.types.key), Spelled(&there.types.value));
                let message =
                    format!("map {name:?} is open with keys of {key} and values of {value}");
                Err(Fault::new(Class::WrongType, message))
            }
            _ => Ok(Arc::clone(there)),
        };
    }
    shared.store.with(|store| {
        let (types, map) = match types {
            Some(types) => {
                let map = open(shared, store, name, &types, kind)?;
                (types, map)
            }
            None => guess(shared, store, name)?,
        };
        let map = Held::new(map, "the map was dropped, or its store is closed");
        let slot = Arc::new(Slot { name: name.into(), types, map });
        maps.insert(name.into(), Arc::clone(&slot));
        Ok(slot)
    })
}

/// Opens the existing map by trying types: a pool knows only a hash of their names.
fn guess(shared: &Shared, store: &Opened, name: &str) -> Result<(Types, Box<dyn DynMap>), Fault> {
    let until = |value: Type| Type::Tuple(vec![Type::Uint(64), value]);
    let values = Type::guesses().chain(Type::guesses().map(until));
    for key in Type::guesses() {
        for value in values.clone() {
            let types = Types { key: key.clone(), value };
            match open(shared, store, name, &types, None) {
                Err(fault) if fault.is_of_layout => {}
                opened => return Ok((types, opened?)),
            }
        }
    }
    let message = format!("map {name:?}: say which types it has (key=..., value=...)");
    Err(Fault::new(Class::WrongType, message))
}

/// Opens every map, so that all of them are in a backup.
fn open_all(shared: &Shared) -> Result<(), Fault> {
    let maps = shared.store.with(|store| Ok(store.maps_in_pool()?))?;
    maps.into_iter().try_for_each(|map| slot(shared, &map.name, None, None).map(drop))
}

/// Parses the name of a mode of durability.
fn durability(options: PoolOptions, name: &str) -> PyResult<PoolOptions> {
    Ok(match name {
        "process" => options.write_back(false),
        "periodic" => options.require(Durability::Periodic),
        "msync" => options.require(Durability::Msync),
        "journal" => options.journal(true).require(Durability::Journal),
        "persistent" => options.require(Durability::Fence),
        _ => {
            return Err(PyValueError::new_err(format!(
                "durability={name:?}: one of \"process\", \"periodic\", \"msync\", \"journal\", \
                 \"persistent\", or None"
            )));
        }
    })
}

fn kind_of(kind: Option<&str>) -> PyResult<Kind> {
    let Some(name) = kind else { return Ok(Named::DEFAULT) };
    name.parse().map_err(|_| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        PyValueError::new_err(format!("kind={name:?}: this build has {}", known.join(", ")))
    })
}

impl Store {
    fn slot_of(
        &self,
        name: &Bound<'_, PyString>,
        types: Option<Types>,
        kind: Option<&str>,
    ) -> PyResult<Arc<Slot>> {
        let (kind, own) = (kind_of(kind)?, text(name)?);
        Ok(name.py().detach(|| slot(&self.shared, &own, types, Some(kind)))?)
    }

    /// Runs a body in a transaction; `None` if it conflicts and has to run again.
    fn try_once<'py>(&self, body: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = body.py();
        let transaction = py.detach(|| Transaction::begin(&self.shared))?;
        let transaction = Bound::new(py, transaction)?;
        let own = transaction.get();
        let result = match body.call1((&transaction,)) {
            Ok(result) => result,
            Err(error) => {
                let was_ended = py.detach(|| own.abandon());
                // Not if it is an error of the body's own, or an interruption.
                return if was_ended && is_of_ended(py, &error) { Ok(None) } else { Err(error) };
            }
        };
        match py.detach(|| own.finish()) {
            Ok(()) => Ok(Some(result)),
            Err(fault) if matches!(fault.class, Class::Conflict | Class::SnapshotEnded) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}

#[pymethods]
impl Store {
    #[new]
    #[pyo3(signature = (
        path, *, create=true, read_only=false, durability=None, twin=None, twin_every=None,
        size=None, max_size=None, grow=true, writers=None, past_bytes=None, keep_commits=None, tries=100,
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        create: bool,
        read_only: bool,
        durability: Option<&str>,
        twin: Option<PathBuf>,
        twin_every: Option<&Bound<'_, PyAny>>,
        size: Option<u64>,
        max_size: Option<u64>,
        grow: bool,
        writers: Option<u64>,
        past_bytes: Option<u64>,
        keep_commits: Option<u64>,
        tries: u32,
    ) -> PyResult<Self> {
        let set =
            |options: PoolOptions, value: Option<u64>, to: fn(PoolOptions, u64) -> PoolOptions| {
                value.map_or(options.clone(), |value| to(options, value))
            };
        let mut pool = PoolOptions::new().read_only(read_only).grow(grow);
        pool = set(pool, size, PoolOptions::size);
        pool = set(pool, max_size, PoolOptions::max_size);
        pool = set(pool, writers, PoolOptions::slots);
        if let Some(name) = durability {
            pool = self::durability(pool, name)?;
        }
        match twin {
            Some(twin) => pool = pool.twin(twin),
            None if durability == Some("periodic") || twin_every.is_some() => {
                let message = "say where the twin is: twin=PATH, on a disk";
                return Err(PyValueError::new_err(message));
            }
            None => {}
        }
        if let Some(every) = twin_every {
            pool = pool.twin_every(seconds(every, "twin_every")?);
        }
        let mut options = StoreOptions::new();
        if let Some(bytes) = past_bytes {
            options = options.past_bytes(bytes);
        }
        if let Some(bytes) = keep_commits {
            options = options.keep_commits(bytes);
        }
        let shared = py.detach(|| {
            let opens = create && !read_only;
            let open = if opens { Pool::open_or_create } else { Pool::open };
            let pool = Arc::new(open(path, &pool)?);
            Ok::<_, Fault>(Shared::new(Opened::in_pool(&pool, &options)?, tries.max(1)))
        })?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Opens the map of this name, or creates it. Types are `int` (64 bits), `str`, `bytes`, `float`, `bool`,
    /// None, tuples of them (`(str, int)`, `tuple[str, int]`), and the names of Rust's numbers (`"u64"`).
    /// Without a type of values it is a set, whose values are None. Without any type, it is the existing
    /// map with its own types; `NoSuchMap` if there is none.
    ///
    /// `kind` is the kind of its index, one of `KINDS`; an existing map keeps its own.
    #[pyo3(signature = (name, key=None, value=None, *, kind=None))]
    fn map(
        &self,
        name: &Bound<'_, PyString>,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        kind: Option<&str>,
    ) -> PyResult<Map> {
        let types = types_of(name, key, value)?;
        let view = View { slot: self.slot_of(name, types, kind)?, at: At::Now };
        Ok(Map::new(view, Arc::clone(&self.shared)))
    }

    /// Opens the map of this name whose records expire, or creates it.
    #[pyo3(signature = (name, key, value=None, *, kind=None))]
    fn expiring_map(
        &self,
        name: &Bound<'_, PyString>,
        key: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        kind: Option<&str>,
    ) -> PyResult<ExpiringMap> {
        let types = types_of(name, Some(key), value)?;
        let types = types.map(|Types { key, value }| Types {
            key,
            value: Type::Tuple(vec![Type::Uint(64), value]),
        });
        if let Some(types) = &types {
            types.value.check("a time and a value")?;
        }
        let view = View { slot: self.slot_of(name, types, kind)?, at: At::Now };
        Ok(ExpiringMap::new(view, Arc::clone(&self.shared)))
    }

    /// Returns the names of the maps, sorted.
    fn maps(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let maps = py.detach(|| self.shared.store.with(|store| Ok(store.maps_in_pool()?)))?;
        Ok(maps.into_iter().map(|map| map.name).collect())
    }

    /// Removes a map; returns whether it existed. Objects that hold it raise `Closed` from then on. Raises
    /// `InUse` while a snapshot or transaction reads it.
    fn drop_map(&self, name: &Bound<'_, PyString>) -> PyResult<bool> {
        let own = text(name)?;
        Ok(name.py().detach(|| drop_map(&self.shared, &own))?)
    }

    /// Begins a transaction: `with store.transaction() as tx`. After a `Conflict` the caller begins again.
    fn transaction(&self, py: Python<'_>) -> PyResult<Transaction> {
        Ok(py.detach(|| Transaction::begin(&self.shared))?)
    }

    /// Runs a body in a transaction and commits it. The body runs again if the transaction conflicts with
    /// others. If it raises an exception, nothing is changed.
    fn transact<'py>(&self, body: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = body.py();
        let most = self.shared.tries;
        for tries in 1..=most {
            if let Some(result) = self.try_once(body)? {
                return Ok(result);
            }
            py.check_signals()?;
            // The more often, the longer: others come to their end meanwhile.
            let pause = Duration::from_micros(1 << tries.min(10));
            py.detach(|| std::thread::sleep(pause));
        }
        let message = format!("the transaction conflicts with others, each of {most} tries");
        Err(Fault::new(Class::Conflict, message).into())
    }

    /// Begins a snapshot: the current moment of all maps.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        Ok(py.detach(|| Snapshot::begin(&self.shared))?)
    }

    /// Watches commits from now on, or from a position of an earlier watch on (`WatchEnded` if the log no
    /// longer has all commits since).
    #[pyo3(signature = (*, after=None))]
    fn watch(&self, py: Python<'_>, after: Option<u64>) -> PyResult<Watch> {
        Ok(py.detach(|| Watch::begin(&self.shared, after))?)
    }

    /// Writes one moment of all maps to a new store in a new file, while writers continue; returns the number
    /// of records.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        let backup = py.detach(|| {
            open_all(&self.shared)?;
            let write = |store: &Opened| Ok(store.backup(path)?.records);
            by_the_book(&self.shared.book, || self.shared.store.with(write))
        })?;
        Ok(backup)
    }

    /// Returns a report on the store.
    fn report(&self, py: Python<'_>) -> PyResult<Report> {
        Ok(Report(py.detach(|| self.shared.store.with(|store| Ok(store.report()?)))?))
    }

    /// Verifies all maps; returns the number of records.
    fn check(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| {
            open_all(&self.shared)?;
            self.shared.store.with(|store| Ok(store.check()?))
        })?)
    }

    /// Waits until everything acknowledged so far survives as much as the medium allows.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.shared.store.with(|store| Ok(store.pool().sync()?)))?)
    }

    /// The mode of durability.
    #[getter]
    fn durability(&self, py: Python<'_>) -> PyResult<String> {
        let mode = |store: &Opened| Ok(store.pool().durability().to_string());
        Ok(py.detach(|| self.shared.store.with(mode))?)
    }

    /// Describes the medium and what writes survive, as text.
    fn describe(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.shared.store.with(|store| Ok(store.pool().describe())))?)
    }

    /// The path of the file.
    #[getter]
    fn path(&self, py: Python<'_>) -> PyResult<PathBuf> {
        Ok(py.detach(|| self.shared.store.with(|store| Ok(store.pool().path().to_owned())))?)
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| !self.shared.store.is_open())
    }

    /// Ends all open objects of the store and closes it. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.shared.close())?)
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.path(py) {
            Ok(path) => format!("<pmindex.Store {}>", path.display()),
            Err(_) => "<pmindex.Store, closed>".into(),
        }
    }
}

/// Returns `true` if an error of a body is `SnapshotEnded`, or an exception that was raised while that was handled.
fn is_of_ended(py: Python<'_>, error: &PyErr) -> bool {
    if !error.is_instance_of::<PyException>(py) {
        return false;
    }
    let mut next = Some(error.value(py).clone().into_any());
    // A program can make a circle of contexts.
    for _ in 0..MOST_CONTEXTS {
        let Some(value) = next.filter(|value| !value.is_none()) else { return false };
        if Class::SnapshotEnded.is_of(&value) {
            return true;
        }
        next = value.getattr("__context__").ok();
    }
    false
}

/// Parses the types of a map; `None` if there are none.
fn types_of(
    name: &Bound<'_, PyString>,
    key: Option<&Bound<'_, PyAny>>,
    value: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<Types>> {
    match (key, value) {
        (None, None) => Ok(None),
        (None, Some(_)) => {
            Err(PyTypeError::new_err(format!("map {name}: say the type of its keys too")))
        }
        (Some(key), value) => {
            let value = value.map_or(Ok(Type::Unit), |value| Type::of(value, "value"))?;
            Ok(Some(Types { key: Type::of(key, "key")?, value }))
        }
    }
}

fn drop_map(shared: &Shared, name: &str) -> Result<bool, Fault> {
    let slot = match slot(shared, name, None, None) {
        Err(fault) if fault.class == Class::NoSuchMap => return Ok(false),
        slot => slot?,
    };
    let mut maps = shared.maps()?;
    let types = &slot.types;
    drop(slot.map.take()?);
    let dropped = shared.store.with(|store| {
        let work = Destroy(store, name);
        let (key, value) = (types.key.form(), types.value.form());
        // Its index is opened under a name that no book has.
        let dropped = with_names(names_of(types), || {
            by_the_book(&shared.book, || with_forms(key, value, work))
        });
        if dropped.is_err() {
            slot.map.put_back(open(shared, store, name, types, None)?);
        }
        dropped
    })?;
    maps.remove(name);
    shared.book.lock().remove(name);
    Ok(dropped)
}
