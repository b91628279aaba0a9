//! Verification of the inner nodes.

use pmindex_core::{Medium, PmError};
use pmindex_index::{Key, Value};

use crate::layout::Child;
use crate::tree::FastFair;

use super::node::{Separator, no_tree};

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Visits the inner nodes of a quiescent index.
    pub(crate) fn visit_nodes(
        &self,
        visit: &mut impl FnMut(Child) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        self.known_leaves_of(self.top()?, visit).map(|_| ())
    }

    /// Returns the leaves that the inner nodes know, in order, each but the first with the separator on its
    /// left.
    pub(crate) fn known_leaves(&self) -> Result<Vec<(Option<Separator>, u64)>, PmError> {
        self.known_leaves_of(self.top()?, &mut |_| Ok(()))
    }

    /// Checks that unused prefixes are not less than any key's; searches rely on it.
    pub(crate) fn check_padding(&self, child: Child) -> Result<(), PmError> {
        let node = self.node(child)?;
        let rest = &node[self.children(node) - 1..INNER];
        if rest.iter().all(|word| self.pm().load_word(word) == u64::MAX) {
            return Ok(());
        }
        let what = "more separators than an inner node counts";
        Err(PmError::Corrupt { what, offset: child.offset() })
    }

    fn known_leaves_of(
        &self,
        top: Child,
        visit: &mut impl FnMut(Child) -> Result<(), PmError>,
    ) -> Result<Vec<(Option<Separator>, u64)>, PmError> {
        let mut level = vec![(None, top)];
        let limit = self.leaf_limit() as usize;
        while let Some(&(_, first)) = level.first()
            && first.level() > 0
        {
            let mut below = Vec::new();
            for (low, child) in level {
                visit(child)?;
                let contents = self.contents(child)?;
                let lows = contents.separators.iter().map(|separator| Some(*separator));
                below.extend(std::iter::once(low).chain(lows).zip(contents.children));
                if below.len() > limit {
                    return Err(no_tree(child));
                }
            }
            level = below;
        }
        Ok(level.into_iter().map(|(low, child)| (low, child.offset())).collect())
    }
}
