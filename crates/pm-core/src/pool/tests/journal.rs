//! Pools with a journal, in files: which files belong together, and which are refused.

use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use core::time::Duration;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pmindex_wal::sim::SimDisk;

use crate::error::{OpenError, PmError};
use crate::media::{Medium, PoolDisk};
use crate::mode::Durability;
use crate::pool::journal::simulated::DISKS;
use crate::pool::{Pool, PoolOptions};

use super::{Place, add, tiny, value_of};

pub(super) fn options() -> PoolOptions {
    tiny().as_on_disk(true).journal(true).journal_bytes(1 << 20)
}

pub(super) fn plain() -> PoolOptions {
    tiny().as_on_disk(true)
}

pub(super) fn journal_of(place: &Place) -> PathBuf {
    place.directory.path().join("pool.journal")
}

/// Makes a pool with `a` = 1 durable in its file and `b` = 2 in its journal alone, by restoring an earlier
/// state of the file.
pub(super) fn crashed() -> Place {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options().uuid(7)).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.checkpoint().unwrap();
    let file = fs::read(place.path()).unwrap();
    add(&pool, "b", 2).unwrap();
    assert!(pool.journal().unwrap().used > 0);
    pool.kill();
    fs::write(place.path(), file).unwrap();
    place
}

#[test]
fn what_the_journal_alone_has_is_replayed_whatever_the_mode_of_the_next_opening() {
    for opts in [options(), plain(), plain().write_back(false), plain().emulate_pm(true)] {
        let place = crashed();
        let before = fs::read(place.path()).unwrap();
        let reader = Pool::open(place.path(), &plain().read_only(true)).unwrap();
        assert_eq!((value_of(&reader, "a"), value_of(&reader, "b")), (Some(1), Some(2)));
        drop(reader);
        assert!(fs::read(place.path()).unwrap() == before, "a reader changes nothing");
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
        assert!(!pool.was_clean());
        pool.close().unwrap();
    }
}

#[test]
fn a_pool_that_was_closed_is_its_file_alone() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    assert_eq!(pool.durability(), Durability::Journal);
    assert!(pool.describe().contains("journal"), "{}", pool.describe());
    add(&pool, "a", 1).unwrap();
    pool.close().unwrap();
    fs::remove_file(journal_of(&place)).unwrap();
    let pool = Pool::open(place.path(), &plain()).unwrap();
    assert!(pool.was_clean() && pool.journal().is_none());
    assert_eq!(value_of(&pool, "a"), Some(1));
    drop(pool);
    let pool = Pool::open(place.path(), &options().require(Durability::Msync)).unwrap();
    add(&pool, "b", 2).unwrap();
    pool.kill();
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
}

#[test]
fn a_backup_of_a_pool_that_is_open_needs_no_journal() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    add(&pool, "a", 1).unwrap();
    let mut image = vec![0; pool.len() as usize];
    pool.read_image(0, &mut image).unwrap();
    let (copy, bare) = (place.directory.path().join("copy"), place.directory.path().join("bare"));
    fs::write(&copy, image).unwrap();
    assert_eq!(value_of(&Pool::open(&copy, &plain()).unwrap(), "a"), Some(1));
    // The file needs its journal.
    fs::copy(place.path(), &bare).unwrap();
    let error = Pool::open(&bare, &plain()).unwrap_err();
    assert!(matches!(error, OpenError::JournalMissing { .. }), "{error}");
}

/// A pool's file, its journal, and a function that checks the error.
type Case<'a> = (&'a [u8], Option<&'a [u8]>, &'a dyn Fn(&OpenError) -> bool);

