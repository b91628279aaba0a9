//! A log without crashes, and the requests it refuses.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use pmindex_wal::sim::{SimDisk, Survivors};
use pmindex_wal::{Batch, Disk, FileDisk, Log, LogError, LogId, LogOptions, SyncMethod, peek};

const BLOCK: usize = 512;
const ID: LogId = LogId { identity: 1, generation: 1, stamp: 1 };

fn options() -> LogOptions {
    LogOptions::new().wait(Duration::ZERO)
}

fn sim(blocks: usize) -> (SimDisk, Log) {
    let disk = SimDisk::new(BLOCK, (4 + blocks) * BLOCK);
    let log = Log::format(Box::new(disk.clone()), ID, options()).unwrap();
    (disk, log)
}

fn read(disk: &SimDisk, id: LogId) -> Result<Vec<Vec<u8>>, LogError> {
    let mut records = Vec::new();
    Log::replay(disk, id, |_, record| {
        records.push(record.to_vec());
        Ok(())
    })?;
    Ok(records)
}

fn file(len: u64, method: SyncMethod) -> (tempfile::TempDir, FileDisk) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    FileDisk::create(&std::fs::File::create_new(&path).unwrap(), len).unwrap();
    let disk = FileDisk::open(&path, method).unwrap();
    (directory, disk)
}

#[test]
fn threads_that_append_at_once_share_batches_in_a_file() {
    for method in [SyncMethod::Measured, SyncMethod::WriteThrough, SyncMethod::Sync] {
        let (directory, disk) = file(1 << 20, method);
        let log = Log::format(Box::new(disk), ID, LogOptions::new()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                let log = &log;
                scope.spawn(move || {
                    let lsns = (0..20u64).map(|i| log.append(&(thread << 32 | i).to_le_bytes()));
                    let lsns: Vec<_> = lsns.map(Result::unwrap).collect();
                    assert!(lsns.is_sorted());
                });
            }
        });
        let batches = log.tail() / 4096;
        assert!(batches < 160, "{batches} batches for 160 records");
        let mut reader = log.reader(log.horizon()).unwrap();
        let mut last = [None; 8];
        while let Some((_, record)) = reader.next_record().unwrap() {
            let number = u64::from_le_bytes(*record.first_chunk().unwrap());
            let (thread, i) = ((number >> 32) as usize, number as u32);
            assert_eq!(i, last[thread].map_or(0, |last: u32| last + 1), "in the thread's order");
            last[thread] = Some(i);
        }
        assert_eq!(last, [Some(19); 8]);
        drop(log);
        let disk = FileDisk::open(&directory.path().join("log"), method).unwrap();
        let log = Log::open(Box::new(disk), ID.identity, LogOptions::new()).unwrap();
        assert_eq!((log.tail() / 4096, log.id().generation), (batches, 2));
    }
}

#[test]
fn a_file_that_is_no_log_is_not_changed_by_measuring() {
    let (directory, disk) = file(1 << 16, SyncMethod::Sync);
    let bytes: Vec<u8> = (0..=250).cycle().take(1 << 16).collect();
    std::fs::write(directory.path().join("log"), &bytes).unwrap();
    drop(disk);
    let disk = FileDisk::open(&directory.path().join("log"), SyncMethod::Measured).unwrap();
    assert_eq!(disk.method(), SyncMethod::Sync);
    assert!(std::fs::read(directory.path().join("log")).unwrap() == bytes);
}

#[test]
fn a_new_file_is_all_written_zeros() {
    let (directory, disk) = file(300_000, SyncMethod::Sync);
    let bytes = std::fs::read(directory.path().join("log")).unwrap();
    assert!(bytes.len() == 300_000 && bytes.iter().all(|&byte| byte == 0));
    // Allocated but unwritten bytes look like a hole.
    let file = std::fs::File::open(directory.path().join("log")).unwrap();
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)).unwrap();
    assert_eq!(hole, disk.len());
}

#[test]
fn a_full_log_is_an_error_after_a_wait_and_takes_more_when_its_horizon_moves() {
    let (_, log) = sim(8);
    let mut ends = Vec::new();
    let full = loop {
        match log.append(&[7; 700]) {
            Ok(_) => ends.push(log.tail()),
            Err(full) => break full,
        }
    };
    assert!(matches!(full, LogError::Full { wanted: 1024, .. }) && ends.len() == 4, "{full}");
    assert!(!log.is_lost());
    let hold = log.hold();
    assert_eq!(log.truncate(ends[1]).unwrap(), 0, "somebody reads");
    assert!(matches!(log.append(&[7; 700]), Err(LogError::Full { .. })));
    hold.advance(ends[0]);
    assert_eq!(log.truncate(ends[1]).unwrap(), ends[0]);
    log.append(&[7; 700]).unwrap();
    drop(hold);
    assert_eq!(log.truncate(u64::MAX).unwrap(), log.tail());
    assert!(matches!(log.reader(0), Err(LogError::Gone { .. })));
}

