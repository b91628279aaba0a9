//! The low key of a Bnode that is being made.

use pmindex_core::{Flushed, Medium, Op, Owner, PmError, PmU64, Pool, Reserved};
use pmindex_index::{Key, Shape, Words};
use pmindex_record::{RecordBlock, Route, low_between};

use crate::layout::BnodePtr;

/// A low key, and the block that a Bnode keeps it in.
#[derive(Clone, Debug)]
pub(crate) struct Low {
    words: Words,
    bytes: Vec<u8>,
}

impl Low {
    /// Returns the low key of a Bnode between these two: the right one's least key if keys are inline, else
    /// the shortest beginning of it that is greater than `left`.
    ///
    /// # Errors
    /// [`PmError::Corrupt`], in the Bnode at offset `bnode`, if byte strings are not in order.
    pub(crate) fn between<K: Key>(left: &K, right: &K, bnode: u64) -> Result<Self, PmError> {
        Ok(match K::SHAPE {
            Shape::Inline(_) => Self { words: K::to_words(right.borrowed()), bytes: Vec::new() },
            Shape::Bytes => {
                let (left, right) = (K::to_bytes(left.borrowed()), K::to_bytes(right.borrowed()));
                Self { words: [0; 4], bytes: low_between(&left, &right, bnode)?.to_vec() }
            }
        })
    }

    /// From the bytes that a Bnode holds.
    pub(crate) fn of_bytes<K: Key>(bytes: Vec<u8>) -> Self {
        match K::SHAPE {
            Shape::Inline(_) => {
                let mut words = [0; 4];
                for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
                    *word = u64::from_be_bytes(*bytes);
                }
                Self { words, bytes: Vec::new() }
            }
            Shape::Bytes => Self { words: [0; 4], bytes },
        }
    }

    /// Returns the route to it.
    pub(crate) fn route<K: Key>(&self) -> Route<'_> {
        match K::SHAPE {
            Shape::Inline(_) => Route::to_words(&self.words),
            Shape::Bytes => Route::to_bytes(&self.bytes),
        }
    }

    /// Reserves its block, if it needs one.
    pub(crate) fn reserve<K: Key, M: Medium>(
        &self,
        op: &mut Op<'_, M>,
    ) -> Result<Option<Reserved<PmU64>>, PmError> {
        if !K::SHAPE.is_bytes() {
            return Ok(None);
        }
        op.reserve_bytes(RecordBlock::size_for(self.bytes.len(), 0), 8).map(Some)
    }

    /// Stages the ticket of its block, if it has one; returns the words that stand for it in the Bnode.
    /// `owner` is the Bnode's own.
    pub(crate) fn allocate<M: Medium>(
        &self,
        op: &mut Op<'_, M>,
        block: Option<&Reserved<PmU64>>,
        owner: Owner<'_>,
    ) -> Result<Words, PmError> {
        let Some(block) = block else { return Ok(self.words) };
        op.allocate(block, owner)?;
        Ok([block.ptr().offset(), 0, 0, 0])
    }

    /// Fills and flushes its block.
    #[track_caller]
    pub(crate) fn fill<M: Medium>(&self, pool: &Pool<M>, block: u64) -> Result<Flushed, PmError> {
        RecordBlock::write(pool, BnodePtr::new(block), &self.bytes, &[])
    }
}
