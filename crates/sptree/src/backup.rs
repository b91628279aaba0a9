//! The top layer's backup in PM: a FAST&FAIR tree from low keys to Bnodes, some splits behind.
//!
//! A split queues its entry. Entries are inserted in batches, which share their fences, when enough wait or
//! at a call of [`SpTree::step`](crate::SpTree::step). An entry that is missing after a crash costs steps
//! along the list of Bnodes, no more. An entry that names a freed Bnode would be wrong, so a merge removes
//! the entry, durably, *before* it unlinks the Bnode.
//!
//! If the pool is full, the index works without a backup, or with an incomplete one.
//!
//! Lock order: Mnodes, then the queue.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, PmPtr, Pool};
use pmindex_fastfair::{FastFair, Root};
use pmindex_index::{IndexError, Key, Shape};
use pmindex_record::Route;

/// Entries that are inserted together.
const BATCH: usize = 64;

/// The tree, by the shape of its keys.
#[derive(Debug)]
enum Tree<M: Medium> {
    /// Keys of one word.
    Words(FastFair<u64, u64, M>),
    /// Other keys, as bytes in the same order.
    Bytes(FastFair<Vec<u8>, u64, M>),
}

/// Entries that are not in the tree yet: low keys and Bnodes.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<(Vec<u8>, u64)>,
    /// The number of entries that the pool had no room for.
    lost: u64,
}

/// The backup.
#[derive(Debug)]
pub(crate) struct Backup<M: Medium = Mapped> {
    tree: Option<Tree<M>>,
    queue: Mutex<Queue>,
    /// The queue's length.
    waiting: AtomicUsize,
}

fn word_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let n = key.len().min(8);
    bytes[..n].copy_from_slice(&key[..n]);
    u64::from_be_bytes(bytes)
}

fn as_bytes(item: Result<(u64, u64), IndexError>) -> Result<(Vec<u8>, u64), IndexError> {
    item.map(|(key, bnode)| (key.to_be_bytes().to_vec(), bnode))
}

impl<M: Medium> Backup<M> {
    /// Opens the backup that `cell` points to; creates it if there is none. Without room for it, the index
    /// has no backup until it is opened again.
    pub(crate) fn open<K: Key>(
        pool: &Arc<Pool<M>>,
        owner: &OpenIndex,
        cell: &PmPtr<Root>,
    ) -> Result<Self, IndexError> {
        let opened = if K::SHAPE == Shape::Inline(1) {
            FastFair::open_within(pool, owner, cell).map(Tree::Words)
        } else {
            FastFair::open_within(pool, owner, cell).map(Tree::Bytes)
        };
        let tree = match opened {
            Ok(tree) => Some(tree),
            Err(IndexError::Pool(error)) if error.is_full() => None,
            Err(error) => return Err(error),
        };
        Ok(Self { tree, queue: Mutex::default(), waiting: AtomicUsize::new(0) })
    }

    /// Returns `true` if the backup is missing because there was no room.
    pub(crate) fn is_missing(&self) -> bool {
        self.tree.is_none()
    }

    /// Queues the entry of a Bnode. After an interrupted merge the tree may have it already.
    pub(crate) fn queue<K: Key>(&self, pm: &M, low: &Route<'_>, bnode: u64) {
        let key = low.encoded::<K>(&mut [0; 32]).to_vec();
        let mut queue = pm.lock(&self.queue);
        if self.tree.is_none() {
            queue.lost += 1;
            return;
        }
        queue.waiting.push((key, bnode));
        self.waiting.store(queue.waiting.len(), Relaxed);
    }

    /// Returns the number of entries that wait.
    #[inline(always)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Moves up to [`BATCH`] entries from the queue to the tree; returns whether any waited.
    pub(crate) fn step(&self, pm: &M) -> bool {
        let mut queue = pm.lock(&self.queue);
        let count = queue.waiting.len().min(BATCH);
        let batch = &queue.waiting[..count];
        let done = match &self.tree {
            None => 0,
            Some(Tree::Words(tree)) => {
                let batch: Vec<_> = batch.iter().map(|(key, b)| (word_of(key), *b)).collect();
                tree.try_insert_many(&batch).inserted.len()
            }
            Some(Tree::Bytes(tree)) => tree.try_insert_many(batch).inserted.len(),
        };
        // Only now: a panic before leaves them in the queue, and the tree may have some of them too.
        queue.waiting.drain(..count);
        self.waiting.store(queue.waiting.len(), Relaxed);
        queue.lost += (count - done) as u64;
        count > 0
    }

    /// Removes the entry of a Bnode, durably when it returns.
    pub(crate) fn remove<K: Key>(&self, pm: &M, low: &Route<'_>) -> Result<(), IndexError> {
        let mut room = [0; 32];
        let key = low.encoded::<K>(&mut room);
        let mut queue = pm.lock(&self.queue);
        let before = queue.waiting.len();
        queue.waiting.retain(|(waiting, _)| waiting != key);
        self.waiting.store(queue.waiting.len(), Relaxed);
        // Queue and tree may have it: see `queue`.
        let waited = queue.waiting.len() < before;
        let removed = match &self.tree {
            None => None,
            Some(Tree::Words(tree)) => tree.remove(&word_of(key))?,
            Some(Tree::Bytes(tree)) => tree.remove(key)?,
        };
        if removed.is_none() && !waited {
            queue.lost = queue.lost.saturating_sub(1);
        }
        Ok(())
    }

