//! Power failures of a pool with a journal, on simulated disks: any subset of the unsynchronised sectors of
//! the log and of the pool's file survives.

use core::sync::atomic::Ordering::{Acquire, Release};
use core::time::Duration;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_wal::Disk;
use pmindex_wal::sim::{SimDisk, Survivors, mix};

use super::{Place, tiny};
use crate::cell::{PmU64, words_of};
use crate::error::{OpenError, PmError};
use crate::media::{Medium, PoolDisk};
use crate::pm_struct;
use crate::pool::journal::simulated::{DISKS, Disks};
use crate::pool::{Pool, PoolOptions};
use crate::sync::VersionLock;

const SECTOR: usize = 512;
/// Blocks of the simulated log: room for eight batches, so that it wraps around.
const BLOCKS: usize = 12;
/// Longer than any checkpoint takes.
pub(super) const AMPLE: Duration = Duration::from_secs(3_600);
/// The lines that a test stores to, in three pages.
pub(super) const LINES: usize = 24;

pm_struct! {
    /// Lines of words.
    #[align(64)]
    struct Lines: size 12288 {
        /// The words.
        words: [PmU64; 1536],
    }
}

/// The pool's file as it is on the disk.
#[derive(Debug)]
struct SimPool {
    path: PathBuf,
    disk: SimDisk,
    durable: Arc<Mutex<Vec<u8>>>,
}

impl PoolDisk for SimPool {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.disk.pass()?;
        sync()?;
        let mut durable = self.durable.lock();
        *durable = std::fs::read(&self.path)?;
        Ok(())
    }
}

/// A log that is written while no thread holds the gate.
#[derive(Debug)]
struct Gated {
    disk: SimDisk,
    gate: Arc<Mutex<()>>,
}

impl Disk for Gated {
    fn block(&self) -> usize {
        self.disk.block()
    }

    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn write_durably(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        drop(self.gate.lock());
        self.disk.write_durably(at, bytes)
    }
}

/// A pool on simulated disks.
pub(super) struct World {
    gate: Arc<Mutex<()>>,
    pub(super) place: Place,
    pub(super) disk: SimDisk,
    durable: Arc<Mutex<Vec<u8>>>,
}

pub(super) fn options() -> PoolOptions {
    tiny().as_on_disk(true).journal(true).huge_pages(false).journal_bytes(1 << 20)
}

impl World {
    pub(super) fn new() -> Option<Self> {
        let place = Place::tmpfs()?;
        Some(Self::of(place, SimDisk::new(4096, BLOCKS * 4096), Vec::new()))
    }

    /// Makes one from the bytes of a pool's file and the disk of its log.
    pub(super) fn of(place: Place, disk: SimDisk, file: Vec<u8>) -> Self {
        Self { place, disk, durable: Arc::new(Mutex::new(file)), gate: Arc::default() }
    }

    /// Creates the pool with durable lines.
    fn create(&self, wait: Duration) -> Pool {
        self.make_file();
        self.open(wait).unwrap()
    }

    /// Makes a closed pool without lines.
    pub(super) fn make_file(&self) {
        let path = self.place.path();
        Pool::create(&path, &options().journal(false)).unwrap().close().unwrap();
        *self.durable.lock() = std::fs::read(&path).unwrap();
    }

