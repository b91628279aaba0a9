//! What a salvage leaves: damaged blocks, and the records in them.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pmindex_core::{Medium, PmError, Pool};

use crate::blocks::{Location, State};
use crate::layout::{HEADER, LENGTH};
use crate::{Batch, Budget, Error, Options, Partition};

fn pool(bytes: usize) -> Arc<Pool> {
    Arc::new(Pool::emulated(bytes).expect("memory"))
}

fn key(number: u64) -> Vec<u8> {
    format!("user:{number:019}").into_bytes()
}

/// Returns a partition after a salvage: in the first of several blocks every third record is damaged, or one length,
/// and half of the others were replaced before.
fn salvaged(pool: &Arc<Pool>, length: bool) -> (Partition, Vec<u64>) {
    let options = Options::new().block_bytes(4096).capacity(4 << 20).salvage(true);
    let mut partition = Partition::create(pool, "p", &options).expect("room");
    (0..100).for_each(|number| partition.put(&key(number), &[7; 100], Some(1000)).expect("room"));
    partition.commit().expect("room");
    let at = |partition: &Partition, number| {
        partition.index.get(&partition.blocks, &key(number)).expect("sound").expect("there")
    };
    let place = at(&partition, 0).place();
    let is_there = |number: &u64| at(&partition, *number).place() == place;
    let in_first: Vec<u64> = (0..100).filter(is_there).collect();
    let mut lost = Vec::new();
    for (nth, &number) in in_first.iter().enumerate() {
        let is_last = nth + 2 >= in_first.len();
        if if length { is_last } else { nth % 3 == 2 } {
            let cells = partition.blocks.record(at(&partition, number)).expect("sound").1;
            let (word, value) = if length { (2, u64::MAX) } else { (7, 1) };
            pool.pm().store(&cells[word], value);
            lost.push(number);
        } else if nth % 2 == 1 {
            partition.put(&key(number), &[8; 100], Some(2000)).expect("room");
        }
    }
    partition.close().expect("room");
    let (partition, recovery) = Partition::open(pool, "p", &options).expect("salvaged");
    assert_eq!(recovery.records, 100 - lost.len() as u64);
    let place = at(&partition, in_first[0]).place();
    assert_eq!(partition.blocks.at(place).state, State::Damaged);
    (partition, lost)
}

/// Verifies that the words of damaged blocks are live or wasted.
#[track_caller]
fn is_wasted_if_not_live(partition: &Partition) {
    let (mut damaged, mut others) = (0, 0);
    for block in &partition.blocks.list {
        let words = u64::from(partition.blocks.words);
        match block.state {
            State::Damaged => damaged += words - u64::from(block.live),
            State::Full | State::Victim | State::Emptied | State::Void => {
                others += words - u64::from(block.used) + HEADER as u64;
            }
            _ => {}
        }
    }
    assert_eq!(partition.blocks.wasted, damaged + others);
}

#[test]
fn what_dies_in_a_damaged_block_is_no_room() {
    for length in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, lost) = salvaged(&pool, length);
        is_wasted_if_not_live(&partition);
        for number in (0..100).filter(|number| !lost.contains(number)) {
            match number % 3 {
                0 => partition.put(&key(number), &[9; 100], None).expect("room"),
                1 => assert!(partition.remove(&key(number)).expect("room")),
                _ => {}
            }
        }
        partition.commit().expect("room");
        is_wasted_if_not_live(&partition);
        partition.clear().expect("cleared");
        is_wasted_if_not_live(&partition);
    }
}

#[test]
fn a_salvaged_partition_is_checked() {
    for length in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, lost) = salvaged(&pool, length);
        partition.check().expect("sound");
        for number in (0..50).filter(|number| !lost.contains(number)) {
            assert!(partition.remove(&key(number)).expect("room"));
        }
        partition.commit().expect("room");
        partition.check().expect("sound");
    }
}

#[test]
fn a_salvaged_partition_is_cleared() {
    for length in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, _) = salvaged(&pool, length);
        partition.clear().expect("cleared");
        assert_eq!(partition.stats().live_bytes, 0);
        assert!(all(&mut partition).is_empty());
        assert!(partition.expired(5000).expect("sound").is_empty());
        partition.check().expect("sound");
    }
}

