//! The index, and its typed operations.

use std::borrow::Cow;
use std::sync::Arc;

use pmindex_core::{Mapped, Medium, OpenIndex, PmError, Pool};
use pmindex_index::{
    IndexError, InsertMany, Key, MAX_INLINE_WORDS, MAX_KEY_BYTES, Missing, Noted, Occupied,
    RecoveryReport, Shape, Stats, Value, same_encoding,
};
use pmindex_record::{Pair, RecordBlock};

use crate::layout::Root;
use crate::tree::{Tree, Visited};
use crate::write::Record;

/// A persistent, concurrent ordered map: an adaptive radix tree entirely in PM.
///
/// `COW` selects how a node gains and loses children: in place (WOART), or by a copy ([`ArtCow`]).
///
/// # Cost
///
/// 2 fences per insert and removal, and per update of values that are not one word; 1 per update of one-word
/// values. Flushed lines of an insert in place: those of the record, of the ticket, of the allocation bit,
/// and 1 to 3 of the node. Reads flush nothing. Opening reads one line, whatever the size.
///
/// # Example
///
/// ```
/// # mod pmindex { pub use pmindex_core::Pool; pub use pmindex_woart::Woart; }
/// use std::sync::Arc;
/// use pmindex::{Pool, Woart};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Arc::new(Pool::emulated(1 << 20)?);
/// let words = Woart::<String, u64>::create(&pool, "words")?;
/// for word in ["radix", "rad", "tree"] {
///     words.insert(word, &(word.len() as u64))?;
/// }
/// drop(words); // not closed: as after a crash
/// let words = Woart::<String, u64>::open(&pool, "words")?;
/// assert_eq!(words.first_key_value()?, Some(("rad".into(), 3)));
/// assert_eq!(words.prefix("rad").count(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Woart<K, V, M: Medium = Mapped, const COW: bool = false> {
    pub(crate) pool: Arc<Pool<M>>,
    pub(crate) report: RecoveryReport,
    pub(crate) types: std::marker::PhantomData<fn() -> (K, V)>,
    pub(crate) tree: Tree<M>,
    /// Last, so that the other fields are dropped before another thread can open the index.
    pub(crate) entry: OpenIndex,
}

/// An adaptive radix tree entirely in PM whose nodes are copied to gain or lose a child.
pub type ArtCow<K, V, M = Mapped> = Woart<K, V, M, true>;

impl<K, V, M: Medium, const COW: bool> std::fmt::Debug for Woart<K, V, M, COW> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if COW { "ArtCow" } else { "Woart" };
        f.debug_struct(name).field("name", &self.entry.name).finish_non_exhaustive()
    }
}

/// Encodes a key.
///
/// # Errors
/// [`IndexError::KeyTooLong`].
#[inline(always)]
pub(crate) fn key_bytes<K: Key>(key: &K::Ref) -> Result<KeyBytes<'_>, IndexError> {
    let bytes = KeyBytes::of::<K>(key);
    let len = bytes.len();
    if len > MAX_KEY_BYTES {
        return Err(IndexError::KeyTooLong { len, max: MAX_KEY_BYTES });
    }
    Ok(bytes)
}

/// The bytes of a key; their order is that of the keys.
pub(crate) enum KeyBytes<'k> {
    /// The bytes of a key of words, and their number.
    Inline([u8; 8 * MAX_INLINE_WORDS], usize),
    Bytes(Cow<'k, [u8]>),
}

impl<'k> KeyBytes<'k> {
    /// Encodes any key, even one too long for the index.
    #[inline(always)]
    pub(crate) fn of<K: Key>(key: &'k K::Ref) -> Self {
        let Shape::Inline(count) = K::SHAPE else { return Self::Bytes(K::to_bytes(key)) };
        let mut bytes = [0; 8 * MAX_INLINE_WORDS];
        for (word, place) in K::to_words(key)[..count].iter().zip(bytes.as_chunks_mut().0) {
            *place = word.to_be_bytes();
        }
        Self::Inline(bytes, 8 * count)
    }
}

