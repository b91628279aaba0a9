//! What a full log or a full pool does to a store: nothing that is refused takes room, and what waits for room is neither
//! lost nor in the way of what makes room.

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, IndexError, Key, PmIndex, Value};
use pmindex_trees::FpTree;

use crate::record::Record;
use crate::redo::Redo;
use crate::tests::store::Small;
use crate::{Map, Store, StoreError, StoreOptions};

type Filler = FpTree<u64, Vec<u8>, Mapped, 4, 4>;

fn open(pool: &Arc<Pool>) -> Result<Store<Small>, StoreError> {
    Store::in_pool(pool, &StoreOptions::new())
}

fn is_full(error: &IndexError) -> bool {
    matches!(error, IndexError::Pool(error) if error.is_full())
}

fn record_of<K: Key, V: Value>(maps: &[&str], changes: &[(K, Option<V>)]) -> Record {
    let mut record = Record::default();
    for name in maps {
        record.add(name, changes.iter().map(|(key, value)| (key, value)));
    }
    record
}

/// Makes a commit durable whose changes are not made: as a crash leaves it.
fn interrupt<K: Key, V: Value>(map: &Map<K, V>, maps: &[&str], changes: &[(K, Option<V>)]) {
    let core = &map.shared.core;
    let unfinished = core.moments.take_number(core.pm());
    core.redo.put(unfinished.number(), &record_of(maps, changes)).expect("room");
}

/// Takes all room of a pool.
fn fill(pool: &Arc<Pool>) {
    let filler = Filler::create(pool, "filler").expect("room");
    let mut key = 0;
    for bytes in [60_000, 8_000, 2_000, 1_000, 500, 450, 400, 250, 120, 60, 20, 8] {
        let refused = loop {
            key += 1;
            if let Err(error) = filler.put(&key, &vec![1; bytes]) {
                break error;
            }
        };
        assert!(is_full(&refused), "{refused}");
    }
}

/// Gives the room back. (A drop of so many blocks takes room itself.)
fn empty(pool: &Arc<Pool>) {
    let filler: Filler = PmIndex::open(pool, "filler").expect("sound");
    filler.clear().expect("sound");
}

/// The allocator keeps some runs of small blocks.
const RUNS: u64 = 40_000;

/// The words of a part of a record: in a line, and in many.
const PARTS: [usize; 2] = [4, 12_000];

#[test]
fn a_record_that_finds_no_room_takes_none() {
    for part in PARTS {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let redo = Redo::open(&pool).expect("room");
        redo.cut_records_to(part);
        let record = record_of(&["map"], &[(1u64, Some(vec![7u8; 300_000]))]);
        let mut number = redo.last();
        let (before, refused) = loop {
            number += 1;
            let before = (redo.segments().0, pool.used_bytes());
            if let Err(error) = redo.put(number, &record) {
                break (before, error);
            }
        };
        assert!(is_full(&refused), "{part}: {refused}");
        let after = (redo.segments().0, pool.used_bytes());
        assert!(after.0 <= before.0 && after.1 < before.1 + RUNS, "{part}: {before:?}, {after:?}");
        let small = redo.put(number, &record_of(&["map"], &[(1u64, Some(1u64))])).expect("room");
        redo.retire(small).expect("room");
    }
}

#[test]
fn a_transaction_that_finds_no_room_takes_none() {
    for part in PARTS {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let store = open(&pool).expect("room");
        let map = store.map::<u64, Vec<u8>>("map").expect("room");
        let redo = &map.shared.core.redo;
        redo.cut_records_to(part);
        // Commits in flight.
        let large = record_of(&["map"], &[(1u64, Some(vec![7u8; 300_000]))]);
        let mut number = redo.last();
        while redo.put(number + 1, &large).is_ok() {
            number += 1;
        }
        let before = (redo.segments().0, pool.used_bytes());
        let refused: Result<(), StoreError> = store
            .transaction(|tx| (0..300).try_for_each(|key| tx.put(&map, &key, &vec![1; 1_000])));
        assert!(matches!(&refused, Err(StoreError::Index(error)) if is_full(error)), "{refused:?}");
        let after = (redo.segments().0, pool.used_bytes());
        assert!(after.0 <= before.0 && after.1 < before.1 + RUNS, "{part}: {before:?}, {after:?}");
        assert_eq!(map.put(&1, &vec![1; 1_000]), Ok(true), "{part}");
        let small: Result<(), StoreError> =
            store.transaction(|tx| (2..4).try_for_each(|key| tx.put(&map, &key, &[1; 100])));
        small.expect("room");
    }
}

