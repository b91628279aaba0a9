//! The clean-shutdown image: the leaves in order, each with its fence, so that the next opening
//! need not read them. One-word keys only; others are read.
//!
//! The image is a list of pieces, each allocated into the pointer before it, the first into the
//! root's `image`. Each says how many leaves it and those after it name, so an image counts when it
//! is complete: an interrupted shutdown leaves none. Opening frees the pieces, the first one first
//! and each durably, before the index can change; so an image that counts is never older than the
//! index, even after kills. A damaged one is ignored.

use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Shape, Value};
use pmindex_record::{Separator, Tail, hash_words};

use super::inner::{Built, InnerTree, LeafRef, Route};
use super::layout::{ImagePiece, Root};
use super::leaf::{Leaf, link, prepare_free};
use super::tree::NvTree;
use crate::checksum::hash_bodies;
use crate::threads::threads_for;

/// Pairs in a piece: 32 KiB.
const PAIRS: usize = 2044;
const HEADER_WORDS: usize = size_of::<ImagePiece>() / 8;

/// Pieces that a thread reads at a time.
const GROUP: usize = 4;

/// The contents of an image.
pub(super) struct Saved {
    /// The inner nodes over its leaves.
    pub(super) built: Built,
    pub(super) leaves: u64,
    pub(super) records: u64,
    pub(super) threads: usize,
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
        // An opening with the image does not read the leaves: their hints must be right.
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
    saved
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

/// A piece with its pairs.
type PieceAndPairs<'p> = (&'p ImagePiece, &'p [PmU64]);

/// Reads and verifies the image, and makes inner nodes of each group of pieces as it comes.
fn read<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    root: &Root,
    inner: &InnerTree<K, INNER>,
    limit: u64,
) -> Result<Option<Saved>, PmError> {
    let pm = pool.pm();
    let Some((pieces, leaves, records)) = find_pieces(pool, root, limit) else { return Ok(None) };
    let groups: Vec<&[PieceAndPairs<'_>]> = pieces.chunks(GROUP).collect();
    let pairs = |group: &&[PieceAndPairs<'_>]| group.iter().map(|(_, pairs)| pairs.len() / 2).sum();
    let counts: Vec<usize> = groups.iter().map(pairs).collect();
    let threads = threads_for(pieces.len());
    let first_fence = |at: usize| pm.load_word(&groups[at][0].1[0]);
    let low = |at| Separator { prefix: first_fence(at), tail: Tail::default() };
    let head = pm.load(&root.head).offset();
    let built = inner.prepare_from(threads, &counts, low, Room::default, |room, at| {
        read_group::<K, V, M, LEAF, INNER>(pool, inner, groups[at], room, at == 0)?;
        let (first, last) = (room.leaves.first()?, room.leaves.last()?);
        let starts = at > 0 || first.leaf() == head;
        // The head's fence has no meaning; no other leaf is first in the first part.
        let ordered = at + 1 == groups.len()
            || at == 0 && room.leaves.len() == 1
            || last.fence() < first_fence(at + 1);
        (starts && ordered).then_some(room.leaves.as_slice())
    })?;
    Ok(built.map(|built| Saved { built, leaves, records, threads }))
}

/// Returns the pieces of an image, how many leaves they name and how many records those have; `None` if it
/// is not complete.
fn find_pieces<'p, M: Medium>(
    pool: &'p Pool<M>,
    root: &Root,
    limit: u64,
) -> Option<(Vec<PieceAndPairs<'p>>, u64, u64)> {
    let pm = pool.pm();
    let mut next = pm.load(&root.image);
    let total = pm.load(&pool.get(next).ok()?.total);
    let (mut pieces, mut leaves, mut records) = (Vec::new(), 0, 0u64);
    while !next.is_null() {
        let piece = pool.get(next).ok()?;
        let count = pm.load(&piece.leaves);
        leaves += count.min(limit);
        if count == 0 || count > PAIRS as u64 || leaves > limit {
            return None;
        }
        let body = next.offset() + 8 * HEADER_WORDS as u64;
        pieces.push((piece, pool.words(body, 2 * count as usize).ok()?));
        records = records.wrapping_add(pm.load(&piece.records));
        next = pm.load(&piece.next);
    }
    (leaves == total).then_some((pieces, leaves, records))
}

/// The memory of a thread that reads one group after the other.
#[derive(Default)]
struct Room {
    words: Vec<u64>,
    leaves: Vec<LeafRef>,
}

/// Reads and verifies some pieces, the first ones (`head`) or others, into `room.leaves`.
fn read_group<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    inner: &InnerTree<K, INNER>,
    pieces: &[PieceAndPairs<'_>],
    Room { words, leaves }: &mut Room,
    head: bool,
) -> Option<()> {
    let pm = pool.pm();
    leaves.clear();
    words.resize(GROUP * 2 * PAIRS, 0);
    let (mut bodies, mut rest) = ([[].as_slice(); GROUP], words.as_mut_slice());
    let mut used = 0;
    for (body, (_, pairs)) in bodies.iter_mut().zip(pieces) {
        let (copy, behind) = rest.split_at_mut_checked(pairs.len())?;
        pm.read_words(pairs, copy);
        used += copy.len();
        (*body, rest) = (copy, behind);
    }
    for ((piece, _), hash) in pieces.iter().zip(hash_bodies(bodies)) {
        if hash != pm.load(&piece.checksum) {
            return None;
        }
    }
    for &[fence, leaf] in words[..used].as_chunks::<2>().0 {
        let before = if head && leaves.len() == 1 { None } else { leaves.last() };
        if before.is_some_and(|before| before.fence() >= fence) {
            return None;
        }
        Leaf::<K, V, LEAF>::at(pool, leaf).ok()?;
        leaves.push(inner.leaf_ref(&Route::to_words(&[fence, 0, 0, 0]), leaf).ok()?);
    }
    Some(())
}

const _: () = assert!(HEADER_WORDS == 8);
