//! S3-FIFO (Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023).
//!
//! A new block enters the small queue, a tenth of the capacity. A block that leaves this queue moves to the
//! main queue if it was used more than once meanwhile; the ids of the others are remembered, as many as the
//! main queue may have blocks, and an id that returns while it is remembered enters the main queue at once. A
//! block that leaves the main queue and was used since it entered goes round again.

use std::hash::Hash;

use super::table::{Node, Table};
use super::{Access, Hashed, Keeper, Policy};

/// Blocks that came recently.
const SMALL: usize = 0;
/// Blocks that were used.
const MAIN: usize = 1;
/// The ids of blocks that left the small queue.
const GHOST: usize = 2;

/// The maximum count of uses.
const MAX_USES: u8 = 3;
/// A block of the small queue with more uses than this moves to the main queue.
const FEW_USES: u8 = 1;

/// Keeps blocks that are used again soon after they came, in FIFO queues.
#[derive(Debug)]
pub struct S3Fifo<K, V = ()> {
    table: Table<K, V, 3>,
    capacity: usize,
    small: usize,
    ghosts: usize,
}

impl<K: Copy + Eq + Hash> S3Fifo<K> {
    /// Keeps this many blocks, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_capacity(capacity)
    }
}

impl<K: Copy + Eq + Hash, V> S3Fifo<K, V> {
    /// Notes a use of a kept block.
    fn note(&mut self, node: Node) {
        let uses = self.table.uses(node);
        if *uses < MAX_USES {
            *uses += 1;
        }
    }

    /// Evicts a block; returns `None` if all are pinned.
    fn evict(&mut self) -> Option<K> {
        loop {
            let small = self.table.oldest(SMALL);
            let main = self.table.oldest(MAIN);
            match (small, main) {
                (Some(node), main) if main.is_none() || self.table.len(SMALL) >= self.small => {
                    let uses = self.table.uses(node);
                    if *uses > FEW_USES {
                        *uses = 0;
                        self.table.renew(node, MAIN);
                        continue;
                    }
                    let id = self.table.take(node)?;
                    self.table.add(id, GHOST);
                    return Some(id);
                }
                (_, Some(node)) => {
                    let uses = self.table.uses(node);
                    if *uses == 0 {
                        return self.table.take(node);
                    }
                    *uses -= 1;
                    self.table.renew(node, MAIN);
                }
                (_, None) => return None,
            }
        }
    }
}

impl<K: Copy + Eq + Hash, V> Keeper<K, V> for S3Fifo<K, V> {
    fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        let small = (capacity / 10).max(1);
        let ghosts = (capacity - small).max(1);
        // One more ghost, for the duration of an access.
        Self { table: Table::new(capacity + ghosts + 1), capacity, small, ghosts }
    }

    fn hit(&mut self, id: Hashed<K>) -> Option<&V> {
        let node = self.table.find_before(id, GHOST)?;
        self.note(node);
        self.table.get(node)
    }

    fn value(&mut self, id: Hashed<K>) -> Option<&mut Option<V>> {
        self.table.find_before(id, GHOST).map(|node| self.table.value(node))
    }
}

impl<K: Copy + Eq + Hash, V> Policy<K> for S3Fifo<K, V> {
    fn access(&mut self, id: K) -> Access<K> {
        let found = self.table.find(Hashed::of(id));
        let ghost = found.filter(|&node| self.table.list_of(node) == GHOST);
        if let Some(node) = found
            && ghost.is_none()
        {
            self.note(node);
            return Access::Hit;
        }
        let mut evicted = None;
        if self.len() == self.capacity {
            evicted = self.evict();
            if evicted.is_none() {
                return Access::Below;
            }
        }
        match ghost {
            Some(node) => self.table.renew(node, MAIN),
            None => self.table.add(id, SMALL),
        }
        if self.table.len(GHOST) > self.ghosts
            && let Some(oldest) = self.table.oldest(GHOST)
        {
            self.table.take(oldest);
        }
        Access::Admitted { evicted }
    }

    fn contains(&self, id: K) -> bool {
        self.table.find_before(Hashed::of(id), GHOST).is_some()
    }

    fn remove(&mut self, id: K) -> bool {
        let kept = self.contains(id);
        self.table.find(Hashed::of(id)).and_then(|node| self.table.take(node));
        kept
    }

    fn pin(&mut self, id: K) -> bool {
        self.table.find_before(Hashed::of(id), GHOST).map(|node| self.table.pin(node)).is_some()
    }

    fn unpin(&mut self, id: K) -> bool {
        self.table.find_before(Hashed::of(id), GHOST).is_some_and(|node| self.table.unpin(node))
    }

    fn len(&self) -> usize {
        self.table.len(SMALL) + self.table.len(MAIN)
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}
