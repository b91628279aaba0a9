//! Any index as a subject: [`CrashIndex`] describes the index, [`IndexSubject`] is the subject.
//!
//! ```text
//! struct Tree;
//! impl CrashIndex for Tree {
//!     type Key = u64;
//!     type Value = u64;
//!     type Index = FpTree<u64, u64, Traced>;
//!     const NAME: &'static str = "fptree";
//!     fn key(n: u64) -> u64 { n }
//!     fn value(n: u64) -> u64 { n }
//!     fn owns(site: &Location<'static>) -> bool { site.file().contains("trees/src/fptree/") }
//! }
//! let findings = Campaign { states: 50_000, seed: 1, mutate: false, slots: None }.run::<IndexSubject<Tree>>();
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Bound;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::RwLock;
use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_index::{Index, IndexError, Key, PmIndex, Storable, Value};
use proptest::prelude::*;

use super::pools::{create_used_pool, open_pool};
use super::run::Plan;
use super::subject::{CrashSubject, Fault, Geometry};

/// An index to crash.
pub trait CrashIndex: Send + Sync + 'static {
    /// Its keys.
    type Key: Key + Hash;
    /// Its values.
    type Value: Value + Eq + Hash;
    /// The type. Take small nodes, so that a few operations split and merge them.
    type Index: PmIndex<Self::Key, Self::Value, Traced>;

    /// The name for `cargo xtask crash --index`.
    const NAME: &'static str;
    /// The number of different keys: at least 9.
    const KEYS: u64 = 20;

    /// Returns key number `n`; ascending with `n`.
    fn key(n: u64) -> Self::Key;
    /// Returns value number `n`.
    fn value(n: u64) -> Self::Value;

    /// Returns the pool's options: a small pool is fast, but it must never be full.
    fn options() -> PoolOptions {
        PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
    }

    /// Returns `true` if several threads may use it at once.
    #[must_use]
    fn concurrent() -> bool {
        true
    }

    /// Executes one step of its background work, if it has any.
    fn background(index: &Self::Index) -> Result<(), Fault> {
        let _ = index;
        Ok(())
    }

    /// Does what another owner of blocks in the pool may do before the index is opened, and returns these blocks.
    fn beside(pool: &Arc<Pool<Traced>>) -> Result<Vec<u64>, Fault> {
        let _ = pool;
        Ok(Vec::new())
    }

    /// Returns plans of its own, besides those of every index: runs that random plans seldom produce, for
    /// steps whose absence only these show.
    #[must_use]
    fn plans() -> Vec<Plan<IndexOp>> {
        Vec::new()
    }

    /// See [`CrashSubject::owns`].
    fn owns(site: &Location<'static>) -> bool;

    /// See [`CrashSubject::sources`].
    #[must_use]
    fn sources() -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// An operation on an index, by numbers of keys and values.
#[derive(Clone, Debug)]
pub enum IndexOp {
    /// Inserts value under key.
    Insert(u64, u64),
    /// Updates key to value.
    Update(u64, u64),
    /// Upserts value under key.
    Upsert(u64, u64),
    /// Removes key.
    Remove(u64),
    /// Gets key.
    Get(u64),
    /// Inserts many records, each by itself. One thread only.
    InsertMany(Vec<(u64, u64)>),
    /// Adds or replaces many records, each by itself. One thread only.
    PutMany(Vec<(u64, u64)>),
    /// Fills an empty index with this many records. One thread only.
    BulkLoad(u64),
    /// The same, with one more record out of order: it is refused, and the loaded records are discarded.
    BulkRefused(u64),
    /// Reads up to this many records from key on. One thread only.
    Scan(u64, usize),
    /// Closes the index and the pool, and opens them again. One thread only.
    Reopen,
    /// Drops the index without closing it, and opens it again, in the same pool unless that is gone. One thread only.
    OpenAgain,
    /// A step of background work.
    Background,
    /// From here on the thread's operations take the slot of this number: what those in another slot leave unsettled,
    /// stays so.
    Slot(u64),
}

/// What an operation on an index returns.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexRet<K, V> {
    /// Whether it had an effect.
    Did(bool),
    /// The value before, or found.
    Found(Option<V>),
    /// For each of several, whether it had an effect.
    Many(Vec<bool>),
    /// Records.
    Records(Vec<(K, V)>),
}

