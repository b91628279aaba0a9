//! The pieces of a checkpoint: a list in the pool, which another one replaces as a whole.
//!
//! ```text
//! step  store                                                durable before
//! P1    the new pieces; tickets of these and of the old ones P2
//! P2    the anchor = the new list (LIN); allocation bits     reuse of the old pieces
//! ```
//!
//! So it is if an operation has tickets for all of them. A pool that was created small has few, however far it
//! grows; there several operations build a list, and free the other one:
//!
//! ```text
//! B1    some of the pieces, the last ones first; tickets     B2
//! B2    `BUILDING` = the first of these; bits                the next B1, S
//! S     `REPLACED`, anchor = the new list (LIN),             R1
//!       `RETIRING` = the old list, `BUILDING` = none,
//!       `REPLACED` = none: one line, in this order
//! R1    tickets of some old pieces, the first ones first     R2
//! R2    `RETIRING` = the piece after these; bits             their reuse, the next R1
//! ```
//!
//! **After a crash** nothing is written before the next checkpoint, or a failed attempt: it finishes S if it has
//! replaced the list, else takes back what was built, and frees what is retiring ([`Lists::settled`]).
//!
//! **Earlier versions** know the anchor only. It always leads to a whole checkpoint, so they read and
//! replace it, and leave the other pieces allocated. One that comes between the stores of S may free pieces that
//! a word here still names: `REPLACED` tells, and such a word leads nowhere.

use pmindex_core::{Flushed, LINE, Medium, Op, Owner, PPtr, PmError, PmU64};
use pmindex_log::{LINE_WORDS, LogRoot};

use super::Log;
use super::layout::{BUILDING, CheckpointPiece, REPLACED, RETIRING, piece_checksum};

/// Words of a piece, unless that makes too many pieces.
pub(super) const PIECE_WORDS: usize = (128 << 10) / 8 - LINE_WORDS;
/// About the most pieces: in a pool of the usual size, a ticket for each of the old and the new.
const PIECES: usize = 40;

/// The lists of pieces: the offset of the first one of each; 0 if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lists {
    /// The checkpoint.
    pub(super) anchor: u64,
    /// The last pieces of the next checkpoint.
    pub(super) building: u64,
    /// The last pieces of an earlier one.
    pub(super) retiring: u64,
    /// While the checkpoint is replaced: the old one, and [`SWITCHING`].
    pub(super) replaced: u64,
}

/// Distinguishes that no checkpoint is replaced from that none is being replaced: a bit that no offset has.
const SWITCHING: u64 = 1;

impl Lists {
    /// Returns the lists as they are to be after an interrupted S: not one piece is in two of them.
    pub(super) fn settled(self) -> Self {
        let Self { anchor, building, retiring, replaced } = self;
        let old = replaced & !SWITCHING;
        let none = Self { building: 0, replaced: 0, ..self };
        match () {
            () if replaced == 0 => self,
            // All but the last stores.
            () if retiring != 0 => none,
            () if anchor == old => Self { replaced: 0, ..self },
            () if anchor == building => Self { retiring: old, ..none },
            // There was no old list; or an earlier version has freed one of the two lists, and which one is not
            // known.
            () => none,
        }
    }
}

impl<M: Medium> Log<M> {
    /// Replaces the checkpoint, at once and as a whole; [`free_replaced`](Self::free_replaced) frees what is left
    /// of the old one then. If that fails, nothing has changed.
    pub(super) fn replace_pieces(&self, words: &[u64]) -> Result<(), PmError> {
        self.settle_pieces()?;
        let (pool, old) = (&**self.pool(), self.pieces()?);
        // Small pieces in a small pool, where large blocks are not to be had.
        let usual = self.piece_words.min(pool.len() as usize / 512);
        let most = pool.largest_block() as usize / 8 - LINE_WORDS;
        let parts = words.chunks(usual.max(words.len().div_ceil(PIECES)).min(most));
        let parts: Vec<&[u64]> = parts.collect();
        if parts.len() + old.len() <= pool.tickets_per_op() {
            return self.replace_at_once(&parts, &old);
        }
        let replaced = self.build(&parts).and_then(|()| self.switch());
        if replaced.is_err() {
            let _ = self.settle_pieces(); // gives room back; if that fails, the next checkpoint does it
        }
        replaced
    }

    /// Steps P1 and P2.
    fn replace_at_once(&self, parts: &[&[u64]], old: &[u64]) -> Result<(), PmError> {
        let root = self.pool().get(self.base.root())?;
        let mut op = self.pool().op()?;
        let (first, filled) = self.add(&mut op, parts, (&root.anchor, 0, 0))?;
        for &piece in old {
            op.free(PPtr::<PmU64>::new(piece), owner(&root.anchor, old[0]))?;
        }
        op.prepare(filled)?; // P1, durable before: P2
        self.commit(op, &root.anchor, first) // P2, LIN
    }

