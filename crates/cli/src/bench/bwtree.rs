//! The Bw-tree as a subject: a map in DRAM, lost on a crash.

use std::hint::black_box;

use pmindex::Stats;
use pmindex_bwtree::BwTree;
use pmindex_pibench::{Fault, Session, Store};

use crate::bench::bed::Generated;

/// A Bw-tree to be measured.
#[derive(Debug)]
pub(super) struct Delta<K: Generated + Ord, V: Generated>(BwTree<K, V>);

impl<K: Generated + Ord, V: Generated> Default for Delta<K, V> {
    fn default() -> Self {
        Self(BwTree::new())
    }
}

/// A session: the tree, and room for what scans find.
pub(super) struct Calls<'t, K: Generated + Ord, V: Generated> {
    tree: &'t BwTree<K, V>,
    found: Vec<(K, V)>,
}

impl<K: Generated + Ord, V: Generated> Store<K, V> for Delta<K, V> {
    type Session<'s>
        = Calls<'s, K, V>
    where
        Self: 's;

    fn session(&self) -> Calls<'_, K, V> {
        Calls { tree: &self.0, found: Vec::new() }
    }

    fn stats(&self) -> Result<Option<Stats>, Fault> {
        let stats = self.0.stats();
        Ok(Some(Stats {
            records: stats.records,
            height: stats.height,
            leaves: stats.leaves,
            inners: stats.inners,
            dram_bytes: stats.bytes,
            ..Stats::default()
        }))
    }
}

impl<K: Generated + Ord, V: Generated> Session<K, V> for Calls<'_, K, V> {
    #[inline(always)]
    fn get(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.tree.get(key).map(black_box).is_some())
    }

    #[inline(always)]
    fn insert(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.tree.try_insert(key, value))
    }

    #[inline(always)]
    fn update(&mut self, key: &K, value: &V) -> Result<bool, Fault> {
        Ok(self.tree.update(key, value))
    }

    #[inline(always)]
    fn upsert(&mut self, key: &K, value: &V) -> Result<(), Fault> {
        self.tree.insert(key, value);
        Ok(())
    }

    #[inline(always)]
    fn remove(&mut self, key: &K) -> Result<bool, Fault> {
        Ok(self.tree.remove(key).map(black_box).is_some())
    }

    #[inline(always)]
    fn scan(&mut self, from: &K, limit: usize) -> Result<usize, Fault> {
        self.found.clear();
        self.tree.scan(from, limit, &mut self.found);
        Ok(black_box(&self.found).len())
    }
}
