//! Crashes after crashes: a power failure or a kill in each step of opening, replaying, working,
//! checkpoints and closing, of a pool that has gone through others before.

use std::fs;

use pmindex_wal::sim::{SimDisk, Survivors, mix};

use super::Place;
use super::journal_crash::{AMPLE, CHOICES, Oracle, World, journal_of, options};
use crate::pool::Pool;

impl World {
    /// What a power failure leaves, as the next boot finds it.
    fn after(&self, which: Survivors) -> Option<Self> {
        let place = Place::tmpfs()?;
        self.crash(which, &place);
        let journal = fs::read(journal_of(&place.path())).unwrap();
        let file = fs::read(place.path()).unwrap();
        Some(Self::of(place, SimDisk::with_bytes(4096, &journal), file))
    }
}

/// Six lives of a pool; some end with a kill, some with a power failure in one of their steps, some
/// with a close. Returns how many power failures there were.
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
            // The process ends with what it stored, and the next one finds it in the caches.
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
