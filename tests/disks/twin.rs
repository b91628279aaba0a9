//! Mode `Periodic`: the pool is in memory, and after a power failure only the twin on the disk remains.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Durability, Kind, Pool, PoolOptions};

use super::shadow::{PAGE, Pages, Reading, SECTOR, Shadow, Survive, digest_of};
use super::{
    Bench, Change, Durable, Fate, LOG, Mode, Model, Mutant, Operations, Run, STEPS, Step, apply,
    change, durable, folder, is_between, mix, sizes, verify,
};

/// Sectors of the log's two heads.
const HEADS: usize = 2 * 4096 / SECTOR;
/// Pages of a group of the base, behind one with their checksums.
const GROUP: usize = PAGE / 8;

pub(super) struct Periodic;

/// The operations of a run, one after another.
type History = Arc<Vec<Vec<Change>>>;

pub(super) struct Image {
    twin: Pages,
    digest: u64,
    /// Operations that were synchronised, and those that were begun.
    synced: usize,
    begun: usize,
    history: History,
    what: String,
}

/// The state of a twin while it is written.
struct World {
    /// The pool in memory.
    memory: Reading,
    random: u64,
    file: Shadow,
    history: History,
    synced: usize,
    images: Vec<Image>,
    /// Why the files could not be read.
    failed: Option<io::Error>,
    run: Run,
}

const fn is_head(sector: usize) -> bool {
    sector < HEADS
}

const fn is_log(sector: usize) -> bool {
    sector >= HEADS && sector < LOG / SECTOR
}

const fn is_base(sector: usize) -> bool {
    sector >= LOG / SECTOR
}

impl World {
    /// Of a pool that was just synchronised, and has an empty index.
    fn watch(pool: &Pool, path: &Path, twin: &Path, run: &Run) -> io::Result<Arc<Mutex<Self>>> {
        let world = Arc::new(Mutex::new(Self {
            memory: Reading::of(path)?,
            random: mix(run.seed),
            file: Shadow::new(twin)?,
            history: Arc::default(),
            synced: 0,
            images: Vec::new(),
            failed: None,
            run: *run,
        }));
        let watched = Arc::clone(&world);
        pool.pm().watch_journal(move |moment| {
            watched.lock().unwrap_or_else(PoisonError::into_inner).moment(moment);
        });
        Ok(world)
    }

    fn moment(&mut self, moment: JournalMoment) {
        self.failed = self.failed.take().or(self.file.look().err());
        let Durable { batch, checkpoint: base, head } = durable(self.run.mutant);
        let page_first = self.run.mutant == Some((Step::Page, Fate::Moved));
        if batch == Some(moment) && moment == JournalMoment::Writing {
            self.file.settle(is_log);
        }
        if base == Some(moment) && moment == JournalMoment::Synchronised {
            self.file.settle(is_base);
        }
        self.random = mix(self.random);
        if self.random.is_multiple_of(self.run.thin) {
            for _ in 0..self.file.choices(self.run.images) {
                self.fail(moment, page_first && moment == JournalMoment::Writing);
            }
        }
        if batch == Some(moment) {
            self.file.settle(is_log);
        }
        if base == Some(moment) {
            self.file.settle(is_base);
        }
        if head == Some(moment) {
            self.file.settle(is_head);
        }
    }

    /// The power fails. `page_first`: pages are in the base that the log knows nothing of.
    fn fail(&mut self, moment: JournalMoment, page_first: bool) {
        self.random = mix(self.random);
        let Self { memory, random, .. } = self;
        let mut twin = self.file.survivors(Survive::of(*random));
        if page_first {
            let base = &mut twin[LOG / PAGE..];
            let place = |page: usize| page + page / GROUP + 1;
            let changed = memory.changed(|page| base.get(place(page)).cloned());
            for (page, new) in changed.unwrap_or_default() {
                if page >= 2 && mix(*random ^ page as u64).is_multiple_of(2) {
                    base[place(page)] = new;
                }
            }
        }
        let (synced, begun) = (self.synced, self.history.len());
        let what = format!("{moment:?}, {synced} of {begun} synchronised");
        let history = Arc::clone(&self.history);
        let digest = mix(digest_of(&twin) ^ mix(synced as u64));
        self.images.push(Image { twin, digest, synced, begun, history, what });
    }
}

