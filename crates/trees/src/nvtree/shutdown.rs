//! The clean-shutdown image: the leaves in order, each with its fence, so that the next opening
//! need not read them. One-word keys only; others are read.
//!
//! The image is a list of pieces, each allocated into the pointer before it, the first into the
//! root's `image`. Each says how many leaves it and those after it name, so an image counts when it
//! is complete: an interrupted shutdown leaves none. Opening frees the pieces, the first one first
//! and each durably, before the index can change; so an image that counts is never older than the
//! index, whoever was killed when. A damaged one is ignored.

use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Shape, Value};
use pmindex_record::hash_words;

use super::inner::{InnerTree, LeafRef, Route};
use super::layout::{Piece, Root};
use super::leaf::{Leaf, link, prepare_free};
use super::tree::NvTree;

/// Pairs in a piece: 32 KiB.
const PAIRS: usize = 2044;
const HEADER_WORDS: usize = size_of::<Piece>() / 8;

/// What an image says.
pub(super) struct Saved {
    pub(super) leaves: Vec<LeafRef>,
    pub(super) records: u64,
}

fn has_image<K: Key>() -> bool {
    K::SHAPE == Shape::Inline(1)
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    NvTree<K, V, M, LEAF, INNER>
{
    /// Saves the image that makes the next opening fast, and ends.
    ///
    /// # Cost
    /// Flushes the header of each leaf, writes 16 bytes for it, and a few fences for 2,000 leaves.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`]. A pool without room for the image is none: the next opening
    /// reads the leaves.
    pub fn close(self) -> Result<(), IndexError> {
        let pool = &*self.pool;
        if !has_image::<K>() || pool.is_read_only() {
            return Ok(());
        }
        let root = self.root()?;
        match self.save(root) {
            Err(PmError::DurabilityLost(lost)) => Err(lost.into()),
            Err(_) => Ok(free_pieces(pool, root)?),
            Ok(()) => Ok(()),
        }
    }

    fn save(&self, root: &Root) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let pairs = self.inner.pairs();
        // Who opens with the image does not look at the leaves: their hints must be right.
        let mut hints = Flushed::nothing();
        for [_, leaf] in &pairs {
            hints = hints.and(pm.flush_words(self.leaf(*leaf)?.header()));
        }
        let mut records = self.counts.iter().fold(0u64, |sum, count| {
            sum.wrapping_add(count.load(std::sync::atomic::Ordering::Relaxed))
        });
        let mut cell = root.image.as_word();
        let mut total = pairs.len() as u64;
        for part in pairs.chunks(PAIRS) {
            let leaves = part.len() as u64;
            let checksum = hash_words(part.as_flattened());
            let mut words = vec![0, leaves, total, records, checksum, 0, 0, 0];
            words.extend_from_slice(part.as_flattened());
            (total, records) = (total - leaves, 0);
            let mut op = pool.op()?;
            let block = op.reserve_bytes(8 * words.len() as u64, 64)?;
            let offset = block.ptr().offset();
            let piece = pool.words(offset, words.len())?;
            let filled = pm.stream_words(piece, &words);
            op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
            let first = std::mem::replace(&mut hints, Flushed::nothing());
            op.prepare(filled.and(first))?; // durable before: the pointer
            link(pool, op, cell, offset)?;
            cell = &piece[0];
        }
        Ok(())
    }
}

/// Takes the image, if there is one that counts; afterwards there is none.
pub(super) fn take<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    root: &Root,
    inner: &InnerTree<K, INNER>,
    limit: u64,
) -> Result<Option<Saved>, PmError> {
    if !has_image::<K>() || pool.pm().load(&root.image).is_null() {
        return Ok(None);
    }
    let saved = read::<K, V, M, LEAF, INNER>(pool, root, inner, limit);
    free_pieces(pool, root)?; // durable before: any change of the index
    Ok(saved)
}

/// Frees the pieces one by one.
fn free_pieces<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<(), PmError> {
    let pm = pool.pm();
    loop {
        let first = pm.load(&root.image);
        if first.is_null() {
            return Ok(());
        }
        let piece = pool.get(first)?;
        let next = pm.load(&piece.next);
        let owner = Owner::pointer(&root.image, first);
        let op = prepare_free(pool, first.offset(), owner, Some(piece.next.as_word()))?;
        link(pool, op, root.image.as_word(), next.offset())?;
    }
}

/// Reads and verifies the image.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    root: &Root,
    inner: &InnerTree<K, INNER>,
    limit: u64,
) -> Option<Saved> {
    let pm = pool.pm();
    let mut saved = Saved { leaves: Vec::new(), records: 0 };
    let mut next = pm.load(&root.image);
    let total = pm.load(&pool.get(next).ok()?.total);
    let mut last = None;
    let mut words = Vec::new();
    while !next.is_null() {
        let piece = pool.get(next).ok()?;
        let leaves = pm.load(&piece.leaves);
        if leaves == 0 || leaves > PAIRS as u64 || saved.leaves.len() as u64 + leaves > limit {
            return None;
        }
        let pairs: &[PmU64] =
            pool.words(next.offset() + 8 * HEADER_WORDS as u64, 2 * leaves as usize).ok()?;
        words.resize(pairs.len(), 0);
        pm.read_words(pairs, &mut words);
        if hash_words(&words) != pm.load(&piece.checksum) {
            return None;
        }
        for &[fence, leaf] in words.as_chunks::<2>().0 {
            if last.is_some_and(|last| saved.leaves.len() > 1 && last >= fence) {
                return None;
            }
            last = Some(fence);
            Leaf::<K, V, LEAF>::at(pool, leaf).ok()?;
            saved.leaves.push(inner.leaf_ref(&Route::to_words([fence, 0, 0, 0]), leaf).ok()?);
        }
        saved.records = saved.records.wrapping_add(pm.load(&piece.records));
        next = pm.load(&piece.next);
    }
    let starts = saved.leaves.first()?.leaf() == pm.load(&root.head).offset();
    (starts && saved.leaves.len() as u64 == total).then_some(saved)
}

const _: () = assert!(HEADER_WORDS == 8);
