//! A disk that fails under SPTree: at every write-back, in small nodes.

use pmindex_core::Mapped;
use pmindex_sptree::SpTree;
use pmindex_testkit::conformance::OnDisk;

pmindex_testkit::conformance! {
    sptree_words: SpTree<u64, u64, Mapped, 4>, keys u64, values u64, on OnDisk, groups [disk];
    sptree_bytes: SpTree<Vec<u8>, Vec<u8>, Mapped, 4>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    sptree_arrays: SpTree<(u64, [u8; 12]), [u8; 16], Mapped, 4>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
    /// With write buffers.
    buffered_words: SpTree<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
}
