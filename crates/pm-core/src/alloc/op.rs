//! Operations: reserving, staging, and the shortcuts for one block.

use core::cell::Cell;

use crate::cell::{PmCell, PmType, PmU64, Word};
use crate::error::PmError;
use crate::media::{Flushed, Medium};
use crate::pool::{IndexId, Pool};
use crate::ptr::PPtr;

use super::claim::Claimed;
use super::class::{ALIGN_MAX, CLASSES, class_bytes, class_of};
use super::geometry::PAGE;
use super::heap::{Block, corrupt};
use super::slab::Slab;
use super::slot::{Entry, LOG_WORDS, Role, Slot, SlotState, filter_bit, filter_pages};
use super::ticket::{self, Condition, TICKET_WORDS, TicketBlock};
use super::zone::Page;
use super::{MicroLog, Owner, Reserved};

const DEAD: &str = "a freed pointer that leads to no live block";

/// One operation that allocates, frees, or logs: it holds a slot of the pool.
///
/// ```text
/// let mut op = pool.op()?;
/// let block = op.reserve::<Node>()?;                       // volatile
/// let filled = ...;                                        // fill it, flush it
/// op.allocate(&block, Owner::pointer(&parent.child, block.ptr()))?;   // ticket
/// op.prepare(filled)?;                                     // P1: flush tickets, fence
/// pm.store(&parent.child, block.ptr());                    // P2, LIN
/// let f = op.seal().and(pm.flush(&parent.child));          // allocation bits
/// let durable = pm.fence(f)?;                              // DUR
/// op.finish(durable);                                      // P3
/// ```
///
/// From staging to [`finish`](Self::finish) no other operation may change the bits that the tickets name.
/// Release the locks on them after it, or after the operation is dropped.
///
/// Dropping an operation in the middle (an error, a panic) decides every ticket by its word, as recovery
/// would, and gives unallocated reservations back.
#[derive(Debug)]
pub struct Op<'p, M: Medium> {
    pub(super) pool: &'p Pool<M>,
    pub(super) slot: &'p Slot,
    pub(super) index: usize,
    /// The slot's words on the medium.
    pub(super) words: &'p [PmU64],
    pub(super) state: Claimed<'p, SlotState>,
    pub(super) step: Step,
    pub(super) logged: Cell<bool>,
}

/// The step that an operation has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Reserving and writing tickets.
    Open,
    /// Tickets are flushed.
    Staged,
    /// Tickets are durable.
    Prepared,
    /// Allocation bits follow the words.
    Sealed,
    /// Over.
    Finished,
}

