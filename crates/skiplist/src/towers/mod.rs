//! The towers, in DRAM: they lead a key to its node.
//!
//! # Shape
//!
//! Each node except the first has a tower, with the separator between the node before and it: greater keys
//! are in it or after it. A tower of height `h` is in the lists of levels 0 to `h - 1`; one in eight is
//! higher than 1, of these one in eight is higher than 2, at random. So far this is any skip list.
//!
//! A list of single towers would cost a cache miss for each step. Here a level is a list of **blocks**, as in
//! Golovin's B-skip-list (2010): a tower that goes higher begins a block of its level, and the towers up to
//! the next such tower are in the same block, whose separators are compared at once; a search descends from a
//! block's tower to the block that it begins. A full block is continued in the next one of its level, to
//! which only the list points, and no tower of a higher level. The first block of each level begins with the
//! tower of the first node, which has no separator; it never moves.
//!
//! # Concurrency
//!
//! Towers change only when nodes are added or removed, after the persistent part: one thread at a time
//! changes them, the holder of `writer`, under the version locks of the changing blocks. A change of the
//! towers contains no point where a scheduler may run another thread, and cannot fail or panic. Readers take
//! no locks: a reader reads the version of the next block before it validates the present one.
//!
//! Lock order: nodes' locks, then `writer`, then blocks' locks. The holder of `writer` waits for nothing.

mod build;
mod change;
mod find;

use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;
use pmindex_core::sync::VersionLock;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape};
use pmindex_record::{OwnedRoute, Route, Separator, Tail, Tails};

pub(crate) use build::Built;
use change::Writer;

/// The towers of a block, whose separators take two lines.
const F: usize = 14;
/// The maximum number of levels.
const LEVELS: usize = 12;

pm_struct! {
    /// A block, in DRAM: four lines, of which a search reads three.
    ///
    /// ```text
    /// word 0       14      15     16      17      18
    /// | prefixes   | count | lock | right | bound | downs |
    /// ```
    #[align(64)]
    pub struct Block {
        /// The first words of the separators, ascending; unused ones are `u64::MAX`.
        pub prefixes: [PmU64; F],
        /// The number of towers.
        pub count: PmU64,
        /// Held while the block changes.
        pub lock: VersionLock,
        /// The next block of the level; 0: none.
        pub right: PmU64,
        /// The first word of that block's first separator.
        pub bound: PmU64,
        /// On level 0 the offsets of nodes, on higher levels the blocks below.
        pub downs: [PmU64; F],
    }

    /// The tails of a block's separators; stored beside it, only for keys longer than a word.
    #[align(64)]
    pub struct BlockTails {
        /// One [`Tail`] per separator.
        pub tails: [PmU64; F],
        /// The tail of the bound.
        pub bound: PmU64,
    }
}

/// The towers of a list.
pub(crate) struct Towers<K> {
    dram: Mapped,
    blocks: Arena<Block>,
    block_tails: Arena<BlockTails>,
    tails: Tails,
    /// The highest level with a tower.
    top: AtomicUsize,
    writer: Mutex<Writer>,
    key: PhantomData<fn() -> K>,
}

/// A tower in a block: the separator on its node's left, and the target below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tower {
    separator: Separator,
    down: u64,
}

impl Tower {
    /// Makes the tower of the first node, which has no separator.
    const fn first(down: u64) -> Self {
        Self { separator: Separator { prefix: 0, tail: Tail::NONE }, down }
    }
}

/// A private copy of a block, on which writers work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    towers: Vec<Tower>,
    right: u32,
    /// The first separator of the block on the right.
    bound: Option<Separator>,
}

impl<K: Key> Towers<K> {
    const ONE_WORD: bool = matches!(K::SHAPE, Shape::Inline(1));

    /// Makes the towers of a list with one node, for up to about `nodes` nodes.
    pub(crate) fn new(nodes: u64, first: u64) -> Result<Self, PmError> {
        // One in eight towers begins a block, and some blocks are continued in another one.
        let blocks = u32::try_from(nodes / 2 + 64).unwrap_or(u32::MAX >> 1);
        let towers = Self {
            dram: Mapped::dram(),
            blocks: Arena::new(blocks)?,
            block_tails: Arena::new(if Self::ONE_WORD { 1 } else { blocks })?,
            tails: Tails::new(u32::try_from(nodes + 64).unwrap_or(u32::MAX >> 1)),
            top: AtomicUsize::new(0),
            writer: Mutex::new(Writer::default()),
            key: PhantomData,
        };
        for level in 0..LEVELS {
            let index = towers.blocks.alloc()?;
            assert_eq!(index as usize, level, "the first elements of an arena");
            let down = if level == 0 { first } else { level as u64 - 1 };
            let contents = Contents { towers: vec![Tower::first(down)], ..Contents::default() };
            towers.write(index, &contents);
        }
        Ok(towers)
    }

    #[inline(always)]
    fn top(&self) -> usize {
        self.top.load(Acquire).min(LEVELS - 1)
    }

    fn set_top(&self, top: usize) {
        self.top.store(top, Release);
    }

    #[inline(always)]
    fn count(&self, block: &Block) -> usize {
        (self.dram.load_word(&block.count) as usize).clamp(1, F)
    }

