//! A store of three maps: transactions, single writes beside them, and moments of all.
//!
//! Most persistent writes are operations of an index or of the log, so the steps that mutants drop are the
//! log's. The store's own tests explore this subject with wrong orders of its steps.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{IndexEntry, Medium, Pool, PoolOptions, Traced};
use pmindex_index::{ErasedIndex, Index, IndexError, Key, PmIndex, Value, erase};
use pmindex_store::{Catalog, Map, Store, StoreError, StoreOptions, WatchPosition};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use pmindex_trees::FpTree;
use proptest::prelude::*;

const KEYS: u64 = 5;
pub(crate) const MAPS: usize = 3;
const NAMES: [&str; MAPS] = ["one", "two", "three"];

/// Maps are trees with small nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Small;

impl Catalog for Small {
    type Kind = ();
    const DEFAULT: () = ();

    fn kind(_: &IndexEntry) -> Option<()> {
        Some(())
    }

    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        (): (),
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        erase(FpTree::<K, V, M, 4, 4>::create(pool, name))
    }

    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        erase(<FpTree<K, V, M, 4, 4> as PmIndex<K, V, M>>::open(pool, name))
    }
}

pub(crate) type SmallStore = Store<Small, Traced>;

/// A preparation of a store.
pub(crate) trait Variant: Send + Sync + 'static {
    /// The kinds of its maps.
    type Kinds: Catalog;
    const KINDS: [<Self::Kinds as Catalog>::Kind; MAPS];
    const NAME: &'static str = "store";
    /// The bytes of commits that are kept, if all commits have records.
    const KEEPS: Option<u64> = None;

    /// Changes its steps.
    fn vary(_: &Store<Self::Kinds, Traced>) {}

    /// The blocks of the pool that belong to no map.
    fn blocks(_: &Pool<Traced>) -> Result<Option<u64>, Fault> {
        Ok(None)
    }
}

/// No preparation.
pub(crate) struct Right;

impl Variant for Right {
    type Kinds = Small;
    const KINDS: [(); MAPS] = [(); MAPS];
}

/// All commits have records, which agree with the maps. The log keeps few of them, so that the directed plan with one
/// thread goes round in it; others rarely do.
pub(crate) struct Watched;

impl Variant for Watched {
    type Kinds = Small;
    const KINDS: [(); MAPS] = [(); MAPS];
    const NAME: &'static str = "store-watched";
    const KEEPS: Option<u64> = Some(4 << 10);
}

/// A store of three maps.
pub(crate) struct Stored<V: Variant = Right> {
    maps: [Map<u64, u64, Traced>; MAPS],
    store: Store<V::Kinds, Traced>,
    variant: PhantomData<V>,
}

/// A map of which the model knows nothing.
const ASIDE: &str = "aside";
/// The key that asks the next opening for a commit without a record, to that map.
const ASKS: u64 = KEYS;

/// A map, and a key in it.
type At = (usize, u64);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Writes these records, blindly, in one transaction.
    Write(Vec<(At, Option<u64>)>),
    /// Takes one from the value of a record and adds it to another one, if both are there and the first
    /// is not 0.
    Move(At, At),
    /// Takes one from the first record if the two together are more than 2.
    Take(At, At),
    /// Adds the record that comes after the last one of a map, to all.
    Append(usize, u64),
    Insert(At, u64),
    Update(At, u64),
    Remove(At),
    Get(At),
    /// Reads everything, through a snapshot.
    Look,
}

/// The records of the maps.
type All = [BTreeMap<u64, u64>; MAPS];

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Did(bool),
    Found(Option<u64>),
    All(All),
}

pub(crate) fn options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
}

