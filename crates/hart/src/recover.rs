//! Creating and opening: the trees are built from the chunks.
//!
//! After a clean shutdown there is an image of them ([`shutdown`](crate::shutdown)), and phases 2 to 4
//! are spared. Otherwise:
//!
//! | phase | what | by |
//! |-------|------|----|
//! | 1 | the table: where the chunks are; what a bulk load left unfinished is discarded | one thread |
//! | 2 | chunks of records: the key of each live record; the objects that it leads to are marked | all threads |
//! | 3 | the records sorted by key, those of some directory entries at a time | all threads |
//! | 4 | a tree for each of these entries, each node made once ([`rebuild`](crate::rebuild)) | all threads |
//! | 5 | chunks without anything live are given back | one thread |
//!
//! Nothing but phases 1 and 5 writes to the pool, and each of their steps is one ticket, so opening
//! may be interrupted anywhere. (After phase 4 the bits of records that a [move](crate::sparse) left there twice
//! are cleared, which may be interrupted too.) What was handed out and not committed is free because nothing says
//! otherwise.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use pmindex_core::sync::{VersionLock, VersionTable};
use pmindex_core::{LINE, Medium, OpenIndex, PPtr, PmError, Pool};
use pmindex_index::{IndexError, IndexFormat, Key, Noted, RecoveryReport, Value};

use crate::bulk::discard_unfinished;
use crate::directory::Directory;
use crate::epalloc::Chunks;
use crate::layout::{
    ChunkPtr, ChunkShape, KIND, LineWord, Root, Segment, layout_id, layout_id_of, per_line,
    record_words,
};
use crate::record::Records;
use crate::shutdown::free_pieces;
use crate::tree::Hart;

/// Chunks below which one thread does everything.
pub(crate) const FEW: usize = 256;
/// How far ahead of the current header another one is prefetched.
const AHEAD: usize = 16;

