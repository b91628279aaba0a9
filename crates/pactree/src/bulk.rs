//! Filling an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark | P2 |
//! | P2 | a node with its records, behind the last one; its low key in the trie; node after node | P3 |
//! | P3 | the mark is cleared (LIN: the unlock of the first node, after it) | return (DUR) |
//!
//! While the mark stands, what the nodes have is not in the index: opening discards it, and so does a load that
//! fails. The trie and the first node are locked throughout, so no other thread sees any of it.

use std::slice::from_ref;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Owner, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{
    EncodedValue, Loader, Probe, bits, bulk_load, link, low_between, ordered_bytes,
};

use crate::layout::{Geometry, NodePtr, Slot};
use crate::node::{Incoming, Low, Node, more_than_slots};
use crate::tree::PacTree;

/// A load in progress.
struct Load<'t, K, V, M: Medium, const LEAF: usize> {
    tree: &'t PacTree<K, V, M, LEAF>,
    /// The last node.
    last: u64,
    /// The greatest key, encoded.
    greatest: Vec<u8>,
    _head: VersionGuard<'t>,
    _trie: VersionGuard<'t>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> PacTree<K, V, M, LEAF> {
    /// Fills an empty index from strictly ascending records; returns their number. Operations of
    /// other threads wait until it returns.
    ///
    /// # Cost
    /// 4 fences for each node; byte strings: 2 for each record besides.
    ///
    /// # Panics
    /// If `records` waits for this index, which waits for it: the index stays as it was.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`], a record too long, the pool's; the index
    /// stays as it was.
    pub fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        self.bulk_load_inner(records).noted(&self.pool)
    }

    fn bulk_load_inner(
        &self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        self.pool.check_writable()?;
        let pm = self.pm();
        let (trie, head) = loop {
            self.shed_empty()?;
            let trie = self.trie.lock();
            // Tried: a thread with the first node's lock may wait for the trie's.
            let Some(head) = self.lock_of(self.head).try_lock(pm) else {
                drop(trie);
                pm.spin();
                continue;
            };
            let node = self.node(self.head)?;
            if node.bitmap(pm) != 0 {
                return Err(IndexError::NotEmpty);
            }
            if node.next(pm).offset() == 0 && self.behind.is_level().is_some() {
                break (trie, head);
            }
            drop(head);
            drop(trie);
            if self.iter().next().transpose()?.is_some() {
                return Err(IndexError::NotEmpty);
            }
            pm.spin();
        };
        let locks = [from_ref(self.trie.lock_itself()), from_ref(self.lock_of(self.head))];
        let (last, greatest) = (self.head, Vec::new());
        let load = Load { tree: self, last, greatest, _head: head, _trie: trie };
        bulk_load(load, &locks, records)
    }

    /// Has empty nodes behind the first one merge with it, and the trie follow.
    fn shed_empty(&self) -> Result<(), PmError> {
        let pm = self.pm();
        loop {
            let next = self.node(self.head)?.next(pm).offset();
            if next == 0 || self.node(next)?.bitmap(pm) != 0 || !self.merge(self.head, next)? {
                break;
            }
        }
        while self.follow_one(true)? {}
        Ok(())
    }

    /// Removes all records: the caller has the index for itself, or the locks of a load.
    pub(crate) fn discard(&self) -> Result<(), PmError> {
        let pm = self.pm();
        let head = self.node(self.head)?;
        for _ in 0..self.limit() {
            let next = head.next(pm).offset();
            if next == 0 {
                break;
            }
            let node = self.node(next)?;
            self.trie.remove_held(&node.low(&self.pool)?)?;
            self.clear_node(&node)?;
            let mut op = self.pool.op()?;
            let owner = Owner { word: head.next_cell(), mask: u64::MAX, expect: next };
            op.free(NodePtr::new(next), owner)?;
            if let Some(block) = node.low_block(pm) {
                op.free(NodePtr::new(block), owner)?;
            }
            op.changes(node.next_cell());
            op.changes(node.bitmap_cell());
            op.prepare(Flushed::nothing())?;
            link(&self.pool, op, head.next_cell(), node.next(pm).offset())?;
        }
        self.clear_node(&head)
    }

    /// Removes the records of a node.
    fn clear_node(&self, node: &Node<'_, K, V, LEAF>) -> Result<(), PmError> {
        for slot in bits(node.bitmap(self.pm()) & Geometry::<K, V, LEAF>::ALL) {
            node.remove(&self.pool, node.bitmap(self.pm()), slot)?;
        }
        Ok(())
    }

    fn mark(&self, mark: u64) -> Result<(), PmError> {
        let root = self.root()?;
        self.pm().store(&root.bulk_load, mark);
        self.pm().persist(root)?;
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Load<'_, K, V, M, LEAF> {
    /// Adds a node behind the last one, with the records of `part` if they lie in its slots.
    fn add_node(&self, part: &[(K, V)], low: &Low) -> Result<u64, IndexError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let last = tree.node(self.last)?;
        let mut op = tree.pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF>::BYTES, 64)?;
        let offset = block.ptr().offset();
        let owner = Owner { word: last.next_cell(), mask: u64::MAX, expect: offset };
        op.allocate(&block, owner)?;
        let mut image = vec![0; Geometry::<K, V, LEAF>::WORDS];
        let words = &mut image[Geometry::<K, V, LEAF>::LOW..];
        let words = &mut words[..Geometry::<K, V, LEAF>::LOW_WORDS];
        let filled_low = low.put::<K, M>(&tree.pool, &mut op, words, owner)?;
        image[2] = self.last;
        if !Slot::<K, V>::HAS_BLOCK {
            for (key, value) in part {
                let (probe, datum) = (Probe::of_stored(key), EncodedValue::new(value.borrowed())?);
                let i = Node::<K, V, LEAF>::free_slot_for(image[0], &probe);
                let i = i.ok_or_else(|| more_than_slots(self.last))?;
                let slot = Geometry::<K, V, LEAF>::SLOTS + i * Slot::<K, V>::WORDS;
                let slot = &mut image[slot..slot + Slot::<K, V>::WORDS];
                Slot::<K, V>::encode(slot, &probe, &datum);
                image[Geometry::<K, V, LEAF>::FINGERPRINTS + i / 8] |=
                    u64::from(probe.fingerprint()) << (8 * (i % 8));
                image[0] |= 1 << i;
            }
        }
        let filled = pm.stream_words(tree.node(offset)?.words(), &image);
        op.prepare(filled.and(filled_low))?;
        link(&tree.pool, op, last.next_cell(), offset)?;
        Ok(offset)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize> Loader for Load<'_, K, V, M, LEAF> {
    type Key = K;
    type Value = V;
    const PART: usize = LEAF;

    fn begin(&mut self) -> Result<(), PmError> {
        self.tree.mark(1) // P1
    }

    fn add(&mut self, part: &[(K, V)], _: Option<&K>) -> Result<(), IndexError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let ([(first, _), ..], Some((last, _))) = (part, part.last()) else { return Ok(()) };
        for (key, value) in part {
            Probe::<K>::new(key.borrowed())?;
            EncodedValue::<V>::new(value.borrowed())?;
        }
        let bytes = ordered_bytes::<K>(first.borrowed());
        let bytes = if K::SHAPE.is_bytes() && self.last != tree.head {
            low_between(&self.greatest, &bytes, self.last)?.to_vec()
        } else {
            bytes.to_vec()
        };
        // P2.
        let low = Low { bytes };
        self.last = self.add_node(part, &low)?;
        if Slot::<K, V>::HAS_BLOCK {
            let node = tree.node(self.last)?;
            for (key, value) in part {
                let (probe, datum) = (Probe::of_stored(key), EncodedValue::new(value.borrowed())?);
                let record = Incoming { probe: &probe, datum: &datum };
                let bitmap = node.bitmap(pm);
                let slot = Node::<K, V, LEAF>::free_slot_for(bitmap, &probe);
                let slot = slot.ok_or_else(|| more_than_slots(self.last))?;
                node.insert(&tree.pool, bitmap, slot, &record)?;
            }
        }
        tree.trie.insert(&low.bytes, self.last, true)?;
        self.greatest = ordered_bytes::<K>(last.borrowed()).to_vec();
        Ok(())
    }

    fn complete(&mut self) -> Result<(), PmError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<(), PmError> {
        self.tree.mark(0) // P3
    }

    fn install(&mut self, loaded: u64) {
        self.tree.count(self.tree.head, loaded);
        self.tree.behind.note_load(); // before: the unlock of the trie and the first node (LIN)
    }

    fn undo(&mut self) {
        let tree = self.tree;
        // If this fails, the mark stands and the next opening discards.
        let _ = tree.pool.roll_back(|| {
            tree.discard()?;
            tree.mark(0)
        });
    }
}
