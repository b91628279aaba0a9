//! A Bw-tree in DRAM: a concurrent ordered map without latches. **Volatile: its contents are lost on
//! a crash.** It is here to be compared with, as in the figures of `BzTree`'s paper.
//!
//! After Levandoski, Lomet, Sengupta: *The Bw-Tree: A B-tree for New Hardware Platforms* (ICDE 2013),
//! and Wang et al.: *Building a Bw-Tree Takes More Than Just Buzz Words* (SIGMOD 2018).
//!
//! ```
//! use pmindex_bwtree::BwTree;
//!
//! let tree = BwTree::new();
//! std::thread::scope(|scope| {
//!     for thread in 0..2_u64 {
//!         let tree = &tree;
//!         scope.spawn(move || {
//!             for n in (thread..1000).step_by(2) {
//!                 tree.insert(&n, &(n * n));
//!             }
//!         });
//!     }
//! });
//! let mut found = Vec::new();
//! tree.scan(&31, 2, &mut found);
//! assert_eq!(found, [(31, 961), (32, 1024)]);
//! ```
//!
//! # Pages
//! Pages refer to each other by identifiers; a **mapping table** has the head of each page's chain:
//! a row of **deltas**, newest first, and the **base**, a sorted array. A write puts one delta before
//! the chain, with one compare-and-swap of the table's slot, and changes nothing that others read.
//! When a chain has become long, the writer **consolidates** it: writes the page as a new base.
//!
//! # Splits and merges
//! Each is a row of steps, and the tree is right after each of them:
//!
//! - *Split.* The upper half gets a page of its own, which nothing refers to yet; then the chain is
//!   replaced by its lower half under a delta that names the new page; then the parent gets a delta
//!   that links it. Between the last two, searches go by way of the left page, as in a B-link tree.
//! - *Merge.* The parent gets a delta that unlinks the page; then the page a delta that closes it; then
//!   its left neighbour one that takes its chain over. A search that meets a closed page first
//!   completes the merge.
//! - The root grows when it is split, and gives its place to its only child.
//!
//! Who consolidates a page, and before that any who needs it, completes the changes that its chain
//! tells of. So no thread waits for another.
//!
//! # Differences from the papers
//! The paper unlinks a page last, this crate first: so a parent that is split meanwhile, and whose first
//! child the page has become, has nothing to do with it (`OpenBw-Tree` locks the parent with a delta
//! of its own). The lower half is consolidated in the step that splits. The page's identifier is
//! used again after an epoch.
//!
//! # Memory
//! Nodes are reclaimed by epochs, those of the crate [`sdd`], whose interface is safe: of each node the
//! owners are counted, and what a reader may still see stays until it has left.
#![forbid(unsafe_code)]

mod node;
mod smo;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod view;

pub use tree::BwTree;

/// The sizes of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The most records of a leaf: with one more it is split.
    pub records: u16,
    /// The most children of an inner page.
    pub children: u16,
    /// A page with fewer records or children is merged, where that makes no large page.
    pub least: u16,
    /// With this many deltas a page is consolidated.
    pub chain: u16,
}

/// The sizes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many records it has.
    pub records: u64,
    /// How many levels of pages.
    pub height: u32,
    /// How many leaves.
    pub leaves: u64,
    /// How many inner pages.
    pub inners: u64,
    /// Bytes of DRAM in its pages: without what keys and values point to, and what readers hold back.
    pub bytes: u64,
}

impl Default for Pages {
    /// Pages of up to 128, merged below 32, chains of 8.
    fn default() -> Self {
        Self { records: 128, children: 128, least: 32, chain: 8 }
    }
}

impl Pages {
    /// The nearest sizes that work.
    fn sane(self) -> Self {
        let (records, children) = (self.records.max(2), self.children.max(3));
        let least = self.least.min(records / 2).min(children / 2);
        Self { records, children, least, chain: self.chain.clamp(1, 1 << 12) }
    }
}
