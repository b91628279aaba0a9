//! A typed index over an index of encodings ([`kept`](crate::kept)).

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use pmindex_core::{Medium, PmError, Pool};

use crate::erased::ErasedIndex;
use crate::error::{IndexError, Missing, Occupied};
use crate::index::{Index, InsertMany, RangeIter, RecoveryReport, Reserved, Stats};
use crate::kept::KeptType;
use crate::key::{Key, Storable, Value};
use crate::records::Records;

/// The receiver of reports of damage: a pool.
trait Damaged: Send + Sync {
    /// See [`Pool::note_damage`].
    fn note(&self, error: &PmError);
}

impl<M: Medium> Damaged for Pool<M> {
    fn note(&self, error: &PmError) {
        self.note_damage(error);
    }
}

/// An index of `K` and `V` over an index of their encodings.
struct Shaped<K, V, A: Key, B: Value> {
    index: Box<dyn ErasedIndex<A, B>>,
    pool: Arc<dyn Damaged>,
    /// Buffers of earlier scans, for the next ones.
    pages: Mutex<Vec<Records<A, B>>>,
    types: PhantomData<fn() -> (K, V)>,
}

/// The number of buffers kept for scans.
const PAGES: usize = 4;

/// Gives an index its types. If these are the kept types themselves, the index stays as it is.
#[doc(hidden)]
pub fn typed<K: Key, V: Value, A: KeptType, B: KeptType, M: Medium>(
    index: Box<dyn ErasedIndex<A, B>>,
    pool: &Arc<Pool<M>>,
) -> Box<dyn ErasedIndex<K, V>> {
    let same: Box<dyn Any> = Box::new(index);
    let index = match same.downcast::<Box<dyn ErasedIndex<K, V>>>() {
        Ok(index) => return *index,
        Err(other) => other.downcast::<Box<dyn ErasedIndex<A, B>>>(),
    };
    let Ok(index) = index else { unreachable!("what was put into the box") };
    let pool: Arc<dyn Damaged> = Arc::<Pool<M>>::clone(pool);
    Box::new(Shaped { index: *index, pool, pages: Mutex::default(), types: PhantomData })
}

/// Returns the error for bytes that are no encoding, of keys or of values.
#[cold]
fn no_encoding(what: &'static str) -> IndexError {
    PmError::Corrupt { what, offset: 0 }.into()
}

fn key<K: Storable, A: KeptType>(kept: A) -> Result<K, IndexError> {
    kept.decode().ok_or_else(|| no_encoding("the encoding of a key"))
}

fn value<V: Storable, B: KeptType>(kept: B) -> Result<V, IndexError> {
    kept.decode().ok_or_else(|| no_encoding("the encoding of a value"))
}

fn record<K: Storable, V: Storable, A: KeptType, B: KeptType>(
    (a, b): (A, B),
) -> Result<(K, V), IndexError> {
    Ok((key(a)?, value(b)?))
}

/// Records as they are kept.
fn all_kept<K: Storable, V: Storable, A: KeptType, B: KeptType>(records: &[(K, V)]) -> Vec<(A, B)> {
    let keep =
        |(key, value): &(K, V)| (A::keep::<K>(key.borrowed()), B::keep::<V>(value.borrowed()));
    records.iter().map(keep).collect()
}

/// Keys as they are kept.
fn keys_kept<K: Storable, A: KeptType>(keys: &[K]) -> Vec<A> {
    keys.iter().map(|key| A::keep::<K>(key.borrowed())).collect()
}

/// Tells the pool of damage that an operation has found.
fn noted<T>(pool: &dyn Damaged, done: Result<T, IndexError>) -> Result<T, IndexError> {
    if let Err(IndexError::Pool(error)) = &done {
        pool.note(error);
    }
    done
}

