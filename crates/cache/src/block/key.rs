//! The names of blocks, and of groups of blocks.

use crate::hash::mix;

/// Names a block: its database, its file, and its offset in the file.
///
/// `instance` is a number that no other database has or had, for example 128 random bits. A database that is
/// restored from a backup, or copied, draws a new one, so it never reads blocks of its former life. Within an
/// instance a file number is not reused before [`invalidate`](super::BlockCache::invalidate) has returned for
/// it.
/// [`invalidate`](super::BlockCache::invalidate) has returned for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The instance of the database.
    pub instance: u128,
    /// The file.
    pub file: u64,
    /// The offset of the block in the file.
    pub offset: u64,
}

/// Words of a key.
pub(super) const KEY_WORDS: usize = 4;

impl Key {
    pub(super) fn words(&self) -> [u64; KEY_WORDS] {
        [self.instance as u64, (self.instance >> 64) as u64, self.file, self.offset]
    }

    pub(super) fn of(words: [u64; KEY_WORDS]) -> Self {
        let [low, high, file, offset] = words;
        Self { instance: u128::from(high) << 64 | u128::from(low), file, offset }
    }

    pub(super) fn hash(&self) -> u64 {
        hash(&self.words())
    }
}

/// All blocks of an instance, or of one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Prefix {
    /// All blocks of this instance.
    Instance(u128),
    /// All blocks of a file: instance and number.
    File(u128, u64),
}

impl Prefix {
    /// Returns `true` if a block is one of these.
    #[must_use]
    pub fn covers(&self, key: &Key) -> bool {
        match *self {
            Self::Instance(instance) => key.instance == instance,
            Self::File(instance, file) => (key.instance, key.file) == (instance, file),
        }
    }

    fn hash(&self) -> u64 {
        match *self {
            Self::Instance(instance) => hash(&[instance as u64, (instance >> 64) as u64]),
            Self::File(instance, file) => hash(&[instance as u64, (instance >> 64) as u64, file]),
        }
    }
}

fn hash(words: &[u64]) -> u64 {
    words.iter().fold(words.len() as u64, |hash, &word| mix(hash ^ word))
}

/// The instances and files that may have blocks in a segment: a Bloom filter of one line.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter([u64; 8]);

impl Filter {
    pub(super) fn add(&mut self, key: &Key) {
        let file = Prefix::File(key.instance, key.file);
        for at in places(&Prefix::Instance(key.instance)).into_iter().chain(places(&file)) {
            self.0[at / 64] |= 1 << (at % 64);
        }
    }

    pub(super) fn may_have(&self, prefix: &Prefix) -> bool {
        places(prefix).iter().all(|at| self.0[at / 64] >> (at % 64) & 1 == 1)
    }
}

fn places(prefix: &Prefix) -> [usize; 2] {
    let hash = prefix.hash();
    [hash as usize % 512, (hash >> 32) as usize % 512]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_miss_nothing() {
        let mut filter = Filter::default();
        let keys: Vec<Key> =
            (0..20).map(|n| Key { instance: 7 << 64 | 5, file: n, offset: 4096 * n }).collect();
        for key in &keys {
            filter.add(key);
        }
        for key in &keys {
            assert!(filter.may_have(&Prefix::Instance(key.instance)));
            assert!(filter.may_have(&Prefix::File(key.instance, key.file)));
            assert_eq!(Key::of(key.words()), *key);
        }
        assert!(!filter.may_have(&Prefix::Instance(5)));
        let absent = (100..1100).filter(|&n| filter.may_have(&Prefix::File(7 << 64 | 5, n)));
        assert!(absent.count() < 100);
    }
}
