//! Full partitions, damaged blocks, values of many megabytes, other threads.

use std::sync::Arc;

use pmindex_core::{Medium, PmError, Pool};
use pmindex_testkit::golden;

use crate::blocks::State;
use crate::layout::HEADER;
use crate::wrong::Wrong;
use crate::{Batch, BlockSize, Budget, Error, MAX_VALUE, Options, Partition};

fn pool(bytes: usize) -> Arc<Pool> {
    Arc::new(Pool::emulated(bytes).expect("memory"))
}

fn key(number: u64) -> Vec<u8> {
    format!("user:{number:019}").into_bytes()
}

/// Fills a partition until it refuses, then replaces records for long, in an order without pattern.
fn churn_when_full(options: &Options, writes: u64) -> (Partition, u64) {
    let pool = pool(64 << 20);
    let mut partition = Partition::create(&pool, "p", options).expect("room");
    let mut records = 0;
    loop {
        match partition.put(&key(records), &[7; 100], None) {
            Ok(()) => records += 1,
            Err(error) => {
                assert!(matches!(error, Error::Full { .. }), "{error}");
                break;
            }
        }
        partition.commit().expect("room");
    }
    let mut number = 1_u64;
    for turn in 0..writes {
        number = (number * 1_103_515_245 + 12_345) % (1 << 31);
        let value = [turn as u8; 100];
        match partition.put(&key(number % records), &value, None) {
            Ok(()) => partition.commit().expect("room"),
            Err(_) => return (partition, turn),
        }
    }
    (partition, writes)
}

#[test]
fn a_full_partition_goes_on_and_never_waits_for_a_block() {
    let options = Options::new().block_size(BlockSize::Kib16).capacity(8 << 20);
    let (mut partition, writes) = churn_when_full(&options, 100_000);
    let stats = partition.stats();
    assert_eq!(writes, 100_000, "{stats:?}");
    assert_eq!(stats.stalls, 0, "{stats:?}");
    assert!(stats.live_bytes > stats.capacity / 100 * 90, "{stats:?}");
    assert!(stats.blocks * (16 << 10) + stats.large_bytes <= stats.capacity, "{stats:?}");
    partition.check().expect("sound");
    // Removing makes room, and tombstones go when what they hide has gone.
    for number in 0..stats.records {
        assert!(partition.remove(&key(number)).expect("room"));
        partition.commit().expect("room");
    }
    assert!(partition.is_empty());
    for round in 0..stats.records {
        partition.put(b"one", &[round as u8; 100], None).expect("room");
        partition.commit().expect("room");
        while !partition.collect(crate::Budget::default()).expect("sound").done {}
    }
    let stats = partition.stats();
    assert!(stats.tombstones < stats.records + 100, "{stats:?}");
    partition.check().expect("sound");
}

/// Replaces records until this number of bytes is written; returns the most that their blocks took.
fn replaced(options: &Options, records: u64, bytes: u64) -> u64 {
    let pool = pool(128 << 20);
    let mut partition = Partition::create(&pool, "p", options).expect("room");
    let (mut number, mut written, mut most) = (1_u64, 0, 0);
    while written < bytes {
        number = (number * 1_103_515_245 + 12_345) % (1 << 31);
        partition.put(&key(number % records), &[7; 1000], None).expect("room");
        written += 1000;
        if number.is_multiple_of(16) {
            partition.commit().expect("room");
            most = most.max(partition.stats().blocks * BlockSize::default().bytes());
        }
    }
    partition.check().expect("sound");
    assert_eq!(partition.stats().stalls, 0);
    let (live, copied) = (partition.stats().live_bytes, partition.stats().copied_bytes);
    assert!(copied < written / 10, "{copied} bytes copied for {written}");
    assert!(most < 3 * live + (17 << 20), "{most} bytes for {live}");
    most
}

#[test]
fn few_records_take_little_of_a_large_capacity() {
    let options = Options::new().capacity(96 << 20);
    assert!(replaced(&options, 100, 80 << 20) > 10 << 20);
    assert!(replaced(&options, 10_000, 200 << 20) > 40 << 20);
}

