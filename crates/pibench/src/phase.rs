//! The phases: one kind of operation each, in the order they run.

use core::fmt;

/// One kind of operation, measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Inserts all records into the empty index, in random key order.
    Load,
    /// Looks up keys that exist.
    Get,
    /// Looks up keys that do not.
    GetMiss,
    /// Reads 100 records from a random existing key on.
    Scan,
    /// Inserts new keys into the full index.
    Insert,
    /// Replaces values of existing keys.
    Update,
    /// Removes existing keys.
    Delete,
    /// Looks up existing keys, 64 in a call.
    GetMany,
    /// Inserts new keys, 64 in a call.
    InsertMany,
}

impl Phase {
    /// All of them, in the order they run.
    pub const ALL: [Self; 9] = [
        Self::Load,
        Self::Get,
        Self::GetMiss,
        Self::Scan,
        Self::Insert,
        Self::Update,
        Self::Delete,
        Self::GetMany,
        Self::InsertMany,
    ];

    /// Its name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Get => "get",
            Self::GetMiss => "get_miss",
            Self::Scan => "scan",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::GetMany => "get_many",
            Self::InsertMany => "insert_many",
        }
    }

    /// Whether it changes the index.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Load | Self::Insert | Self::Update | Self::Delete | Self::InsertMany)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
