//! `pmindex get, put, del, scan`: single records on the command line.

use std::io::{self, BufWriter, Write};

use pmindex::Kind;
use pmindex_named::{Raw, Scan, Type, open_sort};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::kinds::kinds;
use crate::medium::MediumArgs;
use crate::output;

use super::open::{self, IndexArgs};

/// How `--json` prints keys and values: as a dump has them.
const JSON: &str = "--json prints keys and values as `pmindex dump` does, and `restore` reads them:\n\
    numbers as numbers, a byte string as a string if it is UTF-8, else as {\"hex\": \"00ff\"}, () as null.";

/// What to look up.
#[derive(clap::Args)]
#[command(after_help = format!("Examples:\n  pmindex get my.pool apple\n  \
    pmindex get my.pool logo --raw > logo.png\n\n\
    A byte string is shown so that a terminal can show it, with other bytes as \\xNN: use --raw or --json\n\
    for the exact bytes. {JSON}\n\n\
    The exit code is 1 if the key is missing."))]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) which: IndexArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// Print JSON instead of the bare value
    #[arg(long)]
    json: bool,
    /// Print exactly the bytes of the value, and no end of line
    #[arg(long, conflicts_with = "json")]
    raw: bool,
}

/// What to store.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex put my.pool apple red\n  \
    pmindex put my.pool apple green --index fruit --durability process\n\n\
    A missing pool or index is created, for byte strings. A new pool occupies 4 MiB from the start, so\n\
    that a full disk is an error now and not later; it grows by itself. A key or value that begins with\n\
    a dash and is not a number goes after two dashes: pmindex put my.pool -- -k -v")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) which: IndexArgs,
    /// The key
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The value
    #[arg(allow_negative_numbers = true)]
    value: String,
    /// The kind of index to create, if it does not exist
    #[arg(long = "type", value_name = "KIND", default_value_t = Kind::FpTree,
          value_parser = kinds())]
    kind: Kind,
    #[command(flatten)]
    medium: MediumArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What to remove.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  pmindex del my.pool apple\n  \
    pmindex del my.pool apple pear plum\n\n\
    Each removal is durable by itself. The exit code is 1 if a key is missing; the others are removed.\n\
    --json prints keys and values as `get --json` does.")]
pub(crate) struct DelArgs {
    #[command(flatten)]
    pub(crate) which: IndexArgs,
    /// The keys
    #[arg(value_name = "KEY", required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
    #[command(flatten)]
    medium: MediumArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What to list.
#[derive(clap::Args)]
#[command(after_help = format!("Examples:\n  pmindex scan my.pool\n  \
    pmindex scan my.pool --from apple --to banana --limit 10\n  \
    pmindex scan my.pool --reverse --limit 1 --json\n\n\
    Byte strings are shown so that a terminal can show them, with other bytes as \\xNN: use --json for the\n\
    exact bytes. {JSON}"))]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) which: IndexArgs,
    /// The first key to list [default: the least]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<String>,
    /// The first key not to list [default: list to the end]
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<String>,
    /// The most records to list [default: all]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<u64>,
    /// List from the last to the first
    #[arg(long)]
    reverse: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Returns a key that the index has taken as JSON.
fn key_in_json(keys: &Type, key: &str) -> Value {
    keys.parse(key).map_or(Value::Null, |key| keys.to_json(&key))
}

/// Returns a value as JSON; `null` for none.
fn value_in_json(values: &Type, value: Option<&Raw>) -> Value {
    value.map_or(Value::Null, |value| values.to_json(value))
}

/// Prints the value of a key.
pub(crate) fn get(args: &GetArgs) -> Result<(), CliError> {
    let (pool, entry) = open::found_to_read(&args.which)?;
    let index = open_sort(&pool, &entry)?;
    let (found, types) = (index.get(&args.key)?, index.types());
    if args.json {
        let key = key_in_json(types.keys, &args.key);
        let value = value_in_json(types.values, found.as_ref());
        let found = found.is_some();
        output::print(&format!("{}\n", json!({ "key": key, "found": found, "value": value })))?;
    } else if let Some(value) = &found {
        if args.raw {
            output::print_bytes(&types.values.exact(value))?;
        } else {
            output::print(&format!("{}\n", types.values.show(value)))?;
        }
    }
    found.map(drop).ok_or(CliError::NoKey { keys: vec![args.key.clone()] })
}

/// Adds or replaces a record.
pub(crate) fn put(args: &PutArgs) -> Result<(), CliError> {
    let (pool, index) = open::index_to_write(&args.which, args.medium, Some(args.kind))?;
    let (new, keys) = (index.put(&args.key, &args.value)?, index.types().keys);
    open::close(pool, index)?;
    if args.json {
        let key = key_in_json(keys, &args.key);
        output::print(&format!("{}\n", json!({ "key": key, "new": new })))?;
    } else {
        output::print(&format!("{} {}\n", if new { "added" } else { "replaced" }, args.key))?;
    }
    Ok(())
}

/// Removes records.
pub(crate) fn del(args: &DelArgs) -> Result<(), CliError> {
    let (pool, index) = open::index_to_write(&args.which, args.medium, None)?;
    let (mut missing, types) = (Vec::new(), index.types());
    let mut said = Ok(());
    for key in &args.keys {
        let value = index.del(key)?;
        if args.json {
            let (found, key) = (value.is_some(), key_in_json(types.keys, key));
            let value = value_in_json(types.values, value.as_ref());
            let line = format!("{}\n", json!({ "key": key, "found": found, "value": value }));
            said = said.and(output::print(&line));
        } else if value.is_some() {
            said = said.and(output::print(&format!("removed {key}\n")));
        }
        if value.is_none() {
            missing.push(key.clone());
        }
    }
    open::close(pool, index)?;
    said?;
    if missing.is_empty() { Ok(()) } else { Err(CliError::NoKey { keys: missing }) }
}

/// Lists records in key order.
pub(crate) fn scan(args: &ScanArgs) -> Result<(), CliError> {
    let index = open::index_to_read(&args.which)?;
    let scan = Scan { from: args.from.as_deref(), to: args.to.as_deref(), reverse: args.reverse };
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut count, mut failed) = (0, None);
    let types = index.types();
    index.scan(&scan, &mut |key, value| {
        if count == limit {
            return false;
        }
        count += 1;
        let written = if args.json {
            let (key, value) = (types.keys.to_json(&key), types.values.to_json(&value));
            writeln!(out, "{}", json!({ "key": key, "value": value }))
        } else {
            writeln!(out, "{}\t{}", types.keys.show(&key), types.values.show(&value))
        };
        failed = written.err();
        failed.is_none()
    })?;
    match failed.map_or_else(|| out.flush(), Err) {
        // The reader has closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
