//! Folders that are created for something that may fail: then they are removed again.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::Error;

/// Folders that did not exist before. When this is dropped, those that are empty are removed.
#[derive(Debug)]
pub(crate) struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Creates a folder, and those that it is in.
    ///
    /// # Errors
    /// [`Error::Folder`] if there is a file of this name; the system's.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        check(path)?;
        let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let missing = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
        let new = Self(missing);
        fs::create_dir_all(path).map_err(Error::io(path.display()))?;
        Ok(new)
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        // The innermost one first. Removing one that is not empty fails, as it should.
        let _ = self.0.iter().try_for_each(fs::remove_dir);
    }
}

/// Refuses a path that names something else than a folder; it may be missing.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            let what = "this is a file; name a folder, which is created if it is missing".into();
            Err(Error::Folder { path: path.into(), what })
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path.display())(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_and_empty_folders_are_removed() {
        let base = tempfile::tempdir().expect("a folder");
        let deep = base.path().join("a/b/c");
        drop(NewFolders::create(&deep).expect("created"));
        assert!(!base.path().join("a").exists());
        drop(NewFolders::create(base.path()).expect("there"));
        assert!(base.path().exists(), "it is empty, but not new");
        let new = NewFolders::create(&deep).expect("created");
        fs::write(base.path().join("a/file"), "x").expect("written");
        drop(new);
        assert!(!base.path().join("a/b").exists() && base.path().join("a/file").exists());
        for path in [base.path().join("a/file"), base.path().join("a/file/b")] {
            assert!(NewFolders::create(&path).is_err(), "{path:?}");
        }
    }
}
