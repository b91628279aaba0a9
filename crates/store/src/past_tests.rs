//! Random histories of one map, and snapshots beside them: each has its moment, however often the map was emptied and
//! loaded since.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, IndexError};
use pmindex_testkit::conformance::{Fuse, SampleKey};
use pmindex_testkit::crash::Rng;

use crate::moments::Past;
use crate::tests::store::Small;
use crate::transaction::Transaction;
use crate::{Catalog, Map, Snapshot, Store, StoreError, StoreOptions};

const KEYS: u64 = 6;

type Records = BTreeMap<u64, u64>;

fn check(map: &Map<u64, u64>, view: &Snapshot, records: &Records) {
    let at = map.at(view);
    let all: Records = at.range(..).map(Result::unwrap).collect();
    assert_eq!(all, *records);
    assert!(at.range(..).rev().map(Result::unwrap).eq(records.clone().into_iter().rev()));
    for key in 0..KEYS {
        assert_eq!(at.get(&key).unwrap().as_ref(), records.get(&key), "key {key}");
    }
}

/// Loads some records, and fails at last or not.
fn load(rng: &mut Rng, map: &Map<u64, u64>, now: &mut Records, value: u64) {
    let keys: Vec<u64> = (0..KEYS).filter(|_| rng.one_in(2)).collect();
    let loaded: Records = keys.iter().map(|key| (*key, value)).collect();
    let fails = rng.one_in(3);
    let last = fails.then_some((0, 0)).into_iter().chain(fails.then_some((0, 0)));
    let done = map.bulk_load(&mut loaded.clone().into_iter().chain(last));
    if !now.is_empty() {
        assert!(matches!(done, Err(IndexError::NotEmpty)), "{done:?}");
    } else if fails {
        assert!(matches!(done, Err(IndexError::NotSorted { .. })), "{done:?}");
    } else {
        assert_eq!(done.unwrap(), loaded.len() as u64);
        *now = loaded;
    }
}

