//! Verification of the whole structure.

use std::collections::HashSet;

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Pair, RecordBlock};

use crate::directory::Entry;
use crate::index::Cceh;
use crate::layout::{Cover, HEADER_WORDS, NEXT, Root, Sought, has_block};
use crate::segment::{Segment, key_of, value_of};

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Checks that the segments cover each position once, that the directory points to them, and that every
    /// record is intact, in one of its lines, with the id of its key, and unique.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first segment or block that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    fn check_inner(&self) -> Result<u64, IndexError> {
        let mut records = 0;
        Self::walk(&self.pool, self.root()?, |segment, cover| {
            let entry = Entry::new(segment.offset(), cover.depth);
            let ends = [cover.base, cover.end().wrapping_sub(1)];
            if ends.iter().any(|&position| self.directory.find(position) != entry) {
                return Err(corrupt(
                    "a segment that the directory does not lead to",
                    segment.offset(),
                ));
            }
            records += self.check_segment(segment, cover)?;
            Ok(())
        })?;
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    fn check_segment(
        &self,
        segment: &Segment<'_, LINES, PROBE>,
        cover: Cover,
    ) -> Result<u64, PmError> {
        let offset = segment.offset();
        let image = segment.image(self.pm());
        if image[NEXT + 1..HEADER_WORDS].iter().any(|&word| word != 0) {
            return Err(corrupt("the header of a segment", offset));
        }
        let (mut records, mut blocks) = (0, HashSet::new());
        for (pair, words) in segment.records(self.pm(), cover) {
            if has_block::<K, V>() {
                RecordBlock::whole_at(&self.pool, words[1])?;
                if !blocks.insert(words[1]) {
                    return Err(corrupt("a block of two records", words[1]));
                }
            }
            let key = key_of::<K, V, M>(&self.pool, words)?;
            value_of::<K, V, M>(&self.pool, words[1])?;
            let Ok(sought) = Sought::new::<K>(key.borrowed()) else {
                return Err(corrupt("a key that is too long", offset));
            };
            if sought.id != words[0] {
                return Err(corrupt("a record with another key's id", offset));
            }
            let found = segment.find::<K, V, M>(&self.pool, &sought)?;
            if found.map(|found| found.pair) != Some(pair) {
                return Err(corrupt("a record that is not found, or twice there", offset));
            }
            records += 1;
        }
        Ok(records)
    }

    /// Returns the offsets of all blocks of a quiescent index: root, segments, record blocks.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        Self::walk(&self.pool, self.root()?, |segment, cover| {
            blocks.push(segment.offset());
            if Pair::<K, V>::HAS_BLOCK {
                for (_, [_, block]) in segment.records(self.pm(), cover) {
                    RecordBlock::at(&self.pool, block)?;
                    blocks.push(block);
                }
            }
            Ok(())
        })?;
        Ok(blocks)
    }
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
