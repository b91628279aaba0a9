//! Batches crashed in the simulator, in the right order of steps and in wrong ones; limits.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use pmindex_core::trace::Space;
use pmindex_core::{PmError, Pool, PoolOptions, Traced};
use pmindex_index::{Index, IndexError};
use pmindex_testkit::crash::{
    Config, CrashSubject, Fault, Geometry, Plan, create_used_pool, explore, open_pool,
};
use pmindex_trees::FpTree;
use proptest::prelude::*;

use super::changes::{from_record, to_record};
use super::{Batched, Exchange, WriteBatch};

/// Wrong orders of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Faulty {
    /// The right one.
    #[default]
    Not,
    /// The changes are made before the record is in the log.
    ChangesFirst,
    /// The record is gone before the changes are made.
    RetiredFirst,
    /// The keys are unlocked before the record is gone.
    UnlockedFirst,
}

const ORDERS: [Faulty; 4] =
    [Faulty::Not, Faulty::ChangesFirst, Faulty::RetiredFirst, Faulty::UnlockedFirst];
const KEYS: u64 = 6;
const NAME: &str = "index";

type Tree = FpTree<u64, u64, Traced, 4, 3>;

/// An index with batches, in one of the [`ORDERS`].
struct Subject<const ORDER: usize> {
    pool: Arc<Pool<Traced>>,
    batched: Batched<u64, u64, Tree, Traced>,
}

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<(u64, Option<u64>)>),
    Insert(u64, u64),
    Upsert(u64, u64),
    Remove(u64),
    Exchange(u64, Option<u64>, Option<u64>),
    Get(u64),
}

#[derive(Clone, Debug, PartialEq)]
enum Ret {
    Did(bool),
    Found(Option<u64>),
}

fn options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
}

impl<const ORDER: usize> Subject<ORDER> {
    fn with(pool: Arc<Pool<Traced>>, index: Tree) -> Result<Self, Fault> {
        let mut batched = Batched::new(&pool, NAME, index)?;
        batched.faulty = ORDERS[ORDER];
        Ok(Self { pool, batched })
    }
}

impl<const ORDER: usize> CrashSubject for Subject<ORDER> {
    type Op = Op;
    type Ret = Ret;
    type Model = BTreeMap<u64, u64>;
    const NAME: &'static str = "batch";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options())?;
        let index = Tree::create(&pool, NAME)?;
        Self::with(pool, index)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        let index = match Tree::open(&pool, NAME) {
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
                        Some(value) => batch.upsert(key, value),
                        None => batch.remove(key),
                    };
                }
                index.write(&batch)?;
                Ret::Did(true)
            }
            Op::Insert(key, value) => Ret::Did(index.insert(key, value)?),
            Op::Upsert(key, value) => Ret::Did(index.upsert(key, value)?),
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

    /// No lookups beside batches of other threads: they are not isolated.
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

    fn owns(_: &Location<'static>) -> bool {
        true
    }
}

