//! The index behind a handle: an index of a pool, an index with batches, or a map of a store.

use std::any::Any;
use std::sync::Arc;

use facade::{
    AnyIndex, Batched, Exchange, Index, IndexError, Kind, Map, Pool, Storable, Transaction,
    WriteBatch,
};

use crate::dyn_index::{DynIndex, FromC, Type};
use crate::keys::KeyLocks;
use crate::status::{Fault, Status};
use crate::stored::Stored;
use crate::typed::Typed;

/// The decision about a record.
pub(crate) enum Change<'v, V: Storable> {
    Keep,
    Put(&'v V::Ref),
    Remove,
}

/// Decides about a record, given its present value.
pub(crate) type Judge<'j, 'v, V> = &'j mut dyn FnMut(Option<&V>) -> Result<Change<'v, V>, Fault>;

/// An open index with the types of its keys and values.
pub(crate) trait Opened<K: FromC, V: FromC>: Send + Sync + 'static {
    /// `true` if single writes and batches exclude each other.
    const HAS_BATCHES: bool;
    type Index: Index<K, V>;
    fn index(&self) -> &Self::Index;
    fn kind(&self) -> Kind;
    /// Changes a record as `judge` decides, with no other such change in between; returns its old value.
    /// May call `judge` again.
    fn change(&self, key: &K::Ref, judge: Judge<'_, '_, V>) -> Result<Option<V>, Fault>;
    /// Makes all changes or none.
    fn write_batch(&self, changes: Vec<(K, Option<V>)>) -> Result<(), Fault>;
    /// Returns the map, if it is one.
    fn map(&self) -> Option<&Map<K, V>>;
    /// Returns the index itself, if its keys and values are numbers.
    fn numbers(&self) -> Option<&dyn Index<u64, u64>>;
    fn close(self) -> Result<(), Fault>;
}

/// Returns the object as a type that is known only here.
fn as_type<T: Any>(thing: &dyn Any) -> Option<&T> {
    thing.downcast_ref()
}

impl<K: FromC, V: FromC> Opened<K, V> for AnyIndex<K, V> {
    const HAS_BATCHES: bool = false;
    type Index = Self;

    fn index(&self) -> &Self {
        self
    }

    fn kind(&self) -> Kind {
        AnyIndex::kind(self)
    }

    // Where values differ in length, the caller holds the lock of the key.
    fn change(&self, key: &K::Ref, judge: Judge<'_, '_, V>) -> Result<Option<V>, Fault> {
        let found = self.get(key)?;
        Ok(match judge(found.as_ref())? {
            Change::Keep => found,
            Change::Put(value) => self.insert(key, value)?,
            Change::Remove => self.remove(key)?,
        })
    }

    fn write_batch(&self, _: Vec<(K, Option<V>)>) -> Result<(), Fault> {
        Err(no_batches())
    }

    fn map(&self) -> Option<&Map<K, V>> {
        None
    }

    fn numbers(&self) -> Option<&dyn Index<u64, u64>> {
        as_type::<AnyIndex<u64, u64>>(self).map(|index| index as _)
    }

    fn close(self) -> Result<(), Fault> {
        Ok(AnyIndex::close(self)?)
    }
}

/// Returns the error of an index that was not opened with batches.
pub(crate) fn no_batches() -> Fault {
    let message = "the index was not opened with pmindex_index_open_with_batches()";
    Fault::new(Status::InvalidArgument, message)
}

/// An index with batches.
type WithBatches<K, V> = Batched<K, V, AnyIndex<K, V>>;

impl<K: FromC, V: FromC> Opened<K, V> for WithBatches<K, V> {
    const HAS_BATCHES: bool = true;
    type Index = Self;

    fn index(&self) -> &Self {
        self
    }

    fn kind(&self) -> Kind {
        self.inner().kind()
    }

    fn change(&self, key: &K::Ref, judge: Judge<'_, '_, V>) -> Result<Option<V>, Fault> {
        let mut found = self.get(key)?;
        loop {
            let wanted = match judge(found.as_ref())? {
                Change::Keep => return Ok(found),
                Change::Put(value) => Some(V::owned(value)),
                Change::Remove => None,
            };
            match self.compare_exchange(key, found.as_ref(), wanted.as_ref())? {
                Exchange::Done => return Ok(found),
                Exchange::Found(other) => found = other,
            }
        }
    }

    fn write_batch(&self, changes: Vec<(K, Option<V>)>) -> Result<(), Fault> {
        let mut batch = WriteBatch::new();
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key.borrowed(), value.borrowed()),
                None => batch.remove(key.borrowed()),
            };
        }
        Ok(self.write(&batch)?)
    }

    fn map(&self) -> Option<&Map<K, V>> {
        None
    }

    fn numbers(&self) -> Option<&dyn Index<u64, u64>> {
        as_type::<WithBatches<u64, u64>>(self).map(|index| index as _)
    }

    fn close(self) -> Result<(), Fault> {
        Ok(self.into_inner()?.close()?)
    }
}

