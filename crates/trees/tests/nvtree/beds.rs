//! NV-Tree through the parts of the conformance suite that need files, threads or counts. (Schedules and
//! crashes of simulated memory are explored by `cargo xtask crash`.)

use pmindex_core::Mapped;
use pmindex_testkit::conformance::{Fuse, InFiles};
use pmindex_trees::NvTree;

pmindex_testkit::conformance! {
    /// Nodes of production size.
    shared_words: NvTree<u64, u64>, keys u64, values u64, groups [space, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: NvTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on InFiles,
        groups [model, naming, space];
    /// Conversions that panic.
    fused: NvTree<Fuse, Fuse, Mapped, 4, 3>, keys Fuse, values Fuse, groups [conversions];
}
