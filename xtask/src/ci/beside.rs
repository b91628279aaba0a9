//! The checks that another process makes while the tests run: its output is printed when it has ended.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{TEST, print_times};
use crate::dax_vm;
use crate::disk_vm;
use crate::python;
use crate::shell::{root, run_cargo};

/// Runs each benchmark once, to see that it works. Uses the whole workspace like the tests, since a package
/// built alone has other features and would be built again.
const BENCHES: &[&str] = &["test", "--workspace", "--bench", "*"];
/// The types of other crates, which are features.
const TYPES: &[&str] =
    &["test", "--package", "pmindex-index", "--all-features", "--test", "foreign"];
/// Persisting through libpmem; the test is skipped with a message if it is not installed.
const LIBPMEM: &[&str] =
    &["test", "--package", "pmindex-core", "--features", "libpmem", "--test", "libpmem"];

/// Makes the checks, in the other process.
pub(super) fn run(long: bool) -> Result<(), String> {
    // Cargo lets one build at a time use the folder: this one waits until the tests are built, and they run.
    run_cargo(&[TEST, &["--no-run", "--quiet"]].concat(), &[])?;
    let mut times: Vec<(&str, Duration)> = Vec::new();
    times.push(("python", python::check(long)?));
    let started = Instant::now();
    dax_vm::run(&dax_vm::Args::short())?;
    disk_vm::run(&disk_vm::Args::short())?;
    times.push(("real DAX", started.elapsed()));
    times.push(("types", run_cargo(TYPES, &[])?));
    times.push(("libpmem", run_cargo(LIBPMEM, &[])?));
    times.push(("benches", run_cargo(BENCHES, &[])?));
    print_times(&times);
    Ok(())
}

/// The other process. It is killed if it is dropped before it has ended (a program that it runs then ends by itself).
pub(super) struct Beside {
    child: Child,
    /// What it prints.
    output: PathBuf,
}

impl Beside {
    /// Starts it.
    pub(super) fn start(long: bool) -> Result<Self, String> {
        let failed = |e| format!("the checks beside the tests did not start: {e}");
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root().join("target"), PathBuf::from);
        let output = target.join("ci-beside.log");
        let file = File::create(&output).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["ci", "--beside"]).args(long.then_some("--long"));
        command.stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
        Ok(Self { child: command.spawn().map_err(failed)?, output })
    }

    /// Waits for its end and prints its output. Returns how long it was waited for.
    pub(super) fn finish(mut self) -> Result<Duration, String> {
        let started = Instant::now();
        let failed = |e| format!("the checks beside the tests: {e}");
        let status = self.child.wait().map_err(failed)?;
        eprintln!("\n== what ran beside the tests");
        let output = std::fs::read(&self.output).map_err(failed)?;
        eprint!("{}", String::from_utf8_lossy(&output));
        if status.success() {
            Ok(started.elapsed())
        } else {
            Err(format!("the checks beside the tests failed ({status})"))
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
