//! `cargo xtask ci`: the checks of continuous integration; those that fail fastest come first.
//!
//! One profile builds everything: clippy and rustdoc share the metadata of the dependencies, and tests, crash
//! exploration and the command line share one optimised build with debug assertions.
//!
//! Tests wait for processes, files and each other, and leave processors idle: another process of this program
//! makes the checks that need no result of theirs meanwhile (`beside`).

mod beside;

use std::time::{Duration, Instant};

use crate::api;
use crate::book;
use crate::cross;
use crate::sanitize;
use crate::shell::{cargo, output, run_cargo};
use crate::tidy;

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also the slow half: known vulnerabilities, sanitizers, ten million crash states an index, every mutant,
    /// packages as they would be published, what changed of the public interface, the main job in a release build
    #[arg(long)]
    long: bool,

    /// Only the checks that are made beside the tests
    #[arg(long, hide = true)]
    beside: bool,
}

/// The README's test command, word for word.
pub(crate) const TEST: &[&str] = &["test", "--workspace"];

const FMT: &[&str] = &["fmt", "--all", "--check"];
const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
const DOC: &[&str] = &["doc", "--workspace", "--no-deps"];
/// So many states take longer than compiling the explorer at the level that runs faster.
const CRASH_LONG: &[&str] = &[
    "test",
    "--workspace",
    "--config",
    "profile.dev.package.pmindex-crash.opt-level=1",
    "--bin",
    "crash",
    "--",
    "--states",
    "10000000",
    "--mutate",
];
const DISKS_LONG: &[&str] =
    &["test", "--workspace", "--bin", "disks", "--", "--states", "1000000", "--mutate"];
/// Builds each package from the files that would be published.
const PACKAGES: &[&str] = &["publish", "--workspace", "--dry-run"];
const QUICKSTART: &[&str] =
    &["run", "--release", "-p", "pmindex-cli", "--no-default-features", "--", "quickstart"];

/// Runs every step and prints its duration.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    if args.beside {
        return beside::run(args.long);
    }
    let mut times: Vec<(&str, Duration)> = Vec::new();
    times.push(("format", run_cargo(FMT, &[])?));
    tidy::run()?;
    times.push(("book", book::run(book::Args::CHECK)?));
    times.push(("deny", deny(&["bans", "licenses", "sources"])?));
    times.push(("lint", run_cargo(CLIPPY, &[])?));
    times.push(("features", features()?));
    times.push(("aarch64", cross::run()?));
    times.push(("docs", run_cargo(DOC, &[("RUSTDOCFLAGS", "-D warnings")])?));
    let beside = beside::Beside::start(args.long)?;
    times.push(("tests", run_cargo(TEST, &[])?));
    times.push(("beside", beside.finish()?));
    if args.long {
        times.push(("advisories", deny(&["advisories"])?));
        times.push(("sanitize", sanitize::run()?));
        times.push(("mutants", run_cargo(CRASH_LONG, &[])?));
        times.push(("disks", run_cargo(DISKS_LONG, &[])?));
        times.push(("packages", run_cargo(PACKAGES, &[])?));
        times.push(("interface", api::check()?));
        times.push(("quickstart", run_cargo(QUICKSTART, &[])?));
    }
    println!("\nall of it holds");
    print_times(&times);
    Ok(())
}

/// Prints the duration of each step.
fn print_times(times: &[(&str, Duration)]) {
    for (step, time) in times {
        println!("  {step:<12} {:>5} s", time.as_secs());
    }
}

/// Checks each index alone, as a program with few features builds it, the program with `quickstart` alone, and the
/// features that are off by default.
fn features() -> Result<Duration, String> {
    let started = Instant::now();
    for index in [
        "artcow",
        "bztree",
        "cceh",
        "fastfair",
        "fptree",
        "hart",
        "nvtree",
        "pactree",
        "paged",
        "sptree",
        "skiplist",
        "sptree-buffered",
        "wbtree",
        "woart",
    ] {
        let facade = ["clippy", "--package", "pmindex", "--lib", "--no-default-features"];
        let arguments = [&facade[..], &["--features", index, "--", "-D", "warnings"]].concat();
        run_cargo(&arguments, &[])?;
    }
    let quickstart = ["clippy", "--package", "pmindex-cli", "--no-default-features"];
    run_cargo(&[&quickstart[..], &["--", "-D", "warnings"]].concat(), &[])?;
    let types = ["clippy", "--package", "pmindex-index", "--all-features", "--all-targets"];
    run_cargo(&[&types[..], &["--", "-D", "warnings"]].concat(), &[])?;
    Ok(started.elapsed())
}

/// Checks of the dependencies by cargo-deny, where it is installed. (Licences and sources are a rule of
/// `tidy` too; known vulnerabilities take a database from the network.)
fn deny(checks: &[&str]) -> Result<Duration, String> {
    if output(&cargo(), &["deny", "--version"]).is_err() {
        eprintln!("\n== cargo deny: SKIPPED, it is not installed (`cargo install cargo-deny`)");
        return Ok(Duration::ZERO);
    }
    run_cargo(&[&["deny", "check"], checks].concat(), &[])
}
