//! A pool that several threads use at once: its directory, its growth, and indexes that are dropped with all
//! their blocks.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Pool, PoolOptions, Traced};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_pool, open_pool};
use proptest::prelude::*;

/// The root of an index: its value, and blocks of its own.
type Block = [PmU64; 8];
/// More blocks than one operation of this pool can free.
const BLOCKS: usize = 5;

/// The pool.
pub(crate) struct SharedPool(Arc<Pool<Traced>>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Creates the index of this name, with this value in its root block.
    Create(u8, u64),
    /// Drops the index of this name.
    Drop(u8),
    /// Looks the index of this name up.
    Find(u8),
    /// Grows the pool by this number of zones.
    GrowTo(u64),
}

/// The state of a pool that a user sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Contents {
    indexes: BTreeMap<u8, u64>,
    grown: u64,
}

const ZONE: u64 = 16 << 10;
const ZONES_MORE: u64 = 2;

fn options() -> PoolOptions {
    PoolOptions::new().size(48 << 10).zone_bytes(ZONE).slots(3).slot_bytes(256)
}

fn name(n: u8) -> String {
    n.to_string()
}

fn value_of(pool: &Pool<Traced>, root: u64) -> Result<u64, PmError> {
    Ok(pool.pm().load(&pool.get(pmindex_core::PPtr::<Block>::new(root))?[0]))
}

/// The blocks that an index has at the moment, its root among them.
fn blocks_of(pool: &Pool<Traced>, root: u64) -> Result<Vec<u64>, PmError> {
    let words = &pool.get(pmindex_core::PPtr::<Block>::new(root))?[1..=BLOCKS];
    let blocks = words.iter().map(|word| pool.pm().load(word)).filter(|&block| block != 0);
    Ok(blocks.chain([root]).collect())
}

/// Gives an index the blocks that it lacks.
fn fill(pool: &Pool<Traced>, root: u64, bytes: u64) -> Result<(), PmError> {
    let pm = pool.pm();
    for word in &pool.get(pmindex_core::PPtr::<Block>::new(root))?[1..=BLOCKS] {
        if pm.load(word) != 0 {
            continue;
        }
        let mut op = pool.op()?;
        let block = op.reserve_bytes(bytes, 16)?;
        let offset = block.ptr().offset();
        op.allocate(&block, Owner { word, mask: u64::MAX, expect: offset })?;
        op.prepare(Flushed::nothing())?;
        pm.store(word, offset);
        let durable = pm.fence(op.seal().and(pm.flush(word)))?;
        op.finish(durable);
    }
    Ok(())
}

fn clear(pool: &Pool<Traced>, block: &Block, value: u64) -> Flushed {
    pool.pm().store(&block[0], value);
    for word in &block[1..] {
        pool.pm().store(word, 0);
    }
    pool.pm().flush(block)
}

/// Takes blocks of this size for an index of its own, unless that has them already; returns its blocks.
pub(crate) fn take_blocks(pool: &Pool<Traced>, bytes: u64) -> Result<Vec<u64>, PmError> {
    const NAME: &str = "beside";
    let open = match pool.open_index(NAME)? {
        Some(open) => open,
        None => pool.create_index::<Block>(NAME, *b"blocks  ", 1, |root| clear(pool, root, 0))?,
    };
    fill(pool, open.block(), bytes)?;
    blocks_of(pool, open.block())
}

/// Drops an index with its blocks, unless another thread has it open at the moment.
fn drop_index(pool: &Pool<Traced>, name: &str) -> Result<bool, PmError> {
    loop {
        let blocks = |name: &str| match pool.open_index(name)? {
            Some(open) => blocks_of(pool, open.block()),
            None => Ok(Vec::new()),
        };
        match pool.drop_index(name, blocks) {
            Err(PmError::AlreadyOpen { .. }) => pool.pm().spin(),
            done => return done,
        }
    }
}

impl CrashSubject for SharedPool {
    type Op = Op;
    type Ret = Option<u64>;
    type Model = Contents;
    const NAME: &'static str = "shared-pool";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len + (ZONES_MORE * ZONE) as usize }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Ok(Self(create_pool(space, &options())?))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        Ok(open_pool(space, &options())?.map(Self))
    }

    /// Returns `Some` if the operation found or changed what it should.
    fn apply(&self, op: &Op) -> Result<Option<u64>, Fault> {
        let pool = &*self.0;
        match op {
            Op::Create(n, value) => {
                let clear = |block: &Block| clear(pool, block, *value);
                let made = pool.create_index(&name(*n), *b"blocks  ", 1, clear);
                match made {
                    Ok(open) => {
                        fill(pool, open.block(), 64)?;
                        Ok(Some(*value))
                    }
                    Err(PmError::NameTaken { .. }) => Ok(None),
                    Err(other) => Err(other.into()),
                }
            }
            Op::Drop(n) => Ok(drop_index(pool, &name(*n))?.then_some(0)),
            Op::Find(n) => Ok(pool.find_index(&name(*n))?.map(|_| 0)),
            Op::GrowTo(zones) => {
                pool.grow(options().created_size()? + zones * ZONE)?;
                Ok(Some(0))
            }
        }
    }

    fn observe(&self) -> Result<Contents, Fault> {
        let pool = &*self.0;
        let mut indexes = BTreeMap::new();
        for entry in pool.indexes()? {
            indexes.insert(entry.name.parse()?, value_of(pool, entry.block())?);
        }
        Ok(Contents { indexes, grown: (pool.len() - options().created_size()?) / ZONE })
    }

    fn audit(&self) -> Result<(), Fault> {
        let mut owned = Vec::new();
        for entry in self.0.indexes()? {
            owned.extend(blocks_of(&self.0, entry.block())?);
        }
        self.0.audit(owned.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Contents, op: &Op) -> Option<u64> {
        match op {
            Op::Create(n, _) if model.indexes.contains_key(n) => None,
            Op::Create(n, value) => {
                model.indexes.insert(*n, *value);
                Some(*value)
            }
            Op::Drop(n) => model.indexes.remove(n).map(|_| 0),
            Op::Find(n) => model.indexes.contains_key(n).then_some(0),
            Op::GrowTo(zones) => {
                model.grown = model.grown.max(*zones);
                Some(0)
            }
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![
            4 => (0..3u8, 1..100u64).prop_map(|(n, value)| Op::Create(n, value)),
            3 => (0..3u8).prop_map(Op::Drop),
            2 => (0..3u8).prop_map(Op::Find),
            1 => (1..=ZONES_MORE).prop_map(Op::GrowTo),
        ]
        .boxed()
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("pm-core/src/pool/") || site.file().ends_with("shared_pool.rs")
    }
}