    /// Steps B1 and B2, as often as necessary.
    fn build(&self, parts: &[&[u64]]) -> Result<(), PmError> {
        let root = self.pool().get(self.base.root())?;
        let building = &root.notes[BUILDING];
        let (mut after, mut left) = (0, 0);
        for group in parts.rchunks(self.pool().tickets_per_op()) {
            let mut op = self.pool().op()?;
            let (first, filled) = self.add(&mut op, group, (building, after, left))?;
            op.prepare(filled)?; // B1, durable before: B2
            self.commit(op, building, first)?; // B2
            after = first;
            left += group.iter().map(|part| part.len() as u64).sum::<u64>();
        }
        Ok(())
    }

    /// Reserves and writes pieces, and stages their allocation for when `word` names the first one. They come before
    /// a piece `after`, and `left` words in that and those behind it. Returns the first, and the flush.
    fn add<'p>(
        &'p self,
        op: &mut Op<'p, M>,
        parts: &[&[u64]],
        (word, after, mut left): (&'p PmU64, u64, u64),
    ) -> Result<(u64, Flushed), PmError> {
        let (pool, pm) = (&**self.pool(), self.pool().pm());
        let mut blocks = Vec::with_capacity(parts.len());
        for part in parts {
            let bytes = size_of::<CheckpointPiece>() + 8 * part.len();
            blocks.push(op.reserve_bytes(bytes as u64, LINE as u64)?);
        }
        let (mut next, mut filled) = (after, Flushed::nothing());
        for (block, part) in blocks.iter().zip(parts).rev() {
            left += part.len() as u64;
            let sum = piece_checksum(next, left, part);
            let mut image = vec![next, part.len() as u64, left, sum, 0, 0, 0, 0];
            image.extend_from_slice(part);
            image.resize(image.len().next_multiple_of(LINE_WORDS), 0);
            next = block.ptr().offset();
            let cells = pool.words(next, LINE_WORDS + part.len())?;
            filled = filled.and(pm.stream_words(cells, &image[..cells.len()]));
        }
        for block in &blocks {
            op.allocate(block, owner(word, next))?;
        }
        Ok((next, filled))
    }

    /// Stores a word, on which the operation's tickets depend.
    #[track_caller]
    fn commit(&self, mut op: Op<'_, M>, word: &PmU64, to: u64) -> Result<(), PmError> {
        let pm = self.pool().pm();
        pm.store(word, to); // LIN
        let flushed = op.seal().and(pm.flush(word));
        let durable = pm.fence(flushed)?; // DUR
        op.finish(durable);
        Ok(())
    }

    /// Step S: the list that is built replaces the checkpoint.
    fn switch(&self) -> Result<(), PmError> {
        let (root, lists) = (self.pool().get(self.base.root())?, self.lists()?);
        let (pm, op) = (self.pool().pm(), self.begin_switch(root)?);
        let replaced = lists.anchor | SWITCHING;
        pm.store(&root.notes[REPLACED], replaced);
        pm.in_order();
        pm.store(&root.anchor, lists.building); // LIN
        pm.in_order();
        self.end_switch(op, root, Lists { anchor: lists.building, replaced, ..lists }.settled())
    }

