//! HART through the parts of the conformance suite that need files or threads. (Other schedules and crashes
//! of simulated memory are explored by `cargo xtask crash`.)

use pmindex_core::{Mapped, Traced};
use pmindex_hart::Hart;
use pmindex_testkit::conformance::{Fuse, InFiles, Simulated};

/// Chunks so small that they come and go all the time; one tree for all keys.
type OneTree = Hart<Vec<u8>, Vec<u8>, Mapped, 4, 0>;

pmindex_testkit::conformance! {
    /// Chunks of production size.
    shared_words: Hart<u64, u64>, keys u64, values u64, groups [space, threads];
    one_tree: OneTree, keys Vec<u8>, values Vec<u8>, groups [space, full, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: OneTree, keys Vec<u8>, values Vec<u8>, on InFiles, groups [model, naming, space];
    /// Several trees, which a bulk load shows one after another.
    several_trees: Hart<Vec<u8>, u64, Traced, 4, 1>, keys Vec<u8>, values u64, on Simulated, groups [loads];
    /// Conversions that panic.
    fused: Hart<Fuse, Fuse, Mapped, 4, 1>, keys Fuse, values Fuse, groups [conversions];
}