/// A pool without room, in whose log is a commit of two maps that is not finished.
fn full_pool() -> Arc<Pool> {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let store = open(&pool).expect("room");
    let [first, second] = ["first", "second"].map(|name| store.map::<u64, u64>(name).unwrap());
    for map in [&first, &second] {
        (1..3).for_each(|key| assert_eq!(map.put(&key, &1), Ok(true)));
    }
    interrupt(&first, &["first", "second"], &[(1, Some(2))]);
    drop((first, second, store));
    fill(&pool);
    pool
}

#[test]
fn maps_of_an_interrupted_commit_open_in_a_full_pool() {
    let pool = full_pool();
    let store = open(&pool).expect("opens");
    let [first, second] =
        ["first", "second"].map(|name| store.map::<u64, u64>(name).expect("opens"));
    for map in [&first, &second] {
        assert_eq!(map.get(&2), Ok(Some(1)), "no part of the commit");
        assert_eq!(map.remove(&2), Ok(Some(1)), "it makes room");
        // A change of the commit would be made again after a crash.
        assert!(map.remove(&1).is_err_and(|error| is_full(&error)));
        assert!(map.put(&3, &3).is_err_and(|error| is_full(&error)));
    }
    assert_eq!(store.unfinished_commits(), 1);
    empty(&pool);
    for map in [&first, &second] {
        assert_eq!(map.get(&1), Ok(Some(2)));
        assert_eq!(map.remove(&1), Ok(Some(2)));
        assert_eq!(map.put(&3, &3), Ok(true));
    }
    assert_eq!(store.unfinished_commits(), 0);
    drop((first, second, store));
    let store = open(&pool).expect("opens");
    for name in ["first", "second"] {
        let map = store.map::<u64, u64>(name).expect("opens");
        assert_eq!((map.len(), map.get(&3)), (Ok(1), Ok(Some(3))), "{name}");
    }
}

#[test]
fn maps_of_an_interrupted_commit_are_dropped_in_a_full_pool() {
    let pool = full_pool();
    let store = open(&pool).expect("opens");
    for name in ["first", "second"] {
        assert!(store.drop_map::<u64, u64>(name).expect("sound"), "{name}");
    }
    empty(&pool);
    for name in ["first", "second"] {
        let map = store.map::<u64, u64>(name).expect("room");
        assert_eq!((map.is_empty(), map.put(&1, &9)), (Ok(true), Ok(true)), "{name}");
    }
    assert_eq!(store.unfinished_commits(), 0);
    drop(store);
    let store = open(&pool).expect("opens");
    for name in ["first", "second"] {
        assert_eq!(store.map::<u64, u64>(name).expect("opens").get(&1), Ok(Some(9)), "{name}");
    }
}

#[test]
fn a_store_opens_in_a_full_pool_after_a_map_of_an_interrupted_commit_was_dropped() {
    let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
    let store = open(&pool).expect("room");
    let map = store.map::<u64, u64>("map").expect("room");
    map.put(&1, &1).expect("room");
    interrupt(&map, &["map", "dropped"], &[(1, Some(2))]);
    drop((map, store));
    fill(&pool);
    let store = open(&pool).expect("opens");
    let map = store.map::<u64, u64>("map").expect("opens");
    let created = store.map::<u64, u64>("dropped");
    assert!(matches!(&created, Err(StoreError::Index(error)) if is_full(error)), "{created:?}");
    empty(&pool);
    let again = store.map::<u64, u64>("dropped").expect("room");
    assert_eq!((again.is_empty(), again.put(&5, &5)), (Ok(true), Ok(true)));
    assert_eq!(map.get(&1), Ok(Some(2)));
    drop((again, map, store));
    let store = open(&pool).expect("opens");
    let again = store.map::<u64, u64>("dropped").expect("opens");
    assert_eq!((again.len(), again.get(&5)), (Ok(1), Ok(Some(5))));
    drop(store.map::<u64, u64>("map").expect("opens"));
    assert_eq!(store.unfinished_commits(), 0);
}

