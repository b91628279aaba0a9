//! The trial of this server beside that of Redis and redb: the same records, killed the same way.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Error;
use crate::service::Service;
use crate::store::{StoreArgs, Wanted};
use crate::trial::{IN_FLIGHT, Outcome, VALUE_SIZE, attempt, millis};

/// What to compare.
#[derive(clap::Args, Clone, Debug)]
pub struct CompareArgs {
    /// The folder for their files; nothing is left in it
    #[arg(default_value = "/dev/shm", value_name = "DIR")]
    dir: PathBuf,

    /// Records to write before the kill; the kill comes while writing goes on
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    records: u64,

    /// Connections that write
    #[arg(long, default_value_t = 4, value_name = "N")]
    connections: u64,

    /// What an acknowledged write to the pool survives
    #[arg(long, default_value = "auto", value_name = "MODE")]
    durability: Wanted,
}

/// Writes, kills, restarts and verifies each in turn, and prints a row for each.
pub fn compare(args: &CompareArgs) -> Result<(), Error> {
    let folder =
        tempfile::tempdir_in(&args.dir).map_err(Error::io(args.dir.display().to_string()))?;
    println!(
        "{} records of {VALUE_SIZE} bytes, {} connections with {IN_FLIGHT} writes in flight; SIGKILL while \
         they write; restart.\n",
        args.records, args.connections
    );
    println!("{:<14} {:>12} {:>14} {:>10}  ", "", "writes/s", "first reply", "lost");
    let pool = folder.path().join("pool");
    let index = pmindex::Kind::FpTree;
    let durability = args.durability;
    let twin = matches!(durability, Wanted::Periodic(_))
        .then(|| std::env::temp_dir().join("kv-server.twin"));
    let store = StoreArgs { pool, index, durability, twin, size: 64 };
    let ours = attempt(&Service::Pool(store), args.records, args.connections)?;
    let says = ours.greetings[1].trim_end();
    row("kv-server", &ours, says.split_once("ms: ").map_or(says, |(_, words)| words));
    if has_redis() {
        let service = Service::Redis(folder.path().into());
        let redis = attempt(&service, args.records, args.connections)?;
        row("redis-server", &redis, "append-only file, synchronised every second");
    } else {
        println!("redis-server: not installed");
    }
    #[cfg(feature = "redb")]
    {
        let redb = crate::redb_trial::attempt(&folder.path().join("redb"), args.records)?;
        row("redb", &redb, crate::redb_trial::NOTE);
    }
    #[cfg(not(feature = "redb"))]
    println!("redb: not in this build (feature `redb`)");
    match ours {
        Outcome { lost: 0, .. } => Ok(()),
        Outcome { lost, acknowledged, .. } => Err(Error::Lost { lost, acknowledged }),
    }
}

fn row(name: &str, outcome: &Outcome, note: &str) {
    let ready = format!("{:.1} ms", millis(outcome.ready_in));
    println!("{name:<14} {:>12.0} {ready:>14} {:>10}  {note}", outcome.rate, outcome.lost);
}

fn has_redis() -> bool {
    let mut version = Command::new("redis-server");
    version.arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}
