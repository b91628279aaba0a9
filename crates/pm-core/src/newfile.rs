//! A file that has its name only when it is complete and durable.
//!
//! While it has a hidden name its process has a lock (`flock`) of it, so a hidden file without a lock was left behind
//! by a process that was killed. The next process that makes a file of the same name removes it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::pool::random_u128;
use crate::process::Process;
use crate::sys;

/// The temporary name of a file that this process has made. Dropping it removes the file, but not in a forked
/// child: there the file is the parent's, which goes on with it.
#[derive(Debug)]
pub(crate) struct Temporary {
    name: PathBuf,
    /// The process that made it; none when the file has its name.
    process: Option<Process>,
    /// A lock of it, if its own opening has none.
    _kept: Option<OwnedFd>,
}

impl Temporary {
    /// Takes the name of a file that was just created.
    pub(crate) fn new(name: PathBuf) -> Self {
        Self::locked(name, None)
    }

    /// Does the same for one with a lock beside that of its own opening.
    fn locked(name: PathBuf, lock: Option<OwnedFd>) -> Self {
        Self { name, process: Some(Process::current()), _kept: lock }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Ends it: the file has another name.
    pub(crate) fn end(mut self) {
        self.process = None;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.process.is_some_and(Process::is_current) {
            let _ = rustix::fs::unlink(&self.name); // never finished; nothing more can be done
        }
    }
}

/// A file in the making. It has no name (`O_TMPFILE`) until it is [finished](Self::finish), so a crash does
/// not leave it behind and another process's file is never in its way. Where the file system does not support
/// that, it has a hidden name made of a random number, which was never used before. Dropping it removes it, except
/// in a forked child; after a kill, the next process that makes a file of the name does.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    target: PathBuf,
    /// The file's temporary name, if it has one.
    temporary: Option<Temporary>,
}

impl NewFile {
    /// Starts a file that will be `target`, with these permission bits. `target` may exist.
    ///
    /// # Errors
    /// The system's.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        sweep(target);
        let (access, mode) = (OFlags::RDWR | OFlags::CLOEXEC, sys::mode(mode));
        let (fd, temporary) = match sys::create_unnamed(folder_of(target), access, mode) {
            Ok(fd) => (fd, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let (fd, temporary) = create_hidden(target, access, mode)?;
                (fd, Some(temporary))
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { file: fd.into(), target: target.into(), temporary })
    }

    /// Returns the file, for writing.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes the file durable and gives it its name, durably; with `replace`, it atomically replaces a file
    /// of that name.
    ///
    /// # Errors
    /// The system's; without `replace`, `AlreadyExists` if the name is taken.
    pub fn finish(mut self, replace: bool) -> io::Result<()> {
        self.file.sync_all()?; // durable before: the name
        if self.temporary.is_none() {
            let fd = self.file.try_clone()?.into();
            match sys::name_unnamed(&fd, &self.target) {
                Err(Errno::EXIST) if replace => {
                    let name = hidden_name(&self.target)?;
                    let kept = kept(&self.file)?; // before: it has the name
                    sys::name_unnamed(&fd, &name)?;
                    self.temporary = Some(Temporary::locked(name, kept));
                }
                named => named?,
            }
            // durable before: the directory, and a rename. btrfs logs nothing of a file without a name, and
            // would show an empty one.
            self.file.sync_all()?;
        }
        if let Some(temporary) = self.temporary {
            if replace {
                rustix::fs::rename(temporary.name(), &self.target)?;
            } else {
                sys::rename_new(temporary.name(), &self.target)?;
            }
            temporary.end();
        }
        File::open(folder_of(&self.target))?.sync_all()
    }
}

/// Returns the folder of `path`.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Creates a file with a hidden name, which is locked until it is closed.
pub(crate) fn create_hidden(
    target: &Path,
    access: OFlags,
    mode: Mode,
) -> io::Result<(OwnedFd, Temporary)> {
    loop {
        let name = hidden_name(target)?;
        // Exclusive: an existing file is not opened, and a link is not followed.
        let fd = rustix::fs::open(&name, OFlags::CREATE | OFlags::EXCL | access, mode)?;
        let temporary = Temporary::new(name);
        // Exclusive, as the file's owner may lock it again: to change the kind of a lock gives it up for a moment.
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if rustix::fs::fstat(&fd)?.st_nlink > 0 => return Ok((fd, temporary)),
            // Another process takes it for one that was left behind.
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            // No file of this file system can be locked, so none is removed either.
            Err(_) => return Ok((fd, temporary)),
        }
    }
}

