//! Verification of the inner nodes.

use pmindex_core::{Medium, PmError};
use pmindex_index::Key;

use super::parent::{Entry, FIRST, InnerTree};
use pmindex_record::Separator;

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// Whether the nodes lead to these leaves in this order, each once, with their separators
    /// ascending, the unused ones out of the way and the links in both directions.
    pub(in crate::nvtree) fn check(&self, leaves: &[u64]) -> Result<(), PmError> {
        let mut rest = leaves;
        let mut last: Option<Separator> = None;
        let (mut left, mut next) = (None, Some(FIRST));
        for _ in 0..=leaves.len() {
            let Some(index) = next else { break };
            let contents = self.read(index);
            let named: Vec<u64> =
                contents.leaves.iter().map(|word| Entry::leaf_of(*word)).collect();
            let Some(others) = rest.strip_prefix(named.as_slice()) else {
                return Err(wrong("the inner nodes and the list name other leaves"));
            };
            rest = others;
            if contents.links.left != left || self.is_dead(index) {
                return Err(wrong("a parent-to-leaf node that its neighbour does not know"));
            }
            for separator in contents.separators.iter().chain(&contents.high) {
                let out_of_order = |last: Separator| {
                    last.prefix > separator.prefix
                        || Self::ONE_WORD && last.prefix == separator.prefix
                };
                if last.is_some_and(out_of_order) {
                    return Err(wrong("separators out of order"));
                }
                last = Some(*separator);
            }
            let unused = &self.parents.get(index).keys[contents.separators.len()..];
            if unused.iter().any(|key| self.dram.load_word(key) != u64::MAX) {
                return Err(wrong("an unused separator in the way"));
            }
            (left, next) = (Some(index), contents.links.right);
        }
        if next.is_some() || !rest.is_empty() {
            return Err(wrong("the inner nodes and the list name other leaves"));
        }
        Ok(())
    }
}

fn wrong(what: &'static str) -> PmError {
    PmError::Corrupt { what, offset: 0 }
}
