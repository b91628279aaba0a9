//! An index whose kind is chosen at run time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pmindex_core::{IndexEntry, Medium, PmError, Pool};
use pmindex_index::{ErasedIndex, Index, IndexError, Key, Noted, PmIndex, Value, erase};

/// The kinds of index: one line each; each is there with the feature of its name.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:tt, $index:ident;)+) => {
        /// A kind of index; its name is what tools and the pool's directory call it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* #[cfg(feature = $name)] $kind,)+
        }

        impl Kind {
            /// All kinds that this build has.
            pub const ALL: &[Self] = &[$(#[cfg(feature = $name)] Self::$kind,)+];

            /// Its name: `fptree`, ...
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(#[cfg(feature = $name)] Self::$kind => $name,)+
                }
            }

            fn create<K: Key, V: Value, M: Medium>(
                self,
                pool: &Arc<Pool<M>>,
                name: &str,
            ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
                match self {
                    $(#[cfg(feature = $name)]
                    Self::$kind => erase::<K, V, M, _>(
                        <crate::$index<K, V, M> as PmIndex<K, V, M>>::create(pool, name),
                    ),)+
                }
            }

            fn open<K: Key, V: Value, M: Medium>(
                self,
                pool: &Arc<Pool<M>>,
                name: &str,
            ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
                match self {
                    $(#[cfg(feature = $name)]
                    Self::$kind => erase::<K, V, M, _>(
                        <crate::$index<K, V, M> as PmIndex<K, V, M>>::open(pool, name),
                    ),)+
                }
            }
        }
    };
}

kinds! {
    /// DRAM inner nodes, leaves with fingerprints in PM: the fastest single operations.
    FpTree: "fptree", FpTree;
    /// Everything in PM, sorted leaves: opens at once, whatever its size, and scans fast.
    FastFair: "fastfair", FastFair;
    /// Radix trees by prefix in DRAM, records in PM: single operations, long keys.
    Hart: "hart", Hart;
    /// All in PM, lock-free, opened in constant time, the same in volatile memory.
    BzTree: "bztree", BzTree;
    /// DRAM inner nodes, append-only leaves in PM: one flush and one fence for every write.
    NvTree: "nvtree", NvTree;
    /// Radix tree and key ranges in DRAM, leaves in PM: fast misses, reads at once after a crash.
    SpTree: "sptree", SpTree;
    /// SPTree with write buffers over a structured log: one line, one fence for a write.
    BufferedSpTree: "sptree-buffered", BufferedSpTree;
    /// All in PM: opens at once whatever the size, the fastest scans; one writer at a time.
    WbTree: "wbtree", SharedWbTree;
}

impl Kind {
    /// The kind of an index in a pool's directory; `None` if this version does not know it.
    #[must_use]
    pub fn of(entry: &IndexEntry) -> Option<Self> {
        let name = entry.kind.split(|byte| *byte == 0).next().unwrap_or_default();
        // The directory has room for the first 8 bytes of a name.
        let of = |kind: &Self| kind.name().bytes().take(entry.kind.len()).eq(name.iter().copied());
        Self::ALL.iter().copied().find(of)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// There is no kind of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind {
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no kind of index is called {:?}", self.name)
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.iter().copied().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownKind { name: name.into() })
    }
}

/// An index whose kind is chosen at run time; its keys and values have types as ever.
///
/// Everything costs what it costs in the index itself, and a call through a table.
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
    /// [`IndexError::IndexExists`]; the pool's.
    pub fn create<M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Kind,
    ) -> Result<Self, IndexError> {
        Ok(Self { kind, index: kind.create(pool, name)? })
    }

    /// Opens the index `name`, of whatever kind it is; recovery is part of it.
    ///
    /// # Errors
    /// [`IndexError::NoSuchIndex`], [`IndexError::WrongType`] (a kind this version does not know),
    /// [`IndexError::WrongLayout`] (other types of keys or values); the pool's.
    pub fn open<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<Self, IndexError> {
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
        Ok(Self { kind, index: kind.open(pool, name).noted(pool)? })
    }

    /// Hands every record that can be read of the index `name` to `each`, until that says `false`,
    /// without opening the index, which may be too damaged for that; what is wrong with it. `None`:
    /// it is of a kind that opens without reading its nodes, and [`salvage`](crate::salvage) reads it.
    /// Some records may be given twice, in any order.
    ///
    /// `foreign` says of a block's offset whether another index owns it; with it, nodes are found
    /// that nothing leads to.
    ///
    /// # Errors
    /// As [`open`](Self::open); the root of the index cannot be read.
    pub fn salvage_nodes<M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        foreign: Option<&dyn Fn(u64) -> bool>,
        each: &mut dyn FnMut(K, V) -> bool,
    ) -> Result<Option<Vec<PmError>>, IndexError> {
        let Some(entry) = pool.find_index(name)? else {
            return Err(IndexError::NoSuchIndex { name: name.into() });
        };
        Ok(match Kind::of(&entry) {
            #[cfg(feature = "fptree")]
            Some(Kind::FpTree) => {
                Some(crate::FpTree::<K, V, M>::salvage(pool, name, foreign, each)?)
            }
            #[cfg(feature = "nvtree")]
            Some(Kind::NvTree) => {
                Some(crate::NvTree::<K, V, M>::salvage(pool, name, foreign, each)?)
            }
            #[cfg(feature = "sptree")]
            Some(Kind::SpTree) => {
                Some(crate::SpTree::<K, V, M>::salvage(pool, name, foreign, each)?)
            }
            #[cfg(feature = "sptree-buffered")]
            Some(Kind::BufferedSpTree) => {
                Some(crate::BufferedSpTree::<K, V, M>::salvage(pool, name, foreign, each)?)
            }
            #[cfg(feature = "hart")]
            Some(Kind::Hart) => Some(crate::Hart::<K, V, M>::salvage(pool, name, foreign, each)?),
            _ => {
                let _ = (foreign, each); // a build may have no other kinds
                None
            }
        })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The index, without its kind.
    #[cfg(feature = "store")]
    pub(crate) fn into_erased(self) -> Box<dyn ErasedIndex<K, V>> {
        self.index
    }

    /// Waits for background work, saves what makes the next open fast, and ends.
    pub fn close(self) -> Result<(), IndexError> {
        self.index.close()
    }

    /// Removes the index `name`, of whatever kind it is, and frees all its blocks; `false` if there is
    /// none. Nobody has it open. See [`PmIndex::destroy`].
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and of [`Pool::drop_index`]; the index stays.
    pub fn destroy<M: Medium>(pool: &Arc<Pool<M>>, name: &str) -> Result<bool, IndexError> {
        pool.drop_index(name, |name| Self::open(pool, name)?.blocks())
    }

    /// The offsets of all blocks this index owns, for the allocator's audit.
    pub fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }
}

impl<K: Key, V: Value> Index<K, V> for AnyIndex<K, V> {
    pmindex_index::forward_index!(index);
}
