//! Durability: detected, required, emulated, lost.

use crate::error::{OpenError, PmError};
use crate::media::Medium;
use crate::mode::{Durability, FlushInstruction};
use crate::pool::{Pool, PoolOptions};

use super::{Place, add, tiny, value_of};

fn is_on_disk(place: &Place) -> bool {
    let pool = Pool::create(place.directory.path().join("probe"), &tiny()).unwrap();
    pool.durability() == Durability::Msync
}

#[test]
fn tmpfs_survives_only_a_process_and_says_so() {
    let Some(place) = Place::tmpfs() else { return };
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    assert_eq!((pool.durability(), pool.is_emulated()), (Durability::Process, false));
    assert!(pool.describe().contains("tmpfs"), "{}", pool.describe());
    drop(pool);
    for least in [Durability::Msync, Durability::Fence, Durability::Flush] {
        let opts = tiny().require(least);
        let error = Pool::open(place.path(), &opts).unwrap_err();
        assert!(matches!(error, OpenError::TooWeak { .. }), "{error}");
        assert!(error.to_string().contains("tmpfs"), "says why: {error}");
        let emulated = Pool::open(place.path(), &opts.emulate_pm(true));
        assert!(matches!(emulated, Err(OpenError::TooWeak { .. })), "emulation is no durability");
    }
    let pool = Pool::open(place.path(), &tiny().require(Durability::Process).emulate_pm(true));
    let pool = pool.unwrap();
    assert_eq!((pool.durability(), pool.is_emulated()), (Durability::Flush, true));
    assert!(pool.describe().contains("emulated"), "{}", pool.describe());
}

#[test]
fn an_ordinary_file_is_written_back_unless_the_caller_waives_it() {
    let place = Place::new();
    if !is_on_disk(&place) {
        eprintln!("skipped: temporary files are not on a disk");
        return;
    }
    let pool = Pool::create(place.path(), &tiny().require(Durability::Msync)).unwrap();
    assert!(pool.describe().contains("msync"), "{}", pool.describe());
    add(&pool, "a", 1).unwrap();
    drop(pool);
    let error = Pool::open(place.path(), &tiny().require(Durability::Flush)).unwrap_err();
    assert!(matches!(error, OpenError::TooWeak { available: Durability::Msync, .. }), "{error}");
    let pool = Pool::open(place.path(), &tiny().write_back(false)).unwrap();
    assert_eq!(pool.durability(), Durability::Process);
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn a_failed_write_back_poisons_the_pool_and_leaves_it_readable() {
    let place = Place::new();
    if !is_on_disk(&place) {
        eprintln!("skipped: temporary files are not on a disk");
        return;
    }
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.pm().fail_write_back_after(0);
    assert!(matches!(add(&pool, "b", 2), Err(PmError::DurabilityLost(_))));
    assert!(matches!(add(&pool, "c", 3), Err(PmError::DurabilityLost(_))), "for good");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| pool.pm().fence(crate::Flushed::nothing()));
        assert!(other.join().unwrap().is_err(), "for every thread");
    });
    assert_eq!(value_of(&pool, "a"), Some(1));
    assert!(matches!(pool.close(), Err(PmError::DurabilityLost(_))), "no clean mark");
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    assert!(!pool.was_clean());
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn nothing_that_is_stored_after_a_failed_write_back_reaches_the_file() {
    let place = Place::new();
    let opts = tiny().as_on_disk(true);
    let pool = Pool::create(place.path(), &opts).unwrap();
    let entry = add(&pool, "a", 1).unwrap();
    pool.pm().fail_write_back_after(0);
    let word = &pool.get(crate::ptr::PPtr::<super::Block>::new(entry.block())).unwrap()[0];
    pool.pm().store(word, 2);
    assert!(pool.pm().persist(word).is_err());
    assert_eq!(pool.pm().load(word), 1, "taken back");
    let file = std::fs::read(place.path()).unwrap();
    pool.pm().store(word, 3);
    pool.pm().rmw_word(word, crate::media::Rmw::Or(8));
    let flushed = pool.pm().flush(word);
    assert!(pool.pm().fence(flushed).is_err());
    assert_eq!(pool.pm().load(word), 1, "taken back again");
    pool.pm().store(word, 3);
    assert!(std::fs::read(place.path()).unwrap() == file, "the file was written");
    assert!(matches!(pool.check_writable(), Err(PmError::DurabilityLost(_))));
    assert!(matches!(pool.grow(pool.len() + 1), Err(PmError::DurabilityLost(_))));
    {
        let _recovery = pool.recovery();
        assert_eq!(pool.check_writable(), Ok(()), "in memory alone");
        assert!(pool.pm().persist(word).is_ok());
    }
    assert!(matches!(pool.close(), Err(PmError::DurabilityLost(_))));
    let pool = Pool::open(place.path(), &opts).unwrap();
    let found = value_of(&pool, "a");
    assert!(found == Some(1) || found == Some(2), "what was stored before the failure: {found:?}");
}

