//! The tree as a layer over other nodes: a map of byte strings to words, with a search for the greatest key
//! that is not greater than a given one.

use std::sync::Arc;

use pmindex_core::sync::{VersionGuard, VersionLock};
use pmindex_core::{Medium, PPtr, PmError, PmU64, Pool};
use pmindex_index::IndexError;
use pmindex_record::RecordBlock;

use crate::layout::{Child, digit};
use crate::node::Node;
use crate::path::{At, Near, Step, deep, lonely, near_of};
use crate::tree::{Tree, Visited};
use crate::write::Record;

/// A result that may be absent; the outer `None` says that a node on the path has changed.
type Tried<T> = Result<Option<Option<T>>, PmError>;

/// A WOART of byte strings and words, whose topmost word belongs to another structure, and which leads to
/// that structure's nodes.
///
/// # Cost
///
/// That of [`Woart`](crate::Woart): 2 fences per insert and removal, none to open.
pub struct Trie<M: Medium> {
    tree: Tree<M>,
}

impl<M: Medium> std::fmt::Debug for Trie<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trie").finish_non_exhaustive()
    }
}

impl<M: Medium> Trie<M> {
    /// Opens the trie whose topmost word is at `top`: 0 for an empty one. Open it only once at a time.
    #[must_use]
    pub fn open(pool: &Arc<Pool<M>>, top: PPtr<PmU64>) -> Self {
        Self { tree: Tree::at(pool, top, (false, true), None) }
    }

