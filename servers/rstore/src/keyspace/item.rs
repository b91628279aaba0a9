//! The records of strings, hashes, sets, sorted sets and lists.
//!
//! | record | key | value |
//! | --- | --- | --- |
//! | string | `1` key | `s` bytes |
//! | string of memcached | `1` key | `m` flags (4) unique (8) bytes |
//! | head of a hash, set, sorted set, list | `1` key | `h`, `S`, `z`, `l`; id (8), length (8); of a list: index of its first element (8) |
//! | field of a hash | `2` id `f` field | value |
//! | member of a set | `2` id `f` member | nothing |
//! | member of a sorted set | `2` id `f` member | score (8) |
//! | the same, by score | `2` id `o` score (8) member | nothing |
//! | element of a list | `2` id `f` index (8) | bytes |
//! | owner of an id | `3` id | key |
//!
//! Numbers are big-endian; the sign bit of numbers that are compared is inverted, so that the order of the
//! bytes is that of the numbers. Only records of space `1` expire. Members are found by id, not by key: to
//! rename, overwrite, remove or expire a collection of any size takes one record. A new id is one more than
//! the greatest that has an owner; the owner record stays until the members are removed.

use super::{Draft, Failure, NEVER};

/// Records of clients' keys.
pub(crate) const KEYS: u8 = 1;
/// Members of collections.
pub(crate) const MEMBERS: u8 = 2;
/// Owners of ids.
pub(crate) const OWNERS: u8 = 3;

/// Members by name, or list elements by index.
pub(crate) const BY_NAME: u8 = b'f';
/// Members of a sorted set by score.
pub(crate) const BY_SCORE: u8 = b'o';

/// The type of a key's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Hash,
    Set,
    Sorted,
    List,
}

impl Kind {
    fn of(tag: u8) -> Option<Self> {
        Some(match tag {
            b's' | b'm' => Self::Text,
            b'h' => Self::Hash,
            b'S' => Self::Set,
            b'z' => Self::Sorted,
            b'l' => Self::List,
            _ => return None,
        })
    }

    fn tag(self) -> u8 {
        match self {
            Self::Text => b's',
            Self::Hash => b'h',
            Self::Set => b'S',
            Self::Sorted => b'z',
            Self::List => b'l',
        }
    }

    /// Returns the name in replies of `TYPE`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Hash => "hash",
            Self::Set => "set",
            Self::Sorted => "zset",
            Self::List => "list",
        }
    }
}

/// Returns the record key of a client's key.
pub(crate) fn key_of(key: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(key.len() + 1);
    record.push(KEYS);
    record.extend_from_slice(key);
    record
}

/// The record keys of clients' keys, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(crate) fn push(&mut self, key: &[u8]) {
        self.bytes.push(KEYS);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut begin, end)..end])
    }
}

/// Returns the record of a string.
pub(crate) fn text(value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(value.len() + 1);
    record.push(b's');
    record.extend_from_slice(value);
    record
}

/// The data that memcached keeps beside a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) flags: u32,
    pub(crate) unique: u64,
}

/// Returns the record of a value with memcached's tag.
pub(crate) fn tagged(tag: Tag, value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(value.len() + 13);
    record.push(b'm');
    record.extend_from_slice(&tag.flags.to_be_bytes());
    record.extend_from_slice(&tag.unique.to_be_bytes());
    record.extend_from_slice(value);
    record
}

/// The item under a client's key.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) record: Vec<u8>,
    pub(crate) expires: u64,
}

impl Item {
    pub(crate) fn kind(&self) -> Result<Kind, Failure> {
        let tag = self.record.first().copied().unwrap_or_default();
        Kind::of(tag).ok_or_else(|| Failure::Broken(format!("a record of unknown type {tag}")))
    }

    /// Returns the bytes of a string; `None` for other types.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self.record.first() {
            Some(b's') => Some(&self.record[1..]),
            Some(b'm') => self.record.get(13..),
            _ => None,
        }
    }

    /// Returns memcached's tag; `None` if a client of Redis wrote the value.
    pub(crate) fn tag(&self) -> Option<Tag> {
        let bytes = self.record.strip_prefix(b"m")?;
        Some(Tag { flags: u32::from_be_bytes(*bytes.first_chunk()?), unique: number(&bytes[4..])? })
    }

    /// Returns the head of a collection; `None` for a string.
    pub(crate) fn head(&self) -> Option<Head> {
        let kind = Kind::of(*self.record.first()?).filter(|kind| *kind != Kind::Text)?;
        let field = |at: usize| self.record.get(1 + at * 8..).and_then(number);
        Some(Head {
            kind,
            id: field(0)?,
            length: field(1)?,
            first: if kind == Kind::List { unsigned_order(field(2)?) } else { 0 },
            expires: self.expires,
        })
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The head of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) id: u64,
    pub(crate) length: u64,
    /// In a list, the index of the first element.
    pub(crate) first: i64,
    pub(crate) expires: u64,
}

