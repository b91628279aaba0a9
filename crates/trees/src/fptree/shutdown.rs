//! The clean-shutdown image: the leaves in order, each with the separator on its left, so that the
//! next opening need not read them.
//!
//! The image is a list of pieces, each allocated into the pointer before it, the first into the
//! root's `image`. Each says how many leaves it and those after it name, so an image counts when it
//! is complete: an interrupted shutdown leaves none. Opening frees the pieces, the first one first
//! and each durably, before the index can change; so an image that counts is never older than the
//! index, even after kills. A damaged one is ignored.

use pmindex_core::{Flushed, Medium, Owner, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, MAX_INLINE_WORDS, MAX_KEY_BYTES, Shape, Value};
use pmindex_record::hash_words;

use super::inner::{InnerTree, LeafRef, OwnedRoute, Route};
use super::layout::{ImagePiece, Root};
use super::leaf::{Leaf, link};
use super::tree::FpTree;
use crate::checksum::hash_bodies;
use crate::threads::{on_threads_with, threads_for};

/// The maximum number of words of a piece, which is 32 KiB with its header.
const PIECE_WORDS: usize = 4096 - HEADER_WORDS;
const HEADER_WORDS: usize = size_of::<ImagePiece>() / 8;
/// Pieces that a thread reads at a time.
const GROUP: usize = 4;

/// The contents of an image.
pub(super) struct Saved {
    /// The lowest inner nodes, in order; or the leaves, if they are so few that the root leads to them.
    pub(super) level: Vec<LeafRef>,
    pub(super) leaves: u64,
    pub(super) records: u64,
    pub(super) threads: usize,
}

/// A piece in the making: how many leaves, and the words.
type Body = (u64, Vec<u64>);

/// Returns the checksum of a piece: of its numbers of leaves and records, and of the hash of what follows.
fn checksum_of([leaves, total, records]: [u64; 3], body: u64) -> u64 {
    hash_words(&[leaves, total, records, body])
}

/// Appends a leaf and the separator on its left.
fn append<K: Key>(words: &mut Vec<u64>, leaf: u64, low: &OwnedRoute) {
    let (route, mut room) = (low.route::<K>(), [0; 8 * MAX_INLINE_WORDS]);
    let bytes = route.encoded::<K>(&mut room);
    words.push(leaf);
    if K::SHAPE == Shape::Bytes {
        words.push(bytes.len() as u64);
    }
    words.extend(bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    }));
}

/// Returns a leaf and its separator at the beginning of `words`, and how many words that are.
fn leaf_at<K: Key>(words: &[u64]) -> Option<(u64, Low<'_>, usize)> {
    let (&leaf, rest) = words.split_first()?;
    match K::SHAPE {
        Shape::Inline(n) => Some((leaf, Low { words: rest.get(..n)?, bytes: 0 }, n + 1)),
        Shape::Bytes => {
            let (&length, rest) = rest.split_first()?;
            let bytes = usize::try_from(length).ok().filter(|bytes| *bytes <= MAX_KEY_BYTES)?;
            let n = bytes.div_ceil(8);
            Some((leaf, Low { words: rest.get(..n)?, bytes }, n + 2))
        }
    }
}

/// A separator in an image. They are ordered as these are: the padding of a byte string is zero.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Low<'w> {
    words: &'w [u64],
    bytes: usize,
}

