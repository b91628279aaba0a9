//! `cargo xtask sanitize`: runs pm-core's tests where the compiler or an interpreter checks every access.
//!
//! * **`AddressSanitizer`**, with a nightly compiler: the attacks on the public interface, and the tests of
//!   mapping and address resolution.
//! * **Miri**, if the nightly toolchain has it: the parts that need neither a mapping nor CPU-specific
//!   instructions, interpreted for a CPU without known flush instructions.
//!
//! Tools that the toolchain lacks are skipped with a message.

use std::time::{Duration, Instant};

use crate::shell::{output, run_cargo};

/// Memory errors end a test at once; leaks are not errors.
const ASAN: &str = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1";

/// The attacks by safe code.
const ATTACKS: &[&str] = &["--test", "attacks"];
/// Regions, cells, instructions, media, locks: the modules with `unsafe` blocks. Without tests that start
/// child processes or read the kernel's list of mappings, of which a sanitizer makes many.
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

/// The attacks and tests that Miri can run: on heap memory, with the portable instructions.
const PURE: &[&str] =
    &["--test", "attacks", "--", "a_lock_may", "indices_that", "copies_of_anything"];
/// A 64-bit CPU without known flush instructions.
const MIRI_TARGET: &str = "riscv64gc-unknown-linux-gnu";

/// Runs the available tools; returns the duration.
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
    // With a target, the flags apply to the tests alone, not to programs that run during the build.
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
