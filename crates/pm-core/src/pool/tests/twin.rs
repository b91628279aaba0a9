//! Pools in memory with a twin, on real files: which of the two counts when, and which files are refused.

use core::sync::atomic::Ordering::{Acquire, Release};
use core::time::Duration;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use super::{Block, Place, add, tiny, value_of};
use crate::error::{OpenError, PmError};
use crate::media::Medium;
use crate::mode::Durability;
use crate::pool::{Pool, PoolOptions};

pub(super) fn twin_at(place: &Place) -> PathBuf {
    place.path().with_file_name("twin")
}

/// Options for a twin that is written only when a call waits for it.
pub(super) fn options(place: &Place) -> PoolOptions {
    let seldom = Duration::from_secs(3_600);
    tiny().uuid(7).journal_bytes(1 << 20).twin(twin_at(place)).twin_every(seldom)
}

/// The power fails: the contents of memory are lost.
pub(super) fn lose(place: &Place) {
    fs::remove_file(place.path()).unwrap();
}

/// A hole of tmpfs that is read takes memory.
#[test]
fn a_twin_is_made_without_the_holes_of_its_pool() {
    let Some(place) = Place::tmpfs() else { return };
    let size = 48 << 20;
    let plain = PoolOptions::new().uuid(7).size(size).zone_bytes(16 << 20).write_back(false);
    let pool = Pool::create(place.path(), &plain).unwrap();
    add(&pool, "a", 1).unwrap();
    assert!(pool.compact().unwrap() > size / 2);
    pool.kill();
    let bytes = || fs::metadata(place.path()).unwrap().blocks() * 512;
    let before = bytes();
    assert!(before < size / 2);

    let opts = plain.twin(twin_at(&place));
    let pool = Pool::open(place.path(), &opts).unwrap();
    pool.sync().unwrap(); // the twin is made
    assert!(bytes() < before + size / 8, "{before} {}", bytes());
    pool.kill();
    lose(&place);
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn a_kill_loses_nothing_and_a_power_failure_what_was_not_synchronised() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place).require(Durability::Periodic);
    let pool = Pool::open_or_create(place.path(), &opts).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.sync().unwrap();
    let state = pool.twin().unwrap();
    assert!(state.whole && state.behind == 0 && state.lost.is_none(), "{state:?}");
    add(&pool, "b", 2).unwrap();
    assert!(pool.twin().unwrap().behind > 0);
    assert!(pool.describe().contains("twin"), "{}", pool.describe());
    pool.kill();
    let before = fs::read(twin_at(&place)).unwrap();

    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
    pool.sync().unwrap(); // a new twin
    pool.kill();

    lose(&place);
    let pool = Pool::open_or_create(place.path(), &opts).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
    pool.kill();

    lose(&place);
    fs::write(twin_at(&place), before).unwrap();
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!(
        (value_of(&pool, "a"), value_of(&pool, "b")),
        (Some(1), None),
        "what was synchronised"
    );
}

#[test]
fn a_twin_is_written_by_itself() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place).twin_every(Duration::from_millis(5));
    let pool = Pool::create(place.path(), &opts).unwrap();
    pool.sync().unwrap();
    add(&pool, "a", 1).unwrap();
    while pool.twin().unwrap().behind > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    pool.kill();
    lose(&place);
    assert_eq!(value_of(&Pool::open(place.path(), &opts).unwrap(), "a"), Some(1));
}

#[test]
fn a_twin_of_a_pool_that_was_closed_goes_on_and_no_other_does() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place);
    let pool = Pool::create(place.path(), &opts).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.close().unwrap();
    let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(twin_at(&place)).unwrap());
    let first = inode();
    for i in 0..3 {
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert!(pool.twin().unwrap().whole, "at once");
        add(&pool, &format!("b{i}"), i).unwrap();
        pool.close().unwrap();
        assert_eq!(inode(), first);
    }
    // The pool was used without its twin.
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    assert_eq!(pool.durability(), Durability::Process);
    add(&pool, "c", 9).unwrap();
    pool.close().unwrap();
    let pool = Pool::open(place.path(), &opts).unwrap();
    pool.sync().unwrap();
    assert_ne!(inode(), first, "made anew");
    pool.kill();
    lose(&place);
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!((value_of(&pool, "b2"), value_of(&pool, "c")), (Some(2), Some(9)));
    assert!(!twin_at(&place).with_file_name("twin.new").exists());
}

