//! Maps in a buffer: crashes, types, sizes, threads.

#[path = "parts/archive.rs"]
mod archive;
#[path = "parts/as_index.rs"]
mod as_index;
#[path = "parts/damage.rs"]
mod damage;
#[path = "parts/kills.rs"]
mod kills;
#[path = "../../buffer/tests/subject/pool_disk.rs"]
mod pool_disk;
#[path = "parts/room.rs"]
mod room;
#[allow(dead_code, reason = "the explorer of crashes has all of it")]
#[path = "../../../tests/crash/store.rs"]
mod store;
#[path = "../../../tests/crash/store_paged.rs"]
mod store_paged;
#[path = "subject/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_btree::{PagedError, PagedMap};
use pmindex_buffer::{Buffer, BufferOptions};
use pmindex_core::{Pool, PoolOptions};
use pmindex_testkit::crash::{Config, Persistency, explore};
use pmindex_wal::sim::{SimDisk, mix};
use store::Stored;
use store_paged::Second;
use tree::Tree;

#[track_caller]
fn passes(config: &Config) {
    match explore::<Tree>(config) {
        Ok(report) => assert!(report.states > 100, "hardly anything explored:\n{report}"),
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn one_thread() {
    passes(&Config::new().states(3000));
}

#[test]
fn two_threads() {
    passes(&Config::new().states(2000).threads(2).ops(4).setup(12));
}

#[test]
fn pages_written_back() {
    passes(&Config::new().states(1000).persistency(Persistency::Pages));
}

/// A transaction over a map in pages and ordinary maps takes place or does not.
#[test]
fn a_store_with_a_map_in_pages() {
    for config in [Config::new().states(2000), Config::new().states(2000).threads(2)] {
        match explore::<Stored<Second>>(&config) {
            Ok(report) => assert!(report.states > 100, "hardly anything explored:\n{report}"),
            Err(failure) => panic!("{failure}"),
        }
    }
}

fn buffer(pages: usize, frames: u64) -> Arc<Buffer> {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let disk = Arc::new(SimDisk::new(512, pages * 4096));
    let made = Buffer::create(&pool, "pages", disk, &BufferOptions::new(frames));
    Arc::new(made.expect("a buffer"))
}

#[test]
fn a_map_of_many_times_the_frames_is_a_btree_map() {
    let buffer = buffer(2000, 30);
    let map: PagedMap<String, Vec<u8>> = PagedMap::open(&buffer, "map").unwrap();
    let mut model = BTreeMap::new();
    let key = |n: u64| format!("key {:x}{}", mix(n) % 3000, "x".repeat((mix(n) % 40) as usize));
    for n in 0..9000 {
        let key = key(n);
        if n % 5 == 4 {
            assert_eq!(map.remove(&key).unwrap(), model.remove(&key));
        } else {
            let value = vec![n as u8; (mix(n + 77) % 300) as usize];
            assert_eq!(map.insert(&key, &value).unwrap(), model.insert(key, value));
        }
    }
    let pages = buffer.metrics().fetched;
    assert!(pages > 1000, "hardly any page came from the disk: {pages}");
    assert_eq!(map.check().unwrap(), model.len() as u64);
    let all: Vec<_> = map.range(..).map(Result::unwrap).collect();
    assert!(all.iter().map(|(k, v)| (k, v)).eq(&model));
    for (n, _) in (0..300).zip(0..) {
        let (from, to) = (key(n), key(n + 1));
        if from < to {
            let some: Vec<_> = map.range(from.clone()..=to.clone()).map(Result::unwrap).collect();
            assert!(some.iter().map(|(k, v)| (k, v)).eq(model.range(from.clone()..=to.clone())));
            let rest: Vec<_> = map.range(from.clone()..to.clone()).map(Result::unwrap).collect();
            assert!(rest.iter().map(|(k, v)| (k, v)).eq(model.range(from..to)));
        }
    }
    assert_eq!(map.first_key_value().unwrap().map(|first| first.0), model.keys().next().cloned());
    assert_eq!(map.last_key_value().unwrap().map(|last| last.0), model.keys().last().cloned());
    for key in model.keys() {
        map.remove(key).unwrap();
    }
    assert!(map.is_empty().unwrap());
    assert_eq!((map.len().unwrap(), map.last_key_value().unwrap()), (0, None));
}

#[test]
fn names_types_and_sizes_are_checked() {
    let buffer = buffer(8, 8);
    let map: PagedMap<i64, String> = PagedMap::open(&buffer, "map").unwrap();
    let wrong = PagedMap::<i64, u64>::open(&buffer, "map");
    assert!(matches!(wrong, Err(PagedError::WrongType { .. })), "{wrong:?}");
    for name in ["", &"n".repeat(41)] {
        let wrong = PagedMap::<i64, u64>::open(&buffer, name);
        assert!(matches!(wrong, Err(PagedError::BadName { .. })), "{wrong:?}");
    }
    let long = map.put(&1, &"v".repeat(2000));
    assert!(matches!(long, Err(PagedError::TooLong { .. })), "{long:?}");
    assert!(map.put(&-1, "minus").unwrap() && map.put(&1, "plus").unwrap());
    assert!(map.try_insert(&1, "no").unwrap().is_err() && map.update(&2, "no").unwrap().is_err());
    map.update(&1, "one").unwrap().unwrap();
    let all: Vec<_> = map.range(..).map(Result::unwrap).collect();
    assert_eq!(all, [(-1, "minus".to_owned()), (1, "one".to_owned())]);
    // The disk gets full: an error, and the existing records stay.
    let full = (2..1000).find_map(|key| map.put(&key, &"v".repeat(900)).err());
    assert!(matches!(full, Some(PagedError::Full { .. })), "{full:?}");
    let count = map.check().unwrap();
    assert!(count > 10 && map.get(&-1).unwrap().as_deref() == Some("minus"), "{count}");
}

#[test]
fn writers_of_two_maps_and_readers_together() {
    let buffer = buffer(400, 40);
    let accounts: PagedMap<u64, u64> = PagedMap::open(&buffer, "accounts").unwrap();
    let log: PagedMap<u64, u64> = PagedMap::open(&buffer, "log").unwrap();
    for account in 0..200 {
        accounts.put(&account, &100).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (accounts, log) = (&accounts, &log);
            scope.spawn(move || {
                for n in 0..300 {
                    let (from, to) = (mix(n * 3 + thread) % 200, mix(n * 7 + thread) % 200);
                    let moved = accounts.transact(|tx| {
                        let have = accounts.get_in(tx, &from)?.unwrap_or(0);
                        if from == to || have == 0 {
                            return Ok(false);
                        }
                        accounts.put_in(tx, &from, &(have - 1))?;
                        let other = accounts.get_in(tx, &to)?.unwrap_or(0);
                        accounts.put_in(tx, &to, &(other + 1))?;
                        log.put_in(tx, &(thread << 32 | n), &1)?;
                        Ok(true)
                    });
                    moved.unwrap();
                    if n % 100 == 0 {
                        accounts.buffer().checkpoint().unwrap();
                    }
                }
            });
        }
    });
    let sum: u64 = accounts.range(..).map(|item| item.unwrap().1).sum();
    assert_eq!(sum, 200 * 100);
    assert!(log.check().unwrap() > 800);
}

