//! The logs of batches in a pool: `NAME.batch` beside the index `NAME`, if a program has wrapped that in
//! [`Batched`](pmindex::Batched).

use std::sync::Arc;

use pmindex::core::Pool;
use pmindex::{AnyIndex, BATCH_LOG, Batched, IndexError};

use crate::error::CliError;

/// Any types may ask for a log.
type OfAnyTypes = Batched<u64, u64, AnyIndex<u64, u64>>;

/// Refuses an index with batches that a crash interrupted: some of their changes may be made, and the program that
/// finishes them overwrites later values.
pub(crate) fn refuse_interrupted(pool: &Arc<Pool>, name: &str) -> Result<(), CliError> {
    match interrupted(pool, name)? {
        0 => Ok(()),
        batches => Err(CliError::InterruptedBatches { name: name.into(), batches }),
    }
}

/// Returns the number of batches of an index that a crash interrupted.
pub(crate) fn interrupted(pool: &Arc<Pool>, name: &str) -> Result<u64, IndexError> {
    if name.ends_with(BATCH_LOG) {
        return Ok(0); // a log has none
    }
    OfAnyTypes::interrupted(pool, name)
}

/// Refuses to write to a log.
pub(crate) fn refuse_log(pool: &Arc<Pool>, name: &str) -> Result<(), CliError> {
    match name.strip_suffix(BATCH_LOG) {
        Some(of) if pool.find_index(of)?.is_some() && OfAnyTypes::has_log(pool, of)? => {
            Err(reserved(name))
        }
        _ => Ok(()),
    }
}

/// Refuses to create an index that would be taken for a log.
pub(crate) fn refuse_name(name: &str) -> Result<(), CliError> {
    if name.ends_with(BATCH_LOG) { Err(reserved(name)) } else { Ok(()) }
}

/// Removes the log of a dropped index, which a crash may have left: a new index of that name would get its batches.
pub(crate) fn remove_of_dropped(pool: &Arc<Pool>, name: &str) -> Result<(), IndexError> {
    OfAnyTypes::destroy_log(pool, name).map(drop)
}

fn reserved(name: &str) -> CliError {
    IndexError::ReservedName { name: name.into(), ending: BATCH_LOG }.into()
}
