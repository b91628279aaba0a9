//! The tree: searches, and the changes of single records.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use sdd::{Guard, Ptr, Shared};

use crate::node::{Leaf, Next, Node, Record, Step, Target, What};
use crate::table::{Pid, Root, Table};
use crate::{Pages, Stats};

/// A concurrent ordered map in DRAM: a Bw-tree. **Volatile: its contents are lost on a crash**, and when it
/// is dropped.
///
/// Keys and values are cloned when they are written and when a page is rewritten; keys also into the inner
/// pages. No operation waits for another thread.
///
/// # Linearizability
/// Each operation on a key takes effect at one moment: a write when it replaces the head of a page's chain, a
/// read when it loads the head. [`for_each`](Self::for_each) reads each page at a different moment.
///
/// # Errors
/// None. Without memory the process aborts, as with all collections.
///
/// ```
/// use pmindex_bwtree::BwTree;
///
/// let tree: BwTree<Vec<u8>, u64> = BwTree::new();
/// let key = b"delta".to_vec();
/// assert_eq!(tree.insert(&key, &1), None);
/// assert_eq!(tree.insert(&key, &2), Some(1));
/// assert_eq!(tree.get(&b"delta"[..]), Some(2));
/// assert_eq!(tree.remove(&b"delta"[..]), Some(2));
/// assert!(tree.is_empty());
/// ```
pub struct BwTree<K: 'static, V: 'static> {
    pub(crate) table: Arc<Table<Node<K, V>>>,
    pub(crate) root: Root,
    pub(crate) pages: Pages,
}

/// The position of a key, present or not.
pub(crate) struct Spot<'g, K: 'static, V: 'static> {
    pub(crate) pid: Pid,
    pub(crate) head: Ptr<'g, Node<K, V>>,
    pub(crate) node: &'g Node<K, V>,
}