impl<K: Key, V: Value, M: Medium, const CHUNK: usize, const PREFIX: usize>
    Hart<K, V, M, CHUNK, PREFIX>
{
    fn wanted() -> String {
        format!("hart<{}, {}, {CHUNK}>", K::type_name(), V::type_name())
    }

    /// As what it stands in the directory.
    pub(crate) fn index_format() -> IndexFormat<fn() -> String> {
        IndexFormat {
            kind: KIND,
            layout: layout_id::<K, V, CHUNK>(),
            layout_of: layout_id_of::<CHUNK>,
            wanted: Self::wanted,
        }
    }

    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let index = Self::index_format().create(pool, name, |root: &Root| {
            let pm = pool.pm();
            pm.store(&root.table, PPtr::NULL);
            pm.store(&root.bulk_load, 0);
            pm.store(&root.image, PPtr::NULL);
            root.reserved.iter().for_each(|word| pm.store(word, 0));
            pm.flush(root)
        })?;
        Self::start(pool, index)
    }

    /// Opens the index `name`, and recovers it. It may be opened with another `PREFIX`, which affects DRAM
    /// only.
    ///
    /// A damaged clean-shutdown image is dropped, and the trees are built from the records: then the
    /// [report](Self::recovery_report) has `clean`, not `from_image`, and, if the list of its parts was cut
    /// off, counts that as a repair. Parts that can no longer be reached stay allocated, which an audit of
    /// the pool reports.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`], [`IndexError::WrongLayout`]; the
    /// pool's.
    pub fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::start(pool, Self::index_format().open(pool, name)?).noted(pool)
    }

    fn start(pool: &Arc<Pool<M>>, entry: OpenIndex) -> Result<Self, IndexError> {
        let started = Instant::now();
        let _recovery = pool.recovery();
        let root = pool.get(entry.root::<Root>())?;
        let discarded = discard_unfinished(pool, root)?;
        // Few enough locks to stay in the cache, many enough that two threads seldom meet.
        let locks = VersionTable::new((pool.len() / 1024).max(16).ilog2().clamp(4, 13));
        let counts = (0..locks.len()).map(|_| AtomicU64::new(0)).collect();
        let report = RecoveryReport {
            clean: pool.was_clean(),
            repaired: discarded,
            ..RecoveryReport::default()
        };
        let mut tree = Self {
            pool: Arc::clone(pool),
            entry,
            records: Records::new(pool),
            directory: Directory::new()?,
            nodes: pmindex_art::Nodes::new(Self::most_records(pool))?,
            chunks: Chunks::new(pool.max_size(), Self::RECORDS)?,
            locks,
            loads: VersionLock::new(),
            counts,
            report,
        };
        tree.recover(root)?;
        tree.report.elapsed = started.elapsed();
        Ok(tree)
    }

    fn recover(&mut self, root: &Root) -> Result<(), PmError> {
        let pm = self.pool.pm();
        let table = read_table(&self.pool, root)?;
        if table.segments.is_empty() {
            self.pool.check_block(root)?; // zeros that a creation wrote, not a lost page's
        }
        self.chunks.check_count(table.places.len())?;
        let chunks = self.read_heads(&table.places)?;
        let empty =
            (0..).zip(&chunks).filter(|(_, chunk)| chunk.is_none()).map(|(number, _)| number);
        self.chunks.load(pm, table.segments, chunks.len() as u32, empty.collect());
        let of_records: Vec<(u32, ChunkPtr)> = (0..)
            .zip(&chunks)
            .filter_map(|(number, chunk)| chunk.map(|(chunk, shape)| (number, chunk, shape)))
            .filter(|(_, _, shape)| !shape.is_objects())
            .map(|(number, chunk, _)| (number, chunk))
            .collect();
        if self.take_image(root, &chunks)? {
            let freed = self.chunks.sort_out(&self.pool, root)?;
            self.report.leaves = of_records.len() as u64;
            self.report.repaired += freed;
            self.report.from_image = true;
            return Ok(());
        }
        let (records, threads) = self.rebuild(&of_records)?;
        let freed = self.chunks.sort_out(&self.pool, root)?;
        self.counts[0].store(records as u64, Relaxed);
        self.report.records = records as u64;
        self.report.leaves = of_records.len() as u64;
        self.report.repaired += freed;
        self.report.threads = threads;
        Ok(())
    }

    /// Restores the trees from the image of a clean shutdown, if there is one that counts: whether
    /// there is. Afterwards there is none, and without it the trees are empty.
    fn take_image(
        &mut self,
        root: &Root,
        chunks: &[Option<(ChunkPtr, ChunkShape)>],
    ) -> Result<bool, PmError> {
        if self.pool.pm().load(&root.image).is_null() {
            return Ok(false);
        }
        let shapes = (0..).zip(chunks).filter_map(|(number, chunk)| Some((number, (*chunk)?.1)));
        let restored = self.restore(root, &shapes.collect::<Vec<(u32, ChunkShape)>>());
        if !free_pieces(&self.pool, root)? {
            self.report.repaired += 1; // durable before: any change of the index
        }
        if let Some(records) = restored {
            self.counts[0].store(records, Relaxed);
            self.report.records = records;
        } else {
            self.nodes = pmindex_art::Nodes::new(Self::most_records(&self.pool))?;
            self.directory = Directory::new()?;
        }
        Ok(restored.is_some())
    }

    /// Returns the slots of a chunk that hold records.
    pub(crate) fn live_of(&self, number: u32, chunk: ChunkPtr) -> Result<u64, PmError> {
        let shape = Self::RECORDS;
        let words = self.pool.words(chunk.offset(), (shape.bytes() / 8) as usize)?;
        let mut live = 0;
        for (line, words) in words.chunks(LINE / 8).skip(1).enumerate() {
            let word = LineWord::new(self.pool.pm().load_word(&words[0]));
            if word.live() & !shape.line_all(line) != 0 || word.number() != number {
                return Err(corrupt("the commit word of a line", chunk.offset()));
            }
            live |= word.live() << (line * per_line(shape.slot_words()));
        }
        Ok(live)
    }

    /// Records stand in lines.
    fn most_records(pool: &Pool<M>) -> u64 {
        pool.max_size() / LINE as u64 * per_line(record_words::<K>()) as u64
    }

    /// Returns the chunks at these places, which are known from now on.
    fn read_heads(
        &self,
        places: &[ChunkPtr],
    ) -> Result<Vec<Option<(ChunkPtr, ChunkShape)>>, PmError> {
        let threads = if places.len() >= FEW { all_threads() } else { 1 };
        let share = places.len().div_ceil(threads).max(1);
        let parts = places.chunks(share).enumerate();
        let heads = on_threads(threads, parts, |(part, places)| {
            let read = |(i, &chunk): (usize, &ChunkPtr)| {
                if let Some(&ahead) = places.get(i + AHEAD) {
                    self.pool.prefetch(ahead);
                }
                let number = part * share + i;
                let head = self.read_head(number, chunk)?;
                if let Some((chunk, shape)) = head {
                    self.chunks.adopt(number as u32, chunk, shape);
                }
                Ok(head)
            };
            places.iter().enumerate().map(read).collect::<Result<Vec<_>, PmError>>()
        })?;
        Ok(heads.concat())
    }

    /// Returns the contents of a chunk's header, if they are possible.
    fn read_head(
        &self,
        number: usize,
        chunk: ChunkPtr,
    ) -> Result<Option<(ChunkPtr, ChunkShape)>, PmError> {
        if chunk.is_null() {
            return Ok(None);
        }
        let pm = self.pool.pm();
        let head = self.pool.get(chunk)?;
        let shape: ChunkShape = pm.load(&head.shape);
        let plausible = if shape.is_objects() {
            let words = shape.slot_words();
            words >= 2
                && words as u64 <= self.pool.len() / 8
                && shape
                    == ChunkShape::objects(words, crate::layout::objects_per_chunk(words, CHUNK))
        } else {
            shape == Self::RECORDS
        };
        if !plausible || pm.load(&head.number) != number as u64 {
            return Err(corrupt("the header of a chunk", chunk.offset()));
        }
        self.pool.words(chunk.offset(), (shape.bytes() / 8) as usize)?;
        Ok(Some((chunk, shape)))
    }
}

