//! Creating and opening a buffer.
//!
//! Opening reads the log, not the pages: for every page it notes the updates after the horizon. Then it
//! serves. A frame is verified when its page is used first (thesis, figure 4.7):
//!
//! | the frame | is | then |
//! | --- | --- | --- |
//! | not whole, or of another page | corrupted (1) | the page is read from the disk, its updates from the log |
//! | whole, its LSN before that of the last update in the log | outdated (2) | its updates are read from the log |
//! | whole, its LSN after it | dirty (2): impossible here | as if corrupted |
//! | whole, its LSN that of the last update; or the log has none | valid (4) | it is used as it is |
//!
//! A frame that is whole, has the right LSN, and is wrong nevertheless (3, silent) requires two equal sums
//! of 64 bits.
//!
//! Repeated updates are not flushed either: the log has them until the horizon passes them. So opening, and
//! each first use, may be interrupted and repeated.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use pmindex_core::{Flushed, Medium, OpenIndex, PmError, Pool};
use pmindex_log::{LINE_WORDS, Log};
use pmindex_wal::Disk;

use crate::active::{Active, first_of};
use crate::archive::{Archive, Owner};
use crate::buffer::{Buffer, Parts};
use crate::checkpoint::Progress;
use crate::device::Device;
use crate::error::BufferError;
use crate::frames::{Frames, Place};
use crate::layout::{FORMAT, Root, Shape, checksum, staged_word};
use crate::metrics::{add, count};
use crate::options::{BufferOptions, Mutant};
use crate::page::{HEADER, Layout, Omits};
use crate::record::{NUMBER_BITS, REDO, Update, decode};
use crate::runs::Runs;

/// The number of pages that a step of the recovery makes whole.
const TOGETHER: usize = 16;

impl<M: Medium> Buffer<M> {
    /// Creates a buffer of this name over a disk, whose contents are lost. It has as many pages as fit on
    /// the disk.
    ///
    /// # Errors
    /// [`PmError::BadOption`], [`PmError::NameTaken`], [`PmError::Full`], and the errors of
    /// [`Pool::create_index`] and of the disk. If the pool is full, the created part remains, and
    /// [`open`](Self::open) creates the rest when there is room.
    ///
    /// # Cost
    /// A write to the disk, 7 fences, and 2 for each chunk of frames.
    pub fn create(
        pool: &Arc<Pool<M>>,
        name: &str,
        disk: Arc<dyn Disk>,
        options: &BufferOptions,
    ) -> Result<Self, BufferError> {
        pool.check_writable()?;
        let (bytes, pm) = (options.page_bytes, pool.pm());
        let identity =
            options.identity.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let bad = |what, value| Err(PmError::BadOption { what, value }.into());
        let smallest = if options.identity.is_some() { 128 } else { 4096 };
        if !(smallest..=65_536).contains(&bytes) || !bytes.is_power_of_two() {
            return bad("bytes of a page", bytes);
        }
        let device = Device::new(disk, bytes);
        let total = options.frames.saturating_add(options.staging);
        let most = (pool.largest_block() / 8).saturating_sub(16) / (bytes / 8 + 1);
        let shape = Shape {
            identity,
            page_words: bytes / 8,
            frames: options.frames,
            pages: device.pages(),
            sums: options.sums,
            staging: options.staging,
            chunk_frames: total.min(most),
        };
        if Shape::from_words(shape.words()) != Some(shape) {
            return bad("frames, pages, partitions or staging area of a buffer", options.frames);
        }
        let layout = Layout::new(shape.page_words as usize, shape.sums, identity);
        if let Some(archive) = &options.archive {
            Archive::open(Arc::clone(archive), Owner::new(&shape, &layout, options.mutant))?;
        }
        // The disk records to which buffer it belongs before the buffer is in the directory.
        let mut own = vec![0; shape.page_words as usize];
        let words = shape.words();
        own[HEADER..][..words.len()].copy_from_slice(&words);
        layout.seal(&mut own, 0, 1);
        device.write(0, &own)?;
        device.sync()?;
        let open = pool.create_index::<Root>(name, options.kind, FORMAT, |root| {
            let cells = [
                &root.identity,
                &root.page_words,
                &root.frames,
                &root.pages,
                &root.partitions,
                &root.staging,
                &root.chunk_frames,
            ];
            cells.iter().zip(words).for_each(|(cell, word)| pm.store(*cell, word));
            pm.store(&root.checksum, checksum(*b"bufr", &words));
            let horizon = [0, checksum(*b"hrzn", &[identity, 0]), 0, 0];
            pm.write_words(&root.horizon, &horizon);
            pm.store(&root.staged, staged_word(identity, 0));
            pm.store_word(root.log.as_word(), 0);
            pm.store_word(root.table.as_word(), 0);
            pm.store(&root.archived, 0);
            pm.flush(root)
        })?;
        Self::start(pool, open, device, options)
    }

