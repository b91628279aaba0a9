//! A disk that fails under the trees: at every write-back, in small nodes.

use pmindex_core::Mapped;
use pmindex_testkit::conformance::OnDisk;
use pmindex_trees::{BzTree, FpTree, NvTree, SharedWbTree};

pmindex_testkit::conformance! {
    fptree_words: FpTree<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
    fptree_bytes: FpTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    fptree_arrays: FpTree<(u64, [u8; 12]), [u8; 16], Mapped, 4, 3>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
    nvtree_words: NvTree<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
    nvtree_bytes: NvTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    nvtree_arrays: NvTree<(u64, [u8; 12]), [u8; 16], Mapped, 4, 3>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
    wbtree_words: SharedWbTree<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
    wbtree_bytes: SharedWbTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    wbtree_arrays: SharedWbTree<(u64, [u8; 12]), [u8; 16], Mapped, 4, 3>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
    bztree_words: BzTree<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
    bztree_bytes: BzTree<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    bztree_arrays: BzTree<(u64, [u8; 12]), [u8; 16], Mapped, 4, 3>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
}