#[test]
fn a_missing_foreign_older_newer_cut_or_damaged_journal_is_an_error_and_changes_nothing() {
    let place = crashed();
    let (file, journal) = (fs::read(place.path()).unwrap(), fs::read(journal_of(&place)).unwrap());
    let other = Place::new();
    Pool::create(other.path(), &options().uuid(8)).unwrap().kill();
    let foreign = fs::read(journal_of(&other)).unwrap();
    // The journal of the next opening, and a copy of this pool that diverged.
    Pool::open(place.path(), &options()).unwrap().kill();
    let newer = fs::read(journal_of(&place)).unwrap();
    let later = fs::read(place.path()).unwrap();
    fs::write(place.path(), &file).unwrap();
    fs::write(journal_of(&place), &journal).unwrap();
    Pool::open(place.path(), &options()).unwrap().kill();
    let twin = fs::read(journal_of(&place)).unwrap();

    let because = |why: &'static str| move |error: &OpenError| error.to_string().contains(why);
    let mut cut = journal.clone();
    cut.truncate(journal.len() / 2);
    let mut damaged = journal.clone();
    damaged[..8192].fill(7);
    let missing = |error: &OpenError| matches!(error, OpenError::JournalMissing { .. });
    let cases: [Case<'_>; 7] = [
        (&file, None, &missing),
        (&file, Some(&foreign), &because("another pool")),
        (&file, Some(&newer), &because("newer than")),
        (&later, Some(&journal), &because("older than")),
        (&later, Some(&twin), &because("a copy of this pool")),
        (&file, Some(&cut), &because("is truncated")),
        (&file, Some(&damaged), &because("no log")),
    ];
    for (i, (file, journal, is_right)) in cases.into_iter().enumerate() {
        fs::write(place.path(), file).unwrap();
        let _ = fs::remove_file(journal_of(&place));
        if let Some(journal) = journal {
            fs::write(journal_of(&place), journal).unwrap();
        }
        for opts in [options(), plain(), plain().read_only(true)] {
            let error = Pool::open(place.path(), &opts).unwrap_err();
            assert!(is_right(&error), "case {i}: {error}");
            assert!(fs::read(place.path()).unwrap() == file, "case {i}");
        }
    }
    fs::write(place.path(), &file).unwrap();
    fs::write(journal_of(&place), &journal).unwrap();
    assert_eq!(value_of(&Pool::open(place.path(), &plain()).unwrap(), "b"), Some(2));
}

#[test]
fn a_pool_whose_journal_is_lost_opens_for_whoever_accepts_that() {
    let lost: [fn(&Place); 3] = [
        |place| fs::remove_file(journal_of(place)).unwrap(),
        |place| fs::write(journal_of(place), [7; 8192]).unwrap(),
        |place| {
            let whole = fs::read(journal_of(place)).unwrap();
            fs::write(journal_of(place), &whole[..whole.len() / 2]).unwrap();
        },
    ];
    for (i, lose) in lost.into_iter().enumerate() {
        let place = crashed();
        lose(&place);
        let before = fs::read(place.path()).unwrap();
        assert!(Pool::open(place.path(), &plain()).is_err());
        let accepts = plain().accept_journal_loss(true);
        let reader = Pool::open(place.path(), &accepts.clone().read_only(true)).unwrap();
        assert_eq!((value_of(&reader, "a"), value_of(&reader, "b")), (Some(1), None), "{i}");
        drop(reader);
        assert!(fs::read(place.path()).unwrap() == before, "a reader changes nothing");
        let pool = Pool::open(place.path(), &accepts).unwrap();
        assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), None), "{i}");
        assert!(!pool.was_clean());
        pool.close().unwrap();
        // The pool needs no journal from now on.
        Pool::open(place.path(), &plain()).unwrap().close().unwrap();
    }
    // An existing journal is not lost.
    let place = crashed();
    let pool = Pool::open(place.path(), &plain().accept_journal_loss(true)).unwrap();
    assert_eq!(value_of(&pool, "b"), Some(2));
}

