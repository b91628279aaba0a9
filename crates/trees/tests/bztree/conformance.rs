//! BzTree through the conformance suite, with every combination of key and value shapes.

use pmindex_core::Mapped;
use pmindex_trees::BzTree;

type Tiny<K, V> = BzTree<K, V, Mapped, 4, 3>;
type Full<K, V> = BzTree<K, V>;

pmindex_testkit::conformance! {
    words_to_words: Tiny<u64, u64>, keys u64, values u64,
        groups [model, checked, edges, naming, space, full, threads];
    words_to_bytes: Tiny<u64, Vec<u8>>, keys u64, values Vec<u8>,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_words: Tiny<Vec<u8>, u64>, keys Vec<u8>, values u64,
        groups [model, checked, edges, naming, space, full, threads];
    bytes_to_bytes: Tiny<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, checked, edges, naming, space, full, threads];
    full_bytes_to_words: Full<Vec<u8>, u64>, keys Vec<u8>, values u64,
        groups [space];
    full_words_to_words: Full<u64, u64>, keys u64, values u64;
    full_bytes_to_bytes: Full<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>;
}
