//! Locates the node of a key, and reads it.

use pmindex_core::sync::VersionLock;
use pmindex_core::{Medium, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{Pair, RecordBlock, Route};

use crate::layout::{Sought, State, has_block, window};
use crate::list::SkipList;
use crate::node::{Node, value_of};

/// The number of keys that are looked up together.
const BATCH: usize = 32;

/// A node at a version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'t> {
    pub(crate) node: u64,
    pub(crate) lock: &'t VersionLock,
    pub(crate) version: u64,
}

impl At<'_> {
    #[inline(always)]
    pub(crate) fn validate(&self, pm: &impl Medium) -> bool {
        self.lock.validate(pm, self.version)
    }
}

impl<K: Key, V: Value, M: Medium, const LINES: usize> SkipList<K, V, M, LINES> {
    /// Returns the node for `route`, unlocked at the returned version; calls `fetch` with it before.
    #[inline(always)]
    pub(crate) fn locate(&self, route: &Route<'_>, fetch: impl Fn(u64)) -> At<'_> {
        let pm = self.pm();
        loop {
            let place = self.towers.find(pm, route);
            fetch(place.node);
            let lock = self.lock_of(place.node);
            let version = lock.begin_read(pm);
            if place.validate(pm) {
                return At { node: place.node, lock, version };
            }
        }
    }

    /// Returns the node for a key, prefetching the key's home line.
    #[inline(always)]
    pub(crate) fn locate_key(&self, key: &Sought<'_, K>) -> At<'_> {
        let mark = key.mark();
        self.locate(&key.route(), |node| Node::<LINES>::prefetch_home(&self.pool, node, mark))
    }

    /// Applies `read` to the second word of a key's record; may call it more than once.
    #[inline(always)]
    fn look_up<T>(
        &self,
        key: &Sought<'_, K>,
        mut read: impl FnMut(&Pool<M>, u64) -> Result<T, PmError>,
    ) -> Result<Option<T>, PmError> {
        loop {
            let at = self.locate_key(key);
            let found = self.node(at.node).and_then(|node| {
                let found = node.find::<K, V, M>(&self.pool, key)?;
                found.map(|found| read(&self.pool, found.other)).transpose()
            });
            if at.validate(self.pm()) {
                return found;
            }
        }
    }

    /// Returns the value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let found = self.look_up(&Sought::new(key)?, value_of::<K, V, M>);
        found.map_err(IndexError::from).noted(&self.pool)
    }

    /// Reads the value of `key` into `value`, reusing its memory; returns `false` if the key is absent: see
    /// [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let found = self.look_up(&Sought::new(key)?, |pool, other| {
            if has_block::<K, V>() {
                return Pair::<K, V>::value_into(pool, other, value);
            }
            *value = V::from_words(&[other]);
            Ok(())
        });
        Ok(found.map_err(IndexError::from).noted(&self.pool)?.is_some())
    }

    /// Returns `true` if `key` is present. No flush, no fence.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let found = self.look_up(&Sought::new(key)?, |_, _| Ok(()));
        Ok(found.map_err(IndexError::from).noted(&self.pool)?.is_some())
    }

    /// Looks up many keys with overlapping cache misses in the nodes; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.get_many_inner(keys, out).noted(&self.pool)
    }

    fn get_many_inner(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        let mut ways = Vec::with_capacity(BATCH.min(keys.len()));
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            ways.clear();
            for key in keys {
                let key = Sought::<K>::new(key.borrowed())?;
                let at = self.locate_key(&key);
                ways.push((key, at));
            }
            if has_block::<K, V>() {
                for (key, at) in &ways {
                    self.fetch_block(key, at);
                }
            }
            for ((key, at), out) in ways.iter().zip(out) {
                let found = self.node(at.node).and_then(|node| {
                    let found = node.find::<K, V, M>(&self.pool, key)?;
                    found.map(|found| value_of::<K, V, M>(&self.pool, found.other)).transpose()
                });
                *out = if at.validate(self.pm()) {
                    found?
                } else {
                    self.look_up(key, value_of::<K, V, M>)?
                };
            }
        }
        Ok(())
    }

    /// Prefetches the block of a record in its key's home line. A hint.
    fn fetch_block(&self, key: &Sought<'_, K>, at: &At<'_>) {
        let (Ok(node), Some(line)) = (self.node(at.node), window::<LINES>(key.mark()).next())
        else {
            return;
        };
        let state = node.state(self.pm(), line);
        for pair in 0..crate::layout::LINE_PAIRS {
            if state.0 & State::bit(pair) != 0 && state.mark(pair) == key.mark() {
                let other = node.other_cell(crate::layout::LINE_PAIRS * line + pair);
                RecordBlock::prefetch(&self.pool, self.pm().load_word(other));
            }
        }
    }
}
