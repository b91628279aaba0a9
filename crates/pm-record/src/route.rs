//! Keys in the form of inner nodes, and the separators between them: a word, and for longer keys the rest, in
//! DRAM. Shared by the trees whose inner nodes are in DRAM.

use std::cmp::Ordering;
use std::sync::OnceLock;

use pmindex_core::{Arena, Mapped, Medium, PmError, PmType, PmU64, Word, words_of};
use pmindex_index::{Key, MAX_INLINE_WORDS, MAX_KEY_BYTES, Shape, Words};

use crate::probe::{Probe, prefix_word};

/// A key in the form of inner nodes: it determines the path of a search.
#[derive(Clone, Copy, Debug)]
pub struct Route<'k> {
    /// Its first word: orders keys, except for ties.
    pub prefix: u64,
    // Borrowed: a copy would be made by wider loads than the stores just before it, so it would wait for
    // these stores, and right after a fence for the fence.
    words: &'k Words,
    bytes: &'k [u8],
}

static GREATEST_BYTES: [u8; MAX_KEY_BYTES + 1] = [0xff; MAX_KEY_BYTES + 1];

impl Route<'static> {
    /// Returns the route to the first leaf.
    pub const LEAST: Self = Self { prefix: 0, words: &[0; 4], bytes: &[] };
    /// Returns the route to the last leaf.
    pub const GREATEST: Self =
        Self { prefix: u64::MAX, words: &[u64::MAX; 4], bytes: &GREATEST_BYTES };
}

impl<'k> Route<'k> {
    /// Returns the route to the probe's key.
    #[inline(always)]
    #[must_use]
    pub fn to<K: Key>(probe: &'k Probe<'_, K>) -> Self {
        let bytes = if K::SHAPE.is_bytes() { probe.bytes() } else { &[] };
        Self { prefix: probe.prefix(), words: probe.words(), bytes }
    }

    /// Returns the route to an inline key, given by its words.
    #[must_use]
    pub fn to_words(words: &'k Words) -> Self {
        Self { prefix: words[0], words, bytes: &[] }
    }

    /// Returns the route to a byte-string key, or to a separator.
    #[must_use]
    pub fn to_bytes(bytes: &'k [u8]) -> Self {
        let prefix = prefix_word(bytes);
        Self { prefix, words: &[0; 4], bytes }
    }

    /// Returns the key as bytes in key order; those of inline keys are written to `room`.
    #[inline(always)]
    #[must_use]
    pub fn encoded<'b, K: Key>(&'b self, room: &'b mut [u8; 8 * MAX_INLINE_WORDS]) -> &'b [u8] {
        match K::SHAPE {
            Shape::Inline(n) => {
                for (bytes, word) in room.as_chunks_mut::<8>().0.iter_mut().zip(self.words) {
                    *bytes = word.to_be_bytes();
                }
                &room[..8 * n]
            }
            Shape::Bytes => self.bytes,
        }
    }

    /// Returns a copy that owns its key.
    #[must_use]
    pub fn to_owned_route(&self) -> OwnedRoute {
        OwnedRoute { words: *self.words, bytes: self.bytes.to_vec() }
    }

    /// Returns the part of a byte string behind the prefix.
    fn rest(&self) -> &'k [u8] {
        self.bytes.get(8..).unwrap_or(&[])
    }
}

/// A [`Route`] that owns its key.
#[derive(Clone, Debug)]
pub struct OwnedRoute {
    words: Words,
    bytes: Vec<u8>,
}

impl OwnedRoute {
    /// Returns the route to the key.
    #[must_use]
    pub fn route<K: Key>(&self) -> Route<'_> {
        match K::SHAPE {
            Shape::Inline(_) => Route::to_words(&self.words),
            Shape::Bytes => Route::to_bytes(&self.bytes),
        }
    }
}

/// A separator: a prefix that orders it, except for ties, and the tail that breaks ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Separator {
    /// Its first word.
    pub prefix: u64,
    /// The rest.
    pub tail: Tail,
}

/// The place of a separator's rest: `length:16 | size class:16 | index:32`. The length is that of the whole
/// separator, in bytes; a separator that fits in its prefix has no chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tail(pub(crate) u64);

impl Word for Tail {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self(word)
    }
    #[inline(always)]
    fn into_word(self) -> u64 {
        self.0
    }
}

impl Tail {
    /// The separator has no tail.
    pub const NONE: Self = Self(0);

    fn new(length: usize, class: usize, index: u32) -> Self {
        Self((length as u64) << 48 | (class as u64) << 32 | u64::from(index))
    }
    fn length(self) -> usize {
        (self.0 >> 48) as usize
    }
    fn class(self) -> usize {
        (self.0 >> 32 & 0xffff) as usize
    }
    #[allow(clippy::cast_possible_truncation, reason = "the low half is the index")]
    fn index(self) -> u32 {
        self.0 as u32
    }
    fn has_chunk(self) -> bool {
        self.length() > 8
    }
}

/// The rests of separators, in type-stable chunks of four sizes. A reader that holds a stale
/// [`Tail`] compares with some other bytes and fails its validation.
#[derive(Debug)]
pub struct Tails {
    /// The number of chunks of each size.
    capacity: u32,
    // Made when it is first needed.
    short: OnceLock<Arena<[PmU64; 4]>>,
    medium: OnceLock<Arena<[PmU64; 16]>>,
    long: OnceLock<Arena<[PmU64; 64]>>,
    longest: OnceLock<Arena<[PmU64; MAX_KEY_BYTES / 8]>>,
}