impl<V: Variant> Stored<V> {
    fn with(pool: &Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let stored = Self::keeping(pool, V::KEEPS)?;
        if V::KEEPS.is_none() {
            return Ok(stored);
        }
        let aside = stored.store.map::<u64, u64>(ASIDE)?;
        if stored.maps[0].get(&ASKS)?.is_none() || aside.get(&0)? == Some(1) {
            return Ok(stored);
        }
        aside.insert(&0, &0)?;
        drop((aside, stored));
        let unwatched = Store::<V::Kinds, Traced>::in_pool(pool, &StoreOptions::new())?;
        unwatched.map::<u64, u64>(ASIDE)?.insert(&0, &1)?; // one store, one flush, one fence
        drop(unwatched);
        Self::keeping(pool, V::KEEPS)
    }

    fn keeping(pool: &Arc<Pool<Traced>>, keeps: Option<u64>) -> Result<Self, Fault> {
        let options = StoreOptions::new().tries(1000);
        let options = if let Some(bytes) = keeps { options.keep_commits(bytes) } else { options };
        let store = Store::in_pool(pool, &options)?;
        V::vary(&store);
        let map = |nth: usize| store.map_of_kind(NAMES[nth], V::KINDS[nth]);
        let maps = [map(0)?, map(1)?, map(2)?];
        if keeps.is_some() {
            store.map::<u64, u64>(ASIDE)?; // the store keeps it open, so its blocks are known
        }
        Ok(Self { maps, store, variant: PhantomData })
    }

    /// What the maps have, and the value aside, if the commits are followed from the first one on; `None` if they are
    /// not all in the log.
    fn followed(&self) -> Result<Option<(All, Option<u64>)>, Fault> {
        let mut watch = match self.store.watch_from(WatchPosition::START) {
            Err(StoreError::WatchEnded) => return Ok(None),
            watch => watch?,
        };
        let (mut all, mut value_aside) = (All::default(), None);
        let aside = self.store.map::<u64, u64>(ASIDE)?;
        while let Some(commit) = watch.try_next()? {
            for (records, map) in all.iter_mut().zip(&self.maps) {
                for (key, value) in commit.changes(map)? {
                    match value {
                        Some(value) => records.insert(key, value),
                        None => records.remove(&key),
                    };
                }
            }
            for (_, value) in commit.changes(&aside)? {
                value_aside = value;
            }
        }
        Ok(Some((all, value_aside)))
    }
}

