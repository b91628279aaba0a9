//! The top: over the parent-to-leaf nodes, arrays in which a child's place is computed.
//!
//! Level 0 is the greatest keys of the parents, in order, the last one `u64::MAX`; each level above
//! has the greatest key of every 32 of the level below. A lookup counts the keys less than its own
//! among 32, level by level: no pointer is followed, and what is read is dense.
//!
//! There are two buffers. The lock's version says which one is in use; the other one is filled by
//! the next rebuild, whose last step moves the version on. A reader that was still in a buffer when
//! its next filling began finds the version changed.

use std::sync::atomic::{AtomicU64, Ordering};

use pmindex_core::sync::VersionLock;
use pmindex_core::{Arena, Mapped, Medium, PmError, PmU64, Word};

use pmindex_record::{Separator, Tail};

/// Keys of a node.
pub(super) const FANOUT: usize = 32;
/// More levels than there can be: 32^7 is more than an index of 32 bits.
const MAX_LEVELS: usize = 7;

type Node = [PmU64; FANOUT];

/// The arrays.
#[derive(Debug)]
struct Buffer {
    /// How many parents it names.
    len: AtomicU64,
    /// Level 0: greatest keys, and beside each node the parents and (where keys are longer than a
    /// word) the tails of the keys.
    keys: Arena<Node>,
    parents: Arena<Node>,
    tails: Arena<Node>,
    /// The levels above, each at a place of its own.
    upper: Arena<Node>,
}

/// The top.
#[derive(Debug)]
pub(super) struct Top {
    /// Its version says which buffer is in use.
    pub(super) lock: VersionLock,
    buffers: [Buffer; 2],
    /// Where in `upper` each level starts.
    starts: [u32; MAX_LEVELS],
    one_word: bool,
}

/// A lower bound in level 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Which buffer.
    buffer: usize,
    /// The place.
    pub(super) at: u64,
    /// How many places there are.
    pub(super) len: u64,
}

impl Top {
    /// Room for the keys of `parents` nodes.
    pub(super) fn new(parents: u32, one_word: bool) -> Result<Self, PmError> {
        let nodes = parents.div_ceil(FANOUT as u32) + 1;
        let mut starts = [0; MAX_LEVELS];
        let (mut level_nodes, mut next) = (nodes, 0);
        for start in &mut starts {
            *start = next;
            level_nodes = level_nodes.div_ceil(FANOUT as u32);
            next += level_nodes;
        }
        let buffer = || -> Result<Buffer, PmError> {
            Ok(Buffer {
                len: AtomicU64::new(0),
                keys: Arena::new(nodes)?,
                parents: Arena::new(nodes)?,
                tails: Arena::new(if one_word { 1 } else { nodes })?,
                upper: Arena::new(next)?,
            })
        };
        let buffers = [buffer()?, buffer()?];
        Ok(Self { lock: VersionLock::new(), buffers, starts, one_word })
    }

    /// Returns the first place whose key is not less than `prefix`. Racing: validate the version.
    #[inline(always)]
    pub(super) fn lower_bound(&self, dram: &Mapped, version: u64, prefix: u64) -> Found {
        let buffer = in_use(version);
        let Buffer { len, keys, upper, .. } = &self.buffers[buffer];
        let len = len.load(Ordering::Relaxed).max(1);
        let mut widths = [0u64; MAX_LEVELS + 1];
        let mut levels = 0;
        widths[0] = len.div_ceil(FANOUT as u64);
        while widths[levels] > 1 && levels < MAX_LEVELS {
            widths[levels + 1] = widths[levels].div_ceil(FANOUT as u64);
            levels += 1;
        }
        let mut node = 0u64;
        for level in (0..levels).rev() {
            let keys = upper.get(self.starts[level] + node as u32);
            let at = dram.count_less(keys, prefix).min(FANOUT - 1) as u64;
            node = (node * FANOUT as u64 + at).min(widths[level] - 1);
        }
        let at = dram.count_less(keys.get(node as u32), prefix).min(FANOUT - 1) as u64;
        Found { buffer, at: (node * FANOUT as u64 + at).min(len - 1), len }
    }

    /// Returns the parent at a place. Racing: validate the version.
    #[inline(always)]
    pub(super) fn parent(&self, dram: &Mapped, found: Found) -> u32 {
        let (node, at) = place(found.at);
        dram.load_word(&self.buffers[found.buffer].parents.get(node)[at]) as u32
    }