    /// Opens the buffer of this name, over the disk with which it was created. Pages are verified when they
    /// are used; [`recover_step`](Self::recover_step) does the rest.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if its root or the log is damaged, [`PmError::AlreadyOpen`],
    /// [`BufferError::WrongDisk`], and the errors of the disk.
    ///
    /// # Cost
    /// Reads the log, and a word for each frame. No fence, if its creation was complete and no page was on
    /// its way to the disk.
    pub fn open(
        pool: &Arc<Pool<M>>,
        name: &str,
        disk: Arc<dyn Disk>,
        options: &BufferOptions,
    ) -> Result<Option<Self>, BufferError> {
        Self::open_on(pool, name, |_| Ok(disk), options)
    }

    /// Does what [`open`](Self::open) does, over the disk that `disk` returns for the buffer's
    /// [identity](Self::identity).
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of `disk`.
    pub fn open_on(
        pool: &Arc<Pool<M>>,
        name: &str,
        disk: impl FnOnce(u64) -> Result<Arc<dyn Disk>, BufferError>,
        options: &BufferOptions,
    ) -> Result<Option<Self>, BufferError> {
        pool.check_writable()?;
        let Some(open) = pool.open_index(name)? else { return Ok(None) };
        let at = open.root::<Root>();
        let corrupt = |what| Err(PmError::Corrupt { what, offset: at.offset() }.into());
        if (open.kind, open.layout) != (options.kind, FORMAT) {
            return corrupt("an index that is no buffer of this version");
        }
        let Some(shape) = read_shape(pool, pool.get(at)?) else {
            return corrupt("the root of a buffer");
        };
        let device = Device::new(disk(shape.identity)?, shape.page_bytes());
        if device.pages() < shape.pages {
            return Err(BufferError::WrongDisk { what: "it is too short" });
        }
        let own = device.read(0)?;
        let layout = Layout::new(shape.page_words as usize, shape.sums, shape.identity);
        if layout.verify(&own, 0).is_none() || own[HEADER..][..7] != shape.words() {
            return Err(BufferError::WrongDisk { what: "its first page is another one's" });
        }
        Self::start(pool, open, device, options).map(Some)
    }

    fn start(
        pool: &Arc<Pool<M>>,
        open: OpenIndex,
        device: Device,
        options: &BufferOptions,
    ) -> Result<Self, BufferError> {
        let (pm, root) = (pool.pm(), pool.get(open.root::<Root>())?);
        let corrupt =
            PmError::Corrupt { what: "the root of a buffer", offset: open.root::<Root>().offset() };
        let shape = read_shape(pool, root).ok_or(corrupt.clone())?;
        let mut layout = Layout::new(shape.page_words as usize, shape.sums, shape.identity);
        layout.omits = match options.mutant {
            Mutant::NoPageNumber => Omits::Page,
            Mutant::SumsApart => Omits::Partitions,
            _ => Omits::Nothing,
        };
        let log = if pm.load(&root.log).is_null() {
            Log::create(pool, &root.log)?
        } else {
            Log::open(pool, &root.log)?
        };
        let frames = Frames::open(pool, root, shape)?;
        let first = first_of(pool.generation())?;
        let horizon = [0, 2].map(|at| [0, 1].map(|word| pm.load(&root.horizon[at + word])));
        let is_whole = |[lsn, sum]: &&[u64; 2]| {
            *sum == checksum(*b"hrzn", &[shape.identity, *lsn])
                && *lsn >> NUMBER_BITS <= pool.generation()
        };
        let horizon = horizon.iter().filter(is_whole).map(|[lsn, _]| *lsn).max().ok_or(corrupt)?;
        let mut buffer = Self::assemble(Parts {
            pool: Arc::clone(pool),
            shape,
            layout,
            device,
            log,
            frames,
            active: Active::after(first),
            horizon,
            dram: options.dram,
            verify_reads: options.verify_reads,
            mutant: options.mutant,
            is_repeatable: options.identity.is_some(),
            open,
        });
        buffer.finish_writes()?;
        let last = buffer.analyse()?;
        // In one opening of the pool the buffer may be opened several times; no LSN of this opening was lost.
        let first = if options.mutant == Mutant::ReusedLsn { 0 } else { first };
        *pm.lock(&buffer.active) = Active::after(first.max(last).max(horizon));
        buffer.read_entries(options.cold)?;
        if let Some(archive) = &options.archive {
            buffer.attach_archive(Arc::clone(archive))?;
        }
        Ok(buffer)
    }

