//! The buffer: reads pages, and gives them frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use parking_lot::Mutex;
use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Mapped, Medium, OpenIndex, PPtr, PmError, Pool};
use pmindex_log::Log;

use crate::active::Active;
use crate::archive::Shared;
use crate::checkpoint::Checkpoints;
use crate::device::Device;
use crate::entries::Unlisted;
use crate::error::BufferError;
use crate::frames::{FrameState, Frames, NOBODY, PageState, Place};
use crate::hot::Hot;
use crate::layout::{Root, Shape};
use crate::metrics::{Counters, Metrics, count};
use crate::options::Mutant;
use crate::page::{HEADER, LSN, Layout};
use crate::record::Update;
use crate::view::{Page, Words};

/// The number of attempts to find a frame before an operation fails.
const TRIES: usize = 64;
/// The least number of frames that are emptied or get their entries together, with one fence.
const TOGETHER: usize = 16;
/// The greatest number: their latches are held at once, or a crash loses so many entries.
const MOST_TOGETHER: usize = 256;

/// A buffer pool in a pool: see the crate's documentation.
#[derive(Debug)]
pub struct Buffer<M: Medium = Mapped> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) root: PPtr<Root>,
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
    pub(crate) device: Device,
    pub(crate) log: Log<M>,
    pub(crate) frames: Frames,
    pub(crate) pages: Box<[PageState]>,
    pub(crate) states: Box<[FrameState]>,
    pub(crate) free: Mutex<Vec<u32>>,
    pub(crate) hot: Option<Hot>,
    hand: AtomicU64,
    pub(crate) unlisted: Mutex<Unlisted>,
    /// Held by the thread that writes pages to the disk. A holder of latches may take it, so its holder may
    /// only try to take latches.
    pub(crate) staging: Mutex<()>,
    /// The updates of pages that have not been used since the opening.
    pub(crate) pending: Mutex<HashMap<u64, Vec<Update>>>,
    pub(crate) active: Mutex<Active>,
    /// The groups of commits that began to change their pages.
    pub(crate) changes: AtomicU64,
    /// The readers for which commits wait.
    pub(crate) pauses: AtomicU64,
    pub(crate) checkpoints: Mutex<Checkpoints>,
    pub(crate) archive: Option<Shared>,
    /// The log may lack records up to this LSN.
    pub(crate) horizon: AtomicU64,
    pub(crate) verify_reads: bool,
    pub(crate) mutant: Mutant,
    /// Nothing is random, for tests.
    pub(crate) is_repeatable: bool,
    pub(crate) counters: Counters,
    /// The last field, so that everything else is dropped before another thread can open the buffer.
    pub(crate) _open: OpenIndex,
}

/// The parts of which a buffer is assembled.
pub(crate) struct Parts<M: Medium> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
    pub(crate) device: Device,
    pub(crate) log: Log<M>,
    pub(crate) frames: Frames,
    pub(crate) active: Active,
    pub(crate) horizon: u64,
    pub(crate) dram: usize,
    pub(crate) verify_reads: bool,
    pub(crate) mutant: Mutant,
    pub(crate) is_repeatable: bool,
    pub(crate) open: OpenIndex,
}

impl<M: Medium> Buffer<M> {
    /// Assembles a buffer whose frames are all free.
    pub(crate) fn assemble(parts: Parts<M>) -> Self {
        let frames = parts.shape.frames;
        Self {
            pool: parts.pool,
            root: parts.open.root(),
            shape: parts.shape,
            layout: parts.layout,
            device: parts.device,
            log: parts.log,
            frames: parts.frames,
            pages: (0..parts.shape.pages).map(|_| PageState::default()).collect(),
            states: (0..frames).map(|_| FrameState::default()).collect(),
            free: Mutex::new(Vec::new()),
            hot: Hot::new(parts.dram, parts.shape.page_words as usize),
            hand: AtomicU64::new(0),
            unlisted: Mutex::new(Unlisted::default()),
            staging: Mutex::new(()),
            pending: Mutex::new(HashMap::new()),
            active: Mutex::new(parts.active),
            changes: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            checkpoints: Mutex::new(Checkpoints::after(parts.horizon)),
            archive: None,
            horizon: AtomicU64::new(parts.horizon),
            verify_reads: parts.verify_reads,
            mutant: parts.mutant,
            is_repeatable: parts.is_repeatable,
            counters: Counters::default(),
            _open: parts.open,
        }
    }

