//! Filling an empty index from sorted records, all or nothing.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the root's `bulk_load` mark | P2 |
//! | P2 | chunks, objects, records and their bits, a line at a time | P3 |
//! | P3 | the mark is cleared (LIN: the last tree, after it) | return (DUR) |
//!
//! While the mark stands no chunk is in the index: recovery gives all of them back, and a load that
//! fails takes back what it has made. All key locks are held throughout, and the trees are built
//! aside, so no other thread sees them before P3.
//!
//! The trees are shown one after another, under all key locks and [`loads`](Hart::loads). Whoever finds a record
//! waits for one of these before it says so; whoever finds none may come before the load. A scan, which
//! reads several trees, reads again if `loads` has changed.

use pmindex_art::{Builder, Built};
use pmindex_core::sync::{VersionGuard, VersionLock};
use pmindex_core::{Flushed, Medium, PmError, Pool, Rmw};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::{EncodedValue, Probe};

use crate::epalloc::{Hand, free_chunk, free_segments};
use crate::layout::{PLACES, Root, SlotRef};
use crate::record::KeyBytes;
use crate::recover::read_table;
use crate::sorted::{Entry, Item};
use crate::tree::Hart;
use crate::write::{Incoming, Pending};

/// Sets or clears the mark, durably.
#[track_caller]
fn mark<M: Medium>(pool: &Pool<M>, root: &Root, mark: u64) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store(&root.bulk_load, mark);
    pm.persist(&root.bulk_load)?;
    Ok(())
}

/// Discards what an unfinished load left, if there is any; returns whether. Idempotent, and may be
/// interrupted.
pub(crate) fn discard_unfinished<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<u64, PmError> {
    if pool.pm().load(&root.bulk_load) == 0 {
        return Ok(0);
    }
    let table = read_table(pool, root)?;
    for (number, chunk) in table.places.iter().enumerate() {
        if !chunk.is_null() {
            let segment = pool.get(table.segments[number / PLACES as usize])?;
            free_chunk(pool, &segment.chunks[number % PLACES as usize])?;
        }
    }
    free_segments(pool, root, &table.segments, 0)?;
    // Durable before the first chunk, without a flush: a chunk needs a segment, there is none any
    // more, and the pointer to the first one is on the mark's line.
    pool.pm().store(&root.bulk_load, 0);
    Ok(1)
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Fills an empty index from strictly ascending records; returns how many.
    ///
    /// Writers of other threads wait until it returns.
    ///
    /// # Panics
    /// If `records` waits for this index, which waits for it: the index stays as it was.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`], a record too long, the pool's; the index
    /// stays as it was.
    pub fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        self.bulk_load_inner(records).noted(&self.pool)
    }

    fn bulk_load_inner(
        &self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        self.pool.check_writable()?;
        if self.len()? > 0 {
            return Err(IndexError::NotEmpty);
        }
        let guards: Vec<VersionGuard<'_>> =
            self.locks.all().iter().map(|l| l.lock(self.pm())).collect();
        if self.len()? > 0 {
            return Err(IndexError::NotEmpty);
        }
        let root = self.root()?;
        mark(&self.pool, root, 1)?; // P1
        let mut load = Load::new(self, root);
        let lent = VersionLock::lend(self.locks.all());
        load.run(records)?;
        drop(lent);
        let loaded = load.finish()?;
        drop(guards);
        Ok(loaded)
    }
}

/// A load in progress. Dropping it unfinished takes everything back.
struct Load<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    root: &'t Root,
    hand: Option<parking_lot::MutexGuard<'t, Hand>>,
    flushed: Flushed,
    /// The line in progress: a record on it, and the bits of its records, not yet set.
    line: Option<(SlotRef, u64)>,
    /// Records of the entry in progress, and the trees of those before.
    items: Vec<Item>,
    entry: usize,
    builder: Builder<'t>,
    built: Vec<(usize, Built)>,
    last: Option<K>,
    loaded: u64,
    finished: bool,
}

impl<'t, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Load<'t, K, V, M, CHUNK, PREFIX>
{
    fn new(tree: &'t Hart<K, V, M, CHUNK, PREFIX>, root: &'t Root) -> Self {
        Self {
            tree,
            root,
            hand: Some(tree.chunks.hand(tree.pm())),
            flushed: Flushed::nothing(),
            line: None,
            items: Vec::new(),
            entry: 0,
            builder: tree.nodes.builder(),
            built: Vec::new(),
            last: None,
            loaded: 0,
            finished: false,
        }
    }

