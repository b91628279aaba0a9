//! Recovery: decides every ticket by its word.
//!
//! ```text
//! step  store                                                durable before
//! R1    page-table words, allocation bits                    R2
//! R2    tickets void                                         return
//! ```
//!
//! It reads only the tickets and the words and bits they name, and changes no owner's word: so it makes the
//! same decisions however often it is interrupted. Everything it reads is durable: opening the pool ensured
//! that.

use core::sync::atomic::Ordering::Release;

use crate::error::PmError;
use crate::media::{Flushed, Medium, Rmw};
use crate::pool::Pool;

use super::class::{class_bytes, class_start};
use super::head::Run;
use super::heap::corrupt;
use super::slot::LOG_WORDS;
use super::ticket::{self, TICKET_WORDS, TicketBlock};

/// A ticket that an interrupted operation left.
struct Left {
    subject: TicketBlock,
    live: bool,
    slot: usize,
    word: usize,
}

impl<M: Medium> Pool<M> {
    /// Formats the allocator's parts of a pool that reads as zeros: an unused zone and a slot without tickets
    /// are zeros.
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "a step of creation")]
    pub(crate) fn format_heap(&self) -> Result<(), PmError> {
        Ok(())
    }

    /// Recovers the allocator after any shutdown. Idempotent; may be interrupted itself. Returns the number
    /// of tickets decided.
    ///
    /// # Cost
    /// Reads the slots. If some tickets are not void: two fences, the lines of these tickets and the lines of
    /// the bits they decide.
    pub(crate) fn recover_heap(&self) -> Result<u64, PmError> {
        let mut left = Vec::new();
        for slot in 0..self.heap.geometry.slot_count as usize {
            self.read_slot(slot, &mut left)?;
        }
        if left.is_empty() {
            return Ok(0);
        }
        Self::refuse_contradictions(&mut left)?;
        // The live blocks first: they decide whether a new slab exists, and so whether the bits of its dead
        // blocks count.
        left.sort_by_key(|ticket| !ticket.live);
        let mut touched = Vec::new();
        for ticket in &left {
            self.decide_left(ticket, &mut touched)?;
        }
        self.pm().fence(self.flush_lines(&mut touched))?; // R1, durable before: R2
        for ticket in &left {
            let cell = &self.slot_words(ticket.slot)?[ticket.word];
            self.pm().store(cell, 0);
            touched.push(self.pptr(cell).offset());
        }
        self.pm().fence(self.flush_lines(&mut touched))?; // R2
        Ok(left.len() as u64)
    }

    /// Flushes each line that has one of these words once, and clears the list.
    #[track_caller]
    fn flush_lines(&self, touched: &mut Vec<u64>) -> Flushed {
        touched.sort_unstable();
        touched.dedup_by_key(|offset| *offset & !63);
        let mut flushed = Flushed::nothing();
        for line in touched.drain(..) {
            flushed = flushed.and(self.pm().flush(self.meta(line)));
        }
        flushed
    }

    /// Collects the tickets of a slot that are not void, and notes whether its micro-log is pending.
    fn read_slot(&self, slot: usize, left: &mut Vec<Left>) -> Result<(), PmError> {
        let geometry = &self.heap.geometry;
        let words = self.slot_words(slot)?;
        if self.pm().load(&words[0]) != 0 {
            self.heap.slots.ensure(slot).log_held.store(true, Release);
        }
        let offset = geometry.slots_offset + slot as u64 * geometry.slot_bytes;
        for word in (LOG_WORDS..words.len()).step_by(TICKET_WORDS) {
            let cells = &words[word..word + TICKET_WORDS];
            let at = offset + word as u64 * 8;
            // All tickets: a crash may leave any of an operation's ticket lines without the others.
            let Some((subject, condition)) = ticket::read(self.pm(), cells, at)? else { continue };
            let owner = self.words(condition.word, 1)?;
            let live = condition.holds(self.pm().load(&owner[0]));
            left.push(Left { subject, live, slot, word });
        }
        Ok(())
    }

    /// Checks that tickets for one block agree, as settling ensures.
    fn refuse_contradictions(left: &mut [Left]) -> Result<(), PmError> {
        left.sort_by_key(|ticket| ticket.subject.offset());
        for pair in left.windows(2) {
            let offset = pair[0].subject.offset();
            if offset == pair[1].subject.offset() && pair[0].live != pair[1].live {
                return Err(corrupt("two tickets that disagree about a block", offset));
            }
        }
        Ok(())
    }

    /// Tells the allocator that the pool now ends at `end`, durably and at a zone.
    pub(crate) fn extend_heap(&self, end: u64) {
        self.heap.extend(end);
    }

    /// R1 for one ticket.
    fn decide_left(&self, ticket: &Left, touched: &mut Vec<u64>) -> Result<(), PmError> {
        match ticket.subject {
            TicketBlock::Extent { offset, pages } => {
                self.decide_extent(offset, pages, ticket, touched)
            }
            TicketBlock::Slab { offset, class, base, fresh } => {
                let within = offset.checked_sub(base + class_start(class));
                let size = class_bytes(class);
                let bit = within.filter(|within| within % size == 0).map(|within| within / size);
                let blocks = u64::from(self.heap.shapes[class].blocks);
                let bit = bit.filter(|&bit| bit < blocks).ok_or(corrupt("a ticket", offset))?;
                if self.decide_slab(base, class, ticket.live, fresh, touched)? {
                    let cell = &self.words(base, 8)?[1 + bit as usize / 64];
                    let mask = 1 << (bit % 64);
                    if (self.pm().load(cell) & mask != 0) != ticket.live {
                        let change = if ticket.live { Rmw::Or(mask) } else { Rmw::And(!mask) };
                        self.pm().rmw_word(cell, change);
                    }
                    touched.push(base);
                }
                Ok(())
            }
        }
    }

    fn decide_extent(
        &self,
        offset: u64,
        pages: u32,
        ticket: &Left,
        touched: &mut Vec<u64>,
    ) -> Result<(), PmError> {
        let at = self.heap.head_of(offset).ok_or(corrupt("a ticket", offset))?;
        let (cell, wanted) = (self.meta(at), Run::Extent { pages }.encode(offset));
        let head = self.pm().load(cell);
        if ticket.live && head != wanted {
            if head != 0 {
                return Err(corrupt("a live extent where something else starts", offset));
            }
            self.pm().store(cell, wanted);
        } else if !ticket.live && head == wanted {
            self.pm().store(cell, 0);
        }
        touched.push(at & !63);
        Ok(())
    }

    /// Returns `true` if the slab exists; if it began with this block, the live block decides that.
    fn decide_slab(
        &self,
        base: u64,
        class: usize,
        live: bool,
        fresh: bool,
        touched: &mut Vec<u64>,
    ) -> Result<bool, PmError> {
        let at = self.heap.head_of(base).ok_or(corrupt("a ticket", base))?;
        let (cell, wanted) = (self.meta(at), self.heap.slab_head(class, base));
        let head = self.pm().load(cell);
        if head != wanted && !live {
            return Ok(false);
        }
        // The header was durable before the commit, and before the page-table word.
        let header = self.pm().load(&self.words(base, 8)?[0]);
        if header != wanted || head != wanted && (head != 0 || !fresh) {
            return Err(corrupt("the slab of a live block", base));
        }
        if head != wanted {
            self.pm().store(cell, wanted);
        }
        touched.push(at & !63);
        Ok(true)
    }
}
