//! Faults of the files beside a pool, its journal and its twin: each case is a clear error, or harmless, and
//! loses nothing.

use std::fs;
use std::os::unix::fs::symlink;

use pmindex_wal::sim::Survivors;

use super::journal::{Small, crashed, journal_of, options as with_journal, plain};
use super::journal_crash::AMPLE;
use super::twin::{lose, options as with_twin, twin_at};
use super::twin_crash::{World, options as on_world, twin_of, work};
use super::{Place, add, tiny, value_of};
use crate::error::{OpenError, PmError};
use crate::pool::Pool;

#[test]
fn a_copy_without_its_journal_is_refused_and_the_pool_itself_goes_on() {
    let (place, other) = (Place::new(), Place::new());
    let pool = Pool::create(place.path(), &with_journal()).unwrap();
    add(&pool, "a", 1).unwrap();
    fs::copy(place.path(), other.path()).unwrap();
    let copied = fs::read(other.path()).unwrap();
    for opts in [plain(), with_journal(), plain().read_only(true)] {
        let error = Pool::open(other.path(), &opts).unwrap_err();
        assert!(matches!(error, OpenError::JournalMissing { .. }), "{error}");
        assert!(error.to_string().contains("pool.journal is missing"), "{error}");
        assert!(fs::read(other.path()).unwrap() == copied, "it was written to");
    }
    add(&pool, "b", 2).unwrap();
    pool.kill();
    let pool = Pool::open(place.path(), &plain()).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
    pool.close().unwrap();
    fs::copy(place.path(), other.path()).unwrap();
    assert_eq!(value_of(&Pool::open(other.path(), &plain()).unwrap(), "b"), Some(2));
}

#[test]
fn a_journal_on_another_file_system_is_no_journal_and_is_one_again_when_it_is_back() {
    let Some(small) = Small::new(4) else { return };
    let (place, away) = (crashed(), small.0.directory.path().join("journal"));
    let file = fs::read(place.path()).unwrap();
    fs::copy(journal_of(&place), &away).unwrap();
    fs::remove_file(journal_of(&place)).unwrap();
    symlink(&away, journal_of(&place)).unwrap();
    for opts in [plain(), with_journal(), plain().read_only(true)] {
        let error = Pool::open(place.path(), &opts).unwrap_err();
        assert!(matches!(error, OpenError::JournalForeign { .. }), "{error}");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert!(fs::read(place.path()).unwrap() == file, "it was written to");
    }
    fs::remove_file(journal_of(&place)).unwrap();
    fs::copy(&away, journal_of(&place)).unwrap();
    let pool = Pool::open(place.path(), &with_journal()).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), Some(2)));
    drop(pool);
    // A closed pool needs no journal, and a symbolic link in its place is not followed.
    fs::rename(journal_of(&place), &away).or_else(|_| fs::remove_file(journal_of(&place))).unwrap();
    symlink(&away, journal_of(&place)).unwrap();
    let there = fs::read(&away).unwrap();
    let error = Pool::open(place.path(), &with_journal()).unwrap_err();
    assert!(matches!(error, OpenError::JournalInTheWay { .. }), "{error}");
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(fs::read(&away).unwrap() == there);
    assert_eq!(value_of(&Pool::open(place.path(), &plain()).unwrap(), "b"), Some(2));
}

#[test]
fn a_full_disk_refuses_the_twin_or_the_growth_beside_it_and_nothing_is_lost() {
    let (Some(small), Some(place)) = (Small::new(3), Place::tmpfs()) else { return };
    let opts = with_twin(&place).twin(twin_at(&small.0));
    let large = opts.clone().journal_bytes(4 << 20);
    let full = |opened: Result<Pool, OpenError>| {
        let error = opened.map(drop).unwrap_err();
        assert!(matches!(error, OpenError::NoSpace { wanted, .. } if wanted > 4 << 20), "{error}");
        assert!(error.to_string().contains("twin"), "{error}");
        assert_eq!(fs::read_dir(small.0.directory.path()).unwrap().count(), 0, "nothing is left");
    };
    full(Pool::create(place.path(), &large));
    assert!(!place.path().exists(), "no half-made pool");
    let pool = Pool::create(place.path(), &tiny().uuid(7)).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.kill();
    full(Pool::open(place.path(), &large));
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
    pool.sync().unwrap();
    let before = pool.len();
    let error = pool.grow(8 << 20).unwrap_err();
    assert!(matches!(error, PmError::NoSpace { .. }), "{error}");
    assert_eq!(pool.len(), before);
    // Both continue, including a checkpoint.
    add(&pool, "b", 2).unwrap();
    pool.checkpoint().unwrap();
    add(&pool, "c", 3).unwrap();
    pool.sync().unwrap();
    pool.kill();
    lose(&place);
    let pool = Pool::open(place.path(), &opts).unwrap();
    assert_eq!(["a", "b", "c"].map(|name| value_of(&pool, name)), [Some(1), Some(2), Some(3)]);
}

