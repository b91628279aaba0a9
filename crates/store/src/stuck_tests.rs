//! Drops of a map that makes its store stuck: they fail before, or after, the map was closed; or a crash interrupts
//! them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU8};

use pmindex_core::trace::Space;
use pmindex_core::{IndexEntry, Medium, PmError, Pool, PoolOptions, Traced};
use pmindex_index::{
    ErasedIndex, Index, IndexError, Key, PmIndex, Reserved, Value, erase, forward_index,
};
use pmindex_testkit::crash::{
    Config, CrashSubject, Fault, Geometry, Plan, create_used_pool, explore, open_pool,
};
use pmindex_trees::FpTree;
use proptest::prelude::*;

use crate::{Catalog, Map, Store, StoreError, StoreOptions};

/// The map that finds no room.
const FULL: &str = "full";
const OTHER: &str = "other";

/// What fails.
#[derive(Debug, Default)]
struct Faults {
    /// Puts of commits find no room.
    refuses: AtomicBool,
    /// Another call: one of those below.
    call: AtomicU8,
}

const CLOSE: u8 = 1;
const BLOCKS: u8 = 2;
const OPEN: u8 = 3;

impl Faults {
    fn check(&self, call: u8) -> Result<(), IndexError> {
        let failed = IndexError::Pages { what: format!("a test fails call {call}") };
        if self.call.load(SeqCst) == call { Err(failed) } else { Ok(()) }
    }

    fn room(&self) -> Result<(), IndexError> {
        let full = PmError::Full { wanted: 1, capacity: 1 };
        if self.refuses.load(SeqCst) { Err(full.into()) } else { Ok(()) }
    }
}

thread_local! {
    /// Those of the maps that this thread creates and opens.
    static FAULTS: RefCell<Arc<Faults>> = RefCell::default();
}

type Tree<K, V, M> = FpTree<K, V, M, 4, 4>;

/// A tree with faults.
struct Faulty<K: Key, V: Value, M: Medium> {
    index: Tree<K, V, M>,
    faults: Arc<Faults>,
}

impl<K: Key, V: Value, M: Medium> Index<K, V> for Faulty<K, V, M> {
    forward_index!(index);
}

impl<K: Key, V: Value, M: Medium> PmIndex<K, V, M> for Faulty<K, V, M> {
    const NAME: &'static str = "faulty";

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Tree::create(pool, name)?;
        Ok(Self { index, faults: FAULTS.with_borrow(Arc::clone) })
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let faults = FAULTS.with_borrow(Arc::clone);
        faults.check(OPEN)?;
        Ok(Self { index: <Tree<K, V, M> as PmIndex<K, V, M>>::open(pool, name)?, faults })
    }

    fn close(self) -> Result<(), IndexError> {
        self.faults.check(CLOSE)?;
        PmIndex::close(self.index)
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.faults.check(BLOCKS)?;
        PmIndex::blocks(&self.index)
    }

    fn put_reserved(&self, key: &K::Ref, value: &V::Ref, _: &Reserved) -> Result<bool, IndexError> {
        self.faults.room()?;
        self.index.put(key, value)
    }

    fn put_many_reserved(&self, records: &[(K, V)], _: &Reserved) -> Result<(), IndexError> {
        self.faults.room()?;
        self.index.put_many(records)
    }
}

#[derive(Debug)]
struct Kinds;

impl Catalog for Kinds {
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
        if name == FULL {
            return erase(Faulty::<K, V, M>::create(pool, name));
        }
        erase(Tree::<K, V, M>::create(pool, name))
    }

    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        // A map that is being dropped has another name.
        if name != OTHER {
            return erase(Faulty::<K, V, M>::open(pool, name));
        }
        erase(<Tree<K, V, M> as PmIndex<K, V, M>>::open(pool, name))
    }
}

/// Puts a record into both maps, and another one into the first, in one transaction.
fn commit<M: Medium>(
    store: &Store<Kinds, M>,
    full: &Map<u64, u64, M>,
    other: &Map<u64, u64, M>,
    (key, value): (u64, u64),
) -> Result<(), StoreError> {
    store.transaction(|tx| {
        tx.put(full, &key, &value)?;
        tx.put(full, &(key + 100), &value)?;
        tx.put(other, &key, &value)
    })
}

