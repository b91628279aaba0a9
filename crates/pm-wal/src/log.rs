//! Opening, writing and truncating a log.

use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::disk::Disk;
use crate::error::LogError;
use crate::group::Group;
use crate::hold::{Hold, Holds};
use crate::layout::{
    BATCH_HEADER, BatchHeader, Copy1, Head, LogId, Lsn, RECORD_HEADER, Shape, VERSION,
};
use crate::patience::Patience;
use crate::reader::{Reader, Scan};

/// The options for opening a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct LogOptions {
    wait: Duration,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { wait: Duration::from_secs(30) }
    }
}

impl LogOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long a write waits for room before it fails, if meanwhile nothing shows that there will be room (default
    /// 30 seconds): see [`Log::note_progress`].
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }
}

/// A log.
#[derive(Debug)]
pub struct Log {
    disk: Box<dyn Disk>,
    shape: Shape,
    id: LogId,
    /// The offset where this generation began.
    began: u64,
    wait: Duration,
    /// Held while a batch is written.
    writer: Mutex<()>,
    /// Held while a head is written; taken before `state`.
    heads: Mutex<Heads>,
    state: Mutex<State>,
    /// Signalled when the horizon has moved, or the log is lost.
    room: Condvar,
    holds: Arc<Mutex<Holds>>,
    appends: Group<Batch, Lsn, LogError>,
    is_lost: AtomicBool,
    /// Changes whenever the disk has taken something.
    progress: AtomicU64,
}

#[derive(Debug)]
struct Heads {
    newest: Head,
    /// The copy that holds it.
    copy: u64,
    block: Buffer,
}

#[derive(Debug)]
struct State {
    /// The end of the last batch: everything before is durable.
    tail: u64,
    /// The space before it may be reused.
    horizon: u64,
    lost: Option<LogError>,
}

/// The contents of a log's heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// The log's identity.
    pub id: LogId,
    /// The bytes of its space.
    pub capacity: u64,
    /// The bytes of the disk that it takes, from the start on.
    pub bytes: u64,
}

/// Reads the heads of a log and changes nothing.
///
/// # Errors
/// [`LogError::NotALog`], `Version`, `Damaged`, `Cut`, `Io`.
pub fn peek(disk: &dyn Disk) -> Result<Peeked, LogError> {
    let (head, _) = read_heads(disk)?;
    let Shape { capacity, .. } = head.shape;
    Ok(Peeked { id: head.id, capacity, bytes: head.shape.place(0) + capacity })
}

impl Log {
    /// Creates a new, empty log on a disk whose bytes are all zero (see
    /// [`FileDisk::create`](crate::FileDisk::create)), or on one with a log that is no longer needed. `id`
    /// must not name a log that was on this disk before.
    ///
    /// # Errors
    /// [`LogError::BadOption`], `Io`.
    pub fn format(disk: Box<dyn Disk>, id: LogId, options: LogOptions) -> Result<Self, LogError> {
        let shape = Shape::of(disk.block(), disk.len())?;
        // A crash leaves the old log intact or gone: the caller needs neither.
        let head = Head { id, sequence: 0, shape, horizon: 0, since: 0 };
        let mut heads = Heads { newest: head, copy: 1, block: Buffer::zeros(disk.block()) };
        // L2, durable before: the first batch.
        heads.write(&*disk, head).map_err(|e| LogError::io("writing a head of the log", &e))?;
        Ok(Self::assemble(disk, heads, 0, options))
    }

    /// Opens a log that belongs to `identity` and continues behind its contents, in a new generation. Read
    /// the contents with [`reader`](Self::reader) from the [`horizon`](Self::horizon).
    ///
    /// # Errors
    /// [`LogError::Foreign`], `NotALog`, `Version`, `Damaged`, `Cut`, `Io`.
    pub fn open(
        disk: Box<dyn Disk>,
        identity: u128,
        options: LogOptions,
    ) -> Result<Self, LogError> {
        let (head, copy) = read_heads(&*disk)?;
        let expected = LogId { identity, ..head.id };
        if head.id != expected {
            return Err(LogError::Foreign { expected, found: head.id });
        }
        let mut scan = Scan::new(head.id, head.shape, head.horizon, head.since);
        let mut last = None;
        while let Some(header) = scan.next(&*disk)? {
            last = Some(header);
        }
        if let Some(header) = last {
            // L6, durable before: any batch of this generation. The last batch may be in a cache only: it is
            // read all the same, and a power failure would lose it and leave a hole before later batches.
            write_again(&*disk, &head.shape, &header)
                .map_err(|e| LogError::io("writing the last batch again", &e))?;
        }
        let id = LogId { generation: head.id.generation + 1, ..head.id };
        let mut heads = Heads { newest: head, copy, block: Buffer::zeros(disk.block()) };
        let next = Head { id, ..head };
        // L5, durable before: any batch of this generation.
        heads.write(&*disk, next).map_err(|e| LogError::io("writing a head of the log", &e))?;
        Ok(Self::assemble(disk, heads, scan.position(), options))
    }