/// A map of a store.
pub(crate) struct MapOf<K: FromC, V: FromC> {
    pub(crate) map: Map<K, V>,
    pub(crate) kind: Kind,
    pub(crate) store: Arc<Stored>,
}

impl<K: FromC, V: FromC> MapOf<K, V> {
    /// Runs a transaction until it does not conflict with another.
    fn run<R>(
        &self,
        mut body: impl FnMut(&mut Transaction) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        loop {
            match self.store.store.transaction(&mut body) {
                Err(fault) if fault.status() == Status::Conflict => {}
                done => return done,
            }
        }
    }
}

impl<K: FromC, V: FromC> Opened<K, V> for MapOf<K, V> {
    const HAS_BATCHES: bool = true;
    type Index = Map<K, V>;

    fn index(&self) -> &Map<K, V> {
        &self.map
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn change(&self, key: &K::Ref, judge: Judge<'_, '_, V>) -> Result<Option<V>, Fault> {
        self.run(|tx| {
            let found = tx.get(&self.map, key)?;
            match judge(found.as_ref())? {
                Change::Keep => {}
                Change::Put(value) => tx.put(&self.map, key, value)?,
                Change::Remove => drop(tx.remove(&self.map, key)?),
            }
            Ok(found)
        })
    }

    fn write_batch(&self, changes: Vec<(K, Option<V>)>) -> Result<(), Fault> {
        self.run(|tx| {
            for (key, value) in &changes {
                match value {
                    Some(value) => tx.put(&self.map, key.borrowed(), value.borrowed())?,
                    None => drop(tx.remove(&self.map, key.borrowed())?),
                }
            }
            Ok(())
        })
    }

    fn map(&self) -> Option<&Map<K, V>> {
        Some(&self.map)
    }

    fn numbers(&self) -> Option<&dyn Index<u64, u64>> {
        as_type::<Map<u64, u64>>(&self.map).map(|map| map as _)
    }

    /// Does nothing: the store keeps its index open until the store itself is closed.
    fn close(self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Work that needs the types of keys and values at compile time.
pub(crate) trait Work {
    type Done;
    fn run<K: FromC, V: FromC>(&mut self) -> Result<Self::Done, Fault>;
}

/// Does work with these types.
pub(crate) fn with_types<W: Work>(types: (Type, Type), mut work: W) -> Result<W::Done, Fault> {
    match types {
        (Type::U64, Type::U64) => work.run::<u64, u64>(),
        (Type::U64, Type::Bytes) => work.run::<u64, Vec<u8>>(),
        (Type::Bytes, Type::U64) => work.run::<Vec<u8>, u64>(),
        (Type::Bytes, Type::Bytes) => work.run::<Vec<u8>, Vec<u8>>(),
    }
}

/// Does work with the types for which it does not fail with [`Status::WrongType`].
pub(crate) fn with_its_types<W: Work>(name: &str, mut work: W) -> Result<W::Done, Fault> {
    let runs = [
        W::run::<u64, u64>,
        W::run::<u64, Vec<u8>>,
        W::run::<Vec<u8>, u64>,
        W::run::<Vec<u8>, Vec<u8>>,
    ];
    for run in runs {
        match run(&mut work) {
            Err(fault) if fault.is_of_layout() => {}
            done => return done,
        }
    }
    let message = format!("index {name:?} has keys or values that are neither numbers nor bytes");
    Err(Fault::new(Status::WrongType, message))
}

/// Hides the types of an open index of a pool.
pub(crate) fn erase<K: FromC, V: FromC, O: Opened<K, V>>(
    pool: &Arc<Pool>,
    opened: O,
) -> Box<dyn DynIndex> {
    let needs_locks = V::SHAPE.is_bytes() && !O::HAS_BATCHES;
    Box::new(Typed::new(opened, needs_locks.then(|| KeyLocks::new(pool))))
}

/// An index of a pool.
struct InPool<'p> {
    pool: &'p Arc<Pool>,
    name: &'p str,
}

struct Create<'p>(InPool<'p>, Kind);
struct Open<'p>(InPool<'p>, bool);
struct Destroy<'p>(InPool<'p>);

impl Work for Create<'_> {
    type Done = Box<dyn DynIndex>;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<Box<dyn DynIndex>, Fault> {
        let (InPool { pool, name }, kind) = (&self.0, self.1);
        if pool.find_index(name)?.is_none() {
            // A crash may have left the log of a removed index of this name.
            WithBatches::<K, V>::destroy_log(pool, name)?;
        }
        Ok(erase(pool, AnyIndex::<K, V>::create(pool, name, kind)?))
    }
}

