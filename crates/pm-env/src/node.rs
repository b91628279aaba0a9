//! The contents of a file: extents, one after the other.
//!
//! ```text
//! append                                          durable before
//! A1  the bytes, behind the length                A2
//! A2  the length (LIN)                            sync returns
//!
//! a new extent
//! P1  the extent, its ticket                      P2
//! P2  the link to it (LIN)                        any length that reaches into it
//! ```
//!
//! The last word of an append may contain bytes of an earlier append, which are stored again unchanged, since
//! words are stored whole. Readers use the length in DRAM, which is stored after the one in the pool.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::{Mutex, RwLock};
use pmindex_core::{Flushed, LINE, Medium, Owner, PPtr, PmError, PmPtr, Pool};

use crate::layout::{Extent, Inode, checked, extent_checksum, extent_words, unchecked};

const HEAD: u64 = size_of::<Extent>() as u64;

/// A part of a file.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The bytes of the file before it.
    start: u64,
    bytes: u64,
    at: PPtr<Extent>,
}

/// The contents of a file; all open handles share it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) inode: PPtr<Inode>,
    /// The file has no name, so it is given back when no handle is open.
    pub(crate) is_dead: AtomicBool,
    /// The acknowledged length.
    length: AtomicU64,
    /// The parts, in order. Locked briefly.
    parts: RwLock<Vec<Part>>,
    /// Held during an append.
    appends: Mutex<()>,
    /// All extents for its length exist. Some of a dead file's may be missing.
    is_whole: bool,
    /// The damage of its extents.
    damage: Option<PmError>,
}

impl Node {
    /// Makes an empty file.
    pub(crate) fn empty(inode: PPtr<Inode>) -> Self {
        Self {
            inode,
            is_dead: AtomicBool::new(false),
            length: AtomicU64::new(0),
            parts: RwLock::default(),
            appends: Mutex::new(()),
            is_whole: true,
            damage: None,
        }
    }

    /// Reads the extents of a file.
    pub(crate) fn read<M: Medium>(pool: &Pool<M>, inode: PPtr<Inode>) -> Self {
        let mut node = Self::empty(inode);
        node.damage = node.read_parts(pool).err();
        node
    }

    fn read_parts<M: Medium>(&mut self, pool: &Pool<M>) -> Result<(), PmError> {
        let (pm, inode) = (pool.pm(), pool.get(self.inode)?);
        let (mut next, mut start) = (pm.load(&inode.extents), 0);
        let parts = self.parts.get_mut();
        // Giving back the extents of a dead file starts at the first one and may have been interrupted.
        let before =
            if next.is_null() { 0 } else { pm.load(&pool.get(next)?.number) & u64::from(u32::MAX) };
        while !next.is_null() {
            let extent = pool.get(next)?;
            let (bytes, number) = (pm.load(&extent.bytes), pm.load(&extent.number));
            let sum = extent_checksum(next, self.inode, bytes, number);
            if pm.load(&extent.checksum) != sum || number != before + parts.len() as u64 {
                return Err(PmError::Corrupt {
                    what: "an extent of a file",
                    offset: next.offset(),
                });
            }
            extent_words(pool, next, 0, bytes / 8)?;
            parts.push(Part { start, bytes, at: next });
            start += bytes;
            next = pm.load(&extent.next);
        }
        let length = unchecked(pm.load(&inode.length)).filter(|length| *length <= start);
        self.is_whole = before == 0 && length.is_some();
        *self.length.get_mut() = length.unwrap_or(0);
        Ok(())
    }

    /// Returns an error unless it is sound, as a file with a name must be.
    pub(crate) fn check(&self) -> Result<(), PmError> {
        if let Some(damage) = &self.damage {
            return Err(damage.clone());
        }
        let (what, offset) = ("the length of a file", self.inode.offset());
        if self.is_whole { Ok(()) } else { Err(PmError::Corrupt { what, offset }) }
    }

    /// Returns `true` if all its remaining extents can be found.
    pub(crate) fn leads_on(&self) -> bool {
        self.damage.is_none()
    }