    /// Opens the pool with a journal, and creates the lines; `None` if the power fails.
    pub(super) fn open(&self, wait: Duration) -> Option<Pool> {
        let path_of_pool = self.place.path();
        let (path, disk, durable) = (path_of_pool.clone(), self.disk.clone(), self.durable.clone());
        let (log, gate) = (disk.clone(), self.gate.clone());
        let pool = move || -> Box<dyn PoolDisk> {
            let (path, disk, durable) = (path.clone(), disk.clone(), durable.clone());
            Box::new(SimPool { path, disk, durable })
        };
        let log =
            move || -> Box<dyn Disk> { Box::new(Gated { disk: log.clone(), gate: gate.clone() }) };
        let disks: Disks = (Box::new(log), Box::new(pool));
        // Opening reads the log to replay from this file.
        std::fs::write(journal_of(&path_of_pool), self.disk.bytes()).unwrap();
        DISKS.set(Some(disks));
        let pool = Pool::open(self.place.path(), &options().journal_wait(wait));
        DISKS.set(None);
        if let Err(error) = &pool {
            assert!(matches!(error, OpenError::Io { .. } | OpenError::Pool { .. }), "{error}");
        }
        let pool = pool.ok()?;
        if pool.open_index("lines").unwrap().is_none() {
            let made = pool
                .create_index::<Lines>("lines", *b"lines   ", 1, |lines| pool.pm().flush(lines));
            made.is_ok().then_some(())?;
        }
        Some(pool)
    }

    /// Lets the kernel write back some of the pages as they are now.
    fn write_back(&self, seed: u64) {
        // No thread synchronises between the look and the copy, so durable bytes stay durable.
        let mut durable = self.durable.lock();
        let now = std::fs::read(self.place.path()).unwrap();
        for (page, (old, new)) in durable.chunks_mut(4096).zip(now.chunks(4096)).enumerate() {
            if mix(seed ^ page as u64).is_multiple_of(3) {
                old.copy_from_slice(new);
            }
        }
    }

    /// Stores the state after a power failure in `place`: each sector of the file is as at the last
    /// synchronisation, or as it is now.
    pub(super) fn crash(&self, which: Survivors, place: &Place) {
        let mut image = self.durable.lock().clone();
        let now = std::fs::read(self.place.path()).unwrap();
        for (sector, (old, new)) in image.chunks_mut(SECTOR).zip(now.chunks(SECTOR)).enumerate() {
            let survives = match which {
                Survivors::None => false,
                Survivors::All => true,
                Survivors::Any(seed) => mix(mix(seed) ^ sector as u64).is_multiple_of(2),
            };
            if survives {
                old.copy_from_slice(new);
            }
        }
        std::fs::write(place.path(), image).unwrap();
        std::fs::write(journal_of(&place.path()), self.disk.survivors(which).bytes()).unwrap();
    }
}

pub(super) fn journal_of(path: &Path) -> PathBuf {
    path.with_file_name("pool.journal")
}

/// Returns the words of a line; zeros if there are no lines.
pub(super) fn line_of(pool: &Pool, line: usize) -> [u64; 8] {
    let Some(entry) = pool.open_index("lines").unwrap() else { return [0; 8] };
    let lines = pool.get(entry.root::<Lines>()).unwrap();
    core::array::from_fn(|i| pool.pm().load(&lines.words[place_of(line) + i]))
}

/// Returns the first word of a line: eight lines in each page, in different sectors.
pub(super) fn place_of(line: usize) -> usize {
    line / 8 * 512 + line % 8 * 64
}

/// The acknowledged writes by line, and the write in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Oracle {
    acknowledged: [[u64; 8]; LINES],
    issued: [u64; LINES],
}

impl Oracle {
    /// Checks that each line holds a prefix of the stores to it, at least the acknowledged ones. An odd line
    /// is never ahead of the line before it, which was durable first.
    pub(super) fn check(&self, pool: &Pool) {
        let mut last = 0;
        for line in 0..LINES {
            let words = line_of(pool, line);
            let (first, end) = (words[0], words[7]);
            assert!(words.is_sorted_by(|a, b| a >= b) && first - end <= 1, "{line}: {words:?}");
            let kept = words.iter().zip(&self.acknowledged[line]).all(|(word, told)| word >= told);
            assert!(kept, "{line}: {words:?}, {self:?}");
            assert!(first <= self.issued[line], "{line}: {words:?}, {self:?}");
            assert!(line % 2 == 0 || first <= last, "{line}: published before it was durable");
            last = end;
        }
    }

    /// Stores to a line, words in order, and makes it durable; then does so with the line that publishes it.
    pub(super) fn write(&mut self, pool: &Pool, line: usize) -> Result<(), PmError> {
        self.write_line(pool, line & !1)?;
        self.write_line(pool, line | 1)
    }

