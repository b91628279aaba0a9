//! 2Q as a policy of placement (Lersch: Leveraging Non-Volatile Memory in Modern Storage Management
//! Architectures, section 3.4, algorithm 3.1).
//!
//! `AM` has the kept blocks, by last use. `A1` has only ids, in a FIFO queue: of blocks that were accessed
//! and not kept, and of evicted blocks. A block is kept if there is room, or if it is accessed while its id
//! is in `A1`.
//!
//! The algorithm as printed never removes a promoted id from `A1`, so ids of kept blocks push out those of
//! others. Here an id is in one of the two. Where the text is silent: `A1` counts ids, and has at least one;
//! pinned victims are passed over, and if all blocks are pinned, the block is read from below, and its id
//! stays in `A1`.

use std::hash::Hash;

use super::table::Table;
use super::{Access, Hashed, Keeper, Policy};

/// The kept blocks.
const AM: usize = 0;
/// The ids of others.
const A1: usize = 1;

/// Keeps blocks that were accessed twice within a while.
#[derive(Debug)]
pub struct TwoQ<K, V = ()> {
    table: Table<K, V, 2>,
    capacity: usize,
    ids: usize,
}

impl<K: Copy + Eq + Hash> TwoQ<K> {
    /// Keeps this many blocks, at least one, and remembers a twentieth as many ids, as the thesis does
    /// (section 3.5.2).
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_capacity(capacity)
    }

    /// Keeps this many blocks, and remembers this many ids; at least one of each.
    #[must_use]
    pub fn with_ids(capacity: usize, ids: usize) -> Self {
        Self::sized(capacity, ids)
    }
}

impl<K: Copy + Eq + Hash, V> TwoQ<K, V> {
    fn sized(capacity: usize, ids: usize) -> Self {
        let (capacity, ids) = (capacity.max(1), ids.max(1));
        Self { table: Table::new(capacity + ids), capacity, ids }
    }

    /// Returns the number of remembered ids of blocks that are not kept.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.table.len(A1)
    }

    /// Makes room in `A1` for one id.
    fn forget_oldest(&mut self) {
        if self.table.len(A1) == self.ids
            && let Some(oldest) = self.table.oldest(A1)
        {
            self.table.take(oldest);
        }
    }
}

impl<K: Copy + Eq + Hash, V> Keeper<K, V> for TwoQ<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        Self::sized(capacity, capacity / 20)
    }

    fn hit(&mut self, id: Hashed<K>) -> Option<&V> {
        let node = self.table.find_before(id, A1)?;
        self.table.renew(node, AM);
        self.table.get(node)
    }

    fn value(&mut self, id: Hashed<K>) -> Option<&mut Option<V>> {
        self.table.find_before(id, A1).map(|node| self.table.value(node))
    }
}

impl<K: Copy + Eq + Hash, V> Policy<K> for TwoQ<K, V> {
    fn access(&mut self, id: K) -> Access<K> {
        let found = self.table.find(Hashed::of(id));
        if let Some(node) = found
            && self.table.list_of(node) == AM
        {
            self.table.renew(node, AM);
            return Access::Hit;
        }
        if self.len() < self.capacity {
            match found {
                Some(node) => self.table.renew(node, AM),
                None => self.table.add(id, AM),
            }
            return Access::Admitted { evicted: None };
        }
        let Some(node) = found else {
            self.forget_oldest();
            self.table.add(id, A1);
            return Access::Below;
        };
        let Some(victim) = self.table.oldest(AM) else { return Access::Below };
        let evicted = self.table.take(victim);
        self.table.renew(node, AM); // which makes room in A1
        if let Some(evicted) = evicted {
            self.table.add(evicted, A1);
        }
        Access::Admitted { evicted }
    }

    fn contains(&self, id: K) -> bool {
        self.table.find_before(Hashed::of(id), A1).is_some()
    }

    fn remove(&mut self, id: K) -> bool {
        let kept = self.contains(id);
        self.table.find(Hashed::of(id)).and_then(|node| self.table.take(node));
        kept
    }

    fn pin(&mut self, id: K) -> bool {
        self.table.find_before(Hashed::of(id), A1).map(|node| self.table.pin(node)).is_some()
    }

    fn unpin(&mut self, id: K) -> bool {
        self.table.find_before(Hashed::of(id), A1).is_some_and(|node| self.table.unpin(node))
    }

    fn len(&self) -> usize {
        self.table.len(AM)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
