//! An index whose types of keys and values are known at run time: numbers or byte strings.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;

use facade::{AnyIndex, Index, IndexError, Key, Kind, Pool, RecoveryReport};

use crate::boundary::Buffer;
use crate::keys::KeyLocks;
use crate::status::{Fault, Status};

/// A type of keys and values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A `uint64_t`.
    U64 = 0,
    /// A byte string, ordered as by memcmp(), a prefix first.
    Bytes = 1,
}

impl Type {
    /// What C passed as a number.
    pub(crate) fn from_c(number: u32) -> Result<Self, Fault> {
        match number {
            0 => Ok(Self::U64),
            1 => Ok(Self::Bytes),
            _ => Err(Fault::new(Status::InvalidArgument, format!("{number} is no pmindex_type"))),
        }
    }
}

/// A Rust type that C passes as bytes.
pub(crate) trait FromC: Key {
    const TYPE: Type;
    /// Hands the borrowed form of what the bytes mean to `work`.
    fn borrow_from<R>(
        bytes: &[u8],
        what: &str,
        work: impl FnOnce(&Self::Ref) -> R,
    ) -> Result<R, Fault>;
    /// Hands the bytes to `work`.
    fn lend<R>(&self, work: impl FnOnce(&[u8]) -> R) -> R;
}

impl FromC for u64 {
    const TYPE: Type = Type::U64;

    fn borrow_from<R>(bytes: &[u8], what: &str, work: impl FnOnce(&u64) -> R) -> Result<R, Fault> {
        let number = bytes.try_into().map_err(|_| {
            let len = bytes.len();
            Fault::new(Status::InvalidArgument, format!("{what}: {len} bytes are no uint64_t"))
        })?;
        Ok(work(&from_machine(number)))
    }

    fn lend<R>(&self, work: impl FnOnce(&[u8]) -> R) -> R {
        work(&to_machine(*self))
    }
}

#[expect(clippy::host_endian_bytes, reason = "C's own uint64_t, never in a pool")]
fn from_machine(bytes: [u8; 8]) -> u64 {
    u64::from_ne_bytes(bytes)
}

#[expect(clippy::host_endian_bytes, reason = "C's own uint64_t, never in a pool")]
fn to_machine(number: u64) -> [u8; 8] {
    number.to_ne_bytes()
}

impl FromC for Vec<u8> {
    const TYPE: Type = Type::Bytes;

    fn borrow_from<R>(bytes: &[u8], _: &str, work: impl FnOnce(&[u8]) -> R) -> Result<R, Fault> {
        Ok(work(bytes))
    }

    fn lend<R>(&self, work: impl FnOnce(&[u8]) -> R) -> R {
        work(self)
    }
}

/// A record as C passes it.
pub(crate) type Record = (Vec<u8>, Vec<u8>);
/// Hears of a record; `false` to stop.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;
/// Gets a value.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Fault>;

/// Which records, in which order.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
    pub(crate) reverse: bool,
}

/// How a write treats a key that exists or is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    TryInsert,
    Update,
    Put,
}

/// An open index behind a handle.
pub(crate) trait Erased: Send + Sync {
    fn kind(&self) -> Kind;
    fn types(&self) -> (Type, Type);
    /// The value of a key, if it is there.
    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault>;
    fn contains(&self, key: &[u8]) -> Result<bool, Fault>;
    /// Whether it did what was asked; for upserts, whether the key is new.
    fn write(&self, how: Write, key: &[u8], value: &[u8]) -> Result<bool, Fault>;
    /// Removes a record. Its value goes into the buffer; if it does not fit, the record stays.
    /// Adds or replaces; whether there was a value, which `old` gets.
    fn insert(&self, key: &[u8], value: &[u8], old: Option<&mut Buffer>) -> Result<bool, Fault>;
    fn remove(&self, key: &[u8], value: Option<&mut Buffer>) -> Result<Status, Fault>;
    /// Removes the records of a range; how many.
    fn remove_range(&self, span: &Span) -> Result<u64, Fault>;
    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault>;
    /// Whether the bounds are keys of this index.
    fn check_span(&self, span: &Span) -> Result<(), Fault>;
    fn len(&self) -> Result<u64, Fault>;
    fn check(&self) -> Result<u64, Fault>;
    fn recovery(&self) -> RecoveryReport;
    /// The index of numbers that this is.
    fn numbers(&self) -> Option<&AnyIndex<u64, u64>>;
    fn close(self: Box<Self>) -> Result<(), Fault>;
}

