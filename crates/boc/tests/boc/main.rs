//! Tests of the matrix in its full size: one binary, so that each type is compiled once for all of them.

use pmindex_boc::{Buffered, ByHash, ByKey};
use pmindex_cceh::Cceh;
use pmindex_core::Mapped;
use pmindex_fastfair::FastFair;
use pmindex_skiplist::SkipList;
use pmindex_testkit::Unordered;

mod fixture;
mod golden;

/// Buffers over CCEH, for half of its segment.
type Hash<const ANEW: bool, const LOGGED: bool> =
    Unordered<Buffered<ByHash<Cceh<u64, u64>, ANEW>, Mapped, LOGGED, 1024>>;
/// Buffers over FAST&FAIR, for half of its leaf; those that go out of place are searched in DRAM.
type Tree<const ANEW: bool, const LOGGED: bool> =
    Buffered<ByKey<FastFair<u64, u64>, ANEW, ANEW>, Mapped, LOGGED>;
/// Buffers over a skip list.
type List<const LOGGED: bool> = Buffered<ByKey<SkipList<u64, u64>>, Mapped, LOGGED>;
