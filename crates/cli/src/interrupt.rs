//! Removes the pools that a command created for itself if the user interrupts the program (Ctrl-C) or the
//! system asks it to end. Otherwise pools on tmpfs would occupy memory until the next boot.
//!
//! A thread waits for the signals. It removes the registered files, prints their names, and ends the
//! process by the signal, so that a shell sees how it ended. A signal that the program was started to
//! ignore (by `nohup`, or in a script's background job) stays ignored.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::table::bytes;

/// What happens to a file or folder when the program is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A pool of the command's own, which is removed with its journal and its twin.
    Remove,
    /// A file that is removed, and no other one.
    RemoveFile,
    /// A file that the user asked to keep; its path is printed.
    Keep,
    /// A folder that is removed with its contents.
    RemoveFolder,
    /// A folder on which a file system is mounted: it is unmounted and removed.
    Unmount,
}

static REGISTERED: Mutex<Vec<(PathBuf, Fate)>> = Mutex::new(Vec::new());

fn registered() -> MutexGuard<'static, Vec<(PathBuf, Fate)>> {
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registration, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Registered(PathBuf);

impl Registered {
    /// Registers the file or folder at `path`, which need not exist yet.
    pub(crate) fn new(path: &Path, fate: Fate) -> Self {
        start();
        registered().push((path.to_path_buf(), fate));
        Self(path.to_path_buf())
    }

    /// Creates a file and registers it: one of another process may have its name until then. An interruption waits until
    /// both are done.
    #[cfg(feature = "tools")]
    pub(crate) fn created<T, E>(
        fate: Fate,
        create: impl FnOnce() -> Result<(T, PathBuf), E>,
    ) -> Result<(T, Self), E> {
        start();
        let mut registered = registered();
        let (created, path) = create()?;
        registered.push((path.clone(), fate));
        Ok((created, Self(path)))
    }
}

impl Registered {
    /// Changes what happens to the file.
    pub(crate) fn set(&self, fate: Fate) {
        for (_, old) in registered().iter_mut().filter(|(path, _)| *path == self.0) {
            *old = fate;
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        registered().retain(|(path, _)| *path != self.0);
    }
}

/// Starts the thread, once.
fn start() {
    static WATCH: Once = Once::new();
    WATCH.call_once(watch);
}

/// Starts the thread. If that fails, the program still works, but leaves its files when it is interrupted.
fn watch() {
    let ignored = ignored_signals();
    let wanted =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let Ok(mut signals) = Signals::new(wanted) else { return };
    let waiter = std::thread::Builder::new().name("pmindex-signals".into());
    let _ = waiter.spawn(move || {
        for signal in signals.forever() {
            // From here on nothing is registered or removed from the list.
            let left = registered();
            clear_away(&left);
            let _ = emulate_default_handler(signal);
        }
    });
}

/// One bit for each signal that this process ignores, from signal 1 on.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

fn clear_away(left: &[(PathBuf, Fate)]) {
    // Overwrites a progress bar.
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
    eprintln!("interrupted");
    for (path, fate) in left {
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        match fate {
            Fate::Keep if path.exists() => {
                let twin = crate::temp_file::and_twin(path);
                eprintln!("kept {} ({}){twin}", path.display(), bytes(size));
            }
            Fate::Remove if crate::temp_file::remove(path).is_ok() => {
                eprintln!("removed {} ({})", path.display(), bytes(size));
            }
            Fate::RemoveFile if std::fs::remove_file(path).is_ok() => {
                eprintln!("removed {} ({})", path.display(), bytes(size));
            }
            Fate::Unmount => {
                let _ = Command::new("umount").arg("-l").arg(path).output();
                let _ = std::fs::remove_dir(path);
            }
            Fate::RemoveFolder => {
                let _ = std::fs::remove_dir_all(path);
            }
            // It did not exist yet, or was removed elsewhere.
            Fate::Keep | Fate::Remove | Fate::RemoveFile => {}
        }
    }
}
