//! Commits that a crash interrupted and that wait for their maps, while others write: their records are put again, and
//! crashes meanwhile.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_core::trace::Space;
use pmindex_core::{Mapped, Pool, PoolOptions, Traced};
use pmindex_index::Index;
use pmindex_testkit::crash::{
    Config, CrashSubject, Fault, Geometry, Plan, create_used_pool, explore, open_pool,
};
use proptest::prelude::*;

use crate::layout::RECORD;
use crate::record::Record;
use crate::redo::Redo;
use crate::tests::store::Small;
use crate::{Map, Store, StoreError, StoreOptions};

const NAMES: [&str; 3] = ["one", "two", "three"];
/// The transactions of an operation.
const TIMES: usize = 6;

fn record_of(maps: &[&str], value: u64) -> Record {
    let mut record = Record::default();
    for name in maps {
        record.add(name, std::iter::once((&0u64, &Some(value))));
    }
    record
}

/// Writes so many records that the lane turns to other segments.
fn turn(redo: &Redo<Mapped>, number: &mut u64) {
    for _ in 0..100 {
        *number += 1;
        redo.retire(redo.put(*number, &record_of(&["other"], 1)).expect("room")).expect("room");
    }
}

/// A crash leaves the second record without what was said about the first one, or a part of the second record.
#[test]
fn what_a_crash_leaves_of_a_record_that_is_put_again_counts_for_nothing() {
    for (is_whole, is_again) in [(true, false), (true, true), (false, false), (false, true)] {
        let of = format!("{is_whole}, {is_again}");
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let open = || {
            let redo = Redo::open(&pool).expect("sound");
            if !is_whole {
                redo.cut_records();
            }
            redo
        };
        let is_left = |redo: &Redo<_>| {
            NAMES.map(|name| !redo.interrupted::<u64, u64>(name).expect("sound").is_empty())
        };
        let redo = open();
        let record = record_of(&NAMES, 7);
        let first = redo.put(redo.last() + 1, &record).expect("room");
        drop(redo);
        let redo = open();
        redo.settle("one").expect("room");
        let mut lane = redo.lane_at(first.lane);
        let (words, bytes) = (record.words(), record.len() as u64);
        let words = if is_whole { &words[..] } else { &words[..4] };
        lane.push(RECORD, [&[first.number, bytes], words]).expect("room");
        lane.commit().expect("room");
        drop(lane);
        drop(redo);
        let redo = open();
        assert_eq!(is_left(&redo), [false, true, true], "{of}");
        let mut number = redo.last();
        if is_again {
            turn(&redo, &mut number);
            drop(redo);
            let redo = open();
            assert_eq!(is_left(&redo), [false, true, true], "{of}");
        } else {
            drop(redo);
        }
        let redo = open();
        redo.settle("two").expect("room");
        let mut number = redo.last();
        turn(&redo, &mut number);
        drop(redo);
        let redo = open();
        assert_eq!(is_left(&redo), [false, false, true], "{of}");
        redo.settle("three").expect("room");
        let mut number = redo.last();
        turn(&redo, &mut number);
        drop(redo);
        let redo = open();
        assert_eq!((is_left(&redo), redo.len()), ([false; 3], 0), "{of}");
        assert!(redo.segments().0 < 8, "{of}: {}", redo.segments().0);
    }
}

/// Of two commits that wait for one map, the second finds no room for what is said about it.
#[test]
fn a_commit_that_is_settled_before_another_finds_no_room_is_over() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let redo = Redo::open(&pool).expect("sound");
    let first = redo.put(redo.last() + 1, &record_of(&["one"], 1)).expect("room");
    let lane = redo.lane_at(first.lane); // so that the other one goes elsewhere
    let second = redo.put(redo.last() + 2, &record_of(&["one"], 2)).expect("room");
    assert_ne!(first.lane, second.lane);
    drop(lane);
    drop(redo);
    let redo = Redo::open(&pool).expect("sound");
    assert_eq!(redo.interrupted.lock().len(), 2);
    pool.fail_allocations(!1); // but the first
    redo.settle("one").expect_err("no room");
    pool.fail_allocation_after(None);
    assert_eq!((redo.interrupted.lock().len(), redo.len()), (1, 1));
    let mut number = redo.last() + 2;
    turn(&redo, &mut number);
    redo.settle("one").expect("room");
    assert_eq!((redo.interrupted.lock().len(), redo.len()), (0, 0));
}

type Words = Map<u64, u64, Traced>;

struct Opened {
    store: Option<Store<Small, Traced>>,
    one: Option<Words>,
}

/// A store of which only the first map is opened at first.
struct Awaits {
    pool: Arc<Pool<Traced>>,
    opened: Mutex<Opened>,
}

#[derive(Clone, Debug)]
enum Op {
    /// Makes a commit of all maps durable, as a crash leaves it, and opens the store.
    Interrupt(u64),
    /// Commits transactions of the first map.
    Alone(u64),
    /// Opens this map, and writes it.
    Open(usize, u64),
}

