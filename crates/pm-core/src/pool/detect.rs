//! Detection of the medium: the kernel is asked, nothing is assumed.
//!
//! | found | durability |
//! | --- | --- |
//! | the kernel grants `MAP_SYNC`, or the file is a device-DAX device; every region reports `cpu_cache` | `Fence` |
//! | the same; any region reports something else, or nothing is reported | `Flush` |
//! | tmpfs, ramfs, hugetlbfs, an overlay that writes to one of them or synchronises nothing | `Process`; `Periodic` if the caller asked for a twin |
//! | any other file; the caller asked for no write-back | `Process` |
//! | any other file; the caller asked for a journal | `Journal` |
//! | any other file | `Msync` |

use std::fs;
use std::path::Path;

use rustix::fs::{Dev, major, minor};

use crate::arch;
use crate::mode::Durability;
use crate::region::MapKind;
use crate::sys::{self, InMemory};

use super::file::{FileKind, PoolFile};
use super::options::PoolOptions;

const SYS: &str = "/sys";

/// The facts found about a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Medium {
    pub(super) durability: Durability,
    /// The name of the medium, in words that follow "on".
    pub(super) what: String,
    /// The reason why it does not provide more durability, as a sentence.
    pub(super) why: &'static str,
    /// `true` if it is mapped persistent memory.
    pub(super) dax: bool,
}

/// Detects the medium of a mapped file.
pub(super) fn medium_of(file: &PoolFile, kind: MapKind, opts: &PoolOptions) -> Medium {
    if file.kind == FileKind::Device && !arch::has_flush(arch::best_flush()) {
        let why = "no instruction of this CPU that writes a cache line back is known";
        let what = "a device-DAX device".into();
        return Medium { durability: Durability::Process, what, why, dax: false };
    }
    if file.kind == FileKind::Device || kind == MapKind::Sync {
        return persistent_memory(file.kind, persistence_domains(Path::new(SYS)).as_deref());
    }
    let in_memory = file.fd().and_then(sys::memory_file_system);
    let in_memory = in_memory.filter(|_| !opts.as_on_disk);
    if let (Some(InMemory { name, .. }), Some(_)) = (&in_memory, &opts.twin) {
        let why = "the caller asked for a twin (PoolOptions::twin)";
        let what = format!("{name} with a twin on a disk");
        return Medium { durability: Durability::Periodic, what, why, dax: false };
    }
    ordinary_file(in_memory, opts.write_back, opts.journal)
}

fn persistent_memory(kind: FileKind, domains: Option<&[String]>) -> Medium {
    let what = match kind {
        FileKind::Device => "a device-DAX device",
        FileKind::Regular => "a DAX file (MAP_SYNC granted)",
    };
    let (durability, why) = match domains {
        Some(domains) if !domains.is_empty() && domains.iter().all(|d| d == "cpu_cache") => {
            (Durability::Fence, "CPU caches are inside the persistence domain of every region")
        }
        _ => {
            (Durability::Flush, "not every region reports CPU caches inside its persistence domain")
        }
    };
    Medium { durability, what: what.into(), why, dax: true }
}

/// Describes a file without DAX, on a file system `in_memory` or on any other.
fn ordinary_file(in_memory: Option<InMemory>, write_back: bool, journal: bool) -> Medium {
    let (durability, what, why) = match in_memory {
        Some(InMemory { name, why }) => (Durability::Process, name, why),
        None if write_back && journal => (
            Durability::Journal,
            "an ordinary file with a journal beside it",
            "the kernel refused MAP_SYNC, and the caller asked for a journal (PoolOptions::journal)",
        ),
        None if write_back => (
            Durability::Msync,
            "an ordinary file",
            "the kernel refused MAP_SYNC: this is no DAX file system (mount -o dax) on persistent memory",
        ),
        None => (
            Durability::Process,
            "an ordinary file without write-back",
            "the caller asked for no write-back (PoolOptions::write_back)",
        ),
    };
    Medium { durability, what: what.into(), why, dax: false }
}

/// Returns the persistence domain that each region reports; `None` if one reports none.
fn persistence_domains(sys: &Path) -> Option<Vec<String>> {
    let mut domains = Vec::new();
    for entry in fs::read_dir(sys.join("bus/nd/devices")).ok()?.flatten() {
        if entry.file_name().to_string_lossy().starts_with("region") {
            let domain = fs::read_to_string(entry.path().join("persistence_domain")).ok()?;
            domains.push(domain.trim().to_owned());
        }
    }
    Some(domains)
}

