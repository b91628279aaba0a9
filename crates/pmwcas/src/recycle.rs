//! Recyclers: which blocks are freed together with an old value.

use pmindex_core::{Mapped, Medium, PmCell, PmError, Pool, Word};

use crate::mwcas::Mwcas;

/// The memory a recycler looks at.
#[derive(Debug)]
pub struct Memory<'a, M: Medium> {
    pool: &'a Pool<M>,
    /// `None` during recovery, when no word holds an operation's pointer.
    mwcas: Option<&'a Mwcas<M>>,
}

impl<'a, M: Medium> Memory<'a, M> {
    pub(crate) fn recovered(pool: &'a Pool<M>) -> Self {
        Self { pool, mwcas: None }
    }

    pub(crate) fn running(mwcas: &'a Mwcas<M>) -> Self {
        Self { pool: &mwcas.pool, mwcas: Some(mwcas) }
    }

    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &'a Pool<M> {
        self.pool
    }

    /// Reads a word that operations change, as [`Mwcas::read`] does.
    ///
    /// # Errors
    /// As [`Mwcas::read`].
    pub fn read<W: Word>(&self, cell: &PmCell<W>) -> Result<W, PmError> {
        match self.mwcas {
            Some(mwcas) => mwcas.read(cell),
            None => Ok(self.pool.pm().load(cell)),
        }
    }
}

/// Lists the blocks that a value owns, so that they are freed together when the value is replaced under
/// [`Policy::FreeOldOnSuccess`](crate::Policy::FreeOldOnSuccess).
///
/// All blocks of an operation are freed in one step, atomically against crashes, after every reader that
/// could be in them has left. After a crash the recycler may run again for the same value (the blocks are
/// still live then), on a pool whose operations are all complete.
pub trait Recycler<M: Medium = Mapped>: Send + Sync {
    /// Appends the offsets of the blocks to free with `value`, which is not 0.
    ///
    /// # Errors
    /// The errors of following the value's pointers.
    fn blocks(
        &self,
        memory: &Memory<'_, M>,
        value: u64,
        blocks: &mut Vec<u64>,
    ) -> Result<(), PmError>;
}

/// The default recycler: the value is the offset of one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneBlock;

impl<M: Medium> Recycler<M> for OneBlock {
    fn blocks(&self, _: &Memory<'_, M>, value: u64, blocks: &mut Vec<u64>) -> Result<(), PmError> {
        blocks.push(value);
        Ok(())
    }
}

/// The number of a recycler: its place in the list given when the descriptor pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecyclerId(pub(crate) usize);

impl RecyclerId {
    /// [`OneBlock`].
    pub const DEFAULT: Self = Self(0);

    /// Returns the recycler at `place` (from 0) of the list given to
    /// [`Mwcas::open_at`](crate::Mwcas::open_at). The list must be the same at every opening.
    #[must_use]
    pub const fn custom(place: usize) -> Self {
        Self(place + 1)
    }
}
