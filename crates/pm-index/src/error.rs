//! The errors of operations on an index.

use std::fmt;

use pmindex_core::{DurabilityLost, PmError};
use pmindex_error::error_enum;

/// Nothing was added: the key is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupied;

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is in the index already")
    }
}

impl std::error::Error for Occupied {}

impl Occupied {
    /// Returns the outcome of an insert that takes place if the key is `new`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn unless(new: bool) -> Result<(), Self> {
        if new { Ok(()) } else { Err(Self) }
    }
}

/// Nothing was changed: the key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing;

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the key is not in the index")
    }
}

impl std::error::Error for Missing {}

impl Missing {
    /// Returns the outcome of an update that takes place if the key is `present`.
    #[doc(hidden)]
    #[inline(always)]
    pub fn unless(present: bool) -> Result<(), Self> {
        if present { Ok(()) } else { Err(Self) }
    }
}

error_enum! {
    /// The errors of operations on an index. The index stays usable and intact.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum IndexError {
        /// The pool: full, corrupt, read-only, poisoned.
        #[error(transparent)]
        Pool(#[from] PmError),
        /// The key's encoding is too long.
        #[error("a key of {len} bytes is too long; the limit of this index is {max} bytes")]
        KeyTooLong {
            /// Its length in bytes.
            len: usize,
            /// The limit in bytes.
            max: usize,
        },
        /// The value's encoding is too long.
        #[error("a value of {len} bytes is too long; the limit of this index is {max} bytes")]
        ValueTooLong {
            /// Its length in bytes.
            len: usize,
            /// The limit in bytes.
            max: usize,
        },
        /// No index of this name.
        #[error("the pool has no index named {name:?}; check the name, or create the index first")]
        NoSuchIndex {
            /// The name.
            name: String,
        },
        /// The name is taken.
        #[error("the pool already has an index named {name:?}; open it, or choose another name")]
        IndexExists {
            /// The name.
            name: String,
        },
        /// The name is that of the log of an index's batches, or would be taken for one.
        #[error(
            "the name {name:?} is for the log of the batches of an index, as are all names that end in {ending:?}; \
             choose another name"
        )]
        ReservedName {
            /// The name.
            name: String,
            /// The ending of such names.
            ending: &'static str,
        },
        /// The index has another type.
        #[error("index {name:?} is a {found}, not a {wanted}; open it as a {found}")]
        WrongType {
            /// The name.
            name: String,
            /// The type found.
            found: String,
            /// The type asked for.
            wanted: String,
        },
        /// The index has other key or value types, or node capacities.
        #[error(
            "index {name:?} has {found}; it was opened as {wanted}; open it with the types it was created with"
        )]
        WrongLayout {
            /// The name.
            name: String,
            /// The types found, as far as they are known: a pool keeps a hash of the types' names.
            found: String,
            /// The types asked for.
            wanted: String,
        },
        /// A record was to be added, and its key is there: [`Occupied`].
        #[error(transparent)]
        Occupied(#[from] Occupied),
        /// A record was to be changed, and its key is not there: [`Missing`].
        #[error(transparent)]
        Missing(#[from] Missing),
        /// More keys begin with the same bits of their hash than an index by hash can tell apart: they
        /// were made so.
        #[error(
            "the index has no room for this key: its hash begins with the same bits as those of {keys} other \
             keys; put keys that strangers choose into an ordered index"
        )]
        TooManyAlike {
            /// The number of keys.
            keys: u64,
        },
        /// The file of pages of a paged map, beside its pool: it cannot be created, opened, read or written,
        /// or a page of it is damaged.
        #[error("the pages of a paged map: {what}")]
        Pages {
            /// The error.
            what: String,
        },
        /// `bulk_load` into an index with records.
        #[error("bulk_load needs an empty index, and this one has records; insert into it instead")]
        NotEmpty,
        /// `bulk_load` input out of order at this item.
        #[error(
            "bulk_load input is not strictly ascending at item {at} (from 0); sort it by key and drop \
             duplicates"
        )]
        NotSorted {
            /// The item's number, from 0.
            at: u64,
        },
    }
}

/// The types of this crate that a pool's hash is compared with.
const KNOWN: [&str; 13] =
    ["u64", "str", "bytes", "i64", "u32", "i32", "u16", "i16", "u8", "i8", "bool", "char", "()"];

impl IndexError {
    /// Returns [`WrongLayout`](Self::WrongLayout) for an index with `layout` in the pool's directory.
    /// `layout_of` returns the layout for the names of a key type and a value type. Tries 169 pairs of names.
    #[doc(hidden)]
    #[must_use]
    pub fn wrong_layout(
        name: &str,
        wanted: String,
        layout: u64,
        layout_of: impl Fn(&str, &str) -> u64,
    ) -> Self {
        let pairs = KNOWN.iter().flat_map(|key| KNOWN.iter().map(move |value| (key, value)));
        let mut known = pairs.filter(|(key, value)| layout_of(key, value) == layout);
        let found = known.next().map_or_else(
            || "keys or values of other types, or nodes of another size".into(),
            |(key, value)| format!("keys of type {key} and values of type {value}"),
        );
        Self::WrongLayout { name: name.into(), found, wanted }
    }
}

impl From<DurabilityLost> for IndexError {
    fn from(lost: DurabilityLost) -> Self {
        Self::Pool(lost.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Storable;

    #[test]
    fn known_types_are_called_what_they_call_themselves() {
        let names = [
            u64::type_name(),
            String::type_name(),
            Vec::<u8>::type_name(),
            i64::type_name(),
            u32::type_name(),
            i32::type_name(),
            u16::type_name(),
            i16::type_name(),
            u8::type_name(),
            i8::type_name(),
            bool::type_name(),
            char::type_name(),
            <()>::type_name(),
        ];
        assert_eq!(names, KNOWN);
    }

    #[test]
    fn what_is_there_is_named_if_it_can_be() {
        let layout = |key: &str, value: &str| (key.len() * 100 + value.len()) as u64;
        let error = |there| {
            IndexError::wrong_layout("a", "fptree<u64, u64, 54>".into(), there, layout).to_string()
        };
        let text = error(layout("str", "u64"));
        assert!(
            text.contains("\"a\" has keys of type ") && text.contains("opened as fptree"),
            "{text}"
        );
        assert!(error(7).contains("other types"), "{}", error(7));
    }
}
