//! The operations of an index whose types are known only at run time: numbers or byte strings.

use std::ops::Bound;

use facade::{Committed, Index, Key, Kind, PrefixKey, RecoveryReport, Snapshot, Transaction};

use crate::boundary::{Addition, Buffer, Bytes, Change, Lookup};
use crate::status::{Fault, Status};

/// A type of keys and values.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Numbers: `uint64_t`.
    U64 = 0,
    /// Byte strings, ordered as by memcmp(); a prefix comes before longer strings.
    Bytes = 1,
}

impl Type {
    /// Converts the number that C passes.
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
    /// Decodes the bytes, and calls `work` with the borrowed value.
    fn borrow_from<R>(
        bytes: &[u8],
        what: &str,
        work: impl FnOnce(&Self::Ref) -> R,
    ) -> Result<R, Fault>;
    /// Decodes the bytes.
    fn read_from(bytes: &[u8], what: &str) -> Result<Self, Fault> {
        Self::borrow_from(bytes, what, Self::owned)
    }
    /// Calls `work` with the bytes.
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

/// A record in the form in which C passes it.
pub(crate) type Record = (Vec<u8>, Vec<u8>);
/// Called for each record; returns `false` to stop.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;
/// Called for each change, with the new value, or `None` for a removal; returns `false` to stop.
pub(crate) type EachChange<'a> = &'a mut dyn FnMut(&[u8], Option<&[u8]>) -> bool;
/// Called with a value.
pub(crate) type Take<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Fault>;

/// The bounds of a range.
pub(crate) type Bounds<K> = (Bound<K>, Bound<K>);

/// A range of records and a direction.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
    pub(crate) reverse: bool,
    /// `true` if the bounds are those of a prefix, which only byte strings have.
    pub(crate) is_prefix: bool,
}

impl Span {
    /// All records, ascending.
    pub(crate) const ALL: Self =
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, reverse: false, is_prefix: false };

    /// Returns the range of keys that begin with `prefix`.
    pub(crate) fn of_prefix(prefix: &[u8], reverse: bool) -> Self {
        let lower = Bound::Included(prefix.to_vec());
        Self { lower, upper: Vec::<u8>::after_prefix(prefix), reverse, is_prefix: true }
    }

    /// Returns the bounds as keys; `None` if no key lies between them, because Rust's ranges refuse such
    /// bounds.
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

/// One of the two ends of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    First,
    Last,
}

/// The state in which a map is read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment<'m> {
    Snapshot(&'m Snapshot),
    Transaction(&'m Transaction),
}

/// An open index behind a handle.
pub(crate) trait DynIndex: Send + Sync {
    fn kind(&self) -> Kind;
    fn types(&self) -> (Type, Type);
    /// Passes the value of a key to `take`, if the key is present.
    fn get(&self, key: &[u8], take: Take<'_>) -> Result<Status, Fault>;
    /// Looks up many keys, and sets the result of each.
    fn get_many(&self, lookups: &mut [Lookup]) -> Result<(), Fault>;
    fn contains(&self, key: &[u8]) -> Result<bool, Fault>;
    /// Returns `true` if the write took effect; for an upsert, if the key is new.
    fn write(&self, how: Write, key: &[u8], value: &[u8]) -> Result<bool, Fault>;
    /// Adds or replaces a record; returns `true` if there was a value, and copies that to `old`.
    fn insert(&self, key: &[u8], value: &[u8], old: Option<&mut Buffer>) -> Result<bool, Fault>;
    /// Adds many records, and sets the result of each.
    fn try_insert_many(&self, records: &mut [Addition]) -> Result<(), Fault>;
    /// Adds or replaces many records, and sets the result of each.
    fn put_many(&self, records: &mut [Addition]) -> Result<(), Fault>;
    /// Removes many records as `remove` does, and sets the result of each.
    fn remove_many(&self, lookups: &mut [Lookup]) -> Result<(), Fault>;
    /// Removes a record, and copies its value to the buffer; if the value does not fit, the record stays.
    fn remove(&self, key: &[u8], value: Option<&mut Buffer>) -> Result<Status, Fault>;
    /// Removes the record at an end; if it does not fit into the buffers, it stays.
    fn pop(
        &self,
        end: End,
        key: Option<&mut Buffer>,
        value: Option<&mut Buffer>,
    ) -> Result<Status, Fault>;
    /// Removes the records of a range; returns their number.
    fn remove_range(&self, span: &Span) -> Result<u64, Fault>;
    /// Removes the records for which `keep` returns `false`; returns their number.
    fn retain(&self, keep: Each<'_>) -> Result<u64, Fault>;
    /// Makes all changes or none.
    fn write_batch(&self, changes: &[Change]) -> Result<(), Fault>;
    /// Sets a record to `wanted` if it equals `expected`; otherwise copies its value to `found`.
    fn compare_exchange(
        &self,
        key: &[u8],
        expected: Option<&Bytes>,
        wanted: Option<&Bytes>,
        found: Option<&mut Buffer>,
    ) -> Result<Status, Fault>;
    fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault>;
    /// Does what `get` does, for a map at a moment.
    fn get_at(&self, moment: Moment<'_>, key: &[u8], take: Take<'_>) -> Result<Status, Fault>;
    /// Does what `scan` does, for a map at a moment.
    fn scan_at(&self, moment: Moment<'_>, span: &Span, each: Each<'_>) -> Result<(), Fault>;
    /// Adds or replaces a record of a map, in a transaction.
    fn put_in(&self, tx: &mut Transaction, key: &[u8], value: &[u8]) -> Result<(), Fault>;
    /// Does what `remove` does, for a map in a transaction.
    fn remove_in(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        value: Option<&mut Buffer>,
    ) -> Result<Status, Fault>;
    /// Passes the changes of a commit to the map to `each`.
    fn changes_of(&self, commit: &Committed, each: EachChange<'_>) -> Result<(), Fault>;
    /// Returns an error unless the bounds are keys of this index.
    fn check_span(&self, span: &Span) -> Result<(), Fault>;
    fn len(&self) -> Result<u64, Fault>;
    fn check(&self) -> Result<u64, Fault>;
    fn recovery(&self) -> RecoveryReport;
    /// Returns the index itself, if its keys and values are numbers.
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

/// Borrows a bound.
pub(crate) fn borrowed<K: Key>(bound: &Bound<K>) -> Bound<&K::Ref> {
    bound.as_ref().map(K::borrowed)
}

/// Returns `true` if no key can lie between the bounds.
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
