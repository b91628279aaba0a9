//! The layout of a HART in a pool.
//!
//! # Chunks
//!
//! Records and objects stand in **chunks** of up to `CHUNK` (at most 56) slots of one size:
//!
//! ```text
//! word  0        1       2 .. 7   8
//!       | number | shape | 0      | slots, or lines of slots .. |
//!       |<---- header line ------>|
//! ```
//!
//! `number` is the chunk's place in the table of chunks, `shape` what its slots are. Both are written
//! once, before the table names the chunk.
//!
//! Slots of objects follow each other. An object is live if a live record points to it, so which
//! slots are taken is derived when the index is opened, and never goes out of step.
//!
//! # Lines of records
//!
//! ```text
//! word  0      1 .. 7
//!       | line | one to three records, 0 |
//! ```
//!
//! The first word of each line ([`LineWord`]) is the **commit word** of its records: a bit per slot
//! says that it holds a record of the index. Stores to one line become durable in the order they are
//! made, so a record and its bit take one flush and one fence. (The paper's bitmap per chunk takes
//! two.) A record never straddles lines, so a lookup that has found its place misses once.
//!
//! # Record
//!
//! ```text
//! key of n words          | key: n words                        | value |
//! key of bytes, short     | length | up to 24 bytes, 0 padded   | value |
//! key of bytes, long      | length | object | 0 | 0             | value |
//! ```
//!
//! The value word is a one-word value itself, or a string of up to 7 bytes, or leads to an object
//! ([`ValueWord`]). So one 8-byte store replaces any value.
//!
//! # Object
//!
//! `| length in bytes | bytes |`: a long key, or a value that does not fit the record.
//!
//! # Table
//!
//! The chunks are found through a list of segments, each with 63 places for chunks. (A list through
//! the chunks themselves, as in the paper, would make recovery one chain of cache misses, and taking
//! a chunk out a search.) A segment is never freed.

use pmindex_core::{LINE, PPtr, PmCell, PmPtr, PmU64, Word, pm_struct};
use pmindex_index::{Key, Shape, Value};
use pmindex_record::hash_bytes;

/// The type of an index in the pool's directory.
pub(crate) const KIND: [u8; 8] = *b"hart\0\0\0\0";
/// Version of the layout on this page.
const FORMAT: u64 = 2;

/// The largest number of slots in a chunk.
pub(crate) const MAX_CHUNK: usize = 56;
/// Places for chunks in a segment.
pub(crate) const PLACES: u32 = 63;
/// Bytes of a key that stand in the record.
pub(crate) const SHORT_KEY: usize = 24;

pm_struct! {
    /// The root block.
    ///
    /// ```text
    /// 0       8           16      24
    /// | table | bulk load | image | reserved |
    /// ```
    #[align(64)]
    pub struct Root: size 64 {
        /// The first segment of the table of chunks, or null.
        pub table @ 0: PmPtr<Segment>,
        /// Not 0 while a bulk load is in progress: no chunk is in the index.
        pub bulk_load @ 8: PmU64,
        /// The image that a clean shutdown saved, or null.
        pub image @ 16: PmPtr<ImagePiece>,
        /// Zero.
        pub reserved: [PmU64; 5],
    }

    /// A part of the clean-shutdown image; its words follow.
    ///
    /// ```text
    /// 0      8          16      24     32      40      48      56
    /// | next | position | total | what | first | count | words | checksum |
    /// ```
    #[align(64)]
    pub struct ImagePiece: size 64 {
        /// The next piece, or null.
        pub next @ 0: PmPtr<ImagePiece>,
        /// Pieces before this one.
        pub position @ 8: PmU64,
        /// Pieces of the image.
        pub total @ 16: PmU64,
        /// The kind of the words: 0 to 3 nodes of a size, 4 the head, 5 trees, 6 objects.
        pub what @ 24: PmU64,
        /// The first node; 0.
        pub first @ 32: PmU64,
        /// Nodes; 0.
        pub count @ 40: PmU64,
        /// Words that follow.
        pub words @ 48: PmU64,
        /// The checksum of the fields before it except `next`, and of the words.
        pub checksum @ 56: PmU64,
    }

    /// A part of the table of chunks.
    #[align(64)]
    pub struct Segment: size 512 {
        /// The next part, or null.
        pub next @ 0: PmPtr<Segment>,
        /// Chunks, or null.
        pub chunks @ 8: [PmPtr<ChunkHead>; 63],
    }

    /// The header of a chunk; its slots follow.
    #[align(64)]
    pub struct ChunkHead: size 64 {
        /// The place of the table that leads here.
        pub number @ 0: PmU64,
        /// The kind of the slots.
        pub shape @ 8: PmCell<ChunkShape>,
        /// Zero.
        pub reserved: [PmU64; 6],
    }
}

