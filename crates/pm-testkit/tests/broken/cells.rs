//! The words of the toy programs: fixed places in a bare space, without a pool.

use pmindex_core::trace::Space;
use pmindex_core::{PPtr, PmU64};
use pmindex_testkit::crash::Fault;

/// One line of words.
pub(crate) type Line = [PmU64; 8];

/// Returns line number `n` of the space (line 0 is the null pointer's).
pub(crate) fn line(space: &Space, n: u64) -> Result<&Line, Fault> {
    Ok(space.get(PPtr::<Line>::new(64 * (n + 1)))?)
}
