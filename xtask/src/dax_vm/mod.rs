//! `cargo xtask dax-vm`: a virtual machine with an emulated NVDIMM and a real DAX file system, where
//! `MAP_SYNC` is granted, persistence domains are reported, and the whole machine can be killed.
//!
//! | file | what |
//! | --- | --- |
//! | `debian` | kernel and busybox, from Debian packages |
//! | `initramfs` | the guest's files, in memory |
//! | `init.sh` | the guest's first process |
//! | `machine` | one boot |
//!
//! It needs no root and no KVM. The processor is emulated, so times mean nothing, and a killed
//! machine keeps what was in its caches: what it shows is that detection, mapping and recovery work
//! on real interfaces. Whether a flush is missing, the crash simulator shows.

mod debian;
mod initramfs;
mod machine;

use std::path::PathBuf;
use std::time::Duration;

use crate::shell::{self, run_cargo};

use initramfs::Contents;
use machine::{Boot, End, Machine};

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kills of the whole machine, each with its own index
    #[arg(long, value_name = "N", default_value_t = 3)]
    kills: usize,

    /// The kinds of index to be killed in turn
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fptree")]
    index: Vec<String>,

    /// Only what continuous integration has time for: detection, one kill
    #[arg(long)]
    short: bool,
}

impl Args {
    /// What continuous integration has time for.
    pub(crate) fn short() -> Self {
        Self { kills: 1, index: vec!["fptree".into()], short: true }
    }
}

/// The programs that run in the guest.
struct Programs {
    dax: PathBuf,
    pmindex: PathBuf,
}

/// Runs everything; says so if this machine cannot.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let missing = debian::missing();
    if !missing.is_empty() {
        println!("\n== skipped: no virtual machine without the packages {}", missing.join(", "));
        return Ok(());
    }
    let dir = shell::root().join("target/dax-vm");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let parts = match debian::parts(&dir) {
        Ok(parts) => parts,
        Err(why) if args.short => {
            println!("\n== skipped: no kernel for the virtual machine: {why}");
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    let programs = build()?;
    let place = dir.join(format!("run-{}", std::process::id()));
    let outcome = detection(&parts, &programs, &place, args.short)
        .and_then(|()| kills(&parts, &programs, &place, args));
    let _ = std::fs::remove_dir_all(&place);
    outcome
}

/// Builds what runs in the guest: a test, and the command line, which comes with its own tests. With
/// the features of the whole workspace, as `cargo test` does: most often there is nothing to build.
fn build() -> Result<Programs, String> {
    let build = ["test", "--workspace", "--test", "dax", "--test", "commands", "--no-run"];
    run_cargo(&build, &[])?;
    let messages =
        shell::output(&shell::cargo(), &[&build[..], &["--message-format=json"]].concat())?;
    let dax = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "dax";
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    });
    let dax = dax.ok_or("cargo does not say where the test is")?;
    // target/debug/deps/dax-...
    let pmindex = dax.ancestors().nth(2).map(|dir| dir.join("pmindex"));
    Ok(Programs { dax, pmindex: pmindex.ok_or("no build folder")? })
}

/// Durability as the platform reports it, on a file system and on a device.
fn detection(
    parts: &debian::Parts,
    programs: &Programs,
    dir: &std::path::Path,
    short: bool,
) -> Result<(), String> {
    let all = [
        ("fsdax", false, "PMEM_DIR=/mnt/pmem ./dax --nocapture a_dax_file"),
        ("fsdax", true, "PMEM_DIR=/mnt/pmem PMEM_CACHES=1 ./dax --nocapture a_dax_file"),
        ("devdax", false, "PMEM_DEV=/dev/dax0.0 ./dax --nocapture a_device"),
    ];
    for (mode, caches_persist, command) in all.into_iter().take(if short { 2 } else { 3 }) {
        let machine = Machine::new(parts, dir, mode)?;
        let files = [("dax", programs.dax.clone())];
        let contents = Contents { mode, command, files: &files };
        let report = machine.boot(&Boot { contents, caches_persist, kill_after: None })?;
        let domain = if caches_persist { "cpu_cache" } else { "memory_controller" };
        println!(
            "\n== {mode}, {domain}: up in {:.1} s\n{}",
            report.up.as_secs_f64(),
            report.output
        );
        // A test that found no persistent memory would pass.
        let skipped = report.output.contains("skipped") || !report.output.contains("1 passed");
        if report.end != End::Exit(0) || skipped {
            return Err(format!("{mode}, {domain}: the test did not pass"));
        }
    }
    Ok(())
}

/// Kills the machine while it writes; the next boot finds everything acknowledged.
fn kills(
    parts: &debian::Parts,
    programs: &Programs,
    dir: &std::path::Path,
    args: &Args,
) -> Result<(), String> {
    let keys = dir.join("keys");
    let words: Vec<String> = (0..2000).map(|i| format!("key {}", i * 7919 % 100_003)).collect();
    std::fs::write(&keys, words.join("\n")).map_err(|e| e.to_string())?;
    let files = [("pmindex", programs.pmindex.clone()), ("keys", keys)];
    let rounds = if args.short { 1 } else { args.kills };
    for (round, index) in (0..rounds).zip(args.index.iter().cycle()) {
        let machine = Machine::new(parts, dir, "fsdax")?;
        let what =
            format!("/mnt/pmem/pool --keys keys --integers 5000 --threads 2 --script {round}");
        let acks = "--acks /mnt/pmem/acks";
        // Standard input that does not end: the writer writes until the machine is killed.
        let write = format!("sleep 1000 | ./pmindex trial-writer {what} {acks} --create {index}");
        let contents = Contents { mode: "fsdax", command: &write, files: &files };
        let kill_after = Some(Duration::from_millis(3000 + 700 * (round as u64 % 5)));
        let report = machine.boot(&Boot { contents, caches_persist: false, kill_after })?;
        if report.end != End::Killed {
            return Err(format!("{index}: the writer ended by itself:\n{}", report.output));
        }
        let verify = format!(
            "./pmindex trial-verifier {what} {acks} && ./pmindex info /mnt/pmem/pool | cat"
        );
        let contents = Contents { mode: "fsdax", command: &verify, files: &files };
        let report = machine.boot(&Boot { contents, caches_persist: false, kill_after: None })?;
        println!("\n== {index}: the machine was killed and booted again\n{}", report.output);
        if report.end != End::Exit(0) {
            return Err(format!("{index}: not everything was there after the machine was killed"));
        }
    }
    Ok(())
}
