//! An index of pages: a map larger than memory, with the trait of all indexes.
//!
//! The index owns a buffer, with its log and its frames in the pool, and the file of its pages beside the
//! pool. Each operation is one transaction of the buffer.

use std::fmt;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pmindex_buffer::{ArchiveState, Buffer, BufferError, BufferOptions, Progress, Tx};
use pmindex_core::{Mapped, Medium, PmError, Pool};
use pmindex_index::{
    Index, IndexError, InsertMany, Key, Missing, Occupied, PmIndex, RangeIter, RecoveryReport,
    Reserved, Shape, Stats, Value, same_encoding,
};
use pmindex_record::{Bounds, LeafSource, Scan, Sink};
use pmindex_wal::Disk;

use crate::error::PagedError;
use crate::map::{PagedMap, packed, packed_record, unpacked_record};
use crate::meta;
use crate::node::{Packed, Record, most_words, room};
use crate::options::{
    ARCHIVE, PAGES, PagedOptions, PagesFile, create_file, from_buffer, new_identity, open_archive,
    open_file,
};
use crate::room::{Kept, Look, Room, most_pages};

/// The type in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"paged\0\0\0";
/// The map in the buffer.
const MAP: &str = "map";
/// The number of records that are written in one transaction.
const TOGETHER: usize = 32;
/// The length of the log is looked at once in so many writes.
const LOOKS: u64 = 32;
/// While fewer pages than one of this many are unused, transactions of a store may not add records, so that
/// what they have committed finds room.
const RESERVE: u64 = 64;

/// A map in pages, of which the pool has those that are used, and a file beside it all.
///
/// # Cost
/// A read takes no lock and no fence if its pages are in the pool, and else a read of the disk. A write is a
/// transaction of the buffer: one fence, and the lines of its record in the log. Once the log has an eighth of the
/// pages' bytes, the next writer makes a checkpoint, unless a thread in [`background`](Index::background) does.
/// `len` reads all leaves, `stats` all pages.
///
/// # Limits
/// Key and value together take at most a quarter of a page. Pages that became empty stay in the tree. While a
/// transaction of a store commits, as many pages must be unused as its records can split: one for each of them that is
/// new or gets a value of another length, and, where keys have any length, one of each level; where all keys have one
/// length, about one for each inner page above them in place of these. The pool must be open for writing, and in a
/// regular file, in any mode but `Periodic`, whose twin has no pages. The file of pages, and that of the archive, belong
/// to the pool, in whose folder they are: copy or move all together, while the pool is closed. A map whose archive is
/// removed goes on without.
pub struct Paged<K: Key, V: Value, M: Medium = Mapped> {
    pub(crate) map: PagedMap<K, V, M>,
    /// The file of pages, and the archive if there is one.
    files: Vec<PagesFile>,
    /// The log's bytes after the last checkpoint; held by the writer that makes one.
    shortest: Mutex<u64>,
    /// The bytes by which the log may grow.
    most_log: u64,
    writes: AtomicU64,
    /// The pages for changes of a store's commits.
    pub(crate) kept: Arc<Kept>,
    /// Held while pages are kept, so that two callers do not refuse each other.
    keeping: Mutex<()>,
    report: RecoveryReport,
}