/// Returns the keys of a backup.
fn all(partition: &mut Partition) -> Vec<Vec<u8>> {
    let (mut backup, mut keys) = (partition.backup().expect("room"), Vec::new());
    while partition.back_up(&mut backup, &mut |key, _, _| keys.push(key.to_vec())).expect("sound") {
    }
    keys.sort_unstable();
    keys
}

#[test]
fn a_backup_after_a_salvage_has_all_that_is_left() {
    for length in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, lost) = salvaged(&pool, length);
        let left = (0..100).filter(|number| !lost.contains(number));
        assert!(all(&mut partition).into_iter().eq(left.map(key)));
    }
}

#[test]
fn a_backup_says_a_damaged_record_and_goes_on_behind_it() {
    for word in [2, 7] {
        let pool = pool(8 << 20);
        let options = Options::new().block_bytes(4096).capacity(4 << 20);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
        partition.commit().expect("room");
        let at = partition.index.get(&partition.blocks, &key(3)).expect("sound").expect("there");
        pool.pm().store(&partition.blocks.record(at).expect("sound").1[word], u64::MAX);
        let (mut keys, mut errors) = (Vec::new(), 0);
        let mut backup = partition.backup().expect("room");
        loop {
            match partition.back_up(&mut backup, &mut |key, _, _| keys.push(key.to_vec())) {
                Ok(false) => break,
                Ok(true) => {}
                Err(Error::Damaged { .. }) if errors == 0 => errors += 1,
                Err(error) => panic!("{error}"),
            }
        }
        // Behind a damaged length the rest of the block is lost.
        let most = if word == 2 { 4096 / 152 } else { 1 };
        assert!(errors == 1 && (100 - most..100).contains(&keys.len()), "{}", keys.len());
    }
}

#[test]
fn what_expires_in_a_damaged_block_is_removed() {
    for length in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, lost) = salvaged(&pool, length);
        let removed = partition.expire(5000, Budget::bytes(u64::MAX)).expect("room");
        assert_eq!(removed, 100 - lost.len());
        assert!(partition.is_empty());
        partition.commit().expect("room");
        partition.check().expect("sound");
    }
}

/// Returns the location of a record.
fn at(partition: &Partition, number: u64) -> Option<Location> {
    partition.index.get(&partition.blocks, &key(number)).expect("sound")
}

/// Collects all that is worth it, after what waits for fences, and before it.
fn collect(partition: &mut Partition) {
    (0..5).for_each(|_| partition.commit().expect("room"));
    while !partition.collect(Budget::bytes(u64::MAX)).expect("room").done {
        partition.commit().expect("room");
    }
    (0..5).for_each(|_| partition.commit().expect("room"));
}

/// Replaces other records, so that blocks with little that is live are collected.
fn replace_others(partition: &mut Partition) {
    for _ in 0..20 {
        (100..200).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
        collect(partition);
    }
}

#[test]
fn what_was_moved_from_a_damaged_block_does_not_come_back() {
    for how in 0..4 {
        let pool = pool(8 << 20);
        let options = Options::new().block_bytes(4096).capacity(4 << 20).salvage(true);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        let put = |partition: &mut Partition, number| {
            partition.put(&key(number), &[7; 100], Some(1000)).expect("room");
        };
        (0..100).for_each(|number| put(&mut partition, number));
        partition.commit().expect("room");
        // The first records of the first block are live, and one behind them is damaged.
        let place = at(&partition, 0).expect("there").place();
        for number in 8..100 {
            if at(&partition, number).expect("there").place() == place {
                assert!(partition.remove(&key(number)).expect("room"));
            }
        }
        let damaged = at(&partition, 7).expect("there");
        pool.pm().store(&partition.blocks.record(damaged).expect("sound").1[8], 1); // in the value
        collect(&mut partition);
        assert_eq!(partition.blocks.at(place).state, State::Damaged);
        assert_ne!(at(&partition, 0).expect("there").place(), place);
        is_wasted_if_not_live(&partition);
        match how {
            0 => (0..7).for_each(|number| assert!(partition.remove(&key(number)).expect("room"))),
            1 => assert!(partition.expire(1000, Budget::bytes(u64::MAX)).expect("room") >= 7),
            2 => {
                (0..7).for_each(|number| put(&mut partition, number));
                replace_others(&mut partition);
                let mut batch = Batch::new();
                (0..7).for_each(|number| _ = batch.remove(&key(number)));
                partition.write(&batch).expect("room");
            }
            _ => {
                partition.clear().expect("cleared");
                put(&mut partition, 8);
            }
        }
        for _ in 0..2 {
            replace_others(&mut partition);
            partition.close().expect("room");
            partition = Partition::open(&pool, "p", &options).expect("salvaged").0;
            for number in 0..7 {
                assert_eq!(at(&partition, number), None, "{how}: {number} is back");
            }
            partition.check().expect("sound");
        }
    }
}

