//! Visiting every node: for counts, sizes and verification.

use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::{RecordBlock, Slot, bits};

use super::inner::Inner;
use super::layout::Child;
use super::leaf::Leaf;
use super::tree::WbTree;

/// A visited node.
pub(super) enum Node<'p, K, V, const LEAF: usize, const INNER: usize> {
    Inner(Inner<'p, K, V, LEAF, INNER>),
    Leaf(Leaf<'p, K, V, LEAF>),
    /// A record's block, or a separator's.
    Block(RecordBlock<'p>),
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Visits the leaves under `top` in order; for a quiescent index.
    pub(super) fn walk(
        &self,
        top: Child,
        visit: &mut impl FnMut(&Leaf<'_, K, V, LEAF>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let mut steps = self.node_limit();
        self.nodes_under(top, &mut steps, &mut |node| match node {
            Node::Leaf(leaf) => visit(&leaf),
            _ => Ok(()),
        })
    }

    /// Visits everything under `top`: a node before its children, then its blocks.
    pub(super) fn visit(
        &self,
        top: Child,
        visit: &mut impl FnMut(Node<'_, K, V, LEAF, INNER>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let pool = &*self.pool;
        let mut steps = self.node_limit();
        self.nodes_under(top, &mut steps, &mut |node| {
            let mut blocks = Vec::new();
            blocks_of(pool, &node, &mut blocks);
            visit(node)?;
            for block in blocks {
                visit(Node::Block(RecordBlock::at(pool, block)?))?;
            }
            Ok(())
        })
    }

    /// Visits the nodes below `top`. The recursion descends a level at each step, so it ends; `steps` bounds its
    /// breadth.
    fn nodes_under(
        &self,
        top: Child,
        steps: &mut u64,
        visit: &mut impl FnMut(Node<'_, K, V, LEAF, INNER>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let pool = &*self.pool;
        if *steps == 0 {
            return Err(PmError::Corrupt { what: "more nodes than there can be", offset: 0 });
        }
        *steps -= 1;
        if top.level() == 0 {
            return visit(Node::Leaf(Leaf::at(pool, top.offset())?));
        }
        let inner = Inner::at(pool, top.offset())?;
        visit(Node::Inner(inner))?;
        for i in inner.entries(pool)? {
            let child = inner.child(pool.pm(), usize::from(i));
            self.nodes_under(child.below(top)?, steps, visit)?;
        }
        Ok(())
    }
}

/// The blocks of the separators or records of a node.
pub(super) fn blocks_of<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    node: &Node<'_, K, V, LEAF, INNER>,
    blocks: &mut Vec<u64>,
) {
    let pm = pool.pm();
    match node {
        Node::Inner(inner) if K::SHAPE == Shape::Bytes => {
            let entries = bits(inner.state(pm).entries()).filter(|&i| i < INNER);
            blocks.extend(entries.map(|i| inner.block(pm, i)).filter(|&block| block != 0));
        }
        Node::Leaf(leaf) if Slot::<K, V>::HAS_BLOCK => {
            let live = leaf.live(pm, leaf.state(pm));
            blocks.extend(bits(live).map(|i| Slot::<K, V>::block(pm, leaf.slot(i))));
        }
        _ => {}
    }
}
