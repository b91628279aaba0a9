//! The test's `crate::primitive`: atomics of the model checker, in DRAM and in a pool, which report every
//! store, flush and fence to [`watch`](crate::watch).

use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release};

use loom::sync::atomic::AtomicU64 as Modelled;
pub(crate) use loom::sync::atomic::{AtomicUsize, fence};
use pmindex_core::{LINE, PPtr, PmError};

use crate::watch;

/// A word of DRAM: a claim, a hazard, the clock, the horizon.
pub(crate) struct AtomicU64(Modelled);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(Modelled::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }

    /// Only claims are exchanged.
    pub(crate) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.0.compare_exchange(current, new, success, failure);
        if result.is_ok() {
            watch::claimed(new);
        }
        result
    }
}

impl fmt::Debug for AtomicU64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtomicU64")
    }
}

/// What a cell can hold.
pub(crate) trait Word: 'static {
    fn from_word(word: u64) -> Self;
    fn into_word(self) -> u64;
}

impl Word for u64 {
    fn from_word(word: u64) -> Self {
        word
    }
    fn into_word(self) -> u64 {
        self
    }
}

/// A word of the pool, and its number.
pub(crate) struct PmCell<W> {
    at: usize,
    cell: Modelled,
    kind: PhantomData<fn() -> W>,
}

pub(crate) type PmU64 = PmCell<u64>;

impl<W: Word> PmCell<W> {
    pub(crate) fn as_word(&self) -> &PmU64 {
        let any: &dyn Any = self;
        any.downcast_ref().expect("plain words only")
    }
}

impl<W> fmt::Debug for PmCell<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "word {}", self.at)
    }
}

#[derive(Debug)]
pub(crate) struct Flushed;

impl Flushed {
    pub(crate) fn nothing() -> Self {
        Self
    }

    pub(crate) fn and(self, _other: Self) -> Self {
        self
    }
}

#[derive(Debug)]
pub(crate) struct Durable;

/// The medium; the only one, with the memory orders of the real ones.
pub(crate) trait Medium: fmt::Debug + Sized {
    fn load<W: Word>(&self, cell: &PmCell<W>) -> W {
        W::from_word(cell.cell.load(Acquire))
    }

    fn store<W: Word>(&self, cell: &PmCell<W>, value: W) {
        let value = value.into_word();
        cell.cell.store(value, Release);
        watch::stored(cell.at, value);
    }

    fn cas<W: Word>(&self, cell: &PmCell<W>, current: W, new: W) -> Result<W, W> {
        let (current, new) = (current.into_word(), new.into_word());
        let result = cell.cell.compare_exchange(current, new, AcqRel, Acquire);
        if result.is_ok() {
            watch::stored(cell.at, new);
        }
        result.map(W::from_word).map_err(W::from_word)
    }

    fn flush(&self, cell: &PmU64) -> Flushed {
        watch::flushed(cell.at);
        Flushed
    }

    fn flush_words(&self, words: &[PmU64]) -> Flushed {
        for cell in words {
            watch::flushed(cell.at);
        }
        Flushed
    }

    fn fence(&self, _flushed: Flushed) -> Result<Durable, PmError> {
        watch::fenced();
        Ok(Durable)
    }

    fn is_volatile(&self) -> bool {
        false
    }

    /// Every atomic access is one.
    fn yield_point(&self) {}

    fn keep_stores(&self) {}

    fn spin(&self) {
        loom::thread::yield_now();
    }
}

#[derive(Debug)]
pub(crate) struct Model;

impl Medium for Model {}

#[derive(Debug)]
pub(crate) struct Pool<M> {
    medium: M,
    words: Box<[PmU64]>,
}

impl<M: Medium> Pool<M> {
    pub(crate) fn new(medium: M, words: usize) -> Self {
        assert!(words.is_multiple_of(LINE / 8));
        let cell = |at| PmCell { at, cell: Modelled::new(0), kind: PhantomData };
        Self { medium, words: (0..words).map(cell).collect() }
    }

    pub(crate) fn pm(&self) -> &M {
        &self.medium
    }

    pub(crate) fn words(&self, offset: u64, count: usize) -> Result<&[PmU64], PmError> {
        let words = self.words.get(offset as usize / 8..).and_then(|words| words.get(..count));
        words.ok_or(PmError::Corrupt { what: "a place in the pool", offset })
    }

    pub(crate) fn pptr(&self, cell: &PmU64) -> PPtr<u64> {
        assert!(cell.at < self.words.len());
        PPtr::new(cell.at as u64 * 8)
    }

    pub(crate) fn uuid(&self) -> u128 {
        self.words.len() as u128
    }
}
