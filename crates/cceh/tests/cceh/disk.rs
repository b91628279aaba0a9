//! A disk that fails under CCEH: at every write-back, in small segments.

use pmindex_cceh::Cceh;
use pmindex_core::Mapped;
use pmindex_testkit::Unordered;
use pmindex_testkit::conformance::OnDisk;

type Tiny<K, V> = Unordered<Cceh<K, V, Mapped, 3, 2>>;

pmindex_testkit::conformance! {
    cceh_words: Tiny<u64, u64>, keys u64, values u64, on OnDisk, groups [disk];
    cceh_bytes: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>, on OnDisk, groups [disk];
    cceh_arrays: Tiny<(u64, [u8; 12]), [u8; 16]>, keys (u64, [u8; 12]), values [u8; 16],
        on OnDisk, groups [disk];
}