impl<V: Variant> CrashSubject for Stored<V> {
    type Op = Op;
    type Ret = Ret;
    type Model = All;
    const NAME: &'static str = V::NAME;

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Self::with(&create_used_pool(space, &options())?)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        Self::with(&pool).map(Some) // whatever part of it exists: creation continues
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        let (store, maps) = (&self.store, &self.maps);
        Ok(match op {
            Op::Write(changes) => {
                store.transaction(|tx| -> Result<(), StoreError> {
                    for ((map, key), value) in changes {
                        match value {
                            Some(value) => tx.put(&maps[*map], key, value)?,
                            None => drop(tx.remove(&maps[*map], key)?),
                        }
                    }
                    Ok(())
                })?;
                Ret::Did(true)
            }
            Op::Move((a, from), (b, to)) => {
                Ret::Did(store.transaction(|tx| -> Result<bool, StoreError> {
                    let taken = tx.get(&maps[*a], from)?.and_then(|value| value.checked_sub(1));
                    let (Some(taken), Some(_)) = (taken, tx.get(&maps[*b], to)?) else {
                        return Ok(false);
                    };
                    tx.put(&maps[*a], from, &taken)?;
                    let value = tx.get(&maps[*b], to)?.unwrap_or(0);
                    tx.put(&maps[*b], to, &(value + 1))?;
                    Ok(true)
                })?)
            }
            Op::Take((a, from), (b, other)) => {
                Ret::Did(store.transaction(|tx| -> Result<bool, StoreError> {
                    let (first, second) = (tx.get(&maps[*a], from)?, tx.get(&maps[*b], other)?);
                    let (Some(first @ 1..), Some(second)) = (first, second) else {
                        return Ok(false);
                    };
                    if first + second > 2 {
                        tx.put(&maps[*a], from, &(first - 1))?;
                    }
                    Ok(first + second > 2)
                })?)
            }
            Op::Append(map, value) => {
                Ret::Did(store.transaction(|tx| -> Result<bool, StoreError> {
                    let next = tx.last_key_value(&maps[*map])?.map_or(0, |(last, _)| last + 1);
                    if next >= KEYS {
                        return Ok(false);
                    }
                    maps.iter().try_for_each(|map| tx.put(map, &next, value))?;
                    Ok(true)
                })?)
            }
            Op::Insert((map, key), value) => Ret::Found(maps[*map].insert(key, value)?),
            Op::Update((map, key), value) => Ret::Did(maps[*map].update(key, value)?.is_ok()),
            Op::Remove((map, key)) => Ret::Found(maps[*map].remove(key)?),
            Op::Get((map, key)) => Ret::Found(maps[*map].get(key)?),
            Op::Look => {
                let now = store.snapshot()?;
                let all = |map: &Map<u64, u64, Traced>| {
                    map.at(&now).range(..).collect::<Result<_, StoreError>>()
                };
                Ret::All([all(&maps[0])?, all(&maps[1])?, all(&maps[2])?])
            }
        })
    }

    fn observe(&self) -> Result<All, Fault> {
        self.store.check()?;
        if self.store.past_bytes() != 0 || self.store.unfinished_commits() != 0 {
            return Err(Fault::new("something of the past is kept"));
        }
        let all = |map: &Map<u64, u64, Traced>| map.range(..).collect::<Result<_, _>>();
        let now = [all(&self.maps[0])?, all(&self.maps[1])?, all(&self.maps[2])?];
        if V::KEEPS.is_some()
            && let Some((followed, aside)) = self.followed()?
            && (followed != now || aside != self.store.map::<u64, u64>(ASIDE)?.get(&0)?)
        {
            return Err(Fault::new("the commits say something else than the maps"));
        }
        Ok(now)
    }

    fn audit(&self) -> Result<(), Fault> {
        let aside = V::blocks(self.store.pool())?;
        self.store.pool().audit(self.store.blocks()?.into_iter().chain(aside))?;
        Ok(())
    }

    fn model(model: &mut All, op: &Op) -> Ret {
        match op {
            Op::Write(changes) => {
                for ((map, key), value) in changes {
                    match value {
                        Some(value) => model[*map].insert(*key, *value),
                        None => model[*map].remove(key),
                    };
                }
                Ret::Did(true)
            }
            Op::Move((a, from), (b, to)) => {
                let taken = model[*a].get(from).and_then(|value| value.checked_sub(1));
                let (Some(taken), true) = (taken, model[*b].contains_key(to)) else {
                    return Ret::Did(false);
                };
                model[*a].insert(*from, taken);
                *model[*b].entry(*to).or_default() += 1;
                Ret::Did(true)
            }
            Op::Take((a, from), (b, other)) => {
                let both = (model[*a].get(from).copied(), model[*b].get(other).copied());
                let (Some(first @ 1..), Some(second)) = both else { return Ret::Did(false) };
                if first + second > 2 {
                    model[*a].insert(*from, first - 1);
                }
                Ret::Did(first + second > 2)
            }
            Op::Append(map, value) => {
                let next = model[*map].last_key_value().map_or(0, |(last, _)| last + 1);
                if next < KEYS {
                    for map in model.iter_mut() {
                        map.insert(next, *value);
                    }
                }
                Ret::Did(next < KEYS)
            }
            Op::Insert((map, key), value) => Ret::Found(model[*map].insert(*key, *value)),
            Op::Update((map, key), value) => {
                let there = model[*map].get_mut(key);
                Ret::Did(there.map(|there| *there = *value).is_some())
            }
            Op::Remove((map, key)) => Ret::Found(model[*map].remove(key)),
            Op::Get((map, key)) => Ret::Found(model[*map].get(key).copied()),
            Op::Look => Ret::All(model.clone()),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        let at = || (0..MAPS, 0..KEYS);
        let value = || prop_oneof![3 => (1..5u64).prop_map(Some), 1 => Just(None)];
        let write = prop::collection::vec((at(), value()), 1..4).prop_map(Op::Write);
        prop_oneof![
            6 => write,
            5 => (at(), at()).prop_map(|(from, to)| Op::Move(from, to)),
            2 => (at(), at()).prop_map(|(from, other)| Op::Take(from, other)),
            3 => (0..MAPS, 1..5u64).prop_map(|(map, value)| Op::Append(map, value)),
            3 => (at(), 1..5u64).prop_map(|(at, value)| Op::Insert(at, value)),
            2 => (at(), 1..5u64).prop_map(|(at, value)| Op::Update(at, value)),
            2 => at().prop_map(Op::Remove),
            3 => at().prop_map(Op::Get),
            2 => Just(Op::Look),
        ]
        .boxed()
    }

    /// A plain write, and reads, of the keys of a transaction immediately after it; two transactions that
    /// read what the other one writes. If commits are kept, so many that the log goes round, and an opening
    /// that keeps none.
    fn directed() -> Vec<Plan<Op>> {
        let write =
            |value| Op::Write(vec![((0, 1), Some(value)), ((1, 1), Some(value)), ((2, 3), None)]);
        let setup = vec![Op::Insert((0, 1), 2), Op::Insert((1, 1), 1), Op::Insert((2, 3), 1)];
        let plan = |one: &[Op], other: &[Op]| Plan {
            setup: setup.clone(),
            threads: vec![one.to_vec(), other.to_vec()],
            tail: vec![write(4), Op::Remove((0, 1)), Op::Look],
        };
        let gets = [Op::Get((0, 1)), Op::Get((1, 1)), Op::Get((2, 3))];
        let inserts = [Op::Insert((0, 1), 3), Op::Insert((1, 1), 4), Op::Insert((2, 3), 2)];
        let pairs: [(&[Op], &[Op]); 7] = [
            (&[write(3)], &inserts),
            (&[write(3)], &gets),
            (&[write(3)], &[Op::Look, Op::Look]),
            (&inserts, &[Op::Look, Op::Look]),
            (&[Op::Move((0, 1), (1, 1))], &[Op::Move((1, 1), (0, 1))]),
            (&[Op::Append(0, 2)], &[Op::Append(1, 3)]),
            (&[Op::Take((0, 1), (1, 1))], &[Op::Take((1, 1), (0, 1))]),
        ];
        // The first one is preempted at every place.
        let mut plans: Vec<_> =
            pairs.iter().flat_map(|(one, other)| [plan(one, other), plan(other, one)]).collect();
        if V::KEEPS.is_some() {
            let insert = |n| Op::Insert((0, n % KEYS), n);
            let inserts = |values: Range<u64>| values.map(insert).collect::<Vec<_>>();
            // The first commits write records that no later one writes, and are the first to leave the log.
            let setup =
                [vec![Op::Insert((1, 4), 7), Op::Insert((2, 4), 7)], inserts(1..20)].concat();
            let tail = vec![write(3), Op::Look];
            plans.push(Plan { setup, threads: vec![inserts(20..30)], tail: tail.clone() });
            // A crash, and an opening that keeps no commits.
            let asks = vec![Op::Insert((0, ASKS), 1), Op::Insert((1, 1), 2)];
            plans.push(Plan { setup: inserts(1..4), threads: vec![asks], tail });
        }
        plans
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        // A tree's steps belong to the subject `fptree`; creating the log and freeing its segments to that of
        // the log. The numbers of sessions matter to watches only.
        let own = ["store/src/", "pm-log/src/lane.rs", "pm-log/src/entry.rs"];
        let of_watches = ["store/src/session.rs"];
        let is_of = |parts: &[&str]| parts.iter().any(|part| site.file().contains(part));
        is_of(&own) && (V::KEEPS.is_some() || !is_of(&of_watches))
    }
}
