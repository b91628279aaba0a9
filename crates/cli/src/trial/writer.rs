//! The child process: writes until it is killed, and acknowledges every step in a file ([`Acks`]), by
//! default its standard output. When its standard input ends, it finishes its steps and closes the pool.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use pmindex::core::PoolOptions;
use pmindex::{Index, IndexError, Key, Kind, Value};

use crate::error::CliError;
use crate::kinds::kinds;
use crate::medium::MediumArgs;

use super::acks::Acks;
use super::script::{Change, Script, Side};
use super::source::{Source, Universes};
use super::store::Store;
use super::universe::Universe;

/// The arguments of the child.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The pool
    pool: PathBuf,

    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    medium: MediumArgs,

    /// Threads that write
    #[arg(long)]
    threads: usize,

    /// The seed of the scripts
    #[arg(long)]
    script: u64,

    /// Create the pool first, with indexes of this kind
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    create: Option<Kind>,

    /// Acknowledge in this new file instead of standard output, which must be a file too
    #[arg(long, value_name = "FILE")]
    acks: Option<PathBuf>,
}

/// Returns the command that performs `threads` scripts of the seed `script` on a pool.
pub(crate) fn command(
    pool: &Path,
    source: &Source,
    medium: MediumArgs,
    (threads, script): (usize, u64),
) -> Result<Command, CliError> {
    let mut command = Command::new(std::env::current_exe().map_err(CliError::Child)?);
    command
        .arg(super::WRITER)
        .arg(pool)
        .args(source.to_arguments())
        .args(medium.to_arguments())
        .args(["--threads", &threads.to_string(), "--script", &script.to_string()]);
    Ok(command)
}

/// Writes until standard input ends, or something fails.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let universes = args.source.universes()?;
    let options = args.medium.apply(PoolOptions::new(), &args.pool);
    let store = match args.create {
        Some(kind) => Store::create(&args.pool, &options, kind)?,
        None => Store::open_with(&args.pool, &options)?,
    };
    let acks = match &args.acks {
        Some(path) => Acks::durable(path),
        None => Acks::inherited(),
    };
    let acks = acks.map_err(CliError::Pipe)?;
    let asked_to_end = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&asked_to_end);
    std::thread::spawn(move || {
        // Nothing is ever sent: this waits until standard input is closed.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        asked.store(true, Ordering::Relaxed);
    });
    std::thread::scope(|threads| {
        let shared = Shared {
            universes: &universes,
            store: &store,
            acks: &acks,
            asked_to_end: &asked_to_end,
        };
        // With every other script one more thread does the background work.
        let background = args.script.is_multiple_of(2) && store.integers.has_background();
        let worker = background.then(|| threads.spawn(|| store.integers.background(&asked_to_end)));
        let handles: Vec<_> = (0..args.threads)
            .map(|thread| {
                threads.spawn(move || {
                    let written = write(shared, thread, args);
                    // The thread was asked to end, or failed: the others end too.
                    shared.asked_to_end.store(true, Ordering::Relaxed);
                    written
                })
            })
            .collect();
        handles.into_iter().try_for_each(ended)?;
        worker.map_or(Ok(()), ended).map_err(CliError::from)
    })?;
    store.close()
}

/// Returns the result of a thread, or resumes its panic.
fn ended<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What all threads share.
#[derive(Clone, Copy)]
struct Shared<'a> {
    universes: &'a Universes,
    store: &'a Store,
    acks: &'a Acks,
    asked_to_end: &'a AtomicBool,
}

/// Performs the script of one thread.
fn write(shared: Shared<'_>, thread: usize, args: &Args) -> Result<(), CliError> {
    let Shared { universes, store, acks, asked_to_end } = shared;
    let (words, integers) = (&universes.words, &universes.integers);
    let script = Script::new(args.script, thread, args.threads, words.len(), integers.len());
    for (step, (side, change)) in (1..).zip(script) {
        match side {
            Side::Words => perform(&store.words, words, &change)?,
            Side::Integers => perform(&store.integers, integers, &change)?,
        }
        // The step is acknowledged: from here on it must survive.
        acks.acknowledge(thread, step).map_err(CliError::Pipe)?;
        if asked_to_end.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

fn perform<K: Key, V: Value>(
    index: &impl Index<K, V>,
    universe: &Universe<K, V>,
    change: &Change,
) -> Result<(), IndexError> {
    let key = |at: usize| universe.key(at).borrowed();
    match change {
        // An insert of a present key and an update of a missing one change nothing; the model knows which.
        Change::Insert(at, number) => {
            let _ = index.try_insert(key(*at), universe.value(*number).borrowed())?;
        }
        Change::Update(at, number) => {
            let _ = index.update(key(*at), universe.value(*number).borrowed())?;
        }
        Change::Upsert(at, number) => {
            index.put(key(*at), universe.value(*number).borrowed())?;
        }
        Change::Remove(at) => {
            index.remove(key(*at))?;
        }
        Change::InsertMany(records) => {
            let record =
                |&(at, number): &(usize, u64)| (universe.key(at).clone(), universe.value(number));
            let records: Vec<(K, V)> = records.iter().map(record).collect();
            if let Some(stopped) = index.try_insert_many(&records).stopped {
                return Err(stopped);
            }
        }
    }
    Ok(())
}
