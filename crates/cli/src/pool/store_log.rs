//! The log of a store in a pool. It is not an index of the user, so commands skip it.

use std::sync::Arc;

use pmindex::core::{IndexEntry, PmError, Pool};
use pmindex::{STORE_LOG, Store, StoreError, StoreOptions};

use crate::error::CliError;

/// What reports call it.
pub(crate) const TITLE: &str = "log of the store";

/// Returns `true` if this is the log of a store.
pub(crate) fn is_log(entry: &IndexEntry) -> bool {
    entry.kind == STORE_LOG
}

/// Returns the indexes of a pool, without the log of a store.
pub(crate) fn indexes(pool: &Pool) -> Result<Vec<IndexEntry>, PmError> {
    let mut entries = pool.indexes()?;
    entries.retain(|entry| !is_log(entry));
    Ok(entries)
}

/// Opens the store of a pool, if it has one, and verifies its log. Opens no map.
pub(crate) fn store(pool: &Arc<Pool>) -> Result<Option<Store>, StoreError> {
    if !pool.indexes()?.iter().any(is_log) {
        return Ok(None);
    }
    let store = Store::in_pool(pool, &StoreOptions::new())?;
    store.check()?;
    Ok(Some(store))
}

/// Verifies the log of a store, if the pool has one, and returns how many transactions are unfinished.
pub(crate) fn check(pool: &Arc<Pool>) -> Result<u64, StoreError> {
    Ok(store(pool)?.map_or(0, |store| store.unfinished_commits()))
}

/// Refuses a store with transactions that a crash has interrupted: the maps lack changes that are durable, and
/// finishing them overwrites later values.
pub(crate) fn refuse_unfinished(pool: &Arc<Pool>) -> Result<(), CliError> {
    match check(pool).map_err(|error| CliError::StoreLog { error: error.to_string() })? {
        0 => Ok(()),
        transactions => Err(CliError::UnfinishedTransactions { transactions }),
    }
}
