//! Ids in lists: a hash table whose nodes are also linked into lists. Its size is fixed when it is made.

use std::hash::Hash;

use super::Hashed;

/// No node.
const NONE: u32 = u32::MAX;

/// A node of the table.
pub(super) type Node = u32;

#[derive(Debug)]
struct Slot<K, V> {
    id: Option<K>,
    /// The caller's value, for ids in a list of kept blocks.
    value: Option<V>,
    /// The next node of the same bucket; for a free node, the next free one.
    chain: Node,
    newer: Node,
    older: Node,
    /// Its list. A pinned node belongs to a list and is not linked in it.
    list: u8,
    pins: u32,
    /// A counter for the policy.
    uses: u8,
}

#[derive(Clone, Copy, Debug)]
struct List {
    newest: Node,
    oldest: Node,
    /// Including pinned nodes.
    len: usize,
}

/// Ids, each in one of `LISTS` lists.
#[derive(Debug)]
pub(super) struct Table<K, V, const LISTS: usize> {
    slots: Box<[Slot<K, V>]>,
    buckets: Box<[Node]>,
    free: Node,
    lists: [List; LISTS],
}

impl<K, V> Slot<K, V> {
    const fn free(chain: Node) -> Self {
        Self { id: None, value: None, chain, newer: NONE, older: NONE, list: 0, pins: 0, uses: 0 }
    }
}

impl<K: Copy + Eq + Hash, V, const LISTS: usize> Table<K, V, LISTS> {
    /// Makes a table for this number of ids, less than 2^32 - 1.
    pub(super) fn new(ids: usize) -> Self {
        let last = ids.saturating_sub(1) as Node;
        let slot = |at: Node| Slot::free(if at == last { NONE } else { at + 1 });
        Self {
            slots: (0..=last).map(slot).collect(),
            buckets: vec![NONE; ids.next_power_of_two()].into(),
            free: 0,
            lists: [List { newest: NONE, oldest: NONE, len: 0 }; LISTS],
        }
    }

    const fn bucket(&self, id: Hashed<K>) -> usize {
        id.hash as usize & (self.buckets.len() - 1)
    }

    fn slot(&self, node: Node) -> &Slot<K, V> {
        &self.slots[node as usize]
    }

    fn slot_mut(&mut self, node: Node) -> &mut Slot<K, V> {
        &mut self.slots[node as usize]
    }

    /// Returns the node of an id.
    #[inline]
    pub(super) fn find(&self, id: Hashed<K>) -> Option<Node> {
        let mut at = self.buckets[self.bucket(id)];
        while at != NONE {
            let slot = self.slot(at);
            if slot.id == Some(id.id) {
                return Some(at);
            }
            at = slot.chain;
        }
        None
    }

    /// Returns the node of an id, if it is in one of the lists before this one.
    pub(super) fn find_before(&self, id: Hashed<K>, list: usize) -> Option<Node> {
        self.find(id).filter(|&node| usize::from(self.slot(node).list) < list)
    }

    /// Returns the number of ids in a list.
    pub(super) fn len(&self, list: usize) -> usize {
        self.lists[list].len
    }

    /// Returns the list of a node.
    pub(super) fn list_of(&self, node: Node) -> usize {
        self.slot(node).list.into()
    }

    /// Returns the caller's value of an id.
    pub(super) fn get(&self, node: Node) -> Option<&V> {
        self.slot(node).value.as_ref()
    }

    /// Returns the place of the caller's value of an id.
    pub(super) fn value(&mut self, node: Node) -> &mut Option<V> {
        &mut self.slot_mut(node).value
    }

    /// Returns the policy's counter of a node; initially 0.
    pub(super) fn uses(&mut self, node: Node) -> &mut u8 {
        &mut self.slot_mut(node).uses
    }

    /// Returns the oldest node of a list that is not pinned.
    pub(super) fn oldest(&self, list: usize) -> Option<Node> {
        let oldest = self.lists[list].oldest;
        (oldest != NONE).then_some(oldest)
    }

    /// Adds an absent id as the newest of a list. There is room.
    pub(super) fn add(&mut self, id: K, list: usize) {
        let bucket = self.bucket(Hashed::of(id));
        let node = self.free;
        let chain = std::mem::replace(&mut self.buckets[bucket], node);
        let slot = self.slot_mut(node);
        let next = slot.chain;
        *slot = Slot { id: Some(id), list: list as u8, ..Slot::free(chain) };
        self.free = next;
        self.lists[list].len += 1;
        self.link(node);
    }

    /// Removes a node and returns its id.
    pub(super) fn take(&mut self, node: Node) -> Option<K> {
        self.unlink(node);
        let id = self.slot(node).id;
        self.lists[self.list_of(node)].len -= 1;
        let bucket = self.bucket(Hashed::of(id?));
        let next = self.slot(node).chain;
        if self.buckets[bucket] == node {
            self.buckets[bucket] = next;
        } else {
            let mut at = self.buckets[bucket];
            while self.slot(at).chain != node {
                at = self.slot(at).chain;
            }
            self.slot_mut(at).chain = next;
        }
        let free = std::mem::replace(&mut self.free, node);
        *self.slot_mut(node) = Slot::free(free);
        id
    }

    /// Makes a node the newest of a list.
    pub(super) fn renew(&mut self, node: Node, list: usize) {
        self.unlink(node);
        let before = std::mem::replace(&mut self.slot_mut(node).list, list as u8);
        self.lists[usize::from(before)].len -= 1;
        self.lists[list].len += 1;
        self.link(node);
    }

    /// Pins a node.
    pub(super) fn pin(&mut self, node: Node) {
        self.unlink(node);
        self.slot_mut(node).pins += 1;
    }

    /// Takes a pin back; the last one makes the node the newest of its list. Returns `false` if it was not
    /// pinned.
    pub(super) fn unpin(&mut self, node: Node) -> bool {
        let slot = self.slot_mut(node);
        if slot.pins == 0 {
            return false;
        }
        slot.pins -= 1;
        self.link(node);
        true
    }

    /// Links a node as the newest of its list, unless it is pinned.
    fn link(&mut self, node: Node) {
        if self.slot(node).pins > 0 {
            return;
        }
        let list = self.list_of(node);
        let older = std::mem::replace(&mut self.lists[list].newest, node);
        self.slot_mut(node).older = older;
        self.slot_mut(node).newer = NONE;
        if older == NONE {
            self.lists[list].oldest = node;
        } else {
            self.slot_mut(older).newer = node;
        }
    }

    /// Unlinks a node from its list, unless it is pinned.
    fn unlink(&mut self, node: Node) {
        let &Slot { newer, older, pins, .. } = self.slot(node);
        let list = self.list_of(node);
        if pins > 0 {
            return;
        }
        if newer == NONE {
            self.lists[list].newest = older;
        } else {
            self.slot_mut(newer).older = older;
        }
        if older == NONE {
            self.lists[list].oldest = newer;
        } else {
            self.slot_mut(older).newer = newer;
        }
    }
}
