//! The index: maps keys to locations, in DRAM; rebuilt by opening.
//!
//! An adaptive radix tree that stores only the parts of keys that distinguish them from their neighbours:
//! the thesis's partial keys (section 5.6.2); its nodes also truncate prefixes.

use std::ops::Bound;

use pmindex_art::{Builder, Built, Direction, Nodes, Place, Root, Search, Tree};
use pmindex_core::{Arena, Medium, PmError};

use crate::Error;
use crate::blocks::{Blocks, Location, RECORD};

/// Returns the error of a partition for one of the tree: a record is damaged if its key cannot be read.
#[cold]
fn of_record(error: PmError) -> Error {
    match error {
        PmError::Corrupt { what: RECORD, offset } => Error::Damaged { offset },
        other => other.into(),
    }
}

/// An ordered index of the records of a partition.
#[derive(Debug)]
pub(crate) struct Index {
    nodes: Nodes,
    roots: Arena<Root>,
    root: u32,
    pub(crate) len: u64,
}

impl Index {
    /// Returns an empty index with address space for this number of records.
    pub(crate) fn new(records: u64) -> Result<Self, PmError> {
        let roots = Arena::new(1)?;
        let root = roots.alloc()?;
        Ok(Self { nodes: Nodes::new(records)?, roots, root, len: 0 })
    }

    #[inline(always)]
    fn tree<'t, M: Medium>(&'t self, blocks: &'t Blocks<M>) -> Tree<'t, Blocks<M>> {
        Tree::new(&self.nodes, self.roots.get(self.root), blocks)
    }

    #[inline(always)]
    pub(crate) fn get<M: Medium>(
        &self,
        blocks: &Blocks<M>,
        key: &[u8],
    ) -> Result<Option<Location>, Error> {
        let found = self.tree(blocks).get(blocks.pool.pm(), key).map_err(of_record)?;
        Ok(found.map(Location::from_leaf))
    }

    /// Searches for keys together, and prefetches what it passes and the beginnings of their records.
    pub(crate) fn prefetch<'k, M: Medium>(
        &self,
        blocks: &Blocks<M>,
        keys: impl Iterator<Item = &'k [u8]>,
    ) {
        let root = self.roots.get(self.root);
        let searches: Vec<_> = keys.map(|key| Search { root, key }).collect();
        let found = |leaf| blocks.prefetch(Location::from_leaf(leaf));
        self.nodes.find_many(blocks.pool.pm(), &searches, &mut Vec::new(), found);
    }

    /// Sets the location of a key's record, and returns the old one. On failure nothing has changed.
    pub(crate) fn set<M: Medium>(
        &mut self,
        blocks: &Blocks<M>,
        key: &[u8],
        at: Location,
    ) -> Result<Option<Location>, Error> {
        let set = self.tree(blocks).upsert(blocks.pool.pm(), key, at.leaf());
        let before = set.map_err(of_record)?;
        self.len += u64::from(before.is_none());
        Ok(before.map(Location::from_leaf))
    }

    /// Removes a key, which must be present.
    pub(crate) fn remove<M: Medium>(
        &mut self,
        blocks: &Blocks<M>,
        key: &[u8],
        at: Location,
    ) -> Result<bool, Error> {
        let removed = self.tree(blocks).remove_leaf(blocks.pool.pm(), key, at.leaf());
        let removed = removed.map_err(of_record)?;
        self.len -= u64::from(removed);
        Ok(removed)
    }

    /// Returns a builder of the whole index, from locations in the order of their keys.
    pub(crate) fn builder(&self) -> Builder<'_> {
        self.nodes.builder()
    }

    /// Puts the index that was built of this number of records in place of the empty one.
    pub(crate) fn install<M: Medium>(&mut self, blocks: &Blocks<M>, built: &Built, records: u64) {
        self.nodes.install(blocks.pool.pm(), self.roots.get(self.root), built);
        self.len = records;
    }

    /// Appends up to `limit` locations from a bound on; returns `true` if there may be more.
    pub(crate) fn walk<M: Medium>(
        &self,
        blocks: &Blocks<M>,
        (bound, reverse): (Bound<&[u8]>, bool),
        limit: usize,
        found: &mut Vec<Location>,
    ) -> Result<bool, Error> {
        let direction = if reverse { Direction::Descending } else { Direction::Ascending };
        let mut places: Vec<Place<'_>> = Vec::with_capacity(limit);
        let tree = self.tree(blocks);
        let more = tree.walk(blocks.pool.pm(), bound, direction, limit, &mut places);
        let more = more.map_err(of_record)?;
        found.extend(places.iter().map(|place| Location::from_leaf(place.leaf)));
        Ok(more)
    }

    /// Returns the bytes of DRAM used.
    pub(crate) fn bytes(&self) -> u64 {
        self.nodes.bytes() as u64
    }
}