#[test]
fn what_only_the_log_has_is_in_the_base_before_the_log_is_cut() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place);
    let pool = Pool::create(place.path(), &opts).unwrap();
    pool.sync().unwrap();
    add(&pool, "a", 1).unwrap();
    pool.sync().unwrap();
    pool.kill();
    for i in 0..2 {
        lose(&place);
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert_eq!(value_of(&pool, "a"), Some(1), "{i}");
        pool.checkpoint().unwrap();
        pool.kill();
    }
}

#[test]
fn a_pool_that_grows_has_a_twin_that_does() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place);
    let pool = Pool::create(place.path(), &opts).unwrap();
    pool.sync().unwrap();
    let len = pool.grow(4 * pool.len()).unwrap();
    for i in 0..40 {
        add(&pool, &format!("index {i}"), i).unwrap();
    }
    pool.sync().unwrap();
    pool.kill();
    lose(&place);
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!((pool.len(), value_of(&pool, "index 39")), (len, Some(39)));
    assert!(fs::metadata(twin_at(&place)).unwrap().len() >= (1 << 20) + len);
}

#[test]
fn a_foreign_newer_or_busy_twin_is_an_error_and_stays() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place);
    let pool = Pool::create(place.path(), &opts).unwrap();
    let older = fs::read(place.path()).unwrap();
    pool.close().unwrap();
    let again = place.path().with_file_name("again");
    assert!(matches!(Pool::create(&again, &opts), Err(OpenError::AlreadyExists { .. })));
    let pool = Pool::open(place.path(), &opts).unwrap();
    let busy = Pool::open(&again, &opts).unwrap_err();
    assert!(matches!(&busy, OpenError::Locked { path } if *path == twin_at(&place)), "{busy}");
    pool.close().unwrap();
    let twin = fs::read(twin_at(&place)).unwrap();
    let refused = |opts: &PoolOptions| {
        let error = Pool::open(place.path(), opts).unwrap_err();
        assert!(matches!(error, OpenError::TwinForeign { .. }), "{error}");
        assert_eq!(fs::read(twin_at(&place)).unwrap(), twin);
        error.to_string()
    };
    let newest = fs::read(place.path()).unwrap();
    fs::write(place.path(), older).unwrap();
    assert!(refused(&opts).contains("older"));
    fs::remove_file(place.path()).unwrap();
    Pool::create(place.path(), &tiny().uuid(8)).unwrap().close().unwrap();
    assert!(refused(&opts).contains("another pool"));
    fs::write(place.path(), newest).unwrap();
    // A file that is no twin is never replaced; a damaged twin of this pool is.
    fs::write(twin_at(&place), b"precious").unwrap();
    let error = Pool::open(place.path(), &opts).unwrap_err();
    assert!(matches!(error, OpenError::TwinForeign { .. }), "{error}");
    assert_eq!(fs::read(twin_at(&place)).unwrap(), b"precious");
    fs::write(twin_at(&place), &twin[..twin.len() - 5000]).unwrap();
    let pool = Pool::open(place.path(), &opts).unwrap();
    pool.sync().unwrap();
    pool.close().unwrap();
    assert!(fs::metadata(twin_at(&place)).unwrap().len() >= twin.len() as u64);
    fs::remove_file(twin_at(&place)).unwrap();
    Pool::open(place.path(), &opts).unwrap().close().unwrap();
    assert!(twin_at(&place).exists(), "missing, it is made anew");
}

#[test]
fn a_twin_of_a_file_on_a_disk_is_refused() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place);
    let on_disk = opts.clone().as_on_disk(true);
    let refused = |result: Result<Pool, OpenError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, OpenError::TwinNotInMemory { .. }), "{error}");
        assert!(error.to_string().contains("tmpfs"), "{error}");
        assert!(!place.path().exists());
    };
    refused(Pool::create(place.path(), &on_disk));
    let pool = Pool::create(place.path(), &opts).unwrap();
    pool.close().unwrap();
    assert!(matches!(Pool::open(place.path(), &on_disk), Err(OpenError::TwinNotInMemory { .. })));
    let emulated = Pool::open(place.path(), &opts.clone().emulate_pm(true));
    assert!(matches!(emulated, Err(OpenError::BadOption { .. })));
    let pool = Pool::open(place.path(), &opts.clone().read_only(true)).unwrap();
    assert!(pool.twin().is_none(), "a reader has nothing to do with it");
    drop(pool);
    lose(&place);
    refused(Pool::open(place.path(), &on_disk));
    let reader = Pool::open(place.path(), &opts.read_only(true));
    assert!(matches!(reader, Err(OpenError::NotFound { .. })));
}