#[test]
fn a_file_and_a_journal_of_different_moments_are_refused() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    let copy = || (fs::read(place.path()).unwrap(), fs::read(journal_of(&place)).unwrap());
    let mut moments = Vec::new();
    for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
        add(&pool, name, i as u64).unwrap();
        moments.push(copy());
        pool.checkpoint().unwrap();
    }
    add(&pool, "d", 3).unwrap();
    moments.push(copy());
    pool.kill();
    for (i, (file, _)) in moments.iter().enumerate() {
        for (j, (_, journal)) in moments.iter().enumerate() {
            if i == j + 1 {
                continue; // without a checkpoint in between they are indistinguishable
            }
            fs::write(place.path(), file).unwrap();
            fs::write(journal_of(&place), journal).unwrap();
            for opts in [plain().read_only(true), plain()] {
                let opened = Pool::open(place.path(), &opts);
                if i == j {
                    let pool = opened.unwrap();
                    let name = ["a", "b", "c", "d"][i];
                    assert_eq!(value_of(&pool, name), Some(i as u64));
                    continue;
                }
                let error = opened.map(|pool| value_of(&pool, "b")).unwrap_err();
                assert!(error.to_string().contains("older copy"), "{i}, {j}: {error}");
                assert!(fs::read(place.path()).unwrap() == *file, "{i}, {j}");
            }
        }
    }
}

#[test]
fn a_journal_in_which_the_disk_lost_something_is_refused() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    add(&pool, "a", 1).unwrap();
    let used = pool.journal().unwrap().used as usize;
    add(&pool, "b", 2).unwrap();
    pool.kill();
    let mut journal = fs::read(journal_of(&place)).unwrap();
    journal[4 * 4096 + used - 4096 + 100] ^= 1;
    fs::write(journal_of(&place), journal).unwrap();
    let file = fs::read(place.path()).unwrap();
    for opts in [plain().read_only(true), plain()] {
        let error = Pool::open(place.path(), &opts).unwrap_err();
        assert!(error.to_string().contains("the disk lost"), "{error}");
        assert!(fs::read(place.path()).unwrap() == file);
    }
}

#[test]
fn a_journal_that_another_pool_may_need_is_not_taken() {
    let place = crashed();
    fs::rename(place.path(), place.directory.path().join("moved")).unwrap();
    let error = Pool::create(place.path(), &options()).unwrap_err();
    assert!(matches!(error, OpenError::JournalInTheWay { .. }), "{error}");
    let elsewhere = Pool::open(place.directory.path().join("moved"), &plain()).unwrap_err();
    assert!(matches!(elsewhere, OpenError::JournalMissing { .. }), "{elsewhere}");
    // Moved with its journal, the pool opens, and the old name is free.
    let moved = place.directory.path().join("moved.journal");
    fs::rename(journal_of(&place), moved).unwrap();
    Pool::create(place.path(), &options()).unwrap().close().unwrap();
    let pool = Pool::open(place.directory.path().join("moved"), &plain()).unwrap();
    assert_eq!(value_of(&pool, "b"), Some(2));
    // A symbolic link leads to the same journal.
    let link = place.directory.path().join("link");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let pool = Pool::open(&link, &options()).unwrap();
    add(&pool, "c", 3).unwrap();
    pool.kill();
    assert_eq!(value_of(&Pool::open(place.path(), &plain()).unwrap(), "c"), Some(3));
    // A journal whose creation was interrupted belongs to no pool.
    let half = Place::new();
    fs::write(journal_of(&half), vec![0; 100_000]).unwrap();
    Pool::create(half.path(), &options()).unwrap().kill();
    // A file that is no journal is left alone.
    let strange = Place::new();
    fs::write(journal_of(&strange), vec![1; 100_000]).unwrap();
    let error = Pool::create(strange.path(), &options()).unwrap_err();
    assert!(matches!(error, OpenError::JournalInTheWay { .. }), "{error}");
}

#[test]
fn a_creation_that_ended_midway_is_not_in_the_way_of_the_next() {
    let place = Place::new();
    for succeed in 0..3 {
        // The state after a crash during creation: the journal has its name, and the pool's file does not
        // yet.
        let created = Pool::create_with(place.path(), &options(), |mapped| {
            mapped.fail_write_back_after(succeed);
            mapped
        });
        if let Ok(pool) = created {
            pool.kill();
            fs::remove_file(place.path()).unwrap();
        }
        assert!(!place.path().exists());
        let pool = Pool::create(place.path(), &options()).unwrap();
        add(&pool, "a", 1).unwrap();
        pool.close().unwrap();
        fs::remove_file(place.path()).unwrap();
    }
}

