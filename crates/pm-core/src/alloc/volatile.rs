//! The fast path of volatile pools: no ticket, no bit on the medium; one atomic instruction to claim a slot,
//! one to take a block, one to give it back.

use crate::cell::{PmCell, PmType};
use crate::error::PmError;
use crate::media::Medium;
use crate::pool::Pool;
use crate::ptr::PPtr;

use super::class::class_of;
use super::heap::{Block, corrupt};
use super::zone::Page;

/// Gives a block back when it is dropped, unless it is defused: `init` may panic.
struct Unless<'p, M: Medium>(&'p Pool<M>, Block);

impl<M: Medium> Drop for Unless<'_, M> {
    fn drop(&mut self) {
        self.0.give_back(self.1);
    }
}

impl<M: Medium> Pool<M> {
    /// `alloc_into` of a volatile pool.
    #[inline]
    pub(super) fn alloc_volatile<T: PmType>(
        &self,
        dest: &PmCell<PPtr<T>>,
        init: impl FnOnce(&T),
    ) -> Result<PPtr<T>, PmError> {
        self.check_may_write()?;
        let class = const { class_of(size_of::<T>() as u64, align_of::<T>() as u64) };
        let (block, offset) = match class.and_then(|class| self.take_attached(class)) {
            Some(found) => found,
            None => self.take_volatile::<T>()?,
        };
        let unless = Unless(self, block);
        let ptr = PPtr::new(offset);
        init(self.get(ptr)?);
        core::mem::forget(unless);
        self.pm().store(dest, ptr);
        Ok(ptr)
    }

    /// Takes a block of the slab that this thread's slot is attached to.
    #[inline]
    fn take_attached(&self, class: usize) -> Option<(Block, u64)> {
        if self.heap.limits_reservations() {
            return None;
        }
        let state = self.last_slot()?.state.try_claim()?;
        let number = state.attached.get(class)?.checked_sub(1)?;
        let slab = self.heap.slab(number);
        let bit = slab.take()?;
        Some((Block::Slab { slab: number, bit }, slab.offset_of_class(bit, class)))
    }

    #[cold]
    fn take_volatile<T: PmType>(&self) -> Result<(Block, u64), PmError> {
        let mut op = self.op()?;
        let offset = op.reserve::<T>()?.ptr().offset();
        op.keep_all();
        Ok((self.locate(offset)?, offset))
    }

    /// `free_from` of a volatile pool.
    #[inline]
    pub(super) fn free_volatile<T>(
        &self,
        dest: &PmCell<PPtr<T>>,
        ptr: PPtr<T>,
    ) -> Result<(), PmError> {
        const DEAD: &str = "a freed pointer that leads to no live block";
        self.check_may_write()?;
        let offset = ptr.offset();
        let block = match self.heap.known_page(offset) {
            Some(Page::Slab(slab)) => {
                let bit = self.heap.slab(slab).bit_of(offset).ok_or(corrupt(DEAD, offset))?;
                Block::Slab { slab, bit }
            }
            _ => self.locate(offset)?,
        };
        self.pm().store(dest, PPtr::NULL);
        if self.give_back(block) { Ok(()) } else { Err(corrupt(DEAD, offset)) }
    }
}