impl Head {
    pub(crate) fn new(kind: Kind, id: u64) -> Self {
        Self { kind, id, length: 0, first: 0, expires: NEVER }
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        let mut record = vec![self.kind.tag()];
        record.extend_from_slice(&self.id.to_be_bytes());
        record.extend_from_slice(&self.length.to_be_bytes());
        if self.kind == Kind::List {
            record.extend_from_slice(&signed_order(self.first).to_be_bytes());
        }
        record
    }

    /// Returns the record key of a member by name.
    pub(crate) fn member(&self, name: &[u8]) -> Vec<u8> {
        member(self.id, BY_NAME, &[name])
    }

    /// Returns the record key of a member by score.
    pub(crate) fn scored(&self, score: f64, name: &[u8]) -> Vec<u8> {
        member(self.id, BY_SCORE, &[&ordered(score).to_be_bytes(), name])
    }

    /// Returns the record key of an element of a list.
    pub(crate) fn element(&self, index: i64) -> Vec<u8> {
        member(self.id, BY_NAME, &[&signed_order(index).to_be_bytes()])
    }

    /// Returns the lower bound of the members by name or score, and their exclusive upper bound.
    pub(crate) fn bounds(&self, by: u8) -> (Vec<u8>, Vec<u8>) {
        (member(self.id, by, &[]), member(self.id, by + 1, &[]))
    }
}

/// The bytes before the name or score of a member.
pub(crate) const MEMBER_PREFIX: usize = 10;

fn member(id: u64, by: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut record = Vec::with_capacity(MEMBER_PREFIX + length);
    record.push(MEMBERS);
    record.extend_from_slice(&id.to_be_bytes());
    record.push(by);
    for part in parts {
        record.extend_from_slice(part);
    }
    record
}

/// Returns the record key of the owner of an id.
pub(crate) fn owner(id: u64) -> Vec<u8> {
    let mut record = vec![OWNERS];
    record.extend_from_slice(&id.to_be_bytes());
    record
}

/// Returns the id in the record key of an owner or a member.
pub(crate) fn id_in(record: &[u8]) -> Option<u64> {
    record.get(1..).and_then(number)
}

/// Returns a number for a score, such that the numbers are ordered like the scores.
pub(crate) fn ordered(score: f64) -> u64 {
    // Positive and negative zero are one: Redis compares scores as numbers.
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Returns the score of such a number.
pub(crate) fn score_of(ordered: u64) -> f64 {
    f64::from_bits(if ordered >> 63 == 1 { ordered & !(1 << 63) } else { !ordered })
}

/// Returns the score and the name in the record key of a member by score.
pub(crate) fn scored_in(record: &[u8]) -> Option<(f64, &[u8])> {
    let rest = record.get(MEMBER_PREFIX..)?;
    let (score, name) = rest.split_first_chunk::<8>()?;
    Some((score_of(u64::from_be_bytes(*score)), name))
}

fn signed_order(number: i64) -> u64 {
    number.cast_unsigned() ^ 1 << 63
}

fn unsigned_order(ordered: u64) -> i64 {
    (ordered ^ 1 << 63).cast_signed()
}

impl Draft<'_> {
    /// Returns the item under a client's key.
    pub(crate) fn item(&self, key: &[u8]) -> Result<Option<Item>, Failure> {
        let key = key_of(key);
        let Some(record) = self.get(&key)? else { return Ok(None) };
        let expires = self.expiry(&key)?.unwrap_or(NEVER);
        Ok(Some(Item { record, expires }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_and_indexes_keep_their_order() {
        let scores = [f64::NEG_INFINITY, -2.5, -1e-9, 0.0, 1e-9, 3.0, f64::INFINITY];
        assert!(scores.is_sorted_by(|one, two| ordered(*one) < ordered(*two)));
        assert!(scores.iter().all(|score| score_of(ordered(*score)).to_bits() == score.to_bits()));
        assert_eq!(ordered(-0.0), ordered(0.0));
        assert!(
            [i64::MIN, -1, 0, 1, i64::MAX].is_sorted_by(|a, b| signed_order(*a) < signed_order(*b))
        );
    }

    #[test]
    fn heads_are_read_as_they_were_written() {
        for kind in [Kind::Hash, Kind::Set, Kind::Sorted, Kind::List] {
            let first = if kind == Kind::List { -7 } else { 0 };
            let head = Head { length: 3, first, expires: 9, ..Head::new(kind, 12) };
            let item = Item { record: head.record(), expires: 9 };
            assert_eq!(item.head(), Some(head));
            assert_eq!((item.text(), item.kind()), (None, Ok(kind)));
        }
        let tag = Tag { flags: 7, unique: 1 << 40 };
        let item = Item { record: tagged(tag, b"v"), expires: NEVER };
        assert_eq!((item.text(), item.tag()), (Some(&b"v"[..]), Some(tag)));
    }
}