#[test]
fn an_older_version_whose_large_value_is_gone_does_not_free_another_one() {
    for opened in [false, true] {
        let pool = pool(8 << 20);
        let options = Options::new().block_bytes(4096).capacity(4 << 20).salvage(true);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        let put = |partition: &mut Partition, number, length| {
            partition.put(&key(number), &vec![7; length], None).expect("room");
            partition.commit().expect("room");
        };
        put(&mut partition, 0, 5000);
        let place = *partition.large.keys().next().expect("one");
        put(&mut partition, 0, 100);
        put(&mut partition, 1, 5000);
        assert!(partition.large.len() == 1 && partition.large.contains_key(&place));
        let newest = at(&partition, 0).expect("there");
        pool.pm().store(&partition.blocks.record(newest).expect("sound").1[7], 1); // in the value
        partition.close().expect("room");
        let (mut partition, recovery) = Partition::open(&pool, "p", &options).expect("salvaged");
        assert_eq!((recovery.damaged, recovery.records), (2, 2));
        let found = partition.get_into(&key(0), 0, &mut Vec::new());
        assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
        assert!(partition.remove(&key(0)).expect("room"));
        partition.commit().expect("room");
        if opened {
            partition.close().expect("room");
            partition = Partition::open(&pool, "p", &options).expect("salvaged").0;
        }
        assert!(partition.get_into(&key(1), 0, &mut Vec::new()).expect("sound"));
        partition.check().expect("sound");
    }
}

/// Damages the length of a record, so that it seems to end where the records of its block do.
fn damage_length(partition: &Partition, at: Location) {
    let used = partition.blocks.at(at.place()).used;
    let (head, cells) = partition.blocks.record(at).expect("sound");
    let words = u64::from(used - at.word()) - 1 - head.value_at() as u64;
    partition.pool().pm().store(&cells[2], (8 * words) << 32 | head.encode() & 0xffff_ffff);
}

/// Returns a partition with a damaged length: of a record that is dead, or that is replaced afterwards; and the numbers
/// of the records behind it in its block.
fn with_damaged_length(pool: &Arc<Pool>, is_dead: bool) -> (Partition, Vec<u64>) {
    let options = Options::new().block_bytes(4096).capacity(4 << 20);
    let mut partition = Partition::create(pool, "p", &options).expect("room");
    (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
    partition.commit().expect("room");
    let damaged = at(&partition, 1).expect("there");
    let is_there =
        |number: &u64| at(&partition, *number).expect("there").place() == damaged.place();
    let mut behind: Vec<u64> = (2..100).filter(is_there).collect();
    // So that it is worth collecting.
    for number in behind.split_off(behind.len() / 4) {
        assert!(partition.remove(&key(number)).expect("room"));
    }
    if is_dead {
        partition.put(&key(1), &[8; 100], None).expect("room");
        damage_length(&partition, damaged);
    } else {
        damage_length(&partition, damaged);
        partition.put(&key(1), &[8; 100], None).expect("room");
    }
    partition.commit().expect("room");
    (partition, behind)
}

#[test]
fn what_is_behind_a_damaged_length_is_not_collected() {
    for is_dead in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, behind) = with_damaged_length(&pool, is_dead);
        let place = at(&partition, behind[0]).expect("there").place();
        replace_others(&mut partition);
        for number in behind {
            let mut value = Vec::new();
            let found = partition.get_into(&key(number), 0, &mut value);
            assert_eq!((found, value), (Ok(true), vec![7; 100]), "{is_dead}: {number}");
        }
        assert_eq!(partition.blocks.at(place).state, State::Damaged);
        is_wasted_if_not_live(&partition);
    }
}

