//! The top layer, in DRAM: a radix tree from low keys to Mnodes.
//!
//! It is a hint: an Mnode that it finds was near the key at some moment, and the search goes on along the
//! list. An Mnode is added after its Bnode is durable and removed before it ends, both under the lock of its
//! left neighbour, so that a quiescent tree is exact. The first Mnode is not in it: it never ends, and a
//! search that finds nothing begins there.

use pmindex_art::{KeyBuf, Leaves, Nodes, Root, Tree};
use pmindex_core::{Arena, Medium, PmError};
use pmindex_index::Key;
use pmindex_record::Route;

use crate::middle::Middle;

/// The nodes of the radix tree.
#[derive(Debug)]
pub(crate) struct Top {
    nodes: Nodes,
    root: Arena<Root>,
}

/// The low keys, which are in the Mnodes.
struct Lows<'t, K>(&'t Middle<K>);

impl<K: Key> Leaves for Lows<'_, K> {
    fn load_key(&self, leaf: u64, key: &mut KeyBuf) -> Result<(), PmError> {
        let route = self.0.low_route(self.0.get(leaf as u32));
        key.push(route.route::<K>().encoded::<K>(&mut [0; 32]));
        Ok(())
    }
}

impl Top {
    pub(crate) fn new(leaves: u64) -> Result<Self, PmError> {
        let (nodes, root) = (Nodes::new(leaves)?, Arena::new(1)?);
        root.alloc()?;
        Ok(Self { nodes, root })
    }

    #[inline(always)]
    fn tree<'t, K: Key>(&'t self, lows: &'t Lows<'t, K>) -> Tree<'t, Lows<'t, K>> {
        Tree::new(&self.nodes, self.root.get(0), lows)
    }

    /// Finds an Mnode at or near the route; `None`: the first.
    #[inline(always)]
    pub(crate) fn near<K: Key>(
        &self,
        pm: &impl Medium,
        middle: &Middle<K>,
        route: &Route<'_>,
    ) -> Option<u32> {
        let mut room = [0; 32];
        let key = route.encoded::<K>(&mut room);
        self.tree(&Lows(middle)).near(pm, key).map(|leaf| leaf as u32)
    }

    /// As [`near`](Self::near) for many encoded keys; calls `found` with each result.
    #[inline(always)]
    pub(crate) fn near_many<'k, K: Key>(
        &self,
        pm: &impl Medium,
        middle: &Middle<K>,
        keys: impl ExactSizeIterator<Item = &'k [u8]> + Clone,
        mut found: impl FnMut(usize, Option<u32>),
    ) {
        let lows = Lows(middle);
        self.tree(&lows).near_many(pm, keys, |at, leaf| found(at, leaf.map(|leaf| leaf as u32)));
    }

    /// Adds an Mnode. Without room for it, searches for its keys come to an Mnode before it and go along the
    /// list.
    pub(crate) fn insert<K: Key>(
        &self,
        pm: &impl Medium,
        middle: &Middle<K>,
        low: &Route<'_>,
        index: u32,
    ) {
        let mut room = [0; 32];
        let key = low.encoded::<K>(&mut room);
        let _ = self.tree(&Lows(middle)).upsert(pm, key, u64::from(index));
    }

    /// Removes an Mnode.
    pub(crate) fn remove<K: Key>(&self, pm: &impl Medium, middle: &Middle<K>, low: &Route<'_>) {
        let mut room = [0; 32];
        // It fails only if `load_key` does, which never does.
        let _ = self.tree(&Lows(middle)).remove(pm, low.encoded::<K>(&mut room));
    }

    /// Finds the Mnode of exactly this low key.
    pub(crate) fn get<K: Key>(
        &self,
        pm: &impl Medium,
        middle: &Middle<K>,
        low: &Route<'_>,
    ) -> Result<Option<u32>, PmError> {
        let mut room = [0; 32];
        let leaf = self.tree(&Lows(middle)).get(pm, low.encoded::<K>(&mut room))?;
        Ok(leaf.map(|leaf| leaf as u32))
    }

    /// Verifies the tree's own structure; returns the number of its Mnodes.
    pub(crate) fn check<K: Key>(&self, middle: &Middle<K>) -> Result<u64, PmError> {
        self.tree(&Lows(middle)).check()
    }

    /// Levels of nodes.
    pub(crate) fn height<K: Key>(&self, pm: &impl Medium, middle: &Middle<K>) -> u32 {
        self.tree(&Lows(middle)).height(pm)
    }

    /// Returns the number of nodes, and their bytes of DRAM.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.nodes.counts().iter().sum::<usize>() as u64, self.nodes.bytes() as u64)
    }
}