    /// Finds the entry with the greatest low key that is at most the route; returns its Bnode.
    pub(crate) fn floor<K: Key>(&self, route: &Route<'_>) -> Result<Option<u64>, IndexError> {
        let mut room = [0; 32];
        let key = route.encoded::<K>(&mut room);
        Ok(match &self.tree {
            None => None,
            Some(Tree::Words(tree)) => {
                tree.range(..=word_of(key)).next_back().transpose()?.map(|(_, bnode)| bnode)
            }
            Some(Tree::Bytes(tree)) => {
                tree.range(..=key.to_vec()).next_back().transpose()?.map(|(_, bnode)| bnode)
            }
        })
    }

    /// Inserts the entries of all Bnodes, by a bulk load if the tree is empty. The mark of the index's
    /// bulk load is cleared, durably.
    pub(crate) fn fill(&self, pm: &M, entries: Vec<(Vec<u8>, u64)>) {
        if entries.is_empty() {
            return;
        }
        let loaded = match &self.tree {
            None => false,
            Some(Tree::Words(tree)) => {
                let mut records = entries.iter().map(|(key, bnode)| (word_of(key), *bnode));
                tree.bulk_load(&mut records).is_ok()
            }
            Some(Tree::Bytes(tree)) => tree.bulk_load(&mut entries.iter().cloned()).is_ok(),
        };
        if loaded {
            return;
        }
        let mut queue = pm.lock(&self.queue);
        queue.waiting.extend(entries);
        drop(queue);
        while self.step(pm) {}
    }

    /// Up to `limit` entries of the tree in order, those after the key.
    pub(crate) fn entries_after(
        &self,
        key: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, u64)>, IndexError> {
        match &self.tree {
            None => Ok(Vec::new()),
            Some(Tree::Words(tree)) => {
                let after = key.map_or(Bound::Unbounded, |key| Bound::Excluded(word_of(key)));
                tree.range((after, Bound::Unbounded)).take(limit).map(as_bytes).collect()
            }
            Some(Tree::Bytes(tree)) => {
                let after = key.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
                tree.range((after, Bound::Unbounded)).take(limit).collect()
            }
        }
    }

    /// Queues those entries that are not among the known ones; both ascend.
    ///
    /// # Errors
    /// [`PmError::Corrupt`]: a known entry, not beyond the last of the others, that is not among them.
    pub(crate) fn confirm(
        &self,
        pm: &M,
        entries: Vec<(Vec<u8>, u64)>,
        known: &[(Vec<u8>, u64)],
    ) -> Result<(), IndexError> {
        let mut known = known.iter().peekable();
        let mut queue = pm.lock(&self.queue);
        for entry in entries {
            match known.peek() {
                Some(&next) if *next == entry => {
                    known.next();
                }
                Some((key, bnode)) if *key <= entry.0 => {
                    let what = "an entry of the backup that names no Bnode";
                    return Err(PmError::Corrupt { what, offset: *bnode }.into());
                }
                _ if self.tree.is_none() => queue.lost += 1,
                _ => queue.waiting.push(entry),
            }
        }
        self.waiting.store(queue.waiting.len(), Relaxed);
        Ok(())
    }

    /// Verifies the tree of a quiescent index against the Bnodes other than the first, given with
    /// their low keys in order: it has an entry of each, except those that wait and those that the pool
    /// had no room for, and no other.
    pub(crate) fn check(&self, pm: &M, bnodes: &[(Vec<u8>, u64)]) -> Result<(), IndexError> {
        let mut known = match &self.tree {
            None => Vec::new(),
            Some(Tree::Words(tree)) => {
                tree.check()?;
                tree.iter().map(as_bytes).collect::<Result<Vec<_>, _>>()?
            }
            Some(Tree::Bytes(tree)) => {
                tree.check()?;
                tree.iter().collect::<Result<Vec<_>, _>>()?
            }
        };
        let queue = pm.lock(&self.queue);
        known.extend(queue.waiting.iter().cloned());
        known.sort_unstable();
        known.dedup();
        let what = "the backup differs from the list of Bnodes";
        let corrupt = |offset| Err(PmError::Corrupt { what, offset }.into());
        for entry in &known {
            if bnodes.binary_search(entry).is_err() {
                return corrupt(entry.1);
            }
        }
        if known.len() as u64 + queue.lost != bnodes.len() as u64 {
            return corrupt(queue.lost);
        }
        Ok(())
    }

    /// Lists its blocks.
    pub(crate) fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        match &self.tree {
            None => Ok(Vec::new()),
            Some(Tree::Words(tree)) => tree.blocks(),
            Some(Tree::Bytes(tree)) => tree.blocks(),
        }
    }

    /// Bytes of PM and of DRAM.
    pub(crate) fn size(&self) -> Result<(u64, u64), IndexError> {
        let stats = match &self.tree {
            None => return Ok((0, 0)),
            Some(Tree::Words(tree)) => tree.stats()?,
            Some(Tree::Bytes(tree)) => tree.stats()?,
        };
        Ok((stats.pm_bytes, stats.dram_bytes))
    }

    /// Inserts all that waits, and closes the tree.
    pub(crate) fn close(self, pm: &M) -> Result<(), IndexError> {
        while self.step(pm) {}
        match self.tree {
            None => Ok(()),
            Some(Tree::Words(tree)) => tree.close(),
            Some(Tree::Bytes(tree)) => tree.close(),
        }
    }
}
