//! The heap in DRAM: the places of blocks and the free space.
//!
//! Everything here is derived from the medium and built when it is first needed: opening a pool reads no page
//! table and no bitmap. One lock, [`Shared`], guards the lists and the free pages; an operation takes it when
//! a slab is used up, not per block. The lock is taken through the medium, because its holder reads the pool.
//! Lock order: a slot's state, then `Shared`; no thread waits for a second slot's state.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use parking_lot::Mutex;

use crate::cell::PmU64;
use crate::error::PmError;
use crate::media::Medium;
use crate::pool::Pool;

use super::class::{CLASSES, Shapes, class_bytes, shapes_for};
use super::geometry::{HeapGeometry, PAGE};
use super::head::Run;
use super::holes::Holes;
use super::limbo::Limbo;
use super::slab::{Bits, Phase, Slab};
use super::slot::Slot;
use super::table::Table;
use super::zone::{FreePages, Page, Zone, table_pages};

/// The allocator of a pool.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) geometry: HeapGeometry,
    pub(super) shapes: &'static Shapes,
    zone_shift: u32,
    /// The end of the last zone, raised by growth.
    end: AtomicU64,
    zones: Table<Zone>,
    slabs: Table<Slab>,
    pub(super) shared: Mutex<Shared>,
    /// `true` if `Shared::empties` has any slab.
    pub(super) has_empties: AtomicBool,
    pub(super) slots: Table<Slot>,
    /// All slots that were ever claimed are below this number.
    pub(super) slots_used: AtomicUsize,
    pub(super) limbo: Limbo,
    /// The number of reservations that still succeed; `u64::MAX` means all. For tests.
    reservations_left: AtomicU64,
    /// Which reservations after these fail: the next one by the lowest bit, the last ones by the highest. For tests.
    refusals: AtomicU64,
    /// `true` if the next refusal reports a full device. For tests.
    device_refuses: AtomicBool,
}

/// The part of the heap that the lock guards.
#[derive(Debug)]
pub(super) struct Shared {
    /// By zone; `None` until its page table is read.
    pub(super) free: Vec<Option<FreePages>>,
    /// No zone before this one has free pages.
    pub(super) first_zone: usize,
    lists: Vec<Lists>,
    /// Slabs without blocks, to be given back by the next operation that stages.
    pub(super) empties: Vec<u32>,
    /// The runs of the file without memory.
    pub(super) holes: Holes,
    spare_slabs: Vec<u32>,
    slabs: u32,
}

/// The slabs of a class that no slot is attached to.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) room: Vec<u32>,
    pub(super) unread: Vec<u32>,
}

/// The location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    /// Block `bit` of slab number `slab`.
    Slab { slab: u32, bit: u32 },
    /// A run of pages.
    Extent { offset: u64, pages: u32 },
}

/// Returns a corrupt-pool error.
#[inline]
pub(super) fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}