/// A transaction that began before another one's commit runs again; it does not report what it saw in between.
#[test]
fn a_conflict_is_no_damage() {
    let buffer = buffer(400, 40);
    let map: PagedMap<u64, u64> = PagedMap::open(&buffer, "map").unwrap();
    for key in 0..2000 {
        map.put(&key, &0).unwrap();
    }
    let mut runs = 0;
    let sum = map.transact(|tx| {
        runs += 1;
        let first = map.get_in(tx, &1)?;
        if runs == 1 {
            map.transact(|other| map.put_in(other, &1, &7).and(map.put_in(other, &1999, &7)))?;
        }
        let sum = (first, map.get_in(tx, &1999)?);
        assert_eq!(sum.0, sum.1, "of two moments");
        Ok(sum)
    });
    assert_eq!((sum.unwrap(), runs), ((Some(7), Some(7)), 2));
}

#[test]
fn it_is_there_again_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let pools = PoolOptions::new().size(4 << 20).emulate_pm(true);
    let disk = SimDisk::new(512, 600 * 4096);
    let options = BufferOptions::new(40);
    let pool = Arc::new(Pool::create(&path, &pools).unwrap());
    let made = Buffer::create(&pool, "pages", Arc::new(disk.clone()), &options).unwrap();
    let map: PagedMap<u64, u64> = PagedMap::open(&Arc::new(made), "map").unwrap();
    for key in 0..20_000 {
        map.put(&mix(key), &key).unwrap();
        if key == 15_000 {
            map.buffer().checkpoint().unwrap();
        }
    }
    drop(map);
    Arc::into_inner(pool).unwrap().kill();
    let pool = Arc::new(Pool::open(&path, &pools).unwrap());
    let opened = Buffer::open(&pool, "pages", Arc::new(disk), &options).unwrap().unwrap();
    let map: PagedMap<u64, u64> = PagedMap::open(&Arc::new(opened), "map").unwrap();
    for key in 0..20_000 {
        assert_eq!(map.get(&mix(key)).unwrap(), Some(key));
    }
    assert_eq!(map.check().unwrap(), 20_000);
    let metrics = map.buffer().metrics();
    assert!(metrics.valid > 0 && metrics.corrupted == 0, "{metrics:?}");
}
