//! `cargo xtask fuzz`: attacks every kind of index with damaged pool files, guided by coverage.

use std::path::Path;

use crate::shell::{output, root, run_cargo};

/// How long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds of one processor
    #[arg(long, value_name = "S", default_value_t = 600)]
    seconds: u64,
}

/// Two bytes that choose, and twelve damages of ten.
const LONGEST: &str = "-max_len=122";

/// Runs the fuzzer; its corpus is kept and grows.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    if output("cargo", &["fuzz", "--version"]).is_err() {
        return Err(
            "this needs cargo-fuzz (`cargo install cargo-fuzz`) and a nightly compiler".into()
        );
    }
    let corpus = root().join("fuzz/corpus/hostile");
    std::fs::create_dir_all(&corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
    let seconds = format!("-max_total_time={}", args.seconds);
    // A hang is a finding: no attack takes long. Short inputs damage nothing: long ones at once.
    let arguments = [
        "fuzz",
        "run",
        "hostile",
        "--",
        &seconds,
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-len_control=0",
        LONGEST,
    ];
    run_cargo(&arguments, &[("RUSTUP_TOOLCHAIN", "nightly")])?;
    let found = root().join("fuzz/artifacts/hostile");
    let left = std::fs::read_dir(&found).map(Iterator::count).unwrap_or_default();
    if left > 0 {
        return Err(format!("{left} findings in {}", relative(&found)));
    }
    Ok(())
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
