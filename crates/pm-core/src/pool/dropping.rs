//! Dropping an index with all its blocks.
//!
//! The directory does not know the kinds of indexes, so the caller that drops an index says which blocks
//! belong to it; for that purpose the index is opened under a name that no other caller knows. If one
//! operation can free all blocks, it does (`directory`). Otherwise they are written down first, one bit per
//! block, in a list that the entry leads to. Then the entry says that the index is being dropped, and the
//! blocks are freed slice by slice:
//!
//! ```text
//! step  store                                               durable before
//! D1    a piece of the list; its ticket                     D2
//! D2    list = the piece; allocation bits                   the next D1, D3
//! D3    commit: being dropped (LIN)                         D4, return (DUR)
//! D4    tickets of a slice: live until `done` moves         D5
//! D5    done = behind the slice; allocation bits            the next D4, D6
//! D6    ticket of a piece whose blocks are free             D7
//! D7    list = the next piece; allocation bits              the next D4, D8
//! D8    commit = 0: the place is free
//! ```
//!
//! A crash before D3 leaves the index as it was, and a list that owns only its own pieces. A crash after D3
//! leaves the blocks that the list still names. The audit knows both, and the following operations of the
//! pool free them, a slice each; [`Pool::trim`] frees all of them. An index that was being dropped does not
//! open again, and freeing its blocks does not depend on its kind: the list is enough.

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::alloc::Owner;
use crate::cell::{PmU64, words_of};
use crate::checksum::checksum;
use crate::error::PmError;
use crate::media::{Flushed, Medium};
use crate::ptr::PPtr;

use super::Pool;
use super::claim::OpenIndex;
use super::directory::{IndexEntry, IndexId, Place, dropped_commit, lookup};
use super::layout::{DIRECTORY_ENTRIES, DropList, NAME_MAX};

const SEED: u64 = 0x6c65_6176_696e_6700;
/// The words of a piece's head.
const HEAD: usize = size_of::<DropList>() / 8;
/// The bytes of a piece: the usual size, and the size when there is no room for that.
const PIECE: [u64; 2] = [4096, 512];
/// The largest number of blocks in a slice.
const SLICE: usize = 124;

/// The pool's state in DRAM about indexes that are being dropped.
#[derive(Debug, Default)]
pub(super) struct Drops {
    /// Held by the thread that frees a slice; locked before the directory's lock.
    one: Mutex<()>,
    /// `true` if an earlier process, or a failure, left blocks to free.
    unfinished: AtomicBool,
}

impl Drops {
    pub(super) fn note_unfinished(&self) {
        self.unfinished.store(true, Release);
    }
}

/// Returns the name under which an index is opened that is to be dropped: longer than any index's name.
fn leaving_name(id: IndexId) -> String {
    format!("{:width$}{}", "the index being dropped", id.0, width = NAME_MAX)
}

/// Returns the index that such a name stands for.
pub(super) fn leaving_place(name: &str) -> Option<IndexId> {
    let place = name.get(NAME_MAX..).filter(|place| !place.is_empty())?;
    let id = IndexId(place.parse().ok()?);
    (leaving_name(id) == name).then_some(id)
}

/// A piece of a list, checked.
struct DropListPart<'p> {
    head: &'p DropList,
    entries: &'p [PmU64],
}

/// An index that is being dropped; it exists again if dropping fails before D3.
struct Leaving<'p, M: Medium> {
    pool: &'p Pool<M>,
    entry: Arc<IndexEntry>,
}

impl<M: Medium> Drop for Leaving<'_, M> {
    fn drop(&mut self) {
        let place = &mut self.pool.pm().lock(&self.pool.directory.0)[usize::from(self.entry.id.0)];
        // The place may be that of the next index by now, and even of one that is leaving.
        if matches!(place, Place::Leaving(entry) if Arc::ptr_eq(entry, &self.entry)) {
            *place = Place::Taken(IndexEntry::clone(&self.entry));
        }
    }
}

