//! Runs the conformance suite on CCEH, with every combination of key and value shapes, each shape in tiny
//! segments and in segments of production size.

use pmindex_cceh::Cceh;
use pmindex_core::Mapped;
use pmindex_testkit::Unordered;

type Tiny<K, V> = Unordered<Cceh<K, V, Mapped, 3, 2>>;
type Full<K, V> = Unordered<Cceh<K, V>>;

pmindex_testkit::conformance! {
    words_to_words: Tiny<u64, u64>, keys u64, values u64,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_bytes: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_words: Tiny<Vec<u8>, u64>, keys Vec<u8>, values u64, groups [checked];
    full_words_to_bytes: Full<u64, Vec<u8>>, keys u64, values Vec<u8>;
    full_bytes_to_words: Full<Vec<u8>, u64>, keys Vec<u8>, values u64;
}