    /// Excludes other threads until the guard is dropped.
    pub fn lock(&self) -> VersionGuard<'_> {
        self.tree.top.lock(self.tree.pm())
    }

    /// Returns the lock that [`lock`](Self::lock) takes.
    #[must_use]
    pub fn lock_itself(&self) -> &VersionLock {
        &self.tree.top
    }

    /// Adds a key and its word; returns `false` and changes nothing if the key exists. `held`: the caller
    /// holds the [lock](Self::lock).
    ///
    /// # Errors
    /// Those of the pool.
    pub fn insert(&self, key: &[u8], word: u64, held: bool) -> Result<bool, IndexError> {
        self.tree.insert(&Record { key, value: &word.to_le_bytes() }, held)
    }

    /// Removes a key; returns `true` if it existed. Needs no room.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn remove(&self, key: &[u8]) -> Result<bool, IndexError> {
        self.tree.remove(key, &mut |_| Ok(true))
    }

    /// Removes a key while the caller holds the [lock](Self::lock) or has the trie for itself.
    ///
    /// # Errors
    /// Those of the pool.
    pub fn remove_held(&self, key: &[u8]) -> Result<(), PmError> {
        if let Some(way) = self.tree.descend(key, usize::MAX, true, |_| {})?
            && way.near == Near::Same
        {
            self.tree.remove_at(&way, key, false)?;
        }
        Ok(())
    }

    /// Applies `take` to the word of the greatest key that is not greater than `key`. If the trie changes
    /// meanwhile, it may be the word of another key, even of a greater one, or the result may be `None`. The key
    /// and its word still exist after the last call of `take`, which may therefore read the version of a lock
    /// of the word's target.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    #[inline]
    pub fn floor<T>(
        &self,
        key: &[u8],
        mut take: impl FnMut(u64) -> T,
    ) -> Result<Option<T>, PmError> {
        loop {
            if let Some(found) = self.try_floor(key, &mut take)? {
                return Ok(found);
            }
            self.tree.pm().spin();
        }
    }

    /// Does the same as [`floor`](Self::floor); returns `None` if a node on the path has changed.
    #[inline(always)]
    fn try_floor<T>(&self, key: &[u8], take: &mut impl FnMut(u64) -> T) -> Tried<T> {
        let (tree, pm) = (&self.tree, self.tree.pm());
        let Step { mut child, mut at, .. } = tree.first_step(false)?;
        if child.is_none() {
            return Ok(at.validate(pm).then_some(None));
        }
        // `sure`: the nodes on the path distinguish every byte, so all keys below agree with the key.
        let (mut sure, mut least) = (true, 0);
        let mut above = None;
        while !child.is_leaf() {
            tree.prefetch_rest(child);
            let Some(next) = tree.enter_to_read(child, &at) else { return Ok(None) };
            if child.depth() < least {
                return Err(deep(child.offset()));
            }
            sure &= child.depth() == least;
            // Validated when the node below is entered, or the leaf or what is beside has been read.
            let Some(below) = Node::child_at(&tree.pool, child, key)? else {
                return self.beside(key, (child, next), above, sure, take);
            };
            above = Some((child, next));
            (child, at, least) = (below, next, child.depth() + 1);
        }
        let near = match RecordBlock::at(&tree.pool, child.offset()) {
            Ok(leaf) => match near_of(pm, &leaf, key) {
                Near::Differs { depth, digit: near }
                    if near > digit(key, depth) || depth < least.saturating_sub(1) =>
                {
                    (depth, near)
                }
                _ => {
                    let taken = word_of(pm, &leaf, child).map(take);
                    return if at.validate(pm) { taken.map(Some).map(Some) } else { Ok(None) };
                }
            },
            Err(error) => return if at.validate(pm) { Err(error) } else { Ok(None) },
        };
        if !at.validate(pm) {
            return Ok(None);
        }
        let less = near.1 < digit(key, near.0);
        match above.filter(|_| sure && !less) {
            Some(above) => self.before(key, above, near.0, take),
            None => self.aside(key, near.0, less, take),
        }
    }

    /// Returns the floor of a key whose path ends in a node without a child at its digit; `above` is the node
    /// before. `sure`: all keys below the node have the key's bytes before its depth.
    #[inline(always)]
    fn beside<'t, T>(
        &'t self,
        key: &[u8],
        (node, at): (Child, At<'t>),
        above: Option<(Child, At<'t>)>,
        sure: bool,
        take: &mut impl FnMut(u64) -> T,
    ) -> Tried<T> {
        let (tree, pm) = (&self.tree, self.tree.pm());
        let node = Node::at(&tree.pool, node)?;
        let lesser = node.lesser(pm, digit(key, node.depth));
        let any = lesser.or_else(|| if sure { None } else { node.any_child(pm) });
        if !at.validate(pm) {
            return Ok(None);
        }
        if sure {
            if let Some(child) = lesser {
                return self.take_greatest(child, at, node.depth + 1, take);
            }
            return match above {
                Some(above) => self.before(key, above, node.depth, take),
                None => self.aside(key, node.depth, false, take),
            };
        }
        let Some(any) = any else { return Err(lonely(node.offset)) };
        let Some((leaf, at)) = self.greatest(any, at, node.depth + 1)? else { return Ok(None) };
        let block = RecordBlock::at(&tree.pool, leaf.offset());
        let found = block.and_then(|block| match near_of(pm, &block, key) {
            Near::Differs { depth, digit: near } if depth < node.depth => {
                Ok(Err((depth, near < digit(key, depth))))
            }
            _ if lesser.is_none() => Ok(Err((node.depth, false))),
            _ => word_of(pm, &block, leaf).map(&mut *take).map(Ok),
        });
        if !at.validate(pm) {
            return Ok(None);
        }
        match found? {
            Ok(taken) => Ok(Some(Some(taken))),
            Err((depth, less)) => self.aside(key, depth, less, take),
        }
    }

    /// Returns the floor of a key, if all keys at or below the child of `above` at its digit agree with it before
    /// `depth` and are greater, and all keys below `above` agree with it before that node's depth. Mostly that
    /// node has a lesser child, and no second descent is needed.
    #[inline(always)]
    fn before<'t, T>(
        &'t self,
        key: &[u8],
        (above, at): (Child, At<'t>),
        depth: usize,
        take: &mut impl FnMut(u64) -> T,
    ) -> Tried<T> {
        let (tree, pm) = (&self.tree, self.tree.pm());
        let above = Node::at(&tree.pool, above)?;
        let lesser = above.lesser(pm, digit(key, above.depth));
        if !at.validate(pm) {
            return Ok(None);
        }
        match lesser {
            Some(child) => self.take_greatest(child, at, above.depth + 1, take),
            None => self.aside(key, depth, false, take),
        }
    }

    /// Returns the floor of a key that differs from nearby keys at `depth`. `less`: the keys with the same
    /// bytes before that are less; otherwise they are greater.
    #[inline(never)]
    fn aside<T>(
        &self,
        key: &[u8],
        depth: usize,
        less: bool,
        take: &mut impl FnMut(u64) -> T,
    ) -> Tried<T> {
        let (tree, pm) = (&self.tree, self.tree.pm());
        let Step { mut child, mut at, .. } = tree.first_step(false)?;
        let mut lesser = None;
        while !child.is_leaf() && !child.is_none() && child.depth() <= depth {
            let Some((node, next)) = tree.enter(child, &at)? else { return Ok(None) };
            let below = node.find(pm, key).map(|cell| Child(pm.load_word(cell)));
            let before = node.lesser(pm, digit(key, node.depth));
            if !next.validate(pm) {
                return Ok(None);
            }
            lesser = before.map(|before| (before, next, node.depth + 1)).or(lesser);
            (child, at) = (below.unwrap_or_default(), next);
        }
        if less && !child.is_none() {
            return self.take_greatest(child, at, 0, take);
        }
        match lesser {
            Some((child, at, least)) => self.take_greatest(child, at, least, take),
            None => Ok(at.validate(pm).then_some(None)),
        }
    }

    /// Applies `take` to the greatest key at or below a child.
    #[inline]
    fn take_greatest<T>(
        &self,
        child: Child,
        at: At<'_>,
        least: usize,
        take: &mut impl FnMut(u64) -> T,
    ) -> Tried<T> {
        let pm = self.tree.pm();
        let Some((leaf, at)) = self.greatest(child, at, least)? else { return Ok(None) };
        let block = RecordBlock::at(&self.tree.pool, leaf.offset());
        let taken = block.and_then(|block| word_of(pm, &block, leaf)).map(take);
        if at.validate(pm) { taken.map(Some).map(Some) } else { Ok(None) }
    }

    /// Returns the leaf of the greatest key at or below a child, and the lock of its parent; `None` if a node
    /// has changed.
    #[inline(always)]
    fn greatest<'t>(
        &'t self,
        mut child: Child,
        mut at: At<'t>,
        mut least: usize,
    ) -> Result<Option<(Child, At<'t>)>, PmError> {
        let (tree, pm) = (&self.tree, self.tree.pm());
        while !child.is_leaf() {
            let Some((node, next)) = tree.enter(child, &at)? else { return Ok(None) };
            let below = node.greatest(pm);
            if !next.validate(pm) {
                return Ok(None);
            }
            let Some(below) = below else { return Err(lonely(node.offset)) };
            if node.depth < least {
                return Err(deep(node.offset));
            }
            (child, at, least) = (below, next, node.depth + 1);
        }
        Ok(Some((child, at)))
    }

    /// Visits all keys of a quiescent trie, in order, with their words.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the structure is no trie; those of `visit`.
    pub fn each(
        &self,
        visit: &mut dyn FnMut(Vec<u8>, u64) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let pm = self.tree.pm();
        self.tree.walk(&mut |visited| {
            let Visited::Leaf(leaf, _) = visited else { return Ok(()) };
            let block = RecordBlock::whole_at(&self.tree.pool, leaf.offset())?;
            visit(block.key(pm), word_of(pm, &block, leaf)?)
        })
    }

    /// Returns the offsets of all blocks of a quiescent trie, and the number of inner nodes.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if the structure is no trie.
    pub fn blocks(&self) -> Result<(Vec<u64>, u64), PmError> {
        let (mut blocks, mut nodes) = (Vec::new(), 0);
        self.tree.walk(&mut |visited| {
            blocks.push(match visited {
                Visited::Node(node) => {
                    nodes += 1;
                    node.offset
                }
                Visited::Leaf(leaf, _) => leaf.offset(),
            });
            Ok(())
        })?;
        Ok((blocks, nodes))
    }

    /// Returns the DRAM in use.
    #[must_use]
    pub fn dram_bytes(&self) -> u64 {
        (self.tree.tally.bytes() + 8 * self.tree.locks.len()) as u64
    }
}

