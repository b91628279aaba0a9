//! Batches of records that replace segments: out-of-place updates, the second technique of SPTree's study.
//!
//! A segment that gets many records is written anew, with its old records and the new ones, in one stream; one
//! that has no room for them becomes two or more. The segment before it has the only word that leads there:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new segments, which lead to each other and on; tickets of these and of the old one | P2 |
//! | P2 | `next` of the segment before: the first new one (LIN, commits all) | return (DUR), P3 |
//! | P3 | the directory, in DRAM | unlock |
//!
//! A crash before P2 leaves the old segment, after it the new ones; recovery has nothing to do. Both locks are
//! only tried. The first segment, to which the root leads, is never replaced.

use std::collections::HashSet;

use pmindex_core::{Flushed, Medium, Owner, PPtr, PmError, PmU64};
use pmindex_index::{InsertMany, Key, Noted, Value};
use pmindex_record::{Pair, link};

use crate::access::At;
use crate::index::Cceh;
use crate::layout::{
    Cover, Geometry, HEADER_WORDS, LINE_PAIRS, MAX_DEPTH, Sought, has_block, position,
};
use crate::segment::Segment;

/// The words of a segment, but for `next`, and its positions.
type Image = (Cover, Vec<u64>);

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// The least number of records that pays for a new segment: in place they would write as many access units of
    /// four lines.
    const MANY: usize = (LINES + 1) / LINE_PAIRS;

    /// Inserts many records, each segment's in one write of the segment; in the order of
    /// [`hash_words`](pmindex_record::hash_words) of their keys, neighbours are in one segment. Records with a
    /// block, few records of a segment, and those of the first segment are inserted as by
    /// [`try_insert_many`](Self::try_insert_many).
    ///
    /// # Cost
    /// For each segment: its lines twice when it splits, else once; two fences.
    ///
    /// # Durability
    /// Records are visible and durable together with the others of their segment.
    pub fn try_insert_many_anew(&self, records: &[(K, V)]) -> InsertMany {
        let mut result = InsertMany::default();
        let mut rest = records;
        while !rest.is_empty() && result.stopped.is_none() {
            let (run, inserted) = match self.replace_first(rest) {
                Ok(Some(inserted)) => (inserted.len(), InsertMany { inserted, stopped: None }),
                Ok(None) => {
                    let run = self.run(rest).1.len().max(1);
                    (run, self.try_insert_many(&rest[..run]))
                }
                Err(error) => (0, InsertMany { inserted: Vec::new(), stopped: Some(error.into()) }),
            };
            result.inserted.extend(inserted.inserted);
            result.stopped = inserted.stopped;
            rest = &rest[run..];
        }
        result.noted(&self.pool)
    }

    /// Returns the segment of the first record, and the pairs of the records of this segment up to the first other.
    fn run(&self, records: &[(K, V)]) -> (Option<At<'_>>, Vec<[u64; 2]>) {
        let (mut at, mut pairs) = (None, Vec::new());
        if has_block::<K, V>() {
            return (at, pairs);
        }
        for (key, value) in records {
            let key = Sought::new::<K>(key.borrowed());
            let (Ok(key), Ok(value)) = (key, Pair::<K, V>::encode(value.borrowed())) else { break };
            let first = at.get_or_insert_with(|| self.locate(key.position));
            if !first.cover.has(key.position) {
                break;
            }
            pairs.push([key.id, value.word]);
        }
        (at, pairs)
    }

    /// Replaces the segment of the first record. `None` if it did not, having written nothing.
    fn replace_first(&self, records: &[(K, V)]) -> Result<Option<Vec<bool>>, PmError> {
        self.pool.check_writable()?;
        let pm = self.pm();
        let (Some(at), new) = self.run(records) else { return Ok(None) };
        if at.cover.base == 0 || new.len() < Self::MANY {
            return Ok(None);
        }
        let before = self.directory.find(at.cover.base - 1);
        let lock = self.lock_of(before.segment());
        let shared = std::ptr::eq(lock, at.lock);
        let Some(own) = at.lock.try_upgrade(pm, at.version) else { return Ok(None) };
        let other = if shared { None } else { lock.try_lock(pm) };
        let unchanged = self.directory.find(at.cover.base - 1) == before;
        let (guard, _old) = match other {
            Some(other) => (other, Some(own)),
            None if shared => (own, None),
            None => return Ok(None),
        };
        let (left, old) = (self.segment(before.segment())?, self.segment(at.segment)?);
        if !unchanged || left.next(pm) != old.offset() {
            return Ok(None);
        }
        let records = old.records(pm, at.cover);
        let mut ids: HashSet<u64> = records.iter().map(|(_, [id, _])| *id).collect();
        let inserted: Vec<bool> = new.iter().map(|[id, _]| ids.insert(*id)).collect();
        let added = new.iter().zip(&inserted).filter(|(_, added)| **added).map(|(pair, _)| *pair);
        let added: Vec<[u64; 2]> = added.collect();
        let mut images = Vec::new();
        if !Self::arrange(at.cover, &records, &added, &mut images) {
            return Ok(None); // too many alike: the error is that of a single insert
        }
        // Dropped before the lock of the old segment.
        let change = self.change(left.offset(), guard);
        self.commit_images(&left, &old, images)?;
        self.count(old.offset(), added.len() as u64);
        change.done();
        Ok(Some(inserted))
    }

    /// Makes images of segments with these records; `false` if there are too many with nearly the same positions.
    fn arrange(
        cover: Cover,
        old: &[(usize, [u64; 2])],
        new: &[[u64; 2]],
        images: &mut Vec<Image>,
    ) -> bool {
        let mut image = Segment::<LINES, PROBE>::empty(cover, 0);
        let mut taken = vec![false; Segment::<LINES, PROBE>::PAIRS];
        let is_here = |words: &[u64; 2]| cover.has(position(words[0]));
        // Each old record keeps its place, since its home line is the same.
        for (pair, words) in old.iter().filter(|(_, words)| is_here(words)) {
            taken[*pair] = true;
            image[HEADER_WORDS + 2 * pair..][..2].copy_from_slice(words);
        }
        let mut fits = true;
        for words in new.iter().filter(|words| is_here(words)) {
            let mut pairs = Segment::<LINES, PROBE>::pairs_for(position(words[0]));
            let Some(pair) = pairs.find(|&pair| !taken[pair]) else {
                fits = false;
                break;
            };
            taken[pair] = true;
            image[HEADER_WORDS + 2 * pair..][..2].copy_from_slice(words);
        }
        if fits {
            images.push((cover, image));
            return true;
        }
        if cover.depth == MAX_DEPTH {
            return false;
        }
        let (lower, upper) = cover.halves();
        Self::arrange(lower, old, new, images) && Self::arrange(upper, old, new, images)
    }

    /// Steps P1 to P3.
    fn commit_images(
        &self,
        left: &Segment<'_, LINES, PROBE>,
        old: &Segment<'_, LINES, PROBE>,
        images: Vec<Image>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        // P1: from the last to the first, since each leads to the one behind it.
        let (mut filled, mut next) = (Flushed::nothing(), old.next(pm));
        let (mut blocks, mut made) = (Vec::new(), Vec::new());
        for (cover, mut image) in images.into_iter().rev() {
            let block = op.reserve_bytes(Geometry::<K, V, LINES, PROBE>::BYTES, 64)?;
            let segment = Segment::<LINES, PROBE>::at(pool, block.ptr().offset())?;
            image[crate::layout::NEXT] = next;
            filled = filled.and(pm.stream_words(segment.words(), &image));
            next = segment.offset();
            blocks.push(block);
            made.push((cover, next));
        }
        let owner = |expect| Owner { word: left.next_cell(), mask: u64::MAX, expect };
        for block in &blocks {
            op.allocate(block, owner(next))?;
        }
        op.free(PPtr::<PmU64>::new(old.offset()), owner(old.offset()))?;
        // Earlier tickets may name it, and it changes with the block's next use.
        op.changes(old.next_cell());
        op.prepare(filled)?;
        // P2.
        link(pool, op, left.next_cell(), next)?;
        // P3.
        for (cover, segment) in made {
            self.directory.set(pm, cover, segment);
        }
        Ok(())
    }
}
