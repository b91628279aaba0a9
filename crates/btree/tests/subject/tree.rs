//! A map of small pages in a buffer, with its log and its disk in one space.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::RwLock;
use pmindex_btree::{PagedError, PagedMap};
use pmindex_buffer::{Buffer, BufferOptions};
use pmindex_core::trace::Space;
use pmindex_core::{PoolOptions, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

use super::pool_disk::{self, PoolDisk};

const PAGE_BYTES: u64 = 256;
const KEYS: u64 = 16;
const DISK: u64 = 32 * PAGE_BYTES;

type Map = PagedMap<u64, Vec<u8>, Traced>;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A key and the length of its value.
    Put(u64, u8),
    Insert(u64, u8),
    TryInsert(u64, u8),
    Remove(u64),
    /// Removes one key and puts its value under another, at once.
    Move(u64, u64),
    Get(u64),
    Scan(u64),
    Checkpoint,
    Reopen,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Done,
    Was(bool),
    Found(Option<u8>),
    Scanned(Vec<(u64, u8)>),
}

/// The map; `None` only within [`Op::Reopen`].
pub(crate) struct Tree {
    space: Space,
    map: RwLock<Option<Map>>,
}

/// A value of a length, which the key and the length determine.
fn value(key: u64, len: u8) -> Vec<u8> {
    (0..len).map(|at| key as u8 ^ len.wrapping_mul(7) ^ at).collect()
}

/// The length of a value of this key.
fn length(key: u64, bytes: &[u8], moved: bool) -> Result<u8, Fault> {
    let len = bytes.len() as u8;
    let whole =
        len > 0 && (0..KEYS).any(|from| bytes == value(from, len) && (moved || from == key));
    if whole { Ok(len) } else { Err(Fault::new(format!("key {key} has a wrong value {bytes:?}"))) }
}

fn options() -> BufferOptions {
    BufferOptions::new(7).page_bytes(PAGE_BYTES).staging(3).identity(0x1d)
}

fn pool_options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(3).slot_bytes(512)
}

impl Tree {
    fn over(space: &Space, map: Map) -> Self {
        Self { space: space.clone(), map: RwLock::new(Some(map)) }
    }

    fn opened(space: &Space) -> Result<Option<Map>, Fault> {
        let Some(pool) = open_pool(space, &pool_options())? else { return Ok(None) };
        let Some(disk) = PoolDisk::open(&pool, DISK)? else { return Ok(None) };
        let Some(buffer) = Buffer::open(&pool, "pages", Arc::new(disk), &options())? else {
            return Ok(None);
        };
        Ok(Some(PagedMap::open(&Arc::new(buffer), "map")?))
    }

    fn with<R>(&self, body: impl FnOnce(&Map) -> Result<R, Fault>) -> Result<R, Fault> {
        match &*self.map.read_recursive() {
            Some(map) => body(map),
            None => Err(Fault::new("closed")),
        }
    }

    fn execute(map: &Map, op: &Op) -> Result<Ret, Fault> {
        let found = |key: u64, found: Option<Vec<u8>>| match found {
            Some(bytes) => Ok(Ret::Found(Some(length(key, &bytes, true)?))),
            None => Ok(Ret::Found(None)),
        };
        match *op {
            Op::Put(key, len) => Ok(Ret::Was(!map.put(&key, &value(key, len))?)),
            Op::Insert(key, len) => found(key, map.insert(&key, &value(key, len))?),
            Op::TryInsert(key, len) => {
                Ok(Ret::Was(map.try_insert(&key, &value(key, len))?.is_err()))
            }
            Op::Remove(key) => found(key, map.remove(&key)?),
            Op::Move(from, to) => map
                .transact(|tx| {
                    let moved = map.remove_in(tx, &from)?;
                    if let Some(bytes) = &moved {
                        // What a transaction reads is whole, even if it will not commit.
                        if length(from, bytes, true).is_err() {
                            let what = "a transaction reads what was never written";
                            return Err(PagedError::Corrupt { page: 0, what });
                        }
                        map.put_in(tx, &to, bytes)?;
                    }
                    Ok(moved)
                })
                .map_err(Fault::from)
                .and_then(|moved| found(from, moved)),
            Op::Get(key) => found(key, map.get(&key)?),
            Op::Scan(from) => {
                let items: Result<Vec<_>, PagedError> = map.range(from..).take(5).collect();
                let lengths = items?.into_iter().map(|(key, v)| Ok((key, length(key, &v, true)?)));
                Ok(Ret::Scanned(lengths.collect::<Result<_, Fault>>()?))
            }
            Op::Checkpoint => Ok(map.buffer().checkpoint().map(|()| Ret::Done)?),
            Op::Reopen => Ok(Ret::Done),
        }
    }
}