fn is_full(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(error) if error.is_full())
}

/// Changes of an interrupted commit that find no room when their map is opened are made later, also under a snapshot
/// that was taken before: it never has one value now and another one then.
#[test]
fn a_snapshot_from_before_a_map_was_opened_does_not_change() {
    let faults = FAULTS.with_borrow(Arc::clone);
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let open = || Store::<Kinds>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let store = open();
    let [full, other] = [FULL, OTHER].map(|name| store.map(name).unwrap());
    full.put(&1, &1).unwrap();
    faults.refuses.store(true, SeqCst);
    let stuck = commit(&store, &full, &other, (1, 2));
    assert!(matches!(stuck, Err(StoreError::Unfinished(_))), "{stuck:?}");
    drop((full, other, store));
    let store = open();
    let view = store.snapshot().unwrap();
    let full = store.map::<u64, u64>(FULL).unwrap();
    let before = full.at(&view).get(&1);
    faults.refuses.store(false, SeqCst);
    assert_eq!(full.get(&1), Ok(Some(2)));
    let after = full.at(&view).get(&1);
    let is_right =
        |read: &Result<_, _>| matches!(read, Ok(Some(2)) | Err(StoreError::Dropped { .. }));
    assert!(is_right(&before) && is_right(&after), "{before:?}, {after:?}");
    let all: Result<Vec<(u64, u64)>, _> = full.at(&store.snapshot().unwrap()).range(..).collect();
    assert_eq!(all.unwrap(), [(1, 2), (101, 2)]);
}

/// The ends of a map that waits for a commit are not read, and those of other maps are.
#[test]
fn the_ends_of_a_map_that_waits_for_a_commit_are_not_read() {
    let faults = FAULTS.with_borrow(Arc::clone);
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let store = Store::<Kinds>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let [full, other, third] = [FULL, OTHER, "third"].map(|name| store.map(name).unwrap());
    third.put(&3, &4).unwrap();
    faults.refuses.store(true, SeqCst);
    let stuck = commit(&store, &full, &other, (1, 2));
    assert!(matches!(stuck, Err(StoreError::Unfinished(_))), "{stuck:?}");
    for map in [&full, &other] {
        let refused = [
            map.first_key_value().map(drop),
            map.last_key_value().map(drop),
            map.is_empty().map(drop),
        ];
        assert!(refused.iter().all(|read| read.as_ref().is_err_and(is_full)), "{refused:?}");
    }
    assert_eq!(third.first_key_value(), Ok(Some((3, 4))));
    assert_eq!((third.last_key_value(), third.is_empty()), (Ok(Some((3, 4))), Ok(false)));
    faults.refuses.store(false, SeqCst);
    assert_eq!(full.last_key_value(), Ok(Some((101, 2))));
    assert_eq!(other.pop_first(), Ok(Some((1, 2))));
}

