//! Zones: a page table on the medium, a map of pages in DRAM.
//!
//! A zone is `zone_bytes` long. Its first pages hold one word per page of the zone: the [`Run`] that starts
//! there, or 0. The map in DRAM, which also knows the pages inside a run, is built when a zone is first used;
//! overlapping runs or damaged words are an error then.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};
use std::sync::OnceLock;

use crate::cell::PmU64;
use crate::error::PmError;
use crate::media::Medium;
use crate::pool::Pool;

use super::class::Shapes;
use super::geometry::PAGE;
use super::head::Run;

/// The state of a page, in one word of DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// Free.
    Free,
    /// Part of the page table.
    Table,
    /// The first page of an extent.
    Extent,
    /// The first page of an extent that is being freed.
    Leaving,
    /// A further page of an extent.
    Inside,
    /// Part of the slab of this number.
    Slab(u32),
}

impl Page {
    #[inline]
    fn encode(self) -> u32 {
        match self {
            Self::Free => 0,
            Self::Table => 1,
            Self::Extent => 2,
            Self::Leaving => 3,
            Self::Inside => 4,
            Self::Slab(slab) => slab + 8,
        }
    }

    #[inline]
    fn decode(word: u32) -> Self {
        match word {
            1 => Self::Table,
            2 => Self::Extent,
            3 => Self::Leaving,
            4 => Self::Inside,
            8.. => Self::Slab(word - 8),
            _ => Self::Free,
        }
    }
}

/// The map of a zone, read without locks.
#[derive(Debug, Default)]
pub(super) struct Zone {
    pages: OnceLock<Box<[AtomicU32]>>,
}

impl Zone {
    pub(super) fn is_loaded(&self) -> bool {
        self.pages.get().is_some()
    }

    /// Returns the state of page `page`; `None` if the zone was never used, or has no such page.
    #[inline]
    pub(super) fn page(&self, page: usize) -> Option<Page> {
        Some(Page::decode(self.pages.get()?.get(page)?.load(Acquire)))
    }

    fn set(&self, pages: core::ops::Range<usize>, what: Page) {
        for entry in self.pages.get().and_then(|all| all.get(pages)).into_iter().flatten() {
            entry.store(what.encode(), Release);
        }
    }

    /// Marks the pages of a slab.
    pub(super) fn set_slab(&self, first: usize, pages: u32, slab: u32) {
        self.set(first..first + pages as usize, Page::Slab(slab));
    }

    /// Marks the pages of an extent.
    pub(super) fn set_extent(&self, first: usize, pages: u32) {
        self.set(first + 1..first + pages as usize, Page::Inside);
        self.set(first..first + 1, Page::Extent);
    }

    /// Marks pages as free.
    pub(super) fn set_free(&self, first: usize, pages: u32) {
        self.set(first..first + pages as usize, Page::Free);
    }

    /// Changes the first page of an extent between [`Page::Extent`] and [`Page::Leaving`].
    pub(super) fn exchange(&self, page: usize, from: Page, to: Page) -> bool {
        self.pages.get().and_then(|all| all.get(page)).is_some_and(|entry| {
            entry.compare_exchange(from.encode(), to.encode(), Release, Acquire).is_ok()
        })
    }
}

/// The free pages of a zone. Under the heap's lock.
#[derive(Debug)]
pub(super) struct FreePages {
    bits: Vec<u64>,
    count: u32,
    /// No page before this one is free.
    first: usize,
    /// No more than this number of consecutive pages are free. So allocations of large runs do not search a
    /// nearly full zone again and again.
    most: usize,
}

