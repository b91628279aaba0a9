//! `pmindex check`: opens every index of a pool and verifies its structure; with `--repair` copies every
//! record that can be read into a new pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions};
use serde_json::{Value, json};

use crate::error::{CliError, cause};
use crate::table::{counted, shown};
use crate::{output, style};

use super::{batch_log, open, repair, store_log};

/// The pool to check, and options.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex check my.pool\n  \
    pmindex check damaged.pool --repair saved.pool\n\n\
    The pool is never changed. The exit code is 0 only if every index is whole. A damaged copy of the\n\
    superblock is reported, but does not count as damage: the other copy is used.\n\n\
    --repair copies every record that can be read into a new pool, and reports what cannot be read. It\n\
    reads an index from both ends and by lookups in between; if the index does not open (fptree,\n\
    nvtree, hart, sptree) or has no order (cceh), it reads the nodes one by one. The records of a damaged\n\
    node are lost. Transactions of a store that a crash interrupted are finished in the new pool; a\n\
    damaged log of a store counts as damage. Values have no checksums: a value that changed on the medium\n\
    is not noticed. Not saved are an index of unknown types, a pool whose superblock is lost, and a file\n\
    that was cut short: of that, the error says how to save what is left. A backup is better.")]
pub(crate) struct Args {
    /// The pool's file
    pub(crate) pool: PathBuf,

    /// Copy every record that can be read into a new pool, and report what is lost
    #[arg(long, value_name = "NEW")]
    repair: Option<PathBuf>,

    /// Check only the pool's file, if its journal is lost for good; nothing is changed
    #[arg(long)]
    without_journal: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The message about one of the two copies of the superblock.
const LOST_COPY: &str = "superblock: one of its two copies is damaged, the other one is whole; the next \
    process that opens the pool for writing repairs it. A crash can cause this. If nothing crashed, the \
    medium has lost data: replace it\n";

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let options = PoolOptions::new().accept_journal_loss(args.without_journal);
    let pool = open::read_only_with(&args.pool, options)?;
    let lost_copy = pool.superblock_was_damaged();
    if lost_copy && !args.json {
        output::print(LOST_COPY)?;
    }
    if let Some(target) = &args.repair {
        return save(args, &pool, target);
    }
    let mut results: Vec<(String, Result<Whole, CliError>)> = Vec::new();
    let mut batches = Vec::new();
    for entry in store_log::indexes(&pool)? {
        // A damaged log is an index that is reported by itself.
        if let Ok(count @ 1..) = batch_log::interrupted(&pool, &entry.name) {
            batches.push((entry.name.clone(), count));
        }
        let outcome =
            pmindex_named::open_sort(&pool, &entry).map_err(CliError::from).and_then(|handle| {
                Ok(Whole { records: handle.check()?, load_factor: handle.load_factor()? })
            });
        results.push((entry.name, outcome));
    }
    let unfinished = store_log::check(&pool).unwrap_or_else(|error| {
        results.push((store_log::TITLE.into(), Err(error.into())));
        0
    });
    let bad = results.iter().filter(|(_, outcome)| outcome.is_err()).count();
    if args.json {
        let indexes: Vec<Value> = results
            .iter()
            .map(|(name, outcome)| match outcome {
                Ok(Whole { records, load_factor: None }) => {
                    json!({ "name": name, "whole": true, "records": records })
                }
                Ok(Whole { records, load_factor }) => {
                    json!({ "name": name, "whole": true, "records": records, "load_factor": load_factor })
                }
                Err(error) => json!({ "name": name, "whole": false, "error": error.to_string() }),
            })
            .collect();
        let report = json!({
            "pool": output::path_in_json(&args.pool),
            "whole": bad == 0,
            "superblock_damaged": lost_copy,
            "unfinished_transactions": unfinished,
            "unfinished_batches": batches.iter().map(|(_, count)| count).sum::<u64>(),
            "indexes": indexes,
        });
        output::print_json(&report)?;
    } else if results.is_empty() {
        output::print("the pool is whole and has no index yet\n")?;
    } else {
        output::print(&results.iter().map(line).collect::<String>())?;
        if unfinished > 0 {
            let unfinished = counted(unfinished, "transaction", "transactions");
            output::print(&format!(
                "{unfinished} of a store: its program will finish them when it opens the store\n"
            ))?;
        }
        for (name, count) in batches {
            let unfinished = counted(count, "batch", "batches");
            output::print(&format!(
                "{unfinished} of {}: its program will finish them when it opens the index\n",
                shown(&name)
            ))?;
        }
    }
    if bad == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: bad }) }
}

fn save(args: &Args, pool: &Arc<Pool>, target: &Path) -> Result<(), CliError> {
    let (saved, unfinished) = repair::repair(pool, target)?;
    let bad = saved.iter().filter(|saved| saved.is_damaged()).count();
    if args.json {
        let indexes: Vec<Value> = saved.iter().map(repair::Saved::json).collect();
        output::print_json(&json!({
            "pool": output::path_in_json(&args.pool),
            "repaired": output::path_in_json(target),
            "whole": bad == 0,
            "superblock_damaged": pool.superblock_was_damaged(),
            "unfinished_transactions": unfinished,
            "indexes": indexes,
        }))?;
    } else {
        output::print(&saved.iter().map(repair::Saved::text).collect::<String>())?;
        if unfinished > 0 {
            let unfinished = counted(unfinished, "transaction", "transactions");
            output::print(&format!(
                "{unfinished} of a store, which a crash interrupted: finished in the new pool\n"
            ))?;
        }
    }
    if bad == 0 {
        Ok(())
    } else {
        Err(CliError::Repaired { indexes: bad, path: target.to_path_buf() })
    }
}

/// A whole index.
struct Whole {
    records: u64,
    /// Of an index by hash.
    load_factor: Option<f64>,
}

fn line((name, outcome): &(String, Result<Whole, CliError>)) -> String {
    let name = shown(name);
    match outcome {
        Ok(Whole { records, load_factor }) => {
            let load =
                load_factor.map_or_else(String::new, |load| format!(", load factor {load:.2}"));
            let records = counted(*records, "record", "records");
            format!("{name}: {}, {records}{load}\n", style::good("whole"))
        }
        Err(error) => format!("{name}: {}: {}\n", style::bad("damaged"), cause(error)),
    }
}
