//! Tickets on the medium: the condition under which a block is live while that changes.
//!
//! ```text
//!  0        8              16     24
//!  | block  | owner's word | mask | expect |
//!
//! block: bits 0..2    0: no ticket; 1: of a slab; 2: of a slab whose page-table word is
//!                     written with this block; 3: an extent
//!        bits 2..9    class            } of a slab
//!        bits 9..15   page in the slab }
//!        bits 2..20   pages              of an extent
//!        bits 20..64  offset / 16
//! ```
//!
//! A line holds two tickets. `block` is written last: the words of a line become durable in the order of
//! their stores, so a ticket with a valid `block` is complete.

use crate::cell::PmU64;
use crate::error::PmError;
use crate::media::Medium;

use super::class::CLASSES;
use super::geometry::PAGE;

/// The words of a ticket.
pub(super) const TICKET_WORDS: usize = 4;
/// The tickets of a line.
pub(super) const TICKETS_PER_LINE: usize = 2;

/// The block that a ticket names, and the place of its allocation bit, which recovery finds without the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TicketBlock {
    /// A block of a slab.
    Slab {
        /// The block's offset.
        offset: u64,
        /// The class.
        class: usize,
        /// The slab's offset.
        base: u64,
        /// `true` if the slab starts to exist with this block.
        fresh: bool,
    },
    /// An extent.
    Extent {
        /// Its offset.
        offset: u64,
        /// Its pages.
        pages: u32,
    },
}

impl TicketBlock {
    #[inline]
    pub(super) fn offset(self) -> u64 {
        match self {
            Self::Slab { offset, .. } | Self::Extent { offset, .. } => offset,
        }
    }

    /// Encodes the ticket's first word.
    #[inline]
    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Slab { offset, class, base, fresh } => {
                let page = offset / PAGE - base / PAGE;
                offset << 16 | page << 9 | (class as u64) << 2 | if fresh { 2 } else { 1 }
            }
            Self::Extent { offset, pages } => offset << 16 | u64::from(pages) << 2 | 3,
        }
    }

    /// Decodes the first word; `None` if it is damaged. 0 means no ticket and is not passed.
    pub(super) fn decode(word: u64) -> Option<Self> {
        let offset = (word >> 20) << 4;
        if word & 3 == 3 {
            let pages = ((word >> 2) & 0x3_ffff) as u32;
            return (pages > 0 && offset.is_multiple_of(PAGE))
                .then_some(Self::Extent { offset, pages });
        }
        let class = ((word >> 2) & 0x7f) as usize;
        let page = (word >> 9) & 0x3f;
        let base = (offset / PAGE).checked_sub(page)? * PAGE;
        let valid = word & 3 != 0 && class < CLASSES && word & 0xf_8000 == 0;
        valid.then_some(Self::Slab { offset, class, base, fresh: word & 3 == 2 })
    }
}

/// The condition of a ticket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    /// The offset of the owner's word.
    pub(super) word: u64,
    pub(super) mask: u64,
    pub(super) expect: u64,
}

impl Condition {
    #[inline]
    pub(super) fn holds(&self, word: u64) -> bool {
        word & self.mask == self.expect
    }
}

/// Writes a ticket.
pub(super) fn write<M: Medium>(
    pm: &M,
    cells: &[PmU64],
    subject: TicketBlock,
    condition: Condition,
) {
    pm.in_order(); // durable before: the void of the ticket that was here, on the same line
    pm.store(&cells[1], condition.word);
    pm.store(&cells[2], condition.mask);
    pm.store(&cells[3], condition.expect);
    pm.in_order(); // durable before: the word that makes the ticket count, on the same line
    pm.store(&cells[0], subject.encode());
}

/// Reads a ticket; returns `Ok(None)` if there is none.
pub(super) fn read<M: Medium>(
    pm: &M,
    cells: &[PmU64],
    offset: u64,
) -> Result<Option<(TicketBlock, Condition)>, PmError> {
    let first = pm.load(&cells[0]);
    if first == 0 {
        return Ok(None);
    }
    let subject =
        TicketBlock::decode(first).ok_or(PmError::Corrupt { what: "a ticket", offset })?;
    let condition = Condition {
        word: pm.load(&cells[1]),
        mask: pm.load(&cells[2]),
        expect: pm.load(&cells[3]),
    };
    Ok(Some((subject, condition)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_survive_encoding() {
        for subject in [
            TicketBlock::Slab { offset: 4096 + 64, class: 0, base: 4096, fresh: false },
            TicketBlock::Slab { offset: (65 << 12) + 16, class: 71, base: 2 << 12, fresh: true },
            TicketBlock::Slab { offset: (1 << 47) + 16, class: 3, base: 1 << 47, fresh: true },
            TicketBlock::Extent { offset: 4096, pages: 1 },
            TicketBlock::Extent { offset: 1 << 46, pages: 262_143 },
        ] {
            assert_eq!(TicketBlock::decode(subject.encode()), Some(subject));
        }
        assert_eq!(TicketBlock::decode(3), None);
        assert_eq!(TicketBlock::decode(1 | 127 << 2), None);
        assert_eq!(TicketBlock::decode(1 | 63 << 9), None);
    }
}