impl<K, V> BwTree<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes an empty tree with pages of the default sizes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_pages(Pages::default())
    }

    /// Makes an empty tree with pages of other sizes.
    #[must_use]
    pub fn with_pages(pages: Pages) -> Self {
        let table = Table::new();
        let leaf = Leaf { keys: Vec::new(), values: Vec::new(), end: None };
        let root = table.add(Node::base(0, What::Leaf(leaf))).unwrap_or_default();
        Self { table: Arc::new(table), root: Root::new(root), pages: pages.sane() }
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.with(key, V::clone)
    }

    /// Returns `true` if a key is present.
    #[inline]
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// Applies `read` to a key's value, without cloning it. Returns `None` if the key is absent.
    #[inline]
    pub fn with<Q: Ord + ?Sized, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let guard = Guard::new();
        self.find(key, &guard).1.map(|(_, value)| read(value))
    }

    /// Writes a record; returns the replaced value.
    pub fn insert(&self, key: &K, value: &V) -> Option<V> {
        let put = |next| What::Put { key: key.clone(), value: value.clone(), next };
        self.write(key, |_| Some(put), |found| found.map(|(_, value)| value.clone()))
    }

    /// Writes a record if its key is absent; returns `true` if it was.
    pub fn try_insert(&self, key: &K, value: &V) -> bool {
        let put = |next| What::Put { key: key.clone(), value: value.clone(), next };
        self.write(key, |found| found.is_none().then_some(put), |found| found.is_none())
    }

    /// Replaces the value of a key if it is present; returns `true` if it was.
    pub fn update(&self, key: &K, value: &V) -> bool {
        let put = |next| What::Put { key: key.clone(), value: value.clone(), next };
        self.write(key, |found| found.map(|_| put), |found| found.is_some())
    }

    /// Removes a record; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let delete = |found: Record<'_, K, V>| {
            let key = found?.0.clone();
            Some(|next| What::Delete { key, next })
        };
        self.write(key, delete, |found| found.map(|(_, value)| value.clone()))
    }

    /// Returns the number of records.
    ///
    /// # Cost
    /// Reads all pages.
    #[must_use]
    pub fn len(&self) -> usize {
        let (guard, mut records) = (Guard::new(), 0);
        self.runs(self.first(&guard), &guard, |keys, _| {
            records += keys.len();
            true
        });
        records
    }

    /// Returns `true` if the tree is empty. Reads pages until it finds a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (guard, mut empty) = (Guard::new(), true);
        self.runs(self.first(&guard), &guard, |keys, _| {
            empty = keys.is_empty();
            empty
        });
        empty
    }

    /// Returns all records in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<(K, V)> {
        let (guard, mut found) = (Guard::new(), Vec::new());
        self.runs(self.first(&guard), &guard, |keys, values| {
            found.extend(keys.iter().cloned().zip(values.iter().cloned()));
            true
        });
        found
    }

    /// Returns the sizes of a quiescent tree. Concurrent writes may or may not be counted.
    ///
    /// # Cost
    /// Reads all pages.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let guard = Guard::new();
        let mut stats = Stats { records: self.len() as u64, ..Stats::default() };
        let mut first = Some(self.root.load().pid());
        while let Some(pid) = first {
            let mut page = self.table.load(pid, &guard).as_ref();
            first = page.and_then(Node::leftmost);
            stats.height += 1;
            while let Some(node) = page {
                *(if node.level == 0 { &mut stats.leaves } else { &mut stats.inners }) += 1;
                stats.bytes += node.bytes() as u64;
                page = node.end().and_then(|(_, right)| self.table.load(right, &guard).as_ref());
            }
        }
        stats
    }

    /// Calls `visit` for the records from a key on, in order, until it returns `false`. Each page is read at
    /// one moment.
    pub fn for_each<Q: Ord + ?Sized>(&self, from: &Q, mut visit: impl FnMut(&K, &V) -> bool)
    where
        K: Borrow<Q>,
    {
        let guard = Guard::new();
        let mut visit = |keys: &[K], values: &[V]| {
            keys.iter().zip(values).all(|(key, value)| visit(key, value))
        };
        let page = self.page_of(from, &guard);
        if page.records(&|key: &K| key.borrow() < from, &mut visit) {
            self.runs_after(page, &guard, visit);
        }
    }

    /// Appends up to `limit` records from a key on to `found`, in order.
    pub fn scan<Q: Ord + ?Sized>(&self, from: &Q, limit: usize, found: &mut Vec<(K, V)>)
    where
        K: Borrow<Q>,
    {
        let end = found.len().saturating_add(limit);
        if limit > 0 {
            self.for_each(from, |key, value| {
                found.push((key.clone(), value.clone()));
                found.len() < end
            });
        }
    }

    /// Visits the records of a leaf and of all leaves right of it.
    fn runs<'g>(
        &self,
        page: &'g Node<K, V>,
        guard: &'g Guard,
        mut visit: impl FnMut(&[K], &[V]) -> bool,
    ) {
        if page.records(&|_: &K| false, &mut visit) {
            self.runs_after(page, guard, visit);
        }
    }

    /// Visits the records of all leaves right of one.
    fn runs_after<'g>(
        &self,
        mut page: &'g Node<K, V>,
        guard: &'g Guard,
        mut visit: impl FnMut(&[K], &[V]) -> bool,
    ) {
        while let Some((high, right)) = page.end() {
            page = match self.table.load(right, guard).as_ref() {
                Some(page) if !matches!(page.what, What::Removed { .. }) => page,
                _ => self.page_of(high, guard),
            };
            if !page.records(&|key: &K| key < high, &mut visit) {
                return;
            }
        }
    }

    /// Returns the leftmost leaf, which is never merged away.
    fn first<'g>(&self, guard: &'g Guard) -> &'g Node<K, V> {
        let mut pid = self.root.load().pid();
        loop {
            let head = self.table.load(pid, guard);
            pid = match head.as_ref().map(|node| (node, node.leftmost())) {
                Some((node, None)) => return node,
                Some((_, Some(child))) => child,
                None => self.root.load().pid(),
            };
        }
    }

    fn page_of<'g, Q: Ord + ?Sized>(&self, key: &Q, guard: &'g Guard) -> &'g Node<K, V>
    where
        K: Borrow<Q>,
    {
        loop {
            if let Some(spot) = self.locate(&Target::<Q, false>(key), 0, guard) {
                return spot.node;
            }
        }
    }

    /// Returns the leaf of a key, and its record.
    #[inline(always)]
    fn find<'g, Q: Ord + ?Sized>(
        &self,
        key: &Q,
        guard: &'g Guard,
    ) -> (Spot<'g, K, V>, Record<'g, K, V>)
    where
        K: Borrow<Q>,
    {
        let mut pid = self.root.load().pid();
        loop {
            let head = self.table.load(pid, guard);
            let step = match head.as_ref() {
                None => Step::Gone,
                Some(node) if node.level == 0 => match node.find(key) {
                    Step::Here(record) => return (Spot { pid, head, node }, record),
                    Step::To(pid) => Step::To(pid),
                    Step::Gone => Step::Gone,
                },
                Some(node) => node.route(&Target::<Q, false>(key)),
            };
            pid = match step {
                Step::To(pid) => pid,
                _ => self.turn_back(pid, guard),
            };
        }
    }

    /// Returns the page for a key at a level; `None` if the tree is not as high.
    pub(crate) fn locate<'g, Q: Ord + ?Sized, const BELOW: bool>(
        &self,
        to: &Target<'_, Q, BELOW>,
        level: u8,
        guard: &'g Guard,
    ) -> Option<Spot<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        let mut pid = self.root.load().pid();
        loop {
            let head = self.table.load(pid, guard);
            let step = match head.as_ref() {
                None => Step::Gone,
                Some(node) if node.level < level => return None,
                Some(node) if node.level == level => match node.covers(to) {
                    Step::Here(()) => return Some(Spot { pid, head, node }),
                    step => step,
                },
                Some(node) => node.route(to),
            };
            pid = match step {
                Step::To(pid) => pid,
                _ => self.turn_back(pid, guard),
            };
        }
    }

    /// Completes the change that removed a page; returns the root.
    #[cold]
    fn turn_back(&self, pid: Pid, guard: &Guard) -> Pid {
        self.help_away(pid, guard);
        self.root.load().pid()
    }

    /// Prepends a delta to a chain whose head is still that of `spot`.
    pub(crate) fn post<'g>(
        &self,
        spot: &Spot<'g, K, V>,
        delta: impl FnOnce(Next<K, V>) -> What<K, V>,
        guard: &'g Guard,
    ) -> bool {
        // A replaced head can no longer be shared.
        let Some(next) = spot.head.get_shared() else { return false };
        let (depth, level) = (next.depth.saturating_add(1), next.level);
        let node = Shared::new(Node { what: delta(next), depth, level });
        self.table.replace(spot.pid, spot.head, node, guard)
    }

    /// Prepends a delta to the chain of a key's leaf, if `delta` makes one from the key's record.
    #[inline(always)]
    fn write<Q: Ord + ?Sized, R, D: FnOnce(Next<K, V>) -> What<K, V>>(
        &self,
        key: &Q,
        delta: impl Fn(Record<'_, K, V>) -> Option<D>,
        result: impl Fn(Record<'_, K, V>) -> R,
    ) -> R
    where
        K: Borrow<Q>,
    {
        let guard = Guard::new();
        loop {
            let (spot, found) = self.find(key, &guard);
            // LIN: for a write without a change, the load of the head; for others, the replacement. Nothing
            // becomes durable.
            let Some(delta) = delta(found) else { return result(found) };
            if self.post(&spot, delta, &guard) {
                if spot.node.depth + 1 >= self.pages.chain {
                    self.consolidate(spot.pid, key, &guard);
                }
                return result(found);
            }
        }
    }
}

impl<K, V> Default for BwTree<K, V>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K: 'static, V: 'static> fmt::Debug for BwTree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BwTree").field("pages", &self.pages).finish_non_exhaustive()
    }
}