#[test]
fn a_drop_that_fails_leaves_the_map_with_what_it_waits_for() {
    for (call, is_interrupted, is_removed) in [
        (CLOSE, false, false),
        (CLOSE, true, false),
        (BLOCKS, false, false),
        (BLOCKS, true, false),
        (OPEN, false, false),
        (OPEN, true, false),
        (OPEN, false, true),
        (OPEN, true, true),
    ] {
        let of = format!("call {call}, {is_interrupted}, {is_removed}");
        let faults = Arc::new(Faults::default());
        FAULTS.set(Arc::clone(&faults));
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let open = || Store::<Kinds>::in_pool(&pool, &StoreOptions::new()).expect("room");
        let mut store = open();
        let maps = |store: &Store<Kinds>| {
            let full: Map<u64, u64> = store.map(FULL).expect("room");
            (full, store.map::<u64, u64>(OTHER).expect("room"))
        };
        let (mut full, mut other) = maps(&store);
        faults.refuses.store(true, SeqCst);
        let stuck = commit(&store, &full, &other, (1, 2));
        assert!(matches!(stuck, Err(StoreError::Unfinished(_))), "{of}: {stuck:?}");
        if is_interrupted {
            drop((full, other, store));
            store = open();
            (full, other) = maps(&store);
        }
        drop(full);
        faults.call.store(call, SeqCst);
        let failed = store.drop_map::<u64, u64>(FULL);
        assert!(matches!(failed, Err(StoreError::Index(IndexError::Pages { .. }))), "{of}");
        faults.call.store(0, SeqCst);
        assert_eq!(store.unfinished_commits(), 1, "{of}");
        if is_removed {
            // As if the drop had failed after it took place.
            let blocks = |name: &str| PmIndex::blocks(&Faulty::<u64, u64, _>::open(&pool, name)?);
            assert_eq!(pool.drop_index(FULL, blocks), Ok(true), "{of}");
            other.put(&3, &4).expect("not stuck");
        } else {
            if call != OPEN {
                assert!(other.put(&3, &4).is_err_and(|error| is_full(&error)), "{of}");
                faults.refuses.store(false, SeqCst);
                other.put(&3, &4).expect("not stuck");
            }
            faults.refuses.store(false, SeqCst);
            let full: Map<u64, u64> = store.existing_map(FULL).expect("it stays");
            other.put(&3, &4).expect("not stuck");
            assert_eq!((full.get(&1), full.get(&101)), (Ok(Some(2)), Ok(Some(2))), "{of}");
            commit(&store, &full, &other, (5, 6)).expect("room");
            drop(full);
            assert!(store.drop_map::<u64, u64>(FULL).expect("sound"), "{of}");
        }
        faults.refuses.store(false, SeqCst);
        assert_eq!(store.unfinished_commits(), 0, "{of}");
        assert_eq!((other.get(&1), other.get(&3)), (Ok(Some(2)), Ok(Some(4))), "{of}");
        drop((other, store));
        let store = open();
        assert_eq!(store.unfinished_commits(), 0, "{of}");
        let (full, other) = maps(&store);
        assert_eq!((full.is_empty(), other.get(&1)), (Ok(true), Ok(Some(2))), "{of}");
    }
}

type Words = Map<u64, u64, Traced>;

/// A store whose map finds no room, and is dropped.
struct Stuck {
    maps: (Option<Words>, Words),
    store: Store<Kinds, Traced>,
    faults: Arc<Faults>,
}

#[derive(Clone, Debug)]
enum Op {
    /// Puts a record into both maps.
    Commit(u64, u64),
    /// The same, while the first one finds no room; then drops it, after a drop that fails at this call.
    CommitAndDrop(u64, u64, u8),
    /// The same, and then there is room, so it is not dropped.
    CommitAndStay(u64, u64, u8),
}

#[derive(Clone, Debug, PartialEq)]
enum Ret {
    Did(bool),
    /// Of an operation that did not end.
    Begun,
}

/// The records of both maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Contents {
    full: BTreeMap<u64, u64>,
    other: BTreeMap<u64, u64>,
}

fn options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
}

/// [`Stuck`] behind a lock: an operation replaces the map.
struct Locked(parking_lot::Mutex<Stuck>);

impl Locked {
    fn with(pool: &Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let faults = Arc::new(Faults::default());
        FAULTS.set(Arc::clone(&faults));
        let store = Store::in_pool(pool, &StoreOptions::new())?;
        let maps = (Some(store.map(FULL)?), store.map(OTHER)?);
        Ok(Self(parking_lot::Mutex::new(Stuck { maps, store, faults })))
    }
}

impl Stuck {
    /// Commits while there is no room, and fails to drop the map.
    fn stick(&mut self, record: (u64, u64), call: u8) -> Result<(), Fault> {
        let (full, other) = &mut self.maps;
        let map = full.take().ok_or_else(|| Fault::new("no map"))?;
        self.faults.refuses.store(true, SeqCst);
        match commit(&self.store, &map, other, record) {
            Err(StoreError::Unfinished(_)) => {}
            done => return Err(Fault::new(format!("not stuck: {done:?}"))),
        }
        drop(map);
        self.faults.call.store(call, SeqCst);
        if call != 0 && self.store.drop_map::<u64, u64>(FULL).is_ok() {
            return Err(Fault::new("the drop does not fail"));
        }
        self.faults.call.store(0, SeqCst);
        Ok(())
    }
}

