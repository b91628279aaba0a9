//! The layout of an environment of files in a pool.
//!
//! ```text
//! root     | slots | zeros |
//! slots    | next | entry, or null: 63 |
//! entry    | sequence | inode | bytes of the name | checksum | the name, zero-padded to a word |
//! inode    | length | extents | zeros |
//! extent   | next | bytes | number | checksum | zeros | its bytes |
//! ```
//!
//! A *checked number* has 48 bits, and 16 bits of its checksum below them, so that a word that one store
//! changes can be verified too.
//!
//! A file has an entry in a slot, which has its name, and an inode, which leads to its contents. An entry is
//! *dead* if its sequence is 0, or if another entry has the same name and a greater sequence. Its file is
//! deleted, and its space is given back when the last open handle is dropped, or by the next opening.

use pmindex_core::{Medium, PPtr, PmError, PmPtr, PmU64, Pool, checksum, pm_struct};

/// The type of an environment in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"env     ";
/// Version of the layout on this page.
pub(crate) const FORMAT: u64 = 1;
/// Entries of a block of slots.
pub(crate) const SLOTS: usize = 63;
/// The maximum bytes of a name.
pub const NAME_MAX: usize = 255;

pm_struct! {
    /// The root block.
    #[align(64)]
    pub struct Root: size 64 {
        /// The first block of slots.
        pub slots @ 0: PmPtr<Slots>,
        /// Zero.
        pub reserved @ 8: [PmU64; 7],
    }

    /// Pointers to entries.
    #[align(64)]
    pub struct Slots: size 512 {
        /// The next block of slots.
        pub next @ 0: PmPtr<Slots>,
        /// Entries, or null.
        pub entries @ 8: [PmPtr<Entry>; 63],
    }

    /// The name of a file; its bytes follow.
    #[align(8)]
    pub struct Entry: size 32 {
        /// Of two entries with the same name, the one with the lesser sequence is dead. A checked number, or
        /// 0: this entry is dead.
        pub sequence @ 0: PmU64,
        /// The contents of the file.
        pub inode @ 8: PmPtr<Inode>,
        /// Bytes of the name.
        pub name_bytes @ 16: PmU64,
        /// The checksum of the entry's offset, the inode and the name.
        pub checksum @ 24: PmU64,
    }

    /// The contents of a file.
    #[align(64)]
    pub struct Inode: size 64 {
        /// The length of the file in bytes: a checked number.
        pub length @ 0: PmU64,
        /// The first extent.
        pub extents @ 8: PmPtr<Extent>,
        /// Zero.
        pub reserved @ 16: [PmU64; 6],
    }

    /// A part of a file; its bytes follow.
    #[align(64)]
    pub struct Extent: size 64 {
        /// The next part.
        pub next @ 0: PmPtr<Extent>,
        /// Its capacity in bytes.
        pub bytes @ 8: PmU64,
        /// The number of parts before it.
        pub number @ 16: PmU64,
        /// The checksum of its offset, its inode, `bytes` and `number`.
        pub checksum @ 24: PmU64,
        /// Zero.
        pub reserved @ 32: [PmU64; 4],
    }
}

/// The slot of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAt {
    pub(crate) slots: PPtr<Slots>,
    pub(crate) at: usize,
}

impl SlotAt {
    pub(crate) fn cell<M: Medium>(self, pool: &Pool<M>) -> Result<&PmPtr<Entry>, PmError> {
        Ok(&pool.get(self.slots)?.entries[self.at])
    }
}

/// Returns the word of a number of 48 bits: the number and 16 bits of its checksum.
pub(crate) fn checked(number: u64) -> u64 {
    number << 16 | checksum(CHECKED, [number]) & 0xffff
}

/// Returns the number in a word; `None` if the checksum is wrong.
pub(crate) fn unchecked(word: u64) -> Option<u64> {
    let number = word >> 16;
    (word == checked(number)).then_some(number)
}

const CHECKED: u64 = u64::from_le_bytes(*b"env word");

/// Returns the checksum of an entry.
pub(crate) fn entry_checksum(at: PPtr<Entry>, inode: PPtr<Inode>, bytes: u64, name: &[u64]) -> u64 {
    checksum(at.offset(), [inode.offset(), bytes].into_iter().chain(name.iter().copied()))
}

/// Returns the checksum of an extent.
pub(crate) fn extent_checksum(
    at: PPtr<Extent>,
    inode: PPtr<Inode>,
    bytes: u64,
    number: u64,
) -> u64 {
    checksum(at.offset(), [inode.offset(), bytes, number])
}

/// Returns the words of the name of an entry.
pub(crate) fn name_words<M: Medium>(
    pool: &Pool<M>,
    entry: PPtr<Entry>,
    bytes: u64,
) -> Result<&[PmU64], PmError> {
    pool.words(entry.offset() + size_of::<Entry>() as u64, bytes.div_ceil(8) as usize)
}

/// Returns the words of some bytes of an extent, from a word on.
pub(crate) fn extent_words<M: Medium>(
    pool: &Pool<M>,
    extent: PPtr<Extent>,
    word: u64,
    words: u64,
) -> Result<&[PmU64], PmError> {
    pool.words(extent.offset() + size_of::<Extent>() as u64 + word * 8, words as usize)
}