    /// Writes the pages again that were on their way to the disk.
    ///
    /// The number of copies may be durable without the copies. Then the staging area has older ones, of pages that
    /// the disk has. A copy from after the horizon may be written over a newer one: the log has the updates between
    /// them. One from before it was on the disk when the horizon passed it, and may be older than what is there.
    fn finish_writes(&self) -> Result<(), BufferError> {
        let root = self.pool.get(self.root)?;
        let horizon = self.horizon.load(Acquire);
        let word = self.pool.pm().load(&root.staged);
        let count_of = word as u16 as usize;
        // The word is damaged: then no page is known to have been on its way.
        let count_of =
            if word == staged_word(self.shape.identity, count_of) { count_of } else { 0 };
        let mut images = Vec::new();
        for slot in (self.shape.frames as u32..).take(count_of.min(self.shape.staging as usize)) {
            let words = self.frames.words(&self.pool, slot);
            let mut image = vec![0; words.len()];
            self.pool.pm().read_words(words, &mut image);
            let page = image[1];
            let needed = self.layout.verify(&image, page).is_some_and(|lsn| lsn > horizon);
            let same = || self.device.read(page).is_ok_and(|found| found == image);
            if needed && self.state(page).is_ok() && !same() {
                images.push((page, image));
            }
        }
        if images.is_empty() {
            return Ok(());
        }
        for (page, image) in &images {
            self.device.write(*page, image)?;
        }
        add(&self.counters.restored, images.len() as u64);
        self.device.sync()
    }

    /// Notes the updates that the log has after the horizon. Returns the last LSN.
    fn analyse(&self) -> Result<u64, BufferError> {
        let mut updates = HashMap::new();
        let last = self.updates_into(&mut updates, None)?;
        *self.pool.pm().lock(&self.pending) = updates;
        Ok(last)
    }

    /// Collects the updates after the horizon, of one page or of all, in the order of their LSNs.
    pub(crate) fn updates_into(
        &self,
        updates: &mut HashMap<u64, Vec<Update>>,
        only: Option<u64>,
    ) -> Result<u64, BufferError> {
        let last = self.updates_after(self.horizon.load(Acquire), |page, update| {
            if only.is_none_or(|only| only == page) {
                updates.entry(page).or_default().push(update);
            }
        })?;
        for of_page in updates.values_mut() {
            of_page.sort_unstable_by_key(|update| update.lsn);
        }
        Ok(last)
    }

    /// Calls `found` with the page of each update that the log has after an LSN, in any order. Returns the last LSN.
    pub(crate) fn updates_after(
        &self,
        after: u64,
        mut found: impl FnMut(u64, Update),
    ) -> Result<u64, BufferError> {
        let (pm, generation) = (self.pool.pm(), self.pool.generation());
        let (mut last, mut words, mut parts) = (0, Vec::new(), Vec::new());
        for entry in self.log.entries() {
            let entry = entry?.entry;
            let location = entry.payload;
            let size = (entry.lines as usize * LINE_WORDS).saturating_sub(2);
            let cells = &location[..size.min(location.len())];
            let offset = cells.first().map_or(0, |cell| self.pool.pptr(cell).offset());
            words.resize(cells.len(), 0);
            pm.read_words(cells, &mut words);
            parts.clear();
            let user_words = self.layout.user_words();
            let lsn = decode(&words, offset, user_words, |page, update| parts.push((page, update)));
            let lsn = lsn.filter(|&lsn| entry.tag == REDO && lsn >> NUMBER_BITS <= generation);
            let lsn = lsn.ok_or(PmError::Corrupt { what: "a record of a buffer's log", offset })?;
            if lsn <= after {
                continue;
            }
            last = last.max(lsn);
            if parts.iter().any(|&(page, _)| self.state(page).is_err()) {
                return Err(PmError::Corrupt { what: "a page in a buffer's log", offset }.into());
            }
            for &(page, update) in &parts {
                found(page, update);
            }
        }
        Ok(last)
    }

    /// Notes the page of each frame. If two frames have the same page, neither counts.
    fn read_entries(&self, cold: bool) -> Result<(), BufferError> {
        let (pm, mut free, mut flushed) = (self.pool.pm(), Vec::new(), None);
        for frame in (0..self.states.len() as u32).rev() {
            let entry = self.frames.entry(&self.pool, frame)?;
            let page = pm.load(entry);
            let known = self.state(page).ok().filter(|known| known.place().is_none() && !cold);
            let Some(known) = known else {
                if page != 0 {
                    pm.store(entry, 0);
                    let void = pm.flush(entry);
                    flushed = Some(flushed.unwrap_or(Flushed::nothing()).and(void));
                }
                free.push(frame);
                continue;
            };
            self.states[frame as usize].page.store(page, Release);
            self.states[frame as usize].listed.store(true, Release);
            self.states[frame as usize].touch();
            known.set_place(Some(Place { unseen: true, ..Place::frame(frame) }));
        }
        if let Some(flushed) = flushed {
            pm.fence(flushed)?; // durable before: reuse of the frames, and of the pages
        }
        *pm.lock(&self.free) = free;
        Ok(())
    }

