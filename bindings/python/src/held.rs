//! Objects that can be closed while Python holds them: a store, its maps, snapshots, transactions and watches.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use facade::core::PmError;
use facade::{Savepoint, Snapshot, Transaction};
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pyo3::prelude::*;

use crate::catalog::{Book, Named};
use crate::dyn_map::{DynMap, Moment};
use crate::fault::{Class, Fault};
use crate::types::Type;

/// The store of `pmindex`, over maps whose types are known at run time.
pub(crate) type Opened = pmindex_store::Store<Named>;

/// An object that exists until it is closed.
///
/// In a forked child it is the parent's: it can neither be used nor closed there. A thread of the parent may have
/// held a lock when the process was forked, of this or of what is inside; it does not exist in the child, so a wait
/// for it would have no end.
pub(crate) struct Held<T> {
    inside: RwLock<Option<T>>,
    /// The message of an error after it was closed.
    gone: &'static str,
    /// The process that made it.
    process: u32,
}

impl<T> Held<T> {
    pub(crate) fn new(inside: T, gone: &'static str) -> Self {
        Self { inside: RwLock::new(Some(inside)), gone, process: std::process::id() }
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    fn refuse_child(&self) -> Result<(), Fault> {
        if self.is_forked() { Err(PmError::Forked.into()) } else { Ok(()) }
    }

    fn read(&self) -> Result<RwLockReadGuard<'_, Option<T>>, Fault> {
        self.refuse_child()?;
        Ok(self.inside.read())
    }

    fn write(&self) -> Result<RwLockWriteGuard<'_, Option<T>>, Fault> {
        self.refuse_child()?;
        Ok(self.inside.write())
    }

    /// Calls `work` with the object.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&T) -> Result<R, Fault>) -> Result<R, Fault> {
        work(self.read()?.as_ref().ok_or_else(|| Fault::closed(self.gone))?)
    }

    /// Calls `work` with the object, exclusively.
    pub(crate) fn with_mut<R>(
        &self,
        work: impl FnOnce(&mut T) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        work(self.write()?.as_mut().ok_or_else(|| Fault::closed(self.gone))?)
    }

    /// Removes the object after all current users have finished.
    pub(crate) fn take(&self) -> Result<T, Fault> {
        self.write()?.take().ok_or_else(|| Fault::closed(self.gone))
    }

    pub(crate) fn put_back(&self, inside: T) {
        *self.inside.write() = Some(inside);
    }

    /// Returns `true` until it is closed; in a forked child, always.
    pub(crate) fn is_open(&self) -> bool {
        self.read().map_or(true, |inside| inside.is_some())
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        if self.is_forked() {
            std::mem::forget(self.inside.get_mut().take());
        }
    }
}

/// A part of a store that ends when the store is closed.
trait Ends: Send + Sync {
    fn end(&self);
}

impl<T: Send + Sync> Ends for Held<T> {
    fn end(&self) {
        drop(self.take());
    }
}

/// A transaction in progress.
pub(crate) struct Begun {
    pub(crate) transaction: Transaction,
    /// `true` if it was ended because it kept too many old values.
    pub(crate) is_ended: bool,
}

impl Begun {
    pub(crate) fn savepoint(&mut self) -> Savepoint {
        self.transaction.savepoint()
    }
}

/// The types of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Types {
    pub(crate) key: Type,
    pub(crate) value: Type,
}

/// A map that is open, until it is dropped or its store is closed.
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) types: Types,
    pub(crate) map: Held<Box<dyn DynMap>>,
}

/// The moment at which a map is read: now, a snapshot's, or a transaction's.
#[derive(Clone)]
pub(crate) enum At {
    Now,
    Snapshot(Arc<Held<Snapshot>>),
    Transaction(Arc<Held<Begun>>),
}

/// The moment at which a map is read, with its lock.
enum LockedAt<'a> {
    Now,
    Snapshot(RwLockReadGuard<'a, Option<Snapshot>>, &'static str),
    Transaction(RwLockWriteGuard<'a, Option<Begun>>, &'static str),
}

/// A map and its transaction or snapshot, both kept open.
struct Locked<'a> {
    map: RwLockReadGuard<'a, Option<Box<dyn DynMap>>>,
    gone: &'static str,
    at: LockedAt<'a>,
}

impl Locked<'_> {
    fn run<R>(
        mut self,
        work: impl FnOnce(&dyn DynMap, &mut Moment<'_>) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let map = &**self.map.as_ref().ok_or_else(|| Fault::closed(self.gone))?;
        match &mut self.at {
            LockedAt::Now => work(map, &mut Moment::Now),
            LockedAt::Snapshot(view, gone) => {
                let view = view.as_ref().ok_or_else(|| Fault::closed(*gone))?;
                work(map, &mut Moment::Snapshot(view))
            }
            LockedAt::Transaction(begun, gone) => {
                let begun = begun.as_mut().ok_or_else(|| Fault::closed(*gone))?;
                let done = work(map, &mut Moment::Transaction(&mut begun.transaction));
                if let Err(fault) = &done {
                    begun.is_ended |= fault.class == Class::SnapshotEnded;
                }
                done
            }
        }
    }
}

/// A map, as it is now or as a snapshot or transaction sees it.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) slot: Arc<Slot>,
    pub(crate) at: At,
}

