//! FAST&FAIR through the parts of the conformance suite that need the allocator, threads and the crash
//! simulator.

use pmindex_core::{Mapped, Traced};
use pmindex_fastfair::FastFair;
use pmindex_testkit::conformance::{Fuse, InFiles, Simulated};

pmindex_testkit::conformance! {
    /// Nodes of production size.
    shared_words: FastFair<u64, u64>, keys u64, values u64, groups [space, threads];
    /// Nodes so small that they split all the time.
    shared_bytes: FastFair<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>,
        groups [space, full, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: FastFair<u64, Vec<u8>, Mapped, 4, 3>, keys u64, values Vec<u8>, on InFiles,
        groups [model, checked, naming, space];
    /// Under the deterministic scheduler, and crashed.
    simulated_words: FastFair<u64, u64, Traced, 4, 3>, keys u64, values u64, on Simulated,
        groups [schedules, crashes, concurrent_crashes];
    /// The same with records out of line.
    simulated_bytes: FastFair<Vec<u8>, Vec<u8>, Traced, 4, 3>, keys Vec<u8>, values Vec<u8>,
        on Simulated, groups [schedules, crashes, concurrent_crashes];
    /// Conversions that panic.
    fused: FastFair<Fuse, Fuse, Mapped, 4, 3>, keys Fuse, values Fuse, groups [conversions];
}