#[test]
fn a_journal_in_use_is_taken_by_nobody_else() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.checkpoint().unwrap(); // nothing that is needed
    let moved = place.directory.path().join("moved");
    fs::rename(place.path(), &moved).unwrap();
    for opts in [options(), options().journal_bytes(2 << 20)] {
        let error = Pool::create(place.path(), &opts).unwrap_err();
        assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    }
    add(&pool, "b", 2).unwrap();
    pool.kill();
    fs::rename(journal_of(&place), place.directory.path().join("moved.journal")).unwrap();
    let pool = Pool::open(&moved, &options()).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
}

#[test]
fn of_many_creators_one_has_a_journal_and_the_pool() {
    for _ in 0..20 {
        let place = Place::new();
        let created = std::thread::scope(|scope| {
            let create = || Pool::create(place.path(), &options()).ok();
            let threads = [0; 3].map(|_| scope.spawn(create));
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let [pool] = <[Pool; 1]>::try_from(created).expect("one");
        let before = fs::read(place.path()).unwrap();
        add(&pool, "a", 1).unwrap();
        pool.kill();
        fs::write(place.path(), before).unwrap(); // the writes are in the journal alone
        let pool = Pool::open(place.path(), &plain()).unwrap();
        assert_eq!(value_of(&pool, "a"), Some(1));
    }
}

#[test]
fn every_failing_write_leaves_a_pool_that_opens_with_what_was_acknowledged() {
    let place = Place::new();
    Pool::create(place.path(), &options()).unwrap().close().unwrap();
    for succeed in 0.. {
        let pool = Pool::open(place.path(), &options()).unwrap();
        pool.pm().fail_write_back_after(succeed);
        let name = succeed.to_string();
        let added = add(&pool, &name, succeed);
        let refused = matches!(added, Err(PmError::DurabilityLost(_)));
        assert_eq!(refused, pool.pm().is_poisoned());
        assert_eq!(pool.journal().unwrap().lost.is_some(), refused);
        let closed = pool.close();
        let pool = Pool::open(place.path(), &options()).unwrap();
        if added.is_ok() {
            assert_eq!(value_of(&pool, &name), Some(succeed), "acknowledged");
        }
        if closed.is_ok() {
            assert!(pool.was_clean());
            return;
        }
    }
}

#[test]
fn nothing_that_is_stored_after_a_failed_write_reaches_the_file() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    let entry = add(&pool, "a", 1).unwrap();
    pool.pm().fail_write_back_after(0);
    let word = &pool.get(crate::ptr::PPtr::<super::Block>::new(entry.block())).unwrap()[0];
    pool.pm().store(word, 2);
    assert!(pool.pm().persist(word).is_err());
    assert_eq!(pool.pm().load(word), 1, "taken back");
    let file = fs::read(place.path()).unwrap();
    {
        // Changes that the recovery of an index makes in memory stay there.
        let _recovery = pool.recovery();
        pool.pm().store(word, 3);
        assert!(pool.pm().persist(word).is_ok());
    }
    assert!(fs::read(place.path()).unwrap() == file, "the file was written");
    assert!(matches!(pool.close(), Err(PmError::DurabilityLost(_))));
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn a_small_journal_goes_round_and_a_pool_grows_beside_it() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options().grow(true)).unwrap();
    let entry = add(&pool, "a", 0).unwrap();
    let word = &pool.get(crate::ptr::PPtr::<super::Block>::new(entry.block())).unwrap()[0];
    for i in 1..=600 {
        pool.pm().store(word, i);
        pool.pm().persist(word).unwrap();
    }
    let journal = pool.journal().unwrap();
    assert!(journal.checkpoints > 0 && journal.used <= journal.capacity, "{journal:?}");
    let old = pool.len();
    assert!(pool.grow(4 * old).unwrap() >= 4 * old);
    pool.kill();
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert_eq!((value_of(&pool, "a"), pool.len() > old), (Some(600), true));
}

