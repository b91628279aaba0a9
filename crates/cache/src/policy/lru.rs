//! Least recently used: the baseline.

use std::hash::Hash;

use super::table::Table;
use super::{Access, Hashed, Keeper, Policy};

/// Keeps the blocks that were used last.
#[derive(Debug)]
pub struct Lru<K, V = ()> {
    table: Table<K, V, 1>,
    capacity: usize,
}

impl<K: Copy + Eq + Hash> Lru<K> {
    /// Keeps this many blocks, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_capacity(capacity)
    }
}

impl<K: Copy + Eq + Hash, V> Keeper<K, V> for Lru<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { table: Table::new(capacity), capacity }
    }

    fn hit(&mut self, id: Hashed<K>) -> Option<&V> {
        let node = self.table.find(id)?;
        self.table.renew(node, 0);
        self.table.get(node)
    }

    fn value(&mut self, id: Hashed<K>) -> Option<&mut Option<V>> {
        self.table.find(id).map(|node| self.table.value(node))
    }
}

impl<K: Copy + Eq + Hash, V> Policy<K> for Lru<K, V> {
    fn access(&mut self, id: K) -> Access<K> {
        if let Some(node) = self.table.find(Hashed::of(id)) {
            self.table.renew(node, 0);
            return Access::Hit;
        }
        let mut evicted = None;
        if self.len() == self.capacity {
            let Some(victim) = self.table.oldest(0) else { return Access::Below };
            evicted = self.table.take(victim);
        }
        self.table.add(id, 0);
        Access::Admitted { evicted }
    }

    fn contains(&self, id: K) -> bool {
        self.table.find(Hashed::of(id)).is_some()
    }

    fn remove(&mut self, id: K) -> bool {
        self.table.find(Hashed::of(id)).and_then(|node| self.table.take(node)).is_some()
    }

    fn pin(&mut self, id: K) -> bool {
        self.table.find(Hashed::of(id)).map(|node| self.table.pin(node)).is_some()
    }

    fn unpin(&mut self, id: K) -> bool {
        self.table.find(Hashed::of(id)).is_some_and(|node| self.table.unpin(node))
    }

    fn len(&self) -> usize {
        self.table.len(0)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