impl<M: Medium> Pool<M> {
    /// Starts an operation that allocates, frees or logs.
    ///
    /// # Errors
    /// [`PmError::Busy`] if every slot stays taken for some seconds, [`PmError::ReadOnly`].
    ///
    /// # Cost
    /// No flush, no fence.
    pub fn op(&self) -> Result<Op<'_, M>, PmError> {
        self.check_may_write()?;
        self.go_on_dropping();
        let (index, slot, state) = self.claim()?;
        let words = self.slot_words(index)?;
        Ok(Op { pool: self, slot, index, words, state, step: Step::Open, logged: Cell::new(false) })
    }

    /// Lets `left` more reservations succeed and makes every later one fail, alternately as in a full pool
    /// (first, if `left` is even) and as on a full device; `None` ends that. For tests.
    #[doc(hidden)]
    pub fn fail_allocation_after(&self, left: Option<u64>) {
        self.heap.limit_reservations(left, u64::MAX);
    }

    /// Makes the reservations fail whose bits are set: the next one by the lowest bit, all from the 64th on by the
    /// highest. Ended as [`fail_allocation_after`](Self::fail_allocation_after) is. For tests.
    #[doc(hidden)]
    pub fn fail_allocations(&self, which: u64) {
        self.heap.limit_reservations(Some(0), which);
    }

    /// Allocates a `T` into `dest`: `init` fills and flushes it.
    ///
    /// `dest` must be a word that only this thread changes until this returns.
    ///
    /// [`PmError::Full`] and those of [`op`](Self::op); nothing has changed then.
    /// [`PmError::Full`] and those of [`op`](Self::op); nothing is changed then.
    ///
    /// Two fences. Besides the lines that `init` flushes: three lines (ticket, `dest`, allocation bit), and
    /// two more when a slab is made.
    #[track_caller]
    pub fn alloc_into<T: PmType>(
        &self,
        dest: &PmCell<PPtr<T>>,
        init: impl FnOnce(&T) -> Flushed,
    ) -> Result<PPtr<T>, PmError> {
        if self.pm().is_volatile() {
            return self.alloc_volatile(dest, |block| {
                let _ = init(block);
            });
        }
        let mut op = self.op()?;
        let block = op.reserve::<T>()?;
        let filled = init(self.get(block.ptr())?);
        op.allocate(&block, Owner::pointer(dest, block.ptr()))?;
        op.prepare(filled)?; // durable before: P2
        self.pm().store(dest, block.ptr()); // P2, LIN(alloc_into)
        let flushed = op.seal().and(self.pm().flush(dest));
        let durable = self.pm().fence(flushed)?; // DUR(alloc_into)
        op.finish(durable);
        Ok(block.ptr())
    }

    /// Frees the block that `dest` points to and sets `dest` to null. Does nothing if it is null.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if `dest` points to no live block; nothing has changed then.
    ///
    /// # Cost
    /// Two fences and three lines (ticket, `dest`, allocation bit).
    #[track_caller]
    pub fn free_from<T: PmType>(&self, dest: &PmCell<PPtr<T>>) -> Result<(), PmError> {
        let ptr = self.pm().load(dest);
        if ptr.is_null() {
            return Ok(());
        }
        if self.pm().is_volatile() {
            return self.free_volatile(dest, ptr);
        }
        let mut op = self.op()?;
        op.free(ptr, Owner::pointer(dest, ptr))?;
        op.prepare(Flushed::nothing())?; // durable before: P2
        self.pm().store(dest, PPtr::NULL); // P2, LIN(free_from)
        let flushed = op.seal().and(self.pm().flush(dest));
        let durable = self.pm().fence(flushed)?; // DUR(free_from)
        op.finish(durable);
        Ok(())
    }

    /// Returns the largest number of blocks that one operation can allocate and free. It is fixed at the pool's
    /// creation, however far the pool grows.
    #[must_use]
    pub fn tickets_per_op(&self) -> usize {
        (self.heap.geometry.slot_bytes as usize / 8 - LOG_WORDS) / TICKET_WORDS
    }

    /// Returns the size in bytes of the largest possible block. The zone size limits it, which is fixed at
    /// the pool's creation, however far the pool grows.
    pub fn largest_block(&self) -> u64 {
        self.heap.usable_pages() * PAGE
    }

    /// Returns the usable bytes of a block, at least the size asked for.
    ///
    /// # Errors
    /// [`PmError::Corrupt`] if `ptr` points to no block.
    pub fn block_size<T>(&self, ptr: PPtr<T>) -> Result<u64, PmError> {
        Ok(self.heap.bytes_of(self.locate(ptr.offset())?))
    }

    /// Checks that `target` is the start of a block. For a caller that reads zeros there: after the loss of a
    /// page, words that were never written look the same.
    ///
    /// # Errors
    /// [`PmError::Corrupt`].
    pub fn check_block<T: PmType>(&self, target: &T) -> Result<(), PmError> {
        if !self.pm().is_volatile() {
            self.block_size(self.pptr(target))?;
        }
        Ok(())
    }
}

impl<'p, M: Medium> Op<'p, M> {
    /// Reserves a block for a `T`. No flush, no fence.
    ///
    /// # Errors
    /// [`PmError::Full`], [`PmError::TooLarge`], [`PmError::Corrupt`].
    #[inline]
    pub fn reserve<T: PmType>(&mut self) -> Result<Reserved<T>, PmError> {
        const { assert!(align_of::<T>() <= ALIGN_MAX as usize, "alignment of a block") };
        let class = const { class_of(size_of::<T>() as u64, align_of::<T>() as u64) };
        Ok(self.reserve_class(class, size_of::<T>() as u64)?.cast())
    }

    /// Reserves `count` blocks for `T`s: adjacent ones where there is room.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve); blocks reserved so far are given back when the operation ends.
    pub fn reserve_group<T: PmType>(&mut self, count: usize) -> Result<Vec<Reserved<T>>, PmError> {
        (0..count).map(|_| self.reserve()).collect()
    }

    /// Reserves a block of `size` bytes at a multiple of `align` (a power of two, at most 256; a block over
    /// 32 KiB starts at a page).
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_bytes(&mut self, size: u64, align: u64) -> Result<Reserved<PmU64>, PmError> {
        if align > ALIGN_MAX || !align.is_power_of_two() {
            return Err(PmError::BadOption { what: "alignment of a block", value: align });
        }
        self.reserve_class(class_of(size, align), size)
    }

    #[inline]
    fn reserve_class(
        &mut self,
        class: Option<usize>,
        size: u64,
    ) -> Result<Reserved<PmU64>, PmError> {
        let heap = &self.pool.heap;
        if let Some(error) = heap.refuses_reservation(size) {
            return Err(error);
        }
        let (block, offset) = match class {
            Some(class) if heap.shapes[class].pages > 0 => self.take_block(class)?,
            _ => {
                let block = self.take_extent(size)?;
                (block, heap.offset_of(block))
            }
        };
        let condition = Condition { word: 0, mask: 0, expect: 0 };
        let entry = self.state.entries.len() as u32;
        let role = Role::Reserved;
        self.state.entries.push(Entry { block, offset, role, condition, live: false });
        Ok(Reserved::new(PPtr::new(offset), entry))
    }

