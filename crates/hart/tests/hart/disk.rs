//! A disk that fails under HART: at every write-back, in small nodes.

use pmindex_core::Mapped;
use pmindex_hart::Hart;
use pmindex_testkit::conformance::OnDisk;

pmindex_testkit::conformance! {
    hart_words: Hart<u64, u64, Mapped, 4, 1>, keys u64, values u64, on OnDisk, groups [disk];
    hart_bytes: Hart<Vec<u8>, Vec<u8>, Mapped, 4, 1>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    hart_arrays: Hart<(u64, [u8; 12]), [u8; 16], Mapped, 4, 1>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
}
