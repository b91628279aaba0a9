//! Verification of the whole structure.

use std::collections::HashSet;

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Pair, Probe, RecordBlock};

use crate::layout::{LINE_PAIRS, LINE_WORDS, Root, has_block, mark, window};
use crate::list::SkipList;
use crate::node::{Node, value_of};

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Checks that every record is intact, in one of its lines, with the mark and the first word of its key,
    /// and unique; that keys ascend from node to node; and that the towers lead to every node and to each
    /// key's node.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first node or block that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    fn check_inner(&self) -> Result<u64, IndexError> {
        let (mut records, mut nodes, mut blocks) = (0, Vec::new(), HashSet::new());
        let mut last: Option<K> = None;
        Self::walk(&self.pool, self.root()?, |node| {
            nodes.push(node.offset());
            records += self.check_node(node, &mut last, &mut blocks)?;
            Ok(())
        })?;
        self.towers.check(&nodes)?;
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    fn check_node(
        &self,
        node: &Node<'_, LINES>,
        last: &mut Option<K>,
        blocks: &mut HashSet<u64>,
    ) -> Result<u64, PmError> {
        let (pm, offset) = (self.pm(), node.offset());
        for line in 0..LINES {
            let reserved = &node.words()[LINE_WORDS * (line + 1) - 1];
            if !node.state(pm, line).is_valid() || (line > 0 && pm.load_word(reserved) != 0) {
                return Err(corrupt("a line of a node", offset));
            }
        }
        let sorted = node.sorted::<K, V, M>(&self.pool)?;
        for (key, entry) in &sorted {
            if has_block::<K, V>() {
                RecordBlock::whole_at(&self.pool, entry.pair[1])?;
                if !blocks.insert(entry.pair[1]) {
                    return Err(corrupt("a block of two records", entry.pair[1]));
                }
            }
            value_of::<K, V, M>(&self.pool, entry.pair[1])?;
            if last.as_ref().is_some_and(|last| last >= key) {
                return Err(corrupt("keys out of order", offset));
            }
            let probe = Probe::<K>::of_stored(key);
            let in_window =
                window::<LINES>(entry.mark).any(|line| line == entry.place / LINE_PAIRS);
            if entry.mark != mark(&probe) || entry.pair[0] != probe.prefix() || !in_window {
                return Err(corrupt(
                    "a record with another key's mark, or in no place of its own",
                    offset,
                ));
            }
            if self.towers.node_for(pm, &pmindex_record::Route::to(&probe)) != offset {
                return Err(corrupt("a record in a node that its key does not lead to", offset));
            }
            *last = Some(key.clone());
        }
        Ok(sorted.len() as u64)
    }

    /// Returns the offsets of all blocks of a quiescent index: root, nodes, record blocks.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        Self::walk(&self.pool, self.root()?, |node| {
            blocks.push(node.offset());
            if Pair::<K, V>::HAS_BLOCK {
                for entry in node.entries(self.pm()) {
                    RecordBlock::at(&self.pool, entry.pair[1])?;
                    blocks.push(entry.pair[1]);
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
