//! Crashes a log at every step, with any part of the volatile writes lost.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::time::Duration;

use pmindex_wal::sim::{SimDisk, Survivors, mix};
use pmindex_wal::{Disk, Log, LogError, LogId, LogOptions, Lsn};

const BLOCK: usize = 512;
/// Twelve blocks of space: a few batches fill it.
const LEN: usize = 16 * BLOCK;
const ID: LogId = LogId { identity: 7 << 64 | 5, generation: 3, stamp: 11 };

fn options() -> LogOptions {
    LogOptions::new().wait(Duration::ZERO)
}

/// Returns the contents of the record of this number.
fn record(number: u64) -> Vec<u8> {
    let len = [0, 1, 30, 500, 900, 1500][mix(number ^ 0xabc) as usize % 6];
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|i| mix(number + i) as u8));
    bytes
}

/// A test's knowledge of a log.
#[derive(Clone, Debug, Default)]
struct Oracle {
    /// Every record that may exist: those acknowledged or found after a crash, in order, and those issued
    /// afterwards.
    issued: Vec<u64>,
    /// The number of them that certainly exist.
    sure: usize,
    /// The number of them that may be gone at the front.
    cut: usize,
    next: u64,
    /// The ends of acknowledged records and of those found, to truncate at.
    ends: Vec<u64>,
    names: BTreeMap<Lsn, u64>,
}

impl Oracle {
    fn name(&mut self, lsn: Lsn, number: u64) {
        let old = *self.names.entry(lsn).or_insert(number);
        assert_eq!(old, number, "{lsn:?} names two records");
    }

    /// Reads a log that was just opened, and takes its contents as the truth.
    fn check(&mut self, log: &Log) {
        let mut reader = log.reader(log.horizon()).unwrap();
        let mut found = Vec::new();
        while let Some((lsn, bytes)) = reader.next_record().unwrap() {
            let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
            assert!(bytes == record(number), "record {number} is torn");
            assert!(lsn.generation < log.id().generation);
            self.name(lsn, number);
            found.push(number);
        }
        assert_eq!(reader.position(), log.tail());
        let first = match found.first() {
            Some(first) => self.issued.iter().position(|number| number == first),
            None => Some(self.sure.max(self.cut)),
        };
        let first = first.expect("a record that nobody wrote, or that a crash had taken");
        assert!(first <= self.cut, "record {first} is the first, {} may be gone", self.cut);
        let until = first + found.len();
        assert!(self.sure <= until, "{} are sure, {until} are there", self.sure);
        assert_eq!(
            self.issued.get(first..until),
            Some(&found[..]),
            "not what was written, in order"
        );
        self.issued.truncate(until);
        (self.sure, self.cut) = (until, first);
        self.ends = vec![log.horizon(); until];
    }

