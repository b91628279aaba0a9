//! The conformance suite for SPTree with write buffers.

use pmindex_core::Mapped;
use pmindex_sptree::{BufferedSpTree, SpTree};
use pmindex_testkit::conformance::InFiles;

pmindex_testkit::conformance! {
    /// Four records to a leaf, three to a buffer.
    tiny: SpTree<u64, u64, Mapped, 4, 3>, keys u64, values u64;
    /// As in production.
    full: BufferedSpTree<u64, u64>, keys u64, values u64;
    /// In files that grow; keys and values of two words.
    in_files: SpTree<[u8; 16], [u8; 16], Mapped, 8, 4>, keys [u8; 16], values [u8; 16],
        on InFiles, groups [model, naming, space, threads];
}
