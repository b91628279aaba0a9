//! A copy of the inner nodes in DRAM: caching, the third technique of SPTree's study.
//!
//! Searches read the copy instead of the inner nodes, so they read nothing in PM but the leaf. It changes when the
//! inner nodes do, after the fence and under the same locks, so a search validates the version of `inner` with
//! either ([`find`](super::find)). It is lost in a crash, and made anew from all inner nodes. Keys are one word.
//!
//! A node of the copy has the separators and the child words of its inner node; a child that is an inner node has the
//! number of its copy in place of its offset.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{LINE, Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};

use crate::layout::{Child, Form};
use crate::tree::FastFair;

use super::change::Path;
use super::find::{Cursor, Hint};
use super::node::{Contents, no_tree};

/// The number of nodes of the first chunk; each of the others has twice as many as the one before it.
const FIRST: u64 = 64;
/// More chunks than there can be.
const CHUNKS: usize = 40;

/// The copy. Readers take no lock.
#[derive(Debug)]
pub(crate) struct Copies<const INNER: usize> {
    top: AtomicU64,
    chunks: [OnceLock<Box<[AtomicU64]>>; CHUNKS],
    places: Mutex<Places>,
}

/// Which inner node has which copy.
#[derive(Debug, Default)]
struct Places {
    /// By the offsets of inner nodes.
    of: HashMap<u64, u64>,
    free: Vec<u64>,
    made: u64,
}

impl<const INNER: usize> Copies<INNER> {
    /// Words of a node: the separators, then the children.
    const WORDS: usize = 2 * INNER + 1;

    fn new() -> Self {
        Self {
            top: AtomicU64::new(0),
            chunks: [const { OnceLock::new() }; CHUNKS],
            places: Mutex::default(),
        }
    }

    /// Returns the chunk of a number, and the number of its first node.
    fn chunk_of(number: u64) -> (u32, u64) {
        let chunk = (number / FIRST + 1).ilog2();
        (chunk, FIRST * ((1 << chunk) - 1))
    }

    /// Returns the words of a node that exists.
    #[inline(always)]
    fn node(&self, child: Child) -> Option<&[AtomicU64]> {
        let number = child.offset() / LINE as u64;
        let (chunk, first) = Self::chunk_of(number);
        let words = self.chunks.get(chunk as usize)?.get()?;
        let at = (number - first) as usize * Self::WORDS;
        words.get(at..at + Self::WORDS)
    }

    /// Returns the leaf for a key, and its place among its siblings; no child if there are no inner nodes. `None` if
    /// the copy is changing. Racing: validate `inner`.
    #[inline(always)]
    pub(super) fn find(&self, key: u64) -> Option<Cursor> {
        let mut cursor = Cursor { child: Child(self.top.load(Relaxed)), hint: Hint::default() };
        while cursor.child.level() > 0 {
            let parent = cursor.child;
            let node = self.node(parent)?;
            let at = node[..INNER].partition_point(|separator| separator.load(Relaxed) < key);
            let child = Child(node[INNER + at].load(Relaxed));
            if child.level() + 1 != parent.level() {
                return None;
            }
            cursor = Cursor { child, hint: Hint { parent, at } };
        }
        Some(cursor)
    }

    /// Returns the child at a place of a node of this copy, if there is one. Racing: a guess.
    pub(super) fn child(&self, parent: Child, at: usize) -> Option<Child> {
        let child = Child(self.node(parent)?.get(INNER + at)?.load(Relaxed));
        (child.0 != 0).then_some(child)
    }

    /// Fills a node.
    fn fill(&self, number: u64, contents: &Contents, children: &[Child]) {
        let (chunk, first) = Self::chunk_of(number);
        let nodes = FIRST << chunk;
        let words = self.chunks[chunk as usize]
            .get_or_init(|| (0..nodes as usize * Self::WORDS).map(|_| AtomicU64::new(0)).collect());
        let node = &words[(number - first) as usize * Self::WORDS..][..Self::WORDS];
        for (at, cell) in node[..INNER].iter().enumerate() {
            let separator = contents.separators.get(at);
            cell.store(separator.map_or(u64::MAX, |separator| separator.word), Relaxed);
        }
        for (at, cell) in node[INNER..].iter().enumerate() {
            cell.store(children.get(at).map_or(0, |child| child.0), Relaxed);
        }
    }

    /// Forgets all nodes.
    fn clear(&self, pm: &impl Medium) {
        self.top.store(0, Relaxed);
        *pm.lock(&self.places) = Places::default();
    }

