//! The other architecture: checks that pm-core compiles for AArch64, where that target is installed.

use std::path::Path;
use std::time::Duration;

use crate::shell::{output, run_cargo};

const TARGET: &str = "aarch64-unknown-linux-gnu";

/// Checks pm-core for AArch64; says so if the target is missing.
pub(crate) fn run() -> Result<Duration, String> {
    let sysroot = output("rustc", &["--print", "sysroot"])?;
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).exists() {
        println!("\n== skipped: the target {TARGET} is not installed, so AArch64 is not checked");
        return Ok(Duration::ZERO);
    }
    let args = ["clippy", "-p", "pmindex-core", "--target", TARGET, "--", "-D", "warnings"];
    run_cargo(&args, &[])
}
