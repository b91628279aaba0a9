//! The checkpoint that opening finds: verified where it lies, and read there.
//!
//! It names every chain, and has megabytes in a large index. For a copy in DRAM the kernel would have to
//! allocate and clear as many pages before the first read is answered: more time than reading takes, and
//! many times as much under a hypervisor that allocates them, too.
//!
//! No checkpoint is written, and none of the blocks of this one is freed, before all chains are restored
//! ([`Log::checkpoint`]). A search that goes on after that may read anything; its caller finds the chains
//! restored, and searches again.

use pmindex_core::{Medium, PmError, Word};
use pmindex_log::{LANES, Position};

use super::Log;
use super::entry::SEQ_MAX;
use super::layout::{CheckpointPiece, HEAD_WORDS, Head, PieceSum};

/// Words read at once.
const AT_ONCE: usize = 512;

/// Words of a head in a checkpoint.
type Pair = [u64; HEAD_WORDS];

/// The places of a checkpoint's words.
#[derive(Debug, Default)]
pub(super) struct Found {
    parts: Vec<Part>,
    words: usize,
}

/// Words that lie together.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Words of the checkpoint before these.
    before: usize,
    words: usize,
    offset: u64,
}

impl Found {
    /// Returns the number of words.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Returns the number of heads.
    pub(super) fn heads(&self) -> usize {
        self.words.saturating_sub(LANES) / HEAD_WORDS
    }
}

impl<M: Medium> Log<M> {
    /// Finds the checkpoint, and verifies it; it has no words if there is none.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub(super) fn find_checkpoint(&self) -> Result<Found, PmError> {
        let (pool, pm) = (&**self.pool(), self.pool().pm());
        let mut found = Found::default();
        let first = pm.load(&pool.get(self.base.root())?.anchor);
        self.for_each_piece(first, |offset, piece| {
            let count = pm.load(&piece.words) as usize;
            let part = Part {
                before: found.words,
                words: count,
                offset: offset + size_of::<CheckpointPiece>() as u64,
            };
            let (next, total) = (pm.load(&piece.next).offset(), pm.load(&piece.total));
            let mut sum = PieceSum::new(next, total, count);
            let mut words = [0; AT_ONCE];
            for cells in pool.words(part.offset, count)?.chunks(AT_ONCE) {
                let words = &mut words[..cells.len()];
                pm.read_words(cells, words);
                sum.add(words);
            }
            if sum.finish() != pm.load(&piece.checksum) {
                return Err(PmError::Corrupt { what: "the checksum of a checkpoint", offset });
            }
            found.parts.push(part);
            found.words += count;
            Ok(())
        })?;
        let offset = self.base.root().offset();
        let words = found.words;
        if words != 0 && (words < LANES || !(words - LANES).is_multiple_of(HEAD_WORDS)) {
            return Err(PmError::Corrupt { what: "the length of a checkpoint", offset });
        }
        let mut sound = true;
        let heads = found.heads();
        self.for_each_head(&found, 0, heads, |pair| sound &= Head::decode(pair).seq <= SEQ_MAX);
        if sound {
            Ok(found)
        } else {
            Err(PmError::Corrupt { what: "a sequence number of a checkpoint", offset })
        }
    }

    /// Returns the tails of the lanes in the checkpoint; none if there is no checkpoint.
    pub(super) fn found_tails(&self, found: &Found) -> Vec<Position> {
        let mut words = [0; LANES];
        let words = &mut words[..LANES.min(found.words)];
        self.copy(found, 0, words);
        words.iter().map(|&word| Position::from_word(word)).collect()
    }

    /// Visits `count` heads, encoded, from number `from` on.
    pub(super) fn for_each_head(
        &self,
        found: &Found,
        from: usize,
        count: usize,
        mut visit: impl FnMut(Pair),
    ) {
        let end = found.heads().min(from + count);
        let mut pairs = [[0; HEAD_WORDS]; AT_ONCE / HEAD_WORDS];
        let most = pairs.len();
        for at in (from..end).step_by(most) {
            let pairs = &mut pairs[..most.min(end - at)];
            self.copy(found, LANES + HEAD_WORDS * at, pairs.as_flattened_mut());
            pairs.iter().copied().for_each(&mut visit);
        }
    }

    /// Copies words from number `from` on. There are as many, and their bounds were checked.
    fn copy(&self, found: &Found, from: usize, mut out: &mut [u64]) {
        let mut at = from;
        let first = found.parts.partition_point(|part| part.before + part.words <= from);
        for part in &found.parts[first..] {
            let skip = at - part.before;
            let (now, rest) = out.split_at_mut(out.len().min(part.words - skip));
            if let Ok(cells) = self.pool().words(part.offset + 8 * skip as u64, now.len()) {
                self.pool().pm().read_words(cells, now);
            }
            at += now.len();
            out = rest;
            if out.is_empty() {
                break;
            }
        }
    }
}