/// The commit word of a line of records.
///
/// ```text
/// bits 0..7     which slots of the line hold records of the index
/// bits 32..64   the chunk's number
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineWord(u64);

impl LineWord {
    /// Returns the word of a line without records.
    #[inline(always)]
    pub(crate) const fn empty(number: u32) -> Self {
        Self((number as u64) << 32)
    }
    #[inline(always)]
    pub(crate) const fn new(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.0
    }
    #[inline(always)]
    pub(crate) const fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// Returns the slots that hold records, and all bits that should be 0.
    pub(crate) const fn live(self) -> u64 {
        self.0 & 0xffff_ffff
    }
}

/// Words of a line that records can take.
const LINE_ROOM: usize = LINE / 8 - 1;

/// Returns the number of records of `words` words in a line.
pub(crate) const fn per_line(words: usize) -> usize {
    LINE_ROOM / words
}

/// Returns the offset of slot `slot` from the beginning of a chunk of records of `words` words.
#[inline(always)]
pub(crate) const fn record_at(words: usize, slot: usize) -> u64 {
    let per_line = per_line(words);
    (LINE * (1 + slot / per_line) + 8 * (1 + words * (slot % per_line))) as u64
}

/// The kind of a chunk's slots.
///
/// ```text
/// bits 0..32    words of a slot
/// bits 32..40   slots
/// bit 40        objects, not records
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkShape(u64);

