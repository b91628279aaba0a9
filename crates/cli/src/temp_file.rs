//! The file of a pool that a command creates for itself, and its removal.

use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::interrupt::{Fate, Registered};
use crate::medium::{MediumArgs, twin_of};

/// The folder of tmpfs on Linux.
pub(crate) const TMPFS: &str = "/dev/shm";
/// A folder that is on a disk on all common systems; the temporary folder may be on tmpfs.
const DISK: &str = "/var/tmp";

/// A file that is removed when this is dropped, and when the program is interrupted.
#[derive(Debug)]
pub(crate) struct TempFile {
    path: PathBuf,
    keep: bool,
    registered: Registered,
}

impl TempFile {
    /// Chooses a new file name in `dir`; by default in tmpfs if that has `room` bytes and can give the
    /// requested durability, else in the temporary folder, or in [`DISK`] if a disk is needed. A pool with a twin
    /// is in tmpfs in any case: a full one says so itself.
    pub(crate) fn new(
        (dir, medium): (Option<&Path>, MediumArgs),
        name: &str,
        room: u64,
        keep: bool,
    ) -> Result<Self, CliError> {
        let dir = match dir {
            Some(dir) => dir.to_path_buf(),
            None if medium.needs_disk() => DISK.into(),
            None if medium.has_twin() => TMPFS.into(),
            None if has_room(Path::new(TMPFS), room) => TMPFS.into(),
            None => std::env::temp_dir(),
        };
        if !dir.is_dir() {
            return Err(CliError::NoFolder { dir });
        }
        let path = dir.join(format!("pmindex-{name}-{}.pm", std::process::id()));
        let fate = if keep { Fate::Keep } else { Fate::Remove };
        let registered = Registered::new(&path, fate);
        Ok(Self { path, keep, registered })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the file after all: it shows what went wrong.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
        self.registered.set(Fate::Keep);
    }

    /// Keeps the file if it exists, and returns the error of the trial that was made with it: with the path
    /// and the `seed` of the trial.
    pub(crate) fn keep_for(&mut self, error: CliError, seed: u64) -> CliError {
        if !self.path.exists() {
            return error;
        }
        self.keep();
        CliError::Kept { error: Box::new(error), pool: self.path.clone(), seed }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.keep {
            // It may not have been created.
            let _ = remove(&self.path);
        }
    }
}

/// Removes a pool's file, and its journal and twin if they exist.
pub(crate) fn remove(path: &Path) -> std::io::Result<()> {
    let mut journal = path.as_os_str().to_owned();
    journal.push(".journal");
    let _ = std::fs::remove_file(journal); // only some pools have one
    let _ = std::fs::remove_file(twin_of(path));
    std::fs::remove_file(path)
}

/// Returns the words that name a pool's twin, if it has one that is not beside it.
pub(crate) fn and_twin(pool: &Path) -> String {
    let twin = Some(twin_of(pool)).filter(|twin| twin.exists());
    twin.map_or_else(String::new, |twin| format!(", and its twin {}", twin.display()))
}

/// Returns `true` if the file system of `dir` has `room` free bytes.
pub(crate) fn has_room(dir: &Path, room: u64) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::tests as medium;

    /// On a disk it would be refused, with an error about a folder that the user did not choose.
    #[test]
    fn a_pool_with_a_twin_is_in_memory_whatever_room_is_there() {
        let medium = |mode| medium::parsed(&["--durability", mode]).expect("a mode");
        let place = |mode| TempFile::new((None, medium(mode)), "room", u64::MAX, false);
        if Path::new(TMPFS).is_dir() {
            let place = place("periodic").expect("a folder");
            assert!(place.path().starts_with(TMPFS), "{place:?}");
        } else {
            assert!(matches!(place("periodic"), Err(CliError::NoFolder { .. })));
        }
        let place = place("process").expect("a folder");
        assert!(place.path().starts_with(std::env::temp_dir()), "{place:?}");
    }

    #[test]
    fn what_is_kept_is_named_with_its_twin() {
        let pool = PathBuf::from(format!("/dev/shm/kept-{}.pm", std::process::id()));
        let kept = || {
            let error = Box::new(CliError::Lost);
            CliError::Kept { error, pool: pool.clone(), seed: 7 }.to_string()
        };
        assert!(!kept().contains("twin"), "{}", kept());
        std::fs::write(twin_of(&pool), "").expect("written");
        let said = kept();
        std::fs::remove_file(twin_of(&pool)).expect("removed");
        assert!(said.contains(&format!("{}", twin_of(&pool).display())), "{said}");
    }

    #[test]
    fn no_file_system_has_room_for_everything() {
        let dir = tempfile::tempdir().expect("a folder");
        assert!(has_room(dir.path(), 0));
        assert!(!has_room(dir.path(), u64::MAX), "so bench must ask where to measure");
        assert!(!has_room(Path::new("no/such/folder"), 0));
    }
}
