//! A disk that fails under FAST&FAIR: at every write-back, in small nodes.

use pmindex_core::Mapped;
use pmindex_fastfair::FastFair;
use pmindex_testkit::conformance::OnDisk;

pmindex_testkit::conformance! {
    fastfair_words: FastFair<u64, u64, Mapped, 4, 3>, keys u64, values u64, on OnDisk, groups [disk];
    fastfair_bytes: FastFair<Vec<u8>, Vec<u8>, Mapped, 4, 3>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    fastfair_arrays: FastFair<(u64, [u8; 12]), [u8; 16], Mapped, 4, 3>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
}
