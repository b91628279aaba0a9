//! `cargo xtask sanitize`: pm-core's tests where the compiler or an interpreter watches every access.
//!
//! * **`AddressSanitizer`**, with a nightly compiler: the attacks on the public surface, and the tests of
//!   what maps and resolves memory.
//! * **Miri**, where the nightly toolchain has it: the parts that need neither a mapping nor an
//!   instruction of one CPU, interpreted for a CPU of which nothing is known but Rust's own words.
//!
//! What the toolchain lacks is left out, and said.

use std::time::{Duration, Instant};

use crate::shell::{output, run_cargo};

/// Memory errors end a test at once; what a test leaves allocated is none.
const ASAN: &str = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1";

/// The attacks by safe code.
const ATTACKS: &[&str] = &["--test", "attacks"];
/// Regions, cells, instructions, media, locks: what has the `unsafe` blocks. Not what starts children
/// or reads what the kernel says of each mapping, of which a sanitizer makes many.
const UNITS: &[&str] = &[
    "--lib",
    "--",
    "region::tests",
    "region::mapping",
    "arena::",
    "cell::",
    "line::",
    "arch::",
    "media::",
    "sync::",
    "alloc::claim",
];

/// Attacks and tests that Miri can run: on heap memory, through the portable instructions.
const PURE: &[&str] =
    &["--test", "attacks", "--", "a_lock_may", "indices_that", "copies_of_anything"];
/// A 64-bit CPU of which the workspace knows no instruction.
const MIRI_TARGET: &str = "riscv64gc-unknown-linux-gnu";

/// Runs what the toolchain can run; returns how long it took.
pub(crate) fn run() -> Result<Duration, String> {
    let started = Instant::now();
    address_sanitizer()?;
    miri()?;
    Ok(started.elapsed())
}

fn nightly(what: &str, arguments: &[&str]) -> bool {
    let found = output("rustup", &[&["run", "nightly"], arguments].concat());
    if found.is_err() {
        println!("\n== {what}: SKIPPED, the nightly toolchain has not got it");
    }
    found.is_ok()
}

fn address_sanitizer() -> Result<(), String> {
    if !nightly("AddressSanitizer", &["rustc", "--version"]) {
        return Ok(());
    }
    let version = output("rustup", &["run", "nightly", "rustc", "--version", "--verbose"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not say for what it compiles")?;
    let env = [
        ("RUSTUP_TOOLCHAIN", "nightly"),
        ("RUSTFLAGS", "-Zsanitizer=address"),
        ("ASAN_OPTIONS", ASAN),
        ("CARGO_TARGET_DIR", "target/sanitize"),
    ];
    // With a target the flags are for the tests alone, and not for what runs while they are built.
    let test = ["test", "--package", "pmindex-core", "--target", host];
    for tests in [ATTACKS, UNITS] {
        run_cargo(&[&test, tests].concat(), &env)?;
    }
    Ok(())
}

fn miri() -> Result<(), String> {
    if !nightly("Miri", &["cargo", "miri", "--version"]) {
        return Ok(());
    }
    let env = [
        ("RUSTUP_TOOLCHAIN", "nightly"),
        ("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance"),
        ("CARGO_TARGET_DIR", "target/sanitize"),
    ];
    let test = ["miri", "test", "--package", "pmindex-core", "--target", MIRI_TARGET];
    run_cargo(&[&test, PURE].concat(), &env).map(drop)
}