impl std::ops::Deref for KeyBytes<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline(bytes, len) => &bytes[..*len],
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Encodes a record and passes it to `then`.
#[inline(always)]
pub(crate) fn with_record<K: Key, V: Value, T>(
    key: &K::Ref,
    value: &V::Ref,
    then: impl FnOnce(&Record<'_>) -> Result<T, IndexError>,
) -> Result<T, IndexError> {
    let key = key_bytes::<K>(key)?;
    if Pair::<K, V>::WORD_VALUE {
        let word = V::to_words(value)[0].to_le_bytes();
        return then(&Record { key: &key, value: &word });
    }
    let value = Pair::<K, V>::encode(value)?;
    then(&Record { key: &key, value: &value.bytes })
}

impl<K: Key, V: Value, M: Medium, const COW: bool> Woart<K, V, M, COW> {
    /// Returns the value of `key`. No flush, no fence.
    #[inline]
    pub fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        let read = |leaf: &RecordBlock<'_>, at| Pair::<K, V>::value_of(self.pool.pm(), leaf, at);
        let found = self.tree.look_up(&key_bytes::<K>(key)?, read);
        found.map_err(IndexError::from).noted(&self.pool)
    }

    /// Reads the value of `key` into `value`, reusing its memory; returns `false` if the key is absent: see
    /// [`Index::get_into`](pmindex_index::Index::get_into).
    #[inline]
    pub fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let read = |_: &RecordBlock<'_>, at| Pair::<K, V>::value_into(&self.pool, at, value);
        let found = self.tree.look_up(&key_bytes::<K>(key)?, read);
        Ok(found.map_err(IndexError::from).noted(&self.pool)?.is_some())
    }

    /// Returns `true` if `key` is present. No flush, no fence.
    #[inline]
    pub fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        let found = self.tree.look_up(&key_bytes::<K>(key)?, |_, _| Ok(()));
        Ok(found.map_err(IndexError::from).noted(&self.pool)?.is_some())
    }

    /// Looks up many keys; `out[i]` is the value of `keys[i]`. Costs as much as calling [`get`](Self::get)
    /// for each.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        assert_eq!(keys.len(), out.len(), "one place per key");
        for (key, out) in keys.iter().zip(out) {
            *out = self.get(key.borrowed())?;
        }
        Ok(())
    }

    /// Adds a record; returns [`Occupied`] and changes nothing if the key exists.
    ///
    /// # Cost
    /// 2 fences.
    ///
    /// # Errors
    /// A key or value too long; errors of the pool.
    #[inline]
    pub fn try_insert(
        &self,
        key: &K::Ref,
        value: &V::Ref,
    ) -> Result<Result<(), Occupied>, IndexError> {
        with_record::<K, V, _>(key, value, |record| self.tree.insert(record, false))
            .noted(&self.pool)
            .map(Occupied::unless)
    }

    /// Adds many records whose keys are new, one by one, until the first error.
    pub fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        InsertMany::one_by_one(records, |(key, value)| {
            self.try_insert(key.borrowed(), value.borrowed()).map(|new| new.is_ok())
        })
    }

    /// Replaces a value; returns [`Missing`] and changes nothing if the key is absent.
    ///
    /// # Cost
    /// One-word values in WOART: 1 line, 1 fence; else 2 fences.
    #[inline]
    pub fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        with_record::<K, V, _>(key, value, |record| self.tree.update(record))
            .noted(&self.pool)
            .map(Missing::unless)
    }

    /// Adds or replaces a record; returns the old value.
    ///
    /// # Cost
    /// That of [`put`](Self::put), and reading the old value.
    #[inline]
    pub fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        let mut old = None;
        let mut read = |leaf| {
            old = Some(Pair::<K, V>::value_in(&self.pool, leaf)?);
            Ok(())
        };
        with_record::<K, V, _>(key, value, |record| self.tree.put(record, &mut read))
            .noted(&self.pool)?;
        Ok(old)
    }

    /// Adds or replaces a record without reading the old value; returns `true` if the key is new.
    ///
    /// # Cost
    /// That of the insert or update.
    #[inline]
    pub fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        with_record::<K, V, _>(key, value, |record| self.tree.put(record, &mut |_| Ok(())))
            .noted(&self.pool)
    }

    /// Removes a record and returns its value.
    ///
    /// # Cost
    /// 2 fences.
    #[inline]
    pub fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |_| true)
    }

    /// Removes a record if its value has the same encoding as `value`; returns the removed value.
    ///
    /// # Cost
    /// That of [`remove`](Self::remove).
    pub fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        self.remove_inner(key, |stored| same_encoding::<V>(stored.borrowed(), value.borrowed()))
    }

    #[inline(always)]
    fn remove_inner(
        &self,
        key: &K::Ref,
        wanted: impl Fn(&V) -> bool,
    ) -> Result<Option<V>, IndexError> {
        let mut value = None;
        let mut judge = |leaf| {
            let stored = Pair::<K, V>::value_in(&self.pool, leaf)?;
            let goes = wanted(&stored);
            value = Some(stored);
            Ok(goes)
        };
        let removed = self.tree.remove(&key_bytes::<K>(key)?, &mut judge).noted(&self.pool)?;
        Ok(value.filter(|_| removed))
    }

    /// Returns the number of records. Complexity: the number of locks; once after a crash, the number of
    /// records. Exact if no write is in progress.
    pub fn len(&self) -> Result<u64, IndexError> {
        let count = || {
            let mut records = 0;
            for item in self {
                item?;
                records += 1;
            }
            Ok(records)
        };
        self.tree.tally.len(self.tree.pm(), count).noted(&self.pool)
    }

    pub(crate) fn root(&self) -> Result<&Root, PmError> {
        self.pool.get(self.entry.root::<Root>())
    }

    /// Returns the report of opening.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.report.clone()
    }

    /// Returns sizes: a leaf is a record in its block. Reads all of a quiescent index.
    pub fn stats(&self) -> Result<Stats, IndexError> {
        let tree = &self.tree;
        let mut stats = Stats {
            dram_bytes: (tree.tally.bytes() + 8 * tree.locks.len()) as u64,
            pm_bytes: size_of::<Root>() as u64,
            height: 1,
            ..Stats::default()
        };
        let walked: Result<(), PmError> = tree.walk(&mut |visited| {
            match visited {
                Visited::Node(node) => {
                    stats.inners += 1;
                    stats.pm_bytes += 8 * node.kind.words() as u64;
                }
                Visited::Leaf(leaf, way) => {
                    stats.leaves += 1;
                    stats.records += 1;
                    stats.height = stats.height.max(way.len() as u32 + 1);
                    stats.pm_bytes += RecordBlock::at(&self.pool, leaf.offset())?.size();
                }
            }
            Ok(())
        });
        walked.map_err(IndexError::from).noted(&self.pool)?;
        Ok(stats)
    }
}

pmindex_index::impl_index!(Woart<K, V, M, COW: bool>, if COW { "artcow" } else { "woart" });