impl Word for ChunkShape {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl ChunkShape {
    pub(crate) const fn records(words: usize, slots: usize) -> Self {
        Self(words as u64 | (slots as u64) << 32)
    }
    pub(crate) const fn objects(words: usize, slots: usize) -> Self {
        Self(words as u64 | (slots as u64) << 32 | 1 << 40)
    }
    pub(crate) const fn is_objects(self) -> bool {
        self.0 & 1 << 40 != 0
    }
    pub(crate) const fn slot_words(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
    pub(crate) const fn slots(self) -> usize {
        (self.0 >> 32 & 0xff) as usize
    }
    /// One bit per slot.
    pub(crate) const fn all(self) -> u64 {
        (1 << self.slots()) - 1
    }
    /// Lines of a chunk of records.
    pub(crate) const fn lines(self) -> usize {
        self.slots().div_ceil(per_line(self.slot_words()))
    }
    /// Returns the bits of line `line` of a chunk of records.
    pub(crate) const fn line_all(self, line: usize) -> u64 {
        let (all, per_line) = (self.all(), per_line(self.slot_words()));
        all >> (line * per_line) & ((1 << per_line) - 1)
    }
    /// Bytes of a chunk.
    pub(crate) const fn bytes(self) -> u64 {
        let slots = if self.is_objects() {
            8 * self.slot_words() * self.slots()
        } else {
            LINE * self.lines()
        };
        (LINE + slots) as u64
    }
}

/// A slot: its chunk follows from the size of its chunk's slots.
///
/// ```text
/// bits 0..6     which slot of its chunk
/// bits 6..      offset / 8
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRef(u64);

impl SlotRef {
    #[inline(always)]
    pub(crate) const fn new(offset: u64, slot: usize) -> Self {
        Self(offset >> 3 << 6 | slot as u64)
    }
    /// From the number that [`number`](Self::number) gave, or any other.
    #[inline(always)]
    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }
    /// As a number below 2^58: what the trees keep of a record.
    #[inline(always)]
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
    /// Returns the slot's offset.
    #[inline(always)]
    pub(crate) const fn offset(self) -> u64 {
        self.0 >> 6 << 3
    }
    #[inline(always)]
    pub(crate) const fn slot(self) -> usize {
        (self.0 & 63) as usize
    }
    /// Returns the offset of an object's chunk, if its slots have `slot_words` words. Any reference is allowed.
    #[inline(always)]
    pub(crate) const fn object_chunk(self, slot_words: usize) -> u64 {
        self.offset().wrapping_sub(LINE as u64 + 8 * (self.slot() * slot_words) as u64)
    }
    /// Returns the offset of the chunk of a record of `words` words. Any reference is allowed.
    #[inline(always)]
    pub(crate) const fn record_chunk(self, words: usize) -> u64 {
        self.offset().wrapping_sub(record_at(words, self.slot()))
    }
    /// Returns the offset of a record's line.
    #[inline(always)]
    pub(crate) const fn line(self) -> u64 {
        self.offset() & !(LINE as u64 - 1)
    }
    /// Returns the bit in its line of a record of `words` words.
    #[inline(always)]
    pub(crate) const fn line_bit(self, words: usize) -> u64 {
        1 << (self.slot() % per_line(words))
    }
}

/// The word of a record that is, or leads to, a value of bytes.
///
/// ```text
/// bits 0..3     1: a short string; 2: an object
/// bits 3..8     a short string's length
/// bits 8..64    its bytes
/// bits 3..64    an object's slot
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueWord {
    /// Up to 7 bytes.
    Short { len: usize, bytes: [u8; 7] },
    /// An object.
    Object(SlotRef),
    /// No writer left this.
    Invalid,
}

impl Word for ValueWord {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        match word & 7 {
            1 if word >> 3 & 31 <= 7 => {
                let [_, bytes @ ..] = word.to_le_bytes();
                Self::Short { len: (word >> 3 & 31) as usize, bytes }
            }
            2 => Self::Object(SlotRef(word >> 3)),
            _ => Self::Invalid,
        }
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        match self {
            Self::Short { len, bytes } => {
                let mut word = [(len as u8) << 3 | 1; 8];
                word[1..].copy_from_slice(&bytes);
                u64::from_le_bytes(word)
            }
            Self::Object(SlotRef(number)) => number << 3 | 2,
            Self::Invalid => 0,
        }
    }
}

impl ValueWord {
    /// Returns a short string; `None` if it is too long.
    pub(crate) fn short(value: &[u8]) -> Option<Self> {
        let mut bytes = [0; 7];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Self::Short { len: value.len(), bytes })
    }
}

/// Words of a record's key part.
pub(crate) const fn key_words<K: Key>() -> usize {
    match K::SHAPE {
        Shape::Inline(words) => words,
        Shape::Bytes => 1 + SHORT_KEY / 8,
    }
}

/// Words of a record.
pub(crate) const fn record_words<K: Key>() -> usize {
    key_words::<K>() + 1
}

/// Words of the slot for an object of `len` bytes, its length word included: exact up to 8 words,
/// then four sizes per doubling, exact again for the largest.
pub(crate) const fn object_words(len: usize) -> usize {
    let words = 1 + len.div_ceil(8);
    if words < 2 {
        return 2;
    }
    if words <= 8 || words > LARGEST_SHARED {
        return words;
    }
    let step = 1 << ((words - 1).ilog2() - 2);
    words.next_multiple_of(step)
}

/// The words of the largest objects that share chunks; a larger one has a chunk of its own.
pub(crate) const LARGEST_SHARED: usize = 256;

/// Returns the number of objects of `words` words in a chunk: about 8 KiB.
pub(crate) const fn objects_per_chunk(words: usize, chunk: usize) -> usize {
    let fit = 1024 / words;
    if words > LARGEST_SHARED || fit < 1 {
        1
    } else if fit > chunk {
        chunk
    } else {
        fit
    }
}

