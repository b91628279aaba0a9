//! SPTree through the parts of the conformance suite that need files or threads. (Schedules and crashes of
//! simulated memory are explored by `cargo xtask crash`.)

use pmindex_core::Mapped;
use pmindex_sptree::SpTree;
use pmindex_testkit::conformance::{Fuse, InFiles};

pmindex_testkit::conformance! {
    /// Nodes of production size.
    shared_words: SpTree<u64, u64>, keys u64, values u64, groups [space, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: SpTree<Vec<u8>, Vec<u8>, Mapped, 4>, keys Vec<u8>, values Vec<u8>, on InFiles,
        groups [model, naming, space];
    /// Conversions that panic.
    fused: SpTree<Fuse, Fuse, Mapped, 4>, keys Fuse, values Fuse, groups [conversions];
}