#[test]
fn writes_that_do_not_pay_wait() {
    let options = Options::new().block_size(BlockSize::Kib16).capacity(8 << 20);
    let (partition, _) = churn_when_full(&options.go_wrong(Wrong::Unpaid), 20_000);
    assert!(partition.stats().stalls > 0, "{:?}", partition.stats());
}

#[test]
fn large_values_come_and_go() {
    let pool = pool(96 << 20);
    let options = Options::new().capacity(64 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    let value: Vec<u8> = (0..10_000_000_u32).map(|at| (at % 253) as u8).collect();
    for round in 0..20 {
        partition.put(&key(round % 3), &value[round as usize..], None).expect("room");
        partition.commit().expect("room");
    }
    let (full, mut out) = (partition.stats(), Vec::new());
    assert!(partition.get_into(&key(1), 0, &mut out).expect("sound"));
    assert_eq!(out, value[19..]);
    assert_eq!((full.large_values, full.records), (3, 3));
    assert!(
        (0..9).any(|number| partition.put(&key(number), &value, None).is_err_and(|e| e.is_full()))
    );
    let too_long = partition.put(b"k", &vec![0; MAX_VALUE + 1], None);
    assert!(matches!(too_long, Err(Error::ValueTooLong { .. })));
    let too_long = partition.put(&vec![0; partition.max_key() + 1], b"", None);
    assert!(matches!(too_long, Err(Error::KeyTooLong { .. })));
    partition.put(&vec![1; partition.max_key()], b"the longest key", None).expect("room");
    partition.clear().expect("room");
    partition.put(b"k", b"v", None).expect("room");
    partition.commit().expect("room");
    assert_eq!(partition.stats().large_values, 0);
    pool.audit(partition.all_blocks().expect("sound").into_iter()).expect("no leaks");
}

fn put_all(batch: &mut Batch, numbers: std::ops::Range<u64>) {
    for number in numbers {
        batch.put(&key(number), &[7; 100], None);
    }
}

/// Opens a partition again, as after a kill.
fn reopen(partition: Partition, options: &Options) -> Partition {
    let pool = Arc::clone(partition.pool());
    drop(partition);
    Partition::open(&pool, "p", options).expect("sound").0
}

#[test]
fn a_batch_of_any_number_of_keys_is_there_whole() {
    let options = Options::new().capacity(160 << 20);
    let mut partition = Partition::create(&pool(256 << 20), "p", &options).expect("room");
    let most = partition.log.max_payload();
    let mut batch = Batch::new();
    put_all(&mut batch, 0..60_000);
    partition.write(&batch).expect("room");
    assert!(partition.staged.len() > most, "it needs several records of the log");
    partition.commit().expect("room");
    partition = reopen(partition, &options);
    assert_eq!(partition.len(), 60_000);
    let (from, to) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    assert_eq!(partition.remove_range(from, to, 59_999).expect("room"), 59_999);
    assert!(partition.staged.len() > most);
    partition.commit().expect("room");
    partition = reopen(partition, &options);
    assert_eq!(partition.len(), 1);
    partition.check().expect("sound");
    // What one batch may have in the log is limited, and refused before anything has changed.
    put_all(&mut batch, 60_000..100_000);
    let refused = partition.write(&batch);
    assert!(matches!(refused, Err(Error::BatchTooLarge { .. })), "{refused:?}");
    assert_eq!((partition.len(), partition.staged.len()), (1, 0));
    // Batches of one turn do not pile up before the log.
    batch.clear();
    put_all(&mut batch, 0..40_000);
    for _ in 0..3 {
        partition.write(&batch).expect("room");
        assert!(partition.staged.len() as u64 <= (160 << 20) / 16 / 8);
    }
}

#[test]
fn what_is_admitted_can_be_written_and_what_is_not_admitted_is_refused() {
    let options = Options::new().block_size(BlockSize::Kib16).capacity(4 << 20);
    let mut partition = Partition::create(&pool(16 << 20), "p", &options).expect("room");
    let long = vec![0; MAX_VALUE + 1];
    let keys = vec![1; partition.max_key() + 1];
    let admit = |partition: &Partition, key: &[u8], value: Option<&[u8]>, bounds: (u64, u64)| {
        let taken = |key: &[u8]| partition.bytes_of(key);
        partition.admit(std::iter::once((key, value, None)), bounds, taken)
    };
    let refused = admit(&partition, b"k", Some(&long), (95, 0));
    assert!(matches!(refused, Err(Error::ValueTooLong { .. })), "{refused:?}");
    for value in [None, Some(&b"v"[..])] {
        let refused = admit(&partition, &keys, value, (95, 0));
        assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?}");
    }
    let mut refused = 0;
    for number in 0.. {
        let (key, value) = (key(number), Some(&[7; 500][..]));
        let careful = admit(&partition, &key, value, (90, 0));
        let ahead = admit(&partition, &key, value, (90, 1 << 20));
        let admitted = admit(&partition, &key, value, (95, 0));
        let done = partition.put(&key, &[7; 500], None);
        assert_eq!(admitted.as_ref().err(), done.as_ref().err());
        assert!(careful.is_err() || admitted.is_ok(), "less is admitted below a smaller share");
        assert!(ahead.is_err() || careful.is_ok(), "what is not made yet counts");
        refused += u64::from(careful.is_err());
        if done.is_err() {
            break;
        }
        partition.commit().expect("room");
    }
    assert!(refused > 200, "{refused}");
    // Removing, and replacing by as much, is admitted.
    for value in [None, Some(&[8; 500][..])] {
        assert!(admit(&partition, &key(3), value, (90, 1 << 20)).is_ok());
    }
    // With a greater capacity it goes on, and without it what is there stays.
    let raised = options.clone().raise_capacity(8 << 20);
    partition = reopen(partition, &raised);
    for number in 0..1000 {
        partition.put(&[&key(number)[..], b"more"].concat(), &[7; 500], None).expect("room");
    }
    partition.commit().expect("room");
    let records = partition.len();
    partition = reopen(partition, &options);
    assert_eq!(partition.len(), records);
    assert!(partition.put(b"new", &[7; 500], None).is_err_and(|error| error.is_full()));
    assert!(partition.remove(&key(1)).expect("room"));
    partition.commit().expect("room");
    partition.check().expect("sound");
}

