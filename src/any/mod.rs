//! An index whose kind is chosen at run time.

#[cfg(feature = "paged")]
mod paged;
#[cfg(feature = "precompiled")]
mod precompiled;

#[cfg(feature = "paged")]
pub use paged::paged;

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

use pmindex_core::{IndexEntry, Medium, PmError, Pool};
use pmindex_index::kept::{ForKept, KeptType, as_types, for_kept};
use pmindex_index::{ErasedIndex, Index, IndexError, Key, Noted, Value, typed};

/// What to do with an index in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Create,
    Open,
    OpenToRemove,
}

/// The kinds of index, one line each; a kind exists if the feature of its name is on.
macro_rules! kinds {
    (
        beside: $(#[$paged_doc:meta])* $paged:ident: $paged_name:tt, $paged_index:ident;
        $($(#[$doc:meta])* $kind:ident: $name:tt, $index:ident;)+
    ) => {
        /// A kind of index. Tools and the pool's directory use its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* #[cfg(feature = $name)] $kind,)+
            $(#[$paged_doc])*
            #[cfg(feature = $paged_name)]
            $paged,
        }

        impl Kind {
            /// All kinds of this build that any pool can have.
            pub const ALL: &[Self] = &[$(#[cfg(feature = $name)] Self::$kind,)+];

            /// The kinds of this build with a file beside the pool, which must be a file too.
            pub const BESIDE: &[Self] = &[#[cfg(feature = $paged_name)] Self::$paged];

            /// Returns its name: `fptree`, ...
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(#[cfg(feature = $name)] Self::$kind => $name,)+
                    #[cfg(feature = $paged_name)]
                    Self::$paged => $paged_name,
                }
            }

            /// Creates or opens an index of encoded records.
            fn make<A: KeptType, B: KeptType, M: Medium>(
                self,
                pool: &Arc<Pool<M>>,
                name: &str,
                how: How,
            ) -> Result<Box<dyn ErasedIndex<A, B>>, IndexError> {
                let _ = (pool, name); // a build may have no kind at all
                match (self, how) {
                    $(#[cfg(feature = $name)]
                    (Self::$kind, How::Create) => pmindex_index::erase::<A, B, M, _>(
                        <crate::$index<A, B, M> as pmindex_index::PmIndex<A, B, M>>::create(pool, name),
                    ),
                    #[cfg(feature = $name)]
                    (Self::$kind, How::Open | How::OpenToRemove) => pmindex_index::erase::<A, B, M, _>(
                        <crate::$index<A, B, M> as pmindex_index::PmIndex<A, B, M>>::open(pool, name),
                    ),)+
                    #[cfg(feature = $paged_name)]
                    (Self::$paged, How::Create) => pmindex_index::erase::<A, B, M, _>(
                        <crate::$paged_index<A, B, M> as pmindex_index::PmIndex<A, B, M>>::create(pool, name),
                    ),
                    #[cfg(feature = $paged_name)]
                    (Self::$paged, How::Open) => pmindex_index::erase::<A, B, M, _>(
                        <crate::$paged_index<A, B, M> as pmindex_index::PmIndex<A, B, M>>::open(pool, name),
                    ),
                    #[cfg(feature = $paged_name)]
                    (Self::$paged, How::OpenToRemove) => pmindex_index::erase::<A, B, M, _>(
                        <crate::$paged_index<A, B, M> as pmindex_index::PmIndex<A, B, M>>::open_to_remove(
                            pool, name,
                        ),
                    ),
                }
            }
        }
    };
}

kinds! {
    beside:
    /// Pages in a file beside the pool, which has those that are used: for maps larger than the pool.
    Paged: "paged", Paged;

    /// Inner nodes in DRAM, leaves with fingerprints in PM: the fastest single operations.
    FpTree: "fptree", FpTree;
    /// Everything in PM, sorted leaves: opens in constant time, and scans fast.
    FastFair: "fastfair", FastFair;
    /// Radix trees by prefix in DRAM, records in PM: fast single operations, long keys.
    Hart: "hart", Hart;
    /// Everything in PM, lock-free: opens in constant time, and also runs in volatile memory.
    BzTree: "bztree", BzTree;
    /// Inner nodes in DRAM, append-only leaves in PM: one flush and one fence for every write.
    NvTree: "nvtree", NvTree;
    /// Radix tree and key ranges in DRAM, leaves in PM: fast misses, serves reads immediately after a
    /// crash.
    SpTree: "sptree", SpTree;
    /// SPTree with write buffers over a structured log: one line and one fence per write.
    BufferedSpTree: "sptree-buffered", BufferedSpTree;
    /// Everything in PM: opens in constant time, has the fastest scans, and one writer at a time.
    WbTree: "wbtree", SharedWbTree;
    /// A radix tree wholly in PM, changed in place: opens in constant time; for long keys.
    Woart: "woart", Woart;
    /// A radix tree wholly in PM whose nodes are copied to change them; for comparison with WOART.
    ArtCow: "artcow", ArtCow;
    /// Leaves under such a tree, which follows them by a log: all in PM, opens at once.
    PacTree: "pactree", PacTree;
    /// A skip list: nodes of several records in PM, its towers in DRAM: one line, one fence for a write.
    SkipList: "skiplist", SkipList;
}

impl Kind {
    /// Returns `true` if an index has a file of its own beside the pool, also of a kind that this build lacks.
    #[must_use]
    pub fn has_file(entry: &IndexEntry) -> bool {
        entry.kind == *b"paged\0\0\0"
    }

    /// Passes the readable records of the index to `each`; returns `None` if the kind opens without reading
    /// its nodes.
    #[allow(unreachable_patterns, clippy::unnecessary_wraps, reason = "a build may have one kind")]
    fn salvage<A: KeptType, B: KeptType, M: Medium>(
        self,
        pool: &Arc<Pool<M>>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(A, B) -> bool,
    ) -> Result<Option<Vec<PmError>>, IndexError> {
        Ok(match self {
            #[cfg(feature = "fptree")]
            Self::FpTree => Some(crate::FpTree::<A, B, M>::salvage(pool, name, foreign, each)?),
            #[cfg(feature = "nvtree")]
            Self::NvTree => Some(crate::NvTree::<A, B, M>::salvage(pool, name, foreign, each)?),
            #[cfg(feature = "sptree")]
            Self::SpTree => Some(crate::SpTree::<A, B, M>::salvage(pool, name, foreign, each)?),
            #[cfg(feature = "sptree-buffered")]
            Self::BufferedSpTree => {
                Some(crate::BufferedSpTree::<A, B, M>::salvage(pool, name, foreign, each)?)
            }
            #[cfg(feature = "hart")]
            Self::Hart => Some(crate::Hart::<A, B, M>::salvage(pool, name, foreign, each)?),
            #[cfg(feature = "pactree")]
            Self::PacTree => Some(crate::PacTree::<A, B, M>::salvage(pool, name, foreign, each)?),
            #[cfg(feature = "skiplist")]
            Self::SkipList => Some(crate::SkipList::<A, B, M>::salvage(pool, name, foreign, each)?),
            _ => {
                let _ = (pool, name, foreign, each); // a build may have no other kinds
                None
            }
        })
    }
}

impl Kind {
    /// Returns the kind of an index in a pool's directory; `None` if this version does not know it.
    #[must_use]
    pub fn of(entry: &IndexEntry) -> Option<Self> {
        let name = entry.kind.split(|byte| *byte == 0).next().unwrap_or_default();
        // A directory entry holds the first 8 bytes of the name.
        let of = |kind: &Self| kind.name().bytes().take(entry.kind.len()).eq(name.iter().copied());
        Self::ALL.iter().chain(Self::BESIDE).copied().find(of)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of parsing a name that no kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Kind::ALL.iter().chain(Kind::BESIDE).map(|kind| kind.name()).collect();
        write!(f, "no kind of index is called {:?}; this build has {}", self.name, names.join(", "))
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.iter().chain(Self::BESIDE).copied().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownKind { name: name.into() })
    }
}

/// Creates or opens an index that stores the encodings of its types, under the names of the types.
///
/// So all types of one shape share one compiled index: a program compiles each kind of index once for words
/// and once for byte strings, not for every pair of types. (With the feature `precompiled` it compiles
/// neither.)
struct Make<'a, K, V, M: Medium> {
    kind: Kind,
    pool: &'a Arc<Pool<M>>,
    name: &'a str,
    how: How,
    types: PhantomData<fn() -> (K, V)>,
}

impl<K: Key, V: Value, M: Medium> ForKept for Make<'_, K, V, M> {
    type Done = Result<Box<dyn ErasedIndex<K, V>>, IndexError>;

    fn run<A: KeptType, B: KeptType>(self) -> Self::Done {
        let Self { kind, pool, name, how, .. } = self;
        as_types(K::type_name(), V::type_name(), || {
            #[cfg(feature = "precompiled")]
            if const { precompiled::has::<K, V, M>() } {
                return precompiled::make(kind, pool, name, how);
            }
            Ok(typed(kind.make::<A, B, M>(pool, name, how)?, pool))
        })
    }
}

/// Salvages an index that stores the encodings of its types.
struct Salvaging<'a, K, V, M: Medium> {
    kind: Kind,
    pool: &'a Arc<Pool<M>>,
    name: &'a str,
    foreign: Option<&'a dyn Fn(u64) -> bool>,
    each: &'a mut dyn FnMut(K, V) -> bool,
}

impl<K: Key, V: Value, M: Medium> ForKept for Salvaging<'_, K, V, M> {
    type Done = Result<Option<Vec<PmError>>, IndexError>;

    fn run<A: KeptType, B: KeptType>(self) -> Self::Done {
        let Self { kind, pool, name, foreign, each } = self;
        let mut undecoded = 0;
        let mut decode = |key: A, value: B| {
            let Some((key, value)) = key.decode().zip(value.decode()) else {
                undecoded += 1;
                return true;
            };
            each(key, value)
        };
        let salvaged = as_types(K::type_name(), V::type_name(), || {
            kind.salvage::<A, B, M>(pool, name, foreign, &mut decode)
        })?;
        let what = "the encoding of a record";
        let bad = std::iter::repeat_n(PmError::Corrupt { what, offset: 0 }, undecoded);
        Ok(salvaged.map(|wrong| wrong.into_iter().chain(bad).collect()))
    }
}

