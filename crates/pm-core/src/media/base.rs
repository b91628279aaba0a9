//! The layout of the pool's pages in the base of a twin.
//!
//! ```text
//! page of the base   0          1 .. 512         513        514 .. 1025      ..
//!                    checksums  pages 0 .. 511   checksums  pages 512 ..     ..
//! ```
//!
//! A page of checksums has a word for each page of the group behind it; 0 stands for a page of zeros that was
//! never written. Pages that have lines in the log are not compared: a crash may have cut them, or left a
//! checksum that is older or newer, and the log repairs the difference. Every other page agrees with its
//! checksum, or the base is not used.

use std::collections::BTreeSet;

use crate::alloc::PAGE;
use crate::checksum::checksums;

/// Pages of a group.
const GROUP: u64 = PAGE / 8;
/// Bytes of the pool in a group.
pub(crate) const GROUP_BYTES: u64 = GROUP * PAGE;
/// The same with the page of its checksums.
const STORED: u64 = GROUP_BYTES + PAGE;

/// Returns the place in the base of the page at this offset of the pool.
pub(crate) fn place_of(offset: u64) -> u64 {
    sums_of(offset) + PAGE + offset % GROUP_BYTES
}

/// Returns the place in the base of the checksums of the group with the page at this offset of the pool.
pub(crate) fn sums_of(offset: u64) -> u64 {
    offset / GROUP_BYTES * STORED
}

/// Returns the bytes of the base of a pool of `len` bytes.
pub(crate) fn stored(len: u64) -> u64 {
    len.checked_sub(1).map_or(0, |last| place_of(last / PAGE * PAGE) + PAGE)
}

/// Returns the bytes of the pool in a base of `stored` bytes, in whole pages.
pub(crate) fn held(stored: u64) -> u64 {
    let rest = (stored % STORED / PAGE).saturating_sub(1) * PAGE;
    stored / STORED * GROUP_BYTES + rest
}

/// The number of pages whose checksums are computed at once.
const ABREAST: usize = 4;

/// Computes the checksums of the pages at these offsets of the pool: never 0, and different at each place.
fn sums<const N: usize>(offsets: [u64; N], pages: [&[u8]; N]) -> [u64; N] {
    checksums(offsets, pages.map(|page| page.as_chunks().0)).map(|sum| sum.max(1))
}

fn sum(offset: u64, page: &[u8]) -> u64 {
    let [sum] = sums([offset], [page]);
    sum
}

/// Returns `true` if a page agrees with its checksum.
pub(crate) fn is_right(expected: u64, offset: u64, page: &[u8]) -> bool {
    match expected {
        0 => page.iter().all(|&byte| byte == 0),
        expected => sum(offset, page) == expected,
    }
}

/// The checksums of all pages.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    all: Vec<u64>,
    /// The first offsets of the groups whose checksums changed since they were last taken.
    changed: BTreeSet<u64>,
}

impl Sums {
    /// Adds the checksums of the next group, as they are stored.
    pub(crate) fn extend(&mut self, stored: &[u8]) {
        self.all.extend(stored.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
    }

    /// Updates the checksums of pages that are written at these offsets of the pool; `bytes` has them, one after
    /// another.
    pub(super) fn note(&mut self, offsets: &[u64], bytes: &[u8]) {
        let pages = bytes.as_chunks::<{ PAGE as usize }>().0;
        let (some, rest) = offsets.as_chunks::<ABREAST>();
        let (of_some, of_rest) = pages.split_at(some.len() * ABREAST);
        for (offsets, pages) in some.iter().zip(of_some.as_chunks::<ABREAST>().0) {
            let found = sums(*offsets, pages.each_ref().map(|page| &page[..]));
            offsets.iter().zip(found).for_each(|(&offset, sum)| self.set(offset, sum));
        }
        rest.iter().zip(of_rest).for_each(|(&offset, page)| self.set(offset, sum(offset, page)));
    }

    fn set(&mut self, offset: u64, sum: u64) {
        let at = (offset / PAGE) as usize;
        if at >= self.all.len() {
            self.all.resize((at + 1).next_multiple_of(GROUP as usize), 0);
        }
        self.all[at] = sum;
        self.changed.insert(offset / GROUP_BYTES * GROUP_BYTES);
    }

    /// Takes the checksums that changed, each with its place in the base.
    pub(super) fn take_changed(&mut self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        core::mem::take(&mut self.changed).into_iter().map(|first| {
            let at = (first / PAGE) as usize;
            let words = self.all[at..].iter().take(GROUP as usize);
            (sums_of(first), words.flat_map(|word| word.to_le_bytes()).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_checksums_lie_behind_each_other() {
        assert_eq!((sums_of(0), place_of(0), place_of(PAGE)), (0, PAGE, 2 * PAGE));
        assert_eq!(place_of(GROUP_BYTES - PAGE), GROUP_BYTES);
        assert_eq!((sums_of(GROUP_BYTES), place_of(GROUP_BYTES)), (STORED, STORED + PAGE));
        for pages in [0, 1, 2, 511, 512, 513, 1024, 1025, 5000] {
            let len = pages * PAGE;
            assert_eq!(held(stored(len)), len);
            // A base that is cut holds a page less.
            assert_eq!(held(stored(len).saturating_sub(1)), len.saturating_sub(PAGE));
        }
    }

    #[test]
    fn a_page_elsewhere_or_of_other_bytes_is_wrong() {
        let (zeros, mut page) = ([0; PAGE as usize], [7; PAGE as usize]);
        assert!(is_right(0, 0, &zeros) && !is_right(0, 0, &page));
        let right = sum(PAGE, &page);
        assert!(is_right(right, PAGE, &page) && !is_right(right, 0, &page));
        page[4095] ^= 0x80;
        assert!(!is_right(right, PAGE, &page) && !is_right(right, PAGE, &zeros));
    }
}
