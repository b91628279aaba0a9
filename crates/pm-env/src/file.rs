//! An open file, and a reader of it as a stream.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use pmindex_core::{Mapped, Medium};

use crate::env::Shared;
use crate::error::EnvError;
use crate::node::Node;

/// An open file. A handle: all clones, and all handles of the same name, are the same file.
///
/// A file that is deleted or replaced stays readable through open handles; its space is given back when the
/// last handle is dropped, or after a crash.
pub struct File<M: Medium = Mapped> {
    pub(crate) shared: Arc<Shared<M>>,
    /// `None` only during the drop.
    pub(crate) node: Option<Arc<Node>>,
}

impl<M: Medium> Clone for File<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), node: self.node.clone() }
    }
}

impl<M: Medium> fmt::Debug for File<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<M: Medium> Drop for File<M> {
    fn drop(&mut self) {
        let is_dead = self.node.take().is_some_and(|node| node.is_dead.load(Acquire));
        if is_dead {
            // Space that cannot be given back now is given back later, at the latest when the environment is
            // opened.
            let _ = self.shared.free_dead();
        }
    }
}

impl<M: Medium> File<M> {
    pub(crate) fn new(shared: &Arc<Shared<M>>, node: &Arc<Node>) -> Self {
        Self { shared: Arc::clone(shared), node: Some(Arc::clone(node)) }
    }

    fn node(&self) -> &Node {
        self.node.as_deref().unwrap_or_else(|| unreachable!("a file that is dropped"))
    }

    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.node().len()
    }

    /// Returns `true` if it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes, all or nothing: no reader sees a part of them, neither now nor after a crash.
    ///
    /// # Durability
    /// On return the bytes survive the death of the process, and after the next [`sync`](Self::sync) that of
    /// the system. Of appends that are not synchronised, a crash leaves a prefix.
    ///
    /// # Cost
    /// One fence and the lines of the bytes; two fences more for each new extent. Appends to one file are
    /// serialized.
    ///
    /// # Errors
    /// [`PmError::Full`](pmindex_core::PmError::Full) and other errors of the pool; then nothing is appended.
    pub fn append(&self, bytes: &[u8]) -> Result<(), EnvError> {
        self.shared.pool.check_writable()?;
        Ok(self.node().append(&self.shared.pool, &self.shared.extents, bytes)?)
    }

    /// Makes all earlier appends durable, by any thread.
    ///
    /// # Cost
    /// One line and one fence. The mode of the pool says what it survives:
    /// [`Pool::describe`](pmindex_core::Pool::describe).
    ///
    /// # Errors
    /// [`PmError::DurabilityLost`](pmindex_core::PmError::DurabilityLost).
    pub fn sync(&self) -> Result<(), EnvError> {
        self.shared.pool.check_writable()?;
        Ok(self.node().sync(&self.shared.pool)?)
    }

    /// Reads from an offset; returns the number of bytes, which is less than the buffer's only at the end of
    /// the file.
    ///
    /// # Errors
    /// [`PmError::Corrupt`](pmindex_core::PmError::Corrupt).
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, EnvError> {
        Ok(self.node().read_at(&self.shared.pool, offset, into)?)
    }

    /// Returns the whole contents.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    pub fn read_all(&self) -> Result<Vec<u8>, EnvError> {
        let mut bytes = vec![0; usize::try_from(self.len()).unwrap_or(usize::MAX)];
        let read = self.read_at(0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Returns a stream of the contents, from the start.
    #[must_use]
    pub fn reader(&self) -> Reader<M> {
        Reader { file: self.clone(), at: 0 }
    }
}

/// Appends; flushing calls [`sync`](File::sync). Wrap the file into a `BufWriter` if writes are small.
impl<M: Medium> Write for File<M> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.sync()?)
    }
}

/// A stream of the contents of a file.
#[derive(Clone, Debug)]
pub struct Reader<M: Medium = Mapped> {
    file: File<M>,
    at: u64,
}

impl<M: Medium> Read for Reader<M> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(self.at, into)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<M: Medium> Seek for Reader<M> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
