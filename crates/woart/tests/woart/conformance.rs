//! Runs the conformance suite on WOART and ART+CoW. Both are one tree of byte strings, so few types cover all
//! of it. (Tests with the deterministic scheduler run in the crash explorer, which has these types.)

use pmindex_core::Mapped;
use pmindex_testkit::conformance::{Fickle, Fuse, InFiles, OnDisk};
use pmindex_woart::{ArtCow, Woart};

pmindex_testkit::conformance! {
    words_to_words: Woart<u64, u64>, keys u64, values u64,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_bytes: Woart<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, checked, edges, space, full, threads];
    copied_bytes: ArtCow<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [checked, naming, space, full, threads];
    /// Files that grow, are closed, killed and opened.
    in_files: Woart<u64, Vec<u8>>, keys u64, values Vec<u8>, on InFiles, groups [checked, naming];
    /// A disk that fails at every write-back.
    on_disk: Woart<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    /// Conversions that panic.
    fused: Woart<Fuse, Fuse, Mapped>, keys Fuse, values Fuse, groups [conversions];
    /// Values whose encoding changes.
    fickle: Woart<u64, Fickle>, keys u64, values Fickle, groups [fickle];
    fickle_of_bytes: ArtCow<Vec<u8>, Fickle>, keys Vec<u8>, values Fickle, groups [fickle];
}
