//! The memory behind a traced pool: it outlives the pool, so that a test can crash and reopen it.
//!
//! A [`Space`] is a heap block with a recorder. Every access through [`Traced`](super::Traced) is executed at
//! once and, while recording, appended to the trace with the value it replaced. The trace is therefore an
//! undo log as well: [`Space::undo`] takes back the changes that a recovered pool made to a crash image, at
//! the cost of the words it touched. No state of the explorer needs a system call or a copy of the pool.

use core::panic::Location;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cell::{PmType, PmU64};
use crate::error::PmError;
use crate::pool::PoolOptions;
use crate::ptr::PPtr;
use crate::region::Region;

use super::Traced;
use super::event::{Event, EventKind};
use super::thread;

/// Memory that outlives the pools in it, with a record of every access.
#[derive(Clone, Debug)]
pub struct Space {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    memory: Region,
    /// The length of the simulated file, at most the length of `memory`.
    file_len: AtomicU64,
    steps: AtomicU64,
    step_limit: AtomicU64,
    /// The number of operation slots of pools created here; 0 leaves it to their options.
    slots: AtomicU64,
    /// `true` if the file fails to grow although its options allow it.
    device_full: AtomicBool,
    /// `true` if a file that is synchronised before it has a name stays empty.
    forgets_unnamed: AtomicBool,
    /// `true` if the simulated file has been given its name, which is not stored yet.
    linked: AtomicBool,
    recorder: Mutex<Recorder>,
}

#[derive(Debug, Default)]
struct Recorder {
    on: bool,
    trace: Vec<Event>,
    /// Fences that still succeed before one fails; the medium is poisoned from then on.
    fences_left: Option<u64>,
}

/// The message of the panic that stops a run which exceeds its step limit.
pub const STEP_LIMIT: &str = "step limit exceeded: an endless loop, or a wait that nobody ends";

impl Space {
    /// Creates a zeroed space whose file is `len` bytes long and may grow to `capacity` bytes.
    ///
    /// # Panics
    /// If the system has no memory, or `len > capacity`, or `capacity` is over 16 GiB.
    #[must_use]
    pub fn new(len: usize, capacity: usize) -> Self {
        let capacity = capacity.next_multiple_of(4096).max(4096);
        assert!(len <= capacity && u32::try_from(capacity / 8).is_ok(), "size of a traced space");
        let memory = Region::heap(capacity);
        Self {
            inner: Arc::new(Inner {
                memory,
                file_len: AtomicU64::new(len as u64),
                steps: AtomicU64::new(0),
                step_limit: AtomicU64::new(u64::MAX),
                slots: AtomicU64::new(0),
                device_full: AtomicBool::new(false),
                forgets_unnamed: AtomicBool::new(false),
                linked: AtomicBool::new(false),
                recorder: Mutex::new(Recorder::default()),
            }),
        }
    }

    /// Returns a medium over this space.
    #[must_use]
    pub fn medium(&self) -> Traced {
        Traced::over(Arc::clone(&self.inner))
    }

    /// Returns the file in this space, whose last page is the file system's.
    pub(crate) fn file(&self) -> super::File {
        super::File::new(&self.inner)
    }

    /// Returns the memory as the region of a pool.
    #[must_use]
    pub(crate) fn region(&self) -> Region {
        Region::lent(&self.inner)
    }

    /// Returns `true` if a pool still uses this space.
    #[must_use]
    pub fn in_use(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Returns the length of the simulated file in bytes.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.inner.file_len.load(Relaxed)
    }

    /// Sets the length of the simulated file, unrecorded.
    ///
    /// # Panics
    /// If `len` is over the capacity.
    pub fn set_file_len(&self, len: u64) {
        assert!(
            len <= self.inner.memory.capacity() as u64,
            "file length over the space's capacity"
        );
        self.inner.file_len.store(len, Relaxed);
    }

    /// Follows a pointer into the space, without a pool.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if it is null, out of bounds or misaligned.
    pub fn get<T: PmType>(&self, ptr: PPtr<T>) -> Result<&T, PmError> {
        let offset = ptr.offset();
        let fits =
            offset.checked_add(size_of::<T>() as u64).is_some_and(|end| end <= self.file_len());
        if offset == 0 || !fits || !offset.is_multiple_of(align_of::<T>() as u64) {
            return Err(PmError::Corrupt { what: "a pointer to no block", offset });
        }
        // SAFETY: in bounds (the file length never exceeds the memory) and aligned, checked above.
        Ok(unsafe { self.inner.memory.at::<T>(offset as usize) })
    }

    fn word(&self, word: usize) -> &PmU64 {
        self.inner.word(word)
    }

    /// Returns the value of a word, unrecorded.
    ///
    /// # Panics
    /// If the word is outside.
    #[must_use]
    pub fn peek(&self, word: usize) -> u64 {
        self.word(word).atomic().load(Relaxed)
    }

    /// Sets a word, unrecorded.
    ///
    /// # Panics
    /// If the word is outside.
    pub fn poke(&self, word: usize, value: u64) {
        self.word(word).atomic().store(value, Relaxed);
    }