    /// Returns the parent at place `at` of those named at `version`. Racing: validate the version.
    pub(super) fn parent_at(&self, dram: &Mapped, version: u64, at: u64) -> u32 {
        let len = self.len(version);
        self.parent(dram, Found { buffer: in_use(version), at: at.min(len.saturating_sub(1)), len })
    }

    /// Returns the tail of the key at place `at`. Racing: validate the version.
    pub(super) fn tail(&self, dram: &Mapped, found: Found, at: u64) -> Tail {
        let (node, at) = place(at);
        Tail::from_word(dram.load_word(&self.buffers[found.buffer].tails.get(node)[at]))
    }

    /// How many parents it names.
    pub(super) fn len(&self, version: u64) -> u64 {
        self.buffers[in_use(version)].len.load(Ordering::Relaxed)
    }

    /// Puts a parent and its greatest key at place `at` of the buffer that is not in use at
    /// `version`.
    pub(super) fn put(
        &self,
        dram: &Mapped,
        version: u64,
        at: u64,
        parent: u32,
        high: Separator,
    ) -> Result<(), PmError> {
        let buffer = &self.buffers[1 - in_use(version)];
        let (node, place) = place(at);
        if place == 0 {
            make(&buffer.keys, node)?;
            make(&buffer.parents, node)?;
            if !self.one_word {
                make(&buffer.tails, node)?;
            }
        }
        dram.store_word(&buffer.keys.get(node)[place], high.prefix);
        dram.store_word(&buffer.parents.get(node)[place], parent.into());
        if !self.one_word {
            dram.store_word(&buffer.tails.get(node)[place], high.tail.into_word());
        }
        Ok(())
    }

    /// Completes the buffer that is not in use, with `len` places, and puts it to use.
    pub(super) fn switch(
        &self,
        dram: &Mapped,
        pm: &impl Medium,
        version: u64,
        len: u64,
    ) -> Result<(), PmError> {
        let buffer = &self.buffers[1 - in_use(version)];
        let pad = |node: &Node, from: u64| {
            for cell in &node[from as usize..] {
                dram.store_word(cell, u64::MAX);
            }
        };
        let mut width = len.div_ceil(FANOUT as u64);
        pad(buffer.keys.get(width as u32 - 1), len - (width - 1) * FANOUT as u64);
        for level in 0..MAX_LEVELS {
            if width == 1 {
                break;
            }
            let next = width.div_ceil(FANOUT as u64);
            for child in 0..width {
                let below = match level {
                    0 => buffer.keys.get(child as u32),
                    _ => buffer.upper.get(self.starts[level - 1] + child as u32),
                };
                let (node, at) = place(child);
                if at == 0 {
                    make(&buffer.upper, self.starts[level] + node)?;
                }
                let greatest = dram.load_word(&below[FANOUT - 1]);
                dram.store_word(&buffer.upper.get(self.starts[level] + node)[at], greatest);
            }
            let last = buffer.upper.get(self.starts[level] + next as u32 - 1);
            pad(last, width - (next - 1) * FANOUT as u64);
            width = next;
        }
        buffer.len.store(len, Ordering::Relaxed);
        drop(self.lock.lock(pm));
        Ok(())
    }

    /// Nodes of both buffers.
    pub(super) fn nodes(&self) -> u64 {
        self.buffers.iter().map(|b| (b.keys.len() + b.upper.len()) as u64).sum()
    }

    /// DRAM in use.
    pub(super) fn bytes(&self) -> usize {
        let bytes =
            |b: &Buffer| b.keys.bytes() + b.parents.bytes() + b.tails.bytes() + b.upper.bytes();
        self.buffers.iter().map(bytes).sum()
    }
}

/// Which buffer is in use at a version; versions are even.
#[inline(always)]
fn in_use(version: u64) -> usize {
    (version >> 1 & 1) as usize
}

/// Returns the node of a place of level 0, and the place in it.
#[inline(always)]
fn place(at: u64) -> (u32, usize) {
    ((at / FANOUT as u64) as u32, at as usize % FANOUT)
}

/// Takes nodes from the arena up to `node`.
fn make(arena: &Arena<Node>, node: u32) -> Result<(), PmError> {
    while arena.len() <= node as usize {
        arena.alloc()?;
    }
    Ok(())
}