/// An index whose kind is chosen at run time; its keys and values have static types.
///
/// An operation costs what it costs in the index itself, plus a call through a table. Types other than
/// `u64` and `Vec<u8>` are also encoded and decoded: batches copy their byte strings.
///
/// ```
/// use std::sync::Arc;
/// use pmindex::{AnyIndex, Index, Kind, Pool};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let kind: Kind = "fptree".parse()?;
/// let pool = Arc::new(Pool::emulated(4 << 20)?);
/// let index = AnyIndex::<String, u64>::create(&pool, "words", kind)?;
/// index.insert("one", &1)?;
/// index.close()?;
/// let index = AnyIndex::<String, u64>::open(&pool, "words")?;
/// assert_eq!((index.kind(), index.get("one")?), (kind, Some(1)));
/// # Ok(())
/// # }
/// ```
pub struct AnyIndex<K, V> {
    kind: Kind,
    index: Box<dyn ErasedIndex<K, V>>,
}

impl<K, V> fmt::Debug for AnyIndex<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyIndex").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<K: Key, V: Value> AnyIndex<K, V> {
    /// Creates the index `name`.
    ///
    /// # Errors
    /// [`IndexError::IndexExists`], and the errors of the pool.
    pub fn create<M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Kind,
    ) -> Result<Self, IndexError> {
        let index =
            for_kept::<K, V, _>(Make { kind, pool, name, how: How::Create, types: PhantomData })?;
        Ok(Self { kind, index })
    }

    /// Opens the index `name`, of any kind, and recovers it.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`] (a kind that this version does not know),
    /// [`IndexError::WrongLayout`] (other types of keys or values), and the errors of the pool.
    pub fn open<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
        Self::open_as(pool, name, How::Open)
    }

    /// Opens the index `name`, of any kind, which is about to be removed.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(crate) fn open_to_remove<M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Self, IndexError> {
        Self::open_as(pool, name, How::OpenToRemove)
    }

    fn open_as<M: Medium>(pool: &Arc<Pool<M>>, name: &str, how: How) -> Result<Self, IndexError> {
        let Some(entry) = pool.find_index(name)? else {
            return Err(IndexError::NoSuchIndex { name: name.into() });
        };
        let Some(kind) = Kind::of(&entry) else {
            let found = String::from_utf8_lossy(&entry.kind);
            return Err(IndexError::WrongType {
                name: name.into(),
                found: found.trim_end_matches(['\0', ' ']).to_owned(),
                wanted: "an index of any known kind".into(),
            });
        };
        let make = Make { kind, pool, name, how, types: PhantomData };
        Ok(Self { kind, index: for_kept::<K, V, _>(make).noted(pool)? })
    }

    /// Passes every record of the index `name` that can be read to `each`, until that returns `false`. Does
    /// not open the index, which may be too damaged to open. Returns the errors that it found, or `None`
    /// for a kind that opens without reading its nodes, which [`salvage`](crate::salvage) can read. May
    /// pass some records twice, in any order.
    ///
    /// `foreign` returns `true` if another index owns the block at an offset. With it, unreachable nodes
    /// are found too.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and if the root of the index cannot be read.
    pub fn salvage_nodes<M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Option<Vec<PmError>>, IndexError> {
        let Some(entry) = pool.find_index(name)? else {
            return Err(IndexError::NoSuchIndex { name: name.into() });
        };
        let Some(kind) = Kind::of(&entry) else { return Ok(None) };
        for_kept::<K, V, _>(Salvaging { kind, pool, name, foreign, each })
    }

    /// Returns its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the index without its kind.
    #[cfg(feature = "store")]
    pub(crate) fn into_erased(self) -> Box<dyn ErasedIndex<K, V>> {
        self.index
    }

    /// Waits for background work, saves data that makes the next opening fast, and closes the index.
    pub fn close(self) -> Result<(), IndexError> {
        self.index.close()
    }

    /// Removes the index `name`, of any kind, and frees all its blocks; returns `false` if it does not
    /// exist. The index must not be open. See [`PmIndex::destroy`](pmindex_index::PmIndex::destroy).
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and of [`Pool::drop_index`]; then the index stays.
    pub fn destroy<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        pool.drop_index(name, |name| Self::open_to_remove(pool, name)?.blocks())
    }

    /// Returns the offsets of all blocks that this index owns, for the allocator's audit.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }
}

impl<K: Key, V: Value> Index<K, V> for AnyIndex<K, V> {
    pmindex_index::forward_index!(index);
}
