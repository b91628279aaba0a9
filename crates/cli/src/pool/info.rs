//! `pmindex info`: what a pool is, what it promises, what is in it.

use std::fmt::Write;
use std::path::PathBuf;

use pmindex::core::{OpenError, Peek, Pool};
use pmindex::{RecoveryReport, Stats};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::medium::Promise;
use crate::table::{Table, bytes, counted, millis, thousands, wrapped};
use crate::{output, style};

use super::handle::{self, Types};
use super::{open, store_log, writer};

/// Which pool.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex info my.pool\n  pmindex info my.pool --json\n\n\
    What a pool survives is what its medium gives to a program that writes with the usual options; a\n\
    program may ask for less, and a pool does not record that. Of a pool that a program is writing to,\n\
    this says what its superblock and directory say at this moment; how many records there are only that\n\
    program knows.")]
pub(crate) struct Args {
    /// The pool's file
    pool: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// An index as far as it is known.
struct Listed {
    name: String,
    kind: String,
    known: Option<(Types, Stats, RecoveryReport)>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = match open::read_only(&args.pool) {
        Err(CliError::Open(OpenError::Locked { .. })) => return in_use(args),
        pool => pool?,
    };
    let mut indexes = Vec::new();
    for entry in store_log::indexes(&pool)? {
        let kind = handle::kind_of(&entry);
        let known = match handle::open_any(&pool, &entry) {
            Ok(handle) => Some((handle.types(), handle.stats()?, handle.recovery())),
            Err(CliError::UnknownTypes { .. }) => None,
            Err(error) => return Err(error),
        };
        indexes.push(Listed { name: entry.name, kind, known });
    }
    let promise = Promise::of_medium(pool.medium_durability(), pool.describe());
    if args.json {
        let info = json!({
            "pool": args.pool,
            "in_use": false,
            "bytes": pool.len(),
            "used_bytes": pool.used_bytes(),
            "clean": pool.was_clean(),
            "superblock_damaged": pool.superblock_was_damaged(),
            "generation": pool.generation(),
            "uuid": format!("{:032x}", pool.uuid()),
            "medium": promise.words,
            "durability": promise,
            "indexes": indexes.iter().map(in_json).collect::<Vec<_>>(),
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
    let _ = writeln!(text, "  {used}; {end}");
    if pool.superblock_was_damaged() {
        text += "  one of the two copies of its superblock is damaged: see `pmindex check`\n";
    }
    text += &survival(&promise);
    text += &table(&pool, indexes);
    output::print(&text)
}

fn in_json(listed: &Listed) -> Value {
    let mut index = json!({ "name": listed.name, "type": listed.kind });
    if let Some((types, stats, recovery)) = &listed.known {
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
}

/// What the pool survives.
fn survival(promise: &Promise) -> String {
    let lines = promise.lines();
    format!(
        "{}\n\n{lines}  with the usual options; a program may ask for less\n",
        wrapped(&promise.words)
    )
}

fn table(pool: &Pool, indexes: Vec<Listed>) -> String {
    if indexes.is_empty() {
        return "\n  no index yet\n".into();
    }
    debug_assert!(pool.is_read_only());
    let mut table =
        Table::new(["index", "type", "keys", "values", "records", "PM", "DRAM", "opened in"]);
    for Listed { name, kind, known } in indexes {
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
    format!("\n{}", table.render())
}

/// A pool that somebody writes to: what can be told without them.
fn in_use(args: &Args) -> Result<(), CliError> {
    let peek = Pool::peek(&args.pool)?;
    let who = writer::of(&args.pool);
    let promise = Promise::of_medium(peek.durability, peek.medium.clone());
    if args.json {
        let indexes = peek.indexes.iter();
        let indexes: Vec<Value> = indexes
            .map(|entry| json!({ "name": entry.name, "type": handle::kind_of(entry) }))
            .collect();
        return output::print_json(&json!({
            "pool": args.pool,
            "in_use": true,
            "writer": who.map(|who| json!({ "process": who.process, "name": who.name })),
            "bytes": peek.len,
            "superblock_damaged": peek.superblock_damaged,
            "damaged_entries": peek.damaged_entries,
            "generation": peek.generation,
            "uuid": format!("{:032x}", peek.uuid),
            "medium": promise.words,
            "durability": promise,
            "indexes": indexes,
        }));
    }
    output::print(&beside_a_writer(args, &peek, who.as_ref(), &promise))
}

fn beside_a_writer(
    args: &Args,
    peek: &Peek,
    who: Option<&writer::Writer>,
    promise: &Promise,
) -> String {
    let mut text = format!("{}\n", style::bold(&args.pool.display().to_string()));
    let who = who.map_or_else(|| "another process".into(), ToString::to_string);
    let _ = writeln!(text, "  in use: {who} writes to it; what stands here is of this moment");
    let times = counted(peek.generation, "time", "times");
    let _ = writeln!(text, "  {}; opened for writing {times}", bytes(peek.len));
    text += &survival(promise);
    if peek.damaged_entries > 0 {
        let damaged = counted(peek.damaged_entries as u64, "entry", "entries");
        let _ = writeln!(text, "\n  {damaged} of the directory: {}", style::bad("damaged"));
    }
    if peek.indexes.is_empty() {
        return text + "\n  no index yet\n";
    }
    let mut table = Table::new(["index", "type"]);
    for entry in &peek.indexes {
        table.row([entry.name.clone(), handle::kind_of(entry)]);
    }
    let _ = writeln!(text, "\n{}", table.render());
    text + "  How many records there are only the process knows that writes.\n"
}