    /// Takes a block of the slab that the slot is attached to, or of the next one.
    #[inline]
    fn take_block(&mut self, class: usize) -> Result<(Block, u64), PmError> {
        if let Some(&attached) = self.state.attached.get(class)
            && let Some(slab) = attached.checked_sub(1)
            && let state = self.pool.heap.slab(slab)
            && let Some(bit) = self.take_bit(state)
        {
            return Ok((Block::Slab { slab, bit }, state.offset_of_class(bit, class)));
        }
        let block = self.take_from_next_slab(class)?;
        Ok((block, self.pool.heap.offset_of(block)))
    }

    /// Takes a free block of a slab; another thread may just have freed it.
    #[inline(always)]
    fn take_bit(&self, slab: &Slab) -> Option<u32> {
        self.pool.pm().handover_point();
        slab.take()
    }

    #[cold]
    fn take_from_next_slab(&mut self, class: usize) -> Result<Block, PmError> {
        if self.state.attached.is_empty() {
            self.state.attached.resize(CLASSES, 0);
        }
        self.detach(class);
        loop {
            let slab =
                self.find_room(class_bytes(class), |pool, thorough| pool.attach(class, thorough))?;
            let state = self.pool.heap.slab(slab);
            if state.is_fresh() {
                self.state.fresh.push(slab);
            }
            // A slab from the lists has room, and no other thread takes from it now.
            if let Some(bit) = self.take_bit(state) {
                self.state.attached[class] = slab + 1;
                return Ok(Block::Slab { slab, bit });
            }
            self.pool.list(&mut self.pool.pm().lock(&self.pool.heap.shared), slab);
        }
    }

    /// Detaches the slot from its slab of a class.
    fn detach(&mut self, class: usize) {
        let pool = self.pool;
        if let Some(slab) = self.state.attached[class].checked_sub(1) {
            self.state.attached[class] = 0;
            if !self.state.fresh.contains(&slab) {
                pool.list(&mut pool.pm().lock(&pool.heap.shared), slab);
            }
        }
    }

    fn take_extent(&mut self, size: u64) -> Result<Block, PmError> {
        let most = self.pool.heap.usable_pages();
        let pages = size.div_ceil(PAGE).max(1);
        if pages > most {
            return Err(PmError::TooLarge { wanted: size, max: most * PAGE });
        }
        self.find_room(size, |pool, _| pool.new_extent(pages as u32))
    }

    /// Tries `take`. As long as there is no room, it reclaims what waits to be given back, reads every slab,
    /// and grows the pool, in this order.
    fn find_room<T>(
        &mut self,
        wanted: u64,
        take: impl Fn(&Pool<M>, bool) -> Result<Option<T>, PmError>,
    ) -> Result<T, PmError> {
        let pool = self.pool;
        if let Some(found) = take(pool, false)? {
            return Ok(found);
        }
        if let Some(found) = take(pool, true)? {
            return Ok(found);
        }
        pool.reclaim(Some((self.index, &mut self.state)))?;
        loop {
            if let Some(found) = take(pool, true)? {
                return Ok(found);
            }
            if !pool.grow_for(pool.heap.geometry.zone_bytes)? {
                return Err(PmError::Full { wanted, capacity: pool.len() });
            }
        }
    }

    /// Stages "the block becomes live if and only if `owner` holds" (step P1). The owner must not hold yet.
    ///
    /// # Errors
    /// [`PmError::TooManyTickets`], and [`PmError::Corrupt`] if the owner's word already says that the block
    /// is live; nothing is staged then.
    pub fn allocate<T>(&mut self, block: &Reserved<T>, owner: Owner<'_>) -> Result<(), PmError> {
        let at = block.entry as usize;
        let entry = self.state.entries.get(at).copied();
        let Some(entry) = entry.filter(|e| e.offset == block.ptr().offset()) else {
            return Err(corrupt("a reservation of another operation", block.ptr().offset()));
        };
        if entry.role != Role::Reserved {
            return Err(corrupt("a block allocated twice", entry.offset));
        }
        let condition = self.condition(owner, false, entry.offset)?;
        self.write_ticket(entry.block, entry.offset, condition)?;
        self.state.entries[at] = Entry { role: Role::Allocated, condition, ..entry };
        Ok(())
    }