    /// Executes random steps on a log by `seed`; ends at the first failure.
    fn work(&mut self, log: &Log, mut seed: u64, steps: u32) -> Result<(), LogError> {
        for _ in 0..steps {
            seed = mix(seed);
            if seed.is_multiple_of(4) {
                let at = self.cut + seed as usize / 8 % (self.sure - self.cut + 1);
                let Some(&end) = at.checked_sub(1).and_then(|last| self.ends.get(last)) else {
                    continue;
                };
                // It may be truncated from here on.
                self.cut = at;
                log.truncate(end)?;
                continue;
            }
            let number = self.next;
            self.next += 1;
            self.issued.push(number);
            match log.append(&record(number)) {
                Ok(lsn) => {
                    self.name(lsn, number);
                    self.sure = self.issued.len();
                    self.ends.push(log.tail());
                }
                Err(LogError::Full { .. }) => _ = self.issued.pop(),
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

fn boxed(disk: &SimDisk) -> Box<SimDisk> {
    Box::new(disk.clone())
}

/// Opens the log after a crash, reads it, and continues.
fn open(disk: &SimDisk, oracle: &mut Oracle) -> Result<Log, LogError> {
    let log = Log::open(boxed(disk), ID.identity, options())?;
    oracle.check(&log);
    Ok(log)
}

const CHOICES: [Survivors; 5] =
    [Survivors::None, Survivors::All, Survivors::Any(1), Survivors::Any(2), Survivors::Any(3)];

/// Explores a history: work, a kill, work, and in each a power failure at every step. Returns the number of
/// crash states.
fn explore(seed: u64) -> u64 {
    let mut states = 0;
    for step in 0.. {
        let disk = SimDisk::new(BLOCK, LEN);
        let log = Log::format(boxed(&disk), ID, options()).unwrap();
        disk.power_fails_at(disk.steps() + step);
        let mut oracle = Oracle::default();
        let mut worked = oracle.work(&log, seed, 12);
        if worked.is_ok() {
            // The process dies alone; the caches keep their contents.
            drop(log);
            worked = Log::open(boxed(&disk), ID.identity, options()).and_then(|log| {
                oracle.check(&log);
                oracle.work(&log, mix(seed), 8)
            });
        }
        if worked.is_ok() {
            return states;
        }
        for choice in CHOICES {
            states += 1;
            let disk = disk.survivors(choice);
            let mut oracle = oracle.clone();
            let log = open(&disk, &mut oracle).unwrap();
            // Continue, and let the power fail once more.
            disk.power_fails_at(disk.steps() + mix(seed ^ step) % 12);
            if oracle.work(&log, mix(seed ^ step), 6).is_ok() {
                drop(log);
                continue;
            }
            let disk = disk.survivors(Survivors::Any(seed));
            open(&disk, &mut oracle).unwrap();
            states += 1;
        }
    }
    unreachable!()
}

#[test]
fn whatever_crashes_acknowledged_records_are_there_and_what_is_read_is_a_prefix() {
    let states: u64 = (0..400).map(explore).sum();
    assert!(states > 50_000, "{states} states");
}

#[test]
fn a_failing_write_or_sync_ends_the_log_and_loses_nothing() {
    for seed in 0..60 {
        for step in 0.. {
            let disk = SimDisk::new(BLOCK, LEN);
            let log = Log::format(boxed(&disk), ID, options()).unwrap();
            disk.fails_at(disk.steps() + step);
            let mut oracle = Oracle::default();
            let worked = oracle.work(&log, seed, 12);
            let Err(failure) = worked else { break };
            assert!(matches!(failure, LogError::Lost { .. }), "{failure}");
            let steps = disk.steps();
            assert!(matches!(log.append(b"more"), Err(LogError::Lost { .. })), "for good");
            let again = log.truncate(u64::MAX).unwrap_err();
            assert!(matches!(again, LogError::Lost { .. }) && log.is_lost());
            assert_eq!(disk.steps(), steps, "nothing is tried again");
            drop(log);
            // The next process reads the cached contents, builds on them, and then the power fails.
            let mut killed = oracle.clone();
            let disk = disk.after_kill();
            let before = disk.survivors(Survivors::Any(seed));
            open(&before, &mut oracle).unwrap();
            let log = open(&disk, &mut killed).unwrap();
            killed.work(&log, mix(seed), 5).unwrap();
            for choice in CHOICES {
                open(&disk.survivors(choice), &mut killed.clone()).unwrap();
            }
        }
    }
}

#[test]
fn opening_may_crash_anywhere() {
    for seed in 0..40 {
        let disk = SimDisk::new(BLOCK, LEN);
        let mut oracle = Oracle::default();
        let log = Log::format(boxed(&disk), ID, options()).unwrap();
        oracle.work(&log, seed, 9).unwrap();
        drop(log);
        for step in 0.. {
            let disk = SimDisk::with_bytes(BLOCK, &disk.bytes());
            disk.power_fails_at(step);
            if Log::open(boxed(&disk), ID.identity, options()).is_ok() {
                break;
            }
            for choice in CHOICES {
                open(&disk.survivors(choice), &mut oracle.clone()).unwrap();
            }
        }
    }
}

#[test]
fn a_crash_while_a_log_is_made_leaves_none_or_an_empty_one_and_never_an_older_one() {
    let disk = SimDisk::new(BLOCK, LEN);
    let log = Log::format(boxed(&disk), ID, options()).unwrap();
    (0..3).for_each(|number| _ = log.append(&record(number)).unwrap());
    log.truncate(log.tail()).unwrap();
    drop(log);
    let next = LogId { generation: 9, stamp: 12, ..ID };
    for step in 0.. {
        let disk = SimDisk::with_bytes(BLOCK, &disk.bytes());
        disk.power_fails_at(step);
        if Log::format(boxed(&disk), next, options()).is_ok() {
            assert!(step > 3);
            let read = Log::replay(&disk, next, |_, _| panic!("an old record"));
            assert_eq!(read.unwrap(), 0);
            break;
        }
        for choice in CHOICES {
            match Log::replay(&disk.survivors(choice), next, |_, _| panic!("an old record")) {
                Ok(0) | Err(LogError::Foreign { .. } | LogError::Damaged) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Blocks that are smaller than a sector of most disks are kept too; a length or a place that is no block is an error,
/// not a write of something else.
#[test]
fn a_disk_has_what_was_written_whatever_its_blocks() {
    for block in [64, 256, 512, 4096] {
        let disk = SimDisk::new(block, 8 * block);
        let contents = |nth: usize| vec![nth as u8 + 1; block];
        for nth in [0, 3, 4, 7] {
            disk.write((nth * block) as u64, &contents(nth)).unwrap();
        }
        let is_there = |disk: &SimDisk| {
            let mut found = vec![9; block];
            for nth in 0..8 {
                disk.read((nth * block) as u64, &mut found).unwrap();
                let wanted =
                    if [0, 3, 4, 7].contains(&nth) { contents(nth) } else { vec![0; block] };
                assert!(
                    found == wanted && disk.bytes()[nth * block..][..block] == wanted,
                    "{block}: {nth}"
                );
            }
        };
        is_there(&disk);
        is_there(&disk.survivors(Survivors::All));
        assert!(disk.survivors(Survivors::None).bytes().iter().all(|&byte| byte == 0));
        disk.sync().unwrap();
        is_there(&disk.survivors(Survivors::None));
        disk.write_durably(block as u64, &vec![0; block]).unwrap();
        is_there(&disk.survivors(Survivors::None));
        assert!(disk.write(block as u64 / 2, &contents(1)).is_err());
        assert!(disk.write(0, &contents(1)[1..]).is_err());
        assert!(disk.read(8 * block as u64, &mut vec![0; block]).is_err());
        is_there(&disk);
    }
}
