//! Mode `Journal`: the pool's file is mapped, and the kernel writes its pages back when it likes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Kind, Pool, PoolOptions};

use super::shadow::{PAGE, Page, Pages, Reading, SECTOR, Shadow, Survive, digest_of};
use super::{
    Bench, Change, Durable, Fate, LOG, Mode, Model, Mutant, Operations, Run, STEPS, Step, apply,
    change, durable, folder, is_between, mix, sizes, verify,
};

/// What of the pool's file is of one moment, in bytes.
const GRAINS: [usize; 3] = [PAGE, SECTOR, 64];
/// Sectors of the journal's two heads.
const HEADS: usize = 2 * 4096 / SECTOR;

pub(super) struct Journal;

pub(super) struct Image {
    pool: Pages,
    journal: Pages,
    digest: u64,
    model: Arc<Model>,
    pending: Vec<Change>,
    what: String,
}

/// The state of a pool during a run.
struct World {
    file: Reading,
    random: u64,
    /// By page, every version that it had since it was durable, in order.
    pages: Vec<Vec<Arc<Page>>>,
    journal: Shadow,
    model: Arc<Model>,
    pending: Vec<Change>,
    images: Vec<Image>,
    /// Why the files could not be read.
    failed: Option<io::Error>,
    run: Run,
}

/// The pool's file is `pool`, so that the journal's name is that.
fn journal_of(pool: &Path) -> PathBuf {
    pool.with_extension("journal")
}

impl World {
    /// Of a pool that was just synchronised, and has an empty index.
    fn watch(pool: &Pool, path: &Path, run: &Run) -> io::Result<Arc<Mutex<Self>>> {
        let mut world = Self {
            file: Reading::of(path)?,
            random: mix(run.seed),
            pages: Vec::new(),
            journal: Shadow::new(&journal_of(path))?,
            model: Arc::default(),
            pending: Vec::new(),
            images: Vec::new(),
            failed: None,
            run: *run,
        };
        world.look()?;
        world.settle_pages();
        let world = Arc::new(Mutex::new(world));
        let watched = Arc::clone(&world);
        pool.pm().watch_journal(move |moment| {
            watched.lock().unwrap_or_else(PoisonError::into_inner).moment(moment);
        });
        Ok(world)
    }

    /// Notes what the pool's file is now.
    fn look(&mut self) -> io::Result<()> {
        let Self { file, pages, .. } = self;
        let newest =
            |number: usize| pages.get(number).and_then(|versions| versions.last().cloned());
        for (number, page) in file.changed(newest)? {
            if number >= pages.len() {
                pages.resize(number + 1, vec![Page::new(&[0; PAGE])]);
            }
            pages[number].push(page);
        }
        Ok(())
    }

    /// Notes that the present contents of the pool's file are durable.
    fn settle_pages(&mut self) {
        for versions in &mut self.pages {
            versions.drain(..versions.len() - 1);
        }
    }

    fn moment(&mut self, moment: JournalMoment) {
        self.random = mix(self.random);
        let is_shown = self.random.is_multiple_of(self.run.thin);
        // Between these moments nothing is written to the journal.
        let is_settled = moment != JournalMoment::Flushed;
        if !is_shown && !is_settled {
            return;
        }
        let looked = self.look();
        let looked = looked.and_then(|()| if is_settled { self.journal.look() } else { Ok(()) });
        self.failed = self.failed.take().or(looked.err());
        let Durable { batch, checkpoint, head } = durable(self.run.mutant);
        // A synchronisation is seen when it is over; a write, while any of its sectors may be missing.
        if checkpoint == Some(moment) && moment == JournalMoment::Synchronised {
            self.settle_pages();
        }
        if batch == Some(moment) && moment == JournalMoment::Writing {
            self.journal.settle(|sector| sector >= HEADS);
        }
        // Another thread may have written the last batch, and not said so yet.
        if batch == Some(JournalMoment::Written) && moment == JournalMoment::Begun {
            self.journal.settle(|sector| sector >= HEADS);
        }
        if is_shown {
            (0..self.run.images).for_each(|_| self.fail(moment));
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
        let of_page = |versions: &Vec<Arc<Page>>| match &versions[..] {
            [version] => Arc::clone(version),
            _ if grain == PAGE => Arc::clone(&versions[any(versions.len())]),
            _ => {
                let mut bytes = [0; PAGE];
                for at in (0..PAGE).step_by(grain) {
                    let version = &versions[any(versions.len())].bytes;
                    bytes[at..at + grain].copy_from_slice(&version[at..at + grain]);
                }
                Page::new(&bytes)
            }
        };
        let pool: Pages = self.pages.iter().map(of_page).collect();
        let journal = self.journal.survivors(Survive::of(self.random));
        let (model, pending) = (Arc::clone(&self.model), self.pending.clone());
        let digest = mix(digest_of(&journal) ^ mix(digest_of(&pool)));
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
    fn check(&self, kind: Kind, bench: &mut Bench) -> Result<(), String> {
        let (plain, with_journal) = options();
        let is_plain = !self.digest.is_multiple_of(32);
        let Bench { pool: file, log: journal } = bench;
        let written = file.put(&self.pool).and_then(|()| journal.put(&self.journal));
        written.map_err(|e| e.to_string())?;
        // From here on the library writes to the pool's file, and to the journal if it goes on with one.
        file.forget();
        if !is_plain {
            journal.forget();
        }
        let options = if is_plain { &plain } else { &with_journal };
        let pool = Pool::open(file.path(), options).map_err(|e| format!("{kind}: opening: {e}"))?;
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
    let plain = sizes().write_back(false);
    let with_journal = plain.clone().write_back(true).as_on_disk(true).journal(true);
    (plain, with_journal.journal_bytes(LOG as u64))
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
        let world = World::watch(&pool, &path, run).map_err(|e| told(&e))?;
        let locked = || world.lock().unwrap_or_else(PoisonError::into_inner);
        // In a fourth of the runs the disk fails, once and for good.
        let random = mix(run.seed ^ 3);
        let fails = random.is_multiple_of(4).then_some((random >> 8) % (2 * STEPS));
        if let Some(after) = fails {
            pool.pm().fail_write_back_after(after);
        }
        let mut operations = Operations(mix(run.seed ^ 2));
        for _ in 0..STEPS {
            let changes = operations.next();
            locked().pending.clone_from(&changes);
            let mut done = apply(&index, &changes).map_err(|e| told(&e));
            if done.is_ok() {
                let mut world = locked();
                change(Arc::make_mut(&mut world.model), &changes);
                world.pending.clear();
            }
            // Sooner than the journal's own thread would.
            if done.is_ok() && pool.journal().is_some_and(|it| it.used > it.capacity / 4) {
                done = pool.checkpoint().map_err(|e| told(&e));
            }
            let images = {
                let mut world = locked();
                if done.is_err() {
                    // What a failure leaves.
                    (0..8).for_each(|_| world.fail(JournalMoment::Written));
                }
                if let Some(failed) = world.failed.take() {
                    return Err(told(&failed));
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