impl super::Image for Image {
    fn digest(&self) -> u64 {
        self.digest
    }

    fn what(&self) -> &str {
        &self.what
    }

    /// Opens it with the twin, or without after it was restored.
    fn check(&self, kind: Kind, bench: &mut Bench) -> Result<(), String> {
        let Bench { pool, log: twin } = bench;
        let _ = fs::remove_file(pool.path()); // of the one before
        twin.put(&self.twin).map_err(|e| e.to_string())?;
        let options = options(twin.path());
        let opened = if self.digest.is_multiple_of(32) {
            twin.forget();
            Pool::open(pool.path(), &options)
        } else {
            let restored = Pool::restore(pool.path(), &options);
            restored.and_then(|_| Pool::open(pool.path(), &sizes().write_back(false)))
        };
        let opened = Arc::new(opened.map_err(|e| format!("{kind}: opening: {e}"))?);
        let verified = verify(&opened, |found| self.is_prefix(found));
        if let Some(opened) = Arc::into_inner(opened) {
            opened.kill();
        }
        verified
    }
}

impl Image {
    /// Returns `true` if `found` is the state at some moment not before the last synchronisation.
    fn is_prefix(&self, found: &Model) -> bool {
        let mut model = Model::new();
        self.history[..self.synced].iter().for_each(|done| change(&mut model, done));
        let mut later = self.history[self.synced..self.begun].iter();
        loop {
            let next = later.next();
            if is_between(found, &model, next.map_or(&[], Vec::as_slice)) {
                return true;
            }
            let Some(next) = next else { return false };
            change(&mut model, next);
        }
    }
}

/// Options for a twin that is written only when a call waits for it.
fn options(twin: &Path) -> PoolOptions {
    let options = sizes().twin(twin).twin_every(Duration::from_secs(3_600));
    options.journal_bytes(LOG as u64).require(Durability::Periodic)
}

impl Mode for Periodic {
    const NAME: &'static str = "periodic";
    // A head that is written a step later is harmless: there is room for half of the log until then.
    const MUTANTS: &'static [Mutant] = &[
        (Step::Batch, Fate::Dropped),
        (Step::Batch, Fate::Moved),
        (Step::Checkpoint, Fate::Dropped),
        (Step::Checkpoint, Fate::Moved),
        (Step::Head, Fate::Dropped),
        (Step::Page, Fate::Moved),
    ];
    type Image = Image;

    /// A pool with a twin lies in memory.
    fn is_possible() -> bool {
        Path::new("/dev/shm").is_dir()
    }

    fn run(run: &Run, take: &mut dyn FnMut(Image) -> bool) -> Result<(), String> {
        let told = |e: &dyn std::fmt::Display| e.to_string();
        let folder = folder().map_err(|e| told(&e))?;
        let path = folder.path().join("pool");
        let twin = path.with_extension("log");
        let pool = Arc::new(Pool::create(&path, &options(&twin)).map_err(|e| told(&e))?);
        let index = AnyIndex::<u64, u64>::create(&pool, "index", run.kind).map_err(|e| told(&e))?;
        pool.sync().map_err(|e| told(&e))?;
        let world = World::watch(&pool, &path, &twin, run).map_err(|e| told(&e))?;
        let locked = || world.lock().unwrap_or_else(PoisonError::into_inner);
        let mut operations = Operations(mix(run.seed ^ 2));
        for step in 0..STEPS as usize {
            let changes = operations.next();
            Arc::make_mut(&mut locked().history).push(changes.clone());
            apply(&index, &changes).map_err(|e| told(&e))?;
            match operations.0 >> 60 {
                0..10 => {
                    pool.sync().map_err(|e| told(&e))?;
                    locked().synced = step + 1;
                }
                10 => pool.checkpoint().map_err(|e| told(&e))?,
                _ => continue,
            }
            if let Some(failed) = locked().failed.take() {
                return Err(told(&failed));
            }
            let images = std::mem::take(&mut locked().images);
            if !images.into_iter().all(&mut *take) {
                break;
            }
        }
        drop(index);
        if let Some(pool) = Arc::into_inner(pool) {
            pool.kill();
        }
        Ok(())
    }
}
