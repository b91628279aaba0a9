//! What is tested, and where it lives.

use std::sync::Arc;

use pmindex_core::{Mapped, Medium, Pool};
use pmindex_index::PmIndex;

use super::sample::{SampleKey, SampleValue};
use super::verdict::{Verdict, Within};

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
}

/// The medium of a subject.
pub type MediumOf<S> = <<S as Subject>::Bed as Bed>::Medium;

/// Makes pools of some medium, and opens them again.
pub trait Bed: Sized + Sync + 'static {
    /// The medium of its pools.
    type Medium: Medium;

    /// A bed with a fresh pool of `bytes`.
    fn new(bytes: usize) -> Verdict<Self>;

    /// The pool.
    fn pool(&self) -> &Arc<Pool<Self::Medium>>;

    /// Ends the pool, after a clean shutdown or by dropping it, and opens it again, if the bed
    /// keeps what is in it. No index of the pool is open.
    fn cycle(&mut self, clean: bool) -> Verdict;
}

/// Pools in anonymous memory with every flush and fence executed. They live as long as the bed, so
/// [`Bed::cycle`] does nothing and only indexes are opened again.
#[derive(Debug)]
pub struct Emulated(Arc<Pool<Mapped>>);

impl Bed for Emulated {
    type Medium = Mapped;

    fn new(bytes: usize) -> Verdict<Self> {
        Ok(Self(Arc::new(Pool::emulated(bytes)?)))
    }

    fn pool(&self) -> &Arc<Pool<Mapped>> {
        &self.0
    }

    fn cycle(&mut self, _clean: bool) -> Verdict {
        Ok(())
    }
}

/// Enough for any test of inline types.
const SMALL_POOL: usize = 32 << 20;
/// Enough for any test with large byte strings.
const LARGE_POOL: usize = 256 << 20;

/// The name of the index under test.
pub(crate) const NAME: &str = "subject";

/// A bed and the index in it.
pub(crate) struct Rig<S: Subject> {
    // Dropped first: the bed expects no open index.
    index: Option<S::Index>,
    pub(crate) bed: S::Bed,
}

impl<S: Subject> Rig<S> {
    /// An empty index in a fresh pool.
    pub(crate) fn new() -> Verdict<Self> {
        use pmindex_index::Storable;
        let bytes = S::Key::SHAPE.is_bytes() || S::Value::SHAPE.is_bytes();
        let bed = S::Bed::new(if bytes { LARGE_POOL } else { SMALL_POOL })?;
        let index = S::Index::create(bed.pool(), NAME).within("create")?;
        Ok(Self { index: Some(index), bed })
    }

    /// The index.
    pub(crate) fn index(&self) -> &S::Index {
        self.index.as_ref().expect("a rig has an index between its methods")
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