/// Lets two threads write until the twin was looked at `rounds` times: `write(me, i)` is write `i` of thread `me`,
/// which returns when the write is fenced. After each `sync` it opens a copy of the twin, and calls `judge` with the
/// pool and the numbers of the last writes that were fenced before.
fn beside_two_writers(
    pool: &Pool,
    place: &Place,
    rounds: u32,
    write: impl Fn(usize, u64) + Sync,
    judge: impl Fn(&Pool, [u64; 2]),
) {
    let told = [const { core::sync::atomic::AtomicU64::new(0) }; 2];
    let over = core::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for me in 0..2 {
            let (write, told, over) = (&write, &told, &over);
            scope.spawn(move || {
                for i in (1..).take_while(|_| !over.load(Acquire)) {
                    write(me, i);
                    told[me].store(i, Release);
                }
            });
        }
        let seen = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            let mut judged = 0;
            for _ in 0..rounds {
                let least = [0, 1].map(|i| told[i].load(Acquire));
                pool.sync().unwrap();
                // The state of the disk at some moment; the log is written in whole blocks. If the heads of
                // the log changed meanwhile, the copy mixes the log and the base of two moments.
                let Some(after) = Place::tmpfs() else { return };
                let heads = || {
                    let mut heads = [0; 2 * 4096];
                    fs::File::open(twin_at(place)).unwrap().read_exact_at(&mut heads, 0).unwrap();
                    heads
                };
                let before = heads();
                fs::copy(twin_at(place), twin_at(&after)).unwrap();
                if heads() != before {
                    continue;
                }
                let opened = Pool::open(after.path(), &options(&after));
                let Ok(left) = opened else { continue }; // a copy of a file that is being written
                judge(&left, least);
                judged += 1;
            }
            println!("{judged} copies of one moment");
            assert!(judged > 0, "every copy mixed two moments");
        }));
        over.store(true, Release);
        seen.unwrap();
    });
}

#[test]
fn two_threads_that_flush_one_line_lose_nothing_of_each_other() {
    let Some(place) = Place::tmpfs() else { return };
    let pool = Pool::create(place.path(), &options(&place).twin_every(Duration::ZERO)).unwrap();
    pool.sync().unwrap();
    add(&pool, "a", 0).unwrap();
    let entry = pool.open_index("a").unwrap().unwrap();
    let block = pool.get(entry.root::<Block>()).unwrap();
    let write = |me: usize, i| {
        pool.pm().store(&block[1 + me], i);
        pool.pm().persist(&block[1 + me]).unwrap();
    };
    beside_two_writers(&pool, &place, 20, write, |left, least| {
        let entry = left.open_index("a").unwrap().unwrap();
        let block = left.get(entry.root::<Block>()).unwrap();
        let found = [1, 2].map(|i| left.pm().load(&block[i]));
        assert!((0..2).all(|me| found[me] >= least[me]), "{found:?}, {least:?} waited for");
    });
}

#[test]
fn what_one_thread_saw_of_another_is_before_what_it_wrote() {
    let Some(place) = Place::tmpfs() else { return };
    let pool = Pool::create(place.path(), &options(&place).twin_every(Duration::ZERO)).unwrap();
    pool.sync().unwrap();
    let entries = ["a", "b"].map(|name| {
        add(&pool, name, 0).unwrap();
        pool.open_index(name).unwrap().unwrap()
    });
    let blocks = [0, 1].map(|i| pool.get(entries[i].root::<Block>()).unwrap());
    let fenced = [const { core::sync::atomic::AtomicU64::new(0) }; 2];
    let write = |me: usize, i| {
        let seen = fenced[1 - me].load(Acquire);
        pool.pm().store(&blocks[me][1], seen);
        pool.pm().store(&blocks[me][0], i);
        pool.pm().persist(blocks[me]).unwrap();
        fenced[me].store(i, Release);
    };
    beside_two_writers(&pool, &place, 40, write, |left, least| {
        let words = ["a", "b"].map(|name| {
            let entry = left.open_index(name).unwrap().unwrap();
            let block = left.get(entry.root::<Block>()).unwrap();
            [left.pm().load(&block[0]), left.pm().load(&block[1])]
        });
        for me in 0..2 {
            assert!(words[me][1] <= words[1 - me][0], "{words:?}");
            assert!(words[me][0] >= least[me], "{words:?}, {least:?} waited for");
        }
    });
}