impl CrashSubject for Locked {
    type Op = Op;
    type Ret = Ret;
    type Model = Contents;
    const NAME: &'static str = "store-stuck";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        Self::with(&create_used_pool(space, &options())?)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &options())? else { return Ok(None) };
        Self::with(&pool).map(Some)
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        let stuck = &mut *self.0.lock();
        FAULTS.set(Arc::clone(&stuck.faults));
        Ok(Ret::Did(match *op {
            Op::Commit(key, value) => {
                let (full, other) = &stuck.maps;
                let full = full.as_ref().ok_or_else(|| Fault::new("no map"))?;
                commit(&stuck.store, full, other, (key, value))?;
                true
            }
            Op::CommitAndDrop(key, value, call) => {
                stuck.stick((key, value), call)?;
                let done = stuck.store.drop_map::<u64, u64>(FULL)?;
                stuck.faults.refuses.store(false, SeqCst);
                stuck.maps.0 = Some(stuck.store.map(FULL)?);
                done
            }
            Op::CommitAndStay(key, value, call) => {
                stuck.stick((key, value), call)?;
                stuck.faults.refuses.store(false, SeqCst);
                stuck.maps.0 = Some(stuck.store.existing_map(FULL)?);
                drop(stuck.store.snapshot()?); // makes the changes
                true
            }
        }))
    }

    fn observe(&self) -> Result<Contents, Fault> {
        let stuck = self.0.lock();
        stuck.store.check()?;
        if stuck.store.unfinished_commits() > 0 {
            return Err(Fault::new("an unfinished commit"));
        }
        let all = |map: &Words| map.range(..).collect::<Result<BTreeMap<_, _>, _>>();
        let full = stuck.maps.0.as_ref().map_or(Ok(BTreeMap::new()), all)?;
        Ok(Contents { full, other: all(&stuck.maps.1)? })
    }

    fn audit(&self) -> Result<(), Fault> {
        let stuck = self.0.lock();
        stuck.store.pool().audit(stuck.store.blocks()?.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Contents, op: &Op) -> Ret {
        let (Op::Commit(key, value)
        | Op::CommitAndDrop(key, value, _)
        | Op::CommitAndStay(key, value, _)) = *op;
        model.full.extend([(key, value), (key + 100, value)]);
        model.other.insert(key, value);
        if matches!(op, Op::CommitAndDrop(..)) {
            model.full.clear();
        }
        Ret::Did(true)
    }

    /// An operation that ends early has committed, and may have dropped the map.
    fn outcomes(model: &Contents, op: &Op) -> Vec<(Contents, Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        let mut all = vec![(after, ret)];
        if let Op::CommitAndDrop(key, value, _) = *op {
            let mut begun = model.clone();
            Self::model(&mut begun, &Op::Commit(key, value));
            all.push((begun, Ret::Begun));
        }
        all
    }

    fn ops() -> BoxedStrategy<Op> {
        let record = || (0..4u64, 0..9u64);
        prop_oneof![
            2 => record().prop_map(|(key, value)| Op::Commit(key, value)),
            1 => (record(), 0..4u8).prop_map(|((key, value), call)| Op::CommitAndDrop(key, value, call)),
            1 => (record(), 1..4u8).prop_map(|((key, value), call)| Op::CommitAndStay(key, value, call)),
        ]
        .boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        let each = |op: fn(u64, u64, u8) -> Op| (1..4).map(move |call| op(1, 7, call));
        let plan = |op: Op| Plan {
            setup: vec![Op::Commit(0, 1), Op::Commit(1, 2)],
            threads: vec![vec![op, Op::Commit(2, 3)]],
            tail: vec![Op::Commit(1, 4), Op::CommitAndDrop(3, 5, 0), Op::Commit(0, 6)],
        };
        each(Op::CommitAndDrop).chain(each(Op::CommitAndStay)).map(plan).collect()
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("store/src/")
    }
}

#[test]
fn a_crash_while_a_stuck_map_is_dropped_leaves_it_whole_or_none() {
    let config = Config::new().seed(1).states(10_000).threads(1);
    let report = explore::<Locked>(&config).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states >= 5_000, "{}", report.states);
}