type Contents = [BTreeMap<u64, u64>; NAMES.len()];

fn options() -> PoolOptions {
    PoolOptions::new().size(128 << 10).zone_bytes(32 << 10).slots(4).slot_bytes(1024)
}

impl Opened {
    fn new(pool: &Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let store = Store::in_pool(pool, &StoreOptions::new())?;
        let one = store.map(NAMES[0])?;
        Ok(Self { store: Some(store), one: Some(one) })
    }

    fn map(&self, at: usize) -> Result<Words, Fault> {
        let store = self.store.as_ref().ok_or_else(|| Fault::new("no store"))?;
        Ok(store.map(NAMES[at])?)
    }
}

impl Awaits {
    fn with(pool: Arc<Pool<Traced>>) -> Result<Self, Fault> {
        let opened = Mutex::new(Opened::new(&pool)?);
        Ok(Self { pool, opened })
    }
}

impl CrashSubject for Awaits {
    type Op = Op;
    type Ret = ();
    type Model = Contents;
    const NAME: &'static str = "store-awaits";

    fn geometry() -> Geometry {
        let len = options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &options())?;
        let opened = Opened::new(&pool)?;
        (0..NAMES.len()).try_for_each(|at| opened.map(at).map(drop))?;
        drop(opened);
        Self::with(pool)
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        open_pool(space, &options())?.map(Self::with).transpose()
    }

    fn apply(&self, op: &Op) -> Result<(), Fault> {
        let opened = &mut *self.opened.lock();
        match *op {
            Op::Interrupt(value) => {
                // Opened before: the changes of two commits that wait are in their order anyway.
                let one = opened.map(0)?;
                let core = &one.shared.core;
                let unfinished = core.moments.take_number(core.pm());
                core.redo.put(unfinished.number(), &record_of(&NAMES, value))?;
                drop(unfinished);
                drop(one);
                (opened.one, opened.store) = (None, None);
                *opened = Opened::new(&self.pool)?;
            }
            Op::Alone(value) => {
                let one = opened.one.as_ref().ok_or_else(|| Fault::new("no map"))?;
                let store = opened.store.as_ref().ok_or_else(|| Fault::new("no store"))?;
                for _ in 0..TIMES {
                    store.transaction::<(), StoreError>(|tx| {
                        (0..2).try_for_each(|key| tx.put(one, &key, &value))
                    })?;
                }
                let used = one.shared.core.redo.segments().0;
                if used > 16 {
                    return Err(Fault::new(format!("{used} segments")));
                }
            }
            Op::Open(at, value) => drop(opened.map(at)?.put(&0, &value)?),
        }
        Ok(())
    }

    fn observe(&self) -> Result<Contents, Fault> {
        let opened = self.opened.lock();
        let mut all = Contents::default();
        for (at, records) in all.iter_mut().enumerate() {
            *records = opened.map(at)?.range(..).collect::<Result<_, _>>()?;
        }
        match opened.store.as_ref().map(Store::unfinished_commits) {
            Some(0) => Ok(all),
            _ => Err(Fault::new("an unfinished commit")),
        }
    }

    fn audit(&self) -> Result<(), Fault> {
        let opened = self.opened.lock();
        (0..NAMES.len()).try_for_each(|at| opened.map(at).map(drop))?;
        let store = opened.store.as_ref().ok_or_else(|| Fault::new("no store"))?;
        store.check()?;
        store.pool().audit(store.blocks()?.into_iter())?;
        Ok(())
    }

    fn model(model: &mut Contents, op: &Op) {
        match *op {
            Op::Interrupt(value) => model.iter_mut().for_each(|map| _ = map.insert(0, value)),
            Op::Alone(value) => model[0].extend([(0, value), (1, value)]),
            Op::Open(at, value) => _ = model[at].insert(0, value),
        }
    }

    fn ops() -> BoxedStrategy<Op> {
        let value = || 0..9u64;
        prop_oneof![
            1 => value().prop_map(Op::Interrupt),
            3 => value().prop_map(Op::Alone),
            1 => (0..NAMES.len(), value()).prop_map(|(at, value)| Op::Open(at, value)),
        ]
        .boxed()
    }

    fn directed() -> Vec<Plan<Op>> {
        let plan = |setup: Vec<Op>| Plan {
            setup,
            threads: vec![vec![Op::Alone(11), Op::Alone(12), Op::Open(1, 13), Op::Alone(14)]],
            tail: vec![Op::Alone(15), Op::Open(1, 16), Op::Alone(17), Op::Alone(18)],
        };
        vec![
            plan(vec![Op::Alone(1), Op::Interrupt(2)]),
            plan(vec![Op::Interrupt(1), Op::Interrupt(2), Op::Open(2, 3), Op::Alone(4)]),
        ]
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("store/src/")
    }
}

#[test]
fn a_crash_while_records_are_put_again_loses_and_repeats_nothing() {
    let config = Config::new().seed(1).states(10_000).threads(1);
    let report = explore::<Awaits>(&config).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states >= 5_000, "{}", report.states);
}