impl<K: Key, V: Value, A: KeptType, B: KeptType> Shaped<K, V, A, B> {
    /// Decodes what an operation has found.
    #[inline]
    fn found(&self, kept: Result<Option<B>, IndexError>) -> Result<Option<V>, IndexError> {
        match kept {
            Ok(Some(kept)) => noted(&*self.pool, value(kept).map(Some)),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Decodes a record that an operation has found.
    fn found_record(
        &self,
        kept: Result<Option<(A, B)>, IndexError>,
    ) -> Result<Option<(K, V)>, IndexError> {
        match kept? {
            Some(kept) => noted(&*self.pool, record(kept).map(Some)),
            None => Ok(None),
        }
    }

    /// Decodes what an operation has found for each of many keys.
    fn found_values(&self, kept: Vec<Option<B>>, out: &mut [Option<V>]) -> Result<(), IndexError> {
        out.fill_with(|| None);
        for (out, kept) in out.iter_mut().zip(kept) {
            *out = kept.map(|kept| noted(&*self.pool, value(kept))).transpose()?;
        }
        Ok(())
    }

    /// Reads a page of kept records and decodes them.
    fn read_page(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        mut each: impl FnMut(&(A, B)) -> Result<(), IndexError>,
    ) -> Result<usize, IndexError> {
        let (lower, upper) = (lower.map(A::encode::<K>), upper.map(A::encode::<K>));
        let pages = || self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = pages().pop().unwrap_or_default();
        let (lower, upper) = (lower.as_ref().map(|a| &**a), upper.as_ref().map(|a| &**a));
        let read = self.index.scan_bounds_into(lower, upper, limit, &mut page);
        // Records read before an error count.
        let decoded = noted(&*self.pool, page.iter().try_for_each(&mut each));
        let mut pages = pages();
        if pages.len() < PAGES {
            pages.push(page);
        }
        decoded.and(read)
    }
}

impl<K: Key, V: Value, A: KeptType, B: KeptType> Index<K, V> for Shaped<K, V, A, B> {
    #[inline]
    fn get(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.found(self.index.get(&A::encode::<K>(key)))
    }

    fn get_into(&self, key: &K::Ref, value: &mut V) -> Result<bool, IndexError> {
        let key = A::encode::<K>(key);
        let read = B::decode_into(value, |kept| self.index.get_into(&key, kept))?;
        let read = read.ok_or_else(|| no_encoding("the encoding of a value"));
        noted(&*self.pool, read)
    }

    fn contains_key(&self, key: &K::Ref) -> Result<bool, IndexError> {
        self.index.contains_key(&A::encode::<K>(key))
    }

    fn insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError> {
        self.found(self.index.insert(&A::encode::<K>(key), &B::encode::<V>(value)))
    }

    fn try_insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Occupied>, IndexError> {
        self.index.try_insert(&A::encode::<K>(key), &B::encode::<V>(value))
    }

    fn update(&self, key: &K::Ref, value: &V::Ref) -> Result<Result<(), Missing>, IndexError> {
        self.index.update(&A::encode::<K>(key), &B::encode::<V>(value))
    }

    fn put(&self, key: &K::Ref, value: &V::Ref) -> Result<bool, IndexError> {
        self.index.put(&A::encode::<K>(key), &B::encode::<V>(value))
    }

    fn remove(&self, key: &K::Ref) -> Result<Option<V>, IndexError> {
        self.found(self.index.remove(&A::encode::<K>(key)))
    }

    fn remove_exact(&self, key: &K::Ref, value: &V) -> Result<Option<V>, IndexError> {
        let value = B::keep::<V>(value.borrowed());
        self.found(self.index.remove_exact(&A::encode::<K>(key), &value))
    }

    fn range_bounds(&self, lower: Bound<&K::Ref>, upper: Bound<&K::Ref>) -> RangeIter<'_, K, V> {
        let (lower, upper) = (lower.map(A::encode::<K>), upper.map(A::encode::<K>));
        let (lower, upper) = (lower.as_ref().map(|a| &**a), upper.as_ref().map(|a| &**a));
        let pool = Arc::clone(&self.pool);
        let decode = move |kept| match kept {
            Ok(kept) => noted(&*pool, record(kept)),
            Err(error) => Err(error),
        };
        Box::new(self.index.range_bounds(lower, upper).map(decode))
    }

    fn scan(&self, from: &K::Ref, limit: usize, out: &mut Vec<(K, V)>) -> Result<(), IndexError> {
        let mut page = Vec::new();
        let read = self.index.scan(&A::encode::<K>(from), limit, &mut page);
        // Records read before an error count.
        let mut decode = |kept| record(kept).map(|record| out.push(record));
        noted(&*self.pool, page.into_iter().try_for_each(&mut decode)).and(read)
    }

    fn scan_bounds_into(
        &self,
        lower: Bound<&K::Ref>,
        upper: Bound<&K::Ref>,
        limit: usize,
        out: &mut Records<K, V>,
    ) -> Result<usize, IndexError> {
        out.clear();
        self.read_page(lower, upper, limit, |kept| {
            let Some(spare) = out.spare() else {
                out.push(record(kept.clone())?);
                return Ok(());
            };
            if !kept.0.copy_into(&mut spare.0) {
                return Err(no_encoding("the encoding of a key"));
            }
            if !kept.1.copy_into(&mut spare.1) {
                return Err(no_encoding("the encoding of a value"));
            }
            out.grow();
            Ok(())
        })
    }

    fn first_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.found_record(self.index.first_key_value())
    }