    /// Returns its bytes in DRAM.
    fn bytes(&self, pm: &impl Medium) -> usize {
        let words: usize = self.chunks.iter().filter_map(OnceLock::get).map(|c| c.len()).sum();
        8 * words + 16 * pm.lock(&self.places).of.len()
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Copies the inner nodes into DRAM, and has searches read the copy from now on, which follows all changes.
    ///
    /// # Cost
    /// Reads all inner nodes: opening is no longer constant. Then a copy in DRAM of each node that changes.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    ///
    /// # Example
    ///
    /// ```
    /// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_fastfair::FastFair; }
    /// use std::sync::Arc;
    /// use pmindex::{FastFair, Pool};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Arc::new(Pool::emulated(1 << 20)?);
    /// let tree = FastFair::<u64, u64>::create(&pool, "squares")?.cached()?;
    /// for n in 0..100 {
    ///     tree.insert(&n, &(n * n))?;
    /// }
    /// assert_eq!(tree.get(&9)?, Some(81));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cached(mut self) -> Result<Self, IndexError> {
        const { assert!(Form::<K, V>::WORD_KEY, "a copy in DRAM has keys of one word") };
        let copies = Copies::new();
        let top = self.pm().load(&self.root()?.top);
        let top = self.copy_below(&copies, &mut self.pm().lock(&copies.places), Child(top));
        copies.top.store(top.map_err(IndexError::from).noted(&self.pool)?.0, Relaxed);
        self.copies = Some(Box::new(copies));
        Ok(self)
    }

    /// Copies a node and those below it that have no copy yet; returns the child word for the copy.
    fn copy_below(
        &self,
        copies: &Copies<INNER>,
        places: &mut Places,
        child: Child,
    ) -> Result<Child, PmError> {
        let level = child.level();
        if level == 0 {
            return Ok(child);
        }
        let named = |number: u64| Child::new(number * LINE as u64, level);
        if let Some(&number) = places.of.get(&child.offset()) {
            return Ok(named(number));
        }
        let contents = self.words_as_contents(child)?;
        let mut children = Vec::with_capacity(contents.children.len());
        for &below in &contents.children {
            children.push(self.copy_below(copies, places, below)?);
        }
        let number = places.free.pop().unwrap_or(places.made);
        places.made = places.made.max(number + 1);
        copies.fill(number, &contents, &children);
        places.of.insert(child.offset(), number);
        Ok(named(number))
    }

    /// Repeats a durable change of the inner nodes in the copy, if there is one: `new` replaced `old` below the end of
    /// `path`. The lock of the inner nodes is held.
    pub(super) fn repeat_in_copy(
        &self,
        path: &Path,
        old: &[Child],
        new: Child,
    ) -> Result<(), PmError> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let mut places = self.pm().lock(&copies.places);
        for node in old {
            let number = places.of.remove(&node.offset());
            places.free.extend(number);
        }
        let new = self.copy_below(copies, &mut places, new)?;
        match path.last() {
            None => copies.top.store(new.0, Relaxed),
            Some(&(parent, at)) => {
                let number = places.of.get(&parent.offset()).ok_or_else(|| no_tree(parent))?;
                let node = copies.node(Child::new(number * LINE as u64, parent.level()));
                node.ok_or_else(|| no_tree(parent))?[INNER + at].store(new.0, Relaxed);
            }
        }
        Ok(())
    }

    /// Repeats a durable change of the words of a node whose children are leaves in the copy, if there is one. The lock
    /// of the inner nodes is held.
    pub(super) fn repeat_node_in_copy(&self, node: Child) -> Result<(), PmError> {
        let Some(copies) = &self.copies else { return Ok(()) };
        let places = self.pm().lock(&copies.places);
        let number = *places.of.get(&node.offset()).ok_or_else(|| no_tree(node))?;
        let contents = self.words_as_contents(node)?;
        copies.fill(number, &contents, &contents.children);
        Ok(())
    }

    /// Forgets the copies of all nodes, which have been freed.
    pub(crate) fn clear_copy(&self) {
        if let Some(copies) = &self.copies {
            copies.clear(self.pm());
        }
    }

    /// Returns the bytes in DRAM of the copy.
    pub(crate) fn copy_bytes(&self) -> usize {
        self.copies.as_ref().map_or(0, |copies| copies.bytes(self.pm()))
    }
}