/// Commits a transaction that read a key or all before; it must conflict if that has changed.
fn commit(mut tx: Transaction, map: &Map<u64, u64>, is_read: bool, now: &mut Records, value: u64) {
    tx.put(map, &0, &value).unwrap();
    match tx.commit() {
        Ok(()) => {
            assert!(is_read, "something else was read");
            now.insert(0, value);
        }
        Err(StoreError::Conflict { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn history(seed: u64) {
    let rng = &mut Rng::new(seed);
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let map = store.map::<u64, u64>("map").unwrap();
    let (mut now, mut views): (Records, Vec<(Snapshot, Records)>) = Default::default();
    let mut txs: Vec<(Transaction, Records)> = Vec::new();
    for value in 1..60 {
        let key = rng.below(KEYS as usize) as u64;
        match rng.below(16) {
            0..4 => load(rng, &map, &mut now, value),
            4 => assert_eq!(map.put(&key, &value).unwrap(), now.insert(key, value).is_none()),
            5..8 => assert_eq!(map.remove(&key).unwrap(), now.remove(&key)),
            8..10 => {
                map.clear().unwrap();
                now.clear();
            }
            10..12 => views.push((store.snapshot().unwrap(), now.clone())),
            12 if !views.is_empty() => drop(views.remove(rng.below(views.len()))),
            13 => {
                let tx = store.begin().unwrap();
                let all: Records = tx.range(&map, ..).map(Result::unwrap).collect();
                assert_eq!(all, now);
                txs.push((tx, all));
            }
            14 if !txs.is_empty() => {
                let (tx, all) = txs.remove(rng.below(txs.len()));
                commit(tx, &map, all == now, &mut now, value);
            }
            _ => {}
        }
        for (view, records) in &views {
            check(&map, view, records);
        }
        for (tx, records) in &txs {
            let all: Records = tx.range(&map, ..).map(Result::unwrap).collect();
            assert_eq!(all, *records);
        }
    }
    drop((views, txs));
    assert_eq!(store.past_bytes(), 0);
    assert_eq!(map.range(..).map(Result::unwrap).collect::<Records>(), now);
}

#[test]
fn snapshots_keep_their_moments_while_the_map_is_emptied_and_loaded() {
    for seed in 0..400 {
        history(seed);
    }
}

/// A range that is forgotten, so that it never ends, was read nevertheless.
#[test]
fn a_range_that_never_ends_was_read() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let map = store.map::<u64, u64>("map").unwrap();
    (0..8).for_each(|key| assert!(map.put(&key, &1).unwrap()));
    for (key, ends, conflicts) in
        [(1, false, true), (1, true, true), (7, true, false), (9, false, true)]
    {
        let mut tx = store.begin().unwrap();
        let mut range = tx.range(&map, ..);
        assert!(range.by_ref().take(3).all(|item| item.is_ok()));
        if ends {
            drop(range);
        } else {
            std::mem::forget(range);
        }
        map.put(&key, &2).unwrap();
        tx.put(&map, &0, &3).unwrap();
        let done = tx.commit();
        assert_eq!(matches!(done, Err(StoreError::Conflict { .. })), conflicts, "{key}: {done:?}");
    }
}

/// Records that transactions change again and again take no memory for moments that nothing reads any more, although
/// an older snapshot exists.
#[test]
fn records_that_change_often_do_not_end_an_old_snapshot() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let options = StoreOptions::new().past_bytes(20_000);
    let store = Store::<Small>::in_pool(&pool, &options).unwrap();
    let map = store.map::<u64, u64>("map").unwrap();
    (0..KEYS).for_each(|key| assert!(map.put(&key, &0).unwrap()));
    let view = store.snapshot().unwrap();
    let mut readers: Vec<(Snapshot, u64)> = Vec::new();
    for value in 1..3000 {
        // Their lives overlap.
        readers.push((store.snapshot().unwrap(), value - 1));
        let done: Result<(), StoreError> =
            store.transaction(|tx| (0..KEYS).try_for_each(|key| tx.put(&map, &key, &value)));
        done.unwrap();
        if readers.len() > 3 {
            let (old, was) = readers.remove(value as usize % 3);
            check(&map, &old, &(0..KEYS).map(|key| (key, was)).collect());
        }
        let noted = map.shared.versions.noted();
        assert!(noted < 200, "{noted} versions are remembered after {value} commits");
    }
    check(&map, &view, &(0..KEYS).map(|key| (key, 0)).collect());
    drop((view, readers));
    assert_eq!((store.past_bytes(), map.shared.versions.noted()), (0, 0));
}

/// An iterator that is loaded and waits for the load itself: it panics, and the store goes on.
#[test]
fn what_a_load_reads_of_its_store_ends_it() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let (map, other) =
        (store.map::<u64, u64>("map").unwrap(), store.map::<u64, u64>("other").unwrap());
    other.put(&1, &1).unwrap();
    let reads: [(&str, &dyn Fn()); 4] = [
        ("get", &|| assert!(other.get(&1).is_ok())),
        ("first", &|| assert!(other.first_key_value().is_ok())),
        ("empty", &|| assert!(other.is_empty().is_ok())),
        ("snapshot", &|| drop(store.snapshot().unwrap())),
    ];
    for (what, read) in reads {
        let mut records = (0..9u64).map(|key| {
            read();
            (key, key)
        });
        let load = std::panic::AssertUnwindSafe(|| map.bulk_load(&mut records));
        assert!(std::panic::catch_unwind(load).is_err(), "{what}");
        let view = store.snapshot().unwrap();
        assert_eq!(map.at(&view).len().unwrap(), 0, "{what}");
        assert_eq!(other.first_key_value().unwrap(), Some((1, 1)), "{what}");
    }
    assert_eq!(map.bulk_load(&mut (0..9).map(|key| (key, key))), Ok(9));
}

/// Creates a map with records that are not written through it.
fn created(store: &Store<Small>, name: &str, records: u64) -> Map<u64, u64> {
    let create = |pool: &Arc<Pool>, name: &str| {
        let index = <Small as Catalog>::create::<u64, u64, Mapped>(pool, name, ())?;
        index.bulk_load(&mut (0..records).map(|key| (key, 1)))?;
        Ok(index)
    };
    store.map_with(name, create).unwrap()
}

#[test]
fn a_map_that_is_created_with_records_was_empty_before() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let mut tx = store.begin().unwrap();
    let first = store.map::<u64, u64>("first").unwrap();
    assert_eq!(tx.get(&first, &1).unwrap(), None);
    let mut blind = store.begin().unwrap();
    let view = store.snapshot().unwrap();
    let map = created(&store, "map", KEYS);
    check(&map, &view, &Records::new());
    assert!(map.at(&view).is_empty().unwrap());
    let after = store.snapshot().unwrap();
    let all: Records = (0..KEYS).map(|key| (key, 1)).collect();
    check(&map, &after, &all);
    // Later changes change neither.
    map.put(&2, &2).unwrap();
    map.remove(&3).unwrap();
    map.put(&100, &3).unwrap();
    check(&map, &view, &Records::new());
    check(&map, &after, &all);
    // A transaction that began before has read that it is empty, which is true no more.
    assert_eq!((tx.get(&map, &1).unwrap(), tx.range(&map, ..).count()), (None, 0));
    tx.put(&first, &1, &1).unwrap();
    assert!(matches!(tx.commit(), Err(StoreError::Conflict { .. })));
    blind.put(&map, &1, &5).unwrap();
    blind.put(&first, &1, &5).unwrap();
    blind.commit().unwrap();
    drop((view, after));
    assert_eq!(store.past_bytes(), 0);
    assert_eq!(map.get(&1).unwrap(), Some(5));
}