/// The maps of a store are opened when they are needed: the log does not keep all commits since the one that waits for
/// another map.
#[test]
fn the_log_does_not_grow_while_a_commit_waits_for_its_map() {
    for (part, large) in [(None, 0), (Some(4), 0), (None, 3_000), (Some(4), 3_000)] {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        let store = open(&pool).expect("room");
        let [one, other, third] =
            ["one", "other", "third"].map(|name| store.map::<u64, Vec<u8>>(name).unwrap());
        for map in [&one, &other, &third] {
            map.put(&0, &[1]).expect("room");
        }
        interrupt(&one, &["one", "other", "third"], &[(0, Some(vec![2; large]))]);
        interrupt(&one, &["other"], &[(0, Some(vec![3])), (1, Some(vec![4]))]);
        drop((one, other, third, store));
        let mut expected = BTreeMap::new();
        for round in 0..4u64 {
            let store = open(&pool).expect("opens");
            let one = store.map::<u64, Vec<u8>>("one").expect("opens");
            if let Some(part) = part {
                one.shared.core.redo.cut_records_to(part);
            }
            if round == 0 {
                assert_eq!(one.get(&0), Ok(Some(vec![2; large])));
            }
            for turn in 0..6_000 {
                let value = (round * 6_000 + turn).to_le_bytes().to_vec();
                let keys = [turn % 7, 10 + turn % 5];
                let done: Result<(), StoreError> = store
                    .transaction(|tx| keys.iter().try_for_each(|key| tx.put(&one, key, &value)));
                done.unwrap_or_else(|error| panic!("{round}, {turn}: {error}"));
                expected.extend(keys.map(|key| (key, value.clone())));
                let used = one.shared.core.redo.segments().0;
                assert!(used <= 64, "{used} segments after {turn} in round {round}");
            }
            assert_eq!(store.unfinished_commits(), 2, "{round}");
        }
        let store = open(&pool).expect("opens");
        let other = store.map::<u64, Vec<u8>>("other").expect("opens");
        assert_eq!((other.get(&0), other.get(&1)), (Ok(Some(vec![3])), Ok(Some(vec![4]))));
        let third = store.map::<u64, Vec<u8>>("third").expect("opens");
        assert_eq!(third.get(&0), Ok(Some(vec![2; large])));
        let one = store.map::<u64, Vec<u8>>("one").expect("opens");
        let all: BTreeMap<u64, Vec<u8>> = one.range(..).map(Result::unwrap).collect();
        assert_eq!((all, store.unfinished_commits()), (expected, 0));
    }
}

/// A write that is refused for lack of room in its index is withdrawn in the log, in a full pool too.
#[test]
fn a_write_that_found_no_room_does_not_take_place_later() {
    for keeps in [1, 4_000] {
        let pool = Arc::new(Pool::emulated(1 << 20).expect("memory"));
        let options = StoreOptions::new().keep_commits(keeps);
        let store = Store::<Small>::in_pool(&pool, &options).expect("room");
        let map = store.map::<u64, Vec<u8>>("m").expect("room");
        map.put(&0, &[1]).expect("room");
        fill(&pool);
        let mut refused = 0;
        for turn in 0..60u64 {
            // New keys, and a value that needs another block.
            for (key, value) in [(1 + turn, vec![2; 9]), (0, vec![3; 100 + turn as usize])] {
                if let Err(error) = map.put(&key, &value) {
                    assert!(is_full(&error), "{turn}: {error}");
                    refused += 1;
                }
                assert_eq!(store.unfinished_commits(), 0, "{turn}: {key}");
                let done: Result<(), StoreError> =
                    store.transaction(|tx| tx.put(&map, &key, &value));
                refused += u64::from(done.is_err());
                assert_eq!(store.unfinished_commits(), 0, "{turn}: {key}");
            }
        }
        assert!(refused > 100, "{refused}");
        let before: BTreeMap<u64, Vec<u8>> = map.range(..).map(Result::unwrap).collect();
        empty(&pool);
        map.put(&1000, &[4]).expect("room");
        map.remove(&1000).expect("sound");
        let after: BTreeMap<u64, Vec<u8>> = map.range(..).map(Result::unwrap).collect();
        assert_eq!(before, after);
    }
}
