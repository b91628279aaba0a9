//! The disk that a log is written to.

use core::fmt::Debug;
use std::io;

/// A file, a device, or a simulation of them. Offsets and lengths are whole [blocks](Self::block), and so is
/// the memory for reading and writing.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Returns the bytes of a block, a power of two from 512 to 4096.
    fn block(&self) -> usize;

    /// Returns the bytes of the disk.
    fn len(&self) -> u64;

    /// Returns `true` if the disk has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads blocks.
    ///
    /// # Errors
    /// The system's; also if the disk ends before `into` is full.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes blocks. They may become durable at any time, sector by sector in any order; all of them are
    /// durable when the next [`sync`](Self::sync) returns.
    ///
    /// # Errors
    /// The system's. Any part may have been written.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    /// The system's. Then earlier writes may be durable or not, and no later sync changes that.
    fn sync(&self) -> io::Result<()>;

    /// Writes blocks, which are durable on return.
    ///
    /// # Errors
    /// As [`write`](Self::write) and [`sync`](Self::sync).
    fn write_durably(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write(at, bytes)?;
        self.sync()
    }
}