impl Work for Open<'_> {
    type Done = Box<dyn DynIndex>;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<Box<dyn DynIndex>, Fault> {
        let InPool { pool, name } = self.0;
        let index = AnyIndex::<K, V>::open(pool, name)?;
        if self.1 || WithBatches::<K, V>::has_log(pool, name)? {
            return Ok(erase(pool, WithBatches::new(pool, name, index)?));
        }
        Ok(erase(pool, index))
    }
}

impl Work for Destroy<'_> {
    type Done = bool;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<bool, Fault> {
        let InPool { pool, name } = self.0;
        if !AnyIndex::<K, V>::destroy(pool, name)? {
            return Ok(false);
        }
        match WithBatches::<K, V>::destroy_log(pool, name) {
            Ok(_) | Err(IndexError::ReservedName { .. }) => Ok(true), // another index, which stays
            Err(error) => Err(error.into()),
        }
    }
}

/// Creates an index.
pub(crate) fn create(
    pool: &Arc<Pool>,
    name: &str,
    kind: Kind,
    types: (Type, Type),
) -> Result<Box<dyn DynIndex>, Fault> {
    with_types(types, Create(InPool { pool, name }, kind))
}

/// Opens an index of any kind and types; with batches if it had them before, or if they are requested.
pub(crate) fn open(
    pool: &Arc<Pool>,
    name: &str,
    with_batches: bool,
) -> Result<Box<dyn DynIndex>, Fault> {
    with_its_types(name, Open(InPool { pool, name }, with_batches))
}

/// Removes an index of any kind and types; returns `true` if it existed.
pub(crate) fn destroy(pool: &Arc<Pool>, name: &str) -> Result<bool, Fault> {
    with_its_types(name, Destroy(InPool { pool, name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Bytes = WithBatches<Vec<u8>, Vec<u8>>;

    fn in_pool(pool: &Arc<Pool>) -> InPool<'_> {
        InPool { pool, name: "next" }
    }

    fn create(pool: &Arc<Pool>) -> Result<Box<dyn DynIndex>, Fault> {
        Create(in_pool(pool), Kind::ALL[0]).run::<Vec<u8>, Vec<u8>>()
    }

    fn destroy(pool: &Arc<Pool>) -> Result<bool, Fault> {
        Destroy(in_pool(pool)).run::<Vec<u8>, Vec<u8>>()
    }

    /// Puts an index with this record where the log of the index is.
    fn plant(pool: &Arc<Pool>, record: &[u8]) {
        let log = AnyIndex::<u64, Vec<u8>>::create(pool, "next.batch", Kind::ALL[0]).expect("new");
        log.put(&0, record).expect("room");
    }

    fn is_there(pool: &Arc<Pool>, name: &str) -> bool {
        pool.find_index(name).expect("whole").is_some()
    }

    /// The value's length and 1, the key's length, the key, the value.
    const BATCH: &[u8] = b"\x02\0\0\0\x01\0\0\0kv";

    /// A crash may leave the log of an index that was dropped, with batches in it: no later index gets those.
    #[test]
    fn the_log_of_an_index_that_is_gone_is_no_other_ones() {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        create(&pool).expect("created").close().expect("closed");
        plant(&pool, BATCH);
        let open = |with| Open(in_pool(&pool), with).run::<Vec<u8>, Vec<u8>>().expect("there");
        assert_eq!(open(false).len().expect("whole"), 1, "of the index itself, it is finished");
        assert_eq!(Bytes::interrupted(&pool, "next"), Ok(0));
        assert!(destroy(&pool).expect("dropped") && !is_there(&pool, "next.batch"));
        plant(&pool, BATCH);
        assert!(!destroy(&pool).expect("nothing") && is_there(&pool, "next.batch"));
        create(&pool).expect("created").close().expect("closed");
        assert!(!is_there(&pool, "next.batch"));
        assert_eq!(open(true).len().expect("whole"), 0);
    }

    /// Nothing that is no log is removed.
    #[test]
    fn an_index_of_the_name_of_a_log_stays() {
        let pool = Arc::new(Pool::emulated(4 << 20).expect("memory"));
        plant(&pool, b"of its own");
        let record = || {
            let own = AnyIndex::<u64, Vec<u8>>::open(&pool, "next.batch").expect("it is there");
            own.get(&0).expect("whole").expect("it is there")
        };
        assert!(!destroy(&pool).expect("nothing"));
        let refused = create(&pool).err().expect("it is in the way").status();
        assert_eq!((refused, record()), (Status::InvalidArgument, b"of its own".to_vec()));
        assert!(!is_there(&pool, "next"));
        AnyIndex::<Vec<u8>, Vec<u8>>::create(&pool, "next", Kind::ALL[0]).expect("new");
        assert!(destroy(&pool).expect("dropped"));
        assert_eq!(record(), b"of its own");
    }
}
