//! A disk that fails under NV-Tree: at every write-back, in small nodes.

use pmindex_core::Mapped;
use pmindex_testkit::conformance::OnDisk;
use pmindex_trees::NvTree;

pmindex_testkit::conformance! {
    words: NvTree<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
    bytes: NvTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    arrays: NvTree<(u64, [u8; 12]), [u8; 16], Mapped, 4, 3>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
}
