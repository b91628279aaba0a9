//! Finding room: page tables and bitmaps are read when they are needed, slabs and extents are made in free
//! pages.
//!
//! Zones and slabs are read one by one, when an allocation or a free reaches them; every table and bitmap is
//! read at most once.

use crate::error::PmError;
use crate::media::Medium;
use crate::pool::Pool;

use super::geometry::PAGE;
use super::head::Run;
use super::heap::{Block, Shared, corrupt};
use super::slab::{BITMAP_WORDS, Phase};
use super::zone::{self, Page};

/// The number of unread slabs to read before a new one is made.
const UNREAD_TRIES: usize = 8;

impl<M: Medium> Pool<M> {
    /// Reads the page table of a zone, unless it has been read. Under the heap's lock.
    pub(super) fn load_zone(&self, shared: &mut Shared, zone: usize) -> Result<(), PmError> {
        let heap = &self.heap;
        if heap.zone(zone).is_loaded() {
            return Ok(());
        }
        let start = heap.zone_start(zone);
        let bytes = heap.geometry.zone_bytes;
        let free = zone::load(self, heap.zone(zone), start, bytes, heap.shapes, |found| {
            let slab = shared.new_slab();
            let shape = heap.shapes[found.class];
            heap.slab(slab).start(found.base, found.class, shape, Phase::Unread, false);
            Shared::push(&mut shared.lists(found.class).unread, heap, slab);
            slab
        })?;
        if shared.free.len() <= zone {
            shared.free.resize_with(zone + 1, || None);
        }
        shared.free[zone] = Some(free);
        shared.first_zone = shared.first_zone.min(zone);
        Ok(())
    }

    /// Reads the bitmap of a slab, unless it has been read. Under the heap's lock; the slab is on no list
    /// afterwards.
    pub(super) fn read_slab(&self, shared: &mut Shared, slab: u32) -> Result<(), PmError> {
        let heap = &self.heap;
        let state = heap.slab(slab);
        let base = state.base();
        let mut header = [0; 1 + BITMAP_WORDS];
        self.pm().read_words(self.words(base, header.len())?, &mut header);
        let [first, bitmap @ ..] = header;
        if first != heap.slab_head(state.class(), base) || !state.read_in(&bitmap) {
            return Err(corrupt("the header of a slab", base));
        }
        Shared::remove(&mut shared.lists(state.class()).unread, heap, slab);
        state.set_phase(Phase::Full);
        Ok(())
    }

    /// Finds or makes a slab with room and attaches it. `thorough` reads every slab. Returns `Ok(None)` if
    /// there is no room.
    pub(super) fn attach(&self, class: usize, thorough: bool) -> Result<Option<u32>, PmError> {
        let heap = &self.heap;
        let shared = &mut *self.pm().lock(&heap.shared);
        let mut tries = if thorough { usize::MAX } else { UNREAD_TRIES };
        loop {
            if let Some(slab) = shared.lists(class).room.pop() {
                heap.slab(slab).set_phase(Phase::Attached);
                return Ok(Some(slab));
            }
            if tries > 0
                && let Some(&slab) = shared.lists(class).unread.last()
            {
                tries -= 1;
                self.read_slab(shared, slab)?;
                self.list(shared, slab);
                continue;
            }
            if let Some(slab) = self.new_slab(shared, class)? {
                return Ok(Some(slab));
            }
            if tries == 0 || shared.lists(class).unread.is_empty() {
                return Ok(None);
            }
        }
    }