/// Returns one of the names that a record has, all of the same length.
fn name(number: u64, round: u64) -> Vec<u8> {
    [&key(number)[..], &round.to_le_bytes()].concat()
}

#[test]
fn what_a_batch_frees_makes_room_for_what_it_takes() {
    let sizes = [BlockSize::Kib16, BlockSize::Kib64];
    for (length, size) in [0, 100, 1500].into_iter().flat_map(|len| sizes.map(|size| (len, size))) {
        let options = Options::new().block_size(size).capacity(4 << 20);
        let mut partition = Partition::create(&pool(32 << 20), "p", &options).expect("room");
        let value = vec![8; length];
        let mut records = 0;
        while partition.put(&name(records, 0), &value, None).is_ok() {
            partition.commit().expect("room");
            records += 1;
        }
        // Names change for long: what replaces a tombstone of the same size leaves the least to collection.
        let rounds = (60_000 / records).max(1);
        let mut batch = Batch::new();
        for (round, number) in (0..rounds).flat_map(|r| (0..records).map(move |n| (r, n))) {
            batch.clear();
            batch.put(&name(number, round + 1), &value, None).remove(&name(number, round));
            let done = partition.write(&batch);
            assert!(done.is_ok(), "{length}, {round}, {number} of {records}: {done:?}");
            partition.commit().expect("room");
        }
        let stats = partition.stats();
        assert_eq!(stats.records, records);
        // Of only 64 blocks, the slack is hardly more than the reserve.
        let most = if size == BlockSize::Kib64 { rounds * records / 1000 } else { 0 };
        assert!(stats.stalls <= most, "{stats:?}");
        partition.check().expect("sound");
        // What takes more than it frees is refused, and nothing has changed.
        let first = name(0, rounds);
        for more in 0.. {
            match partition.put(&name(more, u64::MAX), &[8; 2000], None) {
                Ok(()) => partition.commit().expect("room"),
                Err(_) => break,
            }
        }
        batch.clear();
        batch.remove(&first).put(b"one", &value, None).put(b"two", &[8; 2000], None);
        let done = partition.write(&batch);
        assert!(done.as_ref().is_err_and(Error::is_full), "{done:?}");
        assert!(partition.bytes_of(&first).expect("sound") > 0);
        let done = partition.put(&name(0, u64::MAX - 1), &[8; 2000], None);
        assert!(done.as_ref().is_err_and(Error::is_full), "{done:?}");
        assert!(!partition.may_grow(2100));
        // What is not weighed is refused only if there is no block for it.
        partition.put_unweighed(b"one", &[8; 2000], None).expect("a block");
        assert!(partition.remove(&first).expect("room"));
        partition.commit().expect("room");
        partition.check().expect("sound");
    }
}