    fn write_line(&mut self, pool: &Pool, line: usize) -> Result<(), PmError> {
        let entry = pool.open_index("lines")?.expect("there");
        let lines = pool.get(entry.root::<Lines>())?;
        pool.check_writable()?;
        self.issued[line] += 1;
        let words = &words_of(lines)[place_of(line)..place_of(line) + 8];
        for word in words {
            pool.pm().store(word, self.issued[line]);
        }
        let flushed = pool.pm().flush_words(words);
        pool.pm().fence(flushed)?;
        self.acknowledged[line] = [self.issued[line]; 8];
        Ok(())
    }

    /// Checks a pool that was opened, accepts its state, and completes the lines that a crash left half
    /// written.
    pub(super) fn take(&mut self, pool: &Pool) -> Result<(), PmError> {
        self.check(pool);
        for line in 0..LINES {
            self.acknowledged[line] = line_of(pool, line);
            self.issued[line] = self.acknowledged[line][0];
        }
        for line in 0..LINES {
            if self.acknowledged[line] != [self.issued[line]; 8] {
                self.issued[line] -= 1;
                self.write_line(pool, line)?;
            }
        }
        Ok(())
    }

    pub(super) fn work(
        &mut self,
        world: &World,
        pool: &Pool,
        mut seed: u64,
        steps: u32,
    ) -> Result<(), PmError> {
        for _ in 0..steps {
            seed = mix(seed);
            match seed % 16 {
                0 | 1 => pool.checkpoint()?,
                2 => _ = pool.grow(pool.len() + 1)?,
                3..6 => world.write_back(seed),
                _ => self.write(pool, (seed >> 8) as usize % LINES)?,
            }
        }
        Ok(())
    }
}

pub(super) const CHOICES: [Survivors; 4] =
    [Survivors::None, Survivors::All, Survivors::Any(1), Survivors::Any(2)];

/// Opens the state after a crash in one of several ways, checks it and continues to work.
fn reopen(place: &Place, oracle: &Oracle, how: u64) {
    let plain = options().journal(false);
    let opts = match how % 3 {
        0 => options(),
        1 => plain.clone(),
        _ => plain.clone().read_only(true),
    };
    let pool = Pool::open(place.path(), &opts).unwrap();
    oracle.check(&pool);
    if how % 3 == 2 {
        drop(pool);
        let pool = Pool::open(place.path(), &plain).unwrap();
        return oracle.check(&pool);
    }
    let mut oracle = oracle.clone();
    oracle.acknowledged = core::array::from_fn(|i| line_of(&pool, i));
    if how.is_multiple_of(3) {
        // The process dies alone: the contents of the caches survive.
        pool.kill();
    } else {
        pool.close().unwrap();
    }
    let pool = Pool::open(place.path(), &plain).unwrap();
    oracle.check(&pool);
    pool.close().unwrap();
}

/// Lets the power fail in each step of opening with a journal, working and closing. Returns the number of
/// states.
fn explore(seed: u64, steps: u32) -> Option<u64> {
    let mut states = 0;
    for step in 0.. {
        let world = World::new()?;
        world.make_file();
        world.disk.power_fails_at(step);
        let mut oracle = Oracle::default();
        let mut closed = false;
        if let Some(pool) = world.open(AMPLE) {
            let worked = oracle.work(&world, &pool, seed, steps);
            closed = worked.is_ok() && pool.close().is_ok();
        }
        for choice in CHOICES {
            let place = Place::tmpfs()?;
            world.crash(choice, &place);
            reopen(&place, &oracle, seed + step);
            states += 1;
        }
        if closed {
            return Some(states);
        }
    }
    unreachable!()
}

#[test]
fn whatever_a_power_failure_leaves_of_file_and_journal_holds_what_was_acknowledged() {
    let states: u64 = (0..8).filter_map(|seed| explore(seed, 14)).sum();
    assert!(states == 0 || states > 900, "{states} states");
}

