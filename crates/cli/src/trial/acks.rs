//! Acknowledgements: what outlives the writing process.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::crash::MAX_THREADS;

/// Where acknowledgements go.
#[derive(Debug)]
pub(crate) enum Acks {
    /// A byte for each step into standard output, a pipe: it is the kernel's and outlives the
    /// process.
    Pipe(File),
    /// Each thread's count into a file: on persistent memory that file outlives the machine.
    Counters(File),
}

impl Acks {
    /// Through standard output.
    pub(crate) fn pipe() -> io::Result<Self> {
        // Not `Stdout`: its buffer would hold acknowledgements back.
        Ok(Self::Pipe(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
    }

    /// In a new file, which is durable with its name before this returns: later only its bytes
    /// change.
    pub(crate) fn counters(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all_at(&[0; 8 * MAX_THREADS], 0)?;
        file.sync_all()?;
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            File::open(dir)?.sync_all()?;
        }
        Ok(Self::Counters(file))
    }

    /// Thread `thread` has done `steps` steps.
    pub(crate) fn acknowledge(&self, thread: usize, steps: u64) -> io::Result<()> {
        match self {
            Self::Pipe(file) => (&*file).write_all(&[u8::try_from(thread).unwrap_or(u8::MAX)]),
            Self::Counters(file) => file.write_all_at(&steps.to_le_bytes(), 8 * thread as u64),
        }
    }
}

/// The counts in a file.
pub(crate) fn read_counters(path: &Path, threads: usize) -> io::Result<Vec<u64>> {
    let bytes = std::fs::read(path)?;
    let counts = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    Ok(counts.take(threads).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_hold_each_threads_last_step() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("acks");
        let acks = Acks::counters(&path).expect("made");
        for step in 1..=300 {
            acks.acknowledge(1, step).expect("written");
        }
        acks.acknowledge(0, 7).expect("written");
        assert_eq!(read_counters(&path, 3).expect("readable"), [7, 300, 0]);
        assert!(Acks::counters(&path).is_err(), "it counts for another trial");
    }
}