impl<M: Medium> Pool<M> {
    /// Removes an index and frees its blocks; returns `false` if there is none of this name. `blocks` is
    /// called with a name under which the index opens, and which no other caller knows; it returns the
    /// offsets of all blocks, and must have closed the index by then. (The root block need not be among
    /// them.)
    ///
    /// When this returns, or the process ends earlier, the index exists completely or not at all. Blocks that
    /// a crash leaves, or that cannot be freed yet when the index is gone, are freed by the pool's next
    /// operations, a slice each, or by [`trim`](Self::trim). Other threads can use the pool meanwhile.
    ///
    /// # Errors
    /// [`PmError::AlreadyOpen`] if it is open; those of `blocks`; [`PmError::Full`] if the pool has no room
    /// for the list of its blocks, which takes 16 bytes for up to 64 blocks (an index that was cleared first
    /// has few blocks). Those of [`find_index`](Self::find_index) and [`op`](Self::op). The index stays in all
    /// these cases.
    ///
    /// # Cost
    /// Up to 124 blocks: 2 fences. More: 2 fences for each 124, and for each 250 words of bitmaps that
    /// they are in.
    ///
    /// # Durability
    /// Durable on return.
    pub fn drop_index<E: From<PmError>>(
        &self,
        name: &str,
        blocks: impl FnOnce(&str) -> Result<Vec<u64>, E>,
    ) -> Result<bool, E> {
        self.check_writable()?;
        let Some(leaving) = self.take_leave(name)? else { return Ok(false) };
        let mut owned = blocks(&leaving_name(leaving.entry.id))?;
        let open = self.claims.take_index(IndexEntry::clone(&leaving.entry))?;
        owned.push(open.block());
        owned.sort_unstable();
        owned.dedup();
        if owned.len() <= SLICE.min(self.tickets_per_op()) {
            self.remove(open, &owned)?;
        } else {
            self.drop_listed(open, &owned)?;
        }
        Ok(true)
    }

    /// Removes an index that consists of its root block only; returns `false` if there is none of this name.
    /// If it has other blocks, the pool loses them: see [`drop_index`](Self::drop_index).
    ///
    /// # Errors
    /// Those of [`drop_index`](Self::drop_index).
    ///
    /// # Cost
    /// 2 fences, 3 lines.
    ///
    /// # Durability
    /// Durable on return.
    pub fn drop_root(&self, name: &str) -> Result<bool, PmError> {
        self.drop_index(name, |_| Ok(Vec::new()))
    }

    /// Returns the indexes that are being dropped: they no longer exist, but some of their blocks are
    /// not free yet.
    pub fn indexes_being_dropped(&self) -> Vec<IndexEntry> {
        let dropped = |place: &Place| match place {
            Place::Dropped(entry) => Some(entry.clone()),
            _ => None,
        };
        self.pm().lock(&self.directory.0).iter().filter_map(dropped).collect()
    }

