//! The crash explorer's command: `cargo xtask crash --index NAME --states N [--seed S] [--slots N]
//! [--mutate]`.
//!
//! Under plain `cargo test` every registered structure is explored with a small number of states.
//! A new index is added in `registry.rs`.

#[path = "../../crates/pm-testkit/tests/crash_alloc/blocks.rs"]
mod allocator;
mod batched;
mod block_cache;
mod boc;
#[path = "../../crates/btree/tests/subject/tree.rs"]
mod btree;
#[path = "../../crates/buffer/tests/subject/pages.rs"]
mod buffer;
#[path = "../../crates/buffer/tests/subject/warm.rs"]
mod buffer_warm;
mod cceh;
mod dropped;
mod drops;
mod expiring;
mod fastfair;
mod files;
mod hart;
mod keys;
mod list;
mod nvtree;
mod pactree;
#[path = "../../crates/pm-log/tests/subject/transactions.rs"]
mod pm_log;
#[path = "../../crates/pmwcas/tests/subjects/mod.rs"]
mod pmwcas;
#[path = "../../crates/buffer/tests/subject/pool_disk.rs"]
mod pool_disk;
mod pools;
mod registry;
#[path = "../../crates/trees/tests/fptree/replacing.rs"]
mod replacing;
mod rstore;
mod shared_pool;
mod skiplist;
mod sptree;
mod sptree_buffered;
mod sptree_log;
mod store;
mod store_paged;
mod trees;
mod wbtree;
mod woart;

use std::env;
use std::io::{self, Write};
use std::num::NonZero;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use clap::Parser;
use pmindex_testkit::crash::Campaign;

use registry::{Entry, registry};

/// Explores crash states of the persistent structures of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask crash")]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
struct Args {
    /// The structure [default: all]
    #[arg(long)]
    index: Option<String>,
    /// The number of distinct crash states to check, per structure
    #[arg(long, default_value_t = 16_000)]
    states: u64,
    /// Where all choices come from; a failure prints the seed that replays it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The operation slots of every pool [default: varies: the number that the structure asks for, one, or
    /// two]
    #[arg(long)]
    slots: Option<u64>,
    /// Also drop and move every flush and fence, and drop every barrier, one at a time: each mutant must be
    /// caught
    #[arg(long)]
    mutate: bool,
    /// Instead, damage a word of the pool this many times, continue, and cut the power
    #[arg(long)]
    attacks: Option<u64>,
    /// Print the names of the structures
    #[arg(long)]
    list: bool,
    /// Parts of names, as for any test binary
    filters: Vec<String>,
    /// Ignored: the test runner passes it to every binary
    #[arg(long, hide = true)]
    test_threads: Option<usize>,
    /// Ignored, as above
    #[arg(long, hide = true)]
    nocapture: bool,
    /// Ignored, as above
    #[arg(long, short, hide = true)]
    quiet: bool,
    /// Ignored, as above
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl Args {
    fn wants(&self, name: &str) -> bool {
        let named = self.index.as_ref().is_none_or(|index| index == name);
        let test = format!("crash {name}");
        named && (self.filters.is_empty() || self.filters.iter().any(|f| test.contains(f.as_str())))
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        for entry in registry() {
            println!("{}: test", entry.name);
        }
        return ExitCode::SUCCESS;
    }
    let entries: Vec<Entry> = registry().into_iter().filter(|e| args.wants(e.name)).collect();
    if entries.is_empty() && args.filters.is_empty() {
        let names: Vec<&str> = registry().iter().map(|entry| entry.name).collect();
        eprintln!("no such structure; there are: {}", names.join(", "));
        return ExitCode::FAILURE;
    }
    let all_hold = match &entries[..] {
        [entry] => explores(entry, &args),
        _ => explores_all(&entries),
    };
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores one structure in this process, and prints the findings.
fn explores(entry: &Entry, args: &Args) -> bool {
    if let Some(attacks) = args.attacks {
        return withstands(entry, attacks, args.seed);
    }
    let Args { states, seed, mutate, slots, .. } = *args;
    let findings = (entry.run)(&Campaign { states, seed, mutate, slots });
    let verdict = if findings.hold() { "holds" } else { "BROKEN" };
    println!("{findings}{}: {} states, {verdict}\n", entry.name, findings.states());
    findings.hold() && keeps_to_schedules(entry)
}

/// Puts an index through the conformance suite's part of the deterministic scheduler.
fn keeps_to_schedules(entry: &Entry) -> bool {
    let verdict = entry.scheduled.map_or(Ok(()), |scheduled| scheduled());
    if let Err(failure) = &verdict {
        println!("{}, under the scheduler: {failure}\n", entry.name);
    }
    verdict.is_ok()
}

/// Explores each structure in a process of its own, with one process for each core: a replayed seed depends
/// on no other structure, and a process that dies ends no other exploration.
fn explores_all(entries: &[Entry]) -> bool {
    let next = AtomicUsize::new(0);
    let all_hold = AtomicBool::new(true);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !explores_apart(entry.name) {
                        all_hold.store(false, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    all_hold.into_inner()
}

/// Runs this program again with the same arguments for one structure, and prints its output.
fn explores_apart(name: &str) -> bool {
    let explored = env::current_exe().and_then(|program| {
        Command::new(program).args(env::args_os().skip(1)).args(["--index", name]).output()
    });
    let (told, errors, status) = match explored {
        Ok(output) => (output.stdout, output.stderr, Ok(output.status)),
        Err(error) => (Vec::new(), Vec::new(), Err(error)),
    };
    let mut out = io::stdout().lock();
    let printed = out.write_all(&told).and_then(|()| io::stderr().write_all(&errors));
    let holds = status.as_ref().is_ok_and(ExitStatus::success) && printed.is_ok();
    if !holds {
        eprintln!("{name}: NOT EXPLORED OR BROKEN ({status:?}, {printed:?})");
    }
    holds
}

fn withstands(entry: &Entry, attacks: u64, seed: u64) -> bool {
    match (entry.attack)(attacks, seed) {
        Ok(attacked) => {
            println!("{}: {attacked}", entry.name);
            attacked.broken.is_empty()
        }
        Err(fault) => {
            println!("{}: broken without damage: {}", entry.name, fault.0);
            false
        }
    }
}