impl FreePages {
    fn none(pages: usize) -> Self {
        Self { bits: vec![0; pages.div_ceil(64)], count: 0, first: 0, most: 0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn add(&mut self, first: usize, pages: u32) {
        for page in first..first + pages as usize {
            self.bits[page / 64] |= 1 << (page % 64);
        }
        self.count += pages;
        self.first = self.first.min(first);
        let end = self.next(first, false).unwrap_or(self.bits.len() * 64);
        self.most = self.most.max(end - self.row_start(first));
    }

    /// Returns the first of the consecutive free pages that include a given free page.
    fn row_start(&self, page: usize) -> usize {
        let mut mask = u64::MAX >> (63 - page % 64);
        for (i, &bits) in self.bits.iter().enumerate().take(page / 64 + 1).rev() {
            let taken = !bits & mask;
            if taken != 0 {
                return i * 64 + 64 - taken.leading_zeros() as usize;
            }
            mask = u64::MAX;
        }
        0
    }

    /// Returns the first page of the first run of `pages` free pages, if there is one.
    pub(super) fn find(&mut self, pages: u32) -> Option<usize> {
        if self.most < pages as usize {
            return None;
        }
        let mut most = 0;
        let mut from = self.first;
        while let Some(start) = self.next(from, true) {
            self.first = if most == 0 { start } else { self.first };
            let end = self.next(start, false).unwrap_or(self.bits.len() * 64);
            if end - start >= pages as usize {
                return Some(start);
            }
            most = most.max(end - start);
            from = end;
        }
        self.most = most;
        None
    }

    /// Returns `true` if all of these pages are free.
    pub(super) fn has(&self, first: usize, pages: usize) -> bool {
        self.next(first, false).unwrap_or(self.bits.len() * 64) >= first + pages
    }

    /// Takes free pages.
    pub(super) fn take(&mut self, first: usize, pages: u32) {
        for page in first..first + pages as usize {
            self.bits[page / 64] &= !(1 << (page % 64));
        }
        self.count -= pages;
    }

    /// Returns the first page from `from` on that is free (or is not).
    fn next(&self, from: usize, free: bool) -> Option<usize> {
        let mut mask = u64::MAX << (from % 64);
        for (i, &bits) in self.bits.iter().enumerate().skip(from / 64) {
            let found = if free { bits } else { !bits } & mask;
            if found != 0 {
                return Some(i * 64 + found.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        None
    }
}

/// Returns the number of pages that the page table of a zone takes.
pub(super) fn table_pages(zone_bytes: u64) -> u64 {
    (zone_bytes / PAGE * 8).div_ceil(PAGE)
}

/// A slab found in a page table: first page, class, offset.
pub(super) struct FoundSlab {
    pub(super) page: usize,
    pub(super) pages: u32,
    pub(super) class: usize,
    pub(super) base: u64,
}

/// Reads the page table of the zone at `start`: fills `zone`, asks `number` for the number of each slab, and
/// returns the free pages. Under the heap's lock.
pub(super) fn load<M: Medium>(
    pool: &Pool<M>,
    zone: &Zone,
    start: u64,
    zone_bytes: u64,
    shapes: &Shapes,
    mut number: impl FnMut(&FoundSlab) -> u32,
) -> Result<FreePages, PmError> {
    let count = (zone_bytes / PAGE) as usize;
    let table = table_pages(zone_bytes) as usize;
    let cells = pool.words(start, count)?;
    let map: Box<[AtomicU32]> = (0..count).map(|_| AtomicU32::new(0)).collect();
    map[..table].iter().for_each(|page| page.store(Page::Table.encode(), Release));
    let mut free = FreePages::none(count);
    let mut slabs = Vec::new();
    let mut page = table;
    let mut words = Words::new(cells);
    while page < count {
        let base = start + page as u64 * PAGE;
        let damaged = PmError::Corrupt { what: "the page table", offset: start + page as u64 * 8 };
        let Some(run) = Run::decode(words.get(pool.pm(), page), base) else { return Err(damaged) };
        let pages = match run {
            Run::None => {
                // A whole row at once: adding looks for the start of the row.
                let row = page;
                while page < count && words.get(pool.pm(), page) == 0 {
                    page += 1;
                }
                free.add(row, (page - row) as u32);
                continue;
            }
            Run::Slab { class, pages } if pages == shapes[class].pages => {
                slabs.push(FoundSlab { page, pages, class, base });
                pages
            }
            Run::Extent { pages } => pages,
            Run::Slab { .. } => return Err(damaged),
        };
        let end = page + pages as usize;
        if end > count || (page + 1..end).any(|inner| words.get(pool.pm(), inner) != 0) {
            return Err(PmError::Corrupt { what: "overlapping runs of pages", offset: base });
        }
        if matches!(run, Run::Extent { .. }) {
            map[page].store(Page::Extent.encode(), Release);
            map[page + 1..end].iter().for_each(|p| p.store(Page::Inside.encode(), Release));
        }
        page = end;
    }
    for slab in &slabs {
        let entry = Page::Slab(number(slab)).encode();
        map[slab.page..slab.page + slab.pages as usize]
            .iter()
            .for_each(|p| p.store(entry, Release));
    }
    // No second thread loads this zone: the caller holds the heap's lock.
    let _ = zone.pages.set(map);
    Ok(free)
}

/// Reads words of a page table in blocks.
struct Words<'p> {
    cells: &'p [PmU64],
    block: [u64; 64],
    at: usize,
}

impl<'p> Words<'p> {
    fn new(cells: &'p [PmU64]) -> Self {
        Self { cells, block: [0; 64], at: usize::MAX }
    }

    fn get<M: Medium>(&mut self, pm: &M, index: usize) -> u64 {
        if self.at != index / 64 {
            self.at = index / 64;
            let cells = &self.cells[self.at * 64..];
            let cells = &cells[..cells.len().min(64)];
            pm.read_words(cells, &mut self.block[..cells.len()]);
        }
        self.block[index % 64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_are_found_in_rows_and_come_back() {
        let mut free = FreePages::none(300);
        let take = |free: &mut FreePages, pages: u32| {
            let first = free.find(pages);
            assert_eq!(free.find(pages), first, "finding takes nothing");
            free.take(first?, pages);
            first
        };
        free.add(8, 292);
        assert_eq!(take(&mut free, 1), Some(8));
        assert_eq!(take(&mut free, 200), Some(9));
        assert_eq!(take(&mut free, 92), None);
        assert_eq!(take(&mut free, 91), Some(209));
        assert_eq!((take(&mut free, 1), free.count()), (None, 0));
        free.add(100, 3);
        free.add(110, 64);
        assert_eq!(take(&mut free, 4), Some(110));
        assert_eq!(take(&mut free, 3), Some(100));
        free.add(100, 10);
        assert_eq!(take(&mut free, 11), Some(114), "110..114 are taken");
        free.add(110, 4);
        assert_eq!(take(&mut free, 14), Some(100));
    }

    #[test]
    fn rows_that_grow_together_are_found_after_a_search_in_vain() {
        for order in [[64, 70, 128], [70, 64, 128], [128, 64, 70], [70, 128, 64]] {
            let mut free = FreePages::none(192);
            free.add(20, 5);
            for (n, first) in order.into_iter().enumerate() {
                assert_eq!((free.find(128), free.find(6 + 58 + 64)), (None, None), "{order:?} {n}");
                free.add(
                    first,
                    if first == 70 { 58 } else { 6 } + if first == 128 { 58 } else { 0 },
                );
            }
            assert_eq!((free.find(6 + 58 + 64), free.find(129)), (Some(64), None), "{order:?}");
            free.take(64, 128);
            assert_eq!((free.find(6), free.find(5)), (None, Some(20)));
        }
    }

    #[test]
    fn pages_survive_encoding() {
        for page in
            [Page::Free, Page::Table, Page::Extent, Page::Leaving, Page::Inside, Page::Slab(7)]
        {
            assert_eq!(Page::decode(page.encode()), page);
        }
    }
}