    pub(crate) fn len(&self) -> u64 {
        self.length.load(Acquire)
    }

    /// Returns the blocks of the extents.
    pub(crate) fn blocks(&self) -> Vec<u64> {
        self.parts.read().iter().map(|part| part.at.offset()).collect()
    }

    fn part_of(&self, offset: u64) -> Option<Part> {
        let parts = self.parts.read();
        let after = parts.partition_point(|part| part.start <= offset);
        let part = *parts.get(after.checked_sub(1)?)?;
        (offset < part.start + part.bytes).then_some(part)
    }

    /// Reads from an offset; returns the number of bytes.
    pub(crate) fn read_at<M: Medium>(
        &self,
        pool: &Pool<M>,
        offset: u64,
        into: &mut [u8],
    ) -> Result<usize, PmError> {
        let left = self.len().saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let Some(part) = self.part_of(at) else { break };
            let within = at - part.start;
            let most = usize::try_from(part.bytes - within).unwrap_or(usize::MAX);
            let bytes = &mut into[done..wanted];
            let count = bytes.len().min(most);
            read_words(pool, part.at, within, &mut bytes[..count])?;
            done += count;
        }
        Ok(done)
    }

    /// Appends bytes, in the steps of the module's table.
    pub(crate) fn append<M: Medium>(
        &self,
        pool: &Pool<M>,
        sizes: &RangeInclusive<u64>,
        bytes: &[u8],
    ) -> Result<(), PmError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let pm = pool.pm();
        let _appends = pm.lock(&self.appends);
        let (start, end) = (self.len(), self.len() + bytes.len() as u64);
        self.make_room(pool, sizes, end)?;
        let (mut done, mut flushed) = (0, Flushed::nothing());
        while done < bytes.len() {
            let at = start + done as u64;
            let Some(part) = self.part_of(at) else { break };
            let within = at - part.start;
            let most = usize::try_from(part.bytes - within).unwrap_or(usize::MAX);
            let count = (bytes.len() - done).min(most);
            let piece = &bytes[done..done + count];
            flushed = flushed.and(write_words(pool, part.at, within, piece)?); // A1
            done += count;
        }
        pm.fence(flushed)?; // A1, durable before: A2
        pm.store(&pool.get(self.inode)?.length, checked(end)); // A2, LIN(append)
        self.length.store(end, Release);
        Ok(())
    }

    /// Makes earlier appends durable.
    pub(crate) fn sync<M: Medium>(&self, pool: &Pool<M>) -> Result<(), PmError> {
        let (pm, inode) = (pool.pm(), pool.get(self.inode)?);
        let flushed = pm.flush(&inode.length); // DUR(append)
        pm.fence(flushed)?;
        Ok(())
    }

    /// Adds extents until the file has room for this many bytes.
    fn make_room<M: Medium>(
        &self,
        pool: &Pool<M>,
        sizes: &RangeInclusive<u64>,
        bytes: u64,
    ) -> Result<(), PmError> {
        loop {
            let last = self.parts.read().last().copied();
            let room = last.map_or(0, |part| part.start + part.bytes);
            if room >= bytes {
                return Ok(());
            }
            let (first, largest) = (*sizes.start() - HEAD, *sizes.end() - HEAD);
            let most = largest.min(pool.largest_block() - HEAD);
            let needed = (bytes - room).next_multiple_of(LINE as u64).min(most);
            let usual = room.clamp(first, largest).max(needed).min(most);
            let number = self.parts.read().len() as u64;
            let part = match self.add_extent(pool, last, number, usual) {
                // A pool that is nearly full may have room for a small extent.
                Err(error) if error.is_full() && needed < usual => {
                    self.add_extent(pool, last, number, needed)
                }
                added => added,
            }?;
            self.parts.write().push(Part { start: room, ..part });
        }
    }

    fn add_extent<M: Medium>(
        &self,
        pool: &Pool<M>,
        last: Option<Part>,
        number: u64,
        bytes: u64,
    ) -> Result<Part, PmError> {
        let pm = pool.pm();
        let link: &PmPtr<Extent> = match last {
            Some(part) => &pool.get(part.at)?.next,
            None => &pool.get(self.inode)?.extents,
        };
        let mut op = pool.op()?;
        let block = op.reserve_bytes(HEAD + bytes, LINE as u64)?.cast::<Extent>();
        let (at, extent) = (block.ptr(), pool.get(block.ptr())?);
        pm.store(&extent.next, PPtr::NULL);
        pm.store(&extent.bytes, bytes);
        pm.store(&extent.number, number);
        pm.store(&extent.checksum, extent_checksum(at, self.inode, bytes, number));
        extent.reserved.iter().for_each(|word| pm.store(word, 0));
        let filled = pm.flush(extent);
        op.allocate(&block, Owner::pointer(link, at))?;
        op.prepare(filled)?; // P1, durable before: P2
        pm.store(link, at); // P2, LIN(extent)
        let flushed = op.seal().and(pm.flush(link));
        let durable = pm.fence(flushed)?; // DUR: durable before any length that reaches into it
        op.finish(durable);
        Ok(Part { start: 0, bytes, at })
    }
}

