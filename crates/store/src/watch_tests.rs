//! The guarantees of watches.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use pmindex_core::{Mapped, Pool};
use pmindex_index::{Index, IndexError};

use crate::tests::store::Small;
use crate::{Committed, Map, Store, StoreError, StoreOptions, Watch, WatchPosition};

type Records = BTreeMap<u64, u64>;

fn pool(bytes: usize) -> Arc<Pool> {
    Arc::new(Pool::emulated(bytes).unwrap())
}

fn store(pool: &Arc<Pool>, options: &StoreOptions) -> Store<Small> {
    Store::in_pool(pool, options).unwrap()
}

fn kept() -> StoreOptions {
    StoreOptions::new().keep_commits(1 << 20)
}

fn apply(records: &mut Records, map: &Map<u64, u64>, commit: &Committed) {
    for (key, value) in commit.changes(map).unwrap() {
        match value {
            Some(value) => drop(records.insert(key, value)),
            None => drop(records.remove(&key)),
        }
    }
}

/// Follows a map to the last commit; returns the number of commits.
fn follow(watch: &mut Watch, map: &Map<u64, u64>, records: &mut Records) -> usize {
    let mut commits = 0;
    while let Some(commit) = watch.try_next().unwrap() {
        apply(records, map, &commit);
        commits += 1;
    }
    commits
}

fn all(map: &Map<u64, u64>) -> Records {
    map.range(..).collect::<Result<_, IndexError>>().unwrap()
}

