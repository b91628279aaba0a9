//! Mode `Journal`: the pool's file is mapped, and the kernel writes its pages back when it likes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Kind, Pool, PoolOptions};

use super::shadow::{SECTOR, Shadow, Survive, digest_of};
use super::{
    Bench, Change, Durable, Fate, Mode, Model, Mutant, Operations, Run, STEPS, Step, apply, change,
    durable, folder, is_between, mix, overwrite, verify,
};

/// The number of operations between checkpoints: fewer than the journal itself would take.
const CHECKPOINT: u64 = 16;
/// The parts of the pool's file that survive as a whole, in bytes.
const GRAINS: [usize; 3] = [4096, SECTOR, 64];
/// The longest of these.
const PAGE: usize = GRAINS[0];
/// Sectors of the journal's two heads.
const HEADS: usize = 2 * 4096 / SECTOR;
/// Images of one moment.
const IMAGES: u64 = 2;

pub(super) struct Journal;

pub(super) struct Image {
    pool: Vec<u8>,
    journal: Vec<u8>,
    digest: u64,
    model: Arc<Model>,
    pending: Vec<Change>,
    what: String,
}

/// The state of a pool during a run.
struct World {
    path: PathBuf,
    random: u64,
    /// By page, every version that it had since it was durable, in order.
    pages: Vec<Vec<Vec<u8>>>,
    journal: Shadow,
    model: Arc<Model>,
    pending: Vec<Change>,
    images: Vec<Image>,
    thin: u64,
    mutant: Option<Mutant>,
}

fn journal_of(pool: &Path) -> PathBuf {
    pool.with_extension("journal")
}

/// The pool's file is `pool`, so that the journal's name is what `journal_of` says.
fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_default()
}

impl World {
    /// Of a pool that was just synchronised, and has an empty index.
    fn watch(pool: &Pool, path: PathBuf, run: &Run) -> Arc<Mutex<Self>> {
        let mut world = Self {
            random: mix(run.seed),
            pages: Vec::new(),
            journal: Shadow::new(read(&journal_of(&path))),
            path,
            model: Arc::default(),
            pending: Vec::new(),
            images: Vec::new(),
            thin: run.thin,
            mutant: run.mutant,
        };
        world.look();
        world.settle_pages();
        let world = Arc::new(Mutex::new(world));
        let watched = Arc::clone(&world);
        pool.pm().watch_journal(move |moment| {
            watched.lock().unwrap_or_else(PoisonError::into_inner).moment(moment);
        });
        world
    }

    /// Notes the present contents of the files.
    fn look(&mut self) {
        let now = read(&self.path);
        self.pages.resize(now.len() / PAGE, vec![vec![0; PAGE]]);
        for (versions, page) in self.pages.iter_mut().zip(now.chunks(PAGE)) {
            if versions.last().is_none_or(|last| last != page) {
                versions.push(page.to_vec());
            }
        }
        self.journal.look(read(&journal_of(&self.path)));
    }

    /// Notes that the present contents of the pool's file are durable.
    fn settle_pages(&mut self) {
        for versions in &mut self.pages {
            versions.drain(..versions.len() - 1);
        }
    }

    fn moment(&mut self, moment: JournalMoment) {
        self.look();
        let Durable { batch, checkpoint, head } = durable(self.mutant);
        // A synchronisation is seen when it is over; a write, while any of its sectors may be missing.
        if checkpoint == Some(moment) && moment == JournalMoment::Synchronised {
            self.settle_pages();
        }
        if batch == Some(moment) && moment == JournalMoment::Writing {
            self.journal.settle(|sector| sector >= HEADS);
        }
        for _ in 0..IMAGES {
            self.fail(moment);
        }
        if batch == Some(moment) {
            self.journal.settle(|sector| sector >= HEADS);
        }
        if head == Some(moment) {
            self.journal.settle(|sector| sector < HEADS);
        }
        if checkpoint == Some(moment) {
            self.settle_pages();
        }
    }

