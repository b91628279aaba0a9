//! The clean-shutdown image: the nodes of the trees as they are in DRAM, so that the next opening
//! reads no record and sorts nothing.
//!
//! The image is a list of pieces, each allocated into the pointer before it, the first into the
//! root's `image`. Each says how many there are and which one it is, so an image counts when it is
//! complete: an interrupted shutdown leaves none. Opening frees the pieces, the first one first and
//! each durably, before the index can change; so an image that counts is never older than the index,
//! even after kills. A damaged image is ignored, a damaged list of pieces is cut off at the damage, and the
//! trees are built from the records; an image for another `PREFIX` is ignored too.
//!
//! | piece | its words |
//! |-------|-----------|
//! | head, the first | `PREFIX`, records, nodes of each size |
//! | nodes | see [`pmindex_art::Restore`] |
//! | trees | pairs: the entry of a tree that is not empty, and its root |
//! | chunks | pairs: the number of a chunk, and its slots that are taken |
//!
//! The image takes about as much of the pool as the nodes in use do of DRAM, from closing to opening;
//! nodes that were freed are in none, and an opening has no memory for them.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_art::{Part, Restore, Share};
use pmindex_core::{Flushed, Medium, Owner, PPtr, PmError, PmU64, Pool};
use pmindex_index::{IndexError, Key, Value};
use pmindex_record::hash_words;

use crate::directory::Directory;
use crate::epalloc::link;
use crate::layout::{ChunkShape, ImagePiece, Root};
use crate::recover::{all_threads, on_threads};
use crate::tree::Hart;

/// Words of a piece, about: 64 KiB.
const WORDS: usize = 8192;
/// Those of an image in a large pool: each piece costs an opening some cache misses, one after the
/// other, and two fences.
const LARGE: (u64, usize) = (64 << 20, 4 * WORDS);
const HEADER_WORDS: usize = size_of::<ImagePiece>() / 8;
/// How many lines ahead of the current one another one is prefetched: across the end of its page, where the
/// CPU's own prefetcher stops.
const AHEAD: usize = 32;
/// Pieces below which one thread does everything.
const FEW: usize = 64;

const HEAD: u64 = 4;
/// Words of the head.
const HEAD_WORDS: usize = 6;
const TREES: u64 = 5;
const CHUNKS: u64 = 6;

/// The header of a piece, without its words.
#[derive(Clone, Copy)]
pub(crate) struct Title {
    pub(crate) what: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Title {
    const fn of(what: u64) -> Self {
        Self { what, first: 0, count: 0 }
    }
}

/// Words that a [`Sum`] takes at a time.
const LANES: usize = 8;

/// The checksum of a piece: of its position, the number of pieces, its title and its words. Several
/// chains, so that the CPU overlaps them.
struct Sum([u64; LANES]);

impl Sum {
    fn new([position, total]: [u64; 2], title: Title) -> Self {
        Self([position, total, title.what, title.first, title.count, 5, 6, 7])
    }

    #[inline(always)]
    fn add(&mut self, words: &[u64; LANES]) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        for (lane, word) in self.0.iter_mut().zip(words) {
            *lane = (*lane ^ word).wrapping_mul(ODD).rotate_left(29);
        }
    }

    /// With the words that are left of `len`.
    fn end(&self, rest: &[u64], len: usize) -> u64 {
        hash_words(&[hash_words(&self.0), hash_words(rest), len as u64])
    }
}

/// Returns the checksum of a piece.
pub(crate) fn checksum(position: u64, total: u64, title: Title, words: &[u64]) -> u64 {
    let mut sum = Sum::new([position, total], title);
    let (chunks, rest) = words.as_chunks();
    for chunk in chunks {
        sum.add(chunk);
    }
    sum.end(rest, words.len())
}

/// Writes pieces, one after the other.
struct Writer<'p, M: Medium> {
    pool: &'p Pool<M>,
    /// The cell for the pointer to the next one.
    cell: &'p PmU64,
    position: u64,
    total: u64,
}