    /// Reads the log with exactly this identity from its horizon to its tail, and changes nothing: `take` is
    /// called with each record, in order. Returns the number of records.
    ///
    /// # Errors
    /// Those of `take`; [`LogError::Foreign`], `NotALog`, `Version`, `Damaged`, `Cut`, `Io`.
    pub fn replay(
        disk: &dyn Disk,
        id: LogId,
        mut take: impl FnMut(Lsn, &[u8]) -> Result<(), LogError>,
    ) -> Result<u64, LogError> {
        let (head, _) = read_heads(disk)?;
        if head.id != id {
            return Err(LogError::Foreign { expected: id, found: head.id });
        }
        let mut scan = Scan::new(head.id, head.shape, head.horizon, head.since);
        let mut records = 0;
        while let Some(header) = scan.next(disk)? {
            for (offset, record) in scan.records(&header) {
                take(Lsn { generation: header.generation, offset }, record)?;
                records += 1;
            }
        }
        Ok(records)
    }

    /// Returns where the log with exactly this identity begins and ends, if no batch is missing in between;
    /// changes nothing.
    ///
    /// # Errors
    /// [`LogError::Hole`] if there is a batch behind one that is not intact: each batch was durable before
    /// the next was written, so the disk lost it. [`LogError::Foreign`], `NotALog`, `Version`, `Damaged`,
    /// `Cut`, `Io`.
    pub fn extent(disk: &dyn Disk, id: LogId) -> Result<Range<u64>, LogError> {
        let (head, _) = read_heads(disk)?;
        if head.id != id {
            return Err(LogError::Foreign { expected: id, found: head.id });
        }
        let mut scan = Scan::new(head.id, head.shape, head.horizon, head.since);
        while scan.next(disk)?.is_some() {}
        let tail = scan.position();
        match scan.later(disk, head.horizon + head.shape.capacity)? {
            Some(later) => Err(LogError::Hole { offset: tail, later }),
            None => Ok(head.horizon..tail),
        }
    }

    fn assemble(disk: Box<dyn Disk>, heads: Heads, tail: u64, options: LogOptions) -> Self {
        let Head { id, shape, horizon, .. } = heads.newest;
        Self {
            disk,
            shape,
            id,
            began: tail,
            wait: options.wait,
            writer: Mutex::default(),
            heads: Mutex::new(heads),
            state: Mutex::new(State { tail, horizon, lost: None }),
            room: Condvar::new(),
            holds: Arc::default(),
            appends: Group::default(),
            is_lost: AtomicBool::new(false),
            progress: AtomicU64::new(0),
        }
    }

