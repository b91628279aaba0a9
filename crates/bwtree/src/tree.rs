//! The tree: searches, and the changes of single records.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use sdd::{Guard, Ptr, Shared};

use crate::node::{Leaf, Next, Node, Record, Step, Target, What};
use crate::table::{Pid, Root, Table};
use crate::{Pages, Stats};

/// A concurrent ordered map in DRAM: a Bw-tree. **Volatile: its contents are lost on a crash**, and
/// when it is dropped.
///
/// Keys and values are cloned: once as they are written, and now and then as a page is written anew;
/// a key also into the inner pages. No operation waits for another thread.
///
/// # Linearizability
/// Each operation on a key takes effect at one moment: a write as it replaces the head of a page's
/// chain, a read as it loads that. [`for_each`](Self::for_each) reads each page at one moment of its
/// own.
///
/// # Errors
/// None, but for memory: `insert` and the others abort as all collections do if there is none.
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

/// Where a key is, or would be.
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
    /// An empty tree, with pages of the usual size.
    #[must_use]
    pub fn new() -> Self {
        Self::with_pages(Pages::default())
    }

    /// An empty tree with pages of another size.
    #[must_use]
    pub fn with_pages(pages: Pages) -> Self {
        let table = Table::new();
        let leaf = Leaf { keys: Vec::new(), values: Vec::new(), end: None };
        let root = table.add(Node::base(0, What::Leaf(leaf))).unwrap_or_default();
        Self { table: Arc::new(table), root: Root::new(root), pages: pages.sane() }
    }

    /// The value of a key.
    #[inline]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.with(key, V::clone)
    }

    /// Whether a key is there.
    #[inline]
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.with(key, |_| ()).is_some()
    }

    /// What `read` makes of a key's value, without a copy of it. `None` if the key is not there.
    #[inline]
    pub fn with<Q: Ord + ?Sized, R>(&self, key: &Q, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let guard = Guard::new();
        self.find(key, &guard).1.map(|(_, value)| read(value))
    }

    /// Writes a record; returns the value that it replaces.
    pub fn insert(&self, key: &K, value: &V) -> Option<V> {
        let put = |next| What::Put { key: key.clone(), value: value.clone(), next };
        self.write(key, |_| Some(put), |found| found.map(|(_, value)| value.clone()))
    }

    /// Writes a record if its key is not there; returns whether it was not.
    pub fn try_insert(&self, key: &K, value: &V) -> bool {
        let put = |next| What::Put { key: key.clone(), value: value.clone(), next };
        self.write(key, |found| found.is_none().then_some(put), |found| found.is_none())
    }

    /// Replaces the value of a key if it is there; returns whether it was.
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

    /// How many records there are.
    ///
    /// # Cost
    /// All pages are read.
    #[must_use]
    pub fn len(&self) -> usize {
        let (guard, mut records) = (Guard::new(), 0);
        self.runs(self.first(&guard), &guard, |keys, _| {
            records += keys.len();
            true
        });
        records
    }

    /// Whether there is no record. Reads pages until it finds one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (guard, mut empty) = (Guard::new(), true);
        self.runs(self.first(&guard), &guard, |keys, _| {
            empty = keys.is_empty();
            empty
        });
        empty
    }

    /// All records, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<(K, V)> {
        let (guard, mut found) = (Guard::new(), Vec::new());
        self.runs(self.first(&guard), &guard, |keys, values| {
            found.extend(keys.iter().cloned().zip(values.iter().cloned()));
            true
        });
        found
    }

    /// Sizes: of the tree at rest. Writes meanwhile are counted or not.
    ///
    /// # Cost
    /// All pages are read.
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

    /// Calls `visit` for the records from a key on, in order, until it returns false. Each page is
    /// read at one moment.
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

    /// Visits the records of a leaf and of all right of it.
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

    /// The leftmost leaf. It is never merged away.
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

    /// The leaf of a key, and its record.
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

    /// The page of a level with a key; `None` if the tree is not as high.
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

    /// Completes what made a page go away; returns the root.
    #[cold]
    fn turn_back(&self, pid: Pid, guard: &Guard) -> Pid {
        self.help_away(pid, guard);
        self.root.load().pid()
    }

    /// Puts a delta before a chain that still begins at `spot`.
    pub(crate) fn post<'g>(
        &self,
        spot: &Spot<'g, K, V>,
        delta: impl FnOnce(Next<K, V>) -> What<K, V>,
        guard: &'g Guard,
    ) -> bool {
        // A head that went away has no owner left that it could be shared with.
        let Some(next) = spot.head.get_shared() else { return false };
        let (depth, level) = (next.depth.saturating_add(1), next.level);
        let node = Shared::new(Node { what: delta(next), depth, level });
        self.table.replace(spot.pid, spot.head, node, guard)
    }

    /// Puts a delta before the chain of a key's leaf, if the key's record makes one.
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
            // LIN: of a write that finds nothing to do, the load of the head; of the others, the
            // replacement. Nothing becomes durable.
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
