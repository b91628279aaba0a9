//! `pmindex info`: shows what a pool is, what it survives, and what it contains.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pmindex::core::{IndexEntry, OpenError, Peek, Pool};
use pmindex::{RecoveryReport, Stats};
use pmindex_named::{NamedError, Types};
use serde_json::{Value, json};

use crate::error::{CliError, cause};
use crate::medium::Promise;
use crate::table::{Table, bytes, counted, millis, shown, thousands, wrapped};
use crate::{output, style};

use super::{open, store_log, writer};

/// The pool to describe.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex info my.pool\n  pmindex info my.pool --json\n\n\
    \"survives\" is what the file system gives to a program that writes with default options. The mode of\n\
    the programs that wrote to the pool is not recorded in it; it may have been weaker, or stronger. While a program writes to the pool, info shows what the\n\
    superblock and the directory say at this moment; only that program knows the number of records.")]
pub(crate) struct Args {
    /// The pool's file
    pub(crate) pool: PathBuf,

    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What is known of an index.
struct IndexSummary {
    name: String,
    kind: String,
    known: Known,
}

/// What opening an index said.
enum Known {
    Whole(Types, Stats, RecoveryReport),
    /// Of types that this program does not know.
    Unknown,
    Damaged(NamedError),
}

impl Known {
    fn of(pool: &Arc<Pool>, entry: &IndexEntry) -> Self {
        let known = pmindex_named::open_any(pool, entry)
            .and_then(|handle| Ok(Self::Whole(handle.types(), handle.stats()?, handle.recovery())));
        known.unwrap_or_else(|error| match error {
            NamedError::UnknownTypes { .. } => Self::Unknown,
            error => Self::Damaged(error),
        })
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let pool = match open::read_only(&args.pool) {
        Err(CliError::Open(OpenError::Locked { .. })) => return in_use(args),
        pool => pool?,
    };
    let mut indexes = Vec::new();
    for entry in store_log::indexes(&pool)? {
        let kind = pmindex_named::kind_of(&entry);
        let known = Known::of(&pool, &entry);
        indexes.push(IndexSummary { name: entry.name, kind, known });
    }
    let damaged = indexes.iter().filter(|index| matches!(index.known, Known::Damaged(_))).count();
    show(args, &pool, indexes)?;
    if damaged == 0 { Ok(()) } else { Err(CliError::Damaged { indexes: damaged }) }
}

fn show(args: &Args, pool: &Arc<Pool>, indexes: Vec<IndexSummary>) -> Result<(), CliError> {
    let promise = Promise::of_medium(pool.medium_durability(), pool.describe());
    if args.json {
        let info = json!({
            "pool": output::path_in_json(&args.pool),
            "in_use": false,
            "bytes": pool.len(),
            "used_bytes": pool.used_bytes(),
            "clean": pool.was_clean(),
            "superblock_damaged": pool.superblock_was_damaged(),
            "generation": pool.generation(),
            "uuid": format!("{:032x}", pool.uuid()),
            "medium": promise.words,
            "durability": promise,
            "beside": beside(&args.pool).iter().map(|file| output::path_in_json(file)).collect::<Vec<_>>(),
            "indexes": indexes.iter().map(in_json).collect::<Vec<_>>(),
        });
        return output::print_json(&info);
    }
    let mut text = format!("{}\n", style::bold(&args.pool.display().to_string()));
    let used = format!("{} in use of {}", bytes(pool.used_bytes()), bytes(pool.len()));
    let end = if pool.was_clean() {
        "closed cleanly"
    } else {
        "not closed cleanly: opening it for writing will recover it"
    };
    let _ = writeln!(text, "  {used}; {end}");
    if pool.superblock_was_damaged() {
        text += "  one of the two copies of its superblock is damaged: run `pmindex check`\n";
    }
    text += &survival(&promise, &beside(&args.pool));
    text += &table(pool, indexes);
    output::print(&text)
}

fn in_json(listed: &IndexSummary) -> Value {
    let mut index = json!({ "name": listed.name, "type": listed.kind });
    if let Known::Damaged(error) = &listed.known {
        index["damaged"] = json!(error.to_string());
    }
    if let Known::Whole(types, stats, recovery) = &listed.known {
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

/// What a pool on this file system survives. The modes of the programs that wrote to it are not known.
fn survival(promise: &Promise, beside: &[PathBuf]) -> String {
    let lines = promise.lines();
    let mut text = format!(
        "{}\n\n  This file system gives, to a program with default options:\n{lines}  The programs that \
         wrote to the pool may have chosen another mode, which it does not record.\n",
        wrapped(&promise.words)
    );
    for file in beside {
        let mode = if file.extension().is_some_and(|ending| ending == "twin") {
            "periodic: after a power failure the pool is read from there"
        } else {
            "journal: keep both files together"
        };
        let _ = writeln!(text, "  {} is there, as of a program in mode {mode}.", file.display());
    }
    text
}

/// Returns the pool's journal, and its twin where an example would have put it, as far as they exist. A twin in another
/// folder may be that of another pool of this name. They are beside the file itself, not beside a link to it.
fn beside(pool: &Path) -> Vec<PathBuf> {
    let file = pool.canonicalize().ok().filter(|_| pool.is_symlink());
    let pool = file.as_deref().unwrap_or(pool);
    let named = |ending: &str| {
        let mut name = pool.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let mut files = vec![named(".journal"), named(".twin")];
    files.retain(|file| file.exists());
    files
}

fn table(pool: &Pool, indexes: Vec<IndexSummary>) -> String {
    if indexes.is_empty() {
        return "\n  no index yet\n".into();
    }
    debug_assert!(pool.is_read_only());
    let mut damage = String::new();
    let mut table =
        Table::new(["index", "type", "keys", "values", "records", "PM", "DRAM", "opened in"]);
    for IndexSummary { name, kind, known } in indexes {
        let (name, kind) = (shown(&name), shown(&kind));
        match known {
            Known::Whole(types, stats, recovery) => table.row([
                name,
                kind,
                types.keys.name.into(),
                types.values.name.into(),
                thousands(stats.records),
                bytes(stats.pm_bytes),
                bytes(stats.dram_bytes),
                millis(recovery.elapsed),
            ]),
            Known::Unknown => table.row([name, kind, "?".into(), "?".into()]),
            Known::Damaged(error) => {
                let _ = writeln!(damage, "  {name}: {}: {}", style::bad("damaged"), cause(&error));
                table.row([name, kind, style::bad("damaged")]);
            }
        }
    }
    format!("\n{}{damage}", table.render())
}

/// Describes a pool that another process has open, without asking that process.
fn in_use(args: &Args) -> Result<(), CliError> {
    let mut peek = Pool::peek(&args.pool)?;
    peek.indexes.retain(|entry| !store_log::is_log(entry));
    let who = writer::of(&args.pool);
    let promise = Promise::of_medium(peek.durability, peek.medium.clone());
    if args.json {
        let indexes = peek.indexes.iter();
        let indexes: Vec<Value> = indexes
            .map(|entry| json!({ "name": entry.name, "type": pmindex_named::kind_of(entry) }))
            .collect();
        return output::print_json(&json!({
            "pool": output::path_in_json(&args.pool),
            "in_use": true,
            "writer": who.map(|who| json!({ "process": who.process, "name": who.name })),
            "bytes": peek.len,
            "superblock_damaged": peek.superblock_damaged,
            "damaged_entries": peek.damaged_entries,
            "generation": peek.generation,
            "uuid": format!("{:032x}", peek.uuid),
            "medium": promise.words,
            "durability": promise,
            "beside": beside(&args.pool).iter().map(|file| output::path_in_json(file)).collect::<Vec<_>>(),
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
    let _ = writeln!(text, "  in use: {who} writes to it; this is its state at this moment");
    let times = counted(peek.generation, "time", "times");
    let _ = writeln!(text, "  {}; opened for writing {times}", bytes(peek.len));
    text += &survival(promise, &beside(&args.pool));
    if peek.damaged_entries > 0 {
        let damaged = counted(peek.damaged_entries as u64, "entry", "entries");
        let _ = writeln!(text, "\n  {damaged} of the directory: {}", style::bad("damaged"));
    }
    if peek.indexes.is_empty() {
        return text + "\n  no index yet\n";
    }
    let mut table = Table::new(["index", "type"]);
    for entry in &peek.indexes {
        table.row([shown(&entry.name), shown(&pmindex_named::kind_of(entry))]);
    }
    let _ = writeln!(text, "\n{}", table.render());
    text + "  Only the writing process knows the number of records.\n"
}
