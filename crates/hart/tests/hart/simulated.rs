//! HART through the parts of the conformance suite that need the allocator, threads and the crash
//! simulator.

use pmindex_core::{Mapped, Traced};
use pmindex_hart::Hart;
use pmindex_testkit::conformance::{Fuse, InFiles, Simulated};

pmindex_testkit::conformance! {
    /// Chunks of production size.
    shared_words: Hart<u64, u64>, keys u64, values u64, groups [space, threads];
    /// Chunks so small that they come and go all the time; one tree for all keys.
    shared_bytes: Hart<Vec<u8>, Vec<u8>, Mapped, 4, 0>, keys Vec<u8>, values Vec<u8>,
        groups [space, full, threads];
    /// In files that grow, are closed, killed and opened.
    in_files: Hart<u64, Vec<u8>, Mapped, 4, 2>, keys u64, values Vec<u8>, on InFiles,
        groups [model, naming, space];
    /// Under the deterministic scheduler, and crashed.
    simulated_words: Hart<u64, u64, Traced, 4, 1>, keys u64, values u64, on Simulated,
        groups [schedules, crashes, concurrent_crashes];
    /// The same with objects.
    simulated_bytes: Hart<Vec<u8>, Vec<u8>, Traced, 4, 1>, keys Vec<u8>, values Vec<u8>,
        on Simulated, groups [schedules, crashes, concurrent_crashes];
    /// Conversions that panic.
    fused: Hart<Fuse, Fuse, Mapped, 4, 1>, keys Fuse, values Fuse, groups [conversions];
}