impl<K: Key, V: Value, M: Medium> fmt::Debug for Paged<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paged").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value, M: Medium> Paged<K, V, M> {
    /// Creates the index `name`, with the file of its pages in the folder of the pool.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; [`IndexError::Pages`] if the pool is no regular file, or its folder cannot have
    /// the file; those of the pool.
    pub fn create_with(
        pool: &Arc<Pool<M>>,
        name: &str,
        options: &PagedOptions,
    ) -> Result<Self, IndexError> {
        if pool.find_index(name)?.is_some() {
            return Err(IndexError::IndexExists { name: name.into() });
        }
        let identity = new_identity();
        let (mut buffer, bytes) = options.sizes(pool);
        let (file, disk) = create_file(pool, identity, PAGES, bytes)?;
        let mut files = vec![file];
        let archive =
            options.archive_size().map(|bytes| create_file(pool, identity, ARCHIVE, bytes));
        let created = archive.transpose().and_then(|archive| {
            if let Some((file, archive)) = archive {
                files.push(file);
                buffer = buffer.archive(archive);
            }
            Self::create_on(pool, name, disk, &buffer.identity(identity))
        });
        match created {
            Ok(index) => Ok(Self { files, ..index }),
            Err(error) => {
                // A full pool leaves a part of the index, whose creation the next opening finishes.
                if pool.find_index(name)?.is_none() {
                    for file in files {
                        let _ = std::fs::remove_file(&file.path);
                    }
                }
                Err(error)
            }
        }
    }

    /// Creates the index `name` over a disk of the caller's, for tests.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`]; those of the buffer.
    #[doc(hidden)]
    pub fn create_on(
        pool: &Arc<Pool<M>>,
        name: &str,
        disk: Arc<dyn Disk>,
        options: &BufferOptions,
    ) -> Result<Self, IndexError> {
        let buffer = Buffer::create(pool, name, disk, &options.clone().kind(KIND));
        let buffer = buffer.map_err(from_buffer).map_err(|error| match error {
            IndexError::Pool(PmError::NameTaken { name }) => IndexError::IndexExists { name },
            error => error,
        })?;
        Self::start(buffer, name, Instant::now())
    }

    /// Opens the index `name` over a disk of the caller's, for tests.
    ///
    /// # Errors
    /// Those of [`PmIndex::open`].
    #[doc(hidden)]
    pub fn open_on(
        pool: &Arc<Pool<M>>,
        name: &str,
        disk: impl FnOnce(u64) -> Result<Arc<dyn Disk>, IndexError>,
        options: &BufferOptions,
    ) -> Result<Self, IndexError> {
        let began = Instant::now();
        Self::start(Self::opened_on(pool, name, disk, options)?, name, began)
    }

    fn opened_on(
        pool: &Arc<Pool<M>>,
        name: &str,
        disk: impl FnOnce(u64) -> Result<Arc<dyn Disk>, IndexError>,
        options: &BufferOptions,
    ) -> Result<Buffer<M>, IndexError> {
        let missing = || IndexError::NoSuchIndex { name: name.into() };
        let entry = pool.find_index(name)?.ok_or_else(missing)?;
        if entry.kind != KIND {
            let found = String::from_utf8_lossy(&entry.kind);
            let found = found.trim_end_matches(['\0', ' ']).to_owned();
            let wanted = "paged".into();
            return Err(IndexError::WrongType { name: name.into(), found, wanted });
        }
        let mut failed = None;
        let on = |identity| {
            disk(identity).map_err(|error| {
                failed = Some(error);
                BufferError::WrongDisk { what: "it cannot be opened" }
            })
        };
        let opened = Buffer::open_on(pool, name, on, &options.clone().kind(KIND));
        let buffer = opened.map_err(|error| failed.unwrap_or_else(|| from_buffer(error)))?;
        buffer.ok_or_else(missing)
    }

    fn start(buffer: Buffer<M>, name: &str, began: Instant) -> Result<Self, IndexError> {
        let buffer = Arc::new(buffer);
        let map = PagedMap::open(&buffer, MAP).map_err(|error| match error {
            PagedError::WrongType { .. } => IndexError::WrongLayout {
                name: name.into(),
                found: "keys or values of other types".into(),
                wanted: format!("paged<{}, {}>", K::type_name(), V::type_name()),
            },
            error => from_paged(&buffer, error),
        })?;
        let most_log = buffer.frames() * buffer.page_bytes() / 8;
        let report = RecoveryReport { elapsed: began.elapsed(), threads: 1, ..Default::default() };
        let shortest = Mutex::new(buffer.log_bytes());
        let (writes, kept, keeping) = (AtomicU64::new(0), Arc::default(), Mutex::default());
        Ok(Self { map, files: Vec::new(), shortest, most_log, writes, kept, keeping, report })
    }

    /// Returns the state of the [archive](PagedOptions::archive_bytes).
    #[must_use]
    pub fn archive_state(&self) -> ArchiveState {
        self.buffer().archive_state()
    }

    pub(crate) fn buffer(&self) -> &Buffer<M> {
        self.map.buffer()
    }

    /// Returns the number of pages that stay unused.
    fn spare(&self) -> u64 {
        (self.buffer().pages() / RESERVE).max(4)
    }

    /// Returns `true` if the pages that are kept are there, beside those that operations in progress may take.
    fn has_kept(&self, height: u64) -> Result<bool, IndexError> {
        let taking = most_pages(self.kept.taking(), height);
        let used = meta::used(self.buffer()).map_err(|error| self.failed(error))?;
        Ok(used + taking + self.kept.pages() + self.spare() <= self.buffer().pages())
    }

    /// Looks where puts will come.
    pub(crate) fn look(&self, puts: &[(&K::Ref, &V::Ref)]) -> Result<Look, IndexError> {
        let words = if let Shape::Inline(words) = K::SHAPE { Some(words) } else { None };
        let mut look = Look::new(room(self.buffer().page_words()), words);
        for (key, value) in puts {
            let record = self.record(key, value)?;
            let passed = self.map.tree.passed(self.buffer(), &record);
            if let Some(passed) = passed.map_err(|error| self.failed(error))? {
                look.add(passed);
            }
        }
        Ok(look)
    }

    fn failed(&self, error: PagedError) -> IndexError {
        from_paged(self.buffer(), error)
    }

    /// Runs a transaction of one put at most, and shortens the log if it is long.
    fn change<R>(
        &self,
        body: impl FnMut(&mut Tx<'_, M>, &Room<'_>) -> Result<R, PagedError>,
    ) -> Result<R, IndexError> {
        self.change_many(1, None, body)
    }

    /// Does the same for more puts, and in the pages that are kept for them if there are such.
    fn change_many<R>(
        &self,
        puts: usize,
        kept: Option<&Reserved>,
        mut body: impl FnMut(&mut Tx<'_, M>, &Room<'_>) -> Result<R, PagedError>,
    ) -> Result<R, IndexError> {
        let pages = self.buffer().pages();
        let room = match kept {
            Some(_) => Room::all(pages),
            None => Room::beside(pages, &self.kept, puts as u64),
        };
        let done = self.map.transact(|tx| body(tx, &room)).map_err(|error| self.failed(error))?;
        drop(room);
        if self.writes.fetch_add(1, Relaxed).is_multiple_of(LOOKS) {
            // The change is durable. If the disk fails now, the writer that finds the log full reports it.
            let _ = self.shorten(self.most_log);
        }
        Ok(done)
    }

    /// Makes a checkpoint if the log has grown by more than `most`, and no other thread makes one.
    fn shorten(&self, most: u64) -> Result<(), IndexError> {
        let Some(mut shortest) = self.shortest.try_lock() else { return Ok(()) };
        if self.buffer().log_bytes() > *shortest + most {
            self.buffer().checkpoint().map_err(from_buffer)?;
            *shortest = self.buffer().log_bytes();
        }
        Ok(())
    }

    /// Puts records in one transaction; returns for each whether its key is new. With `only_new` other keys keep
    /// their values.
    fn put_together(
        &self,
        records: &[(K, V)],
        only_new: bool,
        kept: Option<&Reserved>,
    ) -> Result<Vec<bool>, IndexError> {
        let record = |(key, value): &(K, V)| self.record(key.borrowed(), value.borrowed());
        let records: Vec<Record> = records.iter().map(record).collect::<Result<_, _>>()?;
        self.change_many(records.len(), kept, |tx, room| {
            let mut all_new = Vec::with_capacity(records.len());
            for record in &records {
                let is_new = if only_new && self.map.has_packed_in(tx, &record.key)? {
                    false
                } else {
                    self.map.put_within(tx, room, record)?
                };
                all_new.push(is_new);
            }
            Ok(all_new)
        })
    }

    /// Puts records, many with one fence, until the first error.
    fn put_all(&self, records: &[(K, V)], only_new: bool, kept: Option<&Reserved>) -> InsertMany {
        let mut done = InsertMany::default();
        for some in records.chunks(TOGETHER) {
            if let Ok(new) = self.put_together(some, only_new, kept) {
                done.inserted.extend(new);
                continue;
            }
            // Too much for a record of the log, or one of them is refused.
            for one in some.chunks(1) {
                match self.put_together(one, only_new, kept) {
                    Ok(new) => done.inserted.extend(new),
                    Err(error) => {
                        done.stopped = Some(error);
                        return done;
                    }
                }
            }
        }
        done
    }

    /// Encodes a record, once: a type of the caller's may encode a value differently the next time. Returns an error if
    /// it is too long.
    fn record(&self, key: &K::Ref, value: &V::Ref) -> Result<Record, IndexError> {
        let record = packed_record::<K, V>(key, value);
        let (key, value) = (&record.key, &record.value);
        let most = most_words(self.buffer().page_words());
        let Some(left) = most.checked_sub(key.words.len()) else {
            return Err(IndexError::KeyTooLong { len: key.len, max: 8 * most });
        };
        if value.words.len() > left {
            return Err(IndexError::ValueTooLong { len: value.len, max: 8 * left });
        }
        Ok(record)
    }
}

