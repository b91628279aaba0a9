//! `cargo xtask crash`: explores the crash states of one structure, or of all.
//!
//! The program of `tests/crash` does the work, and for pools on a disk that of `tests/disks`; this command
//! runs it, in the optimised profile with debug assertions that all tests use.

use crate::shell::run_cargo;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The structure [default: all]
    #[arg(long)]
    index: Option<String>,
    /// The number of distinct crash states to check, per structure
    #[arg(long, default_value_t = 1_000_000)]
    states: u64,
    /// The seed of all random choices; a failure prints the seed that replays it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The operation slots of every pool: with fewer than threads, threads take over each other's [default:
    /// varies: the number that the structure asks for, one, or two]
    #[arg(long)]
    slots: Option<u64>,
    /// Also drop and move every flush and fence, and drop every barrier, one at a time: each mutant must be
    /// caught
    #[arg(long)]
    mutate: bool,
    /// Instead, cut the power of an ordinary disk with a pool of that index, in modes `Journal` and `Periodic`
    #[arg(long, conflicts_with_all = ["slots", "attacks"])]
    disk: bool,
    /// Instead, damage a word of the pool this many times, continue, and cut the power
    #[arg(long)]
    attacks: Option<u64>,
}

/// Fails if a state breaks the contract, a persistence step has no state, or a mutant survives.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let (states, seed) = (args.states.to_string(), args.seed.to_string());
    // Builds the whole workspace, as `cargo test` does: other features would build everything again.
    let program = if args.disk { "disks" } else { "crash" };
    let mut command =
        vec!["test", "--workspace", "--bin", program, "--", "--states", &states, "--seed", &seed];
    if let Some(index) = &args.index {
        command.extend(["--index", index]);
    }
    let slots = args.slots.map(|slots| slots.to_string());
    if let Some(slots) = &slots {
        command.extend(["--slots", slots]);
    }
    if args.mutate {
        command.push("--mutate");
    }
    let attacks = args.attacks.map(|attacks| attacks.to_string());
    if let Some(attacks) = &attacks {
        command.extend(["--attacks", attacks]);
    }
    run_cargo(&command, &[]).map(|_| ())
}
