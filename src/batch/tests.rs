//! Crashes batches in the simulator, in the right order of steps and in wrong ones; tests limits.

use std::ops::Bound;
use std::sync::Arc;

use pmindex_core::{PmError, Pool, PoolOptions};
use pmindex_index::{Index, IndexError};
use pmindex_testkit::crash::{Config, explore};
use pmindex_trees::FpTree;

use super::changes::{from_record, to_record};
use super::{BATCH_LOG, Batched, WriteBatch};

/// The subject of `cargo xtask crash --index batched`.
#[path = "../../tests/crash/batched.rs"]
mod batched;

use batched::{Batch, Batches, INDEX, Variant};

/// Orders of the steps, right and wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Faulty {
    /// The right order.
    #[default]
    Not,
    /// The changes are made before the record is in the log.
    ChangesFirst,
    /// The record is removed before the changes are made.
    RetiredFirst,
    /// The keys are unlocked before the record is removed.
    UnlockedFirst,
}

const ORDERS: [Faulty; 4] =
    [Faulty::Not, Faulty::ChangesFirst, Faulty::RetiredFirst, Faulty::UnlockedFirst];

/// One of the [`ORDERS`].
struct Order<const ORDER: usize>;

impl<const ORDER: usize> Variant for Order<ORDER> {
    fn vary(batched: &mut Batches) {
        batched.faulty = ORDERS[ORDER];
    }
}

/// Explores one thread and two; returns the first failure.
fn crash<const ORDER: usize>(seed: u64, states: u64) -> Result<u64, String> {
    let mut all = 0;
    for threads in [1, 2] {
        let config = Config::new().seed(seed).states(states).threads(threads);
        match explore::<Batch<Order<ORDER>>>(&config) {
            Ok(report) => all += report.states,
            Err(failure) => return Err(failure.to_string()),
        }
    }
    Ok(all)
}

#[test]
fn a_batch_happens_wholly_or_not_at_all() {
    let states = crash::<0>(3, 10_000).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(states >= 15_000, "{states}");
}

#[test]
fn wrong_orders_of_the_steps_are_caught() {
    // The last one needs a second thread that writes a key between two steps: few schedules have it.
    type Crash = fn(u64, u64) -> Result<u64, String>;
    for (crash, what) in [
        (crash::<1> as Crash, "changes before the record"),
        (crash::<2>, "the record gone before the changes"),
        (crash::<3>, "keys unlocked before the record is gone"),
    ] {
        assert!((1..=8).any(|seed| crash(seed, 100_000).is_err()), "{what}: not noticed");
    }
}

#[test]
fn the_last_change_of_a_key_counts() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let index = FpTree::<u64, String>::create(&pool, INDEX).unwrap();
    let index = Batched::new(&pool, INDEX, index).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&1, "a").remove(&1).put(&2, "b").put(&1, "c").put(&2, "d").remove(&2);
    index.write(&batch).unwrap();
    assert_eq!((index.get(&1), index.get(&2)), (Ok(Some("c".into())), Ok(None)));
    assert_eq!(index.log.records(), Ok(vec![]), "nothing stays in the log");
    index.write(&WriteBatch::new()).unwrap();
    let made = index.update_with(&1, |old| old.map(|old| format!("{old}{old}"))).unwrap();
    assert_eq!((made, index.get(&1)), (Some("cc".into()), Ok(Some("cc".into()))));
    assert_eq!(index.update_with(&1, |_| None), Ok(None));
    assert_eq!(index.get_or_insert_with(&1, || "new".into()), Ok("new".into()));
    assert_eq!(index.get_or_insert_with(&1, || "newer".into()), Ok("new".into()));
}

#[test]
fn records_of_the_log_come_back() {
    let changes: Vec<(String, Option<(u8, i64)>)> =
        vec![(String::new(), None), ("a".into(), Some((7, -1))), ("b".repeat(300), Some((0, 0)))];
    let record = to_record(&changes).unwrap();
    assert_eq!(from_record(&record), Ok(changes));
    for cut in (0..record.len()).filter(|cut| ![8, 33].contains(cut)) {
        let part = from_record::<String, (u8, i64)>(&record[..cut]);
        assert!(part.is_err(), "{cut}: {part:?}");
    }
}

