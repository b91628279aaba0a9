//! Power failures of a pool in memory with a twin on a simulated disk: the memory is lost, and any subset of
//! the unsynchronised sectors survives.

use core::ops::Range;
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use pmindex_wal::Disk;
use pmindex_wal::sim::{SimDisk, Survivors, mix};

use super::journal_crash::{AMPLE, CHOICES};
use super::{Place, tiny};
use crate::cell::{PmU64, words_of};
use crate::error::{OpenError, PmError};
use crate::media::{BaseDisk, Medium};
use crate::mode::Durability;
use crate::pm_struct;
use crate::pool::twin::simulated::TWIN;
use crate::pool::{Pool, PoolOptions};

/// Bytes of the log: room for few batches, so that it wraps around.
const LOG: u64 = 20 * 4096;
/// The lines that the test stores to, in four pages.
const LINES: usize = 32;

pm_struct! {
    /// Lines of words, in pages.
    #[align(64)]
    struct Lines: size 16384 {
        /// The words.
        words: [PmU64; 2048],
    }
}

/// A part of a simulated disk.
#[derive(Clone, Debug)]
struct Part {
    disk: SimDisk,
    start: u64,
    len: u64,
    is_named: Arc<Mutex<bool>>,
    /// The time it takes for what is pushed at once.
    step: Duration,
}

