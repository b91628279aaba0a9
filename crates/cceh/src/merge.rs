//! Merges two segments that are the halves of one and have few records together.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | tickets: the upper segment's, and void those of pairs that P2 changes | P2; P3 if no pair has a block |
//! | P2 | in the lower segment: no record in dead pairs, then the upper one's records there, dead as yet | P3 |
//! | P3 | `next` of the lower segment: the one after the upper (commits) | P4 |
//! | P4 | the directory, in DRAM | unlock |
//!
//! A pair may have died in a split: it has a record that is in the other segment since, and P3 would revive
//! it. So P2 overwrites all such pairs. It changes no live pair: what it stores belongs to the upper segment
//! until P3. A crash before P3 leaves dead pairs, as a split does.

use pmindex_core::{Flushed, Medium, Owner, PPtr, PmError, PmU64};
use pmindex_index::{Key, Value};
use pmindex_record::link;

use crate::index::Cceh;
use crate::layout::{Cover, HEADER_WORDS, LINE_PAIRS, LINE_WORDS, has_block, position};
use crate::segment::Segment;

/// Two segments are merged if together they have at most one record for this number of slots.
const SPARSE: usize = 4;

impl<K: Key, V: Value, M: Medium, const LINES: usize, const PROBE: usize>
    Cceh<K, V, M, LINES, PROBE>
{
    /// Merges the segment with `position` with its sibling, repeatedly, as long as they are sparse.
    #[cold]
    #[inline(never)]
    pub(crate) fn shrink(&self, position: u64) -> Result<(), PmError> {
        while self.merge(position)? {}
        Ok(())
    }

    /// Merges the segment with `position` with its sibling, if both have few records; returns `true` if it
    /// did.
    fn merge(&self, position: u64) -> Result<bool, PmError> {
        let pm = self.pm();
        let entry = self.directory.find(position);
        let Some((lower, upper)) = Cover::of(position, entry.depth()).with_buddy() else {
            return Ok(false);
        };
        let find = |half: Cover| {
            Some(self.directory.find(half.base)).filter(|at| at.depth() == half.depth)
        };
        let (Some(left), Some(right)) = (find(lower), find(upper)) else { return Ok(false) };
        // Both locks are only tried: a thread that fails to get one releases the other.
        let Some(guard) = self.lock_of(left.segment()).try_lock(pm) else { return Ok(false) };
        let shared = std::ptr::eq(self.lock_of(left.segment()), self.lock_of(right.segment()));
        let other = if shared { None } else { self.lock_of(right.segment()).try_lock(pm) };
        if (other.is_none() && !shared) || find(lower) != Some(left) || find(upper) != Some(right) {
            return Ok(false);
        }
        let (into, from) = (self.segment(left.segment())?, self.segment(right.segment())?);
        let most = Segment::<LINES, PROBE>::PAIRS / SPARSE;
        let Some(few) = into.few(pm, lower, most) else { return Ok(false) };
        if from.few(pm, upper, most - few).is_none() {
            return Ok(false);
        }
        let Some(image) = self.merged(&into, &from, lower, upper) else { return Ok(false) };
        // Dropped after `other`, whose lock is held until nothing points to its segment, also after a panic.
        let change = self.change(into.offset(), guard);
        self.commit_merge(&into, &from, &image)?;
        // P4.
        self.directory.set(pm, Cover::of(lower.base, lower.depth - 1), into.offset());
        change.done();
        drop(other);
        Ok(true)
    }

    /// Returns the words of the lower segment with the records of both; `None` if a record has no place.
    fn merged(
        &self,
        into: &Segment<'_, LINES, PROBE>,
        from: &Segment<'_, LINES, PROBE>,
        lower: Cover,
        upper: Cover,
    ) -> Option<Vec<u64>> {
        let pm = self.pm();
        let mut image = Segment::<LINES, PROBE>::empty(lower, into.next(pm));
        let mut taken = vec![false; Segment::<LINES, PROBE>::PAIRS];
        for (pair, words) in into.records(pm, lower) {
            image[HEADER_WORDS + 2 * pair..][..2].copy_from_slice(&words);
            taken[pair] = true;
        }
        for (_, words) in from.records(pm, upper) {
            let mut pairs = Segment::<LINES, PROBE>::pairs_for(position(words[0]));
            let pair = pairs.find(|&pair| !taken[pair])?;
            image[HEADER_WORDS + 2 * pair..][..2].copy_from_slice(&words);
            taken[pair] = true;
        }
        Some(image)
    }

    /// Steps P1 to P3.
    fn commit_merge(
        &self,
        into: &Segment<'_, LINES, PROBE>,
        from: &Segment<'_, LINES, PROBE>,
        image: &[u64],
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        // A dead pair may have the id of the record that takes its place, with an older value.
        let changes = |&pair: &usize| {
            let [id, other] = [image[HEADER_WORDS + 2 * pair], image[HEADER_WORDS + 2 * pair + 1]];
            let is_free = id == Cover { base: into.base(pm), depth: 1 }.stranger();
            pm.load_word(into.id_cell(pair)) != id
                || (!is_free && pm.load_word(into.other_cell(pair)) != other)
        };
        let pairs: Vec<usize> = (0..Segment::<LINES, PROBE>::PAIRS).filter(changes).collect();
        let mut op = pool.op()?;
        // P1.
        let owner = Owner { word: into.next_cell(), mask: u64::MAX, expect: from.offset() };
        op.free(PPtr::<PmU64>::new(from.offset()), owner)?;
        if has_block::<K, V>() {
            for &pair in &pairs {
                op.changes(into.id_cell(pair));
                op.changes(into.other_cell(pair));
            }
        }
        let staged = op.stage();
        let mut stored = if has_block::<K, V>() {
            pm.fence(staged)?; // durable before: P2
            Flushed::nothing()
        } else {
            staged // no ticket names a pair: with P2, before P3
        };
        // P2.
        for &pair in &pairs {
            let words = &image[HEADER_WORDS + 2 * pair..][..2];
            pm.store_word(into.other_cell(pair), words[1]);
            pm.store_word(into.id_cell(pair), words[0]);
        }
        let mut last = usize::MAX;
        for line in pairs.iter().map(|pair| pair / LINE_PAIRS) {
            if line != last {
                stored = stored
                    .and(pm.flush_words(&into.words()[LINE_WORDS * (line + 1)..][..LINE_WORDS]));
                last = line;
            }
        }
        pm.fence(stored)?;
        // P3.
        link(pool, op, into.next_cell(), from.next(pm))
    }
}