/// The table as it is on the medium.
pub(crate) struct TableImage {
    pub(crate) segments: Vec<PPtr<Segment>>,
    pub(crate) places: Vec<ChunkPtr>,
}

/// Phase 1.
pub(crate) fn read_table<M: Medium>(pool: &Pool<M>, root: &Root) -> Result<TableImage, PmError> {
    let pm = pool.pm();
    let mut image = TableImage { segments: Vec::new(), places: Vec::new() };
    let limit = pool.len() / size_of::<Segment>() as u64;
    let mut next = pm.load(&root.table);
    while !next.is_null() {
        if image.segments.len() as u64 >= limit {
            return Err(corrupt("the table of chunks has no end", next.offset()));
        }
        let segment = pool.get(next)?;
        image.segments.push(next);
        image.places.extend(segment.chunks.iter().map(|place| pm.load(place)));
        next = pm.load(&segment.next);
    }
    Ok(image)
}

/// Returns the number of threads for large tasks. (Finding it out reads files, which small tasks should not
/// do.)
pub(crate) fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8))
}

/// Runs a job for each part, on `threads` threads; returns the results in the order of the parts.
pub(crate) fn on_threads<P: Send, R: Send>(
    threads: usize,
    parts: impl IntoIterator<Item = P>,
    job: impl Fn(P) -> Result<R, PmError> + Sync,
) -> Result<Vec<R>, PmError> {
    if threads == 1 {
        return parts.into_iter().map(job).collect();
    }
    let parts: Vec<_> = parts.into_iter().map(|p| parking_lot::Mutex::new(Some(p))).collect();
    let results: Vec<_> = parts.iter().map(|_| parking_lot::Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(part) = parts.get(at).and_then(|part| part.lock().take()) else {
                        return;
                    };
                    *results[at].lock() = Some(job(part));
                }
            });
        }
    });
    let lost = || Err(corrupt("a part that no thread has done", 0));
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(lost)).collect()
}

fn corrupt(what: &'static str, offset: u64) -> PmError {
    PmError::Corrupt { what, offset }
}
