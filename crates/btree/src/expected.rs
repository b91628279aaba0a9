//! What a parent says of its children, for checks.

use crate::node::{Node, Packed, Source};

/// A page, and what it must have while no thread writes: splits change a page and its parent in one transaction.
pub(crate) struct Expected {
    pub(crate) page: u64,
    /// `None`: any.
    level: Option<usize>,
    /// No key is less.
    low: Option<Packed>,
    fence: Option<Packed>,
    /// The next page of the level, if the parent knows it; 0 if there is none.
    right: Option<u64>,
}

impl Expected {
    pub(crate) fn root(page: u64) -> Self {
        Self { page, level: None, low: None, fence: None, right: Some(0) }
    }

    /// Compares it with the page; returns the difference.
    pub(crate) fn check<S: Source>(&self, node: &Node<'_, S>) -> Result<(), &'static str> {
        if self.level.is_some_and(|level| level != node.level()) {
            return Err("it is of another level");
        }
        if self.right.is_some_and(|right| right != node.right()) {
            return Err("its neighbour is not its parent's next page");
        }
        if self.fence != node.fence() {
            return Err("its fence is not the key of its parent's next page");
        }
        match &self.low {
            Some(low) if node.count() > 0 && node.key(0) < *low => {
                Err("a key is less than the parent's key of the page")
            }
            _ => Ok(()),
        }
    }

    /// Returns what a sound inner node, of which this is true, says of its children; nothing for a leaf.
    pub(crate) fn children<S: Source>(&self, node: &Node<'_, S>) -> Vec<Self> {
        let Some(level) = node.level().checked_sub(1) else { return Vec::new() };
        let (pages, count) = (node.children(), node.count());
        let child = |nth: usize| Self {
            page: pages[nth],
            level: Some(level),
            low: nth.checked_sub(1).map_or_else(|| self.low.clone(), |nth| Some(node.key(nth))),
            fence: if nth < count { Some(node.key(nth)) } else { self.fence.clone() },
            right: pages.get(nth + 1).copied().or((self.right == Some(0)).then_some(0)),
        };
        (0..pages.len()).map(child).collect()
    }
}
