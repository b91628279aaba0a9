//! Tags: how a buffer knows that an archive is of its own history.
//!
//! A pool can be put back to an earlier moment, or continue twice from one. An archive that was not put back with it
//! has records of a history that this pool has not had, and no LSN shows it: each history draws the same ones. So
//! each head of an archive has a random tag, and the buffer's root has two: that of the head which the archive has,
//! and that of the next one, durable before this is written.
//!
//! * A crash leaves either head, and the root knows both. What the next head adds is durable in the pool before its
//!   tag is, and a tag is not used again. So all states of a pool with a tag in the root have the records of that head.
//! * Any other archive is of a state before or after, or of another history: its tag is not in the root.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// The tags that the head of a buffer's archive may have; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    pub(crate) present: u32,
    pub(crate) next: u32,
}

impl Tags {
    pub(crate) fn from_word(word: u64) -> Self {
        Self { present: word as u32, next: (word >> 32) as u32 }
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.next) << 32 | u64::from(self.present)
    }

    /// Returns `true` if a head with this tag has nothing that the buffer has not had.
    pub(crate) fn know(self, tag: u32) -> bool {
        tag != 0 && (tag == self.present || tag == self.next)
    }
}

/// Returns a random tag. It depends on the time too: a machine that was put back draws other ones.
pub(crate) fn new_tag() -> u32 {
    let mut hasher = RandomState::new().build_hasher();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    hasher.write_u128(time.as_nanos());
    ((hasher.finish() >> 32) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_knows_two_tags_and_none_of_an_archive_without() {
        let tags = Tags { present: 5, next: u32::MAX };
        assert_eq!(Tags::from_word(tags.word()), tags);
        assert!(tags.know(5) && tags.know(u32::MAX));
        assert!(!tags.know(7) && !tags.know(0));
        assert!(!Tags::from_word(0).know(0));
        assert!(new_tag() != new_tag() || new_tag() != new_tag());
    }
}
