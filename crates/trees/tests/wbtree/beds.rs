//! wBTree through the parts of the conformance suite that need files, threads or counts. (Schedules and
//! crashes of simulated memory are explored by `cargo xtask crash`.)

use pmindex_core::Mapped;
use pmindex_testkit::conformance::{Fuse, InFiles};
use pmindex_trees::SharedWbTree;

pmindex_testkit::conformance! {
    /// Nodes of production size.
    shared_words: SharedWbTree<u64, u64>, keys u64, values u64, groups [space, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: SharedWbTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on InFiles,
        groups [model, naming, space];
    /// Conversions that panic.
    fused: SharedWbTree<Fuse, Fuse, Mapped, 4, 3>, keys Fuse, values Fuse, groups [conversions];
}
