//! Runs the trial on this server and on Redis: the same records, killed the same way.

use std::path::{Path, PathBuf};

use clap::value_parser;

use crate::Error;
use crate::config::DurabilityArg;

use super::scratch::Scratch;
use super::service::{AOF, Service, Store, is_installed};
use super::trial::{IN_FLIGHT, Outcome, VALUE_SIZE, attempt, millis};

/// The settings of the comparison.
#[derive(clap::Args, Clone, Debug)]
pub struct CompareArgs {
    /// The folder in which a new one is made for both servers, and removed at the end; created if it is missing
    #[arg(default_value = "/dev/shm", value_name = "DIR")]
    dir: PathBuf,

    /// Records to write before the kill, which comes while writing continues
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    records: u64,

    /// Connections that write
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    connections: u64,

    /// What an acknowledged write to the pool survives
    #[arg(long, default_value = "auto", value_name = "MODE")]
    durability: DurabilityArg,
}

/// Writes, kills, restarts and verifies each server in turn, and prints a row for each.
///
/// # Errors
/// A server cannot be started, or has lost acknowledged writes.
pub fn compare(args: &CompareArgs) -> Result<(), Error> {
    let scratch = Scratch::new(&args.dir)?;
    let is_periodic = matches!(args.durability, DurabilityArg::Periodic(_));
    let twins = is_periodic.then(|| Scratch::new(&std::env::temp_dir())).transpose()?;
    let done = compare_in(scratch.path(), twins.as_ref().map(Scratch::path), args);
    twins.into_iter().fold(scratch.end(done), |done, twins| twins.end(done))
}

fn compare_in(folder: &Path, twins: Option<&Path>, args: &CompareArgs) -> Result<(), Error> {
    println!(
        "{} records of {VALUE_SIZE} bytes, {} connections with {IN_FLIGHT} writes in flight; SIGKILL while \
         they write; restart.\n",
        args.records, args.connections
    );
    println!("{:<22} {:>12} {:>14} {:>10}  ", "", "writes/s", "first reply", "lost");
    let dir = folder.join("rstore");
    let store = Store {
        dir,
        durability: args.durability,
        twin: twins.map(Path::to_owned),
        partitions: "1".into(),
        capacity: None,
    };
    let ours = attempt(&Service::Rstore(store), args.records, args.connections)?;
    let says = ours.greetings[1].trim_end();
    row("rstore", &ours, says.split_once("ms: ").map_or(says, |(_, words)| words));
    for fsync in ["everysec", "always"] {
        let dir = folder.join(fsync);
        std::fs::create_dir(&dir).map_err(Error::io(dir.display()))?;
        let service = Service::Redis(dir, [&AOF[..], &[fsync]].concat());
        if !is_installed(&service) {
            println!("redis-server: not installed");
            break;
        }
        let redis = attempt(&service, args.records, args.connections)?;
        row(&format!("redis-server {fsync}"), &redis, "append-only file");
    }
    match ours {
        Outcome { lost: 0, .. } => Ok(()),
        Outcome { lost, acknowledged, .. } => Err(Error::Lost { lost, acknowledged }),
    }
}

fn row(name: &str, outcome: &Outcome, note: &str) {
    let ready = format!("{:.1} ms", millis(outcome.ready_in));
    println!("{name:<22} {:>12.0} {ready:>14} {:>10}  {note}", outcome.rate, outcome.lost);
}