/// Returns the word of a leaf.
#[inline(always)]
fn word_of<M: Medium>(pm: &M, block: &RecordBlock<'_>, leaf: Child) -> Result<u64, PmError> {
    let value = block.one_word_value().map(|word| pm.load_word(word));
    value.ok_or(PmError::Corrupt { what: "the word of a leaf", offset: leaf.offset() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pmindex_core::PmPtr;

    use super::*;

    /// Compares the floor of every key, and of nearby keys, in tries of all kinds of keys as they grow and
    /// shrink.
    #[test]
    fn floors_are_those_of_a_map() {
        let long = |n: u64| [b"the same beginning ".repeat(2), n.to_string().into_bytes()].concat();
        let mixed = |n: u64| match n % 3 {
            0 => long(n)[..(n as usize % 40)].to_vec(),
            1 => n.to_be_bytes().to_vec(),
            _ => long(n),
        };
        let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec();
        let dense = |n: u64| n.to_be_bytes().to_vec();
        let sorts: [&dyn Fn(u64) -> Vec<u8>; 4] = [&long, &mixed, &scattered, &dense];
        for key in sorts {
            let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
            let block = pool.create_index("t", *b"test\0\0\0\0", 0, |top: &PmPtr<PmU64>| {
                pool.pm().store_word(top.as_word(), 0);
                pool.pm().flush(top)
            });
            let top = block.expect("room").root::<PmU64>();
            let trie = Trie::open(&pool, top);
            let mut map = BTreeMap::new();
            let agree = |map: &BTreeMap<Vec<u8>, u64>, step: usize| {
                for n in (0..700).step_by(step) {
                    for probe in [
                        key(n),
                        key(n).get(1..).unwrap_or_default().to_vec(),
                        [&key(n)[..], b"\0"].concat(),
                    ] {
                        let want = map.range(..=probe.clone()).next_back().map(|(_, word)| *word);
                        let found = trie.floor(&probe, |word| word).expect("sound");
                        assert_eq!(found, want, "{probe:?}");
                    }
                }
            };
            for n in 0..600 {
                let new = map.insert(key(n), n).is_none();
                if new {
                    assert!(trie.insert(&key(n), n, false).expect("room"));
                } else {
                    map.retain(|_, word| *word != n);
                    assert!(!trie.insert(&key(n), n, false).expect("room"));
                    trie.remove(&key(n)).expect("sound");
                }
                if n % 50 == 3 {
                    agree(&map, 7);
                }
            }
            agree(&map, 1);
            let keys: Vec<_> = map.keys().cloned().collect();
            for (n, key) in keys.iter().enumerate() {
                map.remove(key);
                assert!(trie.remove(key).expect("sound"));
                if n % 50 == 3 {
                    agree(&map, 7);
                }
            }
            assert_eq!(trie.blocks().expect("sound"), (vec![], 0));
        }
    }
}
