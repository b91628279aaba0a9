//! Pieces: the lines that the entries of buffers lie in.
//!
//! Most buffers are not full. So a buffer is a header of one line, and takes a further line, a piece, when
//! an entry needs it: half the DRAM of full buffers. The piece that was given back last is taken first: it
//! is in the caches.
//!
//! A piece's memory is only ever a piece, so a reader may come to it with a stale number: it was given back
//! under the lock of its Mnode, whose version then does not validate.

use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, pm_struct};

/// The largest number of pieces of a buffer.
pub(super) const PIECES: usize = 5;
/// Words of a piece.
const WORDS: usize = 8;

/// No piece. There is memory with this number, which is never written: a stale reader may read it.
pub(super) const NONE: u32 = 0;

pm_struct! {
    /// A piece: a line.
    #[align(64)]
    pub(crate) struct BufferPiece: size 64 {
        /// Entries, one after the other.
        pub words @ 0: [PmU64; 8],
    }
}

/// Returns the number of entries of `words` words that fit a piece.
pub(super) const fn per_piece(words: usize) -> usize {
    if words > WORDS / 2 { 1 } else { WORDS / words }
}

/// All pieces of an index.
#[derive(Debug)]
pub(super) struct Pieces {
    arena: Arena<BufferPiece>,
}

impl Pieces {
    /// Address space for the pieces of `buffers` full buffers.
    pub(super) fn new(buffers: u32) -> Result<Self, PmError> {
        let capacity = buffers.saturating_mul(PIECES as u32).saturating_add(1);
        let arena = Arena::new(capacity)?;
        arena.alloc()?; // number 0 is none
        Ok(Self { arena })
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// [`PmError::Full`].
    pub(super) fn take(&self) -> Result<u32, PmError> {
        self.arena.alloc()
    }

    /// Gives pieces back, which no header names any more. Under the lock of their Mnode.
    pub(super) fn give_back(&self, pieces: &[u32]) {
        self.arena.free_all(pieces);
    }

    /// Returns the words of an entry, `words` of them. Racing: validate.
    #[inline(always)]
    pub(super) fn entry(&self, piece: u32, entry: usize, words: usize) -> &[PmU64] {
        let per = per_piece(words);
        &self.arena.get(piece).words[entry % per * words..][..words]
    }

    /// Fetches a piece. A hint.
    #[inline(always)]
    pub(super) fn prefetch(&self, dram: &Mapped, piece: u32) {
        dram.prefetch(self.arena.get(piece));
    }

    /// Bytes of DRAM.
    pub(super) fn bytes(&self) -> u64 {
        self.arena.bytes() as u64
    }

    /// Returns the number of pieces in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.arena.len() - 1
    }

    /// Takes all free pieces away, but for `some`.
    #[cfg(test)]
    pub(super) fn leave(&self, some: u32) {
        while !self.arena.free_indices().is_empty() {
            self.take().expect("a free one");
        }
        let rest = self.arena.capacity() - self.arena.used();
        self.arena.alloc_fresh(rest - some).expect("the rest");
    }
}
