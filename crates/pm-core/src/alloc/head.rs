//! The word of a zone's page table that describes a run of pages.
//!
//! ```text
//! bits 0..2   kind: 0 no run starts here, 1 a slab, 2 an extent
//! bits 2..9   class of a slab
//! bits 10..30 pages of the run
//! bits 48..64 check over the other bits and the run's offset
//! ```
//!
//! The first word of a slab's header repeats it.

use super::class::CLASSES;

/// The run that starts at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// Nothing: the page is free, or inside a run.
    None,
    /// A slab.
    Slab {
        /// Its size class.
        class: usize,
        /// Its pages.
        pages: u32,
    },
    /// A single block of whole pages.
    Extent {
        /// Its pages.
        pages: u32,
    },
}

const PAGES_BITS: u64 = (1 << 20) - 1;

impl Run {
    /// Encodes the word for a run at `offset`.
    #[inline]
    pub(super) fn encode(self, offset: u64) -> u64 {
        let bits = match self {
            Self::None => return 0,
            Self::Slab { class, pages } => 1 | (class as u64) << 2 | u64::from(pages) << 10,
            Self::Extent { pages } => 2 | u64::from(pages) << 10,
        };
        bits | check(bits, offset) << 48
    }

    /// Decodes the word of the page at `offset`; `None` if it is damaged.
    pub(super) fn decode(word: u64, offset: u64) -> Option<Self> {
        if word == 0 {
            return Some(Self::None);
        }
        let pages = ((word >> 10) & PAGES_BITS) as u32;
        let class = ((word >> 2) & 0x7f) as usize;
        let run = match word & 3 {
            1 if class < CLASSES => Self::Slab { class, pages },
            2 => Self::Extent { pages },
            _ => return None,
        };
        (pages > 0 && run.encode(offset) == word).then_some(run)
    }
}

fn check(bits: u64, offset: u64) -> u64 {
    let mixed = (bits ^ offset.rotate_left(20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 48
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_encoding_and_no_flipped_bit_does() {
        for offset in [4096, 1 << 20, (1 << 46) + 4096] {
            for run in [
                Run::Slab { class: 0, pages: 1 },
                Run::Slab { class: 71, pages: 64 },
                Run::Extent { pages: 1 },
                Run::Extent { pages: 262_143 },
            ] {
                let word = run.encode(offset);
                assert_eq!(Run::decode(word, offset), Some(run));
                for bit in 0..64 {
                    assert_eq!(Run::decode(word ^ (1 << bit), offset), None, "bit {bit}");
                }
                assert_eq!(Run::decode(word, offset + 4096), None);
            }
        }
        assert_eq!(Run::decode(0, 4096), Some(Run::None));
    }
}