    /// The power fails.
    fn fail(&mut self, moment: JournalMoment) {
        self.random = mix(self.random);
        if !self.random.is_multiple_of(self.thin) {
            return;
        }
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
            if let [version] = &versions[..] {
                pool.extend_from_slice(version);
                continue;
            }
            for at in (0..PAGE).step_by(grain) {
                pool.extend_from_slice(&versions[any(versions.len())][at..at + grain]);
            }
        }
        let (journal, digest) = self.journal.survivors(Survive::of(self.random));
        let (model, pending) = (Arc::clone(&self.model), self.pending.clone());
        let digest = mix(digest ^ mix(digest_of(&pool, 0)));
        let what = format!("{moment:?}, grains of {grain}, {} records", model.len());
        self.images.push(Image { pool, journal, digest, model, pending, what });
    }
}

impl super::Image for Image {
    fn digest(&self) -> u64 {
        self.digest
    }

    fn what(&self) -> &str {
        &self.what
    }

    /// In one mode or another.
    fn check(&self, kind: Kind, bench: &Bench) -> Result<(), String> {
        let path = bench.pool();
        let (plain, with_journal) = options();
        let written = overwrite(&path, &self.pool);
        let written = written.and_then(|()| overwrite(&journal_of(&path), &self.journal));
        written.map_err(|e| e.to_string())?;
        let options = if self.digest.is_multiple_of(32) { &with_journal } else { &plain };
        let pool = Pool::open(&path, options).map_err(|e| format!("{kind}: opening: {e}"))?;
        let right = |found: &Model| is_between(found, &self.model, &self.pending);
        let pool = Arc::new(pool);
        let verified = verify(&pool, right);
        if let Some(pool) = Arc::into_inner(pool) {
            pool.kill();
        }
        verified
    }
}

/// Options without a journal, and with one.
fn options() -> (PoolOptions, PoolOptions) {
    let plain = PoolOptions::new().size(512 << 10).huge_pages(false).write_back(false);
    let with_journal = plain.clone().write_back(true).as_on_disk(true).journal(true).grow(true);
    (plain, with_journal.journal_bytes(1 << 20))
}

impl Mode for Journal {
    const NAME: &'static str = "journal";
    // A head that is written a step later is harmless: there is room for half of the log until then.
    const MUTANTS: &'static [Mutant] = &[
        (Step::Batch, Fate::Dropped),
        (Step::Batch, Fate::Moved),
        (Step::Checkpoint, Fate::Dropped),
        (Step::Checkpoint, Fate::Moved),
        (Step::Head, Fate::Dropped),
    ];
    type Image = Image;

    fn run(run: &Run, take: &mut dyn FnMut(Image) -> bool) -> Result<(), String> {
        let told = |e: &dyn std::fmt::Display| e.to_string();
        let folder = folder().map_err(|e| told(&e))?;
        let path = folder.path().join("pool");
        let pool = Arc::new(Pool::create(&path, &options().1).map_err(|e| told(&e))?);
        let index = AnyIndex::<u64, u64>::create(&pool, "index", run.kind).map_err(|e| told(&e))?;
        pool.checkpoint().map_err(|e| told(&e))?;
        let world = World::watch(&pool, path, run);
        let locked = || world.lock().unwrap_or_else(PoisonError::into_inner);
        // In a fourth of the runs the disk fails, once and for good.
        let random = mix(run.seed ^ 3);
        let fails = random.is_multiple_of(4).then_some((random >> 8) % (2 * STEPS));
        if let Some(after) = fails {
            pool.pm().fail_write_back_after(after);
        }
        let mut operations = Operations(mix(run.seed ^ 2));
        for step in 0..STEPS {
            let changes = operations.next();
            locked().pending.clone_from(&changes);
            let mut done = apply(&index, &changes).map_err(|e| told(&e));
            if done.is_ok() {
                let mut world = locked();
                change(Arc::make_mut(&mut world.model), &changes);
                world.pending.clear();
            }
            if done.is_ok() && step % CHECKPOINT == CHECKPOINT - 1 {
                done = pool.checkpoint().map_err(|e| told(&e));
            }
            let images = {
                let mut world = locked();
                if done.is_err() {
                    // Examine the states after a failure.
                    (0..8 * world.thin).for_each(|_| world.fail(JournalMoment::Written));
                }
                std::mem::take(&mut world.images)
            };
            let goes_on = images.into_iter().all(&mut *take);
            match done {
                Err(_) if fails.is_some() => break,
                Err(why) => return Err(why),
                Ok(()) if !goes_on => break,
                Ok(()) => {}
            }
        }
        drop(index);
        if let Some(pool) = Arc::into_inner(pool) {
            pool.kill();
        }
        Ok(())
    }
}