    /// Prevents an index from being opened by its name.
    fn take_leave(&self, name: &str) -> Result<Option<Leaving<'_, M>>, PmError> {
        let mut places = self.pm().lock(&self.directory.0);
        let Some(entry) = lookup(&places, name)? else { return Ok(None) };
        let place = &mut places[usize::from(entry.id.0)];
        if matches!(place, Place::Leaving(_)) {
            return Err(PmError::AlreadyOpen { what: format!("index {name:?}") });
        }
        drop(self.claims.take_index(entry.clone())?); // it is not open
        let entry = Arc::new(entry);
        *place = Place::Leaving(Arc::clone(&entry));
        Ok(Some(Leaving { pool: self, entry }))
    }

    /// Drops an index by a list of its blocks.
    fn drop_listed(&self, open: OpenIndex, blocks: &[u64]) -> Result<(), PmError> {
        let pm = self.pm();
        let (id, entry) = (open.id, self.directory_entry(open.id)?);
        {
            let _one = pm.lock(&self.drops.one);
            self.forget_list(id)?; // of an earlier attempt
        }
        if let Err(error) = self.write_list(id, blocks) {
            let _one = pm.lock(&self.drops.one);
            if self.forget_list(id).is_err() {
                self.drops.note_unfinished();
            }
            return Err(error);
        }
        self.settle(&entry.commit)?;
        // D3, LIN(drop_index); durable before it: the list
        pm.store(&entry.commit, dropped_commit(&open));
        pm.persist(&entry.commit)?; // DUR(drop_index)
        pm.lock(&self.directory.0)[usize::from(id.0)] = Place::Dropped((*open).clone());
        drop(open); // the next owner of the root block is free to claim it
        // The index no longer exists, whether or not all of its blocks can be freed now.
        loop {
            let _one = pm.lock(&self.drops.one);
            match self.free_slice(id) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(_) => {
                    self.drops.note_unfinished();
                    return Ok(());
                }
            }
        }
    }

    /// D1 and D2 for all blocks, which are sorted.
    fn write_list(&self, id: IndexId, blocks: &[u64]) -> Result<(), PmError> {
        let mut entries: Vec<[u64; 2]> = Vec::new();
        for &block in blocks {
            let (word, bit) = self.place_of_block(block)?;
            match entries.last_mut() {
                Some([last, bits]) if *last == word => *bits |= 1 << bit,
                _ => entries.push([word, 1 << bit]),
            }
        }
        let mut rest = &entries[..];
        while !rest.is_empty() {
            let written = self.write_piece(id, rest)?;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// D1 and D2 for the first of these entries; returns their number.
    fn write_piece(&self, id: IndexId, entries: &[[u64; 2]]) -> Result<usize, PmError> {
        let (pm, list) = (self.pm(), &self.directory_entry(id)?.list);
        let mut op = self.op()?;
        let (block, bytes) = match op.reserve_bytes(PIECE[0], 64) {
            Err(PmError::Full { .. } | PmError::NoSpace { .. }) => {
                (op.reserve_bytes(PIECE[1], 64)?, PIECE[1])
            }
            block => (block?, PIECE[0]),
        };
        let at = block.ptr().cast::<DropList>();
        let count = entries.len().min(bytes as usize / 16 - HEAD / 2);
        let next = pm.load(list);
        let mut words = vec![0; HEAD];
        words.extend(entries[..count].iter().flatten());
        words[0] = next.offset();
        words[2] = count as u64;
        words[3] = sum(id, at, next, &words[HEAD..]);
        let cells = self.words(at.offset(), words.len())?;
        // D1
        pm.write_words(cells, &words);
        let filled = pm.flush_words(cells);
        op.allocate(&block, Owner::pointer(list, at))?;
        op.prepare(filled)?; // durable before: D2
        // D2
        pm.store(list, at);
        let flushed = op.seal().and(pm.flush(list));
        let durable = pm.fence(flushed)?; // durable before: D3
        op.finish(durable);
        Ok(count)
    }

    /// Executes one of the steps D4 to D8: frees a slice, a piece or the entry. Returns whether the entry is
    /// still there. `Drops::one` is held.
    fn free_slice(&self, id: IndexId) -> Result<bool, PmError> {
        let (pm, entry) = (self.pm(), self.directory_entry(id)?);
        if !matches!(pm.lock(&self.directory.0)[usize::from(id.0)], Place::Dropped(_)) {
            return Ok(false); // another thread has freed the rest
        }
        let at = pm.load(&entry.list);
        if at.is_null() {
            // D8; durable before it: the end of the list
            pm.store(&entry.commit, 0);
            pm.persist(&entry.commit)?;
            pm.lock(&self.directory.0)[usize::from(id.0)] = Place::Free;
            return Ok(false);
        }
        let piece = self.piece(id, at)?;
        let done = pm.load(&piece.head.done);
        let mut blocks = self.blocks_of(&piece, done).peekable();
        if blocks.peek().is_none() {
            self.free_piece(id, at)?;
            return Ok(true);
        }
        let mut op = self.op()?;
        let mut behind = done;
        let owner = Owner { word: &piece.head.done, mask: u64::MAX, expect: done };
        for next in blocks.take(SLICE.min(self.tickets_per_op())) {
            let (block, end) = next?;
            op.free(PPtr::<PmU64>::new(block), owner)?; // D4
            behind = end;
        }
        op.prepare(Flushed::nothing())?; // durable before: D5
        pm.store(&piece.head.done, behind); // D5
        let flushed = op.seal().and(pm.flush(&piece.head.done));
        let durable = pm.fence(flushed)?;
        op.finish(durable);
        Ok(true)
    }

    /// D6 and D7: frees the first piece of a list.
    fn free_piece(&self, id: IndexId, at: PPtr<DropList>) -> Result<(), PmError> {
        let (pm, list) = (self.pm(), &self.directory_entry(id)?.list);
        let next = pm.load(&self.piece(id, at)?.head.next);
        let mut op = self.op()?;
        op.free(at, Owner::pointer(list, at))?; // D6
        op.prepare(Flushed::nothing())?; // durable before: D7
        pm.store(list, next); // D7
        let flushed = op.seal().and(pm.flush(list));
        let durable = pm.fence(flushed)?;
        op.finish(durable);
        Ok(())
    }

    /// Frees the list of an index that stays.
    fn forget_list(&self, id: IndexId) -> Result<(), PmError> {
        let entry = self.directory_entry(id)?;
        loop {
            let at = self.pm().load(&entry.list);
            if at.is_null() {
                return Ok(());
            }
            self.free_piece(id, at)?;
        }
    }

    /// Frees a slice of the blocks that were left, if there are any; each operation that begins calls this.
    /// Blocks that cannot be freed because the list is damaged stay, and the audit reports them.
    #[inline]
    pub(crate) fn go_on_dropping(&self) {
        if self.drops.unfinished.load(Acquire) {
            self.free_unfinished();
        }
    }

    /// Does nothing while another thread, or the caller itself, holds one of the locks.
    #[cold]
    fn free_unfinished(&self) {
        if self.facts.read_only {
            return;
        }
        let Some(_one) = self.drops.one.try_lock() else { return };
        let Some(places) = self.directory.0.try_lock() else { return };
        let next = self.next_unfinished(&places);
        drop(places);
        match next.and_then(|next| next.map(|next| self.step(next)).transpose()) {
            Ok(Some(())) | Err(PmError::Busy { .. }) => {} // a later operation goes on
            Ok(None) | Err(_) => self.drops.unfinished.store(false, Release),
        }
    }

    /// Frees all blocks that are left of indexes that are being dropped.
    pub(crate) fn finish_drops(&self) -> Result<(), PmError> {
        if !self.drops.unfinished.load(Acquire) {
            return Ok(());
        }
        loop {
            let _one = self.pm().lock(&self.drops.one);
            let next = self.next_unfinished(&self.pm().lock(&self.directory.0))?;
            let Some(next) = next else {
                self.drops.unfinished.store(false, Release);
                return Ok(());
            };
            self.step(next)?;
        }
    }

    /// Returns the next index with blocks or a list left, and whether the index is gone.
    fn next_unfinished(&self, places: &[Place]) -> Result<Option<(IndexId, bool)>, PmError> {
        for (at, place) in (0..).zip(places) {
            let id = IndexId(at);
            match place {
                Place::Dropped(_) => return Ok(Some((id, true))),
                Place::Taken(_) if !self.pm().load(&self.directory_entry(id)?.list).is_null() => {
                    return Ok(Some((id, false)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn step(&self, (id, gone): (IndexId, bool)) -> Result<(), PmError> {
        if gone { self.free_slice(id).map(drop) } else { self.forget_list(id) }
    }

    /// Returns a piece of the list of an index.
    fn piece(&self, id: IndexId, at: PPtr<DropList>) -> Result<DropListPart<'_>, PmError> {
        let pm = self.pm();
        let head = self.get(at)?;
        let count = usize::try_from(pm.load(&head.count)).unwrap_or(usize::MAX);
        if count > PIECE[0] as usize / 16 - HEAD / 2 {
            return Err(damaged(at));
        }
        let entries = self.words(at.offset() + words_of(head).len() as u64 * 8, 2 * count)?;
        let mut words = vec![0; 2 * count];
        pm.read_words(entries, &mut words);
        if pm.load(&head.checksum) != sum(id, at, pm.load(&head.next), &words) {
            return Err(damaged(at));
        }
        Ok(DropListPart { head, entries })
    }

    /// Returns the blocks of a piece from a position on, each with the position behind it.
    fn blocks_of<'a>(
        &'a self,
        piece: &DropListPart<'a>,
        from: u64,
    ) -> impl Iterator<Item = Result<(u64, u64), PmError>> + use<'a, M> {
        let entries = piece.entries;
        (from..entries.len() as u64 * 32).filter_map(move |position| {
            let (entry, bit) = ((position / 64) as usize, (position % 64) as u32);
            if self.pm().load(&entries[2 * entry + 1]) >> bit & 1 == 0 {
                return None;
            }
            let block = self.block_at_place(self.pm().load(&entries[2 * entry]), bit);
            Some(block.map(|block| (block, position + 1)))
        })
    }

    /// Returns the blocks of indexes that are being dropped, and of their lists.
    pub(crate) fn blocks_being_dropped(&self) -> Result<Vec<u64>, PmError> {
        let mut found = Vec::new();
        let places = self.pm().lock(&self.directory.0).clone();
        for (at, place) in (0..).zip(&places).take(DIRECTORY_ENTRIES) {
            if matches!(place, Place::Free | Place::Damaged) {
                continue;
            }
            let id = IndexId(at);
            let mut next = self.pm().load(&self.directory_entry(id)?.list);
            let mut pieces = self.len() / PIECE[1];
            while !next.is_null() {
                let piece = self.piece(id, next)?;
                pieces = pieces.checked_sub(1).ok_or(damaged(next))?;
                found.push(next.offset());
                if matches!(place, Place::Dropped(_)) {
                    for block in self.blocks_of(&piece, self.pm().load(&piece.head.done)) {
                        found.push(block?.0);
                    }
                }
                next = self.pm().load(&piece.head.next);
            }
        }
        Ok(found)
    }
}

fn damaged(at: PPtr<DropList>) -> PmError {
    PmError::Corrupt { what: "a list of blocks to free", offset: at.offset() }
}

/// Computes the checksum of a piece.
fn sum(id: IndexId, at: PPtr<DropList>, next: PPtr<DropList>, entries: &[u64]) -> u64 {
    let head = [u64::from(id.0), at.offset(), next.offset(), entries.len() as u64];
    checksum(SEED, head.into_iter().chain(entries.iter().copied()))
}