#[test]
fn what_cannot_be_taken_changes_nothing() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let index = FpTree::<Vec<u8>, Vec<u8>>::create(&pool, INDEX).unwrap();
    let index = Batched::new(&pool, INDEX, index).unwrap();
    let refused = |key: &[u8], value: &[u8]| {
        let mut batch = WriteBatch::new();
        batch.put(b"a".as_slice(), b"b".as_slice()).put(key, value);
        let refused = index.write(&batch).unwrap_err();
        assert_eq!(index.len(), Ok(0), "{refused}");
        assert_eq!(index.log.records(), Ok(vec![]), "{refused}");
        refused
    };
    assert!(matches!(refused(&[0; 5000], b""), IndexError::KeyTooLong { len: 5000, .. }));
    let too_long = refused(b"k", &vec![0; (4 << 20) - 10]);
    assert!(matches!(too_long, IndexError::ValueTooLong { .. }), "{too_long}");
    let full = refused(b"k", &vec![0; 700 << 10]);
    assert!(matches!(full, IndexError::Pool(PmError::Full { .. } | PmError::TooLarge { .. })));
}

/// A batch whose record fits and whose changes do not is finished when space is freed.
#[test]
fn an_unfinished_batch_is_finished_when_there_is_room() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let open = |index| Batched::new(&pool, INDEX, index).unwrap();
    let mut index = open(FpTree::<u64, Vec<u8>>::create(&pool, INDEX).unwrap());
    let value = vec![7; 20_000];
    let mut filled = 0;
    while index.try_insert(&filled, &value).is_ok() {
        filled += 1;
    }
    // Removing one record makes room for the log's record, not for the values.
    index.remove(&0).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(&1000, &[1; 9_000][..]).put(&1001, &[2; 9_000][..]);
    let full = index.write(&batch).unwrap_err();
    assert!(matches!(full, IndexError::Pool(PmError::Full { .. })), "{full}");
    assert_eq!(index.log.records().unwrap().len(), 1, "it is durable");
    for reopened in [false, true] {
        if reopened {
            drop(index);
            index = open(FpTree::open(&pool, INDEX).unwrap());
        }
        assert!(index.try_insert(&2000, &[]).is_err(), "nothing comes before it");
        assert!(index.remove(&1000).is_err(), "least of all for its keys");
        assert!(index.write(&batch).is_err());
    }
    assert!(index.remove(&2).unwrap().is_some(), "but room can be made");
    assert_eq!(index.try_insert(&2000, &[]), Ok(Ok(())));
    assert_eq!(index.get(&1000), Ok(Some(vec![1; 9_000])));
    assert_eq!(index.get(&1001), Ok(Some(vec![2; 9_000])));
    assert_eq!(index.log.records().unwrap().len(), 0);
    assert_eq!(index.check(), Ok(filled - 2 + 3));
}

/// A damaged file may contain a number that no log reaches: later batches are still logged.
#[test]
fn a_batch_is_logged_under_a_number_of_its_own_whatever_the_file_says() {
    let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
    let index = FpTree::<u64, u64>::create(&pool, INDEX).unwrap();
    drop(Batched::new(&pool, INDEX, index).unwrap());
    let none = to_record::<u64, u64>(&[]).unwrap();
    let name = format!("{INDEX}{BATCH_LOG}");
    let log = crate::any::AnyIndex::<u64, Vec<u8>>::open(&pool, &name).unwrap();
    assert_eq!(log.try_insert(&0, &none), Ok(Ok(())));
    assert_eq!(log.try_insert(&u64::MAX, &none), Ok(Ok(())));
    drop(log);
    let log = super::log::Log::open(&pool, INDEX).unwrap();
    assert_eq!(log.put(&none), Ok(1));
    assert_eq!(log.records().map(|records| records.len()), Ok(3));
}

/// In a pool that is open for reading only, an interrupted batch is visible as a whole, and nothing is
/// written.
#[test]
fn a_pool_that_is_read_only_shows_batches_and_takes_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("batches.pool");
    let options = PoolOptions::new().size(1 << 20).write_back(false);
    let pool = Arc::new(Pool::create(&path, &options).unwrap());
    let index = FpTree::<u64, u64>::create(&pool, INDEX).unwrap();
    let index = Batched::new(&pool, INDEX, index).unwrap();
    index.write(WriteBatch::new().put(&1, &10).put(&2, &20)).unwrap();
    // Durable in the log, but interrupted before its changes were made.
    index.log.put(&to_record::<u64, u64>(&[(2, None), (3, Some(30))]).unwrap()).unwrap();
    drop(index);
    Arc::into_inner(pool).unwrap().kill();
    let file = std::fs::read(&path).unwrap();

    let pool = Arc::new(Pool::open(&path, &options.read_only(true)).unwrap());
    let index = FpTree::<u64, u64>::open(&pool, INDEX).unwrap();
    let index = Batched::new(&pool, INDEX, index).unwrap();
    let records: Result<Vec<_>, _> =
        index.range_bounds(Bound::Unbounded, Bound::Unbounded).collect();
    assert_eq!(records, Ok(vec![(1, 10), (3, 30)]));
    let refused = Err(IndexError::Pool(PmError::ReadOnly));
    assert_eq!(index.try_insert(&4, &40), refused);
    assert_eq!(index.write(WriteBatch::new().put(&4, &40)), refused.clone().map(drop));
    assert_eq!(index.compare_exchange(&1, Some(&10), None).map(drop), refused.map(drop));
    assert_eq!(index.get(&4), Ok(None));
    drop((index, pool));
    assert!(std::fs::read(&path).unwrap() == file, "the file was written");
}

