//! Many keys at a time.
//!
//! Both operations search for up to 64 keys together, level by level, so that their cache misses
//! overlap. `try_insert_many` also shares its fences: it stages records in input order, each in its own
//! Bnode, under as many Mnodes' locks as it takes, then writes all of them, makes them durable with one
//! fence and commits them with another. All locks come before the first write-back, since an atomic
//! instruction waits for write-backs:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P0 | Bnodes without room split, each by itself | |
//! | P1 | all slots and tags (and blocks, with their tickets) | P2 |
//! | P2 | all bitmaps (LIN: the unlocks after it) | return (DUR) |
//!
//! A stage ends early at a record that cannot join it (its Bnode is full now or has changed): what is
//! staged is committed, the record goes in alone, and the next stage begins after it. So results
//! are those of single inserts in input order, and the first error stops the batch at its record.

use std::cmp::Ordering;

use pmindex_core::sync::VersionGuard;
use pmindex_core::{Flushed, Medium, Op, PmError};
use pmindex_index::{IndexError, InsertMany, Key, Noted, Value};
use pmindex_record::{EncodedValue, Probe, Route, Slot, bits};

use crate::access::HOPS;
use crate::buffer::{Group, WriteBuffers};
use crate::layout::{BnodePtr, Taken, tag_of};
use crate::leaf::{Bnode, Incoming, finish};
use crate::leaves::{At, Held};
use crate::middle::Mnode;
use crate::tag_guard::TagGuard;
use crate::tree::SpTree;

