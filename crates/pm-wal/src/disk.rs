//! What a log is written to.

use core::fmt::Debug;
use std::io;

/// A file, a device, or a simulation of them. Places and lengths are whole
/// [blocks](Self::block), and so is the memory that is read into and written from.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Bytes of a block, a power of two from 512 to 4096.
    fn block(&self) -> usize;

    /// Bytes of the disk.
    fn len(&self) -> u64;

    /// Whether the disk has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// The system's; also if the disk ends before `into` is full.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes blocks. They may become durable at any time, sector by sector in any order, and are when
    /// the next [`sync`](Self::sync) returns.
    ///
    /// # Errors
    /// The system's. Any part may have been written.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything that was written before durable.
    ///
    /// # Errors
    /// The system's. What was written may be durable or not, and never will be for certain.
    fn sync(&self) -> io::Result<()>;

    /// Writes blocks; these, at least, are durable on return.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`sync`](Self::sync).
    fn write_durably(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(at, bytes)?;
        self.sync()
    }
}
