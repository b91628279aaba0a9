//! `pmindex compact`: returns the unused space of a pool to the file system, or writes the pool anew.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{self, IndexEntry, PmError, Pool, PoolOptions};
use pmindex_named::{Records, Sort, create_sort};
use serde_json::json;

use crate::error::CliError;
use crate::interrupt::Registered;
use crate::medium::MediumArgs;
use crate::output;
use crate::table::{bytes, counted};

use super::fresh::{registered, unnamed};
use super::store_log;

/// The pool to compact.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  pmindex compact my.pool\n  pmindex compact my.pool --json\n  \
    pmindex compact my.pool --rewrite\n\n\
    The file keeps its length and becomes sparse: free runs of 2 MiB occupy no space until they are used\n\
    again. If the disk is full then, the write fails with an error. Indexes that were being dropped\n\
    are removed completely. Records are not moved. Devices, and file systems without sparse files,\n\
    return nothing.\n\n\
    With --rewrite all records are loaded into a new file, which replaces the pool if it is shorter, in\n\
    one step: a crash leaves one of the two. The disk needs room for both. The new pool has the kinds\n\
    and types of the indexes, the maps of a store, another identity, and room for the same values and as\n\
    many writers; a watch of a store cannot continue in it. The file has the same permissions, and the\n\
    same owner and group if the system allows that; if not, a message says so. Pools with types of a\n\
    program's own, files of an environment, a journal, another name (a hard link), or transactions that a crash has interrupted are\n\
    refused; so is a pool with a twin beside it, POOL.twin. No other twin is known to the command: remove\n\
    it with the old pool, which it belongs to. A kill leaves POOL.partial behind: remove it, and run the\n\
    command again."
)]
pub(crate) struct Args {
    /// The pool's file
    pub(crate) pool: PathBuf,

    /// Load all records into a new, smaller file, which replaces the pool
    #[arg(long)]
    rewrite: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    medium: MediumArgs,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = Pool::open(&args.pool, &args.medium.apply_to_named(PoolOptions::new())?)?;
    if args.rewrite {
        return rewrite(args, &Arc::new(pool));
    }
    let given = pool.compact()?;
    let (len, used) = (pool.len(), pool.used_bytes());
    pool.close()?;
    if args.json {
        return output::print_json(&json!({
            "pool": output::path_in_json(&args.pool), "given_back": given, "used": used, "size": len,
        }));
    }
    output::print(&format!(
        "{} went back to the system; the pool uses {} of {}\n",
        bytes(given),
        bytes(used),
        bytes(len)
    ))
}

/// The new pool, and what is in it.
struct Written {
    fresh: core::FreshPool,
    _registered: Registered,
    indexes: u64,
    records: u64,
}

/// Writes the pool anew. The old one stays open until the new one has its name: no process writes to it.
fn rewrite(args: &Args, pool: &Arc<Pool>) -> Result<(), CliError> {
    let path = args.pool.canonicalize().unwrap_or_else(|_| args.pool.clone());
    refuse_companions(pool, &path)?;
    store_log::refuse_unfinished(pool)?;
    let before = pool.len();
    let Written { fresh, _registered, indexes, records } = write_anew(pool, &path)?;
    let size = fresh.pool().len();
    let (replaced, mut owner_kept) = (size < before, true);
    if replaced {
        let file = |error| CliError::File { path: path.clone(), error };
        let old = std::fs::metadata(&path).map_err(file)?;
        owner_kept = give(fresh.partial(), &old).map_err(file)?;
        // After it: a change of the owner takes bits of the mode away.
        std::fs::set_permissions(fresh.partial(), old.permissions()).map_err(file)?;
        fresh.finish().map_err(file)?;
    }
    let after = if replaced { size } else { before };
    if args.json {
        return output::print_json(&json!({
            "pool": output::path_in_json(&args.pool), "replaced": replaced, "size_before": before, "size": after,
            "owner_kept": owner_kept, "indexes": indexes, "records": records,
        }));
    }
    if !owner_kept {
        output::print(
            "the file is yours now, and not its former owner's or group's: the system refuses the change. \
             Give it back as root (chown), and not in a user namespace, which may lack its owner\n",
        )?;
    }
    output::print(&if replaced {
        let what = format!(
            "{}, {}",
            counted(indexes, "index", "indexes"),
            counted(records, "record", "records")
        );
        format!("{} instead of {}: {what}\n", bytes(after), bytes(before))
    } else {
        format!("the pool has {} already, and would have {} anew\n", bytes(before), bytes(size))
    })
}

/// Gives a new file the owner and the group of another one; returns `false` if the system does not allow it, or does
/// not know them: a user namespace may lack them.
fn give(new: &Path, old: &Metadata) -> io::Result<bool> {
    let new_owner = std::fs::metadata(new)?;
    let allowed = |done: io::Result<()>| match done {
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => Ok(false),
            _ => Err(error),
        },
        Ok(()) => Ok(true),
    };
    // The group by itself: a member of it may give the file to it, but not to another user.
    let group = new_owner.gid() == old.gid() || allowed(chown(new, None, Some(old.gid())))?;
    let owner = new_owner.uid() == old.uid() || allowed(chown(new, Some(old.uid()), None))?;
    Ok(group && owner)
}

/// Refuses pools whose files or names are several: they would have to be replaced in one step.
fn refuse_companions(pool: &Pool, path: &Path) -> Result<(), CliError> {
    let file = |error| CliError::File { path: path.to_path_buf(), error };
    if std::fs::metadata(path).map_err(file)?.nlink() > 1 {
        let what = "--rewrite: the pool has another name (a hard link), which would lead to the old pool; \
                    remove one of them";
        return Err(CliError::Option { what: what.into() });
    }
    let exists = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        Path::new(&name).exists()
    };
    let companion = if pool.journal().is_some() || exists(".journal") {
        "a journal"
    } else if exists(".twin") {
        "a twin"
    } else {
        return Ok(());
    };
    let what =
        format!("--rewrite: the pool has {companion}; use `pmindex dump` and `pmindex restore`");
    Err(CliError::Option { what })
}

/// Loads all indexes into a pool with a temporary name.
fn write_anew(pool: &Arc<Pool>, path: &Path) -> Result<Written, CliError> {
    // An existing file of the temporary name is an error: another process may be filling it.
    let (fresh, registered) = registered(|| core::FreshPool::replacing(path, pool))
        .map_err(|error| unnamed(error, path))?;
    let mut written = Written { fresh, _registered: registered, indexes: 0, records: 0 };
    for entry in store_log::indexes(pool)? {
        let old = pmindex_named::open_sort(pool, &entry)?;
        let records = old.check()?;
        // Whole as the old index is, what fails from here on fails in the new pool.
        let new = written.fresh.partial();
        written.records +=
            load(&written.fresh, &entry, &*old, records).map_err(|error| error.in_pool(new))?;
        old.close()?;
        written.indexes += 1;
    }
    Ok(written)
}

/// Loads the records of an index into the new pool; returns how many.
fn load(
    fresh: &core::FreshPool,
    entry: &IndexEntry,
    old: &dyn Records,
    records: u64,
) -> Result<u64, CliError> {
    let new = create_sort(fresh.pool(), &entry.name, Sort::of(entry)?, old.types())?;
    let loaded = old.copy_to(&*new)?;
    if loaded != records || new.check()? != records {
        let what = "the number of records of an index";
        return Err(PmError::Corrupt { what, offset: 0 }.into());
    }
    new.close()?;
    Ok(records)
}