impl View {
    fn lock(&self) -> Result<Locked<'_>, Fault> {
        let map = self.slot.map.read()?;
        let at = match &self.at {
            At::Now => LockedAt::Now,
            At::Snapshot(view) => LockedAt::Snapshot(view.read()?, view.gone),
            At::Transaction(begun) => LockedAt::Transaction(begun.write()?, begun.gone),
        };
        Ok(Locked { map, gone: self.slot.map.gone, at })
    }

    fn try_lock(&self) -> Option<Locked<'_>> {
        let map = self.slot.map.inside.try_read()?;
        let at = match &self.at {
            At::Now => LockedAt::Now,
            At::Snapshot(view) => LockedAt::Snapshot(view.inside.try_read()?, view.gone),
            At::Transaction(begun) => LockedAt::Transaction(begun.inside.try_write()?, begun.gone),
        };
        Some(Locked { map, gone: self.slot.map.gone, at })
    }

    /// Calls `work`, which waits for nothing but a commit of the same record.
    pub(crate) fn briefly<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&dyn DynMap, &mut Moment<'_>) -> Result<R, Fault> + Send,
    ) -> PyResult<R> {
        match self.try_lock() {
            Some(locked) => Ok(locked.run(work)?),
            None => self.at_length(py, work),
        }
    }

    /// Calls `work` while other Python threads continue.
    pub(crate) fn at_length<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&dyn DynMap, &mut Moment<'_>) -> Result<R, Fault> + Send,
    ) -> PyResult<R> {
        Ok(py.detach(|| self.lock()?.run(work))?)
    }

    /// Calls `work`, which changes a record; outside a transaction it waits for the medium.
    pub(crate) fn change<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&dyn DynMap, &mut Moment<'_>) -> Result<R, Fault> + Send,
    ) -> PyResult<R> {
        match self.at {
            At::Now => self.at_length(py, work),
            _ => self.briefly(py, work),
        }
    }

    /// Fails if the snapshot or transaction is closed.
    pub(crate) fn check_open(&self) -> Result<(), Fault> {
        let is_open = match &self.at {
            At::Now => true,
            At::Snapshot(view) => view.inside.try_read().is_none_or(|view| view.is_some()),
            At::Transaction(begun) => begun.inside.try_read().is_none_or(|begun| begun.is_some()),
        };
        let is_closed = self.slot.map.inside.try_read().is_some_and(|map| map.is_none());
        match &self.at {
            _ if is_closed => Err(Fault::closed(self.slot.map.gone)),
            At::Snapshot(view) if !is_open => Err(Fault::closed(view.gone)),
            At::Transaction(begun) if !is_open => Err(Fault::closed(begun.gone)),
            _ => Ok(()),
        }
    }
}

/// A store and everything opened from it. It is closed when the last Python object releases it, or before.
pub(crate) struct Shared {
    pub(crate) store: Held<Opened>,
    /// The maps that are open, by name.
    maps: Mutex<HashMap<String, Arc<Slot>>>,
    pub(crate) book: Book,
    /// The maximum number of attempts of a transaction that conflicts with others.
    pub(crate) tries: u32,
    ends: Mutex<Vec<Weak<dyn Ends>>>,
}

impl Shared {
    pub(crate) fn new(store: Opened, tries: u32) -> Self {
        Self {
            store: Held::new(store, "the store is closed"),
            maps: Mutex::default(),
            book: Book::default(),
            tries,
            ends: Mutex::default(),
        }
    }

    /// Locks the list of maps.
    pub(crate) fn maps(&self) -> Result<MutexGuard<'_, HashMap<String, Arc<Slot>>>, Fault> {
        self.store.refuse_child()?;
        Ok(self.maps.lock())
    }

    /// Begins something that ends with the store, while the store is open.
    pub(crate) fn begin<T: Send + Sync + 'static>(
        &self,
        begin: impl FnOnce(&Opened) -> Result<T, Fault>,
        gone: &'static str,
    ) -> Result<Arc<Held<T>>, Fault> {
        // Under the store's lock until it is in the list: a store that is being closed ends all that are in it.
        self.store.with(|store| Ok(self.hold(begin(store)?, gone)))
    }

    fn hold<T: Send + Sync + 'static>(&self, thing: T, gone: &'static str) -> Arc<Held<T>> {
        let held = Arc::new(Held::new(thing, gone));
        let mut ends = self.ends.lock();
        if ends.len() == ends.capacity() {
            ends.retain(|end| end.strong_count() > 0);
        }
        let end: Weak<dyn Ends> = Arc::downgrade(&(Arc::clone(&held) as Arc<dyn Ends>));
        ends.push(end);
        held
    }

    /// Ends all open objects, then closes the store and its pool.
    ///
    /// # Errors
    /// [`Class::Forked`] in a forked child, where everything stays as it is; errors of the store and of the pool.
    pub(crate) fn close(&self) -> Result<(), Fault> {
        let mut maps = self.maps()?; // so that nobody opens one meanwhile
        let Ok(store) = self.store.take() else { return Ok(()) };
        for end in self.ends.lock().drain(..) {
            if let Some(end) = end.upgrade() {
                end.end();
            }
        }
        for (_, slot) in maps.drain() {
            drop(slot.map.take());
        }
        let pool = Arc::clone(store.pool());
        store.close()?;
        Arc::into_inner(pool).map_or(Ok(()), |pool| Ok(pool.close()?))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // As good as it goes: the next opening recovers. It waits, and writes, so other threads of Python go on.
        let this = &*self;
        let closed = Python::try_attach(|py| py.detach(|| drop(this.close())));
        if closed.is_none() {
            drop(this.close()); // Python has ended
        }
    }
}
