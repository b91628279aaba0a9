//! Acknowledgements: the number of completed steps of each thread, in a file outside the pool.
//!
//! What a process has written to a file is in the kernel's pages, and survives a kill of the process. A
//! file on persistent memory also survives a crash of the machine.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum number of writing threads: each has a word in the file.
pub(crate) const MAX_THREADS: usize = 64;

/// A file of acknowledgements: word `n` counts the steps of thread `n`.
#[derive(Debug)]
pub(crate) struct Acks(File);

impl Acks {
    /// Creates a file without a name for a child process, which inherits it as standard output.
    pub(crate) fn anonymous() -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            // Other threads make such files, too, and a killed process may have left one.
            let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
            let path = std::env::temp_dir().join(format!("pmindex-acks-{process}-{number}"));
            match Self::zeroed(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                acks => {
                    let acks = acks?;
                    std::fs::remove_file(path)?;
                    return Ok(acks);
                }
            }
        }
    }

    /// Returns the file that this process has inherited.
    pub(crate) fn inherited() -> io::Result<Self> {
        Ok(Self(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// Creates a file that survives a crash of the machine: when this returns, the file and its name are
    /// durable, and later only its words change.
    pub(crate) fn durable(path: &Path) -> io::Result<Self> {
        let acks = Self::zeroed(path)?;
        acks.0.sync_all()?;
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            File::open(dir)?.sync_all()?;
        }
        Ok(acks)
    }

    /// Opens a file for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }

    /// Returns the file as standard output for a child process.
    pub(crate) fn to_stdout(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// Records that `steps` steps of thread `thread` have returned.
    pub(crate) fn acknowledge(&self, thread: usize, steps: u64) -> io::Result<()> {
        self.0.write_all_at(&steps.to_le_bytes(), 8 * thread as u64)
    }

    /// Returns the steps of each of the first `threads` threads.
    pub(crate) fn read(&self, threads: usize) -> io::Result<Vec<u64>> {
        let mut bytes = [0; 8 * MAX_THREADS];
        self.0.read_exact_at(&mut bytes, 0)?;
        let counts = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        Ok(counts.take(threads).collect())
    }

    fn zeroed(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.write_all_at(&[0; 8 * MAX_THREADS], 0)?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_make_files_at_the_same_time() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| _ = Acks::anonymous().expect("made")));
            }
        });
    }

    #[test]
    fn words_hold_each_threads_last_step() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("acks");
        let acks = Acks::durable(&path).expect("made");
        for step in 1..=300 {
            acks.acknowledge(1, step).expect("written");
        }
        acks.acknowledge(0, 7).expect("written");
        assert_eq!(Acks::open(&path).and_then(|acks| acks.read(3)).expect("readable"), [7, 300, 0]);
        assert!(Acks::durable(&path).is_err(), "it counts for another trial");
    }

    #[test]
    fn a_file_without_a_name_is_shared_with_a_child() {
        let acks = Acks::anonymous().expect("made");
        let mut child = std::process::Command::new("printf");
        child.arg("\\005").stdout(acks.to_stdout().expect("shared"));
        assert!(child.status().expect("it runs").success());
        assert_eq!(acks.read(2).expect("readable"), [5, 0]);
    }
}
