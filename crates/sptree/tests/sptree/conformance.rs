//! SPTree through the conformance suite, with every combination of key and value shapes, words and byte
//! strings in tiny nodes and in nodes of production size. (Keys and values of two words: also in `buffered`.)

use pmindex_core::Mapped;
use pmindex_sptree::SpTree;

type Tiny<K, V> = SpTree<K, V, Mapped, 4>;
type Full<K, V> = SpTree<K, V>;

pmindex_testkit::conformance! {
    words_to_words: Tiny<u64, u64>, keys u64, values u64;
    bytes_to_bytes: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>;
    tuples_to_arrays: Tiny<(u64, [u8; 12]), [u8; 16]>, keys (u64, [u8; 12]), values [u8; 16];
    full_words_to_bytes: Full<u64, Vec<u8>>, keys u64, values Vec<u8>;
    full_bytes_to_words: Full<Vec<u8>, u64>, keys Vec<u8>, values u64;
}