#[test]
fn a_batch_whose_lines_are_fenced_again_while_they_are_copied_ends_at_one_moment() {
    const LINES: usize = 12;
    let Some(place) = Place::tmpfs() else { return };
    let opts = options(&place).twin_every(Duration::ZERO).journal_bytes(8 << 20).size(256 << 10);
    let pool = Pool::create(place.path(), &opts).unwrap();
    pool.sync().unwrap();
    let first = pool.len() - (2 * LINES * 64) as u64;
    // The first words of many lines; nothing is allocated.
    let place_of = |me: usize| first + (me * LINES * 64) as u64;
    let write = |me: usize, i| {
        let words = pool.words(place_of(me), LINES * 8).unwrap();
        words.iter().step_by(8).for_each(|word| pool.pm().store(word, i));
        let flushed = pool.pm().flush_words(words);
        pool.pm().fence(flushed).unwrap();
    };
    beside_two_writers(&pool, &place, 40, write, |left, least| {
        for (me, least) in least.into_iter().enumerate() {
            let words = left.words(place_of(me), LINES * 8).unwrap();
            let found = words.iter().step_by(8).map(|word| left.pm().load(word));
            let (min, max) = (found.clone().min().unwrap(), found.max().unwrap());
            assert!(max <= min + 1, "{min} was fenced before {max} was stored");
            assert!(min >= least, "{min}, {least} waited for");
        }
    });
}

#[test]
fn a_disk_that_takes_nothing_makes_writers_wait_and_then_go_on_without_a_twin() {
    let Some(world) = super::twin_crash::World::new() else { return };
    let pool = world.create(Duration::from_millis(50));
    world.sync(&pool).unwrap();
    let stalled = world.disk.hold();
    let started = std::time::Instant::now();
    for i in 0.. {
        world.write(&pool, i % 32);
        if pool.twin().unwrap().lost.is_some() {
            break;
        }
    }
    assert!(started.elapsed() >= Duration::from_millis(50), "they waited");
    drop(stalled);
    let why = pool.twin().unwrap().lost.unwrap();
    assert!(why.contains("has taken nothing for 50ms"), "{why}");
    assert!(matches!(pool.sync(), Err(PmError::DurabilityLost(_))));
    world.write(&pool, 1);
    world.check(&pool);
    assert!(matches!(pool.close(), Err(PmError::DurabilityLost(_))));
    let pool = Pool::open(world.place.path(), &super::tiny()).unwrap();
    assert!(pool.was_clean(), "only the twin is lost");
    world.check(&pool);
}

#[test]
fn a_slow_disk_that_takes_something_makes_writers_wait_and_keeps_the_twin() {
    use super::twin_crash;
    const STEP: Duration = Duration::from_millis(150);
    let Some(mut world) = twin_crash::World::new() else { return };
    world.step = STEP;
    let opts = twin_crash::options(twin_crash::twin_of(&world.place)).size(768 << 10);
    let pool = world.create_with(&opts.journal_wait(4 * STEP));
    world.sync(&pool).unwrap();
    let pages = pool.len() / 4096;
    let mut longest = Duration::ZERO;
    for i in 0.. {
        let began = std::time::Instant::now();
        if i % 2 == 0 {
            let words = pool.words((pages / 2 + i as u64 / 2 % (pages / 2)) * 4096, 8).unwrap();
            pool.pm().fence(pool.pm().flush_words(words)).unwrap();
        } else {
            world.write(&pool, i % 32);
        }
        longest = longest.max(began.elapsed());
        let state = pool.twin().unwrap();
        assert!(state.lost.is_none(), "{state:?}");
        if state.checkpoints >= 2 {
            break;
        }
    }
    assert!(longest > 4 * STEP, "{longest:?}");
    world.check(&pool);
    pool.close().unwrap();
}
