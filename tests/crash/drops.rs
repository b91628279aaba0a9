//! Maps of a store that come and go, each with the name of one that was dropped, while all commits are kept: a watch
//! from the first one on has the records of the maps that are there, or has ended.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{Pool, PoolOptions, Traced};
use pmindex_index::Index;
use pmindex_store::{Catalog, Map, Store, StoreError, StoreOptions, WatchPosition};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_used_pool, open_pool};
use proptest::prelude::*;

const NAMES: [&str; 2] = ["one", "two"];
type Records = BTreeMap<u64, u64>;
/// The records of each map that is there.
type All = [Option<Records>; NAMES.len()];
type Maps = [Option<Map<u64, u64, Traced>>; NAMES.len()];

/// A store of maps that come and go.
pub(crate) struct Comes<C: Catalog> {
    maps: Mutex<Maps>,
    store: Store<C, Traced>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(usize),
    Drop(usize),
    Put(usize, u64, u64),
    /// In both maps, in one transaction.
    PutBoth(u64, u64),
}

fn options() -> PoolOptions {
    PoolOptions::new().size(256 << 10).zone_bytes(64 << 10).slots(4).slot_bytes(1024)
}

impl<C: Catalog> Comes<C> {
    fn with(pool: &Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let store = Store::in_pool(pool, &StoreOptions::new().keep_commits(1 << 20))?;
        let mut maps = Maps::default();
        for (map, name) in maps.iter_mut().zip(NAMES) {
            *map = match store.existing_map(name) {
                Err(StoreError::Index(pmindex_index::IndexError::NoSuchIndex { .. })) => None,
                found => Some(found?),
            };
        }
        Ok(Self { maps: Mutex::new(maps), store })
    }

    /// Returns what all commits together leave, if none is missing.
    fn followed(&self, maps: &Maps) -> Result<Option<[Records; NAMES.len()]>, Fault> {
        let mut watch = match self.store.watch_from(WatchPosition::START) {
            Err(StoreError::WatchEnded) => return Ok(None),
            watch => watch?,
        };
        let mut all: [Records; NAMES.len()] = Default::default();
        while let Some(commit) = watch.try_next()? {
            for (map, records) in maps.iter().zip(&mut all) {
                for (key, value) in
                    map.as_ref().map_or(Ok(Vec::new()), |map| commit.changes(map))?
                {
                    match value {
                        Some(value) => drop(records.insert(key, value)),
                        None => drop(records.remove(&key)),
                    }
                }
            }
        }
        Ok(Some(all))
    }
}

impl<C: Catalog> CrashSubject for Comes<C> {
    type Op = Op;
    type Ret = bool;
    type Model = All;
    const NAME: &'static str = "store-drops";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Self::with(&create_used_pool(space, &options())?)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        open_pool(space, &options())?.map(|pool| Self::with(&pool)).transpose()
    }

    fn apply(&self, op: &Op) -> Result<bool, Fault> {
        let maps = &mut *self.maps.lock();
        Ok(match *op {
            Op::Create(at) if maps[at].is_none() => {
                maps[at] = Some(self.store.map(NAMES[at])?);
                true
            }
            Op::Drop(at) if maps[at].take().is_some() => {
                self.store.drop_map::<u64, u64>(NAMES[at])?
            }
            Op::Put(at, key, value) => match &maps[at] {
                Some(map) => map.put(&key, &value)?,
                None => false,
            },
            Op::PutBoth(key, value) => match maps {
                [Some(one), Some(two)] => {
                    self.store.transaction(|tx| {
                        tx.put(one, &key, &value)?;
                        tx.put(two, &key, &value)
                    })?;
                    true
                }
                _ => false,
            },
            Op::Create(_) | Op::Drop(_) => false,
        })
    }

    fn observe(&self) -> Result<All, Fault> {
        let maps = self.maps.lock();
        let mut all = All::default();
        for (map, records) in maps.iter().zip(&mut all) {
            let of = |map: &Map<u64, u64, Traced>| map.range(..).collect::<Result<Records, _>>();
            *records = map.as_ref().map(of).transpose()?;
        }
        let there = self.store.maps_in_pool()?.into_iter().map(|entry| entry.name);
        let names = NAMES.iter().zip(&all).filter(|(_, map)| map.is_some()).map(|(name, _)| *name);
        if !there.eq(names) {
            return Err(Fault::new("other maps are in the pool".to_owned()));
        }
        if let Some(followed) = self.followed(&maps)? {
            let is_same = |(map, records): (&Option<Records>, &Records)| {
                map.as_ref().is_none_or(|map| map == records)
            };
            if !all.iter().zip(&followed).all(is_same) {
                return Err(Fault::new(format!("followed: {followed:?}, there: {all:?}")));
            }
        }
        Ok(all)
    }

    fn audit(&self) -> Result<(), Fault> {
        self.store.check()?;
        let blocks = self.store.blocks()?;
        self.store.pool().audit(blocks.into_iter())?;
        Ok(())
    }

    fn model(model: &mut All, op: &Op) -> bool {
        match *op {
            Op::Create(at) if model[at].is_none() => {
                model[at] = Some(Records::new());
                true
            }
            Op::Drop(at) => model[at].take().is_some(),
            Op::Put(at, key, value) => {
                model[at].as_mut().is_some_and(|map| map.insert(key, value).is_none())
            }
            Op::PutBoth(key, value) => match model {
                [Some(one), Some(two)] => {
                    one.insert(key, value);
                    two.insert(key, value);
                    true
                }
                _ => false,
            },
            Op::Create(_) => false,
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![
            3 => (0..NAMES.len()).prop_map(Op::Create),
            2 => (0..NAMES.len()).prop_map(Op::Drop),
            3 => (0..NAMES.len(), 0..6u64, 0..9u64)
                .prop_map(|(map, key, value)| Op::Put(map, key, value)),
            2 => (0..6u64, 0..9u64).prop_map(|(key, value)| Op::PutBoth(key, value)),
        ]
        .boxed()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("store/src/")
    }
}