    /// Returns the log's identity with its generation.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.id
    }

    /// Returns the bytes of its space.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.shape.capacity
    }

    /// Returns the bytes of its space that a batch takes.
    #[must_use]
    pub fn space_of(&self, batch: &Batch) -> u64 {
        self.shape.batch_bytes(batch.bytes())
    }

    /// Returns the largest number of bytes of records in a batch, their headers included.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.shape.most()
    }

    /// Returns the end of the last batch. Everything before it is durable.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.state.lock().tail
    }

    /// Returns the offset where reading begins.
    #[must_use]
    pub fn horizon(&self) -> u64 {
        self.state.lock().horizon
    }

    /// Returns the bytes from the horizon to the tail.
    #[must_use]
    pub fn used(&self) -> u64 {
        let state = self.state.lock();
        state.tail - state.horizon
    }

    /// Returns `true` if a write or a sync has failed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Acquire)
    }

    /// Appends a record, and returns when it is durable. Threads that append at the same time share a batch.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], `Full`, `Lost`.
    pub fn append(&self, record: &[u8]) -> Result<Lsn, LogError> {
        let bytes = (RECORD_HEADER + record.len()) as u64;
        let most = self.most();
        if bytes > most {
            return Err(LogError::TooLarge { bytes, most });
        }
        let join =
            |batch: &mut Batch| (batch.bytes() + bytes <= most).then(|| batch.push(&[record]));
        let (place, lsn) = self.appends.commit(join, |mut batch| self.write(&mut batch))?;
        Ok(Lsn { offset: lsn.offset + BATCH_HEADER as u64 + place, ..lsn })
    }

    /// Writes a batch, waits until it is durable, and returns its place. Waits for room if necessary.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], `Full`, `Lost`.
    pub fn write(&self, batch: &mut Batch) -> Result<Lsn, LogError> {
        let (records, most) = (batch.bytes(), self.most());
        if records > most {
            return Err(LogError::TooLarge { bytes: records, most });
        }
        let _writer = self.writer.lock();
        let (before, offset) = self.find_room(self.shape.batch_bytes(records))?;
        let blocks = batch.seal(&self.shape, &self.id, before, offset);
        // L3, durable before: the tail, which acknowledges all records.
        let written = self.disk.write_durably(self.shape.place(offset), blocks);
        self.check("writing a batch", written)?;
        self.note_progress();
        self.state.lock().tail = offset + blocks.len() as u64;
        Ok(Lsn { generation: self.id.generation, offset })
    }

    /// Returns where the last batch ends and where one of `bytes` bytes goes, when there is room for it.
    fn find_room(&self, bytes: u64) -> Result<(u64, u64), LogError> {
        let mut state = self.state.lock();
        let mut patience = Patience::new(self.wait, self.progress());
        loop {
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            let lap = self.shape.next_lap(state.tail);
            let fits = lap == state.tail || state.tail + bytes <= lap;
            let offset = if fits { state.tail } else { lap };
            if offset + bytes - state.horizon <= self.shape.capacity {
                return Ok((state.tail, offset));
            }
            let Some(until) = patience.ends() else {
                self.room.wait(&mut state);
                continue;
            };
            if self.room.wait_until(&mut state, until).timed_out()
                && patience.is_over(self.progress())
            {
                return Err(LogError::Full { wanted: bytes, waited: self.wait });
            }
        }
    }

    /// Declares that the disk has taken something of what must be durable before this log can be
    /// [truncated](Self::truncate): threads that wait for room wait for their full time from now on. A disk that is slow
    /// does not fail.
    pub fn note_progress(&self) {
        self.progress.fetch_add(1, Relaxed); // a wait that just ended may miss it
    }

    /// Returns a number that changes whenever the disk takes something: a batch, a truncation, or what was
    /// [noted](Self::note_progress).
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.progress.load(Relaxed)
    }

    /// Frees the space before `offset` durably, as far as it is not [held](Self::hold); the caller needs
    /// nothing before `offset`. Returns the horizon: an offset inside a batch frees the batches before it.
    ///
    /// # Cost
    /// A durable write of one block. If the horizon does not become the tail, the batch at it is read; if `offset` is
    /// within a batch, all batches before it are.
    ///
    /// # Errors
    /// [`LogError::Lost`], `Io`.
    pub fn truncate(&self, offset: u64) -> Result<u64, LogError> {
        let mut heads = self.heads.lock();
        // Locked until the horizon has moved: no reader takes a hold on the freed space.
        let holds = self.holds.lock();
        let (tail, old) = {
            let state = self.state.lock();
            if let Some(lost) = &state.lost {
                return Err(lost.clone());
            }
            (state.tail, state.horizon)
        };
        let wanted = offset.min(holds.least().unwrap_or(u64::MAX)).min(tail);
        if wanted <= old {
            return Ok(old);
        }
        let horizon = if wanted == tail { tail } else { self.end_before(&heads.newest, wanted)? };
        if horizon == old {
            return Ok(old);
        }
        // L4, durable before: any use of the space before the horizon.
        let since = if horizon >= self.began { self.id.generation } else { heads.newest.since };
        let next = Head { horizon, since, ..heads.newest };
        let written = heads.write(&*self.disk, next);
        self.check("writing a head of the log", written)?;
        self.note_progress();
        self.state.lock().horizon = horizon;
        self.room.notify_all();
        Ok(horizon)
    }

    /// Returns the end of the last batch that ends at an offset or before it: the horizon is between batches.
    fn end_before(&self, head: &Head, offset: u64) -> Result<u64, LogError> {
        // Most callers pass the end of a batch, and then the next batch says so.
        // (An offset in the middle of a block is that of a record in a batch, and no place of a disk.)
        let is_place = offset.is_multiple_of(self.shape.block);
        let mut scan = Scan::new(self.id, self.shape, offset, head.since);
        if is_place && scan.next(&*self.disk)?.is_some() {
            return Ok(offset);
        }
        let mut scan = Scan::new(self.id, self.shape, head.horizon, head.since);
        let mut end = scan.position();
        while end < offset && scan.next(&*self.disk)?.is_some() && scan.position() <= offset {
            end = scan.position();
        }
        Ok(end)
    }

    /// Holds everything from the horizon on, until the hold is [advanced](Hold::advance) or dropped.
    #[must_use]
    pub fn hold(&self) -> Hold {
        let mut holds = self.holds.lock();
        let horizon = self.horizon();
        Hold::new(&self.holds, &mut holds, horizon)
    }

    /// Reads from `offset` on, where a batch begins or ended: the horizon, or a tail. The reader ends at the
    /// tail and continues when there is more. A [hold](Self::hold) keeps the records from being truncated.
    ///
    /// # Errors
    /// [`LogError::Gone`] if `offset` is before the horizon.
    pub fn reader(&self, offset: u64) -> Result<Reader<'_>, LogError> {
        let horizon = self.horizon();
        if offset < horizon {
            return Err(LogError::Gone { offset, horizon });
        }
        Ok(Reader::new(self, Scan::new(self.id, self.shape, offset, 0)))
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Stops taking writes, and wakes all threads that wait for room: what the log serves has failed.
    pub fn end(&self, what: &'static str, why: &str) {
        self.lose(LogError::Lost { what, why: why.into() });
    }

    /// Stops taking writes after a failure.
    fn check(&self, what: &'static str, result: std::io::Result<()>) -> Result<(), LogError> {
        result.map_err(|error| {
            let lost = LogError::lost(what, &error);
            self.lose(lost.clone());
            lost
        })
    }

    fn lose(&self, lost: LogError) {
        self.state.lock().lost.get_or_insert(lost); // the first reason counts
        self.is_lost.store(true, Release);
        self.room.notify_all();
    }
}

