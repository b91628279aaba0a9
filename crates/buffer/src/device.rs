//! Pages on the disk.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use pmindex_wal::{Buffer as Aligned, Disk};

use crate::error::BufferError;

/// The disk, page by page.
#[derive(Debug)]
pub(crate) struct Device {
    disk: Arc<dyn Disk>,
    page_bytes: u64,
    /// A write or a sync failed: a later one that succeeds proves nothing about earlier writes.
    failed: AtomicBool,
}

impl Device {
    pub(crate) fn new(disk: Arc<dyn Disk>, page_bytes: u64) -> Self {
        Self { disk, page_bytes, failed: AtomicBool::new(false) }
    }

    /// Returns the number of pages that it has room for.
    pub(crate) fn pages(&self) -> u64 {
        self.disk.len() / self.page_bytes
    }

    pub(crate) fn read(&self, page: u64) -> Result<Vec<u64>, BufferError> {
        let words = read_words(&*self.disk, page * self.page_bytes, self.page_bytes as usize / 8);
        words.map_err(BufferError::disk("reading a page"))
    }

    pub(crate) fn write(&self, page: u64, image: &[u64]) -> Result<(), BufferError> {
        self.write_all(&[(page, image)])
    }

    /// Writes adjacent pages, at once.
    pub(crate) fn write_all(&self, pages: &[(u64, &[u64])]) -> Result<(), BufferError> {
        self.check()?;
        let Some((first, _)) = pages.first() else { return Ok(()) };
        let words = pages.iter().flat_map(|(_, image)| image.iter().copied());
        let bytes = blocks_of(words, pages.len() * self.page_bytes as usize);
        self.done("writing a page", self.disk.write(first * self.page_bytes, bytes.as_slice()))
    }

    pub(crate) fn sync(&self) -> Result<(), BufferError> {
        self.check()?;
        self.done("making pages durable", self.disk.sync())
    }

    /// Returns an error after a failure.
    pub(crate) fn check(&self) -> Result<(), BufferError> {
        if self.failed.load(Acquire) {
            let error = std::io::Error::other("it failed before");
            return Err(BufferError::disk("writing after a failure")(error));
        }
        Ok(())
    }

    fn done(&self, doing: &'static str, result: std::io::Result<()>) -> Result<(), BufferError> {
        result.map_err(|error| {
            self.failed.store(true, Release);
            BufferError::disk(doing)(error)
        })
    }
}

/// Reads words from a disk.
pub(crate) fn read_words(disk: &dyn Disk, at: u64, count: usize) -> std::io::Result<Vec<u64>> {
    let mut bytes = Aligned::zeros(8 * count);
    disk.read(at, bytes.as_mut_slice())?;
    let (words, _) = bytes.as_slice().as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// Returns words as bytes for a disk, with zeros behind them.
pub(crate) fn blocks_of(words: impl Iterator<Item = u64>, bytes: usize) -> Aligned {
    let mut blocks = Aligned::zeros(bytes);
    let (cells, _) = blocks.as_mut_slice().as_chunks_mut::<8>();
    for (cell, word) in cells.iter_mut().zip(words) {
        *cell = word.to_le_bytes();
    }
    blocks
}