#[test]
fn the_bytes_of_a_record_are_those_that_were_foretold() {
    let mut partition =
        Partition::create(&pool(32 << 20), "p", &Options::new().capacity(16 << 20)).expect("room");
    for (key, length) in [(1, 0), (8, 1), (9, 2047), (30, 2048), (7, 2049), (1, 3_000_000)] {
        for expiry in [None, Some(9)] {
            let (key, value) = (vec![1; key], vec![7; length]);
            let before = partition.live_bytes();
            let foretold = partition.bytes_for(key.len(), length, expiry.is_some());
            partition.put(&key, &value, expiry).expect("room");
            assert_eq!(partition.live_bytes() - before, foretold, "{length}");
            assert_eq!(partition.bytes_of(&key).expect("sound"), foretold, "{length}");
            assert!(partition.remove(&key).expect("room"));
            assert_eq!(partition.bytes_of(&key).expect("sound"), 0);
            partition.clear().expect("room");
        }
    }
}

#[test]
fn a_raised_capacity_is_used_or_refused_without_harm() {
    let small = |number: u64| Vec::from(format!("{number:012}"));
    for length in [8, 2100, 40_000] {
        let pool = pool(200 << 20);
        let options = Options::new().capacity(4 << 20);
        let partition = Partition::create(&pool, "p", &options).expect("room");
        let mut partition = reopen(partition, &options.clone().raise_capacity(32 << 20));
        let (mut number, mut refused) = (0, 0);
        while refused < 20 {
            match partition.put(&small(number), &vec![7; length], None) {
                Ok(()) => number += 1,
                Err(error) => {
                    assert!(error.is_full(), "{length} bytes, {number} records: {error}");
                    refused += 1;
                    // What is removed gives room to others, and what is there stays.
                    assert!(partition.remove(&small(refused)).expect("removed"));
                }
            }
            partition.commit().expect("room");
        }
        let bytes = number * length as u64;
        assert!(bytes > 3 << 20 || length == 8 && number > 80_000, "{number} of {length}");
        assert_eq!(partition.len(), number - refused);
        partition.check().expect("sound");
    }
}