/// In a transaction that creates the map itself.
#[test]
fn a_transaction_that_creates_a_map_is_in_no_earlier_moment() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    for (name, records, puts) in [("a", 0, 1), ("b", 0, 3), ("c", 4, 1), ("d", 4, 3)] {
        let view = store.snapshot().unwrap();
        let done: Result<(), StoreError> = store.transaction(|tx| {
            let map = created(&store, name, records);
            assert_eq!(map.at(&view).len()?, 0);
            (10..10 + puts).try_for_each(|key| tx.put(&map, &key, &key))
        });
        done.unwrap();
        let map = store.map::<u64, u64>(name).unwrap();
        assert_eq!(map.len().unwrap(), records + puts);
        assert_eq!(map.at(&view).len().unwrap(), 0, "{name}");
        assert_eq!(map.at(&view).get(&10).unwrap(), None, "{name}");
    }
}

/// Old values of a map that take long to drop.
struct Slow {
    begun: Mutex<mpsc::Sender<()>>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Past for Slow {
    fn forget(&self, _oldest: u64, _kept: &AtomicU64) {
        self.begun.lock().send(()).unwrap();
        self.goes_on.lock().recv().unwrap();
    }

    fn clear(&self, _kept: &AtomicU64) {}
}

/// Old values that only the thread that drops them first waits for.
struct SlowOnce {
    begun: mpsc::Sender<()>,
    goes_on: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Past for SlowOnce {
    fn forget(&self, _oldest: u64, _kept: &AtomicU64) {
        let goes_on = self.goes_on.lock().take();
        if let Some(goes_on) = goes_on {
            self.begun.send(()).unwrap();
            goes_on.recv().unwrap();
        }
    }

    fn clear(&self, _kept: &AtomicU64) {}
}

#[test]
fn maps_open_and_close_while_a_large_snapshot_is_released() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let map = store.map::<u64, u64>("map").unwrap();
    let (begun, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let slow = Slow { begun: Mutex::new(begun), goes_on: Mutex::new(goes_on) };
    map.shared.core.moments.add(Arc::new(slow));
    let view = store.snapshot().unwrap();
    map.put(&1, &1).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || drop(view));
        begins.recv().unwrap();
        let (opened, opens) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            let other = store.map::<u64, u64>("other").unwrap();
            drop(other);
            assert!(store.drop_map::<u64, u64>("other").unwrap());
            opened.send(()).unwrap();
        });
        let opened = opens.recv_timeout(Duration::from_secs(10));
        go_on.send(()).unwrap();
        assert!(opened.is_ok(), "it waits for the values of other maps");
    });
    assert_eq!(store.past_bytes(), 0);
}