/// Explores one thread and two; the first failure.
fn crash<const ORDER: usize>(states: u64) -> Result<u64, String> {
    let mut all = 0;
    for threads in [1, 2] {
        let config = Config::new().seed(3).states(states).threads(threads);
        match explore::<Subject<ORDER>>(&config) {
            Ok(report) => all += report.states,
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Ok(all)
}

#[test]
fn a_batch_happens_wholly_or_not_at_all() {
    let states = crash::<0>(10_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 15_000, "{states}");
}

#[test]
fn wrong_orders_of_the_steps_are_caught() {
    for (outcome, what) in [
        (crash::<1>(10_000), "changes before the record"),
        (crash::<2>(10_000), "the record gone before the changes"),
        (crash::<3>(20_000), "keys unlocked before the record is gone"),
    ] {
        assert!(outcome.is_err(), "{what}: not noticed in {outcome:?} states");
    }
}

#[test]
fn the_last_change_of_a_key_counts() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let index = FpTree::<u64, String>::create(&pool, NAME).unwrap();
    let index = Batched::new(&pool, NAME, index).unwrap();
    let mut batch = WriteBatch::new();
    batch.upsert(&1, "a").remove(&1).upsert(&2, "b").upsert(&1, "c").upsert(&2, "d").remove(&2);
    index.write(&batch).unwrap();
    assert_eq!((index.get(&1), index.get(&2)), (Ok(Some("c".into())), Ok(None)));
    assert_eq!(index.log.records(), Ok(vec![]), "nothing stays in the log");
    index.write(&WriteBatch::new()).unwrap();
    let made = index.update_with(&1, |old| old.map(|old| format!("{old}{old}"))).unwrap();
    assert_eq!((made, index.get(&1)), (Some("cc".into()), Ok(Some("cc".into()))));
    assert_eq!(index.update_with(&1, |_| None), Ok(None));
    assert_eq!(index.get_or_insert_with(&1, || "new".into()), Ok("new".into()));
    assert_eq!(index.get_or_insert_with(&1, || "newer".into()), Ok("new".into()));
}

#[test]
fn records_of_the_log_come_back() {
    let changes: Vec<(String, Option<(u8, i64)>)> =
        vec![(String::new(), None), ("a".into(), Some((7, -1))), ("b".repeat(300), Some((0, 0)))];
    let record = to_record(&changes).unwrap();
    assert_eq!(from_record(&record), Ok(changes));
    for cut in (0..record.len()).filter(|cut| ![8, 33].contains(cut)) {
        let part = from_record::<String, (u8, i64)>(&record[..cut]);
        assert!(cut == 0 || part.is_err(), "{cut}: {part:?}");
    }
}

#[test]
fn what_cannot_be_taken_changes_nothing() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let index = FpTree::<Vec<u8>, Vec<u8>>::create(&pool, NAME).unwrap();
    let index = Batched::new(&pool, NAME, index).unwrap();
    let refused = |key: &[u8], value: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.upsert(b"a".as_slice(), b"b".as_slice()).upsert(key, value);
        let refused = index.write(&batch).unwrap_err();
        assert_eq!(index.len(), Ok(0), "{refused}");
        assert_eq!(index.log.records(), Ok(vec![]), "{refused}");
        refused
    };
    assert!(matches!(refused(&[0; 5000], b""), IndexError::KeyTooLong { len: 5000, .. }));
    let too_long = refused(b"k", &vec![0; (4 << 20) - 10]);
    assert!(matches!(too_long, IndexError::ValueTooLong { .. }), "{too_long}");
    let full = refused(b"k", &vec![0; 700 << 10]);
    assert!(matches!(full, IndexError::Pool(PmError::Full { .. } | PmError::TooLarge { .. })));
}

/// A batch whose record fits and whose changes do not is finished when there is room.
#[test]
fn an_unfinished_batch_is_finished_when_there_is_room() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let open = |index| Batched::new(&pool, NAME, index).unwrap();
    let mut index = open(FpTree::<u64, Vec<u8>>::create(&pool, NAME).unwrap());
    let value = vec![7; 20_000];
    let mut filled = 0;
    while index.insert(&filled, &value).is_ok() {
        filled += 1;
    }
    // One record makes room for the log, none for the values.
    index.remove(&0).unwrap();
    let mut batch = WriteBatch::new();
    batch.upsert(&1000, &[1; 9_000][..]).upsert(&1001, &[2; 9_000][..]);
    let full = index.write(&batch).unwrap_err();
    assert!(matches!(full, IndexError::Pool(PmError::Full { .. })), "{full}");
    assert_eq!(index.log.records().unwrap().len(), 1, "it is durable");
    for reopened in [false, true] {
        if reopened {
            drop(index);
            index = open(FpTree::open(&pool, NAME).unwrap());
        }
        assert!(index.insert(&2000, &[]).is_err(), "nothing comes before it");
        assert!(index.remove(&1000).is_err(), "least of all for its keys");
        assert!(index.write(&batch).is_err());
    }
    assert!(index.remove(&2).unwrap().is_some(), "but room can be made");
    assert_eq!(index.insert(&2000, &[]), Ok(true));
    assert_eq!(index.get(&1000), Ok(Some(vec![1; 9_000])));
    assert_eq!(index.get(&1001), Ok(Some(vec![2; 9_000])));
    assert_eq!(index.log.records().unwrap().len(), 0);
    assert_eq!(index.check(), Ok(filled - 2 + 3));
}
