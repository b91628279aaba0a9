//! Values whose encoding changes from one call to the next, in every call that takes many.

use pmindex_core::Mapped;
use pmindex_sptree::SpTree;
use pmindex_testkit::conformance::Fickle;

pmindex_testkit::conformance! {
    sptree: SpTree<u64, Fickle, Mapped, 4>, keys u64, values Fickle, groups [fickle];
    sptree_of_bytes: SpTree<Vec<u8>, Fickle, Mapped, 4>, keys Vec<u8>, values Fickle, groups [fickle];
    buffered: SpTree<u64, Fickle, Mapped, 4, 3>, keys u64, values Fickle, groups [fickle];
    buffered_of_bytes: SpTree<Vec<u8>, Fickle, Mapped, 4, 3>, keys Vec<u8>, values Fickle, groups [fickle];
}
