//! A full leaf splits, without a log.
//!
//! | step | store | durable before |
//! |------|-------|----------------|
//! | P1 | the new leaf, its `next` and low included; its ticket | P2 |
//! | P2 | the old leaf's `next` (the split is decided); allocation bits | P3 |
//! | P3 | the ids of the moved records in the old leaf become 0 | P4 if records have blocks, else unlock |
//! | P4 | the inner nodes know the new leaf ([`inner`](super::inner)) | unlock |
//!
//! From P2 on the moved records in the old leaf are dead, because their keys are greater than the
//! low of the next leaf. A crash before P4 leaves a leaf of an old era: readers heed the low and move
//! right, and the next writer does P3 and P4 ([`repair`](super::repair)). Once the new leaf is known,
//! writers reach it without a look at the old one; a moved record's block may then be used anew, and
//! a dead entry that still pointed to it would take its key from it: P3 comes before P4. Where the
//! key stands in the entry a dead one stays dead.
//!
//! The old leaf's lock is held throughout. The new leaf's records stand apart, so that there are
//! gaps for those to come.

use pmindex_core::{Flushed, Medium, Op, Owner, PmError};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::{RecordBlock, link, separator_between};

use super::entry::Sought;
use super::inner::Separator;
use super::layout::{Form, Geometry, LeafState, leaf_words};
use super::leaf::{Image, Leaf, id_word};
use super::tree::FastFair;
use super::write::Change;

/// A leaf that was just linked, and its low.
pub(crate) struct Linked {
    pub(crate) leaf: u64,
    pub(crate) low: Sought<'static>,
    pub(crate) separator: Separator,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FastFair<K, V, M, LEAF, INNER>
{
    /// Splits `left`, which `change` holds, in half; or, if `incoming` is greater than every key of
    /// the index, so that ascending keys leave full leaves.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        image: &Image,
        change: Change<'_, M>,
        incoming: &Sought<'_>,
    ) -> Result<(), IndexError> {
        let records: Vec<usize> = image.records(LEAF).collect();
        let Some(&last) = records.last().filter(|_| records.len() >= 2) else {
            let what = "a full leaf without records";
            return Err(PmError::Corrupt { what, offset: left.offset() }.into());
        };
        let appending = image.next() == 0
            && Form::<K, V>::cmp_key(&self.pool, image.entry(last), incoming)?.is_lt();
        let keep = if appending { records.len() - 1 } else { records.len().div_ceil(2) };
        let (kept, moved) = records.split_at(keep);
        let linked = self.link_right(left, image, kept[keep - 1], moved)?;
        for &i in moved {
            self.pm().store_word(left.id_cell(i), 0); // P3, made durable on the way to P4
        }
        let dropped = &left.words()[id_word(moved[0])..=id_word(last)];
        self.make_known(&linked.low, linked.separator, linked.leaf, dropped)?;
        change.done();
        self.pm().handover_point(); // the records are others' before this thread's next fence
        Ok(())
    }

    /// Steps P1 and P2: moves the records of `moved` to a new leaf.
    pub(crate) fn link_right(
        &self,
        left: &Leaf<'_, K, V, LEAF>,
        image: &Image,
        greatest_kept: usize,
        moved: &[usize],
    ) -> Result<Linked, PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let mut op = pool.op()?;
        let block = op.reserve_bytes(Geometry::<K, V, LEAF, INNER>::LEAF_BYTES, 64)?;
        let leaf = block.ptr().offset();
        let owner = Owner { word: left.next_cell(), mask: u64::MAX, expect: leaf };
        // P1: everything about the new leaf, before anything leads to it.
        let mut filled = Flushed::nothing();
        let (low, separator) = if Form::<K, V>::WORD_KEY {
            let word = image.entry(greatest_kept)[0];
            (Sought::of_word(word), Separator { word, block: 0 })
        } else {
            let left = Form::<K, V>::sought(pool, image.entry(greatest_kept))?;
            let right = Form::<K, V>::sought(pool, image.entry(moved[0]))?;
            let (low, block, written) = self.write_low(&mut op, &left, &right, owner)?;
            filled = written;
            let separator = Separator { word: low.word, block };
            (low, separator)
        };
        let word = if Form::<K, V>::WORD_KEY { separator.word } else { separator.block };
        // The new leaf is before the old one's next. If inner nodes may not know that one, as the old leaf's era says,
        // so must the new one's.
        let era = if image.state().is_of(self.era) { self.era } else { 0 };
        let mut right = Image::new(LeafState::of_era(era), image.next(), word);
        for (n, &from) in moved.iter().enumerate() {
            right.set_entry(n * LEAF / moved.len(), image.entry(from));
        }
        let words = &right.words[..leaf_words(LEAF)];
        filled = filled.and(pm.stream_words(self.leaf(leaf)?.words(), words));
        op.allocate(&block, owner)?;
        if Form::<K, V>::HAS_BLOCK {
            // Earlier tickets may name the words that no longer own a moved record's block.
            for &i in moved {
                op.changes(left.id_cell(i));
                op.changes(left.other_cell(i));
            }
        }
        op.prepare(filled)?;
        // P2: the link.
        link(pool, op, left.next_cell(), leaf)?;
        pool.note_split();
        Ok(Linked { leaf, low, separator })
    }

    /// Returns a block with the low of a new leaf, which starts between two keys of bytes; its offset. Durable
    /// before any leaf points to it.
    pub(crate) fn write_low(
        &self,
        op: &mut Op<'_, M>,
        left: &Sought<'_>,
        right: &Sought<'_>,
        owner: Owner<'_>,
    ) -> Result<(Sought<'static>, u64, Flushed), PmError> {
        let separator = separator_between(&left.bytes, &right.bytes, owner.expect)?;
        let low = Sought::of_bytes(separator.into_owned());
        let (block, written) = self.write_low_block(op, &low.bytes, owner)?;
        Ok((low, block, written))
    }

    /// As [`write_low`](Self::write_low), of a low that is known.
    pub(crate) fn write_low_block(
        &self,
        op: &mut Op<'_, M>,
        low: &[u8],
        owner: Owner<'_>,
    ) -> Result<(u64, Flushed), PmError> {
        let reserved = op.reserve_bytes(RecordBlock::size_for(low.len(), 0), 8)?;
        let written = RecordBlock::write(&self.pool, reserved.ptr(), low, &[])?;
        op.allocate(&reserved, owner)?;
        Ok((reserved.ptr().offset(), written))
    }
}
