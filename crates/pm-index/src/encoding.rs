//! Keys and values as bytes, whatever their shape.

use crate::key::{Key, Shape, Storable};

/// Returns the bytes of an encoding. Those of keys compare as the keys do.
#[must_use]
pub fn encoded<T: Storable>(value: &T::Ref) -> Vec<u8> {
    match T::SHAPE {
        Shape::Inline(words) => {
            T::to_words(value)[..words].iter().flat_map(|word| word.to_be_bytes()).collect()
        }
        Shape::Bytes => T::to_bytes(value).into_owned(),
    }
}

/// Back from the bytes; `None` if they are no encoding.
#[must_use]
pub fn decoded<T: Storable>(bytes: &[u8]) -> Option<T> {
    match T::SHAPE {
        Shape::Inline(words) => {
            let (chunks, rest) = bytes.as_chunks();
            let words_read: Vec<u64> =
                chunks.iter().map(|word| u64::from_be_bytes(*word)).collect();
            (rest.is_empty() && words_read.len() == words).then(|| T::from_words(&words_read))
        }
        Shape::Bytes => T::from_bytes(bytes),
    }
}

/// Returns a hash of a key.
#[must_use]
pub fn hash_of<K: Key>(key: &K::Ref) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    match K::SHAPE {
        Shape::Inline(words) => K::to_words(key)[..words].hash(&mut hasher),
        Shape::Bytes => K::to_bytes(key).hash(&mut hasher),
    }
    hasher.finish()
}
