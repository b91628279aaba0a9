//! The kinds of index that a store's maps can be, each opened under the names of its types.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use facade::core::{IndexEntry, Medium, Pool};
use facade::{Catalog, ErasedIndex, IndexError, Key, Kind, Kinds, Value};
use parking_lot::Mutex;

use crate::raw::{Names, with_names};

/// The names of the types of a store's maps, by the maps' names.
pub(crate) type Book = Arc<Mutex<HashMap<String, Names>>>;

thread_local! {
    static BOOK: RefCell<Option<Book>> = const { RefCell::new(None) };
}

/// Restores the previous book when it is dropped.
struct Restore(Option<Book>);

impl Drop for Restore {
    fn drop(&mut self) {
        BOOK.set(self.0.take());
    }
}

/// Runs `work`; meanwhile this thread opens and creates maps with the types in a book.
pub(crate) fn by_the_book<R>(book: &Book, work: impl FnOnce() -> R) -> R {
    let _restore = Restore(BOOK.replace(Some(Arc::clone(book))));
    work()
}

/// Calls `work` with the types of a map.
fn named<R>(name: &str, work: impl FnOnce() -> R) -> R {
    let names = BOOK.with_borrow(|book| book.as_ref().and_then(|b| b.lock().get(name).cloned()));
    match names {
        Some(names) => with_names(names, work),
        None => work(), // the caller has named them, or it fails: no index has types without names
    }
}

/// The indexes of `pmindex`, with types whose names are known at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named;

impl Catalog for Named {
    type Kind = Kind;

    const DEFAULT: Kind = Kind::FpTree;

    fn kind(entry: &IndexEntry) -> Option<Kind> {
        Kind::of(entry)
    }

    fn create<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
        kind: Kind,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        named(name, || <Kinds as Catalog>::create(pool, name, kind))
    }

    fn open<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        named(name, || <Kinds as Catalog>::open(pool, name))
    }

    fn open_to_remove<K: Key, V: Value, M: Medium>(
        pool: &Arc<Pool<M>>,
        name: &str,
    ) -> Result<Box<dyn ErasedIndex<K, V>>, IndexError> {
        named(name, || <Kinds as Catalog>::open_to_remove(pool, name))
    }
}
