//! The mapping table: from a page's identifier to the head of its chain.
//!
//! Pages refer to each other by identifiers, so a page is replaced by one compare-and-swap of its slot. The
//! table grows by segments, each as large as all before it, and never moves a slot.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use sdd::{AtomicShared, Bag, Guard, Ptr, Shared, Tag};

/// A page's identifier.
pub(crate) type Pid = u32;

/// Slots of the first segment, as a power of two.
const FIRST: u32 = 10;
/// The maximum number of segments.
const SEGMENTS: usize = (u32::BITS - FIRST) as usize;

type Segment<N> = OnceLock<Box<[AtomicShared<N>]>>;

/// Slots of `N`, and the free identifiers.
#[derive(Debug)]
pub(crate) struct Table<N> {
    segments: [Segment<N>; SEGMENTS],
    /// Identifiers below this one were handed out.
    used: AtomicU32,
    free: Bag<Pid>,
}

/// Returns the segment of an identifier, and its position in the segment.
#[inline(always)]
fn place(pid: Pid) -> (usize, usize) {
    let n = pid + (1 << FIRST);
    let segment = n.ilog2() - FIRST;
    (segment as usize, (n - (1 << (segment + FIRST))) as usize)
}

impl<N: 'static> Table<N> {
    pub(crate) fn new() -> Self {
        Self {
            segments: [const { OnceLock::new() }; SEGMENTS],
            used: AtomicU32::new(0),
            free: Bag::new(),
        }
    }

    #[inline(always)]
    fn slot(&self, pid: Pid) -> &AtomicShared<N> {
        let (segment, at) = place(pid);
        let slots = self.segments[segment].get_or_init(|| {
            (0..1_usize << (segment + FIRST as usize)).map(|_| AtomicShared::null()).collect()
        });
        &slots[at]
    }

    /// Returns the head of a page's chain.
    #[inline(always)]
    pub(crate) fn load<'g>(&self, pid: Pid, guard: &'g Guard) -> Ptr<'g, N> {
        step();
        self.slot(pid).load(Acquire, guard)
    }

    /// Replaces the head if it is still `head`. Every change takes effect here.
    #[inline(always)]
    pub(crate) fn replace<'g>(
        &self,
        pid: Pid,
        head: Ptr<'g, N>,
        new: Shared<N>,
        guard: &'g Guard,
    ) -> bool {
        step();
        self.slot(pid)
            .compare_exchange(head, (Some(new), Tag::None), AcqRel, Acquire, guard)
            .is_ok()
    }

    /// Adds a page without references; returns `None` if no identifier is left.
    pub(crate) fn add(&self, page: Shared<N>) -> Option<Pid> {
        let fresh = |used: u32| (used < u32::MAX - (1 << FIRST)).then_some(used + 1);
        let pid = match self.free.pop() {
            Some(pid) => pid,
            None => self.used.fetch_update(Relaxed, Relaxed, fresh).ok()?,
        };
        self.slot(pid).swap((Some(page), Tag::None), AcqRel);
        Some(pid)
    }

    /// Empties a slot that no page refers to and no thread can reach.
    pub(crate) fn forget(&self, pid: Pid) {
        self.slot(pid).swap((None, Tag::None), AcqRel);
        self.free.push(pid);
    }

    /// Returns the number of identifiers in use, when no other thread uses the table.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        let guard = Guard::new();
        let used = self.used.load(Acquire);
        (0..used).filter(|&pid| !self.slot(pid).load(Acquire, &guard).is_null()).count()
    }
}

/// The identifier of the root. Each change has a number of its own, so a root that returns is distinguished
/// from its earlier life.
#[derive(Debug)]
pub(crate) struct Root(AtomicU64);

/// A root that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    #[inline(always)]
    pub(crate) fn pid(self) -> Pid {
        self.0 as u32
    }
}

impl Root {
    pub(crate) fn new(pid: Pid) -> Self {
        Self(AtomicU64::new(u64::from(pid)))
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Seen {
        step();
        Seen(self.0.load(Acquire))
    }

    /// Makes `pid` the root if `seen` still is.
    pub(crate) fn replace(&self, seen: Seen, pid: Pid) -> bool {
        step();
        let new = ((seen.0 >> 32) + 1) << 32 | u64::from(pid);
        self.0.compare_exchange(seen.0, new, AcqRel, Acquire).is_ok()
    }
}

/// Lets another thread run, in a test that schedules threads.
#[inline(always)]
fn step() {
    #[cfg(test)]
    pmindex_core::trace::yield_point();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_each_other_without_a_gap() {
        assert_eq!((place(0), place(1023)), ((0, 0), (0, 1023)));
        assert_eq!((place(1024), place(3071), place(3072)), ((1, 0), (1, 2047), (2, 0)));
        assert!(place(u32::MAX - 1024).0 < SEGMENTS);
    }

    #[test]
    fn a_root_that_comes_back_is_another_one() {
        let root = Root::new(7);
        let first = root.load();
        assert!(root.replace(first, 8));
        assert!(root.replace(root.load(), 7));
        assert_eq!(root.load().pid(), 7);
        assert!(!root.replace(first, 9));
    }

    #[test]
    fn an_identifier_that_was_forgotten_is_used_again() {
        let table: Table<u64> = Table::new();
        let pids: Vec<_> = (0..1500).map(|n| table.add(Shared::new(n)).unwrap()).collect();
        table.forget(pids[1200]);
        assert_eq!(table.in_use(), 1499);
        assert_eq!(table.add(Shared::new(9)), Some(pids[1200]));
        let guard = Guard::new();
        assert_eq!(table.load(pids[1200], &guard).as_ref(), Some(&9));
        let old = table.load(3, &guard);
        assert!(table.replace(3, old, Shared::new(30), &guard));
        assert!(!table.replace(3, old, Shared::new(31), &guard), "the head is another one");
    }
}
