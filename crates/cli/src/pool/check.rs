//! `pmindex check`: opens every index of a pool and verifies its whole structure; with `--repair`
//! saves what can be saved.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{Pool, PoolOptions};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::table::counted;
use crate::{output, style};

use super::{handle, open, repair, store_log};

/// Which pool.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex check my.pool\n  \
    pmindex check damaged.pool --repair saved.pool\n\n\
    The pool is never changed; the exit code is 0 only if every index is whole. One damaged copy of the\n\
    superblock is told, and is no damage to an index.\n\n\
    --repair copies every record that can be reached, from both ends of each index and by lookups\n\
    between them or, where an index does not open (fptree, nvtree, hart, sptree), from its nodes one by one, and\n\
    says what could not be read. What a damaged node held is lost. A value that changed without damage\n\
    to the structure is not noticed: values have no checksums. An index whose types are unknown, or a\n\
    pool whose header is lost, is not saved. A backup is better.")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// Copy what can be saved into a new pool, and say what was lost
    #[arg(long, value_name = "NEW")]
    repair: Option<PathBuf>,

    /// Look at what the file alone has, of a pool whose journal is lost for good; nothing is changed
    #[arg(long)]
    without_journal: bool,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Of the superblock there are two copies.
const LOST_COPY: &str = "superblock: one of its two copies is damaged, the other one is whole; the next \
    opening that may write mends it. A crash leaves this at times. If nothing crashed, the medium lost \
    a bit: look after it\n";

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
    let mut results: Vec<(String, Result<u64, CliError>)> = Vec::new();
    for entry in store_log::indexes(&pool)? {
        let outcome = handle::open_any(&pool, &entry).and_then(|handle| Ok(handle.check()?));
        results.push((entry.name, outcome));
    }
    let log = store_log::check(&pool);
    if let Err(error) = &log {
        let error = CliError::StoreLog { error: error.to_string() };
        results.push(("log of the store".into(), Err(error)));
    }
    let unfinished = log.ok().flatten().unwrap_or(0);
    let bad = results.iter().filter(|(_, outcome)| outcome.is_err()).count();
    if args.json {
        let indexes: Vec<Value> = results
            .iter()
            .map(|(name, outcome)| match outcome {
                Ok(records) => json!({ "name": name, "whole": true, "records": records }),
                Err(error) => json!({ "name": name, "whole": false, "error": error.to_string() }),
            })
            .collect();
        let report = json!({
            "pool": args.pool,
            "whole": bad == 0,
            "superblock_damaged": lost_copy,
            "unfinished_transactions": unfinished,
            "indexes": indexes,
        });
        output::print_json(&report)?;
    } else if results.is_empty() {
        output::print("the pool is whole; it has no index yet\n")?;
    } else {
        output::print(&results.iter().map(line).collect::<String>())?;
        if unfinished > 0 {
            let unfinished = counted(unfinished, "transaction", "transactions");
            output::print(&format!(
                "{unfinished} of a store to be finished when its program opens it\n"
            ))?;
        }
    }
    if bad == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: bad }) }
}

fn save(args: &Args, pool: &Arc<Pool>, target: &Path) -> Result<(), CliError> {
    let saved = repair::repair(pool, target)?;
    let bad = saved.iter().filter(|saved| saved.is_damaged()).count();
    if args.json {
        let indexes: Vec<Value> = saved.iter().map(repair::Saved::json).collect();
        output::print_json(&json!({
            "pool": args.pool,
            "repaired": target,
            "whole": bad == 0,
            "superblock_damaged": pool.superblock_was_damaged(),
            "indexes": indexes,
        }))?;
    } else {
        output::print(&saved.iter().map(repair::Saved::text).collect::<String>())?;
    }
    if bad == 0 {
        Ok(())
    } else {
        Err(CliError::Repaired { indexes: bad, path: target.to_path_buf() })
    }
}

fn line((name, outcome): &(String, Result<u64, CliError>)) -> String {
    match outcome {
        Ok(records) => {
            format!(
                "{name}: {}, {}\n",
                style::good("whole"),
                counted(*records, "record", "records")
            )
        }
        Err(error) => format!("{name}: {}: {error}\n", style::bad("damaged")),
    }
}
