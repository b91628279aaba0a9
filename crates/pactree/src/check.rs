//! Verification of the whole structure.

use std::collections::{BTreeMap, HashSet};

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Probe, RecordBlock, bits, ordered_bytes};

use crate::follow::What;
use crate::layout::{Geometry, Root, Slot};
use crate::node::Node;
use crate::tree::PacTree;

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Every node: valid bitmap; fingerprints match; keys distinct, and in its range; its neighbours know it;
    /// the trie leads to it by its low key, or a change that the trie does not know yet says so. The trie leads
    /// to nothing else. Records as many as counted.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first node that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    fn check_inner(&self) -> Result<u64, IndexError> {
        let pm = self.pm();
        let (mut made, mut gone) = (HashSet::new(), HashSet::new());
        for change in self.behind.changes(pm) {
            match change.what {
                What::Split => made.insert(change.node),
                What::Merge => gone.insert(change.node),
            };
        }
        let mut led = BTreeMap::new();
        self.trie.each(&mut |low, node| {
            led.insert(low, node);
            Ok(())
        })?;
        let mut records = 0;
        let (mut before, mut greatest) = (0, None::<Vec<u8>>);
        self.walk(|node| {
            let offset = node.offset();
            if node.prev(pm) != before || node.next(pm).is_gone() {
                return Err(corrupt("a node whose neighbours do not know it", offset));
            }
            if before != 0 {
                let low = node.low(&self.pool)?;
                if greatest.as_ref().is_some_and(|greatest| *greatest >= low) {
                    return Err(corrupt("a node that begins before the last one ends", offset));
                }
                if led.remove(&low) != Some(offset) && !made.contains(&offset) {
                    return Err(corrupt("the trie does not lead to a node", offset));
                }
                greatest = self.check_records(node, &low)?.or(Some(low));
            } else {
                greatest = self.check_records(node, &[])?;
            }
            before = offset;
            records += u64::from(node.bitmap(pm).count_ones());
            Ok(())
        })?;
        for (low, node) in led {
            if !gone.contains(&node) || self.node(node)?.low(&self.pool)? != low {
                return Err(corrupt("the trie leads to a node that is not there", node).into());
            }
        }
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    /// Checks the records of a node; returns the greatest key.
    fn check_records(
        &self,
        node: &Node<'_, K, V, LEAF>,
        low: &[u8],
    ) -> Result<Option<Vec<u8>>, PmError> {
        let (pm, offset) = (self.pm(), node.offset());
        let bitmap = node.bitmap(pm);
        if bitmap & !Geometry::<K, V, LEAF>::ALL != 0 {
            return Err(corrupt("the bitmap of a node", offset));
        }
        let mut greatest: Option<Vec<u8>> = None;
        for &slot in node.order(&self.pool, bitmap)?.slots() {
            let words = node.slot(slot.into());
            let key = Slot::<K, V>::checked_key(&self.pool, words)?;
            Slot::<K, V>::value(&self.pool, words)?;
            if Probe::<K>::of_stored(&key).fingerprint() != node.fingerprint(pm, slot.into()) {
                return Err(corrupt("a fingerprint does not match its key", offset));
            }
            let bytes = ordered_bytes::<K>(key.borrowed());
            if *bytes < *low || greatest.as_ref().is_some_and(|last| **last >= *bytes) {
                return Err(corrupt("keys out of order, or twice", offset));
            }
            greatest = Some(bytes.to_vec());
        }
        Ok(greatest)
    }

    /// Returns the offsets of all blocks of a quiescent index: root, log, trie, nodes, low keys, record blocks.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let pm = self.pm();
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        blocks.extend(self.behind.log.blocks()?);
        blocks.extend(self.trie.blocks()?.0);
        for change in self.behind.changes(pm) {
            if change.what == What::Merge {
                let node = self.node(change.node)?;
                blocks.push(change.node);
                blocks.extend(node.low_block(pm));
            }
        }
        self.walk(|node| {
            blocks.push(node.offset());
            if node.offset() != self.head {
                blocks.extend(node.low_block(pm));
            }
            if Slot::<K, V>::HAS_BLOCK {
                for i in bits(node.bitmap(pm) & Geometry::<K, V, LEAF>::ALL) {
                    let block = Slot::<K, V>::block(pm, node.slot(i));
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
