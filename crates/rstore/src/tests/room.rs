//! Partitions whose pool has less room than their capacity, and blocks that opening found to have some.

use std::sync::Arc;

use pmindex_core::Pool;

use crate::{Batch, BlockSize, Error, Options, Partition};

fn pool(bytes: usize) -> Arc<Pool> {
    Arc::new(Pool::emulated(bytes).expect("memory"))
}

fn key(number: u64) -> Vec<u8> {
    format!("user:{number:019}").into_bytes()
}

/// Returns a partition in a pool that another one has filled.
fn in_full_pool(pool: &Arc<Pool>, records: u64) -> (Partition, Partition) {
    let options = Options::new().block_size(BlockSize::Kib16).capacity(1 << 20);
    let mut partition = Partition::create(pool, "p", &options).expect("room");
    for number in 0..records {
        partition.put(&key(number), &[7; 100], None).expect("room");
    }
    partition.commit().expect("room");
    let mut other = Partition::create(pool, "q", &Options::new().capacity(8 << 20)).expect("room");
    for length in [500_000, 20_000, 2_100] {
        while other.put_unweighed(&key(other.len()), &vec![1; length], None).is_ok() {}
    }
    (partition, other)
}

#[test]
fn a_batch_for_which_the_pool_has_no_room_is_refused_whole() {
    let pool = pool(4 << 20);
    let (mut partition, other) = in_full_pool(&pool, 20);
    let (mut batch, mut made, mut refused) = (Batch::new(), 20, 0);
    while refused < 5 {
        batch.clear();
        (made..made + 7).for_each(|number| _ = batch.put(&key(number), &[7; 100], None));
        match partition.write(&batch) {
            Ok(()) => made += 7,
            Err(error) => {
                assert!(error.is_full(), "{made}: {error}");
                refused += 1;
            }
        }
        assert_eq!(partition.len(), made);
        assert!(partition.get_into(&key(0), 0, &mut Vec::new()).expect("it goes on"));
    }
    // The pool has room again: without a word to the partition.
    drop(other);
    assert!(Partition::destroy(&pool, "q").expect("sound"));
    for _ in 0..50 {
        batch.clear();
        (made..made + 7).for_each(|number| _ = batch.put(&key(number), &[7; 100], None));
        partition.write(&batch).expect("room");
        partition.commit().expect("room");
        made += 7;
    }
    partition.check().expect("sound");
}

#[test]
fn a_batch_of_long_records_finds_the_room_that_is_counted_for_it() {
    let long = |number: u64| vec![number as u8; 400];
    let keys = |number: u64| [&key(number)[..], &[b'.'; 370]].concat();
    let options = Options::new().block_bytes(2048).capacity(128 << 10);
    for (count, closes) in [(6, true), (10, true), (20, true), (10, false)] {
        let pool = pool(4 << 20);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        let (mut records, mut written) = (0, 0);
        while partition.put(&keys(records), &long(records)[..250], None).is_ok() {
            partition.commit().expect("room");
            records += 1;
        }
        // At first none is written; then some are.
        for round in 0..3 {
            if round == 1 {
                let kept = records / 2;
                (kept..records).for_each(|number| {
                    assert!(partition.remove(&keys(number)).expect("needs no room"));
                    partition.commit().expect("room");
                });
                records = kept;
            }
            if closes {
                partition.close().expect("room");
            } else {
                drop(partition);
            }
            partition = Partition::open(&pool, "p", &options).expect("sound").0;
            let mut batch = Batch::new();
            for first in (0..records - count).step_by(count as usize) {
                batch.clear();
                for number in first..first + count {
                    batch.put(&keys(number), &long(first)[..250], None);
                }
                match partition.write(&batch) {
                    Ok(()) => written += 1,
                    Err(Error::Full { .. }) => {}
                    Err(error) => panic!("{count}, {first}: {error}"),
                }
                assert_eq!(partition.len(), records);
                partition.commit().expect("it goes on");
            }
            for number in 0..records {
                partition.put(&keys(number), &long(number)[..250], None).expect("as long");
                partition.commit().expect("room");
            }
            partition.check().expect("sound");
        }
        assert!(written > 0, "each batch of {count} was refused");
    }
}