#[test]
fn a_disk_that_fails_once_in_the_log_or_in_the_file_loses_nothing() {
    for seed in 0..3 {
        for step in 0.. {
            let Some(world) = World::new() else { return };
            let pool = world.create(AMPLE);
            world.disk.fails_at(world.disk.steps() + step);
            let mut oracle = Oracle::default();
            let Err(failed) = oracle.work(&world, &pool, seed, 16) else { break };
            assert!(matches!(failed, PmError::DurabilityLost(_)), "{failed}");
            // The thread that makes checkpoints may be in the middle of one.
            pool.backing.as_ref().and_then(|backing| backing.journal()).unwrap().end();
            let steps = world.disk.steps();
            assert!(matches!(oracle.write(&pool, 0), Err(PmError::DurabilityLost(_))), "for good");
            assert!(pool.checkpoint().is_err() && pool.grow(pool.len() + 1).is_err());
            assert_eq!(world.disk.steps(), steps, "nothing is tried again");
            let why = pool.journal().and_then(|journal| journal.lost);
            assert!(why.is_some_and(|why| why.contains("the disk failed")));
            drop(pool);
            for choice in CHOICES {
                let Some(place) = Place::tmpfs() else { return };
                world.crash(choice, &place);
                reopen(&place, &oracle, seed + step);
            }
        }
    }
}

