//! A node: its words, and a private copy of them.

use pmindex_core::{Medium, PmError, PmU64};
use pmindex_index::{Key, Value};
use pmindex_record::RecordBlock;

use crate::entry::Sought;
use crate::layout::{Child, Form, Geometry};
use crate::tree::FastFair;

/// A separator: the word that orders it, ties excepted, and the block that breaks ties (0 where keys
/// are words).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) word: u64,
    pub(crate) block: u64,
}

/// A private copy of a node: what changes work on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) separators: Vec<Separator>,
    pub(super) children: Vec<Child>,
}

impl Contents {
    /// Leaves out the children that no key takes, and those beside themselves: what a removal [in place](super::shrink)
    /// leaves, complete or not, and a leaf that is hidden. Returns the place where child `at` is now, or the one that
    /// has its keys.
    fn without_doubles(&mut self, at: usize) -> usize {
        let Self { separators, children } = std::mem::take(self);
        let (mut place, mut last) = (0, children[0]);
        self.children.push(last);
        for (n, &child) in children.iter().enumerate().skip(1) {
            let takes_none = separators.get(n) == Some(&separators[n - 1]);
            if !takes_none && child != last {
                self.separators.push(separators[n - 1]);
                self.children.push(child);
                last = child;
            }
            if n == at {
                place = self.children.len() - 1;
            }
        }
        place
    }

    /// Keeps the lower part; returns the upper part and the separator between. In half, but where
    /// keys arrive in order: then the lower part, which will never change again, stays nearly full.
    pub(super) fn split(&mut self, appending: bool) -> (Separator, Self) {
        let keep =
            if appending { self.children.len() - 2 } else { self.children.len().div_ceil(2) };
        let children = self.children.split_off(keep);
        let separators = self.separators.split_off(keep);
        let middle = self.separators.pop().unwrap_or(separators[0]);
        (middle, Self { separators, children })
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Returns the words of the node that a child word names.
    #[inline(always)]
    pub(super) fn node(&self, child: Child) -> Result<&[PmU64], PmError> {
        self.pool.words(child.offset(), Geometry::<K, V, LEAF, INNER>::INNER_WORDS)
    }

    /// Children of a node.
    #[inline(always)]
    pub(super) fn children(&self, node: &[PmU64]) -> usize {
        (self.pm().load_word(&node[INNER]) as usize).clamp(1, INNER + 1)
    }

    /// Returns the cell of a node's child `at`.
    #[inline(always)]
    pub(super) fn child_cell(node: &[PmU64], at: usize) -> &PmU64 {
        &node[Geometry::<K, V, LEAF, INNER>::CHILDREN + at.min(INNER)]
    }

    /// Returns a node's separator `at`.
    pub(super) fn separator(&self, node: &[PmU64], at: usize) -> Separator {
        let pm = self.pm();
        let block = if Form::<K, V>::WORD_KEY {
            0
        } else {
            pm.load_word(&node[Geometry::<K, V, LEAF, INNER>::BLOCKS + at])
        };
        Separator { word: pm.load_word(&node[at]), block }
    }

    /// Returns the child that `key` takes. Racing: validate.
    #[inline(always)]
    pub(super) fn child_index(&self, node: &[PmU64], key: &Sought<'_>) -> Result<usize, PmError> {
        let at = self.pm().count_less(&node[..INNER], key.word);
        if Form::<K, V>::WORD_KEY { Ok(at) } else { self.break_ties(node, key, at) }
    }

    #[inline(never)]
    fn break_ties(&self, node: &[PmU64], key: &Sought<'_>, start: usize) -> Result<usize, PmError> {
        let pm = self.pm();
        let separators = self.children(node) - 1;
        let blocks = &node[Geometry::<K, V, LEAF, INNER>::BLOCKS..];
        let (mut low, mut high) = (start, start);
        while high < separators && pm.load_word(&node[high]) == key.word {
            high += 1;
        }
        while low < high {
            let middle = low.midpoint(high);
            let block = RecordBlock::at(&self.pool, pm.load_word(&blocks[middle]))?;
            if block.cmp_key(pm, &key.bytes).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Copies a node out, each child once. For the holder of `writer`, or in a quiescent index.
    pub(super) fn contents(&self, child: Child) -> Result<Contents, PmError> {
        self.contents_at(child, 0).map(|(contents, _)| contents)
    }

    /// As [`contents`](Self::contents), with the place of the node's child `at`.
    pub(super) fn contents_at(
        &self,
        child: Child,
        at: usize,
    ) -> Result<(Contents, usize), PmError> {
        let mut contents = self.words_as_contents(child)?;
        let at = contents.without_doubles(at);
        Ok((contents, at))
    }

    /// Copies a node out as it stands there.
    pub(super) fn words_as_contents(&self, child: Child) -> Result<Contents, PmError> {
        let pm = self.pm();
        let node = self.node(child)?;
        let count = self.children(node);
        let separators = (0..count - 1).map(|at| self.separator(node, at)).collect();
        let children = (0..count)
            .map(|at| {
                let found = Child(pm.load_word(Self::child_cell(node, at)));
                if found.level() + 1 == child.level() { Ok(found) } else { Err(no_tree(child)) }
            })
            .collect::<Result<_, _>>()?;
        Ok(Contents { separators, children })
    }

    /// Returns the words of a node.
    pub(super) fn node_words(contents: &Contents) -> Vec<u64> {
        let mut words = vec![0; Geometry::<K, V, LEAF, INNER>::INNER_WORDS];
        words[..INNER].fill(u64::MAX);
        for (at, separator) in contents.separators.iter().enumerate() {
            words[at] = separator.word;
            if !Form::<K, V>::WORD_KEY {
                words[Geometry::<K, V, LEAF, INNER>::BLOCKS + at] = separator.block;
            }
        }
        words[INNER] = contents.children.len() as u64;
        for (at, child) in contents.children.iter().enumerate() {
            words[Geometry::<K, V, LEAF, INNER>::CHILDREN + at] = child.0;
        }
        words
    }
}

/// Returns the error that the inner nodes form no tree.
#[cold]
pub(super) fn no_tree(child: Child) -> PmError {
    PmError::Corrupt { what: "the inner nodes form no tree", offset: child.offset() }
}
