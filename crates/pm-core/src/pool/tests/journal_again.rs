//! Repeated crashes: a power failure or a kill in each step of opening, replay, work, checkpoints and
//! closing, of a pool that has survived earlier ones.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::fs;
use std::io;
use std::sync::Arc;

use pmindex_wal::sim::{SimDisk, Survivors, mix};

use super::journal_crash::{AMPLE, CHOICES, Oracle, World, journal_of, options};
use super::{Place, add, value_of};
use crate::error::PmError;
use crate::media::PoolDisk;
use crate::pool::Pool;
use crate::pool::journal::simulated::DISKS;

impl World {
    /// Returns the state that the next boot finds after a power failure.
    fn after(&self, which: Survivors) -> Option<Self> {
        let place = Place::tmpfs()?;
        self.crash(which, &place);
        let journal = fs::read(journal_of(&place.path())).unwrap();
        let file = fs::read(place.path()).unwrap();
        Some(Self::of(place, SimDisk::with_bytes(4096, &journal), file))
    }
}

/// Runs a pool through six lives, each ended by a kill, by a power failure in one of its steps, or by
/// closing. Returns the number of power failures.
fn lives(seed: u64) -> Option<u64> {
    let mut world = World::new()?;
    world.make_file();
    let (mut oracle, mut failures) = (Oracle::default(), 0);
    for life in 0..6 {
        let random = mix(seed << 8 | life);
        let span = [12, 40][(random >> 8) as usize % 2];
        let step = world.disk.steps() + (random >> 16) % span;
        match random % 4 {
            0 => {}
            // The process is killed; the next one finds its stores in the caches.
            1 => world.disk.fails_at(step),
            _ => world.disk.power_fails_at(step),
        }
        if let Some(pool) = world.open(AMPLE) {
            let worked = oracle.take(&pool).and_then(|()| oracle.work(&world, &pool, random, 8));
            match worked {
                Ok(()) if (random >> 24).is_multiple_of(2) => _ = pool.close(),
                _ => pool.kill(),
            }
        }
        if world.disk.is_down() {
            failures += 1;
            for choice in CHOICES {
                let look = world.after(choice)?;
                let pool = Pool::open(look.place.path(), &options().journal(false).read_only(true));
                oracle.check(&pool.unwrap_or_else(|e| panic!("{e}; seed {seed}, life {life}")));
            }
            world = world.after(Survivors::Any(random))?;
        } else {
            world.disk = world.disk.after_kill();
        }
    }
    fs::write(journal_of(&world.place.path()), world.disk.bytes()).unwrap();
    let pool = Pool::open(world.place.path(), &options().journal(false)).unwrap();
    oracle.check(&pool);
    Some(failures)
}

#[test]
fn crashes_in_opening_replaying_checkpoints_and_closing_one_after_another_lose_nothing() {
    let failures: u64 = (0..400).filter_map(lives).sum();
    assert!(failures == 0 || failures > 600, "{failures} power failures");
}

/// The pool's file on a disk that is full when a test says so: a copy-on-write file system.
#[derive(Debug)]
struct Full(Arc<AtomicBool>);

impl PoolDisk for Full {
    fn sync(&self) -> io::Result<()> {
        if self.0.load(Acquire) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync_by(&self, sync: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.sync()?;
        sync()
    }
}

#[test]
fn a_disk_that_is_full_within_a_checkpoint_loses_nothing_and_keeps_the_journal() {
    let Some(place) = Place::tmpfs() else { return };
    let (full, disk) = (Arc::new(AtomicBool::new(false)), SimDisk::new(4096, 64 * 4096));
    Pool::create(place.path(), &options().journal(false)).unwrap().close().unwrap();
    let file = fs::read(place.path()).unwrap();
    let (log, is_full) = (disk.clone(), Arc::clone(&full));
    DISKS.set(Some((
        Box::new(move || Box::new(log.clone())),
        Box::new(move || Box::new(Full(Arc::clone(&is_full)))),
    )));
    let pool = Pool::open(place.path(), &options());
    DISKS.set(None);
    let pool = pool.unwrap();
    let head = fs::read(place.path()).unwrap()[..8192].to_vec();
    add(&pool, "a", 1).unwrap();
    full.store(true, Release);
    assert!(matches!(pool.checkpoint(), Err(PmError::DurabilityLost(_))));
    let state = pool.journal().unwrap();
    assert!(state.used > 0, "nothing is cut off: {state:?}");
    assert!(state.lost.is_some_and(|why| why.contains("synchronising the pool's file")));
    assert!(add(&pool, "b", 2).is_err());
    full.store(false, Release);
    assert!(pool.checkpoint().is_err(), "for good");
    drop(pool);
    // The power fails: the file has its old contents, and the superblock that names the journal.
    let after = Place::tmpfs().unwrap();
    fs::write(after.path(), [&head, &file[8192..]].concat()).unwrap();
    fs::write(journal_of(&after.path()), disk.survivors(Survivors::None).bytes()).unwrap();
    let pool = Pool::open(after.path(), &options().journal(false)).unwrap();
    assert_eq!((value_of(&pool, "a"), value_of(&pool, "b")), (Some(1), None));
}