impl CrashSubject for Tree {
    type Op = Op;
    type Ret = Ret;
    type Model = BTreeMap<u64, u8>;
    const NAME: &'static str = "btree";

    fn geometry() -> Geometry {
        let len = pool_options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &pool_options())?;
        let disk = PoolDisk::create(&pool, DISK)?;
        let buffer = Buffer::create(&pool, "pages", Arc::new(disk), &options())?;
        Ok(Self::over(space, PagedMap::open(&Arc::new(buffer), "map")?))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(Self::opened(space)?.map(|map| Self::over(space, map)))
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        if matches!(op, Op::Reopen) {
            let mut map = self.map.write();
            let Some(old) = map.take() else { return Err(Fault::new("closed")) };
            let pool = Arc::clone(old.buffer().pool());
            drop(old);
            if let Some(pool) = Arc::into_inner(pool) {
                pool.kill();
            }
            *map = Self::opened(&self.space)?;
            return Ok(Ret::Done);
        }
        self.with(|map| Self::execute(map, op))
    }

    fn observe(&self) -> Result<Self::Model, Fault> {
        self.with(|map| {
            let count = map.check()?;
            let mut found = BTreeMap::new();
            for item in map.range(..) {
                let (key, bytes) = item?;
                found.insert(key, length(key, &bytes, true)?);
                if map.get(&key)?.as_ref() != Some(&bytes) {
                    return Err(Fault::new(format!("key {key} is in the scan, and not found")));
                }
            }
            if count != found.len() as u64
                || map.last_key_value()?.map(|last| last.0)
                    != found.last_key_value().map(|last| *last.0)
            {
                return Err(Fault::new(format!("{count} records, in a scan {found:?}")));
            }
            Ok(found)
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.with(|map| {
            let buffer = map.buffer();
            let disk = pool_disk::block(buffer.pool())?;
            buffer.pool().audit(buffer.blocks()?.into_iter().chain(disk))?;
            Ok(())
        })
    }

    fn model(model: &mut Self::Model, op: &Op) -> Ret {
        match *op {
            Op::Put(key, len) => Ret::Was(model.insert(key, len).is_some()),
            Op::Insert(key, len) => Ret::Found(model.insert(key, len)),
            Op::TryInsert(key, len) => {
                let was = model.contains_key(&key);
                model.entry(key).or_insert(len);
                Ret::Was(was)
            }
            Op::Remove(key) => Ret::Found(model.remove(&key)),
            Op::Move(from, to) => {
                let moved = model.remove(&from);
                if let Some(len) = moved {
                    model.insert(to, len);
                }
                Ret::Found(moved)
            }
            Op::Get(key) => Ret::Found(model.get(&key).copied()),
            Op::Scan(from) => {
                Ret::Scanned(model.range(from..).take(5).map(|(&key, &len)| (key, len)).collect())
            }
            Op::Checkpoint | Op::Reopen => Ret::Done,
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        Self::ops_for(1)
    }

    fn ops_for(threads: usize) -> BoxedStrategy<Op> {
        let key = || 0..KEYS;
        let one = prop_oneof![
            12 => (key(), 1..24u8).prop_map(|(key, len)| Op::Put(key, len)),
            3 => (key(), 1..24u8).prop_map(|(key, len)| Op::Insert(key, len)),
            2 => (key(), 1..24u8).prop_map(|(key, len)| Op::TryInsert(key, len)),
            4 => key().prop_map(Op::Remove),
            3 => (key(), key()).prop_map(|(from, to)| Op::Move(from, to)),
            3 => key().prop_map(Op::Get),
            1 => Just(Op::Checkpoint),
        ];
        if threads > 1 {
            return one.boxed(); // a scan is of several moments
        }
        prop_oneof![16 => one, 2 => key().prop_map(Op::Scan), 1 => Just(Op::Reopen)].boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        let fill =
            |keys: std::ops::Range<u64>| keys.map(|key| Op::Put(key, 20)).collect::<Vec<_>>();
        vec![
            // The first split, of the root.
            Plan { setup: fill(0..5), threads: vec![fill(5..8)], tail: fill(8..12) },
            // Splits of leaves, and of the root again.
            Plan { setup: fill(0..8), threads: vec![fill(8..15)], tail: fill(0..KEYS) },
            // Two threads that split the same leaf.
            Plan {
                setup: fill(0..8),
                threads: vec![fill(8..11), fill(11..14)],
                tail: fill(0..KEYS),
            },
        ]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("crates/btree/src/")
    }
}
