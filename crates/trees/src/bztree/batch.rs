//! Operations on many keys.
//!
//! Both operations descend with up to 64 keys at once, level by level, so that their cache misses overlap.
//! `try_insert_many` also shares fences: one operation shows the records of up to [`GROUP`] keys in any leaves,
//! so each group costs two fences. Full leaves are replaced before, since a record that cannot join (its leaf has
//! no room, or has changed) is inserted alone, after those before it.

use pmindex_core::{LINE, Medium, PPtr, PmError, Word};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_pmwcas::Session;
use pmindex_record::{EncodedValue, Probe, bits};

use super::inner::Target;
use super::layout::{Entry, Geometry, MAX_LEVEL, NOTHING, Place, Ptr, Status};
use super::leaf::{Leaf, corrupt};
use super::record::{RawRef, Record};
use super::tree::{BzTree, pool_error};
use super::write::Want;

/// The number of keys that descend together.
const BATCH: usize = 64;
/// The number of records that one operation shows: two words each.
const GROUP: usize = 16;

/// A leaf with staged records.
struct Staged<'t, K, V, const LEAF: usize, const INNER: usize> {
    leaf: Leaf<'t, K, V, LEAF, INNER>,
    from: Status,
    to: Status,
}

/// Records that one operation will show.
struct Group<'t, K, V, const LEAF: usize, const INNER: usize> {
    leaves: Vec<Staged<'t, K, V, LEAF, INNER>>,
    /// The leaf (its position in `leaves`), the entry, its old and new words.
    entries: Vec<(usize, usize, u64, u64)>,
    /// The positions of the staged records in the batch.
    staged: Vec<usize>,
    results: Vec<bool>,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Returns the leaves of up to [`BATCH`] keys, and prefetches their headers.
    #[inline(always)]
    fn locate_many(&self, probes: &[Probe<'_, K>], ways: &mut [Ptr; BATCH]) -> Result<(), PmError> {
        let root = Ptr::of(self.mwcas.read(self.anchor()?)?);
        if root.level() > MAX_LEVEL {
            return Err(corrupt("the root's level", root.offset()));
        }
        let ways = &mut ways[..probes.len()];
        ways.fill(root);
        let mut indexes = [0usize; BATCH];
        for level in (0..root.level()).rev() {
            for ((way, probe), index) in ways.iter().zip(probes).zip(&mut indexes) {
                let inner = self.inner(*way)?;
                *index = inner.route(self.pm(), &Target::Key(RawRef::of(probe)))?;
                self.pm().prefetch(inner.child_cell(*index));
            }
            for (way, index) in ways.iter_mut().zip(indexes) {
                *way = self.inner(*way)?.child(&self.mwcas, index)?;
                if level == 0 {
                    self.prefetch_header(*way);
                } else {
                    for line in 1..=(8 * INNER).div_ceil(LINE) {
                        let at = way.offset() + (line * LINE) as u64;
                        self.pool.prefetch(PPtr::<u64>::new(at));
                    }
                }
            }
        }
        Ok(())
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
        let mut probes = Vec::with_capacity(BATCH.min(keys.len()));
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            probes.clear();
            for key in keys {
                probes.push(Probe::<K>::new(key.borrowed())?);
            }
            self.optimistic(|| {
                let mut ways = [Ptr::NULL; BATCH];
                self.locate_many(&probes, &mut ways)?;
                for (way, probe) in ways.iter().zip(&probes) {
                    self.prefetch_record(*way, probe)?;
                }
                for ((way, probe), out) in ways.iter().zip(&probes).zip(out.iter_mut()) {
                    let leaf = self.leaf(*way)?;
                    let status = leaf.status(&self.mwcas)?;
                    *out = match leaf.find(&self.mwcas, status, probe)? {
                        Some(found) => Some(found.record.value(&self.mwcas)?),
                        None => None,
                    };
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Prefetches the line of the sorted record that the fingerprints suggest.
    #[inline(always)]
    fn prefetch_record(&self, way: Ptr, probe: &Probe<'_, K>) -> Result<(), PmError> {
        let leaf = self.leaf(way)?;
        if let Some(number) = bits(leaf.candidates(self.pm(), probe)).next() {
            let at = way.offset() + 8 * leaf.place(self.pm(), number).at as u64;
            self.pool.prefetch(PPtr::<u64>::new(at));
        }
        Ok(())
    }

    /// Adds many records whose keys are new, up to 16 with two fences; nothing is visible before its fence.
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

    /// Inserts up to [`BATCH`] records; those with a result in `inserted` are durable, also after an error.
    fn insert_chunk(&self, records: &[(K, V)], inserted: &mut Vec<bool>) -> Result<(), IndexError> {
        self.pool.check_writable()?;
        let _busy = self.count.begin();
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
        let mut session = self.mwcas.session()?;
        let mut ways = [Ptr::NULL; BATCH];
        self.locate_many(&probes, &mut ways)?;
        self.make_room(&mut session, &probes, &mut ways)?;
        let mut next = 0;
        while next < probes.len() {
            let mut group = Group {
                leaves: Vec::with_capacity(GROUP),
                entries: Vec::with_capacity(GROUP),
                staged: Vec::with_capacity(GROUP),
                results: Vec::with_capacity(GROUP),
            };
            let first = next;
            while next < probes.len() && group.entries.len() < GROUP {
                if !self.stage(&mut group, &probes, &data[next], next, &mut ways)? {
                    break;
                }
                next += 1;
            }
            if !self.show(&mut session, &mut group)? {
                // Another thread changed one of the leaves: insert the records one by one.
                group.results.clear();
                next = first;
            }
            inserted.append(&mut group.results);
            if let Some(probe) = probes.get(next)
                && group.entries.len() < GROUP
            {
                let record = Self::incoming(probe, &data[next]);
                let put = self.put_with(&mut session, &record, Want::Insert, &|_| Ok(()));
                if matches!(&put, Err(IndexError::Pool(error)) if error.is_full()) {
                    drop(session);
                    let put = self.with_session(|session| {
                        self.put_with(session, &record, Want::Insert, &|_| Ok(()))
                    })?;
                    inserted.push(put.is_none());
                    session = self.mwcas.session()?;
                } else {
                    inserted.push(put?.is_none());
                }
                next += 1;
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Replaces the full leaves of a batch, so that they break no group, and prefetches the places of records in the
    /// others. A full pool is reported when a record has no room.
    fn make_room(
        &self,
        session: &mut Session<'_, M>,
        probes: &[Probe<'_, K>],
        ways: &mut [Ptr; BATCH],
    ) -> Result<(), IndexError> {
        let most = Geometry::<K, V, LEAF, INNER>::LATER;
        for (probe, way) in probes.iter().zip(ways) {
            let mut leaf = self.leaf(*way)?;
            let mut status = leaf.status(&self.mwcas)?;
            if status.used() == most {
                let target = Target::Key(RawRef::of(probe));
                match self.restructure_at(session, &target, *way) {
                    Err(IndexError::Pool(error)) if error.is_full() => {}
                    result => result?,
                }
                *way = self.leaf_of(&target)?;
                leaf = self.leaf(*way)?;
                status = leaf.status(&self.mwcas)?;
            }
            leaf.prefetch_room(self.pm(), status);
        }
        Ok(())
    }

    /// Stages record `number` of the batch, or finds its key. Returns `false` if it cannot join.
    #[inline(always)]
    fn stage<'t>(
        &'t self,
        group: &mut Group<'t, K, V, LEAF, INNER>,
        probes: &[Probe<'_, K>],
        datum: &EncodedValue<'_, V>,
        number: usize,
        ways: &mut [Ptr; BATCH],
    ) -> Result<bool, PmError> {
        let probe = &probes[number];
        let record = Self::incoming(probe, datum);
        if record.form.out {
            return Ok(false);
        }
        let mut leaf = self.leaf(ways[number])?;
        let mut status = leaf.status(&self.mwcas)?;
        if status.is_frozen() {
            ways[number] = self.path_to(RawRef::of(probe))?.leaf;
            leaf = self.leaf(ways[number])?;
            status = leaf.status(&self.mwcas)?;
        }
        let known = group.leaves.iter().position(|staged| staged.leaf.ptr == leaf.ptr);
        let moved = known.is_some_and(|known| group.leaves[known].from != status);
        if status.is_frozen() || moved {
            return Ok(false);
        }
        // Equal keys are in one leaf.
        let staged = known.is_some()
            && group.staged.iter().any(|&other| probes[other].compare(probe).is_eq());
        if staged || leaf.find(&self.mwcas, status, probe)?.is_some() {
            group.results.push(false);
            return Ok(true);
        }
        let words = record.form.words;
        let Some(room) = self.reserve(&leaf, status, words)? else {
            return Ok(false);
        };
        let cells = &leaf.words[room.at..room.at + words];
        Record::fill(self.pm(), cells, record.form, (probe, datum));
        let place = Place { at: room.at, ..record.form };
        let entry = Entry::visible(place, probe.fingerprint(), NOTHING).word();
        let known = known.unwrap_or_else(|| {
            group.leaves.push(Staged { leaf, from: status, to: status });
            group.leaves.len() - 1
        });
        let staged = &mut group.leaves[known];
        staged.to = staged.to.changed(room.entry + 1, (1, words), (0, 0));
        group.entries.push((known, room.entry, room.word, entry));
        group.staged.push(number);
        group.results.push(true);
        Ok(true)
    }

    /// Shows all staged records or none.
    fn show(
        &self,
        session: &mut Session<'_, M>,
        group: &mut Group<'_, K, V, LEAF, INNER>,
    ) -> Result<bool, PmError> {
        if group.entries.is_empty() {
            return Ok(true);
        }
        // In the order of the operation's words: by leaf, the status first.
        let Group { leaves, entries, .. } = group;
        entries.sort_unstable_by_key(|&(leaf, entry, ..)| (leaves[leaf].leaf.offset(), entry));
        let mut op = session.descriptor();
        let mut last = usize::MAX;
        let alone = entries.len() == 1;
        for &(number, entry, from, to) in entries.iter() {
            let staged = &leaves[number];
            let Place { at, words, .. } = Entry::of(to).place();
            let record = &staged.leaf.words[at..at + words];
            if number != last {
                let (from, to) = (staged.from.into_word(), staged.to.into_word());
                op.add_word(staged.leaf.status_cell(), from, to).map_err(pool_error)?;
                last = number;
            }
            // durable before: P2
            let cell = staged.leaf.entry_cell(entry);
            if alone {
                op.show(cell, from, to, record).map_err(pool_error)?;
            } else {
                op.flush_first(record);
                op.add_covered_word(cell, from, to).map_err(pool_error)?;
            }
        }
        let shown = op.execute().map_err(pool_error)?;
        if shown {
            self.count.add(group.entries.len() as u64);
        }
        Ok(shown)
    }
}