impl Heap {
    /// Creates the allocator's DRAM state; does not access the medium.
    pub(crate) fn new(geometry: HeapGeometry) -> Self {
        Self {
            geometry,
            shapes: shapes_for(geometry.zone_bytes),
            zone_shift: geometry.zone_bytes.trailing_zeros(),
            end: AtomicU64::new(geometry.end),
            zones: Table::new(),
            slabs: Table::new(),
            shared: Mutex::new(Shared {
                free: Vec::new(),
                first_zone: 0,
                lists: Vec::new(),
                empties: Vec::new(),
                holes: Holes::default(),
                spare_slabs: Vec::new(),
                slabs: 0,
            }),
            has_empties: AtomicBool::new(false),
            slots: Table::new(),
            slots_used: AtomicUsize::new(0),
            limbo: Limbo::new(),
            reservations_left: AtomicU64::new(u64::MAX),
            refusals: AtomicU64::new(u64::MAX),
            device_refuses: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.end.load(Acquire)
    }

    pub(super) fn extend(&self, end: u64) {
        self.end.fetch_max(end, AcqRel);
    }

    /// Limits the number of further reservations that succeed; then the bits of `refusals` say which ones fail.
    pub(crate) fn limit_reservations(&self, left: Option<u64>, refusals: u64) {
        self.device_refuses.store(left.is_some_and(|left| left % 2 == 1), Relaxed);
        self.refusals.store(refusals, Relaxed);
        self.reservations_left.store(left.unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the error of a reservation of `wanted` bytes that a test wants to fail although there is room.
    #[inline(always)]
    pub(super) fn refuses_reservation(&self, wanted: u64) -> Option<PmError> {
        if self.limits_reservations() { self.count_reservation(wanted) } else { None }
    }

    /// Returns `true` if a limit on reservations is set.
    #[inline(always)]
    pub(super) fn limits_reservations(&self) -> bool {
        self.reservations_left.load(Relaxed) != u64::MAX
    }

    #[cold]
    fn count_reservation(&self, wanted: u64) -> Option<PmError> {
        let one_less = |left: u64| if left == u64::MAX { None } else { left.checked_sub(1) };
        if self.reservations_left.fetch_update(Relaxed, Relaxed, one_less) != Err(0) {
            return None;
        }
        // The highest bit stays.
        let shifted = |refusals: u64| Some(refusals >> 1 | refusals & 1 << 63);
        if matches!(self.refusals.fetch_update(Relaxed, Relaxed, shifted), Ok(now) if now & 1 == 0)
        {
            return None;
        }
        Some(if self.device_refuses.fetch_xor(true, Relaxed) {
            PmError::NoSpace { wanted }
        } else {
            PmError::Full { wanted, capacity: self.end() }
        })
    }

    /// Returns the places of its parts, as when the pool was opened.
    pub(crate) fn geometry(&self) -> &HeapGeometry {
        &self.geometry
    }

    #[inline]
    pub(super) fn zone_count(&self) -> usize {
        ((self.end() - self.geometry.zones_offset) / self.geometry.zone_bytes) as usize
    }

    #[inline]
    pub(super) fn zone_start(&self, zone: usize) -> u64 {
        self.geometry.zones_offset + zone as u64 * self.geometry.zone_bytes
    }

    /// Returns the number of pages of a zone that blocks can use.
    pub(super) fn usable_pages(&self) -> u64 {
        self.geometry.zone_bytes / PAGE - table_pages(self.geometry.zone_bytes)
    }

    /// Returns the zone and page of an offset in the zones.
    #[inline]
    pub(super) fn page_of(&self, offset: u64) -> Option<(usize, usize)> {
        let within = offset.checked_sub(self.geometry.zones_offset)?;
        let zone = (within >> self.zone_shift) as usize;
        let page = ((within & (self.geometry.zone_bytes - 1)) / PAGE) as usize;
        (offset < self.end()).then_some((zone, page))
    }

    /// Returns the state of the page at `offset`, if its zone was read.
    #[inline]
    pub(super) fn known_page(&self, offset: u64) -> Option<Page> {
        let (zone, page) = self.page_of(offset)?;
        self.zones.get(zone)?.page(page)
    }

    /// Returns the offset of the page-table word of the run at `offset`.
    #[inline]
    pub(super) fn head_of(&self, offset: u64) -> Option<u64> {
        let (zone, page) = self.page_of(offset)?;
        let table = table_pages(self.geometry.zone_bytes) as usize;
        (page >= table && offset.is_multiple_of(PAGE))
            .then(|| self.zone_start(zone) + page as u64 * 8)
    }

    /// Returns the page-table word of a slab.
    #[inline]
    pub(super) fn slab_head(&self, class: usize, base: u64) -> u64 {
        Run::Slab { class, pages: self.shapes[class].pages }.encode(base)
    }

    /// Returns slab number `slab`.
    #[inline]
    pub(super) fn slab(&self, slab: u32) -> &Slab {
        match self.slabs.get(slab as usize) {
            Some(slab) => slab,
            None => self.slabs.ensure(slab as usize),
        }
    }

    pub(super) fn zone(&self, zone: usize) -> &Zone {
        self.zones.ensure(zone)
    }

    /// Returns the size of a block in bytes.
    #[inline]
    pub(super) fn bytes_of(&self, block: Block) -> u64 {
        match block {
            Block::Slab { slab, .. } => class_bytes(self.slab(slab).class()),
            Block::Extent { pages, .. } => u64::from(pages) * PAGE,
        }
    }

    /// Returns the offset of a block.
    #[inline]
    pub(super) fn offset_of(&self, block: Block) -> u64 {
        match block {
            Block::Slab { slab, bit } => self.slab(slab).offset_of(bit),
            Block::Extent { offset, .. } => offset,
        }
    }

    /// Marks an extent's first page as `Leaving`, or back.
    pub(super) fn exchange_extent(&self, offset: u64, from: Page, to: Page) -> bool {
        self.page_of(offset).is_some_and(|(zone, page)| self.zone(zone).exchange(page, from, to))
    }

    /// Frees the pages of a run. Under the heap's lock.
    pub(super) fn free_pages(&self, shared: &mut Shared, offset: u64, pages: u32) {
        if let Some((zone, page)) = self.page_of(offset) {
            self.zone(zone).set_free(page, pages);
            if let Some(Some(free)) = shared.free.get_mut(zone) {
                free.add(page, pages);
            }
            shared.first_zone = shared.first_zone.min(zone);
        }
    }
}

impl Shared {
    pub(super) fn lists(&mut self, class: usize) -> &mut Lists {
        if self.lists.is_empty() {
            self.lists.resize_with(CLASSES, Lists::default);
        }
        &mut self.lists[class]
    }

    pub(super) fn push(list: &mut Vec<u32>, heap: &Heap, slab: u32) {
        heap.slab(slab).set_place(list.len());
        list.push(slab);
    }

    pub(super) fn remove(list: &mut Vec<u32>, heap: &Heap, slab: u32) {
        let place = heap.slab(slab).place();
        list.swap_remove(place);
        if let Some(&moved) = list.get(place) {
            heap.slab(moved).set_place(place);
        }
    }

    /// Takes free pages that were found.
    pub(super) fn take_pages(&mut self, zone: usize, first: usize, pages: u32) {
        if let Some(Some(free)) = self.free.get_mut(zone) {
            free.take(first, pages);
        }
    }

    /// Returns a number for a new slab.
    pub(super) fn new_slab(&mut self) -> u32 {
        self.spare_slabs.pop().unwrap_or_else(|| {
            self.slabs += 1;
            self.slabs - 1
        })
    }

    /// Ends a slab without blocks, whose page-table word is durably 0 or was never written.
    pub(super) fn end_slab(&mut self, heap: &Heap, slab: u32) {
        let state = heap.slab(slab);
        heap.free_pages(self, state.base(), heap.shapes[state.class()].pages);
        state.set_phase(Phase::Unused);
        self.spare_slabs.push(slab);
    }
}

impl<M: Medium> Pool<M> {
    /// Returns a word of the allocator's metadata.
    pub(super) fn meta(&self, offset: u64) -> &PmU64 {
        match self.words(offset, 1) {
            Ok([cell]) => cell,
            _ => unreachable!("metadata at {offset:#x} is within the pool"),
        }
    }

    /// Finds the block that starts at `offset`, live or reserved.
    pub(super) fn locate(&self, offset: u64) -> Result<Block, PmError> {
        const BAD: &str = "a pointer to no block of the allocator";
        let heap = &self.heap;
        let (zone, page) = heap.page_of(offset).ok_or(corrupt(BAD, offset))?;
        let known = heap.zones.get(zone).and_then(|zone| zone.page(page));
        let what = if let Some(what) = known {
            what
        } else {
            self.load_zone(&mut self.pm().lock(&heap.shared), zone)?;
            heap.zone(zone).page(page).ok_or(corrupt(BAD, offset))?
        };
        match what {
            Page::Slab(slab) => {
                let state = heap.slab(slab);
                if state.phase() == Phase::Unread {
                    let shared = &mut *self.pm().lock(&heap.shared);
                    if state.phase() == Phase::Unread {
                        self.read_slab(shared, slab)?;
                        self.list(shared, slab);
                    }
                }
                match state.bit_of(offset) {
                    Some(bit) if state.is_taken(bit) => Ok(Block::Slab { slab, bit }),
                    _ => Err(corrupt(BAD, offset)),
                }
            }
            Page::Extent | Page::Leaving if offset.is_multiple_of(PAGE) => {
                Ok(Block::Extent { offset, pages: self.extent_pages(zone, page) })
            }
            _ => Err(corrupt(BAD, offset)),
        }
    }

    /// Returns the class of the slab that begins at `base`, if one does.
    pub(super) fn class_of_slab(&self, base: u64) -> Result<Option<usize>, PmError> {
        let Some((zone, page)) = self.heap.page_of(base) else { return Ok(None) };
        if !self.heap.zone(zone).is_loaded() {
            self.load_zone(&mut self.pm().lock(&self.heap.shared), zone)?;
        }
        Ok(match self.heap.zone(zone).page(page) {
            Some(Page::Slab(slab)) if self.heap.slab(slab).base() == base => {
                Some(self.heap.slab(slab).class())
            }
            _ => None,
        })
    }

    /// Returns the number of pages of the extent at `page`.
    pub(super) fn extent_pages(&self, zone: usize, page: usize) -> u32 {
        let zone = self.heap.zone(zone);
        let end = (self.heap.geometry.zone_bytes / PAGE) as usize;
        let is_inside = |&page: &usize| zone.page(page) == Some(Page::Inside);
        1 + (page + 1..end).take_while(is_inside).count() as u32
    }

    /// Returns `true` if a located block is live on the medium.
    pub(super) fn is_live(&self, block: Block) -> bool {
        match block {
            Block::Slab { slab, bit } => {
                let word = self.heap.slab(slab).base() + 8 * (1 + u64::from(bit) / 64);
                self.pm().load(self.meta(word)) & 1 << (bit % 64) != 0
            }
            Block::Extent { offset, pages } => self.heap.head_of(offset).is_some_and(|head| {
                self.pm().load(self.meta(head)) == Run::Extent { pages }.encode(offset)
            }),
        }
    }

    /// Puts a slab that a slot left, or that was read, on the list where it belongs. Under the heap's lock;
    /// the slab is on no list before.
    pub(super) fn list(&self, shared: &mut Shared, slab: u32) {
        let heap = &self.heap;
        let state = heap.slab(slab);
        state.set_phase(Phase::Full); // before the check: see `Slab::give_back`
        if state.is_empty() {
            state.set_phase(Phase::Empty);
            if state.is_fresh() || self.pm().is_volatile() {
                shared.end_slab(heap, slab);
            } else {
                shared.empties.push(slab);
                heap.has_empties.store(true, Release);
            }
        } else if state.has_room() {
            state.set_phase(Phase::Listed);
            Shared::push(&mut shared.lists(state.class()).room, heap, slab);
        }
    }

    /// Frees a block and moves its slab to the list where it belongs. Its tickets are durably void. Returns
    /// `false` if the block was free.
    #[inline]
    pub(super) fn give_back(&self, block: Block) -> bool {
        let heap = &self.heap;
        match block {
            Block::Extent { offset, pages } => {
                heap.free_pages(&mut self.pm().lock(&heap.shared), offset, pages);
                true
            }
            Block::Slab { slab, bit } => self.give_back_bits(slab, Bits::of(bit)),
        }
    }

    /// [`give_back`](Self::give_back) of several blocks of a slab at once.
    #[inline]
    pub(super) fn give_back_bits(&self, slab: u32, bits: Bits) -> bool {
        let state = self.heap.slab(slab);
        self.pm().handover_point();
        let (were_taken, emptied) = state.give_back(bits);
        self.pm().handover_point();
        let phase = state.phase();
        if phase == Phase::Full || phase == Phase::Listed && emptied && state.is_empty() {
            self.sort_slab(slab);
        }
        were_taken
    }

    /// Moves a slab that was full, or has no block now, to the list where it belongs.
    #[cold]
    fn sort_slab(&self, slab: u32) {
        let heap = &self.heap;
        let state = heap.slab(slab);
        let shared = &mut *self.pm().lock(&heap.shared);
        match state.phase() {
            Phase::Full => self.list(shared, slab),
            Phase::Listed if state.is_empty() => {
                Shared::remove(&mut shared.lists(state.class()).room, heap, slab);
                self.list(shared, slab);
            }
            _ => {}
        }
    }

    /// Raises the number of slots that other threads must look at.
    pub(super) fn note_slot(&self, index: usize) {
        if self.heap.slots_used.load(Relaxed) <= index {
            self.heap.slots_used.fetch_max(index + 1, AcqRel);
        }
    }
}