    /// Stages "the live block stays live if and only if `owner` holds" (step P1). The owner must hold now.
    ///
    /// # Errors
    /// [`PmError::TooManyTickets`], and [`PmError::Corrupt`] if `block` is no live block, or is not the
    /// owner's; nothing is staged then.
    pub fn free<T>(&mut self, block: PPtr<T>, owner: Owner<'_>) -> Result<(), PmError> {
        self.stage_free(block.offset(), owner, Role::Freed)
    }

    /// As [`free`](Self::free), for a block that readers may still be in: it is reused only when
    /// every thread pinned at the end of this operation has unpinned.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn retire<T>(&mut self, block: PPtr<T>, owner: Owner<'_>) -> Result<(), PmError> {
        self.stage_free(block.offset(), owner, Role::Retired)
    }

    fn stage_free(&mut self, offset: u64, owner: Owner<'_>, role: Role) -> Result<(), PmError> {
        let pool = self.pool;
        let block = pool.locate(offset)?;
        let condition = self.condition(owner, true, offset)?;
        let volatile = pool.pm().is_volatile();
        if !volatile && !pool.is_live(block) {
            return Err(corrupt(DEAD, offset));
        }
        let first = match block {
            Block::Slab { slab, bit } => pool.heap.slab(slab).leave(bit),
            Block::Extent { offset, .. } => {
                pool.heap.exchange_extent(offset, Page::Extent, Page::Leaving)
            }
        };
        if !first {
            return Err(corrupt(DEAD, offset));
        }
        // From here on the operation's end decides about the block, however it ends.
        self.state.entries.push(Entry { block, offset, role, condition, live: true });
        if let Err(error) = self.write_ticket(block, offset, condition) {
            self.state.entries.pop();
            pool.stay(block);
            return Err(error);
        }
        if !volatile {
            self.state.freed_pages |= filter_pages(offset, pool.heap.bytes_of(block));
        }
        Ok(())
    }

    /// Returns the condition as recovery will read it; `holds` is its required present value.
    fn condition(&self, owner: Owner<'_>, holds: bool, block: u64) -> Result<Condition, PmError> {
        let word = self.pool.pptr(owner.word).offset();
        let condition = Condition { word, mask: owner.mask, expect: owner.expect };
        if condition.holds(self.pool.pm().load(owner.word)) == holds {
            return Ok(condition);
        }
        Err(corrupt("an owner that contradicts its block", block))
    }

    fn write_ticket(
        &mut self,
        block: Block,
        offset: u64,
        condition: Condition,
    ) -> Result<(), PmError> {
        if self.pool.pm().is_volatile() {
            return Ok(());
        }
        let at = LOG_WORDS + self.state.tickets as usize * TICKET_WORDS;
        let Some(cells) = self.words.get(at..at + TICKET_WORDS) else {
            return Err(PmError::TooManyTickets { max: self.state.tickets as usize });
        };
        let subject = match block {
            Block::Extent { offset, pages } => TicketBlock::Extent { offset, pages },
            Block::Slab { slab, .. } => {
                let slab = self.pool.heap.slab(slab);
                let (class, base, fresh) = (slab.class(), slab.base(), slab.is_fresh());
                TicketBlock::Slab { offset, class, base, fresh }
            }
        };
        ticket::write(self.pool.pm(), cells, subject, condition);
        self.state.tickets += 1;
        self.state.names |= filter_bit(offset) | filter_bit(condition.word);
        self.state.word_pages |= filter_pages(condition.word, 8);
        self.step = Step::Open;
        Ok(())
    }

    /// Announces that the commit of this operation changes `word`, which none of its own tickets names. If an
    /// earlier operation's ticket names it, that ticket is made durably void under P1.
    pub fn changes<W: Word>(&mut self, word: &PmCell<W>) {
        self.state.changes |= filter_bit(self.pool.pptr(word.as_word()).offset());
    }

    /// Returns the idle micro-log of this operation's slot, for index `index`.
    ///
    /// # Errors
    /// [`PmError::Busy`] if the slot's log still waits for the recovery of another operation.
    pub fn log(&self, index: IndexId) -> Result<&'p MicroLog, PmError> {
        let log = self.pool.micro_log(self.index)?;
        let state = self.pool.pm().load(&log.state);
        let mine = self.logged.get() && MicroLog::index_of(state) == index;
        if state != 0 && !mine {
            let slots = self.pool.heap.geometry.slot_count as usize;
            return Err(PmError::Busy { slots });
        }
        self.logged.set(true);
        Ok(log)
    }
}

impl<M: Medium> Pool<M> {
    /// Keeps a block that an operation wanted to free.
    pub(super) fn stay(&self, block: Block) {
        match block {
            Block::Slab { slab, bit } => self.heap.slab(slab).stay(bit),
            Block::Extent { offset, .. } => {
                self.heap.exchange_extent(offset, Page::Leaving, Page::Extent);
            }
        }
    }
}
