//! Opening an index of many chunks: on several threads, with whatever prefix.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use pmindex_core::{Mapped, PmError, Pool, PoolOptions};
use pmindex_hart::Hart;
use pmindex_index::{IndexError, Key, Stats, Value};

/// Enough records for chunks of more than one thread.
const RECORDS: u64 = 40_000;

fn pool() -> Arc<Pool> {
    Arc::new(Pool::emulated(32 << 20).expect("memory"))
}

fn contents<K: Key, V: Value, const P: usize>(hart: &Hart<K, V, Mapped, 56, P>) -> BTreeMap<K, V> {
    let all: Vec<(K, V)> = hart.iter().map(|item| item.expect("sound")).collect();
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(hart.check().expect("whole"), all.len() as u64);
    all.into_iter().collect()
}

/// Opens the index with prefixes of `P` bytes.
fn opens_with<K: Key, V: Value + Eq, const P: usize>(pool: &Arc<Pool>, model: &BTreeMap<K, V>) {
    let hart = Hart::<K, V, Mapped, 56, P>::open(pool, "h").expect("recovered");
    assert!(contents(&hart) == *model);
}

/// Fills an index, opens it again, with other prefixes too if `others` does that, and empties it.
fn reopens_as_it_was<K: Key, V: Value + Eq>(
    key: impl Fn(u64) -> K,
    value: impl Fn(u64) -> V,
    others: impl Fn(&Arc<Pool>, &BTreeMap<K, V>),
) {
    let pool = pool();
    let hart = Hart::<K, V>::create(&pool, "h").expect("room");
    let mut model = BTreeMap::new();
    for i in 0..RECORDS {
        let (key, value) = (key(i), value(i));
        assert!(hart.try_insert(key.borrowed(), value.borrowed()).expect("room").is_ok());
        model.insert(key, value);
    }
    for i in (0..RECORDS).step_by(7) {
        let key = key(i);
        assert_eq!(hart.remove(key.borrowed()).expect("sound"), model.remove(&key));
    }
    drop(hart);
    let hart = Hart::<K, V>::open(&pool, "h").expect("recovered");
    assert_eq!(hart.recovery_report().records, model.len() as u64);
    assert!(contents(&hart) == model);
    drop(hart);
    others(&pool, &model);
    let hart = Hart::<K, V>::open(&pool, "h").expect("recovered");
    for (key, value) in &model {
        assert_eq!(hart.remove(key.borrowed()).expect("sound").as_ref(), Some(value));
    }
    assert_eq!(hart.check().expect("whole"), 0);
    pool.audit(hart.blocks().expect("known").into_iter()).expect("nothing lost, nothing twice");
}

/// Every prefix that a number has room for.
fn with_all(pool: &Arc<Pool>, model: &BTreeMap<u64, u64>) {
    opens_with::<u64, u64, 0>(pool, model);
    opens_with::<u64, u64, 1>(pool, model);
    opens_with::<u64, u64, 3>(pool, model);
}

#[test]
fn scattered_numbers() {
    reopens_as_it_was(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15), |i| i, with_all);
}

#[test]
fn dense_numbers_in_one_tree() {
    reopens_as_it_was(|i| i, |i| i, with_all);
}

#[test]
fn wide_numbers_and_values() {
    let key = |i| (u128::from(i % 5) << 120) + u128::from(i);
    reopens_as_it_was(key, |i| (i, i + 1, i + 2), |_, _| ());
}

#[test]
fn text_of_all_lengths() {
    let text = |i: u64| {
        let number = format!("{:o}", i.wrapping_mul(0x9e37_79b9));
        number[..number.len().min(1 + i as usize % 40)].to_owned() + &format!("{i:x}")
    };
    // Some keys are shorter than this prefix.
    let other = opens_with::<String, Vec<u8>, 3>;
    reopens_as_it_was(text, |i| vec![i as u8; i as usize % 23], other);
}

#[test]
fn a_bulk_load_is_there_after_opening() {
    let pool = pool();
    let hart = Hart::<u64, u64>::create(&pool, "h").expect("room");
    let mut records = (0..RECORDS).map(|i| (i << 40, i));
    assert_eq!(hart.bulk_load(&mut records).expect("room"), RECORDS);
    assert_eq!(hart.check().expect("whole"), RECORDS);
    drop(hart);
    let hart = Hart::<u64, u64>::open(&pool, "h").expect("recovered");
    assert_eq!(hart.check().expect("whole"), RECORDS);
    assert_eq!(hart.get(&(77 << 40)).expect("sound"), Some(77));
}

#[test]
fn an_image_has_large_pieces_where_they_fit_and_small_ones_where_not() {
    for zone in [4 << 20, 128 << 10] {
        let opts = PoolOptions::new().size(64 << 20).zone_bytes(zone);
        let pool = Arc::new(Pool::create_in_memory(&opts, |mapped| mapped).expect("memory"));
        let hart = Hart::<u64, u64>::create(&pool, "h").expect("room");
        for i in 0..RECORDS {
            assert!(
                hart.try_insert(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15), &i).expect("room").is_ok()
            );
        }
        let before = contents(&hart);
        hart.close().expect("saved");
        let hart = Hart::<u64, u64>::open(&pool, "h").expect("opened");
        assert!(hart.recovery_report().from_image, "zones of {zone} bytes");
        assert!(contents(&hart) == before);
        pool.audit(hart.blocks().expect("known").into_iter()).expect("the image is gone");
    }
}

