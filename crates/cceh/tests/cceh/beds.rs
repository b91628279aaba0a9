//! Runs the parts of the conformance suite that need files, threads or counts on CCEH. (`cargo xtask crash`
//! explores schedules and crashes in simulated memory.)

use pmindex_cceh::Cceh;
use pmindex_core::Mapped;
use pmindex_testkit::Unordered;
use pmindex_testkit::conformance::{Counted, Fickle, Fuse, InFiles};

type Tiny<K, V, M = Mapped> = Unordered<Cceh<K, V, M, 3, 2>>;

pmindex_testkit::conformance! {
    /// Segments of production size.
    shared_words: Unordered<Cceh<u64, u64>>, keys u64, values u64, groups [threads];
    /// Files that grow, are closed, killed and opened.
    in_files: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>, on InFiles,
        groups [model, checked, naming, space];
    /// Reads and refused operations flush nothing.
    counted: Tiny<u64, u64>, keys u64, values u64, on Counted, groups [counts];
    /// Conversions that panic.
    fused: Tiny<Fuse, Fuse>, keys Fuse, values Fuse, groups [conversions];
    /// Values whose encoding changes.
    fickle: Tiny<u64, Fickle>, keys u64, values Fickle, groups [fickle];
    fickle_of_bytes: Tiny<Vec<u8>, Fickle>, keys Vec<u8>, values Fickle, groups [fickle];
}
