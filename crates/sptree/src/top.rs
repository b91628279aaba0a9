//! The top layer, in DRAM: a radix tree that leads to Mnodes by their low keys.
//!
//! It is a hint. What it leads to was an Mnode near the key at some moment; from there the list goes
//! on. An Mnode enters it after its Bnode is durable and leaves it before it ends, both under the lock
//! of its left neighbour, so that a quiescent tree is exact. The first Mnode is not in it: it is never
//! gone, and it is where a search begins that finds nothing.

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

    /// An Mnode at or near the route; `None`: the first.
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

    /// As [`near`](Self::near) for many encoded keys; `found` is told of each as it is known.
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

    /// Adds an Mnode. If there is no room, searches for its keys come to the Mnodes before it and go
    /// along the list.
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

    /// Takes an Mnode out.
    pub(crate) fn remove<K: Key>(&self, pm: &impl Medium, middle: &Middle<K>, low: &Route<'_>) {
        let mut room = [0; 32];
        // What it fails with is an error of `load_key`, which has none.
        let _ = self.tree(&Lows(middle)).remove(pm, low.encoded::<K>(&mut room));
    }

    /// The Mnode of exactly this low key.
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

    /// Verifies the tree's own structure; returns how many Mnodes it leads to.
    pub(crate) fn check<K: Key>(&self, middle: &Middle<K>) -> Result<u64, PmError> {
        self.tree(&Lows(middle)).check()
    }

    /// Levels of nodes.
    pub(crate) fn height<K: Key>(&self, pm: &impl Medium, middle: &Middle<K>) -> u32 {
        self.tree(&Lows(middle)).height(pm)
    }

    /// Nodes, and the DRAM they take.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.nodes.counts().iter().sum::<usize>() as u64, self.nodes.bytes() as u64)
    }
}
