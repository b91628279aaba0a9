//! Recovery of records that a crash in the middle of a [move](crate::sparse) left there twice.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::IndexError;
use pmindex_record::Probe;

use crate::layout::SlotRef;
use crate::record::KeyBytes;
use crate::recover::FEW;
use crate::tree::Hart;

type Text = Hart<Vec<u8>, Vec<u8>, Mapped, 4, 1>;

/// Records with a key and a value out of line.
fn record(n: usize) -> (Vec<u8>, Vec<u8>) {
    (format!("{n:040}").into_bytes(), vec![n as u8; 30])
}

/// An index of these records, and their slots.
fn filled(records: usize) -> (Arc<Pool>, Text, Vec<SlotRef>) {
    let pool = Arc::new(Pool::emulated(8 << 20).expect("memory"));
    let hart = Text::create(&pool, "h").expect("room");
    let insert = |n| {
        let (key, value) = record(n);
        assert!(hart.try_insert(&key, &value).expect("room").is_ok());
        let probe = Probe::of_stored(&key);
        let found = hart.find(&probe, &KeyBytes::of(&probe)).expect("sound");
        SlotRef::from_number(found.expect("there").leaf)
    };
    let slots = (0..records).map(insert).collect();
    (pool, hart, slots)
}

/// Copies the words of a record over another one's, as many as `words`.
fn copy(pool: &Pool, from: SlotRef, to: SlotRef, words: std::ops::Range<usize>) {
    let cells = |slot: SlotRef| pool.words(slot.offset(), 5).expect("a record");
    let (from, to, pm) = (cells(from), cells(to), pool.pm());
    words.for_each(|word| pm.store_word(&to[word], pm.load_word(&from[word])));
}

/// Threads that read twins at once mark their objects in any order: one the key, the other the value.
#[test]
fn twins_are_told_whatever_order_threads_mark_their_objects_in() {
    const RECORDS: usize = 16 * FEW;
    for round in 0..60 {
        let (pool, hart, slots) = filled(RECORDS);
        drop(hart); // as if the process had died
        // Two threads read the first quarters, side by side.
        let (left, right) = slots[..RECORDS / 2].split_at(RECORDS / 4);
        left.iter().zip(right).for_each(|(&from, &to)| copy(&pool, from, to, 0..5));
        let hart = Text::open(&pool, "h").unwrap_or_else(|error| panic!("{round}: {error}"));
        assert_eq!(hart.check().expect("whole"), (RECORDS - RECORDS / 4) as u64);
        drop(hart);
        let hart = Text::open(&pool, "h").expect("the twins are gone");
        for n in (0..RECORDS / 4).chain(RECORDS / 2..RECORDS) {
            assert_eq!(hart.get(&record(n).0).expect("sound"), Some(record(n).1));
        }
    }
}

/// Twins explain their own sharing, not another record's.
#[test]
fn an_object_of_a_third_record_is_damage_beside_twins_too() {
    // Which words of a record the third one has too: those of the key, the value, neither.
    for shared in [1..2, 4..5, 0..0] {
        let (pool, hart, slots) = filled(40);
        drop(hart);
        copy(&pool, slots[0], slots[20], 0..5);
        copy(&pool, slots[1], slots[21], 0..5);
        copy(&pool, slots[2], slots[30], shared.clone());
        match Text::open(&pool, "h") {
            Ok(hart) => assert!(shared.is_empty() && hart.check() == Ok(38), "{shared:?}"),
            Err(IndexError::Pool(PmError::Corrupt { .. })) => assert!(!shared.is_empty()),
            Err(error) => panic!("{shared:?}: {error}"),
        }
    }
}
