//! The machine and the build of a measurement, as far as they can be determined.

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::counters;

/// The conditions of a measurement other than the index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The time of the measurement, in seconds since 1970.
    pub unix_time: u64,
    /// The processor's name.
    pub cpu: String,
    /// The number of processors that threads can run on.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The operating system and its version.
    pub system: String,
    /// Whether files on tmpfs get huge pages by the kernel's default (`never`, `advise`, ..; pools ask for
    /// them explicitly), and which pages the heap has, where volatile indexes are.
    pub tmpfs_huge_pages: String,
    /// The version of the program that measured.
    pub version: String,
    /// The commit from which it was built, with `+` if files differed; empty outside a checkout.
    pub commit: String,
    /// `release`, or `debug` for a build with debug assertions, whose figures are no measurements.
    pub build: String,
    /// `granted`, or the reason why hardware counters are missing.
    pub hardware_counters: String,
}

impl Environment {
    /// Describes this machine, now.
    #[must_use]
    pub fn here() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let kib: u64 = field(&file("/proc/meminfo"), "MemTotal")
            .trim_end_matches(" kB")
            .parse()
            .unwrap_or_default();
        let huge = file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
        let chosen = huge.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Self {
            unix_time: now.map(|time| time.as_secs()).unwrap_or_default(),
            cpu: field(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_bytes: kib * 1024,
            system: format!(
                "{} {}",
                std::env::consts::OS,
                file("/proc/sys/kernel/osrelease").trim()
            ),
            tmpfs_huge_pages: chosen.map(|(word, _)| huge_pages(word)).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").into(),
            commit: commit(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
            hardware_counters: counters::refusal().unwrap_or_else(|| "granted".into()),
        }
    }
}

/// Describes which memory has huge pages; `of_files` is the kernel's setting for files on tmpfs.
fn huge_pages(of_files: &str) -> String {
    // glibc reads the variable when the process starts.
    let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
    let asks = tunables.split(':').any(|tunable| tunable == "glibc.malloc.hugetlb=1");
    let of_all = "/sys/kernel/mm/transparent_hugepage/enabled";
    let always = std::fs::read_to_string(of_all).is_ok_and(|text| text.contains("[always]"));
    let heap = if asks || always { "huge pages" } else { "small pages" };
    format!("{of_files} by default, pools ask for them; heap: {heap}")
}

/// Returns the commit of the sources from which this program was built, if they still exist.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let sources = env!("CARGO_MANIFEST_DIR");
        let output = Command::new("git").arg("-C").arg(sources).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return String::new() };
    // The pages that measurements write change nothing that is measured.
    let sources = ["--", ":/", ":(top,exclude)docs/evidence"];
    let status = [&["status", "--porcelain", "-uno"], &sources[..]].concat();
    let changed = git(&status).is_some_and(|files| !files.is_empty());
    format!("{commit}{}", if changed { "+" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = Environment::here();
        assert!(here.cores > 0 && here.unix_time > 1_700_000_000, "{here:?}");
        assert!(here.memory_bytes > 1 << 20, "{here:?}");
        assert_eq!(here.build == "debug", cfg!(debug_assertions));
        assert!(!here.hardware_counters.is_empty());
    }
}
