//! Batches and compare-and-swap over an index: a subject that the library's own tests also crash with wrong
//! orders of its steps. Every persistent write is an operation of an index, so the steps that mutants drop
//! are the index's.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use pmindex::core::trace::Space;
use pmindex::core::{Pool, PoolOptions, Traced};
use pmindex::{Batched, Exchange, FpTree, Index, IndexError, WriteBatch};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

const KEYS: u64 = 6;
/// The name of the index in its pool.
pub(crate) const INDEX: &str = "index";

/// The index that is changed.
pub(crate) type Tree = FpTree<u64, u64, Traced, 4, 4>;
/// The same with batches.
pub(crate) type Batches = Batched<u64, u64, Tree, Traced>;

/// A preparation of an index with batches.
pub(crate) trait Variant: Send + Sync + 'static {
    /// Changes the order of its steps.
    fn vary(batched: &mut Batches);
}

/// No preparation.
pub(crate) struct Right;

impl Variant for Right {
    fn vary(_: &mut Batches) {}
}

/// An index with batches.
pub(crate) struct Batch<V = Right> {
    pool: Arc<Pool<Traced>>,
    batched: Batches,
    variant: PhantomData<V>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Write(Vec<(u64, Option<u64>)>),
    Insert(u64, u64),
    Upsert(u64, u64),
    Remove(u64),
    Exchange(u64, Option<u64>, Option<u64>),
    Get(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Did(bool),
    Found(Option<u64>),
}

fn options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
}

impl<V: Variant> Batch<V> {
    fn with(pool: Arc<Pool<Traced>>, index: Tree) -> Result<Self, Fault> {
        let mut batched = Batched::new(&pool, INDEX, index)?;
        V::vary(&mut batched);
        Ok(Self { pool, batched, variant: PhantomData })
    }
}

impl<V: Variant> CrashSubject for Batch<V> {
    type Op = Op;
    type Ret = Ret;
    type Model = BTreeMap<u64, u64>;
    const NAME: &'static str = "batched";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options())?;
        let index = Tree::create(&pool, INDEX)?;
        Self::with(pool, index)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let index = match Tree::open(&pool, INDEX) {
            Err(IndexError::NoSuchIndex { .. }) => return Ok(None),
            opened => opened?,
        };
        Self::with(pool, index).map(Some)
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        let index = &self.batched;
        Ok(match op {
            Op::Write(changes) => {
                let mut batch = WriteBatch::new();
                for (key, value) in changes {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.remove(key),
                    };
                }
                index.write(&batch)?;
                Ret::Did(true)
            }
            Op::Insert(key, value) => Ret::Did(index.try_insert(key, value)?.is_ok()),
            Op::Upsert(key, value) => Ret::Did(index.put(key, value)?),
            Op::Remove(key) => Ret::Found(index.remove(key)?),
            Op::Get(key) => Ret::Found(index.get(key)?),
            Op::Exchange(key, expected, wanted) => {
                match index.compare_exchange(key, expected.as_ref(), wanted.as_ref())? {
                    Exchange::Done => Ret::Did(true),
                    Exchange::Found(found) => Ret::Found(found),
                }
            }
        })
    }

    fn observe(&self) -> Result<BTreeMap<u64, u64>, Fault> {
        self.batched.check()?;
        Ok(self.batched.inner().iter().collect::<Result<_, _>>()?)
    }

    fn audit(&self) -> Result<(), Fault> {
        let blocks = self.batched.inner().blocks()?;
        self.pool.audit(blocks.into_iter().chain(self.batched.log_blocks()?))?;
        Ok(())
    }

    fn model(model: &mut BTreeMap<u64, u64>, op: &Op) -> Ret {
        fn set(model: &mut BTreeMap<u64, u64>, key: u64, value: Option<u64>) -> Option<u64> {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            }
        }
        match op {
            Op::Write(changes) => {
                for (key, value) in changes {
                    set(model, *key, *value);
                }
                Ret::Did(true)
            }
            Op::Insert(key, _) if model.contains_key(key) => Ret::Did(false),
            Op::Insert(key, value) | Op::Upsert(key, value) => {
                Ret::Did(set(model, *key, Some(*value)).is_none())
            }
            Op::Remove(key) => Ret::Found(set(model, *key, None)),
            Op::Get(key) => Ret::Found(model.get(key).copied()),
            Op::Exchange(key, expected, wanted) => {
                let found = model.get(key).copied();
                if found != *expected {
                    return Ret::Found(found);
                }
                set(model, *key, *wanted);
                Ret::Did(true)
            }
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        Self::ops_for(1)
    }

    /// Without lookups beside batches of other threads, which are not isolated.
    fn ops_for(threads: usize) -> BoxedStrategy<Op> {
        let value = || prop_oneof![3 => (1..5u64).prop_map(Some), 1 => Just(None)];
        let write = prop::collection::vec((0..KEYS, value()), 1..4).prop_map(Op::Write);
        prop_oneof![
            8 => write,
            2 => (0..KEYS, 1..5u64).prop_map(|(k, v)| Op::Insert(k, v)),
            3 => (0..KEYS, 1..5u64).prop_map(|(k, v)| Op::Upsert(k, v)),
            2 => (0..KEYS).prop_map(Op::Remove),
            3 => (0..KEYS, value(), value()).prop_map(|(k, old, new)| Op::Exchange(k, old, new)),
            u32::from(threads == 1) => (0..KEYS).prop_map(Op::Get),
        ]
        .boxed()
    }

    /// A plain write of a key of a batch, right behind it.
    fn directed() -> Vec<Plan<Op>> {
        let batch = |value| Op::Write(vec![(1, Some(value)), (2, Some(value)), (3, None)]);
        vec![Plan {
            setup: vec![Op::Insert(1, 1), Op::Insert(3, 1)],
            threads: vec![vec![batch(2)], vec![Op::Upsert(1, 3), Op::Upsert(2, 4)]],
            tail: vec![batch(4), Op::Remove(1)],
        }]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/")
    }
}