    /// Begins an operation that changes the root's words as such: tickets of earlier ones that name them are void.
    fn begin_switch(&self, root: &LogRoot) -> Result<Op<'_, M>, PmError> {
        let mut op = self.pool().op()?;
        for word in [&root.anchor, &root.notes[BUILDING], &root.notes[RETIRING]] {
            op.changes(word);
        }
        op.prepare(Flushed::nothing())?; // durable before: S
        Ok(op)
    }

    /// The last stores of S, in whose order each state but the last says that they are to be done.
    fn end_switch(&self, op: Op<'_, M>, root: &LogRoot, lists: Lists) -> Result<(), PmError> {
        let pm = self.pool().pm();
        pm.store(&root.notes[RETIRING], lists.retiring);
        pm.in_order();
        pm.store(&root.notes[BUILDING], lists.building);
        pm.in_order();
        self.commit(op, &root.notes[REPLACED], 0) // DUR(the checkpoint)
    }

    /// Finishes or undoes what an attempt left, which a crash or an error ended.
    fn settle_pieces(&self) -> Result<(), PmError> {
        let (root, lists) = (self.pool().get(self.base.root())?, self.lists()?);
        let settled = lists.settled();
        if settled != lists {
            self.end_switch(self.begin_switch(root)?, root, settled)?;
        }
        self.free_list(&root.notes[BUILDING])?;
        self.free_list(&root.notes[RETIRING])
    }

    /// Frees what is left of the checkpoint before this one.
    pub(super) fn free_replaced(&self) -> Result<(), PmError> {
        self.free_list(&self.pool().get(self.base.root())?.notes[RETIRING])
    }

    /// Frees the list that `word` names, in steps R1 and R2, as often as necessary.
    fn free_list(&self, word: &PmU64) -> Result<(), PmError> {
        let pool = &**self.pool();
        let pieces = self.list(pool.pm().load(word))?;
        let some = pool.tickets_per_op();
        for (n, group) in pieces.chunks(some).enumerate() {
            let mut op = pool.op()?;
            for &piece in group {
                op.free(PPtr::<PmU64>::new(piece), owner(word, group[0]))?;
            }
            op.prepare(Flushed::nothing())?; // R1, durable before: R2
            self.commit(op, word, pieces.get((n + 1) * some).copied().unwrap_or(0))?; // R2
        }
        Ok(())
    }

    /// Returns where the lists begin.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if two that are settled begin at the same piece.
    pub(super) fn lists(&self) -> Result<Lists, PmError> {
        let (root, pm) = (self.pool().get(self.base.root())?, self.pool().pm());
        let [building, retiring, replaced] =
            [BUILDING, RETIRING, REPLACED].map(|note| pm.load(&root.notes[note]));
        let lists = Lists { anchor: pm.load(&root.anchor), building, retiring, replaced };
        let Lists { anchor, building, retiring, .. } = lists.settled();
        let once = |list: u64, others: [u64; 2]| list == 0 || !others.contains(&list);
        if once(anchor, [building, retiring]) && once(building, [anchor, retiring]) {
            Ok(lists)
        } else {
            let offset = self.base.root().offset();
            Err(PmError::Corrupt { what: "a checkpoint that is two things at once", offset })
        }
    }

    /// Lists the blocks of the checkpoint.
    pub(super) fn pieces(&self) -> Result<Vec<u64>, PmError> {
        self.list(self.lists()?.anchor)
    }

    /// Lists the blocks of the checkpoint, and of what a crash has left of others.
    pub(super) fn all_pieces(&self) -> Result<Vec<u64>, PmError> {
        let Lists { anchor, building, retiring, .. } = self.lists()?.settled();
        Ok([self.list(anchor)?, self.list(building)?, self.list(retiring)?].concat())
    }

    fn list(&self, first: u64) -> Result<Vec<u64>, PmError> {
        let mut pieces = Vec::new();
        self.for_each_piece(first, |piece, _| {
            pieces.push(piece);
            Ok(())
        })?;
        Ok(pieces)
    }

    /// Visits the pieces of a list, with their offsets. Ends for any content of the file: the totals descend.
    pub(super) fn for_each_piece<'l>(
        &'l self,
        first: u64,
        mut visit: impl FnMut(u64, &'l CheckpointPiece) -> Result<(), PmError>,
    ) -> Result<(), PmError> {
        let (pool, pm) = (&**self.pool(), self.pool().pm());
        let mut at = PPtr::<CheckpointPiece>::new(first);
        let mut expected = None;
        while !at.is_null() {
            let piece = pool.get(at)?;
            let (words, total) = (pm.load(&piece.words), pm.load(&piece.total));
            let fits = expected.is_none_or(|expected| expected == total);
            if !fits || words == 0 || words > total || total > pool.len() / 8 {
                return Err(PmError::Corrupt { what: "a checkpoint", offset: at.offset() });
            }
            visit(at.offset(), piece)?;
            expected = Some(total - words);
            at = pm.load(&piece.next);
        }
        if expected.is_some_and(|left| left != 0) {
            let offset = self.base.root().offset();
            return Err(PmError::Corrupt { what: "a checkpoint without its end", offset });
        }
        Ok(())
    }

    /// Makes the pieces of checkpoints small, for tests of many of them.
    #[doc(hidden)]
    pub fn set_piece_words(&mut self, words: usize) {
        self.piece_words = words;
    }
}

/// The owner of pieces that are live while a word names the first of them.
fn owner(word: &PmU64, first: u64) -> Owner<'_> {
    Owner { word, mask: u64::MAX, expect: first }
}

const _: () = assert!(size_of::<CheckpointPiece>() == 8 * LINE_WORDS);

#[cfg(test)]
mod tests;
