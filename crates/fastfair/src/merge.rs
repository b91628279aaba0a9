//! Leaves with few records merge.
//!
//! If a removal leaves few records in two neighbours, the records of the right leaf move to the left one and
//! the right leaf is freed. Entries are sorted, so the records of the left one move, too. Meanwhile all are
//! in a third leaf, the **copy**, which has the low of the left one:
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the right leaf is removed from the inner nodes: searches for its keys come to the left one | P2 |
//! | P2 | the copy, with the low of the left leaf and the records of both; tickets of copy and right leaf, and of their lows | P3 |
//! | P3 | the left leaf's `next` leads to the copy (the merge is decided); allocation bits | P4 |
//! | P4 | the entries of the left leaf, each prefix before its id: all records, some room between; the tickets of copy and its low | P5 |
//! | P5 | the left leaf's `next` leads to what follows; allocation bits | unlock |
//!
//! Before P3 a crash leaves the same as in a split between its steps P2 and P4: a leaf that is reached
//! through its neighbour. From P3 to P5 every key of the left leaf is greater than the low of the next one,
//! so its entries are dead, complete or not, and searches go on to the copy. No other two leaves have the
//! same low, so the next writer recognises the merge, and does P4 and P5 ([`repair`](super::repair)), which
//! may be done twice.
//!
//! Six fences; an emptied leaf takes four ([`unlink`](super::unlink)). A merge changes no record, and no
//! other thread sees one in progress: both locks are held until the end, and only the left leaf leads to the
//! copy. A reader that had found the right leaf has read it before it was locked, or descends again.
//!
//! The first leaf is never the left one of a merge: it has no low below its keys.

