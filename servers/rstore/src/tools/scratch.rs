//! A new folder for the files of a trial.

use std::path::Path;

use tempfile::TempDir;

use crate::Error;
use crate::folders::NewFolders;

/// A new folder, in which no server has records. Removed when this is dropped, with the folders that were created
/// for it.
#[derive(Debug)]
pub(super) struct Scratch {
    inner: TempDir,
    /// Removed after the inner one.
    _outer: NewFolders,
}

impl Scratch {
    /// Makes one in this folder, which is created if it is missing.
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        let outer = NewFolders::create(folder)?;
        let inner = tempfile::Builder::new().prefix("rstore-trial-").tempdir_in(folder);
        Ok(Self { inner: inner.map_err(Error::io(folder.display()))?, _outer: outer })
    }

    pub(super) fn path(&self) -> &Path {
        self.inner.path()
    }

    /// Removes it, or keeps its files after an error: they show what went wrong.
    pub(super) fn end(mut self, done: Result<(), Error>) -> Result<(), Error> {
        let has_files = self.path().read_dir().is_ok_and(|mut files| files.next().is_some());
        if done.is_err() && has_files {
            self.inner.disable_cleanup(true);
            eprintln!("rstore: the files are kept in {}", self.path().display());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_of_a_failed_trial_are_kept() {
        let base = tempfile::tempdir().expect("a folder");
        let lost = || Err(Error::Lost { lost: 1, acknowledged: 2 });
        for (done, has_file, stays) in
            [(Ok(()), true, false), (lost(), false, false), (lost(), true, true)]
        {
            let scratch = Scratch::new(&base.path().join("a/b")).expect("a folder");
            let path = scratch.path().to_owned();
            if has_file {
                fs::write(path.join("pool"), "x").expect("written");
            }
            assert_eq!(scratch.end(done).is_err(), stays || !has_file);
            assert_eq!(path.join("pool").exists(), stays);
            assert_eq!(base.path().join("a").exists(), stays);
        }
    }
}