/// Returns an error of a map as one of an index.
fn from_paged<M: Medium>(buffer: &Buffer<M>, error: PagedError) -> IndexError {
    match error {
        PagedError::Buffer(error) => from_buffer(error),
        PagedError::Full { .. } => {
            let (wanted, capacity) = (buffer.page_bytes(), buffer.pages() * buffer.page_bytes());
            PmError::Full { wanted, capacity }.into()
        }
        other => IndexError::Pages { what: other.to_string() },
    }
}

impl<K: Key, V: Value, M: Medium> PmIndex<K, V, M> for Paged<K, V, M> {
    const NAME: &'static str = "paged";
    const LOADS_AT_ONCE: bool = false;
    const RESERVES: bool = true;

    fn create(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::create_with(pool, name, &PagedOptions::new())
    }

    fn open(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        let (began, mut files) = (Instant::now(), Vec::new());
        let disk = |identity| {
            let (file, disk) = open_file(pool, identity)?;
            files.push(file);
            Ok(disk)
        };
        let mut buffer = Self::opened_on(pool, name, disk, &BufferOptions::new(0))?;
        if let Some((file, archive)) = open_archive(pool, buffer.identity())? {
            buffer.attach_archive(archive).map_err(from_buffer)?;
            files.push(file);
        }
        let index = Self::start(buffer, name, began)?;
        Ok(Self { files, ..index })
    }

