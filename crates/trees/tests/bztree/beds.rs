//! BzTree through the parts of the conformance suite that need files, threads or counts. (Schedules and
//! crashes of simulated memory are explored by `cargo xtask crash`.)

use pmindex_core::Mapped;
use pmindex_testkit::conformance::{Counted, Fuse, InFiles};
use pmindex_trees::BzTree;

pmindex_testkit::conformance! {
    /// In files that grow, are closed, killed and opened.
    in_files: BzTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on InFiles,
        groups [model, naming, space];
    /// Where every store, flush and fence is counted.
    counted: BzTree<u64, u64>, keys u64, values u64, on Counted, groups [counts];
    /// The same with nodes that split all the time, and records out of line.
    counted_bytes: BzTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>,
        on Counted, groups [counts];
    /// Conversions that panic.
    fused: BzTree<Fuse, Fuse, Mapped, 4, 3>, keys Fuse, values Fuse, groups [conversions];
}