#[test]
fn a_fence_writes_every_page_that_was_flushed_whoever_shares_its_round() {
    const THREADS: u64 = 4;
    const PAGES: u64 = 6;
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny().size(512 << 10).as_on_disk(true)).unwrap();
    pool.pm().fail_write_back_after(u64::MAX); // and reports which words the disk has
    // The allocator has not handed these pages out. The pages of the threads are interleaved.
    let word = |thread, page| {
        let offset = (256u64 << 10) + ((page * THREADS + thread) << 12);
        (offset as usize / 8, &pool.words(offset, 1).unwrap()[0])
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                for round in 1..=25 {
                    let mut flushed = crate::Flushed::nothing();
                    for page in 0..PAGES {
                        // In another order each time, so that the first page is not always flushed first.
                        let (_, word) = word(thread, (page * 5 + round) % PAGES);
                        pool.pm().store(word, round);
                        flushed = flushed.and(pool.pm().flush(word));
                    }
                    pool.pm().fence(flushed).unwrap();
                    let disk = pool.pm().disk_image().unwrap();
                    for page in 0..PAGES {
                        let found = disk[word(thread, page).0];
                        assert_eq!(found, round, "page {page} of thread {thread}");
                    }
                }
            });
        }
    });
}

#[test]
fn growth_that_cannot_be_synchronised_is_a_failed_write_back() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny().as_on_disk(true)).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.pm().fail_write_back_after(0);
    assert!(matches!(pool.grow(1 << 20), Err(PmError::DurabilityLost(_))));
    assert!(
        matches!(add(&pool, "b", 2), Err(PmError::DurabilityLost(_))),
        "nobody is told otherwise"
    );
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn every_failing_write_back_leaves_a_pool_that_opens() {
    let place = Place::new();
    if !is_on_disk(&place) {
        eprintln!("skipped: temporary files are not on a disk");
        return;
    }
    Pool::create(place.path(), &tiny()).unwrap().close().unwrap();
    for succeed in 0.. {
        let pool = Pool::open(place.path(), &tiny()).unwrap();
        pool.pm().fail_write_back_after(succeed);
        let name = succeed.to_string();
        let added = add(&pool, &name, succeed);
        let closed = pool.close();
        let pool = Pool::open(place.path(), &tiny()).unwrap();
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
fn the_flush_instruction_is_forced_by_option_only() {
    let forced = |instruction| {
        let opts = PoolOptions::new().emulate_pm(true).flush_instruction(instruction);
        let place = Place::new();
        Pool::create(place.path(), &opts.size(1 << 20)).map(|pool| pool.pm().instruction())
    };
    if cfg!(target_arch = "x86_64") {
        let clflush = FlushInstruction::Clflush;
        assert_eq!(forced(clflush).unwrap(), clflush);
        let error = forced(FlushInstruction::DcCvap).unwrap_err();
        assert!(matches!(error, OpenError::BadOption { .. }), "{error}");
        let opts = tiny().flush_instruction(FlushInstruction::DcCvap);
        let in_memory = Pool::create_in_memory(&opts, |mapped| mapped).unwrap_err();
        assert!(matches!(in_memory, PmError::NoInstruction { .. }), "{in_memory}");
    }
}

#[test]
fn fence_and_flush_satisfy_each_other_and_nothing_weaker_does() {
    use Durability::{Fence, Flush, Msync, Process, Volatile};
    assert!(Fence.satisfies(Flush) && Flush.satisfies(Fence) && Flush.satisfies(Volatile));
    assert!(!Msync.satisfies(Fence) && !Msync.satisfies(Flush) && !Process.satisfies(Msync));
    assert!(Process.satisfies(Process) && !Volatile.satisfies(Process));
}

/// An overlay says what it is itself, not what it writes to.
#[test]
fn an_overlay_is_as_durable_as_the_directory_that_it_writes_to() {
    let place = Place::new();
    if !is_on_disk(&place) {
        eprintln!("skipped: temporary files are not on a disk");
        return;
    }
    let Some(small) = super::journal::Small::new(8) else { return };
    let modes = [
        (&small.0, "", Durability::Process, "tmpfs"),
        (&place, "", Durability::Msync, "an ordinary file"),
        (&place, ",volatile", Durability::Process, "volatile"),
    ];
    for (i, (place, more, expected, what)) in modes.into_iter().enumerate() {
        let within = |name: &str| {
            let directory = place.directory.path().join(format!("{name}{i}"));
            std::fs::create_dir(&directory).unwrap();
            directory
        };
        let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(within);
        let options = format!(
            "lowerdir={},upperdir={},workdir={}{more}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "overlay", "-o", &options, "none"]).arg(&merged);
        if !mount.output().is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: no overlay can be mounted here");
            return;
        }
        let found = Pool::create(merged.join("pool"), &tiny()).map(|pool| {
            let found = (pool.durability(), pool.describe());
            pool.close().unwrap();
            found
        });
        let strict = Pool::open(merged.join("pool"), &tiny().require(Durability::Msync)).map(drop);
        let _ = std::process::Command::new("umount").arg("-l").arg(&merged).status();
        let (durability, described) = found.unwrap();
        assert_eq!(durability, expected);
        assert!(described.contains(what), "{described}");
        assert_eq!(strict.is_ok(), expected == Durability::Msync, "{strict:?}");
    }
}
