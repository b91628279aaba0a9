//! An open file, and what reads it as a stream.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use pmindex_core::{Mapped, Medium};

use crate::env::Shared;
use crate::error::EnvError;
use crate::node::Node;

/// An open file. A handle: clones are the same file, and files of one name are, too.
///
/// A file that is deleted, or replaced, stays readable to who has it open; its space is given back
/// when the last handle is dropped, or after a crash.
pub struct File<M: Medium = Mapped> {
    pub(crate) shared: Arc<Shared<M>>,
    /// `None` only while it is dropped.
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
            // What cannot be given back now is later, by the next opening at the latest.
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

    /// Bytes that it has.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.node().len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends. All of it or nothing: whoever reads sees no part of it, neither now nor after a crash.
    ///
    /// # Durability
    /// Survives the death of the process when it returns, and that of the system after the next
    /// [`sync`](Self::sync); of appends that are not synced a crash leaves the first ones.
    ///
    /// # Cost
    /// One fence and the lines of the bytes; two fences more for each new extent. One append at a time
    /// is made to a file.
    ///
    /// # Errors
    /// [`PmError::Full`](pmindex_core::PmError::Full) and the pool's; nothing is appended then.
    pub fn append(&self, bytes: &[u8]) -> Result<(), EnvError> {
        self.shared.pool.check_writable()?;
        Ok(self.node().append(&self.shared.pool, &self.shared.extents, bytes)?)
    }

    /// Makes durable what was appended before, by anybody.
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

    /// Reads from an offset on; how many bytes, fewer than the buffer has only at the end of the file.
    ///
    /// # Errors
    /// [`PmError::Corrupt`](pmindex_core::PmError::Corrupt).
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, EnvError> {
        Ok(self.node().read_at(&self.shared.pool, offset, into)?)
    }

    /// All that it has.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn read_all(&self) -> Result<Vec<u8>, EnvError> {
        let mut bytes = vec![0; usize::try_from(self.len()).unwrap_or(usize::MAX)];
        let read = self.read_at(0, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// A stream of what it has, from the start.
    #[must_use]
    pub fn reader(&self) -> Reader<M> {
        Reader { file: self.clone(), at: 0 }
    }
}

/// Appends; flushing is [`sync`](File::sync). Wrap it into a `BufWriter` if writes are small.
impl<M: Medium> Write for File<M> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(self.sync()?)
    }
}

/// A stream of what a file has.
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
