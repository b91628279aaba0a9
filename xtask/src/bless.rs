//! `cargo xtask bless`: accepts the present costs of operations as the golden ones.

use crate::shell::{output, run_cargo};

/// Rewrites `tests/golden` and shows what changed.
pub(crate) fn run() -> Result<(), String> {
    // Every test that compares with a golden file has `golden` in its name.
    run_cargo(&["test", "--workspace", "--no-fail-fast", "golden"], &[("PMINDEX_BLESS", "1")])?;
    let changed = output("git", &["status", "--short", "tests/golden"])?;
    if changed.is_empty() {
        println!("nothing changed");
    } else {
        println!("{}{changed}", output("git", &["diff", "--", "tests/golden"])?);
    }
    Ok(())
}
