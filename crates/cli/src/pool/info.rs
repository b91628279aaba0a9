//! `pmindex info`: what a pool is, what it promises, what is in it.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::error::CliError;
use crate::table::{Table, bytes, millis, thousands, wrapped};
use crate::{output, style};

use super::{handle, open};

/// Which pool.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex info my.pool\n  pmindex info my.pool --json")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = open::read_only(&args.pool)?;
    let mut indexes = Vec::new();
    for entry in pool.indexes()? {
        let kind = handle::kind_of(&entry);
        let known = match handle::open_any(&pool, &entry) {
            Ok(handle) => Some((handle.types(), handle.stats()?, handle.recovery())),
            Err(CliError::UnknownTypes { .. }) => None,
            Err(error) => return Err(error),
        };
        indexes.push((entry.name, kind, known));
    }
    if args.json {
        let indexes: Vec<Value> = indexes
            .iter()
            .map(|(name, kind, known)| {
                let mut index = json!({ "name": name, "type": kind });
                if let Some((types, stats, recovery)) = known {
                    index["keys"] = json!(types.keys.name);
                    index["values"] = json!(types.values.name);
                    index["records"] = json!(stats.records);
                    index["height"] = json!(stats.height);
                    index["leaves"] = json!(stats.leaves);
                    index["pm_bytes"] = json!(stats.pm_bytes);
                    index["dram_bytes"] = json!(stats.dram_bytes);
                    index["recovery_ms"] = json!(recovery.elapsed.as_secs_f64() * 1e3);
                }
                index
            })
            .collect();
        let info = json!({
            "pool": args.pool,
            "bytes": pool.len(),
            "used_bytes": pool.used_bytes(),
            "clean": pool.was_clean(),
            "generation": pool.generation(),
            "uuid": format!("{:032x}", pool.uuid()),
            "medium": pool.describe(),
            "indexes": indexes,
        });
        return output::print_json(&info);
    }
    let mut text = format!("{}\n", style::bold(&args.pool.display().to_string()));
    let used = format!("{} in use of {}", bytes(pool.used_bytes()), bytes(pool.len()));
    let end = if pool.was_clean() {
        "closed cleanly"
    } else {
        "not closed cleanly: the next opening recovers"
    };
    let _ = writeln!(text, "  {used}; {end}\n{}", wrapped(&pool.describe()));
    if indexes.is_empty() {
        return output::print(&(text + "  no index yet\n"));
    }
    let mut table =
        Table::new(["index", "type", "keys", "values", "records", "PM", "DRAM", "opened in"]);
    for (name, kind, known) in indexes {
        match known {
            Some((types, stats, recovery)) => table.row([
                name,
                kind,
                types.keys.name.into(),
                types.values.name.into(),
                thousands(stats.records),
                bytes(stats.pm_bytes),
                bytes(stats.dram_bytes),
                millis(recovery.elapsed),
            ]),
            None => table.row([name, kind, "?".into(), "?".into()]),
        }
    }
    output::print(&format!("{text}\n{}", table.render()))
}
