//! A map whose records expire, and its sweeper beside writers that replace them.
//!
//! The clock stands still: a record is expired when it is written, or never. So the model has the others.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pmindex_core::trace::Space;
use pmindex_core::{Pool, Traced};
use pmindex_index::Index;
use pmindex_store::{ExpiringMap, Store, StoreOptions};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

use super::store::{Right, Small, SmallStore, Variant, options};

const KEYS: u64 = 6;
const NAME: &str = "expiring";

/// A map of a store.
pub(crate) struct Expires<V = Right> {
    map: ExpiringMap<u64, u64, Traced>,
    store: SmallStore,
    variant: PhantomData<V>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Writes a record that lives, or is over.
    Insert(u64, u64, bool),
    TryInsert(u64, u64),
    Renew(u64),
    Remove(u64),
    Get(u64),
    /// Runs the sweeper over all records.
    Sweep,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Did(bool),
    Found(Option<u64>),
}

type Live = BTreeMap<u64, u64>;

const LIVES: Duration = Duration::from_secs(1);

impl<V: Variant<Kinds = Small>> Expires<V> {
    fn with(pool: &Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let store = Store::in_pool(pool, &StoreOptions::new().tries(1000))?;
        V::vary(&store);
        let map = store.expiring_map(NAME)?.with_clock(|| UNIX_EPOCH + 1000 * LIVES);
        Ok(Self { map, store, variant: PhantomData })
    }
}

impl<V: Variant<Kinds = Small>> CrashSubject for Expires<V> {
    type Op = Op;
    type Ret = Ret;
    type Model = Live;
    const NAME: &'static str = NAME;

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Self::with(&create_used_pool(space, &options())?)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        if pool.find_index(NAME)?.is_none() {
            return Ok(None);
        }
        Self::with(&pool).map(Some)
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        let map = &self.map;
        Ok(match op {
            Op::Insert(key, value, lives) => {
                let lives = if *lives { LIVES } else { Duration::ZERO };
                Ret::Found(map.insert(key, value, lives)?)
            }
            Op::TryInsert(key, value) => Ret::Did(map.try_insert(key, value, LIVES)?.is_ok()),
            Op::Renew(key) => Ret::Did(map.renew(key, 2 * LIVES)?),
            Op::Remove(key) => Ret::Found(map.remove(key)?),
            Op::Get(key) => Ret::Found(map.get(key)?),
            Op::Sweep => Ret::Did(map.sweeper().step(KEYS as usize + 1)?.at_end),
        })
    }

    fn observe(&self) -> Result<Live, Fault> {
        self.store.check()?;
        Ok(self.map.range(..).collect::<Result<_, _>>()?)
    }

    fn audit(&self) -> Result<(), Fault> {
        self.store.pool().audit(self.store.blocks()?.into_iter())?;
        self.map.sweeper().step(KEYS as usize + 1)?;
        if self.map.map().len()? != self.map.range(..).count() as u64 {
            return Err(Fault::new("a record that is over is still there"));
        }
        Ok(())
    }

    fn model(model: &mut Live, op: &Op) -> Ret {
        match op {
            Op::Insert(key, value, true) => Ret::Found(model.insert(*key, *value)),
            Op::Insert(key, _, false) | Op::Remove(key) => Ret::Found(model.remove(key)),
            Op::TryInsert(key, value) => {
                let is_new = !model.contains_key(key);
                model.entry(*key).or_insert(*value);
                Ret::Did(is_new)
            }
            Op::Renew(key) => Ret::Did(model.contains_key(key)),
            Op::Get(key) => Ret::Found(model.get(key).copied()),
            Op::Sweep => Ret::Did(true),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        let (key, value) = (|| 0..KEYS, || 1..5u64);
        prop_oneof![
            4 => (key(), value(), any::<bool>()).prop_map(|(k, v, lives)| Op::Insert(k, v, lives)),
            3 => (key(), value()).prop_map(|(key, value)| Op::TryInsert(key, value)),
            2 => key().prop_map(Op::Renew),
            2 => key().prop_map(Op::Remove),
            2 => key().prop_map(Op::Get),
            3 => Just(Op::Sweep),
        ]
        .boxed()
    }

    /// A sweeper beside writers that replace expired records.
    fn directed() -> Vec<Plan<Op>> {
        let setup: Vec<Op> = (0..3).map(|key| Op::Insert(key, 1, false)).collect();
        let writes = [Op::TryInsert(0, 2), Op::Insert(1, 3, true), Op::TryInsert(2, 4)];
        let plan = |one: &[Op], other: &[Op]| Plan {
            setup: setup.clone(),
            threads: vec![one.to_vec(), other.to_vec()],
            tail: vec![Op::Get(0), Op::Sweep, Op::Renew(1)],
        };
        vec![plan(&[Op::Sweep], &writes), plan(&writes, &[Op::Sweep, Op::Sweep])]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("trees/src/fptree/")
    }
}