/// Returns the shelf of the chunks of an object size; `None` for those of one object.
pub(crate) const fn size_class(words: usize) -> Option<usize> {
    if words > LARGEST_SHARED {
        return None;
    }
    if words <= 8 {
        return Some(words);
    }
    let doubling = (words - 1).ilog2() as usize; // 3 and more
    let step = 1 << (doubling - 2);
    Some(8 + 4 * (doubling - 3) + (words - (1 << doubling)) / step)
}

/// More than there are size classes.
pub(crate) const CLASSES: usize = 8 + 4 * 5 + 1;

/// Returns the hash of this layout for the pool's directory.
pub(crate) fn layout_id<K: Key, V: Value, const CHUNK: usize>() -> u64 {
    const { assert!(CHUNK >= 1 && CHUNK <= MAX_CHUNK, "a chunk has 1 to 56 slots") };
    layout_id_of::<CHUNK>(&K::type_name(), &V::type_name())
}

/// Returns the hash of the layout for types with these names.
pub(crate) fn layout_id_of<const CHUNK: usize>(key: &str, value: &str) -> u64 {
    hash_bytes(format!("{FORMAT} {key} {value} {CHUNK}").as_bytes())
}

/// A pointer to a chunk's header.
pub(crate) type ChunkPtr = PPtr<ChunkHead>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_lines_of_their_own() {
        let shape = ChunkShape::records(record_words::<u64>(), 56);
        assert_eq!((shape.lines(), shape.bytes()), (19, 1280));
        assert_eq!((shape.line_all(0), shape.line_all(18)), (0b111, 0b11));
        for words in 2..=5 {
            for slot in 0..MAX_CHUNK {
                let at = record_at(words, slot) as usize;
                assert!(at % LINE >= 8 && at % LINE + 8 * words <= LINE, "{words} {slot}");
                let one = SlotRef::new((1 << 40) + at as u64, slot);
                assert_eq!(one.record_chunk(words), 1 << 40);
                assert_eq!(one.line(), (1 << 40) + (at - at % LINE) as u64);
                let line = ChunkShape::records(words, MAX_CHUNK).line_all(slot / per_line(words));
                assert_ne!(one.line_bit(words) & line, 0);
            }
        }
    }

    #[test]
    fn sizes_are_tight_and_have_distinct_classes() {
        let mut last = (0, None);
        for len in 0..=8 * (LARGEST_SHARED - 1) {
            let words = object_words(len);
            assert!(8 * (words - 1) >= len);
            assert!(words <= 3 || 8 * (words - 1) <= len + len / 4 + 8, "{len}: {words}");
            let class = size_class(words);
            assert!(class.is_some_and(|class| class < CLASSES));
            assert_eq!(words == last.0, class == last.1, "{len}");
            last = (words, class);
        }
        assert_eq!(size_class(object_words(8 * (LARGEST_SHARED - 1) + 1)), None);
    }

    #[test]
    fn words_say_what_they_were_made_of() {
        let slot = SlotRef::new((1 << 47) + 64 + 16 * 55, 55);
        assert_eq!((slot.offset(), slot.slot()), ((1 << 47) + 64 + 16 * 55, 55));
        assert_eq!(slot.object_chunk(2), 1 << 47);
        assert!(slot.number() < pmindex_art::LEAF_LIMIT);
        for value in [ValueWord::Object(slot), ValueWord::short(b"").unwrap_or(ValueWord::Invalid)]
        {
            assert_eq!(ValueWord::from_word(value.into_word()), value);
        }
        assert_eq!(ValueWord::short(b"12345678"), None);
        let seven = ValueWord::short(b"1234567").map(ValueWord::into_word);
        assert_eq!(
            seven.map(ValueWord::from_word),
            Some(ValueWord::Short { len: 7, bytes: *b"1234567" })
        );
    }
}
