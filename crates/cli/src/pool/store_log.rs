//! The log of a store in a pool. It is not an index of the user, so commands skip it.

use std::collections::HashSet;
use std::sync::Arc;

use pmindex::core::{IndexEntry, PmError, Pool};
use pmindex::{STORE_LOG, Store, StoreError, StoreOptions};

use crate::error::CliError;

/// Returns `true` if this is the log of a store.
fn is_log(entry: &IndexEntry) -> bool {
    entry.kind == STORE_LOG
}

/// Returns the indexes of a pool, without the log of a store.
pub(crate) fn indexes(pool: &Pool) -> Result<Vec<IndexEntry>, PmError> {
    let mut entries = pool.indexes()?;
    entries.retain(|entry| !is_log(entry));
    Ok(entries)
}

/// Opens the store of a pool, if it has one.
fn store(pool: &Arc<Pool>) -> Result<Option<Store>, StoreError> {
    if !pool.indexes()?.iter().any(is_log) {
        return Ok(None);
    }
    Store::in_pool(pool, &StoreOptions::new()).map(Some)
}

/// Verifies the log of a store, if the pool has one, and returns how many transactions are unfinished.
pub(crate) fn check(pool: &Arc<Pool>) -> Result<Option<u64>, StoreError> {
    let Some(store) = store(pool)? else { return Ok(None) };
    store.check()?;
    Ok(Some(store.unfinished_commits()))
}

/// Returns the blocks of the log of a store; `None` if it is damaged.
pub(crate) fn blocks(pool: &Arc<Pool>) -> Option<HashSet<u64>> {
    let blocks = store(pool).ok()?.map_or(Ok(Vec::new()), |store| store.blocks()).ok()?;
    Some(blocks.into_iter().collect())
}

/// Refuses to write to a store with transactions that a crash has interrupted.
pub(crate) fn refuse_unfinished(pool: &Arc<Pool>) -> Result<(), CliError> {
    match check(pool).map_err(|error| CliError::StoreLog { error: error.to_string() })? {
        Some(transactions @ 1..) => Err(CliError::UnfinishedTransactions { transactions }),
        _ => Ok(()),
    }
}
