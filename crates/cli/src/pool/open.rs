//! Opens the pool that the user names, and the index in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::Kind;
use pmindex::core::{IndexEntry, OpenError, Pool, PoolOptions};
use pmindex_named::{Handle, Sort};

use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::table::shown;

use super::{batch_log, store_log};

/// The pool, and the index in it.
#[derive(clap::Args, Debug)]
pub(crate) struct IndexArgs {
    /// The pool's file
    pub(crate) pool: PathBuf,

    /// Which index [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) index: Option<String>,
}

/// The name of an index that `put` creates.
const DEFAULT_INDEX: &str = "main";

/// Opens a pool for reading: other readers may do so too, and nothing is written.
pub(crate) fn read_only(path: &Path) -> Result<Arc<Pool>, CliError> {
    read_only_with(path, PoolOptions::new())
}

/// Does the same with these options.
pub(crate) fn read_only_with(path: &Path, options: PoolOptions) -> Result<Arc<Pool>, CliError> {
    Ok(Arc::new(Pool::open(path, &options.read_only(true))?))
}

/// Opens a pool for reading, and finds an index whose records are all there.
pub(crate) fn found_to_read(which: &IndexArgs) -> Result<(Arc<Pool>, IndexEntry), CliError> {
    let pool = read_only(&which.pool)?;
    store_log::refuse_unfinished(&pool)?;
    let entry = find(&pool, which.index.as_deref())?;
    batch_log::refuse_interrupted(&pool, &entry.name)?;
    Ok((pool, entry))
}

/// Opens an index for reading.
pub(crate) fn index_to_read(which: &IndexArgs) -> Result<Box<dyn Handle>, CliError> {
    let (pool, entry) = found_to_read(which)?;
    ordered(&pool, &entry)
}

/// Opens an index that has an order.
pub(crate) fn ordered(pool: &Arc<Pool>, entry: &IndexEntry) -> Result<Box<dyn Handle>, CliError> {
    if matches!(Sort::of(entry), Ok(Sort::ByHash)) {
        let what = format!(
            "{}: an index by hash has no order; `get`, `check` and `backup` know it, and nothing else does",
            shown(&entry.name)
        );
        return Err(CliError::Option { what });
    }
    Ok(pmindex_named::open_any(pool, entry)?)
}

/// Opens an index for writing; with `create`, creates the pool and an index of that kind if they are
/// missing.
pub(crate) fn index_to_write(
    which: &IndexArgs,
    medium: MediumArgs,
    create: Option<Kind>,
) -> Result<(Arc<Pool>, Box<dyn Handle>), CliError> {
    let options = medium.apply_to_named(PoolOptions::new())?;
    let pool = match Pool::open(&which.pool, &options) {
        Err(OpenError::NotFound { .. }) if create.is_some() => {
            // A single zone, as large as the zones of a default pool.
            let small = options.size(1 << 20).zone_bytes(4 << 20).slot_bytes(4096);
            Pool::create(&which.pool, &small)?
        }
        opened => opened?,
    };
    let pool = Arc::new(pool);
    store_log::refuse_unfinished(&pool)?;
    let name = which.index.as_deref();
    let handle = match (find(&pool, name), create) {
        (Err(CliError::NoIndex { .. }), Some(kind)) => {
            let name = name.unwrap_or(DEFAULT_INDEX);
            batch_log::refuse_name(name)?;
            batch_log::remove_of_dropped(&pool, name)?;
            pmindex_named::create(&pool, name, kind)?
        }
        (found, _) => {
            let entry = found?;
            batch_log::refuse_log(&pool, &entry.name)?;
            batch_log::refuse_interrupted(&pool, &entry.name)?;
            ordered(&pool, &entry)?
        }
    };
    Ok((pool, handle))
}

/// Closes index and pool.
pub(crate) fn close(pool: Arc<Pool>, handle: Box<dyn Handle>) -> Result<(), CliError> {
    handle.close()?;
    if let Some(pool) = Arc::into_inner(pool) {
        pool.close()?;
    }
    Ok(())
}

/// Returns the index of this name, or the only index.
pub(crate) fn find(pool: &Pool, name: Option<&str>) -> Result<IndexEntry, CliError> {
    let names = || -> Result<Vec<String>, CliError> {
        Ok(store_log::indexes(pool)?.into_iter().map(|entry| entry.name).collect())
    };
    if let Some(name) = name {
        let found = pool.find_index(name)?;
        return found.ok_or(CliError::NoIndex { name: Some(name.into()), there: names()? });
    }
    let mut entries = store_log::indexes(pool)?;
    match entries.len() {
        0 => Err(CliError::NoIndex { name: None, there: Vec::new() }),
        1 => Ok(entries.remove(0)),
        _ => Err(CliError::WhichIndex { there: names()? }),
    }
}