#[test]
fn a_log_truncated_within_a_batch_keeps_the_batch() {
    // Batches of one block and of three, past the end of the ring.
    let lengths = [10, 1200, 10, 1000, 10, 10];
    let filled = |truncated: u64| {
        let (disk, log) = sim(12);
        let mut lsns = Vec::new();
        for (number, len) in (0u8..).zip(lengths.iter().cycle().take(11)) {
            lsns.push(log.append(&vec![number; *len]).unwrap().offset);
            if number == 5 {
                log.truncate(u64::MAX).unwrap();
                lsns.clear();
            }
        }
        let _ = log.truncate(truncated).unwrap();
        (disk, log, lsns)
    };
    let (_, log, lsns) = filled(0);
    assert!(log.tail() > 12 * BLOCK as u64 && lsns.len() == 5);
    for offset in (log.horizon()..log.tail()).step_by(4).chain(lsns.iter().copied()) {
        let (disk, log, lsns) = filled(offset);
        assert!(log.horizon() <= offset);
        let kept = lsns.iter().filter(|lsn| **lsn >= offset).count();
        drop(log);
        let log = Log::open(Box::new(disk.clone()), ID.identity, options()).unwrap();
        log.append(b"later").unwrap();
        let found = read(&disk, log.id()).unwrap();
        assert_eq!(found.last().unwrap(), b"later");
        assert!(found.len() > kept, "{offset}: {} of {kept}", found.len() - 1);
        for (record, number) in found[..found.len() - 1].iter().rev().zip((6..11u8).rev()) {
            assert_eq!(*record, vec![number; record.len()]);
        }
    }
}

#[test]
fn a_writer_waits_for_room() {
    let disk = SimDisk::new(BLOCK, 12 * BLOCK);
    let options = LogOptions::new().wait(Duration::from_secs(600));
    let log = Log::format(Box::new(disk), ID, options).unwrap();
    (0..8).for_each(|_| _ = log.append(&[1]).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| log.append(&[2]));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!writer.is_finished());
        log.truncate(BLOCK as u64).unwrap();
        writer.join().unwrap().unwrap();
        // Nor does it wait for room that never comes.
        let writer = scope.spawn(|| log.append(&[3]));
        std::thread::sleep(Duration::from_millis(20));
        log.end("making room", "the disk failed");
        assert!(matches!(writer.join().unwrap(), Err(LogError::Lost { .. })) && log.is_lost());
    });
}

#[test]
fn a_writer_waits_as_long_as_the_disk_takes_something_and_no_longer() {
    let wait = Duration::from_millis(400);
    let disk = SimDisk::new(BLOCK, 12 * BLOCK);
    let log = Log::format(Box::new(disk), ID, LogOptions::new().wait(wait)).unwrap();
    (0..8).for_each(|_| _ = log.append(&[1]).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| log.append(&[2]));
        for _ in 0..30 {
            std::thread::sleep(wait / 10);
            log.note_progress();
        }
        assert!(!writer.is_finished());
        log.truncate(BLOCK as u64).unwrap();
        writer.join().unwrap().unwrap();
        let full = log.append(&[3]);
        assert!(matches!(full, Err(LogError::Full { waited, .. }) if waited == wait));
    });
}

#[test]
fn records_of_any_length_fit_up_to_half_of_the_space() {
    let (disk, log) = sim(64);
    let most = log.most() as usize - 4;
    let lengths = [0, 1, 4, 443, 444, 445, 5000, most];
    for len in lengths {
        log.append(&vec![len as u8; len]).unwrap();
        let found = read(&disk.survivors(Survivors::None), ID).unwrap();
        assert_eq!(found, [vec![len as u8; len]]);
        log.truncate(u64::MAX).unwrap();
    }
    assert!(matches!(log.append(&vec![0; most + 1]), Err(LogError::TooLarge { .. })));
    let mut batch = Batch::default();
    batch.push(&[b"one", b" record"]);
    batch.push(&[b"another"]);
    log.write(&mut batch).unwrap();
    assert_eq!(read(&disk, ID).unwrap(), [b"one record".to_vec(), b"another".to_vec()]);
}

