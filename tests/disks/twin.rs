//! Mode `Periodic`: the pool is in memory, and after a power failure only the twin on the disk remains.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pmindex::core::JournalMoment;
use pmindex::{AnyIndex, Durability, Kind, Pool, PoolOptions};

use super::shadow::{SECTOR, Shadow, Survive};
use super::{
    Bench, Change, Durable, Fate, Mode, Model, Mutant, Operations, Run, STEPS, Step, apply, change,
    durable, folder, is_between, mix, overwrite, verify,
};

/// The bytes of the log, which are before the base.
const LOG: usize = 1 << 20;
/// Sectors of the log's two heads.
const HEADS: usize = 2 * 4096 / SECTOR;
/// Images of one moment.
const IMAGES: u64 = 4;
const PAGE: usize = 4096;
/// Pages of a group of the base, behind one with their checksums.
const GROUP: usize = PAGE / 8;

pub(super) struct Periodic;

/// The operations of a run, one after another.
type History = Arc<Vec<Vec<Change>>>;

pub(super) struct Image {
    twin: Vec<u8>,
    digest: u64,
    /// Operations that were synchronised, and those that were begun.
    synced: usize,
    begun: usize,
    history: History,
    what: String,
}

/// The state of a twin while it is written.
struct World {
    twin: PathBuf,
    /// The pool in memory.
    memory: PathBuf,
    random: u64,
    file: Shadow,
    history: History,
    synced: usize,
    images: Vec<Image>,
    thin: u64,
    mutant: Option<Mutant>,
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
    fn moment(&mut self, moment: JournalMoment) {
        self.file.look(fs::read(&self.twin).unwrap_or_default());
        let Durable { batch, checkpoint: base, head } = durable(self.mutant);
        let page_first = self.mutant == Some((Step::Page, Fate::Moved));
        if batch == Some(moment) && moment == JournalMoment::Writing {
            self.file.settle(is_log);
        }
        if base == Some(moment) && moment == JournalMoment::Synchronised {
            self.file.settle(is_base);
        }
        for _ in 0..IMAGES {
            self.fail(moment, page_first && moment == JournalMoment::Writing);
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
        if !self.random.is_multiple_of(self.thin) {
            return;
        }
        let (mut twin, mut digest) = self.file.survivors(Survive::of(self.random));
        if page_first {
            let memory = fs::read(&self.memory).unwrap_or_default();
            let mut base: Vec<_> = twin[LOG..].chunks_mut(PAGE).collect();
            for (page, bytes) in memory.chunks(PAGE).enumerate().skip(2) {
                if mix(self.random ^ page as u64).is_multiple_of(2) {
                    base[page + page / GROUP + 1].copy_from_slice(bytes);
                }
            }
            digest = mix(digest ^ self.random);
        }
        let (synced, begun) = (self.synced, self.history.len());
        let what = format!("{moment:?}, {synced} of {begun} synchronised");
        let history = Arc::clone(&self.history);
        let digest = mix(digest ^ synced as u64);
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

    fn check(&self, kind: Kind, bench: &Bench) -> Result<(), String> {
        let path = bench.pool();
        let twin = path.with_extension("twin");
        let _ = fs::remove_file(&path); // of one that panicked
        overwrite(&twin, &self.twin).map_err(|e| e.to_string())?;
        let opened = Pool::open(&path, &options(&twin));
        let pool = Arc::new(opened.map_err(|e| format!("{kind}: opening: {e}"))?);
        let verified = verify(&pool, |found| self.is_prefix(found));
        if let Some(pool) = Arc::into_inner(pool) {
            pool.kill();
        }
        fs::remove_file(&path).map_err(|e| e.to_string())?;
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
    let seldom = Duration::from_hours(1);
    let options = PoolOptions::new().size(512 << 10).huge_pages(false).twin(twin);
    options.twin_every(seldom).journal_bytes(LOG as u64).require(Durability::Periodic)
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
        let twin = path.with_extension("twin");
        let pool = Arc::new(Pool::create(&path, &options(&twin)).map_err(|e| told(&e))?);
        let index = AnyIndex::<u64, u64>::create(&pool, "index", run.kind).map_err(|e| told(&e))?;
        pool.sync().map_err(|e| told(&e))?;
        let world = Arc::new(Mutex::new(World {
            file: Shadow::new(fs::read(&twin).map_err(|e| told(&e))?),
            twin,
            memory: path.clone(),
            random: mix(run.seed),
            history: Arc::default(),
            synced: 0,
            images: Vec::new(),
            thin: run.thin,
            mutant: run.mutant,
        }));
        let locked = || world.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = Arc::clone(&world);
        pool.pm().watch_journal(move |moment| {
            watched.lock().unwrap_or_else(PoisonError::into_inner).moment(moment);
        });
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