/// A disk that takes some time for whatever it is given at once.
#[derive(Debug)]
struct Slow(Duration, Arc<AtomicU64>);

impl PoolDisk for Slow {
    fn sync(&self) -> io::Result<()> {
        self.push(0..0)
    }

    fn push(&self, _: Range<u64>) -> io::Result<()> {
        self.1.fetch_add(1, AcqRel);
        std::thread::sleep(self.0);
        Ok(())
    }

    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        sync()
    }
}

#[test]
fn a_slow_disk_that_takes_something_makes_writers_wait_and_poisons_nothing() {
    const STEP: Duration = Duration::from_millis(100);
    let Some(place) = Place::tmpfs() else { return };
    let opts = plain().size(128 << 20).huge_pages(false);
    Pool::create(place.path(), &opts).unwrap().close().unwrap();
    let (steps, disk) = (Arc::new(AtomicU64::new(0)), SimDisk::new(4096, 1 << 20));
    let taken = Arc::clone(&steps);
    DISKS.set(Some((
        Box::new(move || Box::new(disk.clone())),
        Box::new(move || Box::new(Slow(STEP, Arc::clone(&taken)))),
    )));
    let pool = Pool::open(place.path(), &opts.journal(true).journal_wait(10 * STEP));
    DISKS.set(None);
    let pool = pool.unwrap();
    let mut longest = Duration::ZERO;
    for part in 0.. {
        let mut flushed = crate::media::Flushed::nothing();
        let first = 512 * (4 + part % 60);
        for page in first..first + 512 {
            let words = pool.words(page * 4096, 8).unwrap();
            pool.pm().store(&words[0], part + 1);
            flushed = flushed.and(pool.pm().flush_words(words));
        }
        let began = Instant::now();
        pool.pm().fence(flushed).unwrap_or_else(|_| panic!("{:?}", pool.journal()));
        longest = longest.max(began.elapsed());
        if pool.journal().unwrap().checkpoints > 0 {
            break;
        }
    }
    assert!(longest > 10 * STEP && steps.load(Acquire) > 12, "{longest:?} {steps:?}");
    pool.kill();
}

/// A file system of this many MiB; unmounted when dropped.
pub(super) struct Small(pub(super) Place);

impl Small {
    pub(super) fn new(mib: u64) -> Option<Self> {
        let place = Place::new();
        let size = format!("size={mib}m");
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(place.directory.path());
        let mounted = mount.output().is_ok_and(|done| done.status.success());
        if !mounted {
            eprintln!("skipped: nothing can be mounted here");
        }
        mounted.then_some(Self(place))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ =
            std::process::Command::new("umount").arg("-l").arg(self.0.directory.path()).status();
    }
}

#[test]
fn a_full_disk_refuses_the_journal_or_the_growth_beside_it_and_nothing_is_lost() {
    let Some(small) = Small::new(3) else { return };
    let place = &small.0;
    let full = |opened: Result<Pool, OpenError>| {
        let error = opened.map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NoSpace { wanted, .. } if wanted == 4 << 20), "{error}");
        assert!(!journal_of(place).exists());
    };
    let large = options().journal_bytes(4 << 20);
    full(Pool::create(place.path(), &large));
    assert!(!place.path().exists(), "no half-made pool");
    let pool = Pool::create(place.path(), &plain()).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.kill();
    full(Pool::open(place.path(), &large)); // The pool is complete without a journal.
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
    let before = pool.len();
    let error = pool.grow(8 << 20).unwrap_err();
    assert!(matches!(error, PmError::NoSpace { .. }), "{error}");
    assert_eq!(pool.len(), before);
    // Both continue, including a checkpoint.
    add(&pool, "b", 2).unwrap();
    pool.checkpoint().unwrap();
    add(&pool, "c", 3).unwrap();
    pool.kill();
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert_eq!(["a", "b", "c"].map(|name| value_of(&pool, name)), [Some(1), Some(2), Some(3)]);
}

