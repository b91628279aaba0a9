//! The process that has a pool open for writing, as the kernel shows it.

use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process that has a pool open for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Writer {
    /// Its process id.
    pub process: u32,
    /// The name of its program.
    pub name: String,
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.process, self.name)
    }
}

impl Writer {
    /// Returns the process that holds the writer's lock on a pool, its journal or its twin, if the kernel shows it; it
    /// hides processes of another namespace or user. The result may be out of date when this returns.
    ///
    /// # Cost
    /// Reads `/proc/locks`, and the list of open files of the process.
    pub fn of(path: impl AsRef<Path>) -> Option<Self> {
        Self::of_file(&fs::metadata(path).ok()?)
    }

    /// Does the same for a file, also if the path names another one by now.
    #[must_use]
    pub fn of_file(file: &Metadata) -> Option<Self> {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let inode = format!(":{}", file.ino());
        let holders = locks.lines().filter_map(|line| {
            // 3: FLOCK  ADVISORY  WRITE 1234 00:1b:5678 0 EOF
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, "FLOCK", _, "WRITE", process, place, ..] = fields[..] else { return None };
            place.ends_with(&inode).then(|| process.parse::<u32>().ok()).flatten()
        });
        // Two file systems may have the same inode number, so compare with the files that the process has open.
        let holds = |process: &u32| {
            let open = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
            open.filter_map(|entry| fs::metadata(entry.path()).ok())
                .any(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
        };
        let process = holders.into_iter().find(holds)?;
        let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some(Self { process, name: name.trim().to_owned() })
    }
}
