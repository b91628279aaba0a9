//! A Bw-tree in DRAM: a concurrent ordered map without latches. **Volatile: its contents are lost on a
//! crash.** It is a baseline for comparisons, as in the figures of `BzTree`'s paper.
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
//! **deltas**, newest first, and the **base**, a sorted array. A write prepends one delta to the chain, with
//! one compare-and-swap of the table's slot, and changes nothing that others read. The writer of a long chain
//! **consolidates** it: it writes the page as a new base.
//!
//! # Splits and merges
//! Each is a sequence of steps, after each of which the tree is valid:
//!
//! - *Split.* The upper half gets a page of its own, which nothing refers to yet; then the chain is
//!   replaced by its lower half under a delta that names the new page; then the parent gets a delta
//!   that links it. Between the last two, searches go by way of the left page, as in a B-link tree.
//! - *Merge.* The parent gets a delta that unlinks the page; then the page a delta that closes it; then
//!   its left neighbour one that takes its chain over. A search that meets a closed page first
//!   completes the merge.
//! - The root grows when it is split, and gives its place to its only child.
//!
//! A thread that consolidates a page, or that needs a page in transition, completes the changes in its chain.
//! So no thread waits for another.
//!
//! # Differences from the papers
//! The paper unlinks a page last, this crate first, so a parent that is split meanwhile, and whose first
//! child the page has become, is not affected (`OpenBw-Tree` locks the parent with a delta of its own). The
//! lower half is consolidated in the step that splits. The page's identifier is reused after an epoch.
//!
//! # Memory
//! Nodes are reclaimed by epochs, those of the crate [`sdd`], whose interface is safe: the owners of each
//! node are counted, and a node that a reader may still access is kept until the reader has left.
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
    /// The maximum number of records of a leaf: one more splits it.
    pub records: u16,
    /// The maximum number of children of an inner page.
    pub children: u16,
    /// A page with fewer records or children is merged, unless that makes a large page.
    pub least: u16,
    /// A page with this number of deltas is consolidated.
    pub chain: u16,
}

/// The sizes of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of records.
    pub records: u64,
    /// The number of levels of pages.
    pub height: u32,
    /// The number of leaves.
    pub leaves: u64,
    /// The number of inner pages.
    pub inners: u64,
    /// Bytes of DRAM in its pages, without the heap memory of keys and values, and without nodes kept for
    /// readers.
    pub bytes: u64,
}

impl Default for Pages {
    /// Returns pages of up to 128 entries, merged below 32, with chains of 8.
    fn default() -> Self {
        Self { records: 128, children: 128, least: 32, chain: 8 }
    }
}

impl Pages {
    /// Returns the nearest valid sizes.
    fn sane(self) -> Self {
        let (records, children) = (self.records.max(2), self.children.max(3));
        let least = self.least.min(records / 2).min(children / 2);
        Self { records, children, least, chain: self.chain.clamp(1, 1 << 12) }
    }
}
