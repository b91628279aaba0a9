//! Verification of the whole structure, and walks over it.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{RecordBlock, bits, hash_bytes, hash_words};

use super::inner::Inner;
use super::layout::{Entry, Geometry, MAX_LEVEL, Ptr, Root, State};
use super::leaf::{Leaf, corrupt};
use super::record::Raw;
use super::tree::BzTree;

/// A node of either kind.
pub(super) enum Node<'n, 'p, K, V, const LEAF: usize, const INNER: usize> {
    Inner(&'n Inner<'p, K, V, LEAF, INNER>),
    Leaf(&'n Leaf<'p, K, V, LEAF, INNER>),
}

/// What the checker knows before a node.
struct Checker {
    records: u64,
    greatest: Option<Raw>,
    budget: u64,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// How many nodes there can be at most.
    fn node_limit(&self) -> u64 {
        self.pool.len() / 64 + 1
    }

    /// Visits the nodes from `root` down, parents first, leaves in order.
    pub(super) fn walk(
        &self,
        root: Ptr,
        visit: &mut impl FnMut(&Node<'_, '_, K, V, LEAF, INNER>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        if root.level() > MAX_LEVEL {
            return Err(corrupt("the root's level", root.offset()));
        }
        let mut budget = self.node_limit();
        self.walk_below(root, &mut budget, visit)
    }

    fn walk_below(
        &self,
        node: Ptr,
        budget: &mut u64,
        visit: &mut impl FnMut(&Node<'_, '_, K, V, LEAF, INNER>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        *budget = budget.checked_sub(1).ok_or(corrupt("more nodes than fit", node.offset()))?;
        if node.level() == 0 {
            return visit(&Node::Leaf(&self.leaf(node)?));
        }
        let inner = self.inner(node)?;
        visit(&Node::Inner(&inner))?;
        for index in 0..=inner.separators(self.pm())? {
            self.walk_below(inner.child(&self.mwcas, index)?, budget, visit)?;
        }
        Ok(())
    }

    /// Visits the leaves in order; with others writing, each as it is in the tree then, pinned.
    pub(super) fn walk_leaves(
        &self,
        mut visit: impl FnMut(&Leaf<'_, K, V, LEAF, INNER>) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let _pin = self.pool.pin();
        let root = Ptr::of(self.mwcas.read(self.anchor()?)?);
        self.walk(root, &mut |node| match node {
            Node::Leaf(leaf) => visit(leaf),
            Node::Inner(_) => Ok(()),
        })
    }

    /// Bytes of the blocks out of line of a leaf's records.
    pub(super) fn bytes_out_of(&self, leaf: &Leaf<'_, K, V, LEAF, INNER>) -> Result<u64, PmError> {
        let mut bytes = 0;
        for block in self.blocks_of(leaf)? {
            bytes += RecordBlock::at(&self.pool, block)?.size();
        }
        Ok(bytes)
    }

    /// Returns the blocks out of line of a leaf's records.
    pub(super) fn blocks_of(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
    ) -> Result<Vec<u64>, PmError> {
        let live = leaf.live(&self.mwcas, leaf.status(&self.mwcas)?)?;
        let sorted = bits(live.sorted).map(|number| leaf.place(self.pm(), number));
        let places = sorted.chain(bits(live.later).map(|i| live.entries[i].place()));
        let mut blocks = Vec::new();
        for place in places {
            if let Some(cell) = leaf.record(place)?.block_cell() {
                blocks.push(self.mwcas.read(cell)?);
            }
        }
        Ok(blocks)
    }

    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Every leaf stands on level 0 and every child one below its parent; separators ascend, keys
    /// too, and lie between the separators around their leaf; fingerprints match; sorted records
    /// are sorted; every leaf counts its records and their words rightly; no inner node is frozen;
    /// no entry is reserved for this opening before anything was;
    /// there are as many records as counted.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first node that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    #[inline(always)]
    fn check_inner(&self) -> Result<u64, IndexError> {
        let root = Ptr::of(self.mwcas.read(self.anchor()?)?);
        if root.level() > MAX_LEVEL {
            return Err(corrupt("the root's level", root.offset()).into());
        }
        self.table_bytes()?; // a block of the allocator
        let mut checker = Checker { records: 0, greatest: None, budget: self.node_limit() };
        self.check_below(root, None, None, &mut checker)?;
        if let Some(known) = self.count.known()
            && known != checker.records
        {
            return Err(corrupt("the number of records differs from the count", known).into());
        }
        Ok(checker.records)
    }

    fn check_below(
        &self,
        node: Ptr,
        low: Option<&Raw>,
        high: Option<&Raw>,
        checker: &mut Checker,
    ) -> Result<(), PmError> {
        let offset = node.offset();
        checker.budget =
            checker.budget.checked_sub(1).ok_or(corrupt("more nodes than fit", offset))?;
        if node.level() == 0 {
            return self.check_leaf(&self.leaf(node)?, low, high, checker);
        }
        let inner = self.inner(node)?;
        if inner.status(&self.mwcas)?.is_frozen() {
            return Err(corrupt("an inner node is frozen", offset));
        }
        if !inner.is_padded(self.pm())? {
            return Err(corrupt("more separators than an inner node counts", offset));
        }
        let fan = inner.fan(&self.mwcas)?;
        let mut below = low;
        for separator in &fan.separators {
            let after = below.is_none_or(|low| low.compare(K::SHAPE, separator).is_lt());
            let before = high.is_none_or(|high| separator.compare(K::SHAPE, high).is_lt());
            if !after || !before {
                return Err(corrupt("separators out of order", offset));
            }
            below = Some(separator);
        }
        for (i, child) in fan.children.iter().enumerate() {
            let low = i.checked_sub(1).map_or(low, |i| Some(&fan.separators[i]));
            let high = fan.separators.get(i).or(high);
            self.check_below(*child, low, high, checker)?;
        }
        Ok(())
    }

    fn check_leaf(
        &self,
        leaf: &Leaf<'_, K, V, LEAF, INNER>,
        low: Option<&Raw>,
        high: Option<&Raw>,
        checker: &mut Checker,
    ) -> Result<(), PmError> {
        let offset = leaf.offset();
        let status = leaf.status(&self.mwcas)?;
        let mut last: Option<Raw> = None;
        for number in 0..leaf.sorted() {
            // Removed ones too, if they can still be read.
            let record = leaf.record(leaf.place(self.pm(), number))?;
            if record.block_cell().is_some() {
                continue;
            }
            let key = record.raw_key(&self.mwcas)?;
            if last.is_some_and(|last| last.compare(K::SHAPE, &key).is_ge()) {
                return Err(corrupt("sorted records out of order", offset));
            }
            last = Some(key);
        }
        for entry in status.used()..Geometry::<K, V, LEAF, INNER>::LATER {
            let entry = Entry::of(self.pm().load(leaf.entry_cell(entry)));
            let reserved = entry.state() == State::Reserved && entry.epoch() == self.epoch;
            if reserved && !self.has_reserved.load(Relaxed) {
                return Err(corrupt("a reservation of an epoch that has not begun", offset));
            }
        }
        let items = leaf.items(&self.mwcas, status)?;
        let words: usize = items.iter().map(|item| item.place.words).sum();
        if items.len() != status.live() || words != status.live_words() {
            return Err(corrupt("a leaf counts its records wrongly", offset));
        }
        for item in items {
            let record = leaf.record(item.place)?;
            if let Some(block) = record.block_cell() {
                RecordBlock::whole_at(&self.pool, self.mwcas.read(block)?)?;
            }
            record.value(&self.mwcas)?;
            let key = item.key;
            let hash = match K::SHAPE {
                pmindex_index::Shape::Inline(n) => hash_words(&key.words[..n]),
                pmindex_index::Shape::Bytes => hash_bytes(&key.bytes),
            };
            if (hash >> 56) as u8 != item.fingerprint {
                return Err(corrupt("a fingerprint does not match its key", offset));
            }
            let after = low.is_none_or(|low| low.compare(K::SHAPE, &key).is_lt());
            let before = high.is_none_or(|high| key.compare(K::SHAPE, high).is_le());
            if !after || !before {
                return Err(corrupt("a key outside its leaf's separators", offset));
            }
            if checker.greatest.as_ref().is_some_and(|last| last.compare(K::SHAPE, &key).is_ge()) {
                return Err(corrupt("keys out of order, or twice", offset));
            }
            checker.greatest = Some(key);
            checker.records += 1;
        }
        Ok(())
    }

    /// Returns the offsets of all blocks of a quiescent index: root, descriptors, nodes, record blocks,
    /// and what an interrupted bulk load left. First everything that is put off is done.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.mwcas.quiesce()?;
        let root = self.root()?;
        let table = self.pm().load(&root.table).offset();
        let mut blocks = vec![self.entry.root::<Root>().offset(), table];
        for anchor in [&root.root, &root.loading] {
            let top = Ptr::of(self.mwcas.read(anchor)?);
            if top.is_null() {
                continue;
            }
            self.walk(top, &mut |node| {
                match node {
                    Node::Inner(inner) => blocks.push(inner.offset()),
                    Node::Leaf(leaf) => {
                        blocks.push(leaf.offset());
                        blocks.extend(self.blocks_of(leaf)?);
                    }
                }
                Ok(())
            })?;
        }
        Ok(blocks)
    }
}
