//! Verification of the whole structure.

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Pair, RecordBlock, ordered_bytes};

use crate::index::Woart;
use crate::layout::{Root, digit};
use crate::path::lonely;
use crate::tree::Visited;

impl<K: Key, V: Value, M: Medium, const COW: bool> Woart<K, V, M, COW> {
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Checks that every leaf is intact, in order, and at the digits of its key; that every node has at least
    /// two children, the depth in its parent's word, greater depths below it, and keys that agree in all
    /// bytes before its depth.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first node or leaf that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    fn check_inner(&self) -> Result<u64, IndexError> {
        let mut records = 0;
        let mut last: Option<(Vec<u8>, Vec<usize>)> = None;
        self.tree.walk(&mut |visited| {
            let (leaf, way) = match visited {
                Visited::Node(node) => {
                    if node.branches(self.tree.pm()).len() < 2 {
                        return Err(lonely(node.offset));
                    }
                    if !node.is_as_told(self.tree.pm()) {
                        return Err(corrupt("the header of a node", node.offset));
                    }
                    return Ok(());
                }
                Visited::Leaf(leaf, way) => (leaf.offset(), way),
            };
            let bytes = RecordBlock::whole_at(&self.pool, leaf)?.key(self.tree.pm());
            let key = Pair::<K, V>::key_in(&self.pool, leaf)?;
            if *ordered_bytes::<K>(key.borrowed()) != *bytes {
                return Err(corrupt("the encoding of a key", leaf));
            }
            Pair::<K, V>::value_in(&self.pool, leaf)?;
            if way.iter().any(|&(depth, at)| depth > bytes.len() || digit(&bytes, depth) != at) {
                return Err(corrupt("a leaf that is not at its key's digits", leaf));
            }
            let depths: Vec<usize> = way.iter().map(|step| step.0).collect();
            if let Some((before, above)) = &last {
                // The node where two paths part has the depth at which their keys differ.
                let parts = before.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
                let shared = above.iter().zip(&depths).take_while(|(a, b)| a == b).count();
                if *before >= bytes || !depths[..shared].contains(&parts) {
                    return Err(corrupt("keys out of order, or that part elsewhere", leaf));
                }
            }
            last = Some((bytes, depths));
            records += 1;
            Ok(())
        })?;
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    /// Returns the offsets of all blocks of a quiescent index: root, nodes, leaves.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        self.tree.walk(&mut |visited| {
            blocks.push(match visited {
                Visited::Node(node) => node.offset,
                Visited::Leaf(leaf, _) => leaf.offset(),
            });
            Ok(())
        })?;
        Ok(blocks)
    }
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