/// Locks a file that is about to have a hidden name, until the result is closed, unless it is locked already. It is
/// another opening of the file: its own may have a lock, which stays as it is.
fn kept(file: &File) -> io::Result<Option<OwnedFd>> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let fd = rustix::fs::open(own, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let locked = rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared);
    Ok(locked.is_ok().then_some(fd))
}

/// Removes the hidden files of `target` that were left behind: a process made them, and was killed.
pub(crate) fn sweep(target: &Path) {
    let (folder, Some(name)) = (folder_of(target), target.file_name()) else { return };
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_hidden(&entry.file_name(), name)) {
        let access = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let Ok(fd) = rustix::fs::open(&path, access, Mode::empty()) else { continue };
        if is_file
            && rustix::fs::flock(fd.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = rustix::fs::unlink(&path); // or the next process does it
        }
    }
}

/// Returns `true` if a file's name is a [`hidden_name`] of `name`.
fn is_hidden(file: &OsStr, name: &OsStr) -> bool {
    let rest = file.as_bytes().strip_prefix(b".");
    let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
    let number = rest.and_then(|rest| rest.strip_prefix(b"."));
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    number.is_some_and(|number| number.len() == 32 && number.iter().all(is_digit))
}

/// Makes a name beside `path` that no other process uses.
pub(crate) fn hidden_name(path: &Path) -> io::Result<PathBuf> {
    let Some(name) = path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "a directory"));
    };
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{:032x}", random_u128()));
    Ok(path.with_file_name(hidden))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("my.pool");
        let access = OFlags::RDWR | OFlags::CLOEXEC;
        let make = || create_hidden(&target, access, sys::mode(0o600)).expect("room");
        let (left, living) = (make(), make());
        let left_name = left.1.name().to_owned();
        left.1.end(); // a kill runs no destructor
        drop(left.0);
        let others = [
            ".my.pool.0123456789abcdef0123456789abcde", // a digit less
            ".my.pool.0123456789abcdef0123456789abcdeg",
            ".my.pool2.0123456789abcdef0123456789abcdef",
            "my.pool.0123456789abcdef0123456789abcdef",
            ".my.pool",
        ];
        for name in others {
            fs::write(folder.path().join(name), "").expect("room");
        }
        let linked = folder.path().join(".my.pool.ffffffffffffffffffffffffffffffff");
        std::os::unix::fs::symlink(folder.path().join(".my.pool"), &linked).expect("a link");
        assert!(left_name.exists());
        let new = NewFile::create(&target, 0o600).expect("room");
        assert!(!left_name.exists(), "it is there still");
        assert!(living.1.name().exists() && linked.is_symlink());
        new.finish(false).expect("named");
        drop(living);
        assert_eq!(names(folder.path()).len(), others.len() + 2, "the target and the link");
    }

    /// Others make files of the same name meanwhile, and look for what was left behind.
    #[test]
    fn a_file_that_replaces_another_one_is_not_taken_for_one_that_was_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("my.pool");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let new = NewFile::create(&target, 0o600).expect("room");
                        new.finish(true).expect("it has its hidden name until then");
                        let access = OFlags::RDWR | OFlags::CLOEXEC;
                        let made = create_hidden(&target, access, sys::mode(0o600)).expect("room");
                        assert!(made.1.name().exists());
                    }
                });
            }
        });
        assert_eq!(names(folder.path()), ["my.pool"]);
    }

    /// A lock that the maker of a file has taken stays.
    #[test]
    fn a_locked_file_replaces_another_one_and_stays_locked() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("my.pool");
        fs::write(&target, "old").expect("room");
        let new = NewFile::create(&target, 0o600).expect("room");
        let held = new.file().try_clone().expect("another descriptor");
        let exclusive = FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&held, exclusive).expect("locked");
        new.finish(true).expect("named");
        let other = File::open(&target).expect("there");
        assert_eq!(rustix::fs::flock(&other, exclusive), Err(Errno::WOULDBLOCK));
    }
}
