//! An index of every kind that is dropped, beside another one that stays in use.

use std::collections::BTreeMap;
use std::iter;
use std::ops::{Bound, Range};
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex::core::trace::Space;
use pmindex::core::{Pool, PoolOptions, Traced};
use pmindex::{Index, IndexError, Key, Value};
use pmindex_index::{ErasedIndex, PmIndex, erase};
use pmindex_testkit::crash::{
    CrashIndex, CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool,
};
use proptest::prelude::*;

use super::fastfair::FastFairBytes;
use super::hart::HartBytes;
use super::nvtree::NvTreeBytes;
use super::pactree::PacTreeBytes;
use super::skiplist::SkipListBytes;
use super::sptree::SpTreeBytes;
use super::sptree_buffered::SpTreeBuffered;
use super::trees::{BzTreeBytes, FpTreeBytes, FpTreeWords};
use super::wbtree::WbTreeBytes;
use super::woart::{ArtCowBytes, WoartBytes};

const DOOMED: &str = "doomed";
const OTHER: &str = "other";

type Other = <FpTreeWords as CrashIndex>::Index;

/// A word or a byte string, by its number.
trait Numbered: Key + Value {
    fn of(n: u64) -> Self;
    fn number(&self) -> u64;
}

impl Numbered for u64 {
    fn of(n: u64) -> Self {
        n
    }

    fn number(&self) -> u64 {
        *self
    }
}

impl Numbered for Vec<u8> {
    fn of(n: u64) -> Self {
        [n.to_be_bytes().as_slice(), &[0; 32]].concat()
    }

    fn number(&self) -> u64 {
        self.first_chunk().map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes))
    }
}

/// The index that comes and goes, without its types.
trait Doomed: Send + Sync {
    fn put(&self, key: u64, value: u64) -> Result<bool, IndexError>;
    fn records(&self) -> Result<BTreeMap<u64, u64>, IndexError>;
    fn blocks(&self) -> Result<Vec<u64>, IndexError>;
}

impl<K: Numbered, V: Numbered> Doomed for Box<dyn ErasedIndex<K, V>> {
    fn put(&self, key: u64, value: u64) -> Result<bool, IndexError> {
        Index::put(&**self, K::of(key).borrowed(), V::of(value).borrowed())
    }

    fn records(&self) -> Result<BTreeMap<u64, u64>, IndexError> {
        self.check()?;
        let all = self.range_bounds(Bound::Unbounded, Bound::Unbounded);
        all.map(|record| record.map(|(key, value)| (key.number(), value.number()))).collect()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        (**self).blocks()
    }
}

/// Creates (`true`) or opens the index.
type Make = fn(&Arc<Pool<Traced>>, &str, bool) -> Result<Box<dyn Doomed>, IndexError>;

fn make<C: CrashIndex>(
    pool: &Arc<Pool<Traced>>,
    name: &str,
    new: bool,
) -> Result<Box<dyn Doomed>, IndexError>
where
    C::Key: Numbered,
    C::Value: Numbered,
{
    type Of<C> = <C as CrashIndex>::Index;
    let made = if new { Of::<C>::create(pool, name) } else { Of::<C>::open(pool, name) };
    Ok(Box::new(erase::<C::Key, C::Value, _, _>(made)?))
}

/// Every kind, as other subjects have it.
const KINDS: [Make; 12] = [
    make::<BzTreeBytes>,
    make::<FastFairBytes>,
    make::<FpTreeBytes>,
    make::<HartBytes>,
    make::<NvTreeBytes>,
    make::<SpTreeBuffered>,
    make::<SpTreeBytes>,
    make::<WbTreeBytes>,
    make::<WoartBytes>,
    make::<ArtCowBytes>,
    make::<PacTreeBytes>,
    make::<SkipListBytes>,
];

/// Which of them is FPTree, whose values are replaced in place by a redo log.
const FPTREE: usize = 2;

