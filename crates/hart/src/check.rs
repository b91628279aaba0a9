//! Verification of the whole structure, independent of the code that recovers it.

use std::collections::BTreeMap;

use pmindex_core::{Medium, PmError};
use pmindex_index::{IndexError, Key, Noted, Value};
use pmindex_record::Probe;

use crate::directory::Directory;
use crate::layout::{ChunkPtr, Root, SlotRef, record_words};
use crate::record::KeyBytes;
use crate::tree::Hart;

/// Slots in use, by chunk.
type Slots = BTreeMap<u64, u64>;

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Verifies the whole structure of a quiescent index; returns the number of records.
    ///
    /// The trees: sound, in the entries of their keys, keys ascending over all of them. The chunks:
    /// exactly the slots that trees lead to are live on the medium; exactly those and the objects of
    /// their records are taken; no object has two records; shelves hold what has room. Records as
    /// many as counted, each with a readable value.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] names the first thing that is wrong.
    pub fn check(&self) -> Result<u64, IndexError> {
        self.check_inner().noted(&self.pool)
    }

    #[inline(always)]
    fn check_inner(&self) -> Result<u64, IndexError> {
        let (mut live, mut taken) = (Slots::new(), Slots::new());
        let mut records = 0;
        let mut next = self.directory.next(0, true);
        while let Some(entry) = next {
            records += self.tree(entry).check()?;
            next = Directory::<PREFIX>::step(entry, true)
                .and_then(|entry| self.directory.next(entry, true));
        }
        let mut found = 0;
        let mut last: Option<K> = None;
        for item in self {
            let (key, _) = item?;
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(corrupt("keys out of order", 0).into());
            }
            self.check_record(&key, &mut live, &mut taken)?;
            last = Some(key);
            found += 1;
        }
        if found != records {
            return Err(corrupt("trees with other leaves than a scan finds", found).into());
        }
        self.check_chunks(&live, &mut taken)?;
        self.chunks.check_shelves(self.pm())?;
        let counted = self.len()?;
        if counted != records {
            return Err(corrupt("the number of records differs from the count", counted).into());
        }
        Ok(records)
    }

    /// Notes the slots of a record.
    fn check_record(&self, key: &K, live: &mut Slots, taken: &mut Slots) -> Result<(), PmError> {
        let probe = Probe::of_stored(key);
        let Some(place) = self.find(&probe, &KeyBytes::of(&probe))? else {
            return Err(corrupt("a key that a search does not find", 0));
        };
        let at = SlotRef::from_number(place.leaf);
        let chunk = at.record_chunk(record_words::<K>());
        note(live, chunk, at)?;
        note(taken, chunk, at)?;
        let objects = self.objects_of(at)?;
        for object in [objects.key, objects.value].into_iter().flatten() {
            self.chunks.number_of(&self.pool, object.at, object.words)?;
            note(taken, object.at.object_chunk(object.words), object.at)?;
        }
        Ok(())
    }

    fn check_chunks(&self, live: &Slots, taken: &mut Slots) -> Result<(), PmError> {
        let pm = self.pm();
        self.chunks.each(pm, |number, chunk, shape, slots| {
            let head = self.pool.get(chunk)?;
            let (base, wanted) = (chunk.offset(), live.get(&chunk.offset()).copied());
            if pm.load(&head.number) != u64::from(number) || pm.load(&head.shape) != shape {
                return Err(corrupt("the header of a chunk", base));
            }
            let found = if shape.is_objects() { 0 } else { self.live_of(number, chunk)? };
            if found != wanted.unwrap_or(0) {
                return Err(corrupt("live bits that the trees do not explain", base));
            }
            if slots != taken.remove(&base).unwrap_or(0) {
                return Err(corrupt("slots taken that no record explains", base));
            }
            Ok(())
        })?;
        match taken.keys().next() {
            None => Ok(()),
            Some(&chunk) => Err(corrupt("records in no chunk of the table", chunk)),
        }
    }

    /// Returns the offsets of all blocks of a quiescent index: root, table, chunks.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        let mut blocks = vec![self.entry.root::<Root>().offset()];
        // As the medium has them, not as DRAM believes.
        let table = crate::recover::read_table(&self.pool, self.root()?)?;
        blocks.extend(table.segments.iter().map(|segment| segment.offset()));
        let chunks = table.places.iter().filter(|chunk| !chunk.is_null());
        blocks.extend(chunks.map(|chunk: &ChunkPtr| chunk.offset()));
        Ok(blocks)
    }
}

/// Notes a slot; an error if it was noted before.
fn note(slots: &mut Slots, chunk: u64, at: SlotRef) -> Result<(), PmError> {
    let bits = slots.entry(chunk).or_default();
    if *bits & 1 << at.slot() != 0 {
        return Err(corrupt("a slot with two owners", at.offset()));
    }
    *bits |= 1 << at.slot();
    Ok(())
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
