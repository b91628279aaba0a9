//! An emptied leaf is given back.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the inner nodes forget the leaf: its left neighbour inherits its keys | P2 |
//! | P2 | tickets "live while the left neighbour's `next` leads here" of leaf and low | P3 |
//! | P3 | the left neighbour's `next`; allocation bits | unlock |
//!
//! A crash between leaves a leaf that is reached through its neighbour, as after an interrupted
//! split. Nothing is dead in the neighbour before P1 that would come to life when its range widens.
//! The first leaf has no left neighbour and stays.

use pmindex_core::{Flushed, Medium, Op, Owner, PmError};
use pmindex_index::{Key, Value};
use pmindex_record::link;

use super::access::At;
use super::entry::Sought;
use super::layout::{Form, WordsPtr};
use super::leaf::Leaf;
use super::tree::FastFair;
use super::write::Change;

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Gives the leaf of a key back, if it is (still) empty and not the first.
    #[cold]
    #[inline(never)]
    pub(crate) fn unlink(&self, key: &Sought<'_>) -> Result<(), PmError> {
        let pm = self.pm();
        loop {
            let at = self.locate(key)?;
            let Some(low) = self.low_at(&at) else {
                pm.spin();
                continue;
            };
            let Some(low) = low? else { return Ok(()) };
            // The low itself belongs to the leaf on the left.
            let left = self.locate(&low)?;
            match self.unlink_between(&left, &at, &low) {
                Some(done) => return done,
                None => pm.spin(),
            }
        }
    }

    /// Returns the low of a leaf, `None` inside if it is the first; `None` if the leaf has changed.
    #[allow(clippy::option_option, clippy::type_complexity, reason = "two kinds of nothing")]
    pub(crate) fn low_at(&self, at: &At<'_>) -> Option<Result<Option<Sought<'static>>, PmError>> {
        let pm = self.pm();
        let low = (|| {
            let leaf = self.leaf(at.leaf)?;
            if pm.load(&self.root()?.head).offset() == at.leaf {
                return Ok(None);
            }
            self.low_of(&leaf).map(Some)
        })();
        at.validate(pm).then_some(low)
    }

    /// `None` if a leaf has changed since it was located.
    fn unlink_between(
        &self,
        left: &At<'_>,
        empty: &At<'_>,
        low: &Sought<'_>,
    ) -> Option<Result<(), PmError>> {
        let pm = self.pm();
        let shared = std::ptr::eq(left.lock, empty.lock);
        if shared && left.version != empty.version {
            return None;
        }
        let guard = left.lock.try_upgrade(pm, left.version)?;
        let _other = if shared { None } else { Some(empty.lock.try_upgrade(pm, empty.version)?) };
        let held = self.leaf(left.leaf).and_then(|left| Ok((left, self.leaf(empty.leaf)?)));
        let (left, empty) = match held {
            Ok(held) => held,
            Err(error) => return Some(Err(error)),
        };
        let change = self.change(&left, guard);
        Some(self.unlink_held(&left, &empty, low, change))
    }

    fn unlink_held(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        empty: &Leaf<'_, K, V, LEAF>,
        low: &Sought<'_>,
        change: Change<'_, M>,
    ) -> Result<(), PmError> {
        let pm = self.pm();
        if !left.state(pm).is_of(self.era) {
            self.repair(left)?;
        }
        if !empty.state(pm).is_of(self.era) {
            self.repair(empty)?;
        }
        let settled = self.is_settled(left)? && self.is_settled(empty)?;
        if settled && empty.is_empty(pm) && left.next(pm) == empty.offset() {
            // P1.
            if let Err(error) = self.make_unknown(low, empty.offset()) {
                if error.is_full() {
                    change.done(); // nothing has changed
                }
                return Err(error);
            }
            if !empty.state(pm).is_of(self.era) {
                self.doubt(left); // the inner nodes may not know the leaf that comes to be its next
            }
            self.unlink_known(left, empty)?;
        }
        change.done();
        Ok(())
    }

    /// Returns `true` if a leaf, which was just [repaired](Self::repair), has no dead entries that could come to life: it is
    /// whole, or there was no room to make the next one known.
    fn is_settled(&self, leaf: &Leaf<'_, K, V, LEAF>) -> Result<bool, PmError> {
        Ok(leaf.state(self.pm()).is_of(self.era) || self.finish_merges(leaf)?)
    }

    /// Steps P2 and P3.
    pub(crate) fn unlink_known(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        empty: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        // P2: the tickets.
        self.free_behind(&mut op, left, empty)?;
        op.prepare(Flushed::nothing())?;
        // P3: the neighbour's link.
        link(pool, op, left.next_cell(), empty.next(pm))
    }

    /// Has an operation free a leaf, and its low, when the leaf before it no longer leads there.
    pub(crate) fn free_behind(
        &self,
        op: &mut Op<'_, M>,
        left: &Leaf<'_, K, V, LEAF>,
        leaf: &Leaf<'_, K, V, LEAF>,
    ) -> Result<(), PmError> {
        let (word, expect) = (left.next_cell(), leaf.offset());
        let owner = Owner { word, mask: u64::MAX, expect };
        op.free(WordsPtr::new(expect), owner)?;
        let low = leaf.low(self.pm());
        if !Form::<K, V>::WORD_KEY && low != 0 {
            op.free(WordsPtr::new(low), owner)?;
        }
        // Words of the freed leaf that earlier tickets name change with its next use.
        op.changes(leaf.next_cell());
        Ok(())
    }
}