/// An index in a pool of its own: the subject made from a [`CrashIndex`].
pub struct IndexSubject<C: CrashIndex> {
    space: Space,
    open: RwLock<Option<Open<C>>>,
}

struct Open<C: CrashIndex> {
    // Dropped first: it uses the pool.
    index: C::Index,
    pool: Arc<Pool<Traced>>,
    beside: Vec<u64>,
}

impl<C: CrashIndex> fmt::Debug for IndexSubject<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(C::NAME)
    }
}

const INDEX: &str = "index";

impl<C: CrashIndex> IndexSubject<C> {
    fn with<R>(&self, body: impl FnOnce(&Open<C>) -> Result<R, Fault>) -> Result<R, Fault> {
        match &*self.open.read_recursive() {
            Some(open) => body(open),
            None => Err(Fault::new("the index is closed")),
        }
    }

    fn opened(space: &Space) -> Result<Option<Open<C>>, Fault> {
        let Some(pool) = open_pool(space, &C::options())? else { return Ok(None) };
        let beside = C::beside(&pool)?;
        match C::Index::open(&pool, INDEX) {
            Ok(index) => Ok(Some(Open { index, pool, beside })),
            Err(IndexError::NoSuchIndex { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn reopen(&self) -> Result<(), Fault> {
        let mut open = self.open.write();
        if let Some(Open { index, pool, .. }) = open.take() {
            index.close()?;
            match Arc::try_unwrap(pool) {
                Ok(pool) => pool.close()?,
                Err(_) => return Err(Fault::new("a closed index keeps its pool alive")),
            }
        }
        *open = Self::opened(&self.space)?;
        Ok(())
    }
}

impl<C: CrashIndex> IndexSubject<C> {
    /// Returns `true` unless a panic ended an opening or a closing.
    pub(crate) fn is_open(&self) -> bool {
        self.open.read_recursive().is_some()
    }

    fn open_again(&self) -> Result<(), Fault> {
        let mut open = self.open.write();
        let Some(Open { index, pool, beside }) = open.take() else {
            *open = Self::opened(&self.space)?;
            return Ok(());
        };
        drop(index);
        let index = C::Index::open(&pool, INDEX)?;
        *open = Some(Open { index, pool, beside });
        Ok(())
    }
}

fn all_of<C: CrashIndex>(records: &[(u64, u64)]) -> Vec<(C::Key, C::Value)> {
    records.iter().map(|&(k, v)| (C::key(k), C::value(v))).collect()
}

/// Fills an index with `count` records, and in `disorder` with one more out of order; returns whether the
/// index was empty and took them.
fn bulk_load<C: CrashIndex>(index: &C::Index, count: u64, disorder: bool) -> Result<bool, Fault> {
    let last = disorder.then_some(0);
    let mut records = (0..count).chain(last).map(|n| (C::key(n), C::value(n + 1)));
    match index.bulk_load(&mut records) {
        Ok(loaded) if loaded == count && !disorder => Ok(true),
        Ok(loaded) => Err(Fault::new(format!("loaded {loaded} of {count}, disorder: {disorder}"))),
        Err(IndexError::NotSorted { at }) if disorder && at == count => Ok(false),
        Err(IndexError::NotEmpty) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

type RetOf<C> = IndexRet<<C as CrashIndex>::Key, <C as CrashIndex>::Value>;
type ModelOf<C> = BTreeMap<<C as CrashIndex>::Key, <C as CrashIndex>::Value>;

impl<C: CrashIndex> CrashSubject for IndexSubject<C> {
    type Op = IndexOp;
    type Ret = RetOf<C>;
    type Model = ModelOf<C>;
    const NAME: &'static str = C::NAME;

    fn geometry() -> Geometry {
        let len = C::options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &C::options())?;
        let index = C::Index::create(&pool, INDEX)?;
        let open = Open { index, pool, beside: Vec::new() };
        Ok(Self { space: space.clone(), open: RwLock::new(Some(open)) })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let open = Self::opened(space)?;
        Ok(open.map(|open| Self { space: space.clone(), open: RwLock::new(Some(open)) }))
    }

    fn apply(&self, op: &IndexOp) -> Result<RetOf<C>, Fault> {
        if matches!(op, IndexOp::Reopen) {
            self.reopen()?;
            return Ok(IndexRet::Did(true));
        }
        if matches!(op, IndexOp::OpenAgain) {
            self.open_again()?;
            return Ok(IndexRet::Did(true));
        }
        self.with(|open| {
            let index = &open.index;
            Ok(match op {
                IndexOp::Insert(k, v) => IndexRet::Did(
                    index.try_insert(C::key(*k).borrowed(), C::value(*v).borrowed())?.is_ok(),
                ),
                IndexOp::Update(k, v) => IndexRet::Did(
                    index.update(C::key(*k).borrowed(), C::value(*v).borrowed())?.is_ok(),
                ),
                IndexOp::Upsert(k, v) if v % 2 == 0 => IndexRet::Did(
                    index.insert(C::key(*k).borrowed(), C::value(*v).borrowed())?.is_none(),
                ),
                IndexOp::Upsert(k, v) => {
                    IndexRet::Did(index.put(C::key(*k).borrowed(), C::value(*v).borrowed())?)
                }
                IndexOp::Remove(k) => IndexRet::Found(index.remove(C::key(*k).borrowed())?),
                IndexOp::Get(k) => IndexRet::Found(index.get(C::key(*k).borrowed())?),
                IndexOp::PutMany(records) => {
                    index.put_many(&all_of::<C>(records))?;
                    IndexRet::Did(true)
                }
                IndexOp::InsertMany(records) => {
                    let done = index.try_insert_many(&all_of::<C>(records));
                    match done.stopped {
                        None => IndexRet::Many(done.inserted),
                        Some(error) => return Err(error.into()),
                    }
                }
                IndexOp::BulkLoad(count) => IndexRet::Did(bulk_load::<C>(index, *count, false)?),
                IndexOp::BulkRefused(count) => IndexRet::Did(bulk_load::<C>(index, *count, true)?),
                IndexOp::Scan(from, limit) => {
                    let mut records = Vec::new();
                    index.scan(C::key(*from).borrowed(), *limit, &mut records)?;
                    IndexRet::Records(records)
                }
                IndexOp::Background => {
                    C::background(index)?;
                    IndexRet::Did(true)
                }
                IndexOp::Slot(number) => {
                    open.pool.use_slot(*number);
                    IndexRet::Did(true)
                }
                IndexOp::Reopen | IndexOp::OpenAgain => IndexRet::Did(true),
            })
        })
    }

    fn observe(&self) -> Result<ModelOf<C>, Fault> {
        self.with(|open| {
            let index = &open.index;
            let count = index.check()?;
            let mut records = BTreeMap::new();
            for item in index.range_bounds(Bound::Unbounded, Bound::Unbounded) {
                let (key, value) = item?;
                if records.last_key_value().is_some_and(|(last, _)| *last >= key) {
                    return Err(Fault::new(format!("a scan gives {key:?} out of order")));
                }
                let got = index.get(key.borrowed())?;
                if got.as_ref() != Some(&value) {
                    return Err(Fault::new(format!("{key:?}: scan {value:?}, get {got:?}")));
                }
                records.insert(key, value);
            }
            let (scanned, len) = (records.len() as u64, index.len()?);
            if count != scanned || len != scanned {
                return Err(Fault::new(format!("check {count}, len {len}, scan {scanned}")));
            }
            if let Some(damage) = open.pool.damage() {
                return Err(Fault::new(format!("the pool takes no more writes: {damage}")));
            }
            Ok(records)
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|open| {
            let blocks = [open.index.blocks()?, open.beside.clone()].concat();
            open.pool.audit(blocks.into_iter())?;
            Ok(())
        })
    }

    fn model(model: &mut ModelOf<C>, op: &IndexOp) -> RetOf<C> {
        let insert = |model: &mut ModelOf<C>, k: u64, v: u64| {
            let new = !model.contains_key(&C::key(k));
            model.entry(C::key(k)).or_insert_with(|| C::value(v));
            new
        };
        match op {
            IndexOp::Insert(k, v) => IndexRet::Did(insert(model, *k, *v)),
            IndexOp::Update(k, v) => {
                let old = model.get_mut(&C::key(*k));
                IndexRet::Did(old.map(|old| *old = C::value(*v)).is_some())
            }
            IndexOp::Upsert(k, v) => {
                IndexRet::Did(model.insert(C::key(*k), C::value(*v)).is_none())
            }
            IndexOp::Remove(k) => IndexRet::Found(model.remove(&C::key(*k))),
            IndexOp::Get(k) => IndexRet::Found(model.get(&C::key(*k)).cloned()),
            IndexOp::InsertMany(records) => {
                IndexRet::Many(records.iter().map(|&(k, v)| insert(model, k, v)).collect())
            }
            IndexOp::PutMany(records) => {
                model.extend(records.iter().map(|&(k, v)| (C::key(k), C::value(v))));
                IndexRet::Did(true)
            }
            IndexOp::BulkLoad(count) => {
                let empty = model.is_empty();
                if empty {
                    model.extend((0..*count).map(|n| (C::key(n), C::value(n + 1))));
                }
                IndexRet::Did(empty)
            }
            IndexOp::BulkRefused(_) => IndexRet::Did(false),
            IndexOp::Scan(from, limit) => {
                let records = model.range(C::key(*from)..).take(*limit);
                IndexRet::Records(records.map(|(k, v)| (k.clone(), v.clone())).collect())
            }
            IndexOp::Reopen | IndexOp::OpenAgain | IndexOp::Background | IndexOp::Slot(_) => {
                IndexRet::Did(true)
            }
        }
    }

    /// After a crash any part of several writes may have happened.
    fn outcomes(model: &ModelOf<C>, op: &IndexOp) -> Vec<(ModelOf<C>, RetOf<C>)> {
        let mut whole = model.clone();
        let ret = Self::model(&mut whole, op);
        let mut outcomes = vec![(whole, ret)];
        let (IndexOp::InsertMany(records) | IndexOp::PutMany(records)) = op else {
            return outcomes;
        };
        for part in 0..(1u32 << records.len()) - 1 {
            let mut after = model.clone();
            for (i, &(k, v)) in records.iter().enumerate().filter(|(i, _)| part >> i & 1 == 1) {
                // Of equal keys the first one is inserted.
                let is_first = records.iter().position(|r| r.0 == k) == Some(i);
                match op {
                    IndexOp::PutMany(_) => Self::model(&mut after, &IndexOp::Upsert(k, v)),
                    _ if is_first => Self::model(&mut after, &IndexOp::Insert(k, v)),
                    _ => continue,
                };
            }
            outcomes.push((after, IndexRet::Found(None))); // no call returns this
        }
        outcomes
    }

    fn ops() -> BoxedStrategy<IndexOp> {
        ops_on((0..C::KEYS).boxed(), 2)
    }

    fn ops_for(threads: usize) -> BoxedStrategy<IndexOp> {
        if threads > 1 {
            // Mostly on few keys, so that threads meet and see each other's effects.
            let hot = C::KEYS / 2..(C::KEYS / 2 + 3).min(C::KEYS);
            return ops_on(prop_oneof![3 => hot, 1 => 0..C::KEYS].boxed(), 6);
        }
        let many = || proptest::collection::vec((0..C::KEYS, 1..1000u64), 1..5);
        let load = u32::from(C::Index::LOADS_AT_ONCE);
        prop_oneof![
            12 => Self::ops(),
            1 => many().prop_map(IndexOp::InsertMany),
            1 => many().prop_map(IndexOp::PutMany),
            load => (1..C::KEYS).prop_map(IndexOp::BulkLoad),
            load => (1..C::KEYS).prop_map(IndexOp::BulkRefused),
            1 => (0..C::KEYS, 0..8usize).prop_map(|(from, limit)| IndexOp::Scan(from, limit)),
            1 => Just(IndexOp::Reopen),
        ]
        .boxed()
    }

    fn directed() -> Vec<Plan<IndexOp>> {
        let mut plans = directed(C::KEYS, C::concurrent());
        if !C::Index::LOADS_AT_ONCE {
            plans.iter_mut().for_each(without_loads);
            plans.retain(|plan| plan.threads.iter().any(|ops| !ops.is_empty()));
        }
        plans.extend(C::plans());
        plans
    }

    fn concurrent() -> bool {
        C::concurrent()
    }

    fn owns(site: &Location<'static>) -> bool {
        C::owns(site)
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        C::sources()
    }
}

/// Returns the plans for every index: bulk loads, a node that splits while its neighbour loses its least key, nodes
/// that empty one after the other.
fn directed(keys: u64, concurrent: bool) -> Vec<Plan<IndexOp>> {
    let inserts = |keys: &[u64]| keys.iter().map(|&k| IndexOp::Insert(k, k + 1)).collect();
    let removes = |keys: &[u64]| keys.iter().map(|&k| IndexOp::Remove(k)).collect::<Vec<_>>();
    let all: Vec<u64> = (0..keys).collect();
    let reverse: Vec<u64> = (0..keys).rev().collect();
    let mut plans = vec![
        Plan {
            setup: Vec::new(),
            threads: vec![vec![IndexOp::BulkLoad(keys - 1)]],
            tail: inserts(&[1, 2, 0, 3, 1, 4, 2, 5]),
        },
        Plan {
            setup: inserts(&[0, 8, 4, 2]),
            threads: vec![inserts(&[6])],
            tail: removes(&[4, 2, 4, 0, 4, 8, 4, 6]),
        },
        // An insert that a crash interrupts, then others into its leaf, one of them into its slot.
        Plan { setup: inserts(&[4]), threads: vec![inserts(&[8])], tail: inserts(&[12, 6, 8, 2]) },
        Plan { setup: inserts(&all), threads: vec![removes(&all)], tail: inserts(&all[..8]) },
        Plan {
            setup: inserts(&reverse),
            threads: vec![removes(&reverse)],
            tail: inserts(&all[..8]),
        },
    ];
    plans.extend(bulk_loads(keys));
    plans.extend(other_slots(keys));
    if concurrent {
        plans.push(Plan {
            setup: inserts(&[0, 8, 4, 2]),
            threads: vec![inserts(&[6]), removes(&[4])],
            tail: removes(&[0, 2, 0, 8, 2, 4, 6, 8]),
        });
        plans.extend(takeovers(keys));
    }
    plans
}

/// Operations through several slots: each changes what the last one in another slot left unsettled.
fn other_slots(keys: u64) -> Vec<Plan<IndexOp>> {
    let up = || (0..keys).map(|k| IndexOp::Insert(k, k + 1));
    let down = || up().rev();
    let removes = |ops: Vec<IndexOp>| -> Vec<IndexOp> {
        let removed = ops.into_iter().filter_map(|op| match op {
            IndexOp::Insert(key, _) => Some(IndexOp::Remove(key)),
            _ => None,
        });
        removed.collect()
    };
    let in_turn = |ops: Vec<IndexOp>, slots: u64| -> Vec<IndexOp> {
        let turns = (0..).map(|n| IndexOp::Slot(n % slots));
        turns.zip(ops).flat_map(|(slot, op)| [slot, op]).collect()
    };
    let mut plans = Vec::new();
    for (ops, slots) in [(up().collect::<Vec<_>>(), 2), (down().collect(), 3)] {
        let tail = ops[..4].to_vec();
        let turns = in_turn(ops.clone(), slots);
        plans.push(Plan { setup: Vec::new(), threads: vec![turns.clone()], tail: tail.clone() });
        let removals = in_turn(removes(ops.clone()), slots);
        plans.push(Plan { setup: turns, threads: vec![removals], tail: tail.clone() });
        // The last operation in the first slot splits a node, if that has room for four records.
        for inserted in [5, 7, 8] {
            let setup = ops[..inserted].to_vec();
            let run = [vec![IndexOp::Slot(1)], removes(setup.clone())].concat();
            plans.push(Plan { setup, threads: vec![run], tail: tail.clone() });
        }
    }
    plans
}

/// One thread empties nodes, which merge, while others fill theirs, which split: they get the blocks that the
/// first frees at once, the sooner the fewer operation slots there are.
fn takeovers(keys: u64) -> Vec<Plan<IndexOp>> {
    let inserts =
        |keys: std::ops::Range<u64>| keys.map(|k| IndexOp::Insert(k, k + 1)).collect::<Vec<_>>();
    let removes = |keys: &[u64]| keys.iter().map(|&k| IndexOp::Remove(k)).collect::<Vec<_>>();
    let new = keys + 1;
    let mut setup = inserts(0..new);
    setup.extend(removes(&[3, 4, 0]));
    let mut tail = inserts(0..4);
    tail.extend(removes(&[new, 1, 5, keys]));
    let runs = [
        vec![removes(&[1]), inserts(new..new + 8)],
        vec![removes(&[1, 2, 5, 6]), inserts(new..new + 8)],
        vec![removes(&[1, 2]), removes(&[8, 7]), inserts(new..new + 6)],
        vec![removes(&[1, 2]), inserts(new..new + 4), inserts(new + 4..new + 8)],
    ];
    let plan = |threads| Plan { setup: setup.clone(), threads, tail: tail.clone() };
    runs.into_iter().map(plan).collect()
}

/// Bulk loads, interrupted or refused, of an index that is empty, or empty again; and a second crash after a
/// load that was not discarded durably: writes that came after it, or its blocks taken by another load.
fn bulk_loads(keys: u64) -> Vec<Plan<IndexOp>> {
    let (most, last) = (keys - 1, IndexOp::Insert(keys - 1, 1));
    let mut emptied: Vec<IndexOp> = (0..keys).map(|k| IndexOp::Insert(k, k + 1)).collect();
    emptied.extend((0..keys).map(IndexOp::Remove));
    // One or two in a row follow a recovery.
    let tail = vec![
        IndexOp::BulkLoad(most),
        IndexOp::Insert(0, 9),
        last.clone(),
        IndexOp::BulkLoad(2),
        IndexOp::Upsert(1, 7),
        IndexOp::BulkRefused(most),
        IndexOp::BulkLoad(most),
        last.clone(),
    ];
    let refused = vec![IndexOp::BulkRefused(most), IndexOp::Insert(0, 9), IndexOp::Remove(0)];
    let again = vec![IndexOp::BulkRefused(most), IndexOp::BulkLoad(most), IndexOp::Remove(0)];
    let runs = [
        (Vec::new(), vec![IndexOp::BulkLoad(most)]),
        (emptied.clone(), vec![IndexOp::BulkLoad(most), last]),
        (Vec::new(), refused),
        (emptied, again),
    ];
    let plan = |(setup, ops)| Plan { setup, threads: vec![ops], tail: tail.clone() };
    runs.into_iter().map(plan).collect()
}

/// Removes loads from a plan, for an index whose loads may leave a part.
fn without_loads(plan: &mut Plan<IndexOp>) {
    for ops in plan.threads.iter_mut().chain([&mut plan.setup, &mut plan.tail]) {
        ops.retain(|op| !matches!(op, IndexOp::BulkLoad(_) | IndexOp::BulkRefused(_)));
    }
}

/// Returns operations on one key, with `reads` as the weight of reads.
fn ops_on(key: BoxedStrategy<u64>, reads: u32) -> BoxedStrategy<IndexOp> {
    let value = 1..1000u64;
    prop_oneof![
        6 => (key.clone(), value.clone()).prop_map(|(k, v)| IndexOp::Insert(k, v)),
        2 => (key.clone(), value.clone()).prop_map(|(k, v)| IndexOp::Update(k, v)),
        2 => (key.clone(), value).prop_map(|(k, v)| IndexOp::Upsert(k, v)),
        5 => key.clone().prop_map(IndexOp::Remove),
        reads => key.prop_map(IndexOp::Get),
        1 => Just(IndexOp::Background),
        2 => (0..3u64).prop_map(IndexOp::Slot),
    ]
    .boxed()
}
