//! Verification of the whole structure, independent of the code that recovers it.

use std::sync::atomic::Ordering::Relaxed;

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{Probe, Slot, bits};

use super::inner::Inner;
use super::layout::{Child, Root};
use super::leaf::Leaf;
use super::order::Order;
use super::separator::{Route, Separator};
use super::tree::{UNKNOWN, WbTree};
use super::walk::Node;

/// More fingerprints than this are not all 0 by chance.
const UNLIKELY: usize = 4;

/// A verification in progress.
struct Check<K> {
    steps: u64,
    records: u64,
    greatest: Option<K>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    WbTree<K, V, M, LEAF, INNER>
{
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// Every inner node: valid state and order, separators ascending and within those above, children
    /// one level below. Every leaf: valid state, each live slot once in the order, keys ascending and
    /// within the separators, fingerprints match, the way down leads each key here; one without
    /// records had some, unless it is the only one. No structural change or load in progress; records
    /// as many as counted, if they were.
    ///
    /// # Cost
    /// Reads every node, and every record's block. No flush, no fence.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first node that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        let (pm, root) = (self.pm(), self.root()?);
        let offset = self.entry.root::<Root>().offset();
        if pm.load(&root.loading) != 0 || pm.load(&root.log.armed) != 0 {
            let what = "a structural change or a load that is not finished";
            return Err(PmError::Corrupt { what, offset }.into());
        }
        let mut check = Check { steps: self.node_limit(), records: 0, greatest: None };
        self.check_node(self.top()?, (None, None), &mut check)?;
        let counted = self.count.load(Relaxed);
        if counted != UNKNOWN && counted != check.records {
            let what = "the number of records differs from the count";
            return Err(PmError::Corrupt { what, offset: counted }.into());
        }
        Ok(check.records)
    }

    fn check_node(
        &self,
        node: Child,
        bounds: (Option<&Separator>, Option<&Separator>),
        check: &mut Check<K>,
    ) -> Result<(), PmError> {
        if check.steps == 0 {
            return Err(PmError::Corrupt { what: "more nodes than there can be", offset: 0 });
        }
        check.steps -= 1;
        if node.level() == 0 {
            let leaf = self.leaf(node.offset())?;
            if node != self.top()? {
                self.check_written(&leaf)?;
            }
            return self.check_leaf(&leaf, bounds, check);
        }
        let inner = self.inner(node.offset())?;
        if !inner.state(self.pm()).is_ordered() {
            return Err(inner.corrupt("the order of an inner node is not valid"));
        }
        self.check_inner(node, &inner, bounds, check)
    }

    fn check_inner(
        &self,
        node: Child,
        inner: &Inner<'_, K, V, LEAF, INNER>,
        (low, high): (Option<&Separator>, Option<&Separator>),
        check: &mut Check<K>,
    ) -> Result<(), PmError> {
        let pool = &*self.pool;
        let order = inner.entries(pool)?;
        let mut separators = Vec::with_capacity(order.len());
        for &i in &order[1..] {
            separators.push(inner.separator(pool, usize::from(i))?);
        }
        let ascending = |a: &Separator, b: &Separator| a.compare::<K>(&b.route()).is_lt();
        let sorted = separators.windows(2).all(|pair| ascending(&pair[0], &pair[1]));
        let above = low.zip(separators.first()).is_none_or(|(low, first)| ascending(low, first));
        let below = high.zip(separators.last()).is_none_or(|(high, last)| ascending(last, high));
        if !(sorted && above && below) {
            return Err(inner.corrupt("the separators of an inner node are out of order"));
        }
        for (at, &i) in order.iter().enumerate() {
            let child = inner.child(pool.pm(), usize::from(i)).below(node)?;
            let left = at.checked_sub(1).map_or(low, |left| separators.get(left));
            let right = separators.get(at).or(high);
            self.check_node(child, (left, right), check)?;
        }
        Ok(())
    }

    /// Checks that zeros in a leaf's first line are its contents, not a lost line. A leaf below an inner node was
    /// made with records: zeros are right only if it is empty now and the fingerprints of the records that its
    /// order still names are 0.
    fn check_written(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<(), PmError> {
        let pm = self.pm();
        if leaf.line().iter().any(|word| pm.load_word(word) != 0) {
            return Ok(());
        }
        let order = Order::before(pm, leaf);
        let gone = order.slots().iter().map(|&i| usize::from(i)).filter(|&i| i < LEAF);
        let mut lost = order.slots().is_empty();
        if Slot::<K, V>::HAS_BLOCK {
            lost |= gone.count() > UNLIKELY; // whose keys are gone, too
        } else {
            for i in gone {
                let key = Slot::<K, V>::checked_key(&self.pool, leaf.slot(i))?;
                lost |= Probe::<K>::of_stored(&key).fingerprint() != 0;
            }
        }
        if lost { Err(leaf.corrupt("a leaf whose first line is lost")) } else { Ok(()) }
    }

    fn check_leaf(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        (low, high): (Option<&Separator>, Option<&Separator>),
        check: &mut Check<K>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let state = leaf.state(pm);
        if !state.is_valid(LEAF) {
            return Err(leaf.corrupt("a leaf's state"));
        }
        let live = leaf.live(pm, state);
        let order = Order::of(pool, leaf, state, live)?;
        let named = order.slots().iter().fold(0, |named, &i| named | 1u64 << i);
        if named != live || order.slots().len() != bits(live).count() {
            return Err(leaf.corrupt("a leaf's order"));
        }
        for &i in order.slots() {
            let i = usize::from(i);
            let key = Slot::<K, V>::checked_key(pool, leaf.slot(i))?;
            Slot::<K, V>::value(pool, leaf.slot(i))?;
            let probe = Probe::<K>::of_stored(&key);
            let route = Route::to(&probe);
            if leaf.fingerprint(pm, i) != probe.fingerprint() {
                return Err(leaf.corrupt("a fingerprint does not match its key"));
            }
            if check.greatest.as_ref().is_some_and(|last| *last >= key) {
                return Err(leaf.corrupt("keys out of order, or twice"));
            }
            if low.is_some_and(|low| low.compare::<K>(&route).is_ge())
                || high.is_some_and(|high| high.compare::<K>(&route).is_lt())
            {
                return Err(leaf.corrupt("a key outside the separators of its leaf"));
            }
            if self.descend(&route, |_| ())?.offset() != leaf.offset() {
                return Err(leaf.corrupt("the way down leads a key to another leaf"));
            }
            check.greatest = Some(key);
            check.records += 1;
        }
        Ok(())
    }

    /// Returns the offsets of all blocks of a quiescent index: root, nodes, blocks of records and separators.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        let pool = &*self.pool;
        self.visit(self.top()?, &mut |node| {
            match &node {
                Node::Inner(inner) => blocks.push(inner.offset()),
                Node::Leaf(leaf) => blocks.push(leaf.offset()),
                Node::Block(_) => {}
            }
            super::walk::blocks_of(pool, &node, &mut blocks);
            Ok(())
        })?;
        Ok(blocks)
    }
}
