//! Virtual machines in which tests run: a guest of Debian's kernel and busybox, whose hardware the
//! caller chooses.
//!
//! | file | what |
//! | --- | --- |
//! | `debian` | kernel and busybox, from Debian packages |
//! | `initramfs` | the guest's files, in memory |
//! | `init.sh` | the guest's first process |
//! | `machine` | one boot |

pub(crate) mod debian;
mod initramfs;
mod machine;

use std::path::PathBuf;

use crate::shell::{self, run_cargo};

pub(crate) use initramfs::Contents;
pub(crate) use machine::{Boot, End, Machine};

/// Returns the parts of a machine, fetching them if needed; prints a message and returns `None` if they
/// cannot be had.
pub(crate) fn parts(short: bool) -> Result<Option<debian::Parts>, String> {
    let missing = debian::missing();
    if !missing.is_empty() {
        println!("\n== skipped: no virtual machine without the packages {}", missing.join(", "));
        return Ok(None);
    }
    let cache = shell::root().join("target/dax-vm");
    std::fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    match debian::parts(&cache) {
        Ok(parts) => Ok(Some(parts)),
        Err(why) if short => {
            println!("\n== skipped: no kernel for the virtual machine: {why}");
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

/// Returns a folder for the files of a run.
pub(crate) fn place() -> PathBuf {
    shell::root().join("target/dax-vm").join(format!("run-{}", std::process::id()))
}

/// The programs that run in a guest.
pub(crate) struct Programs {
    pub(crate) dax: PathBuf,
    pub(crate) guest: PathBuf,
    pub(crate) pmindex: PathBuf,
}

/// Builds the programs for a guest: tests, and the command line, which is built with its own tests. Uses the
/// features of the whole workspace, as `cargo test` does, so most often nothing needs to be built.
pub(crate) fn programs() -> Result<Programs, String> {
    let tests = ["--test", "dax", "--test", "guest", "--test", "commands"];
    let build = [&["test", "--workspace"], &tests[..], &["--no-run"]].concat();
    run_cargo(&build, &[])?;
    let messages =
        shell::output(&shell::cargo(), &[&build[..], &["--message-format=json"]].concat())?;
    let test = |name: &str| {
        let found = messages.lines().find_map(|line| {
            let message: serde_json::Value = serde_json::from_str(line).ok()?;
            let is_it = message["target"]["name"] == name;
            message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
        });
        found.ok_or_else(|| format!("cargo does not say where the test {name} is"))
    };
    let dax = test("dax")?;
    // target/debug/deps/dax-...
    let pmindex = dax.ancestors().nth(2).map(|dir| dir.join("pmindex"));
    Ok(Programs { guest: test("guest")?, pmindex: pmindex.ok_or("no build folder")?, dax })
}