    /// Verifies a frame that the last process left, and makes it whole. The caller holds the latch.
    pub(crate) fn classify(&self, page: u64, frame: u32) -> Result<Place, BufferError> {
        let pm = self.pool.pm();
        let words = self.frames.words(&self.pool, frame);
        let updates = self.pending_of(page);
        let newest = updates.last().map_or(0, |update| update.lsn);
        let oldest = updates.first().map_or(0, |update| update.lsn);
        let found = self.layout.verify_in(pm, words, page);
        let horizon = self.horizon.load(Acquire);
        match found {
            Some(lsn) if lsn == newest || (newest == 0 && lsn <= horizon) => {
                count(&self.counters.valid);
            }
            Some(lsn) if lsn < newest && continues(lsn, &updates) => {
                count(&self.counters.outdated);
                self.catch_up(page, frame, lsn, &updates)?;
            }
            other => {
                let ahead = other.is_some_and(|lsn| lsn > newest);
                count(if ahead { &self.counters.ahead } else { &self.counters.corrupted });
                if !(ahead && matches!(self.mutant, Mutant::InPlace | Mutant::ReusedLsn)) {
                    let rebuilt = self.rebuild(page, &updates)?;
                    return self.fill(page, frame, &rebuilt.image, rebuilt.unwritten(oldest));
                }
            }
        }
        let state = &self.states[frame as usize];
        state.set_dirty(oldest);
        state.touch();
        let place = Place::frame(frame);
        self.pages[page as usize].set_place(Some(place));
        pm.lock(&self.pending).remove(&page); // after: the frame is known to be dirty
        Ok(place)
    }

    pub(crate) fn pending_of(&self, page: u64) -> Vec<Update> {
        self.pool.pm().lock(&self.pending).get(&page).cloned().unwrap_or_default()
    }

    /// Repeats the updates after `lsn` in a frame, in place. They [continue](continues) it.
    fn catch_up(
        &self,
        page: u64,
        frame: u32,
        mut lsn: u64,
        updates: &[Update],
    ) -> Result<(), BufferError> {
        let pm = self.pool.pm();
        let cells = self.frames.words(&self.pool, frame);
        if updates.iter().any(|update| update.fresh && update.lsn > lsn) {
            // In one step: a page with the LSN of an update has all of it.
            pm.write_words(cells, &self.rebuild(page, updates)?.image);
            return Ok(());
        }
        for update in updates {
            if update.lsn <= lsn {
                continue;
            }
            let runs = self.runs_of(update)?;
            self.layout.update(pm, cells, page, update.lsn, Runs::new(&runs));
            lsn = update.lsn;
            count(&self.counters.replayed);
        }
        Ok(())
    }

    pub(crate) fn runs_of(&self, update: &Update) -> Result<Vec<u64>, BufferError> {
        let cells = self.pool.words(update.offset, update.words as usize)?;
        let mut words = vec![0; cells.len()];
        self.pool.pm().read_words(cells, &mut words);
        Ok(words)
    }

    /// Verifies some pages that have not been used since the opening and have updates in the log. When it
    /// returns [`Progress::Done`], no page waits for updates.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn recover_step(&self) -> Result<Progress, BufferError> {
        let pm = self.pool.pm();
        let mut some: Vec<u64> = pm.lock(&self.pending).keys().copied().collect();
        some.sort_unstable(); // the same ones whatever the hash says
        some.truncate(TOGETHER);
        for &page in &some {
            let guard = self.state(page)?.latch.lock(pm);
            self.settle(page, &guard)?;
        }
        Ok(if some.is_empty() { Progress::Done } else { Progress::More })
    }
}

/// Returns `true` if a page with this LSN and the later ones of these updates are all that it has. Otherwise it is older
/// than the log: the medium has lost writes.
fn continues(lsn: u64, updates: &[Update]) -> bool {
    let later = || updates.iter().filter(move |update| update.lsn > lsn);
    let mut last = lsn;
    later().any(|update| update.fresh)
        || later().all(|update| std::mem::replace(&mut last, update.lsn) == update.before)
}

fn read_shape<M: Medium>(pool: &Pool<M>, root: &Root) -> Option<Shape> {
    let cells = [
        &root.identity,
        &root.page_words,
        &root.frames,
        &root.pages,
        &root.partitions,
        &root.staging,
        &root.chunk_frames,
        &root.checksum,
    ];
    let [words @ .., sum] = cells.map(|cell| pool.pm().load(cell));
    if sum != checksum(*b"bufr", &words) {
        return None;
    }
    Shape::from_words(words)
}
