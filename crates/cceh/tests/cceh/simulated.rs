//! CCEH through the parts of the conformance suite that need the allocator, threads and the crash
//! simulator.

use pmindex_cceh::Cceh;
use pmindex_core::{Mapped, Traced};
use pmindex_testkit::Unordered;
use pmindex_testkit::conformance::{Counted, Fuse, InFiles, Simulated};

type Tiny<K, V, M = Mapped> = Unordered<Cceh<K, V, M, 3, 2>>;

pmindex_testkit::conformance! {
    /// Segments of production size.
    shared_words: Unordered<Cceh<u64, u64>>, keys u64, values u64, groups [threads];
    /// In files that grow, are closed, killed and opened.
    in_files: Tiny<u64, Vec<u8>>, keys u64, values Vec<u8>, on InFiles,
        groups [model, checked, naming, space];
    /// What is read and refused flushes nothing.
    counted: Unordered<Cceh<u64, u64, pmindex_core::Counting, 3, 2>>, keys u64, values u64, on Counted,
        groups [counts];
    /// Under the deterministic scheduler, and crashed.
    simulated_words: Tiny<u64, u64, Traced>, keys u64, values u64, on Simulated,
        groups [schedules, crashes, concurrent_crashes];
    /// The same with records out of line.
    simulated_bytes: Tiny<Vec<u8>, Vec<u8>, Traced>, keys Vec<u8>, values Vec<u8>, on Simulated,
        groups [schedules, crashes, concurrent_crashes];
    /// Conversions that panic.
    fused: Tiny<Fuse, Fuse>, keys Fuse, values Fuse, groups [conversions];
}