use pmindex_core::{Flushed, Medium, Op, Owner, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::{RecordBlock, link};

use super::access::At;
use super::entry::{Entry, Sought};
use super::layout::{Form, Geometry, LeafState, leaf_words};
use super::leaf::{Image, Leaf};
use super::tree::FastFair;
use super::write::Change;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Two leaves with at most this many records together become one.
    const MERGED: usize = LEAF * 3 / 4;

    /// Returns `true` if a leaf from which a record was removed looks for a neighbour to merge with: not every time,
    /// since that takes about as long as the removal.
    #[inline(always)]
    pub(crate) const fn is_time_to_look(left: usize) -> bool {
        let every = if LEAF < 24 { 1 } else { LEAF / 12 };
        left < Self::MERGED && left.is_multiple_of(every)
    }

    /// Merges the leaf of a key, which has `left` records, with a neighbour, if both together have few; frees
    /// it if it has none.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back(&self, key: &Sought<'_>, left: usize) -> Result<(), PmError> {
        if left == 0 {
            return self.unlink(key);
        }
        let pm = self.pm();
        loop {
            let at = self.locate(key)?;
            let left = self.left_of_pair(&at);
            if at.validate(pm) {
                let Some(left) = left? else { return Ok(()) };
                if let Some(done) = self.merge_at(&left) {
                    return done;
                }
            }
            pm.spin();
        }
    }

    /// Returns the left one of a leaf and a neighbour that have few records, if it may take those of the
    /// other.
    /// Racing: a guess.
    fn left_of_pair<'t>(&'t self, at: &At<'t>) -> Result<Option<At<'t>>, PmError> {
        let pm = self.pm();
        let head = pm.load(&self.root()?.head).offset();
        if at.leaf == head {
            return Ok(None);
        }
        let leaf = self.leaf(at.leaf)?;
        let few = |other: u64| -> Result<bool, PmError> {
            Ok(self.leaf(other)?.live(pm) + leaf.live(pm) <= Self::MERGED)
        };
        let next = leaf.next(pm);
        if next != 0 && few(next)? {
            return Ok(Some(*at));
        }
        // The low itself belongs to the leaf on the left.
        let before = self.locate(&self.low_of(&leaf)?)?;
        Ok((before.leaf != head && few(before.leaf)?).then_some(before))
    }

    /// Merges a leaf with the next one. `None` if it has changed since it was located.
    fn merge_at(&self, left: &At<'_>) -> Option<Result<(), PmError>> {
        let guard = left.lock.try_upgrade(self.pm(), left.version)?;
        let merged = self.leaf(left.leaf).and_then(|leaf| {
            let change = self.change(&leaf, guard);
            self.merge_held(&leaf, change)
        });
        Some(merged)
    }

    fn merge_held(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        change: Change<'_, M>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        let next = left.next(pm);
        let (own, lock) = (self.lock_of(left.offset()), self.lock_of(next));
        let shared = std::ptr::eq(own, lock);
        let other = if shared || next == 0 { None } else { lock.try_lock(pm) };
        if next == 0 || other.is_none() && !shared {
            change.done(); // it is locked: another removal will look again
            return Ok(());
        }
        let right = self.leaf(next)?;
        for leaf in [left, &right] {
            if !leaf.state(pm).is_of(self.era) {
                self.repair(leaf)?;
            }
        }
        let whole = left.state(pm).is_of(self.era) && right.state(pm).is_of(self.era);
        if whole && left.next(pm) == next && left.live(pm) + right.live(pm) <= Self::MERGED {
            // P1.
            if let Err(error) = self.make_unknown(&self.low_of(&right)?, next) {
                if error.is_full() {
                    change.done(); // nothing has changed
                }
                return Err(error);
            }
            if right.is_empty(pm) {
                self.unlink_known(left, &right)?;
            } else {
                let copy = self.move_to_copy(left, &right)?;
                self.move_back(left, &copy)?;
            }
        }
        change.done();
        Ok(())
    }

    /// Steps P2 and P3.
    pub(crate) fn move_to_copy(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        right: &Leaf<'_, K, V, LEAF>,
    ) -> Result<Leaf<'_, K, V, LEAF>, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
        let offset = block.ptr().offset();
        let owner = Owner { word: left.next_cell(), mask: u64::MAX, expect: offset };
        // P2.
        let mut filled = Flushed::nothing();
        let mut low = left.low(pm);
        if !Form::<K, V>::WORD_KEY {
            let key = RecordBlock::at(pool, low)?.key(pm);
            (low, filled) = self.write_low_block(&mut op, &key, owner)?;
        }
        if Form::<K, V>::HAS_BLOCK && Form::<K, V>::WORD_KEY {
            // P4 stores ids to free entries, too. An earlier ticket may name one, and the key that was there, which can
            // have come back to another entry.
            for i in 0..LEAF {
                op.changes(left.id_cell(i));
            }
        }
        let mut entries = self.entries_of(left, &mut op)?;
        entries.extend(self.entries_of(right, &mut op)?);
        let mut image = Image::new(LeafState::of_era(self.era), right.next(pm), low);
        Self::spread(&mut image, &entries)?;
        let copy = self.leaf(offset)?;
        filled = filled.and(pm.stream_words(copy.words(), &image.words[..leaf_words(LEAF)]));
        op.allocate(&block, owner)?;
        self.free_behind(&mut op, left, right)?;
        op.prepare(filled)?;
        // P3: the link.
        link(pool, op, left.next_cell(), offset)?;
        Ok(copy)
    }

    /// Steps P4 and P5. The lock of the copy is held, or no other thread can reach it.
    pub(crate) fn move_back(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        copy: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        let entries = self.entries_of(copy, &mut op)?;
        let mut image = left.image(pm);
        Self::spread(&mut image, &entries)?;
        // P4. The entries in any order: until P5 every key is greater than the low of the copy, so all are dead. Each
        // entry's prefix before its id: a free entry has the prefix of any key, also of one that is not greater.
        for i in 0..LEAF {
            let [id, other] = image.entry(i);
            pm.store_word(left.other_cell(i), other);
            pm.in_order();
            pm.store_word(left.id_cell(i), id);
        }
        let moved = pm.flush_words(left.words());
        self.free_behind(&mut op, left, copy)?;
        op.prepare(moved)?;
        // P5: the link.
        link(pool, op, left.next_cell(), copy.next(pm))
    }

    /// Returns the records of a leaf, which move to another.
    fn entries_of(
        &self,
        leaf: &Leaf<'_, K, V, LEAF>,
        op: &mut Op<'_, M>,
    ) -> Result<Vec<Entry>, PmError> {
        let image = leaf.image(self.pm());
        let records = self.records_of(leaf)?;
        if Form::<K, V>::HAS_BLOCK {
            // Earlier tickets may name the words that no longer own a moved record's block.
            for &i in &records {
                op.changes(leaf.id_cell(i));
                op.changes(leaf.other_cell(i));
            }
        }
        Ok(records.into_iter().map(|i| image.entry(i)).collect())
    }

    /// Stores these entries in an image, with gaps between.
    fn spread(image: &mut Image, entries: &[Entry]) -> Result<(), PmError> {
        if entries.len() > LEAF {
            let what = "more records in two leaves that merge than one has room for";
            return Err(PmError::Corrupt { what, offset: image.next() });
        }
        for i in 0..LEAF {
            let [_, other] = image.entry(i);
            image.set_entry(i, [0, other]);
        }
        for (n, entry) in entries.iter().enumerate() {
            image.set_entry(n * LEAF / entries.len(), *entry);
        }
        Ok(())
    }

    /// Finishes merges that a crash has interrupted after P3, if a leaf is the left one of any; its lock is
    /// held. `false` if another thread holds the copy's.
    pub(crate) fn finish_merges(&self, left: &Leaf<'_, K, V, LEAF>) -> Result<bool, PmError> {
        let pm = self.pm();
        if pm.load(&self.root()?.head).offset() == left.offset() {
            return Ok(true);
        }
        let own = self.lock_of(left.offset());
        for _ in 0..self.leaf_limit() {
            let next = left.next(pm);
            if next == 0 || next == left.offset() {
                break;
            }
            let copy = self.leaf(next)?;
            if self.low_of(&copy)?.cmp(&self.low_of(left)?).is_ne() {
                break;
            }
            let lock = self.lock_of(next);
            let guard = if std::ptr::eq(own, lock) { None } else { lock.try_lock(pm) };
            if guard.is_none() && !std::ptr::eq(own, lock) {
                return Ok(false);
            }
            self.move_back(left, &copy)?;
        }
        Ok(true)
    }
}
