//! What a full log or a full pool does to a store: nothing that is refused takes room, and what waits for room is neither
//! lost nor in the way of what makes room.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_index::{Index, IndexError, Key, Value};

use crate::record::Record;
use crate::redo::Redo;
use crate::tests::store::Small;
use crate::{Store, StoreError, StoreOptions};

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
