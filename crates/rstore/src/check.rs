//! Verifying a partition.

use std::collections::HashMap;

use pmindex_core::{Medium, PmError};

use crate::blocks::{Location, State, is_any_from};
use crate::layout::HEADER;
use crate::partition::Partition;
use crate::record::TOMBSTONE;
use crate::{Check, Error};

impl<M: Medium> Partition<M> {
    /// Verifies every checksum, and that the index, the bits and the counts in DRAM agree with the blocks. What a
    /// [salvage](crate::Options::salvage) has left out is not said again.
    ///
    /// # Errors
    /// [`Error::Damaged`]; [`Error::Pool`] for a disagreement.
    ///
    /// # Cost
    /// Reads the whole partition. No flush, no fence.
    pub fn check(&self) -> Result<Check, Error> {
        let (mut checked, mut dead) = (Check::default(), HashMap::<u64, u32>::new());
        let mut live = 0;
        for (place, block) in (0..).zip(&self.blocks.list) {
            if !matches!(block.state, State::Absent | State::Large | State::Free) {
                let words = self.check_block(place, &mut checked, &mut dead)?;
                if words != block.live {
                    return wrong("the live words of a block", block.offset);
                }
                live += u64::from(words);
            }
        }
        for hash in self.pipeline.sealed.iter().filter_map(|&(_, hash)| hash) {
            *dead.entry(hash).or_default() += 1;
        }
        let large = self.large.len() - self.pipeline.replaced.len() - self.pipeline.kept.len();
        let all_dead: u64 = dead.values().map(|&count| u64::from(count)).sum();
        if live != self.blocks.live
            || checked.records != self.index.len
            || checked.large_values != large as u64
            || all_dead != self.graves.all_dead()
            || dead.iter().any(|(&hash, &count)| self.graves.dead(hash) != count)
        {
            return wrong("the counts of a partition", self.root.offset());
        }
        Ok(checked)
    }

    fn check_block(
        &self,
        place: u32,
        checked: &mut Check,
        dead: &mut HashMap<u64, u32>,
    ) -> Result<u32, Error> {
        let block = self.blocks.at(place);
        let waiting = [&self.pipeline.emptied, &self.pipeline.settled, &self.pipeline.void];
        let victims = waiting.into_iter().flatten().chain(&self.victim);
        let victim = victims.into_iter().find(|victim| victim.place == place);
        // A salvage has said what is damaged in it; nothing of that is live.
        let is_left = block.state == State::Damaged;
        let (mut word, mut live) = (HEADER as u32, 0);
        let (mut words, mut key, mut value) = (Vec::new(), Vec::new(), Vec::new());
        while word < block.used {
            let at = Location::new(place, word);
            let found = self.blocks.record(at);
            let found = found
                .and_then(|(head, cells)| Ok((head, cells.len(), self.blocks.is_hole(at, head)?)));
            let (head, length, is_hole) = match found {
                // Opening has not found what is behind it either.
                Err(Error::Damaged { .. }) if is_left && !is_any_from(block.bits(), word) => break,
                found => found?,
            };
            let is_staged = head.is_sealed() && self.pipeline.filled.iter().any(|one| one.0 == at);
            if is_hole && !is_staged {
                if block.is_live(word) {
                    return Err(self.blocks.damaged(at));
                }
                checked.dead += 1;
                word += length as u32;
                continue;
            }
            let parts = match self.blocks.read(at, &mut words) {
                Err(Error::Damaged { .. }) if is_left && !block.is_live(word) => {
                    checked.dead += 1;
                    word += length as u32;
                    continue;
                }
                read => read?,
            };
            let length = parts.words.len() as u32 + 1;
            key.clear();
            parts.push_key(&mut key);
            let key_words = &parts.words[parts.head.key_at()..parts.head.value_at()];
            let hash = self.hash(key_words, key.len());
            let in_index = self.index.get(&self.blocks, &key)?;
            let is_tombstone = parts.head.has(TOMBSTONE);
            if block.is_live(word) {
                live += length;
                if is_tombstone {
                    checked.tombstones += 1;
                } else {
                    checked.records += 1;
                }
                if (in_index == Some(at)) == is_tombstone {
                    return Err(self.blocks.damaged(at));
                }
                if let Some(large) = parts.large() {
                    value.clear();
                    self.read_large(large, parts.head.value_len, &mut value)?;
                    checked.large_values += 1;
                }
            } else {
                if in_index == Some(at) {
                    return wrong("a dead record in the index", block.offset);
                }
                checked.dead += 1;
                let is_moved = victim.is_some_and(|victim| victim.has_moved(word));
                if !is_tombstone && !is_moved && parts.head.lsn > self.cleared {
                    *dead.entry(hash).or_default() += 1;
                }
            }
            word += length;
        }
        Ok(live)
    }
}

fn wrong<T>(what: &'static str, offset: u64) -> Result<T, Error> {
    Err(PmError::Corrupt { what, offset }.into())
}