/// Keys that are searched for together.
pub(crate) const BATCH: usize = 64;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Looks up many keys with overlapping cache misses; stores the value of `keys[i]` in `out[i]`.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        self.get_many_inner(keys, out).noted(&self.pool)
    }

    fn get_many_inner(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        if !self.is_ready() {
            for (key, out) in keys.iter().zip(out) {
                *out = self.get(key.borrowed())?;
            }
            return Ok(());
        }
        let mut probes = Vec::with_capacity(BATCH.min(keys.len()));
        let mut located = [self.not_located(); BATCH];
        let mut candidates = [0u64; BATCH];
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            probes.clear();
            for key in keys {
                probes.push(Probe::<K>::new(key.borrowed())?);
            }
            self.locate_many(&probes, &mut located);
            for ((probe, at), candidates) in probes.iter().zip(&located).zip(&mut candidates) {
                *candidates = self.match_and_prefetch(at, probe);
            }
            for (i, out) in out.iter_mut().enumerate() {
                *out = match self.read_candidate(&located[i], &probes[i], candidates[i]) {
                    Some(found) => found?,
                    None => self.get(keys[i].borrowed())?,
                };
            }
        }
        Ok(())
    }

    /// No Mnode yet.
    fn not_located(&self) -> At<'_> {
        At { index: self.head, node: self.leaves.middle.get(self.head), version: 1, bnode: 0 }
    }

    /// Finds the Mnodes of up to [`BATCH`] keys, each at a version.
    #[inline(always)]
    fn locate_many<'t>(&'t self, probes: &[Probe<'_, K>], located: &mut [At<'t>; BATCH]) {
        let mut rooms = [[0; 32]; BATCH];
        let mut near = [self.head; BATCH];
        let routes: Vec<Route<'_>> = probes.iter().map(Route::to).collect();
        let keys = routes.iter().zip(&mut rooms).map(|(route, room)| route.encoded::<K>(room));
        let keys: Vec<&[u8]> = keys.collect();
        // The keys that the guide does not know.
        let mut unknown = Vec::with_capacity(probes.len());
        for (at, route) in routes.iter().enumerate() {
            match self.guide.hint(route.prefix) {
                Some(index) => {
                    near[at] = index;
                    self.prefetch_mnode(index);
                }
                None => unknown.push(at),
            }
        }
        let sought = unknown.iter().map(|&at| keys[at]);
        self.top.near_many(self.pm(), &self.leaves.middle, sought, |at, index| {
            let at = unknown[at];
            near[at] = index.unwrap_or(self.head);
            self.prefetch_mnode(near[at]);
        });
        let mut unknown = unknown.into_iter().peekable();
        for (i, ((route, near), at)) in routes.iter().zip(near).zip(located).enumerate() {
            let guided = unknown.next_if_eq(&i).is_none();
            *at = match self.walk_to(near, route, if guided { HOPS } else { usize::MAX }) {
                Some(found) => {
                    if !guided {
                        self.guide.correct(route.prefix, found.index);
                    }
                    found
                }
                None => self.locate_from_top(route),
            };
        }
    }

    /// Returns the slots whose tags match, and fetches the first one's line.
    #[inline(always)]
    fn match_and_prefetch(&self, at: &At<'_>, probe: &Probe<'_, K>) -> u64 {
        if let Some(buffers) = self.buffers() {
            buffers.prefetch(&self.leaves, at.node);
        }
        let candidates = self.leaves.middle.matches(at.node, tag_of(probe), LEAF);
        if let Some(slot) = bits(candidates).next() {
            self.leaves.prefetch_slot(at.bnode, slot);
        }
        candidates
    }

    /// Returns the value, if one of the candidates has the key; `None` if the leaf has changed.
    #[inline(always)]
    fn read_candidate(
        &self,
        at: &At<'_>,
        probe: &Probe<'_, K>,
        candidates: u64,
    ) -> Option<Result<Option<V>, PmError>> {
        if at.bnode == 0 {
            return None;
        }
        let read = || -> Result<Option<V>, PmError> {
            if let Some(found) = self.buffered(at.node, probe) {
                return Ok(found);
            }
            if candidates == 0 {
                return Ok(None);
            }
            let bnode = self.leaves.bnode(at.bnode)?;
            match bnode.find_among(&self.pool, candidates, probe)? {
                Some(slot) => Slot::<K, V>::value(&self.pool, bnode.slot(slot)).map(Some),
                None => Ok(None),
            }
        };
        let found = read();
        at.validate(self.pm()).then_some(found)
    }

    /// Locates again the keys from `next` on whose leaves have changed, mostly by this batch.
    pub(crate) fn locate_changed<'t>(
        &'t self,
        probes: &[Probe<'_, K>],
        located: &mut [At<'t>; BATCH],
        next: usize,
    ) {
        for (probe, at) in probes.iter().zip(located).skip(next) {
            if !at.validate(self.pm()) {
                *at = self.locate(&Route::to(probe));
            }
        }
    }

    /// Splits the full Bnodes of keys that seem to be new (step P0). What fails or is missed here is done
    /// record by record.
    fn make_room<'t>(&'t self, probes: &[Probe<'_, K>], located: &mut [At<'t>; BATCH]) {
        let (pm, middle) = (self.pm(), &self.leaves.middle);
        let mut split = false;
        for (probe, at) in probes.iter().zip(&*located).filter(|(_, at)| at.bnode != 0) {
            let taken = self.leaves.taken(at.node);
            if taken.len() < LEAF || middle.matches(at.node, tag_of(probe), LEAF) != 0 {
                continue;
            }
            let Ok(bnode) = self.leaves.bnode(at.bnode) else { continue };
            let Some(guard) = at.node.lock.try_upgrade(pm, at.version) else { continue };
            split = true;
            let held =
                Held { index: at.index, node: at.node, bnode, taken, slot: None, hit: None, guard };
            if self.split(held, Some(probe)).is_err() {
                break;
            }
        }
        if split {
            self.locate_changed(probes, located, 0);
        }
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
        self.make_ready()?;
        let mut probes = Vec::with_capacity(records.len());
        let mut refused = None;
        for (key, _) in records {
            match Probe::<K>::new(key.borrowed()) {
                Ok(probe) => probes.push(probe),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        self.maintain_buffers();
        let mut located = [self.not_located(); BATCH];
        self.locate_many(&probes, &mut located);
        for (probe, at) in probes.iter().zip(&located) {
            self.prefetch_candidate(at.node, at.bnode, probe); // one in six has one
        }
        if let Some(buffers) = self.buffers() {
            self.make_room_in_buffers(buffers, &probes, &mut located);
            self.insert_buffered(buffers, &probes, records, &mut located, inserted)?;
            return refused.map_or(Ok(()), Err);
        }
        self.make_room(&probes, &mut located);
        for at in &located[..probes.len()] {
            self.prefetch_to_insert(at);
        }
        let mut next = 0;
        while next < probes.len() {
            self.pm().keep_stores(); // a later failure undoes nothing of it
            let mut stage = Stage::new(self, &probes, records);
            let mut results = Vec::with_capacity(probes.len() - next);
            while next < probes.len() {
                let Some(new) = stage.add(next, &located[next]) else { break };
                results.push(new);
                next += 1;
            }
            stage.commit()?;
            inserted.append(&mut results);
            if let Some((key, value)) = records[..probes.len()].get(next) {
                inserted.push(self.try_insert(key.borrowed(), value.borrowed())?.is_ok());
                next += 1;
                self.locate_changed(&probes, &mut located, next);
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    SpTree<K, V, M, LEAF, BUFFER>
{
    /// Absorbs the full buffers of keys that seem to be new, with shared fences, and splits full Bnodes.
    /// Keys that fail or are missed here are handled record by record.
    fn make_room_in_buffers<'t>(
        &'t self,
        buffers: &'t WriteBuffers<K, V, M, LEAF, BUFFER>,
        probes: &[Probe<'_, K>],
        located: &mut [At<'t>; BATCH],
    ) {
        let (pm, leaves) = (self.pm(), &self.leaves);
        let mut full = Vec::new();
        for (probe, at) in probes.iter().zip(&*located).filter(|(_, at)| at.bnode != 0) {
            let Some(buffer) = leaves.middle.buffer(at.node) else { continue };
            if buffers.has_room(leaves, buffer) {
                continue;
            }
            buffers.prefetch_absorption(leaves, at.node, (at.bnode, buffer));
            if let Some(guard) = at.node.lock.try_upgrade(pm, at.version) {
                full.push((*at, buffer, guard, probe));
            }
        }
        if full.is_empty() {
            return;
        }
        let nodes = full.iter().map(|(at, buffer, ..)| (at.node, *buffer));
        if buffers.absorb_all(leaves, nodes).is_ok() {
            for (At { index, node, bnode, .. }, _, guard, probe) in full {
                let taken = leaves.taken(node);
                let Ok(bnode) = leaves.bnode(bnode) else { continue };
                if taken.len() == LEAF {
                    let held = Held { index, node, bnode, taken, slot: None, hit: None, guard };
                    let _ = self.split(held, Some(probe));
                }
            }
        } else {
            drop(full); // unlocked before any thread waits for them, this one included
        }
        self.locate_changed(probes, located, 0);
    }

    /// As the rest of [`insert_chunk`](Self::insert_chunk), through the buffers.
    fn insert_buffered<'t>(
        &'t self,
        buffers: &'t WriteBuffers<K, V, M, LEAF, BUFFER>,
        probes: &[Probe<'_, K>],
        records: &[(K, V)],
        located: &mut [At<'t>; BATCH],
        inserted: &mut Vec<bool>,
    ) -> Result<(), IndexError> {
        let mut next = 0;
        while next < probes.len() {
            let first = next;
            self.pm().keep_stores(); // a later failure undoes nothing of it
            let mut stage = Group::new((&self.leaves, buffers), probes, records);
            let mut results = Vec::with_capacity(probes.len() - next);
            while next < probes.len() {
                let Some(new) = stage.add(next, &located[next]) else { break };
                results.push(new);
                next += 1;
            }
            if let Some(refused) = stage.commit()? {
                // Later records of the stage are not there either.
                results.truncate(refused - first);
                next = refused;
            }
            inserted.append(&mut results);
            if let Some((key, value)) = records[..probes.len()].get(next) {
                inserted.push(self.try_insert(key.borrowed(), value.borrowed())?.is_ok());
                next += 1;
                self.locate_changed(probes, located, next);
            }
        }
        Ok(())
    }
}

/// A Bnode with staged records.
struct Staged<'t, K: Key, V: Value, M: Medium, const LEAF: usize> {
    index: u32,
    node: &'t Mnode,
    bnode: Bnode<'t, K, V, LEAF>,
    /// The bitmap to be committed.
    taken: Taken,
    /// Staged records.
    records: u64,
    /// Before the lock.
    tag_guard: TagGuard<'t, K, V, M, LEAF>,
    /// Held until all is durable.
    guard: VersionGuard<'t>,
}

/// A record and its place.
struct Planned<'r, V> {
    /// Its place in the batch.
    record: usize,
    /// Its value, encoded once: another encoding need not have the length of the block.
    datum: EncodedValue<'r, V>,
    /// The place of its Bnode among those staged.
    bnode: usize,
    slot: usize,
    /// Its block; 0 if records have none.
    block: u64,
}

/// Records that are committed together.
///
/// Locks are only tried, so in any order: a stage that cannot have one ends, and unlocks the others.
struct Stage<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize> {
    tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
    probes: &'r [Probe<'r, K>],
    records: &'r [(K, V)],
    op: Option<Op<'t, M>>,
    bnodes: Vec<Staged<'t, K, V, M, LEAF>>,
    planned: Vec<Planned<'r, V>>,
}

impl<'t, 'r, K: Key, V: Value, M: Medium, const LEAF: usize, const BUFFER: usize>
    Stage<'t, 'r, K, V, M, LEAF, BUFFER>
{
    fn new(
        tree: &'t SpTree<K, V, M, LEAF, BUFFER>,
        probes: &'r [Probe<'r, K>],
        records: &'r [(K, V)],
    ) -> Self {
        let (bnodes, planned) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Self { tree, probes, records, op: None, bnodes, planned }
    }

    /// Reserves a slot for a record, or finds its key (`false`). `None`: it cannot join, and nothing was
    /// changed.
    #[inline(always)]
    fn add(&mut self, record: usize, at: &At<'t>) -> Option<bool> {
        let (tree, probe) = (self.tree, &self.probes[record]);
        let datum = EncodedValue::new(self.records[record].1.borrowed()).ok()?;
        let place = self.hold(at)?;
        let Staged { node, bnode, taken, records, .. } = &self.bnodes[place];
        let (bnode, taken) = (*bnode, *taken);
        let staged = |p: &Planned<'_, V>| {
            p.bnode == place && self.probes[p.record].compare(probe) == Ordering::Equal
        };
        let tagged = tree.leaves.middle.matches(node, tag_of(probe), LEAF);
        if *records > 0 && self.planned.iter().any(staged)
            || bnode.find_among(&tree.pool, tagged, probe).ok()?.is_some()
        {
            return Some(false);
        }
        let slot = taken.free_slot(LEAF)?;
        let mut block = 0;
        if Slot::<K, V>::HAS_BLOCK {
            if self.op.is_none() {
                self.op = Some(tree.pool.op().ok()?);
            }
            let op = self.op.as_mut()?;
            let reserved = op.reserve_bytes(Slot::<K, V>::block_size(probe, &datum), 8).ok()?;
            op.allocate(&reserved, bnode.owner(slot)).ok()?;
            block = reserved.ptr().offset();
        }
        self.planned.push(Planned { record, datum, bnode: place, slot, block });
        let staged = &mut self.bnodes[place];
        staged.taken = taken.with(slot);
        staged.records += 1;
        Some(true)
    }

    /// Locks the Mnode at the version at which it was located; returns its place among `bnodes`.
    #[inline(always)]
    fn hold(&mut self, at: &At<'t>) -> Option<usize> {
        if at.bnode == 0 {
            return None;
        }
        let (tree, pm) = (self.tree, self.tree.pm());
        let Some(guard) = at.node.lock.try_upgrade(pm, at.version) else {
            // Perhaps it is this stage that holds the lock, since this very version.
            let same = |s: &Staged<'_, K, V, M, LEAF>| {
                s.index == at.index && s.guard.next_version() == at.version + 2
            };
            return self.bnodes.iter().position(same);
        };
        let bnode = tree.leaves.bnode(at.bnode).ok()?;
        let taken = tree.leaves.taken(at.node);
        let (index, node) = (at.index, at.node);
        let tag_guard = tree.leaves.tag_guard(index, node);
        self.bnodes.push(Staged { index, node, bnode, taken, records: 0, tag_guard, guard });
        Some(self.bnodes.len() - 1)
    }

    /// Writes and flushes the records and their tags (step P1).
    #[inline(always)]
    fn write(&self) -> Result<Flushed, PmError> {
        let (pool, pm) = (&*self.tree.pool, self.tree.pm());
        let mut written = Vec::with_capacity(3 * BATCH);
        for &Planned { record, ref datum, bnode, slot, block } in &self.planned {
            let (probe, bnode) = (&self.probes[record], &self.bnodes[bnode].bnode);
            if Slot::<K, V>::HAS_BLOCK {
                let block = BnodePtr::new(block);
                written.push(Slot::<K, V>::fill_block(pool, block, probe, datum)?);
            }
            let record = Incoming { probe, datum };
            written.extend(bnode.fill(pm, slot, &record, block));
        }
        Ok(pm.flush_together(&mut written))
    }

    /// Makes what is staged durable (P1 and P2), then visible.
    fn commit(mut self) -> Result<(), PmError> {
        if self.planned.is_empty() {
            return Ok(());
        }
        for staged in self.bnodes.iter_mut().filter(|staged| staged.records > 0) {
            staged.tag_guard.arm();
        }
        let flushed = self.write()?;
        let op = self.op.take();
        let (pool, pm) = (&*self.tree.pool, self.tree.pm());
        let changed = || self.bnodes.iter().filter(|staged| staged.records > 0);
        if let Some(mut op) = op {
            op.prepare(flushed)?; // durable before: P2
            changed().for_each(|staged| staged.bnode.put_taken(pm, staged.taken)); // P2
            finish(pool, op, || {
                let none = Flushed::nothing();
                changed().fold(none, |all, staged| all.and(staged.bnode.flush_header(pm)))
            })?; // DUR
        } else {
            pm.fence(flushed)?; // durable before: P2
            let committed = changed().fold(Flushed::nothing(), |all, staged| {
                all.and(staged.bnode.commit(pm, staged.taken)) // P2
            });
            pm.fence(committed)?; // DUR
        }
        let middle = &self.tree.leaves.middle;
        for &Planned { record, bnode, slot, .. } in &self.planned {
            middle.put_tag(self.bnodes[bnode].node, slot, tag_of(&self.probes[record]));
        }
        for staged in self.bnodes.iter_mut().filter(|staged| staged.records > 0) {
            staged.tag_guard.disarm();
            self.tree.leaves.count(staged.index, staged.records);
        }
        Ok(()) // LIN: the guards
    }
}
