//! Power failures of a pool with a journal, every kind of index on it. The kernel writes pages of the
//! mapping back when it likes: after a crash each page of the file, or each sector, or each line of it,
//! is any version that it had since the last checkpoint, and of the last write to the journal any
//! sectors are there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Index, Kind, Pool, PoolOptions};

use super::{Model, SECTOR, change, folder, mix, verify};

/// Operations on each index.
const STEPS: u64 = 160;
/// A checkpoint after this number of writes, before the journal needs one itself.
const CHECKPOINT: u64 = 20;
/// What of the file is of one moment, in bytes.
const GRAINS: [usize; 3] = [4096, SECTOR, 64];
/// The longest of these.
const PAGE: usize = GRAINS[0];

/// What a power failure may have left, and what was true then.
struct Image {
    pool: Vec<u8>,
    journal: Vec<u8>,
    model: Model,
    /// The operation that was under way: its key, and what it makes of the record.
    pending: Option<(u64, Option<u64>)>,
    what: String,
}

/// What is known of a pool while it is used.
struct World {
    path: PathBuf,
    random: u64,
    /// By page, every version that it had since the last checkpoint, in order.
    pages: Vec<Vec<Vec<u8>>>,
    /// The journal before the write that is under way.
    before: Vec<u8>,
    model: Model,
    pending: Option<(u64, Option<u64>)>,
    images: Vec<Image>,
    /// One image for this number of moments.
    sparse: u64,
}

impl World {
    fn journal(&self) -> Vec<u8> {
        fs::read(journal_of(&self.path)).expect("a journal")
    }

    /// Notes what the pages are now.
    fn look(&mut self) {
        let now = fs::read(&self.path).expect("a pool");
        self.pages.resize(now.len() / PAGE, vec![vec![0; PAGE]]);
        for (versions, page) in self.pages.iter_mut().zip(now.chunks(PAGE)) {
            if versions.last().is_none_or(|last| last != page) {
                versions.push(page.to_vec());
            }
        }
    }

    fn moment(&mut self, moment: JournalMoment) {
        self.look();
        match moment {
            // What is there now is durable.
            JournalMoment::Synchronised => {
                for versions in &mut self.pages {
                    versions.drain(..versions.len() - 1);
                }
            }
            JournalMoment::Writing => self.before = self.journal(),
            _ => {}
        }
        self.random = mix(self.random);
        if self.random.is_multiple_of(self.sparse) {
            self.fail(moment);
        }
    }

    /// The power fails.
    fn fail(&mut self, moment: JournalMoment) {
        let mut random = mix(self.random ^ 1);
        let mut any = |count: usize| {
            random = mix(random);
            // Often the last one or the first.
            match random >> 60 {
                0..4 => count - 1,
                4..8 => 0,
                _ => random as usize % count,
            }
        };
        let grain = GRAINS[any(GRAINS.len())];
        let mut pool = Vec::with_capacity(self.pages.len() * PAGE);
        for versions in &self.pages {
            for at in (0..PAGE).step_by(grain) {
                pool.extend_from_slice(&versions[any(versions.len())][at..at + grain]);
            }
        }
        let mut journal = self.journal();
        if moment == JournalMoment::Written {
            for (new, old) in journal.chunks_mut(SECTOR).zip(self.before.chunks(SECTOR)) {
                if new != old && any(2) == 0 {
                    new.copy_from_slice(old);
                }
            }
        }
        let (model, pending) = (self.model.clone(), self.pending);
        let what = format!("{moment:?}, grains of {grain}, {} records", model.len());
        self.images.push(Image { pool, journal, model, pending, what });
    }
}

fn journal_of(pool: &Path) -> PathBuf {
    let mut name = pool.as_os_str().to_owned();
    name.push(".journal");
    name.into()
}

impl Image {
    /// Opens it, in one mode or another, checks it, and writes on.
    fn check(&self, kind: Kind, path: &Path, options: &PoolOptions) {
        fs::write(path, &self.pool).expect("room");
        fs::write(journal_of(path), &self.journal).expect("room");
        let what = &self.what;
        let pool = Pool::open(path, options).unwrap_or_else(|e| panic!("{kind}, {what}: {e}"));
        let pool = Arc::new(pool);
        let index = match AnyIndex::<u64, u64>::open(&pool, "index") {
            Ok(index) => index,
            Err(e) => panic!("{kind}, {what}: {e}"),
        };
        let mut other = self.model.clone();
        if let Some(pending) = self.pending {
            change(&mut other, pending);
        }
        let what = format!("{kind}, {what}");
        verify(&index, &what, |found| *found == self.model || *found == other);
    }
}

fn explore(kind: Kind, seed: u64, sparse: u64) -> usize {
    let folder = folder();
    let (path, copy) = (folder.path().join("pool"), folder.path().join("copy"));
    let plain = PoolOptions::new().size(512 << 10).huge_pages(false).write_back(false);
    let with_journal = plain.clone().write_back(true).as_on_disk(true).journal(true).grow(true);
    let with_journal = with_journal.journal_bytes(1 << 20);
    let pool = Arc::new(Pool::create(&path, &with_journal).expect("room"));
    let index = AnyIndex::<u64, u64>::create(&pool, "index", kind).expect("room");
    pool.checkpoint().expect("a disk that works");
    let world = Arc::new(Mutex::new(World {
        path: path.clone(),
        random: mix(seed),
        pages: Vec::new(),
        before: Vec::new(),
        model: Model::new(),
        pending: None,
        images: Vec::new(),
        sparse,
    }));
    {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        world.look();
        for versions in &mut world.pages {
            versions.drain(..versions.len() - 1);
        }
    }
    let watched = Arc::clone(&world);
    pool.pm().watch_journal(move |moment| {
        watched.lock().unwrap_or_else(PoisonError::into_inner).moment(moment);
    });
    let (mut random, mut images) = (mix(seed ^ 2), 0);
    for step in 0..STEPS {
        random = mix(random);
        let key = (random >> 8) % 200 * 7 + 2;
        let wanted = (!random.is_multiple_of(4)).then_some(random | 1);
        world.lock().expect("whole").pending = Some((key, wanted));
        match wanted {
            Some(value) => drop(index.put(&key, &value).expect("room")),
            None => drop(index.remove(&key).expect("a disk that works")),
        }
        let taken = {
            let mut world = world.lock().expect("whole");
            change(&mut world.model, (key, wanted));
            world.pending = None;
            std::mem::take(&mut world.images)
        };
        for image in &taken {
            let mode = if step % 2 == 0 { &plain } else { &with_journal };
            image.check(kind, &copy, mode);
        }
        images += taken.len();
        if step % CHECKPOINT == CHECKPOINT - 1 {
            pool.checkpoint().expect("a disk that works");
        }
    }
    images
}

#[test]
fn every_kind_survives_whatever_the_kernel_wrote_back() {
    for (seed, &kind) in (0..).zip(Kind::ALL) {
        let images = explore(kind, seed, 16);
        eprintln!("{kind}: {images}");
        assert!(images > 20, "{kind}: {images}");
    }
}
