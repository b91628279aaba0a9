//! Runs other programs: prints the command, passes its output through, and fails with its name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).to_path_buf()
}

/// Returns the cargo that runs this program.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

/// Runs `cargo` with these arguments in the workspace's root and returns how long it took.
pub(crate) fn run_cargo(args: &[&str], env: &[(&str, &str)]) -> Result<Duration, String> {
    let line = format!("cargo {}", args.join(" "));
    eprintln!("\n== {line}");
    let started = Instant::now();
    let status = Command::new(cargo())
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root())
        .status()
        .map_err(|e| format!("`{line}` did not start: {e}"))?;
    if !status.success() {
        return Err(format!("`{line}` failed ({status})"));
    }
    Ok(started.elapsed())
}

/// Runs a program in the workspace's root and returns its output.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let line = format!("{program} {}", args.join(" "));
    let out = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .map_err(|e| format!("`{line}` did not start: {e}"))?;
    if !out.status.success() {
        let stderr = String::from_utf8_lossy(&out.stderr);
        return Err(format!("`{line}` failed ({}): {}", out.status, stderr.trim()));
    }
    String::from_utf8(out.stdout).map_err(|_| format!("`{line}` printed invalid UTF-8"))
}