impl Low<'_> {
    /// Calls `then` with the route; `bytes` is room.
    fn with_route<K: Key, T>(&self, bytes: &mut Vec<u8>, then: impl FnOnce(&Route<'_>) -> T) -> T {
        match K::SHAPE {
            Shape::Inline(n) => {
                let mut words = [0; 4];
                words[..n].copy_from_slice(self.words);
                then(&Route::to_words(&words))
            }
            Shape::Bytes => {
                bytes.clear();
                bytes.extend(self.words.iter().flat_map(|word| word.to_be_bytes()));
                bytes.truncate(self.bytes);
                then(&Route::to_bytes(bytes))
            }
        }
    }
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    FpTree<K, V, M, LEAF, INNER>
{
    /// Saves the image that makes the next opening fast, and ends.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`]. A pool without room for the image is none: the next opening
    /// reads the leaves.
    pub fn close(self) -> Result<(), IndexError> {
        let pool = &*self.pool;
        if pool.is_read_only() {
            return Ok(());
        }
        if let Some(redo) = self.redo.as_ref().filter(|_| pool.check_writable().is_ok()) {
            redo.settle(pool)?; // a damaged pool keeps its log, which may have the only copy of a value
        }
        let root = self.root()?;
        match self.save(root) {
            Err(PmError::DurabilityLost(lost)) => Err(lost.into()),
            Err(_) => Ok(free_pieces(pool, root)?),
            Ok(()) => Ok(()),
        }
    }

    /// Returns the contents of the pieces.
    fn bodies(&self) -> Vec<Body> {
        let mut bodies: Vec<Body> = Vec::new();
        let mut words = Vec::new();
        self.inner.for_each_leaf(|low, leaf| {
            words.clear();
            append::<K>(&mut words, leaf, low);
            if let Some((leaves, body)) = bodies.last_mut()
                && body.len() + words.len() <= PIECE_WORDS
            {
                *leaves += 1;
                body.extend_from_slice(&words);
            } else {
                bodies.push((1, words.clone()));
            }
        });
        bodies
    }

    fn save(&self, root: &Root) -> Result<(), PmError> {
        let (pool, pm) = (&*self.pool, self.pm());
        let bodies = self.bodies();
        let mut records = self.counts.iter().fold(0u64, |sum, count| {
            sum.wrapping_add(count.load(std::sync::atomic::Ordering::Relaxed))
        });
        let mut cell = root.image.as_word();
        let mut total: u64 = bodies.iter().map(|(leaves, _)| leaves).sum();
        for (leaves, body) in bodies {
            let checksum = checksum_of([leaves, total, records], hash_words(&body));
            let mut words = vec![0, leaves, total, records, checksum, body.len() as u64, 0, 0];
            words.extend_from_slice(&body);
            (total, records) = (total - leaves, 0);
            let mut op = pool.op()?;
            let block = op.reserve_bytes(8 * words.len() as u64, 64)?;
            let offset = block.ptr().offset();
            let piece = pool.words(offset, words.len())?;
            let filled = pm.stream_words(piece, &words);
            op.allocate(&block, Owner { word: cell, mask: u64::MAX, expect: offset })?;
            op.prepare(filled)?; // durable before: the pointer
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
    if pool.pm().load(&root.image).is_null() {
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
        let mut op = pool.op()?;
        op.free(first, Owner::pointer(&root.image, first))?;
        op.changes(&piece.next);
        op.prepare(Flushed::nothing())?; // durable before: the pointer
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
    let mut next = pm.load(&root.image);
    let total = pm.load(&pool.get(next).ok()?.total);
    let (mut pieces, mut leaves, mut records) = (Vec::new(), 0, 0u64);
    while !next.is_null() {
        let piece = pool.get(next).ok()?;
        let body = pool.words(next.offset() + 8 * HEADER_WORDS as u64, body_words(pm, piece)?);
        pieces.push((piece, body.ok()?));
        // Each piece has a leaf at least: so the list ends.
        leaves += pm.load(&piece.leaves).clamp(1, limit);
        if leaves > limit {
            return None;
        }
        records = records.wrapping_add(pm.load(&piece.records));
        next = pm.load(&piece.next);
    }
    let threads = threads_for(pieces.len());
    let groups: Vec<_> = pieces.chunks(GROUP).collect();
    let groups = on_threads_with(threads, groups.len(), Room::default, |room, at| {
        read_group::<K, V, M, LEAF, INNER>(pool, inner, groups[at], room, at == 0, total)
    });
    let ordered = |left: &Group, right: &Group| left.greatest < right.least;
    let whole = groups.iter().all(|group| group.whole) && groups.is_sorted_by(ordered);
    let found = groups.iter().fold(0u64, |sum, group| sum.saturating_add(group.leaves));
    let head = groups.first().map(|group| group.first);
    let level: Vec<LeafRef> = groups.into_iter().flat_map(|group| group.level).collect();
    if whole && found == total && head == Some(pm.load(&root.head).offset()) {
        return Some(Saved { level, leaves: found, records, threads });
    }
    inner.discard(level);
    None
}

/// Returns the words of a piece's body, if it may have as many.
fn body_words(pm: &impl Medium, piece: &ImagePiece) -> Option<usize> {
    usize::try_from(pm.load(&piece.words)).ok().filter(|words| *words <= PIECE_WORDS)
}

/// The contents of a group of pieces.
#[derive(Default)]
struct Group {
    /// The lowest inner nodes, or the leaves.
    level: Vec<LeafRef>,
    leaves: u64,
    /// The first leaf.
    first: u64,
    /// The separators before the first leaf (not the head) and before the last, as words and length.
    least: Option<(Vec<u64>, usize)>,
    greatest: Option<(Vec<u64>, usize)>,
    /// It says what it was made to say.
    whole: bool,
}

/// The memory of a thread that reads one group after the other.
#[derive(Default)]
struct Room {
    words: Vec<u64>,
    leaves: Vec<LeafRef>,
    bytes: Vec<u8>,
}

/// Copies some pieces to `words`; how many leaves they say they name, if they have their checksums.
fn copy_group(
    pm: &impl Medium,
    pieces: &[(&ImagePiece, &[PmU64])],
    words: &mut Vec<u64>,
) -> Option<u64> {
    words.clear();
    for (_, body) in pieces {
        let start = words.len();
        words.resize(start + body.len(), 0);
        pm.read_words(body, &mut words[start..]);
    }
    let (mut bodies, mut rest) = ([[].as_slice(); GROUP], words.as_slice());
    for (copy, (_, body)) in bodies.iter_mut().zip(pieces) {
        (*copy, rest) = rest.split_at(body.len());
    }
    let mut leaves = 0u64;
    for ((piece, _), hash) in pieces.iter().zip(hash_bodies(bodies)) {
        let numbers = [&piece.leaves, &piece.total, &piece.records].map(|number| pm.load(number));
        if checksum_of(numbers, hash) != pm.load(&piece.checksum) {
            return None;
        }
        leaves = leaves.wrapping_add(numbers[0]);
    }
    Some(leaves)
}

/// Reads and verifies some pieces, the first ones (`head`) or others, of an image of `total` leaves.
fn read_group<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>(
    pool: &Pool<M>,
    inner: &InnerTree<K, INNER>,
    pieces: &[(&ImagePiece, &[PmU64])],
    Room { words, leaves, bytes }: &mut Room,
    head: bool,
    total: u64,
) -> Group {
    let mut group = Group::default();
    let Some(named) = copy_group(pool.pm(), pieces, words) else { return group };
    let mut rest = words.as_slice();
    let (mut least, mut before) = (None, None);
    while let Some((leaf, low, taken)) = leaf_at::<K>(rest) {
        if before.as_ref().is_some_and(|before| *before >= low)
            || !is_leaf::<K, V, M, LEAF>(pool, leaf)
        {
            break;
        }
        let reference = low.with_route::<K, _>(bytes, |low| inner.leaf_ref(low, leaf));
        let Ok(reference) = reference else { break };
        let is_head = head && leaves.is_empty();
        leaves.push(reference);
        if !is_head {
            least = least.or(Some(low.clone()));
            before = Some(low);
        }
        rest = &rest[taken..];
    }
    let owned = |low: Low<'_>| (low.words.to_vec(), low.bytes);
    (group.least, group.greatest) = (least.map(owned), before.map(owned));
    group.leaves = leaves.len() as u64;
    group.first = leaves.first().map_or(0, LeafRef::leaf);
    group.whole = rest.is_empty() && group.leaves == named;
    let above = if InnerTree::<K, INNER>::has_levels(total) && !leaves.is_empty() {
        inner.level_above(leaves).ok()
    } else {
        None
    };
    if let Some(above) = above {
        group.level = above;
        leaves.clear();
    } else {
        // Few leaves; or no memory for nodes over them, which is found out again without the image.
        group.whole &= !InnerTree::<K, INNER>::has_levels(total) || leaves.is_empty();
        group.level.append(leaves);
    }
    group
}

/// Returns `true` if there may be a leaf at `offset`.
fn is_leaf<K: Key, V: Value, M: Medium, const LEAF: usize>(pool: &Pool<M>, offset: u64) -> bool {
    Leaf::<K, V, LEAF>::at(pool, offset).is_ok()
}

const _: () = assert!(HEADER_WORDS == 8);