#[test]
fn an_index_is_read_and_recovered_but_never_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let opts = PoolOptions::new().size(1 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&path, &opts).expect("created"));
    let hart = Hart::<u64, u64>::create(&pool, "h").expect("created");
    for key in 0..500 {
        assert!(hart.try_insert(&key, &key).expect("inserted").is_ok());
    }
    for key in 100..400 {
        hart.remove(&key).expect("removed");
    }
    drop(hart);
    Arc::into_inner(pool).expect("the last").kill(); // not closed: opening recovers
    let before = std::fs::read(&path).expect("read");

    let pool = Arc::new(Pool::open(&path, &opts.read_only(true)).expect("opened"));
    let hart = Hart::<u64, u64>::open(&pool, "h").expect("recovered");
    assert_eq!(hart.get(&77).expect("read"), Some(77));
    let refused = IndexError::Pool(PmError::ReadOnly);
    assert_eq!(hart.try_insert(&1000, &1), Err(refused.clone()));
    assert_eq!(hart.update(&77, &1), Err(refused.clone()));
    assert_eq!(hart.put(&77, &1), Err(refused.clone()));
    assert_eq!(hart.remove(&77), Err(refused.clone()));
    assert_eq!(hart.try_insert_many(&[(1000, 1)]).stopped, Some(refused.clone()));
    assert_eq!(hart.bulk_load(&mut std::iter::empty()), Err(refused.clone()));
    assert_eq!(Hart::<u64, u64>::create(&pool, "u").err(), Some(refused));
    assert_eq!(hart.check().expect("whole"), 200);
    assert!(std::fs::read(&path).expect("read") == before, "the file was written");
}

/// What a shutdown saves, and what an opening has in DRAM, is of the records there are, not of those
/// there once were.
#[test]
fn an_index_that_has_shrunk_closes_small_and_opens_small() {
    const RECORDS: u64 = 60_000;
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let kept = |n: u64| n.is_multiple_of(100);
    let pool = Arc::new(Pool::emulated(64 << 20).expect("a pool"));
    let hart = Hart::<u64, u64, Mapped, 56, 1>::create(&pool, "shrunk").expect("created");
    let empty = hart.stats().expect("sound").dram_bytes;
    for n in 0..RECORDS {
        assert!(hart.try_insert(&key(n), &n).expect("room").is_ok());
    }
    let most = hart.stats().expect("sound").dram_bytes;
    for n in (0..RECORDS).filter(|&n| !kept(n)) {
        assert_eq!(hart.remove(&key(n)), Ok(Some(n)));
    }
    let Stats { inners: nodes, dram_bytes, .. } = hart.stats().expect("sound");
    if cfg!(target_os = "linux") {
        // Nodes of the records that are left are in many a page.
        let (now, all) = (dram_bytes - empty, most - empty);
        assert!(now < all / 4 * 3, "{now} bytes of DRAM of {all} while it is open");
    }
    let before = pool.used_bytes();
    hart.close().expect("closed");
    let grown = pool.used_bytes() - before;
    // A node has 2080 bytes at most, and some pages are in use in part.
    assert!(grown <= nodes * 2080 + (256 << 10), "{grown} bytes for {nodes} nodes");
    assert!(grown <= 1 << 20, "{grown} bytes for {} records", RECORDS / 100);
    let hart = Hart::<u64, u64, Mapped, 56, 1>::open(&pool, "shrunk").expect("opened");
    assert!(hart.recovery_report().from_image);
    assert_eq!(hart.check(), Ok(RECORDS / 100));
    let least = hart.stats().expect("sound").dram_bytes;
    assert!(most - least > most / 4, "{least} bytes of DRAM, {most} with all records");
    (0..RECORDS).for_each(|n| assert_eq!(hart.get(&key(n)), Ok(kept(n).then_some(n))));
}

/// An index that was emptied has the memory of its nodes no more, while it is open, and grows again.
#[test]
#[cfg(target_os = "linux")]
fn an_index_that_was_emptied_gives_its_memory_back() {
    const RECORDS: u64 = 200_000;
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let pool = Arc::new(Pool::emulated(128 << 20).expect("a pool"));
    let hart = Hart::<u64, u64, Mapped, 56, 1>::create(&pool, "emptied").expect("created");
    let bytes = || hart.stats().expect("sound").dram_bytes;
    let empty = bytes();
    for round in 0..2 {
        for n in 0..RECORDS {
            assert_eq!(hart.try_insert(&key(n), &(n + round)), Ok(Ok(())));
        }
        let most = bytes();
        assert_eq!(hart.get(&key(7)), Ok(Some(7 + round)));
        for n in 0..RECORDS {
            assert_eq!(hart.remove(&key(n)), Ok(Some(n + round)));
        }
        let (left, all) = (bytes() - empty, most - empty);
        // Two runs of nodes of each of four sizes stay for the next that are wanted: 128 to 260 KiB each.
        assert!(left < 3 << 19 && left < all / 3, "{left} bytes of {all} in round {round}");
        assert_eq!(hart.check(), Ok(0));
    }
}
