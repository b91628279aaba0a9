//! The blocks that are freed with a partition.
//!
//! Neither a table nor a directory has a checksum, so a damaged word of it may name a block of another index. A block
//! is freed if its header has a checksum of this partition; a piece of a large value if it is intact, or an intact one
//! names it; a page if it names such a block, the directory if it names such a page. While nothing is damaged, an empty
//! page also is.

use pmindex_core::Medium;

use crate::append::OF;
use crate::layout::{GENERATION, HEADER, HEADER_SUM, LENGTH, header_checksum, length_word};
use crate::partition::Partition;
use crate::{Error, Options};

impl Options {
    /// Opens a partition without recovery, only to find its blocks.
    pub(crate) fn discarding() -> Self {
        Self { discard: true, ..Self::new() }
    }
}

impl<M: Medium> Partition<M> {
    /// Returns the blocks that are certainly this partition's, without its root; and `true` if nothing suggests that
    /// a word of its table is damaged.
    pub(crate) fn own_blocks(&self) -> Result<(Vec<u64>, bool), Error> {
        let mut own = self.log.blocks()?;
        let (mut empty, mut any_page, mut all_sound) = (Vec::new(), false, true);
        for (number, &page) in (0..).zip(self.table.pages()) {
            let (mut is_empty, mut is_own) = (true, false);
            for place in self.table.places_of(number) {
                let offset = self.pool().pm().load(self.table.word(place)?);
                if offset == 0 {
                    continue;
                }
                is_empty = false;
                let (blocks, is_whole) = self.own_blocks_at(offset);
                is_own |= !blocks.is_empty();
                all_sound &= is_whole;
                own.extend(blocks);
            }
            if is_own {
                own.push(page);
                any_page = true;
            } else if is_empty {
                empty.push(page);
            }
        }
        if all_sound {
            any_page |= empty.len() == self.table.pages().len();
            own.extend(empty);
        }
        if any_page {
            own.push(self.table.directory());
        }
        own.sort_unstable();
        let listed = own.len();
        own.dedup(); // two words may name the same block
        let is_whole = all_sound && own.len() == listed;
        Ok((own, is_whole))
    }

    /// Returns the blocks of what a word of the table names that are certainly this partition's, and `true` if those
    /// are all.
    fn own_blocks_at(&self, offset: u64) -> (Vec<u64>, bool) {
        let (pm, identity) = (self.pool().pm(), self.blocks.identity);
        let Ok(line) = self.pool().words(offset, HEADER) else { return (Vec::new(), false) };
        let [generation, sum, length] =
            [GENERATION, HEADER_SUM, LENGTH].map(|word| pm.load(&line[word]));
        // A crash may leave one half of the header of a free block.
        let is_free = length == length_word(identity, offset, generation, 0);
        if is_free || sum == header_checksum(identity, offset, generation, OF) {
            return (vec![offset], true);
        }
        self.own_pieces(offset)
    }
}