    /// Makes a slab in free pages. Its header is stored here and flushed when its first blocks are
    /// staged; its page-table word follows when one of them is sealed.
    fn new_slab(&self, shared: &mut Shared, class: usize) -> Result<Option<u32>, PmError> {
        let heap = &self.heap;
        let shape = heap.shapes[class];
        let Some((zone, page)) = self.find_pages(shared, shape.pages)? else { return Ok(None) };
        let base = heap.zone_start(zone) + page as u64 * PAGE;
        if !self.pm().is_volatile() {
            let [first, bitmap @ ..] = self.words(base, 1 + BITMAP_WORDS)? else {
                unreachable!("a slab's header has words")
            };
            for word in bitmap {
                self.pm().store(word, 0);
            }
            self.pm().store(first, heap.slab_head(class, base)); // last of its line
        }
        // No access from here on: a panic in one leaves the pages free.
        shared.take_pages(zone, page, shape.pages);
        self.reached(base + u64::from(shape.pages) * PAGE);
        let slab = shared.new_slab();
        heap.slab(slab).start(base, class, shape, Phase::Attached, !self.pm().is_volatile());
        heap.zone(zone).set_slab(page, shape.pages, slab);
        Ok(Some(slab))
    }

    /// Reserves an extent. Returns `Ok(None)` if there is no room.
    pub(super) fn new_extent(&self, pages: u32) -> Result<Option<Block>, PmError> {
        let heap = &self.heap;
        let shared = &mut *self.pm().lock(&heap.shared);
        let Some((zone, page)) = self.find_pages(shared, pages)? else { return Ok(None) };
        shared.take_pages(zone, page, pages);
        let offset = heap.zone_start(zone) + page as u64 * PAGE;
        self.reached(offset + u64::from(pages) * PAGE);
        heap.zone(zone).set_extent(page, pages);
        Ok(Some(Block::Extent { offset, pages }))
    }

    /// Finds consecutive free pages, in the first zone that has them.
    fn find_pages(
        &self,
        shared: &mut Shared,
        pages: u32,
    ) -> Result<Option<(usize, usize)>, PmError> {
        for zone in shared.first_zone..self.heap.zone_count() {
            self.load_zone(shared, zone)?;
            let Some(Some(free)) = shared.free.get_mut(zone) else { continue };
            if let Some(page) = free.find(pages) {
                let offset = self.heap.zone_start(zone) + page as u64 * PAGE;
                self.fill_holes(shared, offset, u64::from(pages) * PAGE)?;
                return Ok(Some((zone, page)));
            }
            if free.count() == 0 && zone == shared.first_zone {
                shared.first_zone += 1;
            }
        }
        Ok(None)
    }

    /// Returns the bytes in runs and in the allocator's own metadata, the fixed parts of the pool included.
    ///
    /// Counts whole runs: the free blocks of a slab belong to its class. A zone whose page table is damaged
    /// counts as a whole. Reads every page table once.
    pub fn used_bytes(&self) -> u64 {
        let heap = &self.heap;
        let shared = &mut *self.pm().lock(&heap.shared);
        let mut used = heap.end();
        for zone in 0..heap.zone_count() {
            let loaded = self.load_zone(shared, zone);
            if loaded.is_ok()
                && let Some(Some(free)) = shared.free.get(zone)
            {
                used -= u64::from(free.count()) * PAGE;
            }
        }
        used
    }

    /// Writes the page tables and bitmaps of a volatile pool, which otherwise exist in DRAM only. Only the
    /// audit reads them.
    pub(super) fn write_out(&self) -> Result<(), PmError> {
        let heap = &self.heap;
        for zone in 0..heap.zone_count() {
            let start = heap.zone_start(zone);
            let map = heap.zone(zone);
            let words = self.words(start, (heap.geometry.zone_bytes / PAGE) as usize)?;
            for (page, cell) in words.iter().enumerate() {
                let base = start + page as u64 * PAGE;
                let word = match map.page(page) {
                    Some(Page::Extent) => {
                        let pages = self.extent_pages(zone, page);
                        Run::Extent { pages }.encode(base)
                    }
                    Some(Page::Slab(slab)) if heap.slab(slab).base() == base => {
                        let state = heap.slab(slab);
                        let header = self.words(base, 1 + BITMAP_WORDS)?;
                        let word = heap.slab_head(state.class(), base);
                        self.pm().write_words(&header[..1], &[word]);
                        self.pm().write_words(&header[1..], &state.staying());
                        word
                    }
                    _ => 0,
                };
                self.pm().store(cell, word);
            }
        }
        Ok(())
    }
}