#[test]
fn a_twin_whose_making_was_interrupted_is_made_again_unless_somebody_is_making_it() {
    let Some(place) = Place::tmpfs() else { return };
    let new = twin_at(&place).with_file_name("twin.new");
    fs::write(&new, [7; 9000]).unwrap();
    let held = fs::File::open(&new).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let busy = Pool::create(place.path(), &with_twin(&place)).unwrap_err();
    assert!(matches!(&busy, OpenError::Locked { path } if *path == new), "{busy}");
    assert!(!place.path().exists(), "no half-made pool");
    drop(held);
    let pool = Pool::create(place.path(), &with_twin(&place)).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.sync().unwrap();
    assert!(!new.exists());
    pool.kill();
    lose(&place);
    let pool = Pool::open(place.path(), &with_twin(&place)).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
}

#[test]
fn an_older_or_missing_twin_beside_the_pool_is_made_anew_and_takes_nothing_back() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = with_twin(&place);
    let pool = Pool::create(place.path(), &opts).unwrap();
    add(&pool, "a", 1).unwrap();
    pool.close().unwrap();
    let older = fs::read(twin_at(&place)).unwrap();
    for (name, value, is_missing) in [("b", 2, false), ("c", 3, true)] {
        let pool = Pool::open(place.path(), &opts).unwrap();
        add(&pool, name, value).unwrap();
        pool.close().unwrap();
        if is_missing {
            fs::remove_file(twin_at(&place)).unwrap();
        } else {
            fs::write(twin_at(&place), &older).unwrap();
        }
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert_eq!(value_of(&pool, name), Some(value));
        pool.sync().unwrap();
        pool.kill();
        lose(&place);
        let pool = Pool::open(place.path(), &opts).unwrap();
        assert_eq!(value_of(&pool, name), Some(value), "the new one has it");
        pool.close().unwrap();
    }
}

#[test]
fn a_kill_in_each_step_of_a_twin_loses_nothing() {
    let mut steps = 0;
    for step in 0.. {
        let Some(world) = World::new() else { return };
        // No step after this one takes place: the process is dead.
        world.disk.power_fails_at(4 + step);
        let pool = world.create(AMPLE);
        work(&world, &pool, step, 24);
        let over = !world.disk.is_down();
        pool.kill();
        if *world.is_named.lock() {
            let twin = world.disk.survivors(Survivors::All);
            fs::write(twin_of(&world.place), twin.bytes()).unwrap();
        }
        let opts = on_world(twin_of(&world.place));
        let pool = Pool::open(world.place.path(), &opts).unwrap();
        assert_eq!(world.check(&pool), world.last(), "the pool in memory has it all");
        pool.sync().unwrap();
        pool.kill();
        lose(&world.place);
        let pool = Pool::open(world.place.path(), &opts).unwrap();
        assert_eq!(world.check(&pool), world.last(), "and so has the twin made since");
        steps += 1;
        if over {
            break;
        }
    }
    assert!(steps > 10, "{steps} steps");
}

#[test]
fn rot_in_the_base_of_a_twin_is_told_and_never_served() {
    let Some(place) = Place::tmpfs() else { return };
    let opts = with_twin(&place);
    let pool = Pool::create(place.path(), &opts).unwrap();
    add(&pool, "a", 1).unwrap();
    let pages = pool.len() / 4096;
    pool.close().unwrap();
    let whole = fs::read(twin_at(&place)).unwrap();
    let base = whole.len() - (pages as usize + 1) * 4096;
    lose(&place);
    // All checksums in use, and some bytes of every page.
    let of_sums = (0..pages as usize * 8).step_by(3);
    for at in of_sums.chain((4096..whole.len() - base).step_by(1021)) {
        let mut rotten = whole.clone();
        rotten[base + at] ^= 1 << (at % 8);
        fs::write(twin_at(&place), &rotten).unwrap();
        let error = Pool::open(place.path(), &opts).unwrap_err();
        assert!(matches!(error, OpenError::TwinDamaged { .. }), "{at}: {error}");
        assert!(!place.path().exists(), "nothing is made");
        assert!(fs::read(twin_at(&place)).unwrap() == rotten, "it stays");
    }
    fs::write(twin_at(&place), &whole).unwrap();
    assert_eq!(value_of(&Pool::open(place.path(), &opts).unwrap(), "a"), Some(1));
}
