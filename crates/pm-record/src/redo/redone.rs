//! What a log says of an index that is not recovered, and may be too damaged for that.

use std::collections::HashMap;

use pmindex_core::{Medium, PmError, PmU64, Pool};

use crate::block::RecordBlock;

use super::entry::{RING_WORDS, that_count};
use super::log_words;

/// The values that recovery would store in place, by their blocks.
#[derive(Debug, Default)]
pub struct Redone(HashMap<u64, Vec<u64>>);

impl Redone {
    /// Reads the log that `cell` leads to, without changing it; returns what it says, and what is wrong. A damaged
    /// entry says nothing.
    pub fn read<M: Medium>(pool: &Pool<M>, cell: &PmU64) -> (Self, Vec<PmError>) {
        let (mut redone, mut damage) = (Self::default(), Vec::new());
        let block = pool.pm().load_word(cell);
        if block == 0 {
            return (redone, damage);
        }
        let words = log_words(pool, block).unwrap_or_else(|error| {
            damage.push(error);
            &[]
        });
        for ring in words.chunks(RING_WORDS) {
            for entry in that_count(pool, ring, |error| damage.push(error)) {
                redone.0.insert(entry.block(), entry.value().to_vec());
            }
        }
        (redone, damage)
    }

    /// Returns the bytes of the value that recovery would store in the block at `offset`, if it would.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if there is no block.
    pub fn value<M: Medium>(
        &self,
        pool: &Pool<M>,
        offset: u64,
    ) -> Result<Option<Vec<u8>>, PmError> {
        let Some(words) = self.0.get(&offset) else { return Ok(None) };
        let block = RecordBlock::at(pool, offset)?;
        if block.value_part().len() != words.len() {
            return Ok(None);
        }
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        Ok(Some(bytes.take(block.value_len()).collect()))
    }
}
