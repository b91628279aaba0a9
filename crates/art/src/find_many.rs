//! Searching for many keys at once, so that their cache misses overlap.

use pmindex_core::Medium;

use crate::child::{Child, Target};
use crate::node::Nodes;
use crate::tree::{At, Place, Root};

/// A search in a batch: the root of its tree, and the key.
#[derive(Clone, Copy, Debug)]
pub struct Search<'t, 'k> {
    /// The root where it begins.
    pub root: &'t Root,
    /// The key to find.
    pub key: &'k [u8],
}

/// The state of one search.
struct Cursor<'t> {
    at: At<'t>,
    child: Child,
}

impl Nodes {
    /// As [`Tree::find`](crate::Tree::find) for many keys, possibly of many trees; `found` is called with
    /// each place as soon as it is known, and may prefetch the leaf.
    ///
    /// `places` are those of the searches, in order; `None` if no leaf can have the key.
    ///
    /// # Cost
    /// One or two cache misses per level of nodes for all searches together, as far as the CPU overlaps them.
    pub fn find_many<'t>(
        &'t self,
        pm: &impl Medium,
        searches: &[Search<'t, '_>],
        places: &mut Vec<Option<Place<'t>>>,
        mut found: impl FnMut(u64),
    ) {
        places.clear();
        places.resize(searches.len(), None);
        let mut cursors: Vec<Cursor<'t>> = Vec::with_capacity(searches.len());
        let mut active: Vec<u32> = Vec::with_capacity(searches.len());
        for (i, search) in (0..).zip(searches) {
            let cursor = self.start_at(pm, search);
            self.prefetch_child(cursor.child, search.key, 0);
            cursors.push(cursor);
            active.push(i);
        }
        while !active.is_empty() {
            active.retain(|&i| {
                let i = i as usize;
                let (search, cursor) = (&searches[i], &mut cursors[i]);
                match self.step(pm, search, cursor) {
                    Step::On => true,
                    Step::Again => {
                        *cursor = self.start_at(pm, search);
                        true
                    }
                    Step::Nothing => false,
                    Step::Leaf(place) => {
                        found(place.leaf);
                        places[i] = Some(place);
                        false
                    }
                }
            });
        }
    }

    fn start_at<'t>(&self, pm: &impl Medium, search: &Search<'t, '_>) -> Cursor<'t> {
        let (at, child) = self.start(pm, search.root);
        Cursor { at, child }
    }

    /// Prefetches what the next step reads, as far as that is known before the node is read.
    #[inline(always)]
    pub(crate) fn prefetch_child(&self, child: Child, key: &[u8], depth: usize) {
        if let Target::Node(kind, index) = child.target() {
            self.prefetch(kind, index, key.get(depth).copied());
        }
    }

    #[inline(always)]
    fn step<'t>(
        &'t self,
        pm: &impl Medium,
        search: &Search<'t, '_>,
        cursor: &mut Cursor<'t>,
    ) -> Step<'t> {
        let (at, key) = (&mut cursor.at, search.key);
        let (kind, index) = match cursor.child.target() {
            Target::Nothing if at.holds(pm) => return Step::Nothing,
            Target::Nothing => return Step::Again,
            Target::Leaf(leaf) => {
                return Step::Leaf(Place { leaf, lock: at.lock, version: at.version });
            }
            Target::Node(kind, index) => (kind, index),
        };
        let node = self.get(kind, index);
        let head = node.head();
        let version = head.lock.begin_read(pm);
        if !at.holds(pm) {
            return Step::Again;
        }
        (at.lock, at.version) = (&head.lock, version);
        let meta = self.meta(node);
        let prefix = self.compare_prefix(head, meta.prefix_len(), key, at.depth);
        if prefix.common < prefix.len {
            return if at.holds(pm) { Step::Nothing } else { Step::Again };
        }
        at.depth += prefix.len;
        let cell = match key.get(at.depth) {
            None => Some(&head.end),
            Some(&byte) => self.find(node, meta, byte),
        };
        at.depth += 1;
        cursor.child = cell.map_or(Child::NOTHING, |cell| self.dram.load(cell));
        self.prefetch_child(cursor.child, key, at.depth);
        match cursor.child.target() {
            Target::Node(..) => Step::On,
            Target::Leaf(leaf) => Step::Leaf(Place { leaf, lock: at.lock, version: at.version }),
            Target::Nothing if at.holds(pm) => Step::Nothing,
            Target::Nothing => Step::Again,
        }
    }
}

/// The outcome of a step.
enum Step<'t> {
    On,
    Again,
    Nothing,
    Leaf(Place<'t>),
}
