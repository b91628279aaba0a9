//! The way down for many keys at once: their cache misses overlap.

use pmindex_core::Medium;
use pmindex_index::Key;
use pmindex_record::Probe;

use super::parent::{Entry, InnerTree};
use pmindex_record::Route;

/// The number of keys that descend together.
pub(in crate::nvtree) const BATCH: usize = 64;

/// One key's way.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::nvtree) struct Cursor {
    /// The leaf, to be validated after its version was taken; 0 if there was no straight way to it.
    pub(in crate::nvtree) entry: Entry,
    version: u64,
    straight: bool,
}

impl<K: Key, const F: usize> InnerTree<K, F> {
    /// The leaves for up to [`BATCH`] keys, level by level; `found` is told each as it is known.
    #[inline(always)]
    pub(in crate::nvtree) fn find_many(
        &self,
        pm: &impl Medium,
        probes: &[Probe<'_, K>],
        cursors: &mut [Cursor],
        found: impl Fn(&Entry),
    ) {
        let top = self.top.lock.begin_read(pm);
        for (probe, cursor) in probes.iter().zip(&mut *cursors) {
            cursor.entry = Entry::at_first(self.named(top, &Route::to(probe)));
            self.prefetch_separators(&cursor.entry);
        }
        // Of the leaves' lines one is fetched: what comes in bounds what a batch costs.
        for (probe, cursor) in probes.iter().zip(&mut *cursors) {
            let route = Route::to(probe);
            let parent = cursor.entry.parent;
            let node = self.parents.get(parent);
            cursor.version = node.lock.begin_read(pm);
            cursor.straight =
                self.top.lock.validate(pm, top) && self.aside(parent, node, &route).is_none();
            if cursor.straight {
                cursor.entry.at = self.leaf_index(parent, node, &route) as u32;
                self.prefetch_entry(&cursor.entry);
            }
        }
        for cursor in cursors {
            if cursor.straight {
                cursor.entry = self.reread(&cursor.entry);
                found(&cursor.entry);
            } else {
                cursor.entry = Entry::default();
            }
        }
    }

    /// Returns `true` if the cursor's leaf is still the one for its route.
    #[inline(always)]
    pub(in crate::nvtree) fn is_valid(&self, pm: &impl Medium, cursor: &Cursor) -> bool {
        self.parents.get(cursor.entry.parent).lock.validate(pm, cursor.version)
    }
}