/// An index, and the locks of its keys.
struct Open<K, V> {
    index: AnyIndex<K, V>,
    /// None where every value has the same length.
    keys: Option<KeyLocks>,
}

/// Forgets the types of an index.
fn erase<K: FromC, V: FromC>(index: AnyIndex<K, V>) -> Box<dyn Erased> {
    Box::new(Open { index, keys: V::SHAPE.is_bytes().then(KeyLocks::default) })
}

impl<K: FromC, V: FromC> Erased for Open<K, V> {
    fn kind(&self) -> Kind {
        self.index.kind()
    }

    fn types(&self) -> (Type, Type) {
        (K::TYPE, V::TYPE)
    }

    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault> {
        match K::borrow_from(key, "the key", |key| self.index.get(key))?? {
            Some(value) => value.lend(take).map(|()| Status::Ok),
            None => Ok(Status::NotFound),
        }
    }

    fn contains(&self, key: &[u8]) -> Result<bool, Fault> {
        Ok(K::borrow_from(key, "the key", |key| self.index.contains_key(key))??)
    }

    fn write(&self, how: Write, key: &[u8], value: &[u8]) -> Result<bool, Fault> {
        let _shared = self.keys.as_ref().map(|keys| keys.shared(key));
        let index = &self.index;
        let done = K::borrow_from(key, "the key", |key| {
            V::borrow_from(value, "the value", |value| match how {
                Write::TryInsert => index.try_insert(key, value).map(|done| done.is_ok()),
                Write::Update => index.update(key, value).map(|done| done.is_ok()),
                Write::Put => index.put(key, value),
            })
        })???;
        Ok(done)
    }

    fn insert(&self, key: &[u8], value: &[u8], old: Option<&mut Buffer>) -> Result<bool, Fault> {
        let Some(buffer) = old else { return Ok(!self.write(Write::Put, key, value)?) };
        // Nobody makes the old value longer between the look at it and its replacement.
        let _alone = self.keys.as_ref().map(|keys| keys.alone(key));
        let old = K::borrow_from(key, "the key", |key| {
            V::borrow_from(value, "the value", |value| {
                if let Some(old) = self.index.get(key)? {
                    old.lend(|bytes| buffer.room_for(bytes).map(drop))?;
                }
                Ok::<_, Fault>(self.index.insert(key, value)?)
            })
        })???;
        if let Some(old) = &old {
            old.lend(|bytes| buffer.write(bytes))?;
        }
        Ok(old.is_some())
    }

    fn remove(&self, key: &[u8], value: Option<&mut Buffer>) -> Result<Status, Fault> {
        K::borrow_from(key, "the key", |borrowed| {
            let Some(buffer) = value else {
                let removed = self.index.remove(borrowed)?;
                return Ok(if removed.is_some() { Status::Ok } else { Status::NotFound });
            };
            // Nobody makes the value longer between the look at it and its removal.
            let _alone = self.keys.as_ref().map(|keys| keys.alone(key));
            if let Some(value) = self.index.get(borrowed)? {
                value.lend(|bytes| buffer.room_for(bytes).map(drop))?;
            }
            match self.index.remove(borrowed)? {
                Some(value) => value.lend(|bytes| buffer.write(bytes)).map(|()| Status::Ok),
                None => Ok(Status::NotFound),
            }
        })?
    }

    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault> {
        let (lower, upper) = (bound::<K>(&span.lower)?, bound::<K>(&span.upper)?);
        if is_empty(&lower, &upper) {
            return Ok(());
        }
        let mut records = self.index.range_bounds(borrowed(&lower), borrowed(&upper));
        while let Some(record) = if span.reverse { records.next_back() } else { records.next() } {
            let (key, value) = record?;
            if !key.lend(|key| value.lend(|value| each(key, value))) {
                break;
            }
        }
        Ok(())
    }

