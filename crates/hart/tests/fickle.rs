//! Values whose encoding changes from one call to the next, in every call that takes many.

use pmindex_core::Mapped;
use pmindex_hart::Hart;
use pmindex_testkit::conformance::Fickle;

pmindex_testkit::conformance! {
    hart: Hart<u64, Fickle, Mapped, 4, 1>, keys u64, values Fickle, groups [fickle];
    hart_of_bytes: Hart<Vec<u8>, Fickle, Mapped, 4, 1>, keys Vec<u8>, values Fickle, groups [fickle];
}
