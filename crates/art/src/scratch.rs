//! The memory of walks, which a thread reuses for its next walk.
//!
//! A short scan needs half a dozen lists of some thousand bytes; allocating and freeing them would take a
//! fifth of its time.

use std::cell::Cell;

use pmindex_core::Medium;

use crate::child::Child;
use crate::tree::{At, Place};

/// Lists with more links than this are not kept for the next walk.
const KEPT: usize = 4096;

thread_local! {
    /// The memory of this thread's last walk.
    static LAST: Cell<Option<Memory<'static>>> = const { Cell::new(None) };
}

/// A child on the list of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) child: Child,
    /// Its index in [`Memory::ats`], which says where it was read.
    pub(crate) at: u32,
}

/// Links in the order of their keys.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) links: Vec<Link>,
    /// The links that are nodes.
    pub(crate) nodes: Vec<u32>,
    /// Leaves that the walk's caller has not been told of yet.
    pub(crate) untold: Vec<u64>,
}

impl List {
    pub(crate) fn clear(&mut self) {
        self.links.clear();
        self.nodes.clear();
        self.untold.clear();
    }

    /// Estimates the number of leaves below, if all of its nodes are noted.
    pub(crate) fn likely_leaves(&self) -> usize {
        self.links.len() + self.nodes.len()
    }

    /// Keeps the first links; returns whether there were more.
    pub(crate) fn cut(&mut self, len: usize) -> bool {
        let more = self.links.len() > len;
        self.links.truncate(len);
        while self.nodes.last().is_some_and(|&node| node as usize >= len) {
            self.nodes.pop();
        }
        more
    }
}

/// The lists of a walk.
#[derive(Debug, Default)]
pub(crate) struct Memory<'t> {
    pub(crate) list: List,
    /// The list of the next level.
    pub(crate) next: List,
    /// The nodes that links were read from.
    pub(crate) ats: Vec<At<'t>>,
    /// If walks are watched: the number of nodes at the beginning of `ats` that earlier ones have read.
    pub(crate) watched: Option<usize>,
    pub(crate) places: Vec<Place<'t>>,
}

impl Memory<'_> {
    /// Returns the same memory, empty, for walks of another tree.
    fn renew<'n>(self) -> Memory<'n> {
        let Self { mut list, mut next, ats, places, .. } = self;
        list.clear();
        next.clear();
        Memory { list, next, ats: renew(ats), watched: None, places: renew(places) }
    }

    fn is_large(&self) -> bool {
        let most = self.list.links.capacity().max(self.next.links.capacity());
        most.max(self.ats.capacity()).max(self.places.capacity()) > KEPT
    }
}

/// Returns an empty vector that reuses the memory of another one, if their items have the same layout.
fn renew<A, B>(mut items: Vec<A>) -> Vec<B> {
    items.clear();
    items.into_iter().filter_map(|_| None).collect()
}

/// The memory of a walk, and the places that it has found.
#[derive(Debug)]
pub struct Scratch<'t>(pub(crate) Memory<'t>);

impl<'t> Scratch<'t> {
    /// Makes an empty scratch that reuses the memory of an earlier walk of this thread.
    #[must_use]
    pub fn new() -> Self {
        let last = LAST.try_with(Cell::take).ok().flatten();
        Self(last.unwrap_or_default().renew())
    }

    /// Returns the places that walks have found, in order.
    #[inline(always)]
    #[must_use]
    pub fn places(&self) -> &[Place<'t>] {
        &self.0.places
    }

    /// Removes the places, and what was [watched](Self::watch) so far.
    pub fn clear(&mut self) {
        self.0.places.clear();
        self.0.watched = self.0.watched.map(|_| 0);
    }

    /// Keeps from now on what walks read, also of empty trees, for [`stays`](Self::stays).
    pub fn watch(&mut self) {
        self.0.watched = Some(0);
    }

    /// Returns whether all that the walks since [`watch`](Self::watch) or [`clear`](Self::clear) have read is as
    /// it was: then it was all there at one moment.
    #[must_use]
    pub fn stays(&self, pm: &impl Medium) -> bool {
        self.0.ats.iter().all(|at| at.holds(pm))
    }
}

impl Default for Scratch<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        if !memory.is_large() {
            // A thread that is ending needs no memory for later walks.
            let _ = LAST.try_with(|last| last.set(Some(memory.renew())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again() {
        let mut scratch = Scratch::new();
        scratch.0.ats.reserve(77);
        scratch.0.places.reserve(99);
        let (ats, places) = (scratch.0.ats.as_ptr().addr(), scratch.0.places.as_ptr().addr());
        drop(scratch);
        let again = Scratch::new();
        assert_eq!(again.0.ats.as_ptr().addr(), ats);
        assert_eq!(again.0.places.as_ptr().addr(), places);
        assert!(Scratch::new().0.ats.capacity() == 0, "memory for one walk at a time");
    }

    #[test]
    fn memory_of_a_large_walk_is_given_back() {
        let mut scratch = Scratch::new();
        scratch.0.list.links.reserve(KEPT + 1);
        drop(scratch);
        assert_eq!(Scratch::new().0.list.links.capacity(), 0);
    }
}