/// While one thread is about to drop the many values of a snapshot that was released, another commits over the limit: it
/// drops them itself, and ends no reader for them.
#[test]
fn old_values_count_no_more_as_they_are_dropped() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let options = StoreOptions::new().past_bytes(20_000);
    let store = Store::<Small>::in_pool(&pool, &options).unwrap();
    let (begun, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let slow = SlowOnce { begun, goes_on: Mutex::new(Some(goes_on)) };
    let other = store.map::<u64, u64>("other").unwrap();
    other.shared.core.moments.add(Arc::new(slow)); // before the map: its values wait
    let map = store.map::<u64, u64>("map").unwrap();
    map.put(&0, &0).unwrap();
    let large = store.snapshot().unwrap();
    // Nearly as much as is kept.
    let mut key = 1;
    while store.past_bytes() < 19_900 {
        map.put(&key, &1).unwrap();
        key += 1;
    }
    let young = store.snapshot().unwrap();
    let records = map.at(&young).len().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || drop(large));
        begins.recv().unwrap();
        let before = store.past_bytes();
        (0..10).for_each(|key| _ = map.put(&key, &2).unwrap());
        let (after, seen) = (store.past_bytes(), map.at(&young).len());
        go_on.send(()).unwrap(); // before anything fails
        assert!(before >= 19_900 && after < before, "{before}, {after}");
        assert_eq!(seen.unwrap(), records);
        assert_eq!(map.at(&young).get(&0).unwrap(), Some(0));
    });
    drop(young);
    assert_eq!(store.past_bytes(), 0);
}

/// A panic of a key's conversion ends a transaction, or a snapshot is dropped while one unwinds: the old values that only
/// it needed are not looked for by conversions that panic as well, which would end the process. A later reader drops them.
#[test]
fn a_reader_that_a_panic_of_a_key_ends_leaves_its_old_values_to_a_later_one() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let map = store.map::<Fuse, u64>("map").unwrap();
    let key = Fuse::nth(1);
    map.put(&key, &1).unwrap();
    for drops_the_map in [false, true] {
        let other = drops_the_map.then(|| store.map::<Fuse, u64>("other").unwrap());
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let other = other; // dropped while the panic unwinds
            let view = store.snapshot().unwrap();
            let tx = store.begin().unwrap();
            assert_eq!(tx.get(&map, &key).unwrap(), Some(1));
            map.put(&key, &2).unwrap();
            assert!(other.as_ref().is_none_or(|other| other.put(&key, &1).unwrap()));
            assert!(store.past_bytes() > 0);
            Fuse::burn_after(Some(0));
            let _ = map.at(&view).get(&key);
            drop(tx);
        }));
        Fuse::burn_after(None);
        assert!(ended.is_err());
        map.put(&key, &3).unwrap();
        let view = store.snapshot().unwrap();
        map.put(&key, &1).unwrap();
        assert_eq!(map.at(&view).get(&key).unwrap(), Some(3));
        drop(view);
        assert_eq!((store.past_bytes(), map.shared.versions.noted()), (0, 0));
    }
}

/// A panic of a key that ends the dropping of old values takes nothing of it back, and loses nothing: the next one goes on.
#[test]
fn old_values_that_a_panic_of_a_key_keeps_are_dropped_later() {
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
    let map = store.map::<Fuse, u64>("map").unwrap();
    for at in 0..6 {
        let view = store.snapshot().unwrap();
        (0..3).for_each(|n| assert_eq!(map.put(&Fuse::nth(n), &at).unwrap(), at == 0));
        Fuse::burn_after(Some(at));
        let ended = catch_unwind(AssertUnwindSafe(|| drop(view)));
        Fuse::burn_after(None);
        assert_eq!(ended.is_err(), at < 3, "a hash of each key");
        let view = store.snapshot().unwrap();
        (0..3).for_each(|n| assert!(!map.put(&Fuse::nth(n), &9).unwrap()));
        assert_eq!(map.at(&view).get(&Fuse::nth(2)).unwrap(), Some(at));
        drop(view);
        assert_eq!((store.past_bytes(), map.shared.versions.noted()), (0, 0), "{at}");
    }
}

