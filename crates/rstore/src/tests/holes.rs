//! Writes that take the places of dead records.

use std::collections::HashMap;
use std::sync::Arc;

use pmindex_core::{Medium, Pool};

use crate::record::Head;
use crate::{BlockSize, Error, Options, Partition};

fn pool(bytes: usize) -> Arc<Pool> {
    Arc::new(Pool::emulated(bytes).expect("memory"))
}

fn key(number: u64) -> Vec<u8> {
    format!("user:{number:019}").into_bytes()
}

/// Fills a partition up to a share of its capacity, then replaces records, in an order without pattern, whose
/// lengths this function gives. Returns the bytes that were copied for 100 that were written.
fn copied(percent: u64, writes: u64, length: impl Fn(u64) -> usize) -> (Partition, u64) {
    let pool = pool(64 << 20);
    let options = Options::new().block_size(BlockSize::Kib16).capacity(16 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    let mut records = 0;
    while partition.stats().live_bytes < (16 << 20) / 100 * percent {
        partition.put(&key(records), &vec![7; length(records)], None).expect("room");
        records += 1;
        partition.commit().expect("room");
    }
    let (mut number, mut before) = (1_u64, partition.stats());
    for turn in 0..2 * writes {
        if turn == writes {
            before = partition.stats();
        }
        number = (number * 1_103_515_245 + 12_345) % (1 << 31);
        let of = number / 64 % records;
        partition.put(&key(of), &vec![turn as u8; length(of)], None).expect("room");
        if turn % 16 == 15 {
            partition.commit().expect("room");
        }
    }
    let after = partition.stats();
    let copied = 100 * (after.copied_bytes - before.copied_bytes);
    let copied = copied / (after.written_bytes - before.written_bytes);
    assert_eq!(after.stalls, 0, "{after:?}");
    assert!(after.log_bytes < 8 << 20, "{after:?}");
    partition.check().expect("sound");
    (partition, copied)
}

#[test]
fn records_of_one_length_take_the_places_of_others_when_nearly_all_is_live() {
    let (partition, copied) = copied(90, 100_000, |_| 100);
    assert!(copied < 5, "{copied} {:?}", partition.stats());
    let pool = Arc::clone(partition.pool());
    let records = partition.len();
    drop(partition);
    let (partition, recovery) = Partition::open(&pool, "p", &Options::new()).expect("sound");
    assert_eq!((recovery.records, recovery.damaged), (records, 0));
    partition.check().expect("sound");
}

#[test]
fn collection_of_records_of_many_lengths_copies_what_it_must() {
    // It would be at least 400 if no write found a hole of its length.
    let length = |number: u64| 40 + (number * 97 % 1000) as usize;
    let (_, of_nearly_all) = copied(90, 100_000, length);
    assert!(of_nearly_all < 400, "{of_nearly_all}");
    // Where less is live, copying costs less than searching for holes of many lengths.
    for (percent, most) in [(50, 60), (75, 160), (82, 250)] {
        let (partition, copied) = copied(percent, 50_000, length);
        assert!(copied < most, "{copied} at {percent} %");
        let filled = partition.stats().filled_bytes;
        assert!(percent > 75 || filled == 0, "{filled} bytes at {percent} %");
    }
}

/// Returns a partition of which 90 % is live, and the number of its records; writes take holes.
fn nearly_full(options: &Options, capacity: u64) -> (Partition, u64) {
    let pool = pool(2 * capacity as usize);
    let mut partition =
        Partition::create(&pool, "p", &options.clone().capacity(capacity)).expect("room");
    let mut records = 0;
    while partition.stats().live_bytes < capacity / 100 * 90 {
        partition.put(&key(records), &[7; 100], None).expect("room");
        records += 1;
        partition.commit().expect("room");
    }
    for turn in 0..4 * records {
        partition.put(&key(turn * 7919 % records), &[turn as u8; 100], None).expect("room");
        partition.commit().expect("room");
    }
    assert!(partition.stats().filled_bytes > 0, "{:?}", partition.stats());
    (partition, records)
}

#[test]
fn writes_go_on_while_a_backup_reads_all_blocks() {
    let options = Options::new().block_bytes(2 << 10);
    let (mut partition, records) = nearly_full(&options, 2 << 20);
    let mut before = HashMap::new();
    for number in 0..records {
        let mut value = Vec::new();
        assert!(partition.get_into(&key(number), 0, &mut value).expect("sound"));
        before.insert(key(number), value);
    }
    let mut backup = partition.backup().expect("room");
    let mut turn = 0;
    let mut write = |partition: &mut Partition| {
        turn += 1;
        let value = [turn as u8; 100];
        partition.put(&key(turn * 104_729 % records), &value, None).expect("room");
        partition.commit().expect("room");
    };
    write(&mut partition);
    let mut found = HashMap::new();
    loop {
        let keep = &mut |key: &[u8], value: &[u8], _| {
            found.insert(key.to_vec(), value.to_vec());
        };
        if !partition.back_up(&mut backup, keep).expect("goes on") {
            break;
        }
        // Not more often, because writes that need the space of the blocks would end the backup.
        if backup.blocks_left().is_multiple_of(8) {
            write(&mut partition);
        }
    }
    assert!(found == before, "{} records", found.len());
    partition.check().expect("sound");
}

/// Returns one of many keys that share no prefix.
fn scattered(turn: u64) -> [u8; 24] {
    let mut key = [b'k'; 24];
    key[..8].copy_from_slice(&turn.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

#[test]
fn a_write_for_which_the_index_has_no_room_leaves_its_hole() {
    let options = Options::new().block_bytes(512).records(64).fill_below(u64::MAX);
    let mut partition =
        Partition::create(&pool(8 << 20), "p", &options.capacity(4 << 20)).expect("room");
    let mut refused = 0;
    for turn in 0..50_000 {
        let new = scattered(turn);
        refused += u64::from(partition.put(&new, &[1; 20], None).is_err());
        partition.commit().expect("room");
        partition.put(&scattered(turn % 8), &[turn as u8; 20], None).expect("room");
        partition.commit().expect("room");
    }
    assert!(refused > 100, "{refused}");
    assert!(partition.stats().filled_bytes > 0, "{:?}", partition.stats());
    partition.commit().expect("room");
    assert!(partition.blocks.list.iter().all(|block| block.filling == 0));
    partition.check().expect("sound");
}

#[test]
fn a_damaged_length_of_a_dead_record_harms_no_live_one() {
    let options = Options::new().block_bytes(1024).capacity(2 << 20).fill_below(u64::MAX);
    let pool = pool(4 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    let put = |partition: &mut Partition, key: &[u8], value: &[u8]| {
        partition.put(key, value, None).expect("room");
        partition.commit().expect("room");
    };
    put(&mut partition, b"dead", &[1; 100]);
    put(&mut partition, b"live", &[0; 100]);
    let at = partition.index.get(&partition.blocks, b"dead").expect("sound").expect("there");
    put(&mut partition, b"dead", &[2; 100]);
    // The first block is full.
    for other in 0..5_u8 {
        put(&mut partition, &[other], &[3; 100]);
    }
    let (head, cells) = partition.blocks.record(at).expect("sound");
    // The next record seems to begin in the zeros, and to be as short as those below.
    pool.pm().store(&cells[2], Head { value_len: 140, ..head }.encode());
    for turn in 0..50_u64 {
        put(&mut partition, &(turn % 4).to_le_bytes(), b"");
    }
    let mut value = Vec::new();
    assert!(partition.get_into(b"live", 0, &mut value).expect("sound"));
    assert_eq!(value, [0; 100]);
}

#[test]
fn a_damaged_seal_is_said() {
    let pool = pool(4 << 20);
    let options = Options::new().capacity(2 << 20);
    let mut partition = Partition::create(&pool, "p", &options).expect("room");
    partition.put(b"k", &[7; 100], None).expect("room");
    partition.commit().expect("room");
    let at = partition.index.get(&partition.blocks, b"k").expect("sound").expect("there");
    let (head, cells) = partition.blocks.record(at).expect("sound");
    for seal in 1..=u8::MAX {
        pool.pm().store(&cells[2], Head { seal, ..head }.encode_sealed(seal));
        let found = partition.get_into(b"k", 0, &mut Vec::new());
        if seal != partition.blocks.seal(at, head) {
            assert!(matches!(found, Err(Error::Damaged { .. })), "{seal}: {found:?}");
        }
    }
    pool.pm().store(&cells[2], head.encode());
    assert!(partition.get_into(b"k", 0, &mut Vec::new()).expect("sound"));
}