/// Returns a chunk of an arena, which is made if necessary.
fn take<T: PmType>(arena: &OnceLock<Arena<T>>, capacity: u32) -> Result<u32, PmError> {
    if let Some(arena) = arena.get() {
        return arena.alloc();
    }
    let made = Arena::new(capacity)?;
    arena.get_or_init(|| made).alloc()
}

fn give<T: PmType>(arena: &OnceLock<Arena<T>>, index: u32) {
    if let Some(arena) = arena.get() {
        arena.free(index);
    }
}

fn words<T: PmType>(arena: &OnceLock<Arena<T>>, index: u32) -> &[PmU64] {
    arena.get().map_or(&[], |arena| words_of(arena.get(index)))
}

impl Tails {
    /// Reserves room for `capacity` separators with tails of each size.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            capacity,
            short: OnceLock::new(),
            medium: OnceLock::new(),
            long: OnceLock::new(),
            longest: OnceLock::new(),
        }
    }

    fn chunk(&self, tail: Tail) -> &[PmU64] {
        let index = tail.index();
        match tail.class() {
            0 => words(&self.short, index),
            1 => words(&self.medium, index),
            2 => words(&self.long, index),
            _ => words(&self.longest, index),
        }
    }

    /// Stores a separator's tail.
    ///
    /// # Errors
    /// [`PmError::Full`], [`PmError::Os`] if there is no room for it.
    pub fn store<K: Key>(&self, dram: &Mapped, route: &Route<'_>) -> Result<Separator, PmError> {
        let prefix = route.prefix;
        let tail = match K::SHAPE {
            Shape::Inline(1) => Tail::default(),
            Shape::Inline(n) => {
                let tail = Tail::new(8 * n, 0, take(&self.short, self.capacity)?);
                dram.write_words(&self.chunk(tail)[..n - 1], &route.words[1..n]);
                tail
            }
            Shape::Bytes => {
                let rest = route.rest();
                let (class, index) = match rest.len() {
                    0 => (0, 0),
                    1..=32 => (0, take(&self.short, self.capacity)?),
                    33..=128 => (1, take(&self.medium, self.capacity)?),
                    129..=512 => (2, take(&self.long, self.capacity)?),
                    _ => (3, take(&self.longest, self.capacity)?),
                };
                let tail = Tail::new(route.bytes.len(), class, index);
                if tail.has_chunk() {
                    dram.write_bytes(self.chunk(tail), rest);
                }
                tail
            }
        };
        Ok(Separator { prefix, tail })
    }

    /// Frees a tail that no node holds.
    pub fn free(&self, tail: Tail) {
        if tail.has_chunk() {
            match tail.class() {
                0 => give(&self.short, tail.index()),
                1 => give(&self.medium, tail.index()),
                2 => give(&self.long, tail.index()),
                _ => give(&self.longest, tail.index()),
            }
        }
    }

    /// Compares a separator that has the route's prefix with the route.
    pub fn compare<K: Key>(&self, dram: &Mapped, tail: Tail, route: &Route<'_>) -> Ordering {
        match K::SHAPE {
            Shape::Inline(1) => Ordering::Equal,
            Shape::Inline(n) => {
                let mut words = [0; 4];
                dram.read_words(&self.chunk(tail)[..n - 1], &mut words[1..n]);
                words[1..n].cmp(&route.words[1..n])
            }
            Shape::Bytes => {
                let length = tail.length();
                let rest = if tail.has_chunk() {
                    dram.cmp_bytes(self.chunk(tail), length - 8, route.rest())
                } else {
                    0.cmp(&route.rest().len())
                };
                rest.then(length.cmp(&route.bytes.len()))
            }
        }
    }

    /// Copies a separator. Racing: validate.
    #[must_use]
    pub fn load<K: Key>(&self, dram: &Mapped, separator: Separator) -> OwnedRoute {
        let Separator { prefix, tail } = separator;
        let mut words = [prefix, 0, 0, 0];
        let mut bytes = Vec::new();
        match K::SHAPE {
            Shape::Inline(1) => {}
            Shape::Inline(n) => dram.read_words(&self.chunk(tail)[..n - 1], &mut words[1..n]),
            Shape::Bytes => {
                bytes = vec![0; tail.length()];
                let first = prefix.to_be_bytes();
                let n = bytes.len().min(8);
                bytes[..n].copy_from_slice(&first[..n]);
                if tail.has_chunk() {
                    let chunk = self.chunk(tail);
                    let rest = &mut bytes[8..];
                    let n = rest.len().min(size_of_val(chunk));
                    dram.read_bytes(chunk, &mut rest[..n]);
                }
            }
        }
        OwnedRoute { words, bytes }
    }

    /// Returns the bytes of DRAM in use.
    #[must_use]
    pub fn bytes(&self) -> usize {
        fn bytes<T: PmType>(arena: &OnceLock<Arena<T>>) -> usize {
            arena.get().map_or(0, Arena::bytes)
        }
        bytes(&self.short) + bytes(&self.medium) + bytes(&self.long) + bytes(&self.longest)
    }
}
