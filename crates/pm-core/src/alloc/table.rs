//! A growable table in DRAM whose elements never move and are never freed: it is type-stable, so a stale
//! index leads to an element of the same type.

use std::sync::OnceLock;

/// Elements of the first chunk; each further chunk is twice as long.
const FIRST: usize = 8;
/// Chunks: 2^30 elements in all.
const CHUNKS: usize = 27;

/// A table of default-initialised elements, addressed by index, read without locks.
#[derive(Debug)]
pub(super) struct Table<T> {
    chunks: [OnceLock<Box<[T]>>; CHUNKS],
}

impl<T: Default> Table<T> {
    pub(super) fn new() -> Self {
        Self { chunks: [const { OnceLock::new() }; CHUNKS] }
    }

    /// Returns the chunk of element `index` and the element's place in it.
    #[inline(always)]
    fn place(index: usize) -> (usize, usize) {
        let n = index + FIRST;
        let chunk = (n.ilog2() - FIRST.ilog2()) as usize;
        (chunk, n - (FIRST << chunk))
    }

    /// Returns the element, if [`ensure`](Self::ensure) made it.
    #[inline(always)]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        let (chunk, at) = Self::place(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    /// Returns the element, and makes it if necessary.
    ///
    /// # Panics
    /// If `index` is 2^30 or more: the caller bounds it.
    #[inline]
    pub(super) fn ensure(&self, index: usize) -> &T {
        let (chunk, at) = Self::place(index);
        let make = || (0..FIRST << chunk).map(|_| T::default()).collect();
        &self.chunks[chunk].get_or_init(make)[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicUsize;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn every_index_has_an_element_of_its_own() {
        let table: Table<AtomicUsize> = Table::new();
        assert!(table.get(0).is_none());
        for index in 0..5000 {
            table.ensure(index).store(index + 1, Relaxed);
        }
        for index in 0..5000 {
            assert_eq!(table.get(index).map(|x| x.load(Relaxed)), Some(index + 1));
        }
        assert!(table.get(1 << 20).is_none());
        assert!(table.get(usize::MAX / 2).is_none());
    }
}