    /// A damaged archive, or one of another state, is not opened.
    fn open_to_remove(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        match <Self as PmIndex<K, V, M>>::open(pool, name) {
            Err(IndexError::Pages { .. }) => {}
            opened => return opened,
        }
        let (began, mut files) = (Instant::now(), Vec::new());
        let disk = |identity| {
            let (file, disk) = open_file(pool, identity)?;
            files.push(file);
            Ok(disk)
        };
        let buffer = Self::opened_on(pool, name, disk, &BufferOptions::new(0))?;
        files.extend(open_archive(pool, buffer.identity())?.map(|(file, _)| file));
        let index = Self::start(buffer, name, began)?;
        Ok(Self { files, ..index })
    }

    fn close(self) -> Result<(), IndexError> {
        self.buffer().checkpoint().map_err(from_buffer)
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        Ok(self.buffer().blocks()?)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|file| file.path.clone()).collect()
    }

    fn fits(&self, key: &K::Ref, value: &V::Ref) -> Result<(), IndexError> {
        self.record(key, value)?;
        let buffer = self.buffer();
        let used = meta::used(buffer).map_err(|error| self.failed(error))?;
        if used + self.spare() > buffer.pages() {
            return Err(from_paged(buffer, PagedError::Full { what: "page" }));
        }
        Ok(())
    }

    fn reserve<'r>(
        &self,
        puts: &mut dyn Iterator<Item = (&'r K::Ref, &'r V::Ref)>,
    ) -> Result<Reserved, IndexError> {
        let puts: Vec<_> = puts.collect();
        if puts.is_empty() {
            return Ok(Reserved::default());
        }
        let buffer = self.buffer();
        let height = self.map.tree.height(buffer).map_err(|error| self.failed(error))?;
        let _keeping = loop {
            match self.keeping.try_lock() {
                Some(locked) => break locked,
                None => buffer.pool().pm().spin(),
            }
        };
        let count = puts.len() as u64;
        let pages = self.kept.keep(count, most_pages(count, height));
        if !self.has_kept(height)? {
            pages.lower(self.look(&puts)?);
            if !self.has_kept(height)? {
                let capacity = buffer.pages() * buffer.page_bytes();
                let wanted = pages.count() * buffer.page_bytes();
                return Err(PmError::Full { wanted, capacity }.into());
            }
        }
        Ok(Reserved::new(pages))
    }

    fn put_reserved(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        reserved: &Reserved,
    ) -> Result<bool, IndexError> {
        let record = self.record(key, value)?;
        let put = |tx: &mut Tx<'_, M>, room: &Room<'_>| self.map.put_within(tx, room, &record);
        self.change_many(1, reserved.if_any(), put)
    }

    fn put_many_reserved(&self, records: &[(K, V)], reserved: &Reserved) -> Result<(), IndexError> {
        self.put_all(records, false, reserved.if_any()).stopped.map_or(Ok(()), Err)
    }
}