/// Returns the sum of the dirty-shutdown counts of all memory modules; 0 where the kernel has none.
pub(super) fn dirty_shutdowns(medium: &Medium) -> u64 {
    if medium.dax { dirty_shutdowns_in(Path::new(SYS)) } else { 0 }
}

fn dirty_shutdowns_in(sys: &Path) -> u64 {
    let Ok(modules) = fs::read_dir(sys.join("bus/nd/devices")) else { return 0 };
    let is_module = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("nmem");
    modules
        .flatten()
        .filter(is_module)
        .filter_map(|module| {
            ["nfit", "papr", "cxl"].iter().find_map(|family| {
                let path = module.path().join(family).join("dirty_shutdown");
                fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
            })
        })
        .fold(0, u64::wrapping_add)
}

fn device_directory(device: Dev) -> std::path::PathBuf {
    Path::new(SYS).join(format!("dev/char/{}:{}", major(device), minor(device)))
}

/// Returns `true` if a character device is a device-DAX one.
pub(super) fn is_device_dax(device: Dev) -> bool {
    fs::read_link(device_directory(device).join("subsystem"))
        .is_ok_and(|link| link.file_name().is_some_and(|name| name == "dax"))
}

/// Returns the bytes of a device-DAX device.
pub(super) fn device_size(device: Dev) -> Option<u64> {
    fs::read_to_string(device_directory(device).join("size")).ok()?.trim().parse().ok()
}

/// Returns 128 random bits.
pub(crate) fn random_u128() -> u128 {
    let mut bytes = [0u8; 16];
    if sys::random(&mut bytes) {
        return u128::from_le_bytes(bytes);
    }
    // Without the system's random numbers, time and process are different enough for each pool.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |time| time.as_nanos()) << 32 | u128::from(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sys() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        fs::create_dir_all(sys.path().join("bus/nd/devices")).unwrap();
        sys
    }

    fn put(sys: &tempfile::TempDir, file: &str, text: &str) {
        let path = sys.path().join("bus/nd/devices").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn found(sys: &tempfile::TempDir) -> Durability {
        let domains = persistence_domains(sys.path());
        persistent_memory(FileKind::Regular, domains.as_deref()).durability
    }

    #[test]
    fn caches_are_trusted_only_if_every_region_reports_them() {
        let sys = sys();
        assert_eq!(found(&sys), Durability::Flush, "no region at all");
        put(&sys, "region0/persistence_domain", "cpu_cache\n");
        assert_eq!(found(&sys), Durability::Fence);
        put(&sys, "region1/persistence_domain", "memory_controller\n");
        assert_eq!(found(&sys), Durability::Flush);
        put(&sys, "region1/persistence_domain", "cpu_cache\n");
        assert_eq!(found(&sys), Durability::Fence);
        put(&sys, "region2/size", "4096\n");
        assert_eq!(found(&sys), Durability::Flush, "a region that reports nothing");
        assert_eq!(persistence_domains(Path::new("/nonexistent")), None);
    }

    #[test]
    fn dirty_shutdowns_of_all_modules_count() {
        let sys = sys();
        assert_eq!(dirty_shutdowns_in(sys.path()), 0);
        put(&sys, "nmem0/nfit/dirty_shutdown", "3\n");
        put(&sys, "nmem1/papr/dirty_shutdown", "4");
        put(&sys, "nmem2/nfit/flags", "");
        put(&sys, "region0/dirty_shutdown", "100");
        assert_eq!(dirty_shutdowns_in(sys.path()), 7);
        assert_eq!(dirty_shutdowns_in(Path::new("/nonexistent")), 0);
    }

    #[test]
    fn file_systems_in_memory_survive_only_a_process() {
        for write_back in [true, false] {
            let tmpfs = ordinary_file(Some(sys::TMPFS), write_back, true);
            assert_eq!((tmpfs.durability, &*tmpfs.what), (Durability::Process, "tmpfs"));
        }
        assert_eq!(ordinary_file(None, true, false).durability, Durability::Msync);
        assert_eq!(ordinary_file(None, true, true).durability, Durability::Journal);
        assert_eq!(ordinary_file(None, false, true).durability, Durability::Process);
    }
}