impl Heads {
    /// Writes a head over the older copy and then over the other one: when it returns, either is enough.
    fn write(&mut self, disk: &dyn Disk, head: Head) -> std::io::Result<()> {
        for copy in [1 - self.copy, self.copy] {
            let head = Head { sequence: self.newest.sequence + 1, ..head };
            head.encode(self.block.as_mut_slice());
            disk.write_durably(copy * disk.block() as u64, self.block.as_slice())?;
            self.newest = head;
        }
        Ok(())
    }
}

/// Writes a batch over itself: a crash in the middle leaves the batch intact.
fn write_again(disk: &dyn Disk, shape: &Shape, header: &BatchHeader) -> std::io::Result<()> {
    let mut batch = Buffer::zeros(shape.batch_bytes(u64::from(header.len)) as usize);
    let place = shape.place(header.offset);
    disk.read(place, batch.as_mut_slice())?;
    disk.write_durably(place, batch.as_slice())
}

/// Returns the newest intact head, and the copy that holds it.
fn read_heads(disk: &dyn Disk) -> Result<(Head, u64), LogError> {
    let block = disk.block();
    let mut buffer = Buffer::zeros(block);
    let (mut newest, mut refused) = (None::<(Head, u64)>, LogError::NotALog);
    for copy in 0..2 {
        let at = copy * block as u64;
        if at + block as u64 > disk.len() {
            continue;
        }
        let read = disk.read(at, buffer.as_mut_slice());
        read.map_err(|e| LogError::io("reading a head of the log", &e))?;
        match Head::decode(buffer.as_slice()) {
            Copy1::Whole(head) if newest.is_none_or(|(old, _)| old.sequence < head.sequence) => {
                newest = Some((head, copy));
            }
            Copy1::Whole(_) | Copy1::Foreign => {}
            Copy1::Version(found) => refused = LogError::Version { found, supported: VERSION },
            Copy1::Damaged => refused = LogError::Damaged,
        }
    }
    let (head, copy) = newest.ok_or(refused)?;
    if head.shape.block != block as u64 {
        let what = "block size of the log on this disk";
        return Err(LogError::BadOption { what, value: head.shape.block });
    }
    if !head.is_possible() {
        return Err(LogError::Damaged);
    }
    let expected = head.shape.capacity.saturating_add(head.shape.place(0));
    if disk.len() < expected {
        return Err(LogError::Cut { len: disk.len(), expected });
    }
    Ok((head, copy))
}
