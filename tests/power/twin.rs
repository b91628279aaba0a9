//! A pool in memory with a twin on a disk, all of which is gone but what the disk kept: of what was written
//! since the last synchronisation any sectors, and nothing of what was not written yet.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Durability, Index, Kind, Pool, PoolOptions};

use super::{Change, Model, SECTOR, change, folder, mix, verify};

/// Operations on each index.
const STEPS: u64 = 160;
/// Bytes of the log, in which the base does not lie.
const LOG: usize = 1 << 20;

/// What a power failure may have left, and what was true then.
struct Image {
    twin: Vec<u8>,
    /// Changes that were synchronised, and those that were begun.
    synced: usize,
    begun: usize,
    what: String,
}

/// What is known of a twin while it is written.
struct World {
    twin: PathBuf,
    random: u64,
    /// The log before the write that is under way.
    before: Vec<u8>,
    /// The base when it was synchronised last.
    base: Vec<u8>,
    changes: Vec<Change>,
    synced: usize,
    images: Vec<Image>,
    /// One image for this number of moments.
    sparse: u64,
}

impl World {
    fn moment(&mut self, moment: JournalMoment) {
        let now = fs::read(&self.twin).expect("a twin");
        let (log, base) = now.split_at(LOG);
        match moment {
            JournalMoment::Writing => self.before = log.to_vec(),
            JournalMoment::Synchronised => self.base = base.to_vec(),
            _ => {}
        }
        self.random = mix(self.random);
        if !self.random.is_multiple_of(self.sparse) {
            return;
        }
        // Nothing of what is not durable is left, or all of it, or some sectors.
        let (how, mut random) = (self.random >> 60, self.random);
        let mut is_kept = || {
            random = mix(random);
            how >= 4 && (how < 8 || random >> 63 == 0)
        };
        let mut twin = now.clone();
        let (log, base) = twin.split_at_mut(LOG);
        if moment == JournalMoment::Written {
            for (new, old) in log.chunks_mut(SECTOR).zip(self.before.chunks(SECTOR)) {
                if new != old && !is_kept() {
                    new.copy_from_slice(old);
                }
            }
        }
        for (new, old) in base.chunks_mut(SECTOR).zip(self.base.chunks(SECTOR)) {
            if new != old && !is_kept() {
                new.copy_from_slice(old);
            }
        }
        let (synced, begun) = (self.synced, self.changes.len());
        let what = format!("{moment:?}, {synced} of {begun} synchronised");
        self.images.push(Image { twin, synced, begun, what });
    }
}

impl Image {
    /// Opens it, checks it, and writes on.
    fn check(&self, kind: Kind, path: &Path, changes: &[Change]) {
        let twin = path.with_extension("twin");
        fs::write(&twin, &self.twin).expect("room");
        let what = format!("{kind}, {}", self.what);
        let pool = Pool::open(path, &options(&twin)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let pool = Arc::new(pool);
        let index = AnyIndex::<u64, u64>::open(&pool, "index");
        let index = index.unwrap_or_else(|e| panic!("{what}: {e}"));
        verify(&index, &what, |found| {
            let mut model = Model::new();
            changes[..self.synced].iter().for_each(|&done| change(&mut model, done));
            let mut later = changes[self.synced..self.begun].iter();
            loop {
                if *found == model {
                    return true;
                }
                match later.next() {
                    Some(&done) => change(&mut model, done),
                    None => return false,
                }
            }
        });
        drop(index);
        Arc::into_inner(pool).expect("nobody else has it").kill();
        fs::remove_file(path).expect("a pool");
    }
}

/// A twin that is written only when a thread waits for it.
fn options(twin: &Path) -> PoolOptions {
    let seldom = Duration::from_hours(1);
    let options = PoolOptions::new().size(512 << 10).huge_pages(false).twin(twin);
    options.twin_every(seldom).journal_bytes(LOG as u64).require(Durability::Periodic)
}

fn explore(kind: Kind, seed: u64, sparse: u64) -> usize {
    let folder = folder();
    let (path, copy) = (folder.path().join("pool"), folder.path().join("copy"));
    let twin = path.with_extension("twin");
    let pool = Arc::new(Pool::create(&path, &options(&twin)).expect("room"));
    let index = AnyIndex::<u64, u64>::create(&pool, "index", kind).expect("room");
    pool.sync().expect("a disk that works");
    let base = fs::read(&twin).expect("a twin").split_off(LOG);
    let world = Arc::new(Mutex::new(World {
        twin,
        random: mix(seed),
        before: Vec::new(),
        base,
        changes: Vec::new(),
        synced: 0,
        images: Vec::new(),
        sparse,
    }));
    let locked = || world.lock().unwrap_or_else(PoisonError::into_inner);
    let watched = Arc::clone(&world);
    pool.pm().watch_journal(move |moment| {
        watched.lock().unwrap_or_else(PoisonError::into_inner).moment(moment);
    });
    let (mut random, mut images) = (mix(seed ^ 2), 0);
    for step in 0..STEPS {
        random = mix(random);
        let key = (random >> 8) % 200 * 7 + 2;
        let wanted = (!random.is_multiple_of(4)).then_some(random | 1);
        locked().changes.push((key, wanted));
        match wanted {
            Some(value) => drop(index.put(&key, &value).expect("room")),
            None => drop(index.remove(&key).expect("there is memory")),
        }
        match random >> 60 {
            0..4 => {
                pool.sync().expect("a disk that works");
                locked().synced = step as usize + 1;
            }
            4 => pool.checkpoint().expect("a disk that works"),
            _ => continue,
        }
        let (taken, changes) = {
            let mut world = locked();
            (std::mem::take(&mut world.images), world.changes.clone())
        };
        for image in &taken {
            image.check(kind, &copy, &changes);
        }
        images += taken.len();
    }
    images
}

#[test]
fn of_every_kind_on_a_twin_a_power_failure_leaves_a_prefix() {
    if !Path::new("/dev/shm").is_dir() {
        return eprintln!("skipped: no tmpfs");
    }
    for (seed, &kind) in (0..).zip(Kind::ALL) {
        let images = explore(kind, seed, 4);
        eprintln!("{kind}: {images}");
        assert!(images > 15, "{kind}: {images}");
    }
}
