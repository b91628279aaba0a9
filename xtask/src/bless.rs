//! `cargo xtask bless`: regenerates the golden costs and the C header from the sources.

use crate::shell::{output, run_cargo};

/// The folders of generated files.
const GENERATED: [&str; 2] = ["tests/golden", "crates/capi/include"];

/// Rewrites the generated files and shows the differences.
pub(crate) fn run() -> Result<(), String> {
    // Every test that compares with a golden file has `golden` in its name.
    run_cargo(&["test", "--workspace", "--no-fail-fast", "golden"], &[("PMINDEX_BLESS", "1")])?;
    let changed = output("git", &[&["status", "--short"][..], &GENERATED].concat())?;
    if changed.is_empty() {
        println!("nothing changed");
    } else {
        println!("{}{changed}", output("git", &[&["diff", "--"][..], &GENERATED].concat())?);
    }
    Ok(())
}
