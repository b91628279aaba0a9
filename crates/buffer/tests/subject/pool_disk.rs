//! A disk that is a block of a pool, so that a crash is of both.
//!
//! What is written to it is a copy, of which a crash leaves any words, until a sync flushes and fences it: it
//! tears in more ways than a real one. The disk is a logical thread of its own: its sync is no fence of the thread
//! that calls it.

use std::sync::Arc;
use std::{fmt, io};

use parking_lot::Mutex;
use pmindex_core::trace::alone_as;
use pmindex_core::{Flushed, Medium, OpenIndex, PmError, PmU64, Pool, Traced, pm_struct};
use pmindex_wal::Disk;

pm_struct! {
    /// The disk.
    #[align(64)]
    struct DiskRoot: size 8192 {
        words: [PmU64; 1024],
    }
}

/// The logical thread of the disks.
pub(crate) const DEVICE: u16 = 9;

/// A disk in a pool.
pub(crate) struct PoolDisk<M: Medium = Traced> {
    bytes: u64,
    pool: Arc<Pool<M>>,
    open: OpenIndex,
    /// What was written since the last sync.
    written: Mutex<Vec<(usize, usize)>>,
}

impl<M: Medium> fmt::Debug for PoolDisk<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolDisk").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<M: Medium> PoolDisk<M> {
    /// A disk of zeros, of so many bytes.
    pub(crate) fn create(pool: &Arc<Pool<M>>, bytes: u64) -> Result<Self, PmError> {
        Self::create_as(pool, "disk", bytes)
    }

    /// Another one, of this name.
    pub(crate) fn create_as(pool: &Arc<Pool<M>>, name: &str, bytes: u64) -> Result<Self, PmError> {
        let open = pool.create_index::<DiskRoot>(name, *b"disk    ", 1, |root| {
            pool.pm().write_words(&root.words, &[0; 1024]);
            pool.pm().flush(root)
        })?;
        Ok(Self { bytes, pool: Arc::clone(pool), open, written: Mutex::default() })
    }

    /// The disk of a pool.
    pub(crate) fn open(pool: &Arc<Pool<M>>, bytes: u64) -> Result<Option<Self>, PmError> {
        Self::open_as(pool, "disk", bytes)
    }

    /// The one of this name.
    pub(crate) fn open_as(
        pool: &Arc<Pool<M>>,
        name: &str,
        bytes: u64,
    ) -> Result<Option<Self>, PmError> {
        let open = pool.open_index(name)?;
        let disk = |open| Self { bytes, pool: Arc::clone(pool), open, written: Mutex::default() };
        Ok(open.map(disk))
    }

    fn words(&self) -> io::Result<&[PmU64]> {
        let root = self.pool.get(self.open.root::<DiskRoot>());
        root.map(|root| &root.words[..]).map_err(io::Error::other)
    }
}

impl<M: Medium> Disk for PoolDisk<M> {
    fn block(&self) -> usize {
        512
    }

    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let first = at as usize / 8;
        self.pool.pm().read_bytes(&self.words()?[first..first + into.len() / 8], into);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (words, _) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (first, pm) = (at as usize / 8, self.pool.pm());
        let cells = &self.words()?[first..first + words.len()];
        pm.yield_point();
        alone_as(DEVICE, || pm.write_words(cells, &words));
        pm.lock(&self.written).push((first, words.len()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let pm = self.pool.pm();
        let written = std::mem::take(&mut *pm.lock(&self.written));
        pm.handover_point();
        alone_as(DEVICE, || {
            let mut flushed = Flushed::nothing();
            for (first, count) in written {
                flushed = flushed.and(pm.flush_words(&self.words()?[first..first + count]));
            }
            pm.fence(flushed).map(|_| ()).map_err(io::Error::other)
        })
    }
}

/// The block of a pool's disk, for the audit.
pub(crate) fn block(pool: &Pool<Traced>) -> Result<Option<u64>, PmError> {
    Ok(pool.find_index("disk")?.map(|disk| disk.block()))
}
