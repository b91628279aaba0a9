//! The index itself: what its operations share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pmindex_art::{Nodes, Tree};
use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{IndexError, Key, Noted, RecoveryReport, Stats, Value};

use crate::directory::{Directory, KeyLocation};
use crate::epalloc::Chunks;
use crate::layout::{ChunkShape, Root, Segment, record_words};
use crate::record::Records;

/// A persistent, concurrent ordered map: HART.
///
/// `CHUNK` is the number of records of a chunk (at most 56), `PREFIX` the number of bytes of a key
/// that choose its tree (at most 3).
///
/// # Cost
///
/// Flushed lines and fences per operation, for records without objects and no chunk made or given
/// back: insert 1 and 1, update 1 and 1 (8-byte values; else 2 fences), remove 1 and 1, reads none.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_hart::Hart; }
/// use std::sync::Arc;
/// use pmindex::{Hart, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let words = Hart::<String, u64>::create(&pool, "words")?;
/// words.insert("persistent", &1)?;
/// words.insert("memory", &2)?;
/// assert_eq!(words.remove("persistent")?, Some(1));
/// drop(words); // as if the process had died
/// let words = Hart::<String, u64>::open(&pool, "words")?;
/// assert_eq!(words.first_key_value()?, Some(("memory".to_owned(), 2)));
/// # Ok(())
/// # }
/// ```
pub struct Hart<K, V, M: Medium = Mapped, const CHUNK: usize = 56, const PREFIX: usize = 2> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) records: Records<K, V, M, PREFIX>,
    pub(crate) directory: Directory<PREFIX>,
    pub(crate) nodes: Nodes,
    pub(crate) chunks: Chunks,
    /// By the hash of a key.
    pub(crate) locks: VersionTable,
    /// Held while a bulk load shows its trees, one after another.
    pub(crate) loads: VersionLock,
    /// Records per lock, changed under it, modulo 2^64.
    pub(crate) counts: Box<[AtomicU64]>,
    pub(crate) report: RecoveryReport,
    /// Last: another opening of the index may begin when this is dropped.
    pub(crate) entry: OpenIndex,
}

impl<K, V, M: Medium, const CHUNK: usize, const PREFIX: usize> std::fmt::Debug
    for Hart<K, V, M, CHUNK, PREFIX>
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hart").field("name", &self.entry.name).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    /// The shape of chunks of records.
    pub(crate) const RECORDS: ChunkShape = ChunkShape::records(record_words::<K>(), CHUNK);

    #[inline(always)]
    pub(crate) fn pm(&self) -> &M {
        self.pool.pm()
    }

    /// Returns the lock of the key with this hash.
    #[inline(always)]
    pub(crate) fn lock_of(&self, hash: u64) -> &VersionLock {
        self.locks.of(hash)
    }

    /// Waits while a bulk load shows its trees: for a call that has found a record and waits for no key's lock. A
    /// call that then finds none of another one comes after the load.
    #[inline(always)]
    pub(crate) fn await_load(&self) {
        self.loads.begin_read(self.pm());
    }

    /// Returns the tree of a directory entry.
    #[inline(always)]
    pub(crate) fn tree(&self, entry: usize) -> Tree<'_, Records<K, V, M, PREFIX>> {
        Tree::new(&self.nodes, self.directory.root(entry), &self.records)
    }

    /// Returns the place of a key.
    #[inline(always)]
    pub(crate) fn home(key: &[u8]) -> KeyLocation<'_> {
        Directory::<PREFIX>::home(key)
    }

    /// Notes `change` (modulo 2^64) records of the key with this hash, whose lock is held.
    #[inline(always)]
    pub(crate) fn count(&self, hash: u64, change: u64) {
        let count = &self.counts[self.locks.index_of(hash)];
        count.store(count.load(Relaxed).wrapping_add(change), Relaxed);
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns the number of records. Complexity: the number of key locks. Exact when no write is in
    /// progress; otherwise each lock's number is that of some moment.
    pub fn len(&self) -> Result<u64, IndexError> {
        Ok(self.counts.iter().fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed))))
    }

    /// Returns the report of the opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Sizes. `leaves` are chunks of records; `height` counts the directory, the deepest way down to
    /// the first and the last record, and the record. Complexity: the number of chunks.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        self.stats_inner().noted(&self.pool)
    }

    fn stats_inner(&self) -> Result<Stats, IndexError> {
        let pm = self.pm();
        let [n4, n16, n48, n256] = self.nodes.counts();
        let dram = self.nodes.bytes() as u64
            + Directory::<PREFIX>::bytes()
            + self.chunks.bytes(pm)
            + 16 * self.counts.len() as u64;
        let segments = self.chunks.segments(pm).len() * size_of::<Segment>();
        let mut stats = Stats {
            records: self.len()?,
            inners: (n4 + n16 + n48 + n256) as u64,
            dram_bytes: dram,
            pm_bytes: (size_of::<Root>() + segments) as u64,
            height: self.height(),
            ..Stats::default()
        };
        self.chunks.each(pm, |_, _, shape, _| {
            stats.leaves += u64::from(!shape.is_objects());
            stats.pm_bytes += shape.bytes();
            Ok(())
        })?;
        Ok(stats)
    }

    fn height(&self) -> u32 {
        let ends = [(0, true), (Directory::<PREFIX>::ENTRIES - 1, false)];
        let deepest = ends.iter().filter_map(|&(from, up)| {
            let entry = self.directory.next(from, up)?;
            Some(self.tree(entry).height(self.pm()))
        });
        2 + deepest.max().unwrap_or(0)
    }
}

pmindex_index::impl_index!(Hart<K, V, M, CHUNK: usize, PREFIX: usize>, "hart");
