//! Keys and values as the peers take them: 8-byte integers, or byte strings.

use std::hash::Hash;

/// The type of a key or a value.
pub(crate) trait Field:
    Clone + Default + Ord + Hash + Send + Sync + ferntree::OptimisticRead + 'static
{
    /// Its bytes, which sort as the keys do.
    type Bytes<'f>: AsRef<[u8]>;
    /// Its type in a table of `redb`.
    type Redb: redb::Key + 'static;

    /// Returns its bytes.
    fn bytes(&self) -> Self::Bytes<'_>;

    /// Returns it as `redb` takes it.
    fn redb(&self) -> <Self::Redb as redb::Value>::SelfType<'_>;
}

impl Field for u64 {
    type Bytes<'f> = [u8; 8];
    type Redb = u64;

    fn bytes(&self) -> [u8; 8] {
        self.to_be_bytes()
    }

    fn redb(&self) -> u64 {
        *self
    }
}

impl Field for Vec<u8> {
    type Bytes<'f> = &'f [u8];
    type Redb = &'static [u8];

    fn bytes(&self) -> &[u8] {
        self
    }

    fn redb(&self) -> &[u8] {
        self
    }
}
