//! Reading the children of a node in order, all at once.

use pmindex_core::{Medium, PmCell, PmU64};

use crate::child::Child;
use crate::node::{Node, Node48, Nodes};

/// The number of cells tested together, without a branch for each: which cells are in use is unpredictable.
const GROUP: usize = 16;

/// Collects the children that a walk finds.
pub(crate) trait Basket {
    /// Appends the existing ones among these children, in their order.
    fn put<const N: usize>(&mut self, children: [Child; N]);
    /// Estimates the number of leaves below the children collected.
    fn leaves(&self) -> usize;
}

impl Nodes {
    /// Appends children with bytes from `from` on, in order (`up`: ascending), to `basket`: all, or enough
    /// for about `enough` leaves. Returns whether some may be left out. Racing: validate.
    #[inline(always)]
    pub(crate) fn children(
        &self,
        node: Node<'_>,
        from: u8,
        up: bool,
        enough: usize,
        basket: &mut impl Basket,
    ) -> bool {
        let meta = self.meta(node);
        match node {
            Node::N4(node) => {
                let keys = meta.keys().to_le_bytes();
                let count = meta.count().min(4);
                basket.put(self.in_order(&keys, &node.children, count, (from, up)));
                false
            }
            Node::N16(node) => {
                let count = meta.count().min(16);
                basket.put(self.in_order(&self.keys16(node), &node.children, count, (from, up)));
                false
            }
            Node::N48(node) => self.children48(node, (from, up, enough), basket),
            Node::N256(node) => self.children256(&node.children, (from, up, enough), basket),
        }
    }

    /// Returns children in the order of their bytes, with empty words in place of unwanted ones.
    #[inline(always)]
    fn in_order<const N: usize>(
        &self,
        keys: &[u8; N],
        children: &[PmCell<Child>; N],
        count: usize,
        (from, up): (u8, bool),
    ) -> [Child; N] {
        let mut inside = [Child::NOTHING; N];
        for (at, (&key, child)) in keys.iter().zip(children).enumerate() {
            let wanted = at < count && if up { key >= from } else { key <= from };
            let child = self.dram.load(child);
            inside[if up { at } else { N - 1 - at }] = if wanted { child } else { Child::NOTHING };
        }
        inside
    }

    fn children48(
        &self,
        node: &Node48,
        (from, up, enough): (u8, bool, usize),
        basket: &mut impl Basket,
    ) -> bool {
        let mut from = Some(from);
        while let Some(start) = from {
            if basket.leaves() >= enough {
                return true;
            }
            // Reads the index eight bytes at a time.
            let (at, within) = (usize::from(start / 8), u32::from(start % 8));
            let mask = if up { u64::MAX << (8 * within) } else { u64::MAX >> (56 - 8 * within) };
            let mut word = self.dram.load(&node.index[at]) & mask;
            while word != 0 {
                let place = (if up { word.trailing_zeros() } else { word.ilog2() }) / 8;
                let slot = usize::from(word.to_le_bytes()[place as usize]);
                word &= !(0xff << (8 * place));
                if let Some(cell) = node.children.get(slot - 1) {
                    basket.put([self.dram.load(cell)]);
                }
            }
            let edge = 8 * at as u8;
            from = if up { (edge | 7).checked_add(1) } else { edge.checked_sub(1) };
        }
        false
    }

    #[inline(always)]
    fn children256(
        &self,
        children: &[PmCell<Child>; 256],
        (from, up, enough): (u8, bool, usize),
        basket: &mut impl Basket,
    ) -> bool {
        let from = usize::from(from);
        // Reads whole groups, and skips the unwanted children of the first one.
        let (first, last) = (from / GROUP, children.len() / GROUP - 1);
        let groups = children.as_chunks::<GROUP>().0;
        for at in if up { first..=last } else { 0..=first } {
            if basket.leaves() >= enough {
                return true;
            }
            let at = if up { at } else { first - at };
            let cells = &groups[at];
            let here = from.wrapping_sub(GROUP * at);
            let mut inside = [Child::NOTHING; GROUP];
            for (i, cell) in cells.iter().enumerate() {
                let wanted = here >= GROUP || if up { i >= here } else { i <= here };
                let child = self.dram.load(cell);
                inside[if up { i } else { GROUP - 1 - i }] =
                    if wanted { child } else { Child::NOTHING };
            }
            basket.put(inside);
        }
        false
    }

    /// Prefetches what [`children`](Self::children) reads, as far as that is known before the node is read:
    /// the line of `byte` and the following ones, for about `wanted` children. A hint.
    #[inline(always)]
    pub(crate) fn prefetch_children(&self, node: Node<'_>, byte: u8, up: bool, wanted: usize) {
        let wanted = wanted.min(256);
        match node {
            Node::N4(_) | Node::N16(_) => {}
            Node::N48(node) => {
                self.prefetch_lines(&node.index, usize::from(byte / 8), up, wanted.div_ceil(8));
                self.prefetch_lines(&node.children, 0, true, wanted.min(48));
            }
            Node::N256(node) => {
                self.prefetch_lines(&node.children, usize::from(byte), up, 2 * wanted);
            }
        }
    }

    /// Prefetches the lines of `count` cells.
    #[inline(always)]
    fn prefetch_lines<T: pmindex_core::PmType>(
        &self,
        cells: &[T],
        from: usize,
        up: bool,
        count: usize,
    ) {
        const STEP: usize = pmindex_core::LINE / size_of::<PmU64>();
        let cells = if up {
            &cells[from..cells.len().min(from + count)]
        } else {
            &cells[(from + 1).saturating_sub(count)..=from]
        };
        for cell in cells.iter().step_by(STEP).chain(cells.last()) {
            self.dram.prefetch(cell);
        }
    }
}
