//! PACTree through the conformance suite: words and byte strings in tiny nodes, both in full ones. (What needs
//! the deterministic scheduler runs where the crash explorer has the types.)

use pmindex_core::Mapped;
use pmindex_pactree::PacTree;
use pmindex_testkit::conformance::{Fickle, Fuse, OnDisk};

type Tiny<K, V> = PacTree<K, V, Mapped, 4>;

pmindex_testkit::conformance! {
    words_to_words: Tiny<u64, u64>, keys u64, values u64,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_bytes: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, checked, edges, space, full, threads];
    full_bytes_to_words: PacTree<Vec<u8>, u64>, keys Vec<u8>, values u64,
        groups [model, edges];
    /// A disk that fails at every write-back.
    on_disk: Tiny<u64, Vec<u8>>, keys u64, values Vec<u8>, on OnDisk, groups [disk, checked];
    /// Conversions that panic.
    fused: Tiny<Fuse, Fuse>, keys Fuse, values Fuse, groups [conversions];
    /// Values whose encoding changes.
    fickle: Tiny<u64, Fickle>, keys u64, values Fickle, groups [fickle];
    fickle_of_bytes: Tiny<Vec<u8>, Fickle>, keys Vec<u8>, values Fickle, groups [fickle];
}
