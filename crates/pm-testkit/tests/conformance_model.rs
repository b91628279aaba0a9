//! Runs the suite on the reference index: a property that it fails is a wrong property.

use pmindex_core::Traced;
use pmindex_testkit::conformance::{InFiles, Simulated};
use pmindex_testkit::{ModelIndex, conformance};

conformance! {
    /// Keys and values inline.
    model_u64: ModelIndex<u64, u64>, keys u64, values u64, groups [model, edges, naming, threads];
    /// Keys and values out of line.
    model_bytes: ModelIndex<Vec<u8>, Vec<u8>>, keys Vec<u8>, values Vec<u8>,
        groups [model, edges, naming, threads];
    /// Text.
    model_str: ModelIndex<String, u64>, keys String, values u64, groups [model, edges];
    /// Signed keys and large values.
    model_i64: ModelIndex<i64, Vec<u8>>, keys i64, values Vec<u8>, groups [model, edges];
    /// Files that are closed, killed and opened.
    model_in_files: ModelIndex<u64, u64>, keys u64, values u64, on InFiles, groups [naming];
    /// Under the deterministic scheduler.
    model_simulated: ModelIndex<u64, u64, Traced>, keys u64, values u64, on Simulated,
        groups [schedules, loads];
}