impl<M: Medium> Writer<'_, M> {
    /// | step | store | durable before |
    /// |------|-------|----------------|
    /// | P1 | the piece; its ticket | P2 |
    /// | P2 | the pointer to it | the next one |
    fn add(&mut self, title: Title, words: &[u64]) -> Result<(), PmError> {
        let (pool, pm) = (self.pool, self.pool.pm());
        let sum = checksum(self.position, self.total, title, words);
        let Title { what, first, count } = title;
        let mut all =
            vec![0, self.position, self.total, what, first, count, words.len() as u64, sum];
        all.extend_from_slice(words);
        let mut op = pool.op()?;
        let block = op.reserve_bytes(8 * all.len() as u64, 64)?;
        let offset = block.ptr().offset();
        let piece = pool.words(offset, all.len())?;
        let filled = pm.stream_words(piece, &all);
        op.allocate(&block, Owner { word: self.cell, mask: u64::MAX, expect: offset })?;
        op.prepare(filled)?; // durable before: the pointer
        link(pool, op, self.cell, offset)?;
        self.cell = &piece[0];
        self.position += 1;
        Ok(())
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// Saves the image that makes the next opening fast, and ends.
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`]. A pool without room for the image has none: the next opening
    /// reads the records.
    pub fn close(self) -> Result<(), IndexError> {
        let pool = &*self.pool;
        if pool.is_read_only() {
            return Ok(());
        }
        let root = self.root()?;
        // There may be room for small pieces only.
        let large = (pool.len() >= LARGE.0).then_some(LARGE.1);
        for words in large.into_iter().chain([WORDS]) {
            match self.save(root, words) {
                Ok(()) => break,
                Err(PmError::DurabilityLost(lost)) => return Err(lost.into()),
                Err(_) => {
                    free_pieces(pool, root)?;
                }
            }
        }
        Ok(())
    }

    fn save(&self, root: &Root, words: usize) -> Result<(), PmError> {
        let pm = self.pm();
        let nodes = self.nodes.save(words);
        let mut trees = Vec::new();
        let mut next = self.directory.next(0, true);
        while let Some(entry) = next {
            let word = nodes.root(self.directory.root(entry));
            if word != 0 {
                trees.push([entry as u64, word]);
            }
            next = Directory::<PREFIX>::step(entry, true)
                .and_then(|entry| self.directory.next(entry, true));
        }
        let mut chunks = Vec::new();
        self.chunks.each(pm, |number, _, _, taken| {
            chunks.push([u64::from(number), taken]);
            Ok(())
        })?;
        let records = self.counts.iter().fold(0u64, |sum, n| sum.wrapping_add(n.load(Relaxed)));
        let pairs = |pairs: &[[u64; 2]]| pairs.len().div_ceil(WORDS / 2);
        let total = (1 + nodes.parts().len() + pairs(&trees) + pairs(&chunks)) as u64;
        let mut to = Writer { pool: &self.pool, cell: root.image.as_word(), position: 0, total };
        let [n4, n16, n48, n256] = nodes.used().map(u64::from);
        to.add(Title::of(HEAD), &[PREFIX as u64, records, n4, n16, n48, n256])?;
        let mut words = Vec::new();
        for part in nodes.parts() {
            words.clear();
            nodes.words(part, &mut words);
            let (what, first) = (u64::from(part.kind), u64::from(part.first));
            to.add(Title { what, first, count: u64::from(part.count) }, &words)?;
        }
        for (what, pairs) in [(TREES, trees), (CHUNKS, chunks)] {
            for part in pairs.chunks(WORDS / 2) {
                to.add(Title::of(what), part.as_flattened())?;
            }
        }
        Ok(())
    }

    /// Restores the trees and what is taken of chunks from the image, if there is one that counts;
    /// returns how many records there are. If not, trees may be anything. Nothing is written.
    pub(crate) fn restore(&self, root: &Root, chunks: &[(u32, ChunkShape)]) -> Option<u64> {
        let pieces = list(&self.pool, root)?;
        self.restore_pieces(&pieces, chunks).ok()?
    }

    fn restore_pieces(
        &self,
        pieces: &[PPtr<ImagePiece>],
        chunks: &[(u32, ChunkShape)],
    ) -> Result<Option<u64>, PmError> {
        let mut words = Vec::new();
        let Some(title) = read(&self.pool, pieces, 0, &mut words)? else { return Ok(None) };
        let Ok([prefix, records, used @ ..]) = <[u64; HEAD_WORDS]>::try_from(words.as_slice())
        else {
            return Ok(None);
        };
        if title.what != HEAD || prefix != PREFIX as u64 {
            return Ok(None);
        }
        let Some(used) = small(used) else { return Ok(None) };
        let restore = Restore::new(&self.nodes, used)?;
        let threads = if pieces.len() >= FEW { all_threads() } else { 1 };
        let next = AtomicUsize::new(1);
        let shares = on_threads(threads, 0..threads, |_| {
            let (mut words, mut taken) = (Vec::new(), Vec::new());
            let mut share = restore.share();
            loop {
                let at = next.fetch_add(1, Relaxed);
                if at >= pieces.len() {
                    return Ok(Some((taken, share.end())));
                }
                let Some(title) = read(&self.pool, pieces, at, &mut words)? else {
                    return Ok(None);
                };
                if title.what == CHUNKS {
                    taken.push((at, words.as_chunks::<2>().0.to_vec()));
                } else if self.restore_piece(&mut share, title, &words)?.is_none() {
                    return Ok(None);
                }
            }
        })?;
        let Some(shares) = shares.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let (taken, named): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
        restore.finish(&named)?;
        let mut taken = taken.concat();
        taken.sort_unstable_by_key(|&(at, _)| at);
        let taken = taken.iter().flat_map(|(_, pairs)| pairs);
        Ok(self.take_chunks(chunks, taken, records).then_some(records))
    }

    /// Restores nodes, or roots of trees.
    fn restore_piece(
        &self,
        share: &mut Share<'_, '_>,
        title: Title,
        words: &[u64],
    ) -> Result<Option<()>, PmError> {
        if title.what == TREES {
            for &[entry, word] in words.as_chunks::<2>().0 {
                if entry >= Directory::<PREFIX>::ENTRIES as u64 {
                    return Ok(None);
                }
                self.directory.mark(entry as usize);
                share.root(self.directory.root(entry as usize), word)?;
            }
            return Ok(Some(()));
        }
        let Some([kind, first, count]) = small([title.what, title.first, title.count]) else {
            return Ok(None);
        };
        share.part(&Part { kind, first, count }, words)?;
        Ok(Some(()))
    }

    /// Marks the taken slots of chunks, in the order of their numbers. Returns `false`, and marks nothing, if
    /// the image has other chunks or another number of records.
    fn take_chunks<'p>(
        &self,
        chunks: &[(u32, ChunkShape)],
        taken: impl Iterator<Item = &'p [u64; 2]> + Clone,
        records: u64,
    ) -> bool {
        let (mut found, mut pairs) = (0, taken.clone());
        for &(number, shape) in chunks {
            let Some(&[at, bits]) = pairs.next() else { return false };
            if at != u64::from(number) || bits & !shape.all() != 0 {
                return false;
            }
            found += if shape.is_objects() { 0 } else { u64::from(bits.count_ones()) };
        }
        if pairs.next().is_some() || found != records {
            return false;
        }
        for (&(number, _), &[_, bits]) in chunks.iter().zip(taken) {
            self.chunks.set_taken(number, bits);
        }
        true
    }
}

/// Numbers that fit 32 bits.
fn small<const N: usize>(numbers: [u64; N]) -> Option<[u32; N]> {
    let mut small = [0; N];
    for (small, number) in small.iter_mut().zip(numbers) {
        *small = u32::try_from(number).ok()?;
    }
    Some(small)
}

/// Returns the pieces of an image that is complete.
fn list<M: Medium>(pool: &Pool<M>, root: &Root) -> Option<Vec<PPtr<ImagePiece>>> {
    let pm = pool.pm();
    let mut pieces = Vec::new();
    let mut next = pm.load(&root.image);
    let total = pm.load(&pool.get(next).ok()?.total);
    while !next.is_null() {
        let piece = pool.get(next).ok()?;
        if pieces.len() as u64 >= total || pieces.len() as u64 > pool.len() / 64 {
            return None;
        }
        pieces.push(next);
        next = pm.load(&piece.next);
    }
    (pieces.len() as u64 == total).then_some(pieces)
}

/// Reads a piece, its words into `words`; `None` if it is not whole, or not the one at this place.
fn read<M: Medium>(
    pool: &Pool<M>,
    pieces: &[PPtr<ImagePiece>],
    at: usize,
    words: &mut Vec<u64>,
) -> Result<Option<Title>, PmError> {
    let whole = read_whole(pool, pieces[at], words)?;
    let here = [at as u64, pieces.len() as u64];
    Ok(whole.filter(|(place, _)| *place == here).map(|(_, title)| title))
}

/// Reads the piece at `at`: its position, the number of pieces, and its kind; returns `None` if it is not
/// intact.
fn read_whole<M: Medium>(
    pool: &Pool<M>,
    at: PPtr<ImagePiece>,
    words: &mut Vec<u64>,
) -> Result<Option<([u64; 2], Title)>, PmError> {
    let pm = pool.pm();
    let piece = pool.get(at)?;
    let len = pm.load(&piece.words);
    if len > pool.len() / 8 {
        return Ok(None);
    }
    let cells = pool.words(at.offset() + 8 * HEADER_WORDS as u64, len as usize)?;
    let (what, first, count) = (pm.load(&piece.what), pm.load(&piece.first), pm.load(&piece.count));
    let title = Title { what, first, count };
    let place = [pm.load(&piece.position), pm.load(&piece.total)];
    // Summed up while they are read: the one waits for memory, the other for the CPU.
    let mut sum = Sum::new(place, title);
    let (lines, rest) = cells.as_chunks::<LANES>();
    words.clear();
    words.reserve(cells.len());
    for (i, line) in lines.iter().enumerate() {
        if let Some([ahead, ..]) = lines.get(i + AHEAD) {
            pm.prefetch(ahead);
        }
        let line = line.each_ref().map(|cell| pm.load_word(cell));
        sum.add(&line);
        words.extend_from_slice(&line);
    }
    words.extend(rest.iter().map(|cell| pm.load_word(cell)));
    let rest = &words[cells.len() - rest.len()..];
    let whole = sum.end(rest, cells.len()) == pm.load(&piece.checksum);
    Ok(whole.then_some((place, title)))
}

/// Returns the position and the total of the piece at `at`, if there is one that can stand behind `before`; of
/// the first one (`before` is `None`) whatever it is. Its words may be damaged.
fn place_of<M: Medium>(
    pool: &Pool<M>,
    at: PPtr<ImagePiece>,
    before: Option<[u64; 2]>,
) -> Option<[u64; 2]> {
    let (pm, piece) = (pool.pm(), pool.get(at).ok()?);
    let [position, total] = [pm.load(&piece.position), pm.load(&piece.total)];
    let (what, words) = (pm.load(&piece.what), pm.load(&piece.words));
    let follows = match before {
        Some([last, all]) => position == last + 1 && total == all,
        None if position == 0 => what == HEAD && words == HEAD_WORDS as u64,
        // An interrupted opening has freed those before it.
        None => read_whole(pool, at, &mut Vec::new()).is_ok_and(|whole| whole.is_some()),
    };
    let sound = position < total && what <= CHUNKS && words <= pool.len() / 8;
    (follows && sound).then_some([position, total])
}

/// Frees the pieces one by one. A damaged list is cut off at the damage, and the pieces behind stay
/// allocated, since only known pieces may be freed. Returns `true` if the list was intact.
pub(crate) fn free_pieces<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<bool, PmError> {
    let pm = pool.pm();
    let mut before = None;
    loop {
        let first = pm.load(&root.image);
        if first.is_null() {
            return Ok(true);
        }
        before = place_of(pool, first, before);
        if before.is_none() {
            return cut_off(pool, root);
        }
        let piece = pool.get(first)?;
        let next = pm.load(&piece.next);
        let mut op = pool.op()?;
        match op.free(first, Owner::pointer(&root.image, first)) {
            Err(PmError::Corrupt { .. }) => {
                drop(op); // no block that is in use
                return cut_off(pool, root);
            }
            freed => freed?,
        }
        op.changes(&piece.next);
        op.prepare(Flushed::nothing())?; // durable before: the pointer
        link(pool, op, root.image.as_word(), next.offset())?;
    }
}

/// Forgets what is left of a damaged list.
#[cold]
fn cut_off<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<bool, PmError> {
    pool.settle(&root.image)?;
    pool.pm().store(&root.image, PPtr::NULL);
    pool.pm().persist(&root.image)?; // durable before: any change of the index
    Ok(false)
}

const _: () = assert!(HEADER_WORDS == 8);
