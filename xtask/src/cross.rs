//! Other architectures: checks that pm-core and the facade compile for AArch64, and for a CPU whose
//! flush instruction is not known, where those targets are installed.

use std::path::Path;
use std::time::Duration;

use crate::shell::{output, run_cargo};

const TARGETS: [&str; 5] = [
    "aarch64-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "aarch64-apple-darwin",
    "x86_64-apple-darwin",
    "x86_64-unknown-freebsd",
];

/// Checks them for the other targets; prints a message if a target is missing.
pub(crate) fn run() -> Result<Duration, String> {
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    let mut time = Duration::ZERO;
    for target in TARGETS {
        if Path::new(sysroot.trim()).join("lib/rustlib").join(target).exists() {
            let packages = ["clippy", "-p", "pmindex-core", "-p", "pmindex", "--target", target];
            time += run_cargo(&[&packages[..], &["--", "-D", "warnings"]].concat(), &[])?;
        } else {
            println!("\n== skipped: the target {target} is not installed, so it is not checked");
        }
    }
    Ok(time)
}