/// The leaves, as a source of scans.
struct Leaves<'m, K: Key, V: Value, M: Medium>(&'m Paged<K, V, M>);

impl<K: Key, V: Value, M: Medium> Leaves<'_, K, V, M> {
    fn record(&self, record: &Record) -> Result<(K, V), IndexError> {
        unpacked_record(record).map_err(|error| self.0.failed(error))
    }
}

impl<K: Key, V: Value, M: Medium> LeafSource for Leaves<'_, K, V, M> {
    type Key = K;
    type Value = V;
    type Medium = M;
    type Bound = Packed;

    fn pool(&self) -> &Pool<M> {
        self.0.buffer().pool()
    }

    fn read_front(
        &mut self,
        bounds: &mut Bounds<Packed>,
        _most: usize,
        items: &mut impl Sink<K, V>,
    ) -> Result<bool, IndexError> {
        let map = &self.0.map;
        let from = match &bounds.lower {
            Bound::Included(key) | Bound::Excluded(key) => key.clone(),
            Bound::Unbounded => Packed::default(),
        };
        let batch = map.tree.batch(&mut &**map.buffer(), &from, usize::MAX);
        let (records, next) = batch.map_err(|error| self.0.failed(error))?;
        for record in records.iter().filter(|record| !bounds.is_below(&record.key)) {
            if bounds.is_above(&record.key) {
                return Ok(false);
            }
            items.push(self.record(record)?);
        }
        let Some(next) = next else { return Ok(false) };
        bounds.lower = Bound::Included(next);
        Ok(!bounds.have_met())
    }

    fn read_back(
        &mut self,
        bounds: &mut Bounds<Packed>,
        _most: usize,
        items: &mut Vec<(K, V)>,
    ) -> Result<bool, IndexError> {
        let map = &self.0.map;
        let batch = map.tree.batch_back(&mut &**map.buffer(), &bounds.upper, usize::MAX);
        let (records, least) = batch.map_err(|error| self.0.failed(error))?;
        for record in records.iter().filter(|record| !bounds.is_below(&record.key)) {
            items.push(self.record(record)?);
        }
        let Some(least) = least else { return Ok(false) };
        bounds.upper = Bound::Excluded(least);
        Ok(!bounds.have_met())
    }
}