#[test]
fn a_reader_of_the_tail_goes_on_when_there_is_more() {
    let (_, log) = sim(16);
    let hold = log.hold();
    let mut reader = log.reader(hold.offset()).unwrap();
    let mut next = 0u64;
    for number in 0..200u64 {
        log.append(&number.to_le_bytes()).unwrap();
        if number % 3 == 0 {
            while let Some((_, record)) = reader.next_record().unwrap() {
                assert_eq!(record, next.to_le_bytes());
                next += 1;
            }
            assert_eq!(next, number + 1);
            hold.advance(reader.position());
            log.truncate(u64::MAX).unwrap();
        }
    }
    // Without a hold the reader may be overtaken, and then fails.
    let mut slow = log.reader(log.horizon()).unwrap();
    drop(hold);
    log.append(b"unread").unwrap();
    log.truncate(u64::MAX).unwrap();
    assert!(matches!(slow.next_record(), Ok(None) | Err(LogError::Gone { .. })));
}

/// A disk that notes the tail of the log at each durable write.
#[derive(Debug)]
struct Watched {
    disk: SimDisk,
    log: Arc<OnceLock<Weak<Log>>>,
    tails: Arc<Mutex<Vec<u64>>>,
}

impl Disk for Watched {
    fn block(&self) -> usize {
        self.disk.block()
    }
    fn len(&self) -> u64 {
        self.disk.len()
    }
    fn read(&self, at: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.disk.read(at, into)
    }
    fn write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.disk.write(at, bytes)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.disk.sync()?;
        if let Some(log) = self.log.get().and_then(Weak::upgrade) {
            self.tails.lock().unwrap().push(log.tail());
        }
        Ok(())
    }
}

#[test]
fn the_tail_passes_a_batch_only_when_it_is_durable() {
    let (log, tails) = (Arc::new(OnceLock::new()), Arc::new(Mutex::new(Vec::new())));
    let disk = SimDisk::new(BLOCK, 20 * BLOCK);
    let watched = Watched { disk, log: Arc::clone(&log), tails: Arc::clone(&tails) };
    let own = Arc::new(Log::format(Box::new(watched), ID, options()).unwrap());
    log.set(Arc::downgrade(&own)).unwrap();
    let mut expected = Vec::new();
    for number in 0..5 {
        expected.push(own.tail());
        own.append(&[number; 700]).unwrap();
    }
    assert_eq!(*tails.lock().unwrap(), expected);
    assert_eq!(expected.last().map(|tail| tail + 2 * BLOCK as u64), Some(own.tail()));
}

/// Makes a log with three batches of one record each.
fn three() -> (SimDisk, LogId) {
    let (disk, log) = sim(16);
    (0..3).for_each(|i| _ = log.append(&[i; 600]).unwrap());
    (disk, ID)
}

/// Returns a copy of the disk with changed bytes.
fn changed(disk: &SimDisk, change: impl FnOnce(&mut [u8])) -> SimDisk {
    let mut bytes = disk.bytes();
    change(&mut bytes);
    SimDisk::with_bytes(BLOCK, &bytes)
}

#[test]
fn nothing_is_read_beyond_the_first_bad_batch() {
    let (disk, id) = three();
    for (byte, left) in [(4 * BLOCK + 200, 0), (6 * BLOCK + 3, 1), (7 * BLOCK + 100, 1)] {
        let bad = changed(&disk, |bytes| bytes[byte] ^= 4);
        assert_eq!(read(&bad, id).unwrap().len(), left, "byte {byte}");
    }
    // An intact batch with another log's identity, generation, stamp or place does not count.
    let others =
        [LogId { identity: 2, ..id }, LogId { generation: 2, ..id }, LogId { stamp: 2, ..id }];
    for other in others {
        let foreign = SimDisk::new(BLOCK, 20 * BLOCK);
        let log = Log::format(Box::new(foreign.clone()), other, options()).unwrap();
        (0..3).for_each(|i| _ = log.append(&[i; 600]).unwrap());
        let theirs = foreign.bytes();
        let mixed = changed(&disk, |bytes| {
            bytes[6 * BLOCK..8 * BLOCK].copy_from_slice(&theirs[6 * BLOCK..8 * BLOCK]);
        });
        assert_eq!(read(&mixed, id).unwrap().len(), 1, "{other}");
    }
    // Where a batch begins at the start of the space, the preceding one may be the bad one.
    let (disk, log) = sim(9);
    (0..4).for_each(|i| _ = log.append(&[i; 600]).unwrap());
    log.truncate(4 * BLOCK as u64).unwrap();
    log.append(&[4; 600]).unwrap(); // one block is left before it
    assert_eq!(read(&disk, id).unwrap().len(), 3);
    let bad = changed(&disk, |bytes| bytes[10 * BLOCK + 100] ^= 1);
    assert_eq!(read(&bad, id).unwrap().len(), 1, "nor is one after the bad one");
    let bad = changed(&disk, |bytes| bytes[4 * BLOCK..12 * BLOCK].rotate_right(7));
    assert_eq!(read(&bad, id).unwrap().len(), 0);
}