/// Gives the extents of a file back, one by one from the first on. No handle of the file is open.
///
/// ```text
/// P1  the ticket                                  P2
/// P2  the inode's link to the one after it (LIN)  reuse of the block
/// ```
pub(crate) fn free_extents<M: Medium>(pool: &Pool<M>, inode: PPtr<Inode>) -> Result<(), PmError> {
    let (pm, link) = (pool.pm(), &pool.get(inode)?.extents);
    loop {
        let first = pm.load(link);
        if first.is_null() {
            return Ok(());
        }
        let next = pm.load(&pool.get(first)?.next);
        let mut op = pool.op()?;
        op.free(first, Owner::pointer(link, first))?;
        op.prepare(Flushed::nothing())?; // P1, durable before: P2
        pm.store(link, next); // P2, LIN
        let flushed = op.seal().and(pm.flush(link));
        let durable = pm.fence(flushed)?; // DUR
        op.finish(durable);
    }
}

/// Reads bytes of an extent.
fn read_words<M: Medium>(
    pool: &Pool<M>,
    extent: PPtr<Extent>,
    from: u64,
    into: &mut [u8],
) -> Result<(), PmError> {
    let pm = pool.pm();
    let skip = (from % 8) as usize;
    let words = (skip + into.len()).div_ceil(8) as u64;
    let mut words = extent_words(pool, extent, from / 8, words)?;
    let mut into = into;
    if skip > 0 {
        let first = pm.load_word(&words[0]).to_le_bytes();
        let count = into.len().min(8 - skip);
        into[..count].copy_from_slice(&first[skip..skip + count]);
        (words, into) = (&words[1..], &mut into[count..]);
    }
    pm.read_bytes(words, into);
    Ok(())
}

/// Writes bytes of an extent, and keeps the bytes before them in their first word; the bytes behind them in
/// their last word are unused.
fn write_words<M: Medium>(
    pool: &Pool<M>,
    extent: PPtr<Extent>,
    from: u64,
    bytes: &[u8],
) -> Result<Flushed, PmError> {
    let pm = pool.pm();
    let skip = (from % 8) as usize;
    let cells = extent_words(pool, extent, from / 8, (skip + bytes.len()).div_ceil(8) as u64)?;
    let mut words = Vec::with_capacity(cells.len());
    let mut word = if skip > 0 { pm.load_word(&cells[0]).to_le_bytes() } else { [0; 8] };
    let (first, rest) = bytes.split_at(bytes.len().min((8 - skip) % 8));
    if skip > 0 {
        word[skip..].fill(0);
        word[skip..skip + first.len()].copy_from_slice(first);
        words.push(u64::from_le_bytes(word));
    }
    for chunk in rest.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        words.push(u64::from_le_bytes(word));
    }
    Ok(pm.stream_words(cells, &words))
}
