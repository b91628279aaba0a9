//! Records: their words in a block and in the log.
//!
//! ```text
//! word 0      1     2                                      3 ..
//! | checksum | LSN | key: 16, flags: 8, seal: 8, value: 32 | expiry | key | value, or place and generation |
//! ```
//!
//! The words from 1 on are the *body*, which the log also has. Keys and values begin at a word boundary; a
//! body has at least 3 words, so no two records of a block begin in the same 32 bytes.
//!
//! The *seal* of a record is 0. Otherwise it is a hash of the rest of the word, and the record is a *hole*
//! (see [`holes`](crate::holes)): only its length counts. A seal that is neither is damaged. The checksum
//! is that of the words with the seal 0.

use pmindex_core::short_word;

use crate::Millis;

/// Flag: the key was removed.
pub(crate) const TOMBSTONE: u8 = 1;
/// Flag: the value is in blocks of its own.
pub(crate) const LARGE: u8 = 2;
/// Flag: the record has an expiry.
pub(crate) const EXPIRES: u8 = 4;

/// The bits of a seal in the word of the lengths.
const SEAL: u32 = 24;

/// The minimum number of words of a body.
const LEAST: usize = 3;
/// The words of a body before the expiry and the key.
const HEAD: usize = 2;

/// The location of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeRef {
    pub(crate) place: u32,
    pub(crate) generation: u64,
}

/// The first two words of a body, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) lsn: u64,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
    pub(crate) flags: u8,
    /// 0, unless the record is a hole.
    pub(crate) seal: u8,
}

impl Head {
    #[inline(always)]
    pub(crate) fn decode(lsn: u64, word: u64) -> Self {
        let key_len = (word & 0xffff) as usize;
        let (flags, seal) = ((word >> 16) as u8, (word >> SEAL) as u8);
        Self { lsn, key_len, value_len: (word >> 32) as usize, flags, seal }
    }

    /// Returns the word of the lengths, with the seal 0.
    #[inline(always)]
    pub(crate) fn encode(self) -> u64 {
        (self.value_len as u64) << 32 | u64::from(self.flags) << 16 | self.key_len as u64
    }

    /// Returns the word of the lengths with a seal.
    pub(crate) fn encode_sealed(self, seal: u8) -> u64 {
        self.encode() | u64::from(seal) << SEAL
    }

    #[inline(always)]
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal != 0
    }

    #[inline(always)]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the first word of the key in the body.
    #[inline(always)]
    pub(crate) fn key_at(&self) -> usize {
        HEAD + usize::from(self.has(EXPIRES))
    }

    /// Returns the first word of the value, or of the reference to it, in the body.
    #[inline(always)]
    pub(crate) fn value_at(&self) -> usize {
        self.key_at() + self.key_len.div_ceil(8)
    }

    /// Returns the number of words of the body.
    #[inline(always)]
    pub(crate) fn words(&self) -> usize {
        let value = if self.has(LARGE) { 2 } else { self.value_len.div_ceil(8) };
        (self.value_at() + value).max(LEAST)
    }
}

/// The content of a record that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body<'b> {
    pub(crate) lsn: u64,
    pub(crate) key: &'b [u8],
    pub(crate) value: Content<'b>,
    pub(crate) expiry: Option<Millis>,
}

/// The value of a record that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'b> {
    Tombstone,
    Bytes(&'b [u8]),
    Large(LargeRef, usize),
}

