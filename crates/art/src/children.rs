//! The children of a node in order, several at a time.

use pmindex_core::{Medium, PmCell, PmU64};

use crate::child::Child;
use crate::node::{Node, Node48, Nodes};

impl Nodes {
    /// Appends up to `limit` children with bytes from `from` on, in order (`up`: ascending), to `out`;
    /// returns the first one's byte, and from where there may be more. Racing: validate.
    #[inline(always)]
    pub(crate) fn children(
        &self,
        node: Node<'_>,
        from: u8,
        up: bool,
        limit: usize,
        out: &mut Vec<Child>,
    ) -> (Option<u8>, Option<u8>) {
        let meta = self.meta(node);
        match node {
            Node::N4(node) => {
                let keys = &meta.keys().to_le_bytes()[..meta.count().min(4)];
                self.sorted(keys, &node.children, (from, up, limit), out)
            }
            Node::N16(node) => {
                let keys = &self.keys16(node)[..meta.count().min(16)];
                self.sorted(keys, &node.children, (from, up, limit), out)
            }
            Node::N48(node) => self.children48(node, (from, up, limit), out),
            Node::N256(node) => self.children256(&node.children, (from, up, limit), out),
        }
    }

    /// Of children in the order of their bytes.
    #[inline(always)]
    fn sorted(
        &self,
        keys: &[u8],
        children: &[PmCell<Child>],
        (from, up, limit): (u8, bool, usize),
        out: &mut Vec<Child>,
    ) -> (Option<u8>, Option<u8>) {
        let (mut first, mut left) = (None, limit);
        let count = keys.len();
        for i in 0..count {
            let at = if up { i } else { count - 1 - i };
            let byte = keys[at];
            if if up { byte < from } else { byte > from } {
                continue;
            }
            if left == 0 {
                return (first, Some(byte));
            }
            first = first.or(Some(byte));
            out.push(self.dram.load(&children[at]));
            left -= 1;
        }
        (first, None)
    }

    fn children48(
        &self,
        node: &Node48,
        (from, up, limit): (u8, bool, usize),
        out: &mut Vec<Child>,
    ) -> (Option<u8>, Option<u8>) {
        let (mut first, mut left, mut from) = (None, limit, Some(from));
        while let Some(start) = from {
            // Eight bytes of the index at a time.
            let (at, within) = (usize::from(start / 8), u32::from(start % 8));
            let mask = if up { u64::MAX << (8 * within) } else { u64::MAX >> (56 - 8 * within) };
            let mut word = self.dram.load(&node.index[at]) & mask;
            while word != 0 {
                let place = (if up { word.trailing_zeros() } else { word.ilog2() }) / 8;
                let byte = 8 * at as u8 + place as u8;
                if left == 0 {
                    return (first, Some(byte));
                }
                let slot = usize::from(word.to_le_bytes()[place as usize]);
                word &= !(0xff << (8 * place));
                if let Some(cell) = node.children.get(slot - 1) {
                    first = first.or(Some(byte));
                    out.push(self.dram.load(cell));
                    left -= 1;
                }
            }
            let edge = 8 * at as u8;
            from = if up { (edge | 7).checked_add(1) } else { edge.checked_sub(1) };
        }
        (first, None)
    }

    #[inline(always)]
    fn children256(
        &self,
        children: &[PmCell<Child>; 256],
        (from, up, limit): (u8, bool, usize),
        out: &mut Vec<Child>,
    ) -> (Option<u8>, Option<u8>) {
        // Some cells at a time, without a branch for each: which are in use nothing predicts.
        const CELLS: usize = 16;
        let from = usize::from(from);
        let cells = if up { &children[from..] } else { &children[..=from] };
        let byte = |i: usize| if up { (from + i) as u8 } else { (from - i) as u8 };
        let (mut first, mut taken, mut done) = (None, 0, 0);
        while done < cells.len() {
            let count = CELLS.min(cells.len() - done);
            let mut found = [(Child::NOTHING, 0); CELLS + 1];
            let mut some = 0;
            for i in done..done + count {
                let child = self.dram.load(&cells[if up { i } else { cells.len() - 1 - i }]);
                found[some] = (child, byte(i));
                some += usize::from(!child.is_nothing());
            }
            done += count;
            let room = some.min(limit - taken);
            out.extend(found[..room].iter().map(|&(child, _)| child));
            taken += room;
            if some > 0 && first.is_none() {
                first = (room > 0).then_some(found[0].1);
            }
            if room < some {
                return (first, Some(found[room].1));
            }
        }
        (first, None)
    }

    /// Fetches what [`children`](Self::children) reads, as far as it is known before the node is read:
    /// the line of `byte` and those after it, for about `wanted` children. A hint.
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

    /// Fetches the lines of `count` cells.
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
        for cell in cells.iter().step_by(STEP) {
            self.dram.prefetch(cell);
        }
    }
}