#[test]
fn a_damaged_record_is_said_and_the_others_are_there() {
    let pool = pool(8 << 20);
    let options = Options::new().capacity(4 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    (0..3000).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
    partition.commit().expect("room");
    let at = partition.index.get(&partition.blocks, &key(9)).expect("sound").expect("there");
    let cells = partition.blocks.record(at).expect("sound").1;
    pool.pm().store(&cells[7], 1); // in the value
    let found = partition.get_into(&key(9), 0, &mut Vec::new());
    assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
    assert!(partition.get_into(&key(10), 0, &mut Vec::new()).expect("sound"));
    assert!(matches!(partition.check(), Err(Error::Damaged { .. })));
    partition.close().expect("room");
    let refused = Partition::open(&pool, "p", &options).map(drop);
    assert!(matches!(refused, Err(Error::Pool(_))), "{refused:?}");
    let (mut partition, recovery) =
        Partition::open(&pool, "p", &options.salvage(true)).expect("salvaged");
    assert_eq!((recovery.damaged, recovery.records), (1, 2999));
    partition.put(&key(9), b"again", None).expect("room");
    partition.commit().expect("room");
    assert!(matches!(
        Partition::<pmindex_core::Mapped>::open(&pool, "q", &Options::new()).map(drop),
        Err(Error::Missing { .. })
    ));
}

#[test]
fn what_is_written_after_a_salvage_is_not_behind_the_damage() {
    let pool = pool(8 << 20);
    let options = Options::new().capacity(4 << 20).salvage(true);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    let put = |partition: &mut Partition, number| {
        partition.put(&key(number), &[7; 100], None).expect("room");
        partition.commit().expect("room");
    };
    (0..2).for_each(|number| put(&mut partition, number));
    let at = partition.index.get(&partition.blocks, &key(1)).expect("sound").expect("there");
    let lengths = &partition.blocks.cells(at.place()).expect("sound")[at.word() as usize + 2];
    let offset = partition.blocks.at(at.place()).offset;
    pool.pm().store(lengths, u64::MAX);
    partition.close().expect("room");
    let open = || {
        let (partition, recovery) = Partition::open(&pool, "p", &options).expect("salvaged");
        assert_eq!(recovery.damaged, 1);
        let damaged = partition.blocks.list.iter().find(|block| block.offset == offset);
        assert_eq!(damaged.expect("there").state, State::Damaged);
        (partition, recovery)
    };
    let mut partition = open().0;
    put(&mut partition, 2);
    drop(partition); // the log has it
    let (mut partition, recovery) = open();
    assert_eq!((recovery.replayed, recovery.records), (1, 2));
    put(&mut partition, 3);
    partition.close().expect("room"); // the blocks have both
    let (partition, recovery) = open();
    assert_eq!((recovery.replayed, recovery.records), (0, 3));
    for number in [0, 2, 3] {
        let found = partition.get_into(&key(number), 0, &mut Vec::new());
        assert!(found.expect("sound"), "{number}");
    }
}

#[test]
fn a_damaged_block_is_not_collected_after_a_salvage() {
    let pool = pool(8 << 20);
    let options = Options::new().block_bytes(1024).capacity(4 << 20).salvage(true);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    (0..50).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
    partition.commit().expect("room");
    let at = |number| partition.index.get(&partition.blocks, &key(number)).expect("sound");
    let place = at(0).expect("there").place();
    let in_first: Vec<_> =
        (0..50).filter_map(at).filter(|location| location.place() == place).collect();
    // Most of a full block is lost, and what is left is live.
    for &lost in in_first.iter().skip(1) {
        pool.pm().store(&partition.blocks.record(lost).expect("sound").1[7], 1); // in the value
    }
    let lost = in_first.len() as u64 - 1;
    partition.close().expect("room");
    let (mut partition, recovery) = Partition::open(&pool, "p", &options).expect("salvaged");
    assert_eq!((recovery.damaged, recovery.records), (lost, 50 - lost));
    while !partition.collect(Budget::bytes(u64::MAX)).expect("room").done {
        partition.commit().expect("room");
    }
    (0..5).for_each(|_| partition.commit().expect("room"));
    assert_eq!(partition.blocks.at(place).state, State::Damaged);
    assert!(partition.get_into(&key(0), 0, &mut Vec::new()).expect("sound"));
}

#[test]
fn a_large_value_with_a_damaged_length_is_found_at_the_opening() {
    for (piece, bytes) in [(0, u64::MAX), (0, u64::MAX - 70), (1, u64::MAX), (1, (1 << 20) + 1)] {
        let pool = pool(16 << 20);
        let options = Options::new().capacity(8 << 20);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        partition.put(b"small", b"value", None).expect("room");
        partition.put(b"large", &vec![7; 3 << 20], None).expect("room");
        partition.commit().expect("room");
        let large = partition.large.values().next().expect("one");
        let offset = large.pieces[piece] + if piece == 0 { 8 * HEADER as u64 } else { 0 };
        partition.close().expect("room");
        pool.pm().store(&pool.words(offset, 2).expect("there")[1], bytes);
        let refused = Partition::open(&pool, "p", &options).map(drop);
        assert!(matches!(refused, Err(Error::Pool(PmError::Corrupt { .. }))), "{refused:?}");
        let (partition, recovery) =
            Partition::open(&pool, "p", &options.salvage(true)).expect("salvaged");
        assert_eq!(recovery.damaged, 1);
        assert!(partition.get_into(b"small", 0, &mut Vec::new()).expect("sound"));
        let found = partition.get_into(b"large", 0, &mut Vec::new());
        assert!(!matches!(found, Ok(true)), "{found:?}");
    }
}

#[test]
fn a_partition_may_change_its_thread() {
    let pool = pool(4 << 20);
    let options = Options::new().block_bytes(512).capacity(1 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    for round in 0..20 {
        for number in 0..40 {
            partition.put(&key(number), &[round; 20], None).expect("room");
        }
        let commit = move || {
            partition.commit().expect("room");
            partition
        };
        partition = std::thread::spawn(commit).join().expect("no panic");
    }
    partition.check().expect("sound");
}

/// Returns the lines that a commit flushes for 100 writes, made by another thread than the commits or by the
/// same.
fn lines_of_a_commit(by_another: bool) -> f64 {
    let pool = Arc::new(Pool::counting(16 << 20).expect("memory"));
    let options = Options::new().capacity(8 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    partition.put(b"k", b"v", None).expect("room");
    partition.commit().expect("room");
    let put_all = |partition: &mut Partition| {
        (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
    };
    if by_another {
        std::thread::scope(|scope| scope.spawn(|| put_all(&mut partition)).join())
            .expect("no panic");
    } else {
        put_all(&mut partition);
    }
    golden::measure(pool.pm(), "commit", 1, || partition.commit().expect("room")).lines()
}

#[test]
fn a_commit_flushes_again_what_another_thread_has_flushed() {
    let (own, anothers) = (lines_of_a_commit(false), lines_of_a_commit(true));
    // Each record has at least 2 lines.
    assert!(anothers >= own + 200.0, "{own} {anothers}");
}

#[test]
fn a_partition_is_destroyed_whole() {
    let pool = pool(8 << 20);
    let options = Options::new().capacity(4 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    (0..500).for_each(|number| partition.put(&key(number), &[7; 3000], None).expect("room"));
    partition.close().expect("room");
    assert!(Partition::destroy(&pool, "p").expect("sound"));
    pool.audit(std::iter::empty()).expect("nothing is left");
}

#[test]
fn a_commit_without_room_for_the_log_is_made_when_there_is_some() {
    commit_without_room(false);
    commit_without_room(true);
}

/// Writes into a full pool. Then there is room, or the process is killed and there is room.
fn commit_without_room(killed: bool) {
    let pool = pool(4 << 20);
    let options = Options::new().block_size(BlockSize::Kib16).capacity(1 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    partition.put(&key(0), &[7; 100], None).expect("room");
    partition.commit().expect("room");
    let mut other = Partition::create(&pool, "q", &Options::new().capacity(8 << 20)).expect("room");
    for length in [500_000, 20_000, 2_100] {
        while other.put_unweighed(&key(other.len()), &vec![1; length], None).is_ok() {}
    }
    // The present segment of the log, and the open block, have room for some.
    let (mut written, mut refused) = (0, None);
    while refused.is_none() {
        refused = match partition.put(&key(written % 500), &[7; 100], None) {
            Ok(()) => partition.commit().err(),
            Err(error) => Some(error),
        };
        written += 1;
        assert!(written < 100_000, "the pool is full");
    }
    assert!(refused.as_ref().is_some_and(Error::is_full), "{refused:?}");
    for _ in 0..3 {
        partition.staged.is_empty().then(|| partition.put(&key(0), &[8; 100], None));
        let refused = partition.commit();
        assert!(refused.as_ref().is_err_and(Error::is_full), "{refused:?}");
        assert!(partition.get_into(&key(0), 0, &mut Vec::new()).expect("it goes on"));
    }
    if killed {
        // It takes back only what was not acknowledged.
        partition = reopen(partition, &options);
        written -= 1;
        let mut value = Vec::new();
        assert!(partition.get_into(&key(0), 0, &mut value).expect("sound"));
        assert_eq!((value, partition.len()), (vec![7; 100], written.min(500)));
    }
    drop(other);
    assert!(Partition::destroy(&pool, "q").expect("sound"));
    partition.put(&key(0), &[9; 100], None).expect("room");
    partition.commit().expect("room");
    partition = reopen(partition, &options);
    assert_eq!(partition.len(), written.min(500));
    partition.check().expect("sound");
    pool.audit(partition.all_blocks().expect("sound").into_iter()).expect("no leaks");
}
