//! Many keys at a time.
//!
//! Both operations send up to 64 keys down together, so that their cache misses overlap.
//! `try_insert_many` also shares its fences: it stages records in input order, under as many key locks as
//! that takes, then makes all of them durable at once and commits them at once:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | all objects, if there are any | P2 |
//! | P2 | the records, and on each line its bits (LIN of each: its place in the tree) | return (DUR) |
//!
//! A stage ends early at a record that cannot join it (its key's lock is taken or has changed): what
//! is staged is committed, the record goes in alone, and the next stage begins after it. So results
//! are those of single inserts in input order, and the first error stops the batch at its record.

use parking_lot::MutexGuard;
use pmindex_art::{Place, Search};
use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, PmError, PmU64, Rmw, words_of};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{EncodedValue, Probe};

use crate::epalloc::Hand;
use crate::layout::SlotRef;
use crate::record::KeyBytes;
use crate::tree::Hart;
use crate::write::{Incoming, Pending};

/// The number of keys that are searched for together.
const BATCH: usize = 64;

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// The places that a search for each key finds, their records on their way.
    #[inline(always)]
    fn locate_many<'t, 'k>(
        &'t self,
        keys: impl Iterator<Item = &'k KeyBytes<'k>>,
        places: &mut Vec<Option<Place<'t>>>,
    ) {
        let searches: Vec<Search<'t, '_>> = keys
            .map(|key| {
                let home = Self::home(key.bytes());
                Search { root: self.directory.root(home.entry), key: home.rest }
            })
            .collect();
        let prefetch = |leaf| self.records.prefetch(SlotRef::from_number(leaf));
        self.nodes.find_many(self.pm(), &searches, places, prefetch);
    }

    /// Looks up many keys with overlapping cache misses; `out[i]` is the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.get_many_inner(keys, out).noted(&self.pool)
    }

    fn get_many_inner(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        let mut places = Vec::with_capacity(BATCH.min(keys.len()));
        let mut probes = Vec::with_capacity(BATCH.min(keys.len()));
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            probes.clear();
            for key in keys {
                probes.push(Probe::<K>::new(key.borrowed())?);
            }
            let bytes: Vec<KeyBytes<'_>> = probes.iter().map(KeyBytes::of).collect();
            self.locate_many(bytes.iter(), &mut places);
            for ((probe, place), out) in probes.iter().zip(&places).zip(out) {
                *out = match place.as_ref().map(|place| self.read_candidate(place, probe)) {
                    None => None,
                    Some(Some(Ok(Some(value)))) => Some(value),
                    Some(_) => self.get_probe(probe)?, // which says why there is none
                };
            }
        }
        Ok(())
    }

    /// Adds many records whose keys are new, with one fence per phase for all; nothing is visible before its fence.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.insert_many_inner(records).noted(&self.pool)
    }

    fn insert_many_inner(&self, records: &[(K, V)]) -> InsertMany {
        let mut result = InsertMany::default();
        result.inserted.reserve(records.len());
        for records in records.chunks(BATCH) {
            if let Err(error) = self.insert_chunk(records, &mut result.inserted) {
                result.stopped = Some(error);
                break;
            }
        }
        result
    }

    /// Inserts up to [`BATCH`] records; what was pushed to `inserted` is durable, error or not.
    fn insert_chunk(&self, records: &[(K, V)], inserted: &mut Vec<bool>) -> Result<(), IndexError> {
        self.pool.check_writable()?;
        let mut probes = Vec::with_capacity(records.len());
        let mut data = Vec::with_capacity(records.len());
        let mut refused = None;
        for (key, value) in records {
            match (Probe::<K>::new(key.borrowed()), EncodedValue::<V>::new(value.borrowed())) {
                (Ok(probe), Ok(datum)) => {
                    probes.push(probe);
                    data.push(datum);
                }
                (Err(error), _) | (_, Err(error)) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let keys: Vec<KeyBytes<'_>> = probes.iter().map(KeyBytes::of).collect();
        let incoming: Vec<Incoming<'_, K, V>> = (probes.iter().zip(&keys).zip(&data))
            .map(|((probe, key), datum)| Incoming { probe, key, datum })
            .collect();
        let mut next = 0;
        while next < incoming.len() {
            next += self.insert_stage(&incoming[next..], inserted)?;
            if let Some((key, value)) = records[..incoming.len()].get(next) {
                inserted.push(self.try_insert(key.borrowed(), value.borrowed())?.is_ok());
                next += 1;
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Inserts the first records together, as many as join; returns how many.
    fn insert_stage(
        &self,
        incoming: &[Incoming<'_, K, V>],
        inserted: &mut Vec<bool>,
    ) -> Result<usize, IndexError> {
        let pm = self.pm();
        // Versions before the search: what it finds is still so if a version becomes the lock.
        let versions: Vec<u64> =
            incoming.iter().map(|r| self.lock_of(r.probe.hash()).begin_read(pm)).collect();
        let mut places = Vec::with_capacity(incoming.len());
        self.locate_many(incoming.iter().map(|record| record.key), &mut places);
        self.pm().keep_stores(); // what is done is done
        let mut stage = Stage::new(self);
        let mut results = Vec::with_capacity(incoming.len());
        for ((record, place), version) in incoming.iter().zip(&places).zip(versions) {
            let Some(new) = stage.add(record, place.as_ref(), version) else { break };
            results.push(new);
        }
        let before = inserted.len();
        stage.commit(&mut results, inserted)?;
        Ok(inserted.len() - before)
    }
}

/// A record that has a slot, and is written when the stage is committed.
struct Staged<'t, 'r, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    // Dropped before the lock.
    pending: Pending<'t, K, V, M, CHUNK, PREFIX>,
    record: &'r Incoming<'r, K, V>,
    /// Its place among the results.
    at: usize,
    version: u64,
    /// The lock, unless an earlier record of this stage has it.
    guard: Option<VersionGuard<'t>>,
}

/// Records that are inserted together.
///
/// Key locks are only tried, so in any order: a stage that cannot have one ends, and unlocks the others.
struct Stage<'t, 'r, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize> {
    tree: &'t Hart<K, V, M, CHUNK, PREFIX>,
    hand: Option<MutexGuard<'t, Hand>>,
    // In order: of two records that share a lock the first one has it.
    records: Vec<Staged<'t, 'r, K, V, M, CHUNK, PREFIX>>,
    added: usize,
}

impl<'t, 'r, K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Stage<'t, 'r, K, V, M, CHUNK, PREFIX>
{
    fn new(tree: &'t Hart<K, V, M, CHUNK, PREFIX>) -> Self {
        Self { tree, hand: None, records: Vec::new(), added: 0 }
    }

    /// Stages a record: whether its key is new; `None` if it cannot join.
    fn add(
        &mut self,
        record: &'r Incoming<'r, K, V>,
        place: Option<&Place<'t>>,
        version: u64,
    ) -> Option<bool> {
        let (tree, pm) = (self.tree, self.tree.pm());
        if let Some(place) = place {
            let same = tree.records.key_is(SlotRef::from_number(place.leaf), record.probe);
            if !place.validate(pm) {
                return None;
            }
            if same.ok()? {
                tree.await_load(); // which holds all key locks, so this stage has none if it waits
                self.added += 1;
                return Some(false);
            }
        }
        let lock = tree.lock_of(record.probe.hash());
        let guard = lock.try_upgrade(pm, version);
        if guard.is_none() {
            // Perhaps it is this stage that holds the lock, since this very version.
            let holds = |s: &Staged<'_, '_, K, V, M, CHUNK, PREFIX>| {
                s.version == version && s.guard.as_ref().is_some_and(|g| g.is_of(lock))
            };
            if !self.records.iter().any(holds) {
                return None;
            }
            if self.records.iter().any(|s| s.record.key.bytes() == record.key.bytes()) {
                self.added += 1;
                return Some(false);
            }
        }
        self.take(record, guard, version)?;
        self.added += 1;
        Some(true)
    }

    /// Takes a slot for a record. What cannot have one goes in alone, and says why.
    fn take(
        &mut self,
        record: &'r Incoming<'r, K, V>,
        guard: Option<VersionGuard<'t>>,
        version: u64,
    ) -> Option<()> {
        let tree = self.tree;
        let hand = self.hand.get_or_insert_with(|| tree.chunks.hand(tree.pm()));
        let pending = Pending::take(tree, tree.root().ok()?, hand).ok()?;
        self.records.push(Staged { pending, record, at: self.added, version, guard });
        Some(())
    }

    /// Writes all records, then flushes their objects: behind the search, so that the lines of all of
    /// them are there together. The first one that cannot be written ends the stage before it, goes in
    /// alone, and says why.
    fn write_all(&mut self, results: &mut Vec<bool>) -> Result<Option<Flushed>, PmError> {
        for i in 0..self.records.len() {
            let staged = &mut self.records[i];
            if staged.pending.write(staged.record).is_err() {
                results.truncate(staged.at);
                self.records.truncate(i);
                break;
            }
        }
        let mut written: Vec<&[PmU64]> = Vec::new();
        for staged in &self.records {
            let objects = staged.pending.words_of_objects(staged.record)?;
            written.extend(objects.into_iter().filter(|words| !words.is_empty()));
        }
        if written.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.tree.pm().flush_together(&mut written)))
    }

    /// Writes the staged records, makes them durable (end of P1, and P2), then visible. Appends `results` to
    /// `inserted` as far as that succeeds.
    fn commit(mut self, results: &mut Vec<bool>, inserted: &mut Vec<bool>) -> Result<(), PmError> {
        let pm = self.tree.pm();
        if !self.records.is_empty() {
            if let Some(flushed) = self.write_all(results)? {
                pm.fence(flushed)?;
            }
            let committed = self.commit_bits()?;
            pm.fence(committed)?; // DUR
        }
        self.hand = None;
        let mut guards = Vec::with_capacity(self.records.len());
        let mut failed = None;
        // A lock outlives the records that share it.
        for Staged { pending, record, at, guard, .. } in self.records {
            guards.push(guard);
            if failed.is_none()
                && let Err(error) = pending.link(record, None)
            {
                failed = Some((at, error));
            } // else dropped: taken back
        }
        drop(guards);
        if let Some((at, _)) = failed {
            results.truncate(at);
        }
        inserted.append(results);
        failed.map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Step P2: one change of the commit word for all records of a line. First all changes, then all
    /// flushes: a locked instruction waits for every flush before it.
    #[track_caller]
    fn commit_bits(&mut self) -> Result<Flushed, PmError> {
        let line = |staged: &Staged<'t, 'r, K, V, M, CHUNK, PREFIX>| staged.pending.slot.line();
        for part in self.records.chunk_by_mut(|a, b| line(a) == line(b)) {
            let mut bits = 0;
            for staged in &mut *part {
                staged.pending.live = true;
                bits |= Hart::<K, V, M, CHUNK, PREFIX>::bit_of(staged.pending.slot);
            }
            self.tree.change_bits(part[0].pending.slot, Rmw::Or(bits))?;
        }
        // Each line once: a slot that was returned to the hand may be on the line of an earlier record.
        let mut cells: Vec<&[PmU64]> = Vec::new();
        for part in self.records.chunk_by(|a, b| line(a) == line(b)) {
            cells.push(words_of(self.tree.line_cell(part[0].pending.slot)?));
        }
        Ok(self.tree.pm().flush_together(&mut cells))
    }
}
