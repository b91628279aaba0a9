//! Batches of records that replace leaves: out-of-place updates, the second technique of SPTree's study.
//!
//! A leaf that gets many records is written anew, with its old records and the new ones, in one stream; one that
//! has no room for them becomes two. Two words lead to a leaf, `next` of its left neighbour and its parent's:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new leaves; tickets of these and of the old one; its parent's word leads to the left neighbour | P2 |
//! | P2 | `next` of the left neighbour: the first new leaf (LIN, commits) | P3 |
//! | P3 | the parent's word leads to the first new leaf; the inner nodes know the second | return (DUR) |
//!
//! From P1 to P3 searches for keys of the leaf come to its left neighbour, as while a leaf is unlinked
//! ([`unlink`](super::unlink)); both locks are held. A crash between leaves a neighbour of an old era: readers heed
//! the low of the next leaf and move right, and the next writer does P3 ([`repair`](super::repair)): the low, as a
//! separator, is in the parent already, so only the word behind it changes.
//!
//! Locks are only tried. The first leaf is never replaced, nor is the first child of a node.

use pmindex_core::{Flushed, Medium, Owner, PmError, words_of};
use pmindex_index::{InsertMany, Key, Noted, Value};
use pmindex_record::{Pair, link};

use super::access::At;
use super::entry::{Entry, Sought};
use super::inner::Separator;
use super::layout::{Form, Geometry, LeafState, leaf_words};
use super::leaf::{Image, Leaf};
use super::tree::FastFair;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// The least number of records that pays for a new leaf.
    const MANY: usize = LEAF.div_ceil(8);

    /// Inserts many records, each leaf's in one write of the leaf; in ascending order neighbours are in one leaf.
    /// Records with a block, few records of a leaf, more than two leaves hold, and those of the first leaf, or
    /// of the first child of an inner node, are inserted as by [`try_insert_many`](Self::try_insert_many).
    ///
    /// # Cost
    /// For each leaf: its lines and 5 others, 3 fences; one that becomes two: twice its lines, and a copy of the
    /// inner node, 5 fences.
    ///
    /// # Durability
    /// Records are visible and durable together with the others of their leaf.
    pub fn try_insert_many_anew(&self, records: &[(K, V)]) -> InsertMany {
        let mut result = InsertMany::default();
        let mut rest = records;
        while !rest.is_empty() && result.stopped.is_none() {
            let (run, inserted) = match self.replace_first(rest) {
                Ok((_, Some(inserted))) => (inserted.len(), InsertMany { inserted, stopped: None }),
                Ok((run, None)) => (run, self.try_insert_many(&rest[..run])),
                Err(error) => (0, InsertMany { inserted: Vec::new(), stopped: Some(error.into()) }),
            };
            result.inserted.extend(inserted.inserted);
            result.stopped = inserted.stopped;
            rest = &rest[run..];
        }
        result.noted(&self.pool)
    }

    /// Replaces the leaf of the first record; `None` inside if it did not, having written nothing. Returns the
    /// number of the first records that belong to this leaf, 1 at least.
    fn replace_first(&self, records: &[(K, V)]) -> Result<(usize, Option<Vec<bool>>), PmError> {
        self.pool.check_writable()?;
        if !Form::<K, V>::WORD_KEY || Form::<K, V>::HAS_BLOCK {
            return Ok((records.len(), None));
        }
        let Ok(first) = Sought::new::<K>(records[0].0.borrowed()) else { return Ok((1, None)) };
        let at = self.locate_to_write(&first)?;
        let new = self.run(&at, records);
        let run = new.as_ref().map_or(0, Vec::len).max(1);
        let low = self.low_at(&at);
        let (Ok(new), Some(Ok(Some(low)))) = (new, low) else { return Ok((run, None)) };
        if new.len() < Self::MANY {
            return Ok((run, None));
        }
        // The low itself belongs to the leaf on the left.
        let left = self.locate_to_write(&low)?;
        Ok((run, self.replace_between(&left, &at, &low, &new)?))
    }

    /// Returns the entries of the records of a leaf, up to the first other. Racing: validate.
    fn run(&self, at: &At<'_>, records: &[(K, V)]) -> Result<Vec<Entry>, PmError> {
        let leaf = self.leaf(at.leaf)?;
        let (low, next) = (leaf.low(self.pm()), leaf.next(self.pm()));
        let greatest = if next == 0 { u64::MAX } else { self.leaf(next)?.low(self.pm()) };
        let mut entries = Vec::new();
        for (key, value) in records {
            let key = Sought::new::<K>(key.borrowed());
            let (Ok(key), Ok(value)) = (key, Pair::<K, V>::encode(value.borrowed())) else { break };
            if key.word <= low || key.word > greatest {
                break;
            }
            entries.push([key.word, value.word]);
        }
        Ok(entries)
    }

    /// Replaces `old`. `None` if a leaf has changed since it was located, or cannot be replaced.
    fn replace_between(
        &self,
        left: &At<'_>,
        old: &At<'_>,
        low: &Sought<'_>,
        new: &[Entry],
    ) -> Result<Option<Vec<bool>>, PmError> {
        let pm = self.pm();
        let shared = std::ptr::eq(left.lock, old.lock);
        if shared && left.version != old.version {
            return Ok(None);
        }
        let Some(guard) = left.lock.try_upgrade(pm, left.version) else { return Ok(None) };
        let other = if shared { None } else { old.lock.try_upgrade(pm, old.version) };
        let (left, old) = (self.leaf(left.leaf)?, self.leaf(old.leaf)?);
        // Dropped before the lock of the old leaf.
        let change = self.change(&left, guard);
        let whole = [left, old].iter().all(|leaf| leaf.state(pm).is_of(self.era));
        if (other.is_none() && !shared) || !whole || left.next(pm) != old.offset() {
            change.done();
            return Ok(None);
        }
        let image = old.image(pm);
        let mut entries: Vec<Entry> = image.records(LEAF).map(|i| image.entry(i)).collect();
        let mut inserted = Vec::with_capacity(new.len());
        for entry in new {
            let place = entries.binary_search_by_key(&entry[0], |entry| entry[0]);
            if let Err(place) = place {
                entries.insert(place, *entry);
            }
            inserted.push(place.is_err());
        }
        let added = inserted.iter().filter(|new| **new).count();
        if added == 0 || entries.len() > 2 * LEAF {
            change.done();
            return Ok((added == 0).then_some(inserted));
        }
        let replaced = self.replace_held(&left, &old, low, &entries);
        if let Ok(false) = replaced {
            change.done();
            return Ok(None);
        }
        replaced?;
        self.count(old.offset(), added as u64);
        change.done();
        drop(other);
        pm.handover_point(); // the records are others' before this thread's next fence
        Ok(Some(inserted))
    }

    /// Steps P1 to P3; `false` if nothing was written, since another node has the left neighbour, or the lock of
    /// the new leaf is taken.
    fn replace_held(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        old: &Leaf<'_, K, V, LEAF>,
        low: &Sought<'_>,
        entries: &[Entry],
    ) -> Result<bool, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        // P1, from the last new leaf to the first, since each leads to the one behind it.
        let halves = if entries.len() > LEAF {
            let (lower, upper) = entries.split_at(entries.len().div_ceil(2));
            vec![(low.word, lower), (lower[lower.len() - 1][0], upper)]
        } else {
            vec![(low.word, entries)]
        };
        let (mut filled, mut next, mut made) = (Flushed::nothing(), old.next(pm), Vec::new());
        for (low, entries) in halves.into_iter().rev() {
            let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
            let mut image = Image::new(LeafState::of_era(self.era), next, low);
            for (n, entry) in entries.iter().enumerate() {
                image.set_entry(n * LEAF / entries.len(), *entry);
            }
            next = block.ptr().offset();
            let words = self.leaf(next)?.words();
            filled = filled.and(pm.stream_words(words, &image.words[..leaf_words(LEAF)]));
            made.push((block, low));
        }
        // The first new leaf is locked until the second one is known: a merge of the second needs this lock.
        let lock = self.lock_of(next);
        let is_held =
            [left, old].iter().any(|leaf| std::ptr::eq(lock, self.lock_of(leaf.offset())));
        let mut first = None;
        if made.len() > 1 && !is_held {
            first = lock.try_lock(pm);
            if first.is_none() {
                return Ok(false);
            }
        }
        for (block, _) in &made {
            let owner = Owner { word: left.next_cell(), mask: u64::MAX, expect: next };
            op.allocate(block, owner)?;
        }
        self.free_behind(&mut op, left, old)?;
        let Some(hidden) = self.hide(low, left.offset(), old.offset())? else { return Ok(false) };
        op.prepare(filled.and(pm.flush_words(words_of(hidden))))?;
        // P2.
        link(pool, op, left.next_cell(), next)?;
        // P3.
        let before = [left.offset(), next];
        for (at, (block, low)) in made.iter().rev().enumerate() {
            let separator = Separator { word: *low, block: 0 };
            let leaf = block.ptr().offset();
            if self.make_known(&Sought::of_word(*low), separator, leaf, &[]).is_err() {
                // The records are there. Searches move right from the leaves before those that are not known,
                // until the next writer has finished this.
                for leaf in &before[at..made.len()] {
                    self.doubt(&self.leaf(*leaf)?);
                }
                break;
            }
        }
        drop(first);
        Ok(true)
    }
}