#[test]
fn threads_that_share_lines_keep_what_each_was_told_is_durable() {
    for round in 0..12 {
        let Some(world) = World::new() else { return };
        let pool = world.create(AMPLE);
        world.disk.power_fails_at(world.disk.steps() + 30 + round);
        let entry = pool.open_index("lines").unwrap().unwrap();
        let lines = pool.get(entry.root::<Lines>()).unwrap();
        let told = std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| {
                let pool = &pool;
                scope.spawn(move || {
                    // This thread's word of a shared line.
                    let own = &lines.words[thread];
                    let mut told = 0;
                    loop {
                        pool.pm().store(own, told + 1);
                        if pool.pm().persist(own).is_err() {
                            break told;
                        }
                        told += 1;
                    }
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        drop(entry);
        drop(pool);
        for choice in CHOICES {
            let Some(place) = Place::tmpfs() else { return };
            world.crash(choice, &place);
            let pool = Pool::open(place.path(), &options().journal(false)).unwrap();
            let found = line_of(&pool, 0);
            for (thread, told) in told.iter().enumerate() {
                let found = found[thread];
                assert!((*told..=told + 1).contains(&found), "{thread}: {found}, told {told}");
            }
        }
    }
}

#[test]
fn fences_that_wait_together_share_a_batch_in_which_each_line_is_copied_once() {
    let Some(world) = World::new() else { return };
    let pool = world.create(AMPLE);
    pool.checkpoint().unwrap();
    let journal = pool.backing.as_ref().unwrap().journal().unwrap().clone();
    let entry = pool.open_index("lines").unwrap().unwrap();
    let lines = pool.get(entry.root::<Lines>()).unwrap();
    let before = journal.joined.load(Acquire);
    let joined = |fences| {
        while journal.joined.load(Acquire) < before + fences {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let gate = world.gate.lock();
        let fence = |number: usize| {
            let (pool, own) = (&pool, &lines.words[number]);
            scope.spawn(move || {
                pool.pm().store(own, 7);
                pool.pm().persist(own).unwrap();
            });
        };
        // Its round is in progress, and the next one collects the others.
        fence(0);
        joined(1);
        (1..6).for_each(fence);
        joined(6);
        drop(gate);
    });
    assert!(pool.journal().unwrap().used <= 2 * 4096, "{:?}", pool.journal());
    drop(entry);
    drop(pool);
    let Some(place) = Place::tmpfs() else { return };
    world.crash(Survivors::None, &place);
    let pool = Pool::open(place.path(), &options().journal(false)).unwrap();
    assert_eq!(line_of(&pool, 0), [7, 7, 7, 7, 7, 7, 0, 0]);
}

#[test]
fn who_waits_for_a_lock_over_a_fence_leaves_the_processor_to_others() {
    // Nanoseconds on a processor, of this thread.
    let spent = || {
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        told.split(' ').next()?.parse::<u128>().ok()
    };
    let (Some(world), Some(_)) = (World::new(), spent()) else { return };
    let pool = world.create(AMPLE);
    let entry = pool.open_index("lines").unwrap().unwrap();
    let stored = &pool.get(entry.root::<Lines>()).unwrap().words[0];
    let journal = pool.backing.as_ref().unwrap().journal().unwrap().clone();
    let lock = VersionLock::new();
    let waited = |millis| {
        let before = journal.joined.load(Acquire);
        std::thread::scope(|scope| {
            let gate = world.gate.lock();
            scope.spawn(|| {
                let _held = lock.lock(pool.pm());
                pool.pm().store(stored, millis);
                pool.pm().persist(stored).unwrap();
            });
            while journal.joined.load(Acquire) == before {
                std::thread::yield_now();
            }
            let waits = scope.spawn(|| {
                let (began, started) = (spent().unwrap(), std::time::Instant::now());
                drop(lock.lock(pool.pm()));
                (spent().unwrap() - began, started.elapsed().as_nanos())
            });
            std::thread::sleep(Duration::from_millis(millis));
            drop(gate);
            waits.join().unwrap()
        })
    };
    // Longer and longer: on a slow processor the few rounds before the waiting take their time.
    let mut last = (0, 0);
    let leaves = [60, 240, 960].into_iter().any(|millis| {
        last = waited(millis);
        last.0 < last.1 / 4
    });
    assert!(leaves, "{} of {} ns", last.0, last.1);
    drop(entry);
}

#[test]
fn a_journal_that_nobody_empties_refuses_after_a_wait_and_loses_nothing() {
    let Some(world) = World::new() else { return };
    let pool = world.create(Duration::from_millis(50));
    // Its thread waits for the file, which a slow disk is synchronising.
    let journal = pool.backing.as_ref().unwrap().journal().unwrap().clone();
    let slow = journal.hold_syncs();
    let mut oracle = Oracle::default();
    let full = (0..).find_map(|i| oracle.write(&pool, i % LINES).err()).unwrap();
    assert!(matches!(full, PmError::DurabilityLost(_)), "{full}");
    let why = pool.journal().unwrap().lost.unwrap();
    assert!(why.contains("full"), "{why}");
    drop(slow);
    drop(pool);
    let Some(place) = Place::tmpfs() else { return };
    world.crash(Survivors::None, &place);
    reopen(&place, &oracle, 1);
}

#[test]
fn a_copy_of_a_line_is_a_moment_of_it() {
    let Some(world) = World::new() else { return };
    let pool = world.create(AMPLE);
    let entry = pool.open_index("lines").unwrap().unwrap();
    let lines = pool.get(entry.root::<Lines>()).unwrap();
    let words = &words_of(lines)[..8];
    let mapping = pool.region.mapping().unwrap();
    let over = core::sync::atomic::AtomicBool::new(false);
    let mut bad = None;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for i in (1..).take_while(|_| !over.load(Acquire)) {
                for word in words {
                    word.atomic().store(i, Release);
                }
            }
        });
        let (mut last, mut changes) = (0, 0);
        for _ in 0..2_000_000 {
            let (offset, line) = mapping.line_at(words.as_ptr().addr()).unwrap();
            changes += u32::from(line[0] != last);
            last = line[0];
            if changes == 50_000 {
                break;
            }
            assert_eq!(offset, pool.pptr(lines).offset());
            let is_prefix = line.is_sorted_by(|a, b| a >= b) && line[0] - line[7] <= 1;
            if !is_prefix {
                bad = Some(line);
                break;
            }
        }
        over.store(true, Release);
    });
    assert_eq!(bad, None, "stores in order, and this was never there");
}
