//! An index of every kind that is dropped, beside another one that goes on being used.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex::core::trace::Space;
use pmindex::core::{Pool, PoolOptions, Traced};
use pmindex::{AnyIndex, FpTree, Index, IndexError, Kind};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, create_used_pool, open_pool};
use proptest::prelude::*;

const DOOMED: &str = "doomed";
const OTHER: &str = "other";

type Other = FpTree<u64, u64, Traced, 4, 3>;

/// Two indexes in a pool: one of any kind that comes and goes, another that stays.
pub(crate) struct Dropped {
    // Dropped first: they use the pool.
    doomed: Mutex<Option<AnyIndex<u64, Vec<u8>>>>,
    other: Other,
    pool: Arc<Pool<Traced>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Makes the index, of kind number so and so.
    Create(usize),
    /// Adds or replaces a record of it.
    Put(u64, u64),
    /// Drops it.
    Drop,
    /// Adds or replaces a record of the other one.
    PutOther(u64, u64),
}

/// The records of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Contents {
    doomed: Option<BTreeMap<u64, Vec<u8>>>,
    other: BTreeMap<u64, u64>,
}

/// Slots of 4 tickets: what one operation cannot free goes slice by slice.
fn options() -> PoolOptions {
    PoolOptions::new().size(512 << 10).zone_bytes(128 << 10).slots(4).slot_bytes(256)
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; 40]
}

impl CrashSubject for Dropped {
    type Op = Op;
    type Ret = bool;
    type Model = Contents;
    const NAME: &'static str = "dropped";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options())?;
        let other = Other::create(&pool, OTHER)?;
        Ok(Self { doomed: Mutex::new(None), other, pool })
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let other = match Other::open(&pool, OTHER) {
            Err(IndexError::NoSuchIndex { .. }) => return Ok(None),
            opened => opened?,
        };
        let doomed = match AnyIndex::open(&pool, DOOMED) {
            Err(IndexError::NoSuchIndex { .. }) => None,
            opened => Some(opened?),
        };
        Ok(Some(Self { doomed: Mutex::new(doomed), other, pool }))
    }

    fn apply(&self, op: &Op) -> Result<bool, Fault> {
        let mut doomed = self.doomed.lock();
        Ok(match op {
            Op::Create(_) if doomed.is_some() => false,
            Op::Create(kind) => {
                *doomed = Some(AnyIndex::create(&self.pool, DOOMED, Kind::ALL[*kind])?);
                true
            }
            Op::Put(k, v) => match &*doomed {
                Some(index) => index.put(k, &value(*v))?,
                None => false,
            },
            Op::Drop => {
                *doomed = None;
                AnyIndex::<u64, Vec<u8>>::destroy(&self.pool, DOOMED)?
            }
            Op::PutOther(k, v) => self.other.put(k, v)?,
        })
    }

    fn observe(&self) -> Result<Contents, Fault> {
        let doomed = self.doomed.lock();
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let records = |index: &AnyIndex<u64, Vec<u8>>| {
            index.check()?;
            index.range_bounds(all.0, all.1).collect::<Result<_, IndexError>>()
        };
        self.other.check()?;
        Ok(Contents {
            doomed: doomed.as_ref().map(records).transpose()?,
            other: self.other.range_bounds(all.0, all.1).collect::<Result<_, _>>()?,
        })
    }

    fn audit(&self) -> Result<(), Fault> {
        let mut owned = self.other.blocks()?;
        if let Some(index) = &*self.doomed.lock() {
            owned.extend(index.blocks()?);
        }
        self.pool.audit(owned.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Contents, op: &Op) -> bool {
        match op {
            Op::Create(_) if model.doomed.is_some() => false,
            Op::Create(_) => {
                model.doomed = Some(BTreeMap::new());
                true
            }
            Op::Put(k, v) => {
                model.doomed.as_mut().is_some_and(|all| all.insert(*k, value(*v)).is_none())
            }
            Op::Drop => model.doomed.take().is_some(),
            Op::PutOther(k, v) => model.other.insert(*k, *v).is_none(),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![
            3 => (0..Kind::ALL.len()).prop_map(Op::Create),
            8 => (0..9u64, 1..200u64).prop_map(|(k, v)| Op::Put(k, v)),
            3 => Just(Op::Drop),
            2 => (0..9u64, 1..200u64).prop_map(|(k, v)| Op::PutOther(k, v)),
        ]
        .boxed()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().ends_with("pool/dropping.rs")
    }
}