    fn remove_range(&self, span: &Span) -> Result<u64, Fault> {
        let (lower, upper) = (bound::<K>(&span.lower)?, bound::<K>(&span.upper)?);
        if is_empty(&lower, &upper) {
            return Ok(0);
        }
        Ok(self.index.remove_bounds(borrowed(&lower), borrowed(&upper))?)
    }

    fn check_span(&self, span: &Span) -> Result<(), Fault> {
        bound::<K>(&span.lower)?;
        bound::<K>(&span.upper)?;
        Ok(())
    }

    fn len(&self) -> Result<u64, Fault> {
        Ok(self.index.len()?)
    }

    fn check(&self) -> Result<u64, Fault> {
        Ok(self.index.check()?)
    }

    fn recovery(&self) -> RecoveryReport {
        self.index.recovery_report()
    }

    fn numbers(&self) -> Option<&AnyIndex<u64, u64>> {
        (&self.index as &dyn Any).downcast_ref()
    }

    fn close(self: Box<Self>) -> Result<(), Fault> {
        Ok(self.index.close()?)
    }
}

fn bound<K: FromC>(bound: &Bound<Vec<u8>>) -> Result<Bound<K>, Fault> {
    let key = |bytes: &Vec<u8>| K::borrow_from(bytes, "the bound", K::owned);
    Ok(match bound {
        Bound::Included(bytes) => Bound::Included(key(bytes)?),
        Bound::Excluded(bytes) => Bound::Excluded(key(bytes)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn borrowed<K: Key>(bound: &Bound<K>) -> Bound<&K::Ref> {
    match bound {
        Bound::Included(key) => Bound::Included(key.borrowed()),
        Bound::Excluded(key) => Bound::Excluded(key.borrowed()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Whether nothing can lie between the bounds: a range of Rust's refuses these.
fn is_empty<K: Ord>(lower: &Bound<K>, upper: &Bound<K>) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Included(lower) | Bound::Excluded(lower),
            Bound::Included(upper) | Bound::Excluded(upper),
        ) => lower >= upper,
        _ => false,
    }
}

/// Creates an index.
pub(crate) fn create(
    pool: &Arc<Pool>,
    name: &str,
    kind: Kind,
    types: (Type, Type),
) -> Result<Box<dyn Erased>, Fault> {
    Ok(match types {
        (Type::U64, Type::U64) => erase(AnyIndex::<u64, u64>::create(pool, name, kind)?),
        (Type::U64, Type::Bytes) => erase(AnyIndex::<u64, Vec<u8>>::create(pool, name, kind)?),
        (Type::Bytes, Type::U64) => erase(AnyIndex::<Vec<u8>, u64>::create(pool, name, kind)?),
        (Type::Bytes, Type::Bytes) => {
            erase(AnyIndex::<Vec<u8>, Vec<u8>>::create(pool, name, kind)?)
        }
    })
}

/// Opens an index of whatever kind and types it has.
pub(crate) fn open(pool: &Arc<Pool>, name: &str) -> Result<Box<dyn Erased>, Fault> {
    fn as_types<K: FromC, V: FromC>(
        pool: &Arc<Pool>,
        name: &str,
    ) -> Result<Box<dyn Erased>, IndexError> {
        Ok(erase(AnyIndex::<K, V>::open(pool, name)?))
    }
    let openers = [
        as_types::<u64, u64>,
        as_types::<u64, Vec<u8>>,
        as_types::<Vec<u8>, u64>,
        as_types::<Vec<u8>, Vec<u8>>,
    ];
    for open in openers {
        match open(pool, name) {
            Err(IndexError::WrongLayout { .. }) => {}
            opened => return Ok(opened?),
        }
    }
    let message = format!("index {name:?} has keys or values that are neither numbers nor bytes");
    Err(Fault::new(Status::WrongType, message))
}