    /// Step P2.
    fn run(&mut self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<(), IndexError> {
        for (key, value) in records {
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                return Err(IndexError::NotSorted { at: self.loaded });
            }
            self.add(&key, &value)?;
            self.last = Some(key);
            self.loaded += 1;
        }
        self.commit_line()?;
        Ok(self.build_entry()?)
    }

    fn add(&mut self, key: &K, value: &V) -> Result<(), IndexError> {
        let tree = self.tree;
        let (probe, datum) = (Probe::new(key.borrowed())?, EncodedValue::new(value.borrowed())?);
        let bytes = KeyBytes::of(&probe);
        let hand = self.hand.get_or_insert_with(|| tree.chunks.hand(tree.pm()));
        let mut pending = Pending::take(tree, self.root, hand)?;
        let record = Incoming { probe: &probe, key: &bytes, datum: &datum };
        pending.write(&record)?;
        let objects = pending.flush_objects(&record)?;
        let slot = pending.keep(); // all or none are taken back
        if let Some(written) = objects {
            self.flushed(written);
        }
        let bit = Hart::<K, V, M, CHUNK, PREFIX>::bit_of(slot);
        match &mut self.line {
            Some((first, bits)) if first.line() == slot.line() => *bits |= bit,
            _ => {
                self.commit_line()?;
                self.line = Some((slot, bit));
            }
        }
        let entry = Hart::<K, V, M, CHUNK, PREFIX>::home(bytes.bytes()).entry;
        if entry != self.entry {
            self.build_entry()?;
            self.entry = entry;
        }
        let mut first = [0; 8];
        let len = bytes.bytes().len().min(8);
        first[..len].copy_from_slice(&bytes.bytes()[..len]);
        self.items.push(Item { first, slot });
        Ok(())
    }

    /// Notes what is flushed, and durable before P3.
    fn flushed(&mut self, now: Flushed) {
        let before = std::mem::replace(&mut self.flushed, Flushed::nothing());
        self.flushed = before.and(now);
    }

    /// Sets the bits of the line in progress, and flushes it.
    fn commit_line(&mut self) -> Result<(), PmError> {
        if let Some((slot, bits)) = self.line.take() {
            let line = self.tree.change_live(slot, Rmw::Or(bits))?;
            self.flushed(line);
            // No other thread sees it before P3, and until then the mark discards it.
            self.tree.pm().keep_stores();
        }
        Ok(())
    }

    /// Builds the tree of an entry, aside.
    fn build_entry(&mut self) -> Result<(), PmError> {
        if !self.items.is_empty() {
            let tree = self.tree;
            let built = self.builder.build(&Entry::new(&tree.records, &self.items)?)?;
            self.built.push((self.entry, built));
            self.items.clear();
        }
        Ok(())
    }

    /// Step P3.
    fn finish(mut self) -> Result<u64, IndexError> {
        let (tree, pm) = (self.tree, self.tree.pm());
        let flushed = std::mem::replace(&mut self.flushed, Flushed::nothing());
        pm.fence(flushed)?;
        self.finished = true; // what follows decides
        if let Err(lost) = mark(&tree.pool, self.root, 0) {
            self.finished = false; // the mark stands
            return Err(lost.into());
        } // DUR
        let shown = tree.loads.lock(pm);
        for (entry, built) in self.built.drain(..) {
            tree.directory.mark(entry);
            tree.nodes.install(pm, tree.directory.root(entry), &built); // LIN: the last one
        }
        tree.count(0, self.loaded);
        drop(shown);
        Ok(self.loaded)
    }

    /// Takes everything back: the index was empty, so every chunk there is was made for it.
    fn take_back(&mut self) -> Result<(), PmError> {
        let tree = self.tree;
        self.hand = None;
        for (_, built) in self.built.drain(..) {
            tree.nodes.forget(&built);
        }
        // Writers are kept out, but the last one may still empty a chunk.
        let _alone = tree.chunks.empty_none(tree.pm());
        discard_unfinished(&tree.pool, self.root)?;
        tree.chunks.forget_all(tree.pm());
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> Drop
    for Load<'_, K, V, M, CHUNK, PREFIX>
{
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, the mark stands and the next opening discards.
            let pool = &*self.tree.pool;
            let _ = pool.roll_back(|| self.take_back());
        }
    }
}