/// A panic of a key or a value ends the opening of a map whose interrupted changes are made: the next one makes them, and
/// they do not come again over later writes.
#[test]
fn a_map_whose_opening_a_panic_ended_has_its_interrupted_changes_when_it_opens() {
    for at in 0.. {
        let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
        let open = || Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
        let store = open();
        let map = store.map::<Fuse, Fuse>("map").unwrap();
        (0..3).for_each(|n| assert!(map.put(&Fuse::nth(n), &Fuse::nth(1)).unwrap()));
        let changes: Vec<_> = [(0, Some(2)), (1, Some(3)), (2, None)]
            .map(|(key, value)| (Fuse::nth(key), value.map(Fuse::nth)))
            .into();
        let mut record = crate::record::Record::default();
        record.add("map", changes.iter().map(|(key, value)| (key, value)));
        let core = &map.shared.core;
        let unfinished = core.moments.take_number(core.pm());
        core.redo.put(unfinished.number(), &record).unwrap();
        drop(unfinished);
        drop((map, store));
        let store = open();
        Fuse::burn_after(Some(at));
        let opened =
            catch_unwind(AssertUnwindSafe(|| drop(store.map::<Fuse, Fuse>("map").unwrap())));
        Fuse::burn_after(None);
        let map = store.map::<Fuse, Fuse>("map").unwrap();
        for (key, value) in &changes {
            assert_eq!(map.get(key).unwrap(), *value, "{at}");
            map.put(key, &Fuse::nth(9)).unwrap();
        }
        assert_eq!(store.unfinished_commits(), 0, "{at}");
        drop((map, store));
        let (store, nine) = (open(), Fuse::nth(9));
        let map = store.map::<Fuse, Fuse>("map").unwrap();
        assert!(changes.iter().all(|(key, _)| map.get(key).unwrap() == Some(nine)), "{at}");
        if opened.is_ok() {
            assert!(at > 5, "{at}");
            return;
        }
    }
}

/// A panic of a key or a value ends a commit while it notes the old values, or before, or after: all bytes of them are
/// counted and dropped once, and each moment stays what it is.
#[test]
fn old_values_that_a_panic_ends_the_noting_of_are_counted() {
    for rounds in 0..16 {
        let mut at = 0;
        while !panics_in_commit(rounds, at) {
            at += 1;
        }
        assert!(at > 9, "{rounds}: {at}");
    }
}

/// Returns `true` if nothing panics.
fn panics_in_commit(rounds: u64, at: u64) -> bool {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let options = StoreOptions::new().past_bytes(40_000);
    let store = Store::<Small>::in_pool(&pool, &options).unwrap();
    let map = store.map::<Fuse, u64>("map").unwrap();
    let commit = |value: u64| -> Result<(), StoreError> {
        let mut tx = store.begin()?;
        (0..KEYS).try_for_each(|n| tx.put(&map, &Fuse::nth(n), &value))?;
        Fuse::burn_after(if value == 77 { Some(at) } else { None });
        tx.commit()
    };
    let check = |view: &Snapshot, value: u64| {
        let all: Vec<_> = map.at(view).range(..).map(Result::unwrap).collect();
        let expected: Vec<_> = (0..KEYS).map(|n| (Fuse::nth(n), value)).collect();
        assert_eq!(all, expected, "{rounds}, {at}");
    };
    commit(0).unwrap();
    let old = store.snapshot().unwrap();
    for value in 1..=rounds {
        // Nothing needs the values between.
        let young = store.snapshot().unwrap();
        commit(value).unwrap();
        if value % 3 == 0 {
            check(&young, value - 1);
        }
    }
    let young = store.snapshot().unwrap();
    let done = catch_unwind(AssertUnwindSafe(|| commit(77).unwrap()));
    Fuse::burn_after(None);
    check(&old, 0);
    check(&young, rounds);
    commit(78).unwrap();
    check(&old, 0);
    check(&young, rounds);
    drop((old, young));
    assert_eq!((store.past_bytes(), map.shared.versions.noted()), (0, 0), "{rounds}, {at}");
    let view = store.snapshot().unwrap();
    (79..83).for_each(|value| commit(value).unwrap());
    check(&view, 78);
    drop(view);
    assert_eq!((store.past_bytes(), map.shared.versions.noted()), (0, 0), "{rounds}, {at}");
    done.is_ok()
}
