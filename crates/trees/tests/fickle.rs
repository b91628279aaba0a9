//! Values whose encoding changes from one call to the next, in every call that takes many.

use pmindex_core::Mapped;
use pmindex_testkit::conformance::Fickle;
use pmindex_trees::{BzTree, FpTree, NvTree, SharedWbTree};

pmindex_testkit::conformance! {
    bztree: BzTree<u64, Fickle, Mapped, 4, 3>, keys u64, values Fickle, groups [fickle];
    bztree_of_bytes: BzTree<Vec<u8>, Fickle, Mapped, 4, 3>, keys Vec<u8>, values Fickle, groups [fickle];
    fptree: FpTree<u64, Fickle, Mapped, 4, 3>, keys u64, values Fickle, groups [fickle];
    fptree_of_bytes: FpTree<Vec<u8>, Fickle, Mapped, 4, 3>, keys Vec<u8>, values Fickle, groups [fickle];
    nvtree: NvTree<u64, Fickle, Mapped, 4, 3>, keys u64, values Fickle, groups [fickle];
    nvtree_of_bytes: NvTree<Vec<u8>, Fickle, Mapped, 4, 3>, keys Vec<u8>, values Fickle, groups [fickle];
    wbtree: SharedWbTree<u64, Fickle, Mapped, 4, 3>, keys u64, values Fickle, groups [fickle];
    wbtree_of_bytes: SharedWbTree<Vec<u8>, Fickle, Mapped, 4, 3>, keys Vec<u8>, values Fickle, groups [fickle];
    /// Leaves of production size: more records out of line than one operation takes.
    bztree_full: BzTree<u64, Fickle>, keys u64, values Fickle, groups [fickle];
}
