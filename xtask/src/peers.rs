//! `cargo xtask peers`: compares the allocator with PMDK's, on the same tmpfs, in alternating rounds.
//!
//! PMDK is compiled against, if its development files are installed. Both execute real flushes on memory that
//! is not persistent (`PMEM_IS_PMEM_FORCE=1`, without which PMDK would use `msync`).

use std::path::Path;
use std::process::Command;

use crate::shell::{root, run_cargo};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A directory on tmpfs
    #[arg(long, default_value = "/dev/shm")]
    dir: std::path::PathBuf,
    /// The number of times that 1024 blocks are allocated and freed, in each of five rounds
    #[arg(long, default_value_t = 200)]
    rounds: u32,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    run_cargo(&["build", "--release", "-p", "pmindex-core", "--example", "peers"], &[])?;
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root().join("target"), std::path::PathBuf::from);
    let ours = target.join("release/examples/peers");
    let theirs = target.join("release/peers-pmemobj");
    let compiled = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&theirs)
        .arg(root().join("benches/peers/pmemobj.c"))
        .args(["-lpmemobj", "-lpthread"])
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        return Err("PMDK's libpmemobj-dev and a C compiler are needed".into());
    }
    println!("1 KiB, one by one, ns per operation (median of 5): allocate, free");
    for threads in [1, 2] {
        let (mut our, mut their) = (Vec::new(), Vec::new());
        for _ in 0..5 {
            our.push(measure(&ours, args, threads)?);
            their.push(measure(&theirs, args, threads)?);
        }
        let (our, their) = (median(our), median(their));
        println!(
            "{threads} thread(s): pmindex {} {}, PMDK {} {}: {:.2} and {:.2} times its rate",
            our[0],
            our[1],
            their[0],
            their[1],
            their[0] / our[0],
            their[1] / our[1],
        );
    }
    Ok(())
}

/// Runs one round of one program.
fn measure(program: &Path, args: &Args, threads: u32) -> Result<[f64; 2], String> {
    let file = args.dir.join(format!("pmindex-peers-{}", std::process::id()));
    let (threads, rounds) = (threads.to_string(), args.rounds.to_string());
    let output = Command::new(program)
        .env("PMEM_IS_PMEM_FORCE", "1")
        .arg(&file)
        .args([threads, rounds])
        .output();
    let _ = std::fs::remove_file(&file);
    let output = output.map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    match numbers[..] {
        [alloc, free] if output.status.success() => Ok([alloc, free]),
        _ => Err(format!("{}: {}", program.display(), String::from_utf8_lossy(&output.stderr))),
    }
}

fn median(mut runs: Vec<[f64; 2]>) -> [f64; 2] {
    let mut middle = [0.0; 2];
    for (which, value) in middle.iter_mut().enumerate() {
        runs.sort_by(|a, b| a[which].total_cmp(&b[which]));
        *value = runs[runs.len() / 2][which];
    }
    middle
}
