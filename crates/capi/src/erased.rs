//! What an index can do whose types of keys and values are known at run time: numbers or byte strings.

use std::ops::Bound;

use facade::{Committed, Index, Key, Kind, PrefixKey, RecoveryReport, Snapshot, Transaction};

use crate::boundary::{Addition, Buffer, Bytes, Change, Lookup};
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
    /// What the bytes mean.
    fn read_from(bytes: &[u8], what: &str) -> Result<Self, Fault> {
        Self::borrow_from(bytes, what, Self::owned)
    }
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
/// Hears of a change: of the value since, or of a removal; `false` to stop.
pub(crate) type EachChange<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>) -> bool;
/// Gets a value.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Fault>;

/// The bounds of a range.
pub(crate) type Bounds<K> = (Bound<K>, Bound<K>);

/// Which records, in which order.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
    pub(crate) reverse: bool,
    /// Whether the bounds are those of a prefix, which only byte strings have.
    pub(crate) is_prefix: bool,
}

impl Span {
    /// All records, ascending.
    pub(crate) const ALL: Self =
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false, is_prefix: false };

    /// The records whose keys begin with `prefix`.
    pub(crate) fn of_prefix(prefix: &[u8], reverse: bool) -> Self {
        let lower = Bound::Included(prefix.to_vec());
        Self { lower, upper: Vec::<u8>::after_prefix(prefix), reverse, is_prefix: true }
    }

    /// The bounds as keys; `None` if nothing can lie between them, which a range of Rust's refuses.
    pub(crate) fn bounds<K: FromC>(&self) -> Result<Option<Bounds<K>>, Fault> {
        if self.is_prefix && K::TYPE != Type::Bytes {
            return Err(Fault::new(Status::InvalidArgument, "only byte strings have prefixes"));
        }
        let (lower, upper) = (bound::<K>(&self.lower)?, bound::<K>(&self.upper)?);
        Ok((!is_empty(&lower, &upper)).then_some((lower, upper)))
    }
}

/// How a write treats a key that exists or is missing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    TryInsert,
    Update,
    Put,
}

/// Which of the records at the two ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    First,
    Last,
}

/// Through what a map is read: one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment<'m> {
    Snapshot(&'m Snapshot),
    Transaction(&'m Transaction),
}

/// An open index behind a handle.
pub(crate) trait Erased: Send + Sync {
    fn kind(&self) -> Kind;
    fn types(&self) -> (Type, Type);
    /// The value of a key, if it is there.
    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault>;
    /// Looks many keys up, and writes down of each what came of it.
    fn get_many(&self, lookups: &mut [Lookup]) -> Result<(), Fault>;
    fn contains(&self, key: &[u8]) -> Result<bool, Fault>;
    /// Whether it did what was asked; for upserts, whether the key is new.
    fn write(&self, how: Write, key: &[u8], value: &[u8]) -> Result<bool, Fault>;
    /// Adds or replaces; whether there was a value, which `old` gets.
    fn insert(&self, key: &[u8], value: &[u8], old: Option<&mut Buffer>) -> Result<bool, Fault>;
    /// Adds many records, and writes down of each what came of it.
    fn try_insert_many(&self, records: &mut [Addition]) -> Result<(), Fault>;
    /// Removes a record. Its value goes into the buffer; if it does not fit, the record stays.
    fn remove(&self, key: &[u8], value: Option<&mut Buffer>) -> Result<Status, Fault>;
    /// Removes the record at an end; if it does not fit into the buffers, it stays.
    fn pop(
        &self,
        end: End,
        key: Option<&mut Buffer>,
        value: Option<&mut Buffer>,
    ) -> Result<Status, Fault>;
    /// Removes the records of a range; how many.
    fn remove_range(&self, span: &Span) -> Result<u64, Fault>;
    /// Removes the records of which `keep` says `false`; how many.
    fn retain(&self, keep: Each<'_>) -> Result<u64, Fault>;
    /// Makes all changes or none.
    fn write_batch(&self, changes: &[Change]) -> Result<(), Fault>;
    /// Has a record be `wanted` if it is `expected`; `found` gets what it is instead.
    fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&Bytes>,
        wanted: Option<&Bytes>,
        found: Option<&mut Buffer>,
    ) -> Result<Status, Fault>;
    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault>;
    /// As `get`, of a map at a moment.
    fn get_at(&self, moment: Moment<'_>, key: &[u8], take: Take<'_>) -> Result<Status, Fault>;
    /// As `scan`, of a map at a moment.
    fn scan_at(&self, moment: Moment<'_>, span: &Span, each: Each<'_>) -> Result<(), Fault>;
    /// Adds or replaces a record of a map, in a transaction.
    fn put_in(&self, tx: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), Fault>;
    /// As `remove`, of a map, in a transaction.
    fn remove_in(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        value: Option<&mut Buffer>,
    ) -> Result<Status, Fault>;
    /// What a commit changed of a map.
    fn changes_of(&self, commit: &Committed, each: EachChange<'_>) -> Result<(), Fault>;
    /// Whether the bounds are keys of this index.
    fn check_span(&self, span: &Span) -> Result<(), Fault>;
    fn len(&self) -> Result<u64, Fault>;
    fn check(&self) -> Result<u64, Fault>;
    fn recovery(&self) -> RecoveryReport;
    /// The index of numbers that this is.
    fn numbers(&self) -> Option<&dyn Index<u64, u64>>;
    fn close(self: Box<Self>) -> Result<(), Fault>;
}

fn bound<K: FromC>(bound: &Bound<Vec<u8>>) -> Result<Bound<K>, Fault> {
    let key = |bytes: &Vec<u8>| K::read_from(bytes, "the bound");
    Ok(match bound {
        Bound::Included(bytes) => Bound::Included(key(bytes)?),
        Bound::Excluded(bytes) => Bound::Excluded(key(bytes)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

/// A bound as it is lent.
pub(crate) fn borrowed<K: Key>(bound: &Bound<K>) -> Bound<&K::Ref> {
    bound.as_ref().map(K::borrowed)
}

/// Whether nothing can lie between the bounds.
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