#[test]
fn either_head_suffices_when_the_space_was_used_again() {
    let (disk, log) = sim(8);
    for i in 0..20u8 {
        log.append(&[i; 600]).unwrap();
        if i % 2 == 1 {
            log.truncate(u64::MAX).unwrap();
            log.append(&[100 + i; 600]).unwrap();
        }
        let whole = read(&disk, ID).unwrap();
        for copy in 0..2 {
            let rotten = changed(&disk, |bytes| bytes[copy * BLOCK + 80] ^= 1);
            let is_there = read(&rotten, ID).unwrap().ends_with(&whole);
            assert!(is_there, "without copy {copy} after {i}");
        }
    }
    drop(log);
    let log = Log::open(Box::new(disk.clone()), ID.identity, options()).unwrap();
    log.append(&[7; 100]).unwrap();
    let whole = read(&disk, log.id()).unwrap();
    for copy in 0..2 {
        let rotten = changed(&disk, |bytes| bytes[copy * BLOCK + 80] ^= 1);
        assert!(read(&rotten, log.id()).is_ok_and(|read| read == whole), "without copy {copy}");
    }
}

#[test]
fn a_batch_that_the_disk_lost_is_told_from_the_end() {
    let (disk, log) = sim(9);
    let mut ends = vec![0];
    for i in 0..7u8 {
        log.append(&[i; 600]).unwrap();
        ends.push(log.tail());
        if i == 3 {
            log.truncate(ends[3]).unwrap();
        }
    }
    assert_eq!(Log::extent(&disk, ID).unwrap(), ends[3]..ends[7]);
    for number in 3..7 {
        // The second block of the batch.
        let at = 4 * BLOCK as u64 + (ends[number + 1] - BLOCK as u64) % log.capacity();
        let bad = changed(&disk, |bytes| bytes[at as usize] ^= 1);
        let found = Log::extent(&bad, ID);
        match number {
            6 => assert!(matches!(found, Ok(ref range) if range.end == ends[6]), "{found:?}"),
            _ => assert!(
                matches!(found, Err(LogError::Hole { offset, .. }) if offset == ends[number]),
                "{number}: {found:?}"
            ),
        }
    }
}

#[test]
fn a_batch_counts_only_at_its_place() {
    let (disk, id) = three();
    let moved = changed(&disk, |bytes| bytes.copy_within(8 * BLOCK..10 * BLOCK, 6 * BLOCK));
    assert_eq!(read(&moved, id).unwrap().len(), 1);
}

#[test]
fn each_thing_that_is_wrong_with_a_file_is_an_error_of_its_own() {
    let (disk, id) = three();
    let empty = SimDisk::new(BLOCK, 20 * BLOCK);
    assert!(matches!(peek(&empty), Err(LogError::NotALog)));
    assert_eq!(peek(&disk).unwrap().id, id);
    let zero = |copies: core::ops::Range<usize>| {
        changed(&disk, |bytes| bytes[copies.start * BLOCK + 60..copies.end * BLOCK].fill(9))
    };
    assert!(matches!(peek(&zero(0..2)), Err(LogError::Damaged)));
    assert!(peek(&zero(0..1)).is_ok() && peek(&zero(1..2)).is_ok(), "one copy suffices");
    let later = changed(&disk, |bytes| (bytes[8], bytes[BLOCK + 8]) = (9, 9));
    assert!(matches!(peek(&later), Err(LogError::Version { found: 9, supported: 1 })));
    let cut = SimDisk::with_bytes(BLOCK, &disk.bytes()[..10 * BLOCK]);
    assert!(matches!(peek(&cut), Err(LogError::Cut { .. })));
    let other = LogId { generation: 5, ..id };
    assert!(matches!(read(&disk, other), Err(LogError::Foreign { .. })));
    let foreign = Log::open(Box::new(disk), 99, options());
    assert!(matches!(foreign, Err(LogError::Foreign { .. })));
    for blocks in [0, 4, 7] {
        let small = SimDisk::new(BLOCK, blocks * BLOCK);
        let made = Log::format(Box::new(small), ID, options());
        assert!(matches!(made, Err(LogError::BadOption { .. })));
    }
}

#[test]
fn a_leader_that_panics_leaves_nobody_waiting() {
    let group = pmindex_wal::Group::<u32, (), LogError>::default();
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            group.commit(
                |_| Some(()),
                |_| {
                    std::thread::sleep(Duration::from_millis(20));
                    panic!("in the middle")
                },
            )
        });
        assert!(leader.join().is_err());
    });
    let next = group.commit(|_| Some(()), |_| Ok(()));
    assert!(next.is_ok());
}
