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

/// Builds tests, which run in a guest, and returns them. With the features of the whole workspace, as `cargo
/// test` does: most often there is nothing to build.
pub(crate) fn programs<const N: usize>(names: [&str; N]) -> Result<[PathBuf; N], String> {
    let tests: Vec<&str> = names.iter().flat_map(|name| ["--test", name]).collect();
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
    let found: Result<Vec<PathBuf>, String> = names.iter().map(|name| test(name)).collect();
    found?.try_into().map_err(|_| "a test is missing".into())
}
