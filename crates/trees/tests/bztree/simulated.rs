//! BzTree through the parts of the conformance suite that need the allocator, threads and the crash
//! simulator.

use pmindex_core::{Counting, Mapped, Traced};
use pmindex_testkit::conformance::{Counted, Fuse, InFiles, Simulated};
use pmindex_trees::BzTree;

pmindex_testkit::conformance! {
    /// Nodes of production size.
    shared_words: BzTree<u64, u64>, keys u64, values u64, groups [space, threads];
    /// Nodes so small that they split all the time.
    shared_bytes: BzTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>,
        groups [space, full, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: BzTree<u64, Vec<u8>, Mapped, 4, 3>, keys u64, values Vec<u8>, on InFiles,
        groups [model, naming, space];
    /// Under the deterministic scheduler, and crashed.
    simulated_words: BzTree<u64, u64, Traced, 4, 3>, keys u64, values u64, on Simulated,
        groups [schedules, crashes, concurrent_crashes];
    /// The same with records out of line.
    simulated_bytes: BzTree<Vec<u8>, Vec<u8>, Traced, 4, 3>, keys Vec<u8>, values Vec<u8>,
        on Simulated, groups [schedules, crashes, concurrent_crashes];
    /// Where every store, flush and fence is counted.
    counted: BzTree<u64, u64, Counting<Mapped>>, keys u64, values u64, on Counted, groups [counts];
    /// The same with nodes that split all the time, and records out of line.
    counted_bytes: BzTree<Vec<u8>, Vec<u8>, Counting<Mapped>, 4, 3>, keys Vec<u8>, values Vec<u8>,
        on Counted, groups [counts];
    /// Conversions that panic.
    fused: BzTree<Fuse, Fuse, Mapped, 4, 3>, keys Fuse, values Fuse, groups [conversions];
}
