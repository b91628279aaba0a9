//! A store behind a handle, and the objects that keep it open.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use facade::{Expiring, Kind, Kinds, Pool, Savepoint, Snapshot, Store, Transaction};

use crate::dyn_index::{DynIndex, FromC, Type};
use crate::opened::{MapOf, Work, erase, with_its_types, with_types};
use crate::status::{Fault, Status};

/// An open store.
pub(crate) struct Stored {
    pub(crate) store: Store,
    /// Its pool, if closing the store closes it.
    pub(crate) own_pool: Option<Arc<Pool>>,
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("store", &self.store).finish_non_exhaustive()
    }
}

/// A snapshot of a store; dropped before the store that it keeps open.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) _store: Arc<Stored>,
}

/// A transaction in progress; `None` when it has ended.
#[derive(Debug)]
pub(crate) struct Running {
    begun: Mutex<Option<Begun>>,
    _store: Arc<Stored>,
}

/// A transaction and its savepoints.
#[derive(Debug)]
struct Begun {
    transaction: Transaction,
    savepoints: Vec<Savepoint>,
}

impl Running {
    pub(crate) fn new(transaction: Transaction, store: Arc<Stored>) -> Self {
        let begun = Begun { transaction, savepoints: Vec::new() };
        Self { begun: Mutex::new(Some(begun)), _store: store }
    }

    fn lock(&self) -> Result<MutexGuard<'_, Option<Begun>>, Fault> {
        match self.begun.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let message = "the transaction is in use by another call: one thread at a time";
                Err(Fault::new(Status::Busy, message))
            }
        }
    }

    /// Calls `work` with the transaction.
    pub(crate) fn with<R>(
        &self,
        work: impl FnOnce(&mut Transaction) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        work(&mut self.lock()?.as_mut().ok_or_else(ended)?.transaction)
    }

    /// Sets a savepoint; returns its number.
    pub(crate) fn savepoint(&self) -> Result<u64, Fault> {
        let mut begun = self.lock()?;
        let begun = begun.as_mut().ok_or_else(ended)?;
        begun.savepoints.push(begun.transaction.savepoint());
        Ok(begun.savepoints.len() as u64 - 1)
    }

    /// Undoes the changes since a savepoint.
    pub(crate) fn roll_back(&self, number: u64) -> Result<(), Fault> {
        let mut begun = self.lock()?;
        let begun = begun.as_mut().ok_or_else(ended)?;
        let point = usize::try_from(number).ok().and_then(|number| begun.savepoints.get(number));
        let none = || {
            let message = format!("{number} is no savepoint of the transaction");
            Fault::new(Status::InvalidArgument, message)
        };
        begun.transaction.roll_back(*point.ok_or_else(none)?);
        Ok(())
    }

    /// Takes the transaction out, to end it.
    pub(crate) fn take(&self) -> Result<Transaction, Fault> {
        Ok(self.lock()?.take().ok_or_else(ended)?.transaction)
    }
}

fn ended() -> Fault {
    Fault::new(Status::BadHandle, "the transaction has ended")
}

/// A map of a store.
struct InStore<'s> {
    store: &'s Arc<Stored>,
    name: &'s str,
}

impl InStore<'_> {
    /// Returns the kind of the map, which must exist.
    fn kind(&self) -> Result<Kind, Fault> {
        let entry = self.store.store.pool().find_index(self.name)?;
        let kind = entry.as_ref().and_then(Kind::of);
        kind.ok_or_else(|| Fault::new(Status::WrongType, "a map of no known kind"))
    }

    fn erase<K: FromC, V: FromC>(
        &self,
        map: facade::Map<K, V>,
    ) -> Result<Box<dyn DynIndex>, Fault> {
        let (kind, store) = (self.kind()?, Arc::clone(self.store));
        Ok(erase(self.store.store.pool(), MapOf { map, kind, store }))
    }
}

struct Create<'s>(InStore<'s>, Kind);
struct Open<'s>(InStore<'s>);
struct Destroy<'s>(InStore<'s>);
struct OpenExpiring<'s>(InStore<'s>);
struct DestroyExpiring<'s>(InStore<'s>);

impl Work for Create<'_> {
    type Done = Box<dyn DynIndex>;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<Box<dyn DynIndex>, Fault> {
        self.0.erase(self.0.store.store.map_of_kind::<K, V>(self.0.name, self.1)?)
    }
}

impl Work for Open<'_> {
    type Done = Box<dyn DynIndex>;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<Box<dyn DynIndex>, Fault> {
        self.0.erase(self.0.store.store.existing_map::<K, V>(self.0.name)?)
    }
}

impl Work for Destroy<'_> {
    type Done = bool;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<bool, Fault> {
        Ok(self.0.store.store.drop_map::<K, V>(self.0.name)?)
    }
}

impl Work for OpenExpiring<'_> {
    type Done = ();

    fn run<K: FromC, V: FromC>(&mut self) -> Result<(), Fault> {
        self.0.store.store.existing_map::<K, Expiring<V>>(self.0.name)?;
        Ok(())
    }
}

impl Work for DestroyExpiring<'_> {
    type Done = bool;

    fn run<K: FromC, V: FromC>(&mut self) -> Result<bool, Fault> {
        Ok(self.0.store.store.drop_map::<K, Expiring<V>>(self.0.name)?)
    }
}

/// Opens the map of this name, or creates it with this kind.
pub(crate) fn map(
    store: &Arc<Stored>,
    name: &str,
    kind: Option<Kind>,
    types: (Type, Type),
) -> Result<Box<dyn DynIndex>, Fault> {
    let kind = kind.unwrap_or(<Kinds as facade::Catalog>::DEFAULT);
    with_types(types, Create(InStore { store, name }, kind))
}

/// Opens the map of this name, which must exist.
pub(crate) fn existing_map(store: &Arc<Stored>, name: &str) -> Result<Box<dyn DynIndex>, Fault> {
    with_its_types(name, Open(InStore { store, name }))
}

/// Makes the store open the map of this name, which must exist, with its types; also a map whose records
/// expire.
pub(crate) fn open(store: &Arc<Stored>, name: &str) -> Result<(), Fault> {
    match existing_map(store, name) {
        Err(fault) if fault.status() == Status::WrongType => {
            with_its_types(name, OpenExpiring(InStore { store, name }))
        }
        opened => opened.map(drop),
    }
}

/// Removes a map; returns `true` if it existed.
pub(crate) fn drop_map(store: &Arc<Stored>, name: &str) -> Result<bool, Fault> {
    match with_its_types(name, Destroy(InStore { store, name })) {
        Err(fault) if fault.status() == Status::WrongType => {
            with_its_types(name, DestroyExpiring(InStore { store, name }))
        }
        done => done,
    }
}
