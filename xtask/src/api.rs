//! Compares the public interface with that of the last release: cargo-semver-checks says whether the version
//! allows the changes, cargo-public-api lists them. Part of `cargo xtask ci --long`.
//!
//! The last release is the last tag `v*`. Without one, or without these programs, the step is skipped with a
//! message.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::shell::{cargo, output, root, run_cargo};

/// The folder of the tree of the last release.
const BASELINE: &str = "target/baseline";

/// Compares all published packages, and lists the changes of the facade.
pub(crate) fn check() -> Result<Duration, String> {
    let started = Instant::now();
    let tags = ["describe", "--tags", "--abbrev=0", "--match", "v*"];
    let Ok(tag) = output("git", &tags) else {
        eprintln!("\n== public interface: SKIPPED, no release is tagged yet");
        return Ok(Duration::ZERO);
    };
    let tag = tag.trim();
    if is_installed("semver-checks") {
        run_cargo(&["semver-checks", "--workspace", "--baseline-rev", tag], &[])?;
    }
    if is_installed("public-api") {
        list(tag)?;
    }
    Ok(started.elapsed())
}

fn is_installed(command: &str) -> bool {
    let there = output(&cargo(), &[command, "--version"]).is_ok();
    if !there {
        eprintln!(
            "\n== cargo {command}: SKIPPED, it is not installed (`cargo install cargo-{command} --locked`)"
        );
    }
    there
}

/// Prints the additions to the facade since `tag`, and the removals.
fn list(tag: &str) -> Result<(), String> {
    eprintln!("\n== cargo public-api, {tag} and now");
    if root().join(BASELINE).exists() {
        output("git", &["worktree", "remove", "--force", BASELINE])?;
    }
    output("git", &["worktree", "add", "--detach", BASELINE, tag])?;
    let of = |manifest: &str| {
        let arguments = ["public-api", "--manifest-path", manifest, "--package", "pmindex"];
        output(&cargo(), &[&arguments[..], &["--all-features", "-sss"]].concat())
    };
    let before = of(&format!("{BASELINE}/Cargo.toml"));
    output("git", &["worktree", "remove", "--force", BASELINE])?;
    for line in changes(&before?, &of("Cargo.toml")?) {
        println!("{line}");
    }
    Ok(())
}

/// Returns the lines that only one of both texts has, with a sign.
fn changes(before: &str, now: &str) -> Vec<String> {
    let (before, now): (BTreeSet<&str>, BTreeSet<&str>) =
        (before.lines().collect(), now.lines().collect());
    let gone = before.difference(&now).map(|line| format!("-{line}"));
    gone.chain(now.difference(&before).map(|line| format!("+{line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_and_what_went_is_listed() {
        let before = "pub fn a()\npub fn b(x: u64)\n";
        let now = "pub fn a()\npub fn b(x: u32)\npub fn c()\n";
        assert_eq!(changes(before, now), ["-pub fn b(x: u64)", "+pub fn b(x: u32)", "+pub fn c()"]);
        assert!(changes(now, now).is_empty());
    }
}
