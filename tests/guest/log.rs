//! The log of a disk's writes, in the format of QEMU's `blklogwrites` and Linux's `dm-log-writes`: a head,
//! then for each write or flush a sector that describes it, and its data.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::work::Mark;

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLUSH: u64 = 1;
/// The write itself is durable.
const FORCED: u64 = 2;
const DISCARD: u64 = 4;

/// An operation on the disk.
#[derive(Debug)]
pub(super) enum Entry {
    /// Everything that was written before is durable.
    Flush,
    /// Bytes were written.
    Write {
        /// Where, in bytes.
        at: u64,
        /// Their number.
        len: u64,
        /// Where they are in the log.
        data: u64,
    },
    /// The write before is durable, and nothing else.
    Forced,
    /// A thread's mark was written.
    Mark(u64, Mark),
}

/// Reads the operations in order. Writes from `marks_at` on are marks.
pub(super) fn read(log: &File, marks_at: u64) -> Vec<Entry> {
    let words = |at: u64| -> [u64; 4] {
        let mut bytes = [0; 32];
        log.read_exact_at(&mut bytes, at).expect("the log");
        std::array::from_fn(|i| u64::from_le_bytes(bytes.as_chunks().0[i]))
    };
    let head = words(0);
    assert_eq!(head[..2], [MAGIC, 1], "a log of writes");
    assert_eq!(head[3] as u32, SECTOR as u32, "bytes of a sector");
    let mut entries = Vec::new();
    let mut place = SECTOR;
    for _ in 0..head[2] {
        let [sector, sectors, flags, _] = words(place);
        let (at, len, data) = (sector * SECTOR, sectors * SECTOR, place + SECTOR);
        place = data;
        if flags & DISCARD != 0 {
            continue; // whatever was there may be there still
        }
        if flags & FLUSH != 0 {
            entries.push(Entry::Flush); // before the write of the same request
        }
        if len != 0 && at >= marks_at {
            let mut bytes = vec![0; len as usize];
            log.read_exact_at(&mut bytes, data).expect("a mark");
            let marks = bytes.chunks(SECTOR as usize).filter_map(Mark::decode);
            entries.extend(marks.map(|(thread, mark)| Entry::Mark(thread, mark)));
        } else if len != 0 {
            entries.push(Entry::Write { at, len, data });
        }
        place += len;
        if flags & FORCED != 0 {
            entries.push(Entry::Forced);
        }
    }
    entries
}
