//! Values whose encoding changes from one call to the next, in every call that takes many.

use pmindex_core::Mapped;
use pmindex_fastfair::FastFair;
use pmindex_testkit::conformance::Fickle;

pmindex_testkit::conformance! {
    fastfair: FastFair<u64, Fickle, Mapped, 4, 3>, keys u64, values Fickle, groups [fickle];
    fastfair_of_bytes: FastFair<Vec<u8>, Fickle, Mapped, 4, 3>, keys Vec<u8>, values Fickle, groups [fickle];
}