    /// Reads a page: calls `read` with it, again if a writer changes the page meanwhile, and returns its
    /// result for a state that one transaction left.
    ///
    /// # Errors
    /// [`BufferError::NoPage`], [`BufferError::Damaged`], [`BufferError::NoFrames`], and the errors of the
    /// disk and the pool.
    ///
    /// # Cost
    /// No lock and no fence if the page has a frame. Otherwise a read of the disk; of sixteen such reads (of more,
    /// with more than 1024 frames) one has a fence, which makes their frames known to the next opening. If no
    /// frame is free, one more fence empties several frames; if all frames have updates that the disk lacks, the
    /// disk is also synchronised. At the first use since the opening the page is verified.
    pub fn read<R>(
        &self,
        page: u64,
        mut read: impl FnMut(Page<'_, M>) -> R,
    ) -> Result<R, BufferError> {
        self.read_at(page, |_, view| read(view)).map(|(_, found)| found)
    }

    /// Does what [`read`](Self::read) does, and also returns the page's LSN.
    pub(crate) fn read_at<R>(
        &self,
        page: u64,
        mut read: impl FnMut(u64, Page<'_, M>) -> R,
    ) -> Result<(u64, R), BufferError> {
        let pm = self.pool.pm();
        let state = self.state(page)?;
        let version = state.latch.begin_read(pm);
        if let Some(place) = state.place()
            && !place.unseen
        {
            let first = self.states[place.frame as usize].touch();
            if let Some(found) = self.read_place(page, place, version, &mut read) {
                if first {
                    self.note_use(page);
                }
                return Ok(found);
            }
        }
        // The page has no frame, is damaged, or is being written: read it under the latch.
        let guard = state.latch.lock(pm);
        let place = self.settle(page, &guard)?;
        let words = self.frames.words(&self.pool, place.frame);
        if self.verify_reads
            && place.copy.is_none()
            && self.layout.verify_in(pm, words, page).is_none()
        {
            self.mend(page, place.frame)?;
        }
        let lsn = self.lsn_at(place);
        Ok((lsn, read(lsn, self.view(place))))
    }

    /// Reads a page without its latch; returns `None` if it is damaged, or changed meanwhile.
    #[inline(always)]
    fn read_place<R>(
        &self,
        page: u64,
        place: Place,
        version: u64,
        read: &mut impl FnMut(u64, Page<'_, M>) -> R,
    ) -> Option<(u64, R)> {
        let (pm, latch) = (self.pool.pm(), &self.pages[page as usize].latch);
        if self.verify_reads && place.copy.is_none() {
            let words = self.frames.words(&self.pool, place.frame);
            let mut image = vec![0; words.len()];
            pm.read_words(words, &mut image);
            if !latch.validate(pm, version) {
                return None;
            }
            let lsn = self.layout.verify(&image, page)?;
            let user = &image[HEADER..][..self.layout.user_words()];
            return Some((lsn, read(lsn, Page { words: Words::Copy(user) })));
        }
        let lsn = self.lsn_at(place);
        let found = read(lsn, self.view(place));
        latch.validate(pm, version).then_some((lsn, found))
    }

    fn view(&self, place: Place) -> Page<'_, M> {
        let user = HEADER..HEADER + self.layout.user_words();
        let words = match (place.copy, &self.hot) {
            (Some(copy), Some(hot)) => Words::Dram(&hot.words(copy)[user]),
            _ => Words::Pool(self.pool.pm(), &self.frames.words(&self.pool, place.frame)[user]),
        };
        Page { words }
    }

    /// Returns the LSN of a page.
    pub(crate) fn lsn_at(&self, place: Place) -> u64 {
        match (place.copy, &self.hot) {
            (Some(copy), Some(hot)) => hot.lsn(copy),
            _ => self.lsn_in(place.frame),
        }
    }

    /// Returns the LSN of the page in a frame.
    pub(crate) fn lsn_in(&self, frame: u32) -> u64 {
        self.pool.pm().load(&self.frames.words(&self.pool, frame)[LSN])
    }

    /// Returns a page's latch and place. Page 0 belongs to the buffer itself.
    pub(crate) fn state(&self, page: u64) -> Result<&PageState, BufferError> {
        let known = self.pages.get(page as usize).filter(|_| page != 0);
        known.ok_or(BufferError::NoPage { page })
    }

    /// Makes sure that a page has a frame, which is whole and up to date.
    pub(crate) fn settle(
        &self,
        page: u64,
        _latched: &VersionGuard<'_>,
    ) -> Result<Place, BufferError> {
        let state = self.state(page)?;
        match state.place() {
            Some(place) if !place.unseen => Ok(place),
            Some(place) => self.classify(page, place.frame),
            None => {
                let (rebuilt, oldest) = self.restore(page)?;
                let frame = self.take_frame()?;
                self.fill(page, frame, &rebuilt.image, oldest)
            }
        }
    }

    /// Stores an image in a frame that is free or already belongs to this page. A frame that was free gets its
    /// entry later, together with others: see [`list`](Self::list). Without an entry, a crash leaves the page
    /// to the disk and the log.
    pub(crate) fn fill(
        &self,
        page: u64,
        frame: u32,
        image: &[u64],
        oldest: u64,
    ) -> Result<Place, BufferError> {
        let pm = self.pool.pm();
        let state = &self.states[frame as usize];
        if self.mutant == Mutant::NoPageNumber {
            pm.store(self.frames.entry(&self.pool, frame)?, page);
            state.listed.store(true, Relaxed);
        }
        pm.write_words(self.frames.words(&self.pool, frame), image);
        let nth = state.filled.fetch_add(1, Relaxed) + 1;
        if !state.listed.load(Relaxed) {
            pm.lock(&self.unlisted).filled.push((page, frame, nth));
        }
        state.page.store(page, Release);
        state.set_dirty(oldest);
        let place = Place::frame(frame);
        if let Some(Place { copy: Some(copy), .. }) = self.pages[page as usize].place()
            && let Some(hot) = &self.hot
        {
            hot.give_back(pm, copy); // it is older
        }
        self.pages[page as usize].set_place(Some(place));
        pm.lock(&self.pending).remove(&page); // after: the frame is known to be dirty
        Ok(place)
    }

    /// Returns how many frames are emptied, or get their entries, with one fence: of a large buffer more, since
    /// where a fence waits for a disk, a load waits for these fences most.
    pub(crate) fn together(&self) -> usize {
        let frames = self.states.len();
        (frames / 64).clamp(TOGETHER, MOST_TOGETHER).min((frames / 8).max(1))
    }

    /// Returns a free frame.
    pub(crate) fn take_frame(&self) -> Result<u32, BufferError> {
        self.list(false)?;
        for _ in 0..TRIES {
            if let Some(frame) = self.pool.pm().lock(&self.free).pop() {
                return Ok(frame);
            }
            if let Some(frame) = self.evict()? {
                return Ok(frame);
            }
            self.pool.pm().spin();
        }
        Err(BufferError::NoFrames)
    }

    /// Returns frames to empty, with the latches of their pages. First those that were not used twice and
    /// whose pages the disk has; if there is none, any that were not used since the last time, as many as the
    /// staging area takes.
    fn victims(&self) -> Vec<(u64, u32, VersionGuard<'_>)> {
        let (pm, count_of) = (self.pool.pm(), self.states.len());
        let eighth = (count_of / 8).max(1);
        let mut victims = Vec::new();
        for turn in 0..3 * count_of {
            let frame = self.hand.fetch_add(1, Relaxed) as usize % count_of;
            let state = &self.states[frame];
            let clean_only = turn < count_of;
            let most = if clean_only { self.together() } else { self.shape.staging as usize };
            if victims.len() >= most.min(eighth) || (turn == count_of && !victims.is_empty()) {
                break;
            }
            let spared = if clean_only {
                state.used.load(Relaxed) || state.dirty() != 0
            } else {
                state.used.swap(false, Relaxed)
            };
            if spared {
                continue;
            }
            let page = state.page.load(Acquire);
            let Some(known) = self.pages.get(page as usize) else { continue };
            let Some(guard) = known.latch.try_lock(pm) else { continue };
            let Some(place) = known.place().filter(|place| place.frame == frame as u32) else {
                continue;
            };
            // (A frame that was not verified since the opening: the disk and the log have all of it.)
            if place.copy.is_some() {
                self.cool(page, place);
            }
            victims.push((page, place.frame, guard));
        }
        victims
    }

    /// Empties frames. Returns one of them.
    ///
    /// ```text
    /// step  store                                durable before
    /// P1    the pages on the disk, if necessary   P2
    /// P2    the entries of the frames = 0        reuse of the frames, and of the pages; a horizon past the pages
    /// ```
    fn evict(&self) -> Result<Option<u32>, BufferError> {
        let pm = self.pool.pm();
        let victims = self.victims();
        let dirty: Vec<(u64, u32)> =
            victims.iter().map(|&(page, frame, _)| (page, frame)).collect();
        let staging = self.write_victims(&dirty)?; // P1
        pm.handover_point(); // the disk has the pages, and the frames still belong to them
        let mut flushed = None;
        for &(_, frame, _) in &victims {
            if self.states[frame as usize].listed.swap(false, Relaxed) {
                let entry = self.frames.entry(&self.pool, frame)?;
                pm.store(entry, 0); // P2
                flushed = Some(flushed.unwrap_or(Flushed::nothing()).and(pm.flush(entry)));
            }
        }
        if let Some(flushed) = flushed {
            pm.fence(flushed)?;
        }
        drop(staging); // from now on the horizon may pass the updates of these pages
        pm.handover_point(); // checkpoints may end, while the frames are not free yet
        let mut emptied = Vec::new();
        for (page, frame, guard) in victims {
            count(&self.counters.evicted);
            self.states[frame as usize].page.store(NOBODY, Release);
            self.states[frame as usize].set_dirty(0);
            self.pages[page as usize].set_place(None);
            emptied.push(frame);
            drop(guard);
        }
        let frame = emptied.pop();
        pm.lock(&self.free).extend(emptied);
        Ok(frame)
    }

    /// Returns a frame that was taken and not used.
    pub(crate) fn give_back(&self, frame: u32) {
        self.pool.pm().lock(&self.free).push(frame);
    }

    /// Returns the offset in the pool of the frame of a page, if it has one: for tests that damage it.
    #[doc(hidden)]
    #[must_use]
    pub fn frame_offset(&self, page: u64) -> Option<u64> {
        let frame = self.state(page).ok()?.place()?.frame;
        let words = self.frames.words(&self.pool, frame);
        words.first().map(|word| self.pool.pptr(word).offset())
    }

    /// Returns what the buffer has done since it was opened.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.counters.read()
    }

    /// Returns the number of words of a page that the user can use.
    #[must_use]
    pub fn page_words(&self) -> usize {
        self.layout.user_words()
    }

    /// Returns the number that distinguishes the buffer from others: random, unless the options set it.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.shape.identity
    }

    /// Returns the bytes of a page, on the disk and in a frame.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.shape.page_bytes()
    }

    /// Returns the limit of page numbers: they are from 1 on and less than this.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.shape.pages
    }

    /// Returns the number of frames in the pool.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.shape.frames
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool<M>> {
        &self.pool
    }

    /// Returns the offsets of all blocks of this buffer, for the allocator's audit. The buffer must not be
    /// in use.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn blocks(&self) -> Result<Vec<u64>, PmError> {
        let table = self.pool.pm().load(&self.pool.get(self.root)?.table).offset();
        let own = [self.root.offset(), table].into_iter().chain(self.frames.blocks());
        Ok(own.chain(self.log.blocks()?).collect())
    }

    /// Returns the bytes of the pool that the log takes.
    #[must_use]
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes()
    }
}