#[test]
fn what_is_left_of_an_index_that_is_gone_can_be_removed() {
    type Numbers = Batched<u64, u64, crate::AnyIndex<u64, u64>>;
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    crate::AnyIndex::<u64, u64>::create(&pool, INDEX, crate::Kind::ALL[0]).unwrap();
    let mut used = Vec::new();
    for _ in 0..3 {
        assert_eq!(Numbers::has_log(&pool, INDEX), Ok(false));
        let index = crate::AnyIndex::open(&pool, INDEX).unwrap();
        let index = Numbers::new(&pool, INDEX, index).unwrap();
        index.log.put(&to_record::<u64, u64>(&[(1, Some(10))]).unwrap()).unwrap();
        assert!(Numbers::destroy_log(&pool, INDEX).is_err(), "the log is open");
        index.into_inner().unwrap().close().unwrap();
        assert_eq!(Numbers::has_log(&pool, INDEX), Ok(true));
        assert_eq!(Numbers::interrupted(&pool, INDEX), Ok(1));
        assert_eq!(Numbers::destroy_log(&pool, INDEX), Ok(true));
        assert_eq!(Numbers::destroy_log(&pool, INDEX), Ok(false));
        used.push(pool.used_bytes());
    }
    assert_eq!(used[1], used[2], "its space is used again");
}

/// What a program keeps under the name of a log is never removed and never written to.
#[test]
fn an_index_of_the_name_of_a_log_is_no_log() {
    type Numbers = Batched<u64, u64, crate::AnyIndex<u64, u64>>;
    type Own = crate::AnyIndex<u64, Vec<u8>>;
    let (kind, log) = (crate::Kind::ALL[0], format!("{INDEX}{BATCH_LOG}"));
    let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
    crate::AnyIndex::<u64, u64>::create(&pool, INDEX, kind).unwrap();
    let reserved = |name: &str| IndexError::ReservedName { name: name.into(), ending: BATCH_LOG };
    let wrap =
        || Numbers::new(&pool, INDEX, crate::AnyIndex::open(&pool, INDEX).unwrap()).map(drop);

    // Of other types.
    let own = crate::AnyIndex::<String, u64>::create(&pool, &log, kind).unwrap();
    own.put("a", &1).unwrap();
    drop(own);
    assert_eq!(Numbers::has_log(&pool, INDEX), Ok(false));
    assert_eq!(Numbers::interrupted(&pool, INDEX), Ok(0));
    assert_eq!(Numbers::destroy_log(&pool, INDEX), Ok(false));
    assert_eq!(wrap(), Err(reserved(&log)));
    assert_eq!(crate::AnyIndex::<String, u64>::open(&pool, &log).unwrap().get("a"), Ok(Some(1)));
    assert_eq!(crate::AnyIndex::<String, u64>::destroy(&pool, &log), Ok(true));

    // Of the types of a log, with records of its own: text, and none.
    for own in [b"some text".as_slice(), b"\x01\0\0\0\x01\0\0\0", b""] {
        let index = Own::create(&pool, &log, kind).unwrap();
        index.put(&3, own).unwrap();
        drop(index);
        assert_eq!(Numbers::destroy_log(&pool, INDEX), Err(reserved(&log)), "{own:?}");
        assert!(matches!(wrap(), Err(IndexError::Pool(PmError::Corrupt { .. }))), "{own:?}");
        assert_eq!(Own::open(&pool, &log).unwrap().get(&3), Ok(Some(own.to_vec())), "{own:?}");
        assert_eq!(Own::destroy(&pool, &log), Ok(true));
    }

    // No log has a log.
    let index = crate::AnyIndex::<u64, u64>::create(&pool, &log, kind).unwrap();
    assert_eq!(Numbers::new(&pool, &log, index).map(drop), Err(reserved(&log)));
    assert_eq!(Numbers::has_log(&pool, &log), Err(reserved(&log)));
    assert_eq!(Numbers::interrupted(&pool, &log), Err(reserved(&log)));
    assert_eq!(Numbers::destroy_log(&pool, &log), Err(reserved(&log)));
    let there: Vec<String> = pool.indexes().unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(there, [INDEX, &log]);
}