#[test]
fn a_backup_says_what_it_lacks_behind_a_damaged_length() {
    for is_dead in [false, true] {
        let pool = pool(8 << 20);
        let (mut partition, behind) = with_damaged_length(&pool, is_dead);
        let (mut keys, mut errors) = (Vec::new(), 0);
        let mut backup = partition.backup().expect("room");
        loop {
            let part = Budget::bytes(500);
            match partition
                .back_up_part(&mut backup, part, &mut |key, _, _| keys.push(key.to_vec()))
            {
                Ok(false) => break,
                Ok(true) => {}
                Err(Error::Damaged { .. }) if errors == 0 => errors += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let all = partition.len() as usize;
        assert_eq!((errors, keys.len()), (1, all - behind.len()), "{is_dead}");
    }
}

#[test]
fn a_dead_record_whose_key_is_damaged_is_not_taken_for_another_one() {
    let pool = pool(8 << 20);
    let options = Options::new().block_bytes(4096).capacity(4 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
    partition.commit().expect("room");
    let (dead, other) = (at(&partition, 1).expect("there"), at(&partition, 31).expect("there"));
    assert_ne!(dead.place(), other.place());
    for number in 0..100 {
        if at(&partition, number).expect("there").place() == dead.place() {
            assert!(partition.remove(&key(number)).expect("room"));
        }
    }
    assert!(partition.remove(&key(31)).expect("room"));
    partition.commit().expect("room");
    let (head, cells) = partition.blocks.record(dead).expect("sound");
    let last = &cells[head.value_at()];
    let written = u64::from_le_bytes(*key(31).last_chunk().expect("long"));
    assert_ne!(pool.pm().load(last), written);
    pool.pm().store(last, written);
    replace_others(&mut partition);
    partition.close().expect("room");
    // The damaged record is gone, and the other one is still there.
    let (partition, recovery) = Partition::open(&pool, "p", &options).expect("sound");
    assert_eq!((recovery.damaged, partition.blocks.at(other.place()).offset > 0), (0, true));
    assert_eq!(at(&partition, 31), None, "it is back");
}

#[test]
fn a_damaged_tombstone_does_not_break_the_partition() {
    for again in [false, true] {
        let pool = pool(8 << 20);
        let options = Options::new().block_bytes(4096).capacity(4 << 20).salvage(true);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
        partition.commit().expect("room");
        let place = at(&partition, 0).expect("there").place();
        for number in 0..100 {
            if at(&partition, number).is_some_and(|at| at.place() == place) {
                assert!(partition.remove(&key(number)).expect("room"));
            }
        }
        partition.commit().expect("room");
        let mut words = Vec::new();
        key(0).as_chunks().0.iter().for_each(|&bytes| words.push(u64::from_le_bytes(bytes)));
        let tombstone = partition.graves.tombstone(partition.hash(&words, 24)).expect("there");
        let lengths = &partition.blocks.record(tombstone).expect("sound").1[2];
        pool.pm().store(lengths, u64::MAX);
        if again {
            let mut batch = Batch::new();
            (0..2).for_each(|number| _ = batch.put(&key(number), &[8; 100], None));
            partition.write(&batch).expect("room");
        }
        replace_others(&mut partition);
        partition.put(&key(0), &[9; 100], None).expect("room");
        partition.close().expect("room");
        let (partition, _) = Partition::open(&pool, "p", &options).expect("salvaged");
        let mut value = Vec::new();
        assert_eq!(partition.get_into(&key(0), 0, &mut value), Ok(true));
        assert_eq!(value, [9; 100]);
    }
}

#[test]
fn a_record_whose_length_is_damaged_is_said_to_be_damaged() {
    let pool = pool(8 << 20);
    let options = Options::new().block_bytes(4096).capacity(4 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
    partition.commit().expect("room");
    let damaged = at(&partition, 3).expect("there");
    pool.pm().store(&partition.blocks.record(damaged).expect("sound").1[2], u64::MAX);
    let offset = partition.blocks.at(damaged.place()).offset + 8 * u64::from(damaged.word());
    let is_said = Some(Error::Damaged { offset });
    assert_eq!(partition.get_into(&key(3), 0, &mut Vec::new()).err(), is_said);
    assert_eq!(partition.expiry(&key(3), 0).err(), is_said);
    assert_eq!(partition.put(&key(3), &[8; 100], None).err(), is_said);
    assert_eq!(partition.set_expiry(&key(3), Some(9)).err(), is_said);
    assert_eq!(partition.remove(&key(3)).err(), is_said);
    assert_eq!(partition.write(Batch::new().remove(&key(3))).err(), is_said);
    let mut batch = Batch::new();
    batch.put(&key(2), &[9; 100], None).put(b"new", &[9; 3000], None).put(&key(3), b"", None);
    assert_eq!(partition.write(&batch).err(), is_said);
    assert_eq!((partition.len(), partition.large.len()), (100, 0));
    let all = (Bound::Unbounded, Bound::Unbounded);
    let scanned = partition.scan(all.0, all.1, 0, false, &mut |_, _| ControlFlow::Continue(()));
    assert_eq!(scanned.err(), is_said);
    partition.put(&key(4), &[8; 100], None).expect("the others are as before");
    partition.commit().expect("room");
}

#[test]
fn a_damaged_partition_is_destroyed() {
    for what in ["a record", "a length", "a block", "a large value"] {
        let pool = pool(8 << 20);
        let options = Options::new().block_bytes(4096).capacity(4 << 20);
        let mut partition = Partition::create(&pool, "p", &options).expect("room");
        (0..100).for_each(|number| partition.put(&key(number), &[7; 100], None).expect("room"));
        partition.put(&key(100), &[7; 3000], None).expect("room");
        partition.commit().expect("room");
        let damaged = at(&partition, 3).expect("there");
        let large = partition.large.values().next().expect("one").pieces[0];
        let block = partition.blocks.at(damaged.place()).offset;
        partition.close().expect("room");
        let (offset, at) = match what {
            "a record" => (block, damaged.word() as usize + 7),
            "a length" => (block, damaged.word() as usize + 2),
            "a block" => (block, LENGTH),
            _ => (large, LENGTH),
        };
        let word = &pool.words(offset, at + 1).expect("there")[at];
        pool.pm().store(word, pool.pm().load(word) ^ 1 << 40);
        let refused = Partition::open(&pool, "p", &options).map(drop);
        assert!(
            matches!(refused, Err(Error::Pool(PmError::Corrupt { .. }))),
            "{what}: {refused:?}"
        );
        assert_eq!(Partition::destroy(&pool, "p"), Ok(true), "{what}");
        assert_eq!(Partition::destroy(&pool, "p"), Ok(false), "{what}");
        pool.audit(std::iter::empty()).expect("nothing is left");
    }
}

#[test]
fn a_damaged_partition_is_destroyed_without_the_blocks_of_another() {
    for what in ["a word", "a link", "a page", "a directory"] {
        let pool = pool(32 << 20);
        let options = Options::new().block_bytes(4096).capacity(4 << 20);
        let [first, second] = ["first", "second"].map(|name| {
            let mut partition = Partition::create(&pool, name, &options).expect("room");
            for number in 0..100 {
                partition.put(&key(number), &[7; 100], None).expect("room");
            }
            partition.put(&key(100), &vec![7; 1_500_000], None).expect("room");
            partition.commit().expect("room");
            partition
        });
        let block = |partition: &Partition| {
            let place = at(partition, 3).expect("there").place();
            (place, partition.blocks.at(place).offset)
        };
        let pieces = &first.large.values().next().expect("one").pieces;
        let root = |partition: &Partition| partition.root.offset();
        let ((place, lost), (_, other)) = (block(&first), block(&second));
        let [tables, foreign] =
            [&first, &second].map(|partition| partition.table.blocks().collect::<Vec<u64>>());
        let (word, value, mut lost) = match what {
            "a word" => (first.table.word(place).expect("there"), other, vec![lost]),
            "a link" => {
                let line = pool.words(pieces[0], HEADER + 1).expect("there");
                (&line[HEADER], other, pieces[1..].to_vec())
            }
            // Nothing tells which blocks the partition had.
            "a page" => (
                &pool.words(tables[0], 1).expect("there")[0],
                foreign[1],
                first.all_blocks().expect("sound"),
            ),
            _ => {
                let cells = pool.words(root(&first), 7).expect("there");
                (&cells[6], foreign[0], first.all_blocks().expect("sound"))
            }
        };
        let log = first.log.blocks().expect("sound");
        lost.retain(|block| *block != root(&first) && !log.contains(block));
        pool.pm().store(word, value);
        drop(first);
        second.close().expect("room");
        assert_eq!(Partition::destroy(&pool, "first"), Ok(true), "{what}");
        let (second, recovery) = Partition::open(&pool, "second", &options).expect("sound");
        assert_eq!((recovery.records, recovery.damaged), (101, 0), "{what}");
        let blocks = second.all_blocks().expect("sound");
        pool.audit(blocks.into_iter().chain(lost))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
