//! Runs the conformance suite on the skip list. (Tests with the deterministic scheduler run in the crash
//! explorer, which has these types.)

use pmindex_core::Mapped;
use pmindex_skiplist::SkipList;
use pmindex_testkit::conformance::{Fickle, Fuse, OnDisk};

pmindex_testkit::conformance! {
    /// Nodes of two lines, so that there are many of them.
    words_to_words: SkipList<u64, u64, Mapped, 2>, keys u64, values u64,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_bytes: SkipList<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, checked, edges, space, full, threads];
    /// Keys of several words.
    wide: SkipList<(u64, u64), u64, Mapped, 2>, keys (u64, u64), values u64, groups [checked];
    /// A disk that fails at every write-back.
    on_disk: SkipList<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    /// Conversions that panic.
    fused: SkipList<Fuse, Fuse, Mapped>, keys Fuse, values Fuse, groups [conversions];
    /// Values whose encoding changes.
    fickle: SkipList<u64, Fickle, Mapped, 2>, keys u64, values Fickle, groups [fickle];
    fickle_of_bytes: SkipList<Vec<u8>, Fickle>, keys Vec<u8>, values Fickle, groups [fickle];
}
