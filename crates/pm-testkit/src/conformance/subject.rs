//! What is tested, and where it lives.

use pmindex_index::{PmIndex, Storable};

use super::bed::Bed;
use super::sample::{SampleKey, SampleValue};
use super::verdict::{Failure, Verdict, Within};

/// An index type with its key and value types, on a bed. The
/// [`conformance!`](crate::conformance!) macro implements it.
pub trait Subject: 'static {
    /// Its keys.
    type Key: SampleKey;
    /// Its values.
    type Value: SampleValue;
    /// Where its pools are.
    type Bed: Bed;
    /// The index type.
    type Index: PmIndex<Self::Key, Self::Value, <Self::Bed as Bed>::Medium>;
    /// Bytes of the pools in which schedules and crashes are simulated.
    const SIMULATED_BYTES: u64 = 256 << 10;
}

/// The medium of a subject.
pub type MediumOf<S> = <<S as Subject>::Bed as Bed>::Medium;

/// Enough for any test of inline types.
const SMALL_POOL: u64 = 32 << 20;
/// Enough for any test with large byte strings.
const LARGE_POOL: u64 = 256 << 20;

/// The name of the index under test.
pub(crate) const NAME: &str = "subject";

/// A bed and the index in it.
pub(crate) struct Rig<S: Subject> {
    // Dropped first: the bed expects no open index.
    index: Option<S::Index>,
    pub(crate) bed: S::Bed,
}

impl<S: Subject> Rig<S> {
    /// An empty index in a fresh pool that is large enough for anything.
    pub(crate) fn new() -> Verdict<Self> {
        let bytes = S::Key::SHAPE.is_bytes() || S::Value::SHAPE.is_bytes();
        Self::with_pool(if bytes { LARGE_POOL } else { SMALL_POOL })
    }

    /// An empty index in a fresh pool of so many bytes.
    pub(crate) fn with_pool(bytes: u64) -> Verdict<Self> {
        let bed = S::Bed::new(bytes)?;
        let index = S::Index::create(bed.pool(), NAME).within("create")?;
        Ok(Self { index: Some(index), bed })
    }

    /// The index.
    pub(crate) fn index(&self) -> &S::Index {
        self.index.as_ref().expect("a rig has an index between its methods")
    }

    /// The blocks of the index are the live blocks of the pool, each once: nothing is leaked.
    pub(crate) fn audit(&self) -> Verdict {
        let blocks = self.index().blocks()?;
        let report = self.bed.pool().audit(blocks.into_iter());
        report.map(drop).map_err(|error| Failure::new(format!("audit: {error}")))
    }

    /// Closes the index and the pool, and opens both.
    pub(crate) fn close_and_open(&mut self) -> Verdict {
        if let Some(index) = self.index.take() {
            index.close().within("close")?;
        }
        self.reopen(true)
    }

    /// Drops the index and the pool without closing them, and opens both.
    pub(crate) fn drop_and_open(&mut self) -> Verdict {
        self.index = None;
        self.reopen(false)
    }

    fn reopen(&mut self, clean: bool) -> Verdict {
        self.bed.cycle(clean)?;
        self.index = Some(S::Index::open(self.bed.pool(), NAME).within("open")?);
        Ok(())
    }
}