/// A copy may leave out what is zero.
#[test]
fn a_journal_with_holes_is_allocated_before_it_is_used_again() {
    let Some(small) = Small::new(3) else { return };
    let place = &small.0;
    let pool = Pool::create(place.path(), &options()).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.close().unwrap();
    let sparse = || {
        let journal = fs::OpenOptions::new().write(true).open(journal_of(place)).unwrap();
        journal.set_len(0).unwrap();
        journal.set_len(1 << 20).unwrap();
    };
    sparse();
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert!(fs::metadata(journal_of(place)).unwrap().blocks() * 512 >= 1 << 20);
    pool.close().unwrap();
    sparse();
    let rest = fs::File::create(place.directory.path().join("rest")).unwrap();
    let mut len = 0;
    while rest.write_all_at(&[1; 4096], len).is_ok() {
        len += 4096;
    }
    rest.set_len(len - (256 << 10)).unwrap();
    let error = Pool::open(place.path(), &options()).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    let pool = Pool::open(place.path(), &plain()).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
}

/// Flushing cells that are not the pool's is a mistake of the caller, and has no effect.
#[test]
fn lines_that_are_not_the_pools_keep_no_change_of_the_superblock_from_the_file() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    add(&pool, "a", 1).unwrap();
    // One of them lies below the pool's mapping, and one above it.
    let others = [0; 8].map(|_| Place::new());
    let others: Vec<_> =
        others.iter().map(|place| Pool::create(place.path(), &plain()).unwrap()).collect();
    for other in &others {
        let _never_fenced = pool.pm().flush_words(other.words(8192, 512).unwrap());
    }
    let len = pool.grow(2 * pool.len()).unwrap();
    add(&pool, "b", 2).unwrap();
    pool.kill();
    let pool = Pool::open(place.path(), &options()).unwrap();
    assert_eq!((pool.len(), value_of(&pool, "b")), (len, Some(2)));
}

/// A disk on which the kernel fails to write pages back, when a test says so.
#[derive(Debug)]
struct Fading(Arc<AtomicBool>);

impl PoolDisk for Fading {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        if self.0.load(Acquire) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        sync()
    }
}

/// The page that is read again from the disk may lack what was acknowledged, and what is stored to it then too.
#[test]
fn nothing_is_logged_after_the_kernel_has_failed_to_write_a_page_back() {
    let Some(place) = Place::tmpfs() else { return };
    Pool::create(place.path(), &plain()).unwrap().close().unwrap();
    let (fails, disk) = (Arc::new(AtomicBool::new(false)), SimDisk::new(4096, 1 << 20));
    let (log, told) = (disk.clone(), Arc::clone(&fails));
    DISKS.set(Some((
        Box::new(move || Box::new(log.clone())),
        Box::new(move || Box::new(Fading(Arc::clone(&told)))),
    )));
    let pool = Pool::open(place.path(), &options());
    DISKS.set(None);
    let pool = pool.unwrap();
    let entry = add(&pool, "a", 1).unwrap();
    let word = &pool.get(crate::ptr::PPtr::<super::Block>::new(entry.block())).unwrap()[0];
    fails.store(true, Release);
    let before = disk.bytes();
    pool.pm().store(word, 2);
    assert!(pool.pm().persist(word).is_err());
    assert!(disk.bytes() == before, "nothing was logged");
    let why = pool.journal().unwrap().lost.unwrap();
    assert!(why.contains("writing pages of the pool's file back"), "{why}");
    assert_eq!(pool.pm().load(word), 1, "taken back");
}

#[test]
fn what_was_logged_is_in_the_file_some_seconds_later() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &options()).unwrap();
    for name in ["a", "b"] {
        let before = pool.journal().unwrap().checkpoints;
        add(&pool, name, 1).unwrap();
        let began = Instant::now();
        while pool.journal().unwrap().checkpoints == before {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", pool.journal());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(pool.journal().unwrap().used, 0);
    }
    pool.close().unwrap();
}