    fn separator(&self, index: u32, at: usize) -> Separator {
        let prefix = self.dram.load_word(&self.blocks.get(index).prefixes[at]);
        let tail = self.tail(index, |tails| &tails.tails[at]);
        Separator { prefix, tail }
    }

    fn bound(&self, index: u32) -> Separator {
        let prefix = self.dram.load_word(&self.blocks.get(index).bound);
        Separator { prefix, tail: self.tail(index, |tails| &tails.bound) }
    }

    #[inline(always)]
    fn tail(&self, index: u32, cell: impl FnOnce(&BlockTails) -> &PmU64) -> Tail {
        if Self::ONE_WORD {
            return Tail::NONE;
        }
        Tail::from_word(self.dram.load_word(cell(self.block_tails.get(index))))
    }

    /// Returns `true` if a separator is less than the route.
    #[inline(always)]
    fn is_less(&self, separator: Separator, route: &Route<'_>) -> bool {
        if Self::ONE_WORD || separator.prefix != route.prefix {
            return separator.prefix < route.prefix;
        }
        // For keys of several words, only a place without a separator has no tail.
        (K::SHAPE.is_bytes() || separator.tail != Tail::NONE)
            && self.tails.compare::<K>(&self.dram, separator.tail, route).is_lt()
    }

    /// Copies a separator. Racing: validate the block.
    fn load(&self, separator: Separator) -> OwnedRoute {
        self.tails.load::<K>(&self.dram, separator)
    }

    /// Copies a block. Not racing: for the holder of `writer`.
    fn read(&self, index: u32) -> Contents {
        let block = self.blocks.get(index);
        let tower = |at| Tower {
            separator: self.separator(index, at),
            down: self.dram.load_word(&block.downs[at]),
        };
        let right = self.dram.load_word(&block.right) as u32;
        Contents {
            towers: (0..self.count(block)).map(tower).collect(),
            right,
            bound: (right != 0).then(|| self.bound(index)),
        }
    }

    /// Writes a block. The caller holds its lock, or no other thread can reach it.
    fn write(&self, index: u32, contents: &Contents) {
        let Contents { towers, right, bound } = contents;
        debug_assert!(!towers.is_empty() && towers.len() <= F);
        let (block, dram) = (self.blocks.get(index), &self.dram);
        let none = Separator { prefix: u64::MAX, tail: Tail::NONE };
        for at in 0..F {
            let separator = towers.get(at).map_or(none, |tower| tower.separator);
            dram.store_word(&block.prefixes[at], separator.prefix);
            dram.store_word(&block.downs[at], towers.get(at).map_or(0, |tower| tower.down));
            if !Self::ONE_WORD {
                let tails = self.block_tails.get(index);
                dram.store_word(&tails.tails[at], separator.tail.into_word());
            }
        }
        dram.store_word(&block.count, towers.len() as u64);
        dram.store_word(&block.right, u64::from(*right));
        let bound = bound.unwrap_or(none);
        dram.store_word(&block.bound, bound.prefix);
        if !Self::ONE_WORD {
            dram.store_word(&self.block_tails.get(index).bound, bound.tail.into_word());
        }
    }

    /// Returns the blocks in use, the levels, and the DRAM in bytes.
    pub(crate) fn size(&self) -> (u64, u32, u64) {
        let bytes = self.blocks.bytes() + self.block_tails.bytes() + self.tails.bytes();
        (self.blocks.len() as u64, self.top() as u32 + 1, bytes as u64)
    }

    /// Checks that the towers lead to these nodes in this order, each once.
    pub(crate) fn check(&self, nodes: &[u64]) -> Result<(), PmError> {
        let wrong = |what| Err(PmError::Corrupt { what, offset: 0 });
        let mut found = Vec::new();
        // The blocks of the level below, and those that a tower points to.
        let mut below: Vec<u64> = Vec::new();
        for level in 0..LEVELS {
            let (mut index, mut blocks, mut downs) = (level as u32, Vec::new(), Vec::new());
            let mut last: Option<Separator> = None;
            loop {
                let contents = self.read(index);
                blocks.push(u64::from(index));
                for tower in &contents.towers {
                    downs.push(tower.down);
                    if downs.len() == 1 {
                        continue; // that of the first node
                    }
                    let route = self.load(tower.separator);
                    if last.is_some_and(|last| !self.is_less(last, &route.route::<K>())) {
                        return wrong("separators out of order");
                    }
                    last = Some(tower.separator);
                }
                if contents.right == 0 || blocks.len() > nodes.len() {
                    break;
                }
                index = contents.right;
                let first = self.read(index).towers.first().map(|tower| tower.separator);
                if first != contents.bound {
                    return wrong("the bound of a block");
                }
            }
            if level == 0 {
                found = downs;
            } else if downs.iter().any(|down| !below.contains(down)) {
                return wrong("a tower that leads to no block");
            }
            if level > self.top() && blocks.len() + self.read(level as u32).towers.len() > 2 {
                return wrong("towers above the top");
            }
            below = blocks;
        }
        if found != nodes {
            return wrong("the towers and the list name other nodes");
        }
        Ok(())
    }
}