impl Body<'_> {
    pub(crate) fn head(&self) -> Head {
        let (value_len, flags) = match self.value {
            Content::Tombstone => (0, TOMBSTONE),
            Content::Bytes(bytes) => (bytes.len(), 0),
            Content::Large(_, len) => (len, LARGE),
        };
        let flags = flags | if self.expiry.is_some() { EXPIRES } else { 0 };
        Head { lsn: self.lsn, key_len: self.key.len(), value_len, flags, seal: 0 }
    }

    /// Appends the words of the body.
    pub(crate) fn encode(&self, out: &mut Vec<u64>) {
        let (begin, head) = (out.len(), self.head());
        out.extend_from_slice(&[self.lsn, head.encode()]);
        out.extend(self.expiry);
        push_bytes(out, self.key);
        match self.value {
            Content::Tombstone => {}
            Content::Bytes(bytes) => push_bytes(out, bytes),
            Content::Large(at, _) => out.extend_from_slice(&[at.place.into(), at.generation]),
        }
        out.resize(begin + head.words(), 0);
    }
}

/// Appends bytes as words; pads the last one with zeros.
pub(crate) fn push_bytes(out: &mut Vec<u64>, bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    out.extend(whole.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    if !rest.is_empty() {
        out.push(short_word(rest));
    }
}

/// Appends the first `len` bytes of words.
pub(crate) fn pull_bytes(words: &[u64], len: usize, out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + 8 * words.len(), 0);
    let (chunks, _) = out[begin..].as_chunks_mut::<8>();
    for (chunk, word) in chunks.iter_mut().zip(words) {
        *chunk = word.to_le_bytes();
    }
    out.truncate(begin + len);
}

/// A body in DRAM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'w> {
    pub(crate) head: Head,
    pub(crate) words: &'w [u64],
}

impl<'w> Parts<'w> {
    /// Returns the body at the beginning of `words`; `None` if it is incomplete.
    pub(crate) fn split(words: &'w [u64]) -> Option<Self> {
        let head = Head::decode(*words.first()?, *words.get(1)?);
        words.get(..head.words()).map(|words| Self { head, words })
    }

    pub(crate) fn expiry(&self) -> Option<Millis> {
        self.head.has(EXPIRES).then(|| self.words[HEAD])
    }

    pub(crate) fn push_key(&self, out: &mut Vec<u8>) {
        pull_bytes(&self.words[self.head.key_at()..self.head.value_at()], self.head.key_len, out);
    }

    /// Returns the words of the value, or of the reference to it.
    pub(crate) fn value(&self) -> &'w [u64] {
        &self.words[self.head.value_at()..]
    }

    pub(crate) fn large(&self) -> Option<LargeRef> {
        let value = self.value();
        (self.head.has(LARGE)).then(|| LargeRef { place: value[0] as u32, generation: value[1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_come_out_as_they_went_in() {
        for (key, value) in
            [("", ""), ("k", "v"), ("a key of 18 bytes.", "and a longer value than that")]
        {
            for expiry in [None, Some(77)] {
                let at = LargeRef { place: 7, generation: 1 << 40 };
                let contents = [
                    Content::Tombstone,
                    Content::Bytes(value.as_bytes()),
                    Content::Large(at, 5000),
                ];
                for content in contents {
                    let mut words = vec![9];
                    Body { lsn: 3, key: key.as_bytes(), value: content, expiry }.encode(&mut words);
                    let parts = Parts::split(&words[1..]).expect("whole");
                    assert_eq!(parts.words.len(), words.len() - 1);
                    assert!(parts.words.len() >= LEAST);
                    assert_eq!((parts.head.lsn, parts.expiry()), (3, expiry));
                    let mut out = Vec::new();
                    parts.push_key(&mut out);
                    assert_eq!(out, key.as_bytes());
                    match content {
                        Content::Tombstone => assert!(parts.head.has(TOMBSTONE)),
                        Content::Large(at, len) => {
                            assert_eq!((parts.large(), parts.head.value_len), (Some(at), len));
                        }
                        Content::Bytes(bytes) => {
                            out.clear();
                            pull_bytes(parts.value(), parts.head.value_len, &mut out);
                            assert_eq!(out, bytes);
                        }
                    }
                    assert!(Parts::split(&words[1..words.len() - 1]).is_none());
                }
            }
        }
    }
}