impl Disk for Part {
    fn block(&self) -> usize {
        self.disk.block()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.disk.read(self.start + at, into)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(self.start + at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn write_durably(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_durably(self.start + at, bytes)
    }
}

impl BaseDisk for Part {
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        // The sectors of one call survive in any subset anyway.
        self.disk.write(self.start + at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn push(&self, _: Range<u64>) -> io::Result<()> {
        std::thread::sleep(self.step);
        Ok(())
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        if len <= self.len { self.disk.pass() } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn publish(&self) -> io::Result<()> {
        self.disk.pass()?;
        *self.is_named.lock() = true;
        Ok(())
    }
}

/// A pool in memory, its twin on a simulated disk, and the history.
pub(super) struct World {
    pub(super) place: Place,
    pub(super) disk: SimDisk,
    pub(super) is_named: Arc<Mutex<bool>>,
    /// The time that the disk takes for what is pushed at once.
    pub(super) step: Duration,
    done: Mutex<Done>,
}

#[derive(Clone, Default)]
struct Done {
    /// The line of each write, in order: write `k` stored `k + 1` to `lines[k]`.
    lines: Vec<usize>,
    /// The number of synchronised writes.
    synced: usize,
}

pub(super) fn options(twin: PathBuf) -> PoolOptions {
    let opts = tiny().huge_pages(false).journal_bytes(1 << 20).twin(twin);
    opts.twin_every(Duration::from_secs(3_600)).journal_wait(AMPLE)
}

pub(super) fn twin_of(place: &Place) -> PathBuf {
    place.path().with_file_name("twin")
}

impl World {
    pub(super) fn new() -> Option<Self> {
        let place = Place::tmpfs()?;
        let disk = SimDisk::new(4096, LOG as usize + (1 << 20));
        let (is_named, step, done) = (Arc::default(), Duration::ZERO, Mutex::default());
        Some(Self { place, disk, is_named, step, done })
    }

    pub(super) fn create(&self, wait: Duration) -> Pool {
        self.create_with(&options(twin_of(&self.place)).journal_wait(wait))
    }

    pub(super) fn create_with(&self, opts: &PoolOptions) -> Pool {
        let part = |start, len| {
            let (disk, is_named) = (self.disk.clone(), Arc::clone(&self.is_named));
            Part { disk, start, len, is_named, step: self.step }
        };
        let (log, base) = (part(0, LOG), part(LOG, 1 << 20));
        TWIN.set(Some(Box::new(move || (Box::new(log.clone()), Box::new(base.clone())))));
        let pool = Pool::create(self.place.path(), opts);
        TWIN.set(None);
        let pool = pool.unwrap();
        assert_eq!(pool.durability(), Durability::Periodic);
        make_lines(&pool);
        pool
    }

    /// Stores to a line, all of its words in order, and fences. Serialized, so that the order is known.
    pub(super) fn write(&self, pool: &Pool, line: usize) {
        let mut done = self.done.lock();
        done.lines.push(line);
        let entry = pool.open_index("lines").unwrap().unwrap();
        let lines = pool.get(entry.root::<Lines>()).unwrap();
        let words = &words_of(lines)[place_of(line)..place_of(line) + 8];
        for word in words {
            pool.pm().store(word, done.lines.len() as u64);
        }
        let flushed = pool.pm().flush_words(words);
        pool.pm().fence(flushed).unwrap();
    }

    pub(super) fn sync(&self, pool: &Pool) -> Result<(), PmError> {
        let before = self.done.lock().lines.len();
        pool.sync()?;
        self.done.lock().synced = before;
        Ok(())
    }

    /// Returns the state after a power failure; `None` if the twin has no name yet.
    pub(super) fn crash(&self, which: Survivors) -> Option<Place> {
        let place = Place::tmpfs()?;
        std::fs::write(twin_of(&place), self.disk.survivors(which).bytes()).unwrap();
        self.is_named.lock().then_some(place)
    }

    /// Returns the number of the last write.
    pub(super) fn last(&self) -> usize {
        self.done.lock().lines.len()
    }

    /// Checks that the pool has the state after some write, at least the last synchronised one. Returns its
    /// number.
    pub(super) fn check(&self, pool: &Pool) -> usize {
        let done = self.done.lock();
        let found: [_; LINES] = core::array::from_fn(|line| words_in(pool, line));
        let last = found.iter().map(|words| words[0]).max().unwrap_or(0) as usize;
        let mut expected = [0; LINES];
        for (k, &line) in done.lines[..last].iter().enumerate() {
            expected[line] = k as u64 + 1;
        }
        for (line, words) in found.iter().enumerate() {
            assert_eq!(words[0], expected[line], "line {line} of a prefix of {last}: {found:?}");
            // The last write may be in progress: it stores its words in order.
            let under_way = words[0] == last as u64 && words.is_sorted_by(|a, b| a >= b);
            assert!(under_way || words == &[words[0]; 8], "{words:?}");
        }
        assert!(last >= done.synced, "{last} of {} that were synchronised", done.synced);
        last
    }

    /// Opens the state after a power failure, checks it, continues to work, and loses the memory again.
    fn reopen(&self, place: &Place, seed: u64) {
        let opts = options(twin_of(place)).twin_every(Duration::from_millis(1));
        let pool = Pool::open(place.path(), &opts).unwrap();
        let last = self.check(&pool);
        make_lines(&pool);
        let after = Self { done: Mutex::new(self.done.lock().clone()), ..World::new().unwrap() };
        after.done.lock().lines.truncate(last);
        // Repeat the write that was in progress, so that one state remains possible.
        let again = after.done.lock().lines.pop();
        if let Some(line) = again {
            after.write(&pool, line);
        }
        for i in 0..12 {
            after.write(&pool, mix(seed ^ i) as usize % LINES);
        }
        match seed % 3 {
            0 => after.sync(&pool).unwrap(),
            1 => pool.checkpoint().unwrap(),
            _ => {}
        }
        if seed.is_multiple_of(2) {
            pool.kill();
        } else {
            after.sync(&pool).unwrap();
            pool.close().unwrap();
        }
        std::fs::remove_file(place.path()).unwrap();
        let pool = Pool::open(place.path(), &opts).unwrap();
        after.check(&pool);
    }
}

/// Creates the lines unless they exist.
fn make_lines(pool: &Pool) {
    let made = |lines: &Lines| pool.pm().flush(lines);
    if pool.open_index("lines").unwrap().is_none() {
        pool.create_index::<Lines>("lines", *b"lines   ", 1, made).unwrap();
    }
}

/// Returns the first word of a line: eight lines in each page, in different sectors.
fn place_of(line: usize) -> usize {
    line / 8 * 512 + line % 8 * 64
}

fn words_in(pool: &Pool, line: usize) -> [u64; 8] {
    let Some(entry) = pool.open_index("lines").unwrap() else { return [0; 8] };
    let lines = pool.get(entry.root::<Lines>()).unwrap();
    core::array::from_fn(|i| pool.pm().load(&lines.words[place_of(line) + i]))
}

/// Makes `steps` writes with two threads; the power fails in disk step `fails`. Returns `true` if it did.
pub(super) fn work(world: &World, pool: &Pool, seed: u64, steps: u64) {
    let _ = world.sync(pool); // the twin is complete, unless the power failed
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for i in 0..steps {
                    let random = mix(seed ^ mix(2 * i + thread));
                    match random % 12 {
                        0 => _ = world.sync(pool),
                        1 => _ = pool.checkpoint(),
                        _ => world.write(pool, (random >> 8) as usize % LINES),
                    }
                }
            });
        }
    });
}

#[test]
fn whatever_a_power_failure_leaves_of_a_twin_is_a_prefix_and_what_was_synchronised() {
    let (mut states, mut prefixes) = (0, 0);
    for seed in 0..10 {
        for step in 0.. {
            let Some(world) = World::new() else { return };
            world.disk.power_fails_at(4 + step); // the log has been formatted
            let pool = world.create(AMPLE);
            work(&world, &pool, seed, 24);
            let over = !world.disk.is_down();
            pool.kill();
            for choice in CHOICES {
                let Some(place) = world.crash(choice) else { continue };
                world.reopen(&place, seed + step);
                states += 1;
                prefixes += u32::from(world.done.lock().synced > 0);
            }
            if over {
                break;
            }
        }
    }
    assert!(states > 700 && prefixes > 300, "{states} states, {prefixes}");
}