/// Opens an index, whatever its kind.
fn open_any(pool: &Arc<Pool<Traced>>, name: &str) -> Result<Box<dyn Doomed>, IndexError> {
    let opened = KINDS.iter().map(|open| open(pool, name, false));
    let known = |opened: &Result<_, _>| !matches!(opened, Err(IndexError::WrongType { .. }));
    opened.into_iter().find(known).expect("its kind is one of them")
}

/// Two indexes in a pool: one of any kind that comes and goes, another that stays.
pub(crate) struct Dropped {
    // Dropped first: they use the pool.
    doomed: Mutex<Option<Box<dyn Doomed>>>,
    other: Other,
    pool: Arc<Pool<Traced>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Creates the index, of the kind with this number.
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
    doomed: Option<BTreeMap<u64, u64>>,
    other: BTreeMap<u64, u64>,
}

/// Slots of 4 tickets: blocks beyond one operation's limit are freed in slices.
fn options() -> PoolOptions {
    PoolOptions::new().size(256 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(256)
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
        let doomed = match open_any(&pool, DOOMED) {
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
                *doomed = Some(KINDS[*kind](&self.pool, DOOMED, true)?);
                true
            }
            Op::Put(k, v) => match &*doomed {
                Some(index) => index.put(*k, *v)?,
                None => false,
            },
            Op::Drop => {
                *doomed = None;
                self.pool.drop_index(DOOMED, |name| open_any(&self.pool, name)?.blocks())?
            }
            Op::PutOther(k, v) => self.other.put(k, v)?,
        })
    }

    fn observe(&self) -> Result<Contents, Fault> {
        let doomed = self.doomed.lock();
        self.other.check()?;
        Ok(Contents {
            doomed: doomed.as_ref().map(|index| index.records()).transpose()?,
            other: self
                .other
                .range_bounds(Bound::Unbounded, Bound::Unbounded)
                .collect::<Result<_, _>>()?,
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
            Op::Put(k, v) => model.doomed.as_mut().is_some_and(|all| all.insert(*k, *v).is_none()),
            Op::Drop => model.doomed.take().is_some(),
            Op::PutOther(k, v) => model.other.insert(*k, *v).is_none(),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        prop_oneof![
            3 => (0..KINDS.len()).prop_map(Op::Create),
            8 => (0..9u64, 1..200u64).prop_map(|(k, v)| Op::Put(k, v)),
            3 => Just(Op::Drop),
            2 => (0..9u64, 1..200u64).prop_map(|(k, v)| Op::PutOther(k, v)),
        ]
        .boxed()
    }

    /// An FPTree is dropped whose redo log is not settled: opened for that, it stores what the log says in blocks that
    /// are freed then, the log's own among them, and that an index of the same name takes.
    fn directed() -> Vec<Plan<Op>> {
        let put = |keys: Range<u64>, value| keys.map(move |key| Op::Put(key, value + key));
        let others = (0..3).map(|key| Op::PutOther(key, 1));
        let setup = || iter::once(Op::Create(FPTREE)).chain(put(0..6, 10)).chain(others.clone());
        // Replaced in place, so that the last values stand in the log; then dropped, and made anew or as another kind.
        [0..1, 1..3, 0..6]
            .into_iter()
            .zip([FPTREE, 0, FPTREE])
            .map(|(replaced, kind)| Plan {
                setup: setup().collect(),
                threads: vec![
                    put(replaced.clone(), 20)
                        .chain([Op::PutOther(2, 2), Op::Drop, Op::Create(kind)])
                        .chain(put(3..8, 30))
                        .chain(put(4..5, 40))
                        .collect(),
                ],
                tail: put(1..2, 50)
                    .chain([Op::Drop, Op::Create(FPTREE)])
                    .chain(put(0..3, 60))
                    .collect(),
            })
            .collect()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().ends_with("pool/dropping.rs")
    }
}
