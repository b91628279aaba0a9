//! The reference index passes the suite: a property that it fails is a wrong property.

use pmindex_testkit::{ModelIndex, conformance};

conformance! {
    /// Both inline.
    model_u64: ModelIndex<u64, u64>, keys u64, values u64, groups [model, edges, naming, threads];
    /// Signed keys.
    model_i64: ModelIndex<i64, u64>, keys i64, values u64, groups [model, edges, naming, threads];
    /// Both out of line.
    model_bytes: ModelIndex<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, edges, naming, threads];
    /// Mixed.
    model_bytes_u64: ModelIndex<Vec<u8>, u64>, keys Vec<u8>, values u64,
        groups [model, edges, naming, threads];
    /// Mixed.
    model_u64_bytes: ModelIndex<u64, Vec<u8>>, keys u64, values Vec<u8>,
        groups [model, edges, naming, threads];
    /// Text.
    model_str: ModelIndex<String, String>, keys String, values String,
        groups [model, edges, naming, threads];
}