#[test]
fn a_disk_that_fails_once_poisons_sync_for_good_and_nothing_else() {
    for seed in 0..3 {
        for step in 0.. {
            let Some(world) = World::new() else { return };
            let pool = world.create(AMPLE);
            world.sync(&pool).unwrap();
            world.disk.fails_at(world.disk.steps() + step);
            let failed = (0..40).any(|i| {
                world.write(&pool, mix(seed ^ i) as usize % LINES);
                match i % 8 {
                    3 => world.sync(&pool).is_err(),
                    7 => pool.checkpoint().is_err(),
                    _ => false,
                }
            });
            if !failed {
                assert!(step > 10, "{step} steps");
                break;
            }
            let steps = world.disk.steps();
            world.write(&pool, 1);
            for _ in 0..2 {
                let lost = world.sync(&pool).unwrap_err();
                assert!(matches!(lost, PmError::DurabilityLost(_)), "{lost}");
            }
            assert_eq!(world.disk.steps(), steps, "nothing is tried again");
            let why = pool.twin().and_then(|twin| twin.lost).unwrap();
            assert!(why.contains("the disk failed"), "{why}");
            // The pool in memory has all writes, and the twin a prefix of them.
            assert_eq!(world.check(&pool), world.done.lock().lines.len());
            assert!(matches!(pool.close(), Err(PmError::DurabilityLost(_))));
            let pool = Pool::open(world.place.path(), &tiny()).unwrap();
            assert!(pool.was_clean(), "only the twin is lost");
            assert_eq!(world.check(&pool), world.done.lock().lines.len());
            for choice in CHOICES {
                let Some(place) = world.crash(choice) else { continue };
                world.reopen(&place, seed + step);
            }
        }
    }
}

#[test]
fn a_twin_that_is_cut_or_lost_something_is_refused_when_it_is_needed() {
    let Some(world) = World::new() else { return };
    let pool = world.create(AMPLE);
    for line in 0..LINES {
        world.write(&pool, line);
        world.sync(&pool).unwrap();
        if line == LINES - 4 {
            pool.checkpoint().unwrap();
        }
    }
    pool.kill();
    let Some(place) = world.crash(Survivors::None) else { panic!("it has its name") };
    let (twin, whole) = (twin_of(&place), std::fs::read(twin_of(&place)).unwrap());
    let refused = |bytes: &[u8]| {
        std::fs::write(&twin, bytes).unwrap();
        let error = Pool::open(place.path(), &options(twin.clone())).unwrap_err();
        assert!(!place.path().exists(), "nothing is made");
        error
    };
    for len in [LOG as usize - 1, LOG as usize + 8191, LOG as usize + 20_000] {
        let cut = refused(&whole[..len]);
        assert!(matches!(cut, OpenError::TwinDamaged { .. }), "{len}: {cut}");
        assert!(cut.to_string().contains("truncated"), "{cut}");
    }
    let foreign = refused(b"precious");
    assert!(matches!(foreign, OpenError::TwinForeign { .. }), "{foreign}");
    // A batch other than the last one.
    let is_batch = |at: &usize| whole[*at..].starts_with(b"pmbatch");
    let newest = |at: &usize| u64::from_le_bytes(whole[at + 16..at + 24].try_into().unwrap());
    let mut batches: Vec<_> = (16384..LOG as usize).step_by(4096).filter(is_batch).collect();
    batches.sort_by_key(newest);
    let mut holed = whole.clone();
    holed[batches[batches.len() - 2] + 100] ^= 1;
    let hole = refused(&holed);
    assert!(matches!(hole, OpenError::TwinDamaged { .. }), "{hole}");
    std::fs::write(&twin, &whole).unwrap();
    let pool = Pool::open(place.path(), &options(twin)).unwrap();
    assert_eq!(world.check(&pool), LINES);
}

#[test]
fn a_checkpoint_has_room_for_what_it_must_log_itself() {
    let Some(world) = World::new() else { return };
    let pool = world.create(AMPLE);
    world.sync(&pool).unwrap();
    let twin = Arc::clone(pool.backing.as_ref().unwrap().twin().unwrap());
    let held = twin.checkpoints.lock();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Three times as much as fits into the log.
            for i in 0..48 {
                world.write(&pool, i % LINES);
                world.sync(&pool).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
        writer.join().unwrap();
    });
    let state = pool.twin().unwrap();
    assert!(state.lost.is_none() && state.checkpoints > 1, "{state:?}");
}
