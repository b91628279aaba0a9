//! A file that has its name only when it is complete and durable.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
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
}

impl Temporary {
    /// Takes the name of a file that was just created.
    pub(crate) fn new(name: PathBuf) -> Self {
        Self { name, process: Some(Process::current()) }
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
/// in a forked child.
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
        let (access, mode) = (OFlags::RDWR | OFlags::CLOEXEC, sys::mode(mode));
        let (fd, temporary) = match sys::create_unnamed(folder_of(target), access, mode) {
            Ok(fd) => (fd, None),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = hidden_name(target)?;
                // Exclusive: an existing file is not opened, and a link is not followed.
                let fd = rustix::fs::open(&name, OFlags::CREATE | OFlags::EXCL | access, mode)?;
                (fd, Some(Temporary::new(name)))
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
                    sys::name_unnamed(&fd, &name)?;
                    self.temporary = Some(Temporary::new(name));
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