    /// Returns all words of the space.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u64> {
        (0..self.inner.memory.capacity() / 8).map(|word| self.peek(word)).collect()
    }

    /// Overwrites the space, unrecorded.
    pub fn restore(&self, image: &[u64]) {
        for (word, &value) in image.iter().enumerate() {
            self.poke(word, value);
        }
    }

    /// Starts or stops recording.
    pub fn record(&self, on: bool) {
        self.inner.recorder.lock().on = on;
    }

    /// Calls `read` with the trace so far.
    pub fn with_trace<R>(&self, read: impl FnOnce(&[Event]) -> R) -> R {
        read(&self.inner.recorder.lock().trace)
    }

    /// Returns the number of events in the trace.
    #[must_use]
    pub fn trace_len(&self) -> usize {
        self.inner.recorder.lock().trace.len()
    }

    /// Moves the trace out; the space keeps its contents.
    #[must_use]
    pub fn take_trace(&self) -> Vec<Event> {
        core::mem::take(&mut self.inner.recorder.lock().trace)
    }

    /// Takes back every recorded change, newest first, and empties the trace.
    pub fn undo(&self) {
        let mut recorder = self.inner.recorder.lock();
        for event in recorder.trace.iter().rev() {
            if event.kind.writes() {
                self.word(event.word as usize).atomic().store(event.old, Relaxed);
            } else if event.kind == EventKind::Grow {
                self.inner.file_len.store(event.old, Relaxed);
            }
        }
        recorder.trace.clear();
    }

    /// Records a mark.
    #[track_caller]
    pub fn note(&self, value: u64) {
        self.inner.record(EventKind::Note, 0, value, 0, Location::caller());
    }

    /// Allows `steps` more accesses; the next one panics with [`STEP_LIMIT`]. Taking a lock counts as one,
    /// and does not panic.
    pub fn limit_steps(&self, steps: u64) {
        self.inner.steps.store(0, Relaxed);
        self.inner.step_limit.store(steps, Relaxed);
    }

    /// Returns the number of accesses since the last [`limit_steps`](Self::limit_steps).
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.inner.steps.load(Relaxed)
    }

    /// Sets the number of operation slots of pools created here, in place of their options; `None` restores
    /// these. With fewer slots than threads, the threads take over each other's slots.
    pub fn set_slots(&self, slots: Option<u64>) {
        self.inner.slots.store(slots.unwrap_or(0), Relaxed);
    }

    /// Makes every growth of the file fail, as on a device without space, or ends that.
    pub fn set_device_full(&self, full: bool) {
        self.inner.device_full.store(full, Relaxed);
    }

    /// Whether the simulated file's contents are durable only if it is synchronised after it has its name, as
    /// on btrfs.
    pub fn forget_unnamed(&self, yes: bool) {
        self.inner.forgets_unnamed.store(yes, Relaxed);
    }

    /// Returns the options for a pool created here.
    pub(crate) fn options(&self, options: &PoolOptions) -> PoolOptions {
        match self.inner.slots.load(Relaxed) {
            0 => options.clone(),
            slots => options.clone().slots(slots),
        }
    }

    /// Makes every fence after the next `fences` fail, as a failed `msync` would; `None` heals it.
    pub fn fail_fences_after(&self, fences: Option<u64>) {
        self.inner.recorder.lock().fences_left = fences;
    }
}

impl Inner {
    pub(crate) fn memory(&self) -> &Region {
        &self.memory
    }

    pub(super) fn word(&self, word: usize) -> &PmU64 {
        assert!(word < self.memory.capacity() / 8, "word outside the space");
        // SAFETY: in bounds, checked above; a multiple of 8 is aligned for a cell.
        unsafe { self.memory.at::<PmU64>(word * 8) }
    }

    /// Counts one access, and yields to the scheduler.
    #[inline]
    pub(super) fn step(&self, weight: u64) {
        if self.count(weight) > self.step_limit.load(Relaxed) && !std::thread::panicking() {
            step_limit();
        }
    }

    /// Adds to the steps of the run; returns their number.
    #[inline]
    pub(super) fn count(&self, weight: u64) -> u64 {
        // Only one logical thread runs at a time, so load and store suffice.
        let steps = self.steps.load(Relaxed) + weight;
        self.steps.store(steps, Relaxed);
        steps
    }

    pub(super) fn record(
        &self,
        kind: EventKind,
        word: u32,
        value: u64,
        old: u64,
        site: &'static Location<'static>,
    ) {
        let mut recorder = self.recorder.lock();
        if recorder.on {
            recorder.trace.push(Event { kind, thread: thread::current(), word, value, old, site });
        }
    }

    /// Returns `true` if the next fence succeeds.
    pub(super) fn fence_succeeds(&self) -> bool {
        match &mut self.recorder.lock().fences_left {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }

    /// Grows the simulated file, as fallocate and fsync do: durable at once.
    #[track_caller]
    pub(crate) fn grow(&self, len: u64) -> Result<(), PmError> {
        let capacity = self.memory.capacity() as u64;
        if len > capacity {
            return Err(PmError::Full { wanted: len, capacity });
        }
        if self.device_full.load(Relaxed) {
            return Err(PmError::NoSpace { wanted: len - self.file_len() });
        }
        let old = self.file_len.swap(len, Relaxed);
        self.record(EventKind::Grow, 0, len, old, Location::caller());
        Ok(())
    }

    pub(crate) fn file_len(&self) -> u64 {
        self.file_len.load(Relaxed)
    }

    pub(crate) fn forgets_unnamed(&self) -> bool {
        self.forgets_unnamed.load(Relaxed)
    }

    pub(crate) fn is_linked(&self) -> bool {
        self.linked.load(Relaxed)
    }

    pub(crate) fn set_linked(&self, yes: bool) {
        self.linked.store(yes, Relaxed);
    }
}

#[cold]
fn step_limit() {
    panic!("{STEP_LIMIT}");
}