    fn last_key_value(&self) -> Result<Option<(K, V)>, IndexError> {
        self.found_record(self.index.last_key_value())
    }

    fn len(&self) -> Result<u64, IndexError> {
        self.index.len()
    }

    fn is_empty(&self) -> Result<bool, IndexError> {
        self.index.is_empty()
    }

    fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let keep =
            |(key, value): (K, V)| (A::keep::<K>(key.borrowed()), B::keep::<V>(value.borrowed()));
        self.index.bulk_load(&mut records.map(keep))
    }

    fn get_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let mut kept: Vec<Option<B>> = vec![None; out.len()];
        self.index.get_many(&keys_kept(keys), &mut kept)?;
        self.found_values(kept, out)
    }

    fn try_insert_many(&self, records: &[(K, V)]) -> InsertMany {
        self.index.try_insert_many(&all_kept(records))
    }

    fn put_many(&self, records: &[(K, V)]) -> Result<(), IndexError> {
        self.index.put_many(&all_kept(records))
    }

    fn insert_many(&self, records: &[(K, V)], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let mut kept: Vec<Option<B>> = vec![None; out.len()];
        let done = self.index.insert_many(&all_kept(records), &mut kept);
        // What was replaced before an error counts.
        self.found_values(kept, out).and(done)
    }

    fn remove_many(&self, keys: &[K], out: &mut [Option<V>]) -> Result<(), IndexError> {
        let mut kept: Vec<Option<B>> = vec![None; out.len()];
        let done = self.index.remove_many(&keys_kept(keys), &mut kept);
        // What was removed before an error counts.
        self.found_values(kept, out).and(done)
    }

    fn stats(&self) -> Result<Stats, IndexError> {
        self.index.stats()
    }

    fn check(&self) -> Result<u64, IndexError> {
        let records = self.index.check()?;
        if const { K::SHAPE.is_bytes() || V::SHAPE.is_bytes() } {
            // The index knows of no encoding but bytes.
            let mut items = self.range_bounds(Bound::Unbounded, Bound::Unbounded);
            items.try_for_each(|item| item.map(drop))?;
        }
        Ok(records)
    }

    fn recovery_report(&self) -> RecoveryReport {
        self.index.recovery_report()
    }

    fn has_background(&self) -> bool {
        self.index.has_background()
    }

    fn background(&self, stop: &AtomicBool) -> Result<(), IndexError> {
        self.index.background(stop)
    }
}

impl<K: Key, V: Value, A: KeptType, B: KeptType> ErasedIndex<K, V> for Shaped<K, V, A, B> {
    fn close(self: Box<Self>) -> Result<(), IndexError> {
        self.index.close()
    }

    fn blocks(&self) -> Result<Vec<u64>, IndexError> {
        self.index.blocks()
    }

    fn files(&self) -> Vec<PathBuf> {
        self.index.files()
    }

    fn fits(&self, key: &K::Ref, value: &V::Ref) -> Result<(), IndexError> {
        self.index.fits(&A::encode::<K>(key), &B::encode::<V>(value))
    }

    fn reserves(&self) -> bool {
        self.index.reserves()
    }

    fn reserve<'r>(
        &self,
        puts: &mut dyn Iterator<Item = (&'r K::Ref, &'r V::Ref)>,
    ) -> Result<Reserved, IndexError> {
        if !self.index.reserves() {
            return Ok(Reserved::default()); // before: encoding
        }
        let puts: Vec<_> =
            puts.map(|(key, value)| (A::encode::<K>(key), B::encode::<V>(value))).collect();
        self.index.reserve(&mut puts.iter().map(|(key, value)| (&**key, &**value)))
    }

    fn put_reserved(
        &self,
        key: &K::Ref,
        value: &V::Ref,
        reserved: &Reserved,
    ) -> Result<bool, IndexError> {
        self.index.put_reserved(&A::encode::<K>(key), &B::encode::<V>(value), reserved)
    }

    fn put_many_reserved(&self, records: &[(K, V)], reserved: &Reserved) -> Result<(), IndexError> {
        self.index.put_many_reserved(&all_kept(records), reserved)
    }
}