impl<K: Key, V: Value, M: Medium> Index<K, V> for Paged<K, V, M> {
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.map.get(key).map_err(|error| self.failed(error))
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.map.contains_key(key).map_err(|error| self.failed(error))
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let record = self.record(key, value)?;
        self.change(|tx, room| {
            let old = self.map.get_packed_in(tx, &record.key)?;
            self.map.put_within(tx, room, &record)?;
            Ok(old)
        })
    }

    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        let record = self.record(key, value)?;
        self.change(|tx, room| {
            if self.map.has_packed_in(tx, &record.key)? {
                return Ok(Err(Occupied));
            }
            self.map.put_within(tx, room, &record).map(|_| Ok(()))
        })
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        let record = self.record(key, value)?;
        self.change(|tx, room| {
            if !self.map.has_packed_in(tx, &record.key)? {
                return Ok(Err(Missing));
            }
            self.map.put_within(tx, room, &record).map(|_| Ok(()))
        })
    }

    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        let record = self.record(key, value)?;
        self.change(|tx, room| self.map.put_within(tx, room, &record))
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.change(|tx, _| self.map.remove_in(tx, key))
    }

    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.change(|tx, _| match self.map.get_in(tx, key)? {
            Some(found) if same_encoding::<V>(found.borrowed(), value.borrowed()) => {
                self.map.remove_in(tx, key)
            }
            _ => Ok(None),
        })
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let of = Bounds::<K>::of((lower, upper));
        let bound = |bound: Bound<K>| bound.map(|key| packed::<K>(key.borrowed()));
        let bounds = Bounds { lower: bound(of.lower), upper: bound(of.upper), spare: None };
        Box::new(Scan::new(Leaves(self), bounds))
    }

    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.map.first_key_value().map_err(|error| self.failed(error))
    }

    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.map.last_key_value().map_err(|error| self.failed(error))
    }

    fn len(&self) -> Result<u64, IndexError> {
        self.map.len().map_err(|error| self.failed(error))
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        let (mut some, mut loaded, mut last) = (Vec::with_capacity(TOGETHER), 0, None::<K>);
        let load = |some: &mut Vec<(K, V)>| match self.put_all(some, false, None).stopped {
            None => {
                some.clear();
                Ok(())
            }
            Some(error) => Err(error),
        };
        let mut step = |(key, value): (K, V)| {
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Err(IndexError::NotSorted { at: loaded });
            }
            last = Some(key.clone());
            some.push((key, value));
            loaded += 1;
            if some.len() == TOGETHER { load(&mut some) } else { Ok(()) }
        };
        let mut records = records;
        let done = Iterator::try_for_each(&mut records, &mut step);
        match done.and_then(|()| load(&mut some)) {
            Ok(()) => Ok(loaded),
            Err(error) => {
                self.clear()?;
                Err(error)
            }
        }
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "a place for each key");
        for (key, out) in keys.iter().zip(out) {
            *out = self.get(key.borrowed())?;
        }
        Ok(())
    }

    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.put_all(records, true, None)
    }

    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        self.put_all(records, false, None).stopped.map_or(Ok(()), Err)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        let buffer = self.buffer();
        let counts = self.map.tree.check(buffer).map_err(|error| self.failed(error))?;
        Ok(Stats {
            records: counts.records,
            height: counts.height as u32,
            leaves: counts.leaves,
            inners: counts.inners,
            pm_bytes: buffer.frames() * (buffer.page_bytes() + 8) + buffer.log_bytes(),
            dram_bytes: 16 * buffer.pages() + 40 * buffer.frames(),
        })
    }

    /// Verifies the pages in the pool and in the file, and repairs those that it can; then the map.
    fn check(&self) -> Result<u64, IndexError> {
        let buffer = self.buffer();
        let until = match buffer.archive_state() {
            ArchiveState::Incomplete => buffer.pages(), // this makes it complete
            _ => meta::used(buffer).map_err(|error| self.failed(error))?,
        };
        let lost = buffer.scrub(1..until).map_err(from_buffer)?.lost;
        if !lost.is_empty() {
            let what = format!("pages {lost:?} are damaged beyond repair; restore a backup");
            return Err(IndexError::Pages { what });
        }
        self.map.check().map_err(|error| self.failed(error))
    }

    fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    fn has_background(&self) -> bool {
        true
    }

    /// Verifies the pages that the last opening left, and keeps the log short.
    fn background(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        let mut recovered = false;
        while !stop.load(Acquire) {
            if !recovered {
                recovered = self.buffer().recover_step().map_err(from_buffer)? == Progress::Done;
                continue;
            }
            self.shorten(self.most_log / 2)?;
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Ok(())
    }
}