#[test]
fn who_watches_sees_each_commit_once_and_nothing_else() {
    let pool = pool(4 << 20);
    let store = store(&pool, &StoreOptions::new());
    let one = store.map::<u64, u64>("one").unwrap();
    let two = store.map::<Vec<u8>, Vec<u8>>("two").unwrap();
    one.put(&1, &10).unwrap();
    let mut watch = store.watch().unwrap();
    assert!(watch.try_next().unwrap().is_none(), "what was before is not to be seen");
    let start = watch.position();
    let done: Result<(), StoreError> = store.transaction(|tx| {
        tx.put(&one, &2, &20)?;
        tx.put(&two, b"a".as_slice(), b"x".as_slice())?;
        tx.remove(&one, &1).map(drop)
    });
    done.unwrap();
    assert!(one.try_insert(&2, &21).unwrap().is_err() && one.update(&9, &9).unwrap().is_err());
    assert_eq!(one.remove(&9).unwrap(), None);
    two.put(b"b".as_slice(), [].as_slice()).unwrap();
    assert_eq!(one.try_insert_many(&[(2, 0), (3, 30), (3, 31)]).inserted, [false, true, false]);
    let mut tx = store.begin().unwrap();
    tx.put(&one, &4, &40).unwrap();
    tx.commit().unwrap();
    drop({
        let mut tx = store.begin().unwrap();
        tx.put(&one, &5, &50).unwrap();
        tx
    });
    let commit = watch.try_next().unwrap().unwrap();
    assert_eq!(commit.maps().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(commit.changes(&one).unwrap(), [(1, None), (2, Some(20))]);
    assert_eq!(commit.changes(&two).unwrap(), [(b"a".to_vec(), Some(b"x".to_vec()))]);
    assert_eq!(watch.position(), commit.position());
    let mut again = store.watch_from(start).unwrap();
    assert_eq!(again.try_next().unwrap().unwrap().position(), commit.position());
    drop(again);
    let rest: Vec<_> = std::iter::from_fn(|| watch.try_next().unwrap()).collect();
    let of_one: Vec<_> = rest.iter().flat_map(|commit| commit.changes(&one).unwrap()).collect();
    assert_eq!(of_one, [(3, Some(30)), (4, Some(40))]);
    assert_eq!(rest[0].changes(&two).unwrap(), [(b"b".to_vec(), Some(Vec::new()))]);
    assert!(rest.is_sorted_by_key(Committed::position) && rest.len() == 3);
    // Without a watch there are no records, so no watch can continue.
    let end = watch.position();
    drop(watch);
    one.put(&6, &60).unwrap();
    assert!(matches!(store.watch_from(end), Err(StoreError::WatchEnded)));
    let future = WatchPosition::from_u64(u64::MAX);
    assert!(matches!(store.watch_from(future), Err(StoreError::WatchEnded)));
    assert_eq!(store.unfinished_commits(), 0);
}

#[test]
fn a_position_outlives_the_store_that_keeps_its_commits() {
    let pool = pool(4 << 20);
    let (mut followed, mut position, mut wanted) = (Records::new(), WatchPosition::START, 0);
    for round in 0..6u64 {
        let store = store(&pool, &kept());
        let map = store.map::<u64, u64>("map").unwrap();
        // A part of it is seen in this round, the rest in the next one.
        for key in 0..20 {
            map.put(&(round * 7 + key), &round).unwrap();
        }
        let mut watch = store.watch_from(position).unwrap();
        for _ in 0..15 {
            apply(&mut followed, &map, &watch.try_next().unwrap().unwrap());
            wanted += 1;
        }
        position = WatchPosition::from_u64(watch.position().into_u64());
    }
    let last = store(&pool, &kept());
    let map = last.map::<u64, u64>("map").unwrap();
    let mut watch = last.watch_from(position).unwrap();
    wanted += follow(&mut watch, &map, &mut followed);
    assert_eq!((followed, wanted), (all(&map), 6 * 20));
    let position = watch.position();
    drop((watch, map, last));
    drop(store(&pool, &StoreOptions::new())); // it need not have changed anything
    assert!(matches!(store(&pool, &kept()).watch_from(position), Err(StoreError::WatchEnded)));
}

#[test]
fn who_falls_behind_is_told_and_holds_nobody_up() {
    let pool = pool(1 << 20);
    let store = store(&pool, &kept());
    let map = store.map::<u64, u64>("map").unwrap();
    let mut watch = store.watch_from(WatchPosition::START).unwrap();
    let mut near = store.watch().unwrap();
    let (mut records, used) = (Records::new(), pool.used_bytes());
    for step in 0..4_000 {
        map.put(&(step % 10), &step).unwrap();
        if step % 100 == 0 {
            follow(&mut near, &map, &mut records);
        }
    }
    assert!(pool.used_bytes() - used < 300 << 10, "an eighth of the pool, and what is needed");
    assert!(matches!(watch.try_next(), Err(StoreError::WatchEnded)));
    assert!(matches!(watch.try_next(), Err(StoreError::WatchEnded)), "and stays so");
    follow(&mut near, &map, &mut records);
    assert_eq!(records, all(&map));
    let position = near.position();
    drop((watch, near, map, store));
    let store = self::store(&pool, &kept());
    store.watch_from(position).unwrap();
    assert!(matches!(store.watch_from(WatchPosition::START), Err(StoreError::WatchEnded)));
}

#[test]
fn what_finds_no_room_is_not_seen_and_what_makes_room_is_not_refused() {
    let pool = pool(256 << 10);
    let store = store(&pool, &kept());
    let map = store.map::<Vec<u8>, Vec<u8>>("map").unwrap();
    let mut watch = store.watch().unwrap();
    let mut followed = BTreeMap::new();
    let mut filled = 0u64;
    while let Ok(inserted) = map.try_insert(&filled.to_be_bytes(), &vec![7; 3000]) {
        inserted.unwrap();
        filled += 1;
    }
    let mut ended = false;
    for key in 0..filled {
        map.remove(&key.to_be_bytes()).unwrap();
        loop {
            match watch.try_next() {
                Ok(None) => break,
                Ok(Some(commit)) => followed.extend(commit.changes(&map).unwrap()),
                Err(StoreError::WatchEnded) => {
                    ended = true;
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(filled > 20 && map.is_empty().unwrap());
    assert!(ended || followed.values().all(Option::is_none));
    assert!(!followed.contains_key(filled.to_be_bytes().as_slice()));
    assert_eq!(store.unfinished_commits(), 0);
    map.put(&[1], &[1]).unwrap();
}

#[test]
fn a_map_that_is_loaded_says_so() {
    let pool = pool(4 << 20);
    let store = store(&pool, &kept());
    let map = store.map::<u64, u64>("map").unwrap();
    let mut watch = store.watch().unwrap();
    map.bulk_load(&mut (0..1000).map(|key| (key, key))).unwrap();
    let commit = watch.try_next().unwrap().unwrap();
    assert!(commit.is_loaded("map") && !commit.is_loaded("other"));
    assert_eq!(commit.changes(&map).unwrap(), []);
}

#[test]
fn waiting_ends_with_a_commit_or_with_the_time() {
    let pool = pool(4 << 20);
    let store = store(&pool, &StoreOptions::new());
    let map = store.map::<u64, u64>("map").unwrap();
    let mut watch = store.watch().unwrap();
    assert!(watch.next_within(Duration::from_millis(5)).unwrap().is_none());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| watch.next_within(Duration::MAX).unwrap());
        thread::sleep(Duration::from_millis(5));
        map.put(&1, &2).unwrap();
        let commit = waiting.join().unwrap().unwrap();
        assert_eq!(commit.changes(&map).unwrap(), [(1, Some(2))]);
    });
}

/// Money moves between accounts of two maps; a watch has the same sum after each commit, and in the end the
/// contents of the maps.
#[test]
fn who_follows_threads_has_a_moment_after_each_commit() {
    const ACCOUNTS: u64 = 8;
    let pool: Arc<Pool<Mapped>> = pool(8 << 20);
    let store = store(&pool, &StoreOptions::new());
    let maps: [Map<u64, u64>; 2] = [store.map("one").unwrap(), store.map("two").unwrap()];
    for key in 0..ACCOUNTS {
        for map in &maps {
            assert!(map.put(&key, &100).unwrap());
        }
    }
    let mut followed = [all(&maps[0]), all(&maps[1])];
    let mut watch = store.watch().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let (store, maps) = (&store, &maps);
                scope.spawn(move || {
                    for step in 0..400u64 {
                        let (from, to) = (step * 5 + thread, step * 3 + 2 * thread);
                        let (a, b) = (&maps[(step % 2) as usize], &maps[(to % 2) as usize]);
                        let done: Result<(), StoreError> = store.transaction(|tx| {
                            let (from, to) = (from % ACCOUNTS, to % ACCOUNTS);
                            let left = tx.get(a, &from)?.unwrap().saturating_sub(1);
                            let moved = tx.get(a, &from)?.unwrap() - left;
                            tx.put(a, &from, &left)?;
                            let was = tx.get(b, &to)?.unwrap();
                            tx.put(b, &to, &(was + moved))
                        });
                        done.unwrap();
                        maps[0].put(&(ACCOUNTS + thread), &0).unwrap(); // a single write
                    }
                })
            })
            .collect();
        let (over, watch, maps) = (&over, &mut watch, &maps);
        let reading = scope.spawn(move || {
            let mut commits = 0;
            loop {
                let last = over.load(Relaxed);
                while let Some(commit) = watch.try_next().unwrap() {
                    for (records, map) in followed.iter_mut().zip(maps) {
                        apply(records, map, &commit);
                    }
                    let sum: u64 = followed.iter().flat_map(BTreeMap::values).sum();
                    assert_eq!(sum, 2 * ACCOUNTS * 100);
                    commits += 1;
                }
                if last {
                    return (followed, commits);
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Relaxed);
        let (followed, commits) = reading.join().unwrap();
        assert_eq!((followed, commits), ([all(&maps[0]), all(&maps[1])], 3 * 800));
    });
}

#[test]
fn changes_of_another_stores_map_are_refused() {
    let (pool, other) = (pool(4 << 20), pool(4 << 20));
    let (store, other) = (store(&pool, &kept()), store(&other, &kept()));
    let (map, same_name) =
        (store.map::<u64, u64>("map").unwrap(), other.map::<u64, u64>("map").unwrap());
    let absent = other.map::<u64, u64>("absent").unwrap();
    let mut watch = store.watch().unwrap();
    map.put(&1, &10).unwrap();
    let commit = watch.try_next().unwrap().unwrap();
    for foreign in [&same_name, &absent] {
        let changes = commit.changes(foreign);
        let is_it =
            matches!(&changes, Err(StoreError::OtherStore { name }) if name == foreign.name());
        assert!(is_it, "{changes:?}");
    }
    assert_eq!(commit.clone().changes(&map).unwrap(), [(1, Some(10))]);
}

/// A map may be made with its records: they are in no commit, and a watch tells of them.
#[test]
fn a_map_that_is_created_with_records_is_loaded() {
    let pool = pool(4 << 20);
    let store = store(&pool, &kept());
    let mut watch = store.watch().unwrap();
    for (name, records) in [("full", 9u64), ("empty", 0)] {
        let create = |pool: &Arc<Pool>, name: &str| {
            let index = <Small as crate::Catalog>::create::<u64, u64, Mapped>(pool, name, ())?;
            index.bulk_load(&mut (0..records).map(|key| (key, key)))?;
            Ok(index)
        };
        let map = store.map_with::<u64, u64>(name, create).unwrap();
        assert_eq!(map.len().unwrap(), records);
    }
    let commit = watch.try_next().unwrap().expect("a commit");
    assert!(commit.is_loaded("full") && !commit.is_loaded("empty"));
    assert!(watch.try_next().unwrap().is_none());
    let position = watch.position();
    let full = store.map::<u64, u64>("full").unwrap();
    full.put(&1, &10).unwrap();
    assert_eq!(watch.try_next().unwrap().unwrap().changes(&full).unwrap(), [(1, Some(10))]);
    drop((watch, full));
    assert_eq!(store.unfinished_commits(), 0);
    store.close().unwrap();
    let store = self::store(&pool, &kept());
    assert!(store.watch_from(position).unwrap().try_next().unwrap().is_some());
    let mut watch = store.watch_from(WatchPosition::START).unwrap();
    assert!(watch.try_next().unwrap().unwrap().is_loaded("full"));
}

/// A watch that is far behind reads a part of the log at a time, and ends when the rest is given up.
#[test]
fn a_watch_far_behind_has_a_part_of_the_log_in_memory() {
    let pool = pool(4 << 20);
    let store = store(&pool, &StoreOptions::new().keep_commits(500_000));
    let map = store.map::<u64, u64>("map").unwrap();
    let put = |from: u64, until: u64| {
        for value in from..until {
            // In several lanes.
            let put = || assert!(map.put(&(value % 7), &value).is_ok());
            if value % 50 == 0 { thread::scope(|scope| drop(scope.spawn(put))) } else { put() }
        }
    };
    put(0, 1_000);
    let start = WatchPosition::START;
    let (mut whole, mut late) =
        (store.watch_from(start).unwrap(), store.watch_from(start).unwrap());
    let next = |watch: &mut Watch, expected: u64| {
        assert!(watch.in_memory() < 100, "{} commits", watch.in_memory());
        let next = watch.try_next()?;
        let value = next.map(|commit| commit.changes(&map).unwrap()[0].1);
        assert!(value.is_none_or(|value| value == Some(expected)), "{expected}: {value:?}");
        Ok::<_, StoreError>(value.is_some())
    };
    for expected in 0..500 {
        assert!(next(&mut whole, expected).unwrap() && next(&mut late, expected).unwrap());
    }
    let from = whole.position();
    for expected in 500..1_000 {
        assert!(next(&mut whole, expected).unwrap());
    }
    assert!(!next(&mut whole, 0).unwrap());
    let mut again = store.watch_from(from).unwrap();
    assert!(next(&mut again, 500).unwrap());
    put(1_000, 9_000);
    let ended = (500..).find_map(|expected| match next(&mut late, expected) {
        Ok(more) => (!more).then_some(false),
        Err(error) => Some(matches!(error, StoreError::WatchEnded)),
    });
    assert_eq!(ended, Some(true), "no commit is missing");
}
